//! Errors that the crate returns before it calls the driver, and the texts of the driver's errors.

use ptx_gen::{Access, Geometry};
use warpwright_driver::prelude::*;
use warpwright_driver::sys;
use warpwright_driver::sys::{
    CUgraphExecUpdateResult, CUgraphExecUpdateResultInfo, CUgraphNode, CUresult,
};

use crate::fake::{self, count, fail, state};
use crate::kernels::{Add, AddArgs, Mul, MulArgs, load};

fn text<T>(result: Result<T, Error>) -> String {
    result.err().expect("refused").to_string()
}

fn add_args<'a>(x: &'a Buffer<f32>, y: &'a Buffer<f32>, n: u32) -> AddArgs<Host<'a>> {
    AddArgs { x, y, n, add: 1.0 }
}

#[test]
fn launches_name_the_kernel_the_argument_and_what_it_takes() {
    let context = fake::context();
    let add = load(&context, Add);
    let x = Buffer::<f32>::zeroed(&context, 64).unwrap().labelled("x");
    let y = Buffer::<f32>::zeroed(&context, 64).unwrap().labelled("y");
    let words = Buffer::<u32>::zeroed(&context, 64)
        .unwrap()
        .labelled("words");
    let f = add.function();
    let launch = |grid: [u32; 3], block, shared, args: Vec<HostArg>| {
        text(Launch::new(
            f,
            Geometry {
                grid,
                block: [block, 1, 1],
                shared,
            },
            args,
        ))
    };
    let good = || {
        vec![
            (&*x).into(),
            (&*y).into(),
            HostArg::scalar(64u32),
            HostArg::scalar(1f32),
        ]
    };
    let with = |index: usize, arg: HostArg| {
        let mut args = good();
        args[index] = arg;
        args
    };
    for (got, wanted) in [
        (
            launch([1, 1, 1], 128, 0, good()[..3].to_vec()),
            "kernel add: 3 arguments; it takes 4",
        ),
        (
            launch([1, 1, 1], 128, 0, with(0, (&*words).into())),
            "kernel add: argument 0 (x) is a buffer of u32 (words); it takes a buffer of f32",
        ),
        (
            launch([1, 1, 1], 128, 0, with(3, HostArg::scalar(1u32))),
            "kernel add: argument 3 (add) is a u32 value; it takes a f32 value",
        ),
        (
            launch([1, 1, 1], 128, 0, with(2, (&*x).into())),
            "kernel add: argument 2 (n) is a buffer of f32 (x); it takes a u32 value",
        ),
        (
            launch([1, 1, 1], 128, 0, with(1, x.view_range(8..24).into())),
            "kernel add: arguments x and y overlap in x, and y is written",
        ),
        (
            launch([0, 1, 1], 128, 0, good()),
            "kernel add: grid.x is 0; the device allows 1 to 2147483647",
        ),
        (
            launch([1, 70000, 1], 128, 0, good()),
            "kernel add: grid.y is 70000; the device allows 1 to 65535",
        ),
        (
            launch([1, 1, 1], 2048, 0, good()),
            "kernel add: block.x is 2048; the device allows 1 to 1024",
        ),
        (
            launch([1, 1, 1], 512, 0, good()),
            "kernel add: a block of 512 threads; the kernel allows 256 with 128 registers a thread",
        ),
        (
            launch([1, 1, 1], 128, 170_000, good()),
            "kernel add: 170000 bytes of dynamic and 512 bytes of static shared memory; the device allows 166912 in all",
        ),
        (
            text(add.with(add_args(&x, &y, 65))),
            "kernel add: x and y must hold n = 65 elements",
        ),
    ] {
        assert_eq!(got, wanted);
    }

    assert_eq!(count("cuLaunchKernel"), 0);
}

#[test]
fn shared_memory_beyond_the_default_is_opted_in_once() {
    let context = fake::context();
    let add = load(&context, Add);
    let x = Buffer::<f32>::zeroed(&context, 64).unwrap();
    let y = Buffer::<f32>::zeroed(&context, 64).unwrap();
    let args = || {
        vec![
            (&*x).into(),
            (&*y).into(),
            HostArg::scalar(64u32),
            HostArg::scalar(1f32),
        ]
    };
    for shared in [40 << 10, 100 << 10, 100 << 10, 60 << 10] {
        Launch::new(
            add.function(),
            Geometry {
                grid: [1, 1, 1],
                block: [128, 1, 1],
                shared,
            },
            args(),
        )
        .unwrap();
    }

    assert_eq!(
        count("cuFuncSetAttribute"),
        2,
        "once the size, once the share of the cache"
    );
}

#[test]
fn things_of_two_contexts_do_not_meet() {
    let driver = fake::driver();
    let first = Context::new(&driver.device(0).unwrap()).unwrap();
    let second = Context::new(&driver.device(1).unwrap()).unwrap();
    let add = load(&first, Add);
    let x = Buffer::<f32>::zeroed(&first, 64).unwrap();
    let y = Buffer::<f32>::zeroed(&second, 64).unwrap().labelled("y");
    let stream = Stream::new(&second).unwrap();
    assert_eq!(
        text(add.with(add_args(&x, &y, 64))),
        "buffer y belongs to device 1 (Fake, compute capability 8.0) of fake, \
         but kernel add, argument y belongs to device 0 (Fake, compute capability 8.0) of fake"
    );
    let y = Buffer::<f32>::zeroed(&first, 64).unwrap();
    assert_eq!(
        text(stream.launch(&add, add_args(&x, &y, 64))),
        "kernel add belongs to device 0 (Fake, compute capability 8.0) of fake, \
         but the queue belongs to device 1 (Fake, compute capability 8.0) of fake"
    );
    let event = Event::new(&first).unwrap();
    assert!(text(stream.wait(&event)).starts_with("an event belongs to device 0"));
    assert_eq!(text(driver.device(7)), "no device 7: the driver has 2");
}

#[test]
fn one_device_is_one_context_and_what_was_current_comes_back() {
    let driver = fake::driver();
    let device = driver.device(1).unwrap();
    let before = sys::CUcontext(std::ptr::without_provenance_mut(0xf00));
    state(|s| s.current.push(before));
    {
        let (a, b) = (
            Context::new(&device).unwrap(),
            Context::new(&device).unwrap(),
        );
        assert_eq!(a.raw(), b.raw());
        let _buffer = Buffer::<u8>::zeroed(&a, 10).unwrap();
        assert_eq!(state(|s| s.current.clone()), [before]);
    }

    assert_eq!(
        (
            count("cuDevicePrimaryCtxRetain"),
            count("cuDevicePrimaryCtxRelease_v2")
        ),
        (1, 1)
    );
    assert_eq!(count("cuMemFree_v2"), 1);
    assert_eq!(state(|s| s.current.clone()), [before]);
}

#[test]
fn running_out_of_memory_gives_the_numbers() {
    let context = fake::context();
    fail("cuMemAlloc_v2", CUresult::OUT_OF_MEMORY);
    assert_eq!(
        text(Buffer::<f32>::zeroed(&context, 1000)),
        "out of memory: 4000 bytes requested, 100 of 1073741824 free"
    );
    fail("cuMemAlloc_v2", CUresult(4242));
    assert_eq!(
        text(Buffer::<f32>::zeroed(&context, 1000)),
        "cuMemAlloc_v2: CUDA error 4242"
    );
}

#[test]
fn a_fault_of_the_device_is_told_from_a_bad_call() {
    let context = fake::context();
    let stream = Stream::new(&context).unwrap();
    fail("cuStreamSynchronize", CUresult::ILLEGAL_ADDRESS);
    assert_eq!(
        text(stream.synchronize()),
        "cuStreamSynchronize: CUDA_ERROR_ILLEGAL_ADDRESS (700): a kernel used an address that is not valid; \
         asynchronous: work queued before this call failed, and the context is lost"
    );
}

#[test]
fn a_driver_that_does_not_start_says_why() {
    for (code, wanted) in [
        (
            CUresult::NO_DEVICE,
            "fake: the driver found no CUDA device; CUDA_VISIBLE_DEVICES may hide it",
        ),
        (
            CUresult::UNKNOWN,
            "fake: cuInit: CUDA_ERROR_UNKNOWN (999): an unknown internal error",
        ),
    ] {
        fail("cuInit", code);
        assert_eq!(
            Driver::from_library(fake::library(fake::api()))
                .err()
                .unwrap()
                .to_string(),
            wanted
        );
    }
}

#[test]
fn modules_are_checked_before_the_compiler_and_quoted_after() {
    state(
        |s| s.log = "ptxas application ptx input, line 5; error   : Not a name of any known instruction: 'foo'",
    );
    let driver = Driver::from_library(fake::library(fake::refusing_api())).unwrap();
    let context = Context::new(&driver.device(0).unwrap()).unwrap();
    for (ptx, wanted) in [
        (
            ".version 9.0\n.target sm_80\n",
            "module: the PTX has version 9.0, which needs a driver for CUDA 13.0; this driver supports CUDA 12.4. \
             Use a newer driver or a lower .version \
             [.version 9.0, .target sm_80; device 0 (Fake, compute capability 8.0), driver for CUDA 12.4]",
        ),
        (
            ".version 8.0\n.target sm_90a\n",
            "module: the PTX is for sm_90a, which does not run on compute capability 8.0 \
             [.version 8.0, .target sm_90a; device 0 (Fake, compute capability 8.0), driver for CUDA 12.4]",
        ),
        (
            ".version 8.0\n\0.target sm_80\n",
            "module: the PTX has a NUL at byte 13 \
             [.version 8.0, no .target; device 0 (Fake, compute capability 8.0), driver for CUDA 12.4]",
        ),
        (
            ".version 8.0\n.target sm_80\n.file 1 \"a.rs\"\n.loc 1 7 1\n  foo;\n",
            "module: cuModuleLoadDataEx: CUDA_ERROR_INVALID_PTX (218): compiling the PTX failed \
             [.version 8.0, .target sm_80; device 0 (Fake, compute capability 8.0), driver for CUDA 12.4]\n  \
             line 5: foo;\n  from a.rs:7\n\
             ptxas application ptx input, line 5; error   : Not a name of any known instruction: 'foo'",
        ),
    ] {
        assert_eq!(text(Module::load(&context, ptx)), wanted);
    }
}

#[test]
fn a_missing_kernel_lists_those_there_are() {
    let context = fake::context();
    let module = Module::load(
        &context,
        ".version 7.0\n.target sm_80\n.visible .entry one() { ret; }\n.entry two() { ret; }\n",
    )
    .unwrap();
    fail("cuModuleGetFunction", CUresult::NOT_FOUND);

    // SAFETY: there is no such kernel to launch.
    let missing = unsafe { module.function("three", &[]) };
    assert!(text(missing).starts_with("module: no kernel three; the PTX defines one, two ["));
}

#[test]
fn views_are_checked() {
    let context = fake::context();
    let bytes = Buffer::<u8>::zeroed(&context, 10)
        .unwrap()
        .labelled("bytes");
    assert!(bytes.get(4..11).is_none());
    #[allow(clippy::reversed_empty_ranges)]
    let reversed = bytes.get(5..4);
    assert!(reversed.is_none());
    assert_eq!(bytes.view_range(4..8).cast::<f32>().unwrap().len(), 1);
    let wanted = |what: &str, size: usize, at: u64| {
        format!("{what} of {size} bytes at address {at:#x} is not a whole number of aligned f32")
    };
    assert_eq!(
        text(bytes.cast::<f32>()),
        wanted("bytes", 10, bytes.address())
    );
    assert_eq!(
        text(bytes.view_range(1..5).cast::<f32>()),
        wanted("bytes[1..5 of 10 bytes]", 4, bytes.address() + 1)
    );
    let stream = Stream::new(&context).unwrap();
    assert_eq!(
        text(stream.write(&bytes, &[1, 2])),
        "write: 2 elements for bytes, which has 10"
    );
    let (from, to) = (bytes.view_range(0..4), bytes.view_range(2..6));
    assert_eq!(
        text(stream.copy(&from, &to)),
        "copy: bytes[0..4 of 10 bytes] and bytes[2..6 of 10 bytes] overlap"
    );
    let longs = Buffer::<u64>::zeroed(&context, 2)
        .unwrap()
        .labelled("longs");
    assert_eq!(
        text(stream.fill(&longs, 1u64 << 32)),
        "fill: longs has 8-byte elements, and the halves of the value differ"
    );
}

#[test]
fn graphs_refuse_foreign_nodes_cycles_and_forgotten_edges() {
    let context = fake::context();
    let (add, mul) = (load(&context, Add), load(&context, Mul));
    let buffer = |name| Buffer::<f32>::zeroed(&context, 64).unwrap().labelled(name);
    let (x, y, z) = (buffer("x"), buffer("y"), buffer("z"));
    let mut graph = Graph::new(&context).unwrap();
    let first = graph.launch(&[], &add, add_args(&x, &y, 64)).unwrap();
    let mul_args = MulArgs::<Host> {
        x: &x,
        y: &y,
        z: &z,
        n: 64,
    };
    let second = graph.launch(&[], &mul, mul_args).unwrap();
    let race = &graph.races()[0];
    assert_eq!(
        (race.first, race.second, race.region.name().as_str()),
        (first, second, "y")
    );
    graph.add_edge(first, second).unwrap();
    assert!(graph.races().is_empty());
    assert_eq!(
        text(graph.add_edge(first, second)),
        "edge from node 0 to node 1: it exists already"
    );
    assert_eq!(
        text(graph.add_edge(second, first)),
        "edge from node 1 to node 0: it would create a cycle"
    );

    let mut other = Graph::new(&context).unwrap();
    let foreign = other.empty(&[]).unwrap();
    assert_eq!(
        text(graph.empty(&[foreign])),
        "node 0 is not a node of this graph"
    );

    let apart = graph
        .launch(&[], &add, add_args(&x, &buffer("w"), 64))
        .unwrap();
    let mut exec = graph.instantiate().unwrap();
    assert_eq!(
        text(exec.set_args(apart, &add, add_args(&x, &y, 64))),
        "nodes 2 (add) and 0 (add) would both touch y and no edge orders them; add the edge, or record the graph again"
    );
    exec.set_args(apart, &add, add_args(&x, &buffer("v"), 64))
        .unwrap();
}

#[test]
fn a_refused_update_tells_all_three_fields() {
    let driver = Driver::from_library(fake::library(sys::Api {
        cuModuleLoadDataEx: fake::api().cuModuleLoadDataEx,
        ..fake::refusing_api()
    }));
    let context = Context::new(&driver.unwrap().device(0).unwrap()).unwrap();
    let mut graph = Graph::new(&context).unwrap();
    let first = graph.empty(&[]).unwrap();
    graph.empty(&[first]).unwrap();
    let mut exec = graph.instantiate().unwrap();
    let handle = |i: usize| state(|s| s.nodes[i].0);
    for (error_node, from_node, wanted) in [
        (
            handle(1),
            handle(0),
            "node 1 (empty), dependency on 0 (empty)",
        ),
        (
            CUgraphNode::NULL,
            CUgraphNode::NULL,
            "node not named, dependency on no node named",
        ),
    ] {
        let result = CUgraphExecUpdateResult::ERROR_TOPOLOGY_CHANGED;
        let info = CUgraphExecUpdateResultInfo {
            result,
            errorNode: error_node,
            errorFromNode: from_node,
        };
        state(|s| s.update = Some(info));
        assert_eq!(
            text(exec.update(&graph)),
            format!(
                "updating the graph: cuGraphExecUpdate_v2: CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE (910): \
                 the change is more than a graph update allows; ERROR_TOPOLOGY_CHANGED (2), {wanted}"
            )
        );
    }
}

#[test]
fn nodes_are_switched_and_changed_only_where_that_has_a_meaning() {
    let context = fake::context();
    let mut graph = Graph::new(&context).unwrap();
    let node = graph.empty(&[]).unwrap();
    let mut exec = graph.instantiate().unwrap();
    assert_eq!(
        text(exec.set_enabled(node, false)),
        "node 0 (empty) is an empty node; only a kernel, a copy or a fill can be switched"
    );
    let add = load(&context, Add);
    let (x, y) = (
        Buffer::zeroed(&context, 64).unwrap(),
        Buffer::zeroed(&context, 64).unwrap(),
    );
    assert_eq!(
        text(exec.set_args(node, &add, add_args(&x, &y, 64))),
        "node 0 (empty) is an empty node; only a kernel has arguments"
    );
}

#[test]
fn a_capture_reports_what_failed_first_and_destructors_wait_for_its_end() {
    let context = fake::context();
    let stream = Stream::new(&context).unwrap();
    let buffer = Buffer::<u8>::zeroed(&context, 10).unwrap();
    let graph = capture(&stream, CaptureMode::ThreadLocal, |_| {
        drop(buffer);
        assert_eq!(count("cuMemFree_v2"), 0);
        Ok(())
    });
    assert!(graph.unwrap().nodes().is_empty());
    assert_eq!(count("cuMemFree_v2"), 1);

    fail("cuMemAlloc_v2", CUresult::STREAM_CAPTURE_UNSUPPORTED);
    fail("cuStreamEndCapture", CUresult::STREAM_CAPTURE_INVALIDATED);
    let swallowed = capture(&stream, CaptureMode::Relaxed, |_| {
        let _ = Buffer::<u8>::zeroed(&context, 10);
        Ok(())
    });
    assert_eq!(
        text(swallowed),
        "capture: cuMemAlloc_v2: CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED (900): the operation is not permitted while the \
         stream captures\n  and the capture ended with cuStreamEndCapture: CUDA_ERROR_STREAM_CAPTURE_INVALIDATED (901): \
         an earlier error ended the capture"
    );

    let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        let _ = capture(&stream, CaptureMode::ThreadLocal, |_| {
            panic!("in the region")
        });
    }));
    assert!(panicked.is_err());
    assert_eq!(count("cuStreamEndCapture"), 3);
}

#[test]
fn a_stream_keeps_what_its_work_needs() {
    let context = fake::context();
    let stream = Stream::new(&context).unwrap();
    let x = Buffer::<f32>::zeroed(&context, 64).unwrap();
    stream.fill(&x, 0.0).unwrap_err();
    let add = load(&context, Add);
    let y = Buffer::<f32>::zeroed(&context, 64).unwrap();
    stream.launch(&add, add_args(&x, &y, 64)).unwrap();
    busy(true);
    drop((x, y, add));
    assert_eq!((count("cuMemFree_v2"), count("cuModuleUnload")), (0, 0));
    stream.synchronize().unwrap();
    assert_eq!((count("cuMemFree_v2"), count("cuModuleUnload")), (2, 1));
}

#[test]
fn a_dropped_stream_lives_until_its_work_is_done() {
    let context = fake::context();
    let stream = Stream::new(&context).unwrap();
    let add = load(&context, Add);
    let (x, y) = (
        Buffer::zeroed(&context, 64).unwrap(),
        Buffer::zeroed(&context, 64).unwrap(),
    );
    stream.launch(&add, add_args(&x, &y, 64)).unwrap();
    busy(true);
    drop((stream, x, y));
    assert_eq!((count("cuMemFree_v2"), count("cuStreamDestroy_v2")), (0, 0));
    context.synchronize().unwrap();
    assert_eq!((count("cuMemFree_v2"), count("cuStreamDestroy_v2")), (2, 1));
}

/// Whether work is still to do, for whoever asks.
fn busy(busy: bool) {
    for call in ["cuStreamQuery", "cuEventQuery"] {
        if busy {
            fail(call, CUresult::NOT_READY);
        } else {
            state(|s| s.fail.remove(call));
        }
    }
}

#[test]
fn uses_of_a_launch_are_its_buffers() {
    let context = fake::context();
    let add = load(&context, Add);
    let (x, y) = (
        Buffer::zeroed(&context, 64).unwrap(),
        Buffer::zeroed(&context, 64).unwrap(),
    );
    let work = Work::Launch(add.with(add_args(&x, &y, 64)).unwrap());
    let uses: Vec<_> = work.uses().iter().map(|u| (u.name, u.access)).collect();
    assert_eq!(uses, [("x", Access::Read), ("y", Access::Write)]);
}

#[test]
fn what_threads_share_is_shareable() {
    fn shareable<T: Send + Sync>() {}
    shareable::<(Driver, Device, Context, Stream, Event, Module, Function)>();
    shareable::<(
        Buffer<f32>,
        Pinned<u32>,
        View<u8>,
        Kernel<Add>,
        Launch,
        Work,
    )>();
    shareable::<(Graph, GraphExec, Recorder, Error)>();
}

/// A node whose change the driver refused keeps its memory, also for the checks of later changes.
#[test]
fn a_change_that_the_driver_refuses_leaves_the_accesses_of_the_node() {
    let context = fake::context();
    let add = load(&context, Add);
    let buffer = |name| Buffer::<f32>::zeroed(&context, 64).unwrap().labelled(name);
    let x = buffer("x");
    let y = buffer("y");
    let z = buffer("z");
    let w = buffer("w");
    let mut graph = Graph::new(&context).unwrap();
    let first = graph.launch(&[], &add, add_args(&x, &y, 64)).unwrap();
    let second = graph.launch(&[], &add, add_args(&x, &z, 64)).unwrap();
    let mut exec = graph.instantiate().unwrap();
    let call = "cuGraphExecKernelNodeSetParams_v2";
    fail(call, CUresult::INVALID_VALUE);
    assert!(exec.set_args(first, &add, add_args(&x, &w, 64)).is_err());
    state(|s| s.fail.remove(call));
    let refused = text(exec.set_args(second, &add, add_args(&x, &y, 64)));
    assert!(refused.contains("would both touch y"), "{refused}");
    exec.set_args(second, &add, add_args(&x, &w, 64)).unwrap();
    let refused = text(exec.set_args(first, &add, add_args(&x, &w, 64)));
    assert!(refused.contains("would both touch w"), "{refused}");
}
