//! Races whose result does not depend on the order of the accesses. They cause notes, unless the
//! launch treats them as faults.
//!
//! - Threads store the same value at an address.
//! - A plain load reads the initial guess of a compare-and-swap loop at the same address. If the
//!   guess is old, the swap fails and the loop repeats. The two instructions are matched by their
//!   address, which must be one register or a copy of it.
//! - A block resets a counter with a plain store after its own atomic was the last one there.

use crate::fault::SourcePlace;
use crate::machine::memory::allocation::ShadowedAllocation;
use crate::machine::memory::global::read;
use crate::machine::memory::load_store;
use crate::machine::scheduler::warp::Warp;
use crate::machine::scheduler::worker::{Checked, Worker};
use crate::module::code::{KernelCode, Transfer};
pub(crate) use crate::module::decode::SHARED_BASE;
use crate::sanitize::race::launch_accesses::MemoryOperation;
use crate::sanitize::race::launch_recorder::RacingAccess;
use crate::sanitize::race::same_address_stores;
use crate::sanitize::race::same_address_stores::ROUNDED;
use crate::sanitize::race::shared_shadow::AccessProperties;
use crate::{Class, Fault};

/// The maximum number of register copies that are followed.
const MOST_COPIES: usize = 8;

const SAME_VALUE: &str = "threads store the same value to one address, in no order";
const GUESS: &str =
    "a loop of compare-and-swap begins with a plain load, which may see any older value";
const RESET: &str = "a counter is reset by a plain store, after the last atomic on it";

/// Returns the reason why a race on global memory is tolerated, if it is.
pub(crate) fn tolerable(
    block: &Worker<'_, '_>,
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
    block: &Worker<'_, '_>,
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
            load_store::take(block, w, *from, 1 << lane).is_ok_and(|values| {
                let value = values[lane] & u64::MAX >> (64 - 8 * bytes);
                value == there
                    || same_address_stores::sums_apart(block, w.now.pc, (value, there), bytes)
            })
        })
}

/// Records a tolerated race as a note, or returns it as a fault if the launch is strict.
pub(crate) fn tolerate(
    block: &Worker<'_, '_>,
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
    block: &mut Worker<'_, '_>,
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
    } else if same_address_stores::sums_apart(block, w.now.pc, (there, value), bytes) {
        tolerate(block, fault, ROUNDED)
    } else {
        Err(fault)
    }
}

/// Tolerates a race between an ordinary load of shared memory and an atomic.
pub(crate) fn excuse_guess(block: &mut Worker<'_, '_>, w: &Warp, fault: Box<Fault>) -> Checked<()> {
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

/// Checks and records an access like [`touch`](crate::machine::memory::load_store::touch), and tolerates a race with a
/// compare-and-swap loop.
pub(crate) fn touch_or_guess(
    block: &mut Worker<'_, '_>,
    w: &Warp,
    lane: usize,
    address: u64,
    bytes: u32,
    access: AccessProperties,
) -> Checked<usize> {
    match load_store::touch(block, w, lane, address, bytes, access) {
        Ok(offset) => Ok(offset),
        Err(fault) => {
            excuse_guess(block, w, fault)?;
            Ok(touch_tolerated(block, w, lane, address, bytes, access))
        }
    }
}

/// Records an access to shared memory whose race is tolerated, and returns its offset.
pub(crate) fn touch_tolerated(
    block: &mut Worker<'_, '_>,
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
    block.shared.touch_racing(address, bytes, access)
}

/// Returns the opcode and the operands of an instruction, without its guard.
pub(crate) fn parts(place: &SourcePlace) -> (&str, &str) {
    let text = place.text.trim();
    let text = match text.strip_prefix('@') {
        Some(rest) => rest
            .split_once(char::is_whitespace)
            .map_or("", |(_, rest)| rest.trim_start()),
        None => text,
    };
    text.split_once(char::is_whitespace).unwrap_or((text, ""))
}

pub(crate) fn is_atomic(place: &SourcePlace) -> bool {
    matches!(parts(place).0.split('.').next(), Some("atom" | "red"))
}

/// Returns the register and the offset in the brackets of a memory operand.
pub(crate) fn address(operands: &str) -> Option<(&str, &str)> {
    let inner = operands.split_once('[')?.1.split_once(']')?.0.trim();
    let (register, offset) = inner.split_once('+').unwrap_or((inner, "0"));
    Some((register.trim(), offset.trim()))
}

/// Returns the register from which a register was copied through `mov`, `cvta`, or an `and` that
/// aligns an address to a word.
fn origin<'c>(code: &'c KernelCode, mut register: &'c str) -> &'c str {
    for _ in 0..MOST_COPIES {
        let from = code.places.iter().find_map(|place| {
            let (opcode, operands) = parts(place);
            let mut operands = operands.split(',').map(str::trim);
            let copies = matches!(opcode.split('.').next(), Some("mov" | "cvta" | "and"));
            (copies && operands.next() == Some(register))
                .then(|| operands.next())
                .flatten()
        });
        match from.filter(|from| from.starts_with('%')) {
            Some(from) => register = from,
            None => break,
        }
    }
    register
}

/// Returns true if a load reads an address at which a compare-and-swap of the kernel swaps.
#[cold]
fn is_guess(code: &KernelCode, load: &SourcePlace) -> bool {
    let (opcode, operands) = parts(load);
    let Some((register, offset)) = address(operands).filter(|_| opcode.starts_with("ld.")) else {
        return false;
    };
    let from = origin(code, register);
    code.places.iter().any(|place| {
        let (opcode, operands) = parts(place);
        let swaps = opcode.starts_with("atom.") && opcode.split('.').any(|part| part == "cas");
        swaps
            && address(operands)
                .is_some_and(|(r, o)| origin(code, r) == from && (o == offset || r != register))
    })
}
