//! Finding and opening the driver's library.
//!
//! It is opened once and never closed: the driver keeps threads and exit handlers of its own.

use std::ffi::{CStr, OsStr, c_int, c_void};
use std::fmt;
use std::mem::ManuallyDrop;
use std::sync::{Mutex, OnceLock, PoisonError};

#[cfg(unix)]
use libloading::os::unix as os;
#[cfg(windows)]
use libloading::os::windows as os;

use crate::{Api, CUresult, MissingSymbol};

/// The variable whose value is tried instead of [`NAMES`].
pub const OVERRIDE: &str = "WARPWRIGHT_LIBCUDA";

/// The names tried, in order. The operating system's loader knows the folders.
pub const NAMES: &[&str] = if cfg!(windows) {
    &["nvcuda.dll"]
} else {
    &[
        "libcuda.so.1",
        "/usr/lib/wsl/lib/libcuda.so.1",
        "libcuda.so",
    ]
};

/// A driver library, open until the process ends.
///
/// A reference to one is a promise: every function of its table is the function that `cuda.h` declares under that
/// name, and stays so. [`Library::find`] takes the word of the operating system for it; who calls [`Library::open`] or
/// [`Library::of`] gives their own.
pub struct Library {
    api: Table,
    name: String,
    version: i32,
}

/// A leaked [`Api`], whose type does not show.
///
/// Debug information describes the types of all fields, behind references too, in every object file that mentions a
/// handle: with the prototypes of the whole table in there, it took more time than the code of the driver crate.
struct Table(*const ());

// SAFETY: the pointer is to an `Api`, which is only read, and which threads may share.
unsafe impl Send for Table {}
// SAFETY: as above.
unsafe impl Sync for Table {}

impl Table {
    fn new(api: Api) -> Self {
        Self(std::ptr::from_ref(Box::leak(Box::new(api))).cast())
    }

    #[inline]
    fn get(&self) -> &'static Api {
        // SAFETY: `new` made the pointer from an `Api` that is never freed.
        unsafe { &*self.0.cast() }
    }
}

/// One name that was tried, and what became of it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Attempt {
    /// The name or path.
    pub name: String,
    /// Why it is not a driver.
    pub problem: Problem,
}

/// Why a name did not lead to a driver.
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Problem {
    /// The operating system's loader refused; its text.
    NotOpened(String),
    /// The library has no `cuDriverGetVersion`, so it is something else.
    NotADriver,
    /// The toolkit's stub: it links programs and serves no call.
    Stub,
    /// The driver would not tell its version.
    NoVersion(CUresult),
    /// The driver is too old; its version, and the function it lacks.
    TooOld(i32, MissingSymbol),
}

/// No driver could be opened. Lists every attempt.
#[derive(Clone, PartialEq, Eq)]
pub struct LoadError {
    /// Every name tried, in order.
    pub attempts: Vec<Attempt>,
    /// Whether the names came from [`OVERRIDE`].
    pub overridden: bool,
}

impl Library {
    /// The machine's driver: the library that [`OVERRIDE`] names if it is set, else the first of [`NAMES`] that serves.
    /// Looked for once; every later call gives the same answer.
    ///
    /// # Errors
    /// What each name said.
    pub fn find() -> Result<&'static Self, LoadError> {
        static FOUND: OnceLock<Result<&'static Library, LoadError>> = OnceLock::new();
        let found = FOUND.get_or_init(|| match std::env::var_os(OVERRIDE) {
            Some(path) => Self::first_of([path.as_os_str()], true),
            None => Self::first_of(NAMES.iter().map(OsStr::new), false),
        });
        found.clone()
    }

    /// The library at `path`, or that the loader finds by that name. What the loader knows to be the same library is
    /// the same [`Library`].
    ///
    /// # Errors
    /// Why it is not a driver.
    ///
    /// # Safety
    /// The library has nothing against being opened, and what it exports under a name of the table is the function
    /// that `cuda.h` declares under that name.
    pub unsafe fn open(path: impl AsRef<OsStr>) -> Result<&'static Self, LoadError> {
        Self::first_of([path.as_ref()], false)
    }

    /// A driver whose functions are `api`, made in this program; `name` stands for it in messages. It lives as long as
    /// the process. Its version is what its `cuDriverGetVersion` says, 0 where that fails.
    ///
    /// # Safety
    /// Every function of the table does what `cuda.h` says of its name, for every caller that keeps its side.
    pub unsafe fn of(api: Api, name: &str) -> &'static Self {
        let mut version = 0;
        // SAFETY: the call writes one integer, by the caller's word.
        if unsafe { (api.cuDriverGetVersion)(&mut version) } != CUresult::SUCCESS {
            version = 0;
        }
        Box::leak(Box::new(Self {
            api: Table::new(api),
            name: name.into(),
            version,
        }))
    }

    /// Its functions.
    pub fn api(&self) -> &Api {
        self.api.get()
    }

    /// The name it was opened by.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The newest CUDA version it serves, 1000 * major + 10 * minor, as it said when it was opened.
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

/// The libraries that are open, each with the loader's handle of it.
static OPEN: Mutex<Vec<(usize, &'static Library)>> = Mutex::new(Vec::new());

/// Opens one library and resolves the table, unless that was done before.
fn open(name: &OsStr) -> Result<&'static Library, Problem> {
    // SAFETY: opening runs the library's initialisers; a library by these names is a driver, or what the user chose.
    let library = unsafe { libloading::Library::new(name) }
        .map_err(|e| Problem::NotOpened(with_source(&e)))?;
    let (handle, library) = kept(library);
    let mut all = OPEN.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some((_, known)) = all.iter().find(|(other, _)| *other == handle) {
        return Ok(known);
    }
    let version = version(&library)?;
    // SAFETY: the library exports the functions of `cuda.h` under their names, and is never closed.
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

/// The loader's handle of a library, and the library so that it is never closed.
fn kept(library: libloading::Library) -> (usize, ManuallyDrop<libloading::Library>) {
    let handle = os::Library::from(library).into_raw();
    // SAFETY: the handle was just taken out of a library.
    let library = unsafe { os::Library::from_raw(handle) };
    (handle as usize, ManuallyDrop::new(library.into()))
}

/// Asks for the version before anything else: the result tells a driver from a stub, and dates a driver that lacks symbols.
fn version(library: &libloading::Library) -> Result<i32, Problem> {
    type Get = unsafe extern "C" fn(*mut c_int) -> CUresult;
    // SAFETY: the prototype is that of `cuda.h`, the same in every version.
    let get =
        unsafe { library.get::<Get>(c"cuDriverGetVersion") }.map_err(|_| Problem::NotADriver)?;
    let mut version = 0;
    // SAFETY: the call writes one integer and may come before cuInit.
    match unsafe { get(&mut version) } {
        CUresult::SUCCESS => Ok(version),
        CUresult::STUB_LIBRARY => Err(Problem::Stub),
        code => Err(Problem::NoVersion(code)),
    }
}

/// The address of an exported symbol, or null.
fn address(library: &libloading::Library, symbol: &CStr) -> *const c_void {
    // SAFETY: the symbol is only converted to an address here.
    unsafe { library.get::<*const c_void>(symbol) }.map_or(std::ptr::null(), |found| *found)
}

/// The loader's own words are in the source of the error.
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
            write!(f, "\n  {name}: {problem}")?;
        }
        Ok(())
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
                attempt("libcuda.so.1", Problem::NotOpened("no such file".into())),
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
             libcuda.so: a driver for CUDA 11.8: the driver lacks cuGraphAddKernelNode_v2, which CUDA 12.0 introduced"
        );
    }

    #[test]
    fn a_table_made_in_the_program_is_a_library() {
        // SAFETY: the functions of the empty table refuse every call, which `cuda.h` allows.
        let library = unsafe { Library::of(Api::empty(), "nothing") };
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
