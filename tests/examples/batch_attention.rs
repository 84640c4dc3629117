//! Times attention of many sequences on a GPU, and the choice of their tokens. Prints microseconds,
//! the GB/s of the keys, values or logits that are read, and the ratio of the time to a bound:
//! reading them at 4 TB/s, plus 3 us.
//!
//! Usage: `batch_attention [SPLITS]`, a list with commas. Each figure is the best of five launches
//! of a graph, each after a pause. The kernels in a graph read different pages, 512 MiB in total.

mod timing;

use ptx_gen::KernelDef;
use std::process::ExitCode;
use timing::Failure;
use warpwright_driver::graph::Recorder;
use warpwright_driver::launch::Host;
use warpwright_driver::memory::{Buffer, f16};
use warpwright_driver::stream::Queue;
use warpwright_driver::{Context, Driver};
use warpwright_kernels::Random;
use warpwright_kernels::batch::{
    BatchAttention, BatchAttentionArgs, ChooseTokens, ChooseTokensArgs,
};
use warpwright_kernels::format::dequantize::ColumnOrder;
use warpwright_kernels::shared::cache::PAGE;
use warpwright_kernels::shared::state::StepState;

fn main() -> ExitCode {
    timing::end(run())
}

/// Heads of queries and of keys, and their length: Llama 3.1 8B.
const HEADS: u32 = 32;
const KV_HEADS: u32 = 8;
const DIM: u32 = 128;
/// Pages of each cache.
const PAGES: u32 = 2048;
/// Rows, and positions of each; several lengths if spread.
const SHAPES: [(u32, u32, Lengths); 10] = [
    (1, 512, Lengths::Equal),
    (8, 512, Lengths::Equal),
    (16, 512, Lengths::Equal),
    (32, 512, Lengths::Equal),
    (64, 512, Lengths::Equal),
    (128, 512, Lengths::Equal),
    (8, 8192, Lengths::Equal),
    (1, 32768, Lengths::Equal),
    (32, 1024, Lengths::Spread),
    (128, 1024, Lengths::Spread),
];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Lengths {
    Equal,
    /// From few to all.
    Spread,
}

fn run() -> Result<(), Failure> {
    let splits = match std::env::args().nth(1) {
        Some(list) => list
            .split(',')
            .map(str::parse)
            .collect::<Result<Vec<u32>, _>>()?,
        None => vec![1, 2, 4, 8, 16, 33, 66],
    };
    let context = Context::new(&Driver::load()?.device(0)?)?;
    let caches = [(); 2].map(|()| cache(&context));
    let [k_cache, v_cache] = caches;
    let (k_cache, v_cache) = (k_cache?, v_cache?);
    println!("rows positions lengths splits       us    GB/s   goal");
    for (rows, positions, lengths) in SHAPES {
        let batch = Batch::new(&context, rows, positions, lengths)?;
        for &splits in splits.iter().filter(|&&splits| rows * splits <= 1024) {
            let us = batch.time(splits, [&k_cache, &v_cache])?;
            let bytes = batch.bytes();
            let goal = us / (bytes / 4e6 + 3.0);
            println!(
                "{rows:>4} {positions:>9} {lengths:>7?} {splits:>6} {us:>8.1} {:>7.0} {goal:>6.2}",
                bytes / us * 1e-3
            );
        }
    }

    println!("rows  vocab blocks       us    GB/s");
    for (rows, blocks) in [
        (1, 32),
        (1, 132),
        (8, 16),
        (8, 66),
        (128, 2),
        (128, 4),
        (128, 8),
        (128, 16),
    ] {
        let us = time_choice(&context, rows, blocks)?;
        let bytes = f64::from(rows * VOCAB) * 4.0;
        println!(
            "{rows:>4} {VOCAB:>6} {blocks:>6} {us:>8.1} {:>7.0}",
            bytes / us * 1e-3
        );
    }

    Ok(())
}

fn cache(context: &Context) -> Result<Buffer<f16>, Failure> {
    let some = Random(1).halves(1 << 16);
    let all: Vec<f16> = some
        .iter()
        .copied()
        .cycle()
        .take((PAGES * KV_HEADS * PAGE * DIM) as usize)
        .collect();
    Ok(Buffer::from_slice(context, &all)?)
}

/// The buffers of rows at the ends of their sequences.
struct Batch<'a> {
    context: &'a Context,
    rows: u32,
    capacity: u32,
    max_pages: u32,
    lengths: Vec<u32>,
    state: Buffer<u32>,
    /// Page tables of different pages.
    pages: Vec<Buffer<u32>>,
    q: Buffer<f16>,
    y: Buffer<f16>,
    y_scale: Buffer<f32>,
}

impl<'a> Batch<'a> {
    fn new(
        context: &'a Context,
        rows: u32,
        positions: u32,
        lengths: Lengths,
    ) -> Result<Self, Failure> {
        let (capacity, max_pages) = (rows.next_multiple_of(8), positions.div_ceil(PAGE));
        let length = |row: u32| match lengths {
            Lengths::Equal => positions,
            Lengths::Spread => positions * (row + 1) / rows,
        };
        let lengths: Vec<u32> = (0..rows).map(length).collect();
        let state_of = |row: u32| StepState {
            position: lengths[row as usize] - 1,
            sequence: row,
            ..StepState::default()
        };
        let state: Vec<u32> = (0..rows).flat_map(|row| state_of(row).words()).collect();
        let mut order: Vec<u32> = (0..PAGES).collect();
        let mut random = Random(2);
        for i in (1..order.len()).rev() {
            order.swap(i, random.below(i as u32 + 1) as usize);
        }

        let pages = order.chunks_exact((rows * max_pages) as usize);
        let pages = pages
            .map(|pages| Buffer::from_slice(context, pages))
            .collect::<Result<Vec<_>, _>>()?;
        let numbers = (capacity * HEADS * DIM) as usize;

        // Scores of a few units.
        let q: Vec<f16> = random
            .units(numbers)
            .into_iter()
            .map(|x| f16::from_f32(x / 2.0))
            .collect();
        Ok(Batch {
            context,
            rows,
            capacity,
            max_pages,
            lengths,
            state: Buffer::from_slice(context, &state)?,
            pages,
            q: Buffer::from_slice(context, &q)?,
            y: Buffer::zeroed(context, numbers)?,
            y_scale: Buffer::zeroed(context, capacity as usize)?,
        })
    }

    /// Bytes of keys and values that a launch reads.
    fn bytes(&self) -> f64 {
        f64::from(self.lengths.iter().sum::<u32>()) * f64::from(KV_HEADS * DIM * 4)
    }

    /// Microseconds of a launch.
    fn time(&self, splits: u32, [k_cache, v_cache]: [&Buffer<f16>; 2]) -> Result<f64, Failure> {
        let &Batch {
            context,
            rows,
            capacity,
            max_pages,
            ..
        } = self;
        let kernel = BatchAttention::new(DIM, HEADS / KV_HEADS, ColumnOrder { group: 32 });
        let partials = Buffer::zeroed(context, kernel.partials_len(rows, HEADS, splits))?;
        let ticket = Buffer::zeroed(context, (rows * KV_HEADS) as usize)?;
        let launches = ((2e4 / (self.bytes() / 3e6 + 5.0)) as usize).clamp(20, 500);
        time(context, kernel, launches, |launch| BatchAttentionArgs {
            state: &self.state,
            pages: &self.pages[launch % self.pages.len()],
            q: &self.q,
            k_cache,
            v_cache,
            y: &self.y,
            y_scale: &self.y_scale,
            partials: &partials,
            ticket: &ticket,
            heads: HEADS,
            kv_heads: KV_HEADS,
            cache_pages: PAGES,
            sequences: rows,
            max_pages,
            rows,
            capacity,
            splits,
            units: kernel.units(rows, KV_HEADS),
        })
    }
}

const VOCAB: u32 = 151_936;

/// Microseconds to choose a token for each row. Logits come from as many buffers as are more than
/// the L2 cache.
fn time_choice(context: &Context, rows: u32, blocks: u32) -> Result<f64, Failure> {
    let numbers = Random(3).units((rows * VOCAB) as usize);
    let copies = (1 << 28) / (rows * VOCAB * 4) + 1;
    let logits = (0..copies)
        .map(|_| Buffer::from_slice(context, &numbers))
        .collect::<Result<Vec<_>, _>>()?;
    let order: Vec<u32> = (0..rows).collect();
    let state_of = |row| StepState {
        sequence: row,
        limit: u32::MAX,
        ..StepState::default()
    };
    let state: Vec<u32> = (0..rows).flat_map(|row| state_of(row).words()).collect();
    let max_tokens = 1 << 14;
    let order = Buffer::from_slice(context, &order)?;
    let value = Buffer::zeroed(context, (rows * blocks) as usize)?;
    let index = Buffer::zeroed(context, (rows * blocks) as usize)?;
    let ticket = Buffer::zeroed(context, rows as usize)?;
    let stop = Buffer::from_slice(context, &[u32::MAX])?;
    let state = Buffer::from_slice(context, &state)?;
    let out = Buffer::zeroed(context, (rows * max_tokens) as usize)?;
    time(context, ChooseTokens, 200, |launch| ChooseTokensArgs {
        logits: &logits[launch % logits.len()],
        rows: &order,
        value: &value,
        index: &index,
        ticket: &ticket,
        stop: &stop,
        state: &state,
        out: &out,
        vocab: VOCAB,
        count: rows,
        capacity: rows,
        blocks,
        stops: 1,
        states: rows,
        sequences: rows,
        max_tokens,
    })
}

/// Microseconds of a launch.
fn time<'b, K: KernelDef>(
    context: &Context,
    kernel: K,
    launches: usize,
    args: impl Fn(usize) -> K::Args<Host<'b>>,
) -> Result<f64, Failure> {
    let kernel = timing::load(context, kernel)?;
    let recorder = Recorder::new(context)?;
    timing::microseconds(recorder, launches, |recorder, launch| {
        recorder.launch(&kernel, args(launch))
    })
}
