//! Modules: code that the driver has compiled for a context.

use std::any::Any;
use std::ffi::{CString, c_void};
use std::sync::atomic::AtomicU32;
use std::sync::{Arc, Mutex, Weak};

use driver_sys::{CUfunction, CUjit_option, CUmodule};

use crate::device::{Context, Driver};
use crate::error::{DriverError, Error, ModuleError, ModuleReason};
use crate::lifetime::active_captures::forbid;
use crate::lifetime::deferred_free::DeferredFree;
use crate::lifetime::driver::trimmed;
use crate::lifetime::host_functions::ProgramObject;
use crate::lifetime::unpoisoned_lock::lock;
use crate::module::ptx::Header;
use crate::module::{JitOptions, ptx};

/// The size of each log buffer of the compiler in bytes.
const LOG: usize = 16 << 10;

/// Compiled PTX or machine code in a context. Clones refer to the same module.
///
/// ```
/// # use warpwright_driver::prelude::*;
/// # const SCALE: &str = include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/src/scale.ptx"));
/// # kernel! { struct Scale = "scale"(n: u32, a: f32, y: &mut [f32]); }
/// # fn main() -> Result<(), Error> {
/// # let context = Context::new(&Driver::from_library(warpwright_cuda_emu::library())?.device(0)?)?;
/// # let stream = Stream::new(&context)?;
/// let module = Module::load(&context, SCALE)?;
/// // SAFETY: the kernel stays below `n`, and multiplies each element by `a`.
/// let scale = unsafe { Scale::load(&module) }?;
/// let y = Buffer::from_slice(&context, &[1.0, 2.0, 3.0])?;
/// scale.launch(&stream, LaunchConfig::line(1, 128), 3, 10.0, &y)?;
/// assert_eq!(stream.read(&y)?, [10.0, 20.0, 30.0]);
/// println!("{}", module.log()); // registers, spills, shared memory
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Module(Arc<ModuleInner>);

struct ModuleInner {
    context: Context,
    raw: CUmodule,
    loaded: Loaded,
    text: String,
    info: String,
    /// The settings of each kernel by handle. Two [`Function`](crate::module::Function)s of one
    /// kernel share them, because the driver keeps the settings per kernel.
    settings: Mutex<Vec<(CUfunction, Arc<KernelSettings>)>>,
}

/// The origin of a module, which determines how it is unloaded.
enum Loaded {
    /// Loaded by this crate.
    Here,
    /// Loaded elsewhere and not unloaded here.
    Elsewhere,
    /// Part of a library, which is kept alive.
    ByLibrary(Arc<dyn Any + Send + Sync>),
}

/// A module that is not kept alive.
#[derive(Clone)]
pub(crate) struct WeakModule(Weak<ModuleInner>);

impl WeakModule {
    /// Returns the module if it is still alive.
    pub(crate) fn upgrade(&self) -> Option<Module> {
        self.0.upgrade().map(Module)
    }

    /// Returns true if the module is still alive.
    pub(crate) fn is_kept(&self) -> bool {
        self.0.strong_count() > 0
    }
}

impl std::fmt::Debug for Module {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Module")
            .field(&ptx::entries(&self.0.text))
            .finish()
    }
}

/// The settings of a kernel that this crate has changed in the driver.
pub(crate) struct KernelSettings {
    /// The current limit of dynamic shared memory in bytes.
    pub(crate) dynamic_shared: AtomicU32,
    /// Whether shared memory is preferred to L1 cache. The lock is held while the driver changes
    /// either setting, so that no thread lowers a limit that another one has raised.
    pub(crate) prefers_shared: Mutex<bool>,
}

impl KernelSettings {
    fn new(dynamic_shared: u32) -> Self {
        Self {
            dynamic_shared: dynamic_shared.into(),
            prefers_shared: Mutex::new(false),
        }
    }
}

impl Module {
    /// Compiles PTX for the context's device.
    ///
    /// # Errors
    /// Returns [`Error::Module`] if the PTX is too new for the driver, or if its target does not
    /// run on the device. If compilation fails, the error contains both logs of the compiler and
    /// the line they name.
    pub fn load(context: &Context, text: &str) -> Result<Self, Error> {
        Self::load_with(context, text, &JitOptions::default())
    }

    /// Compiles PTX for the context's device with options.
    ///
    /// # Errors
    /// Returns the errors of [`load`](Self::load).
    pub fn load_with(context: &Context, text: &str, options: &JitOptions) -> Result<Self, Error> {
        let fail = |reason| fault(context, text, reason, String::new());
        check_header(context, &Header::parse(text)).map_err(fail)?;
        let image = CString::new(text).map_err(|e| fail(ModuleReason::Nul(e.nul_position())))?;
        Self::compiled(
            context,
            image.as_bytes_with_nul(),
            text.to_string(),
            options,
        )
    }

    /// Loads an image: PTX that ends with NUL, or machine code.
    pub(crate) fn compiled(
        context: &Context,
        image: &[u8],
        text: String,
        options: &JitOptions,
    ) -> Result<Self, Error> {
        let fail = |reason, log: CompilerLogs| {
            Error::from(Box::new(describe(
                place_of(context),
                &Header::parse(&text),
                &text,
                reason,
                log,
            )))
        };
        forbid("loading a module")?;
        let mut logs = CompilerLogs::default();
        let raw = compile(context, image, options, &mut logs)
            .map_err(|e| fail(e.into(), logs.clone()))?;
        log_event!(debug, info = logs.info, "module loaded");
        Ok(Self(Arc::new(ModuleInner {
            context: context.clone(),
            raw,
            loaded: Loaded::Here,
            text,
            info: logs.info,
            settings: Mutex::default(),
        })))
    }

    /// Wraps a module loaded elsewhere, for example by another crate in the same process. Dropping
    /// the `Module` does not unload it.
    ///
    /// With the PTX it was made from, declared parameters are compared with the PTX. If `text` is
    /// empty, they are compared only with the driver's report.
    ///
    /// # Safety
    /// - `raw` must be a module of the context while this `Module` or a
    ///   [`Function`](crate::module::Function) of it lives.
    /// - `text` must be empty or the PTX that the module was made from.
    pub unsafe fn from_raw(context: &Context, raw: CUmodule, text: &str) -> Self {
        let context = context.clone();
        let text = text.to_string();
        let info = String::new();
        let settings = Mutex::default();
        Self(Arc::new(ModuleInner {
            context,
            raw,
            loaded: Loaded::Elsewhere,
            text,
            info,
            settings,
        }))
    }

    /// Wraps the module that a library is in a context. It keeps the library alive.
    pub(crate) fn from_library(
        context: &Context,
        raw: CUmodule,
        text: &str,
        library: Arc<dyn Any + Send + Sync>,
    ) -> Self {
        let context = context.clone();
        let text = text.to_string();
        let info = String::new();
        let loaded = Loaded::ByLibrary(library);
        let settings = Mutex::default();
        Self(Arc::new(ModuleInner {
            context,
            raw,
            loaded,
            text,
            info,
            settings,
        }))
    }

    pub(crate) fn downgrade(&self) -> WeakModule {
        WeakModule(Arc::downgrade(&self.0))
    }

    /// Returns the context of the module.
    pub fn context(&self) -> &Context {
        &self.0.context
    }

    /// Returns the raw handle, which is valid while this value lives.
    pub fn raw(&self) -> CUmodule {
        self.0.raw
    }

    /// Returns the settings of a kernel. A kernel that is new here starts with `dynamic_shared`,
    /// the limit that the driver reports.
    pub(crate) fn settings(&self, raw: CUfunction, dynamic_shared: u32) -> Arc<KernelSettings> {
        let mut all = lock(&self.0.settings);
        if let Some((_, known)) = all.iter().find(|(function, _)| *function == raw) {
            return known.clone();
        }
        let new = Arc::new(KernelSettings::new(dynamic_shared));
        all.push((raw, new.clone()));
        new
    }

    /// Returns an error of this module.
    pub(crate) fn fault(&self, reason: ModuleReason) -> Error {
        fault(&self.0.context, &self.0.text, reason, String::new())
    }

    /// Returns the PTX, or an empty string for machine code.
    pub fn text(&self) -> &str {
        &self.0.text
    }

    /// Returns the compiler's messages, such as the numbers of registers and spills.
    pub fn log(&self) -> &str {
        &self.0.info
    }

    pub(crate) fn no_function(&self, name: &str) -> Error {
        let entries = ptx::entries(&self.0.text).join(", ");
        self.fault(ModuleReason::NoFunction {
            name: name.to_string(),
            entries,
        })
    }
}

impl Drop for ModuleInner {
    fn drop(&mut self) {
        match std::mem::replace(&mut self.loaded, Loaded::Elsewhere) {
            Loaded::Here => self.context.release(DeferredFree::Module(self.raw)),
            Loaded::ByLibrary(library) => self
                .context
                .release(DeferredFree::Object(ProgramObject::new(library))),
            Loaded::Elsewhere => {}
        }
    }
}

/// The logs of the compiler.
#[derive(Clone, Default)]
pub(crate) struct CompilerLogs {
    pub(crate) error: String,
    pub(crate) info: String,
}

fn compile(
    context: &Context,
    image: &[u8],
    jit: &JitOptions,
    logs: &mut CompilerLogs,
) -> Result<CUmodule, DriverError> {
    let _current = context.enter()?;
    let driver = context.driver();
    let mut raw = CUmodule::NULL;
    let image = image.as_ptr().cast();
    with_options(jit, logs, |count, options, values| {
        // SAFETY: the image is PTX that ends with NUL, or machine code whose length the caller of
        // `load_image` guarantees. The options outlive the call.
        unsafe {
            cu!(
                driver,
                cuModuleLoadDataEx(&mut raw, image, count, options, values)
            )
        }
    })?;
    Ok(raw)
}

/// Calls the compiler with its options, including two log buffers, and stores the logs.
pub(crate) fn with_options<R>(
    jit: &JitOptions,
    logs: &mut CompilerLogs,
    call: impl FnOnce(u32, *mut CUjit_option, *mut *mut c_void) -> R,
) -> R {
    // The buffers and their sizes are separate options, in this order. The driver writes into the
    // buffers during `call` only.
    let mut info = vec![0u8; LOG];
    let mut error = vec![0u8; LOG];
    let mut options = vec![
        CUjit_option::INFO_LOG_BUFFER,
        CUjit_option::INFO_LOG_BUFFER_SIZE_BYTES,
        CUjit_option::ERROR_LOG_BUFFER,
        CUjit_option::ERROR_LOG_BUFFER_SIZE_BYTES,
        CUjit_option::LOG_VERBOSE,
    ];
    let mut values: Vec<*mut c_void> = vec![
        info.as_mut_ptr().cast(),
        std::ptr::without_provenance_mut(LOG),
        error.as_mut_ptr().cast(),
        std::ptr::without_provenance_mut(LOG),
        std::ptr::without_provenance_mut(1),
    ];
    for (option, value) in jit.pairs() {
        options.push(option);
        values.push(value);
    }

    let result = call(
        options.len() as u32,
        options.as_mut_ptr(),
        values.as_mut_ptr(),
    );
    *logs = CompilerLogs {
        error: trimmed(&error),
        info: trimmed(&info),
    };
    result
}

/// Checks that the driver knows the PTX version and that the target runs on the device.
fn check_header(context: &Context, header: &Header) -> Result<(), ModuleReason> {
    check_version(context.driver(), header)?;
    let (major, minor) = context.device().compute_capability();
    match &header.target {
        Some(target) if !ptx::runs_on(target, (major, minor)) => Err(ModuleReason::Target {
            target: target.clone(),
            device: format!("{major}.{minor}"),
        }),
        _ => Ok(()),
    }
}

/// Checks that the PTX is not newer than the driver.
pub(crate) fn check_version(driver: &Driver, header: &Header) -> Result<(), ModuleReason> {
    let driver = driver.version();
    let needed = header.version.and_then(ptx::cuda_of);
    if let (Some((a, b)), Some((major, minor))) =
        (header.version, needed.filter(|needed| *needed > driver))
    {
        return Err(ModuleReason::Version {
            ptx: format!("{a}.{b}"),
            needed: format!("{major}.{minor}"),
            driver: format!("{}.{}", driver.0, driver.1),
        });
    }

    Ok(())
}

/// Returns the error of a module with a log.
pub(crate) fn fault(context: &Context, text: &str, reason: ModuleReason, log: String) -> Error {
    let logs = CompilerLogs {
        error: log,
        info: String::new(),
    };
    Error::from(Box::new(describe(
        place_of(context),
        &Header::parse(text),
        text,
        reason,
        logs,
    )))
}

fn place_of(context: &Context) -> String {
    let (major, minor) = context.driver().version();
    format!("{}, driver for CUDA {major}.{minor}", context.device())
}

/// Returns the error of PTX that could not be loaded on a device.
pub(crate) fn describe(
    device: String,
    header: &Header,
    text: &str,
    reason: ModuleReason,
    logs: CompilerLogs,
) -> ModuleError {
    ModuleError {
        line: ptx::line_named_by(&logs.error, text),
        reason,
        log: logs.error,
        info: logs.info,
        header: header.describe(),
        device,
    }
}
