//! LayerNorm without a bias (Ba et al., 2016, arXiv:1607.06450): `y[r,i] = (x[r,i] - m) * w[i] /
//! sqrt(mean((x[r,:] - m)^2) + eps)` with `m = mean(x[r,:])`. One block processes one row.
//!
//! The variance is computed in a second pass over the row, from differences to the mean, so that it
//! is accurate if the mean is large. The sum of squares is an `f32`, with the range of
//! [`RmsNorm`](crate::RmsNorm).

use crate::harness::{Case, Variant};
use crate::shared::reduce::block_sum;
use crate::shared::{Contract, Random};
use ptx_gen::*;
use std::array::from_fn;

args! {
    /// Arguments of [`LayerNorm`].
    pub struct LayerNormArgs {
        /// `[rows, n]`: the vectors to normalize
        x: In<f32>,
        /// `[n]`: weights of the norm
        w: In<f32>,
        /// `[rows, n]`: the result
        y: Out<f32>,
        /// The row length, a multiple of 4.
        n: u32,
        /// A constant that is added to the variance.
        eps: f32,
    }
}

/// Kernel that normalizes rows.
pub struct LayerNorm {
    /// The number of threads of a row's block.
    pub threads: u32,
}

impl KernelDef for LayerNorm {
    type Args<S: Side> = LayerNormArgs<S>;

    fn name(&self) -> String {
        format!("layer_norm_{}", self.threads)
    }

    fn block(&self) -> u32 {
        self.threads
    }

    fn grid(&self, a: &LayerNormArgs<Shape>) -> Result<Grid, ShapeError> {
        self.multiple("n", a.n, 4)?;
        let rows = (a.x / a.n as usize) as u32;
        self.length("x", a.x, "rows * n", &[rows, a.n])?;
        self.length("w", a.w, "n", &[a.n])?;
        self.length("y", a.y, "rows * n", &[rows, a.n])?;
        Ok(Grid::line(rows))
    }

    /// Emits one pass for the mean, one for the variance and one to scale. A thread processes 4
    /// floats per step.
    fn program<'k>(&self, k: Builder<'k>, a: LayerNormArgs<Dev<'k>>) {
        let first = k.tid() * 4;
        let row = k.ctaid() * a.n;
        let x = a.x.at(row);
        let y = a.y.at(row);
        let share = a.n.cvt::<f32>().rcp();

        k.section("simple/layer_norm/mean", "mean = sum of x / n");
        let mut sum = k.var(0.0);
        k.for_each(first, a.n, self.threads * 4, |i| {
            for v in x.at(i).ld4() {
                sum += v;
            }
        });
        let mean = block_sum(k, self.threads / 32, sum.get()) * share;

        k.section("simple/layer_norm/variance", "ss = sum of (x - mean)^2");
        let mut ss = k.var(0.0);
        k.for_each(first, a.n, self.threads * 4, |i| {
            for v in x.at(i).ld4() {
                let v = v - mean;
                ss.fma(v, v);
            }
        });
        let ss = block_sum(k, self.threads / 32, ss.get());

        k.section(
            "simple/layer_norm/scale",
            "y = (x - mean) * w / sqrt(ss / n + eps)",
        );
        let scale = ss.fma(share, a.eps).rsqrt();
        k.for_each(first, a.n, self.threads * 4, |i| {
            let x = x.at(i).ld4();
            let w = a.w.at(i).ld4();
            y.at(i).st4(from_fn(|j| (x[j] - mean) * scale * w[j]));
        });
    }

    fn reference(&self, a: LayerNormArgs<Cpu<'_>>) {
        let n = a.n as usize;
        for (x, y) in a.x.chunks(n).zip(a.y.chunks_mut(n)) {
            let mean = x.iter().map(|&x| f64::from(x)).sum::<f64>() / n as f64;
            let squares = x.iter().map(|&x| (f64::from(x) - mean).powi(2));
            let variance = squares.sum::<f64>() / n as f64;
            let scale = (variance + f64::from(a.eps)).sqrt().recip();
            for i in 0..n {
                y[i] = ((f64::from(x[i]) - mean) * scale * f64::from(a.w[i])) as f32;
            }
        }
    }
}

impl Variant for LayerNorm {
    fn cases(&self, seed: u64) -> Vec<Case> {
        // Rows shorter than a warp, shorter than the block, and of more than one step with a
        // partial last one. Then a mean that is far from zero, and the ends of the range: a row of
        // equal values, and rows whose squares nearly overflow.
        [
            (1, 4, 1.0, 0.0),
            (3, 100, 1.0, 0.0),
            (2, 4100, 1.0, 0.0),
            (5, 1024, 1e-3, 0.0),
            (3, 512, 1.0, 4.0),
            (2, 64, 0.0, 1.0),
            (3, 512, 1e15, 0.0),
        ]
        .map(|(rows, n, magnitude, mean)| case(seed, [rows, n], magnitude, mean))
        .into()
    }
}

fn case(seed: u64, [rows, n]: [usize; 2], magnitude: f32, mean: f32) -> Case {
    let mut random = Random(seed);
    let x = (0..rows * n)
        .map(|_| mean + random.unit() * magnitude)
        .collect();
    Case {
        label: format!("rows={rows} n={n} magnitude={magnitude:e} mean={mean}"),
        args: vec![
            CpuArg::F32(x),
            CpuArg::F32(random.units(n)),
            CpuArg::F32(vec![0.0; rows * n]),
            CpuArg::scalar(n as u32),
            CpuArg::scalar(1e-5f32),
        ],
        // As of RMSNorm, and the error of the mean: 30 roundings of a sum and rcp, of a value up to
        // a few times the differences from it.
        bound: 1e-5,
    }
}
