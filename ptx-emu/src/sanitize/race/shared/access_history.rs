//! Additional records of shared memory in a traced launch: the last read of each warp, and the last
//! write that was not strong.
//!
//! Two reads and one write per word are enough to find a race under some schedule. With these
//! records, it is found under every schedule in which the accesses happen.

use crate::sanitize::race::last_access::{AccessProperties, LastAccess};
use crate::sanitize::race::order::vector_clocks::Clocks;

/// The access history of the words of shared memory.
#[derive(Debug)]
pub(crate) struct AccessHistory {
    warps: usize,
    /// The reads of each word by each warp since its last synchronization.
    reads: Vec<LastAccess>,
    /// The last ordinary write of each word.
    plain: Vec<LastAccess>,
}

impl AccessHistory {
    pub(crate) fn new(words: usize, warps: usize) -> AccessHistory {
        let none = LastAccess::default();
        AccessHistory {
            warps,
            reads: vec![none; words * warps],
            plain: vec![none; words],
        }
    }

    /// Clears the history.
    pub(crate) fn clear(&mut self) {
        self.reads.fill(LastAccess::default());
        self.plain.fill(LastAccess::default());
    }

    /// Returns an earlier access to a word that races with a new one according to `races`, and
    /// whether it was a write.
    pub(crate) fn race(
        &self,
        word: usize,
        new: &LastAccess,
        access: AccessProperties,
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

    /// Returns true if no earlier access can race with a write to a word.
    pub(crate) fn is_quiet(
        &self,
        word: usize,
        access: AccessProperties,
        quiet: impl Fn(&LastAccess) -> bool,
    ) -> bool {
        let own = access.thread as usize / 32;
        let mut reads = self.reads[word * self.warps..][..self.warps]
            .iter()
            .enumerate();
        !access.strong && reads.all(|(warp, read)| warp == own || quiet(read))
    }

    /// Records an access to a word.
    pub(crate) fn keep(&mut self, word: usize, new: &LastAccess, access: AccessProperties) {
        if access.writes {
            if !new.strong {
                self.plain[word] = new.after(&self.plain[word]);
            }
            return;
        }
        let last = &mut self.reads[word * self.warps + usize::from(new.thread) / 32];
        *last = new.with(last);
    }

    /// Records that a copy wrote a word. An access after the copy is also ordered after all earlier
    /// accesses.
    pub(crate) fn overwritten(&mut self, word: usize) {
        self.plain[word] = LastAccess::default();
        self.reads[word * self.warps..][..self.warps].fill(LastAccess::default());
    }
}

/// Creates the history of a traced launch, or returns `None` if the launch is not traced.
pub(crate) fn of(traced: bool, words: usize, clocks: &Clocks) -> Option<Box<AccessHistory>> {
    traced.then(|| Box::new(AccessHistory::new(words, clocks.warps())))
}
