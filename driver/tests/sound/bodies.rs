//! Bodies of conditional nodes, after their node was removed: the driver has destroyed them, and no
//! call names them.

use warpwright_driver::graph::{Conditional, Node, NodeAttribute, NodeKind};
use warpwright_driver::prelude::*;
use warpwright_driver::sys;

use super::*;

/// Returns the conditional that a node is.
fn conditional(node: &Node) -> Conditional {
    match node.kind() {
        NodeKind::Conditional(conditional) => conditional.clone(),
        other => panic!("{other:?}"),
    }
}

const GONE: &str = "using the body of a conditional node: its node was removed, and the driver has destroyed the body \
    with it";

#[test]
fn a_body_without_its_node_is_refused() {
    emulator(|context| {
        let (stream, add) = (Stream::new(&context).unwrap(), add(&context));
        let (x, y) = (
            Buffer::zeroed(&context, N).unwrap(),
            Buffer::zeroed(&context, N).unwrap(),
        );
        let mut graph = Graph::new(&context).unwrap();
        let condition = graph.condition(Some(1)).unwrap();
        let mut inner = None;
        let node = graph
            .if_then(&[], condition, |outer| {
                let first = outer.launch(&[], &add, args(&x, &y, 1.0))?;
                let condition = outer.condition(Some(1))?;
                let nested = outer.while_loop(&[first], condition, |body| {
                    inner = Some(body.launch(&[], &add, args(&x, &y, 2.0))?);
                    Ok(())
                })?;
                assert_eq!(nested.index(), 1);
                Ok(())
            })
            .unwrap();
        let mut exec = graph.instantiate().unwrap();
        let (inner, priority) = (inner.unwrap(), NodeAttribute::Priority(0));

        // Clones of the graph's and of the exec's, of the body and of the body within it.
        let kept = conditional(&graph.nodes()[node.index()]);
        let of_exec = conditional(&exec.nodes()[node.index()]);
        let nested = conditional(&kept.bodies()[0].nodes()[1]);
        let first = kept.bodies()[0].nodes()[0].id();
        for (body, node) in [(&kept, first), (&of_exec, first), (&nested, inner)] {
            body.bodies()[0].attribute(node, priority).unwrap();
        }

        graph.remove_node(node).unwrap();
        for (body, node) in [(&kept, first), (&of_exec, first), (&nested, inner)] {
            let body = &body.bodies()[0];
            assert_eq!(text(body.attribute(node, priority)), GONE);
            for refused in [
                text(body.instantiate()),
                text(body.try_clone()),
                text(graph.child(&[], body)),
                text(exec.update(body)),
                text(Graph::new(&context).unwrap().child(&[], body)),
            ] {
                assert!(
                    refused.contains("it is the body of a conditional node"),
                    "{refused}"
                );
            }

            // What needs no call is still there.
            assert!(
                body.races().is_empty() && !body.nodes().is_empty() && body.dot().contains("add")
            );
            assert_eq!(body.programmatic_edges(), 0);
        }

        // The exec was made before and still runs. Its node cannot be changed any more.
        x.write(&[5.0; N]).unwrap();
        drop(graph);
        assert_eq!(text(kept.bodies()[0].attribute(first, priority)), GONE);
        assert_eq!(text(nested.bodies()[0].attribute(inner, priority)), GONE);
        assert!(exec.set_enabled(node, false).is_err());
        drop((kept, of_exec, nested, exec));
        stream.synchronize().unwrap();
    });
}

#[test]
fn a_body_lives_as_long_as_its_graph_or_a_clone_of_it() {
    emulator(|context| {
        let add = add(&context);
        let (x, y) = (
            Buffer::zeroed(&context, N).unwrap(),
            Buffer::zeroed(&context, N).unwrap(),
        );
        let mut graph = Graph::new(&context).unwrap();
        let condition = graph.condition(Some(1)).unwrap();
        let build = |body: &mut Graph| body.launch(&[], &add, args(&x, &y, 1.0)).map(drop);
        let node = graph.if_then(&[], condition, build).unwrap();
        let other = graph.empty(&[]).unwrap();
        let kept = conditional(&graph.nodes()[node.index()]);
        graph.remove_node(other).unwrap();
        drop(graph);
        context.synchronize().unwrap();
        let first = kept.bodies()[0].nodes()[0].id();
        kept.bodies()[0]
            .attribute(first, NodeAttribute::Priority(0))
            .unwrap();
    });
}

#[test]
fn a_body_of_a_graph_that_a_capture_took_is_refused() {
    emulator(|context| {
        let (stream, add) = (Stream::new(&context).unwrap(), add(&context));
        let (x, y) = (
            Buffer::zeroed(&context, N).unwrap(),
            Buffer::zeroed(&context, N).unwrap(),
        );
        let mut graph = Graph::new(&context).unwrap();
        let condition = graph.condition(Some(1)).unwrap();
        let build = |body: &mut Graph| body.launch(&[], &add, args(&x, &y, 1.0)).map(drop);
        let node = graph.if_then(&[], condition, build).unwrap();
        let kept = conditional(&graph.nodes()[node.index()]);
        let first = kept.bodies()[0].nodes()[0].id();

        // A capture into the graph that the driver ends leaves it to the driver.
        let failed = capture_into(graph, &[node], &stream, CaptureMode::ThreadLocal, |_| {
            let code = context.run(|| {
                // SAFETY: the stream is alive. The driver refuses the call, and ends the capture.
                unsafe { (warpwright_cuda_emu::api().cuStreamSynchronize)(stream.raw()) }
            })?;
            assert_eq!(code, sys::CUresult::STREAM_CAPTURE_UNSUPPORTED);
            Ok(())
        });
        assert!(failed.is_err());
        assert_eq!(
            text(kept.bodies()[0].attribute(first, NodeAttribute::Priority(0))),
            GONE
        );
    });
}
