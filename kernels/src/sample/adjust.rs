//! Biases and penalties: `z` of each logit, the largest of each chunk, and how many `z` each bin has.
//!
//! ```text
//! z = logit + bias
//! z = z / repeat if z > 0, else z * repeat             if the token is among the latest
//! z = z - (times * frequency + presence)               if it is there so many times
//! ```
//!
//! A block counts the latest tokens that are in its chunk, so that each logit is read once and in order. A logit that is
//! not finite makes the largest of its chunk infinite; then no token is chosen.

use super::reference::adjusted;
use super::rows::{self, Row, RowsArgs};
use super::{BINS, CHUNK, MAX_BIASES, MAX_WINDOW, SampleParams, THREADS, blocks};
use crate::case::{Case, Variant};
use crate::contract::Contract;
use crate::reduce::block_max;
use crate::simple::argmax::{key, key_on_cpu};
use ptx_gen::*;

args! {
    /// Arguments of [`SampleAdjust`].
    pub struct SampleAdjustArgs {
        /// `[capacity, vocab]`, of which `count` rows are read
        logits: In<f32>,
        /// `[states, 8]`: see [`state`](crate::state)
        state: In<u32>,
        /// `[sequences, max_tokens]`: the token at each position, up to that of the state
        tokens: In<u32>,
        /// `[sequences, 256, 2]`: biased tokens, each another one, and the bits of what is added to their logits
        bias: In<u32>,
        /// `[capacity, vocab]`: biased and penalized logits
        z: Out<f32>,
        /// `[count, blocks]`: the largest of each chunk; infinity if a logit is not finite. May be longer
        largest: Out<f32>,
        /// `[count, 1024]`: zero before. May be longer
        histogram: InOut<u32>,
        /// Rows and sequences.
        of: RowsArgs,
    }
}

/// The kernel.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SampleAdjust {
    /// Whether it overlaps with the previous kernel and waits for its end (programmatic dependent launch): sm_90.
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
        self.length("logits", a.logits, "capacity * vocab", &[capacity, vocab])?;
        self.length("z", a.z, "capacity * vocab", &[capacity, vocab])?;
        self.length(
            "tokens",
            a.tokens,
            "sequences * max_tokens",
            &[sequences, max_tokens],
        )?;
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
        let chunk = Chunk::new(k, &a, Row::load(k, &a.of, a.state));
        chunk.prepare();
        chunk.row.wait(k, self.overlap);
        chunk.row.process(k, || chunk.process());
    }

    fn reference(&self, a: SampleAdjustArgs<Cpu<'_>>) {
        let (vocab, blocks) = (a.of.vocab as usize, blocks(a.of.vocab) as usize);
        for row in rows::on_cpu(&a.of, a.state) {
            let params = SampleParams::of_words(&a.of.params[row.sequence * SampleParams::WORDS..]);
            let tokens = &a.tokens[row.sequence * a.of.max_tokens as usize..][..=row.position];
            let latest = &tokens[tokens
                .len()
                .saturating_sub(params.window.min(MAX_WINDOW) as usize)..];
            let biases = a.bias[row.sequence * 2 * MAX_BIASES as usize..]
                .as_chunks::<2>()
                .0;
            let biases = &biases[..params.biases.min(MAX_BIASES) as usize];
            let logits = &a.logits[row.index * vocab..][..vocab];
            let z = &mut a.z[row.index * vocab..][..vocab];
            z.copy_from_slice(&adjusted(logits, &params, latest, biases));
            let histogram = &mut a.histogram[row.index * BINS as usize..];
            z.iter()
                .for_each(|&z| histogram[bin_on_cpu(z) as usize] += 1);
            for (z, largest) in z
                .chunks(CHUNK as usize)
                .zip(&mut a.largest[row.index * blocks..])
            {
                *largest = z
                    .iter()
                    .fold(f32::NEG_INFINITY, |most, &z| most.max(key_on_cpu(z)));
            }
        }
    }
}

/// Exponent and five bits of the fraction, of the least magnitude that has bins of its own: 2^-4. From 2^12 on there is
/// one bin.
const FIRST: u32 = (127 - 4) << 5;
/// Bins of the positive numbers.
const HALF: u32 = BINS / 2;

/// The bin of a number: larger numbers are in higher bins or the same.
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

/// The same on the CPU.
pub(crate) fn bin_on_cpu(z: f32) -> u32 {
    let magnitude = ((z.abs().to_bits() >> 18).max(FIRST - 1) - (FIRST - 1)).min(HALF - 1);
    if z < 0.0 {
        HALF - 1 - magnitude
    } else {
        HALF + magnitude
    }
}

/// A block's chunk of a row.
struct Chunk<'a, 'k> {
    k: Builder<'k>,
    a: &'a SampleAdjustArgs<Dev<'k>>,
    row: Row<'k>,
    /// Its first token.
    first: U32<'k>,
    /// How often each is among the latest, what is added to its logit, and how many are in each bin.
    times: Ptr<'k, u32, Shared>,
    bias: Ptr<'k, f32, Shared>,
    histogram: Ptr<'k, u32, Shared>,
}

impl<'a, 'k> Chunk<'a, 'k> {
    fn new(k: Builder<'k>, a: &'a SampleAdjustArgs<Dev<'k>>, row: Row<'k>) -> Self {
        let (times, bias) = (k.shared("times", CHUNK), k.shared("biases", CHUNK));
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

    /// What is asked of the tokens of the chunk, none of which the kernels before this one change.
    fn prepare(&self) {
        let k = self.k;
        k.section(
            "sample/adjust/flags",
            "what is asked of the tokens of this chunk",
        );
        for i in [0, THREADS] {
            self.times.at(k.tid() + i).st(0);
            self.bias.at(k.tid() + i).st(0.0);
        }
        self.histogram.at(k.tid()).st(0);
        k.barrier();
        self.count_latest();
        self.fetch_biases();
        k.barrier();
    }

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
        let (k, a) = (self.k, self.a);
        let window = self
            .row
            .params
            .window
            .min(MAX_WINDOW)
            .min(self.row.position + 1);
        let tokens = a.tokens.row(self.row.sequence, a.of.max_tokens * 4);
        k.for_each(k.tid(), window, THREADS, |i| {
            let at = tokens.at(self.row.position - i).fresh().ld() - self.first;
            k.when(at.lt(CHUNK), || _ = self.times.at(at).atom_add(1));
        });
    }

    fn fetch_biases(&self) {
        let (k, a) = (self.k, self.a);
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

    /// Adjusts a logit of the chunk, and gives what it counts as.
    fn adjust(&self, at: U32<'k>) -> F32<'k> {
        let (k, a, [repeat, presence, frequency]) = (self.k, self.a, self.row.params.penalties);
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
            "add the block's histogram; its barrier is that of the maximum",
        );
        let own = self.histogram.at(k.tid()).ld();
        let all = self.a.histogram.row(self.row.index, 4 * BINS);
        k.when(own.gt(0), || all.at(k.tid()).red_add(own));
    }
}

impl Variant for SampleAdjust {
    fn cases(&self, seed: u64) -> Vec<Case> {
        super::case::stages(seed)
            .into_iter()
            .map(|stage| stage.adjust)
            .collect()
    }
}
