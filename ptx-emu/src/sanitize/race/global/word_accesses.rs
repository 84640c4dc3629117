//! The last accesses of the running block of a traced launch to each word of global memory.
//!
//! Words are grouped in lines of 64 bytes. A line has one record as long as all of its words were
//! last written by adjacent lanes of one warp, and read by adjacent lanes of one warp. Otherwise
//! each word has a record. The record of a word has space for one warp that reads it. Reads by
//! other warps go to a list, so that only words that warps share need one.
//!
//! Lines are grouped in pages. Pages exist only where the block has accessed memory, and later
//! blocks reuse them.

use std::ops::Range;

use rustc_hash::FxHashMap;

use crate::sanitize::race::last_access::{LastAccess, same_store};
use crate::sanitize::race::warp_view::View;

/// The number of words per line.
const LINE: usize = 16;
/// The number of lines per page.
const PAGE: u64 = 64;

/// The last accesses of a block to a word of global memory.
#[derive(Clone, Copy, Debug, Default)]
struct GlobalWord {
    write: LastAccess,
    /// The last ordinary write.
    plain: LastAccess,
    /// The reads of the first reading warp since its last synchronization.
    read: LastAccess,
    /// The number of the list of other warps' reads, starting at 1, or 0 for none.
    others: u32,
}

/// The last accesses of a block to a line. All of them were ordinary and covered the whole line.
#[derive(Clone, Copy, Debug, Default)]
struct LineAccesses {
    /// The write by the thread of the first word.
    write: LastAccess,
    /// The read by the thread of the first word.
    read: LastAccess,
    /// The number of words per thread as a power of two, for writes and for reads.
    write_shift: u8,
    read_shift: u8,
    /// The number of the records of single words, which replace this record, starting at 1, or 0
    /// for none.
    words: u32,
}

type Page = Box<[LineAccesses; PAGE as usize]>;

/// The words that a block has accessed, by address divided by 4.
#[derive(Debug, Default)]
pub(crate) struct AccessedWords {
    numbers: FxHashMap<u64, u32>,
    pages: Vec<Page>,
    /// The number of used pages. Later pages are left from an earlier block.
    used: usize,
    /// The last accessed page and its number.
    last: Option<(u64, u32)>,
    /// The records of single words of lines without a common record.
    single: Vec<[GlobalWord; LINE]>,
    others: Others,
}

/// The reads of further warps, with one list per word.
#[derive(Debug, Default)]
struct Others {
    lists: Vec<Vec<LastAccess>>,
    /// The number of reads in all lists.
    reads: usize,
}

/// The distribution of the lanes of a warp over adjacent words.
#[derive(Clone, Copy, Debug)]
pub(crate) enum LaneSpread {
    /// Each lane accesses `1 << shift` words, starting at a word and a lane.
    Beside { first: u64, lane: u32, shift: u32 },
    /// All lanes of a mask access the same words.
    Same(u32),
}

impl LaneSpread {
    /// Returns the lane that accesses a word last, and all lanes that access it.
    #[inline(always)]
    fn at(self, word: u64) -> (u32, u32) {
        match self {
            LaneSpread::Beside { first, lane, shift } => {
                let lane = lane + ((word - first) as u32 >> shift) & 31;
                (lane, 1 << lane)
            }
            LaneSpread::Same(lanes) => (31 - lanes.leading_zeros(), lanes),
        }
    }

    /// Returns the lane at the first word of a line, and the words per lane as a power of two.
    /// `None` if all lanes access the same words.
    #[inline(always)]
    fn over_line(self, word: u64) -> Option<(u32, u8)> {
        match self {
            LaneSpread::Beside { first, lane, shift } => {
                Some((lane + ((word - first) as u32 >> shift) & 31, shift as u8))
            }
            LaneSpread::Same(_) => None,
        }
    }
}

impl LineAccesses {
    /// Returns the record of one word, if the words have a common record.
    fn word(&self, i: usize) -> GlobalWord {
        let part = |last: LastAccess, shift: u8| match last.clock {
            0 => last,
            _ => LastAccess {
                thread: last.thread + (i >> shift) as u16,
                ..last
            },
        };
        let write = part(self.write, self.write_shift);
        GlobalWord {
            write,
            plain: write,
            read: part(self.read, self.read_shift),
            others: 0,
        }
    }

    /// Returns true if the words have a common record that cannot race with an access of adjacent
    /// lanes.
    #[inline(always)]
    fn is_quiet(&self, view: &View<'_>, (lane, shift): (u32, u8), writes: bool) -> bool {
        let long_ago = self.write.clock.max(self.read.clock) <= view.floor;
        self.words == 0 && (long_ago || self.is_quiet_by_far(view, (lane, shift), writes))
    }

    #[inline(never)]
    fn is_quiet_by_far(&self, view: &View<'_>, (lane, shift): (u32, u8), writes: bool) -> bool {
        let own = self.write.thread == view.new.thread + lane as u16 && self.write_shift == shift;
        (own || view.is_over(&self.write))
            && (!writes || self.read.is_of_warp(&view.new) || view.is_over(&self.read))
    }

    /// Records an ordinary access to the whole line by adjacent lanes. Returns false without
    /// recording if the words need separate records.
    #[inline(always)]
    fn keep(&mut self, new: LastAccess, shift: u8, writes: bool) -> bool {
        let may = self.words == 0 && (writes || self.read.clock == 0 || self.read.is_of_warp(&new));
        if !may {
            return false;
        }

        if writes {
            self.write = new;
            self.write_shift = shift;
        } else {
            self.read = new;
            self.read_shift = shift;
        }

        true
    }
}

impl GlobalWord {
    /// Returns true if the record cannot race with an access by these lanes.
    #[inline(always)]
    fn is_quiet(&self, view: &View<'_>, lanes: u32, writes: bool) -> bool {
        let reads = !writes
            || self.others == 0
                && (self.read.is_of_warp(&view.new) || view.is_quiet(&self.read, lanes));
        reads && view.is_quiet(&self.write, lanes)
    }

    /// Records an access.
    #[inline(always)]
    fn keep(&mut self, new: LastAccess, writes: bool, others: &mut Others) {
        if writes {
            self.write = new.after(&self.write);
            if !new.strong {
                self.plain = new.after(&self.plain);
            }
        } else if self.read.clock == 0 {
            self.read = new;
        } else if self.read.is_of_warp(&new) {
            self.read = new.with(&self.read);
        } else {
            self.keep_beside(new, others);
        }
    }

    /// Records a read by another warp than the first.
    #[inline(never)]
    fn keep_beside(&mut self, new: LastAccess, others: &mut Others) {
        if self.others == 0 {
            others.lists.push(Vec::new());
            self.others = others.lists.len() as u32;
        }
        let list = &mut others.lists[self.others as usize - 1];
        match list.iter_mut().find(|read| read.is_of_warp(&new)) {
            Some(last) => *last = new.with(last),
            None => {
                list.push(new);
                others.reads += 1;
            }
        }
    }
}

/// Splits a run of words into lines: the number of each, and the words in it.
#[inline(always)]
fn parts(run: Range<u64>) -> impl Iterator<Item = (u64, Range<usize>)> {
    let size = LINE as u64;
    let within = move |line: u64, word: u64| word.saturating_sub(line * size).min(size) as usize;
    let start = run.start;
    let end = run.end;
    (start / size..=(end - 1) / size)
        .map(move |line| (line, within(line, start)..within(line, end)))
}

impl AccessedWords {
    /// Clears the records for another block.
    pub(crate) fn clear(&mut self) {
        self.numbers.clear();
        self.single.clear();
        self.others = Others::default();
        self.used = 0;
        self.last = None;
    }

    /// Returns the size in bytes, including memory that is kept for further blocks.
    pub(crate) fn bytes(&self) -> usize {
        let single = self.single.capacity() * size_of::<[GlobalWord; LINE]>();
        let others = self.others.lists.len() * size_of::<Vec<LastAccess>>()
            + self.others.reads * size_of::<LastAccess>();
        self.pages.len() * size_of::<[LineAccesses; PAGE as usize]>() + single + others
    }

    /// Returns the number of a page and creates it if necessary.
    #[inline(always)]
    fn number(&mut self, page: u64) -> usize {
        match self.last {
            Some((known, number)) if known == page => number as usize,
            _ => self.look_up(page),
        }
    }

    #[inline(never)]
    fn look_up(&mut self, page: u64) -> usize {
        let next = self.used as u32;
        let number = *self.numbers.entry(page).or_insert(next);
        if number == next {
            match self.pages.get_mut(self.used) {
                Some(old) => old.fill(LineAccesses::default()),
                None => self
                    .pages
                    .push(Box::new([LineAccesses::default(); PAGE as usize])),
            }
            self.used += 1;
        }

        self.last = Some((page, number));
        number as usize
    }

    /// Returns a line by number.
    #[inline(always)]
    fn line(&mut self, line: u64) -> &mut LineAccesses {
        let number = self.number(line / PAGE);
        &mut self.pages[number][(line % PAGE) as usize]
    }

    /// Returns the record of a word of a line.
    fn word(&self, line: &LineAccesses, i: usize) -> GlobalWord {
        match line.words {
            0 => line.word(i),
            number => self.single[number as usize - 1][i],
        }
    }

    /// Returns the reads of a word by further warps.
    fn others_of(&self, word: &GlobalWord) -> &[LastAccess] {
        self.others
            .lists
            .get((word.others as usize).wrapping_sub(1))
            .map_or(&[], |list| list)
    }

    /// Creates separate records for the words of a line.
    fn split(&mut self, line: u64) -> u32 {
        let next = self.single.len() as u32 + 1;
        let known = self.line(line);
        if known.words == 0 {
            let words = std::array::from_fn(|i| known.word(i));
            known.words = next;
            self.single.push(words);
            return next;
        }
        known.words
    }

    /// Returns an access that races with a new one according to `races`, and whether it was a
    /// write.
    pub(crate) fn race(
        &mut self,
        word: u64,
        new: &LastAccess,
        writes: bool,
        races: impl Fn(&LastAccess) -> bool,
    ) -> Option<(LastAccess, bool)> {
        let line = *self.line(word / LINE as u64);
        let known = self.word(&line, (word % LINE as u64) as usize);
        if races(&known.write) && !(writes && same_store(&known.write, new)) {
            return Some((known.write, true));
        }
        if new.strong && races(&known.plain) {
            return Some((known.plain, true));
        }

        let mut reads = std::iter::once(&known.read).chain(self.others_of(&known));
        let read = reads.find(|read| writes && !read.is_of_warp(new) && races(read));
        read.map(|read| (*read, false))
    }

    /// Records an access to a word.
    pub(crate) fn keep(&mut self, word: u64, new: LastAccess, writes: bool) {
        let number = self.split(word / LINE as u64) as usize;
        self.single[number - 1][(word % LINE as u64) as usize].keep(new, writes, &mut self.others);
    }

    /// Returns true if the records of a run of words cannot race with an access by these lanes.
    pub(crate) fn are_quiet(
        &mut self,
        run: Range<u64>,
        view: &View<'_>,
        spread: LaneSpread,
        writes: bool,
    ) -> bool {
        !view.new.strong
            && parts(run).all(|(number, range)| {
                let first = number * LINE as u64;
                let line = *self.line(number);
                let whole = if range.len() == LINE {
                    spread.over_line(first)
                } else {
                    None
                };
                let quiet = |i: usize| {
                    self.word(&line, i)
                        .is_quiet(view, spread.at(first + i as u64).1, writes)
                };
                whole.is_some_and(|lanes| line.is_quiet(view, lanes, writes))
                    || range.clone().all(quiet)
            })
    }

    /// Records an access to a run of words.
    pub(crate) fn keep_all(
        &mut self,
        run: Range<u64>,
        view: &View<'_>,
        spread: LaneSpread,
        writes: bool,
    ) {
        for (number, range) in parts(run) {
            let first = number * LINE as u64;
            let whole = if range.len() == LINE {
                spread.over_line(first)
            } else {
                None
            };
            let as_one = |(lane, shift)| self.line(number).keep(view.at(lane), shift, writes);
            if !whole.is_some_and(as_one) {
                let words = self.split(number) as usize - 1;
                for i in range {
                    let new = view.at(spread.at(first + i as u64).0);
                    self.single[words][i].keep(new, writes, &mut self.others);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sanitize::race::order::vector_clocks::Clocks;

    /// Returns the record of a word as text.
    fn show(words: &mut AccessedWords, at: u64) -> String {
        let line = *words.line(at / LINE as u64);
        let word = words.word(&line, (at % LINE as u64) as usize);
        format!(
            "{:?} {:?}",
            GlobalWord { others: 0, ..word },
            words.others_of(&word)
        )
    }

    /// Checks that a line with one record is equivalent to separate records of its words.
    #[test]
    fn lines_are_words() {
        let mut state = 1u64;
        let mut next = |n: u64| {
            state = state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
            (state >> 33) % n
        };
        let (mut clocks, mut lines, mut words) = (
            Clocks::new(3),
            AccessedWords::default(),
            AccessedWords::default(),
        );
        let (mut whole, mut quiet_ones) = (0, 0);
        clocks.start();
        for pc in 0..400 {
            if pc % 16 == 0 {
                lines.clear();
                words.clear();
            }

            match next(6) {
                0 => clocks.barrier(&[0, 1, 2], &[0, 1, 2]),
                1 => clocks.barrier(&[0, 1], &[1]),
                _ => {}
            }

            let (warp, shift, writes) = (next(3) as u16, next(3) as u32, next(3) == 0);
            let clock = clocks.count(warp.into());
            let new = LastAccess {
                clock,
                pc,
                thread: 32 * warp,
                bytes: 15,
                strong: false,
            };
            let view = View::of(&clocks, new);

            // Lines that begin with a lane, some words of lines, and the same words for all.
            let first = 16 * next(4) + if next(4) == 0 { next(4) << shift } else { 0 };
            let (run, spread) = match next(8) {
                0 => (first..first + (1 << shift), LaneSpread::Same(u32::MAX)),
                _ => (
                    first..first + (32 << shift),
                    LaneSpread::Beside {
                        first,
                        lane: 0,
                        shift,
                    },
                ),
            };
            let mut single = |at: u64| words.are_quiet(at..at + 1, &view, spread, writes);
            let quiet = run.clone().all(&mut single);
            assert_eq!(
                lines.are_quiet(run.clone(), &view, spread, writes),
                quiet,
                "{pc}"
            );
            lines.keep_all(run.clone(), &view, spread, writes);
            run.for_each(|at| words.keep(at, view.at(spread.at(at).0), writes));
            for at in 0..208 {
                assert_eq!(show(&mut lines, at), show(&mut words, at), "{pc} {at}");
                whole +=
                    u32::from(lines.line(at / 16).words == 0 && lines.line(at / 16).read.clock > 0);
            }

            quiet_ones += u32::from(quiet);
        }

        assert!(
            whole > 10_000 && quiet_ones > 50 && quiet_ones < 350,
            "{whole} {quiet_ones}"
        );
        assert!(lines.bytes() > 0);
    }
}
