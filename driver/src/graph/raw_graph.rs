//! The driver's graph and the lock of its calls.

use std::any::Any;
use std::sync::atomic::{AtomicBool, Ordering, fence};
use std::sync::{Arc, Mutex, MutexGuard};

use driver_sys::CUgraph;

use crate::device::Context;
use crate::error::Error;
use crate::graph::node_id::NodeId;
use crate::lifetime::deferred_free::DeferredFree;
use crate::lifetime::unpoisoned_lock::lock;

/// An object that a graph uses. It is kept by the graph and everything that is made from the graph.
pub(crate) type Owner = Arc<dyn Any + Send + Sync>;

/// The driver's graph.
///
/// Its lock serializes driver calls with the graph, because the driver's graphs must not be used by
/// two threads at the same time.
pub(crate) struct RawGraph {
    pub(crate) context: Context,
    pub(super) raw: CUgraph,
    /// The lock, which is shared with the bodies of conditional nodes. It contains the nodes that
    /// were removed and must not be passed to the driver.
    pub(super) calls: Arc<Mutex<Removed>>,
    /// Whether the graph is left to the driver and not destroyed.
    pub(super) abandoned: AtomicBool,
    /// The conditional node whose body this graph is, if it is one.
    pub(super) owner: Option<BodyOwner>,
}

/// The conditional node that owns a body. The driver destroys the body with the node.
pub(super) struct BodyOwner {
    pub(super) graph: Arc<RawGraph>,
    pub(super) node: NodeId,
}

/// The ids of the nodes that were removed from a graph.
pub(super) type Removed = Vec<NodeId>;

impl RawGraph {
    /// Locks the graph for driver calls and returns its handle.
    ///
    /// # Errors
    /// Returns [`Error::Graph`] for the body of a conditional node that was removed, because the
    /// driver has destroyed the body with the node.
    #[inline]
    pub(crate) fn begin(&self) -> Result<(CUgraph, MutexGuard<'_, Removed>), Error> {
        let removed = lock(&self.calls);
        self.expect_alive(&removed)?;
        Ok((self.raw, removed))
    }

    /// Locks a graph that is not the body of a conditional node, and returns its handle.
    pub(crate) fn begin_whole(&self) -> (CUgraph, MutexGuard<'_, Removed>) {
        debug_assert!(
            !self.is_body(),
            "the caller has checked that the graph is whole"
        );
        (self.raw, lock(&self.calls))
    }

    /// Returns the graph for driver calls. No lock is needed if the caller has the only share.
    #[inline]
    pub(super) fn begin_by(
        graph: &mut Arc<Self>,
    ) -> Result<(&Self, Option<MutexGuard<'_, Removed>>), Error> {
        if !graph.is_body() && Arc::strong_count(graph) == 1 {
            // Another thread may have made calls before it dropped its share. The fence orders them
            // before the calls of this thread, as in `Arc::get_mut`.
            fence(Ordering::Acquire);
            return Ok((graph, None));
        }
        let removed = lock(&graph.calls);
        graph.expect_alive(&removed)?;
        Ok((graph, Some(removed)))
    }

    /// Returns true if the graph is the body of a conditional node.
    #[inline]
    pub(super) fn is_body(&self) -> bool {
        self.owner.is_some()
    }

    /// Checks that neither the node of a body nor the node of a body around it was removed.
    #[inline]
    fn expect_alive(&self, removed: &Removed) -> Result<(), Error> {
        let mut graph = self;
        while let Some(owner) = &graph.owner {
            if removed.contains(&owner.node) {
                let problem = "its node was removed, and the driver has destroyed the body with it";
                return Err(Error::Graph {
                    what: "using the body of a conditional node",
                    problem,
                });
            }
            graph = &owner.graph;
        }
        Ok(())
    }
}

impl Drop for RawGraph {
    fn drop(&mut self) {
        if !self.is_body() && !*self.abandoned.get_mut() {
            self.context.release(DeferredFree::Graph(self.raw));
        }
    }
}
