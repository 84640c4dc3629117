//! Copies of boxes of tensors to shared memory (manual, "cp.async.bulk.tensor"). Elements outside
//! of the tensor are zero.
//!
//! A box is written like other bulk copies: some time slices later, all at once, and by its
//! mbarrier. A multicast copy is written to each of its blocks separately, at the same offset, and
//! counts at the mbarrier at the same offset.

use std::rc::Rc;

use crate::machine::async_copy::{copy, tensor_map_update};
use crate::machine::lane_mask::lanes;
use crate::machine::memory::load_store::Addresses;
use crate::machine::memory::{global, load_store};
use crate::machine::scheduler::warp::Warp;
use crate::machine::scheduler::worker::{Checked, Worker};
use crate::machine::sync::{cluster, mbarrier};
use crate::module::address_space::{PARAM_WINDOW, WINDOW};
use crate::module::code::asynchronous::{TensorCopy, TensorPlace};
use crate::module::code::{InstructionSpace, MemoryScope};
use crate::sanitize::race::launch_accesses::MemoryOperation;
use crate::{Class, Fault, TensorMap};

/// A box of a tensor.
#[derive(Debug)]
pub(crate) struct TensorBox {
    pub(crate) map: TensorMap,
    pub(crate) place: Vec<i32>,
}

/// Returns the swizzled position of a byte in shared memory (PTX ISA, "Swizzling Modes").
pub(crate) fn swizzled(address: u64, swizzle: u32) -> u64 {
    match swizzle {
        32 | 64 | 128 => address ^ (address >> 3 & u64::from(swizzle - 16)),
        _ => address,
    }
}

/// Returns the box that a lane names, which is written or only read.
pub(crate) fn tensor_box(
    block: &Worker<'_, '_>,
    w: &Warp,
    lane: usize,
    t: &TensorPlace,
    changes: bool,
) -> Checked<TensorBox> {
    let address = w
        .regs
        .get::<u64>(t.map, 1 << lane)
        .map_err(|u| block.undefined(w, u))?[lane];
    let mut place = Vec::new();
    for slot in &t.place {
        place.push(mbarrier::words(block, w, 1 << lane, *slot)?[lane] as i32);
    }
    let map = tensor_map(block, w, lane, address)?;
    check_place(block, w, lane, changes, &map, &place)?;
    let wrong = match map.dims.len() {
        n if n != place.len() => {
            format!(
                "{} coordinates for a tensor map of {n} dimensions",
                place.len()
            )
        }
        _ if map.swizzle != 0 && map.row_bytes() != map.swizzle => {
            format!(
                "unsupported in ptx-emu: rows of {} bytes, swizzled in {}",
                map.row_bytes(),
                map.swizzle
            )
        }
        _ => return Ok(TensorBox { map, place }),
    };
    Err(block.fault(w, 1 << lane, Class::Descriptor, wrong))
}

/// Checks the position of a box, as an H200 does.
///
/// The innermost coordinate must be a multiple of 16 bytes, and a box that is stored must not
/// begin before the tensor. An H200 reports anything else as an illegal instruction.
fn check_place(
    block: &Worker<'_, '_>,
    w: &Warp,
    lane: usize,
    changes: bool,
    map: &TensorMap,
    place: &[i32],
) -> Checked<()> {
    let inner = i64::from(place.first().copied().unwrap_or(0)) * i64::from(map.element);
    if inner % 16 != 0 {
        let what =
            format!("a box that begins {inner} bytes into its row, which is not a multiple of 16");
        return Err(block.fault(w, 1 << lane, Class::Misaligned, what));
    }
    if changes && place.iter().any(|at| *at < 0) {
        let what = format!(
            "a box is stored to {place:?}, which is before the tensor; only loads may begin there"
        );
        return Err(block.fault(w, 1 << lane, Class::OutOfBounds, what));
    }
    Ok(())
}

/// Returns the tensor map at a generic address, in the parameters or in global memory.
fn tensor_map(block: &Worker<'_, '_>, w: &Warp, lane: usize, address: u64) -> Checked<TensorMap> {
    let mut bytes = [0; 128];
    let offset = address.wrapping_sub(PARAM_WINDOW);
    if !address.is_multiple_of(64) && offset >= WINDOW
        || !offset.is_multiple_of(64) && offset < WINDOW
    {
        let what = format!("a tensor map at 0x{address:x}, which is not a multiple of 64");
        return Err(block.fault(w, 1 << lane, Class::Misaligned, what));
    }
    if block.changed_maps.contains(&address) {
        return Err(tensor_map_update::unfenced_map(block, w, lane, address));
    }
    if offset < WINDOW {
        let from = block
            .grid
            .launch
            .params
            .get(offset as usize..offset as usize + 128);
        bytes.copy_from_slice(from.ok_or_else(|| no_map(block, w, lane, address))?);
    } else {
        let a = global::lane_allocation(block, w, lane, address, 128)?;
        global::check_lane(block, w, lane, a, address, 128)?;
        a.read(address - a.base, &mut bytes);
    }
    match TensorMap::wrong(&bytes) {
        Some(wrong) => {
            let what = format!("the tensor map at 0x{address:x} has {wrong}");
            Err(block.fault(w, 1 << lane, Class::Descriptor, what))
        }
        None => TensorMap::decode(&bytes).ok_or_else(|| no_map(block, w, lane, address)),
    }
}

pub(crate) fn no_map(block: &Worker<'_, '_>, w: &Warp, lane: usize, address: u64) -> Box<Fault> {
    let what = format!("the 128 bytes at 0x{address:x} are not a tensor map");
    let mut fault = block.fault(w, 1 << lane, Class::Descriptor, what);
    fault.instead =
        "encode it with cuTensorMapEncodeTiled, and pass it by value as a .param of 128 bytes";
    fault
}

/// Executes `cp.async.bulk.tensor` to shared memory.
pub(crate) fn load_tensor(
    block: &mut Worker<'_, '_>,
    w: &mut Warp,
    mask: u32,
    t: &TensorCopy,
) -> Checked<()> {
    let mut to = [0; 32];
    let mut barrier = [0; 32];
    load_store::lane_addresses(block, w, mask, &t.shared, &mut to)?;
    let Some(at) = &t.barrier else { return Ok(()) };
    load_store::lane_addresses(block, w, mask, at, &mut barrier)?;
    load_store::check_alignment(block, w, mask, &to, 128)?;
    let blocks = t
        .blocks
        .map(|slot| mbarrier::words(block, w, mask, slot))
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
    block: &mut Worker<'_, '_>,
    w: &Warp,
    mask: u32,
    at: &TensorPlace,
) -> Checked<()> {
    lanes(mask).try_for_each(|lane| {
        let boxed = tensor_box(block, w, lane, at, false)?;
        let mut rows = boxed.map.rows(&boxed.place).into_iter().flatten();
        rows.try_for_each(|row| {
            global::lane_allocation(block, w, lane, row.address, row.bytes).map(drop)
        })
    })
}

/// Returns the ranks of the blocks that a mask names.
pub(crate) fn named_blocks(
    block: &Worker<'_, '_>,
    w: &Warp,
    lane: usize,
    mask: u32,
) -> Checked<Vec<Option<u32>>> {
    let blocks = block.blocks.len() as u32;
    if mask != 0 && mask >> blocks == 0 {
        return Ok((0..blocks)
            .filter(|r| mask >> r & 1 != 0)
            .map(Some)
            .collect());
    }
    let what = format!("a copy to the blocks 0b{mask:b} of a cluster of {blocks}");
    Err(block.fault(w, 1 << lane, Class::OutOfBounds, what))
}

/// Returns the position of an address in the arena, in the block of a rank or in the block that
/// it names.
pub(crate) fn in_block(
    block: &Worker<'_, '_>,
    w: &Warp,
    address: u64,
    rank: Option<u32>,
) -> Checked<u64> {
    let mut all: Addresses = [address; 32];
    cluster::place_all(block, w, 1, InstructionSpace::Cluster, &mut all)?;
    let place = all[0];
    Ok(match rank {
        Some(rank) if block.blocks.len() > 1 => block.shared.place(block.shared.local(place), rank),
        _ => place,
    })
}

/// Checks and records the bytes that a copy of a box reads.
fn check_box(block: &mut Worker<'_, '_>, w: &Warp, lane: usize, boxed: &TensorBox) -> Checked<()> {
    for row in boxed.map.rows(&boxed.place).into_iter().flatten() {
        let a = global::lane_allocation(block, w, lane, row.address, row.bytes)?;
        global::check_lane(block, w, lane, a, row.address, row.bytes)?;
        record_range(
            block,
            w,
            lane,
            MemoryOperation::Read,
            row.address,
            row.bytes,
        )?;
    }
    Ok(())
}

/// Records an access of a traced launch to bytes that were checked.
pub(crate) fn record_range(
    block: &mut Worker<'_, '_>,
    w: &Warp,
    lane: usize,
    operation: MemoryOperation,
    address: u64,
    bytes: u32,
) -> Checked<()> {
    if block.recorder.is_none() {
        return Ok(());
    }
    let mut at = 0;
    while at < bytes {
        let here = address + u64::from(at);
        let part = (bytes - at).min(16 - (here % 16) as u32);
        // Pieces of a size that divides their address.
        let part = part
            .min(1 << here.trailing_zeros().min(4))
            .next_power_of_two();
        let part = if at + part > bytes { 1 } else { part };
        global::record(
            block,
            w,
            1 << lane,
            (operation, MemoryScope::Device, None),
            None,
            &[here; 32],
            part,
        )?;
        at += part;
    }
    Ok(())
}

/// Returns the words of a box in their layout in shared memory.
pub(crate) fn box_words(block: &Worker<'_, '_>, boxed: &TensorBox, to: u64) -> Vec<u32> {
    let map = &boxed.map;
    let mut plain = vec![0u8; map.box_bytes() as usize];
    for (i, row) in map.rows(&boxed.place).into_iter().enumerate() {
        let Some(row) = row else {
            continue;
        };
        let at = i * map.row_bytes() as usize + row.before as usize;
        if let Some(a) = block.grid.table.find(row.address) {
            a.read(
                row.address - a.base,
                &mut plain[at..at + row.bytes as usize],
            );
        }
    }
    let mut words = vec![0; plain.len() / 4];
    for (i, unit) in plain.as_chunks::<16>().0.iter().enumerate() {
        let at = (swizzled(to + 16 * i as u64, map.swizzle) - to) as usize / 4;
        for (to, word) in words[at..at + 4].iter_mut().zip(unit.as_chunks::<4>().0) {
            *to = u32::from_le_bytes(*word);
        }
    }
    words
}
