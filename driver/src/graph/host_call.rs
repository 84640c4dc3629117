//! Host functions as the work of nodes.

use std::sync::Arc;

use driver_sys::CUDA_HOST_NODE_PARAMS_v1;

use crate::device::Context;
use crate::error::Error;
use crate::lifetime::deferred_free::DeferredFree;
use crate::lifetime::host_functions::{ProgramObject, Registration, call};
use crate::stream::Stream;

/// A host function as the work of a node. Clones refer to the same function.
///
/// ```
/// # use warpwright_driver::graph::{NodeKind, NodeWork};
/// # use warpwright_driver::prelude::*;
/// # fn main() -> Result<(), Error> {
/// # let context = Context::new(&Driver::from_library(warpwright_cuda_emu::library())?.device(0)?)?;
/// # let stream = Stream::new(&context)?;
/// let mut graph = Graph::new(&context)?;
/// let first = graph.host(&[], || println!("first"))?;
/// let second = graph.host(&[first], || println!("second"))?;
/// let NodeKind::Host(call) = graph.nodes()[first.index()].kind() else { panic!("expected this kind of work") };
/// let mut exec = graph.instantiate()?;
/// exec.set(second, NodeWork::Host(call.clone()))?; // the same function twice
/// exec.launch(&stream)?; // writes "first" and "first"
/// stream.synchronize()?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct HostCall(Arc<HostInner>);

/// The share of graphs in a function. The last one passes it to the context, which drops it when no
/// launch can call it.
struct HostInner {
    context: Context,
    /// The function, which is present until this value is dropped.
    function: Option<Registration>,
}

impl HostCall {
    pub(super) fn new(context: &Context, function: impl Fn() + Send + Sync + 'static) -> Self {
        let function = Some(Registration::node(function));
        Self(Arc::new(HostInner {
            context: context.clone(),
            function,
        }))
    }

    /// Returns the parameters of a node that calls the function.
    pub(super) fn params(&self) -> CUDA_HOST_NODE_PARAMS_v1 {
        let data = self
            .0
            .function
            .as_ref()
            .map_or(std::ptr::null_mut(), Registration::data);
        CUDA_HOST_NODE_PARAMS_v1 {
            r#fn: Some(call),
            userData: data,
        }
    }

    pub(super) fn context(&self) -> &Context {
        &self.0.context
    }

    /// Queues one call of the function in a stream.
    pub(super) fn queue(&self, stream: &Stream) -> Result<(), Error> {
        match self.0.function.as_ref().and_then(Registration::share) {
            Some(function) => stream.call(move || function()),
            None => Ok(()),
        }
    }
}

impl Drop for HostInner {
    fn drop(&mut self) {
        if let Some(function) = self.function.take() {
            self.context
                .release(DeferredFree::Object(ProgramObject::new(function)));
        }
    }
}

impl std::fmt::Debug for HostCall {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "HostCall({})", self.0.context)
    }
}
