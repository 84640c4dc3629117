//! Every function of the driver fails once, with each code, at each of its calls: the program is
//! told which, with the code's name, or the driver goes on; nothing panics, and what can be given
//! back is.

#![allow(non_snake_case)]

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::ffi::c_void;
use std::path::Path;
use std::sync::{Arc, LazyLock};

use warpwright_driver::graph::{NodeAttribute, NodeWork, WordOperation};
use warpwright_driver::memory::{AccessWindow, GrowableBuffer};
use warpwright_driver::prelude::*;
use warpwright_driver::sys::*;

use super::*;

const CODES: [u32; 9] = [1, 2, 3, 201, 400, 700, 719, 801, 999];

/// Functions that only destructors call, or that answer questions whose failure means "not known".
const SILENT: [&str; 21] = [
    // The first call is the library's own, which then has no version.
    "cuDriverGetVersion",
    // More words to an error.
    "cuLogsDumpToMemory",
    "cuCtxPopCurrent_v2",
    "cuDevicePrimaryCtxRelease_v2",
    "cuEventDestroy_v2",
    "cuGraphDestroy",
    "cuGraphExecDestroy",
    "cuMemFreeHost",
    "cuMemFree_v2",
    "cuModuleUnload",
    "cuStreamDestroy_v2",
    "cuMemRelease",
    "cuMemAddressFree",
    "cuLibraryUnload",
    // A fence that cannot be made, and questions about it, make a release late.
    "cuEventQuery",
    "cuStreamQuery",
    "cuStreamIsCapturing",
    "cuMemFreeAsync",
    // Optional: what it does is done without.
    "cuLogsCurrent",
    "emuMemSetLabel",
    // One of its codes says that a kernel has no more parameters.
    "cuKernelGetParamInfo",
];

/// Calls whose failure is not always told: a destructor may be the one that makes it.
const SOMETIMES: [&str; 6] = [
    "cuCtxGetCurrent",
    "cuCtxPushCurrent_v2",
    "cuEventCreate",
    "cuEventRecord",
    "cuStreamSynchronize",
    "cuMemGetInfo_v2",
];

/// What this program does not call yet, each with a test of its own or none: functions for codes
/// without a name, older drivers, kernels that overlap, foreign nodes, peers, pools, links, tensor
/// maps, clusters and other processes.
const NOT_CALLED: [&str; 66] = [
    "cuGetErrorName",
    "cuDeviceGetUuid_v2",
    "cuCtxSynchronize",
    "cuGraphNodeGetType",
    "cuGraphInstantiateWithFlags",
    "cuGraphAddDependencies_v2",
    "cuGraphRemoveDependencies_v2",
    "cuDeviceCanAccessPeer",
    "cuDeviceGetDefaultMemPool",
    "cuCtxGetStreamPriorityRange",
    "cuCtxEnablePeerAccess",
    "cuModuleGetGlobal_v2",
    "cuModuleGetFunctionCount",
    "cuModuleEnumerateFunctions",
    "cuLinkCreate_v2",
    "cuLinkAddData_v2",
    "cuLinkComplete",
    "cuLinkDestroy",
    "cuFuncGetName",
    "cuMemHostRegister_v2",
    "cuMemHostUnregister",
    "cuMemAllocManaged",
    "cuMemAllocFromPoolAsync",
    "cuMemPoolCreate",
    "cuMemPoolDestroy",
    "cuMemPoolTrimTo",
    "cuMemPoolGetAttribute",
    "cuMemPoolSetAttribute",
    "cuMemcpyPeerAsync",
    "cuStreamCreateWithPriority",
    "cuStreamWaitValue32_v2",
    "cuStreamWriteValue32_v2",
    "cuLaunchKernelEx",
    "cuTensorMapEncodeTiled",
    "cuOccupancyMaxPotentialClusterSize",
    "cuOccupancyMaxActiveClusters",
    "cuMemGetAddressRange_v2",
    "cuIpcGetMemHandle",
    "cuIpcOpenMemHandle_v2",
    "cuIpcCloseMemHandle",
    "cuIpcGetEventHandle",
    "cuIpcOpenEventHandle",
    // Nodes beyond those of this program: `driver/tests/it/graphs`.
    "cuMemcpy3DAsync_v2",
    "cuMemsetD2D8Async",
    "cuMemsetD2D16Async",
    "cuMemsetD2D32Async",
    "cuGraphClone",
    "cuGraphAddMemAllocNode",
    "cuGraphAddMemFreeNode",
    "cuGraphAddBatchMemOpNode",
    "cuGraphConditionalHandleCreate",
    "cuGraphDestroyNode",
    "cuGraphRemoveDependencies",
    "cuGraphRemoveDependencies_v2",
    "cuGraphNodeFindInClone",
    "cuGraphKernelNodeGetAttribute",
    "cuGraphKernelNodeSetAttribute",
    "cuGraphKernelNodeCopyAttributes",
    "cuGraphExecMemcpyNodeSetParams",
    "cuGraphExecMemsetNodeSetParams",
    "cuGraphExecHostNodeSetParams",
    "cuGraphExecChildGraphNodeSetParams",
    "cuGraphExecEventRecordNodeSetEvent",
    "cuGraphExecEventWaitNodeSetEvent",
    "cuGraphExecBatchMemOpNodeSetParams",
    "cuStreamBeginCaptureToGraph",
];

/// What creates something, and what gives it back.
const PAIRS: [(&str, &str); 11] = [
    ("cuMemCreate", "cuMemRelease"),
    ("cuMemAddressReserve", "cuMemAddressFree"),
    ("cuLibraryLoadData", "cuLibraryUnload"),
    ("cuMemAlloc_v2", "cuMemFree_v2"),
    ("cuMemHostAlloc", "cuMemFreeHost"),
    ("cuStreamCreate", "cuStreamDestroy_v2"),
    ("cuEventCreate", "cuEventDestroy_v2"),
    ("cuModuleLoadDataEx", "cuModuleUnload"),
    ("cuGraphCreate", "cuGraphDestroy"),
    ("cuGraphInstantiateWithParams", "cuGraphExecDestroy"),
    ("cuDevicePrimaryCtxRetain", "cuDevicePrimaryCtxRelease_v2"),
];

/// Uses everything once.
fn program(driver: Driver) -> Result<Vec<f32>, Error> {
    let context = Context::new(&driver.device(0)?)?;
    let (stream, other) = (Stream::new(&context)?, Stream::new(&context)?);

    // SAFETY: the kernel stays within its buffers.
    let add = unsafe { Kernel::load(&context, Add) }?;
    let (x, y) = (
        Buffer::from_slice(&context, &[1.0f32; N])?.labelled("x"),
        Buffer::zeroed(&context, N)?,
    );
    let (pinned, event) = (Pinned::zeroed(&context, N)?, Event::new(&context)?);
    let start = Event::new(&context)?;
    start.record(&stream)?;
    stream.launch(&add, args(&x, &y, 1.0))?;
    stream.copy(&x, &y)?;
    stream.fill(&y, 1.5)?;
    stream.fill(&y.cast::<u16>()?, 0)?;
    stream.copy(&y, &pinned)?;
    stream.copy(&pinned, &x)?;
    event.record(&stream)?;
    other.wait(&event)?;
    stream.call(|| {})?;
    let scratch = stream.alloc::<f32>(N)?;
    stream.fill(&scratch, 1.0)?;
    drop(scratch);
    graphs([&x, &y], &add, &other, [&start, &event])?;
    whole_graphs(&add, &other)?;
    boxes(&other)?;
    mapped(&other)?;
    libraries(&other)?;
    event.synchronize()?;
    event.is_done()?;
    other.synchronize()?;
    start.record(&other)?;
    event.record(&other)?;
    event.synchronize()?;
    event.since(&start)?;
    other.is_idle()?;
    add.function().blocks_per_sm(32, 100 << 10)?;
    context.memory()?;
    other.write(&x, &[3.0; N])?;
    other.read(&x)?;
    y.to_vec()
}

/// The part with graphs.
fn graphs(
    [x, y]: [&View<f32>; 2],
    add: &Kernel<Add>,
    other: &Stream,
    [start, event]: [&Event; 2],
) -> Result<(), Error> {
    let ran = Arc::new(());
    let mut graph = Graph::new(x.context())?;
    let fill = graph.fill(&[], y, 0.5)?;
    let copy = graph.copy(&[fill], x, y)?;
    let seen = ran.clone();
    let host = graph.host(&[copy], move || drop(seen.clone()))?;
    let launch = graph.launch(&[], add, args(y, x, 1.0))?;
    graph.add_edge(host, launch)?;
    let empty = graph.empty(&[launch])?;
    graph.record(&[empty], start)?;
    graph.wait(&[empty], event)?;
    let mut outer = Graph::new(x.context())?;
    outer.child(&[], &graph)?;
    let mut exec = graph.instantiate()?;
    exec.upload(other)?;
    exec.launch(other)?;
    exec.set_args(launch, add, args(y, x, 2.0))?;
    exec.set_enabled(copy, false)?;
    exec.is_enabled(copy)?;
    exec.update(&graph)?;
    exec.launch(other)?;
    outer.instantiate()?.launch(other)?;
    let captured = capture(other, CaptureMode::Relaxed, |queue| {
        queue.launch(add, args(x, y, 1.0))?;
        queue.launch(add, args(y, x, 1.0))
    })?;
    captured.instantiate()?.launch(other)?;
    Ok(())
}

/// Nodes of every sort, changed, removed and copied.
fn whole_graphs(add: &Kernel<Add>, stream: &Stream) -> Result<(), Error> {
    let context = stream.context();
    let (x, y) = (
        Buffer::<f32>::zeroed(context, N)?,
        Buffer::<f32>::zeroed(context, N)?,
    );
    let word = Buffer::<u32>::zeroed(context, 1)?;
    let events = [Event::new(context)?, Event::new(context)?];
    let operations = || Ok::<_, Error>(vec![WordOperation::write(&word, 1)?]);
    let mut child = Graph::new(context)?;
    child.fill(&[], &x, 1.0)?;
    let mut graph = Graph::new(context)?;
    let fill = graph.fill(&[], &x, 1.0)?;
    let copy = graph.copy(&[fill], &x, &y)?;
    let first = graph.launch(&[copy], add, args(&x, &y, 1.0))?;
    let second = graph.launch(&[first], add, args(&x, &y, 1.0))?;
    let host = graph.host(&[second], || {})?;
    let inner = graph.child(&[host], &child)?;
    let record = graph.record(&[inner], &events[0])?;
    let wait = graph.wait(&[record], &events[1])?;
    let words = graph.words(&[wait], &operations()?)?;
    let empty = graph.empty(&[words])?;
    graph.remove_edge(words, empty)?;
    graph.remove_node(empty)?;
    graph.set_attribute(first, NodeAttribute::Priority(0))?;
    graph.attribute(first, NodeAttribute::Priority(0))?;
    graph.copy_attributes(first, second)?;
    let copied = graph.try_clone()?;
    let mut exec = graph.instantiate()?;
    exec.set(fill, Work::fill(&x, 2.0)?)?;
    exec.set(copy, Work::copy(&x, &y)?)?;
    exec.set(host, NodeWork::host(context, || {}))?;
    exec.set(inner, &child)?;
    exec.set(record, NodeWork::Record(events[1].clone()))?;
    exec.set(wait, NodeWork::Wait(events[0].clone()))?;
    exec.set(words, NodeWork::Words(operations()?))?;
    exec.launch(stream)?;
    let after = copied.copy_of(words)?;
    let longer = capture_into(
        copied,
        &[after],
        stream,
        CaptureMode::ThreadLocal,
        |queue| queue.fill(&y, 1.0),
    )?;
    longer.instantiate()?.launch(stream)?;

    let mut owning = Graph::new(context)?;
    let (alloc, scratch) = owning.alloc::<f32>(&[], N)?;
    let used = owning.fill(&[alloc], &scratch, 1.0)?;
    let freed = owning.free(&[used], &scratch)?;
    let condition = owning.condition(Some(1))?;
    owning.if_then(&[freed], condition, |then| {
        then.fill(&[], &y, 3.0).map(drop)
    })?;
    owning.instantiate()?.launch(stream)
}

/// Copies and fills of two dimensions.
fn boxes(stream: &Stream) -> Result<(), Error> {
    let context = stream.context();
    let (bytes, halves) = (
        Buffer::<u8>::zeroed(context, 6)?,
        Buffer::<u16>::zeroed(context, 6)?,
    );
    let (words, others) = (
        Buffer::<u32>::zeroed(context, 6)?,
        Buffer::<u32>::zeroed(context, 6)?,
    );
    stream.run(&Work::fill_box(Boxed::rows(&bytes, 3), [2, 2, 1], 1)?)?;
    stream.run(&Work::fill_box(Boxed::rows(&halves, 3), [2, 2, 1], 1)?)?;
    stream.run(&Work::fill_box(Boxed::rows(&words, 3), [2, 2, 1], 1)?)?;
    stream.run(&Work::copy_box(
        Boxed::rows(&words, 3),
        Boxed::rows(&others, 3),
        [2, 2, 1],
    )?)
}

/// Memory that is mapped, and windows of the cache on it.
fn mapped(stream: &Stream) -> Result<(), Error> {
    let context = stream.context();
    let mut buffer = GrowableBuffer::<f32>::reserve(context, 1 << 20)?;
    buffer.grow(N)?;

    // A second piece; Miri takes seconds for each.
    buffer.grow(if cfg!(miri) { 3 * N } else { 1 << 20 })?;
    let view = buffer.view();
    context.set_persisting_cache(1 << 20)?;
    context.persisting_cache()?;
    stream.set_access_window(Some(&AccessWindow::persisting(&view)))?;
    stream.access_window()?;
    stream.fill(&view.view_range(0..N), 1.0)?;
    let rows = Boxed::rows(&view, N);
    stream.copy_box_from_peer(rows, rows.at([0, 2, 0]), [N, 2, 1])?;
    context.reset_persisting_cache()?;
    drop(view);
    buffer.shrink(0)
}

/// A library, the shape of its kernel's launches, and a profile.
fn libraries(stream: &Stream) -> Result<(), Error> {
    const PTX: &str = ".version 7.0\n.target sm_70\n.address_size 64\n.visible .entry nothing(.param .u32 n) { ret; }";
    let context = stream.context();
    let library = warpwright_driver::module::Library::load(context.driver(), PTX)?;
    context.run(|| library.kernels())??;

    // SAFETY: the kernel touches nothing.
    let nothing = unsafe { library.function(context, "nothing", &[Parameter::value::<u32>("n")]) }?;
    nothing.suggested_block(0, 0)?;
    nothing.available_shared(1, 32)?;
    let word = Buffer::<u32>::zeroed(context, 1)?;
    let mut graph = Graph::new(context)?;
    graph.words(&[], &[WordOperation::write(&word, 1)?])?;
    graph.profile(stream).map(drop)
}

/// What is counted of one run.
#[derive(Default)]
struct Run {
    calls: BTreeMap<&'static str, usize>,
    /// The call to fail, at which of its calls, and how.
    fails: Option<(&'static str, usize, CUresult)>,
}

thread_local! {
    static RUN: RefCell<Run> = RefCell::default();
}

/// Counts a call, and says with what it is to fail.
fn enter(name: &'static str) -> Option<CUresult> {
    RUN.with_borrow_mut(|run| {
        let nth = run.calls.get(name).copied().unwrap_or(0) + 1;
        let fails = run
            .fails
            .filter(|fails| fails.0 == name && fails.1 == nth)
            .map(|fails| fails.2);

        // What was not created is not counted, so that the numbers are those of objects.
        let creates = [
            "cuStreamEndCapture",
            "cuGraphClone",
            "cuStreamBeginCaptureToGraph",
        ]
        .contains(&name)
            || PAIRS.iter().any(|(create, _)| *create == name);
        if fails.is_some() && creates {
            run.fails = None;
        } else {
            run.calls.insert(name, nth);
        }

        fails
    })
}

fn count(name: &str) -> usize {
    RUN.with_borrow(|run| run.calls.get(name).copied().unwrap_or(0))
}

/// Functions of the emulator that are counted. Those that create fail by not doing it; those that
/// give back or wait do it and fail: nothing is left by them, and work does not go on where the
/// code says that the device is lost.
macro_rules! counted {
    ($($f:ident($($a:ident: $t:ty),*) $how:ident;)*) => {
        fn counted() -> Api {
            let mut api = EMULATOR.clone();
            $(api.$f = {
                #[allow(non_snake_case)]
                unsafe extern "C" fn $f($($a: $t),*) -> CUresult {
                    let failed = enter(stringify!($f));
                    if let (Some(code), "creates") = (failed, stringify!($how)) {
                        return code;
                    }
                    let call: Option<unsafe extern "C" fn($($t),*) -> CUresult> = EMULATOR.$f.into();
                    // SAFETY: the caller keeps the contract of the call.
                    let code = unsafe { call.unwrap()($($a),*) };
                    failed.unwrap_or(code)
                }
                ($f as unsafe extern "C" fn($($t),*) -> CUresult).into()
            };)*
            api
        }
        const COUNTED: &[&str] = &[$(stringify!($f)),*];
    };
}

static EMULATOR: LazyLock<Api> = LazyLock::new(warpwright_cuda_emu::api);

counted! {
    cuMemAlloc_v2(a: *mut u64, b: usize) creates;
    cuMemFree_v2(a: u64) works;
    cuMemHostAlloc(a: *mut *mut c_void, b: usize, c: CUmemhostalloc_flags) creates;
    cuMemFreeHost(a: *mut c_void) works;
    cuStreamCreate(a: *mut CUstream, b: CUstream_flags) creates;
    cuStreamDestroy_v2(a: CUstream) works;
    cuEventCreate(a: *mut CUevent, b: CUevent_flags) creates;
    cuEventDestroy_v2(a: CUevent) works;
    cuModuleLoadDataEx(a: *mut CUmodule, b: *const c_void, c: u32, d: *mut CUjit_option, e: *mut *mut c_void) creates;
    cuModuleUnload(a: CUmodule) works;
    cuGraphCreate(a: *mut CUgraph, b: u32) creates;
    cuGraphDestroy(a: CUgraph) works;
    cuGraphInstantiateWithParams(a: *mut CUgraphExec, b: CUgraph, c: *mut CUDA_GRAPH_INSTANTIATE_PARAMS) creates;
    cuGraphExecDestroy(a: CUgraphExec) works;
    cuDevicePrimaryCtxRetain(a: *mut CUcontext, b: CUdevice) creates;
    cuDevicePrimaryCtxRelease_v2(a: CUdevice) works;
    cuStreamSynchronize(a: CUstream) works;
    cuStreamQuery(a: CUstream) works;
    cuEventSynchronize(a: CUevent) works;
    cuEventQuery(a: CUevent) works;
    cuStreamEndCapture(a: CUstream, b: *mut CUgraph) creates;
    cuGraphClone(a: *mut CUgraph, b: CUgraph) creates;
    cuMemCreate(a: *mut u64, b: usize, c: *const CUmemAllocationProp, d: u64) creates;
    cuMemRelease(a: u64) works;
    cuMemAddressReserve(a: *mut u64, b: usize, c: usize, d: u64, e: u64) creates;
    cuMemAddressFree(a: u64, b: usize) works;
    cuLibraryLoadData(a: *mut CUlibrary, b: *const c_void, c: *mut CUjit_option, d: *mut *mut c_void, e: u32, f: *mut CUlibraryOption, g: *mut *mut c_void, h: u32) creates;
    cuLibraryUnload(a: CUlibrary) works;
    cuStreamBeginCaptureToGraph(a: CUstream, b: CUgraph, c: *const CUgraphNode, d: *const CUgraphEdgeData, e: usize, f: CUstreamCaptureMode) creates;
}

/// Runs the program with one failure, and says what it returned.
fn run_with(call: &'static str, nth: usize, code: CUresult) -> Result<Vec<f32>, String> {
    warpwright_cuda_emu::configure(EmulatorConfig::default());
    RUN.set(Run::default());
    if COUNTED.contains(&call) {
        RUN.with_borrow_mut(|run| run.fails = Some((call, nth, code)));
    } else {
        let name = call.trim_end_matches("_v2");
        warpwright_cuda_emu::inject(
            if warpwright_cuda_emu::symbols().0.contains(&call) {
                call
            } else {
                name
            },
            nth as u64,
            code,
        );
    }

    // SAFETY: the functions are the emulator's, or fail.
    let library = unsafe { warpwright_driver::sys::Library::from_api(counted(), "emulator") };
    Driver::from_library(library)
        .map_err(|e| e.to_string())
        .and_then(|driver| program(driver).map_err(|e| e.to_string()))
}

/// Whether objects of each sort were given back as often as they were made. An event of a capture's
/// fork may be taken by the graph.
fn expect_balance(what: &str) {
    for (create, destroy) in PAIRS {
        let made = if create == "cuGraphCreate" {
            // A capture into a graph makes none; where its end fails, the graph is the driver's.
            count(create) + count("cuStreamEndCapture") + count("cuGraphClone")
                - count("cuStreamBeginCaptureToGraph")
        } else {
            count(create)
        };
        assert_eq!(made, count(destroy), "{what}: {create} against {destroy}");
    }
}

/// The functions that this crate calls.
fn used() -> Vec<&'static str> {
    let mut sources = String::new();
    let mut folders = vec![Path::new(env!("CARGO_MANIFEST_DIR")).join("src")];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path)
            } else {
                sources += &std::fs::read_to_string(path).unwrap()
            }
        }
    }

    let word = |c: char| !c.is_alphanumeric() && c != '_';
    let words: std::collections::BTreeSet<&str> = sources.split(word).collect();
    Api::NAMES
        .iter()
        .map(|f| f.name)
        .filter(|name| words.contains(name))
        .collect()
}

#[test]
fn each_failure_is_told_by_its_call_and_name_and_leaves_nothing() {
    // On the configured emulator: the lock of the other tests is held for all of the walk.
    emulator(|context| {
        drop(context);
        let (mut silent, wanted) = (
            Vec::new(),
            run_with("cuInit", 1000, CUresult::UNKNOWN).unwrap(),
        );
        let functions = used();
        assert!(functions.len() > 60, "{functions:?}");
        for call in functions {
            for (place, code) in CODES.map(CUresult).into_iter().enumerate() {
                if cfg!(miri) && place > 0 {
                    continue;
                }
                // Every call of the function for one code, the first for the others.
                let last = if place == 8 { 40 } else { 1 };
                for nth in 1..=last {
                    let what = format!("{call}, call {nth}, {code}");
                    let result = run_with(call, nth, code);
                    expect_balance(&what);
                    match result {
                        Err(text)
                            if code == CUresult::OUT_OF_MEMORY
                                && text.starts_with("out of memory") => {}
                        // There it means that the kernel has no such parameter.
                        Err(text)
                            if call == "cuFuncGetParamInfo" && code == CUresult::INVALID_VALUE =>
                        {
                            assert!(text.contains("absent in the module"), "{text}");
                        }
                        Err(text) => {
                            let told = text.contains(call) && text.contains(code.name().unwrap());
                            assert!(told, "{what}: {text}");
                        }
                        Ok(y) => {
                            assert_eq!(
                                y, wanted,
                                "{what}: the program went on, and its numbers are wrong"
                            );
                            // Memory that is missing may be there at the second try.
                            if nth == 1 && code != CUresult::OUT_OF_MEMORY {
                                silent.push(call);
                            }
                            if !SILENT.contains(&call) && !SOMETIMES.contains(&call) {
                                break;
                            }
                        }
                    }
                }
            }
        }

        silent.dedup();
        let unknown: Vec<_> = silent
            .iter()
            .filter(|call| !SILENT.contains(call) && !NOT_CALLED.contains(call))
            .collect();
        assert_eq!(
            unknown, [&""; 0],
            "no error, although the first call failed: let the program call it, or name it in NOT_CALLED"
        );
    });
}
