//! The order of streams that nothing orders: chosen by the seed, and by nothing else.

use std::collections::BTreeSet;

use ptx_emu::Order;
use warpwright_cuda_emu::EmulatorConfig;
use warpwright_driver_sys::*;

use crate::harness::{Emu, code, emu_with, ok};
use crate::streams::Gate;

/// Whether events order the streams.
#[derive(Clone, Copy, PartialEq)]
enum Events {
    Recorded,
    None,
}

fn record_and_wait(emu: &Emu, first: CUstream, second: CUstream) {
    let event = emu.event();
    ok!(emu, cuEventRecord(event, first));
    ok!(emu, cuStreamWaitEvent(second, event, 0));
}

/// Three streams set a word to 1, set it to 2, and copy it. Gives the word and the copy.
fn outcome(order: Order, seed: u64, events: Events) -> (u32, u32) {
    let emu = emu_with(EmulatorConfig {
        order,
        seed,
        ..EmulatorConfig::default()
    });
    let (a, b, c) = (emu.stream(), emu.stream(), emu.stream());
    let (word, copy) = (emu.upload(&[9]), emu.upload(&[9]));
    ok!(emu, cuMemsetD32Async(word, 1, 1, a));
    if events == Events::Recorded {
        record_and_wait(&emu, a, b);
    }

    ok!(emu, cuMemsetD32Async(word, 2, 1, b));
    if events == Events::Recorded {
        record_and_wait(&emu, b, c);
    }

    ok!(emu, cuMemcpyDtoDAsync_v2(copy, word, 4, c));
    ok!(emu, cuCtxSynchronize());
    (emu.download(word, 1)[0], emu.download(copy, 1)[0])
}

#[test]
fn a_seed_chooses_the_order_of_streams() {
    let all = |events| {
        (0..24)
            .map(|seed| outcome(Order::Shuffled, seed, events))
            .collect::<Vec<_>>()
    };
    let found = all(Events::None);
    assert_eq!(
        found,
        all(Events::None),
        "the same seed gives the same order"
    );
    let different: BTreeSet<_> = found.into_iter().collect();
    assert_eq!(
        different,
        BTreeSet::from([(1, 1), (1, 2), (1, 9), (2, 1), (2, 2), (2, 9)])
    );
    assert_eq!(
        BTreeSet::from_iter(all(Events::Recorded)),
        BTreeSet::from([(2, 2)])
    );
    assert_eq!(
        outcome(Order::Reversed, 0, Events::None),
        (1, 9),
        "the last stream first"
    );
}

#[test]
fn streams_that_wait_for_the_program_or_for_each_other_let_others_run() {
    let emu = emu_with(EmulatorConfig {
        order: Order::Shuffled,
        ..EmulatorConfig::default()
    });
    let (a, b, gate) = (emu.stream(), emu.stream(), Gate::new());
    let word = emu.upload(&[0]);
    ok!(emu, cuGraphLaunch(gate.exec(&emu), a));
    ok!(
        emu,
        cuStreamWaitValue32_v2(b, word, 3, CUstreamWaitValue_flags::GEQ)
    );
    ok!(emu, cuMemsetD32Async(word, 3, 1, a));
    let c = emu.stream();
    ok!(emu, cuMemsetD32Async(emu.alloc(4), 3, 1, c));
    ok!(emu, cuStreamSynchronize(c));
    assert_eq!(code!(emu, cuStreamQuery(b)), 600);
    gate.open();
    ok!(emu, cuStreamSynchronize(b));

    // A program that waits for nothing is not waited for.
    ok!(emu, cuMemsetD32Async(word, 4, 1, a));
    let mut looks = 0;
    while emu.download(word, 1)[0] != 4 {
        looks += 1;
        assert!(looks < 1000, "the work never ran");
        std::thread::sleep(std::time::Duration::from_millis(5));
    }

    while code!(emu, cuStreamQuery(a)) != 0 {}
}
