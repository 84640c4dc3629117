//! Start, versions, the device, error texts, `cuGetProcAddress`, the log, injected failures.

use std::collections::HashSet;
use std::ffi::{CStr, CString, c_char, c_void};
use std::ptr::{null, null_mut};

use warpwright_cuda_emu::{EmulatorConfig, inject, symbols};
use warpwright_driver_sys::*;

use crate::harness::{bare, code, emu, emu_with, make, ok};

#[test]
fn every_function_of_the_table_is_exported_once() {
    let (tabled, more) = symbols();
    let mut expected: Vec<_> = Api::NAMES.iter().map(|f| f.name).collect();
    expected.sort_unstable();
    let mut found = tabled.clone();
    found.sort_unstable();
    assert_eq!(found, expected);
    let all = tabled.len() + more.len();
    assert_eq!(
        tabled.into_iter().chain(more).collect::<HashSet<_>>().len(),
        all
    );
}

#[test]
fn only_queries_work_before_init() {
    let emu = bare(EmulatorConfig::default());
    let mut count = 7;
    assert_eq!(code!(emu, cuDeviceGetCount(&mut count)), 3);
    assert_eq!(count, 7, "the output is left alone");
    assert_eq!(code!(emu, cuMemAlloc_v2(null_mut(), 4)), 3);
    assert_eq!(code!(emu, cuStreamSynchronize(CUstream::NULL)), 3);
    assert_eq!(code!(emu, cuDriverGetVersion(&mut count)), 0);
    assert_eq!(count, 13050);
    assert_eq!(code!(emu, cuInit(1)), 1);
    ok!(emu, cuInit(0));
    ok!(emu, cuDeviceGetCount(&mut count));
    assert_eq!(count, 1);
    assert_eq!(
        code!(emu, cuMemAlloc_v2(null_mut(), 4)),
        201,
        "no context is current"
    );
}

#[test]
fn optional_functions_come_with_their_version() {
    for (version, launch_ex, param_info, logs) in [
        (11040, false, false, false),
        (12000, true, false, false),
        (12040, true, true, false),
        (12090, true, true, true),
    ] {
        let emu = bare(EmulatorConfig {
            driver_version: version,
            ..EmulatorConfig::default()
        });
        assert_eq!(emu.api.cuLaunchKernelEx.is_some(), launch_ex, "{version}");
        assert_eq!(
            emu.api.cuFuncGetParamInfo.is_some(),
            param_info,
            "{version}"
        );
        assert_eq!(emu.api.cuLogsDumpToMemory.is_some(), logs, "{version}");
    }
}

#[test]
fn the_device_describes_itself() {
    let emu = emu_with(EmulatorConfig {
        compute_capability: (7, 5),
        memory: 1 << 20,
        multiprocessors: 3,
        ..EmulatorConfig::default()
    });
    let mut name = [0 as c_char; 64];
    ok!(emu, cuDeviceGetName(name.as_mut_ptr(), 64, 0));
    assert_eq!(
        // SAFETY: the call wrote a string with its NUL.
        unsafe { CStr::from_ptr(name.as_ptr()) },
        c"Warpwright CPU emulator"
    );
    let total: usize = make!(emu, cuDeviceTotalMem_v2(0));
    assert_eq!(total, 1 << 20);
    for (attribute, expected) in [
        (CUdevice_attribute::COMPUTE_CAPABILITY_MAJOR, 7),
        (CUdevice_attribute::COMPUTE_CAPABILITY_MINOR, 5),
        (CUdevice_attribute::WARP_SIZE, 32),
        (CUdevice_attribute::MULTIPROCESSOR_COUNT, 3),
        (
            CUdevice_attribute::MAX_SHARED_MEMORY_PER_BLOCK_OPTIN,
            64 << 10,
        ),
        (
            CUdevice_attribute::MAX_SHARED_MEMORY_PER_MULTIPROCESSOR,
            64 << 10,
        ),
        (CUdevice_attribute::READ_ONLY_HOST_REGISTER_SUPPORTED, 1),
    ] {
        let value: i32 = make!(emu, cuDeviceGetAttribute(attribute, 0));
        assert_eq!(value, expected, "{attribute:?}");
    }

    let mut value = 0;
    assert_eq!(
        code!(
            emu,
            cuDeviceGetAttribute(&mut value, CUdevice_attribute(9999), 0)
        ),
        1
    );
    assert_eq!(
        code!(
            emu,
            cuDeviceGetAttribute(&mut value, CUdevice_attribute::WARP_SIZE, 1)
        ),
        101
    );
    assert_eq!(code!(emu, cuDeviceGet(&mut value, 1)), 101);
}

#[test]
fn codes_have_names_and_texts() {
    let emu = bare(EmulatorConfig::default());
    let name: *const c_char = {
        let mut text = null();
        ok!(emu, cuGetErrorName(CUresult(700), &mut text));
        text
    };
    assert_eq!(
        // SAFETY: names are strings that live for ever.
        unsafe { CStr::from_ptr(name) },
        c"CUDA_ERROR_ILLEGAL_ADDRESS"
    );
    let mut text = name;
    assert_eq!(code!(emu, cuGetErrorString(CUresult(4242), &mut text)), 1);
    assert!(text.is_null());
}

#[test]
fn proc_address_gives_the_abi_of_the_version_asked_for() {
    let emu = emu();
    let ask = |name: &str, version: i32| {
        let name = CString::new(name).unwrap();
        let (mut function, mut found) = (null_mut::<c_void>(), CUdriverProcAddressQueryResult(-1));
        let code = code!(
            emu,
            cuGetProcAddress_v2(name.as_ptr(), &mut function, version, 0, &mut found)
        );
        (code, function as usize, found.0)
    };
    assert_eq!(
        ask("cuMemAlloc", 13000),
        (0, emu.api.cuMemAlloc_v2 as usize, 0)
    );
    assert_eq!(
        ask("cuGraphAddKernelNode", 12000),
        (
            0,
            emu.api.cuGraphAddKernelNode_v2.map_or(0, |f| f as usize),
            0
        )
    );
    let (_, old, _) = ask("cuGraphAddKernelNode", 11040);
    assert!(old != 0 && old != emu.api.cuGraphAddKernelNode_v2.map_or(0, |f| f as usize));
    assert_eq!(ask("cuGraphAddNode", 12000), (0, 0, 2));
    assert_eq!(ask("cuNoSuchThing", 13000), (0, 0, 1));
    assert_eq!(ask("cuMemAlloc", 13060).0, 1);
}

#[test]
fn what_is_not_emulated_is_found_and_refuses_by_name() {
    let emu = emu();
    let find = |name: &CStr| {
        let mut function = null_mut::<c_void>();
        let found = std::ptr::null_mut();
        assert_eq!(
            code!(
                emu,
                cuGetProcAddress_v2(name.as_ptr(), &mut function, 13050, 0, found)
            ),
            0
        );
        assert!(!function.is_null(), "{name:?}");
        function
    };
    for (name, why) in [
        (
            c"cuMipmappedArrayCreate",
            "cuMipmappedArrayCreate: mipmaps, texture references and sparse arrays are not emulated; use arrays with texture and surface objects",
        ),
        (
            c"cuGraphicsMapResources",
            "cuGraphicsMapResources: graphics interfaces are not emulated",
        ),
    ] {
        type Refused = unsafe extern "C" fn(u64, u64, u64, u64, u64, u64, u64, u64) -> CUresult;
        // SAFETY: the function looks at no argument, and the caller removes them.
        let refused = unsafe { std::mem::transmute::<*mut c_void, Refused>(find(name)) };
        // SAFETY: as above.
        assert_eq!(unsafe { refused(1, 2, 3, 4, 5, 6, 7, 8) }.0, 801);
        assert_eq!(emu.findings(), why);
    }

    type Table = unsafe extern "C" fn(*mut *const c_void, *const CUuuid) -> CUresult;

    // SAFETY: this is the type of the function.
    let table = unsafe { std::mem::transmute::<*mut c_void, Table>(find(c"cuGetExportTable")) };
    let nvrtc = CUuuid {
        bytes: 0xda91_51d3_3ae6_cc41_a5c0_4f26_d533_e328_u128.to_be_bytes(),
    };
    let mut found = std::ptr::dangling();

    // SAFETY: as below.
    assert_eq!(unsafe { table(&mut found, &nvrtc) }.0, 801);
    assert_eq!(emu.findings(), "", "NVRTC does without its table");
    let which = CUuuid {
        bytes: *b"0123456789abcdef",
    };

    // SAFETY: the pointers are to variables of this test.
    assert_eq!(unsafe { table(&mut found, &which) }.0, 801);
    assert!(found.is_null());
    let start =
        "cuGetExportTable: the table 30313233343536373839616263646566: only NVIDIA's driver has";
    assert!(emu.findings().starts_with(start));
}

#[test]
fn failures_are_injected_by_name_and_number() {
    let emu = emu();
    inject("cuMemAlloc_v2", 2, CUresult::OUT_OF_MEMORY);
    let mut address = 0;
    let codes: Vec<_> = (0..3)
        .map(|_| code!(emu, cuMemAlloc_v2(&mut address, 4)))
        .collect();
    assert_eq!(codes, [0, 2, 0]);
}

#[test]
fn the_log_tells_why_a_call_was_refused() {
    let emu = emu();
    let mut address = 0;
    assert_eq!(code!(emu, cuMemAlloc_v2(&mut address, 0)), 1);
    let (mut place, mut buffer, mut size) = (0, vec![0u8; 400], 400);
    ok!(
        emu,
        cuLogsDumpToMemory(&mut place, buffer.as_mut_ptr().cast(), &mut size, 0)
    );
    let text = CStr::from_bytes_with_nul(&buffer[..size])
        .unwrap()
        .to_str()
        .unwrap();
    assert_eq!(
        text,
        "cuMemAlloc_v2: the result pointer is NULL, or the allocation has 0 bytes\n"
    );
    ok!(
        emu,
        cuLogsDumpToMemory(&mut place, buffer.as_mut_ptr().cast(), &mut size, 0)
    );
    assert_eq!(size, 1, "nothing new");
    assert_eq!(emu.findings(), "", "a refused call is no finding");
}

#[test]
fn the_primary_context_is_counted() {
    let emu = emu();
    let context: CUcontext = make!(emu, cuDevicePrimaryCtxRetain(0));
    ok!(emu, cuDevicePrimaryCtxRelease_v2(0));
    let address = emu.alloc(4);
    ok!(emu, cuDevicePrimaryCtxRelease_v2(0));
    assert_eq!(
        code!(emu, cuMemFree_v2(address)),
        709,
        "the context went with its last owner"
    );
    assert_eq!(code!(emu, cuDevicePrimaryCtxRelease_v2(0)), 201);
    assert_eq!(
        code!(emu, cuCtxSetCurrent(context)),
        201,
        "the handle is stale"
    );
    let again: CUcontext = make!(emu, cuDevicePrimaryCtxRetain(0));
    assert_ne!(context, again);
}

#[test]
fn contexts_stack_per_thread() {
    let emu = emu();
    let current: CUcontext = make!(emu, cuCtxGetCurrent());
    ok!(emu, cuCtxPushCurrent_v2(current));
    let popped: CUcontext = make!(emu, cuCtxPopCurrent_v2());
    assert_eq!(popped, current);
    std::thread::scope(|scope| {
        scope.spawn(|| assert_eq!(make!(emu, cuCtxGetCurrent()), CUcontext::NULL));
    });
    ok!(emu, cuCtxSetCurrent(CUcontext::NULL));
    assert_eq!(code!(emu, cuCtxSynchronize()), 201);
}
