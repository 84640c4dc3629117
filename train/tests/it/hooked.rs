//! A driver between the library and the real one: it hands other kernels to the real one than it was given, changes
//! arguments of launches, and keeps the names of what is launched.
//!
//! The library reaches every driver through a table of functions, so this needs nothing of it: neither the step nor the
//! crate that loads its kernels has a switch for tests. Four functions of the table are replaced, of which each calls the
//! one that it stands for. It works over the emulator and over a GPU.
//!
//! What is changed is of one thread: that which has [`planted`](plant) it.

#![allow(unsafe_code)] // The functions of a driver are C's.

use std::cell::RefCell;
use std::collections::HashMap;
use std::ffi::{CStr, CString, c_char, c_uint, c_void};
use std::sync::OnceLock;

use ptx_gen::{AnyKernel, Target, print_with_lines};
use warpwright_driver::sys::{
    Api, CUDA_KERNEL_NODE_PARAMS_v2, CUfunction, CUgraph, CUgraphNode, CUjit_option, CUmodule,
    CUresult, CUstream, Library,
};
use warpwright_driver::{Context, Driver};

/// What a thread changes.
#[derive(Default)]
pub(crate) struct Changes {
    /// Kernels, which replace those of their names.
    pub(crate) kernels: Vec<Box<dyn AnyKernel>>,
    /// A change of an argument.
    pub(crate) argument: Option<Argument>,
}

/// A number that is added to an argument of 32 bits, in launches of a kernel between two others.
#[derive(Clone, Copy)]
pub(crate) struct Argument {
    /// How the kernel's name begins.
    pub(crate) kernel: &'static str,
    /// How many arguments it has.
    pub(crate) count: usize,
    /// Which of them.
    pub(crate) index: usize,
    /// The number.
    pub(crate) add: u32,
    /// How the name of the kernel begins that opens the stretch, and of the one that ends it.
    pub(crate) between: [&'static str; 2],
}

/// What a thread has planted, and what it saw.
#[derive(Default)]
struct State {
    texts: Vec<(String, CString)>,
    /// Whether kernels are loaded without what they do.
    hollow: bool,
    /// Names of kernels that were replaced.
    replaced: Vec<String>,
    argument: Option<Argument>,
    /// Launches whose argument was changed.
    changed: usize,
    /// Whether the stretch of the argument is open.
    open: bool,
    names: HashMap<CUfunction, String>,
    launched: Vec<String>,
}

thread_local! {
    static STATE: RefCell<State> = RefCell::default();
}

/// The functions that are called in the end.
static REAL: OnceLock<&'static Api> = OnceLock::new();

fn real() -> &'static Api {
    REAL.get()
        .expect("only a hooked driver has these functions")
}

/// A driver that calls this one. A process has one of them.
pub(crate) fn driver(real: &Driver) -> Driver {
    static HOOKED: OnceLock<&'static Library> = OnceLock::new();
    let hooked = HOOKED.get_or_init(|| {
        let known = REAL.get_or_init(|| real.api());
        let mut api = Api::clone(known);
        api.cuModuleLoadDataEx = load;
        api.cuModuleGetFunction = function;
        api.cuGraphAddKernelNode_v2 = api.cuGraphAddKernelNode_v2.map(|_| add_kernel as _);
        api.cuLaunchKernel = launch;
        // SAFETY: each of the four functions does what the one does that it calls, with arguments that are as good.
        unsafe { Library::from_api(api, "hooked") }
    });
    assert!(
        std::ptr::eq(self::real(), real.api()),
        "a process has one hooked driver"
    );
    Driver::from_library(hooked).expect("the real driver has started")
}

/// Lets this thread's modules have these kernels, and its launches these arguments, in place of what it had before.
///
/// The kernels have the arguments and the launch contracts of those that they replace, stay within their buffers and have
/// no races, and the kernel of an argument has as many as it says: nothing checks it.
pub(crate) fn plant(context: &Context, changes: &Changes) {
    let (major, minor) = context.device().compute_capability();
    let target = Target::for_device(major, minor).expect("the library runs on the device");
    let text = |kernel: &dyn AnyKernel| {
        let program = kernel
            .build()
            .unwrap_or_else(|e| panic!("{}: {e}", kernel.name()));
        let text = print_with_lines(&program, target).expect("it is printed as the real one is");
        (kernel.name(), CString::new(text).expect("PTX has no NUL"))
    };
    let texts = changes
        .kernels
        .iter()
        .map(|kernel| text(&**kernel))
        .collect();
    STATE.set(State {
        texts,
        argument: changes.argument,
        ..State::default()
    });
}

/// Lets this thread's modules have kernels that do nothing, which load in no time: for graphs that are made and not launched.
pub(crate) fn hollow() {
    STATE.set(State {
        hollow: true,
        ..State::default()
    });
}

/// A module whose kernel returns at once.
fn without_body(text: &str) -> Option<CString> {
    let begin = text.find(".entry ")?;
    let body = begin + text[begin..].find('{')?;
    CString::new(format!("{}{{\n    ret;\n}}\n", &text[..body])).ok()
}

/// What became of what was planted.
pub(crate) struct Seen {
    /// The kernels that were loaded.
    pub(crate) loaded: Vec<String>,
    /// The kernels that were launched, or became nodes of graphs, in their order.
    pub(crate) launched: Vec<String>,
    /// Whether every kernel that was planted was loaded, and its argument changed somewhere.
    pub(crate) planted: bool,
}

/// Ends what [`plant`] began.
pub(crate) fn seen() -> Seen {
    let state = STATE.take();
    let loaded = state
        .texts
        .iter()
        .all(|(name, _)| state.replaced.contains(name));
    let planted = loaded && (state.argument.is_none() || state.changed > 0);
    Seen {
        loaded: state.names.into_values().collect(),
        launched: state.launched,
        planted,
    }
}

/// The name of the kernel of a module: each has one.
fn entry(text: &str) -> Option<&str> {
    let after = text.split_once(".entry ")?.1;
    Some(after.split(['(', '\n']).next()?.trim())
}

unsafe extern "C" fn load(
    module: *mut CUmodule,
    image: *const c_void,
    count: c_uint,
    options: *mut CUjit_option,
    values: *mut *mut c_void,
) -> CUresult {
    // SAFETY: images of this workspace are text that ends with NUL.
    let given = unsafe { CStr::from_ptr(image.cast()) }
        .to_str()
        .unwrap_or_default();
    let name = entry(given).unwrap_or_default();
    let other = STATE.with_borrow_mut(|state| {
        if state.hollow {
            return without_body(given);
        }
        let (name, text) = state.texts.iter().find(|(other, _)| other == name)?.clone();
        state.replaced.push(name);
        Some(text)
    });
    let image = other.as_ref().map_or(image, |text| text.as_ptr().cast());

    // SAFETY: the caller's arguments, and an image that lives until the call returns.
    unsafe { (real().cuModuleLoadDataEx)(module, image, count, options, values) }
}

unsafe extern "C" fn function(
    function: *mut CUfunction,
    module: CUmodule,
    name: *const c_char,
) -> CUresult {
    // SAFETY: the caller's arguments.
    let result = unsafe { (real().cuModuleGetFunction)(function, module, name) };
    if result == CUresult::SUCCESS {
        // SAFETY: the call wrote the handle, and the name ends with NUL.
        let (function, name) = unsafe { (*function, CStr::from_ptr(name)) };
        STATE.with_borrow_mut(|state| {
            state
                .names
                .insert(function, name.to_string_lossy().into_owned())
        });
    }
    result
}

unsafe extern "C" fn add_kernel(
    node: *mut CUgraphNode,
    graph: CUgraph,
    after: *const CUgraphNode,
    count: usize,
    params: *const CUDA_KERNEL_NODE_PARAMS_v2,
) -> CUresult {
    let add = real()
        .cuGraphAddKernelNode_v2
        .expect("it was hooked where there is one");
    // SAFETY: the caller's arguments.
    let mut copy = unsafe { *params };
    let changed = Changed::of(copy.func, copy.kernelParams);
    copy.kernelParams = changed.params(copy.kernelParams);
    // SAFETY: the caller's arguments, of which one may be in another place, which lives until the call returns.
    unsafe { add(node, graph, after, count, &copy) }
}

unsafe extern "C" fn launch(
    function: CUfunction,
    grid_x: c_uint,
    grid_y: c_uint,
    grid_z: c_uint,
    block_x: c_uint,
    block_y: c_uint,
    block_z: c_uint,
    shared: c_uint,
    stream: CUstream,
    params: *mut *mut c_void,
    extra: *mut *mut c_void,
) -> CUresult {
    let changed = Changed::of(function, params);
    let (params, launch) = (changed.params(params), real().cuLaunchKernel);
    // SAFETY: as for a node of a graph.
    unsafe {
        launch(
            function, grid_x, grid_y, grid_z, block_x, block_y, block_z, shared, stream, params,
            extra,
        )
    }
}

/// The arguments of a launch, if one is changed, and that one.
struct Changed(Option<(Vec<*mut c_void>, Vec<u32>)>);

impl Changed {
    /// Keeps the name of the launch. `params` are the arguments of the function.
    fn of(function: CUfunction, params: *mut *mut c_void) -> Changed {
        let argument = STATE.with_borrow_mut(|state| state.launch(function));
        Changed(argument.map(
            |Argument {
                 count, index, add, ..
             }| {
                // SAFETY: the kernel has this many, as who planted the change says.
                let mut list = unsafe { std::slice::from_raw_parts(params, count) }.to_vec();
                // SAFETY: the argument has 32 bits.
                let mut word = vec![unsafe { *list[index].cast::<u32>() }.wrapping_add(add)];
                list[index] = word.as_mut_ptr().cast();
                (list, word)
            },
        ))
    }

    /// Them, or those that are given.
    fn params(&self, given: *mut *mut c_void) -> *mut *mut c_void {
        self.0
            .as_ref()
            .map_or(given, |(list, _)| list.as_ptr().cast_mut())
    }
}

impl State {
    /// Keeps the name of a launch, and gives the change of its argument if it has one.
    fn launch(&mut self, function: CUfunction) -> Option<Argument> {
        let name = self.names.get(&function).cloned().unwrap_or_default();
        self.launched.push(name);
        let (name, argument) = (self.launched.last()?, self.argument?);
        let [opens, ends] = argument.between.map(|begins| name.starts_with(begins));
        self.open = (self.open || opens) && !ends;
        let here = self.open && name.starts_with(argument.kernel);
        self.changed += usize::from(here);
        here.then_some(argument)
    }
}
