//! Cases of kernels over tiles.

use super::tile::{self, ROWS};
use super::{Layout, Plan, Runs};
use crate::case::{Case, Random};
use crate::format::Format;
use ptx_gen::CpuArg;

/// A matrix, and the blocks that share it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shape {
    pub(crate) rows: u32,
    pub(crate) n: u32,
    pub(crate) blocks: u32,
    /// Columns of activations.
    pub(crate) columns: u32,
    /// What some activations are multiplied by.
    pub(crate) outlier: f32,
}

/// Shared memory of the cases, of one column and of several: a ring of a few stages, so that it is filled again and
/// again.
const SHARED: [u32; 2] = [115_712, 232_448];

/// One row block; blocks without any; several row blocks a block; more tiles than the ring has; outliers.
pub(crate) fn shapes(format: Format, columns: u32) -> Vec<Shape> {
    let of_tile = super::product::tile(format).columns;
    let long = if columns == 1 { 40 } else { 20 };
    [(16, 1, 2, 1.0), (48, 5, 2, 1.0), (96, 3, 5, 1.0), (32, long, 1, 1.0), (32, 9, 3, 1e4)]
        .into_iter()
        .map(|(rows, tiles, blocks, outlier)| Shape { rows, n: tiles * of_tile, blocks, columns, outlier })
        .collect()
}

/// Random tiles and activations.
pub(crate) struct Packed {
    pub(crate) tiles: Vec<u8>,
    pub(crate) x: Vec<f32>,
}

impl Packed {
    /// Tiles of a shape, and activations with the signs of the first row, whose sum is about as large as that of the
    /// magnitudes, which is what rounding errors are relative to.
    pub(crate) fn random(format: Format, shape: Shape, seed: u64) -> (Random, Packed) {
        let mut random = Random(seed);
        let columns = super::product::tile(format).columns;
        let count = shape.rows / ROWS * (shape.n / columns);
        let tiles = tile::random(format, count as usize, 1.0, &mut random);
        let weights = tile::dequantize(format, &tiles, shape.n as usize);
        let row = &weights[..shape.n as usize];
        let all = row.iter().cycle().take((shape.columns * shape.n) as usize);
        let mut x: Vec<f32> = all.map(|w| 0.5 * random.unit() + w.signum()).collect();
        x.iter_mut().step_by(97).for_each(|x| *x *= shape.outlier);
        (random, Packed { tiles, x })
    }
}

/// The layout of a case; its ring has at most three turns of the groups.
pub(crate) fn layout(runs: &Runs, plan: Plan, shape: Shape) -> Layout {
    let shared = SHARED[usize::from(plan.columns > 1)];
    let layout = runs.layout(plan, shape.n, shape.blocks, shared).expect("the cases are small");
    Layout { stages: layout.stages.min(3 * plan.groups), ..layout }
}

/// A case: arguments, sizes, then the layout.
pub(crate) fn case(shape: Shape, mut args: Vec<CpuArg>, sizes: &[u32], layout: Layout) -> Case {
    args.extend(sizes.iter().map(|&v| CpuArg::scalar(v)));
    args.extend([layout.blocks, layout.parts, layout.stages, layout.shared].map(CpuArg::scalar));
    // As if the product before were long done; of a single block, as if it were never.
    let asked = if layout.blocks == 1 { 0 } else { 6 };
    args.extend([CpuArg::U32(vec![asked; layout.blocks as usize]), CpuArg::scalar(7)]);
    args.push(CpuArg::U64(vec![0]));
    let Shape { rows, n, blocks, outlier, .. } = shape;
    let outliers = if outlier > 1.0 { format!(" outliers={outlier}") } else { String::new() };
    Case { label: format!("rows={rows} n={n} blocks={blocks}{outliers}"), args, bound: BOUND }
}

/// Activations have 15 bits and a sign within their 32; sums of them, f32's rounding.
const BOUND: f64 = 3e-4;
