//! The error of a module that did not load.

use std::fmt;

use crate::error::DriverError;

/// A module that did not load, with everything that is known about the reason.
///
/// ```
/// # use warpwright_driver::prelude::*;
/// # fn main() -> Result<(), Error> {
/// # let context = Context::new(&Driver::from_library(warpwright_cuda_emu::library())?.device(0)?)?;
/// let text = ".version 7.0\n.target sm_70\n.address_size 64\n.visible .entry k() {\n    bad.u32;\n}\n";
/// let Err(Error::Module(error)) = Module::load(&context, text) else { panic!("it is no instruction") };
/// assert_eq!(error.line.as_ref().map(|line| line.number), Some(5));
/// println!("{error}"); // the line, the compiler's message, the device, the driver's version
/// # Ok(())
/// # }
/// ```
#[non_exhaustive]
pub struct ModuleError {
    /// The reason why the module did not load.
    pub reason: ModuleReason,
    /// The error log of the driver's compiler.
    pub log: String,
    /// The information log of the driver's compiler.
    pub info: String,
    /// The line of PTX that the log names.
    pub line: Option<PtxLine>,
    /// The `.version` and `.target` of the PTX, as far as it contains them.
    pub header: String,
    /// The name and the compute capability of the device, and the version of the driver.
    pub device: String,
}

/// The reason why a module did not load.
///
/// ```
/// # use warpwright_driver::error::ModuleReason;
/// # use warpwright_driver::prelude::*;
/// # const SCALE: &str = include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/src/scale.ptx"));
/// # fn main() -> Result<(), Error> {
/// # let context = Context::new(&Driver::from_library(warpwright_cuda_emu::library())?.device(0)?)?;
/// # let module = Module::load(&context, SCALE)?;
/// // SAFETY: the call returns an error.
/// match unsafe { module.function("scaled", &[]) } {
///     Err(Error::Module(error)) => match &error.reason {
///         ModuleReason::NoFunction { name, entries } => println!("{name} is none of {entries}"),
///         other => panic!("{other}"),
///     },
///     other => panic!("{other:?}"),
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum ModuleReason {
    /// The driver returned an error.
    Driver(DriverError),
    /// The PTX contains a NUL at this byte, where the driver would stop reading.
    Nul(usize),
    /// The PTX version is newer than the driver.
    Version {
        /// The `.version` of the PTX.
        ptx: String,
        /// The first CUDA version that loads it.
        needed: String,
        /// The CUDA version that the driver supports.
        driver: String,
    },
    /// The PTX is for another architecture.
    Target {
        /// The `.target` of the PTX.
        target: String,
        /// The compute capability of the device.
        device: String,
    },
    /// The module has no global variable with this name.
    NoGlobal {
        /// The requested name of the variable.
        name: String,
    },
    /// The module has no kernel with this name.
    NoFunction {
        /// The requested name of the kernel.
        name: String,
        /// The names of the kernels in the PTX.
        entries: String,
    },
}

/// A line of PTX and the source line it was generated from.
///
/// ```
/// # use warpwright_driver::prelude::*;
/// # fn main() -> Result<(), Error> {
/// # let context = Context::new(&Driver::from_library(warpwright_cuda_emu::library())?.device(0)?)?;
/// let text = ".version 7.0\n.target sm_70\n.address_size 64\n.visible .entry k() {\n    bad.u32;\n}\n";
/// let Err(Error::Module(error)) = Module::load(&context, text) else { panic!("it is no instruction") };
/// let line = error.line.as_ref().expect("the log names one");
/// assert_eq!((line.number, line.text.as_str()), (5, "bad.u32;"));
/// assert_eq!(line.source, None); // the PTX has no `.loc`
/// # Ok(())
/// # }
/// ```
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct PtxLine {
    /// The line number, from 1.
    pub number: usize,
    /// The text of the line, trimmed.
    pub text: String,
    /// The source as `file:line`, if the PTX contains `.loc` directives.
    pub source: Option<String>,
}

impl fmt::Display for ModuleError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "module: {} [{}; {}]",
            self.reason, self.header, self.device
        )?;
        if let Some(line) = &self.line {
            write!(f, "\n  line {}: {}", line.number, line.text)?;
            if let Some(source) = &line.source {
                write!(f, "\n  from {source}")?;
            }
        }

        // A driver that keeps a log repeats the compiler's messages there. `reason` has printed
        // that log already, so its lines are left out here.
        let printed = if let ModuleReason::Driver(error) = &self.reason {
            &*error.log
        } else {
            ""
        };
        let lines = self.log.lines().chain(self.info.lines());
        lines
            .filter(|line| !printed.contains(line.trim()))
            .try_for_each(|line| write!(f, "\n{line}"))
    }
}

impl std::error::Error for ModuleError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.reason)
    }
}
