//! Rings of stages in shared memory: one thread fills a stage while others read those before.
//!
//! Each stage has two mbarriers. `full` counts the bytes that have landed, and the blocks that fill the stage; `empty` counts
//! the warps that have done with them. Both go through phases, told apart by their parity: a place in the ring ([`RingAt`]) is a stage and the parity
//! of its phase, which changes when the ring comes round.

use crate::asynchronous::Mbarrier;
use crate::build::{Builder, U32, Var};
use crate::check::ErrorKind;
use crate::mem::{Ptr, Shared};

/// Stages in shared memory, and their mbarriers. [`Builder::ring`] makes it.
pub struct Ring<'k> {
    k: Builder<'k>,
    memory: Ptr<'k, u8, Shared>,
    full: Ptr<'k, u64, Shared>,
    empty: Ptr<'k, u64, Shared>,
    shape: RingShape,
}

/// What a ring is made of.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RingShape {
    /// Stages.
    pub stages: u32,
    /// Bytes of a stage, all of which copies bring each time: a multiple of 1024, where tiles begin.
    pub bytes: u32,
    /// Warps of a block that read a stage.
    pub readers: u32,
    /// Blocks of the cluster that fill stages for each other; 1 without clusters.
    pub blocks: u32,
}

/// Where a thread is in a ring.
pub struct RingAt<'k> {
    stage: Var<'k, u32>,
    parity: Var<'k, u32>,
}

impl<'k> Builder<'k> {
    /// A ring of stages in this memory, which is [`tile_memory`](Builder::tile_memory) of at least
    /// [`RingShape::memory`] bytes. sm_90.
    #[track_caller]
    pub fn ring(self, memory: Ptr<'k, u8, Shared>, shape: RingShape) -> Ring<'k> {
        let RingShape {
            stages,
            bytes,
            readers,
            blocks,
        } = shape;
        if stages == 0
            || bytes == 0
            || !bytes.is_multiple_of(1024)
            || readers == 0
            || !(1..=8).contains(&blocks)
        {
            let what = format!(
                "a ring of {stages} stages of {bytes} bytes for {readers} warps in {blocks} blocks; stages are multiples \
                 of 1024, and no number is 0, of blocks at most 8"
            );
            self.error(ErrorKind::Limit(what));
        }
        let (full, empty) = (
            self.shared("full", stages.max(1)),
            self.shared("empty", stages.max(1)),
        );
        Ring {
            k: self,
            memory,
            full,
            empty,
            shape,
        }
    }
}

impl RingShape {
    /// Bytes of all stages.
    pub const fn memory(self) -> u32 {
        self.stages * self.bytes
    }
}

impl<'k> Ring<'k> {
    /// Makes the mbarriers: by one thread, before a barrier of all threads of the cluster.
    #[track_caller]
    pub fn init(&self) {
        for stage in 0..self.shape.stages {
            self.full.at(stage).mbarrier().init(self.shape.blocks);
            self.empty
                .at(stage)
                .mbarrier()
                .init(self.shape.readers * self.shape.blocks);
        }
        self.k.fence_mbarriers();
    }

    /// The first stage, empty.
    #[track_caller]
    pub fn start(&self) -> RingAt<'k> {
        RingAt {
            stage: self.k.var(0),
            parity: self.k.var(0),
        }
    }

    /// Waits until the stage has been released, then runs `copies` with its memory and the mbarrier that counts their
    /// bytes: all bytes of the stage; goes on to the next stage. By one thread of each block.
    ///
    /// In a cluster the stage has been released in all of its blocks, so that copies may go to each of them.
    #[track_caller]
    pub fn fill(
        &self,
        at: &mut RingAt<'k>,
        copies: impl FnOnce(Ptr<'k, u8, Shared>, Mbarrier<'k>),
    ) {
        self.fill_part(at, self.shape.bytes, copies)
    }

    /// The same with copies that bring so many bytes, at most those of the stage.
    #[track_caller]
    pub fn fill_part(
        &self,
        at: &mut RingAt<'k>,
        bytes: u32,
        copies: impl FnOnce(Ptr<'k, u8, Shared>, Mbarrier<'k>),
    ) {
        if bytes > self.shape.bytes {
            let what = format!("{bytes} bytes in a stage of {}", self.shape.bytes);
            return self.k.error(ErrorKind::Limit(what));
        }
        let (stage, parity) = (at.stage.get(), at.parity.get());
        // Of a new barrier the phase before the first has ended.
        self.empty.at(stage).mbarrier().wait(parity ^ 1);
        let full = self.full.at(stage).mbarrier();
        full.arrive_expect(bytes);
        self.tell_others(full);
        copies(self.memory.row(stage, self.shape.bytes), full);
        self.advance(at);
    }

    /// Tells the other blocks of the cluster that the stage has been released here. A warp that waits for theirs then knows,
    /// and releases it here only after. Without it, nothing would order that where copies stay in their own block: a fast
    /// block's release could be counted for the time before.
    #[track_caller]
    fn tell_others(&self, full: Mbarrier<'k>) {
        let blocks = self.shape.blocks;
        (1..blocks).for_each(|i| full.arrive_in_block((self.k.cluster_rank() + i) % blocks));
    }

    /// Waits until the bytes of the stage have landed; gives its memory.
    #[track_caller]
    pub fn wait(&self, at: &RingAt<'k>) -> Ptr<'k, u8, Shared> {
        let stage = at.stage.get();
        self.full.at(stage).mbarrier().wait(&at.parity);
        self.memory.row(stage, self.shape.bytes)
    }

    /// Goes on to the next stage.
    #[track_caller]
    pub fn advance(&self, at: &mut RingAt<'k>) {
        let next = at.stage.get() + 1;
        let wraps = next.eq(self.shape.stages);
        at.stage.set(wraps.select(0, next));
        let parity = at.parity.get();
        at.parity.set(wraps.select(parity ^ 1, parity));
    }

    /// Releases the stage before this place: the warp has done with it, and copies may overwrite it. By each warp that
    /// reads, once a stage. In a cluster the warp tells each block, because each fills the stage. A lane that read it by
    /// loads, and not by `wgmma`, executes [`fence_async`](Builder::fence_async) first, or copies may overtake the loads.
    #[track_caller]
    pub fn release_before(&self, at: &RingAt<'k>) {
        let stage = at.stage.get();
        let before: U32<'k> = stage.eq(0).select(self.shape.stages - 1, stage - 1);
        let (empty, lane) = (self.empty.at(before).mbarrier(), self.k.lane());
        match self.shape.blocks {
            1 => self.k.when(lane.eq(0), || empty.arrive()),
            blocks => self.k.when(lane.lt(blocks), || empty.arrive_in_block(lane)),
        };
    }
}
