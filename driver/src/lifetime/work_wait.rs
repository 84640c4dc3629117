//! A wait for a stream that does not return before the work is complete.

use driver_sys::{CUresult, CUstream};

use crate::error::DriverError;
use crate::lifetime::driver::Driver;

/// Waits for the work of a stream that uses memory which the caller takes back afterwards.
///
/// If the driver cannot wait, the work may still run. The memory must not be taken back then, so
/// this function polls until the work is complete.
///
/// # Errors
/// Returns the driver's error, after the work has stopped.
///
/// # Safety
/// - The stream must be alive.
/// - It must not capture.
pub(crate) unsafe fn wait_for_work(driver: &Driver, stream: CUstream) -> Result<(), DriverError> {
    // SAFETY: the caller guarantees that the stream is alive and does not capture.
    let waited = unsafe { cu!(driver, cuStreamSynchronize(stream)) };
    if waited
        .as_ref()
        .is_err_and(|error| !error.code.is_device_fault())
    {
        // SAFETY: the caller guarantees that the stream is alive. A query changes nothing.
        ask_until_over(|| unsafe { (driver.api().cuStreamQuery)(stream) });
    }
    waited
}

/// Polls until the work is complete or the device is lost. Stops after 1000 errors, because a
/// driver that returns only errors will not change its answer.
fn ask_until_over(ask: impl Fn() -> CUresult) {
    let mut errors = 0;
    while errors < 1000 {
        match ask() {
            CUresult::NOT_READY => {}
            code if code == CUresult::SUCCESS || code.is_device_fault() => return,
            _ => errors += 1,
        }
        std::thread::yield_now();
    }
}
