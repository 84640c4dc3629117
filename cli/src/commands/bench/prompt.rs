//! `bench --prompt`: how fast a prompt is prefilled, several tokens at a time and one by one.

use std::io::{self, Write};

use comfy_table::{CellAlignment, Table, presets};
use warpwright_engine::Prefill;

use super::report::Spread;
use super::*;

/// A prompt, by how many of its tokens are prefilled at a time.
#[derive(Serialize)]
pub(super) struct Report {
    #[serde(flatten)]
    header: Header,
    launch: String,
    /// Of the prompt.
    tokens: u32,
    rounds: u32,
    ways: Vec<Way>,
}

/// Times are on the device, from the first launch until the token after the prompt is made.
#[derive(Serialize)]
struct Way {
    columns: u32,
    us_per_token: Spread,
    tokens_per_s: f64,
    /// The token after the prompt, in each round.
    next: Vec<u32>,
}

pub(super) fn measure(args: &Args, tokens: u32) -> Result<Report, Failure> {
    let setup = Setup::new(args)?;
    let options = |prefill_batch| {
        let options = setup.options(1, args.launch);
        Options { ctx: tokens, prefill_batch, ..options }
    };
    let mut decoder = setup.decoder(options(Options::new(1, args.launch.into()).prefill_batch))?;
    let header = Header::new(&setup, &decoder);
    let mut ways = vec![];
    let mut columns = vec![decoder.prefill_batch(), 1];
    columns.dedup();
    for columns in columns {
        decoder = decoder.with_options(setup.outline(), options(columns))?;
        // The first is to warm up.
        let mut rounds =
            (0..=args.rounds).map(|_| -> Result<Prefill, Failure> { Ok(decoder.time_prefill(tokens)?) });
        rounds.next().expect("there is one")?;
        let rounds = rounds.collect::<Result<Vec<_>, _>>()?;
        ways.push(Way::new(columns, tokens, &rounds));
    }
    Ok(Report { header, launch: report::name(args.launch), tokens, rounds: args.rounds, ways })
}

impl Way {
    fn new(columns: u32, tokens: u32, rounds: &[Prefill]) -> Way {
        let us_per_token = Spread::of(tokens, rounds.iter().map(|round| round.device));
        Way {
            columns,
            tokens_per_s: 1e6 / us_per_token.median,
            us_per_token,
            next: rounds.iter().map(|round| round.token).collect(),
        }
    }

    fn row(&self) -> Vec<String> {
        let mut next = self.next.clone();
        next.dedup();
        vec![
            self.columns.to_string(),
            self.us_per_token.to_string(),
            format!("{:.1}", self.tokens_per_s),
            next.iter().map(u32::to_string).collect::<Vec<_>>().join(", "),
        ]
    }
}

impl Shown for Report {
    fn print(&self) -> Result<(), Failure> {
        let mut out = io::stdout().lock();
        let work = format!("{}, {} rounds of a prompt of {} tokens", self.launch, self.rounds, self.tokens);
        self.header.print(&mut out, &work)?;
        let mut table = Table::new();
        table.load_style(presets::ASCII_MARKDOWN).set_header([
            "tokens at once",
            "us/token on the device: median (min - max)",
            "tokens/s",
            "next token",
        ]);
        table.add_rows(self.ways.iter().map(Way::row));
        table.column_iter_mut().for_each(|column| column.set_cell_alignment(CellAlignment::Right));
        writeln!(out, "{}", table.trim_fmt())?;
        Ok(())
    }

    /// Whether all rounds of a way gave the same token. Ways may round otherwise.
    fn right(&self) -> bool {
        self.ways.iter().all(|way| way.next.iter().all(|next| *next == way.next[0]))
    }
}
