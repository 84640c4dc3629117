//! Checks features that not every driver and device has, on a GPU. Missing features are reported.

use std::error::Error;
use std::io::{Read, Write};
use std::process::{Command, Stdio};

use linked::{Kernels, blocks, check};
use warpwright_driver::launch::LaunchConfig;
use warpwright_driver::memory::{
    AccessWindow, Boxed, Buffer, GrowableBuffer, MemoryHandle, PhysicalMemory,
};
use warpwright_driver::module::Library;
use warpwright_driver::ordering::{Event, EventHandle};
use warpwright_driver::stream::Stream;
use warpwright_driver::sys::CUresult;
use warpwright_driver::{Context, Driver};

type Checked = Result<(), Box<dyn Error>>;

const N: usize = 1000;

fn main() -> Checked {
    let driver = Driver::load()?;
    let context = Context::new(&driver.device(0)?)?;
    if std::env::args().nth(1).as_deref() == Some("opens") {
        return open(&context);
    }

    println!("{context}, {driver:?}");
    let checks: [(&str, fn(&Context) -> Checked); 6] = [
        ("occupancy", occupancy),
        ("memory that grows", growth),
        ("libraries", libraries),
        ("boxes between devices", boxes),
        ("windows of the cache", windows),
        ("memory of another process", export),
    ];
    checks.into_iter().try_for_each(|(name, check)| {
        println!("{name}:");
        check(&context).or_else(absent)
    })
}

/// Returns the name of a feature that the driver or the device lacks. Any other error ends the
/// program.
fn absent(error: Box<dyn Error>) -> Checked {
    use warpwright_driver::Error::{Driver, Launch, Transfer};
    match error.downcast_ref() {
        Some(Driver(refused)) if refused.code == CUresult::NOT_SUPPORTED => {}
        Some(Launch { .. } | Transfer { .. }) => {}
        _ => return Err(error),
    }
    println!("  not here: {error}");
    Ok(())
}

fn occupancy(context: &Context) -> Checked {
    let kernels = Kernels::load(context)?;
    let scale = kernels.scale.function();
    let suggested = scale.suggested_block(0, 0)?;
    println!("  {suggested:?}");
    assert!(suggested.threads.is_multiple_of(32) && suggested.threads <= scale.max_threads());
    let room = scale.available_shared(2, suggested.threads / 2)?;
    println!(
        "  two blocks of {} threads may have {room} bytes each",
        suggested.threads / 2
    );
    assert!(scale.blocks_per_sm(suggested.threads / 2, room as u32)? >= 2);
    let config = LaunchConfig::line(64, 128);
    println!(
        "  clusters of up to {} blocks",
        scale.largest_cluster(&config)?
    );
    println!(
        "  {} clusters of 8 at a time",
        scale.active_clusters(&config.cluster([8, 1, 1]))?
    );
    scale.allow_large_clusters()?;
    println!(
        "  and when larger ones are allowed, of up to {}",
        scale.largest_cluster(&config)?
    );
    Ok(())
}

fn growth(context: &Context) -> Checked {
    let (kernels, stream) = (Kernels::load(context)?, Stream::new(context)?);
    let page = PhysicalMemory::granularity(context)? / 4;
    let (before, _) = context.memory()?;
    let mut buffer = GrowableBuffer::<f32>::reserve(context, 1 << 34)?;
    buffer.grow(page)?;
    let first = buffer.view();
    stream.fill(&first, 1.0)?;
    buffer.grow(2 * page)?;
    let all = buffer.view();
    assert_eq!(all.address(), first.address());
    stream.fill(&all.view_range(page..2 * page), 2.0)?;

    // The kernel goes over the border.
    let (x, y) = (
        all.view_range(page - N / 2..page + N / 2),
        Buffer::<f32>::zeroed(context, N)?,
    );
    kernels
        .scale
        .launch(&stream, blocks(N as u32), &x, &y, N as u32, 3.0)?;
    let got = stream.read(&y)?;
    assert_eq!(
        (got[0], got[N / 2 - 1], got[N / 2], got[N - 1]),
        (3.0, 3.0, 6.0, 6.0)
    );
    drop((first, all, x));
    buffer.shrink(page)?;
    assert_eq!(buffer.range().mapped(), 4 * page);
    assert_eq!(stream.read(&buffer.view())?, vec![1.0; page]);
    stream.fill(&buffer.view(), 4.0)?;
    drop(buffer);
    stream.synchronize()?;
    context.synchronize()?;
    println!(
        "  free memory {before} before, {} after",
        context.memory()?.0
    );
    Ok(())
}

fn libraries(context: &Context) -> Checked {
    let library = Library::load(context.driver(), include_str!("../kernels.ptx"))?;
    let names: Vec<_> = library
        .kernels()?
        .into_iter()
        .map(|kernel| kernel.name)
        .collect();
    println!("  {names:?}");
    let (stream, kernels) = (
        Stream::new(context)?,
        Kernels::of(&library.in_context(context)?)?,
    );
    drop(library);
    let numbers: Vec<f32> = (0..N).map(|i| i as f32).collect();
    let (x, y) = (
        Buffer::from_slice(context, &numbers)?,
        Buffer::<f32>::zeroed(context, N)?,
    );
    kernels
        .scale
        .launch(&stream, blocks(N as u32), &x, &y, N as u32, 2.0)?;
    drop(kernels);
    check("  scaled", &stream.read(&y)?, 2.0);
    Ok(())
}

fn boxes(context: &Context) -> Checked {
    let devices = context.driver().devices()?;
    let there = Context::new(devices.last().unwrap_or(context.device()))?;
    println!("  from {there}");
    let stream = Stream::new(context)?;
    let numbers: Vec<u64> = (0..24).collect();
    let (from, to) = (
        Buffer::from_slice(&there, &numbers)?,
        Buffer::<u64>::zeroed(context, 8)?,
    );
    let from = Boxed::rows(&from, 4).slices(3).at([2, 1, 0]);
    stream.copy_box_from_peer(from, Boxed::rows(&to, 2).slices(2), [2, 2, 2])?;
    assert_eq!(stream.read(&to)?, [6, 7, 10, 11, 18, 19, 22, 23]);
    println!("  right");
    Ok(())
}

fn windows(context: &Context) -> Checked {
    let (stream, buffer) = (Stream::new(context)?, Buffer::<f32>::zeroed(context, N)?);
    context.set_persisting_cache(1 << 20)?;
    println!("  {} bytes are set aside", context.persisting_cache()?);
    let window = AccessWindow::persisting(&buffer)
        .share(0.5)
        .streaming_misses();
    stream.set_access_window(Some(&window))?;
    assert_eq!(stream.access_window()?, Some(window));
    stream.set_access_window(None)?;
    assert_eq!(stream.access_window()?, None);
    context.reset_persisting_cache()?;
    Ok(())
}

/// Has another process read one buffer and write another; both are small, so that the driver may
/// put them side by side.
fn export(context: &Context) -> Checked {
    let stream = Stream::new(context)?;
    let (x, y) = (
        Buffer::from_slice(context, &[1u32; N])?,
        Buffer::from_slice(context, &[2u32; N])?,
    );
    let filled = Event::shared(context)?;
    stream.fill(&x, 42)?;
    filled.record(&stream)?;

    // SAFETY: both buffers stay until the other process has ended, which is waited for before they
    // are read.
    let (x_handle, y_handle) = unsafe { (x.export()?, y.export()?) };
    let mut other = Command::new(std::env::current_exe()?)
        .arg("opens")
        .stdin(Stdio::piped())
        .spawn()?;
    let mut pipe = other.stdin.take().ok_or("no pipe")?;
    [x_handle.bytes, y_handle.bytes, filled.export()?.bytes]
        .iter()
        .try_for_each(|h| pipe.write_all(h))?;
    drop(pipe);
    assert!(other.wait()?.success(), "the other process failed");
    assert_eq!((x.to_vec()?, y.to_vec()?), (vec![42; N], vec![43; N]));
    println!("  the other process read and wrote it");
    Ok(())
}

/// The other process: reads `x`, adds one, and writes the result to `y`.
fn open(context: &Context) -> Checked {
    let (mut handles, stream) = ([[0; 64]; 3], Stream::new(context)?);
    handles
        .iter_mut()
        .try_for_each(|handle| std::io::stdin().read_exact(handle))?;
    let [x, y, filled] = handles;

    // SAFETY: the handles are of u32, and the process that sent them waits for this one.
    let (x, y, filled) = unsafe {
        let memory = |bytes| Buffer::<u32>::open(context, &MemoryHandle { bytes }, N);
        (
            memory(x)?,
            memory(y)?,
            Event::open(context, &EventHandle { bytes: filled })?,
        )
    };
    stream.wait(&filled)?;
    let found = stream.read(&x)?;
    stream.fill(&y, found[N - 1] + 1)?;
    Ok(stream.synchronize()?)
}
