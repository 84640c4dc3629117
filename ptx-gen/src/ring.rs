//! Rings of stages in shared memory: one thread fills a stage while others read those before; or whole warps do, which
//! write a part of it themselves.
//!
//! Each stage has two mbarriers. `full` counts the bytes that have landed, the blocks that fill the stage, and the warps that
//! have written their part; `empty` counts the warps that have done with them. Both go through phases, told apart by their parity: a place in the ring ([`RingAt`]) is a stage and the parity
//! of its phase, which changes when the ring comes round.

use crate::asynchronous::Mbarrier;
use crate::build::{Builder, Pred, U32, Var};
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
    /// Bytes of a stage: a multiple of 1024, where tiles begin. Copies bring all of them each time, or what no warp writes.
    pub bytes: u32,
    /// Warps of a block that write a part of each stage ([`fill_and_write`](Ring::fill_and_write)); 0 if copies bring all.
    pub writers: u32,
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
        let RingShape { stages, bytes, writers, readers, blocks } = shape;
        if stages == 0
            || bytes == 0
            || !bytes.is_multiple_of(1024)
            || readers == 0
            || !(1..=8).contains(&blocks)
        {
            let what = format!(
                "a ring of {stages} stages of {bytes} bytes by {writers} warps for {readers} in {blocks} blocks; stages are \
                 multiples of 1024, no number but the first of warps is 0, and blocks are at most 8"
            );
            self.error(ErrorKind::Limit(what));
        }
        let (full, empty) = (self.shared("full", stages.max(1)), self.shared("empty", stages.max(1)));
        Ring { k: self, memory, full, empty, shape }
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
            self.full.at(stage).mbarrier().init(self.fillers());
            self.empty.at(stage).mbarrier().init(self.shape.readers * self.shape.blocks);
        }
        self.k.fence_mbarriers();
    }

    /// Arrivals that fill a stage beside its bytes: each block's, or the one that asks for copies, and all warps that write.
    fn fillers(&self) -> u32 {
        match self.shape.writers {
            0 => self.shape.blocks,
            writers => 1 + writers * self.shape.blocks,
        }
    }

    /// The first stage, empty.
    #[track_caller]
    pub fn start(&self) -> RingAt<'k> {
        RingAt { stage: self.k.var(0), parity: self.k.var(0) }
    }

    /// Waits until the stage has been released, then runs `copies` with its memory and the mbarrier that counts their
    /// bytes: all bytes of the stage; goes on to the next stage. By one thread of each block.
    ///
    /// In a cluster the stage has been released in all of its blocks, so that copies may go to each of them.
    #[track_caller]
    pub fn fill(&self, at: &mut RingAt<'k>, copies: impl FnOnce(Ptr<'k, u8, Shared>, Mbarrier<'k>)) {
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

    /// Waits until the stage has been released; then one thread, for which `asks` holds, runs `copies`, which bring so many
    /// bytes, and all run `write`, which writes what the products read beside them; goes on to the next stage. By all
    /// threads of the warps that write. In a cluster each of them writes its part of the stage in all blocks, all of which
    /// have released it.
    #[track_caller]
    pub fn fill_and_write(
        &self,
        at: &mut RingAt<'k>,
        (asks, bytes): (Pred<'k>, u32),
        copies: impl FnOnce(Ptr<'k, u8, Shared>, Mbarrier<'k>),
        write: impl FnOnce(Ptr<'k, u8, Shared>),
    ) {
        if bytes > self.shape.bytes || self.shape.writers == 0 {
            let what = format!(
                "{bytes} bytes in a stage of {}, and {} warps that write",
                self.shape.bytes, self.shape.writers
            );
            return self.k.error(ErrorKind::Limit(what));
        }
        let (k, stage) = (self.k, at.stage.get());
        let (full, memory) = (self.full.at(stage).mbarrier(), self.memory.row(stage, self.shape.bytes));
        self.empty.at(stage).mbarrier().wait(at.parity.get() ^ 1);
        k.when(asks, || {
            full.arrive_expect(bytes);
            copies(memory, full);
        });
        write(memory);
        // Products read by the async proxy.
        match self.shape.blocks {
            1 => {
                k.fence_async();
                k.warp_barrier();
                k.when(k.lane().eq(0), || full.arrive());
            }
            blocks => {
                k.fence_async_in_cluster();
                k.warp_barrier();
                let lane = k.lane();
                k.when(lane.lt(blocks), || full.publish_to_block(lane));
            }
        }
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
        let full = self.full.at(stage).mbarrier();
        match self.shape {
            RingShape { writers: 1.., blocks: 2.., .. } => full.wait_for_cluster(&at.parity),
            _ => full.wait(&at.parity),
        }
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
