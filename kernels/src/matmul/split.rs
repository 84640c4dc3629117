//! Which jobs a block has: whole ones, those of the tail, parts of those whose columns several blocks share.
//!
//! Blocks take jobs in turn, so the last round may have fewer jobs than blocks. With a tail, the rows whose jobs would be
//! in it have narrower ones, and more of them. The width of a job changes no bits.
//!
//! A job of [`Matmul::split`] parts has as many items, each of about as many tiles of columns as the others. A warp that
//! has a part of its rows' columns leaves its sums in memory and draws a ticket. The last one adds all parts in the order
//! of the columns, its own too: so the sums are the same in every run.

use super::activations::{self, TOKENS};
use super::product::{Matmul, MatmulArgs};
use crate::contract::Contract;
use crate::format::dequantize::ColumnOrder;
use crate::format::tile::{self, ROWS};
use ptx_gen::*;

/// Numbers of parts that a thread loads at once.
const AT_ONCE: u32 = 56;

/// Parts of so many tokens that a thread loads at once.
pub(super) fn at_once(tokens: u32) -> u32 {
    (AT_ONCE / (tokens / 2)).max(1)
}

/// A job, or a part of one.
pub(super) struct Part<'k> {
    /// Which rows.
    pub(super) rows: U32<'k>,
    /// The first of its tokens, and how many.
    pub(super) token: U32<'k>,
    pub(super) width: u32,
    /// The first of its tiles, and how many.
    pub(super) first: U32<'k>,
    pub(super) count: U32<'k>,
    /// Its number, and that of its job.
    item: U32<'k>,
    job: U32<'k>,
}

/// The jobs of a launch: all tokens of the same rows follow each other.
pub(super) struct Jobs<'a, 'k> {
    k: Builder<'k>,
    matmul: &'a Matmul,
    a: &'a MatmulArgs<Dev<'k>>,
    /// Whether the last block has the first job.
    from_last: bool,
    /// Of the same rows, and of those with full width.
    token_jobs: U32<'k>,
    all: U32<'k>,
    /// Tiles of a job.
    tiles: U32<'k>,
    tail: Option<Tail<'k>>,
}

/// The jobs of the last rows.
struct Tail<'k> {
    /// The first rows.
    first: U32<'k>,
    /// Jobs of the same rows, and all.
    token_jobs: U32<'k>,
    all: U32<'k>,
}

impl Matmul {
    /// Items of its blocks: jobs, or parts of them.
    pub fn items(&self, rows: u32, tokens: u32) -> u32 {
        self.jobs(rows, tokens).saturating_mul(self.split)
    }

    /// Elements of `partials` and of `tickets` for so many rows and tokens, at least.
    pub fn scratch(&self, rows: u32, tokens: u32) -> [usize; 2] {
        let jobs = if self.split > 1 {
            self.jobs(rows, tokens) as usize
        } else {
            0
        };
        [
            jobs * self.split as usize * self.part_len() as usize,
            jobs * self.row_blocks() as usize,
        ]
    }

    pub(super) fn check_tail(&self, capacity: u32) -> Result<(), ShapeError> {
        if self.tail > 0 {
            self.multiple("the kernel's tail", self.tail, TOKENS)?;
            self.range("the kernel's tail", self.tail, TOKENS, self.tokens - 1)?;
            self.range("the kernel's split, which has a tail,", self.split, 1, 1)?;
            self.multiple("capacity", capacity, self.tail)?;
        }
        Ok(())
    }

    /// Sums of a job.
    fn part_len(&self) -> u32 {
        self.row_blocks() * ROWS * self.tokens
    }
}

impl<'a, 'k> Jobs<'a, 'k> {
    pub(super) fn new(
        k: Builder<'k>,
        matmul: &'a Matmul,
        a: &'a MatmulArgs<Dev<'k>>,
        from_last: bool,
    ) -> Self {
        let row_blocks = matmul.row_blocks();
        let row_jobs = (a.rows / ROWS + (row_blocks - 1)) / row_blocks;
        let token_jobs = (a.tokens_given + (matmul.tokens - 1)) / matmul.tokens;
        let tiles = a.n / tile::of(matmul.format).columns;
        let (mut all, mut tail) = (row_jobs * token_jobs, None);
        if matmul.tail > 0 {
            let first = all / k.nctaid() * k.nctaid() / token_jobs;
            let tail_jobs = (a.tokens_given + (matmul.tail - 1)) / matmul.tail;
            tail = Some(Tail {
                first,
                token_jobs: tail_jobs,
                all: (row_jobs - first) * tail_jobs,
            });
            all = first * token_jobs;
        }
        Jobs {
            k,
            matmul,
            a,
            from_last,
            token_jobs,
            all,
            tiles,
            tail,
        }
    }

    /// Which of the blocks this one is. Read where it is needed, as registers are few.
    fn block(&self) -> U32<'k> {
        let k = self.k;
        if self.from_last {
            k.nctaid() - 1 - k.ctaid()
        } else {
            k.ctaid()
        }
    }

    fn part(&self, item: U32<'k>) -> Part<'k> {
        let split = self.matmul.split;
        let (job, [first, end]) = match split {
            1 => (item, [self.k.val(0), self.tiles]),
            _ => (
                item / split,
                [0, 1].map(|i| (item % split + i) * self.tiles / split),
            ),
        };
        let (rows, width) = (job / self.token_jobs, self.matmul.tokens);
        Part {
            rows,
            token: job % self.token_jobs * width,
            width,
            first,
            count: end - first,
            item,
            job,
        }
    }

    /// Each job of this block that has full width, or part of one.
    pub(super) fn each(&self, body: impl FnOnce(Part<'k>)) {
        let k = self.k;
        k.for_each(
            self.block(),
            self.all * self.matmul.split,
            k.nctaid(),
            |item| body(self.part(item)),
        );
    }

    /// Each job of this block that is of the tail. It takes them where its jobs of full width end.
    pub(super) fn each_of_tail(&self, body: impl FnOnce(Part<'k>)) {
        let (k, Some(tail)) = (self.k, &self.tail) else {
            return;
        };
        k.section("matmul/split/tail_jobs", "jobs of the last rows");
        let rounds = (self.all.max(self.block()) - self.block() + (k.nctaid() - 1)) / k.nctaid();
        let first = rounds.mad(k.nctaid(), self.block()) - self.all;
        k.for_each(first, tail.all, k.nctaid(), |item| {
            let (rows, width) = (item / tail.token_jobs + tail.first, self.matmul.tail);
            let (token, first) = (item % tail.token_jobs * width, k.val(0));
            body(Part {
                rows,
                token,
                width,
                first,
                count: self.tiles,
                item,
                job: item,
            });
        });
    }

    /// A warp that multiplies, with the sums of a part of a job: the last one of the job adds them, and runs
    /// `store`.
    pub(super) fn complete(
        &self,
        part: &Part<'k>,
        row_block: U32<'k>,
        sums: &mut Accumulators<'k, f32>,
        store: impl FnOnce(&Accumulators<'k, f32>),
    ) {
        let (k, last) = (self.k, self.matmul.split - 1);
        k.when(row_block.lt(self.a.rows / ROWS), || {
            k.section(
                "matmul/split/partial_sums",
                "a part of the columns: the sums of this one",
            );
            let to = self.sums_of(part.item);
            for (i, four) in (0..).zip(sums.0.chunks(4)) {
                to.at(128 * i).st4([0, 1, 2, 3].map(|j| four[j].get()));
            }
            k.section(
                "matmul/split/ticket",
                "draw a ticket: the last warp adds all parts",
            );
            k.warp_barrier();
            let mut drawn = k.var(0);
            let ticket = self
                .a
                .tickets
                .at(part.job.mad(self.matmul.row_blocks(), k.warp()));
            k.when(k.lane().eq(0), || drawn.set(ticket.ticket(last)));
            let drawn = drawn.get().broadcast();
            k.warp_barrier();
            k.when(drawn.eq(last), || {
                self.add(part, sums);
                store(sums);
            });
        });
    }

    /// Adds all parts, several loads in flight at a time.
    fn add(&self, part: &Part<'k>, sums: &mut Accumulators<'k, f32>) {
        self.k.section("matmul/split/merge", "add all parts");
        let parts: Vec<u32> = (0..self.matmul.split).collect();
        for parts in parts.chunks(at_once(self.matmul.tokens) as usize) {
            let load = |&i: &u32| {
                let from = self.sums_of(part.job.mad(self.matmul.split, i)).fresh();
                (0..sums.0.len() as u32 / 4)
                    .flat_map(|i| from.at(128 * i).ld4())
                    .collect::<Vec<_>>()
            };
            let loaded: Vec<_> = parts.iter().map(load).collect();
            for (i, part) in parts.iter().zip(loaded) {
                for (sum, part) in sums.0.iter_mut().zip(part) {
                    let whole = if *i == 0 { part } else { sum.get() + part };
                    sum.set(whole);
                }
            }
        }
    }

    /// Where this lane's sums of an item are.
    fn sums_of(&self, item: U32<'k>) -> Ptr<'k, f32, ReadWrite> {
        let (k, len) = (self.k, self.matmul.part_len());
        let warp = self
            .a
            .partials
            .row(item, 4 * len)
            .row(k.warp(), 4 * ROWS * self.matmul.tokens);
        warp.row(k.lane(), 16)
    }
}

/// The parts of jobs that [`Matmul`] leaves in `partials`.
pub(super) fn reference(matmul: &Matmul, a: &mut MatmulArgs<Cpu<'_>>) {
    let columns = tile::of(matmul.format).columns;
    let (tiles, token_jobs) = (a.n / columns, a.tokens_given.div_ceil(matmul.tokens));
    let sums = Sums::of(matmul, a);
    let items = 0..matmul.jobs(a.rows, a.tokens_given) * matmul.split;
    for (item, part) in items.zip(a.partials.chunks_mut(matmul.part_len() as usize)) {
        let [job, first] = [item / matmul.split, item % matmul.split];
        let inner =
            first * tiles / matmul.split * columns..(first + 1) * tiles / matmul.split * columns;
        for (i, to) in (0..).zip(part) {
            // Lanes have four neighbours each, of every eight tokens; then come warps.
            let (j, lane, eight) = (i % 4, i / 4 % 32, i / 128 % (matmul.tokens / 8));
            let row_block = job / token_jobs * matmul.row_blocks() + i / (ROWS * matmul.tokens);
            let row = row_block * ROWS + lane / 4 + j / 2 * 8;
            let token = job % token_jobs * matmul.tokens + 8 * eight + lane % 4 * 2 + j % 2;
            if row < a.rows {
                *to = sums.of_columns(row, token, inner.clone());
            }
        }
    }
}

/// Weights and activations as the tensor cores are given them, but for the rounding of weights.
struct Sums {
    n: usize,
    /// `[rows, n]`
    weights: Vec<f32>,
    /// `[capacity, n]`
    x: Vec<f32>,
}

impl Sums {
    fn of(matmul: &Matmul, a: &MatmulArgs<Cpu<'_>>) -> Sums {
        let (n, capacity) = (a.n as usize, a.capacity as usize);
        let order = ColumnOrder::of(matmul.format).expect("a format with a tile");
        let rows = tile::dequantize(matmul.format, a.w, n);
        let rows = rows.chunks(n).zip(a.unit);
        let weights = rows
            .flat_map(|(row, unit)| row.iter().map(move |w| w * unit))
            .collect();
        let slot = |token, k| activations::index(capacity, token, order.slot(k as u32) as usize);
        let token = |token| (0..n).map(move |k| a.x[slot(token, k)].to_f32());
        Sums {
            n,
            weights,
            x: (0..capacity).flat_map(token).collect(),
        }
    }

    fn of_columns(&self, row: u32, token: u32, columns: std::ops::Range<u32>) -> f32 {
        let columns = columns.start as usize..columns.end as usize;
        let [w, x] = [(&self.weights, row), (&self.x, token)]
            .map(|(all, i)| &all[i as usize * self.n..][..self.n][columns.clone()]);
        w.iter()
            .zip(x)
            .map(|(&w, &x)| f64::from(w) * f64::from(x))
            .sum::<f64>() as f32
    }
}
