//! Modules from machine code or several PTX texts, and the contents of a module.

use std::ffi::{CStr, CString, c_char, c_void};

use driver_sys::{CUfunction, CUjit_option, CUjitInputType, CUlinkState, CUresult};

use crate::device::Context;
use crate::error::{DriverError, Error, ModuleReason};
use crate::lifetime::driver::trimmed;
use crate::memory::{Buffer, Element, View};
use crate::module::{JitOptions, Module};

/// The size of the linker's log buffer in bytes.
const LOG: usize = 16 << 10;

/// A kernel of a module or a library, as the driver lists it.
///
/// ```
/// # use warpwright_driver::prelude::*;
/// # const SCALE: &str = include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/src/scale.ptx"));
/// # fn main() -> Result<(), Error> {
/// # let context = Context::new(&Driver::from_library(warpwright_cuda_emu::library())?.device(0)?)?;
/// # let module = Module::load(&context, SCALE)?;
/// let kernels = module.kernels()?;
/// assert_eq!(kernels[0].parameters, Some(vec![(0, 4), (4, 4), (8, 8)])); // offsets and sizes of n, a, y
/// # Ok(())
/// # }
/// ```
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ListedKernel {
    /// The name of the kernel.
    pub name: String,
    /// The offset and the size of each parameter in bytes, or `None` if the driver does not report
    /// them.
    pub parameters: Option<Vec<(usize, usize)>>,
}

impl Module {
    /// Loads machine code: a cubin or a fatbin, as `ptxas` and `nvcc` write them.
    ///
    /// # Errors
    /// Returns [`Error::Module`] if the driver cannot load the code.
    ///
    /// # Safety
    /// `image` must be a complete and valid cubin or fatbin, because the driver trusts the lengths
    /// in it.
    pub unsafe fn load_image(context: &Context, image: &[u8]) -> Result<Self, Error> {
        Self::compiled(context, image, String::new(), &JitOptions::default())
    }

    /// Links several PTX texts into one module. A function that is declared `.extern` in one text
    /// is found in another.
    ///
    /// Each entry of `texts` consists of a name, which errors show, and the PTX.
    ///
    /// # Errors
    /// Returns [`Error::Module`] with the log of the linker.
    pub fn link(context: &Context, texts: &[(&str, &str)]) -> Result<Self, Error> {
        let all: String = texts
            .iter()
            .map(|(_, text)| *text)
            .collect::<Vec<_>>()
            .join("\n");
        let linker = Linker::new(context, &all)?;
        texts
            .iter()
            .try_for_each(|(name, text)| linker.add(name, text))?;
        let image = linker.complete()?;
        Self::compiled(context, &image, all, &JitOptions::default())
    }

    /// Returns the kernels of the module.
    ///
    /// Drivers older than CUDA 12.4 cannot list kernels, so the names come from the PTX there.
    ///
    /// # Errors
    /// Returns an error if the driver cannot list the kernels.
    pub fn kernels(&self) -> Result<Vec<ListedKernel>, Error> {
        let driver = self.context().driver();
        let api = driver.api();
        let _current = self.context().enter()?;
        if api.cuModuleGetFunctionCount.is_none() || api.cuFuncGetName.is_none() {
            let named = |name: &&str| ListedKernel {
                name: (*name).to_string(),
                parameters: None,
            };
            return Ok(crate::module::ptx::entries(self.text())
                .iter()
                .map(named)
                .collect());
        }

        let mut count = 0;

        // SAFETY: `count` is a local variable that the driver may write. `self` keeps the module
        // loaded.
        unsafe { cu_optional!(driver, cuModuleGetFunctionCount(&mut count, self.raw())) }?;
        let mut functions = vec![CUfunction::NULL; count as usize];
        let to = functions.as_mut_ptr();

        // SAFETY: the array has `count` elements. `self` keeps the module loaded.
        unsafe { cu_optional!(driver, cuModuleEnumerateFunctions(to, count, self.raw())) }?;
        functions
            .into_iter()
            .map(|function| self.listed(function))
            .collect()
    }

    fn listed(&self, function: CUfunction) -> Result<ListedKernel, Error> {
        let driver = self.context().driver();
        let mut name = std::ptr::null::<c_char>();

        // SAFETY: `name` is a local variable that the driver may write. The function is of this
        // module.
        unsafe { cu_optional!(driver, cuFuncGetName(&mut name, function)) }?;

        // SAFETY: the driver returned a C string that lives as long as the module.
        let name = unsafe { CStr::from_ptr(name) }
            .to_string_lossy()
            .into_owned();
        let known = crate::module::ptx::param_count(self.text(), &name).unwrap_or(usize::MAX);
        let parameters = driver.api().cuFuncGetParamInfo.map(|info| {
            places(known, |index, offset, size| {
                // SAFETY: the driver may write both numbers. It returns an error beyond the last
                // parameter.
                let code = unsafe { info(function, index, offset, size) };
                if code == CUresult::INVALID_VALUE {
                    return None;
                }
                Some(driver.check("cuFuncGetParamInfo", code))
            })
        });
        Ok(ListedKernel {
            name,
            parameters: parameters.transpose()?,
        })
    }

    /// Returns a global variable of the module as a view of all elements of type `T` that it
    /// contains.
    ///
    /// ```
    /// # use warpwright_driver::prelude::*;
    /// # fn main() -> Result<(), Error> {
    /// # let driver = Driver::from_library(warpwright_cuda_emu::library())?;
    /// # let context = Context::new(&driver.device(0)?)?;
    /// let ptx = ".version 7.0\n.target sm_70\n.address_size 64\n.visible .global .align 4 .u32 table[2] = {7, 8};\n";
    /// let module = Module::load(&context, ptx)?;
    /// let table = module.global::<u32>("table")?;
    /// assert_eq!(table.to_vec()?, [7, 8]);
    /// table.write(&[1, 2])?;
    /// assert_eq!(table.to_vec()?, [1, 2]);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Returns [`ModuleReason::NoGlobal`] if there is no such variable, or [`Error::Cast`] if its
    /// size is not a multiple of `T`.
    pub fn global<T: Element>(&self, name: &str) -> Result<View<T>, Error> {
        let driver = self.context().driver();
        let missing = || {
            self.fault(ModuleReason::NoGlobal {
                name: name.to_string(),
            })
        };
        let c_name = CString::new(name).map_err(|_| missing())?;
        let mut address = 0;
        let mut bytes = 0;
        let _current = self.context().enter()?;

        // SAFETY: both numbers are local variables that the driver may write. `self` keeps the
        // module loaded, and the name is a C string.
        let found = unsafe {
            cu_optional!(
                driver,
                cuModuleGetGlobal_v2(&mut address, &mut bytes, self.raw(), c_name.as_ptr())
            )
        };
        match found {
            Err(error) if error.code == CUresult::NOT_FOUND => return Err(missing()),
            other => other?,
        }

        // SAFETY: the variable is part of the module, and the buffer keeps the module loaded.
        let all = unsafe { Buffer::<u8>::from_raw(self.context(), address, bytes, self.clone()) };
        all.labelled(name).cast()
    }
}

/// Returns the offset and size of at most `most` parameters.
///
/// `ask` writes them and returns `None` beyond the last parameter.
pub(crate) fn places(
    most: usize,
    ask: impl Fn(usize, &mut usize, &mut usize) -> Option<Result<(), DriverError>>,
) -> Result<Vec<(usize, usize)>, DriverError> {
    let mut places = Vec::new();
    for index in 0..most {
        let mut offset = 0;
        let mut size = 0;
        let Some(asked) = ask(index, &mut offset, &mut size) else {
            break;
        };
        asked?;
        places.push((offset, size));
    }
    Ok(places)
}

/// A linker of the driver.
struct Linker<'c> {
    context: &'c Context,
    raw: CUlinkState,
    /// The joined texts, for error messages.
    all: &'c str,
    /// The log buffer, which the driver may write while the linker lives.
    log: Box<[u8; LOG]>,
}

impl<'c> Linker<'c> {
    fn new(context: &'c Context, all: &'c str) -> Result<Self, Error> {
        let mut linker = Self {
            context,
            raw: CUlinkState::NULL,
            all,
            log: Box::new([0; LOG]),
        };
        let mut options = [
            CUjit_option::ERROR_LOG_BUFFER,
            CUjit_option::ERROR_LOG_BUFFER_SIZE_BYTES,
        ];
        let log: *mut c_void = linker.log.as_mut_ptr().cast();
        let mut values = [log, std::ptr::without_provenance_mut(LOG)];
        let options = options.as_mut_ptr();
        let values = values.as_mut_ptr();
        let _current = context.enter()?;
        let driver = context.driver();

        // SAFETY: `linker.raw` is a field that the driver may write. The log buffer is boxed and
        // lives until the linker is destroyed.
        unsafe { cu_optional!(driver, cuLinkCreate_v2(2, options, values, &mut linker.raw)) }?;
        Ok(linker)
    }

    fn add(&self, name: &str, text: &str) -> Result<(), Error> {
        let nul = |error: std::ffi::NulError| self.fault(ModuleReason::Nul(error.nul_position()));
        let name = CString::new(name).map_err(nul)?;
        let text = CString::new(text).map_err(nul)?;
        let bytes = text.as_bytes_with_nul();
        let data = bytes.as_ptr().cast_mut().cast();
        let size = bytes.len();
        let null = std::ptr::null_mut();
        let nulls = std::ptr::null_mut();
        let _current = self.context.enter()?;
        let driver = self.context.driver();

        // SAFETY: the text ends with NUL and lives until the call returns, in which the driver
        // copies it.
        let added = unsafe {
            let kind = CUjitInputType::PTX;
            cu_optional!(
                driver,
                cuLinkAddData_v2(self.raw, kind, data, size, name.as_ptr(), 0, null, nulls)
            )
        };
        added.map_err(|error| self.fault(error.into()))
    }

    /// Completes the linking and returns the machine code.
    fn complete(self) -> Result<Vec<u8>, Error> {
        let mut image = std::ptr::null_mut();
        let mut size = 0;
        let _current = self.context.enter()?;
        let driver = self.context.driver();

        // SAFETY: both are local variables that the driver may write.
        let linked =
            unsafe { cu_optional!(driver, cuLinkComplete(self.raw, &mut image, &mut size)) };
        linked.map_err(|error| self.fault(error.into()))?;

        // SAFETY: the driver returned an image of `size` bytes, which lives until the linker is
        // destroyed at the end of this function.
        Ok(unsafe { std::slice::from_raw_parts(image.cast::<u8>(), size) }.to_vec())
    }

    fn fault(&self, reason: ModuleReason) -> Error {
        crate::module::loaded_module::fault(self.context, self.all, reason, trimmed(&*self.log))
    }
}

impl Drop for Linker<'_> {
    fn drop(&mut self) {
        let Ok(_current) = self.context.enter() else {
            return;
        };
        if self.raw.is_null() {
            return;
        }

        let driver = self.context.driver();

        // SAFETY: this value owned the linker, which is not used afterwards.
        if let Err(error) = unsafe { cu_optional!(driver, cuLinkDestroy(self.raw)) } {
            log_event!(warn, %error, "linker not destroyed");
        }
    }
}
