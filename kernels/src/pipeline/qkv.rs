//! Queries, keys and values: norm, three matrices, bias, rotary embedding, and the append to the KV
//! cache. For models with head norms, the sums are stored unrotated for
//! [`HeadNorm`](super::HeadNorm).
//!
//! Each token of a batch has its own state and angles.
//!
//! The two rows of a rotary pair are rows `r` and `r + 8` of a row block, so one block has the sums
//! of both. The kernel that embeds the token provides the angles as cosine and sine.

use super::batch::BatchItem;
use super::gemv::case;
use super::gemv::epilogue::{Epilogue, Results, Store};
use super::gemv::lora::{self, AdapterSegments, LoraArgs, LoraProduct, Tail, WithLora};
use super::gemv::stream::{Input, StreamArgs, WeightStream};
use super::paged::{self, CacheKernel, CacheSizes, PageTableArgs, Paged, TokenPlace};
use super::{Plan, Segments};
use crate::format::Format;
use crate::format::tile::ROWS;
use crate::harness::{Case, Variant};
use crate::shared::Contract;
use crate::shared::cache::{self, CachePages, key, keys};
use crate::shared::state::{LEN, StepState};
use crate::simple::rope::Pairing;
use ptx_gen::*;

args! {
    /// Arguments of [`Qkv`].
    pub struct QkvArgs {
        /// `[(heads + 2 * kv_heads) * head_dim, n]`: the weights as tiles. Queries and keys have
        /// the rows of a rotary pair together ([`RowOrder`](crate::RowOrder)), and values have
        /// plain row order.
        w: In<u8>,
        /// `[batch, n]`: the residual stream, without the padding of rows
        x: In<f32>,
        /// `[n]`: weights of the norm, without the padding of rows
        gamma: In<f32>,
        /// `[(heads + 2 * kv_heads) * head_dim]`: the bias of queries, keys and values, in this
        /// order. It is not read without bias.
        bias: In<f32>,
        /// `[batch, 8]`: the decode states, see [`state`](crate::shared::state)
        state: In<u32>,
        /// `[batch, head_dim / 2, 2]`: cosine and sine at the position
        angles: In<f32>,
        /// `[batch, heads, head_dim]`: the rotated queries. With [`QkvOutput::Raw`], `[batch, heads
        /// + 2 * kv_heads, head_dim]`: queries, keys and values.
        q: Out<f32>,
        /// `[ceil(ctx / 64), kv_heads, 64, head_dim]`: the keys, see [`cache`]
        k_cache: InOut<f16>,
        /// `[ceil(ctx / 64), kv_heads, 64, head_dim]`: the values, see [`cache`]
        v_cache: InOut<f16>,
        /// The number of query heads.
        heads: u32,
        /// The number of KV heads.
        kv_heads: u32,
        /// The number of dimensions of a head, a multiple of 16.
        head_dim: u32,
        /// The number of positions of the cache.
        ctx: u32,
        /// The row length in weights, a multiple of the tile's columns.
        n: u32,
        /// A constant that is added to the mean square.
        epsilon: f32,
        /// The arguments that all GEMVs share.
        stream: StreamArgs,
    }
}

/// Kernel that computes queries, keys and values of a layer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Qkv {
    /// The formats of the three matrices. They must need the same encoding of activations.
    pub formats: [Format; 3],
    /// The pairing of dimensions in the rotation.
    pub pairing: Pairing,
    /// Whether a bias is added.
    pub bias: bool,
    /// The epilogue.
    pub output: QkvOutput,
    /// The division of a block among its warps.
    pub plan: Plan,
}

/// The epilogue of the QKV projection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum QkvOutput {
    /// Rotates queries and keys, and appends keys and values to the cache.
    Append,
    /// Stores all sums unrotated, in the order of the matrices' rows. The caches are not written.
    Raw,
}

/// The number of rotary pairs of a row block.
const PAIRS: u32 = ROWS / 2;

impl Qkv {
    /// Creates a kernel with the default plan and epilogue.
    pub const fn with_default_plan(formats: [Format; 3], pairing: Pairing, bias: bool) -> Qkv {
        Qkv {
            formats,
            pairing,
            bias,
            output: QkvOutput::Append,
            plan: Plan::DEFAULT,
        }
    }

    /// Returns the segments of the three matrices.
    pub fn segments(&self, heads: u32, kv_heads: u32, head_dim: u32) -> Segments {
        let rows = [heads, kv_heads, kv_heads].map(|heads| heads * head_dim / ROWS);
        Segments::of(self.formats.into_iter().zip(rows))
    }
}

impl KernelDef for Qkv {
    type Args<S: Side> = QkvArgs<S>;

    fn name(&self) -> String {
        let [q, k, v] = self.formats.map(Format::suffix);
        let formats = if q == k && k == v {
            q
        } else {
            format!("{q}_{k}_{v}")
        };
        let pairing = match self.pairing {
            Pairing::Interleaved => "interleaved",
            Pairing::HalfSplit => "half_split",
        };
        let bias = if self.bias { "_bias" } else { "" };
        let raw = if self.output == QkvOutput::Raw {
            "_raw"
        } else {
            ""
        };
        format!("qkv_{formats}_{pairing}{bias}{raw}_{}", self.plan.suffix())
    }

    fn block(&self) -> u32 {
        self.plan.threads()
    }

    fn blocks_per_sm(&self) -> Option<u32> {
        self.plan.resident(self.formats[0])
    }

    fn grid(&self, a: &QkvArgs<Shape>) -> Result<Grid, ShapeError> {
        self.grid_over(a, CachePages::Own)
    }

    fn program<'k>(&self, k: Builder<'k>, a: QkvArgs<Dev<'k>>) {
        self.emit(k, a, None, None);
    }

    fn reference(&self, a: QkvArgs<Cpu<'_>>) {
        self.compute(a, None, None);
    }
}

impl CacheKernel for Qkv {
    fn ctx(a: &QkvArgs<Shape>) -> u32 {
        a.ctx
    }

    fn grid_over(&self, a: &QkvArgs<Shape>, pages: CachePages) -> Result<Grid, ShapeError> {
        let &QkvArgs { n, .. } = a;
        self.multiple("head_dim", a.head_dim, ROWS)?;
        self.range("heads", a.heads, 1, 1 << 16)?;
        self.range("kv_heads", a.kv_heads, 1, 1 << 16)?;
        self.range("ctx", a.ctx, 1, 1 << 24)?;
        let batched = |name, found, formula, factors: &[u32]| {
            super::contract::batched(self, self.plan.batch, name, found, formula, factors)
        };
        self.exactly("state", a.state, self.plan.batch as usize * LEN)?;
        super::contract::normed(self, self.plan, a.x, a.gamma, n)?;
        if self.bias {
            let rows = [a.heads + 2 * a.kv_heads, a.head_dim];
            self.length("bias", a.bias, "(heads + 2 * kv_heads) * head_dim", &rows)?;
        }

        batched("angles", a.angles, "head_dim", &[a.head_dim])?;
        match self.output {
            QkvOutput::Append => batched("q", a.q, "heads * head_dim", &[a.heads, a.head_dim])?,
            QkvOutput::Raw => {
                let rows = [a.heads + 2 * a.kv_heads, a.head_dim];
                batched("q", a.q, "(heads + 2 * kv_heads) * head_dim", &rows)?;
            }
        }

        for (name, found) in [("k_cache", a.k_cache), ("v_cache", a.v_cache)] {
            pages.check(self, name, found, [a.ctx, a.kv_heads, a.head_dim])?;
        }

        let segments = self.segments(a.heads, a.kv_heads, a.head_dim);
        super::contract::contract(self, a.w, &segments, self.plan, n, &a.stream)
    }

    fn program_over<'k>(
        &self,
        k: Builder<'k>,
        a: QkvArgs<Dev<'k>>,
        table: Option<PageTableArgs<Dev<'k>>>,
    ) {
        self.emit(k, a, None, table);
    }

    fn reference_over(&self, a: QkvArgs<Cpu<'_>>, table: Option<PageTableArgs<Cpu<'_>>>) {
        self.compute(a, None, table);
    }
}

impl LoraProduct for Qkv {
    const PARTS: u32 = 3;

    fn plan(&self) -> Plan {
        self.plan
    }

    fn rows(a: &QkvArgs<Shape>) -> u32 {
        (a.heads + 2 * a.kv_heads) * a.head_dim
    }

    fn program_with<'k>(
        &self,
        k: Builder<'k>,
        a: QkvArgs<Dev<'k>>,
        lora: Option<LoraArgs<Dev<'k>>>,
    ) {
        self.emit(k, a, lora, None);
    }

    fn reference_with(&self, a: QkvArgs<Cpu<'_>>, lora: Option<LoraArgs<Cpu<'_>>>) {
        self.compute(a, lora, None);
    }
}

impl Qkv {
    /// Emits the program, with an adapter and a page table or without them.
    fn emit<'k>(
        &self,
        k: Builder<'k>,
        a: QkvArgs<Dev<'k>>,
        lora: Option<LoraArgs<Dev<'k>>>,
        table: Option<PageTableArgs<Dev<'k>>>,
    ) {
        let per = a.head_dim / ROWS;
        let [q, kv] = [a.heads, a.kv_heads].map(|heads| heads * per);

        // Adjacent matrices of one format form a single segment, as in `Segments::of` on the host.
        let counts = [q, kv, kv];
        let mut segments: Vec<(Format, U32)> = vec![];
        let mut starts = vec![];
        for (format, count) in self.formats.into_iter().zip(counts) {
            match segments.last_mut() {
                Some((last, sum)) if *last == format => {
                    starts.push(*sum);
                    *sum = *sum + count;
                }
                _ => {
                    starts.push(k.val(0));
                    segments.push((format, count));
                }
            }
        }

        let tail = lora.map(|lora| Tail::new(k, lora, AdapterSegments::Three([q, q + kv])));
        let stream = WeightStream {
            k,
            plan: self.plan,
            segments,
            tiles: a.w,
            n: a.n,
            args: a.stream,
            tail,
            experts: None,
        };
        let epilogue = QkvEpilogue {
            qkv: self,
            per,
            counts,
            starts,
            a: &a,
            table,
        };
        let input = Input::Normed {
            x: a.x.fresh(),
            gamma: a.gamma,
            epsilon: a.epsilon,
        };
        match self.output {
            QkvOutput::Append if self.plan.batch > 1 => {
                stream.run(input, Store(|r: &Results<'k>| epilogue.append_batch(r)))
            }
            QkvOutput::Append => stream.run(input, epilogue),
            QkvOutput::Raw => stream.run(input, Store(|r: &Results<'k>| epilogue.store_raw(r))),
        }
    }

    /// Computes the reference, with an adapter and a page table or without them.
    fn compute(
        &self,
        mut a: QkvArgs<Cpu<'_>>,
        lora: Option<LoraArgs<Cpu<'_>>>,
        table: Option<PageTableArgs<Cpu<'_>>>,
    ) {
        self.plan.publish(a.stream.sequence, a.stream.progress);
        for token in 0..self.plan.batch as usize {
            self.reference_token(&mut a, lora.as_ref(), table.as_ref(), token);
        }
    }
}

/// Two rows of one lane, for the reference.
struct RowPair {
    /// The index of the matrix: queries, keys or values.
    matrix: usize,
    /// The number of rows of the matrices before it.
    first: usize,
    head: usize,
    /// The index of the rotary pair in the head.
    angle: usize,
    /// The rows within the head.
    dims: [usize; 2],
}

impl Qkv {
    /// Computes the results of one token.
    fn reference_token(
        &self,
        a: &mut QkvArgs<Cpu<'_>>,
        lora: Option<&LoraArgs<Cpu<'_>>>,
        table: Option<&PageTableArgs<Cpu<'_>>>,
        token: usize,
    ) {
        let n = a.n as usize;
        let dim = a.head_dim as usize;
        let len = self.plan.unpadded(a.n) as usize;
        let x = &a.x[token * len..][..len];
        let x = super::reference::padded_normed(x, a.gamma, a.epsilon, a.n);
        let mut from = 0;
        let mut first = 0;
        for (matrix, count) in [a.heads, a.kv_heads, a.kv_heads].into_iter().enumerate() {
            let format = self.formats[matrix];
            let rows = count as usize * dim;
            let bytes = rows * format.row_bytes(n);
            let adapter = |row| lora::exact(lora, 3, token, matrix as u32, first + row);
            let weights = &a.w[from..from + bytes];
            let sums = super::reference::exact64(format, weights, &x).enumerate();
            let sums: Vec<f64> = sums.map(|(row, sum)| sum + adapter(row)).collect();
            for (b, sums) in sums.chunks(ROWS as usize).enumerate() {
                for r in 0..PAIRS as usize {
                    let pair = self.row_pair(matrix, first, dim, b, r);
                    self.reference_pair(a, table, token, &pair, [sums[r], sums[r + 8]]);
                }
            }

            from += bytes;
            first += rows;
        }
    }

    /// Returns the rows `r` and `r + 8` of a row block.
    fn row_pair(&self, matrix: usize, first: usize, dim: usize, block: usize, r: usize) -> RowPair {
        let head = block / (dim / 16);
        let block = block % (dim / 16);
        let angle = block * 8 + r;
        let dims = match (matrix, self.pairing) {
            (2, _) => [block * 16 + r, block * 16 + r + 8],
            (_, Pairing::Interleaved) => [2 * angle, 2 * angle + 1],
            (_, Pairing::HalfSplit) => [angle, angle + dim / 2],
        };
        RowPair {
            matrix,
            first,
            head,
            angle,
            dims,
        }
    }

    /// Adds the bias to two sums, rotates them, and stores them.
    fn reference_pair(
        &self,
        a: &mut QkvArgs<Cpu<'_>>,
        table: Option<&PageTableArgs<Cpu<'_>>>,
        token: usize,
        pair: &RowPair,
        sums: [f64; 2],
    ) {
        let &RowPair {
            matrix,
            first,
            head,
            angle,
            dims,
        } = pair;
        let dim = a.head_dim as usize;
        let q = a.q.len() / self.plan.batch as usize * token;
        let row = |d: usize| first + head * dim + d;
        let bias = |i: usize| {
            if self.bias {
                a.bias[row(dims[i])].into()
            } else {
                0.0
            }
        };
        let [mut x, mut y] = [sums[0] + bias(0), sums[1] + bias(1)];
        if self.output == QkvOutput::Raw {
            for (d, v) in dims.into_iter().zip([x, y]) {
                a.q[q + row(d)] = v as f32;
            }
            return;
        }

        if matrix < 2 {
            let [cos, sin] = [0, 1].map(|i| f64::from(a.angles[token * dim + 2 * angle + i]));
            [x, y] = [x * cos - y * sin, x * sin + y * cos];
        }

        if matrix == 0 {
            for (d, v) in dims.into_iter().zip([x, y]) {
                a.q[q + row(d)] = v as f32;
            }
            return;
        }

        let state = &a.state[token * LEN..][..LEN];
        let heads = [a.kv_heads as usize, head];
        let Some(cached) = paged::appended_row(table, state, heads, a.ctx) else {
            return;
        };

        for (d, v) in dims.into_iter().zip([x, y]) {
            match matrix {
                1 => a.k_cache[cached * dim + d] = key(v as f32),
                _ => a.v_cache[cached * dim + d] = f16::from_f32(v as f32),
            }
        }
    }
}

/// The matrices of the GEMV, in their order.
const MATRICES: [&str; 3] = ["queries", "keys", "values"];

/// The epilogue's view of the block's results.
struct QkvEpilogue<'a, 'k> {
    qkv: &'a Qkv,
    /// The number of row blocks of a head.
    per: U32<'k>,
    /// The number of row blocks of each matrix.
    counts: [U32<'k>; 3],
    /// The first row block of each matrix in its segment.
    starts: Vec<U32<'k>>,
    a: &'a QkvArgs<Dev<'k>>,
    /// The page table, if the cache is paged.
    table: Option<PageTableArgs<Dev<'k>>>,
}

/// A block's share of a matrix.
#[derive(Clone, Copy)]
struct MatrixShare<'k> {
    /// The segment that contains the matrix.
    run: usize,
    /// The index of the matrix: queries, keys or values.
    matrix: usize,
    /// The first row block, relative to the matrix, and relative to the block's share of the
    /// segment.
    first: [U32<'k>; 2],
    count: U32<'k>,
}

/// A block's share of queries or keys, a thread's first pair in it, and whether that pair exists.
struct FirstPair<'k> {
    share: MatrixShare<'k>,
    pair: RotaryPair<'k>,
    exists: Pred<'k>,
}

/// The values computed before the wait: the thread's first pair of queries and of keys, and the
/// token's place in a paged cache.
struct EarlyValues<'k> {
    first: [FirstPair<'k>; 2],
    /// A state does not change while kernels over a paged cache run, and two dependent loads would
    /// delay the multiplication.
    place: Option<TokenPlace<'k>>,
}

/// The operands that are loaded before the multiplication: the token's place in the cache, and the
/// angles of a thread's first pair of queries and of keys.
struct Prefetched<'k> {
    place: TokenPlace<'k>,
    angles: [[Var<'k, f32>; 2]; 2],
}

/// A token of the batch, with its place in the cache.
#[derive(Clone, Copy)]
struct PlacedToken<'k> {
    item: BatchItem<'k>,
    place: TokenPlace<'k>,
}

impl<'k> PlacedToken<'k> {
    /// Returns the only token of a batch of one.
    fn only(place: TokenPlace<'k>) -> Self {
        PlacedToken {
            item: BatchItem::ONLY,
            place,
        }
    }
}

/// A rotary pair: its head, its two dimensions, and its index in the head.
struct RotaryPair<'k> {
    head: U32<'k>,
    dims: [U32<'k>; 2],
    j: U32<'k>,
}

impl<'k> QkvEpilogue<'_, 'k> {
    /// Returns this block's share of matrix `m`.
    fn share(&self, r: &Results<'k>, m: usize) -> MatrixShare<'k> {
        let run = (1..=m)
            .filter(|&i| self.qkv.formats[i] != self.qkv.formats[i - 1])
            .count();
        let (first, count) = r.shares[run];
        let begin = self.starts[m];
        let end = begin + self.counts[m];
        let from = first.max(begin).min(end);
        let to = (first + count).min(end).max(from);
        MatrixShare {
            matrix: m,
            run,
            first: [from - begin, from - first],
            count: to - from,
        }
    }

    /// Returns pair `i` of a share of queries or keys.
    fn pair(&self, share: MatrixShare<'k>, i: U32<'k>) -> RotaryPair<'k> {
        let block = share.first[0] + i / PAIRS;
        let head = block / self.per;
        let j = block % self.per * PAIRS + i % PAIRS;
        let dims = match self.qkv.pairing {
            Pairing::Interleaved => [j * 2, j * 2 + 1],
            Pairing::HalfSplit => [j, j + self.a.head_dim / 2],
        };
        RotaryPair { head, dims, j }
    }

    /// Loads the cosine and sine of a pair, for a batch of one.
    fn angle(&self, pair: &RotaryPair<'k>) -> [F32<'k>; 2] {
        self.a.angles.row(pair.j, 8).fresh().ld2()
    }

    /// Loads the place of a token in the cache.
    fn place(&self, k: Builder<'k>, item: BatchItem<'k>) -> TokenPlace<'k> {
        let sizes = CacheSizes {
            kv_heads: self.a.kv_heads,
            ctx: self.a.ctx,
        };
        TokenPlace::load(k, self.table, self.a.state, item, sizes)
    }

    /// Rotates queries and keys of a batch, and appends keys and values.
    fn append_batch(&self, r: &Results<'k>) {
        for m in [0, 1] {
            r.k.section(
                format!("pipeline/qkv/{}_batch_{}", MATRICES[m], self.pairing_id()),
                format!(
                    "epilogue: {} of each token, {}",
                    MATRICES[m],
                    self.pairing()
                ),
            );
            let share = self.share(r, m);
            r.each(share.count * PAIRS, PAIRS, |i, item| {
                let pair = self.pair(share, i);
                let angle = item
                    .of(self.a.angles, self.a.head_dim)
                    .row(pair.j, 8)
                    .fresh()
                    .ld2();
                let token = PlacedToken {
                    item,
                    place: self.place(r.k, item),
                };
                self.rotate(r, share, i, pair, angle, token);
            });
        }

        r.k.section(
            "pipeline/qkv/values_batch",
            "epilogue: append the values of each token to the cache",
        );
        let share = self.share(r, 2);
        r.each(share.count * ROWS, ROWS, |i, item| {
            let token = PlacedToken {
                item,
                place: self.place(r.k, item),
            };
            self.value(r, share, i, token)
        });
    }

    /// Appends row `i` of a share of the values.
    fn value(
        &self,
        r: &Results<'k>,
        share: MatrixShare<'k>,
        i: U32<'k>,
        PlacedToken { item, place }: PlacedToken<'k>,
    ) {
        let row = share.first[0] * ROWS + i;
        let v = r.row(share.run, share.first[1] + i / ROWS, i % ROWS, item);
        let v = self.biased(v, (self.a.heads + self.a.kv_heads) * self.a.head_dim + row);
        self.append(
            r,
            self.a.v_cache,
            row / self.a.head_dim,
            row % self.a.head_dim,
            v.cvt(),
            place,
        );
    }

    /// Stores the sums of all three matrices, each row at its place.
    fn store_raw(&self, r: &Results<'k>) {
        let mut before = r.k.val(0);
        for (m, heads) in [self.a.heads, self.a.kv_heads, self.a.kv_heads]
            .into_iter()
            .enumerate()
        {
            r.k.section(
                format!("pipeline/qkv/{}_raw", MATRICES[m]),
                format!("epilogue: {} before their norm", MATRICES[m]),
            );
            let share = self.share(r, m);
            r.each(share.count * ROWS, ROWS, |i, item| {
                let block = i / ROWS;
                // Packing permutes the rows of rotary pairs, so each row is stored at its original
                // place.
                let row = i % ROWS;
                let v = r.row(share.run, share.first[1] + block, row, item);
                let to = before + self.source(m, share.first[0] + block, row);
                let rows = || (self.a.heads + self.a.kv_heads * 2) * self.a.head_dim;
                item.of_with(self.a.q, rows).at(to).st(self.biased(v, to));
            });
            before = before + heads * self.a.head_dim;
        }
    }

    /// Returns the matrix row that is row `r` of a row block.
    fn source(&self, m: usize, block: U32<'k>, r: U32<'k>) -> U32<'k> {
        if m == 2 {
            return block * ROWS + r;
        }

        let head = block / self.per;
        let j = block % self.per * PAIRS + r % PAIRS;
        let dim = match self.qkv.pairing {
            Pairing::Interleaved => j * 2 + r / PAIRS,
            Pairing::HalfSplit => j + r / PAIRS * (self.a.head_dim / 2),
        };
        head * self.a.head_dim + dim
    }

    /// Returns the identifier of the pairing in the identifiers of sections.
    fn pairing_id(&self) -> &'static str {
        match self.qkv.pairing {
            Pairing::Interleaved => "interleaved",
            Pairing::HalfSplit => "half_split",
        }
    }

    /// Returns the pairing as notes name it.
    fn pairing(&self) -> &'static str {
        match self.qkv.pairing {
            Pairing::Interleaved => "GPT-J (interleaved) pairs",
            Pairing::HalfSplit => "NeoX (half-split) pairs",
        }
    }

    /// Rotates and stores pair `i` of a share of queries or keys.
    fn rotate(
        &self,
        r: &Results<'k>,
        share: MatrixShare<'k>,
        i: U32<'k>,
        pair: RotaryPair<'k>,
        [cos, sin]: [F32<'k>; 2],
        PlacedToken { item, place }: PlacedToken<'k>,
    ) {
        let m = share.matrix;
        let id = if self.qkv.bias { "_bias" } else { "" };
        let bias = if self.qkv.bias { ", with bias" } else { "" };
        r.k.section(
            format!("pipeline/qkv/{}_rotate{id}", MATRICES[m]),
            format!("rotate and store a pair of {}{bias}", MATRICES[m]),
        );
        let sum = |half| {
            r.row(
                share.run,
                share.first[1] + i / PAIRS,
                i % PAIRS + half,
                item,
            )
        };
        let sums = [0, PAIRS].map(sum);
        let first = if m == 0 {
            pair.head
        } else {
            pair.head + self.a.heads
        };
        let biased = |s: usize| self.biased(sums[s], first * self.a.head_dim + pair.dims[s]);
        let x = biased(0);
        let y = biased(1);
        let rotated = [x * cos - y * sin, x * sin + y * cos];
        if m == 0 {
            for (d, v) in pair.dims.into_iter().zip(rotated) {
                let q = item.of_with(self.a.q, || self.a.heads * self.a.head_dim);
                q.at(pair.head * self.a.head_dim + d).st(v);
            }
            return;
        }

        for (d, v) in pair.dims.into_iter().zip(keys(r.k, rotated)) {
            self.append(r, self.a.k_cache, pair.head, d, v, place);
        }
    }

    /// Adds the bias of a row, if there is one.
    fn biased(&self, v: F32<'k>, row: U32<'k>) -> F32<'k> {
        if self.qkv.bias {
            v + self.a.bias.at(row).ld()
        } else {
            v
        }
    }

    /// Stores an element of a key or value in the cache, if the token has a place there.
    fn append(
        &self,
        r: &Results<'k>,
        cache: Ptr<'k, f16, ReadWrite>,
        head: U32<'k>,
        d: U32<'k>,
        v: Val<'k, f16>,
        place: TokenPlace<'k>,
    ) {
        let row = place.row(self.a.kv_heads, head);
        let at = cache.row(row, self.a.head_dim * 2).at(d);
        r.k.when(place.is_stored(), || at.st(v));
    }
}

/// Rotates queries and keys, and appends keys and values to the cache.
impl<'k> Epilogue<'k> for QkvEpilogue<'_, 'k> {
    type Addresses = EarlyValues<'k>;
    type Operands = Prefetched<'k>;

    fn addresses(&self, r: &Results<'k>) -> Self::Addresses {
        let first = [0, 1].map(|m| {
            let share = self.share(r, m);
            FirstPair {
                share,
                pair: self.pair(share, r.thread),
                exists: r.thread.lt(share.count * PAIRS),
            }
        });
        let place = self.table.map(|_| self.place(r.k, BatchItem::ONLY));
        EarlyValues { first, place }
    }

    fn prefetch(&self, k: Builder<'k>, early: &Self::Addresses) -> Prefetched<'k> {
        let place = early
            .place
            .unwrap_or_else(|| self.place(k, BatchItem::ONLY));
        let angles = early.first.each_ref().map(|first| {
            let mut angle = [k.var(1.0), k.var(0.0)];
            self.a
                .angles
                .row(first.pair.j, 8)
                .fresh()
                .ld2_if(first.exists, &mut angle);
            angle
        });
        Prefetched { place, angles }
    }

    fn store(&self, r: &Results<'k>, early: Self::Addresses, prefetched: Prefetched<'k>) {
        let k = r.k;
        let Prefetched { place, angles } = prefetched;
        for (
            m,
            (
                FirstPair {
                    share,
                    pair,
                    exists,
                },
                angle,
            ),
        ) in early.first.into_iter().zip(&angles).enumerate()
        {
            let pairs = share.count * PAIRS;

            k.section(
                format!("pipeline/qkv/{}_{}", MATRICES[m], self.pairing_id()),
                format!("epilogue: {}, {}", MATRICES[m], self.pairing()),
            );
            k.when(exists, || {
                // The angles of the first pair were loaded before the multiplication.
                let only = PlacedToken::only(place);
                self.rotate(
                    r,
                    share,
                    r.thread,
                    pair,
                    [angle[0].get(), angle[1].get()],
                    only,
                );
            });
            k.for_each(r.thread + r.threads, pairs, r.threads, |i| {
                let pair = self.pair(share, i);
                let angle = self.angle(&pair);
                self.rotate(r, share, i, pair, angle, PlacedToken::only(place));
            });
        }

        k.section(
            "pipeline/qkv/values",
            "epilogue: append the values to the cache",
        );
        let share = self.share(r, 2);
        let only = PlacedToken::only(place);
        k.for_each(r.thread, share.count * ROWS, r.threads, |i| {
            self.value(r, share, i, only)
        });
    }
}

impl Variant for Paged<Qkv> {
    fn cases(&self, seed: u64) -> Vec<Case> {
        self.append_cases(seed)
    }
}

impl Variant for Qkv {
    fn cases(&self, seed: u64) -> Vec<Case> {
        let shapes = [
            [4, 2, 32, 65, 63, 3],
            [6, 1, 16, 3, 0, 5],
            [2, 2, 64, 64, 64, 2],
            [4, 2, 16, 70, 65, 1],
        ];
        shapes
            .into_iter()
            .map(|shape| self.case(case::HeadsCase::new(shape), seed))
            .collect()
    }
}

impl Qkv {
    fn case(&self, shape: case::HeadsCase, seed: u64) -> Case {
        let case::HeadsCase {
            heads,
            kv_heads: kv,
            head_dim: dim,
            ctx,
            position,
            blocks,
        } = shape;
        let n = case::padded(self.formats[0], self.plan, 512);
        let segments = self.segments(heads, kv, dim);
        let mut random = crate::shared::Random(seed);
        let tiles = |&(format, count): &(Format, u32)| {
            let tile_columns = crate::format::tile::of(format).columns;
            crate::format::tile::random(
                format,
                (count * n / tile_columns) as usize,
                1.0,
                &mut random,
            )
        };
        let w: Vec<u8> = segments.0.iter().flat_map(tiles).collect();
        let rows = (heads + 2 * kv) * dim;
        let batch = self.plan.batch;
        let x = random.units((batch * self.plan.unpadded(n)) as usize);
        let gamma = case::gamma(&mut random, self.plan, n);
        let bias = random.units(rows as usize);
        let radians = (0..batch).flat_map(|i| (0..dim / 2).map(move |j| (i + j) as f32));
        let angles: Vec<f32> = radians
            .flat_map(|angle| [angle.cos(), angle.sin()])
            .collect();
        let state = (0..batch)
            .flat_map(|i| {
                StepState {
                    position: position + i,
                    ..StepState::default()
                }
                .words()
            })
            .collect();
        let cache = random.halves((kv * cache::pages(ctx) * cache::PAGE * dim) as usize);
        let stored = if self.output == QkvOutput::Raw {
            rows
        } else {
            heads * dim
        };
        let shape = case::GemvCase {
            rows,
            n,
            blocks,
            batch,
            outlier: 1.0,
        };
        let mut args = vec![
            CpuArg::U8(w),
            CpuArg::F32(x),
            CpuArg::F32(gamma),
            CpuArg::F32(bias),
            CpuArg::U32(state),
            CpuArg::F32(angles),
            CpuArg::F32(vec![0.0; (batch * stored) as usize]),
            CpuArg::F16(cache.clone()),
            CpuArg::F16(cache),
        ];
        args.extend([heads, kv, dim, ctx, n].map(CpuArg::scalar));
        args.push(CpuArg::scalar(1e-5f32));
        case::case((self.plan, &segments), shape, args, &[])
    }
}

impl Variant for WithLora<Qkv> {
    fn cases(&self, seed: u64) -> Vec<Case> {
        lora::cases(&self.0, seed, |args| {
            let [heads, kv_heads, head_dim] = [9, 10, 11].map(|i| lora::size(&args[i]));
            (heads + 2 * kv_heads) * head_dim
        })
    }
}
