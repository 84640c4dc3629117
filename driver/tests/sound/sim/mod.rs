//! A driver whose device does nothing until it is told: work lies in its stream until somebody
//! waits for it or [`run`] lets it go. Each piece of work is checked when it runs, and each release
//! when it is made: nothing may be released that work still names, nothing twice, and nothing may
//! be left at the end.
//!
//! State is per thread, so that tests do not meet; the threads of one test can [`share`] it.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::ffi::c_void;
use std::sync::{Arc, Mutex, PoisonError};

use warpwright_driver::module::{Function, Module, Parameter};
use warpwright_driver::ordering::Access;
use warpwright_driver::sys::*;
use warpwright_driver::{Context, Driver};

mod table;

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
    /// Whether work on one piece of memory has to run in the order in which it was given, whatever
    /// the streams.
    pub in_order: bool,
    /// What happened so far, where that is watched.
    pub history: Vec<String>,
    uses: BTreeMap<u64, Uses>,
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

/// What work did to memory: how often it was given and has run, reads and writes.
#[derive(Clone, Copy, Default)]
struct Uses {
    given: [u64; 2],
    ran: [u64; 2],
}

/// A use of memory: whether it writes, and the reads and writes given before it.
type Ticket = (u64, bool, [u64; 2]);

struct Queue {
    work: VecDeque<(Work, Vec<Ticket>)>,
    done: u64,
    given: u64,
    /// The graph that a capture makes, and its last node.
    capture: Option<usize>,
    last_node: Box<CUgraphNode>,
    /// Whether it was destroyed, and goes when the work is done.
    destroyed: bool,
}

impl Default for Queue {
    fn default() -> Self {
        let (work, last_node) = (VecDeque::new(), Box::new(CUgraphNode::NULL));
        Self {
            work,
            done: 0,
            given: 0,
            capture: None,
            last_node,
            destroyed: false,
        }
    }
}

/// A piece of work, and what it names.
#[derive(Clone, Debug)]
enum Work {
    /// Memory that it writes, and memory that it reads.
    Touch {
        module: Option<usize>,
        memory: Vec<u64>,
        read: Vec<u64>,
    },
    Free(u64),
    Host(CUhostFn, usize),
    Graph(usize, Vec<Work>),
    Child(Vec<Work>),
    Wait(Place),
    Record(usize),
    Nothing,
}

/// What happens at each call, and in a wait for a place of a stream.
#[derive(Clone, Copy)]
pub struct Hooks {
    pub call: fn(&'static str),
    pub wait: fn((usize, u64)),
}

/// Where one thread does everything.
pub const ALONE: Hooks = Hooks {
    call: |_| (),
    wait: run_to,
};

thread_local! {
    static SIM: RefCell<Arc<Mutex<Sim>>> = RefCell::default();
    static CURRENT: RefCell<Vec<CUcontext>> = RefCell::default();
    static CAPTURED: Cell<usize> = const { Cell::new(0) };
    static HOOKS: Cell<Hooks> = const { Cell::new(ALONE) };
}

/// How much work was in the capture that this thread ended last.
pub fn captured() -> usize {
    CAPTURED.get()
}

/// Looks at or changes this thread's driver.
pub fn sim<R>(f: impl FnOnce(&mut Sim) -> R) -> R {
    let sim = share();
    let mut sim = sim.lock().unwrap_or_else(PoisonError::into_inner);
    f(&mut sim)
}

/// This thread's driver, for other threads.
pub fn share() -> Arc<Mutex<Sim>> {
    SIM.with_borrow(Arc::clone)
}

/// Makes another thread's driver this one's.
pub fn join(sim: Arc<Mutex<Sim>>, hooks: Hooks) {
    SIM.set(sim);
    HOOKS.set(hooks);
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
    let streams: Vec<(usize, u64)> =
        sim(|s| s.streams.iter().map(|(at, q)| (*at, q.given)).collect());
    for stream in streams {
        run_to(stream);
    }
}

/// The driver of this thread, which has nothing and has done nothing.
pub fn driver() -> Driver {
    thread_local! {
        // SAFETY: each function does what its body says, which is what `cuda.h` says as far as this
        // crate asks.
        static LIBRARY: &'static Library = unsafe { Library::from_api(table::api(), "sim") };
    }
    Driver::from_library(LIBRARY.with(|l| *l)).unwrap()
}

/// A context of a driver that starts over.
pub fn fresh() -> Context {
    SIM.take();
    CURRENT.take();
    Context::new(&driver().device(0).unwrap()).unwrap()
}

/// A kernel of `count` buffers, each read and written.
pub fn kernel(context: &Context, count: usize) -> Function {
    let module = Module::load(context, "").unwrap();
    let params: Vec<_> = ["a", "b", "c"][..count]
        .iter()
        .map(|n| Parameter::buffer::<u8>(n, Access::ReadWrite))
        .collect();
    // SAFETY: the kernel takes what its name says.
    unsafe { module.function(&format!("k{count}"), &params) }.unwrap()
}

/// Nothing went wrong, and everything was given back: once.
pub fn expect_clean(what: &str) {
    run();
    sim(|s| {
        assert_eq!(s.faults, [""; 0], "{what}\n{}", s.history.join("\n"));
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
        assert_eq!(
            left.map(|(what, n)| (what, n > 0)),
            left.map(|(what, _)| (what, false)),
            "{what}: left"
        );
    });
}

/// How many objects live: events, memory of both sorts, modules, graphs, execs.
pub fn live() -> [usize; 6] {
    sim(|s| {
        [
            s.events.len(),
            s.memory.len(),
            s.pinned.len(),
            s.modules.len(),
            s.graphs.len(),
            s.execs.len(),
        ]
    })
}

fn run_to((stream, place): Place) {
    loop {
        let next = sim(|s| {
            let queue = s.streams.get_mut(&stream)?;
            if queue.done >= place {
                None
            } else {
                queue.work.front().cloned()
            }
        });
        let Some(next) = next else { return };
        run_front(stream, next);
    }
}

/// Whether the stream has come so far.
pub fn is_reached(place: Place) -> bool {
    sim(|s| s.is_done(place))
}

/// How many streams have work that nothing keeps from running.
pub fn ready() -> usize {
    sim(|s| s.ready().count())
}

/// Runs one piece of work of the `nth` of them.
pub fn run_one(nth: usize) {
    let next = sim(|s| {
        s.ready()
            .nth(nth)
            .map(|(at, queue)| (at, queue.work[0].clone()))
    });
    if let Some((stream, next)) = next {
        run_front(stream, next);
    }
}

/// Runs the first piece of work of a stream. It is work in flight until it is done.
fn run_front(stream: usize, (work, tickets): (Work, Vec<Ticket>)) {
    sim(|s| {
        s.tell(|| format!("stream {stream:#x} runs {work:?}"));
        for ticket in tickets {
            s.take_turn(ticket);
        }
    });
    perform(&work);
    sim(|s| {
        let queue = s.streams.get_mut(&stream).unwrap();
        queue.work.pop_front();
        queue.done += 1;
        if queue.destroyed && queue.work.is_empty() {
            s.streams.remove(&stream);
        }
    });
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
                s.faults
                    .push("a graph recorded an event that was destroyed".into());
            }
        }),
        Work::Free(address) => sim(|s| {
            let there = s.memory.remove(address);
            s.expect(there, "memory of a stream");
        }),
        Work::Touch {
            module,
            memory,
            read,
        } => sim(|s| {
            if module.is_some_and(|m| !s.modules.contains(&m)) {
                s.faults.push("a kernel ran that was unloaded".into());
            }

            let all = memory.iter().chain(read);
            let gone = all
                .filter(|a| !s.memory.contains(a) && !s.pinned.contains_key(a))
                .count();
            if gone > 0 {
                s.faults
                    .push(format!("work ran on {gone} released allocations"));
            }
        }),
        Work::Nothing => {}
    }
}

impl Work {
    fn names(&self, what: &Named) -> bool {
        match (self, what) {
            (Self::Touch { memory, read, .. }, Named::Memory(address)) => {
                memory.contains(address) || read.contains(address)
            }
            (Self::Touch { module, .. }, Named::Module(m)) => *module == Some(*m),
            (Self::Graph(exec, _), Named::Exec(e)) if exec == e => true,
            (Self::Graph(_, parts) | Self::Child(parts), _) => parts.iter().any(|p| p.names(what)),
            _ => false,
        }
    }

    /// What it touches, and whether it writes that.
    fn touches(&self) -> Vec<(u64, bool)> {
        match self {
            Self::Touch { memory, read, .. } => {
                let written = memory.iter().map(|m| (*m, true));
                read.iter().map(|m| (*m, false)).chain(written).collect()
            }
            Self::Graph(_, parts) | Self::Child(parts) => {
                parts.iter().flat_map(Self::touches).collect()
            }
            Self::Free(address) => vec![(*address, true)],
            _ => Vec::new(),
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

    /// Adds to the history, where the order is watched.
    pub fn tell(&mut self, what: impl FnOnce() -> String) {
        if self.in_order {
            self.history.push(what());
        }
    }

    /// Notes a fault if work that was not done names it.
    fn expect_unused(&mut self, what: &Named) {
        if self.streams.values().any(|q| q.capture.is_some()) {
            self.faults
                .push("something was released under a capture".into());
        }
        if self
            .streams
            .values()
            .flat_map(|q| &q.work)
            .any(|(w, _)| w.names(what))
        {
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
            self.faults
                .push(format!("{what}: not there, or released before"));
        }
    }

    /// The streams whose first piece of work does not wait.
    fn ready(&self) -> impl Iterator<Item = (usize, &Queue)> {
        let ready = |queue: &Queue| match queue.work.front() {
            None => false,
            Some((Work::Wait(place), _)) => self.is_done(*place),
            Some(_) => true,
        };
        self.streams
            .iter()
            .filter(move |(_, queue)| ready(queue))
            .map(|(at, queue)| (*at, queue))
    }

    /// The next uses of what the work touches.
    fn tickets(&mut self, work: &Work) -> Vec<Ticket> {
        let mut ticket = |(memory, writes): (u64, bool)| {
            let uses = self.uses.entry(memory).or_default();
            let before = uses.given;
            uses.given[usize::from(writes)] += 1;
            (memory, writes, before)
        };
        work.touches().into_iter().map(&mut ticket).collect()
    }

    /// A use of memory. All writes given before are done, and no other, and of a write so are all
    /// reads.
    fn take_turn(&mut self, (memory, writes, [reads, wrote]): Ticket) {
        let uses = self.uses.entry(memory).or_default();
        let its_turn = uses.ran[1] == wrote && (!writes || uses.ran[0] == reads);
        uses.ran[usize::from(writes)] += 1;
        if self.in_order && !its_turn {
            let fault =
                format!("work on {memory:#x} ran before what was given before it, or after");
            self.tell(|| fault.clone());
            self.faults.push(fault);
        }
    }

    fn give(&mut self, stream: CUstream, work: Work) {
        self.tell(|| format!("{stream:?} is given {work:?}"));
        let Some(queue) = self
            .streams
            .get(&(stream.0 as usize))
            .filter(|q| !q.destroyed)
        else {
            self.faults
                .push("work for a stream that is not there".into());
            return;
        };

        if let Some(graph) = queue.capture {
            let node = self.add_node(CUgraph(raw(graph)), work);
            *self
                .streams
                .get_mut(&(stream.0 as usize))
                .unwrap()
                .last_node = node;
            return;
        }

        let tickets = self.tickets(&work);
        let queue = self.streams.get_mut(&(stream.0 as usize)).unwrap();
        queue.work.push_back((work, tickets));
        queue.given += 1;
    }

    /// The nodes of a graph.
    fn nodes_of(&self, graph: CUgraph) -> Vec<CUgraphNode> {
        let mut nodes: Vec<(usize, usize)> = self
            .nodes
            .iter()
            .filter(|n| n.1.0 == graph.0 as usize)
            .map(|(node, (_, at))| (*at, *node))
            .collect();
        nodes.sort_unstable();
        nodes
            .into_iter()
            .map(|(_, node)| CUgraphNode(raw(node)))
            .collect()
    }

    /// Destroys a stream, which may still wait or give memory back. Says whether it was there and
    /// had no other work.
    fn destroy(&mut self, stream: usize) -> bool {
        let Some(queue) = self.streams.get_mut(&stream).filter(|q| !q.destroyed) else {
            return false;
        };

        queue.destroyed = true;
        let is_nothing = |(work, _): &(Work, _)| matches!(work, Work::Wait(_) | Work::Free(_));
        let harmless = queue.work.iter().all(is_nothing);
        if queue.work.is_empty() {
            self.streams.remove(&stream);
        }

        harmless
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
        let memory = (0..count)
            .map(|i| unsafe { *(*params.add(i)).cast::<u64>() } & !0xff)
            .collect();
        Work::Touch {
            module: Some(module),
            memory,
            read: Vec::new(),
        }
    }
}

fn raw(handle: usize) -> *mut c_void {
    std::ptr::without_provenance_mut(handle)
}

/// Work that writes the memory that an address is in: views begin within theirs.
fn on(memory: u64) -> Work {
    copy(Vec::new(), vec![memory])
}

fn copy(read: Vec<u64>, memory: Vec<u64>) -> Work {
    let start = |addresses: Vec<u64>| {
        addresses
            .into_iter()
            .map(|address| address & !0xff)
            .collect()
    };
    Work::Touch {
        module: None,
        memory: start(memory),
        read: start(read),
    }
}
