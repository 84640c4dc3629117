//! Multiplies the same matrices over and over, in registers and shared memory. The rate of this
//! kernel is an upper bound for every kernel that multiplies 16-bit values on tensor cores.
//!
//! A block of eight warps repeatedly multiplies 128 rows by all tokens and adds the result to its
//! sums. It reads no global memory meanwhile. Each warp has 16 rows in registers. With `mma.sync`,
//! it also has all tokens in registers. With `wgmma`, the tokens are in shared memory, as in
//! [`Matmul`](crate::matmul::Matmul). One block occupies a multiprocessor.

use crate::harness::comparison::NEIGHBOUR;
use crate::harness::{Case, Variant};
use crate::shared::{Contract, Random};
use ptx_gen::*;

args! {
    /// Arguments of [`Multiply`].
    pub struct MultiplyArgs {
        /// `[128, depth]`: the rows, see [`Multiply::depth`]
        w: In<f16>,
        /// `[tokens, depth]`: the tokens, see [`Multiply::tokens`]
        x: In<f16>,
        /// `[blocks, 256]`: the total of each thread's sums
        y: Out<f32>,
        /// The number of times that the matmul is added.
        times: u32,
    }
}

/// Kernel that measures the rate of the tensor cores. A variant is a matrix instruction. The length
/// of `y` determines the number of blocks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Multiply {
    /// `mma.sync`, on sm_80 and newer.
    Mma,
    /// `wgmma`, on sm_90a only.
    Wgmma,
}

impl Multiply {
    /// Every shipped variant.
    pub const ALL: [Multiply; 2] = [Multiply::Mma, Multiply::Wgmma];
    /// The number of rows of a block.
    pub const ROWS: u32 = 128;
    /// The number of threads of a block.
    pub const THREADS: u32 = 256;

    /// Returns the number of tokens: as many as a thread has registers to sum for.
    pub fn tokens(self) -> u32 {
        match self {
            Multiply::Mma => 128,
            Multiply::Wgmma => 256,
        }
    }

    /// Returns the number of columns of both matrices.
    pub fn depth(self) -> u32 {
        match self {
            Multiply::Mma => 32,
            Multiply::Wgmma => 64,
        }
    }

    /// Returns the number of multiplications and additions of a block per repetition.
    pub fn operations(self) -> u64 {
        2 * u64::from(Multiply::ROWS) * u64::from(self.tokens()) * u64::from(self.depth())
    }

    /// Loads the 16 rows of the warp, one fragment for each 16 columns.
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
            "load rows and tokens into registers",
        );
        let rows = self.rows(k, a.w);
        let lane = k.lane();
        let place = (lane >> 2).mad(self.depth(), (lane & 3) << 1);
        let first = a.x.at(place);
        let pair = |token, column| first.at(token * self.depth() + column).cast::<u32>().ld();
        let eight = |token| {
            let fragment = move |from| {
                let low = pair(token, from);
                let high = pair(token, from + 8);
                RightFragment([low, high])
            };
            (0..self.depth()).step_by(16).map(fragment)
        };
        let tokens: Vec<Vec<RightFragment<_>>> = (0..self.tokens())
            .step_by(8)
            .map(|token| eight(token).collect())
            .collect();
        let mut sums: Vec<Sums<f32>> = tokens.iter().map(|_| Sums::zero(k)).collect();

        k.section("measure/multiply/mma", "multiply and accumulate");

        // All operands are in registers, so that only the matrix instructions are measured.
        k.for_each(0, a.times, 1, |_| {
            for (step, &rows) in rows.iter().enumerate() {
                for (sums, tokens) in sums.iter_mut().zip(&tokens) {
                    sums.add_f16(rows, tokens[step]);
                }
            }
        });
        sums.into_iter().flat_map(|sums| sums.0).collect()
    }

    fn wgmma<'k>(self, k: Builder<'k>, a: &MultiplyArgs<Dev<'k>>) -> Vec<Var<'k, f32>> {
        let memory = k.tile_memory("tokens");

        k.section(
            "measure/multiply/load_shared",
            "load rows into registers, tokens into shared memory",
        );
        self.swizzle(k, a.x, memory);
        let rows = self.rows(k, a.w);
        let tokens =
            Descriptor::<f16>::by_columns(memory, self.tokens(), self.depth(), Swizzle::B128);
        let mut sums = Accumulators::zero(k, self.tokens());
        let add = k.always();

        k.section(
            "measure/multiply/wgmma",
            "multiply by the tokens in shared memory and accumulate",
        );
        k.for_each(0, a.times, 1, |_| {
            k.wgmma_fence();
            for (step, &rows) in (0..).zip(&rows) {
                sums.multiply_registers::<f16, f16>(rows, tokens.inner(16 * step), add);
            }
            k.wgmma_commit();
            // One group may still run, so that the tensor cores never wait for the loop.
            k.wgmma_wait(1);
        });
        k.wgmma_wait(0);
        sums.0
    }

    /// Copies the tokens to shared memory with the 128-byte swizzle: unit `u` of 16 bytes of token
    /// `i` is stored at `u ^ (i mod 8)`.
    fn swizzle<'k>(self, k: Builder<'k>, x: Ptr<'k, f16, ReadOnly>, memory: Ptr<'k, u8, Shared>) {
        let token = k.tid() >> 3;
        let unit = k.tid() & 7;
        let from = x.cast::<u8>().row(k.tid(), 16);
        let to = memory.at((token << 7) + ((unit ^ (token & 7)) << 4));

        // Each round copies as many tokens as the block has threads for their eight units.
        let bytes = 16 * Multiply::THREADS;
        for done in (0..self.tokens() * 128).step_by(bytes as usize) {
            from.at(done).copy16(to.at(done));
        }

        k.commit_copies();
        k.wait_copies(0);

        // `wgmma` reads shared memory through the async proxy.
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
            "add up all sums of the thread, so that none is optimized away",
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
        let w = rows(a.w);
        let x = rows(a.x);
        let product = |(i, token): (usize, usize)| {
            w[i].iter().zip(&x[token]).map(|(w, x)| w * x).sum::<f64>()
        };
        for (thread, y) in a.y.iter_mut().enumerate() {
            // The accumulator layout of `mma.m16n8`: a lane has rows `lane / 4` and `lane / 4 + 8`,
            // and two adjacent columns of each eight.
            let warp = thread % Multiply::THREADS as usize / 32;
            let lane = thread % 32;
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

    // All values are positive so that nothing cancels. Each addition then adds at most two
    // roundings of the sum, because tensor cores truncate.
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
