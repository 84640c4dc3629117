//! Test cases of kernels over tiles.

use crate::format::Format;
use crate::format::activations::ActivationBytes;
use crate::format::tile::{self, ROWS};
use crate::harness::Case;
use crate::pipeline::{Layout, Plan, Segments};
use crate::shared::Random;
use ptx_gen::CpuArg;

/// The shape of a test matrix, and the number of blocks that share it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct GemvCase {
    pub(crate) rows: u32,
    pub(crate) n: u32,
    pub(crate) blocks: u32,
    /// The number of tokens.
    pub(crate) batch: u32,
    /// The factor of the outliers among the activations.
    pub(crate) outlier: f32,
}

/// The heads of a test case, and the position of its token.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HeadsCase {
    pub(crate) heads: u32,
    pub(crate) kv_heads: u32,
    pub(crate) head_dim: u32,
    /// The number of positions of the cache.
    pub(crate) ctx: u32,
    pub(crate) position: u32,
    pub(crate) blocks: u32,
}

impl HeadsCase {
    /// Returns the case with these fields, in their order.
    pub(crate) fn new(fields: [u32; 6]) -> HeadsCase {
        let [heads, kv_heads, head_dim, ctx, position, blocks] = fields;
        HeadsCase {
            heads,
            kv_heads,
            head_dim,
            ctx,
            position,
            blocks,
        }
    }
}

/// The bytes of shared memory in the cases, for a batch of one and for larger batches. The ring
/// gets only a few stages, so that it wraps around.
const SHARED: [u32; 2] = [115_712, 232_448];

/// The sequence number of the GEMV in the cases.
pub(crate) const SEQUENCE: u32 = 7;

/// Returns shapes with one row block, blocks without work, several row blocks per block, more tiles
/// than stages, and outliers.
///
/// Padded rows have the plan's length, so they have fewer shapes.
pub(crate) fn shapes(format: Format, plan: Plan) -> Vec<GemvCase> {
    let of_tile = tile::of(format).columns;
    let batch = plan.batch;
    let long = if batch == 1 { 40 } else { 20 };
    let shapes = [
        (16, 1, 2, 1.0),
        (48, 5, 2, 1.0),
        (96, 3, 5, 1.0),
        (32, long, 1, 1.0),
        (32, 9, 3, 1e4),
    ]
    .map(|(rows, tiles, blocks, outlier)| GemvCase {
        rows,
        n: padded(format, plan, tiles * of_tile),
        blocks,
        batch,
        outlier,
    });
    let count = if plan.row_len.is_some() {
        3
    } else {
        shapes.len()
    };
    shapes.into_iter().take(count).collect()
}

/// Returns the row length of a case: that of the plan with its padding, or else `n`.
pub(crate) fn padded(format: Format, plan: Plan, n: u32) -> u32 {
    let columns = tile::of(format).columns;
    plan.row_len.map_or(n, |len| len.next_multiple_of(columns))
}

/// Returns the activations without the padding of the plan's rows.
pub(crate) fn unpadded(mut x: Vec<f32>, plan: Plan) -> Vec<f32> {
    if let Some(len) = plan.row_len {
        x.truncate(len as usize);
    }
    x
}

/// Returns the weights of a norm, for rows of `n` weights.
pub(crate) fn gamma(random: &mut Random, plan: Plan, n: u32) -> Vec<f32> {
    let units = random.units(plan.unpadded(n) as usize);
    units.iter().map(|g| 1.0 + g / 4.0).collect()
}

/// Random tiles and activations.
pub(crate) struct Packed {
    pub(crate) tiles: Vec<u8>,
    pub(crate) x: Vec<f32>,
}

impl Packed {
    /// Returns random tiles and activations. The activations have the signs of the first row. The
    /// sum is then about as large as the sum of the magnitudes, to which rounding errors are
    /// relative.
    pub(crate) fn random(format: Format, shape: GemvCase, seed: u64) -> (Random, Packed) {
        let mut random = Random(seed);
        let tile_columns = tile::of(format).columns;
        let count = shape.rows / ROWS * (shape.n / tile_columns);
        let tiles = tile::random(format, count as usize, 1.0, &mut random);
        let weights = tile::dequantize(format, &tiles, shape.n as usize);
        let row = &weights[..shape.n as usize];
        let all = row.iter().cycle().take((shape.batch * shape.n) as usize);
        let mut x: Vec<f32> = all.map(|w| 0.5 * random.unit() + w.signum()).collect();
        for x in x.iter_mut().step_by(97) {
            *x *= shape.outlier;
        }

        (random, Packed { tiles, x })
    }
}

/// Returns the layout of a case. Each group has at most three stages of the ring.
fn layout(segments: &Segments, plan: Plan, shape: GemvCase) -> Layout {
    let shared = SHARED[usize::from(plan.batch > 1)];
    let layout = segments
        .layout(plan, shape.n, shape.blocks, shared)
        .expect("the cases are small");
    Layout {
        stages: layout.stages.min(3 * plan.groups),
        ..layout
    }
}

/// Creates a case from arguments, sizes and the layout.
pub(crate) fn case(
    (plan, segments): (Plan, &Segments),
    shape: GemvCase,
    mut args: Vec<CpuArg>,
    sizes: &[u32],
) -> Case {
    let layout = layout(segments, plan, shape);
    args.extend(sizes.iter().map(|&v| CpuArg::scalar(v)));
    args.extend(
        [
            layout.blocks,
            layout.max_row_blocks,
            layout.stages,
            layout.shared,
        ]
        .map(CpuArg::scalar),
    );

    // The previous GEMV has published its progress long ago. With a single block, it never does.
    let progress = if layout.blocks == 1 { 0 } else { SEQUENCE - 1 };
    args.extend([
        CpuArg::U32(vec![progress; layout.blocks as usize]),
        CpuArg::scalar(SEQUENCE),
    ]);
    args.push(CpuArg::U64(vec![0]));
    let GemvCase {
        rows,
        n,
        blocks,
        outlier,
        ..
    } = shape;
    let outliers = if outlier > 1.0 {
        format!(" outliers={outlier}")
    } else {
        String::new()
    };
    Case {
        label: format!("rows={rows} n={n} blocks={blocks}{outliers}"),
        args,
        bound: bound(plan.bytes),
    }
}

/// Returns the bound of the error. Activations have 15 bits and a sign, relative to the largest of
/// their 32, or eight bits more. Sums round like `f32`.
fn bound(bytes: ActivationBytes) -> f64 {
    match bytes {
        ActivationBytes::Two => 3e-4,
        ActivationBytes::Three => 5e-7,
    }
}
