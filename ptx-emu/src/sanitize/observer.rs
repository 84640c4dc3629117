//! The events of the interpreter that a sanitizer may observe.

use crate::module::address_space::Addresses;
use crate::module::code::InstructionSpace;
use crate::sanitize::execution_context::ExecutionContext;

/// An observer of the instructions that the warps of a host thread execute.
///
/// Each instruction is announced by [`before`](Observer::before). [`after`](Observer::after)
/// follows unless other lanes of the warp run first, which [`interrupted`](Observer::interrupted)
/// reports, or a rule of `wgmma` is broken.
pub(crate) trait Observer {
    /// Observes the instruction that a warp is about to execute in the lanes of `mask`. There may
    /// be none, because the guard is false.
    fn before(&mut self, _context: &impl ExecutionContext, _mask: u32) {}

    /// Observes the result of the announced instruction, which may have failed.
    fn after(&mut self, _context: &mut impl ExecutionContext) {}

    /// Observes that other lanes run before the announced instruction.
    fn interrupted(&mut self) {}

    /// Observes an access of the announced instruction to memory.
    fn access(&mut self, _access: &ObservedAccess<'_>) {}
}

/// An access of a warp to memory.
#[derive(Debug)]
pub(crate) struct ObservedAccess<'a> {
    /// The number of the instruction.
    pub(crate) pc: u32,
    /// The lanes that access memory.
    pub(crate) mask: u32,
    pub(crate) space: InstructionSpace,
    pub(crate) addresses: &'a Addresses,
    /// The size of the access of a lane in bytes.
    pub(crate) bytes: u32,
}
