//! A graph by hand with a fork and a join, replayed, changed in one argument, and replayed again.

use linked::{Kernels, blocks, check};
use warpwright_driver::{Buffer, Context, Driver, Error, Graph, Stream};

/// Elements: not a multiple of the block, so that the kernels' bounds count.
const N: u32 = 1000;

fn main() -> Result<(), Error> {
    let driver = Driver::load()?;
    let device = driver.device(0)?;
    println!("{} on {device}", driver.origin());
    let context = Context::new(&device)?;
    let Kernels { scale, sum, .. } = Kernels::load(&context)?;

    let numbers: Vec<f32> = (0..N).map(|i| i as f32).collect();
    let a = Buffer::from_slice(&context, &numbers)?.labelled("a");
    let zeroed = |name| Buffer::<f32>::zeroed(&context, N as usize).map(|b| b.labelled(name));
    let (b, c, d) = (zeroed("b")?, zeroed("c")?, zeroed("d")?);

    // a -> b and a -> c side by side, then b + c -> d.
    let mut graph = Graph::new(&context)?;
    let start = graph.empty(&[])?;
    let left = graph.add(&[start], scale.with(blocks(N), &a, &b, N, 2.0)?)?;
    let right = graph.add(&[start], scale.with(blocks(N), &a, &c, N, 3.0)?)?;
    graph.add(&[left, right], sum.with(blocks(N), &b, &c, &d, N)?)?;
    println!("{}", graph.dot());
    assert!(graph.races().is_empty(), "an edge is missing");

    let stream = Stream::new(&context)?;
    let mut exec = graph.instantiate()?;
    exec.launch(&stream)?;
    check("d = 2a + 3a", &stream.read(&d)?, 5.0);

    exec.set_launch(left, scale.with(blocks(N), &a, &b, N, 10.0)?)?;
    exec.launch(&stream)?;
    check("d = 10a + 3a", &stream.read(&d)?, 13.0);
    Ok(())
}
