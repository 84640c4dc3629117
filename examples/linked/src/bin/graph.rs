//! Builds graphs by hand. One has a fork and a join. It is replayed, changed in one argument and
//! replayed again. The other has memory nodes, and a loop whose end a kernel decides.

use linked::{Kernels, blocks, check};
use warpwright_driver::prelude::*;

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

    let stream = Stream::new(&context)?;
    let mut exec = graph.instantiate()?;
    exec.launch(&stream)?;
    check("d = 2a + 3a", &stream.read(&d)?, 5.0);

    exec.set_launch(left, scale.with(blocks(N), &a, &b, N, 10.0)?)?;
    exec.launch(&stream)?;
    check("d = 10a + 3a", &stream.read(&d)?, 13.0);
    count(&context, &stream, [&a, &d])
}

kernel! {
    /// `left = left - 1`; the loop of the condition goes on while that is not 0.
    struct CountDown = "count_down"(left: &mut [u32], condition: u64);
}

/// `scratch = 2a`, and `scratch = scratch + a` as often as `left` says, in memory that the graph
/// allocates and frees.
fn count(context: &Context, stream: &Stream, [a, d]: [&Buffer<f32>; 2]) -> Result<(), Error> {
    let Kernels { scale, saxpy, .. } = Kernels::load(context)?;
    let module = Module::load(context, include_str!("../loop.ptx"))?;

    // SAFETY: one thread of it reads and writes one word.
    let count_down = unsafe { CountDown::load(&module) }?;
    let left = Buffer::<u32>::zeroed(context, 1)?.labelled("left");

    let mut graph = Graph::new(context)?;
    let (start, scratch) = graph.alloc::<f32>(&[], N as usize)?;
    let doubled = graph.add(&[start], scale.with(blocks(N), a, &scratch, N, 2.0)?)?;
    let condition = graph.condition(Some(1))?;
    let handle = condition.handle();
    let looped = graph.while_loop(&[doubled], condition, |body| {
        let added = body.add(&[], saxpy.with(blocks(N), a, &scratch, N, 1.0)?)?;
        body.add(
            &[added],
            count_down.with(LaunchConfig::line(1, 1), &left, handle)?,
        )
        .map(drop)
    })?;
    let copied = graph.copy(&[looped], &scratch, d)?;
    graph.free(&[copied], &scratch)?;

    let mut exec = graph.instantiate()?;
    for times in [1, 7] {
        stream.write(&left, &[times])?;
        exec.launch(stream)?;
        check(
            &format!("d = 2a and {times} times a"),
            &stream.read(d)?,
            2.0 + times as f32,
        );
    }

    Ok(())
}
