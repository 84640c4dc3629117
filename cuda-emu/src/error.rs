//! The error of a call or of a piece of work: an error code of the driver and a sentence.

use warpwright_driver_sys::CUresult;

use crate::report::Details;

/// The error of a call or of a piece of work.
#[derive(Debug)]
pub(crate) struct Error {
    /// The code for the caller. If work of a stream fails, it becomes the sticky error of the
    /// context.
    pub(crate) code: CUresult,
    /// The sentence for the log. It is empty if the code alone is clear.
    pub(crate) text: String,
    /// Additional data for the report.
    pub(crate) details: Details,
}

impl Error {
    pub(crate) fn new(code: CUresult, text: impl Into<String>) -> Self {
        Self {
            code,
            text: text.into(),
            details: Details::default(),
        }
    }
}

impl Error {
    /// Returns the same error with other details for the report.
    pub(crate) fn with(self, details: Details) -> Self {
        Self { details, ..self }
    }
}

impl From<CUresult> for Error {
    fn from(code: CUresult) -> Self {
        Self::new(code, "")
    }
}

/// The result of a function of the API.
pub(crate) type Result<T = (), E = Error> = std::result::Result<T, E>;

/// Returns an error with a reason.
pub(crate) fn refuse<T>(code: CUresult, why: impl Into<String>) -> Result<T> {
    Err(Error::new(code, why))
}

/// Returns the error INVALID_VALUE unless the condition holds.
pub(crate) fn require(holds: bool, why: impl FnOnce() -> String) -> Result {
    if holds {
        Ok(())
    } else {
        Err(Error::new(CUresult::INVALID_VALUE, why()))
    }
}
