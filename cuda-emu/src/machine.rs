//! The one emulated driver of the process: its memory, its objects, its log.

use std::collections::VecDeque;
use std::env;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, PoisonError, RwLock};

use ptx_emu::Memory;
use warpwright_driver_sys::CUresult;

use crate::config::EmulatorConfig;
use crate::ffi::{Error, Result, refuse};
use crate::queue;
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

/// Entries that the log keeps.
const LOG_LENGTH: usize = 256;

/// The emulated driver. It lives as long as the process, because its pinned memory is known to the program by address.
pub(crate) struct Machine {
    pub(crate) config: EmulatorConfig,
    pub(crate) memory: Memory,
    initialised: AtomicBool,
    state: Mutex<State>,
    log: Mutex<Log>,
    injecting: AtomicBool,
    rules: Mutex<Vec<InjectedFailure>>,
}

/// What went wrong, newest last.
#[derive(Default)]
struct Log {
    entries: VecDeque<String>,
    /// Entries dropped from the front, so that a place in the log stays a place.
    dropped: u32,
    /// Findings that nobody has fetched.
    findings: Vec<String>,
}

/// A call that is to fail.
struct InjectedFailure {
    call: String,
    /// Calls left until it fails; 1 is the next one.
    left: u64,
    code: CUresult,
}

static MACHINE: RwLock<Option<&'static Machine>> = RwLock::new(None);

/// The machine, made from the environment when nobody configured one.
pub(crate) fn current() -> &'static Machine {
    if let Some(machine) = *MACHINE.read().unwrap_or_else(PoisonError::into_inner) {
        return machine;
    }
    let mut slot = MACHINE.write().unwrap_or_else(PoisonError::into_inner);
    slot.get_or_insert_with(|| Machine::leak(EmulatorConfig::from_env(), rules_from_env()))
}

/// Starts over with a machine that is not initialised yet: call it before `cuInit`.
///
/// Called again, later, it abandons the former machine: its handles are stale and its memory stays allocated,
/// since the program may hold addresses of it. That is for tests.
pub fn configure(config: EmulatorConfig) {
    *MACHINE.write().unwrap_or_else(PoisonError::into_inner) = Some(Machine::leak(config, Vec::new()));
}

/// The faults found since the last call, in full text: device faults, races between graph nodes, panics.
pub fn findings() -> Vec<String> {
    std::mem::take(&mut current().lock_log().findings)
}

/// Makes the `nth` call of `call` from now on (1 is the next) fail with `code`, once. `call` is the exported name.
pub fn inject(call: &str, nth: u64, code: CUresult) {
    let machine = current();
    machine.lock_rules().push(InjectedFailure { call: call.into(), left: nth.max(1), code });
    machine.injecting.store(true, Relaxed);
}

/// `WARPWRIGHT_EMU_FAIL="cuMemAlloc_v2:3:2,cuInit:1:100"`: call, which one, code.
fn rules_from_env() -> Vec<InjectedFailure> {
    let text = env::var("WARPWRIGHT_EMU_FAIL").unwrap_or_default();
    let rule = |part: &str| {
        let mut fields = part.trim().split(':');
        let call = fields.next()?.to_string();
        let left = fields.next()?.parse::<u64>().ok()?.max(1);
        let code = CUresult(fields.next()?.parse().ok()?);
        Some(InjectedFailure { call, left, code })
    };
    text.split(',').filter_map(rule).collect()
}

impl Machine {
    fn leak(config: EmulatorConfig, rules: Vec<InjectedFailure>) -> &'static Self {
        let memory = Memory::new(config.memory);
        Box::leak(Box::new(Self {
            config,
            memory,
            initialised: AtomicBool::new(false),
            state: Mutex::default(),
            log: Mutex::default(),
            injecting: AtomicBool::new(!rules.is_empty()),
            rules: Mutex::new(rules),
        }))
    }

    /// Every object of the driver. Workers never take this lock, so waiting under it would end; do not.
    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn initialise(&self) {
        self.initialised.store(true, Relaxed);
    }

    /// Whether a call may run at all.
    pub(crate) fn admit(&self, call: &'static str) -> Result {
        if self.injecting.load(Relaxed) {
            self.injected(call)?;
        }
        if queue::in_host_function() {
            return refuse(CUresult::NOT_PERMITTED, "a host function must not call the driver");
        }
        if !self.initialised.load(Relaxed) && !BEFORE_INIT.contains(&call) {
            return Err(Error::from(CUresult::NOT_INITIALIZED));
        }
        Ok(())
    }

    fn injected(&self, call: &str) -> Result {
        let mut rules = self.lock_rules();
        for rule in rules.iter_mut().filter(|rule| rule.call == call && rule.left > 0) {
            rule.left -= 1;
            if rule.left == 0 {
                return refuse(rule.code, "this failure was injected");
            }
        }
        Ok(())
    }

    /// Adds an entry to the log.
    pub(crate) fn log(&self, text: String) {
        let mut log = self.lock_log();
        log.entries.push_back(text);
        if log.entries.len() > LOG_LENGTH {
            log.entries.pop_front();
            log.dropped += 1;
        }
    }

    /// Adds a finding, which is an entry of the log as well.
    pub(crate) fn finding(&self, text: String) {
        self.lock_log().findings.push(text.clone());
        self.log(text);
    }

    /// The entries from a place in the log on, and the place of its end.
    pub(crate) fn entries(&self, from: u32) -> (Vec<String>, u32) {
        let log = self.lock_log();
        let skip = from.saturating_sub(log.dropped) as usize;
        (log.entries.iter().skip(skip).cloned().collect(), log.dropped + log.entries.len() as u32)
    }

    fn lock_log(&self) -> MutexGuard<'_, Log> {
        self.log.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn lock_rules(&self) -> MutexGuard<'_, Vec<InjectedFailure>> {
        self.rules.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
