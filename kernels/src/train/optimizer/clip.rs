//! Clipping of gradients by their global norm ([Pascanu et al.,
//! 2012](https://arxiv.org/abs/1211.5063)): one norm over the gradients of all adapters, as in
//! PyTorch's `clip_grad_norm_`.
//!
//! On the device, [`SquareSums`] computes partial sums of squares, and
//! [`EndStep`](super::state::EndStep) adds them. The partition is the same on every device, and so
//! are the bits of the norm.

use crate::harness::{Case, Variant};
use crate::shared::reduce::block_sum;
use crate::shared::{Contract, Random, check_lengths};
use crate::train::buffers::wide;
use ptx_gen::*;

/// Returns the Euclidean norm of all tensors together.
///
/// # Example
///
/// ```
/// use warpwright_kernels::train::optimizer::clip::norm;
///
/// let gradients: [&[f64]; 2] = [&[3.0], &[0.0, 4.0]];
/// assert_eq!(norm(gradients), 5.0);
/// ```
pub fn norm<'a>(gradients: impl IntoIterator<Item = &'a [f64]>) -> f64 {
    gradients
        .into_iter()
        .flatten()
        .map(|g| g * g)
        .sum::<f64>()
        .sqrt()
}

/// Returns the factor of gradients with this norm: `min(1, max / (norm + 1e-6))`.
pub fn factor(norm: f64, max: f64) -> f64 {
    (max / (norm + 1e-6)).min(1.0)
}

/// The number of partial sums of squares: one for each multiprocessor of an H100 or H200.
pub const PARTS: u32 = 132;

args! {
    /// Arguments of [`SquareSums`].
    pub struct SquareSumsArgs {
        /// `[n]`: the gradients
        g: In<f32>,
        /// `[PARTS]`: the partial sums
        parts: Out<f32>,
        /// The number of elements, a multiple of 4.
        n: u32,
    }
}

/// Kernel for [`PARTS`] partial sums of squares, with a block per sum.
pub struct SquareSums {
    /// The number of threads of a block.
    pub threads: u32,
}

impl KernelDef for SquareSums {
    type Args<S: Side> = SquareSumsArgs<S>;

    fn name(&self) -> String {
        format!("train_square_sums_{}", self.threads)
    }

    fn block(&self) -> u32 {
        self.threads
    }

    fn grid(&self, a: &SquareSumsArgs<Shape>) -> Result<Grid, ShapeError> {
        let &SquareSumsArgs { n, .. } = a;
        self.multiple("n", n, 4)?;
        self.range("n", n, 4, 1 << 30)?;
        check_lengths! { self, a:
            g == n,
        }
        self.exactly("parts", a.parts, PARTS as usize)?;
        Ok(Grid::line(PARTS))
    }

    fn program<'k>(&self, k: Builder<'k>, a: SquareSumsArgs<Dev<'k>>) {
        let first = (k.ctaid() * self.threads + k.tid()) * 4;
        let mut sum = k.var(0.0);
        k.for_each(first, a.n, PARTS * self.threads * 4, |i| {
            for g in a.g.at(i).ld4() {
                sum.fma(g, g);
            }
        });
        let sum = block_sum(k, self.threads / 32, sum.get());
        k.when(k.tid().eq(0), || a.parts.at(k.ctaid()).st(sum));
    }

    fn reference(&self, a: SquareSumsArgs<Cpu<'_>>) {
        let mut parts = [0f64; PARTS as usize];
        for (i, g) in wide(a.g).into_iter().enumerate() {
            parts[i / (4 * self.threads as usize) % PARTS as usize] += g * g;
        }
        for (to, part) in a.parts.iter_mut().zip(parts) {
            *to = part as f32;
        }
    }
}

impl Variant for SquareSums {
    /// Returns cases with less than one block's elements, with all blocks', and with more than one
    /// step of some blocks.
    fn cases(&self, seed: u64) -> Vec<Case> {
        let all = 4 * self.threads * PARTS;
        let case = |n: u32| {
            let args = vec![
                CpuArg::F32(Random(seed).units(n as usize)),
                CpuArg::F32(vec![0.0; PARTS as usize]),
                CpuArg::scalar(n),
            ];
            Case {
                label: format!("n={n}"),
                args,
                bound: 1e-6,
            }
        };
        [4, 3000, all + 5000].map(case).into()
    }
}
