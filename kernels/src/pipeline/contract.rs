//! The parts of launch contracts that the kernels of the pipeline share.

use super::block_float;
use super::gemv::layout::Segments;
use super::gemv::plan::{self, Plan};
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
    let wrong = |what: String| kernel.require(false, || what);
    kernel.range("the plan's batch", plan.batch, 1, plan::MAX_BATCH)?;
    segments.check(plan, n, layout).or_else(wrong)?;
    let bytes =
        |&(format, count): &(Format, u32)| count as usize * 16 * format.row_bytes(n as usize);
    kernel.exactly("w", w, segments.0.iter().map(bytes).sum())?;
    kernel.length("progress", args.progress, "blocks", &[layout.blocks])?;
    check_timestamps(kernel, plan.profile, layout.blocks, args.timestamps)?;
    Ok(Grid {
        shared: layout.shared,
        ..Grid::line(layout.blocks)
    })
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
