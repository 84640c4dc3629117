//! The report of `bench batch`, as tables and as JSON.

use std::io::{self, Write};

use comfy_table::{CellAlignment, Table, presets};
use serde::Serialize;

use crate::commands::bench::files::BenchReport;
use crate::commands::bench::header::BenchHeader;
use crate::commands::bench::node_table::{self, NodeTable, percent};
use crate::commands::bench::time_spread::TimeSpread;
use crate::failure::Failure;

/// The output of `bench batch`.
#[derive(Serialize)]
pub(super) struct BatchReport {
    #[serde(flatten)]
    pub(super) header: BenchHeader,
    pub(super) tokens: u32,
    pub(super) rounds: u32,
    /// The maximum number of sequences that are decoded by the kernels of a single one.
    pub(super) lone_rows: u32,
    /// Whether a sequence has the same bits next to any others.
    pub(super) deterministic: bool,
    pub(super) batches: Vec<BatchFigures>,
    pub(super) joins: Vec<BatchJoin>,
    pub(super) profiles: Vec<BatchProfile>,
}

/// The figures of a batch whose sequences each attend `ctx` positions at first.
///
/// Times are wall times, and the host reads the tokens of each launch.
#[derive(Serialize)]
pub(super) struct BatchFigures {
    pub(super) ctx: u32,
    pub(super) sequences: u32,
    pub(super) us_per_step: TimeSpread,
    pub(super) tokens_per_s: f64,
    /// The rate of the matrix products with weights, without attention.
    pub(super) tflops: f64,
    pub(super) share_of_tensor_ceiling: Option<f64>,
    /// The bytes of weights and of the attended keys and values per second, averaged over a round. Of
    /// experts, they are the mean if each token chooses at random.
    pub(super) gb_per_s: f64,
    pub(super) share_of_ceiling: f64,
    /// Whether all rounds generated the same tokens.
    pub(super) same: bool,
}

/// The kernels of the first step of a round, launched one after the other. The fastest round
/// counts.
#[derive(Serialize)]
pub(super) struct BatchProfile {
    pub(super) ctx: u32,
    pub(super) sequences: u32,
    #[serde(flatten)]
    pub(super) nodes: NodeTable,
}

/// The figures of a prompt that joins while sequences decode. Each step prefills some of its
/// tokens.
#[derive(Serialize)]
pub(super) struct BatchJoin {
    pub(super) ctx: u32,
    pub(super) sequences: u32,
    pub(super) prompt: u32,
    /// The number of prompt tokens in a step.
    pub(super) chunk: u32,
    /// The time of a step without the prompt, launched in the same way.
    pub(super) step_us: f64,
    /// The time of the longest step with the prompt, which is the longest wait between two tokens
    /// of a sequence.
    pub(super) longest_us: f64,
    /// The time from the first step with the prompt to its first token.
    pub(super) first_token_ms: f64,
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
            writeln!(out, "\n{}", node_table::CAPTION)?;
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

impl BenchReport for BatchReport {
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

    fn is_consistent(&self) -> bool {
        self.batches.iter().all(|batch| batch.same)
    }
}
