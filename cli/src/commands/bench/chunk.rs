//! `bench --prompt --profile`: the kernels of a prompt's first chunk, one after the other.

use std::io::{self, Write};
use std::time::Duration;

use warpwright_engine::TimedNode;

use super::nodes::{self, NodeTable};
use super::*;

/// The output of `bench --prompt --profile`.
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

pub(super) fn measure(args: &Args) -> Result<ChunkReport, Failure> {
    let setup = BenchSetup::new(args)?;
    let options = setup.options(1, args.launch);
    let default = Options::new(1, args.launch.into());
    let longest = args
        .prompt
        .iter()
        .copied()
        .max()
        .expect("clap gives prompts");
    let mut decoder = setup.decoder(Options {
        ctx: longest,
        prefill_batch: 1,
        chunk: default.chunk,
        ..options
    })?;
    let header = BenchHeader::new(&setup, &decoder);
    let mut chunk = |&tokens: &u32| -> Result<ChunkFigures, Failure> {
        let rounds = (0..args.rounds)
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
        .prompt
        .iter()
        .map(&mut chunk)
        .collect::<Result<_, _>>()?;
    Ok(ChunkReport {
        header,
        rounds: args.rounds,
        chunks,
    })
}

impl BenchOutput for ChunkReport {
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
        writeln!(out, "{}", nodes::CAPTION)?;
        Ok(())
    }
}
