//! `warpwright check`: compares every kernel with its CPU reference, to find out whether a GPU and
//! its driver work.

use std::io::{self, Write};

use comfy_table::{Table, presets};
use warpwright_kernels::ALL;

use crate::device::kernel_check::{self, CaseResult};
use crate::device::{self, DeviceChoice};
use crate::failure::Failure;
use crate::terminal::progress::Bar;

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Device to check: auto, cuda:N or emu (the CPU emulator)
    #[arg(long, value_name = "DEVICE", default_value_t = DeviceChoice::Auto, hide_possible_values = true)]
    device: DeviceChoice,
    /// Print a line for each kernel, with its case that is closest to its error bound
    #[arg(long)]
    list: bool,
}

pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    let context = device::open(args.device)?;
    let mut results = Vec::new();
    let bar = Bar::of_steps(ALL.len());
    let end = bar
        .wrap_iter(ALL.iter())
        .try_for_each(|kernel| kernel_check::check(&context, *kernel, &mut results));
    drop(bar);
    let mut out = io::stdout().lock();
    let failures: Vec<_> = results.iter().filter(|result| !result.passed()).collect();
    let kernels = results.chunk_by(|a, b| a.kernel == b.kernel).count();
    let failed = failures.len();
    let cases = results.len();
    writeln!(
        out,
        "{}: {failed} of {cases} cases of {kernels} kernels failed",
        context.device()
    )?;
    for failure in &failures {
        writeln!(out, "{failure}")?;
    }
    if args.list {
        writeln!(out, "\n{}", table(&results).trim_fmt())?;
    }

    // An error of the device is returned only now, so that the cases before it are printed.
    end?;
    if failures.is_empty() {
        Ok(())
    } else {
        Err(Failure::Shown)
    }
}

/// Returns a table with a row for each kernel, which shows the case that is closest to its bound.
fn table(results: &[CaseResult]) -> Table {
    let mut table = Table::new();
    let header = [
        "kernel",
        "cases",
        "shapes of the worst",
        "error",
        "bound",
        "result",
    ];
    table.load_style(presets::ASCII_MARKDOWN).set_header(header);
    table.add_rows(results.chunk_by(|a, b| a.kernel == b.kernel).map(row));
    table
}

/// Returns the row of a kernel with these cases.
fn row(cases: &[CaseResult]) -> [String; 6] {
    // A bound of 0 demands equality. The error 0 is handled first, because 0 / 0 is NaN and would
    // sort last.
    let share = |case: &CaseResult| {
        if case.found.error == 0.0 {
            0.0
        } else {
            case.found.error / case.bound
        }
    };
    let worst = cases
        .iter()
        .max_by(|a, b| share(a).total_cmp(&share(b)))
        .expect("a chunk has at least one case");
    let failed = cases.iter().filter(|case| !case.passed()).count();
    let result = if failed == 0 {
        "pass".to_owned()
    } else {
        format!("FAIL ({failed})")
    };
    [
        worst.kernel.clone(),
        cases.len().to_string(),
        short(&worst.label),
        format!("{:.1e}", worst.found.error),
        format!("{:.1e}", worst.bound),
        result,
    ]
}

/// The length up to which the table shows the label of a case. The line of a failure has the whole
/// label.
const LABEL: usize = 60;

/// Shortens a label so that it fits into the table.
fn short(label: &str) -> String {
    if label.chars().count() <= LABEL {
        return label.to_owned();
    }
    let start: String = label.chars().take(LABEL - 2).collect();
    format!("{start}..")
}
