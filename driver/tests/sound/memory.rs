//! Memory: pinned and shared between threads, given back in time, asked for again.

use warpwright_cuda_emu::EmulatorConfig;
use warpwright_driver::memory::{GrowableBuffer, PhysicalMemory};
use warpwright_driver::prelude::*;

use super::*;

#[test]
fn two_threads_write_and_read_pinned_memory() {
    emulator(|context| {
        let pinned = Pinned::<u64>::zeroed(&context, 4).unwrap();
        let shared = &pinned;
        std::thread::scope(|scope| {
            for thread in 1..=2u64 {
                scope.spawn(move || {
                    for round in 0..rounds(20_000) as u64 {
                        shared.write((round % 4) as usize, thread * 0x0101_0101_0101_0101);
                        for (i, value) in shared.to_vec().into_iter().enumerate() {
                            let whole =
                                [0, 0x0101_0101_0101_0101, 0x0202_0202_0202_0202].contains(&value);
                            assert!(whole, "element {i} is torn: {value:#x}");
                        }
                    }
                });
            }
        });
    });
}

#[test]
fn pinned_elements_of_every_size_come_back() {
    emulator(|context| {
        let bytes = Pinned::<[u8; 3]>::zeroed(&context, 5).unwrap();
        bytes.write_slice(1, &[[1, 2, 3], [4, 5, 6]]);
        assert_eq!(
            bytes.to_vec(),
            [[0; 3], [1, 2, 3], [4, 5, 6], [0; 3], [0; 3]]
        );
        let mut read = [[9; 3]; 2];
        bytes.read_slice(2, &mut read);
        assert_eq!(read, [[4, 5, 6], [0; 3]]);
        bytes.read_slice(5, &mut []);
        let wide = Pinned::<[f32; 3]>::zeroed(&context, 3).unwrap();
        wide.write(2, [1.0, 2.0, 3.0]);
        assert_eq!(wide.read(2), [1.0, 2.0, 3.0]);

        // SAFETY: nobody else has the memory.
        assert_eq!(unsafe { wide.as_slice() }[2], [1.0, 2.0, 3.0]);
    });
}

/// Of so many bytes.
fn small(memory: u64) -> EmulatorConfig {
    EmulatorConfig {
        memory,
        ..EmulatorConfig::default()
    }
}

#[test]
fn temporaries_beyond_the_device_wait_for_their_turn() {
    let piece = if cfg!(miri) { 1 << 16 } else { 64 << 20 };
    on(small(4 * piece as u64), |context| {
        let stream = Stream::new(&context).unwrap();
        let mut last = None;
        for round in 0..40u8 {
            let temporary = Buffer::<u8>::uninit(&context, piece).unwrap();
            stream.fill(&temporary, round).unwrap();
            last = Some(temporary.get(0..4).unwrap());
        }

        assert_eq!(stream.read(&last.unwrap()).unwrap(), [39; 4]);

        // Freeing waits for the device: what is left from before would wait for the hold.
        context.synchronize().unwrap();
        let hold = Hold::new(&stream);
        let kept: Vec<_> = (0..3)
            .map(|_| Buffer::<u8>::uninit(&context, piece).unwrap())
            .collect();
        for b in &kept {
            stream.fill(b, 1).unwrap();
        }

        drop(kept);
        std::thread::scope(|scope| {
            let takes = scope.spawn(|| Buffer::<u8>::uninit(&context, 3 * piece).map(drop));
            std::thread::sleep(std::time::Duration::from_millis(20));
            hold.open();
            takes.join().unwrap().unwrap();
        });
        let refused = text(Buffer::<u8>::uninit(&context, 8 * piece));
        assert!(
            refused.starts_with(&format!("out of memory: {} bytes requested", 8 * piece)),
            "{refused}"
        );
    });
}

#[test]
fn new_arguments_let_go_of_the_old_ones() {
    on(small(1 << 20), |context| {
        let (stream, add) = (Stream::new(&context).unwrap(), add(&context));
        let y = Buffer::<f32>::zeroed(&context, N).unwrap();
        let first = Buffer::<f32>::zeroed(&context, N).unwrap();
        let mut graph = Graph::new(&context).unwrap();
        let node = graph.launch(&[], &add, args(&first, &y, 1.0)).unwrap();
        let mut exec = graph.instantiate().unwrap();
        drop((graph, first));
        let full = context.memory().unwrap().0;

        // 128 bytes each: a tenth of the rounds would fill the device if one of them stayed.
        for round in 0..rounds(100_000) {
            let x = Buffer::<f32>::uninit(&context, N).unwrap();
            if round % 1000 == 0 {
                x.write(&[round as f32; N]).unwrap();
            }

            exec.set_launch(node, add.with(args(&x, &y, 1.0)).unwrap())
                .unwrap();
            if round % 1000 == 0 {
                exec.launch(&stream).unwrap();
                drop(x);
                assert_eq!(stream.read(&y).unwrap(), [round as f32 + 1.0; N]);
            }
        }

        context.synchronize().unwrap();
        assert_eq!(
            context.memory().unwrap().0,
            full,
            "one buffer is named, as at the start"
        );
    });
}

#[test]
fn a_buffer_in_flight_is_released_when_the_stream_has_passed_and_not_at_the_end() {
    let context = sim::fresh();
    let stream = Stream::new(&context).unwrap();
    for round in 0..rounds(1000) {
        let buffer = Buffer::<u8>::uninit(&context, N).unwrap();
        stream.fill(&buffer, 1).unwrap();
        drop(buffer);
        let [_, memory, ..] = sim::live();
        assert!(
            (1..=11).contains(&memory),
            "{memory} buffers wait in round {round}"
        );
        if round % 10 == 9 {
            sim::run();
        }
    }

    let [events, ..] = sim::live();
    assert!(events <= 11, "{events} events: they are used again");
}

#[test]
fn a_kernel_that_writes_beside_its_buffer_is_reported() {
    emulator(|context| {
        let stream = Stream::new(&context).unwrap();

        // SAFETY: it writes where it must not, which is what the emulator is to tell.
        let kernel = unsafe { Kernel::load(&context, fault::Beside { by: N as u32 }) }.unwrap();
        let (x, y) = (
            Buffer::from_slice(&context, &[1.0; N]).unwrap(),
            Buffer::<f32>::zeroed(&context, N).unwrap(),
        );
        let _next = Buffer::<f32>::zeroed(&context, N).unwrap();
        stream.launch(&kernel, args(&x, &y, 1.0)).unwrap();
        let said = text(stream.synchronize());
        assert!(
            said.contains("ILLEGAL_ADDRESS") && said.contains("beside"),
            "{said}"
        );
    });
}

#[test]
fn a_kernel_that_writes_far_beside_its_buffer_hits_no_other() {
    emulator(|context| {
        let stream = Stream::new(&context).unwrap();
        let (x, y) = (
            Buffer::from_slice(&context, &[1.0; N]).unwrap(),
            Buffer::<f32>::zeroed(&context, N).unwrap(),
        );
        let next = Buffer::<f32>::zeroed(&context, N).unwrap();

        // From the one buffer exactly to the other, as an index that is off may.
        let by = ((next.address() - y.address()) / 4) as u32;

        // SAFETY: as above.
        let kernel = unsafe { Kernel::load(&context, fault::Beside { by }) }.unwrap();
        stream.launch(&kernel, args(&x, &y, 1.0)).unwrap();

        // A 32-bit index reaches 16 GiB. The emulator tells this apart once allocations lie farther
        // apart than that.
        let said = stream.synchronize();
        let apart = (next.address() - y.address()) >> 34 > 0;
        assert_eq!(
            said.is_err(),
            apart,
            "{said:?} with allocations {by} elements apart"
        );
    });
}

#[test]
fn a_piece_whose_event_is_refused_is_not_filled_under_its_copy() {
    use warpwright_driver::sys::CUresult;
    let context = sim::fresh();
    let stream = Stream::new(&context).unwrap();
    let to = Buffer::<u8>::uninit(&context, 64).unwrap();
    let mut staging = Staging::new(&context, 2, 32).unwrap();
    sim::fail("cuEventRecord", CUresult::UNKNOWN, 1);
    assert!(text(staging.write(&stream, &to, &[1; 64])).starts_with("cuEventRecord"));
    assert!(stream.is_idle().unwrap(), "the copy from the piece is done");
    staging.write(&stream, &to, &[2; 64]).unwrap();
    drop((staging, stream, to, context));
    sim::expect_clean("staging");
}

#[test]
fn memory_that_a_stream_took_belongs_to_others_only_after_an_event() {
    emulator(|context| {
        let stream = |name| Stream::new(&context).unwrap().labelled(name);
        let (one, two) = (stream("one"), stream("two"));
        let taken = one.alloc::<f32>(N).unwrap();
        let refused = two.fill(&taken, 1.0);
        assert!(
            matches!(refused, Err(Error::UnorderedStreams { .. })),
            "{refused:?}"
        );

        // The event covers the allocation, which is the last work of the stream.
        let event = Event::untimed(&context).unwrap();
        event.record(&one).unwrap();
        two.wait(&event).unwrap();
        two.fill(&taken, 1.0).unwrap();
        assert_eq!(two.read(&taken).unwrap(), [1.0; N]);
    });
}

#[test]
fn mapped_memory_goes_when_the_work_is_over() {
    emulator(|context| {
        let page = PhysicalMemory::granularity(&context).unwrap();
        let (free, _) = context.memory().unwrap();
        let stream = Stream::new(&context).unwrap();
        let mut buffer = GrowableBuffer::<u32>::reserve(&context, 100).unwrap();
        buffer.grow(100).unwrap();
        assert_eq!(context.memory().unwrap().0, free - page);
        let (hold, held) = std::sync::mpsc::channel::<()>();
        stream.call(move || held.recv().unwrap_or(())).unwrap();
        stream.fill(&buffer.view(), 1).unwrap();
        drop(buffer);
        assert_eq!(
            context.memory().unwrap().0,
            free - page,
            "the fill has not run"
        );
        drop(hold);
        stream.synchronize().unwrap();
        context.synchronize().unwrap();
        assert_eq!(context.memory().unwrap().0, free);
        drop(PhysicalMemory::new(&context, 1).unwrap());
        assert_eq!(context.memory().unwrap().0, free);
    });
}

#[test]
fn boxes_go_from_device_to_device() {
    on(
        EmulatorConfig {
            devices: 2,
            ..EmulatorConfig::default()
        },
        |here| {
            let there = Context::new(&here.driver().device(1).unwrap()).unwrap();
            let (stream, theirs) = (Stream::new(&here).unwrap(), Stream::new(&there).unwrap());

            // Two slices of three rows of four, of which the last two columns of the last two rows
            // go.
            let numbers: Vec<u64> = (0..24).collect();
            let from = Buffer::<u64>::zeroed(&there, 24).unwrap().labelled("from");
            theirs.write(&from, &numbers).unwrap();
            let to = Buffer::<u64>::zeroed(&here, 10).unwrap().labelled("to");
            let from = Boxed::rows(&from, 4).slices(3).at([2, 1, 0]);
            let target = Boxed::rows(&to, 2).slices(2).at([0, 1, 0]);
            stream.copy_box_from_peer(from, target, [2, 1, 2]).unwrap();
            assert_eq!(stream.read(&to).unwrap(), [0, 0, 6, 7, 0, 0, 18, 19, 0, 0]);
            let all = Boxed::rows(&to, 2).slices(2);
            stream.copy_box_from_peer(from, all, [2, 2, 2]).unwrap();
            assert_eq!(
                stream.read(&to).unwrap()[..8],
                [6, 7, 10, 11, 18, 19, 22, 23]
            );
            stream.copy_box_from_peer(from, all, [0, 2, 2]).unwrap();
            assert_eq!(
                text(stream.copy_box_from_peer(from, all, [3, 2, 2])),
                "copy of a box: a box of [3, 2, 2] at [2, 1, 0] in from, which has 24 elements in rows of 4 and slices of 3 rows"
            );
            assert_eq!(
                text(theirs.copy_box_from_peer(from, all, [2, 2, 2])),
                format!("buffer to belongs to {here}, but a stream belongs to {there}")
            );
        },
    );
}

#[test]
fn memory_of_a_graph_goes_to_no_other_device() {
    on(
        EmulatorConfig {
            devices: 2,
            ..EmulatorConfig::default()
        },
        |here| {
            let there = Context::new(&here.driver().device(1).unwrap()).unwrap();
            let stream = Stream::new(&here).unwrap();
            let mut graph = Graph::new(&there).unwrap();
            let (_, taken) = graph.alloc::<u32>(&[], 4).unwrap();
            let to = Buffer::<u32>::zeroed(&here, 4).unwrap();
            let boxes = (Boxed::rows(&taken, 2), Boxed::rows(&to, 2));

            // The graph was never launched: there is nothing at the address.
            let wanted = format!(
                "a copy from another device: memory {} does not exist: a graph allocates it, for its own nodes",
                taken.region().name()
            );
            assert_eq!(text(stream.copy_from_peer(&taken, &to)), wanted);
            assert_eq!(
                text(stream.copy_box_from_peer(boxes.0, boxes.1, [2, 2, 1])),
                wanted
            );
            assert_eq!(stream.read(&to).unwrap(), [0; 4]);
        },
    );
}

#[test]
fn memory_of_a_stream_that_is_dropped_waits_for_the_stream_that_uses_it() {
    let context = sim::fresh();
    let (stream, event) = (
        Stream::new(&context).unwrap(),
        Event::untimed(&context).unwrap(),
    );
    let shared = stream.alloc::<u8>(16).unwrap();
    event.record(&stream).unwrap();
    stream.synchronize().unwrap();
    drop(stream);

    // The only stream that counts is not the one that the memory is of.
    let other = Stream::new(&context).unwrap();
    other.wait(&event).unwrap();
    other.fill(&shared, 1).unwrap();
    drop(shared);
    assert_eq!(sim::count("cuMemFreeAsync"), 0);
    other.synchronize().unwrap();
    assert_eq!(sim::count("cuMemFreeAsync"), 1);
    drop((other, event, context));
    sim::expect_clean("memory of a dropped stream");
}

#[test]
fn memory_of_a_stream_goes_back_without_an_event() {
    let context = sim::fresh();
    let stream = Stream::new(&context).unwrap();
    for _ in 0..10 {
        let scratch = stream.alloc::<u8>(16).unwrap();
        stream.fill(&scratch, 1).unwrap();
    }

    assert_eq!(["cuMemFreeAsync", "cuEventRecord"].map(sim::count), [10, 0]);

    // What other streams do with it is waited for.
    let (other, event) = (
        Stream::new(&context).unwrap(),
        Event::untimed(&context).unwrap(),
    );
    let shared = stream.alloc::<u8>(16).unwrap();
    event.record(&stream).unwrap();
    other.wait(&event).unwrap();
    other.fill(&shared, 1).unwrap();
    drop(shared);
    assert_eq!(sim::count("cuMemFreeAsync"), 10);
    other.synchronize().unwrap();
    assert_eq!(sim::count("cuMemFreeAsync"), 11);
    drop((other, event, stream, context));
    sim::expect_clean("memory of a stream");
}

#[test]
fn a_copy_that_the_host_waits_for_asks_once_which_context_is_current() {
    let context = sim::fresh();
    let (stream, buffer) = (
        Stream::new(&context).unwrap(),
        Buffer::<u8>::uninit(&context, 16).unwrap(),
    );
    let before = sim::count("cuCtxGetCurrent");
    stream.write(&buffer, &[1; 16]).unwrap();
    assert_eq!(sim::count("cuCtxGetCurrent") - before, 1);
    drop((stream, buffer, context));
    sim::expect_clean("a copy");
}
