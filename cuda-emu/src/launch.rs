//! Launches: what the driver checks before a kernel runs.

#![allow(unsafe_code)]

use std::ffi::{c_uint, c_void};
use std::sync::Arc;

use warpwright_driver_sys::*;

use crate::device::{MAX_BLOCK, MAX_GRID, MAX_THREADS};
use crate::ffi::{In, Out, Result, exports, pack, refuse, require, unpack_extra};
use crate::machine::Machine;
use crate::module::Function;
use crate::state::State;
use crate::work::{KernelWork, Work};

exports! {
    required {
        4000 cuLaunchKernel cuLaunchKernel(function: CUfunction, grid_x: c_uint, grid_y: c_uint, grid_z: c_uint, block_x: c_uint, block_y: c_uint, block_z: c_uint, shared: c_uint, stream: CUstream, params: *mut *mut c_void, extra: *mut *mut c_void) => launch;
    }
    optional {
        11060 cuLaunchKernelEx cuLaunchKernelEx(config: *const CUlaunchConfig, function: CUfunction, params: *mut *mut c_void, extra: *mut *mut c_void) => launch_with_config;
    }
    more {}
}

/// Grid, block and dynamic shared memory of a launch.
#[derive(Clone, Copy)]
pub(crate) struct Geometry {
    pub(crate) grid: [u32; 3],
    pub(crate) block: [u32; 3],
    pub(crate) shared: u32,
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
    let stream = s.stream(m, stream)?;
    let kernel = s.kernel_work(function, geometry, params, extra)?;
    s.submit(stream, Work::Kernel(Arc::new(kernel))).map(drop)
}

impl State {
    /// A kernel ready to run, checked as the driver checks a launch.
    pub(crate) fn kernel_work(
        &self,
        function: CUfunction,
        geometry: Geometry,
        params: Out<*mut c_void>,
        extra: Out<*mut c_void>,
    ) -> Result<KernelWork> {
        let function = self.function(function)?;
        check_geometry(function, geometry)?;
        let params = packed(function, params, extra)?;
        let Geometry { grid, block, shared } = geometry;
        Ok(KernelWork { function: Arc::clone(function), grid, block, shared, params })
    }
}

fn check_geometry(f: &Function, g: Geometry) -> Result {
    let name = &f.kernel.name;
    let within =
        |dims: [u32; 3], most: [u32; 3]| dims.iter().zip(most).all(|(&d, most)| (1..=most).contains(&d));
    require(within(g.grid, MAX_GRID), || {
        format!("{name}: a grid of {:?}, at least 1, at most {MAX_GRID:?}", g.grid)
    })?;
    require(within(g.block, MAX_BLOCK), || {
        format!("{name}: a block of {:?}, at least 1, at most {MAX_BLOCK:?}", g.block)
    })?;
    let threads: u32 = g.block.iter().product();
    require(threads <= MAX_THREADS, || {
        format!("{name}: a block of {threads} threads, at most {MAX_THREADS}")
    })?;
    if let Some(required) = f.kernel.reqntid {
        require(g.block == required, || {
            format!("{name}: a block of {:?}, but .reqntid is {required:?}", g.block)
        })?;
    }
    let most = f.max_threads();
    require(threads <= most, || format!("{name}: a block of {threads} threads, but .maxntid allows {most}"))?;
    let room = f.dynamic_shared();
    require(g.shared <= room, || {
        format!(
            "{name}: {} bytes of dynamic shared memory, at most {room}; \
             MAX_DYNAMIC_SHARED_SIZE_BYTES of the function raises that",
            g.shared
        )
    })
}

/// The parameter buffer of a launch, from `kernelParams` or `extra`.
fn packed(f: &Function, params: Out<*mut c_void>, extra: Out<*mut c_void>) -> Result<Box<[u8]>> {
    require(params.is_null() || extra.is_null(), || "kernelParams and extra are both set".into())?;
    if extra.is_null() {
        return pack(params, &f.params);
    }
    let mut buffer = unpack_extra(extra)?;
    let bytes = f.params.iter().map(|(offset, size)| offset + size).max().unwrap_or(0);
    require(buffer.len() >= bytes, || {
        format!(
            "{}: extra holds {} bytes of parameters, the kernel takes {bytes}",
            f.kernel.name,
            buffer.len()
        )
    })?;
    buffer.truncate(bytes);
    Ok(buffer.into_boxed_slice())
}
