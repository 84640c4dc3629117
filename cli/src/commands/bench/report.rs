//! What `bench` found, as a table and as JSON.

use std::io::{self, Write};
use std::time::{Duration, SystemTime};

use clap::ValueEnum;
use comfy_table::{CellAlignment, Table, presets};
use serde::Serialize;
use warpwright_engine::Loading;
use warpwright_engine::info::adapter_bytes;

use super::*;

/// The rounds of a context length.
pub(super) struct MeasuredContext {
    pub(super) ctx: u32,
    /// A round in each of the other launch modes.
    pub(super) others: Vec<(Launch, Round)>,
    pub(super) rounds: Vec<Round>,
    pub(super) nodes: usize,
}

/// The conditions of the measurement.
#[derive(Serialize)]
pub(super) struct BenchHeader {
    warpwright: &'static str,
    date: String,
    device: DeviceFacts,
    model: String,
    random_weights: bool,
    /// The verb for the work of the kernels.
    #[serde(skip)]
    verb: &'static str,
    /// The kernels that were used.
    path: String,
    /// The value of `--plan`.
    plan: Option<String>,
    /// The times of loading a file.
    loading: Option<LoadingTimes>,
    pub(super) read_ceiling: BandwidthCeiling,
    #[serde(skip_serializing_if = "Option::is_none")]
    tensor_ceiling: Option<TensorCeiling>,
}

/// The output of `bench` without another mode.
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

/// The device of the measurement.
#[derive(Serialize)]
struct DeviceFacts {
    name: String,
    emulator: bool,
    compute_capability: String,
    memory_bytes: usize,
    driver: String,
    cuda: String,
}

/// The times from the start of loading until each part was ready, in seconds.
#[derive(Serialize)]
struct LoadingTimes {
    #[serde(skip)]
    loading: Loading,
    bytes: u64,
    weights_s: f64,
    kernels_s: f64,
    graphs_s: f64,
    gb_per_s: f64,
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

/// The median and the range of a time over the rounds, in microseconds unless the field has another
/// unit.
#[derive(Serialize)]
pub(super) struct TimeSpread {
    pub(super) median: f64,
    min: f64,
    max: f64,
}

impl BenchHeader {
    pub(super) fn new(setup: &BenchSetup, decoder: &Decoder) -> BenchHeader {
        BenchHeader::of(setup, decoder.path().to_string(), Some(*decoder.loading()))
    }

    pub(super) fn of_batch(setup: &BenchSetup) -> BenchHeader {
        BenchHeader::of(
            setup,
            "products on tensor cores, attention over pages".into(),
            None,
        )
    }

    pub(super) fn of_training(setup: &BenchSetup, path: String) -> BenchHeader {
        BenchHeader {
            verb: "trained",
            ..BenchHeader::of(setup, path, None)
        }
    }

    fn of(setup: &BenchSetup, path: String, loading: Option<Loading>) -> BenchHeader {
        let (model, random_weights) = match &setup.subject {
            BenchSubject::File(model) => (model.files.path().display().to_string(), false),
            BenchSubject::Random { name, .. } => (name.clone(), true),
        };
        BenchHeader {
            warpwright: env!("CARGO_PKG_VERSION"),
            date: humantime::format_rfc3339_seconds(SystemTime::now()).to_string(),
            device: DeviceFacts::of(&setup.context),
            model,
            random_weights,
            verb: "decoded",
            path,
            plan: setup.args.plan.map(|plan| plan.to_string()),
            loading: loading.filter(|_| !random_weights).map(LoadingTimes::from),
            read_ceiling: setup.ceiling.clone(),
            tensor_ceiling: setup.tensor_ceiling.clone(),
        }
    }

    /// Prints the conditions. `work` names the measurement.
    pub(super) fn print(&self, out: &mut impl Write, work: &str) -> Result<(), Failure> {
        let d = &self.device;
        let c = &self.read_ceiling;
        writeln!(
            out,
            "{}, {}, CUDA {}, {}",
            d.name, d.driver, d.cuda, self.date
        )?;
        if d.emulator {
            writeln!(
                out,
                "The times are the emulator's: they say nothing about a GPU."
            )?;
        }
        let weights = if self.random_weights {
            ", random weights"
        } else {
            ""
        };
        writeln!(out, "{}{weights}, {work}", self.model)?;
        let plan = self
            .plan
            .as_ref()
            .map(|plan| format!(", plan {plan}"))
            .unwrap_or_default();
        writeln!(out, "{} by {}{plan}", self.verb, self.path)?;
        if let Some(LoadingTimes { loading, .. }) = &self.loading {
            writeln!(out, "{loading}")?;
        }
        let mebibytes = c.bytes >> 20;
        writeln!(
            out,
            "read ceiling: {:.1} GB/s ({mebibytes} MiB, {}, {} blocks)",
            c.gb_per_s, c.kernel, c.blocks
        )?;
        if let Some(TensorCeiling {
            tflops,
            kernel,
            blocks,
        }) = &self.tensor_ceiling
        {
            writeln!(
                out,
                "tensor ceiling: {tflops:.1} TFLOPS ({kernel}, {blocks} blocks)"
            )?;
        }
        writeln!(out)?;
        Ok(())
    }
}

impl BenchOutput for DecodeReport {
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
    fn right(&self) -> bool {
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
            launch: name(args.launch),
            sampled: args.sample,
            tokens: args.tokens,
            rounds: args.rounds,
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
        let model = std::path::Path::new(model)
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

impl DeviceFacts {
    fn of(context: &Context) -> DeviceFacts {
        let device = context.device();
        let (major, minor) = device.compute_capability();
        let (cuda, point) = device.driver().version();
        DeviceFacts {
            name: device.name().to_owned(),
            emulator: device::is_emulator(context),
            compute_capability: format!("{major}.{minor}"),
            memory_bytes: device.total_memory(),
            driver: device.driver().origin().to_owned(),
            cuda: format!("{cuda}.{point}"),
        }
    }
}

impl From<Loading> for LoadingTimes {
    fn from(loading: Loading) -> LoadingTimes {
        LoadingTimes {
            loading,
            bytes: loading.bytes,
            weights_s: loading.weights.as_secs_f64(),
            kernels_s: loading.kernels.as_secs_f64(),
            graphs_s: loading.graphs.as_secs_f64(),
            gb_per_s: loading.rate() / 1e9,
        }
    }
}

impl ContextFigures {
    fn new(
        m: &MeasuredContext,
        args: &Args,
        outline: &Outline,
        ceiling: &BandwidthCeiling,
    ) -> ContextFigures {
        let wall_us = TimeSpread::of(args.tokens, m.rounds.iter().map(|round| round.wall));
        // The first token attends `ctx` positions, each next one more.
        let read = (m.ctx..m.ctx + args.tokens).map(|attended| kv_bytes_read(outline, attended));
        let kv_bytes = read.sum::<u64>() / u64::from(args.tokens);
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
            device_us: TimeSpread::of(args.tokens, m.rounds.iter().map(|round| round.device)),
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
            .map(|(launch, round)| (name(*launch), round));
        rounds
            .chain(others)
            .filter(|(_, round)| round.tokens != *first)
            .map(|(name, _)| name)
            .collect()
    }
}

impl TimeSpread {
    pub(super) fn of(tokens: u32, times: impl Iterator<Item = Duration>) -> TimeSpread {
        let mut us: Vec<f64> = times
            .map(|time| time.as_secs_f64() * 1e6 / f64::from(tokens))
            .collect();
        us.sort_by(f64::total_cmp);
        let middle = us.len() / 2;
        let last = us.len() - 1;
        TimeSpread {
            median: (us[middle] + us[last - middle]) / 2.0,
            min: us[0],
            max: us[last],
        }
    }
}

impl TimeSpread {
    /// Returns the spread in another unit.
    pub(super) fn scaled(self, factor: f64) -> TimeSpread {
        TimeSpread {
            median: factor * self.median,
            min: factor * self.min,
            max: factor * self.max,
        }
    }
}

impl std::fmt::Display for TimeSpread {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let digits = if self.median < 10.0 { 2 } else { 1 };
        write!(
            f,
            "{:.digits$} ({:.digits$} - {:.digits$})",
            self.median, self.min, self.max
        )
    }
}

/// Returns the name of a launch mode on the command line.
pub(super) fn name(launch: Launch) -> String {
    launch
        .to_possible_value()
        .expect("no mode is hidden")
        .get_name()
        .to_owned()
}

#[cfg(test)]
mod tests {
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
    fn a_spread_is_of_the_time_of_a_token() {
        let spread = |micros: &[u64]| {
            TimeSpread::of(10, micros.iter().map(|&us| Duration::from_micros(us))).to_string()
        };
        assert_eq!(spread(&[40]), "4.00 (4.00 - 4.00)");
        assert_eq!(spread(&[90, 10, 30]), "3.00 (1.00 - 9.00)");
        assert_eq!(spread(&[90, 10, 30, 20]), "2.50 (1.00 - 9.00)");
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
