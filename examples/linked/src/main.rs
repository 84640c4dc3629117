//! Links `warpwright-driver` from outside its workspace: PTX of its own, a graph by hand with a fork and a join,
//! replayed, changed in one argument, and replayed again.

use warpwright_driver::{
    Access, Buffer, Context, Driver, Error, Function, Geometry, Graph, HostArg, Kind, Launch, Module, Param,
    ParamKind, Stream, View,
};

/// Elements: not a multiple of the block, so that the kernels' bounds count.
const N: u32 = 1000;
/// Blocks of 128 threads, as the PTX has it.
const GEOMETRY: Geometry = Geometry { grid: [N.div_ceil(128), 1, 1], block: 128, shared: 0 };

fn main() -> Result<(), Error> {
    let driver = Driver::load()?;
    let device = driver.device(0)?;
    let context = Context::new(&device)?;
    println!("{} on {device}", driver.origin());

    let module = Module::load(&context, include_str!("kernels.ptx"))?;
    // SAFETY: these are the parameters in kernels.ptx, and both kernels stay below n elements of each buffer.
    let (scale, sum) = unsafe {
        (
            module.function(
                "scale",
                &[input("x"), output("y"), scalar("n", Kind::U32), scalar("factor", Kind::F32)],
            )?,
            module.function("sum", &[input("x"), input("y"), output("z"), scalar("n", Kind::U32)])?,
        )
    };

    let numbers: Vec<f32> = (0..N).map(|i| i as f32).collect();
    let a = Buffer::from_slice(&context, &numbers)?.labelled("a");
    let [b, c, d] =
        ["b", "c", "d"].map(|name| Buffer::<f32>::zeroed(&context, N as usize).map(|b| b.labelled(name)));
    let (b, c, d) = (b?, c?, d?);

    // a -> b and a -> c side by side, then b + c -> d.
    let mut graph = Graph::new(&context)?;
    let start = graph.empty(&[])?;
    let left = graph.add(&[start], scaled(&scale, &a, &b, 2.0)?)?;
    let right = graph.add(&[start], scaled(&scale, &a, &c, 3.0)?)?;
    graph.add(&[left, right], summed(&sum, &b, &c, &d)?)?;
    println!("{}", graph.dot());
    assert!(graph.races().is_empty(), "an edge is missing");

    let stream = Stream::new(&context)?;
    let mut exec = graph.instantiate()?;
    exec.launch(&stream)?;
    check("d = 2a + 3a", &stream.read(&d)?, 5.0);

    exec.set_launch(left, scaled(&scale, &a, &b, 10.0)?)?;
    exec.launch(&stream)?;
    check("d = 10a + 3a", &stream.read(&d)?, 13.0);
    Ok(())
}

/// `y = x * factor`
fn scaled(scale: &Function, x: &View<f32>, y: &View<f32>, factor: f32) -> Result<Launch, Error> {
    let args = vec![x.into(), y.into(), HostArg::scalar(N), HostArg::scalar(factor)];
    Launch::new(scale, GEOMETRY, args)
}

/// `z = x + y`
fn summed(sum: &Function, x: &View<f32>, y: &View<f32>, z: &View<f32>) -> Result<Launch, Error> {
    Launch::new(sum, GEOMETRY, vec![x.into(), y.into(), z.into(), HostArg::scalar(N)])
}

/// Compares every element with its index times `factor`, exactly: the numbers are small integers.
fn check(what: &str, got: &[f32], factor: f32) {
    for (i, v) in got.iter().enumerate() {
        assert_eq!(*v, i as f32 * factor, "{what}: element {i}");
    }
    println!("{what}: {} elements are right, the last is {}", got.len(), got[got.len() - 1]);
}

fn input(name: &'static str) -> Param {
    Param { name, doc: "", kind: ParamKind::Buffer(Kind::F32, Access::Read) }
}

fn output(name: &'static str) -> Param {
    Param { name, doc: "", kind: ParamKind::Buffer(Kind::F32, Access::Write) }
}

fn scalar(name: &'static str, kind: Kind) -> Param {
    Param { name, doc: "", kind: ParamKind::Scalar(kind) }
}
