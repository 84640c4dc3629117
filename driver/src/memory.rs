//! Device memory: buffers, pinned host memory, and views of both.
//!
//! A view holds its memory alive. Whoever queues work with a view hands the stream or the graph a share of it, so no
//! buffer goes away under a kernel.

use std::ffi::{CString, c_void};
use std::fmt;
use std::marker::PhantomData;
use std::ops::{Deref, Range};
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicU8, AtomicU16, AtomicU32, AtomicU64};
use std::sync::{Arc, Mutex};

use driver_sys::{CUdeviceptr, CUmemhostalloc_flags, CUresult, CUstream};

use crate::element::{Element, ElementType, as_bytes, as_bytes_mut};
use crate::event::expect_same;
use crate::lock::lock;
use crate::order::Touched;
use crate::release::{HostPointer, Release};
use crate::{Context, Driver, DriverError, Error};

/// One allocation, of the device or of the host.
pub(crate) struct Allocation {
    context: Context,
    address: CUdeviceptr,
    bytes: usize,
    host: Option<HostPointer>,
    label: Mutex<Option<String>>,
    /// What streams did to it, where there are several.
    touched: Touched,
}

/// Bytes of one allocation, with the type that their view gave them.
#[derive(Clone)]
pub struct Region {
    allocation: Arc<Allocation>,
    start: usize,
    bytes: usize,
    elem: ElementType,
}

/// Elements of one allocation. Clones see the same memory and keep it alive.
pub struct View<T> {
    region: Region,
    elem: PhantomData<T>,
}

/// Device memory of its own (`DeviceBuffer` and `CudaSlice` elsewhere). It is a [`View`] of all of itself.
pub struct Buffer<T>(View<T>);

/// Host memory that the device sees at once, without a copy. It is a [`View`] of all of itself.
pub struct Pinned<T> {
    view: View<T>,
    host: HostPointer,
}

impl<T: Element> Buffer<T> {
    /// `len` elements with whatever the memory holds.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`], or what else the driver refuses.
    pub fn uninit(context: &Context, len: usize) -> Result<Self, Error> {
        let bytes = byte_len::<T>(len);
        let _current = context.enter()?;
        let address = context.with_memory(|| {
            let mut address = 0;
            // SAFETY: `address` is ours to write. The driver refuses no bytes, so that an empty buffer has one.
            unsafe { cu!(context.driver(), cuMemAlloc_v2(&mut address, bytes.max(1))) }.map(|()| address)
        });
        let address = address.map_err(|e| or_out_of_memory(e, context, bytes))?;
        Ok(Self(View::of(Arc::new(Allocation::new(context, address, bytes, None)))))
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

impl<T: Element> Pinned<T> {
    /// `len` elements of all bits zero.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`], or what else the driver refuses.
    pub fn zeroed(context: &Context, len: usize) -> Result<Self, Error> {
        let bytes = byte_len::<T>(len);
        let (_current, driver) = (context.enter()?, context.driver());
        let flags = CUmemhostalloc_flags::PORTABLE | CUmemhostalloc_flags::DEVICEMAP;
        let pointer = context.with_memory(|| {
            let mut pointer: *mut c_void = std::ptr::null_mut();
            // SAFETY: `pointer` is ours to write.
            unsafe { cu_if_there!(driver, cuMemHostAlloc(&mut pointer, bytes.max(1), flags)) }.map(|()| pointer)
        });
        let pointer = pointer.map_err(|e| or_out_of_memory(e, context, bytes))?;
        // SAFETY: the driver gave at least that many bytes, and nobody else has them.
        unsafe { pointer.cast::<u8>().write_bytes(0, bytes) };
        let host = HostPointer(pointer);
        let mut allocation = Allocation::new(context, 0, bytes, Some(host));
        // SAFETY: `address` is ours to write; the pointer came from `cuMemHostAlloc` with DEVICEMAP.
        unsafe { cu_if_there!(driver, cuMemHostGetDevicePointer_v2(&mut allocation.address, pointer, 0)) }?;
        Ok(Self { view: View::of(Arc::new(allocation)), host })
    }

    /// The same memory with a name, as [`Buffer::labelled`].
    #[must_use]
    pub fn labelled(self, label: &str) -> Self {
        self.region().allocation.set_label(label);
        self
    }

    /// All of it.
    pub fn view(&self) -> View<T> {
        self.view.clone()
    }

    /// Element `index` as the host sees it now. A kernel may write it at the same time; each part of up to 8 bytes is
    /// old or new.
    ///
    /// # Panics
    /// If there is no such element.
    pub fn read(&self, index: usize) -> T {
        let at = self.at(index);
        let mut value = T::zeros(1)[0];
        // SAFETY: `at` is an element of this memory, which lives; both have the size of an element.
        unsafe { read_atomic(at.cast(), std::ptr::from_mut(&mut value).cast(), size_of::<T>()) };
        value
    }

    /// Writes element `index` for the device to see.
    ///
    /// # Panics
    /// If there is no such element.
    pub fn write(&self, index: usize, value: T) {
        // SAFETY: as in `read`.
        unsafe { write_atomic(self.at(index).cast(), std::ptr::from_ref(&value).cast(), size_of::<T>()) };
    }

    /// Writes elements from `start` on.
    ///
    /// # Panics
    /// If they reach beyond the end.
    pub fn write_slice(&self, start: usize, values: &[T]) {
        values.iter().enumerate().for_each(|(i, value)| self.write(start + i, *value));
    }

    /// The elements as a slice of the host.
    ///
    /// # Safety
    /// While the slice lives nobody writes the memory: no work that does is in flight, and no thread calls
    /// [`write`](Self::write).
    pub unsafe fn as_slice(&self) -> &[T] {
        // SAFETY: the memory is this one's, aligned by the driver, every pattern of bits is a value, and the caller
        // keeps writers away.
        unsafe { std::slice::from_raw_parts(self.host(), self.len()) }
    }

    /// The elements as a slice of the host, to be written.
    ///
    /// # Safety
    /// While the slice lives nobody else uses the memory: no work that does is in flight.
    pub unsafe fn as_mut_slice(&mut self) -> &mut [T] {
        // SAFETY: as above.
        unsafe { std::slice::from_raw_parts_mut(self.host(), self.len()) }
    }

    /// Every element as the host sees it now.
    pub fn to_vec(&self) -> Vec<T> {
        (0..self.len()).map(|index| self.read(index)).collect()
    }

    /// Where the elements lie on the host.
    pub(crate) fn host(&self) -> *mut T {
        self.host.0.cast()
    }

    fn at(&self, index: usize) -> *mut T {
        assert!(index < self.len(), "element {index} of pinned memory of {}", self.len());
        // SAFETY: the index was checked.
        unsafe { self.host.0.cast::<T>().add(index) }
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
        self.get(range)
            .unwrap_or_else(|| panic!("elements {start}..{end} of {}, which has {}", self.region, self.len()))
    }

    /// A part of it, in elements, or none if the range is not within the view.
    pub fn get(&self, range: Range<usize>) -> Option<Self> {
        if range.start > range.end || range.end > self.len() {
            return None;
        }
        let (start, bytes) = (self.region.start + range.start * size_of::<T>(), range.len() * size_of::<T>());
        Some(Self { region: Region { start, bytes, ..self.region.clone() }, elem: PhantomData })
    }

    pub(crate) fn expect_len(&self, what: &'static str, got: usize) -> Result<(), Error> {
        if got == self.len() { Ok(()) } else { Err(wrong_len(what, got, &self.region, self.len())) }
    }
}

#[cold]
fn wrong_len(what: &'static str, got: usize, region: &Region, len: usize) -> Error {
    Error::Transfer { what, problem: format!("{got} elements for {region}, which has {len}") }
}

impl<T: Element> View<T> {
    fn of(allocation: Arc<Allocation>) -> Self {
        let bytes = allocation.bytes;
        Self { region: Region { allocation, start: 0, bytes, elem: T::TYPE }, elem: PhantomData }
    }

    /// The same bytes as elements of another type.
    ///
    /// # Errors
    /// [`Error::Cast`] if they are not a whole number of aligned elements.
    pub fn cast<U: Element>(&self) -> Result<View<U>, Error> {
        let size = size_of::<U>().max(1);
        if !self.region.bytes.is_multiple_of(size) || !self.address().is_multiple_of(U::TYPE.align() as u64) {
            let (what, bytes) = (self.region.to_string(), self.region.bytes);
            return Err(Error::Cast { what, bytes, address: self.address(), to: U::TYPE.name() });
        }
        Ok(View { region: Region { elem: U::TYPE, ..self.region.clone() }, elem: PhantomData })
    }

    /// Waits for the context's streams, then copies the elements to the host. [`Stream::read`](crate::Stream::read)
    /// waits for one stream only.
    ///
    /// # Errors
    /// What the driver reports, faults of earlier work included.
    pub fn to_vec(&self) -> Result<Vec<T>, Error> {
        self.context().synchronize()?;
        let mut to = T::zeros(self.len());
        if !self.is_empty() {
            // SAFETY: the memory is the view's, of that many bytes.
            unsafe { download(self.context(), as_bytes_mut(&mut to), self.address()) }?;
        }
        Ok(to)
    }

    /// Waits for the context's streams, then copies the elements from the host.
    /// [`Stream::write`](crate::Stream::write) waits for one stream only.
    ///
    /// # Errors
    /// A length that is not the view's, or what the driver reports.
    pub fn write(&self, from: &[T]) -> Result<(), Error> {
        self.context().synchronize()?;
        self.put(from)
    }

    fn put(&self, from: &[T]) -> Result<(), Error> {
        self.expect_len("write", from.len())?;
        if from.is_empty() {
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
        self.elem
    }

    /// The label of its memory.
    pub fn label(&self) -> Option<String> {
        lock(&self.allocation.label).clone()
    }

    /// The label of its memory, or where it lies.
    pub fn name(&self) -> String {
        self.label().unwrap_or_else(|| format!("{:#x}", self.allocation.address))
    }

    /// Where it begins and ends within its memory, in bytes.
    pub fn range(&self) -> Range<usize> {
        self.start..self.start + self.bytes
    }

    /// Its address on the host, if it is pinned host memory.
    pub(crate) fn host(&self) -> Option<*mut c_void> {
        self.allocation.host.map(|pointer| pointer.0.wrapping_byte_add(self.start))
    }

    pub(crate) fn context(&self) -> &Context {
        &self.allocation.context
    }

    pub(crate) fn touched(&self) -> &Touched {
        &self.allocation.touched
    }

    /// A number that tells one memory from another for as long as both live.
    pub(crate) fn memory(&self) -> usize {
        Arc::as_ptr(&self.allocation) as usize
    }

    pub(crate) fn same_memory(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.allocation, &other.allocation)
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
        expect_same(&format!("buffer {}", self.name()), self.context(), user, context)
    }
}

impl fmt::Display for Region {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.name())?;
        if self.bytes != self.allocation.bytes {
            write!(f, "[{}..{} of {} bytes]", self.range().start, self.range().end, self.allocation.bytes)?;
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
    fn new(context: &Context, address: CUdeviceptr, bytes: usize, host: Option<HostPointer>) -> Self {
        let (label, touched) = (Mutex::default(), Touched::default());
        Self { context: context.clone(), address, bytes, host, label, touched }
    }

    /// Remembers the label, and tells an emulator.
    fn set_label(&self, label: &str) {
        *lock(&self.label) = Some(label.to_string());
        let (Some(set), Ok(text)) = (self.context.driver().api().emuMemSetLabel, CString::new(label)) else {
            return;
        };
        // SAFETY: the address is an allocation of ours and the text a C string.
        let code = unsafe { set(self.address, text.as_ptr()) };
        if code != CUresult::SUCCESS {
            tracing::debug!(?code, label, "the emulator took no label");
        }
    }
}

impl Drop for Allocation {
    fn drop(&mut self) {
        self.context.release(match self.host {
            Some(pointer) => Release::Pinned(pointer),
            None => Release::Memory(self.address),
        });
    }
}

impl<T> Clone for View<T> {
    fn clone(&self) -> Self {
        Self { region: self.region.clone(), elem: PhantomData }
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

impl<T> Deref for Pinned<T> {
    type Target = View<T>;

    fn deref(&self) -> &View<T> {
        &self.view
    }
}

/// The size of so many elements; a size that no memory has stays one that no memory has.
fn byte_len<T>(len: usize) -> usize {
    len.saturating_mul(size_of::<T>())
}

/// Turns code 2 into an error with the numbers.
fn or_out_of_memory(error: DriverError, context: &Context, bytes: usize) -> Error {
    match (error.code, context.memory()) {
        (CUresult::OUT_OF_MEMORY, Ok((free, total))) => Error::OutOfMemory { bytes, free, total },
        _ => error.into(),
    }
}

/// Copies from the host and waits.
///
/// # Safety
/// `to` is device memory of at least `from.len()` bytes.
unsafe fn upload(context: &Context, to: CUdeviceptr, from: &[u8]) -> Result<(), Error> {
    let (_current, driver, stream) = (context.enter()?, context.driver(), context.transfer());
    // SAFETY: the caller vouches for `to`; `from` lives until the wait returns.
    unsafe {
        cu!(driver, cuMemcpyHtoDAsync_v2(to, from.as_ptr().cast(), from.len(), stream))?;
        wait_for_work(driver, stream)?;
    }
    Ok(())
}

/// Copies to the host and waits.
///
/// # Safety
/// `from` is device memory of at least `to.len()` bytes.
unsafe fn download(context: &Context, to: &mut [u8], from: CUdeviceptr) -> Result<(), Error> {
    let (_current, driver, stream) = (context.enter()?, context.driver(), context.transfer());
    // SAFETY: the caller vouches for `from`; `to` lives until the wait returns.
    unsafe {
        cu!(driver, cuMemcpyDtoHAsync_v2(to.as_mut_ptr().cast(), from, to.len(), stream))?;
        wait_for_work(driver, stream)?;
    }
    Ok(())
}

/// Fills with zeros and waits.
///
/// # Safety
/// `to` is device memory of at least `bytes` bytes.
unsafe fn clear(context: &Context, to: CUdeviceptr, bytes: usize) -> Result<(), Error> {
    let (_current, driver, stream) = (context.enter()?, context.driver(), context.transfer());
    // SAFETY: the caller vouches for `to`.
    unsafe {
        cu!(driver, cuMemsetD8Async(to, 0, bytes, stream))?;
        wait_for_work(driver, stream)?;
    }
    Ok(())
}

/// Waits for work that uses what the caller takes back after it. Where the driver refuses to wait, the work may still
/// run, and there is nothing to do but to ask until it is done.
///
/// # Safety
/// The stream is alive and captures nothing.
pub(crate) unsafe fn wait_for_work(driver: &Driver, stream: CUstream) -> Result<(), DriverError> {
    // SAFETY: the caller vouches for the stream.
    let waited = unsafe { cu!(driver, cuStreamSynchronize(stream)) };
    if waited.as_ref().is_err_and(|error| !error.code.is_device_fault()) {
        // SAFETY: as above.
        ask_until_over(|| unsafe { (driver.api().cuStreamQuery)(stream) });
    }
    waited
}

/// Asks until the work is done or the device lost. A driver that only gives errors is given up.
fn ask_until_over(ask: impl Fn() -> CUresult) {
    let mut errors = 0;
    while errors < 1000 {
        match ask() {
            CUresult::NOT_READY => {}
            code if code == CUresult::SUCCESS || code.is_device_fault() => return,
            _ => errors += 1,
        }
        std::thread::yield_now();
    }
}

/// Calls `$part` for consecutive parts of the largest size that divides address and length: 8, 4, 2 or 1 bytes.
macro_rules! by_parts {
    ($shared:ident, $bytes:ident, $part:ident) => {
        match ($shared as usize | $bytes).trailing_zeros() {
            0 => $part!(AtomicU8, u8),
            1 => $part!(AtomicU16, u16),
            2 => $part!(AtomicU32, u32),
            _ => $part!(AtomicU64, u64),
        }
    };
}

/// Reads bytes that other threads of the host and the device may write.
///
/// # Safety
/// Both pointers have that many bytes, and `to` is the caller's.
unsafe fn read_atomic(shared: *mut u8, to: *mut u8, bytes: usize) {
    macro_rules! read {
        ($atomic:ident, $int:ident) => {
            for i in 0..bytes / size_of::<$int>() {
                // SAFETY: part `i` is within both, and the shared one is aligned; the other need not be.
                unsafe {
                    let value = (*shared.cast::<$atomic>().add(i)).load(Relaxed);
                    to.cast::<$int>().add(i).write_unaligned(value);
                }
            }
        };
    }
    by_parts!(shared, bytes, read);
}

/// Writes bytes that other threads of the host and the device may use.
///
/// # Safety
/// Both pointers have that many bytes.
unsafe fn write_atomic(shared: *mut u8, from: *const u8, bytes: usize) {
    macro_rules! write {
        ($atomic:ident, $int:ident) => {
            for i in 0..bytes / size_of::<$int>() {
                // SAFETY: part `i` is within both, and the shared one is aligned; the other need not be.
                unsafe {
                    let value = from.cast::<$int>().add(i).read_unaligned();
                    (*shared.cast::<$atomic>().add(i)).store(value, Relaxed);
                }
            }
        };
    }
    by_parts!(shared, bytes, write);
}
