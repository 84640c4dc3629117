//! Failures that a test asks for.

use warpwright_cuda_emu::{inject, inject_device_loss, inject_kernel};
use warpwright_driver_sys::*;

use crate::harness::{code, emu, ok};

#[test]
fn the_nth_call_fails_once() {
    let emu = emu();
    inject("cuMemAlloc_v2", 2, CUresult::OUT_OF_MEMORY);
    let codes = [(); 3].map(|()| code!(emu, cuMemAlloc_v2(&mut 0, 4)));
    assert_eq!(codes, [0, 2, 0]);
    assert!(
        emu.last_log()
            .contains("cuMemAlloc_v2: this failure was injected")
    );
}

#[test]
fn every_launch_of_a_kernel_fails_at_the_call() {
    let emu = emu();
    let (add, copy) = (emu.kernel("add"), emu.kernel("copy"));
    let p = emu.upload(&[1, 2]);
    inject_kernel("add", CUresult::LAUNCH_OUT_OF_RESOURCES);
    let launch = || emu.launch(add, 1, CUstream::NULL, &[p, 1]);
    assert_eq!([launch(), launch()], [701, 701]);
    let graph = emu.graph();
    emu.add_kernel(graph, &[], add, 1, &[p, 1]);
    let exec = emu.instantiate(graph);
    assert_eq!(code!(emu, cuGraphLaunch(exec, CUstream::NULL)), 701);
    assert_eq!(
        emu.launch(copy, 1, CUstream::NULL, &[p, p + 4]),
        0,
        "other kernels run"
    );
    assert_eq!(emu.download(p, 2), [2, 2]);
}

#[test]
fn a_kernel_that_faults_by_request_does_so_on_the_device() {
    let emu = emu();
    let add = emu.kernel("add");
    let p = emu.upload(&[1]);
    inject_kernel("add", CUresult::ILLEGAL_ADDRESS);
    assert_eq!(emu.launch(add, 1, CUstream::NULL, &[p, 1]), 0);
    assert_eq!(code!(emu, cuCtxSynchronize()), 700);
    assert_eq!(code!(emu, cuMemAlloc_v2(&mut 0, 4)), 700, "it stays");
    assert!(emu.findings().contains("add: this failure was injected"));
}

#[test]
fn a_lost_device_answers_every_call_alike() {
    let emu = emu();
    inject_device_loss(2, CUresult::DEVICE_UNAVAILABLE);
    ok!(emu, cuCtxSynchronize());
    ok!(emu, cuCtxSynchronize());
    assert_eq!(code!(emu, cuCtxSynchronize()), 46);
    assert_eq!(code!(emu, cuMemAlloc_v2(&mut 0, 4)), 46);
    assert_eq!(
        code!(emu, cuDriverGetVersion(&mut 0)),
        0,
        "what works before cuInit still does"
    );
}
