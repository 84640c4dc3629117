//! The fields and arguments of [`Matmul`](super::Matmul), and its epilogues.

pub(super) use super::wgmma::sm_share::SmShare;
use crate::format::Format;
use crate::format::dequantize::ColumnOrder;
use crate::format::tile::{ROWS, RowOrder};
use crate::shared::Overlap;
use crate::simple::rope::Pairing;
use crate::simple::swiglu::Activation;
use ptx_gen::*;

/// The maximum number of slices of the columns.
pub(super) const MAX_SPLIT: u32 = 16;

/// Kernel that multiplies tiles of weights by many tokens.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Matmul {
    /// The format of `W`.
    pub format: Format,
    /// The use of the sums.
    pub epilogue: Epilogue,
    /// The order of the result's rows in the tiles.
    pub rows: RowOrder,
    /// The number of tokens of a job, a multiple of 8 up to 256.
    pub tokens: u32,
    /// The number of tokens of a job of the tail, smaller than `tokens`, or 0 for no tail. The tail
    /// is the last rows, whose jobs of full width would not fill a round of the blocks.
    pub tail: u32,
    /// The number of slices of the columns, for different blocks: 1 to 16.
    pub split: u32,
    /// The division of a multiprocessor among blocks.
    pub form: SmShare,
    /// The overlap with the kernels before and after it.
    pub overlap: Overlap,
}

args! {
    /// Arguments of [`Matmul`].
    pub struct MatmulArgs {
        /// `[rows, n]`: the weights as tiles
        w: In<u8>,
        /// `[rows]`: the power of two of each row, in the order of the tiles
        unit: In<f32>,
        /// `[n / 64, capacity, 64]`: the activations, see
        /// [`activations`](crate::matmul::activations)
        x: In<f16>,
        /// `[capacity]`: the factor of each token's sums
        x_scale: In<f32>,
        /// `[capacity]`: the sum of the squares of each token's activations, if the epilogue needs
        /// it, else empty
        squares: In<f32>,
        /// `[capacity, y_rows]`: the result that sums are added to or stored in
        y: InOut<f32>,
        /// `[y_rows / 64, capacity, 64]`: the gated activations, if the epilogue computes them,
        /// else empty
        gated: Out<f16>,
        /// `[capacity]`: the scales of the gated activations
        gated_scale: Out<f32>,
        /// The bound of the gated activations, see [`Epilogue::Gated`].
        bound: f32,
        /// The number of rows of the matrix, a multiple of 16.
        rows: u32,
        /// The number of columns, a multiple of the tile's columns.
        n: u32,
        /// The number of rows of `y`. The matmul computes some of them.
        y_rows: u32,
        /// The first row of `y` that the matmul computes.
        y_first: u32,
        /// The number of tokens.
        tokens_given: u32,
        /// The capacity of the buffers in tokens, a multiple of the tokens of each of the kernel's
        /// jobs.
        capacity: u32,
        /// The maximum number of blocks of the grid.
        blocks: u32,
        /// `[partial sums]`: scratch space if the columns are split. It may be longer than
        /// [`Matmul::scratch`].
        partials: InOut<f32>,
        /// `[tickets]`: one ticket for each warp of a job if the columns are split, which must be
        /// zero before the launch and are zero after it. The buffer may be longer.
        tickets: InOut<u32>,
        /// The arguments of queries, keys and values.
        append: AppendArgs,
    }
}

impl Matmul {
    /// Creates a matmul with jobs of one width, without a split or overlap, with one block per
    /// multiprocessor.
    pub const fn new(format: Format, epilogue: Epilogue, rows: RowOrder, tokens: u32) -> Matmul {
        Matmul {
            format,
            epilogue,
            rows,
            tokens,
            tail: 0,
            split: 1,
            form: SmShare::Whole,
            overlap: Overlap::No,
        }
    }

    /// Returns the number of jobs for `rows` rows and `tokens` tokens if all jobs have
    /// [`tokens`](Matmul::tokens).
    pub fn jobs(&self, rows: u32, tokens: u32) -> u32 {
        (rows / ROWS).div_ceil(self.row_blocks()) * tokens.div_ceil(self.tokens)
    }

    /// Returns the number of row blocks of a job, one for each warp that multiplies.
    pub(super) fn row_blocks(&self) -> u32 {
        4 * self.form.groups()
    }
}

/// The use of the sums.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Epilogue {
    /// Stores them: `y = W x`.
    Store,
    /// Adds them: `y += W x`, by reductions in the L2 cache, so that nothing waits for the previous
    /// `y`.
    Add,
    /// Computes gated activations, `f(gate) up`, as the input of the next matmul, whose columns
    /// have this order. Each row block has eight rows of the gate projection and the same eight of
    /// the up projection.
    ///
    /// A token's values need a common power of two before all of them are known. `|gate up|` is at
    /// most `|x|^2` times the lengths of a row of each matrix. The argument `bound` is the product
    /// of the largest of these lengths.
    Gated(Activation, ColumnOrder),
    /// Rotates queries and keys, stores queries, and appends keys and values to the cache.
    Append(Append),
}

args! {
    /// The arguments of [`Append`]. For other epilogues, all buffers are empty.
    pub struct AppendArgs {
        /// `[heads + 2 * kv_heads, head_dim]`: the bias, if the kernel adds one, else empty
        bias: In<f32>,
        /// `[rows, angle_row / 2, 2]`: cosine and sine of each token's pairs, starting at pair
        /// `angle_first / 2`. There are at least `tokens_given` rows.
        angles: In<f32>,
        /// `[rows, 8]`: the state of each token with its position, below `2^24`, its sequence, and
        /// its end flag. There are at least `tokens_given` rows. See
        /// [`state`](crate::shared::state).
        state: In<u32>,
        /// `[sequences, max_pages]`: the page table. A page that this launch writes must belong to
        /// a single sequence.
        pages: In<u32>,
        /// `[capacity, heads, head_dim]`: the queries times `scale * log2(e)`, or NaN beyond the
        /// range of `f16`
        q: Out<f16>,
        /// `[cache_pages, kv_heads, 64, head_dim]`: the keys, see [`cache`](crate::shared::cache)
        k_cache: InOut<f16>,
        /// `[cache_pages, kv_heads, 64, head_dim]`: the values, see [`cache`](crate::shared::cache)
        v_cache: InOut<f16>,
        /// The number of query heads.
        heads: u32,
        /// The number of KV heads.
        kv_heads: u32,
        /// The number of pages of the caches.
        cache_pages: u32,
        /// The number of sequences of the page table.
        sequences: u32,
        /// The maximum number of pages of a sequence.
        max_pages: u32,
        /// The number of elements of a token's angles, an even number.
        angle_row: u32,
        /// The first element of a token's angles that is used, an even number.
        angle_first: u32,
        /// The factor of the scores: `1 / sqrt(head_dim)`.
        scale: f32,
    }
}

/// The epilogue that stores queries, keys and values.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Append {
    /// The number of dimensions of a head: a multiple of 16. All are rotated.
    pub head_dim: u32,
    /// The pairing of dimensions in the rotation.
    pub pairing: Pairing,
    /// Whether a bias is added.
    pub bias: bool,
}

impl Append {
    /// Returns the part of a kernel's name.
    pub(super) fn name(self) -> String {
        let pairing = match self.pairing {
            Pairing::Interleaved => "interleaved",
            Pairing::HalfSplit => "half_split",
        };
        format!(
            "append_{}_{pairing}{}",
            self.head_dim,
            if self.bias { "_bias" } else { "" }
        )
    }

    /// Returns the order of the rows of queries and keys. The order of values is
    /// [`RowOrder::PLAIN`].
    pub const fn pairs(self) -> RowOrder {
        match self.pairing {
            Pairing::Interleaved => RowOrder::interleaved(self.head_dim),
            Pairing::HalfSplit => RowOrder::half_split(self.head_dim),
        }
    }
}
