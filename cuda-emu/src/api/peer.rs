//! Several devices: their place on the bus, and access to each other's memory.

use std::ffi::{c_char, c_int, c_uint};

use warpwright_driver_sys::*;

use crate::api::device::find;
use crate::api::export::exports;
use crate::error::{Result, refuse, require};
use crate::ffi::pointer::{In, Out};
use crate::handle::ContextId;
use crate::machine::Machine;
use crate::state::State;

exports! {
    table {
        4010 cuDeviceGetPCIBusId cuDeviceGetPCIBusId(id: *mut c_char, len: c_int, device: CUdevice) => get_bus_id;
        4010 cuDeviceGetByPCIBusId cuDeviceGetByPCIBusId(device: *mut CUdevice, id: *const c_char) => by_bus_id;
        4000 cuDeviceCanAccessPeer cuDeviceCanAccessPeer(can: *mut c_int, device: CUdevice, peer: CUdevice) => can_access;
        8000 cuDeviceGetP2PAttribute cuDeviceGetP2PAttribute(value: *mut c_int, attribute: CUdevice_P2PAttribute, from: CUdevice, to: CUdevice) => get_attribute;
        11040 cuDeviceGetExecAffinitySupport cuDeviceGetExecAffinitySupport(value: *mut c_int, kind: CUexecAffinityType, device: CUdevice) => affinity_support;
        4000 cuCtxEnablePeerAccess cuCtxEnablePeerAccess(peer: CUcontext, flags: c_uint) => enable;
        4000 cuCtxDisablePeerAccess cuCtxDisablePeerAccess(peer: CUcontext) => disable;
    }
    more {}
}

/// Domain, bus, device and function; a device is alone on its bus.
fn bus_id(device: usize) -> String {
    format!("0000:{:02X}:00.0", device + 1)
}

fn get_bus_id(m: &'static Machine, id: Out<c_char>, len: c_int, dev: CUdevice) -> Result {
    let text = bus_id(find(m, dev)?);
    require(!id.is_null() && len as usize > text.len(), || {
        format!("there is room for {len} bytes")
    })?;
    id.set_text(&text, len as usize);
    Ok(())
}

/// The domain may be left out, and so may the function.
fn by_bus_id(m: &'static Machine, dev: Out<CUdevice>, id: In<c_char>) -> Result {
    let text = id.text()?.to_ascii_uppercase();
    let is = |device: &usize| {
        let full = bus_id(*device);
        [&full[..], &full[5..], &full[..10], &full[5..10]].contains(&text.as_str())
    };
    match (0..m.device.config.devices as usize).find(is) {
        Some(found) => dev.set(found as CUdevice),
        None => refuse(
            CUresult::INVALID_DEVICE,
            format!("there is no device at {text}"),
        ),
    }
}

fn can_access(m: &'static Machine, can: Out<c_int>, dev: CUdevice, peer: CUdevice) -> Result {
    let (dev, peer) = (find(m, dev)?, find(m, peer)?);
    can.set((dev != peer).into())
}

fn get_attribute(
    m: &'static Machine,
    value: Out<c_int>,
    attribute: CUdevice_P2PAttribute,
    from: CUdevice,
    to: CUdevice,
) -> Result {
    use CUdevice_P2PAttribute as A;
    let (from, to) = (find(m, from)?, find(m, to)?);
    if from == to {
        return refuse(CUresult::INVALID_DEVICE, "a device is no peer of itself");
    }
    value.set(match attribute {
        A::ACCESS_SUPPORTED | A::NATIVE_ATOMIC_SUPPORTED => 1,
        CUdevice_P2PAttribute(1..=5) => 0,
        other => {
            return refuse(
                CUresult::INVALID_VALUE,
                format!("there is no attribute {}", other.0),
            );
        }
    })
}

fn affinity_support(
    m: &'static Machine,
    value: Out<c_int>,
    kind: CUexecAffinityType,
    dev: CUdevice,
) -> Result {
    find(m, dev)?;
    require(kind == CUexecAffinityType::SM_COUNT, || {
        format!("there is no affinity {}", kind.0)
    })?;
    value.set(0)
}

/// The current context and a peer of it, which must be of another device.
fn pair(s: &State, peer: CUcontext) -> Result<(ContextId, ContextId)> {
    let (own, peer) = (s.context()?, s.contexts.find(peer)?);
    if s.contexts[own].reach.device == s.contexts[peer].reach.device {
        return refuse(
            CUresult::INVALID_DEVICE,
            "both contexts are of the same device",
        );
    }
    Ok((own, peer))
}

/// Takes the access to a context that has ended from every other.
pub(crate) fn forget(s: &mut State, gone: ContextId) {
    for other in s.contexts.ids(|context| context.peers.contains(&gone)) {
        s.contexts[other].peers.retain(|peer| *peer != gone);
        tell(s, other);
    }
}

/// Access is to all memory of the peer's device, whichever context allocated it.
fn tell(s: &State, own: ContextId) {
    let peers = s.contexts[own].peers.iter();
    let devices = peers
        .filter_map(|&peer| Some(s.contexts.get(peer)?.reach.device))
        .collect();
    s.contexts[own].reach.set_peers(devices);
}

fn enable(m: &'static Machine, peer: CUcontext, flags: c_uint) -> Result {
    require(flags == 0, || format!("the flags are {flags}, not 0"))?;
    let mut s = m.state();
    let (own, peer) = pair(&s, peer)?;
    if s.contexts[own].peers.contains(&peer) {
        return refuse(
            CUresult::PEER_ACCESS_ALREADY_ENABLED,
            "the context has access to that peer already",
        );
    }
    s.contexts[own].peers.push(peer);
    tell(&s, own);
    Ok(())
}

fn disable(m: &'static Machine, peer: CUcontext) -> Result {
    let mut s = m.state();
    let (own, peer) = pair(&s, peer)?;
    if !s.contexts[own].peers.contains(&peer) {
        return refuse(
            CUresult::PEER_ACCESS_NOT_ENABLED,
            "the context has no access to that peer",
        );
    }
    s.contexts[own].peers.retain(|other| *other != peer);
    tell(&s, own);
    Ok(())
}
