//! Kernels of modules, with their parameters, attributes and launch checks.

use std::collections::BTreeSet;
use std::ffi::CString;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use driver_sys::{CUdevice_attribute, CUfunction, CUfunction_attribute, CUresult};
use ptx_gen::Program;

use crate::device::Context;
use crate::device::context::expect_same;
use crate::error::{DriverError, Error, LaunchProblem};
use crate::lifetime::unpoisoned_lock::lock;
use crate::module::launch_config::LaunchConfig;
use crate::module::loaded_module::KernelSettings;
use crate::module::{Module, Parameter, ptx};

/// A kernel of a module with its declared parameters. Clones refer to the same kernel and keep its
/// module loaded.
///
/// ```
/// # use warpwright_driver::prelude::*;
/// # const SCALE: &str = include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/src/scale.ptx"));
/// # fn main() -> Result<(), Error> {
/// # let context = Context::new(&Driver::from_library(warpwright_cuda_emu::library())?.device(0)?)?;
/// # let module = Module::load(&context, SCALE)?;
/// let params = [
///     Parameter::value::<u32>("n"),
///     Parameter::value::<f32>("a"),
///     Parameter::buffer::<f32>("y", Access::ReadWrite),
/// ];
/// // SAFETY: the kernel stays below `n` and has these parameters.
/// let scale = unsafe { module.function("scale", &params) }?;
/// assert!(scale.max_threads() >= 128);
/// println!("{} registers, {} blocks of 128 on a multiprocessor", scale.registers(), scale.blocks_per_sm(128, 0)?);
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Function(Arc<FunctionInner>);

impl Module {
    /// Returns the kernel with this name, to be launched with arguments for `params`.
    ///
    /// This crate cannot know whether the kernel reads arguments with `ld.global.nc`. If it
    /// overlaps other kernels, its author must make sure that those do not write what it reads (see
    /// [`Error::Stale`]).
    ///
    /// # Errors
    /// - [`Error::Module`] if the module has no such kernel.
    /// - [`Error::Signature`] if a parameter has another size or offset than declared. Older
    ///   drivers do not report them.
    ///
    /// # Safety
    /// - The kernel's parameters must be `params`, in this order and with natural alignment. A
    ///   buffer is a `.u64` address.
    /// - The kernel must access only its buffers, each according to its declared access and within
    ///   the length passed at launch.
    pub unsafe fn function(&self, name: &str, params: &[Parameter]) -> Result<Function, Error> {
        // SAFETY: the caller fulfills the same obligations.
        unsafe { self.find(name, params.to_vec(), BTreeSet::new()) }
    }

    /// Returns the kernel that was printed from `program`.
    ///
    /// # Errors
    /// Returns the errors of [`function`](Self::function).
    ///
    /// # Safety
    /// - The module's text must have been printed from the program.
    /// - The program must access only its buffers, each within the length passed at launch.
    pub(crate) unsafe fn printed(&self, program: &Program) -> Result<Function, Error> {
        // SAFETY: the parameters are those of the program. The caller guarantees that the module
        // was printed from it and that it stays within its buffers.
        unsafe {
            let params = program.params.iter().map(Parameter::from).collect();
            self.find(&program.name, params, program.noncoherent())
        }
    }

    /// Returns the kernel with this name and the parameters that it reads with `ld.global.nc`.
    ///
    /// # Safety
    /// The caller must fulfill the obligations of [`function`](Self::function).
    unsafe fn find(
        &self,
        name: &str,
        params: Vec<Parameter>,
        noncoherent: BTreeSet<&'static str>,
    ) -> Result<Function, Error> {
        let _current = self.context().enter()?;
        let driver = self.context().driver();
        let c_name = CString::new(name).map_err(|_| self.no_function(name))?;
        let mut raw = CUfunction::NULL;

        // SAFETY: `raw` is a local variable that the driver may write. `self` keeps the module
        // loaded, and the name is a C string.
        match unsafe {
            cu!(
                driver,
                cuModuleGetFunction(&mut raw, self.raw(), c_name.as_ptr())
            )
        } {
            Err(error) if error.code == CUresult::NOT_FOUND => return Err(self.no_function(name)),
            other => other?,
        }

        // SAFETY: the driver returned the function for this module. The caller guarantees the
        // parameters and accesses.
        unsafe { Function::from_raw(self.clone(), raw, name, params, noncoherent) }
    }
}

impl std::fmt::Debug for Function {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Function({})", self.0.name)
    }
}

struct FunctionInner {
    module: Module,
    raw: CUfunction,
    name: String,
    params: Vec<Parameter>,
    max_threads: u32,
    fixed_shared: u32,
    registers: u32,
    local: u32,
    waits: bool,
    triggers: bool,
    noncoherent: BTreeSet<&'static str>,
    settings: Arc<KernelSettings>,
}

impl Function {
    /// Wraps a function of the driver.
    ///
    /// # Safety
    /// - `raw` must be a function of the module.
    /// - The caller must fulfill the obligations of [`Module::function`] for the parameters.
    pub(crate) unsafe fn from_raw(
        module: Module,
        raw: CUfunction,
        name: &str,
        params: Vec<Parameter>,
        noncoherent: BTreeSet<&'static str>,
    ) -> Result<Self, Error> {
        let _current = module.context().enter()?;

        // SAFETY: the caller guarantees that `raw` is of the module, which is loaded. Its context
        // is current.
        let get = |attribute| unsafe { attribute_of(module.context(), raw, attribute) };
        let has = |instruction| ptx::has_instruction(module.text(), name, instruction);
        let inner = FunctionInner {
            raw,
            name: name.to_string(),
            params,
            max_threads: get(CUfunction_attribute::MAX_THREADS_PER_BLOCK)?,
            fixed_shared: get(CUfunction_attribute::SHARED_SIZE_BYTES)?,
            registers: get(CUfunction_attribute::NUM_REGS)?,
            local: get(CUfunction_attribute::LOCAL_SIZE_BYTES)?,
            waits: has("griddepcontrol.wait"),
            triggers: has("griddepcontrol.launch_dependents"),
            noncoherent,
            settings: module.settings(
                raw,
                get(CUfunction_attribute::MAX_DYNAMIC_SHARED_SIZE_BYTES)?,
            ),
            module: module.clone(),
        };
        crate::module::kernel_macro::compare(module.text(), name, &inner.params)?;
        inner.check_params()?;
        inner.load_now()?;
        Ok(Self(Arc::new(inner)))
    }

    /// Returns the name of the kernel.
    pub fn name(&self) -> &str {
        &self.0.name
    }

    /// Returns the declared parameters.
    pub fn params(&self) -> &[Parameter] {
        &self.0.params
    }

    /// Returns the context of the kernel.
    pub fn context(&self) -> &Context {
        self.0.module.context()
    }

    /// Returns the module of the kernel.
    pub fn module(&self) -> &Module {
        &self.0.module
    }

    /// Returns the number of registers per thread.
    pub fn registers(&self) -> u32 {
        self.0.registers
    }

    /// Returns the local memory per thread in bytes. It is not 0 if registers were spilled.
    pub fn local_bytes(&self) -> u32 {
        self.0.local
    }

    /// Returns the static shared memory that the kernel declares, in bytes.
    pub fn shared_bytes(&self) -> u32 {
        self.0.fixed_shared
    }

    /// Returns the largest number of threads per block.
    pub fn max_threads(&self) -> u32 {
        self.0.max_threads
    }

    /// Returns true if the code contains `griddepcontrol.wait`. Only such a kernel can be the
    /// target of a programmatic edge.
    pub fn waits(&self) -> bool {
        self.0.waits
    }

    /// Returns true if the code contains `griddepcontrol.launch_dependents`. Without it, a kernel
    /// behind a programmatic edge starts only when this kernel has ended.
    pub fn triggers(&self) -> bool {
        self.0.triggers
    }

    /// Returns the names of the buffers that the kernel is known to read with `ld.global.nc`. They
    /// must not be written while the kernel runs.
    pub fn noncoherent(&self) -> &BTreeSet<&'static str> {
        &self.0.noncoherent
    }

    /// Returns the raw handle, which is valid while this value lives.
    #[inline]
    pub fn raw(&self) -> CUfunction {
        self.0.raw
    }

    /// Checks that the kernel belongs to the context of a queue.
    #[inline]
    pub(crate) fn expect_in(&self, context: &Context) -> Result<(), Error> {
        if self.context().same(context) {
            return Ok(());
        }
        expect_same(
            &format!("kernel {}", self.name()),
            self.context(),
            "the queue",
            context,
        )
    }

    /// Returns true if both are the same kernel with the same declared parameters.
    pub(crate) fn same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    pub(crate) fn refuse(&self, problem: LaunchProblem) -> Error {
        Error::Launch {
            kernel: self.0.name.clone(),
            problem,
        }
    }

    /// Checks a launch configuration against the device and the kernel, and opts in to shared
    /// memory beyond the default limit.
    #[inline]
    pub(crate) fn admit(&self, config: &LaunchConfig) -> Result<(), Error> {
        let limits = self.context().limits();
        let within =
            |got: [u32; 3], limit: [u32; 3]| (0..3).all(|i| got[i] != 0 && got[i] <= limit[i]);
        let threads = config
            .block
            .iter()
            .fold(1, |n: u32, d| n.saturating_mul(*d));
        let fits = within(config.grid, limits.grid) && within(config.block, limits.block);
        if !fits || threads > self.0.max_threads.min(limits.threads) {
            return Err(self.misfit(config, threads));
        }
        if config.has_attributes() {
            self.admit_attributes(config)?;
        }

        self.admit_shared(config.shared)
    }

    /// Checks everything of a configuration besides grid, block and shared memory.
    #[cold]
    fn admit_attributes(&self, config: &LaunchConfig) -> Result<(), Error> {
        let has = |attribute| {
            self.context()
                .device()
                .attribute(attribute)
                .is_ok_and(|value| value != 0)
        };
        let refuse = |problem| Err(self.refuse(LaunchProblem::Attribute(problem)));
        if let Some(cluster) = config.cluster {
            if !has(CUdevice_attribute::CLUSTER_LAUNCH) {
                return refuse("the device does not support clusters");
            }
            if cluster
                .iter()
                .zip(config.grid)
                .any(|(c, g)| *c == 0 || g % c != 0)
            {
                return refuse("the grid is not a whole number of clusters in each dimension");
            }
        }

        if config.cooperative && !has(CUdevice_attribute::COOPERATIVE_LAUNCH) {
            return refuse("the device does not support cooperative launches");
        }

        // In a stream there are no edges, so the previous kernel is unknown here. The kernel must
        // therefore wait for it, and must not read through the non-coherent path at all.
        if config.programmatic && !self.0.waits {
            return refuse("only a kernel with griddepcontrol.wait may overlap the one before it");
        }

        if config.programmatic && !self.0.noncoherent.is_empty() {
            return refuse(
                "a kernel that reads by ld.global.nc may not overlap the one before it in a stream",
            );
        }

        Ok(())
    }

    /// Returns the error for a configuration that does not fit.
    #[cold]
    fn misfit(&self, config: &LaunchConfig, threads: u32) -> Error {
        let limits = self.context().limits();
        let beyond = |got: [u32; 3], limit: [u32; 3]| {
            let axis = (0..3).find(|i| got[*i] == 0 || got[*i] > limit[*i])?;
            Some((['x', 'y', 'z'][axis], got[axis], limit[axis]))
        };

        // From the limits of the device to the limit of the kernel, so that the error names the
        // cause that applies to every kernel first.
        if let Some((axis, got, limit)) = beyond(config.grid, limits.grid) {
            return self.refuse(LaunchProblem::Grid { axis, got, limit });
        }
        if let Some((axis, got, limit)) = beyond(config.block, limits.block) {
            return self.refuse(LaunchProblem::BlockAxis { axis, got, limit });
        }

        if threads > limits.threads {
            return self.refuse(LaunchProblem::Block {
                got: threads,
                limit: limits.threads,
            });
        }

        let limit = self.0.max_threads;
        let registers = self.0.registers;
        self.refuse(LaunchProblem::Threads {
            got: threads,
            limit,
            registers,
        })
    }

    #[inline]
    pub(crate) fn admit_shared(&self, dynamic: u32) -> Result<(), Error> {
        if dynamic <= self.0.settings.dynamic_shared.load(Ordering::Acquire) {
            return Ok(());
        }
        self.raise_shared(dynamic)
    }

    #[cold]
    fn raise_shared(&self, dynamic: u32) -> Result<(), Error> {
        let fixed = self.0.fixed_shared;
        let limit = self.context().device().properties().shared_per_block;
        if u64::from(dynamic) + u64::from(fixed) > u64::from(limit) {
            return Err(self.refuse(LaunchProblem::Shared {
                dynamic,
                fixed,
                limit,
            }));
        }

        // The lock covers the check and the call. Otherwise a thread with a smaller request could
        // lower the limit that another thread has just raised.
        let settings = &self.0.settings;
        let mut prefers_shared = lock(&settings.prefers_shared);
        if dynamic > settings.dynamic_shared.load(Ordering::Acquire) {
            self.set_attribute(
                CUfunction_attribute::MAX_DYNAMIC_SHARED_SIZE_BYTES,
                dynamic as i32,
            )?;
            settings.dynamic_shared.store(dynamic, Ordering::Release);
        }

        self.prefer(&mut prefers_shared)
    }

    /// Asks the driver to assign as much as possible of the L1 cache to shared memory.
    ///
    /// A launch with more than the default limit of shared memory does this itself. Kernels that
    /// should overlap need the same setting, because a multiprocessor changes the split only while
    /// it is idle.
    ///
    /// # Errors
    /// Returns an error if the driver cannot change the setting.
    pub fn prefer_shared(&self) -> Result<(), Error> {
        self.prefer(&mut lock(&self.0.settings.prefers_shared))
    }

    fn prefer(&self, prefers_shared: &mut bool) -> Result<(), Error> {
        const ALL: i32 = 100;
        if !*prefers_shared {
            self.set_attribute(CUfunction_attribute::PREFERRED_SHARED_MEMORY_CARVEOUT, ALL)?;
            *prefers_shared = true;
        }
        Ok(())
    }

    pub(crate) fn set_attribute(
        &self,
        attribute: CUfunction_attribute,
        value: i32,
    ) -> Result<(), Error> {
        let _current = self.context().enter()?;
        // SAFETY: `self` keeps the function's module loaded.
        unsafe {
            cu_optional!(
                self.context().driver(),
                cuFuncSetAttribute(self.0.raw, attribute, value)
            )
        }?;
        Ok(())
    }
}

impl FunctionInner {
    /// Compares the declared parameters with the loaded kernel, if the driver reports them.
    fn check_params(&self) -> Result<(), Error> {
        let driver = self.module.context().driver();
        let Some(info) = driver.api().cuFuncGetParamInfo else {
            return Ok(());
        };

        // The driver is not asked for parameters beyond the last, because tools such as
        // compute-sanitizer report the failing call as an error.
        let count = ptx::param_count(self.module.text(), &self.name).unwrap_or(self.params.len());
        let mut end: usize = 0;
        for index in 0..count.max(self.params.len()) {
            let mut offset = 0;
            let mut size = 0;
            let mut loaded = index < count;
            if loaded {
                // SAFETY: both numbers are local variables that the driver may write.
                let code = unsafe { info(self.raw, index, &mut offset, &mut size) };
                // The driver returns this code for an index beyond the last parameter.
                loaded = code != CUresult::INVALID_VALUE;
                driver.check(
                    "cuFuncGetParamInfo",
                    if loaded { code } else { CUresult::SUCCESS },
                )?;
            }

            let declared = self.params.get(index);
            let found = loaded.then_some((offset, size));
            let expected = declared.map(|p| p.ty.place_after(end, offset));
            if expected != found {
                let name = declared.map_or("beyond the last", |p| p.name).to_string();
                let declared = place(expected);
                let loaded = place(found);
                return Err(Error::Signature {
                    kernel: self.name.clone(),
                    index,
                    name,
                    declared,
                    loaded,
                });
            }

            end = expected.map_or(end, |(offset, size)| offset + size);
        }

        Ok(())
    }

    /// Loads lazily loaded code immediately, because a launch in a capture must not load code.
    fn load_now(&self) -> Result<(), Error> {
        let driver = self.module.context().driver();
        let Some(load) = driver.api().cuFuncLoad else {
            return Ok(());
        };
        // SAFETY: `self` keeps the function's module loaded.
        driver
            .check("cuFuncLoad", unsafe { load(self.raw) })
            .map_err(Error::from)
    }
}

fn place(found: Option<(usize, usize)>) -> String {
    found.map_or("absent".to_string(), |(offset, size)| {
        format!("{size} bytes at offset {offset}")
    })
}

/// Returns an attribute of a function.
///
/// # Safety
/// - `raw` must be a function of a loaded module of the context.
/// - The context must be current.
unsafe fn attribute_of(
    context: &Context,
    raw: CUfunction,
    attribute: CUfunction_attribute,
) -> Result<u32, DriverError> {
    let mut value = 0;
    // SAFETY: `value` is a local variable that the driver may write. The caller guarantees that the
    // function is loaded.
    unsafe {
        cu!(
            context.driver(),
            cuFuncGetAttribute(&mut value, attribute, raw)
        )
    }?;
    Ok(value as u32)
}
