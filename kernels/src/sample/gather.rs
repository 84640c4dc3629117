//! The second kernel of sampling: it stores the masses of each chunk and a mask of the first
//! tokens.
//!
//! The mask has the tokens of the upper bins of the histogram. If top-k filters, these are the
//! fewest bins that hold all tokens that top-k keeps. If only top-p orders tokens, they are as many
//! bins as fit [`LISTED`] tokens. If the mask has at most [`LISTED`] tokens, the last kernel reads
//! no others, except where the mask's mass does not reach the share of top-p.

use super::adjust::{bin, bin_on_cpu};
use super::limits::{BINS, CHUNK, LISTED, THREADS};
use super::params::DeviceParams;
use super::rows::{self, RowsArgs, SampledRow};
use super::weight::{self, weight};
use super::{SampleParams, block, blocks};
use crate::shared::{Contract, check_lengths};
use ptx_gen::*;

args! {
    /// Arguments of [`SampleGather`].
    pub struct SampleGatherArgs {
        /// `[capacity, vocab]`: the result of [`SampleAdjust`](super::SampleAdjust)
        z: In<f32>,
        /// `[states, 8]`, as in [`state`](crate::shared::state)
        state: In<u32>,
        /// `[count, blocks]`: the maximum of each chunk. The buffer may be longer.
        largest: In<f32>,
        /// `[count, 1024]`: the number of tokens in each bin. The buffer may be longer.
        histogram: In<u32>,
        /// `[count, words]`: a bit for each token, set for the first tokens, with [`mask_words`]
        /// words of 32 tokens. The buffer may be longer.
        mask: Out<u32>,
        /// `[count]`: the number of tokens of the mask, or 0 if the mask does not decide the draw.
        /// The buffer may be longer.
        listed: Out<u32>,
        /// `[count, 2, blocks]`: the masses of the chunks. The first are of all tokens at
        /// temperature 1, the second of the tokens that min-p keeps at the sequence's temperature.
        /// They are not written if top-k keeps few tokens and no log-probability is recorded. The
        /// buffer may be longer.
        mass: Out<u64>,
        /// The rows and sequences.
        of: RowsArgs,
    }
}

/// Kernel that stores the masses of chunks and a mask of the first tokens.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SampleGather {
    /// True if the kernel starts before the previous one ends and waits for it on the device
    /// (programmatic dependent launch), which needs sm_90.
    pub overlap: bool,
}

/// Returns the number of words of a row of the mask, a multiple of four for loads of vectors.
pub fn mask_words(vocab: u32) -> u32 {
    4 * vocab.div_ceil(128)
}

impl KernelDef for SampleGather {
    type Args<S: Side> = SampleGatherArgs<S>;

    fn name(&self) -> String {
        format!("sample_gather{}", if self.overlap { "" } else { "_plain" })
    }

    fn block(&self) -> u32 {
        THREADS
    }

    fn grid(&self, a: &SampleGatherArgs<Shape>) -> Result<Grid, ShapeError> {
        let RowsArgs {
            vocab,
            count,
            capacity,
            ..
        } = a.of;
        rows::check(self, &a.of, a.state)?;
        check_lengths! { self, a:
            z == capacity * vocab,
        }
        self.at_least(
            "largest",
            a.largest,
            "count * blocks",
            &[count, blocks(vocab)],
        )?;
        self.at_least("histogram", a.histogram, "count * 1024", &[count, BINS])?;
        self.at_least("mask", a.mask, "count * words", &[count, mask_words(vocab)])?;
        check_lengths! { self, a:
            listed >= count,
        }
        self.at_least(
            "mass",
            a.mass,
            "count * 2 * blocks",
            &[count, 2, blocks(vocab)],
        )?;
        Ok(Grid::plane(blocks(vocab), count))
    }

    fn program<'k>(&self, k: Builder<'k>, a: SampleGatherArgs<Dev<'k>>) {
        rows::trigger(k, self.overlap);
        let row = SampledRow::load(k, &a.of, a.state);
        row.wait(k, self.overlap);
        row.process(k, || Chunk::load(k, &a, &row).gather());
    }

    fn reference(&self, a: SampleGatherArgs<Cpu<'_>>) {
        let vocab = a.of.vocab as usize;
        let blocks = blocks(a.of.vocab) as usize;
        for row in rows::on_cpu(&a.of, a.state) {
            let params = SampleParams::of_words(&a.of.params[row.sequence * SampleParams::WORDS..]);
            let z = &a.z[row.index * vocab..][..vocab];
            let most = a.largest[row.index * blocks..][..blocks]
                .iter()
                .fold(f32::NEG_INFINITY, |m, &z| m.max(z));

            // A logit is not finite, and the last kernel reports it.
            if most == f32::INFINITY {
                continue;
            }

            let bins = BINS as usize;
            let histogram = &a.histogram[row.index * bins..][..bins];
            let (first, listed) = upper(histogram, &params);
            a.listed[row.index] = listed;
            let words = mask_words(a.of.vocab) as usize;
            let mask = &mut a.mask[row.index * words..][..words];
            mask.fill(0);

            // A word has a bit for each of 32 tokens: 1 if its bin is the first one or above.
            let in_mask = |z: f32| listed > 0 && bin_on_cpu(z) >= first;
            for (word, z) in mask.iter_mut().zip(z.chunks(32)) {
                let bits = z.iter().enumerate();
                *word = bits.map(|(i, &z)| u32::from(in_mask(z)) << i).sum();
            }

            if !params.needs_masses() {
                continue;
            }

            // The masses of all chunks at temperature 1, then at the sequence's temperature.
            let masses = &mut a.mass[2 * row.index * blocks..][..2 * blocks];
            for (i, z) in z.chunks(CHUNK as usize).enumerate() {
                let plain = |&z: &f32| weight(z, most, SampleParams::OFF.scale);
                masses[i] = z.iter().map(plain).sum();
                let kept = z.iter().filter(|&&z| z - most >= params.min_gap);
                let drawn = |&z: &f32| weight(z, most, params.scale);
                masses[blocks + i] = kept.map(drawn).sum();
            }
        }
    }
}

/// Returns the first bin of the mask and the number of its tokens, or zeros if a mask cannot decide
/// the draw.
fn upper(histogram: &[u32], params: &SampleParams) -> (u32, u32) {
    // Top-k needs all bins down to its last token. Top-p takes as many whole bins as fit.
    let (goal, fits) = match params.top_k {
        1..=LISTED => (params.top_k.max(params.best), 0),
        0 if params.typical_p == 0 && params.top_p > 0 => (LISTED + 1, 1),
        _ => return (0, 0),
    };
    let mut sums: Vec<u32> = histogram.to_vec();
    for bin in (0..sums.len() - 1).rev() {
        sums[bin] += sums[bin + 1];
    }

    let first = sums
        .iter()
        .rposition(|&sum| sum >= goal)
        .map_or(0, |bin| bin + fits);
    let listed = sums.get(first).copied().unwrap_or(0);
    (first as u32, if listed > LISTED { 0 } else { listed })
}

/// The chunk of a row that a block processes, and the values that a thread loads for it.
///
/// All values are loaded at once, so that the latencies of the loads overlap.
struct Chunk<'a, 'k> {
    k: Builder<'k>,
    a: &'a SampleGatherArgs<Dev<'k>>,
    row: &'a SampledRow<'k>,
    /// The maximum of the chunk with the thread's number.
    largest: Var<'k, f32>,
    /// A bin: the first thread has the uppermost one.
    bin: U32<'k>,
    /// The number of tokens of the bin.
    binned: U32<'k>,
    /// Two tokens of the chunk.
    tokens: [U32<'k>; 2],
    /// The logits of the tokens.
    z: [Var<'k, f32>; 2],
}

impl<'a, 'k> Chunk<'a, 'k> {
    fn load(k: Builder<'k>, a: &'a SampleGatherArgs<Dev<'k>>, row: &'a SampledRow<'k>) -> Self {
        k.section(
            "sample/gather/maximum",
            "the maximum of a chunk, a bin, and two tokens for each thread",
        );
        let maxima = a.largest.row(row.index, k.nctaid() * 4);
        let largest = load_largest(k, maxima, k.nctaid());
        let bin = k.val(BINS - 1) - k.tid();
        let binned = a.histogram.row(row.index, 4 * BINS).at(bin).fresh().ld();
        let tokens = [0, THREADS].map(|i| k.ctaid() * CHUNK + k.tid() + i);
        let z = tokens.map(|token| {
            // A token past the vocabulary is not loaded. Negative infinity is never the maximum.
            let mut z = k.var(f32::NEG_INFINITY);
            let logits = a.z.row(row.index, a.of.vocab * 4);
            let logit = logits.at(token).fresh();
            logit.ld_if(token.lt(a.of.vocab), &mut z);
            z
        });
        Chunk {
            k,
            a,
            row,
            largest,
            bin,
            binned,
            tokens,
            z,
        }
    }

    fn gather(&self) {
        let k = self.k;
        let most = block::max(k, self.largest.get());
        // The block is uniform here. A row with a logit that is not finite gets no mask, and the
        // last kernel tests the same maximum.
        k.when(most.lt(f32::INFINITY), || {
            let [first, listed] = self.upper();
            self.store_mask(first, listed);
            k.when(k.ctaid().eq(0) & k.tid().eq(0), || {
                self.a.listed.at(self.row.index).st(listed)
            });
            k.when(self.row.params.needs_masses(), || self.store_masses(most));
        });
    }

    fn store_mask(&self, first: U32<'k>, listed: U32<'k>) {
        let k = self.k;
        let a = self.a;
        let words = (a.of.vocab + 127) / 128 * 4;
        let mask = a.mask.row(self.row.index, words * 4);
        for (token, z) in self.tokens.iter().zip(&self.z) {
            k.section("sample/gather/mask", "a word of the mask for each warp");
            let exists = listed.gt(0) & token.lt(a.of.vocab);
            let in_mask = exists & bin(z.get()).ge(first);
            // The 32 lanes of a warp have the 32 tokens of a word.
            let word = *token / 32;
            let bits = in_mask.ballot();
            k.when(k.lane().eq(0) & word.lt(words), || mask.at(word).st(bits));
        }
    }

    fn store_masses(&self, most: F32<'k>) {
        let k = self.k;
        let a = self.a;

        k.section("sample/gather/masses", "the masses of the chunk");
        let mut masses = [k.var(0u64), k.var(0u64)];
        for (token, z) in self.tokens.iter().zip(&self.z) {
            k.when(token.lt(a.of.vocab), || {
                add(k, &mut masses, z.get(), most, &self.row.params)
            });
        }

        // Sums of integers are exact, so the order in the block does not matter.
        let masses = masses.map(|mass| block::sum(k, mass.get()));
        k.when(k.tid().eq(0), || {
            let own = a.mass.row(self.row.index, k.nctaid() * 16);
            own.at(k.ctaid()).st(masses[0]);
            own.at(k.ctaid() + k.nctaid()).st(masses[1]);
        });
    }

    /// Returns the first bin of the mask and the number of its tokens in every thread, like the
    /// function `upper`.
    fn upper(&self) -> [U32<'k>; 2] {
        let k = self.k;
        let bin = self.bin;
        let own = self.binned;
        let DeviceParams {
            top_k,
            top_p,
            typical_p,
            best,
            ..
        } = self.row.params;

        k.section(
            "sample/gather/first_bin",
            "the first bin of the mask: the last one whose tokens are needed or fit",
        );
        let counted = (top_k - 1).lt(LISTED);
        let fitted = top_k.eq(0) & typical_p.eq(0) & top_p.gt(0);
        let goal = counted.select(top_k.max(best), LISTED + 1);

        // Threads have falling bins, so the prefix sum counts the tokens from the uppermost bin on.
        // It rises, and one thread at most has the bin in which it reaches the goal.
        let counts = block::scan(k, block::totals(k), own.cvt());
        let sum = counts.cvt::<u32>();
        let found = k.shared::<u32>("upper", 2);
        let publish = |first: U32<'k>, listed: U32<'k>| {
            found.st(first);
            found.at(1).st(listed);
        };
        let before = sum - own;
        let here = sum.ge(goal) & before.lt(goal);
        k.when(here & fitted, || publish(bin + 1, before))
            .otherwise(|| {
                k.when(here, || publish(bin, sum));
            });

        // All bins together may be below the goal. Then the mask has every token.
        k.when(bin.eq(0) & sum.lt(goal), || publish(bin, sum));
        k.barrier();
        let [first, listed] = [0, 1].map(|i| found.at(i).ld());
        let useful = (counted | fitted) & listed.le(LISTED);
        [first, useful.select(listed, 0)]
    }
}

/// Loads the maximum of a chunk in each of the first threads, and negative infinity in the others.
///
/// A row has at most 128 chunks, so one load per thread of the block suffices.
pub(super) fn load_largest<'k>(
    k: Builder<'k>,
    chunks: Ptr<'k, f32, ReadOnly>,
    blocks: U32<'k>,
) -> Var<'k, f32> {
    let mut most = k.var(f32::NEG_INFINITY);
    let own = chunks.at(k.tid()).fresh();
    own.ld_if(k.tid().lt(blocks), &mut most);
    most
}

/// Adds both masses of a token to `masses`.
fn add<'k>(
    k: Builder<'k>,
    masses: &mut [Var<'k, u64>; 2],
    z: F32<'k>,
    most: F32<'k>,
    params: &DeviceParams<'k>,
) {
    k.section("sample/gather/mass", "its mass at temperature 1");
    let [plain, drawn] = masses;
    let one = SampleParams::OFF.scale.map(|scale| k.val(scale));
    *plain += weight::on_device(z, most, one);

    k.section(
        "sample/gather/mass_with_temperature",
        "its mass at the sequence's temperature",
    );
    let kept = (z - most).ge(params.min_gap);
    k.when(kept, || *drawn += weight::on_device(z, most, params.scale));
}
