//! SwiGLU and its gradient in bf16, with eight elements per thread. The formulas are those of
//! [`swiglu`](crate::train::swiglu).

use super::buffers::{narrow, units, wide};
use super::rows::{load, store};
use crate::harness::{Case, Variant};
use crate::shared::{Contract, Random, check_lengths};
use crate::simple::swiglu::Activation;
use crate::train::swiglu::{backward, forward};
use ptx_gen::*;
use std::array::from_fn;

args! {
    /// Arguments of [`SwiGluForward`].
    pub struct SwiGluForwardArgs {
        /// `[n]`: the gate
        g: In<bf16>,
        /// `[n]`: the other factor
        up: In<bf16>,
        /// `[n]`: the result
        a: Out<bf16>,
        /// The number of elements, a multiple of 8.
        n: u32,
    }
}

/// Kernel for `a`. It gives the bits that [`LoraSwiGlu`](super::linear::LoraSwiGlu) gives.
pub struct SwiGluForward {
    /// The number of threads of a block.
    pub threads: u32,
}

args! {
    /// Arguments of [`SwiGluBackward`].
    pub struct SwiGluBackwardArgs {
        /// `[n]`: the gradient of `a`
        da: In<bf16>,
        /// `[n]`: the gate
        g: In<bf16>,
        /// `[n]`: the other factor
        up: In<bf16>,
        /// `[n]`: the gradient of `g`
        dg: Out<bf16>,
        /// `[n]`: the gradient of `up`
        dup: Out<bf16>,
        /// The number of elements, a multiple of 8.
        n: u32,
    }
}

/// Kernel for `dg` and `dup`.
pub struct SwiGluBackward {
    /// The number of threads of a block.
    pub threads: u32,
}

impl KernelDef for SwiGluForward {
    type Args<S: Side> = SwiGluForwardArgs<S>;

    fn name(&self) -> String {
        format!("train_bf16_swiglu_{}", self.threads)
    }

    fn block(&self) -> u32 {
        self.threads
    }

    fn grid(&self, a: &SwiGluForwardArgs<Shape>) -> Result<Grid, ShapeError> {
        let &SwiGluForwardArgs { n, .. } = a;
        self.multiple("n", n, 8)?;
        check_lengths! { self, a:
            g == n,
            up == n,
            a == n,
        }
        Ok(Grid::line(n.div_ceil(8 * self.threads)))
    }

    fn program<'k>(&self, k: Builder<'k>, a: SwiGluForwardArgs<Dev<'k>>) {
        let i = (k.ctaid() * self.threads + k.tid()) * 8;
        k.when(i.lt(a.n), || {
            let g = load(a.g.at(i));
            let up = load(a.up.at(i));
            store(
                a.a.at(i),
                from_fn(|j| g[j] * Activation::Silu.sigmoid(g[j]) * up[j]),
            );
        });
    }

    fn reference(&self, a: SwiGluForwardArgs<Cpu<'_>>) {
        narrow(&forward(&wide(a.g), &wide(a.up)), a.a);
    }
}

impl KernelDef for SwiGluBackward {
    type Args<S: Side> = SwiGluBackwardArgs<S>;

    fn name(&self) -> String {
        format!("train_bf16_swiglu_backward_{}", self.threads)
    }

    fn block(&self) -> u32 {
        self.threads
    }

    fn grid(&self, a: &SwiGluBackwardArgs<Shape>) -> Result<Grid, ShapeError> {
        let &SwiGluBackwardArgs { n, .. } = a;
        self.multiple("n", n, 8)?;
        check_lengths! { self, a:
            da == n,
            g == n,
            up == n,
            dg == n,
            dup == n,
        }
        Ok(Grid::line(n.div_ceil(8 * self.threads)))
    }

    fn program<'k>(&self, k: Builder<'k>, a: SwiGluBackwardArgs<Dev<'k>>) {
        let i = (k.ctaid() * self.threads + k.tid()) * 8;
        k.when(i.lt(a.n), || {
            let da = load(a.da.at(i));
            let g = load(a.g.at(i));
            let up = load(a.up.at(i));
            let sg = g.map(|g| Activation::Silu.sigmoid(g));

            // silu'(g) = sigmoid(g) (1 + g (1 - sigmoid(g)))
            let slope = |j: usize| sg[j] * g[j].fma(-sg[j] + 1.0, 1.0);
            let to = a.dg.at(i);
            let dg = from_fn(|j| da[j] * up[j] * slope(j));
            store(to, dg);
            let to = a.dup.at(i);
            let dup = from_fn(|j| da[j] * (g[j] * sg[j]));
            store(to, dup);
        });
    }

    fn reference(&self, a: SwiGluBackwardArgs<Cpu<'_>>) {
        let (dg, dup) = backward(&wide(a.da), &wide(a.g), &wide(a.up));
        narrow(&dg, a.dg);
        narrow(&dup, a.dup);
    }
}

/// Returns a case with `operands` inputs and `results` outputs of `n` elements. `g` has the
/// magnitude `size`.
fn case(seed: u64, n: usize, size: f32, operands: usize, results: usize) -> Case {
    let mut random = Random(seed);
    let mut all: Vec<Vec<bf16>> = (0..operands).map(|_| units(&mut random, n)).collect();
    let g = &mut all[operands - 2];
    for g in g.iter_mut() {
        *g = bf16::from_f32(g.to_f32() * size);
    }

    g[..2].copy_from_slice(&[-size, size].map(bf16::from_f32));
    let results = (0..results).map(|_| vec![bf16(0); n]);
    let mut args: Vec<CpuArg> = all.into_iter().chain(results).map(CpuArg::Bf16).collect();
    args.push(CpuArg::scalar(n as u32));
    Case {
        label: format!("n={n} size={size}"),
        args,
        bound: 3e-6,
    }
}

impl Variant for SwiGluForward {
    fn cases(&self, seed: u64) -> Vec<Case> {
        let edge = 8 * self.threads as usize;
        [(8, 1.0), (edge, 100.0), (edge + 8, 1e4)]
            .map(|(n, size)| case(seed, n, size, 2, 1))
            .into()
    }
}

impl Variant for SwiGluBackward {
    fn cases(&self, seed: u64) -> Vec<Case> {
        let edge = 8 * self.threads as usize;
        [(8, 1.0), (edge, 100.0), (edge + 8, 1e4)]
            .map(|(n, size)| case(seed, n, size, 3, 2))
            .into()
    }
}
