//! Errors: what the driver refused, and what was refused before it was asked.

use std::ops::Range;

use driver_sys::{CUgraphExecUpdateResult, CUgraphInstantiateResult};

use crate::DriverError;
use crate::module_error::ModuleError;

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
#[derive(Clone)]
#[non_exhaustive]
pub enum LoadError {
    /// No library could be opened; lists every name tried.
    Library(driver_sys::LoadError),
    /// The driver runs and sees no device.
    NoDevice {
        /// The library.
        origin: String,
    },
    /// The kernel driver and the CUDA driver differ in version.
    DriverMismatch {
        /// The library.
        origin: String,
    },
    /// A compatibility library on a device that does not support it.
    CompatNotSupported {
        /// The library.
        origin: String,
    },
    /// Starting failed otherwise.
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
#[non_exhaustive]
pub enum Error {
    /// There is no driver.
    Load(LoadError),
    /// A call failed, or the driver lacks the function ([`DriverError::absent`]).
    Driver(DriverError),
    /// There is no device of that number.
    NoDevice {
        /// The number asked for.
        ordinal: usize,
        /// How many there are.
        count: usize,
    },
    /// Memory ran out.
    OutOfMemory {
        /// Bytes asked for.
        bytes: usize,
        /// Bytes free on the device.
        free: usize,
        /// Bytes the device has.
        total: usize,
    },
    /// A module did not load.
    Module(Box<ModuleError>),
    /// A kernel could not be built or printed; the text of the generator.
    Build {
        /// The kernel.
        kernel: String,
        /// Every error of the generator.
        text: String,
    },
    /// The driver's idea of a kernel's parameters is not the declared one.
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
    Launch {
        /// The kernel.
        kernel: String,
        /// What is wrong with it.
        problem: LaunchProblem,
    },
    /// A copy, a fill or a mapping that cannot work.
    Transfer {
        /// The operation.
        what: &'static str,
        /// What is wrong with it.
        problem: String,
    },
    /// Two things of different contexts meet.
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
    ForeignNode {
        /// The node's number in its own graph.
        node: usize,
    },
    /// A node that was removed from its graph.
    RemovedNode {
        /// The node's number.
        node: usize,
    },
    /// A graph was used for what it is not for.
    Graph {
        /// What was to be done.
        what: &'static str,
        /// Why it cannot be.
        problem: &'static str,
    },
    /// Memory that a graph allocates, where it is not there.
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
    Forbidden {
        /// The call.
        what: &'static str,
        /// What the capture has against it.
        why: &'static str,
    },
    /// A node was used as what it is not.
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
    Edge {
        /// The earlier node.
        from: usize,
        /// The later node.
        to: usize,
        /// What is wrong with it.
        problem: &'static str,
    },
    /// A programmatic edge that the work at its ends cannot have.
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
    Stale(Box<Stale>),
    /// The driver reports an edge of another kind than was added.
    EdgeKind {
        /// The earlier node.
        from: usize,
        /// The later node.
        to: usize,
        /// The kind.
        wanted: &'static str,
    },
    /// A change of arguments that would let two nodes touch one buffer in any order.
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
    /// A graph in which nodes touch the same bytes without an order.
    Races(Box<Races>),
    /// A graph that the driver would not instantiate.
    Instantiate {
        /// The call.
        source: DriverError,
        /// What the driver says of the graph.
        result: CUgraphInstantiateResult,
        /// The node it names, by number and name.
        node: Option<String>,
    },
    /// A whole-graph update that the driver refused.
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
    Capturing {
        /// The work.
        work: String,
    },
    /// An event that a capture recorded, used outside of the capture.
    CapturedEvent {
        /// The use.
        what: &'static str,
    },
    /// Work that touches what work of another stream touches, one of them writing, and no order between the two.
    UnorderedStreams {
        /// The bytes.
        buffer: String,
        /// The stream that was given the later work.
        stream: String,
        /// The stream of the earlier work.
        other: String,
    },
    /// Work that touches bytes which the host copies meanwhile on another thread, one of the two writing.
    HostCopy {
        /// The bytes.
        buffer: String,
        /// The stream that was given the work.
        stream: String,
    },
    /// A capture that failed: the first call of the region that did, and how the driver ended it.
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
            Self::Driver(error)
            | Self::Capture {
                end: Some(error), ..
            } => error.code.is_device_fault(),
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
#[derive(Clone, PartialEq, Eq)]
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

/// A graph with two nodes that touch the same bytes, of which at least one writes, and that no path of edges orders.
///
/// It is in [`Error::Races`]. [`Graph::races`](crate::Graph::races) returns all such pairs.
///
/// ```
/// # use warpwright_driver::*;
/// # fn main() -> Result<(), Error> {
/// # let context = Context::new(&Driver::of(warpwright_cuda_emu::library())?.device(0)?)?;
/// let x = Buffer::<f32>::zeroed(&context, 4)?.labelled("x");
/// let mut graph = Graph::new(&context)?;
/// graph.fill(&[], &x, 1.0)?;
/// graph.fill(&[], &x.view_range(2..4), 2.0)?;
/// match graph.instantiate() {
///     Err(Error::Races(races)) => {
///         assert_eq!((races.first.as_str(), races.second.as_str()), ("0 (fill)", "1 (fill)"));
///         assert_eq!((races.buffer.as_str(), races.bytes, races.others), ("x", 8..16, 0));
///     }
///     other => panic!("{other:?}"),
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct Races {
    /// The operation that was refused.
    pub what: &'static str,
    /// The number and the name of the node that was added first.
    pub first: String,
    /// The number and the name of the node that was added later.
    pub second: String,
    /// The child graph or conditional node that contains both nodes, preceded by those around it. Empty if both are
    /// nodes of the graph itself.
    pub within: Vec<String>,
    /// The name of the buffer.
    pub buffer: String,
    /// The bytes of the buffer that both nodes touch.
    pub bytes: Range<usize>,
    /// The number of other such pairs.
    pub others: usize,
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
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum LaunchProblem {
    /// A dimension of the grid.
    Grid {
        /// `x`, `y` or `z`.
        axis: char,
        /// What was asked for.
        got: u32,
        /// What the device allows.
        limit: u32,
    },
    /// A dimension of the block.
    BlockAxis {
        /// `x`, `y` or `z`.
        axis: char,
        /// What was asked for.
        got: u32,
        /// What the device allows.
        limit: u32,
    },
    /// The block.
    Block {
        /// What was asked for.
        got: u32,
        /// What the device allows.
        limit: u32,
    },
    /// The block, for this kernel.
    Threads {
        /// What was asked for.
        got: u32,
        /// What the compiled kernel allows.
        limit: u32,
        /// Its registers.
        registers: u32,
    },
    /// Shared memory.
    Shared {
        /// Dynamic bytes asked for.
        dynamic: u32,
        /// Bytes the kernel declares.
        fixed: u32,
        /// What the device allows a block, with opt-in.
        limit: u32,
    },
    /// The number of arguments.
    Count {
        /// Given.
        got: usize,
        /// Declared.
        wanted: usize,
    },
    /// The type of one argument.
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
    Attribute(&'static str),
    /// The kernel's own contract.
    Shape(String),
}
