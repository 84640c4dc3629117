//! Options of the driver's PTX compiler.

use std::ffi::c_void;

use driver_sys::CUjit_option;

/// Options for the driver's PTX compiler. Unset options keep the driver's default.
///
/// ```
/// # use warpwright_driver::module::JitOptions;
/// # use warpwright_driver::prelude::*;
/// # const SCALE: &str = include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/src/scale.ptx"));
/// # fn main() -> Result<(), Error> {
/// # let context = Context::new(&Driver::from_library(warpwright_cuda_emu::library())?.device(0)?)?;
/// let module = Module::load_with(&context, SCALE, &JitOptions::default().max_registers(32))?;
/// assert_eq!(module.kernels()?[0].name, "scale");
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub struct JitOptions {
    /// The largest number of registers per thread.
    pub max_registers: Option<u32>,
    /// The optimization level, from 0 (none) to 4 (the default).
    pub optimization: Option<u32>,
    /// Whether to generate debug information, which makes the code slower.
    pub debug_info: bool,
    /// Whether to generate line information for profilers.
    pub line_info: bool,
}

impl JitOptions {
    /// Sets the largest number of registers per thread.
    #[must_use]
    pub const fn max_registers(self, registers: u32) -> Self {
        Self {
            max_registers: Some(registers),
            ..self
        }
    }

    /// Sets the optimization level, from 0 to 4.
    #[must_use]
    pub const fn optimization(self, level: u32) -> Self {
        Self {
            optimization: Some(level),
            ..self
        }
    }

    /// Generates debug information.
    #[must_use]
    pub const fn debug_info(self) -> Self {
        Self {
            debug_info: true,
            ..self
        }
    }

    /// Generates line information for profilers.
    #[must_use]
    pub const fn line_info(self) -> Self {
        Self {
            line_info: true,
            ..self
        }
    }

    /// Returns the options and their values as the driver takes them.
    pub(crate) fn pairs(&self) -> Vec<(CUjit_option, *mut c_void)> {
        // The driver takes numbers in the place of pointers.
        let number = |n: u32| std::ptr::without_provenance_mut(n as usize);
        let mut pairs = Vec::new();
        if let Some(registers) = self.max_registers {
            pairs.push((CUjit_option::MAX_REGISTERS, number(registers)));
        }
        if let Some(level) = self.optimization {
            pairs.push((CUjit_option::OPTIMIZATION_LEVEL, number(level)));
        }
        if self.debug_info {
            pairs.push((CUjit_option::GENERATE_DEBUG_INFO, number(1)));
        }
        if self.line_info {
            pairs.push((CUjit_option::GENERATE_LINE_INFO, number(1)));
        }

        pairs
    }
}
