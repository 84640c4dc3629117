//! The kernels of a pass as a table: what they take one after the other, and how near that is to
//! what the device can do.

use comfy_table::{CellAlignment, Table, presets};
use serde::Serialize;
use warpwright_engine::TimedNode;

use super::ceiling::Ceilings;

/// The explanation of the columns.
pub(super) const CAPTION: &str = "us: time between two events around each kernel, with its launch and without the overlap of a graph. MB: weights of \
     matrices, keys and values, each read once. TFLOPS: matrix products, also those of attention.";

/// The kernels of a pass.
#[derive(Serialize)]
pub(super) struct NodeTable {
    /// The time of all kernels.
    pub(super) us: f64,
    /// The kernels, slowest first.
    kernels: Vec<NodeRow>,
}

/// The launches of a kernel for one purpose. A kernel that does not read or multiply has no such
/// rate.
#[derive(Serialize)]
struct NodeRow {
    part: &'static str,
    kernel: String,
    launches: u32,
    us: f64,
    bytes: u64,
    gb_per_s: Option<f64>,
    share_of_ceiling: Option<f64>,
    tflops: Option<f64>,
    share_of_tensor_ceiling: Option<f64>,
    #[serde(skip)]
    operations: u64,
}

impl NodeTable {
    pub(super) fn of(timed: &[TimedNode], ceilings: Ceilings) -> NodeTable {
        let mut kernels: Vec<NodeRow> = vec![];
        for TimedNode { node, time } in timed {
            let same = |row: &NodeRow| row.part == node.role && row.kernel == node.kernel;
            let at = kernels.iter().position(same).unwrap_or_else(|| {
                kernels.push(NodeRow::new(node.role, &node.kernel));
                kernels.len() - 1
            });
            let row = &mut kernels[at];
            row.launches += 1;
            row.us += time.as_secs_f64() * 1e6;
            row.bytes += node.bytes;
            row.operations += node.operations;
        }

        for row in &mut kernels {
            row.compare(ceilings);
        }

        kernels.sort_by(|a, b| b.us.total_cmp(&a.us));
        NodeTable {
            us: kernels.iter().map(|row| row.us).sum(),
            kernels,
        }
    }

    pub(super) fn table(&self) -> Table {
        let mut table = Table::new();
        table.load_style(presets::ASCII_MARKDOWN).set_header([
            "part",
            "kernel",
            "launches",
            "us each",
            "us",
            "time",
            "MB",
            "GB/s",
            "of the read ceiling",
            "TFLOPS",
            "of the tensor ceiling",
        ]);
        table.add_rows(self.kernels.iter().map(|row| row.cells(self.us)));
        for column in table.column_iter_mut().skip(2) {
            column.set_cell_alignment(CellAlignment::Right);
        }

        table
    }
}

impl NodeRow {
    fn new(part: &'static str, kernel: &str) -> NodeRow {
        NodeRow {
            part,
            kernel: kernel.to_owned(),
            launches: 0,
            us: 0.0,
            bytes: 0,
            gb_per_s: None,
            share_of_ceiling: None,
            tflops: None,
            share_of_tensor_ceiling: None,
            operations: 0,
        }
    }

    /// Computes the rates, after all launches have been added.
    fn compare(&mut self, ceilings: Ceilings) {
        let rate = |amount: u64, scale: f64| (amount > 0).then(|| amount as f64 / self.us * scale);
        (self.gb_per_s, self.tflops) = (rate(self.bytes, 1e-3), rate(self.operations, 1e-6));
        self.share_of_ceiling = self.gb_per_s.map(|rate| rate / ceilings.gb_per_s);
        self.share_of_tensor_ceiling = ceilings.share_of_tensor(self.tflops);
    }

    fn cells(&self, all: f64) -> Vec<String> {
        vec![
            self.part.to_owned(),
            self.kernel.clone(),
            self.launches.to_string(),
            format!("{:.1}", self.us / f64::from(self.launches)),
            format!("{:.0}", self.us),
            percent(Some(self.us / all)),
            if self.bytes == 0 {
                "-".into()
            } else {
                format!("{:.2}", self.bytes as f64 / 1e6)
            },
            or_dash(self.gb_per_s, |rate| format!("{rate:.0}")),
            percent(self.share_of_ceiling),
            or_dash(self.tflops, |rate| format!("{rate:.1}")),
            percent(self.share_of_tensor_ceiling),
        ]
    }
}

fn or_dash(value: Option<f64>, text: impl Fn(f64) -> String) -> String {
    value.map_or("-".into(), text)
}

/// Formats a share in percent, or a dash if there is none.
pub(super) fn percent(share: Option<f64>) -> String {
    or_dash(share, |share| format!("{:.1} %", 100.0 * share))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use warpwright_engine::PassNode;

    use super::*;

    fn timed(role: &'static str, kernel: &str, [us, bytes, operations]: [u64; 3]) -> TimedNode {
        let node = PassNode {
            role,
            kernel: kernel.into(),
            bytes,
            operations,
        };
        TimedNode {
            node,
            time: Duration::from_micros(us),
        }
    }

    #[test]
    fn launches_of_a_kernel_for_one_purpose_are_a_row() {
        let all = [
            timed("norm", "norm", [1, 0, 0]),
            timed("o", "matmul", [10, 4_000_000, 100_000_000]),
            timed("down", "matmul", [30, 9_000_000, 600_000_000]),
            timed("o", "matmul", [10, 2_000_000, 100_000_000]),
        ];
        let nodes = NodeTable::of(
            &all,
            Ceilings {
                gb_per_s: 600.0,
                tflops: Some(40.0),
            },
        );
        let cells = |row: &NodeRow| row.cells(nodes.us).join(" | ");
        assert_eq!(nodes.us, 51.0);
        assert_eq!(
            nodes.kernels.iter().map(cells).collect::<Vec<_>>(),
            [
                "down | matmul | 1 | 30.0 | 30 | 58.8 % | 9.00 | 300 | 50.0 % | 20.0 | 50.0 %",
                "o | matmul | 2 | 10.0 | 20 | 39.2 % | 6.00 | 300 | 50.0 % | 10.0 | 25.0 %",
                "norm | norm | 1 | 1.0 | 1 | 2.0 % | - | - | - | - | -",
            ]
        );
    }

    #[test]
    fn a_device_without_a_tensor_ceiling_has_no_share_of_it() {
        let nodes = NodeTable::of(
            &[timed("o", "matmul", [10, 0, 10])],
            Ceilings {
                gb_per_s: 1.0,
                tflops: None,
            },
        );
        assert_eq!(nodes.kernels[0].share_of_tensor_ceiling, None);
        assert!(nodes.kernels[0].tflops.is_some());
    }
}
