//! RMSNorm ([Zhang and Sennrich, 2019](https://arxiv.org/abs/1910.07467)) and its gradient.
//!
//! ```text
//! inv  = (mean(x^2) + eps)^-1/2
//! y    = x inv g
//! dx   = inv (g dy - xh mean(g dy xh)),  xh = x inv
//! ```
//!
//! The gradient follows from `d inv / d x[i] = -inv^3 x[i] / n`. The gains `g` are frozen and have
//! no gradient. The functions also serve head norms, whose rows are heads.
//!
//! The kernels have a block per row. Sums have a fixed order, so equal rows give equal bits.

use super::buffers::{narrow, wide};
use super::products::dot;
use crate::harness::{Case, Variant};
use crate::shared::reduce::block_sum;
use crate::shared::{Contract, Random, check_lengths};
use ptx_gen::*;
use std::array::from_fn;

/// Returns `y` `[rows, n]` and `inv` `[rows]` for `x` `[rows, n]` with gains `g` `[n]`.
pub fn forward(x: &[f64], g: &[f64], eps: f64) -> (Vec<f64>, Vec<f64>) {
    let n = g.len();
    let inv: Vec<f64> = x
        .chunks_exact(n)
        .map(|x| (dot(x, x) / n as f64 + eps).sqrt().recip())
        .collect();
    let rows = x.chunks_exact(n).zip(&inv);
    let y = rows
        .flat_map(|(x, inv)| x.iter().zip(g).map(move |(x, g)| x * inv * g))
        .collect();
    (y, inv)
}

/// Adds `dx` to `sum` `[rows, n]`, which may hold the gradient of the residual path around the
/// norm.
pub fn backward(dy: &[f64], x: &[f64], g: &[f64], inv: &[f64], sum: &mut [f64]) {
    let n = g.len();
    let rows = dy.chunks_exact(n).zip(x.chunks_exact(n)).zip(inv);
    for (((dy, x), inv), sum) in rows.zip(sum.chunks_exact_mut(n)) {
        let mean = (0..n).map(|i| g[i] * dy[i] * x[i] * inv).sum::<f64>() / n as f64;
        for i in 0..n {
            sum[i] += inv * (g[i] * dy[i] - x[i] * inv * mean);
        }
    }
}

args! {
    /// Arguments of [`RmsNormForward`].
    pub struct RmsNormForwardArgs {
        /// `[rows, n]`: the inputs
        x: In<f32>,
        /// `[n]`: the gains
        g: In<f32>,
        /// `[rows, n]`: the results
        y: Out<f32>,
        /// `[rows]`: the scale of each row, for the backward pass
        inv: Out<f32>,
        /// The row length, a multiple of 4.
        n: u32,
        /// The constant that is added to the mean of the squares.
        eps: f32,
    }
}

/// Kernel for `y` and `inv`. Its reference is [`forward`].
pub struct RmsNormForward {
    /// The number of threads of a block.
    pub threads: u32,
}

impl KernelDef for RmsNormForward {
    type Args<S: Side> = RmsNormForwardArgs<S>;

    fn name(&self) -> String {
        format!("train_rms_norm_{}", self.threads)
    }

    fn block(&self) -> u32 {
        self.threads
    }

    fn grid(&self, a: &RmsNormForwardArgs<Shape>) -> Result<Grid, ShapeError> {
        let &RmsNormForwardArgs { n, .. } = a;
        self.multiple("n", n, 4)?;
        let rows = (a.x / n as usize) as u32;
        check_lengths! { self, a:
            x == rows * n,
            g == n,
            y == rows * n,
            inv == rows,
        }
        Ok(Grid::line(rows))
    }

    fn program<'k>(&self, k: Builder<'k>, a: RmsNormForwardArgs<Dev<'k>>) {
        let first = k.tid() * 4;
        let step = self.threads * 4;
        let row = k.ctaid() * a.n;
        let x = a.x.at(row);
        let y = a.y.at(row);

        k.section("train/norm/sum_of_squares", "ss = sum of x^2");
        let mut ss = k.var(0.0);
        k.for_each(first, a.n, step, |i| {
            for x in x.at(i).ld4() {
                ss.fma(x, x);
            }
        });
        let mean = block_sum(k, self.threads / 32, ss.get()) / a.n.cvt::<f32>();

        k.section(
            "train/norm/scale",
            "inv = 1 / sqrt(mean + eps), y = x * inv * g",
        );
        let inv = (mean + a.eps).sqrt_rn().rcp_rn();
        k.when(k.tid().eq(0), || a.inv.at(k.ctaid()).st(inv));

        // The row is read again. It is in the L1 or L2 cache, and registers would bound its length.
        k.for_each(first, a.n, step, |i| {
            let x = x.at(i).ld4();
            let g = a.g.at(i).ld4();
            y.at(i).st4(from_fn(|j| x[j] * inv * g[j]));
        });
    }

    fn reference(&self, a: RmsNormForwardArgs<Cpu<'_>>) {
        let (y, inv) = forward(&wide(a.x), &wide(a.g), f64::from(a.eps));
        narrow(&y, a.y);
        narrow(&inv, a.inv);
    }
}

args! {
    /// Arguments of [`RmsNormBackward`].
    pub struct RmsNormBackwardArgs {
        /// `[rows, n]`: the gradient of the results
        dy: In<f32>,
        /// `[rows, n]`: the inputs
        x: In<f32>,
        /// `[n]`: the gains
        g: In<f32>,
        /// `[rows]`: the scales of the forward pass
        inv: In<f32>,
        /// `[rows, n]`: `dx` is added to it.
        sum: InOut<f32>,
        /// The row length, a multiple of 4.
        n: u32,
    }
}

/// Kernel that adds `dx` to the gradient of the residual path. Its reference is [`backward`].
pub struct RmsNormBackward {
    /// The number of threads of a block.
    pub threads: u32,
}

impl KernelDef for RmsNormBackward {
    type Args<S: Side> = RmsNormBackwardArgs<S>;

    fn name(&self) -> String {
        format!("train_rms_norm_backward_{}", self.threads)
    }

    fn block(&self) -> u32 {
        self.threads
    }

    fn grid(&self, a: &RmsNormBackwardArgs<Shape>) -> Result<Grid, ShapeError> {
        let &RmsNormBackwardArgs { n, .. } = a;
        self.multiple("n", n, 4)?;
        let rows = (a.x / n as usize) as u32;
        check_lengths! { self, a:
            x == rows * n,
            dy == rows * n,
            g == n,
            inv == rows,
            sum == rows * n,
        }
        Ok(Grid::line(rows))
    }

    fn program<'k>(&self, k: Builder<'k>, a: RmsNormBackwardArgs<Dev<'k>>) {
        let first = k.tid() * 4;
        let step = self.threads * 4;
        let row = k.ctaid() * a.n;
        let dy = a.dy.at(row);
        let x = a.x.at(row);
        let sum = a.sum.at(row);
        let inv = a.inv.at(k.ctaid()).ld();

        k.section(
            "train/norm/backward_mean",
            "mean = mean(g * dy * xh), xh = x * inv",
        );
        let mut product = k.var(0.0);
        k.for_each(first, a.n, step, |i| {
            let dy = dy.at(i).ld4();
            let x = x.at(i).ld4();
            let g = a.g.at(i).ld4();
            for j in 0..4 {
                product.fma(g[j] * dy[j], x[j] * inv);
            }
        });
        let mean = block_sum(k, self.threads / 32, product.get()) / a.n.cvt::<f32>();

        k.section(
            "train/norm/backward_sum",
            "sum += inv * (g * dy - xh * mean)",
        );
        k.for_each(first, a.n, step, |i| {
            let dy = dy.at(i).ld4();
            let x = x.at(i).ld4();
            let g = a.g.at(i).ld4();
            let passed = sum.at(i).ld4();
            // The row is read again, because the mean of all of it comes first.
            let inside = |j: usize| (x[j] * inv).fma(-mean, g[j] * dy[j]);
            sum.at(i).st4(from_fn(|j| inv.fma(inside(j), passed[j])));
        });
    }

    fn reference(&self, a: RmsNormBackwardArgs<Cpu<'_>>) {
        let mut sum = wide(a.sum);
        backward(&wide(a.dy), &wide(a.x), &wide(a.g), &wide(a.inv), &mut sum);
        narrow(&sum, a.sum);
    }
}

/// The rows, their length and their magnitude. Rows are shorter than a warp, shorter than the
/// block, or longer than one step, with a partial last step. The last cases have small numbers and
/// zeros, for which `eps` matters.
const CASES: [(usize, usize, f32); 5] = [
    (1, 4, 1.0),
    (3, 100, 1.0),
    (2, 4100, 1.0),
    (5, 1024, 1e-3),
    (2, 64, 0.0),
];

const EPS: f32 = 1e-5;

fn label(rows: usize, n: usize, magnitude: f32) -> String {
    format!("rows={rows} n={n} magnitude={magnitude:e}")
}

fn scaled(random: &mut Random, len: usize, magnitude: f32) -> Vec<f32> {
    (0..len).map(|_| random.unit() * magnitude).collect()
}

impl Variant for RmsNormForward {
    fn cases(&self, seed: u64) -> Vec<Case> {
        let case = |(rows, n, magnitude)| {
            let mut random = Random(seed);
            let args = vec![
                CpuArg::F32(scaled(&mut random, rows * n, magnitude)),
                CpuArg::F32(random.units(n)),
                CpuArg::F32(vec![0.0; rows * n]),
                CpuArg::F32(vec![0.0; rows]),
                CpuArg::scalar(n as u32),
                CpuArg::scalar(EPS),
            ];
            // A sum passes at most 30 roundings, and the root halves their error to 15 * 2^-24. Six
            // operations follow.
            Case {
                label: label(rows, n, magnitude),
                args,
                bound: 1.5e-6,
            }
        };
        CASES.map(case).into()
    }
}

impl Variant for RmsNormBackward {
    fn cases(&self, seed: u64) -> Vec<Case> {
        let case = |(rows, n, magnitude)| {
            let mut random = Random(seed);
            let x = scaled(&mut random, rows * n, magnitude);
            let g = random.units(n);
            let inv = forward(&wide(&x), &wide(&g), f64::from(EPS))
                .1
                .into_iter()
                .map(|inv| inv as f32);
            let args = vec![
                CpuArg::F32(random.units(rows * n)),
                CpuArg::F32(x),
                CpuArg::F32(g),
                CpuArg::F32(inv.collect()),
                CpuArg::F32(random.units(rows * n)),
                CpuArg::scalar(n as u32),
            ];

            // The sum's error is at most 30 roundings of the sum of the magnitudes, divided by n.
            Case {
                label: label(rows, n, magnitude),
                args,
                bound: 2e-6,
            }
        };
        CASES.map(case).into()
    }
}
