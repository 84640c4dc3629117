//! Streams: the order between them, and the enqueueing of work.

use std::ffi::c_int;

use warpwright_driver_sys::{CUresult, CUstream};

use crate::error::{Result, refuse};
use crate::graph::nodes::Attributes;
use crate::handle::{ContextId, StreamId};
use crate::queue::{Task, Ticket, WorkQueue};
use crate::state::objects::{Stream, StreamKind};
use crate::state::{DriverState, capture};
use crate::work::StreamWork;

impl DriverState {
    /// Returns the stream with this handle in the current context. NULL and the two special handles
    /// are streams as well.
    pub(crate) fn stream(&mut self, handle: CUstream) -> Result<StreamId> {
        let context = self.context()?;
        match handle.0 as usize {
            0 | 1 => Ok(self.legacy_stream(context)),
            2 => Ok(self.thread_stream(context)),
            _ => {
                let id = self.streams.find(handle)?;
                if self.streams[id].context != context {
                    return refuse(
                        CUresult::INVALID_HANDLE,
                        "the stream belongs to another context",
                    );
                }
                Ok(id)
            }
        }
    }

    /// Returns the legacy stream of a context, and creates it at the first use.
    pub(crate) fn legacy_stream(&mut self, context: ContextId) -> StreamId {
        if let Some(id) = self.contexts[context].legacy {
            return id;
        }
        let id = self.new_stream(context, StreamKind::Legacy, 0);
        self.contexts[context].legacy = Some(id);
        id
    }

    /// Returns the default stream of this thread, which is a blocking stream.
    pub(crate) fn thread_stream(&mut self, context: ContextId) -> StreamId {
        let thread = std::thread::current().id();
        if let Some(&id) = self.contexts[context].per_thread.get(&thread) {
            return id;
        }
        let id = self.new_stream(context, StreamKind::Blocking, 0);
        self.contexts[context].per_thread.insert(thread, id);
        id
    }

    pub(crate) fn new_stream(
        &mut self,
        context: ContextId,
        kind: StreamKind,
        priority: c_int,
    ) -> StreamId {
        let name = if kind == StreamKind::Legacy {
            "default stream"
        } else {
            "stream"
        };
        let queue = WorkQueue::new(self.device, self.contexts[context].sticky.clone(), name);
        self.streams.insert(Stream {
            context,
            kind,
            queue,
            capture: None,
            priority,
            attributes: Attributes::new(),
        })
    }

    /// Returns the work of other streams that must precede the next task of a stream.
    fn prerequisites(&self, id: StreamId) -> Vec<Ticket> {
        let stream = &self.streams[id];
        let wanted = match stream.kind {
            StreamKind::Legacy => StreamKind::Blocking,
            StreamKind::Blocking => StreamKind::Legacy,
            StreamKind::NonBlocking => return Vec::new(),
        };
        let others = self.streams.iter().map(|(_, other)| other);
        let others = others.filter(|other| other.context == stream.context && other.kind == wanted);
        others
            .map(|other| other.queue.last())
            .filter(|ticket| self.device.order.is_on() || !ticket.is_done())
            .collect()
    }

    /// Returns the work of other streams that a wait for a stream includes.
    ///
    /// A wait for the legacy stream is a wait for every blocking stream as well.
    pub(crate) fn prerequisites_of_wait(&self, id: StreamId) -> Vec<Ticket> {
        if self.streams[id].kind == StreamKind::Legacy {
            self.prerequisites(id)
        } else {
            Vec::new()
        }
    }

    /// Enqueues a task in a stream that does not capture.
    pub(crate) fn enqueue(&mut self, id: StreamId, task: Task) -> Result<Ticket> {
        capture::refuse_implicit(self, id)?;
        for ticket in self.prerequisites(id) {
            self.streams[id].queue.push(Task::After(ticket));
        }
        Ok(self.streams[id].queue.push(task))
    }

    /// Enqueues work in a stream, or adds it to the graph while the stream captures. Captured work
    /// has no ticket.
    pub(crate) fn submit(&mut self, id: StreamId, work: StreamWork) -> Result<Option<Ticket>> {
        if self.streams[id].capture.is_some() {
            capture::record(self, id, work)?;
            return Ok(None);
        }
        self.enqueue(id, Task::Run(work)).map(Some)
    }

    /// Returns the work for which synchronous work on the legacy stream waits.
    pub(crate) fn before_synchronous(&mut self, context: ContextId) -> Result<Vec<Ticket>> {
        let legacy = self.legacy_stream(context);
        capture::refuse_implicit(self, legacy)?;
        let mut waiting = self.prerequisites(legacy);
        waiting.push(self.streams[legacy].queue.last());
        Ok(waiting)
    }

    /// Returns the last work of every stream of a context.
    pub(crate) fn outstanding(&self, context: ContextId) -> Vec<Ticket> {
        let streams = self.streams.iter().map(|(_, stream)| stream);
        streams
            .filter(|stream| stream.context == context)
            .map(|stream| stream.queue.last())
            .collect()
    }
}
