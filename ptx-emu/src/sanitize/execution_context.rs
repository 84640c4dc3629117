//! The view of the machine that the sanitizers have.
//!
//! A sanitizer knows neither warps nor memory. It is notified of events, and asks the questions of
//! [`ExecutionContext`] about the instruction that caused them. Its findings are values.

use std::ops::Range;

use crate::fault::{AllocationInfo, Class, Fault, SourcePlace};
use crate::module::code::KernelCode;
use crate::module::registers::Regs;

/// The machine while a warp executes an instruction.
pub(crate) trait ExecutionContext {
    /// Returns the number of the instruction.
    fn pc(&self) -> u32;

    /// Returns the position of the warp.
    fn position(&self) -> WarpPosition;

    /// Returns the registers of the warp.
    fn regs(&self) -> &Regs;

    /// Returns the registers of the warp, whose marks a sanitizer may change.
    fn regs_mut(&mut self) -> &mut Regs;

    /// Returns the kernel.
    fn code(&self) -> &KernelCode;

    /// Returns a fault at the instruction.
    fn fault(&self, lanes: u32, class: Class, what: String) -> Box<Fault>;

    /// Returns the place of an instruction in the text.
    fn place(&self, pc: u32) -> SourcePlace;

    /// Returns the name of the warp in faults.
    fn warp_name(&self) -> String;

    /// Records a finding that does not end the block.
    fn report(&self, finding: Fault);

    /// Returns the addresses of the allocation of global memory that contains an address.
    fn allocation_range(&self, address: u64) -> Option<Range<u64>>;

    /// Returns the allocation of global memory that contains an address.
    fn allocation(&self, address: u64) -> Option<AllocationInfo>;

    /// Returns the shared variable that contains an address or is nearest to it.
    fn shared_variable(&self, address: u64) -> Option<AllocationInfo>;

    /// Returns the size of the dynamic shared memory in bytes.
    fn dynamic_shared(&self) -> u32;

    /// Returns true if the block shares its memory with the other blocks of a cluster.
    fn is_cluster(&self) -> bool;

    /// Returns the offset in the local memory of a lane of an address in the local window, or
    /// `None` if it belongs to another lane.
    fn local_address(&self, lane: usize, address: u64) -> Option<u64>;

    /// Returns the end of the local memory in use.
    fn local_end(&self) -> u64;
}

/// The position of a warp in the launch and in the code.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WarpPosition {
    /// The index of its block.
    pub(crate) block: [u32; 3],
    /// The size of a block in threads.
    pub(crate) threads: [u32; 3],
    /// The number of the warp in its block.
    pub(crate) number: u32,
    /// The function that it executes, and the number of calls that led there.
    pub(crate) routine: u32,
    pub(crate) depth: usize,
    /// The lanes that run.
    pub(crate) running: u32,
    /// The lanes that have not exited.
    pub(crate) present: u32,
}
