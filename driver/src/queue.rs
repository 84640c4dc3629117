//! Queues: the three places that take work - a stream, a recorder, a capture.
//!
//! A forward pass is a function over a queue, written once. Pushed into a stream it runs; pushed into a recorder or a
//! capture it becomes a graph.

use std::sync::Arc;

use driver_sys::{CUDA_MEMCPY3D_v2, CUmemorytype};
use ptx_gen::{Access, KernelDef};

use crate::element::{Element, as_bytes};
use crate::uses::{Touch, Touches, Use};
use crate::{
    AnyFunction, Context, Driver, DriverError, Error, Host, HostArg, Kernel, Launch, Region,
    Stream, View,
};

/// What takes work.
///
/// ```
/// # use warpwright_driver::*;
/// # fn main() -> Result<(), Error> {
/// # let context = Context::new(&Driver::of(warpwright_cuda_emu::library())?.device(0)?)?;
/// # let stream = Stream::new(&context)?;
/// fn forward(queue: &mut impl Queue, x: &View<f32>, y: &View<f32>) -> Result<(), Error> {
///     queue.fill(x, 1.0)?;
///     queue.copy(x, y)
/// }
///
/// let (x, y) = (Buffer::<f32>::zeroed(&context, 4)?, Buffer::<f32>::zeroed(&context, 4)?);
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
    /// The context it works in.
    fn context(&self) -> &Context;

    /// Takes a piece of work.
    ///
    /// # Errors
    /// Work of another context, or what the driver refuses.
    fn push(&mut self, work: Work) -> Result<(), Error>;

    /// Launches a kernel.
    ///
    /// # Errors
    /// As [`Kernel::with`] and [`push`](Self::push).
    fn launch<K: KernelDef>(
        &mut self,
        kernel: &Kernel<K>,
        args: K::Args<Host<'_>>,
    ) -> Result<(), Error> {
        self.push(kernel.with(args)?.into())
    }

    /// Launches a kernel of any argument list.
    ///
    /// # Errors
    /// As [`AnyFunction::with`] and [`push`](Self::push).
    fn launch_any(&mut self, function: &AnyFunction<'_>, args: &[HostArg]) -> Result<(), Error> {
        self.push(function.with(args)?.into())
    }

    /// Copies elements.
    ///
    /// # Errors
    /// Views of different length or that overlap; else as [`push`](Self::push).
    fn copy<T: Element>(&mut self, from: &View<T>, to: &View<T>) -> Result<(), Error> {
        self.push(Work::copy(from, to)?)
    }

    /// Sets every element.
    ///
    /// # Errors
    /// An 8-byte element whose halves differ, which the driver cannot do; else as [`push`](Self::push).
    fn fill<T: Element>(&mut self, to: &View<T>, value: T) -> Result<(), Error> {
        self.push(Work::fill(to, value)?)
    }
}

impl Stream {
    /// Queues a piece of work.
    ///
    /// # Errors
    /// Work of another context; [`Error::UnorderedStreams`]; [`Error::Capturing`]; or what the driver refuses.
    pub fn run(&self, work: &Work) -> Result<(), Error> {
        work.expect_in(self.context())?;
        work.enqueue(self)
    }

    /// Queues a launch that was made before: the cheapest way to launch a kernel, many times.
    ///
    /// # Errors
    /// As [`run`](Self::run).
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

/// A piece of work.
///
/// ```
/// # use warpwright_driver::*;
/// # fn main() -> Result<(), Error> {
/// # let context = Context::new(&Driver::of(warpwright_cuda_emu::library())?.device(0)?)?;
/// # let stream = Stream::new(&context)?;
/// let (x, y) = (Buffer::from_slice(&context, &[1.0, 2.0])?, Buffer::<f64>::zeroed(&context, 2)?);
/// let work = Work::copy(&x, &y)?;
/// let uses: Vec<_> = work.uses().iter().map(|used| (used.name, used.access)).collect();
/// assert_eq!(uses, [("from", Access::Read), ("to", Access::Write)]);
/// stream.run(&work)?;
/// assert_eq!(stream.read(&y)?, [1.0, 2.0]);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub enum Work {
    /// A kernel.
    Launch(Launch),
    /// A copy.
    Copy(MemoryCopy),
    /// A fill.
    Fill(MemoryFill),
}

/// A copy of bytes within one context. Clones are the same copy.
///
/// [`Work::copy`] makes it, with an example at [`Work`].
///
/// ```
/// # use warpwright_driver::*;
/// # fn main() -> Result<(), Error> {
/// # let context = Context::new(&Driver::of(warpwright_cuda_emu::library())?.device(0)?)?;
/// let (x, y) = (Buffer::<f32>::zeroed(&context, 4)?.labelled("x"), Buffer::<f32>::zeroed(&context, 4)?.labelled("y"));
/// let mut graph = Graph::new(&context)?;
/// graph.copy(&[], &x, &y)?;
/// let NodeKind::Work(Work::Copy(copy)) = graph.nodes()[0].kind() else { panic!("it is one") };
/// assert_eq!((copy.from().name(), copy.to().name()), ("x".to_string(), "y".to_string()));
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct MemoryCopy(Arc<Regions>);

#[derive(Debug)]
struct Regions {
    from: Region,
    to: Region,
    shape: Option<CopyShape>,
}

/// The box that is copied. Without one it is a run of bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CopyShape {
    /// Bytes of a row, rows and slices.
    pub(crate) extent: [usize; 3],
    /// Bytes from row to row and rows from slice to slice, where it comes from.
    pub(crate) from: [usize; 2],
    /// The same, where it goes.
    pub(crate) to: [usize; 2],
}

/// A fill of memory with one value. Clones are the same fill.
///
/// [`Work::fill`] makes it.
///
/// ```
/// # use warpwright_driver::*;
/// # fn main() -> Result<(), Error> {
/// # let context = Context::new(&Driver::of(warpwright_cuda_emu::library())?.device(0)?)?;
/// let x = Buffer::<f32>::zeroed(&context, 4)?;
/// let Work::Fill(fill) = Work::fill(&x, 1.0)? else { panic!("it is one") };
/// assert_eq!((fill.to().bytes(), fill.count()), (16, 4));
/// assert_eq!(fill.value(), (1.0f32.to_bits(), 4));
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct MemoryFill(Arc<Filled>);

#[derive(Debug)]
struct Filled {
    to: Region,
    value: u32,
    width: u32,
    shape: Option<FillShape>,
}

/// The rows that are filled. Without them it is a run of elements.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FillShape {
    /// Bytes from row to row.
    pub(crate) pitch: usize,
    /// Elements of a row.
    pub(crate) columns: usize,
    /// Rows.
    pub(crate) rows: usize,
}

impl From<Launch> for Work {
    fn from(launch: Launch) -> Self {
        Self::Launch(launch)
    }
}

impl Work {
    /// A copy of elements.
    ///
    /// # Errors
    /// Views of different length, or that overlap.
    pub fn copy<T: Element>(from: &View<T>, to: &View<T>) -> Result<Self, Error> {
        to.expect_len("copy", from.len())?;
        let (from, to) = (from.region().clone(), to.region().clone());
        if from.overlaps(&to) {
            return Err(Error::Transfer {
                what: "copy",
                problem: format!("{from} and {to} overlap"),
            });
        }
        Ok(Self::Copy(MemoryCopy::new(from, to, None)))
    }

    /// Memory set to one value.
    ///
    /// # Errors
    /// An 8-byte value whose halves differ, which the driver cannot do.
    pub fn fill<T: Element>(to: &View<T>, value: T) -> Result<Self, Error> {
        let to = to.region().clone();
        let (value, width) = word_of(&to, value)?;
        Ok(Self::Fill(MemoryFill::new(to, value, width, None)))
    }

    /// Whether it touches no bytes, which the driver refuses in graphs.
    #[inline]
    pub(crate) fn is_nothing(&self) -> bool {
        match self {
            Self::Launch(_) => false,
            Self::Copy(copy) => copy.to().bytes() == 0,
            Self::Fill(fill) => fill.to().bytes() == 0,
        }
    }

    /// The kernel's name, or `copy`, or `fill`.
    pub fn name(&self) -> &str {
        match self {
            Self::Launch(launch) => launch.function().name(),
            Self::Copy(_) => "copy",
            Self::Fill(_) => "fill",
        }
    }

    /// What it reads and writes.
    pub fn uses(&self) -> Vec<Use> {
        self.touches().map(|touch| self.use_of(touch)).collect()
    }

    /// The same, lent.
    #[inline]
    pub(crate) fn touches(&self) -> Touches<'_> {
        let to = |to| Some(("to", to, Access::Write));
        match self {
            Self::Launch(launch) => launch.buffers(),
            Self::Copy(copy) => {
                let from = Some(("from", copy.from(), Access::Read));
                Touches {
                    from,
                    to: to(copy.to()),
                    ..Touches::default()
                }
            }
            Self::Fill(fill) => Touches {
                to: to(fill.to()),
                ..Touches::default()
            },
        }
    }

    /// A use of its own, with what is known of how a kernel reads.
    pub(crate) fn use_of(&self, (name, region, access): Touch<'_>) -> Use {
        Use {
            name,
            region: region.clone(),
            access,
            noncoherent: self.reads_noncoherent(name),
        }
    }

    /// Whether it is known to read this argument by `ld.global.nc`.
    pub(crate) fn reads_noncoherent(&self, name: &str) -> bool {
        matches!(self, Self::Launch(launch) if launch.function().noncoherent().contains(name))
    }

    /// Refuses work of another context.
    pub(crate) fn expect_in(&self, context: &Context) -> Result<(), Error> {
        match self {
            Self::Launch(launch) => launch.expect_in(context),
            _ => self
                .touches()
                .try_for_each(|(_, region, _)| region.expect_in(context, "the queue")),
        }
    }

    /// Queues it in a stream.
    pub(crate) fn enqueue(&self, stream: &Stream) -> Result<(), Error> {
        match self {
            Self::Launch(launch) => launch.enqueue(stream),
            Self::Copy(copy) => {
                let turn = stream.begin("copy")?;
                turn.admit([(copy.from(), Access::Read), (copy.to(), Access::Write)].into_iter())?;
                turn.enqueue(|driver| copy.call(driver, stream))
            }
            Self::Fill(fill) => {
                let turn = stream.begin("fill")?;
                turn.admit(std::iter::once((fill.to(), Access::Write)))?;
                turn.enqueue(|driver| fill.call(driver, stream))
            }
        }
    }

    /// Makes the call that gives it to a stream, which may capture.
    pub(crate) fn call(&self, driver: &Driver, stream: &Stream) -> Result<(), DriverError> {
        match self {
            Self::Launch(launch) => launch.call(driver, stream),
            Self::Copy(copy) => copy.call(driver, stream),
            Self::Fill(fill) => fill.call(driver, stream),
        }
    }
}

/// A value as the driver fills with it, and its size in bytes: 1, 2 or 4.
pub(crate) fn word_of<T: Element>(to: &Region, value: T) -> Result<(u32, u32), Error> {
    Ok(match *as_bytes(&[value]) {
        [a] => (u32::from(a), 1),
        [a, b] => (u32::from(u16::from_le_bytes([a, b])), 2),
        [a, b, c, d] => (u32::from_le_bytes([a, b, c, d]), 4),
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
        Self(Arc::new(Regions { from, to, shape }))
    }

    /// The box, if it is not a run of bytes.
    pub(crate) fn shape(&self) -> Option<&CopyShape> {
        self.0.shape.as_ref()
    }

    /// Where the bytes come from.
    pub fn from(&self) -> &Region {
        &self.0.from
    }

    /// Where the bytes go.
    pub fn to(&self) -> &Region {
        &self.0.to
    }

    fn call(&self, driver: &Driver, stream: &Stream) -> Result<(), DriverError> {
        let (raw, bytes) = (stream.raw(), self.0.to.bytes());
        if bytes == 0 {
            return Ok(());
        }
        if self.0.shape.is_some() {
            let params = memcpy_params(self);
            // SAFETY: as below.
            return unsafe { cu_if_there!(driver, cuMemcpy3DAsync_v2(&params, raw)) };
        }
        // SAFETY: both regions are alive, of that size and of the stream's context; whoever releases them waits for the stream.
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
        Self(Arc::new(Filled {
            to,
            value,
            width,
            shape,
        }))
    }

    /// The rows, if it is not a run of elements.
    pub(crate) fn shape(&self) -> Option<&FillShape> {
        self.0.shape.as_ref()
    }

    /// What is filled.
    pub fn to(&self) -> &Region {
        &self.0.to
    }

    /// The value's bits, and its size in bytes: 1, 2 or 4.
    pub fn value(&self) -> (u32, u32) {
        (self.0.value, self.0.width)
    }

    /// How many values.
    pub fn count(&self) -> usize {
        if let Some(shape) = &self.0.shape {
            return shape.columns * shape.rows;
        }
        self.0.to.bytes() / self.0.width as usize
    }

    fn call(&self, driver: &Driver, stream: &Stream) -> Result<(), DriverError> {
        let (raw, to, count) = (stream.raw(), self.0.to.address(), self.count());
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
            // SAFETY: as below.
            return unsafe {
                match self.0.width {
                    1 => cu_if_there!(
                        driver,
                        cuMemsetD2D8Async(to, pitch, value as u8, columns, rows, raw)
                    ),
                    2 => {
                        cu_if_there!(
                            driver,
                            cuMemsetD2D16Async(to, pitch, value as u16, columns, rows, raw)
                        )
                    }
                    _ => cu_if_there!(
                        driver,
                        cuMemsetD2D32Async(to, pitch, value, columns, rows, raw)
                    ),
                }
            };
        }
        // SAFETY: the region is alive, of that size and of the stream's context; whoever releases it waits for the stream.
        unsafe {
            match self.0.width {
                1 => cu!(driver, cuMemsetD8Async(to, self.0.value as u8, count, raw)),
                2 => cu_if_there!(
                    driver,
                    cuMemsetD16Async(to, self.0.value as u16, count, raw)
                ),
                _ => cu_if_there!(driver, cuMemsetD32Async(to, self.0.value, count, raw)),
            }
        }
    }
}

/// A copy, as the driver wants it.
pub(crate) fn memcpy_params(copy: &MemoryCopy) -> CUDA_MEMCPY3D_v2 {
    let (from, to) = (copy.from(), copy.to());
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
        (params.srcMemoryType, params.srcHost, params.srcDevice) = (CUmemorytype::HOST, host, 0);
    }
    if let Some(host) = to.host() {
        (params.dstMemoryType, params.dstHost, params.dstDevice) = (CUmemorytype::HOST, host, 0);
    }
    params
}

/// Whether two uses of the same bytes must keep their order, and what the order is called.
pub(crate) fn hazard(earlier: Access, later: Access) -> Option<Hazard> {
    match (earlier.writes(), later.writes()) {
        (false, false) => None,
        (true, _) if later.reads() => Some(Hazard::ReadAfterWrite),
        (true, _) => Some(Hazard::WriteAfterWrite),
        (false, true) => Some(Hazard::WriteAfterRead),
    }
}

/// Why one piece of work must come after another.
///
/// ```
/// # use warpwright_driver::*;
/// # fn main() -> Result<(), Error> {
/// # let context = Context::new(&Driver::of(warpwright_cuda_emu::library())?.device(0)?)?;
/// let (x, y) = (Buffer::<f32>::zeroed(&context, 4)?, Buffer::<f32>::zeroed(&context, 4)?);
/// let mut graph = Graph::new(&context)?;
/// let filled = graph.fill(&[], &x, 1.0)?;
/// let copied = graph.copy(&[filled], &x, &y)?;
/// assert_eq!(graph.reasons(filled, copied)?[0].0, Hazard::ReadAfterWrite);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Hazard {
    /// It reads what the other wrote.
    ReadAfterWrite,
    /// It overwrites what the other read.
    WriteAfterRead,
    /// It overwrites what the other wrote.
    WriteAfterWrite,
}

impl Hazard {
    /// `RAW`, `WAR` or `WAW`.
    pub fn name(self) -> &'static str {
        match self {
            Self::ReadAfterWrite => "RAW",
            Self::WriteAfterRead => "WAR",
            Self::WriteAfterWrite => "WAW",
        }
    }
}
