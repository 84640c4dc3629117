//! The decoded form of atomics.

use crate::module::code::{
    AccessOrdering, Address, InstructionSpace, MemoryScope, RegisterOperand,
};

/// An atomic read-modify-write operation.
#[derive(Clone, Debug)]
pub(crate) struct Atomic {
    pub(crate) space: InstructionSpace,
    pub(crate) address: Address,
    pub(crate) bytes: u32,
    /// The function that computes the new value from the old value, `b` and `c`.
    pub(crate) f: fn(u64, u64, u64) -> u64,
    /// The register that receives the old value, or `None` for `red`.
    pub(crate) d: Option<RegisterOperand>,
    pub(crate) b: RegisterOperand,
    pub(crate) c: Option<RegisterOperand>,
    /// The additional operands of a 128-bit atomic, and the function that replaces `f`.
    pub(crate) high: Option<Box<High>>,
    pub(crate) order: AccessOrdering,
    pub(crate) scope: MemoryScope,
    pub(crate) site: u32,
}

/// The upper halves of the operands of a 128-bit atomic.
#[derive(Clone, Debug)]
pub(crate) struct High {
    /// The function that computes the new value from the old value, `b` and `c`.
    pub(crate) f: fn(u128, u128, u128) -> u128,
    pub(crate) d: Option<RegisterOperand>,
    pub(crate) b: RegisterOperand,
    pub(crate) c: Option<RegisterOperand>,
}
