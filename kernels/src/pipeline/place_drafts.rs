//! Places drafts: tokens that the host guesses, which one step of the pipeline verifies
//! (speculative decoding, Leviathan et al., ICML 2023).
//!
//! Each item of the batch gets a token and its position. The tokens are also stored in the token
//! history, where penalties look for recent tokens. If there are fewer tokens than items, the
//! remaining items repeat the last token at the following positions. They are marked as done and
//! choose nothing. Their cache rows are overwritten by the tokens that belong there before anything
//! reads them.

use super::gemv::plan::MAX_BATCH;
use crate::harness::{Case, Variant};
use crate::shared::state::{LEN, StepState};
use crate::shared::{Contract, Random, check_lengths};
use ptx_gen::*;

args! {
    /// Arguments of [`PlaceDrafts`].
    pub struct PlaceDraftsArgs {
        /// `[2 + batch]`: the position of the first token, the number of tokens, from 1 to the
        /// batch, and the tokens. The buffer may be longer.
        drafts: In<u32>,
        /// `[ctx]`: the token at each position
        tokens: Out<u32>,
        /// `[batch, 8]`: the state of each item, see [`state`](crate::shared::state)
        batch_state: Out<u32>,
        /// The number of positions of the cache.
        ctx: u32,
    }
}

/// The number of words before the tokens in the buffer of drafts.
pub const DRAFTS_HEAD: u32 = 2;

/// Kernel that places drafts in the states of a batch, with one thread per item.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PlaceDrafts {
    /// The number of tokens per batch.
    pub batch: u32,
}

impl KernelDef for PlaceDrafts {
    type Args<S: Side> = PlaceDraftsArgs<S>;

    fn name(&self) -> String {
        format!("place_drafts_{}", self.batch)
    }

    fn block(&self) -> u32 {
        32
    }

    fn grid(&self, a: &PlaceDraftsArgs<Shape>) -> Result<Grid, ShapeError> {
        let &PlaceDraftsArgs { ctx, .. } = a;
        self.range("the kernel's batch", self.batch, 1, MAX_BATCH)?;
        self.range("ctx", ctx, 1, 1 << 24)?;
        self.at_least("drafts", a.drafts, "2 + batch", &[DRAFTS_HEAD + self.batch])?;
        check_lengths! { self, a:
            tokens == ctx,
        }
        self.exactly("batch_state", a.batch_state, self.batch as usize * LEN)?;
        Ok(Grid::line(1))
    }

    fn program<'k>(&self, k: Builder<'k>, a: PlaceDraftsArgs<Dev<'k>>) {
        let i = k.tid();
        k.when(i.lt(self.batch), || {
            let [first, count] = [0, 1].map(|word| a.drafts.at(word).ld());
            let at = first + i;
            let given = i.lt(count);

            // The index is clamped on both sides, so a wrong count from the host reads no other
            // memory.
            let token = a
                .drafts
                .at(i.min(count.max(1).min(self.batch) - 1) + DRAFTS_HEAD)
                .ld();
            let to = a.batch_state.row(i, 4 * LEN as u32);
            to.st4([token, at, given.select(0, 1), k.val(0)]);
            to.at(4).st4([k.val(0); 4]);
            k.when(given & at.lt(a.ctx), || a.tokens.at(at).st(token));
        });
    }

    fn reference(&self, a: PlaceDraftsArgs<Cpu<'_>>) {
        let [first, count] = [a.drafts[0], a.drafts[1]];
        for (i, state) in (0..).zip(a.batch_state.chunks_mut(LEN)) {
            let token = a.drafts[(DRAFTS_HEAD + i.min(count.clamp(1, self.batch) - 1)) as usize];
            let item = StepState {
                token,
                position: first + i,
                done: i >= count,
                ..StepState::default()
            };
            state.copy_from_slice(&item.words());
            if i < count && first + i < a.ctx {
                a.tokens[(first + i) as usize] = token;
            }
        }
    }
}

impl Variant for PlaceDrafts {
    fn cases(&self, seed: u64) -> Vec<Case> {
        // Position of the first token, number of tokens, positions of the cache: one, some, all, up
        // to the last position, and past it.
        let cases = [
            (0, 1, 6),
            (3, 2, 16),
            (4, self.batch, 12),
            (7, 2, 9),
            (7, self.batch, 9),
        ];
        let case = |(first, count, ctx): (u32, u32, u32)| {
            let mut random = Random(seed);
            let drafts = (0..self.batch + 1).map(|_| random.below(1000));
            let args = vec![
                CpuArg::U32([first, count].into_iter().chain(drafts).collect()),
                CpuArg::U32(vec![0; ctx as usize]),
                CpuArg::U32(vec![7; self.batch as usize * LEN]),
                CpuArg::scalar(ctx),
            ];
            Case {
                label: format!("first={first} count={count} ctx={ctx}"),
                args,
                bound: 0.0,
            }
        };
        cases.into_iter().map(case).collect()
    }
}
