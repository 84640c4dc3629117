//! Finds and opens the driver's library.
//!
//! The library is opened once and never closed, because the driver has its own threads and exit
//! handlers.

use std::ffi::{CStr, OsStr, c_int, c_void};
use std::fmt;
use std::mem::ManuallyDrop;
use std::sync::{Mutex, OnceLock, PoisonError};

#[cfg(unix)]
use libloading::os::unix as os;
#[cfg(windows)]
use libloading::os::windows as os;

use crate::{Api, CUresult, MissingSymbol};

/// The environment variable with the library to open instead of [`NAMES`].
pub const OVERRIDE: &str = "WARPWRIGHT_LIBCUDA";

/// The library names to try, in this order. The operating system's loader searches its directories
/// for them.
pub const NAMES: &[&str] = if cfg!(windows) {
    &["nvcuda.dll"]
} else {
    &[
        "libcuda.so.1",
        "/usr/lib/wsl/lib/libcuda.so.1",
        "libcuda.so",
    ]
};

/// A driver library, which stays open until the process exits.
///
/// A `Library` carries a promise: every function of its table is the function that `cuda.h`
/// declares under that name. [`Library::find`] relies on the operating system for it. Callers of
/// [`Library::open`] and [`Library::from_api`] make the promise themselves.
pub struct Library {
    api: Table,
    name: String,
    version: i32,
}

/// A leaked [`Api`] behind an untyped pointer.
///
/// Debug information describes the types of all fields, even behind references, in every object
/// file that mentions a handle. With the prototypes of the whole table, that took more time than
/// compiling the code of the driver crate.
struct Table(*const ());

// SAFETY: the pointer refers to a leaked `Api` of function pointers, which any thread may read.
unsafe impl Send for Table {}
// SAFETY: the `Api` is never written after it was leaked.
unsafe impl Sync for Table {}

impl Table {
    fn new(api: Api) -> Self {
        Self(std::ptr::from_ref(Box::leak(Box::new(api))).cast())
    }

    #[inline]
    fn get(&self) -> &'static Api {
        // SAFETY: `new` has created the pointer from an `Api` that is never freed.
        unsafe { &*self.0.cast() }
    }
}

/// A name that was tried, and the reason why it failed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Attempt {
    /// The name or path.
    pub name: String,
    /// The reason why it is not a usable driver.
    pub problem: Problem,
}

/// The reason why a library is not a usable driver.
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Problem {
    /// The operating system's loader could not open the library. Contains the loader's message.
    NotOpened(String),
    /// The library has no `cuDriverGetVersion`, so it is not a CUDA driver.
    NotADriver,
    /// The library is the toolkit's stub, which is only for linking.
    Stub,
    /// The driver did not report its version.
    NoVersion(CUresult),
    /// The driver is too old. Contains its version and the function that it lacks.
    TooOld(i32, MissingSymbol),
}

/// No driver could be opened. Lists every attempt.
#[derive(Clone, PartialEq, Eq)]
pub struct LoadError {
    /// The names that were tried, in order.
    pub attempts: Vec<Attempt>,
    /// Whether the name came from [`OVERRIDE`].
    pub overridden: bool,
}

impl Library {
    /// Returns the machine's driver: the library that [`OVERRIDE`] names if it is set, otherwise
    /// the first usable one of [`NAMES`].
    ///
    /// The search runs once. Later calls return the same result.
    ///
    /// # Errors
    /// Returns an error with the reason for each name.
    pub fn find() -> Result<&'static Self, LoadError> {
        static FOUND: OnceLock<Result<&'static Library, LoadError>> = OnceLock::new();
        let found = FOUND.get_or_init(|| match std::env::var_os(OVERRIDE) {
            Some(path) => Self::first_of([path.as_os_str()], true),
            None => Self::first_of(NAMES.iter().map(OsStr::new), false),
        });
        found.clone()
    }

    /// Opens the library at `path`, or the one that the loader finds under this name. If the
    /// library is open already, returns the same [`Library`].
    ///
    /// # Errors
    /// Returns an error if the library is not a usable driver.
    ///
    /// # Safety
    /// - Opening the library must be sound, because it runs the library's initializers.
    /// - Every function that the library exports under a name of the table must be the function
    ///   that `cuda.h` declares under that name.
    pub unsafe fn open(path: impl AsRef<OsStr>) -> Result<&'static Self, LoadError> {
        Self::first_of([path.as_ref()], false)
    }

    /// Returns a library whose functions are `api`, for example those of an emulator.
    ///
    /// `name` appears in messages. The version is the result of `cuDriverGetVersion`, or 0 if that
    /// fails. The library lives until the process exits.
    ///
    /// # Safety
    /// Every function of the table must do what `cuda.h` documents for its name.
    pub unsafe fn from_api(api: Api, name: &str) -> &'static Self {
        let mut version = 0;
        // SAFETY: the caller guarantees that the function is that of `cuda.h`, which writes one
        // integer.
        if unsafe { (api.cuDriverGetVersion)(&mut version) } != CUresult::SUCCESS {
            version = 0;
        }
        Box::leak(Box::new(Self {
            api: Table::new(api),
            name: name.into(),
            version,
        }))
    }

    /// Returns the table of functions.
    pub fn api(&self) -> &Api {
        self.api.get()
    }

    /// Returns the name under which the library was opened.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the newest CUDA version that the driver supports, as 1000 * major + 10 * minor.
    pub fn version(&self) -> i32 {
        self.version
    }

    fn first_of<'a>(
        names: impl IntoIterator<Item = &'a OsStr>,
        overridden: bool,
    ) -> Result<&'static Self, LoadError> {
        let mut attempts = Vec::new();
        for name in names {
            match open(name) {
                Ok(library) => return Ok(library),
                Err(problem) => attempts.push(Attempt {
                    name: name.to_string_lossy().into_owned(),
                    problem,
                }),
            }
        }
        Err(LoadError {
            attempts,
            overridden,
        })
    }
}

impl fmt::Debug for Library {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Library")
            .field("name", &self.name)
            .field("version", &self.version)
            .finish()
    }
}

/// The open libraries, each with the loader's handle.
static OPEN: Mutex<Vec<(usize, &'static Library)>> = Mutex::new(Vec::new());

/// Opens a library and resolves the table, unless that was done before.
fn open(name: &OsStr) -> Result<&'static Library, Problem> {
    // SAFETY: opening runs the library's initializers. The names are those of drivers, or the
    // caller of `Library::open` or the user who set the variable has chosen the library.
    let library = unsafe { libloading::Library::new(name) }
        .map_err(|e| Problem::NotOpened(with_source(&e)))?;
    let (handle, library) = kept(library);

    // The loader returns the same handle for a library that is open under another name. The lock
    // covers the search and the insertion, so that each library has one table.
    let mut all = OPEN.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some((_, known)) = all.iter().find(|(other, _)| *other == handle) {
        return Ok(known);
    }

    let version = version(&library)?;

    // SAFETY: the library exports the functions of `cuda.h` under their names, as above, and it is
    // never closed.
    let api = unsafe { Api::load(|symbol| address(&library, symbol)) };
    let api = api.map_err(|missing| Problem::TooOld(version, missing))?;
    let made = Box::leak(Box::new(Library {
        api: Table::new(api),
        name: name.to_string_lossy().into_owned(),
        version,
    }));
    all.push((handle, made));
    Ok(made)
}

/// Returns the loader's handle of a library, and the library in a form that is never closed.
fn kept(library: libloading::Library) -> (usize, ManuallyDrop<libloading::Library>) {
    let handle = os::Library::from(library).into_raw();
    // SAFETY: `into_raw` has just returned the handle, which is not used otherwise.
    let library = unsafe { os::Library::from_raw(handle) };
    (handle as usize, ManuallyDrop::new(library.into()))
}

/// Asks for the version before anything else. The result distinguishes a driver from a stub, and it
/// dates a driver that lacks functions.
fn version(library: &libloading::Library) -> Result<i32, Problem> {
    type Get = unsafe extern "C" fn(*mut c_int) -> CUresult;

    // SAFETY: the prototype is that of `cuda.h`, which is the same in every version.
    let get =
        unsafe { library.get::<Get>(c"cuDriverGetVersion") }.map_err(|_| Problem::NotADriver)?;
    let mut version = 0;

    // SAFETY: the call writes one integer and is allowed before `cuInit`.
    match unsafe { get(&mut version) } {
        CUresult::SUCCESS => Ok(version),
        CUresult::STUB_LIBRARY => Err(Problem::Stub),
        code => Err(Problem::NoVersion(code)),
    }
}

/// Returns the address of an exported symbol, or null if there is none.
fn address(library: &libloading::Library, symbol: &CStr) -> *const c_void {
    // SAFETY: the symbol is only converted to an address here.
    unsafe { library.get::<*const c_void>(symbol) }.map_or(std::ptr::null(), |found| *found)
}

/// Returns the loader's message, which is in the source of the error.
fn with_source(error: &libloading::Error) -> String {
    use std::error::Error;
    error
        .source()
        .map_or_else(|| error.to_string(), |source| source.to_string())
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotOpened(text) => write!(f, "{text}"),
            Self::NotADriver => write!(f, "not a CUDA driver: it has no cuDriverGetVersion"),
            Self::Stub => write!(f, "the CUDA toolkit's stub, not a driver"),
            Self::NoVersion(code) => write!(f, "cuDriverGetVersion returned {code}"),
            Self::TooOld(version, missing) => {
                write!(
                    f,
                    "a driver for CUDA {}.{}: {missing}",
                    version / 1000,
                    version % 1000 / 10
                )
            }
        }
    }
}

impl fmt::Display for LoadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "no CUDA driver")?;
        if self.overridden {
            write!(f, " where {OVERRIDE} points")?;
        }

        for Attempt { name, problem } in &self.attempts {
            let problem = problem.to_string();
            // The messages of some loaders begin with the name.
            let repeated = format!("{name}: ");
            let problem = problem.strip_prefix(&repeated).unwrap_or(&problem);
            write!(f, "\n  {name}: {problem}")?;
        }

        write!(
            f,
            "\ninstall the NVIDIA driver, or set {OVERRIDE} to libwarpwright_cuda_emu.so \
             (cargo build -p warpwright-cuda-emu) to use the emulator"
        )
    }
}

impl std::error::Error for Problem {}
impl std::error::Error for LoadError {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_lists_every_name_and_what_it_said() {
        let attempt = |name: &str, problem| Attempt {
            name: name.into(),
            problem,
        };
        let missing = MissingSymbol {
            name: "cuGraphAddKernelNode_v2",
            since: 12000,
        };
        let error = LoadError {
            attempts: vec![
                attempt(
                    "libcuda.so.1",
                    Problem::NotOpened("libcuda.so.1: no such file".into()),
                ),
                attempt("/opt/stubs/libcuda.so", Problem::Stub),
                attempt("libcuda.so", Problem::TooOld(11080, missing)),
            ],
            overridden: false,
        };
        assert_eq!(
            error.to_string(),
            "no CUDA driver\n  \
             libcuda.so.1: no such file\n  \
             /opt/stubs/libcuda.so: the CUDA toolkit's stub, not a driver\n  \
             libcuda.so: a driver for CUDA 11.8: the driver lacks cuGraphAddKernelNode_v2, which CUDA 12.0 introduced\n\
             install the NVIDIA driver, or set WARPWRIGHT_LIBCUDA to libwarpwright_cuda_emu.so \
             (cargo build -p warpwright-cuda-emu) to use the emulator"
        );
    }

    #[test]
    fn a_table_made_in_the_program_is_a_library() {
        // SAFETY: the functions of the empty table refuse every call, which `cuda.h` allows.
        let library = unsafe { Library::from_api(Api::empty(), "nothing") };
        assert_eq!((library.name(), library.version()), ("nothing", 0));
        assert!(library.api().cuLaunchKernelEx.is_none());
    }

    #[test]
    fn a_path_without_a_library_is_named() {
        // SAFETY: there is no such file.
        let error = unsafe { Library::open("/nowhere/libcuda.so.1") }.unwrap_err();
        assert_eq!(error.attempts.len(), 1);
        assert!(
            error.to_string().contains("/nowhere/libcuda.so.1: "),
            "{error}"
        );
    }
}
