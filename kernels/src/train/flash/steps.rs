//! How a block of queries goes through the keys that they see.

use super::block::{Block, Head, Sizes};
use super::fragments::Tile;
use ptx_gen::*;

/// What follows the rows in shared memory: a word for each of the block's queries.
pub(super) const fn bytes(sizes: Sizes) -> u32 {
    4 * sizes.owned
}

/// The keys that a block of queries sees, and those of its warps and lanes.
pub(super) struct Keys<'a, 'k> {
    block: &'a Block<'k>,
    kv: [Head<'k>; 2],
    /// The block's first key, and the token after its last.
    first: U32<'k>,
    end: U32<'k>,
    own: OwnQueries<'k>,
    /// The first key that each of the block's queries sees.
    starts: Ptr<'k, u32, Shared>,
}

/// The queries of a warp, or of the warpgroup where it multiplies.
struct OwnQueries<'k> {
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
    pub(super) fn new(
        block: &'a Block<'k>,
        kv: [Head<'k>; 2],
        starts: Ptr<'k, u32, ReadOnly>,
    ) -> Self {
        let Block {
            sizes, last, first, ..
        } = *block;
        let (own_first, rows) = if sizes.panels {
            (first, sizes.owned)
        } else {
            (block.warp_first(), sizes.warp_rows())
        };
        let start = |token: U32<'k>| starts.at(token.min(last)).ld();
        let own_last = (own_first + (rows - 1)).min(last);
        let (k, shared) = (block.k, block.after_rows().cast::<u32>());
        k.when(k.tid().lt(sizes.owned), || {
            shared.at(k.tid()).st(start(first + k.tid()))
        });
        Keys {
            block,
            kv,
            // So that there is a step, whatever memory has.
            first: start(first).min(first),
            end: (first + sizes.owned).min(last + 1),
            own: OwnQueries {
                first: own_first,
                last: own_last,
                starts: [start(own_first), start(own_last)],
            },
            starts: shared,
        }
    }

    /// Runs `body` with each step of which some pair may count for the warp, when it has been copied; a warpgroup that
    /// multiplies, with all of them.
    pub(super) fn each_step(&self, body: impl FnOnce(Step<'k>)) {
        let (k, block, step) = (self.block.k, self.block, self.block.sizes.step);
        block.copy_step(self.kv, self.first, k.val(0));
        k.commit_copies();
        k.for_each(self.first, self.end, step, |first| {
            k.section(
                "train/flash/step",
                "flash: wait for a step, and copy the next",
            );
            let odd = ((first - self.first) / step) & 1;
            k.wait_copies(0);
            if block.sizes.panels {
                k.fence_async();
            }
            k.barrier();
            k.when((first + step).lt(self.end), || {
                block.copy_step(self.kv, first + step, odd ^ 1)
            });
            k.commit_copies();
            if block.sizes.panels {
                return body(Step { first, odd });
            }
            let OwnQueries {
                first: own_first,
                last,
                starts,
            } = self.own;
            let counts = first.le(last) & (first + step).gt(starts[0]) & own_first.le(block.last);
            k.when(counts, || body(Step { first, odd }));
        });
    }

    /// Scores of pairs that do not count become minus infinity.
    pub(super) fn mask(&self, scores: &mut [Tile<'k>], step: Step<'k>) {
        let (k, keys) = (self.block.k, self.block.sizes.step);
        let late = (step.first + (keys - 1)).gt(self.own.first);
        k.when(late | step.first.lt(self.own.starts[1]), || {
            k.section(
                "train/flash/mask",
                "flash: leave out keys that a query does not see",
            );
            let key = step.first + (k.lane() & 3) * 2;
            for (tile, tokens) in scores.iter_mut().zip(self.block.lane_tokens()) {
                let starts = tokens.map(|token| self.starts.at(token - self.block.first).ld());
                let distances = starts.map(|start| key - start);
                let spans = [0, 1].map(|r| tokens[r] - starts[r]);
                for (sums, eight) in tile.iter_mut().zip(0..) {
                    for (i, score) in sums.0.iter_mut().enumerate() {
                        let seen = (distances[i / 2] + (8 * eight + i as u32 % 2)).le(spans[i / 2]);
                        score.set(seen.select(score.get(), f32::NEG_INFINITY));
                    }
                }
            }
        });
    }
}
