//! Stream capture: turns the work queued in a stream into a graph.
//!
//! Captures are for work that this crate does not queue, such as the kernels of a library. For your
//! own kernels a [`Recorder`](crate::graph::Recorder) is better. A capture gives one chain of nodes
//! per stream, and forbids many calls while it lasts.
//!
//! This module does five things that are easy to get wrong:
//!
//! - The capture always ends, even after an error or a panic.
//! - The error is the first call that failed, not only `STREAM_CAPTURE_INVALIDATED`, which follows
//!   from it.
//! - Destructors that would call the driver wait until the end.
//! - Work that another thread queues in the stream is refused. The check holds the same lock as the
//!   begin and the end of the capture.
//! - A graph that the driver took back is not touched again.
//!
//! The driver's error codes, and the part of this crate that prevents each of them:
//!
//! | code | name | prevented by |
//! |---|---|---|
//! | 900 | `STREAM_CAPTURE_UNSUPPORTED` | [`Error::Forbidden`] before the call: allocating, loading a module, instantiating; [`Error::Capturing`] for a wait for the stream |
//! | 901 | `STREAM_CAPTURE_INVALIDATED` | follows from the others; [`Error::Capture`] contains the first failure |
//! | 902 | `STREAM_CAPTURE_MERGE` | [`Stream::wait`] and [`Capture::fork`]: [`Error::CapturedEvent`], [`Error::Capturing`] |
//! | 903 | `STREAM_CAPTURE_UNMATCHED` | [`capture`] ends on the stream that it began on |
//! | 904 | `STREAM_CAPTURE_UNJOINED` | [`Capture::fork`] joins, also after an error |
//! | 905 | `STREAM_CAPTURE_ISOLATION` | [`Stream::wait`]: [`Error::Capturing`] |
//! | 906 | `STREAM_CAPTURE_IMPLICIT` | [`Stream`]: every stream is non-blocking, and nothing uses the legacy stream |
//! | 907 | `CAPTURED_EVENT` | [`Event`](crate::ordering::Event): [`Error::CapturedEvent`] |
//! | 908 | `STREAM_CAPTURE_WRONG_THREAD` | [`capture`] ends on the thread that it began on |

use std::cell::RefCell;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::rc::Rc;
use std::sync::Arc;

use driver_sys::{CUgraph, CUgraphNode, CUstreamCaptureMode, CUstreamCaptureStatus};

use crate::device::Context;
use crate::device::context::expect_same;
use crate::error::{DriverError, Error};
use crate::graph::raw_graph::RawGraph;
use crate::graph::record::captured_graph::{LaunchedChild, PushedWork, adopt};
use crate::graph::{Graph, NodeId};
use crate::lifetime::active_captures;
use crate::lifetime::active_captures::CaptureMode;
use crate::lifetime::deferred_free::DeferredFree;
use crate::lifetime::stream_progress::{CapturedStreams, KeptObject};
use crate::memory::region::refuse_graph_memory;
use crate::ordering::Event;
use crate::stream::cuda_stream::last_captured_node;
use crate::stream::{Queue, Stream, Work};

/// A queue whose operations become nodes of a captured graph.
///
/// ```
/// # use warpwright_driver::prelude::*;
/// # fn main() -> Result<(), Error> {
/// # let context = Context::new(&Driver::from_library(warpwright_cuda_emu::library())?.device(0)?)?;
/// # let stream = Stream::new(&context)?;
/// let x = Buffer::<f32>::zeroed(&context, 4)?;
/// let graph = capture(&stream, CaptureMode::ThreadLocal, |queue| queue.fill(&x, 1.0))?;
/// assert_eq!(stream.read(&x)?, [0.0; 4]); // nothing has run
/// graph.instantiate()?.launch(&stream)?;
/// assert_eq!(stream.read(&x)?, [1.0; 4]);
/// # Ok(())
/// # }
/// ```
pub struct Capture<'s> {
    stream: &'s Stream,
    captured: Arc<CapturedStreams>,
    pushed: Rc<RefCell<Vec<PushedWork>>>,
    /// The graph that the capture adds to, if any. Other threads may call the driver with it.
    into: Option<Arc<RawGraph>>,
}

/// Captures the operations that `work` adds to its queue, and returns them as a graph.
///
/// # Errors
/// - [`Error::Capturing`] if the stream captures already.
/// - [`Error::Capture`] with the first failure: a failed call on this thread, otherwise the error
///   of `work`, otherwise the driver's error at the end of the capture.
pub fn capture(
    stream: &Stream,
    mode: CaptureMode,
    work: impl FnOnce(&mut Capture<'_>) -> Result<(), Error>,
) -> Result<Graph, Error> {
    let region = OpenCapture::begin(stream, mode, None)?;
    let done = region.run(work);
    let ended = region.end();
    ended.finish(stream, done)
}

/// Captures the operations that `work` adds to its queue as nodes of an existing graph, after the
/// given nodes, and returns the graph.
///
/// After an error the graph is lost, because the driver does not document whether it keeps the
/// nodes captured so far.
///
/// ```
/// # use warpwright_driver::prelude::*;
/// # fn main() -> Result<(), Error> {
/// # let context = Context::new(&Driver::from_library(warpwright_cuda_emu::library())?.device(0)?)?;
/// # let stream = Stream::new(&context)?;
/// let x = Buffer::<f32>::zeroed(&context, 4)?;
/// let mut graph = Graph::new(&context)?;
/// let first = graph.fill(&[], &x, 1.0)?;
/// let graph = capture_into(graph, &[first], &stream, CaptureMode::ThreadLocal, |queue| queue.fill(&x, 2.0))?;
/// assert_eq!((graph.nodes().len(), graph.edges().len()), (2, 1));
/// graph.instantiate()?.launch(&stream)?;
/// assert_eq!(stream.read(&x)?, [2.0; 4]);
/// # Ok(())
/// # }
/// ```
///
/// # Errors
/// - The errors of [`capture`].
/// - [`Error::ForeignNode`] or [`Error::RemovedNode`] if `after` contains a node that the graph
///   does not have.
/// - [`Error::Driver`] if the driver does not support captures into a graph.
pub fn capture_into(
    graph: Graph,
    after: &[NodeId],
    stream: &Stream,
    mode: CaptureMode,
    work: impl FnOnce(&mut Capture<'_>) -> Result<(), Error>,
) -> Result<Graph, Error> {
    expect_same("a graph", graph.context(), "the stream", stream.context())?;
    graph.expect_whole("capturing into it")?;
    let after = graph.raw_nodes(after)?;
    let region = OpenCapture::begin(stream, mode, Some((graph, &after)))?;
    let done = region.run(work);
    let ended = region.end();
    ended.finish(stream, done)
}

/// Returns the error of a capture that the driver took back: the first failure, and the error at
/// the end.
fn broken(failed: Option<DriverError>, returned: Option<Error>, end: DriverError) -> Error {
    match failed.map(Error::from).or(returned) {
        Some(first) => Error::Capture {
            first: first.into(),
            end: Some(end),
        },
        None => Error::Capture {
            first: Error::from(end).into(),
            end: None,
        },
    }
}

/// A capture in progress. While it lives, the stream captures and destructors wait.
struct OpenCapture<'s> {
    stream: &'s Stream,
    captured: Arc<CapturedStreams>,
    /// The graph that the capture adds to, if any.
    into: Option<Graph>,
    open: bool,
}

/// The result of ending a capture.
struct EndedCapture {
    failed: Option<DriverError>,
    graph: Result<CUgraph, DriverError>,
    into: Option<Graph>,
}

/// The result of the captured code: its return value, its operations, and the graphs it launched.
struct RegionOutcome {
    result: Result<(), Error>,
    pushed: Vec<PushedWork>,
    launched: Vec<LaunchedChild>,
}

impl EndedCapture {
    /// Returns the graph, or the first failure.
    fn finish(
        self,
        stream: &Stream,
        RegionOutcome {
            result,
            pushed,
            launched,
        }: RegionOutcome,
    ) -> Result<Graph, Error> {
        match self.graph {
            Ok(raw) => {
                // Even if the captured code failed, the driver has ended the capture successfully
                // and handed over a graph, which must be destroyed by the wrapper.
                let graph = self
                    .into
                    .unwrap_or_else(|| Graph::adopt(stream.context(), raw));
                match result {
                    Ok(()) => adopt(graph, raw, pushed, launched),
                    Err(first) => Err(Error::Capture {
                        first: first.into(),
                        end: None,
                    }),
                }
            }
            Err(end) => Err(broken(self.failed, result.err(), end)),
        }
    }
}

impl<'s> OpenCapture<'s> {
    /// Begins a capture, into a graph after the given nodes if there is one.
    fn begin(
        stream: &'s Stream,
        region: CaptureMode,
        into: Option<(Graph, &[CUgraphNode])>,
    ) -> Result<Self, Error> {
        let context = stream.context();
        let _current = context.enter()?;
        let mode = match region {
            CaptureMode::Global => CUstreamCaptureMode::GLOBAL,
            CaptureMode::ThreadLocal => CUstreamCaptureMode::THREAD_LOCAL,
            CaptureMode::Relaxed => CUstreamCaptureMode::RELAXED,
        };
        let captured = CapturedStreams::new();

        // The order of these locks: first no host wait for the stream, then no destructor in the
        // driver, then the stream. Between the first and the last, other threads may still queue
        // work in the stream. Such work comes before the fence.
        let _unwaited = stream.progress().unwaited();
        context.driver().gate().begin(|| {
            let mut submission = stream.begin("a capture")?;

            // During the capture the stream cannot be asked. Threads that wait for earlier work use
            // this fence.
            submission.look();
            submission.fence();

            // SAFETY: `stream` shares the stream, which is never the legacy stream. The caller got
            // the nodes from the graph.
            unsafe {
                begin_raw(
                    stream,
                    mode,
                    into.as_ref().map(|(graph, after)| (&graph.raw, *after)),
                )
            }?;
            submission.join(&captured);
            Ok::<_, Error>(())
        })?;
        captured.join(stream.progress());
        active_captures::enter(region);
        Ok(Self {
            stream,
            captured,
            into: into.map(|(graph, _)| graph),
            open: true,
        })
    }

    /// Runs the code that is captured.
    fn run(&self, work: impl FnOnce(&mut Capture<'_>) -> Result<(), Error>) -> RegionOutcome {
        let captured = self.captured.clone();
        let pushed = Rc::default();
        let into = self.into.as_ref().map(|graph| graph.raw.clone());
        let mut capture = Capture {
            stream: self.stream,
            captured,
            pushed,
            into,
        };
        let result = work(&mut capture);
        let child = |kept: KeptObject| {
            Some(LaunchedChild {
                node: kept.node,
                child: *kept.object.downcast().ok()?,
            })
        };
        let launched = capture
            .captured
            .take_kept()
            .into_iter()
            .filter_map(child)
            .collect();
        RegionOutcome {
            result,
            pushed: capture.pushed.take(),
            launched,
        }
    }

    fn end(mut self) -> EndedCapture {
        self.open = false;
        self.close()
    }

    /// Ends the capture, whatever happened in it. Runs once, on the thread that began it.
    fn close(&mut self) -> EndedCapture {
        // The region ends first, so that a failure of the end is not recorded as the first failure.
        // The gate opens only after the driver has ended the capture, because it lets destructors
        // run.
        let failed = active_captures::leave();
        let graph = self.end_capture();
        self.stream.context().driver().gate().end();
        self.stream.context().collect();
        let mut into = self.into.take();
        if graph.is_err()
            && let Some(graph) = into.take()
        {
            graph.abandon();
        }

        EndedCapture {
            failed,
            graph,
            into,
        }
    }

    fn end_capture(&self) -> Result<CUgraph, DriverError> {
        // An error here is ignored, because the context may be current already. The capture must
        // end in any case.
        let _current = self.stream.context().enter();
        let joined = self.captured.take_joined();

        // The stream stays locked until its mark is gone. Otherwise another thread could queue work
        // that this crate still takes for captured.
        let mut state = self.stream.progress().lock();
        let mut ended = self.call_end();
        if ended.is_err() && self.still_captures() {
            // If the second call returns a graph, it is destroyed: the first call has failed, so
            // the graph may be incomplete.
            ended = self
                .call_end()
                .and_then(|graph| ended.inspect_err(|_| self.discard(graph)));
        }

        if self.still_captures() {
            // There is no way to repair this. The stream keeps its mark, so that it refuses work
            // instead of losing it.
            log_event!(error, "the stream still captures; use another one");
            return ended;
        }

        state.capture = None;
        drop(state);

        // One stream after the other, because the list contains the capturing stream as well.
        for progress in &joined {
            progress.lock().capture = None;
        }

        ended
    }

    fn call_end(&self) -> Result<CUgraph, DriverError> {
        let mut graph = CUgraph::NULL;
        let driver = self.stream.context().driver();
        let stream = self.stream.raw();
        // SAFETY: `graph` is a local variable that the driver may write. After an error the driver
        // has destroyed the graph, and it is not used.
        unsafe { cu_optional!(driver, cuStreamEndCapture(stream, &mut graph)) }.map(|()| graph)
    }

    /// Destroys a graph that nothing uses yet.
    fn discard(&self, graph: CUgraph) {
        drop(DeferredFree::Graph(graph).now(*self.stream.context().driver()));
    }

    fn still_captures(&self) -> bool {
        let mut status = CUstreamCaptureStatus::NONE;
        let Some(ask) = self.stream.context().driver().api().cuStreamIsCapturing else {
            return false;
        };
        // SAFETY: `status` is a local variable that the driver may write. `self` shares the stream.
        let code = unsafe { ask(self.stream.raw(), &mut status) };
        code == driver_sys::CUresult::SUCCESS && status != CUstreamCaptureStatus::NONE
    }
}

/// Begins a capture in the driver.
///
/// # Safety
/// - The stream must be alive. It must not be the legacy default stream.
/// - The nodes must belong to the graph.
unsafe fn begin_raw(
    stream: &Stream,
    mode: CUstreamCaptureMode,
    into: Option<(&Arc<RawGraph>, &[CUgraphNode])>,
) -> Result<(), DriverError> {
    let driver = stream.context().driver();
    let raw = stream.raw();
    let Some((graph, after)) = into else {
        // SAFETY: the caller guarantees that the stream is alive and is not the legacy stream.
        return unsafe { cu_optional!(driver, cuStreamBeginCapture_v2(raw, mode)) };
    };

    let (graph, _calls) = graph.begin_whole();
    let full = std::ptr::null();
    let count = after.len();
    let after = after.as_ptr();

    // SAFETY: the caller guarantees that the stream is alive and that the nodes belong to the
    // graph. A null pointer instead of edge data means full edges.
    unsafe {
        cu_optional!(
            driver,
            cuStreamBeginCaptureToGraph(raw, graph, after, full, count, mode)
        )
    }
}

impl Drop for OpenCapture<'_> {
    /// After a panic in the captured code, ends the capture and drops its graph.
    fn drop(&mut self) {
        if !self.open {
            return;
        }
        if let EndedCapture {
            graph: Ok(raw),
            into: None,
            ..
        } = self.close()
        {
            drop(Graph::adopt(self.stream.context(), raw));
        }
    }
}

impl Capture<'_> {
    /// Returns the capturing stream, for work that this crate does not queue. Objects that such
    /// work uses must outlive the graph.
    pub fn stream(&self) -> &Stream {
        self.stream
    }

    /// Captures two chains that may run at the same time.
    ///
    /// `work` receives this queue and a queue over `other`. The second chain joins this one at the
    /// end. It joins even if `work` panics, so that the panic can be caught within the capture.
    ///
    /// # Errors
    /// - The error of `work`.
    /// - [`Error::WrongContext`] if `other` belongs to another context.
    /// - [`Error::Capturing`] if `other` is part of a capture already.
    /// - [`Error::Driver`] if a driver call fails.
    pub fn fork(
        &mut self,
        other: &Stream,
        work: impl FnOnce(&mut Self, &mut Capture<'_>) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let context = self.stream.context();
        expect_same(&other.name(), other.context(), "the capture", context)?;
        let forked = Event::untimed(context)?;
        let joined = Event::untimed(context)?;
        forked.record(self.stream)?;
        self.draw_in(other, &forked)?;
        let captured = self.captured.clone();
        let pushed = self.pushed.clone();
        let mut second = Capture {
            stream: other,
            captured,
            pushed,
            into: self.into.clone(),
        };
        let result = catch_unwind(AssertUnwindSafe(|| work(self, &mut second)));

        // Joined even after a failure. Otherwise the capture would report the open fork and not the
        // error of `work`.
        let join = joined
            .record(other)
            .and_then(|()| self.join(other, &joined));
        match result {
            Ok(result) => result.and(join),
            Err(panic) => resume_unwind(panic),
        }
    }

    /// Draws a stream into the capture by making it wait for an event of the capture.
    fn draw_in(&self, other: &Stream, forked: &Event) -> Result<(), Error> {
        let _current = other.context().enter()?;
        let driver = other.context().driver();
        let _unwaited = other.progress().unwaited();
        let mut submission = other.begin("a capture")?;

        // As at the begin of the capture: threads that wait for earlier work use this fence.
        submission.fence();

        // SAFETY: the references share the stream and the event, which are of one context.
        unsafe { cu!(driver, cuStreamWaitEvent(other.raw(), forked.raw(), 0)) }?;
        submission.join(&self.captured);
        self.captured.join(other.progress());
        Ok(())
    }

    /// Makes the capturing stream wait for the one that joined.
    fn join(&self, other: &Stream, joined: &Event) -> Result<(), Error> {
        let _current = other.context().enter()?;
        let driver = other.context().driver();
        let _state = self.stream.progress().lock();

        // SAFETY: the references share the stream and the event, which are of one context.
        unsafe {
            cu!(
                driver,
                cuStreamWaitEvent(self.stream.raw(), joined.raw(), 0)
            )
        }?;
        Ok(())
    }
}

impl std::fmt::Debug for Capture<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Capture({:?})", self.stream)
    }
}

impl Queue for Capture<'_> {
    fn context(&self) -> &Context {
        self.stream.context()
    }

    fn push(&mut self, work: Work) -> Result<(), Error> {
        work.expect_in(self.stream.context())?;
        work.touches()
            .try_for_each(|touch| refuse_graph_memory(touch.region, "captured work"))?;
        {
            let _calls = self.into.as_ref().map(|graph| graph.begin_whole());
            let _state = self.stream.progress().lock();
            let _current = self.stream.context().enter()?;
            work.call(self.stream.context().driver(), self.stream)?;
        }

        let node = last_captured_node(self.stream);

        // Kept even if the driver reported no node, because the captured graph uses the objects of
        // this operation.
        let known = node.as_ref().ok().copied().flatten();
        self.pushed.borrow_mut().push(PushedWork {
            node: known.unwrap_or(CUgraphNode::NULL),
            work,
        });
        node.map(drop)
    }
}
