//! The two versions of the structure for kernel nodes.

use std::ffi::c_void;

use warpwright_driver_sys::*;

use crate::error::Result;
use crate::ffi::params::ExposedParams;
use crate::ffi::pointer::{In, Out};

/// The grid, the block and the dynamic shared memory of a launch.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct LaunchGeometry {
    pub(crate) grid: [u32; 3],
    pub(crate) block: [u32; 3],
    pub(crate) shared: u32,
}

/// The parameters of a kernel node, independent of the version.
pub(crate) struct KernelParams<'a> {
    pub(crate) function: CUfunction,
    pub(crate) geometry: LaunchGeometry,
    pub(crate) params: Out<'a, *mut c_void>,
    pub(crate) extra: Out<'a, *mut c_void>,
}

/// A version of the structure for kernel nodes.
pub(crate) trait KernelNodeVersion: Copy {
    /// Returns the kernel of a library, which is used if the function is NULL.
    fn library_kernel(&self) -> CUkernel {
        CUkernel::NULL
    }

    /// Returns the fields that every version has.
    fn common(&self) -> CUDA_KERNEL_NODE_PARAMS_v1;
    /// Returns the structure with these fields and zero for all others.
    fn of_common(common: CUDA_KERNEL_NODE_PARAMS_v1) -> Self;

    /// Returns the structure with the parameters of a node, for the program.
    fn filled(func: CUfunction, geometry: LaunchGeometry, params: &ExposedParams) -> Self {
        let LaunchGeometry {
            grid,
            block,
            shared,
        } = geometry;
        let [gridDimX, gridDimY, gridDimZ] = grid;
        let [blockDimX, blockDimY, blockDimZ] = block;
        Self::of_common(CUDA_KERNEL_NODE_PARAMS_v1 {
            func,
            gridDimX,
            gridDimY,
            gridDimZ,
            blockDimX,
            blockDimY,
            blockDimZ,
            sharedMemBytes: shared,
            kernelParams: params.pointers(),
            extra: std::ptr::null_mut(),
        })
    }
}

impl KernelNodeVersion for CUDA_KERNEL_NODE_PARAMS_v1 {
    fn common(&self) -> Self {
        *self
    }

    fn of_common(common: Self) -> Self {
        common
    }
}

impl KernelNodeVersion for CUDA_KERNEL_NODE_PARAMS_v2 {
    fn library_kernel(&self) -> CUkernel {
        self.kern
    }

    fn common(&self) -> CUDA_KERNEL_NODE_PARAMS_v1 {
        let Self {
            func,
            gridDimX,
            gridDimY,
            gridDimZ,
            blockDimX,
            blockDimY,
            blockDimZ,
            sharedMemBytes,
            ..
        } = *self;
        CUDA_KERNEL_NODE_PARAMS_v1 {
            func,
            gridDimX,
            gridDimY,
            gridDimZ,
            blockDimX,
            blockDimY,
            blockDimZ,
            sharedMemBytes,
            kernelParams: self.kernelParams,
            extra: self.extra,
        }
    }

    fn of_common(common: CUDA_KERNEL_NODE_PARAMS_v1) -> Self {
        let CUDA_KERNEL_NODE_PARAMS_v1 {
            func,
            gridDimX,
            gridDimY,
            gridDimZ,
            blockDimX,
            blockDimY,
            blockDimZ,
            sharedMemBytes,
            kernelParams,
            extra,
        } = common;
        Self {
            func,
            gridDimX,
            gridDimY,
            gridDimZ,
            blockDimX,
            blockDimY,
            blockDimZ,
            sharedMemBytes,
            kernelParams,
            extra,
            kern: CUkernel::NULL,
            ctx: CUcontext::NULL,
        }
    }
}

/// Reads the parameters of a kernel node. The arrays inside are read later, when the work is
/// created.
pub(crate) fn kernel_params<'a, P: KernelNodeVersion>(
    params: In<'a, P>,
) -> Result<KernelParams<'a>> {
    let given = params.get()?;
    let p = given.common();

    // `DriverState::function` accepts the handle of a library's kernel as that of a function.
    let function = if p.func.is_null() {
        CUfunction(given.library_kernel().0)
    } else {
        p.func
    };
    let geometry = LaunchGeometry {
        grid: [p.gridDimX, p.gridDimY, p.gridDimZ],
        block: [p.blockDimX, p.blockDimY, p.blockDimZ],
        shared: p.sharedMemBytes,
    };
    Ok(KernelParams {
        function,
        geometry,
        params: Out::inner(p.kernelParams),
        extra: Out::inner(p.extra),
    })
}
