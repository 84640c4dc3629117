//! Several devices: their bus addresses, and access to each other's memory.

use std::ffi::{c_char, c_int, c_uint};

use warpwright_driver_sys::*;

use crate::api::device::find;
use crate::api::export::exports;
use crate::error::{Result, refuse, require};
use crate::ffi::pointer::{In, Out};
use crate::handle::ContextId;
use crate::machine::Machine;
use crate::state::DriverState;

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

/// Returns the domain, bus, device and function of a device. Each device is alone on its bus.
fn bus_id(device: usize) -> String {
    format!("0000:{:02X}:00.0", device + 1)
}

fn get_bus_id(m: &'static Machine, id: Out<c_char>, len: c_int, dev: CUdevice) -> Result {
    let text = bus_id(find(m, dev)?);
    require(!id.is_null() && len as usize > text.len(), || {
        format!("the buffer is NULL or has only {len} bytes")
    })?;
    id.set_text(&text, len as usize);
    Ok(())
}

/// Finds a device by its bus address, in which the domain and the function are optional.
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
            format!("no device has the bus address {text}"),
        ),
    }
}

fn can_access(m: &'static Machine, can: Out<c_int>, dev: CUdevice, peer: CUdevice) -> Result {
    let dev = find(m, dev)?;
    let peer = find(m, peer)?;
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
    let from = find(m, from)?;
    let to = find(m, to)?;
    if from == to {
        return refuse(CUresult::INVALID_DEVICE, "a device is not a peer of itself");
    }

    value.set(match attribute {
        A::ACCESS_SUPPORTED | A::NATIVE_ATOMIC_SUPPORTED => 1,
        CUdevice_P2PAttribute(1..=5) => 0,
        other => {
            return refuse(
                CUresult::INVALID_VALUE,
                format!("unknown attribute {}", other.0),
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
        format!("unknown affinity {}", kind.0)
    })?;
    value.set(0)
}

/// Returns the current context and a peer, which must belong to another device.
fn pair(s: &DriverState, peer: CUcontext) -> Result<(ContextId, ContextId)> {
    let own = s.context()?;
    let peer = s.contexts.find(peer)?;
    if s.contexts[own].reach.device == s.contexts[peer].reach.device {
        return refuse(
            CUresult::INVALID_DEVICE,
            "both contexts belong to the same device",
        );
    }
    Ok((own, peer))
}

/// Removes access to a context that has ended from all other contexts.
pub(crate) fn forget(s: &mut DriverState, gone: ContextId) {
    for other in s.contexts.ids(|context| context.peers.contains(&gone)) {
        s.contexts[other].peers.retain(|peer| *peer != gone);
        update_reach(s, other);
    }
}

/// Updates the devices that the work of a context can access.
///
/// Access covers all memory of a peer's device, independent of the context that allocated it.
fn update_reach(s: &DriverState, own: ContextId) {
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
    update_reach(&s, own);
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
    update_reach(&s, own);
    Ok(())
}
