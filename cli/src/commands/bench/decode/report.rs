//! The report of `bench decode`, as a table and as JSON.

use std::io::{self, Write};
use std::path::Path;

use comfy_table::{CellAlignment, Table, presets};
use serde::Serialize;
use warpwright_engine::Round;
use warpwright_engine::info::{adapter_bytes, token_bytes};
use warpwright_model::Outline;
use warpwright_model::info::kv_bytes_read;

use super::args::Args;
use crate::commands::bench::ceiling::BandwidthCeiling;
use crate::commands::bench::files::BenchReport;
use crate::commands::bench::header::BenchHeader;
use crate::commands::bench::time_spread::TimeSpread;
use crate::failure::Failure;
use crate::model::options::Launch;

/// The rounds of a context length.
pub(super) struct MeasuredContext {
    pub(super) ctx: u32,
    /// A round in each of the other launch modes.
    pub(super) others: Vec<(Launch, Round)>,
    pub(super) rounds: Vec<Round>,
    pub(super) nodes: usize,
}

/// The output of `bench decode`.
#[derive(Serialize)]
pub(super) struct DecodeReport {
    #[serde(flatten)]
    header: BenchHeader,
    launch: String,
    /// Whether tokens were sampled.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    sampled: bool,
    tokens: u32,
    rounds: u32,
    pub(super) contexts: Vec<ContextFigures>,
}

/// The figures of a context length.
///
/// Bytes are read per token: all weights, and the keys and values of the attended positions,
/// averaged over a round.
#[derive(Serialize)]
pub(super) struct ContextFigures {
    pub(super) ctx: u32,
    /// The bytes of the adapter, if there is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    adapter_bytes: Option<u64>,
    /// The rate, as a share of the rate without the adapter.
    #[serde(skip_serializing_if = "Option::is_none")]
    share_of_base: Option<f64>,
    wall_us: TimeSpread,
    device_us: TimeSpread,
    pub(super) tokens_per_s: f64,
    /// The rate that the read ceiling allows.
    pub(super) tokens_per_s_limit: f64,
    weight_bytes: u64,
    kv_bytes: u64,
    gb_per_s: f64,
    share_of_ceiling: f64,
    nodes: usize,
    /// The rounds and launch modes that generated other tokens than the first round.
    other_tokens: Vec<String>,
    first_tokens: Vec<u32>,
}

impl BenchReport for DecodeReport {
    fn print(&self) -> Result<(), Failure> {
        let mut out = io::stdout().lock();
        let sampled = if self.sampled { "sampled, " } else { "" };
        let work = format!(
            "{sampled}{}, {} rounds of {} tokens",
            self.launch, self.rounds, self.tokens
        );
        self.header.print(&mut out, &work)?;
        writeln!(out, "{}", self.table().trim_fmt())?;
        Ok(())
    }

    /// Returns true if all launch modes and rounds gave the same tokens.
    fn is_consistent(&self) -> bool {
        self.contexts
            .iter()
            .all(|figures| figures.other_tokens.is_empty())
    }
}

impl DecodeReport {
    pub(super) fn new(
        args: &Args,
        header: BenchHeader,
        outline: &Outline,
        measured: &[MeasuredContext],
    ) -> DecodeReport {
        let figures = |m| ContextFigures::new(m, args, outline, &header.read_ceiling);
        DecodeReport {
            launch: args.rounds.launch.name(),
            sampled: args.rounds.sample.sample,
            tokens: args.rounds.tokens,
            rounds: args.rounds.rounds,
            contexts: measured.iter().map(figures).collect(),
            header,
        }
    }

    /// Adds rows of the same contexts, with an adapter.
    pub(super) fn add_adapter(
        &mut self,
        args: &Args,
        outline: &Outline,
        measured: &[MeasuredContext],
    ) {
        let with = measured.iter().zip(&self.contexts).map(|(m, base)| {
            let figures = ContextFigures::new(m, args, outline, &self.header.read_ceiling);
            ContextFigures {
                share_of_base: Some(figures.tokens_per_s / base.tokens_per_s),
                ..figures
            }
        });
        let with: Vec<_> = with.collect();
        self.contexts.extend(with);
    }

    /// Returns the title of the plot.
    pub(super) fn title(&self) -> String {
        let BenchHeader {
            model,
            device,
            read_ceiling,
            ..
        } = &self.header;
        // The folder of the model is of no use to a reader of the chart.
        let model = Path::new(model)
            .file_name()
            .map_or(model.as_str().into(), |name| name.to_string_lossy());
        format!(
            "{model} on {}, read ceiling {:.0} GB/s",
            device.name, read_ceiling.gb_per_s
        )
    }

    fn table(&self) -> Table {
        let mut table = Table::new();
        table.load_style(presets::ASCII_MARKDOWN).set_header([
            "ctx",
            "us/token: median (min - max)",
            "on the device",
            "tokens/s",
            "weights MB",
            "KV MB",
            "GB/s",
            "of ceiling",
            "nodes",
            "tokens",
        ]);
        table.add_rows(self.contexts.iter().map(ContextFigures::row));
        for column in table.column_iter_mut().take(9) {
            column.set_cell_alignment(CellAlignment::Right);
        }

        table
    }
}

impl ContextFigures {
    fn new(
        m: &MeasuredContext,
        args: &Args,
        outline: &Outline,
        ceiling: &BandwidthCeiling,
    ) -> ContextFigures {
        let wall_us = TimeSpread::of(args.rounds.tokens, m.rounds.iter().map(|round| round.wall));

        // The first token attends `ctx` positions, each next one more.
        let read =
            (m.ctx..m.ctx + args.rounds.tokens).map(|attended| kv_bytes_read(outline, attended));
        let kv_bytes = read.sum::<u64>() / u64::from(args.rounds.tokens);

        // All of an adapter is read for each token.
        let adapter_bytes = outline.adapter.is_some().then(|| adapter_bytes(outline));
        let weight_bytes = token_bytes(outline) + adapter_bytes.unwrap_or(0);
        let gb_per_s = (weight_bytes + kv_bytes) as f64 / wall_us.median / 1e3;
        ContextFigures {
            ctx: m.ctx,
            adapter_bytes,
            share_of_base: None,
            tokens_per_s: 1e6 / wall_us.median,
            tokens_per_s_limit: ceiling.gb_per_s * 1e9 / (weight_bytes + kv_bytes) as f64,
            device_us: TimeSpread::of(
                args.rounds.tokens,
                m.rounds.iter().map(|round| round.device),
            ),
            wall_us,
            weight_bytes,
            kv_bytes,
            gb_per_s,
            share_of_ceiling: gb_per_s / ceiling.gb_per_s,
            nodes: m.nodes,
            other_tokens: m.other_tokens(),
            first_tokens: m.rounds[0].tokens.iter().take(16).copied().collect(),
        }
    }

    fn row(&self) -> Vec<String> {
        let megabytes = |bytes: u64| format!("{:.1}", bytes as f64 / 1e6);
        let ctx = match self.share_of_base {
            Some(share) => format!(
                "{} with the adapter: {:.1} % of the rate",
                self.ctx,
                100.0 * share
            ),
            None => self.ctx.to_string(),
        };
        let tokens = match &self.other_tokens[..] {
            [] => "same in all rounds and modes".to_owned(),
            others => format!("DIFFER: {}", others.join(", ")),
        };
        vec![
            ctx,
            self.wall_us.to_string(),
            self.device_us.to_string(),
            format!("{:.1}", self.tokens_per_s),
            megabytes(self.weight_bytes),
            megabytes(self.kv_bytes),
            format!("{:.1}", self.gb_per_s),
            format!("{:.1} %", 100.0 * self.share_of_ceiling),
            self.nodes.to_string(),
            tokens,
        ]
    }
}

impl MeasuredContext {
    fn other_tokens(&self) -> Vec<String> {
        let first = &self.rounds[0].tokens;
        let rounds = self
            .rounds
            .iter()
            .enumerate()
            .map(|(i, round)| (format!("round {}", i + 1), round));
        let others = self
            .others
            .iter()
            .map(|(launch, round)| (launch.name(), round));
        rounds
            .chain(others)
            .filter(|(_, round)| round.tokens != *first)
            .map(|(name, _)| name)
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn round(tokens: &[u32], micros: u64) -> Round {
        let time = Duration::from_micros(micros);
        Round {
            tokens: tokens.into(),
            wall: time,
            device: time,
        }
    }

    #[test]
    fn rounds_and_modes_with_other_tokens_are_named() {
        let rounds = vec![round(&[1, 2], 1), round(&[1, 2], 1), round(&[1, 3], 1)];
        let others = vec![
            (Launch::Capture, round(&[1, 2], 1)),
            (Launch::Eager, round(&[2, 2], 1)),
        ];
        let mut measured = MeasuredContext {
            ctx: 1,
            others,
            rounds,
            nodes: 1,
        };
        assert_eq!(measured.other_tokens(), ["round 3", "eager"]);
        measured.rounds.pop();
        measured.others.pop();
        assert_eq!(measured.other_tokens(), [""; 0]);
    }
}
