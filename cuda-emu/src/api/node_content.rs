//! What a node does, from the structure of the API that describes it.

use std::ffi::c_void;
use std::sync::Arc;

use warpwright_driver_sys::*;

use crate::device::Device;
use crate::error::{Result, refuse, require};
use crate::ffi::host::Callback;
use crate::ffi::kernel_node::{KernelParams, kernel_params};
use crate::ffi::params::node_member;
use crate::ffi::pointer::In;
use crate::graph::nodes::Content;
use crate::state::State;
use crate::work::Work;
use crate::work::copy::{CopyEnd, CopyWork, FillWork, Location};

/// A kernel node's work. The values of its parameters are copied here.
pub(crate) fn kernel_content(s: &State, p: KernelParams) -> Result<Content> {
    s.context()?;
    let kernel = s.kernel_work(p.function, p.geometry, p.params, p.extra)?;
    Ok(Content::Work(Work::Kernel(Arc::new(kernel))))
}

/// A child node works on a copy of the graph it is given.
pub(crate) fn child_content(s: &mut State, graph: CUgraph, child: CUgraph) -> Result<Content> {
    require(graph != child, || "a graph cannot be its own child".into())?;
    let child = s.graphs.find(child)?;
    Ok(Content::Child(s.copy_graph(child)))
}

pub(crate) fn record_content(s: &State, event: CUevent) -> Result<Content> {
    Ok(Content::Work(Work::Record(s.events[s.events.find(event)?].cell.clone())))
}

pub(crate) fn wait_content(s: &State, event: CUevent) -> Result<Content> {
    Ok(Content::Work(Work::Wait(s.events[s.events.find(event)?].cell.clone())))
}

/// The content that a node of any type describes: the member that `type` selects, everything past it zero.
pub(crate) fn any_content(s: &mut State, graph: Option<CUgraph>, p: &CUgraphNodeParams) -> Result<Content> {
    use CUgraphNodeType as T;
    require(p.reserved0 == [0; 3] && p.reserved2 == 0, || "reserved bytes are not zero".into())?;
    let words = words_of(p.r#type)?;
    require(p.params[words..].iter().all(|&word| word == 0), || {
        "bytes past the used member are not zero".into()
    })?;
    let handle = p.params[0] as usize as *mut c_void;
    match p.r#type {
        T::KERNEL => kernel_content(s, kernel_params::<CUDA_KERNEL_NODE_PARAMS_v2>(node_member(p, 0))?),
        T::MEMCPY => copy_content(s.device, node_member(p, 2)),
        T::MEMSET => fill_content(s.device, node_member(p, 0)),
        T::HOST => host_content(node_member(p, 0)),
        T::GRAPH => match graph {
            Some(graph) => child_content(s, graph, CUgraph(handle)),
            None => refuse(CUresult::INVALID_VALUE, "a child graph cannot be changed"),
        },
        T::WAIT_EVENT => wait_content(s, CUevent(handle)),
        T::EVENT_RECORD => record_content(s, CUevent(handle)),
        _ => Ok(Content::Work(Work::Empty)),
    }
}

/// The words of the member that a type selects, with what precedes it in the union.
fn words_of(kind: CUgraphNodeType) -> Result<usize> {
    use CUgraphNodeType as T;
    Ok(match kind {
        T::KERNEL => 9,
        T::MEMCPY => 27,
        T::MEMSET => 6,
        T::HOST => 4,
        T::GRAPH => 2,
        T::EMPTY => 0,
        T::WAIT_EVENT => 1,
        T::EVENT_RECORD => 2,
        other => return refuse(CUresult::NOT_SUPPORTED, format!("nodes of type {other:?} are not emulated")),
    })
}

/// The content of a host node.
pub(crate) fn host_content(params: In<CUDA_HOST_NODE_PARAMS_v1>) -> Result<Content> {
    Ok(Content::Work(Work::Host(Callback::of_node(&params.get()?)?)))
}

/// The content of a copy node.
pub(crate) fn copy_content(device: &Device, params: In<CUDA_MEMCPY3D_v2>) -> Result<Content> {
    Ok(Content::Work(Work::Copy(copy_of(device, &params.get()?)?)))
}

/// The content of a fill node.
pub(crate) fn fill_content(device: &Device, params: In<CUDA_MEMSET_NODE_PARAMS_v1>) -> Result<Content> {
    Ok(Content::Work(Work::Fill(fill_of(device, &params.get()?)?)))
}

/// Where a copy in a graph lies: the node runs later, so nothing is staged.
fn end(
    device: &Device,
    kind: CUmemorytype,
    host: u64,
    device_address: u64,
    offset: usize,
    shape: (usize, usize),
) -> Result<CopyEnd> {
    let address = match kind {
        CUmemorytype::HOST => host,
        CUmemorytype::DEVICE | CUmemorytype::UNIFIED => device_address,
        other => return refuse(CUresult::NOT_SUPPORTED, format!("memory of type {other:?} is not emulated")),
    };
    let address = address.wrapping_add(offset as u64);
    let place = match kind {
        CUmemorytype::DEVICE => Location::Device(address),
        CUmemorytype::HOST if address == 0 => return refuse(CUresult::INVALID_VALUE, "host memory at NULL"),
        _ => Location::of(device, address),
    };
    Ok(CopyEnd { place, pitch: shape.0, slice: shape.0 * shape.1 })
}

/// The copy that a `CUDA_MEMCPY3D` describes.
fn copy_of(device: &Device, p: &CUDA_MEMCPY3D_v2) -> Result<CopyWork> {
    let offset = |x, y, z, pitch: usize, height: usize| x + (z * height + y) * pitch;
    let from = offset(p.srcXInBytes, p.srcY, p.srcZ, p.srcPitch, p.srcHeight);
    let to = offset(p.dstXInBytes, p.dstY, p.dstZ, p.dstPitch, p.dstHeight);
    let copy = CopyWork {
        from: end(device, p.srcMemoryType, p.srcHost as u64, p.srcDevice, from, (p.srcPitch, p.srcHeight))?,
        to: end(device, p.dstMemoryType, p.dstHost as u64, p.dstDevice, to, (p.dstPitch, p.dstHeight))?,
        width: p.WidthInBytes,
        height: p.Height,
        depth: p.Depth,
    };
    let rows = copy.height <= 1 || p.srcPitch.min(p.dstPitch) >= copy.width;
    let slices = copy.depth <= 1 || p.srcHeight.min(p.dstHeight) >= copy.height;
    require(copy.width * copy.height * copy.depth > 0, || "a copy of no bytes".into())?;
    require(rows && slices, || "rows or slices of the copy overlap".into())?;
    copy.check(device)?;
    Ok(copy)
}

/// The fill that a memset node describes.
fn fill_of(device: &Device, p: &CUDA_MEMSET_NODE_PARAMS_v1) -> Result<FillWork> {
    let (size, width, height) = (p.elementSize as usize, p.width, p.height);
    let fill = FillWork { to: p.dst, pitch: p.pitch, value: p.value, size, width, height };
    require(width * height > 0, || "a fill of no bytes".into())?;
    require(height == 1 || p.pitch >= width * size, || "rows of the fill overlap".into())?;
    fill.check(device)?;
    Ok(fill)
}
