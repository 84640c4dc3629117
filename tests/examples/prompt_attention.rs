//! Times attention of many tokens on a GPU, and the kernels that prepare its queries, keys and
//! values. Prints microseconds and causal TFLOPS (`2 heads head_dim tokens^2` operations), and the
//! GB/s of the sums that are read and the values that are stored.
//!
//! Usage: `prompt_attention [TOKENS] [HEAD_DIMS] [QUERIES]`, lists with commas. The last list has
//! the queries of a block with `mma.sync`. Each figure is the best of five launches of a graph,
//! each after a pause.

mod timing;

use ptx_gen::KernelDef;
use std::process::ExitCode;
use timing::Failure;
use warpwright_driver::graph::Recorder;
use warpwright_driver::launch::Host;
use warpwright_driver::memory::{Buffer, f16};
use warpwright_driver::stream::Queue;
use warpwright_driver::{Context, Driver};
use warpwright_kernels::format::dequantize::ColumnOrder;
use warpwright_kernels::prompt::{
    Item, PromptAttention, PromptAttentionArgs, PromptAttentionWgmma, RotateTokens,
    RotateTokensArgs,
};
use warpwright_kernels::shared::cache::{self, PAGE};
use warpwright_kernels::shared::state::StepState;
use warpwright_kernels::{Overlap, Pairing, Random};

fn main() -> ExitCode {
    timing::end(run())
}

/// Heads of queries and of keys.
const HEADS: [(u32, u32); 2] = [(32, 8), (12, 2)];

/// Operations a second that are expected at most, for the number of launches.
const FAST: f64 = 5e14;

fn run() -> Result<(), Failure> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let numbers = |i: usize, otherwise: &[u32]| -> Result<Vec<u32>, Failure> {
        let list = args.get(i).map(|list| {
            list.split(',')
                .map(str::parse)
                .collect::<Result<Vec<u32>, _>>()
        });
        Ok(list.transpose()?.unwrap_or(otherwise.into()))
    };
    let (tokens, dims) = (numbers(0, &[512, 2048, 8192])?, numbers(1, &[128])?);
    let queries = numbers(2, &[64, 128])?;
    let context = Context::new(&Driver::load()?.device(0)?)?;
    println!("kernel                        heads  kv tokens       us  TFLOPS    GB/s");
    for dim in dims {
        for (heads, kv_heads) in HEADS {
            for &tokens in &tokens {
                let chunk = Chunk::new(&context, [heads, kv_heads, dim, tokens])?;
                chunk.time_rotation()?;
                let most = PromptAttention::new(dim, ORDER).queries;
                for &queries in queries.iter().filter(|&&queries| queries <= most) {
                    chunk.time_attention(
                        PromptAttention::new(dim, ORDER).with_queries(queries),
                        queries,
                    )?;
                }

                if [64, 128].contains(&dim) {
                    chunk.time_attention(
                        PromptAttentionWgmma::new(dim, ORDER),
                        PromptAttentionWgmma::QUERIES,
                    )?;
                }
            }
        }
    }

    Ok(())
}

const ORDER: ColumnOrder = ColumnOrder { group: 32 };

/// The buffers of a chunk of a prompt, from its first position on.
struct Chunk<'a> {
    context: &'a Context,
    heads: u32,
    kv_heads: u32,
    dim: u32,
    tokens: u32,
    x: Buffer<f32>,
    freq: Buffer<f32>,
    none: Buffer<f32>,
    /// The page table, and the tokens' states.
    pages: Buffer<u32>,
    state: Buffer<u32>,
    q: Buffer<f16>,
    caches: [Buffer<f16>; 2],
    y: Buffer<f16>,
    y_scale: Buffer<f32>,
}

impl<'a> Chunk<'a> {
    fn new(
        context: &'a Context,
        [heads, kv_heads, dim, tokens]: [u32; 4],
    ) -> Result<Self, Failure> {
        let some = Random(1).units(1 << 16);
        let numbers = |n: u32| {
            some.iter()
                .copied()
                .cycle()
                .take(n as usize)
                .collect::<Vec<f32>>()
        };
        let halves = |n: u32, factor: f32| {
            let halves: Vec<f16> = numbers(n)
                .into_iter()
                .map(|x| f16::from_f32(x * factor))
                .collect();
            Buffer::from_slice(context, &halves)
        };
        let rows = (heads + 2 * kv_heads) * dim;
        let pages = cache::pages(tokens);
        let state: Vec<u32> = (0..tokens)
            .flat_map(|position| {
                StepState {
                    position,
                    ..StepState::default()
                }
                .words()
            })
            .collect();

        // In an order of pages that is not theirs.
        let table: Vec<u32> = (0..pages).rev().collect();
        let cached = pages * PAGE * kv_heads * dim;
        Ok(Chunk {
            context,
            heads,
            kv_heads,
            dim,
            tokens,
            x: Buffer::from_slice(context, &numbers(tokens * rows))?,
            freq: Buffer::from_slice(context, &vec![0.01f32; dim as usize])?,
            none: Buffer::zeroed(context, 0)?,
            // Scores of a few units.
            q: halves(tokens * heads * dim, 0.5)?,
            pages: Buffer::from_slice(context, &table)?,
            state: Buffer::from_slice(context, &state)?,
            caches: [halves(cached, 1.0)?, halves(cached, 1.0)?],
            y: Buffer::zeroed(context, (tokens * heads * dim) as usize)?,
            y_scale: Buffer::zeroed(context, tokens as usize)?,
        })
    }

    fn time_attention<K>(&self, kernel: K, queries: u32) -> Result<(), Failure>
    where
        K: for<'b> KernelDef<Args<Host<'b>> = PromptAttentionArgs<Host<'b>>>,
    {
        let &Chunk {
            heads,
            kv_heads,
            dim,
            tokens,
            ..
        } = self;
        let name = kernel.name();
        let flops = 2.0 * f64::from(heads * dim) * f64::from(tokens).powi(2);
        let launches = ((4e-3 / (flops / FAST)) as usize).clamp(3, 200);
        let all = Item {
            row: 0,
            rows: tokens,
            position: 0,
            sequence: 0,
        };
        let items: Vec<u32> = all.split(queries).flat_map(Item::words).collect();
        let items = Buffer::from_slice(self.context, &items)?;
        let us = self.time(kernel, launches, || PromptAttentionArgs {
            q: &self.q,
            k_cache: &self.caches[0],
            v_cache: &self.caches[1],
            pages: &self.pages,
            items: &items,
            y: &self.y,
            y_scale: &self.y_scale,
            heads,
            kv_heads,
            cache_pages: cache::pages(tokens),
            sequences: 1,
            max_pages: cache::pages(tokens),
            item_count: tokens.div_ceil(queries),
            capacity: tokens,
        })?;
        println!(
            "{name:<29} {heads:>5} {kv_heads:>3} {tokens:>6} {us:>8.1} {:>7.0}",
            flops / us * 1e-6
        );
        Ok(())
    }

    fn time_rotation(&self) -> Result<(), Failure> {
        let &Chunk {
            heads,
            kv_heads,
            dim,
            tokens,
            ..
        } = self;
        let kernel = RotateTokens {
            head_dim: dim,
            pairing: Pairing::HalfSplit,
            bias: false,
            norm: false,
            overlap: Overlap::No,
        };
        let us = self.time(kernel, 100, || RotateTokensArgs {
            x: &self.x,
            bias: &self.none,
            gamma: &self.none,
            freq: &self.freq,
            state: &self.state,
            pages: &self.pages,
            q: &self.q,
            k_cache: &self.caches[0],
            v_cache: &self.caches[1],
            heads,
            kv_heads,
            cache_pages: cache::pages(tokens),
            sequences: 1,
            max_pages: cache::pages(tokens),
            tokens,
            capacity: tokens,
            epsilon: 1e-5,
            scale: 0.25,
        })?;
        let bytes = 6.0 * f64::from(tokens) * f64::from((heads + 2 * kv_heads) * dim);
        let name = KernelDef::name(&kernel);
        println!(
            "{name:<29} {heads:>5} {kv_heads:>3} {tokens:>6} {us:>8.1}         {:>7.0}",
            bytes / us * 1e-3
        );
        Ok(())
    }

    /// Microseconds of a launch.
    fn time<'b, K: KernelDef>(
        &self,
        kernel: K,
        launches: usize,
        args: impl Fn() -> K::Args<Host<'b>>,
    ) -> Result<f64, Failure> {
        let kernel = timing::load(self.context, kernel)?;
        let recorder = Recorder::new(self.context)?;
        timing::microseconds(recorder, launches, |recorder, _| {
            recorder.launch(&kernel, args())
        })
    }
}
