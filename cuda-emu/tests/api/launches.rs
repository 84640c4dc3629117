//! Launches: what is checked before, what a fault leaves.

use std::ffi::c_void;
use std::ptr::null_mut;

use warpwright_cuda_emu::{Checks, EmulatorConfig};
use warpwright_driver_sys::*;

use crate::harness::{code, emu, emu_with, make, ok, pointers};

#[test]
fn a_kernel_runs() {
    let emu = emu();
    let p = emu.upload(&[10, 20, 30, 40]);
    let add = emu.kernel("add");
    assert_eq!(emu.launch(add, 4, CUstream::NULL, &[p, 5]), 0);
    ok!(emu, cuCtxSynchronize());
    assert_eq!(emu.download(p, 4), [15, 25, 35, 45]);
    assert_eq!(emu.findings(), "");
}

#[test]
fn parameters_come_packed_as_well() {
    let emu = emu();
    let p = emu.upload(&[1]);
    let mut buffer = [p, 7];
    let launch = |bytes: usize, buffer: &mut [u64], params: *mut *mut c_void| {
        let mut size = bytes;
        let mut extra: [*mut c_void; 5] = [
            CU_LAUNCH_PARAM_BUFFER_POINTER as *mut c_void,
            buffer.as_mut_ptr().cast(),
            CU_LAUNCH_PARAM_BUFFER_SIZE as *mut c_void,
            std::ptr::from_mut(&mut size).cast(),
            CU_LAUNCH_PARAM_END as *mut c_void,
        ];
        let add = emu.kernel("add");
        let (stream, extra) = (CUstream::NULL, extra.as_mut_ptr());
        code!(
            emu,
            cuLaunchKernel(add, 1, 1, 1, 1, 1, 1, 0, stream, params, extra)
        )
    };
    assert_eq!(
        launch(12, &mut buffer, null_mut()),
        0,
        "tail padding need not be there"
    );
    assert_eq!(launch(16, &mut buffer, null_mut()), 0);
    assert_eq!(launch(8, &mut buffer, null_mut()), 1, "too short");
    let mut both = pointers(&buffer.clone());
    assert_eq!(
        launch(12, &mut buffer, both.as_mut_ptr()),
        1,
        "kernelParams and extra"
    );
    assert_eq!(emu.download(p, 1), [15]);
}

#[test]
fn geometry_is_checked() {
    let emu = emu();
    let (add, square) = (emu.kernel("add"), emu.kernel("square32"));
    let p = emu.upload(&[0; 32]);
    for (function, [gx, gy, gz], [bx, by, bz], shared, expected) in [
        (add, [1, 1, 1], [1, 1, 1], 48 << 10, 0),
        (add, [0, 1, 1], [1, 1, 1], 0, 1),
        (add, [1, 65536, 1], [1, 1, 1], 0, 1),
        (add, [1, 1, 1], [1, 0, 1], 0, 1),
        (add, [1, 1, 1], [1025, 1, 1], 0, 1),
        (add, [1, 1, 1], [1, 1, 65], 0, 1),
        (add, [1, 1, 1], [64, 32, 1], 0, 1),
        (add, [1, 1, 1], [1, 1, 1], (48 << 10) + 1, 1),
        (square, [1, 1, 1], [32, 1, 1], 0, 0),
        (square, [1, 1, 1], [16, 1, 1], 0, 1),
        (square, [1, 1, 1], [1, 32, 1], 0, 1),
    ] {
        let args = [p, 0];
        let mut params = pointers(&args);
        let (stream, params, extra) = (CUstream::NULL, params.as_mut_ptr(), null_mut());
        let code = code!(
            emu,
            cuLaunchKernel(
                function, gx, gy, gz, bx, by, bz, shared, stream, params, extra
            )
        );
        assert_eq!(
            code,
            expected,
            "grid {gx},{gy},{gz} block {bx},{by},{bz} shared {shared}: {}",
            emu.last_log()
        );
    }

    ok!(emu, cuCtxSynchronize());
    assert_eq!(emu.download(p, 4), [0, 1, 4, 9]);
}

/// What is found besides is told, and fails nothing.
#[test]
fn checks_that_are_asked_for_fail_no_call() {
    let divide = "
        .version 7.0
        .target sm_75
        .address_size 64
        .visible .entry divide(.param .u64 p, .param .u32 n)
        {
            .reg .b32 %r<3>;
            .reg .b64 %rd<2>;
            ld.param.u64 %rd1, [p];
            ld.param.u32 %r1, [n];
            div.u32 %r2, 7, %r1;
            st.global.u32 [%rd1], %r2;
            ret;
        }";
    for (arithmetic, n, told) in [(true, 0, "DivisionByZero"), (true, 7, ""), (false, 0, "")] {
        let checks = Checks {
            arithmetic,
            provenance: true,
        };
        let emu = emu_with(EmulatorConfig {
            checks,
            ..EmulatorConfig::default()
        });
        let module = emu.try_load(divide).unwrap();
        let kernel = emu.function(module, "divide");
        let p = emu.upload(&[0]);
        assert_eq!(emu.launch(kernel, 1, CUstream::NULL, &[p, n]), 0);
        ok!(emu, cuCtxSynchronize());
        let quotient = if n == 0 { u32::MAX } else { 1 };
        assert_eq!(emu.download(p, 1), [quotient]);
        let found = emu.findings();
        assert!(
            found.starts_with(told) && found.is_empty() == told.is_empty(),
            "{found}"
        );
    }
}

#[test]
fn faults_stick_to_the_context() {
    for (class, kernel, offset, threads, expected) in [
        ("OutOfBounds", "add", 0, 3, 700),
        ("Misaligned", "add", 2, 1, 716),
        ("Trap", "stop", 0, 1, 719),
        ("OutOfFuel", "spin", 0, 1, 702),
    ] {
        let emu = emu_with(EmulatorConfig {
            fuel: 10_000,
            ..EmulatorConfig::default()
        });
        let address = emu.upload(&[1, 2]) + offset;
        let kernel = emu.kernel(kernel);
        let event = emu.event();
        assert_eq!(
            emu.launch(kernel, threads, CUstream::NULL, &[address, 1]),
            0,
            "the launch itself succeeds"
        );
        assert_eq!(code!(emu, cuCtxSynchronize()), expected);
        let found = emu.findings();
        assert!(found.starts_with(class), "{found}");
        let later = [
            code!(emu, cuMemAlloc_v2(&mut 0, 4)),
            code!(emu, cuStreamSynchronize(CUstream::NULL)),
            code!(emu, cuEventRecord(event, CUstream::NULL)),
            code!(emu, cuCtxSynchronize()),
            emu.launch(kernel, 1, CUstream::NULL, &[address, 1]),
        ];
        assert_eq!(later, [expected; 5], "{class}");
        ok!(emu, cuDevicePrimaryCtxRelease_v2(0));
        let context = make!(emu, cuDevicePrimaryCtxRetain(0));
        ok!(emu, cuCtxSetCurrent(context));
        emu.alloc(4);
    }
}

#[test]
fn a_launch_may_have_attributes() {
    let emu = emu();
    let add = emu.kernel("add");
    let p = emu.upload(&[1]);
    let launch = |id: CUlaunchAttributeID, value: u64| {
        let mut attribute = CUlaunchAttribute {
            id,
            ..CUlaunchAttribute::zeroed()
        };
        attribute.value[0] = value;
        let config = CUlaunchConfig {
            gridDimX: 1,
            gridDimY: 1,
            gridDimZ: 1,
            blockDimX: 1,
            blockDimY: 1,
            blockDimZ: 1,
            attrs: &mut attribute,
            numAttrs: 1,
            ..CUlaunchConfig::zeroed()
        };
        let args = [p, 1];
        let mut params = pointers(&args);
        code!(
            emu,
            cuLaunchKernelEx(&config, add, params.as_mut_ptr(), null_mut())
        )
    };
    assert_eq!(launch(CUlaunchAttributeID::PRIORITY, 0), 0);
    assert_eq!(
        launch(CUlaunchAttributeID::PROGRAMMATIC_STREAM_SERIALIZATION, 1),
        0
    );
    assert_eq!(launch(CUlaunchAttributeID::COOPERATIVE, 1), 0);
    assert_eq!(
        launch(CUlaunchAttributeID::DEVICE_UPDATABLE_KERNEL_NODE, 1),
        801
    );
    assert_eq!(
        launch(
            CUlaunchAttributeID::PREFERRED_CLUSTER_DIMENSION,
            2 | 1 << 32
        ),
        0,
        "a hint"
    );
    assert_eq!(launch(CUlaunchAttributeID(99), 1), 1);
    ok!(emu, cuCtxSynchronize());
    assert_eq!(emu.download(p, 1), [5]);
}
