//! Queues and the work they accept.
//!
//! A [`Queue`] is a destination for GPU work: a stream, a recorder or a capture. A stream runs the
//! work, and the other two make a graph of it. A forward pass is therefore one function over a
//! queue.

use std::sync::Arc;

use driver_sys::{CUDA_MEMCPY3D_v2, CUmemorytype};
use ptx_gen::{Access, KernelDef};

use crate::device::{Context, Driver};
use crate::error::{DriverError, Error};
use crate::launch::{AnyFunction, Host, HostArg, Kernel, Launch};
use crate::memory::element::as_bytes;
use crate::memory::{Element, Region, View};
use crate::ordering::Use;
use crate::ordering::memory_accesses::{AccessIter, MemoryAccess};
use crate::stream::Stream;

/// A destination for GPU work: a [`Stream`], a [`Recorder`](crate::graph::Recorder) or a
/// [`Capture`](crate::graph::Capture).
///
/// Write a computation once as a function over `impl Queue`. A stream runs it immediately. A
/// recorder or a capture turns it into a graph.
///
/// ```
/// # use warpwright_driver::prelude::*;
/// # fn main() -> Result<(), Error> {
/// # let context = Context::new(&Driver::from_library(warpwright_cuda_emu::library())?.device(0)?)?;
/// # let stream = Stream::new(&context)?;
/// fn forward(queue: &mut impl Queue, x: &View<f32>, y: &View<f32>) -> Result<(), Error> {
///     queue.fill(x, 1.0)?;
///     queue.copy(x, y)
/// }
///
/// let x = Buffer::<f32>::zeroed(&context, 4)?;
/// let y = Buffer::<f32>::zeroed(&context, 4)?;
/// forward(&mut &stream, &x, &y)?; // runs
/// let mut recorder = Recorder::new(&context)?;
/// forward(&mut recorder, &x, &y)?; // becomes a graph
/// let recorded = recorder.finish();
/// let captured = capture(&stream, CaptureMode::ThreadLocal, |queue| forward(queue, &x, &y))?; // so does this
/// assert_eq!((recorded.nodes().len(), captured.nodes().len()), (2, 2));
/// # Ok(())
/// # }
/// ```
pub trait Queue {
    /// Returns the context of the queue.
    fn context(&self) -> &Context;

    /// Adds an operation to the queue.
    ///
    /// # Errors
    /// Returns [`Error::WrongContext`] if the work belongs to another context, or an error if the
    /// queue refuses it. For example, a stream returns [`Error::UnorderedStreams`] for a conflict.
    fn push(&mut self, work: Work) -> Result<(), Error>;

    /// Launches a kernel.
    ///
    /// # Errors
    /// Returns the errors of [`Kernel::with`] and [`push`](Self::push).
    fn launch<K: KernelDef>(
        &mut self,
        kernel: &Kernel<K>,
        args: K::Args<Host<'_>>,
    ) -> Result<(), Error> {
        self.push(kernel.with(args)?.into())
    }

    /// Launches a kernel with a list of untyped arguments.
    ///
    /// # Errors
    /// Returns the errors of [`AnyFunction::with`] and [`push`](Self::push).
    fn launch_any(&mut self, function: &AnyFunction<'_>, args: &[HostArg]) -> Result<(), Error> {
        self.push(function.with(args)?.into())
    }

    /// Copies elements.
    ///
    /// # Errors
    /// Returns [`Error::Transfer`] if the views differ in length or overlap, and the errors of
    /// [`push`](Self::push).
    fn copy<T: Element>(&mut self, from: &View<T>, to: &View<T>) -> Result<(), Error> {
        self.push(Work::copy(from, to)?)
    }

    /// Sets every element to `value`.
    ///
    /// # Errors
    /// Returns [`Error::Transfer`] if the element has 8 bytes whose halves differ, because the
    /// driver fills at most 4 bytes at a time. Returns the errors of [`push`](Self::push).
    fn fill<T: Element>(&mut self, to: &View<T>, value: T) -> Result<(), Error> {
        self.push(Work::fill(to, value)?)
    }
}

impl Stream {
    /// Queues an operation.
    ///
    /// # Errors
    /// - [`Error::WrongContext`] if the work belongs to another context.
    /// - [`Error::UnorderedStreams`] if it conflicts with work of another stream.
    /// - [`Error::HostCopy`] if it conflicts with a copy of the host in progress.
    /// - [`Error::Capturing`] if the stream captures.
    /// - [`Error::Driver`] if the driver cannot queue it.
    pub fn run(&self, work: &Work) -> Result<(), Error> {
        work.expect_in(self.context())?;
        work.enqueue(self)
    }

    /// Queues a prepared launch. This is the cheapest way to launch the same kernel many times.
    ///
    /// # Errors
    /// Returns the errors of [`run`](Self::run).
    #[inline]
    pub fn run_launch(&self, launch: &Launch) -> Result<(), Error> {
        launch.expect_in(self.context())?;
        launch.enqueue(self)
    }
}

impl Queue for Stream {
    fn context(&self) -> &Context {
        Stream::context(self)
    }

    fn push(&mut self, work: Work) -> Result<(), Error> {
        self.run(&work)
    }

    fn launch<K: KernelDef>(
        &mut self,
        kernel: &Kernel<K>,
        args: K::Args<Host<'_>>,
    ) -> Result<(), Error> {
        kernel.enqueue(self, &args)
    }
}

impl Queue for &Stream {
    fn context(&self) -> &Context {
        Stream::context(self)
    }

    fn push(&mut self, work: Work) -> Result<(), Error> {
        self.run(&work)
    }

    fn launch<K: KernelDef>(
        &mut self,
        kernel: &Kernel<K>,
        args: K::Args<Host<'_>>,
    ) -> Result<(), Error> {
        kernel.enqueue(self, &args)
    }
}

/// A GPU operation: a kernel launch, a copy or a fill.
///
/// ```
/// # use warpwright_driver::prelude::*;
/// # fn main() -> Result<(), Error> {
/// # let context = Context::new(&Driver::from_library(warpwright_cuda_emu::library())?.device(0)?)?;
/// # let stream = Stream::new(&context)?;
/// let x = Buffer::from_slice(&context, &[1.0, 2.0])?;
/// let y = Buffer::<f64>::zeroed(&context, 2)?;
/// let work = Work::copy(&x, &y)?;
/// let uses: Vec<_> = work.uses().iter().map(|used| (used.name, used.access)).collect();
/// assert_eq!(uses, [("from", Access::Read), ("to", Access::Write)]);
/// stream.run(&work)?;
/// assert_eq!(stream.read(&y)?, [1.0, 2.0]);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Work {
    /// A kernel launch.
    Launch(Launch),
    /// A copy of memory.
    Copy(MemoryCopy),
    /// A fill of memory.
    Fill(MemoryFill),
}

/// A copy of bytes within one context. Clones refer to the same copy.
///
/// Use [`Work::copy`] or [`Work::copy_box`] to create one.
///
/// ```
/// # use warpwright_driver::graph::NodeKind;
/// # use warpwright_driver::prelude::*;
/// # fn main() -> Result<(), Error> {
/// # let context = Context::new(&Driver::from_library(warpwright_cuda_emu::library())?.device(0)?)?;
/// let x = Buffer::<f32>::zeroed(&context, 4)?.labelled("x");
/// let y = Buffer::<f32>::zeroed(&context, 4)?.labelled("y");
/// let mut graph = Graph::new(&context)?;
/// graph.copy(&[], &x, &y)?;
/// let NodeKind::Work(Work::Copy(copy)) = graph.nodes()[0].kind() else { panic!("expected this kind of work") };
/// assert_eq!((copy.from().name(), copy.to().name()), ("x".to_string(), "y".to_string()));
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct MemoryCopy(Arc<CopyRegions>);

#[derive(Debug)]
struct CopyRegions {
    from: Region,
    to: Region,
    shape: Option<CopyShape>,
}

/// The shape of a copy of a box. A copy without a shape is contiguous.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CopyShape {
    /// The size of the box: bytes per row, rows per slice, and slices.
    pub(crate) extent: [usize; 3],
    /// The layout of the source: bytes between rows, and rows between slices.
    pub(crate) from: [usize; 2],
    /// The layout of the target: bytes between rows, and rows between slices.
    pub(crate) to: [usize; 2],
}

/// A fill of memory with one value. Clones refer to the same fill.
///
/// Use [`Work::fill`] or [`Work::fill_box`] to create one.
///
/// ```
/// # use warpwright_driver::prelude::*;
/// # fn main() -> Result<(), Error> {
/// # let context = Context::new(&Driver::from_library(warpwright_cuda_emu::library())?.device(0)?)?;
/// let x = Buffer::<f32>::zeroed(&context, 4)?;
/// let Work::Fill(fill) = Work::fill(&x, 1.0)? else { panic!("expected this kind of work") };
/// assert_eq!((fill.to().bytes(), fill.count()), (16, 4));
/// assert_eq!(fill.value(), (1.0f32.to_bits(), 4));
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct MemoryFill(Arc<FillTarget>);

#[derive(Debug)]
struct FillTarget {
    to: Region,
    value: u32,
    width: u32,
    shape: Option<FillShape>,
}

/// The shape of a fill of rows. A fill without a shape is contiguous.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FillShape {
    /// The number of bytes between rows.
    pub(crate) pitch: usize,
    /// The number of elements per row.
    pub(crate) columns: usize,
    /// The number of rows.
    pub(crate) rows: usize,
}

impl From<Launch> for Work {
    fn from(launch: Launch) -> Self {
        Self::Launch(launch)
    }
}

impl Work {
    /// Creates a copy of elements.
    ///
    /// # Errors
    /// Returns [`Error::Transfer`] if the views differ in length or overlap.
    pub fn copy<T: Element>(from: &View<T>, to: &View<T>) -> Result<Self, Error> {
        to.expect_len("copy", from.len())?;
        let from = from.region().clone();
        let to = to.region().clone();
        if from.overlaps(&to) {
            return Err(Error::Transfer {
                what: "copy",
                problem: format!("{from} and {to} overlap"),
            });
        }

        Ok(Self::Copy(MemoryCopy::new(from, to, None)))
    }

    /// Creates a fill that sets every element to `value`.
    ///
    /// # Errors
    /// Returns [`Error::Transfer`] if the element has 8 bytes whose halves differ, because the
    /// driver fills at most 4 bytes at a time.
    pub fn fill<T: Element>(to: &View<T>, value: T) -> Result<Self, Error> {
        let to = to.region().clone();
        let (value, width) = word_of(&to, value)?;
        Ok(Self::Fill(MemoryFill::new(to, value, width, None)))
    }

    /// Returns true if the operation touches no bytes, which the driver refuses in graphs.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        match self {
            Self::Launch(_) => false,
            Self::Copy(copy) => copy.to().bytes() == 0,
            Self::Fill(fill) => fill.to().bytes() == 0,
        }
    }

    /// Returns the name of the kernel, `copy`, or `fill`.
    pub fn name(&self) -> &str {
        match self {
            Self::Launch(launch) => launch.function().name(),
            Self::Copy(_) => "copy",
            Self::Fill(_) => "fill",
        }
    }

    /// Returns the memory accesses of the operation.
    pub fn uses(&self) -> Vec<Use> {
        self.touches().map(|touch| self.use_of(touch)).collect()
    }

    /// Returns the memory accesses by reference.
    #[inline]
    pub(crate) fn touches(&self) -> AccessIter<'_> {
        let to = |region| {
            Some(MemoryAccess {
                name: "to",
                region,
                access: Access::Write,
            })
        };
        match self {
            Self::Launch(launch) => launch.buffers(),
            Self::Copy(copy) => {
                let from = Some(MemoryAccess {
                    name: "from",
                    region: copy.from(),
                    access: Access::Read,
                });
                AccessIter {
                    from,
                    to: to(copy.to()),
                    ..AccessIter::default()
                }
            }
            Self::Fill(fill) => AccessIter {
                to: to(fill.to()),
                ..AccessIter::default()
            },
        }
    }

    /// Returns an owned access, with the information whether the kernel reads through
    /// `ld.global.nc`.
    pub(crate) fn use_of(&self, touch: MemoryAccess<'_>) -> Use {
        Use {
            name: touch.name,
            region: touch.region.clone(),
            access: touch.access,
            noncoherent: self.reads_noncoherent(touch.name),
        }
    }

    /// Returns true if the kernel is known to read this argument with `ld.global.nc`.
    pub(crate) fn reads_noncoherent(&self, name: &str) -> bool {
        matches!(self, Self::Launch(launch) if launch.function().noncoherent().contains(name))
    }

    /// Checks that the operation belongs to `context`.
    pub(crate) fn expect_in(&self, context: &Context) -> Result<(), Error> {
        match self {
            Self::Launch(launch) => launch.expect_in(context),
            _ => self
                .touches()
                .try_for_each(|touch| touch.region.expect_in(context, "the queue")),
        }
    }

    /// Queues the operation in a stream.
    pub(crate) fn enqueue(&self, stream: &Stream) -> Result<(), Error> {
        match self {
            Self::Launch(launch) => launch.enqueue(stream),
            Self::Copy(copy) => {
                let submission = stream.begin("copy")?;
                submission
                    .admit([(copy.from(), Access::Read), (copy.to(), Access::Write)].into_iter())?;
                submission.enqueue(|driver| copy.call(driver, stream))
            }
            Self::Fill(fill) => {
                let submission = stream.begin("fill")?;
                submission.admit(std::iter::once((fill.to(), Access::Write)))?;
                submission.enqueue(|driver| fill.call(driver, stream))
            }
        }
    }

    /// Makes the driver call that queues the operation in a stream, which may capture.
    pub(crate) fn call(&self, driver: &Driver, stream: &Stream) -> Result<(), DriverError> {
        match self {
            Self::Launch(launch) => launch.call(driver, stream),
            Self::Copy(copy) => copy.call(driver, stream),
            Self::Fill(fill) => fill.call(driver, stream),
        }
    }
}

/// Returns the bits of a value as the driver fills with them, and their size in bytes: 1, 2 or 4.
pub(crate) fn word_of<T: Element>(to: &Region, value: T) -> Result<(u32, u32), Error> {
    Ok(match *as_bytes(&[value]) {
        [a] => (u32::from(a), 1),
        [a, b] => (u32::from(u16::from_le_bytes([a, b])), 2),
        [a, b, c, d] => (u32::from_le_bytes([a, b, c, d]), 4),
        // The driver fills with at most 4 bytes. Equal halves are twice as many words of 4 bytes.
        [a, b, c, d, e, f, g, h] if [a, b, c, d] == [e, f, g, h] => {
            (u32::from_le_bytes([a, b, c, d]), 4)
        }
        ref bytes => {
            let problem = match bytes.len() {
                8 => format!("{to} has 8-byte elements, and the halves of the value differ"),
                size => {
                    format!(
                        "{to} has elements of {size} bytes; a fill takes elements of 1, 2, 4 or 8 bytes"
                    )
                }
            };
            return Err(Error::Transfer {
                what: "fill",
                problem,
            });
        }
    })
}

impl MemoryCopy {
    pub(crate) fn new(from: Region, to: Region, shape: Option<CopyShape>) -> Self {
        Self(Arc::new(CopyRegions { from, to, shape }))
    }

    /// Returns the shape of a copy of a box, or `None` for a contiguous copy.
    pub(crate) fn shape(&self) -> Option<&CopyShape> {
        self.0.shape.as_ref()
    }

    /// Returns the source region.
    pub fn from(&self) -> &Region {
        &self.0.from
    }

    /// Returns the target region.
    pub fn to(&self) -> &Region {
        &self.0.to
    }

    fn call(&self, driver: &Driver, stream: &Stream) -> Result<(), DriverError> {
        let raw = stream.raw();
        let bytes = self.0.to.bytes();
        if bytes == 0 {
            return Ok(());
        }

        if self.0.shape.is_some() {
            let params = memcpy_params(self);
            // SAFETY: both regions are live, belong to the stream's context, and contain the box,
            // which `Boxed` has checked. They are freed only after the stream has completed this
            // work.
            return unsafe { cu_optional!(driver, cuMemcpy3DAsync_v2(&params, raw)) };
        }

        // SAFETY: both regions are live, have this size and belong to the stream's context. They
        // are freed only after the stream has completed this work.
        unsafe {
            match (self.0.to.host(), self.0.from.host()) {
                (Some(to), None) => cu!(
                    driver,
                    cuMemcpyDtoHAsync_v2(to, self.0.from.address(), bytes, raw)
                ),
                (None, Some(from)) => {
                    cu!(
                        driver,
                        cuMemcpyHtoDAsync_v2(self.0.to.address(), from, bytes, raw)
                    )
                }
                _ => {
                    cu!(
                        driver,
                        cuMemcpyDtoDAsync_v2(
                            self.0.to.address(),
                            self.0.from.address(),
                            bytes,
                            raw
                        )
                    )
                }
            }
        }
    }
}

impl MemoryFill {
    pub(crate) fn new(to: Region, value: u32, width: u32, shape: Option<FillShape>) -> Self {
        Self(Arc::new(FillTarget {
            to,
            value,
            width,
            shape,
        }))
    }

    /// Returns the shape of a fill of rows, or `None` for a contiguous fill.
    pub(crate) fn shape(&self) -> Option<&FillShape> {
        self.0.shape.as_ref()
    }

    /// Returns the filled region.
    pub fn to(&self) -> &Region {
        &self.0.to
    }

    /// Returns the bits of the value and their size in bytes: 1, 2 or 4.
    pub fn value(&self) -> (u32, u32) {
        (self.0.value, self.0.width)
    }

    /// Returns the number of values written.
    pub fn count(&self) -> usize {
        if let Some(shape) = &self.0.shape {
            return shape.columns * shape.rows;
        }
        self.0.to.bytes() / self.0.width as usize
    }

    fn call(&self, driver: &Driver, stream: &Stream) -> Result<(), DriverError> {
        let raw = stream.raw();
        let to = self.0.to.address();
        let count = self.count();
        if count == 0 {
            return Ok(());
        }

        if let Some(FillShape {
            pitch,
            columns,
            rows,
        }) = self.0.shape
        {
            let value = self.0.value;
            // SAFETY: the region is live, belongs to the stream's context, and contains the rows,
            // which `Boxed` has checked. It is freed only after the stream has completed this work.
            return unsafe {
                match self.0.width {
                    1 => cu_optional!(
                        driver,
                        cuMemsetD2D8Async(to, pitch, value as u8, columns, rows, raw)
                    ),
                    2 => {
                        cu_optional!(
                            driver,
                            cuMemsetD2D16Async(to, pitch, value as u16, columns, rows, raw)
                        )
                    }
                    _ => cu_optional!(
                        driver,
                        cuMemsetD2D32Async(to, pitch, value, columns, rows, raw)
                    ),
                }
            };
        }

        // SAFETY: the region is live, has this size and belongs to the stream's context. It is
        // freed only after the stream has completed this work.
        unsafe {
            match self.0.width {
                1 => cu!(driver, cuMemsetD8Async(to, self.0.value as u8, count, raw)),
                2 => cu_optional!(
                    driver,
                    cuMemsetD16Async(to, self.0.value as u16, count, raw)
                ),
                _ => cu_optional!(driver, cuMemsetD32Async(to, self.0.value, count, raw)),
            }
        }
    }
}

/// Returns the driver's parameters of a copy.
pub(crate) fn memcpy_params(copy: &MemoryCopy) -> CUDA_MEMCPY3D_v2 {
    let from = copy.from();
    let to = copy.to();

    // A contiguous copy is a box of a single row.
    let mut params = CUDA_MEMCPY3D_v2 {
        srcMemoryType: CUmemorytype::DEVICE,
        srcDevice: from.address(),
        srcPitch: from.bytes(),
        srcHeight: 1,
        dstMemoryType: CUmemorytype::DEVICE,
        dstDevice: to.address(),
        dstPitch: to.bytes(),
        dstHeight: 1,
        WidthInBytes: to.bytes(),
        Height: 1,
        Depth: 1,
        ..CUDA_MEMCPY3D_v2::zeroed()
    };
    if let Some(CopyShape { extent, from, to }) = copy.shape() {
        [params.WidthInBytes, params.Height, params.Depth] = *extent;
        [params.srcPitch, params.srcHeight] = *from;
        [params.dstPitch, params.dstHeight] = *to;
    }

    if let Some(host) = from.host() {
        params.srcMemoryType = CUmemorytype::HOST;
        params.srcHost = host;
        params.srcDevice = 0;
    }

    if let Some(host) = to.host() {
        params.dstMemoryType = CUmemorytype::HOST;
        params.dstHost = host;
        params.dstDevice = 0;
    }

    params
}
