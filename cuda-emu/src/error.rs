//! The error of a call and of a piece of work: a code of the driver and a sentence.

use warpwright_driver_sys::CUresult;

use crate::report::Details;

/// Why a call or a piece of work failed.
#[derive(Debug)]
pub(crate) struct Error {
    /// The code for the caller. After work that ran on a stream it becomes the sticky error of the context.
    pub(crate) code: CUresult,
    /// The sentence for the log; empty where the code says it all.
    pub(crate) text: String,
    /// What the report tells of it besides.
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
    /// The same error, of which the report tells more.
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

/// An error with its reason.
pub(crate) fn refuse<T>(code: CUresult, why: impl Into<String>) -> Result<T> {
    Err(Error::new(code, why))
}

/// Refuses with INVALID_VALUE unless the condition holds.
pub(crate) fn require(holds: bool, why: impl FnOnce() -> String) -> Result {
    if holds {
        Ok(())
    } else {
        Err(Error::new(CUresult::INVALID_VALUE, why()))
    }
}
