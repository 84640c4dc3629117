//! `warpwright bench chunk`: the kernels of a prompt's first chunk, one after the other.

use std::io::{self, Write};
use std::time::Duration;

use serde::Serialize;
use warpwright_engine::{Options, TimedNode};

use super::files::{BenchFiles, BenchReport, JsonArg};
use super::header::BenchHeader;
use super::node_table::{self, NodeTable};
use super::options::{DEFAULT_TOKENS, PrefillArgs};
use super::setup::{BenchSetup, BenchWork, CeilingKind, contexts, largest};
use super::subject::{ChosenModel, ModelOrWeights};
use crate::failure::Failure;
use crate::model::options::Launch;

#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    model: ModelOrWeights,
    #[command(flatten)]
    prompts: PrefillArgs,
    #[command(flatten)]
    json: JsonArg,
}

pub(super) fn run(args: &Args) -> Result<(), Failure> {
    let chosen = args.model.choose()?;
    let files = BenchFiles {
        model: chosen.path(),
        json: &args.json,
    };
    files.deliver(|| measure(args, &chosen))
}

/// The output of `bench chunk`.
#[derive(Serialize)]
pub(super) struct ChunkReport {
    #[serde(flatten)]
    header: BenchHeader,
    rounds: u32,
    chunks: Vec<ChunkFigures>,
}

/// The first chunk of a prompt, in its fastest round.
#[derive(Serialize)]
struct ChunkFigures {
    /// The number of tokens in the prompt.
    tokens: u32,
    #[serde(flatten)]
    nodes: NodeTable,
}

fn measure(args: &Args, chosen: &ChosenModel<'_>) -> Result<ChunkReport, Failure> {
    let subject = chosen.open()?;

    // The kernels of a chunk are launched one by one, whatever the method of other steps is.
    let launch = Launch::Graph;
    let work = BenchWork {
        ctx: largest(&contexts(&[], DEFAULT_TOKENS, subject.outline())?),
        launch,
        tokens: args.prompts.work(),
    };
    let setup = BenchSetup::new(
        subject,
        &args.prompts.device,
        args.prompts.settings(),
        &work,
        CeilingKind::ReadAndTensor,
    )?;
    let options = setup.options(1, launch);
    let default = Options::new(1, launch.into());
    let mut decoder = setup.decoder(Options {
        ctx: args.prompts.longest(),
        prefill_batch: 1,
        chunk: default.chunk,
        ..options
    })?;
    let header = BenchHeader::new(&setup, &decoder);
    let mut chunk = |&tokens: &u32| -> Result<ChunkFigures, Failure> {
        let rounds = (0..args.prompts.rounds)
            .map(|_| decoder.profile_chunk(tokens))
            .collect::<Result<Vec<_>, _>>()?;
        let time = |round: &&Vec<TimedNode>| round.iter().map(|node| node.time).sum::<Duration>();
        let fastest = rounds.iter().min_by_key(time).expect("clap gives rounds");
        Ok(ChunkFigures {
            tokens,
            nodes: NodeTable::of(fastest, setup.ceilings()),
        })
    };
    let chunks = args
        .prompts
        .tokens
        .iter()
        .map(&mut chunk)
        .collect::<Result<_, _>>()?;
    Ok(ChunkReport {
        header,
        rounds: args.prompts.rounds,
        chunks,
    })
}

impl BenchReport for ChunkReport {
    fn print(&self) -> Result<(), Failure> {
        let mut out = io::stdout().lock();
        self.header.print(
            &mut out,
            &format!("kernels of a chunk, the fastest of {} rounds", self.rounds),
        )?;
        for ChunkFigures { tokens, nodes } in &self.chunks {
            writeln!(
                out,
                "the first chunk of {tokens} tokens, kernel by kernel: {:.0} us",
                nodes.us
            )?;
            writeln!(out, "{}\n", nodes.table().trim_fmt())?;
        }

        writeln!(out, "{}", node_table::CAPTION)?;
        Ok(())
    }
}
