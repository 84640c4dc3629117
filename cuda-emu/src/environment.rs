//! What the shared library reads of its environment, and a program that links the emulator never does.

use std::path::PathBuf;

use crate::config::Checks;

/// The variable with failures to inject, see [`crate::failures::Failures::read`].
pub(crate) const FAILURES: &str = "WARPWRIGHT_EMU_FAIL";

/// The variable with the file that launches and findings are reported to, see [`crate::report`].
pub(crate) const REPORT: &str = "WARPWRIGHT_EMU_REPORT";

/// The variable with checks that are asked for, see [`Checks::read`].
pub(crate) const CHECKS: &str = "WARPWRIGHT_EMU_CHECKS";

/// The checks that the environment asks for; the word that is none.
pub(crate) fn checks() -> Option<Result<Checks, String>> {
    std::env::var_os(CHECKS).map(|value| Checks::read(&value.to_string_lossy()))
}

/// The file of the report, if one is asked for.
pub(crate) fn report() -> Option<PathBuf> {
    std::env::var_os(REPORT).filter(|file| !file.is_empty()).map(PathBuf::from)
}

/// The failures that the environment asks for.
pub(crate) fn failures() -> Option<String> {
    std::env::var_os(FAILURES).map(|value| value.to_string_lossy().into_owned())
}
