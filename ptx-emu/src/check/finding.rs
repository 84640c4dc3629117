//! The findings of a check.

use std::fmt;

use crate::fault::Fault;
use crate::module::analysis::element_type::ElementType;

/// A problem, and how often it occurred.
///
/// A problem that [is the same](Problem::is_same) under several schedules is one finding.
#[derive(Clone, Debug)]
pub struct Finding {
    /// The problem under the first schedule that has it.
    pub problem: Problem,
    /// The seed of that schedule.
    pub seed: u64,
    /// The number of schedules that have the problem.
    pub schedules: u64,
    /// The number of blocks that ended with it under all schedules, or 0 for wrong results.
    pub blocks: u64,
}

/// A broken rule or a wrong result.
#[derive(Clone, Debug)]
pub enum Problem {
    /// A rule that the kernel broke.
    Fault(Box<Fault>),
    /// A buffer whose contents differ from the expectation.
    Mismatch(ElementMismatch),
    /// A read-only buffer that has changed.
    Changed(ElementMismatch),
}

/// The first wrong element of a buffer, and the number of wrong elements.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ElementMismatch {
    /// The name of the buffer.
    pub buffer: String,
    /// The index of the element.
    pub index: usize,
    /// The type of the elements.
    pub element: ElementType,
    /// The value that the element has.
    pub found: String,
    /// The value that the element should have.
    pub wanted: String,
    /// The number of wrong elements in the buffer.
    pub wrong: usize,
    /// The number of elements in the buffer.
    pub count: usize,
}

impl Problem {
    /// Returns the name of the [`Class`](crate::Class), or `Mismatch` or `Changed`.
    pub fn class(&self) -> String {
        match self {
            Problem::Fault(fault) => format!("{:?}", fault.class),
            Problem::Mismatch(_) => "Mismatch".into(),
            Problem::Changed(_) => "Changed".into(),
        }
    }

    /// Returns the rank among causes and consequences, see [`Class::rank`](crate::Class::rank).
    /// Wrong results have the highest rank.
    pub fn rank(&self) -> u8 {
        match self {
            Problem::Fault(fault) => fault.class.rank(),
            Problem::Mismatch(_) | Problem::Changed(_) => u8::MAX,
        }
    }

    /// Returns true if a report should list two problems once: the same class at the same
    /// instructions, or in the same buffer.
    pub fn is_same(&self, other: &Problem) -> bool {
        match (self, other) {
            (Problem::Fault(a), Problem::Fault(b)) => a.is_same(b),
            (Problem::Mismatch(a), Problem::Mismatch(b))
            | (Problem::Changed(a), Problem::Changed(b)) => a.buffer == b.buffer,
            _ => false,
        }
    }
}

impl fmt::Display for ElementMismatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ElementMismatch {
            buffer,
            index,
            found,
            wanted,
            wrong,
            count,
            ..
        } = self;
        write!(
            f,
            "{buffer}[{index}] is {found}, not {wanted}; {wrong} of {count} elements are wrong"
        )
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.problem {
            Problem::Fault(fault) => fault.fmt(f)?,
            Problem::Mismatch(place) => write!(f, "Mismatch: {place}")?,
            Problem::Changed(place) => write!(f, "Changed: an input was written: {place}")?,
        }
        write!(
            f,
            "\n  in {} of the schedules, first with seed {}",
            self.schedules, self.seed
        )
    }
}
