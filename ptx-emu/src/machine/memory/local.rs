//! Loads and stores of local memory, of which each thread has its own.

use crate::machine::memory::lane_access;
use crate::machine::memory::lane_access::{extend, put};
use crate::machine::state::block::{Block, Checked};
use crate::machine::state::local_slice::{SLICE, own, slice};
use crate::machine::state::warp::Warp;
use crate::module::address_space::{Addresses, LOCAL_WINDOW};
use crate::module::code::{RegisterOperand, Transfer, Unwritten};
use crate::module::lane_mask::{lanes, set_bit};
use crate::module::registers::Undefined;
use crate::{Class, Fault};

/// Executes `cvta`, or `cvta.to`, for addresses in local memory. An address of another thread
/// becomes invalid.
pub(crate) fn convert(w: &mut Warp, mask: u32, d: u32, a: u32, to: bool) -> Result<(), Undefined> {
    let a = *w.regs.get::<u64>(a, mask)?;
    let base = |lane| LOCAL_WINDOW + slice(w, lane);
    let moved = |lane: usize| {
        if to {
            a[lane].wrapping_sub(base(lane))
        } else {
            a[lane].wrapping_add(base(lane))
        }
    };
    let out = std::array::from_fn(moved);
    w.regs.set(d, mask, &out);
    Ok(())
}

/// The maximum padding between members of a structure in bytes.
const MOST_GAP: usize = 7;

/// Converts window addresses to the local addresses of their threads.
pub(crate) fn own_addresses(
    block: &Block<'_, '_>,
    w: &Warp,
    mask: u32,
    addresses: &mut Addresses,
) -> Checked<()> {
    for lane in lanes(mask) {
        let Some(own) = own(w, lane, addresses[lane]) else {
            return Err(of_another_thread(block, w, lane, addresses[lane]));
        };
        addresses[lane] = own;
    }
    let first = addresses[mask.trailing_zeros() as usize % 32];
    lanes(!mask).for_each(|lane| addresses[lane] = first);
    Ok(())
}

#[cold]
fn of_another_thread(block: &Block<'_, '_>, w: &Warp, lane: usize, address: u64) -> Box<Fault> {
    let owner = (address / SLICE) as u32;
    let [width, height, _] = block.grid.launch.block;
    let x = owner % width;
    let y = owner / width % height;
    let z = owner / (width * height);
    let what =
        format!("an address in the local memory of thread ({x},{y},{z}) is used by another thread");
    let mut fault = block.fault(w, 1 << lane, Class::OutOfBounds, what);
    fault.instead =
        "each thread has separate local memory: pass the value, or keep it in shared memory";
    fault.address = Some(address % SLICE);
    fault
}

/// Checks that a register that leaves the thread was not loaded from uninitialized memory.
pub(crate) fn check_found(w: &Warp, from: RegisterOperand, mask: u32) -> Checked<()> {
    let found = w.regs.found_nothing(from.bits, from.slot, mask);
    found.map_or(Ok(()), |fault| Err(Box::new(fault.clone())))
}

pub(crate) fn load_local(
    block: &mut Block<'_, '_>,
    w: &mut Warp,
    mask: u32,
    t: &Transfer,
    addresses: &Addresses,
) -> Checked<()> {
    let bytes = t.width.bytes;
    check_local(block, w, mask, t, addresses)?;
    for (i, to) in t.regs.iter().enumerate() {
        let mut out = [0; 32];
        let mut unknown = 0;
        let mut nothing = (0, None);
        for lane in lanes(mask) {
            match local_value(
                block,
                w,
                lane,
                [addresses[lane] as usize, bytes as usize * i],
                t,
            ) {
                Ok(Some(value)) => out[lane] = value,
                Ok(None) => unknown |= 1 << lane,
                // Who uses it is the mistake.
                Err(fault) => nothing = (nothing.0 | 1 << lane, nothing.1.or(Some(fault))),
            }
        }

        if let Some(to) = to {
            put(
                w,
                *to,
                mask,
                &out.map(|v| extend(v, bytes, t.width.signed, to.bits)),
            );
            w.regs.forget(to.bits, to.slot, unknown);
            let (lanes, fault) = nothing;
            if let Some(fault) = fault {
                w.regs.put_off(to.bits, to.slot, lanes, fault);
            }
        }
    }

    Ok(())
}

/// Returns a value in local memory, or `None` if it is copied and uninitialized.
fn local_value(
    block: &Block<'_, '_>,
    w: &Warp,
    lane: usize,
    [start, before]: [usize; 2],
    t: &Transfer,
) -> Checked<Option<u64>> {
    let bytes = t.width.bytes as usize;
    let at = start + before;
    let byte =
        |k: usize| u64::from(w.local[(at + k) / 4][lane] >> (8 * ((at + k) % 4)) & 0xff) << (8 * k);
    let written = |at: usize| w.local_init[at / 4][lane] >> (at % 4) & 1 != 0;
    let missing = |k: &usize| !written(at + k);
    let wrong = |k: &usize| match t.unwritten {
        Unwritten::Fault => true,
        Unwritten::Gaps => !(start..at + k).rev().take(MOST_GAP).any(written),
        Unwritten::Zeros | Unwritten::Copied => false,
    };
    if let Some(k) = (0..bytes).filter(missing).find(wrong) {
        let what = "local memory is read that the thread has not written";
        let mut fault = block.fault(w, 1 << lane, Class::UninitialisedLocal, what);
        fault.address = Some((at + k) as u64);
        return Err(fault);
    }

    let unknown = t.unwritten == Unwritten::Copied && (0..bytes).all(|k| missing(&k));
    Ok((!unknown).then(|| (0..bytes).map(byte).sum()))
}

pub(crate) fn store_local(
    block: &mut Block<'_, '_>,
    w: &mut Warp,
    mask: u32,
    t: &Transfer,
    addresses: &Addresses,
) -> Checked<()> {
    let bytes = t.width.bytes;
    check_local(block, w, mask, t, addresses)?;
    for (i, from) in t.regs.iter().flatten().enumerate() {
        // An undefined value may be passed. Only its use is a fault.
        let known = mask & w.regs.defined(from.bits, from.slot);
        check_found(w, *from, mask)?;
        let values = lane_access::take(block, w, *from, known)?;
        for lane in lanes(mask) {
            for k in 0..bytes as usize {
                let at = addresses[lane] as usize + bytes as usize * i + k;
                let shift = 8 * (at % 4);
                let word = &mut w.local[at / 4][lane];
                *word =
                    *word & !(0xff << shift) | ((values[lane] >> (8 * k)) as u32 & 0xff) << shift;
                let init = &mut w.local_init[at / 4][lane];
                *init = *init & !(1 << (at % 4)) | ((known >> lane & 1) as u8) << (at % 4);
            }
        }
    }

    Ok(())
}

/// Checks the bounds and the alignment of an access to local memory.
fn check_local(
    block: &Block<'_, '_>,
    w: &Warp,
    mask: u32,
    t: &Transfer,
    addresses: &Addresses,
) -> Checked<()> {
    let bytes = t.width.bytes * t.regs.len() as u32;
    lane_access::check_alignment(block, w, mask, addresses, bytes)?;
    let end = u64::from(w.top);
    let bad = lanes(mask)
        .filter(|l| addresses[*l] == 0 || addresses[*l].saturating_add(bytes.into()) > end);
    let bad = bad.fold(0, set_bit);
    if bad == 0 {
        return Ok(());
    }

    let address = addresses[bad.trailing_zeros() as usize];
    let what = format!("local memory is accessed at 0x{address:x}; the thread has {end} bytes");
    let mut fault = block.fault(w, bad, Class::OutOfBounds, what);
    fault.address = Some(address);
    Err(fault)
}
