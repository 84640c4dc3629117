//! A graph is instantiated only if edges order the nodes that touch the same bytes, or the program
//! waives the check.

use proptest::prelude::*;
use warpwright_driver::graph::{Instantiate, WordOperation};
use warpwright_driver::prelude::*;

use super::*;

/// The start of the error for a race between two nodes, and the bytes.
fn race(first: &str, second: &str, bytes: &str) -> String {
    format!("instantiating it: node {first} and node {second} touch bytes {bytes} of ")
}

fn expect_race(graph: &Graph, wanted: &str) {
    let refused = text(graph.instantiate());
    assert!(refused.starts_with(wanted), "{refused}\nwanted: {wanted}");
    assert!(!graph.races().is_empty());
}

fn expect_none(graph: &Graph) {
    assert!(graph.races().is_empty(), "{}", graph.races()[0]);
    graph.instantiate().unwrap();
}

#[test]
fn forgotten_edges_are_refused_and_named() {
    emulator(|context| {
        let [x, y, z] =
            ["x", "y", "z"].map(|name| Buffer::<f32>::zeroed(&context, N).unwrap().labelled(name));
        let (low, high, all) = (x.view_range(0..8), x.view_range(8..16), x.view());
        let graph = || Graph::new(&context).unwrap();

        let mut g = graph();
        g.fill(&[], &low, 1.0).unwrap();
        g.fill(&[], &high, 2.0).unwrap();
        g.copy(&[], &y, &z).unwrap();
        g.copy(&[], &y.view_range(0..8), &x.view_range(16..24))
            .unwrap();
        expect_none(&g); // different bytes, and two readers
        let third = g.fill(&[], &x.view_range(4..12), 3.0).unwrap();
        expect_race(&g, &race("0 (fill)", "4 (fill)", "16 to 32"));
        assert!(
            text(g.instantiate())
                .contains("x, one of them writing, and no edge orders them (1 more such pairs")
        );
        g.add_edge(third, g.nodes()[0].id()).unwrap();
        expect_race(&g, &race("1 (fill)", "4 (fill)", "32 to 48"));
        g.add_edge(g.nodes()[1].id(), third).unwrap();
        expect_none(&g);
        g.remove_edge(third, g.nodes()[0].id()).unwrap();
        expect_race(&g, &race("0 (fill)", "4 (fill)", "16 to 32"));
        g.remove_node(third).unwrap();
        expect_none(&g);

        // A reader and a later writer, an earlier writer and a reader.
        let mut g = graph();
        g.copy(&[], &x, &y).unwrap();
        g.fill(&[], &low, 1.0).unwrap();
        expect_race(&g, &race("0 (copy)", "1 (fill)", "0 to 32"));
        let mut g = graph();
        g.fill(&[], &low, 1.0).unwrap();
        g.copy(&[], &x, &y).unwrap();
        expect_race(&g, &race("0 (fill)", "1 (copy)", "0 to 32"));

        // A path through nodes that touch nothing orders, and ends with them.
        let mut g = graph();
        let first = g.fill(&[], &all, 1.0).unwrap();
        let one = g.empty(&[first]).unwrap();
        let two = g.empty(&[one]).unwrap();
        g.copy(&[two], &all, &y).unwrap();
        expect_none(&g);
        g.remove_node(one).unwrap();
        expect_race(&g, &race("0 (fill)", "3 (copy)", "0 to 128"));

        // A whole write after parts, of which one was forgotten, and a reader between.
        let mut g = graph();
        let first = g.fill(&[], &low, 1.0).unwrap();
        let second = g.fill(&[], &high, 1.0).unwrap();
        let read = g.copy(&[first], &low, &y.view_range(0..8)).unwrap();
        g.fill(&[read], &all, 2.0).unwrap();
        expect_race(&g, &race("1 (fill)", "3 (fill)", "32 to 64"));
        g.add_edge(second, g.nodes()[3].id()).unwrap();
        expect_none(&g);
    });
}

#[test]
fn races_within_children_and_bodies_count() {
    emulator(|context| {
        let stream = Stream::new(&context).unwrap();
        let [x, y] =
            ["x", "y"].map(|name| Buffer::<f32>::zeroed(&context, N).unwrap().labelled(name));
        let mut racy = Graph::new(&context).unwrap();
        racy.fill(&[], &x, 1.0).unwrap();
        racy.fill(&[], &x, 2.0).unwrap();
        let mut right = Graph::new(&context).unwrap();
        let first = right.fill(&[], &x, 1.0).unwrap();
        right.fill(&[first], &x, 2.0).unwrap();

        let mut outer = Graph::new(&context).unwrap();
        outer.empty(&[]).unwrap();
        outer.child(&[], &racy).unwrap();
        let wanted = "instantiating it: node 0 (fill) and node 1 (fill) within node 1 (child) touch bytes 0 to 128 of x";
        expect_race(&outer, wanted);
        let mut around = Graph::new(&context).unwrap();
        around.child(&[], &outer).unwrap();
        expect_race(
            &around,
            &wanted.replace(
                "within node 1 (child)",
                "within node 1 (child) within node 0 (child)",
            ),
        );
        expect_race(
            &around.try_clone().unwrap(),
            "instantiating it: node 0 (fill)",
        );

        let mut graph = Graph::new(&context).unwrap();
        let condition = graph.condition(Some(1)).unwrap();
        graph
            .if_then(&[], condition, |body| {
                body.fill(&[], &y, 1.0)?;
                body.copy(&[], &x, &y).map(drop)
            })
            .unwrap();
        expect_race(
            &graph,
            "instantiating it: node 0 (fill) and node 1 (copy) within node 0 (if) touch bytes 0 to 128 of y",
        );

        // Two children that touch the same bytes.
        let mut graph = Graph::new(&context).unwrap();
        let first = graph.child(&[], &right).unwrap();
        let second = graph.child(&[], &right).unwrap();
        expect_race(&graph, &race("0 (child)", "1 (child)", "0 to 128"));
        graph.add_edge(first, second).unwrap();
        expect_none(&graph);
        let mut exec = graph.instantiate().unwrap();
        let wanted = "making it another graph's child: node 0 (fill) and node 1 (fill) touch bytes 0 to 128 of x";
        assert!(text(exec.set(first, &racy)).starts_with(wanted));

        // An update, and a captured graph.
        let mut exec = {
            let mut apart = Graph::new(&context).unwrap();
            apart.fill(&[], &x, 1.0).unwrap();
            apart.fill(&[], &y, 2.0).unwrap();
            apart.instantiate().unwrap()
        };
        let wanted = "updating by it: node 0 (fill) and node 1 (fill) touch bytes 0 to 128 of x";
        assert!(text(exec.update(&racy)).starts_with(wanted));

        // SAFETY: both orders are right here.
        let mut waived = unsafe { racy.instantiate_with_races(Instantiate::default()) }.unwrap();
        waived.update(&racy).unwrap();
        let captured = capture(&stream, CaptureMode::Relaxed, |_| waived.launch(&stream)).unwrap();
        expect_race(
            &captured,
            "instantiating it: node 0 (fill) and node 1 (fill) within node 0 (child)",
        );
        let other = Stream::new(&context).unwrap();
        let forked = capture(&stream, CaptureMode::ThreadLocal, |queue| {
            queue.fork(&other, |one, two| {
                one.fill(&x, 1.0)?;
                two.copy(&x, &y)
            })
        })
        .unwrap();
        expect_race(&forked, &race("0 (fill)", "1 (copy)", "0 to 128"));
        let joined = capture(&stream, CaptureMode::ThreadLocal, |queue| {
            queue.fill(&x, 1.0)?;
            queue.fork(&other, |one, two| {
                one.fill(&y.view_range(0..8), 1.0)?;
                two.copy(&x.view_range(8..16), &y.view_range(8..16))
            })?;
            queue.copy(&y, &x)
        })
        .unwrap();
        expect_none(&joined);
    });
}

#[test]
fn recorded_graphs_have_none_until_they_are_changed() {
    emulator(|context| {
        let add = add(&context);
        let [x, y] =
            ["x", "y"].map(|name| Buffer::<f32>::zeroed(&context, N).unwrap().labelled(name));
        for mut recorder in [
            Recorder::new(&context).unwrap(),
            Recorder::pipeline(&context).unwrap(),
        ] {
            for n in 0..20 {
                recorder
                    .launch(
                        &add,
                        args(
                            if n % 3 == 0 { &x } else { &y },
                            if n % 3 == 0 { &y } else { &x },
                            1.0,
                        ),
                    )
                    .unwrap();
                recorder.fill(&x.view_range(n..n + 1), 1.0).unwrap();
            }

            let mut graph = recorder.finish();
            expect_none(&graph);
            let node = graph.fill(&[], &y, 1.0).unwrap();
            expect_race(&graph, &race("0 (add)", "40 (fill)", "0 to 128"));
            graph.remove_node(node).unwrap();
            expect_none(&graph);
            let edge = graph.edges()[0];
            graph.remove_edge(edge.from, edge.to).unwrap();
            assert_eq!(graph.instantiate().is_ok(), graph.races().is_empty());
        }
    });
}

#[test]
fn a_wait_for_a_word_orders_work_itself() {
    emulator(|context| {
        let flag = Buffer::<u32>::zeroed(&context, 1).unwrap().labelled("flag");
        let mut graph = Graph::new(&context).unwrap();
        graph
            .words(
                &[],
                &[WordOperation::wait(&flag, WaitFor::Equal, 1).unwrap()],
            )
            .unwrap();
        graph
            .words(&[], &[WordOperation::write(&flag, 1).unwrap()])
            .unwrap();
        expect_none(&graph);
        graph.fill(&[], &flag, 2).unwrap();
        expect_race(&graph, &race("1 (words)", "2 (fill)", "0 to 4"));
    });
}

#[test]
fn waived_races_run() {
    emulator(|context| {
        let stream = Stream::new(&context).unwrap();
        let x = Buffer::<f32>::zeroed(&context, N).unwrap();
        let mut graph = Graph::new(&context).unwrap();
        for column in 0..4 {
            let columns = Boxed::rows(&x, 4).at([column, 0, 0]);
            graph
                .add(
                    &[],
                    Work::fill_box(columns, [1, N / 4, 1], column as f32).unwrap(),
                )
                .unwrap();
        }

        assert_eq!(graph.races().len(), 6);
        assert!(
            graph.instantiate().is_err() && graph.instantiate_with(Instantiate::default()).is_err()
        );

        // SAFETY: the fills write different columns.
        let mut exec = unsafe { graph.instantiate_with_races(Instantiate::default()) }.unwrap();
        exec.launch(&stream).unwrap();
        let wanted: Vec<f32> = (0..N).map(|i| (i % 4) as f32).collect();
        assert_eq!(stream.read(&x).unwrap(), wanted);
    });
}

/// A node: what it does to which bytes, and after which others, as distances.
type Step = (usize, usize, bool, Vec<usize>);

#[test]
fn instantiating_refuses_what_the_comparison_of_all_pairs_finds() {
    let after = proptest::collection::vec(1usize..5, 0..4);
    let steps = proptest::collection::vec((0usize..12, 1usize..6, any::<bool>(), after), 1..12);
    let backward = proptest::collection::vec((0usize..12, 0usize..12), 0..3);
    let removed = proptest::option::of(0usize..12);
    let config = ProptestConfig {
        failure_persistence: None,
        ..ProptestConfig::with_cases(rounds(1500) as u32)
    };
    emulator(|context| {
        let mut runner = proptest::test_runner::TestRunner::new(config);
        let run = |(steps, backward, removed): (Vec<Step>, Vec<_>, _)| {
            check(&context, &steps, &backward, removed);
            Ok(())
        };
        runner.run(&(steps, backward, removed), run).unwrap();
    });
}

fn check(context: &Context, steps: &[Step], backward: &[(usize, usize)], removed: Option<usize>) {
    let memory = Buffer::<u8>::uninit(context, 16).unwrap();
    let other = Buffer::<u8>::uninit(context, 16).unwrap();
    let mut graph = Graph::new(context).unwrap();
    for (n, (start, len, writes, after)) in steps.iter().enumerate() {
        let after: Vec<_> = after
            .iter()
            .filter_map(|d| Some(graph.nodes()[n.checked_sub(*d)?].id()))
            .collect();
        let (bytes, rest) = (
            memory.view_range(*start..(start + len).min(16)),
            other.view_range(n..n + 1),
        );
        if *writes {
            graph.fill(&after, &bytes, 1).unwrap();
        } else {
            graph.copy(&after, &bytes.view_range(0..1), &rest).unwrap();
        }
    }

    for (from, to) in backward {
        if let (Some(from), Some(to)) = (graph.nodes().get(*from), graph.nodes().get(*to)) {
            let (from, to) = (from.id(), to.id());
            _ = graph.add_edge(from, to);
        }
    }

    if let Some(node) = removed.and_then(|n| graph.nodes().get(n)) {
        let node = node.id();
        graph.remove_node(node).unwrap();
    }

    let races = graph.races();
    match graph.instantiate() {
        Ok(_) => assert!(races.is_empty(), "{}", races[0]),
        Err(Error::Races(refused)) => {
            assert_eq!(refused.others, races.len() - 1);
            assert!(
                refused
                    .to_string()
                    .starts_with(&format!("instantiating it: {}", races[0])),
                "{refused}"
            );
        }
        Err(other) => panic!("{other}"),
    }
}
