//! Decides whether a race is tolerated, and records tolerated races as notes.

use crate::fault::{Class, Fault};
use crate::machine::device::allocation::ShadowedAllocation;
use crate::machine::device::allocation_words::read;
use crate::machine::memory::lane_access;
use crate::machine::memory::shared::shared_checks;
use crate::machine::state::block::{Block, Checked};
use crate::machine::state::warp::Warp;
use crate::module::address_space::SHARED_BASE;
use crate::module::code::operand::Transfer;
use crate::sanitize::race::global::launch_accesses::MemoryOperation;
use crate::sanitize::race::global::launch_recorder::RacingAccess;
use crate::sanitize::race::last_access::AccessProperties;
use crate::sanitize::race::same_address_stores;
use crate::sanitize::race::same_address_stores::ROUNDED;
use crate::sanitize::race::tolerated_races::{is_atomic, is_guess};

const SAME_VALUE: &str = "threads store the same value to one address, in no order";

const GUESS: &str =
    "a loop of compare-and-swap begins with a plain load, which may see any older value";

const RESET: &str = "a counter is reset by a plain store, after the last atomic on it";

/// Returns the reason why a race on global memory is tolerated, if it is.
pub(crate) fn tolerable(
    block: &Block<'_, '_>,
    w: &Warp,
    lane: usize,
    operation: MemoryOperation,
    (a, address): (&ShadowedAllocation, u64),
    racing: &RacingAccess,
    stored: Option<&Transfer>,
) -> Option<&'static str> {
    let Some(recorder) = &block.recorder else {
        return None;
    };

    let code = block.grid.code;
    let offset = address - a.base;
    let atomics_wrote = || match (racing.thread, racing.pc) {
        (Some(_), Some(pc)) => is_atomic(&code.places[pc as usize]),
        _ => recorder.all(a.base, offset, true, |pc, _| {
            pc == w.now.pc || is_atomic(&code.places[pc as usize])
        }),
    };
    let guess = |pc: u32| is_guess(code, &code.places[pc as usize]);
    match operation {
        MemoryOperation::Write
            if racing.wrote
                && stored.is_some_and(|t| stores_the_same(block, w, lane, t, (a, offset))) =>
        {
            Some(SAME_VALUE)
        }
        MemoryOperation::Write if racing.reset && atomics_wrote() => Some(RESET),
        MemoryOperation::Read if racing.wrote && guess(w.now.pc) && atomics_wrote() => Some(GUESS),
        MemoryOperation::Atomic if !racing.wrote => match (racing.thread, racing.pc) {
            (Some(_), Some(pc)) => guess(pc).then_some(GUESS),
            _ => {
                let plain = |pc, operation: MemoryOperation| operation.is_strong() || guess(pc);
                recorder.all(a.base, offset, false, plain).then_some(GUESS)
            }
        },
        _ => None,
    }
}

/// Returns true if a store leaves the bytes unchanged, or changes them only by rounding.
fn stores_the_same(
    block: &Block<'_, '_>,
    w: &Warp,
    lane: usize,
    t: &Transfer,
    (a, offset): (&ShadowedAllocation, u64),
) -> bool {
    let bytes = t.width.bytes;
    a.is_initialised(offset, u64::from(bytes) * t.regs.len() as u64)
        && t.regs.iter().enumerate().all(|(i, from)| {
            let there = read(a, offset + u64::from(bytes) * i as u64, bytes);
            let Some(from) = from else { return false };
            lane_access::take(block, w, *from, 1 << lane).is_ok_and(|values| {
                let value = values[lane] & u64::MAX >> (64 - 8 * bytes);
                value == there
                    || same_address_stores::sums_apart(
                        &block.grid.code.places,
                        w.now.pc,
                        (value, there),
                        bytes,
                    )
            })
        })
}

/// Records a tolerated race as a note, or returns it as a fault if the launch is strict.
pub(crate) fn tolerate(
    block: &Block<'_, '_>,
    mut fault: Box<Fault>,
    why: &'static str,
) -> Checked<()> {
    fault.class = Class::ToleratedRace;
    fault.what = why.into();
    fault.instead = "in any order the result is the same; where that is not meant, put a barrier between or use atomics";
    if block.grid.watch.strict {
        return Err(fault);
    }
    block.grid.note(fault);
    Ok(())
}

/// Tolerates a race of a store to shared memory if an earlier store wrote the same value.
pub(crate) fn excuse_store(
    block: &mut Block<'_, '_>,
    w: &Warp,
    fault: Box<Fault>,
    (address, bytes): (u64, u32),
    value: u64,
) -> Checked<()> {
    let stored = fault
        .other
        .as_ref()
        .is_some_and(|other| other.did == "wrote");
    if fault.class != Class::SharedRace || !stored {
        return Err(fault);
    }

    let offset = (address - u64::from(SHARED_BASE)) as usize;
    let there = block.shared.read(offset, bytes);
    if there == value & u64::MAX >> (64 - 8 * bytes) {
        tolerate(block, fault, SAME_VALUE)
    } else if same_address_stores::sums_apart(
        &block.grid.code.places,
        w.now.pc,
        (there, value),
        bytes,
    ) {
        tolerate(block, fault, ROUNDED)
    } else {
        Err(fault)
    }
}

/// Tolerates a race between an ordinary load of shared memory and an atomic.
fn excuse_guess(block: &mut Block<'_, '_>, w: &Warp, fault: Box<Fault>) -> Checked<()> {
    let code = block.grid.code;
    let own = &code.places[w.now.pc as usize];
    let excused = fault.other.as_ref().is_some_and(|other| match other.did {
        "wrote" => is_atomic(&other.place) && is_guess(code, own),
        _ => is_atomic(own) && is_guess(code, &other.place),
    });
    if fault.class == Class::SharedRace && excused {
        tolerate(block, fault, GUESS)
    } else {
        Err(fault)
    }
}

/// Checks and records an access like [`touch`](crate::machine::memory::load_store::touch), and
/// tolerates a race with a compare-and-swap loop.
pub(crate) fn touch_or_guess(
    block: &mut Block<'_, '_>,
    w: &Warp,
    lane: usize,
    address: u64,
    bytes: u32,
    access: AccessProperties,
) -> Checked<usize> {
    match shared_checks::touch(block, w, lane, address, bytes, access) {
        Ok(offset) => Ok(offset),
        Err(fault) => {
            excuse_guess(block, w, fault)?;
            Ok(touch_tolerated(block, w, lane, address, bytes, access))
        }
    }
}

/// Records an access to shared memory whose race is tolerated, and returns its offset.
pub(crate) fn touch_tolerated(
    block: &mut Block<'_, '_>,
    w: &Warp,
    lane: usize,
    address: u64,
    bytes: u32,
    access: AccessProperties,
) -> usize {
    let access = AccessProperties {
        thread: w.index * 32 + lane as u32,
        ..access
    };
    block.shadow.touch_racing(address, bytes, access)
}
