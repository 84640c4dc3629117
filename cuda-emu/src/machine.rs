//! The one emulated driver of the process: its device, its objects, the failures injected into it.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, PoisonError, RwLock};

use warpwright_driver_sys::CUresult;

use crate::config::EmulatorConfig;
use crate::device::Device;
use crate::error::{Error, Result, refuse};
use crate::ffi::host::in_host_function;
use crate::state::State;

/// Calls that the driver serves before `cuInit`.
const BEFORE_INIT: &[&str] = &[
    "cuInit",
    "cuDriverGetVersion",
    "cuGetErrorName",
    "cuGetErrorString",
    "cuGetProcAddress",
    "cuGetProcAddress_v2",
    "cuLogsDumpToMemory",
    "cuLogsCurrent",
];

/// The emulated driver. It lives as long as the process, as its device does.
pub(crate) struct Machine {
    pub(crate) device: &'static Device,
    initialised: AtomicBool,
    state: Mutex<State>,
    injecting: AtomicBool,
    injected: Mutex<Vec<InjectedFailure>>,
}

/// A call that is to fail.
struct InjectedFailure {
    call: String,
    /// Calls left until it fails; 1 is the next one.
    left: u64,
    code: CUresult,
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

/// Starts over with a machine that is not initialised yet: call it before `cuInit`.
///
/// Called again, later, it abandons the former machine: its handles are stale and its memory stays allocated,
/// since the program may hold addresses of it. That is for tests.
pub fn configure(config: EmulatorConfig) {
    *MACHINE.write().unwrap_or_else(PoisonError::into_inner) = Some(Machine::leak(config));
}

/// The faults found since the last call, in full text: device faults, races between graph nodes, panics.
pub fn findings() -> Vec<String> {
    current().device.log.take_findings()
}

/// Makes the `nth` call of `call` from now on (1 is the next) fail with `code`, once. `call` is the exported name.
pub fn inject(call: &str, nth: u64, code: CUresult) {
    let machine = current();
    machine.lock_injected().push(InjectedFailure { call: call.into(), left: nth.max(1), code });
    machine.injecting.store(true, Relaxed);
}

impl Machine {
    fn leak(config: EmulatorConfig) -> &'static Self {
        let device = Device::leak(config);
        Box::leak(Box::new(Self {
            device,
            initialised: AtomicBool::new(false),
            state: Mutex::new(State::new(device)),
            injecting: AtomicBool::new(false),
            injected: Mutex::default(),
        }))
    }

    /// Every object of the driver. Workers never take this lock, but calls do: never wait for work while holding it.
    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn initialise(&self) {
        self.initialised.store(true, Relaxed);
    }

    /// Whether a call may run at all.
    pub(crate) fn admit(&self, call: &'static str) -> Result {
        if self.injecting.load(Relaxed) {
            self.fail_if_injected(call)?;
        }
        if in_host_function() {
            return refuse(CUresult::NOT_PERMITTED, "a host function must not call the driver");
        }
        if !self.initialised.load(Relaxed) && !BEFORE_INIT.contains(&call) {
            return Err(Error::from(CUresult::NOT_INITIALIZED));
        }
        Ok(())
    }

    fn fail_if_injected(&self, call: &str) -> Result {
        let mut injected = self.lock_injected();
        for failure in injected.iter_mut().filter(|f| f.call == call && f.left > 0) {
            failure.left -= 1;
            if failure.left == 0 {
                return refuse(failure.code, "this failure was injected");
            }
        }
        Ok(())
    }

    fn lock_injected(&self) -> MutexGuard<'_, Vec<InjectedFailure>> {
        self.injected.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
