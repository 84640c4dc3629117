//! All objects of the driver, under one lock, and the rules that concern several of them.

pub(crate) mod capture;
pub(crate) mod graphs;
pub(crate) mod images;
pub(crate) mod kernels;
pub(crate) mod libraries;
pub(crate) mod mappings;
pub(crate) mod objects;
mod places;
pub(crate) mod pools;
pub(crate) mod streams;

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::sync::Arc;

use warpwright_driver_sys::CUresult;

use crate::device::EmulatedDevice;
use crate::error::{Result, refuse};
use crate::graph::nodes::{GraphContent, Node};
use crate::handle::{ContextId, Table, kind};
use crate::state::images::{ImageArray, ImageObject};
use crate::state::mappings::Mappings;
use crate::state::objects::{
    Advice, AllocationRecord, CaptureState, ContextState, DevicePools, EventState, Exec, Library,
    LibraryKernel, Link, Module, Primary, Stream, UserObject,
};
use crate::state::pools::{Pool, PoolPlace};
use crate::work::function::Function;

/// All objects of the driver.
pub(crate) struct DriverState {
    pub(crate) device: &'static EmulatedDevice,
    pub(crate) primary: Vec<Primary>,
    pub(crate) contexts: Table<kind::Context, ContextState>,
    pub(crate) modules: Table<kind::Module, Module>,
    pub(crate) libraries: Table<kind::Library, Library>,
    pub(crate) kernels: Table<kind::Kernel, LibraryKernel>,
    pub(crate) links: Table<kind::Link, Link>,
    pub(crate) functions: Table<kind::Function, Arc<Function>>,
    pub(crate) streams: Table<kind::Stream, Stream>,
    pub(crate) events: Table<kind::Event, EventState>,
    pub(crate) graphs: Table<kind::Graph, GraphContent>,
    pub(crate) nodes: Table<kind::Node, Node>,
    pub(crate) execs: Table<kind::Exec, Exec>,
    pub(crate) user_objects: Table<kind::UserObject, UserObject>,
    pub(crate) captures: BTreeMap<u64, CaptureState>,
    pub(crate) allocations: BTreeMap<u64, AllocationRecord>,
    pub(crate) arrays: Table<kind::Array, ImageArray>,
    /// Textures and surfaces by their handles.
    pub(crate) images: BTreeMap<u64, ImageObject>,
    pub(crate) mappings: Mappings,
    /// The advice for managed memory, by the base of the allocation.
    pub(crate) managed: BTreeMap<u64, Advice>,
    pub(crate) pools: Table<kind::Pool, Pool>,
    pub(crate) place_pools: Vec<DevicePools>,
    /// Pinned memory of the program: its address, its size, and the address at which it is mapped.
    pub(crate) registered: BTreeMap<u64, (u64, u64)>,
}

thread_local! {
    /// The contexts pushed on this thread. The last one is current.
    pub(crate) static CURRENT: RefCell<Vec<ContextId>> = const { RefCell::new(Vec::new()) };
}

impl DriverState {
    pub(crate) fn new(device: &'static EmulatedDevice) -> Self {
        let mut pools = Table::default();

        // Each device has a default pool. The driver also has one for the host and one for managed
        // memory.
        let devices = (0..device.config.devices).map(PoolPlace::Device);
        let mut at = |place| {
            let pool = pools.insert(Pool::at(place, 0));
            DevicePools {
                default: pool,
                current: pool,
            }
        };
        let place_pools = devices
            .chain([PoolPlace::Host, PoolPlace::Managed])
            .map(&mut at)
            .collect();
        Self {
            device,
            pools,
            place_pools,
            managed: BTreeMap::new(),
            primary: (0..device.config.devices)
                .map(|_| Primary::default())
                .collect(),
            contexts: Table::default(),
            modules: Table::default(),
            libraries: Table::default(),
            kernels: Table::default(),
            links: Table::default(),
            functions: Table::default(),
            streams: Table::default(),
            events: Table::default(),
            graphs: Table::default(),
            nodes: Table::default(),
            execs: Table::default(),
            user_objects: Table::default(),
            captures: BTreeMap::new(),
            allocations: BTreeMap::new(),
            arrays: Table::default(),
            images: BTreeMap::new(),
            mappings: Mappings::default(),
            registered: BTreeMap::new(),
        }
    }

    /// Returns the current context of this thread.
    pub(crate) fn current(&self) -> Result<ContextId> {
        match CURRENT.with_borrow(|stack| stack.last().copied()) {
            None => refuse(
                CUresult::INVALID_CONTEXT,
                "no context is current on this thread",
            ),
            Some(id) if self.contexts.get(id).is_none() => refuse(
                CUresult::CONTEXT_IS_DESTROYED,
                "the current context was destroyed",
            ),
            Some(id) => Ok(id),
        }
    }

    /// Returns an error if this thread has a current context that has failed.
    pub(crate) fn no_fault(&self) -> Result {
        if CURRENT.with_borrow(Vec::is_empty) {
            Ok(())
        } else {
            self.context().map(drop)
        }
    }

    /// Returns the current context of this thread, or an error if it has failed.
    pub(crate) fn context(&self) -> Result<ContextId> {
        let id = self.current()?;
        self.contexts[id].sticky.check()?;
        Ok(id)
    }
}
