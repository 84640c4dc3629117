//! Functions on the host live until they have returned, whatever happens to the device meanwhile.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};

use warpwright_driver::graph::NodeWork;
use warpwright_driver::prelude::*;

use super::*;

/// What a test sees of a function that runs until it is let go.
#[derive(Default)]
struct Seen {
    started: AtomicBool,
    go: AtomicBool,
    /// The number of calls that found the function's own object dropped.
    dropped_early: AtomicUsize,
    returned: AtomicUsize,
    dropped: AtomicBool,
}

/// An object that the function owns.
struct Owned(Arc<Seen>);

impl Drop for Owned {
    fn drop(&mut self) {
        self.0.dropped.store(true, SeqCst);
    }
}

impl Seen {
    /// Returns a function that runs until it is let go.
    fn function(self: &Arc<Self>) -> impl Fn() + Send + Sync + 'static {
        let owned = Owned(self.clone());
        move || {
            owned.0.started.store(true, SeqCst);
            owned.0.wait_for(&owned.0.go);
            if owned.0.dropped.load(SeqCst) {
                owned.0.dropped_early.fetch_add(1, SeqCst);
            }
            owned.0.returned.fetch_add(1, SeqCst);
        }
    }

    fn wait_for(&self, flag: &AtomicBool) {
        while !flag.load(SeqCst) {
            std::thread::yield_now();
        }
    }
}

/// Faults the device by a stream that was made before others had work, and waits for that.
fn fault(context: &Context, stream: &Stream) {
    // SAFETY: it writes where it must not, which faults on the emulator.
    let kernel = unsafe { Kernel::load(context, super::fault::Beside { by: N as u32 }) }.unwrap();
    let (x, y) = (
        Buffer::from_slice(context, &[1.0; N]).unwrap(),
        Buffer::zeroed(context, N).unwrap(),
    );
    stream.launch(&kernel, args(&x, &y, 1.0)).unwrap();
    assert!(stream.synchronize().unwrap_err().is_device_fault());
}

/// Starts the function in the stream, and returns what must be dropped while it runs.
type Start = fn(&Context, &Stream, &Arc<Seen>) -> Box<dyn std::any::Any>;

const STARTS: [(&str, Start); 7] = [
    ("a node", |context, stream, seen| {
        let mut graph = Graph::new(context).unwrap();
        graph.host(&[], seen.function()).unwrap();
        let mut exec = graph.instantiate().unwrap();
        exec.launch(stream).unwrap();
        Box::new((graph, exec))
    }),
    ("a node of a graph that is gone", |context, stream, seen| {
        let mut graph = Graph::new(context).unwrap();
        graph.host(&[], seen.function()).unwrap();
        graph.instantiate().unwrap().launch(stream).unwrap();
        Box::new(())
    }),
    ("a node of a child", |context, stream, seen| {
        let mut child = Graph::new(context).unwrap();
        child.host(&[], seen.function()).unwrap();
        let mut graph = Graph::new(context).unwrap();
        graph.child(&[], &child).unwrap();
        let mut exec = graph.instantiate().unwrap();
        exec.launch(stream).unwrap();
        Box::new((exec, child, graph))
    }),
    ("a node that was changed", |context, stream, seen| {
        let mut graph = Graph::new(context).unwrap();
        let node = graph.host(&[], || {}).unwrap();
        let mut exec = graph.instantiate().unwrap();
        exec.set(node, NodeWork::host(context, seen.function()))
            .unwrap();
        exec.launch(stream).unwrap();
        // The node lets go of the function that the launch calls.
        exec.set(node, NodeWork::host(context, || {})).unwrap();
        Box::new((exec, graph))
    }),
    ("a captured graph", |context, stream, seen| {
        let mut graph = Graph::new(context).unwrap();
        graph.host(&[], seen.function()).unwrap();
        let mut exec = graph.instantiate().unwrap();
        let captured = capture(stream, CaptureMode::Relaxed, |_| exec.launch(stream)).unwrap();
        captured.instantiate().unwrap().launch(stream).unwrap();
        Box::new((captured, exec, graph))
    }),
    ("a clone", |context, stream, seen| {
        let mut graph = Graph::new(context).unwrap();
        graph.host(&[], seen.function()).unwrap();
        let clone = graph.try_clone().unwrap();
        drop(graph);
        clone.instantiate().unwrap().launch(stream).unwrap();
        Box::new(clone)
    }),
    ("a call", |_, stream, seen| {
        stream.call(seen.function()).unwrap();
        Box::new(())
    }),
];

#[test]
fn a_function_outlives_a_fault_and_its_graph() {
    for (name, start) in STARTS {
        let seen = Arc::<Seen>::default();
        emulator(|context| {
            let (faulty, stream) = (
                Stream::new(&context).unwrap(),
                Stream::new(&context).unwrap(),
            );
            let things = start(&context, &stream, &seen);
            seen.wait_for(&seen.started);
            fault(&context, &faulty);
            drop(things);
            drop(stream);

            // Takes in what is done with, as every wait does.
            assert!(context.synchronize().is_err());
            _ = Context::new(context.device());
            assert!(
                !seen.dropped.load(SeqCst),
                "{name}: the function is gone while it runs"
            );
            seen.go.store(true, SeqCst);
            drop((faulty, context));
            seen.wait_for(&seen.dropped);
        });
        assert_eq!(
            (seen.returned.load(SeqCst), seen.dropped_early.load(SeqCst)),
            (1, 0),
            "{name}"
        );
    }
}

#[test]
fn a_function_outlives_its_context() {
    for (name, start) in STARTS {
        let seen = Arc::<Seen>::default();
        emulator(|context| {
            let (faulty, stream) = (
                Stream::new(&context).unwrap(),
                Stream::new(&context).unwrap(),
            );
            let things = start(&context, &stream, &seen);
            seen.wait_for(&seen.started);
            fault(&context, &faulty);

            // The last share of the context goes while the function runs. A destructor may wait for
            // the function.
            let go = seen.clone();
            let ends = std::thread::spawn(move || {
                std::thread::sleep(std::time::Duration::from_millis(20));
                assert!(
                    !go.dropped.load(SeqCst),
                    "{name}: the function is gone while it runs"
                );
                go.go.store(true, SeqCst);
            });
            drop((things, stream, faulty, context));
            ends.join().unwrap();
            seen.wait_for(&seen.dropped);
        });
        assert_eq!(
            (seen.returned.load(SeqCst), seen.dropped_early.load(SeqCst)),
            (1, 0),
            "{name}"
        );
    }
}

#[test]
fn a_function_that_is_refused_is_dropped() {
    emulator(|context| {
        let stream = Stream::new(&context).unwrap();
        let seen = Arc::<Seen>::default();
        let captured = capture(&stream, CaptureMode::Relaxed, |_| {
            stream.call(seen.function())
        });
        assert!(captured.is_err() && seen.dropped.load(SeqCst));
        let seen = Arc::<Seen>::default();
        let mut graph = Graph::new(&context).unwrap();
        let node = Graph::new(&context).unwrap().empty(&[]).unwrap();
        assert!(graph.host(&[node], seen.function()).is_err());
        drop(graph);
        context.synchronize().unwrap();
        assert!(seen.dropped.load(SeqCst));
        fault(&context, &Stream::new(&context).unwrap());
        let seen = Arc::<Seen>::default();
        assert!(stream.call(seen.function()).is_err() && seen.dropped.load(SeqCst));
    });
}
