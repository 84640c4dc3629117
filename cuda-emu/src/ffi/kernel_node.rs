//! The two versions of the structure that describes a kernel node.

use std::ffi::c_void;

use warpwright_driver_sys::*;

use crate::error::Result;
use crate::ffi::params::ExposedParams;
use crate::ffi::pointer::{In, Out};

/// Grid, block and dynamic shared memory of a launch.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Geometry {
    pub(crate) grid: [u32; 3],
    pub(crate) block: [u32; 3],
    pub(crate) shared: u32,
}

/// The parameters of a kernel node, of either version.
pub(crate) struct KernelParams<'a> {
    pub(crate) function: CUfunction,
    pub(crate) geometry: Geometry,
    pub(crate) params: Out<'a, *mut c_void>,
    pub(crate) extra: Out<'a, *mut c_void>,
}

/// A version of the structure that describes a kernel node.
pub(crate) trait KernelNode: Copy {
    /// The kernel of a library, which counts where the function is NULL.
    fn library_kernel(&self) -> CUkernel {
        CUkernel::NULL
    }

    /// The fields that every version has.
    fn common(&self) -> CUDA_KERNEL_NODE_PARAMS_v1;
    /// The structure with those fields, the rest zero.
    fn of_common(common: CUDA_KERNEL_NODE_PARAMS_v1) -> Self;

    /// The structure that shows a node its parameters.
    fn filled(func: CUfunction, geometry: Geometry, params: &ExposedParams) -> Self {
        let Geometry {
            grid,
            block,
            shared,
        } = geometry;
        let ([gridDimX, gridDimY, gridDimZ], [blockDimX, blockDimY, blockDimZ]) = (grid, block);
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

impl KernelNode for CUDA_KERNEL_NODE_PARAMS_v1 {
    fn common(&self) -> Self {
        *self
    }

    fn of_common(common: Self) -> Self {
        common
    }
}

impl KernelNode for CUDA_KERNEL_NODE_PARAMS_v2 {
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
        let (kernelParams, extra) = (self.kernelParams, self.extra);
        CUDA_KERNEL_NODE_PARAMS_v1 {
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
        }
    }

    fn of_common(common: CUDA_KERNEL_NODE_PARAMS_v1) -> Self {
        let CUDA_KERNEL_NODE_PARAMS_v1 {
            func,
            gridDimX,
            gridDimY,
            gridDimZ,
            blockDimX,
            ..
        } = common;
        let CUDA_KERNEL_NODE_PARAMS_v1 {
            blockDimY,
            blockDimZ,
            sharedMemBytes,
            kernelParams,
            extra,
            ..
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

/// Reads the parameters of a kernel node; the arrays they point to are read when the work is made.
pub(crate) fn kernel_params<'a, P: KernelNode>(params: In<'a, P>) -> Result<KernelParams<'a>> {
    let given = params.get()?;
    let p = given.common();
    // The handle of a library's kernel serves as that of a function.
    let function = if p.func.is_null() {
        CUfunction(given.library_kernel().0)
    } else {
        p.func
    };
    let geometry = Geometry {
        grid: [p.gridDimX, p.gridDimY, p.gridDimZ],
        block: [p.blockDimX, p.blockDimY, p.blockDimZ],
        shared: p.sharedMemBytes,
    };
    let (params, extra) = (Out::inner(p.kernelParams), Out::inner(p.extra));
    Ok(KernelParams {
        function,
        geometry,
        params,
        extra,
    })
}
