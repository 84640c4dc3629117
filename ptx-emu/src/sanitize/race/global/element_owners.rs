//! Who touched each element of global memory in a traced launch, for races between blocks.
//!
//! An element remembers its last plain write, the strong writes since, and the plain reads since. A
//! plain write that is ordered after all of them takes their place. Sets of reads and writes are
//! numbered, and equal sets share a number: where all blocks read a vector, its elements have one
//! set.
//!
//! Strong reads are not remembered: a plain write after one is found by a schedule that runs the
//! writer first.

use std::ops::Range;

use rustc_hash::FxHashMap;

use crate::sanitize::race::global::launch_accesses::MemoryOperation;
use crate::sanitize::race::order::block_order::WarpStamp;

/// The number of bytes per page.
const PAGE: u64 = 4096;

/// The size of the largest element as a power of two. It is the size of a coalesced access by 32
/// lanes.
const LARGEST: u32 = 7;

/// The index of a stamp or of a set of stamps, or 0 for none.
type Id = u32;

/// Stamps and sets of stamps by index. A set is another set plus one stamp.
#[derive(Debug, Default)]
struct Sets {
    stamps: Vec<WarpStamp>,
    /// The last stamp of each warp.
    latest: Vec<Id>,
    /// The set without the stamp, and the stamp.
    sets: Vec<(Id, Id)>,
    numbers: FxHashMap<(Id, Id), Id>,
    /// The last insertion: the set, the stamp and the result.
    last: (Id, Id, Id),
    /// The last set that was completely ordered before a warp: the set, the block and the warp.
    ordered: (Id, u32, u32),
}

/// The elements of one page.
#[derive(Debug, Default)]
struct OwnerPage {
    /// The size of an element is `1 << shift` bytes.
    shift: u32,
    readers: Vec<Id>,
    writers: Vec<Id>,
    strong: Vec<Id>,
}

/// The elements of global memory that a launch has accessed.
#[derive(Debug, Default)]
pub(crate) struct Owners {
    pages: OwnerPages,
    sets: Sets,
}

/// The accessed pages by number.
#[derive(Debug, Default)]
struct OwnerPages {
    places: FxHashMap<u64, u32>,
    pages: Vec<OwnerPage>,
    /// The last accessed page and its index.
    last: Option<(u64, u32)>,
    /// The total capacity of all elements: reads, writes and strong accesses.
    elements: usize,
}

impl OwnerPages {
    /// Calls `f` with a page.
    #[inline(always)]
    fn with<R>(&mut self, number: u64, f: impl FnOnce(&mut OwnerPage) -> R) -> R {
        let page = self.get(number);
        let before = page.elements_in_all();
        let result = f(page);
        let more = page.elements_in_all() - before;
        self.elements += more;
        result
    }

    #[inline(always)]
    fn get(&mut self, number: u64) -> &mut OwnerPage {
        match self.last {
            Some((known, place)) if known == number => &mut self.pages[place as usize],
            _ => self.look_up(number),
        }
    }

    #[inline(never)]
    fn look_up(&mut self, number: u64) -> &mut OwnerPage {
        let next = self.pages.len() as u32;
        let place = *self.places.entry(number).or_insert(next);
        if place == next {
            self.pages.push(OwnerPage::default());
        }
        self.last = Some((number, place));
        &mut self.pages[place as usize]
    }
}

impl Sets {
    /// Returns the index of a stamp.
    fn stamp(&mut self, stamp: WarpStamp) -> Id {
        let warp = stamp.warp as usize;
        if warp >= self.latest.len() {
            self.latest.resize(warp + 1, 0);
        }

        let known = self.latest[warp];
        if known != 0 && self.stamps[known as usize - 1] == stamp {
            return known;
        }

        self.stamps.push(stamp);
        self.latest[warp] = self.stamps.len() as Id;
        self.latest[warp]
    }

    fn get(&self, stamp: Id) -> WarpStamp {
        self.stamps[stamp as usize - 1]
    }

    /// Returns the last added stamp of a set.
    fn top(&self, set: Id) -> Id {
        self.sets[set as usize - 1].1
    }

    /// Returns a set with one more stamp.
    fn with(&mut self, set: Id, stamp: Id) -> Id {
        let next = self.sets.len() as Id + 1;
        let number = *self.numbers.entry((set, stamp)).or_insert(next);
        if number == next {
            self.sets.push((set, stamp));
        }
        number
    }

    /// Adds a stamp. It replaces an earlier stamp of the same warp if only stamps of the same block
    /// are above it.
    #[inline]
    fn insert(&mut self, set: Id, stamp: Id) -> Id {
        if self.last.0 == set && self.last.1 == stamp {
            return self.last.2;
        }
        self.insert_anew(set, stamp)
    }

    fn insert_anew(&mut self, set: Id, stamp: Id) -> Id {
        if set != 0 && self.sets[set as usize - 1].1 == stamp {
            return set;
        }

        let new = self.get(stamp);
        let mut rest = set;
        let mut others = Vec::new();
        while rest != 0 {
            let (below, top) = self.sets[rest as usize - 1];
            let owner = self.get(top);
            if owner.block != new.block {
                break;
            }
            if owner.warp != new.warp {
                others.push(top);
            }
            rest = below;
        }

        let kept = others
            .iter()
            .rev()
            .fold(rest, |set, top| self.with(set, *top));
        let result = self.with(kept, stamp);
        self.last = (set, stamp, result);
        result
    }

    /// Returns true if all stamps of a set are ordered before the next access of a warp.
    fn all_ordered(
        &mut self,
        set: Id,
        me: WarpStamp,
        ordered: &mut impl FnMut(WarpStamp) -> bool,
    ) -> bool {
        let key = (set, me.block, me.warp);
        if set == 0 || self.ordered == key {
            return true;
        }

        let mut rest = set;
        while rest != 0 {
            let (below, top) = self.sets[rest as usize - 1];
            if !ordered(self.get(top)) {
                return false;
            }
            rest = below;
        }

        self.ordered = key;
        true
    }
}

/// An unordered access of another block.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OwnersRace {
    pub(crate) wrote: bool,
    /// Whether the last access before the ordinary store is a strong access of the block itself.
    pub(crate) reset: bool,
}

impl Owners {
    /// Returns the size of all data in bytes.
    pub(crate) fn bytes(&self) -> usize {
        let pages =
            self.pages.pages.len() * size_of::<OwnerPage>() + self.pages.elements * size_of::<Id>();
        let sets = self.sets.sets.len() * (size_of::<(Id, Id)>() + size_of::<(Id, Id, Id)>());
        pages + sets + self.sets.stamps.len() * size_of::<WarpStamp>()
    }

    /// Records an access to up to 32 bytes and returns an unordered access of another block.
    ///
    /// `ordered` tells whether the accesses of a stamp are ordered before this one.
    pub(crate) fn touch(
        &mut self,
        address: u64,
        bytes: u32,
        (me, operation): (WarpStamp, MemoryOperation),
        mut ordered: impl FnMut(WarpStamp) -> bool,
    ) -> Option<OwnersRace> {
        let stamp = self.sets.stamp(me);
        let sets = &mut self.sets;
        self.pages.with(address / PAGE, |page| {
            page.refine(bytes.trailing_zeros().min(2));
            let first = (address % PAGE) as usize >> page.shift;
            let count = (bytes as usize >> page.shift).max(1);
            (first..first + count).fold(None, |found, i| {
                found.or(page.touch(sets, i, (me, stamp), operation, &mut ordered))
            })
        })
    }
}

impl Owners {
    /// Returns true if an access to adjacent words is ordered after all accesses of other blocks.
    pub(crate) fn are_quiet(
        &mut self,
        bytes: Range<u64>,
        (me, operation): (WarpStamp, MemoryOperation),
        ordered: &mut impl FnMut(WarpStamp) -> bool,
    ) -> bool {
        let shift = (bytes.start | bytes.end).trailing_zeros().min(LARGEST);
        parts(bytes).all(|(number, part)| {
            let sets = &mut self.sets;
            self.pages.with(number, |page| {
                page.refine(shift);
                page.is_quiet(sets, page.elements(part), me, operation, ordered)
            })
        })
    }

    /// Records an access to adjacent words for which [`Owners::are_quiet`] returned true.
    pub(crate) fn note(
        &mut self,
        bytes: Range<u64>,
        (me, operation): (WarpStamp, MemoryOperation),
    ) {
        let stamp = self.sets.stamp(me);
        for (number, part) in parts(bytes) {
            let sets = &mut self.sets;
            self.pages.with(number, |page| {
                page.note(sets, page.elements(part), stamp, operation)
            });
        }
    }
}

/// Splits a byte range into pages: the number of each page, and the bytes in it.
fn parts(bytes: Range<u64>) -> impl Iterator<Item = (u64, Range<usize>)> {
    let within = |page: u64, address: u64| address.saturating_sub(page * PAGE).min(PAGE) as usize;
    let start = bytes.start;
    let end = bytes.end;
    (start / PAGE..=(end - 1) / PAGE)
        .map(move |page| (page, within(page, start)..within(page, end)))
}

fn at(list: &[Id], i: usize) -> Id {
    list.get(i).copied().unwrap_or(0)
}

impl OwnerPage {
    /// Splits the elements so that each has at most `1 << shift` bytes.
    fn refine(&mut self, shift: u32) {
        let elements = (PAGE >> shift) as usize;
        if self.readers.is_empty() {
            self.shift = shift;
            self.readers.resize(elements, 0);
        } else if shift < self.shift {
            let times = 1 << (self.shift - shift);
            for list in [&mut self.readers, &mut self.writers, &mut self.strong] {
                *list = list
                    .iter()
                    .flat_map(|owner| std::iter::repeat_n(*owner, times))
                    .collect();
            }
            self.shift = shift;
        }
    }

    fn put(&mut self, list: fn(&mut OwnerPage) -> &mut Vec<Id>, i: usize, id: Id) {
        let elements = (PAGE >> self.shift) as usize;
        let list = list(self);
        if list.is_empty() {
            list.resize(elements, 0);
        }
        list[i] = id;
    }

    /// Returns an access of another block that races, and whether it was a write.
    fn races(
        &self,
        sets: &mut Sets,
        i: usize,
        me: WarpStamp,
        operation: MemoryOperation,
        ordered: &mut impl FnMut(WarpStamp) -> bool,
    ) -> Option<OwnersRace> {
        let writer = at(&self.writers, i);
        if writer != 0 && !ordered(sets.get(writer)) {
            return Some(OwnersRace {
                wrote: true,
                reset: false,
            });
        }

        let strong = at(&self.strong, i);
        let readers = at(&self.readers, i);
        if !operation.is_strong() && !sets.all_ordered(strong, me, ordered) {
            let last = sets.get(sets.top(strong));
            return Some(OwnersRace {
                wrote: true,
                reset: last.block == me.block,
            });
        }

        let reads = operation.writes() && !sets.all_ordered(readers, me, ordered);
        reads.then_some(OwnersRace {
            wrote: false,
            reset: false,
        })
    }

    /// Returns the total capacity of the element lists.
    fn elements_in_all(&self) -> usize {
        self.readers.len() + self.writers.len() + self.strong.len()
    }

    /// Returns the elements that contain some bytes of the page.
    fn elements(&self, bytes: Range<usize>) -> Range<usize> {
        bytes.start >> self.shift..bytes.end.div_ceil(1 << self.shift)
    }

    /// Returns true if an access to some elements does not race with another block.
    fn is_quiet(
        &self,
        sets: &mut Sets,
        mut elements: Range<usize>,
        me: WarpStamp,
        operation: MemoryOperation,
        ordered: &mut impl FnMut(WarpStamp) -> bool,
    ) -> bool {
        // Neighbours mostly have the same owners.
        let mut last = None;
        elements.all(|i| {
            let owners = (
                at(&self.writers, i),
                at(&self.strong, i),
                at(&self.readers, i),
            );
            let same = last.replace(owners) == Some(owners);
            same || self.races(sets, i, me, operation, ordered).is_none()
        })
    }

    fn touch(
        &mut self,
        sets: &mut Sets,
        i: usize,
        (me, stamp): (WarpStamp, Id),
        operation: MemoryOperation,
        ordered: &mut impl FnMut(WarpStamp) -> bool,
    ) -> Option<OwnersRace> {
        let race = self.races(sets, i, me, operation, ordered);
        self.note(sets, i..i + 1, stamp, operation);
        race
    }

    /// Records an access to some elements.
    fn note(
        &mut self,
        sets: &mut Sets,
        elements: Range<usize>,
        stamp: Id,
        operation: MemoryOperation,
    ) {
        match operation {
            MemoryOperation::Read | MemoryOperation::ReadOnly => {
                self.readers[elements]
                    .iter_mut()
                    .for_each(|set| *set = sets.insert(*set, stamp));
            }
            MemoryOperation::Atomic | MemoryOperation::StrongWrite | MemoryOperation::Release => {
                for i in elements {
                    let set = sets.insert(at(&self.strong, i), stamp);
                    self.put(|page| &mut page.strong, i, set);
                }
            }
            MemoryOperation::Write => {
                if self.writers.is_empty() {
                    self.writers.resize((PAGE >> self.shift) as usize, 0);
                }
                self.writers[elements.clone()].fill(stamp);
                self.readers[elements.clone()].fill(0);
                if !self.strong.is_empty() {
                    self.strong[elements].fill(0);
                }
            }
            MemoryOperation::StrongRead | MemoryOperation::Acquire => {}
        }
    }
}
