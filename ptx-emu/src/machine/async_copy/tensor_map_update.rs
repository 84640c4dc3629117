//! `tensormap.replace` and `tensormap.cp_fenceproxy`: tensor maps that a kernel changes.
//!
//! Copies read a map through a separate proxy. After the block has changed a map in global memory,
//! it must execute `fence.proxy.tensormap::generic.acquire` before a copy uses the map. Maps that
//! other blocks change are not checked.

use crate::Class;
use crate::machine::async_copy::{tensor_box, tensor_copy};
use crate::machine::memory::global::global_checks;
use crate::machine::memory::lane_access;
use crate::machine::memory::shared::{cluster_window, shared_checks};
use crate::machine::state::block::{Block, Checked};
use crate::machine::state::warp::Warp;
use crate::machine::sync::warp_exchange;
use crate::module::address_space::{ResolvedAddress, resolve};
use crate::module::code::asynchronous::{MapChange, OfMap};
use crate::module::code::{Address, InstructionSpace};
use crate::module::lane_mask::lanes;
use crate::module::tensor_map::TensorMap;
use crate::sanitize::race::global::launch_accesses::MemoryOperation;
use crate::sanitize::race::last_access::AccessProperties;

/// The size of a map in bytes.
const BYTES: u32 = 128;

pub(crate) fn operate_on_map(
    block: &mut Block<'_, '_>,
    w: &mut Warp,
    mask: u32,
    op: &OfMap,
) -> Checked<()> {
    match op {
        OfMap::Change(change) => change_map(block, w, mask, change),
        OfMap::Copy(places) => copy_map(block, w, mask, places),
        OfMap::Fence(at) => fence_map(block, w, mask, at),
        OfMap::Prefetch(at) => tensor_copy::prefetch_tensor(block, w, mask, at),
    }
}

fn change_map(block: &mut Block<'_, '_>, w: &mut Warp, mask: u32, c: &MapChange) -> Checked<()> {
    let mut addresses = [0; 32];
    lane_access::lane_addresses(block, w, mask, &c.address, &mut addresses)?;
    check_map_alignment(block, w, mask, &addresses)?;
    let values = lane_access::take(block, w, c.value, mask)?;
    for lane in lanes(mask) {
        let (place, address) = match c.space {
            InstructionSpace::Shared => (ResolvedAddress::Shared, addresses[lane]),
            _ => resolve(addresses[lane]),
        };
        let mut bytes = [0; BYTES as usize];
        match place {
            ResolvedAddress::Shared => {
                let space = if c.space == InstructionSpace::Shared {
                    InstructionSpace::Shared
                } else {
                    InstructionSpace::Cluster
                };
                let mut places = [address; 32];
                cluster_window::place_all(block, w, 1 << lane, space, &mut places)?;
                let access = AccessProperties {
                    pc: w.now.pc,
                    reads: true,
                    writes: true,
                    ..AccessProperties::default()
                };
                shared_map(block, w, lane, places[lane], &mut bytes, access)?;
                replace(block, w, lane, c, values[lane], &mut bytes)?;
                put_shared_map(block, places[lane], &bytes);
            }
            ResolvedAddress::Global => {
                global_map(block, w, lane, address, Some(&mut bytes))?;
                replace(block, w, lane, c, values[lane], &mut bytes)?;
                put_global_map(block, address, &bytes);
            }
            ResolvedAddress::Local | ResolvedAddress::Param => {
                let what = "tensormap.replace of what is neither global nor shared memory";
                return Err(block.fault(w, 1 << lane, Class::ReadOnlySpace, what));
            }
        }
    }

    Ok(())
}

fn replace(
    block: &Block<'_, '_>,
    w: &Warp,
    lane: usize,
    c: &MapChange,
    value: u64,
    bytes: &mut [u8; BYTES as usize],
) -> Checked<()> {
    TensorMap::replace(bytes, c.field, value).map_err(|wrong| {
        block.fault(
            w,
            1 << lane,
            Class::Descriptor,
            format!("tensormap.replace: {wrong}"),
        )
    })
}

/// Executes `tensormap.cp_fenceproxy`. Threads that name the same addresses make one copy.
fn copy_map(
    block: &mut Block<'_, '_>,
    w: &mut Warp,
    mask: u32,
    [to, from]: &[Address; 2],
) -> Checked<()> {
    warp_exchange::check_whole(block, w, mask)?;
    let mut target = [0; 32];
    let mut source = [0; 32];
    lane_access::lane_addresses(block, w, mask, to, &mut target)?;
    lane_access::lane_addresses(block, w, mask, from, &mut source)?;
    cluster_window::place_all(block, w, mask, InstructionSpace::Shared, &mut source)?;
    for addresses in [&target, &source] {
        check_map_alignment(block, w, mask, addresses)?;
    }

    for lane in lanes(mask) {
        let pair = (target[lane], source[lane]);
        if (0..lane).any(|other| (target[other], source[other]) == pair) {
            continue;
        }

        let mut bytes = [0; BYTES as usize];
        let access = AccessProperties {
            pc: w.now.pc,
            reads: true,
            ..AccessProperties::default()
        };
        shared_map(block, w, lane, source[lane], &mut bytes, access)?;
        global_map(block, w, lane, target[lane], None)?;
        put_global_map(block, target[lane], &bytes);
    }

    Ok(())
}

/// Executes `fence.proxy.tensormap::generic.acquire`.
fn fence_map(block: &mut Block<'_, '_>, w: &Warp, mask: u32, at: &Address) -> Checked<()> {
    let mut addresses = [0; 32];
    lane_access::lane_addresses(block, w, mask, at, &mut addresses)?;
    block
        .pending
        .changed_maps
        .retain(|changed| !addresses.contains(changed));
    Ok(())
}

fn check_map_alignment(
    block: &Block<'_, '_>,
    w: &Warp,
    mask: u32,
    addresses: &[u64; 32],
) -> Checked<()> {
    let Some(lane) = lanes(mask).find(|lane| !addresses[*lane].is_multiple_of(64)) else {
        return Ok(());
    };
    let what = format!(
        "a tensor map at 0x{:x}, which is not a multiple of 64",
        addresses[lane]
    );
    Err(block.fault(w, 1 << lane, Class::Misaligned, what))
}

/// Checks a map in shared memory and returns its bytes.
fn shared_map(
    block: &mut Block<'_, '_>,
    w: &Warp,
    lane: usize,
    place: u64,
    bytes: &mut [u8; BYTES as usize],
    access: AccessProperties,
) -> Checked<()> {
    for (i, part) in bytes.as_chunks_mut::<8>().0.iter_mut().enumerate() {
        let offset = shared_checks::touch(block, w, lane, place + 8 * i as u64, 8, access)?;
        *part = block.shared.read(offset, 8).to_le_bytes();
    }
    Ok(())
}

fn put_shared_map(block: &mut Block<'_, '_>, place: u64, bytes: &[u8; BYTES as usize]) {
    let offset = (place - u64::from(crate::module::address_space::SHARED_BASE)) as usize;
    for (i, part) in bytes.as_chunks::<8>().0.iter().enumerate() {
        block
            .shared
            .write(offset + 8 * i, 8, u64::from_le_bytes(*part));
    }
}

/// Checks that a map in global memory may be written and, if its bytes are requested, read.
fn global_map(
    block: &mut Block<'_, '_>,
    w: &Warp,
    lane: usize,
    address: u64,
    bytes: Option<&mut [u8; BYTES as usize]>,
) -> Checked<()> {
    let a = global_checks::lane_allocation(block, w, lane, address, BYTES)?;
    if a.constant {
        return Err(global_checks::read_only(block, w, lane, address));
    }

    if let Some(bytes) = bytes {
        global_checks::check_lane(block, w, lane, a, address, BYTES)?;
        tensor_box::record_range(block, w, lane, MemoryOperation::Read, address, BYTES)?;
        a.read(address - a.base, bytes);
    }

    tensor_box::record_range(block, w, lane, MemoryOperation::Write, address, BYTES)
}

fn put_global_map(block: &mut Block<'_, '_>, address: u64, bytes: &[u8; BYTES as usize]) {
    if let Some(a) = block.grid.table.find(address) {
        a.write(address - a.base, bytes);
        a.initialise(address - a.base, BYTES.into());
    }
    if !block.pending.changed_maps.contains(&address) {
        block.pending.changed_maps.push(address);
    }
}
