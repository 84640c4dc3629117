//! What a check found wrong.

use std::fmt;

use super::element::ElementType;
use crate::fault::Fault;

/// Something wrong, and how often it was seen.
#[derive(Clone, Debug)]
pub struct Finding {
    /// What is wrong, as the first schedule showed it.
    pub problem: Problem,
    /// The seed of that schedule.
    pub seed: u64,
    /// Schedules that showed it.
    pub schedules: u64,
    /// Blocks that ended with it, in all schedules together; 0 for what is seen after the launch.
    pub blocks: u64,
}

/// Something wrong.
#[derive(Clone, Debug)]
pub enum Problem {
    /// The emulator refused what a kernel did.
    Fault(Box<Fault>),
    /// A buffer does not hold what it should.
    Mismatch(Place),
    /// A buffer that the kernel may only read has changed.
    Changed(Place),
}

/// The first element of a buffer that is wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// The buffer.
    pub buffer: String,
    /// The element.
    pub index: usize,
    /// The type of the elements.
    pub element: ElementType,
    /// What it holds, in text.
    pub found: String,
    /// What it should hold.
    pub wanted: String,
    /// Elements of the buffer that are wrong.
    pub wrong: usize,
    /// Elements of the buffer.
    pub count: usize,
}

impl Problem {
    /// The name of its class: the emulator's [`Class`](crate::Class), or `Mismatch` or `Changed`.
    pub fn class(&self) -> String {
        match self {
            Problem::Fault(fault) => format!("{:?}", fault.class),
            Problem::Mismatch(_) => "Mismatch".into(),
            Problem::Changed(_) => "Changed".into(),
        }
    }

    /// Returns the position of its class among causes and consequences, as [`Class::rank`](crate::Class::rank).
    pub fn rank(&self) -> u8 {
        match self {
            Problem::Fault(fault) => fault.class.rank(),
            Problem::Mismatch(_) | Problem::Changed(_) => u8::MAX,
        }
    }

    /// Whether two are one to whoever reads of them: the same class at the same instructions, or in the same buffer.
    pub fn is_same(&self, other: &Problem) -> bool {
        match (self, other) {
            (Problem::Fault(a), Problem::Fault(b)) => a.is_same(b),
            (Problem::Mismatch(a), Problem::Mismatch(b))
            | (Problem::Changed(a), Problem::Changed(b)) => a.buffer == b.buffer,
            _ => false,
        }
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Place {
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
