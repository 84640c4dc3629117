//! The embedding in bf16, with the formula of [`embed`](crate::train::embed).

use super::buffers::units;
use crate::harness::{Case, Variant};
use crate::shared::{Contract, Random, check_lengths};
use ptx_gen::*;

args! {
    /// Arguments of [`EmbedTokens`].
    pub struct EmbedTokensArgs {
        /// `[tokens]`: the tokens
        ids: In<u32>,
        /// `[vocab, hidden]`: the table
        table: In<bf16>,
        /// `[tokens, hidden]`: the rows of the tokens
        h: Out<bf16>,
        /// The number of rows of the table.
        vocab: u32,
        /// The length of a row, a multiple of 8.
        hidden: u32,
    }
}

/// Kernel that copies the rows of tokens, with a block per token. The row of a token outside the
/// vocabulary is NaN.
pub struct EmbedTokens {
    /// The number of threads of a block.
    pub threads: u32,
}

/// Two NaNs in bf16.
const NAN: u32 = 0x7fff_7fff;

impl KernelDef for EmbedTokens {
    type Args<S: Side> = EmbedTokensArgs<S>;

    fn name(&self) -> String {
        format!("train_bf16_embed_{}", self.threads)
    }

    fn block(&self) -> u32 {
        self.threads
    }

    fn grid(&self, a: &EmbedTokensArgs<Shape>) -> Result<Grid, ShapeError> {
        let &EmbedTokensArgs { hidden, vocab, .. } = a;
        self.multiple("hidden", hidden, 8)?;
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
        let row = a.table.at(known.select(id, 0u32) * a.hidden);
        k.for_each(k.tid() * 8, a.hidden, self.threads * 8, |i| {
            let words = row
                .at(i)
                .cast::<u32>()
                .ld4()
                .map(|word| known.select(word, NAN));
            a.h.at(token * a.hidden).at(i).cast::<u32>().st4(words);
        });
    }

    fn reference(&self, a: EmbedTokensArgs<Cpu<'_>>) {
        let hidden = a.hidden as usize;
        for (row, &id) in a.h.chunks_mut(hidden).zip(a.ids) {
            match a.table.chunks(hidden).nth(id as usize) {
                Some(from) => row.copy_from_slice(from),
                None => row.fill(bf16(NAN as u16)),
            }
        }
    }
}

impl Variant for EmbedTokens {
    fn cases(&self, seed: u64) -> Vec<Case> {
        let case = |(tokens, vocab, hidden): (usize, u32, u32)| {
            let mut random = Random(seed);
            let mut ids: Vec<u32> = (0..tokens).map(|_| random.below(vocab)).collect();
            ids[0] = vocab - 1;
            ids[tokens / 2] = if tokens > 2 { vocab } else { ids[tokens / 2] };
            let args = vec![
                CpuArg::U32(ids),
                CpuArg::Bf16(units(&mut random, (vocab * hidden) as usize)),
                CpuArg::Bf16(vec![bf16(0); tokens * hidden as usize]),
                CpuArg::scalar(vocab),
                CpuArg::scalar(hidden),
            ];
            Case {
                label: format!("tokens={tokens} vocab={vocab} hidden={hidden}"),
                args,
                bound: 0.0,
            }
        };
        [(1, 1, 8), (5, 7, 104), (3, 4, 2056)].map(case).into()
    }
}
