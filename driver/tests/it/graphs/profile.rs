//! The nodes of a graph one by one.

use warpwright_driver::graph::WordOperation;
use warpwright_driver::memory::Buffer;
use warpwright_driver::stream::WaitFor;

use super::bench::{Bench, N};

#[test]
fn a_profile_runs_each_node_in_order_and_counts_its_bytes() {
    let bench = Bench::new();
    let mut child = bench.graph();
    child
        .launch(&[], &bench.add, bench.add(&bench.b, &bench.c, 1.0))
        .unwrap();
    let mut graph = bench.graph();
    let last = graph.child(&[], &child).unwrap();
    let first = graph
        .launch(&[], &bench.add, bench.add(&bench.a, &bench.b, 1.0))
        .unwrap();
    let host = graph.host(&[first], || {}).unwrap();
    graph.add_edge(host, last).unwrap();
    let profile = graph.profile(&bench.stream).unwrap().against(1e12);
    let rows: Vec<_> = profile
        .rows
        .iter()
        .map(|row| (row.name.as_str(), row.bytes))
        .collect();
    assert_eq!(
        rows,
        [("add", 8 * N as u64), ("host", 0), ("add", 8 * N as u64)]
    );
    assert_eq!(bench.first(&bench.c), 3.0);
    let table = profile.to_string();
    assert_eq!(table.lines().count(), 5, "{table}");
    assert!(
        table.lines().next().unwrap().ends_with("ceiling") && table.contains("all"),
        "{table}"
    );

    let mut exec = graph.instantiate().unwrap();
    exec.set_enabled(first, false).unwrap();
    assert_eq!(exec.profile(&bench.stream).unwrap().rows.len(), 2);
}

#[test]
fn what_runs_as_a_part_of_a_graph_only_is_named() {
    let bench = Bench::new();
    let words = Buffer::<u32>::zeroed(&bench.context, 2).unwrap();
    let word = |i| words.view_range(i..i + 1);
    let mut graph = bench.graph();
    let (alloc, memory) = graph.alloc::<f32>(&[], N).unwrap();
    let fill = graph.fill(&[alloc], &memory, 1.0).unwrap();
    let free = graph.free(&[fill], &memory).unwrap();
    let write = graph
        .words(&[free], &[WordOperation::write(&word(0), 7).unwrap()])
        .unwrap();

    // The word is written beside it: one after the other, this would wait for ever.
    let wait = WordOperation::wait(&word(1), WaitFor::Equal, 1).unwrap();
    let wait = graph.words(&[write], &[wait]).unwrap();
    let condition = graph.condition(Some(1)).unwrap();
    let branch = graph
        .if_then(&[write], condition, |then| {
            then.fill(&[], &bench.b, 5.0).map(drop)
        })
        .unwrap();
    let last = graph
        .launch(&[branch], &bench.add, bench.add(&bench.a, &bench.c, 1.0))
        .unwrap();
    graph
        .words(&[last], &[WordOperation::write(&word(1), 1).unwrap()])
        .unwrap();
    let profile = graph.profile(&bench.stream).unwrap();
    let rows: Vec<_> = profile
        .rows
        .iter()
        .map(|row| (row.node, row.name.as_str()))
        .collect();
    assert_eq!(rows[..2], [(write, "words"), (last, "add")]);
    let memory = "its memory exists only during a launch of the graph";
    let mut untimed: Vec<_> = profile
        .untimed
        .iter()
        .map(|u| (u.node, u.name.as_str(), u.why))
        .collect();
    untimed.sort_unstable();
    assert_eq!(
        untimed,
        [
            (alloc, "alloc", memory),
            (fill, "fill", "it uses memory that a graph allocates"),
            (free, "free", memory),
            (
                wait,
                "words",
                "another node may write the word that it waits for",
            ),
            (branch, "if", "the device decides whether its graphs run"),
        ]
    );
    assert_eq!(
        (bench.stream.read(&words).unwrap(), bench.first(&bench.b)),
        (vec![7, 1], 0.0)
    );
    let table = profile.to_string();
    assert!(
        table.contains("\n    5  if                              not timed: the device decides"),
        "{table}"
    );
}
