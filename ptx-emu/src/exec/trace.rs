//! The record of a traced launch: bytes by instruction, and the last blocks that touched each element.
//!
//! A traced launch runs its blocks one after another on one thread. Two blocks that touch the same bytes,
//! one of them writing, race whatever order they happened to run in, unless the first released its writes
//! (a fence, then an atomic or strong store) and the second acquired (an atomic or strong load before). That
//! test does not ask at which address they met, so it may miss a race in kernels that synchronise blocks.
//! Within a block, threads are ordered as for [shared memory](super::shared).

use std::collections::{BTreeSet, HashMap, HashSet};

use super::shared::{Access, Shared, Touch, same_store};
use crate::accesses::{Accesses, ByteSet, Deed, Site, Trigger};
use crate::fault::Place;
use crate::memory::Allocation;

/// More than one block.
const MANY: u32 = u32::MAX;

/// Bytes a page of owners covers.
const PAGE: u64 = 4096;

/// The record of one launch.
#[derive(Debug, Default)]
pub(crate) struct Recorder {
    /// By instruction, allocation, and whether `griddepcontrol.wait` came before.
    sites: HashMap<(u32, u64, bool), (Deed, ByteSet)>,
    pages: HashMap<u64, Page>,
    /// Number of the block that runs, from 1.
    block: u32,
    /// Blocks that have begun.
    begun: u32,
    released: HashSet<u32>,
    fenced: bool,
    acquired: bool,
    /// For each warp of the running block, its count when it executed `griddepcontrol.wait`; 0 for never.
    waits: Vec<u32>,
    /// Blocks in which some thread executed it.
    blocks_waited: u32,
    /// `griddepcontrol.launch_dependents`: instruction, and whether the warp had waited.
    triggers: BTreeSet<(u32, bool)>,
    /// The last write of the running block to each word, by word address.
    pub(crate) writes: HashMap<u64, Touch>,
}

/// What a recorder knows of a block that has begun and not ended.
#[derive(Debug)]
pub(crate) struct Suspended {
    block: u32,
    fenced: bool,
    acquired: bool,
    waits: Vec<u32>,
    writes: HashMap<u64, Touch>,
}

/// Who touched the elements of one page: number of the block, 0 for nobody.
#[derive(Debug, Default)]
struct Page {
    /// Elements have `1 << shift` bytes.
    shift: u32,
    readers: Vec<u32>,
    writers: Vec<u32>,
    atomics: Vec<u32>,
}

/// Somebody else who touched the same bytes, and whether by writing.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rival {
    pub(crate) wrote: bool,
    pub(crate) pc: Option<u32>,
    /// The thread, when it is one of the same block.
    pub(crate) thread: Option<u16>,
}

impl Recorder {
    /// The next block begins.
    pub(crate) fn start(&mut self) {
        self.begun += 1;
        self.block = self.begun;
        (self.fenced, self.acquired) = (false, false);
        self.writes.clear();
        self.waits.clear();
    }

    /// Takes what is only of the running block, so that another may run.
    pub(crate) fn suspend(&mut self) -> Suspended {
        let Recorder { block, fenced, acquired, waits, writes, .. } = self;
        Suspended {
            block: *block,
            fenced: *fenced,
            acquired: *acquired,
            waits: std::mem::take(waits),
            writes: std::mem::take(writes),
        }
    }

    /// Goes on with a block.
    pub(crate) fn resume(&mut self, own: Suspended) {
        let Suspended { block, fenced, acquired, waits, writes } = own;
        (self.block, self.fenced, self.acquired) = (block, fenced, acquired);
        (self.waits, self.writes) = (waits, writes);
    }

    /// A warp executes `griddepcontrol.wait`.
    pub(crate) fn wait(&mut self, shared: &Shared, warp: u32) {
        self.blocks_waited += u32::from(self.waits.is_empty());
        self.waits.resize(shared.warps(), 0);
        let clock = &mut self.waits[warp as usize];
        *clock = if *clock == 0 { shared.count(warp) } else { *clock };
    }

    /// A warp executes `griddepcontrol.launch_dependents`.
    pub(crate) fn trigger(&mut self, shared: &Shared, warp: u32, pc: u32) {
        self.triggers.insert((pc, self.waited(shared, warp)));
    }

    /// Whether what a warp does now comes after `griddepcontrol.wait`: its own, or one of another warp that
    /// is ordered before.
    fn waited(&self, shared: &Shared, warp: u32) -> bool {
        let known = |(other, clock): (usize, &u32)| {
            *clock != 0 && (other == warp as usize || shared.knows(warp, other, *clock))
        };
        self.waits.iter().enumerate().any(known)
    }

    /// The running block executes a fence.
    pub(crate) fn fence(&mut self) {
        self.fenced = true;
    }

    /// The running block executes an atomic or a strong access, which may synchronise it with others.
    pub(crate) fn synchronise(&mut self, writes: bool) {
        self.acquired = true;
        if writes && self.fenced {
            self.released.insert(self.block);
        }
    }

    /// Records an access of a warp; gives the block it races with.
    pub(crate) fn record(
        &mut self,
        (shared, warp): (&Shared, u32),
        pc: u32,
        deed: Deed,
        a: &Allocation,
        offset: u64,
        bytes: u32,
    ) -> Option<Rival> {
        let key = (pc, a.base, self.waited(shared, warp));
        let site = self.sites.entry(key).or_insert_with(|| (deed, ByteSet::default()));
        site.1.insert(offset, bytes);
        if deed == Deed::Write {
            self.released.remove(&self.block);
        }
        let page = self.pages.entry((a.base + offset) / PAGE).or_default();
        let shift = bytes.trailing_zeros().min(2);
        page.refine(shift);
        let first = ((a.base + offset) % PAGE) as usize >> page.shift;
        let count = (bytes as usize >> page.shift).max(1);
        let (block, acquired, released) = (self.block, self.acquired, &self.released);
        let ordered = |other: u32| other == block || acquired && other != MANY && released.contains(&other);
        let wrote =
            (first..first + count).fold(None, |found, i| found.or(page.touch(i, block, deed, &ordered)))?;
        Some(Rival { wrote, pc: self.culprit(a.base, offset, wrote), thread: None })
    }

    /// Finds an unordered write of the running block to the same bytes, and notes a new one. Reads are not
    /// noted: a write after an unordered read is found by a schedule that runs the writer first.
    pub(crate) fn within_block(
        &mut self,
        shared: &Shared,
        access: Access,
        address: u64,
        bytes: u32,
    ) -> Option<Rival> {
        let mask = if bytes >= 4 { 15 } else { ((1 << bytes) - 1) << (address % 4) };
        let new = shared.stamp(access, mask);
        for word in address / 4..address / 4 + u64::from(bytes.div_ceil(4)) {
            let last = self.writes.get(&word).copied().unwrap_or_default();
            if shared.races(&last, &new) && !(access.writes && same_store(&last, &new)) {
                return Some(Rival { wrote: true, pc: Some(last.pc), thread: Some(last.thread) });
            }
            if access.writes {
                self.writes.insert(word, new.after(&last));
            }
        }
        None
    }

    /// An instruction that did it.
    fn culprit(&self, base: u64, offset: u64, wrote: bool) -> Option<u32> {
        let did = |(deed, bytes): &(Deed, ByteSet)| deed.writes() == wrote && bytes.contains(offset);
        self.sites.iter().filter(|((_, b, _), site)| *b == base && did(site)).map(|((pc, ..), _)| *pc).min()
    }

    /// The record as the caller sees it, in order of instruction and address.
    pub(crate) fn finish(
        self,
        kernel: &str,
        place: impl Fn(u32) -> Place,
        find: impl Fn(u64) -> Option<crate::AllocationInfo>,
    ) -> Accesses {
        let mut sites: Vec<Site> = self
            .sites
            .into_iter()
            .filter_map(|((pc, base, waited), (deed, bytes))| {
                Some(Site { place: place(pc), pc, deed, allocation: find(base)?, waited, bytes })
            })
            .collect();
        sites.sort_by_key(|s| (s.pc, s.allocation.base, s.waited));
        let trigger = |(pc, waited)| Trigger { place: place(pc), waited };
        Accesses {
            kernel: kernel.into(),
            sites,
            waited: self.blocks_waited == self.begun,
            triggers: self.triggers.into_iter().map(trigger).collect(),
        }
    }
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
            for list in [&mut self.readers, &mut self.writers, &mut self.atomics] {
                *list = list.iter().flat_map(|block| std::iter::repeat_n(*block, times)).collect();
            }
            self.shift = shift;
        }
    }

    /// Notes an access to one element; gives whether the other block, if there is one, wrote.
    fn touch(&mut self, i: usize, block: u32, deed: Deed, ordered: &impl Fn(u32) -> bool) -> Option<bool> {
        let rival = |list: &[u32]| list.get(i).is_some_and(|other| *other != 0 && !ordered(*other));
        let wrote = rival(&self.writers) || !deed.is_strong() && rival(&self.atomics);
        let read = deed.writes() && rival(&self.readers);
        let list = match deed {
            Deed::Read | Deed::ReadOnly => &mut self.readers,
            Deed::Write => &mut self.writers,
            Deed::Atomic | Deed::StrongWrite | Deed::Release => &mut self.atomics,
            Deed::StrongRead | Deed::Acquire => return wrote.then_some(true),
        };
        if list.is_empty() {
            list.resize((PAGE >> self.shift) as usize, 0);
        }
        list[i] = if list[i] == 0 || list[i] == block { block } else { MANY };
        if wrote || read { Some(wrote) } else { None }
    }
}
