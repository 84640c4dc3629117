//! The start of a token: its embedding row as floats, and the angles that rotate queries and keys
//! (RoPE, Su et al., 2021, arXiv:2104.09864).
//!
//! The angles are equal in every layer, so they are computed once per token, as
//! [`Rope`](crate::Rope) computes them. [`EmbedTiled`] reads the row from tiles, where each thread
//! reads a [`RowFragment`]. [`EmbedRows`] reads it from a table as a GGUF file stores it.
//!
//! Each token of a batch has its own state.

use super::batch::BatchItem;
use super::split_prompt::MAX_PROMPT_BATCH;
use crate::format::Format;
use crate::format::lanes::row::RowFragment;
use crate::format::tile::{ROWS, Tile};
use crate::harness::{Case, Variant};
use crate::shared::state::{self, StepState};
use crate::shared::{Contract, Random};
use crate::simple::embed::{EmbeddingScale, Table, copy_fragment, copy_row};
use crate::simple::rope::{angle, exact_angles, frequencies};
use ptx_gen::*;
use std::array::from_fn;

/// The number of threads of a block.
const THREADS: u32 = 64;

args! {
    /// Arguments of [`EmbedTiled`] and [`EmbedRows`].
    pub struct EmbedTokenArgs {
        /// `[batch, 8]`: the decode states, see [`state`](crate::shared::state)
        state: In<u32>,
        /// `[vocab, n]`: tiles in plain row order, or rows, at an address that is a multiple of 16
        table: In<u8>,
        /// `[rope_dim / 2, 2]`: revolutions per position, as
        /// [`revolutions`](crate::simple::rope::revolutions) splits them
        freq: In<f32>,
        /// `[batch, n]`: the embedding rows
        y: Out<f32>,
        /// `[batch, rope_dim / 2, 2]`: cosine and sine of each pair's angle
        angles: Out<f32>,
        /// The row length in weights.
        n: u32,
        /// The number of rows of the table.
        vocab: u32,
        /// The number of dimensions that are rotated, an even number. Several sets of frequencies
        /// are passed as one longer set.
        rope_dim: u32,
        /// The number of blocks of the grid.
        blocks: u32,
        /// The bytes of dynamic shared memory. Pass the amount of the next kernels, because a
        /// different amount would change the SM's carveout between the L1 cache and shared memory.
        shared: u32,
    }
}

/// Kernel that embeds tokens from a tiled table. The format must have a tile. The number of rows
/// must be a multiple of 16.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct EmbedTiled {
    /// The format of the table.
    pub format: Format,
    /// Whether the kernel starts during the previous one and waits for it (programmatic dependent
    /// launch, sm_90).
    pub overlap: bool,
    /// The number of tokens per batch.
    pub batch: u32,
    /// The factor that rows are multiplied by.
    pub scale: EmbeddingScale,
}

/// Kernel that embeds tokens from a table of rows, whose length must be a multiple of the format's
/// block and of 4.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct EmbedRows {
    /// The format of the table.
    pub format: Format,
    /// Whether the kernel starts during the previous one and waits for it (programmatic dependent
    /// launch, sm_90).
    pub overlap: bool,
    /// The number of tokens per batch.
    pub batch: u32,
    /// The factor that rows are multiplied by.
    pub scale: EmbeddingScale,
}

/// Returns the name of a kernel: `embed_rows_f16`, with `_plain` if it does not overlap.
fn name(base: &str, format: Format, overlap: bool, batch: u32, scale: EmbeddingScale) -> String {
    let plain = if overlap { "" } else { "_plain" };
    let batch = if batch == 1 {
        String::new()
    } else {
        format!("_batch_{batch}")
    };
    format!("{base}_{}{}{plain}{batch}", format.suffix(), scale.suffix())
}

impl KernelDef for EmbedTiled {
    type Args<S: Side> = EmbedTokenArgs<S>;

    fn name(&self) -> String {
        name(
            "embed_tiled",
            self.format,
            self.overlap,
            self.batch,
            self.scale,
        )
    }

    fn block(&self) -> u32 {
        THREADS
    }

    fn grid(&self, a: &EmbedTokenArgs<Shape>) -> Result<Grid, ShapeError> {
        self.multiple("n", a.n, self.format.tile().map_or(0, |tile| tile.columns))?;
        self.multiple("vocab", a.vocab, ROWS)?;
        contract(self, self.format, self.batch, a)
    }

    fn program<'k>(&self, k: Builder<'k>, a: EmbedTokenArgs<Dev<'k>>) {
        let tile = self.format.tile().expect("the format has a tile");
        embed(k, self.overlap, self.batch, a, |a, tokens| {
            let len = self.format.tiles().row_len();
            let row_tiles = a.n >> tile.columns.ilog2();
            let fragments = tile.columns / len;
            tokens.run(k, a, a.n >> len.ilog2(), |i, token, y| {
                let y = y.row(i, 4 * len);
                let factor = self.scale.factor(k, a.n);
                let scaled = |v: F32<'k>| factor.map_or(v, |factor| v * factor);
                let store = |j: usize, v: &[F32<'k>]| {
                    let to = y.at(4 * j as u32);
                    let scaled = from_fn(|i| scaled(v[i]));
                    to.st4(scaled)
                };
                k.when(token.lt(a.vocab), || {
                    let row_block = token >> 4;
                    let index = row_block.mad(row_tiles, i >> fragments.ilog2());

                    k.section(
                        self.format.section("embed_tile_row"),
                        format!("{}: weights of a row of a tile", self.format.name()),
                    );
                    let tile = a.table.row(index, tile.bytes);
                    let fragment = RowFragment::new(k, tile, token, i & (fragments - 1));
                    let weights = self.format.tiles().row(&fragment);
                    for (j, v) in weights.chunks(4).enumerate() {
                        store(j, v);
                    }
                })
                // A token outside the vocabulary becomes NaN, which reaches the logits and ends
                // decoding.
                .otherwise(|| {
                    let nan = k.val(f32::NAN);
                    for j in 0..len as usize / 4 {
                        store(j, &[nan; 4]);
                    }
                });
            });
        });
    }

    fn reference(&self, a: EmbedTokenArgs<Cpu<'_>>) {
        let Tile {
            columns: tile_columns,
            bytes,
        } = self.format.tile().expect("the format has a tile");
        let n = a.n as usize;
        let block = n / tile_columns as usize * bytes as usize;
        for (y, state) in a.y.chunks_mut(n).zip(a.state.chunks(state::LEN)) {
            let token = state[state::TOKEN as usize] as usize;
            match a.table.chunks_exact(block).nth(token / 16) {
                Some(tiles) => {
                    let rows = crate::format::tile::dequantize(self.format, tiles, n);
                    y.copy_from_slice(&rows[token % 16 * n..][..n]);
                    self.scale.apply(y);
                }
                None => y.fill(f32::NAN),
            }
        }

        exact(a.freq, a.state, a.angles);
    }
}

impl KernelDef for EmbedRows {
    type Args<S: Side> = EmbedTokenArgs<S>;

    fn name(&self) -> String {
        name(
            "embed_rows",
            self.format,
            self.overlap,
            self.batch,
            self.scale,
        )
    }

    fn block(&self) -> u32 {
        THREADS
    }

    fn grid(&self, a: &EmbedTokenArgs<Shape>) -> Result<Grid, ShapeError> {
        self.multiple("n", a.n, self.format.split().len)?;
        contract(self, self.format, self.batch, a)
    }

    fn program<'k>(&self, k: Builder<'k>, a: EmbedTokenArgs<Dev<'k>>) {
        let split = self.format.split();
        embed(k, self.overlap, self.batch, a, |a, tokens| {
            tokens.run(k, a, split.blocks(a.n) * split.lanes, |i, token, y| {
                let format = self.format;
                let scale = self.scale;
                let table = Table {
                    format,
                    scale,
                    bytes: a.table,
                    vocab: a.vocab,
                    n: a.n,
                };
                copy_fragment(k, table, token, i, y);
            });
        });
    }

    fn reference(&self, a: EmbedTokenArgs<Cpu<'_>>) {
        for (y, state) in a.y.chunks_mut(a.n as usize).zip(a.state.chunks(state::LEN)) {
            copy_row(self.format, a.table, state[state::TOKEN as usize], y);
            self.scale.apply(y);
        }
        exact(a.freq, a.state, a.angles);
    }
}

/// Checks the lengths of both kernels' buffers. A table has as many bytes in tiles as in rows.
fn contract(
    kernel: &impl KernelDef,
    format: Format,
    batch: u32,
    a: &EmbedTokenArgs<Shape>,
) -> Result<Grid, ShapeError> {
    kernel.range("the kernel's batch", batch, 1, MAX_PROMPT_BATCH)?;
    kernel.exactly("state", a.state, batch as usize * state::LEN)?;
    kernel.matrix("table", a.table, format, a.vocab, a.n)?;
    super::contract::batched(kernel, batch, "y", a.y, "n", &[a.n])?;
    kernel.multiple("rope_dim", a.rope_dim, 2)?;
    kernel.length("freq", a.freq, "rope_dim", &[a.rope_dim])?;
    super::contract::batched(kernel, batch, "angles", a.angles, "rope_dim", &[a.rope_dim])?;
    kernel.range("blocks", a.blocks, 1, 1 << 16)?;
    Ok(Grid {
        shared: a.shared,
        ..Grid::line(a.blocks)
    })
}

/// Emits the body of both kernels: the wait, the rows of the tokens, then the angles.
///
/// This kernel does not let the next one start early. Its blocks end at different times, so the
/// next kernel's blocks would become resident unevenly: two on some SMs and none on others. Every
/// later kernel would inherit that.
fn embed<'k>(
    k: Builder<'k>,
    overlap: bool,
    batch: u32,
    a: EmbedTokenArgs<Dev<'k>>,
    rows: impl FnOnce(&EmbedTokenArgs<Dev<'k>>, &Tokens<'k>),
) {
    if overlap {
        k.grid_wait();
    }

    k.section("pipeline/embed/rows", "rows of the tokens");
    let word = |item: BatchItem<'k>, i| item.of(a.state, state::LEN as u32).at(i).fresh().ld();
    let only =
        (batch == 1).then(|| [state::TOKEN, state::POSITION].map(|i| word(BatchItem::ONLY, i)));
    rows(
        &a,
        &Tokens {
            batch,
            token: only.map(|[token, _]| token),
        },
    );

    // Threads take the angles in reverse order, so that the last blocks compute the angles and the
    // first ones the rows.
    k.section("pipeline/embed/angles", "angles of the positions");
    let last = a.blocks * THREADS - 1;
    let first = last - thread(k);
    let pairs = a.rope_dim >> 1;
    let all = if batch == 1 { pairs } else { pairs * batch };
    k.for_each(first, all, last + 1, |i| {
        let (j, position) = match only {
            Some([_, position]) => (i, position),
            None => (i % pairs, word(BatchItem::new(i / pairs), state::POSITION)),
        };
        let angle = angle(a.freq, j, position);
        a.angles.at(i << 1).st2([angle.cos(), angle.sin()]);
    });
}

/// The tokens of the batch.
struct Tokens<'k> {
    batch: u32,
    /// The token of a batch of one.
    token: Option<U32<'k>>,
}

impl<'k> Tokens<'k> {
    /// Calls `body` for every index below `count` of each token, one per thread of the grid. `body`
    /// gets the index, the token and its output row.
    fn run(
        &self,
        k: Builder<'k>,
        a: &EmbedTokenArgs<Dev<'k>>,
        count: U32<'k>,
        body: impl FnOnce(U32<'k>, U32<'k>, Ptr<'k, f32, WriteOnly>),
    ) {
        let all = if self.batch == 1 {
            count
        } else {
            count * self.batch
        };
        k.for_each(thread(k), all, a.blocks * THREADS, |i| match self.token {
            Some(token) => body(i, token, a.y),
            None => {
                let item = BatchItem::new(i / count);
                let token = item
                    .of(a.state, state::LEN as u32)
                    .at(state::TOKEN)
                    .fresh()
                    .ld();
                body(i % count, token, item.of(a.y, a.n))
            }
        })
    }
}

/// Returns the thread's index in the grid.
fn thread(k: Builder<'_>) -> U32<'_> {
    k.ctaid() * THREADS + k.tid()
}

/// Computes the angles of all tokens in double precision.
fn exact(freq: &[f32], state: &[u32], angles: &mut [f32]) {
    for (angles, state) in angles.chunks_mut(freq.len()).zip(state.chunks(state::LEN)) {
        let exact = exact_angles(freq, state[state::POSITION as usize]);
        for (angle, (sin, cos)) in angles.chunks_mut(2).zip(exact) {
            angle.copy_from_slice(&[cos as f32, sin as f32]);
        }
    }
}

impl Variant for EmbedTiled {
    fn cases(&self, seed: u64) -> Vec<Case> {
        let tile_columns = self.format.tile().map_or(0, |tile| tile.columns);
        // The tokens are first and second rows of lanes, the last row, and one past it. A row has
        // fewer fragments than threads, or several per thread.
        [
            EmbedCase {
                token: 0,
                vocab: 16,
                n: tile_columns,
                rope_dim: 2,
                position: 0,
                blocks: 1,
            },
            EmbedCase {
                token: 13,
                vocab: 32,
                n: 3 * tile_columns,
                rope_dim: 64,
                position: 0,
                blocks: 1,
            },
            EmbedCase {
                token: 47,
                vocab: 48,
                n: 2 * tile_columns,
                rope_dim: 128,
                position: 131_071,
                blocks: 2,
            },
            EmbedCase {
                token: 6,
                vocab: 16,
                n: 9 * tile_columns,
                rope_dim: 256,
                position: 77,
                blocks: 3,
            },
            EmbedCase {
                token: 48,
                vocab: 48,
                n: tile_columns,
                rope_dim: 64,
                position: 1,
                blocks: 1,
            },
        ]
        .map(|case| {
            let tiles = (case.vocab / ROWS * case.n / tile_columns) as usize;
            let random = &mut Random(seed);
            case.filled(
                crate::format::tile::random(self.format, tiles, 1.0, random),
                self.batch,
                EXACT,
            )
        })
        .into()
    }
}

impl Variant for EmbedRows {
    fn cases(&self, seed: u64) -> Vec<Case> {
        let block = self.format.split().len;
        [
            EmbedCase {
                token: 0,
                vocab: 5,
                n: block,
                rope_dim: 2,
                position: 0,
                blocks: 1,
            },
            EmbedCase {
                token: 4,
                vocab: 5,
                n: 3 * block,
                rope_dim: 128,
                position: 131_071,
                blocks: 2,
            },
            EmbedCase {
                token: 2,
                vocab: 3,
                n: 2048,
                rope_dim: 64,
                position: 0,
                blocks: 3,
            },
            EmbedCase {
                token: u32::MAX,
                vocab: 3,
                n: block,
                rope_dim: 64,
                position: 1,
                blocks: 1,
            },
        ]
        .map(|case| {
            let blocks = (case.vocab * case.n / self.format.block_len()) as usize;
            let table = self.format.random(blocks, 1.0, &mut Random(seed));
            // Scale, offset and their sum round once each, here and in the definition.
            case.filled(
                table,
                self.batch,
                if self.format.block_len() == 1 {
                    EXACT
                } else {
                    4e-7
                },
            )
        })
        .into()
    }
}

/// The bound of results without a rounding, and of angles at position 0.
const EXACT: f64 = 0.0;
/// The bound at other positions: sine and cosine are within 2^-20.9, and the angle within 2^-23.
const ROTATION_BOUND: f64 = 2e-6;

#[derive(Debug)]
struct EmbedCase {
    token: u32,
    vocab: u32,
    n: u32,
    rope_dim: u32,
    position: u32,
    blocks: u32,
}

impl EmbedCase {
    /// Returns the case for a table. The error is at most `bound`.
    fn filled(&self, table: Vec<u8>, batch: u32, bound: f64) -> Case {
        // The tokens of a batch have descending ids, down to 0.
        let item = |i| StepState {
            token: self.token.saturating_sub(5 * i),
            position: self.position + i,
            ..StepState::default()
        };
        let state = (0..batch).flat_map(|i| item(i).words()).collect();
        let mut args = vec![
            CpuArg::U32(state),
            CpuArg::U8(table),
            CpuArg::F32(frequencies(self.rope_dim)),
            CpuArg::F32(vec![0.0; (batch * self.n) as usize]),
            CpuArg::F32(vec![0.0; (batch * self.rope_dim) as usize]),
        ];
        args.extend([self.n, self.vocab, self.rope_dim, self.blocks, 1024].map(CpuArg::scalar));
        Case {
            label: format!("{self:?}"),
            args,
            bound: if self.position == 0 && batch == 1 {
                bound
            } else {
                ROTATION_BOUND
            },
        }
    }
}
