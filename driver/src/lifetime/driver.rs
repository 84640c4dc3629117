//! Finds, opens and initializes the CUDA driver.

use std::any::Any;
use std::ffi::{CStr, OsStr, c_char};
use std::sync::{Mutex, Weak};

use driver_sys::{Api, CUlogIterator, CUresult, Library};

use crate::error::{Absent, DriverError, LoadError};
use crate::lifetime::active_captures;
use crate::lifetime::capture_gate::{CaptureGate, is_unreported};
use crate::lifetime::unpoisoned_lock::lock;

/// An initialized driver. Clones refer to the same driver, and so does every other `Driver` of the
/// same library.
///
/// ```
/// # use warpwright_driver::prelude::*;
/// # fn main() -> Result<(), Error> {
/// let driver = Driver::load().or_else(|missing| {
///     eprintln!("{missing}"); // every name that was tried, with the reason
///     Driver::from_library(warpwright_cuda_emu::library())
/// })?;
/// for device in driver.devices()? {
///     println!("{device}, driver for CUDA {:?}", driver.version());
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy)]
pub struct Driver(&'static Inner);

pub(crate) struct Inner {
    library: &'static Library,
    version: i32,
    contexts: Mutex<Contexts>,
    /// The position in the driver's log up to which messages were attached to errors.
    seen: Mutex<CUlogIterator>,
    gate: CaptureGate,
}

/// The contexts in use, each as a weak share of its resources.
pub(crate) type Contexts = Vec<Weak<dyn Any + Send + Sync>>;

/// The initialized drivers, one per library. They are never unloaded.
static STARTED: Mutex<Vec<&'static Inner>> = Mutex::new(Vec::new());

/// Returns true if a driver library can be opened. Opens the library and does not initialize it.
pub fn is_driver_available() -> bool {
    Library::find().is_ok()
}

/// Returns the reason why no driver library can be opened, or `None` if one can. Opens the library
/// and does not initialize it.
pub fn driver_load_error() -> Option<driver_sys::LoadError> {
    Library::find().err()
}

impl Driver {
    /// Opens and initializes the machine's driver, or the library that the environment variable
    /// `WARPWRIGHT_LIBCUDA` names.
    ///
    /// # Errors
    /// Returns an error with the reason for each name that was tried, or the reason why the driver
    /// did not initialize.
    pub fn load() -> Result<Self, LoadError> {
        Self::from_library(Library::find()?)
    }

    /// Opens and initializes the driver library at `path`.
    ///
    /// # Errors
    /// Returns an error if the file is not a driver library, or if the driver does not initialize.
    ///
    /// # Safety
    /// Every function that the library exports under a name of `cuda.h` must be that function, with
    /// that prototype.
    ///
    /// ```compile_fail,E0133
    /// let driver = warpwright_driver::Driver::open("libm.so.6"); // Its functions would be called with other prototypes.
    /// ```
    ///
    /// Without `unsafe` a driver cannot be created from functions that the caller does not vouch
    /// for:
    ///
    /// ```compile_fail,E0133
    /// use warpwright_driver::Driver;
    /// use warpwright_driver::sys::{Api, Library};
    /// let driver = Driver::from_library(Library::from_api(Api::empty(), "mine"));
    /// ```
    pub unsafe fn open(path: impl AsRef<OsStr>) -> Result<Self, LoadError> {
        // SAFETY: the caller guarantees that the exported functions are those of `cuda.h`.
        Self::from_library(unsafe { Library::open(path) }?)
    }

    /// Initializes the driver of an open library. A second call for the same library returns the
    /// same driver.
    ///
    /// # Errors
    /// Returns an error if the driver does not initialize.
    pub fn from_library(library: &'static Library) -> Result<Self, LoadError> {
        // The list stays locked while the driver initializes, so that two threads do not create two
        // drivers for one library.
        let mut started = lock(&STARTED);
        if let Some(inner) = started
            .iter()
            .find(|inner| std::ptr::eq(inner.library, library))
        {
            return Ok(Self(inner));
        }

        let inner = Inner::start(library).map_err(|source| start_error(library.name(), source))?;
        let inner: &'static Inner = Box::leak(Box::new(inner));
        started.push(inner);
        Ok(Self(inner))
    }

    /// Returns true if both are the same loaded driver.
    pub(crate) fn same(&self, other: &Self) -> bool {
        std::ptr::eq(self.0, other.0)
    }

    /// Returns the table of driver functions.
    pub fn api(&self) -> &'static Api {
        self.0.library.api()
    }

    /// Returns the name or path of the library.
    pub fn origin(&self) -> &str {
        self.0.library.name()
    }

    /// Returns the newest CUDA version that the driver supports, as major and minor.
    pub fn version(&self) -> (u32, u32) {
        (
            self.raw_version() as u32 / 1000,
            self.raw_version() as u32 % 1000 / 10,
        )
    }

    pub(crate) fn raw_version(&self) -> i32 {
        self.0.version
    }

    /// Converts an error code into a result, and records the first failure of a capture on this
    /// thread.
    #[inline]
    pub(crate) fn check(&self, call: &'static str, code: CUresult) -> Result<(), DriverError> {
        if code == CUresult::SUCCESS {
            Ok(())
        } else {
            Err(self.failure(call, code))
        }
    }

    /// Returns the error for a function that this driver lacks.
    #[cold]
    pub(crate) fn lacks(&self, call: &'static str) -> DriverError {
        let since = Api::function(call).map_or(0, |f| f.since as u32);
        let absent = Absent {
            needed: (since / 1000, since % 1000 / 10),
            driver: self.version(),
        };
        let error = DriverError {
            absent: Some(Box::new(absent)),
            ..DriverError::new(call, CUresult::NOT_SUPPORTED)
        };
        active_captures::note(&error);
        error
    }

    /// Returns the contexts in use. All handles of a device share one context, so that their
    /// streams are checked against each other.
    pub(crate) fn contexts(&self) -> &'static Mutex<Contexts> {
        &self.0.contexts
    }

    /// Returns the gate that keeps destructors out of captures.
    pub(crate) fn gate(&self) -> &'static CaptureGate {
        &self.0.gate
    }

    #[cold]
    fn failure(&self, call: &'static str, code: CUresult) -> DriverError {
        let name = self.0.name_of(code);

        // Reading the log consumes it. If the error is ignored, its messages stay for the next
        // error.
        let log = if is_unreported() {
            Box::default()
        } else {
            self.0.log()
        };
        let error = DriverError {
            name,
            log,
            ..DriverError::new(call, code)
        };
        active_captures::note(&error);
        error
    }
}

impl std::fmt::Debug for Driver {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (major, minor) = self.version();
        write!(f, "Driver({}, CUDA {major}.{minor})", self.origin())
    }
}

/// Converts an error of `cuInit` into a specific error where its code explains the failure.
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
    fn start(library: &'static Library) -> Result<Self, DriverError> {
        let api = library.api();
        let mut inner = Self {
            library,
            version: 0,
            contexts: Mutex::default(),
            seen: Mutex::default(),
            gate: CaptureGate::default(),
        };
        let failed = |call, code: CUresult| match code.ok() {
            Ok(()) => Ok(()),
            Err(code) => Err(DriverError {
                name: inner_name(api, code),
                ..DriverError::new(call, code)
            }),
        };

        // SAFETY: the call takes no pointer, and the driver allows repeated initialization.
        failed("cuInit", unsafe { (api.cuInit)(0) })?;

        // SAFETY: `inner.version` is a field that the driver may write.
        failed("cuDriverGetVersion", unsafe {
            (api.cuDriverGetVersion)(&mut inner.version)
        })?;
        if let Some(current) = api.cuLogsCurrent {
            // Skips messages from before the initialization. If the call fails, the first error
            // shows them as well.
            // SAFETY: the iterator is a field that the driver may write.
            let _ = unsafe { current(&mut *lock(&inner.seen), 0) };
        }

        log_event!(
            debug,
            origin = library.name(),
            version = inner.version,
            "driver started"
        );
        Ok(inner)
    }

    fn name_of(&self, code: CUresult) -> Option<Box<str>> {
        inner_name(self.library.api(), code)
    }

    /// Returns the messages that the driver has logged since the last call, if it keeps a log.
    fn log(&self) -> Box<str> {
        let Some(dump) = self.library.api().cuLogsDumpToMemory else {
            return Box::default();
        };

        let mut seen = lock(&self.seen);
        let mut text = vec![0u8; 16 << 10];
        let mut size = text.len();

        // SAFETY: the driver writes at most `size` bytes into `text`, and updates `size` and
        // `seen`, all of which are local or locked.
        let code = unsafe { dump(&mut *seen, text.as_mut_ptr().cast(), &mut size, 0) };
        if code != CUresult::SUCCESS {
            return Box::default();
        }

        text.truncate(size);
        trimmed(&text).into()
    }
}

/// Returns the driver's name of an error code that this crate does not list.
fn inner_name(api: &Api, code: CUresult) -> Option<Box<str>> {
    if code.name().is_some() {
        return None;
    }

    let mut text: *const c_char = std::ptr::null();

    // SAFETY: `text` is a local variable that the driver may write.
    let known =
        unsafe { (api.cuGetErrorName)(code, &mut text) } == CUresult::SUCCESS && !text.is_null();
    if !known {
        return None;
    }

    // SAFETY: the driver returned a static C string.
    Some(unsafe { CStr::from_ptr(text) }.to_string_lossy().into())
}

/// Returns the text before the first NUL, without surrounding white space.
pub(crate) fn trimmed(bytes: &[u8]) -> String {
    let end = bytes.iter().position(|b| *b == 0).unwrap_or(bytes.len());
    String::from_utf8_lossy(&bytes[..end]).trim().to_string()
}
