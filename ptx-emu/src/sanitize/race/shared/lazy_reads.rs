//! Reads of shared memory that are not recorded in the words yet.
//!
//! A word records its reads for a later write that may race with them. Most reads never meet such a
//! write before the next barrier of the whole block, after which they cannot race. A read of a
//! whole warp is therefore only noted in a few numbers. Before any other access to shared memory,
//! the notes are transferred to the words, in order and with the clocks that the warps had at the
//! time. If the block has passed a barrier since, the notes are discarded.

use crate::sanitize::race::last_access::LastAccess;
use crate::sanitize::race::order::vector_clocks::Clocks;

/// The maximum number of recorded reads.
const MOST: usize = 4096;

/// The words that the lanes of a warp access, described by their first words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AccessShape {
    /// All lanes access the same words.
    Same(u32),
    /// The lower 16 lanes access the same words, and the upper 16 lanes others.
    Halves(u32, u32),
    /// The lower 16 lanes access adjacent words, and the upper 16 lanes the same ones.
    Twice(u32),
    /// All lanes access adjacent words.
    Beside(u32),
}

impl AccessShape {
    /// Returns the shape of the first words of 32 lanes that access `count` words each.
    #[inline(always)]
    pub(crate) fn of(first: &[u32; 32], count: u32) -> Option<AccessShape> {
        let low = first[0];
        let high = first[16];
        let mut halves = 0;
        let mut twice = 0;
        let mut beside = 0;
        for i in 0..16 {
            let a = first[i];
            let b = first[16 + i];
            let at = low.wrapping_add(i as u32 * count);
            halves |= (a ^ low) | (b ^ high);
            twice |= (a ^ at) | (b ^ at);
            beside |= (a ^ at) | (b ^ at.wrapping_add(16 * count));
        }

        match (halves, twice, beside) {
            (0, ..) if low == high => Some(AccessShape::Same(low)),
            (0, ..) => Some(AccessShape::Halves(low, high)),
            (_, 0, _) => Some(AccessShape::Twice(low)),
            (_, _, 0) => Some(AccessShape::Beside(low)),
            _ => None,
        }
    }

    /// Returns the words as one or two runs: the start of each, and their length.
    #[inline(always)]
    pub(crate) fn runs(self, count: usize) -> ([usize; 2], usize) {
        match self {
            AccessShape::Same(first) => ([first as usize; 2], count),
            AccessShape::Halves(low, high) => ([low as usize, high as usize], count),
            AccessShape::Twice(first) => ([first as usize; 2], 16 * count),
            AccessShape::Beside(first) => ([first as usize; 2], 32 * count),
        }
    }
}

/// A read by all lanes of a warp.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Noted {
    /// The access, attributed to the first thread of the warp.
    pub(crate) new: LastAccess,
    pub(crate) shape: AccessShape,
    /// The number of words of each lane.
    pub(crate) count: u32,
    /// The index at which the clock of the warp begins in `seen`.
    seen: u32,
}

/// The recorded reads of a block that are not in shadow memory yet.
#[derive(Debug, Default)]
pub(crate) struct Reads {
    noted: Vec<Noted>,
    /// The clocks of the warps at their reads, concatenated.
    seen: Vec<u32>,
    /// For each warp, the start of its last clock, and the number of clock changes at that time.
    latest: Vec<(u32, u64)>,
    /// The number of block barriers at the last recorded read, and at the last transfer to shadow
    /// memory.
    noted_at: u64,
    kept_at: u64,
}

impl Reads {
    /// Clears the reads for another block.
    pub(crate) fn clear(&mut self) {
        self.noted.clear();
        self.seen.clear();
        self.latest.clear();
    }

    #[inline(always)]
    pub(crate) fn is_empty(&self) -> bool {
        self.noted.is_empty()
    }

    /// Records a read by all lanes of a warp. Returns false if there is no capacity left.
    #[inline(always)]
    pub(crate) fn note(
        &mut self,
        clocks: &Clocks,
        new: LastAccess,
        shape: AccessShape,
        count: u32,
    ) -> bool {
        if self.noted_at != clocks.meetings() {
            self.clear();
            self.noted_at = clocks.meetings();
        }

        let warp = usize::from(new.thread) / 32;
        let seen = match self.latest.get(warp) {
            Some((seen, changes)) if *changes == clocks.changes() => *seen,
            _ => self.add_clock(clocks, warp),
        };
        self.noted.push(Noted {
            new,
            shape,
            count,
            seen,
        });
        self.noted.len() < MOST
    }

    #[inline(never)]
    fn add_clock(&mut self, clocks: &Clocks, warp: usize) -> u32 {
        self.latest
            .resize(clocks.warps().max(self.latest.len()), (0, u64::MAX));
        let at = self.seen.len() as u32;
        self.seen
            .extend_from_slice(&clocks.seen(warp)[..clocks.warps()]);
        self.latest[warp] = (at, clocks.changes());
        at
    }

    /// Returns true if the reads must be transferred to shadow memory.
    pub(crate) fn are_needed(&self, clocks: &Clocks) -> bool {
        self.noted_at == clocks.meetings()
    }

    /// Returns the recorded reads, each with the clock of its warp.
    pub(crate) fn noted(&self, warps: usize) -> impl Iterator<Item = (&Noted, &[u32])> {
        self.noted
            .iter()
            .map(move |noted| (noted, &self.seen[noted.seen as usize..][..warps]))
    }

    /// Removes the reads after their transfer to shadow memory.
    pub(crate) fn settled(&mut self, clocks: &Clocks) {
        if self.are_needed(clocks) {
            self.kept(clocks);
        }
        self.clear();
    }

    /// Records that a read was written to shadow memory.
    #[inline(always)]
    pub(crate) fn kept(&mut self, clocks: &Clocks) {
        self.kept_at = clocks.meetings();
    }

    /// Returns true if all reads in shadow memory are ordered before a later block barrier.
    #[inline(always)]
    pub(crate) fn are_over(&self, clocks: &Clocks) -> bool {
        self.kept_at != clocks.meetings()
    }
}
