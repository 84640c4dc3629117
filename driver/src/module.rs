//! Modules: PTX compiled by the driver, and the functions in it.

use std::collections::BTreeSet;
use std::ffi::{CString, c_void};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use driver_sys::{CUfunction, CUfunction_attribute, CUjit_option, CUmodule, CUresult};
use ptx_gen::{Geometry, Param, ParamKind, Program};

use crate::context::{Owner, Release};
use crate::driver::trimmed;
use crate::error::{DriverError, LaunchProblem, ModuleError, ModuleReason};
use crate::ptx::{self, Header};
use crate::{Context, Error};

/// Room for each log of the compiler, in bytes.
const LOG: usize = 16 << 10;

/// Compiled PTX. Clones share it.
#[derive(Clone)]
pub struct Module(Arc<ModuleInner>);

struct ModuleInner {
    context: Context,
    raw: CUmodule,
    text: String,
    info: String,
}

/// A kernel of a module, with its declared parameters. Clones share it, and it keeps its module loaded.
#[derive(Clone)]
pub struct Function(Arc<FunctionInner>);

struct FunctionInner {
    module: Module,
    raw: CUfunction,
    name: String,
    params: Vec<Param>,
    max_threads: u32,
    fixed_shared: u32,
    registers: u32,
    local: u32,
    waits: bool,
    triggers: bool,
    noncoherent: BTreeSet<&'static str>,
    /// The dynamic shared memory that the driver allows this function now.
    dynamic_shared: AtomicU32,
    /// Whether the driver was asked to give shared memory all it can.
    prefers_shared: AtomicBool,
}

impl Module {
    /// Compiles PTX for the context's device.
    ///
    /// # Errors
    /// [`Error::Module`]: text that the driver cannot know or the device cannot run, before it is asked; what the
    /// compiler says, with both logs and the line they name, after.
    pub fn load(context: &Context, text: &str) -> Result<Self, Error> {
        let header = Header::of(text);
        let fail = |reason, log: Logs| Error::from(Box::new(describe(context, &header, text, reason, log)));
        check_header(context, &header).map_err(|reason| fail(reason, Logs::default()))?;
        let image =
            CString::new(text).map_err(|e| fail(ModuleReason::Nul(e.nul_position()), Logs::default()))?;
        let mut logs = Logs::default();
        let raw = compile(context, &image, &mut logs).map_err(|e| fail(e.into(), logs.clone()))?;
        tracing::debug!(info = logs.info, "module loaded");
        Ok(Self(Arc::new(ModuleInner {
            context: context.clone(),
            raw,
            text: text.to_string(),
            info: logs.info,
        })))
    }

    /// Its context.
    pub fn context(&self) -> &Context {
        &self.0.context
    }

    /// The PTX.
    pub fn text(&self) -> &str {
        &self.0.text
    }

    /// What the compiler reported: registers, spills, shared memory.
    pub fn log(&self) -> &str {
        &self.0.info
    }

    /// The kernel of that name, to be launched with arguments for `params`. Whether it reads some of them by
    /// `ld.global.nc` is not known: where kernels overlap, that is for its author to keep in mind ([`Error::Stale`]).
    ///
    /// # Errors
    /// No such kernel; or, on drivers that tell, parameters of other sizes than declared.
    ///
    /// # Safety
    /// - The kernel's parameters are `params`, in order and with natural alignment, a buffer being a `.u64` address.
    /// - It touches no memory but its buffers, each as its access says and within the length launched with.
    pub unsafe fn function(&self, name: &str, params: &[Param]) -> Result<Function, Error> {
        // SAFETY: the caller vouches for the kernel.
        unsafe { self.find(name, params, BTreeSet::new()) }
    }

    /// The kernel that was printed from this program.
    ///
    /// # Errors
    /// As [`function`](Self::function).
    ///
    /// # Safety
    /// The module's text was printed from the program, which touches no memory but its buffers, as above.
    pub(crate) unsafe fn printed(&self, program: &Program) -> Result<Function, Error> {
        // SAFETY: the parameters are the program's, and the caller vouches for the kernel.
        unsafe { self.find(&program.name, &program.params, program.noncoherent()) }
    }

    /// # Safety
    /// As [`function`](Self::function).
    unsafe fn find(
        &self,
        name: &str,
        params: &[Param],
        noncoherent: BTreeSet<&'static str>,
    ) -> Result<Function, Error> {
        let (_current, driver) = (self.0.context.enter()?, self.0.context.driver());
        let c_name = CString::new(name).map_err(|_| self.no_function(name))?;
        let mut raw = CUfunction::NULL;
        // SAFETY: `raw` is ours to write; the module is loaded and the name a C string.
        match unsafe { cu!(driver, cuModuleGetFunction(&mut raw, self.0.raw, c_name.as_ptr())) } {
            Err(error) if error.code == CUresult::NOT_FOUND => return Err(self.no_function(name)),
            other => other?,
        }
        // SAFETY: the function is of the module, which is loaded.
        let get = |attribute| unsafe { attribute_of(&self.0.context, raw, attribute) };
        let has = |instruction| ptx::has_instruction(&self.0.text, name, instruction);
        let inner = FunctionInner {
            module: self.clone(),
            raw,
            name: name.to_string(),
            params: params.to_vec(),
            max_threads: get(CUfunction_attribute::MAX_THREADS_PER_BLOCK)?,
            fixed_shared: get(CUfunction_attribute::SHARED_SIZE_BYTES)?,
            registers: get(CUfunction_attribute::NUM_REGS)?,
            local: get(CUfunction_attribute::LOCAL_SIZE_BYTES)?,
            waits: has("griddepcontrol.wait"),
            triggers: has("griddepcontrol.launch_dependents"),
            noncoherent,
            prefers_shared: AtomicBool::new(false),
            dynamic_shared: AtomicU32::new(get(CUfunction_attribute::MAX_DYNAMIC_SHARED_SIZE_BYTES)?),
        };
        inner.check_params()?;
        inner.load_now()?;
        Ok(Function(Arc::new(inner)))
    }

    fn no_function(&self, name: &str) -> Error {
        let entries = ptx::entries(&self.0.text).join(", ");
        let reason = ModuleReason::NoFunction { name: name.to_string(), entries };
        let header = Header::of(&self.0.text);
        Error::from(Box::new(describe(&self.0.context, &header, &self.0.text, reason, Logs::default())))
    }
}

impl Drop for ModuleInner {
    fn drop(&mut self) {
        self.context.release(Release::Module(self.raw));
    }
}

impl Function {
    /// Its name.
    pub fn name(&self) -> &str {
        &self.0.name
    }

    /// Its declared parameters.
    pub fn params(&self) -> &[Param] {
        &self.0.params
    }

    /// Its context.
    pub fn context(&self) -> &Context {
        &self.0.module.0.context
    }

    /// Its module.
    pub fn module(&self) -> &Module {
        &self.0.module
    }

    /// Registers a thread uses.
    pub fn registers(&self) -> u32 {
        self.0.registers
    }

    /// Local memory a thread uses, in bytes: not 0 if registers were spilled.
    pub fn local_bytes(&self) -> u32 {
        self.0.local
    }

    /// Shared memory that the kernel declares, in bytes.
    pub fn shared_bytes(&self) -> u32 {
        self.0.fixed_shared
    }

    /// The most threads a block may have.
    pub fn max_threads(&self) -> u32 {
        self.0.max_threads
    }

    /// Whether its code has `griddepcontrol.wait`, so that it may follow a kernel by a programmatic edge.
    pub fn waits(&self) -> bool {
        self.0.waits
    }

    /// Whether its code has `griddepcontrol.launch_dependents`. Without it a kernel that follows by a programmatic
    /// edge starts when this one has ended.
    pub fn triggers(&self) -> bool {
        self.0.triggers
    }

    /// The buffers, by parameter, that it is known to read by `ld.global.nc`: nobody may write them while it is there.
    pub fn noncoherent(&self) -> &BTreeSet<&'static str> {
        &self.0.noncoherent
    }

    /// Blocks of that many threads and that much dynamic shared memory that fit on one multiprocessor, with the
    /// opt-in that such a launch makes.
    ///
    /// # Errors
    /// More shared memory than the device allows a block, or what the driver refuses.
    pub fn blocks_per_sm(&self, block: u32, dynamic_shared: u32) -> Result<u32, Error> {
        self.admit_shared(dynamic_shared)?;
        let (_current, driver) = (self.context().enter()?, self.context().driver());
        let (mut blocks, block, shared) = (0, block as i32, dynamic_shared as usize);
        // SAFETY: `blocks` is ours to write; the function is loaded.
        unsafe {
            cu!(driver, cuOccupancyMaxActiveBlocksPerMultiprocessor(&mut blocks, self.0.raw, block, shared))
        }?;
        Ok(blocks as u32)
    }

    pub(crate) fn raw(&self) -> CUfunction {
        self.0.raw
    }

    pub(crate) fn owner(&self) -> Owner {
        self.0.clone()
    }

    pub(crate) fn refuse(&self, problem: LaunchProblem) -> Error {
        Error::Launch { kernel: self.0.name.clone(), problem }
    }

    /// Checks a launch against the device and the kernel, and opts in to shared memory beyond the default.
    pub(crate) fn admit(&self, geometry: &Geometry) -> Result<(), Error> {
        let limits = self.context().limits();
        for ((axis, got), limit) in "xyz".chars().zip(geometry.grid).zip(limits.grid) {
            if got == 0 || got > limit {
                return Err(self.refuse(LaunchProblem::Grid { axis, got, limit }));
            }
        }
        let (got, limit) = (geometry.block, limits.block[0]);
        if got == 0 || got > limit {
            return Err(self.refuse(LaunchProblem::Block { got, limit }));
        }
        let (limit, registers) = (self.0.max_threads, self.0.registers);
        if got > limit {
            return Err(self.refuse(LaunchProblem::Threads { got, limit, registers }));
        }
        self.admit_shared(geometry.shared)
    }

    fn admit_shared(&self, dynamic: u32) -> Result<(), Error> {
        if dynamic <= self.0.dynamic_shared.load(Ordering::Acquire) {
            return Ok(());
        }
        let (fixed, limit) = (self.0.fixed_shared, self.context().device().properties().shared_per_block);
        if u64::from(dynamic) + u64::from(fixed) > u64::from(limit) {
            return Err(self.refuse(LaunchProblem::Shared { dynamic, fixed, limit }));
        }
        self.set_attribute(CUfunction_attribute::MAX_DYNAMIC_SHARED_SIZE_BYTES, dynamic as i32)?;
        self.0.dynamic_shared.fetch_max(dynamic, Ordering::AcqRel);
        self.prefer_shared()
    }

    /// Asks the driver to give shared memory all that it can of what it shares with the first-level cache, as a
    /// launch with more than the default does by itself. Kernels that are to overlap should agree on it: a
    /// multiprocessor changes the split only when it is idle.
    ///
    /// # Errors
    /// What the driver refuses.
    pub fn prefer_shared(&self) -> Result<(), Error> {
        const ALL: i32 = 100;
        if self.0.prefers_shared.load(Ordering::Acquire) {
            return Ok(());
        }
        self.set_attribute(CUfunction_attribute::PREFERRED_SHARED_MEMORY_CARVEOUT, ALL)?;
        self.0.prefers_shared.store(true, Ordering::Release);
        Ok(())
    }

    fn set_attribute(&self, attribute: CUfunction_attribute, value: i32) -> Result<(), Error> {
        let _current = self.context().enter()?;
        // SAFETY: the function is loaded.
        unsafe { cu!(self.context().driver(), cuFuncSetAttribute(self.0.raw, attribute, value)) }?;
        Ok(())
    }
}

impl FunctionInner {
    /// Compares the declared parameters with what the driver loaded, where it tells.
    fn check_params(&self) -> Result<(), Error> {
        let driver = self.module.0.context.driver();
        let Some(info) = driver.api().cuFuncGetParamInfo else { return Ok(()) };
        // The driver is asked for no parameter that is not there: tools that watch it report such calls as errors.
        let count = ptx::param_count(&self.module.0.text, &self.name).unwrap_or(self.params.len());
        let mut end = 0;
        for index in 0..count.max(self.params.len()) {
            let (mut offset, mut size) = (0, 0);
            // SAFETY: both numbers are ours to write, and the call writes them or refuses.
            let mut known = || unsafe { info(self.raw, index, &mut offset, &mut size) } == CUresult::SUCCESS;
            let loaded = index < count && known();
            let declared = self.params.get(index).map(|p| (size_of_param(p), p.name));
            let expected = declared.map(|(size, _)| (usize::next_multiple_of(end, size), size));
            let found = loaded.then_some((offset, size));
            if expected != found {
                let name = declared.map_or("beyond the last", |(_, name)| name).to_string();
                let (declared, loaded) = (place(expected), place(found));
                return Err(Error::Signature { kernel: self.name.clone(), index, name, declared, loaded });
            }
            end = expected.map_or(end, |(offset, size)| offset + size);
        }
        Ok(())
    }

    /// Loads lazily loaded code now, so that a later launch in a capture need not.
    fn load_now(&self) -> Result<(), Error> {
        let driver = self.module.0.context.driver();
        let Some(load) = driver.api().cuFuncLoad else { return Ok(()) };
        // SAFETY: the function is of a loaded module.
        driver.check("cuFuncLoad", unsafe { load(self.raw) }).map_err(Error::from)
    }
}

/// The size of a parameter in bytes, which is also its alignment.
fn size_of_param(param: &Param) -> usize {
    match param.kind {
        ParamKind::Buffer(..) => 8,
        ParamKind::Scalar(kind) => kind.bytes() as usize,
    }
}

fn place(found: Option<(usize, usize)>) -> String {
    found.map_or("absent".to_string(), |(offset, size)| format!("{size} bytes at offset {offset}"))
}

/// # Safety
/// The function is of a loaded module of the context, which is current.
unsafe fn attribute_of(
    context: &Context,
    raw: CUfunction,
    attribute: CUfunction_attribute,
) -> Result<u32, DriverError> {
    let mut value = 0;
    // SAFETY: `value` is ours to write; the caller vouches for the function.
    unsafe { cu!(context.driver(), cuFuncGetAttribute(&mut value, attribute, raw)) }?;
    Ok(value as u32)
}

/// What the compiler wrote.
#[derive(Clone, Default)]
struct Logs {
    error: String,
    info: String,
}

fn compile(context: &Context, image: &CString, logs: &mut Logs) -> Result<CUmodule, DriverError> {
    let (_current, driver) = (context.enter()?, context.driver());
    let (mut info, mut error) = (vec![0u8; LOG], vec![0u8; LOG]);
    let mut options = [
        CUjit_option::INFO_LOG_BUFFER,
        CUjit_option::INFO_LOG_BUFFER_SIZE_BYTES,
        CUjit_option::ERROR_LOG_BUFFER,
        CUjit_option::ERROR_LOG_BUFFER_SIZE_BYTES,
        CUjit_option::LOG_VERBOSE,
    ];
    let mut values: [*mut c_void; 5] = [
        info.as_mut_ptr().cast(),
        std::ptr::without_provenance_mut(LOG),
        error.as_mut_ptr().cast(),
        std::ptr::without_provenance_mut(LOG),
        std::ptr::without_provenance_mut(1),
    ];
    let (count, options, values) = (options.len() as u32, options.as_mut_ptr(), values.as_mut_ptr());
    let mut raw = CUmodule::NULL;
    // SAFETY: the image ends with NUL; both buffers outlive the call and their sizes are stated.
    let result =
        unsafe { cu!(driver, cuModuleLoadDataEx(&mut raw, image.as_ptr().cast(), count, options, values)) };
    *logs = Logs { error: trimmed(&error), info: trimmed(&info) };
    result.map(|()| raw)
}

/// Refuses what the driver or the device cannot know, in words of its own.
fn check_header(context: &Context, header: &Header) -> Result<(), ModuleReason> {
    let driver = context.driver().version();
    let needed = header.version.and_then(ptx::cuda_of);
    if let (Some((a, b)), Some((major, minor))) = (header.version, needed.filter(|needed| *needed > driver)) {
        return Err(ModuleReason::Version {
            ptx: format!("{a}.{b}"),
            needed: format!("{major}.{minor}"),
            driver: format!("{}.{}", driver.0, driver.1),
        });
    }
    let (major, minor) = context.device().compute_capability();
    match &header.target {
        Some(target) if !ptx::runs_on(target, (major, minor)) => {
            Err(ModuleReason::Target { target: target.clone(), device: format!("{major}.{minor}") })
        }
        _ => Ok(()),
    }
}

fn describe(context: &Context, header: &Header, text: &str, reason: ModuleReason, logs: Logs) -> ModuleError {
    let (major, minor) = context.driver().version();
    ModuleError {
        line: ptx::line_named_by(&logs.error, text),
        reason,
        log: logs.error,
        info: logs.info,
        header: header.describe(),
        device: format!("{}, driver for CUDA {major}.{minor}", context.device()),
    }
}
