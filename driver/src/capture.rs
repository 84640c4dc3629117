//! Stream capture: a graph made of what a stream is given.
//!
//! For work that is not ours. Graphs of our own kernels are better recorded, because a capture gives one chain of
//! nodes per stream and refuses, while it lasts, much that is otherwise allowed.
//!
//! What is done right here, because it is easy to do wrong: the capture is always ended, also after an error or a
//! panic; the first call that failed is reported and not only `STREAM_CAPTURE_INVALIDATED`, which follows from it;
//! destructors that would call the driver wait until the end; what another thread gives the stream meanwhile is
//! refused, under the lock that the beginning and the end take; a graph the driver took back is not touched.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::{Arc, Mutex};
use std::thread::ThreadId;

use driver_sys::{
    CUgraph, CUgraphEdgeData, CUgraphNode, CUgraphNodeType, CUstreamCaptureMode, CUstreamCaptureStatus,
};

use crate::graph::{EdgeKind, NodeKind, Owner};
use crate::lock::lock;
use crate::queue::{Queue, Work};
use crate::timeline::Timeline;
use crate::{Context, DriverError, Error, Event, Graph, Stream};

/// Which calls a capture forbids meanwhile: allocation, module loading and such.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CaptureMode {
    /// On every thread whose own mode is global.
    Global,
    /// On this thread. The usual choice.
    ThreadLocal,
    /// Nowhere.
    Relaxed,
}

/// A queue whose work becomes nodes of a captured graph.
pub struct Capture<'s> {
    stream: &'s Stream,
    captured: Arc<Captured>,
    pushed: Rc<RefCell<Vec<(CUgraphNode, Work)>>>,
}

/// What a capture has: its streams point to it while it lasts.
pub(crate) struct Captured {
    thread: ThreadId,
    /// What captured work needs beside the memory and the kernels that its nodes name.
    owners: Mutex<Vec<Owner>>,
    /// The streams that joined it.
    joined: Mutex<Vec<Arc<Timeline>>>,
}

impl Captured {
    fn new() -> Arc<Self> {
        let thread = std::thread::current().id();
        Arc::new(Self { thread, owners: Mutex::default(), joined: Mutex::default() })
    }

    /// Whether this thread captures.
    pub(crate) fn is_here(&self) -> bool {
        self.thread == std::thread::current().id()
    }

    /// Keeps something for as long as the graph that becomes of the capture.
    pub(crate) fn keep(&self, owner: Owner) {
        lock(&self.owners).push(owner);
    }
}

thread_local! {
    /// The captures that this thread is in, each with the first failure of its region.
    static REGIONS: RefCell<Vec<Option<DriverError>>> = const { RefCell::new(Vec::new()) };
}

/// Remembers the first failure of the innermost region on this thread. At the thread's end there is none.
pub(crate) fn note(error: &DriverError) {
    let _ = REGIONS.try_with(|regions| {
        if let Ok(mut regions) = regions.try_borrow_mut()
            && let Some(first) = regions.last_mut()
        {
            first.get_or_insert_with(|| error.clone());
        }
    });
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
    let region = Region::begin(stream, mode)?;
    let mut capture = Capture { stream, captured: region.captured.clone(), pushed: Rc::default() };
    let result = work(&mut capture);
    let owners = std::mem::take(&mut *lock(&capture.captured.owners));
    let ended = region.end();
    let pushed = capture.pushed.take();
    match (result, ended.failed, ended.graph) {
        (Ok(()), _, Ok(raw)) => adopt(stream.context(), raw, pushed, owners),
        (Err(first), _, Ok(raw)) => {
            // The capture itself went well: its graph is ours to destroy.
            drop(Graph::adopt(stream.context(), raw));
            Err(Error::Capture { first: first.into(), end: None })
        }
        (result, failed, Err(end)) => Err(broken(failed, result.err(), end)),
    }
}

/// The error of a capture that the driver took back: what failed first, and how it ended.
fn broken(failed: Option<DriverError>, returned: Option<Error>, end: DriverError) -> Error {
    match failed.map(Error::from).or(returned) {
        Some(first) => Error::Capture { first: first.into(), end: Some(end) },
        None => Error::Capture { first: Error::from(end).into(), end: None },
    }
}

/// A region of capture: while it lives, the stream captures and destructors wait.
struct Region<'s> {
    stream: &'s Stream,
    captured: Arc<Captured>,
    open: bool,
}

/// How a capture ended.
struct Ended {
    failed: Option<DriverError>,
    graph: Result<CUgraph, DriverError>,
}

impl<'s> Region<'s> {
    fn begin(stream: &'s Stream, mode: CaptureMode) -> Result<Self, Error> {
        let context = stream.context();
        let _current = context.enter()?;
        let mode = match mode {
            CaptureMode::Global => CUstreamCaptureMode::GLOBAL,
            CaptureMode::ThreadLocal => CUstreamCaptureMode::THREAD_LOCAL,
            CaptureMode::Relaxed => CUstreamCaptureMode::RELAXED,
        };
        let captured = Captured::new();
        context.driver().gate().begin(|| {
            let mut turn = stream.begin("a capture")?;
            // Destructors that run meanwhile ask for the work before the capture by this fence.
            turn.fence();
            // SAFETY: the stream is alive and not the legacy stream.
            unsafe { cu_if_there!(context.driver(), cuStreamBeginCapture_v2(stream.raw(), mode)) }?;
            turn.join(&captured);
            Ok::<_, Error>(())
        })?;
        lock(&captured.joined).push(stream.timeline().clone());
        REGIONS.with_borrow_mut(|regions| regions.push(None));
        Ok(Self { stream, captured, open: true })
    }

    fn end(mut self) -> Ended {
        self.open = false;
        self.close()
    }

    /// Ends the capture whatever happened in it. Runs once, on the thread that began.
    fn close(&self) -> Ended {
        let failed = REGIONS.with_borrow_mut(Vec::pop).flatten();
        let graph = self.end_capture();
        self.stream.context().driver().gate().end();
        Ended { failed, graph }
    }

    fn end_capture(&self) -> Result<CUgraph, DriverError> {
        let context = self.stream.context();
        let _current = context.enter()?;
        let joined = std::mem::take(&mut *lock(&self.captured.joined));
        let mut graph = CUgraph::NULL;
        // Under the stream's lock, so that no work comes between the end and the word that it ended.
        let mut state = self.stream.timeline().lock();
        // SAFETY: `graph` is ours to write. On an error the driver has destroyed the graph, and it is not touched.
        let ended =
            unsafe { cu_if_there!(context.driver(), cuStreamEndCapture(self.stream.raw(), &mut graph)) }
                .map(|()| graph);
        state.capture = None;
        drop(state);
        joined.iter().for_each(|timeline| timeline.lock().capture = None);
        if self.still_captures() {
            // Some failures leave it so, and nothing repairs it.
            tracing::error!("the stream still captures; use another one");
        }
        ended
    }

    fn still_captures(&self) -> bool {
        let mut status = CUstreamCaptureStatus::NONE;
        let Some(ask) = self.stream.context().driver().api().cuStreamIsCapturing else { return false };
        // SAFETY: `status` is ours to write; the stream is alive.
        let code = unsafe { ask(self.stream.raw(), &mut status) };
        code == driver_sys::CUresult::SUCCESS && status != CUstreamCaptureStatus::NONE
    }
}

impl Drop for Region<'_> {
    /// A panic in the region: the capture ends, and its graph goes.
    fn drop(&mut self) {
        if !self.open {
            return;
        }
        if let Ok(raw) = self.close().graph {
            drop(Graph::adopt(self.stream.context(), raw));
        }
    }
}

impl Capture<'_> {
    /// The stream that captures, for work that is not ours. What such work needs must outlive the graph.
    pub fn stream(&self) -> &Stream {
        self.stream
    }

    /// Captures two chains side by side: `work` gets this queue and one over `other`, which joins at the end.
    ///
    /// # Errors
    /// What `work` returns, a stream of another context or in another capture, or what the driver refuses.
    pub fn fork(
        &mut self,
        other: &Stream,
        work: impl FnOnce(&mut Self, &mut Capture<'_>) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let context = self.stream.context();
        crate::event::expect_same(&other.name(), other.context(), "the capture", context)?;
        let (forked, joined) = (Event::untimed(context)?, Event::untimed(context)?);
        forked.record(self.stream)?;
        self.draw_in(other, &forked)?;
        let mut second =
            Capture { stream: other, captured: self.captured.clone(), pushed: self.pushed.clone() };
        let result = work(self, &mut second);
        // Joined also after an error, so that the error is that of `work` and not of a fork left open.
        let join = joined.record(other).and_then(|()| self.join(other, &joined));
        result.and(join)
    }

    /// Draws a stream into the capture: it waits for an event of it.
    fn draw_in(&self, other: &Stream, forked: &Event) -> Result<(), Error> {
        let (_current, driver) = (other.context().enter()?, other.context().driver());
        let mut turn = other.begin("a capture")?;
        turn.fence();
        // SAFETY: stream and event are alive and of one context.
        unsafe { cu!(driver, cuStreamWaitEvent(other.raw(), forked.raw(), 0)) }?;
        turn.join(&self.captured);
        lock(&self.captured.joined).push(other.timeline().clone());
        Ok(())
    }

    /// Lets the capturing stream wait for the one that joined, which is its own again.
    fn join(&self, other: &Stream, joined: &Event) -> Result<(), Error> {
        let (_current, driver) = (other.context().enter()?, other.context().driver());
        let _state = self.stream.timeline().lock();
        // SAFETY: stream and event are alive and of one context.
        unsafe { cu!(driver, cuStreamWaitEvent(self.stream.raw(), joined.raw(), 0)) }?;
        Ok(())
    }

    /// The node that the stream's next work would come after: the one captured last.
    fn last(&self) -> Result<CUgraphNode, Error> {
        let (mut status, mut id, mut graph) = (CUstreamCaptureStatus::NONE, 0, CUgraph::NULL);
        let (mut after, mut count) = (std::ptr::null(), 0);
        let context = self.stream.context();
        let (_current, driver, raw) = (context.enter()?, context.driver(), self.stream.raw());
        // SAFETY: all of it is ours to write; the graph's handle is not used.
        unsafe {
            cu_if_there!(
                driver,
                cuStreamGetCaptureInfo_v2(raw, &mut status, &mut id, &mut graph, &mut after, &mut count)
            )
        }?;
        if count != 1 || after.is_null() {
            return Ok(CUgraphNode::NULL);
        }
        // SAFETY: the driver gave an array of one node, valid until the next call on the stream.
        Ok(unsafe { *after })
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
        {
            let _state = self.stream.timeline().lock();
            let _current = self.stream.context().enter()?;
            work.call(self.stream.context().driver(), self.stream)?;
        }
        let node = self.last()?;
        self.pushed.borrow_mut().push((node, work));
        Ok(())
    }
}

/// Makes a graph of what was captured: our work in the order of pushing, then what else the driver shows.
fn adopt(
    context: &Context,
    raw: CUgraph,
    pushed: Vec<(CUgraphNode, Work)>,
    owners: Vec<Owner>,
) -> Result<Graph, Error> {
    let mut graph = Graph::adopt(context, raw);
    graph.own(owners);
    let _current = context.enter()?;
    let shown = nodes_of(context, raw)?;
    let mut placed: Vec<CUgraphNode> = Vec::with_capacity(shown.len());
    for (node, work) in pushed {
        if shown.contains(&node) && !placed.contains(&node) {
            graph.push_node(node, NodeKind::Work(work));
            placed.push(node);
        } else {
            // The driver shows no node of it, and still the graph may need what it names.
            graph.own([Arc::new(work) as Owner]);
        }
    }
    for node in shown {
        if !placed.contains(&node) {
            graph.push_node(node, kind_of(context, node)?);
            placed.push(node);
        }
    }
    let index = |node: CUgraphNode| placed.iter().position(|p| *p == node);
    let edges = edges_of(context, raw)?;
    graph.push_edges(edges.into_iter().filter_map(|(a, b, kind)| Some((index(a)?, index(b)?, kind))));
    Ok(graph)
}

fn nodes_of(context: &Context, graph: CUgraph) -> Result<Vec<CUgraphNode>, Error> {
    let mut count = 0;
    // SAFETY: without an array the call writes the number only.
    unsafe { cu_if_there!(context.driver(), cuGraphGetNodes(graph, std::ptr::null_mut(), &mut count)) }?;
    let mut nodes = vec![CUgraphNode::NULL; count];
    if count > 0 {
        // SAFETY: the array has room for that many.
        unsafe { cu_if_there!(context.driver(), cuGraphGetNodes(graph, nodes.as_mut_ptr(), &mut count)) }?;
    }
    Ok(nodes)
}

fn edges_of(context: &Context, graph: CUgraph) -> Result<Vec<(CUgraphNode, CUgraphNode, EdgeKind)>, Error> {
    let (null, mut count) = (std::ptr::null_mut(), 0);
    // SAFETY: without arrays the call writes the number only.
    unsafe { cu_if_there!(context.driver(), cuGraphGetEdges(graph, null, null, &mut count)) }?;
    let (mut from, mut to) = (vec![CUgraphNode::NULL; count], vec![CUgraphNode::NULL; count]);
    let mut data = vec![CUgraphEdgeData::zeroed(); count];
    if count > 0 {
        let (driver, from, to) = (context.driver(), from.as_mut_ptr(), to.as_mut_ptr());
        // Work that is not ours may have made programmatic edges, which the older call refuses to show.
        if let Some(get) = driver.api().cuGraphGetEdges_v2 {
            // SAFETY: the three arrays have room for that many.
            let code = unsafe { get(graph, from, to, data.as_mut_ptr(), &mut count) };
            driver.check("cuGraphGetEdges_v2", code)?;
        } else {
            // SAFETY: both arrays have room for that many.
            unsafe { cu_if_there!(driver, cuGraphGetEdges(graph, from, to, &mut count)) }?;
        }
    }
    let kinds = data.iter().map(EdgeKind::of);
    Ok(from.into_iter().zip(to).zip(kinds).map(|((from, to), kind)| (from, to, kind)).collect())
}

/// What a node is that is not of our work.
fn kind_of(context: &Context, node: CUgraphNode) -> Result<NodeKind, Error> {
    let mut kind = CUgraphNodeType::EMPTY;
    // SAFETY: `kind` is ours to write; the node is of a graph that is alive.
    unsafe { cu_if_there!(context.driver(), cuGraphNodeGetType(node, &mut kind)) }?;
    Ok(match kind {
        CUgraphNodeType::EMPTY => NodeKind::Empty,
        other => NodeKind::Other(other),
    })
}
