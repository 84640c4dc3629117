//! Everything is dropped in every order while work is in flight: nothing is used after it is
//! released, and everything is released once.

use std::any::Any;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

use proptest::prelude::*;
use warpwright_driver::prelude::*;

use super::*;

/// What a program holds, with a name; and how often the function in its graph has run.
struct Things {
    things: Vec<(&'static str, Box<dyn Any>)>,
    ran: Arc<AtomicUsize>,
}

/// One of everything, used by work that has not run.
fn things(context: Context, kernel: Function) -> Result<Things, Error> {
    let ran = Arc::new(AtomicUsize::new(0));
    let (one, two) = (Stream::new(&context)?, Stream::new(&context)?);
    let [a, b, c] = [(); 3].map(|()| Buffer::<u8>::uninit(&context, N));
    let (a, b, c, pinned) = (a?, b?, c?, Pinned::<u8>::zeroed(&context, N)?);
    let (event, timed) = (Event::untimed(&context)?, Event::new(&context)?);
    let launch = |x: &View<u8>, y: &View<u8>| {
        Launch::new(
            &kernel,
            LaunchConfig::line(1, 1),
            vec![HostArg::from(x), HostArg::from(y)],
        )
    };
    let mut graph = Graph::new(&context)?;
    let node = graph.add(&[], launch(&a, &b)?)?;
    let seen = ran.clone();
    graph.host(&[node], move || _ = seen.fetch_add(1, SeqCst))?;
    graph.record(&[node], &timed)?;
    let mut outer = Graph::new(&context)?;
    outer.child(&[], &graph)?;
    let mut exec = outer.instantiate()?;
    let mut changed = graph.instantiate()?;

    one.copy(&pinned, &a)?;
    exec.launch(&one)?;
    let captured = capture(&one, CaptureMode::ThreadLocal, |queue| {
        exec.launch(&one)?;
        queue.push(launch(&a, &b)?.into())
    })?;
    event.record(&one)?;
    two.wait(&event)?;
    captured.instantiate()?.launch(&two)?;
    changed.launch(&two)?;
    changed.set_launch(node, launch(&c, &b)?)?;
    changed.launch(&two)?;
    two.run_launch(&launch(&c, &b)?)?;
    let module = kernel.module().clone();
    let things: Vec<(&'static str, Box<dyn Any>)> = vec![
        ("context", Box::new(context)),
        ("kernel", Box::new(kernel)),
        ("module", Box::new(module)),
        ("streams", Box::new(one)),
        ("stream two", Box::new(two)),
        ("buffers", Box::new((a, b))),
        ("buffer c", Box::new(c)),
        ("pinned", Box::new(pinned)),
        ("events", Box::new((event, timed))),
        ("graphs", Box::new((graph, outer))),
        ("captured", Box::new(captured)),
        ("exec", Box::new(exec)),
        ("changed", Box::new(changed)),
    ];
    Ok(Things { things, ran })
}

const THINGS: usize = 13;

/// Drops in the given order, and runs the device after so many.
fn drop_in_order(order: &[usize], run_after: usize) -> (Arc<AtomicUsize>, String) {
    let context = sim::fresh();
    let kernel = sim::kernel(&context, 2);
    let Things { things, ran } = things(context, kernel).unwrap();
    let mut things: Vec<_> = things.into_iter().map(Some).collect();
    let mut names = Vec::new();
    for (n, at) in order.iter().enumerate() {
        if n == run_after {
            sim::run();
            names.push("(the device works)");
        }
        let (name, thing) = things[*at].take().unwrap();
        names.push(name);
        drop(thing);
    }

    (ran, names.join(", "))
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(rounds(3000) as u32) })]
    #[test]
    fn every_order_releases_everything_once_and_nothing_early(
        order in Just((0..THINGS).collect::<Vec<_>>()).prop_shuffle(),
        run_after in 0..=THINGS,
    ) {
        let (ran, names) = drop_in_order(&order, run_after);
        sim::expect_clean(&names);
        prop_assert_eq!(ran.load(SeqCst), 4, "two graphs, one of them twice, and the captured: {}", names);
        prop_assert_eq!(Arc::strong_count(&ran), 1, "the function is gone: {}", names);
    }
}

#[test]
fn dropped_in_flight_on_the_emulator_the_results_are_right() {
    emulator(|context| {
        let result = Buffer::<f32>::zeroed(&context, N).unwrap();
        // Each round drops the five things below in another order, all of them while the stream
        // waits.
        for round in 0..rounds(120) {
            let (stream, add) = (Stream::new(&context).unwrap(), add(&context));
            let hold = Hold::new(&stream);
            let x = Buffer::from_slice(&context, &[round as f32; N]).unwrap();
            let middle = Buffer::<f32>::zeroed(&context, N).unwrap();
            let mut graph = Graph::new(&context).unwrap();
            graph
                .launch(&[], &add, args(&middle, &result, 10.0))
                .unwrap();
            let mut exec = graph.instantiate().unwrap();
            stream.launch(&add, args(&x, &middle, 1.0)).unwrap();
            exec.launch(&stream).unwrap();
            let mut things: Vec<Box<dyn Any>> = vec![
                Box::new(stream),
                Box::new(add),
                Box::new((x, middle)),
                Box::new(graph),
                Box::new(exec),
            ];
            let mut code = round;
            while !things.is_empty() {
                drop(things.remove(code % things.len()));
                code /= 5;
            }

            hold.open();
            assert_eq!(result.to_vec().unwrap(), [round as f32 + 11.0; N]);
        }
    });
    assert_eq!(warpwright_cuda_emu::findings(), [""; 0]);
}
