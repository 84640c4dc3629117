//! What nodes of every type do, shown and changed: in a graph, and in an executable graph.

use std::ffi::c_void;
use std::ptr::{from_mut, null, null_mut};

use warpwright_driver_sys::*;

use crate::harness::{Emu, code, emu, make, ok, pointers};

fn copy(from: u64, to: u64) -> CUDA_MEMCPY3D_v2 {
    CUDA_MEMCPY3D_v2 {
        srcMemoryType: CUmemorytype::DEVICE,
        srcDevice: from,
        dstMemoryType: CUmemorytype::DEVICE,
        dstDevice: to,
        WidthInBytes: 4,
        Height: 1,
        Depth: 1,
        ..CUDA_MEMCPY3D_v2::zeroed()
    }
}

fn fill(dst: u64, value: u32) -> CUDA_MEMSET_NODE_PARAMS_v1 {
    CUDA_MEMSET_NODE_PARAMS_v1 {
        dst,
        pitch: 0,
        value,
        elementSize: 4,
        width: 1,
        height: 1,
    }
}

unsafe extern "C" fn count(counter: *mut c_void) {
    // SAFETY: the tests pass their own counter and wait for the work.
    unsafe { *counter.cast::<u32>() += 1 }
}

fn host(counter: &mut u32) -> CUDA_HOST_NODE_PARAMS_v1 {
    CUDA_HOST_NODE_PARAMS_v1 {
        r#fn: Some(count),
        userData: from_mut(counter).cast(),
    }
}

fn run(emu: &Emu, exec: CUgraphExec) {
    ok!(emu, cuGraphLaunch(exec, CUstream::NULL));
    ok!(emu, cuCtxSynchronize());
}

#[test]
fn copies_and_fills_are_shown_and_changed() {
    let emu = emu();
    let p = emu.upload(&[1, 0, 0, 0]);
    let graph = emu.graph();
    let context = CUcontext(null_mut());
    let moves: CUgraphNode = make!(
        emu,
        cuGraphAddMemcpyNode(graph, null(), 0, &copy(p, p + 4), context)
    );
    let fills: CUgraphNode = make!(
        emu,
        cuGraphAddMemsetNode(graph, &moves, 1, &fill(p + 8, 5), context)
    );
    let mut shown = CUDA_MEMCPY3D_v2::zeroed();
    ok!(emu, cuGraphMemcpyNodeGetParams(moves, &mut shown));
    assert_eq!(
        (shown.srcDevice, shown.dstDevice, shown.WidthInBytes),
        (p, p + 4, 4)
    );
    let mut shown = CUDA_MEMSET_NODE_PARAMS_v1::zeroed();
    ok!(emu, cuGraphMemsetNodeGetParams(fills, &mut shown));
    assert_eq!((shown.dst, shown.value, shown.elementSize), (p + 8, 5, 4));
    assert_eq!(code!(emu, cuGraphMemsetNodeGetParams(moves, &mut shown)), 1);
    let exec = emu.instantiate(graph);
    ok!(
        emu,
        cuGraphExecMemcpyNodeSetParams(exec, moves, &copy(p, p + 12), context)
    );
    ok!(
        emu,
        cuGraphExecMemsetNodeSetParams(exec, fills, &fill(p + 8, 6), context)
    );
    run(&emu, exec);
    assert_eq!(emu.download(p, 4), [1, 0, 6, 1]);
    ok!(emu, cuGraphMemsetNodeSetParams(fills, &fill(p + 8, 9)));
    run(&emu, emu.instantiate(graph));
    assert_eq!(emu.download(p, 4), [1, 1, 9, 1]);
}

#[test]
fn host_functions_and_events_are_shown_and_changed() {
    let emu = emu();
    let (mut one, mut two) = (0, 0);
    let (a, b) = (emu.event(), emu.event());
    let graph = emu.graph();
    let calls: CUgraphNode = make!(emu, cuGraphAddHostNode(graph, null(), 0, &host(&mut one)));
    let records: CUgraphNode = make!(emu, cuGraphAddEventRecordNode(graph, &calls, 1, a));
    let waits: CUgraphNode = make!(emu, cuGraphAddEventWaitNode(graph, null(), 0, a));
    let mut shown = CUDA_HOST_NODE_PARAMS_v1::zeroed();
    ok!(emu, cuGraphHostNodeGetParams(calls, &mut shown));
    assert_eq!(shown.userData, from_mut(&mut one).cast());
    let mut event = CUevent::NULL;
    ok!(emu, cuGraphEventRecordNodeGetEvent(records, &mut event));
    assert_eq!(event, a);
    ok!(emu, cuGraphEventWaitNodeGetEvent(waits, &mut event));
    assert_eq!(event, a);
    ok!(emu, cuGraphEventWaitNodeSetEvent(waits, b));
    ok!(emu, cuGraphEventWaitNodeGetEvent(waits, &mut event));
    assert_eq!(event, b);
    let exec = emu.instantiate(graph);
    ok!(
        emu,
        cuGraphExecHostNodeSetParams(exec, calls, &host(&mut two))
    );
    ok!(emu, cuGraphExecEventRecordNodeSetEvent(exec, records, b));
    ok!(emu, cuGraphExecEventWaitNodeSetEvent(exec, waits, b));
    run(&emu, exec);
    assert_eq!((one, two), (0, 1));
    assert_eq!(
        code!(emu, cuEventElapsedTime(&mut 0.0, b, b)),
        0,
        "b was recorded"
    );
    assert_eq!(
        code!(emu, cuEventElapsedTime(&mut 0.0, a, a)),
        400,
        "a was not"
    );
    assert_eq!(
        code!(
            emu,
            cuGraphExecHostNodeSetParams(exec, records, &host(&mut two))
        ),
        1
    );
}

#[test]
fn a_child_graph_is_replaced_by_one_of_its_shape() {
    let emu = emu();
    let p = emu.upload(&[0, 0]);
    let context = CUcontext(null_mut());
    let child = |value| {
        let child = emu.graph();
        let _: CUgraphNode = make!(
            emu,
            cuGraphAddMemsetNode(child, null(), 0, &fill(p, value), context)
        );
        child
    };
    let graph = emu.graph();
    let node: CUgraphNode = make!(emu, cuGraphAddChildGraphNode(graph, null(), 0, child(1)));
    let exec = emu.instantiate(graph);
    ok!(
        emu,
        cuGraphExecChildGraphNodeSetParams(exec, node, child(2))
    );
    run(&emu, exec);
    assert_eq!(emu.download(p, 1), [2]);
    assert_eq!(
        code!(
            emu,
            cuGraphExecChildGraphNodeSetParams(exec, node, emu.graph())
        ),
        1,
        "another shape"
    );
    let mut owned = CUgraph::NULL;
    ok!(emu, cuGraphChildGraphNodeGetGraph(node, &mut owned));
    let mut count = 0;
    ok!(emu, cuGraphGetNodes(owned, null_mut(), &mut count));
    assert_eq!(count, 1);
}

#[test]
fn kernel_nodes_have_attributes() {
    use CUlaunchAttributeID as A;
    let emu = emu();
    let add = emu.kernel("add");
    let p = emu.upload(&[1]);
    let graph = emu.graph();
    let (one, two) = (
        emu.add_kernel(graph, &[], add, 1, &[p, 1]),
        emu.add_kernel(graph, &[], add, 1, &[p, 1]),
    );
    let mut value = CUlaunchAttributeValue::zeroed();
    value.words[0] = 3;
    ok!(emu, cuGraphKernelNodeSetAttribute(one, A::PRIORITY, &value));
    value.words[0] = 1;
    ok!(
        emu,
        cuGraphKernelNodeSetAttribute(one, A::COOPERATIVE, &value)
    );
    ok!(emu, cuGraphKernelNodeCopyAttributes(two, one));
    let read = |attribute| {
        let mut value = CUlaunchAttributeValue::zeroed();
        ok!(
            emu,
            cuGraphKernelNodeGetAttribute(two, attribute, &mut value)
        );
        value.words[0]
    };
    assert_eq!((read(A::PRIORITY), read(A::COOPERATIVE)), (3, 1));
    assert_eq!(
        code!(
            emu,
            cuGraphKernelNodeSetAttribute(one, A::PROGRAMMATIC_EVENT, &value)
        ),
        1
    );
    value.words[0] = 2 | 1 << 32;
    assert_eq!(
        code!(
            emu,
            cuGraphKernelNodeSetAttribute(one, A::CLUSTER_DIMENSION, &value)
        ),
        912
    );
}

#[test]
fn the_structure_of_any_node_shows_every_type() {
    let emu = warpwright_emu_13_2();
    let p = emu.upload(&[1]);
    let graph = emu.graph();
    let node = emu.add_kernel(graph, &[], emu.kernel("add"), 1, &[p, 2]);
    let mut shown = CUgraphNodeParams::zeroed();
    ok!(emu, cuGraphNodeGetParams(node, &mut shown));
    assert_eq!(shown.r#type, CUgraphNodeType::KERNEL);
    ok!(emu, cuGraphNodeSetParams(node, &mut shown));
    run(&emu, emu.instantiate(graph));
    assert_eq!(emu.download(p, 1), [3]);
    let (mut a, mut b) = (0, 0);
    ok!(emu, cuGraphGetId(graph, &mut a));
    ok!(emu, cuGraphNodeGetLocalId(node, &mut b));
    assert!(a > 0 && b > 0);
    let mut of = CUgraph::NULL;
    ok!(emu, cuGraphNodeGetContainingGraph(node, &mut of));
    assert_eq!(of, graph);
}

fn warpwright_emu_13_2() -> Emu {
    let config = warpwright_cuda_emu::EmulatorConfig {
        driver_version: 13020,
        ..Default::default()
    };
    crate::harness::emu_with(config)
}

#[test]
fn streams_have_attributes_and_callbacks() {
    unsafe extern "C" fn called(_: CUstream, status: CUresult, data: *mut c_void) {
        // SAFETY: the test passes its own variable and waits for the stream.
        unsafe { *data.cast::<u32>() = status.0 + 1 }
    }
    let emu = emu();
    let (one, two) = (emu.stream(), emu.stream());
    let mut value = CUlaunchAttributeValue::zeroed();
    value.words[0] = u64::from(-3i32 as u32);
    ok!(
        emu,
        cuStreamSetAttribute(one, CUlaunchAttributeID::PRIORITY, &value)
    );
    ok!(emu, cuStreamCopyAttributes(two, one));
    let mut priority = 0;
    ok!(emu, cuStreamGetPriority(two, &mut priority));
    assert_eq!(priority, -3);
    assert_eq!(
        code!(
            emu,
            cuStreamSetAttribute(one, CUlaunchAttributeID::COOPERATIVE, &value)
        ),
        1
    );
    let mut device = 7;
    ok!(emu, cuStreamGetDevice(one, &mut device));
    assert_eq!(device, 0);
    let mut status = 0u32;
    ok!(
        emu,
        cuStreamAddCallback(one, Some(called), from_mut(&mut status).cast(), 0)
    );
    ok!(emu, cuStreamSynchronize(one));
    assert_eq!(status, 1);
    let args = [0x40u64, 1];
    let mut args = pointers(&args);
    let add = emu.kernel("add");
    let extra = null_mut();
    ok!(
        emu,
        cuLaunchKernel(add, 1, 1, 1, 1, 1, 1, 0, one, args.as_mut_ptr(), extra)
    );
    let before = code!(
        emu,
        cuStreamAddCallback(one, Some(called), from_mut(&mut status).cast(), 0)
    );
    assert_eq!(code!(emu, cuStreamSynchronize(one)), 700);
    if before == 0 {
        assert_eq!(status, 701, "the callback is told of the error");
    }
}

#[test]
fn a_capture_goes_into_a_graph_of_the_program() {
    let emu = emu();
    let p = emu.upload(&[0, 0]);
    let graph = emu.graph();
    let context = CUcontext(null_mut());
    let first: CUgraphNode = make!(
        emu,
        cuGraphAddMemsetNode(graph, null(), 0, &fill(p, 4), context)
    );
    let stream = emu.stream();
    let mode = CUstreamCaptureMode::THREAD_LOCAL;
    ok!(
        emu,
        cuStreamBeginCaptureToGraph(stream, graph, &first, null(), 1, mode)
    );
    ok!(emu, cuMemcpyDtoDAsync_v2(p + 4, p, 4, stream));
    let (mut status, mut id, mut of) = (CUstreamCaptureStatus::NONE, 0, CUgraph::NULL);
    let (mut after, mut edges, mut count) = (null(), null(), 0);
    ok!(
        emu,
        cuStreamGetCaptureInfo_v3(
            stream,
            &mut status,
            &mut id,
            &mut of,
            &mut after,
            &mut edges,
            &mut count
        )
    );
    assert_eq!(
        (of, count, status),
        (graph, 1, CUstreamCaptureStatus::ACTIVE)
    );

    // SAFETY: the driver wrote arrays of that length, valid until the next call on the stream.
    let edge = unsafe { *edges };
    assert_eq!((edge.from_port, edge.r#type), (0, 0));
    let mut to = [first];
    let set = CUstreamUpdateCaptureDependencies_flags::empty();
    ok!(
        emu,
        cuStreamUpdateCaptureDependencies_v2(stream, to.as_mut_ptr(), null(), 1, set)
    );
    let mut made = CUgraph::NULL;
    ok!(emu, cuStreamEndCapture(stream, &mut made));
    assert_eq!(made, graph);
    run(&emu, emu.instantiate(graph));
    assert_eq!(emu.download(p, 2), [4, 4]);
}
