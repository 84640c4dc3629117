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
    words: [u32; 32],
    lanes: [u32; 32],
    count: usize,
    /// Whether each group's word is above the last one's.
    rising: bool,
}

/// Each lane alone, and with the one 16 lanes on.
const SINGLE: [u32; 32] = shifted(1);
const PAIRS: [u32; 32] = shifted(0x10001);

const fn shifted(lanes: u32) -> [u32; 32] {
    let (mut all, mut i) = ([0; 32], 0);
    while i < 32 {
        all[i] = lanes << i;
        i += 1;
    }
    all
}

impl Groups {
    /// The lanes of a mask by their words, of which lanes that take no part have the first lane's.
    #[inline(always)]
    fn of(words: &[u32; 32], mask: u32) -> Groups {
        let (low, high) = words.split_at(16);
        let apart = |half: &[u32]| half.iter().fold(0, |all, word| all | (word ^ half[0]));
        // Numbers of words are small enough to have a sign, and signed comparisons are what processors have for vectors.
        let signed = |(a, b): (&u32, &u32)| i32::from(*a as i32 >= *b as i32);
        let falls = |half: &[u32]| half.iter().zip(&half[1..]).fold(0, |any, pair| any | signed(pair)) != 0;
        let differ = low.iter().zip(high).fold(0, |all, (a, b)| all | (a ^ b));
        match mask {
            u32::MAX if apart(words) == 0 => {
                Groups { words: *words, lanes: [u32::MAX; 32], count: 1, rising: true }
            }
            u32::MAX if differ == 0 && !falls(low) => {
                Groups { words: *words, lanes: PAIRS, count: 16, rising: true }
            }
            u32::MAX if !falls(words) => Groups { words: *words, lanes: SINGLE, count: 32, rising: true },
            _ => Groups::of_runs(words, mask),
        }
    }

    /// Lanes side by side that access the same words.
    fn of_runs(words: &[u32; 32], mask: u32) -> Groups {
        let mut groups = Groups { words: [0; 32], lanes: [0; 32], count: 0, rising: false };
        let mut begins = 1;
        (1..32).for_each(|i| begins |= u32::from(words[i] != words[i - 1]) << i);
        while begins != 0 {
            let first = begins.trailing_zeros();
            begins &= begins - 1;
            let end = (u64::MAX << begins.trailing_zeros()) as u32;
            let lanes = mask & u32::MAX << first & !end;
            groups.words[groups.count] = words[first as usize];
            groups.lanes[groups.count] = lanes;
            groups.count += usize::from(lanes != 0);
        }
        groups
    }

    /// The first word, where groups of so many words each lie side by side, in order.
    fn dense(&self, count: usize) -> Option<usize> {
        let (first, last) = (self.words[0] as usize, *self.words.get(self.count.wrapping_sub(1))? as usize);
        (self.rising && last == first + (self.count - 1) * count).then_some(first)
    }

    fn iter(&self) -> impl Iterator<Item = (usize, u32)> {
        let all = self.words.iter().zip(&self.lanes).take(self.count);
        all.map(|(word, lanes)| (*word as usize, *lanes))
    }
}

impl Shared {
    /// Checks that lanes may read the words of their groups, and remembers that they did; false, and nothing remembered, if
    /// something may be wrong.
    fn read_groups(&mut self, groups: &Groups, count: usize, access: Access) -> bool {
        let view = View::of(&self.clocks, self.stamp(access, 15));
        let may = |(first, lanes): (usize, u32)| {
            let mut cells = self.cells[first..first + count].iter();
            self.are_written(first, count) && cells.all(|cell| view.is_quiet(&cell.write, lanes))
        };
        let quiet = || match groups.dense(count) {
            Some(first) if self.are_over(first, groups.count * count, &view) => true,
            _ => groups.iter().all(may),
        };
        if access.strong && self.history.is_some() || !quiet() {
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

    /// Whether all bytes of some words may be read.
    #[inline(always)]
    fn are_written(&self, first: usize, count: usize) -> bool {
        let (valid, init) = (&self.valid[first..first + count], &self.init[first..first + count]);
        valid.iter().zip(init).fold(15, |all, (valid, init)| all & valid & init) == 15
    }

    /// Whether some words may be read, and their last writes are all by threads and ordered before.
    #[inline(always)]
    fn are_over(&self, first: usize, count: usize, view: &View<'_>) -> bool {
        let mut last = (0, 0);
        for cell in &self.cells[first..first + count] {
            last = (last.0.max(cell.write.clock), last.1.max(cell.write.thread));
        }
        self.are_written(first, count)
            && last.0 <= view.floor
            && usize::from(last.1) / 32 < self.clocks.warps()
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
        let quiet = |(first, lane): (usize, u32)| (first..first + count).all(|word| may((word, lane)));
        if !self.async_readers.is_empty() || !groups.iter().all(quiet) {
            return false;
        }
        for (first, lane) in groups.iter() {
            let new = view.at(lane.trailing_zeros());
            for word in first..first + count {
                self.cells[word].write = new;
                self.init[word] = 15;
                if let Some(pattern) = self.patterns.get_mut(word) {
                    *pattern = 0;
                }
                if let Some(history) = &mut self.history {
                    history.keep(word, &new, access);
                }
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
    /// How many words each lane accesses, and its first one, if lanes access whole words of their own block.
    #[inline(always)]
    fn words_of(&self, t: &Transfer, addresses: &Addresses) -> Option<(usize, [u32; 32])> {
        let count = (t.width.bytes / 4) as usize * t.regs.len();
        if self.blocks.len() > 1 || !are_whole(&t.regs, t.width.bytes) {
            return None;
        }
        let end = (self.shared.words.len() as u64).checked_sub(count as u64)?;
        let index = |address: u64| address.wrapping_sub(SHARED_BASE.into()) / 4;
        let outside = addresses.iter().fold(false, |any, a| any | (index(*a) > end));
        let mut first = [0; 32];
        first.iter_mut().zip(addresses).for_each(|(first, a)| *first = index(*a) as u32);
        (!outside).then_some((count, first))
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
        let Some((count, first)) = self.words_of(t, addresses) else { return false };
        let groups = Groups::of(&first, mask);
        let access = Access { thread: w.index * 32, ..access };
        if !self.shared.read_groups(&groups, count, access) {
            return false;
        }
        let words = &self.shared.words[..];
        for (i, to) in t.regs.iter().enumerate() {
            let Some(to) = to else { continue };
            match t.width.bytes {
                4 => {
                    let mut out = [0; 32];
                    out.iter_mut().zip(&first).for_each(|(out, at)| *out = words[*at as usize + i]);
                    w.regs.set(to.slot, mask, &out);
                }
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
        let Some((count, first)) = self.words_of(t, addresses) else { return false };
        let groups = Groups::of(&first, mask);
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
