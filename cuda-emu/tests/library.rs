//! The shared library in place of the driver: opened at run time, resolved by name, used by its own API alone.

#![allow(unsafe_code)]

use std::ffi::{CStr, c_char, c_void};
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};

use libloading::Library;
use warpwright_driver_sys::*;

/// `EmulatorSettings`, as a program in C declares it.
#[repr(C)]
#[derive(Default)]
struct Settings {
    memory: u64,
    driver_version: u32,
    compute_capability: u32,
    multiprocessors: u32,
    shuffled: u32,
    seed: u64,
    devices: u32,
}

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

/// Cargo puts the library into the folder of the test or the one above.
fn path() -> PathBuf {
    let test = std::env::current_exe().unwrap();
    let name = libloading::library_filename("warpwright_cuda_emu");
    let places = test
        .ancestors()
        .skip(1)
        .take(2)
        .map(|folder| folder.join(&name));
    places
        .into_iter()
        .find(|path| path.exists())
        .expect("cargo builds the library with its tests")
}

/// Opens the library, for good, and resolves the table by name.
fn open() -> (&'static Library, Api) {
    // SAFETY: the library is this package's own and does nothing when it is opened.
    let library = Box::leak(Box::new(unsafe { Library::new(path()) }.unwrap()));
    let symbol = |name: &CStr| {
        // SAFETY: only the address is taken.
        let found = unsafe { library.get::<unsafe extern "C" fn()>(name.to_bytes_with_nul()) };
        found.map_or(std::ptr::null(), |f| *f as *const c_void)
    };

    // SAFETY: the library exports these names with the types of `cuda.h`.
    let api = unsafe { Api::load(symbol) }.unwrap();
    (library, api)
}

/// A process has one emulated driver, so the tests that start it over must not overlap.
fn one_at_a_time() -> MutexGuard<'static, ()> {
    static ONE: Mutex<()> = Mutex::new(());
    ONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Starts the library over; NULL is the default configuration.
fn configure(library: &Library, settings: *const Settings) {
    // SAFETY: the function is declared so, and the settings are NULL or a variable of the caller.
    unsafe {
        let symbol =
            library.get::<unsafe extern "C" fn(*const Settings)>("warpwright_emu_configure");
        symbol.unwrap()(settings);
    }
}

#[test]
fn a_program_runs_on_the_library() {
    let _one_test = one_at_a_time();
    let (library, api) = open();
    configure(library, std::ptr::null());

    let (mut context, mut module, mut function) =
        (CUcontext::NULL, CUmodule::NULL, CUfunction::NULL);
    let (mut address, mut result, mut n) = (0u64, 0u32, 42u32);
    let null = std::ptr::null_mut::<c_void>();

    // SAFETY: every pointer is to a variable of this test, and the stream is synchronised before they end.
    let codes = unsafe {
        let mut codes = vec![
            (api.cuDevicePrimaryCtxRetain)(&mut context, 0),
            (api.cuInit)(0),
            (api.cuDevicePrimaryCtxRetain)(&mut context, 0),
            (api.cuCtxSetCurrent)(context),
            (api.cuModuleLoadDataEx)(
                &mut module,
                PTX.as_ptr().cast(),
                0,
                null.cast(),
                null.cast(),
            ),
            (api.cuModuleGetFunction)(&mut function, module, c"set".as_ptr()),
            (api.cuMemAlloc_v2)(&mut address, 4),
        ];
        let mut params = [
            std::ptr::from_mut(&mut address).cast(),
            std::ptr::from_mut(&mut n).cast(),
        ];
        let (stream, params) = (CUstream::NULL, params.as_mut_ptr());
        codes.extend([
            (api.cuLaunchKernel)(function, 1, 1, 1, 1, 1, 1, 0, stream, params, null.cast()),
            (api.cuMemcpyDtoH_v2.unwrap())(std::ptr::from_mut(&mut result).cast(), address, 4),
            (api.cuMemFree_v2)(address),
            (api.cuMemFree_v2)(address),
        ]);
        codes
    };
    assert_eq!(
        codes.iter().map(|code| code.0).collect::<Vec<_>>(),
        [3, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1]
    );
    assert_eq!(result, 42);

    let mut text = [0u8; 200];

    // SAFETY: the function is declared so, and the buffer is of that size.
    let needed = unsafe {
        let last = library.get::<unsafe extern "C" fn(*mut c_char, usize) -> usize>(
            "warpwright_emu_last_finding",
        );
        last.unwrap()(text.as_mut_ptr().cast(), text.len())
    };
    let text = CStr::from_bytes_with_nul(&text[..needed])
        .unwrap()
        .to_str()
        .unwrap();
    assert_eq!(
        text,
        format!("cuMemFree_v2: 0x{address:x} is not the base of an allocation")
    );
}

/// Starts the library over with failures in its environment. Gives the codes of cuInit and of two calls, and the log.
fn with_failures(rules: &str) -> ([u32; 3], String) {
    let (library, api) = open();
    configure(library, std::ptr::null());

    // SAFETY: the tests of this file take turns, and no other thread runs.
    unsafe { std::env::set_var("WARPWRIGHT_EMU_FAIL", rules) };
    let mut count = 0;

    // SAFETY: the pointer is to a variable of this function.
    let codes = unsafe {
        [
            (api.cuInit)(0),
            (api.cuDeviceGetCount)(&mut count),
            (api.cuDeviceGetCount)(&mut count),
        ]
        .map(|c| c.0)
    };

    // SAFETY: as above.
    unsafe { std::env::remove_var("WARPWRIGHT_EMU_FAIL") };
    let mut text = [0u8; 300];

    // SAFETY: the function is declared so, and the buffer is of that size.
    let needed = unsafe {
        let last = library.get::<unsafe extern "C" fn(*mut c_char, usize) -> usize>(
            "warpwright_emu_last_finding",
        );
        last.unwrap()(text.as_mut_ptr().cast(), text.len())
    };
    (
        codes,
        String::from_utf8_lossy(&text[..needed - 1]).into_owned(),
    )
}

#[test]
fn the_environment_injects_failures() {
    let _one_test = one_at_a_time();
    let (codes, log) = with_failures("call cuDeviceGetCount 2 CUDA_ERROR_UNKNOWN; kernel add 700;");
    assert_eq!(
        (codes, log.as_str()),
        ([0, 0, 999], "cuDeviceGetCount: this failure was injected")
    );
    assert_eq!(with_failures("lost 1 46").0, [0, 0, 46]);
    for (rules, why) in [
        (
            "call cuNothing 1 2",
            "`call cuNothing 1 2`: unknown function cuNothing",
        ),
        ("call cuInit x 2", "`call cuInit x 2`: x is not a number"),
        ("kernel add 0", "`kernel add 0`: 0 is not an error code"),
        (
            "boom",
            "invalid rule `boom`: expected `call NAME NTH CODE`, `kernel NAME CODE` or `lost AFTER CODE`",
        ),
    ] {
        let (codes, log) = with_failures(rules);
        assert_eq!(codes, [1, 3, 3]);
        assert_eq!(
            log,
            format!("cuInit: WARPWRIGHT_EMU_FAIL is malformed: {why}")
        );
    }
}

#[test]
fn the_library_opened_twice_is_one() {
    // SAFETY: the library is this package's own.
    let (one, two) = unsafe {
        (
            warpwright_driver_sys::Library::open(path()),
            warpwright_driver_sys::Library::open(path()),
        )
    };
    assert!(std::ptr::eq(one.unwrap(), two.unwrap()));
}

#[test]
fn functions_for_c_configure_the_library() {
    let _one_test = one_at_a_time();
    let (library, api) = open();
    let settings = Settings {
        memory: 4096,
        driver_version: 12040,
        compute_capability: 86,
        multiprocessors: 132,
        devices: 3,
        ..Settings::default()
    };
    configure(library, &settings);

    // SAFETY: the function is declared so, and the strings outlive the calls.
    let injected = unsafe {
        let inject = library.get::<unsafe extern "C" fn(*const c_char, u64, CUresult) -> CUresult>(
            "warpwright_emu_inject",
        );
        let inject = inject.unwrap();
        [
            inject(c"cuDeviceGetCount".as_ptr(), 2, CUresult::UNKNOWN),
            inject(c"cuMemAlloc_v2".as_ptr(), 1, CUresult::DEVICE_UNAVAILABLE),
            inject(std::ptr::null(), 1, CUresult::UNKNOWN),
        ]
    };
    assert_eq!(injected.map(|code| code.0), [0, 0, 1]);
    let (mut version, mut minor, mut processors, mut count, mut bytes) = (0, 0, 0, 0, 0);
    let (mut context, mut address) = (CUcontext::NULL, 0);

    // SAFETY: every pointer is to a variable of this test.
    let codes = unsafe {
        [
            (api.cuInit)(0),
            (api.cuDriverGetVersion)(&mut version),
            (api.cuDeviceGetAttribute)(&mut minor, CUdevice_attribute::COMPUTE_CAPABILITY_MINOR, 0),
            (api.cuDeviceGetAttribute)(
                &mut processors,
                CUdevice_attribute::MULTIPROCESSOR_COUNT,
                0,
            ),
            (api.cuDeviceTotalMem_v2)(&mut bytes, 0),
            (api.cuDeviceGetCount)(&mut count),
            (api.cuDeviceGetCount)(&mut count),
            (api.cuDevicePrimaryCtxRetain)(&mut context, 0),
            (api.cuCtxSetCurrent)(context),
            (api.cuMemAlloc_v2)(&mut address, 16),
            (api.cuMemAlloc_v2)(&mut address, 4096),
            (api.cuMemAlloc_v2)(&mut address, 16),
        ]
    };
    assert_eq!(
        codes.map(|code| code.0),
        [0, 0, 0, 0, 0, 0, 999, 0, 0, 46, 0, 2]
    );
    assert_eq!(
        (version, minor, processors, count, bytes),
        (12040, 6, 132, 3, 4096)
    );
}
