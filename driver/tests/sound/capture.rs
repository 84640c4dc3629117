//! Captures: what they keep, and who else may touch their streams.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::time::{Duration, Instant};

use warpwright_driver::graph::NodeKind;
use warpwright_driver::prelude::*;

use super::*;

/// A graph whose function of the host counts itself, and keeps something that tells when it is
/// gone.
fn counting(context: &Context, ran: &Arc<AtomicUsize>) -> (Graph, std::sync::Weak<u64>) {
    let kept = Arc::new(7u64);
    let (weak, ran) = (Arc::downgrade(&kept), ran.clone());
    let mut graph = Graph::new(context).unwrap();
    graph
        .host(&[], move || _ = ran.fetch_add(*kept as usize, SeqCst))
        .unwrap();
    (graph, weak)
}

#[test]
fn a_graph_launched_into_a_capture_keeps_its_functions_and_memory() {
    emulator(|context| {
        let (stream, add, ran) = (
            Stream::new(&context).unwrap(),
            add(&context),
            Arc::default(),
        );
        let y = Buffer::<f32>::zeroed(&context, N).unwrap();
        let (mut graph, kept) = counting(&context, &ran);
        let x = Buffer::from_slice(&context, &[1.0; N]).unwrap();
        graph.launch(&[], &add, args(&x, &y, 1.0)).unwrap();
        let mut exec = graph.instantiate().unwrap();
        let captured = capture(&stream, CaptureMode::Relaxed, |_| exec.launch(&stream)).unwrap();
        drop((exec, graph, x));

        // Memory that is free is given out again: whoever still names it reads something else.
        let _other: Vec<_> = (0..8)
            .map(|_| Buffer::from_slice(&context, &[9.0; N]).unwrap())
            .collect();
        let mut again = captured.instantiate().unwrap();
        drop(captured);
        assert!(kept.strong_count() > 0, "the function lives");
        again.launch(&stream).unwrap();
        assert_eq!(stream.read(&y).unwrap(), [2.0; N]);
        assert_eq!(ran.load(SeqCst), 7);
        drop(again);
        context.synchronize().unwrap();
        assert_eq!(
            kept.strong_count(),
            0,
            "and goes with the last graph that calls it"
        );
    });
}

#[test]
fn a_graph_launched_into_a_capture_keeps_the_arguments_that_it_had_then() {
    emulator(|context| {
        let (stream, add) = (Stream::new(&context).unwrap(), add(&context));
        let [x, other, y] =
            [1.0f32, 5.0, 0.0].map(|v| Buffer::from_slice(&context, &[v; N]).unwrap());
        let mut graph = Graph::new(&context).unwrap();
        let node = graph.launch(&[], &add, args(&x, &y, 1.0)).unwrap();
        let mut exec = graph.instantiate().unwrap();
        exec.set_args(node, &add, args(&other, &y, 2.0)).unwrap();
        let captured =
            capture(&stream, CaptureMode::ThreadLocal, |_| exec.launch(&stream)).unwrap();
        exec.set_args(node, &add, args(&x, &y, 3.0)).unwrap();
        drop((other, graph, exec));
        let mut again = captured.instantiate().unwrap();
        again.launch(&stream).unwrap();
        assert_eq!(
            stream.read(&y).unwrap(),
            [7.0; N],
            "the other buffer and the 2 of the capture"
        );
    });
}

#[test]
fn what_a_captured_graph_touches_counts_between_streams() {
    emulator(|context| {
        let (one, two) = (
            Stream::new(&context).unwrap(),
            Stream::new(&context).unwrap(),
        );
        let (x, y) = (
            Buffer::<f32>::zeroed(&context, N).unwrap(),
            Buffer::<f32>::zeroed(&context, N).unwrap(),
        );
        let mut graph = Graph::new(&context).unwrap();
        graph.copy(&[], &x, &y).unwrap();
        let mut exec = graph.instantiate().unwrap();
        let captured = capture(&one, CaptureMode::ThreadLocal, |_| exec.launch(&one)).unwrap();
        two.fill(&y, 1.0).unwrap();
        let refused = captured.instantiate().unwrap().launch(&one);
        assert!(
            matches!(refused, Err(Error::UnorderedStreams { .. })),
            "{refused:?}"
        );
        assert!(
            matches!(captured.nodes()[0].kind(), NodeKind::Child(child) if child.nodes().len() == 1)
        );
    });
}

#[test]
fn a_second_thread_gives_a_capturing_stream_work_that_runs_or_is_refused() {
    emulator(|context| {
        let stream = Stream::new(&context).unwrap();
        let count = Buffer::<f32>::zeroed(&context, N).unwrap();
        let (add, stop) = (add(&context), AtomicBool::new(false));
        let captured = AtomicUsize::new(0);
        let (ran, refused) = std::thread::scope(|scope| {
            let begin_and_end = || {
                while !stop.load(SeqCst) {
                    let graph = capture(&stream, CaptureMode::Relaxed, |_| Ok(())).unwrap();
                    captured.fetch_add(graph.nodes().len(), SeqCst);
                    std::thread::yield_now();
                }
            };
            scope.spawn(begin_and_end);
            let result = work_for(
                Duration::from_millis(if cfg!(miri) { 10 } else { 2500 }),
                || {
                    let (x, y) = (
                        Buffer::zeroed(&context, N).unwrap(),
                        Buffer::zeroed(&context, N).unwrap(),
                    );
                    stream.launch(&add, args(&x, &y, 1.0))?;
                    let read = stream.read(&y);
                    // The launch was given: either the read after it sees it, or it was refused
                    // with no word lost.
                    read.map(|y| assert_eq!(y, [1.0; N]))
                },
            );
            stop.store(true, SeqCst);
            result
        });
        assert_eq!(
            captured.load(SeqCst),
            0,
            "no work of the second thread went into a graph"
        );
        assert!(ran > 0, "{ran} ran, {refused} were refused");
        drop(count);
    });
}

/// Works until the time is over; how often it was done, and how often refused because the stream
/// captures.
fn work_for(time: Duration, work: impl Fn() -> Result<(), Error>) -> (usize, usize) {
    let (start, mut ran, mut refused) = (Instant::now(), 0, 0);
    while start.elapsed() < time {
        match work() {
            Ok(()) => ran += 1,
            Err(Error::Capturing { .. }) => refused += 1,
            Err(error) => panic!("{error}"),
        }
    }
    (ran, refused)
}

#[test]
fn a_wait_for_the_stream_ends_no_capture_of_another_thread() {
    emulator(|context| {
        let stream = Stream::new(&context).unwrap();
        let (x, stop) = (
            Buffer::<f32>::zeroed(&context, N).unwrap(),
            AtomicBool::new(false),
        );
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !stop.load(SeqCst) {
                    context.synchronize().unwrap();
                    let _ = stream
                        .synchronize()
                        .map_err(|e| assert!(matches!(e, Error::Capturing { .. }), "{e}"));
                    let _ = stream
                        .is_idle()
                        .map_err(|e| assert!(matches!(e, Error::Capturing { .. }), "{e}"));
                }
            });
            for _ in 0..rounds(3000) {
                stream.fill(&x, 1.0).unwrap();
                let graph = capture(&stream, CaptureMode::Relaxed, |queue| queue.fill(&x, 2.0));
                assert_eq!(
                    graph.map(|g| g.nodes().len()).map_err(|e| e.to_string()),
                    Ok(1)
                );
            }
            stop.store(true, SeqCst);
        });
    });
}

#[test]
fn a_context_waits_for_what_a_stream_was_given_before_its_capture() {
    emulator(|context| {
        let stream = Stream::new(&context).unwrap();
        let x = Buffer::<f32>::zeroed(&context, N).unwrap();
        let hold = Hold::new(&stream);
        stream.fill(&x, 4.0).unwrap();
        capture(&stream, CaptureMode::Relaxed, |_| {
            std::thread::scope(|scope| {
                let reader = scope.spawn(|| x.to_vec());
                std::thread::sleep(Duration::from_millis(20));
                hold.open();
                assert_eq!(reader.join().unwrap()?, [4.0; N]);
                Ok(())
            })
        })
        .unwrap();
    });
}

#[test]
fn a_capture_that_does_not_end_takes_no_work_in_silence() {
    use warpwright_driver::sys::CUresult;
    emulator(|context| {
        let stream = Stream::new(&context).unwrap();
        let x = Buffer::<f32>::zeroed(&context, N).unwrap();
        warpwright_cuda_emu::inject("cuStreamEndCapture", 1, CUresult::UNKNOWN);
        let failed = capture(&stream, CaptureMode::Relaxed, |queue| queue.fill(&x, 2.0));
        assert!(text(failed).contains("cuStreamEndCapture"));
        let given = stream.fill(&x, 4.0);
        match given {
            Ok(()) => assert_eq!(stream.read(&x).unwrap(), [4.0; N], "taken, so done"),
            Err(error) => assert!(matches!(error, Error::Capturing { .. }), "{error}"),
        }
    });
}

#[test]
fn a_capture_ends_also_when_its_context_cannot_be_made_current() {
    use warpwright_driver::sys::CUresult;
    for times in [1, 3] {
        let context = sim::fresh();
        let stream = Stream::new(&context).unwrap();
        let failed = capture(&stream, CaptureMode::ThreadLocal, |_| {
            sim::fail("cuCtxGetCurrent", CUresult::UNKNOWN, times);
            Ok(())
        });
        sim::heal();
        drop(failed);
        assert_eq!(sim::count("cuStreamEndCapture"), 1);
        stream.synchronize().unwrap();
        drop((stream, context));
        sim::expect_clean("after such a capture");
    }
}

#[test]
fn destructors_in_a_capture_do_not_break_it_whatever_context_they_are_of() {
    let context = sim::fresh();
    let far = Context::new(&sim::driver().device(1).unwrap()).unwrap();
    let stream = Stream::new(&context).unwrap();
    let (near_buffer, far_buffer) = (
        Buffer::<u8>::zeroed(&context, 1).unwrap(),
        Buffer::<u8>::zeroed(&far, 1).unwrap(),
    );
    let before = [
        "cuMemFree_v2",
        "cuEventCreate",
        "cuStreamDestroy_v2",
        "cuDevicePrimaryCtxRelease_v2",
    ]
    .map(sim::count);
    capture(&stream, CaptureMode::Global, |_| {
        drop((near_buffer, far_buffer, far));
        let after = [
            "cuMemFree_v2",
            "cuEventCreate",
            "cuStreamDestroy_v2",
            "cuDevicePrimaryCtxRelease_v2",
        ]
        .map(sim::count);
        assert_eq!(before, after, "no destructor calls the driver");
        Ok(())
    })
    .unwrap();
    assert_eq!(sim::count("cuMemFree_v2"), 2);
    assert_eq!(
        sim::count("cuDevicePrimaryCtxRelease_v2"),
        1,
        "the far context went with its buffer"
    );
    drop((stream, context));
    sim::expect_clean("after the capture");
}

#[test]
fn a_panic_in_a_capture_ends_it() {
    let context = sim::fresh();
    let stream = Stream::new(&context).unwrap();
    let buffer = Buffer::<u8>::zeroed(&context, 1).unwrap();
    let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        capture(&stream, CaptureMode::ThreadLocal, |_| {
            drop(buffer);
            panic!("in the region")
        })
    }));
    assert!(panicked.is_err());
    stream.synchronize().unwrap();
    drop((stream, context));
    sim::expect_clean("after a panic");
}
