//! The nodes of a graph one by one.

use crate::bench::{Bench, N, text};

#[test]
fn a_profile_runs_each_node_in_order_and_counts_its_bytes() {
    let bench = Bench::new();
    let mut child = bench.graph();
    child.launch(&[], &bench.add, bench.add(&bench.b, &bench.c, 1.0)).unwrap();
    let mut graph = bench.graph();
    let last = graph.child(&[], &child).unwrap();
    let first = graph.launch(&[], &bench.add, bench.add(&bench.a, &bench.b, 1.0)).unwrap();
    let host = graph.host(&[first], || {}).unwrap();
    graph.add_edge(host, last).unwrap();
    let profile = graph.profile(&bench.stream).unwrap().against(1e12);
    let rows: Vec<_> = profile.rows.iter().map(|row| (row.name.as_str(), row.bytes)).collect();
    assert_eq!(rows, [("add", 8 * N as u64), ("host", 0), ("add", 8 * N as u64)]);
    assert_eq!(bench.first(&bench.c), 3.0);
    let table = profile.to_string();
    assert_eq!(table.lines().count(), 5, "{table}");
    assert!(table.lines().next().unwrap().ends_with("ceiling") && table.contains("all"), "{table}");

    let mut exec = graph.instantiate().unwrap();
    exec.set_enabled(first, false).unwrap();
    assert_eq!(exec.profile(&bench.stream).unwrap().rows.len(), 2);
    graph.alloc::<f32>(&[], 1).unwrap();
    let refused = text(graph.profile(&bench.stream));
    assert!(
        refused.starts_with("node 3 (alloc) is an allocation; it runs as a part of a graph only"),
        "{refused}"
    );
}
