//! `cuGetProcAddress`, and the list of all exported functions that it searches.

use std::ffi::{c_char, c_int, c_void};

use warpwright_driver_sys::*;

use crate::api::export::{Export, exports};
use crate::api::{
    absent, address, array, boxes, capture, context, copy, device, edges, event, exec, exec_update,
    function, graph, graph_memory, launch, library, link, mapping, memory, module, node,
    node_params, occupancy, peer, pool, private, stream, tensor_map, texture, unsupported, words,
};
use crate::error::{Result, refuse, require};
use crate::ffi::pointer::{In, Out};
use crate::machine::Machine;

exports! {
    table {
        12000 cuGetProcAddress cuGetProcAddress_v2(symbol: *const c_char, function: *mut *mut c_void, version: c_int, flags: u64, found: *mut CUdriverProcAddressQueryResult) => proc_address;
        11030 cuGetProcAddress cuGetProcAddress(symbol: *const c_char, function: *mut *mut c_void, version: c_int, flags: u64) => proc_address_v1;
    }
    more {}
}

/// Returns the functions of all chapters.
pub(crate) fn chapters() -> impl Iterator<Item = &'static [Export]> {
    let others = [
        device::EXPORTS,
        context::EXPORTS,
        module::EXPORTS,
        function::EXPORTS,
        occupancy::EXPORTS,
        library::EXPORTS,
        link::EXPORTS,
        mapping::EXPORTS,
        memory::EXPORTS,
        address::EXPORTS,
        pool::EXPORTS,
        copy::EXPORTS,
        boxes::EXPORTS,
        launch::EXPORTS,
        stream::EXPORTS,
        event::EXPORTS,
        graph::EXPORTS,
        node::EXPORTS,
        node_params::EXPORTS,
        edges::EXPORTS,
        exec::EXPORTS,
        exec_update::EXPORTS,
        peer::EXPORTS,
        graph_memory::EXPORTS,
        words::EXPORTS,
        tensor_map::EXPORTS,
        array::EXPORTS,
        texture::EXPORTS,
        unsupported::EXPORTS,
        absent::EXPORTS,
        private::EXPORTS,
        capture::EXPORTS,
    ];
    others.into_iter().chain([EXPORTS])
}

/// Returns the driver as a table. Functions that a driver of `version` does not have are absent.
pub(crate) fn table(version: u32) -> Api {
    let fills = [
        device::fill_api,
        context::fill_api,
        module::fill_api,
        function::fill_api,
        occupancy::fill_api,
        library::fill_api,
        link::fill_api,
        mapping::fill_api,
        memory::fill_api,
        address::fill_api,
        pool::fill_api,
        copy::fill_api,
        boxes::fill_api,
        launch::fill_api,
        stream::fill_api,
        event::fill_api,
        graph::fill_api,
        node::fill_api,
        node_params::fill_api,
        edges::fill_api,
        exec::fill_api,
        exec_update::fill_api,
        peer::fill_api,
        graph_memory::fill_api,
        words::fill_api,
        tensor_map::fill_api,
        array::fill_api,
        texture::fill_api,
        unsupported::fill_api,
        capture::fill_api,
        fill_api,
    ];
    let mut api = Api::empty();
    for fill in fills {
        fill(&mut api, version);
    }

    api
}

/// Returns the newest function with this base name that a driver of `version` has.
fn resolve(base: &str, version: u32) -> Result<*const c_void, CUdriverProcAddressQueryResult> {
    let named = || chapters().flatten().filter(|export| export.base == base);
    let newest = named()
        .filter(|export| export.since <= version)
        .max_by_key(|export| export.since);
    match newest {
        Some(export) => Ok((export.address)()),
        None if named().next().is_some() => {
            Err(CUdriverProcAddressQueryResult::VERSION_NOT_SUFFICIENT)
        }
        None => Err(CUdriverProcAddressQueryResult::SYMBOL_NOT_FOUND),
    }
}

fn proc_address(
    m: &'static Machine,
    symbol: In<c_char>,
    function: Out<*mut c_void>,
    version: c_int,
    flags: u64,
    found: Out<CUdriverProcAddressQueryResult>,
) -> Result {
    let base = symbol.text()?;
    require(flags <= 2, || format!("the flags {flags} are unknown"))?;
    let known = 0..=m.device.config.driver_version as c_int;
    require(known.contains(&version), || {
        format!("version {version} is above the driver's")
    })?;
    let resolved = resolve(base, version as u32);
    found.set_if(
        resolved
            .err()
            .unwrap_or(CUdriverProcAddressQueryResult::SUCCESS),
    );
    function.set(resolved.unwrap_or(std::ptr::null()).cast_mut())
}

/// Implements the form of CUDA 11.3, which returns NOT_FOUND for an unknown name.
fn proc_address_v1(
    m: &'static Machine,
    symbol: In<c_char>,
    function: Out<*mut c_void>,
    version: c_int,
    flags: u64,
) -> Result {
    let base = symbol.text()?;
    require(flags <= 2, || format!("the flags {flags} are unknown"))?;
    let known = 0..=m.device.config.driver_version as c_int;
    require(known.contains(&version), || {
        format!("version {version} is above the driver's")
    })?;
    match resolve(base, version as u32) {
        Ok(address) => function.set(address.cast_mut()),
        Err(_) => refuse(CUresult::NOT_FOUND, format!("unknown function {base}")),
    }
}
