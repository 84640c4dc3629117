//! The emulated driver of the process: its devices, its objects and the failures injected into it.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, PoisonError, RwLock, TryLockError};

use warpwright_driver_sys::CUresult;

use crate::config::EmulatorConfig;
use crate::device::EmulatedDevice;
use crate::environment;
use crate::error::{Error, Result, refuse};
use crate::failures::CallVerdict;
use crate::ffi::host::in_host_function;
use crate::report::RunReport;
use crate::state::DriverState;

/// The calls that work before `cuInit`.
const BEFORE_INIT: &[&str] = &[
    "cuInit",
    "cuDriverGetVersion",
    "cuGetErrorName",
    "cuGetErrorString",
    "cuGetProcAddress",
    "cuGetProcAddress_v2",
    "cuGetExportTable",
    "cuLogsDumpToMemory",
    "cuLogsCurrent",
];

/// The emulated driver. It lives until the process ends, as its devices do.
pub(crate) struct Machine {
    pub(crate) device: &'static EmulatedDevice,
    initialized: AtomicBool,
    state: Mutex<DriverState>,
}

static MACHINE: RwLock<Option<&'static Machine>> = RwLock::new(None);

/// Returns the machine. Creates one with the default configuration if there is none.
pub(crate) fn current() -> &'static Machine {
    if let Some(machine) = *MACHINE.read().unwrap_or_else(PoisonError::into_inner) {
        return machine;
    }
    let mut slot = MACHINE.write().unwrap_or_else(PoisonError::into_inner);
    slot.get_or_insert_with(|| Machine::leak(EmulatorConfig::default()))
}

/// Returns the machine, if there is one.
pub(crate) fn started() -> Option<&'static Machine> {
    *MACHINE.read().unwrap_or_else(PoisonError::into_inner)
}

/// Starts a new machine with this configuration. Call it before `cuInit`.
///
/// A later call abandons the former machine, which is meant for tests. All handles of the former
/// machine become stale. Its memory stays allocated, because the program may still have its
/// addresses.
pub fn configure(config: EmulatorConfig) {
    link();
    start_over(config);
}

/// Starts a new machine, for a program that does not link the emulator.
pub(crate) fn start_over(config: EmulatorConfig) {
    *MACHINE.write().unwrap_or_else(PoisonError::into_inner) = Some(Machine::leak(config));
}

/// Whether the program links the emulator. If so, the program configures it, and not the
/// environment.
static LINKED: AtomicBool = AtomicBool::new(false);

/// Records that the program links the emulator.
pub(crate) fn link() {
    LINKED.store(true, Relaxed);
}

/// Returns the findings since the last call as full reports, and removes them.
///
/// Findings are device faults, races, missing edges of graphs, and panics of the emulator.
///
/// # Example
/// ```
/// use warpwright_cuda_emu::{api, findings};
///
/// let driver = api();
/// // SAFETY: the call takes no pointer.
/// unsafe { (driver.cuInit)(0) };
/// assert!(findings().is_empty());
/// ```
pub fn findings() -> Vec<String> {
    current().device.log.take_findings()
}

/// Makes the `nth` call of the function `call` fail once with `code`.
///
/// `call` is the exported name, for example `cuMemAlloc_v2`. Calls are counted from now on, so 1 is
/// the next call.
///
/// # Example: an allocation that fails
/// ```
/// use warpwright_cuda_emu::{api, inject};
/// use warpwright_driver_sys::CUresult;
///
/// let driver = api();
/// inject("cuInit", 1, CUresult::OUT_OF_MEMORY);
/// // SAFETY: the calls take no pointer.
/// assert_eq!(unsafe { (driver.cuInit)(0) }, CUresult::OUT_OF_MEMORY);
/// assert_eq!(unsafe { (driver.cuInit)(0) }, CUresult::SUCCESS);
/// ```
pub fn inject(call: &str, nth: u64, code: CUresult) {
    current().device.failures.of_call(call, nth, code);
}

/// Makes every later launch of the kernel with this name fail with `code`.
///
/// If `code` is that of a device fault, a later call returns it and the error stays, as with a real
/// fault. Any other code is returned by the call that launches.
pub fn inject_kernel(kernel: &str, code: CUresult) {
    current().device.failures.of_kernel(kernel, code);
}

/// Takes the devices away: after `after` more calls, every call fails with `code`. Pending work is
/// dropped.
pub fn inject_device_loss(after: u64, code: CUresult) {
    current().device.failures.of_device(after, code);
}

impl Machine {
    fn leak(config: EmulatorConfig) -> &'static Self {
        let device = EmulatedDevice::leak(config);
        Box::leak(Box::new(Self {
            device,
            initialized: AtomicBool::new(false),
            state: Mutex::new(DriverState::new(device)),
        }))
    }

    /// Returns the objects of the driver, locked.
    ///
    /// Calls take this lock and workers do not, so never wait for work while holding it.
    pub(crate) fn state(&self) -> MutexGuard<'_, DriverState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the objects when the process ends, unless a thread holds the lock.
    pub(crate) fn state_at_exit(&self) -> Option<MutexGuard<'_, DriverState>> {
        match self.state.try_lock() {
            Ok(state) => Some(state),
            Err(TryLockError::Poisoned(state)) => Some(state.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    /// Initializes the driver, with the settings of the environment unless the program links the
    /// emulator.
    pub(crate) fn initialize(&self) -> Result {
        if !LINKED.load(Relaxed) {
            self.read_environment()?;
        }
        self.initialized.store(true, Relaxed);
        Ok(())
    }

    fn read_environment(&self) -> Result {
        if let Some(Err(error)) =
            environment::failures().map(|rules| self.device.failures.read(&rules))
        {
            let text = format!("{} is malformed: {}", environment::FAILURES, error.text);
            return refuse(error.code, text);
        }

        match environment::checks() {
            Some(Err(word)) => {
                let text = format!(
                    "{}: unknown check `{word}`: expected arithmetic or provenance",
                    environment::CHECKS
                );
                return refuse(CUresult::INVALID_VALUE, text);
            }
            Some(Ok(checks)) => self.device.ask(checks),
            None => {}
        }

        match environment::limits(self.device.config.limits) {
            Ok(limits) => self.device.limit(limits),
            Err(variable) => {
                let text = format!("{variable}: expected a number of seconds above 0, or `none`");
                return refuse(CUresult::INVALID_VALUE, text);
            }
        }

        // `cuInit` may be called again, and the report must not be started twice.
        let Some(file) = environment::report().filter(|_| self.device.report.get().is_none())
        else {
            return Ok(());
        };

        match RunReport::open(&file, self.device.config.compute_capability) {
            Ok(report) => self.device.start_report(report),
            Err(error) => {
                let text = format!("{}: {}: {error}", environment::REPORT, file.display());
                return refuse(CUresult::INVALID_VALUE, text);
            }
        }

        Ok(())
    }

    /// Returns an error if the call must not run now.
    pub(crate) fn admit(&self, call: &'static str) -> Result {
        // Calls that work before `cuInit` are not counted for injected failures, except `cuInit`.
        if !BEFORE_INIT.contains(&call) || call == "cuInit" {
            self.fail_if_injected(call)?;
        }

        if in_host_function() {
            return refuse(
                CUresult::NOT_PERMITTED,
                "a host function must not call the driver",
            );
        }

        if !self.initialized.load(Relaxed) && !BEFORE_INIT.contains(&call) {
            return Err(Error::from(CUresult::NOT_INITIALIZED));
        }

        Ok(())
    }

    fn fail_if_injected(&self, call: &str) -> Result {
        match self.device.failures.judge(call) {
            CallVerdict::Runs => Ok(()),
            CallVerdict::Fails(code) => refuse(code, "this failure was injected"),
            CallVerdict::Lost(code) => {
                for (_, context) in self.state().contexts.iter() {
                    context.sticky.set(code);
                }
                refuse(code, "the device is lost; this failure was injected")
            }
        }
    }
}
