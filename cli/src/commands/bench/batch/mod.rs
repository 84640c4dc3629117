//! `warpwright bench batch`: how fast sequences are decoded together, and how long a prompt that joins keeps
//! them waiting.

mod args;
mod report;

use std::time::{Duration, Instant};

use warpwright_engine::info::step_bytes;
use warpwright_engine::{Batch, BatchOptions, SequenceId};
use warpwright_kernels::shared::cache::PAGE;
use warpwright_model::Outline;
use warpwright_model::info::{head_weights, kv_bytes_read, layer_weights};

use super::files::BenchFiles;
use super::header::BenchHeader;
use super::node_table::NodeTable;
use super::setup::{
    BenchSetup, BenchWork, CeilingKind, WARM_UP, contexts, largest, usual_sampling,
};
use super::subject::{BenchSubject, ChosenModel};
use super::time_spread::TimeSpread;
use crate::failure::Failure;
use crate::model::options::Launch;
pub(crate) use args::Args;
use args::MAX_BATCH;
use report::{BatchFigures, BatchJoin, BatchProfile, BatchReport};

/// The number of steps without the prompt, for comparison with the steps that prefill a part of it.
const ALONE: u32 = 8;

pub(super) fn run(args: &Args) -> Result<(), Failure> {
    let chosen = args.model.choose()?;
    let files = BenchFiles {
        model: chosen.path(),
        json: &args.json,
    };
    files.deliver(|| measure(args, &chosen))
}

fn measure(args: &Args, chosen: &ChosenModel<'_>) -> Result<BatchReport, Failure> {
    let subject = chosen.open()?;
    let contexts = contexts(&args.ctx, args.tokens, subject.outline())?;
    let work = BenchWork {
        ctx: largest(&contexts),
        launch: Launch::Graph,
        tokens: contexts.iter().map(|&ctx| tokens(args, ctx)).sum(),
    };
    let setup = BenchSetup::new(
        subject,
        &args.device,
        args.settings(),
        &work,
        CeilingKind::ReadAndTensor,
    )?;
    let mut batch = load(args, &setup, options(args, &setup, work.ctx)?)?;
    let header = BenchHeader::of_batch(&setup);
    let mut batches = vec![];
    let mut joins = vec![];
    let mut profiles = vec![];
    for &ctx in &contexts {
        for &sequences in &args.sequences {
            let all = fill(args, &mut batch, &setup, sequences, ctx)?;
            batches.push(decode(args, &mut batch, &setup, &all, ctx)?);
            if args.profile {
                let nodes = NodeTable::of(&batch.profile(&all, args.rounds)?, setup.ceilings());
                profiles.push(BatchProfile {
                    ctx,
                    sequences,
                    nodes,
                });
            }

            if let Some(prompt) = args.join {
                joins.push(join(args, &mut batch, &setup, &all, [ctx, prompt])?);
            }

            all.iter().try_for_each(|&(id, _)| batch.leave(id))?;
        }
    }

    Ok(BatchReport {
        header,
        tokens: args.tokens,
        rounds: args.rounds,
        lone_rows: args.lone_rows,
        deterministic: args.deterministic,
        batches,
        joins,
        profiles,
    })
}

/// Loads the model.
fn load(args: &Args, setup: &BenchSetup, options: BatchOptions) -> Result<Batch, Failure> {
    let options = BatchOptions {
        choice: setup.settings.choice,
        lone_rows: args.lone_rows,
        rounding: args.rounding(),
        ..options
    };
    Ok(match &setup.subject {
        BenchSubject::File(model) => Batch::new(&setup.context, model, options, |_| ())?,
        BenchSubject::Random { outline, .. } => Batch::random(&setup.context, outline, options)?,
    })
}

/// Returns the options of a batch that fits the largest number of sequences, the largest context
/// and the joining prompt.
fn options(args: &Args, setup: &BenchSetup, ctx: u32) -> Result<BatchOptions, Failure> {
    let limit = setup.outline().config.context;
    let most = largest(&args.sequences);
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
fn tokens(args: &Args, ctx: u32) -> u64 {
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
    args.sequences.iter().map(of_batch).sum()
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
    args: &Args,
    batch: &mut Batch,
    setup: &BenchSetup,
    sequences: u32,
    ctx: u32,
) -> Result<Vec<(SequenceId, u32)>, Failure> {
    let mut all = vec![];
    for sequence in 0..sequences {
        let id = batch.join()?;
        let ids = ids(setup.outline(), sequence, ctx);
        if args.sample.sample {
            batch.set_sampling(id, &usual_sampling())?;
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
    args: &Args,
    batch: &mut Batch,
    setup: &BenchSetup,
    all: &[(SequenceId, u32)],
    ctx: u32,
) -> Result<BatchFigures, Failure> {
    let tokens = args.tokens;
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
    let rounds = (0..args.rounds)
        .map(|_| round(tokens))
        .collect::<Result<Vec<_>, _>>()?;
    let us_per_step = TimeSpread::of(tokens, rounds.iter().map(|(time, _)| *time));
    let outline = setup.outline();
    let sequences = all.len() as u32;
    let mean = |of: &dyn Fn(u32) -> u64| {
        (0..tokens).map(|i| of(ctx + i) as f64).sum::<f64>() / f64::from(tokens)
    };
    let bytes = step_bytes(outline, sequences) as f64
        + f64::from(sequences) * mean(&|n| kv_bytes_read(outline, n));
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
    args: &Args,
    batch: &mut Batch,
    setup: &BenchSetup,
    all: &[(SequenceId, u32)],
    [ctx, prompt]: [u32; 2],
) -> Result<BatchJoin, Failure> {
    let chunk = args.join_chunk;
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
