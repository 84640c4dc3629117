//! How a block of keys goes through the queries that see them: columns of its products, each with its own numbers.

use super::block::{Block, Head, Sizes};
use super::fragments::Tile;
use super::{FlashKeysArgs, scale};
use ptx_gen::*;
use std::f32::consts::LOG2_E;

/// Queries of a step: a lane of the first warp for each.
pub(super) const QUERIES: u32 = 32;

/// What follows the rows of a step in shared memory: a word for each query and [field](Field).
pub(super) const STEP_BYTES: u32 = 3 * FIELD_BYTES;

const FIELD_BYTES: u32 = 4 * QUERIES;

/// The numbers of a query.
#[derive(Clone, Copy)]
pub(super) enum Field {
    /// `-lse` in log2 units; minus infinity past the last token, so that its weights are 0.
    Lse,
    /// `-D / sqrt(d)`
    Delta,
    /// The first key that it sees.
    Start,
}

/// The queries that see a block's keys: from its first token on, while their documents begin at its last or before.
pub(super) struct Queries<'a, 'k> {
    pub(super) block: &'a Block<'k>,
    a: &'a FlashKeysArgs<Dev<'k>>,
    head: U32<'k>,
    /// The first and the last key of the warp, or of the warpgroup where it multiplies; past the last token perhaps.
    own: [U32<'k>; 2],
}

/// A step of queries.
#[derive(Clone, Copy)]
pub(super) struct QueryStep<'k> {
    first: U32<'k>,
    /// Which half of the double buffer has it.
    pub(super) odd: U32<'k>,
}

/// What changes from step to step.
struct State<'k> {
    /// The first query of the step, and the one after the last step that is known to be.
    first: Var<'k, u32>,
    end: Var<'k, u32>,
    /// Of the step after the next: the lane's query, and where the first one's document begins.
    lse: Var<'k, f32>,
    delta: Var<'k, f32>,
    start: Var<'k, u32>,
    begin: Var<'k, u32>,
}

impl<'a, 'k> Queries<'a, 'k> {
    /// The queries of a head.
    pub(super) fn new(block: &'a Block<'k>, a: &'a FlashKeysArgs<Dev<'k>>, head: U32<'k>) -> Self {
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

    /// Runs `body` with each step of which some pair may count for the warp, when it has been copied; a warpgroup that
    /// multiplies, with all of them.
    pub(super) fn each_step(&self, body: impl FnOnce(QueryStep<'k>)) {
        let (k, block) = (self.block.k, self.block);
        let last_key = (block.first + (block.sizes.owned - 1)).min(block.last);
        k.section(
            "train/flash/columns_first_copies",
            "flash: copy the first queries",
        );
        let mut state = self.state();
        self.copy(&mut state, block.first, k.val(0));
        k.commit_copies();
        let until = |state: &State<'k>| state.first.get().ge(&state.end);
        k.repeat_with(&mut state, until, |state| {
            k.section(
                "train/flash/columns_step",
                "flash: wait for queries, and copy the next",
            );
            let first = state.first.get();
            let (next, odd) = (first + QUERIES, ((first - block.first) / QUERIES) & 1);
            k.wait_copies(0);
            if block.sizes.panels {
                k.fence_async();
            }
            k.barrier();
            let more = next.le(block.last) & state.begin.get().le(last_key);
            k.when(more, || self.copy(state, next, odd ^ 1));
            k.commit_copies();
            let step = QueryStep { first, odd };
            if block.sizes.panels {
                body(step);
            } else {
                let starts = self.field(odd, Field::Start).cast::<u32>();
                let seen = (first + (QUERIES - 1)).ge(self.own[0]) & starts.ld().le(self.own[1]);
                k.when(seen, || body(step));
            }
            state.first.set(next);
        });
    }

    /// Nothing is copied yet, and the first step's numbers are loaded.
    fn state(&self) -> State<'k> {
        let (k, first) = (self.block.k, self.block.first);
        let mut state = State {
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

    /// Copies the step from query `first` on, stores its numbers, and loads those of the next.
    fn copy(&self, state: &mut State<'k>, first: U32<'k>, odd: U32<'k>) {
        let k = self.block.k;
        let tensors = [self.a.q, self.a.grad];
        let from = tensors.map(|tensor| Head {
            tensor,
            heads: self.a.heads,
            head: self.head,
        });
        self.block.copy_step(from, first, odd);
        k.when(k.warp().eq(0), || {
            let of = |field| self.field(odd, field).at(k.lane());
            let lse = (first + k.lane()).le(self.block.last);
            of(Field::Lse).st(lse.select(state.lse.get() * -LOG2_E, f32::NEG_INFINITY));
            of(Field::Delta).st(state.delta.get() * -(scale(self.block.sizes.head_dim) as f32));
            of(Field::Start).cast::<u32>().st(&state.start);
        });
        state.end.set(first + QUERIES);
        self.load(state, first + QUERIES);
    }

    /// Loads the numbers of the step from query `first` on; past the last token, its.
    fn load(&self, state: &mut State<'k>, first: U32<'k>) {
        let (k, a, last) = (self.block.k, self.a, self.block.last);
        state.begin.set(a.starts.at(first.min(last)).ld());
        k.when(k.warp().eq(0), || {
            let token = (first + k.lane()).min(last);
            let row = token * a.heads + self.head;
            state.lse.set(a.lse.at(row).ld());
            state.delta.set(a.delta.at(row).ld());
            state.start.set(a.starts.at(token).ld());
        });
    }

    /// Where the numbers of a step's first query are.
    fn field(&self, odd: U32<'k>, field: Field) -> Ptr<'k, f32, Shared> {
        self.block
            .after_rows()
            .row(odd, STEP_BYTES)
            .at(field as u32 * FIELD_BYTES)
            .cast()
    }

    /// The numbers of the lane's queries, by how much further they are than its first.
    pub(super) fn columns(
        &self,
        step: QueryStep<'k>,
        field: Field,
    ) -> impl Fn(u32) -> F32<'k> + use<'k> {
        let first = self
            .field(step.odd, field)
            .at((self.block.k.lane() & 3) * 2);
        let eights: Vec<[F32; 2]> = (0..QUERIES / 8)
            .map(|eight| first.at(8 * eight).ld2())
            .collect();
        move |column| eights[(column / 8) as usize][(column % 8) as usize]
    }

    /// Scores of pairs that do not count become minus infinity.
    pub(super) fn mask(&self, scores: &mut [Tile<'k>], step: QueryStep<'k>) {
        let (k, block) = (self.block.k, self.block);
        let last_start = self
            .field(step.odd, Field::Start)
            .at(QUERIES - 1)
            .cast::<u32>()
            .ld();
        k.when(
            step.first.lt(self.own[1]) | last_start.gt(self.own[0]),
            || {
                k.section(
                    "train/flash/columns_mask",
                    "flash: leave out queries that do not see a key",
                );
                let starts = self.columns(step, Field::Start);
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
