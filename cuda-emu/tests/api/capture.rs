//! Stream capture: what becomes of work, and what a capture does not allow.

use std::ffi::c_void;
use std::ptr::null_mut;

use warpwright_driver_sys::*;

use crate::harness::{Emu, code, emu, make, ok};

const NONE: CUstreamCaptureStatus = CUstreamCaptureStatus::NONE;
const ACTIVE: CUstreamCaptureStatus = CUstreamCaptureStatus::ACTIVE;
const INVALIDATED: CUstreamCaptureStatus = CUstreamCaptureStatus::INVALIDATED;
const GLOBAL: CUstreamCaptureMode = CUstreamCaptureMode::GLOBAL;
const THREAD_LOCAL: CUstreamCaptureMode = CUstreamCaptureMode::THREAD_LOCAL;
const RELAXED: CUstreamCaptureMode = CUstreamCaptureMode::RELAXED;

fn status(emu: &Emu, stream: CUstream) -> CUstreamCaptureStatus {
    let mut status = CUstreamCaptureStatus(-1);
    ok!(emu, cuStreamIsCapturing(stream, &mut status));
    status
}

/// Ends a capture: the code, and the number of nodes and edges of the graph.
fn end(emu: &Emu, stream: CUstream) -> (u32, CUgraph) {
    let mut graph = CUgraph(8 as *mut c_void);
    let code = code!(emu, cuStreamEndCapture(stream, &mut graph));
    (code, graph)
}

fn counts(emu: &Emu, graph: CUgraph) -> (usize, usize) {
    let (mut nodes, mut edges) = (0, 0);
    ok!(emu, cuGraphGetNodes(graph, null_mut(), &mut nodes));
    ok!(
        emu,
        cuGraphGetEdges(graph, null_mut(), null_mut(), &mut edges)
    );
    (nodes, edges)
}

#[test]
fn a_fork_and_a_join_become_a_diamond() {
    let emu = emu();
    let (add, copy) = (emu.kernel("add"), emu.kernel("copy"));
    let [x, y, z] = [emu.upload(&[1]), emu.upload(&[0]), emu.upload(&[0])];
    let (main, side) = (emu.stream(), emu.stream());
    let (fork, join) = (emu.event(), emu.event());
    ok!(emu, cuStreamBeginCapture_v2(main, THREAD_LOCAL));
    assert_eq!(status(&emu, main), ACTIVE);
    assert_eq!(emu.launch(add, 1, main, &[x, 10]), 0);
    ok!(emu, cuEventRecord(fork, main));
    ok!(emu, cuStreamWaitEvent(side, fork, 0));
    assert_eq!(status(&emu, side), ACTIVE);
    assert_eq!(emu.launch(copy, 1, side, &[z, x]), 0);
    ok!(emu, cuMemcpyDtoDAsync_v2(y, x, 4, main));
    ok!(emu, cuEventRecord(join, side));
    ok!(emu, cuStreamWaitEvent(main, join, 0));
    ok!(emu, cuMemsetD32Async(x, 0, 1, main));
    let (code, graph) = end(&emu, main);
    assert_eq!((code, counts(&emu, graph)), (0, (4, 4)));
    assert_eq!([status(&emu, main), status(&emu, side)], [NONE, NONE]);
    assert_eq!(emu.download(x, 1), [1], "nothing ran yet");
    let exec = emu.instantiate(graph);
    ok!(emu, cuGraphLaunch(exec, main));
    ok!(emu, cuStreamSynchronize(main));
    assert_eq!([x, y, z].map(|p| emu.download(p, 1)[0]), [0, 11, 11]);
    assert_eq!(emu.findings(), "");
}

#[test]
fn a_launch_of_a_graph_becomes_a_child() {
    let emu = emu();
    let p = emu.upload(&[1]);
    let inner = emu.graph();
    emu.add_kernel(inner, &[], emu.kernel("add"), 1, &[p, 1]);
    let exec = emu.instantiate(inner);
    let stream = emu.stream();
    ok!(emu, cuStreamBeginCapture_v2(stream, RELAXED));
    ok!(emu, cuGraphLaunch(exec, stream));
    ok!(emu, cuGraphLaunch(exec, stream));
    let (code, graph) = end(&emu, stream);
    assert_eq!((code, counts(&emu, graph)), (0, (2, 1)));
    let outer = emu.instantiate(graph);
    ok!(emu, cuGraphLaunch(outer, stream));
    ok!(emu, cuStreamSynchronize(stream));
    assert_eq!(emu.download(p, 1), [3]);
}

#[test]
fn the_capture_tells_where_it_is() {
    let emu = emu();
    let p = emu.upload(&[1]);
    let stream = emu.stream();
    ok!(emu, cuStreamBeginCapture_v2(stream, THREAD_LOCAL));
    ok!(emu, cuMemsetD32Async(p, 0, 1, stream));
    let (mut status, mut id, mut graph) = (NONE, 0, CUgraph::NULL);
    let (mut after, mut count) = (std::ptr::null(), 0);
    ok!(
        emu,
        cuStreamGetCaptureInfo_v2(
            stream,
            &mut status,
            &mut id,
            &mut graph,
            &mut after,
            &mut count
        )
    );
    assert_eq!((status, count, counts(&emu, graph)), (ACTIVE, 1, (1, 0)));

    // SAFETY: the array holds `count` nodes until the next call on the stream.
    let node = unsafe { after.read() };
    let mut kind = CUgraphNodeType(-1);
    ok!(emu, cuGraphNodeGetType(node, &mut kind));
    assert_eq!(kind, CUgraphNodeType::MEMSET);
    assert_eq!(end(&emu, stream), (0, graph));
}

/// What a test does while a stream captures.
type Call<'a> = &'a dyn Fn(&Emu, CUstream) -> u32;

#[test]
fn calls_that_a_capture_does_not_allow_end_it() {
    let synchronise: Call = &|emu, stream| code!(emu, cuStreamSynchronize(stream));
    let query: Call = &|emu, stream| code!(emu, cuStreamQuery(stream));
    let context: Call = &|emu, _| code!(emu, cuCtxSynchronize());
    let alloc: Call = &|emu, _| code!(emu, cuMemAlloc_v2(&mut 0, 4));
    let load: Call = &|emu, _| emu.try_load(crate::harness::PTX).err().unwrap_or(0);
    let ask_event: Call = &|emu, stream| {
        let event = emu.event();
        ok!(emu, cuEventRecord(event, stream));
        code!(emu, cuEventQuery(event))
    };
    let foreign_event: Call = &|emu, stream| {
        let (event, other) = (emu.event(), emu.stream());
        ok!(emu, cuEventRecord(event, other));
        code!(emu, cuStreamWaitEvent(stream, event, 0))
    };
    for (what, call, mode, expected) in [
        ("synchronise", synchronise, RELAXED, 900),
        ("query", query, RELAXED, 900),
        ("context", context, RELAXED, 900),
        ("event", ask_event, RELAXED, 907),
        ("isolation", foreign_event, RELAXED, 905),
        ("alloc", alloc, GLOBAL, 900),
        ("alloc", alloc, THREAD_LOCAL, 900),
        ("alloc", alloc, RELAXED, 0),
        ("load", load, THREAD_LOCAL, 900),
        ("load", load, RELAXED, 0),
    ] {
        let emu = emu();
        let stream = emu.stream();
        ok!(emu, cuStreamBeginCapture_v2(stream, mode));
        assert_eq!(call(&emu, stream), expected, "{what} {mode:?}");
        let bad = expected != 0;
        assert_eq!(
            status(&emu, stream),
            if bad { INVALIDATED } else { ACTIVE },
            "{what} {mode:?}"
        );
        let (code, graph) = end(&emu, stream);
        assert_eq!(
            (code, graph.is_null()),
            (if bad { 901 } else { 0 }, bad),
            "{what} {mode:?}"
        );
        assert_eq!(status(&emu, stream), NONE);
        ok!(emu, cuStreamSynchronize(stream));
    }
}

#[test]
fn modes_reach_other_threads() {
    let emu = emu();
    let context: CUcontext = make!(emu, cuCtxGetCurrent());
    let alloc_there = |mode: CUstreamCaptureMode| {
        std::thread::scope(|scope| {
            let there = scope.spawn(|| {
                ok!(emu, cuCtxSetCurrent(context));
                let mut mode = mode;
                ok!(emu, cuThreadExchangeStreamCaptureMode(&mut mode));
                assert_eq!(mode, GLOBAL, "the mode of a new thread");
                code!(emu, cuMemAlloc_v2(&mut 0, 4))
            });
            there.join().unwrap()
        })
    };
    for (capture, thread, expected) in [
        (GLOBAL, GLOBAL, 900),
        (GLOBAL, THREAD_LOCAL, 0),
        (GLOBAL, RELAXED, 0),
        (THREAD_LOCAL, GLOBAL, 0),
        (RELAXED, GLOBAL, 0),
    ] {
        let stream = emu.stream();
        ok!(emu, cuStreamBeginCapture_v2(stream, capture));
        assert_eq!(alloc_there(thread), expected, "{capture:?} {thread:?}");
        assert_eq!(end(&emu, stream).0, if expected == 0 { 0 } else { 901 });
    }
}

#[test]
fn captures_begin_and_end_where_they_should() {
    let emu = emu();
    let context: CUcontext = make!(emu, cuCtxGetCurrent());
    let (main, side, third) = (emu.stream(), emu.stream(), emu.stream());
    let event = emu.event();
    assert_eq!(
        code!(emu, cuStreamBeginCapture_v2(CUstream::NULL, RELAXED)),
        900
    );
    assert_eq!(end(&emu, main).0, 401, "it does not capture");
    ok!(emu, cuStreamBeginCapture_v2(main, THREAD_LOCAL));
    assert_eq!(code!(emu, cuStreamBeginCapture_v2(main, THREAD_LOCAL)), 401);
    ok!(emu, cuEventRecord(event, main));
    ok!(emu, cuStreamWaitEvent(side, event, 0));
    assert_eq!(end(&emu, side).0, 903);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            ok!(emu, cuCtxSetCurrent(context));
            assert_eq!(end(&emu, main).0, 908);
        });
    });
    assert_eq!(status(&emu, main), ACTIVE, "903 and 908 leave it alone");

    ok!(emu, cuStreamBeginCapture_v2(third, THREAD_LOCAL));
    assert_eq!(code!(emu, cuStreamWaitEvent(third, event, 0)), 902);
    assert_eq!([end(&emu, third).0, end(&emu, main).0], [901, 901]);
    assert_eq!(status(&emu, side), NONE);
}

#[test]
fn a_fork_must_be_joined() {
    let emu = emu();
    let p = emu.upload(&[1]);
    let (main, side, event) = (emu.stream(), emu.stream(), emu.event());
    ok!(emu, cuStreamBeginCapture_v2(main, THREAD_LOCAL));
    ok!(emu, cuEventRecord(event, main));
    ok!(emu, cuStreamWaitEvent(side, event, 0));
    ok!(emu, cuMemsetD32Async(p, 0, 1, side));
    let (code, graph) = end(&emu, main);
    assert_eq!((code, graph), (904, CUgraph::NULL));
    assert_eq!([status(&emu, main), status(&emu, side)], [NONE, NONE]);
}

#[test]
fn the_legacy_stream_must_not_meet_a_capture() {
    let emu = emu();
    let p = emu.upload(&[1]);
    let blocking: CUstream = make!(emu, cuStreamCreate(CUstream_flags::empty()));
    ok!(emu, cuStreamBeginCapture_v2(blocking, RELAXED));
    assert_eq!(code!(emu, cuMemsetD32Async(p, 0, 1, CUstream::NULL)), 906);
    assert_eq!(end(&emu, blocking).0, 901);

    let stream = emu.stream();
    ok!(emu, cuStreamBeginCapture_v2(stream, RELAXED));
    ok!(emu, cuMemsetD32Async(p, 0, 1, CUstream::NULL));
    assert_eq!(
        end(&emu, stream).0,
        0,
        "a stream that does not block is not concerned"
    );
}

#[test]
fn a_capture_ends_with_its_context() {
    let emu = emu();
    let stream = emu.stream();
    ok!(emu, cuStreamBeginCapture_v2(stream, GLOBAL));
    ok!(emu, cuDevicePrimaryCtxRelease_v2(0));
    let context = make!(emu, cuDevicePrimaryCtxRetain(0));
    ok!(emu, cuCtxSetCurrent(context));
    emu.alloc(4);
}
