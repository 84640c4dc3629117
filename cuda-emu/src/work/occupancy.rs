//! Occupancy: the number of blocks of a kernel that a multiprocessor can hold at the same time.

use crate::device::EmulatedDevice;
use crate::ffi::kernel_node::LaunchGeometry;
use crate::work::function::Function;

/// Returns the number of blocks that fit one multiprocessor, with `threads` threads and `dynamic`
/// bytes of dynamic shared memory each.
///
/// The limits are threads, registers, shared memory and the number of blocks. The result is 0 if
/// the function may not use that much shared memory. A multiprocessor has four partitions of 16,384
/// registers, and a warp takes registers from one partition in units of 256.
pub(crate) fn blocks(device: &EmulatedDevice, f: &Function, threads: u32, dynamic: usize) -> u32 {
    if dynamic > f.dynamic_shared() as usize {
        return 0;
    }

    let warps = threads.div_ceil(32);
    let by_threads = device.threads_per_multiprocessor() / (32 * warps);
    let of_warp = f.kernel.registers.clamp(16, 255).next_multiple_of(8) * 32;
    let by_registers = 4 * (16384 / of_warp) / warps;
    let shared = f.kernel.static_shared + dynamic as u32 + device.shared_reserved();
    let by_shared = device
        .shared_per_multiprocessor()
        .checked_div(shared)
        .unwrap_or(u32::MAX);
    by_threads
        .min(by_registers)
        .min(by_shared)
        .min(device.blocks_per_multiprocessor())
}

/// Returns the number of blocks of a launch that fit the device at the same time.
pub(crate) fn blocks_of_device(device: &EmulatedDevice, f: &Function, g: LaunchGeometry) -> u32 {
    let threads = g.block.iter().fold(1, |all: u32, n| all.saturating_mul(*n));
    blocks(device, f, threads.max(1), g.shared as usize) * device.config.multiprocessors
}

/// Returns the maximum dynamic shared memory with which `count` blocks fit one multiprocessor.
pub(crate) fn dynamic_shared(
    device: &EmulatedDevice,
    f: &Function,
    count: u32,
    threads: u32,
) -> Option<u32> {
    if blocks(device, f, threads, 0) < count {
        return None;
    }
    let fixed = f.kernel.static_shared + device.shared_reserved();
    let of_block = device.shared_per_multiprocessor() / count;
    Some(of_block.checked_sub(fixed)?.min(f.dynamic_shared()))
}
