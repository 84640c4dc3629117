//! The driver: found, opened, started.

use std::any::Any;
use std::ffi::{CStr, OsStr, c_char};
use std::sync::{Mutex, Weak};

use driver_sys::{Api, CUlogIterator, CUresult, Library};

use crate::driver_error::{Absent, DriverError};
use crate::error::LoadError;
use crate::gate::{Gate, is_untold};
use crate::lock::lock;
use crate::regions;

/// A started driver. Clones are the same driver, and so is every other `Driver` of the same library.
///
/// ```
/// # use warpwright_driver::*;
/// # fn main() -> Result<(), Error> {
/// let driver = Driver::load().or_else(|missing| {
///     eprintln!("{missing}"); // what was tried, and what came of it
///     Driver::of(warpwright_cuda_emu::library())
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
    /// How far the driver's log has been shown.
    seen: Mutex<CUlogIterator>,
    gate: Gate,
}

/// The contexts in use: of each, what its handles share.
pub(crate) type Contexts = Vec<Weak<dyn Any + Send + Sync>>;

/// The drivers that were started: one for each library, for as long as the process runs.
static STARTED: Mutex<Vec<&'static Inner>> = Mutex::new(Vec::new());

/// Whether a driver library opens. Opens it, and does nothing else.
pub fn is_driver_available() -> bool {
    Library::find().is_ok()
}

/// Why no driver library opens, or none if one does. Opens it, and does nothing else.
pub fn driver_load_error() -> Option<driver_sys::LoadError> {
    Library::find().err()
}

impl Driver {
    /// Starts the machine's driver, or the library that `WARPWRIGHT_LIBCUDA` names.
    ///
    /// # Errors
    /// What each name tried said, or why the driver did not start.
    pub fn load() -> Result<Self, LoadError> {
        Self::of(Library::find()?)
    }

    /// Starts the driver at `path`.
    ///
    /// # Errors
    /// Why it is not a driver, or why it did not start.
    ///
    /// # Safety
    /// What the library exports under a name of `cuda.h` is that function, with that prototype.
    ///
    /// ```compile_fail,E0133
    /// let driver = warpwright_driver::Driver::open("libm.so.6"); // Its functions would be called as if they were these.
    /// ```
    ///
    /// Nor is there another way to a driver over functions that nobody vouches for:
    ///
    /// ```compile_fail,E0133
    /// use warpwright_driver::{Driver, sys::{Api, Library}};
    /// let driver = Driver::of(Library::of(Api::empty(), "mine"));
    /// ```
    pub unsafe fn open(path: impl AsRef<OsStr>) -> Result<Self, LoadError> {
        // SAFETY: the caller vouches for the library.
        Self::of(unsafe { Library::open(path) }?)
    }

    /// Starts the driver of an open library. The second call for a library gives the driver that the first one
    /// started.
    ///
    /// # Errors
    /// Why it did not start.
    pub fn of(library: &'static Library) -> Result<Self, LoadError> {
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

    /// The raw functions.
    pub fn api(&self) -> &'static Api {
        self.0.library.api()
    }

    /// The library's name or path.
    pub fn origin(&self) -> &str {
        self.0.library.name()
    }

    /// The newest CUDA version it serves, as major and minor.
    pub fn version(&self) -> (u32, u32) {
        (
            self.raw_version() as u32 / 1000,
            self.raw_version() as u32 % 1000 / 10,
        )
    }

    pub(crate) fn raw_version(&self) -> i32 {
        self.0.version
    }

    /// Turns a code into a result, and tells a capture on this thread of the first failure.
    #[inline]
    pub(crate) fn check(&self, call: &'static str, code: CUresult) -> Result<(), DriverError> {
        if code == CUresult::SUCCESS {
            Ok(())
        } else {
            Err(self.failure(call, code))
        }
    }

    /// The error of a function that this driver lacks.
    #[cold]
    pub(crate) fn lacks(&self, call: &'static str) -> DriverError {
        let since = Api::function(call).map_or(0, |f| f.since as u32);
        let absent = Absent {
            needed: (since / 1000, since % 1000 / 10),
            driver: self.version(),
        };
        let error = DriverError {
            call,
            code: CUresult::NOT_SUPPORTED,
            name: None,
            log: Box::default(),
            absent: Some(Box::new(absent)),
        };
        regions::note(&error);
        error
    }

    /// The contexts in use, so that a device has one and not several that do not know of each other.
    pub(crate) fn contexts(&self) -> &'static Mutex<Contexts> {
        &self.0.contexts
    }

    /// What keeps destructors out of captures.
    pub(crate) fn gate(&self) -> &'static Gate {
        &self.0.gate
    }

    #[cold]
    fn failure(&self, call: &'static str, code: CUresult) -> DriverError {
        let name = code
            .name()
            .is_none()
            .then(|| self.0.name_of(code))
            .flatten();
        let log = if is_untold() {
            Box::default()
        } else {
            self.0.log()
        };
        let error = DriverError {
            call,
            code,
            name,
            log,
            absent: None,
        };
        regions::note(&error);
        error
    }
}

impl std::fmt::Debug for Driver {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (major, minor) = self.version();
        write!(f, "Driver({}, CUDA {major}.{minor})", self.origin())
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
    fn start(library: &'static Library) -> Result<Self, DriverError> {
        let api = library.api();
        let mut inner = Self {
            library,
            version: 0,
            contexts: Mutex::default(),
            seen: Mutex::default(),
            gate: Gate::default(),
        };
        let failed = |call, code: CUresult| match code.ok() {
            Ok(()) => Ok(()),
            Err(code) => Err(DriverError {
                call,
                code,
                name: inner_name(api, code),
                log: Box::default(),
                absent: None,
            }),
        };
        // SAFETY: the call takes no pointer and may be made again.
        failed("cuInit", unsafe { (api.cuInit)(0) })?;
        // SAFETY: the number is ours to write.
        failed("cuDriverGetVersion", unsafe {
            (api.cuDriverGetVersion)(&mut inner.version)
        })?;
        if let Some(current) = api.cuLogsCurrent {
            // Without it, the first error shows the log from its beginning.
            // SAFETY: the number is ours to write.
            let _ = unsafe { current(&mut *lock(&inner.seen), 0) };
        }
        tell!(
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

    /// What the driver has logged since the last time, on drivers that keep a log.
    fn log(&self) -> Box<str> {
        let Some(dump) = self.library.api().cuLogsDumpToMemory else {
            return Box::default();
        };
        let mut seen = lock(&self.seen);
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

/// The driver's name of a code newer than this crate.
fn inner_name(api: &Api, code: CUresult) -> Option<Box<str>> {
    if code.name().is_some() {
        return None;
    }
    let mut text: *const c_char = std::ptr::null();
    // SAFETY: `text` is ours to write.
    let known =
        unsafe { (api.cuGetErrorName)(code, &mut text) } == CUresult::SUCCESS && !text.is_null();
    // SAFETY: the driver's names are static C strings.
    known.then(|| unsafe { CStr::from_ptr(text) }.to_string_lossy().into())
}

/// Text up to its NUL, less the white space around it.
pub(crate) fn trimmed(bytes: &[u8]) -> String {
    let end = bytes.iter().position(|b| *b == 0).unwrap_or(bytes.len());
    String::from_utf8_lossy(&bytes[..end]).trim().to_string()
}
