//! Errors of modules: why one did not load.

use std::fmt;

use crate::DriverError;

/// A module that did not load, with all that is known about why.
///
/// ```
/// # use warpwright_driver::*;
/// # fn main() -> Result<(), Error> {
/// # let context = Context::new(&Driver::of(warpwright_cuda_emu::library())?.device(0)?)?;
/// let text = ".version 7.0\n.target sm_70\n.address_size 64\n.visible .entry k() {\n    bad.u32;\n}\n";
/// let Err(Error::Module(error)) = Module::load(&context, text) else { panic!("it is no instruction") };
/// assert_eq!(error.line.as_ref().map(|line| line.number), Some(5));
/// println!("{error}"); // the line, what the compiler wrote, the device, the driver's version
/// # Ok(())
/// # }
/// ```
pub struct ModuleError {
    /// What is wrong.
    pub reason: ModuleReason,
    /// The driver's error log.
    pub log: String,
    /// The driver's information log.
    pub info: String,
    /// The PTX line that the log names.
    pub line: Option<PtxLine>,
    /// `.version` and `.target` of the text, as far as it has them.
    pub header: String,
    /// The device's name and compute capability, and the driver's version.
    pub device: String,
}

/// Why a module did not load.
///
/// ```
/// # use warpwright_driver::*;
/// # const SCALE: &str = include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/src/scale.ptx"));
/// # fn main() -> Result<(), Error> {
/// # let context = Context::new(&Driver::of(warpwright_cuda_emu::library())?.device(0)?)?;
/// # let module = Module::load(&context, SCALE)?;
/// // SAFETY: it is refused.
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
    /// The driver refused.
    Driver(DriverError),
    /// A NUL inside the text would end it early.
    Nul(usize),
    /// The text is newer than the driver.
    Version {
        /// `.version` of the text.
        ptx: String,
        /// The first CUDA version that loads it.
        needed: String,
        /// What the driver serves.
        driver: String,
    },
    /// The text is for another chip.
    Target {
        /// `.target` of the text.
        target: String,
        /// The device's compute capability.
        device: String,
    },
    /// The module has no global variable of that name.
    NoGlobal {
        /// The name asked for.
        name: String,
    },
    /// The module has no kernel of that name.
    NoFunction {
        /// The name asked for.
        name: String,
        /// The names in the text.
        entries: String,
    },
}

/// A line of PTX and where it came from.
///
/// ```
/// # use warpwright_driver::*;
/// # fn main() -> Result<(), Error> {
/// # let context = Context::new(&Driver::of(warpwright_cuda_emu::library())?.device(0)?)?;
/// let text = ".version 7.0\n.target sm_70\n.address_size 64\n.visible .entry k() {\n    bad.u32;\n}\n";
/// let Err(Error::Module(error)) = Module::load(&context, text) else { panic!("it is no instruction") };
/// let line = error.line.as_ref().expect("the log names one");
/// assert_eq!((line.number, line.text.as_str()), (5, "bad.u32;"));
/// assert_eq!(line.source, None); // the text has no `.loc`
/// # Ok(())
/// # }
/// ```
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PtxLine {
    /// Its number, from 1.
    pub number: usize,
    /// Its text, trimmed.
    pub text: String,
    /// `file:line` of the source, where the text carries `.loc`.
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
        // A driver that keeps a log tells in it what the compiler said.
        let told = if let ModuleReason::Driver(error) = &self.reason {
            &*error.log
        } else {
            ""
        };
        let lines = self.log.lines().chain(self.info.lines());
        lines
            .filter(|line| !told.contains(line.trim()))
            .try_for_each(|line| write!(f, "\n{line}"))
    }
}

impl std::error::Error for ModuleError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.reason)
    }
}
