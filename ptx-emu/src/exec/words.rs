//! What the running block of a traced launch did last to each word of global memory.
//!
//! Words lie in pages, which exist where the block has accessed memory and are used again by later blocks. A word has
//! room for one warp that reads it; the reads of others go to a list, so that only words that warps share have one.

use rustc_hash::FxHashMap;

use super::shared::{LastAccess, same_store};

/// Words of a page.
const PAGE: u64 = 64;

/// The last accesses of a block to a word of global memory.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Word {
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

impl Word {
    /// Whether no earlier access can race with a new one: those that could are quiet, as `quiet` says.
    pub(super) fn is_quiet(
        &self,
        new: &LastAccess,
        writes: bool,
        quiet: impl Fn(&LastAccess) -> bool,
    ) -> bool {
        let reads = !writes || self.others == 0 && (self.read.is_of_warp(new) || quiet(&self.read));
        reads && !new.strong && quiet(&self.write)
    }
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
    #[inline]
    pub(super) fn at(&mut self, word: u64) -> &mut Word {
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
    #[inline]
    pub(super) fn keep(&mut self, word: u64, new: LastAccess, writes: bool) {
        let known = self.at(word);
        if writes {
            known.write = new.after(&known.write);
            if !new.strong {
                known.plain = new.after(&known.plain);
            }
        } else if known.read.clock == 0 {
            known.read = new;
        } else if known.read.is_of_warp(&new) {
            known.read = new.with(&known.read);
        } else {
            self.keep_beside(word, new);
        }
    }

    /// Remembers a read of a warp that is not the first.
    fn keep_beside(&mut self, word: u64, new: LastAccess) {
        let next = self.shared.len() as u32 + 1;
        let known = self.at(word);
        let number = if known.others == 0 { next } else { known.others };
        known.others = number;
        if number == next {
            self.shared.push(Vec::new());
        }
        let list = &mut self.shared[number as usize - 1];
        match list.iter_mut().find(|read| read.is_of_warp(&new)) {
            Some(last) => *last = new.with(last),
            None => list.push(new),
        }
    }
}
