//! Notifies the observers of a block, and answers their questions.

use std::ops::Range;

use crate::fault::{AllocationInfo, Class, Fault, SourcePlace};
use crate::machine::state::block::Block;
use crate::machine::state::local_slice::own;
use crate::machine::state::warp::Warp;
use crate::module::address_space::Addresses;
use crate::module::code::{InstructionSpace, KernelCode};
use crate::module::registers::Regs;
use crate::sanitize::execution_context::{ExecutionContext, WarpPosition};
use crate::sanitize::observer::{ObservedAccess, Observer};
use crate::sanitize::observers::Observers;

/// A warp of a block that executes an instruction.
struct ExecutingWarp<'w, 'g, 'a> {
    block: &'w Block<'g, 'a>,
    warp: &'w mut Warp,
}

impl ExecutionContext for ExecutingWarp<'_, '_, '_> {
    fn pc(&self) -> u32 {
        self.warp.now.pc
    }

    fn position(&self) -> WarpPosition {
        WarpPosition {
            block: self.block.blocks[self.warp.rank as usize],
            threads: self.block.grid.launch.block,
            number: self.warp.number,
            routine: self.warp.routine,
            depth: self.warp.calls.len(),
            running: self.warp.now.mask,
            present: self.warp.present(),
        }
    }

    fn regs(&self) -> &Regs {
        &self.warp.regs
    }

    fn regs_mut(&mut self) -> &mut Regs {
        &mut self.warp.regs
    }

    fn code(&self) -> &KernelCode {
        self.block.grid.code
    }

    fn fault(&self, lanes: u32, class: Class, what: String) -> Box<Fault> {
        self.block.fault(self.warp, lanes, class, what)
    }

    fn place(&self, pc: u32) -> SourcePlace {
        self.block.place(pc)
    }

    fn warp_name(&self) -> String {
        self.block.warp_name(self.warp.index)
    }

    fn report(&self, finding: Fault) {
        self.block.grid.record_finding(finding);
    }

    fn allocation_range(&self, address: u64) -> Option<Range<u64>> {
        let found = self.block.grid.table.find(address)?;
        Some(found.base..found.base + found.bytes)
    }

    fn allocation(&self, address: u64) -> Option<AllocationInfo> {
        Some(self.block.grid.table.find(address)?.info())
    }

    fn shared_variable(&self, address: u64) -> Option<AllocationInfo> {
        self.block.shared_variable(address)
    }

    fn dynamic_shared(&self) -> u32 {
        self.block.grid.launch.dynamic_shared
    }

    fn is_cluster(&self) -> bool {
        self.block.blocks.len() > 1
    }

    fn local_address(&self, lane: usize, address: u64) -> Option<u64> {
        own(self.warp, lane, address)
    }

    fn local_end(&self) -> u64 {
        self.warp.top.into()
    }
}

/// Calls `f` with the observers of a block, if it has any.
///
/// The observers leave the block for the call, because they look at the block.
fn notify(
    block: &mut Block<'_, '_>,
    warp: &mut Warp,
    f: impl FnOnce(&mut Observers, &mut ExecutingWarp<'_, '_, '_>),
) {
    if let Some(mut observers) = block.observers.take() {
        f(&mut observers, &mut ExecutingWarp { block, warp });
        block.observers = Some(observers);
    }
}

/// Notifies the observers of the instruction that a warp is about to execute in the lanes of
/// `mask`.
pub(crate) fn before(block: &mut Block<'_, '_>, w: &mut Warp, mask: u32) {
    notify(block, w, |observers, context| {
        observers.before(context, mask)
    });
}

/// Notifies the observers of the result of the instruction.
pub(crate) fn after(block: &mut Block<'_, '_>, w: &mut Warp) {
    notify(block, w, |observers, context| observers.after(context));
}

/// Notifies the observers that other lanes run before the announced instruction.
pub(crate) fn interrupted(block: &mut Block<'_, '_>) {
    if let Some(observers) = &mut block.observers {
        observers.interrupted();
    }
}

/// Notifies the observers of an access to memory.
#[inline]
pub(crate) fn access(
    block: &mut Block<'_, '_>,
    w: &Warp,
    mask: u32,
    space: InstructionSpace,
    addresses: &Addresses,
    bytes: u32,
) {
    if let Some(observers) = &mut block.observers {
        observers.access(&ObservedAccess {
            pc: w.now.pc,
            mask,
            space,
            addresses,
            bytes,
        });
    }
}
