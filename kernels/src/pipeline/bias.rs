//! Kernels whose results have a bias: `W x + bias`.
//!
//! The bias is loaded before the sums are complete, so its latency is hidden.

use crate::harness::{Case, Variant};
use crate::shared::{Contract, Random};
use ptx_gen::*;

args! {
    /// The bias of a kernel.
    pub struct BiasArgs {
        /// `[rows]`: the bias, which may be the result of the previous kernel
        bias: In<f32>,
    }
}

/// A kernel with a bias.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct WithBias<K>(pub K);

/// Arguments of [`WithBias`]: the kernel's own, then the bias.
pub struct WithBiasArgs<K: KernelDef, S: Side> {
    /// The arguments of the kernel.
    pub product: K::Args<S>,
    /// The bias.
    pub bias: BiasArgs<S>,
}

impl<K: KernelDef, S: Side> ArgList<S> for WithBiasArgs<K, S> {
    fn make(from: &mut impl Source<S>) -> Self {
        WithBiasArgs {
            product: ArgList::make(from),
            bias: ArgList::make(from),
        }
    }

    fn each(&self, to: &mut impl Sink<S>) {
        self.product.each(to);
        self.bias.each(to);
    }
}

/// A kernel that can have a bias.
pub trait BiasedProduct: KernelDef + Copy {
    /// Returns the number of rows, which is the length of the bias.
    fn rows(a: &Self::Args<Shape>) -> u32;

    /// Emits [`KernelDef::program`], with a bias or without one.
    fn program_biased<'k>(
        &self,
        k: Builder<'k>,
        a: Self::Args<Dev<'k>>,
        bias: Option<Ptr<'k, f32, Fresh>>,
    );

    /// Computes [`KernelDef::reference`], with a bias or without one.
    fn reference_biased(&self, a: Self::Args<Cpu<'_>>, bias: Option<&[f32]>);
}

impl<K: BiasedProduct> KernelDef for WithBias<K> {
    type Args<S: Side> = WithBiasArgs<K, S>;

    fn name(&self) -> String {
        format!("{}_bias", self.0.name())
    }

    fn block(&self) -> u32 {
        self.0.block()
    }

    fn blocks_per_sm(&self) -> Option<u32> {
        self.0.blocks_per_sm()
    }

    fn grid(&self, a: &Self::Args<Shape>) -> Result<Grid, ShapeError> {
        // The error of the inner contract must name this kernel.
        let named = |e: ShapeError| ShapeError {
            kernel: KernelDef::name(self),
            ..e
        };
        let grid = self.0.grid(&a.product).map_err(named)?;
        self.length("bias", a.bias.bias, "rows", &[K::rows(&a.product)])?;
        Ok(grid)
    }

    fn program<'k>(&self, k: Builder<'k>, a: Self::Args<Dev<'k>>) {
        self.0
            .program_biased(k, a.product, Some(a.bias.bias.fresh()));
    }

    fn reference(&self, a: Self::Args<Cpu<'_>>) {
        self.0.reference_biased(a.product, Some(a.bias.bias));
    }
}

/// Returns the bias of row `i`, or 0 without a bias.
pub(super) fn exact(bias: Option<&[f32]>, i: usize) -> f64 {
    bias.map_or(0.0, |bias| bias[i].into())
}

/// Returns the kernel's cases, each with a bias. `rows` returns the number of rows of a case from its
/// arguments.
pub(super) fn cases<K: Variant>(
    kernel: &K,
    seed: u64,
    rows: impl Fn(&[CpuArg]) -> u32,
) -> Vec<Case> {
    let mut random = Random(seed ^ 0xb1a5);
    let with = |mut case: Case| {
        // The bias must be as large as the sums, or an error in it would not be seen.
        let bias = random.units(rows(&case.args) as usize);
        let bias = bias.into_iter().map(|b| 16.0 * b).collect();
        case.args.push(CpuArg::F32(bias));
        case
    };
    kernel.cases(seed).into_iter().map(with).collect()
}
