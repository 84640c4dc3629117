//! Blocking copies, and accesses to memory that the host and the device use at the same time.

use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicU8, AtomicU16, AtomicU32, AtomicU64};

use driver_sys::CUdeviceptr;

use crate::device::Context;
use crate::error::Error;
use crate::lifetime::work_wait::wait_for_work;

/// Copies from the host to the device and waits.
///
/// # Safety
/// `to` must be device memory of at least `from.len()` bytes that no running work uses.
pub(super) unsafe fn upload(context: &Context, to: CUdeviceptr, from: &[u8]) -> Result<(), Error> {
    let _current = context.enter()?;
    let driver = context.driver();
    let stream = context.transfer();

    // SAFETY: the caller guarantees `to`. `from` lives until the wait returns.
    unsafe {
        cu!(
            driver,
            cuMemcpyHtoDAsync_v2(to, from.as_ptr().cast(), from.len(), stream)
        )?;
        wait_for_work(driver, stream)?;
    }
    Ok(())
}

/// Copies from the device to the host and waits.
///
/// # Safety
/// `from` must be device memory of at least `to.len()` bytes that no running work writes.
pub(super) unsafe fn download(
    context: &Context,
    to: &mut [u8],
    from: CUdeviceptr,
) -> Result<(), Error> {
    let _current = context.enter()?;
    let driver = context.driver();
    let stream = context.transfer();

    // SAFETY: the caller guarantees `from`. `to` lives until the wait returns.
    unsafe {
        cu!(
            driver,
            cuMemcpyDtoHAsync_v2(to.as_mut_ptr().cast(), from, to.len(), stream)
        )?;
        wait_for_work(driver, stream)?;
    }
    Ok(())
}

/// Fills device memory with zeros and waits.
///
/// # Safety
/// `to` must be device memory of at least `bytes` bytes that no running work uses.
pub(super) unsafe fn clear(context: &Context, to: CUdeviceptr, bytes: usize) -> Result<(), Error> {
    let _current = context.enter()?;
    let driver = context.driver();
    let stream = context.transfer();
    // SAFETY: the caller guarantees `to`, and the call takes no host memory.
    unsafe {
        cu!(driver, cuMemsetD8Async(to, 0, bytes, stream))?;
        wait_for_work(driver, stream)?;
    }
    Ok(())
}

/// Calls `$access` with the largest atomic type whose size divides both the address and the length:
/// 8, 4, 2 or 1 bytes.
macro_rules! by_widest {
    ($shared:ident, $bytes:ident, $access:ident) => {
        match ($shared as usize | $bytes).trailing_zeros() {
            0 => $access!(AtomicU8, u8),
            1 => $access!(AtomicU16, u16),
            2 => $access!(AtomicU32, u32),
            _ => $access!(AtomicU64, u64),
        }
    };
}

/// Reads bytes that other host threads and the device may write at the same time.
///
/// # Safety
/// - Both pointers must refer to at least `bytes` bytes.
/// - `to` must not be accessed by other threads.
#[inline] // Slices of pinned memory are read element by element.
pub(super) unsafe fn read_atomic(shared: *mut u8, to: *mut u8, bytes: usize) {
    macro_rules! read {
        ($atomic:ident, $int:ident) => {
            for i in 0..bytes / size_of::<$int>() {
                // SAFETY: the caller guarantees the sizes. `by_widest` has chosen a type for which
                // the shared address is aligned. The other one need not be aligned.
                unsafe {
                    let value = (*shared.cast::<$atomic>().add(i)).load(Relaxed);
                    to.cast::<$int>().add(i).write_unaligned(value);
                }
            }
        };
    }
    by_widest!(shared, bytes, read);
}

/// Writes bytes that other host threads and the device may access at the same time.
///
/// # Safety
/// - Both pointers must refer to at least `bytes` bytes.
/// - `from` must not be written by other threads.
#[inline]
pub(super) unsafe fn write_atomic(shared: *mut u8, from: *const u8, bytes: usize) {
    macro_rules! write {
        ($atomic:ident, $int:ident) => {
            for i in 0..bytes / size_of::<$int>() {
                // SAFETY: the caller guarantees the sizes. `by_widest` has chosen a type for which
                // the shared address is aligned. The other one need not be aligned.
                unsafe {
                    let value = from.cast::<$int>().add(i).read_unaligned();
                    (*shared.cast::<$atomic>().add(i)).store(value, Relaxed);
                }
            }
        };
    }
    by_widest!(shared, bytes, write);
}
