//! Nodes and their work.

use driver_sys::{CUgraphNode, CUgraphNodeType};

use super::conditional::Conditional;
use super::memory::Allocated;
use super::parts::{Child, HostCall};
use super::words::Words;
use crate::queue::Work;
use crate::uses::{Touches, Use};
use crate::{Error, Event};

/// The id of a node, which is unique among all graphs.
///
/// ```
/// # use warpwright_driver::*;
/// # fn main() -> Result<(), Error> {
/// # let context = Context::new(&Driver::from_library(warpwright_cuda_emu::library())?.device(0)?)?;
/// let x = Buffer::<f32>::zeroed(&context, 4)?;
/// let mut graph = Graph::new(&context)?;
/// let mut other = Graph::new(&context)?;
/// let first = graph.fill(&[], &x, 1.0)?;
/// let second = graph.fill(&[first], &x, 2.0)?;
/// assert_eq!((first.index(), graph.nodes()[second.index()].id()), (0, second));
/// assert!(matches!(other.empty(&[first]), Err(Error::ForeignNode { node: 0 })));
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct NodeId {
    pub(super) graph: u64,
    pub(super) index: usize,
}

/// A node of a graph with its work.
///
/// ```
/// # use warpwright_driver::*;
/// # fn main() -> Result<(), Error> {
/// # let context = Context::new(&Driver::from_library(warpwright_cuda_emu::library())?.device(0)?)?;
/// let x = Buffer::<f32>::zeroed(&context, 4)?.labelled("x");
/// let mut graph = Graph::new(&context)?;
/// let filled = graph.fill(&[], &x, 1.0)?;
/// let node = &graph.nodes()[0];
/// assert_eq!((node.id(), node.name()), (filled, "fill".to_string()));
/// assert!(matches!(node.kind(), NodeKind::Work(Work::Fill(_))));
/// assert_eq!(node.uses()[0].region.name(), "x");
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Node {
    pub(crate) raw: CUgraphNode,
    pub(crate) id: NodeId,
    pub(super) kind: NodeKind,
}

/// The work of a node. It keeps the objects that it uses alive.
///
/// ```
/// # use warpwright_driver::*;
/// # fn main() -> Result<(), Error> {
/// # let context = Context::new(&Driver::from_library(warpwright_cuda_emu::library())?.device(0)?)?;
/// let x = Buffer::<f32>::zeroed(&context, 4)?;
/// let y = Buffer::<f32>::zeroed(&context, 4)?;
/// let mut graph = Graph::new(&context)?;
/// let filled = graph.fill(&[], &x, 1.0)?;
/// let copied = graph.copy(&[filled], &x, &y)?;
/// graph.host(&[copied], || println!("copied"))?;
/// let on_host = graph.nodes().iter().filter(|node| matches!(node.kind(), NodeKind::Host(_)));
/// assert_eq!(on_host.count(), 1);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum NodeKind {
    /// A launch, a copy or a fill.
    Work(Work),
    /// No work. Such a node joins edges.
    Empty,
    /// A host function.
    Host(HostCall),
    /// A child graph.
    Child(Child),
    /// The recording of an event.
    Record(Event),
    /// A wait for an event.
    Wait(Event),
    /// The allocation of memory.
    Alloc(Allocated),
    /// The release of memory that another node allocates.
    Free(Allocated),
    /// Waits for words of memory and writes of words.
    Words(Words),
    /// A conditional node, whose graphs run depending on a condition.
    Conditional(Conditional),
    /// A node that a capture made from work of other code.
    Other(CUgraphNodeType),
    /// A node that was removed.
    Removed,
}

impl NodeId {
    /// Returns the index of the node in its graph, from 0 in the order of adding.
    pub fn index(self) -> usize {
        self.index
    }

    /// Returns the index if the node belongs to this graph and was not removed.
    #[inline]
    pub(super) fn index_in(self, graph: u64, nodes: &[Node]) -> Result<usize, Error> {
        let known = if self.graph == graph {
            nodes.get(self.index)
        } else {
            None
        };
        match known {
            Some(node) if !matches!(node.kind, NodeKind::Removed) => Ok(self.index),
            Some(_) => Err(self.removed()),
            None => Err(self.foreign()),
        }
    }

    #[cold]
    fn removed(self) -> Error {
        Error::RemovedNode { node: self.index }
    }

    #[cold]
    fn foreign(self) -> Error {
        Error::ForeignNode { node: self.index }
    }
}

impl Node {
    /// Returns the id of the node.
    pub fn id(&self) -> NodeId {
        self.id
    }

    /// Returns the work of the node.
    pub fn kind(&self) -> &NodeKind {
        &self.kind
    }

    /// Returns the name of the kernel, or a word for other work, for example `copy`.
    pub fn name(&self) -> String {
        match &self.kind {
            NodeKind::Work(work) => work.name().to_string(),
            NodeKind::Empty => "empty".into(),
            NodeKind::Host(_) => "host".into(),
            NodeKind::Child(_) => "child".into(),
            NodeKind::Record(_) => "record".into(),
            NodeKind::Wait(_) => "wait".into(),
            NodeKind::Alloc(_) => "alloc".into(),
            NodeKind::Free(_) => "free".into(),
            NodeKind::Words(_) => "words".into(),
            NodeKind::Conditional(conditional) => conditional.name().into(),
            NodeKind::Other(kind) => kind
                .name()
                .map_or_else(|| format!("{kind:?}"), str::to_lowercase),
            NodeKind::Removed => "removed".into(),
        }
    }

    /// Returns the memory accesses of the node, as far as this crate knows them.
    pub fn uses(&self) -> Vec<Use> {
        self.kind.uses()
    }

    /// Returns the index and the name for errors.
    pub(super) fn describe(&self) -> String {
        format!("{} ({})", self.id.index, self.name())
    }

    /// Returns the error for an operation that requires another kind of node.
    #[cold]
    pub(super) fn wrong_kind(&self, wanted: &'static str) -> Error {
        Error::NodeKind {
            node: self.id.index,
            name: self.name(),
            is: self.sort(),
            wanted,
        }
    }

    /// Returns the kind of the node as a phrase for errors.
    pub(super) fn sort(&self) -> &'static str {
        match &self.kind {
            NodeKind::Work(Work::Launch(_)) => "a kernel",
            NodeKind::Work(Work::Copy(_)) => "a copy",
            NodeKind::Work(Work::Fill(_)) => "a fill",
            NodeKind::Empty => "an empty node",
            NodeKind::Host(_) => "a host function",
            NodeKind::Child(_) => "a child graph",
            NodeKind::Record(_) => "the recording of an event",
            NodeKind::Wait(_) => "a wait for an event",
            NodeKind::Alloc(_) => "an allocation",
            NodeKind::Free(_) => "the freeing of memory",
            NodeKind::Words(_) => "operations on words of memory",
            NodeKind::Conditional(_) => "a conditional node",
            NodeKind::Other(_) => "work of other code",
            NodeKind::Removed => "removed",
        }
    }
}

impl NodeKind {
    pub(super) fn uses(&self) -> Vec<Use> {
        match self {
            Self::Work(work) => work.uses(),
            _ => self.inner_uses().to_vec(),
        }
    }

    /// Returns the memory accesses by reference.
    #[inline]
    pub(crate) fn touches(&self) -> Touches<'_> {
        match self {
            Self::Work(work) => work.touches(),
            _ => Touches {
                uses: self.inner_uses().iter(),
                ..Touches::default()
            },
        }
    }

    /// Returns the accesses of a node other than a launch, a copy or a fill.
    fn inner_uses(&self) -> &[Use] {
        match self {
            Self::Child(child) => child.all_uses(),
            Self::Conditional(conditional) => conditional.uses(),
            Self::Words(words) => words.uses(),
            _ => &[],
        }
    }
}

impl std::fmt::Debug for Node {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Node({})", self.describe())
    }
}
