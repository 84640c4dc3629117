//! The report of `bench profile`, as a table and as JSON.

use std::io::{self, Write};

use comfy_table::{CellAlignment, Table, presets};
use serde::Serialize;

use super::timeline::TimelineBar;
use crate::commands::bench::files::BenchReport;
use crate::commands::bench::header::BenchHeader;
use crate::failure::Failure;

/// The output of `bench profile`. Times are in microseconds.
#[derive(Serialize)]
pub(super) struct ProfileReport {
    #[serde(flatten)]
    pub(super) header: BenchHeader,
    pub(super) ctx: u32,
    pub(super) tokens: u32,
    /// Absent on the emulator.
    #[serde(flatten)]
    pub(super) times: Option<TokenTimes>,
    pub(super) kernels: Vec<KernelProfileRow>,
    /// The kernels of the last token, from the start of the first block. Empty on the emulator.
    pub(super) timeline: Vec<TimelineBar>,
}

/// The times of a token, in microseconds.
#[derive(Serialize)]
pub(super) struct TokenTimes {
    /// The time of a token with the usual kernels.
    pub(super) token_us: f64,
    /// The time of a token with the kernels that record timestamps.
    pub(super) profiled_token_us: f64,
    /// The time from the start of the first block to the end of the last one, without the embedding
    /// kernel.
    pub(super) chain_us: f64,
}

/// The kernels of one kind.
#[derive(Serialize)]
pub(super) struct KernelProfileRow {
    pub(super) part: &'static str,
    pub(super) kernel: String,
    pub(super) nodes: usize,
    pub(super) bytes: u64,
    /// Absent on the emulator.
    #[serde(flatten)]
    pub(super) times: Option<ProfileRowTimes>,
}

/// Medians over the kernels of one kind, and their places on the device.
#[derive(Serialize)]
pub(super) struct ProfileRowTimes {
    pub(super) us: f64,
    pub(super) gb_per_s: f64,
    pub(super) share_of_ceiling: f64,
    /// The time from the end of the previous kernel to the first activations.
    pub(super) gap_us: f64,
    /// The time from the first weights to the end of the previous kernel. It is negative if they
    /// arrive later.
    pub(super) ahead_us: f64,
    /// The share of blocks whose first weights arrived before the end of the previous kernel.
    pub(super) ahead_blocks: f64,
    pub(super) multiprocessors: usize,
    /// The largest number of blocks of the kernel on one multiprocessor.
    pub(super) most_on_one: usize,
}

impl BenchReport for ProfileReport {
    fn print(&self) -> Result<(), Failure> {
        let mut out = io::stdout().lock();
        self.header.print(
            &mut out,
            &format!(
                "kernels of {} tokens from context {} on",
                self.tokens, self.ctx
            ),
        )?;
        let Some(times) = &self.times else {
            writeln!(out, "{}", self.table().trim_fmt())?;
            writeln!(
                out,
                "\nMB: read by each node. The emulator does not measure time, so there are no times."
            )?;
            return Ok(());
        };

        writeln!(
            out,
            "taking times slows decoding: {:.1} us a token instead of {:.1} ({:+.1} %)",
            times.profiled_token_us,
            times.token_us,
            100.0 * (times.profiled_token_us / times.token_us - 1.0)
        )?;
        writeln!(
            out,
            "from the first block's begin to the last one's end: {:.1} us; times are multiples of some 256 ns\n",
            times.chain_us
        )?;
        writeln!(out, "{}", self.table().trim_fmt())?;
        writeln!(
            out,
            "\nus: from the end of the kernel before to its end. gap: from there to its first activations.\n\
             ahead: from its first weights (keys, values) to the end of the kernel before, and in how many blocks they \
             came before that.\nmost on one: blocks of the kernel on one multiprocessor."
        )?;
        Ok(())
    }
}

impl ProfileReport {
    fn table(&self) -> Table {
        let mut header = vec!["part", "kernel", "nodes", "MB"];
        if self.times.is_some() {
            header.extend([
                "us",
                "us a token",
                "GB/s",
                "of ceiling",
                "gap us",
                "ahead us",
                "in blocks",
                "processors",
                "most on one",
            ]);
        }

        let mut table = Table::new();
        table.load_style(presets::ASCII_MARKDOWN).set_header(header);
        table.add_rows(self.kernels.iter().map(KernelProfileRow::cells));
        for column in table.column_iter_mut().skip(2) {
            column.set_cell_alignment(CellAlignment::Right);
        }

        table
    }
}

impl KernelProfileRow {
    fn cells(&self) -> Vec<String> {
        let mut cells = vec![
            self.part.to_owned(),
            self.kernel.clone(),
            self.nodes.to_string(),
            format!("{:.2}", self.bytes as f64 / 1e6),
        ];
        if let Some(times) = &self.times {
            cells.extend([
                format!("{:.2}", times.us),
                format!("{:.1}", times.us * self.nodes as f64),
                format!("{:.0}", times.gb_per_s),
                format!("{:.1} %", 100.0 * times.share_of_ceiling),
                format!("{:.2}", times.gap_us),
                format!("{:.2}", times.ahead_us),
                format!("{:.0} %", 100.0 * times.ahead_blocks),
                times.multiprocessors.to_string(),
                times.most_on_one.to_string(),
            ]);
        }
        cells
    }
}
