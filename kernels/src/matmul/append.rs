//! Queries, keys and values of many tokens, as an epilogue of their matmul: bias, rotary embedding,
//! and the append to the paged KV cache. Each token has its own position and sequence.
//!
//! The steps are the steps of [`RotateTokens`](crate::prompt::RotateTokens), which models with head
//! norms need, because a norm needs whole heads. In this epilogue, a lane has both dimensions of a
//! rotary pair, because they are rows `g` and `g + 8` of a row block. The rows of a head form whole
//! row blocks in every order, so a warp stores rows of only one matrix and one head.
//!
//! The epilogue stores and drops the same values as `RotateTokens`, with one exception. Queries of
//! tokens whose state is done are stored, although no kernel reads them.

use super::definition::{Append, AppendArgs, MatmulArgs};
use super::lane_sums::{AT_ONCE, LaneSums};
use crate::format::tile::{ROWS, RowOrder};
use crate::shared::Contract;
use crate::shared::cache::{self, PAGE, key, key_pair};
use crate::shared::state::{DONE, LEN, POSITION, SEQUENCE};
use crate::simple::rope::Pairing;
use ptx_gen::*;
use std::f32::consts::LOG2_E;

/// The matrix that a row belongs to.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Matrix {
    Queries,
    Keys,
    Values,
}

impl Append {
    /// Returns the dimensions of rows `g` and `g + 8` of row block `block` of a head.
    fn dims(self, matrix: Matrix, block: u32, g: u32) -> [u32; 2] {
        let order = if matrix == Matrix::Values {
            RowOrder::PLAIN
        } else {
            self.pairs()
        };
        [g, g + 8].map(|r| order.source(block, r))
    }

    /// Checks the arguments of a kernel with rows in this order. The rows are either queries, keys
    /// and optionally values, or only values in plain order.
    pub(super) fn contract(
        self,
        kernel: &impl Contract,
        order: RowOrder,
        a: &MatmulArgs<Shape>,
    ) -> Result<(), ShapeError> {
        let p = &a.append;
        let dim = self.head_dim;
        kernel.multiple("the kernel's head_dim", dim, ROWS)?;
        kernel.range("the kernel's head_dim", dim, ROWS, 256)?;
        kernel.range("heads", p.heads, 1, 1 << 16)?;
        kernel.range("kv_heads", p.kv_heads, 1, 1 << 16)?;
        let values = (p.heads + p.kv_heads) as usize * dim as usize;
        let all = values + p.kv_heads as usize * dim as usize;
        kernel.require(a.y_rows as usize == all, || {
            format!(
                "y_rows is {}, must be (heads + 2 * kv_heads) * head_dim = {all}",
                a.y_rows
            )
        })?;
        kernel.multiple("rows", a.rows, dim)?;
        let first = a.y_first as usize;
        kernel.require(
            a.y_first.is_multiple_of(dim) && first + a.rows as usize <= all,
            || {
                format!(
                    "rows {first} to {} are not heads of the {all} rows",
                    first + a.rows as usize
                )
            },
        )?;
        kernel.require(order == self.pairs() || (order == RowOrder::PLAIN && first >= values), || {
            format!(
                "rows from {first} on, of which values begin at {values}, in the order {order:?}"
            )
        })?;
        self.buffers(kernel, a)
    }

    /// Checks the buffers.
    fn buffers(self, kernel: &impl Contract, a: &MatmulArgs<Shape>) -> Result<(), ShapeError> {
        let p = &a.append;
        let dim = self.head_dim;
        let bias = if self.bias { a.y_rows } else { 0 };
        kernel.length("bias", p.bias, "(heads + 2 * kv_heads) * head_dim", &[bias])?;
        kernel.range("angle_row", p.angle_row, dim, 1 << 16)?;
        kernel.range("angle_first", p.angle_first, 0, p.angle_row - dim)?;
        kernel.require(
            p.angle_row.is_multiple_of(2) && p.angle_first.is_multiple_of(2),
            || {
                format!(
                    "angle_row is {} and angle_first {}, must be even",
                    p.angle_row, p.angle_first
                )
            },
        )?;
        let given = a.tokens_given as usize;
        kernel.room("angles", p.angles, given * p.angle_row as usize)?;
        kernel.room("state", p.state, given * LEN)?;
        cache::check_table(kernel, p.pages, [p.sequences, p.max_pages])?;
        kernel.length(
            "q",
            p.q,
            "capacity * heads * head_dim",
            &[a.capacity, p.heads, dim],
        )?;
        for (name, found) in [("k_cache", p.k_cache), ("v_cache", p.v_cache)] {
            cache::check_pages(kernel, name, found, [p.cache_pages, p.kv_heads, dim])?;
        }

        Ok(())
    }
}

impl AppendArgs<Shape> {
    /// Checks that an epilogue that appends nothing gets empty buffers.
    pub(super) fn nothing(&self, kernel: &impl Contract) -> Result<(), ShapeError> {
        let buffers = [
            self.bias,
            self.angles,
            self.state,
            self.pages,
            self.q,
            self.k_cache,
            self.v_cache,
        ];
        let filled = buffers.iter().sum::<usize>();
        kernel.require(filled == 0, || {
            format!("the epilogue appends nothing, and is given {filled} elements")
        })
    }
}

/// A lane's two rows.
struct Rows<'k> {
    matrix: Matrix,
    /// The head of the matrix.
    head: U32<'k>,
    /// The dimensions of both rows.
    dims: [U32<'k>; 2],
    /// The index of the rotary pair.
    pair: U32<'k>,
    /// The bias of both rows.
    bias: Option<[F32<'k>; 2]>,
}

impl<'k> LaneSums<'_, 'k> {
    /// Stores a lane's sums as queries, keys or values.
    pub(super) fn append(
        &self,
        a: &MatmulArgs<Dev<'k>>,
        append: Append,
        order: RowOrder,
        reciprocals: [F32<'k>; 2],
    ) {
        let k = self.k;
        let per = append.head_dim / ROWS;
        let block = self.row_block + a.y_first / ROWS;
        let head = block / per;
        let block = block % per;
        let keys = head.ge(a.append.heads);
        let values = head.ge(a.append.heads + a.append.kv_heads);
        let store = |matrix, head| {
            let rows = self.rows(a, append, matrix, [head, block]);
            self.store_rows(a, append, &rows, reciprocals);
        };
        let store_values = || store(Matrix::Values, head - a.append.heads - a.append.kv_heads);

        // A matrix in plain order has only values. Otherwise the branches are uniform in the warp,
        // because a row block belongs to one head.
        match order {
            RowOrder::PLAIN => store_values(),
            _ => {
                k.when(!keys, || store(Matrix::Queries, head));
                k.when(keys & !values, || {
                    store(Matrix::Keys, head - a.append.heads)
                });
                k.when(values, store_values);
            }
        }
    }

    /// Returns the lane's rows of row block `block` of a head of this matrix.
    fn rows(
        &self,
        a: &MatmulArgs<Dev<'k>>,
        append: Append,
        matrix: Matrix,
        [head, block]: [U32<'k>; 2],
    ) -> Rows<'k> {
        let g = self.k.lane() >> 2;
        let pair = block * 8 + g;

        // Packing permutes the rows, so that a lane's two rows are a rotary pair.
        let dims = match (matrix, append.pairing) {
            (Matrix::Values, _) => [block * ROWS + g, block * ROWS + g + 8],
            (_, Pairing::Interleaved) => [pair * 2, pair * 2 + 1],
            (_, Pairing::HalfSplit) => [pair, pair + append.head_dim / 2],
        };
        let before = match matrix {
            Matrix::Queries => self.k.val(0),
            Matrix::Keys => a.append.heads,
            Matrix::Values => a.append.heads + a.append.kv_heads,
        };
        let bias = append.bias.then(|| {
            let of_head = a.append.bias.row(before + head, 4 * append.head_dim);
            dims.map(|dim| of_head.at(dim).ld())
        });
        Rows {
            matrix,
            head,
            dims,
            pair,
            bias,
        }
    }

    /// Rotates and stores a lane's sums. It issues many loads at once, and then as many stores.
    fn store_rows(
        &self,
        a: &MatmulArgs<Dev<'k>>,
        append: Append,
        rows: &Rows<'k>,
        reciprocals: [F32<'k>; 2],
    ) {
        let places = Places {
            sums: self,
            a,
            append,
            rows,
            slots: self.slots(a, rows),
        };
        let first = self.token + (self.k.lane() & 3) * 2;
        for (j, sums) in (0..).zip(self.sums.0.chunks(4 * AT_ONCE as usize)) {
            self.k
                .section("matmul/append/tokens", "sums of many tokens");
            let groups = (0..sums.len() as u32 / 4).map(|i| AT_ONCE * j + i);
            let loaded: Vec<_> = groups
                .map(|group| {
                    let token = first + 8 * group;
                    let angles = [0, 1].map(|i| self.angle(a, rows, token + i));
                    (group, self.scales(a, group), angles)
                })
                .collect();
            for ((group, scales, angles), sums) in loaded.into_iter().zip(sums.chunks(4)) {
                let biased = |x: F32<'k>, r: usize| rows.bias.map_or(x, |bias| x + bias[r]);
                let of_token = |i: usize| {
                    let sum =
                        |r: usize| biased(sums[2 * r + i].get() * scales[i] * reciprocals[r], r);
                    rotated([sum(0), sum(1)], angles[i])
                };
                places.store(group, [of_token(0), of_token(1)]);
            }
        }
    }

    /// Returns cosine and sine of the lane's pair, for queries and keys.
    fn angle(
        &self,
        a: &MatmulArgs<Dev<'k>>,
        rows: &Rows<'k>,
        token: U32<'k>,
    ) -> Option<[F32<'k>; 2]> {
        let p = &a.append;
        (rows.matrix != Matrix::Values).then(|| {
            let of_token = p.angles.row(token.min(a.tokens_given - 1), p.angle_row * 4);
            self.load_two(of_token.at(p.angle_first).row(rows.pair, 8))
        })
    }

    /// Returns the cache rows of the tokens, for the first head of keys and values. A token that is
    /// not stored has `u32::MAX`. Lane `i` has the rows of the tokens `i`, `32 + i` and so on.
    fn slots(&self, a: &MatmulArgs<Dev<'k>>, rows: &Rows<'k>) -> Vec<U32<'k>> {
        if rows.matrix == Matrix::Queries {
            return vec![];
        }

        let k = self.k;
        let p = &a.append;

        k.section("matmul/append/addresses", "cache rows of keys and values");
        let slot = |first: u32| {
            let token = self.token + k.lane() + first;
            let state = p.state.row(token.min(a.tokens_given - 1), 4 * LEN as u32);
            let word = |word: u32| self.load(state.at(word));
            let [done, position, sequence] = [DONE, POSITION, SEQUENCE].map(word);
            let index = position >> PAGE.ilog2();
            let known = done.eq(0) & sequence.lt(p.sequences) & index.lt(p.max_pages);
            let mut page = k.var(u32::MAX);
            let entry = p.pages.row(sequence, p.max_pages * 4).at(index);

            // A token out of range gets no page and is not stored.
            let known = known & token.lt(a.tokens_given);
            if self.overlap {
                entry.fresh().ld_if(known, &mut page)
            } else {
                entry.ld_if(known, &mut page)
            }

            // The row of head 0. A page has all positions of a head, then those of the next.
            let first = page.get() * p.kv_heads * PAGE;
            let row = first + (position & (PAGE - 1));
            page.get().lt(p.cache_pages).select(row, u32::MAX)
        };
        (0..self.sums.columns()).step_by(32).map(slot).collect()
    }
}

/// Returns both dimensions of a pair, rotated if there is an angle.
fn rotated<'k>([x, y]: [F32<'k>; 2], angle: Option<[F32<'k>; 2]>) -> [F32<'k>; 2] {
    match angle {
        Some([cos, sin]) => [x * cos - y * sin, x * sin + y * cos],
        None => [x, y],
    }
}

/// The destinations of a lane's values.
struct Places<'a, 'k> {
    sums: &'a LaneSums<'a, 'k>,
    a: &'a MatmulArgs<Dev<'k>>,
    append: Append,
    rows: &'a Rows<'k>,
    /// The cache rows of the tokens, see [`LaneSums::slots`].
    slots: Vec<U32<'k>>,
}

impl<'k> Places<'_, 'k> {
    /// Stores a lane's values of eight tokens: both dimensions of two tokens.
    ///
    /// A store writes two adjacent dimensions. With NeoX (half-split) pairs and for values, the
    /// lane of the adjacent row has the other dimension. The two lanes then exchange values: the
    /// first stores both rows of the first token, and the second both rows of the second token.
    fn store(&self, group: u32, tokens: [[F32<'k>; 2]; 2]) {
        let k = self.sums.k;
        let rows = self.rows;
        let factor = self.a.append.scale * LOG2_E;
        let scaled = |x: F32<'k>| {
            if rows.matrix == Matrix::Queries {
                x * factor
            } else {
                x
            }
        };
        let tokens = tokens.map(|pair| pair.map(scaled));
        let word = |x, y| key_pair(k, [x, y]).bits::<u32>();
        let first = (k.lane() & 3) * 2;
        if rows.matrix != Matrix::Values && self.append.pairing == Pairing::Interleaved {
            for (i, [x, y]) in (0..).zip(tokens) {
                self.put(group, first + i, &[(rows.dims[0], word(x, y))]);
            }
            return;
        }

        let second = (k.lane() >> 2) & 1;
        let odd = second.eq(1);

        // Both lanes execute the shuffle, and each then keeps its token.
        let exchanged = [0, 1].map(|r| {
            let own = word(tokens[0][r], tokens[1][r]);
            let other = own.shfl_bfly(4);
            let first = (own & 0xffff) | (other << 16);
            let second = (other >> 16) | (own & 0xffff_0000);
            (rows.dims[r] & !1u32, odd.select(second, first))
        });
        self.put(group, first + second, &exchanged);
    }

    /// Stores words of token `of_eight` of a group of eight tokens, at these dimensions.
    fn put(&self, group: u32, of_eight: U32<'k>, words: &[(U32<'k>, U32<'k>)]) {
        let p = &self.a.append;
        let rows = self.rows;
        match rows.matrix {
            Matrix::Queries => {
                let token = self.sums.token + 8 * group + of_eight;
                let row = token.mad(p.heads, rows.head);
                self.put_row(p.q, row, token.lt(self.a.tokens_given), words);
            }
            matrix => {
                let slot = self.slots[group as usize / 4].shfl_idx(of_eight + 8 * (group % 4));
                let cache = if matrix == Matrix::Keys {
                    p.k_cache
                } else {
                    p.v_cache
                };
                self.put_row(cache, rows.head.mad(PAGE, slot), slot.ne(u32::MAX), words);
            }
        }
    }

    fn put_row<A: Stores>(
        &self,
        to: Ptr<'k, f16, A>,
        row: U32<'k>,
        exists: Pred<'k>,
        words: &[(U32<'k>, U32<'k>)],
    ) {
        self.sums.k.when(exists, || {
            let row = to.row(row, 2 * self.append.head_dim);
            for &(dim, word) in words {
                row.at(dim).cast::<u32>().st(word);
            }
        });
    }
}

/// Computes the results of a token from its sums, which are in the order of the tiles' rows.
pub(super) fn reference(append: Append, a: &mut MatmulArgs<Cpu<'_>>, token: usize, sums: &[f64]) {
    let dim = append.head_dim as usize;
    let heads = a.append.heads as usize;
    let kv_heads = a.append.kv_heads as usize;
    let state = &a.append.state[token * LEN..][..LEN];
    let [done, position, sequence] = [DONE, POSITION, SEQUENCE].map(|word| state[word as usize]);
    for (b, sums) in sums.chunks(ROWS as usize).enumerate() {
        // The rows of a head are whole row blocks.
        let b = b + a.y_first as usize / ROWS as usize;
        let head = b * ROWS as usize / dim;
        let block = b % (dim / ROWS as usize);
        let matrix = match head {
            _ if head < heads => Matrix::Queries,
            _ if head < heads + kv_heads => Matrix::Keys,
            _ => Matrix::Values,
        };

        // A token that is done or has no page is not stored.
        let cached = |head| {
            let table = [a.append.sequences, a.append.max_pages, a.append.cache_pages];
            let of = [kv_heads, head];
            let row = cache::paged_row(a.append.pages, table, sequence, of, position as usize);
            row.filter(|_| done == 0).map(|row| row * dim)
        };
        let (to, first): (&mut [f16], _) = match matrix {
            Matrix::Queries => (&mut *a.append.q, Some((token * heads + head) * dim)),
            Matrix::Keys => (&mut *a.append.k_cache, cached(head - heads)),
            Matrix::Values => (&mut *a.append.v_cache, cached(head - heads - kv_heads)),
        };
        let Some(first) = first else { continue };

        // Queries take the scale of the scores and the factor of base-2 exponentials.
        let scale = f64::from(a.append.scale) * std::f64::consts::LOG2_E;
        let factor = if matrix == Matrix::Queries {
            scale
        } else {
            1.0
        };
        for g in 0..8 {
            let dims = append
                .dims(matrix, block as u32, g as u32)
                .map(|dim| dim as usize);
            let bias = |d: usize| {
                if append.bias {
                    a.append.bias[head * dim + d].into()
                } else {
                    0.0
                }
            };
            let x = sums[g] + bias(dims[0]);
            let y = sums[g + 8] + bias(dims[1]);

            let angles = token * a.append.angle_row as usize + a.append.angle_first as usize;
            let pair = block * 8 + g;
            let angle = &a.append.angles[angles + 2 * pair..];
            let [cos, sin] = match matrix {
                Matrix::Values => [1.0, 0.0],
                _ => [angle[0], angle[1]].map(f64::from),
            };
            let rotated = [x * cos - y * sin, x * sin + y * cos];
            for (d, x) in dims.into_iter().zip(rotated) {
                to[first + d] = key((x * factor) as f32);
            }
        }
    }
}
