//! The registers and the addresses of the lanes of an access.

use crate::fault::{Class, Fault};
use crate::machine::state::block::{Block, Checked};
use crate::machine::state::warp::Warp;
use crate::module::address_space::{Addresses, SHARED_WINDOW};
use crate::module::code::operand::{Address, RegisterOperand};
use crate::module::lane_mask::{lanes, set_bit};

/// Returns true if the lanes access different elements of `bytes` bytes at aligned addresses. May
/// return false if the test would take long.
pub(crate) fn are_distinct(addresses: &Addresses, mask: u32, bytes: u32) -> bool {
    if mask == u32::MAX && addresses.is_sorted_by(|a, b| a < b) {
        return true;
    }

    let low = addresses.iter().copied().fold(u64::MAX, u64::min);
    let mut taken = [0u64; 64];
    lanes(mask).all(|lane| {
        let element = (addresses[lane] - low) / u64::from(bytes);
        let Some(word) = taken.get_mut((element / 64) as usize) else {
            return false;
        };
        let free = *word >> (element % 64) & 1 == 0;
        *word |= 1 << (element % 64);
        free
    })
}

/// Returns the lanes whose value is not 0.
pub(crate) fn lanes_of(values: &[u64; 32]) -> u32 {
    (0..32)
        .filter(|lane| values[*lane] != 0)
        .fold(0, |lanes, lane| lanes | 1 << lane)
}

pub(crate) fn put(w: &mut Warp, to: RegisterOperand, mask: u32, values: &[u64; 32]) {
    match to.bits {
        64 => w.regs.set(to.slot, mask, values),
        1 => w.regs.set_pred(to.slot, mask, lanes_of(values)),
        _ => w.regs.set(to.slot, mask, &values.map(|v| v as u32)),
    }
}

/// Returns the value of a register of any width.
pub(crate) fn take(
    block: &Block<'_, '_>,
    w: &Warp,
    from: RegisterOperand,
    mask: u32,
) -> Checked<[u64; 32]> {
    let values = match from.bits {
        64 => w.regs.get::<u64>(from.slot, mask).copied(),
        1 => w
            .regs
            .pred(from.slot, mask)
            .map(|holds| std::array::from_fn(|lane| u64::from(holds >> lane & 1))),
        _ => w.regs.get::<u32>(from.slot, mask).map(|v| v.map(u64::from)),
    };
    values.map_err(|u| block.undefined(w, u))
}

/// Computes the address of each lane.
#[inline(always)]
pub(crate) fn lane_addresses(
    block: &Block<'_, '_>,
    w: &Warp,
    mask: u32,
    a: &Address,
    out: &mut Addresses,
) -> Checked<()> {
    let offset = a.offset as u64;
    if a.wide {
        match w.regs.get::<u64>(a.slot, mask) {
            Ok(base) => out
                .iter_mut()
                .zip(base)
                .for_each(|(out, base)| *out = base.wrapping_add(offset)),
            Err(u) => return Err(block.undefined(w, u)),
        }
    } else {
        match w.regs.get::<u32>(a.slot, mask) {
            Ok(base) => {
                let sum = |base: u32| u64::from(base.wrapping_add(offset as u32));
                out.iter_mut()
                    .zip(base)
                    .for_each(|(out, base)| *out = sum(*base));
            }
            Err(u) => return Err(block.undefined(w, u)),
        }
    }

    if mask != u32::MAX {
        let first = out[mask.trailing_zeros() as usize];
        for (lane, out) in out.iter_mut().enumerate() {
            *out = if mask >> lane & 1 != 0 { *out } else { first };
        }
    }

    Ok(())
}

/// Checks that the address of every lane is a multiple of the size of the whole access.
#[inline]
pub(crate) fn check_alignment(
    block: &Block<'_, '_>,
    w: &Warp,
    mask: u32,
    addresses: &Addresses,
    bytes: u32,
) -> Checked<()> {
    let odd = addresses.iter().fold(0, |all, a| all | a) & u64::from(bytes - 1);
    if odd == 0 {
        Ok(())
    } else {
        Err(misaligned(block, w, mask, addresses, bytes))
    }
}

#[cold]
pub(crate) fn misaligned(
    block: &Block<'_, '_>,
    w: &Warp,
    mask: u32,
    addresses: &Addresses,
    bytes: u32,
) -> Box<Fault> {
    let bad = lanes(mask)
        .filter(|l| !addresses[*l].is_multiple_of(bytes.into()))
        .fold(0, set_bit);
    let address = addresses[bad.trailing_zeros() as usize % 32];
    let what =
        format!("an access of {bytes} bytes at 0x{address:x}, which is not a multiple of {bytes}");
    let mut fault = block.fault(w, bad, Class::Misaligned, what);
    fault.instead = "the address must be a multiple of the size of the whole vector";
    locate(block, &mut fault, address);
    fault
}

/// Sets the address and the nearest allocation of a fault.
pub(crate) fn locate(block: &Block<'_, '_>, fault: &mut Fault, address: u64) {
    fault.address = Some(address);
    let near_shared = address < SHARED_WINDOW;
    let table = &block.grid.table;
    let of_heap = table.heap_at(address);
    let of_heap = of_heap.map(|heap| heap.freed(address).or_else(|| heap.nearest(address)));
    fault.allocation = match table.find_freed(address) {
        Some(info) => Some(info.clone()),
        None if of_heap.is_some() => of_heap.flatten(),
        None if near_shared => block.shared_variable(address),
        None => table.nearest(address).map(|a| a.info()),
    };
}

/// Returns the lanes of an atomic in the order in which they take effect, which the schedule
/// selects.
pub(crate) fn lane_order(block: &Block<'_, '_>, mask: u32) -> impl Iterator<Item = usize> + use<> {
    let reversed = block.grid.schedule.order == crate::Order::Reversed;
    (0..32)
        .map(move |i| if reversed { 31 - i } else { i })
        .filter(move |l| mask >> l & 1 != 0)
}

/// Returns a 32-bit register, which must be initialized.
pub(crate) fn words(block: &Block<'_, '_>, w: &Warp, mask: u32, slot: u32) -> Checked<[u32; 32]> {
    w.regs
        .get::<u32>(slot, mask)
        .copied()
        .map_err(|u| block.undefined(w, u))
}

/// Extends a value from memory to a register with `bits` bits.
#[inline(always)]
pub(crate) fn extend(value: u64, bytes: u32, signed: bool, bits: u32) -> u64 {
    let shift = 64 - 8 * bytes;
    let value = if signed {
        ((value << shift) as i64 >> shift) as u64
    } else {
        value
    };
    value & u64::MAX >> (64 - bits)
}
