//! Shadow memory and race detection for the shared memory of a block: bounds, initialization and
//! the last accesses.
//!
//! Races are found with [vector clocks](crate::sanitize::race::order::vector_clocks). Each word
//! records its last write and two reads by different threads. Two are enough to find a race,
//! because at least one of two unordered readers is not the writer. A traced launch keeps
//! [more](crate::sanitize::race::shared::access_history), to find the race under every schedule.
//!
//! A copy that completes on an mbarrier writes as the agent of that mbarrier in its current phase.
//! A thread that has waited for the phase is ordered after the write. Bytes that a copy wrote
//! record the last read of each warp, because the next copy must come after all of them.
//!
//! Bulk copies and `wgmma` access memory through another proxy than the threads. Accesses to memory
//! that a bulk copy overwrites must be ordered before the copy. If a thread made them, they must
//! also be known to [that proxy](Clocks::proxied), because an arrival at an mbarrier alone lets the
//! copy overtake loads. Reads by copies and `wgmma` are recorded separately from reads by threads,
//! because they do not need the fence.
//!
//! The bytes of an mbarrier, and bytes with a pending copy, count as outside of every variable.

pub(crate) use crate::module::address_space::SHARED_BASE;
use crate::module::code::SharedRegion;
use crate::sanitize::race::last_access::{
    AccessProperties, LastAccess, Proxy, remember, same_store,
};
use crate::sanitize::race::order::vector_clocks::Clocks;
use crate::sanitize::race::shared::access_history;
use crate::sanitize::race::shared::access_history::AccessHistory;
use crate::sanitize::race::shared::lazy_reads::Reads;

/// The maximum number of agents per block.
pub(crate) const MOST_AGENTS: usize = 1024;

/// The number of bytes after which every swizzle pattern repeats.
const PATTERN: u32 = 1024;

/// The recorded accesses to a word.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Cell {
    pub(crate) write: LastAccess,
    pub(crate) reads: [LastAccess; 2],
}

/// The writer of the bytes of a copy.
#[derive(Clone, Copy, Debug)]
pub(crate) enum CopyWriter {
    Thread(u32),
    Agent(usize),
}

/// The reason why an access is wrong.
#[derive(Clone, Copy, Debug)]
pub(crate) enum AccessError {
    Outside,
    Uninitialised { byte: u32 },
    Race { other: LastAccess, wrote: bool },
}

/// The shadow memory of the shared memory of a cluster.
#[derive(Debug)]
pub(crate) struct SharedShadow {
    /// The bytes of each word that are accessible, and those that are initialized.
    pub(crate) valid: Vec<u8>,
    pub(crate) init: Vec<u8>,
    /// The bytes of each word that belong to a variable.
    layout: Vec<u8>,
    /// The distance in bytes between the memories of two blocks of the cluster.
    stride: u32,
    /// The swizzle of each word's last tensor copy in units of 16 bytes. Empty before the first
    /// copy.
    pub(crate) patterns: Vec<u8>,
    /// Whether `valid` has changed since the block began.
    covered: bool,
    pub(crate) clocks: Clocks,
    /// For each word and warp, the clock and the instruction of the last read since a copy wrote
    /// the word. Empty before the first copy.
    pub(crate) readers: Vec<(u32, u32)>,
    /// For each word and warp, the last read by a copy or a `wgmma`. Empty before the first one.
    pub(crate) async_readers: Vec<LastAccess>,
    pub(crate) cells: Vec<Cell>,
    /// The largest clock of a write.
    pub(crate) last_write: u32,
    /// Reads that are not in the cells yet.
    pub(crate) reads: Reads,
    /// The additional history of a traced launch.
    pub(crate) history: Option<Box<AccessHistory>>,
}

impl SharedShadow {
    /// Creates the memory for the variables of each block.
    pub(crate) fn new(
        regions: &[SharedRegion],
        dynamic: u32,
        [warps, blocks]: [u32; 2],
        traced: bool,
    ) -> SharedShadow {
        let size = |r: &SharedRegion| if r.dynamic { dynamic } else { r.bytes };
        let end = regions
            .iter()
            .filter(|r| size(r) > 0)
            .map(|r| r.address + size(r))
            .max()
            .unwrap_or(SHARED_BASE);
        let words = (end - SHARED_BASE).div_ceil(4) as usize;

        // The gap between blocks belongs to none of them, and the addresses of all blocks are
        // aligned equally.
        let stride = if blocks > 1 {
            (4 * words as u32 + 1).next_multiple_of(PATTERN)
        } else {
            u32::MAX
        };
        let mut valid = vec![0; words];
        for r in regions.iter().filter(|r| size(r) > 0) {
            let start = (r.address - SHARED_BASE) as usize;
            let end = start + size(r) as usize;
            // Whole words at once: a launch has up to 58,000.
            let first = start.next_multiple_of(4).min(end);
            let last = (end & !3).max(first);
            valid[first / 4..last / 4].fill(15);
            let parts = (start..first).chain(last..end);
            parts.for_each(|byte| valid[byte / 4] |= 1 << (byte % 4));
        }

        if blocks > 1 {
            valid.resize(stride as usize / 4, 0);
            valid = valid.repeat(blocks as usize);
        }

        let words = valid.len();
        let clocks = Clocks::new(warps as usize);
        SharedShadow {
            init: vec![0; words],
            layout: valid.clone(),
            valid,
            stride,
            patterns: Vec::new(),
            covered: false,
            history: access_history::of(traced, words, &clocks),
            clocks,
            readers: Vec::new(),
            async_readers: Vec::new(),
            cells: vec![Cell::default(); words],
            last_write: 0,
            reads: Reads::default(),
        }
    }

    /// Resets the memory for a new block. All earlier accesses are over, and nothing is
    /// initialized.
    pub(crate) fn start(&mut self) {
        self.init.fill(0);
        self.patterns.clear();
        self.reads.clear();
        if self.clocks.start() {
            self.cells.fill(Cell::default());
            self.last_write = 0;
            self.readers.fill((0, 0));
            self.async_readers.fill(LastAccess::default());
            if let Some(history) = &mut self.history {
                history.clear();
            }
        }

        if std::mem::take(&mut self.covered) {
            self.valid.clone_from(&self.layout);
        }
    }

    /// Returns the number of words of the memory.
    pub(crate) fn words(&self) -> usize {
        self.valid.len()
    }

    /// Returns the position in the arena of an address in the memory of a block.
    pub(crate) fn place(&self, address: u64, rank: u32) -> u64 {
        if address >= u64::from(SHARED_BASE) + u64::from(self.stride) {
            // The address is outside the memory of the block. The highest bit leads to a position
            // outside the arena.
            return address | 1 << 63;
        }
        address + u64::from(rank) * u64::from(self.stride)
    }

    /// Returns the address within its block of a position in the arena.
    pub(crate) fn local(&self, place: u64) -> u64 {
        match place.checked_sub(SHARED_BASE.into()) {
            Some(offset) if self.stride != u32::MAX => {
                u64::from(SHARED_BASE) + offset % u64::from(self.stride)
            }
            _ => place,
        }
    }

    /// Returns the rank of the block to which a position in the arena belongs.
    pub(crate) fn rank(&self, place: u64) -> u32 {
        (place.saturating_sub(SHARED_BASE.into()) / u64::from(self.stride)) as u32
    }

    /// Records the swizzle of a tensor copy, in bytes.
    pub(crate) fn set_pattern(&mut self, address: u32, bytes: u32, swizzle: u32) {
        if self.patterns.is_empty() {
            self.patterns = vec![0; self.valid.len()];
        }
        let first = ((address - SHARED_BASE) / 4) as usize;
        self.patterns[first..first + bytes as usize / 4].fill((swizzle / 16).max(1) as u8);
    }

    /// Returns the swizzle with which a tensor copy wrote a word, in bytes, or 16 for none. The
    /// offset was checked.
    pub(crate) fn pattern(&self, offset: usize) -> Option<u32> {
        self.patterns
            .get(offset / 4)
            .filter(|p| **p > 0)
            .map(|p| u32::from(*p) * 16)
    }

    /// Returns the last write to a word if asynchronous work of a warp may not see it. The offset
    /// was checked.
    pub(crate) fn unproxied(&self, offset: usize, bytes: u32, warp: u32) -> Option<LastAccess> {
        let writes = self.cells[offset / 4..(offset + bytes as usize) / 4]
            .iter()
            .map(|cell| cell.write);
        writes
            .into_iter()
            .find(|write| !self.clocks.proxied(warp, write.thread, write.clock))
    }

    /// Returns a number that changes when any of these bytes is written.
    pub(crate) fn version(&self, offset: usize, bytes: u32) -> u64 {
        let writes = self.cells[offset / 4..(offset + bytes as usize) / 4]
            .iter()
            .map(|cell| cell.write);
        writes.fold(0, |sum, w| {
            let write = u64::from(w.clock) << 32 | u64::from(w.pc) << 16 | u64::from(w.thread);
            (sum ^ write)
                .wrapping_mul(0x9e37_79b9_7f4a_7c15)
                .rotate_left(29)
        })
    }

    /// Makes whole words inaccessible or accessible again.
    pub(crate) fn cover(&mut self, address: u32, bytes: u32, covered: bool) {
        let first = ((address - SHARED_BASE) / 4) as usize;
        self.valid[first..first + bytes as usize / 4].fill(if covered { 0 } else { 15 });
        self.covered = true;
    }

    /// Marks the bytes of a mask as initialized in each word, and all others as uninitialized.
    pub(crate) fn initialise(&mut self, address: u32, bytes: u32, mask: u8) {
        let first = ((address - SHARED_BASE) / 4) as usize;
        self.init[first..first + bytes as usize / 4].fill(mask);
    }

    /// Records that a copy has stored `count` words, written by a thread or by the first thread of
    /// an agent's number.
    pub(crate) fn land(&mut self, address: u32, count: usize, by: CopyWriter, pc: u32) {
        self.settle();
        if self.readers.is_empty() {
            self.readers = vec![(0, 0); self.valid.len() * self.clocks.warps()];
        }

        let (thread, who) = match by {
            CopyWriter::Thread(thread) => (thread, thread as usize / 32),
            CopyWriter::Agent(agent) => (agent as u32 * 32, agent),
        };
        let write = LastAccess {
            clock: self.clocks.count(who),
            pc,
            thread: thread as u16,
            bytes: 15,
            strong: false,
        };
        self.last_write = self.last_write.max(write.clock);
        let first = ((address - SHARED_BASE) / 4) as usize;
        for word in first..first + count {
            self.init[word] = 15;
            self.cells[word] = Cell {
                write,
                reads: [LastAccess::default(); 2],
            };
            if let Some(history) = &mut self.history {
                history.overwritten(word);
            }
        }
    }

    /// Records that an agent has stored words by strong writes, see [`land`](SharedShadow::land).
    pub(crate) fn land_strong(&mut self, address: u32, count: usize, agent: usize, pc: u32) {
        self.land(address, count, CopyWriter::Agent(agent), pc);
        let first = ((address - SHARED_BASE) / 4) as usize;
        for cell in &mut self.cells[first..first + count] {
            cell.write.strong = true;
        }
    }

    /// Returns true if a write was by an agent.
    pub(crate) fn by_agent(&self, touch: &LastAccess) -> bool {
        usize::from(touch.thread) / 32 >= self.clocks.warps()
    }

    /// Checks and records an access to `bytes` bytes (1, 2, 4 or 8, aligned). Returns their offset.
    #[inline]
    pub(crate) fn touch(
        &mut self,
        address: u64,
        bytes: u32,
        access: AccessProperties,
    ) -> Result<usize, AccessError> {
        let offset = address.wrapping_sub(SHARED_BASE.into());
        let first = offset / 4;
        if first + u64::from(bytes.div_ceil(4)) > self.valid.len() as u64 {
            return Err(AccessError::Outside);
        }

        let first = first as usize;
        let mask = if bytes >= 4 {
            15
        } else {
            ((1 << bytes) - 1) << (offset % 4)
        };
        self.settle();
        for word in first..first + bytes.div_ceil(4) as usize {
            self.touch_word(word, mask, access)?;
        }

        Ok(offset as usize)
    }

    /// Records an access whose race is tolerated, and checks everything else like
    /// [`SharedShadow::touch`].
    pub(crate) fn touch_racing(
        &mut self,
        address: u64,
        bytes: u32,
        access: AccessProperties,
    ) -> usize {
        let offset = (address - u64::from(SHARED_BASE)) as usize;
        let mask = if bytes >= 4 {
            15
        } else {
            ((1 << bytes) - 1) << (offset % 4)
        };
        let new = self.stamp(access, mask);
        self.settle();
        for word in offset / 4..offset / 4 + bytes.div_ceil(4) as usize {
            let cell = &mut self.cells[word];
            if access.writes {
                cell.write = new.after(&cell.write);
                self.init[word] |= mask;
                self.last_write = self.last_write.max(new.clock);
            } else {
                remember(
                    &mut cell.reads,
                    new,
                    self.clocks.seen(access.thread as usize / 32),
                );
                self.reads.kept(&self.clocks);
            }
        }

        offset
    }

    /// Checks that the bytes exist and, for a read, that they are initialized.
    #[inline]
    fn check_word(
        &self,
        word: usize,
        mask: u8,
        access: AccessProperties,
    ) -> Result<(), AccessError> {
        if mask & !self.valid[word] != 0 {
            return Err(AccessError::Outside);
        }
        match mask & !self.init[word] {
            missing if access.reads && missing != 0 => {
                let byte = word as u32 * 4 + missing.trailing_zeros() + SHARED_BASE;
                Err(AccessError::Uninitialised { byte })
            }
            _ => Ok(()),
        }
    }

    #[inline]
    fn touch_word(
        &mut self,
        word: usize,
        mask: u8,
        access: AccessProperties,
    ) -> Result<(), AccessError> {
        self.check_word(word, mask, access)?;
        let new = self.stamp(access, mask);
        let unordered = |t: &LastAccess| self.races(t, &new);
        let cell = &self.cells[word];
        if unordered(&cell.write) && !(access.writes && same_store(&cell.write, &new)) {
            return Err(AccessError::Race {
                other: cell.write,
                wrote: true,
            });
        }

        if access.writes
            && let Some(other) = cell
                .reads
                .iter()
                .chain(self.async_reads(word))
                .find(|t| unordered(t))
        {
            return Err(AccessError::Race {
                other: *other,
                wrote: false,
            });
        }

        if let Some(history) = &self.history
            && let Some((other, wrote)) = history.race(word, &new, access, unordered)
        {
            return Err(AccessError::Race { other, wrote });
        }

        if access.writes {
            self.last_write = self.last_write.max(new.clock)
        } else {
            self.reads.kept(&self.clocks)
        }

        if access.proxy == Proxy::Async && !access.writes {
            self.remember_async(word, new);
            return Ok(());
        }

        if self.by_agent(&cell.write) {
            self.touch_copied(word, mask, access)?;
            if !access.writes {
                return Ok(());
            }
        }

        if let Some(history) = &mut self.history {
            history.keep(word, &new, access);
        }

        let cell = &mut self.cells[word];
        if !access.writes {
            remember(
                &mut cell.reads,
                new,
                self.clocks.seen(access.thread as usize / 32),
            );
            return Ok(());
        }

        cell.write = new.after(&cell.write);
        self.init[word] |= mask;
        if let Some(pattern) = self.patterns.get_mut(word) {
            *pattern = 0;
        }

        Ok(())
    }

    /// Checks and records a read of whole words. Returns `None` if [`SharedShadow::touch`] would
    /// return an error.
    pub(crate) fn read_words(
        &mut self,
        address: u64,
        bytes: u32,
        access: AccessProperties,
    ) -> Option<usize> {
        let offset = address.wrapping_sub(SHARED_BASE.into());
        let first = offset / 4;
        let count = u64::from(bytes / 4);
        if self.history.is_some() || first.saturating_add(count) > self.valid.len() as u64 {
            return None;
        }

        self.settle();
        self.reads.kept(&self.clocks);
        let new = self.stamp(access, 15);
        let warp = access.thread as usize / 32;
        let seen = self.clocks.seen(warp);
        let past = self.clocks.past();
        let warps = self.clocks.warps();
        for word in first as usize..(first + count) as usize {
            let cell = &mut self.cells[word];
            let last = &cell.write;
            let by = usize::from(last.thread) / 32;
            let late = last.clock > past && last.clock > seen[by];
            let races = late && last.thread != new.thread && !(last.strong && new.strong);
            if self.valid[word] & self.init[word] != 15 || races {
                return None;
            }

            if by < warps {
                remember(&mut cell.reads, new, seen)
            } else {
                self.readers[word * warps + warp] = (new.clock, new.pc)
            }
        }

        Some(offset as usize)
    }

    /// Returns the reads of a word by copies and `wgmma`.
    fn async_reads(&self, word: usize) -> &[LastAccess] {
        let warps = self.clocks.warps();
        self.async_readers
            .get(word * warps..(word + 1) * warps)
            .unwrap_or_default()
    }

    /// Returns the last read of each warp since a copy wrote a word, attributed to the first thread
    /// of the warp.
    pub(crate) fn copied_reads(&self, word: usize, bytes: u8) -> impl Iterator<Item = LastAccess> {
        let warps = self.clocks.warps();
        let copied = self.by_agent(&self.cells[word].write);
        let reads = if copied {
            &self.readers[word * warps..][..warps]
        } else {
            &[]
        };
        let read = move |(v, (clock, pc)): (u16, &(u32, u32))| LastAccess {
            clock: *clock,
            pc: *pc,
            thread: v * 32,
            bytes,
            strong: false,
        };
        (0..).zip(reads).map(read)
    }

    fn remember_async(&mut self, word: usize, new: LastAccess) {
        let warps = self.clocks.warps();
        if self.async_readers.is_empty() {
            self.async_readers = vec![LastAccess::default(); self.valid.len() * warps];
        }
        self.async_readers[word * warps + usize::from(new.thread) / 32] = new;
    }

    /// Checks and records an access to a word that a copy wrote. A write must be ordered after the
    /// reads of all warps.
    fn touch_copied(
        &mut self,
        word: usize,
        mask: u8,
        access: AccessProperties,
    ) -> Result<(), AccessError> {
        let warp = access.thread as usize / 32;
        let warps = self.clocks.warps();
        if !access.writes {
            self.readers[word * warps + warp] = (self.clocks.count(warp), access.pc);
            return Ok(());
        }

        let seen = self.clocks.seen(warp);
        let past = self.clocks.past();
        let racing = |t: &LastAccess| {
            let v = usize::from(t.thread) / 32;
            v != warp && t.clock > seen[v].max(past)
        };
        match self.copied_reads(word, mask).find(racing) {
            Some(other) => Err(AccessError::Race {
                other,
                wrote: false,
            }),
            None => Ok(()),
        }
    }

    /// Returns the record of an access at the current time.
    pub(crate) fn stamp(&self, access: AccessProperties, bytes: u8) -> LastAccess {
        let AccessProperties {
            pc, thread, strong, ..
        } = access;
        LastAccess {
            clock: self.clocks.count(thread as usize / 32),
            pc,
            thread: thread as u16,
            bytes,
            strong,
        }
    }

    /// Returns true if an earlier access to a word and a new one touch common bytes and are not
    /// ordered.
    pub(crate) fn races(&self, earlier: &LastAccess, new: &LastAccess) -> bool {
        earlier.clock > self.clocks.past()
            && earlier.bytes & new.bytes != 0
            && earlier.thread != new.thread
            && !self
                .clocks
                .ordered(earlier.thread, earlier.clock, new.thread)
            && !(earlier.strong && new.strong)
    }
}
