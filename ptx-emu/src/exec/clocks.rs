//! Happens-before within a block: vector clocks of its warps and mbarriers.
//!
//! Each warp counts its synchronisations in `now`; `seen[w][v]` is the count of v up to which everything that v did is
//! ordered before what w does next. An mbarrier is an agent with a clock of its own, which counts its phases.
//!
//! Warps are ordered by barriers, and by strong accesses as the memory model of the manual says:
//!
//! - a release at an address, or a fence and later a strong write, publishes what the warp did and knows at that
//!   address. A later store there replaces it, unless it is by the same warp; an atomic keeps it;
//! - a strong read takes note of what is published at its address. The note is in force from the warp's next acquiring
//!   fence on, or at once when the read itself acquires.
//!
//! A clock has a second entry for each warp: the count up to which what that warp did is known to copies and products
//! that run beside the threads. `fence.proxy.async` raises these to all that the warp knows; they spread with the rest.
//!
//! Lanes of one warp are ordered by block barriers and by `bar.warp.sync`, which orders the lanes of its mask alone. For
//! everything else a lane speaks for its whole warp: where lanes fence for themselves, a race may be missed.

use rustc_hash::FxHashMap;

/// For each warp, how much of what it did is known; for each warp again, how much is to the asynchronous proxy; and for
/// each agent.
pub(crate) type Clock = Vec<u32>;

/// For each lane of a warp, the counts of the other lanes up to which it is ordered after them.
type LaneClocks = Box<[[u32; 32]; 32]>;

/// What strong writes have published at an address, and the warp that wrote last.
#[derive(Debug, Default)]
struct PublishedClock {
    clock: Clock,
    by: u32,
}

/// What a strong access does at its address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Strong {
    pub(crate) reads: bool,
    pub(crate) writes: bool,
    pub(crate) acquires: bool,
    pub(crate) releases: bool,
}

/// The clocks of a block.
#[derive(Debug)]
pub(crate) struct Clocks {
    warps: usize,
    /// Counts up to this belong to blocks that are over.
    past: u32,
    seen: Vec<Clock>,
    now: Vec<u32>,
    /// What each warp's last releasing fence covers.
    fenced: Vec<Option<Clock>>,
    /// What each warp has read of others' releases, by address.
    noted: Vec<FxHashMap<u64, Clock>>,
    published: FxHashMap<u64, PublishedClock>,
    lanes: Vec<Option<LaneClocks>>,
    /// Barriers at which all warps waited, and blocks that began.
    meetings: u64,
    /// How often a warp may have learnt of others.
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
    /// Clocks of a block of `warps` warps.
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

    /// Prepares the clocks for a new block. Counts continue, so marks of the last block are recognised as old. Returns
    /// whether they restarted at 0, in which case all marks must be cleared.
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

    /// A new agent; nobody has seen anything of it.
    pub(crate) fn agent(&mut self) -> usize {
        self.changes += 1;
        self.seen.iter_mut().for_each(|clock| clock.push(self.past));
        self.now.push(self.past + 1);
        self.now.len() - 1
    }

    /// Warps of the block.
    pub(crate) fn warps(&self) -> usize {
        self.warps
    }

    /// Counts up to this belong to blocks that are over.
    #[inline]
    pub(crate) fn past(&self) -> u32 {
        self.past
    }

    /// How often all warps have met. What any of them did before the last time is ordered before what they do now.
    #[inline]
    pub(crate) fn meetings(&self) -> u64 {
        self.meetings
    }

    /// How often a warp may have learnt of others.
    #[inline]
    pub(crate) fn changes(&self) -> u64 {
        self.changes
    }

    /// What a warp knows of all others.
    #[inline]
    pub(crate) fn seen(&self, warp: usize) -> &Clock {
        &self.seen[warp]
    }

    /// A warp's or agent's count of its synchronisations; never 0.
    #[inline]
    pub(crate) fn count(&self, who: usize) -> u32 {
        self.now[who]
    }

    /// What a new agent or warp counts from.
    pub(crate) fn count_at_start(&self) -> u32 {
        self.past + 1
    }

    /// Whether what `other` did up to a count is ordered before what a warp does now.
    pub(crate) fn knows(&self, warp: u32, other: usize, count: u32) -> bool {
        self.seen[warp as usize][other] >= count
    }

    /// How often an agent has counted as far as a warp knows.
    pub(crate) fn known(&self, warp: u32, agent: usize) -> u32 {
        self.seen[warp as usize][agent] - self.past
    }

    /// Whether what an earlier thread did at a count is ordered before what a later one does now. A thread of an agent's
    /// number stands for the agent.
    #[inline]
    pub(crate) fn ordered(&self, earlier: u16, count: u32, later: u16) -> bool {
        let (e, l) = (usize::from(earlier) / 32, usize::from(later) / 32);
        count <= self.seen[l][e] || e == l && self.lanes_ordered(e, earlier % 32, count, later % 32)
    }

    fn lanes_ordered(&self, warp: usize, earlier: u16, count: u32, later: u16) -> bool {
        let lanes = self.lanes[warp].as_ref();
        lanes.is_some_and(|lanes| count <= lanes[usize::from(later)][usize::from(earlier)])
    }

    /// `fence.proxy.async`: what a warp has done and knows is known to the asynchronous proxy.
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

    /// Whether what a thread did at a count is known to what a warp asks of the asynchronous proxy; what an agent
    /// wrote is.
    pub(crate) fn proxied(&self, warp: u32, thread: u16, count: u32) -> bool {
        let v = usize::from(thread) / 32;
        v >= self.warps || count <= self.past || count <= self.seen[warp as usize][self.warps + v]
    }

    /// Adds to `to` what a warp knows of phases, as a copy that it asks for passes on.
    pub(crate) fn release_phases(&self, warp: u32, to: &mut Clock) {
        let (agents, seen) = (2 * self.warps, &self.seen[warp as usize]);
        if to.len() < seen.len() {
            to.resize(seen.len(), 0);
        }
        to[agents..]
            .iter_mut()
            .zip(&seen[agents..])
            .for_each(|(to, known)| *to = (*to).max(*known));
    }

    /// What a warp has done and knows.
    pub(crate) fn snapshot(&self, warp: u32) -> Clock {
        let mut clock = Clock::new();
        self.release(warp, &mut clock);
        clock
    }

    /// Adds to `to` what a warp has done and knows. What it does from [`Clocks::bump`] on is not part of it.
    pub(crate) fn release(&self, warp: u32, to: &mut Clock) {
        let w = warp as usize;
        join(to, &self.seen[w]);
        to[w] = to[w].max(self.now[w]);
    }

    /// Advances the count of a warp or agent, so that later accesses differ from earlier ones.
    pub(crate) fn bump(&mut self, who: usize) {
        self.now[who] += 1;
    }

    /// A warp learns what a release gave away.
    pub(crate) fn acquire(&mut self, warp: u32, from: &Clock) {
        self.changes += 1;
        join(&mut self.seen[warp as usize], from);
    }

    /// Ends a phase of an agent and adds its count to what waiting warps acquire.
    pub(crate) fn end_phase(&mut self, agent: usize, to: &mut Clock) {
        to.resize(self.now.len().max(to.len()), 0);
        to[agent] = self.now[agent];
        self.now[agent] += 1;
    }

    /// `bar.warp.sync` of some lanes of those that have not exited.
    pub(crate) fn sync_lanes(&mut self, warp: u32, group: u32, present: u32) {
        self.changes += 1;
        let w = warp as usize;
        if group == present {
            self.seen[w][w] = self.now[w];
        } else {
            let lanes = self.lanes[w].get_or_insert_with(|| Box::new([[0; 32]; 32]));
            let members = || super::lanes(group);
            let joined = std::array::from_fn(|j| match group >> j & 1 {
                1 => self.now[w],
                _ => members().map(|i| lanes[i][j]).max().unwrap_or(0),
            });
            members().for_each(|i| lanes[i] = joined);
        }
        self.now[w] += 1;
    }

    /// A completed block barrier: what participants did is ordered before what those that waited do next.
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

    /// A fence that acquires: what the warp has noted is in force.
    pub(crate) fn acquire_fence(&mut self, warp: u32) {
        self.changes += 1;
        let w = warp as usize;
        for (_, clock) in self.noted[w].drain() {
            join(&mut self.seen[w], &clock);
        }
    }

    /// A fence that releases: later strong writes publish what the warp has done and knows.
    pub(crate) fn release_fence(&mut self, warp: u32) {
        self.fenced[warp as usize] = Some(self.snapshot(warp));
        self.bump(warp as usize);
    }

    /// The reading half of a strong access.
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

    /// The writing half of a strong access.
    pub(crate) fn publish(&mut self, warp: u32, address: u64, access: Strong) {
        if !access.writes {
            return;
        }
        let covered = match access.releases {
            true => Some(self.snapshot(warp)),
            false => self.fenced[warp as usize].clone(),
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
