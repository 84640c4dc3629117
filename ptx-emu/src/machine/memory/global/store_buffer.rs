//! Models store buffering: a strong store may become visible to other blocks late.
//!
//! A strong store that is not a release may stay in its multiprocessor until its thread fences or
//! releases at a scope that includes other blocks, or until another thread does that is ordered
//! after the store. Until then, each other block that reads the address gets the old value once.
//! Its next read gets the new value, so that loops that poll for it end. After a block has read the
//! new value, all blocks read it.

use crate::Class;
use crate::machine::device::allocation_words::read;
use crate::machine::memory::lane_access;
use crate::machine::memory::lane_access::{extend, put};
use crate::machine::state::block::{Block, Checked};
use crate::machine::state::warp::Warp;
use crate::module::address_space::Addresses;
use crate::module::code::{AccessOrdering, Transfer};
use crate::module::lane_mask::lanes;
use crate::sanitize::race::global::late_stores::{LateStore, ReplacedValue};

/// Records a store of a traced launch that other blocks may see late.
pub(crate) fn store_late(
    block: &mut Block<'_, '_>,
    w: &Warp,
    mask: u32,
    t: &Transfer,
    addresses: &Addresses,
) {
    let bytes = t.width.bytes;
    let strong = t.order.is_strong() && t.order != AccessOrdering::Release;
    let Some(recorder) = &mut block.recorder else {
        return;
    };

    let running = recorder.block();
    let whole = bytes * t.regs.len() as u32;

    // Of 128 bits, both halves arrive at once.
    let stays = strong && (t.regs.len() == 1 || (bytes, whole) == (8, 16));
    if !stays && recorder.late.0.is_empty() {
        return;
    }

    for lane in lanes(mask) {
        let address = addresses[lane];
        recorder.late.forget(address, whole);
        let Some(a) = block.grid.table.reach(address).filter(|_| stays) else {
            continue;
        };

        let offset = address - a.base;
        let known = a.is_initialised(offset, whole.into());
        let parts = (0..t.regs.len() as u64)
            .rev()
            .map(|i| read(a, offset + i * u64::from(bytes), bytes));
        let value = parts.fold(0, |all, part| all << 64 | u128::from(part));
        let before = ReplacedValue {
            value,
            known,
            pc: w.now.pc,
        };
        let thread = (w.index * 32) as u16 + lane as u16;
        let count = block.shadow.clocks.count(w.index as usize);
        recorder.late.0.insert(
            address,
            LateStore {
                bytes: whole,
                before,
                block: running,
                thread,
                count,
                told: Vec::new(),
            },
        );
    }
}

/// Publishes the stores of a lane that executes a fence or release at a scope that includes
/// other blocks.
pub(crate) fn stores_arrive(block: &mut Block<'_, '_>, w: &Warp, mask: u32) {
    let Some(recorder) = &mut block.recorder else {
        return;
    };

    let running = recorder.block();
    let clocks = &block.shadow.clocks;
    for lane in lanes(mask) {
        let own = (w.index * 32) as u16 + lane as u16;
        recorder.late.arrive(running, |thread, count| {
            thread == own || clocks.ordered(thread, count, own)
        });
    }
}

/// Replaces the values of a strong load in a traced launch where a store has not reached the
/// block.
pub(crate) fn load_late(
    block: &mut Block<'_, '_>,
    w: &mut Warp,
    mask: u32,
    t: &Transfer,
    addresses: &Addresses,
) -> Checked<()> {
    let bytes = t.width.bytes * t.regs.len() as u32;
    let Some(recorder) = block.recorder.as_mut().filter(|_| t.order.is_strong()) else {
        return Ok(());
    };

    let running = recorder.block();
    let mut found = [None; 32];
    lanes(mask).for_each(|lane| found[lane] = recorder.late.read(addresses[lane], bytes, running));
    for lane in lanes(mask) {
        let Some(before) = found[lane] else { continue };
        w.effects += 1;
        if !before.known {
            let what = "a byte is uninitialized as far as this block can see: nothing makes the store visible before the load";
            let mut fault = block.fault(w, 1 << lane, Class::UninitialisedGlobal, what);
            fault.instead =
                "put a fence (__threadfence) between the store and the flag that announces it";
            fault.other = Some(crate::OtherPlace {
                place: block.place(before.pc),
                did: "stores it",
                who: "another block".into(),
            });
            lane_access::locate(block, &mut fault, addresses[lane]);
            return Err(fault);
        }

        for (i, to) in t.regs.iter().enumerate() {
            let value = (before.value >> (8 * t.width.bytes as usize * i)) as u64;
            let value = value & u64::MAX >> (64 - 8 * t.width.bytes);
            let Some(to) = to else { continue };
            put(
                w,
                *to,
                1 << lane,
                &[extend(value, t.width.bytes, t.width.signed, to.bits); 32],
            );
        }
    }

    Ok(())
}
