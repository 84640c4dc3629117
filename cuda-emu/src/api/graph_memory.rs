//! Memory that nodes of graphs allocate, objects of the program that graphs own, and ids of graphs
//! and nodes.

use std::ffi::{c_uint, c_void};

use warpwright_driver_sys::*;

use crate::api::device::find;
use crate::api::export::exports;
use crate::error::{Result, refuse, require};
use crate::ffi::host::Callback;
use crate::ffi::pointer::Out;
use crate::machine::Machine;
use crate::state::objects::UserObject;

exports! {
    table {
        11040 cuDeviceGraphMemTrim cuDeviceGraphMemTrim(device: CUdevice) => trim;
        11040 cuDeviceGetGraphMemAttribute cuDeviceGetGraphMemAttribute(device: CUdevice, attribute: CUgraphMem_attribute, value: *mut c_void) => get_attribute;
        11040 cuDeviceSetGraphMemAttribute cuDeviceSetGraphMemAttribute(device: CUdevice, attribute: CUgraphMem_attribute, value: *mut c_void) => set_attribute;
        11030 cuUserObjectCreate cuUserObjectCreate(object: *mut CUuserObject, pointer: *mut c_void, destroy: CUhostFn, count: c_uint, flags: CUuserObject_flags) => create_object;
        11030 cuUserObjectRetain cuUserObjectRetain(object: CUuserObject, count: c_uint) => retain_object;
        11030 cuUserObjectRelease cuUserObjectRelease(object: CUuserObject, count: c_uint) => release_object;
        11030 cuGraphRetainUserObject cuGraphRetainUserObject(graph: CUgraph, object: CUuserObject, count: c_uint, flags: CUuserObjectRetain_flags) => give_object;
        11030 cuGraphReleaseUserObject cuGraphReleaseUserObject(graph: CUgraph, object: CUuserObject, count: c_uint) => take_object;
        13010 cuGraphGetId cuGraphGetId(graph: CUgraph, id: *mut c_uint) => graph_number;
        13010 cuGraphExecGetId cuGraphExecGetId(exec: CUgraphExec, id: *mut c_uint) => exec_number;
        13010 cuGraphNodeGetContainingGraph cuGraphNodeGetContainingGraph(node: CUgraphNode, graph: *mut CUgraph) => graph_of;
        13010 cuGraphNodeGetLocalId cuGraphNodeGetLocalId(node: CUgraphNode, id: *mut c_uint) => local_number;
        13010 cuGraphNodeGetToolsId cuGraphNodeGetToolsId(node: CUgraphNode, id: *mut u64) => node_number;
    }
    more {}
}

fn trim(m: &'static Machine, dev: CUdevice) -> Result {
    let device = find(m, dev)?;
    m.device
        .graph_memory
        .usage(device as u32, |usage| usage.held = usage.used);
    Ok(())
}

fn get_attribute(
    m: &'static Machine,
    dev: CUdevice,
    attribute: CUgraphMem_attribute,
    value: Out<c_void>,
) -> Result {
    use CUgraphMem_attribute as A;
    let device = find(m, dev)?;
    let usage = m.device.graph_memory.usage(device as u32, |usage| *usage);
    value.cast().set(match attribute {
        A::USED_MEM_CURRENT => usage.used,
        A::USED_MEM_HIGH => usage.used_high,
        A::RESERVED_MEM_CURRENT => usage.held,
        A::RESERVED_MEM_HIGH => usage.held_high,
        other => {
            return refuse(
                CUresult::INVALID_VALUE,
                format!("unknown attribute {}", other.0),
            );
        }
    })
}

/// Resets a high-water mark to zero.
fn set_attribute(
    m: &'static Machine,
    dev: CUdevice,
    attribute: CUgraphMem_attribute,
    value: Out<c_void>,
) -> Result {
    use CUgraphMem_attribute as A;
    let device = find(m, dev)?;
    let value: u64 = value.cast().get()?;
    let high = matches!(attribute, A::USED_MEM_HIGH | A::RESERVED_MEM_HIGH);
    require(high && value == 0, || {
        format!("attribute {attribute:?} cannot be set to {value}")
    })?;
    m.device
        .graph_memory
        .usage(device as u32, |usage| match attribute {
            A::USED_MEM_HIGH => usage.used_high = usage.used,
            _ => usage.held_high = usage.held,
        });
    Ok(())
}

fn create_object(
    m: &'static Machine,
    object: Out<CUuserObject>,
    pointer: Out<c_void>,
    destroy: CUhostFn,
    count: c_uint,
    flags: CUuserObject_flags,
) -> Result {
    let destroy = Callback::new(destroy, pointer)?;
    let right = flags == CUuserObject_flags::NO_DESTRUCTOR_SYNC && count > 0;
    require(right && !object.is_null(), || {
        format!("{count} references, the flags {:#x}", flags.bits())
    })?;
    object.set(
        m.state()
            .user_objects
            .insert(UserObject {
                count: count.into(),
                destroy,
            })
            .handle(),
    )
}

fn retain_object(m: &'static Machine, object: CUuserObject, count: c_uint) -> Result {
    require(count > 0, || "0 references: expected at least 1".into())?;
    let mut s = m.state();
    let id = s.user_objects.find(object)?;
    s.retain_object(id, count.into());
    Ok(())
}

fn release_object(m: &'static Machine, object: CUuserObject, count: c_uint) -> Result {
    let mut s = m.state();
    let id = s.user_objects.find(object)?;
    let has = s.user_objects[id].count;
    require(count > 0 && u64::from(count) <= has, || {
        format!("cannot release {count} of {has} references")
    })?;
    s.release_object(id, count.into());
    Ok(())
}

/// Adds references to a graph, which are taken from the caller or created.
fn give_object(
    m: &'static Machine,
    graph: CUgraph,
    object: CUuserObject,
    count: c_uint,
    flags: CUuserObjectRetain_flags,
) -> Result {
    let known = CUuserObjectRetain_flags::all().contains(flags);
    require(known && count > 0, || {
        format!("{count} references, the flags {:#x}", flags.bits())
    })?;
    let mut s = m.state();
    let graph = s.graphs.find(graph)?;
    let id = s.user_objects.find(object)?;
    if !flags.contains(CUuserObjectRetain_flags::MOVE) {
        s.retain_object(id, count.into());
    }

    s.graphs[graph].objects.extend((0..count).map(|_| id));
    Ok(())
}

fn take_object(m: &'static Machine, graph: CUgraph, object: CUuserObject, count: c_uint) -> Result {
    let mut s = m.state();
    let graph = s.graphs.find(graph)?;
    let id = s.user_objects.find(object)?;
    let objects = &mut s.graphs[graph].objects;
    let has = objects.iter().filter(|object| **object == id).count();
    require(count > 0 && count as usize <= has, || {
        format!("cannot release {count} of the {has} references of the graph")
    })?;
    let mut left = count;
    objects.retain(|object| {
        let is_removed = *object == id && left > 0;
        left -= u32::from(is_removed);
        !is_removed
    });
    s.release_object(id, count.into());
    Ok(())
}

/// Returns the generation in a handle, which is unique until it wraps after 2^24 handles.
fn short(number: u64) -> c_uint {
    (number >> 32) as u32 & 0xff_ffff
}

fn graph_number(m: &'static Machine, graph: CUgraph, number: Out<c_uint>) -> Result {
    number.set(short(m.state().graphs.find(graph)?.number()))
}

fn exec_number(m: &'static Machine, exec: CUgraphExec, number: Out<c_uint>) -> Result {
    number.set(short(m.state().execs.find(exec)?.number()))
}

fn graph_of(m: &'static Machine, node: CUgraphNode, graph: Out<CUgraph>) -> Result {
    let s = m.state();
    graph.set(s.nodes[s.nodes.find(node)?].graph.handle())
}

fn local_number(m: &'static Machine, node: CUgraphNode, number: Out<c_uint>) -> Result {
    number.set(short(m.state().nodes.find(node)?.number()))
}

fn node_number(m: &'static Machine, node: CUgraphNode, number: Out<u64>) -> Result {
    number.set(m.state().nodes.find(node)?.number())
}
