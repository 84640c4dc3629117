//! Who touched each element of global memory in a traced launch, for races between blocks.
//!
//! An element remembers its last plain write, the strong writes since, and the plain reads since. A plain write that is
//! ordered after all of them takes their place. Sets of reads and writes are numbered, and equal sets share a number:
//! where all blocks read a vector, its elements have one set.
//!
//! Strong reads are not remembered: a plain write after one is found by a schedule that runs the writer first.

use std::ops::Range;

use rustc_hash::FxHashMap;

use super::block_order::Stamp;
use crate::accesses::MemoryOperation;

/// Bytes a page of owners covers.
const PAGE: u64 = 4096;

/// Bytes of the largest element of a page, as a shift: what 32 lanes access side by side.
const LARGEST: u32 = 7;

/// Number of a stamp, or of a set of stamps; 0 for none.
type Id = u32;

/// Stamps by number, and sets of them: each set is another with one stamp more.
#[derive(Debug, Default)]
struct Sets {
    stamps: Vec<Stamp>,
    /// For each warp number, the stamp it had last.
    latest: Vec<Id>,
    /// The set without the stamp, and the stamp.
    sets: Vec<(Id, Id)>,
    numbers: FxHashMap<(Id, Id), Id>,
    /// The last insertion: set, stamp, result.
    last: (Id, Id, Id),
    /// The last set all of which was ordered before a warp of a block: set, block, warp.
    ordered: (Id, u32, u32),
}

/// The elements of one page.
#[derive(Debug, Default)]
struct Page {
    /// Elements have `1 << shift` bytes.
    shift: u32,
    readers: Vec<Id>,
    writers: Vec<Id>,
    strong: Vec<Id>,
}

/// The elements of global memory that a launch has touched.
#[derive(Debug, Default)]
pub(crate) struct Owners {
    pages: Pages,
    sets: Sets,
}

/// The pages by number: those that were touched.
#[derive(Debug, Default)]
struct Pages {
    places: FxHashMap<u64, u32>,
    pages: Vec<Page>,
    /// The page that was looked up last, and its place.
    last: Option<(u64, u32)>,
    /// Elements that all of them have room for: of reads, of writes and of strong ones.
    elements: usize,
}

impl Pages {
    /// Lets `f` change a page.
    #[inline(always)]
    fn with<R>(&mut self, number: u64, f: impl FnOnce(&mut Page) -> R) -> R {
        let page = self.get(number);
        let before = page.elements_in_all();
        let result = f(page);
        let more = page.elements_in_all() - before;
        self.elements += more;
        result
    }

    #[inline(always)]
    fn get(&mut self, number: u64) -> &mut Page {
        match self.last {
            Some((known, place)) if known == number => &mut self.pages[place as usize],
            _ => self.look_up(number),
        }
    }

    #[inline(never)]
    fn look_up(&mut self, number: u64) -> &mut Page {
        let next = self.pages.len() as u32;
        let place = *self.places.entry(number).or_insert(next);
        if place == next {
            self.pages.push(Page::default());
        }
        self.last = Some((number, place));
        &mut self.pages[place as usize]
    }
}

impl Sets {
    /// The number of a stamp.
    fn stamp(&mut self, stamp: Stamp) -> Id {
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

    fn get(&self, stamp: Id) -> Stamp {
        self.stamps[stamp as usize - 1]
    }

    /// The stamp that was added last to a set.
    fn top(&self, set: Id) -> Id {
        self.sets[set as usize - 1].1
    }

    /// The set with one stamp more.
    fn with(&mut self, set: Id, stamp: Id) -> Id {
        let next = self.sets.len() as Id + 1;
        let number = *self.numbers.entry((set, stamp)).or_insert(next);
        if number == next {
            self.sets.push((set, stamp));
        }
        number
    }

    /// Adds a stamp. It replaces an earlier one of the same warp if only stamps of the same block lie above it.
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
        let (mut rest, mut others) = (set, Vec::new());
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

    /// Whether all of a set is ordered before what a warp of a block does now.
    fn all_ordered(&mut self, set: Id, me: Stamp, ordered: &mut impl FnMut(Stamp) -> bool) -> bool {
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

/// An access of another block that is not ordered before one.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OwnersRace {
    pub(crate) wrote: bool,
    /// Whether the block's own strong access is the last one before its plain store.
    pub(crate) reset: bool,
}

impl Owners {
    /// Bytes that all this takes.
    pub(super) fn bytes(&self) -> usize {
        let pages =
            self.pages.pages.len() * size_of::<Page>() + self.pages.elements * size_of::<Id>();
        let sets = self.sets.sets.len() * (size_of::<(Id, Id)>() + size_of::<(Id, Id, Id)>());
        pages + sets + self.sets.stamps.len() * size_of::<Stamp>()
    }

    /// Notes an access to up to 32 bytes; gives what another block did to them that is not ordered before. `ordered` says whether what a stamp's warp did then is ordered before.
    pub(crate) fn touch(
        &mut self,
        address: u64,
        bytes: u32,
        (me, operation): (Stamp, MemoryOperation),
        mut ordered: impl FnMut(Stamp) -> bool,
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
    /// Whether an access to words side by side is ordered after what other blocks did to them.
    pub(crate) fn are_quiet(
        &mut self,
        bytes: Range<u64>,
        (me, operation): (Stamp, MemoryOperation),
        ordered: &mut impl FnMut(Stamp) -> bool,
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

    /// Notes an access to words side by side, of which [`Owners::are_quiet`] was true.
    pub(crate) fn note(&mut self, bytes: Range<u64>, (me, operation): (Stamp, MemoryOperation)) {
        let stamp = self.sets.stamp(me);
        for (number, part) in parts(bytes) {
            let sets = &mut self.sets;
            self.pages.with(number, |page| {
                page.note(sets, page.elements(part), stamp, operation)
            });
        }
    }
}

/// The parts of a run of bytes in pages: the number of each, and bytes in it.
fn parts(bytes: Range<u64>) -> impl Iterator<Item = (u64, Range<usize>)> {
    let within = |page: u64, address: u64| address.saturating_sub(page * PAGE).min(PAGE) as usize;
    let (start, end) = (bytes.start, bytes.end);
    (start / PAGE..=(end - 1) / PAGE)
        .map(move |page| (page, within(page, start)..within(page, end)))
}

fn at(list: &[Id], i: usize) -> Id {
    list.get(i).copied().unwrap_or(0)
}

impl Page {
    /// Makes elements at most `1 << shift` bytes.
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

    fn put(&mut self, list: fn(&mut Page) -> &mut Vec<Id>, i: usize, id: Id) {
        let elements = (PAGE >> self.shift) as usize;
        let list = list(self);
        if list.is_empty() {
            list.resize(elements, 0);
        }
        list[i] = id;
    }

    /// Whether an access races with one of another block that wrote, or that read.
    fn races(
        &self,
        sets: &mut Sets,
        i: usize,
        me: Stamp,
        operation: MemoryOperation,
        ordered: &mut impl FnMut(Stamp) -> bool,
    ) -> Option<OwnersRace> {
        let writer = at(&self.writers, i);
        if writer != 0 && !ordered(sets.get(writer)) {
            return Some(OwnersRace {
                wrote: true,
                reset: false,
            });
        }
        let (strong, readers) = (at(&self.strong, i), at(&self.readers, i));
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

    /// Elements that the lists have room for.
    fn elements_in_all(&self) -> usize {
        self.readers.len() + self.writers.len() + self.strong.len()
    }

    /// The elements that hold some bytes of the page.
    fn elements(&self, bytes: Range<usize>) -> Range<usize> {
        bytes.start >> self.shift..bytes.end.div_ceil(1 << self.shift)
    }

    /// Whether an access to some elements races with none of another block.
    fn is_quiet(
        &self,
        sets: &mut Sets,
        mut elements: Range<usize>,
        me: Stamp,
        operation: MemoryOperation,
        ordered: &mut impl FnMut(Stamp) -> bool,
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
        (me, stamp): (Stamp, Id),
        operation: MemoryOperation,
        ordered: &mut impl FnMut(Stamp) -> bool,
    ) -> Option<OwnersRace> {
        let race = self.races(sets, i, me, operation, ordered);
        self.note(sets, i..i + 1, stamp, operation);
        race
    }

    /// Notes an access to some elements.
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
