//! The parts of launch contracts that the kernels of the pipeline share.

use super::block_float;
use super::gemv::choose_experts::{MAX_CHOSEN, MAX_EXPERTS};
use super::gemv::layout::Segments;
use super::gemv::plan::{self, Copies, Plan};
use super::gemv::stream::StreamArgs;
use crate::format::Format;
use crate::shared::Contract;
use ptx_gen::{Grid, KernelDef, Shape, ShapeError};

/// Checks the parts of a contract that all GEMVs share: matrix, segments and layout. Returns the
/// grid.
pub(super) fn contract(
    kernel: &impl KernelDef,
    w: usize,
    segments: &Segments,
    plan: Plan,
    n: u32,
    args: &StreamArgs<Shape>,
) -> Result<Grid, ShapeError> {
    let layout = args.layout();
    let bytes =
        |&(format, count): &(Format, u32)| count as usize * 16 * format.row_bytes(n as usize);
    check_stream(kernel, segments, plan, n, args)?;
    kernel.exactly("w", w, segments.0.iter().map(bytes).sum())?;
    Ok(Grid {
        shared: layout.shared,
        ..Grid::line(layout.blocks)
    })
}

/// Checks the parts of a contract that do not depend on the weights: segments, layout, and the
/// buffers that let kernels overlap.
fn check_stream(
    kernel: &impl KernelDef,
    segments: &Segments,
    plan: Plan,
    n: u32,
    args: &StreamArgs<Shape>,
) -> Result<(), ShapeError> {
    let layout = args.layout();
    let wrong = |what: String| kernel.require(false, || what);
    kernel.range("the plan's batch", plan.batch, 1, plan::MAX_BATCH)?;
    segments.check(plan, n, layout).or_else(wrong)?;
    kernel.length("progress", args.progress, "blocks", &[layout.blocks])?;
    check_timestamps(kernel, plan.profile, layout.blocks, args.timestamps)
}

/// The sizes of a mixture of experts, for its contract.
#[derive(Clone, Copy)]
pub(super) struct ExpertSizes {
    /// The number of experts.
    pub(super) count: u32,
    /// The number of chosen experts.
    pub(super) chosen: u32,
    /// The number of row blocks of an expert.
    pub(super) row_blocks: u32,
    /// The row length of an expert.
    pub(super) n: u32,
}

/// Checks the parts of a contract that both GEMVs over chosen experts share. Returns the grid.
/// `segments` and `n` describe the experts of a token as one matrix.
pub(super) fn experts(
    kernel: &impl KernelDef,
    w: usize,
    chosen: usize,
    sizes: ExpertSizes,
    (segments, plan, n): (&Segments, Plan, u32),
    args: &StreamArgs<Shape>,
) -> Result<Grid, ShapeError> {
    let layout = args.layout();
    let format = segments.0[0].0;
    let bulk = plan.batch == 1 && plan.copies == Copies::Bulk && plan.prefetch_limit.is_none();
    kernel.require(bulk, || {
        "the plan must have a batch of 1, bulk copies and no prefetch limit".into()
    })?;
    kernel.range("count", sizes.count, 1, MAX_EXPERTS)?;
    kernel.range("chosen", sizes.chosen, 1, MAX_CHOSEN.min(sizes.count))?;
    check_stream(kernel, segments, plan, n, args)?;

    // The tiles of all experts are counted in 32 bits.
    let columns = format.tile().map_or(1, |tile| tile.columns);
    kernel.multiple("the row length of an expert", sizes.n, columns)?;
    let tiles = u64::from(sizes.count) * u64::from(sizes.row_blocks) * u64::from(sizes.n / columns);
    kernel.require(tiles < 1 << 32, || {
        format!("the experts have {tiles} tiles, must have fewer than 2^32")
    })?;
    let row_blocks = sizes.count as usize * sizes.row_blocks as usize;
    kernel.exactly("w", w, row_blocks * 16 * format.row_bytes(sizes.n as usize))?;
    let factors = [layout.blocks, sizes.chosen];
    kernel.length("experts", chosen, "blocks * chosen", &factors)?;
    Ok(Grid {
        shared: layout.shared,
        ..Grid::line(layout.blocks)
    })
}

/// Checks the lengths of the residual stream and of the weights of the norm, for rows of `n` weights
/// with their padding.
pub(super) fn normed(
    kernel: &impl KernelDef,
    plan: Plan,
    x: usize,
    gamma: usize,
    n: u32,
) -> Result<(), ShapeError> {
    let Some(len) = plan.row_len else {
        batched(kernel, plan.batch, "x", x, "n", &[n])?;
        return kernel.length("gamma", gamma, "n", &[n]);
    };
    kernel.multiple("the plan's row_len", len, block_float::BFP_BLOCK)?;
    kernel.range("the plan's row_len", len, block_float::BFP_BLOCK, n)?;
    kernel.require(plan.batch == 1, || {
        format!(
            "the plan's batch is {}, must be 1 for padded rows",
            plan.batch
        )
    })?;
    kernel.length("x", x, "row_len", &[len])?;
    kernel.length("gamma", gamma, "row_len", &[len])
}

/// Checks that `name` has `batch` times as many elements as the product of `factors`, which
/// `formula` spells.
pub(super) fn batched(
    kernel: &impl KernelDef,
    batch: u32,
    name: &str,
    found: usize,
    formula: &str,
    factors: &[u32],
) -> Result<(), ShapeError> {
    match batch {
        1 => kernel.length(name, found, formula, factors),
        _ => kernel.length(
            name,
            found,
            &format!("batch * {formula}"),
            &[&[batch], factors].concat(),
        ),
    }
}

/// Checks the lengths of a batch in block floating point: the 16-bit integers and the block scales.
pub(super) fn bfp_lengths(
    kernel: &impl KernelDef,
    count: u32,
    name: &str,
    [values, scales]: [usize; 2],
    formula: &str,
    factors: &[u32],
) -> Result<(), ShapeError> {
    batched(kernel, count, name, values, formula, factors)?;
    let [first, rest @ ..] = factors else {
        unreachable!("a formula has factors")
    };

    let factors = [&[first / block_float::BFP_BLOCK], rest].concat();
    batched(
        kernel,
        count,
        &format!("{name}_scale"),
        scales,
        &format!("{formula} / 8"),
        &factors,
    )
}

/// Checks that a kernel that profiles has space for the timestamps of each block.
pub(super) fn check_timestamps(
    kernel: &impl KernelDef,
    profile: bool,
    blocks: u32,
    timestamps: usize,
) -> Result<(), ShapeError> {
    let least = blocks as usize * plan::TIMESTAMPS as usize;
    kernel.require(!profile || timestamps >= least, || {
        format!(
            "timestamps has {timestamps} elements, must have at least blocks * {} = {least}",
            plan::TIMESTAMPS
        )
    })
}
