//! Threads with the same objects, in thousands of interleavings.
//!
//! Each run is a random program: two to four threads launch, copy, allocate, record, wait, capture,
//! replay and drop whatever they find, while another one is the device and runs what is ready. The
//! number of a run decides on all of it (`turns`). The device (`sim`) notes what is released under
//! work or under a capture, and every use of memory that does not run in the order in which it was
//! accepted: then the program's result is not that of the same calls made one after the other.

use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex};

use crate::lifetime::unpoisoned_lock::{lock, turns};
use crate::prelude::*;
use turns::{Job, Turns};

#[allow(dead_code, unreachable_pub)]
#[path = "../sound/sim/mod.rs"]
mod sim;

/// Bytes of a buffer.
const N: usize = 16;

/// What the threads share. Each takes from it what it finds.
struct World {
    context: Context,
    kernel: Function,
    streams: [Mutex<Option<Stream>>; 3],
    events: [Event; 2],
    buffers: [Mutex<Option<Buffer<u8>>>; 3],
    execs: [Mutex<Option<GraphExec>>; 2],
    /// What the threads do. A few sorts of calls meet more often than all of them would (swarm
    /// testing: Groce and others 2012).
    kinds: Vec<usize>,
    /// Threads that are not over.
    busy: AtomicUsize,
    tally: Arc<Tally>,
}

/// What became of all calls of all runs.
#[derive(Default, Debug)]
struct Tally {
    accepted: AtomicUsize,
    unordered: AtomicUsize,
    capturing: AtomicUsize,
    copied: AtomicUsize,
    captures: AtomicUsize,
    replays: AtomicUsize,
    steps: AtomicUsize,
}

struct Thread {
    world: Arc<World>,
    random: u64,
}

impl World {
    /// For so many threads, with so many streams, of three.
    fn new(threads: usize, streams: usize, kinds: Vec<usize>, tally: &Arc<Tally>) -> Self {
        let context = sim::fresh();
        sim::sim(|s| s.in_order = true);
        let stream = |n| Mutex::new((n < streams).then(|| Stream::new(&context).unwrap()));
        let buffer = |_| Mutex::new(Some(Buffer::uninit(&context, N).unwrap()));
        Self {
            kernel: sim::kernel(&context, 2),
            streams: [0, 1, 2].map(stream),
            events: [0, 1].map(|_| Event::untimed(&context).unwrap()),
            buffers: [0, 1, 2].map(buffer),
            execs: [0, 1].map(|_| Mutex::new(None)),
            kinds,
            busy: AtomicUsize::new(threads),
            tally: tally.clone(),
            context,
        }
    }
}

impl Thread {
    fn pick(&mut self, n: usize) -> usize {
        turns::next(&mut self.random) as usize % n
    }

    fn stream(&mut self) -> Option<Stream> {
        let n = self.pick(3);
        lock(&self.world.streams[n]).clone()
    }

    fn view(&mut self) -> Option<View<u8>> {
        let n = self.pick(3);
        lock(&self.world.buffers[n]).as_ref().map(Buffer::view)
    }

    fn event(&mut self) -> Event {
        let n = self.pick(2);
        self.world.events[n].clone()
    }

    /// Puts a buffer in the place of another one, which is dropped.
    fn put(&mut self, buffer: Option<Buffer<u8>>) {
        let n = self.pick(3);
        let before = std::mem::replace(&mut *lock(&self.world.buffers[n]), buffer);
        drop(before);
    }

    /// A launch, a copy or a fill.
    fn work(&mut self) -> Option<Work> {
        let (a, b) = (self.view()?, self.view()?);
        if a.region().same_memory(b.region()) {
            return Work::fill(&a, 1).ok();
        }
        if self.pick(2) == 0 {
            return Work::copy(&a, &b).ok();
        }

        let args = vec![HostArg::from(a), HostArg::from(b)];
        Launch::new(&self.world.kernel, LaunchConfig::line(1, 1), args)
            .ok()
            .map(Work::from)
    }

    /// Does something. Without what it takes, nothing.
    fn act(&mut self) -> Option<Result<(), Error>> {
        let n = self.pick(self.world.kinds.len());
        let what = self.world.kinds[n];
        sim::sim(|s| s.tell(|| format!("{:?} begins {what}", std::thread::current().id())));
        let context = self.world.context.clone();
        Some(match what {
            0 => Stream::new(&context).map(|stream| self.put_stream(Some(stream))),
            1 => {
                self.put_stream(None);
                Ok(())
            }
            2 => Buffer::uninit(&context, N).map(|buffer| self.put(Some(buffer))),
            3 => self.stream()?.alloc(N).map(|buffer| self.put(Some(buffer))),
            4 => self.event().record(&self.stream()?),
            5 => self.stream()?.wait(&self.event()),
            6 => self.stream()?.synchronize(),
            7 => context.synchronize(),
            8 => self.event().synchronize(),
            9 => self.stream()?.read(&self.view()?).map(drop),
            10 => self.stream()?.write(&self.view()?, &[1; N]),
            11 => self.view()?.to_vec().map(drop),
            12 => self.view()?.write(&[2; N]),
            13 => self.call_that_drops()?,
            14 | 15 => self.capture()?,
            16 | 17 => self.replay()?,
            18 => self.graph_that_keeps()?,
            19 | 20 => self.hand_over()?,
            _ => self.stream()?.run(&self.work()?),
        })
    }

    fn put_stream(&mut self, stream: Option<Stream>) {
        let n = self.pick(3);
        let before = std::mem::replace(&mut *lock(&self.world.streams[n]), stream);
        drop(before);
    }

    /// A function of the host that drops what may be the last share of a buffer.
    fn call_that_drops(&mut self) -> Option<Result<(), Error>> {
        let (stream, n) = (self.stream()?, self.pick(3));
        let buffer = lock(&self.world.buffers[n]).take();
        Some(stream.call(move || drop(buffer)))
    }

    /// Captures some work, and drops something meanwhile. What was pushed is in the graph, and
    /// nothing else.
    fn capture(&mut self) -> Option<Result<(), Error>> {
        let (stream, mode) = (
            self.stream()?,
            [CaptureMode::Global, CaptureMode::Relaxed][self.pick(2)],
        );
        let mut pushed = 0;
        let graph = capture(&stream, mode, |queue| {
            for _ in 0..self.pick(4) {
                if let Some(work) = self.work() {
                    queue.push(work)?;
                    pushed += 1;
                }
            }
            self.put(None);
            Ok(())
        });
        let exec = graph.and_then(|graph| {
            assert_eq!(sim::captured(), pushed, "pieces of work in the capture");
            self.world.tally.captures.fetch_add(1, SeqCst);
            graph.instantiate()
        });
        Some(exec.map(|exec| self.put_exec(exec)))
    }

    /// A graph whose function of the host keeps a buffer, which goes with the graph.
    fn graph_that_keeps(&mut self) -> Option<Result<(), Error>> {
        let n = self.pick(3);
        let work = self.work()?;
        let buffer = lock(&self.world.buffers[n]).take();
        let exec = Graph::new(&self.world.context).and_then(|mut graph| {
            let first = graph.add(&[], work)?;
            graph.host(&[first], move || _ = &buffer)?;
            graph.instantiate()
        });
        Some(exec.map(|exec| self.put_exec(exec)))
    }

    /// Work in one stream, and the same in another one after an event of the first.
    fn hand_over(&mut self) -> Option<Result<(), Error>> {
        let (one, other, event, work) =
            (self.stream()?, self.stream()?, self.event(), self.work()?);
        let steps = || {
            one.run(&work)?;
            event.record(&one)?;
            other.wait(&event)?;
            other.run(&work)
        };
        Some(steps())
    }

    fn put_exec(&mut self, exec: GraphExec) {
        let n = self.pick(2);
        let before = lock(&self.world.execs[n]).replace(exec);
        drop(before);
    }

    fn replay(&mut self) -> Option<Result<(), Error>> {
        let (stream, n) = (self.stream()?, self.pick(2));
        let mut exec = lock(&self.world.execs[n]).take()?;
        let result = exec.launch(&stream);
        self.world
            .tally
            .replays
            .fetch_add(usize::from(result.is_ok()), SeqCst);
        self.put_exec(exec);
        Some(result)
    }

    fn run(mut self, actions: usize) {
        let tally = self.world.tally.clone();
        for _ in 0..actions {
            let result = self.act();
            sim::sim(|s| s.tell(|| format!("{:?}: {result:?}", std::thread::current().id())));
            let count = match result {
                Some(Ok(())) => &tally.accepted,
                Some(Err(Error::UnorderedStreams { .. })) => &tally.unordered,
                Some(Err(Error::HostCopy { .. })) => &tally.copied,
                Some(Err(Error::Capturing { .. } | Error::CapturedEvent { .. })) => {
                    &tally.capturing
                }
                Some(Err(error)) => panic!("{error}"),
                None => continue,
            };
            count.fetch_add(1, SeqCst);
        }
        self.world.busy.fetch_sub(1, SeqCst);
    }
}

/// Runs what is ready, in the order of each stream only, until there is nothing and nobody left who
/// gives more. It takes its time, so that work is in flight when things are dropped.
fn device(world: &World, mut random: u64) {
    loop {
        turns::wait_until("work", || sim::ready() > 0 || world.busy.load(SeqCst) == 0);
        match sim::ready() {
            0 => return,
            ready => sim::run_one(turns::next(&mut random) as usize % ready),
        }
        for _ in 0..turns::next(&mut random) % 40 {
            turns::before_call("work takes time");
        }
    }
}

const HOOKS: sim::Hooks = sim::Hooks {
    call: turns::before_call,
    wait: |place| turns::wait_until("the device", || sim::is_reached(place)),
};

/// Lets the threads and the device take turns, and looks whether all went well. Gives the number of
/// steps.
fn in_turns(seed: u64, world: Arc<World>, threads: Vec<Job>) -> Result<usize, String> {
    let (shared, on) = (sim::share(), world.clone());
    let device: Job = Box::new(move || device(&on, seed));
    let on_device = |job: Job| -> Job {
        let shared = shared.clone();
        Box::new(move || {
            sim::join(shared, HOOKS);
            job();
        })
    };
    match Turns::run(
        seed,
        threads.into_iter().chain([device]).map(on_device).collect(),
    ) {
        Ok(steps) => {
            drop(world);
            // Memory of a stream goes back as work of the stream, and what a graph's function of
            // the host keeps goes after that, when the context is next taken.
            if sim::ready() > 0 {
                sim::run();
                drop(Context::new(&sim::driver().device(0).unwrap()).unwrap());
            }
            sim::expect_clean(&format!("seed {seed}"));
            Ok(steps)
        }
        Err(error) => {
            // The threads of a deadlock hold locks for ever.
            std::mem::forget(world);
            let history = sim::sim(|s| s.history.join("\n"));
            Err(format!("{error}\n{history}"))
        }
    }
}

/// One program in one interleaving.
fn run(seed: u64, tally: &Arc<Tally>) -> Result<(), String> {
    let mut random = seed;
    let mut pick = |n: usize| turns::next(&mut random) as usize % n;
    let (threads, streams, sorts) = (2 + pick(3), 1 + pick(3), 2 + pick(7));
    let kinds = (0..sorts).map(|_| pick(24)).collect();
    let world = Arc::new(World::new(threads, streams, kinds, tally));
    let thread = |_| {
        let thread = Thread {
            world: world.clone(),
            random: turns::next(&mut random),
        };
        Box::new(move || thread.run(10)) as Job
    };
    let jobs = (0..threads).map(thread).collect();
    let steps = in_turns(random, world, jobs).map_err(|error| format!("run {seed}: {error}"))?;
    tally.steps.fetch_add(steps, SeqCst);
    Ok(())
}

/// A thread of a program that is written out.
fn thread(
    world: &Arc<World>,
    work: impl FnOnce(&World) -> Result<(), Error> + Send + 'static,
) -> Job {
    let world = world.clone();
    Box::new(move || {
        match work(&world) {
            Ok(()) | Err(Error::UnorderedStreams { .. }) => {}
            Err(error) => panic!("{error}"),
        }
        world.busy.fetch_sub(1, SeqCst);
    })
}

#[test]
fn a_second_stream_is_made_while_the_first_begins_to_capture() {
    for seed in 0..400 {
        let world = Arc::new(World::new(2, 1, Vec::new(), &Arc::default()));
        let captures = thread(&world, |world| {
            let stream = lock(&world.streams[0]).clone().unwrap();
            let view = lock(&world.buffers[0]).as_ref().unwrap().view();
            stream.fill(&view, 1)?;
            capture(&stream, CaptureMode::Relaxed, |queue| queue.fill(&view, 2)).map(drop)
        });
        let makes = thread(&world, |world| Stream::new(&world.context).map(drop));
        in_turns(seed, world, vec![captures, makes]).unwrap_or_else(|error| panic!("{error}"));
    }
}

#[test]
fn two_threads_record_one_event() {
    for seed in 0..400 {
        let world = Arc::new(World::new(2, 3, Vec::new(), &Arc::default()));
        let records = |own: usize| {
            thread(&world, move |world| {
                let [stream, third] = [own, 2].map(|n| lock(&world.streams[n]).clone().unwrap());
                let view = lock(&world.buffers[own]).as_ref().unwrap().view();
                stream.fill(&view, 1)?;
                world.events[0].record(&stream)?;
                third.wait(&world.events[0])?;
                third.fill(&view, 2)
            })
        };
        let jobs = vec![records(0), records(1)];
        in_turns(seed, world, jobs).unwrap_or_else(|error| panic!("{error}"));
    }
}

/// So many programs.
const RUNS: u64 = 3000;

#[test]
fn threads_meet_in_every_order_and_nothing_is_lost_or_freed_too_early() {
    let tally = Arc::default();
    for seed in 0..RUNS {
        run(seed, &tally).unwrap_or_else(|error| panic!("{error}"));
    }
    println!("{tally:?}");
}

#[test]
fn the_same_number_is_the_same_interleaving() {
    let steps = |seed| {
        let tally = Arc::default();
        run(seed, &tally).unwrap_or_else(|error| panic!("{error}"));
        [&tally.steps, &tally.accepted, &tally.unordered].map(|count| count.load(SeqCst))
    };
    for seed in 0..50 {
        assert_eq!(steps(seed), steps(seed), "run {seed}");
    }
}

#[test]
fn a_deadlock_is_found_and_told() {
    let cross = |seed| {
        let locks = Arc::new([Mutex::new(()), Mutex::new(())]);
        let job = |[first, second]: [usize; 2]| -> Job {
            let locks = locks.clone();
            Box::new(move || {
                let _first = lock(&locks[first]);
                let _second = lock(&locks[second]);
            })
        };
        Turns::run(seed, vec![job([0, 1]), job([1, 0])])
    };
    let (stuck, through): (Vec<_>, Vec<_>) = (0..20).map(cross).partition(Result::is_err);
    assert!(!through.is_empty() && !stuck.is_empty());
    let told = stuck[0].as_ref().unwrap_err();
    assert!(
        told.ends_with(r#"a deadlock: [WaitsFor("a lock"), WaitsFor("a lock")]"#),
        "{told}"
    );
}
