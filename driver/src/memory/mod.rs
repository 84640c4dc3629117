//! Device memory: buffers, pinned host memory, and views of both.
//!
//! A view holds its memory alive. Whoever queues work with a view hands the stream or the graph a share of it, so no
//! buffer goes away under a kernel.

use std::any::Any;
use std::ffi::{CString, c_void};
use std::fmt;
use std::marker::PhantomData;
use std::ops::{Deref, Range};
use std::sync::{Arc, Mutex};

use driver_sys::{CUdeviceptr, CUresult};
use ptx_gen::Access;

use crate::callback::ProgramObject;
use crate::context::expect_same;
use crate::element::{Element, ElementType, as_bytes, as_bytes_mut, zeroed};
use crate::lock::lock;
use crate::order::{Bytes, Touched};
use crate::regions::forbid;
use crate::release::{HostPointer, Release};
use crate::reserved::Reserved;
use crate::timeline::Timeline;
use crate::{Context, DriverError, Error};
use transfer::{clear, download, upload};

pub(crate) mod host;
pub(crate) mod mapping;
pub(crate) mod pinned;
pub(crate) mod pool;
pub(crate) mod shared;
mod transfer;

/// One allocation, of the device or of the host.
pub(crate) struct Allocation {
    context: Context,
    address: CUdeviceptr,
    bytes: usize,
    host: Option<HostPointer>,
    origin: Origin,
    label: Mutex<Option<String>>,
    /// What streams did to it, where there are several.
    touched: Touched,
}

/// Where memory comes from, and so how it is given back.
pub(crate) enum Origin {
    /// `cuMemAlloc` or `cuMemAllocManaged`.
    Device,
    /// `cuMemHostAlloc`.
    Pinned,
    /// `cuMemHostRegister`, over memory that the owner keeps.
    Registered(ProgramObject),
    /// Memory of another owner, which is kept.
    Borrowed(ProgramObject),
    /// `cuMemAllocAsync` in this stream.
    Stream(Arc<Timeline>),
    /// `cuIpcOpenMemHandle`: another process's.
    Opened,
    /// Addresses at which memory is mapped.
    Reserved(Arc<Reserved>),
    /// A node of a graph, by the numbers of both. The graph gives it back.
    Graph(u64, usize),
}

/// Bytes of one allocation, with the type that their view gave them.
///
/// ```
/// # use warpwright_driver::*;
/// # fn main() -> Result<(), Error> {
/// # let context = Context::new(&Driver::of(warpwright_cuda_emu::library())?.device(0)?)?;
/// let x = Buffer::<f32>::zeroed(&context, 4)?.labelled("x");
/// let region = x.view_range(1..3).region().clone();
/// assert_eq!((region.range(), region.elem().name()), (4..12, "f32"));
/// assert_eq!(region.to_string(), "x[4..12 of 16 bytes]");
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Region {
    allocation: Arc<Allocation>,
    start: usize,
    bytes: usize,
    elem: &'static ElementType,
}

/// Elements of one allocation. Clones see the same memory and keep it alive.
///
/// ```
/// # use warpwright_driver::*;
/// # fn main() -> Result<(), Error> {
/// # let context = Context::new(&Driver::of(warpwright_cuda_emu::library())?.device(0)?)?;
/// # let stream = Stream::new(&context)?;
/// let x = Buffer::from_slice(&context, &[1u32, 2, 3])?;
/// let last = x.view_range(2..3);
/// stream.fill(&last, 7)?;
/// assert_eq!(stream.read(&x)?, [1, 2, 7]);
/// let halves: View<u16> = x.cast()?;
/// assert_eq!((halves.len(), halves.address()), (6, x.address()));
/// drop(x); // the memory stays for as long as a view of it
/// assert_eq!(stream.read(&last)?, [7]);
/// # Ok(())
/// # }
/// ```
pub struct View<T> {
    region: Region,
    elem: PhantomData<T>,
}

/// Device memory of its own (`DeviceBuffer` and `CudaSlice` elsewhere). It is a [`View`] of all of itself.
///
/// ```
/// # use warpwright_driver::*;
/// # fn main() -> Result<(), Error> {
/// # let context = Context::new(&Driver::of(warpwright_cuda_emu::library())?.device(0)?)?;
/// let x = Buffer::from_slice(&context, &[1.0, 2.0, 3.0])?.labelled("x"); // errors show the label
/// x.view_range(1..3).write(&[5.0, 6.0])?;
/// assert_eq!(x.to_vec()?, [1.0, 5.0, 6.0]);
/// # Ok(())
/// # }
/// ```
pub struct Buffer<T>(View<T>);

impl<T: Element> Buffer<T> {
    /// `len` elements with whatever the memory holds.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`], or what else the driver refuses.
    pub fn uninit(context: &Context, len: usize) -> Result<Self, Error> {
        forbid("allocating memory")?;
        let bytes = byte_len::<T>(len);
        let _current = context.enter()?;
        let address = context.with_memory(|| {
            let mut address = 0;
            // SAFETY: `address` is ours to write. The driver refuses no bytes, so that an empty buffer has one.
            unsafe { cu!(context.driver(), cuMemAlloc_v2(&mut address, bytes.max(1))) }
                .map(|()| address)
        });
        let address = address.map_err(|e| or_out_of_memory(e, context, bytes))?;
        Ok(Self(View::of(Arc::new(Allocation::new(
            context,
            address,
            bytes,
            Origin::Device,
        )))))
    }

    /// `len` elements of all bits zero.
    ///
    /// # Errors
    /// As [`uninit`](Self::uninit).
    pub fn zeroed(context: &Context, len: usize) -> Result<Self, Error> {
        let buffer = Self::uninit(context, len)?;
        if len > 0 {
            // SAFETY: the memory is the buffer's, of that many bytes.
            unsafe { clear(context, buffer.address(), byte_len::<T>(len)) }?;
        }
        Ok(buffer)
    }

    /// A copy of `from`.
    ///
    /// # Errors
    /// As [`uninit`](Self::uninit).
    pub fn from_slice(context: &Context, from: &[T]) -> Result<Self, Error> {
        let buffer = Self::uninit(context, from.len())?;
        buffer.put(from)?;
        Ok(buffer)
    }

    /// Memory that somebody else allocated, such as another crate in the same process: `len` elements at `address`.
    /// It is not freed; `owner` is dropped when no work can use it any more.
    ///
    /// # Safety
    /// The memory is device memory of the context of at least that many elements, aligned for them, until `owner` is
    /// dropped. Who else uses it is ordered with this crate's work by the caller.
    pub unsafe fn from_raw(
        context: &Context,
        address: CUdeviceptr,
        len: usize,
        owner: impl Any + Send + Sync,
    ) -> Self {
        let origin = Origin::Borrowed(ProgramObject::new(owner));
        Self(View::of(Arc::new(Allocation::new(
            context,
            address,
            byte_len::<T>(len),
            origin,
        ))))
    }

    /// The same buffer with a name, which errors, pictures of graphs and the emulator's faults show.
    #[must_use]
    pub fn labelled(self, label: &str) -> Self {
        self.region().allocation.set_label(label);
        self
    }

    /// All of it.
    pub fn view(&self) -> View<T> {
        self.0.clone()
    }
}

impl<T> View<T> {
    /// Elements.
    pub fn len(&self) -> usize {
        self.region.bytes / size_of::<T>().max(1)
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Its address on the device.
    pub fn address(&self) -> CUdeviceptr {
        self.region.address()
    }

    /// Its context.
    pub fn context(&self) -> &Context {
        &self.region.allocation.context
    }

    /// The bytes without the type.
    pub fn region(&self) -> &Region {
        &self.region
    }

    /// A part of it, in elements.
    ///
    /// # Panics
    /// If the range is not within the view, as indexing a slice does.
    pub fn view_range(&self, range: Range<usize>) -> Self {
        let Range { start, end } = range;
        self.get(range).unwrap_or_else(|| {
            panic!(
                "elements {start}..{end} of {}, which has {}",
                self.region,
                self.len()
            )
        })
    }

    /// A part of it, in elements, or none if the range is not within the view.
    pub fn get(&self, range: Range<usize>) -> Option<Self> {
        if range.start > range.end || range.end > self.len() {
            return None;
        }
        let (start, bytes) = (
            self.region.start + range.start * size_of::<T>(),
            range.len() * size_of::<T>(),
        );
        Some(Self {
            region: Region {
                start,
                bytes,
                ..self.region.clone()
            },
            elem: PhantomData,
        })
    }

    pub(crate) fn expect_len(&self, what: &'static str, got: usize) -> Result<(), Error> {
        if got == self.len() {
            Ok(())
        } else {
            Err(wrong_len(what, got, &self.region, self.len()))
        }
    }
}

#[cold]
fn wrong_len(what: &'static str, got: usize, region: &Region, len: usize) -> Error {
    Error::Transfer {
        what,
        problem: format!("{got} elements for {region}, which has {len}"),
    }
}

impl<T: Element> View<T> {
    /// Memory that a node of a graph allocates.
    pub(crate) fn of_graph(
        context: &Context,
        address: CUdeviceptr,
        len: usize,
        (graph, node): (u64, usize),
    ) -> Self {
        let origin = Origin::Graph(graph, node);
        Self::of(Arc::new(Allocation::new(
            context,
            address,
            byte_len::<T>(len),
            origin,
        )))
    }

    fn of(allocation: Arc<Allocation>) -> Self {
        let bytes = allocation.bytes;
        Self {
            region: Region {
                allocation,
                start: 0,
                bytes,
                elem: &T::TYPE,
            },
            elem: PhantomData,
        }
    }

    /// The same bytes as elements of another type.
    ///
    /// # Errors
    /// [`Error::Cast`] if they are not a whole number of aligned elements.
    pub fn cast<U: Element>(&self) -> Result<View<U>, Error> {
        let size = size_of::<U>().max(1);
        if !self.region.bytes.is_multiple_of(size)
            || !self.address().is_multiple_of(U::TYPE.align() as u64)
        {
            let (what, bytes) = (self.region.to_string(), self.region.bytes);
            return Err(Error::Cast {
                what,
                bytes,
                address: self.address(),
                to: U::TYPE.name(),
            });
        }
        Ok(View {
            region: Region {
                elem: &U::TYPE,
                ..self.region.clone()
            },
            elem: PhantomData,
        })
    }

    /// Waits for the context's streams, then copies the elements to the host. [`Stream::read`](crate::Stream::read)
    /// waits for one stream only. Work of other threads that would write them meanwhile is refused:
    /// [`Error::HostCopy`].
    ///
    /// # Errors
    /// What the driver reports, faults of earlier work included.
    pub fn to_vec(&self) -> Result<Vec<T>, Error> {
        refuse_memory(&self.region, "reading")?;
        let _copy = self
            .context()
            .order()
            .host_copies(&self.region, Access::Read);
        self.context().synchronize()?;
        let mut to = zeroed::<T>(self.len());
        if !as_bytes(&to).is_empty() {
            // SAFETY: the memory is the view's, of that many bytes.
            unsafe { download(self.context(), as_bytes_mut(&mut to), self.address()) }?;
        }
        Ok(to)
    }

    /// Waits for the context's streams, then copies the elements from the host.
    /// [`Stream::write`](crate::Stream::write) waits for one stream only. Work of other threads that would use them
    /// meanwhile is refused: [`Error::HostCopy`].
    ///
    /// # Errors
    /// A length that is not the view's, or what the driver reports.
    pub fn write(&self, from: &[T]) -> Result<(), Error> {
        refuse_memory(&self.region, "writing")?;
        let _copy = self
            .context()
            .order()
            .host_copies(&self.region, Access::Write);
        self.context().synchronize()?;
        self.put(from)
    }

    fn put(&self, from: &[T]) -> Result<(), Error> {
        self.expect_len("write", from.len())?;
        if as_bytes(from).is_empty() {
            return Ok(());
        }
        // SAFETY: the memory is the view's, and its length was checked.
        unsafe { upload(self.context(), self.address(), as_bytes(from)) }
    }
}

impl Region {
    /// Its address on the device.
    pub fn address(&self) -> CUdeviceptr {
        self.allocation.address + self.start as u64
    }

    /// Its size in bytes.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// The type its view gave the elements.
    pub fn elem(&self) -> ElementType {
        *self.elem
    }

    /// The label of its memory.
    pub fn label(&self) -> Option<String> {
        lock(&self.allocation.label).clone()
    }

    /// The label of its memory, or where it lies.
    pub fn name(&self) -> String {
        self.label()
            .unwrap_or_else(|| format!("{:#x}", self.allocation.address))
    }

    /// Where it begins and ends within its memory, in bytes.
    pub fn range(&self) -> Range<usize> {
        self.start..self.start + self.bytes
    }

    /// Its address on the host, if it is pinned host memory.
    pub(crate) fn host(&self) -> Option<*mut c_void> {
        self.allocation
            .host
            .map(|pointer| pointer.0.wrapping_byte_add(self.start))
    }

    pub(crate) fn context(&self) -> &Context {
        &self.allocation.context
    }

    /// The numbers of the graph and of the node that allocate it, if one does.
    pub(crate) fn graph(&self) -> Option<(u64, usize)> {
        match self.allocation.origin {
            Origin::Graph(graph, node) => Some((graph, node)),
            _ => None,
        }
    }

    /// A number that tells one memory from another for as long as both live.
    pub(crate) fn memory(&self) -> usize {
        Arc::as_ptr(&self.allocation) as usize
    }

    pub(crate) fn same_memory(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.allocation, &other.allocation)
    }

    /// Whether both are the same bytes.
    #[inline]
    pub(crate) fn same(&self, other: &Self) -> bool {
        self.same_memory(other) && self.start == other.start && self.bytes == other.bytes
    }

    pub(crate) fn overlaps(&self, other: &Self) -> bool {
        let (a, b) = (self.range(), other.range());
        self.same_memory(other) && a.start.max(b.start) < a.end.min(b.end)
    }

    /// Whether every byte of `other` is in it.
    pub(crate) fn covers(&self, other: &Self) -> bool {
        let (a, b) = (self.range(), other.range());
        self.same_memory(other) && a.start <= b.start && b.end <= a.end
    }

    pub(crate) fn expect_in(&self, context: &Context, user: &str) -> Result<(), Error> {
        if self.context().same(context) {
            return Ok(());
        }
        expect_same(
            &format!("buffer {}", self.name()),
            self.context(),
            user,
            context,
        )
    }
}

impl Bytes for Region {
    fn memory(&self) -> usize {
        Self::memory(self)
    }

    fn range(&self) -> Range<usize> {
        Self::range(self)
    }

    fn touched(&self) -> &Touched {
        &self.allocation.touched
    }
}

impl fmt::Display for Region {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.name())?;
        if self.bytes != self.allocation.bytes {
            write!(
                f,
                "[{}..{} of {} bytes]",
                self.range().start,
                self.range().end,
                self.allocation.bytes
            )?;
        }
        Ok(())
    }
}

impl fmt::Debug for Region {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl Allocation {
    fn new(context: &Context, address: CUdeviceptr, bytes: usize, origin: Origin) -> Self {
        let (label, touched) = (Mutex::default(), Touched::default());
        Self {
            context: context.clone(),
            address,
            bytes,
            host: None,
            origin,
            label,
            touched,
        }
    }

    /// Remembers the label, and tells an emulator.
    fn set_label(&self, label: &str) {
        *lock(&self.label) = Some(label.to_string());
        self.tell_label(self.address);
    }

    /// Tells an emulator the label of what lies at an address.
    fn tell_label(&self, address: CUdeviceptr) {
        let Some(label) = lock(&self.label).clone() else {
            return;
        };
        let (Some(set), Ok(text)) = (
            self.context.driver().api().emuMemSetLabel,
            CString::new(label),
        ) else {
            return;
        };
        // SAFETY: the address is an allocation of ours and the text a C string.
        let code = unsafe { set(address, text.as_ptr()) };
        if code != CUresult::SUCCESS {
            tell!(debug, ?code, ?text, "the emulator took no label");
        }
    }
}

impl Drop for Allocation {
    fn drop(&mut self) {
        let no_owner = Origin::Borrowed(ProgramObject::new(()));
        let release = match (std::mem::replace(&mut self.origin, no_owner), self.host) {
            (Origin::Device, _) => Release::Memory(self.address),
            (Origin::Stream(timeline), _) => Release::StreamMemory(self.address, timeline),
            (Origin::Opened, _) => Release::Opened(self.address),
            (Origin::Reserved(reserved), _) => Release::Reserved(self.address, reserved),
            (Origin::Pinned, Some(pointer)) => Release::Pinned(pointer),
            (Origin::Registered(owner), Some(pointer)) => Release::Registered(pointer, owner),
            (Origin::Borrowed(owner) | Origin::Registered(owner), _) => Release::Object(owner),
            (Origin::Graph(..), _) | (Origin::Pinned, None) => return,
        };
        self.context.release(release);
    }
}

impl<T> Clone for View<T> {
    fn clone(&self) -> Self {
        Self {
            region: self.region.clone(),
            elem: PhantomData,
        }
    }
}

impl<T> fmt::Debug for Buffer<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0.region, f)
    }
}

impl<T> fmt::Debug for View<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.region, f)
    }
}

impl<T> Deref for Buffer<T> {
    type Target = View<T>;

    fn deref(&self) -> &View<T> {
        &self.0
    }
}

/// Refuses memory of a graph in work of a stream.
pub(crate) fn refuse_memory(region: &Region, user: &str) -> Result<(), Error> {
    if region.graph().is_none() {
        return Ok(());
    }
    let (buffer, user) = (region.name(), user.to_string());
    Err(Error::GraphMemory {
        buffer,
        user,
        problem: "a graph allocates it, for its own nodes",
    })
}

/// The size of so many elements; a size that no memory has stays one that no memory has.
pub(crate) fn byte_len<T>(len: usize) -> usize {
    len.saturating_mul(size_of::<T>())
}

/// Turns code 2 into an error with the numbers.
pub(crate) fn or_out_of_memory(error: DriverError, context: &Context, bytes: usize) -> Error {
    match (error.code, context.memory()) {
        (CUresult::OUT_OF_MEMORY, Ok((free, total))) => Error::OutOfMemory { bytes, free, total },
        _ => error.into(),
    }
}
