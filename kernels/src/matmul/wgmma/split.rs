//! The assignment of jobs to blocks: whole jobs, jobs of the tail, and slices of jobs whose columns
//! are split among blocks.
//!
//! Blocks take jobs round-robin, so the last round may have fewer jobs than blocks. With a tail,
//! the rows whose jobs would be in that round are processed in narrower jobs, of which there are
//! more. The width of a job changes no bits.
//!
//! With [`Matmul::split`] above 1, each job is divided into that many slices of about equally many
//! columns (split-K). A warp that has a slice of its rows' columns stores its partial sums in
//! memory and draws a ticket. The last of these warps adds the partial sums of all slices,
//! including its own, in the order of the columns. The result is therefore equal in every run.

use crate::format::dequantize::ColumnOrder;
use crate::format::tile::{self, ROWS};
use crate::matmul::activations::{self, TOKENS};
use crate::matmul::definition::{Matmul, MatmulArgs};
use crate::matmul::expert_table::{ExpertRows, ExpertTable};
use crate::shared::Contract;
use ptx_gen::*;

/// The number of partial sums that a thread loads at once.
const AT_ONCE: u32 = 56;

/// Returns the number of slices of `tokens` tokens that a thread loads at once.
pub(crate) fn at_once(tokens: u32) -> u32 {
    (AT_ONCE / (tokens / 2)).max(1)
}

/// A job, or a slice of its columns.
pub(crate) struct JobSlice<'k> {
    /// The index of its rows, in units of a job's rows.
    pub(crate) rows: U32<'k>,
    /// The first of its tokens.
    pub(crate) token: U32<'k>,
    /// The number of its tokens.
    pub(crate) width: u32,
    /// The first of its tiles.
    pub(crate) first: U32<'k>,
    /// The number of its tiles.
    pub(crate) count: U32<'k>,
    /// The expert of its tokens, if the matmul has experts.
    pub(crate) expert: Option<ExpertRows<'k>>,
    /// Its index among the slices of all jobs.
    item: U32<'k>,
    /// The index of its job.
    job: U32<'k>,
}

/// The jobs of a launch. All tokens of the same rows follow each other. With experts, all rows of
/// the same tokens follow each other.
pub(crate) struct Jobs<'a, 'k> {
    k: Builder<'k>,
    matmul: &'a Matmul,
    a: &'a MatmulArgs<Dev<'k>>,
    /// Whether the last block takes the first job.
    from_last: bool,
    /// The number of jobs of the same rows.
    token_jobs: U32<'k>,
    /// The number of jobs of full width.
    all: U32<'k>,
    /// The number of tiles of a job's row.
    tiles: U32<'k>,
    tail: Option<Tail<'k>>,
    experts: Option<ExpertJobs<'k>>,
}

/// The jobs of tokens that are sorted by expert.
///
/// Blocks that run at the same time process few groups of tokens with all of their rows. The
/// activations of a group are therefore loaded from memory once, and the weights of an expert once
/// for all of its groups. In the order of other matmuls, each row block would load all activations,
/// which the L2 cache cannot keep.
struct ExpertJobs<'k> {
    table: ExpertTable<'k>,
    /// The number of jobs of the same tokens.
    row_jobs: U32<'k>,
    /// The last group that the table has.
    last: U32<'k>,
}

/// The jobs of the last rows.
struct Tail<'k> {
    /// The first rows of the tail.
    first: U32<'k>,
    /// The number of jobs of the same rows.
    token_jobs: U32<'k>,
    /// The number of all jobs of the tail.
    all: U32<'k>,
}

/// The experts of a launch, with the number of rows in use, which only the device knows.
#[derive(Clone, Copy)]
pub(crate) struct UsedExperts<'k> {
    pub(crate) table: ExpertTable<'k>,
    /// The number of rows in use. It is uniform in the block.
    pub(crate) rows: U32<'k>,
}

impl Matmul {
    /// Returns the number of items that blocks process: jobs, or slices of them.
    pub fn items(&self, rows: u32, tokens: u32) -> u32 {
        self.jobs(rows, tokens).saturating_mul(self.split)
    }

    /// Returns the numbers of elements that `partials` and `tickets` need for `rows` rows and
    /// `tokens` tokens.
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

    /// Checks the width of the tail.
    pub(crate) fn check_tail(&self, capacity: u32) -> Result<(), ShapeError> {
        if self.tail > 0 {
            self.multiple("the kernel's tail", self.tail, TOKENS)?;
            self.range("the kernel's tail", self.tail, TOKENS, self.tokens - 1)?;
            self.range("the kernel's split, which has a tail,", self.split, 1, 1)?;
            self.multiple("capacity", capacity, self.tail)?;
        }
        Ok(())
    }

    /// Returns the number of sums of a job.
    fn part_len(&self) -> u32 {
        self.row_blocks() * ROWS * self.tokens
    }
}

impl<'a, 'k> Jobs<'a, 'k> {
    /// Computes the numbers of jobs. With `from_last`, the last block takes the first job.
    pub(crate) fn new(
        k: Builder<'k>,
        matmul: &'a Matmul,
        a: &'a MatmulArgs<Dev<'k>>,
        from_last: bool,
        experts: Option<UsedExperts<'k>>,
    ) -> Self {
        let row_blocks = matmul.row_blocks();
        let row_jobs = (a.rows / ROWS + (row_blocks - 1)) / row_blocks;
        let token_jobs = (a.tokens_given + (matmul.tokens - 1)) / matmul.tokens;
        let tiles = a.n / tile::of(matmul.format).columns;
        let mut all = row_jobs * token_jobs;
        let experts = experts.map(|UsedExperts { table, rows }| {
            all = row_jobs * (rows.min(a.capacity) / matmul.tokens);
            ExpertJobs {
                table,
                row_jobs,
                last: a.capacity / matmul.tokens - 1,
            }
        });
        let mut tail = None;
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
            experts,
        }
    }

    /// Returns true if the tokens are sorted by expert.
    pub(crate) fn has_experts(&self) -> bool {
        self.experts.is_some()
    }

    /// Returns the index of this block. It is computed at each use, because registers are scarce.
    fn block(&self) -> U32<'k> {
        let k = self.k;
        if self.from_last {
            k.nctaid() - 1 - k.ctaid()
        } else {
            k.ctaid()
        }
    }

    /// Returns the job of an item, or the slice of a job.
    fn part(&self, item: U32<'k>) -> JobSlice<'k> {
        let split = self.matmul.split;
        let (job, [first, end]) = match split {
            1 => (item, [self.k.val(0), self.tiles]),
            _ => (
                item / split,
                [0, 1].map(|i| (item % split + i) * self.tiles / split),
            ),
        };
        let rows = job / self.token_jobs;
        let width = self.matmul.tokens;
        JobSlice {
            rows,
            token: job % self.token_jobs * width,
            width,
            first,
            count: end - first,
            expert: None,
            item,
            job,
        }
    }

    /// Calls `body` for each job of full width of this block, or for each slice of one.
    pub(crate) fn each(&self, body: impl FnOnce(JobSlice<'k>)) {
        let k = self.k;
        if let Some(experts) = &self.experts {
            return self.each_of_experts(experts, body);
        }
        k.for_each(
            self.block(),
            self.all * self.matmul.split,
            k.nctaid(),
            |item| body(self.part(item)),
        );
    }

    /// Calls `body` for each job of this block, with the expert of its tokens.
    fn each_of_experts(&self, experts: &ExpertJobs<'k>, body: impl FnOnce(JobSlice<'k>)) {
        let k = self.k;
        let entry_of = |item: U32<'k>| {
            let group = (item / experts.row_jobs).min(experts.last);
            experts.table.entry(group)
        };
        let mut next = k.var(entry_of(self.block()));
        k.for_each(self.block(), self.all, k.nctaid(), |item| {
            // The entry of the next job is loaded during this one.
            let entry = k.var(&next).get();
            next.set(entry_of(item + k.nctaid()));
            let width = self.matmul.tokens;
            body(JobSlice {
                rows: item % experts.row_jobs,
                token: item / experts.row_jobs * width,
                width,
                first: k.val(0),
                count: self.tiles,
                expert: Some(experts.table.rows(entry)),
                item,
                job: item,
            });
        });
    }

    /// Calls `body` for each job of the tail of this block. The tail continues where the jobs of
    /// full width end.
    pub(crate) fn each_of_tail(&self, body: impl FnOnce(JobSlice<'k>)) {
        let (k, Some(tail)) = (self.k, &self.tail) else {
            return;
        };

        k.section("matmul/split/tail_jobs", "jobs of the tail");

        // The first job of the tail goes to the block after the last full job. This keeps the
        // number of jobs per block even.
        let rounds = (self.all.max(self.block()) - self.block() + (k.nctaid() - 1)) / k.nctaid();
        let first = rounds.mad(k.nctaid(), self.block()) - self.all;
        k.for_each(first, tail.all, k.nctaid(), |item| {
            let rows = item / tail.token_jobs + tail.first;
            let width = self.matmul.tail;
            let token = item % tail.token_jobs * width;
            let first = k.val(0);
            body(JobSlice {
                rows,
                token,
                width,
                first,
                count: self.tiles,
                expert: None,
                item,
                job: item,
            });
        });
    }

    /// Stores the partial sums of a slice, in a warp that multiplies. The last warp of the job adds
    /// all partial sums and runs `store`.
    pub(crate) fn complete(
        &self,
        part: &JobSlice<'k>,
        row_block: U32<'k>,
        sums: &mut Accumulators<'k, f32>,
        store: impl FnOnce(&Accumulators<'k, f32>),
    ) {
        let k = self.k;
        let last = self.matmul.split - 1;
        k.when(row_block.lt(self.a.rows / ROWS), || {
            k.section(
                "matmul/split/partial_sums",
                "a slice of the columns: store its partial sums",
            );
            let to = self.sums_of(part.item);
            for (i, four) in (0..).zip(sums.0.chunks(4)) {
                to.at(128 * i).st4([0, 1, 2, 3].map(|j| four[j].get()));
            }

            k.section(
                "matmul/split/ticket",
                "draw a ticket: the last warp adds all slices",
            );

            // The ticket is released by one lane, which must come after the stores of all lanes.
            k.warp_barrier();
            let mut drawn = k.var(0);
            let ticket = self
                .a
                .tickets
                .at(part.job.mad(self.matmul.row_blocks(), k.warp()));
            k.when(k.lane().eq(0), || drawn.set(ticket.ticket(last)));
            let drawn = drawn.get().broadcast();

            // The other lanes read the partial sums only after the lane that acquired the ticket.
            k.warp_barrier();
            k.when(drawn.eq(last), || {
                self.add(part, sums);
                store(sums);
            });
        });
    }

    /// Adds the partial sums of all slices. Several loads are in flight at a time.
    fn add(&self, part: &JobSlice<'k>, sums: &mut Accumulators<'k, f32>) {
        self.k.section("matmul/split/merge", "add all slices");
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
                    // The slices are added in their order, so that equal inputs give equal bits.
                    let whole = if *i == 0 { part } else { sum.get() + part };
                    sum.set(whole);
                }
            }
        }
    }

    /// Returns the address of this lane's partial sums of an item.
    fn sums_of(&self, item: U32<'k>) -> Ptr<'k, f32, ReadWrite> {
        let k = self.k;
        let len = self.matmul.part_len();
        let warp = self
            .a
            .partials
            .row(item, 4 * len)
            .row(k.warp(), 4 * ROWS * self.matmul.tokens);
        warp.row(k.lane(), 16)
    }
}

/// Computes the partial sums that [`Matmul`] stores in `partials`.
pub(crate) fn reference(matmul: &Matmul, a: &mut MatmulArgs<Cpu<'_>>) {
    let columns = tile::of(matmul.format).columns;
    let tiles = a.n / columns;
    let token_jobs = a.tokens_given.div_ceil(matmul.tokens);
    let sums = MatmulOperands::of(matmul, a);
    let items = 0..matmul.jobs(a.rows, a.tokens_given) * matmul.split;
    for (item, part) in items.zip(a.partials.chunks_mut(matmul.part_len() as usize)) {
        let job = item / matmul.split;
        let slice = item % matmul.split;
        let bound = |slice: u32| slice * tiles / matmul.split * columns;
        let inner = bound(slice)..bound(slice + 1);
        let first_block = job / token_jobs * matmul.row_blocks();
        let first_token = job % token_jobs * matmul.tokens;
        for (i, to) in (0..).zip(part) {
            // A lane has four adjacent sums of every eight tokens. The warps follow each other.
            let j = i % 4;
            let lane = i / 4 % 32;
            let eight = i / 128 % (matmul.tokens / 8);
            let row_block = first_block + i / (ROWS * matmul.tokens);
            let row = row_block * ROWS + lane / 4 + j / 2 * 8;
            let token = first_token + 8 * eight + lane % 4 * 2 + j % 2;
            if row < a.rows {
                *to = sums.of_columns(row, token, inner.clone());
            }
        }
    }
}

/// Weights and activations as the tensor cores get them, except that weights are not rounded.
struct MatmulOperands {
    n: usize,
    /// `[rows, n]`: the weights
    weights: Vec<f32>,
    /// `[capacity, n]`: the activations
    x: Vec<f32>,
}

impl MatmulOperands {
    fn of(matmul: &Matmul, a: &MatmulArgs<Cpu<'_>>) -> MatmulOperands {
        let n = a.n as usize;
        let capacity = a.capacity as usize;
        let order = ColumnOrder::of(matmul.format).expect("a format with a tile");
        let rows = tile::dequantize(matmul.format, a.w, n);
        let rows = rows.chunks(n).zip(a.unit);
        let weights = rows
            .flat_map(|(row, unit)| row.iter().map(move |w| w * unit))
            .collect();
        let slot = |token, k| activations::index(capacity, token, order.slot(k as u32) as usize);
        let token = |token| (0..n).map(move |k| a.x[slot(token, k)].to_f32());
        MatmulOperands {
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
