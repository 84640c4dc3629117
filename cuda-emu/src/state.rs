//! Every object of the driver, behind one lock.

use std::cell::RefCell;
use std::collections::BTreeMap;

use warpwright_driver_sys::{CUresult, CUstream};

use crate::capture::Capture;
use crate::context::{Context, Primary};
use crate::event::Event;
use crate::exec::Exec;
use crate::ffi::{Result, refuse};
use crate::graph::{Graph, Node};
use crate::handle::{Id, Table};
use crate::memory::Allocation;
use crate::module::{LoadedFunction, Module};
use crate::stream::Stream;

/// Every object of the driver.
#[derive(Default)]
pub(crate) struct State {
    pub(crate) primary: Primary,
    pub(crate) contexts: Table<Context>,
    pub(crate) modules: Table<Module>,
    pub(crate) functions: Table<LoadedFunction>,
    pub(crate) streams: Table<Stream>,
    pub(crate) events: Table<Event>,
    pub(crate) graphs: Table<Graph>,
    pub(crate) nodes: Table<Node>,
    pub(crate) execs: Table<Exec>,
    pub(crate) captures: BTreeMap<u64, Capture>,
    pub(crate) allocations: BTreeMap<u64, Allocation>,
    /// Memory of the program that is pinned: where it begins, and its bytes.
    pub(crate) registered: BTreeMap<u64, u64>,
}

thread_local! {
    /// The contexts pushed on this thread; the last one is current.
    pub(crate) static CURRENT: RefCell<Vec<Id<Context>>> = const { RefCell::new(Vec::new()) };
}

impl State {
    /// The context of this thread, if it has one.
    pub(crate) fn current(&self) -> Result<Id<Context>> {
        match CURRENT.with_borrow(|stack| stack.last().copied()) {
            None => refuse(CUresult::INVALID_CONTEXT, "no context is current on this thread"),
            Some(id) if self.contexts.get(id).is_none() => {
                refuse(CUresult::CONTEXT_IS_DESTROYED, "the current context was destroyed")
            }
            Some(id) => Ok(id),
        }
    }

    /// The context of this thread, which must not have failed.
    pub(crate) fn context(&self) -> Result<Id<Context>> {
        let id = self.current()?;
        self.contexts[id].sticky.check()?;
        Ok(id)
    }

    /// The stream of a handle in the current context; NULL and the two special handles are streams as well.
    pub(crate) fn stream(
        &mut self,
        machine: &'static crate::machine::Machine,
        handle: CUstream,
    ) -> Result<Id<Stream>> {
        let context = self.context()?;
        match handle.0 as usize {
            0 | 1 => Ok(self.legacy_stream(machine, context)),
            2 => Ok(self.thread_stream(machine, context)),
            _ => {
                let id = self.streams.find(handle)?;
                if self.streams[id].context != context {
                    return refuse(CUresult::INVALID_HANDLE, "the stream belongs to another context");
                }
                Ok(id)
            }
        }
    }
}
