//! Manual, "barrier.cluster", "mapa", "setmaxnreg", and accesses to `.shared::cluster`: blocks that share their memory.

use ptx_emu::{
    Class, ElementKind, Fault, Launch, Memory, Module, Order, Schedule, TensorMap, Trace, run,
};

const SCHEDULES: [(Order, u64); 4] = [
    (Order::InOrder, 0),
    (Order::Reversed, 1),
    (Order::Shuffled, 2),
    (Order::Shuffled, 3),
];

/// A program in clusters of `blocks`: `%rank`, the peer's number `%peer`, 16 bytes of shared memory for each thread at
/// `%own`, and at the same place of the peer's at `%far`; an mbarrier of `count` at `%bar`, and at `%there`.
fn program(blocks: u32, count: u32, body: &str) -> String {
    format!(
        ".version 8.1\n.target sm_90a\n.address_size 64\n.extern .shared .align 1024 .b8 s[];\n\
         .visible .entry k(.param .align 64 .b8 map[128], .param .u64 out, .param .u64 x)\n\
         .explicitcluster\n.reqnctapercluster {blocks}, 1, 1\n{{\n\
         .reg .b64 %map, %out; .reg .b32 %t, %s, %own, %far, %bar, %there, %rank, %peer, %n, %r<8>; .reg .b16 %h;\n\
         .reg .pred %first, %p, %zero; .shared .b64 bar;\n\
         mov.b64 %map, map; cvta.param.u64 %map, %map; ld.param.u64 %out, [out]; mov.u32 %t, %tid.x; mov.u32 %s, s;\n\
         mov.u32 %rank, %cluster_ctarank; mov.u32 %n, %cluster_nctarank; add.u32 %peer, %rank, 1; rem.u32 %peer, %peer, %n;\n\
         mov.u32 %bar, bar; setp.eq.u32 %first, %t, 0; setp.eq.u32 %zero, %rank, 0; mad.lo.u32 %own, %t, 16, %s;\n\
         mapa.shared::cluster.u32 %far, %own, %peer; mapa.shared::cluster.u32 %there, %bar, %peer;\n\
         mov.u32 %r0, %ctaid.x; mad.lo.u32 %r0, %r0, 64, %t; mad.wide.u32 %out, %r0, 4, %out;\n\
         @%first mbarrier.init.shared.b64 [%bar], {count};\n@%first fence.mbarrier_init.release.cluster;\n\
         {SYNC}{body}\nret;\n}}\n"
    )
}

const ARRIVE: &str = "barrier.cluster.arrive.release.aligned;\n";
const WAIT: &str = "barrier.cluster.wait.acquire.aligned;\n";
const SYNC: &str =
    "barrier.cluster.arrive.release.aligned;\nbarrier.cluster.wait.acquire.aligned;\n";

/// Runs four blocks of 64 threads; gives a word of each thread.
fn launch(
    blocks: u32,
    count: u32,
    body: &str,
    (order, seed): (Order, u64),
) -> Result<Vec<u32>, Box<Fault>> {
    let text = program(blocks, count, body);
    let module = Module::parse(&text).unwrap_or_else(|e| panic!("{e}\n{text}"));
    let memory = Memory::new(1 << 24);
    let (x, out) = (
        memory.alloc(4096).expect("room"),
        memory.alloc(1024).expect("room"),
    );
    memory
        .write(
            x,
            &(0..1024u32)
                .flat_map(|v| v.to_le_bytes())
                .collect::<Vec<_>>(),
        )
        .expect("allocated");
    memory.fill(out, &[0], 1024).expect("allocated");
    let map = TensorMap {
        address: x,
        element: 4,
        kind: ElementKind::Unsigned,
        swizzle: 0,
        dims: vec![1024],
        strides: vec![],
        boxed: vec![256],
    };
    let params = [
        &map.encode().expect("a map")[..],
        &out.to_le_bytes(),
        &x.to_le_bytes(),
    ]
    .concat();
    let kernel = module.kernel("k").expect("it is in the text");
    let launch = Launch {
        kernel,
        grid: [4, 1, 1],
        block: [64, 1, 1],
        dynamic_shared: 4096,
        params: &params,
    };
    for trace in [Trace::On, Trace::Off] {
        run(
            &memory,
            &launch,
            &Schedule {
                order,
                seed,
                ..Schedule::default()
            },
            trace,
        )?;
    }

    let mut bytes = vec![0; 1024];
    memory.read(out, &mut bytes).expect("allocated");
    Ok(bytes
        .as_chunks::<4>()
        .0
        .iter()
        .map(|b| u32::from_le_bytes(*b))
        .collect())
}

/// A block alone needs no fence behind the initialisation of an mbarrier, and Triton writes none; a cluster does.
#[test]
fn mbarriers_of_a_cluster_are_fenced() {
    let late =
        ".shared .b64 late; mov.u32 %bar, late; @%first mbarrier.init.shared.b64 [late], 1;\n";
    for schedule in SCHEDULES {
        let body = |mask| format!("{late}{SYNC}{}{STORE}{SYNC}", multicast(mask, 1024));
        let out = launch(1, 1, &body(1), schedule).unwrap_or_else(|fault| panic!("{fault}"));
        assert!(
            out.iter()
                .enumerate()
                .all(|(i, v)| *v == 4 * (i as u32 % 64)),
            "{out:?}"
        );
        let fault = launch(2, 1, &body(3), schedule).expect_err("no fence");
        assert_eq!(fault.class, Class::Mbarrier, "{fault}");
        assert!(
            fault.what.contains("whose initialisation it may not see"),
            "{fault}"
        );
    }
}

/// Block 0 of each cluster asks for 1 KiB for all of it; all expect it.
fn multicast(mask: u32, bytes: u32) -> String {
    format!(
        "mov.u32 %r1, 0; mov.b16 %h, {mask};
         @%first mbarrier.arrive.expect_tx.shared::cta.b64 _, [%bar], {bytes};
         and.pred %zero, %zero, %first;
         @%zero cp.async.bulk.tensor.1d.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster [%s], [%map, {{%r1}}], [%bar], %h;
         LOOP: mbarrier.try_wait.parity.shared::cta.b64 %p, [%bar], 0; @!%p bra LOOP;
         ld.shared.u32 %r2, [%own];\n"
    )
}

const STORE: &str = "st.global.u32 [%out], %r2;\n";

#[test]
fn blocks_reach_each_other() {
    type Value = fn(u32, u32) -> u32;
    let write = "mad.lo.u32 %r1, %rank, 1000, %t;\n";
    let rows: &[(&[&str], Value)] = &[
        // Thread t of a block reads what its peer stored, or stores at its peer's.
        (&[write, "st.shared.u32 [%own], %r1;", SYNC, "ld.shared::cluster.u32 %r2, [%far];", SYNC], |peer, t| 1000 * peer + t),
        (&[write, "st.shared::cluster.u32 [%far], %r1;", SYNC, "ld.shared.u32 %r2, [%own];"], |peer, t| 1000 * (1 - peer.min(1)) + t),
        // By generic addresses, and back from one to the rank.
        (
            &[
                ".reg .b64 %g; cvt.u64.u32 %g, %own; cvta.shared.u64 %g, %g; mapa.u64 %g, %g, %peer;",
                write,
                "st.u32 [%g], %r1;",
                SYNC,
                "ld.shared.u32 %r2, [%own]; getctarank.u64 %r3, %g; sub.u32 %r3, %r3, %peer; add.u32 %r2, %r2, %r3;
                 getctarank.shared::cluster.u32 %r3, %far; sub.u32 %r3, %r3, %peer; add.u32 %r2, %r2, %r3;",
            ],
            |peer, t| 1000 * peer + t,
        ),
        // By an mbarrier of the peer, at which all threads arrive.
        (
            &[
                write,
                "st.shared::cluster.v4.u32 [%far], {%r1,%r1,%r1,%r1}; mbarrier.arrive.shared::cluster.b64 _, [%there];
                 LOOP: mbarrier.try_wait.parity.shared::cta.b64 %p, [%bar], 0; @!%p bra LOOP; ld.shared.u32 %r2, [%own+12];",
                SYNC,
            ],
            |peer, t| 1000 * (1 - peer.min(1)) + t,
        ),
        (&["mov.u32 %r2, %clusterid.x; mad.lo.u32 %r2, %r2, 10, %peer;"], |peer, _| peer),
    ];
    for (body, value) in rows {
        for schedule in SCHEDULES {
            let body = [body, &[STORE][..]].concat().concat();
            let out =
                launch(2, 64, &body, schedule).unwrap_or_else(|fault| panic!("{body}: {fault}"));
            for (i, found) in out.into_iter().enumerate() {
                let (block, t) = (i as u32 / 64, i as u32 % 64);
                let peer = 1 - block % 2;
                let wanted = if body.contains("%clusterid") {
                    10 * (block / 2) + peer
                } else if body.contains("st.shared::cluster") {
                    // The peer stores its own number there.
                    1000 * peer + t
                } else {
                    value(peer, t)
                };
                assert_eq!(found, wanted, "{body}: block {block} thread {t}");
            }
        }
    }
}

#[test]
fn a_copy_reaches_all_blocks() {
    for schedule in SCHEDULES {
        for blocks in [1, 2, 4] {
            let body = multicast((1 << blocks) - 1, 1024) + STORE + SYNC;
            let out = launch(blocks, 1, &body, schedule).unwrap_or_else(|fault| panic!("{fault}"));
            assert!(
                out.iter()
                    .enumerate()
                    .all(|(i, v)| *v == 4 * (i as u32 % 64)),
                "{blocks}: {out:?}"
            );
        }
    }
}

/// Block 0 of each cluster asks for 1 KiB of plain memory for all of it; all expect it.
fn plain_multicast(mask: u32) -> String {
    let plain = multicast(mask, 1024)
        .replace(".tensor.1d", "")
        .replace("[%map, {%r1}], [%bar]", "[%x], 1024, [%bar]");
    format!(".reg .b64 %x; ld.param.u64 %x, [x]; {plain}")
}

/// Manual, "cp.async.bulk": with `.multicast::cluster` the bytes and their count go to the same place in each block.
#[test]
fn plain_bytes_reach_all_blocks() {
    for schedule in SCHEDULES {
        for blocks in [1, 2, 4] {
            let body = plain_multicast((1 << blocks) - 1) + STORE + SYNC;
            let out = launch(blocks, 1, &body, schedule).unwrap_or_else(|fault| panic!("{fault}"));
            assert!(
                out.iter()
                    .enumerate()
                    .all(|(i, v)| *v == 4 * (i as u32 % 64)),
                "{blocks}: {out:?}"
            );
        }
        let fault = launch(2, 1, &(plain_multicast(1) + SYNC), schedule)
            .expect_err("one block gets nothing");
        assert_eq!(fault.class, Class::Deadlock, "{fault}");
    }
}

/// Each thread stores 16 bytes at its peer's, which expects `bytes` of all.
fn stores(bytes: u32, barrier: &str, wait: &str) -> String {
    format!(
        "@%first mbarrier.arrive.expect_tx.shared::cta.b64 _, [%bar], {bytes};
         mad.lo.u32 %r1, %rank, 1000, %t; cvt.u64.u32 %out64, %r1;
         st.async.shared::cluster.mbarrier::complete_tx::bytes.v2.b64 [%far], {{%out64, 7}}, [{barrier}];
         {wait} ld.shared.u32 %r2, [%own]; ld.shared.u32 %r3, [%own+8]; add.u32 %r2, %r2, %r3;\n"
    )
}

/// Manual, "st.async": it completes on an mbarrier of the block that it stores to.
#[test]
fn stores_complete_on_an_mbarrier() {
    let wait = "LOOP: mbarrier.try_wait.parity.shared::cta.b64 %p, [%bar], 0; @!%p bra LOOP;";
    let declared = |body: String| format!(".reg .b64 %out64; {body}");
    for schedule in SCHEDULES {
        let body = declared(stores(1024, "%there", wait)) + STORE + SYNC;
        let out = launch(2, 1, &body, schedule).unwrap_or_else(|fault| panic!("{fault}"));
        for (i, found) in out.into_iter().enumerate() {
            let peer = 1 - i as u32 / 64 % 2;
            assert_eq!(found, 1000 * peer + i as u32 % 64 + 7, "thread {i}");
        }

        let rows = [
            (stores(1040, "%there", wait), "at the mbarrier at"),
            (
                stores(1024, "%bar", wait),
                "another block than that of its mbarrier",
            ),
            (
                stores(1024, "%there", wait).replace("[%far]", "[%far+8]"),
                "not a multiple of 16",
            ),
            // Before it lands, while it does not count as issued, and after.
            (
                stores(1024, "%there", "") + STORE + wait,
                "has written|in flight|nothing orders",
            ),
        ];
        for (body, parts) in rows {
            let fault = launch(2, 1, &(declared(body.clone()) + SYNC), schedule).expect_err(&body);
            assert!(
                parts.split('|').any(|part| fault.what.contains(part)),
                "{body}: {fault}"
            );
        }
    }
}

/// Manual, "cp.async.bulk": from shared memory of a block to its peer's.
#[test]
fn copies_within_shared_memory_reach_the_peer() {
    let wait = "LOOP: mbarrier.try_wait.parity.shared::cta.b64 %p, [%bar], 0; @!%p bra LOOP;\n";
    let fenced = "fence.proxy.async; bar.sync 0;\n";
    let copy = |fence: &str, barrier: &str, bytes: u32, after: &str| {
        format!(
            "mad.lo.u32 %r1, %rank, 1000, %t; st.shared.v4.u32 [%own], {{%r1, %r1, %r1, %r1}}; {fence}
             @%first mbarrier.arrive.expect_tx.shared::cta.b64 _, [%bar], 512; mapa.shared::cluster.u32 %r4, %s, %peer;
             add.u32 %r4, %r4, 1024;
             @%first cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes [%r4], [%s], {bytes}, [{barrier}];
             {after} {wait} and.b32 %r1, %t, 31; mad.lo.u32 %r1, %r1, 16, %s; ld.shared.u32 %r2, [%r1+1024];\n"
        )
    };
    for schedule in SCHEDULES {
        let run = |body: String| launch(2, 1, &(body + STORE + SYNC), schedule);
        let out = run(copy(fenced, "%there", 512, "")).unwrap_or_else(|fault| panic!("{fault}"));
        for (i, found) in out.into_iter().enumerate() {
            assert_eq!(
                found,
                1000 * (1 - i as u32 / 64 % 2) + i as u32 % 32,
                "thread {i}"
            );
        }

        for (body, part) in [
            (
                copy("bar.sync 0;", "%there", 512, ""),
                "no fence orders the two proxies",
            ),
            (
                copy(fenced, "%bar", 512, ""),
                "another block than that of its mbarrier",
            ),
            (
                copy(
                    "add.u32 %s, %s, 8; fence.proxy.async; bar.sync 0;\n",
                    "%there",
                    512,
                    "",
                ),
                "multiple of 16",
            ),
            (copy(fenced, "%there", 496, ""), "at the mbarrier at"),
        ] {
            let fault = run(body.clone()).expect_err(part);
            assert!(fault.what.contains(part), "{body}: {fault}");
        }
    }

    // What is written again at once is seen where the copy is still under way.
    let again = copy(fenced, "%there", 512, "@%first st.shared.u32 [%own], 7;");
    let seen = (0..8).filter(|seed| {
        launch(
            2,
            1,
            &(again.clone() + STORE + SYNC),
            (Order::Shuffled, *seed),
        )
        .is_err()
    });
    assert!(seen.count() > 0);
}

/// All threads of a block change one value of the peer's, which is 100 at first and expects the bytes of all.
fn reductions(op: &str, value: &str, wait: &str) -> String {
    let bytes = if op.ends_with("64") { 8 } else { 4 };
    format!(
        ".reg .b64 %v; .reg .b32 %w; st.shared.v2.u32 [%own], {{100, 0}};
         mapa.shared::cluster.u32 %r4, %s, %peer; mad.lo.u32 %r5, %t, -1, 0; mov.b64 %v, {{%t, %t}};
         {SYNC} @%first mbarrier.arrive.expect_tx.shared::cta.b64 _, [%bar], {};
         red.async.relaxed.cluster.shared::cluster.mbarrier::complete_tx::bytes.{op} [%r4], {value}, [%there];
         {wait} ld.shared.v2.u32 {{%r2, %w}}, [%s]; add.u32 %r2, %r2, %w;\n",
        64 * bytes
    )
}

/// Manual, "red.async": reductions of many threads meet, and complete on an mbarrier of the block whose memory they change.
#[test]
fn reductions_complete_on_an_mbarrier() {
    let wait = "LOOP: mbarrier.try_wait.parity.shared::cta.b64 %p, [%bar], 0; @!%p bra LOOP;";
    let rows: &[(&str, &str, i32)] = &[
        ("add.u32", "%t", 100 + 2016),
        ("add.s32", "%r5", 100 - 2016),
        ("add.u64", "%v", 100 + 2 * 2016),
        ("add.s64", "%v", 100 + 2 * 2016),
        ("min.u32", "%t", 0),
        ("min.s32", "%r5", -63),
        ("max.u32", "%r5", -1),
        ("max.s32", "%r5", 100),
        // The first of 64 starts again at 0, or at 40.
        ("inc.u32", "80", 63),
        ("dec.u32", "40", 18),
        ("and.b32", "96", 96),
        ("or.b32", "%t", 127),
        ("xor.b32", "3", 100),
    ];
    for (i, (op, value, wanted)) in rows.iter().enumerate() {
        let body = reductions(op, value, wait) + STORE + SYNC;
        let out =
            launch(2, 1, &body, SCHEDULES[i % 4]).unwrap_or_else(|fault| panic!("{op}: {fault}"));
        assert!(
            out.iter().all(|found| *found == *wanted as u32),
            "{op}: {out:?}"
        );
    }

    let generic =
        "cvt.u64.u32 %v, %s; cvta.shared.u64 %v, %v; .reg .b64 %b; mapa.u64 %v, %v, %peer;
        cvt.u64.u32 %b, %bar; cvta.shared.u64 %b, %b; mapa.u64 %b, %b, %peer; red.async";
    let body = reductions("add.u32", "%t", wait)
        .replace("red.async", generic)
        .replace(".cluster.shared::cluster.mb", ".cluster.mb")
        .replace("[%r4], %t, [%there]", "[%v], %t, [%b]");
    let out = launch(2, 1, &(body.clone() + STORE + SYNC), SCHEDULES[2])
        .unwrap_or_else(|fault| panic!("{fault}"));
    assert!(out.iter().all(|found| *found == 2116), "{body}: {out:?}");
}

#[test]
fn reductions_are_checked() {
    let wait = "LOOP: mbarrier.try_wait.parity.shared::cta.b64 %p, [%bar], 0; @!%p bra LOOP;";
    let body = |wait: &str| reductions("add.u32", "%t", wait);
    let late = "LOOP: mbarrier.try_wait.parity.shared::cta.b64 %p, [%bar], 0; @!%p bra LOOP;\n";
    let rows = [
        // The peer's value is read before it is waited for.
        (body("") + STORE + late, "nothing orders"),
        (
            body(wait).replace("[%there];", "[%bar];"),
            "red.async to another block than that of its mbarrier",
        ),
        (
            body(wait)
                .replace("[%there];", "[%bar];")
                .replace("[%r4], ", "[%s], "),
            "red.async to shared memory of the thread's own block",
        ),
        (
            body(wait).replace("st.shared.v2.u32 [%own], {100, 0};", ""),
            "has written",
        ),
        (
            body(wait).replace("[%r4], ", "[%r4+2], "),
            "not a multiple of 4",
        ),
        (
            body(wait).replace("[%r4], ", "[%r4+4096], "),
            "outside every variable",
        ),
        (
            body(wait).replace("_, [%bar], 256", "_, [%bar], 260"),
            "at the mbarrier at",
        ),
        // It may come while its value is stored.
        (
            body(wait).replace("red.async", "st.shared::cluster.u32 [%r4], 1; red.async"),
            "nothing orders",
        ),
    ];
    for (body, part) in rows {
        for schedule in SCHEDULES {
            let fault = launch(2, 1, &(body.clone() + SYNC), schedule).expect_err(&body);
            assert!(fault.what.contains(part), "{body}: {fault}");
        }
    }
}

/// Manual, "Addresses as Operands": those of shared memory have 32 bits or 64, of the cluster too.
#[test]
fn atomics_take_short_addresses() {
    let body = [
        "st.shared.u32 [%own], %t;",
        SYNC,
        "atom.shared::cluster.add.u32 %r2, [%far], 5; red.shared::cluster.add.u32 [%far], 6;",
        SYNC,
        "ld.shared.u32 %r3, [%own]; add.u32 %r2, %r2, %r3;",
        STORE,
    ]
    .concat();
    let out = launch(2, 1, &body, SCHEDULES[0]).unwrap_or_else(|fault| panic!("{fault}"));
    assert!(
        out.iter()
            .enumerate()
            .all(|(i, v)| *v == 2 * (i as u32 % 64) + 11),
        "{out:?}"
    );
}

/// Parts of a warp arrive and wait at different instructions, without `.aligned`.
#[test]
fn parts_of_a_warp_meet_at_the_barrier_of_the_cluster() {
    let sides = |odd: &str, even: &str| {
        format!(
            "and.b32 %r1, %t, 1; setp.ne.u32 %p, %r1, 0; @%p bra ODD;\n{even}bra.uni JOIN;\nODD:\n{odd}JOIN:\n"
        )
    };
    let store = "mad.lo.u32 %r2, %rank, 1000, %t; st.shared.u32 [%own], %r2;\n";
    let load = "ld.shared::cluster.u32 %r2, [%far];\n";
    let (arrive, wait) = ("barrier.cluster.arrive;\n", "barrier.cluster.wait;\n");
    let both = format!("{arrive}{wait}");
    let relaxed = format!("{arrive}add.u32 %r3, %t, 1;\n{wait}");
    let exits = format!(
        "setp.ge.u32 %p, %t, 40; {SYNC}@%p exit;\n{}",
        sides(&both, &both)
    );
    for barrier in [
        sides(&both, &both),
        sides(&both, &relaxed),
        format!("{}{wait}", sides(arrive, arrive)),
    ] {
        for schedule in SCHEDULES {
            let body = format!("{store}{barrier}{load}{SYNC}{STORE}");
            let out =
                launch(2, 1, &body, schedule).unwrap_or_else(|fault| panic!("{fault}\n{body}"));
            let wanted = |i: u32| 1000 * (1 - i / 64 % 2) + i % 64;
            assert_eq!(out, (0..256).map(wanted).collect::<Vec<_>>(), "{body}");
        }
    }

    launch(2, 1, &format!("{store}{exits}"), SCHEDULES[0])
        .unwrap_or_else(|fault| panic!("{fault}"));
    let missed = [
        (
            sides(&both, ""),
            Class::DivergentBarrier,
            "wait at the barrier of the cluster for lanes 0, 2",
        ),
        (
            sides(&both, "bar.warp.sync -1;\n"),
            Class::DivergentBarrier,
            "which wait at bar.warp.sync",
        ),
        (
            sides(&both, &both.replace("wait", "wait.aligned")),
            Class::DivergentBarrier,
            "at barrier.cluster.wait.aligned",
        ),
        (
            format!("{}{wait}", sides(arrive, "")),
            Class::BarrierMismatch,
            "no arrival before",
        ),
        (
            sides(&both, SYNC),
            Class::DivergentBarrier,
            "at barrier.cluster.arrive.release.aligned",
        ),
    ];
    for (barrier, class, what) in missed {
        let fault =
            launch(2, 1, &format!("{store}{barrier}{SYNC}"), SCHEDULES[0]).expect_err(&barrier);
        assert_eq!(fault.class, class, "{fault}\n{barrier}");
        assert!(fault.what.contains(what), "{fault}\n{barrier}");
    }
}

#[test]
fn mistakes_with_clusters() {
    use Class::{
        AsyncUnfinished, BadLaunch, BarrierMismatch, ClusterExit, Deadlock, Mbarrier, OutOfBounds,
        SharedRace,
    };
    let write = "st.shared.u32 [%own], %t;\n";
    let read = "ld.shared::cluster.u32 %r2, [%far];\n";
    let lost = multicast(1, 1024);
    let all = multicast(3, 1024);
    let rows: &[(&[&str], Class, &str)] = &[
        // The peer may be gone.
        (&[write, SYNC, read], ClusterExit, ""),
        (
            &["@%first mbarrier.arrive.shared::cluster.b64 _, [%there];"],
            ClusterExit,
            "",
        ),
        (
            &[
                write,
                SYNC,
                read,
                "barrier.cluster.arrive.relaxed.aligned;",
                WAIT,
            ],
            ClusterExit,
            "nothing orders an access",
        ),
        // A copy that one block does not get, and one that a block does not wait for.
        (&[&lost, SYNC], Deadlock, "at the mbarrier at"),
        (
            &["setp.ne.u32 %p, %rank, 0; @%p exit;", &all],
            AsyncUnfinished,
            "nothing has waited",
        ),
        (
            &[write, SYNC, write, read, SYNC],
            SharedRace,
            "nothing orders the two",
        ),
        (
            &[
                write,
                SYNC,
                write,
                "barrier.cluster.arrive.relaxed.aligned;",
                WAIT,
                read,
                SYNC,
            ],
            SharedRace,
            "nothing orders the two",
        ),
        (
            &[
                "setp.eq.u32 %p, %rank, 0; @%p bra SKIP;",
                ARRIVE,
                WAIT,
                "SKIP: LOOP: bra LOOP;",
            ],
            Deadlock,
            "no thread can continue",
        ),
        (
            &[
                "setp.eq.u32 %p, %t, 63; setp.lt.u32 %first, %t, 32; @%first bra LOOP;",
                ARRIVE,
                WAIT,
                "bra END; LOOP: bar.sync 1, 64; END:",
            ],
            Deadlock,
            "at the cluster's barrier",
        ),
        (&[ARRIVE, ARRIVE], BarrierMismatch, "a second arrival"),
        (&[WAIT], BarrierMismatch, "no arrival before"),
        (
            &["mov.u32 %r1, 2; mapa.shared::cluster.u32 %far, %own, %r1;"],
            OutOfBounds,
            "mapa to block 2 of a cluster of 2",
        ),
        (
            &["mov.u32 %r1, 0x3000400; ld.shared::cluster.u32 %r2, [%r1];"],
            OutOfBounds,
            "is shared memory of no block",
        ),
        (
            &["ld.shared.u32 %r2, [%far];"],
            OutOfBounds,
            "outside every variable",
        ),
        (
            &[&multicast(6, 1024), SYNC],
            OutOfBounds,
            "0b110 of a cluster of 2",
        ),
        (
            &[
                "add.u32 %there, %there, 8; @%first mbarrier.arrive.shared::cluster.b64 _, [%there];",
                SYNC,
            ],
            Mbarrier,
            "there is no mbarrier",
        ),
    ];
    for (body, class, part) in rows {
        for schedule in SCHEDULES {
            let fault = launch(2, 1, &body.concat(), schedule).expect_err(&body.concat());
            assert_eq!(fault.class, *class, "{body:?}: {fault}");
            assert!(fault.what.contains(part), "{body:?}: {fault}");
        }
    }

    let fault = launch(3, 1, "", SCHEDULES[0]).expect_err("four blocks");
    assert_eq!(fault.class, BadLaunch);
    assert_eq!(
        fault.what,
        "a grid of [4, 1, 1] blocks, which is not divisible into clusters of [3, 1, 1]"
    );
}

/// A block's copy to all overtakes loads in another block, unless that fences them.
#[test]
fn copies_to_all_blocks_overtake_loads() {
    const FENCE: &str = "fence.proxy.async.shared::cta;\n";
    let first = multicast(3, 1024);
    let again = first
        .replace("LOOP", "AGAIN")
        .replace("[%bar], 0;", "[%bar], 1;");
    let here = [
        "setp.ne.u32 %p, %rank, 0; @%p bra SKIP;\n",
        FENCE,
        "SKIP:\n",
    ]
    .concat();
    for schedule in SCHEDULES {
        let run = |fence: &str| {
            launch(
                2,
                1,
                &[&first[..], fence, SYNC, &again, STORE, SYNC].concat(),
                schedule,
            )
        };
        run(FENCE).unwrap_or_else(|fault| panic!("{fault}"));
        for (fence, block) in [("", 0), (&here[..], 1)] {
            let fault = run(fence).expect_err("no fence");
            assert_eq!(fault.class, Class::ProxyFence, "{fault}");
            let other = fault.other.expect("the load");
            let wanted = format!("of block {block} of the cluster");
            assert!(
                other.did == "read it" && other.who.contains(&wanted),
                "{}",
                other.who
            );
        }
    }
}

/// The message names block and warp.
#[test]
fn the_peer_is_named() {
    let fault = launch(2, 1, &(multicast(1, 1024) + SYNC), SCHEDULES[0]).expect_err("lost");
    let wanted = "warps 0-1 of block 1 of the cluster wait at the mbarrier at 0x400 in line";
    assert!(fault.what.contains(wanted), "{fault}");
    let body = [
        "st.shared.u32 [%own], %t;",
        SYNC,
        "ld.shared::cluster.u32 %r2, [%far];",
    ]
    .concat();
    let fault = launch(2, 1, &body, SCHEDULES[0]).expect_err("too early");
    assert!(
        fault
            .to_string()
            .contains("put a barrier of the cluster before the end of every block"),
        "{fault}"
    );
}

/// Threads of two warpgroups, launched with 248 registers, of which the second asks for more.
#[test]
fn registers_are_passed_on() {
    let text = |give: u32, take: u32| {
        format!(
            ".version 8.0\n.target sm_90a\n.address_size 64\n.visible .entry k()\n.maxntid 384, 1, 1\n.minnctapersm 1\n{{\n\
             .reg .pred %p; .reg .b32 %t; mov.u32 %t, %tid.x; setp.lt.u32 %p, %t, 128; @%p bra GIVE;\n\
             setmaxnreg.inc.sync.aligned.u32 {take}; ret;\nGIVE: setmaxnreg.dec.sync.aligned.u32 {give}; ret;\n}}\n"
        )
    };
    let launch = |give, take, (order, seed): (Order, u64)| {
        let module = Module::parse(&text(give, take)).unwrap_or_else(|e| panic!("{e}"));
        let kernel = module.kernel("k").expect("it is in the text");
        let launch = Launch {
            kernel,
            grid: [1; 3],
            block: [384, 1, 1],
            dynamic_shared: 0,
            params: &[],
        };
        run(
            &Memory::new(1 << 20),
            &launch,
            &Schedule {
                order,
                seed,
                ..Schedule::default()
            },
            Trace::Off,
        )
    };
    for schedule in SCHEDULES {
        launch(40, 232, schedule).unwrap_or_else(|fault| panic!("{fault}"));
        let fault = launch(40, 240, schedule).expect_err("384 x 168 registers");
        assert_eq!(fault.class, Class::Deadlock, "{fault}");
        assert!(
            fault.what.contains("for 2304 registers, of which"),
            "{fault}"
        );
    }
}
