//! Schedules, traces, and the memory as the host sees it.

use ptx_emu::{
    Accesses, Class, ConflictKind, Launch, Memory, MemoryError, Module, Order, Schedule, Trace, run,
};

use crate::machine::{SETUP, Setup, kernel, launch};

const ORDERS: [(Order, u64, usize); 6] = [
    (Order::InOrder, 0, 1),
    (Order::Reversed, 0, 1),
    (Order::Shuffled, 1, 1),
    (Order::Shuffled, 2, 1),
    (Order::InOrder, 0, 3),
    (Order::Shuffled, 3, 3),
];

/// Each block sums its 256 numbers in shared memory and halves.
const BLOCK_SUM: &str = "
    .shared .b32 s[256];
    .reg .b32 %r<8>; .reg .b64 %d<4>; .reg .pred %p;
    mov.u32 %r0, %ctaid.x;
    mad.lo.u32 %r1, %r0, 256, %t;
    mad.wide.u32 %d0, %r1, 4, %in;
    ld.global.nc.u32 %r2, [%d0];
    mov.u32 %r3, s;
    mad.lo.u32 %r3, %t, 4, %r3;
    st.shared.u32 [%r3], %r2;
    mov.u32 %r4, 512;
LOOP:
    bar.sync 0;
    setp.ge.u32 %p, %t, %r4;
    @%p bra NEXT;
    setp.ge.u32 %p, %r4, 256;
    @%p bra NEXT;
    mad.lo.u32 %r5, %r4, 4, %r3;
    ld.shared.u32 %r6, [%r5];
    ld.shared.u32 %r7, [%r3];
    add.u32 %r7, %r7, %r6;
    st.shared.u32 [%r3], %r7;
NEXT:
    shr.u32 %r4, %r4, 1;
    setp.ne.u32 %p, %r4, 0;
    @%p bra LOOP;
    setp.ne.u32 %p, %t, 0;
    @%p bra END;
    ld.shared.u32 %r7, [%r3];
    mad.wide.u32 %d1, %r0, 4, %out;
    st.global.u32 [%d1], %r7;
END:";

/// Each of ten blocks leaves a number, and adds up those of all, which it waits for.
const WAIT_FOR_ALL: &str = "
    .reg .b32 %r<5>; .reg .b64 %d<3>; .reg .pred %p;
    mov.u32 %r0, %ctaid.x;
    mad.wide.u32 %d0, %r0, 4, %in;
    add.u32 %r1, %r0, 1;
    setp.ne.u32 %p, %t, 0;
    @%p bra LEFT;
    st.relaxed.gpu.global.u32 [%d0], %r1;
LEFT:
    mov.u32 %r2, 0;
    mov.u32 %r3, 0;
NEXT:
    mad.wide.u32 %d1, %r2, 4, %in;
ASK:
    ld.relaxed.gpu.global.u32 %r4, [%d1];
    setp.ne.u32 %p, %r4, 0;
    @%p bra THERE;
    nanosleep.u32 20;
    bra ASK;
THERE:
    add.u32 %r3, %r3, %r4;
    add.u32 %r2, %r2, 1;
    setp.lt.u32 %p, %r2, 10;
    @%p bra NEXT;
    mad.wide.u32 %d2, %r0, 4, %out;
    setp.ne.u32 %p, %t, 0;
    @%p bra END;
    st.global.u32 [%d2], %r3;
END:";

#[test]
fn blocks_that_sleep_until_others_have_left_something_get_it() {
    let wanted: Vec<u8> = (0..10).flat_map(|_| 55u32.to_le_bytes()).collect();
    for (order, seed, threads) in ORDERS {
        for trace in [Trace::Off, Trace::On] {
            let setup = Setup {
                grid: 10,
                block: 64,
                order,
                seed,
                threads,
                trace,
                ..SETUP
            };
            let (out, _) = launch(&kernel(WAIT_FOR_ALL), &[0; 40], 40, setup)
                .unwrap_or_else(|fault| panic!("{fault}"));
            assert_eq!(out, wanted, "{order:?} {seed}");
        }
    }

    // Nobody leaves the eleventh number.
    let in_vain = kernel(&WAIT_FOR_ALL.replace("%r2, 10", "%r2, 11"));
    let found = launch(
        &in_vain,
        &[0; 44],
        40,
        Setup {
            grid: 10,
            block: 64,
            ..SETUP
        },
    );
    assert_eq!(found.map(|_| ()).unwrap_err().class, Class::Deadlock);
}

#[test]
fn a_right_kernel_gives_the_same_bytes_under_every_schedule() {
    let input: Vec<u8> = (0..2560u32).flat_map(|i| (i * i).to_le_bytes()).collect();
    let sum = |block: u32| {
        (block * 256..block * 256 + 256)
            .map(|i| i * i)
            .fold(0, u32::wrapping_add)
    };
    let wanted: Vec<u8> = (0..10).flat_map(|block| sum(block).to_le_bytes()).collect();
    for (order, seed, threads) in ORDERS {
        for trace in [Trace::Off, Trace::On] {
            let setup = Setup {
                grid: 10,
                block: 256,
                order,
                seed,
                threads,
                trace,
                ..SETUP
            };
            let (out, stats) = launch(&kernel(BLOCK_SUM), &input, 40, setup)
                .unwrap_or_else(|fault| panic!("{fault}"));
            assert_eq!(out, wanted, "{order:?} {seed}");
            assert_eq!(stats.accesses.is_some(), trace == Trace::On);
        }
    }
}

/// Without its barriers the kernel is refused under every schedule.
#[test]
fn a_forgotten_barrier_shows_under_every_schedule() {
    let text = kernel(&BLOCK_SUM.replace("bar.sync 0;", ""));
    for (order, seed, threads) in ORDERS {
        let setup = Setup {
            grid: 10,
            block: 256,
            order,
            seed,
            threads,
            ..SETUP
        };
        assert!(
            launch(&text, &[1; 10240], 40, setup).is_err(),
            "{order:?} {seed}"
        );
    }
}

#[test]
fn instructions_are_counted() {
    let (_, stats) = launch(
        &kernel(""),
        &[0; 4],
        4,
        Setup {
            grid: 3,
            block: 40,
            ..SETUP
        },
    )
    .expect("it does nothing");
    assert_eq!(
        (stats.warp_instructions, stats.lane_instructions),
        (3 * 2 * 4, 3 * 40 * 4)
    );
}

/// Two launches of a copy `out[i] = in[i]`, the second with its pointers moved.
fn two_copies(memory: &Memory, first: [u64; 2], second: [u64; 2]) -> [Accesses; 2] {
    let body =
        ".reg .b32 %r; .reg .b64 %d<2>; mad.wide.u32 %d0, %t, 4, %in; ld.global.u32 %r, [%d0];
        mad.wide.u32 %d1, %t, 4, %out; st.global.u32 [%d1], %r;";
    let module = Module::parse(&kernel(body)).unwrap_or_else(|e| panic!("{e}"));
    [first, second].map(|pointers| {
        let params = pointers.map(u64::to_le_bytes).concat();
        let kernel = module.kernel("k").expect("it is called k");
        let launch = Launch {
            kernel,
            grid: [1, 1, 1],
            block: [32, 1, 1],
            dynamic_shared: 0,
            params: &params,
        };
        let stats = run(memory, &launch, &Schedule::default(), Trace::On)
            .unwrap_or_else(|fault| panic!("{fault}"));
        stats.accesses.expect("it was traced")
    })
}

/// What a missing edge between two launches is called, and where it shows.
#[test]
fn launches_conflict_on_the_bytes_they_share() {
    let memory = Memory::new(1 << 20);
    let [a, b, c] = [(); 3].map(|()| {
        let address = memory.alloc(512).expect("there is room");
        memory
            .fill(address, &[7], 512)
            .expect("it was just allocated");
        address
    });
    memory.set_label(b, "b");
    let rows = [
        ([a, b], [a, c], None),
        ([a, b], [b + 128, c], None),
        (
            [a, b],
            [b + 124, c],
            Some((ConflictKind::WriteRead, b + 124)),
        ),
        ([a, b], [c, b], Some((ConflictKind::WriteWrite, b))),
        ([b, a], [c, b + 4], Some((ConflictKind::ReadWrite, b + 4))),
    ];
    for (first, second, wanted) in rows {
        let [first, second] = two_copies(&memory, first, second);
        let found = first.conflict(&second);
        assert_eq!(found.as_ref().map(|c| (c.kind, c.address)), wanted);
        if let Some(found) = found {
            assert_eq!(found.allocation.label, "b");
            assert!(found.second.1.text.starts_with(
                if wanted.expect("found").0 == ConflictKind::WriteRead {
                    "ld"
                } else {
                    "st"
                }
            ));
        }
    }
}

/// The last block adds up what the others wrote: fences and an atomic counter order them.
#[test]
fn blocks_that_synchronise_do_not_race() {
    let body = "
        .reg .b32 %r<4>; .reg .b64 %d; .reg .pred %p;
        setp.ne.u32 %p, %t, 0; @%p bra END;
        mov.u32 %r0, %ctaid.x; mad.wide.u32 %d, %r0, 4, %out;
        st.global.u32 [%d], %r0;
        membar.gl;
        atom.global.add.u32 %r1, [%in], 1;
        setp.ne.u32 %p, %r1, 3; @%p bra END;
        membar.gl;
        ld.global.u32 %r2, [%out]; ld.global.u32 %r3, [%out+8]; add.u32 %r2, %r2, %r3;
        st.global.u32 [%out+16], %r2;
    END:";
    let setup = Setup {
        grid: 4,
        trace: Trace::On,
        ..SETUP
    };
    let (out, _) =
        launch(&kernel(body), &[0; 4], 20, setup).unwrap_or_else(|fault| panic!("{fault}"));
    assert_eq!(out[16], 2);
    let unfenced = body.replacen("membar.gl;", "", 1);
    assert!(launch(&kernel(&unfenced), &[0; 4], 20, setup).is_err());
}

#[test]
fn memory_keeps_its_books() {
    let memory = Memory::new(1000);
    let a = memory.alloc(600).expect("there is room");
    let b = memory.alloc(400).expect("there is room");
    assert_eq!(
        (memory.used(), memory.capacity(), a % 256, b % 256),
        (1000, 1000, 0, 0)
    );
    let full = MemoryError::OutOfMemory {
        asked: 1,
        used: 1000,
        capacity: 1000,
    };
    assert_eq!(memory.alloc(1), Err(full.clone()));
    assert_eq!(
        full.to_string(),
        "out of memory: 1 bytes requested, 1000 of 1000 in use"
    );
    assert_eq!(
        memory.free(a + 1),
        Err(MemoryError::NotAnAllocation { address: a + 1 })
    );
    assert_eq!(memory.free(a), Ok(()));
    assert_eq!(
        memory.free(a),
        Err(MemoryError::NotAnAllocation { address: a })
    );
    assert_eq!(memory.find(a), None);
    assert_eq!(
        memory.find(b + 399).map(|i| (i.base, i.bytes)),
        Some((b, 400))
    );
    assert_eq!(memory.find(b + 400), None);
    let c = memory.alloc(600).expect("it was freed");
    assert!(c > b, "addresses are never used twice");
}

#[test]
fn bytes_go_in_and_out() {
    let memory = Memory::new(1 << 20);
    let a = memory.alloc(4100).expect("there is room");
    let data: Vec<u8> = (0..4000u32).map(|i| i as u8).collect();
    for offset in [0, 1, 2, 3, 5, 100] {
        memory
            .write(a + offset, &data)
            .expect("within the allocation");
        let mut out = vec![0; 4000];
        memory
            .read(a + offset, &mut out)
            .expect("within the allocation");
        assert_eq!(out, data);
    }

    let b = memory.alloc(64).expect("there is room");
    assert_eq!(memory.uninitialised(b, 64), Ok(Some(b)));
    memory.fill(b, &[1, 2], 10).expect("within the allocation");
    assert_eq!(memory.uninitialised(b, 64), Ok(Some(b + 20)));
    memory.copy(b + 21, b, 11).expect("within the allocation");
    assert_eq!(memory.uninitialised(b + 21, 43), Ok(Some(b + 32)));
    let mut out = [0; 4];
    memory
        .read(b + 21, &mut out)
        .expect("within the allocation");
    assert_eq!(out, [1, 2, 1, 2]);
    assert_eq!(
        memory.write(b + 62, &[0; 3]),
        Err(MemoryError::OutOfBounds {
            address: b + 62,
            bytes: 3
        })
    );
    assert_eq!(
        memory.fill(b + 1, &[1, 2], 1),
        Err(MemoryError::BadPattern {
            address: b + 1,
            bytes: 2
        })
    );
}

#[test]
fn pinned_memory_is_one_for_host_and_device() {
    let memory = Memory::new(1 << 20);
    let block = memory.alloc_host(64).expect("there is room");
    assert_eq!(block.address() % 4096, 0);
    assert_eq!(block.words().as_ptr() as u64, block.address());
    block.words()[3].store(77, std::sync::atomic::Ordering::Relaxed);
    let mut out = [0; 4];
    memory
        .read(block.address() + 12, &mut out)
        .expect("within the block");
    assert_eq!(out, [77, 0, 0, 0]);
    assert_eq!((memory.used(), memory.free(block.address())), (0, Ok(())));
}

/// Variables are one for each memory, whichever kernel touches them, until the module is unloaded.
#[test]
fn module_variables_have_addresses() {
    let text = kernel("").replace(".visible", ".global .u32 g[3] = {7, 8};\n.visible");
    let module = Module::parse(&text).expect("the module is right");
    let memory = Memory::new(1 << 20);
    let address = module
        .address(&memory, "g")
        .expect("there is room")
        .expect("it exists");
    assert_eq!(module.address(&memory, "g"), Ok(Some(address)));
    assert_eq!(module.address(&memory, "h"), Ok(None));
    let mut out = [1; 12];
    memory.read(address, &mut out).expect("it has twelve bytes");
    assert_eq!(out, [7, 0, 0, 0, 8, 0, 0, 0, 0, 0, 0, 0]);
    module.unload(&memory);
    assert_eq!((memory.used(), memory.find(address)), (0, None));
}

/// Data behind a flag: in order by a fence on both sides, or by release and acquire; else a race.
#[test]
fn flags_order_warps_with_fences_only() {
    let body = |store: &str, load: &str| {
        format!(
            ".shared .b32 data; .shared .b32 flag; .shared .b32 other; .reg .b32 %r<4>; .reg .pred %p<2>;
            setp.eq.u32 %p0, %t, 0;
            @%p0 st.shared.u32 [flag], 0; @%p0 st.shared.u32 [other], 0;
            bar.sync 0;
            setp.eq.u32 %p1, %t, 32;
            @!%p0 bra OTHER;
            st.shared.u32 [data], 42;
            {store}
            bra END;
        OTHER:
            @!%p1 bra END;
        SPIN:
            {load}
            setp.eq.u32 %p1, %r0, 0;
            @%p1 bra SPIN;
            ld.shared.u32 %r1, [data];
            st.global.u32 [%out], %r1;
        END:"
        )
    };
    let rows = [
        (
            "membar.cta; st.volatile.shared.u32 [flag], 1;",
            "ld.volatile.shared.u32 %r0, [flag]; membar.cta;",
            true,
        ),
        (
            "st.release.cta.shared.u32 [flag], 1;",
            "ld.acquire.cta.shared.u32 %r0, [flag];",
            true,
        ),
        (
            "fence.acq_rel.cta; atom.shared.exch.b32 %r0, [flag], 1;",
            "atom.acquire.cta.shared.or.b32 %r0, [flag], 0;",
            true,
        ),
        (
            "st.volatile.shared.u32 [flag], 1;",
            "ld.volatile.shared.u32 %r0, [flag];",
            false,
        ),
        (
            "st.release.cta.shared.u32 [flag], 1;",
            "ld.relaxed.cta.shared.u32 %r0, [flag];",
            false,
        ),
        (
            "st.relaxed.cta.shared.u32 [flag], 1;",
            "ld.acquire.cta.shared.u32 %r0, [flag];",
            false,
        ),
        // An acquire releases nothing, and a release acquires nothing.
        (
            "ld.acquire.cta.shared.u32 %r0, [flag]; st.relaxed.cta.shared.u32 [flag], 1;",
            "ld.acquire.cta.shared.u32 %r0, [flag];",
            false,
        ),
        (
            "st.release.cta.shared.u32 [flag], 1;",
            "ld.relaxed.cta.shared.u32 %r0, [flag]; st.release.cta.shared.u32 [other], 1;",
            false,
        ),
        // A release is for its own address; a fence is for all.
        (
            "st.release.cta.shared.u32 [other], 1; st.relaxed.cta.shared.u32 [flag], 1;",
            "ld.acquire.cta.shared.u32 %r0, [flag];",
            false,
        ),
        (
            "fence.acq_rel.cta; st.relaxed.cta.shared.u32 [other], 1; st.relaxed.cta.shared.u32 [flag], 1;",
            "ld.relaxed.cta.shared.u32 %r0, [flag]; ld.relaxed.cta.shared.u32 %r2, [other]; fence.acq_rel.cta;",
            true,
        ),
        // A store after a release at the same address keeps it.
        (
            "st.release.cta.shared.u32 [flag], 2; st.relaxed.cta.shared.u32 [flag], 1;",
            "ld.acquire.cta.shared.u32 %r0, [flag];",
            true,
        ),
        (
            "fence.release.cta; st.relaxed.cta.shared.u32 [flag], 1;",
            "ld.relaxed.cta.shared.u32 %r0, [flag]; fence.acquire.cta;",
            true,
        ),
        (
            "fence.acquire.cta; st.relaxed.cta.shared.u32 [flag], 1;",
            "ld.relaxed.cta.shared.u32 %r0, [flag]; fence.acquire.cta;",
            false,
        ),
        (
            "fence.release.cta; st.relaxed.cta.shared.u32 [flag], 1;",
            "ld.relaxed.cta.shared.u32 %r0, [flag]; fence.release.cta;",
            false,
        ),
    ];
    for (store, load, right) in rows {
        for order in [Order::InOrder, Order::Reversed] {
            let result = launch(
                &kernel(&body(store, load)),
                &[0; 4],
                4,
                Setup {
                    block: 64,
                    order,
                    fuel: 1 << 20,
                    ..SETUP
                },
            );
            assert_eq!(result.is_ok(), right, "{store} {load}");
        }
    }
}
