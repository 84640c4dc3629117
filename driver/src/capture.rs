//! Stream capture: a graph made of what a stream is given.
//!
//! For work that is not ours. Graphs of our own kernels are better recorded, because a capture gives one chain of
//! nodes per stream and refuses, while it lasts, much that is otherwise allowed.
//!
//! What is done right here, because it is easy to do wrong: the capture is always ended, also after an error or a
//! panic; the first call that failed is reported and not only `STREAM_CAPTURE_INVALIDATED`, which follows from it;
//! destructors that would call the driver wait until the end; what another thread gives the stream meanwhile is
//! refused, under the lock that the beginning and the end take; a graph the driver took back is not touched.
//!
//! The driver's codes, and what keeps a program that uses this crate's types from each:
//!
//! | code | name | prevented by |
//! |---|---|---|
//! | 900 | `STREAM_CAPTURE_UNSUPPORTED` | [`Error::Forbidden`] before the call: allocating, loading a module, instantiating; [`Error::Capturing`] for a wait for the stream |
//! | 901 | `STREAM_CAPTURE_INVALIDATED` | follows from the others; [`Error::Capture`] tells the first failure |
//! | 902 | `STREAM_CAPTURE_MERGE` | [`Stream::wait`] and [`Capture::fork`]: [`Error::CapturedEvent`], [`Error::Capturing`] |
//! | 903 | `STREAM_CAPTURE_UNMATCHED` | [`capture`] ends on the stream that it began on |
//! | 904 | `STREAM_CAPTURE_UNJOINED` | [`Capture::fork`] joins, also after an error |
//! | 905 | `STREAM_CAPTURE_ISOLATION` | [`Stream::wait`]: [`Error::Capturing`] |
//! | 906 | `STREAM_CAPTURE_IMPLICIT` | [`Stream`]: every stream is non-blocking, and nothing uses the legacy stream |
//! | 907 | `CAPTURED_EVENT` | [`Event`](crate::Event): [`Error::CapturedEvent`] |
//! | 908 | `STREAM_CAPTURE_WRONG_THREAD` | [`capture`] ends on the thread that it began on |

use std::cell::RefCell;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::rc::Rc;
use std::sync::Arc;

use driver_sys::{CUgraph, CUgraphNode, CUstreamCaptureMode, CUstreamCaptureStatus};

use crate::adopt::{Launched, adopt};
use crate::context::expect_same;
use crate::graph::RawGraph;
use crate::memory::refuse_memory;
use crate::queue::{Queue, Work};
use crate::regions::{self, CaptureMode};
use crate::release::Release;
use crate::stream::last_node;
use crate::timeline::{Captured, Kept};
use crate::{Context, DriverError, Error, Event, Graph, NodeId, Stream};

/// A queue whose work becomes nodes of a captured graph.
///
/// ```
/// # use warpwright_driver::*;
/// # fn main() -> Result<(), Error> {
/// # let context = Context::new(&Driver::of(warpwright_cuda_emu::library())?.device(0)?)?;
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
    captured: Arc<Captured>,
    pushed: Rc<RefCell<Vec<(CUgraphNode, Work)>>>,
    /// The graph that it adds to, if there is one already: others may call the driver with it.
    into: Option<Arc<RawGraph>>,
}

/// Captures what `work` pushes into the queue it is given, as a graph.
///
/// # Errors
/// [`Error::Capture`] with the first failure of the region - the call that failed on this thread, else what `work`
/// returned, else what the driver said at the end. [`Error::Capturing`] if the stream captures already.
pub fn capture(
    stream: &Stream,
    mode: CaptureMode,
    work: impl FnOnce(&mut Capture<'_>) -> Result<(), Error>,
) -> Result<Graph, Error> {
    let region = Region::begin(stream, mode, None)?;
    let done = region.run(work);
    let ended = region.end();
    ended.finish(stream, done)
}

/// Captures what `work` pushes as nodes of a graph that is there already, after the given nodes, and gives the graph
/// back. After an error there is none: whether the driver keeps what was captured until then is not said anywhere.
///
/// ```
/// # use warpwright_driver::*;
/// # fn main() -> Result<(), Error> {
/// # let context = Context::new(&Driver::of(warpwright_cuda_emu::library())?.device(0)?)?;
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
/// As [`capture`]; a node of another graph, or a driver without such captures.
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
    let region = Region::begin(stream, mode, Some((graph, &after)))?;
    let done = region.run(work);
    let ended = region.end();
    ended.finish(stream, done)
}

/// The error of a capture that the driver took back: what failed first, and how it ended.
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

/// A region of capture: while it lives, the stream captures and destructors wait.
struct Region<'s> {
    stream: &'s Stream,
    captured: Arc<Captured>,
    /// The graph that it adds to, if there was one.
    into: Option<Graph>,
    open: bool,
}

/// How a capture ended.
struct Ended {
    failed: Option<DriverError>,
    graph: Result<CUgraph, DriverError>,
    into: Option<Graph>,
}

/// What a region's work did: what it returned, what it pushed, and the graphs that it launched.
struct Done {
    result: Result<(), Error>,
    pushed: Vec<(CUgraphNode, Work)>,
    launched: Vec<Launched>,
}

impl Ended {
    /// The graph, or the first failure.
    fn finish(
        self,
        stream: &Stream,
        Done {
            result,
            pushed,
            launched,
        }: Done,
    ) -> Result<Graph, Error> {
        match self.graph {
            Ok(raw) => {
                // Also after an error of the region's own: the capture itself went well, and its graph is ours.
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

impl<'s> Region<'s> {
    /// Begins a capture, into a graph after these nodes if one is given.
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
        let captured = Captured::new();
        let _unwaited = stream.timeline().unwaited();
        context.driver().gate().begin(|| {
            let mut turn = stream.begin("a capture")?;
            // Who waits meanwhile for the work before the capture asks by this fence.
            turn.look();
            turn.fence();
            // SAFETY: the stream is alive and not the legacy stream; the nodes are of the graph.
            unsafe {
                begin_raw(
                    stream,
                    mode,
                    into.as_ref().map(|(graph, after)| (&graph.raw, *after)),
                )
            }?;
            turn.join(&captured);
            Ok::<_, Error>(())
        })?;
        captured.join(stream.timeline());
        regions::enter(region);
        Ok(Self {
            stream,
            captured,
            into: into.map(|(graph, _)| graph),
            open: true,
        })
    }

    /// Runs the region's work.
    fn run(&self, work: impl FnOnce(&mut Capture<'_>) -> Result<(), Error>) -> Done {
        let (captured, pushed) = (self.captured.clone(), Rc::default());
        let into = self.into.as_ref().map(|graph| graph.raw.clone());
        let mut capture = Capture {
            stream: self.stream,
            captured,
            pushed,
            into,
        };
        let result = work(&mut capture);
        let child = |(node, kept): Kept| Some((node, *kept.downcast().ok()?));
        let launched = capture
            .captured
            .take_kept()
            .into_iter()
            .filter_map(child)
            .collect();
        Done {
            result,
            pushed: capture.pushed.take(),
            launched,
        }
    }

    fn end(mut self) -> Ended {
        self.open = false;
        self.close()
    }

    /// Ends the capture whatever happened in it. Runs once, on the thread that began.
    fn close(&mut self) -> Ended {
        let failed = regions::leave();
        let graph = self.end_capture();
        self.stream.context().driver().gate().end();
        self.stream.context().collect();
        let mut into = self.into.take();
        if graph.is_err()
            && let Some(graph) = into.take()
        {
            graph.abandon();
        }
        Ended {
            failed,
            graph,
            into,
        }
    }

    fn end_capture(&self) -> Result<CUgraph, DriverError> {
        // The end is tried whatever this says: the context may be current all the same.
        let _current = self.stream.context().enter();
        let joined = self.captured.take_joined();
        // Under the stream's lock, so that no work comes between the end and the word that it ended.
        let mut state = self.stream.timeline().lock();
        let mut ended = self.call_end();
        if ended.is_err() && self.still_captures() {
            // A graph that comes of the second call is not what was asked for: the first has failed.
            ended = self
                .call_end()
                .and_then(|graph| ended.inspect_err(|_| self.discard(graph)));
        }
        if self.still_captures() {
            // Nothing repairs that. The stream stays marked, so that it refuses work instead of losing it.
            tell!(error, "the stream still captures; use another one");
            return ended;
        }
        state.capture = None;
        drop(state);
        joined
            .iter()
            .for_each(|timeline| timeline.lock().capture = None);
        ended
    }

    fn call_end(&self) -> Result<CUgraph, DriverError> {
        let mut graph = CUgraph::NULL;
        let (driver, stream) = (self.stream.context().driver(), self.stream.raw());
        // SAFETY: `graph` is ours to write. On an error the driver has destroyed the graph, and it is not touched.
        unsafe { cu_if_there!(driver, cuStreamEndCapture(stream, &mut graph)) }.map(|()| graph)
    }

    /// Destroys a graph that nothing names yet.
    fn discard(&self, graph: CUgraph) {
        drop(Release::Graph(graph).now(*self.stream.context().driver()));
    }

    fn still_captures(&self) -> bool {
        let mut status = CUstreamCaptureStatus::NONE;
        let Some(ask) = self.stream.context().driver().api().cuStreamIsCapturing else {
            return false;
        };
        // SAFETY: `status` is ours to write; the stream is alive.
        let code = unsafe { ask(self.stream.raw(), &mut status) };
        code == driver_sys::CUresult::SUCCESS && status != CUstreamCaptureStatus::NONE
    }
}

/// # Safety
/// The stream is alive and not the legacy stream, and the nodes are of the graph.
unsafe fn begin_raw(
    stream: &Stream,
    mode: CUstreamCaptureMode,
    into: Option<(&Arc<RawGraph>, &[CUgraphNode])>,
) -> Result<(), DriverError> {
    let (driver, raw) = (stream.context().driver(), stream.raw());
    let Some((graph, after)) = into else {
        // SAFETY: the caller vouches for the stream.
        return unsafe { cu_if_there!(driver, cuStreamBeginCapture_v2(raw, mode)) };
    };
    let (graph, _calls) = graph.begin_whole();
    let (full, count, after) = (std::ptr::null(), after.len(), after.as_ptr());
    // SAFETY: the caller vouches for the stream and the nodes. Without records the edges are full.
    unsafe {
        cu_if_there!(
            driver,
            cuStreamBeginCaptureToGraph(raw, graph, after, full, count, mode)
        )
    }
}

impl Drop for Region<'_> {
    /// A panic in the region: the capture ends, and its graph goes.
    fn drop(&mut self) {
        if !self.open {
            return;
        }
        if let Ended {
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
    /// The stream that captures, for work that is not ours. What such work needs must outlive the graph.
    pub fn stream(&self) -> &Stream {
        self.stream
    }

    /// Captures two chains that run at the same time: `work` receives this queue and a queue over `other`, which joins
    /// this one at the end.
    ///
    /// The chains join even if `work` panics, so that the panic may be caught within the capture.
    ///
    /// # Errors
    /// Returns an error if `work` does, if `other` is of another context or in another capture, or if the driver refuses
    /// a call.
    pub fn fork(
        &mut self,
        other: &Stream,
        work: impl FnOnce(&mut Self, &mut Capture<'_>) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let context = self.stream.context();
        expect_same(&other.name(), other.context(), "the capture", context)?;
        let (forked, joined) = (Event::untimed(context)?, Event::untimed(context)?);
        forked.record(self.stream)?;
        self.draw_in(other, &forked)?;
        let (captured, pushed) = (self.captured.clone(), self.pushed.clone());
        let mut second = Capture {
            stream: other,
            captured,
            pushed,
            into: self.into.clone(),
        };
        let result = catch_unwind(AssertUnwindSafe(|| work(self, &mut second)));
        // Joined also after a failure, so that the capture fails by what `work` did and not by a fork left open.
        let join = joined
            .record(other)
            .and_then(|()| self.join(other, &joined));
        match result {
            Ok(result) => result.and(join),
            Err(panic) => resume_unwind(panic),
        }
    }

    /// Draws a stream into the capture: it waits for an event of it.
    fn draw_in(&self, other: &Stream, forked: &Event) -> Result<(), Error> {
        let (_current, driver) = (other.context().enter()?, other.context().driver());
        let _unwaited = other.timeline().unwaited();
        let mut turn = other.begin("a capture")?;
        turn.fence();
        // SAFETY: stream and event are alive and of one context.
        unsafe { cu!(driver, cuStreamWaitEvent(other.raw(), forked.raw(), 0)) }?;
        turn.join(&self.captured);
        self.captured.join(other.timeline());
        Ok(())
    }

    /// Lets the capturing stream wait for the one that joined, which is its own again.
    fn join(&self, other: &Stream, joined: &Event) -> Result<(), Error> {
        let (_current, driver) = (other.context().enter()?, other.context().driver());
        let _state = self.stream.timeline().lock();
        // SAFETY: stream and event are alive and of one context.
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
            .try_for_each(|(_, region, _)| refuse_memory(region, "captured work"))?;
        {
            let _calls = self.into.as_ref().map(|graph| graph.begin_whole());
            let _state = self.stream.timeline().lock();
            let _current = self.stream.context().enter()?;
            work.call(self.stream.context().driver(), self.stream)?;
        }
        let node = last_node(self.stream);
        // Remembered whatever the driver told: the graph that becomes of the capture names what the work names.
        let known = node.as_ref().ok().copied().flatten();
        self.pushed
            .borrow_mut()
            .push((known.unwrap_or(CUgraphNode::NULL), work));
        node.map(drop)
    }
}
