//! Changes of nodes in an instantiated graph.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use warpwright_driver::graph::{NodeKind, NodeWork};
use warpwright_driver::prelude::*;
use warpwright_driver::sys;

use super::bench::{Bench, N, text};
use crate::kernels::AddArgs;

#[test]
fn every_sort_of_node_takes_other_work_of_its_sort() {
    let bench = Bench::new();
    let calls = Arc::new(AtomicU32::new(0));
    let add = |amount: u32| {
        let calls = calls.clone();
        move || {
            calls.fetch_add(amount, Ordering::Relaxed);
        }
    };
    let events = [(); 4].map(|()| Event::untimed(&bench.context).unwrap());
    let child = |value: f32| {
        let mut child = bench.graph();
        child
            .launch(&[], &bench.add, bench.add(&bench.b, &bench.c, value))
            .unwrap();
        child
    };
    let mut graph = bench.graph();
    let wait = graph.wait(&[], &events[0]).unwrap();
    let fill = graph.fill(&[wait], &bench.a, 1.0).unwrap();
    let copy = graph.copy(&[fill], &bench.a, &bench.b).unwrap();
    let inner = graph.child(&[copy], &child(1.0)).unwrap();
    let host = graph.host(&[inner], add(1)).unwrap();
    let record = graph.record(&[host], &events[1]).unwrap();
    let mut exec = graph.instantiate().unwrap();
    drop(graph);
    exec.launch(&bench.stream).unwrap();
    assert_eq!(
        (bench.first(&bench.c), calls.load(Ordering::Relaxed)),
        (2.0, 1)
    );

    let half = (bench.a.view_range(0..N / 2), bench.b.view_range(0..N / 2));
    exec.set(fill, Work::fill(&bench.a, 4.0).unwrap()).unwrap();
    exec.set(copy, Work::copy(&half.0, &half.1).unwrap())
        .unwrap();
    exec.set(inner, &child(10.0)).unwrap();
    exec.set(host, NodeWork::host(&bench.context, add(100)))
        .unwrap();
    exec.set(wait, NodeWork::Wait(events[2].clone())).unwrap();
    exec.set(record, NodeWork::Record(events[3].clone()))
        .unwrap();
    drop(events);
    exec.launch(&bench.stream).unwrap();
    let c = bench.stream.read(&bench.c).unwrap();
    assert_eq!(
        (c[0], c[N - 1], calls.load(Ordering::Relaxed)),
        (14.0, 11.0, 101)
    );
}

#[test]
fn a_node_keeps_its_sort_and_its_place() {
    let bench = Bench::new();
    let mut graph = bench.graph();
    let fill = graph.fill(&[], &bench.b, 1.0).unwrap();
    let side = graph.fill(&[], &bench.c, 1.0).unwrap();
    let nothing = graph.fill(&[], &bench.c.view_range(0..0), 1.0).unwrap();
    let empty = graph.empty(&[]).unwrap();
    let mut exec = graph.instantiate().unwrap();
    for (node, work, wanted) in [
        (
            fill,
            NodeWork::from(Work::copy(&bench.a, &bench.b).unwrap()),
            "only a copy can become a copy, and only a fill a fill",
        ),
        (
            nothing,
            NodeWork::from(Work::fill(&bench.c, 1.0).unwrap()),
            "only a fill a fill, of at least one byte",
        ),
        (
            fill,
            NodeWork::host(&bench.context, || {}),
            "only a host function can become another one",
        ),
        (
            empty,
            NodeWork::Child(&graph),
            "only a child graph can become another one",
        ),
        (
            empty,
            NodeWork::Record(Event::new(&bench.context).unwrap()),
            "only a node that records or waits for an event can take another event",
        ),
        (
            fill,
            NodeWork::Words(Vec::new()),
            "only operations on words can become others",
        ),
        (
            side,
            NodeWork::from(Work::fill(&bench.b, 1.0).unwrap()),
            "would both touch b and no edge orders them",
        ),
    ] {
        let refused = text(exec.set(node, work));
        assert!(refused.contains(wanted), "{refused}");
    }

    let mut own = bench.graph();
    let inner = own.child(&[], &bench.graph()).unwrap();
    let refused = text(own.instantiate().unwrap().set(inner, &own));
    assert_eq!(
        refused,
        "making it another graph's child: it is the graph itself"
    );
    exec.set(fill, Work::fill(&bench.b.view_range(0..3), 5.0).unwrap())
        .unwrap();
    exec.set_enabled(side, false).unwrap();
    assert!(!exec.is_enabled(side).unwrap() && exec.is_enabled(fill).unwrap());
    exec.launch(&bench.stream).unwrap();
    assert_eq!(
        bench.stream.read(&bench.b).unwrap()[..4],
        [5.0, 5.0, 5.0, 0.0]
    );
    assert_eq!(bench.first(&bench.c), 0.0);
}

#[test]
fn numbers_change_in_place_and_a_refusal_changes_nothing() {
    let bench = Bench::new();
    let mut graph = bench.graph();
    let node = graph
        .launch(&[], &bench.add, bench.add(&bench.a, &bench.b, 1.0))
        .unwrap();
    let mut exec = graph.instantiate().unwrap();
    for value in [2.0, 3.0, 4.0] {
        exec.set_args(node, &bench.add, bench.add(&bench.a, &bench.b, value))
            .unwrap();
        exec.launch(&bench.stream).unwrap();
        assert_eq!(bench.first(&bench.b), 1.0 + value);
    }

    let short = AddArgs {
        n: 1,
        ..bench.add(&bench.a, &bench.b, 9.0)
    };
    assert!(
        text(exec.set_args(node, &bench.add, short)).ends_with("x and y must hold n = 1 elements")
    );
    warpwright_cuda_emu::inject(
        "cuGraphExecKernelNodeSetParams_v2",
        1,
        sys::CUresult::INVALID_VALUE,
    );
    let refused = text(exec.set_args(node, &bench.add, bench.add(&bench.a, &bench.b, 9.0)));
    assert!(
        refused.starts_with("cuGraphExecKernelNodeSetParams_v2: CUDA_ERROR_INVALID_VALUE"),
        "{refused}"
    );
    let NodeKind::Work(Work::Launch(launch)) = exec.nodes()[0].kind() else {
        panic!("no kernel")
    };

    assert!(
        matches!(launch.args()[3], HostArg::Scalar(_, bits) if bits == u64::from(4f32.to_bits()))
    );
    exec.set_args(node, &bench.add, bench.add(&bench.a, &bench.c, 5.0))
        .unwrap();
    exec.launch(&bench.stream).unwrap();
    assert_eq!((bench.first(&bench.b), bench.first(&bench.c)), (5.0, 6.0));
}

#[test]
fn an_update_names_what_changed_and_what_the_driver_refused() {
    let bench = Bench::new();
    let chain = |kinds: &str| {
        let mut graph = bench.graph();
        let mut last = Vec::new();
        for kind in kinds.chars() {
            let node = match kind {
                'k' => graph.launch(&last, &bench.add, bench.add(&bench.a, &bench.b, 1.0)),
                'f' => graph.fill(&last, &bench.b, 2.0),
                _ => graph.empty(&last),
            };
            last = vec![node.unwrap()];
        }

        graph
    };
    let mut exec = chain("kfe").instantiate().unwrap();
    let refused = text(exec.update(&chain("kke")));
    assert!(refused.contains("ERROR_NODE_TYPE_CHANGED"), "{refused}");
    assert!(
        refused.ends_with(
            "node 1 (add), dependency on no node named; node 1 was a fill (fill) and became a kernel (add)"
        ),
        "{refused}"
    );
    let refused = text(exec.update(&chain("kf")));
    assert!(refused.ends_with("; 3 nodes became 2"), "{refused}");
    exec.update(&chain("kfe")).unwrap();
    exec.launch(&bench.stream).unwrap();
    assert_eq!(bench.first(&bench.b), 2.0);
}

#[test]
fn an_update_in_another_order_of_adding_is_for_the_whole_graph() {
    let bench = Bench::new();
    let mut graph = bench.graph();
    let kernel = graph
        .launch(&[], &bench.add, bench.add(&bench.a, &bench.b, 1.0))
        .unwrap();
    graph.fill(&[kernel], &bench.b, 2.0).unwrap();
    let mut exec = graph.instantiate().unwrap();
    let mut turned = bench.graph();
    let fill = turned.fill(&[], &bench.b, 3.0).unwrap();
    let first = turned
        .launch(&[], &bench.add, bench.add(&bench.a, &bench.b, 1.0))
        .unwrap();
    turned.add_edge(first, fill).unwrap();

    // Whether a driver takes such a graph is its own affair; afterwards nothing may be mistaken for
    // another node.
    match exec.update(&turned) {
        Ok(()) => {
            let refused = text(exec.set(kernel, bench.launch(&bench.a, &bench.b, 9.0)));
            assert!(
                refused.contains("whose nodes were added in another order"),
                "{refused}"
            );
        }
        Err(Error::Update { .. }) => exec
            .set(kernel, bench.launch(&bench.a, &bench.b, 9.0))
            .unwrap(),
        Err(other) => panic!("{other}"),
    }

    exec.launch(&bench.stream).unwrap();
    assert!([2.0, 3.0].contains(&bench.first(&bench.b)));
}
