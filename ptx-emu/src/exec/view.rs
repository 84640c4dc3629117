//! Earlier accesses to memory as all lanes of a warp see them: which are ordered before, and what two reads of a word are
//! remembered.

use super::clocks::Clocks;
use super::shared::{LastAccess, remember};

/// What a warp knows of the others when it accesses memory.
pub(super) struct View<'a> {
    clocks: &'a Clocks,
    /// Counts up to this are ordered before, whichever warp they are of.
    floor: u32,
    /// What the access leaves behind, as one of the warp's first thread.
    pub(super) new: LastAccess,
}

impl<'a> View<'a> {
    pub(super) fn of(clocks: &'a Clocks, new: LastAccess) -> View<'a> {
        let seen = &clocks.seen(usize::from(new.thread) / 32)[..clocks.warps()];
        View { clocks, floor: seen.iter().copied().fold(u32::MAX, u32::min), new }
    }

    #[inline(always)]
    pub(super) fn at(&self, lane: u32) -> LastAccess {
        LastAccess { thread: self.new.thread + lane as u16, ..self.new }
    }

    #[inline(always)]
    pub(super) fn is_warps(&self, t: &LastAccess) -> bool {
        usize::from(t.thread) / 32 < self.clocks.warps()
    }

    /// Whether an earlier access is ordered before what any of these lanes does, as [`Clocks::ordered`] says for warps.
    #[inline(always)]
    fn is_over(&self, t: &LastAccess) -> bool {
        t.clock <= self.floor && self.is_warps(t) || t.clock <= self.seen(t)
    }

    #[inline]
    fn seen(&self, t: &LastAccess) -> u32 {
        let warp = usize::from(self.new.thread) / 32;
        self.clocks.seen(warp)[usize::from(t.thread) / 32].max(self.clocks.past())
    }

    /// Whether nothing is wrong if these lanes come after an access to the same bytes.
    #[inline(always)]
    pub(super) fn is_quiet(&self, t: &LastAccess, lanes: u32) -> bool {
        self.is_over(t)
            || self.new.strong && t.strong
            || lanes.is_power_of_two() && t.thread == self.new.thread + lanes.trailing_zeros() as u16
    }

    /// Remembers that these lanes have read a word, the lowest first.
    #[inline(always)]
    pub(super) fn remember(&self, reads: &mut [LastAccess; 2], lanes: u32) {
        let [a, b] = *reads;
        let lane_of = |t: &LastAccess| match t.thread / 32 == self.new.thread / 32 {
            true => lanes & 1 << (t.thread % 32),
            false => 0,
        };
        let (first, last) = (lanes.trailing_zeros(), 31 - lanes.leading_zeros());
        let now = |t: &LastAccess| t.clock == self.new.clock;
        match lane_of(&a) {
            lane if lane != 0 && now(&a) => {
                reads[0] = self.at(u32::from(a.thread % 32));
                let rest = lanes & !lane;
                if rest != 0 {
                    reads[1] = self.at(31 - rest.leading_zeros());
                }
            }
            _ if self.is_over(&a) && !(lane_of(&b) == 1 << first && now(&b)) => {
                reads[0] = self.at(first);
                if last != first {
                    reads[1] = self.at(last);
                }
            }
            0 if !self.is_over(&a) => reads[1] = self.at(last),
            _ => {
                let seen = self.clocks.seen(usize::from(self.new.thread) / 32);
                super::lanes(lanes).for_each(|lane| remember(reads, self.at(lane as u32), seen));
            }
        }
    }
}
