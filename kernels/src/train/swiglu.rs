//! SwiGLU ([Shazeer, 2020](https://arxiv.org/abs/2002.05202)) and its gradient.
//!
//! ```text
//! a   = silu(g) up,  silu(g) = g sg,  sg = 1 / (1 + e^-g)
//! dg  = da up sg (1 + g (1 - sg))
//! dup = da g sg
//! ```
//!
//! The kernel of the forward pass is [`SwiGlu`](crate::SwiGlu). For large `-g` the power in the
//! sigmoid is infinite and its reciprocal is 0. Both gradients are then 0, which is their limit.

use super::buffers::{narrow, wide};
use crate::harness::{Case, Variant};
use crate::shared::{Contract, Random, check_lengths};
use crate::simple::swiglu::Activation;
use ptx_gen::*;
use std::array::from_fn;

fn sigmoid(g: f64) -> f64 {
    (1.0 + (-g).exp()).recip()
}

/// Returns `a`. The slices must have one length.
pub fn forward(g: &[f64], up: &[f64]) -> Vec<f64> {
    g.iter()
        .zip(up)
        .map(|(&g, up)| g * sigmoid(g) * up)
        .collect()
}

/// Returns `(dg, dup)`. The slices must have one length.
pub fn backward(da: &[f64], g: &[f64], up: &[f64]) -> (Vec<f64>, Vec<f64>) {
    let gradient = |((da, &g), up): ((&f64, &f64), &f64)| {
        let sg = sigmoid(g);
        (da * up * sg * (1.0 + g * (1.0 - sg)), da * g * sg)
    };
    da.iter().zip(g).zip(up).map(gradient).unzip()
}

args! {
    /// Arguments of [`SwiGluBackward`].
    pub struct SwiGluBackwardArgs {
        /// `[n]`: the gradient of `a`
        da: In<f32>,
        /// `[n]`: the gate
        g: In<f32>,
        /// `[n]`: the other factor
        up: In<f32>,
        /// `[n]`: the gradient of `g`
        dg: Out<f32>,
        /// `[n]`: the gradient of `up`
        dup: Out<f32>,
        /// The number of elements, a multiple of 4.
        n: u32,
    }
}

/// Kernel for `dg` and `dup`, with 4 elements per thread. Its reference is [`backward`].
pub struct SwiGluBackward {
    /// The number of threads of a block.
    pub threads: u32,
}

impl KernelDef for SwiGluBackward {
    type Args<S: Side> = SwiGluBackwardArgs<S>;

    fn name(&self) -> String {
        format!("train_swiglu_backward_{}", self.threads)
    }

    fn block(&self) -> u32 {
        self.threads
    }

    fn grid(&self, a: &SwiGluBackwardArgs<Shape>) -> Result<Grid, ShapeError> {
        let &SwiGluBackwardArgs { n, .. } = a;
        self.multiple("n", n, 4)?;
        check_lengths! { self, a:
            da == n,
            g == n,
            up == n,
            dg == n,
            dup == n,
        }
        Ok(Grid::line(n.div_ceil(4 * self.threads)))
    }

    fn program<'k>(&self, k: Builder<'k>, a: SwiGluBackwardArgs<Dev<'k>>) {
        let i = (k.ctaid() * self.threads + k.tid()) * 4;
        k.when(i.lt(a.n), || {
            let da = a.da.at(i).ld4();
            let g = a.g.at(i).ld4();
            let up = a.up.at(i).ld4();
            let sg = g.map(|g| Activation::Silu.sigmoid(g));

            // silu'(g) = sigmoid(g) (1 + g (1 - sigmoid(g)))
            let slope = |j: usize| sg[j] * g[j].fma(-sg[j] + 1.0, 1.0);
            let to = a.dg.at(i);
            let dg = from_fn(|j| da[j] * up[j] * slope(j));
            to.st4(dg);
            let to = a.dup.at(i);
            let dup = from_fn(|j| da[j] * (g[j] * sg[j]));
            to.st4(dup);
        });
    }

    fn reference(&self, a: SwiGluBackwardArgs<Cpu<'_>>) {
        let (dg, dup) = backward(&wide(a.da), &wide(a.g), &wide(a.up));
        narrow(&dg, a.dg);
        narrow(&dup, a.dup);
    }
}

impl Variant for SwiGluBackward {
    fn cases(&self, seed: u64) -> Vec<Case> {
        let edge = 4 * self.threads as usize;
        [(4, 1.0), (100, 10.0), (edge, 100.0), (edge + 4, 1e4)]
            .map(|(n, size)| case(seed, n, size))
            .into()
    }
}

fn case(seed: u64, n: usize, size: f32) -> Case {
    let mut random = Random(seed);
    let mut g: Vec<f32> = (0..n).map(|_| random.unit() * size).collect();
    g[..2].copy_from_slice(&[-size, size]);
    Case {
        label: format!("n={n} size={size}"),
        args: vec![
            CpuArg::F32(random.units(n)),
            CpuArg::F32(g),
            CpuArg::F32(random.units(n)),
            CpuArg::F32(vec![0.0; n]),
            CpuArg::F32(vec![0.0; n]),
            CpuArg::scalar(n as u32),
        ],
        // `1 - sg` has an error of 2 ulp of 1. It is multiplied by `g` and by `sg`, and where `sg`
        // is large, `g` is below 20.
        bound: 3e-6,
    }
}
