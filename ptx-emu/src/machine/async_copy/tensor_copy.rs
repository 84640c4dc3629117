//! Copies of boxes of tensors to shared memory (manual, "cp.async.bulk.tensor"). Elements outside
//! of the tensor are zero.
//!
//! A box is written like other bulk copies: some time slices later, all at once, and by its
//! mbarrier. A multicast copy is written to each of its blocks separately, at the same offset, and
//! counts at the mbarrier at the same offset.

use std::rc::Rc;

use crate::machine::async_copy::copy;
use crate::machine::async_copy::tensor_box::{check_box, in_block, named_blocks, tensor_box};
use crate::machine::memory::global::global_checks;
use crate::machine::memory::lane_access;
use crate::machine::state::block::{Block, Checked};
use crate::machine::state::warp::Warp;
use crate::module::code::asynchronous::{TensorCopy, TensorPlace};
use crate::module::lane_mask::lanes;

/// Executes `cp.async.bulk.tensor` to shared memory.
pub(crate) fn load_tensor(
    block: &mut Block<'_, '_>,
    w: &mut Warp,
    mask: u32,
    t: &TensorCopy,
) -> Checked<()> {
    let mut to = [0; 32];
    let mut barrier = [0; 32];
    lane_access::lane_addresses(block, w, mask, &t.shared, &mut to)?;
    let Some(at) = &t.barrier else { return Ok(()) };
    lane_access::lane_addresses(block, w, mask, at, &mut barrier)?;
    lane_access::check_alignment(block, w, mask, &to, 128)?;
    let blocks = t
        .blocks
        .map(|slot| lane_access::words(block, w, mask, slot))
        .transpose()?;
    for lane in lanes(mask) {
        let boxed = Rc::new(tensor_box(block, w, lane, &t.at, false)?);
        check_box(block, w, lane, &boxed)?;
        let all = match &blocks {
            Some(blocks) => named_blocks(block, w, lane, blocks[lane] & 0xffff)?,
            None => vec![None],
        };
        for rank in all {
            let to = in_block(block, w, to[lane], rank)?;
            let barrier = in_block(block, w, barrier[lane], rank)?;
            copy::issue_box(block, w, lane, (to, barrier), boxed.clone())?;
        }
    }

    Ok(())
}

/// Executes `cp.async.bulk.prefetch.tensor`, which only checks that the tensor exists.
pub(crate) fn prefetch_tensor(
    block: &mut Block<'_, '_>,
    w: &Warp,
    mask: u32,
    at: &TensorPlace,
) -> Checked<()> {
    lanes(mask).try_for_each(|lane| {
        let boxed = tensor_box(block, w, lane, at, false)?;
        let mut rows = boxed.map.rows(&boxed.place).into_iter().flatten();
        rows.try_for_each(|row| {
            global_checks::lane_allocation(block, w, lane, row.address, row.bytes).map(drop)
        })
    })
}
