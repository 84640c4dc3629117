//! The shared library in place of the driver: opened at run time, resolved by name, used by its own API alone.

#![allow(unsafe_code)]

use std::ffi::{CStr, c_char, c_void};
use std::path::PathBuf;

use libloading::Library;
use warpwright_driver_sys::*;

const PTX: &CStr = c"
.version 7.0
.target sm_75
.address_size 64
.visible .entry set(.param .u64 p, .param .u32 n)
{
    .reg .b32 %r<2>;
    .reg .b64 %rd<2>;
    ld.param.u64 %rd1, [p];
    ld.param.u32 %r1, [n];
    st.global.u32 [%rd1], %r1;
    ret;
}
";

/// Cargo puts the library beside the test or one folder up.
fn path() -> PathBuf {
    let test = std::env::current_exe().unwrap();
    let name = libloading::library_filename("warpwright_cuda_emu");
    let places = test.ancestors().skip(1).take(2).map(|folder| folder.join(&name));
    places.into_iter().find(|path| path.exists()).expect("cargo builds the library with its tests")
}

#[test]
fn a_program_runs_on_the_library() {
    // SAFETY: the library is this package's own and does nothing when it is opened.
    let library = Box::leak(Box::new(unsafe { Library::new(path()) }.unwrap()));
    let symbol = |name: &CStr| {
        // SAFETY: only the address is taken.
        let found = unsafe { library.get::<unsafe extern "C" fn()>(name.to_bytes_with_nul()) };
        found.map_or(std::ptr::null(), |symbol| *symbol as *const c_void)
    };
    // SAFETY: the library exports these names with the types of `cuda.h`.
    let api = unsafe { Api::load(symbol) }.unwrap();
    let missing: Vec<_> = Api::NAMES.iter().filter(|f| symbol(&c_name(f.name)).is_null()).collect();
    assert_eq!(missing, [] as [&Function; 0]);

    let (mut context, mut module, mut function) = (CUcontext::NULL, CUmodule::NULL, CUfunction::NULL);
    let (mut address, mut result, mut n) = (0u64, 0u32, 42u32);
    let null = std::ptr::null_mut::<c_void>();
    // SAFETY: every pointer is to a variable of this test, and the stream is synchronised before they end.
    let codes = unsafe {
        let mut codes = vec![
            (api.cuDevicePrimaryCtxRetain)(&mut context, 0),
            (api.cuInit)(0),
            (api.cuDevicePrimaryCtxRetain)(&mut context, 0),
            (api.cuCtxSetCurrent)(context),
            (api.cuModuleLoadDataEx)(&mut module, PTX.as_ptr().cast(), 0, null.cast(), null.cast()),
            (api.cuModuleGetFunction)(&mut function, module, c"set".as_ptr()),
            (api.cuMemAlloc_v2)(&mut address, 4),
        ];
        let mut params = [std::ptr::from_mut(&mut address).cast(), std::ptr::from_mut(&mut n).cast()];
        let (stream, params) = (CUstream::NULL, params.as_mut_ptr());
        codes.extend([
            (api.cuLaunchKernel)(function, 1, 1, 1, 1, 1, 1, 0, stream, params, null.cast()),
            (api.cuMemcpyDtoH_v2)(std::ptr::from_mut(&mut result).cast(), address, 4),
            (api.cuMemFree_v2)(address),
            (api.cuMemFree_v2)(address),
        ]);
        codes
    };
    assert_eq!(codes.iter().map(|code| code.0).collect::<Vec<_>>(), [3, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1]);
    assert_eq!(result, 42);

    let mut text = [0u8; 200];
    // SAFETY: the function is declared so, and the buffer is of that size.
    let needed = unsafe {
        let last =
            library.get::<unsafe extern "C" fn(*mut c_char, usize) -> usize>("warpwright_emu_last_finding");
        last.unwrap()(text.as_mut_ptr().cast(), text.len())
    };
    let text = CStr::from_bytes_with_nul(&text[..needed]).unwrap().to_str().unwrap();
    assert_eq!(text, format!("cuMemFree_v2: 0x{address:x} is not the base of an allocation"));
}

fn c_name(name: &str) -> std::ffi::CString {
    std::ffi::CString::new(name).unwrap()
}
