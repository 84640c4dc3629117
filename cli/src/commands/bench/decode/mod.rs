//! `warpwright bench decode`: the rate of one sequence at several context lengths.
//!
//! For each context, the steps first run once in each other launch mode, to compare tokens and to
//! warm up. Then come the timed rounds. Whole tokens are timed, from the embedding to the choice
//! that the host has read.

mod args;
mod chart;
mod report;

use warpwright_engine::{Decoder, Round, StepKind};

use super::files::BenchFiles;
use super::header::BenchHeader;
use super::setup::{BenchSetup, BenchWork, CeilingKind, WARM_UP, contexts, largest, sampled};
use super::subject::ChosenModel;
use crate::failure::Failure;
use crate::model::options::Launch;
use crate::terminal::progress::Bar;
pub(crate) use args::Args;
use report::{DecodeReport, MeasuredContext};

pub(super) fn run(args: &Args) -> Result<(), Failure> {
    let chosen = args.model.choose()?;
    let files = BenchFiles {
        model: chosen.path(),
        json: &args.json,
    };
    files.deliver_with_plot(args.plot.as_deref(), chart::draw, || measure(args, &chosen))
}

fn measure(args: &Args, chosen: &ChosenModel<'_>) -> Result<DecodeReport, Failure> {
    let mut subject = chosen.open()?;
    let mut adapter = None;
    if let Some(folder) = &args.adapter {
        (subject, adapter) = subject.read_adapter(folder)?;
    }

    let contexts = contexts(&args.ctx, args.rounds.tokens, subject.outline())?;
    let work = BenchWork {
        ctx: largest(&contexts),
        launch: args.rounds.launch,
        tokens: tokens(args, contexts.len()),
    };
    let mut setup = BenchSetup::new(
        subject,
        &args.rounds.device,
        args.rounds.settings(),
        &work,
        CeilingKind::Read,
    )?;
    let (header, measured) = measure_contexts(args, &setup, &contexts)?;
    let mut report = DecodeReport::new(args, header, setup.outline(), &measured);
    if let Some(adapter) = adapter {
        setup.subject.apply(adapter);
        let measured = measure_contexts(args, &setup, &contexts)?.1;
        report.add_adapter(args, setup.outline(), &measured);
    }

    Ok(report)
}

/// Returns the least number of tokens of everything that is measured.
fn tokens(args: &Args, contexts: usize) -> u64 {
    let models = 1 + u64::from(args.adapter.is_some());
    // Each round decodes twice, and each other mode launches one.
    2 * models
        * contexts as u64
        * (u64::from(args.rounds.rounds) + Launch::Graph.others().count() as u64)
        * u64::from(args.rounds.tokens)
}

fn measure_contexts(
    args: &Args,
    setup: &BenchSetup,
    contexts: &[u32],
) -> Result<(BenchHeader, Vec<MeasuredContext>), Failure> {
    let mut decoder = setup.decoder(setup.options(contexts[0], args.rounds.launch))?;
    let rounds = args.rounds.rounds as usize + 1 + args.rounds.launch.others().count();
    let progress = Bar::of_steps(contexts.len() * rounds);
    let mut all = vec![];
    for &ctx in contexts {
        let measured;
        (decoder, measured) = measure_context(args, setup, ctx, decoder, &progress)?;
        all.push(measured);
    }

    Ok((BenchHeader::new(setup, &decoder), all))
}

fn measure_context(
    args: &Args,
    setup: &BenchSetup,
    ctx: u32,
    mut decoder: Decoder,
    progress: &Bar,
) -> Result<(Decoder, MeasuredContext), Failure> {
    let outline = setup.outline();
    let round = |decoder: &mut Decoder, tokens| -> Result<Round, Failure> {
        progress.inc(1);
        Ok(decoder.round(ctx, tokens)?)
    };
    let mut others = vec![];
    for launch in args.rounds.launch.others() {
        decoder = sampled(decoder.with_options(outline, setup.options(ctx, launch))?)?;
        others.push((launch, round(&mut decoder, args.rounds.tokens)?));
    }

    decoder = sampled(decoder.with_options(outline, setup.options(ctx, args.rounds.launch))?)?;
    round(&mut decoder, args.rounds.tokens.min(WARM_UP))?;
    let rounds = (0..args.rounds.rounds)
        .map(|_| round(&mut decoder, args.rounds.tokens))
        .collect::<Result<_, _>>()?;
    let nodes = decoder.launches(StepKind::Decode);
    Ok((
        decoder,
        MeasuredContext {
            ctx,
            others,
            rounds,
            nodes,
        },
    ))
}
