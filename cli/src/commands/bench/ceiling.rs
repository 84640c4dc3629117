//! The read ceiling: the best rate at which this card's memory is read here and now.
//!
//! One buffer, many times larger than any cache, is read whole by each variant of the kernel in several grids; the
//! fastest reading counts. It holds random numbers, because memory is read faster when they are all zero.

use std::time::Duration;

use serde::Serialize;
use warpwright_driver::sys::CUdevice_attribute;
use warpwright_driver::{Buffer, Context, Error, Event, Kernel, Stream};
use warpwright_engine::load_read;
use warpwright_kernels::read::ReadArgs;
use warpwright_kernels::{Random, Read};

use crate::device;

/// What was read how fast.
#[derive(Serialize, Clone)]
pub(crate) struct Ceiling {
    pub(crate) gb_per_s: f64,
    pub(crate) bytes: usize,
    pub(crate) kernel: String,
    pub(crate) blocks: u32,
}

/// Bytes to read where there is room: enough that start and end of a kernel do not count.
const BYTES: usize = 8 << 30;

/// The emulator reads some megabytes a second.
const EMULATOR_BYTES: usize = 4 << 20;

/// Blocks for each multiprocessor: as many as are resident, and more, which evens out their ends.
const BLOCKS: [u32; 3] = [4, 8, 32];

const READINGS: usize = 5;

pub(crate) fn measure(context: &Context) -> Result<Ceiling, Error> {
    let stream = Stream::new(context)?;
    let x = numbers(&stream, bytes(context)?)?;
    let processors = context.device().attribute(CUdevice_attribute::MULTIPROCESSOR_COUNT)? as u32;
    let mut best: Option<Ceiling> = None;
    for read in Read::ALL {
        let kernel = load_read(context, read)?;
        for blocks in BLOCKS.map(|blocks| blocks * processors) {
            let time = fastest(&stream, &kernel, &x, blocks)?;
            let bytes = x.region().bytes();
            let gb_per_s = bytes as f64 / time.as_secs_f64() / 1e9;
            if best.as_ref().is_none_or(|best| best.gb_per_s < gb_per_s) {
                best = Some(Ceiling { gb_per_s, bytes, kernel: kernel.function().name().into(), blocks });
            }
        }
    }
    Ok(best.expect("there are variants"))
}

/// A power of two, of which at least two fit.
fn bytes(context: &Context) -> Result<usize, Error> {
    let (free, _) = context.memory()?;
    let most = if device::is_emulator(context) { EMULATOR_BYTES } else { BYTES };
    Ok(most.min(1 << (free / 2).max(1 << 20).ilog2()))
}

/// So many bytes of random numbers: a few from the host, the rest copies.
fn numbers(stream: &Stream, bytes: usize) -> Result<Buffer<f32>, Error> {
    let len = bytes / 4;
    let x = Buffer::uninit(stream.context(), len)?.labelled("read");
    let mut done = len.min(1 << 18);
    stream.write(&x.view_range(0..done), &Random(1).units(done))?;
    while done < len {
        stream.copy(&x.view_range(0..done), &x.view_range(done..2 * done))?;
        done *= 2;
    }
    Ok(x)
}

fn fastest(stream: &Stream, kernel: &Kernel<Read>, x: &Buffer<f32>, blocks: u32) -> Result<Duration, Error> {
    let y = Buffer::uninit(stream.context(), blocks as usize)?;
    let (start, end) = (Event::new(stream.context())?, Event::new(stream.context())?);
    let mut fastest = Duration::MAX;
    for _ in 0..READINGS {
        start.record(stream)?;
        stream.launch(kernel, ReadArgs { x, y: &y, n: x.len() as u32 })?;
        end.record(stream)?;
        end.synchronize()?;
        fastest = fastest.min(end.since(&start)?);
    }
    Ok(fastest)
}
