//! `bench --profile`: a timeline of the kernels of a token, from timestamps that variants of the
//! kernels record.
//!
//! The time of a kernel runs from the end of the kernel before it to its own end, so that the times
//! of all kernels add up to the token. The first block to start, to have weights and to have
//! activations counts, and the last block to end.
//!
//! The emulator runs blocks one after the other on a few threads, so its timestamps have no
//! meaning. There, the report has the kernels and their bytes, and no times.

use std::collections::BTreeMap;
use std::io::{self, Write};

use comfy_table::{CellAlignment, Table, presets};
use warpwright_engine::{BlockTimes, KernelNode, Profile};
use warpwright_kernels::pipeline::plan::Timestamp;

use super::*;

/// The number of profiled tokens.
const TOKENS: u32 = 8;

/// The output of `bench --profile`. Times are in microseconds.
#[derive(Serialize)]
pub(super) struct ProfileReport {
    #[serde(flatten)]
    header: BenchHeader,
    ctx: u32,
    tokens: u32,
    /// Absent on the emulator.
    #[serde(flatten)]
    times: Option<TokenTimes>,
    kernels: Vec<KernelProfileRow>,
    /// The kernels of the last token, from the start of the first block. Empty on the emulator.
    pub(super) timeline: Vec<TimelineBar>,
}

/// The times of a token, in microseconds.
#[derive(Serialize)]
struct TokenTimes {
    /// The time of a token with the usual kernels.
    token_us: f64,
    /// The time of a token with the kernels that record timestamps.
    profiled_token_us: f64,
    /// The time from the start of the first block to the end of the last one, without the embedding
    /// kernel.
    chain_us: f64,
}

/// The kernels of one kind.
#[derive(Serialize)]
struct KernelProfileRow {
    part: &'static str,
    kernel: String,
    nodes: usize,
    bytes: u64,
    /// Absent on the emulator.
    #[serde(flatten)]
    times: Option<ProfileRowTimes>,
}

/// Medians over the kernels of one kind, and their places on the device.
#[derive(Serialize)]
struct ProfileRowTimes {
    us: f64,
    gb_per_s: f64,
    share_of_ceiling: f64,
    /// The time from the end of the previous kernel to the first activations.
    gap_us: f64,
    /// The time from the first weights to the end of the previous kernel. It is negative if they
    /// arrive later.
    ahead_us: f64,
    /// The share of blocks whose first weights arrived before the end of the previous kernel.
    ahead_blocks: f64,
    multiprocessors: usize,
    /// The largest number of blocks of the kernel on one multiprocessor.
    most_on_one: usize,
}

/// A kernel in the timeline of a token. Times are in microseconds.
#[derive(Serialize, Clone)]
pub(super) struct TimelineBar {
    pub(super) part: &'static str,
    pub(super) kernel: String,
    pub(super) bytes: u64,
    /// The start of the first block.
    pub(super) begun: f64,
    /// The end of the last block.
    pub(super) stored: f64,
    /// The time at which half of the blocks had their first weights.
    pub(super) landed: f64,
    /// The time at which half of the blocks had seen the end of the previous kernel.
    pub(super) waited: f64,
    /// The time at which half of the blocks had the activations.
    pub(super) ready: f64,
    /// The time at which half of the blocks had multiplied.
    pub(super) multiplied: f64,
}

pub(super) fn measure(args: &Args) -> Result<ProfileReport, Failure> {
    let setup = BenchSetup::new(args)?;
    let ctx = setup.contexts[0];
    let options = setup.options(ctx, args.launch);
    let mut decoder = setup.decoder(options)?;
    let header = BenchHeader::new(&setup, &decoder);
    let timed = !device::is_emulator(&setup.context);
    if !timed && args.plot.is_some() {
        return Err(Failure::Input(
            "--plot draws times with --profile, and the emulator does not measure time; leave out --plot, or use a GPU"
                .into(),
        ));
    }
    let token_us = if timed {
        Some(token_us(args, ctx, &mut decoder)?)
    } else {
        None
    };
    let profiling = Options {
        tuning: Tuning {
            profile: true,
            ..options.tuning
        },
        ..options
    };
    let mut decoder = decoder.with_options(setup.outline(), profiling)?;
    let profiled_token_us = if timed {
        Some(self::token_us(args, ctx, &mut decoder)?)
    } else {
        None
    };
    let tokens = args.tokens.min(TOKENS);
    let profile = decoder.profile(ctx, tokens)?;
    let last = profile.steps.last().expect("a token");
    let ceiling = timed.then_some(header.read_ceiling.gb_per_s);
    let kernels = rows(&profile, ceiling);
    let mut timeline: Vec<TimelineBar> = vec![];
    if timed {
        timeline.extend(
            profile
                .nodes
                .iter()
                .zip(last)
                .map(|(link, times)| bar(link, times, last)),
        );
    }
    let chain_us = timeline.iter().map(|bar| bar.stored).fold(0.0, f64::max);
    let times = token_us
        .zip(profiled_token_us)
        .map(|(token_us, profiled_token_us)| TokenTimes {
            token_us,
            profiled_token_us,
            chain_us,
        });
    Ok(ProfileReport {
        header,
        ctx,
        tokens,
        times,
        kernels,
        timeline,
    })
}

/// Microseconds of a token in the fastest of the rounds, on the device.
fn token_us(args: &Args, ctx: u32, decoder: &mut Decoder) -> Result<f64, Failure> {
    let mut fastest = f64::INFINITY;
    for _ in 0..args.rounds {
        let round = decoder.round(ctx, args.tokens)?;
        fastest = fastest.min(round.device.as_secs_f64() * 1e6 / f64::from(args.tokens));
    }
    Ok(fastest)
}

/// Returns the timestamps of one kind that were recorded.
fn taken(times: &BlockTimes, stamp: Timestamp) -> impl Iterator<Item = u64> {
    times
        .iter()
        .map(move |block| block[stamp as usize])
        .filter(|time| *time > 0)
}

fn begun(times: &BlockTimes) -> Option<u64> {
    taken(times, Timestamp::Begun).min()
}

fn ended(times: &BlockTimes) -> Option<u64> {
    taken(times, Timestamp::Stored).max()
}

/// Returns the difference of two timestamps in microseconds. The clock of the device counts
/// nanoseconds.
fn us(late: u64, early: u64) -> f64 {
    (late as f64 - early as f64) / 1e3
}

/// The times of one kernel in one token. The first kernel has no times relative to a previous one.
struct KernelSample {
    us: Option<f64>,
    gap: Option<f64>,
    ahead: Option<f64>,
    ahead_blocks: Option<f64>,
    multiprocessors: usize,
    most_on_one: usize,
}

impl KernelSample {
    fn of(times: &BlockTimes, before: Option<&BlockTimes>) -> KernelSample {
        let before = before.and_then(ended);
        let since = |time: Option<u64>| Some(us(time?, before?));
        let landed = || taken(times, Timestamp::Landed);
        let early = before.map(|before| landed().filter(|time| *time < before).count());
        let mut places: BTreeMap<u64, usize> = BTreeMap::new();
        for block in times.iter() {
            *places.entry(block[Timestamp::SmId as usize]).or_default() += 1;
        }
        KernelSample {
            us: since(ended(times)),
            gap: since(taken(times, Timestamp::Ready).min()),
            ahead: since(landed().min()).map(|us| -us),
            ahead_blocks: early.map(|early| early as f64 / landed().count() as f64),
            multiprocessors: places.len(),
            most_on_one: places.into_values().max().unwrap_or(0),
        }
    }
}

/// Returns a row for each kind of kernel, in the order of their first. The rows have times if there
/// is a read ceiling to compare them with, in GB/s.
fn rows(profile: &Profile, ceiling: Option<f64>) -> Vec<KernelProfileRow> {
    let mut kinds: Vec<(&KernelNode, Vec<usize>)> = vec![];
    for (i, link) in profile.nodes.iter().enumerate() {
        match kinds
            .iter_mut()
            .find(|(kind, _)| kind.role == link.role && kind.kernel == link.kernel)
        {
            Some((_, nodes)) => nodes.push(i),
            None => kinds.push((link, vec![i])),
        }
    }
    let row = |(link, nodes): (&KernelNode, Vec<usize>)| KernelProfileRow {
        part: link.role,
        kernel: link.kernel.clone(),
        nodes: nodes.len(),
        bytes: link.bytes,
        times: ceiling.map(|ceiling| row_times(link, &nodes, profile, ceiling)),
    };
    kinds.into_iter().map(row).collect()
}

fn row_times(
    link: &KernelNode,
    nodes: &[usize],
    profile: &Profile,
    ceiling: f64,
) -> ProfileRowTimes {
    let of_step = |step: &Vec<BlockTimes>| -> Vec<KernelSample> {
        let before = |i: usize| i.checked_sub(1).map(|before| &step[before]);
        nodes
            .iter()
            .map(|&i| KernelSample::of(&step[i], before(i)))
            .collect()
    };
    let samples: Vec<KernelSample> = profile.steps.iter().flat_map(of_step).collect();
    let middle =
        |of: &dyn Fn(&KernelSample) -> Option<f64>| median(samples.iter().filter_map(of).collect());
    let most = |of: &dyn Fn(&KernelSample) -> usize| samples.iter().map(of).max().unwrap_or(0);
    let us = middle(&|sample| sample.us);
    let gb_per_s = link.bytes as f64 / us / 1e3;
    ProfileRowTimes {
        us,
        gb_per_s,
        share_of_ceiling: gb_per_s / ceiling,
        gap_us: middle(&|sample| sample.gap),
        ahead_us: middle(&|sample| sample.ahead),
        ahead_blocks: middle(&|sample| sample.ahead_blocks),
        multiprocessors: most(&|sample| sample.multiprocessors),
        most_on_one: most(&|sample| sample.most_on_one),
    }
}

/// Returns the median, or NaN for an empty list.
pub(super) fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}

fn bar(link: &KernelNode, times: &BlockTimes, token: &[BlockTimes]) -> TimelineBar {
    let zero = begun(&token[0]);
    let since = |time: Option<u64>| {
        time.zip(zero)
            .map_or(f64::NAN, |(time, zero)| us(time, zero))
    };
    let half = |stamp| {
        let mut taken: Vec<u64> = taken(times, stamp).collect();
        taken.sort();
        since(taken.get(taken.len() / 2).copied())
    };
    TimelineBar {
        part: link.role,
        kernel: link.kernel.clone(),
        bytes: link.bytes,
        begun: since(begun(times)),
        stored: since(ended(times)),
        landed: half(Timestamp::Landed),
        waited: half(Timestamp::Waited),
        ready: half(Timestamp::Ready),
        multiplied: half(Timestamp::Multiplied),
    }
}

impl BenchOutput for ProfileReport {
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
    /// Draws the kernels of a token over time.
    pub(super) fn draw(&self) -> Document {
        timeline::draw(&self.timeline)
    }

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

#[cfg(test)]
mod tests {
    use super::*;

    /// A block that begins and has weights, activations and results then, on a multiprocessor.
    fn block([begun, landed, ready, stored, place]: [u64; 5]) -> [u64; 8] {
        [begun, landed, 0, 0, ready, 0, stored, place]
    }

    #[test]
    fn a_sample_is_relative_to_the_end_of_the_kernel_before() {
        let before = vec![
            block([1000, 2000, 3000, 9000, 0]),
            block([1000, 2000, 3000, 10_000, 1]),
        ];
        let times = vec![
            block([5000, 8000, 11_000, 14_000, 3]),
            block([5000, 10_500, 11_500, 15_000, 3]),
        ];
        let sample = KernelSample::of(&times, Some(&before));
        assert_eq!(
            (sample.us, sample.gap, sample.ahead),
            (Some(5.0), Some(1.0), Some(2.0))
        );
        assert_eq!(
            (
                sample.ahead_blocks,
                sample.multiprocessors,
                sample.most_on_one
            ),
            (Some(0.5), 1, 2)
        );
        assert_eq!(KernelSample::of(&times, None).us, None);
    }
}
