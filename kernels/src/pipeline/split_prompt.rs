//! Splits a prompt into batches: each item of the batch gets a token and its position, and the
//! state advances past them.
//!
//! If the prompt ends inside the batch, the remaining items repeat its last token at the following
//! positions. Their cache rows are overwritten by the tokens that belong there before anything
//! reads them.

use crate::harness::{Case, Variant};
use crate::shared::state::{LEN, POSITION, PROMPT_LEN, StepState, TOKEN};
use crate::shared::{Contract, Random, check_lengths};
use ptx_gen::*;

args! {
    /// Arguments of [`SplitPrompt`].
    pub struct SplitPromptArgs {
        /// `[ctx]`: the prompt. The state's `PROMPT_LEN` tokens are used, at least 1.
        prompt: In<u32>,
        /// `[8]`: the decode state, see [`state`](crate::shared::state). The kernel advances it
        /// past the batch, but at most to the prompt's last token.
        state: InOut<u32>,
        /// `[batch, 8]`: the state of each item
        batch_state: Out<u32>,
        /// The number of positions of the cache.
        ctx: u32,
    }
}

/// The maximum number of tokens per batch.
pub const MAX_PROMPT_BATCH: u32 = 4096;

/// Kernel that distributes the tokens of a prompt to a batch, with one or more items per thread.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SplitPrompt {
    /// The number of tokens per batch.
    pub batch: u32,
}

impl KernelDef for SplitPrompt {
    type Args<S: Side> = SplitPromptArgs<S>;

    fn name(&self) -> String {
        format!("split_prompt_{}", self.batch)
    }

    fn block(&self) -> u32 {
        self.batch.next_multiple_of(32).min(1024)
    }

    fn grid(&self, a: &SplitPromptArgs<Shape>) -> Result<Grid, ShapeError> {
        let &SplitPromptArgs { ctx, .. } = a;
        self.range("the kernel's batch", self.batch, 1, MAX_PROMPT_BATCH)?;
        self.range("ctx", ctx, 1, 1 << 24)?;
        check_lengths! { self, a:
            prompt == ctx,
        }
        self.exactly("state", a.state, LEN)?;
        self.exactly("batch_state", a.batch_state, self.batch as usize * LEN)?;
        Ok(Grid::line(1))
    }

    fn program<'k>(&self, k: Builder<'k>, a: SplitPromptArgs<Dev<'k>>) {
        let state = a.state.fresh();
        let position = state.at(POSITION).ld();
        let len = state.at(PROMPT_LEN).ld();
        let last = len.min(a.ctx).max(1) - 1;

        // One thread updates the state below, so all threads must have read it.
        k.barrier();
        let token = |at: U32<'k>| a.prompt.at(at.min(last)).ld();
        let item = |i: U32<'k>| {
            let at = position + i;
            let to = a.batch_state.row(i, 4 * LEN as u32);
            to.st4([token(at), at, k.val(0), len]);
            to.at(4).st4([k.val(0); 4]);
        };
        match KernelDef::block(self) {
            threads if threads < self.batch => k.for_each(k.tid(), self.batch, threads, item),
            _ => _ = k.when(k.tid().lt(self.batch), || item(k.tid())),
        }

        k.when(k.tid().eq(0), || {
            let next = (position + self.batch).min(last);
            a.state.at(TOKEN).st(token(next));
            a.state.at(POSITION).st(next);
        });
    }

    fn reference(&self, a: SplitPromptArgs<Cpu<'_>>) {
        let position = a.state[POSITION as usize];
        let len = a.state[PROMPT_LEN as usize];
        let last = len.min(a.ctx).max(1) - 1;
        let token = |at: u32| a.prompt[at.min(last) as usize];
        for (at, to) in (position..).zip(a.batch_state.chunks_mut(LEN)) {
            let item = StepState {
                token: token(at),
                position: at,
                prompt_len: len,
                ..StepState::default()
            };
            to.copy_from_slice(&item.words());
        }

        let next = (position + self.batch).min(last);
        a.state[TOKEN as usize] = token(next);
        a.state[POSITION as usize] = next;
    }
}

impl Variant for SplitPrompt {
    fn cases(&self, seed: u64) -> Vec<Case> {
        // Position, length of the prompt, positions of the cache: at the start, in the middle, up
        // to the last token, past it, and past the cache.
        let cases = [
            (0, 20, 30),
            (3, 15, 16),
            (4, 12, 12),
            (5, 7, 9),
            (0, 1, 1),
            (7, 9, 8),
        ];
        let case = |(position, len, ctx): (u32, u32, u32)| {
            let mut random = Random(seed);
            let prompt = (0..ctx).map(|_| random.below(1000)).collect();
            let state = StepState {
                token: 9,
                position,
                prompt_len: len,
                ..StepState::default()
            };
            let args = vec![
                CpuArg::U32(prompt),
                CpuArg::U32(state.words().into()),
                CpuArg::U32(vec![0; self.batch as usize * LEN]),
                CpuArg::scalar(ctx),
            ];
            Case {
                label: format!("position={position} len={len} ctx={ctx}"),
                args,
                bound: 0.0,
            }
        };
        cases.into_iter().map(case).collect()
    }
}
