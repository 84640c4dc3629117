//! `warpwright bench prompt`: how fast prompts are prefilled, in chunks and few tokens at a time.

use std::io::{self, Write};

use comfy_table::{CellAlignment, Table, presets};
use serde::Serialize;
use warpwright_engine::{Options, Prefill};
use warpwright_model::Outline;
use warpwright_model::info::{chunked_multiplications, kv_bytes_read, layer_bytes, layer_weights};

use super::files::{BenchFiles, BenchReport, JsonArg};
use super::header::BenchHeader;
use super::node_table::percent;
use super::options::{DEFAULT_TOKENS, PrefillArgs};
use super::setup::{BenchSetup, BenchWork, CeilingKind, contexts, largest};
use super::subject::{ChosenModel, ModelOrWeights};
use super::time_spread::TimeSpread;
use crate::failure::Failure;
use crate::model::options::Launch;

#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    model: ModelOrWeights,
    #[command(flatten)]
    prompts: PrefillArgs,
    /// Method that submits each step to the device
    #[arg(help_heading = "Device", long, value_enum, default_value_t = Launch::Graph)]
    launch: Launch,
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

/// The output of `bench prompt`.
#[derive(Serialize)]
pub(super) struct PromptReport {
    #[serde(flatten)]
    header: BenchHeader,
    launch: String,
    rounds: u32,
    prompts: Vec<PromptFigures>,
}

/// The figures of a prompt. Times are measured on the device, from the first launch to the token
/// after the prompt.
#[derive(Serialize)]
struct PromptFigures {
    /// The number of tokens in the prompt.
    tokens: u32,
    /// The number of tokens that are prefilled together.
    at_once: u32,
    us_per_token: TimeSpread,
    tokens_per_s: f64,
    /// The rate of the matrix products with weights, without attention.
    tflops: f64,
    share_of_tensor_ceiling: Option<f64>,
    /// The bytes read per second. Each launch reads the weights of the layers and all keys and
    /// values so far.
    gb_per_s: f64,
    share_of_ceiling: f64,
    /// The token after the prompt in each round.
    next: Vec<u32>,
}

fn measure(args: &Args, chosen: &ChosenModel<'_>) -> Result<PromptReport, Failure> {
    let subject = chosen.open()?;
    let work = BenchWork {
        ctx: largest(&contexts(&[], DEFAULT_TOKENS, subject.outline())?),
        launch: args.launch,
        tokens: args.prompts.work(),
    };
    let setup = BenchSetup::new(
        subject,
        &args.prompts.device,
        args.prompts.settings(),
        &work,
        CeilingKind::ReadAndTensor,
    )?;
    let longest = args.prompts.longest();
    let options = |prefill_batch, chunk| {
        let options = setup.options(1, args.launch);
        Options {
            ctx: longest,
            prefill_batch,
            chunk,
            ..options
        }
    };
    let default = Options::new(1, args.launch.into());
    let mut decoder = setup.decoder(options(default.prefill_batch, default.chunk))?;
    let header = BenchHeader::new(&setup, &decoder);

    // In chunks if there are kernels for that, and otherwise token by token, for comparison.
    let few = decoder.prefill_batch();
    let chunked = decoder.at_once(longest) > few;
    let ways = if chunked {
        [(few, default.chunk), (few, 0)]
    } else {
        [(few, 0), (1, 0)]
    };
    let mut prompts = vec![];
    for (batch, chunk) in ways {
        decoder = decoder.with_options(setup.outline(), options(batch, chunk))?;
        for &tokens in &args.prompts.tokens {
            // The first is to warm up.
            let mut rounds = (0..=args.prompts.rounds)
                .map(|_| -> Result<Prefill, Failure> { Ok(decoder.time_prefill(tokens)?) });
            rounds
                .next()
                .expect("the range contains the warm-up round")?;
            let rounds = rounds.collect::<Result<Vec<_>, _>>()?;
            let multiplications = match decoder.at_once(tokens) {
                at_once if at_once > batch => {
                    chunked_multiplications(setup.outline(), tokens, at_once)
                }
                _ => layer_weights(setup.outline()) * u64::from(tokens),
            };
            let way = PrefillMethod {
                at_once: decoder.at_once(tokens),
                multiplications,
            };
            prompts.push(PromptFigures::new(&setup, way, tokens, &rounds));
        }
    }

    Ok(PromptReport {
        header,
        launch: args.launch.name(),
        rounds: args.prompts.rounds,
        prompts,
    })
}

/// Returns the least number of bytes that must be read if `at_once` tokens are prefilled together.
fn bytes(outline: &Outline, at_once: u32, tokens: u32) -> u64 {
    let passes = 1..=tokens.div_ceil(at_once);
    let read =
        |pass| layer_bytes(outline, at_once) + kv_bytes_read(outline, tokens.min(pass * at_once));
    passes.map(read).sum()
}

/// The way in which a prompt is prefilled.
struct PrefillMethod {
    /// The number of tokens that are prefilled together.
    at_once: u32,
    /// The number of multiplications with weights of the layers.
    multiplications: u64,
}

impl PromptFigures {
    fn new(
        setup: &BenchSetup,
        way: PrefillMethod,
        tokens: u32,
        rounds: &[Prefill],
    ) -> PromptFigures {
        let PrefillMethod {
            at_once,
            multiplications,
        } = way;
        let outline = setup.outline();
        let ceilings = setup.ceilings();
        let us_per_token = TimeSpread::of(tokens, rounds.iter().map(|round| round.device));
        let us = f64::from(tokens) * us_per_token.median;
        let tflops = 2e-6 * multiplications as f64 / us;
        let gb_per_s = bytes(outline, at_once, tokens) as f64 * 1e-3 / us;
        PromptFigures {
            tokens,
            at_once,
            tokens_per_s: 1e6 / us_per_token.median,
            tflops,
            share_of_tensor_ceiling: ceilings.share_of_tensor(Some(tflops)),
            gb_per_s,
            share_of_ceiling: gb_per_s / ceilings.gb_per_s,
            us_per_token,
            next: rounds.iter().map(|round| round.token).collect(),
        }
    }

    fn row(&self) -> Vec<String> {
        let mut next = self.next.clone();
        next.dedup();
        vec![
            self.tokens.to_string(),
            self.at_once.to_string(),
            self.us_per_token.to_string(),
            format!("{:.0}", self.tokens_per_s),
            format!("{:.1}", self.tflops),
            percent(self.share_of_tensor_ceiling),
            format!("{:.0}", self.gb_per_s),
            percent(Some(self.share_of_ceiling)),
            next.iter()
                .map(u32::to_string)
                .collect::<Vec<_>>()
                .join(", "),
        ]
    }
}

impl BenchReport for PromptReport {
    fn print(&self) -> Result<(), Failure> {
        let mut out = io::stdout().lock();
        let work = format!("{}, {} rounds of each prompt", self.launch, self.rounds);
        self.header.print(&mut out, &work)?;
        let mut table = Table::new();
        table.load_style(presets::ASCII_MARKDOWN).set_header([
            "prompt",
            "tokens at once",
            "us/token on the device: median (min - max)",
            "tokens/s",
            "TFLOPS of products",
            "of the tensor ceiling",
            "GB/s",
            "of the read ceiling",
            "next token",
        ]);
        table.add_rows(self.prompts.iter().map(PromptFigures::row));
        for column in table.column_iter_mut() {
            column.set_cell_alignment(CellAlignment::Right);
        }

        writeln!(out, "{}", table.trim_fmt())?;
        Ok(())
    }

    /// Returns true if all rounds of a prompt gave the same token. Other prefill methods may round
    /// differently.
    fn is_consistent(&self) -> bool {
        self.prompts
            .iter()
            .all(|prompt| prompt.next.iter().all(|next| *next == prompt.next[0]))
    }
}
