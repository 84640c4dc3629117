//! Conversion of kernels and fills to the driver's node parameters.

use std::ffi::c_void;

use driver_sys::{
    CUDA_KERNEL_NODE_PARAMS_v2, CUDA_MEMSET_NODE_PARAMS_v1, CUgraphNodeParams_kernel,
    CUgraphNodeType,
};

use crate::launch::{Launch, LaunchConfig};
use crate::module::Function;
use crate::stream::MemoryFill;
use crate::stream::queue::FillShape;

/// Passes a launch to `call` as the parameters of a kernel node. The driver copies them.
#[inline]
pub(crate) fn with_kernel_params<R>(
    launch: &Launch,
    call: impl FnOnce(*const CUDA_KERNEL_NODE_PARAMS_v2) -> R,
) -> R {
    let config = launch.config();
    launch.with_params(|params| call(&kernel_params(launch.function(), &config, params)))
}

/// Returns the parameters of a kernel node with these arguments.
#[inline]
pub(super) fn kernel_params(
    function: &Function,
    config: &LaunchConfig,
    params: *mut *mut c_void,
) -> CUDA_KERNEL_NODE_PARAMS_v2 {
    CUDA_KERNEL_NODE_PARAMS_v2 {
        func: function.raw(),
        gridDimX: config.grid[0],
        gridDimY: config.grid[1],
        gridDimZ: config.grid[2],
        blockDimX: config.block[0],
        blockDimY: config.block[1],
        blockDimZ: config.block[2],
        sharedMemBytes: config.shared,
        kernelParams: params,
        ..CUDA_KERNEL_NODE_PARAMS_v2::zeroed()
    }
}

/// Returns the driver's parameters of a fill.
pub(super) fn memset_params(fill: &MemoryFill) -> CUDA_MEMSET_NODE_PARAMS_v1 {
    let (value, element_size) = fill.value();
    let all = FillShape {
        pitch: 0,
        columns: fill.count(),
        rows: 1,
    };
    let FillShape {
        pitch,
        columns,
        rows,
    } = *fill.shape().unwrap_or(&all);
    CUDA_MEMSET_NODE_PARAMS_v1 {
        dst: fill.to().address(),
        pitch,
        value,
        elementSize: element_size,
        width: columns,
        height: rows,
    }
}

/// Returns the parameters of a kernel node in the form for nodes of any kind. They are valid while
/// the arguments of the kernel are.
///
/// # Safety
/// `kernel` must point to the parameters of a kernel.
pub(super) unsafe fn any_kernel(
    kernel: *const CUDA_KERNEL_NODE_PARAMS_v2,
) -> CUgraphNodeParams_kernel {
    CUgraphNodeParams_kernel {
        r#type: CUgraphNodeType::KERNEL,
        // SAFETY: the caller guarantees that the pointer is valid.
        kernel: unsafe { *kernel },
        ..CUgraphNodeParams_kernel::zeroed()
    }
}
