//! What the running block of a traced launch did last to each word of global memory.
//!
//! Words lie in pages, which exist where the block has accessed memory and are used again by later blocks. A word has
//! room for one warp that reads it; the reads of others go to a list, so that only words that warps share have one.

use std::ops::Range;

use rustc_hash::FxHashMap;

use super::shared::{LastAccess, same_store};
use super::view::View;

/// Words of a page.
const PAGE: u64 = 64;

/// The last accesses of a block to a word of global memory.
#[derive(Clone, Copy, Debug, Default)]
struct Word {
    write: LastAccess,
    /// The last write that was no strong one.
    plain: LastAccess,
    /// The reads of the warp that read it first, since it last synchronised.
    read: LastAccess,
    /// The list of those of other warps, from 1; 0 for none.
    others: u32,
}

type Page = Box<[Word; PAGE as usize]>;

/// The words that a block has accessed, by their address divided by 4.
#[derive(Debug, Default)]
pub(super) struct Words {
    numbers: FxHashMap<u64, u32>,
    pages: Vec<Page>,
    /// Pages in use; those behind are left from an earlier block.
    used: usize,
    /// The page that was looked up last, and its number.
    last: Option<(u64, u32)>,
    /// Reads of further warps of a word, one list after another in use.
    shared: Vec<Vec<LastAccess>>,
}

/// How the lanes of a warp lie on words side by side.
#[derive(Clone, Copy, Debug)]
pub(super) enum Spread {
    /// Each lane on `1 << shift` words, from a word and a lane on.
    Beside { first: u64, lane: u32, shift: u32 },
    /// All of these on the same ones.
    Same(u32),
}

impl Spread {
    /// The lane that accesses a word last, and all that do.
    #[inline(always)]
    fn at(self, word: u64) -> (u32, u32) {
        match self {
            Spread::Beside { first, lane, shift } => {
                let lane = lane + ((word - first) as u32 >> shift) & 31;
                (lane, 1 << lane)
            }
            Spread::Same(lanes) => (31 - lanes.leading_zeros(), lanes),
        }
    }
}

impl Word {
    /// Whether nothing that happened to it can race with what lanes do.
    #[inline(always)]
    fn is_quiet(&self, view: &View<'_>, lanes: u32, writes: bool) -> bool {
        let reads = !writes
            || self.others == 0 && (self.read.is_of_warp(&view.new) || view.is_quiet(&self.read, lanes));
        reads && view.is_quiet(&self.write, lanes)
    }

    /// Remembers an access.
    #[inline(always)]
    fn keep(&mut self, new: LastAccess, writes: bool, shared: &mut Vec<Vec<LastAccess>>) {
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
            self.keep_beside(new, shared);
        }
    }

    /// Remembers a read of a warp that is not the first.
    #[inline(never)]
    fn keep_beside(&mut self, new: LastAccess, shared: &mut Vec<Vec<LastAccess>>) {
        if self.others == 0 {
            shared.push(Vec::new());
            self.others = shared.len() as u32;
        }
        let list = &mut shared[self.others as usize - 1];
        match list.iter_mut().find(|read| read.is_of_warp(&new)) {
            Some(last) => *last = new.with(last),
            None => list.push(new),
        }
    }
}

/// The parts of a run of words in pages.
fn parts(run: Range<u64>) -> impl Iterator<Item = (u64, Range<usize>)> {
    let within = move |page: u64, word: u64| word.saturating_sub(page * PAGE).min(PAGE) as usize;
    let (start, end) = (run.start, run.end);
    (start / PAGE..=(end - 1) / PAGE).map(move |page| (page, within(page, start)..within(page, end)))
}

impl Words {
    /// Forgets everything, for another block.
    pub(super) fn clear(&mut self) {
        self.numbers.clear();
        self.shared.clear();
        (self.used, self.last) = (0, None);
    }

    /// The page of a word, which is made where there is none.
    fn number(&mut self, page: u64) -> u32 {
        if let Some((known, number)) = self.last
            && known == page
        {
            return number;
        }
        let next = self.used as u32;
        let number = *self.numbers.entry(page).or_insert(next);
        if number == next {
            match self.pages.get_mut(self.used) {
                Some(old) => **old = [Word::default(); PAGE as usize],
                None => self.pages.push(Box::new([Word::default(); PAGE as usize])),
            }
            self.used += 1;
        }
        self.last = Some((page, number));
        number
    }

    /// The word at an address divided by 4.
    fn at(&mut self, word: u64) -> &mut Word {
        let number = self.number(word / PAGE);
        &mut self.pages[number as usize][(word % PAGE) as usize]
    }

    /// An access that races with a new one, by `races`, and whether it wrote.
    pub(super) fn race(
        &mut self,
        word: u64,
        new: &LastAccess,
        writes: bool,
        races: impl Fn(&LastAccess) -> bool,
    ) -> Option<(LastAccess, bool)> {
        let known = *self.at(word);
        if races(&known.write) && !(writes && same_store(&known.write, new)) {
            return Some((known.write, true));
        }
        if new.strong && races(&known.plain) {
            return Some((known.plain, true));
        }
        let others = self.shared.get((known.others as usize).wrapping_sub(1)).map_or(&[][..], |list| list);
        let mut reads = std::iter::once(&known.read).chain(others);
        let read = reads.find(|read| writes && !read.is_of_warp(new) && races(read));
        read.map(|read| (*read, false))
    }

    /// Remembers an access to a word.
    pub(super) fn keep(&mut self, word: u64, new: LastAccess, writes: bool) {
        let number = self.number(word / PAGE) as usize;
        self.pages[number][(word % PAGE) as usize].keep(new, writes, &mut self.shared);
    }

    /// Whether nothing that happened to a run of words can race with what lanes do.
    pub(super) fn are_quiet(
        &mut self,
        run: Range<u64>,
        view: &View<'_>,
        spread: Spread,
        writes: bool,
    ) -> bool {
        !view.new.strong
            && parts(run).all(|(page, range)| {
                let (number, first) = (self.number(page), page * PAGE + range.start as u64);
                let words = &self.pages[number as usize][range];
                words.iter().zip(first..).all(|(word, at)| word.is_quiet(view, spread.at(at).1, writes))
            })
    }

    /// Remembers an access to a run of words.
    pub(super) fn keep_all(&mut self, run: Range<u64>, view: &View<'_>, spread: Spread, writes: bool) {
        for (page, range) in parts(run) {
            let (number, first) = (self.number(page), page * PAGE + range.start as u64);
            let words = &mut self.pages[number as usize][range];
            for (word, at) in words.iter_mut().zip(first..) {
                word.keep(view.at(spread.at(at).0), writes, &mut self.shared);
            }
        }
    }
}
