//! The producer warp of a GEMV over the tiles of chosen experts.
//!
//! Unlike other producers, it must know which experts are chosen before its first load. It then
//! fills the whole ring without a throttle, because memory is idle at that time: each lane computes
//! the address of one stage and loads it. Later, the lanes take turns in the order of the stages.
//!
//! With at most 36 KiB in flight in the first round, as other producers have, Qwen3-30B-A3B decodes
//! 5 % slower on an H100: the lanes then take turns in that round too.

use super::expert_tiles::{
    ExpertSource, ExpertTiles, is_for, published_index, published_word, shared_indices,
    shared_weights,
};
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
        let index = self.find_experts(ring, experts);

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

        // Sequence numbers must be published in order. The previous GEMV has published its number:
        // it has ended, or it has done so before it published the experts.
        k.when(first, || {
            self.args
                .progress
                .at(k.ctaid())
                .st_release(self.args.sequence)
        });
        k.warp_barrier();
        let word = match &experts.source {
            ExpertSource::Router(_) => published_word(index, self.args.sequence + 1),
            ExpertSource::Previous => k.val(0),
        };
        k.when(lane.lt(experts.chosen), || {
            self.own_word(experts).st_release(word)
        });
        self.timestamp(first, Timestamp::Drained);
    }

    /// Returns the address of the lane's word in the block's row of published experts.
    fn own_word(&self, experts: &ExpertTiles<'k>) -> Ptr<'k, u32, ReadWrite> {
        let k = self.k;
        experts
            .published
            .at(k.ctaid().mad(experts.chosen, k.lane()))
    }

    /// Stores the indices of the chosen experts in shared memory, and their weights if this kernel
    /// computes them. Returns the index of the lane's expert.
    fn find_experts(&self, ring: &Ring<'k>, experts: &ExpertTiles<'k>) -> U32<'k> {
        let k = self.k;
        let lane = k.lane();
        let inside = lane.lt(experts.chosen);
        match &experts.source {
            ExpertSource::Router(choice) => {
                k.section(
                    "pipeline/experts/wait",
                    "producer warp: the logits are results of an earlier kernel",
                );
                k.grid_wait();
                let (index, weight) = choice.run(k);
                k.when(inside, || {
                    shared_indices(ring.base).at(lane).st(index);
                    shared_weights(ring.base.at(SCRATCH)).at(lane).st(weight);
                });
                index
            }
            ExpertSource::Previous => {
                // Every index is bounded before it becomes an address.
                let index = self.wait_for_choice(experts).min(experts.count - 1);
                k.when(inside, || shared_indices(ring.base).at(lane).st(index));
                index
            }
        }
    }

    /// Waits until the previous GEMV has published the chosen experts, which it does after its last
    /// load, while it still multiplies. Returns the index of the lane's expert.
    ///
    /// The number of polls is bounded. After the last poll, the warp waits for the end of the
    /// previous GEMV.
    fn wait_for_choice(&self, experts: &ExpertTiles<'k>) -> U32<'k> {
        let k = self.k;
        k.section(
            "pipeline/experts/wait_for_choice",
            "producer warp: wait until the previous GEMV has published its experts",
        );
        let inside = k.lane().lt(experts.chosen);
        let at = self.own_word(experts);
        let reader = self.args.sequence;
        let mut state = (k.var(0), k.var(0), k.var(MAX_POLLS));
        k.when(inside, || {
            k.repeat_with(
                &mut state,
                |(_, found, left)| found.get().ne(0) | left.get().eq(0),
                |(word, found, left)| {
                    word.set(at.ld_acquire());
                    found.set(is_for(word.get(), reader).select(1, 0));
                    *left -= 1;
                },
            );
        });
        let (mut word, found, _) = state;
        let missing = inside & found.get().eq(0);
        k.when(missing.any(), || {
            k.grid_wait();
            k.when(inside, || word.set(at.ld_acquire()));
        });
        word.get() & published_index(u32::MAX)
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
