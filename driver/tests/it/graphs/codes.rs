//! The driver's codes 900 to 908, provoked by raw calls on streams that this crate did not make,
//! and what follows: the capture ends, and both the raw stream and this crate's go on.

use std::ptr::null_mut;

use warpwright_driver::prelude::*;
use warpwright_driver::sys::*;

use super::bench::Bench;

/// Calls an optional function of the driver.
macro_rules! call {
    ($raw:expr, $name:ident($($arg:expr),*)) => {
        ($raw.bench.context.driver().api().$name.expect(stringify!($name)))($($arg),*)
    };
}

/// Streams and an event of the program's own.
struct Raw {
    bench: Bench,
    first: CUstream,
    second: CUstream,
    event: CUevent,
}

impl Raw {
    /// Runs a test with the context current. The streams are blocking where asked.
    fn with(flags: CUstream_flags, test: impl FnOnce(&Raw)) {
        let bench = Bench::new();
        let (mut first, mut second, mut event) = (CUstream::NULL, CUstream::NULL, CUevent::NULL);
        let driver = *bench.context.driver();
        let api = driver.api();
        let context = bench.context.clone();
        let _current = context.enter().unwrap();

        // SAFETY: the handles are ours to write.
        unsafe {
            assert_eq!((api.cuStreamCreate)(&mut first, flags), CUresult::SUCCESS);
            assert_eq!((api.cuStreamCreate)(&mut second, flags), CUresult::SUCCESS);
            assert_eq!(
                (api.cuEventCreate)(&mut event, CUevent_flags::DISABLE_TIMING),
                CUresult::SUCCESS
            );
        }
        let raw = Raw {
            bench,
            first,
            second,
            event,
        };
        test(&raw);
        raw.expect_usable();
    }

    fn begin(&self, stream: CUstream) {
        self.begin_in(stream, CUstreamCaptureMode::THREAD_LOCAL);
    }

    fn begin_in(&self, stream: CUstream, mode: CUstreamCaptureMode) {
        assert_eq!(
            // SAFETY: the stream is alive.
            unsafe { call!(self, cuStreamBeginCapture_v2(stream, mode)) },
            CUresult::SUCCESS
        );
    }

    /// Ends a capture, and destroys the graph where there is one.
    fn end(&self, stream: CUstream) -> CUresult {
        let mut graph = CUgraph::NULL;
        // SAFETY: `graph` is ours to write, and ours to destroy where the capture went well.
        unsafe {
            let code = call!(self, cuStreamEndCapture(stream, &mut graph));
            if code == CUresult::SUCCESS {
                assert_eq!(call!(self, cuGraphDestroy(graph)), CUresult::SUCCESS);
            }
            code
        }
    }

    fn record(&self, stream: CUstream) -> CUresult {
        // SAFETY: event and stream are alive.
        unsafe { (self.bench.context.driver().api().cuEventRecord)(self.event, stream) }
    }

    fn wait(&self, stream: CUstream) -> CUresult {
        // SAFETY: event and stream are alive.
        unsafe { (self.bench.context.driver().api().cuStreamWaitEvent)(stream, self.event, 0) }
    }

    fn fill(&self, stream: CUstream) -> CUresult {
        // SAFETY: the buffer is alive, and no work of this crate uses it now.
        unsafe {
            (self.bench.context.driver().api().cuMemsetD8Async)(
                self.bench.b.address(),
                0,
                4,
                stream,
            )
        }
    }

    /// Each adopted stream takes work of this crate, and can be captured again.
    fn expect_usable(&self) {
        let bench = &self.bench;
        for raw in [self.first, self.second] {
            // SAFETY: the stream outlives the test.
            let stream = unsafe { Stream::from_raw(&bench.context, raw) }.unwrap();
            stream
                .launch(&bench.add, bench.add(&bench.a, &bench.b, 1.0))
                .unwrap();
            stream.synchronize().unwrap();
            let graph = capture(&stream, CaptureMode::ThreadLocal, |queue| {
                queue.launch(&bench.add, bench.add(&bench.a, &bench.b, 2.0))
            });
            graph
                .unwrap()
                .instantiate()
                .unwrap()
                .launch(&stream)
                .unwrap();
            stream.synchronize().unwrap();
            assert_eq!(bench.first(&bench.b), 3.0);
        }
    }
}

const OWN: CUstream_flags = CUstream_flags::NON_BLOCKING;

#[test]
fn code_900_and_901_an_allocation_and_a_wait_end_the_capture() {
    Raw::with(OWN, |raw| {
        let api = raw.bench.context.driver().api();
        raw.begin(raw.first);
        let mut address = 0;

        // SAFETY: `address` is ours to write.
        let code = unsafe { (api.cuMemAlloc_v2)(&mut address, 4) };
        assert_eq!(code, CUresult::STREAM_CAPTURE_UNSUPPORTED);
        assert_eq!(raw.fill(raw.first), CUresult::STREAM_CAPTURE_INVALIDATED);
        assert_eq!(raw.end(raw.first), CUresult::STREAM_CAPTURE_INVALIDATED);

        raw.begin(raw.first);
        assert_eq!(
            // SAFETY: the stream is alive.
            unsafe { (api.cuStreamSynchronize)(raw.first) },
            CUresult::STREAM_CAPTURE_UNSUPPORTED
        );
        assert_eq!(raw.end(raw.first), CUresult::STREAM_CAPTURE_INVALIDATED);
    });
}

#[test]
fn code_902_two_captures_do_not_merge() {
    Raw::with(OWN, |raw| {
        raw.begin(raw.first);
        raw.begin(raw.second);
        assert_eq!(raw.fill(raw.first), CUresult::SUCCESS);
        assert_eq!(raw.record(raw.first), CUresult::SUCCESS);
        assert_eq!(raw.wait(raw.second), CUresult::STREAM_CAPTURE_MERGE);
        assert_eq!(raw.end(raw.first), CUresult::STREAM_CAPTURE_INVALIDATED);
        assert_eq!(raw.end(raw.second), CUresult::STREAM_CAPTURE_INVALIDATED);
    });
}

#[test]
fn code_903_and_904_a_capture_ends_where_it_began_and_with_all_its_forks() {
    Raw::with(OWN, |raw| {
        raw.begin(raw.first);
        assert_eq!(raw.fill(raw.first), CUresult::SUCCESS);
        assert_eq!(raw.record(raw.first), CUresult::SUCCESS);
        assert_eq!(raw.wait(raw.second), CUresult::SUCCESS);
        assert_eq!(raw.fill(raw.second), CUresult::SUCCESS);
        assert_eq!(raw.end(raw.second), CUresult::STREAM_CAPTURE_UNMATCHED);

        // The stream that was drawn in is no stream for work of this crate until then.
        // SAFETY: the stream outlives the test.
        let drawn = unsafe { Stream::from_raw(&raw.bench.context, raw.second) }.unwrap();
        assert!(matches!(
            drawn.fill(&raw.bench.c, 0.0),
            Err(Error::Capturing { .. })
        ));
        assert_eq!(raw.end(raw.first), CUresult::STREAM_CAPTURE_UNJOINED);
    });
}

#[test]
fn code_905_a_capture_waits_for_nothing_outside() {
    Raw::with(OWN, |raw| {
        assert_eq!(raw.record(raw.second), CUresult::SUCCESS);
        raw.begin(raw.first);
        assert_eq!(raw.wait(raw.first), CUresult::STREAM_CAPTURE_ISOLATION);
        assert_eq!(raw.end(raw.first), CUresult::STREAM_CAPTURE_INVALIDATED);
    });
}

#[test]
fn code_906_the_legacy_stream_does_not_wait_for_a_capture() {
    Raw::with(CUstream_flags::empty(), |raw| {
        raw.begin(raw.first);
        assert_eq!(
            raw.fill(CUstream(null_mut())),
            CUresult::STREAM_CAPTURE_IMPLICIT
        );
        assert_eq!(raw.end(raw.first), CUresult::STREAM_CAPTURE_INVALIDATED);
    });
}

#[test]
fn code_907_an_event_of_a_capture_marks_no_time() {
    Raw::with(OWN, |raw| {
        raw.begin(raw.first);
        assert_eq!(raw.record(raw.first), CUresult::SUCCESS);
        // SAFETY: the event is alive.
        let code = unsafe { (raw.bench.context.driver().api().cuEventSynchronize)(raw.event) };
        assert_eq!(code, CUresult::CAPTURED_EVENT);
        assert_eq!(raw.end(raw.first), CUresult::STREAM_CAPTURE_INVALIDATED);
    });
}

#[test]
fn code_908_a_capture_ends_on_its_thread() {
    Raw::with(OWN, |raw| {
        let elsewhere = |raw: &Raw| {
            let (context, stream) = (raw.bench.context.clone(), raw.first);
            let end = raw.bench.context.driver().api().cuStreamEndCapture.unwrap();
            let on_thread = move || {
                let mut graph = CUgraph::NULL;
                // SAFETY: `graph` is ours to write; the stream is alive.
                let code = context.run(|| unsafe { end(stream, &mut graph) }).unwrap();
                (code, graph)
            };
            std::thread::spawn(on_thread).join().unwrap()
        };
        raw.begin(raw.first);
        assert_eq!(elsewhere(raw).0, CUresult::STREAM_CAPTURE_WRONG_THREAD);
        assert_eq!(raw.end(raw.first), CUresult::SUCCESS);

        raw.begin_in(raw.first, CUstreamCaptureMode::RELAXED);
        let (code, graph) = elsewhere(raw);
        assert_eq!(code, CUresult::SUCCESS);
        assert_eq!(
            // SAFETY: the graph is ours.
            unsafe { call!(raw, cuGraphDestroy(graph)) },
            CUresult::SUCCESS
        );
    });
}
