//! The content of graph nodes, from the structures of the API.

use std::ffi::c_void;
use std::sync::Arc;

use warpwright_driver_sys::*;

use crate::device::EmulatedDevice;
use crate::error::{Result, refuse, require};
use crate::ffi::host::Callback;
use crate::ffi::kernel_node::{KernelParams, kernel_params};
use crate::ffi::params::{access_of, node_member, operations_of};
use crate::ffi::pointer::In;
use crate::graph::nodes::{ConditionalNode, GraphContent, NodeContent};
use crate::handle::GraphId;
use crate::state::DriverState;
use crate::work::copy::{CopyEnd, CopyWork, FillWork, Location};
use crate::work::words::WordWork;
use crate::work::{GraphAllocation, StreamWork};

/// Returns the content of a kernel node. The values of its parameters are copied.
pub(crate) fn kernel_content(s: &mut DriverState, p: KernelParams) -> Result<NodeContent> {
    s.context()?;
    let kernel = s.kernel_work(p.function, p.geometry, p.params, p.extra)?;
    Ok(NodeContent::Work(StreamWork::Kernel(Arc::new(kernel))))
}

/// Returns the content of a child node, which works on a copy of the graph.
pub(crate) fn child_content(
    s: &mut DriverState,
    graph: CUgraph,
    child: CUgraph,
) -> Result<NodeContent> {
    let id = child_of(s, graph, child)?;
    require(!s.has_node(id, NodeContent::is_memory), || {
        "a graph that allocates or frees memory can only be moved into a child node".into()
    })?;
    Ok(NodeContent::Child(s.copy_graph(id)))
}

/// Returns a graph that may become a child of another.
fn child_of(s: &DriverState, graph: CUgraph, child: CUgraph) -> Result<GraphId> {
    require(graph != child, || "a graph cannot be its own child".into())?;
    let id = s.graphs.find(child)?;
    require(!s.has_node(id, NodeContent::is_conditional), || {
        "a graph with conditional nodes cannot be a child".into()
    })?;
    Ok(id)
}

/// Returns the content of a child node that may take the graph instead of copying it.
fn owned_child(
    s: &mut DriverState,
    graph: CUgraph,
    p: CUDA_CHILD_GRAPH_NODE_PARAMS,
) -> Result<NodeContent> {
    match p.ownership {
        0 => child_content(s, graph, p.graph),
        1 => {
            let id = child_of(s, graph, p.graph)?;
            require(s.graphs[id].owner.is_none(), || {
                "the graph belongs to another node".into()
            })?;
            Ok(NodeContent::Child(id))
        }
        other => refuse(
            CUresult::INVALID_VALUE,
            format!("unknown ownership {other}"),
        ),
    }
}

/// Returns the content of a conditional node, with an empty graph for each body.
fn conditional_content(
    s: &mut DriverState,
    graph: CUgraph,
    p: CUDA_CONDITIONAL_NODE_PARAMS,
) -> Result<NodeContent> {
    use CUgraphConditionalNodeType as T;
    let owner = s.graphs.find(graph)?;
    let right = match p.r#type {
        T::IF => (1..=2).contains(&p.size),
        T::WHILE => p.size == 1,
        T::SWITCH => (1..=MOST_BODIES).contains(&p.size),
        other => {
            return refuse(
                CUresult::INVALID_VALUE,
                format!("unknown conditional type {}", other.0),
            );
        }
    };
    require(right, || {
        format!(
            "invalid number of bodies {} for a node of type {:?}",
            p.size, p.r#type
        )
    })?;
    let Some(at) = s.graphs[owner]
        .conditions
        .iter()
        .position(|c| c.handle == p.handle)
    else {
        return refuse(
            CUresult::INVALID_VALUE,
            format!("the graph has no condition {:#x}", p.handle),
        );
    };

    // The API allows one conditional node per condition.
    require(!s.graphs[owner].conditions[at].used, || {
        format!("another node reads the condition {:#x}", p.handle)
    })?;
    s.graphs[owner].conditions[at].used = true;
    let body = || GraphContent {
        body: true,
        ..GraphContent::default()
    };
    let bodies: Vec<GraphId> = (0..p.size).map(|_| s.graphs.insert(body())).collect();
    let shown = bodies.iter().map(|body| body.handle()).collect();
    Ok(NodeContent::Conditional(ConditionalNode {
        handle: p.handle,
        kind: p.r#type,
        bodies,
        shown,
    }))
}

/// The maximum number of bodies of a SWITCH node here.
const MOST_BODIES: u32 = 1 << 16;

/// Returns the content of a node that allocates memory, at an address that is reserved for it.
pub(crate) fn alloc_content(
    s: &DriverState,
    p: &CUDA_MEM_ALLOC_NODE_PARAMS_v1,
) -> Result<NodeContent> {
    let CUmemPoolProps {
        allocType,
        handleTypes,
        location,
        ..
    } = p.poolProps;
    let plain = allocType == CUmemAllocationType::PINNED
        && handleTypes == CUmemAllocationHandleType::NONE
        && location.r#type == CUmemLocationType::DEVICE;
    require(plain && p.bytesize > 0, || {
        format!(
            "{} bytes of {allocType:?} memory at {:?}: expected pinned memory of a device",
            p.bytesize, location.r#type
        )
    })?;
    let device = usize::try_from(location.id)
        .ok()
        .filter(|device| *device < s.primary.len());
    let Some(device) = device else {
        return refuse(
            CUresult::INVALID_DEVICE,
            format!("device {} does not exist", location.id),
        );
    };

    if access_of(p)?
        .iter()
        .any(|access| access.location.id != location.id)
    {
        return refuse(
            CUresult::NOT_SUPPORTED,
            "access descriptors for other devices are not emulated: enable peer access of contexts",
        );
    }

    let device = device as u32;
    let bytes = p.bytesize as u64;

    // The address is fixed when the node is created. Launches allocate the memory behind it.
    let base = s
        .device
        .graph_memory
        .reserve(&s.device.memory, device, bytes)?;
    Ok(NodeContent::Work(StreamWork::Alloc(GraphAllocation {
        base,
        bytes,
        device,
    })))
}

/// Returns the content of a node that frees memory of a graph.
pub(crate) fn free_content(s: &DriverState, base: u64) -> Result<NodeContent> {
    let known = s
        .device
        .graph_memory
        .find(base)
        .is_some_and(|(at, _)| at == base);
    require(known, || {
        format!("0x{base:x} is not memory that a graph allocates")
    })?;
    Ok(NodeContent::Work(StreamWork::Free(base)))
}

/// Returns the content of a node with memory operations.
pub(crate) fn words_content(
    s: &DriverState,
    p: &CUDA_BATCH_MEM_OP_NODE_PARAMS_v1,
) -> Result<NodeContent> {
    if !p.ctx.is_null() {
        s.contexts.find(p.ctx)?;
    }
    Ok(NodeContent::Work(StreamWork::Words(WordWork::of(
        s.device,
        operations_of(p)?,
    )?)))
}

pub(crate) fn record_content(s: &DriverState, event: CUevent) -> Result<NodeContent> {
    Ok(NodeContent::Work(StreamWork::Record(
        s.events[s.events.find(event)?].cell.clone(),
    )))
}

pub(crate) fn wait_content(s: &DriverState, event: CUevent) -> Result<NodeContent> {
    Ok(NodeContent::Work(StreamWork::Wait(
        s.events[s.events.find(event)?].cell.clone(),
    )))
}

/// Returns the content of a generic node, from the union member that `type` selects. All bytes
/// after it must be zero.
pub(crate) fn any_content(
    s: &mut DriverState,
    graph: Option<CUgraph>,
    p: &CUgraphNodeParams,
) -> Result<NodeContent> {
    use CUgraphNodeType as T;
    require(p.reserved0 == [0; 3] && p.reserved2 == 0, || {
        "reserved bytes are not zero".into()
    })?;
    let words = words_of(p.r#type)?;
    require(p.params[words..].iter().all(|&word| word == 0), || {
        "bytes past the used member are not zero".into()
    })?;
    let handle = p.params[0] as usize as *mut c_void;
    match p.r#type {
        T::KERNEL => kernel_content(
            s,
            kernel_params::<CUDA_KERNEL_NODE_PARAMS_v2>(node_member(p, 0))?,
        ),
        // The memcpy member has flags and a context, two words, before the copy.
        T::MEMCPY => copy_content(s.device, node_member(p, 2)),
        T::MEMSET => fill_content(s.device, node_member(p, 0)),
        T::HOST => host_content(node_member(p, 0)),
        T::GRAPH => match graph {
            Some(graph) => owned_child(
                s,
                graph,
                node_member::<CUDA_CHILD_GRAPH_NODE_PARAMS>(p, 0).get()?,
            ),
            None => child_content(s, CUgraph::NULL, CUgraph(handle)),
        },
        T::MEM_ALLOC | T::MEM_FREE | T::CONDITIONAL if graph.is_none() => refuse(
            CUresult::INVALID_VALUE,
            format!("a node of type {:?} cannot be changed", p.r#type),
        ),
        T::MEM_ALLOC => alloc_content(s, &node_member(p, 0).get()?),
        T::MEM_FREE => free_content(s, p.params[0]),
        T::BATCH_MEM_OP => words_content(s, &node_member(p, 0).get()?),
        T::CONDITIONAL => {
            conditional_content(s, graph.unwrap_or(CUgraph::NULL), node_member(p, 0).get()?)
        }
        T::WAIT_EVENT => wait_content(s, CUevent(handle)),
        T::EVENT_RECORD => record_content(s, CUevent(handle)),
        _ => Ok(NodeContent::Work(StreamWork::Empty)),
    }
}

/// Returns the size of a union member in words, including the words before it.
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
        T::MEM_ALLOC => 15,
        T::MEM_FREE => 1,
        T::BATCH_MEM_OP => 4,
        T::CONDITIONAL => 4,
        other => {
            return refuse(
                CUresult::NOT_SUPPORTED,
                format!("nodes of type {other:?} are not emulated"),
            );
        }
    })
}

/// Returns the content of a host node.
pub(crate) fn host_content(params: In<CUDA_HOST_NODE_PARAMS_v1>) -> Result<NodeContent> {
    Ok(NodeContent::Work(StreamWork::Host(Callback::of_node(
        &params.get()?,
    )?)))
}

/// Returns the content of a copy node.
pub(crate) fn copy_content(
    device: &EmulatedDevice,
    params: In<CUDA_MEMCPY3D_v2>,
) -> Result<NodeContent> {
    let copy = copy_of(device, &params.get()?)?;
    require(copy.width * copy.height * copy.depth > 0, || {
        "a copy node needs at least one byte".into()
    })?;
    Ok(NodeContent::Work(StreamWork::Copy(copy)))
}

/// Returns the content of a fill node.
pub(crate) fn fill_content(
    device: &EmulatedDevice,
    params: In<CUDA_MEMSET_NODE_PARAMS_v1>,
) -> Result<NodeContent> {
    Ok(NodeContent::Work(StreamWork::Fill(fill_of(
        device,
        &params.get()?,
    )?)))
}

/// Returns one end of a copy in a graph. The node runs later, so nothing is staged.
fn end(
    device: &EmulatedDevice,
    kind: CUmemorytype,
    host: u64,
    device_address: u64,
    offset: usize,
    shape: (usize, usize),
) -> Result<CopyEnd> {
    let address = match kind {
        CUmemorytype::HOST => host,
        CUmemorytype::DEVICE | CUmemorytype::UNIFIED => device_address,
        other => {
            return refuse(
                CUresult::NOT_SUPPORTED,
                format!(
                    "copies of {other:?} in nodes of graphs are not emulated; capture the copy"
                ),
            );
        }
    };
    let address = address.wrapping_add(offset as u64);
    let place = match kind {
        CUmemorytype::DEVICE => Location::Device(address),
        CUmemorytype::HOST if address == 0 => {
            return refuse(CUresult::INVALID_VALUE, "the host memory is NULL");
        }
        _ => Location::of(device, address),
    };
    Ok(CopyEnd {
        place,
        pitch: shape.0,
        slice: shape.0 * shape.1,
    })
}

/// Returns the copy that a `CUDA_MEMCPY3D` describes.
pub(crate) fn copy_of(device: &EmulatedDevice, p: &CUDA_MEMCPY3D_v2) -> Result<CopyWork> {
    let offset = |x, y, z, pitch: usize, height: usize| x + (z * height + y) * pitch;
    let from = offset(p.srcXInBytes, p.srcY, p.srcZ, p.srcPitch, p.srcHeight);
    let to = offset(p.dstXInBytes, p.dstY, p.dstZ, p.dstPitch, p.dstHeight);
    let copy = CopyWork {
        from: end(
            device,
            p.srcMemoryType,
            p.srcHost as u64,
            p.srcDevice,
            from,
            (p.srcPitch, p.srcHeight),
        )?,
        to: end(
            device,
            p.dstMemoryType,
            p.dstHost as u64,
            p.dstDevice,
            to,
            (p.dstPitch, p.dstHeight),
        )?,
        width: p.WidthInBytes,
        height: p.Height,
        depth: p.Depth,
    };

    // With overlapping rows the result would depend on the order in which they are copied.
    let rows = copy.height <= 1 || p.srcPitch.min(p.dstPitch) >= copy.width;
    let slices = copy.depth <= 1 || p.srcHeight.min(p.dstHeight) >= copy.height;
    require(rows && slices, || {
        "rows or slices of the copy overlap".into()
    })?;
    copy.check(device)?;
    Ok(copy)
}

/// Returns the fill that a memset node describes.
fn fill_of(device: &EmulatedDevice, p: &CUDA_MEMSET_NODE_PARAMS_v1) -> Result<FillWork> {
    let size = p.elementSize as usize;
    let width = p.width;
    let height = p.height;
    let fill = FillWork {
        to: p.dst,
        pitch: p.pitch,
        value: p.value,
        size,
        width,
        height,
    };
    require(width * height > 0, || {
        "a fill node needs at least one byte".into()
    })?;
    require(height == 1 || p.pitch >= width * size, || {
        "rows of the fill overlap".into()
    })?;
    fill.check(device)?;
    Ok(fill)
}
