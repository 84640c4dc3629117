//! Shared memory of a block, with its shadow: what exists, what is initialised, and who touched what last.
//!
//! Races are found by vector clocks. Each warp counts its synchronisations; `seen[w][v]` says up to which of
//! v's counts everything v did is ordered before w. A word remembers its last write and two reads by
//! different threads, which suffices to blame somebody: of two unordered readers, at least one is not the
//! writer. Lanes of one warp are ordered by `bar.warp.sync` and block barriers alone.
//!
//! Warps are ordered by barriers, and by a strong write after a fence (or a `.release`) that a strong read
//! before a fence (or an `.acquire`) meets at the same address. A fence counts for its whole warp, and a
//! read for all writes so far at its address: where lanes fence for themselves, a race may be missed.
//!
//! An mbarrier is an agent with a clock of its own: the number of its phases. A copy that completes on it writes as
//! the agent, in the phase under way; who has waited for the phase has seen the write. Of bytes that a copy wrote,
//! the last read of each warp is remembered, since the next copy must come after all of them.
//!
//! Bytes under an mbarrier or a copy in flight count as outside every variable.

use std::collections::HashMap;

use crate::code::Region;
use crate::decode::SHARED_BASE;

/// One access to some bytes of a word.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Touch {
    /// The warp's count when it happened; 0 for never.
    clock: u32,
    pub(crate) pc: u32,
    pub(crate) thread: u16,
    /// Bytes of the word, one bit each.
    bytes: u8,
    /// Atomic, volatile or otherwise ordered at its own address.
    strong: bool,
}

impl Touch {
    /// This write, and what its thread wrote to the same word since it last synchronised.
    pub(crate) fn after(self, last: &Touch) -> Touch {
        let same = last.thread == self.thread && last.clock == self.clock;
        Touch { bytes: self.bytes | if same { last.bytes } else { 0 }, ..self }
    }
}

/// Whether two writes are lanes of one store, which do not race: whether their values agree is checked apart.
pub(crate) fn same_store(earlier: &Touch, new: &Touch) -> bool {
    earlier.pc == new.pc && earlier.thread / 32 == new.thread / 32
}

/// Agents a block may have; with 32 warps and a number of 16 bits there is room for more.
pub(crate) const MOST_AGENTS: usize = 1024;

/// Who touched a word.
#[derive(Clone, Copy, Debug, Default)]
struct Cell {
    write: Touch,
    reads: [Touch; 2],
}

/// What an access does.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Access {
    pub(crate) pc: u32,
    pub(crate) thread: u32,
    pub(crate) reads: bool,
    pub(crate) writes: bool,
    /// Atomic, volatile or otherwise ordered at its own address.
    pub(crate) strong: bool,
}

/// Who writes what a copy brings.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Writer {
    Thread(u32),
    Agent(usize),
}

/// What is wrong with an access.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Wrong {
    Outside,
    Uninitialised { byte: u32 },
    Race { other: Touch, wrote: bool },
}

/// Shared memory of a block.
#[derive(Debug)]
pub(crate) struct Shared {
    words: Vec<u32>,
    /// Bytes of each word that belong to a variable and may be accessed, and that are initialised.
    valid: Vec<u8>,
    init: Vec<u8>,
    /// Bytes of each word that belong to a variable.
    layout: Vec<u8>,
    /// Whether `valid` has changed since the block began.
    covered: bool,
    warps: usize,
    /// Counts up to this belong to blocks that are over.
    past: u32,
    /// For each word and warp, count and instruction of the last read, where a copy wrote the word; empty before
    /// the first copy.
    readers: Vec<(u32, u32)>,
    cells: Vec<Cell>,
    seen: Vec<Clock>,
    now: Vec<u32>,
    /// What each warp's last fence released.
    released: Vec<Clock>,
    /// What each warp has read of others' releases, in force from its next fence on.
    pending: Vec<Clock>,
    /// What strong writes left at each address.
    left: HashMap<u64, Clock>,
}

/// For each warp, how much of what it did is known.
pub(crate) type Clock = Vec<u32>;

fn join(to: &mut Clock, from: &Clock) {
    if to.len() < from.len() {
        to.resize(from.len(), 0);
    }
    to.iter_mut().zip(from).for_each(|(to, from)| *to = (*to).max(*from));
}

impl Shared {
    /// Memory for the given variables.
    pub(crate) fn new(regions: &[Region], dynamic: u32, warps: u32) -> Shared {
        let size = |r: &Region| if r.dynamic { dynamic } else { r.bytes };
        let end =
            regions.iter().filter(|r| size(r) > 0).map(|r| r.address + size(r)).max().unwrap_or(SHARED_BASE);
        let words = (end - SHARED_BASE).div_ceil(4) as usize;
        let mut valid = vec![0; words];
        for r in regions {
            let start = r.address - SHARED_BASE;
            (start..start + size(r)).for_each(|byte| valid[byte as usize / 4] |= 1 << (byte % 4));
        }
        let warps = warps as usize;
        Shared {
            words: vec![0; words],
            init: vec![0; words],
            layout: valid.clone(),
            valid,
            covered: false,
            warps,
            past: 0,
            readers: Vec::new(),
            cells: vec![Cell::default(); words],
            seen: vec![vec![0; warps]; warps],
            now: vec![0; warps],
            released: vec![vec![0; warps]; warps],
            pending: vec![vec![0; warps]; warps],
            left: HashMap::new(),
        }
    }

    /// Readies the memory for a new block: everything before is over, and nothing is initialised.
    pub(crate) fn start(&mut self) {
        self.init.fill(0);
        let past = self.now.iter().copied().max().unwrap_or(0);
        if past > u32::MAX / 2 {
            self.cells.fill(Cell::default());
            self.readers.fill((0, 0));
        }
        let past = if past > u32::MAX / 2 { 0 } else { past };
        for clock in [&mut self.seen, &mut self.released, &mut self.pending].into_iter().flatten() {
            clock.truncate(self.warps);
            clock.fill(past);
        }
        self.left.clear();
        self.now.truncate(self.warps);
        self.now.fill(past + 1);
        self.past = past;
        if std::mem::take(&mut self.covered) {
            self.valid.clone_from(&self.layout);
        }
    }

    /// A new agent; nobody has seen anything of it.
    pub(crate) fn agent(&mut self) -> usize {
        for clock in [&mut self.seen, &mut self.released, &mut self.pending].into_iter().flatten() {
            clock.push(self.past);
        }
        self.now.push(self.past + 1);
        self.now.len() - 1
    }

    /// How often an agent has counted as far as a warp knows.
    pub(crate) fn known(&self, warp: u32, agent: usize) -> u32 {
        self.seen[warp as usize][agent] - self.past
    }

    /// Adds to `to` what a warp has done and knows. What it does from [`Shared::bump`] on is not part of it.
    pub(crate) fn release(&self, warp: u32, to: &mut Clock) {
        let w = warp as usize;
        join(to, &self.seen[w]);
        to[w] = to[w].max(self.now[w]);
    }

    /// What a warp, or an agent, does from now on is told apart from what it did before.
    pub(crate) fn bump(&mut self, who: usize) {
        self.now[who] += 1;
    }

    /// A warp learns what a release gave away.
    pub(crate) fn acquire(&mut self, warp: u32, from: &Clock) {
        join(&mut self.seen[warp as usize], from);
    }

    /// An agent ends a phase: the count that those who wait for it get to know.
    pub(crate) fn end_phase(&mut self, agent: usize, to: &mut Clock) {
        to.resize(self.now.len().max(to.len()), 0);
        to[agent] = self.now[agent];
        self.now[agent] += 1;
    }

    /// Takes whole words out of use, or gives them back.
    pub(crate) fn cover(&mut self, address: u32, bytes: u32, covered: bool) {
        let first = ((address - SHARED_BASE) / 4) as usize;
        self.valid[first..first + bytes as usize / 4].fill(if covered { 0 } else { 15 });
        self.covered = true;
    }

    /// The words are no longer initialised.
    pub(crate) fn forget(&mut self, address: u32, bytes: u32) {
        let first = ((address - SHARED_BASE) / 4) as usize;
        self.init[first..first + bytes as usize / 4].fill(0);
    }

    /// A copy's words arrive: written by `by`, a thread or the first thread of an agent's number.
    pub(crate) fn land(&mut self, address: u32, values: impl Iterator<Item = u32>, by: Writer, pc: u32) {
        if self.readers.is_empty() {
            self.readers = vec![(0, 0); self.words.len() * self.warps];
        }
        let (thread, who) = match by {
            Writer::Thread(thread) => (thread, thread as usize / 32),
            Writer::Agent(agent) => (agent as u32 * 32, agent),
        };
        let write = Touch { clock: self.now[who], pc, thread: thread as u16, bytes: 15, strong: false };
        let first = ((address - SHARED_BASE) / 4) as usize;
        for (i, value) in values.enumerate() {
            self.words[first + i] = value;
            self.init[first + i] = 15;
            self.cells[first + i] = Cell { write, reads: [Touch::default(); 2] };
        }
    }

    /// Whether a write was an agent's.
    pub(crate) fn by_agent(&self, touch: &Touch) -> bool {
        usize::from(touch.thread) / 32 >= self.warps
    }

    /// Warps of the block.
    pub(crate) fn warps(&self) -> usize {
        self.warps
    }

    /// A warp's count of its synchronisations; never 0.
    pub(crate) fn count(&self, warp: u32) -> u32 {
        self.now[warp as usize]
    }

    /// What a new agent or warp counts from.
    pub(crate) fn count_at_start(&self) -> u32 {
        self.past + 1
    }

    /// Whether what `other` did up to a count is ordered before what a warp does now.
    pub(crate) fn knows(&self, warp: u32, other: usize, count: u32) -> bool {
        self.seen[warp as usize][other] >= count
    }

    /// `bar.warp.sync`.
    pub(crate) fn sync_warp(&mut self, warp: u32) {
        let w = warp as usize;
        self.seen[w][w] = self.now[w];
        self.now[w] += 1;
    }

    /// A fence: releases what the warp did so far, and acquires what its strong reads have met.
    pub(crate) fn fence(&mut self, warp: u32) {
        let w = warp as usize;
        join(&mut self.seen[w], &self.pending[w]);
        self.released[w].clone_from(&self.seen[w]);
        self.released[w][w] = self.now[w];
        self.now[w] += 1;
    }

    /// A strong access to an address, global or in the window on shared memory.
    pub(crate) fn meet(&mut self, warp: u32, address: u64, writes: bool) {
        let w = warp as usize;
        let left = self.left.entry(address).or_insert_with(|| vec![0; self.now.len()]);
        join(&mut self.pending[w], left);
        if writes {
            join(left, &self.released[w]);
        }
    }

    /// A completed block barrier: what participants did is ordered before what those that waited do next.
    pub(crate) fn barrier(&mut self, participants: &[u32], waiting: &[u32]) {
        let mut joined = vec![0; self.now.len()];
        for &p in participants {
            join(&mut joined, &self.seen[p as usize]);
            joined[p as usize] = joined[p as usize].max(self.now[p as usize]);
            self.now[p as usize] += 1;
        }
        for &w in waiting {
            join(&mut self.seen[w as usize], &joined);
        }
    }

    /// Checks an access to `bytes` bytes (1, 2, 4 or 8, aligned) and remembers it; gives the byte offset.
    #[inline]
    pub(crate) fn touch(&mut self, address: u64, bytes: u32, access: Access) -> Result<usize, Wrong> {
        let offset = address.wrapping_sub(SHARED_BASE.into());
        let first = offset / 4;
        if first + u64::from(bytes.div_ceil(4)) > self.words.len() as u64 {
            return Err(Wrong::Outside);
        }
        let first = first as usize;
        let mask = if bytes >= 4 { 15 } else { ((1 << bytes) - 1) << (offset % 4) };
        for word in first..first + bytes.div_ceil(4) as usize {
            self.touch_word(word, mask, access)?;
        }
        Ok(offset as usize)
    }

    #[inline]
    fn touch_word(&mut self, word: usize, mask: u8, access: Access) -> Result<(), Wrong> {
        if mask & !self.valid[word] != 0 {
            return Err(Wrong::Outside);
        }
        if access.reads && mask & !self.init[word] != 0 {
            let byte = (mask & !self.init[word]).trailing_zeros();
            return Err(Wrong::Uninitialised { byte: word as u32 * 4 + byte + SHARED_BASE });
        }
        let new = self.stamp(access, mask);
        let unordered = |t: &Touch| self.races(t, &new);
        let cell = &self.cells[word];
        if unordered(&cell.write) && !(access.writes && same_store(&cell.write, &new)) {
            return Err(Wrong::Race { other: cell.write, wrote: true });
        }
        let read = cell.reads.iter().find(|t| access.writes && unordered(t));
        if let Some(other) = read {
            return Err(Wrong::Race { other: *other, wrote: false });
        }
        if usize::from(cell.write.thread) / 32 >= self.warps {
            self.touch_copied(word, mask, access)?;
            if !access.writes {
                return Ok(());
            }
        }
        let cell = &mut self.cells[word];
        if !access.writes {
            remember(&mut cell.reads, new, &self.seen[access.thread as usize / 32]);
            return Ok(());
        }
        cell.write = new.after(&cell.write);
        self.init[word] |= mask;
        Ok(())
    }

    /// As [`Shared::touch`] for a read of whole words; nothing when one of them is not as it should be, which
    /// [`Shared::touch`] then names.
    pub(crate) fn read_words(&mut self, address: u64, bytes: u32, access: Access) -> Option<usize> {
        let offset = address.wrapping_sub(SHARED_BASE.into());
        let (first, count) = (offset / 4, u64::from(bytes / 4));
        if first.saturating_add(count) > self.words.len() as u64 {
            return None;
        }
        let new = self.stamp(access, 15);
        let warp = access.thread as usize / 32;
        let seen = &self.seen[warp];
        for word in first as usize..(first + count) as usize {
            let cell = &mut self.cells[word];
            let last = &cell.write;
            let by = usize::from(last.thread) / 32;
            let late = last.clock > self.past && last.clock > seen[by];
            let races = late && last.thread != new.thread && !(last.strong && new.strong);
            if self.valid[word] & self.init[word] != 15 || races {
                return None;
            }
            match by < self.warps {
                true => remember(&mut cell.reads, new, seen),
                false => self.readers[word * self.warps + warp] = (new.clock, new.pc),
            }
        }
        Some(offset as usize)
    }

    /// As [`Shared::read_words`] for a write that a copy makes; whether all is well.
    pub(crate) fn claim_words(&mut self, address: u64, bytes: u32, access: Access) -> bool {
        let offset = address.wrapping_sub(SHARED_BASE.into());
        let (first, count) = (offset / 4, u64::from(bytes / 4));
        if first.saturating_add(count) > self.words.len() as u64 {
            return false;
        }
        let new = self.stamp(access, 15);
        let (warp, past) = (access.thread as usize / 32, self.past);
        let seen = &self.seen[warp];
        let late = |t: &Touch| {
            t.clock > past && t.thread != new.thread && t.clock > seen[usize::from(t.thread) / 32]
        };
        for word in first as usize..(first + count) as usize {
            let cell = &mut self.cells[word];
            if self.valid[word] != 15 || late(&cell.write) || cell.reads.iter().any(late) {
                return false;
            }
            if usize::from(cell.write.thread) / 32 >= self.warps {
                let readers = &self.readers[word * self.warps..][..self.warps];
                let over = |(reader, seen): (&(u32, u32), &u32)| reader.0 <= (*seen).max(past);
                let other = |(v, pair): (usize, _)| v == warp || over(pair);
                if !readers.iter().zip(seen).enumerate().all(other) {
                    return false;
                }
            }
            cell.write = new;
            self.init[word] = 15;
        }
        true
    }

    /// An access to a word that a copy wrote: a read is remembered, a write must come after all warps' reads.
    fn touch_copied(&mut self, word: usize, mask: u8, access: Access) -> Result<(), Wrong> {
        let warp = access.thread as usize / 32;
        let readers = &mut self.readers[word * self.warps..][..self.warps];
        if !access.writes {
            readers[warp] = (self.now[warp], access.pc);
            return Ok(());
        }
        let seen = &self.seen[warp];
        let racing = |v: &usize| *v != warp && readers[*v].0 > seen[*v].max(self.past);
        let Some(v) = (0..self.warps).find(racing) else { return Ok(()) };
        let (clock, pc) = readers[v];
        let other = Touch { clock, pc, thread: v as u16 * 32, bytes: mask, strong: false };
        Err(Wrong::Race { other, wrote: false })
    }

    /// An access that happens now.
    pub(crate) fn stamp(&self, access: Access, bytes: u8) -> Touch {
        let Access { pc, thread, strong, .. } = access;
        Touch { clock: self.now[thread as usize / 32], pc, thread: thread as u16, bytes, strong }
    }

    /// Whether an earlier access to a word and a new one touch the same bytes and nothing orders them.
    pub(crate) fn races(&self, earlier: &Touch, new: &Touch) -> bool {
        earlier.clock > self.past
            && earlier.bytes & new.bytes != 0
            && earlier.thread != new.thread
            && earlier.clock > self.seen[usize::from(new.thread) / 32][usize::from(earlier.thread) / 32]
            && !(earlier.strong && new.strong)
    }

    /// The bytes at an offset that was checked.
    pub(crate) fn read(&self, offset: usize, bytes: u32) -> u64 {
        let word = self.words[offset / 4];
        match bytes {
            8 => u64::from(word) | u64::from(self.words[offset / 4 + 1]) << 32,
            4 => word.into(),
            _ => u64::from(word >> (8 * (offset % 4)) & ((1 << (8 * bytes)) - 1)),
        }
    }

    /// Stores bytes at an offset that was checked.
    pub(crate) fn write(&mut self, offset: usize, bytes: u32, value: u64) {
        let word = &mut self.words[offset / 4];
        match bytes {
            8 => {
                *word = value as u32;
                self.words[offset / 4 + 1] = (value >> 32) as u32;
            }
            4 => *word = value as u32,
            _ => {
                let shift = 8 * (offset % 4);
                let mask = ((1u32 << (8 * bytes)) - 1) << shift;
                *word = *word & !mask | (value as u32) << shift & mask;
            }
        }
    }
}

/// Remembers a read: in place of one that is over, or of the thread's own, or of the second.
fn remember(reads: &mut [Touch; 2], new: Touch, seen: &[u32]) {
    let over = |t: &Touch| t.clock <= seen[usize::from(t.thread) / 32];
    let own = |t: &Touch| t.thread == new.thread && t.clock == new.clock;
    let (at, keep) = match reads {
        [a, _] if own(a) => (0, a.bytes),
        [_, b] if own(b) => (1, b.bytes),
        [a, _] if over(a) || a.thread == new.thread => (0, 0),
        _ => (1, 0),
    };
    reads[at] = Touch { bytes: new.bytes | keep, ..new };
}
