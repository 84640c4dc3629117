//! `bench --batch`: how fast sequences are decoded together, and how long a prompt that joins keeps
//! them waiting.

use std::io::{self, Write};
use std::time::{Duration, Instant};

use comfy_table::{CellAlignment, Table, presets};
use warpwright_engine::{Batch, BatchOptions, SequenceId};
use warpwright_kernels::cache::PAGE;
use warpwright_model::info::{head_weights, layer_weights};

use super::nodes::{self, NodeTable, percent};
use super::report::TimeSpread;
use super::*;

/// The largest number of sequences in a batch.
pub(super) const MAX_BATCH: u32 = 256;
/// The number of steps without the prompt, for comparison with the steps that prefill a part of it.
const ALONE: u32 = 8;

/// The output of `bench --batch`.
#[derive(Serialize)]
pub(super) struct BatchReport {
    #[serde(flatten)]
    header: BenchHeader,
    tokens: u32,
    rounds: u32,
    batches: Vec<BatchFigures>,
    joins: Vec<BatchJoin>,
    profiles: Vec<BatchProfile>,
}

/// The figures of a batch whose sequences each attend `ctx` positions at first.
///
/// Times are wall times, and the host reads the tokens of each launch.
#[derive(Serialize)]
struct BatchFigures {
    ctx: u32,
    sequences: u32,
    us_per_step: TimeSpread,
    tokens_per_s: f64,
    /// The rate of the matrix products with weights, without attention.
    tflops: f64,
    share_of_tensor_ceiling: Option<f64>,
    /// The bytes of weights and of the attended keys and values per second, averaged over a round.
    gb_per_s: f64,
    share_of_ceiling: f64,
    /// Whether all rounds generated the same tokens.
    same: bool,
}

/// The kernels of the first step of a round, launched one after the other. The fastest round
/// counts.
#[derive(Serialize)]
struct BatchProfile {
    ctx: u32,
    sequences: u32,
    #[serde(flatten)]
    nodes: NodeTable,
}

/// The figures of a prompt that joins while sequences decode. Each step prefills some of its
/// tokens.
#[derive(Serialize)]
struct BatchJoin {
    ctx: u32,
    sequences: u32,
    prompt: u32,
    /// The number of prompt tokens in a step.
    chunk: u32,
    /// The time of a step without the prompt, launched in the same way.
    step_us: f64,
    /// The time of the longest step with the prompt, which is the longest wait between two tokens
    /// of a sequence.
    longest_us: f64,
    /// The time from the first step with the prompt to its first token.
    first_token_ms: f64,
}

pub(super) fn measure(args: &Args) -> Result<BatchReport, Failure> {
    let setup = BenchSetup::new(args)?;
    let mut batch = setup.batch(options(&setup)?)?;
    let header = BenchHeader::of_batch(&setup);
    let mut batches = vec![];
    let mut joins = vec![];
    let mut profiles = vec![];
    for &ctx in &setup.contexts {
        for &sequences in &args.batch {
            let all = fill(&mut batch, &setup, sequences, ctx)?;
            batches.push(decode(&mut batch, &setup, &all, ctx)?);
            if args.profile {
                let nodes = NodeTable::of(&batch.profile(&all, args.rounds)?, setup.ceilings());
                profiles.push(BatchProfile {
                    ctx,
                    sequences,
                    nodes,
                });
            }
            if let Some(prompt) = args.join {
                joins.push(join(&mut batch, &setup, &all, [ctx, prompt])?);
            }
            all.iter().try_for_each(|&(id, _)| batch.leave(id))?;
        }
    }
    Ok(BatchReport {
        header,
        tokens: args.tokens,
        rounds: args.rounds,
        batches,
        joins,
        profiles,
    })
}

/// Returns the options of a batch that fits the largest number of sequences, the largest context
/// and the joining prompt.
fn options(setup: &BenchSetup) -> Result<BatchOptions, Failure> {
    let args = setup.args;
    let limit = setup.outline().config.context;
    let most = args
        .batch
        .iter()
        .copied()
        .max()
        .expect("clap gives batches");
    let ctx = setup
        .contexts
        .iter()
        .copied()
        .max()
        .expect("there is a context");
    let Some(prompt) = args.join else {
        return Ok(BatchOptions::new(most, ctx - 1 + args.tokens));
    };
    expect_room(args, most, ctx, limit)
        .map_err(|sentence| Failure::Input(format!("--join: {sentence}")))?;
    // A sequence makes the tokens of a round, and later, from where that began, one with each step
    // of the join.
    let options = BatchOptions::new(most, ctx - 1 + join_steps(args, prompt).max(args.tokens));
    Ok(BatchOptions {
        sequences: most + 1,
        ctx: options.ctx.max(prompt),
        positions: options.positions + prompt.next_multiple_of(PAGE),
        ..options
    })
}

/// Returns an error if the joining prompt does not fit next to the sequences at this context.
fn expect_room(args: &Args, most: u32, ctx: u32, limit: u32) -> Result<(), String> {
    let prompt = args.join.unwrap_or(0);
    if most == MAX_BATCH {
        return Err(format!(
            "{most} sequences are as many as a batch has, and the prompt is one more"
        ));
    }
    if prompt > limit {
        return Err(format!(
            "the prompt has {prompt} tokens; this model has {limit} positions"
        ));
    }
    let chunk = args.join_chunk;
    let steps = join_steps(args, prompt);
    let needed = u64::from(ctx) - 1 + u64::from(steps);
    if needed > limit.into() {
        return Err(format!(
            "a prompt of {prompt} tokens, {chunk} a step, takes {steps} steps; the sequences, from context {ctx} on, \
             need {needed} positions meanwhile, and this model has {limit}"
        ));
    }
    Ok(())
}

/// Tokens that each of the other sequences makes while the prompt joins, or before it, for
/// comparison.
fn join_steps(args: &Args, prompt: u32) -> u32 {
    prompt.div_ceil(args.join_chunk).max(ALONE)
}

/// Tokens of all that is done for one context, at least.
pub(super) fn tokens(args: &Args, ctx: u32) -> u64 {
    let decoded = u64::from(args.rounds) * u64::from(args.tokens);
    let profiled = if args.profile {
        u64::from(args.rounds) + 1
    } else {
        0
    };
    let joined = args.join.map_or(0, |prompt| {
        u64::from(ALONE) + u64::from(prompt.div_ceil(args.join_chunk))
    });
    let of_batch = |&sequences: &u32| {
        u64::from(sequences) * (u64::from(ctx) + decoded + profiled + joined)
            + u64::from(args.join.unwrap_or(0))
    };
    args.batch.iter().map(of_batch).sum()
}

/// Tokens that no two sequences have in the same order.
fn ids(outline: &Outline, sequence: u32, len: u32) -> Vec<u32> {
    let vocab = u64::from(outline.config.vocab);
    // A prime stride visits every id of most vocabularies.
    (0..u64::from(len))
        .map(|i| ((i + 1) * 7919 + u64::from(sequence) * 104_729) % vocab)
        .map(|id| id as u32)
        .collect()
}

/// Adds sequences whose next token attends `ctx` positions; each with that token.
fn fill(
    batch: &mut Batch,
    setup: &BenchSetup,
    sequences: u32,
    ctx: u32,
) -> Result<Vec<(SequenceId, u32)>, Failure> {
    let mut all = vec![];
    for sequence in 0..sequences {
        let id = batch.join()?;
        let ids = ids(setup.outline(), sequence, ctx);
        if setup.args.sample {
            batch.set_sampling(id, &usual())?;
        }
        for chunk in ids[..ids.len() - 1].chunks(2048) {
            batch.step(&[(id, chunk)])?;
        }
        all.push((id, ids[ids.len() - 1]));
    }
    Ok(all)
}

/// Times rounds, each from the same tokens on.
fn decode(
    batch: &mut Batch,
    setup: &BenchSetup,
    all: &[(SequenceId, u32)],
    ctx: u32,
) -> Result<BatchFigures, Failure> {
    let tokens = setup.args.tokens;
    let mut round = |tokens: u32| -> Result<(Duration, Vec<Vec<u32>>), Failure> {
        let start = Instant::now();
        let made = batch.decode(all, tokens)?;
        let time = start.elapsed();
        all.iter()
            .try_for_each(|&(id, _)| batch.roll_back(id, ctx - 1))?;
        Ok((time, made))
    };
    // To warm up, and to make the graphs.
    round(tokens.min(2 * WARM_UP))?;
    let rounds = (0..setup.args.rounds)
        .map(|_| round(tokens))
        .collect::<Result<Vec<_>, _>>()?;
    let us_per_step = TimeSpread::of(tokens, rounds.iter().map(|(time, _)| *time));
    let outline = setup.outline();
    let sequences = all.len() as u32;
    let mean = |of: &dyn Fn(u32) -> u64| {
        (0..tokens).map(|i| of(ctx + i) as f64).sum::<f64>() / f64::from(tokens)
    };
    let bytes =
        token_bytes(outline) as f64 + f64::from(sequences) * mean(&|n| kv_bytes_read(outline, n));
    let gb_per_s = bytes / us_per_step.median * 1e-3;
    let weights = layer_weights(outline) + head_weights(outline);
    let tflops = 2e-6 * weights as f64 * f64::from(sequences) / us_per_step.median;
    Ok(BatchFigures {
        ctx,
        sequences,
        tokens_per_s: f64::from(sequences) * 1e6 / us_per_step.median,
        tflops,
        share_of_tensor_ceiling: setup.ceilings().share_of_tensor(Some(tflops)),
        gb_per_s,
        share_of_ceiling: gb_per_s / setup.ceiling.gb_per_s,
        same: rounds.windows(2).all(|pair| pair[0].1 == pair[1].1),
        us_per_step,
    })
}

/// Times steps of all sequences while a prompt joins.
fn join(
    batch: &mut Batch,
    setup: &BenchSetup,
    all: &[(SequenceId, u32)],
    [ctx, prompt]: [u32; 2],
) -> Result<BatchJoin, Failure> {
    let chunk = setup.args.join_chunk;
    let mut run = |prompt: Option<&[u32]>, steps: u32| -> Result<Vec<Duration>, Failure> {
        let mut tokens: Vec<u32> = all.iter().map(|&(_, token)| token).collect();
        let joined = prompt
            .map(|prompt| Ok::<_, Failure>((batch.join()?, prompt)))
            .transpose()?;
        let steps = joined.map_or(steps, |(_, prompt)| (prompt.len() as u32).div_ceil(chunk));
        let times = (0..steps as usize).map(|step| {
            let mut work: Vec<(SequenceId, &[u32])> = all
                .iter()
                .zip(&tokens)
                .map(|(&(id, _), token)| (id, std::slice::from_ref(token)))
                .collect();
            if let Some((id, prompt)) = joined {
                let from = step * chunk as usize;
                work.push((id, &prompt[from..prompt.len().min(from + chunk as usize)]));
            }
            let start = Instant::now();
            let next = batch.step(&work)?;
            let time = start.elapsed();
            tokens.copy_from_slice(&next[..all.len()]);
            Ok::<_, Failure>(time)
        });
        let times = times.collect::<Result<Vec<_>, _>>()?;
        all.iter()
            .try_for_each(|&(id, _)| batch.roll_back(id, ctx - 1))?;
        joined.map(|(id, _)| batch.leave(id)).transpose()?;
        Ok(times)
    };
    let ids = ids(setup.outline(), all.len() as u32, prompt);
    // To warm up: it compiles kernels.
    run(Some(&ids[..ids.len().min(2 * chunk as usize)]), 0)?;
    run(
        Some(&ids[..ids.len().min(ids.len() % chunk as usize + chunk as usize)]),
        0,
    )?;
    let alone = run(None, ALONE)?;
    let times = run(Some(&ids), 0)?;
    let us = |time: &Duration| time.as_secs_f64() * 1e6;
    Ok(BatchJoin {
        ctx,
        sequences: all.len() as u32,
        prompt,
        chunk,
        step_us: alone.iter().skip(1).map(us).sum::<f64>() / (alone.len() - 1) as f64,
        longest_us: times.iter().map(us).fold(0.0, f64::max),
        first_token_ms: times.iter().map(us).sum::<f64>() * 1e-3,
    })
}

impl BatchReport {
    fn print_profiles(&self, out: &mut impl Write) -> Result<(), Failure> {
        for BatchProfile {
            ctx,
            sequences,
            nodes,
        } in &self.profiles
        {
            writeln!(
                out,
                "\na step of {sequences} sequences at {ctx} positions, kernel by kernel: {:.0} us",
                nodes.us
            )?;
            writeln!(out, "{}", nodes.table().trim_fmt())?;
        }
        if !self.profiles.is_empty() {
            writeln!(out, "\n{}", nodes::CAPTION)?;
        }
        Ok(())
    }
}

impl BatchFigures {
    fn row(&self) -> Vec<String> {
        vec![
            self.ctx.to_string(),
            self.sequences.to_string(),
            self.us_per_step.to_string(),
            format!("{:.0}", self.tokens_per_s),
            format!("{:.1}", self.tflops),
            percent(self.share_of_tensor_ceiling),
            format!("{:.0}", self.gb_per_s),
            percent(Some(self.share_of_ceiling)),
            if self.same { "the same" } else { "OTHERS" }.into(),
        ]
    }
}

impl BenchOutput for BatchReport {
    fn print(&self) -> Result<(), Failure> {
        let mut out = io::stdout().lock();
        self.header.print(
            &mut out,
            &format!("{} rounds of {} steps", self.rounds, self.tokens),
        )?;
        let mut table = Table::new();
        table.load_style(presets::ASCII_MARKDOWN).set_header([
            "ctx",
            "sequences",
            "us/step, wall: median (min - max)",
            "tokens/s",
            "TFLOPS of products",
            "of the tensor ceiling",
            "GB/s",
            "of the read ceiling",
            "tokens of the rounds",
        ]);
        table.add_rows(self.batches.iter().map(BatchFigures::row));
        for column in table.column_iter_mut() {
            column.set_cell_alignment(CellAlignment::Right);
        }
        writeln!(out, "{}", table.trim_fmt())?;
        for BatchJoin {
            ctx,
            sequences,
            prompt,
            chunk,
            step_us,
            longest_us,
            first_token_ms,
        } in &self.joins
        {
            writeln!(
                out,
                "{sequences} sequences at {ctx} positions, while a prompt of {prompt} joins, {chunk} of its tokens a \
                 step: at most {longest_us:.0} us between tokens, {:.1} times a step alone ({step_us:.0} us); its first \
                 token after {first_token_ms:.1} ms",
                longest_us / step_us
            )?;
        }
        self.print_profiles(&mut out)
    }

    fn right(&self) -> bool {
        self.batches.iter().all(|batch| batch.same)
    }
}
