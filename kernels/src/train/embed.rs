//! The embedding `h[t,:] = E[id[t],:]`. The table is frozen, so it has no gradient.

use super::buffers::{narrow, wide};
use crate::harness::{Case, Variant};
use crate::shared::{Contract, Random, check_lengths};
use ptx_gen::*;

/// Returns the rows of `table` `[vocab, hidden]` at `ids` `[tokens]`, as `[tokens, hidden]`.
pub fn forward(ids: &[u32], table: &[f64], hidden: usize) -> Vec<f64> {
    let rows = ids
        .iter()
        .map(|&id| &table[id as usize * hidden..][..hidden]);
    rows.flatten().copied().collect()
}

args! {
    /// Arguments of [`EmbedTokens`].
    pub struct EmbedTokensArgs {
        /// `[tokens]`: the tokens
        ids: In<u32>,
        /// `[vocab, hidden]`: the table
        table: In<f32>,
        /// `[tokens, hidden]`: the rows of the tokens
        h: Out<f32>,
        /// The number of rows of the table.
        vocab: u32,
        /// The length of a row, a multiple of 4.
        hidden: u32,
    }
}

/// Kernel that copies the rows of tokens, with a block per token. Its reference is [`forward`].
///
/// The row of a token outside the vocabulary is NaN, so that the loss shows the mistake.
pub struct EmbedTokens {
    /// The number of threads of a block.
    pub threads: u32,
}

impl KernelDef for EmbedTokens {
    type Args<S: Side> = EmbedTokensArgs<S>;

    fn name(&self) -> String {
        format!("train_embed_{}", self.threads)
    }

    fn block(&self) -> u32 {
        self.threads
    }

    fn grid(&self, a: &EmbedTokensArgs<Shape>) -> Result<Grid, ShapeError> {
        let &EmbedTokensArgs { hidden, vocab, .. } = a;
        self.multiple("hidden", hidden, 4)?;
        self.range("vocab", vocab, 1, 1 << 24)?;
        let tokens = a.ids as u32;
        check_lengths! { self, a:
            table == vocab * hidden,
            h == tokens * hidden,
        }
        Ok(Grid::line(tokens))
    }

    fn program<'k>(&self, k: Builder<'k>, a: EmbedTokensArgs<Dev<'k>>) {
        let token = k.ctaid();
        let id = a.ids.at(k.ctaid()).ld();
        let known = id.lt(a.vocab);
        // An unknown token reads the first row, which is in bounds.
        let row = a.table.at(known.select(id, 0u32) * a.hidden);
        k.for_each(k.tid() * 4, a.hidden, self.threads * 4, |i| {
            let numbers = row.at(i).ld4().map(|x| known.select(x, f32::NAN));
            a.h.at(token * a.hidden).at(i).st4(numbers);
        });
    }

    fn reference(&self, a: EmbedTokensArgs<Cpu<'_>>) {
        let table = wide(a.table);
        let hidden = a.hidden as usize;
        for (row, &id) in a.h.chunks_mut(hidden).zip(a.ids) {
            if id < a.vocab {
                narrow(&forward(&[id], &table, hidden), row);
            } else {
                row.fill(f32::NAN);
            }
        }
    }
}

impl Variant for EmbedTokens {
    /// Returns cases with rows shorter and longer than a block, with the last row, and with a token
    /// outside the vocabulary.
    fn cases(&self, seed: u64) -> Vec<Case> {
        let case = |(tokens, vocab, hidden): (usize, u32, u32)| {
            let mut random = Random(seed);
            let mut ids: Vec<u32> = (0..tokens).map(|_| random.below(vocab)).collect();
            ids[0] = vocab - 1;
            ids[tokens / 2] = if tokens > 2 { vocab } else { ids[tokens / 2] };
            let args = vec![
                CpuArg::U32(ids),
                CpuArg::F32(random.units((vocab * hidden) as usize)),
                CpuArg::F32(vec![0.0; tokens * hidden as usize]),
                CpuArg::scalar(vocab),
                CpuArg::scalar(hidden),
            ];
            Case {
                label: format!("tokens={tokens} vocab={vocab} hidden={hidden}"),
                args,
                bound: 0.0,
            }
        };
        [(1, 1, 4), (5, 7, 100), (3, 4, 1028)].map(case).into()
    }
}
