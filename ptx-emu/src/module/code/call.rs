//! The decoded form of functions and calls.

use crate::module::code::{Constant, RegisterOperand, Special};
use crate::module::registers::Bank;

/// The number of a routine that does not exist.
pub(crate) const ABSENT: u32 = u32::MAX;

/// A kernel or a function: its code, and the registers and memory of one call.
#[derive(Debug, Default)]
pub(crate) struct Routine {
    pub(crate) name: String,
    /// The index of the first instruction.
    pub(crate) start: u32,
    /// The address of a function for indirect calls.
    pub(crate) address: u64,
    /// The number of registers of each bank.
    pub(crate) slots: [u32; 3],
    /// The slots that have a value before the routine starts: literals and addresses.
    pub(crate) constants: Vec<(Bank, u32, Constant)>,
    /// The slots that contain special registers.
    pub(crate) specials: Vec<(u32, Special)>,
    /// The names of registers for faults, sorted by bank and slot.
    pub(crate) names: Vec<(Bank, u32, String)>,
    /// The size and the alignment of the local memory of a call.
    pub(crate) local: u32,
    pub(crate) align: u32,
    /// The locations of parameters and results.
    pub(crate) params: Vec<Formal>,
    pub(crate) returns: Vec<Formal>,
    /// The reason why the routine cannot run, if it cannot.
    pub(crate) refused: Option<String>,
}

/// The location of a parameter of a function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Formal {
    /// The local memory of the call.
    Local {
        offset: u32,
        bytes: u32,
    },
    Register(RegisterOperand),
}

impl Formal {
    /// Returns the size in bytes.
    pub(crate) fn bytes(self) -> u32 {
        match self {
            Formal::Local { bytes, .. } => bytes,
            Formal::Register(r) => r.bits / 8,
        }
    }
}

/// A call instruction.
#[derive(Clone, Debug)]
pub(crate) struct Call {
    pub(crate) target: CallTarget,
    pub(crate) arguments: Vec<Passed>,
    pub(crate) returns: Vec<Passed>,
}

/// The function that is called.
#[derive(Clone, Debug)]
pub(crate) enum CallTarget {
    /// A function of the module, by number.
    Function(u32),
    /// The function at an address in a register, limited to a list if there is one.
    Register { slot: u32, list: Option<Box<[u32]>> },
    /// A function that the device provides.
    System(SystemCall),
}

/// A function that the device provides without a definition in the text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SystemCall {
    Print,
    AssertFail,
    Malloc,
    Free,
    /// `cudaGraphSetConditional`, which sets the condition of a conditional node.
    SetCondition,
}

/// An argument or a result on the side of the caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Passed {
    /// A `.param` variable of the caller.
    Local {
        offset: u32,
        bytes: u32,
    },
    Register(RegisterOperand),
    Literal(u64),
}

impl Passed {
    /// Returns the size in bytes, or `None` for a literal, which fits any size.
    pub(crate) fn bytes(self) -> Option<u32> {
        match self {
            Passed::Local { bytes, .. } => Some(bytes),
            Passed::Register(r) => Some(r.bits / 8),
            Passed::Literal(_) => None,
        }
    }
}
