//! Imports all names of both crates.

use ptx_gen::*;
use warpwright_driver::launch::Geometry;
use warpwright_driver::memory::{Swizzle, TensorMap};
use warpwright_driver::prelude::*;

/// An error of a program that uses both crates.
#[derive(Debug)]
enum MyError {
    Driver(Error),
    File(std::io::Error),
}

impl From<Error> for MyError {
    fn from(e: Error) -> Self {
        MyError::Driver(e)
    }
}

impl From<std::io::Error> for MyError {
    fn from(e: std::io::Error) -> Self {
        MyError::File(e)
    }
}

/// A type whose derived traits come from the standard prelude.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
struct Number(u32);

args! {
    /// The arguments of [`Double`].
    pub struct DoubleArgs {
        /// `[n]`
        x: In<f32>,
        /// `[n]`
        y: Out<f32>,
        n: u32,
    }
}

struct Double;

impl KernelDef for Double {
    type Args<S: Side> = DoubleArgs<S>;
    fn name(&self) -> String {
        "double".into()
    }
    fn block(&self) -> u32 {
        32
    }
    fn grid(&self, a: &DoubleArgs<Shape>) -> Result<Grid, ShapeError> {
        self.require(a.x == a.n as usize && a.y == a.x, || {
            "x and y must hold n elements".into()
        })?;
        Ok(Grid::line(a.n.div_ceil(32)))
    }
    fn program<'k>(&self, k: Builder<'k>, a: DoubleArgs<Dev<'k>>) {
        let i = k.ctaid() * 32 + k.tid();
        k.when(i.lt(a.n), || a.y.at(i).st(2.0 * a.x.at(i).ld()));
    }
    fn reference(&self, a: DoubleArgs<Cpu<'_>>) {
        a.y.iter_mut().zip(a.x).for_each(|(y, x)| *y = 2.0 * x);
    }
}

/// Takes values of types that both crates name alike, or nearly so.
fn roles(
    _: Option<(&Stream, &TensorMap, &Kernel<Double>)>,
    _: Option<(BuildError, Errors, TileOf<f16>, Swizzle, Geometry, Access)>,
) {
}

#[test]
fn all_names_can_be_imported_together() -> Result<(), Box<dyn std::error::Error>> {
    roles(None, None);
    assert_eq!(Number::default(), Number(0));
    let read = || -> Result<String, MyError> { Ok(std::fs::read_to_string("no such file")?) };
    assert!(matches!(read(), Err(MyError::File(e)) if e.kind() == std::io::ErrorKind::NotFound));
    let build = Error::Build {
        kernel: "k".into(),
        text: "no target".into(),
    };
    assert!(matches!(
        MyError::from(build),
        MyError::Driver(Error::Build { .. })
    ));

    let context = Context::new(&Driver::from_library(warpwright_cuda_emu::library())?.device(0)?)?;
    let stream = Stream::new(&context)?;

    // SAFETY: the program stays below `n`, which is the number of elements of both buffers.
    let double = unsafe { Kernel::load(&context, Double) }?;
    let (x, y) = (
        Buffer::from_slice(&context, &[1.0f32, 2.0])?,
        Buffer::zeroed(&context, 2)?,
    );
    stream.launch(&double, DoubleArgs { x: &x, y: &y, n: 2 })?;
    assert_eq!(stream.read(&y)?, [2.0, 4.0]);
    Ok(())
}
