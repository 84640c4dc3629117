//! The decoded form of atomics.

use crate::code::{Address, MemoryOrder, RegisterOperand, Scope, Space};

/// An atomic read-modify-write.
#[derive(Clone, Debug)]
pub(crate) struct Atomic {
    pub(crate) space: Space,
    pub(crate) address: Address,
    pub(crate) bytes: u32,
    /// New value from old, `b` and `c`.
    pub(crate) f: fn(u64, u64, u64) -> u64,
    /// Where the old value goes; `None` for `red`.
    pub(crate) d: Option<RegisterOperand>,
    pub(crate) b: RegisterOperand,
    pub(crate) c: Option<RegisterOperand>,
    /// Of 128 bits: the upper halves, and the function in place of `f`.
    pub(crate) high: Option<Box<High>>,
    pub(crate) order: MemoryOrder,
    pub(crate) scope: Scope,
    pub(crate) site: u32,
}

/// What an atomic on 128 bits has besides the lower halves of its operands.
#[derive(Clone, Debug)]
pub(crate) struct High {
    /// New value from old, `b` and `c`.
    pub(crate) f: fn(u128, u128, u128) -> u128,
    pub(crate) d: Option<RegisterOperand>,
    pub(crate) b: RegisterOperand,
    pub(crate) c: Option<RegisterOperand>,
}
