//! Reads and writes of the words of an allocation.

use std::sync::PoisonError;
use std::sync::atomic::Ordering::Relaxed;

use crate::machine::device::allocation::{ShadowedAllocation, store_part};

/// Returns bytes at an offset that is aligned to their size.
pub(crate) fn read(a: &ShadowedAllocation, offset: u64, bytes: u32) -> u64 {
    let words = a.words();
    let word = |i: u64| u64::from(words[i as usize].load(Relaxed));
    match bytes {
        8 => word(offset / 4) | word(offset / 4 + 1) << 32,
        4 => word(offset / 4),
        _ => word(offset / 4) >> (8 * (offset % 4)) & ((1 << (8 * bytes)) - 1),
    }
}

pub(crate) fn write(a: &ShadowedAllocation, offset: u64, bytes: u32, value: u64) {
    let words = a.words();
    match bytes {
        4 => words[(offset / 4) as usize].store(value as u32, Relaxed),
        8 => {
            words[(offset / 4) as usize].store(value as u32, Relaxed);
            words[(offset / 4) as usize + 1].store((value >> 32) as u32, Relaxed);
        }
        _ => store_part(words, offset, &value.to_le_bytes()[..bytes as usize]),
    }
}

/// Updates the bytes at an offset atomically and returns the old value.
pub(crate) fn update(
    a: &ShadowedAllocation,
    offset: u64,
    bytes: u32,
    f: impl Fn(u64) -> u64,
) -> u64 {
    if bytes == 8 {
        let _held = a.wide.lock().unwrap_or_else(PoisonError::into_inner);
        let old = read(a, offset, 8);
        write(a, offset, 8, f(old));
        return old;
    }

    let word = &a.words()[(offset / 4) as usize];
    let shift = 8 * (offset % 4) as u32;
    let mask = (u64::MAX >> (64 - 8 * bytes)) as u32;
    let part = |word: u32| u64::from(word >> shift & mask);
    let next = |word: u32| Some(word & !(mask << shift) | (f(part(word)) as u32 & mask) << shift);
    let old = word.fetch_update(Relaxed, Relaxed, next);
    part(old.unwrap_or_else(|same| same))
}
