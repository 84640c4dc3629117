//! Launches with more arguments than a launch stores inline.

use ptx_gen::*;
use warpwright_driver::graph::Recorder;
use warpwright_driver::launch::{Host, HostArg, Kernel};
use warpwright_driver::memory::Buffer;
use warpwright_driver::stream::Stream;
use warpwright_driver::{Context, Driver, Error};

use crate::emulator::alone;

args! {
    /// Nine buffers and nine numbers.
    pub struct ManyArgs {
        /// `[1]`
        a: In<u32>,
        /// `[1]`
        b: In<u32>,
        /// `[1]`
        c: In<u32>,
        /// `[1]`
        d: In<u32>,
        /// `[1]`
        e: In<u32>,
        /// `[1]`
        f: In<u32>,
        /// `[1]`
        g: In<u32>,
        /// `[1]`
        h: In<u32>,
        /// Any number, and so are those that follow.
        n0: u32,
        /// The second.
        n1: u32,
        /// The third.
        n2: u32,
        /// The fourth.
        n3: u32,
        /// The fifth.
        n4: u32,
        /// The sixth.
        n5: u32,
        /// The seventh.
        n6: u32,
        /// The eighth.
        n7: u32,
        /// The ninth.
        n8: u32,
        /// `[1]`
        y: Out<u32>,
    }
}

/// `y = a n0 + b n1 + .. + h n7 + n8`
struct Many;

impl KernelDef for Many {
    type Args<S: Side> = ManyArgs<S>;

    fn name(&self) -> String {
        "many".into()
    }

    fn block(&self) -> u32 {
        32
    }

    fn grid(&self, a: &ManyArgs<Shape>) -> Result<Grid, ShapeError> {
        self.require(a.h == 1 && a.y == 1 && a.n8 == 9, || {
            "one element each, and the last number is 9".into()
        })?;
        Ok(Grid::line(1))
    }

    fn program<'k>(&self, k: Builder<'k>, a: ManyArgs<Dev<'k>>) {
        let i = k.tid();
        k.when(i.lt(1), || {
            let low = a.a.at(i).ld() * a.n0
                + a.b.at(i).ld() * a.n1
                + a.c.at(i).ld() * a.n2
                + a.d.at(i).ld() * a.n3;
            let high = a.e.at(i).ld() * a.n4
                + a.f.at(i).ld() * a.n5
                + a.g.at(i).ld() * a.n6
                + a.h.at(i).ld() * a.n7;
            a.y.at(i).st(low + high + a.n8);
        });
    }

    fn reference(&self, _: ManyArgs<Cpu<'_>>) {}
}

fn args<'a>(x: &'a [Buffer<u32>], y: &'a Buffer<u32>, n7: u32) -> ManyArgs<Host<'a>> {
    let [a, b, c, d, e, f, g, h] = std::array::from_fn(|i| &*x[i]);
    let [n0, n1, n2, n3, n4, n5, n6, n8] = [1, 2, 3, 4, 5, 6, 7, 9];
    ManyArgs {
        a,
        b,
        c,
        d,
        e,
        f,
        g,
        h,
        n0,
        n1,
        n2,
        n3,
        n4,
        n5,
        n6,
        n7,
        n8,
        y,
    }
}

#[test]
fn every_argument_arrives_however_many_there_are() -> Result<(), Error> {
    let _alone = alone();
    let context = Context::new(&Driver::from_library(warpwright_cuda_emu::library())?.device(0)?)?;
    let stream = Stream::new(&context)?;

    // SAFETY: the program reads and writes one element of each buffer, and the contract refuses
    // empty ones.
    let many = unsafe { Kernel::load(&context, Many) }?;
    let x = (1..=8)
        .map(|i| Buffer::from_slice(&context, &[10 * i]))
        .collect::<Result<Vec<_>, _>>()?;
    let y = Buffer::zeroed(&context, 1)?;
    let sum = |n7: u32| (1..8).map(|i| 10 * i * i).sum::<u32>() + 80 * n7 + 9;

    stream.launch(&many, args(&x, &y, 8))?;
    assert_eq!(stream.read(&y)?, [sum(8)]);
    let launch = many.with(args(&x, &y, 1))?;
    stream.run_launch(&launch)?;
    assert_eq!(stream.read(&y)?, [sum(1)]);
    let numbers = launch
        .args()
        .iter()
        .filter(|arg| matches!(arg, HostArg::Scalar(..)))
        .count();
    assert_eq!((launch.args().len(), numbers), (18, 9));

    let mut recorder = Recorder::new(&context)?;
    let node = recorder.record(launch)?;
    let mut exec = recorder.finish().instantiate()?;
    exec.set_args(node, &many, args(&x, &y, 2))?;
    exec.launch(&stream)?;
    assert_eq!(stream.read(&y)?, [sum(2)]);

    let refused = many
        .with(args(&x, &x[7], 1))
        .map(drop)
        .expect_err("refused")
        .to_string();
    assert!(
        refused.starts_with("kernel many: arguments h and y overlap in "),
        "{refused}"
    );
    Ok(())
}
