//! Kernel launches, with and without attributes.

use std::ffi::{c_uint, c_void};
use std::sync::Arc;

use warpwright_driver_sys::*;

use crate::api::export::exports;
use crate::api::node_params::cluster_of;
use crate::error::{Result, refuse, require};
use crate::ffi::kernel_node::LaunchGeometry;
use crate::ffi::pointer::{In, Out};
use crate::machine::Machine;
use crate::queue::Task;
use crate::state::capture;
use crate::work::StreamWork;

exports! {
    table {
        4000 cuLaunchKernel cuLaunchKernel(function: CUfunction, grid_x: c_uint, grid_y: c_uint, grid_z: c_uint, block_x: c_uint, block_y: c_uint, block_z: c_uint, shared: c_uint, stream: CUstream, params: *mut *mut c_void, extra: *mut *mut c_void) => launch;
        11060 cuLaunchKernelEx cuLaunchKernelEx(config: *const CUlaunchConfig, function: CUfunction, params: *mut *mut c_void, extra: *mut *mut c_void) => launch_with_config;
        9000 cuLaunchCooperativeKernel cuLaunchCooperativeKernel(function: CUfunction, grid_x: c_uint, grid_y: c_uint, grid_z: c_uint, block_x: c_uint, block_y: c_uint, block_z: c_uint, shared: c_uint, stream: CUstream, params: *mut *mut c_void) => launch_together;
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
    let geometry = LaunchGeometry {
        grid: [grid_x, grid_y, grid_z],
        block: [block_x, block_y, block_z],
        shared,
    };
    run(
        m,
        function,
        geometry,
        stream,
        params,
        extra,
        (Together::No, None),
    )
}

#[allow(clippy::too_many_arguments)]
fn launch_together(
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
) -> Result {
    let geometry = LaunchGeometry {
        grid: [grid_x, grid_y, grid_z],
        block: [block_x, block_y, block_z],
        shared,
    };
    run(
        m,
        function,
        geometry,
        stream,
        params,
        Out::null(),
        (Together::Yes, None),
    )
}

/// Whether all blocks of a launch run at the same time.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Together {
    Yes,
    No,
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
    let geometry = LaunchGeometry {
        grid: [c.gridDimX, c.gridDimY, c.gridDimZ],
        block: [c.blockDimX, c.blockDimY, c.blockDimZ],
        shared: c.sharedMemBytes,
    };
    let asks =
        |a: &CUlaunchAttribute| a.id == CUlaunchAttributeID::COOPERATIVE && a.value[0] as u32 != 0;
    let together = if attributes.iter().any(asks) {
        Together::Yes
    } else {
        Together::No
    };

    // If an attribute occurs twice, the last one counts.
    let cluster = attributes
        .iter()
        .rfind(|a| a.id == CUlaunchAttributeID::CLUSTER_DIMENSION);
    let cluster = cluster.map(|a| cluster_of(a.value[0], a.value[1]));
    require(together == Together::No || extra.is_null(), || {
        "a cooperative launch needs its parameters in kernelParams".into()
    })?;
    run(
        m,
        function,
        geometry,
        c.hStream,
        params,
        extra,
        (together, cluster),
    )?;
    attributes
        .iter()
        .try_for_each(|attribute| record(m, c.hStream, attribute))
}

/// Records the event of a launch that the driver records when the blocks have begun or triggered
/// it.
///
/// Here it is recorded when the launch has ended, which is later than necessary but never too
/// early.
fn record(m: &'static Machine, stream: CUstream, attribute: &CUlaunchAttribute) -> Result {
    use CUlaunchAttributeID as A;
    if !matches!(
        attribute.id,
        A::PROGRAMMATIC_EVENT | A::LAUNCH_COMPLETION_EVENT
    ) {
        return Ok(());
    }

    let mut s = m.state();
    let event = s
        .events
        .find(CUevent(attribute.value[0] as usize as *mut c_void))?;
    let stream = s.stream(stream)?;
    if s.streams[stream].capture.is_some() {
        return capture::record_event(&mut s, stream, event);
    }

    let reach = s.events[event].cell.record();
    s.events[event].captured = None;
    s.enqueue(stream, Task::Mark(reach)).map(drop)
}

/// Returns an error for unsupported attributes. Hints and programmatic launches are accepted,
/// because a launch may start early but need not.
fn check_attribute(attribute: &CUlaunchAttribute) -> Result {
    use CUlaunchAttributeID as A;
    match attribute.id {
        A::DEVICE_UPDATABLE_KERNEL_NODE if attribute.value[0] as u32 != 0 => refuse(
            CUresult::NOT_SUPPORTED,
            format!("launch attribute {:?} is not emulated", attribute.id),
        ),
        CUlaunchAttributeID(0..=14) => Ok(()),
        other => refuse(
            CUresult::INVALID_VALUE,
            format!("unknown launch attribute {}", other.0),
        ),
    }
}

fn run(
    m: &'static Machine,
    function: CUfunction,
    geometry: LaunchGeometry,
    stream: CUstream,
    params: Out<*mut c_void>,
    extra: Out<*mut c_void>,
    (together, cluster): (Together, Option<[u32; 3]>),
) -> Result {
    let mut s = m.state();
    let stream = s.stream(stream)?;
    let mut kernel = s.kernel_work(function, geometry, params, extra)?;
    s.refuse_injected(&kernel.function.kernel.name)?;
    if let Some(cluster) = cluster {
        kernel = s.clustered(kernel, cluster)?;
    }
    if together == Together::Yes {
        kernel = s.cooperative(kernel)?;
    }

    s.submit(stream, StreamWork::Kernel(Arc::new(kernel)))
        .map(drop)
}
