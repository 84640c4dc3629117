//! The structure of a graph: edges of every kind, removal, attributes, copies, and the objects that
//! a graph keeps alive.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use warpwright_driver::graph::{Instantiate, NodeAttribute};
use warpwright_driver::prelude::*;

use super::bench::{Bench, N, text};

/// Two kernels that add one to `x` into `y`; both wait, and the first lets the next one start.
fn overlapping(bench: &Bench) -> Launch {
    let ptx = "
.version 7.8
.target sm_90
.address_size 64
.visible .entry waits(.param .u64 x)
{
    .reg .b64 %rd<2>;
    griddepcontrol.wait;
    griddepcontrol.launch_dependents;
    ld.param.u64 %rd1, [x];
    ret;
}
";
    let module = Module::load(&bench.context, ptx).unwrap();

    // SAFETY: the kernel touches nothing.
    let waits =
        unsafe { module.function("waits", &[Parameter::buffer::<f32>("x", Access::ReadWrite)]) }
            .unwrap();
    Launch::new(
        &waits,
        LaunchConfig::line(1, 32),
        vec![HostArg::from(&*bench.b)],
    )
    .unwrap()
}

#[test]
fn edges_of_every_kind_come_and_go() {
    let bench = Bench::new();
    let launch = overlapping(&bench);
    let mut graph = bench.graph();
    let first = graph.add(&[], launch.clone()).unwrap();
    let second = graph
        .add_by(EdgeKind::LaunchOrder, &[first], launch.clone())
        .unwrap();
    let third = graph.add(&[], launch.clone()).unwrap();
    graph
        .add_edge_of(EdgeKind::LaunchOrder, second, third)
        .unwrap();
    let fourth = graph
        .add_by(EdgeKind::Programmatic, &[third], launch.clone())
        .unwrap();
    graph.add_edge(first, fourth).unwrap();
    let kinds: Vec<_> = graph
        .edges()
        .iter()
        .map(|e| (e.indices(), e.kind.name()))
        .collect();
    let wanted = [
        ((0, 1), "launch order"),
        ((1, 2), "launch order"),
        ((2, 3), "programmatic"),
        ((0, 3), "full"),
    ];
    assert_eq!(kinds, wanted);
    assert_eq!(graph.programmatic_edges(), 3);
    assert!(
        graph
            .dot()
            .contains("n0 -> n1 [label=\"b RAW\" style=dotted]"),
        "{}",
        graph.dot()
    );
    bench.run(&graph);

    graph.remove_edge(second, third).unwrap();
    graph.remove_edge(first, fourth).unwrap();
    assert_eq!(
        text(graph.remove_edge(first, fourth)),
        "edge from node 0 to node 3: it does not exist"
    );
    assert_eq!((graph.edges().len(), graph.programmatic_edges()), (2, 2));
    assert_eq!(graph.races().len(), 4, "the pairs on either side");
    bench.run(&{
        graph.add_edge(second, third).unwrap();
        graph
    });
}

#[test]
fn a_node_that_was_removed_stays_in_what_was_made_before() {
    let bench = Bench::new();
    let mut graph = bench.graph();
    let first = graph
        .launch(&[], &bench.add, bench.add(&bench.a, &bench.b, 1.0))
        .unwrap();
    let second = graph
        .launch(&[first], &bench.add, bench.add(&bench.b, &bench.c, 1.0))
        .unwrap();
    let mut before = graph.instantiate().unwrap();
    graph.remove_node(first).unwrap();
    assert_eq!(
        text(graph.fill(&[first], &bench.c, 0.0)),
        "node 0 was removed from its graph"
    );
    assert_eq!((graph.nodes().len(), graph.edges().len()), (2, 0));
    assert!(!graph.dot().contains("n0 "), "{}", graph.dot());

    before.launch(&bench.stream).unwrap();
    assert_eq!(bench.first(&bench.c), 3.0);
    let changed = before.set(first, bench.launch(&bench.a, &bench.b, 5.0));
    assert_eq!(text(changed), "node 0 was removed from its graph");
    assert_eq!(
        text(before.set_enabled(first, false)),
        "node 0 was removed from its graph"
    );
    before
        .set(second, bench.launch(&bench.b, &bench.c, 2.0))
        .unwrap();
    before.launch(&bench.stream).unwrap();
    assert_eq!(bench.first(&bench.c), 4.0);
    bench.run(&graph);
    assert_eq!(bench.first(&bench.c), 3.0);

    // A new node takes a new number.
    assert_eq!(graph.fill(&[second], &bench.c, 0.0).unwrap().index(), 2);
}

#[test]
fn attributes_come_from_the_launch_and_by_hand() {
    let bench = Bench::new();
    let config = LaunchConfig::line(1, 128)
        .priority(-2)
        .cooperative()
        .remote_domain();
    let args = bench.launch(&bench.a, &bench.b, 1.0).args();
    let launch = Launch::new(bench.add.function(), config, args).unwrap();
    let mut graph = bench.graph();
    let node = graph.add(&[], launch.clone()).unwrap();
    for attribute in [
        NodeAttribute::Priority(-2),
        NodeAttribute::Cooperative(true),
        NodeAttribute::RemoteDomain(true),
    ] {
        assert_eq!(graph.attribute(node, attribute).unwrap(), attribute);
    }

    let plain = graph
        .launch(&[node], &bench.add, bench.add(&bench.b, &bench.c, 1.0))
        .unwrap();
    for attribute in [
        NodeAttribute::Priority(3),
        NodeAttribute::Cluster([1, 1, 1]),
        NodeAttribute::SharedCarveout(50),
    ] {
        graph.set_attribute(plain, attribute).unwrap();
        assert_eq!(graph.attribute(plain, attribute).unwrap(), attribute);
    }

    graph.copy_attributes(node, plain).unwrap();
    assert_eq!(
        graph.attribute(plain, NodeAttribute::Priority(0)).unwrap(),
        NodeAttribute::Priority(-2)
    );
    let empty = graph.empty(&[]).unwrap();
    let refused = text(graph.set_attribute(empty, NodeAttribute::Priority(0)));
    assert_eq!(
        refused,
        "node 2 (empty) is an empty node; only a kernel has attributes"
    );
    let how = Instantiate {
        node_priority: true,
        ..Instantiate::default()
    };
    let mut exec = graph.instantiate_with(how).unwrap();
    exec.launch(&bench.stream).unwrap();
    assert_eq!(bench.first(&bench.c), 3.0);
    let other = text(exec.set(node, bench.launch(&bench.a, &bench.b, 1.0)));
    assert!(
        other.starts_with(
            "kernel add: cluster, cooperative, priority and domain are attributes of the node"
        ),
        "{other}"
    );
    let programmatic = overlapping(&bench).config().programmatic();
    let waits = Launch::new(
        overlapping(&bench).function(),
        programmatic,
        vec![HostArg::from(&*bench.b)],
    )
    .unwrap();
    assert!(text(graph.add(&[], waits)).contains("by a programmatic edge, not by its launch"));
}

#[test]
fn a_copy_changes_without_its_original() {
    let bench = Bench::new();
    let mut graph = bench.graph();
    let gone = graph.empty(&[]).unwrap();
    let first = graph
        .launch(&[], &bench.add, bench.add(&bench.a, &bench.b, 1.0))
        .unwrap();
    graph.remove_node(gone).unwrap();
    let mut copy = graph.try_clone().unwrap();
    let later = graph
        .launch(&[first], &bench.add, bench.add(&bench.b, &bench.c, 1.0))
        .unwrap();
    let there = copy.copy_of(first).unwrap();
    assert_eq!(there.index(), first.index());
    copy.launch(&[there], &bench.add, bench.add(&bench.b, &bench.c, 10.0))
        .unwrap();
    bench.run(&graph);
    assert_eq!(bench.first(&bench.c), 3.0);
    drop(graph);
    let mut exec = copy.instantiate().unwrap();
    exec.launch(&bench.stream).unwrap();
    assert_eq!(bench.first(&bench.c), 12.0);
    exec.set(there, bench.launch(&bench.a, &bench.b, 2.0))
        .unwrap();
    exec.launch(&bench.stream).unwrap();
    assert_eq!(bench.first(&bench.c), 13.0);
    assert_eq!(
        text(exec.set(first, bench.launch(&bench.a, &bench.b, 2.0))),
        "node 1 is not a node of this graph"
    );
    assert_eq!(
        text(copy.copy_of(gone)),
        "node 0 was removed from its graph"
    );
    assert!(
        copy.copy_of(later)
            .is_ok_and(|node| copy.nodes()[node.index()].name() == "add")
    );
    assert_eq!(
        text(copy.copy_of(there)),
        "node 1 is not a node of this graph"
    );
}

#[test]
fn whatever_is_dropped_the_launch_finds_what_it_needs() {
    let bench = Bench::new();
    let calls = Arc::new(AtomicU32::new(0));
    let mut exec = {
        let own = Buffer::<f32>::from_slice(&bench.context, &[4.0; N]).unwrap();
        let between = Buffer::<f32>::zeroed(&bench.context, N).unwrap();
        let event = Event::untimed(&bench.context).unwrap();
        let counted = calls.clone();
        let mut child = bench.graph();
        let first = child
            .launch(&[], &bench.add, bench.add(&own, &between, 1.0))
            .unwrap();
        child
            .host(&[first], move || {
                counted.fetch_add(1, Ordering::Relaxed);
            })
            .unwrap();
        let mut graph = bench.graph();
        let inner = graph.child(&[], &child).unwrap();
        let marked = graph.record(&[inner], &event).unwrap();
        let condition = graph.condition(Some(1)).unwrap();
        graph
            .if_then(&[marked], condition, |body| {
                body.copy(&[], &between, &bench.b).map(drop)
            })
            .unwrap();
        graph.instantiate().unwrap()
    };
    exec.launch(&bench.stream).unwrap();
    drop(exec);
    assert_eq!(bench.first(&bench.b), 5.0);
    bench.context.synchronize().unwrap();
    assert_eq!(
        (calls.load(Ordering::Relaxed), Arc::strong_count(&calls)),
        (1, 1)
    );
}

#[test]
fn an_event_that_a_graph_records_orders_nothing_that_is_not_known() {
    let bench = Bench::new();
    let other = Stream::new(&bench.context).unwrap();
    let event = Event::untimed(&bench.context).unwrap();
    bench.stream.fill(&bench.b, 1.0).unwrap();
    event.record(&bench.stream).unwrap();
    let mut graph = bench.graph();
    graph.record(&[], &event).unwrap();
    graph.instantiate().unwrap().launch(&other).unwrap();

    // The event marks a place in the graph now, and no longer the one after the fill.
    other.wait(&event).unwrap();
    assert!(matches!(
        other.fill(&bench.b, 2.0),
        Err(Error::UnorderedStreams { .. })
    ));
}
