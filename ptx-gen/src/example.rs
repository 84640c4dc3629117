//! A kernel made of a closure, so that the examples of methods need no boilerplate.

use crate::args::{Cpu, Dev, In, InOut, Shape, Side};
use crate::build::Builder;
use crate::check::Errors;
use crate::kernel::{AnyKernel, Grid, KernelDef, ShapeError};
use crate::print::print;
use crate::target::Target;
use crate::ty::f16;

crate::args! {
    /// The arguments of the kernels in examples.
    pub struct ExampleArgs {
        /// `[n]`
        x: InOut<f32>,
        /// `[n]`
        i: InOut<u32>,
        /// `[n]`
        w: In<f32>,
        /// `[n]`
        h: In<f16>,
        /// The number of elements.
        n: u32,
    }
}

struct Example<F>(F);

impl<F> KernelDef for Example<F>
where
    F: for<'k> Fn(Builder<'k>, ExampleArgs<Dev<'k>>) + Sync,
{
    type Args<S: Side> = ExampleArgs<S>;

    fn name(&self) -> String {
        "example".into()
    }

    fn block(&self) -> u32 {
        128
    }

    fn grid(&self, a: &ExampleArgs<Shape>) -> Result<Grid, ShapeError> {
        Ok(Grid::line(a.n.div_ceil(128)))
    }

    fn program<'k>(&self, k: Builder<'k>, a: ExampleArgs<Dev<'k>>) {
        (self.0)(k, a)
    }

    fn reference(&self, _: ExampleArgs<Cpu<'_>>) {}
}

/// Builds a kernel from `program` and prints it for `sm_90a`.
///
/// A block has 128 threads. The arguments are two buffers to read and write, `x` of `f32` and `i` of
/// `u32`, two buffers to read, `w` of `f32` and `h` of `f16`, and the number of elements `n`.
///
/// # Errors
/// Returns the errors that validation finds.
pub fn example<F>(program: F) -> Result<String, Errors>
where
    F: for<'k> Fn(Builder<'k>, ExampleArgs<Dev<'k>>) + Sync,
{
    let program = Example(program).build()?;
    let target = Target::named("sm_90a").expect("the table of targets has it");
    Ok(print(&program, target).expect("no row needs another target than sm_90a"))
}
