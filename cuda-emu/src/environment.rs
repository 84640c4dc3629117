//! What the shared library reads of its environment, and a program that links the emulator never does.

use std::path::PathBuf;

use crate::config::{Checks, Limits};

/// The variable with failures to inject, see [`crate::failures::Failures::read`].
pub(crate) const FAILURES: &str = "WARPWRIGHT_EMU_FAIL";

/// The variable with the file that launches and findings are reported to, see [`crate::report`].
pub(crate) const REPORT: &str = "WARPWRIGHT_EMU_REPORT";

/// The variable with checks that are asked for, see [`Checks::read`].
pub(crate) const CHECKS: &str = "WARPWRIGHT_EMU_CHECKS";

/// The variables with the time limits of launches, see [`Limits::read`].
pub(crate) const TIME_LIMIT: &str = "WARPWRIGHT_EMU_TIME_LIMIT";
pub(crate) const WAIT_LIMIT: &str = "WARPWRIGHT_EMU_WAIT_LIMIT";

/// Returns the limits that the environment sets, over the given ones, or the variable that is malformed.
pub(crate) fn limits(mut limits: Limits) -> Result<Limits, &'static str> {
    for (variable, limit) in [
        (TIME_LIMIT, &mut limits.time),
        (WAIT_LIMIT, &mut limits.wait),
    ] {
        let Some(value) = std::env::var_os(variable) else {
            continue;
        };
        *limit = Limits::read(&value.to_string_lossy()).ok_or(variable)?;
    }
    Ok(limits)
}

/// The checks that the environment asks for; the word that is none.
pub(crate) fn checks() -> Option<Result<Checks, String>> {
    std::env::var_os(CHECKS).map(|value| Checks::read(&value.to_string_lossy()))
}

/// The file of the report, if one is asked for.
pub(crate) fn report() -> Option<PathBuf> {
    std::env::var_os(REPORT)
        .filter(|file| !file.is_empty())
        .map(PathBuf::from)
}

/// The failures that the environment asks for.
pub(crate) fn failures() -> Option<String> {
    std::env::var_os(FAILURES).map(|value| value.to_string_lossy().into_owned())
}
