//! Captures in every mode, captures into graphs, and calls that a capture forbids.

use std::panic::{AssertUnwindSafe, catch_unwind};

use warpwright_driver::graph::Edge;
use warpwright_driver::prelude::*;
use warpwright_driver::sys;

use super::bench::{Bench, N, text};

const MODES: [CaptureMode; 3] = [
    CaptureMode::Global,
    CaptureMode::ThreadLocal,
    CaptureMode::Relaxed,
];

#[test]
fn every_mode_captures() {
    let bench = Bench::new();
    let second = Stream::new(&bench.context).unwrap();
    for mode in MODES {
        let graph = capture(&bench.stream, mode, |queue| {
            queue.launch(&bench.add, bench.add(&bench.a, &bench.b, 1.0))?;
            queue.fork(&second, |_, other| {
                other.launch(&bench.add, bench.add(&bench.b, &bench.c, 1.0))
            })
        });
        let graph = graph.unwrap();
        assert_eq!(
            (graph.nodes().len(), graph.edges().len()),
            (2, 1),
            "{mode:?}"
        );
        bench.run(&graph);
        assert_eq!(bench.first(&bench.c), 3.0, "{mode:?}");
        bench.stream.fill(&bench.c, 0.0).unwrap();
        bench.stream.synchronize().unwrap();
    }
}

#[test]
fn a_capture_forbids_by_its_mode() {
    let bench = Bench::new();
    let graph = bench.graph();
    let ptx =
        ".version 7.0\n.target sm_75\n.address_size 64\n.visible .entry none()\n{\n    ret;\n}\n";
    let of = |what| {
        format!(
            "{what}: this thread captures, and the driver would refuse the call and end the capture; do it before the \
             capture, or capture in the relaxed mode"
        )
    };
    for mode in MODES {
        let captured = capture(&bench.stream, mode, |queue| {
            if mode != CaptureMode::Relaxed {
                assert_eq!(
                    text(Buffer::<f32>::zeroed(&bench.context, N)),
                    of("allocating memory")
                );
                assert_eq!(
                    text(Pinned::<f32>::zeroed(&bench.context, N)),
                    of("allocating pinned memory")
                );
                assert_eq!(
                    text(Module::load(&bench.context, ptx)),
                    of("loading a module")
                );
                assert_eq!(text(graph.instantiate()), of("instantiating a graph"));
            } else {
                drop(Buffer::<f32>::zeroed(&bench.context, N)?);
                Module::load(&bench.context, ptx)?;
            }

            let waits = "waiting for the stream: the stream captures; push work into the queue of the capture, or fork it";
            assert_eq!(text(bench.stream.synchronize()), waits);
            queue.launch(&bench.add, bench.add(&bench.a, &bench.b, 1.0))
        });
        // What was refused before the call did the capture no harm.
        bench.run(&captured.unwrap());
        assert_eq!(bench.first(&bench.b), 2.0);
    }

    let told = capture(&bench.stream, CaptureMode::ThreadLocal, |_| {
        Buffer::<f32>::zeroed(&bench.context, N).map(drop)
    });
    assert_eq!(text(told), format!("capture: {}", of("allocating memory")));
}

#[test]
fn a_capture_goes_on_with_a_graph() {
    let bench = Bench::new();
    for mode in MODES {
        let mut graph = bench.graph();
        let first = graph
            .launch(&[], &bench.add, bench.add(&bench.a, &bench.b, 1.0))
            .unwrap();
        let mut early = graph.instantiate().unwrap();
        let mut graph = capture_into(graph, &[first], &bench.stream, mode, |queue| {
            queue.launch(&bench.add, bench.add(&bench.b, &bench.c, 1.0))?;
            queue.fill(&bench.b, 7.0)
        })
        .unwrap();
        let edges: Vec<_> = graph.edges().iter().map(Edge::indices).collect();
        assert_eq!(edges, [(0, 1), (1, 2)], "{mode:?}");
        let last = graph.nodes()[2].id();
        graph.fill(&[last], &bench.a, 1.0).unwrap();
        bench.run(&graph);
        assert_eq!(
            (bench.first(&bench.b), bench.first(&bench.c)),
            (7.0, 3.0),
            "{mode:?}"
        );
        early
            .set(first, bench.launch(&bench.a, &bench.b, 4.0))
            .unwrap();
        early.launch(&bench.stream).unwrap();
        assert_eq!(bench.first(&bench.b), 5.0);
    }
}

#[test]
fn a_capture_into_a_graph_that_fails_takes_the_graph_with_it() {
    let bench = Bench::new();
    let started = || {
        let mut graph = bench.graph();
        let first = graph
            .launch(&[], &bench.add, bench.add(&bench.a, &bench.b, 1.0))
            .unwrap();
        let exec = graph.instantiate().unwrap();
        (graph, first, exec)
    };

    // The region's own error, the driver's at the end, and a panic.
    let (graph, first, mut exec) = started();
    let short = bench.c.view_range(0..1);
    let failed = capture_into(
        graph,
        &[first],
        &bench.stream,
        CaptureMode::ThreadLocal,
        |q| q.copy(&bench.a, &short),
    );
    assert!(text(failed).starts_with("capture: copy: 64 elements for c"));
    exec.set(first, bench.launch(&bench.a, &bench.b, 2.0))
        .unwrap();

    let (graph, first, mut exec) = started();
    let spoilt = capture_into(
        graph,
        &[first],
        &bench.stream,
        CaptureMode::ThreadLocal,
        |queue| {
            queue.fill(&bench.c, 1.0)?;
            // SAFETY: a query changes nothing.
            let ask =
                || unsafe { (bench.context.driver().api().cuStreamQuery)(bench.stream.raw()) };
            assert_eq!(
                bench.context.run(ask)?,
                sys::CUresult::STREAM_CAPTURE_UNSUPPORTED
            );
            Ok(())
        },
    );
    assert!(text(spoilt).contains("CUDA_ERROR_STREAM_CAPTURE_INVALIDATED (901)"));

    // The graph is the driver's now, and nothing names its nodes any more; what was made of it
    // runs.
    assert_eq!(
        text(exec.set(first, bench.launch(&bench.a, &bench.b, 2.0))),
        "node 0 was removed from its graph"
    );
    exec.launch(&bench.stream).unwrap();

    let (graph, first, mut exec) = started();
    let panicked = catch_unwind(AssertUnwindSafe(|| {
        let _ = capture_into(
            graph,
            &[first],
            &bench.stream,
            CaptureMode::ThreadLocal,
            |_| panic!("in the region"),
        );
    }));
    assert!(panicked.is_err());
    exec.launch(&bench.stream).unwrap();
    assert_eq!(bench.first(&bench.b), 2.0);

    let foreign = bench.graph();
    let refused = capture_into(
        foreign,
        &[first],
        &bench.stream,
        CaptureMode::ThreadLocal,
        |_| Ok(()),
    );
    assert_eq!(text(refused), "node 0 is not a node of this graph");
}
