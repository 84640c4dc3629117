//! The producer warp: loads the block's tiles into the ring.
//!
//! It never executes `griddepcontrol.wait`, because weights never change. Of the data of other
//! kernels, it reads only the progress flags of the previous GEMV, with acquire loads.

use super::plan::{Copies, Timestamp};
use super::ring::{Ring, RingCursor};
use super::stream::{BARRIERS_READY, BlockShare, READY, WeightStream};
use crate::format::tile;
use ptx_gen::*;

/// The maximum number of bytes in flight during the first pass over the ring. About this many
/// saturate an SM's share of the memory bandwidth. More would only queue, and the previous kernel
/// would wait for its own requests.
const FIRST_PASS_BYTES: u32 = 36 << 10;
/// The maximum number of polls of the previous GEMV's progress flag, about a tenth of a
/// millisecond.
const MAX_POLLS: u32 = 128;
/// The number of 16-byte copies that a lane issues per iteration.
const COPIES_PER_PASS: u32 = 4;

/// The producer's counters.
struct Throttle<'k> {
    /// The number of stages that the plan's prefetch limit still allows. It becomes negative after
    /// the wait for the previous GEMV.
    unthrottled: Var<'k, u32>,
    /// The stage of the first pass over the ring, or the number of stages after that pass.
    first_pass: Var<'k, u32>,
    /// The number of stages in flight during the first pass.
    in_flight: u32,
}

impl<'k> WeightStream<'k> {
    /// Initializes the ring's mbarriers, signals that they are ready, and fills the stages.
    pub(super) fn produce(&self, ring: &Ring<'k>, shares: &[BlockShare<'k>]) {
        let k = self.k;

        k.section(
            "pipeline/producer/barriers",
            "producer warp: initialize the barriers of the ring",
        );
        let lane = k.lane();
        k.when(lane.eq(0), || self.init_mbarriers(ring));
        k.warp_barrier();
        k.barrier_arrive(READY, self.plan.threads());
        if self.plan.profile {
            k.barrier_arrive(BARRIERS_READY, self.plan.threads());
        }

        if let Some(experts) = &self.experts {
            self.fill_with_experts(ring, shares, experts);
            if let Some(biases) = &experts.biases {
                self.add_biases(ring, &shares[0], experts, biases);
            }
            return;
        }

        // A bulk copy is issued by one lane. `cp.async` needs the whole warp.
        match self.plan.copies {
            Copies::Bulk => _ = k.when(lane.eq(0), || self.fill(ring, shares)),
            Copies::Async => self.fill(ring, shares),
        }
    }

    /// Initializes the ring's mbarriers. Only one lane may run it.
    fn init_mbarriers(&self, ring: &Ring<'k>) {
        self.k.for_each(0, ring.count, 1, |slot| {
            ring.full(slot).init(self.plan.arrivals());
            // Each lane arrives for its own reads. A single arrival per warp, after a warp barrier,
            // is not faster.
            ring.empty(slot).init(32 * self.plan.width);
        });
        // Bulk copies complete on the mbarriers through the async proxy, which must see the
        // initialization.
        if self.plan.overlaps() {
            self.k.fence_mbarriers();
        }
    }

    /// Fills the stages as they become empty. The copying lanes run it.
    fn fill(&self, ring: &Ring<'k>, shares: &[BlockShare<'k>]) {
        let k = self.k;
        let mut cursor = RingCursor::new(k);
        let mut throttle = Throttle {
            unthrottled: k.var(self.plan.prefetch_limit.unwrap_or(0)),
            first_pass: k.var(0),
            in_flight: (FIRST_PASS_BYTES / ring.size).max(1),
        };

        // Each weight is read once per token, so it should not displace the activations in the L2
        // cache.
        let policy = self.plan.overlaps().then(|| k.evict_first());
        for share in shares {
            k.section(
                "pipeline/producer/copy_tiles",
                "producer warp: copy the tiles of a matrix into the ring",
            );
            k.for_each(0, share.len, self.plan.width, |first| {
                // In the first pass, every stage is empty: waiting for the phase before the first
                // one returns immediately.
                self.wait(ring.empty(&cursor.slot), cursor.phase.get() ^ 1);
                self.throttle(ring, &mut throttle);
                self.load_stage(ring, &cursor, share, first, policy);
                cursor.step(k, 1, ring.count);
            });
        }

        self.finish(ring, cursor, throttle);
    }

    /// Delays the next load so that the previous kernel's own requests do not queue behind it.
    fn throttle(&self, ring: &Ring<'k>, throttle: &mut Throttle<'k>) {
        let k = self.k;
        if self.plan.prefetch_limit.is_some() {
            k.when(throttle.unthrottled.get().eq(0), || {
                self.wait_for_previous()
            });
            throttle.unthrottled -= 1;
        }
        if self.plan.overlaps() {
            let stage = &mut throttle.first_pass;
            let in_flight = throttle.in_flight;
            k.when(stage.get().lt(ring.count), || {
                k.when(stage.get().ge(in_flight), || {
                    self.wait(ring.full(stage.get() - in_flight), 0);
                });
                *stage += 1;
            });
        }
    }

    /// Loads tiles of a share, starting at tile `first`, as many as a stage holds.
    fn load_stage(
        &self,
        ring: &Ring<'k>,
        cursor: &RingCursor<'k>,
        share: &BlockShare<'k>,
        first: U32<'k>,
        policy: Option<U64<'k>>,
    ) {
        let bytes = tile::of(share.format).bytes;
        let len = (share.len - first).min(self.plan.width) * bytes;
        let full = ring.full(&cursor.slot);
        if self.plan.overlaps() {
            full.arrive_expect(len);
        }

        let to = ring.stages.row(&cursor.slot, ring.size);
        let from = share.tiles.row(first, bytes);
        match policy {
            Some(policy) => from.bulk_copy(to, len, full, policy),
            None => self.copy(from, to, len, full),
        }
    }

    /// Publishes that the last load has been issued. Without bulk copies, it also waits until all
    /// copies have arrived.
    fn finish(&self, ring: &Ring<'k>, mut cursor: RingCursor<'k>, throttle: Throttle<'k>) {
        let k = self.k;

        k.section(
            "pipeline/producer/done",
            "producer warp: all tiles are requested",
        );
        if self.plan.overlaps() {
            // Sequence numbers must be published in order. A negative counter means that the loop
            // has already waited for the previous one.
            k.when(throttle.unthrottled.get().bits::<i32>().ge(0), || {
                self.wait_for_previous()
            });
            self.args
                .progress
                .at(k.ctaid())
                .st_release(self.args.sequence);
        }

        self.timestamp(k.lane().eq(0), Timestamp::Drained);
        if !self.plan.overlaps() {
            // A lane must not exit with copies in flight. A stage that was read had arrived.
            k.for_each(0, ring.count, 1, |_| {
                self.wait(ring.empty(&cursor.slot), cursor.phase.get() ^ 1);
                cursor.step(k, 1, ring.count);
            });
        }
    }

    /// Waits until the previous GEMV has issued its last load.
    ///
    /// The first GEMV of a token does not wait, because it does not know its predecessor. The
    /// number of polls is bounded. If the bound is reached, the kernel is only slower.
    fn wait_for_previous(&self) {
        let k = self.k;

        k.section(
            "pipeline/producer/wait_for_previous",
            "wait until the previous GEMV has requested its last tile",
        );
        let mut left = k.var(self.args.sequence.min(1) * MAX_POLLS);
        let before = self.args.sequence - 1;
        let progress = self.args.progress.at(k.ctaid());
        k.repeat_with(
            &mut left,
            |left| progress.ld_acquire().eq(before) | left.get().eq(0),
            |left| *left -= 1,
        );
    }

    /// Copies `len` bytes, 16 per lane. Each lane arrives when its own copies have landed. The
    /// whole warp must call it.
    ///
    /// These arrivals order no other accesses, not even the observation that the stage was empty.
    /// One lane therefore also executes an ordinary arrive.
    fn copy(
        &self,
        from: Ptr<'k, u8, ReadOnly>,
        to: Ptr<'k, u8, Shared>,
        len: U32<'k>,
        full: Mbarrier<'k>,
    ) {
        const WARP: u32 = 32 * 16;
        let k = self.k;
        k.for_each(k.lane() << 4, len, COPIES_PER_PASS * WARP, |first| {
            for i in 0..COPIES_PER_PASS {
                let at = first + i * WARP;
                k.when(at.lt(len), || from.at(at).copy16(to.at(at)));
            }
        });
        full.arrive_copied();
        k.when(k.lane().eq(0), || full.arrive());
    }
}
