//! The calls that are compared.

use std::error::Error;
use std::ffi::c_void;
use std::hint::black_box;
use std::sync::Arc;

use cudarc::driver::sys as theirs_sys;
use cudarc::driver::{CudaContext, CudaFunction, CudaSlice, CudaStream, PushKernelArg};
use warpwright_driver::graph::{Graph, GraphExec};
use warpwright_driver::launch::{Host, Kernel, Launch};
use warpwright_driver::memory::Buffer;
use warpwright_driver::stream::Stream;
use warpwright_driver::sys::{Api, CUgraphExec, CUresult};
use warpwright_driver::{Context, Driver};

use crate::eight::{Eight, EightArgs};

/// Makes a call so often.
pub type Calls = Box<dyn FnMut(u32)>;

/// A compared operation, and the calls that do it: raw, by this project, and by cudarc.
///
/// The row also states whether work of several streams on the same memory is ordered. This project
/// then has two streams, and cudarc tracks accesses with events.
pub struct Row {
    pub what: &'static str,
    pub calls: [Option<Calls>; 3],
}

/// Elements of a buffer.
const N: usize = 16;

/// The objects of this project, which stay to the end.
struct Ours {
    context: Context,
    stream: Stream,
    kernel: Kernel<Eight>,
    buffers: [Buffer<f32>; 3],
}

impl Ours {
    /// For ever, so that the calls may lend them.
    fn new(context: &Context) -> Result<&'static Self, Box<dyn Error>> {
        let buffer = || Buffer::uninit(context, N);
        Ok(Box::leak(Box::new(Self {
            stream: Stream::new(context)?,
            // SAFETY: the driver runs nothing.
            kernel: unsafe { Kernel::load(context, Eight) }?,
            buffers: [buffer()?, buffer()?, buffer()?],
            context: context.clone(),
        })))
    }

    fn api(&self) -> &'static Api {
        self.context.driver().api()
    }

    fn args(&self) -> EightArgs<Host<'_>> {
        let [x, w, y] = &self.buffers;
        EightArgs {
            x,
            w,
            y,
            n: N as u32,
            a: 1,
            b: 2,
            c: 3.0,
            d: 4.0,
        }
    }

    fn graph(&self) -> Result<GraphExec, warpwright_driver::Error> {
        let mut graph = Graph::new(&self.context)?;
        graph.launch(&[], &self.kernel, self.args())?;
        graph.instantiate()
    }
}

/// The objects of cudarc.
struct Theirs {
    stream: Arc<CudaStream>,
    function: CudaFunction,
    buffers: [CudaSlice<f32>; 3],
}

impl Theirs {
    fn new(tracking: bool) -> Result<Self, Box<dyn Error>> {
        let context = CudaContext::new(0)?;
        if !tracking {
            // SAFETY: nothing runs.
            unsafe { context.disable_event_tracking() };
        }

        let stream = context.new_stream()?;
        let function = context
            .load_module(cudarc::nvrtc::Ptx::from_src("eight"))?
            .load_function("eight")?;

        // SAFETY: nothing reads the memory.
        let buffer = || unsafe { stream.alloc::<f32>(N) };
        let buffers = [buffer()?, buffer()?, buffer()?];
        Ok(Self {
            stream,
            function,
            buffers,
        })
    }

    fn launch(&mut self) {
        let [x, w, y] = &mut self.buffers;
        let (n, a, b, c, d) = (N as u32, 1u32, 2u32, 3.0f32, 4.0f32);
        let config = cudarc::driver::LaunchConfig {
            grid_dim: (1, 1, 1),
            block_dim: (128, 1, 1),
            shared_mem_bytes: 0,
        };
        let mut launch = self.stream.launch_builder(&self.function);
        launch
            .arg(&*x)
            .arg(&*w)
            .arg(y)
            .arg(&n)
            .arg(&a)
            .arg(&b)
            .arg(&c)
            .arg(&d);

        // SAFETY: nothing runs.
        unsafe { launch.launch(config) }.expect("launched");
    }

    fn write(&mut self) {
        self.stream
            .memcpy_htod(&[1.0f32; N], &mut self.buffers[0])
            .expect("written");
        self.stream.synchronize().expect("waited");
    }

    fn read(&self) {
        let mut to = [0.0f32; N];
        self.stream
            .memcpy_dtoh(&self.buffers[0], &mut to)
            .expect("read");
        self.stream.synchronize().expect("waited");
        black_box(to);
    }
}

/// A call many times.
fn many(mut call: impl FnMut() + 'static) -> Option<Calls> {
    Some(Box::new(move |times| (0..times).for_each(|_| call())))
}

/// Returns calls while the context of this project has a second stream, so that streams must be
/// ordered.
fn beside(ours: &'static Ours, mut call: impl FnMut() + 'static) -> Option<Calls> {
    Some(Box::new(move |times| {
        let second = Stream::new(&ours.context).expect("a stream");
        (0..times).for_each(|_| call());
        drop(second);
    }))
}

/// Returns all rows.
///
/// # Errors
/// Returns an error if a driver call fails.
pub fn rows() -> Result<Vec<Row>, Box<dyn Error>> {
    let ours = Ours::new(&Context::new(&Driver::load()?.device(0)?)?)?;
    let mut rows = launches(ours)?;
    rows.extend(graphs(ours)?);
    rows.extend(allocations(ours)?);
    rows.extend(copies(ours)?);
    Ok(rows)
}

fn launches(ours: &'static Ours) -> Result<Vec<Row>, Box<dyn Error>> {
    let (launch, mut off, mut on) = (
        ours.kernel.with(ours.args())?,
        Theirs::new(false)?,
        Theirs::new(true)?,
    );
    let again = launch.clone();
    let prepared = |launch: Launch| move || ours.stream.run_launch(&launch).expect("launched");
    let typed = || {
        ours.stream
            .launch(&ours.kernel, ours.args())
            .expect("launched")
    };
    Ok(vec![
        Row {
            what: "launch, prepared",
            calls: [many(|| raw_launch(ours)), many(prepared(launch)), None],
        },
        Row {
            what: "launch, prepared, ordered",
            calls: [None, beside(ours, prepared(again)), None],
        },
        Row {
            what: "launch, 8 arguments",
            calls: [None, many(typed), many(move || off.launch())],
        },
        Row {
            what: "launch, 8 arguments, ordered",
            calls: [None, beside(ours, typed), many(move || on.launch())],
        },
    ])
}

fn raw_launch(ours: &Ours) {
    let mut values: [u64; 8] = [1, 2, 3, N as u64, 1, 2, 0, 0];
    let mut params: [*mut c_void; 8] =
        std::array::from_fn(|i| std::ptr::from_mut(&mut values[i]).cast());
    let (function, stream) = (ours.kernel.function().raw(), ours.stream.raw());
    let (params, extra) = (black_box(params.as_mut_ptr()), std::ptr::null_mut());
    // SAFETY: the function does nothing.
    must(unsafe {
        (ours.api().cuLaunchKernel)(function, 1, 1, 1, 128, 1, 1, 0, stream, params, extra)
    });
}

fn graphs(ours: &'static Ours) -> Result<Vec<Row>, Box<dyn Error>> {
    let (mut exec, mut ordered, mut theirs) = (ours.graph()?, ours.graph()?, Theirs::new(true)?);
    let (raw, launch) = (
        CUgraphExec::NULL,
        ours.api().cuGraphLaunch.ok_or("no cuGraphLaunch")?,
    );
    theirs
        .stream
        .begin_capture(theirs_sys::CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL)?;
    theirs.launch();
    let flags =
        theirs_sys::CUgraphInstantiate_flags::CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH;
    let graph = theirs.stream.end_capture(flags)?.ok_or("no graph")?;
    Ok(vec![
        Row {
            what: "graph",
            calls: [
                // SAFETY: the function does nothing.
                many(move || must(unsafe { launch(raw, ours.stream.raw()) })),
                many(move || exec.launch(&ours.stream).expect("launched")),
                many(move || graph.launch().expect("launched")),
            ],
        },
        Row {
            what: "graph, ordered",
            calls: [
                None,
                beside(ours, move || {
                    ordered.launch(&ours.stream).expect("launched")
                }),
                None,
            ],
        },
    ])
}

fn allocations(ours: &'static Ours) -> Result<Vec<Row>, Box<dyn Error>> {
    let (off, on) = (Theirs::new(false)?.stream, Theirs::new(true)?.stream);
    let of_stream = || drop(ours.stream.alloc::<f32>(N).expect("memory"));

    // SAFETY: nothing reads the memory.
    let theirs =
        |stream: Arc<CudaStream>| move || drop(unsafe { stream.alloc::<f32>(N) }.expect("memory"));
    let of_context = || drop(Buffer::<f32>::uninit(&ours.context, N).expect("memory"));
    Ok(vec![
        Row {
            what: "memory, taken and given back",
            calls: [many(|| raw_memory(ours)), many(of_context), None],
        },
        Row {
            what: "memory of a stream",
            calls: [
                many(|| raw_stream_memory(ours)),
                many(of_stream),
                many(theirs(off)),
            ],
        },
        Row {
            what: "memory of a stream, ordered",
            calls: [None, beside(ours, of_stream), many(theirs(on))],
        },
    ])
}

fn raw_memory(ours: &Ours) {
    let mut address = 0;
    // SAFETY: the functions do nothing but write the address.
    unsafe {
        must((ours.api().cuMemAlloc_v2)(&mut address, 4 * N));
        must((ours.api().cuMemFree_v2)(black_box(address)));
    }
}

fn raw_stream_memory(ours: &Ours) {
    let (mut address, api, stream) = (0, ours.api(), ours.stream.raw());
    // SAFETY: as above.
    unsafe {
        must(api.cuMemAllocAsync.expect("cuMemAllocAsync")(
            &mut address,
            4 * N,
            stream,
        ));
        must(api.cuMemFreeAsync.expect("cuMemFreeAsync")(
            black_box(address),
            stream,
        ));
    }
}

fn copies(ours: &'static Ours) -> Result<Vec<Row>, Box<dyn Error>> {
    let write = || {
        ours.stream
            .write(&ours.buffers[0], &[1.0; N])
            .expect("written")
    };
    let read = || {
        let mut to = [0.0; N];
        ours.stream
            .read_into(&ours.buffers[0], &mut to)
            .expect("read");
        black_box(to);
    };
    let (mut write_off, mut write_on) = (Theirs::new(false)?, Theirs::new(true)?);
    let (read_off, read_on) = (Theirs::new(false)?, Theirs::new(true)?);
    Ok(vec![
        Row {
            what: "64 bytes to the device, and wait",
            calls: [
                many(|| raw_write(ours)),
                many(write),
                many(move || write_off.write()),
            ],
        },
        Row {
            what: "64 bytes to the device, and wait, ordered",
            calls: [None, beside(ours, write), many(move || write_on.write())],
        },
        Row {
            what: "64 bytes to the host, and wait",
            calls: [
                many(|| raw_read(ours)),
                many(read),
                many(move || read_off.read()),
            ],
        },
        Row {
            what: "64 bytes to the host, and wait, ordered",
            calls: [None, beside(ours, read), many(move || read_on.read())],
        },
    ])
}

fn raw_write(ours: &Ours) {
    let (from, to, stream) = ([1.0f32; N], ours.buffers[0].address(), ours.stream.raw());
    // SAFETY: the functions do nothing.
    unsafe {
        must((ours.api().cuMemcpyHtoDAsync_v2)(
            to,
            black_box(from.as_ptr()).cast(),
            4 * N,
            stream,
        ));
        must((ours.api().cuStreamSynchronize)(stream));
    }
}

fn raw_read(ours: &Ours) {
    let (mut to, from, stream) = ([0.0f32; N], ours.buffers[0].address(), ours.stream.raw());
    // SAFETY: as above.
    unsafe {
        must((ours.api().cuMemcpyDtoHAsync_v2)(
            black_box(to.as_mut_ptr()).cast(),
            from,
            4 * N,
            stream,
        ));
        must((ours.api().cuStreamSynchronize)(stream));
    }
}

fn must(code: CUresult) {
    assert_eq!(code, CUresult::SUCCESS);
}
