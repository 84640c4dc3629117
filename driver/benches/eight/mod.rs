//! A kernel with eight arguments, whose launches are timed here and in the comparison with other crates.

use ptx_gen::{Builder, Cpu, Dev, Grid, In, KernelDef, Out, Shape, ShapeError, Side, args};

args! {
    /// Eight arguments, three of them buffers.
    pub struct EightArgs {
        /// `[n]`
        x: In<f32>,
        /// `[n]`
        w: In<f32>,
        /// `[n]`
        y: Out<f32>,
        /// Elements.
        n: u32,
        /// Any number.
        a: u32,
        /// Any number.
        b: u32,
        /// Any number.
        c: f32,
        /// Any number.
        d: f32,
    }
}

/// `y = c x + d w`
pub(crate) struct Eight;

impl KernelDef for Eight {
    type Args<S: Side> = EightArgs<S>;

    fn name(&self) -> String {
        "eight".into()
    }

    fn block(&self) -> u32 {
        128
    }

    fn grid(&self, a: &EightArgs<Shape>) -> Result<Grid, ShapeError> {
        Ok(Grid::line(a.n.div_ceil(128)))
    }

    fn program<'k>(&self, k: Builder<'k>, a: EightArgs<Dev<'k>>) {
        let at = k.tid() + a.a + a.b;
        k.when(at.lt(a.n), || {
            a.y.at(at).st(a.x.at(at).ld() * a.c + a.w.at(at).ld() * a.d)
        });
    }

    fn reference(&self, _: EightArgs<Cpu<'_>>) {}
}
