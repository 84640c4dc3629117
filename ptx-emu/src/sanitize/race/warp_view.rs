//! Earlier accesses to memory from the view of all lanes of a warp: the accesses that are ordered
//! before, and the two reads of a word that are recorded.

use crate::sanitize::race::last_access::{LastAccess, remember};
use crate::sanitize::race::order::vector_clocks::Clocks;

/// The clock of a warp at an access to memory.
pub(crate) struct View<'a> {
    clocks: &'a Clocks,
    /// For each warp and agent, the clock up to which its accesses are ordered before.
    seen: &'a [u32],
    /// The clock up to which the accesses of all warps are ordered before.
    pub(crate) floor: u32,
    /// The access, attributed to the first thread of the warp.
    pub(crate) new: LastAccess,
}

impl<'a> View<'a> {
    pub(crate) fn of(clocks: &'a Clocks, new: LastAccess) -> View<'a> {
        View::then(clocks, &clocks.seen(usize::from(new.thread) / 32)[..], new)
    }

    /// Creates the view of an earlier access from the clock of its warp at that time.
    pub(crate) fn then(clocks: &'a Clocks, seen: &'a [u32], new: LastAccess) -> View<'a> {
        let floor = seen[..clocks.warps()]
            .iter()
            .copied()
            .fold(u32::MAX, u32::min);
        View {
            clocks,
            seen,
            floor,
            new,
        }
    }

    #[inline(always)]
    pub(crate) fn at(&self, lane: u32) -> LastAccess {
        LastAccess {
            thread: self.new.thread + lane as u16,
            ..self.new
        }
    }

    #[inline(always)]
    pub(crate) fn is_warps(&self, t: &LastAccess) -> bool {
        usize::from(t.thread) / 32 < self.clocks.warps()
    }

    /// Returns true if an earlier access is ordered before an access by any of these lanes, see
    /// [`Clocks::ordered`].
    #[inline(always)]
    pub(crate) fn is_over(&self, t: &LastAccess) -> bool {
        t.clock <= self.seen[usize::from(t.thread) / 32]
    }

    /// Returns true if an access by these lanes cannot conflict with an earlier access to the same
    /// bytes.
    #[inline(always)]
    pub(crate) fn is_quiet(&self, t: &LastAccess, lanes: u32) -> bool {
        t.clock <= self.floor && self.is_warps(t) || self.is_quiet_by_far(t, lanes)
    }

    #[inline(never)]
    fn is_quiet_by_far(&self, t: &LastAccess, lanes: u32) -> bool {
        self.is_over(t)
            || self.new.strong && t.strong
            || lanes.is_power_of_two()
                && t.thread == self.new.thread + lanes.trailing_zeros() as u16
    }

    /// Records that these lanes have read a word, lowest lane first.
    #[inline(always)]
    pub(crate) fn remember(&self, reads: &mut [LastAccess; 2], lanes: u32) {
        let [a, b] = *reads;
        let first = lanes.trailing_zeros();
        let last = 31 - lanes.leading_zeros();
        let own = |t: &LastAccess| t.thread / 32 == self.new.thread / 32;
        if a.clock <= self.floor && !(own(&b) && b.clock == self.new.clock) {
            reads[0] = self.at(first);
            if last != first {
                reads[1] = self.at(last);
            }
        } else if !own(&a) && a.clock > self.seen[usize::from(a.thread) / 32] {
            reads[1] = self.at(last);
        } else {
            self.remember_beside(reads, lanes);
        }
    }

    /// Records a read like [`View::remember`], if an earlier read may not be ordered before.
    #[inline(never)]
    fn remember_beside(&self, reads: &mut [LastAccess; 2], lanes: u32) {
        let [a, b] = *reads;
        let lane_of = |t: &LastAccess| {
            if t.thread / 32 == self.new.thread / 32 {
                lanes & 1 << (t.thread % 32)
            } else {
                0
            }
        };
        let first = lanes.trailing_zeros();
        let last = 31 - lanes.leading_zeros();
        let now = |t: &LastAccess| t.clock == self.new.clock;
        let own = lane_of(&a);
        if own != 0 && now(&a) {
            reads[0] = self.at(u32::from(a.thread % 32));
            let rest = lanes & !own;
            if rest != 0 {
                reads[1] = self.at(31 - rest.leading_zeros());
            }
        } else if self.is_over(&a) && !(lane_of(&b) == 1 << first && now(&b)) {
            reads[0] = self.at(first);
            if last != first {
                reads[1] = self.at(last);
            }
        } else if own == 0 && !self.is_over(&a) {
            reads[1] = self.at(last);
        } else {
            let seen = self.seen;
            crate::module::lane_mask::lanes(lanes)
                .for_each(|lane| remember(reads, self.at(lane as u32), seen));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Checks that recording lanes together gives the same result as recording them one by one.
    #[test]
    fn lanes_together_are_lanes_one_by_one() {
        let mut clocks = Clocks::new(3);
        clocks.barrier(&[0, 1, 2], &[0, 1, 2]);
        clocks.bump(1);
        clocks.barrier(&[0, 2], &[0, 2]);
        let read = |(clock, thread): (u32, u16)| LastAccess {
            clock,
            thread,
            bytes: 15,
            ..LastAccess::default()
        };
        let new = LastAccess {
            pc: 7,
            ..read((clocks.count(1), 32))
        };
        let view = View::of(&clocks, new);
        let threads = [1, 33, 34, 40, 63, 70];
        let earlier = || (0..5).flat_map(|clock| threads.map(|thread| read((clock, thread))));
        let mut cases = 0;
        for (a, b) in earlier().flat_map(|a| earlier().map(move |b| (a, b))) {
            for lanes in [1, 2, 6, 0x102, u32::MAX, 0x8000_0002, 0x10001] {
                let (mut together, mut one_by_one) = ([a, b], [a, b]);
                view.remember(&mut together, lanes);
                crate::module::lane_mask::lanes(lanes).for_each(|lane| {
                    remember(&mut one_by_one, view.at(lane as u32), clocks.seen(1))
                });
                assert_eq!(
                    format!("{together:?}"),
                    format!("{one_by_one:?}"),
                    "{a:?} {b:?} {lanes:x}"
                );
                cases += 1;
            }
        }

        assert_eq!(cases, 30 * 30 * 7);
    }
}
