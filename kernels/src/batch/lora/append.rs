//! The second half of an adapter of queries, keys and values, after the matmul has rotated and
//! appended them: `B u` is rotated like `W x`, and added to the stored values.
//!
//! The rotation is linear, so the sum of the rotated values is the rotated sum. The stored values
//! are `f16`, so a query, key or value of a row with an adapter is rounded twice. The matmul's
//! epilogue ([`Append`](crate::matmul::Append)) decides which values are stored, and this kernel
//! changes no others.

use super::adapter_row::{AdapterRow, TransposedB, adapter_of, dot};
use super::parts::LoraParts;
use super::shrink::MAX_ADAPTERS;
use crate::harness::{Case, Variant};
use crate::pipeline::lora::{MAX_RANK, RANK_STEP};
use crate::shared::cache::{self, PAGE, key, keys};
use crate::shared::state::{DONE, LEN, POSITION, SEQUENCE, StepState};
use crate::shared::{Contract, Random, check_lengths};
use crate::simple::rope::Pairing;
use ptx_gen::*;
use std::f32::consts::LOG2_E;

args! {
    /// Arguments of [`BatchLoraAppend`].
    pub struct BatchLoraAppendArgs {
        /// `[adapters, rank, (heads + 2 * kv_heads) * head_dim]`: B transposed, of each adapter
        b: In<f32>,
        /// `[tokens, 3, rank]`: `s A x` of queries, keys and values. The buffer may be longer.
        u: In<f32>,
        /// `[rows, angle_row / 2, 2]`: cosine and sine of each row's pairs, starting at pair
        /// `angle_first / 2`. There are at least `tokens` rows.
        angles: In<f32>,
        /// `[rows, 8]`: the state of each row with its adapter, its position, its sequence, and its
        /// end flag. There are at least `tokens` rows. See [`state`](crate::shared::state).
        state: In<u32>,
        /// `[sequences, max_pages]`: the page table. A page that this launch writes must belong to
        /// a single sequence.
        pages: In<u32>,
        /// `[capacity, heads, head_dim]`: the queries times `scale * log2(e)`, or NaN beyond the
        /// range of `f16`
        q: InOut<f16>,
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
        /// The number of elements of a row's angles, an even number.
        angle_row: u32,
        /// The first element of a row's angles that is used, an even number.
        angle_first: u32,
        /// The factor of the scores: `1 / sqrt(head_dim)`.
        scale: f32,
        /// The number of adapters.
        adapters: u32,
        /// The number of columns of B, a multiple of 4.
        rank: u32,
        /// The number of rows.
        tokens: u32,
        /// The capacity of `q` in rows.
        capacity: u32,
        /// The number of rows that a block processes. It does not change the results.
        tile: u32,
    }
}

/// Kernel that adds `B u` to rotated queries and keys, and to values.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct BatchLoraAppend {
    /// The number of dimensions of a head, an even number. All are rotated.
    pub head_dim: u32,
    /// The pairing of dimensions in the rotation.
    pub pairing: Pairing,
}

/// The number of threads of a block, each of which computes two dimensions of a head.
const THREADS: u32 = 256;

impl BatchLoraAppend {
    /// Returns the dimensions of a rotary pair, on both sides.
    fn pair(&self, i: u32) -> [u32; 2] {
        match self.pairing {
            Pairing::Interleaved => [2 * i, 2 * i + 1],
            Pairing::HalfSplit => [i, i + self.head_dim / 2],
        }
    }
}

impl KernelDef for BatchLoraAppend {
    type Args<S: Side> = BatchLoraAppendArgs<S>;

    fn name(&self) -> String {
        let pairing = match self.pairing {
            Pairing::Interleaved => "interleaved",
            Pairing::HalfSplit => "half_split",
        };
        format!("batch_lora_append_{}_{pairing}", self.head_dim)
    }

    fn block(&self) -> u32 {
        THREADS
    }

    fn grid(&self, a: &BatchLoraAppendArgs<Shape>) -> Result<Grid, ShapeError> {
        let head_dim = self.head_dim;
        let &BatchLoraAppendArgs {
            heads,
            kv_heads,
            adapters,
            rank,
            tokens,
            capacity,
            angle_row,
            ..
        } = a;
        self.multiple("the kernel's head_dim", head_dim, 2)?;
        self.range("the kernel's head_dim", head_dim, 2, 256)?;
        self.range("heads", heads, 1, 1 << 16)?;
        self.range("kv_heads", kv_heads, 1, 1 << 16)?;
        self.range("adapters", adapters, 1, MAX_ADAPTERS)?;
        self.multiple("rank", rank, RANK_STEP)?;
        self.range("rank", rank, 1, MAX_RANK)?;
        self.range("tokens", tokens, 1, capacity.min(u16::MAX.into()))?;
        self.range("tile", a.tile, 1, 1 << 12)?;
        self.range("angle_row", angle_row, head_dim, 1 << 16)?;
        self.range("angle_first", a.angle_first, 0, angle_row - head_dim)?;
        self.require(
            angle_row.is_multiple_of(2) && a.angle_first.is_multiple_of(2),
            || {
                format!(
                    "angle_row is {angle_row} and angle_first {}, must be even",
                    a.angle_first
                )
            },
        )?;
        let all_heads = heads + 2 * kv_heads;
        check_lengths! { self, a:
            b == adapters * rank * all_heads * head_dim,
            u >= tokens * 3 * rank,
            angles >= tokens * angle_row,
            state >= tokens * 8,
            q == capacity * heads * head_dim,
        }
        cache::check_table(self, a.pages, [a.sequences, a.max_pages])?;
        for (name, found) in [("k_cache", a.k_cache), ("v_cache", a.v_cache)] {
            cache::check_pages(self, name, found, [a.cache_pages, kv_heads, head_dim])?;
        }
        let pairs = all_heads * head_dim / 2;
        Ok(Grid::plane(
            pairs.div_ceil(THREADS),
            tokens.div_ceil(a.tile),
        ))
    }

    fn program<'k>(&self, k: Builder<'k>, a: BatchLoraAppendArgs<Dev<'k>>) {
        let pair = k.ctaid() * THREADS + k.tid();
        let heads = a.heads + a.kv_heads * 2;
        let first = k.ctaid_y() * a.tile;
        let end = (first + a.tile).min(a.tokens);
        let two = TwoDims::new(k, self, &a, pair);
        k.when(pair.lt(heads * (self.head_dim / 2)), || {
            k.for_each(first, end, 1, |token| {
                let adapter = AdapterRow::load(a.state, token, a.adapters);
                let done = a.state.row(token, 4 * LEN as u32).at(DONE).ld();
                // The epilogue stores nothing for rows that are done, so there is nothing to change.
                k.when(adapter.exists & done.eq(0), || {
                    two.add(self, &a, token, adapter.index);
                });
            });
        });
    }

    fn reference(&self, a: BatchLoraAppendArgs<Cpu<'_>>) {
        let dim = self.head_dim as usize;
        let heads = a.heads as usize;
        let kv_heads = a.kv_heads as usize;
        let all = heads + 2 * kv_heads;
        let rank = a.rank as usize;
        for token in 0..a.tokens as usize {
            let state = &a.state[token * LEN..][..LEN];
            let Some(adapter) = adapter_of(a.state, token, a.adapters) else {
                continue;
            };
            if state[DONE as usize] != 0 {
                continue;
            }

            let [position, sequence] = [POSITION, SEQUENCE].map(|word| state[word as usize]);
            let b = &a.b[adapter * rank * all * dim..][..rank * all * dim];
            let cached = |head| {
                let table = [a.sequences, a.max_pages, a.cache_pages];
                let of = [kv_heads, head];
                cache::paged_row(a.pages, table, sequence, of, position as usize)
            };
            for head in 0..all {
                let (part, to) = match head {
                    _ if head < heads => (0, Some(&mut a.q[(token * heads + head) * dim..])),
                    _ if head < heads + kv_heads => {
                        let row = cached(head - heads);
                        (1, row.map(|row| &mut a.k_cache[row * dim..]))
                    }
                    _ => {
                        let row = cached(head - heads - kv_heads);
                        (2, row.map(|row| &mut a.v_cache[row * dim..]))
                    }
                };
                let Some(to) = to else { continue };
                let u = &a.u[(token * 3 + part) * rank..][..rank];
                let scale = f64::from(a.scale) * std::f64::consts::LOG2_E;
                let factor = if part == 0 { scale } else { 1.0 };
                for i in 0..dim / 2 {
                    let dims = self.pair(i as u32).map(|d| d as usize);
                    let [x, y] = dims.map(|d| dot(b, all * dim, head * dim + d, u));
                    let angles = token * a.angle_row as usize + a.angle_first as usize;
                    let [cos, sin] = match part {
                        2 => [1.0, 0.0],
                        _ => [0, 1].map(|j| f64::from(a.angles[angles + 2 * i + j])),
                    };
                    let rotated = [x * cos - y * sin, x * sin + y * cos];
                    for (d, x) in dims.into_iter().zip(rotated) {
                        to[d] = key((f64::from(to[d].to_f32()) + x * factor) as f32);
                    }
                }
            }
        }
    }
}

/// The two dimensions of a head that a thread computes: a rotary pair of a query or key, or the same
/// dimensions of a value.
struct TwoDims<'k> {
    k: Builder<'k>,
    head: U32<'k>,
    /// The index of the pair in its head.
    index: U32<'k>,
    dims: [U32<'k>; 2],
    /// Whether the head is a key or a value.
    keys: Pred<'k>,
    /// Whether the head is a value.
    values: Pred<'k>,
    /// The projection of the head.
    part: U32<'k>,
}

impl<'k> TwoDims<'k> {
    fn new(
        k: Builder<'k>,
        def: &BatchLoraAppend,
        a: &BatchLoraAppendArgs<Dev<'k>>,
        pair: U32<'k>,
    ) -> Self {
        let half = def.head_dim / 2;
        let head = pair / half;
        let index = pair % half;
        let firsts = [a.heads, a.heads + a.kv_heads];
        let [keys, values] = firsts.map(|first| head.ge(first));
        let dims = match def.pairing {
            Pairing::Interleaved => [index * 2, index * 2 + 1],
            Pairing::HalfSplit => [index, index + half],
        };
        TwoDims {
            k,
            head,
            index,
            dims,
            keys,
            values,
            part: LoraParts::Three.of(k, head, firsts),
        }
    }

    /// Adds the product of a row of the batch.
    fn add(
        &self,
        def: &BatchLoraAppend,
        a: &BatchLoraAppendArgs<Dev<'k>>,
        token: U32<'k>,
        adapter: U32<'k>,
    ) {
        let k = self.k;

        k.section(
            "batch/lora/append",
            "rotate the product with two rows of B, and add it",
        );
        let rows = (a.heads + a.kv_heads * 2) * def.head_dim;
        let b = TransposedB {
            k,
            b: a.b.row(adapter, a.rank * rows * 4),
            rank: a.rank,
            rows,
        };
        let u = a.u.row(token, a.rank * 12).row(self.part, a.rank * 4);
        let [x, y] = self
            .dims
            .map(|dim| b.dot(self.head.mad(def.head_dim, dim), u));
        let angle = a.angles.row(token, a.angle_row * 4).at(a.angle_first);
        let [cos, sin] = angle.row(self.index, 8).ld2();
        let rotated = [x * cos - y * sin, x * sin + y * cos];
        let factor = self.keys.select(1.0, a.scale * LOG2_E);
        let added = [
            self.values.select(x, rotated[0]) * factor,
            self.values.select(y, rotated[1]) * factor,
        ];

        let state = a.state.row(token, 4 * LEN as u32);
        let [position, sequence] = [POSITION, SEQUENCE].map(|word| state.at(word).ld());
        let index = position >> PAGE.ilog2();
        let known = sequence.lt(a.sequences) & index.lt(a.max_pages);
        let mut page = k.var(u32::MAX);
        a.pages
            .row(sequence, a.max_pages * 4)
            .at(index)
            .ld_if(known, &mut page);
        let cached = page.get() * a.kv_heads * PAGE + (position & (PAGE - 1));
        let kept = page.get().lt(a.cache_pages);
        let bytes = 2 * def.head_dim;
        let in_cache = |head: U32<'k>| head.mad(PAGE, cached);
        k.when(!self.keys, || {
            let row = token.mad(a.heads, self.head);
            self.add_to(a.q.row(row, bytes), added)
        });
        k.when(self.keys & !self.values & kept, || {
            let row = in_cache(self.head - a.heads);
            self.add_to(a.k_cache.row(row, bytes), added)
        });
        k.when(self.values & kept, || {
            let row = in_cache(self.head - a.heads - a.kv_heads);
            self.add_to(a.v_cache.row(row, bytes), added)
        });
    }

    /// Adds to the thread's dimensions of a head.
    fn add_to(&self, head: Ptr<'k, f16, ReadWrite>, added: [F32<'k>; 2]) {
        let places = self.dims.map(|dim| head.at(dim));
        let old = places.map(|place| place.ld().cvt::<f32>());
        let sums = [old[0] + added[0], old[1] + added[1]];
        for (place, sum) in places.into_iter().zip(keys(self.k, sums)) {
            place.st(sum);
        }
    }
}

impl Variant for BatchLoraAppend {
    fn cases(&self, seed: u64) -> Vec<Case> {
        /// The sizes of a case.
        struct Sizes {
            adapters: u32,
            rank: u32,
            heads: [u32; 2],
            tile: u32,
        }
        let dim = self.head_dim;
        let case = |sizes: Sizes, rows: &[(Option<u32>, u32, bool)]| {
            let mut random = Random(seed);
            let Sizes {
                adapters,
                rank,
                heads: [heads, kv_heads],
                tile,
            } = sizes;
            let tokens = rows.len() as u32;
            let capacity = tokens + 2;
            let all = heads + 2 * kv_heads;
            let state = |(sequence, &(adapter, position, done)): (usize, &_)| {
                let state = StepState {
                    adapter,
                    position,
                    done,
                    sequence: sequence as u32,
                    ..StepState::default()
                };
                state.words()
            };
            let state = rows.iter().enumerate().flat_map(state).collect();
            let angles: Vec<f32> = random
                .units((tokens * dim) as usize)
                .chunks(2)
                .flat_map(|angle| [(3.0 * angle[0]).cos(), (3.0 * angle[0]).sin()])
                .collect();

            // The last sequence has no page, so its keys and values are not changed.
            let cache_pages = 2 * tokens;
            let mut pages: Vec<u32> = (0..cache_pages).collect();
            pages[cache_pages as usize - 2..].fill(u32::MAX);
            let cache = (cache_pages * kv_heads * PAGE * dim) as usize;
            let mut args = vec![
                CpuArg::F32(random.units((adapters * rank * all * dim) as usize)),
                CpuArg::F32(random.units((tokens * 3 * rank) as usize)),
                CpuArg::F32(angles),
                CpuArg::U32(state),
                CpuArg::U32(pages),
                CpuArg::F16(random.halves((capacity * heads * dim) as usize)),
                CpuArg::F16(random.halves(cache)),
                CpuArg::F16(random.halves(cache)),
            ];
            args.extend([heads, kv_heads, cache_pages, tokens, 2, dim, 0].map(CpuArg::scalar));
            args.push(CpuArg::scalar(0.5f32));
            args.extend([adapters, rank, tokens, capacity, tile].map(CpuArg::scalar));
            Case {
                label: format!("adapters={adapters} rank={rank} heads={heads} rows={rows:?}"),
                args,
                bound: 2e-3,
            }
        };
        let first = Sizes {
            adapters: 1,
            rank: 4,
            heads: [2, 1],
            tile: 1,
        };
        let second = Sizes {
            adapters: 2,
            rank: 8,
            heads: [3, 2],
            tile: 2,
        };
        vec![
            case(first, &[(Some(0), 70, false), (None, 0, false)]),
            case(
                second,
                &[
                    (Some(1), 5, false),
                    (Some(0), 127, true),
                    (Some(0), 64, false),
                    (None, 9, false),
                    (Some(1), 3, false),
                ],
            ),
        ]
    }
}
