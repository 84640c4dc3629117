//! Rings of stages in shared memory: a pipeline in which one thread fills a stage while warps read
//! others.
//!
//! Each stage has two mbarriers. `full` counts the bytes that have been copied and the blocks that
//! fill the stage. `empty` counts the warps that have finished reading it. A position in the ring
//! ([`RingAt`]) is a stage and the parity of its phase. The parity flips each time the position
//! wraps around.

use crate::asynchronous::Mbarrier;
use crate::build::{Builder, U32, Var};
use crate::check::ErrorKind;
use crate::mem::{Ptr, Shared};

/// A ring of stages in shared memory with their mbarriers. [`Builder::ring`] creates it.
///
/// One thread calls [`fill`](Ring::fill) for each stage. The readers call [`wait`](Ring::wait),
/// read the stage, call [`advance`](Ring::advance) and then
/// [`release_before`](Ring::release_before).
///
/// # Example: one warp copies, three warps add up
/// ```
/// # use ptx_gen::prelude::*;
/// use ptx_gen::RingShape;
///
/// # let ptx = ptx_gen::example(|k, a| {
/// let shape = RingShape { stages: 4, bytes: 1024, readers: 3, blocks: 1 };
/// let ring = k.ring(k.tile_memory("stages"), shape);
/// k.when(k.tid().eq(0), || ring.init());
/// k.barrier();
///
/// k.when(k.warp().eq(3), || {
///     k.when(k.lane().eq(0), || {
///         let policy = k.evict_first();
///         let mut at = ring.start();
///         k.for_each(0, a.n, 256, |i| {
///             ring.fill(&mut at, |stage, landed| {
///                 a.w.at(i).bulk_copy(stage.cast(), 1024, landed, policy)
///             })
///         });
///     });
/// })
/// .otherwise(|| {
///     let mut sum = k.var(0.0);
///     let mut at = ring.start();
///     k.for_each(0, a.n, 256, |_| {
///         let stage = ring.wait(&at).cast::<f32>();
///         sum += stage.at(k.tid()).ld();
///         ring.advance(&mut at);
///         // The loads must not be overtaken by the next copy into this stage.
///         k.fence_async();
///         ring.release_before(&at);
///     });
///     a.x.at(k.tid()).st(&sum);
/// });
/// # })?;
/// assert_eq!(ptx.matches("mbarrier.init.shared.b64").count(), 8);
/// assert_eq!(ptx.matches("mbarrier.try_wait").count(), 2);
/// # Ok::<(), ptx_gen::Errors>(())
/// ```
pub struct Ring<'k> {
    k: Builder<'k>,
    memory: Ptr<'k, u8, Shared>,
    full: Ptr<'k, u64, Shared>,
    empty: Ptr<'k, u64, Shared>,
    shape: RingShape,
}

/// The shape of a [`Ring`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RingShape {
    /// The number of stages.
    pub stages: u32,
    /// The size of a stage in bytes, a multiple of 1024 because tiles begin at such addresses.
    pub bytes: u32,
    /// The number of warps of a block that read each stage.
    pub readers: u32,
    /// The number of blocks of the cluster that fill stages for each other, at most 8. It is 1
    /// without clusters.
    pub blocks: u32,
}

/// The position of a thread in a ring.
pub struct RingAt<'k> {
    stage: Var<'k, u32>,
    parity: Var<'k, u32>,
}

impl<'k> Builder<'k> {
    /// Returns a ring of stages in `memory`. Needs sm_90.
    ///
    /// `memory` must come from [`tile_memory`](Builder::tile_memory) and have at least
    /// [`RingShape::memory`] bytes. Building the program returns an error if the shape is not
    /// valid.
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
                "invalid ring of {stages} stages of {bytes} bytes for {readers} warps in {blocks} blocks: expected \
                 stages of a multiple of 1024 bytes, no number 0, and at most 8 blocks"
            );
            self.error(ErrorKind::Limit(what));
        }

        let full = self.shared("full", stages.max(1));
        let empty = self.shared("empty", stages.max(1));
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
    /// Returns the size of all stages in bytes.
    pub const fn memory(self) -> u32 {
        self.stages * self.bytes
    }
}

impl<'k> Ring<'k> {
    /// Initializes the mbarriers.
    ///
    /// One thread must call it, before a barrier of all threads of the cluster.
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

    /// Returns the position of the first stage, which is empty.
    #[track_caller]
    pub fn start(&self) -> RingAt<'k> {
        RingAt {
            stage: self.k.var(0),
            parity: self.k.var(0),
        }
    }

    /// Waits until the stage is free, starts `copies` into it, and moves `at` to the next stage.
    ///
    /// `copies` receives the memory of the stage and the mbarrier that counts the bytes. It must
    /// issue copies for all bytes of the stage. One thread of each block calls this method. In a
    /// cluster the stage is free in all blocks, so copies may write to each of them.
    #[track_caller]
    pub fn fill(
        &self,
        at: &mut RingAt<'k>,
        copies: impl FnOnce(Ptr<'k, u8, Shared>, Mbarrier<'k>),
    ) {
        self.fill_part(at, self.shape.bytes, copies)
    }

    /// Fills a stage like [`fill`](Ring::fill), with copies of only `bytes` bytes.
    ///
    /// Building the program returns an error if `bytes` is larger than the stage.
    #[track_caller]
    pub fn fill_part(
        &self,
        at: &mut RingAt<'k>,
        bytes: u32,
        copies: impl FnOnce(Ptr<'k, u8, Shared>, Mbarrier<'k>),
    ) {
        if bytes > self.shape.bytes {
            let what = format!(
                "{bytes} bytes do not fit into a stage of {}",
                self.shape.bytes
            );
            return self.k.error(ErrorKind::Limit(what));
        }

        let stage = at.stage.get();
        let parity = at.parity.get();

        // A new mbarrier counts as if the phase before its first one had ended, so the first round
        // of fills does not wait.
        self.empty.at(stage).mbarrier().wait(parity ^ 1);
        let full = self.full.at(stage).mbarrier();
        full.arrive_expect(bytes);
        self.tell_others(full);
        copies(self.memory.row(stage, self.shape.bytes), full);
        self.advance(at);
    }

    /// Arrives at the `full` mbarriers of the other blocks, to report that the stage is free in
    /// this block.
    ///
    /// A warp that waits for `full` then knows that the stage was free in every block, and releases
    /// it only afterwards. Without this arrival, a fast block could release the stage again before
    /// a slow block has finished the previous phase, and the release would be counted for the wrong
    /// phase. This is only possible if copies stay within their own block, because nothing else
    /// orders the blocks.
    #[track_caller]
    fn tell_others(&self, full: Mbarrier<'k>) {
        let blocks = self.shape.blocks;
        for i in 1..blocks {
            full.arrive_in_block((self.k.cluster_rank() + i) % blocks);
        }
    }

    /// Waits until all bytes of the stage have been copied. Returns the memory of the stage.
    #[track_caller]
    pub fn wait(&self, at: &RingAt<'k>) -> Ptr<'k, u8, Shared> {
        let stage = at.stage.get();
        self.full.at(stage).mbarrier().wait(&at.parity);
        self.memory.row(stage, self.shape.bytes)
    }

    /// Moves the position to the next stage.
    #[track_caller]
    pub fn advance(&self, at: &mut RingAt<'k>) {
        let next = at.stage.get() + 1;
        let wraps = next.eq(self.shape.stages);
        at.stage.set(wraps.select(0, next));
        let parity = at.parity.get();
        at.parity.set(wraps.select(parity ^ 1, parity));
    }

    /// Releases the stage before this position, so that copies may overwrite it.
    ///
    /// Each reading warp must call it once per stage. In a cluster the warp notifies every block,
    /// because each block fills the stage. If lanes read the stage with ordinary loads instead of
    /// `wgmma`, they must execute [`fence_async`](Builder::fence_async) first. Otherwise copies may
    /// overtake the loads.
    #[track_caller]
    pub fn release_before(&self, at: &RingAt<'k>) {
        let stage = at.stage.get();
        let before: U32<'k> = stage.eq(0).select(self.shape.stages - 1, stage - 1);
        let empty = self.empty.at(before).mbarrier();
        let lane = self.k.lane();
        match self.shape.blocks {
            1 => self.k.when(lane.eq(0), || empty.arrive()),
            blocks => self.k.when(lane.lt(blocks), || empty.arrive_in_block(lane)),
        };
    }
}
