//! The sources of copies.

use crate::fault::Class;
use crate::machine::device::allocation::ShadowedAllocation;
use crate::machine::memory::global::{global_checks, global_record};
use crate::machine::state::block::{Block, Checked};
use crate::machine::state::warp::Warp;
use crate::module::code::operand::MemoryScope;
use crate::sanitize::race::global::launch_accesses::MemoryOperation;

pub(crate) fn check_size(block: &Block<'_, '_>, w: &Warp, lane: usize, bytes: u32) -> Checked<()> {
    if bytes.is_multiple_of(16) {
        return Ok(());
    }
    let what = format!("a bulk copy of {bytes} bytes, which is not a multiple of 16");
    Err(block.fault(w, 1 << lane, Class::Misaligned, what))
}

/// Returns the allocation that a copy reads, which must contain all its bytes.
pub(crate) fn source<'g>(
    block: &Block<'g, '_>,
    w: &Warp,
    lane: usize,
    from: u64,
    bytes: u32,
) -> Checked<&'g ShadowedAllocation> {
    let a = global_checks::lane_allocation(block, w, lane, from, bytes)?;
    global_checks::check_lane(block, w, lane, a, from, bytes)?;
    Ok(a)
}

/// Records the bytes that a copy reads, in a traced launch.
pub(crate) fn record_source(
    block: &mut Block<'_, '_>,
    w: &Warp,
    lane: usize,
    a: &ShadowedAllocation,
    from: u64,
    bytes: u32,
) -> Checked<()> {
    if block.recorder.is_none() {
        return Ok(());
    }
    for at in (0..bytes).step_by(16) {
        let part = (bytes - at).min(16);
        global_record::record(
            block,
            w,
            1 << lane,
            (MemoryOperation::Read, MemoryScope::Device, None),
            Some(a),
            &[from + u64::from(at); 32],
            part,
        )?;
    }
    Ok(())
}
