//! The start of several tokens of a prompt: each column is dealt a token and its position, and the state goes on
//! behind them.
//!
//! Where the prompt ends before the columns do, the others have its last token, at the positions that follow. What
//! they leave in the cache nobody reads before the token that belongs there has written over it.

use super::plan::MOST_COLUMNS;
use crate::case::{Case, Random, Variant};
use crate::contract::Contract;
use crate::state::{LEN, POSITION, PROMPT_LEN, TOKEN};
use ptx_gen::*;

args! {
    /// Arguments of [`Deal`].
    pub struct DealArgs {
        /// `[ctx]`, of which the state's `PROMPT_LEN` count, at least 1
        prompt: In<u32>,
        /// `[8]`: see [`state`](crate::state); afterwards behind the columns, but at most at the prompt's last token
        state: InOut<u32>,
        /// `[columns, 8]`: the state of each column
        columns: Out<u32>,
        /// Positions of the cache.
        ctx: u32,
    }
}

/// The kernel. A thread has a column.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Deal {
    /// Tokens at once.
    pub columns: u32,
}

impl KernelDef for Deal {
    type Args<S: Side> = DealArgs<S>;

    fn name(&self) -> String {
        format!("deal_{}", self.columns)
    }

    fn block(&self) -> u32 {
        32
    }

    fn grid(&self, a: &DealArgs<Shape>) -> Result<Grid, ShapeError> {
        self.range("the kernel's columns", self.columns, 1, MOST_COLUMNS)?;
        self.range("ctx", a.ctx, 1, 1 << 24)?;
        self.length("prompt", a.prompt, "ctx", &[a.ctx])?;
        self.exactly("state", a.state, LEN)?;
        self.exactly("columns", a.columns, self.columns as usize * LEN)?;
        Ok(Grid::line(1))
    }

    fn program<'k>(&self, k: Builder<'k>, a: DealArgs<Dev<'k>>) {
        let state = a.state.fresh();
        let (position, len) = (state.at(POSITION).ld(), state.at(PROMPT_LEN).ld());
        let last = len.min(a.ctx).max(1) - 1;
        k.barrier();
        let token = |at: U32<'k>| a.prompt.at(at.min(last)).ld();
        k.when(k.tid().lt(self.columns), || {
            let at = position + k.tid();
            let to = a.columns.row(k.tid(), 4 * LEN as u32);
            to.st4([token(at), at, k.val(0), len]);
            to.at(4).st4([k.val(0); 4]);
        });
        k.when(k.tid().eq(0), || {
            let next = (position + self.columns).min(last);
            a.state.at(TOKEN).st(token(next));
            a.state.at(POSITION).st(next);
        });
    }

    fn reference(&self, a: DealArgs<Cpu<'_>>) {
        let (position, len) = (a.state[POSITION as usize], a.state[PROMPT_LEN as usize]);
        let last = len.min(a.ctx).max(1) - 1;
        let token = |at: u32| a.prompt[at.min(last) as usize];
        for (at, to) in (position..).zip(a.columns.chunks_mut(LEN)) {
            to.copy_from_slice(&[token(at), at, 0, len, 0, 0, 0, 0]);
        }
        let next = (position + self.columns).min(last);
        a.state[..2].copy_from_slice(&[token(next), next]);
    }
}

impl Variant for Deal {
    fn cases(&self, seed: u64) -> Vec<Case> {
        // position, length of the prompt, positions of the cache: from the start, in between, up to the last token,
        // past it, past the cache
        let cases = [(0, 20, 30), (3, 15, 16), (4, 12, 12), (5, 7, 9), (0, 1, 1), (7, 9, 8)];
        let case = |(position, len, ctx): (u32, u32, u32)| {
            let mut random = Random(seed);
            let prompt = (0..ctx).map(|_| random.below(1000)).collect();
            let args = vec![
                CpuArg::U32(prompt),
                CpuArg::U32(vec![9, position, 0, len, 0, 0, 0, 0]),
                CpuArg::U32(vec![0; self.columns as usize * LEN]),
                CpuArg::scalar(ctx),
            ];
            Case { label: format!("position={position} len={len} ctx={ctx}"), args, bound: 0.0 }
        };
        cases.into_iter().map(case).collect()
    }
}
