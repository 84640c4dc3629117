//! Failures that a test injects: of a call, of a kernel, or of the device.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, PoisonError};

use warpwright_driver_sys::{Api, CUresult};

use crate::error::{Result, refuse, require};

/// The failures to inject.
#[derive(Default)]
pub(crate) struct Failures {
    /// Whether there are any, so that calls can skip the lock.
    any: AtomicBool,
    rules: Mutex<Rules>,
}

#[derive(Default)]
struct Rules {
    calls: Vec<CallFailure>,
    kernels: Vec<(String, CUresult)>,
    lost: Option<DeviceLoss>,
}

/// A call that fails once.
struct CallFailure {
    call: String,
    /// The number of calls until it fails. 1 is the next call.
    left: u64,
    code: CUresult,
}

/// The loss of the device.
struct DeviceLoss {
    /// The number of calls that still succeed.
    left: u64,
    code: CUresult,
}

/// The decision about a call before it runs.
pub(crate) enum CallVerdict {
    Runs,
    Fails(CUresult),
    /// The device is lost with this code.
    Lost(CUresult),
}

impl Failures {
    fn lock(&self) -> MutexGuard<'_, Rules> {
        self.rules.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn add(&self, add: impl FnOnce(&mut Rules)) {
        add(&mut self.lock());
        self.any.store(true, Relaxed);
    }

    /// Makes the `nth` call of `call` fail once.
    pub(crate) fn of_call(&self, call: &str, nth: u64, code: CUresult) {
        self.add(|rules| {
            rules.calls.push(CallFailure {
                call: call.into(),
                left: nth.max(1),
                code,
            })
        });
    }

    /// Makes every launch of a kernel fail.
    pub(crate) fn of_kernel(&self, kernel: &str, code: CUresult) {
        self.add(|rules| rules.kernels.push((kernel.into(), code)));
    }

    /// Makes every call fail after `after` more calls.
    pub(crate) fn of_device(&self, after: u64, code: CUresult) {
        self.add(|rules| rules.lost = Some(DeviceLoss { left: after, code }));
    }

    /// Counts a call and decides whether it fails.
    pub(crate) fn judge(&self, call: &str) -> CallVerdict {
        if !self.any.load(Relaxed) {
            return CallVerdict::Runs;
        }

        let mut rules = self.lock();
        if let Some(loss) = &mut rules.lost {
            match loss.left.checked_sub(1) {
                Some(left) => loss.left = left,
                None => return CallVerdict::Lost(loss.code),
            }
        }

        for failure in rules
            .calls
            .iter_mut()
            .filter(|f| f.call == call && f.left > 0)
        {
            failure.left -= 1;
            if failure.left == 0 {
                return CallVerdict::Fails(failure.code);
            }
        }

        CallVerdict::Runs
    }

    /// Returns the code with which launches of a kernel fail, if they do.
    pub(crate) fn code_of(&self, kernel: &str) -> Option<CUresult> {
        if !self.any.load(Relaxed) {
            return None;
        }
        self.lock()
            .kernels
            .iter()
            .find(|(name, _)| name == kernel)
            .map(|(_, code)| *code)
    }

    /// Reads rules that are separated by `;`:
    ///
    /// - `call NAME NTH CODE`: the NTH call of NAME from now on fails once.
    /// - `kernel NAME CODE`: every launch of the kernel NAME fails.
    /// - `lost AFTER CODE`: after AFTER more calls, every call fails.
    ///
    /// Calls are counted after the `cuInit` that reads the rules. CODE is a number or a name of
    /// `cuda.h`, such as `CUDA_ERROR_OUT_OF_MEMORY`.
    ///
    /// # Errors
    /// Returns an error that quotes the malformed rule.
    pub(crate) fn read(&self, text: &str) -> Result {
        for rule in text
            .split(';')
            .map(str::trim)
            .filter(|rule| !rule.is_empty())
        {
            self.read_rule(rule)?;
        }
        Ok(())
    }

    fn read_rule(&self, rule: &str) -> Result {
        let words: Vec<&str> = rule.split_whitespace().collect();
        match words[..] {
            ["call", call, nth, code] => {
                require(Api::function(call).is_some(), || {
                    format!("`{rule}`: unknown function {call}")
                })?;
                self.of_call(call, number(rule, nth)?, named(rule, code)?);
            }
            ["kernel", kernel, code] => self.of_kernel(kernel, named(rule, code)?),
            ["lost", after, code] => self.of_device(number(rule, after)?, named(rule, code)?),
            _ => {
                let text = format!(
                    "invalid rule `{rule}`: expected `call NAME NTH CODE`, `kernel NAME CODE` or `lost AFTER CODE`"
                );
                return refuse(CUresult::INVALID_VALUE, text);
            }
        }
        Ok(())
    }
}

fn number(rule: &str, text: &str) -> Result<u64> {
    text.parse().or_else(|_| {
        refuse(
            CUresult::INVALID_VALUE,
            format!("`{rule}`: {text} is not a number"),
        )
    })
}

/// Returns the code with this number or name.
fn named(rule: &str, text: &str) -> Result<CUresult> {
    let known = CUresult::ALL.iter().copied();
    let found = known.clone().find(|code| code.name() == Some(text));
    let found = found.or_else(|| text.parse().ok().map(CUresult));
    match found {
        Some(code) if code != CUresult::SUCCESS => Ok(code),
        _ => refuse(
            CUresult::INVALID_VALUE,
            format!("`{rule}`: {text} is not an error code"),
        ),
    }
}
