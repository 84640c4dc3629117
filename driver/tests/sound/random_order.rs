//! Random programs over streams, against the definition: a conflict is refused exactly if the
//! earlier work does not happen before the later. The model keeps, for every stream, event and the
//! host, the set of all work before it.

use std::collections::BTreeSet;
use std::ops::Range;

use proptest::prelude::*;
use warpwright_driver::prelude::*;

use super::*;

const EVENTS: usize = 3;
const BUFFERS: usize = 2;
/// The bytes of a buffer that work may touch.
const RANGES: [Range<usize>; 3] = [0..8, 8..16, 4..12];

#[derive(Clone, Debug)]
enum Op {
    New,
    DropDone(usize),
    DropInFlight(usize),
    Work {
        stream: usize,
        buffer: usize,
        range: usize,
        writes: bool,
        by_graph: bool,
    },
    Record(usize, usize),
    Wait(usize, usize),
    Synchronize(usize),
    WaitOnHost(usize),
    SynchronizeAll,
    AssumeAfter(usize, usize),
    /// The device does all it has, which changes nothing.
    DeviceWorks,
}

fn op() -> impl Strategy<Value = Op> {
    let (stream, event) = (0..3usize, 0..EVENTS);
    prop_oneof![
        2 => Just(Op::New),
        1 => stream.clone().prop_map(Op::DropDone),
        1 => stream.clone().prop_map(Op::DropInFlight),
        12 => (stream.clone(), 0..BUFFERS, 0..RANGES.len(), any::<bool>(), any::<bool>()).prop_map(
            |(stream, buffer, range, writes, by_graph)| Op::Work { stream, buffer, range, writes, by_graph }
        ),
        4 => (event.clone(), stream.clone()).prop_map(|(e, s)| Op::Record(e, s)),
        4 => (stream.clone(), event.clone()).prop_map(|(s, e)| Op::Wait(s, e)),
        1 => stream.clone().prop_map(Op::Synchronize),
        1 => event.prop_map(Op::WaitOnHost),
        1 => Just(Op::SynchronizeAll),
        1 => (stream.clone(), stream).prop_map(|(a, b)| Op::AssumeAfter(a, b)),
        1 => Just(Op::DeviceWorks),
    ]
}

/// Pieces of work, by number.
type Set = BTreeSet<usize>;

/// The definition.
#[derive(Default)]
struct Model {
    /// What each piece of work did: to which buffer and range, and whether it wrote.
    work: Vec<(usize, usize, bool)>,
    /// For each stream what is before its next work: its own, and what it waited for.
    streams: Vec<Set>,
    events: [Set; EVENTS],
    host: Set,
    /// What was given while there was one stream, which every later one begins after.
    first: Set,
    /// The own work of each stream, waits included.
    own: Vec<Set>,
    /// The same of each stream that was dropped.
    dropped: Vec<Set>,
}

/// A wait, which touches no buffer.
const NOTHING: (usize, usize, bool) = (BUFFERS, 0, false);

impl Model {
    fn conflicts(&self, stream: usize, (buffer, range, writes): (usize, usize, bool)) -> bool {
        let before = |n: &usize| self.streams[stream].contains(n) || self.host.contains(n);
        let overlap = |a: &Range<usize>, b: &Range<usize>| a.start.max(b.start) < a.end.min(b.end);
        self.work
            .iter()
            .enumerate()
            .any(|(n, (other, bytes, wrote))| {
                *other == buffer
                    && (*wrote || writes)
                    && overlap(&RANGES[*bytes], &RANGES[range])
                    && !before(&n)
            })
    }

    fn add_stream(&mut self) {
        let open = |own: &&Set| !own.is_subset(&self.host);
        let counting: Vec<&Set> = self
            .own
            .iter()
            .chain(self.dropped.iter().filter(open))
            .collect();
        if let [only] = counting[..] {
            self.first.extend(only);
        }

        // All later streams begin after that: those that are there as well.
        let first = &self.first;
        for before in &mut self.streams {
            before.extend(first);
        }

        self.streams.push(self.first.clone());
        self.own.push(Set::new());
    }

    fn add_work(&mut self, stream: usize, work: (usize, usize, bool)) {
        let number = self.work.len();
        self.work.push(work);
        self.streams[stream].insert(number);
        self.own[stream].insert(number);
    }

    fn wait_for_all(&mut self) {
        self.host = (0..self.work.len()).collect();
    }
}

struct Program {
    context: Context,
    streams: Vec<Stream>,
    events: Vec<Event>,
    buffers: Vec<Buffer<u8>>,
    kernels: [Function; 2],
    model: Model,
}

impl Program {
    fn new() -> Self {
        let context = sim::fresh();
        let kernels = [Access::Read, Access::Write].map(|access| {
            let module = Module::load(&context, "").unwrap();
            // SAFETY: the kernel is one of this driver.
            unsafe { module.function("k1", &[Parameter::buffer::<u8>("x", access)]) }.unwrap()
        });
        Self {
            streams: Vec::new(),
            events: (0..EVENTS)
                .map(|_| Event::untimed(&context).unwrap())
                .collect(),
            buffers: (0..BUFFERS)
                .map(|_| Buffer::uninit(&context, 16).unwrap())
                .collect(),
            kernels,
            model: Model::default(),
            context,
        }
    }

    fn launch(&self, buffer: usize, range: usize, writes: bool) -> Launch {
        let view = self.buffers[buffer].view_range(RANGES[range].clone());
        let kernel = &self.kernels[usize::from(writes)];
        Launch::new(kernel, LaunchConfig::line(1, 1), vec![HostArg::from(view)]).unwrap()
    }

    fn give(
        &mut self,
        stream: usize,
        (buffer, range, writes): (usize, usize, bool),
        by_graph: bool,
    ) {
        let launch = self.launch(buffer, range, writes);
        let result = if by_graph {
            let mut graph = Graph::new(&self.context).unwrap();
            graph.add(&[], launch).unwrap();
            graph.instantiate().unwrap().launch(&self.streams[stream])
        } else {
            self.streams[stream].run_launch(&launch)
        };
        let model = &mut self.model;
        let conflicts = model.conflicts(stream, (buffer, range, writes));
        match result {
            Ok(()) => assert!(!conflicts, "accepted without an order"),
            Err(Error::UnorderedStreams { .. }) => return assert!(conflicts, "refused in order"),
            Err(error) => panic!("{error}"),
        }

        model.add_work(stream, (buffer, range, writes));
    }

    /// Does it, where there is such a stream.
    fn step(&mut self, op: &Op) {
        let live = self.streams.len();
        match *op {
            Op::New if live < 3 => {
                self.streams.push(Stream::new(&self.context).unwrap());
                self.model.add_stream();
            }
            Op::DropDone(s) if s < live => {
                self.step(&Op::Synchronize(s));
                self.step(&Op::DropInFlight(s));
            }
            Op::DropInFlight(s) if s < live => {
                drop(self.streams.remove(s));
                self.model.streams.remove(s);
                let own = self.model.own.remove(s);
                self.model.dropped.push(own);
            }
            Op::Work {
                stream,
                buffer,
                range,
                writes,
                by_graph,
            } if stream < live => {
                self.give(stream, (buffer, range, writes), by_graph);
            }
            Op::Record(e, s) if s < live => {
                self.events[e].record(&self.streams[s]).unwrap();
                self.model.events[e] = self.model.streams[s].clone();
            }
            Op::Wait(s, e) if s < live => {
                self.streams[s].wait(&self.events[e]).unwrap();
                self.model.streams[s].extend(&self.model.events[e]);
                self.model.add_work(s, NOTHING);
            }
            Op::Synchronize(s) if s < live => {
                self.streams[s].synchronize().unwrap();
                self.model.host.extend(&self.model.streams[s]);
            }
            Op::WaitOnHost(e) => {
                self.events[e].synchronize().unwrap();
                self.model.host.extend(&self.model.events[e]);
            }
            Op::SynchronizeAll => {
                self.context.synchronize().unwrap();
                self.model.wait_for_all();
            }
            Op::AssumeAfter(a, b) if a < live && b < live => {
                // SAFETY: nothing really runs.
                unsafe { self.streams[a].assume_after(&self.streams[b]) };
                let before = self.model.streams[b].clone();
                self.model.streams[a].extend(before);
            }
            Op::DeviceWorks => sim::run(),
            _ => {}
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(rounds(20_000) as u32) })]
    #[test]
    fn a_conflict_is_refused_exactly_if_nothing_orders_it(ops in proptest::collection::vec(op(), 1..60)) {
        let mut program = Program::new();
        program.step(&Op::New);
        for op in &ops {
            program.step(op);
        }
        drop(program);
        sim::expect_clean(&format!("{ops:?}"));
    }
}
