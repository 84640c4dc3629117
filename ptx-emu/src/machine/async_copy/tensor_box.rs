//! Boxes of tensors: their maps, their words, and the checks of both.

use crate::fault::{Class, Fault};
use crate::machine::memory::global::{global_checks, global_record};
use crate::machine::memory::lane_access;
use crate::machine::memory::shared::cluster_window;
use crate::machine::state::block::{Block, Checked};
use crate::machine::state::pending::tensor_layout::{TensorBox, swizzled};
use crate::machine::state::warp::Warp;
use crate::module::address_space::{Addresses, PARAM_WINDOW, WINDOW};
use crate::module::code::asynchronous::TensorPlace;
use crate::module::code::operand::{InstructionSpace, MemoryScope};
use crate::module::tensor_map::TensorMap;
use crate::sanitize::race::global::launch_accesses::MemoryOperation;

/// Returns the box that a lane names, which is written or only read.
pub(crate) fn tensor_box(
    block: &Block<'_, '_>,
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
        place.push(lane_access::words(block, w, 1 << lane, *slot)?[lane] as i32);
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
    block: &Block<'_, '_>,
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
pub(crate) fn tensor_map(
    block: &Block<'_, '_>,
    w: &Warp,
    lane: usize,
    address: u64,
) -> Checked<TensorMap> {
    let mut bytes = [0; 128];
    let offset = address.wrapping_sub(PARAM_WINDOW);
    if !address.is_multiple_of(64) && offset >= WINDOW
        || !offset.is_multiple_of(64) && offset < WINDOW
    {
        let what = format!("a tensor map at 0x{address:x}, which is not a multiple of 64");
        return Err(block.fault(w, 1 << lane, Class::Misaligned, what));
    }

    if block.pending.changed_maps.contains(&address) {
        return Err(unfenced_map(block, w, lane, address));
    }

    if offset < WINDOW {
        let from = block
            .grid
            .launch
            .params
            .get(offset as usize..offset as usize + 128);
        bytes.copy_from_slice(from.ok_or_else(|| no_map(block, w, lane, address))?);
    } else {
        let a = global_checks::lane_allocation(block, w, lane, address, 128)?;
        global_checks::check_lane(block, w, lane, a, address, 128)?;
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

fn no_map(block: &Block<'_, '_>, w: &Warp, lane: usize, address: u64) -> Box<Fault> {
    let what = format!("the 128 bytes at 0x{address:x} are not a tensor map");
    let mut fault = block.fault(w, 1 << lane, Class::Descriptor, what);
    fault.instead =
        "encode it with cuTensorMapEncodeTiled, and pass it by value as a .param of 128 bytes";
    fault
}

/// Returns the ranks of the blocks that a mask names.
pub(crate) fn named_blocks(
    block: &Block<'_, '_>,
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
    block: &Block<'_, '_>,
    w: &Warp,
    address: u64,
    rank: Option<u32>,
) -> Checked<u64> {
    let mut all: Addresses = [address; 32];
    cluster_window::place_all(block, w, 1, InstructionSpace::Cluster, &mut all)?;
    let place = all[0];
    Ok(match rank {
        Some(rank) if block.blocks.len() > 1 => block.shadow.place(block.shadow.local(place), rank),
        _ => place,
    })
}

/// Checks and records the bytes that a copy of a box reads.
pub(crate) fn check_box(
    block: &mut Block<'_, '_>,
    w: &Warp,
    lane: usize,
    boxed: &TensorBox,
) -> Checked<()> {
    for row in boxed.map.rows(&boxed.place).into_iter().flatten() {
        let a = global_checks::lane_allocation(block, w, lane, row.address, row.bytes)?;
        global_checks::check_lane(block, w, lane, a, row.address, row.bytes)?;
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
    block: &mut Block<'_, '_>,
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
        global_record::record(
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
pub(crate) fn box_words(block: &Block<'_, '_>, boxed: &TensorBox, to: u64) -> Vec<u32> {
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

#[cold]
fn unfenced_map(block: &Block<'_, '_>, w: &Warp, lane: usize, address: u64) -> Box<Fault> {
    let what = format!("a copy may not see that the tensor map at 0x{address:x} was changed");
    let mut fault = block.fault(w, 1 << lane, Class::ProxyFence, what);
    fault.instead = "execute fence.proxy.tensormap::generic.acquire on the map before the copy";
    lane_access::locate(block, &mut fault, address);
    fault
}
