//! The ceilings: the best rates at which this card's memory is read, and its tensor cores multiply,
//! here and now.
//!
//! One buffer, many times larger than any cache, is read whole by each variant of the kernel in
//! several grids; the fastest reading counts. It holds random numbers, because memory is read
//! faster when they are all zero.
//!
//! Tensor cores multiply random numbers, too, which costs power, and with it clock rate, that zeros
//! do not. They are the same numbers over and over, for some milliseconds: less power than products
//! of other numbers take for longer.

use std::time::Duration;

use serde::Serialize;
use warpwright_driver::launch::Kernel;
use warpwright_driver::memory::Buffer;
use warpwright_driver::ordering::Event;
use warpwright_driver::stream::Stream;
use warpwright_driver::sys::CUdevice_attribute;
use warpwright_driver::{Context, Error};
use warpwright_engine::{load_multiply, load_read};
use warpwright_kernels::measure::multiply::MultiplyArgs;
use warpwright_kernels::measure::read::ReadArgs;
use warpwright_kernels::{Multiply, Random, Read};

use crate::device;

/// The fastest read of device memory.
#[derive(Serialize, Clone)]
pub(crate) struct BandwidthCeiling {
    pub(crate) gb_per_s: f64,
    pub(crate) bytes: usize,
    pub(crate) kernel: String,
    pub(crate) blocks: u32,
}

/// The fastest matrix product of `f16` values with sums in `f32`.
#[derive(Serialize, Clone)]
pub(crate) struct TensorCeiling {
    pub(crate) tflops: f64,
    pub(crate) kernel: String,
    pub(crate) blocks: u32,
}

/// The rates of both ceilings.
#[derive(Clone, Copy)]
pub(crate) struct Ceilings {
    pub(crate) gb_per_s: f64,
    pub(crate) tflops: Option<f64>,
}

impl Ceilings {
    /// Returns a rate in TFLOPS as a share of the tensor ceiling, if the device has tensor cores.
    pub(crate) fn share_of_tensor(self, tflops: Option<f64>) -> Option<f64> {
        Some(tflops? / self.tflops?)
    }
}

/// The largest number of bytes to read. It makes the start and the end of a kernel negligible.
const BYTES: usize = 8 << 30;

/// The number of bytes to read on the emulator, which reads a few megabytes per second.
const EMULATOR_BYTES: usize = 4 << 20;

/// The numbers of blocks per multiprocessor to try. More blocks than are resident balance the ends
/// of the blocks.
const BLOCKS: [u32; 3] = [4, 8, 32];

const READINGS: usize = 5;

/// How often a block multiplies: some milliseconds.
const TIMES: u32 = 4096;

/// The same on the emulator.
const EMULATOR_TIMES: u32 = 2;

pub(crate) fn measure(context: &Context) -> Result<BandwidthCeiling, Error> {
    let stream = Stream::new(context)?;
    let x = numbers(&stream, bytes(context)?)?;
    let processors = context
        .device()
        .attribute(CUdevice_attribute::MULTIPROCESSOR_COUNT)? as u32;
    let mut best: Option<BandwidthCeiling> = None;
    for read in Read::ALL {
        let kernel = load_read(context, read)?;
        for blocks in BLOCKS.map(|blocks| blocks * processors) {
            let time = fastest(&stream, &kernel, &x, blocks)?;
            let bytes = x.region().bytes();
            let gb_per_s = bytes as f64 / time.as_secs_f64() / 1e9;
            if best.as_ref().is_none_or(|best| best.gb_per_s < gb_per_s) {
                best = Some(BandwidthCeiling {
                    gb_per_s,
                    bytes,
                    kernel: kernel.function().name().into(),
                    blocks,
                });
            }
        }
    }

    Ok(best.expect("there are variants"))
}

/// Returns the number of bytes to read: a power of two that fits into the free memory twice.
fn bytes(context: &Context) -> Result<usize, Error> {
    let (free, _) = context.memory()?;
    let most = if device::is_emulator(context) {
        EMULATOR_BYTES
    } else {
        BYTES
    };
    Ok(most.min(1 << (free / 2).max(1 << 20).ilog2()))
}

/// Returns a buffer of random values. The host generates a few of them, and the rest are copies.
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

fn fastest(
    stream: &Stream,
    kernel: &Kernel<Read>,
    x: &Buffer<f32>,
    blocks: u32,
) -> Result<Duration, Error> {
    let y = Buffer::uninit(stream.context(), blocks as usize)?;
    fastest_of(stream, |stream| {
        stream.launch(
            kernel,
            ReadArgs {
                x,
                y: &y,
                n: x.len() as u32,
            },
        )
    })
}

/// Measures the tensor cores. Returns `None` if prompts and batches do not use them on this device.
pub(crate) fn measure_products(context: &Context) -> Result<Option<TensorCeiling>, Error> {
    let Some(kernel) = load_multiply(context)? else {
        return Ok(None);
    };

    let stream = Stream::new(context)?;
    let def = *kernel.def();
    let mut random = Random(1);
    let mut halves =
        |rows: u32| Buffer::from_slice(context, &random.halves((rows * def.depth()) as usize));
    let w = halves(Multiply::ROWS)?;
    let x = halves(def.tokens())?;
    let blocks = context
        .device()
        .attribute(CUdevice_attribute::MULTIPROCESSOR_COUNT)? as u32;
    let y = Buffer::uninit(context, (blocks * Multiply::THREADS) as usize)?;
    let times = if device::is_emulator(context) {
        EMULATOR_TIMES
    } else {
        TIMES
    };
    let launch = |stream: &Stream| {
        stream.launch(
            &kernel,
            MultiplyArgs {
                w: &w,
                x: &x,
                y: &y,
                times,
            },
        )
    };
    let time = fastest_of(&stream, launch)?;
    let operations = def.operations() as f64 * f64::from(blocks) * f64::from(times);
    let kernel = kernel.function().name().into();
    Ok(Some(TensorCeiling {
        tflops: operations / time.as_secs_f64() / 1e12,
        kernel,
        blocks,
    }))
}

/// Returns the time of the fastest of several launches.
fn fastest_of(
    stream: &Stream,
    launch: impl Fn(&Stream) -> Result<(), Error>,
) -> Result<Duration, Error> {
    let start = Event::new(stream.context())?;
    let end = Event::new(stream.context())?;
    let mut fastest = Duration::MAX;
    for _ in 0..READINGS {
        start.record(stream)?;
        launch(stream)?;
        end.record(stream)?;
        end.synchronize()?;
        fastest = fastest.min(end.since(&start)?);
    }

    Ok(fastest)
}
