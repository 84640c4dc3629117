//! Launches of kernels.

use std::ffi::{c_uint, c_void};
use std::sync::Arc;

use warpwright_driver_sys::*;

use crate::api::export::exports;
use crate::error::{Result, refuse};
use crate::ffi::kernel_node::Geometry;
use crate::ffi::pointer::{In, Out};
use crate::machine::Machine;
use crate::work::Work;

exports! {
    table {
        4000 cuLaunchKernel cuLaunchKernel(function: CUfunction, grid_x: c_uint, grid_y: c_uint, grid_z: c_uint, block_x: c_uint, block_y: c_uint, block_z: c_uint, shared: c_uint, stream: CUstream, params: *mut *mut c_void, extra: *mut *mut c_void) => launch;
        11060 cuLaunchKernelEx cuLaunchKernelEx(config: *const CUlaunchConfig, function: CUfunction, params: *mut *mut c_void, extra: *mut *mut c_void) => launch_with_config;
    }
    more {}
}

#[allow(clippy::too_many_arguments)]
fn launch(
    m: &'static Machine,
    function: CUfunction,
    grid_x: c_uint,
    grid_y: c_uint,
    grid_z: c_uint,
    block_x: c_uint,
    block_y: c_uint,
    block_z: c_uint,
    shared: c_uint,
    stream: CUstream,
    params: Out<*mut c_void>,
    extra: Out<*mut c_void>,
) -> Result {
    let geometry = Geometry { grid: [grid_x, grid_y, grid_z], block: [block_x, block_y, block_z], shared };
    run(m, function, geometry, stream, params, extra)
}

fn launch_with_config(
    m: &'static Machine,
    config: In<CUlaunchConfig>,
    function: CUfunction,
    params: Out<*mut c_void>,
    extra: Out<*mut c_void>,
) -> Result {
    let c = config.get()?;
    let attributes = Out::from_config(&c).slice(c.numAttrs as usize)?;
    attributes.iter().try_for_each(check_attribute)?;
    let geometry = Geometry {
        grid: [c.gridDimX, c.gridDimY, c.gridDimZ],
        block: [c.blockDimX, c.blockDimY, c.blockDimZ],
        shared: c.sharedMemBytes,
    };
    run(m, function, geometry, c.hStream, params, extra)
}

/// Hints are accepted. A programmatic launch is, too: it may start early but need not. What changes the meaning of a
/// kernel, a cluster or a cooperative grid, is not emulated.
fn check_attribute(attribute: &CUlaunchAttribute) -> Result {
    use CUlaunchAttributeID as A;
    let asks = attribute.value[0] as u32 != 0;
    match attribute.id {
        A::COOPERATIVE if asks => refuse(CUresult::NOT_SUPPORTED, "cooperative launches are not emulated"),
        A::CLUSTER_DIMENSION if attribute.value[0] != 1 << 32 | 1 || attribute.value[1] as u32 != 1 => {
            refuse(CUresult::NOT_SUPPORTED, "clusters of more than one block are not emulated")
        }
        A::PROGRAMMATIC_EVENT | A::LAUNCH_COMPLETION_EVENT | A::DEVICE_UPDATABLE_KERNEL_NODE => {
            refuse(CUresult::NOT_SUPPORTED, format!("launch attribute {:?} is not emulated", attribute.id))
        }
        CUlaunchAttributeID(0..=14) => Ok(()),
        other => refuse(CUresult::INVALID_VALUE, format!("there is no launch attribute {}", other.0)),
    }
}

fn run(
    m: &'static Machine,
    function: CUfunction,
    geometry: Geometry,
    stream: CUstream,
    params: Out<*mut c_void>,
    extra: Out<*mut c_void>,
) -> Result {
    let mut s = m.state();
    let stream = s.stream(stream)?;
    let kernel = s.kernel_work(function, geometry, params, extra)?;
    s.submit(stream, Work::Kernel(Arc::new(kernel))).map(drop)
}
