//! Times matmuls of many tokens on a GPU. Prints microseconds, TFLOPS, and the bytes of weights per
//! second.
//!
//! Each figure is the best of five launches of a graph, each after a pause. The kernels in a graph
//! go through so many copies of the weights that none is in the L2 cache.
//!
//! Each argument is a list with a key, for example `tokens=16,64 width=16,64 split=1,4`. All keys
//! are in `KEYS`. `kernel=wgmma,sync` also times `MatmulSync`. Forms, splits and overlap apply to
//! `Matmul` only, and row blocks of a warp to `MatmulSync` only. Each kernel ignores widths that it
//! does not support. All results are compared with the first.

mod timing;

use std::collections::BTreeMap;
use std::process::ExitCode;

use ptx_gen::KernelDef;
use timing::Failure;
use warpwright_driver::graph::Recorder;
use warpwright_driver::launch::Host;
use warpwright_driver::memory::{Buffer, f16};
use warpwright_driver::stream::Queue;
use warpwright_driver::{Context, Driver};
use warpwright_kernels::format::Format;
use warpwright_kernels::format::tile::{self, RowOrder};
use warpwright_kernels::matmul::{AppendArgs, Epilogue, Matmul, MatmulArgs, MatmulSync, SmShare};
use warpwright_kernels::{Overlap, Random};

fn main() -> ExitCode {
    timing::end(run())
}

/// Bytes of weights that no cache holds.
const COLD: usize = 256 << 20;
/// Tokens that buffers have room for are a multiple of this, which is one of every width.
const ROOM: u32 = 768;
/// Parts of jobs, in sums.
const PARTIALS: usize = 1 << 24;
/// The largest difference between two orders of summation, relative to the largest sum.
const BOUND: f32 = 1e-4;

/// The keys of the arguments and their default values.
const KEYS: [(&str, &str); 10] = [
    ("kernel", "wgmma"),
    ("format", "Q4_K"),
    (
        "shape",
        "6144x4096,4096x4096,28672x4096,4096x14336,17920x1536,1536x8960",
    ),
    ("tokens", "512,2048"),
    ("width", "128,256"),
    ("tail", "0"),
    ("form", "whole"),
    ("split", "1"),
    ("overlap", "no"),
    ("row_blocks", "1,2"),
];

/// A product, and how its figures are named.
#[derive(Clone, Copy)]
enum Timed {
    Wgmma(Matmul),
    Sync(MatmulSync),
}

impl Timed {
    fn width(self) -> u32 {
        match self {
            Timed::Wgmma(kernel) => kernel.tokens,
            Timed::Sync(kernel) => kernel.tokens,
        }
    }

    /// The form, the split or the tail, and the overlap; of a product of warps, its row blocks.
    fn options(self) -> [String; 3] {
        match self {
            Timed::Wgmma(Matmul {
                form,
                split,
                tail,
                overlap,
                ..
            }) => {
                let overlap = if overlap.waits() { "yes" } else { "no" };
                let parts = if tail > 0 {
                    format!("t{tail}")
                } else {
                    split.to_string()
                };
                [format!("{form:?}").to_lowercase(), parts, overlap.into()]
            }
            Timed::Sync(kernel) => [
                format!("sync{}", kernel.row_blocks),
                "1".into(),
                "no".into(),
            ],
        }
    }
}

fn run() -> Result<(), Failure> {
    let mut lists: BTreeMap<&str, String> = KEYS.map(|(key, list)| (key, list.to_owned())).into();
    for arg in std::env::args().skip(1) {
        let (key, list) = arg.split_once('=').ok_or("an argument is NAME=LIST")?;
        *lists.get_mut(key).ok_or_else(|| format!("no list {key}"))? = list.to_owned();
    }

    let context = Context::new(&Driver::load()?.device(0)?)?;
    println!(
        "{:<8} {:>6} {:>6} {:>6} {:>5} {:>5} {:>5} {:>7} {:>8} {:>7} {:>7}",
        "format",
        "rows",
        "n",
        "tokens",
        "width",
        "form",
        "split",
        "overlap",
        "us",
        "TFLOPS",
        "GB/s"
    );
    for format in lists["format"].split(',') {
        let named = |f: &Format| f.name() == format;
        let format = Format::ALL
            .into_iter()
            .find(named)
            .ok_or_else(|| format!("no format {format}"))?;
        for shape in lists["shape"].split(',') {
            let (rows, n) = shape.split_once('x').ok_or("a shape is ROWSxN")?;
            let product = Product::new(
                &context,
                format,
                rows.parse()?,
                n.parse()?,
                &lists["tokens"],
            )?;
            product.all(&lists)?;
        }
    }

    Ok(())
}

fn numbers(list: &str) -> Result<Vec<u32>, Failure> {
    Ok(list.split(',').map(str::parse).collect::<Result<_, _>>()?)
}

/// A matrix, and the activations by which it is multiplied.
struct Product<'a> {
    context: &'a Context,
    format: Format,
    rows: u32,
    n: u32,
    capacity: u32,
    weights: Vec<Buffer<u8>>,
    x: Buffer<f16>,
    unit: Buffer<f32>,
    x_scale: Buffer<f32>,
    none: Buffer<f32>,
    none16: Buffer<f16>,
    none32: Buffer<u32>,
    tickets: Buffer<u32>,
    partials: Buffer<f32>,
    y: Buffer<f32>,
}

impl<'a> Product<'a> {
    fn new(
        context: &'a Context,
        format: Format,
        rows: u32,
        n: u32,
        tokens: &str,
    ) -> Result<Product<'a>, Failure> {
        let size = format.tile().ok_or("no tiles")?;
        let tiles = (rows / 16 * (n / size.columns)) as usize;
        let copies = (COLD / (tiles * size.bytes as usize)).clamp(2, 24);
        let some = tile::random(format, 512, 0.05, &mut Random(1));
        let bytes: Vec<u8> = some
            .iter()
            .copied()
            .cycle()
            .take(tiles * size.bytes as usize)
            .collect();
        let most = numbers(tokens)?.into_iter().max().unwrap_or(1);
        let capacity = most.next_multiple_of(ROOM);
        let x: Vec<_> = Random(2)
            .units(65521)
            .into_iter()
            .map(f16::from_f32)
            .collect();
        let x: Vec<_> = x
            .iter()
            .copied()
            .cycle()
            .take((capacity * n) as usize)
            .collect();
        Ok(Product {
            context,
            format,
            rows,
            n,
            capacity,
            weights: (0..copies)
                .map(|_| Buffer::from_slice(context, &bytes))
                .collect::<Result<_, _>>()?,
            x: Buffer::from_slice(context, &x)?,
            unit: Buffer::from_slice(context, &vec![1.0f32; rows as usize])?,
            x_scale: Buffer::from_slice(context, &vec![1.0f32; capacity as usize])?,
            none: Buffer::zeroed(context, 0)?,
            none16: Buffer::zeroed(context, 0)?,
            none32: Buffer::zeroed(context, 0)?,
            tickets: Buffer::zeroed(context, (rows / 16 * capacity / 8) as usize)?,
            partials: Buffer::zeroed(context, PARTIALS)?,
            y: Buffer::zeroed(context, (capacity * rows) as usize)?,
        })
    }

    /// Each combination of the lists.
    fn all(&self, lists: &BTreeMap<&str, String>) -> Result<(), Failure> {
        let mut kernels = vec![];
        for kernel in lists["kernel"].split(',') {
            kernels.extend(match kernel {
                "wgmma" => self.warpgroups(lists)?,
                "sync" => self.warps(lists)?,
                _ => return Err(format!("no kernel {kernel}").into()),
            });
        }

        for tokens in numbers(&lists["tokens"])? {
            let mut wanted = None;
            kernels
                .iter()
                .try_for_each(|&kernel| self.one(kernel, tokens, &mut wanted))?;
        }

        Ok(())
    }

    fn warpgroups(&self, lists: &BTreeMap<&str, String>) -> Result<Vec<Timed>, Failure> {
        let mut kernels = vec![];
        for width in numbers(&lists["width"])? {
            for form in lists["form"].split(',') {
                for overlap in lists["overlap"].split(',') {
                    let matmul = self.matmul(width, form, overlap)?;
                    let splits = numbers(&lists["split"])?
                        .into_iter()
                        .map(|split| Matmul { split, ..matmul });
                    let tails = numbers(&lists["tail"])?
                        .into_iter()
                        .filter(|&tail| tail > 0 && tail < width);
                    let tails = tails.map(|tail| Matmul { tail, ..matmul });
                    kernels.extend(splits.chain(tails).map(Timed::Wgmma));
                }
            }
        }
        Ok(kernels)
    }

    fn warps(&self, lists: &BTreeMap<&str, String>) -> Result<Vec<Timed>, Failure> {
        let (widths, row_blocks) = (numbers(&lists["width"])?, numbers(&lists["row_blocks"])?);
        let (format, epilogue, rows) = (self.format, Epilogue::Store, RowOrder::PLAIN);
        let of = |tokens| {
            row_blocks.iter().map(move |&row_blocks| MatmulSync {
                format,
                epilogue,
                rows,
                tokens,
                row_blocks,
            })
        };
        let all = widths.into_iter().flat_map(of);
        Ok(all.filter(MatmulSync::fits).map(Timed::Sync).collect())
    }

    fn matmul(&self, width: u32, form: &str, overlap: &str) -> Result<Matmul, Failure> {
        let form = match form {
            "whole" => SmShare::Whole,
            "half" => SmShare::Half,
            "tall" => SmShare::Tall,
            _ => return Err(format!("no form {form}").into()),
        };
        let matmul = Matmul::new(self.format, Epilogue::Store, RowOrder::PLAIN, width);
        let overlap = if overlap == "yes" {
            Overlap::Early
        } else {
            Overlap::No
        };
        Ok(Matmul {
            form,
            overlap,
            ..matmul
        })
    }

    /// Prints the figures of a kernel, and compares its results with the first kernel.
    fn one(
        &self,
        kernel: Timed,
        tokens: u32,
        wanted: &mut Option<Vec<f32>>,
    ) -> Result<(), Failure> {
        let sms = self.context.device().properties().multiprocessors;
        let time = match kernel {
            Timed::Wgmma(kernel) if kernel.overlap.waits() => self.time(
                kernel,
                Recorder::pipeline(self.context)?,
                sms * kernel.form.resident(),
                tokens,
            ),
            Timed::Wgmma(kernel) => self.time(
                kernel,
                Recorder::new(self.context)?,
                sms * kernel.form.resident(),
                tokens,
            ),
            // A block for each job.
            Timed::Sync(kernel) => self.time(kernel, Recorder::new(self.context)?, 1 << 16, tokens),
        };
        let [form, split, overlap] = kernel.options();
        let us = match time {
            Ok(us) => us,
            Err(e) => {
                println!(
                    "{tokens} tokens, width {}, {form}, split {split}, overlap {overlap}: {e}",
                    kernel.width()
                );
                return Ok(());
            }
        };
        let found = self.y.to_vec()?[..(tokens * self.rows) as usize].to_vec();
        let wanted = wanted.get_or_insert_with(|| found.clone());
        let largest = wanted
            .iter()
            .fold(0.0f32, |largest, y| largest.max(y.abs()));
        let error = wanted
            .iter()
            .zip(&found)
            .fold(0.0f32, |error, (a, b)| error.max((a - b).abs()));
        let (rows, n) = (f64::from(self.rows), f64::from(self.n));
        let bytes = rows * n * f64::from(self.format.bits()) / 8.0;
        println!(
            "{:<8} {:>6} {:>6} {tokens:>6} {:>5} {form:>5} {split:>5} {overlap:>7} {us:>8.2} {:>7.0} {:>7.0}",
            self.format.name(),
            self.rows,
            self.n,
            kernel.width(),
            2.0 * rows * n * f64::from(tokens) / us * 1e-6,
            bytes / us * 1e-3
        );

        // Not a number fails too.
        if error <= BOUND * largest {
            Ok(())
        } else {
            Err(format!("{error} off, of {largest}").into())
        }
    }

    /// Microseconds of a launch.
    fn time<K>(
        &self,
        kernel: K,
        recorder: Recorder,
        blocks: u32,
        tokens: u32,
    ) -> Result<f64, Failure>
    where
        K: for<'b> KernelDef<Args<Host<'b>> = MatmulArgs<Host<'b>>>,
    {
        let kernel = timing::load(self.context, kernel)?;
        kernel.function().prefer_shared()?;
        let copies = self.weights.len();
        let flops = 2.0 * f64::from(self.rows) * f64::from(self.n) * f64::from(tokens);
        let launches = copies.max((4e-3 / (flops / 6e14)) as usize).min(200);
        timing::microseconds(recorder, launches, |recorder, launch| {
            let w = &self.weights[launch % copies];
            recorder.launch(
                &kernel,
                MatmulArgs::<Host> {
                    w,
                    ..self.args(tokens, blocks)
                },
            )
        })
    }

    fn args(&self, tokens: u32, blocks: u32) -> MatmulArgs<Host<'_>> {
        MatmulArgs {
            w: &self.weights[0],
            unit: &self.unit,
            x: &self.x,
            x_scale: &self.x_scale,
            squares: &self.none,
            y: &self.y,
            gated: &self.none16,
            gated_scale: &self.none,
            bound: 1.0,
            rows: self.rows,
            n: self.n,
            y_rows: self.rows,
            y_first: 0,
            tokens_given: tokens,
            capacity: self.capacity,
            blocks,
            partials: &self.partials,
            tickets: &self.tickets,
            append: AppendArgs {
                bias: &self.none,
                angles: &self.none,
                state: &self.none32,
                pages: &self.none32,
                q: &self.none16,
                k_cache: &self.none16,
                v_cache: &self.none16,
                heads: 0,
                kv_heads: 0,
                cache_pages: 0,
                sequences: 0,
                max_pages: 0,
                angle_row: 0,
                angle_first: 0,
                scale: 0.0,
            },
        }
    }
}
