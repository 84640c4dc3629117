//! Streams: queues with an order between them, and the way work gets into them.

#![allow(unsafe_code)]

use std::ffi::{c_int, c_uint, c_void};
use std::sync::Arc;

use warpwright_driver_sys::*;

use crate::capture::{self, CaptureMember};
use crate::context::Context;
use crate::ffi::{Callback, Out, Result, exports, refuse, require};
use crate::handle::Id;
use crate::machine::Machine;
use crate::queue::{Queue, Task, Ticket};
use crate::state::State;
use crate::work::Work;

/// How a stream stands to the legacy stream.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum StreamKind {
    /// The legacy stream itself.
    Legacy,
    /// Ordered with the legacy stream.
    Blocking,
    /// Not ordered with it.
    NonBlocking,
}

/// A stream.
pub(crate) struct Stream {
    pub(crate) context: Id<Context>,
    pub(crate) kind: StreamKind,
    pub(crate) queue: Arc<Queue>,
    /// Its state in a capture, while it takes part in one.
    pub(crate) capture: Option<CaptureMember>,
    priority: c_int,
}

exports! {
    required {
        2000 cuStreamCreate cuStreamCreate(stream: *mut CUstream, flags: CUstream_flags) => create;
        4000 cuStreamDestroy cuStreamDestroy_v2(stream: CUstream) => destroy;
        2000 cuStreamSynchronize cuStreamSynchronize(stream: CUstream) => synchronize;
        2000 cuStreamQuery cuStreamQuery(stream: CUstream) => query;
    }
    optional {}
    more {
        5050 cuStreamCreateWithPriority cuStreamCreateWithPriority(stream: *mut CUstream, flags: CUstream_flags, priority: c_int) => create_with_priority;
        5050 cuStreamGetPriority cuStreamGetPriority(stream: CUstream, priority: *mut c_int) => get_priority;
        5050 cuStreamGetFlags cuStreamGetFlags(stream: CUstream, flags: *mut CUstream_flags) => get_flags;
        9020 cuStreamGetCtx cuStreamGetCtx(stream: CUstream, context: *mut CUcontext) => get_context;
        12000 cuStreamGetId cuStreamGetId(stream: CUstream, number: *mut u64) => get_number;
        10000 cuLaunchHostFunc cuLaunchHostFunc(stream: CUstream, function: CUhostFn, data: *mut c_void) => launch_host_function;
    }
}

impl State {
    /// The legacy stream of a context, made when it is first used.
    pub(crate) fn legacy_stream(&mut self, m: &'static Machine, context: Id<Context>) -> Id<Stream> {
        if let Some(id) = self.contexts[context].legacy {
            return id;
        }
        let id = self.new_stream(m, context, StreamKind::Legacy, 0);
        self.contexts[context].legacy = Some(id);
        id
    }

    /// The default stream of this thread, which is a blocking stream.
    pub(crate) fn thread_stream(&mut self, m: &'static Machine, context: Id<Context>) -> Id<Stream> {
        let thread = std::thread::current().id();
        if let Some(&id) = self.contexts[context].per_thread.get(&thread) {
            return id;
        }
        let id = self.new_stream(m, context, StreamKind::Blocking, 0);
        self.contexts[context].per_thread.insert(thread, id);
        id
    }

    fn new_stream(
        &mut self,
        m: &'static Machine,
        context: Id<Context>,
        kind: StreamKind,
        priority: c_int,
    ) -> Id<Stream> {
        let queue = Queue::new(m, self.contexts[context].sticky.clone());
        self.streams.insert(Stream { context, kind, queue, capture: None, priority })
    }

    /// The work that a stream's next task must come after, besides the stream's own.
    fn prerequisites(&self, id: Id<Stream>) -> Vec<Ticket> {
        let stream = &self.streams[id];
        let wanted = match stream.kind {
            StreamKind::Legacy => StreamKind::Blocking,
            StreamKind::Blocking => StreamKind::Legacy,
            StreamKind::NonBlocking => return Vec::new(),
        };
        let others = self.streams.iter().map(|(_, other)| other);
        let others = others.filter(|other| other.context == stream.context && other.kind == wanted);
        others.map(|other| other.queue.last()).filter(|ticket| !ticket.is_done()).collect()
    }

    /// Puts a task into a stream that does not capture.
    pub(crate) fn enqueue(&mut self, id: Id<Stream>, task: Task) -> Result<Ticket> {
        capture::refuse_implicit(self, id)?;
        for ticket in self.prerequisites(id) {
            self.streams[id].queue.push(Task::After(ticket));
        }
        Ok(self.streams[id].queue.push(task))
    }

    /// Gives work to a stream: to its queue or, while it captures, to its graph. No ticket when captured.
    pub(crate) fn submit(&mut self, id: Id<Stream>, work: Work) -> Result<Option<Ticket>> {
        if self.streams[id].capture.is_some() {
            capture::record(self, id, work)?;
            return Ok(None);
        }
        self.enqueue(id, Task::Run(work)).map(Some)
    }

    /// What synchronous work on the legacy stream waits for.
    pub(crate) fn before_synchronous(
        &mut self,
        m: &'static Machine,
        context: Id<Context>,
    ) -> Result<Vec<Ticket>> {
        let legacy = self.legacy_stream(m, context);
        capture::refuse_implicit(self, legacy)?;
        let mut waiting = self.prerequisites(legacy);
        waiting.push(self.streams[legacy].queue.last());
        Ok(waiting)
    }
}

fn create(m: &'static Machine, stream: Out<CUstream>, flags: CUstream_flags) -> Result {
    create_with_priority(m, stream, flags, 0)
}

fn create_with_priority(
    m: &'static Machine,
    stream: Out<CUstream>,
    flags: CUstream_flags,
    priority: c_int,
) -> Result {
    require(CUstream_flags::all().contains(flags), || format!("the flags {:#x} are unknown", flags.bits()))?;
    let mut s = m.state();
    let context = s.context()?;
    require(!stream.is_null(), || "the result pointer is NULL".into())?;
    let kind = if flags.contains(CUstream_flags::NON_BLOCKING) {
        StreamKind::NonBlocking
    } else {
        StreamKind::Blocking
    };
    stream.set(s.new_stream(m, context, kind, priority.clamp(-5, 0)).handle())
}

/// Destroying returns at once; work that is queued still runs.
fn destroy(m: &'static Machine, stream: CUstream) -> Result {
    let mut s = m.state();
    require(stream.0 as usize > 2, || "a default stream cannot be destroyed".into())?;
    let id = s.streams.find(stream)?;
    capture::leave(&mut s, id);
    s.streams.remove(id);
    Ok(())
}

fn synchronize(m: &'static Machine, stream: CUstream) -> Result {
    let mut s = m.state();
    let id = s.stream(m, stream)?;
    capture::refuse_in_stream(&mut s, id)?;
    capture::refuse_implicit(&mut s, id)?;
    let mut waiting = s.prerequisites_of_wait(id);
    waiting.push(s.streams[id].queue.last());
    let sticky = s.contexts[s.streams[id].context].sticky.clone();
    drop(s);
    waiting.iter().for_each(Ticket::wait);
    Ok(sticky.check()?)
}

impl State {
    /// Waiting for the legacy stream is waiting for every blocking stream as well.
    fn prerequisites_of_wait(&self, id: Id<Stream>) -> Vec<Ticket> {
        if self.streams[id].kind == StreamKind::Legacy { self.prerequisites(id) } else { Vec::new() }
    }
}

fn query(m: &'static Machine, stream: CUstream) -> Result {
    let mut s = m.state();
    let id = s.stream(m, stream)?;
    capture::refuse_in_stream(&mut s, id)?;
    capture::refuse_implicit(&mut s, id)?;
    let mut waiting = s.prerequisites_of_wait(id);
    waiting.push(s.streams[id].queue.last());
    if waiting.iter().all(Ticket::is_done) {
        return Ok(s.contexts[s.streams[id].context].sticky.check()?);
    }
    Err(CUresult::NOT_READY.into())
}

fn get_priority(m: &'static Machine, stream: CUstream, priority: Out<c_int>) -> Result {
    let mut s = m.state();
    let id = s.stream(m, stream)?;
    priority.set(s.streams[id].priority)
}

fn get_flags(m: &'static Machine, stream: CUstream, flags: Out<CUstream_flags>) -> Result {
    let mut s = m.state();
    let id = s.stream(m, stream)?;
    let non_blocking = s.streams[id].kind == StreamKind::NonBlocking;
    flags.set(if non_blocking { CUstream_flags::NON_BLOCKING } else { CUstream_flags::empty() })
}

fn get_context(m: &'static Machine, stream: CUstream, context: Out<CUcontext>) -> Result {
    let mut s = m.state();
    let id = s.stream(m, stream)?;
    context.set(s.streams[id].context.handle())
}

fn get_number(m: &'static Machine, stream: CUstream, number: Out<u64>) -> Result {
    let mut s = m.state();
    number.set(s.stream(m, stream)?.number())
}

fn launch_host_function(
    m: &'static Machine,
    stream: CUstream,
    function: CUhostFn,
    data: Out<c_void>,
) -> Result {
    let callback = Callback::new(function, data)?;
    let mut s = m.state();
    let id = s.stream(m, stream)?;
    s.submit(id, Work::Host(callback)).map(drop)
}

/// Refuses flags that an entry point does not know.
pub(crate) fn no_flags(flags: c_uint) -> Result {
    if flags == 0 {
        Ok(())
    } else {
        refuse(CUresult::INVALID_VALUE, format!("the flags {flags:#x} are unknown"))
    }
}
