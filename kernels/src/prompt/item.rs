//! Work items: the queries that a block of attention processes.
//!
//! Tokens of several sequences are rows of the same buffers. A work item is some of these rows, at
//! consecutive positions of one sequence. In memory, it is four words in the order of the fields of
//! [`Item`].

use crate::harness::{Case, Variant};
use crate::matmul::activations::TOKENS;
use crate::shared::state::{LEN, POSITION, SEQUENCE};
use crate::shared::{Contract, Random};
use ptx_gen::*;

/// A work item of attention.
///
/// ```
/// use warpwright_kernels::prompt::Item;
/// let chunk = Item { row: 8, rows: 150, position: 1000, sequence: 3 };
/// let items: Vec<[u32; 4]> = chunk.split(128).map(Item::words).collect();
/// assert_eq!(items, [[136, 22, 1128, 3], [8, 128, 1000, 3]]);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Item {
    /// The row of the first query.
    pub row: u32,
    /// The number of queries, at most the kernel's, or 0 for a block that does nothing.
    pub rows: u32,
    /// The position of the first query.
    pub position: u32,
    /// The sequence's row in the page table.
    pub sequence: u32,
}

impl Item {
    /// The number of words of an item.
    pub const LEN: usize = 4;
    /// The item of a block that does nothing.
    pub const IDLE: Item = Item {
        row: 0,
        rows: 0,
        position: 0,
        sequence: 0,
    };

    /// Returns the item as words in memory.
    pub const fn words(self) -> [u32; Item::LEN] {
        [self.row, self.rows, self.position, self.sequence]
    }

    /// Returns true if a row belongs to the item.
    pub(super) fn has(self, row: u32) -> bool {
        (self.row..self.row + self.rows).contains(&row)
    }

    /// Splits the item into items of at most `queries` rows each. The item with the most positions
    /// comes first, because it takes longest.
    pub fn split(self, queries: u32) -> impl Iterator<Item = Item> {
        (0..self.rows.div_ceil(queries)).rev().map(move |part| {
            let first = part * queries;
            let rows = queries.min(self.rows - first);
            Item {
                row: self.row + first,
                rows,
                position: self.position + first,
                ..self
            }
        })
    }
}

args! {
    /// Arguments of [`ChunkItems`].
    pub struct ChunkItemsArgs {
        /// `[rows, 8]`: the decode states, of which only the first is read, see
        /// [`state`](crate::shared::state)
        state: In<u32>,
        /// `[ceil(tokens / queries), 4]`: the work items, see [`Item`]
        items: Out<u32>,
        /// The number of tokens of the chunk.
        tokens: u32,
    }
}

/// Kernel that writes the items of a chunk: tokens at consecutive positions of a sequence, starting
/// at row 0. It is [`Item::split`] on the device, for a chunk whose position is in device memory.
/// Each thread writes one item.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ChunkItems {
    /// The number of queries of an item.
    pub queries: u32,
}

/// The number of threads of a block.
const THREADS: u32 = 32;

impl KernelDef for ChunkItems {
    type Args<S: Side> = ChunkItemsArgs<S>;

    fn name(&self) -> String {
        format!("chunk_items_{}", self.queries)
    }

    fn block(&self) -> u32 {
        THREADS
    }

    fn grid(&self, a: &ChunkItemsArgs<Shape>) -> Result<Grid, ShapeError> {
        self.multiple("the kernel's queries", self.queries, TOKENS)?;
        self.range("tokens", a.tokens, 1, 1 << 24)?;
        let count = a.tokens.div_ceil(self.queries);
        let rows = a.state / LEN;
        self.require(rows > 0 && a.state.is_multiple_of(LEN), || {
            format!("state has {} elements, must have 8 for each row", a.state)
        })?;
        self.exactly("items", a.items, count as usize * Item::LEN)?;
        Ok(Grid::line(count.div_ceil(THREADS)))
    }

    fn program<'k>(&self, k: Builder<'k>, a: ChunkItemsArgs<Dev<'k>>) {
        let queries = self.queries;
        let i = k.ctaid() * THREADS + k.tid();
        let count = (a.tokens + (queries - 1)) / queries;
        k.when(i.lt(count), || {
            let position = a.state.at(POSITION).ld();
            let sequence = a.state.at(SEQUENCE).ld();
            let first = (count - 1 - i) * queries;
            let rows = (a.tokens - first).min(queries);
            a.items
                .row(i, 4 * Item::LEN as u32)
                .st4([first, rows, position + first, sequence]);
        });
    }

    fn reference(&self, a: ChunkItemsArgs<Cpu<'_>>) {
        let [position, sequence] = [POSITION, SEQUENCE].map(|word| a.state[word as usize]);
        let chunk = Item {
            row: 0,
            rows: a.tokens,
            position,
            sequence,
        };
        for (to, item) in a.items.chunks_mut(Item::LEN).zip(chunk.split(self.queries)) {
            to.copy_from_slice(&item.words());
        }
    }
}

impl Variant for ChunkItems {
    fn cases(&self, seed: u64) -> Vec<Case> {
        // One token, a full item and one token more, and several blocks.
        let counts = [1, self.queries, self.queries + 1, 33 * self.queries - 1];
        let case = |tokens: u32| {
            let mut random = Random(seed);
            let state = (0..2 * LEN).map(|_| random.below(1000)).collect();
            let count = tokens.div_ceil(self.queries) as usize;
            let args = vec![
                CpuArg::U32(state),
                CpuArg::U32(vec![0; count * Item::LEN]),
                CpuArg::scalar(tokens),
            ];
            Case {
                label: format!("tokens={tokens}"),
                args,
                bound: 0.0,
            }
        };
        counts.into_iter().map(case).collect()
    }
}
