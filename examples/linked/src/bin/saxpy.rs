//! Streams, events and pinned memory: one stream copies one half of the data while the other stream
//! computes on the other half.

use linked::{Kernels, blocks, check};
use warpwright_driver::prelude::*;

/// Elements of a half.
const N: usize = 1000;

fn main() -> Result<(), Error> {
    let driver = Driver::load()?;
    let device = driver.device(0)?;
    println!("{} on {device}", driver.origin());
    let context = Context::new(&device)?;
    let kernels = Kernels::load(&context)?;
    let (copy, compute) = (
        Stream::new(&context)?.labelled("copy"),
        Stream::new(&context)?.labelled("compute"),
    );

    let numbers: Vec<f32> = (0..2 * N).map(|i| i as f32).collect();
    let (from, to) = (
        Pinned::zeroed(&context, 2 * N)?,
        Pinned::<f32>::zeroed(&context, 2 * N)?,
    );
    from.write_slice(0, &numbers);
    let x = Buffer::uninit(&context, 2 * N)?.labelled("x");
    let y = Buffer::from_slice(&context, &numbers)?.labelled("y");

    let (copied, computed) = (Event::new(&context)?, Event::new(&context)?);
    for half in [0..N, N..2 * N] {
        let (x, y) = (x.view_range(half.clone()), y.view_range(half.clone()));
        copy.copy(&from.view_range(half.clone()), &x)?;
        copied.record(&copy)?;
        compute.wait(&copied)?; // without this, the next line is an error that names x and both streams
        kernels
            .saxpy
            .launch(&compute, blocks(N as u32), &x, &y, N as u32, 2.0)?;
        computed.record(&compute)?;
        copy.wait(&computed)?;
        copy.copy(&y, &to.view_range(half))?;
    }

    copy.synchronize()?;
    check("y = y + 2x", &to.to_vec(), 3.0);
    Ok(())
}
