//! Libraries: code that is loaded once and used in any context.

use std::ffi::{CStr, CString, c_char};
use std::sync::{Arc, Mutex};

use driver_sys::{CUcontext, CUkernel, CUlibrary, CUmodule, CUresult};

use crate::image::{JitOptions, places};
use crate::lock::lock;
use crate::module::{Logs, WeakModule, check_version, describe, with_options};
use crate::module_error::ModuleReason;
use crate::ptx::Header;
use crate::regions::forbid;
use crate::{Context, Driver, Error, Function, ListedKernel, Module, Parameter};

/// Code that belongs to no context, of drivers for CUDA 12.0 and later. In each context in which it is used it is a
/// [`Module`], and so its kernels are [`Function`]s. Clones share it; it is unloaded when it and those are gone and their
/// work is done.
///
/// ```
/// # use warpwright_driver::*;
/// # fn main() -> Result<(), Error> {
/// # let driver = Driver::of(warpwright_cuda_emu::library())?;
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
/// // SAFETY: the kernel writes the first word of `to`, and no more.
/// let seven = unsafe { library.function(&context, "seven", &params) }?;
/// let (stream, to) = (Stream::new(&context)?, Buffer::<u32>::zeroed(&context, 1)?);
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
    /// The modules that somebody has, one a context: what is asked of a kernel is known there.
    modules: Mutex<Vec<WeakModule>>,
}

impl Library {
    /// Takes PTX for every device. The driver may compile it when it is first used in a context.
    ///
    /// # Errors
    /// [`Error::Module`]: text that the driver cannot know, before it is asked; what the compiler says, after.
    pub fn load(driver: &Driver, text: &str) -> Result<Self, Error> {
        Self::load_with(driver, text, &JitOptions::default())
    }

    /// The same with options of the compiler.
    ///
    /// # Errors
    /// As [`load`](Self::load).
    pub fn load_with(driver: &Driver, text: &str, options: &JitOptions) -> Result<Self, Error> {
        let fail = |reason| fault(driver, text, reason, Logs::default());
        check_version(driver, &Header::of(text)).map_err(fail)?;
        let image = CString::new(text).map_err(|e| fail(ModuleReason::Nul(e.nul_position())))?;
        Self::loaded(driver, image.as_bytes_with_nul(), text, options)
    }

    /// Loads machine code: a cubin or a fatbin, as `ptxas` and `nvcc` write them.
    ///
    /// # Errors
    /// [`Error::Module`] with what the driver says.
    ///
    /// # Safety
    /// The bytes are such an image, whole: the driver believes the lengths that it finds in it.
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
        let (mut raw, mut logs, code) = (CUlibrary::NULL, Logs::default(), image.as_ptr().cast());
        let (null, nulls) = (std::ptr::null_mut(), std::ptr::null_mut());
        let result = with_options(options, &mut logs, |count, options, values| {
            // SAFETY: the image ends with NUL or says where it ends, and is copied; the options outlive the call.
            unsafe {
                cu_if_there!(
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

    /// Its driver.
    pub fn driver(&self) -> &Driver {
        &self.0.driver
    }

    /// The PTX; empty for machine code.
    pub fn text(&self) -> &str {
        &self.0.text
    }

    /// What the compiler reported when the library was loaded.
    pub fn log(&self) -> &str {
        &self.0.info
    }

    /// The raw handle. It is valid for as long as this lives.
    pub fn raw(&self) -> CUlibrary {
        self.0.raw
    }

    /// The kernels that the driver finds in it. Drivers for less than CUDA 12.4 list none, and there the names come
    /// from the PTX. Parameters are told where a context is current on this thread ([`Context::enter`]), and in the
    /// kernels of [`in_context`](Self::in_context).
    ///
    /// # Errors
    /// What the driver refuses.
    pub fn kernels(&self) -> Result<Vec<ListedKernel>, Error> {
        let (driver, mut count) = (&self.0.driver, 0);
        if driver.api().cuLibraryEnumerateKernels.is_none() {
            let named = |name: &&str| ListedKernel {
                name: (*name).to_string(),
                parameters: None,
            };
            return Ok(crate::ptx::entries(self.text()).iter().map(named).collect());
        }
        // SAFETY: `count` is ours to write, and the library is loaded.
        unsafe { cu_if_there!(driver, cuLibraryGetKernelCount(&mut count, self.0.raw)) }?;
        let mut kernels = vec![CUkernel::NULL; count as usize];
        let to = kernels.as_mut_ptr();
        // SAFETY: the array has room for that many.
        unsafe { cu_if_there!(driver, cuLibraryEnumerateKernels(to, count, self.0.raw)) }?;
        kernels
            .into_iter()
            .map(|kernel| self.listed(kernel))
            .collect()
    }

    fn listed(&self, kernel: CUkernel) -> Result<ListedKernel, Error> {
        let (driver, mut name) = (&self.0.driver, std::ptr::null::<c_char>());
        // SAFETY: `name` is ours to write, and the kernel is of the loaded library.
        unsafe { cu_if_there!(driver, cuKernelGetName(&mut name, kernel)) }?;
        // SAFETY: the driver's name is a C string that lives as long as the library.
        let name = unsafe { CStr::from_ptr(name) }
            .to_string_lossy()
            .into_owned();
        let known = crate::ptx::param_count(self.text(), &name).unwrap_or(usize::MAX);
        // The driver tells parameters in a context only, whichever it is.
        let mut current = CUcontext::NULL;
        // SAFETY: the handle is ours to write.
        unsafe { cu!(driver, cuCtxGetCurrent(&mut current)) }?;
        let told = driver
            .api()
            .cuKernelGetParamInfo
            .filter(|_| !current.is_null());
        let parameters = told.map(|info| {
            places(known, |index, offset, size| {
                // SAFETY: both numbers are ours to write, and past the last parameter the call refuses.
                let code = unsafe { info(kernel, index, offset, size) };
                (code != CUresult::INVALID_VALUE)
                    .then(|| driver.check("cuKernelGetParamInfo", code))
            })
        });
        Ok(ListedKernel {
            name,
            parameters: parameters.transpose()?,
        })
    }

    /// What it is in a context: its kernels and variables there.
    ///
    /// # Errors
    /// A context of another driver; or what the driver refuses, such as code that does not run on the device
    /// ([`Error::Module`]).
    pub fn in_context(&self, context: &Context) -> Result<Module, Error> {
        forbid("loading a library into a context")?;
        let driver = &self.0.driver;
        if !std::ptr::eq(driver.api(), context.driver().api()) {
            let (what, theirs) = ("a library".into(), driver.origin().into());
            return Err(Error::WrongContext {
                what,
                theirs,
                user: "the context".into(),
                ours: context.to_string(),
            });
        }
        // Dropped after the lock: what goes with the last share of a module may come back here.
        let known: Vec<Module>;
        let mut modules = lock(&self.0.modules);
        known = modules.iter().filter_map(WeakModule::upgrade).collect();
        if let Some(known) = known.iter().find(|module| module.context().same(context)) {
            return Ok(known.clone());
        }
        modules.retain(WeakModule::is_kept);
        let (_current, mut raw) = (context.enter()?, CUmodule::NULL);
        // SAFETY: `raw` is ours to write, and the library is loaded.
        unsafe { cu_if_there!(driver, cuLibraryGetModule(&mut raw, self.0.raw)) }.map_err(
            |error| crate::module::fault(context, self.text(), error.into(), String::new()),
        )?;
        let module = Module::of_library(context, raw, self.text(), self.0.clone());
        modules.push(module.downgrade());
        Ok(module)
    }

    /// A kernel of it in a context: short for [`in_context`](Self::in_context) and [`Module::function`].
    ///
    /// # Errors
    /// As both.
    ///
    /// # Safety
    /// As [`Module::function`].
    pub unsafe fn function(
        &self,
        context: &Context,
        name: &str,
        params: &[Parameter],
    ) -> Result<Function, Error> {
        // SAFETY: the caller vouches for the kernel.
        unsafe { self.in_context(context)?.function(name, params) }
    }
}

/// The error of a library, which has no device.
fn fault(driver: &Driver, text: &str, reason: ModuleReason, logs: Logs) -> Error {
    let (major, minor) = driver.version();
    let place = format!("a library, driver for CUDA {major}.{minor}");
    Error::from(Box::new(describe(
        place,
        &Header::of(text),
        text,
        reason,
        logs,
    )))
}

impl std::fmt::Debug for Library {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Library")
            .field(&crate::ptx::entries(self.text()))
            .finish()
    }
}

impl Drop for LibraryInner {
    /// Modules of it, which name it, waited for their work.
    fn drop(&mut self) {
        let (driver, raw) = (self.driver, self.raw);
        driver.gate().pass(move || {
            // SAFETY: the library was this one's, and nothing of it is left.
            if let Err(error) = unsafe { cu_if_there!(driver, cuLibraryUnload(raw)) } {
                tell!(warn, %error, "library not unloaded");
            }
        });
    }
}
