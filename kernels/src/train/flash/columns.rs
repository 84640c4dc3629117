//! The steps of a block of keys through the queries that see them. The queries are the columns of
//! the block's matmuls.

use super::FlashKeysArgs;
use super::block::{FlashBlock, Sizes, TensorHead};
use super::common::scale;
use super::fragments::Tile;
use ptx_gen::*;
use std::f32::consts::LOG2_E;

/// The number of queries of a step: one for each lane of the first warp.
pub(super) const QUERIES: u32 = 32;

/// The bytes after the rows of a step in shared memory: a word for each query and
/// [field](QueryField).
pub(super) const STEP_BYTES: u32 = 3 * FIELD_BYTES;

/// The bytes of a field.
const FIELD_BYTES: u32 = 4 * QUERIES;

/// A number of a query.
#[derive(Clone, Copy)]
pub(super) enum QueryField {
    /// `-lse` in log2 units. Past the last token it is negative infinity, so that weights are 0.
    Lse,
    /// `-D / sqrt(d)`.
    Delta,
    /// The first key that the query sees.
    Start,
}

/// The queries that see a block's keys. They begin at the block's first token and end where a
/// document begins after the block's last key.
pub(super) struct Queries<'a, 'k> {
    pub(super) block: &'a FlashBlock<'k>,
    a: &'a FlashKeysArgs<Dev<'k>>,
    head: U32<'k>,
    /// The first and the last key of the warp, or of the warpgroup with `wgmma`. They may be past
    /// the last token.
    own: [U32<'k>; 2],
}

/// A step of queries.
#[derive(Clone, Copy)]
pub(super) struct QueryStep<'k> {
    /// The first query of the step.
    first: U32<'k>,
    /// The half of the double buffer that has the step.
    pub(super) odd: U32<'k>,
}

/// The variables that change from step to step.
struct QueryWalk<'k> {
    /// The first query of the step.
    first: Var<'k, u32>,
    /// The end of the last step that has been copied.
    end: Var<'k, u32>,
    /// `lse` of the lane's query in the step after the next.
    lse: Var<'k, f32>,
    /// `D` of that query.
    delta: Var<'k, f32>,
    /// The first key that that query sees.
    start: Var<'k, u32>,
    /// The first key that the first query of that step sees.
    begin: Var<'k, u32>,
}

impl<'a, 'k> Queries<'a, 'k> {
    /// Returns the queries of a head.
    pub(super) fn new(
        block: &'a FlashBlock<'k>,
        a: &'a FlashKeysArgs<Dev<'k>>,
        head: U32<'k>,
    ) -> Self {
        let Sizes { panels, owned, .. } = block.sizes;
        let (first, rows) = if panels {
            (block.first, owned)
        } else {
            (block.warp_first(), block.sizes.warp_rows())
        };
        Queries {
            block,
            a,
            head,
            own: [first, first + (rows - 1)],
        }
    }

    /// Runs `body` for each step, after it has been copied.
    ///
    /// A warp skips steps in which it has no visible pair. A warpgroup takes all steps, because
    /// `wgmma` needs all of its warps.
    pub(super) fn each_step(&self, body: impl FnOnce(QueryStep<'k>)) {
        let k = self.block.k;
        let block = self.block;
        let last_key = (block.first + (block.sizes.owned - 1)).min(block.last);

        k.section(
            "train/flash/columns_first_copies",
            "flash: copy the first queries",
        );
        let mut state = self.state();
        self.copy(&mut state, block.first, k.val(0));
        k.commit_copies();
        let until = |state: &QueryWalk<'k>| state.first.get().ge(&state.end);
        k.repeat_with(&mut state, until, |state| {
            k.section(
                "train/flash/columns_step",
                "flash: wait for queries, and copy the next",
            );
            let first = state.first.get();
            let next = first + QUERIES;
            let odd = ((first - block.first) / QUERIES) & 1;
            k.wait_copies(0);

            // `wgmma` reads shared memory through the async proxy, which needs a fence after the
            // copies.
            if block.sizes.panels {
                k.fence_async();
            }

            // The barrier has two purposes: the copies of all threads are visible, and no warp
            // reads the other half any more, so it may be overwritten.
            k.barrier();
            let more = next.le(block.last) & state.begin.get().le(last_key);
            k.when(more, || self.copy(state, next, odd ^ 1));
            k.commit_copies();
            let step = QueryStep { first, odd };
            if block.sizes.panels {
                body(step);
            } else {
                let starts = self.field(odd, QueryField::Start).cast::<u32>();
                let seen = (first + (QUERIES - 1)).ge(self.own[0]) & starts.ld().le(self.own[1]);
                k.when(seen, || body(step));
            }

            state.first.set(next);
        });
    }

    /// Returns the variables before the first step, with the numbers of the first step loaded.
    fn state(&self) -> QueryWalk<'k> {
        let k = self.block.k;
        let first = self.block.first;
        let mut state = QueryWalk {
            first: k.var(first),
            end: k.var(first),
            lse: k.var(0.0),
            delta: k.var(0.0),
            start: k.var(0),
            begin: k.var(0),
        };
        self.load(&mut state, first);
        state
    }

    /// Copies the step from query `first` on, stores its numbers, and loads the numbers of the next
    /// step.
    ///
    /// The numbers are loaded a step ahead, so that their latency is hidden by a step's matmuls.
    fn copy(&self, state: &mut QueryWalk<'k>, first: U32<'k>, odd: U32<'k>) {
        let k = self.block.k;
        let tensors = [self.a.q, self.a.grad];
        let from = tensors.map(|tensor| TensorHead {
            tensor,
            heads: self.a.heads,
            head: self.head,
        });
        self.block.copy_step(from, first, odd);
        k.when(k.warp().eq(0), || {
            // A lane of the first warp has a query. The barrier of the next step publishes the
            // numbers.
            let of = |field| self.field(odd, field).at(k.lane());
            let exists = (first + k.lane()).le(self.block.last);
            of(QueryField::Lse).st(exists.select(state.lse.get() * -LOG2_E, f32::NEG_INFINITY));
            of(QueryField::Delta)
                .st(state.delta.get() * -(scale(self.block.sizes.head_dim) as f32));
            of(QueryField::Start).cast::<u32>().st(&state.start);
        });
        state.end.set(first + QUERIES);
        self.load(state, first + QUERIES);
    }

    /// Loads the numbers of the step from query `first` on. Queries past the last token repeat it.
    fn load(&self, state: &mut QueryWalk<'k>, first: U32<'k>) {
        let k = self.block.k;
        let a = self.a;
        let last = self.block.last;
        state.begin.set(a.starts.at(first.min(last)).ld());
        k.when(k.warp().eq(0), || {
            let token = (first + k.lane()).min(last);
            let row = token * a.heads + self.head;
            state.lse.set(a.lse.at(row).ld());
            state.delta.set(a.delta.at(row).ld());
            state.start.set(a.starts.at(token).ld());
        });
    }

    /// Returns the address of a field of a step's first query.
    fn field(&self, odd: U32<'k>, field: QueryField) -> Ptr<'k, f32, Shared> {
        self.block
            .after_rows()
            .row(odd, STEP_BYTES)
            .at(field as u32 * FIELD_BYTES)
            .cast()
    }

    /// Returns a field of the lane's queries, as a function of the distance from its first query.
    pub(super) fn columns(
        &self,
        step: QueryStep<'k>,
        field: QueryField,
    ) -> impl Fn(u32) -> F32<'k> + use<'k> {
        let first = self
            .field(step.odd, field)
            .at((self.block.k.lane() & 3) * 2);
        let eights: Vec<[F32; 2]> = (0..QUERIES / 8)
            .map(|eight| first.at(8 * eight).ld2())
            .collect();
        move |column| eights[(column / 8) as usize][(column % 8) as usize]
    }

    /// Sets the scores of masked pairs to negative infinity.
    pub(super) fn mask(&self, scores: &mut [Tile<'k>], step: QueryStep<'k>) {
        let k = self.block.k;
        let block = self.block;
        let last_start = self
            .field(step.odd, QueryField::Start)
            .at(QUERIES - 1)
            .cast::<u32>()
            .ld();

        // Most steps have no masked pair: all queries follow the warp's last key, and the last
        // query's document begins before its first key.
        k.when(
            step.first.lt(self.own[1]) | last_start.gt(self.own[0]),
            || {
                k.section(
                    "train/flash/columns_mask",
                    "flash: leave out queries that do not see a key",
                );
                let starts = self.columns(step, QueryField::Start);
                let query = step.first + (k.lane() & 3) * 2;
                for (tile, keys) in scores.iter_mut().zip(block.lane_tokens()) {
                    for (sums, eight) in tile.iter_mut().zip(0..) {
                        for (i, score) in sums.0.iter_mut().enumerate() {
                            let column = 8 * eight + i as u32 % 2;
                            let start = starts(column).bits::<u32>();
                            let seen = (keys[i / 2] - start).le(query + column - start);
                            score.set(seen.select(score.get(), f32::NEG_INFINITY));
                        }
                    }
                }
            },
        );
    }
}
