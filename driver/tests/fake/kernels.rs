//! Small kernels for the tests.

#![allow(dead_code, unreachable_pub)]

use ptx_gen::*;

args! {
    /// `y = x + add`
    pub struct AddArgs {
        /// `[n]`
        x: In<f32>,
        /// `[n]`
        y: Out<f32>,
        n: u32,
        add: f32,
    }
}

/// Adds a number to each element.
pub struct Add;

impl KernelDef for Add {
    type Args<S: Side> = AddArgs<S>;

    fn name(&self) -> String {
        "add".into()
    }

    fn block(&self) -> u32 {
        128
    }

    fn grid(&self, a: &AddArgs<Shape>) -> Result<Grid, ShapeError> {
        self.require(a.x == a.n as usize && a.y == a.x, || {
            format!("x and y must hold n = {} elements", a.n)
        })?;
        Ok(Grid::line(a.n.div_ceil(128)))
    }

    fn program<'k>(&self, k: Builder<'k>, a: AddArgs<Dev<'k>>) {
        let i = k.ctaid() * 128 + k.tid();
        k.when(i.lt(a.n), || a.y.at(i).st(a.x.at(i).ld() + a.add));
    }

    fn reference(&self, a: AddArgs<Cpu<'_>>) {
        a.y.iter_mut().zip(a.x).for_each(|(y, x)| *y = x + a.add);
    }
}

args! {
    /// `z = x * y`
    pub struct MulArgs {
        /// `[n]`
        x: In<f32>,
        /// `[n]`
        y: In<f32>,
        /// `[n]`
        z: Out<f32>,
        n: u32,
    }
}

/// Multiplies element by element.
pub struct Mul;

impl KernelDef for Mul {
    type Args<S: Side> = MulArgs<S>;

    fn name(&self) -> String {
        "mul".into()
    }

    fn block(&self) -> u32 {
        128
    }

    fn grid(&self, a: &MulArgs<Shape>) -> Result<Grid, ShapeError> {
        self.require(a.x == a.n as usize && a.y == a.x && a.z == a.x, || {
            format!("x, y and z must hold {}", a.n)
        })?;
        Ok(Grid::line(a.n.div_ceil(128)))
    }

    fn program<'k>(&self, k: Builder<'k>, a: MulArgs<Dev<'k>>) {
        let i = k.ctaid() * 128 + k.tid();
        k.when(i.lt(a.n), || a.z.at(i).st(a.x.at(i).ld() * a.y.at(i).ld()));
    }

    fn reference(&self, a: MulArgs<Cpu<'_>>) {
        a.z.iter_mut()
            .zip(a.x.iter().zip(a.y))
            .for_each(|(z, (x, y))| *z = x * y);
    }
}

/// Loads a kernel of these tests.
#[allow(unsafe_code, dead_code)]
pub fn load<K: KernelDef>(
    context: &warpwright_driver::Context,
    kernel: K,
) -> warpwright_driver::launch::Kernel<K> {
    // SAFETY: the kernels stay within their buffers, or are here to be found out by the emulator.
    unsafe { warpwright_driver::launch::Kernel::load(context, kernel) }.unwrap()
}
