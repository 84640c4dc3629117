//! Streams and events: what happens in order, what does not, and when calls return.

use std::ffi::c_void;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::SeqCst};
use std::time::{Duration, Instant};

use warpwright_driver_sys::*;

use crate::harness::{Emu, code, emu, make, ok};

/// A gate that a host node waits at, so that a stream stands still until a test lets it go.
pub(crate) struct Gate {
    open: AtomicBool,
    passed: AtomicU32,
}

impl Gate {
    /// Gates live for ever, since a stream may outlive a failed test.
    pub(crate) fn new() -> &'static Self {
        Box::leak(Box::new(Self {
            open: AtomicBool::new(false),
            passed: AtomicU32::new(0),
        }))
    }

    /// A graph of one node that waits at the gate.
    pub(crate) fn exec(&'static self, emu: &Emu) -> CUgraphExec {
        unsafe extern "C" fn wait(gate: *mut c_void) {
            // SAFETY: the test passes a gate, which lives for ever.
            let gate = unsafe { &*gate.cast::<Gate>() };
            let deadline = Instant::now() + Duration::from_secs(20);
            while !gate.open.load(SeqCst) && Instant::now() < deadline {
                std::thread::sleep(Duration::from_millis(1));
            }
            gate.passed.fetch_add(1, SeqCst);
        }
        let graph = emu.graph();
        let params = CUDA_HOST_NODE_PARAMS_v1 {
            r#fn: Some(wait),
            userData: std::ptr::from_ref(self).cast_mut().cast(),
        };
        let _: CUgraphNode = make!(emu, cuGraphAddHostNode(graph, std::ptr::null(), 0, &params));
        emu.instantiate(graph)
    }

    pub(crate) fn open(&self) {
        self.open.store(true, SeqCst);
    }

    pub(crate) fn passed(&self) -> u32 {
        self.passed.load(SeqCst)
    }
}

#[test]
fn calls_return_before_the_work() {
    let emu = emu();
    let (stream, gate) = (emu.stream(), Gate::new());
    let (exec, event) = (gate.exec(&emu), emu.event());
    let p = emu.upload(&[1]);
    ok!(emu, cuEventRecord(event, stream));
    ok!(emu, cuEventSynchronize(event));
    ok!(emu, cuGraphLaunch(exec, stream));
    ok!(emu, cuMemsetD32Async(p, 9, 1, stream));
    ok!(emu, cuEventRecord(event, stream));
    assert_eq!(code!(emu, cuStreamQuery(stream)), 600);
    assert_eq!(code!(emu, cuEventQuery(event)), 600);
    assert_eq!(
        emu.download(p, 1),
        [1],
        "a stream that does not block is not waited for"
    );
    gate.open();
    ok!(emu, cuEventSynchronize(event));
    ok!(emu, cuStreamSynchronize(stream));
    ok!(emu, cuStreamQuery(stream));
    assert_eq!((emu.download(p, 1), gate.passed()), (vec![9], 1));
}

#[test]
fn the_legacy_stream_waits_for_blocking_streams() {
    let emu = emu();
    let blocking: CUstream = make!(emu, cuStreamCreate(CUstream_flags::empty()));
    let gate = Gate::new();
    let exec = gate.exec(&emu);
    let p = emu.upload(&[1]);
    ok!(emu, cuGraphLaunch(exec, blocking));
    ok!(emu, cuMemsetD32Async(p, 9, 1, blocking));
    assert_eq!(code!(emu, cuStreamQuery(CUstream::NULL)), 600);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            std::thread::sleep(Duration::from_millis(20));
            gate.open();
        });
        assert_eq!(emu.download(p, 1), [9], "the copy waited");
    });
}

#[test]
fn pageable_memory_is_read_at_the_call_and_pinned_memory_later() {
    let emu = emu();
    let (stream, gate) = (emu.stream(), Gate::new());
    let exec = gate.exec(&emu);
    let (a, b) = (emu.alloc(4), emu.alloc(4));
    let pinned = emu.pinned(1);
    let mut pageable = 1u32;

    // SAFETY: one word was allocated.
    unsafe { pinned.write_volatile(1) };
    ok!(emu, cuGraphLaunch(exec, stream));
    ok!(
        emu,
        cuMemcpyHtoDAsync_v2(a, std::ptr::from_ref(&pageable).cast(), 4, stream)
    );
    ok!(emu, cuMemcpyHtoDAsync_v2(b, pinned.cast(), 4, stream));
    pageable += 1;

    // SAFETY: as above.
    unsafe { pinned.write_volatile(2) };
    gate.open();
    ok!(emu, cuStreamSynchronize(stream));
    assert_eq!(
        (emu.download(a, 1), emu.download(b, 1), pageable),
        (vec![1], vec![2], 2)
    );
}

#[test]
fn events_order_streams() {
    let emu = emu();
    let (first, second, gate) = (emu.stream(), emu.stream(), Gate::new());
    let (exec, event) = (gate.exec(&emu), emu.event());
    let (a, b) = (emu.upload(&[1]), emu.upload(&[0]));
    ok!(emu, cuGraphLaunch(exec, first));
    ok!(emu, cuMemsetD32Async(a, 7, 1, first));
    ok!(emu, cuEventRecord(event, first));
    ok!(emu, cuStreamWaitEvent(second, event, 0));
    ok!(emu, cuMemcpyDtoDAsync_v2(b, a, 4, second));
    assert_eq!(code!(emu, cuStreamQuery(second)), 600);
    gate.open();
    ok!(emu, cuStreamSynchronize(second));
    assert_eq!(emu.download(b, 1), [7]);
}

#[test]
fn events_keep_time() {
    let emu = emu();
    let stream = emu.stream();
    let (start, end, never) = (emu.event(), emu.event(), emu.event());
    let timeless: CUevent = make!(emu, cuEventCreate(CUevent_flags::DISABLE_TIMING));
    ok!(emu, cuEventRecord(start, stream));
    ok!(emu, cuEventRecord(timeless, stream));
    ok!(emu, cuEventRecord(end, stream));
    ok!(emu, cuEventSynchronize(end));
    let mut ms = -1.0;
    ok!(emu, cuEventElapsedTime(&mut ms, start, end));
    assert!((0.0..1000.0).contains(&ms), "{ms}");
    assert_eq!(code!(emu, cuEventElapsedTime(&mut ms, never, end)), 400);
    assert_eq!(code!(emu, cuEventElapsedTime(&mut ms, timeless, end)), 400);
    ok!(emu, cuEventQuery(never));
}

#[test]
fn stale_handles_are_refused() {
    let emu = emu();
    let (stream, event) = (emu.stream(), emu.event());
    ok!(emu, cuStreamDestroy_v2(stream));
    ok!(emu, cuEventDestroy_v2(event));
    assert_eq!(code!(emu, cuStreamSynchronize(stream)), 400);
    assert_eq!(code!(emu, cuStreamDestroy_v2(stream)), 400);
    assert_eq!(code!(emu, cuStreamDestroy_v2(CUstream::NULL)), 1);
    assert_eq!(code!(emu, cuEventSynchronize(event)), 400);
    assert_eq!(
        code!(emu, cuEventRecord(CUevent::NULL, CUstream::NULL)),
        400
    );
    assert_eq!(
        code!(emu, cuStreamSynchronize(CUstream(event.0))),
        400,
        "a handle of another kind"
    );
    assert_eq!(
        code!(emu, cuStreamSynchronize(CUstream(0x1234 as *mut c_void))),
        400,
        "no handle at all"
    );
}
