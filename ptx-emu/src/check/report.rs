//! The report of a check: the findings of all schedules, each listed once, and notes.

use std::fmt;

use super::argument::{Buffer, Role};
use super::description::{Check, ScheduleRun};
use super::element::Element;
use super::finding::{ElementMismatch, Finding, Problem};
use crate::fault::Fault;
use crate::launch::Stats;
use crate::profile::{FollowedStep, Profile};

/// The result of a [`Check`], which `Display` prints completely.
#[derive(Clone, Debug, Default)]
pub struct CheckReport {
    /// The findings. Causes come before consequences, and earlier schedules before later ones.
    pub findings: Vec<Finding>,
    /// Observations that may be intended. They are only collected if there are no findings.
    pub notes: Vec<Note>,
    /// The number of schedules that ran.
    pub schedules: u64,
    /// The buffers after the launch under the first schedule.
    pub buffers: Vec<Buffer>,
    /// The statistics of the first schedule.
    pub stats: Stats,
    /// The profile of the first schedule, if [`Check::profile`] is set.
    pub profile: Option<Profile>,
    /// The instructions of the [followed](Check::followed) thread under the first schedule.
    pub steps: Vec<FollowedStep>,
}

/// An observation that may be intended or may be a bug.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Note {
    /// An output that is not completely written.
    Unwritten {
        /// The name of the buffer.
        buffer: String,
        /// The number of uninitialized bytes.
        bytes: u64,
        /// The size of the buffer in bytes.
        of: u64,
    },
    /// A race whose result is the same in every order.
    Race(Box<Fault>),
    /// A buffer whose contents depend on the schedule although there is no race, for example
    /// because atomics add floats in another order.
    Differs {
        /// The first element that differs. `found` and `wanted` are the values under the two seeds.
        place: ElementMismatch,
        /// The seeds of the two schedules.
        seeds: [u64; 2],
    },
}

impl CheckReport {
    /// Returns the elements of a buffer after the launch under the first schedule.
    ///
    /// The result is empty if there is no buffer with this name and element type.
    pub fn output<T: Element>(&self, name: &str) -> Vec<T> {
        let found = self
            .buffers
            .iter()
            .find(|buffer| buffer.name == name && buffer.element == T::TYPE);
        let bytes = found
            .and_then(|buffer| buffer.contents.as_deref())
            .unwrap_or(&[]);
        bytes.chunks_exact(size_of::<T>()).map(T::decode).collect()
    }
}

impl fmt::Display for CheckReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} findings in {} schedules",
            self.findings.len(),
            self.schedules
        )?;
        self.findings
            .iter()
            .try_for_each(|finding| write!(f, "\n{finding}"))?;
        self.notes
            .iter()
            .try_for_each(|note| write!(f, "\nnote: {note}"))
    }
}

impl fmt::Display for Note {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Note::Unwritten { buffer, bytes, of } => {
                write!(
                    f,
                    "{bytes} of the {of} bytes of `{buffer}` were never written"
                )
            }
            Note::Race(fault) => fault.fmt(f),
            Note::Differs {
                place,
                seeds: [first, other],
            } => {
                let ElementMismatch {
                    buffer,
                    index,
                    found,
                    wanted,
                    ..
                } = place;
                write!(
                    f,
                    "`{buffer}` depends on the schedule: [{index}] is {found} with seed {first} and {wanted} with seed \
                     {other}, as sums of floats by atomics may"
                )
            }
        }
    }
}

/// Returns the report of at least one run.
pub(super) fn report(check: &Check<'_>, runs: &[ScheduleRun]) -> CheckReport {
    let mut findings: Vec<Finding> = Vec::new();
    for run in runs {
        for (problem, blocks) in problems(check, run) {
            match findings
                .iter_mut()
                .find(|known| known.problem.is_same(&problem))
            {
                Some(known) => {
                    known.schedules += 1;
                    known.blocks += blocks;
                }
                None => findings.push(Finding {
                    problem,
                    seed: run.seed,
                    schedules: 1,
                    blocks,
                }),
            }
        }
    }

    // Causes come before consequences among the findings of all blocks and schedules.
    findings.sort_by_key(|finding| finding.problem.rank());
    let notes = if findings.is_empty() {
        notes(check, runs)
    } else {
        Vec::new()
    };
    let first = runs.first();
    CheckReport {
        findings,
        notes,
        schedules: runs.len() as u64,
        buffers: first.map(|run| after(check, run)).unwrap_or_default(),
        stats: first
            .map(|run| run.watched.stats.clone())
            .unwrap_or_default(),
        profile: first.and_then(|run| run.watched.profile.clone()),
        steps: first
            .map(|run| run.watched.steps.clone())
            .unwrap_or_default(),
    }
}

fn after(check: &Check<'_>, run: &ScheduleRun) -> Vec<Buffer> {
    let contents = run.contents.iter().map(|(bytes, _)| Some(bytes.to_vec()));
    check
        .buffers
        .iter()
        .zip(contents)
        .map(|(b, contents)| Buffer {
            contents,
            ..b.clone()
        })
        .collect()
}

/// Returns the problems of one schedule with the number of blocks that have each. Buffers are
/// compared only if no fault ended the launch early.
pub(super) fn problems(check: &Check<'_>, run: &ScheduleRun) -> Vec<(Problem, u64)> {
    let found = &run.watched.found;
    if !found.is_empty() {
        let fault = |fault: &crate::Fault| Problem::Fault(Box::new(fault.clone()));
        return found
            .iter()
            .map(|found| (fault(&found.fault), found.blocks))
            .collect();
    }

    let buffers = check.buffers.iter().zip(&run.contents);
    buffers
        .filter_map(|(buffer, (bytes, _))| Some((judge(buffer, bytes)?, 0)))
        .collect()
}

fn judge(buffer: &Buffer, found: &[u8]) -> Option<Problem> {
    if let Some(expected) = &buffer.expected {
        let place = first_difference(buffer, found, &expected.bytes, expected.tolerance);
        return place.map(Problem::Mismatch);
    }
    let before = buffer
        .contents
        .as_deref()
        .filter(|_| buffer.role == Role::In)?;
    first_difference(buffer, found, before, 0.0).map(Problem::Changed)
}

fn first_difference(
    buffer: &Buffer,
    found: &[u8],
    wanted: &[u8],
    tolerance: f64,
) -> Option<ElementMismatch> {
    let element = buffer.element;
    let pairs = found
        .chunks_exact(element.bytes())
        .zip(wanted.chunks_exact(element.bytes()));
    let mut wrong = pairs
        .enumerate()
        .filter(|(_, (a, b))| element.differ(a, b, tolerance));
    let (index, (a, b)) = wrong.next()?;
    let found = element.show(a);
    let wanted = element.show(b);
    let wrong = 1 + wrong.count();
    Some(ElementMismatch {
        buffer: buffer.name.clone(),
        index,
        element,
        found,
        wanted,
        wrong,
        count: buffer.count,
    })
}

fn notes(check: &Check<'_>, runs: &[ScheduleRun]) -> Vec<Note> {
    let Some(first) = runs.first() else {
        return Vec::new();
    };

    let each = check.buffers.iter().enumerate();
    let unwritten = each.clone().filter(|(_, buffer)| buffer.role == Role::Out);
    let unwritten = unwritten.filter_map(|(i, buffer)| {
        let bytes = first.contents[i].1;
        let name = buffer.name.clone();
        let of = buffer.bytes() as u64;
        (bytes > 0).then_some(Note::Unwritten {
            buffer: name,
            bytes,
            of,
        })
    });

    // Only one pair of schedules is reported per buffer, because all others repeat it.
    let differs = each.filter_map(|(i, buffer)| {
        runs.iter().find_map(|run| {
            let place = first_difference(buffer, &first.contents[i].0, &run.contents[i].0, 0.0)?;
            Some(Note::Differs {
                place,
                seeds: [first.seed, run.seed],
            })
        })
    });
    let mut races: Vec<&Fault> = Vec::new();
    for race in runs.iter().flat_map(|run| &run.watched.notes) {
        if !races.iter().any(|known| known.is_same(race)) {
            races.push(race);
        }
    }

    let races = races
        .into_iter()
        .map(|race| Note::Race(Box::new(race.clone())));
    races.chain(unwritten).chain(differs).collect()
}
