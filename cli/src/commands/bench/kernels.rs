//! `warpwright bench kernels`: every product of the model alone, with each plan, next to reading the same
//! bytes.
//!
//! A product's kernels make a chain that goes through the model's own matrices, or copies of them,
//! until none of the first is in the second-level cache any more: each reads its matrix from
//! memory. The cold read is what one kernel that only reads needs on its own: a start and an end,
//! and the bytes at the read ceiling.

use std::io::{self, Write};
use std::time::Duration;

use clap::value_parser;
use comfy_table::{CellAlignment, Table, presets};
use serde::Serialize;
use warpwright_driver::Context;
use warpwright_engine::tuning::{self, plan_name};
use warpwright_engine::{ColdSet, Decoder, Effort, GemvKind};
use warpwright_kernels::pipeline::Plan;
use warpwright_model::info::kv_bytes_read;

use super::files::{BenchFiles, BenchReport, JsonArg};
use super::header::BenchHeader;
use super::options::{BenchDevice, DecoderSettings};
use super::setup::{BenchSetup, BenchWork, CeilingKind, contexts, largest};
use super::subject::{ChosenModel, ModelOrWeights};
use crate::device;
use crate::failure::Failure;
use crate::model::options::Launch;
use crate::terminal::progress::Bar;

#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    model: ModelOrWeights,
    /// Number of positions that attention reads [default: 4096 if they fit, or 128]
    #[arg(long, value_name = "N", value_parser = value_parser!(u32).range(1..))]
    ctx: Option<u32>,
    /// Plans to try
    #[arg(
        long,
        value_name = "PLAN,PLAN,..",
        value_delimiter = ',',
        value_parser = tuning::plan,
        default_value = PLANS
    )]
    plans: Vec<Plan>,
    #[command(flatten)]
    device: BenchDevice,
    #[command(flatten)]
    json: JsonArg,
}

/// The default plans of `--plans`.
const PLANS: &str = "1x8_first,2x2_first,2x4_first,2x4_first_prefetch6,2x5_first,2x5_first_prefetch6,2x6_first,\
                                2x6_first_prefetch6,4x1_first,4x2_first,4x3_first,8x1_first";

/// The time of a kernel that reads nothing, in microseconds.
const START: f64 = 1.9;

/// The output of `bench kernels`.
#[derive(Serialize)]
pub(super) struct KernelsReport {
    #[serde(flatten)]
    header: BenchHeader,
    ctx: u32,
    products: Vec<PlanRow>,
    /// The time of attention in a layer, at the largest context.
    attention_us: f64,
    attention_bytes: u64,
    /// The plans that do not fit the model.
    left_out: Vec<String>,
    /// The fastest plan of each product, as a value of `--plan`. Within a token, other plans may be
    /// faster.
    best: String,
}

/// The figures of a matrix product in one format, with one plan.
#[derive(Serialize)]
struct PlanRow {
    product: &'static str,
    formats: String,
    layers: usize,
    bytes: u64,
    /// The number of bytes that are read before the same matrix is read again.
    rotated: u64,
    plan: String,
    us: f64,
    gb_per_s: f64,
    share_of_ceiling: f64,
    /// The time of the cold read, computed from the read ceiling.
    cold_us: f64,
    /// The measured time of a kernel that only reads the same bytes.
    read_us: f64,
    /// Whether this is the fastest plan.
    best: bool,
}

/// The times of all products with one plan.
struct PlanTrial {
    plan: Plan,
    times: Vec<Duration>,
}

/// The times of every product, with every plan that fits the model.
struct PlanTrials {
    rotations: Vec<ColdSet>,
    tries: Vec<PlanTrial>,
    /// The plans that do not fit the model.
    left_out: Vec<String>,
}

pub(super) fn run(args: &Args) -> Result<(), Failure> {
    let chosen = args.model.choose()?;
    let files = BenchFiles {
        model: chosen.path(),
        json: &args.json,
    };
    files.deliver(|| measure(args, &chosen))
}

fn measure(args: &Args, chosen: &ChosenModel<'_>) -> Result<KernelsReport, Failure> {
    let subject = chosen.open()?;
    let settings = DecoderSettings::default();
    let contexts = contexts(args.ctx.as_slice(), settings.tokens, subject.outline())?;
    let ctx = largest(&contexts);
    let work = BenchWork {
        ctx,
        launch: Launch::Graph,
        // Kernel by kernel on the emulator.
        tokens: 1 + args.plans.len() as u64,
    };
    let setup = BenchSetup::new(subject, &args.device, settings, &work, CeilingKind::Read)?;
    let mut decoder = setup.decoder(setup.options(ctx, Launch::Graph))?;
    let header = BenchHeader::new(&setup, &decoder);
    let effort = effort(&setup.context);
    let progress = Bar::of_steps(args.plans.len());
    let alone = PlanTrials::measure(&setup, &args.plans, &mut decoder, &progress)?;
    progress.inc_length(alone.rotations.len() as u64);
    let attention = decoder.time_attention(ctx, effort)?;
    let mut products = vec![];
    for (i, rotation) in alone.rotations.iter().enumerate() {
        let read = decoder.time_read(rotation, effort)?;
        products.extend(rows(
            rotation,
            i,
            &alone.tries,
            read,
            setup.ceiling.gb_per_s,
        ));
        progress.inc(1);
    }

    let attention_bytes =
        kv_bytes_read(setup.outline(), ctx) / u64::from(setup.outline().config.layer_count());
    let attention_us = us(attention);
    let best = alone.best();
    let left_out = alone.left_out;
    Ok(KernelsReport {
        header,
        ctx,
        products,
        attention_us,
        attention_bytes,
        left_out,
        best,
    })
}

impl PlanTrials {
    fn measure(
        setup: &BenchSetup,
        plans: &[Plan],
        decoder: &mut Decoder,
        progress: &Bar,
    ) -> Result<PlanTrials, Failure> {
        let effort = effort(&setup.context);
        let rotations = decoder.cold_sets(effort)?;

        // Every buffer has numbers in it then.
        decoder.round(1, 1)?;
        let mut tries = vec![];
        let mut left_out = vec![];
        for &plan in plans {
            match decoder.time_product(setup.outline(), plan, &rotations, effort)? {
                Some(times) => tries.push(PlanTrial { plan, times }),
                None => left_out.push(plan_name(plan)),
            }
            progress.inc(1);
        }

        Ok(PlanTrials {
            rotations,
            tries,
            left_out,
        })
    }

    /// Returns the fastest plan of a product, summed over all layers.
    fn fastest(&self, product: GemvKind) -> Option<Plan> {
        let whole = |of: &&PlanTrial| -> Duration {
            let both = self.rotations.iter().zip(&of.times);
            let of_product = both.filter(|(rotation, _)| rotation.product == product);
            of_product
                .map(|(rotation, time)| *time * rotation.layers as u32)
                .sum()
        };
        self.tries.iter().min_by_key(whole).map(|of| of.plan)
    }

    /// Returns the fastest plan of each product, as a value of `--plan`.
    fn best(&self) -> String {
        let part = |product: GemvKind| {
            Some(format!(
                "{}={}",
                product.name(),
                plan_name(self.fastest(product)?)
            ))
        };
        products().filter_map(part).collect::<Vec<_>>().join(",")
    }
}

/// Returns all matrix products of a token, in their order.
fn products() -> impl Iterator<Item = GemvKind> {
    GemvKind::OF_LAYER.into_iter().chain([GemvKind::Head])
}

/// Returns the effort of a measurement. On a GPU it covers four times the second-level cache. The
/// emulator has no cache and is slow.
fn effort(context: &Context) -> Effort {
    if device::is_emulator(context) {
        return Effort {
            bytes: 0,
            nodes: 0,
            launches: 1,
        };
    }
    let cache = u64::from(context.device().properties().l2_bytes);
    Effort {
        bytes: 4 * cache,
        nodes: 128,
        launches: 5,
    }
}

fn us(time: Duration) -> f64 {
    time.as_secs_f64() * 1e6
}

/// Returns the rows of a product, one for each plan.
fn rows(
    rotation: &ColdSet,
    i: usize,
    tries: &[PlanTrial],
    read: Duration,
    ceiling: f64,
) -> Vec<PlanRow> {
    let bytes = rotation.bytes as f64;
    let shortest = tries.iter().map(|of| of.times[i]).min();
    let row = |of: &PlanTrial| {
        let time = us(of.times[i]);
        PlanRow {
            product: rotation.product.name(),
            formats: rotation.formats.clone(),
            layers: rotation.layers,
            bytes: rotation.bytes,
            rotated: rotation.total_bytes(),
            plan: plan_name(of.plan),
            us: time,
            gb_per_s: bytes / time / 1e3,
            share_of_ceiling: bytes / time / 1e3 / ceiling,
            cold_us: START + bytes / ceiling / 1e3,
            read_us: us(read),
            best: Some(of.times[i]) == shortest,
        }
    };
    tries.iter().map(row).collect()
}

impl BenchReport for KernelsReport {
    fn print(&self) -> Result<(), Failure> {
        let mut out = io::stdout().lock();
        self.header.print(&mut out, "kernels alone")?;
        writeln!(out, "{}", self.table().trim_fmt())?;
        let rate = self.attention_bytes as f64 / self.attention_us / 1e3;
        let cold = START + self.attention_bytes as f64 / self.header.read_ceiling.gb_per_s / 1e3;
        writeln!(
            out,
            "\nattention of a layer over {} positions: {:.2} us, {:.2} MB, {rate:.0} GB/s, {:.2} x its cold read",
            self.ctx,
            self.attention_us,
            self.attention_bytes as f64 / 1e6,
            self.attention_us / cold
        )?;
        writeln!(
            out,
            "\ncold: {START} us and the bytes at the read ceiling. read: a kernel that only reads them, likewise one \
             after another.\n*: the fastest plan in this format."
        )?;
        if !self.left_out.is_empty() {
            writeln!(out, "do not fit the model: {}", self.left_out.join(", "))?;
        }

        writeln!(
            out,
            "fastest alone, over all layers: {}\nIn a token, where kernels overlap, others may be faster: \
             --plan measures whole tokens.",
            self.best
        )?;
        Ok(())
    }
}

impl KernelsReport {
    fn table(&self) -> Table {
        let mut table = Table::new();
        table.load_style(presets::ASCII_MARKDOWN).set_header([
            "product",
            "formats",
            "layers",
            "MB",
            "rotated MB",
            "plan",
            "us",
            "GB/s",
            "of ceiling",
            "x cold",
            "x read",
        ]);
        table.add_rows(self.products.iter().map(PlanRow::cells));
        for (i, column) in table.column_iter_mut().enumerate() {
            if ![0, 1, 5].contains(&i) {
                column.set_cell_alignment(CellAlignment::Right);
            }
        }

        table
    }
}

impl PlanRow {
    fn cells(&self) -> Vec<String> {
        let megabytes = |bytes: u64| format!("{:.2}", bytes as f64 / 1e6);
        let mark = if self.best { " *" } else { "" };
        vec![
            self.product.to_owned(),
            self.formats.clone(),
            self.layers.to_string(),
            megabytes(self.bytes),
            megabytes(self.rotated),
            format!("{}{mark}", self.plan),
            format!("{:.2}", self.us),
            format!("{:.0}", self.gb_per_s),
            format!("{:.1} %", 100.0 * self.share_of_ceiling),
            format!("{:.2}", self.us / self.cold_us),
            format!("{:.2}", self.us / self.read_us),
        ]
    }
}
