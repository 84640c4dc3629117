//! The access window of a stream, which is a hint for the L2 cache.

use driver_sys::{CUlaunchAttributeID, CUlaunchAttributeValue};

use crate::error::Error;
use crate::memory::AccessWindow;
use crate::stream::Stream;

impl Stream {
    /// Sets the access window for kernels that are queued in this stream from now on, or removes
    /// it.
    ///
    /// # Errors
    /// Returns [`Error::Transfer`] if the window is larger than the device allows or its fraction
    /// is not between 0 and 1, or an error if the driver cannot set the window.
    pub fn set_access_window(&self, window: Option<&AccessWindow>) -> Result<(), Error> {
        let mut value = CUlaunchAttributeValue::zeroed();
        if let Some(window) = window {
            window.expect_on(self.context().device())?;
            value.words[..4].copy_from_slice(&window.words());
        }

        let _current = self.context().enter()?;
        let driver = self.context().driver();
        let raw = self.raw();
        let id = CUlaunchAttributeID::ACCESS_POLICY_WINDOW;

        // SAFETY: `self` shares the stream, and `value` lives until the call returns.
        Ok(unsafe { cu_optional!(driver, cuStreamSetAttribute(raw, id, &value)) }?)
    }

    /// Returns the access window of this stream, if it has one.
    ///
    /// # Errors
    /// Returns an error if the driver does not report the window.
    pub fn access_window(&self) -> Result<Option<AccessWindow>, Error> {
        let mut value = CUlaunchAttributeValue::zeroed();
        let _current = self.context().enter()?;
        let driver = self.context().driver();
        let raw = self.raw();
        let id = CUlaunchAttributeID::ACCESS_POLICY_WINDOW;

        // SAFETY: `self` shares the stream, and `value` is a local variable that the driver may
        // write.
        unsafe { cu_optional!(driver, cuStreamGetAttribute(raw, id, &mut value)) }?;
        let [a, b, c, d, ..] = value.words;
        Ok(Some(AccessWindow::from_words([a, b, c, d])).filter(|window| window.bytes() > 0))
    }
}
