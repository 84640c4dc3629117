//! Happens-before between the blocks of a traced launch.
//!
//! Blocks are ordered by what one publishes at `.gpu` or `.sys` scope and another acquires at that scope, by the rules
//! of [`super::clocks`]. What a warp has acquired of other blocks it passes on to the warps of its own block in the way
//! that block orders them, and to further blocks with its next release.

use rustc_hash::FxHashMap;
use std::rc::Rc;

use super::clocks::{Clock, Clocks, Strong, join};

/// What is known of other blocks: the clock of each, by block number. Equal knowledge is shared.
#[derive(Clone, Debug, Default)]
pub(crate) struct Known(Option<Rc<BlockClocks>>);

/// The clocks of blocks, sorted by number.
type BlockClocks = Vec<(u32, Rc<Clock>)>;

/// One warp of one block at one count of its synchronisations.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Stamp {
    /// Number of the block, from 1.
    pub(crate) block: u32,
    pub(crate) warp: u32,
    pub(crate) count: u32,
}

/// A warp learns of other blocks; `count` is its own count from then on.
#[derive(Debug)]
struct Acquired {
    warp: u32,
    count: u32,
    known: Known,
}

/// What strong writes have published at an address, and the block and warp that wrote last.
#[derive(Debug, Default)]
struct PublishedKnown {
    known: Known,
    by: (u32, u32),
}

/// What one warp of a block knows of other blocks.
#[derive(Debug, Default)]
struct WarpOrder {
    known: Known,
    /// Acquisitions of the block that are not part of `known`, and how many have been looked at in all.
    left_out: Vec<usize>,
    looked_at: usize,
    /// What the last releasing fence covers.
    fenced: Option<Known>,
    /// What was read of others' releases, by address.
    noted: FxHashMap<u64, Known>,
}

/// What a block that has begun and not ended knows of others.
#[derive(Debug, Default)]
pub(crate) struct BlockOrder {
    /// Number of the block, from 1.
    pub(crate) block: u32,
    acquired: Vec<Acquired>,
    warps: Vec<WarpOrder>,
}

/// What blocks have published, by address.
#[derive(Debug, Default)]
pub(crate) struct Exchange(FxHashMap<u64, PublishedKnown>);

fn covers(clock: &Clock, other: &Clock) -> bool {
    other
        .iter()
        .enumerate()
        .all(|(i, count)| clock.get(i).copied().unwrap_or(0) >= *count)
}

fn joined(a: &Rc<Clock>, b: &Rc<Clock>) -> Rc<Clock> {
    if Rc::ptr_eq(a, b) || covers(a, b) {
        return a.clone();
    }
    let mut clock = Clock::clone(a);
    join(&mut clock, b);
    Rc::new(clock)
}

impl Known {
    fn of(block: u32, clock: Clock) -> Known {
        Known(Some(Rc::new(vec![(block, Rc::new(clock))])))
    }

    fn blocks(&self) -> &[(u32, Rc<Clock>)] {
        self.0.as_ref().map_or(&[], |blocks| blocks)
    }

    fn clock(&self, block: u32) -> Option<&Rc<Clock>> {
        let blocks = self.blocks();
        blocks
            .binary_search_by_key(&block, |(b, _)| *b)
            .ok()
            .map(|i| &blocks[i].1)
    }

    fn covers(&self, other: &Known) -> bool {
        let has = |(block, clock): &(u32, Rc<Clock>)| {
            self.clock(*block)
                .is_some_and(|own| Rc::ptr_eq(own, clock) || covers(own, clock))
        };
        match (&self.0, &other.0) {
            (_, None) => true,
            (Some(a), Some(b)) if Rc::ptr_eq(a, b) => true,
            _ => other.blocks().iter().all(has),
        }
    }

    fn join(&mut self, other: &Known) {
        if self.covers(other) {
            return;
        }
        if other.covers(self) {
            return self.clone_from(other);
        }
        let mut all: BlockClocks = self
            .blocks()
            .iter()
            .chain(other.blocks())
            .cloned()
            .collect();
        all.sort_by_key(|(block, _)| *block);
        all.dedup_by(|later, first| {
            let same = later.0 == first.0;
            if same {
                first.1 = joined(&first.1, &later.1);
            }
            same
        });
        self.0 = Some(Rc::new(all));
    }
}

impl BlockOrder {
    /// Nothing is known yet.
    pub(crate) fn new(block: u32) -> BlockOrder {
        BlockOrder {
            block,
            ..BlockOrder::default()
        }
    }

    fn warp(&mut self, warp: u32) -> &mut WarpOrder {
        let w = warp as usize;
        if w >= self.warps.len() {
            self.warps.resize_with(w + 1, WarpOrder::default);
        }
        &mut self.warps[w]
    }

    /// What a warp knows now: what it has acquired, and what other warps had before it was ordered after them.
    fn known(&mut self, clocks: &Clocks, warp: u32) -> &Known {
        self.warp(warp);
        let BlockOrder {
            acquired, warps, ..
        } = self;
        let own = &mut warps[warp as usize];
        own.left_out.extend(own.looked_at..acquired.len());
        own.looked_at = acquired.len();
        let WarpOrder {
            known, left_out, ..
        } = own;
        left_out.retain(|i| {
            let a = &acquired[*i];
            let has = a.warp == warp || clocks.knows(warp, a.warp as usize, a.count);
            if has {
                known.join(&a.known);
            }
            !has
        });
        known
    }

    /// Whether what a warp of any block did is ordered before what a warp of this block does now. Always true for this
    /// block's own warps, which are checked separately.
    pub(crate) fn ordered(&mut self, clocks: &Clocks, warp: u32, earlier: Stamp) -> bool {
        if earlier.block == self.block {
            return true;
        }
        if self.acquired.is_empty() {
            return false;
        }
        let clock = self.known(clocks, warp).clock(earlier.block);
        clock
            .and_then(|clock| clock.get(earlier.warp as usize))
            .is_some_and(|known| *known >= earlier.count)
    }

    fn acquire(&mut self, clocks: &mut Clocks, warp: u32, known: Known) {
        if self.known(clocks, warp).covers(&known) {
            return;
        }
        clocks.bump(warp as usize);
        self.acquired.push(Acquired {
            warp,
            count: clocks.count(warp as usize),
            known,
        });
    }

    /// What a release of a warp gives away.
    fn release(&mut self, clocks: &Clocks, warp: u32) -> Known {
        let block = self.block;
        let mut known = self.known(clocks, warp).clone();
        known.join(&Known::of(block, clocks.snapshot(warp)));
        known
    }

    /// A fence that acquires at a scope that reaches other blocks.
    pub(crate) fn acquire_fence(&mut self, clocks: &mut Clocks, warp: u32) {
        let mut all = Known::default();
        self.warp(warp)
            .noted
            .drain()
            .for_each(|(_, known)| all.join(&known));
        self.acquire(clocks, warp, all);
    }

    /// A fence that releases at a scope that reaches other blocks; comes before [`Clocks::release_fence`].
    pub(crate) fn release_fence(&mut self, clocks: &Clocks, warp: u32) {
        let known = self.release(clocks, warp);
        self.warp(warp).fenced = Some(known);
    }

    /// The reading half of a strong access at a scope that reaches other blocks.
    pub(crate) fn observe(
        &mut self,
        exchange: &Exchange,
        clocks: &mut Clocks,
        warp: u32,
        address: u64,
        access: Strong,
    ) {
        if !access.reads {
            return;
        }
        if let Some(published) = exchange.0.get(&address) {
            self.warp(warp)
                .noted
                .entry(address)
                .or_default()
                .join(&published.known);
        }
        if access.acquires
            && let Some(known) = self.warp(warp).noted.remove(&address)
        {
            self.acquire(clocks, warp, known);
        }
    }

    /// The writing half of a strong access at a scope that reaches other blocks.
    pub(crate) fn publish(
        &mut self,
        exchange: &mut Exchange,
        clocks: &Clocks,
        warp: u32,
        address: u64,
        access: Strong,
    ) {
        if !access.writes {
            return;
        }
        let by = (self.block, warp);
        let given = match access.releases {
            true => Some(self.release(clocks, warp)),
            false => self.warp(warp).fenced.clone(),
        };
        let keeps = access.reads || exchange.0.get(&address).is_some_and(|p| p.by == by);
        match given {
            None if keeps => {}
            None => _ = exchange.0.remove(&address),
            Some(given) => {
                let published = exchange.0.entry(address).or_default();
                match keeps {
                    true => published.known.join(&given),
                    false => published.known = given,
                }
                published.by = by;
            }
        }
    }
}
