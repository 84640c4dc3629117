//! Reads of shared memory that are not remembered by the words yet.
//!
//! A word remembers its reads for a later write that may race with them. After a barrier of the whole block they are over,
//! and mostly no word was written before. So a read of a whole warp is only noted, in a few numbers. Before anything else
//! happens to shared memory, the words get to know what was noted, in order and with what the warps knew then; if the
//! block has met at a barrier since, nobody needs it.

use super::clocks::Clocks;
use super::shared::LastAccess;

/// Reads that are noted at most.
const MOST: usize = 4096;

/// The words that the lanes of a warp access, so many each, by the first ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Shape {
    /// All lanes the same.
    Same(u32),
    /// The lower 16 lanes the same, and the upper ones.
    Halves(u32, u32),
    /// The lower 16 lanes side by side, and the upper ones the same words.
    Twice(u32),
    /// All lanes side by side.
    Beside(u32),
}

impl Shape {
    /// The shape of the first words of 32 lanes that access so many each.
    #[inline(always)]
    pub(super) fn of(first: &[u32; 32], count: u32) -> Option<Shape> {
        let (low, high) = (first[0], first[16]);
        let (mut halves, mut twice, mut beside) = (0, 0, 0);
        for i in 0..16 {
            let (a, b, at) = (first[i], first[16 + i], low.wrapping_add(i as u32 * count));
            halves |= (a ^ low) | (b ^ high);
            twice |= (a ^ at) | (b ^ at);
            beside |= (a ^ at) | (b ^ at.wrapping_add(16 * count));
        }
        match (halves, twice, beside) {
            (0, ..) if low == high => Some(Shape::Same(low)),
            (0, ..) => Some(Shape::Halves(low, high)),
            (_, 0, _) => Some(Shape::Twice(low)),
            (_, _, 0) => Some(Shape::Beside(low)),
            _ => None,
        }
    }

    /// The words, in one or two runs: where each begins, and how many there are.
    #[inline(always)]
    pub(super) fn runs(self, count: usize) -> ([usize; 2], usize) {
        match self {
            Shape::Same(first) => ([first as usize; 2], count),
            Shape::Halves(low, high) => ([low as usize, high as usize], count),
            Shape::Twice(first) => ([first as usize; 2], 16 * count),
            Shape::Beside(first) => ([first as usize; 2], 32 * count),
        }
    }
}

/// A read of all lanes of a warp.
#[derive(Clone, Copy, Debug)]
pub(super) struct Noted {
    /// As one of the warp's first thread.
    pub(super) new: LastAccess,
    pub(super) shape: Shape,
    /// Words of each lane.
    pub(super) count: u32,
    /// Where what the warp knew of the others begins.
    seen: u32,
}

/// The reads of a block that are noted.
#[derive(Debug, Default)]
pub(super) struct Reads {
    noted: Vec<Noted>,
    /// What warps knew of the others, one clock after another.
    seen: Vec<u32>,
    /// For each warp, where its last clock begins, and how often clocks had changed.
    latest: Vec<(u32, u64)>,
    /// Barriers at which the block had met when the last one was noted, and when the last one was remembered.
    noted_at: u64,
    kept_at: u64,
}

impl Reads {
    /// Forgets all, for another block.
    pub(super) fn clear(&mut self) {
        self.noted.clear();
        self.seen.clear();
        self.latest.clear();
    }

    #[inline(always)]
    pub(super) fn is_empty(&self) -> bool {
        self.noted.is_empty()
    }

    /// Notes a read of all lanes of a warp; false if there is no room.
    #[inline(always)]
    pub(super) fn note(
        &mut self,
        clocks: &Clocks,
        new: LastAccess,
        shape: Shape,
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

    /// Whether the words must get to know what is noted.
    pub(super) fn are_needed(&self, clocks: &Clocks) -> bool {
        self.noted_at == clocks.meetings()
    }

    /// What is noted, each with what the warp knew of so many warps.
    pub(super) fn noted(&self, warps: usize) -> impl Iterator<Item = (&Noted, &[u32])> {
        self.noted
            .iter()
            .map(move |noted| (noted, &self.seen[noted.seen as usize..][..warps]))
    }

    /// The words have got to know all that is noted, as far as it is needed.
    pub(super) fn settled(&mut self, clocks: &Clocks) {
        if self.are_needed(clocks) {
            self.kept(clocks);
        }
        self.clear();
    }

    /// The words have got to know a read.
    #[inline(always)]
    pub(super) fn kept(&mut self, clocks: &Clocks) {
        self.kept_at = clocks.meetings();
    }

    /// Whether all that the words know of is over, as the block has met since.
    #[inline(always)]
    pub(super) fn are_over(&self, clocks: &Clocks) -> bool {
        self.kept_at != clocks.meetings()
    }
}
