//! Memory that graphs allocate, and operations on words.

use warpwright_driver::graph::{Instantiate, Node, NodeWork, WordOperation};
use warpwright_driver::prelude::*;

use super::bench::{Bench, N, text};

/// `a + 1` by way of memory of the graph into `b`. Gives the graph, the memory, and the nodes.
fn through(bench: &Bench) -> (Graph, View<f32>, [NodeId; 3]) {
    let mut graph = bench.graph();
    let (alloc, scratch) = graph.alloc::<f32>(&[], N).unwrap();
    let used = graph
        .launch(&[alloc], &bench.add, bench.add(&bench.a, &scratch, 1.0))
        .unwrap();
    let out = graph.copy(&[used], &scratch, &bench.b).unwrap();
    (graph, scratch, [alloc, used, out])
}

#[test]
fn memory_of_a_graph_is_there_between_its_nodes() {
    let bench = Bench::new();
    let (mut graph, scratch, [.., out]) = through(&bench);
    graph.free(&[out], &scratch).unwrap();
    let mut exec = graph.instantiate().unwrap();
    for _ in 0..3 {
        exec.launch(&bench.stream).unwrap();
    }

    assert_eq!(bench.first(&bench.b), 2.0);
    let names: Vec<String> = graph.nodes().iter().map(Node::name).collect();
    assert_eq!(names, ["alloc", "add", "copy", "free"]);
    assert!(graph.races().is_empty());
}

#[test]
fn memory_that_nobody_frees_stays_or_is_freed_by_the_next_launch() {
    let bench = Bench::new();
    let (graph, ..) = through(&bench);
    let how = Instantiate {
        auto_free: true,
        ..Instantiate::default()
    };
    let mut exec = graph.instantiate_with(how).unwrap();
    for _ in 0..3 {
        exec.launch(&bench.stream).unwrap();
    }

    assert_eq!(bench.first(&bench.b), 2.0);
    drop((exec, graph));
    let (graph, ..) = through(&bench);
    let mut exec = graph.instantiate().unwrap();
    exec.launch(&bench.stream).unwrap();
    let again = exec
        .launch(&bench.stream)
        .and_then(|()| bench.stream.synchronize());
    assert!(text(again).starts_with("cuGraphLaunch: CUDA_ERROR_INVALID_VALUE"));
}

#[test]
fn memory_of_a_graph_is_refused_where_it_is_not_there() {
    let bench = Bench::new();
    let (mut graph, scratch, [_, _, out]) = through(&bench);
    let name = scratch.region().name();
    let of_stream = format!(
        "work of a stream: memory {name} does not exist: a graph allocates it, for its own nodes"
    );
    assert_eq!(text(bench.stream.fill(&scratch, 0.0)), of_stream);
    assert_eq!(text(bench.stream.read(&scratch)), of_stream);
    assert!(text(scratch.to_vec()).starts_with("reading: memory"));
    let captured = capture(&bench.stream, CaptureMode::ThreadLocal, |queue| {
        queue.fill(&scratch, 0.0)
    });
    assert!(text(captured).starts_with("capture: captured work: memory"));

    let mut other = bench.graph();
    other.fill(&[], &scratch, 0.0).unwrap();
    let elsewhere =
        format!("node 0 (fill): memory {name} does not exist: another graph allocates it");
    assert_eq!(text(other.instantiate()), elsewhere);
    assert_eq!(
        text(other.free(&[], &scratch)),
        "freeing in a graph: no node of this graph allocates the memory"
    );

    let free = graph.free(&[out], &scratch).unwrap();
    assert_eq!(
        text(graph.free(&[out], &scratch)),
        "freeing in a graph: another node frees the memory"
    );
    let late = graph.fill(&[out], &scratch, 0.0).unwrap();
    let refused = text(graph.instantiate());
    assert!(
        refused.ends_with("the node does not come before the one that frees it"),
        "{refused}"
    );
    graph.add_edge(late, free).unwrap();
    graph.instantiate().unwrap();
    let early = graph.fill(&[], &scratch, 0.0).unwrap();
    graph.add_edge(early, free).unwrap();
    let refused = text(graph.instantiate());
    assert!(
        refused.ends_with("the node does not come after the one that allocates it"),
        "{refused}"
    );
}

#[test]
fn a_graph_with_memory_is_there_once() {
    let bench = Bench::new();
    let (mut graph, _, [alloc, ..]) = through(&bench);
    let once = "a graph that allocates or frees memory is there once";
    assert_eq!(text(graph.try_clone()), format!("cloning it: {once}"));
    assert_eq!(
        text(bench.graph().child(&[], &graph)),
        format!("adding it to another graph: {once}")
    );
    assert!(
        text(graph.remove_node(alloc))
            .ends_with("a node that allocates or frees memory cannot be removed")
    );
    assert!(text(graph.alloc::<f32>(&[], 0)).ends_with("the size is 0"));
    let mut exec = graph.instantiate().unwrap();
    assert!(
        text(exec.update(&graph))
            .contains("cannot be updated as a whole; change its nodes one by one")
    );
}

#[test]
fn a_change_to_memory_of_the_graph_keeps_its_order() {
    let bench = Bench::new();
    let (mut graph, scratch, [_, used, _]) = through(&bench);
    let side = graph
        .launch(&[], &bench.add, bench.add(&bench.a, &bench.c, 0.0))
        .unwrap();
    let mut exec = graph.instantiate().unwrap();
    exec.set(used, bench.launch(&bench.a, &scratch, 5.0))
        .unwrap();
    let refused = text(exec.set(side, bench.launch(&bench.a, &scratch, 5.0)));
    assert!(
        refused.contains("(add)") && refused.contains("no edge orders them"),
        "{refused}"
    );
    exec.launch(&bench.stream).unwrap();
    assert_eq!(bench.first(&bench.b), 6.0);
}

#[test]
fn words_are_waited_for_and_written() {
    let bench = Bench::new();
    let small = Buffer::<u32>::from_slice(&bench.context, &[5, 0]).unwrap();
    let large = Buffer::<u64>::zeroed(&bench.context, 1).unwrap();
    let (first, second) = (small.view_range(0..1), small.view_range(1..2));
    let mut graph = bench.graph();
    let waits = WordOperation::wait(&first, WaitFor::Equal, 5).unwrap();
    let writes = WordOperation::write(&second, 6).unwrap();
    let node = graph.words(&[], &[waits, writes]).unwrap();
    let big = WordOperation::write(&large, 1 << 40).unwrap();
    graph.words(&[node], &[big]).unwrap();
    let mut exec = graph.instantiate().unwrap();
    exec.launch(&bench.stream).unwrap();
    assert_eq!(bench.stream.read(&small).unwrap(), [5, 6]);
    assert_eq!(bench.stream.read(&large).unwrap(), [1 << 40]);

    let waits = WordOperation::wait(&first, WaitFor::AtLeast, 4).unwrap();
    let writes = WordOperation::write(&second, 7).unwrap();
    exec.set(node, NodeWork::Words(vec![waits, writes]))
        .unwrap();
    exec.launch(&bench.stream).unwrap();
    assert_eq!(bench.stream.read(&small).unwrap(), [5, 7]);

    assert_eq!(
        text(WordOperation::write(&small, 1)),
        "an operation on a word: 1 elements for ".to_string()
            + &small.region().to_string()
            + ", which has 2"
    );
    let byte = Buffer::<u8>::zeroed(&bench.context, 1).unwrap();
    let refused = text(WordOperation::write(&byte, 1));
    assert_eq!(
        refused,
        "an operation on a word: a word of 1 bytes; use a word of 4 or 8 bytes"
    );
    assert_eq!(
        text(graph.words(&[], &[])),
        "operations on words: the list is empty"
    );
}
