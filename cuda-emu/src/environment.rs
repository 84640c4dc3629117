//! What the shared library reads of its environment, and a program that links the emulator never does.

/// The variable with failures to inject, see [`crate::failures::Failures::read`].
pub(crate) const FAILURES: &str = "WARPWRIGHT_EMU_FAIL";

/// The failures that the environment asks for.
pub(crate) fn failures() -> Option<String> {
    std::env::var_os(FAILURES).map(|value| value.to_string_lossy().into_owned())
}
