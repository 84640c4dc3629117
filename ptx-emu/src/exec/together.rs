//! Accesses of a whole warp to shared memory, checked at once.
//!
//! A load or a store of whole words is first checked for all lanes, without a change: in bounds, initialised, and in
//! order with what was there before. If something may be wrong, nothing has happened yet, and the lanes go
//! [one by one](super::shared), which names it. Otherwise each word is remembered once, as it would be after its lanes had
//! come one after another.

use super::block::Worker;
use super::lanes;
use super::memory::{Addresses, are_distinct};
use super::shared::{Access, Shared};
use super::view::View;
use super::warp::Warp;
use crate::code::{RegisterOperand, Transfer};
use crate::decode::SHARED_BASE;

/// Lanes that access the same words, and the first of these. A word's lanes come in rising order.
pub(super) struct Groups {
    list: [(usize, u32); 32],
    count: usize,
}

impl Groups {
    /// The lanes of a mask by their addresses, of which all must be within `words` words for `count` words each.
    fn of(addresses: &Addresses, mask: u32, words: usize, count: usize) -> Option<Groups> {
        let index = |address: u64| address.wrapping_sub(SHARED_BASE.into()) / 4;
        let highest = addresses.iter().fold(0, |high, a| high.max(index(*a)));
        if highest.saturating_add(count as u64) > words as u64 {
            return None;
        }
        let mut groups = Groups { list: [(0, 0); 32], count: 0 };
        let (low, high) = addresses.split_at(16);
        if mask == u32::MAX && low == high && low.is_sorted_by(|a, b| a < b) {
            low.iter().enumerate().for_each(|(i, a)| groups.list[i] = (index(*a) as usize, 0x10001 << i));
            groups.count = 16;
            return Some(groups);
        }
        let mut last = u64::MAX;
        for lane in lanes(mask) {
            let address = addresses[lane];
            groups.count += usize::from(address != last || groups.count == 0);
            let group = &mut groups.list[groups.count - 1];
            *group = (index(address) as usize, group.1 | 1 << lane);
            last = address;
        }
        Some(groups)
    }

    fn iter(&self) -> impl Iterator<Item = (usize, u32)> {
        self.list[..self.count].iter().copied()
    }
}

impl Shared {
    /// Checks that lanes may read the words of their groups, and remembers that they did; false, and nothing remembered, if
    /// something may be wrong.
    fn read_groups(&mut self, groups: &Groups, count: usize, access: Access) -> bool {
        let view = View::of(&self.clocks, self.stamp(access, 15));
        let may = |(first, lanes): (usize, u32)| {
            let cells = self.cells[first..first + count].iter();
            let known = self.valid[first..first + count].iter().zip(&self.init[first..first + count]);
            known
                .zip(cells)
                .all(|((valid, init), cell)| valid & init == 15 && view.is_quiet(&cell.write, lanes))
        };
        if access.strong && self.history.is_some() || !groups.iter().all(may) {
            return false;
        }
        let (warp, warps) = (access.thread as usize / 32, self.clocks.warps());
        for (first, lanes) in groups.iter() {
            for word in first..first + count {
                let cell = &mut self.cells[word];
                if !view.is_warps(&cell.write) {
                    self.readers[word * warps + warp] = (view.new.clock, view.new.pc);
                    continue;
                }
                view.remember(&mut cell.reads, lanes);
                if let Some(history) = &mut self.history {
                    history.keep(word, &view.at(31 - lanes.leading_zeros()), access);
                }
            }
        }
        true
    }

    /// As [`Shared::read_groups`], for a store of words that differ from lane to lane.
    fn write_groups(&mut self, groups: &Groups, count: usize, access: Access) -> bool {
        let view = View::of(&self.clocks, self.stamp(access, 15));
        let may = |(word, lane): (usize, u32)| {
            let cell = &self.cells[word];
            let reads = cell.reads.iter().all(|read| view.is_quiet(read, lane));
            self.valid[word] == 15
                && view.is_warps(&cell.write)
                && view.is_quiet(&cell.write, lane)
                && reads
                && self.history.as_ref().is_none_or(|h| h.is_quiet(word, access, |t| view.is_quiet(t, lane)))
        };
        let words =
            || groups.iter().flat_map(|(first, lane)| (first..first + count).map(move |word| (word, lane)));
        if !self.async_readers.is_empty() || !words().all(may) {
            return false;
        }
        for (word, lane) in words() {
            let new = view.at(lane.trailing_zeros());
            self.cells[word].write = new;
            self.init[word] = 15;
            if let Some(pattern) = self.patterns.get_mut(word) {
                *pattern = 0;
            }
            if let Some(history) = &mut self.history {
                history.keep(word, &new, access);
            }
        }
        true
    }
}

/// Whether registers of so many bits hold elements of so many bytes as they are.
fn are_whole(regs: &[Option<RegisterOperand>], bytes: u32) -> bool {
    matches!(bytes, 4 | 8) && regs.iter().flatten().all(|r| r.bits == 8 * bytes)
}

impl Worker<'_, '_> {
    /// What lanes access together, if they access whole words of their own block.
    fn word_groups(&self, mask: u32, t: &Transfer, addresses: &Addresses) -> Option<(Groups, usize)> {
        let count = (t.width.bytes / 4) as usize * t.regs.len();
        let alone = self.blocks.len() == 1;
        if !are_whole(&t.regs, t.width.bytes) || !alone {
            return None;
        }
        Some((Groups::of(addresses, mask, self.shared.words.len(), count)?, count))
    }

    /// Loads whole words from shared memory, at addresses that are aligned; false if nothing is done yet.
    #[inline]
    pub(super) fn load_together(
        &mut self,
        w: &mut Warp,
        mask: u32,
        t: &Transfer,
        addresses: &Addresses,
        access: Access,
    ) -> bool {
        let Some((groups, count)) = self.word_groups(mask, t, addresses) else { return false };
        let access = Access { thread: w.index * 32, ..access };
        if !self.shared.read_groups(&groups, count, access) {
            return false;
        }
        let mut first = [0u32; 32];
        first
            .iter_mut()
            .zip(addresses)
            .for_each(|(first, a)| *first = (*a as u32).wrapping_sub(SHARED_BASE) / 4);
        let words = &self.shared.words[..];
        for (i, to) in t.regs.iter().enumerate() {
            let Some(to) = to else { continue };
            match t.width.bytes {
                4 => w.regs.set(to.slot, mask, &first.map(|at| words[at as usize + i])),
                _ => {
                    let half = |at: usize| u64::from(words[at]);
                    let whole = |at: u32| half(at as usize + 2 * i) | half(at as usize + 2 * i + 1) << 32;
                    w.regs.set(to.slot, mask, &first.map(whole));
                }
            }
        }
        true
    }

    /// Stores whole words to shared memory, at addresses that are aligned; false if nothing is done yet.
    #[inline]
    pub(super) fn store_together(
        &mut self,
        w: &Warp,
        mask: u32,
        t: &Transfer,
        addresses: &Addresses,
        access: Access,
    ) -> bool {
        if !are_distinct(addresses, mask, t.width.bytes * t.regs.len() as u32) {
            return false;
        }
        let Some((groups, count)) = self.word_groups(mask, t, addresses) else { return false };
        let access = Access { thread: w.index * 32, ..access };
        let from =
            |r: &Option<RegisterOperand>| r.is_some_and(|r| w.regs.defined(r.bits, r.slot) & mask == mask);
        if !t.regs.iter().all(from) || !self.shared.write_groups(&groups, count, access) {
            return false;
        }
        for (i, from) in t.regs.iter().flatten().enumerate() {
            let (step, slot) = (t.width.bytes as usize * i, from.slot as usize);
            for lane in lanes(mask) {
                let offset = (addresses[lane] as u32).wrapping_sub(SHARED_BASE) as usize + step;
                let value = match from.bits {
                    64 => w.regs.w64.lanes[slot][lane],
                    _ => w.regs.w32.lanes[slot][lane].into(),
                };
                self.shared.write(offset, t.width.bytes, value);
            }
        }
        true
    }
}
