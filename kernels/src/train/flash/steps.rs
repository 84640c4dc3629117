//! The steps of a block of queries through the keys that its queries see.

use super::block::{FlashBlock, Sizes, TensorHead};
use super::fragments::Tile;
use ptx_gen::*;

/// Returns the bytes after the rows in shared memory: a word for each of the block's queries.
pub(super) const fn bytes(sizes: Sizes) -> u32 {
    4 * sizes.owned
}

/// The keys that a block of queries sees, and those that its warps and lanes see.
pub(super) struct Keys<'a, 'k> {
    block: &'a FlashBlock<'k>,
    kv: [TensorHead<'k>; 2],
    /// The first key that the block sees.
    first: U32<'k>,
    /// The token after the last key that it sees.
    end: U32<'k>,
    own: OwnQueries<'k>,
    /// The first key that each of the block's queries sees.
    starts: Ptr<'k, u32, Shared>,
}

/// The queries of a warp, or of the warpgroup with `wgmma`.
struct OwnQueries<'k> {
    /// The first query. It may be past the last token.
    first: U32<'k>,
    /// The last query that exists.
    last: U32<'k>,
    /// The first keys that the first and the last query see.
    starts: [U32<'k>; 2],
}

/// A step of keys.
#[derive(Clone, Copy)]
pub(super) struct KeyStep<'k> {
    /// The first key of the step.
    first: U32<'k>,
    /// The half of the double buffer that has the step.
    pub(super) odd: U32<'k>,
}

impl<'a, 'k> Keys<'a, 'k> {
    /// Returns the keys and values `kv` that the block's queries see. `starts` has the first token
    /// of each token's document.
    pub(super) fn new(
        block: &'a FlashBlock<'k>,
        kv: [TensorHead<'k>; 2],
        starts: Ptr<'k, u32, ReadOnly>,
    ) -> Self {
        let FlashBlock {
            sizes, last, first, ..
        } = *block;
        let (own_first, rows) = if sizes.panels {
            (first, sizes.owned)
        } else {
            (block.warp_first(), sizes.warp_rows())
        };
        let start = |token: U32<'k>| starts.at(token.min(last)).ld();
        let own_last = (own_first + (rows - 1)).min(last);
        let k = block.k;
        let shared = block.after_rows().cast::<u32>();
        k.when(k.tid().lt(sizes.owned), || {
            shared.at(k.tid()).st(start(first + k.tid()))
        });
        Keys {
            block,
            kv,
            // The minimum ensures that there is a step if `starts` is wrong.
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

    /// Runs `body` for each step, after it has been copied.
    ///
    /// A warp skips steps in which it has no visible pair. A warpgroup takes all steps, because
    /// `wgmma` needs all of its warps.
    pub(super) fn each_step(&self, body: impl FnOnce(KeyStep<'k>)) {
        let k = self.block.k;
        let block = self.block;
        let step = block.sizes.step;
        block.copy_step(self.kv, self.first, k.val(0));
        k.commit_copies();
        k.for_each(self.first, self.end, step, |first| {
            k.section(
                "train/flash/step",
                "flash: wait for a step, and copy the next",
            );
            let odd = ((first - self.first) / step) & 1;
            k.wait_copies(0);

            // `wgmma` reads shared memory through the async proxy, which needs a fence after the
            // copies.
            if block.sizes.panels {
                k.fence_async();
            }

            // The barrier has two purposes: the copies of all threads are visible, and no warp
            // reads the other half any more, so it may be overwritten.
            k.barrier();
            k.when((first + step).lt(self.end), || {
                block.copy_step(self.kv, first + step, odd ^ 1)
            });
            k.commit_copies();
            if block.sizes.panels {
                return body(KeyStep { first, odd });
            }

            let OwnQueries {
                first: own_first,
                last,
                starts,
            } = self.own;
            let counts = first.le(last) & (first + step).gt(starts[0]) & own_first.le(block.last);
            k.when(counts, || body(KeyStep { first, odd }));
        });
    }

    /// Sets the scores of masked pairs to negative infinity.
    pub(super) fn mask(&self, scores: &mut [Tile<'k>], step: KeyStep<'k>) {
        let k = self.block.k;
        let keys = self.block.sizes.step;

        // Most steps have no masked pair: all keys precede the warp's first query, and none
        // precedes the last query's document.
        let late = (step.first + (keys - 1)).gt(self.own.first);
        k.when(late | step.first.lt(self.own.starts[1]), || {
            k.section(
                "train/flash/mask",
                "flash: leave out keys that a query does not see",
            );
            let key = step.first + (k.lane() & 3) * 2;
            for (tile, tokens) in scores.iter_mut().zip(self.block.lane_tokens()) {
                let start = |token: U32<'k>| self.starts.at(token - self.block.first).ld();
                let starts = tokens.map(start);
                let distances = starts.map(|start| key - start);
                let spans = [0, 1].map(|r| tokens[r] - starts[r]);
                for (sums, eight) in tile.iter_mut().zip(0..) {
                    for (i, score) in sums.0.iter_mut().enumerate() {
                        // One unsigned comparison covers both ends of the document.
                        let further = 8 * eight + i as u32 % 2;
                        let seen = (distances[i / 2] + further).le(spans[i / 2]);
                        score.set(seen.select(score.get(), f32::NEG_INFINITY));
                    }
                }
            }
        });
    }
}
