//! The environment variables of the shared library. A program that links the emulator never reads
//! them.

use std::path::PathBuf;

use crate::config::{Checks, Limits};

/// The variable with failures to inject. See [`crate::failures::Failures::read`].
pub(crate) const FAILURES: &str = "WARPWRIGHT_EMU_FAIL";

/// The variable with the file of the report. See [`crate::report`].
pub(crate) const REPORT: &str = "WARPWRIGHT_EMU_REPORT";

/// The variable with additional checks. See [`Checks::read`].
pub(crate) const CHECKS: &str = "WARPWRIGHT_EMU_CHECKS";

/// The variable with the time limit of launches. See [`Limits::read`].
pub(crate) const TIME_LIMIT: &str = "WARPWRIGHT_EMU_TIME_LIMIT";
/// The variable with the limit of waits of launches. See [`Limits::read`].
pub(crate) const WAIT_LIMIT: &str = "WARPWRIGHT_EMU_WAIT_LIMIT";

/// Returns the limits of the environment, or those of `limits` where a variable is not set.
///
/// # Errors
/// Returns the name of the variable that is malformed.
pub(crate) fn limits(mut limits: Limits) -> Result<Limits, &'static str> {
    for (variable, limit) in [
        (TIME_LIMIT, &mut limits.time),
        (WAIT_LIMIT, &mut limits.wait),
    ] {
        let Some(value) = std::env::var_os(variable) else {
            continue;
        };
        *limit = Limits::read(&value.to_string_lossy()).map_err(|_| variable)?;
    }
    Ok(limits)
}

/// Returns the checks of the environment, or the word that is not the name of a check.
pub(crate) fn checks() -> Option<Result<Checks, String>> {
    std::env::var_os(CHECKS).map(|value| Checks::read(&value.to_string_lossy()))
}

/// Returns the file of the report, if one is requested.
pub(crate) fn report() -> Option<PathBuf> {
    std::env::var_os(REPORT)
        .filter(|file| !file.is_empty())
        .map(PathBuf::from)
}

/// Returns the rules for failures to inject.
pub(crate) fn failures() -> Option<String> {
    std::env::var_os(FAILURES).map(|value| value.to_string_lossy().into_owned())
}
