//! Every object of the driver, under one lock, and the rules that concern several of them.

pub(crate) mod capture;
pub(crate) mod graphs;
pub(crate) mod kernels;
pub(crate) mod objects;
pub(crate) mod streams;

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::sync::Arc;

use warpwright_driver_sys::CUresult;

use crate::device::Device;
use crate::error::{Result, refuse};
use crate::graph::nodes::{Graph, Node};
use crate::handle::{ContextId, Table, kind};
use crate::state::objects::{Allocation, Capture, Context, Event, Exec, Module, Primary, Stream};
use crate::work::function::Function;

/// Every object of the driver.
pub(crate) struct State {
    pub(crate) device: &'static Device,
    pub(crate) primary: Primary,
    pub(crate) contexts: Table<kind::Context, Context>,
    pub(crate) modules: Table<kind::Module, Module>,
    pub(crate) functions: Table<kind::Function, Arc<Function>>,
    pub(crate) streams: Table<kind::Stream, Stream>,
    pub(crate) events: Table<kind::Event, Event>,
    pub(crate) graphs: Table<kind::Graph, Graph>,
    pub(crate) nodes: Table<kind::Node, Node>,
    pub(crate) execs: Table<kind::Exec, Exec>,
    pub(crate) captures: BTreeMap<u64, Capture>,
    pub(crate) allocations: BTreeMap<u64, Allocation>,
    /// Memory of the program that is pinned: where it begins, and its bytes.
    pub(crate) registered: BTreeMap<u64, u64>,
}

thread_local! {
    /// The contexts pushed on this thread; the last one is current.
    pub(crate) static CURRENT: RefCell<Vec<ContextId>> = const { RefCell::new(Vec::new()) };
}

impl State {
    pub(crate) fn new(device: &'static Device) -> Self {
        Self {
            device,
            primary: Primary::default(),
            contexts: Table::default(),
            modules: Table::default(),
            functions: Table::default(),
            streams: Table::default(),
            events: Table::default(),
            graphs: Table::default(),
            nodes: Table::default(),
            execs: Table::default(),
            captures: BTreeMap::new(),
            allocations: BTreeMap::new(),
            registered: BTreeMap::new(),
        }
    }

    /// The context of this thread, if it has one.
    pub(crate) fn current(&self) -> Result<ContextId> {
        match CURRENT.with_borrow(|stack| stack.last().copied()) {
            None => refuse(CUresult::INVALID_CONTEXT, "no context is current on this thread"),
            Some(id) if self.contexts.get(id).is_none() => {
                refuse(CUresult::CONTEXT_IS_DESTROYED, "the current context was destroyed")
            }
            Some(id) => Ok(id),
        }
    }

    /// The context of this thread, which must not have failed.
    pub(crate) fn context(&self) -> Result<ContextId> {
        let id = self.current()?;
        self.contexts[id].sticky.check()?;
        Ok(id)
    }
}
