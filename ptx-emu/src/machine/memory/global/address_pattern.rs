//! The pattern of the addresses of a warp, and loads and stores of words with such a pattern.

use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::Relaxed;

use crate::machine::device::allocation::ShadowedAllocation;
use crate::machine::state::warp::Warp;
use crate::module::address_space::Addresses;
use crate::module::code::{RegisterOperand, Transfer};

/// The relation of the addresses of the lanes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AddressPattern {
    /// The bytes of each lane follow the bytes of the previous lane.
    Consecutive,
    /// All lanes have the same address.
    Same,
    Scattered,
}

#[inline(always)]
pub(crate) fn pattern(addresses: &Addresses, bytes: u32) -> AddressPattern {
    match compare(addresses, bytes.into()) {
        (0, _) => AddressPattern::Consecutive,
        (_, 0) => AddressPattern::Same,
        _ => AddressPattern::Scattered,
    }
}

/// Returns the bits in which addresses differ from consecutive ones, and from the first one.
///
/// The function is not inlined. The compiler vectorizes a loop of unknown length, but would unroll
/// one of known length.
#[inline(never)]
pub(crate) fn compare(addresses: &[u64], step: u64) -> (u64, u64) {
    let first = addresses[0];
    let mut uneven = 0;
    let mut apart = 0;
    let mut next = first;
    for a in addresses {
        apart |= a ^ first;
        uneven |= a ^ next;
        next = next.wrapping_add(step);
    }

    (uneven, apart)
}

/// Returns the lowest address and the end of the highest access.
#[inline(always)]
pub(crate) fn span(addresses: &Addresses, pattern: AddressPattern, bytes: u32) -> (u64, u64) {
    let bytes = u64::from(bytes);
    match pattern {
        AddressPattern::Consecutive => (addresses[0], addresses[0].saturating_add(32 * bytes)),
        AddressPattern::Same => (addresses[0], addresses[0].saturating_add(bytes)),
        AddressPattern::Scattered => {
            let low = addresses.iter().copied().fold(u64::MAX, u64::min);
            let high = addresses.iter().copied().fold(0, u64::max);
            (low, high.saturating_add(bytes))
        }
    }
}

/// Loads word `i` of the `count` words at the address of each lane, which were checked.
#[inline(always)]
pub(crate) fn gather(
    a: &ShadowedAllocation,
    addresses: &Addresses,
    pattern: AddressPattern,
    i: usize,
    count: usize,
    out: &mut [u32; 32],
) {
    let words = a.words();
    let index = |address: u64| ((address - a.base) / 4) as usize;
    let first = index(addresses[0]);
    match (pattern, count) {
        (AddressPattern::Consecutive, 1) => consecutive::<1>(&words[first..], i, out),
        (AddressPattern::Consecutive, 2) => consecutive::<2>(&words[first..], i, out),
        (AddressPattern::Consecutive, 4) => consecutive::<4>(&words[first..], i, out),
        (AddressPattern::Same, _) => *out = [words[first + i].load(Relaxed); 32],
        _ => out
            .iter_mut()
            .zip(addresses)
            .for_each(|(out, at)| *out = words[index(*at) + i].load(Relaxed)),
    }
}

/// Loads adjacent words of all lanes, which were checked.
pub(crate) fn load_consecutive(w: &mut Warp, t: &Transfer, a: &ShadowedAllocation, low: u64) {
    let first = ((low - a.base) / 4) as usize;
    let count = t.regs.len();
    let words = &a.words()[first..first + 32 * count];
    for (i, to) in t.regs.iter().flatten().enumerate() {
        let file = &mut w.regs.w32;
        file.defined[to.slot as usize] = u32::MAX;
        let out = &mut file.lanes[to.slot as usize];
        match count {
            1 => consecutive::<1>(words, i, out),
            2 => consecutive::<2>(words, i, out),
            4 => consecutive::<4>(words, i, out),
            _ => consecutive::<8>(words, i, out),
        }
    }
}

/// Loads every `N`th word, starting at word `i`.
#[inline(always)]
fn consecutive<const N: usize>(words: &[AtomicU32], i: usize, out: &mut [u32; 32]) {
    let lanes = &words[..32 * N].as_chunks::<N>().0[..32];
    out.iter_mut()
        .zip(lanes)
        .for_each(|(out, lane)| *out = lane[i].load(Relaxed));
}

/// Stores every `N`th word, starting at word `i`.
#[inline(always)]
pub(crate) fn scatter<const N: usize>(words: &[AtomicU32], i: usize, values: &[u32; 32]) {
    let lanes = &words[..32 * N].as_chunks::<N>().0[..32];
    lanes
        .iter()
        .zip(values)
        .for_each(|(lane, value)| lane[i].store(*value, Relaxed));
}

/// Returns true if the elements of a store are whole 32-bit registers.
pub(crate) fn are_words(t: &Transfer) -> bool {
    let whole = |r: &Option<RegisterOperand>| r.is_some_and(|r| r.bits == 32);
    t.width.bytes == 4 && matches!(t.regs.len(), 1 | 2 | 4 | 8) && t.regs.iter().all(whole)
}
