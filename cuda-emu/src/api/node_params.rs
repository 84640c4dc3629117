//! Parameters of graph nodes: queries and changes.

use std::ffi::c_void;
use std::sync::Arc;

use warpwright_driver_sys::*;

use crate::api::export::exports;
use crate::api::node_content::{
    any_content, copy_content, fill_content, host_content, kernel_content, record_content,
    wait_content, words_content,
};
use crate::error::{Result, refuse, require};
use crate::ffi::kernel_node::{KernelNodeVersion, kernel_params};
use crate::ffi::params::{ExposedParams, set_node_member};
use crate::ffi::pointer::{In, Out};
use crate::graph::nodes::{Attributes, NodeContent};
use crate::handle::NodeId;
use crate::machine::Machine;
use crate::state::DriverState;
use crate::work::copy::{CopyEnd, CopyWork, FillWork, Location};
use crate::work::mark::EventCell;
use crate::work::{GraphAllocation, KernelWork, StreamWork};

exports! {
    table {
        10000 cuGraphNodeGetType cuGraphNodeGetType(node: CUgraphNode, kind: *mut CUgraphNodeType) => get_type;
        10000 cuGraphChildGraphNodeGetGraph cuGraphChildGraphNodeGetGraph(node: CUgraphNode, graph: *mut CUgraph) => get_child;
        12000 cuGraphKernelNodeGetParams cuGraphKernelNodeGetParams_v2(node: CUgraphNode, params: *mut CUDA_KERNEL_NODE_PARAMS_v2) => get_kernel;
        12000 cuGraphKernelNodeSetParams cuGraphKernelNodeSetParams_v2(node: CUgraphNode, params: *const CUDA_KERNEL_NODE_PARAMS_v2) => set_kernel;
        10000 cuGraphKernelNodeGetParams cuGraphKernelNodeGetParams(node: CUgraphNode, params: *mut CUDA_KERNEL_NODE_PARAMS_v1) => get_kernel;
        10000 cuGraphKernelNodeSetParams cuGraphKernelNodeSetParams(node: CUgraphNode, params: *const CUDA_KERNEL_NODE_PARAMS_v1) => set_kernel;
        11000 cuGraphKernelNodeGetAttribute cuGraphKernelNodeGetAttribute(node: CUgraphNode, attribute: CUlaunchAttributeID, value: *mut CUlaunchAttributeValue) => get_attribute;
        11000 cuGraphKernelNodeSetAttribute cuGraphKernelNodeSetAttribute(node: CUgraphNode, attribute: CUlaunchAttributeID, value: *const CUlaunchAttributeValue) => set_attribute;
        11000 cuGraphKernelNodeCopyAttributes cuGraphKernelNodeCopyAttributes(to: CUgraphNode, from: CUgraphNode) => copy_attributes;
        10000 cuGraphMemcpyNodeGetParams cuGraphMemcpyNodeGetParams(node: CUgraphNode, params: *mut CUDA_MEMCPY3D_v2) => get_copy;
        10000 cuGraphMemcpyNodeSetParams cuGraphMemcpyNodeSetParams(node: CUgraphNode, params: *const CUDA_MEMCPY3D_v2) => set_copy;
        10000 cuGraphMemsetNodeGetParams cuGraphMemsetNodeGetParams(node: CUgraphNode, params: *mut CUDA_MEMSET_NODE_PARAMS_v1) => get_fill;
        10000 cuGraphMemsetNodeSetParams cuGraphMemsetNodeSetParams(node: CUgraphNode, params: *const CUDA_MEMSET_NODE_PARAMS_v1) => set_fill;
        10000 cuGraphHostNodeGetParams cuGraphHostNodeGetParams(node: CUgraphNode, params: *mut CUDA_HOST_NODE_PARAMS_v1) => get_host;
        10000 cuGraphHostNodeSetParams cuGraphHostNodeSetParams(node: CUgraphNode, params: *const CUDA_HOST_NODE_PARAMS_v1) => set_host;
        11010 cuGraphEventRecordNodeGetEvent cuGraphEventRecordNodeGetEvent(node: CUgraphNode, event: *mut CUevent) => get_record;
        11010 cuGraphEventRecordNodeSetEvent cuGraphEventRecordNodeSetEvent(node: CUgraphNode, event: CUevent) => set_record;
        11010 cuGraphEventWaitNodeGetEvent cuGraphEventWaitNodeGetEvent(node: CUgraphNode, event: *mut CUevent) => get_wait;
        11010 cuGraphEventWaitNodeSetEvent cuGraphEventWaitNodeSetEvent(node: CUgraphNode, event: CUevent) => set_wait;
        11040 cuGraphMemAllocNodeGetParams cuGraphMemAllocNodeGetParams(node: CUgraphNode, params: *mut CUDA_MEM_ALLOC_NODE_PARAMS_v1) => get_alloc;
        11040 cuGraphMemFreeNodeGetParams cuGraphMemFreeNodeGetParams(node: CUgraphNode, address: *mut CUdeviceptr) => get_free;
        11070 cuGraphBatchMemOpNodeGetParams cuGraphBatchMemOpNodeGetParams(node: CUgraphNode, params: *mut CUDA_BATCH_MEM_OP_NODE_PARAMS_v1) => get_words;
        11070 cuGraphBatchMemOpNodeSetParams cuGraphBatchMemOpNodeSetParams(node: CUgraphNode, params: *const CUDA_BATCH_MEM_OP_NODE_PARAMS_v1) => set_words;
        13020 cuGraphNodeGetParams cuGraphNodeGetParams(node: CUgraphNode, params: *mut CUgraphNodeParams) => get_any;
        12020 cuGraphNodeSetParams cuGraphNodeSetParams(node: CUgraphNode, params: *mut CUgraphNodeParams) => set_any;
    }
    more {}
}

fn get_type(m: &'static Machine, node: CUgraphNode, kind: Out<CUgraphNodeType>) -> Result {
    let s = m.state();
    kind.set(s.nodes[s.nodes.find(node)?].content.node_type())
}

fn get_child(m: &'static Machine, node: CUgraphNode, graph: Out<CUgraph>) -> Result {
    let s = m.state();
    match s.nodes[s.nodes.find(node)?].content {
        NodeContent::Child(child) => graph.set(child.handle()),
        _ => refuse(
            CUresult::INVALID_VALUE,
            "the node is not a child graph node",
        ),
    }
}

/// Replaces the content of a node by content of the same type.
fn replace(
    m: &'static Machine,
    node: CUgraphNode,
    content: impl FnOnce(&mut DriverState) -> Result<NodeContent>,
) -> Result {
    let mut s = m.state();
    let id = s.nodes.find(node)?;
    let mut content = content(&mut s)?;
    let same = content.node_type() == s.nodes[id].content.node_type();
    require(same, || {
        "the parameters have another type than the node".into()
    })?;

    // The cooperative flag and the cluster size are attributes, which the new parameters do not
    // contain.
    if let (
        NodeContent::Work(StreamWork::Kernel(new)),
        NodeContent::Work(StreamWork::Kernel(old)),
    ) = (&content, &s.nodes[id].content)
    {
        content = NodeContent::Work(StreamWork::Kernel(Arc::new(
            s.launched_as(copy_of(new), old)?,
        )));
    }

    let node = &mut s.nodes[id];
    let former = std::mem::replace(&mut node.content, content);
    node.shown = None;
    for &graph in former.graphs() {
        s.destroy_graph(graph);
    }
    for owned in s.nodes[id].content.graphs().to_vec() {
        s.graphs[owned].owner = Some(id);
    }

    Ok(())
}

fn is_cooperative(content: &NodeContent) -> bool {
    matches!(content, NodeContent::Work(StreamWork::Kernel(kernel)) if kernel.cooperative)
}

/// Returns a copy of a kernel with its parameters.
pub(crate) fn copy_of(work: &KernelWork) -> KernelWork {
    let KernelWork {
        function,
        geometry,
        params,
        cooperative,
        cluster,
    } = work;
    KernelWork {
        function: Arc::clone(function),
        geometry: *geometry,
        params: params.clone(),
        cooperative: *cooperative,
        cluster: *cluster,
    }
}

/// Returns what `look` finds in the work of a node, or an error if the node has another type.
fn look<R>(
    m: &'static Machine,
    node: CUgraphNode,
    look: impl FnOnce(&DriverState, &StreamWork) -> Option<R>,
) -> Result<R> {
    let s = m.state();
    let content = &s.nodes[s.nodes.find(node)?].content;
    let found = if let NodeContent::Work(work) = content {
        look(&s, work)
    } else {
        None
    };
    found.map_or_else(
        || {
            refuse(
                CUresult::INVALID_VALUE,
                format!("the node is of type {:?}", content.node_type()),
            )
        },
        Ok,
    )
}

fn get_kernel<P: KernelNodeVersion>(
    m: &'static Machine,
    node: CUgraphNode,
    params: Out<P>,
) -> Result {
    let mut s = m.state();
    let id = s.nodes.find(node)?;
    match shown_kernel(&mut s, id) {
        Some(shown) => params.set(shown),
        None => refuse(CUresult::INVALID_VALUE, "the node is not a kernel node"),
    }
}

/// Returns a kernel node as the structure of the API. The node owns the arrays.
fn shown_kernel<P: KernelNodeVersion>(s: &mut DriverState, id: NodeId) -> Option<P> {
    let node = &mut s.nodes[id];
    let NodeContent::Work(StreamWork::Kernel(kernel)) = &node.content else {
        return None;
    };
    let shown = node
        .shown
        .get_or_insert_with(|| ExposedParams::new(&kernel.params, &kernel.function.params));
    Some(P::filled(kernel.function.handle(), kernel.geometry, shown))
}

fn set_kernel<P: KernelNodeVersion>(
    m: &'static Machine,
    node: CUgraphNode,
    params: In<P>,
) -> Result {
    let params = kernel_params(params)?;
    replace(m, node, |s| kernel_content(s, params))
}

/// Returns the kernel node with this handle.
fn kernel_node(s: &DriverState, node: CUgraphNode) -> Result<NodeId> {
    let id = s.nodes.find(node)?;
    let kernel = matches!(
        s.nodes[id].content,
        NodeContent::Work(StreamWork::Kernel(_))
    );
    require(kernel, || "the node is not a kernel node".into())?;
    Ok(id)
}

fn get_attribute(
    m: &'static Machine,
    node: CUgraphNode,
    attribute: CUlaunchAttributeID,
    value: Out<CUlaunchAttributeValue>,
) -> Result {
    let s = m.state();
    let node = &s.nodes[kernel_node(&s, node)?];
    check_attribute(attribute, &CUlaunchAttributeValue::zeroed())?;
    let mut found = node
        .attributes
        .get(&attribute.0)
        .copied()
        .unwrap_or(CUlaunchAttributeValue::zeroed());
    if attribute == CUlaunchAttributeID::COOPERATIVE {
        found.words[0] = is_cooperative(&node.content).into();
    }
    if attribute == CUlaunchAttributeID::CLUSTER_DIMENSION {
        [found.words[0], found.words[1]] = cluster_words(&node.content);
    }

    value.set(found)
}

fn set_attribute(
    m: &'static Machine,
    node: CUgraphNode,
    attribute: CUlaunchAttributeID,
    value: In<CUlaunchAttributeValue>,
) -> Result {
    let mut s = m.state();
    let id = kernel_node(&s, node)?;
    let value = value.get()?;
    check_attribute(attribute, &value)?;
    set(&mut s, id, attribute.0, value)
}

/// Returns an error for attributes that a kernel node cannot have or that are not emulated.
fn check_attribute(attribute: CUlaunchAttributeID, value: &CUlaunchAttributeValue) -> Result {
    use CUlaunchAttributeID as A;
    let one = value.words[0] == 1 << 32 | 1 && value.words[1] as u32 == 1;
    match attribute {
        A::PREFERRED_CLUSTER_DIMENSION if value.words[0] != 0 && !one => refuse(
            CUresult::NOT_SUPPORTED,
            "preferred clusters of more than one block are not emulated",
        ),
        A::DEVICE_UPDATABLE_KERNEL_NODE if value.words[0] as u32 != 0 => refuse(
            CUresult::NOT_SUPPORTED,
            "nodes that a kernel changes are not emulated",
        ),
        CUlaunchAttributeID(1 | 2 | 4 | 5 | 8..=11 | 13 | 14) => Ok(()),
        other => refuse(
            CUresult::INVALID_VALUE,
            format!("a kernel node has no attribute {other:?}"),
        ),
    }
}

fn set(s: &mut DriverState, id: NodeId, attribute: i32, value: CUlaunchAttributeValue) -> Result {
    // These two attributes change the limits of a launch, so the kernel is checked again.
    if attribute == CUlaunchAttributeID::COOPERATIVE.0
        && let NodeContent::Work(StreamWork::Kernel(kernel)) = &s.nodes[id].content
    {
        let plain = KernelWork {
            cooperative: false,
            ..copy_of(kernel)
        };
        let work = if value.words[0] as u32 != 0 {
            s.cooperative(plain)?
        } else {
            plain
        };
        s.nodes[id].content = NodeContent::Work(StreamWork::Kernel(Arc::new(work)));
    }

    if attribute == CUlaunchAttributeID::CLUSTER_DIMENSION.0
        && let NodeContent::Work(StreamWork::Kernel(kernel)) = &s.nodes[id].content
    {
        let work = s.clustered(copy_of(kernel), cluster_of(value.words[0], value.words[1]))?;
        s.nodes[id].content = NodeContent::Work(StreamWork::Kernel(Arc::new(work)));
    }

    s.nodes[id].attributes.insert(attribute, value);
    Ok(())
}

/// Returns the cluster size in the words of an attribute.
pub(crate) fn cluster_of(low: u64, high: u64) -> [u32; 3] {
    [low as u32, (low >> 32) as u32, high as u32]
}

/// Returns the cluster size of a node as the words of an attribute, or 0 if the launch does not
/// specify it.
fn cluster_words(content: &NodeContent) -> [u64; 2] {
    let NodeContent::Work(StreamWork::Kernel(kernel)) = content else {
        return [0; 2];
    };
    let [x, y, z] = kernel.cluster.unwrap_or_default().map(u64::from);
    [y << 32 | x, z]
}

fn copy_attributes(m: &'static Machine, to: CUgraphNode, from: CUgraphNode) -> Result {
    let mut s = m.state();
    let to = kernel_node(&s, to)?;
    let from = kernel_node(&s, from)?;
    let mut attributes: Attributes = s.nodes[from].attributes.clone();

    // A captured launch has a cluster size that is not among the attributes.
    let [low, high] = cluster_words(&s.nodes[from].content);
    let mut cluster = CUlaunchAttributeValue::zeroed();
    [cluster.words[0], cluster.words[1]] = [low, high];
    attributes.insert(CUlaunchAttributeID::CLUSTER_DIMENSION.0, cluster);
    attributes
        .into_iter()
        .try_for_each(|(attribute, value)| set(&mut s, to, attribute, value))
}

/// Returns one end of a copy for the API: its type, host address and device address.
fn shown_place(place: &Location) -> (CUmemorytype, u64, u64) {
    match place {
        Location::Device(address) => (CUmemorytype::DEVICE, 0, *address),
        Location::Host(span) => (CUmemorytype::HOST, span.address(), 0),
        Location::Staged(bytes) => (CUmemorytype::HOST, bytes.as_ptr() as u64, 0),
    }
}

/// Returns a copy as the structure of the API, with offsets included in the addresses.
fn shown_copy(copy: &CopyWork) -> CUDA_MEMCPY3D_v2 {
    let height = |end: &CopyEnd| end.slice.checked_div(end.pitch).unwrap_or(0);
    let from = shown_place(&copy.from.place);
    let to = shown_place(&copy.to.place);
    CUDA_MEMCPY3D_v2 {
        srcMemoryType: from.0,
        srcHost: from.1 as *const c_void,
        srcDevice: from.2,
        srcPitch: copy.from.pitch,
        srcHeight: height(&copy.from),
        dstMemoryType: to.0,
        dstHost: to.1 as *mut c_void,
        dstDevice: to.2,
        dstPitch: copy.to.pitch,
        dstHeight: height(&copy.to),
        WidthInBytes: copy.width,
        Height: copy.height,
        Depth: copy.depth,
        ..CUDA_MEMCPY3D_v2::zeroed()
    }
}

fn get_copy(m: &'static Machine, node: CUgraphNode, params: Out<CUDA_MEMCPY3D_v2>) -> Result {
    params.set(look(m, node, |_, work| {
        if let StreamWork::Copy(copy) = work {
            Some(shown_copy(copy))
        } else {
            None
        }
    })?)
}

fn set_copy(m: &'static Machine, node: CUgraphNode, params: In<CUDA_MEMCPY3D_v2>) -> Result {
    let copy = copy_content(m.device, params)?;
    replace(m, node, |_| Ok(copy))
}

/// Returns a fill as the structure of the API.
fn shown_fill(fill: &FillWork) -> CUDA_MEMSET_NODE_PARAMS_v1 {
    let &FillWork {
        to: dst,
        pitch,
        value,
        size,
        width,
        height,
    } = fill;
    CUDA_MEMSET_NODE_PARAMS_v1 {
        dst,
        pitch,
        value,
        elementSize: size as u32,
        width,
        height,
    }
}

fn get_fill(
    m: &'static Machine,
    node: CUgraphNode,
    params: Out<CUDA_MEMSET_NODE_PARAMS_v1>,
) -> Result {
    params.set(look(m, node, |_, work| {
        if let StreamWork::Fill(fill) = work {
            Some(shown_fill(fill))
        } else {
            None
        }
    })?)
}

fn set_fill(
    m: &'static Machine,
    node: CUgraphNode,
    params: In<CUDA_MEMSET_NODE_PARAMS_v1>,
) -> Result {
    let fill = fill_content(m.device, params)?;
    replace(m, node, |_| Ok(fill))
}

fn get_host(
    m: &'static Machine,
    node: CUgraphNode,
    params: Out<CUDA_HOST_NODE_PARAMS_v1>,
) -> Result {
    params.set(look(m, node, |_, work| {
        if let StreamWork::Host(callback) = work {
            Some(callback.shown())
        } else {
            None
        }
    })?)
}

fn set_host(
    m: &'static Machine,
    node: CUgraphNode,
    params: In<CUDA_HOST_NODE_PARAMS_v1>,
) -> Result {
    let host = host_content(params)?;
    replace(m, node, |_| Ok(host))
}

/// Returns the event that a node records or waits for, or NULL if it was destroyed.
fn event_of(s: &DriverState, cell: &Arc<EventCell>) -> CUevent {
    let found = s
        .events
        .iter()
        .find(|(_, event)| Arc::ptr_eq(&event.cell, cell));
    found.map_or(CUevent::NULL, |(id, _)| id.handle())
}

fn get_record(m: &'static Machine, node: CUgraphNode, event: Out<CUevent>) -> Result {
    event.set(look(m, node, |s, work| {
        if let StreamWork::Record(cell) = work {
            Some(event_of(s, cell))
        } else {
            None
        }
    })?)
}

fn set_record(m: &'static Machine, node: CUgraphNode, event: CUevent) -> Result {
    replace(m, node, |s| record_content(s, event))
}

fn get_wait(m: &'static Machine, node: CUgraphNode, event: Out<CUevent>) -> Result {
    event.set(look(m, node, |s, work| {
        if let StreamWork::Wait(cell) = work {
            Some(event_of(s, cell))
        } else {
            None
        }
    })?)
}

fn set_wait(m: &'static Machine, node: CUgraphNode, event: CUevent) -> Result {
    replace(m, node, |s| wait_content(s, event))
}

/// Returns an allocation as the structure of the API.
fn shown_alloc(made: GraphAllocation) -> CUDA_MEM_ALLOC_NODE_PARAMS_v1 {
    let location = CUmemLocation {
        r#type: CUmemLocationType::DEVICE,
        id: made.device as i32,
    };
    CUDA_MEM_ALLOC_NODE_PARAMS_v1 {
        poolProps: CUmemPoolProps {
            allocType: CUmemAllocationType::PINNED,
            location,
            ..CUmemPoolProps::zeroed()
        },
        bytesize: made.bytes as usize,
        dptr: made.base,
        ..CUDA_MEM_ALLOC_NODE_PARAMS_v1::zeroed()
    }
}

fn get_alloc(
    m: &'static Machine,
    node: CUgraphNode,
    params: Out<CUDA_MEM_ALLOC_NODE_PARAMS_v1>,
) -> Result {
    params.set(look(m, node, |_, work| {
        if let StreamWork::Alloc(made) = work {
            Some(shown_alloc(*made))
        } else {
            None
        }
    })?)
}

fn get_free(m: &'static Machine, node: CUgraphNode, address: Out<CUdeviceptr>) -> Result {
    address.set(look(m, node, |_, work| {
        if let StreamWork::Free(base) = work {
            Some(*base)
        } else {
            None
        }
    })?)
}

/// Returns memory operations as the structure of the API.
///
/// The node owns the array, which is valid until the node changes, as the API requires.
fn shown_words(work: &StreamWork) -> Option<CUDA_BATCH_MEM_OP_NODE_PARAMS_v1> {
    let StreamWork::Words(words) = work else {
        return None;
    };
    Some(CUDA_BATCH_MEM_OP_NODE_PARAMS_v1 {
        count: words.asked.len() as u32,
        paramArray: words.asked.as_ptr().cast_mut(),
        ..CUDA_BATCH_MEM_OP_NODE_PARAMS_v1::zeroed()
    })
}

fn get_words(
    m: &'static Machine,
    node: CUgraphNode,
    params: Out<CUDA_BATCH_MEM_OP_NODE_PARAMS_v1>,
) -> Result {
    params.set(look(m, node, |_, work| shown_words(work))?)
}

fn set_words(
    m: &'static Machine,
    node: CUgraphNode,
    params: In<CUDA_BATCH_MEM_OP_NODE_PARAMS_v1>,
) -> Result {
    let params = params.get()?;
    replace(m, node, |s| words_content(s, &params))
}

/// Writes the generic structure of a node.
fn get_any(m: &'static Machine, node: CUgraphNode, params: Out<CUgraphNodeParams>) -> Result {
    require(!params.is_null(), || "the result pointer is NULL".into())?;
    let mut p = CUgraphNodeParams::zeroed();
    let mut s = m.state();
    let id = s.nodes.find(node)?;

    // Kernels come first, because showing their parameters needs mutable access to the node.
    if let Some(kernel) = shown_kernel::<CUDA_KERNEL_NODE_PARAMS_v2>(&mut s, id) {
        set_node_member(&mut p, 0, kernel);
    }

    let content = &s.nodes[s.nodes.find(node)?].content;
    p.r#type = content.node_type();
    match content {
        NodeContent::Child(child) => p.params[0] = child.handle().0 as u64,
        NodeContent::Conditional(c) => set_node_member(
            &mut p,
            0,
            CUDA_CONDITIONAL_NODE_PARAMS {
                handle: c.handle,
                r#type: c.kind,
                size: c.bodies.len() as u32,
                phGraph_out: c.shown.as_ptr().cast_mut(),
                ctx: CUcontext::NULL,
            },
        ),
        NodeContent::Work(work) => show_work(&s, work, &mut p),
    }

    params.set(p)
}

fn show_work(s: &DriverState, work: &StreamWork, p: &mut CUgraphNodeParams) {
    match work {
        StreamWork::Copy(copy) => set_node_member(p, 2, shown_copy(copy)),
        StreamWork::Fill(fill) => set_node_member(p, 0, shown_fill(fill)),
        StreamWork::Host(callback) => set_node_member(p, 0, callback.shown()),
        StreamWork::Record(cell) | StreamWork::Wait(cell) => {
            p.params[0] = event_of(s, cell).0 as u64
        }
        StreamWork::Alloc(made) => set_node_member(p, 0, shown_alloc(*made)),
        StreamWork::Free(base) => p.params[0] = *base,
        StreamWork::Words(_) => {
            if let Some(words) = shown_words(work) {
                set_node_member(p, 0, words);
            }
        }
        StreamWork::Kernel(_) | StreamWork::Branch(_) | StreamWork::Empty => {}
    }
}

fn set_any(m: &'static Machine, node: CUgraphNode, params: Out<CUgraphNodeParams>) -> Result {
    let params = params.get()?;
    replace(m, node, |s| any_content(s, None, &params))
}
