//! The input of a GEMV's adapter: `u = s A x`, for each token of a batch. The kernel runs before
//! the GEMV and reads the same input: the residual stream, which it normalizes, or block floating
//! point.
//!
//! The rows of all projections that the GEMV joins are in one matrix, `[parts * rank, n]`. A block
//! computes one row for one token, in a fixed order. A batch therefore gives the same bits as its
//! tokens one by one. The factor `s = alpha / rank` is contained in A.

use super::block_float::{self, BFP_BLOCK, BlockFloat};
use super::gemv::plan::MAX_BATCH;
use crate::harness::{Case, Variant};
use crate::shared::reduce::block_sum;
use crate::shared::{Contract, Random, check_lengths};
use ptx_gen::*;

args! {
    /// Arguments of [`LoraA`].
    pub struct LoraAArgs {
        /// `[ranks, n]`: `s A`
        a: In<f32>,
        /// `[batch, n]`: the activations as 16-bit integers, see
        /// [`block_float`](super::block_float)
        x: In<u16>,
        /// `[batch, n / 8]`: the block scales of the activations
        x_scale: In<f32>,
        /// `[batch, ranks]`: the result
        u: Out<f32>,
        /// The number of rows of A, of all projections together.
        ranks: u32,
        /// The row length, a multiple of 8.
        n: u32,
        /// The bytes of dynamic shared memory. Pass the amount of the neighboring kernels, because
        /// a different amount would change the SM's carveout between the L1 cache and shared
        /// memory.
        shared: u32,
    }
}

args! {
    /// Arguments of [`LoraANormed`].
    pub struct LoraANormedArgs {
        /// `[ranks, n]`: `s A`
        a: In<f32>,
        /// `[batch, n]`: the residual stream
        x: In<f32>,
        /// `[n]`: weights of the norm
        gamma: In<f32>,
        /// `[batch, ranks]`: the result
        u: Out<f32>,
        /// The number of rows of A, of all projections together.
        ranks: u32,
        /// The row length, a multiple of 8.
        n: u32,
        /// A constant that is added to the mean square.
        epsilon: f32,
        /// The bytes of dynamic shared memory, see [`LoraAArgs`].
        shared: u32,
    }
}

/// Kernel that computes `u = s A x`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LoraA {
    /// Whether the kernel starts during the previous one and waits for it (programmatic dependent
    /// launch, sm_90).
    pub overlap: bool,
    /// The number of tokens per batch.
    pub batch: u32,
}

/// Kernel that computes `u = s A (x * gamma / sqrt(mean(x^2) + epsilon))`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LoraANormed {
    /// Whether the kernel starts during the previous one and waits for it (programmatic dependent
    /// launch, sm_90).
    pub overlap: bool,
    /// The number of tokens per batch.
    pub batch: u32,
}

const THREADS: u32 = 256;
const WARPS: u32 = THREADS / 32;

/// The maximum number of bytes of shared memory that the kernels declare themselves: two sums over
/// a block.
pub const LORA_A_SHARED: u32 = 128;

/// Returns the suffix of a kernel's name.
fn suffix(overlap: bool, batch: u32) -> String {
    let plain = if overlap { "" } else { "_plain" };
    let batch = if batch == 1 {
        String::new()
    } else {
        format!("_batch_{batch}")
    };
    format!("{plain}{batch}")
}

/// Checks the parts of the contract that both kernels share. Returns the grid.
fn grid(
    kernel: &impl KernelDef,
    batch: u32,
    [a, u]: [usize; 2],
    [ranks, n]: [u32; 2],
    shared: u32,
) -> Result<Grid, ShapeError> {
    kernel.range("the kernel's batch", batch, 1, MAX_BATCH)?;
    kernel.range("ranks", ranks, 1, 1 << 12)?;
    kernel.range("n", n, BFP_BLOCK, 1 << 24)?;
    kernel.multiple("n", n, BFP_BLOCK)?;
    kernel.length("a", a, "ranks * n", &[ranks, n])?;
    super::contract::batched(kernel, batch, "u", u, "ranks", &[ranks])?;
    Ok(Grid {
        shared,
        ..Grid::line(ranks * batch)
    })
}

/// The row of A and the token of a block.
struct Unit<'k> {
    row: Ptr<'k, f32, ReadOnly>,
    item: U32<'k>,
    /// The address of the result.
    u: Ptr<'k, f32, WriteOnly>,
}

impl<'k> Unit<'k> {
    /// Returns the work of this block after requesting its row and waiting for the previous
    /// kernels.
    fn begin(
        k: Builder<'k>,
        overlap: bool,
        batch: u32,
        a: Ptr<'k, f32, ReadOnly>,
        u: Ptr<'k, f32, WriteOnly>,
        [ranks, n]: [U32<'k>; 2],
    ) -> Self {
        /// The number of `f32` elements of a line of the L2 cache.
        const LINE: u32 = 32;
        if overlap {
            k.grid_trigger();
        }

        k.section(
            "pipeline/lora_a/work",
            "the row and the token of this block",
        );
        let (index, item) = match batch {
            1 => (k.ctaid(), k.val(0)),
            batch => (k.ctaid() / batch, k.ctaid() % batch),
        };
        let row = a.row(index, n * 4);
        if overlap {
            k.section(
                "pipeline/lora_a/early_row",
                "prefetch the row of A, which no kernel writes",
            );
            k.for_each(k.tid() * LINE, n, THREADS * LINE, |i| {
                row.at(i).prefetch_l2()
            });

            k.section(
                "pipeline/overlap/wait",
                "nothing before this wait reads results of earlier kernels",
            );
            k.grid_wait();
        }

        Unit {
            row,
            item,
            u: u.at(item.mad(ranks, index)),
        }
    }
}

impl KernelDef for LoraA {
    type Args<S: Side> = LoraAArgs<S>;

    fn name(&self) -> String {
        format!("lora_a{}", suffix(self.overlap, self.batch))
    }

    fn block(&self) -> u32 {
        THREADS
    }

    fn grid(&self, a: &LoraAArgs<Shape>) -> Result<Grid, ShapeError> {
        let grid = grid(self, self.batch, [a.a, a.u], [a.ranks, a.n], a.shared)?;
        super::contract::bfp_lengths(self, self.batch, "x", [a.x, a.x_scale], "n", &[a.n])?;
        Ok(grid)
    }

    fn program<'k>(&self, k: Builder<'k>, a: LoraAArgs<Dev<'k>>) {
        let unit = Unit::begin(k, self.overlap, self.batch, a.a, a.u, [a.ranks, a.n]);
        let blocks = a.n / BFP_BLOCK;
        let values = a.x.row(unit.item, a.n * 2).fresh();
        let scales = a.x_scale.at(unit.item * blocks).fresh();
        let x = BlockFloat { k, values, scales };

        k.section(
            "pipeline/lora_a/multiply",
            "multiply blocks of eight elements",
        );
        let mut sum = k.var(0.0);
        k.for_each(k.tid(), blocks, THREADS, |i| {
            let a = [0, 4].map(|half| unit.row.row(i, 4 * BFP_BLOCK).at(half).ld4());
            let loaded = x.load(i, i.lt(blocks));
            let (x, scale) = loaded.get();
            // The block scale multiplies the sum of eight once, instead of each element.
            let mut eight = k.var(0.0);
            for (a, x) in a.concat().into_iter().zip(x) {
                eight.fma(a, x);
            }
            sum.fma(eight.get(), scale);
        });
        let sum = block_sum(k, WARPS, sum.get());
        k.when(k.tid().eq(0), || unit.u.st(sum));
    }

    fn reference(&self, a: LoraAArgs<Cpu<'_>>) {
        let n = a.n as usize;
        let x = block_float::decode(a.x, a.x_scale);
        let x: Vec<f64> = x.into_iter().map(f64::from).collect();
        for (u, x) in a.u.chunks_mut(a.ranks as usize).zip(x.chunks(n)) {
            multiply(a.a, x, u);
        }
    }
}

impl KernelDef for LoraANormed {
    type Args<S: Side> = LoraANormedArgs<S>;

    fn name(&self) -> String {
        format!("lora_a_normed{}", suffix(self.overlap, self.batch))
    }

    fn block(&self) -> u32 {
        THREADS
    }

    fn grid(&self, a: &LoraANormedArgs<Shape>) -> Result<Grid, ShapeError> {
        let &LoraANormedArgs { n, .. } = a;
        let grid = grid(self, self.batch, [a.a, a.u], [a.ranks, n], a.shared)?;
        super::contract::batched(self, self.batch, "x", a.x, "n", &[n])?;
        check_lengths! { self, a:
            gamma == n,
        }
        Ok(grid)
    }

    fn program<'k>(&self, k: Builder<'k>, a: LoraANormedArgs<Dev<'k>>) {
        let unit = Unit::begin(k, self.overlap, self.batch, a.a, a.u, [a.ranks, a.n]);
        let x = a.x.row(unit.item, a.n * 4).fresh();

        k.section(
            "pipeline/lora_a/multiply_normed",
            "multiply, and add the squares",
        );

        // The factor of the norm is common to all terms, so one pass suffices and the factor is
        // applied last.
        let mut sum = k.var(0.0);
        let mut squares = k.var(0.0);
        k.for_each(k.tid() * 4, a.n, 4 * THREADS, |i| {
            let w = unit.row.at(i).ld4();
            let gamma = a.gamma.at(i).ld4();
            let x = x.at(i).ld4();
            for ((w, gamma), x) in w.into_iter().zip(gamma).zip(x) {
                squares.fma(x, x);
                sum.fma(w, x * gamma);
            }
        });
        let [sum, squares] = [sum, squares].map(|v| block_sum(k, WARPS, v.get()));
        let share = a.n.cvt::<f32>().rcp();
        let factor = squares.fma(share, a.epsilon).rsqrt();
        k.when(k.tid().eq(0), || unit.u.st(sum * factor));
    }

    fn reference(&self, a: LoraANormedArgs<Cpu<'_>>) {
        for (u, x) in
            a.u.chunks_mut(a.ranks as usize)
                .zip(a.x.chunks(a.n as usize))
        {
            multiply(a.a, &super::reference::normed(x, a.gamma, a.epsilon), u);
        }
    }
}

/// Stores `A x` in `u`.
fn multiply(a: &[f32], x: &[f64], u: &mut [f32]) {
    for (u, row) in u.iter_mut().zip(a.chunks(x.len())) {
        *u = row
            .iter()
            .zip(x)
            .map(|(&a, x)| f64::from(a) * x)
            .sum::<f64>() as f32;
    }
}

/// The number of rows, their length, and the magnitude of the activations. The lengths take some of
/// a block's threads, all of them, or several rounds.
const SHAPES: [(u32, u32, f32); 4] = [(1, 8, 1.0), (3, 520, 1e3), (24, 1032, 1e-3), (5, 2304, 1.0)];
/// The bound: a row has numbers of one sign, so its sum is as large as the sum of its magnitudes.
const BOUND: f64 = 4e-6;

fn label(ranks: u32, n: u32, magnitude: f32) -> String {
    format!("ranks={ranks} n={n} magnitude={magnitude:e}")
}

impl Variant for LoraA {
    fn cases(&self, seed: u64) -> Vec<Case> {
        let mut random = Random(seed);
        let case = |(ranks, n, magnitude): (u32, u32, f32)| {
            let x = random.units((self.batch * n) as usize);
            let x: Vec<f64> = x
                .into_iter()
                .map(|x| f64::from(magnitude * (1.5 + x)))
                .collect();
            let (x, scales) = block_float::encode(&x);
            let args = vec![
                CpuArg::F32(
                    random
                        .units((ranks * n) as usize)
                        .into_iter()
                        .map(|a| 1.5 + a)
                        .collect(),
                ),
                CpuArg::U16(x),
                CpuArg::F32(scales),
                CpuArg::F32(vec![0.0; (self.batch * ranks) as usize]),
                CpuArg::scalar(ranks),
                CpuArg::scalar(n),
                CpuArg::scalar(1024u32),
            ];
            Case {
                label: label(ranks, n, magnitude),
                args,
                bound: BOUND,
            }
        };
        SHAPES.map(case).into()
    }
}

impl Variant for LoraANormed {
    fn cases(&self, seed: u64) -> Vec<Case> {
        let mut random = Random(seed);
        let case = |(ranks, n, magnitude): (u32, u32, f32)| {
            let x = random.units((self.batch * n) as usize);
            let args = vec![
                CpuArg::F32(
                    random
                        .units((ranks * n) as usize)
                        .into_iter()
                        .map(|a| 1.5 + a)
                        .collect(),
                ),
                CpuArg::F32(x.into_iter().map(|x| magnitude * (1.5 + x)).collect()),
                CpuArg::F32(
                    random
                        .units(n as usize)
                        .iter()
                        .map(|g| 1.0 + g / 4.0)
                        .collect(),
                ),
                CpuArg::F32(vec![0.0; (self.batch * ranks) as usize]),
                CpuArg::scalar(ranks),
                CpuArg::scalar(n),
                CpuArg::scalar(1e-5f32),
                CpuArg::scalar(1024u32),
            ];
            Case {
                label: label(ranks, n, magnitude),
                args,
                bound: BOUND,
            }
        };
        SHAPES.map(case).into()
    }
}
