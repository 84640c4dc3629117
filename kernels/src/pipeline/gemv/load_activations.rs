//! Loads the activations of a batch as one vector and encodes them in shared memory:
//! [`Activations`].

use crate::format::activations::{Activations, Encoding, THIRD_BYTES_A_UNIT};
use crate::pipeline::block_float::{BFP_BLOCK, BlockFloat, MAX_CODE, MIN_LARGEST, ROUNDING};
use crate::shared::reduce::{lanes_max, lanes_max_u32, warp_sum};
use ptx_gen::*;
use std::array::from_fn;

/// The number of activations that a thread encodes at once.
const CHUNK: u32 = BFP_BLOCK;

/// The threads that load, in order.
#[derive(Clone, Copy)]
pub(crate) struct Loaders<'k> {
    pub(crate) thread: U32<'k>,
    pub(crate) threads: u32,
}

/// The weights of the norm. The first of them are already in registers.
pub(crate) struct Gamma<'k> {
    all: Ptr<'k, f32, ReadOnly>,
    first: Vec<[Var<'k, f32>; 8]>,
}

/// The number of chunks that a thread has in flight.
const CHUNKS_IN_FLIGHT: u32 = 4;
/// The number of chunks that a thread encodes together, without a branch between them. The latency
/// of one chunk is hidden by the work on the other.
const CHUNKS_INTERLEAVED: u32 = 2;

impl<'k> Loaders<'k> {
    /// Returns the index of the thread's chunk `i` from `base` on, and whether it exists.
    fn chunk(self, base: impl Src<'k, u32>, i: u32, n: U32<'k>) -> (U32<'k>, Pred<'k>) {
        let index = self.thread + i * self.threads + base;
        (index, index.lt(n / CHUNK))
    }

    /// Returns whether a thread of the warp has chunk `i` from `base` on. The result is uniform in
    /// the warp.
    fn warp_has(self, k: Builder<'k>, base: impl Src<'k, u32>, i: u32, n: U32<'k>) -> Pred<'k> {
        (k.warp() * 32 + i * self.threads + base).lt(n / CHUNK)
    }

    /// Loads the first weights of the norm. They are constant, so this may run before the wait for
    /// the previous kernel.
    pub(crate) fn gamma(
        self,
        k: Builder<'k>,
        all: Ptr<'k, f32, ReadOnly>,
        n: U32<'k>,
    ) -> Gamma<'k> {
        let first = (0..CHUNKS_INTERLEAVED).map(|i| {
            let (index, inside) = self.chunk(0, i, n);
            fetch(k, all, index, inside)
        });
        Gamma {
            all,
            first: first.collect(),
        }
    }
}

/// Loads the eight elements of a chunk, or zeros if it is not `inside`.
fn fetch<'k, A: Loads>(
    k: Builder<'k>,
    from: Ptr<'k, f32, A>,
    index: U32<'k>,
    inside: Pred<'k>,
) -> [Var<'k, f32>; 8] {
    let mut chunk = from_fn(|_| k.var(0.0));
    fetch_into(&mut chunk, from, index, inside);
    chunk
}

/// Loads the eight elements of a chunk, or keeps the old values if it is not `inside`.
fn fetch_into<'k, A: Loads>(
    chunk: &mut [Var<'k, f32>; 8],
    from: Ptr<'k, f32, A>,
    index: U32<'k>,
    inside: Pred<'k>,
) {
    let at = from.row(index, 4 * CHUNK);
    let (a, b) = chunk.split_at_mut(4);
    at.ld4_if(inside, a.try_into().expect("four"));
    at.at(4).ld4_if(inside, b.try_into().expect("four"));
}

impl<'k> Activations<'k> {
    /// Loads and encodes the block floating point activations of the whole batch. Whole warps must
    /// call it. `n` is a multiple of 128.
    ///
    /// As soon as a chunk is encoded, its registers are reused for another chunk, which arrives
    /// while the others are encoded.
    pub(crate) fn load(&self, loaders: Loaders<'k>, x: BlockFloat<'k, Fresh>) {
        let k = self.k;
        let step = loaders.threads * CHUNKS_IN_FLIGHT;

        k.section(
            "pipeline/activations/load_blocks",
            "activations: load block floating point",
        );
        let mut chunks: Vec<_> = (0..CHUNKS_IN_FLIGHT)
            .map(|i| {
                let (index, inside) = loaders.chunk(0, i, self.all);
                x.load(index, inside)
            })
            .collect();
        k.for_each(0, self.all / CHUNK, step, |base| {
            // The interleaved chunks share one branch, which is uniform in the warp.
            for (first, chunks) in (0..)
                .step_by(CHUNKS_INTERLEAVED as usize)
                .zip(chunks.chunks_mut(CHUNKS_INTERLEAVED as usize))
            {
                k.when(loaders.warp_has(k, base, first, self.all), || {
                    for (i, chunk) in (first..).zip(chunks) {
                        let (index, inside) = loaders.chunk(base, i, self.all);
                        let (whole, scale) = chunk.get();
                        self.encode_block(index, inside, whole, scale);

                        k.section(
                            "pipeline/activations/next_block",
                            "load the next block of eight elements",
                        );
                        let (next, inside) = loaders.chunk(base, i + CHUNKS_IN_FLIGHT, self.all);
                        x.load_into(chunk, next, inside);
                    }
                });
            }
        });
    }

    /// Loads and encodes `x * gamma` for a batch of one. Returns this warp's sum of `x^2`. If rows
    /// are padded, the vectors have `row_len` elements, and zeros stand for the padding.
    pub(crate) fn load_normed(
        &self,
        loaders: Loaders<'k>,
        x: Ptr<'k, f32, Fresh>,
        gamma: Gamma<'k>,
        row_len: Option<u32>,
    ) -> F32<'k> {
        let k = self.k;

        k.section(
            "pipeline/activations/load_normed",
            "activations: load and multiply by the norm's weights",
        );
        let mut squares = k.var(0.0);

        // The weights of the first round were loaded before the wait. `take` uses them up.
        let mut first: Vec<_> = gamma.first.into_iter().map(Some).collect();
        let mut round = |base: Option<U32<'k>>, squares: &mut Var<'k, f32>| {
            let chunks: Vec<_> = (0..CHUNKS_INTERLEAVED)
                .map(|i| {
                    let (index, inside) = match base {
                        Some(base) => loaders.chunk(base, i, self.n),
                        None => loaders.chunk(0, i, self.n),
                    };
                    // A chunk of the padding is inside of the row, but has no elements to load.
                    let exists = row_len.map_or(inside, |len| index.lt(len / CHUNK));
                    let x = fetch(k, x, index, exists);
                    let gamma = first[i as usize]
                        .take()
                        .unwrap_or_else(|| fetch(k, gamma.all, index, exists));
                    (index, inside, x, gamma)
                })
                .collect();
            let some = match base {
                Some(base) => loaders.warp_has(k, base, 0, self.n),
                None => loaders.warp_has(k, 0, 0, self.n),
            };
            k.when(some, || {
                for (index, inside, x, gamma) in chunks {
                    for x in &x {
                        squares.fma(x, x);
                    }
                    self.encode(index, inside, from_fn(|i| x[i].get() * &gamma[i]));
                }
            });
        };
        round(None, &mut squares);
        let step = loaders.threads * CHUNKS_INTERLEAVED;
        k.for_each(step, self.n / CHUNK, step, |base| {
            round(Some(base), &mut squares)
        });
        warp_sum(squares.get())
    }

    /// Loads and encodes `x * gamma` for a larger batch. Stores the sum of squares of item `c`, one
    /// per warp, at `squares.row(c, bytes)`.
    ///
    /// The registers of a thread's first chunks are reused for the next item as soon as they are
    /// encoded. The order of additions is equal to the order in a batch of one, so the bits are
    /// equal.
    pub(crate) fn load_batch(
        &self,
        loaders: Loaders<'k>,
        x: Ptr<'k, f32, Fresh>,
        gamma: Gamma<'k>,
        squares: (Ptr<'k, f32, Shared>, u32),
    ) {
        let k = self.k;

        k.section(
            "pipeline/activations/load_normed_batch",
            "activations of a batch: load and multiply by the norm's weights",
        );
        let first = |i: u32| loaders.chunk(0, i, self.n);
        let mut chunks: Vec<_> = (0..CHUNKS_INTERLEAVED)
            .map(|i| fetch(k, x, first(i).0, first(i).1))
            .collect();
        k.for_each(0, self.batch, 1, |item| {
            let before = item * (self.n / CHUNK);
            let mut sum = k.var(0.0);
            let mut take =
                |i: U32<'k>, inside: Pred<'k>, x: [F32<'k>; 8], gamma: &[Var<'k, f32>; 8]| {
                    for &x in &x {
                        sum.fma(x, x);
                    }
                    self.encode(before + i, inside, from_fn(|i| x[i] * &gamma[i]));
                };
            let next = item + 1;
            for (i, (chunk, gamma)) in (0..).zip(chunks.iter_mut().zip(&gamma.first)) {
                let (index, inside) = first(i);
                // Chunks are encoded one after another, unlike in a batch of one, because registers
                // are scarcer here than time.
                k.when(loaders.warp_has(k, 0, i, self.n), || {
                    take(index, inside, from_fn(|i| chunk[i].get()), gamma);
                    let from = x.row(next, self.n * 4);
                    let exists = inside & next.lt(self.batch);
                    fetch_into(chunk, from, index, exists);
                });
            }

            let step = loaders.threads * CHUNKS_INTERLEAVED;
            k.for_each(step, self.n / CHUNK, step, |base| {
                for i in 0..CHUNKS_INTERLEAVED {
                    let (index, inside) = loaders.chunk(base, i, self.n);
                    let x = fetch(k, x.row(item, self.n * 4), index, inside);
                    let x = from_fn(|i| x[i].get());
                    let gamma = fetch(k, gamma.all, index, inside);
                    take(index, inside, x, &gamma);
                }
            });
            let sum = warp_sum(sum.get());
            let (to, bytes) = squares;
            k.when(k.lane().eq(0), || to.row(item, bytes).at(k.warp()).st(sum));
        });
    }

    /// Encodes a chunk of `f32` values.
    fn encode(&self, index: U32<'k>, inside: Pred<'k>, x: [F32<'k>; 8]) {
        self.k.section(
            format!("pipeline/activations/encode_{}", self.encoding.id()),
            format!("eight activations as {}", self.encoding.name()),
        );
        match self.encoding {
            Encoding::SplitInt8(_) => self.encode_split_int8(index, inside, x),
            Encoding::F16 => self.encode_f16(index, inside, x),
            Encoding::Bf16 => self.encode_bf16(index, inside, x),
        }
    }

    /// Encodes the integers of a block of block floating point with the block's scale.
    fn encode_block(&self, index: U32<'k>, inside: Pred<'k>, whole: [F32<'k>; 8], scale: F32<'k>) {
        match self.encoding {
            Encoding::SplitInt8(_) => {
                self.k.section(
                    format!("pipeline/activations/encode_block_{}", self.encoding.id()),
                    format!(
                        "eight integers as {}, under the common scale of 32",
                        self.encoding.name()
                    ),
                );

                // Four lanes hold the 32 elements. The bits of positive floats are ordered like the
                // floats.
                let common = lanes_max_u32(3, scale.bits()).bits::<f32>();

                // The block's integers become integers of the common scale.
                let factor = scale * common.rcp();
                self.store_split_int8(index, inside, whole, factor, common);
            }
            _ => self.encode(index, inside, whole.map(|x| x * scale)),
        }
    }

    /// Encodes a chunk as split int8. Four lanes hold the 32 elements that share a scale.
    fn encode_split_int8(&self, index: U32<'k>, inside: Pred<'k>, x: [F32<'k>; 8]) {
        // The reciprocal is taken of the scale, because the reciprocal of the largest magnitude
        // would be flushed to zero above 2^126.
        let largest = lanes_max(3, largest(&x)).max(MIN_LARGEST);
        let scale = largest * (1.0 / MAX_CODE);
        let factor = scale.rcp();
        self.store_split_int8(index, inside, x, factor, scale);
    }

    /// Stores the bytes of the elements times `factor`, their scale, and, together with another
    /// lane, the sum of 16 elements.
    fn store_split_int8(
        &self,
        index: U32<'k>,
        inside: Pred<'k>,
        x: [F32<'k>; 8],
        factor: F32<'k>,
        scale: F32<'k>,
    ) {
        let whole = x.map(|x| x.fma(factor, ROUNDING).bits::<u32>());
        let sum = sum_of_16(&whole);
        let thirds = self.thirds().map(|to| {
            let to = to.row(index, 8).cast::<u32>();
            let remainders = third_bytes(x, factor, &whole);
            (to, remainders)
        });
        let sum = match &thirds {
            Some((_, remainders)) => {
                let rest = sum_of_16(remainders);
                rest.fma(1.0 / THIRD_BYTES_A_UNIT, sum)
            }
            None => sum,
        };
        let sum = sum * scale;

        // The low byte is signed. Adding 128 before taking the high byte rounds to the nearest.
        let high = whole.map(|v| v + 128);
        let high = [bytes(&high[..4], 1), bytes(&high[4..], 1)];
        let low = [bytes(&whole[..4], 0), bytes(&whole[4..], 0)];

        // Four chunks take 64 bytes: the high bytes of all, then their low bytes.
        let four_chunks = self.memory.row(index >> 2, 64);
        let at = four_chunks.row(index & 3, 8).cast::<u32>();
        let side = self.side().row(index >> 1, 8).cast::<f32>();

        // There is one store per branch, because ptxas then predicates it instead of branching.
        self.k.when(inside, || at.st2(high));
        self.k.when(inside, || at.at(8).st2(low));
        if let Some((to, remainders)) = thirds {
            let first = bytes(&remainders[..4], 0);
            let second = bytes(&remainders[4..], 0);
            self.k.when(inside, || to.st2([first, second]));
        }

        self.k.when(inside, || side.st2([scale, sum]));
    }

    /// Encodes a chunk as two `f16` values per element, the rounded value and the rest. Sixteen
    /// lanes hold the 128 elements of a tile, which share a scale.
    fn encode_f16(&self, index: U32<'k>, inside: Pred<'k>, x: [F32<'k>; 8]) {
        const LARGEST: f32 = 1024.0;

        // The scale keeps the rounded values and the rest inside the range of `f16`.
        let largest = lanes_max(15, largest(&x)).max(MIN_LARGEST);
        let scale = largest * (1.0 / LARGEST);
        let inverse = scale.rcp();
        let pair = |i: usize| {
            let x = [x[i] * inverse, x[i + 1] * inverse];
            let near = x.map(|x| x.cvt::<f16>());
            let rest: [_; 2] = from_fn(|j| {
                let rest = x[j] - near[j].cvt::<f32>();
                rest.cvt::<f16>()
            });
            let near = near[0].pack(near[1]).bits::<u32>();
            let rest = rest[0].pack(rest[1]).bits::<u32>();
            [near, rest]
        };
        let pairs: [[U32; 2]; 4] = from_fn(|i| pair(2 * i));
        let side = self.side().row(index >> 4, 4).cast::<f32>();
        self.store_pairs(index, inside, pairs);
        self.k.when(inside, || side.st(scale));
    }

    /// Encodes a chunk as two `bf16` values per element, the rounded value and the rest. They need
    /// no scale, because `bf16` has the range of `f32`.
    fn encode_bf16(&self, index: U32<'k>, inside: Pred<'k>, x: [F32<'k>; 8]) {
        let pair = |i: usize| {
            let x = [x[i], x[i + 1]];
            let near = x.map(|x| x.cvt::<bf16>());
            let rest: [_; 2] = from_fn(|j| {
                let rest = x[j] - near[j].cvt::<f32>();
                rest.cvt::<bf16>()
            });
            [near, rest].map(|[low, high]| {
                let low = low.bits::<f16>();
                let high = high.bits::<f16>();
                low.pack(high).bits::<u32>()
            })
        };
        let pairs: [[U32; 2]; 4] = from_fn(|i| pair(2 * i));
        self.store_pairs(index, inside, pairs);
    }

    /// Stores the pairs of a chunk: first the rounded values, then the rests.
    fn store_pairs(&self, index: U32<'k>, inside: Pred<'k>, pairs: [[U32<'k>; 2]; 4]) {
        // Four chunks take 128 bytes: the rounded values of all, then their rests.
        let four_chunks = self.memory.row(index >> 2, 128);
        let at = four_chunks.row(index & 3, 16).cast::<u32>();
        self.k.when(inside, || at.st4(pairs.map(|[near, _]| near)));
        self.k
            .when(inside, || at.at(16).st4(pairs.map(|[_, rest]| rest)));
    }
}

/// Returns the largest magnitude of eight values.
fn largest<'k>(x: &[F32<'k>; 8]) -> F32<'k> {
    let pairs: [_; 4] = from_fn(|i| x[i].abs().max(x[i + 4].abs()));
    pairs[0].max(pairs[2]).max(pairs[1].max(pairs[3]))
}

/// Returns the sum of 16 integers, of which this lane and its neighbor have eight each. The
/// integers are in the low bits of [`ROUNDING`].
fn sum_of_16<'k>(v: &[U32<'k>; 8]) -> F32<'k> {
    let bias = 8u32.wrapping_mul(ROUNDING.to_bits());
    let sum = v[1..].iter().fold(v[0], |sum, &v| sum + v) - bias;
    let both = sum + sum.shfl_bfly(1);
    both.bits::<i32>().cvt::<f32>()
}

/// Returns the remainders of rounding the elements times `factor` to `whole`, as integers in units
/// of 1 / [`THIRD_BYTES_A_UNIT`].
fn third_bytes<'k>(x: [F32<'k>; 8], factor: F32<'k>, whole: &[U32<'k>; 8]) -> [U32<'k>; 8] {
    from_fn(|i| {
        let near = whole[i].bits::<f32>() - ROUNDING;
        let remainder = x[i].fma(factor, -near);
        remainder.fma(THIRD_BYTES_A_UNIT, ROUNDING).bits::<u32>()
    })
}

/// Returns byte `which` of each of four words.
fn bytes<'k>(v: &[U32<'k>], which: u32) -> U32<'k> {
    // The selector of byte `which` of both words of a pair.
    let pair = which | (4 + which) << 4;
    let low = v[0].prmt(v[1], pair);
    let high = v[2].prmt(v[3], pair);
    low.prmt(high, 0x5410)
}
