//! The embedding of the current token: row `state[TOKEN]` of a table as a GGUF file stores it,
//! converted to `f32`.
//!
//! Each thread copies one fragment of a block (`format/lanes/fragment.rs`). A token outside of the
//! table reads nothing and gives NaN, which every later kernel propagates.

use crate::format::Format;
use crate::format::lanes::fragment::{Bytes, Group};
use crate::harness::{Case, Variant};
use crate::shared::constant::Constant;
use crate::shared::state::{self, StepState};
use crate::shared::{Contract, Random, check_lengths};
use ptx_gen::*;

/// The number of threads of a block.
const THREADS: u32 = 64;

args! {
    /// Arguments of [`Embed`].
    pub struct EmbedArgs {
        /// `[8]`: the decode state, see [`state`](crate::shared::state)
        state: In<u32>,
        /// `[vocab, row_bytes]`: the table, at an address that is a multiple of 16
        table: In<u8>,
        /// `[n]`: the embedding row
        y: Out<f32>,
        /// The row length in weights, a multiple of the format's block and of 4.
        n: u32,
        /// The number of rows of the table.
        vocab: u32,
    }
}

/// The factor that embeddings are multiplied by.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum EmbeddingScale {
    /// No factor.
    One,
    /// The square root of the row length, in `f32`.
    RootOfLength,
    /// A factor of the model.
    Factor(Constant),
}

impl EmbeddingScale {
    /// Returns the suffix of a kernel's name.
    pub(crate) fn suffix(self) -> String {
        match self {
            EmbeddingScale::One => String::new(),
            EmbeddingScale::RootOfLength => "_scaled".to_owned(),
            EmbeddingScale::Factor(factor) => format!("_times_{}", factor.suffix()),
        }
    }

    /// Returns the factor of rows of `n` elements, if there is one.
    pub(crate) fn factor<'k>(self, k: Builder<'k>, n: U32<'k>) -> Option<F32<'k>> {
        match self {
            EmbeddingScale::One => None,
            EmbeddingScale::RootOfLength => Some(n.cvt::<f32>().sqrt_rn()),
            EmbeddingScale::Factor(factor) => Some(k.val(factor.value())),
        }
    }

    /// Multiplies a row by the factor, on the CPU.
    pub(crate) fn apply(self, row: &mut [f32]) {
        let factor = match self {
            EmbeddingScale::One => return,
            EmbeddingScale::RootOfLength => (row.len() as f32).sqrt(),
            EmbeddingScale::Factor(factor) => factor.value(),
        };
        for x in row {
            *x *= factor;
        }
    }
}

/// Kernel that copies an embedding row.
#[derive(Clone, Copy, Debug)]
pub struct Embed {
    /// The format of the table.
    pub format: Format,
    /// The factor that rows are multiplied by.
    pub scale: EmbeddingScale,
}

impl KernelDef for Embed {
    type Args<S: Side> = EmbedArgs<S>;

    fn name(&self) -> String {
        format!("embed_{}{}", self.format.suffix(), self.scale.suffix())
    }

    fn block(&self) -> u32 {
        THREADS
    }

    fn grid(&self, a: &EmbedArgs<Shape>) -> Result<Grid, ShapeError> {
        let &EmbedArgs { n, .. } = a;
        let split = self.format.split();
        self.exactly("state", a.state, state::LEN)?;
        self.matrix("table", a.table, self.format, a.vocab, n)?;
        check_lengths! { self, a:
            y == n,
        }
        Ok(Grid::line((n / split.len * split.lanes).div_ceil(THREADS)))
    }

    fn program<'k>(&self, k: Builder<'k>, a: EmbedArgs<Dev<'k>>) {
        let split = self.format.split();
        let thread = k.ctaid() * THREADS + k.tid();
        k.when(split.block(thread).lt(split.blocks(a.n)), || {
            let token = a.state.at(state::TOKEN).ld();
            let format = self.format;
            let scale = self.scale;
            let table = Table {
                format,
                scale,
                bytes: a.table,
                vocab: a.vocab,
                n: a.n,
            };
            copy_fragment(k, table, token, thread, a.y);
        });
    }

    fn reference(&self, a: EmbedArgs<Cpu<'_>>) {
        copy_row(self.format, a.table, a.state[state::TOKEN as usize], a.y);
        self.scale.apply(a.y);
    }
}

/// A table in device memory.
pub(crate) struct Table<'k> {
    pub(crate) format: Format,
    pub(crate) scale: EmbeddingScale,
    pub(crate) bytes: Bytes<'k>,
    pub(crate) vocab: U32<'k>,
    pub(crate) n: U32<'k>,
}

/// Stores the fragment of a token's row that belongs to `thread` in `y`.
pub(crate) fn copy_fragment<'k>(
    k: Builder<'k>,
    table: Table<'k>,
    token: U32<'k>,
    thread: U32<'k>,
    y: Ptr<'k, f32, WriteOnly>,
) {
    let split = table.format.split();
    let fragment = table.format.of().fragment(k, thread);
    let block = split.block(thread);
    let y = y.at(fragment.first()).row(block, 4 * split.len);
    let store = |i: usize, v| y.at(split.float4s[i]).st4(v);
    k.when(token.lt(table.vocab), || {
        let row = table.bytes.row(token, split.blocks(table.n) * split.bytes);
        let addresses = fragment.addresses(row.row(block, split.bytes));
        let section = |what| {
            let id = table.format.section(&format!("fragment_{what}"));

            k.section(id, format!("{}: {what} a fragment", table.format.name()));
        };
        section("load");
        let words = fragment.load(&addresses, 0);
        section("unpack");
        let groups = fragment.unpack(&words);
        section("store");
        let mut weights = weights(&groups);
        if let Some(factor) = table.scale.factor(k, table.n) {
            for weight in &mut weights {
                *weight = *weight * factor;
            }
        }

        for (i, w) in weights.chunks(4).enumerate() {
            store(i, [w[0], w[1], w[2], w[3]]);
        }
    })
    .otherwise(|| {
        let nan = k.val(f32::NAN);
        for i in 0..split.float4s.len() {
            store(i, [nan; 4]);
        }
    });
}

/// Copies the row of a token, or NaN, naively.
pub(crate) fn copy_row(format: Format, table: &[u8], token: u32, y: &mut [f32]) {
    match table
        .chunks_exact(format.row_bytes(y.len()))
        .nth(token as usize)
    {
        Some(row) => y.copy_from_slice(&format.dequantize(row)),
        None => y.fill(f32::NAN),
    }
}

/// Returns the weights of all groups of a fragment.
fn weights<'k>(groups: &[Group<'k>]) -> Vec<F32<'k>> {
    let weight = |group: &Group<'k>, q: F32<'k>| match (group.scale, group.offset) {
        (Some(scale), Some(offset)) => q.fma(scale, offset),
        (Some(scale), None) => q * scale,
        (None, Some(offset)) => q + offset,
        (None, None) => q,
    };
    groups
        .iter()
        .flat_map(|group| group.q.iter().map(|&q| weight(group, q)))
        .collect()
}

impl Variant for Embed {
    fn cases(&self, seed: u64) -> Vec<Case> {
        let block = self.format.split().len as usize;
        // The first row, one in the middle, the last, and one past the last. Rows of one block, and
        // of many threads.
        [
            (0, 5, block),
            (2, 5, 3 * block),
            (4, 5, 9 * block),
            (5, 5, block),
            (u32::MAX, 3, block),
            (6, 7, 2048),
        ]
        .map(|(token, vocab, n)| self.case(&mut Random(seed), token, vocab, n))
        .into()
    }
}

impl Embed {
    fn case(&self, random: &mut Random, token: u32, vocab: usize, n: usize) -> Case {
        let state = StepState {
            token,
            ..StepState::default()
        };
        let table = self
            .format
            .random(vocab * n / self.format.block_len() as usize, 1.0, random);
        Case {
            label: format!("token={token} vocab={vocab} n={n}"),
            args: vec![
                CpuArg::U32(state.words().into()),
                CpuArg::U8(table),
                CpuArg::F32(vec![0.0; n]),
                CpuArg::scalar(n as u32),
                CpuArg::scalar(vocab as u32),
            ],
            // Scale, offset and their sum round once each, in the kernel and in the definition.
            bound: if self.format.block_len() == 1 {
                0.0
            } else {
                4e-7
            },
        }
    }
}
