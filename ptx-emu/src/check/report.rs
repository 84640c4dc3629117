//! What a check tells: the findings of all schedules, each once, and what is worth a note.

use std::fmt;

use super::argument::{Buffer, Role};
use super::element::Element;
use super::finding::{Finding, Place, Problem};
use super::{Check, Run};
use crate::fault::Fault;
use crate::launch::Stats;
use crate::observe::{Profile, Step};

/// What a check found.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// What is wrong, causes before consequences, and otherwise in the order in which it was found.
    pub findings: Vec<Finding>,
    /// What may be meant so.
    pub notes: Vec<Note>,
    /// Schedules that were run.
    pub schedules: u64,
    /// The buffers of the check after the launch under the first schedule.
    pub buffers: Vec<Buffer>,
    /// What the launch did under the first schedule.
    pub stats: Stats,
    /// What was counted under the first schedule, if it was asked for.
    pub profile: Option<Profile>,
    /// The instructions of the followed thread under the first schedule.
    pub steps: Vec<Step>,
}

/// What may be meant so, and may be a mistake.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Note {
    /// Bytes of an output that nobody has written.
    Unwritten {
        /// The buffer.
        buffer: String,
        /// Bytes that nobody has written.
        bytes: u64,
        /// Bytes of the buffer.
        of: u64,
    },
    /// A race that gives the same result in whatever order it happens.
    Race(Box<Fault>),
    /// A buffer that two schedules leave in two ways, though no race was found: sums of floats by atomics, for example.
    Differs {
        /// Where, and what the first schedule and another one leave there.
        place: Place,
        /// The seeds of the two.
        seeds: [u64; 2],
    },
}

impl Report {
    /// What a buffer holds after the launch under the first schedule; nothing where there is no such buffer, or one of
    /// other elements.
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

impl fmt::Display for Report {
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
                let Place {
                    buffer,
                    index,
                    found,
                    wanted,
                    ..
                } = place;
                write!(
                    f,
                    "`{buffer}` depends on the schedule: [{index}] is {found} with seed {first} and {wanted} with seed \
                     {other}; floats that atomics add may do so"
                )
            }
        }
    }
}

/// The report of these runs, of which there is one at least.
pub(super) fn report(check: &Check<'_>, runs: &[Run]) -> Report {
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
    // Of the findings of several blocks and schedules, causes come before consequences.
    findings.sort_by_key(|finding| finding.problem.rank());
    let notes = if findings.is_empty() {
        notes(check, runs)
    } else {
        Vec::new()
    };
    let first = runs.first();
    Report {
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

fn after(check: &Check<'_>, run: &Run) -> Vec<Buffer> {
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

/// What one schedule showed, and in how many blocks. What a launch leaves is judged only if nothing ended it early.
pub(super) fn problems(check: &Check<'_>, run: &Run) -> Vec<(Problem, u64)> {
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

fn first_difference(buffer: &Buffer, found: &[u8], wanted: &[u8], tolerance: f64) -> Option<Place> {
    let element = buffer.element;
    let pairs = found
        .chunks_exact(element.bytes())
        .zip(wanted.chunks_exact(element.bytes()));
    let mut wrong = pairs
        .enumerate()
        .filter(|(_, (a, b))| element.differ(a, b, tolerance));
    let (index, (a, b)) = wrong.next()?;
    let (found, wanted) = (element.show(a), element.show(b));
    let wrong = 1 + wrong.count();
    Some(Place {
        buffer: buffer.name.clone(),
        index,
        element,
        found,
        wanted,
        wrong,
        count: buffer.count,
    })
}

fn notes(check: &Check<'_>, runs: &[Run]) -> Vec<Note> {
    let Some(first) = runs.first() else {
        return Vec::new();
    };
    let each = check.buffers.iter().enumerate();
    let unwritten = each.clone().filter(|(_, buffer)| buffer.role == Role::Out);
    let unwritten = unwritten.filter_map(|(i, buffer)| {
        let bytes = first.contents[i].1;
        let (name, of) = (buffer.name.clone(), buffer.bytes() as u64);
        (bytes > 0).then_some(Note::Unwritten {
            buffer: name,
            bytes,
            of,
        })
    });
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
