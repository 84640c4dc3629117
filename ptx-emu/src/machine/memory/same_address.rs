//! Checks that lanes of one store that write the same address write the same value.

use crate::fault::{Class, Fault};
use crate::machine::memory::lane_access::are_distinct;
use crate::machine::memory::{lane_access, tolerance};
use crate::machine::state::block::{Block, Checked};
use crate::machine::state::warp::Warp;
use crate::module::address_space::Addresses;
use crate::sanitize::race::same_address_stores::{NEAR, ROUNDED, are_rounded_apart, sums_apart};

/// Checks that lanes of one store that write the same address write the same value.
#[inline]
pub(crate) fn check_same(
    block: &Block<'_, '_>,
    w: &Warp,
    mask: u32,
    addresses: &Addresses,
    values: &[u64; 32],
    bytes: u32,
) -> Checked<()> {
    if mask.count_ones() < 2 || are_distinct(addresses, mask, bytes) {
        return Ok(());
    }
    check_same_slowly(block, w, mask, addresses, values, bytes)
}

fn check_same_slowly(
    block: &Block<'_, '_>,
    w: &Warp,
    mask: u32,
    addresses: &Addresses,
    values: &[u64; 32],
    bytes: u32,
) -> Checked<()> {
    let keep = u64::MAX >> (64 - 8 * bytes);
    let mut order: [usize; 32] = std::array::from_fn(|i| i);
    let active = &mut order[..];
    active.sort_by_key(|l| (mask >> l & 1 == 0, addresses[*l]));
    for pair in active[..mask.count_ones() as usize].windows(2) {
        let a = pair[0];
        let b = pair[1];
        if addresses[a] == addresses[b] && (values[a] ^ values[b]) & keep != 0 {
            let fault = stores_differ(block, w, a, b, addresses[a], values, keep);
            let rounded = are_rounded_apart(values[a], values[b], bytes, NEAR);
            if rounded
                || sums_apart(
                    &block.grid.code.places,
                    w.now.pc,
                    (values[a], values[b]),
                    bytes,
                )
            {
                tolerance::tolerate(block, fault, ROUNDED)?
            } else {
                return Err(fault);
            }
        }
    }

    Ok(())
}

#[cold]
fn stores_differ(
    block: &Block<'_, '_>,
    w: &Warp,
    a: usize,
    b: usize,
    address: u64,
    values: &[u64; 32],
    keep: u64,
) -> Box<Fault> {
    let one = values[a] & keep;
    let two = values[b] & keep;
    let what = format!("lanes {a} and {b} store 0x{one:x} and 0x{two:x} to the same address");
    let mut fault = block.fault(w, 1 << a | 1 << b, Class::LanesStoreDifferent, what);
    fault.instead = "let one lane store, or use an atomic";
    lane_access::locate(block, &mut fault, address);
    fault
}
