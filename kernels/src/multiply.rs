//! Multiplies the same matrices over and over, in registers and shared memory. Its rate is the upper bound for every
//! kernel that multiplies halves on tensor cores.
//!
//! A block of eight warps adds the product of 128 rows and all tokens to its sums, again and again, and reads no memory
//! meanwhile. Each warp has 16 rows in registers. With `mma.sync` it has all tokens in registers, too; with `wgmma` they
//! are in shared memory, as in [`Matmul`](crate::matmul::Matmul). One block occupies a multiprocessor.

use crate::case::{Case, NEIGHBOUR, Random, Variant};
use crate::contract::Contract;
use ptx_gen::*;

args! {
    /// Arguments of [`Multiply`].
    pub struct MultiplyArgs {
        /// `[128, depth]`: see [`Multiply::depth`]
        w: In<f16>,
        /// `[tokens, depth]`: see [`Multiply::tokens`]
        x: In<f16>,
        /// `[blocks, 256]`: the sum of each thread's sums
        y: Out<f32>,
        /// How often the product is added.
        times: u32,
    }
}

/// The kernel, by its instruction. The length of `y` says how many blocks there are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Multiply {
    /// `mma.sync`, from sm_80 on.
    Mma,
    /// `wgmma`, which sm_90a alone has.
    Wgmma,
}

impl Multiply {
    /// Every shipped variant.
    pub const ALL: [Multiply; 2] = [Multiply::Mma, Multiply::Wgmma];
    /// Rows of a block.
    pub const ROWS: u32 = 128;
    /// Threads of a block.
    pub const THREADS: u32 = 256;

    /// Tokens: as many as a thread has registers for sums of.
    pub fn tokens(self) -> u32 {
        match self {
            Multiply::Mma => 128,
            Multiply::Wgmma => 256,
        }
    }

    /// Columns of both matrices.
    pub fn depth(self) -> u32 {
        match self {
            Multiply::Mma => 32,
            Multiply::Wgmma => 64,
        }
    }

    /// Multiplications and additions of a block, for each time.
    pub fn operations(self) -> u64 {
        2 * u64::from(Multiply::ROWS) * u64::from(self.tokens()) * u64::from(self.depth())
    }

    /// The warp's 16 rows, for each 16 columns.
    fn rows<'k>(self, k: Builder<'k>, w: Ptr<'k, f16, ReadOnly>) -> Vec<LeftFragment<'k>> {
        let lane = k.lane();
        let row = k.warp() * 16 + (lane >> 2);
        let first = w.at(row.mad(self.depth(), (lane & 3) << 1));
        let pair = |row, column| first.at(row * self.depth() + column).cast::<u32>().ld();
        let step = |from| {
            LeftFragment([
                pair(0, from),
                pair(8, from),
                pair(0, from + 8),
                pair(8, from + 8),
            ])
        };
        (0..self.depth()).step_by(16).map(step).collect()
    }

    fn mma<'k>(self, k: Builder<'k>, a: &MultiplyArgs<Dev<'k>>) -> Vec<Var<'k, f32>> {
        k.section(
            "measure/multiply/load_registers",
            "rows and tokens to registers",
        );
        let (rows, lane) = (self.rows(k, a.w), k.lane());
        let first = a.x.at((lane >> 2).mad(self.depth(), (lane & 3) << 1));
        let pair = |token, column| first.at(token * self.depth() + column).cast::<u32>().ld();
        let eight = |token| {
            (0..self.depth())
                .step_by(16)
                .map(move |from| RightFragment([pair(token, from), pair(token, from + 8)]))
        };
        let tokens: Vec<Vec<RightFragment<_>>> = (0..self.tokens())
            .step_by(8)
            .map(|token| eight(token).collect())
            .collect();
        let mut sums: Vec<Sums<f32>> = tokens.iter().map(|_| Sums::zero(k)).collect();
        k.section("measure/multiply/mma", "add their product");
        k.for_each(0, a.times, 1, |_| {
            for (step, &rows) in rows.iter().enumerate() {
                sums.iter_mut()
                    .zip(&tokens)
                    .for_each(|(sums, tokens)| sums.add_f16(rows, tokens[step]));
            }
        });
        sums.into_iter().flat_map(|sums| sums.0).collect()
    }

    fn wgmma<'k>(self, k: Builder<'k>, a: &MultiplyArgs<Dev<'k>>) -> Vec<Var<'k, f32>> {
        let memory = k.tile_memory("tokens");
        k.section(
            "measure/multiply/load_shared",
            "rows to registers, tokens to shared memory",
        );
        self.swizzle(k, a.x, memory);
        let rows = self.rows(k, a.w);
        let tokens =
            Descriptor::<f16>::by_columns(memory, self.tokens(), self.depth(), Swizzle::B128);
        let mut sums = Accumulators::zero(k, self.tokens());
        let add = k.always();
        k.section(
            "measure/multiply/wgmma",
            "add the product with the tokens in shared memory",
        );
        k.for_each(0, a.times, 1, |_| {
            k.wgmma_fence();
            for (step, &rows) in (0..).zip(&rows) {
                sums.multiply_registers::<f16, f16>(rows, tokens.inner(16 * step), add);
            }
            k.wgmma_commit();
            k.wgmma_wait(1);
        });
        k.wgmma_wait(0);
        sums.0
    }

    /// Copies the tokens: unit `u` of 16 bytes of token `i` to `u ^ (i mod 8)`.
    fn swizzle<'k>(self, k: Builder<'k>, x: Ptr<'k, f16, ReadOnly>, memory: Ptr<'k, u8, Shared>) {
        let (token, unit) = (k.tid() >> 3, k.tid() & 7);
        let from = x.cast::<u8>().row(k.tid(), 16);
        let to = memory.at((token << 7) + ((unit ^ (token & 7)) << 4));
        // As many tokens at a time as the block has threads for their eight units.
        let bytes = 16 * Multiply::THREADS;
        (0..self.tokens() * 128)
            .step_by(bytes as usize)
            .for_each(|done| from.at(done).copy16(to.at(done)));
        k.commit_copies();
        k.wait_copies(0);
        k.fence_async();
        k.barrier();
    }
}

impl KernelDef for Multiply {
    type Args<S: Side> = MultiplyArgs<S>;

    fn name(&self) -> String {
        match self {
            Multiply::Mma => "multiply_mma".into(),
            Multiply::Wgmma => "multiply_wgmma".into(),
        }
    }

    fn block(&self) -> u32 {
        Multiply::THREADS
    }

    fn blocks_per_sm(&self) -> Option<u32> {
        Some(1)
    }

    fn grid(&self, a: &MultiplyArgs<Shape>) -> Result<Grid, ShapeError> {
        let threads = a.y.try_into().unwrap_or(u32::MAX);
        self.length("w", a.w, "128 * depth", &[Multiply::ROWS, self.depth()])?;
        self.length("x", a.x, "tokens * depth", &[self.tokens(), self.depth()])?;
        self.multiple("the length of y", threads, Multiply::THREADS)?;
        self.range("blocks", threads / Multiply::THREADS, 1, 1 << 16)?;
        let shared = match self {
            Multiply::Mma => 0,
            Multiply::Wgmma => 2 * self.tokens() * self.depth(),
        };
        Ok(Grid {
            shared,
            ..Grid::line(threads / Multiply::THREADS)
        })
    }

    fn program<'k>(&self, k: Builder<'k>, a: MultiplyArgs<Dev<'k>>) {
        let sums = match self {
            Multiply::Mma => self.mma(k, &a),
            Multiply::Wgmma => self.wgmma(k, &a),
        };
        k.section(
            "measure/multiply/result",
            "the sum of the thread's sums, so that none is left out",
        );
        let sum = sums
            .iter()
            .map(Var::get)
            .reduce(|sum, next| sum + next)
            .expect("there are tokens");
        a.y.at(k.ctaid().mad(Multiply::THREADS, k.tid())).st(sum);
    }

    fn reference(&self, a: MultiplyArgs<Cpu<'_>>) {
        let depth = self.depth() as usize;
        let rows = |of: &[f16]| -> Vec<Vec<f64>> {
            of.chunks(depth)
                .map(|row| row.iter().map(|v| f64::from(v.to_f32())).collect())
                .collect()
        };
        let (w, x) = (rows(a.w), rows(a.x));
        let product = |(i, token): (usize, usize)| {
            w[i].iter().zip(&x[token]).map(|(w, x)| w * x).sum::<f64>()
        };
        for (thread, y) in a.y.iter_mut().enumerate() {
            let (warp, lane) = (thread % Multiply::THREADS as usize / 32, thread % 32);
            let tokens = || (0..x.len()).filter(|token| token % 8 / 2 == lane % 4);
            let of_row = |half| tokens().map(move |token| (16 * warp + lane / 4 + half, token));
            let sum: f64 = [0, 8].into_iter().flat_map(of_row).map(product).sum();
            *y = (f64::from(a.times) * sum) as f32;
        }
    }
}

impl Variant for Multiply {
    fn cases(&self, seed: u64) -> Vec<Case> {
        [(1, 1), (2, 3)]
            .map(|(blocks, times)| case(*self, seed, blocks, times))
            .into()
    }
}

fn case(kernel: Multiply, seed: u64, blocks: u32, times: u32) -> Case {
    let mut random = Random(seed);
    // Nothing cancels, so each addition adds at most two roundings of the sum: tensor cores cut off.
    let mut halves = |rows: u32| {
        let number = |_| f16::from_f32(random.unit().abs());
        CpuArg::F16((0..rows * kernel.depth()).map(number).collect())
    };
    let additions = times * kernel.depth() / 16 + kernel.tokens() / 2;
    Case {
        label: format!("blocks={blocks} times={times}"),
        args: vec![
            halves(Multiply::ROWS),
            halves(kernel.tokens()),
            CpuArg::F32(vec![0.0; (blocks * Multiply::THREADS) as usize]),
            CpuArg::scalar(times),
        ],
        bound: f64::from(2 * additions) * NEIGHBOUR,
    }
}
