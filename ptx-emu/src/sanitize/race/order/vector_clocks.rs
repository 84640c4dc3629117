//! Happens-before within a block: vector clocks of its warps and mbarriers.
//!
//! Each warp counts its synchronizations in `now`. `seen[w][v]` is the count of v up to which
//! everything that v did happens before the next action of w. An mbarrier is an agent with a
//! separate clock, which counts its phases.
//!
//! Warps are ordered by barriers, and by strong accesses as in the PTX memory model:
//!
//! - A release at an address, or a fence and a later strong write, publishes the actions and the
//!   knowledge of the warp at that address. A later store there replaces the publication, unless
//!   the same warp stores. An atomic keeps it.
//! - A strong read records the publication at its address. The record takes effect with the next
//!   acquiring fence of the warp, or immediately if the read itself acquires.
//!
//! A clock has a second entry for each warp: the count up to which its actions are known to copies
//! and matmuls that run asynchronously. `fence.proxy.async` raises these entries to everything that
//! the warp knows. They spread with the other entries.
//!
//! Lanes of one warp are ordered by block barriers and by `bar.warp.sync`, which orders only the
//! lanes in its mask. In all other cases a lane acts for its whole warp. A race can therefore be
//! missed if lanes fence separately.

use rustc_hash::FxHashMap;

/// A vector clock: the known count of each warp, the count of each warp that is known to the
/// asynchronous proxy, and the count of each agent.
pub(crate) type Clock = Vec<u32>;

/// For each lane of a warp, the counts of the other lanes up to which it is ordered after them.
type LaneClocks = Box<[[u32; 32]; 32]>;

/// The clock that strong writes have published at an address, and the last writing warp.
#[derive(Debug, Default)]
struct PublishedClock {
    clock: Clock,
    by: u32,
}

/// The semantics of a strong access at its address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Strong {
    pub(crate) reads: bool,
    pub(crate) writes: bool,
    pub(crate) acquires: bool,
    pub(crate) releases: bool,
}

/// The vector clocks of a block.
#[derive(Debug)]
pub(crate) struct Clocks {
    warps: usize,
    /// The largest count that belongs to an earlier block.
    past: u32,
    seen: Vec<Clock>,
    now: Vec<u32>,
    /// The clock of each warp at its last releasing fence.
    fenced: Vec<Option<Clock>>,
    /// The releases that each warp has read by relaxed accesses, by address.
    noted: Vec<FxHashMap<u64, Clock>>,
    published: FxHashMap<u64, PublishedClock>,
    lanes: Vec<Option<LaneClocks>>,
    /// The number of barriers at which all warps waited, plus the number of blocks that began.
    meetings: u64,
    /// The number of times that a warp may have acquired knowledge.
    changes: u64,
}

pub(crate) fn join(to: &mut Clock, from: &Clock) {
    if to.len() < from.len() {
        to.resize(from.len(), 0);
    }
    to.iter_mut()
        .zip(from)
        .for_each(|(to, from)| *to = (*to).max(*from));
}

impl Clocks {
    /// Creates the clocks of a block of `warps` warps.
    pub(crate) fn new(warps: usize) -> Clocks {
        Clocks {
            warps,
            past: 0,
            seen: vec![vec![0; 2 * warps]; warps],
            now: vec![0; 2 * warps],
            fenced: vec![None; warps],
            noted: vec![FxHashMap::default(); warps],
            published: FxHashMap::default(),
            lanes: vec![None; warps],
            meetings: 1,
            changes: 0,
        }
    }

    /// Prepares the clocks for a new block. Returns true if counts restarted at 0, so that all
    /// marks must be cleared.
    ///
    /// Counts usually continue, so that marks of the last block are recognized as old.
    pub(crate) fn start(&mut self) -> bool {
        let past = self.now.iter().copied().max().unwrap_or(0);
        let wraps = past > u32::MAX / 2;
        self.past = if wraps { 0 } else { past };
        for clock in &mut self.seen {
            clock.truncate(2 * self.warps);
            clock.fill(self.past);
        }

        self.fenced.fill(None);
        self.noted.iter_mut().for_each(FxHashMap::clear);
        self.published.clear();
        self.lanes.fill(None);
        self.now.truncate(2 * self.warps);
        self.now.fill(self.past + 1);
        self.meetings += 1;
        self.changes += 1;
        wraps
    }

    /// Creates an agent that no warp is ordered after.
    pub(crate) fn agent(&mut self) -> usize {
        self.changes += 1;
        for clock in &mut self.seen {
            clock.push(self.past);
        }
        self.now.push(self.past + 1);
        self.now.len() - 1
    }

    /// Returns the number of warps of the block.
    pub(crate) fn warps(&self) -> usize {
        self.warps
    }

    /// Returns the largest count that belongs to an earlier block.
    #[inline]
    pub(crate) fn past(&self) -> u32 {
        self.past
    }

    /// Returns the number of times that all warps have met. All earlier accesses are ordered before
    /// the current ones.
    #[inline]
    pub(crate) fn meetings(&self) -> u64 {
        self.meetings
    }

    /// Returns the number of times that a warp may have acquired knowledge.
    #[inline]
    pub(crate) fn changes(&self) -> u64 {
        self.changes
    }

    /// Returns the clock of a warp, which is its knowledge about all others.
    #[inline]
    pub(crate) fn seen(&self, warp: usize) -> &Clock {
        &self.seen[warp]
    }

    /// Returns the current count of a warp or agent, which is never 0.
    #[inline]
    pub(crate) fn count(&self, who: usize) -> u32 {
        self.now[who]
    }

    /// Returns the first count of a new agent or warp.
    pub(crate) fn count_at_start(&self) -> u32 {
        self.past + 1
    }

    /// Returns true if everything that `other` did up to `count` is ordered before the next access
    /// of a warp.
    pub(crate) fn knows(&self, warp: u32, other: usize, count: u32) -> bool {
        self.seen[warp as usize][other] >= count
    }

    /// Returns the count of an agent that a warp knows.
    pub(crate) fn known(&self, warp: u32, agent: usize) -> u32 {
        self.seen[warp as usize][agent] - self.past
    }

    /// Returns true if an access of an earlier thread at `count` is ordered before the next access
    /// of a later thread. A thread with the number of an agent stands for the agent.
    #[inline]
    pub(crate) fn ordered(&self, earlier: u16, count: u32, later: u16) -> bool {
        let e = usize::from(earlier) / 32;
        let l = usize::from(later) / 32;
        count <= self.seen[l][e] || e == l && self.lanes_ordered(e, earlier % 32, count, later % 32)
    }

    fn lanes_ordered(&self, warp: usize, earlier: u16, count: u32, later: u16) -> bool {
        let lanes = self.lanes[warp].as_ref();
        lanes.is_some_and(|lanes| count <= lanes[usize::from(later)][usize::from(earlier)])
    }

    /// Executes `fence.proxy.async`, which makes the accesses and the knowledge of a warp known to
    /// the asynchronous proxy.
    pub(crate) fn proxy_fence(&mut self, warp: u32) {
        self.changes += 1;
        let w = warp as usize;
        for v in 0..self.warps {
            let known = if v == w { self.now[w] } else { self.seen[w][v] };
            let proxied = &mut self.seen[w][self.warps + v];
            *proxied = known.max(*proxied);
        }
        self.bump(w);
    }

    /// Returns true if an access of a thread at `count` is known to asynchronous work that a warp
    /// issues. Writes by agents always are.
    pub(crate) fn proxied(&self, warp: u32, thread: u16, count: u32) -> bool {
        let v = usize::from(thread) / 32;
        v >= self.warps || count <= self.past || count <= self.seen[warp as usize][self.warps + v]
    }

    /// Adds the knowledge of a warp about mbarrier phases to `to`. A copy that the warp issues
    /// passes it on.
    pub(crate) fn release_phases(&self, warp: u32, to: &mut Clock) {
        let agents = 2 * self.warps;
        let seen = &self.seen[warp as usize];
        if to.len() < seen.len() {
            to.resize(seen.len(), 0);
        }
        to[agents..]
            .iter_mut()
            .zip(&seen[agents..])
            .for_each(|(to, known)| *to = (*to).max(*known));
    }

    /// Returns the clock of a warp, including its own accesses.
    pub(crate) fn snapshot(&self, warp: u32) -> Clock {
        let mut clock = Clock::new();
        self.release(warp, &mut clock);
        clock
    }

    /// Adds the clock of a warp to `to`, including its own accesses up to the next
    /// [`Clocks::bump`].
    pub(crate) fn release(&self, warp: u32, to: &mut Clock) {
        let w = warp as usize;
        join(to, &self.seen[w]);
        to[w] = to[w].max(self.now[w]);
    }

    /// Increments the count of a warp or agent, so that later accesses differ from earlier ones.
    pub(crate) fn bump(&mut self, who: usize) {
        self.now[who] += 1;
    }

    /// Adds the clock of a release to the knowledge of a warp.
    pub(crate) fn acquire(&mut self, warp: u32, from: &Clock) {
        self.changes += 1;
        join(&mut self.seen[warp as usize], from);
    }

    /// Ends a phase of an agent, and adds its count to the clock that waiting warps acquire.
    pub(crate) fn end_phase(&mut self, agent: usize, to: &mut Clock) {
        to.resize(self.now.len().max(to.len()), 0);
        to[agent] = self.now[agent];
        self.now[agent] += 1;
    }

    /// Executes `bar.warp.sync` of some lanes.
    pub(crate) fn sync_lanes(&mut self, warp: u32, group: u32, present: u32) {
        self.changes += 1;
        let w = warp as usize;
        if group == present {
            self.seen[w][w] = self.now[w];
        } else {
            let lanes = self.lanes[w].get_or_insert_with(|| Box::new([[0; 32]; 32]));
            let members = || crate::module::lane_mask::lanes(group);
            let joined = std::array::from_fn(|j| match group >> j & 1 {
                1 => self.now[w],
                _ => members().map(|i| lanes[i][j]).max().unwrap_or(0),
            });
            members().for_each(|i| lanes[i] = joined);
        }

        self.now[w] += 1;
    }

    /// Completes a block barrier. The accesses of participants are ordered before the next accesses
    /// of those that waited.
    pub(crate) fn barrier(&mut self, participants: &[u32], waiting: &[u32]) {
        self.changes += 1;
        self.meetings += u64::from(waiting.len() == self.warps);
        let mut joined = vec![0; self.now.len()];
        for &p in participants {
            self.release(p, &mut joined);
            self.now[p as usize] += 1;
        }

        for &w in waiting {
            join(&mut self.seen[w as usize], &joined);
        }
    }

    /// Executes an acquiring fence, which makes the releases known that the warp has read.
    pub(crate) fn acquire_fence(&mut self, warp: u32) {
        self.changes += 1;
        let w = warp as usize;
        for (_, clock) in self.noted[w].drain() {
            join(&mut self.seen[w], &clock);
        }
    }

    /// Executes a releasing fence. Later strong writes publish the current clock of the warp.
    pub(crate) fn release_fence(&mut self, warp: u32) {
        self.fenced[warp as usize] = Some(self.snapshot(warp));
        self.bump(warp as usize);
    }

    /// Executes the read of a strong access.
    pub(crate) fn observe(&mut self, warp: u32, address: u64, access: Strong) {
        self.changes += 1;
        let w = warp as usize;
        if !access.reads {
            return;
        }
        if let Some(published) = self.published.get(&address) {
            join(self.noted[w].entry(address).or_default(), &published.clock);
        }

        if access.acquires
            && let Some(clock) = self.noted[w].remove(&address)
        {
            join(&mut self.seen[w], &clock);
        }
    }

    /// Executes the write of a strong access.
    pub(crate) fn publish(&mut self, warp: u32, address: u64, access: Strong) {
        if !access.writes {
            return;
        }

        let covered = if access.releases {
            Some(self.snapshot(warp))
        } else {
            self.fenced[warp as usize].clone()
        };
        let keeps = access.reads || self.published.get(&address).is_some_and(|p| p.by == warp);
        match covered {
            None if keeps => {}
            None => _ = self.published.remove(&address),
            Some(clock) => {
                let published = self.published.entry(address).or_default();
                if keeps {
                    join(&mut published.clock, &clock);
                } else {
                    published.clock = clock;
                }
                published.by = warp;
            }
        }
    }
}
