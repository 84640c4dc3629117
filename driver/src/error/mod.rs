//! The error type of this crate, with one variant for each kind of failure.
//!
//! Every fallible function returns [`Error`]. It comes either from the driver ([`Error::Driver`])
//! or from a check that this crate makes before it calls the driver. Variants with many facts
//! contain another type of this module, such as [`ModuleError`] or [`Races`].
//!
//! - The text of an error names the objects involved and says what to do. `Debug` prints the same
//!   text.
//! - A call that returns the error of a check has changed nothing.
//! - The device reports faults asynchronously, so a call can return the fault of earlier work.
//!   [`Error::is_device_fault`] returns true for such an error. The context is lost then.
//!
//! ```
//! use warpwright_driver::error::ModuleReason;
//! use warpwright_driver::prelude::*;
//!
//! # fn main() -> Result<(), Error> {
//! # let context = Context::new(&Driver::from_library(warpwright_cuda_emu::library())?.device(0)?)?;
//! let loaded = Module::load(&context, ".version 7.0\n.target sm_999\n.address_size 64\n");
//! match loaded {
//!     Err(Error::Module(error)) => assert!(matches!(error.reason, ModuleReason::Target { .. })),
//!     other => panic!("{other:?}"),
//! }
//! # Ok(())
//! # }
//! ```

use std::ops::Range;

use driver_sys::{CUgraphExecUpdateResult, CUgraphInstantiateResult};

mod driver_error;
mod messages;
mod module_error;

pub use driver_error::{Absent, DriverError};
pub use module_error::{ModuleError, ModuleReason, PtxLine};

/// The reason why no driver is available.
///
/// ```
/// # use warpwright_driver::prelude::*;
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
    /// No library could be opened. The error lists every name that was tried.
    Library(driver_sys::LoadError),
    /// The driver is running but finds no device.
    NoDevice {
        /// The path of the library.
        origin: String,
    },
    /// The kernel driver and the CUDA driver have different versions.
    DriverMismatch {
        /// The path of the library.
        origin: String,
    },
    /// The library is a forward-compatibility package, which does not support the device.
    CompatNotSupported {
        /// The path of the library.
        origin: String,
    },
    /// Initializing the driver failed for another reason.
    Start {
        /// The path of the library.
        origin: String,
        /// The call that failed.
        source: DriverError,
    },
}

/// An error of the driver, or of a check that this crate makes before it calls the driver.
///
/// The text of an error names the objects involved and says what to do. `Debug` prints the same
/// text, because `main` and `unwrap` use it.
///
/// ```
/// # use warpwright_driver::prelude::*;
/// # fn main() -> Result<(), Error> {
/// # let context = Context::new(&Driver::from_library(warpwright_cuda_emu::library())?.device(0)?)?;
/// # let stream = Stream::new(&context)?;
/// let x = Buffer::<f32>::zeroed(&context, 4)?.labelled("x");
/// let y = Buffer::<f32>::zeroed(&context, 5)?.labelled("y");
/// let refused = stream.copy(&x, &y).unwrap_err();
/// assert_eq!(refused.to_string(), "copy: 4 elements for y, which has 5");
/// // After a device fault, no more work of this process runs on the device.
/// assert!(!refused.is_device_fault());
/// # Ok(())
/// # }
/// ```
#[non_exhaustive]
pub enum Error {
    /// No driver is available.
    Load(LoadError),
    /// A driver call failed, or the driver lacks the function (see [`DriverError::absent`]).
    Driver(DriverError),
    /// The device number is too large.
    NoDevice {
        /// The requested device number.
        ordinal: usize,
        /// The number of devices.
        count: usize,
    },
    /// The device has too little free memory.
    OutOfMemory {
        /// The number of bytes that were requested.
        bytes: usize,
        /// The free bytes of the device.
        free: usize,
        /// The total bytes of the device.
        total: usize,
    },
    /// A module did not load.
    Module(Box<ModuleError>),
    /// A kernel of `ptx-gen` could not be built or printed.
    Build {
        /// The name of the kernel.
        kernel: String,
        /// The error messages of `ptx-gen`.
        text: String,
    },
    /// The parameters of a loaded kernel differ from the declaration.
    Signature {
        /// The name of the kernel.
        kernel: String,
        /// The index of the parameter.
        index: usize,
        /// The declared name of the parameter.
        name: String,
        /// The declared size and offset.
        declared: String,
        /// The size and offset in the loaded kernel.
        loaded: String,
    },
    /// A launch is not possible.
    Launch {
        /// The name of the kernel.
        kernel: String,
        /// The reason why the launch is not possible.
        problem: LaunchProblem,
    },
    /// A copy, a fill or a mapping is not possible.
    Transfer {
        /// The name of the operation.
        what: &'static str,
        /// The reason why the operation is not possible.
        problem: String,
    },
    /// Two objects belong to different contexts.
    WrongContext {
        /// The object that was passed.
        what: String,
        /// The context of that object.
        theirs: String,
        /// The object that was to use it.
        user: String,
        /// The context of the user.
        ours: String,
    },
    /// A view cannot be cast, because its size or its alignment does not fit the new element type.
    Cast {
        /// The name and range of the view.
        what: String,
        /// The size of the view in bytes.
        bytes: usize,
        /// The address of the view.
        address: u64,
        /// The requested element type.
        to: &'static str,
    },
    /// A node was used with another graph than its own.
    ForeignNode {
        /// The index of the node in its own graph.
        node: usize,
    },
    /// A node was used after it was removed from its graph.
    RemovedNode {
        /// The index of the node.
        node: usize,
    },
    /// An operation does not apply to a graph.
    Graph {
        /// The name of the operation.
        what: &'static str,
        /// The reason why it does not apply.
        problem: &'static str,
    },
    /// Memory that a graph allocates was used at a point where it does not exist.
    GraphMemory {
        /// The name of the memory.
        buffer: String,
        /// The node or queue that was to use it.
        user: String,
        /// The reason why it does not exist there.
        problem: &'static str,
    },
    /// A capture of this thread forbids a call.
    ///
    /// A capture of another thread in the [global mode](crate::graph::CaptureMode::Global) forbids
    /// calls as well. Then the driver returns an error itself.
    Forbidden {
        /// The name of the call.
        what: &'static str,
        /// The reason why it is forbidden.
        why: &'static str,
    },
    /// An operation does not apply to a node of this kind.
    NodeKind {
        /// The index of the node.
        node: usize,
        /// The name of the node.
        name: String,
        /// The kind of the node.
        is: &'static str,
        /// The kind that the operation requires.
        wanted: &'static str,
    },
    /// An edge exists already, does not exist, or would create a cycle.
    Edge {
        /// The index of the earlier node.
        from: usize,
        /// The index of the later node.
        to: usize,
        /// The reason why the edge is refused.
        problem: &'static str,
    },
    /// A programmatic edge is not possible between these nodes.
    Overlap {
        /// The index of the earlier node.
        from: usize,
        /// The name of the earlier node.
        from_name: String,
        /// The index of the later node.
        to: usize,
        /// The name of the later node.
        to_name: String,
        /// The reason why the edge is not possible.
        problem: &'static str,
    },
    /// A kernel reads memory with `ld.global.nc` while another kernel may still write it.
    Stale(Box<Stale>),
    /// The driver reports another kind of edge than was added.
    EdgeKind {
        /// The index of the earlier node.
        from: usize,
        /// The index of the later node.
        to: usize,
        /// The kind that was added.
        wanted: &'static str,
    },
    /// New arguments would make two nodes access the same buffer without an order.
    Unordered {
        /// The index of the node to change.
        node: usize,
        /// The name of the node to change.
        name: String,
        /// The index of the other node.
        other: usize,
        /// The name of the other node.
        other_name: String,
        /// The name of the buffer.
        buffer: String,
    },
    /// Nodes of a graph access the same bytes without an order.
    Races(Box<Races>),
    /// The driver could not instantiate a graph.
    Instantiate {
        /// The call that failed.
        source: DriverError,
        /// The driver's reason for the refusal.
        result: CUgraphInstantiateResult,
        /// The node that the driver names, by index and name.
        node: Option<String>,
    },
    /// The driver could not update a graph.
    Update {
        /// The call that failed.
        source: Box<DriverError>,
        /// The driver's reason for the refusal.
        result: CUgraphExecUpdateResult,
        /// The node that differs, by index and name.
        node: Option<Box<str>>,
        /// The predecessor that differs, by index and name.
        from: Option<Box<str>>,
        /// The first difference that this crate finds, if any.
        changed: Option<Box<str>>,
    },
    /// A stream is part of a capture and does not accept other work.
    Capturing {
        /// The name of the refused work.
        work: String,
    },
    /// An event was last recorded in a capture and cannot be used outside it.
    CapturedEvent {
        /// The use that was refused.
        what: &'static str,
    },
    /// Work conflicts with work of another stream: both access the same bytes, at least one of them
    /// writes, and the program does not order them.
    UnorderedStreams {
        /// The name of the buffer.
        buffer: String,
        /// The stream that the later work was queued in.
        stream: String,
        /// The stream of the earlier work.
        other: String,
    },
    /// Work conflicts with a host copy that another thread makes at the same time.
    HostCopy {
        /// The name of the buffer.
        buffer: String,
        /// The stream that the work was queued in.
        stream: String,
    },
    /// A capture failed and was ended.
    Capture {
        /// The first call in the capture that failed.
        first: Box<Error>,
        /// The error at the end of the capture, if ending it failed as well.
        end: Option<DriverError>,
    },
}

impl Error {
    /// Returns true if the device has faulted. The context is lost then, and no more work runs in
    /// this process on that device.
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

/// A kernel reads memory with `ld.global.nc` that an earlier kernel may still write.
///
/// The path of `ld.global.nc` is not coherent, so the kernel may read values from before the write.
/// This happens only behind a [programmatic](crate::graph::EdgeKind::Programmatic) edge, because a
/// full edge lets the earlier kernel complete first. It is the payload of [`Error::Stale`].
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
/// # use warpwright_driver::prelude::*;
/// # fn main() -> Result<(), Error> {
/// # let context = Context::new(&Driver::from_library(warpwright_cuda_emu::library())?.device(0)?)?;
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
///         graph.add(&[first], second)?; // with a full edge
///     }
///     other => drop(other?), // a device without programmatic edges gets a full one
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stale {
    /// The index of the node that writes.
    pub from: usize,
    /// The name of the node that writes.
    pub from_name: String,
    /// The name of the written argument.
    pub written: &'static str,
    /// The index of the node that reads.
    pub to: usize,
    /// The name of the node that reads.
    pub to_name: String,
    /// The name of the argument that is read.
    pub read: &'static str,
    /// The name of the buffer.
    pub buffer: String,
    /// The bytes of the buffer that both nodes access.
    pub bytes: Range<usize>,
}

/// Two nodes of a graph access the same bytes, at least one of them writes, and no path of edges
/// orders them.
///
/// It is the payload of [`Error::Races`]. [`Graph::races`](crate::graph::Graph::races) returns all
/// such pairs.
///
/// ```
/// # use warpwright_driver::prelude::*;
/// # fn main() -> Result<(), Error> {
/// # let context = Context::new(&Driver::from_library(warpwright_cuda_emu::library())?.device(0)?)?;
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
#[non_exhaustive]
pub struct Races {
    /// The operation that was refused.
    pub what: &'static str,
    /// The index and the name of the node that was added first.
    pub first: String,
    /// The index and the name of the node that was added later.
    pub second: String,
    /// The child graphs and conditional nodes that contain both nodes, from the outermost to the
    /// innermost. Empty if both are nodes of the graph itself.
    pub within: Vec<String>,
    /// The name of the buffer.
    pub buffer: String,
    /// The bytes of the buffer that both nodes access.
    pub bytes: Range<usize>,
    /// The number of other such pairs.
    pub others: usize,
}

/// The reason why a launch is not possible.
///
/// ```
/// # use warpwright_driver::error::LaunchProblem;
/// # use warpwright_driver::prelude::*;
/// # const SCALE: &str = include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/src/scale.ptx"));
/// # fn main() -> Result<(), Error> {
/// # let context = Context::new(&Driver::from_library(warpwright_cuda_emu::library())?.device(0)?)?;
/// # let stream = Stream::new(&context)?;
/// # let module = Module::load(&context, SCALE)?;
/// # let params = [Parameter::value::<u32>("n"), Parameter::value::<f32>("a"), Parameter::buffer::<f32>("y", Access::ReadWrite)];
/// # // SAFETY: the kernel stays below `n` and has these parameters.
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
    /// A dimension of the grid is outside the device's range.
    Grid {
        /// The axis: `x`, `y` or `z`.
        axis: char,
        /// The requested number of blocks.
        got: u32,
        /// The device's maximum for this axis.
        limit: u32,
    },
    /// A dimension of the block is outside the device's range.
    BlockAxis {
        /// The axis: `x`, `y` or `z`.
        axis: char,
        /// The requested number of threads.
        got: u32,
        /// The device's maximum for this axis.
        limit: u32,
    },
    /// The block has no threads, or more threads than the device allows.
    Block {
        /// The requested number of threads.
        got: u32,
        /// The most threads per block.
        limit: u32,
    },
    /// The block has more threads than this kernel allows, for example because of its registers.
    Threads {
        /// The requested number of threads.
        got: u32,
        /// The most threads per block of the compiled kernel.
        limit: u32,
        /// The registers per thread of the kernel.
        registers: u32,
    },
    /// The block has more shared memory than the device allows.
    Shared {
        /// The requested bytes of dynamic shared memory.
        dynamic: u32,
        /// The bytes of static shared memory that the kernel declares.
        fixed: u32,
        /// The most bytes per block after the opt-in.
        limit: u32,
    },
    /// The number of arguments differs from the declaration.
    Count {
        /// The number of arguments passed.
        got: usize,
        /// The number of declared parameters.
        wanted: usize,
    },
    /// The type of an argument differs from the declaration.
    Argument {
        /// The index of the argument.
        index: usize,
        /// The name of the parameter.
        name: String,
        /// The type of the passed argument.
        got: String,
        /// The declared type of the parameter.
        wanted: String,
    },
    /// Two arguments overlap in memory, and the kernel writes one of them.
    Overlap {
        /// The name of the first argument.
        first: String,
        /// The name of the second argument.
        second: String,
        /// The name of the buffer.
        buffer: String,
        /// The name of the argument that is written.
        writer: String,
    },
    /// A launch attribute is not possible, for example a cluster on a device without clusters.
    Attribute(&'static str),
    /// The arguments violate the contract of the kernel.
    Shape(String),
}
