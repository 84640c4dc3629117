//! `bench --prompt`: how fast prompts are prefilled, in chunks and few tokens at a time.

use std::io::{self, Write};

use comfy_table::{CellAlignment, Table, presets};
use warpwright_engine::Prefill;

use super::report::Spread;
use super::*;

/// Prompts, by how many of their tokens are prefilled at a time.
#[derive(Serialize)]
pub(super) struct Report {
    #[serde(flatten)]
    header: Header,
    launch: String,
    rounds: u32,
    prompts: Vec<Prompt>,
}

/// Times are on the device, from the first launch until the token after the prompt is made.
#[derive(Serialize)]
struct Prompt {
    /// Of the prompt.
    tokens: u32,
    /// Tokens at a time.
    at_once: u32,
    us_per_token: Spread,
    tokens_per_s: f64,
    /// Of the products with weights, attention left out.
    tflops: f64,
    /// The token after the prompt, in each round.
    next: Vec<u32>,
}

pub(super) fn measure(args: &Args) -> Result<Report, Failure> {
    let setup = Setup::new(args)?;
    let longest = args.prompt.iter().copied().max().expect("clap gives prompts");
    let options = |prefill_batch, chunks| {
        let options = setup.options(1, args.launch);
        Options { ctx: longest, prefill_batch, chunks, ..options }
    };
    let default = Options::new(1, args.launch.into());
    let mut decoder = setup.decoder(options(default.prefill_batch, true))?;
    let header = Header::new(&setup, &decoder);
    // In chunks if there are kernels for that, and otherwise token by token, for comparison.
    let few = decoder.prefill_batch();
    let chunked = decoder.at_once(longest) > few;
    let ways = if chunked { [(few, true), (few, false)] } else { [(few, false), (1, false)] };
    let mut prompts = vec![];
    for (batch, chunks) in ways {
        decoder = decoder.with_options(setup.outline(), options(batch, chunks))?;
        for &tokens in &args.prompt {
            // The first is to warm up.
            let mut rounds =
                (0..=args.rounds).map(|_| -> Result<Prefill, Failure> { Ok(decoder.time_prefill(tokens)?) });
            rounds.next().expect("there is one")?;
            let rounds = rounds.collect::<Result<Vec<_>, _>>()?;
            prompts.push(Prompt::new(setup.outline(), decoder.at_once(tokens), tokens, &rounds));
        }
    }
    Ok(Report { header, launch: report::name(args.launch), rounds: args.rounds, prompts })
}

/// Prints the kernels of a chunk of each prompt: how often each is launched, and how long all launches take.
pub(super) fn profile(args: &Args) -> Result<(), Failure> {
    let setup = Setup::new(args)?;
    let options = setup.options(1, args.launch);
    let longest = args.prompt.iter().copied().max().expect("clap gives prompts");
    let mut decoder = setup.decoder(Options { ctx: longest, prefill_batch: 1, chunks: true, ..options })?;
    let mut out = io::stdout().lock();
    for &tokens in &args.prompt {
        let profile = decoder.profile_chunk(tokens)?;
        let mut kernels: Vec<(&str, u32, f64)> = vec![];
        for row in &profile.rows {
            let us = row.time.as_secs_f64() * 1e6;
            match kernels.iter_mut().find(|(name, ..)| *name == row.name) {
                Some((_, count, sum)) => (*count, *sum) = (*count + 1, *sum + us),
                None => kernels.push((&row.name, 1, us)),
            }
        }
        kernels.sort_by(|a, b| b.2.total_cmp(&a.2));
        let all = profile.time().as_secs_f64() * 1e6;
        writeln!(out, "the first chunk of {tokens} tokens, kernel by kernel: {all:.0} us")?;
        let mut table = Table::new();
        table.load_style(presets::ASCII_MARKDOWN).set_header(["kernel", "launches", "us each", "us", "time"]);
        table.add_rows(kernels.into_iter().map(|(name, count, us)| {
            let each = format!("{:.1}", us / f64::from(count));
            [name.into(), count.to_string(), each, format!("{us:.0}"), format!("{:.1} %", 100.0 * us / all)]
        }));
        table.column_iter_mut().skip(1).for_each(|column| column.set_cell_alignment(CellAlignment::Right));
        writeln!(out, "{}\n", table.trim_fmt())?;
    }
    Ok(())
}

impl Prompt {
    fn new(outline: &Outline, at_once: u32, tokens: u32, rounds: &[Prefill]) -> Prompt {
        let us_per_token = Spread::of(tokens, rounds.iter().map(|round| round.device));
        let flops = 2.0 * warpwright_engine::info::layer_weights(outline) as f64;
        Prompt {
            tokens,
            at_once,
            tokens_per_s: 1e6 / us_per_token.median,
            tflops: flops / us_per_token.median * 1e-6,
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
            next.iter().map(u32::to_string).collect::<Vec<_>>().join(", "),
        ]
    }
}

impl Shown for Report {
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
            "next token",
        ]);
        table.add_rows(self.prompts.iter().map(Prompt::row));
        table.column_iter_mut().for_each(|column| column.set_cell_alignment(CellAlignment::Right));
        writeln!(out, "{}", table.trim_fmt())?;
        Ok(())
    }

    /// Whether all rounds of a prompt gave the same token. Other numbers of tokens at once may round otherwise.
    fn right(&self) -> bool {
        self.prompts.iter().all(|prompt| prompt.next.iter().all(|next| *next == prompt.next[0]))
    }
}
