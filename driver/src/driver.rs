//! The driver: found, opened, started.

use std::ffi::{CStr, OsStr, c_char};
use std::sync::{Arc, Mutex, OnceLock, Weak};

use driver_sys::{Api, CUlogIterator, CUresult, Library};

use crate::context;
use crate::error::{DriverError, Error, LoadError};
use crate::{Device, capture};

/// A started driver. Clones share it.
#[derive(Clone)]
pub struct Driver(Arc<Inner>);

struct Inner {
    api: Api,
    origin: String,
    version: i32,
    contexts: Mutex<Vec<Weak<context::Inner>>>,
    /// How far the driver's log has been shown.
    seen: Mutex<CUlogIterator>,
}

/// The library, opened once for the process and never closed.
fn library() -> &'static Result<&'static Library, driver_sys::LoadError> {
    static LIBRARY: OnceLock<Result<&'static Library, driver_sys::LoadError>> = OnceLock::new();
    LIBRARY.get_or_init(Library::find)
}

/// Whether a driver library opens. Opens it, and does nothing else.
pub fn is_driver_available() -> bool {
    library().is_ok()
}

/// Why no driver library opens, or none if one does. Opens it, and does nothing else.
pub fn driver_load_error() -> Option<&'static driver_sys::LoadError> {
    library().as_ref().err()
}

impl Driver {
    /// Starts the machine's driver, or the library that `WARPWRIGHT_LIBCUDA` names.
    ///
    /// # Errors
    /// What each name tried said, or why the driver did not start.
    pub fn load() -> Result<Self, LoadError> {
        let library = library().as_ref().map_err(Clone::clone)?;
        Self::from_api(library.api().clone(), library.name())
    }

    /// Starts the driver at `path`.
    ///
    /// # Errors
    /// Why it is not a driver, or why it did not start.
    pub fn open(path: impl AsRef<OsStr>) -> Result<Self, LoadError> {
        // SAFETY: the caller names a driver.
        let library = unsafe { Library::open(path) }?;
        Self::from_api(library.api().clone(), library.name())
    }

    /// Starts a driver whose functions are `api`; `origin` names it in errors.
    ///
    /// # Errors
    /// Why it did not start.
    pub fn from_api(api: Api, origin: &str) -> Result<Self, LoadError> {
        let mut inner = Inner {
            api,
            origin: origin.to_string(),
            version: 0,
            contexts: Mutex::default(),
            seen: Mutex::default(),
        };
        inner.start().map_err(|source| start_error(origin, source))?;
        tracing::debug!(origin, version = inner.version, "driver started");
        Ok(Self(Arc::new(inner)))
    }

    /// The raw functions.
    pub fn api(&self) -> &Api {
        &self.0.api
    }

    /// The library's name or path.
    pub fn origin(&self) -> &str {
        &self.0.origin
    }

    /// The newest CUDA version it serves, as major and minor.
    pub fn version(&self) -> (u32, u32) {
        (self.raw_version() as u32 / 1000, self.raw_version() as u32 % 1000 / 10)
    }

    pub(crate) fn raw_version(&self) -> i32 {
        self.0.version
    }

    /// Every device, by ordinal.
    ///
    /// # Errors
    /// What the driver refuses.
    pub fn devices(&self) -> Result<Vec<Device>, Error> {
        let mut count = 0;
        // SAFETY: `count` is ours to write.
        unsafe { cu!(self, cuDeviceGetCount(&mut count)) }?;
        (0..count.max(0)).map(|ordinal| Device::get(self, ordinal)).collect()
    }

    /// The device of that ordinal.
    ///
    /// # Errors
    /// [`Error::NoDevice`] with the number there are.
    pub fn device(&self, ordinal: usize) -> Result<Device, Error> {
        let mut devices = self.devices()?;
        if ordinal < devices.len() {
            return Ok(devices.swap_remove(ordinal));
        }
        Err(Error::NoDevice { ordinal, count: devices.len() })
    }

    /// Turns a code into a result, and tells a capture on this thread of the first failure.
    pub(crate) fn check(&self, call: &'static str, code: CUresult) -> Result<(), DriverError> {
        self.0.check(call, code)
    }

    /// The contexts in use, so that a device has one and not several that do not know of each other.
    pub(crate) fn contexts(&self) -> &Mutex<Vec<Weak<context::Inner>>> {
        &self.0.contexts
    }
}

/// Codes of `cuInit` that say more than that it failed.
fn start_error(origin: &str, source: DriverError) -> LoadError {
    let origin = origin.to_string();
    match source.code {
        CUresult::NO_DEVICE => LoadError::NoDevice { origin },
        CUresult::SYSTEM_DRIVER_MISMATCH => LoadError::DriverMismatch { origin },
        CUresult::COMPAT_NOT_SUPPORTED_ON_DEVICE => LoadError::CompatNotSupported { origin },
        _ => LoadError::Start { origin, source },
    }
}

impl Inner {
    fn start(&mut self) -> Result<(), DriverError> {
        // SAFETY: the call takes no pointer and may be made again.
        let code = unsafe { (self.api.cuInit)(0) };
        self.check("cuInit", code)?;
        // SAFETY: the number is ours to write.
        let code = unsafe { (self.api.cuDriverGetVersion)(&mut self.version) };
        self.check("cuDriverGetVersion", code)?;
        if let Some(current) = self.api.cuLogsCurrent {
            // SAFETY: the number is ours to write.
            let code = unsafe { current(&mut *context::lock(&self.seen), 0) };
            self.check("cuLogsCurrent", code)?;
        }
        Ok(())
    }

    fn check(&self, call: &'static str, code: CUresult) -> Result<(), DriverError> {
        let Err(code) = code.ok() else { return Ok(()) };
        let error = DriverError {
            call,
            code,
            name: code.name().is_none().then(|| self.name_of(code)).flatten(),
            log: self.log(),
        };
        capture::note(&error);
        Err(error)
    }

    /// The driver's name of a code newer than this crate.
    fn name_of(&self, code: CUresult) -> Option<Box<str>> {
        let mut text: *const c_char = std::ptr::null();
        // SAFETY: `text` is ours to write.
        let known =
            unsafe { (self.api.cuGetErrorName)(code, &mut text) } == CUresult::SUCCESS && !text.is_null();
        // SAFETY: the driver's names are static C strings.
        known.then(|| unsafe { CStr::from_ptr(text) }.to_string_lossy().into())
    }

    /// What the driver has logged since the last time, on drivers that keep a log.
    fn log(&self) -> Box<str> {
        let Some(dump) = self.api.cuLogsDumpToMemory else { return Box::default() };
        let mut seen = context::lock(&self.seen);
        let mut text = vec![0u8; 16 << 10];
        let mut size = text.len();
        // SAFETY: the driver writes at most `size` bytes into `text`, the number it wrote, and how far it read.
        let code = unsafe { dump(&mut *seen, text.as_mut_ptr().cast(), &mut size, 0) };
        if code != CUresult::SUCCESS {
            return Box::default();
        }
        text.truncate(size);
        trimmed(&text).into()
    }
}

/// Text up to its NUL, less the white space around it.
pub(crate) fn trimmed(bytes: &[u8]) -> String {
    let end = bytes.iter().position(|b| *b == 0).unwrap_or(bytes.len());
    String::from_utf8_lossy(&bytes[..end]).trim().to_string()
}
