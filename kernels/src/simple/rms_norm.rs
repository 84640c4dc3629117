//! RMSNorm (Zhang and Sennrich, 2019, arXiv:1910.07467): `y[r,i] = x[r,i] * w[i] /
//! sqrt(mean(x[r,:]^2) + eps)`. One block processes one row.
//!
//! The sum of squares is an `f32`. Rows are therefore correct up to a magnitude of `1.8e19 /
//! sqrt(n)`, for example 2e17 for n = 8192.

use crate::harness::{Case, Variant};
use crate::shared::reduce::block_sum;
use crate::shared::{Contract, Random};
use ptx_gen::*;
use std::array::from_fn;

args! {
    /// Arguments of [`RmsNorm`].
    pub struct RmsNormArgs {
        /// `[rows, n]`: the vectors to normalize
        x: In<f32>,
        /// `[n]`: weights of the norm
        w: In<f32>,
        /// `[rows, n]`: the result
        y: Out<f32>,
        /// The row length, a multiple of 4.
        n: u32,
        /// A constant that is added to the mean of the squares.
        eps: f32,
    }
}

/// Kernel that normalizes rows.
pub struct RmsNorm {
    /// The number of threads of a row's block.
    pub threads: u32,
}

impl KernelDef for RmsNorm {
    type Args<S: Side> = RmsNormArgs<S>;

    fn name(&self) -> String {
        format!("rms_norm_{}", self.threads)
    }

    fn block(&self) -> u32 {
        self.threads
    }

    fn grid(&self, a: &RmsNormArgs<Shape>) -> Result<Grid, ShapeError> {
        self.multiple("n", a.n, 4)?;
        let rows = (a.x / a.n as usize) as u32;
        self.length("x", a.x, "rows * n", &[rows, a.n])?;
        self.length("w", a.w, "n", &[a.n])?;
        self.length("y", a.y, "rows * n", &[rows, a.n])?;
        Ok(Grid::line(rows))
    }

    /// Emits one pass for the sum of squares and one to scale. A thread processes 4 floats per
    /// step.
    fn program<'k>(&self, k: Builder<'k>, a: RmsNormArgs<Dev<'k>>) {
        let first = k.tid() * 4;
        let row = k.ctaid() * a.n;
        let x = a.x.at(row);
        let y = a.y.at(row);

        k.section("simple/rms_norm/sum_of_squares", "ss = sum of x^2");
        let mut ss = k.var(0.0);
        k.for_each(first, a.n, self.threads * 4, |i| {
            for v in x.at(i).ld4() {
                ss.fma(v, v);
            }
        });
        let ss = block_sum(k, self.threads / 32, ss.get());

        k.section("simple/rms_norm/scale", "y = x * w / sqrt(ss / n + eps)");
        let scale = ss.fma(a.n.cvt::<f32>().rcp(), a.eps).rsqrt();
        k.for_each(first, a.n, self.threads * 4, |i| {
            let x = x.at(i).ld4();
            let w = a.w.at(i).ld4();
            y.at(i).st4(from_fn(|j| x[j] * scale * w[j]));
        });
    }

    fn reference(&self, a: RmsNormArgs<Cpu<'_>>) {
        let n = a.n as usize;
        for (x, y) in a.x.chunks(n).zip(a.y.chunks_mut(n)) {
            let mean = x.iter().map(|&x| f64::from(x).powi(2)).sum::<f64>() / n as f64;
            let scale = (mean + f64::from(a.eps)).sqrt().recip();
            for i in 0..n {
                y[i] = (f64::from(x[i]) * scale * f64::from(a.w[i])) as f32;
            }
        }
    }
}

impl Variant for RmsNorm {
    fn cases(&self, seed: u64) -> Vec<Case> {
        // Rows shorter than a warp, shorter than the block, and of more than one step with a
        // partial last one. Then the ends of the range: a row of zeros, and rows whose squares
        // nearly overflow.
        [
            (1, 4, 1.0),
            (3, 100, 1.0),
            (2, 4100, 1.0),
            (5, 1024, 1e-3),
            (2, 64, 0.0),
            (3, 512, 1e15),
        ]
        .map(|(rows, n, magnitude)| self.case(seed, rows, n, magnitude))
        .into()
    }
}

impl RmsNorm {
    fn case(&self, seed: u64, rows: usize, n: usize, magnitude: f32) -> Case {
        let mut random = Random(seed);
        let x = (0..rows * n).map(|_| random.unit() * magnitude).collect();
        Case {
            label: format!("rows={rows} n={n} magnitude={magnitude:e}"),
            args: vec![
                CpuArg::F32(x),
                CpuArg::F32(random.units(n)),
                CpuArg::F32(vec![0.0; rows * n]),
                CpuArg::scalar(n as u32),
                CpuArg::scalar(1e-5f32),
            ],
            // A sum passes at most 30 roundings, of which the root leaves half: 15 * 2^-24. Then
            // follow rcp and rsqrt with 3 ulp, and two multiplications.
            bound: 2e-6,
        }
    }
}
