//! A driver whose device does nothing until it is told: work lies in its stream until somebody waits for it or
//! [`run`] lets it go. Each piece of work is checked when it runs, and each release when it is made: nothing may be
//! released that work still names, nothing twice, and nothing may be left at the end.
//!
//! State is per thread, so that tests do not meet.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::ffi::{CStr, c_char, c_int, c_uint, c_void};

use warpwright_driver::sys::*;
use warpwright_driver::{Access, Context, Driver, Function, Module, Parameter};

/// What the driver remembers.
#[derive(Default)]
pub struct Sim {
    /// How often each function was called.
    pub calls: HashMap<&'static str, usize>,
    /// Functions that fail: with which code, and how often still.
    pub fail: HashMap<&'static str, (CUresult, usize)>,
    /// Whether a question about a stream lets it do its work.
    pub asking_helps: bool,
    /// What went wrong on the device.
    pub faults: Vec<String>,
    current: Vec<CUcontext>,
    retained: BTreeMap<usize, usize>,
    last: usize,
    streams: BTreeMap<usize, Queue>,
    events: BTreeMap<usize, Option<Place>>,
    memory: BTreeSet<u64>,
    pinned: BTreeMap<u64, Vec<u64>>,
    modules: BTreeSet<usize>,
    functions: HashMap<usize, (usize, usize)>,
    graphs: BTreeMap<usize, Vec<Work>>,
    nodes: HashMap<usize, (usize, usize)>,
    execs: BTreeMap<usize, (usize, Vec<Work>)>,
}

/// So much of a stream's work.
type Place = (usize, u64);

#[derive(Default)]
struct Queue {
    work: VecDeque<Work>,
    done: u64,
    given: u64,
    capture: Option<Vec<Work>>,
}

/// A piece of work, and what it names.
#[derive(Clone)]
enum Work {
    Touch { module: Option<usize>, memory: Vec<u64> },
    Host(CUhostFn, usize),
    Graph(usize, Vec<Work>),
    Child(Vec<Work>),
    Wait(Place),
    Record(usize),
    Nothing,
}

thread_local! {
    static SIM: RefCell<Sim> = RefCell::default();
}

/// Looks at or changes this thread's driver.
pub fn sim<R>(f: impl FnOnce(&mut Sim) -> R) -> R {
    SIM.with_borrow_mut(f)
}

/// How often a function was called.
pub fn count(name: &str) -> usize {
    sim(|s| s.calls.get(name).copied().unwrap_or(0))
}

/// Lets the next `times` calls of a function fail.
pub fn fail(name: &'static str, code: CUresult, times: usize) {
    sim(|s| s.fail.insert(name, (code, times)));
}

/// Lets functions succeed again.
pub fn heal() {
    sim(|s| s.fail.clear());
}

/// Runs all work of all streams.
pub fn run() {
    let streams: Vec<(usize, u64)> = sim(|s| s.streams.iter().map(|(at, q)| (*at, q.given)).collect());
    streams.into_iter().for_each(|(stream, given)| run_to((stream, given)));
}

/// The driver of this thread, which has nothing and has done nothing.
pub fn driver() -> Driver {
    thread_local! {
        // SAFETY: each function does what its body says, which is what `cuda.h` says as far as this crate asks.
        static LIBRARY: &'static Library = unsafe { Library::of(api(), "sim") };
    }
    Driver::of(LIBRARY.with(|l| *l)).unwrap()
}

/// A context of a driver that starts over.
pub fn fresh() -> Context {
    sim(|s| *s = Sim::default());
    Context::new(&driver().device(0).unwrap()).unwrap()
}

/// A kernel of `count` buffers, each read and written.
pub fn kernel(context: &Context, count: usize) -> Function {
    let module = Module::load(context, "").unwrap();
    let params: Vec<_> =
        ["a", "b", "c"][..count].iter().map(|n| Parameter::buffer::<u8>(n, Access::ReadWrite)).collect();
    // SAFETY: the kernel takes what its name says.
    unsafe { module.function(&format!("k{count}"), &params) }.unwrap()
}

/// Nothing went wrong, and everything was given back: once.
pub fn expect_clean(what: &str) {
    sim(|s| {
        assert_eq!(s.faults, [""; 0], "{what}");
        let left = [
            ("streams", s.streams.len()),
            ("events", s.events.len()),
            ("memory", s.memory.len()),
            ("pinned", s.pinned.len()),
            ("modules", s.modules.len()),
            ("graphs", s.graphs.len()),
            ("execs", s.execs.len()),
            ("contexts", s.retained.values().sum()),
        ];
        assert_eq!(left.map(|(what, n)| (what, n > 0)), left.map(|(what, _)| (what, false)), "{what}: left");
    });
}

/// How many objects live: events, memory of both sorts, modules, graphs, execs.
pub fn live() -> [usize; 6] {
    sim(|s| [s.events.len(), s.memory.len(), s.pinned.len(), s.modules.len(), s.graphs.len(), s.execs.len()])
}

fn run_to((stream, place): Place) {
    loop {
        let next = sim(|s| {
            let queue = s.streams.get_mut(&stream)?;
            if queue.done >= place { None } else { queue.work.pop_front() }
        });
        let Some(work) = next else { return };
        perform(&work);
        sim(|s| s.streams.get_mut(&stream).unwrap().done += 1);
    }
}

fn perform(work: &Work) {
    match work {
        Work::Host(function, data) => {
            // SAFETY: what the graph was given.
            unsafe { function.unwrap()(std::ptr::with_exposed_provenance_mut(*data)) }
        }
        Work::Graph(exec, parts) => {
            sim(|s| {
                if !s.execs.contains_key(exec) {
                    s.faults.push("a graph ran that was destroyed".into());
                }
            });
            parts.iter().for_each(perform);
        }
        Work::Child(parts) => parts.iter().for_each(perform),
        Work::Wait(place) => run_to(*place),
        Work::Record(event) => sim(|s| {
            if !s.events.contains_key(event) {
                s.faults.push("a graph recorded an event that was destroyed".into());
            }
        }),
        Work::Touch { module, memory } => sim(|s| {
            if module.is_some_and(|m| !s.modules.contains(&m)) {
                s.faults.push("a kernel ran that was unloaded".into());
            }
            let gone = memory.iter().filter(|a| !s.memory.contains(a) && !s.pinned.contains_key(a)).count();
            if gone > 0 {
                s.faults.push(format!("work ran on {gone} released allocations"));
            }
        }),
        Work::Nothing => {}
    }
}

impl Work {
    fn names(&self, what: &Named) -> bool {
        match (self, what) {
            (Self::Touch { memory, .. }, Named::Memory(address)) => memory.contains(address),
            (Self::Touch { module, .. }, Named::Module(m)) => *module == Some(*m),
            (Self::Graph(exec, _), Named::Exec(e)) if exec == e => true,
            (Self::Graph(_, parts) | Self::Child(parts), _) => parts.iter().any(|p| p.names(what)),
            _ => false,
        }
    }
}

/// What is released.
enum Named {
    Memory(u64),
    Module(usize),
    Exec(usize),
}

impl Sim {
    fn handle(&mut self) -> usize {
        self.last += 256;
        self.last
    }

    /// Notes a fault if work that was not done names it.
    fn expect_unused(&mut self, what: &Named) {
        if self.streams.values().flat_map(|q| &q.work).any(|w| w.names(what)) {
            let kind = match what {
                Named::Memory(_) => "memory",
                Named::Module(_) => "a module",
                Named::Exec(_) => "a graph",
            };
            self.faults.push(format!("{kind} was released under work"));
        }
    }

    fn expect(&mut self, there: bool, what: &str) {
        if !there {
            self.faults.push(format!("{what}: not there, or released before"));
        }
    }

    fn give(&mut self, stream: CUstream, work: Work) {
        let Some(queue) = self.streams.get_mut(&(stream.0 as usize)) else {
            self.faults.push("work for a stream that is not there".into());
            return;
        };
        match &mut queue.capture {
            Some(captured) => captured.push(work),
            None => {
                queue.work.push_back(work);
                queue.given += 1;
            }
        }
    }

    fn is_done(&self, (stream, place): Place) -> bool {
        self.streams.get(&stream).is_none_or(|q| q.done >= place)
    }

    fn add_node(&mut self, graph: CUgraph, work: Work) -> CUgraphNode {
        let node = self.handle();
        let nodes = self.graphs.get_mut(&(graph.0 as usize)).expect("a graph");
        self.nodes.insert(node, (graph.0 as usize, nodes.len()));
        nodes.push(work);
        CUgraphNode(raw(node))
    }

    /// The work of a launch whose parameters are addresses.
    fn touch(&self, function: CUfunction, params: *mut *mut c_void) -> Work {
        let (module, count) = self.functions[&(function.0 as usize)];
        // SAFETY: the crate passes a pointer to each argument, all of them addresses.
        let memory = (0..count).map(|i| unsafe { *(*params.add(i)).cast::<u64>() } & !0xff).collect();
        Work::Touch { module: Some(module), memory }
    }
}

fn raw(handle: usize) -> *mut c_void {
    std::ptr::without_provenance_mut(handle)
}

/// The memory that an address is in: views begin within theirs.
fn on(memory: u64) -> Work {
    Work::Touch { module: None, memory: vec![memory & !0xff] }
}

/// `name(argument: type, ..) { what it does when it does not fail }`
macro_rules! functions {
    ($($name:ident($($arg:ident: $ty:ty),*) $body:block)*) => {
        /// The table.
        pub fn api() -> Api {
            let mut api = Api::empty();
            $(api.$name = {
                #[allow(non_snake_case, unused_variables)]
                unsafe extern "C" fn $name($($arg: $ty),*) -> CUresult {
                    let failed = sim(|s| {
                        *s.calls.entry(stringify!($name)).or_default() += 1;
                        let (code, times) = s.fail.get_mut(stringify!($name)).filter(|f| f.1 > 0)?;
                        *times -= 1;
                        Some(*code)
                    });
                    if let Some(code) = failed {
                        return code;
                    }
                    // SAFETY: the crate passes pointers to places of these types.
                    #[allow(unused_unsafe)]
                    unsafe { $body }
                    #[allow(unreachable_code)]
                    CUresult::SUCCESS
                }
                ($name as unsafe extern "C" fn($($ty),*) -> CUresult).into()
            };)*
            api
        }
    };
}

functions! {
    cuInit(flags: c_uint) {}
    cuDriverGetVersion(version: *mut c_int) { *version = 12040 }
    cuDeviceGet(device: *mut CUdevice, ordinal: c_int) { *device = ordinal }
    cuDeviceGetCount(count: *mut c_int) { *count = 2 }
    cuDeviceGetName(name: *mut c_char, len: c_int, device: CUdevice) { name.copy_from(c"Sim".as_ptr(), 4) }
    cuDeviceTotalMem_v2(bytes: *mut usize, device: CUdevice) { *bytes = 1 << 30 }
    cuDeviceGetAttribute(value: *mut c_int, attribute: CUdevice_attribute, device: CUdevice) {
        *value = match attribute {
            CUdevice_attribute::COMPUTE_CAPABILITY_MAJOR => 8,
            CUdevice_attribute::COMPUTE_CAPABILITY_MINOR => 0,
            CUdevice_attribute::MAX_SHARED_MEMORY_PER_BLOCK_OPTIN => 163 << 10,
            _ => 1024,
        }
    }
    cuDevicePrimaryCtxRetain(context: *mut CUcontext, device: CUdevice) {
        sim(|s| *s.retained.entry(device as usize).or_default() += 1);
        *context = CUcontext(raw(0xc000 + device as usize));
    }
    cuDevicePrimaryCtxRelease_v2(device: CUdevice) {
        sim(|s| {
            let there = s.retained.get_mut(&(device as usize)).filter(|n| **n > 0).map(|n| *n -= 1).is_some();
            s.expect(there, "the context");
        })
    }
    cuCtxGetCurrent(context: *mut CUcontext) { *context = sim(|s| s.current.last().copied()).unwrap_or(CUcontext::NULL) }
    cuCtxPushCurrent_v2(context: CUcontext) { sim(|s| s.current.push(context)) }
    cuCtxPopCurrent_v2(context: *mut CUcontext) { *context = sim(|s| s.current.pop()).unwrap() }
    cuModuleLoadDataEx(module: *mut CUmodule, image: *const c_void, count: c_uint, options: *mut CUjit_option, values: *mut *mut c_void) {
        *module = CUmodule(raw(sim(|s| { let h = s.handle(); s.modules.insert(h); h })))
    }
    cuModuleUnload(module: CUmodule) {
        sim(|s| {
            s.expect_unused(&Named::Module(module.0 as usize));
            let there = s.modules.remove(&(module.0 as usize));
            s.expect(there, "a module");
        })
    }
    cuModuleGetFunction(function: *mut CUfunction, module: CUmodule, name: *const c_char) {
        let count = usize::from(CStr::from_ptr(name).to_bytes()[1] - b'0');
        *function = CUfunction(raw(sim(|s| { let h = s.handle(); s.functions.insert(h, (module.0 as usize, count)); h })))
    }
    cuFuncGetAttribute(value: *mut c_int, attribute: CUfunction_attribute, function: CUfunction) {
        *value = match attribute {
            CUfunction_attribute::MAX_THREADS_PER_BLOCK => 256,
            CUfunction_attribute::MAX_DYNAMIC_SHARED_SIZE_BYTES => 48 << 10,
            _ => 0,
        }
    }
    cuFuncSetAttribute(function: CUfunction, attribute: CUfunction_attribute, value: c_int) {}
    cuMemAlloc_v2(address: *mut CUdeviceptr, bytes: usize) {
        *address = sim(|s| { s.last += bytes.next_multiple_of(256); let h = s.handle() as u64; s.memory.insert(h); h })
    }
    cuMemFree_v2(address: CUdeviceptr) {
        sim(|s| {
            s.expect_unused(&Named::Memory(address));
            let there = s.memory.remove(&address);
            s.expect(there, "memory");
        })
    }
    cuMemGetInfo_v2(free: *mut usize, total: *mut usize) { (*free, *total) = (1 << 29, 1 << 30) }
    cuMemHostAlloc(pointer: *mut *mut c_void, bytes: usize, flags: CUmemhostalloc_flags) {
        // Memory of whole pages, as the driver gives: at least that its address ends in zeros.
        let mut block = vec![0u64; bytes / 8 + 64];
        let at = (block.as_mut_ptr() as usize).next_multiple_of(256);
        *pointer = block.as_mut_ptr().byte_add(at - block.as_ptr() as usize).cast();
        sim(|s| s.pinned.insert(at as u64, block));
    }
    cuMemFreeHost(pointer: *mut c_void) {
        sim(|s| {
            s.expect_unused(&Named::Memory(pointer as u64));
            let there = s.pinned.remove(&(pointer as u64)).is_some();
            s.expect(there, "pinned memory");
        })
    }
    cuMemHostGetDevicePointer_v2(address: *mut CUdeviceptr, pointer: *mut c_void, flags: c_uint) { *address = pointer as u64 }
    cuMemcpyHtoDAsync_v2(to: CUdeviceptr, from: *const c_void, bytes: usize, stream: CUstream) { sim(|s| s.give(stream, on(to))) }
    cuMemcpyDtoHAsync_v2(to: *mut c_void, from: CUdeviceptr, bytes: usize, stream: CUstream) { sim(|s| s.give(stream, on(from))) }
    cuMemcpyDtoDAsync_v2(to: CUdeviceptr, from: CUdeviceptr, bytes: usize, stream: CUstream) {
        sim(|s| s.give(stream, Work::Touch { module: None, memory: vec![to & !0xff, from & !0xff] }))
    }
    cuMemsetD8Async(to: CUdeviceptr, value: u8, count: usize, stream: CUstream) { sim(|s| s.give(stream, on(to))) }
    cuStreamCreate(stream: *mut CUstream, flags: CUstream_flags) {
        *stream = CUstream(raw(sim(|s| { let h = s.handle(); s.streams.insert(h, Queue::default()); h })))
    }
    cuStreamDestroy_v2(stream: CUstream) {
        sim(|s| {
            let queue = s.streams.remove(&(stream.0 as usize));
            s.expect(queue.as_ref().is_some_and(|q| q.work.iter().all(|w| matches!(w, Work::Wait(_)))), "a stream without work");
        })
    }
    cuStreamSynchronize(stream: CUstream) {
        if sim(|s| s.streams[&(stream.0 as usize)].capture.is_some()) { return CUresult::STREAM_CAPTURE_UNSUPPORTED }
        let given = sim(|s| s.streams[&(stream.0 as usize)].given);
        run_to((stream.0 as usize, given));
    }
    cuStreamQuery(stream: CUstream) {
        if sim(|s| s.asking_helps) { run_to((stream.0 as usize, u64::MAX)) }
        if !sim(|s| s.streams[&(stream.0 as usize)].work.is_empty()) { return CUresult::NOT_READY }
    }
    cuStreamWaitEvent(stream: CUstream, event: CUevent, flags: c_uint) {
        sim(|s| {
            let place = s.events.get(&(event.0 as usize)).copied();
            s.expect(place.is_some(), "an event");
            if let Some(Some(place)) = place { s.give(stream, Work::Wait(place)) }
        })
    }
    cuEventCreate(event: *mut CUevent, flags: CUevent_flags) {
        *event = CUevent(raw(sim(|s| { let h = s.handle(); s.events.insert(h, None); h })))
    }
    cuEventDestroy_v2(event: CUevent) {
        sim(|s| { let there = s.events.remove(&(event.0 as usize)).is_some(); s.expect(there, "an event") })
    }
    cuEventRecord(event: CUevent, stream: CUstream) {
        sim(|s| {
            let stream = stream.0 as usize;
            let place = (stream, s.streams[&stream].given);
            let there = s.events.insert(event.0 as usize, Some(place)).is_some();
            s.expect(there, "an event");
        })
    }
    cuEventSynchronize(event: CUevent) {
        if let Some(place) = sim(|s| s.events[&(event.0 as usize)]) { run_to(place) }
    }
    cuEventQuery(event: CUevent) {
        let done = sim(|s| s.events[&(event.0 as usize)].is_none_or(|place| s.is_done(place)));
        if !done { return CUresult::NOT_READY }
    }
    cuLaunchKernel(f: CUfunction, x: c_uint, y: c_uint, z: c_uint, a: c_uint, b: c_uint, c: c_uint, shared: c_uint, stream: CUstream, params: *mut *mut c_void, extra: *mut *mut c_void) {
        sim(|s| { let work = s.touch(f, params); s.give(stream, work) })
    }
    cuGraphCreate(graph: *mut CUgraph, flags: c_uint) {
        *graph = CUgraph(raw(sim(|s| { let h = s.handle(); s.graphs.insert(h, Vec::new()); h })))
    }
    cuGraphDestroy(graph: CUgraph) {
        sim(|s| { let there = s.graphs.remove(&(graph.0 as usize)).is_some(); s.expect(there, "a graph") })
    }
    cuGraphAddKernelNode_v2(node: *mut CUgraphNode, graph: CUgraph, after: *const CUgraphNode, count: usize, params: *const CUDA_KERNEL_NODE_PARAMS_v2) {
        *node = sim(|s| { let work = s.touch((*params).func, (*params).kernelParams); s.add_node(graph, work) })
    }
    cuGraphAddMemcpyNode(node: *mut CUgraphNode, graph: CUgraph, after: *const CUgraphNode, count: usize, params: *const CUDA_MEMCPY3D_v2, context: CUcontext) {
        let ends = [((*params).srcDevice, (*params).srcHost as u64), ((*params).dstDevice, (*params).dstHost as u64)];
        let memory = ends.iter().map(|(device, host)| device.max(host) & !0xff).collect();
        *node = sim(|s| s.add_node(graph, Work::Touch { module: None, memory }))
    }
    cuGraphAddMemsetNode(node: *mut CUgraphNode, graph: CUgraph, after: *const CUgraphNode, count: usize, params: *const CUDA_MEMSET_NODE_PARAMS_v1, context: CUcontext) {
        *node = sim(|s| s.add_node(graph, on((*params).dst)))
    }
    cuGraphAddEmptyNode(node: *mut CUgraphNode, graph: CUgraph, after: *const CUgraphNode, count: usize) { *node = sim(|s| s.add_node(graph, Work::Nothing)) }
    cuGraphAddHostNode(node: *mut CUgraphNode, graph: CUgraph, after: *const CUgraphNode, count: usize, params: *const CUDA_HOST_NODE_PARAMS_v1) {
        *node = sim(|s| s.add_node(graph, Work::Host((*params).r#fn, (*params).userData.expose_provenance())))
    }
    cuGraphAddChildGraphNode(node: *mut CUgraphNode, graph: CUgraph, after: *const CUgraphNode, count: usize, child: CUgraph) {
        *node = sim(|s| { let work = Work::Child(s.graphs[&(child.0 as usize)].clone()); s.add_node(graph, work) })
    }
    cuGraphAddEventRecordNode(node: *mut CUgraphNode, graph: CUgraph, after: *const CUgraphNode, count: usize, event: CUevent) { *node = sim(|s| s.add_node(graph, Work::Record(event.0 as usize))) }
    cuGraphAddEventWaitNode(node: *mut CUgraphNode, graph: CUgraph, after: *const CUgraphNode, count: usize, event: CUevent) { *node = sim(|s| s.add_node(graph, Work::Nothing)) }
    cuGraphAddDependencies(graph: CUgraph, from: *const CUgraphNode, to: *const CUgraphNode, count: usize) {}
    cuGraphInstantiateWithFlags(exec: *mut CUgraphExec, graph: CUgraph, flags: CUgraphInstantiate_flags) {
        *exec = CUgraphExec(raw(sim(|s| {
            let (h, work) = (s.handle(), s.graphs[&(graph.0 as usize)].clone());
            s.execs.insert(h, (graph.0 as usize, work));
            h
        })))
    }
    cuGraphExecDestroy(exec: CUgraphExec) {
        sim(|s| {
            s.expect_unused(&Named::Exec(exec.0 as usize));
            let there = s.execs.remove(&(exec.0 as usize)).is_some();
            s.expect(there, "an exec");
        })
    }
    cuGraphLaunch(exec: CUgraphExec, stream: CUstream) {
        sim(|s| {
            let parts = s.execs[&(exec.0 as usize)].1.clone();
            let captures = s.streams[&(stream.0 as usize)].capture.is_some();
            let records: Vec<usize> =
                parts.iter().filter_map(|p| if let Work::Record(event) = p { Some(*event) } else { None }).collect();
            s.give(stream, if captures { Work::Child(parts) } else { Work::Graph(exec.0 as usize, parts) });
            let place = (stream.0 as usize, s.streams[&(stream.0 as usize)].given);
            records.into_iter().for_each(|event| _ = s.events.insert(event, Some(place)));
        })
    }
    cuGraphUpload(exec: CUgraphExec, stream: CUstream) { sim(|s| s.give(stream, Work::Nothing)) }
    cuGraphExecKernelNodeSetParams_v2(exec: CUgraphExec, node: CUgraphNode, params: *const CUDA_KERNEL_NODE_PARAMS_v2) {
        sim(|s| {
            let work = s.touch((*params).func, (*params).kernelParams);
            let (_, at) = s.nodes[&(node.0 as usize)];
            s.execs.get_mut(&(exec.0 as usize)).unwrap().1[at] = work;
        })
    }
    cuStreamBeginCapture_v2(stream: CUstream, mode: CUstreamCaptureMode) {
        sim(|s| s.streams.get_mut(&(stream.0 as usize)).unwrap().capture = Some(Vec::new()))
    }
    cuStreamEndCapture(stream: CUstream, graph: *mut CUgraph) {
        *graph = CUgraph(raw(sim(|s| {
            let work = s.streams.get_mut(&(stream.0 as usize)).unwrap().capture.take().unwrap_or_default();
            let h = s.handle();
            s.graphs.insert(h, Vec::new());
            work.into_iter().for_each(|w| _ = s.add_node(CUgraph(raw(h)), w));
            h
        })))
    }
    cuStreamIsCapturing(stream: CUstream, status: *mut CUstreamCaptureStatus) {
        let captures = sim(|s| s.streams[&(stream.0 as usize)].capture.is_some());
        *status = if captures { CUstreamCaptureStatus::ACTIVE } else { CUstreamCaptureStatus::NONE };
    }
    cuStreamGetCaptureInfo_v2(stream: CUstream, status: *mut CUstreamCaptureStatus, id: *mut u64, graph: *mut CUgraph, after: *mut *const CUgraphNode, count: *mut usize) { *count = 0 }
    cuGraphGetNodes(graph: CUgraph, nodes: *mut CUgraphNode, count: *mut usize) { *count = 0 }
    cuGraphGetEdges(graph: CUgraph, from: *mut CUgraphNode, to: *mut CUgraphNode, count: *mut usize) { *count = 0 }
}
