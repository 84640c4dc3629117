//! Copies that the caller waits for, and memory that the host and the device use at the same time.

use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicU8, AtomicU16, AtomicU32, AtomicU64};

use driver_sys::CUdeviceptr;

use crate::wait::wait_for_work;
use crate::{Context, Error};

/// Copies from the host and waits.
///
/// # Safety
/// `to` is device memory of at least `from.len()` bytes.
pub(super) unsafe fn upload(context: &Context, to: CUdeviceptr, from: &[u8]) -> Result<(), Error> {
    let (_current, driver, stream) = (context.enter()?, context.driver(), context.transfer());
    // SAFETY: the caller vouches for `to`; `from` lives until the wait returns.
    unsafe {
        cu!(
            driver,
            cuMemcpyHtoDAsync_v2(to, from.as_ptr().cast(), from.len(), stream)
        )?;
        wait_for_work(driver, stream)?;
    }
    Ok(())
}

/// Copies to the host and waits.
///
/// # Safety
/// `from` is device memory of at least `to.len()` bytes.
pub(super) unsafe fn download(
    context: &Context,
    to: &mut [u8],
    from: CUdeviceptr,
) -> Result<(), Error> {
    let (_current, driver, stream) = (context.enter()?, context.driver(), context.transfer());
    // SAFETY: the caller vouches for `from`; `to` lives until the wait returns.
    unsafe {
        cu!(
            driver,
            cuMemcpyDtoHAsync_v2(to.as_mut_ptr().cast(), from, to.len(), stream)
        )?;
        wait_for_work(driver, stream)?;
    }
    Ok(())
}

/// Fills with zeros and waits.
///
/// # Safety
/// `to` is device memory of at least `bytes` bytes.
pub(super) unsafe fn clear(context: &Context, to: CUdeviceptr, bytes: usize) -> Result<(), Error> {
    let (_current, driver, stream) = (context.enter()?, context.driver(), context.transfer());
    // SAFETY: the caller vouches for `to`.
    unsafe {
        cu!(driver, cuMemsetD8Async(to, 0, bytes, stream))?;
        wait_for_work(driver, stream)?;
    }
    Ok(())
}

/// Calls `$part` for consecutive parts of the largest size that divides address and length: 8, 4, 2 or 1 bytes.
macro_rules! by_parts {
    ($shared:ident, $bytes:ident, $part:ident) => {
        match ($shared as usize | $bytes).trailing_zeros() {
            0 => $part!(AtomicU8, u8),
            1 => $part!(AtomicU16, u16),
            2 => $part!(AtomicU32, u32),
            _ => $part!(AtomicU64, u64),
        }
    };
}

/// Reads bytes that other threads of the host and the device may write.
///
/// # Safety
/// Both pointers have that many bytes, and `to` is the caller's.
pub(super) unsafe fn read_atomic(shared: *mut u8, to: *mut u8, bytes: usize) {
    macro_rules! read {
        ($atomic:ident, $int:ident) => {
            for i in 0..bytes / size_of::<$int>() {
                // SAFETY: part `i` is within both, and the shared one is aligned; the other need not be.
                unsafe {
                    let value = (*shared.cast::<$atomic>().add(i)).load(Relaxed);
                    to.cast::<$int>().add(i).write_unaligned(value);
                }
            }
        };
    }
    by_parts!(shared, bytes, read);
}

/// Writes bytes that other threads of the host and the device may use.
///
/// # Safety
/// Both pointers have that many bytes.
pub(super) unsafe fn write_atomic(shared: *mut u8, from: *const u8, bytes: usize) {
    macro_rules! write {
        ($atomic:ident, $int:ident) => {
            for i in 0..bytes / size_of::<$int>() {
                // SAFETY: part `i` is within both, and the shared one is aligned; the other need not be.
                unsafe {
                    let value = from.cast::<$int>().add(i).read_unaligned();
                    (*shared.cast::<$atomic>().add(i)).store(value, Relaxed);
                }
            }
        };
    }
    by_parts!(shared, bytes, write);
}
