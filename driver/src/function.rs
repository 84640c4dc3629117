//! Kernels of modules: their parameters, what the driver says of them, and what is asked of it.

use std::collections::BTreeSet;
use std::ffi::CString;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use driver_sys::{CUdevice_attribute, CUfunction, CUfunction_attribute, CUresult};
use ptx_gen::Program;

use crate::context::expect_same;
use crate::driver_error::DriverError;
use crate::error::LaunchProblem;
use crate::lock::lock;
use crate::module::Settings;
use crate::ptx;
use crate::{Context, Error, LaunchConfig, Module, Parameter};

/// A kernel of a module, with its declared parameters. Clones share it, and it keeps its module loaded.
///
/// ```
/// # use warpwright_driver::*;
/// # const SCALE: &str = include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/src/scale.ptx"));
/// # fn main() -> Result<(), Error> {
/// # let context = Context::new(&Driver::of(warpwright_cuda_emu::library())?.device(0)?)?;
/// # let module = Module::load(&context, SCALE)?;
/// let params = [
///     Parameter::value::<u32>("n"),
///     Parameter::value::<f32>("a"),
///     Parameter::buffer::<f32>("y", Access::ReadWrite),
/// ];
/// // SAFETY: the kernel stays below `n`, and these are its parameters.
/// let scale = unsafe { module.function("scale", &params) }?;
/// assert!(scale.max_threads() >= 128);
/// println!("{} registers, {} blocks of 128 on a multiprocessor", scale.registers(), scale.blocks_per_sm(128, 0)?);
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Function(Arc<FunctionInner>);

impl Module {
    /// The kernel of that name, to be launched with arguments for `params`. Whether it reads some of them by
    /// `ld.global.nc` is not known: where kernels overlap, that is for its author to keep in mind ([`Error::Stale`]).
    ///
    /// # Errors
    /// No such kernel; or, on drivers that tell, parameters of other sizes than declared.
    ///
    /// # Safety
    /// - The kernel's parameters are `params`, in order and with natural alignment, a buffer being a `.u64` address.
    /// - It touches no memory but its buffers, each as its access says and within the length launched with.
    pub unsafe fn function(&self, name: &str, params: &[Parameter]) -> Result<Function, Error> {
        // SAFETY: the caller vouches for the kernel.
        unsafe { self.find(name, params.to_vec(), BTreeSet::new()) }
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
        unsafe {
            let params = program.params.iter().map(Parameter::from).collect();
            self.find(&program.name, params, program.noncoherent())
        }
    }

    /// # Safety
    /// As [`function`](Self::function).
    unsafe fn find(
        &self,
        name: &str,
        params: Vec<Parameter>,
        noncoherent: BTreeSet<&'static str>,
    ) -> Result<Function, Error> {
        let (_current, driver) = (self.context().enter()?, self.context().driver());
        let c_name = CString::new(name).map_err(|_| self.no_function(name))?;
        let mut raw = CUfunction::NULL;
        // SAFETY: `raw` is ours to write; the module is loaded and the name a C string.
        match unsafe {
            cu!(
                driver,
                cuModuleGetFunction(&mut raw, self.raw(), c_name.as_ptr())
            )
        } {
            Err(error) if error.code == CUresult::NOT_FOUND => return Err(self.no_function(name)),
            other => other?,
        }
        // SAFETY: the function is of the module, which is loaded, and the caller vouches for the parameters.
        unsafe { Function::of(self.clone(), raw, name, params, noncoherent) }
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
    settings: Arc<Settings>,
}

impl Function {
    /// # Safety
    /// The function is of the module, and takes the parameters as [`Module::function`] says.
    pub(crate) unsafe fn of(
        module: Module,
        raw: CUfunction,
        name: &str,
        params: Vec<Parameter>,
        noncoherent: BTreeSet<&'static str>,
    ) -> Result<Self, Error> {
        let _current = module.context().enter()?;
        // SAFETY: the function is of the module, which is loaded.
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
        crate::signature::compare(module.text(), name, &inner.params)?;
        inner.check_params()?;
        inner.load_now()?;
        Ok(Self(Arc::new(inner)))
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.0.name
    }

    /// Its declared parameters.
    pub fn params(&self) -> &[Parameter] {
        &self.0.params
    }

    /// Its context.
    pub fn context(&self) -> &Context {
        self.0.module.context()
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

    /// The raw handle. It is valid for as long as this lives.
    #[inline]
    pub fn raw(&self) -> CUfunction {
        self.0.raw
    }

    /// Refuses a queue of another context.
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

    /// Whether both are the same kernel of the driver, with the same parameters.
    pub(crate) fn same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    pub(crate) fn refuse(&self, problem: LaunchProblem) -> Error {
        Error::Launch {
            kernel: self.0.name.clone(),
            problem,
        }
    }

    /// Checks a launch against the device and the kernel, and opts in to shared memory beyond the default.
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

    /// Checks what a launch asks for beside blocks, threads and shared memory.
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
                return refuse("the device has no clusters");
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
            return refuse("the device has no cooperative launches");
        }
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

    /// What does not fit of a launch that does not.
    #[cold]
    fn misfit(&self, config: &LaunchConfig, threads: u32) -> Error {
        let limits = self.context().limits();
        let beyond = |got: [u32; 3], limit: [u32; 3]| {
            let axis = (0..3).find(|i| got[*i] == 0 || got[*i] > limit[*i])?;
            Some((['x', 'y', 'z'][axis], got[axis], limit[axis]))
        };
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
        let (limit, registers) = (self.0.max_threads, self.0.registers);
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
        let (fixed, limit) = (
            self.0.fixed_shared,
            self.context().device().properties().shared_per_block,
        );
        if u64::from(dynamic) + u64::from(fixed) > u64::from(limit) {
            return Err(self.refuse(LaunchProblem::Shared {
                dynamic,
                fixed,
                limit,
            }));
        }
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

    /// Asks the driver to give shared memory all that it can of what it shares with the first-level cache, as a
    /// launch with more than the default does by itself. Kernels that are to overlap should agree on it: a
    /// multiprocessor changes the split only when it is idle.
    ///
    /// # Errors
    /// What the driver refuses.
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
        // SAFETY: the function is loaded.
        unsafe {
            cu_if_there!(
                self.context().driver(),
                cuFuncSetAttribute(self.0.raw, attribute, value)
            )
        }?;
        Ok(())
    }
}

impl FunctionInner {
    /// Compares the declared parameters with what the driver loaded, where it tells.
    fn check_params(&self) -> Result<(), Error> {
        let driver = self.module.context().driver();
        let Some(info) = driver.api().cuFuncGetParamInfo else {
            return Ok(());
        };
        // The driver is asked for no parameter that is not there: tools that watch it report such calls as errors.
        let count = ptx::param_count(self.module.text(), &self.name).unwrap_or(self.params.len());
        let mut end: usize = 0;
        for index in 0..count.max(self.params.len()) {
            let (mut offset, mut size) = (0, 0);
            let mut loaded = index < count;
            if loaded {
                // SAFETY: both numbers are ours to write, and the call writes them or refuses.
                let code = unsafe { info(self.raw, index, &mut offset, &mut size) };
                // This code says that there is no such parameter.
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
                let (declared, loaded) = (place(expected), place(found));
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

    /// Loads lazily loaded code now, so that a later launch in a capture need not.
    fn load_now(&self) -> Result<(), Error> {
        let driver = self.module.context().driver();
        let Some(load) = driver.api().cuFuncLoad else {
            return Ok(());
        };
        // SAFETY: the function is of a loaded module.
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

/// # Safety
/// The function is of a loaded module of the context, which is current.
unsafe fn attribute_of(
    context: &Context,
    raw: CUfunction,
    attribute: CUfunction_attribute,
) -> Result<u32, DriverError> {
    let mut value = 0;
    // SAFETY: `value` is ours to write; the caller vouches for the function.
    unsafe {
        cu!(
            context.driver(),
            cuFuncGetAttribute(&mut value, attribute, raw)
        )
    }?;
    Ok(value as u32)
}
