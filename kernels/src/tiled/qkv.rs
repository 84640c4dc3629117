//! Queries, keys and values of a token: norm, three matrices, bias, rotary embedding, and the append to the cache.
//! Where heads are normed before they turn, the sums are left as they are for [`HeadNorm`](super::HeadNorm).
//!
//! Several columns of activations are several tokens, each with a state and angles of its own.
//!
//! The two rows of a rotary pair stand in rows `r` and `r + 8` of a row block. Angles come as cosine and sine from the
//! kernel that embeds the token.

use super::case;
use super::column::Column;
use super::stream::{Input, Results, Stream};
use super::tile::ROWS;
use super::{Layout, Plan, Runs};
use crate::case::{Case, Variant};
use crate::contract::Contract;
use crate::format::Format;
use crate::rope::Pairing;
use crate::state::{LEN, POSITION};
use ptx_gen::*;

args! {
    /// Arguments of [`Qkv`].
    pub struct QkvArgs {
        /// `[(heads + 2 * kv_heads) * head_dim, n]` as tiles: queries and keys with the rows of a rotary pair together, values [`Rows::PLAIN`](super::Rows::PLAIN)
        w: In<u8>,
        /// `[columns, n]`
        x: In<f32>,
        /// `[n]`: weights of the norm
        gamma: In<f32>,
        /// `[(heads + 2 * kv_heads) * head_dim]`: of queries, keys, values, in order; not read without bias
        bias: In<f32>,
        /// `[columns, 8]`: see [`state`](crate::state)
        state: In<u32>,
        /// `[columns, head_dim / 2, 2]`: cosine and sine at the position
        angles: In<f32>,
        /// `[columns, heads, head_dim]`; raw: `[columns, heads + 2 * kv_heads, head_dim]`, of queries, keys, values
        q: Out<f32>,
        /// `[kv_heads, ctx, head_dim]`
        k_cache: InOut<f16>,
        /// `[kv_heads, ctx, head_dim]`
        v_cache: InOut<f16>,
        /// Query heads.
        heads: u32,
        /// Heads of keys and values.
        kv_heads: u32,
        /// Dimensions of a head, a multiple of 16.
        head_dim: u32,
        /// Positions of the cache.
        ctx: u32,
        /// Row length in weights, a multiple of the tile's columns.
        n: u32,
        /// Added to the mean square.
        epsilon: f32,
        /// Blocks of the grid.
        blocks: u32,
        /// Row blocks of the fullest block.
        parts: u32,
        /// Stages of the ring.
        stages: u32,
        /// Bytes of shared memory.
        shared: u32,
        /// `[blocks]`: see [`turn`](QkvArgs::turn)
        asked: InOut<u32>,
        /// Which of a token's products this is. Where the plan holds back, it waits until the one before has left its
        /// turn in [`asked`](QkvArgs::asked).
        turn: u32,
        /// `[blocks, 8]` where the plan profiles: see [`Stamp`](super::plan::Stamp)
        stamps: Out<u64>,
    }
}

/// The kernel.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Qkv {
    /// The formats of the three matrices, which need the same activations.
    pub formats: [Format; 3],
    /// Which dimensions make a rotary pair.
    pub pairing: Pairing,
    /// Whether a bias is added.
    pub bias: bool,
    /// What becomes of the sums.
    pub finish: Finish,
    /// How a block is divided.
    pub plan: Plan,
}

/// What becomes of queries, keys and values.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Finish {
    /// Queries and keys turn; keys and values go to the cache.
    Append,
    /// All stay as they are, in the order of their matrices' rows; the caches are left alone.
    Raw,
}

/// Pairs of a row block.
const PAIRS: u32 = ROWS / 2;

impl Qkv {
    /// With the shipped plan.
    pub const fn shipped(formats: [Format; 3], pairing: Pairing, bias: bool) -> Qkv {
        Qkv { formats, pairing, bias, finish: Finish::Append, plan: Plan::SHIPPED }
    }

    /// The rows of the product.
    pub fn runs(&self, heads: u32, kv_heads: u32, head_dim: u32) -> Runs {
        let rows = [heads, kv_heads, kv_heads].map(|heads| heads * head_dim / ROWS);
        Runs::of(self.formats.into_iter().zip(rows))
    }
}

impl KernelDef for Qkv {
    type Args<S: Side> = QkvArgs<S>;

    fn name(&self) -> String {
        let [q, k, v] = self.formats.map(Format::suffix);
        let formats = if q == k && k == v { q } else { format!("{q}_{k}_{v}") };
        let pairing = match self.pairing {
            Pairing::Interleaved => "interleaved",
            Pairing::HalfSplit => "half_split",
        };
        let bias = if self.bias { "_bias" } else { "" };
        let finish = if self.finish == Finish::Raw { "_raw" } else { "" };
        format!("qkv_{formats}_{pairing}{bias}{finish}_{}", self.plan.suffix())
    }

    fn block(&self) -> u32 {
        self.plan.threads()
    }

    fn blocks_per_sm(&self) -> Option<u32> {
        self.plan.resident(self.formats[0])
    }

    fn grid(&self, a: &QkvArgs<Shape>) -> Result<Grid, ShapeError> {
        let layout = Layout { blocks: a.blocks, parts: a.parts, stages: a.stages, shared: a.shared };
        self.multiple("head_dim", a.head_dim, ROWS)?;
        self.range("heads", a.heads, 1, 1 << 16)?;
        self.range("kv_heads", a.kv_heads, 1, 1 << 16)?;
        self.range("ctx", a.ctx, 1, 1 << 24)?;
        let columns = |name, found, formula, factors: &[u32]| {
            super::columns(self, self.plan.columns, name, found, formula, factors)
        };
        self.exactly("state", a.state, self.plan.columns as usize * LEN)?;
        columns("x", a.x, "n", &[a.n])?;
        self.length("gamma", a.gamma, "n", &[a.n])?;
        if self.bias {
            let rows = [a.heads + 2 * a.kv_heads, a.head_dim];
            self.length("bias", a.bias, "(heads + 2 * kv_heads) * head_dim", &rows)?;
        }
        columns("angles", a.angles, "head_dim", &[a.head_dim])?;
        match self.finish {
            Finish::Append => columns("q", a.q, "heads * head_dim", &[a.heads, a.head_dim])?,
            Finish::Raw => {
                let rows = [a.heads + 2 * a.kv_heads, a.head_dim];
                columns("q", a.q, "(heads + 2 * kv_heads) * head_dim", &rows)?;
            }
        }
        for (name, found) in [("k_cache", a.k_cache), ("v_cache", a.v_cache)] {
            self.length(name, found, "kv_heads * ctx * head_dim", &[a.kv_heads, a.ctx, a.head_dim])?;
        }
        super::contract(
            self,
            a.w,
            &self.runs(a.heads, a.kv_heads, a.head_dim),
            self.plan,
            a.n,
            layout,
            [a.asked, a.stamps],
        )
    }

    fn program<'k>(&self, k: Builder<'k>, a: QkvArgs<Dev<'k>>) {
        let per = a.head_dim / ROWS;
        let [q, kv] = [a.heads, a.kv_heads].map(|heads| heads * per);
        let counts = [q, kv, kv];
        let mut runs: Vec<(Format, U32)> = vec![];
        let mut places = vec![];
        for (format, count) in self.formats.into_iter().zip(counts) {
            match runs.last_mut() {
                Some((last, sum)) if *last == format => {
                    places.push(*sum);
                    *sum = *sum + count;
                }
                _ => {
                    places.push(k.val(0));
                    runs.push((format, count));
                }
            }
        }
        let stream = Stream {
            k,
            plan: self.plan,
            runs,
            tiles: a.w,
            n: a.n,
            blocks: a.blocks,
            parts: a.parts,
            stages: a.stages,
            asked: a.asked,
            turn: a.turn,
            stamps: a.stamps,
        };
        let place = Place { qkv: self, per, counts, places, a: &a };
        let input = Input::Normed { x: a.x.fresh(), gamma: a.gamma, epsilon: a.epsilon };
        match self.finish {
            Finish::Append if self.plan.columns > 1 => {
                stream.run(input, |_| (), |_| (), |r, _, _| place.store_columns(r))
            }
            Finish::Append => stream.run(
                input,
                |r| place.first(r),
                |first| place.early(k, first),
                |r, first, early| place.store(r, first, early),
            ),
            Finish::Raw => stream.run(input, |_| (), |_| (), |r, _, _| place.store_raw(r)),
        }
    }

    fn reference(&self, a: QkvArgs<Cpu<'_>>) {
        self.plan.say(a.turn, a.asked);
        let (n, dim, ctx) = (a.n as usize, a.head_dim as usize, a.ctx as usize);
        let (heads, kv_heads) = (a.heads as usize, a.kv_heads as usize);
        for column in 0..self.plan.columns as usize {
            let x = super::normed(&a.x[column * n..][..n], a.gamma, a.epsilon);
            let position = a.state[column * LEN + POSITION as usize] as usize;
            let angles = &a.angles[column * dim..][..dim];
            let q = a.q.len() / self.plan.columns as usize;
            let q = &mut a.q[column * q..][..q];
            let mut from = 0;
            let mut first = 0;
            for (run, count) in [heads, kv_heads, kv_heads].into_iter().enumerate() {
                let format = self.formats[run];
                let bytes = count * dim * format.row_bytes(a.n as usize);
                let sums: Vec<f64> = super::exact64(format, &a.w[from..from + bytes], &x).collect();
                from += bytes;
                for (b, sums) in sums.chunks(ROWS as usize).enumerate() {
                    for r in 0..PAIRS as usize {
                        let (head, j) = (b / (dim / 16), b % (dim / 16) * 8 + r);
                        let dims = match (run, self.pairing) {
                            (2, _) => [b % (dim / 16) * 16 + r, b % (dim / 16) * 16 + r + 8],
                            (_, Pairing::Interleaved) => [2 * j, 2 * j + 1],
                            (_, Pairing::HalfSplit) => [j, j + dim / 2],
                        };
                        let bias =
                            |d: usize| if self.bias { a.bias[first + head * dim + d].into() } else { 0.0 };
                        let [mut x, mut y] = [sums[r] + bias(dims[0]), sums[r + 8] + bias(dims[1])];
                        if self.finish == Finish::Raw {
                            dims.into_iter()
                                .zip([x, y])
                                .for_each(|(d, v)| q[first + head * dim + d] = v as f32);
                            continue;
                        }
                        if run < 2 {
                            let [cos, sin] = [angles[2 * j], angles[2 * j + 1]].map(f64::from);
                            [x, y] = [x * cos - y * sin, x * sin + y * cos];
                        }
                        for (d, v) in dims.into_iter().zip([x, y]) {
                            let cached = (head * ctx + position) * dim + d;
                            match run {
                                0 => q[head * dim + d] = v as f32,
                                _ if position >= ctx => {}
                                1 => a.k_cache[cached] = f16::from_f32(v as f32),
                                _ => a.v_cache[cached] = f16::from_f32(v as f32),
                            }
                        }
                    }
                }
                first += count * dim;
            }
        }
    }
}

/// Where results go.
struct Place<'a, 'k> {
    qkv: &'a Qkv,
    /// Row blocks of a head.
    per: U32<'k>,
    /// Row blocks of each matrix, and where they begin in their run.
    counts: [U32<'k>; 3],
    places: Vec<U32<'k>>,
    a: &'a QkvArgs<Dev<'k>>,
}

/// A block's row blocks of a matrix.
#[derive(Clone, Copy)]
struct Part<'k> {
    /// The run that the matrix is in.
    run: usize,
    /// The first, counted in the matrix, and in the block's share of the run.
    first: [U32<'k>; 2],
    count: U32<'k>,
}

/// A block's part of queries or keys, a thread's first pair of it, and whether there is one.
struct First<'k> {
    part: Part<'k>,
    pair: Pair<'k>,
    exists: Pred<'k>,
}

/// What is loaded before the products: the position, and for a thread's first pair of queries and of keys its angle.
struct Early<'k> {
    position: U32<'k>,
    angles: [[Var<'k, f32>; 2]; 2],
}

/// A pair of rows: head, its two dimensions, and which pair of the head it is.
struct Pair<'k> {
    head: U32<'k>,
    dims: [U32<'k>; 2],
    j: U32<'k>,
}

impl<'k> Place<'_, 'k> {
    /// This block's part of matrix `m`.
    fn part(&self, r: &Results<'k>, m: usize) -> Part<'k> {
        let run = (1..=m).filter(|&i| self.qkv.formats[i] != self.qkv.formats[i - 1]).count();
        let (first, count) = r.shares[run];
        let (begin, end) = (self.places[m], self.places[m] + self.counts[m]);
        let from = first.max(begin).min(end);
        let to = (first + count).min(end).max(from);
        Part { run, first: [from - begin, from - first], count: to - from }
    }

    /// Pair `i` of a part of queries or keys.
    fn pair(&self, part: Part<'k>, i: U32<'k>) -> Pair<'k> {
        let block = part.first[0] + i / PAIRS;
        let (head, j) = (block / self.per, block % self.per * PAIRS + i % PAIRS);
        let dims = match self.qkv.pairing {
            Pairing::Interleaved => [j * 2, j * 2 + 1],
            Pairing::HalfSplit => [j, j + self.a.head_dim / 2],
        };
        Pair { head, dims, j }
    }

    fn first(&self, r: &Results<'k>) -> [First<'k>; 2] {
        [0, 1].map(|m| {
            let part = self.part(r, m);
            First { part, pair: self.pair(part, r.thread), exists: r.thread.lt(part.count * PAIRS) }
        })
    }

    fn early(&self, k: Builder<'k>, first: &[First<'k>; 2]) -> Early<'k> {
        let position = self.a.state.at(POSITION).fresh().ld();
        let angles = first.each_ref().map(|first| {
            let mut angle = [k.var(1.0), k.var(0.0)];
            self.a.angles.row(first.pair.j, 8).fresh().ld2_if(first.exists, &mut angle);
            angle
        });
        Early { position, angles }
    }

    fn angle(&self, pair: &Pair<'k>) -> [F32<'k>; 2] {
        self.a.angles.row(pair.j, 8).fresh().ld2()
    }

    fn store(&self, r: &Results<'k>, first: [First<'k>; 2], early: Early<'k>) {
        let k = r.k;
        let Early { position, angles } = early;
        for (m, (First { part, pair, exists }, angle)) in first.into_iter().zip(&angles).enumerate() {
            let pairs = part.count * PAIRS;
            k.when(exists, || {
                let only = (Column::ONLY, position);
                self.turn(r, (m, part), r.thread, pair, [angle[0].get(), angle[1].get()], only);
            });
            k.for_each(r.thread + r.threads, pairs, r.threads, |i| {
                let pair = self.pair(part, i);
                let angle = self.angle(&pair);
                self.turn(r, (m, part), i, pair, angle, (Column::ONLY, position));
            });
        }
        let part = self.part(r, 2);
        let only = (Column::ONLY, position);
        k.for_each(r.thread, part.count * ROWS, r.threads, |i| self.value(r, part, i, only));
    }

    /// The same of several columns.
    fn store_columns(&self, r: &Results<'k>) {
        let position = |column: Column<'k>| column.of(self.a.state, LEN as u32).at(POSITION).fresh().ld();
        for m in [0, 1] {
            let part = self.part(r, m);
            r.each(part.count * PAIRS, PAIRS, |i, column| {
                let pair = self.pair(part, i);
                let angle = column.of(self.a.angles, self.a.head_dim).row(pair.j, 8).fresh().ld2();
                self.turn(r, (m, part), i, pair, angle, (column, position(column)));
            });
        }
        let part = self.part(r, 2);
        r.each(part.count * ROWS, ROWS, |i, column| self.value(r, part, i, (column, position(column))));
    }

    /// Row `i` of a part of the values.
    fn value(&self, r: &Results<'k>, part: Part<'k>, i: U32<'k>, (column, position): (Column<'k>, U32<'k>)) {
        let row = part.first[0] * ROWS + i;
        let v = r.row(part.run, part.first[1] + i / ROWS, i % ROWS, column);
        let v = self.biased(v, (self.a.heads + self.a.kv_heads) * self.a.head_dim + row);
        self.append(r, self.a.v_cache, row / self.a.head_dim, row % self.a.head_dim, v, position);
    }

    /// All three matrices' sums, each row in its place.
    fn store_raw(&self, r: &Results<'k>) {
        let mut before = r.k.val(0);
        for (m, heads) in [self.a.heads, self.a.kv_heads, self.a.kv_heads].into_iter().enumerate() {
            let part = self.part(r, m);
            r.each(part.count * ROWS, ROWS, |i, column| {
                let (block, row) = (i / ROWS, i % ROWS);
                let v = r.row(part.run, part.first[1] + block, row, column);
                let to = before + self.source(m, part.first[0] + block, row);
                let rows = || (self.a.heads + self.a.kv_heads * 2) * self.a.head_dim;
                column.of_with(self.a.q, rows).at(to).st(self.biased(v, to));
            });
            before = before + heads * self.a.head_dim;
        }
    }

    /// Which of its matrix's rows is row `r` of a row block.
    fn source(&self, m: usize, block: U32<'k>, r: U32<'k>) -> U32<'k> {
        if m == 2 {
            return block * ROWS + r;
        }
        let (head, j) = (block / self.per, block % self.per * PAIRS + r % PAIRS);
        let dim = match self.qkv.pairing {
            Pairing::Interleaved => j * 2 + r / PAIRS,
            Pairing::HalfSplit => j + r / PAIRS * (self.a.head_dim / 2),
        };
        head * self.a.head_dim + dim
    }

    fn turn(
        &self,
        r: &Results<'k>,
        (m, part): (usize, Part<'k>),
        i: U32<'k>,
        pair: Pair<'k>,
        [cos, sin]: [F32<'k>; 2],
        (column, position): (Column<'k>, U32<'k>),
    ) {
        let sum = |half| r.row(part.run, part.first[1] + i / PAIRS, i % PAIRS + half, column);
        let sums = [0, PAIRS].map(sum);
        let first = if m == 0 { pair.head } else { pair.head + self.a.heads };
        let biased = |s: usize| self.biased(sums[s], first * self.a.head_dim + pair.dims[s]);
        let (x, y) = (biased(0), biased(1));
        let turned = [x * cos - y * sin, x * sin + y * cos];
        for (d, v) in pair.dims.into_iter().zip(turned) {
            match m {
                0 => {
                    let q = column.of_with(self.a.q, || self.a.heads * self.a.head_dim);
                    q.at(pair.head * self.a.head_dim + d).st(v);
                }
                _ => self.append(r, self.a.k_cache, pair.head, d, v, position),
            }
        }
    }

    fn biased(&self, v: F32<'k>, row: U32<'k>) -> F32<'k> {
        if self.qkv.bias { v + self.a.bias.at(row).ld() } else { v }
    }

    /// Nothing is stored past the cache.
    fn append(
        &self,
        r: &Results<'k>,
        cache: Ptr<'k, f16, ReadWrite>,
        head: U32<'k>,
        d: U32<'k>,
        v: F32<'k>,
        position: U32<'k>,
    ) {
        let at = cache.row(head * self.a.ctx + position, self.a.head_dim * 2).at(d);
        r.k.when(position.lt(self.a.ctx), || at.st(v.cvt::<f16>()));
    }
}

impl Variant for Qkv {
    fn cases(&self, seed: u64) -> Vec<Case> {
        // heads, kv_heads, head_dim, positions of the cache, the position, blocks
        let shapes = [(4, 2, 32, 5, 3, 3), (6, 1, 16, 3, 0, 5), (2, 2, 64, 4, 4, 2)];
        shapes.into_iter().map(|shape| self.case(shape, seed)).collect()
    }
}

impl Qkv {
    fn case(
        &self,
        (heads, kv, dim, ctx, position, blocks): (u32, u32, u32, u32, u32, u32),
        seed: u64,
    ) -> Case {
        let n = 512;
        let runs = self.runs(heads, kv, dim);
        let mut random = crate::case::Random(seed);
        let tiles = |&(format, count): &(Format, u32)| {
            let columns = super::product::tile(format).columns;
            super::tile::random(format, (count * n / columns) as usize, 1.0, &mut random)
        };
        let w: Vec<u8> = runs.0.iter().flat_map(tiles).collect();
        let rows = (heads + 2 * kv) * dim;
        let columns = self.plan.columns;
        let x = random.units((columns * n) as usize);
        let gamma: Vec<f32> = random.units(n as usize).iter().map(|g| 1.0 + g / 4.0).collect();
        let bias = random.units(rows as usize);
        let turns = (0..columns).flat_map(|i| (0..dim / 2).map(move |j| (i + j) as f32));
        let angles: Vec<f32> = turns.flat_map(|angle| [angle.cos(), angle.sin()]).collect();
        let state = (0..columns).flat_map(|i| [0, position + i, 0, 0, 0, 0, 0, 0]).collect();
        let cache = random.halves((kv * ctx * dim) as usize);
        let stored = if self.finish == Finish::Raw { rows } else { heads * dim };
        let shape = case::Shape { rows, n, blocks, columns, outlier: 1.0 };
        let mut args = vec![
            CpuArg::U8(w),
            CpuArg::F32(x),
            CpuArg::F32(gamma),
            CpuArg::F32(bias),
            CpuArg::U32(state),
            CpuArg::F32(angles),
            CpuArg::F32(vec![0.0; (columns * stored) as usize]),
            CpuArg::F16(cache.clone()),
            CpuArg::F16(cache),
        ];
        args.extend([heads, kv, dim, ctx, n].map(CpuArg::scalar));
        args.push(CpuArg::scalar(1e-5f32));
        case::case(shape, args, &[], case::layout(&runs, self.plan, shape))
    }
}
