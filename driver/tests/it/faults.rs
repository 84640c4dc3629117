//! Kernels that fail on the device, and the errors that the caller receives.
//!
//! A fault destroys the context. The tests therefore run one after another, each in a new context.

use ptx_gen::*;
use warpwright_driver::graph::{CaptureMode, Graph, Instantiate, Recorder, capture};
use warpwright_driver::launch::Host;
use warpwright_driver::memory::Buffer;
use warpwright_driver::stream::{Queue, Stream};
use warpwright_driver::sys::CUresult;
use warpwright_driver::{Context, Driver, Error};

use crate::emulator::alone;
use crate::kernels::{Add, AddArgs, load};

const N: usize = 64;

/// One test at a time.
fn one_at_a_time(test: impl FnOnce(Context)) {
    let _turn = alone();
    let driver = Driver::from_library(warpwright_cuda_emu::library()).unwrap();
    test(Context::new(&driver.device(0).unwrap()).unwrap());
}

/// Adds, and believes that there are twice as many elements as it is given.
struct TooFar;

impl KernelDef for TooFar {
    type Args<S: Side> = AddArgs<S>;

    fn name(&self) -> String {
        "too_far".into()
    }

    fn block(&self) -> u32 {
        128
    }

    fn grid(&self, _: &AddArgs<Shape>) -> Result<Grid, ShapeError> {
        Ok(Grid::line(1))
    }

    fn program<'k>(&self, k: Builder<'k>, a: AddArgs<Dev<'k>>) {
        let i = k.tid();
        k.when(i.lt(a.n * 2), || a.y.at(i).st(a.x.at(i).ld() + a.add));
    }

    fn reference(&self, _: AddArgs<Cpu<'_>>) {}
}

/// Adds, and waits for the kernels before it: where the sum is stored, or at once.
struct Waits {
    late: bool,
}

impl KernelDef for Waits {
    type Args<S: Side> = AddArgs<S>;

    fn name(&self) -> String {
        if self.late {
            "waits_late".into()
        } else {
            "waits".into()
        }
    }

    fn block(&self) -> u32 {
        N as u32
    }

    fn grid(&self, _: &AddArgs<Shape>) -> Result<Grid, ShapeError> {
        Ok(Grid::line(1))
    }

    fn program<'k>(&self, k: Builder<'k>, a: AddArgs<Dev<'k>>) {
        if !self.late {
            k.grid_wait();
        }
        let x = a.x.at(k.tid()).fresh().ld();
        if self.late {
            k.grid_wait();
        }
        a.y.at(k.tid()).st(x + a.add);
    }

    fn reference(&self, _: AddArgs<Cpu<'_>>) {}
}

fn buffers(context: &Context) -> (Buffer<f32>, Buffer<f32>) {
    let buffer = |label| Buffer::zeroed(context, N).unwrap().labelled(label);
    (buffer("input"), buffer("output"))
}

fn args<'a>(x: &'a Buffer<f32>, y: &'a Buffer<f32>) -> AddArgs<Host<'a>> {
    AddArgs {
        x,
        y,
        n: N as u32,
        add: 1.0,
    }
}

#[test]
fn a_fault_comes_at_the_next_wait_with_its_story_and_stays() {
    one_at_a_time(|context| {
        let stream = Stream::new(&context).unwrap();
        let kernel = load(&context, TooFar);
        let (x, y) = buffers(&context);
        stream.launch(&kernel, args(&x, &y)).unwrap();
        let Err(Error::Driver(error)) = stream.synchronize() else {
            panic!("no fault")
        };

        assert_eq!(error.code, CUresult::ILLEGAL_ADDRESS);
        let text = error.to_string();
        for part in ["asynchronous", "too_far", "input", "faults.rs"] {
            assert!(text.contains(part), "no {part} in {text}");
        }

        assert!(
            Buffer::<u8>::zeroed(&context, 1).is_err(),
            "the context is lost"
        );
    });
    one_at_a_time(|context| {
        let stream = Stream::new(&context).unwrap();
        let (x, y) = buffers(&context);
        stream.launch(&load(&context, Add), args(&x, &y)).unwrap();
        assert_eq!(y.to_vec().unwrap(), [1.0; N], "a new context works");
    });
}

/// What is dropped meanwhile fails too, with nobody to tell.
#[test]
fn a_fault_keeps_its_story_for_the_wait() {
    one_at_a_time(|context| {
        let stream = Stream::new(&context).unwrap();
        let kernel = load(&context, TooFar);
        let (x, y) = buffers(&context);
        stream.launch(&kernel, args(&x, &y)).unwrap();
        let current = context.enter().unwrap();

        // SAFETY: the stream is alive; a query changes nothing.
        while unsafe { (warpwright_cuda_emu::api().cuStreamQuery)(stream.raw()) }
            == CUresult::NOT_READY
        {}

        drop((current, x, y));
        let Err(Error::Driver(error)) = stream.synchronize() else {
            panic!("no fault")
        };

        assert!(error.to_string().contains("too_far"), "{error}");
    });
}

#[test]
fn a_forgotten_edge_is_found_on_the_host_and_on_the_device() {
    one_at_a_time(|context| {
        let stream = Stream::new(&context).unwrap();
        let add = load(&context, Add);
        let (x, y) = buffers(&context);
        let mut graph = Graph::new(&context).unwrap();
        graph.launch(&[], &add, args(&x, &y)).unwrap();
        graph.launch(&[], &add, args(&y, &x)).unwrap();
        assert_eq!(graph.races().len(), 1);
        let refused = graph.instantiate().unwrap_err().to_string();
        let wanted = "instantiating it: node 0 (add) and node 1 (add) touch bytes 0 to 256 of ";
        assert!(refused.starts_with(wanted), "{refused}");

        // SAFETY: the emulator finds the race, and no result is used.
        let mut exec = unsafe { graph.instantiate_with_races(Instantiate::default()) }.unwrap();
        exec.launch(&stream).unwrap();
        let text = stream.synchronize().unwrap_err().to_string();
        for part in ["no path of edges orders", "(add)", "input"] {
            assert!(text.contains(part), "no {part} in {text}");
        }
    });
    one_at_a_time(|context| {
        let stream = Stream::new(&context).unwrap();
        let add = load(&context, Add);
        let (x, y) = buffers(&context);
        let mut recorder = Recorder::new(&context).unwrap();
        recorder.launch(&add, args(&x, &y)).unwrap();
        recorder.launch(&add, args(&y, &x)).unwrap();
        recorder
            .finish()
            .instantiate()
            .unwrap()
            .launch(&stream)
            .unwrap();
        assert_eq!(
            stream.read(&x).unwrap(),
            [2.0; N],
            "recorded, the edge is there"
        );
    });
}

#[test]
fn a_wait_that_comes_too_late_is_found_in_a_chain() {
    let run = |late| {
        let mut found = String::new();
        one_at_a_time(|context| {
            let stream = Stream::new(&context).unwrap();
            let [first, second] = [false, late].map(|late| load(&context, Waits { late }));
            assert!(first.function().waits() && second.function().waits());
            let (x, y) = buffers(&context);
            let mut chain = Recorder::pipeline(&context).unwrap();
            chain.launch(&first, args(&x, &y)).unwrap();
            chain.launch(&second, args(&y, &x)).unwrap();
            let graph = chain.finish();
            assert_eq!(graph.programmatic_edges(), 1);
            graph.instantiate().unwrap().launch(&stream).unwrap();
            found = stream
                .read(&x)
                .map_or_else(|e| e.to_string(), |x| format!("{:?}", x[0]));
        });
        found
    };
    assert_eq!(run(false), "2.0");
    let text = run(true);
    for part in [
        "node 1 (waits_late) may start before node 0 (waits) ends",
        "`output`",
        "faults.rs",
    ] {
        assert!(text.contains(part), "no {part} in {text}");
    }
}

#[test]
fn a_failing_call_inside_a_capture_is_the_one_reported() {
    one_at_a_time(|context| {
        let stream = Stream::new(&context).unwrap();
        let add = load(&context, Add);
        let (x, y) = buffers(&context);
        warpwright_cuda_emu::inject("cuLaunchKernel", 2, CUresult::LAUNCH_OUT_OF_RESOURCES);
        let failed = capture(&stream, CaptureMode::ThreadLocal, |queue| {
            queue.launch(&add, args(&x, &y))?;
            queue.launch(&add, args(&y, &x))
        });
        let text = failed.err().unwrap().to_string();
        assert!(
            text.starts_with("capture: cuLaunchKernel: CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES (701)"),
            "{text}"
        );
        stream.launch(&add, args(&x, &y)).unwrap();
        assert_eq!(stream.read(&y).unwrap(), [1.0; N]);
    });
}

#[test]
fn a_global_capture_forbids_other_threads_to_allocate() {
    one_at_a_time(|context| {
        let stream = Stream::new(&context).unwrap();
        let add = load(&context, Add);
        let (x, y) = buffers(&context);
        let graph = capture(&stream, CaptureMode::Global, |queue| {
            queue.launch(&add, args(&x, &y))
        })
        .unwrap();
        graph.instantiate().unwrap().launch(&stream).unwrap();
        assert_eq!(stream.read(&y).unwrap(), [1.0; N]);

        let mut elsewhere = None;
        let failed = capture(&stream, CaptureMode::Global, |queue| {
            let allocate = || {
                Buffer::<f32>::zeroed(&context, N)
                    .err()
                    .map(|e| e.to_string())
            };
            elsewhere = std::thread::scope(|scope| scope.spawn(allocate).join().unwrap());
            queue.launch(&add, args(&x, &y))
        });
        assert!(
            elsewhere
                .unwrap()
                .starts_with("cuMemAlloc_v2: CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED (900)")
        );
        assert!(
            failed
                .err()
                .unwrap()
                .to_string()
                .contains("CUDA_ERROR_STREAM_CAPTURE_INVALIDATED (901)")
        );
        stream.launch(&add, args(&x, &y)).unwrap();
        stream.synchronize().unwrap();
    });
}
