//! The first kernel of sampling: it applies biases and penalties, takes the maximum of each chunk,
//! and counts the results by bin.
//!
//! ```text
//! z = logit + bias
//! z = z / repeat if z > 0, else z * repeat           if the token is in the window
//! z = z - (times * frequency + presence)             if it is there `times` times
//! ```
//!
//! The window is the latest tokens of the sequence. A block first counts the tokens of the window
//! that are in its chunk. It can then read each logit once and in order. A logit that is not finite
//! makes the maximum of its chunk infinite, and then no token is chosen.

use super::limits::{BINS, CHUNK, MAX_BIASES, MAX_WINDOW, THREADS};
use super::reference::adjusted;
use super::rows::{self, RowsArgs, SampledRow};
use super::{SampleParams, blocks};
use crate::shared::reduce::block_max;
use crate::shared::{Contract, check_lengths};
use crate::simple::argmax::{key, key_on_cpu};
use ptx_gen::*;

args! {
    /// Arguments of [`SampleAdjust`].
    pub struct SampleAdjustArgs {
        /// `[capacity, vocab]`, of which `count` rows are read
        logits: In<f32>,
        /// `[states, 8]`, as in [`state`](crate::shared::state)
        state: In<u32>,
        /// `[sequences, max_tokens]`: the token at each position, up to the position of the state
        tokens: In<u32>,
        /// `[sequences, 256, 2]`: a biased token and the bits of the `f32` that is added to its
        /// logit. No token occurs twice in a sequence.
        bias: In<u32>,
        /// `[capacity, vocab]`: the biased and penalized logits
        z: Out<f32>,
        /// `[count, blocks]`: the maximum of each chunk, or infinity if a logit is not finite. The
        /// buffer may be longer.
        largest: Out<f32>,
        /// `[count, 1024]`: the number of tokens in each bin. It must be zero before the kernel
        /// runs. The buffer may be longer.
        histogram: InOut<u32>,
        /// The rows and sequences.
        of: RowsArgs,
    }
}

/// Kernel that applies biases and penalties to logits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SampleAdjust {
    /// True if the kernel starts before the previous one ends and waits for it on the device
    /// (programmatic dependent launch), which needs sm_90.
    pub overlap: bool,
}

impl KernelDef for SampleAdjust {
    type Args<S: Side> = SampleAdjustArgs<S>;

    fn name(&self) -> String {
        format!("sample_adjust{}", if self.overlap { "" } else { "_plain" })
    }

    fn block(&self) -> u32 {
        THREADS
    }

    fn grid(&self, a: &SampleAdjustArgs<Shape>) -> Result<Grid, ShapeError> {
        let RowsArgs {
            vocab,
            count,
            capacity,
            sequences,
            max_tokens,
            ..
        } = a.of;
        rows::check(self, &a.of, a.state)?;
        check_lengths! { self, a:
            logits == capacity * vocab,
            z == capacity * vocab,
            tokens == sequences * max_tokens,
        }
        self.length(
            "bias",
            a.bias,
            "sequences * 512",
            &[sequences, 2 * MAX_BIASES],
        )?;
        self.at_least(
            "largest",
            a.largest,
            "count * blocks",
            &[count, blocks(vocab)],
        )?;
        self.at_least("histogram", a.histogram, "count * 1024", &[count, BINS])?;
        Ok(Grid::plane(blocks(vocab), count))
    }

    fn program<'k>(&self, k: Builder<'k>, a: SampleAdjustArgs<Dev<'k>>) {
        rows::trigger(k, self.overlap);
        let chunk = Chunk::new(k, &a, SampledRow::load(k, &a.of, a.state));
        chunk.prepare();
        chunk.row.wait(k, self.overlap);
        chunk.row.process(k, || chunk.process());
    }

    fn reference(&self, a: SampleAdjustArgs<Cpu<'_>>) {
        let vocab = a.of.vocab as usize;
        let blocks = blocks(a.of.vocab) as usize;
        for row in rows::on_cpu(&a.of, a.state) {
            let params = SampleParams::of_words(&a.of.params[row.sequence * SampleParams::WORDS..]);

            // The penalties look back from the row's position.
            let first = row.sequence * a.of.max_tokens as usize;
            let tokens = &a.tokens[first..][..=row.position];
            let window = params.window.min(MAX_WINDOW) as usize;
            let latest = &tokens[tokens.len().saturating_sub(window)..];

            // A bias is a token and the bits of what is added to its logit.
            let pairs = &a.bias[row.sequence * 2 * MAX_BIASES as usize..];
            let (biases, _) = pairs.as_chunks::<2>();
            let biases = &biases[..params.biases.min(MAX_BIASES) as usize];

            let logits = &a.logits[row.index * vocab..][..vocab];
            let z = &mut a.z[row.index * vocab..][..vocab];
            z.copy_from_slice(&adjusted(logits, &params, latest, biases));

            let histogram = &mut a.histogram[row.index * BINS as usize..];
            for &z in z.iter() {
                histogram[bin_on_cpu(z) as usize] += 1;
            }

            let largest = &mut a.largest[row.index * blocks..];
            for (z, largest) in z.chunks(CHUNK as usize).zip(largest) {
                let keys = z.iter().map(|&z| key_on_cpu(z));
                *largest = keys.fold(f32::NEG_INFINITY, f32::max);
            }
        }
    }
}

/// The exponent and the upper five bits of the fraction of 2^-4, as one integer.
///
/// It is the least magnitude with a separate bin. From there, 16 powers of two with 32 bins each
/// make up `HALF` bins, so all magnitudes from 2^12 on share the last bin.
const FIRST: u32 = (127 - 4) << 5;
/// The number of bins of the positive numbers.
const HALF: u32 = BINS / 2;

/// Returns the bin of a number. A larger number has the same bin or a higher one.
pub(crate) fn bin<'k>(z: F32<'k>) -> U32<'k> {
    let magnitude = (z.abs().bits::<u32>() >> 18).max(FIRST - 1) - (FIRST - 1);
    let magnitude = magnitude.min(HALF - 1);
    z.lt(0.0)
        .select(
            -magnitude.bits::<i32>() + (HALF as i32 - 1),
            magnitude.bits::<i32>() + HALF as i32,
        )
        .bits()
}

/// Returns [`bin`] on the CPU.
pub(crate) fn bin_on_cpu(z: f32) -> u32 {
    let magnitude = ((z.abs().to_bits() >> 18).max(FIRST - 1) - (FIRST - 1)).min(HALF - 1);
    if z < 0.0 {
        HALF - 1 - magnitude
    } else {
        HALF + magnitude
    }
}

/// The chunk of a row that a block processes.
struct Chunk<'a, 'k> {
    k: Builder<'k>,
    a: &'a SampleAdjustArgs<Dev<'k>>,
    row: SampledRow<'k>,
    /// The first token of the chunk.
    first: U32<'k>,
    /// `[CHUNK]`: how often each token of the chunk is in the window.
    times: Ptr<'k, u32, Shared>,
    /// `[CHUNK]`: the bias of each token of the chunk.
    bias: Ptr<'k, f32, Shared>,
    /// `[BINS]`: the number of tokens of the chunk in each bin.
    histogram: Ptr<'k, u32, Shared>,
}

impl<'a, 'k> Chunk<'a, 'k> {
    fn new(k: Builder<'k>, a: &'a SampleAdjustArgs<Dev<'k>>, row: SampledRow<'k>) -> Self {
        let times = k.shared("times", CHUNK);
        let bias = k.shared("biases", CHUNK);
        Chunk {
            k,
            a,
            row,
            first: k.ctaid() * CHUNK,
            times,
            bias,
            histogram: k.shared("bins", BINS),
        }
    }

    /// Collects the penalties and biases of the chunk's tokens.
    ///
    /// It reads nothing that the kernels before this one write, so it runs before the wait.
    fn prepare(&self) {
        let k = self.k;

        k.section(
            "sample/adjust/flags",
            "penalties and biases of the tokens of this chunk",
        );
        for i in [0, THREADS] {
            self.times.at(k.tid() + i).st(0);
            self.bias.at(k.tid() + i).st(0.0);
        }

        self.histogram.at(k.tid()).st(0);

        // All counters must be zero before any thread counts.
        k.barrier();
        self.count_latest();
        self.fetch_biases();
        k.barrier();
    }

    /// Adjusts the logits of the chunk and stores their maximum and their histogram.
    fn process(&self) {
        let k = self.k;

        k.section("sample/adjust/logit", "adjust each logit");
        let mut most = k.var(f32::NEG_INFINITY);
        for i in [0, THREADS] {
            let at = k.tid() + i;
            k.when((self.first + at).lt(self.a.of.vocab), || {
                most.max_with(self.adjust(at))
            });
        }

        let most = block_max(k, THREADS / 32, most.get());
        k.when(k.tid().eq(0), || {
            self.a
                .largest
                .at(self.row.index.mad(k.nctaid(), k.ctaid()))
                .st(most);
        });
        self.add_histogram();
    }

    fn count_latest(&self) {
        let k = self.k;
        let a = self.a;
        let window = self
            .row
            .params
            .window
            .min(MAX_WINDOW)
            .min(self.row.position + 1);
        let tokens = a.tokens.row(self.row.sequence, a.of.max_tokens * 4);
        k.for_each(k.tid(), window, THREADS, |i| {
            // An unsigned difference: a token before the chunk also compares as too large.
            let at = tokens.at(self.row.position - i).fresh().ld() - self.first;
            k.when(at.lt(CHUNK), || _ = self.times.at(at).atom_add(1));
        });
    }

    fn fetch_biases(&self) {
        let k = self.k;
        let a = self.a;
        let biases = a.bias.row(self.row.sequence, 8 * MAX_BIASES);
        k.for_each(
            k.tid(),
            self.row.params.biases.min(MAX_BIASES),
            THREADS,
            |i| {
                let [token, bits] = biases.row(i, 8).ld2();
                let at = token - self.first;
                k.when(at.lt(CHUNK), || self.bias.at(at).st(bits.bits::<f32>()));
            },
        );
    }

    /// Adjusts the logit at `at` of the chunk and returns its value for the maximum.
    fn adjust(&self, at: U32<'k>) -> F32<'k> {
        let k = self.k;
        let a = self.a;
        let [repeat, presence, frequency] = self.row.params.penalties;
        let token = self.first + at;
        let logit = a
            .logits
            .row(self.row.index, a.of.vocab * 4)
            .at(token)
            .fresh()
            .ld();
        let mut z = k.var(logit + self.bias.at(at).ld());
        let times = self.times.at(at).ld();
        k.when(times.gt(0), || {
            let now = z.get();
            // A division lowers a positive logit, and a multiplication lowers a negative one.
            let repeated = now.gt(0.0).select(now / repeat, now * repeat);
            z.set(repeated - (times.cvt::<f32>() * frequency + presence));
        });
        let z = z.get();
        a.z.row(self.row.index, a.of.vocab * 4).at(token).st(z);
        _ = self.histogram.at(bin(z)).atom_add(1);
        key(z)
    }

    fn add_histogram(&self) {
        let k = self.k;

        k.section(
            "sample/adjust/histogram",
            "add the block's histogram, which the barrier of the maximum completed",
        );

        // Few of the bins of a chunk are filled, so most threads need no atomic addition.
        let own = self.histogram.at(k.tid()).ld();
        let all = self.a.histogram.row(self.row.index, 4 * BINS);
        k.when(own.gt(0), || all.at(k.tid()).red_add(own));
    }
}
