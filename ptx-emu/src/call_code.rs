//! The decoded form of functions and calls.

use crate::code::{Constant, RegisterOperand, Special};
use crate::exec::regs::Bank;

/// No routine.
pub(crate) const ABSENT: u32 = u32::MAX;

/// A kernel or a function: where its code is, and what one call of it needs.
#[derive(Debug, Default)]
pub(crate) struct Routine {
    pub(crate) name: String,
    /// Its first instruction.
    pub(crate) start: u32,
    /// Address of a function, for indirect calls.
    pub(crate) address: u64,
    /// Registers of each bank.
    pub(crate) slots: [u32; 3],
    /// Slots that hold a value before it starts: literals and addresses.
    pub(crate) constants: Vec<(Bank, u32, Constant)>,
    /// Slots that hold a special register.
    pub(crate) specials: Vec<(u32, Special)>,
    /// Names of registers, for faults, sorted by bank and slot.
    pub(crate) names: Vec<(Bank, u32, String)>,
    /// Bytes of local memory that a call has, and what its address is a multiple of.
    pub(crate) local: u32,
    pub(crate) align: u32,
    /// Where a call puts what it passes, and finds what comes back.
    pub(crate) params: Vec<Formal>,
    pub(crate) returns: Vec<Formal>,
    /// Why it cannot run, if it cannot.
    pub(crate) refused: Option<String>,
}

/// Where a function has a parameter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Formal {
    /// In its local memory.
    Local {
        offset: u32,
        bytes: u32,
    },
    Register(RegisterOperand),
}

impl Formal {
    /// Size in bytes.
    pub(crate) fn bytes(self) -> u32 {
        match self {
            Formal::Local { bytes, .. } => bytes,
            Formal::Register(r) => r.bits / 8,
        }
    }
}

/// A call.
#[derive(Clone, Debug)]
pub(crate) struct Call {
    pub(crate) target: CallTarget,
    pub(crate) arguments: Vec<Passed>,
    pub(crate) returns: Vec<Passed>,
}

/// What is called.
#[derive(Clone, Debug)]
pub(crate) enum CallTarget {
    /// A function of the module, by its number.
    Function(u32),
    /// The function at an address in a register; one of a list, where there is one.
    Register { slot: u32, list: Option<Box<[u32]>> },
    /// A function that the device has.
    System(SystemCall),
}

/// Functions that a device has without a definition in the text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SystemCall {
    Print,
    AssertFail,
    Malloc,
    Free,
    /// The driver's function that sets the condition of a conditional node.
    SetCondition,
}

/// What a call passes or where it puts what comes back.
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
    /// Size in bytes; a literal has any.
    pub(crate) fn bytes(self) -> Option<u32> {
        match self {
            Passed::Local { bytes, .. } => Some(bytes),
            Passed::Register(r) => Some(r.bits / 8),
            Passed::Literal(_) => None,
        }
    }
}
