//! Compares the edges that a recorder derives with the edges that the driver received.

use std::collections::HashMap;

use warpwright_driver::graph::Edge;
use warpwright_driver::prelude::*;

use crate::fake::{self, state};
use crate::kernels::{Add, AddArgs, Mul, MulArgs, load};

/// Some buffers of 64 elements, two kernels, and a recorder.
struct Bench {
    buffers: HashMap<&'static str, Buffer<f32>>,
    add: Kernel<Add>,
    mul: Kernel<Mul>,
    recorder: Recorder,
}

impl Bench {
    fn new() -> Self {
        let context = fake::context();
        let buffer = |name| (name, Buffer::zeroed(&context, 64).unwrap().labelled(name));
        Self {
            buffers: ["a", "b", "c", "d", "e"].map(buffer).into(),
            add: load(&context, Add),
            mul: load(&context, Mul),
            recorder: Recorder::new(&context).unwrap(),
        }
    }

    /// `b` is all of it; `b0` and `b1` are its halves.
    fn view(&self, name: &str) -> View<f32> {
        let whole = &self.buffers[&name[..1]];
        match &name[1..] {
            "0" => whole.view_range(0..32),
            "1" => whole.view_range(32..64),
            _ => whole.view(),
        }
    }

    /// `x>y` adds, `x*y>z` multiplies, `x=y` copies, `>y` fills.
    fn push(&mut self, step: &str) {
        if let Some((from, to)) = step.split_once('=') {
            let (from, to) = (self.view(from), self.view(to));
            return self.recorder.copy(&from, &to).unwrap();
        }

        let (from, to) = step.split_once('>').unwrap();
        let to = self.view(to);
        let n = to.len() as u32;
        match from.split_once('*') {
            _ if from.is_empty() => self.recorder.fill(&to, 0.0),
            Some((x, y)) => {
                let (x, y) = (self.view(x), self.view(y));
                self.recorder.launch(
                    &self.mul,
                    MulArgs {
                        x: &x,
                        y: &y,
                        z: &to,
                        n,
                    },
                )
            }
            None => {
                let from = self.view(from);
                self.recorder.launch(
                    &self.add,
                    AddArgs {
                        x: &from,
                        y: &to,
                        n,
                        add: 1.0,
                    },
                )
            }
        }
        .unwrap();
    }
}

#[test]
fn edges_follow_from_reads_and_writes_and_are_the_fewest() {
    for (steps, wanted) in [
        ("chain", (vec!["a>b", "b>c", "c>d"], vec![(0, 1), (1, 2)])),
        (
            "fork and join",
            (
                vec!["a>b", "b>c", "b>d", "c*d>e"],
                vec![(0, 1), (0, 2), (1, 3), (2, 3)],
            ),
        ),
        ("two chains", (vec!["a>b", "c>d"], vec![])),
        ("a read twice orders nothing", (vec!["a>b", "a>c"], vec![])),
        ("write after read", (vec!["a>b", "c>a"], vec![(0, 1)])),
        ("write after write", (vec!["a>b", "c>b"], vec![(0, 1)])),
        (
            "an implied edge is left out",
            (vec!["a>b", "b>c", "b*c>d"], vec![(0, 1), (1, 2)]),
        ),
        (
            "halves do not meet",
            (vec!["a0>b0", "a1>b1", "b>c"], vec![(0, 2), (1, 2)]),
        ),
        (
            "halves of what was written whole",
            (vec!["a>b", "b0>c0", "b1>d1"], vec![(0, 1), (0, 2)]),
        ),
        (
            "a half overwritten leaves the other half's writer",
            (
                vec!["a>b", "c0>b0", "b1>d1", "b>e"],
                vec![(0, 1), (0, 2), (1, 3)],
            ),
        ),
        (
            "every reader before the next writer",
            (
                vec!["a>b", "b>c", "b>d", "a>b"],
                vec![(0, 1), (0, 2), (1, 3), (2, 3)],
            ),
        ),
        (
            "copies and fills too",
            (
                vec![">a", "a=b", ">a", "a*b>c"],
                vec![(0, 1), (1, 2), (2, 3)],
            ),
        ),
    ]
    .map(|(name, (steps, wanted))| ((name, steps), wanted))
    {
        let (name, steps) = steps;
        let mut bench = Bench::new();
        for s in &steps {
            bench.push(s);
        }

        let graph = bench.recorder.finish();
        let mut edges: Vec<_> = graph.edges().iter().map(Edge::indices).collect();
        edges.sort_unstable();
        assert_eq!(edges, wanted, "{name}");
        assert_eq!(graph.nodes().len(), steps.len(), "{name}: a node a launch");
        assert!(
            graph.races().is_empty(),
            "{name}: an edge was left out that was needed"
        );
        assert_eq!(driver_edges(), wanted, "{name}: the edges of the driver");
        state(|s| s.nodes.clear());
    }
}

/// The edges that the driver got, by the number of the node.
fn driver_edges() -> Vec<(usize, usize)> {
    let index = |s: &fake::State, node| s.nodes.iter().position(|(n, _)| *n == node).unwrap();
    let mut edges: Vec<(usize, usize)> = state(|s| {
        let pairs = s
            .nodes
            .iter()
            .enumerate()
            .flat_map(|(to, (_, after))| after.iter().map(move |from| (*from, to)));
        pairs.map(|(from, to)| (index(s, from), to)).collect()
    });
    edges.sort_unstable();
    edges
}

#[test]
fn random_work_has_no_race_and_no_edge_too_many() {
    let names = ["a", "b", "c", "d", "e", "a0", "a1", "b0", "b1", "c0", "c1"];
    let mut seed = 1u64;
    let mut pick = move |n: usize| {
        seed = seed
            .wrapping_mul(6364136223846793005)
            .wrapping_add(1442695040888963407);
        (seed >> 33) as usize % n
    };
    let mut bench = Bench::new();
    while bench.recorder.graph().nodes().len() < 150 {
        let (x, y) = (names[pick(names.len())], names[pick(names.len())]);
        if x[..1] != y[..1] && x.len() == y.len() {
            bench.push(&format!("{x}>{y}"));
        }
    }

    let graph = bench.recorder.finish();
    assert!(graph.races().is_empty());
    let edges: Vec<_> = graph.edges().iter().map(Edge::indices).collect();
    for (i, &(from, to)) in edges.iter().enumerate() {
        let others: Vec<_> = edges
            .iter()
            .enumerate()
            .filter(|(j, _)| *j != i)
            .map(|(_, e)| *e)
            .collect();
        assert!(
            !reaches(&others, from, to),
            "the edge {from} -> {to} is implied by others"
        );
    }
}

/// Whether a path leads from one node to the other, the slow way.
fn reaches(edges: &[(usize, usize)], from: usize, to: usize) -> bool {
    from == to
        || edges
            .iter()
            .filter(|e| e.0 == from && e.1 <= to)
            .any(|e| reaches(edges, e.1, to))
}

#[test]
fn the_picture_shows_kernels_geometry_and_buffers() {
    let mut bench = Bench::new();
    for s in ["a>b", "b0>c0", ">a"] {
        bench.push(s);
    }
    assert_eq!(
        bench.recorder.finish().dot(),
        r#"digraph {
  node [shape=box fontname=monospace]
  edge [fontname=monospace]
  n0 [label="add\n1x1x1 blocks of 128\nreads a\nwrites b"]
  n1 [label="add\n1x1x1 blocks of 128\nreads b[0..128 of 256 bytes]\nwrites c[0..128 of 256 bytes]"]
  n2 [label="fill\nwrites a"]
  n0 -> n1 [label="b RAW"]
  n0 -> n2 [label="a WAR"]
}
"#
    );
}
