//! Accesses of a whole warp to words of shared memory, checked and recorded together.

use crate::sanitize::race::last_access::{AccessProperties, LastAccess};
use crate::sanitize::race::shared::lazy_reads::AccessShape;
use crate::sanitize::race::shared::shared_shadow::SharedShadow;
use crate::sanitize::race::warp_view::View;

/// Groups of lanes that access the same words, by first word. The words of the lanes ascend.
pub(crate) struct WordGroups {
    words: [u32; 32],
    lanes: [u32; 32],
    count: usize,
    /// Whether the words of the groups ascend.
    rising: bool,
}

/// The masks of single lanes, and of pairs of lanes 16 apart.
const SINGLE: [u32; 32] = shifted(1);

pub(crate) const PAIRS: [u32; 32] = shifted(0x10001);

pub(crate) const fn shifted(lanes: u32) -> [u32; 32] {
    let mut all = [0; 32];
    let mut i = 0;
    while i < 32 {
        all[i] = lanes << i;
        i += 1;
    }
    all
}

impl WordGroups {
    /// Groups the lanes of a mask by their words. Inactive lanes have the word of the first active
    /// lane.
    #[inline(always)]
    pub(crate) fn of(words: &[u32; 32], mask: u32) -> WordGroups {
        let (low, high) = words.split_at(16);
        let apart = |half: &[u32]| half.iter().fold(0, |all, word| all | (word ^ half[0]));

        // Word indices fit into 31 bits, and vector units of CPUs have signed comparisons.
        let signed = |(a, b): (&u32, &u32)| i32::from(*a as i32 >= *b as i32);
        let falls = |half: &[u32]| {
            half.iter()
                .zip(&half[1..])
                .fold(0, |any, pair| any | signed(pair))
                != 0
        };
        let differ = low.iter().zip(high).fold(0, |all, (a, b)| all | (a ^ b));
        match mask {
            u32::MAX if apart(words) == 0 => WordGroups {
                words: *words,
                lanes: [u32::MAX; 32],
                count: 1,
                rising: true,
            },
            u32::MAX if differ == 0 && !falls(low) => WordGroups {
                words: *words,
                lanes: PAIRS,
                count: 16,
                rising: true,
            },
            u32::MAX if !falls(words) => WordGroups {
                words: *words,
                lanes: SINGLE,
                count: 32,
                rising: true,
            },
            _ => WordGroups::of_runs(words, mask),
        }
    }

    /// Returns the groups of a shape with `count` words each.
    pub(crate) fn of_shape(shape: AccessShape, count: u32) -> WordGroups {
        let beside = |first: u32| std::array::from_fn(|i| first + i as u32 * count);
        let (words, lanes, groups) = match shape {
            AccessShape::Same(first) => ([first; 32], [u32::MAX; 32], 1),
            AccessShape::Halves(first, _) => ([first; 32], [0xffff; 32], 2),
            AccessShape::Twice(first) => (beside(first), PAIRS, 16),
            AccessShape::Beside(first) => (beside(first), SINGLE, 32),
        };
        let mut groups = WordGroups {
            words,
            lanes,
            count: groups,
            rising: groups != 2,
        };
        if let AccessShape::Halves(_, second) = shape {
            groups.words[1] = second;
            groups.lanes[1] = 0xffff_0000;
        }

        groups
    }

    /// Groups neighboring lanes that access the same words.
    fn of_runs(words: &[u32; 32], mask: u32) -> WordGroups {
        let mut groups = WordGroups {
            words: [0; 32],
            lanes: [0; 32],
            count: 0,
            rising: false,
        };
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

    /// Returns the first word if the groups access `count` adjacent words each, in order.
    fn dense(&self, count: usize) -> Option<usize> {
        let first = self.words[0] as usize;
        let last = *self.words.get(self.count.wrapping_sub(1))? as usize;
        (self.rising && last == first + (self.count - 1) * count).then_some(first)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (usize, u32)> {
        let all = self.words.iter().zip(&self.lanes).take(self.count);
        all.map(|(word, lanes)| (*word as usize, *lanes))
    }
}

impl SharedShadow {
    /// Checks and records a read by groups of lanes. Returns false without recording if there may
    /// be an error.
    pub(crate) fn read_groups(
        &mut self,
        groups: &WordGroups,
        count: usize,
        access: AccessProperties,
    ) -> bool {
        self.settle();
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

        self.remember(groups, count, view.new, None);
        true
    }

    /// Records a read by groups of lanes. `seen` is the clock of the warp at the read, if it has
    /// changed since.
    fn remember(
        &mut self,
        groups: &WordGroups,
        count: usize,
        new: LastAccess,
        seen: Option<&[u32]>,
    ) {
        self.reads.kept(&self.clocks);
        let view = match seen {
            Some(seen) => View::then(&self.clocks, seen, new),
            None => View::of(&self.clocks, new),
        };
        let access = AccessProperties {
            reads: true,
            strong: new.strong,
            ..AccessProperties::default()
        };
        let warp = usize::from(new.thread) / 32;
        let warps = self.clocks.warps();
        for (first, lanes) in groups.iter() {
            for word in first..first + count {
                let cell = &mut self.cells[word];
                if !view.is_warps(&cell.write) {
                    self.readers[word * warps + warp] = (new.clock, new.pc);
                    continue;
                }
                view.remember(&mut cell.reads, lanes);
                if let Some(history) = &mut self.history {
                    history.keep(word, &view.at(31 - lanes.leading_zeros()), access);
                }
            }
        }
    }

    /// Transfers the recorded reads to the cells of the words.
    #[inline(always)]
    pub(crate) fn settle(&mut self) {
        if !self.reads.is_empty() {
            self.settle_now();
        }
    }

    #[inline(never)]
    fn settle_now(&mut self) {
        let mut reads = std::mem::take(&mut self.reads);
        let needed = reads.are_needed(&self.clocks);
        for (noted, seen) in reads.noted(self.clocks.warps()).filter(|_| needed) {
            let groups = WordGroups::of_shape(noted.shape, noted.count);
            self.remember(&groups, noted.count as usize, noted.new, Some(seen));
        }
        reads.settled(&self.clocks);
        self.reads = reads;
    }

    /// Checks and records a read by a shape. Returns false without recording if there may be an
    /// error.
    #[inline(always)]
    pub(crate) fn note_read(
        &mut self,
        shape: AccessShape,
        count: usize,
        access: AccessProperties,
    ) -> bool {
        let view = View::of(&self.clocks, self.stamp(access, 15));
        let ([low, high], words) = shape.runs(count);
        let over = self.last_write <= view.floor;
        let may = |first: usize| {
            if over {
                self.are_written(first, words)
            } else {
                self.are_over(first, words, &view)
            }
        };
        let quiet = may(low) && (low == high || may(high));
        let new = view.new;
        if quiet && !self.reads.note(&self.clocks, new, shape, count as u32) {
            self.settle_now();
        }

        quiet
    }

    /// Returns true if all bytes of some words are initialized and accessible.
    #[inline(always)]
    fn are_written(&self, first: usize, count: usize) -> bool {
        let valid = &self.valid[first..first + count];
        let init = &self.init[first..first + count];
        let ((valid, rest), (init, more)) = (valid.as_chunks::<16>(), init.as_chunks::<16>());
        let mut all = [15u8; 16];
        for (valid, init) in valid.iter().zip(init) {
            all.iter_mut()
                .zip(valid.iter().zip(init))
                .for_each(|(all, (valid, init))| *all &= valid & init);
        }

        let rest = rest
            .iter()
            .zip(more)
            .fold(15, |all, (valid, init)| all & valid & init);
        all.iter().fold(rest, |all, part| all & part) == 15
    }

    /// Returns true if some words may be read, and their last writes are by threads and ordered
    /// before.
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

    /// Checks and records a store by groups of lanes whose words differ. Returns false without
    /// recording if there may be an error.
    pub(crate) fn write_groups(
        &mut self,
        groups: &WordGroups,
        count: usize,
        access: AccessProperties,
    ) -> bool {
        self.settle();
        let view = View::of(&self.clocks, self.stamp(access, 15));
        let unread =
            self.reads.are_over(&self.clocks) && !(access.strong && self.history.is_some());
        let history = self.history.as_ref().filter(|_| !unread);
        let may = |(word, lane): (usize, u32)| {
            let cell = &self.cells[word];
            self.valid[word] == 15
                && view.is_warps(&cell.write)
                && view.is_quiet(&cell.write, lane)
                && (unread || cell.reads.iter().all(|read| view.is_quiet(read, lane)))
                && history.is_none_or(|h| h.is_quiet(word, access, |t| view.is_quiet(t, lane)))
        };
        let quiet =
            |(first, lane): (usize, u32)| (first..first + count).all(|word| may((word, lane)));
        if !self.async_readers.is_empty() || !groups.iter().all(quiet) {
            return false;
        }

        self.last_write = self.last_write.max(view.new.clock);
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::module::address_space::SHARED_BASE;
    use crate::module::code::SharedRegion;

    const WORDS: u32 = 128;

    /// The first words of the lanes of some shape, and how many each has.
    fn first_words(kind: u64, at: [u32; 2], count: u32) -> [u32; 32] {
        std::array::from_fn(|lane| match kind {
            0 => at[0],
            1 => at[lane / 16],
            2 => at[0] % 64 + lane as u32 % 16 * count,
            _ => at[0] % 64 + lane as u32 * count,
        })
    }

    fn memory(traced: bool) -> SharedShadow {
        let region = SharedRegion {
            name: "x".into(),
            address: SHARED_BASE,
            bytes: 4 * WORDS,
            dynamic: false,
        };
        let mut shared = SharedShadow::new(&[region], 0, [3, 1], traced);
        shared.start();
        let access = AccessProperties {
            writes: true,
            ..AccessProperties::default()
        };
        (0..WORDS).for_each(|word| {
            _ = shared
                .touch(u64::from(SHARED_BASE + 4 * word), 4, access)
                .unwrap()
        });
        shared.clocks.barrier(&[0, 1, 2], &[0, 1, 2]);
        shared
    }

    /// Applies the same accesses to memory that notes reads and to memory that records reads
    /// immediately, until they disagree or find a race. Returns true if a race was found.
    fn run(mut next: impl FnMut(u64) -> u64, traced: bool) -> bool {
        let [mut noting, mut plain] = [memory(traced), memory(traced)];
        for pc in 1..60 {
            let (warp, at) = (next(3) as u32, [next(120) as u32, next(120) as u32]);
            let access = AccessProperties {
                pc,
                thread: 32 * warp,
                reads: true,
                ..AccessProperties::default()
            };
            match next(16) {
                0 => [&mut noting, &mut plain].map(|s| s.clocks.barrier(&[0, 1, 2], &[0, 1, 2])),
                1 => [&mut noting, &mut plain].map(|s| s.clocks.barrier(&[0, 1], &[0, 1])),
                2 => {
                    [&mut noting, &mut plain].map(|s| s.clocks.sync_lanes(warp, u32::MAX, u32::MAX))
                }
                3 => {
                    let thread = 32 * warp + next(32) as u32;
                    let access = AccessProperties {
                        thread,
                        writes: true,
                        reads: false,
                        ..access
                    };
                    let address = u64::from(SHARED_BASE + 4 * at[0]);
                    let done = [&mut noting, &mut plain].map(|s| s.touch(address, 4, access));
                    assert_eq!(format!("{:?}", done[0]), format!("{:?}", done[1]), "{pc}");
                    if done[0].is_err() {
                        return true;
                    }

                    [(); 2]
                }
                _ => {
                    let count = 1 + next(2) as u32;
                    let first = first_words(next(4), at, count);
                    let (shape, groups) = (
                        AccessShape::of(&first, count).unwrap(),
                        WordGroups::of(&first, u32::MAX),
                    );
                    let same = WordGroups::of_shape(shape, count);
                    assert_eq!(
                        groups.iter().collect::<Vec<_>>(),
                        same.iter().collect::<Vec<_>>(),
                        "{first:?}"
                    );
                    let noted = noting.note_read(shape, count as usize, access);
                    let done = noted || noting.read_groups(&groups, count as usize, access);
                    assert_eq!(
                        done,
                        plain.read_groups(&groups, count as usize, access),
                        "{pc}"
                    );
                    if !done {
                        return true;
                    }

                    [(); 2]
                }
            };
        }
        false
    }

    #[test]
    fn noted_reads_are_found_as_others() {
        let mut state = 1u64;
        let mut next = |n: u64| {
            state = state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
            (state >> 33) % n
        };
        for traced in [false, true] {
            let races = (0..300).filter(|_| run(&mut next, traced)).count();
            assert!((100..290).contains(&races), "{races}");
        }
    }
}
