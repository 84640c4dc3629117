//! How a block of queries goes through the keys that they see.

use super::block::{Block, Head};
use super::fragments::Tile;
use ptx_gen::*;

/// The keys that a block of queries sees, and those of its warps and lanes.
pub(super) struct Keys<'a, 'k> {
    block: &'a Block<'k>,
    kv: [Head<'k>; 2],
    /// The block's first key, and the token after its last.
    first: U32<'k>,
    end: U32<'k>,
    warp: WarpQueries<'k>,
    /// For each of the lane's queries: the first key that it sees, and how many follow.
    lane: Vec<[(U32<'k>, U32<'k>); 2]>,
}

/// The queries of a warp.
struct WarpQueries<'k> {
    /// The first, past the last token perhaps.
    first: U32<'k>,
    /// The last that there is.
    last: U32<'k>,
    /// The first keys that the first and the last see.
    starts: [U32<'k>; 2],
}

/// A step of keys.
#[derive(Clone, Copy)]
pub(super) struct Step<'k> {
    /// The first key.
    first: U32<'k>,
    /// Which half of the double buffer has it.
    pub(super) odd: U32<'k>,
}

impl<'a, 'k> Keys<'a, 'k> {
    /// Keys and values `kv` of the block's queries; `starts` as the kernels have it.
    pub(super) fn new(block: &'a Block<'k>, kv: [Head<'k>; 2], starts: Ptr<'k, u32, Read>) -> Self {
        let Block { sizes, last, first, .. } = *block;
        let start = |token: U32<'k>| starts.at(token.min(last)).ld();
        let warp_first = block.warp_first();
        let warp_last = (warp_first + (sizes.warp_rows() - 1)).min(last);
        let seen = |token: U32<'k>| {
            let (token, start) = (token.min(last), start(token));
            (start, token - start)
        };
        Keys {
            block,
            kv,
            first: start(first),
            end: (first + sizes.owned).min(last + 1),
            warp: WarpQueries {
                first: warp_first,
                last: warp_last,
                starts: [start(warp_first), start(warp_last)],
            },
            lane: block.lane_tokens().into_iter().map(|two| two.map(seen)).collect(),
        }
    }

    /// Runs `body` with each step of which some pair may count for the warp, when it has been copied.
    pub(super) fn each_step(&self, body: impl FnOnce(Step<'k>)) {
        let (k, block, step) = (self.block.k, self.block, self.block.sizes.step);
        block.copy_step(self.kv, self.first, k.val(0));
        k.commit_copies();
        k.for_each(self.first, self.end, step, |first| {
            k.note("flash: wait for a step, and copy the next");
            let odd = ((first - self.first) / step) & 1;
            k.wait_copies(0);
            k.barrier();
            k.when((first + step).lt(self.end), || block.copy_step(self.kv, first + step, odd ^ 1));
            k.commit_copies();
            let WarpQueries { first: warp_first, last, starts } = self.warp;
            let counts = first.le(last) & (first + step).gt(starts[0]) & warp_first.le(block.last);
            k.when(counts, || body(Step { first, odd }));
        });
    }

    /// Scores of pairs that do not count become minus infinity.
    pub(super) fn mask(&self, scores: &mut [Tile<'k>], step: Step<'k>) {
        let (k, keys) = (self.block.k, self.block.sizes.step);
        let late = (step.first + (keys - 1)).gt(self.warp.first);
        k.when(late | step.first.lt(self.warp.starts[1]), || {
            k.note("flash: leave out keys that a query does not see");
            let key = step.first + (k.lane() & 3) * 2;
            for (tile, queries) in scores.iter_mut().zip(&self.lane) {
                let distances = queries.map(|(start, _)| key - start);
                for (sums, eight) in tile.iter_mut().zip(0..) {
                    for (i, score) in sums.0.iter_mut().enumerate() {
                        let seen = (distances[i / 2] + (8 * eight + i as u32 % 2)).le(queries[i / 2].1);
                        score.set(seen.select(score.get(), f32::NEG_INFINITY));
                    }
                }
            }
        });
    }
}
