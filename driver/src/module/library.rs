//! Libraries: code that is loaded once and used in any context.

use std::ffi::{CStr, CString, c_char};
use std::sync::{Arc, Mutex};

use driver_sys::{CUcontext, CUkernel, CUlibrary, CUmodule, CUresult};

use crate::device::{Context, Driver};
use crate::error::{Error, ModuleReason};
use crate::lifetime::active_captures::forbid;
use crate::lifetime::unpoisoned_lock::lock;
use crate::module::images::places;
use crate::module::loaded_module::{
    CompilerLogs, WeakModule, check_version, describe, with_options,
};
use crate::module::ptx::Header;
use crate::module::{Function, JitOptions, ListedKernel, Module, Parameter};

/// Code that does not belong to a context. It requires a driver for CUDA 12.0.
///
/// In each context a library appears as a [`Module`] with its [`Function`]s. Clones refer to the
/// same library. It is unloaded when its last clone and its modules are gone and their work is
/// complete.
///
/// ```
/// # use warpwright_driver::module::Library;
/// # use warpwright_driver::prelude::*;
/// # fn main() -> Result<(), Error> {
/// # let driver = Driver::from_library(warpwright_cuda_emu::library())?;
/// # let context = Context::new(&driver.device(0)?)?;
/// let library = Library::load(&driver, "
/// .version 7.0
/// .target sm_70
/// .address_size 64
/// .visible .entry seven(.param .u64 to) {
///     .reg .b64 %a;
///     ld.param.u64 %a, [to];
///     st.global.u32 [%a], 7;
///     ret;
/// }")?;
/// assert_eq!(library.kernels()?[0].name, "seven");
/// let params = [Parameter::buffer::<u32>("to", Access::Write)];
/// // SAFETY: the kernel writes only the first word of `to`.
/// let seven = unsafe { library.function(&context, "seven", &params) }?;
/// let stream = Stream::new(&context)?;
/// let to = Buffer::<u32>::zeroed(&context, 1)?;
/// stream.run_launch(&Launch::new(&seven, LaunchConfig::line(1, 1), vec![(&*to).into()])?)?;
/// assert_eq!(stream.read(&to)?, [7]);
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Library(Arc<LibraryInner>);

struct LibraryInner {
    driver: Driver,
    raw: CUlibrary,
    text: String,
    info: String,
    /// The modules in use, one per context. They store the settings of their kernels.
    modules: Mutex<Vec<WeakModule>>,
}

impl Library {
    /// Loads PTX for every device. The driver may compile it only when a context first uses it.
    ///
    /// # Errors
    /// Returns [`Error::Module`] if the PTX is too new for the driver, or with the messages of the
    /// compiler.
    pub fn load(driver: &Driver, text: &str) -> Result<Self, Error> {
        Self::load_with(driver, text, &JitOptions::default())
    }

    /// Loads PTX for every device with options of the compiler.
    ///
    /// # Errors
    /// Returns the errors of [`load`](Self::load).
    pub fn load_with(driver: &Driver, text: &str, options: &JitOptions) -> Result<Self, Error> {
        let fail = |reason| fault(driver, text, reason, CompilerLogs::default());
        check_version(driver, &Header::parse(text)).map_err(fail)?;
        let image = CString::new(text).map_err(|e| fail(ModuleReason::Nul(e.nul_position())))?;
        Self::loaded(driver, image.as_bytes_with_nul(), text, options)
    }

    /// Loads machine code: a cubin or a fatbin, as `ptxas` and `nvcc` write them.
    ///
    /// # Errors
    /// Returns [`Error::Module`] if the driver cannot load the code.
    ///
    /// # Safety
    /// `image` must be a complete and valid cubin or fatbin, because the driver trusts the lengths
    /// in it.
    pub unsafe fn load_image(driver: &Driver, image: &[u8]) -> Result<Self, Error> {
        Self::loaded(driver, image, "", &JitOptions::default())
    }

    fn loaded(
        driver: &Driver,
        image: &[u8],
        text: &str,
        options: &JitOptions,
    ) -> Result<Self, Error> {
        forbid("loading a library")?;
        let mut raw = CUlibrary::NULL;
        let mut logs = CompilerLogs::default();
        let code = image.as_ptr().cast();
        let null = std::ptr::null_mut();
        let nulls = std::ptr::null_mut();
        let result = with_options(options, &mut logs, |count, options, values| {
            // SAFETY: the image is PTX that ends with NUL, or machine code whose length the caller
            // of `load_image` guarantees. The driver copies it. The options outlive the call.
            unsafe {
                cu_optional!(
                    driver,
                    cuLibraryLoadData(&mut raw, code, options, values, count, null, nulls, 0)
                )
            }
        });
        result.map_err(|error| fault(driver, text, error.into(), logs.clone()))?;
        let modules = Mutex::default();
        Ok(Self(Arc::new(LibraryInner {
            driver: *driver,
            raw,
            text: text.to_string(),
            info: logs.info,
            modules,
        })))
    }

    /// Returns the driver.
    pub fn driver(&self) -> &Driver {
        &self.0.driver
    }

    /// Returns the PTX, or an empty string for machine code.
    pub fn text(&self) -> &str {
        &self.0.text
    }

    /// Returns the compiler's messages from when the library was loaded.
    pub fn log(&self) -> &str {
        &self.0.info
    }

    /// Returns the raw handle, which is valid while this value lives.
    pub fn raw(&self) -> CUlibrary {
        self.0.raw
    }

    /// Returns the kernels of the library.
    ///
    /// Drivers older than CUDA 12.4 cannot list kernels, so the names come from the PTX there.
    /// Parameters are listed only while a context is current on this thread (see
    /// [`Context::enter`]). The kernels of [`in_context`](Self::in_context) always list them.
    ///
    /// # Errors
    /// Returns an error if the driver cannot list the kernels.
    pub fn kernels(&self) -> Result<Vec<ListedKernel>, Error> {
        let driver = &self.0.driver;
        let mut count = 0;
        if driver.api().cuLibraryEnumerateKernels.is_none() {
            let named = |name: &&str| ListedKernel {
                name: (*name).to_string(),
                parameters: None,
            };
            return Ok(crate::module::ptx::entries(self.text())
                .iter()
                .map(named)
                .collect());
        }

        // SAFETY: `count` is a local variable that the driver may write. `self` keeps the library
        // loaded.
        unsafe { cu_optional!(driver, cuLibraryGetKernelCount(&mut count, self.0.raw)) }?;
        let mut kernels = vec![CUkernel::NULL; count as usize];
        let to = kernels.as_mut_ptr();

        // SAFETY: the array has `count` elements. `self` keeps the library loaded.
        unsafe { cu_optional!(driver, cuLibraryEnumerateKernels(to, count, self.0.raw)) }?;
        kernels
            .into_iter()
            .map(|kernel| self.listed(kernel))
            .collect()
    }

    fn listed(&self, kernel: CUkernel) -> Result<ListedKernel, Error> {
        let driver = &self.0.driver;
        let mut name = std::ptr::null::<c_char>();

        // SAFETY: `name` is a local variable that the driver may write. The kernel is of this
        // library.
        unsafe { cu_optional!(driver, cuKernelGetName(&mut name, kernel)) }?;

        // SAFETY: the driver returned a C string that lives as long as the library.
        let name = unsafe { CStr::from_ptr(name) }
            .to_string_lossy()
            .into_owned();
        let known = crate::module::ptx::param_count(self.text(), &name).unwrap_or(usize::MAX);

        // The driver reports parameters only while some context is current, and any context will
        // do.
        let mut current = CUcontext::NULL;

        // SAFETY: `current` is a local variable that the driver may write.
        unsafe { cu!(driver, cuCtxGetCurrent(&mut current)) }?;
        let param_info = driver
            .api()
            .cuKernelGetParamInfo
            .filter(|_| !current.is_null());
        let parameters = param_info.map(|info| {
            places(known, |index, offset, size| {
                // SAFETY: the driver may write both numbers. It returns an error beyond the last
                // parameter.
                let code = unsafe { info(kernel, index, offset, size) };
                if code == CUresult::INVALID_VALUE {
                    return None;
                }
                Some(driver.check("cuKernelGetParamInfo", code))
            })
        });
        Ok(ListedKernel {
            name,
            parameters: parameters.transpose()?,
        })
    }

    /// Returns the module that the library is in a context, with its kernels and global variables
    /// there.
    ///
    /// # Errors
    /// - [`Error::WrongContext`] if the context belongs to another driver.
    /// - [`Error::Module`] if the code does not run on the device.
    pub fn in_context(&self, context: &Context) -> Result<Module, Error> {
        forbid("loading a library into a context")?;
        let driver = &self.0.driver;
        if !std::ptr::eq(driver.api(), context.driver().api()) {
            let what = "a library".into();
            let theirs = driver.origin().into();
            return Err(Error::WrongContext {
                what,
                theirs,
                user: "the context".into(),
                ours: context.to_string(),
            });
        }

        // Declared before the guard, so that it is dropped after the guard. The destructor of a
        // last share of a module may use this library again.
        let known: Vec<Module>;
        let mut modules = lock(&self.0.modules);
        known = modules.iter().filter_map(WeakModule::upgrade).collect();
        if let Some(known) = known.iter().find(|module| module.context().same(context)) {
            return Ok(known.clone());
        }

        modules.retain(WeakModule::is_kept);
        let _current = context.enter()?;
        let mut raw = CUmodule::NULL;

        // SAFETY: `raw` is a local variable that the driver may write. `self` keeps the library
        // loaded.
        unsafe { cu_optional!(driver, cuLibraryGetModule(&mut raw, self.0.raw)) }.map_err(
            |error| {
                crate::module::loaded_module::fault(
                    context,
                    self.text(),
                    error.into(),
                    String::new(),
                )
            },
        )?;
        let module = Module::from_library(context, raw, self.text(), self.0.clone());
        modules.push(module.downgrade());
        Ok(module)
    }

    /// Returns a kernel of the library in a context. It combines [`in_context`](Self::in_context)
    /// and [`Module::function`].
    ///
    /// # Errors
    /// Returns the errors of [`in_context`](Self::in_context) and [`Module::function`].
    ///
    /// # Safety
    /// The caller must fulfill the obligations of [`Module::function`].
    pub unsafe fn function(
        &self,
        context: &Context,
        name: &str,
        params: &[Parameter],
    ) -> Result<Function, Error> {
        // SAFETY: the caller fulfills the same obligations.
        unsafe { self.in_context(context)?.function(name, params) }
    }
}

/// Returns the error of a library, which has no device.
fn fault(driver: &Driver, text: &str, reason: ModuleReason, logs: CompilerLogs) -> Error {
    let (major, minor) = driver.version();
    let place = format!("a library, driver for CUDA {major}.{minor}");
    Error::from(Box::new(describe(
        place,
        &Header::parse(text),
        text,
        reason,
        logs,
    )))
}

impl std::fmt::Debug for Library {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Library")
            .field(&crate::module::ptx::entries(self.text()))
            .finish()
    }
}

impl Drop for LibraryInner {
    /// Unloads the library. Its modules, which keep it, have waited for their work.
    fn drop(&mut self) {
        let driver = self.driver;
        let raw = self.raw;
        driver.gate().pass(move || {
            // SAFETY: this value owned the library. Its modules, which share it, are gone.
            if let Err(error) = unsafe { cu_optional!(driver, cuLibraryUnload(raw)) } {
                log_event!(warn, %error, "library not unloaded");
            }
        });
    }
}
