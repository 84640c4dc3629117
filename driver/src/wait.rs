//! A wait that does not end before the work.

use driver_sys::{CUresult, CUstream};

use crate::{Driver, DriverError};

/// Waits for work that uses what the caller takes back after it. Where the driver refuses to wait, the work may still
/// run, and there is nothing to do but to ask until it is done.
///
/// # Safety
/// The stream is alive and captures nothing.
pub(crate) unsafe fn wait_for_work(driver: &Driver, stream: CUstream) -> Result<(), DriverError> {
    // SAFETY: the caller vouches for the stream.
    let waited = unsafe { cu!(driver, cuStreamSynchronize(stream)) };
    if waited
        .as_ref()
        .is_err_and(|error| !error.code.is_device_fault())
    {
        // SAFETY: as above.
        ask_until_over(|| unsafe { (driver.api().cuStreamQuery)(stream) });
    }
    waited
}

/// Asks until the work is done or the device lost. A driver that only gives errors is given up.
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
