//! The last of things: what is dropped while work is in flight, and what is left at the end.

use std::sync::Arc;

use warpwright_driver::ordering::Hazard;
use warpwright_driver::prelude::*;
use warpwright_driver::sys::CUresult;

use super::*;

#[test]
fn after_a_stream_is_dropped_in_flight_a_read_waits_for_its_work() {
    emulator(|context| {
        let y = Buffer::<f32>::zeroed(&context, N).unwrap();
        let add = add(&context);
        for round in 0..rounds(20) {
            let stream = Stream::new(&context).unwrap();
            let hold = Hold::new(&stream);
            let x = Buffer::from_slice(&context, &[3.0; N]).unwrap();
            stream.fill(&y, 0.0).unwrap();
            stream.launch(&add, args(&x, &y, 1.0)).unwrap();
            drop((stream, x));
            let opens = std::thread::spawn(move || {
                std::thread::sleep(std::time::Duration::from_millis(5));
                hold.open();
            });
            if round % 2 == 0 {
                context.synchronize().unwrap();
            }

            assert_eq!(y.to_vec().unwrap(), [4.0; N]);
            opens.join().unwrap();
        }
    });
}

#[test]
fn where_the_driver_refuses_events_nothing_is_released_under_work() {
    for call in ["cuEventCreate", "cuEventRecord"] {
        let context = sim::fresh();
        let (stream, kernel) = (Stream::new(&context).unwrap(), sim::kernel(&context, 1));
        sim::fail(call, CUresult::OUT_OF_MEMORY, usize::MAX);
        let buffer = Buffer::<u8>::uninit(&context, 16).unwrap();
        let launch = Launch::new(
            &kernel,
            LaunchConfig::line(1, 1),
            vec![HostArg::from(&*buffer)],
        )
        .unwrap();
        stream.run_launch(&launch).unwrap();
        drop((launch, buffer, kernel, stream));
        assert_eq!(
            sim::live()[1..],
            [1, 0, 1, 0, 0],
            "{call}: memory and module wait for the work"
        );
        context.synchronize().unwrap();
        assert_eq!(sim::live(), [0; 6], "{call}: and are released after it");
        drop(context);
        sim::expect_clean(call);
    }
}

#[test]
fn where_the_emulator_refuses_an_event_a_dropped_stream_still_works() {
    emulator(|context| {
        let (stream, add) = (Stream::new(&context).unwrap(), add(&context));
        let (x, y) = (
            Buffer::from_slice(&context, &[3.0; N]).unwrap(),
            Buffer::zeroed(&context, N).unwrap(),
        );
        let hold = Hold::new(&stream);
        stream.launch(&add, args(&x, &y, 1.0)).unwrap();
        (1..20).for_each(|nth| {
            warpwright_cuda_emu::inject("cuEventCreate", nth, CUresult::OUT_OF_MEMORY)
        });
        drop((x, stream, add));
        hold.open();
        assert_eq!(y.to_vec().unwrap(), [4.0; N]);
    });
}

#[test]
fn a_question_that_fails_is_no_word_that_the_work_is_done() {
    for code in [1, 2, 3, 201, 400, 801, 999].map(CUresult) {
        for call in ["cuEventQuery", "cuStreamQuery"] {
            let context = sim::fresh();
            let (stream, kernel) = (Stream::new(&context).unwrap(), sim::kernel(&context, 1));
            let kept = Arc::new(());
            let mut graph = Graph::new(&context).unwrap();
            let (inside, seen) = (kept.clone(), Arc::downgrade(&kept));
            graph
                .host(&[], move || assert_eq!(Arc::strong_count(&inside), 1))
                .unwrap();
            graph.instantiate().unwrap().launch(&stream).unwrap();
            let buffer = Buffer::<u8>::uninit(&context, 16).unwrap();
            let launch = Launch::new(
                &kernel,
                LaunchConfig::line(1, 1),
                vec![HostArg::from(&*buffer)],
            )
            .unwrap();
            stream.run_launch(&launch).unwrap();
            sim::fail(call, code, usize::MAX);
            if call == "cuStreamQuery" {
                sim::fail("cuEventCreate", code, usize::MAX);
            }

            drop((launch, buffer, kernel, graph, kept));
            assert!(
                seen.strong_count() > 0,
                "{call} {code:?}: the function is called later"
            );
            sim::heal();
            drop((stream, context));
            sim::expect_clean(&format!("{call} {code:?}"));
            assert_eq!(seen.strong_count(), 0);
        }
    }
}

#[test]
fn what_is_dropped_where_the_context_cannot_be_current_waits() {
    for call in ["cuCtxGetCurrent", "cuCtxPushCurrent_v2"] {
        let context = sim::fresh();
        let (stream, kernel) = (Stream::new(&context).unwrap(), sim::kernel(&context, 1));
        let (kept, buffer) = (Arc::new(()), Buffer::<u8>::uninit(&context, 16).unwrap());
        let (inside, seen) = (kept.clone(), Arc::downgrade(&kept));
        let mut graph = Graph::new(&context).unwrap();
        graph
            .host(&[], move || assert_eq!(Arc::strong_count(&inside), 1))
            .unwrap();
        graph.instantiate().unwrap().launch(&stream).unwrap();
        let launch = Launch::new(
            &kernel,
            LaunchConfig::line(1, 1),
            vec![HostArg::from(&*buffer)],
        )
        .unwrap();
        stream.run_launch(&launch).unwrap();
        sim::fail(call, CUresult::NOT_PERMITTED, usize::MAX);
        drop((graph, kept, launch, kernel, buffer));
        assert!(
            seen.strong_count() > 0,
            "{call}: the function is called later"
        );
        sim::heal();
        drop((stream, context));
        sim::expect_clean(call);
        assert_eq!(seen.strong_count(), 0, "{call}");
    }
}

#[test]
fn at_the_end_of_a_context_a_wait_that_fails_does_not_cut_work_off() {
    let context = sim::fresh();
    let stream = Stream::new(&context).unwrap();
    let kept = Arc::new(());
    let (inside, seen) = (kept.clone(), Arc::downgrade(&kept));
    let mut graph = Graph::new(&context).unwrap();
    graph
        .host(&[], move || assert_eq!(Arc::strong_count(&inside), 1))
        .unwrap();
    graph.instantiate().unwrap().launch(&stream).unwrap();
    drop((graph, kept));
    sim::fail("cuStreamSynchronize", CUresult::UNKNOWN, 1);
    sim::sim(|s| s.asking_helps = true);
    drop((stream, context));
    sim::expect_clean("after a wait that failed");
    assert_eq!(seen.strong_count(), 0);
}

#[test]
fn an_event_in_a_graph_lives_as_long_as_the_work() {
    let context = sim::fresh();
    let stream = Stream::new(&context).unwrap();
    let event = Event::untimed(&context).unwrap();
    let mut graph = Graph::new(&context).unwrap();
    graph.record(&[], &event).unwrap();
    graph.instantiate().unwrap().launch(&stream).unwrap();
    drop((graph, event));
    stream.synchronize().unwrap();
    drop((stream, context));
    sim::expect_clean("an event in a graph");
}

#[test]
fn work_in_flight_at_the_end_leaves_nothing() {
    emulator(|context| {
        let (before, _) = context.memory().unwrap();
        for _ in 0..rounds(50) {
            let (stream, add) = (Stream::new(&context).unwrap(), add(&context));
            let (x, y) = (
                Buffer::zeroed(&context, N).unwrap(),
                Buffer::zeroed(&context, N).unwrap(),
            );
            let hold = Hold::new(&stream);
            stream.launch(&add, args(&x, &y, 1.0)).unwrap();
            let mut recorder = Recorder::new(&context).unwrap();
            recorder.launch(&add, args(&x, &y, 1.0)).unwrap();
            recorder
                .finish()
                .instantiate()
                .unwrap()
                .launch(&stream)
                .unwrap();
            drop((x, y, add, stream));
            hold.open();

            // The driver waits for all work when it frees memory: what is held would never end.
            context.synchronize().unwrap();
        }

        context.synchronize().unwrap();
        assert_eq!(context.memory().unwrap().0, before);
        let stream = Stream::new(&context).unwrap();
        let buffer = Buffer::<f32>::zeroed(&context, N).unwrap();
        let _hold = Hold::new(&stream);
        stream.fill(&buffer, 1.0).unwrap();
        drop(_hold);
        let driver = *context.driver();
        drop((stream, buffer, context));
        let again = Context::new(&driver.device(0).unwrap()).unwrap();
        assert_eq!(
            again.memory().unwrap().0,
            before,
            "the context went, with all that was in it"
        );
    });
}

#[test]
fn the_reasons_of_an_edge_are_those_of_its_own_graph() {
    let context = sim::fresh();
    let buffer = Buffer::<u8>::uninit(&context, N).unwrap().labelled("x");
    let [mut graph, mut other] = [(); 2].map(|()| Graph::new(&context).unwrap());
    let first = graph.fill(&[], &buffer, 1).unwrap();
    let second = graph.fill(&[first], &buffer, 2).unwrap();
    let foreign = other.fill(&[], &buffer, 3).unwrap();
    assert_eq!(
        graph.reasons(first, second).unwrap(),
        [(Hazard::WriteAfterWrite, "x".to_string())]
    );
    for (from, to) in [(first, foreign), (foreign, second), (foreign, foreign)] {
        assert_eq!(
            text(graph.reasons(from, to)),
            "node 0 is not a node of this graph"
        );
    }
}

#[test]
fn what_a_function_of_the_host_drops_waits_for_somebody_who_may_call_the_driver() {
    let context = sim::fresh();
    let stream = Stream::new(&context).unwrap();
    let buffer = Buffer::<u8>::uninit(&context, N).unwrap();
    stream.fill(&buffer, 1).unwrap();
    let (kept, called) = (Mutex::new(Some(buffer)), Arc::new(Mutex::new(None)));
    let told = called.clone();
    let mut graph = Graph::new(&context).unwrap();
    graph
        .host(&[], move || {
            let calls = || sim::sim(|s| s.calls.values().sum::<usize>());
            let before = calls();
            drop(kept.lock().unwrap().take());
            *told.lock().unwrap() = Some(calls() - before);
        })
        .unwrap();
    graph.instantiate().unwrap().launch(&stream).unwrap();
    sim::run();
    assert_eq!(
        *called.lock().unwrap(),
        Some(0),
        "calls of the driver by the function"
    );
    assert_eq!(sim::live()[1], 1);
    stream.synchronize().unwrap();
    assert_eq!(sim::live()[1], 0, "released by the next one that looks");
    drop((graph, stream, context));
    sim::expect_clean("a function that drops");
}
