//! RMSNorm and its gradient in bf16, with the formulas of [`rms_norm`](crate::train::rms_norm). A
//! block processes a row, and sums have a fixed order.

use super::buffers::{narrow, wide};
use super::rows::{load, load_f32, store};
use crate::harness::{Case, Variant};
use crate::shared::reduce::block_sum;
use crate::shared::{Contract, Random, check_lengths};
use crate::train::rms_norm::{backward, forward};
use ptx_gen::*;
use std::array::from_fn;

args! {
    /// Arguments of [`RmsNormForward`].
    pub struct RmsNormForwardArgs {
        /// `[rows, n]`: the inputs
        x: In<bf16>,
        /// `[n]`: the gains
        g: In<f32>,
        /// `[rows, n]`: the results
        y: Out<bf16>,
        /// `[rows]`: the scale of each row, for the backward pass
        inv: Out<f32>,
        /// The row length, a multiple of 8.
        n: u32,
        /// The constant that is added to the mean of the squares.
        eps: f32,
    }
}

/// Kernel for `y` and `inv`.
pub struct RmsNormForward {
    /// The number of threads of a block.
    pub threads: u32,
}

args! {
    /// Arguments of [`RmsNormBackward`].
    pub struct RmsNormBackwardArgs {
        /// `[rows, n]`: the gradient of the results
        dy: In<bf16>,
        /// `[rows, n]`: the inputs
        x: In<bf16>,
        /// `[n]`: the gains
        g: In<f32>,
        /// `[rows]`: the scales of the forward pass
        inv: In<f32>,
        /// `[rows, n]`: `dx` is added to it.
        sum: InOut<bf16>,
        /// The row length, a multiple of 8.
        n: u32,
    }
}

/// Kernel that adds `dx` to the gradient of the residual path. The sum is rounded once.
pub struct RmsNormBackward {
    /// The number of threads of a block.
    pub threads: u32,
}

impl KernelDef for RmsNormForward {
    type Args<S: Side> = RmsNormForwardArgs<S>;

    fn name(&self) -> String {
        format!("train_bf16_rms_norm_{}", self.threads)
    }

    fn block(&self) -> u32 {
        self.threads
    }

    fn grid(&self, a: &RmsNormForwardArgs<Shape>) -> Result<Grid, ShapeError> {
        let &RmsNormForwardArgs { n, .. } = a;
        self.multiple("n", n, 8)?;
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
        let first = k.tid() * 8;
        let step = self.threads * 8;
        let row = k.ctaid() * a.n;
        let x = a.x.at(row);
        let y = a.y.at(row);

        k.section("train/norm/half_sum_of_squares", "ss = sum of x^2");
        let mut ss = k.var(0.0);
        k.for_each(first, a.n, step, |i| {
            for x in load(x.at(i)) {
                ss.fma(x, x);
            }
        });
        let mean = block_sum(k, self.threads / 32, ss.get()) / a.n.cvt::<f32>();

        k.section(
            "train/norm/half_scale",
            "inv = 1 / sqrt(mean + eps), y = x * inv * g",
        );

        // Both operations round to nearest, so that the emulator and the device agree.
        let inv = (mean + a.eps).sqrt_rn().rcp_rn();
        k.when(k.tid().eq(0), || a.inv.at(k.ctaid()).st(inv));
        k.for_each(first, a.n, step, |i| {
            let x = load(x.at(i));
            let g = load_f32(a.g.at(i));
            store(y.at(i), from_fn(|j| x[j] * inv * g[j]));
        });
    }

    fn reference(&self, a: RmsNormForwardArgs<Cpu<'_>>) {
        let g: Vec<f64> = a.g.iter().copied().map(f64::from).collect();
        let (y, inv) = forward(&wide(a.x), &g, f64::from(a.eps));
        narrow(&y, a.y);
        for (to, inv) in a.inv.iter_mut().zip(inv) {
            *to = inv as f32;
        }
    }
}

impl KernelDef for RmsNormBackward {
    type Args<S: Side> = RmsNormBackwardArgs<S>;

    fn name(&self) -> String {
        format!("train_bf16_rms_norm_backward_{}", self.threads)
    }

    fn block(&self) -> u32 {
        self.threads
    }

    fn grid(&self, a: &RmsNormBackwardArgs<Shape>) -> Result<Grid, ShapeError> {
        let &RmsNormBackwardArgs { n, .. } = a;
        self.multiple("n", n, 8)?;
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
        let first = k.tid() * 8;
        let step = self.threads * 8;
        let row = k.ctaid() * a.n;
        let dy = a.dy.at(row);
        let x = a.x.at(row);
        let sum = a.sum.at(row);
        let inv = a.inv.at(k.ctaid()).ld();

        k.section(
            "train/norm/half_backward_mean",
            "mean = mean(g * dy * xh), xh = x * inv",
        );
        let mut product = k.var(0.0);
        k.for_each(first, a.n, step, |i| {
            let dy = load(dy.at(i));
            let x = load(x.at(i));
            let g = load_f32(a.g.at(i));
            for j in 0..8 {
                product.fma(g[j] * dy[j], x[j] * inv);
            }
        });
        let mean = block_sum(k, self.threads / 32, product.get()) / a.n.cvt::<f32>();

        k.section(
            "train/norm/half_backward_sum",
            "sum += inv * (g * dy - xh * mean)",
        );
        k.for_each(first, a.n, step, |i| {
            let dy = load(dy.at(i));
            let x = load(x.at(i));
            let g = load_f32(a.g.at(i));
            // The row is read again, because the mean of all of it comes first.
            let old = load(sum.at(i));
            store(
                sum.at(i),
                from_fn(|j| inv.fma((g[j] * dy[j]) - (x[j] * inv * mean), old[j])),
            );
        });
    }

    fn reference(&self, a: RmsNormBackwardArgs<Cpu<'_>>) {
        let [g, inv] = [a.g, a.inv].map(|v| v.iter().copied().map(f64::from).collect::<Vec<_>>());
        let mut sum = wide(a.sum);
        backward(&wide(a.dy), &wide(a.x), &g, &inv, &mut sum);
        narrow(&sum, a.sum);
    }
}

const EPS: f32 = 1e-5;

/// The number of rows, their length, and the magnitude of their elements.
const CASES: [(usize, usize, f32); 4] = [
    (1, 8, 1.0),
    (3, 200, 100.0),
    (2, 2056, 1e-3),
    (2, 4096, 1.0),
];

fn label((rows, n, magnitude): (usize, usize, f32)) -> String {
    format!("rows={rows} n={n} magnitude={magnitude:e}")
}

fn scaled(random: &mut Random, len: usize, magnitude: f32) -> Vec<bf16> {
    (0..len)
        .map(|_| bf16::from_f32(random.unit() * magnitude))
        .collect()
}

impl Variant for RmsNormForward {
    fn cases(&self, seed: u64) -> Vec<Case> {
        let case = |of: (usize, usize, f32)| {
            let (rows, n, magnitude) = of;
            let mut random = Random(seed);
            let args = vec![
                CpuArg::Bf16(scaled(&mut random, rows * n, magnitude)),
                CpuArg::F32(random.units(n)),
                CpuArg::Bf16(vec![bf16(0); rows * n]),
                CpuArg::F32(vec![0.0; rows]),
                CpuArg::scalar(n as u32),
                CpuArg::scalar(EPS),
            ];

            // `inv` has the error of the `f32` kernel. `y` rounds to the same number or its
            // neighbor.
            Case {
                label: label(of),
                args,
                bound: 1.5e-6,
            }
        };
        CASES.map(case).into()
    }
}

impl Variant for RmsNormBackward {
    fn cases(&self, seed: u64) -> Vec<Case> {
        let case = |of: (usize, usize, f32)| {
            let (rows, n, magnitude) = of;
            let mut random = Random(seed);
            let x = scaled(&mut random, rows * n, magnitude);
            let g = random.units(n);
            let gains: Vec<f64> = g.iter().copied().map(f64::from).collect();
            let inv = forward(&wide(&x), &gains, f64::from(EPS))
                .1
                .into_iter()
                .map(|inv| inv as f32);
            let args = vec![
                CpuArg::Bf16(scaled(&mut random, rows * n, 1.0)),
                CpuArg::Bf16(x),
                CpuArg::F32(g),
                CpuArg::F32(inv.collect()),
                CpuArg::Bf16(scaled(&mut random, rows * n, 1.0)),
                CpuArg::scalar(n as u32),
            ];
            Case {
                label: label(of),
                args,
                bound: 2e-6,
            }
        };
        CASES.map(case).into()
    }
}
