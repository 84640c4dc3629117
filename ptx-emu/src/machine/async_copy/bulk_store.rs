//! Bulk copies from shared to global memory (manual, "cp.async.bulk", "cp.async.bulk.tensor").
//!
//! A copy reads shared memory and writes global memory some time slices later, chosen by the seed,
//! or when the thread waits for its group. Until the thread has waited, the source must not be
//! written. The read counts as a read by the thread at the wait, and the source must then still
//! have the contents that it had when the copy was issued.

use crate::machine::async_copy::{copy_source, tensor_box};
use crate::machine::device::allocation_words::update;
use crate::machine::memory::global::global_checks;
use crate::machine::memory::lane_access;
use crate::machine::memory::shared::{cluster_window, shared_checks};
use crate::machine::state::block::{Block, Checked};
use crate::machine::state::pending::pending_stores::{BulkStores, PendingStore, Target};
use crate::machine::state::pending::tensor_layout::{TensorBox, swizzled};
use crate::machine::state::warp::Warp;
use crate::module::code::InstructionSpace;
use crate::module::code::asynchronous::{BulkStore, Reduction, TensorCopy};
use crate::module::isa::memory::atomic::tensor_reduction;
use crate::module::lane_mask::lanes;
use crate::sanitize::race::global::launch_accesses::MemoryOperation;
use crate::sanitize::race::last_access::{AccessProperties, LastAccess, Proxy};
use crate::{Class, Fault};

/// Executes `cp.async.bulk` from shared memory.
pub(crate) fn store_bulk(
    block: &mut Block<'_, '_>,
    w: &mut Warp,
    mask: u32,
    b: &BulkStore,
) -> Checked<()> {
    let mut to = [0; 32];
    let mut from = [0; 32];
    lane_access::lane_addresses(block, w, mask, &b.to, &mut to)?;
    cluster_window::shared_addresses(block, w, mask, &b.from, InstructionSpace::Shared, &mut from)?;
    let bytes = lane_access::words(block, w, mask, b.bytes)?;
    lane_access::check_alignment(block, w, mask, &to, 16)?;
    lane_access::check_alignment(block, w, mask, &from, 16)?;
    for l in lanes(mask) {
        copy_source::check_size(block, w, l, bytes[l])?;
        let target = match b.reduction {
            None => {
                check_written(block, w, l, to[l], bytes[l])?;
                Target::Bytes(to[l])
            }
            Some(reduction) => {
                check_reduced(block, w, l, to[l], bytes[l])?;
                Target::Elements(to[l], reduction)
            }
        };
        issue_store(block, w, l, from[l], bytes[l], target)?;
    }

    Ok(())
}

/// Executes `cp.async.bulk.tensor` from shared memory.
pub(crate) fn store_tensor(
    block: &mut Block<'_, '_>,
    w: &mut Warp,
    mask: u32,
    t: &TensorCopy,
) -> Checked<()> {
    let mut from = [0; 32];
    cluster_window::shared_addresses(
        block,
        w,
        mask,
        &t.shared,
        InstructionSpace::Shared,
        &mut from,
    )?;
    lane_access::check_alignment(block, w, mask, &from, 128)?;
    for l in lanes(mask) {
        let boxed = tensor_box::tensor_box(block, w, l, &t.at, true)?;
        let reduction = t
            .reduction
            .map(|op| reduction_of_tensor(block, w, l, op, &boxed))
            .transpose()?;
        for row in boxed.map.rows(&boxed.place).into_iter().flatten() {
            match reduction {
                None => check_written(block, w, l, row.address, row.bytes)?,
                Some(_) => check_reduced(block, w, l, row.address, row.bytes)?,
            }
        }

        let bytes = boxed.map.box_bytes();
        let swizzle = boxed.map.swizzle;
        issue_store(block, w, l, from[l], bytes, Target::Box(boxed, reduction))?;
        check_pattern(block, w, l, from[l], swizzle)?;
    }

    Ok(())
}

/// Returns the reduction of the elements of a tensor, whose map states their type.
fn reduction_of_tensor(
    block: &Block<'_, '_>,
    w: &Warp,
    lane: usize,
    op: &str,
    boxed: &TensorBox,
) -> Checked<Reduction> {
    let map = &boxed.map;
    map.element_type()
        .and_then(|ty| tensor_reduction(op, ty))
        .ok_or_else(|| {
            let what = format!(
                "`{op}` of a tensor of {:?} elements of {} bytes",
                map.kind, map.element
            );
            let mut fault = block.fault(w, 1 << lane, Class::Descriptor, what);
            fault.instead = "encode the map with a type that the reduction takes";
            fault
        })
}

/// Checks and records the bytes that a copy writes.
fn check_written(
    block: &mut Block<'_, '_>,
    w: &Warp,
    lane: usize,
    to: u64,
    bytes: u32,
) -> Checked<()> {
    let a = global_checks::lane_allocation(block, w, lane, to, bytes)?;
    if a.constant {
        return Err(block.fault(
            w,
            1 << lane,
            Class::ReadOnlySpace,
            "a .const variable is written",
        ));
    }
    tensor_box::record_range(block, w, lane, MemoryOperation::Write, to, bytes)
}

/// Checks and records the bytes that a reduction changes.
fn check_reduced(
    block: &mut Block<'_, '_>,
    w: &Warp,
    lane: usize,
    to: u64,
    bytes: u32,
) -> Checked<()> {
    let a = global_checks::lane_allocation(block, w, lane, to, bytes)?;
    global_checks::check_lane(block, w, lane, a, to, bytes)?;
    if a.constant {
        return Err(block.fault(
            w,
            1 << lane,
            Class::ReadOnlySpace,
            "a .const variable is written",
        ));
    }

    tensor_box::record_range(block, w, lane, MemoryOperation::Atomic, to, bytes)
}

/// Checks that memory written by a tensor copy has the same swizzle.
pub(crate) fn check_pattern(
    block: &mut Block<'_, '_>,
    w: &Warp,
    lane: usize,
    place: u64,
    swizzle: u32,
) -> Checked<()> {
    let offset = (place - u64::from(crate::module::address_space::SHARED_BASE)) as usize;
    let name = |bytes: u32| match bytes {
        0 | 16 => "none".to_string(),
        n => format!("{n} bytes"),
    };
    match block
        .shadow
        .pattern(offset)
        .filter(|known| *known != swizzle.max(16))
    {
        None => Ok(()),
        Some(known) => {
            let what = format!(
                "a tile is read with a swizzle of {}, and a tensor map brought it here with one of {}",
                name(swizzle),
                name(known)
            );
            let mut fault = block.fault(w, 1 << lane, Class::Descriptor, what);
            fault.instead = "make the descriptor and the tensor map of one tile";
            block.locate_shared(&mut fault, place);
            Err(fault)
        }
    }
}

/// Returns a number that changes when any of these bytes of shared memory is written.
pub(crate) fn version(block: &Block<'_, '_>, place: u64, bytes: u32) -> u64 {
    block.shadow.version(
        (place - u64::from(crate::module::address_space::SHARED_BASE)) as usize,
        bytes,
    )
}

/// Checks that an asynchronous read of shared memory is allowed now, as a read by this lane.
pub(crate) fn read_beside(
    block: &mut Block<'_, '_>,
    w: &Warp,
    lane: usize,
    pc: u32,
    place: u64,
    bytes: u32,
) -> Checked<()> {
    let access = AccessProperties {
        pc,
        reads: true,
        proxy: Proxy::Async,
        ..AccessProperties::default()
    };
    for at in (0..u64::from(bytes)).step_by(8) {
        let offset = shared_checks::touch(block, w, lane, place + at, 8, access)?;
        if let Some(write) = block.shadow.unproxied(offset, 8, w.index) {
            let what = "an asynchronous read of shared memory that an ordinary store wrote, and no fence orders the two proxies";
            let mut fault = block.fault(w, 1 << lane, Class::ProxyFence, what);
            fault.instead = "execute fence.proxy.async after the store, and a barrier between that and this instruction";
            fault.other = Some(block.earlier(write.pc, write.thread.into(), "wrote it"));
            block.locate_shared(&mut fault, place + at);
            return Err(fault);
        }
    }
    Ok(())
}

/// Returns the fault that a bulk copy may overtake an earlier access of a thread.
#[cold]
pub(crate) fn overtakes(
    block: &Block<'_, '_>,
    w: &Warp,
    lane: usize,
    place: u64,
    (earlier, wrote): (LastAccess, bool),
) -> Box<Fault> {
    let (used, did) = if wrote {
        ("store wrote", "wrote it")
    } else {
        ("load reads", "read it")
    };
    let what = format!(
        "a copy overwrites shared memory that an ordinary {used}, and no fence orders the two proxies: the copy may overtake it"
    );
    let mut fault = block.fault(w, 1 << lane, Class::ProxyFence, what);
    fault.instead = "execute fence.proxy.async after it, and before the arrival or barrier that lets the copy begin";
    fault.other = Some(block.earlier(earlier.pc, earlier.thread.into(), did));
    block.locate_shared(&mut fault, place);
    fault
}

fn issue_store(
    block: &mut Block<'_, '_>,
    w: &Warp,
    lane: usize,
    from: u64,
    bytes: u32,
    target: Target,
) -> Checked<()> {
    read_beside(block, w, lane, w.now.pc, from, bytes)?;
    let version = version(block, from, bytes);
    let pc = w.now.pc;
    let thread = w.index * 32 + lane as u32;
    let due = block
        .pending
        .copies
        .later(block.grid.schedule.seed ^ u64::from(block.blocks[0][0]));
    let group = block.pending.stores.committed(thread);
    let from = from as u32;
    let store = PendingStore {
        pc,
        thread,
        from,
        bytes,
        target,
        group,
        due,
        done: bytes == 0,
        version,
    };
    block.pending.stores.pending.push(store);
    Ok(())
}

/// Writes the bytes of the copies that are due.
pub(crate) fn store_due(block: &mut Block<'_, '_>) {
    let turns = block.pending.copies.turns();
    let mut pending = std::mem::take(&mut block.pending.stores.pending);
    for store in pending.iter_mut().filter(|s| !s.done && s.due <= turns) {
        block.turns.effects += 1;
        perform(block, store);
    }
    block.pending.stores.pending = pending;
}

/// Executes `cp.async.bulk.wait_group`. After `.read`, copies may still be pending to global
/// memory.
pub(crate) fn wait_stores(
    block: &mut Block<'_, '_>,
    w: &Warp,
    mask: u32,
    keep: u32,
    _read: bool,
) -> Checked<()> {
    let waited = |s: &PendingStore, stores: &BulkStores| {
        let own = s.thread / 32 == w.index && mask >> (s.thread % 32) & 1 != 0;
        own && s.group + keep < stores.committed(s.thread)
    };
    let (done, left): (Vec<_>, Vec<_>) = std::mem::take(&mut block.pending.stores.pending)
        .into_iter()
        .partition(|s| waited(s, &block.pending.stores));
    block.pending.stores.pending = left;
    for mut store in done {
        let lane = store.thread as usize % 32;
        let from = u64::from(store.from);
        if version(block, from, store.bytes) != store.version {
            return Err(written_meanwhile(block, w, lane, store.pc, from));
        }
        read_beside(block, w, lane, store.pc, from, store.bytes)?;
        if !store.done {
            perform(block, &mut store);
        }
    }

    Ok(())
}

/// Returns the fault that the source of an asynchronous read was written.
pub(crate) fn written_meanwhile(
    block: &Block<'_, '_>,
    w: &Warp,
    lane: usize,
    pc: u32,
    place: u64,
) -> Box<Fault> {
    let what = "shared memory was written while this was reading it asynchronously";
    let mut fault = block.fault(w, 1 << lane, Class::AsyncCopy, what);
    fault.place = Some(block.place(pc));
    fault.instead = "wait for it before the memory is written again";
    block.locate_shared(&mut fault, place);
    fault
}

fn perform(block: &Block<'_, '_>, store: &mut PendingStore) {
    store.done = true;
    let offset =
        |place: u64| (place - u64::from(crate::module::address_space::SHARED_BASE)) as usize;
    let unit = |at: u64| {
        let [low, high] = [0, 8].map(|half| block.shared.read(offset(at + half), 8).to_le_bytes());
        [low, high].concat()
    };
    let write = |address: u64, bytes: &[u8]| {
        if let Some(a) = block.grid.table.find(address) {
            a.write(address - a.base, bytes);
            a.initialise(address - a.base, bytes.len() as u64);
        }
    };
    let from = u64::from(store.from);
    let units = (0..u64::from(store.bytes)).step_by(16);
    match &store.target {
        Target::Bytes(to) => units.for_each(|at| write(to + at, &unit(from + at))),
        Target::Elements(to, reduction) => {
            let Some(a) = block.grid.table.find(*to) else {
                return;
            };
            for at in (0..u64::from(store.bytes)).step_by(reduction.bytes as usize) {
                let copied = block.shared.read(offset(from + at), reduction.bytes);
                update(a, to + at - a.base, reduction.bytes, |old| {
                    (reduction.f)(old, copied, 0)
                });
            }
        }
        Target::Box(boxed, reduction) => {
            let map = &boxed.map;
            let plain: Vec<u8> = units
                .flat_map(|at| unit(swizzled(from + at, map.swizzle)))
                .collect();
            for (i, row) in map.rows(&boxed.place).into_iter().enumerate() {
                let Some(row) = row else {
                    continue;
                };
                let at = i * map.row_bytes() as usize + row.before as usize;
                let part = &plain[at..at + row.bytes as usize];
                match reduction {
                    None => write(row.address, part),
                    Some(reduction) => reduce_row(block, row.address, part, *reduction),
                }
            }
        }
    }
}

/// Updates the elements of a row of a tensor.
fn reduce_row(block: &Block<'_, '_>, address: u64, part: &[u8], reduction: Reduction) {
    let Some(a) = block.grid.table.find(address) else {
        return;
    };
    for (i, element) in part.chunks(reduction.bytes as usize).enumerate() {
        let copied = element
            .iter()
            .rev()
            .fold(0, |bits, byte| bits << 8 | u64::from(*byte));
        let at = address - a.base + i as u64 * u64::from(reduction.bytes);
        update(a, at, reduction.bytes, |old| (reduction.f)(old, copied, 0));
    }
}
