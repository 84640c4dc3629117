//! Times products of many tokens on a GPU: microseconds, TFLOPS, and bytes of weights a second, for each form.
//!
//! Each figure is a graph of launches that go through enough copies of the weights to find none in the L2 cache, with a
//! rest before it; the best of five.

#![allow(unsafe_code)]

use std::process::ExitCode;
use std::time::Duration;
use warpwright_driver::{Buffer, Context, Driver, Event, Kernel, Queue, Recorder, Stream};
use warpwright_kernels::Random;
use warpwright_kernels::format::Format;
use warpwright_kernels::format::tile::{self, RowOrder};
use warpwright_kernels::matmul::{Epilogue, Matmul, MatmulArgs};

type Failure = Box<dyn std::error::Error>;

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("error: {e}");
            ExitCode::from(2)
        }
    }
}

/// Bytes of weights that no cache holds.
const COLD: usize = 256 << 20;

fn run() -> Result<(), Failure> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let number =
        |i: usize| args.get(i).map(|list| list.split(',').map(str::parse).collect::<Result<Vec<u32>, _>>());
    let tokens = number(0).transpose()?.unwrap_or(vec![512, 2048]);
    let widths = number(1).transpose()?.unwrap_or(vec![128, 256]);
    let formats = args.get(2).map_or(vec![Format::Q4_K], |list| {
        Format::ALL.into_iter().filter(|f| list.split(',').any(|name| name == f.name())).collect()
    });
    let shapes = [(6144, 4096), (4096, 4096), (28672, 4096), (4096, 14336), (17920, 1536), (1536, 8960)];
    let context = Context::new(&Driver::load()?.device(0)?)?;
    println!(
        "{:<8} {:>6} {:>6} {:>6} {:>5} {:>8} {:>7} {:>7}",
        "format", "rows", "n", "tokens", "width", "us", "TFLOPS", "GB/s"
    );
    for format in formats {
        for (rows, n) in shapes {
            for &m in &tokens {
                for &width in &widths {
                    let us = time(&context, format, [rows, n, m, width])?;
                    let flops = 2.0 * f64::from(rows) * f64::from(n) * f64::from(m);
                    let bytes = f64::from(rows) * f64::from(n) * f64::from(format.bits()) / 8.0;
                    println!(
                        "{:<8} {rows:>6} {n:>6} {m:>6} {width:>5} {us:>8.1} {:>7.0} {:>7.0}",
                        format.name(),
                        flops / us * 1e-6,
                        bytes / us * 1e-3
                    );
                }
            }
        }
    }
    Ok(())
}

fn time(context: &Context, format: Format, [rows, n, m, width]: [u32; 4]) -> Result<f64, Failure> {
    let kernel = Matmul { format, epilogue: Epilogue::Store, rows: RowOrder::PLAIN, tokens: width };
    // SAFETY: the contract checks lengths, and the program stays inside of them.
    let kernel = unsafe { Kernel::load(context, kernel) }?;
    let size = format.tile().ok_or("no tiles")?;
    let tiles = (rows / 16 * (n / size.columns)) as usize;
    let copies = (COLD / (tiles * size.bytes as usize)).clamp(1, 24);
    let some = tile::random(format, 512, 0.05, &mut Random(1));
    let bytes: Vec<u8> = some.iter().copied().cycle().take(tiles * size.bytes as usize).collect();
    let weights = (0..copies).map(|_| Buffer::from_slice(context, &bytes)).collect::<Result<Vec<_>, _>>()?;
    let capacity = m.next_multiple_of(width);
    let x: Vec<_> =
        Random(2).units((1 << 16) as usize).into_iter().map(warpwright_driver::f16::from_f32).collect();
    let x: Vec<_> = x.iter().copied().cycle().take((capacity * n) as usize).collect();
    let x = Buffer::from_slice(context, &x)?;
    let unit = Buffer::from_slice(context, &vec![1.0f32; rows as usize])?;
    let x_scale = Buffer::from_slice(context, &vec![1.0f32; capacity as usize])?;
    let none = Buffer::<f32>::zeroed(context, 0)?;
    let none16 = Buffer::zeroed(context, 0)?;
    let y = Buffer::zeroed(context, (capacity * rows) as usize)?;
    let launches =
        copies.max((4e-3 / (2.0 * f64::from(rows) * f64::from(n) * f64::from(m) / 6e14)) as usize).min(200);
    let mut recorder = Recorder::new(context)?;
    for i in 0..launches {
        recorder.launch(
            &kernel,
            MatmulArgs {
                w: &weights[i % copies],
                unit: &unit,
                x: &x,
                x_scale: &x_scale,
                squares: &none,
                y: &y,
                gated: &none16,
                gated_scale: &none,
                bound: 1.0,
                rows,
                n,
                y_rows: rows,
                y_first: 0,
                tokens_given: m,
                capacity,
                blocks: 132,
            },
        )?;
    }
    let mut exec = recorder.finish().instantiate()?;
    let stream = Stream::new(context)?;
    let mut best = f64::MAX;
    for _ in 0..5 {
        std::thread::sleep(Duration::from_millis(25));
        let (begin, end) = (Event::new(context)?, Event::new(context)?);
        begin.record(&stream)?;
        exec.launch(&stream)?;
        end.record(&stream)?;
        end.synchronize()?;
        let ms = f64::from(end.since(&begin)?.as_secs_f64() as f32) * 1e3;
        best = best.min(ms * 1e3 / launches as f64);
    }
    Ok(best)
}
