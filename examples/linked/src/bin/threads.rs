//! Runs four threads on four streams of one context. Each replays a separate graph and changes an
//! argument before every launch. `threads 250000` makes 250,000 launches in each thread.

use linked::{Kernels, blocks};
use warpwright_driver::prelude::*;

const N: u32 = 256;
const THREADS: u32 = 4;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let launches = linked::argument("launches", 100)?;
    let driver = Driver::load()?;
    let context = Context::new(&driver.device(0)?)?;
    let kernels = Kernels::load(&context)?;
    let (before, _) = context.memory()?;
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS)
            .map(|_| scope.spawn(|| replay(&context, &kernels, launches)))
            .collect();
        threads
            .into_iter()
            .try_for_each(|thread| thread.join().expect("a thread panicked"))
    })?;
    context.synchronize()?;
    let (after, _) = context.memory()?;
    println!(
        "{THREADS} threads, {launches} launches each: right; free memory {before} before, {after} after"
    );
    Ok(())
}

/// `y = y + factor x` and `z = x + y`, again and again with another factor, checked at every
/// hundredth launch.
fn replay(context: &Context, kernels: &Kernels, launches: u32) -> Result<(), Error> {
    let stream = Stream::new(context)?;
    let x = Buffer::from_slice(context, &vec![1.0f32; N as usize])?;
    let (y, z) = (
        Buffer::zeroed(context, N as usize)?,
        Buffer::<f32>::zeroed(context, N as usize)?,
    );
    let mut graph = Graph::new(context)?;
    let add = graph.add(&[], kernels.saxpy.with(blocks(N), &x, &y, N, 0.0)?)?;
    graph.add(&[add], kernels.sum.with(blocks(N), &x, &y, &z, N)?)?;
    let mut exec = graph.instantiate()?;
    let mut wanted = 0.0;
    for launch in 0..launches {
        let factor = (launch % 3) as f32 - 1.0;
        exec.set_launch(add, kernels.saxpy.with(blocks(N), &x, &y, N, factor)?)?;
        exec.launch(&stream)?;
        wanted += factor;
        if launch % 100 == 99 {
            assert_eq!(
                stream.read(&z)?,
                vec![wanted + 1.0; N as usize],
                "after launch {launch}"
            );
        }
    }

    stream.synchronize()
}
