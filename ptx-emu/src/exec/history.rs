//! What a traced launch remembers of shared memory besides the last accesses to a word: the last read of each warp, and the
//! last write that was no strong one.
//!
//! Two reads and one write are enough to find a race under some schedule; with these it shows under every schedule in
//! which the accesses happen.

use super::clocks::Clocks;
use super::shared::{Access, LastAccess};

/// The words of a block's shared memory.
#[derive(Debug)]
pub(super) struct History {
    warps: usize,
    /// For each word and warp, its reads since it last synchronised.
    reads: Vec<LastAccess>,
    /// For each word, the last plain write.
    plain: Vec<LastAccess>,
}

impl History {
    pub(super) fn new(words: usize, warps: usize) -> History {
        let none = LastAccess::default();
        History {
            warps,
            reads: vec![none; words * warps],
            plain: vec![none; words],
        }
    }

    /// Forgets everything.
    pub(super) fn clear(&mut self) {
        self.reads.fill(LastAccess::default());
        self.plain.fill(LastAccess::default());
    }

    /// An earlier access to a word that races with a new one, by `races`, and whether it wrote.
    pub(super) fn race(
        &self,
        word: usize,
        new: &LastAccess,
        access: Access,
        races: impl Fn(&LastAccess) -> bool,
    ) -> Option<(LastAccess, bool)> {
        let plain = self.plain[word];
        if new.strong && races(&plain) {
            return Some((plain, true));
        }
        let own = usize::from(new.thread) / 32;
        let reads = self.reads[word * self.warps..][..self.warps]
            .iter()
            .enumerate();
        let mut others = reads
            .filter(|(warp, _)| access.writes && *warp != own)
            .map(|(_, read)| read);
        others.find(|read| races(read)).map(|read| (*read, false))
    }

    /// Whether no earlier access can race with a write to a word: all are such, or of its own warp.
    pub(super) fn is_quiet(
        &self,
        word: usize,
        access: Access,
        quiet: impl Fn(&LastAccess) -> bool,
    ) -> bool {
        let own = access.thread as usize / 32;
        let mut reads = self.reads[word * self.warps..][..self.warps]
            .iter()
            .enumerate();
        !access.strong && reads.all(|(warp, read)| warp == own || quiet(read))
    }

    /// Remembers an access to a word.
    pub(super) fn keep(&mut self, word: usize, new: &LastAccess, access: Access) {
        if access.writes {
            if !new.strong {
                self.plain[word] = new.after(&self.plain[word]);
            }
            return;
        }
        let last = &mut self.reads[word * self.warps + usize::from(new.thread) / 32];
        *last = new.with(last);
    }

    /// Remembers that a copy wrote a word: who comes after it comes after all that was before.
    pub(super) fn overwritten(&mut self, word: usize) {
        self.plain[word] = LastAccess::default();
        self.reads[word * self.warps..][..self.warps].fill(LastAccess::default());
    }
}

/// The history that a traced launch keeps.
pub(super) fn of(traced: bool, words: usize, clocks: &Clocks) -> Option<Box<History>> {
    traced.then(|| Box::new(History::new(words, clocks.warps())))
}
