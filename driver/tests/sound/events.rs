//! Events that are recorded again elsewhere: what was known of the old place is not said of the new
//! one.

use std::sync::atomic::{AtomicBool, Ordering::SeqCst};

use warpwright_driver::prelude::*;

use super::*;

#[test]
fn an_event_that_a_graph_records_says_nothing_of_the_stream_before() {
    let context = sim::fresh();
    let (one, two) = (
        Stream::new(&context).unwrap(),
        Stream::new(&context).unwrap(),
    );
    let event = Event::untimed(&context).unwrap();
    let mut graph = Graph::new(&context).unwrap();
    graph.record(&[], &event).unwrap();
    let mut exec = graph.instantiate().unwrap();
    let buffer = Buffer::<u8>::uninit(&context, N).unwrap();
    one.fill(&buffer, 1).unwrap();
    event.record(&one).unwrap();

    // The graph moves the event into the other stream, which has nothing to do with the fill.
    exec.launch(&two).unwrap();
    event.synchronize().unwrap();
    assert!(matches!(
        two.fill(&buffer, 2),
        Err(Error::UnorderedStreams { .. })
    ));
    two.wait(&event).unwrap();
    assert!(matches!(
        two.fill(&buffer, 2),
        Err(Error::UnorderedStreams { .. })
    ));
    drop(buffer);
    drop((one, two, exec, graph, event, context));
    sim::expect_clean("memory stays while the first stream has work");
}

#[test]
fn an_event_that_two_threads_record_orders_what_the_driver_orders() {
    emulator(|context| {
        let (one, two, three) = (
            Stream::new(&context).unwrap().labelled("one"),
            Stream::new(&context).unwrap().labelled("two"),
            Stream::new(&context).unwrap().labelled("three"),
        );
        let (event, stop) = (Event::untimed(&context).unwrap(), AtomicBool::new(false));
        let add = add(&context);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !stop.load(SeqCst) {
                    event.record(&two).unwrap();
                    event.synchronize().unwrap();
                }
            });
            for round in 0..rounds(2000) {
                let [x, y] =
                    [round as f32, -1.0].map(|v| Buffer::from_slice(&context, &[v; N]).unwrap());
                one.launch(&add, args(&x, &y, 1.0)).unwrap();
                event.record(&one).unwrap();
                three.wait(&event).unwrap();

                // Either the event was still that of the first stream, or this is refused.
                match three.read(&y) {
                    Ok(y) => assert_eq!(y, [round as f32 + 1.0; N]),
                    Err(Error::UnorderedStreams { .. }) => {}
                    Err(error) => panic!("{error}"),
                }
            }
            stop.store(true, SeqCst);
        });
    });
}

#[test]
fn a_clock_is_of_the_place_that_was_waited_for() {
    // While one thread waits for a stream, another lets that stream wait for more: the first wait
    // is no word on that.
    emulator(|context| {
        let (one, two) = (
            Stream::new(&context).unwrap(),
            Stream::new(&context).unwrap(),
        );
        let slow = Stream::new(&context).unwrap();
        let (event, done) = (
            Event::untimed(&context).unwrap(),
            Buffer::<f32>::zeroed(&context, N).unwrap(),
        );
        let (first, last) = (Hold::new(&one), Hold::new(&slow));
        slow.fill(&done, 1.0).unwrap();
        event.record(&slow).unwrap();
        std::thread::scope(|scope| {
            let waits = scope.spawn(|| one.synchronize());
            std::thread::sleep(std::time::Duration::from_millis(50));
            std::thread::scope(|inner| {
                inner.spawn(|| {
                    std::thread::sleep(std::time::Duration::from_millis(50));
                    first.open();
                });
                let given = one.wait(&event);
                assert!(given.is_ok(), "{given:?}");
                // On this emulator a wait covers what was given before it began, so that this one
                // ends.
                waits.join().unwrap().unwrap();
            });
            let refused = two.fill(&done, 2.0);
            last.open();
            assert!(
                matches!(refused, Err(Error::UnorderedStreams { .. })),
                "{refused:?}"
            );
        });
    });
}
