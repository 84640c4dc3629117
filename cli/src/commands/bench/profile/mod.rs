//! `warpwright bench profile`: a timeline of the kernels of a token, from timestamps that variants of the
//! kernels record.
//!
//! The time of a kernel runs from the end of the kernel before it to its own end, so that the times
//! of all kernels add up to the token. The first block to start, to have weights and to have
//! activations counts, and the last block to end.
//!
//! The emulator runs blocks one after the other on a few threads, so its timestamps have no
//! meaning. There, the report has the kernels and their bytes, and no times.

mod args;
mod report;
mod timeline;

use std::collections::BTreeMap;

use warpwright_engine::{BlockTimes, Decoder, KernelNode, Options, Profile, Tuning};
use warpwright_kernels::pipeline::plan::Timestamp;

use super::files::BenchFiles;
use super::header::BenchHeader;
use super::setup::{BenchSetup, BenchWork, CeilingKind, contexts, largest};
use super::subject::ChosenModel;
use crate::device;
use crate::failure::Failure;
pub(crate) use args::Args;
use report::{KernelProfileRow, ProfileReport, ProfileRowTimes, TokenTimes};
use timeline::TimelineBar;

/// The number of profiled tokens.
const TOKENS: u32 = 8;

pub(super) fn run(args: &Args) -> Result<(), Failure> {
    let chosen = args.model.choose()?;
    let files = BenchFiles {
        model: chosen.path(),
        json: &args.json,
    };
    let draw = |report: &ProfileReport| timeline::draw(&report.timeline).to_string();
    files.deliver_with_plot(args.plot.as_deref(), draw, || measure(args, &chosen))
}

fn measure(args: &Args, chosen: &ChosenModel<'_>) -> Result<ProfileReport, Failure> {
    let subject = chosen.open()?;
    let contexts = contexts(args.ctx.as_slice(), args.rounds.tokens, subject.outline())?;
    let ctx = contexts[0];
    let work = BenchWork {
        ctx: largest(&contexts),
        launch: args.rounds.launch,
        tokens: 2 * (1 + u64::from(args.rounds.rounds)) * u64::from(args.rounds.tokens),
    };
    let setup = BenchSetup::new(
        subject,
        &args.rounds.device,
        args.rounds.settings(),
        &work,
        CeilingKind::Read,
    )?;
    let options = setup.options(ctx, args.rounds.launch);
    let mut decoder = setup.decoder(options)?;
    let header = BenchHeader::new(&setup, &decoder);
    let timed = !device::is_emulator(&setup.context);
    if !timed && args.plot.is_some() {
        return Err(Failure::Input(
            "--plot draws times, and the emulator does not measure time; leave out --plot, or use a GPU"
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
    let tokens = args.rounds.tokens.min(TOKENS);
    let profile = decoder.profile(ctx, tokens)?;
    let last = profile
        .steps
        .last()
        .expect("clap requires at least one token");
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
    for _ in 0..args.rounds.rounds {
        let round = decoder.round(ctx, args.rounds.tokens)?;
        fastest = fastest.min(round.device.as_secs_f64() * 1e6 / f64::from(args.rounds.tokens));
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
fn median(mut values: Vec<f64>) -> f64 {
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
