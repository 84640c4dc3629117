//! The tables of figures in README.md and BENCHMARKS.md, and the chart, from files that
//! `warpwright bench --json` wrote.
//!
//! `benchmarks/README.md` explains the files. An unknown field is an error, so that a change of the
//! report format is noticed here.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use serde::Deserialize;
use serde::de::{DeserializeOwned, IgnoredAny};

use crate::chart::{BarChart, BarGroup};
use crate::paths;

/// A file that `bench --json` wrote.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct SavedBenchReport {
    warpwright: String,
    date: String,
    device: MeasuredDevice,
    model: String,
    random_weights: bool,
    path: String,
    plan: Option<String>,
    loading: Option<IgnoredAny>,
    read_ceiling: Ceiling,
    launch: String,
    tokens: usize,
    rounds: usize,
    contexts: Vec<ContextMeasurement>,
}

#[derive(Deserialize, PartialEq)]
#[serde(deny_unknown_fields)]
struct MeasuredDevice {
    name: String,
    emulator: bool,
    compute_capability: String,
    memory_bytes: u64,
    driver: String,
    cuda: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Ceiling {
    gb_per_s: f64,
    bytes: u64,
    kernel: String,
    blocks: u32,
}

/// The figures for one context length.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ContextMeasurement {
    ctx: u32,
    wall_us: MeasuredSpread,
    device_us: MeasuredSpread,
    tokens_per_s: f64,
    tokens_per_s_limit: f64,
    weight_bytes: u64,
    kv_bytes: u64,
    gb_per_s: f64,
    share_of_ceiling: f64,
    nodes: usize,
    other_tokens: Vec<String>,
    first_tokens: Vec<u32>,
}

/// The microseconds per token over all rounds.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct MeasuredSpread {
    median: f64,
    min: f64,
    max: f64,
}

/// The conditions of a measurement that a report does not contain.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ReportConditions {
    /// The name of the GPU in the tables.
    card: String,
    /// The version of the NVIDIA driver.
    driver: String,
    commit: String,
    source: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
/// The figures of other engines.
struct Peers {
    source: String,
    models: Vec<PeerRow>,
}

/// A row of the tables, with the tokens per second of other engines.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct PeerRow {
    /// The name of the model in the reports of `bench`.
    model: String,
    title: String,
    llama_cpp: Option<f64>,
    torch_compile: Option<f64>,
}

/// The newest measurement of a GPU.
struct Measurement {
    folder: String,
    conditions: ReportConditions,
    reports: Vec<SavedBenchReport>,
}

/// The contents of `benchmarks/`.
struct Benchmarks {
    peers: Peers,
    /// The newest measurement of each GPU, in the order of their names.
    measurements: Vec<Measurement>,
}

/// The context length of the figures in README.md.
const README_CTX: u32 = 128;

/// Returns the table in README.md, which compares tokens per second with other engines.
pub(crate) fn readme() -> Result<String> {
    Ok(Benchmarks::read()?.comparison())
}

/// Returns the chart in README.md as SVG. It shows the rates of the table.
pub(crate) fn chart() -> Result<String> {
    Ok(Benchmarks::read()?.chart().svg())
}

/// Returns the tables in BENCHMARKS.md, with the conditions under which they were measured.
pub(crate) fn benchmarks() -> Result<String> {
    let Benchmarks {
        peers,
        measurements,
    } = Benchmarks::read()?;
    let tables: Vec<_> = measurements
        .iter()
        .map(|measurement| measurement.table(&peers))
        .collect();
    Ok(tables.join("\n"))
}

impl Benchmarks {
    /// Reads and checks all files.
    fn read() -> Result<Benchmarks> {
        let folder = paths::root().join("benchmarks");
        let all = Benchmarks {
            peers: read(&folder.join("peers.json"))?,
            measurements: measurements(&folder)?,
        };
        all.check().context("benchmarks")?;
        Ok(all)
    }

    /// Checks that each reported model has a row in the tables.
    fn check(&self) -> Result<()> {
        ensure!(
            !self.measurements.is_empty(),
            "there is no folder DATE-CARD"
        );
        ensure!(
            !self.peers.source.is_empty(),
            "peers.json: `source` is empty"
        );
        let known = |report: &SavedBenchReport| {
            self.peers
                .models
                .iter()
                .any(|peer| peer.model == report.model)
        };
        for report in self
            .measurements
            .iter()
            .flat_map(|measurement| &measurement.reports)
        {
            ensure!(
                known(report),
                "peers.json has no row for {:?}",
                report.model
            );
        }

        Ok(())
    }

    /// Returns the table that compares engines.
    fn comparison(&self) -> String {
        let cards: String = self
            .measurements
            .iter()
            .map(|m| format!(" Warpwright, {} |", m.conditions.card))
            .collect();
        let limits: String = self
            .measurements
            .iter()
            .map(|m| format!(" {}'s memory allows |", m.conditions.card))
            .collect();
        let columns = "---|".repeat(2 * self.measurements.len());
        let head = format!(
            "| |{cards} llama.cpp, best variant | torch.compile |{limits}\n|---|---|---|{columns}\n"
        );
        self.peers
            .models
            .iter()
            .fold(head, |table, peer| table + &self.row(peer))
    }

    /// Returns a chart with a group for each model and a bar for each engine.
    fn chart(&self) -> BarChart {
        let cards = self
            .measurements
            .iter()
            .map(|m| format!("Warpwright, {}", m.conditions.card));
        let group = |peer: &PeerRow| {
            let ours = self.measurements.iter().map(|m| {
                m.figures(&peer.model, README_CTX)
                    .map(|figures| figures.tokens_per_s)
            });
            BarGroup {
                label: peer.title.clone(),
                values: ours.chain([peer.llama_cpp, peer.torch_compile]).collect(),
            }
        };
        BarChart {
            title: "Decoding at batch 1: tokens per second".into(),
            series: cards
                .chain(["llama.cpp, best variant".into(), "torch.compile".into()])
                .collect(),
            groups: self.peers.models.iter().map(group).collect(),
        }
    }

    /// Returns the row of a model.
    fn row(&self, peer: &PeerRow) -> String {
        let figures = || {
            self.measurements
                .iter()
                .map(|m| m.figures(&peer.model, README_CTX))
        };
        let rates = figures().map(|found| found.map(|figures| figures.tokens_per_s));
        let limits = figures().map(|found| found.map(|figures| figures.tokens_per_s_limit));
        let rates = rates
            .chain([peer.llama_cpp, peer.torch_compile])
            .chain(limits);
        let cells: Vec<String> = rates.map(cell).collect();
        format!("| {} | {} |\n", peer.title, cells.join(" | "))
    }
}

/// Formats a rate without decimals, or `-` if there is none.
fn cell(rate: Option<f64>) -> String {
    rate.map_or("-".into(), |rate| thousands(rate.round() as u64))
}

/// Formats a number with commas, such as `12,345`.
fn thousands(n: u64) -> String {
    if n < 1000 {
        n.to_string()
    } else {
        format!("{},{:03}", thousands(n / 1000), n % 1000)
    }
}

impl Measurement {
    /// Reads and checks the files in a folder.
    fn read(root: &Path, folder: String) -> Result<Measurement> {
        let path = root.join(&folder);
        let files = names(&path)?
            .into_iter()
            .filter(|name| name != "conditions.json");
        let reports: Vec<SavedBenchReport> = files
            .map(|file| report(&path.join(file)))
            .collect::<Result<_>>()?;
        let read = Measurement {
            conditions: read(&path.join("conditions.json"))?,
            folder,
            reports,
        };
        read.check().with_context(|| path.display().to_string())?;
        Ok(read)
    }

    /// Checks that the reports belong together.
    ///
    /// The table prints device and conditions once, so they must be equal in all reports.
    fn check(&self) -> Result<()> {
        let Some((first, others)) = self.reports.split_first() else {
            anyhow::bail!("there are no reports")
        };

        for report in others {
            ensure!(
                report.device == first.device,
                "{} ran on another device",
                report.model
            );
            ensure!(
                report.work() == first.work(),
                "{} did not measure the same",
                report.model
            );
        }

        let models: Vec<&str> = self.reports.iter().map(|report| &*report.model).collect();
        let twice = models
            .iter()
            .enumerate()
            .find(|(i, model)| models[..*i].contains(model));
        ensure!(
            twice.is_none(),
            "two reports of {}",
            twice.map_or("", |(_, model)| model)
        );
        Ok(())
    }

    /// Returns the figures of a model for a context length.
    fn figures(&self, model: &str, ctx: u32) -> Option<&ContextMeasurement> {
        self.report(model)?
            .contexts
            .iter()
            .find(|figures| figures.ctx == ctx)
    }

    /// Returns the report of a model.
    fn report(&self, model: &str) -> Option<&SavedBenchReport> {
        self.reports.iter().find(|report| report.model == model)
    }

    /// Returns the conditions and the table of a measurement.
    fn table(&self, peers: &Peers) -> String {
        let mut out = format!("{}\n\n", self.title());
        out += "| model | ctx | us per token: median (min - max) | tokens/s | weights + KV, MB | GB/s | of the ceiling | nodes |\n";
        out += "|---|---|---|---|---|---|---|---|\n";
        for peer in &peers.models {
            let figures = self
                .report(&peer.model)
                .into_iter()
                .flat_map(|report| &report.contexts);
            out.extend(figures.map(|figures| figures.row(&peer.title)));
        }

        out
    }

    /// Returns the conditions as text.
    fn title(&self) -> String {
        let ReportConditions {
            driver,
            commit,
            source,
            ..
        } = &self.conditions;
        let first = &self.reports[0];
        let MeasuredDevice {
            name,
            compute_capability,
            memory_bytes,
            cuda,
            ..
        } = &first.device;
        let memory = memory_bytes / 1_000_000_000;
        let date = first.day();
        format!(
            "{name} (compute capability {compute_capability}, {memory} GB), driver {driver}, CUDA {cuda}, {date}, \
             commit {commit}, version {}: {}. {}. From `benchmarks/{}/`: {source}.",
            first.warpwright,
            first.work(),
            self.ceiling(),
            self.folder
        )
    }

    /// Returns the measured read bandwidth, and the kernel that measured it.
    fn ceiling(&self) -> String {
        let all = || self.reports.iter().map(|report| &report.read_ceiling);
        let rates = || all().map(|ceiling| ceiling.gb_per_s / 1e3);
        let low = rates().fold(f64::MAX, f64::min);
        let high = rates().fold(0.0, f64::max);
        let mut grids: Vec<_> = all()
            .map(|Ceiling { kernel, blocks, .. }| format!("`{kernel}` x {blocks}"))
            .collect();
        grids.sort();
        grids.dedup();
        let bytes = all().map(|ceiling| ceiling.bytes >> 20).min().unwrap_or(0);
        format!(
            "Read ceiling {low:.2} to {high:.2} TB/s ({bytes} MiB, {})",
            grids.join(", ")
        )
    }
}

impl SavedBenchReport {
    /// Returns the work that was measured. It is the same in all reports of a measurement.
    fn work(&self) -> String {
        let weights = if self.random_weights {
            "random weights, "
        } else {
            ""
        };
        let SavedBenchReport {
            path,
            launch,
            rounds,
            tokens,
            ..
        } = self;
        format!(
            "{weights}{path}, launched as {launch}, {rounds} rounds of {tokens} tokens, wall time with each token read back"
        )
    }

    /// Returns the date without the time.
    fn day(&self) -> &str {
        self.date.split('T').next().unwrap_or_default()
    }

    /// Checks that the report is fit for publication and agrees with itself.
    fn check(&self) -> Result<()> {
        ensure!(
            !self.device.emulator,
            "the emulator's times say nothing about a GPU"
        );
        ensure!(
            self.plan.is_none(),
            "measured with --plan; the tables show what decodes by itself"
        );
        ensure!(
            self.random_weights == self.loading.is_none(),
            "a file is loaded, random weights are not"
        );
        ensure!(!self.device.driver.is_empty(), "the driver has no name");
        for figures in &self.contexts {
            figures
                .check(self)
                .with_context(|| format!("context {}", figures.ctx))?;
        }

        Ok(())
    }
}

impl ContextMeasurement {
    /// Checks that the derived figures follow from the measured ones as in `bench`.
    fn check(&self, report: &SavedBenchReport) -> Result<()> {
        ensure!(
            self.other_tokens.is_empty(),
            "tokens differ: {}",
            self.other_tokens.join(", ")
        );
        ensure!(
            self.first_tokens.len() == report.tokens.min(16),
            "the first tokens are missing"
        );
        ensure!(
            self.wall_us.in_order() && self.device_us.in_order(),
            "a median outside minimum and maximum"
        );
        let bytes = (self.weight_bytes + self.kv_bytes) as f64;
        let ceiling = report.read_ceiling.gb_per_s;
        let derived = [
            ("tokens_per_s", self.tokens_per_s, 1e6 / self.wall_us.median),
            (
                "tokens_per_s_limit",
                self.tokens_per_s_limit,
                ceiling * 1e9 / bytes,
            ),
            ("gb_per_s", self.gb_per_s, bytes / self.wall_us.median / 1e3),
            (
                "share_of_ceiling",
                self.share_of_ceiling,
                self.gb_per_s / ceiling,
            ),
        ];
        for (name, found, expected) in derived {
            // `bench` prints all digits, so only the order of operations can differ.
            let close = (found - expected).abs() <= 1e-9 * expected;
            ensure!(
                close,
                "{name} is {found}, but follows from the others as {expected}"
            );
        }

        Ok(())
    }

    /// Returns the row of the table.
    fn row(&self, title: &str) -> String {
        let megabytes = |bytes: u64| bytes as f64 / 1e6;
        let MeasuredSpread { median, min, max } = self.wall_us;
        format!(
            "| {title} | {} | {median:.1} ({min:.1} - {max:.1}) | {:.1} | {:.1} + {:.1} | {:.1} | {:.1} % | {} |\n",
            self.ctx,
            self.tokens_per_s,
            megabytes(self.weight_bytes),
            megabytes(self.kv_bytes),
            self.gb_per_s,
            100.0 * self.share_of_ceiling,
            self.nodes
        )
    }
}

impl MeasuredSpread {
    /// Returns true if the median is between minimum and maximum.
    fn in_order(&self) -> bool {
        self.min <= self.median && self.median <= self.max
    }
}

/// Returns the newest measurement of each GPU.
fn measurements(root: &Path) -> Result<Vec<Measurement>> {
    let mut newest = BTreeMap::new();
    // The names begin with the date and are sorted, so the newest folder of each GPU is kept.
    for folder in names(root)?
        .into_iter()
        .filter(|name| root.join(name).is_dir())
    {
        let read = Measurement::read(root, folder)?;
        newest.insert(read.conditions.card.clone(), read);
    }
    Ok(newest.into_values().collect())
}

/// Returns the sorted names of the files in a folder.
fn names(folder: &Path) -> Result<Vec<String>> {
    let entries =
        fs::read_dir(folder).with_context(|| format!("cannot read {}", folder.display()))?;
    let name = |entry: std::io::Result<fs::DirEntry>| {
        Ok(entry?.file_name().to_string_lossy().into_owned())
    };
    let mut names: Vec<String> = entries.map(name).collect::<Result<_>>()?;
    names.sort();
    Ok(names)
}

/// Reads and checks a report.
fn report(path: &Path) -> Result<SavedBenchReport> {
    let report: SavedBenchReport = read(path)?;
    report.check().with_context(|| path.display().to_string())?;
    Ok(report)
}

/// Reads a JSON file.
fn read<T: DeserializeOwned>(path: &Path) -> Result<T> {
    let text =
        fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
    serde_json::from_str(&text).with_context(|| path.display().to_string())
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    /// A report as `bench --json` writes it.
    fn example() -> Value {
        let spread = json!({ "median": 1000.0, "min": 999.0, "max": 1001.0 });
        json!({
            "warpwright": "0.1.0", "date": "2026-01-02T03:04:05Z", "model": "a q8_0", "random_weights": true,
            "device": {
                "name": "G", "emulator": false, "compute_capability": "9.0", "memory_bytes": 2_000_000_000u64,
                "driver": "libcuda.so.1", "cuda": "13.0",
            },
            "path": "p", "plan": null, "loading": null, "launch": "graph", "tokens": 2, "rounds": 1,
            "read_ceiling": { "gb_per_s": 4000.0, "bytes": 1 << 20, "kernel": "read", "blocks": 1 },
            "contexts": [{
                "ctx": 128, "wall_us": spread, "device_us": spread, "tokens_per_s": 1000.0,
                "tokens_per_s_limit": 2000.0, "weight_bytes": 1_999_000_000u64, "kv_bytes": 1_000_000u64,
                "gb_per_s": 2000.0, "share_of_ceiling": 0.5, "nodes": 7, "other_tokens": [],
                "first_tokens": [3, 4],
            }],
        })
    }

    fn read_back(report: Value) -> String {
        let read = serde_json::from_value::<SavedBenchReport>(report).map_err(anyhow::Error::from);
        read.and_then(|report| report.check())
            .map_or_else(|error| format!("{error:#}"), |()| "good".into())
    }

    #[test]
    fn a_report_is_known_to_the_last_field_and_agrees_with_itself() {
        let with = |place: &str, value: Value| {
            let mut report = example();
            let (parent, field) = place.rsplit_once('/').expect("a path");
            report.pointer_mut(parent).expect("a place")[field] = value;
            read_back(report)
        };
        assert_eq!(read_back(example()), "good");
        assert!(with("/new", json!(1)).starts_with("unknown field `new`"));
        assert!(with("/contexts/0/new", json!(1)).starts_with("unknown field `new`"));
        assert!(with("/device/new", json!(1)).starts_with("unknown field `new`"));
        let found = with("/contexts/0/tokens_per_s", json!(1001.0));
        assert_eq!(
            found,
            "context 128: tokens_per_s is 1001, but follows from the others as 1000"
        );
        let found = with("/contexts/0/other_tokens", json!(["round 2", "eager"]));
        assert_eq!(found, "context 128: tokens differ: round 2, eager");
        assert_eq!(
            with("/device/emulator", json!(true)),
            "the emulator's times say nothing about a GPU"
        );
    }

    #[test]
    fn a_card_has_two_columns_and_a_model_a_row() {
        let report = serde_json::from_value(example()).expect("a report");
        let conditions =
            json!({ "card": "G1", "driver": "1.2", "commit": "abc", "source": "a test" });
        let conditions = serde_json::from_value(conditions).expect("conditions");
        let measurement = Measurement {
            folder: "2026-01-02-g1".into(),
            conditions,
            reports: vec![report],
        };
        let peers = json!({ "source": "a test", "models": [
            { "model": "a q8_0", "title": "A Q8_0", "llama_cpp": 1234.4, "torch_compile": null },
            { "model": "b", "title": "B", "llama_cpp": null, "torch_compile": 5 },
        ]});
        let peers = serde_json::from_value(peers).expect("peers");
        let all = Benchmarks {
            peers,
            measurements: vec![measurement],
        };
        assert!(all.check().is_ok());
        assert_eq!(
            all.comparison(),
            "| | Warpwright, G1 | llama.cpp, best variant | torch.compile | G1's memory allows |\n\
             |---|---|---|---|---|\n| A Q8_0 | 1,000 | 1,234 | - | 2,000 |\n| B | - | - | 5 | - |\n"
        );
        let table = all.measurements[0].table(&all.peers);
        assert!(table.ends_with(
            "| A Q8_0 | 128 | 1000.0 (999.0 - 1001.0) | 1000.0 | 1999.0 + 1.0 | 2000.0 | 50.0 % | 7 |\n"
        ));
    }

    #[test]
    fn numbers_have_commas_between_thousands() {
        assert_eq!(
            [0, 999, 1000, 1_234_567].map(thousands),
            ["0", "999", "1,000", "1,234,567"]
        );
    }
}
