//! Argument lists within argument lists reach the kernel, the contract and the error messages as
//! one flat list.

use ptx_gen::*;
use warpwright_driver::launch::{Host, HostArg, Kernel};
use warpwright_driver::memory::Buffer;
use warpwright_driver::stream::Stream;
use warpwright_driver::{Context, Driver, Error};

use crate::emulator::alone;

args! {
    /// Elements and a factor.
    pub struct RangeArgs {
        /// `[n]`
        x: In<f32>,
        /// Elements.
        n: u32,
        /// The factor.
        factor: f32,
    }
}
args! {
    /// `y = x * factor + add`
    pub struct ScaleArgs {
        /// What is added.
        add: f32,
        /// What is multiplied.
        range: RangeArgs,
        /// `[n]`
        y: Out<f32>,
    }
}

struct Scale;

impl KernelDef for Scale {
    type Args<S: Side> = ScaleArgs<S>;

    fn name(&self) -> String {
        "scale".into()
    }

    fn block(&self) -> u32 {
        64
    }

    fn grid(&self, a: &ScaleArgs<Shape>) -> Result<Grid, ShapeError> {
        let RangeArgs { x, n, .. } = a.range;
        self.require(x == n as usize && a.y == x, || {
            format!("x and y must hold n = {n} elements")
        })?;
        Ok(Grid::line(n.div_ceil(64)))
    }

    fn program<'k>(&self, k: Builder<'k>, a: ScaleArgs<Dev<'k>>) {
        let i = k.ctaid() * 64 + k.tid();
        let RangeArgs { x, n, factor } = a.range;
        k.when(i.lt(n), || a.y.at(i).st(x.at(i).ld().fma(factor, a.add)));
    }

    fn reference(&self, a: ScaleArgs<Cpu<'_>>) {
        a.y.iter_mut()
            .zip(a.range.x)
            .for_each(|(y, x)| *y = x * a.range.factor + a.add);
    }
}

/// A context of the emulator, the kernel, `x` counting up and `y` of noughts.
fn bench() -> (Context, Kernel<Scale>, [Buffer<f32>; 2]) {
    let driver = Driver::from_library(warpwright_cuda_emu::library()).unwrap();
    let context = Context::new(&driver.device(0).unwrap()).unwrap();
    let numbers: Vec<f32> = (0..100u8).map(f32::from).collect();
    let x = Buffer::from_slice(&context, &numbers)
        .unwrap()
        .labelled("x");
    let y = Buffer::zeroed(&context, 100).unwrap().labelled("y");

    // SAFETY: the program stays within its range.
    let scale = unsafe { Kernel::load(&context, Scale) }.unwrap();
    (context, scale, [x, y])
}

fn args([x, y]: &[Buffer<f32>; 2], n: u32) -> ScaleArgs<Host<'_>> {
    ScaleArgs {
        add: 0.5,
        range: RangeArgs { x, n, factor: 2.0 },
        y,
    }
}

#[test]
fn the_arguments_of_a_group_are_packed_where_it_stands() {
    let _alone = alone();
    let (context, scale, buffers) = bench();
    let launch = scale.with(args(&buffers, 100)).unwrap();
    let scalars: Vec<Option<u64>> = launch
        .args()
        .iter()
        .map(|arg| match arg {
            HostArg::Scalar(_, bits) => Some(*bits),
            _ => None,
        })
        .collect();
    let [add, factor] = [0.5f32, 2.0].map(|v| Some(v.to_bits().into()));
    assert_eq!(scalars, [add, None, Some(100), factor, None]);

    let stream = Stream::new(&context).unwrap();
    stream.launch(&scale, args(&buffers, 100)).unwrap();
    let wanted: Vec<f32> = (0..100u8).map(|i| f32::from(i) * 2.0 + 0.5).collect();
    assert_eq!(stream.read(&buffers[1]).unwrap(), wanted);
}

#[test]
fn an_argument_of_a_group_is_named_as_it_is_declared() {
    let _alone = alone();
    let (_context, scale, [x, y]) = bench();
    let text = |result: Result<(), Error>| result.expect_err("refused").to_string();
    assert_eq!(
        text(scale.with(args(&[x, y], 99)).map(drop)),
        "kernel scale: x and y must hold n = 99 elements"
    );
    let (_context, scale, [x, _]) = bench();
    let same = ScaleArgs::<Host> {
        add: 0.5,
        range: RangeArgs {
            x: &x,
            n: 100,
            factor: 2.0,
        },
        y: &x,
    };
    assert_eq!(
        text(scale.with(same).map(drop)),
        "kernel scale: arguments x and y overlap in x, and y is written"
    );
}
