//! Checks the kernel. With `--time` it also measures the kernel, and with `--cublas PATH` it
//! compares the time with cuBLAS.

#![allow(unsafe_code)]

mod cublas;
mod kernel;
mod random;

use std::path::PathBuf;
use std::time::Duration;

use warpwright_driver::prelude::*;

use cublas::Cublas;
use kernel::{Gemm, GemmArgs, W, X, Y};

type Failure = Box<dyn std::error::Error>;

/// Rows of `x`, rows of `w`, and the length of both.
type Shape = [usize; 3];

/// Shapes that end inside of tiles, and one that does not.
const SMALL: [Shape; 3] = [[256, 256, 128], [300, 520, 200], [1, 8, 8]];

/// Rows and row lengths of the weights of a model of 8B parameters, and how many tokens go through
/// at a time.
const WEIGHTS: [[usize; 2]; 4] = [[6144, 4096], [4096, 4096], [28672, 4096], [4096, 14336]];
const TOKENS: [usize; 2] = [2048, 8192];

/// Bytes of weights that no cache holds.
const COLD: usize = 256 << 20;

/// The relative error that rounding the results to f16 explains, and the sums of tensor cores.
const BOUND: f64 = 5e-4;

fn main() -> Result<(), Failure> {
    let (mut timed, mut library) = (false, None);
    let mut words = std::env::args().skip(1);
    while let Some(word) = words.next() {
        match word.as_str() {
            "--time" => timed = true,
            "--cublas" => {
                library = Some(PathBuf::from(words.next().ok_or("--cublas needs a path")?))
            }
            _ => return Err(format!("{word:?} is neither --time nor --cublas PATH").into()),
        }
    }

    let driver = Driver::load()?;
    let device = driver.device(0)?;
    println!("{} on {device}", driver.origin());
    let gpu = Gpu::new(&device)?;
    for shape in SMALL {
        let product = Product::new(&gpu, shape, 1)?;
        product.launch(&gpu)?;
        println!(
            "{}: relative error {:.1e}",
            shown(shape),
            product.error(&gpu, usize::MAX)?
        );
    }

    if timed || library.is_some() {
        let library = library
            .map(|path| Cublas::open(&path, &gpu.context, &gpu.stream))
            .transpose()?;
        table(&gpu, library.as_ref())?;
    }

    Ok(())
}

fn shown([m, n, k]: Shape) -> String {
    format!("{m} x {n} x {k}")
}

struct Gpu {
    context: Context,
    stream: Stream,
    gemm: Kernel<Gemm>,
}

impl Gpu {
    fn new(device: &Device) -> Result<Self, Failure> {
        let context = Context::new(device)?;
        let stream = Stream::new(&context)?;
        let clusters = (device.properties().multiprocessors / 2).max(1);

        // SAFETY: copies stay inside of the tensors of their maps, which are as large as the
        // contract says.
        let gemm = unsafe { Kernel::load(&context, Gemm { clusters }) }?;
        Ok(Self {
            context,
            stream,
            gemm,
        })
    }
}

/// A product of random matrices, with copies of the weights to go through.
struct Product {
    shape: Shape,
    x: Buffer<f16>,
    w: Vec<Buffer<f16>>,
    y: Buffer<f16>,
}

impl Product {
    fn new(gpu: &Gpu, shape: Shape, copies: usize) -> Result<Self, Failure> {
        let ([m, n, k], context) = (shape, &gpu.context);
        let (x, w) = (random::halves(m * k, 1), random::halves(n * k, 2));
        let w = (0..copies)
            .map(|_| Buffer::from_slice(context, &w))
            .collect::<Result<_, _>>()?;
        Ok(Self {
            shape,
            x: Buffer::from_slice(context, &x)?,
            w,
            y: Buffer::zeroed(context, m * n)?,
        })
    }

    /// Hands the kernel and its arguments to `launch`, for this copy of the weights.
    fn with<R>(
        &self,
        copy: usize,
        launch: impl FnOnce(GemmArgs<warpwright_driver::launch::Host<'_>>) -> R,
    ) -> Result<R, Failure> {
        let [m, n, k] = self.shape;
        // The same constants from which the kernel has its copies.
        // SAFETY: the matrices live as long as `self`, whose streams and graphs are done before.
        let [x, w, y] = unsafe {
            [
                TensorMapBuilder::matrix(&self.x, m, k).tile(X).arg()?,
                TensorMapBuilder::matrix(&self.w[copy], n, k)
                    .tile(W)
                    .arg()?,
                TensorMapBuilder::matrix(&self.y, m, n).tile(Y).arg()?,
            ]
        };
        Ok(launch(GemmArgs {
            x: &x,
            w: &w,
            y: &y,
            m: m as u32,
            n: n as u32,
            k: k as u32,
        }))
    }

    fn launch(&self, gpu: &Gpu) -> Result<(), Failure> {
        Ok(self.with(0, |args| gpu.stream.launch(&gpu.gemm, args))??)
    }

    /// Returns the relative error of `y` against sums in `f64`, in the norm of at most `most`
    /// elements.
    fn error(&self, gpu: &Gpu, most: usize) -> Result<f64, Failure> {
        let [_, n, k] = self.shape;
        let read = |view: &View<f16>| gpu.stream.read(view);
        let (x, w, y) = (read(&self.x)?, read(&self.w[0])?, read(&self.y)?);
        let step = y.len().div_ceil(most);
        let (mut error, mut norm) = (0.0, 0.0);

        // Each step also goes on by a column, so that all columns come up.
        for at in (0..y.len()).step_by(step + usize::from(step > 1 && step.is_multiple_of(n))) {
            let (row, column) = (&x[at / n * k..][..k], &w[at % n * k..][..k]);
            let product = |(a, b): (&f16, &f16)| f64::from(a.to_f32()) * f64::from(b.to_f32());
            let sum: f64 = row.iter().zip(column).map(product).sum();
            error += (f64::from(y[at].to_f32()) - sum).powi(2);
            norm += sum.powi(2);
        }

        let relative = (error / norm).sqrt();
        if relative.is_nan() || relative > BOUND {
            return Err(format!(
                "{}: relative error {relative:.1e}, more than {BOUND:.1e}",
                shown(self.shape)
            )
            .into());
        }

        Ok(relative)
    }

    fn flops(&self) -> f64 {
        2.0 * self.shape.iter().map(|v| *v as f64).product::<f64>()
    }
}

/// Times every shape: graphs of launches that go through copies of the weights, in turn with
/// cuBLAS.
fn table(gpu: &Gpu, cublas: Option<&Cublas>) -> Result<(), Failure> {
    println!(
        "{:>22} {:>9} {:>7} {:>10} {:>7} {:>6}",
        "m x n x k", "ours us", "TFLOPS", "cuBLAS us", "TFLOPS", "ratio"
    );
    for m in TOKENS {
        for [n, k] in WEIGHTS {
            let copies = (COLD / (2 * n * k)).clamp(2, 24);
            let product = Product::new(gpu, [m, n, k], copies)?;
            let launches = copies.max((5e-3 / (product.flops() / 7e14)) as usize);
            let mut ours = record(gpu, &product, launches)?;
            let mut theirs = cublas
                .map(|cublas| captured(gpu, cublas, &product, launches))
                .transpose()?;
            let mut best = [f64::MAX; 2];
            for _ in 0..5 {
                best[0] = best[0].min(time(gpu, &mut ours)? / launches as f64);
                if let Some(theirs) = &mut theirs {
                    best[1] = best[1].min(time(gpu, theirs)? / launches as f64);
                }
            }

            // cuBLAS has written `y`, so the kernel must run again before its result is checked.
            product.launch(gpu)?;
            product.error(gpu, 2048)?;
            let [us, tflops] = [
                best.map(|s| s * 1e6),
                best.map(|s| product.flops() / s * 1e-12),
            ];
            print!("{:>22} {:>9.1} {:>7.0}", shown([m, n, k]), us[0], tflops[0]);
            match theirs {
                Some(_) => println!(" {:>10.1} {:>7.0} {:>6.3}", us[1], tflops[1], us[1] / us[0]),
                None => println!(" {:>10} {:>7} {:>6}", "-", "-", "-"),
            }
        }
    }
    Ok(())
}

fn record(gpu: &Gpu, product: &Product, launches: usize) -> Result<GraphExec, Failure> {
    let mut recorder = Recorder::new(&gpu.context)?;
    for i in 0..launches {
        product.with(i % product.w.len(), |args| recorder.launch(&gpu.gemm, args))??;
    }
    Ok(recorder.finish().instantiate()?)
}

/// Captures the launches of cuBLAS.
fn captured(
    gpu: &Gpu,
    cublas: &Cublas,
    product: &Product,
    launches: usize,
) -> Result<GraphExec, Failure> {
    let mut failed = Ok(());
    let graph = capture(&gpu.stream, CaptureMode::Relaxed, |_| {
        failed = (0..launches).try_for_each(|i| {
            cublas.multiply(
                product.shape,
                &product.x,
                &product.w[i % product.w.len()],
                &product.y,
            )
        });
        Ok(())
    });
    failed?;
    Ok(graph?.instantiate()?)
}

/// Seconds of a graph, after a rest: under its power limit a GPU that has just worked is slower.
fn time(gpu: &Gpu, graph: &mut GraphExec) -> Result<f64, Failure> {
    std::thread::sleep(Duration::from_millis(25));
    let (begin, end) = (Event::new(&gpu.context)?, Event::new(&gpu.context)?);
    begin.record(&gpu.stream)?;
    graph.launch(&gpu.stream)?;
    end.record(&gpu.stream)?;
    end.synchronize()?;
    Ok(end.since(&begin)?.as_secs_f64())
}
