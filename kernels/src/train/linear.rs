//! A projection with a frozen weight, with or without an adapter.
//!
//! ```text
//! y  = x W^T + b + u B^T
//! dx = dy W + m * (du A)
//! ```
//!
//! `u`, `du` and the mask `m` are those of [`lora`](super::lora). Each result is one matmul with
//! `rank` additional columns. On the device, matmuls add to their output, so `y` starts with the
//! bias in every row.

use super::lora::{Factors, masked};
use super::products::{nn, nt};
use crate::harness::{Case, Variant};
use crate::shared::{Contract, Random, check_lengths};
use ptx_gen::*;

/// The frozen weight of a projection.
#[derive(Clone, Copy, Debug)]
pub struct Weight<'a> {
    /// `[n, k]`
    pub w: &'a [f64],
    /// `[n]`
    pub bias: Option<&'a [f64]>,
    /// The number of outputs.
    pub n: usize,
}

impl Weight<'_> {
    fn k(&self) -> usize {
        self.w.len() / self.n
    }
}

/// Returns `y` `[tokens, n]` of `x` `[tokens, k]`. `lora` is the adapter and its `u` `[tokens,
/// rank]`.
pub fn forward(x: &[f64], weight: &Weight<'_>, lora: Option<(&Factors<'_>, &[f64])>) -> Vec<f64> {
    let tokens = x.len() / weight.k();
    let mut y = match weight.bias {
        Some(bias) => bias.repeat(tokens),
        None => vec![0.0; tokens * weight.n],
    };
    nt(x, weight.w, weight.k(), &mut y);
    if let Some((factors, u)) = lora {
        nt(u, factors.b, factors.rank, &mut y);
    }

    y
}

/// Returns `dx` `[tokens, k]` of `dy` `[tokens, n]`. `lora` is the adapter and its `du` `[tokens,
/// rank]`.
pub fn backward(dy: &[f64], weight: &Weight<'_>, lora: Option<(&Factors<'_>, &[f64])>) -> Vec<f64> {
    let mut dx = vec![0.0; dy.len() / weight.n * weight.k()];
    if let Some((factors, du)) = lora {
        nn(du, factors.a, weight.k(), &mut dx);
        dx = masked(&dx, factors.mask).into_owned();
    }
    nn(dy, weight.w, weight.k(), &mut dx);
    dx
}

args! {
    /// Arguments of [`BroadcastRow`].
    pub struct BroadcastRowArgs {
        /// `[n]`: the row
        row: In<f32>,
        /// `[rows, n]`: copies of the row
        y: Out<f32>,
        /// The number of rows of `y`.
        rows: u32,
        /// The length of a row.
        n: u32,
    }
}

/// Kernel that copies a row into each row of `y`, with an element per thread.
pub struct BroadcastRow;

const THREADS: u32 = 256;

impl KernelDef for BroadcastRow {
    type Args<S: Side> = BroadcastRowArgs<S>;

    fn name(&self) -> String {
        "train_broadcast_row".into()
    }

    fn block(&self) -> u32 {
        THREADS
    }

    fn grid(&self, a: &BroadcastRowArgs<Shape>) -> Result<Grid, ShapeError> {
        let &BroadcastRowArgs { n, rows, .. } = a;
        self.range("n", n, 1, 1 << 30)?;
        check_lengths! { self, a:
            row == n,
            y == rows * n,
        }
        Ok(Grid::line((a.y as u32).div_ceil(THREADS)))
    }

    fn program<'k>(&self, k: Builder<'k>, a: BroadcastRowArgs<Dev<'k>>) {
        let i = k.ctaid() * THREADS + k.tid();
        k.when(i.lt(a.rows * a.n), || a.y.at(i).st(a.row.at(i % a.n).ld()));
    }

    fn reference(&self, a: BroadcastRowArgs<Cpu<'_>>) {
        for y in a.y.chunks_mut(a.n as usize) {
            y.copy_from_slice(a.row);
        }
    }
}

impl Variant for BroadcastRow {
    fn cases(&self, seed: u64) -> Vec<Case> {
        let case = |(rows, n): (u32, u32)| {
            let args = vec![
                CpuArg::F32(Random(seed).units(n as usize)),
                CpuArg::F32(vec![0.0; (rows * n) as usize]),
                CpuArg::scalar(rows),
                CpuArg::scalar(n),
            ];
            Case {
                label: format!("rows={rows} n={n}"),
                args,
                bound: 0.0,
            }
        };
        [(1, 1), (3, 7), (5, 300)].map(case).into()
    }
}
