//! Conditional nodes: conditions by default and set by kernels.

use warpwright_driver::graph::{Condition, Node, NodeKind};
use warpwright_driver::prelude::*;

use super::bench::{Bench, text};

#[test]
fn a_condition_picks_the_graph_that_runs() {
    let bench = Bench::new();
    for (value, wanted) in [(0, 2.0), (1, 1.0), (7, 1.0)] {
        let mut graph = bench.graph();
        let condition = graph.condition(Some(value)).unwrap();
        let then = |body: &mut Graph| body.fill(&[], &bench.b, 1.0).map(drop);
        let otherwise = |body: &mut Graph| body.fill(&[], &bench.b, 2.0).map(drop);
        graph.if_else(&[], condition, then, otherwise).unwrap();
        bench.run(&graph);
        assert_eq!(bench.first(&bench.b), wanted, "if {value}");
    }
    for (value, wanted) in [(0, 10.0), (2, 12.0), (3, -1.0)] {
        let mut graph = bench.graph();
        let condition = graph.condition(Some(value)).unwrap();
        let before = graph.fill(&[], &bench.b, -1.0).unwrap();
        let case =
            |case: usize, body: &mut Graph| body.fill(&[], &bench.b, 10.0 + case as f32).map(drop);
        let node = graph.switch(&[before], condition, 3, case).unwrap();
        assert_eq!(graph.nodes()[node.index()].name(), "switch");
        bench.run(&graph);
        assert_eq!(bench.first(&bench.b), wanted, "switch {value}");
    }
}

#[test]
fn what_a_body_does_changes_with_the_whole_graph() {
    let bench = Bench::new();
    let build = |value: f32| {
        let mut graph = bench.graph();
        let condition = graph.condition(Some(1)).unwrap();
        let body = |body: &mut Graph| body.fill(&[], &bench.b, value).map(drop);
        let nested = |outer: &mut Graph| {
            let inner = outer.condition(Some(1))?;
            outer.if_then(&[], inner, body).map(drop)
        };
        graph.if_then(&[], condition, nested).unwrap();
        graph
    };
    let body_of = |graph: &Graph| match graph.nodes()[0].kind() {
        NodeKind::Conditional(conditional) => conditional.bodies()[0].nodes()[0].clone(),
        other => panic!("{other:?}"),
    };
    let graph = build(1.0);
    let outer = body_of(&graph);
    let NodeKind::Conditional(inner) = outer.kind() else {
        panic!("{outer:?}")
    };

    let mut exec = graph.instantiate().unwrap();
    let wanted = "changing a node: it is in the body of a conditional node, which changes only with the whole graph: build \
        the graph again and update from it";
    for node in [outer.id(), inner.bodies()[0].nodes()[0].id()] {
        assert_eq!(
            text(exec.set(node, Work::fill(&bench.b, 2.0).unwrap())),
            wanted
        );
        assert_eq!(text(exec.set_enabled(node, false)), wanted);
    }

    assert_eq!(
        text(exec.set_enabled(body_of(&build(1.0)).id(), false)),
        "node 0 is not a node of this graph"
    );
    exec.update(&build(3.0)).unwrap();
    exec.launch(&bench.stream).unwrap();
    assert_eq!(bench.first(&bench.b), 3.0);
}

#[test]
fn a_loop_whose_condition_is_nought_does_not_run_and_bodies_nest() {
    let bench = Bench::new();
    let mut graph = bench.graph();
    let condition = graph.condition(Some(0)).unwrap();
    let looped = graph
        .while_loop(&[], condition, |body| {
            body.fill(&[], &bench.b, 1.0).map(drop)
        })
        .unwrap();
    let condition = graph.condition(Some(1)).unwrap();
    graph
        .if_then(&[looped], condition, |body| {
            let inner = body.condition(Some(1))?;
            let first = body.launch(&[], &bench.add, bench.add(&bench.a, &bench.c, 1.0))?;
            body.if_then(&[first], inner, |body| {
                body.copy(&[], &bench.c, &bench.b).map(drop)
            })
            .map(drop)
        })
        .unwrap();
    bench.run(&graph);
    assert_eq!(bench.first(&bench.b), 2.0);
    assert!(
        graph.dot().contains("while\\nbodies of 1 nodes\\nwrites b"),
        "{}",
        graph.dot()
    );
    let mut recorded = graph.nodes().iter().map(Node::uses).map(|uses| uses.len());
    assert_eq!((recorded.next(), recorded.next()), (Some(1), Some(4)));
}

/// `down(p, handle)` takes one from a word and sets the condition to what is left.
const DOWN: &str = include_str!("down.ptx");

#[test]
fn kernels_set_conditions_by_their_handles() {
    let bench = Bench::new();
    let module = Module::load(&bench.context, DOWN).unwrap();
    let params = [
        Parameter::buffer::<u32>("p", Access::ReadWrite),
        Parameter::value::<u64>("handle"),
    ];

    // SAFETY: the kernel has these parameters, and one thread of it stays within a word.
    let down = unsafe { module.function("down", &params) }.unwrap();
    let word = Buffer::<u32>::from_slice(&bench.context, &[5]).unwrap();
    let launch = |condition: &Condition| {
        let args = vec![HostArg::from(&*word), HostArg::scalar(condition.handle())];
        Launch::new(&down, LaunchConfig::line(1, 1), args).unwrap()
    };

    // A loop runs until the word is nought; what it runs adds one each time.
    let mut graph = bench.graph();
    let condition = graph.condition(Some(1)).unwrap();
    let step = launch(&condition);
    let body = |body: &mut Graph| {
        let counted = body.add(&[], step.clone())?;
        let up = body.launch(&[counted], &bench.add, bench.add(&bench.b, &bench.c, 1.0))?;
        body.copy(&[up], &bench.c, &bench.b).map(drop)
    };
    graph.while_loop(&[], condition, body).unwrap();
    bench.run(&graph);
    assert_eq!(
        (bench.stream.read(&word).unwrap()[0], bench.first(&bench.b)),
        (0, 5.0)
    );

    // A switch by what a kernel before it finds.
    let mut graph = bench.graph();
    let condition = graph.condition(None).unwrap();
    let set = graph.add(&[], launch(&condition)).unwrap();
    graph
        .switch(&[set], condition, 3, |case, body| {
            body.fill(&[], &bench.b, case as f32).map(drop)
        })
        .unwrap();
    let mut exec = graph.instantiate().unwrap();
    for (value, wanted) in [(3, 2.0), (1, 0.0), (2, 1.0), (9, 1.0)] {
        bench.stream.write(&word, &[value]).unwrap();
        exec.launch(&bench.stream).unwrap();
        assert_eq!(bench.first(&bench.b), wanted, "one less than {value}");
    }
}

#[test]
fn a_body_that_fails_removes_its_node() {
    let bench = Bench::new();
    let mut graph = bench.graph();
    let condition = graph.condition(Some(1)).unwrap();
    let short = bench.b.view_range(0..3);
    let failed = graph.if_then(&[], condition, |body| {
        body.copy(&[], &bench.a, &short).map(drop)
    });
    assert!(text(failed).starts_with("copy: 64 elements for b"));
    assert!(
        graph
            .nodes()
            .iter()
            .all(|node| matches!(node.kind(), NodeKind::Removed))
    );

    let condition = graph.condition(Some(1)).unwrap();
    let refused = graph.if_then(&[], condition, |body| body.host(&[], || {}).map(drop));
    assert_eq!(
        text(refused),
        "node 0 (host) is a host function; the body of a conditional node may contain kernels, copies, \
         fills, empty nodes, child graphs and conditional nodes"
    );
    let foreign = bench.graph().condition(None).unwrap();
    let refused = graph.if_then(&[], foreign, |_| Ok(()));
    assert_eq!(
        text(refused),
        "adding a conditional node: the condition belongs to another graph"
    );
}

#[test]
fn a_graph_that_keeps_a_node_without_its_bodies_never_runs() {
    let bench = Bench::new();
    let mut graph = bench.graph();
    let (alloc, scratch) = graph.alloc::<f32>(&[], 1).unwrap();
    graph.free(&[alloc], &scratch).unwrap();
    let condition = graph.condition(Some(1)).unwrap();
    let short = bench.b.view_range(0..3);
    let failed = graph.if_then(&[], condition, |body| {
        body.copy(&[], &bench.a, &short).map(drop)
    });
    assert!(text(failed).starts_with("copy: 64 elements for b"));
    assert_eq!(text(graph.instantiate()), UNUSED);
}

const UNUSED: &str = "instantiating it: a conditional node was removed, or its body could not be built, \
    and the driver refuses a graph with a condition that no node reads: build the graph anew";

/// On an H100 with driver 580.159, such a graph ends with INVALID_VALUE and the log "The graph
/// contains unused conditional handles".
#[test]
fn a_graph_without_one_of_its_conditional_nodes_is_not_instantiated() {
    let bench = Bench::new();
    let mut graph = bench.graph();
    let condition = graph.condition(Some(1)).unwrap();
    let fill = |body: &mut Graph| body.fill(&[], &bench.b, 1.0).map(drop);
    let node = graph.if_then(&[], condition, fill).unwrap();
    graph.remove_node(node).unwrap();
    let other = graph.condition(Some(1)).unwrap();
    graph.if_then(&[], other, fill).unwrap();
    assert_eq!(text(graph.instantiate()), UNUSED);

    // A condition that never had a node is reported by the driver itself.
    let mut graph = bench.graph();
    graph.condition(Some(1)).unwrap();
    assert!(text(graph.instantiate()).contains("no conditional node has the condition"));

    // A node in a body counts as well, and so does a body within a body that fails.
    let mut graph = bench.graph();
    let condition = graph.condition(Some(1)).unwrap();
    let refused = graph.if_then(&[], condition, |body| {
        let inner = body.condition(Some(1))?;
        let node = body.if_then(&[], inner, fill)?;
        body.remove_node(node)
    });
    assert!(text(refused).contains("a condition that no node reads"));
    assert_eq!(text(graph.instantiate()), UNUSED);
    let short = bench.b.view_range(0..3);
    let mut graph = bench.graph();
    let condition = graph.condition(Some(1)).unwrap();
    let failed = graph.if_then(&[], condition, |body| {
        let inner = body.condition(Some(1))?;
        body.if_then(&[], inner, |inner| {
            inner.copy(&[], &bench.a, &short).map(drop)
        })
        .map(drop)
    });
    assert!(text(failed).starts_with("copy: 64 elements for b"));
    assert_eq!(text(graph.instantiate()), UNUSED);
}

#[test]
fn a_body_runs_as_a_part_of_its_graph_only() {
    let bench = Bench::new();
    let mut graph = bench.graph();
    let condition = graph.condition(Some(1)).unwrap();
    let part = "it is the body of a conditional node, which runs as part of its graph only";
    graph
        .if_then(&[], condition, |body| {
            assert_eq!(
                text(body.instantiate()),
                format!("instantiating it: {part}")
            );
            assert_eq!(text(body.try_clone()), format!("cloning it: {part}"));
            assert!(
                text(body.alloc::<f32>(&[], 1))
                    .ends_with("the body of a conditional node has no allocations")
            );
            Ok(())
        })
        .unwrap();
    let once = "a graph with conditional nodes is there once";
    assert_eq!(text(graph.try_clone()), format!("cloning it: {once}"));

    // A body that is taken away names what nobody keeps: such a graph never runs.
    let mut stolen = bench.graph();
    let condition = graph.condition(Some(1)).unwrap();
    let taken = graph.if_then(&[], condition, |body| {
        body.fill(&[], &bench.b, 1.0)?;
        std::mem::swap(body, &mut stolen);
        Ok(())
    });
    let problem = "a conditional node's graph was taken away while it was built";
    assert_eq!(
        text(taken),
        format!("building a conditional node: {problem}")
    );
    assert_eq!(
        text(graph.instantiate()),
        format!("instantiating it: {problem}")
    );
    drop(graph);
    stolen.fill(&[], &bench.b, 2.0).unwrap();
}
