//! Creates and drops every kind of object many times on a GPU, and fails if memory or file
//! descriptors grow.

use linked::{Kernels, blocks};
use warpwright_driver::memory::MemoryPool;
use warpwright_driver::prelude::*;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let cycles = linked::argument("cycles", 100)?;
    let driver = Driver::load()?;
    let device = driver.device(0)?;
    let context = Context::new(&device)?;
    round(&context)?; // what the driver makes once
    let before = state(&context)?;
    for _ in 0..cycles {
        round(&context)?;
    }

    let after = state(&context)?;
    println!("{cycles} cycles: {before:?} before, {after:?} after");

    // The driver allocates and frees some MiB meanwhile, and the allocator of the host keeps some.
    assert!(
        after.free_mib + 4 >= before.free_mib && after.files <= before.files,
        "something grew"
    );
    assert!(
        after.host_mib <= before.host_mib + 16,
        "memory of the host grew"
    );
    drop(context);
    for _ in 0..20 {
        round(&Context::new(&device)?)?;
    }

    println!("20 contexts: open files {}", open_files());
    Ok(())
}

/// Every sort of object once, with work in flight when it is dropped.
fn round(context: &Context) -> Result<(), Error> {
    let kernels = Kernels::load(context)?;
    let (stream, other) = (Stream::new(context)?, Stream::new(context)?);
    let x = Buffer::from_slice(context, &[1.0f32; 1000])?;
    let y = stream.alloc::<f32>(1000)?;
    let (pinned, event, pool) = (
        Pinned::<f32>::zeroed(context, 1000)?,
        Event::new(context)?,
        MemoryPool::new(context)?,
    );
    let z = stream.alloc_from::<f32>(&pool, 1000)?;
    stream.fill(&y, 2.0)?;
    kernels
        .saxpy
        .launch(&stream, blocks(1000), &x, &y, 1000, 3.0)?;
    let mut graph = Graph::new(context)?;
    let first = graph.add(&[], kernels.scale.with(blocks(1000), &y, &z, 1000, 2.0)?)?;
    let host = graph.host(&[first], || ())?;
    graph.copy(&[host], &z, &pinned)?;
    let mut exec = graph.instantiate()?;
    exec.launch(&stream)?;
    event.record(&stream)?;
    other.wait(&event)?;
    let captured = capture(&other, CaptureMode::ThreadLocal, |queue| {
        use warpwright_driver::stream::Queue;
        queue.copy(&z, &y)
    })?;
    captured.instantiate()?.launch(&other)
}

/// The resources that must not grow when no work is in flight.
#[derive(Debug)]
struct State {
    free_mib: usize,
    host_mib: usize,
    files: usize,
}

fn state(context: &Context) -> Result<State, Error> {
    context.synchronize()?;
    MemoryPool::default_for(context)?.trim(0)?;
    Ok(State {
        free_mib: context.memory()?.0 >> 20,
        host_mib: host_kib() >> 10,
        files: open_files(),
    })
}

/// Memory of this process that is in use, in KiB.
fn host_kib() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    line.and_then(|line| line.trim().trim_end_matches(" kB").parse().ok())
        .unwrap_or(0)
}

fn open_files() -> usize {
    std::fs::read_dir("/proc/self/fd").map_or(0, Iterator::count)
}
