//! A context: one device in use by this process.
//!
//! It is the device's primary context, shared with every other user of it in the process, and never reset. Each call
//! that needs it makes it current and restores what was current before.

use std::any::Any;
use std::ffi::c_void;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use driver_sys::{
    CUcontext, CUdevice_attribute, CUdeviceptr, CUevent, CUgraph, CUgraphExec, CUmodule, CUresult, CUstream,
    CUstream_flags,
};

use crate::error::DriverError;
use crate::{Device, Driver, Error, stream};

/// A device in use. Clones share it, and so does every other `Context` of the same device and driver.
#[derive(Clone)]
pub struct Context(Arc<Inner>);

/// Something that work on the device needs, kept until that work is done.
pub(crate) type Owner = Arc<dyn Any + Send + Sync>;

pub(crate) struct Inner {
    device: Device,
    raw: CUcontext,
    limits: Limits,
    /// For copies that the caller waits for. The legacy stream would not wait for ours, and breaks captures.
    transfer: CUstream,
    streams: Mutex<Vec<Weak<stream::Inner>>>,
    deferral: Mutex<Deferral>,
    left: Mutex<Vec<Left>>,
}

/// What a launch may ask of the device.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    pub(crate) grid: [u32; 3],
    pub(crate) block: [u32; 3],
}

/// While a stream captures, destructors wait: most of what they call would end the capture.
#[derive(Default)]
struct Deferral {
    captures: usize,
    waiting: Vec<Release>,
}

/// Owners whose stream is gone, and the event after which nothing needs them.
pub(crate) struct Left {
    pub(crate) event: CUevent,
    pub(crate) owners: Vec<Owner>,
}

/// What a destructor gives back.
#[derive(Debug)]
pub(crate) enum Release {
    Memory(CUdeviceptr),
    Pinned(HostPointer),
    Module(CUmodule),
    Stream(CUstream),
    Event(CUevent),
    Graph(CUgraph),
    Exec(CUgraphExec),
}

/// An address of host memory.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HostPointer(pub(crate) *mut c_void);

// SAFETY: it is an address; whoever goes through it says why the memory is there and who else uses it.
unsafe impl Send for HostPointer {}
// SAFETY: as above.
unsafe impl Sync for HostPointer {}

/// A lock whose data stays whole whatever a holder does.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The context is current on this thread for as long as this lives.
pub(crate) struct Current<'a> {
    driver: &'a Driver,
    pushed: bool,
}

impl Context {
    /// Takes a device into use.
    ///
    /// # Errors
    /// What the driver refuses: no memory for a context, or a device in exclusive use elsewhere.
    pub fn new(device: &Device) -> Result<Self, Error> {
        let mut contexts = lock(device.driver().contexts());
        contexts.retain(|c| c.strong_count() > 0);
        let in_use =
            contexts.iter().filter_map(Weak::upgrade).find(|c| c.device.ordinal() == device.ordinal());
        if let Some(inner) = in_use {
            drop(contexts);
            inner.collect();
            return Ok(Self(inner));
        }
        let inner = Arc::new(Inner::retain(device)?);
        contexts.push(Arc::downgrade(&inner));
        Ok(Self(inner))
    }

    /// The device.
    pub fn device(&self) -> &Device {
        &self.0.device
    }

    /// The driver.
    pub fn driver(&self) -> &Driver {
        self.0.device.driver()
    }

    /// Free and total device memory, in bytes.
    ///
    /// # Errors
    /// What the driver refuses.
    pub fn memory(&self) -> Result<(usize, usize), Error> {
        let _current = self.enter()?;
        let (mut free, mut total) = (0, 0);
        // SAFETY: both numbers are ours to write.
        unsafe { cu!(self.driver(), cuMemGetInfo_v2(&mut free, &mut total)) }?;
        Ok((free, total))
    }

    /// Waits until every stream of this context that does not capture is idle.
    ///
    /// # Errors
    /// A fault of the device, or what else the driver reports of earlier work.
    pub fn synchronize(&self) -> Result<(), Error> {
        // Each stream on its own: cuCtxSynchronize may end a capture on another thread.
        let streams: Vec<_> = lock(&self.0.streams).iter().filter_map(Weak::upgrade).collect();
        streams.iter().filter(|s| !s.is_capturing()).try_for_each(|s| s.synchronize())?;
        self.0.collect();
        Ok(())
    }

    /// Runs `f` with the context current on this thread: for calls that this crate does not wrap.
    ///
    /// # Errors
    /// What the driver refuses.
    pub fn run<R>(&self, f: impl FnOnce() -> R) -> Result<R, Error> {
        let _current = self.enter()?;
        Ok(f())
    }

    /// The raw handle.
    pub fn raw(&self) -> CUcontext {
        self.0.raw
    }

    pub(crate) fn limits(&self) -> &Limits {
        &self.0.limits
    }

    pub(crate) fn enter(&self) -> Result<Current<'_>, DriverError> {
        self.0.enter()
    }

    pub(crate) fn release(&self, what: Release) {
        self.0.release(what);
    }

    /// Whether work before the event is still to do.
    pub(crate) fn is_pending(&self, event: CUevent) -> bool {
        self.0.is_pending(event)
    }

    pub(crate) fn keep_until_done(&self, left: Left) {
        lock(&self.0.left).push(left);
    }

    /// Drops what dropped streams still held, where its work is done.
    pub(crate) fn collect(&self) {
        self.0.collect();
    }

    pub(crate) fn same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    pub(crate) fn add_stream(&self, stream: &Arc<stream::Inner>) {
        let mut streams = lock(&self.0.streams);
        streams.retain(|s| s.strong_count() > 0);
        streams.push(Arc::downgrade(stream));
    }

    /// Copies from the host and waits.
    ///
    /// # Safety
    /// `to` is device memory of at least `from.len()` bytes.
    pub(crate) unsafe fn upload(&self, to: CUdeviceptr, from: &[u8]) -> Result<(), Error> {
        // SAFETY: the caller vouches for `to`; the context lives as long as its transfer stream.
        unsafe { self.upload_on(self.0.transfer, to, from) }
    }

    /// Copies to the host and waits.
    ///
    /// # Safety
    /// `from` is device memory of at least `to.len()` bytes.
    pub(crate) unsafe fn download(&self, to: &mut [u8], from: CUdeviceptr) -> Result<(), Error> {
        // SAFETY: the caller vouches for `from`; the context lives as long as its transfer stream.
        unsafe { self.download_on(self.0.transfer, to, from) }
    }

    /// Fills with one byte and waits.
    ///
    /// # Safety
    /// `to` is device memory of at least `bytes` bytes.
    pub(crate) unsafe fn clear(&self, to: CUdeviceptr, bytes: usize) -> Result<(), Error> {
        let (_current, driver, stream) = (self.enter()?, self.driver(), self.0.transfer);
        // SAFETY: the caller vouches for `to`.
        unsafe {
            cu!(driver, cuMemsetD8Async(to, 0, bytes, stream))?;
            cu!(driver, cuStreamSynchronize(stream))?;
        }
        Ok(())
    }

    /// Copies from the host in the order of `stream`, and waits.
    ///
    /// # Safety
    /// `stream` is alive and of this context; `to` is device memory of at least `from.len()` bytes.
    pub(crate) unsafe fn upload_on(
        &self,
        stream: CUstream,
        to: CUdeviceptr,
        from: &[u8],
    ) -> Result<(), Error> {
        let (_current, driver) = (self.enter()?, self.driver());
        // SAFETY: the caller vouches for `to`; `from` lives until the wait returns.
        unsafe {
            cu!(driver, cuMemcpyHtoDAsync_v2(to, from.as_ptr().cast(), from.len(), stream))?;
            cu!(driver, cuStreamSynchronize(stream))?;
        }
        Ok(())
    }

    /// Copies to the host in the order of `stream`, and waits.
    ///
    /// # Safety
    /// `stream` is alive and of this context; `from` is device memory of at least `to.len()` bytes.
    pub(crate) unsafe fn download_on(
        &self,
        stream: CUstream,
        to: &mut [u8],
        from: CUdeviceptr,
    ) -> Result<(), Error> {
        let (_current, driver) = (self.enter()?, self.driver());
        // SAFETY: the caller vouches for `from`; `to` is ours to write and lives until the wait returns.
        unsafe {
            cu!(driver, cuMemcpyDtoHAsync_v2(to.as_mut_ptr().cast(), from, to.len(), stream))?;
            cu!(driver, cuStreamSynchronize(stream))?;
        }
        Ok(())
    }

    pub(crate) fn has_captures(&self) -> bool {
        lock(&self.0.deferral).captures > 0
    }

    /// From here on, destructors wait.
    pub(crate) fn begin_capture(&self) {
        lock(&self.0.deferral).captures += 1;
    }

    /// Ends what [`begin_capture`](Self::begin_capture) began, and does the destructors' work that waited.
    pub(crate) fn end_capture(&self) {
        let mut deferral = lock(&self.0.deferral);
        deferral.captures -= 1;
        if deferral.captures == 0 {
            let waiting = std::mem::take(&mut deferral.waiting);
            drop(deferral);
            waiting.into_iter().for_each(|what| self.0.release_now(what));
        }
    }
}

impl std::fmt::Debug for Context {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Context({:?})", self.0.device)
    }
}

impl Inner {
    fn retain(device: &Device) -> Result<Self, Error> {
        let driver = device.driver();
        let limits = Limits::of(device)?;
        let mut raw = CUcontext::NULL;
        // SAFETY: `raw` is ours to write; the reference taken is given back in `drop`.
        unsafe { cu!(driver, cuDevicePrimaryCtxRetain(&mut raw, device.raw())) }?;
        let mut inner = Self {
            device: device.clone(),
            raw,
            limits,
            transfer: CUstream::NULL,
            streams: Mutex::default(),
            deferral: Mutex::default(),
            left: Mutex::default(),
        };
        let mut transfer = CUstream::NULL;
        {
            let _current = inner.enter()?;
            // SAFETY: `transfer` is ours to write.
            unsafe { cu!(driver, cuStreamCreate(&mut transfer, CUstream_flags::NON_BLOCKING)) }?;
        }
        inner.transfer = transfer;
        tracing::debug!(%device, "context in use");
        Ok(inner)
    }

    fn enter(&self) -> Result<Current<'_>, DriverError> {
        let driver = self.device.driver();
        let mut current = CUcontext::NULL;
        // SAFETY: `current` is ours to write.
        unsafe { cu!(driver, cuCtxGetCurrent(&mut current)) }?;
        let pushed = current != self.raw;
        if pushed {
            // SAFETY: the context is retained for as long as this lives.
            unsafe { cu!(driver, cuCtxPushCurrent_v2(self.raw)) }?;
        }
        Ok(Current { driver, pushed })
    }

    fn release(&self, what: Release) {
        let mut deferral = lock(&self.deferral);
        if deferral.captures > 0 {
            deferral.waiting.push(what);
        } else {
            drop(deferral);
            self.release_now(what);
        }
    }

    /// Releases what a destructor held. It cannot report a failure; after a fault of the device all releases fail.
    fn release_now(&self, what: Release) {
        if let Err(error) = self.try_release(&what) {
            tracing::warn!(%error, ?what, "not released");
        }
    }

    fn try_release(&self, what: &Release) -> Result<(), DriverError> {
        let (_current, driver) = (self.enter()?, self.device.driver());
        // SAFETY: the destructor that made the value owned the object and was the last to name it.
        unsafe {
            match *what {
                Release::Memory(address) => cu!(driver, cuMemFree_v2(address)),
                Release::Pinned(pointer) => cu!(driver, cuMemFreeHost(pointer.0)),
                Release::Module(module) => cu!(driver, cuModuleUnload(module)),
                Release::Stream(stream) => cu!(driver, cuStreamDestroy_v2(stream)),
                Release::Event(event) => cu!(driver, cuEventDestroy_v2(event)),
                Release::Graph(graph) => cu!(driver, cuGraphDestroy(graph)),
                Release::Exec(exec) => cu!(driver, cuGraphExecDestroy(exec)),
            }
        }
    }

    fn collect(&self) {
        let left = std::mem::take(&mut *lock(&self.left));
        let (busy, done): (Vec<_>, Vec<_>) = left.into_iter().partition(|l| self.is_pending(l.event));
        lock(&self.left).extend(busy);
        for Left { event, owners } in done {
            self.release(Release::Event(event));
            drop(owners);
        }
    }

    /// Whether work before the event is still to do; a device that failed does none.
    fn is_pending(&self, event: CUevent) -> bool {
        let Ok(_current) = self.enter() else { return false };
        // SAFETY: the event is alive; a query changes nothing.
        unsafe { (self.device.driver().api().cuEventQuery)(event) == CUresult::NOT_READY }
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        if !self.transfer.is_null() {
            self.release_now(Release::Stream(self.transfer));
        }
        let driver = self.device.driver();
        // SAFETY: gives back the reference that `retain` took; nothing of the context is left.
        if let Err(error) = unsafe { cu!(driver, cuDevicePrimaryCtxRelease_v2(self.device.raw())) } {
            tracing::warn!(%error, "context not released");
        }
    }
}

impl Drop for Current<'_> {
    fn drop(&mut self) {
        if self.pushed {
            let mut popped = CUcontext::NULL;
            // SAFETY: `popped` is ours to write; the context on top is the one that `enter` pushed.
            if let Err(error) = unsafe { cu!(self.driver, cuCtxPopCurrent_v2(&mut popped)) } {
                tracing::warn!(%error, "context not restored");
            }
        }
    }
}

impl Limits {
    fn of(device: &Device) -> Result<Self, Error> {
        let get = |attribute| device.attribute(attribute).map(|v| v as u32);
        Ok(Self {
            grid: [
                get(CUdevice_attribute::MAX_GRID_DIM_X)?,
                get(CUdevice_attribute::MAX_GRID_DIM_Y)?,
                get(CUdevice_attribute::MAX_GRID_DIM_Z)?,
            ],
            block: [
                get(CUdevice_attribute::MAX_BLOCK_DIM_X)?,
                get(CUdevice_attribute::MAX_BLOCK_DIM_Y)?,
                get(CUdevice_attribute::MAX_BLOCK_DIM_Z)?,
            ],
        })
    }
}
