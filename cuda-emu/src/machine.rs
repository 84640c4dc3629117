//! The one emulated driver of the process: its device, its objects, the failures injected into it.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, PoisonError, RwLock, TryLockError};

use warpwright_driver_sys::CUresult;

use crate::config::EmulatorConfig;
use crate::device::Device;
use crate::environment;
use crate::error::{Error, Result, refuse};
use crate::failures::Verdict;
use crate::ffi::host::in_host_function;
use crate::report::Report;
use crate::state::State;

/// Calls that the driver serves before `cuInit`.
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

/// The emulated driver. It lives as long as the process, as its device does.
pub(crate) struct Machine {
    pub(crate) device: &'static Device,
    initialised: AtomicBool,
    state: Mutex<State>,
}

static MACHINE: RwLock<Option<&'static Machine>> = RwLock::new(None);

/// The machine, with the default configuration when nobody configured one.
pub(crate) fn current() -> &'static Machine {
    if let Some(machine) = *MACHINE.read().unwrap_or_else(PoisonError::into_inner) {
        return machine;
    }
    let mut slot = MACHINE.write().unwrap_or_else(PoisonError::into_inner);
    slot.get_or_insert_with(|| Machine::leak(EmulatorConfig::default()))
}

/// The machine, if there is one.
pub(crate) fn started() -> Option<&'static Machine> {
    *MACHINE.read().unwrap_or_else(PoisonError::into_inner)
}

/// Starts over with a machine that is not initialised yet: call it before `cuInit`.
///
/// Called again, later, it abandons the former machine: its handles are stale and its memory stays allocated,
/// since the program may hold addresses of it. That is for tests.
pub fn configure(config: EmulatorConfig) {
    link();
    start_over(config);
}

/// As [`configure`], for a program that does not link the emulator.
pub(crate) fn start_over(config: EmulatorConfig) {
    *MACHINE.write().unwrap_or_else(PoisonError::into_inner) = Some(Machine::leak(config));
}

/// Whether the emulator is linked into the program, which then configures it, and not the environment.
static LINKED: AtomicBool = AtomicBool::new(false);

/// Notes that the program links the emulator.
pub(crate) fn link() {
    LINKED.store(true, Relaxed);
}

/// The faults found since the last call, in full text: device faults, races between graph nodes, panics.
pub fn findings() -> Vec<String> {
    current().device.log.take_findings()
}

/// Makes the `nth` call of `call` from now on (1 is the next) fail with `code`, once. `call` is the exported name.
pub fn inject(call: &str, nth: u64, code: CUresult) {
    current().device.failures.of_call(call, nth, code);
}

/// Makes every launch of the kernel of that name fail with `code` from now on. A code of a device fault comes back as a
/// fault does, from a later call, and stays; any other from the call that launches.
pub fn inject_kernel(kernel: &str, code: CUresult) {
    current().device.failures.of_kernel(kernel, code);
}

/// Takes the devices away: `after` more calls work, then every call fails with `code`, and work that waits is dropped.
pub fn inject_device_loss(after: u64, code: CUresult) {
    current().device.failures.of_device(after, code);
}

impl Machine {
    fn leak(config: EmulatorConfig) -> &'static Self {
        let device = Device::leak(config);
        Box::leak(Box::new(Self {
            device,
            initialised: AtomicBool::new(false),
            state: Mutex::new(State::new(device)),
        }))
    }

    /// Every object of the driver. Workers never take this lock, but calls do: never wait for work while holding it.
    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The same when the process ends, unless some thread has the lock.
    pub(crate) fn state_at_exit(&self) -> Option<MutexGuard<'_, State>> {
        match self.state.try_lock() {
            Ok(state) => Some(state),
            Err(TryLockError::Poisoned(state)) => Some(state.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    /// Starts the driver, with what the environment asks for unless the program links the emulator.
    pub(crate) fn initialise(&self) -> Result {
        if !LINKED.load(Relaxed) {
            self.read_environment()?;
        }
        self.initialised.store(true, Relaxed);
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
                    "{}: there is no check `{word}`, but arithmetic and provenance",
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
        let Some(file) = environment::report().filter(|_| self.device.report.get().is_none())
        else {
            return Ok(());
        };
        match Report::open(&file, self.device.config.compute_capability) {
            Ok(report) => self.device.start_report(report),
            Err(error) => {
                let text = format!("{}: {}: {error}", environment::REPORT, file.display());
                return refuse(CUresult::INVALID_VALUE, text);
            }
        }
        Ok(())
    }

    /// Whether a call may run at all.
    pub(crate) fn admit(&self, call: &'static str) -> Result {
        if !BEFORE_INIT.contains(&call) || call == "cuInit" {
            self.fail_if_injected(call)?;
        }
        if in_host_function() {
            return refuse(
                CUresult::NOT_PERMITTED,
                "a host function must not call the driver",
            );
        }
        if !self.initialised.load(Relaxed) && !BEFORE_INIT.contains(&call) {
            return Err(Error::from(CUresult::NOT_INITIALIZED));
        }
        Ok(())
    }

    fn fail_if_injected(&self, call: &str) -> Result {
        match self.device.failures.judge(call) {
            Verdict::Runs => Ok(()),
            Verdict::Fails(code) => refuse(code, "this failure was injected"),
            Verdict::Lost(code) => {
                self.state()
                    .contexts
                    .iter()
                    .for_each(|(_, context)| context.sticky.set(code));
                refuse(code, "the device is lost; this failure was injected")
            }
        }
    }
}
