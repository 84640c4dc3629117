//! Linking: combines several PTX texts into one.

use std::ffi::{CString, c_char, c_uint, c_void};

use warpwright_driver_sys::*;

use crate::api::export::exports;
use crate::api::module::read_file;
use crate::compile::{compile, info_text, merge};
use crate::error::{Error, Result, refuse, require};
use crate::ffi::host::HostSpan;
use crate::ffi::jit::logs_of;
use crate::ffi::pointer::{In, Out};
use crate::handle::LinkId;
use crate::image;
use crate::machine::Machine;
use crate::state::objects::Link;

exports! {
    table {
        6050 cuLinkCreate cuLinkCreate_v2(option_count: c_uint, options: *mut CUjit_option, values: *mut *mut c_void, state: *mut CUlinkState) => create;
        6050 cuLinkAddData cuLinkAddData_v2(state: CUlinkState, kind: CUjitInputType, data: *mut c_void, size: usize, name: *const c_char, option_count: c_uint, options: *mut CUjit_option, values: *mut *mut c_void) => add_data;
        6050 cuLinkAddFile cuLinkAddFile_v2(state: CUlinkState, kind: CUjitInputType, path: *const c_char, option_count: c_uint, options: *mut CUjit_option, values: *mut *mut c_void) => add_file;
        5050 cuLinkComplete cuLinkComplete(state: CUlinkState, cubin: *mut *mut c_void, size: *mut usize) => complete;
        5050 cuLinkDestroy cuLinkDestroy(state: CUlinkState) => destroy;
    }
    more {
        5050 cuLinkCreate cuLinkCreate(option_count: c_uint, options: *mut CUjit_option, values: *mut *mut c_void, state: *mut CUlinkState) => create;
        5050 cuLinkAddData cuLinkAddData(state: CUlinkState, kind: CUjitInputType, data: *mut c_void, size: usize, name: *const c_char, option_count: c_uint, options: *mut CUjit_option, values: *mut *mut c_void) => add_data;
        5050 cuLinkAddFile cuLinkAddFile(state: CUlinkState, kind: CUjitInputType, path: *const c_char, option_count: c_uint, options: *mut CUjit_option, values: *mut *mut c_void) => add_file;
    }
}

/// Creates a link. By the contract of the API the option arrays live as long as the link, so the
/// logs can be written when it ends.
fn create(
    m: &'static Machine,
    count: c_uint,
    options: Out<CUjit_option>,
    values: Out<*mut c_void>,
    state: Out<CUlinkState>,
) -> Result {
    let logs = logs_of(count as usize, options, values)?;
    let mut s = m.state();
    s.context()?;
    require(!state.is_null(), || "the result pointer is NULL".into())?;
    let link = Link {
        logs,
        values: values.address(),
        ..Link::default()
    };
    state.set(s.links.insert(link).handle())
}

#[allow(clippy::too_many_arguments)]
fn add_data(
    m: &'static Machine,
    state: CUlinkState,
    kind: CUjitInputType,
    data: Out<c_void>,
    size: usize,
    name: In<c_char>,
    _count: c_uint,
    _options: Out<CUjit_option>,
    _values: Out<*mut c_void>,
) -> Result {
    require(!data.is_null() && size > 0, || {
        format!("the code is NULL or has {size} bytes")
    })?;
    let name = if name.is_null() {
        "an unnamed text".into()
    } else {
        name.text()?.to_string()
    };
    add(
        m,
        state,
        kind,
        HostSpan::new(data.address()).bytes(size),
        name,
    )
}

fn add_file(
    m: &'static Machine,
    state: CUlinkState,
    kind: CUjitInputType,
    path: In<c_char>,
    _count: c_uint,
    _options: Out<CUjit_option>,
    _values: Out<*mut c_void>,
) -> Result {
    let data = read_file(path)?;
    add(m, state, kind, &data, path.text()?.to_string())
}

fn add(
    m: &'static Machine,
    state: CUlinkState,
    kind: CUjitInputType,
    data: &[u8],
    name: String,
) -> Result {
    let mut s = m.state();
    let id: LinkId = s.links.find(state)?;
    if is_device_runtime(data) {
        // The emulator implements the functions of the device runtime itself.
        return Ok(());
    }

    // The result of another link is PTX as well, and so are the contents of a fat binary. The
    // declared kind is therefore only checked if the data is not PTX.
    let data = image::text(&m.device.config, data)?;
    let data = data.split(|byte| *byte == 0).next().unwrap_or_default();
    if kind != CUjitInputType::PTX && !is_ptx(data) {
        let text = format!("{name}: linking {kind:?} is not emulated, only PTX");
        return refuse(CUresult::NOT_SUPPORTED, text);
    }

    let Ok(text) = std::str::from_utf8(data) else {
        return refuse(CUresult::INVALID_IMAGE, format!("{name} is not PTX text"));
    };

    s.links[id].texts.push((name, text.to_string()));
    Ok(())
}

/// Returns true for CUDA's device runtime, which is an archive with one object of machine code.
fn is_device_runtime(data: &[u8]) -> bool {
    data.starts_with(b"!<arch>\n") && data.windows(OBJECT.len()).any(|name| name == OBJECT)
}

/// The name of the object in `libcudadevrt.a`.
const OBJECT: &[u8] = b"cuda_device_runtime.o/";

/// Returns true if a text looks like PTX: it begins with its version, after comments and blank
/// lines.
fn is_ptx(data: &[u8]) -> bool {
    let text = String::from_utf8_lossy(data);
    let mut lines = text
        .lines()
        .map(str::trim)
        .filter(|line| !line.is_empty() && !line.starts_with("//"));
    lines
        .next()
        .is_some_and(|line| line.starts_with(".version"))
}

/// Completes a link. The result is PTX, which can be loaded wherever an image can.
fn complete(
    m: &'static Machine,
    state: CUlinkState,
    cubin: Out<*mut c_void>,
    size: Out<usize>,
) -> Result {
    let mut s = m.state();
    let id = s.links.find(state)?;
    let link = &mut s.links[id];
    require(!link.texts.is_empty(), || {
        "nothing was added to the link".into()
    })?;
    let merged = merge(&link.texts);
    let compiled = compile(&m.device.config, merged.as_bytes());
    let info = compiled.as_ref().map(info_text).unwrap_or_default();
    link.logs
        .write(&info, &compiled, Out::of_address(link.values));
    compiled?;
    let image = CString::new(merged)
        .map_err(|_| Error::new(CUresult::INVALID_IMAGE, "the text contains a NUL"))?;
    let bytes = image.as_bytes_with_nul().len();
    let image = link.image.insert(image);

    // The link owns the image, which is valid until the link is destroyed, as the API requires.
    cubin.set(image.as_ptr().cast_mut().cast())?;
    size.set_if(bytes);
    Ok(())
}

fn destroy(m: &'static Machine, state: CUlinkState) -> Result {
    let mut s = m.state();
    let id = s.links.find(state)?;
    s.links.remove(id);
    Ok(())
}
