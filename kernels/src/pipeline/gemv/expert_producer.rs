//! The producer warp of a GEMV over the tiles of chosen experts.
//!
//! Unlike other producers, it must know which experts are chosen before its first load. It then
//! fills the whole ring without a throttle, because memory is idle at that time: each lane computes
//! the address of one stage and loads it. Later, the lanes take turns in the order of the stages.

use super::expert_tiles::shared_weights;
use super::expert_tiles::{ExpertSource, ExpertTiles, shared_indices};
use super::layout::SCRATCH;
use super::plan::Timestamp;
use super::ring::Ring;
use super::stream::{BlockShare, WeightStream};
use crate::format::tile;
use ptx_gen::*;

/// The maximum number of polls for the experts that the previous GEMV has chosen, about a tenth of a
/// millisecond.
const MAX_POLLS: u32 = 128;

/// A copy of adjacent tiles into a stage.
struct RunCopy<'k> {
    /// The first tile in the stage.
    first: u32,
    /// The address of the first tile.
    from: Ptr<'k, u8, ReadOnly>,
    /// The number of tiles.
    len: U32<'k>,
    exists: Pred<'k>,
}

impl<'k> WeightStream<'k> {
    /// Finds the chosen experts and fills the stages with their tiles. The whole producer warp must
    /// call it. The plan's copies are bulk copies, and its batch is one token.
    pub(super) fn fill_with_experts(
        &self,
        ring: &Ring<'k>,
        shares: &[BlockShare<'k>],
        experts: &ExpertTiles<'k>,
    ) {
        let k = self.k;
        let [share] = shares else {
            unreachable!("experts have one segment")
        };
        self.find_experts(ring, experts);

        // The lanes read each other's indices, and the consumers read the weights. Each stage's
        // full barrier publishes them, because its arrival follows this barrier.
        k.warp_barrier();

        let width = self.plan.width;
        let lane = k.lane();
        let policy = k.evict_first();
        let mut parity = k.var(1);
        k.for_each(0, share.len, ring.count * width, |round| {
            k.section(
                "pipeline/experts/addresses",
                "producer warp: each lane has one stage of the ring",
            );
            let first = round + lane * width;
            let exists = lane.lt(ring.count) & first.lt(share.len);
            let len = (share.len - first).min(width);
            let copies = self.copies_of(ring, share, experts, first, len);
            let load = || self.load_runs(ring, share, &copies, len, policy);

            k.section(
                "pipeline/experts/copy_tiles",
                "producer warp: copy the experts' tiles into the ring",
            );
            k.when(round.eq(0), || {
                // In the first round every stage is empty.
                k.when(exists, load);
            })
            .otherwise(|| {
                k.for_each(0, ring.count, 1, |turn| {
                    k.when(lane.eq(turn) & exists, || {
                        self.wait(ring.empty(lane), &parity);
                        load();
                    });
                });
            });
            parity ^= 1;
        });

        k.section(
            "pipeline/experts/done",
            "producer warp: all tiles are requested",
        );
        k.warp_barrier();
        let first = lane.eq(0);

        // The earlier GEMV has published its number before: this warp has waited for that, or for
        // its end.
        k.when(first, || {
            self.args
                .progress
                .at(k.ctaid())
                .st_release(self.args.sequence)
        });
        self.timestamp(first, Timestamp::Drained);
    }

    /// Stores the indices of the chosen experts in shared memory, and their weights if this kernel
    /// computes them.
    fn find_experts(&self, ring: &Ring<'k>, experts: &ExpertTiles<'k>) {
        let k = self.k;
        let lane = k.lane();
        let inside = lane.lt(experts.chosen);
        let own = k.ctaid().mad(experts.chosen, lane);
        match &experts.source {
            ExpertSource::Router { choice, chosen } => {
                k.section(
                    "pipeline/experts/wait",
                    "producer warp: the logits are results of an earlier kernel",
                );
                k.grid_wait();
                let (index, weight) = choice.run(k);
                k.when(inside, || {
                    chosen.at(own).st(index);
                    shared_indices(ring.base).at(lane).st(index);
                    shared_weights(ring.base.at(SCRATCH)).at(lane).st(weight);
                });
            }
            ExpertSource::Published(chosen) => {
                self.wait_for_choice();
                k.when(inside, || {
                    // Every index is bounded before it becomes an address.
                    let index = chosen.at(own).ld().min(experts.count - 1);
                    shared_indices(ring.base).at(lane).st(index);
                });
            }
        }
    }

    /// Waits until the previous GEMV has chosen the experts. It publishes them with its last load,
    /// while it still multiplies.
    ///
    /// The number of polls is bounded. After the last poll, the warp waits for the end of the
    /// previous GEMV.
    fn wait_for_choice(&self) {
        let k = self.k;
        k.section(
            "pipeline/experts/wait_for_choice",
            "producer warp: wait until the previous GEMV has published its experts",
        );
        let before = self.args.sequence - 1;
        let progress = self.args.progress.at(k.ctaid());
        let mut published = k.var(0);
        k.when(k.lane().eq(0), || {
            let mut poll = (k.var(MAX_POLLS), &mut published);
            k.repeat_with(
                &mut poll,
                |(left, published)| left.get().eq(0) | published.get().ne(0),
                |(left, published)| {
                    let found = progress.ld_acquire().eq(before);
                    published.set(found.select(1, 0));
                    *left -= 1;
                },
            );
        });

        // The shuffle is a barrier of the warp's values, and the barrier one of its memory.
        k.warp_barrier();
        k.when(published.get().broadcast().eq(0), || k.grid_wait());
    }

    /// Returns the copies that fill a stage with `len` tiles of the share, from `first` on. Each
    /// run of an expert is a separate copy.
    fn copies_of(
        &self,
        ring: &Ring<'k>,
        share: &BlockShare<'k>,
        experts: &ExpertTiles<'k>,
        first: U32<'k>,
        len: U32<'k>,
    ) -> Vec<RunCopy<'k>> {
        let k = self.k;
        let bytes = tile::of(share.format).bytes;
        let mut tile = experts.tile(share.first.mad(self.row_tiles(), first));
        (0..self.plan.width)
            .map(|i| {
                if i > 0 {
                    tile = experts.next(tile);
                }
                let expert = shared_indices(ring.base).at(tile.slot).ld();
                let in_stage = k.val(i).lt(len);
                RunCopy {
                    first: i,
                    from: self.tiles.row(experts.index(expert, tile), bytes),
                    len: (experts.run - tile.within).min(len - i),
                    exists: if i == 0 {
                        in_stage
                    } else {
                        in_stage & tile.within.eq(0)
                    },
                }
            })
            .collect()
    }

    /// Loads a stage: the lane's number is its place in the ring.
    fn load_runs(
        &self,
        ring: &Ring<'k>,
        share: &BlockShare<'k>,
        copies: &[RunCopy<'k>],
        len: U32<'k>,
        policy: U64<'k>,
    ) {
        let k = self.k;
        let bytes = tile::of(share.format).bytes;
        let full = ring.full(k.lane());
        full.arrive_expect(len * bytes);
        let stage = ring.stages.row(k.lane(), ring.size);
        for copy in copies {
            k.when(copy.exists, || {
                let to = stage.row(copy.first, bytes);
                copy.from.bulk_copy(to, copy.len * bytes, full, policy);
            });
        }
    }
}
