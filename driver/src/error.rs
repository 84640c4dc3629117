//! Errors: what the driver refused, and what was refused before it was asked.

use std::ops::Range;

use driver_sys::{CUgraphExecUpdateResult, CUgraphInstantiateResult};

use crate::DriverError;
use crate::module_error::{ModuleError, ModuleReason};

/// Why there is no driver to talk to.
///
/// ```
/// # use warpwright_driver::*;
/// # fn main() -> Result<(), Error> {
/// // SAFETY: there is no such library.
/// let missing = unsafe { Driver::open("/nowhere/libcuda.so.1") }.unwrap_err();
/// assert!(missing.to_string().contains("/nowhere/libcuda.so.1"));
/// # Ok(())
/// # }
/// ```
#[derive(Clone, thiserror::Error)]
#[non_exhaustive]
pub enum LoadError {
    /// No library could be opened; lists every name tried.
    #[error(transparent)]
    Library(#[from] driver_sys::LoadError),
    /// The driver runs and sees no device.
    #[error("{origin}: the driver found no CUDA device; CUDA_VISIBLE_DEVICES may hide it")]
    NoDevice {
        /// The library.
        origin: String,
    },
    /// The kernel driver and the CUDA driver differ in version.
    #[error(
        "{origin}: the kernel driver and this library are of different versions; restart the machine after an update"
    )]
    DriverMismatch {
        /// The library.
        origin: String,
    },
    /// A compatibility library on a device that does not support it.
    #[error(
        "{origin}: this forward-compatibility library does not support the device; remove it from the loader's path"
    )]
    CompatNotSupported {
        /// The library.
        origin: String,
    },
    /// Starting failed otherwise.
    #[error("{origin}: {source}")]
    Start {
        /// The library.
        origin: String,
        /// The call that failed.
        source: DriverError,
    },
}

/// Anything this crate refuses or the driver refused.
///
/// ```
/// # use warpwright_driver::*;
/// # fn main() -> Result<(), Error> {
/// # let context = Context::new(&Driver::of(warpwright_cuda_emu::library())?.device(0)?)?;
/// # let stream = Stream::new(&context)?;
/// let x = Buffer::<f32>::zeroed(&context, 4)?.labelled("x");
/// let y = Buffer::<f32>::zeroed(&context, 5)?.labelled("y");
/// let refused = stream.copy(&x, &y).unwrap_err();
/// assert_eq!(refused.to_string(), "copy: 4 elements for y, which has 5");
/// // After a fault of the device nothing in the process runs on it any more.
/// assert!(!refused.is_device_fault());
/// # Ok(())
/// # }
/// ```
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// There is no driver.
    #[error(transparent)]
    Load(#[from] LoadError),
    /// A call failed, or the driver lacks the function ([`DriverError::absent`]).
    #[error(transparent)]
    Driver(#[from] DriverError),
    /// There is no device of that number.
    #[error("no device {ordinal}: the driver has {count}")]
    NoDevice {
        /// The number asked for.
        ordinal: usize,
        /// How many there are.
        count: usize,
    },
    /// Memory ran out.
    #[error("out of memory: {bytes} bytes asked for, {free} of {total} free")]
    OutOfMemory {
        /// Bytes asked for.
        bytes: usize,
        /// Bytes free on the device.
        free: usize,
        /// Bytes the device has.
        total: usize,
    },
    /// A module did not load.
    #[error(transparent)]
    Module(#[from] Box<ModuleError>),
    /// A kernel could not be built or printed; the text of the generator.
    #[error("kernel {kernel}: {text}")]
    Build {
        /// The kernel.
        kernel: String,
        /// Every error of the generator.
        text: String,
    },
    /// The driver's idea of a kernel's parameters is not the declared one.
    #[error(
        "kernel {kernel}: parameter {index} ({name}) is {declared} in the declaration and {loaded} in the module"
    )]
    Signature {
        /// The kernel.
        kernel: String,
        /// The parameter's number.
        index: usize,
        /// Its declared name.
        name: String,
        /// What was declared.
        declared: String,
        /// What the driver loaded.
        loaded: String,
    },
    /// A launch that cannot work.
    #[error("kernel {kernel}: {problem}")]
    Launch {
        /// The kernel.
        kernel: String,
        /// What is wrong with it.
        problem: LaunchProblem,
    },
    /// A copy, a fill or a mapping that cannot work.
    #[error("{what}: {problem}")]
    Transfer {
        /// The operation.
        what: &'static str,
        /// What is wrong with it.
        problem: String,
    },
    /// Two things of different contexts meet.
    #[error("{what} belongs to {theirs}, and {user} to {ours}")]
    WrongContext {
        /// The thing brought.
        what: String,
        /// Its context.
        theirs: String,
        /// Who was to use it.
        user: String,
        /// That one's context.
        ours: String,
    },
    /// A view whose bytes cannot be read as the other type.
    #[error("{what} of {bytes} bytes at address {address:#x} is not a whole number of aligned {to}")]
    Cast {
        /// The view.
        what: String,
        /// Its size.
        bytes: usize,
        /// Its address.
        address: u64,
        /// The type asked for.
        to: &'static str,
    },
    /// A node of one graph was used with another.
    #[error("node {node} is not a node of this graph")]
    ForeignNode {
        /// The node's number in its own graph.
        node: usize,
    },
    /// A node that was removed from its graph.
    #[error("node {node} was removed from its graph")]
    RemovedNode {
        /// The node's number.
        node: usize,
    },
    /// A graph was used for what it is not for.
    #[error("{what}: {problem}")]
    Graph {
        /// What was to be done.
        what: &'static str,
        /// Why it cannot be.
        problem: &'static str,
    },
    /// Memory that a graph allocates, where it is not there.
    #[error("{user}: memory {buffer} is not there: {problem}")]
    GraphMemory {
        /// The memory.
        buffer: String,
        /// What was to use it.
        user: String,
        /// Why it is not there.
        problem: &'static str,
    },
    /// A call that a capture of this thread forbids. Of a capture on another thread, in the
    /// [global mode](crate::CaptureMode::Global), the driver says so itself.
    #[error(
        "{what}: this thread captures, and {why}; do it before the capture, or capture in the relaxed mode"
    )]
    Forbidden {
        /// The call.
        what: &'static str,
        /// What the capture has against it.
        why: &'static str,
    },
    /// A node was used as what it is not.
    #[error("node {node} ({name}) is {is}; {wanted}")]
    NodeKind {
        /// The node's number.
        node: usize,
        /// Its name.
        name: String,
        /// What it is.
        is: &'static str,
        /// What the operation takes.
        wanted: &'static str,
    },
    /// A dependency named twice, or one that would create a cycle.
    #[error("edge from node {from} to node {to}: {problem}")]
    Edge {
        /// The earlier node.
        from: usize,
        /// The later node.
        to: usize,
        /// What is wrong with it.
        problem: &'static str,
    },
    /// A programmatic edge that the work at its ends cannot have.
    #[error("programmatic edge from node {from} ({from_name}) to node {to} ({to_name}): {problem}")]
    Overlap {
        /// The earlier node.
        from: usize,
        /// Its name.
        from_name: String,
        /// The later node.
        to: usize,
        /// Its name.
        to_name: String,
        /// What is wrong with it.
        problem: &'static str,
    },
    /// A kernel that reads by `ld.global.nc` what may still be written.
    #[error(transparent)]
    Stale(#[from] Box<Stale>),
    /// The driver reports an edge of another kind than was added.
    #[error(
        "edge from node {from} to node {to}: a {wanted} edge was added, but the driver reports none of that kind"
    )]
    EdgeKind {
        /// The earlier node.
        from: usize,
        /// The later node.
        to: usize,
        /// The kind.
        wanted: &'static str,
    },
    /// A change of arguments that would let two nodes touch one buffer in any order.
    #[error(
        "nodes {node} ({name}) and {other} ({other_name}) would both touch {buffer} and no edge orders them; \
        add the edge, or record the graph again"
    )]
    Unordered {
        /// The node to change.
        node: usize,
        /// Its name.
        name: String,
        /// The node it would meet.
        other: usize,
        /// That one's name.
        other_name: String,
        /// The buffer.
        buffer: String,
    },
    /// A graph that the driver would not instantiate.
    #[error("instantiating the graph: {source}{}", .node.as_deref().map(|n| format!("; {result:?} at node {n}")).unwrap_or_default())]
    Instantiate {
        /// The call.
        source: DriverError,
        /// What the driver says of the graph.
        result: CUgraphInstantiateResult,
        /// The node it names, by number and name.
        node: Option<String>,
    },
    /// A whole-graph update that the driver refused.
    #[error("updating the graph: {source}; {result:?}, node {}, dependency on {}{}",
        .node.as_deref().unwrap_or("not named"), .from.as_deref().unwrap_or("no node named"),
        .changed.as_ref().map(|c| format!("; {c}")).unwrap_or_default())]
    Update {
        /// The call.
        source: Box<DriverError>,
        /// The kind of difference.
        result: CUgraphExecUpdateResult,
        /// The node that differs, by number and name.
        node: Option<Box<str>>,
        /// The node it depends on differently.
        from: Option<Box<str>>,
        /// What this crate sees changed, with the nodes by their order of adding.
        changed: Option<Box<str>>,
    },
    /// Work for a stream that a capture has.
    #[error("{work}: the stream captures; push work into the queue of the capture, or fork it")]
    Capturing {
        /// The work.
        work: String,
    },
    /// An event that a capture recorded, used outside of the capture.
    #[error(
        "{what}: a capture recorded the event, so that it marks a place in a graph; record it in a stream first"
    )]
    CapturedEvent {
        /// The use.
        what: &'static str,
    },
    /// Work that touches what work of another stream touches, one of them writing, and no order between the two.
    #[error(
        "{buffer}: work of {other} on it is not ordered with what {stream} was given now; let {stream} wait for an \
        event that {other} records after its work, or synchronize {other} first"
    )]
    UnorderedStreams {
        /// The bytes.
        buffer: String,
        /// The stream that was given the later work.
        stream: String,
        /// The stream of the earlier work.
        other: String,
    },
    /// Work that touches bytes which the host copies meanwhile on another thread, one of the two writing.
    #[error(
        "{buffer}: another thread copies it to or from the host while {stream} is given work on it; let one of the \
        threads wait for the other, or copy in the order of a stream"
    )]
    HostCopy {
        /// The bytes.
        buffer: String,
        /// The stream that was given the work.
        stream: String,
    },
    /// A capture that failed: the first call of the region that did, and how the driver ended it.
    #[error("capture: {first}{}", .end.as_ref().map(|e| format!("\n  and the capture ended with {e}")).unwrap_or_default())]
    Capture {
        /// The first failure.
        first: Box<Error>,
        /// What ending the capture said, if it said no.
        end: Option<DriverError>,
    },
}

impl Error {
    /// Whether the device faulted: the context is lost, and nothing runs any more.
    pub fn is_device_fault(&self) -> bool {
        match self {
            Self::Driver(error) | Self::Capture { end: Some(error), .. } => error.code.is_device_fault(),
            Self::Capture { first, .. } => first.is_device_fault(),
            _ => false,
        }
    }
}

/// A kernel that reads by `ld.global.nc` what a kernel writes that may still run when it starts.
///
/// [`Error::Stale`] says more.
///
/// ```
/// # use ptx_gen::{args, Builder, Cpu, Dev, Grid, In, KernelDef, Out, Shape, ShapeError, Side};
/// # args! { pub struct AddArgs { x: In<f32>, y: Out<f32>, n: u32, add: f32 } }
/// # struct Add;
/// # impl KernelDef for Add {
/// #     type Args<S: Side> = AddArgs<S>;
/// #     fn name(&self) -> String { "add".into() }
/// #     fn block(&self) -> u32 { 128 }
/// #     fn grid(&self, a: &AddArgs<Shape>) -> Result<Grid, ShapeError> { Ok(Grid::line(a.n.div_ceil(128))) }
/// #     fn program<'k>(&self, k: Builder<'k>, a: AddArgs<Dev<'k>>) {
/// #         k.grid_wait();
/// #         let i = k.ctaid() * 128 + k.tid();
/// #         k.when(i.lt(a.n), || a.y.at(i).st(a.x.at(i).ld() + a.add));
/// #     }
/// #     fn reference(&self, a: AddArgs<Cpu<'_>>) {
/// #         a.y.iter_mut().zip(a.x).for_each(|(y, x)| *y = x + a.add);
/// #     }
/// # }
/// # use warpwright_driver::*;
/// # fn main() -> Result<(), Error> {
/// # let context = Context::new(&Driver::of(warpwright_cuda_emu::library())?.device(0)?)?;
/// # // SAFETY: the program stays below `n`.
/// # let add = unsafe { Kernel::load(&context, Add) }?;
/// # let [x, y, z] = ["x", "y", "z"].map(|name| Ok::<_, Error>(Buffer::<f32>::zeroed(&context, 2)?.labelled(name)));
/// # let (x, y, z) = (x?, y?, z?);
/// // `add` waits for the kernel before it, and then reads `x` by ld.global.nc.
/// let mut graph = Graph::new(&context)?;
/// let first = graph.launch(&[], &add, AddArgs { x: &x, y: &y, n: 2, add: 1.0 })?;
/// let second = add.with(AddArgs { x: &y, y: &z, n: 2, add: 1.0 })?;
/// match graph.add_by(EdgeKind::Programmatic, &[first], second.clone()) {
///     Err(Error::Stale(stale)) => {
///         println!("{stale}");
///         assert_eq!((stale.written, stale.read, stale.buffer.as_str()), ("y", "x", "y"));
///         graph.add(&[first], second)?; // by a full edge
///     }
///     other => drop(other?), // a device without programmatic edges has a full one
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "node {to} ({to_name}) reads bytes {} to {} of {buffer} by ld.global.nc as {read}, and node {from} ({from_name}), \
    which writes them as {written}, may still run when it starts, so that it may find what was there before; read \
    them by `fresh()`, or put a full edge between the two", .bytes.start, .bytes.end
)]
pub struct Stale {
    /// The node that writes.
    pub from: usize,
    /// Its name.
    pub from_name: String,
    /// The argument that it writes.
    pub written: &'static str,
    /// The node that reads.
    pub to: usize,
    /// Its name.
    pub to_name: String,
    /// The argument that it reads.
    pub read: &'static str,
    /// The buffer.
    pub buffer: String,
    /// The bytes of the buffer that both touch.
    pub bytes: Range<usize>,
}

/// What is wrong with a launch.
///
/// ```
/// # use warpwright_driver::*;
/// # const SCALE: &str = include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/src/scale.ptx"));
/// # fn main() -> Result<(), Error> {
/// # let context = Context::new(&Driver::of(warpwright_cuda_emu::library())?.device(0)?)?;
/// # let stream = Stream::new(&context)?;
/// # let module = Module::load(&context, SCALE)?;
/// # let params = [Parameter::value::<u32>("n"), Parameter::value::<f32>("a"), Parameter::buffer::<f32>("y", Access::ReadWrite)];
/// # // SAFETY: the kernel stays below `n`, and these are its parameters.
/// # let scale = unsafe { module.function("scale", &params) }?;
/// let y = Buffer::<f32>::zeroed(&context, 1 << 14)?;
/// let args = vec![HostArg::scalar(1u32 << 14), HostArg::scalar(3.0f32), HostArg::from(&*y)];
/// let config = match Launch::new(&scale, LaunchConfig::line(1, 1 << 14), args.clone()) {
///     Err(Error::Launch { problem: LaunchProblem::BlockAxis { got, limit, .. }, .. }) => {
///         LaunchConfig::line(got.div_ceil(limit), limit)
///     }
///     other => panic!("{other:?}"),
/// };
/// stream.run_launch(&Launch::new(&scale, config, args)?)?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LaunchProblem {
    /// A dimension of the grid.
    #[error("grid.{axis} is {got}; the device allows 1 to {limit}")]
    Grid {
        /// `x`, `y` or `z`.
        axis: char,
        /// What was asked for.
        got: u32,
        /// What the device allows.
        limit: u32,
    },
    /// A dimension of the block.
    #[error("block.{axis} is {got}; the device allows 1 to {limit}")]
    BlockAxis {
        /// `x`, `y` or `z`.
        axis: char,
        /// What was asked for.
        got: u32,
        /// What the device allows.
        limit: u32,
    },
    /// The block.
    #[error("a block of {got} threads; the device allows 1 to {limit}")]
    Block {
        /// What was asked for.
        got: u32,
        /// What the device allows.
        limit: u32,
    },
    /// The block, for this kernel.
    #[error("a block of {got} threads; the kernel allows {limit} with {registers} registers a thread")]
    Threads {
        /// What was asked for.
        got: u32,
        /// What the compiled kernel allows.
        limit: u32,
        /// Its registers.
        registers: u32,
    },
    /// Shared memory.
    #[error(
        "{dynamic} bytes of dynamic and {fixed} bytes of static shared memory; the device allows {limit} in all"
    )]
    Shared {
        /// Dynamic bytes asked for.
        dynamic: u32,
        /// Bytes the kernel declares.
        fixed: u32,
        /// What the device allows a block, with opt-in.
        limit: u32,
    },
    /// The number of arguments.
    #[error("{got} arguments; it takes {wanted}")]
    Count {
        /// Given.
        got: usize,
        /// Declared.
        wanted: usize,
    },
    /// The type of one argument.
    #[error("argument {index} ({name}) is {got}; it takes {wanted}")]
    Argument {
        /// Its number.
        index: usize,
        /// Its name.
        name: String,
        /// Given.
        got: String,
        /// Declared.
        wanted: String,
    },
    /// Two arguments share bytes that one of them writes.
    #[error("arguments {first} and {second} overlap in {buffer}, and {writer} is written")]
    Overlap {
        /// One argument.
        first: String,
        /// The other.
        second: String,
        /// The buffer.
        buffer: String,
        /// The one that is written.
        writer: String,
    },
    /// What it asks for beside blocks, threads and shared memory.
    #[error("{0}")]
    Attribute(&'static str),
    /// The kernel's own contract.
    #[error("{0}")]
    Shape(String),
}

/// Implements `Debug` as `Display`, so that `fn main() -> Result<(), E>` and `unwrap` print the sentence.
macro_rules! debug_is_display {
    ($($error:ty),* $(,)?) => {$(
        impl std::fmt::Debug for $error {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                std::fmt::Display::fmt(self, f)
            }
        }
    )*};
}

debug_is_display!(DriverError, Error, LaunchProblem, LoadError, ModuleError, ModuleReason, Stale);
