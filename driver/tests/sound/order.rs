//! The order of streams that share memory: what is refused, and what is an order.

use std::cell::RefCell;

use warpwright_driver::prelude::*;

use super::*;

/// Two streams and a buffer of two halves, on a device that does nothing by itself.
struct Pair {
    context: Context,
    one: Stream,
    two: Stream,
    x: Buffer<u8>,
}

fn pair() -> Pair {
    let context = sim::fresh();
    let stream = |name| Stream::new(&context).unwrap().labelled(name);
    let (one, two) = (stream("one"), stream("two"));
    Pair {
        one,
        two,
        x: Buffer::uninit(&context, N).unwrap().labelled("x"),
        context,
    }
}

impl Pair {
    fn write(&self, stream: &Stream) -> Result<(), Error> {
        stream.fill(&self.x, 1)
    }

    fn read(&self, stream: &Stream) -> Result<(), Error> {
        let to = Buffer::<u8>::uninit(&self.context, N)?;
        stream.copy(&self.x, &to)
    }

    fn event(&self, stream: &Stream) -> Event {
        let event = Event::untimed(&self.context).unwrap();
        event.record(stream).unwrap();
        event
    }
}

#[track_caller]
fn refused(result: Result<(), Error>) {
    assert!(
        matches!(result, Err(Error::UnorderedStreams { .. })),
        "{result:?}"
    );
}

#[test]
fn two_streams_that_share_a_buffer_are_refused_by_name() {
    let p = pair();
    p.write(&p.one).unwrap();
    assert_eq!(
        text(p.read(&p.two)),
        "x: work of stream one on it is not ordered before the work queued in stream two; let stream two wait for an \
        event that stream one records after its work, or synchronize stream one first"
    );
    refused(p.write(&p.two));
    p.write(&p.one).unwrap();
    p.read(&p.one).unwrap();
}

#[test]
fn each_sort_of_wait_is_an_order() {
    /// A sort of wait, by name.
    type Wait = (&'static str, fn(&Pair));
    let waits: [Wait; 7] = [
        ("a stream's wait for an event", |p| {
            p.two.wait(&p.event(&p.one)).unwrap()
        }),
        ("the host's wait for an event", |p| {
            p.event(&p.one).synchronize().unwrap()
        }),
        ("a stream's synchronize", |p| p.one.synchronize().unwrap()),
        ("a context's synchronize", |p| {
            p.context.synchronize().unwrap()
        }),
        ("a read of the host", |p| drop(p.x.to_vec().unwrap())),
        ("a read in the stream", |p| drop(p.one.read(&p.x).unwrap())),
        // SAFETY: the device of this driver runs nothing, in whatever order.
        ("the program's word", |p| unsafe {
            p.two.assume_after(&p.one)
        }),
    ];
    for (what, wait) in waits {
        let p = pair();
        p.write(&p.one).unwrap();
        refused(p.write(&p.two));
        wait(&p);
        assert!(p.write(&p.two).is_ok(), "{what}");
        refused(p.write(&p.one));
    }
}

#[test]
fn asking_is_a_wait_when_the_answer_is_yes() {
    for ask in [
        |p: &Pair, _: &Event| p.one.is_idle().unwrap(),
        |_: &Pair, event: &Event| event.is_done().unwrap(),
    ] {
        let p = pair();
        p.write(&p.one).unwrap();
        let event = p.event(&p.one);
        assert!(!ask(&p, &event));
        refused(p.write(&p.two));
        sim::run();
        refused(p.write(&p.two)); // Done, but nobody has said so.
        assert!(ask(&p, &event));
        p.write(&p.two).unwrap();
    }
}

#[test]
fn disjoint_bytes_and_readers_need_no_order() {
    let p = pair();
    let (left, right) = (p.x.view_range(0..N / 2), p.x.view_range(N / 2..N));
    p.one.fill(&left, 1).unwrap();
    p.two.fill(&right, 1).unwrap();
    refused(p.two.fill(&p.x.view_range(N / 2 - 1..N), 1));
    p.context.synchronize().unwrap();
    p.read(&p.one).unwrap();
    p.read(&p.two).unwrap();
    refused(p.write(&p.one));
    p.two.synchronize().unwrap();
    p.write(&p.one).unwrap();
}

#[test]
fn launches_of_graphs_count() {
    let p = pair();
    let mut graph = Graph::new(&p.context).unwrap();
    let mut inner = Graph::new(&p.context).unwrap();
    inner.fill(&[], &p.x, 3).unwrap();
    graph.child(&[], &inner).unwrap();
    let mut exec = graph.instantiate().unwrap();
    exec.launch(&p.one).unwrap();
    refused(p.read(&p.two));
    refused(exec.launch(&p.two));
    p.two.wait(&p.event(&p.one)).unwrap();
    exec.launch(&p.two).unwrap();
    refused(exec.launch(&p.one));
}

#[test]
fn changed_arguments_of_a_graph_count() {
    let p = pair();
    let kernel = sim::kernel(&p.context, 1);
    let other = Buffer::<u8>::uninit(&p.context, N).unwrap();
    let launch = |b: &Buffer<u8>| {
        Launch::new(&kernel, LaunchConfig::line(1, 1), vec![HostArg::from(&**b)]).unwrap()
    };
    let mut graph = Graph::new(&p.context).unwrap();
    let node = graph.add(&[], launch(&other)).unwrap();
    let mut exec = graph.instantiate().unwrap();
    p.write(&p.one).unwrap();
    exec.launch(&p.two).unwrap();
    exec.set_launch(node, launch(&p.x)).unwrap();
    refused(exec.launch(&p.two));
    exec.set_launch(node, launch(&other)).unwrap();
    exec.launch(&p.two).unwrap();
}

#[test]
fn order_goes_through_a_third_stream() {
    let p = pair();
    let three = Stream::new(&p.context).unwrap();
    p.write(&p.one).unwrap();
    three.wait(&p.event(&p.one)).unwrap();
    refused(p.write(&p.two));
    p.two.wait(&p.event(&three)).unwrap();
    p.write(&p.two).unwrap();
    // The third stream comes after the first, but before the second.
    refused(p.read(&three));
}

#[test]
fn an_event_orders_what_came_before_it() {
    let p = pair();
    let early = p.event(&p.one);
    p.write(&p.one).unwrap();
    p.two.wait(&early).unwrap();
    early.synchronize().unwrap();
    refused(p.write(&p.two));
    early.record(&p.one).unwrap();
    refused(p.write(&p.two));
    p.two.wait(&early).unwrap();
    p.write(&p.two).unwrap();
}

#[test]
fn the_second_stream_begins_after_the_first_ones_work() {
    let context = sim::fresh();
    let x = Buffer::<u8>::uninit(&context, N).unwrap();
    let one = Stream::new(&context).unwrap();
    one.fill(&x, 1).unwrap();
    let two = Stream::new(&context).unwrap();
    two.fill(&x, 2).unwrap();
    refused(one.fill(&x, 3));

    // It really waits: the device has done the first stream's work before the second's is.
    two.synchronize().unwrap();
    assert!(one.is_idle().unwrap());
}

#[test]
fn what_is_refused_does_not_depend_on_how_far_the_device_is() {
    for works in [false, true] {
        let context = sim::fresh();
        let work = || {
            if works {
                sim::run()
            }
        };
        let x = Buffer::<u8>::uninit(&context, N).unwrap();
        let (one, two) = (
            Stream::new(&context).unwrap(),
            Stream::new(&context).unwrap(),
        );
        one.fill(&x, 1).unwrap();
        work();
        context.collect_by_drop();
        refused(two.fill(&x, 1));

        // Alone again, the first stream gets work that the next one comes after, done or not.
        two.synchronize().unwrap();
        drop(two);
        work();
        context.collect_by_drop();
        let next = Stream::new(&context).unwrap();
        next.fill(&x, 2).unwrap();

        // A stream that is dropped in flight is not waited for by that.
        let y = Buffer::<u8>::uninit(&context, N).unwrap();
        next.fill(&y, 2).unwrap();
        drop(next);
        work();
        context.collect_by_drop();
        refused(one.fill(&y, 1));
        let last = Stream::new(&context).unwrap();
        refused(last.fill(&y, 1));
        context.synchronize().unwrap();
        last.fill(&y, 1).unwrap();
        refused(one.fill(&y, 1));
    }
}

#[test]
fn streams_come_and_go() {
    let context = sim::fresh();
    let x = Buffer::<u8>::uninit(&context, N).unwrap();
    let stays = Stream::new(&context).unwrap();
    let event = Event::untimed(&context).unwrap();
    for round in 0..rounds(500) {
        let stream = Stream::new(&context).unwrap();
        stream.fill(&x, 1).unwrap();
        refused(stays.fill(&x, 1));
        event.record(&stream).unwrap();
        drop(stream);
        refused(stays.fill(&x, 1));
        match round % 3 {
            0 => stays.wait(&event).unwrap(),
            1 => event.synchronize().unwrap(),
            _ => context.synchronize().unwrap(),
        }

        stays.fill(&x, 1).unwrap();

        // The next one does not begin after this one's work while the dropped one's was not waited
        // for.
        let next = Stream::new(&context).unwrap();
        assert_eq!(next.fill(&x, 1).is_ok(), round % 3 != 0);
        drop(next);
        context.synchronize().unwrap();
    }

    context.synchronize().unwrap();
    drop((stays, event, x, context));
    sim::expect_clean("streams that came and went");
}

/// Lets the context look what is done, without an order: a destructor does that.
trait Collect {
    fn collect_by_drop(&self);
}

impl Collect for Context {
    fn collect_by_drop(&self) {
        drop(Buffer::<u8>::uninit(self, 1).unwrap());
    }
}

thread_local! {
    /// Work that is given in the middle of a copy by the host.
    static BETWEEN: RefCell<Option<(Stream, Work)>> = RefCell::default();
    /// What came of it.
    static TOLD: RefCell<String> = RefCell::default();
}

/// Gives the work as another thread may: after the host has waited for all streams, before the
/// device copies.
fn give_at_the_copy(call: &str) {
    if !call.starts_with("cuMemcpy") {
        return;
    }
    if let Some((stream, work)) = BETWEEN.take() {
        TOLD.set(
            stream
                .run(&work)
                .map_or_else(|error| error.to_string(), |()| "taken".into()),
        );
    }
}

#[test]
fn work_on_what_the_host_copies_meanwhile_is_refused() {
    let context = sim::fresh();
    sim::join(
        sim::share(),
        sim::Hooks {
            call: give_at_the_copy,
            ..sim::ALONE
        },
    );
    let stream = Stream::new(&context).unwrap();
    let [x, y] = ["x", "y"].map(|name| Buffer::<u8>::uninit(&context, N).unwrap().labelled(name));
    let during = |work: Work, copy: &dyn Fn()| {
        BETWEEN.set(Some((stream.clone(), work)));
        copy();
        TOLD.take()
    };
    let read = || drop(x.to_vec().unwrap());
    let write = || x.write(&[1; N]).unwrap();
    let refused = "x: another thread copies it to or from the host while work on it is queued in stream 0; let one of the \
                   threads wait for the other, or copy in the order of a stream";
    assert_eq!(during(Work::fill(&x, 1).unwrap(), &read), refused);
    assert_eq!(during(Work::copy(&x, &y).unwrap(), &write), refused);

    // Both only read, or touch other bytes.
    assert_eq!(during(Work::copy(&x, &y).unwrap(), &read), "taken");
    assert_eq!(during(Work::fill(&y, 1).unwrap(), &write), "taken");

    // So it is while another device copies it, which the host waits for.
    let other = Context::new(&sim::driver().device(1).unwrap()).unwrap();
    let (theirs, z) = (
        Stream::new(&other).unwrap(),
        Buffer::<u8>::uninit(&other, N).unwrap(),
    );
    let all = || theirs.copy_from_peer(&x, &z).unwrap();
    let row = || {
        theirs
            .copy_box_from_peer(Boxed::rows(&x, N), Boxed::rows(&z, N), [N, 1, 1])
            .unwrap()
    };
    assert_eq!(
        [
            during(Work::fill(&x, 1).unwrap(), &all),
            during(Work::fill(&x, 1).unwrap(), &row)
        ],
        [refused; 2]
    );

    // After the copy it is as before.
    stream.fill(&x, 2).unwrap();
    drop((theirs, z, other, stream, x, y, context));
    sim::expect_clean("the copies");
}
