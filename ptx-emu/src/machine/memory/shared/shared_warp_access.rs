//! Accesses of a whole warp to shared memory, checked together.
//!
//! A load or a store of whole words is first checked for all lanes without side effects: bounds,
//! initialization, and order with earlier accesses. If any check fails, the lanes are checked [one
//! by one](crate::sanitize::race::shared::shared_shadow), which produces the error. Otherwise each
//! word is recorded once, with the same result as if its lanes had come one after another.

use crate::machine::memory::lane_access::are_distinct;
use crate::machine::state::block::Block;
use crate::machine::state::warp::Warp;
use crate::module::address_space::{Addresses, SHARED_BASE};
use crate::module::code::{RegisterOperand, Transfer};
use crate::module::lane_mask::lanes;
use crate::sanitize::race::last_access::AccessProperties;
use crate::sanitize::race::shared::lazy_reads::AccessShape;
use crate::sanitize::race::shared::word_groups::WordGroups;

/// Returns true if registers of these widths contain elements of `bytes` bytes without conversion.
fn are_whole(regs: &[Option<RegisterOperand>], bytes: u32) -> bool {
    matches!(bytes, 4 | 8) && regs.iter().flatten().all(|r| r.bits == 8 * bytes)
}

/// Returns the number of words per lane and the first word of each lane, if all lanes access
/// whole words of their own block.
#[inline(always)]
fn words_of(
    block: &Block<'_, '_>,
    t: &Transfer,
    addresses: &Addresses,
) -> Option<(usize, [u32; 32])> {
    let count = (t.width.bytes / 4) as usize * t.regs.len();
    if block.blocks.len() > 1 || !are_whole(&t.regs, t.width.bytes) {
        return None;
    }

    let end = (block.shared.words.len() as u64).checked_sub(count as u64)?;

    // An address is outside if it has bits above the lower 32, or if the difference to the end
    // of the memory is negative.
    let mut first = [0; 32];
    let mut above = 0;
    let mut outside = 0;
    for (first, a) in first.iter_mut().zip(addresses) {
        let offset = a.wrapping_sub(SHARED_BASE.into());
        *first = offset as u32 / 4;
        above |= (offset >> 32) as u32;
        outside |= (end as u32).wrapping_sub(*first);
    }

    (above == 0 && outside >> 31 == 0).then_some((count, first))
}

/// Loads whole words from shared memory at aligned addresses. Returns false if nothing was
/// done.
#[inline]
pub(crate) fn load_together(
    block: &mut Block<'_, '_>,
    w: &mut Warp,
    mask: u32,
    t: &Transfer,
    addresses: &Addresses,
    access: AccessProperties,
) -> bool {
    let Some((count, first)) = words_of(block, t, addresses) else {
        return false;
    };

    let access = AccessProperties {
        thread: w.index * 32,
        ..access
    };
    if block.notes_reads
        && mask == u32::MAX
        && !access.strong
        && let Some(shape) = AccessShape::of(&first, count as u32)
        && block.shadow.note_read(shape, count, access)
    {
        read_shape(block, w, t, shape, &first);
        return true;
    }

    if !block
        .shadow
        .read_groups(&WordGroups::of(&first, mask), count, access)
    {
        return false;
    }

    read_words(block, w, mask, t, &first);
    true
}

/// Loads the words of a shape, which were checked.
#[inline(always)]
fn read_shape(
    block: &Block<'_, '_>,
    w: &mut Warp,
    t: &Transfer,
    shape: AccessShape,
    first: &[u32; 32],
) {
    if t.width.bytes != 4 || t.regs.len() > 1 {
        return read_words(block, w, u32::MAX, t, first);
    }
    let (Some(to), words) = (t.regs[0], &block.shared.words[..]) else {
        return;
    };

    let mut out = [0; 32];
    let (low, high) = out.split_at_mut(16);
    let run = |first: u32| &words[first as usize..][..16];
    match shape {
        AccessShape::Same(at) => out = [words[at as usize]; 32],
        AccessShape::Halves(a, b) => {
            low.fill(words[a as usize]);
            high.fill(words[b as usize]);
        }
        AccessShape::Twice(at) => {
            low.copy_from_slice(run(at));
            high.copy_from_slice(run(at));
        }
        AccessShape::Beside(at) => {
            low.copy_from_slice(run(at));
            high.copy_from_slice(run(at + 16));
        }
    }

    w.regs.set(to.slot, u32::MAX, &out);
}

/// Loads words of lanes, which were checked.
fn read_words(block: &Block<'_, '_>, w: &mut Warp, mask: u32, t: &Transfer, first: &[u32; 32]) {
    let words = &block.shared.words[..];
    for (i, to) in t.regs.iter().enumerate() {
        let Some(to) = to else { continue };
        match t.width.bytes {
            4 => {
                let mut out = [0; 32];
                out.iter_mut()
                    .zip(first)
                    .for_each(|(out, at)| *out = words[*at as usize + i]);
                w.regs.set(to.slot, mask, &out);
            }
            _ => {
                let half = |at: usize| u64::from(words[at]);
                let whole =
                    |at: u32| half(at as usize + 2 * i) | half(at as usize + 2 * i + 1) << 32;
                w.regs.set(to.slot, mask, &first.map(whole));
            }
        }
    }
}

/// Stores whole words to shared memory at aligned addresses. Returns false if nothing was done.
#[inline]
pub(crate) fn store_together(
    block: &mut Block<'_, '_>,
    w: &Warp,
    mask: u32,
    t: &Transfer,
    addresses: &Addresses,
    access: AccessProperties,
) -> bool {
    if !are_distinct(addresses, mask, t.width.bytes * t.regs.len() as u32) {
        return false;
    }
    let Some((count, first)) = words_of(block, t, addresses) else {
        return false;
    };

    let groups = WordGroups::of(&first, mask);
    let access = AccessProperties {
        thread: w.index * 32,
        ..access
    };
    let from = |r: &Option<RegisterOperand>| {
        r.is_some_and(|r| w.regs.defined(r.bits, r.slot) & mask == mask)
    };
    if !t.regs.iter().all(from) || !block.shadow.write_groups(&groups, count, access) {
        return false;
    }

    let words = &mut block.shared.words[..];
    for (i, from) in t.regs.iter().flatten().enumerate() {
        let slot = from.slot as usize;
        match from.bits {
            64 => lanes(mask).for_each(|lane| {
                let at = first[lane] as usize + 2 * i;
                let value = w.regs.w64.lanes[slot][lane];
                (words[at], words[at + 1]) = (value as u32, (value >> 32) as u32);
            }),
            _ => lanes(mask)
                .for_each(|lane| words[first[lane] as usize + i] = w.regs.w32.lanes[slot][lane]),
        }
    }

    true
}
