//! The driver layer on the emulated driver: the same functions and codes as a real one, and real
//! numbers.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use warpwright_driver::graph::{Edge, Node};
use warpwright_driver::prelude::*;
use warpwright_driver::sys;

use crate::emulator::alone;
use crate::kernels::{Add, AddArgs, Mul, MulArgs, load};

const N: usize = 300;

fn context() -> Context {
    let driver = Driver::from_library(warpwright_cuda_emu::library()).unwrap();
    Context::new(&driver.device(0).unwrap()).unwrap()
}

fn text<T>(result: Result<T, Error>) -> String {
    result.err().expect("refused").to_string()
}

/// Two kernels and four buffers: `a` counts up, the others are nought.
struct Bench {
    context: Context,
    stream: Stream,
    add: Kernel<Add>,
    mul: Kernel<Mul>,
    a: Buffer<f32>,
    b: Buffer<f32>,
    c: Buffer<f32>,
    d: Buffer<f32>,
}

impl Bench {
    fn new() -> Self {
        let context = context();
        let numbers: Vec<f32> = (0..N).map(|i| i as f32).collect();
        let zeroed = |label| Buffer::zeroed(&context, N).unwrap().labelled(label);
        Self {
            stream: Stream::new(&context).unwrap(),
            add: load(&context, Add),
            mul: load(&context, Mul),
            a: Buffer::from_slice(&context, &numbers)
                .unwrap()
                .labelled("a"),
            b: zeroed("b"),
            c: zeroed("c"),
            d: zeroed("d"),
            context,
        }
    }

    fn add<'a>(&self, x: &'a View<f32>, y: &'a View<f32>, add: f32) -> AddArgs<Host<'a>> {
        AddArgs {
            x,
            y,
            n: N as u32,
            add,
        }
    }

    fn mul<'a>(&self, x: &'a View<f32>, y: &'a View<f32>, z: &'a View<f32>) -> MulArgs<Host<'a>> {
        MulArgs {
            x,
            y,
            z,
            n: N as u32,
        }
    }

    /// `b = a + 1`, `c = a + 2`, `d = b * c`, into any queue.
    fn pass(&self, queue: &mut impl Queue) -> Result<(), Error> {
        queue.launch(&self.add, self.add(&self.a, &self.b, 1.0))?;
        queue.launch(&self.add, self.add(&self.a, &self.c, 2.0))?;
        queue.launch(&self.mul, self.mul(&self.b, &self.c, &self.d))
    }

    /// The same by hand: a fork and a join.
    fn graph(&self) -> (Graph, [NodeId; 4]) {
        let mut graph = Graph::new(&self.context).unwrap();
        let start = graph.fill(&[], &self.d, -1.0).unwrap();
        let left = graph
            .launch(&[start], &self.add, self.add(&self.a, &self.b, 1.0))
            .unwrap();
        let right = graph
            .launch(&[start], &self.add, self.add(&self.a, &self.c, 2.0))
            .unwrap();
        let join = graph
            .launch(
                &[left, right],
                &self.mul,
                self.mul(&self.b, &self.c, &self.d),
            )
            .unwrap();
        (graph, [start, left, right, join])
    }

    /// Element `i` of `d`, for every `i`, is as expected.
    fn expect(&self, what: &str, value: impl Fn(f32) -> f32) {
        let d = self.stream.read(&self.d).unwrap();
        for (i, got) in d.iter().enumerate() {
            assert_eq!(*got, value(i as f32), "{what}: element {i}");
        }
    }
}

#[test]
fn a_graph_by_hand_forks_joins_and_takes_new_arguments() {
    let _alone = alone();
    let bench = Bench::new();
    let (graph, [_, left, _, join]) = bench.graph();
    assert!(graph.races().is_empty());
    let edges: Vec<_> = graph.edges().iter().map(Edge::indices).collect();
    assert_eq!(edges, [(0, 1), (0, 2), (1, 3), (2, 3)]);

    let mut exec = graph.instantiate().unwrap();
    exec.upload(&bench.stream).unwrap();
    for _ in 0..3 {
        exec.launch(&bench.stream).unwrap();
    }

    bench.expect("as built", |x| (x + 1.0) * (x + 2.0));

    exec.set_args(left, &bench.add, bench.add(&bench.a, &bench.b, 10.0))
        .unwrap();
    exec.launch(&bench.stream).unwrap();
    bench.expect("one argument changed", |x| (x + 10.0) * (x + 2.0));

    let other = Buffer::from_slice(&bench.context, &[1.0; N]).unwrap();
    exec.set_args(left, &bench.add, bench.add(&other, &bench.b, 4.0))
        .unwrap();
    drop(other);
    exec.launch(&bench.stream).unwrap();
    bench.expect("a buffer changed, and kept only by the graph", |x| {
        5.0 * (x + 2.0)
    });

    exec.set_enabled(join, false).unwrap();
    assert!(!exec.is_enabled(join).unwrap());
    exec.launch(&bench.stream).unwrap();
    bench.expect("the join switched off", |_| -1.0);

    exec.set_enabled(join, true).unwrap();
    exec.launch(&bench.stream).unwrap();
    drop(exec);
    drop(graph);
    bench.expect(
        "the join switched on, and the exec dropped in flight",
        |x| 5.0 * (x + 2.0),
    );
}

#[test]
fn a_pass_gives_the_same_eager_recorded_and_captured() {
    let _alone = alone();
    let bench = Bench::new();
    let wanted = |x: f32| (x + 1.0) * (x + 2.0);
    let reset = || bench.stream.write(&bench.d, &[0.0; N]).unwrap();
    bench.pass(&mut &bench.stream).unwrap();
    bench.expect("eager", wanted);

    reset();
    let mut recorder = Recorder::new(&bench.context).unwrap();
    bench.pass(&mut recorder).unwrap();
    let graph = recorder.finish();
    let edges: Vec<_> = graph.edges().iter().map(Edge::indices).collect();
    assert_eq!((graph.nodes().len(), edges), (3, vec![(0, 2), (1, 2)]));
    graph.instantiate().unwrap().launch(&bench.stream).unwrap();
    bench.expect("recorded", wanted);

    // A global capture forbids other threads what other tests do: it has its test in faults.rs.
    for mode in [CaptureMode::ThreadLocal, CaptureMode::Relaxed] {
        reset();
        let graph = capture(&bench.stream, mode, |queue| bench.pass(queue)).unwrap();
        let edges: Vec<_> = graph.edges().iter().map(Edge::indices).collect();
        assert_eq!(
            (graph.nodes().len(), edges),
            (3, vec![(0, 1), (1, 2)]),
            "{mode:?}"
        );
        assert_eq!(graph.nodes()[2].name(), "mul");
        bench.expect("captured work does not run", |_| 0.0);
        let mut exec = graph.instantiate().unwrap();
        exec.launch(&bench.stream).unwrap();
        bench.expect("captured", wanted);
        let node = graph.nodes()[1].id();
        exec.set_args(node, &bench.add, bench.add(&bench.a, &bench.c, 3.0))
            .unwrap();
        exec.launch(&bench.stream).unwrap();
        bench.expect("captured, and changed", |x| (x + 1.0) * (x + 3.0));
    }
}

#[test]
fn a_capture_forks_and_joins() {
    let _alone = alone();
    let bench = Bench::new();
    let other = Stream::new(&bench.context).unwrap();
    let graph = capture(&bench.stream, CaptureMode::ThreadLocal, |queue| {
        queue.fill(&bench.d, 0.0)?;
        queue.fork(&other, |left, right| {
            left.launch(&bench.add, bench.add(&bench.a, &bench.b, 1.0))?;
            right.launch(&bench.add, bench.add(&bench.a, &bench.c, 2.0))
        })?;
        queue.launch(&bench.mul, bench.mul(&bench.b, &bench.c, &bench.d))
    })
    .unwrap();
    let mut edges: Vec<_> = graph.edges().iter().map(Edge::indices).collect();
    edges.sort_unstable();
    assert_eq!(edges, [(0, 1), (0, 2), (1, 3), (2, 3)]);
    graph.instantiate().unwrap().launch(&bench.stream).unwrap();
    bench.expect("forked", |x| (x + 1.0) * (x + 2.0));
}

#[test]
fn a_capture_that_fails_tells_what_failed_first_and_leaves_the_stream_usable() {
    let _alone = alone();
    let bench = Bench::new();
    let failed = capture(&bench.stream, CaptureMode::ThreadLocal, |queue| {
        // The failure of a call of another library is swallowed, and spoils what comes after it.
        let mut address = 0;
        // SAFETY: `address` is ours to write.
        let call = || unsafe { (bench.context.driver().api().cuMemAlloc_v2)(&mut address, 4) };
        let code = bench.context.run(call)?;
        assert_eq!(code, sys::CUresult::STREAM_CAPTURE_UNSUPPORTED);
        bench.pass(queue)
    });
    let message = text(failed);
    assert!(
        message.starts_with("capture: cuLaunchKernel: CUDA_ERROR_STREAM_CAPTURE_INVALIDATED (901)"),
        "{message}"
    );
    bench.pass(&mut &bench.stream).unwrap();
    bench.expect("eager afterwards", |x| (x + 1.0) * (x + 2.0));

    let relaxed = capture(&bench.stream, CaptureMode::Relaxed, |queue| {
        let scratch = Buffer::<f32>::uninit(&bench.context, N)?;
        queue.launch(&bench.add, bench.add(&bench.a, &scratch, 1.0))?;
        queue.launch(&bench.add, bench.add(&scratch, &bench.d, 1.0))
    });
    relaxed
        .unwrap()
        .instantiate()
        .unwrap()
        .launch(&bench.stream)
        .unwrap();
    bench.expect("memory that only the graph still owns", |x| x + 2.0);

    let refused = capture(&bench.stream, CaptureMode::ThreadLocal, |queue| {
        bench.pass(queue)?;
        queue.launch(&bench.add, bench.add(&bench.a, &bench.a, 1.0))
    });
    assert_eq!(
        text(refused),
        "capture: kernel add: arguments x and y overlap in a, and y is written"
    );

    let unjoined = capture(&bench.stream, CaptureMode::ThreadLocal, |queue| {
        bench.pass(queue)?;
        let event = Event::untimed(&bench.context)?;
        event.record(queue.stream())?;
        let aside = Stream::new(&bench.context)?;
        assert_eq!(
            text(aside.wait(&event)),
            "a stream's wait for it: a capture recorded the event, so that it marks a point in a graph; record it in a \
             stream first"
        );
        let wait = bench.context.driver().api().cuStreamWaitEvent;

        // SAFETY: stream and event are alive. This is what the safe call refuses: the stream
        // captures from here on.
        let drawn_in = bench
            .context
            .run(|| unsafe { wait(aside.raw(), event.raw(), 0) })?;
        assert_eq!(drawn_in, sys::CUresult::SUCCESS);
        let refused = aside.launch(&bench.add, bench.add(&bench.a, &bench.b, 1.0));
        assert_eq!(
            text(refused),
            "add: the stream captures; push work into the queue of the capture, or fork it"
        );
        let fill = bench.context.driver().api().cuMemsetD8Async;

        // SAFETY: the stream is alive and the buffer of that size; what is captured never runs.
        let captured = bench
            .context
            .run(|| unsafe { fill(bench.b.address(), 0, N, aside.raw()) })?;
        assert_eq!(captured, sys::CUresult::SUCCESS);
        Ok(())
    });
    let text = text(unjoined);
    assert!(
        text.starts_with("capture: cuStreamEndCapture: CUDA_ERROR_STREAM_CAPTURE_UNJOINED (904)"),
        "{text}"
    );
    bench.pass(&mut &bench.stream).unwrap();
    bench.expect("eager after all", |x| (x + 1.0) * (x + 2.0));
}

#[test]
fn an_update_takes_new_arguments_and_refuses_another_form() {
    let _alone = alone();
    let bench = Bench::new();
    let (graph, _) = bench.graph();
    let mut exec = graph.instantiate().unwrap();
    let mut changed = Graph::new(&bench.context).unwrap();
    let start = changed.fill(&[], &bench.d, 0.0).unwrap();
    let left = changed
        .launch(&[start], &bench.add, bench.add(&bench.a, &bench.b, 5.0))
        .unwrap();
    let right = changed
        .launch(&[start], &bench.add, bench.add(&bench.a, &bench.c, 6.0))
        .unwrap();
    changed
        .launch(
            &[left, right],
            &bench.mul,
            bench.mul(&bench.b, &bench.c, &bench.d),
        )
        .unwrap();
    exec.update(&changed).unwrap();
    exec.launch(&bench.stream).unwrap();
    bench.expect("updated", |x| (x + 5.0) * (x + 6.0));

    let mut chain = Graph::new(&bench.context).unwrap();
    let start = chain.fill(&[], &bench.d, 0.0).unwrap();
    let left = chain
        .launch(&[start], &bench.add, bench.add(&bench.a, &bench.b, 1.0))
        .unwrap();
    let right = chain
        .launch(&[left], &bench.add, bench.add(&bench.a, &bench.c, 2.0))
        .unwrap();
    chain
        .launch(
            &[left, right],
            &bench.mul,
            bench.mul(&bench.b, &bench.c, &bench.d),
        )
        .unwrap();
    match exec.update(&chain) {
        Err(Error::Update {
            source,
            result,
            node,
            ..
        }) => {
            assert_eq!(source.code, sys::CUresult::GRAPH_EXEC_UPDATE_FAILURE);
            assert_eq!(result, sys::CUgraphExecUpdateResult::ERROR_TOPOLOGY_CHANGED);
            assert_eq!(node.as_deref(), Some("2 (add)"));
        }
        other => panic!("{other:?}"),
    }

    exec.launch(&bench.stream).unwrap();
    bench.expect("as before the refusal", |x| (x + 5.0) * (x + 6.0));
}

#[test]
fn every_sort_of_node_does_its_work_in_order() {
    let _alone = alone();
    let bench = Bench::new();
    let calls = Arc::new(AtomicU32::new(0));
    let (outside, inside) = (
        Event::untimed(&bench.context).unwrap(),
        Event::new(&bench.context).unwrap(),
    );
    let pinned = Pinned::<f32>::zeroed(&bench.context, N)
        .unwrap()
        .labelled("pinned");

    let mut child = Graph::new(&bench.context).unwrap();
    child
        .launch(&[], &bench.add, bench.add(&bench.b, &bench.c, 1.0))
        .unwrap();

    let mut graph = Graph::new(&bench.context).unwrap();
    let wait = graph.wait(&[], &outside).unwrap();
    let copy = graph.copy(&[wait], &bench.a, &bench.b).unwrap();
    let child = graph.child(&[copy], &child).unwrap();
    let counted = calls.clone();
    let host = graph.host(&[copy], move || {
        counted.fetch_add(1, Ordering::Relaxed);
    });
    let host = host.unwrap();
    let meet = graph.empty(&[child, host]).unwrap();
    let record = graph.record(&[meet], &inside).unwrap();
    graph.copy(&[record], &bench.c, &pinned).unwrap();
    assert!(graph.races().is_empty());
    let names: Vec<_> = graph.nodes().iter().map(Node::name).collect();
    assert_eq!(
        names,
        ["wait", "copy", "child", "host", "empty", "record", "copy"]
    );

    let mut exec = graph.instantiate().unwrap();
    drop(graph);
    outside.record(&bench.stream).unwrap();
    for round in 1..=2 {
        exec.launch(&bench.stream).unwrap();
        inside.synchronize().unwrap();
        bench.stream.synchronize().unwrap();
        assert_eq!(calls.load(Ordering::Relaxed), round);
    }

    assert_eq!(
        pinned.to_vec(),
        (0..N).map(|i| i as f32 + 1.0).collect::<Vec<_>>()
    );
    drop(exec);

    // Captures of other tests hold destructors back.
    let is_gone = || {
        std::thread::yield_now();
        bench.context.synchronize().unwrap();
        Arc::strong_count(&calls) == 1
    };
    assert!(
        (0..10_000).any(|_| is_gone()),
        "the exec owned the host function"
    );
}

#[test]
fn the_host_reads_pinned_memory_that_a_kernel_wrote() {
    let _alone = alone();
    let bench = Bench::new();
    let pinned = Pinned::<f32>::zeroed(&bench.context, N).unwrap();
    bench
        .stream
        .launch(&bench.add, bench.add(&bench.a, &pinned, 0.5))
        .unwrap();
    bench.stream.synchronize().unwrap();
    assert_eq!((pinned.read(0), pinned.read(N - 1)), (0.5, N as f32 - 0.5));
    pinned.write(7, 70.0);
    bench
        .stream
        .launch(&bench.add, bench.add(&pinned, &bench.d, 1.0))
        .unwrap();
    assert_eq!(bench.stream.read(&bench.d).unwrap()[7], 71.0);
}

#[test]
fn ptx_that_does_not_compile_is_quoted() {
    let _alone = alone();
    let context = context();
    let ptx = ".version 7.0\n.target sm_75\n.address_size 64\n.visible .entry broken()\n{\n    frob.u32 %r1, 2;\n    ret;\n}\n";
    match Module::load(&context, ptx) {
        Err(Error::Module(error)) => {
            let line = error
                .line
                .as_ref()
                .unwrap_or_else(|| panic!("no line in {error}"));
            assert_eq!((line.number, line.text.as_str()), (6, "frob.u32 %r1, 2;"));
            assert!(error.log.contains("frob"), "{error}");
        }
        Err(other) => panic!("{other}"),
        Ok(_) => panic!("compiled"),
    }
}

#[test]
fn parameters_are_compared_with_the_module() {
    let _alone = alone();
    let context = context();
    let ptx = ".version 7.0\n.target sm_75\n.address_size 64\n.visible .entry takes(.param .u64 p, .param .u32 n)\n{\n    ret;\n}\n";
    let module = Module::load(&context, ptx).unwrap();
    let n = Parameter::value::<u32>("n");
    let p = Parameter::buffer::<f32>("p", Access::Read);
    let q = Parameter { name: "q", ..n };

    // SAFETY: the kernel does nothing, so that no launch of it can do harm.
    let declared = |params: &[Parameter]| unsafe { module.function("takes", params) };
    assert!(declared(&[p, n]).is_ok());
    for (params, wanted) in [
        (
            vec![n, q],
            "parameter 0 (n) is u32, an integer of 4 bytes, in the declaration and .u64",
        ),
        (
            vec![p],
            "parameter 1 (beyond the last) is absent in the declaration and 4 bytes at offset 8",
        ),
        (
            vec![p, n, q],
            "parameter 2 (q) is 4 bytes at offset 12 in the declaration and absent",
        ),
    ] {
        assert_eq!(
            text(declared(&params)),
            format!("kernel takes: {wanted} in the module")
        );
    }
}

#[test]
fn memory_runs_out_with_the_numbers() {
    let _alone = alone();
    let context = context();
    match Buffer::<u8>::uninit(&context, 1 << 50) {
        Err(Error::OutOfMemory { bytes, free, total }) => {
            assert!(bytes == 1 << 50 && free <= total && total > 0)
        }
        Err(other) => panic!("{other}"),
        Ok(_) => panic!("allocated"),
    }
}

#[test]
fn a_library_has_one_driver_and_a_device_one_context() {
    let _alone = alone();
    let (mine, theirs) = (Bench::new(), Bench::new());
    mine.add.with(mine.add(&mine.a, &theirs.b, 1.0)).unwrap();
    mine.graph()
        .0
        .instantiate()
        .unwrap()
        .launch(&theirs.stream)
        .unwrap();
    theirs.stream.synchronize().unwrap();

    // SAFETY: the functions are the emulator's.
    let another = unsafe { sys::Library::from_api(warpwright_cuda_emu::api(), "another") };
    let context = Context::new(&Driver::from_library(another).unwrap().device(0).unwrap()).unwrap();
    let foreign = Buffer::<f32>::zeroed(&context, N)
        .unwrap()
        .labelled("foreign");
    let refused = text(mine.add.with(mine.add(&mine.a, &foreign, 1.0)));
    assert!(
        refused.starts_with("buffer foreign belongs to device 0 "),
        "{refused}"
    );
    assert!(
        refused.contains(" of another, but ") && refused.ends_with(" of emulator"),
        "{refused}"
    );
}

#[test]
fn threads_launch_concurrently() {
    let _alone = alone();
    let context = context();
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                let bench = Bench {
                    context: context.clone(),
                    ..Bench::new()
                };
                for _ in 0..10 {
                    bench.pass(&mut &bench.stream).unwrap();
                }
                bench.expect("concurrently", |x| (x + 1.0) * (x + 2.0));
            });
        }
    });
}

#[test]
fn events_measure_and_order() {
    let _alone = alone();
    let bench = Bench::new();
    let other = Stream::new(&bench.context).unwrap();
    let (start, end) = (
        Event::new(&bench.context).unwrap(),
        Event::new(&bench.context).unwrap(),
    );
    start.record(&bench.stream).unwrap();
    bench
        .stream
        .launch(&bench.add, bench.add(&bench.a, &bench.b, 1.0))
        .unwrap();
    end.record(&bench.stream).unwrap();
    other.wait(&end).unwrap();
    other
        .launch(&bench.add, bench.add(&bench.b, &bench.d, 1.0))
        .unwrap();
    assert_eq!(other.read(&bench.d).unwrap()[5], 7.0);
    assert!(end.since(&start).unwrap().as_secs() < 60);
    bench.stream.synchronize().unwrap();
    assert!(bench.stream.is_idle().unwrap());
}
