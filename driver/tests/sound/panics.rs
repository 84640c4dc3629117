//! Panics in closures of the program: in those that build something, nothing stays behind that
//! names memory without an owner, and in those that the driver calls, the process survives.

use std::panic::{AssertUnwindSafe, catch_unwind, panic_any};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

use ptx_gen::{Builder, Cpu, Dev, Grid, KernelDef, Shape, ShapeError, Side};
use warpwright_driver::graph::{Condition, NodeKind, NodeWork};
use warpwright_driver::prelude::*;

use super::*;

/// Runs a closure that panics, and returns true if the panic came through.
fn panics<T>(code: impl FnOnce() -> T) -> bool {
    catch_unwind(AssertUnwindSafe(code))
        .map(drop)
        .map_err(std::mem::forget)
        .is_err()
}

/// A payload whose destructor panics as often as it says.
struct Bomb(u32);

impl Drop for Bomb {
    fn drop(&mut self) {
        if self.0 > 0 {
            panic_any(Bomb(self.0 - 1));
        }
    }
}

/// Gives the memory of dropped buffers to others, runs the graph, and expects them unchanged.
fn expect_refused(graph: &Graph, name: &str) {
    let refused = text(graph.instantiate());
    assert!(
        refused.contains("a condition that no node reads"),
        "{name}: {refused}"
    );
}

fn expect_harmless(context: &Context, stream: &Stream, graph: &Graph, name: &str) {
    context.synchronize().unwrap();
    let victims: Vec<_> = (0..8)
        .map(|_| Buffer::from_slice(context, &[42.0f32; N]).unwrap())
        .collect();
    let mut exec = graph
        .instantiate()
        .unwrap_or_else(|error| panic!("{name}: {error}"));
    exec.launch(stream).unwrap();
    stream
        .synchronize()
        .unwrap_or_else(|error| panic!("{name}: {error}"));
    for victim in &victims {
        assert_eq!(victim.to_vec().unwrap(), [42.0; N], "{name}");
    }
}

/// Builds something in a graph, using the buffer, and panics.
type Build = fn(&mut Graph, Condition, &Buffer<f32>);

#[test]
fn a_panic_while_a_body_is_built_leaves_no_node() {
    let builds: [(&str, Build); 9] = [
        ("if", |graph, condition, x| {
            _ = graph.if_then(&[], condition, |body| {
                body.fill(&[], x, 5.0)?;
                panic!("while it is built")
            });
        }),
        ("else", |graph, condition, x| {
            let then = |body: &mut Graph| body.fill(&[], x, 5.0).map(drop);
            _ = graph.if_else(&[], condition, then, |_| panic!("in the second body"));
        }),
        ("while", |graph, condition, x| {
            _ = graph.while_loop(&[], condition, |body| {
                body.fill(&[], x, 5.0)?;
                panic!("in a loop")
            });
        }),
        ("switch", |graph, condition, x| {
            _ = graph.switch(&[], condition, 3, |case, body| {
                body.fill(&[], x, case as f32)?;
                if case == 2 {
                    panic!("in the last case")
                } else {
                    Ok(())
                }
            });
        }),
        ("nested", |graph, condition, x| {
            _ = graph.if_then(&[], condition, |outer| {
                outer.fill(&[], x, 5.0)?;
                let inner = outer.condition(Some(1))?;
                outer
                    .while_loop(&[], inner, |body| {
                        body.fill(&[], x, 6.0)?;
                        panic!("in the inner body")
                    })
                    .map(drop)
            });
        }),
        ("a payload that panics", |graph, condition, x| {
            _ = graph.if_then(&[], condition, |body| {
                body.fill(&[], x, 5.0)?;
                panic_any(Bomb(3))
            });
        }),
        ("a panic in a child", |graph, condition, x| {
            _ = graph.if_then(&[], condition, |body| {
                let mut child = Graph::new(body.context())?;
                child.fill(&[], x, 5.0)?;
                body.child(&[], &child)?;
                panic!("after a child graph")
            });
        }),
        ("work that panics", |graph, condition, x| {
            _ = graph.if_then(&[], condition, |body| {
                body.fill(&[], x, 5.0)?;
                body.add(&[], PanickingWork).map(drop)
            });
        }),
        (
            "an owner that only the closure has",
            |graph, condition, x| {
                let own = Buffer::<f32>::zeroed(graph.context(), N).unwrap();
                let x = x.view();
                _ = graph.if_then(&[], condition, move |body| {
                    let filled = body.fill(&[], &x, 5.0)?;
                    body.copy(&[filled], &x, &own)?;
                    panic!("with a buffer of its own")
                });
            },
        ),
    ];
    emulator(|context| {
        for (name, build) in builds {
            let x = Buffer::<f32>::zeroed(&context, N).unwrap();
            let mut graph = Graph::new(&context).unwrap();
            let condition = graph.condition(Some(1)).unwrap();
            assert!(panics(|| build(&mut graph, condition, &x)), "{name}");
            drop(x);
            assert!(
                graph
                    .nodes()
                    .iter()
                    .all(|node| matches!(node.kind(), NodeKind::Removed)),
                "{name}"
            );
            expect_refused(&graph, name);
        }
    });
}

#[test]
fn a_panic_that_is_caught_in_the_body_around_is_reported() {
    emulator(|context| {
        let y = Buffer::<f32>::zeroed(&context, N).unwrap();
        let mut graph = Graph::new(&context).unwrap();
        let condition = graph.condition(Some(1)).unwrap();
        let refused = text(graph.if_then(&[], condition, |outer| {
            let x = Buffer::<f32>::zeroed(outer.context(), N)?;
            let inner = outer.condition(Some(1))?;
            assert!(panics(|| outer.if_then(&[], inner, |body| {
                body.fill(&[], &x, 5.0)?;
                panic!("in the inner body")
            })));
            drop(x);
            outer.fill(&[], &y, 3.0).map(drop)
        }));
        assert!(
            refused.contains("a condition that no node reads"),
            "{refused}"
        );
        expect_refused(&graph, "caught in the outer body");
        context.synchronize().unwrap();
        assert_eq!(y.to_vec().unwrap(), [0.0; N]);
    });
}

#[test]
fn a_graph_whose_body_was_taken_away_by_a_panic_never_runs() {
    emulator(|context| {
        let x = Buffer::<f32>::zeroed(&context, N).unwrap();
        let mut graph = Graph::new(&context).unwrap();
        let mut stolen = Graph::new(&context).unwrap();
        let condition = graph.condition(Some(1)).unwrap();
        assert!(panics(|| graph.if_then(&[], condition, |body| {
            body.fill(&[], &x, 5.0)?;
            std::mem::swap(body, &mut stolen);
            panic!("with the body in hand")
        })));
        drop(x);
        let refused = text(graph.instantiate());
        assert_eq!(
            refused,
            "instantiating it: a conditional node's graph was taken away while it was built"
        );

        // The body goes with its node, and is refused from then on.
        let node = graph.nodes()[0].id();
        graph.remove_node(node).unwrap();
        let y = Buffer::<f32>::zeroed(&context, N).unwrap();
        assert!(
            text(stolen.fill(&[], &y, 1.0)).ends_with("the driver has destroyed the body with it")
        );
        drop(graph);
        assert!(stolen.fill(&[], &y, 1.0).is_err());
    });
}

#[test]
fn a_panic_in_a_capture_leaves_no_graph() {
    emulator(|context| {
        let (stream, other) = (
            Stream::new(&context).unwrap(),
            Stream::new(&context).unwrap(),
        );
        let y = Buffer::<f32>::zeroed(&context, N).unwrap();
        for mode in [
            CaptureMode::ThreadLocal,
            CaptureMode::Relaxed,
            CaptureMode::Global,
        ] {
            let x = Buffer::<f32>::zeroed(&context, N).unwrap();
            assert!(panics(|| capture(&stream, mode, |queue| {
                queue.fill(&x, 5.0)?;
                panic!("while it captures")
            })));
            drop(x);
            stream.fill(&y, 1.0).unwrap();

            // Into a graph, which goes as well; what was made of it before stays.
            let x = Buffer::<f32>::zeroed(&context, N).unwrap();
            let mut graph = Graph::new(&context).unwrap();
            let first = graph.fill(&[], &y, 2.0).unwrap();
            let mut exec = graph.instantiate().unwrap();
            assert!(panics(|| capture_into(
                graph,
                &[first],
                &stream,
                mode,
                |queue| {
                    queue.fill(&x, 5.0)?;
                    panic_any(Bomb(1))
                }
            )));
            drop(x);
            exec.launch(&stream).unwrap();
            exec.set(first, Work::fill(&y, 3.0).unwrap()).unwrap();
            exec.launch(&stream).unwrap();
            assert_eq!(stream.read(&y).unwrap(), [3.0; N]);

            // In a fork, caught outside of the capture.
            let x = Buffer::<f32>::zeroed(&context, N).unwrap();
            assert!(panics(|| capture(&stream, mode, |queue| {
                queue.fork(&other, |one, two| {
                    one.fill(&x.view_range(0..1), 5.0)?;
                    two.fill(&x.view_range(1..2), 6.0)?;
                    panic!("in a fork")
                })
            })));
            drop(x);

            // And caught within: the two join, and the rest is captured.
            let x = Buffer::<f32>::zeroed(&context, N).unwrap();
            let captured = capture(&stream, mode, |queue| {
                assert!(panics(|| queue.fork(&other, |_, two| {
                    two.fill(&x, 6.0)?;
                    panic!("in a fork")
                })));
                queue.copy(&x, &y)
            })
            .unwrap();
            drop(x);
            expect_harmless(&context, &stream, &captured, "caught in the capture");
            assert_eq!(y.to_vec().unwrap(), [6.0; N]);
            other.fill(&y, 1.0).unwrap();
            other.synchronize().unwrap();
        }
    });
}

/// Work that cannot be made.
struct PanickingWork;

impl From<PanickingWork> for Work {
    fn from(_: PanickingWork) -> Self {
        panic!("instead of work")
    }
}

/// A kernel whose contract panics.
struct Refusing;

impl KernelDef for Refusing {
    type Args<S: Side> = kernels::AddArgs<S>;

    fn name(&self) -> String {
        "refusing".into()
    }

    fn block(&self) -> u32 {
        N as u32
    }

    fn grid(&self, a: &kernels::AddArgs<Shape>) -> Result<Grid, ShapeError> {
        if a.add == 0.0 {
            Ok(Grid::line(1))
        } else {
            panic!("instead of a grid")
        }
    }

    fn program<'k>(&self, k: Builder<'k>, a: kernels::AddArgs<Dev<'k>>) {
        a.y.at(k.tid()).st(a.x.at(k.tid()).ld() + a.add);
    }

    fn reference(&self, _: kernels::AddArgs<Cpu<'_>>) {}
}

#[test]
fn a_panic_in_what_makes_work_leaves_recorders_and_graphs_as_they_were() {
    emulator(|context| {
        let stream = Stream::new(&context).unwrap();

        // SAFETY: the kernel uses as many elements as the buffers of this test have.
        let kernel = unsafe { Kernel::load(&context, Refusing) }.unwrap();
        let y = Buffer::<f32>::zeroed(&context, N).unwrap();
        for mut recorder in [
            Recorder::new(&context).unwrap(),
            Recorder::pipeline(&context).unwrap(),
        ] {
            let x = Buffer::<f32>::zeroed(&context, N).unwrap();
            recorder.fill(&y, 1.0).unwrap();
            assert!(panics(|| recorder.record(PanickingWork)));
            assert!(panics(|| recorder.launch(&kernel, args(&x, &y, 1.0))));
            drop(x);
            recorder
                .copy(&y.view_range(0..1), &y.view_range(1..2))
                .unwrap();
            assert_eq!(recorder.graph().nodes().len(), 2);
            expect_harmless(&context, &stream, &recorder.finish(), "a recorder");
        }

        let x = Buffer::<f32>::zeroed(&context, N).unwrap();
        let mut graph = Graph::new(&context).unwrap();
        let node = graph.launch(&[], &kernel, args(&y, &x, 0.0)).unwrap();
        let mut exec = graph.instantiate().unwrap();
        assert!(panics(|| graph.launch(&[], &kernel, args(&x, &y, 1.0))));
        assert!(panics(|| graph.add_by(
            EdgeKind::Programmatic,
            &[node],
            PanickingWork
        )));
        assert!(panics(|| exec.set_args(node, &kernel, args(&y, &x, 1.0))));
        assert!(panics(|| exec.set(node, PanickingWork)));
        assert!(panics(|| stream.launch(&kernel, args(&x, &y, 1.0))));
        exec.launch(&stream).unwrap();
        assert_eq!((graph.nodes().len(), exec.nodes().len()), (1, 1));
        let mut staging = Staging::new(&context, 2, 64).unwrap();
        assert!(panics(|| staging.write_with(&stream, &x, |range, _| {
            if range.start > 0 {
                panic!("half")
            }
        })));
        staging.write(&stream, &x, &[7.0; N]).unwrap();
        assert_eq!(stream.read(&x).unwrap(), [7.0; N]);
    });
}

#[test]
fn a_panic_with_a_payload_that_panics_ends_no_process() {
    emulator(|context| {
        let stream = Stream::new(&context).unwrap();
        let ran = Arc::new(AtomicUsize::new(0));
        for bombs in 0..4 {
            stream.call(move || panic_any(Bomb(bombs))).unwrap();
            let mut graph = Graph::new(&context).unwrap();
            let node = graph.host(&[], move || panic_any(Bomb(bombs))).unwrap();
            let count = ran.clone();
            graph
                .host(&[node], move || _ = count.fetch_add(1, SeqCst))
                .unwrap();
            graph.profile(&stream).unwrap();
            let mut exec = graph.instantiate().unwrap();
            exec.launch(&stream).unwrap();
            exec.set(
                node,
                NodeWork::host(&context, move || panic_any(Bomb(bombs + 1))),
            )
            .unwrap();
            exec.launch(&stream).unwrap();
        }

        stream.synchronize().unwrap();
        assert_eq!(
            ran.load(SeqCst),
            12,
            "the node after the one that panics runs"
        );
    });
}

/// An object whose destructor panics, and counts.
struct Fragile(Arc<AtomicUsize>, u32);

impl Drop for Fragile {
    fn drop(&mut self) {
        self.0.fetch_add(1, SeqCst);
        panic_any(Bomb(self.1))
    }
}

#[test]
fn destructors_of_the_program_that_panic_stay_within() {
    emulator(|context| {
        let (stream, dropped) = (
            Stream::new(&context).unwrap(),
            Arc::new(AtomicUsize::new(0)),
        );
        let fragile = |bombs| Fragile(dropped.clone(), bombs);

        // What a function that runs once owns.
        let own = fragile(2);
        stream.call(move || drop(own)).unwrap();
        let own = fragile(1);
        stream.call(move || _ = &own).unwrap();
        stream.synchronize().unwrap();
        assert_eq!(dropped.load(SeqCst), 2);

        // What functions of nodes own, and the owners of memory: two that are released by one call.
        let hold = Hold::new(&stream);
        let memory = Buffer::<f32>::zeroed(&context, N).unwrap();
        let mut graph = Graph::new(&context).unwrap();
        for bombs in 0..2 {
            let own = fragile(bombs);
            graph.host(&[], move || _ = &own).unwrap();
        }

        graph.instantiate().unwrap().launch(&stream).unwrap();

        // SAFETY: the memory outlives the buffer.
        let lent = unsafe { Buffer::<f32>::from_raw(&context, memory.address(), N, fragile(1)) };
        stream.fill(&lent, 1.0).unwrap();
        drop((graph, lent));
        assert_eq!(dropped.load(SeqCst), 2, "work in flight still uses them");
        hold.open();
        context.synchronize().unwrap();
        assert_eq!(dropped.load(SeqCst), 5);

        // Dropped by a panic, where a second panic would end the process.
        let own = fragile(0);
        assert!(panics(|| {
            let mut graph = Graph::new(&context).unwrap();
            graph.host(&[], move || _ = &own).unwrap();
            // SAFETY: as above.
            let _lent =
                unsafe { Buffer::<f32>::from_raw(&context, memory.address(), N, fragile(0)) };
            panic!("with both in hand")
        }));
        assert_eq!(dropped.load(SeqCst), 7);
    });
}
