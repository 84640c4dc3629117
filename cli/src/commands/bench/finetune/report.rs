//! The report of `bench finetune`, as tables and as JSON.

use std::io::{self, Write};

use comfy_table::{CellAlignment, Table, presets};
use serde::Serialize;
use warpwright_train::step::TrainingNeeds;

use crate::commands::bench::files::BenchReport;
use crate::commands::bench::header::BenchHeader;
use crate::commands::bench::node_table::percent;
use crate::commands::bench::time_spread::TimeSpread;
use crate::failure::Failure;
use crate::training::mebibytes;

/// The output of `bench finetune`.
#[derive(Serialize)]
pub(super) struct FinetuneReport {
    #[serde(flatten)]
    pub(super) header: BenchHeader,
    pub(super) precision: &'static str,
    pub(super) rank: usize,
    pub(super) steps: u32,
    pub(super) shapes: Vec<FinetuneFigures>,
}

/// The figures of steps with one micro-batch of this shape. Times are wall times, and the host
/// waits for each step.
#[derive(Serialize)]
pub(super) struct FinetuneFigures {
    pub(super) batch: u32,
    pub(super) seq: u32,
    pub(super) ms_per_step: TimeSpread,
    /// The time of a step that is launched kernel by kernel.
    pub(super) eager_ms_per_step: TimeSpread,
    pub(super) graph_speedup: f64,
    pub(super) tokens_per_s: f64,
    pub(super) nodes: usize,
    /// The rate of all matrix products.
    pub(super) tflops: f64,
    pub(super) share_of_tensor_ceiling: Option<f64>,
    pub(super) memory: FinetuneMemory,
    /// The first step in which the graph and the single kernels computed different losses or norms,
    /// with both results.
    pub(super) differs: Option<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) kernels: Vec<FinetuneKernel>,
}

/// The memory of a training step, in bytes.
#[derive(Serialize)]
pub(super) struct FinetuneMemory {
    pub(super) weights: u64,
    pub(super) adapters: u64,
    pub(super) activations: u64,
    pub(super) head: u64,
    pub(super) workspace: u64,
    /// The free memory of the device that the trainer took.
    pub(super) taken: u64,
}

/// The launches of a kernel in a part of the step that access the same number of bytes.
#[derive(Serialize)]
pub(super) struct FinetuneKernel {
    pub(super) part: &'static str,
    pub(super) kernel: String,
    pub(super) launches: u32,
    pub(super) us: f64,
    /// The bytes of the tensors in one launch.
    pub(super) bytes: u64,
    pub(super) gb_per_s: f64,
}

impl FinetuneMemory {
    pub(super) fn of(needs: &TrainingNeeds, taken: u64) -> FinetuneMemory {
        let TrainingNeeds {
            weights,
            adapters,
            activations,
            head,
            workspace,
        } = *needs;
        FinetuneMemory {
            weights,
            adapters,
            activations,
            head,
            workspace,
            taken,
        }
    }
}

impl FinetuneFigures {
    fn row(&self) -> Vec<String> {
        vec![
            format!("{} x {}", self.batch, self.seq),
            self.ms_per_step.to_string(),
            self.eager_ms_per_step.to_string(),
            format!("{:.3}", self.graph_speedup),
            format!("{:.0}", self.tokens_per_s),
            self.nodes.to_string(),
            format!("{:.1}", self.tflops),
            percent(self.share_of_tensor_ceiling),
            self.differs.clone().unwrap_or_else(|| "the same".into()),
        ]
    }

    fn memory_row(&self) -> Vec<String> {
        let FinetuneMemory {
            weights,
            adapters,
            activations,
            head,
            workspace,
            taken,
        } = self.memory;
        let all = weights + adapters + activations + head + workspace;
        let sizes = [weights, adapters, activations, head, workspace, all, taken].map(mebibytes);
        std::iter::once(format!("{} x {}", self.batch, self.seq))
            .chain(sizes)
            .collect()
    }

    fn kernels(&self) -> Table {
        let all: f64 = self.kernels.iter().map(|row| row.us).sum();
        let mut table = table(&[
            "part", "kernel", "launches", "us each", "us", "time", "MB each", "GB/s",
        ]);
        table.add_rows(self.kernels.iter().map(|row| {
            vec![
                row.part.to_owned(),
                row.kernel.clone(),
                row.launches.to_string(),
                format!("{:.1}", row.us / f64::from(row.launches)),
                format!("{:.0}", row.us),
                percent(Some(row.us / all)),
                format!("{:.2}", row.bytes as f64 * 1e-6),
                format!("{:.0}", row.gb_per_s),
            ]
        }));
        for column in table.column_iter_mut().skip(2) {
            column.set_cell_alignment(CellAlignment::Right);
        }

        table
    }
}

impl BenchReport for FinetuneReport {
    fn print(&self) -> Result<(), Failure> {
        let mut out = io::stdout().lock();
        self.header
            .print(&mut out, &format!("{} steps of each kind", self.steps))?;
        let mut steps = table(&[
            "rows x tokens",
            "ms a step, wall: median (min - max)",
            "kernel by kernel",
            "the graph is faster by",
            "tokens/s",
            "nodes",
            "TFLOPS",
            "of the tensor ceiling",
            "losses and norms",
        ]);
        steps.add_rows(self.shapes.iter().map(FinetuneFigures::row));
        let mut memory = table(&[
            "rows x tokens",
            "frozen weights",
            "adapters",
            "activations",
            "logits",
            "workspace",
            "all",
            "taken of the device",
        ]);
        memory.add_rows(self.shapes.iter().map(FinetuneFigures::memory_row));
        for mut table in [steps, memory] {
            for column in table.column_iter_mut() {
                column.set_cell_alignment(CellAlignment::Right);
            }
            writeln!(out, "{}\n", table.trim_fmt())?;
        }

        for figures in self
            .shapes
            .iter()
            .filter(|figures| !figures.kernels.is_empty())
        {
            let us: f64 = figures.kernels.iter().map(|row| row.us).sum();
            writeln!(
                out,
                "{} x {}, kernel by kernel: {us:.0} us",
                figures.batch, figures.seq
            )?;
            writeln!(out, "{}\n", figures.kernels().trim_fmt())?;
        }

        Ok(())
    }

    fn is_consistent(&self) -> bool {
        self.shapes.iter().all(|figures| figures.differs.is_none())
    }
}

fn table(header: &[&str]) -> Table {
    let mut table = Table::new();
    table.load_style(presets::ASCII_MARKDOWN).set_header(header);
    table
}
