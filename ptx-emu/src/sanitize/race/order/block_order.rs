//! Happens-before between the blocks of a traced launch.
//!
//! A release at `.gpu` or `.sys` scope in one block orders an acquire at such a scope in another
//! block, by the rules of [`crate::sanitize::race::order::vector_clocks`]. Knowledge that a warp
//! has acquired from other blocks spreads to warps of its own block as that block orders them, and
//! to further blocks with the next release of the warp.

use std::rc::Rc;

use rustc_hash::FxHashMap;

use crate::sanitize::race::order::vector_clocks::{Clock, Clocks, Strong, join};

/// The known clocks of other blocks, by block number. Equal knowledge is shared.
#[derive(Clone, Debug, Default)]
pub(crate) struct KnownClocks(Option<Rc<BlockClocks>>);

/// The clocks of blocks, sorted by block number.
type BlockClocks = Vec<(u32, Rc<Clock>)>;

/// A warp of a block at one value of its clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct WarpStamp {
    /// The number of the block, starting at 1.
    pub(crate) block: u32,
    pub(crate) warp: u32,
    pub(crate) count: u32,
}

/// Knowledge about other blocks that a warp acquired. `count` is its own clock from then on.
#[derive(Debug)]
struct Acquired {
    warp: u32,
    count: u32,
    known: KnownClocks,
}

/// The knowledge that strong writes have published at an address, and the last writer.
#[derive(Debug, Default)]
struct PublishedKnown {
    known: KnownClocks,
    by: (u32, u32),
}

/// The knowledge of a warp about other blocks.
#[derive(Debug, Default)]
struct WarpOrder {
    known: KnownClocks,
    /// The acquisitions of the block that are not part of `known`, and the number of acquisitions
    /// seen so far.
    left_out: Vec<usize>,
    looked_at: usize,
    /// The knowledge at the last releasing fence.
    fenced: Option<KnownClocks>,
    /// The releases that were read by relaxed accesses, by address. An acquiring fence makes them
    /// known.
    noted: FxHashMap<u64, KnownClocks>,
}

/// The knowledge of a running block about other blocks.
#[derive(Debug, Default)]
pub(crate) struct BlockOrder {
    /// The number of the block, starting at 1.
    pub(crate) block: u32,
    acquired: Vec<Acquired>,
    warps: Vec<WarpOrder>,
}

/// The knowledge that blocks have published, by address.
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

impl KnownClocks {
    fn of(block: u32, clock: Clock) -> KnownClocks {
        KnownClocks(Some(Rc::new(vec![(block, Rc::new(clock))])))
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

    fn covers(&self, other: &KnownClocks) -> bool {
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

    fn join(&mut self, other: &KnownClocks) {
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
    /// Creates the state of a block that knows nothing about other blocks.
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

    /// Returns the knowledge of a warp: its own acquisitions, and acquisitions of other warps
    /// before they synchronized with it.
    fn known(&mut self, clocks: &Clocks, warp: u32) -> &KnownClocks {
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

    /// Returns true if an access of any block is ordered before the next access of a warp of this
    /// block.
    ///
    /// Always true for warps of this block, which are checked separately.
    pub(crate) fn ordered(&mut self, clocks: &Clocks, warp: u32, earlier: WarpStamp) -> bool {
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

    fn acquire(&mut self, clocks: &mut Clocks, warp: u32, known: KnownClocks) {
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

    /// Returns the knowledge that a release of a warp publishes.
    fn release(&mut self, clocks: &Clocks, warp: u32) -> KnownClocks {
        let block = self.block;
        let mut known = self.known(clocks, warp).clone();
        known.join(&KnownClocks::of(block, clocks.snapshot(warp)));
        known
    }

    /// Executes an acquiring fence at a scope that includes other blocks.
    pub(crate) fn acquire_fence(&mut self, clocks: &mut Clocks, warp: u32) {
        let mut all = KnownClocks::default();
        self.warp(warp)
            .noted
            .drain()
            .for_each(|(_, known)| all.join(&known));
        self.acquire(clocks, warp, all);
    }

    /// Executes a releasing fence at a scope that includes other blocks. Must precede
    /// [`Clocks::release_fence`].
    pub(crate) fn release_fence(&mut self, clocks: &Clocks, warp: u32) {
        let known = self.release(clocks, warp);
        self.warp(warp).fenced = Some(known);
    }

    /// Executes the read of a strong access at a scope that includes other blocks.
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

    /// Executes the write of a strong access at a scope that includes other blocks.
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
        let given = if access.releases {
            Some(self.release(clocks, warp))
        } else {
            self.warp(warp).fenced.clone()
        };
        let keeps = access.reads || exchange.0.get(&address).is_some_and(|p| p.by == by);
        match given {
            None if keeps => {}
            None => _ = exchange.0.remove(&address),
            Some(given) => {
                let published = exchange.0.entry(address).or_default();
                if keeps {
                    published.known.join(&given)
                } else {
                    published.known = given
                }
                published.by = by;
            }
        }
    }
}
