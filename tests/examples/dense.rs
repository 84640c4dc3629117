//! Times matmuls of two 16-bit matrices on a GPU, in the way `benchmarks/cublas.py` times cuBLAS.
//! Prints microseconds and TFLOPS of `Dense` (f16) and of a frozen projection of a training step
//! (bf16).
//!
//! Usage: `dense [TOKENS]`, a list with commas. Each tile is timed alone and with blocks in pairs.
//! Each figure is the best of five launches of a graph, each after a pause. The kernels in a graph
//! go through so many copies of the weights that none is in the L2 cache. The results of all tiles
//! are compared with the first tile.

#![allow(unsafe_code)]

mod timing;

use ptx_gen::{TileElem, TileOf, bf16};
use std::process::ExitCode;
use timing::Failure;
use warpwright_driver::graph::Recorder;
use warpwright_driver::launch::{Host, MapArg};
use warpwright_driver::memory::{Buffer, Element, TensorMapBuilder, View, f16};
use warpwright_driver::stream::Queue;
use warpwright_driver::{Context, Driver, Error};
use warpwright_kernels::matmul::{Dense, DenseArgs};
use warpwright_kernels::train::half::linear::{AheadArgs, LoraLinear, LoraLinearArgs};
use warpwright_kernels::train::products::MatmulLayout;
use warpwright_kernels::{ProductTile, Random};

fn main() -> ExitCode {
    timing::end(run())
}

/// Rows and row lengths of the weights of models of 8B and 1.5B parameters.
const SHAPES: [[u32; 2]; 8] = [
    [6144, 4096],
    [4096, 4096],
    [28672, 4096],
    [4096, 14336],
    [2048, 1536],
    [1536, 1536],
    [17920, 1536],
    [1536, 8960],
];

/// Bytes of weights that no cache holds.
const COLD: usize = 256 << 20;

fn run() -> Result<(), Failure> {
    let tokens = std::env::args().nth(1).unwrap_or_else(|| "512,2048".into());
    let tokens: Vec<u32> = tokens
        .split(',')
        .map(str::parse)
        .collect::<Result<_, _>>()?;
    let context = Context::new(&Driver::load()?.device(0)?)?;
    println!("type       rows      n tokens columns paired       us  TFLOPS");
    for [rows, n] in SHAPES {
        for &tokens in &tokens {
            each(&context, [rows, n, tokens], f16::from_f32, halves)?;
            each(&context, [rows, n, tokens], bf16::from_f32, brains)?;
        }
    }

    Ok(())
}

/// `y = x w^T`.
struct Product<'a, E> {
    context: &'a Context,
    /// Rows of `w`, their length, and rows of `x`.
    shape: [u32; 3],
    x: Buffer<E>,
    w: Vec<Buffer<E>>,
    y: Buffer<E>,
}

/// Microseconds of a launch with this tile.
type Time<E> = fn(&Product<'_, E>, ProductTile) -> Result<f64, Failure>;

fn each<E: Element + TileElem<Memory = E> + PartialEq>(
    context: &Context,
    shape: [u32; 3],
    from: impl Fn(f32) -> E,
    time: Time<E>,
) -> Result<(), Failure> {
    let [rows, n, tokens] = shape.map(|v| v as usize);
    let some: Vec<E> = Random(1).units(65521).into_iter().map(from).collect();
    let of = |len: usize| some.iter().copied().cycle().take(len).collect::<Vec<E>>();
    let copies = (COLD / (2 * rows * n)).clamp(2, 24);
    let w = of(rows * n);
    let mut product = Product {
        context,
        shape,
        x: Buffer::from_slice(context, &of(tokens * n))?,
        w: (0..copies)
            .map(|_| Buffer::from_slice(context, &w))
            .collect::<Result<_, _>>()?,
        y: Buffer::zeroed(context, tokens * rows)?,
    };
    let mut wanted: Option<Vec<E>> = None;
    for (tile, paired) in ProductTile::ALL
        .into_iter()
        .flat_map(|tile| [(tile, false), (tile, true)])
    {
        // A new buffer, so that a tile that is not stored cannot pass with the previous result.
        product.y = Buffer::zeroed(context, tokens * rows)?;
        let us = time(&product, if paired { tile.in_pairs() } else { tile })?;
        let found = product.y.to_vec()?;
        if *wanted.get_or_insert_with(|| found.clone()) != found {
            return Err(format!("{tile:?}, paired {paired}, gives other bits").into());
        }

        let name = std::any::type_name::<E>()
            .rsplit("::")
            .next()
            .unwrap_or_default();
        let (columns, tflops) = (tile.columns(), 2e-6 * (rows * n * tokens) as f64 / us);
        println!(
            "{name:<8} {rows:>6} {n:>6} {tokens:>6} {columns:>7} {paired:>6} {us:>8.2} {tflops:>7.0}"
        );
    }

    Ok(())
}

impl<E: Element + TileElem<Memory = E>> Product<'_, E> {
    fn map(
        &self,
        matrix: &View<E>,
        [rows, columns]: [u32; 2],
        tile: TileOf<E>,
    ) -> Result<MapArg, Error> {
        // SAFETY: the kernel tells the tile.
        unsafe {
            TensorMapBuilder::matrix(matrix, rows as usize, columns as usize)
                .tile(tile)
                .arg()
        }
    }

    /// The maps of `x`, of each copy of `w`, and of `y`.
    #[allow(clippy::type_complexity)]
    fn maps(&self, [x, w, y]: [TileOf<E>; 3]) -> Result<(MapArg, Vec<MapArg>, MapArg), Error> {
        let [rows, n, tokens] = self.shape;
        let of_w = self.w.iter().map(|matrix| self.map(matrix, [rows, n], w));
        Ok((
            self.map(&self.x, [tokens, n], x)?,
            of_w.collect::<Result<_, _>>()?,
            self.map(&self.y, [tokens, rows], y)?,
        ))
    }

    /// Times launches. `launch` records the launch for the copy of the weights with this index.
    fn microseconds(
        &self,
        launch: impl Fn(&mut Recorder, usize) -> Result<(), Error>,
    ) -> Result<f64, Failure> {
        let flops = self.shape.iter().fold(2.0, |all, &v| all * f64::from(v));
        let launches = self.w.len().max((4e-3 / (flops / 6e14)) as usize).min(200);
        let recorder = Recorder::new(self.context)?;
        timing::microseconds(recorder, launches, |recorder, i| {
            launch(recorder, i % self.w.len())
        })
    }
}

fn halves(product: &Product<'_, f16>, tile: ProductTile) -> Result<f64, Failure> {
    let kernel = timing::load(product.context, Dense { tile })?;
    let [n, k, rows] = product.shape;
    let (x, w, y) = product.maps(kernel.def().map_tiles())?;
    let blocks = product.context.device().properties().multiprocessors;
    let args = |i: usize| DenseArgs::<Host> {
        x: &x,
        w: &w[i],
        y: &y,
        rows,
        n,
        k,
        blocks,
    };
    product.microseconds(|recorder, i| recorder.launch(&kernel, args(i)))
}

fn brains(product: &Product<'_, bf16>, tile: ProductTile) -> Result<f64, Failure> {
    let def = LoraLinear {
        form: MatmulLayout::Nt,
        tile,
        bias: false,
        residual: false,
    };
    let kernel = timing::load(product.context, def)?;
    let [columns, depth, rows] = product.shape;
    let tiles = def.map_tiles();
    let (x, w, y) = product.maps([tiles.x, tiles.w, tiles.y])?;

    // Without an adapter and a residual their maps are of anything that is only read.
    let [b, residual] = [(&product.w[0], tiles.b), (&product.x, tiles.y)]
        .map(|(matrix, tile)| product.map(matrix, [1, 8], tile));
    let (b, residual) = (b?, residual?);
    let blocks = product.context.device().properties().multiprocessors;
    let factor = Buffer::from_slice(product.context, &[1.0f32])?;
    let bias = factor.view_range(0..0);
    let no_bytes = Buffer::<u8>::zeroed(product.context, 1)?;
    let (packed, unpacked) = (no_bytes.view_range(0..0), product.y.view_range(0..0));
    let args = |i: usize| LoraLinearArgs::<Host> {
        x: &x,
        w: &w[i],
        u: &x,
        b: &b,
        bias: &bias,
        residual: &residual,
        factor: &factor,
        y: &y,
        rows,
        columns,
        depth,
        rank: 0,
        blocks,
        ahead: AheadArgs {
            packed: &packed,
            absmax: &bias,
            unpacked: &unpacked,
            n: 0,
        },
    };
    product.microseconds(|recorder, i| recorder.launch(&kernel, args(i)))
}
