//! SwiGLU: `y = silu(gate) * up`, with `silu(g) = g / (1 + e^-g)`.
//!
//! For large `-g` the power is infinite and its reciprocal 0, so the product is 0, as it should be.

use crate::case::{Case, Random, Variant};
use crate::contract::Contract;
use ptx_gen::*;
use std::array::from_fn;
use std::f32::consts::LOG2_E;

args! {
    /// Arguments of [`SwiGlu`].
    pub struct SwiGluArgs {
        /// `[n]`
        gate: In<f32>,
        /// `[n]`
        up: In<f32>,
        /// `[n]`
        y: Out<f32>,
        /// Length, a multiple of 4.
        n: u32,
    }
}

/// The kernel: 4 elements a thread.
pub struct SwiGlu {
    /// Threads of a block.
    pub threads: u32,
}

impl KernelDef for SwiGlu {
    type Args<S: Side> = SwiGluArgs<S>;

    fn name(&self) -> String {
        format!("swiglu_{}", self.threads)
    }

    fn block(&self) -> u32 {
        self.threads
    }

    fn grid(&self, a: &SwiGluArgs<Shape>) -> Result<Grid, ShapeError> {
        self.multiple("n", a.n, 4)?;
        self.length("gate", a.gate, "n", &[a.n])?;
        self.length("up", a.up, "n", &[a.n])?;
        self.length("y", a.y, "n", &[a.n])?;
        Ok(Grid::line(a.n.div_ceil(4 * self.threads)))
    }

    fn program<'k>(&self, k: Builder<'k>, a: SwiGluArgs<Dev<'k>>) {
        let i = (k.ctaid() * self.threads + k.tid()) * 4;
        k.when(i.lt(a.n), || {
            let (gate, up) = (a.gate.at(i).ld4(), a.up.at(i).ld4());
            a.y.at(i).st4(from_fn(|j| silu(gate[j]) * up[j]));
        });
    }

    fn reference(&self, a: SwiGluArgs<Cpu<'_>>) {
        for ((y, &gate), &up) in a.y.iter_mut().zip(a.gate).zip(a.up) {
            let (gate, up) = (f64::from(gate), f64::from(up));
            *y = (gate / (1.0 + (-gate).exp()) * up) as f32;
        }
    }
}

fn silu(g: F32<'_>) -> F32<'_> {
    g * ((g * -LOG2_E).ex2() + 1.0).rcp()
}

impl Variant for SwiGlu {
    fn cases(&self, seed: u64) -> Vec<Case> {
        let edge = 4 * self.threads as usize;
        [(4, 1.0), (100, 10.0), (edge, 100.0), (edge + 4, 1e4)].map(|(n, size)| case(seed, n, size)).into()
    }
}

fn case(seed: u64, n: usize, size: f32) -> Case {
    let mut random = Random(seed);
    let mut gate: Vec<f32> = (0..n).map(|_| random.unit() * size).collect();
    gate[..2].copy_from_slice(&[-size, size]);
    Case {
        label: format!("n={n} size={size}"),
        args: vec![
            CpuArg::F32(gate),
            CpuArg::F32(random.units(n)),
            CpuArg::F32(vec![0.0; n]),
            CpuArg::scalar(n as u32),
        ],
        // Where the result is near the largest, |g| * 2^-24 of the power's exponent is at most a few roundings;
        // ex2, rcp and two products add 4 ulp.
        bound: 1e-6,
    }
}
