//! Profiles: the time of each node of a graph.

use std::fmt;
use std::time::Duration;

use crate::error::Error;
use crate::graph::check::node_order::NodeOrder;
use crate::graph::{GraphExec, Node, NodeId, NodeKind};
use crate::ordering::Event;
use crate::ordering::memory_accesses::MemoryAccess;
use crate::stream::Stream;

/// The nodes of a graph in the order in which they ran, with their times. It displays as a table.
///
/// ```
/// # use warpwright_driver::prelude::*;
/// # fn main() -> Result<(), Error> {
/// # let context = Context::new(&Driver::from_library(warpwright_cuda_emu::library())?.device(0)?)?;
/// # let stream = Stream::new(&context)?;
/// let x = Buffer::<f32>::zeroed(&context, 1000)?;
/// let y = Buffer::<f32>::zeroed(&context, 10)?;
/// let mut graph = Graph::new(&context)?;
/// graph.fill(&[], &x, 1.0)?;
/// graph.fill(&[], &y, 1.0)?;
/// let profile = graph.profile(&stream)?;
/// let slowest = profile.rows.iter().max_by_key(|row| row.time).expect("two nodes ran");
/// println!("{} takes {:?} of {:?}", slowest.name, slowest.time, profile.time());
/// println!("{}", profile.against(3.35e12)); // the table
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Profile {
    /// The rows, one for each node that ran.
    pub rows: Vec<ProfileRow>,
    /// The nodes that did not run, because they cannot run outside a launch of the graph.
    pub untimed: Vec<Untimed>,
    /// The memory bandwidth in bytes per second that the rates are compared with.
    pub ceiling: Option<f64>,
}

/// A node of a profile.
///
/// ```
/// # use warpwright_driver::prelude::*;
/// # fn main() -> Result<(), Error> {
/// # let context = Context::new(&Driver::from_library(warpwright_cuda_emu::library())?.device(0)?)?;
/// # let stream = Stream::new(&context)?;
/// let x = Buffer::<f32>::zeroed(&context, 1000)?;
/// let y = Buffer::<f32>::zeroed(&context, 10)?;
/// let mut graph = Graph::new(&context)?;
/// graph.fill(&[], &x, 1.0)?;
/// graph.fill(&[], &y, 1.0)?;
/// for row in &graph.profile(&stream)?.rows {
///     println!("node {}: {} bytes at {:.1} GB/s", row.node.index(), row.bytes, row.rate() / 1e9);
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ProfileRow {
    /// The node. Nodes of child graphs appear in the place of the child.
    pub node: NodeId,
    /// The name of the kernel, or a word for other work.
    pub name: String,
    /// The time between the events before and after the node, including the launch.
    pub time: Duration,
    /// The bytes of the views that the node accesses. Bytes that are read and written count twice.
    ///
    /// A kernel may access fewer bytes of its views, or some of them repeatedly.
    pub bytes: u64,
}

/// A node that did not run in a profile.
///
/// It is part of [`Profile::untimed`].
///
/// ```
/// # use warpwright_driver::prelude::*;
/// # fn main() -> Result<(), Error> {
/// # let context = Context::new(&Driver::from_library(warpwright_cuda_emu::library())?.device(0)?)?;
/// # let stream = Stream::new(&context)?;
/// let mut graph = Graph::new(&context)?;
/// let (allocated, scratch) = graph.alloc::<f32>(&[], 1000)?;
/// graph.free(&[allocated], &scratch)?;
/// let profile = graph.profile(&stream)?;
/// assert_eq!(profile.untimed[0].name, "alloc");
/// println!("{}", profile.untimed[0].why); // its memory exists only during a launch of the graph
/// # Ok(())
/// # }
/// ```
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Untimed {
    /// The node that did not run.
    pub node: NodeId,
    /// The name of the kernel, or a word for other work.
    pub name: String,
    /// The reason why it did not run.
    pub why: &'static str,
}

impl Profile {
    /// Returns the sum of the times.
    pub fn time(&self) -> Duration {
        self.rows.iter().map(|row| row.time).sum()
    }

    /// Sets the memory bandwidth that the rates are compared with.
    #[must_use]
    pub fn against(self, bytes_per_second: f64) -> Self {
        Self {
            ceiling: Some(bytes_per_second),
            ..self
        }
    }
}

impl ProfileRow {
    /// Returns the bytes per second.
    pub fn rate(&self) -> f64 {
        self.bytes as f64 / self.time.as_secs_f64().max(f64::MIN_POSITIVE)
    }
}

impl GraphExec {
    /// Runs the nodes one by one with their present work, except for disabled nodes.
    ///
    /// See [`Graph::profile`](crate::graph::Graph::profile) for details.
    ///
    /// # Errors
    /// Returns the errors of [`Graph::profile`](crate::graph::Graph::profile).
    pub fn profile(&mut self, stream: &Stream) -> Result<Profile, Error> {
        self.expect_stream(stream)?;
        profile(&self.nodes, self.order(), stream, &|node| {
            self.is_enabled(node)
        })
    }
}

/// Runs the nodes for which `is_on` returns true, one by one.
pub(crate) fn profile(
    nodes: &[Node],
    order: &NodeOrder,
    stream: &Stream,
    is_on: &dyn Fn(NodeId) -> Result<bool, Error>,
) -> Result<Profile, Error> {
    let mut timed = Vec::new();
    let mut untimed = Vec::new();
    let queued = order.sorted().into_iter().try_for_each(|index| {
        let node = &nodes[index];
        let off =
            matches!(&node.kind, NodeKind::Work(work) if !work.is_empty()) && !is_on(node.id)?;
        if off {
            Ok(())
        } else {
            run(node, stream, &mut timed, &mut untimed)
        }
    });

    // Waits even after an error, because queued work uses objects that the caller only lends.
    stream.synchronize()?;
    queued?;
    let rows = timed.into_iter().map(row).collect::<Result<_, Error>>()?;
    Ok(Profile {
        rows,
        untimed,
        ceiling: None,
    })
}

/// Returns the row of a node that ran between two events.
fn row((node, [start, end]): (&Node, [Event; 2])) -> Result<ProfileRow, Error> {
    let bytes = |touch: MemoryAccess<'_>| {
        let times = u64::from(touch.access.reads()) + u64::from(touch.access.writes());
        touch.region.bytes() as u64 * times
    };
    let bytes = node.kind.touches().map(bytes).sum();
    Ok(ProfileRow {
        node: node.id,
        name: node.name(),
        time: end.since(&start)?,
        bytes,
    })
}

/// Returns the reason why a node runs only as part of a graph, if it does.
fn part_of_a_graph(kind: &NodeKind) -> Option<&'static str> {
    match kind {
        NodeKind::Alloc(_) | NodeKind::Free(_) => {
            Some("its memory exists only during a launch of the graph")
        }
        NodeKind::Conditional(_) => Some("the device decides whether its graphs run"),
        NodeKind::Words(words) if words.waits() => {
            Some("another node may write the word that it waits for")
        }
        NodeKind::Other(_) => Some("it is work of other code"),
        // The nodes of a child are checked one by one.
        NodeKind::Child(_) => None,
        kind if kind.touches().any(|touch| touch.region.graph().is_some()) => {
            Some("it uses memory that a graph allocates")
        }
        _ => None,
    }
}

/// Queues a node between two events. The nodes of a child are queued one by one.
fn run<'n>(
    node: &'n Node,
    stream: &Stream,
    timed: &mut Vec<(&'n Node, [Event; 2])>,
    untimed: &mut Vec<Untimed>,
) -> Result<(), Error> {
    if let Some(why) = part_of_a_graph(&node.kind) {
        untimed.push(Untimed {
            node: node.id,
            name: node.name(),
            why,
        });
        return Ok(());
    }

    let queue: Box<dyn FnOnce() -> Result<(), Error> + '_> = match &node.kind {
        NodeKind::Child(child) => {
            return child
                .order()
                .sorted()
                .into_iter()
                .try_for_each(|i| run(&child.nodes()[i], stream, timed, untimed));
        }
        NodeKind::Work(work) => Box::new(|| stream.run(work)),
        NodeKind::Host(call) => Box::new(|| call.queue(stream)),
        NodeKind::Record(event) => Box::new(|| event.record(stream)),
        NodeKind::Wait(event) => Box::new(|| stream.wait(event)),
        NodeKind::Words(words) => Box::new(|| words.queue(stream)),
        _ => return Ok(()),
    };

    // Both events are created first. Otherwise creating the second one would count as time of the
    // node.
    let start = Event::new(stream.context())?;
    let end = Event::new(stream.context())?;
    start.record(stream)?;
    queue()?;
    end.record(stream)?;
    timed.push((node, [start, end]));
    Ok(())
}

impl fmt::Display for Profile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let share = if self.ceiling.is_some() {
            "  ceiling"
        } else {
            ""
        };
        writeln!(
            f,
            "{:>5}  {:<32}{:>12}{:>8}{:>12}{:>11}{share}",
            "node", "name", "us", "time", "MB", "GB/s"
        )?;
        let all = self.time().as_secs_f64().max(f64::MIN_POSITIVE);
        for row in &self.rows {
            let seconds = row.time.as_secs_f64();
            let megabytes = row.bytes as f64 / 1e6;
            let index = row.node.index();
            let name = &row.name;
            let percent = 100.0 * seconds / all;
            write!(
                f,
                "{index:>5}  {name:<32}{:>12.3}{percent:>7.1}%{megabytes:>12.3}",
                seconds * 1e6
            )?;
            write!(f, "{:>11.1}", row.rate() / 1e9)?;
            match self.ceiling {
                Some(ceiling) => writeln!(f, "{:>8.1}%", 100.0 * row.rate() / ceiling)?,
                None => writeln!(f)?,
            }
        }

        let bytes: u64 = self.rows.iter().map(|row| row.bytes).sum();
        writeln!(
            f,
            "{:>5}  {:<32}{:>12.3}{:>7.1}%{:>12.3}",
            "",
            "all",
            all * 1e6,
            100.0,
            bytes as f64 / 1e6
        )?;
        let mut untimed = self.untimed.iter();
        untimed.try_for_each(|Untimed { node, name, why }| {
            writeln!(f, "{:>5}  {name:<32}not timed: {why}", node.index())
        })
    }
}
