//! `mbarrier` and `cp.async.bulk`: a ring of stages that one thread fills and two warps empty, right and with each
//! mistake planted.

use ptx_emu::{Accesses, Class, Fault, Order, Trace};

use crate::machine::{SETUP, Setup, kernel, launch};

/// Warp 0 fills two stages of 128 bytes in turn, eight times in all; warps 1 and 2 add 1000 to each word.
const RING: &str = "
    .shared .align 128 .b8 ring[256];
    .shared .align 8 .b64 full[2];
    .shared .align 8 .b64 empty[2];
    .reg .b32 %r<10>, %ring, %full, %empty;
    .reg .b64 %d<4>, %policy;
    .reg .pred %first, %consumer, %done, %more, %leader;
    setp.eq.u32 %first, %t, 0;
    @!%first bra READY;
    mbarrier.init.shared::cta.b64 [full], 1;
    mbarrier.init.shared::cta.b64 [full+8], 1;
    mbarrier.init.shared::cta.b64 [empty], 2;
    mbarrier.init.shared.b64 [empty+8], 2;
    fence.mbarrier_init.release.cluster;
    fence.proxy.async.shared::cta;
READY:
    bar.sync 0;
    mov.u32 %ring, ring;
    mov.u32 %full, full;
    mov.u32 %empty, empty;
    mov.u32 %r0, 0;
    setp.ge.u32 %consumer, %t, 32;
    @%consumer bra CONSUME;
    @!%first bra END;
    createpolicy.fractional.L2::evict_first.b64 %policy, 1.0;
    cp.async.bulk.prefetch.L2.global [%in], 1024;
PRODUCE:
    and.b32 %r1, %r0, 1;
    mad.lo.u32 %r2, %r1, 8, %full;
    mad.lo.u32 %r3, %r1, 8, %empty;
    mad.lo.u32 %r4, %r1, 128, %ring;
    shr.u32 %r5, %r0, 1;
    and.b32 %r5, %r5, 1;
    xor.b32 %r5, %r5, 1;
ROOM:
    mbarrier.try_wait.parity.shared::cta.b64 %done, [%r3], %r5;
    @!%done bra ROOM;
    mad.wide.u32 %d0, %r0, 128, %in;
    mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r2], 128;
    cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint [%r4], [%d0], 128, [%r2], %policy;
    add.u32 %r0, %r0, 1;
    setp.lt.u32 %more, %r0, 8;
    @%more bra PRODUCE;
    bra END;
CONSUME:
    and.b32 %r1, %r0, 1;
    mad.lo.u32 %r2, %r1, 8, %full;
    mad.lo.u32 %r3, %r1, 8, %empty;
    mad.lo.u32 %r4, %r1, 128, %ring;
    shr.u32 %r5, %r0, 1;
    and.b32 %r5, %r5, 1;
FILLED:
    mbarrier.try_wait.parity.shared::cta.b64 %done, [%r2], %r5;
    @!%done bra FILLED;
    and.b32 %r6, %t, 31;
    mad.lo.u32 %r4, %r6, 4, %r4;
    ld.shared.u32 %r7, [%r4];
    fence.proxy.async;
    bar.warp.sync -1;
    setp.eq.u32 %leader, %r6, 0;
    @%leader mbarrier.arrive.shared::cta.b64 _, [%r3];
    add.u32 %r7, %r7, 1000;
    mad.lo.u32 %r8, %r0, 64, %t;
    mad.wide.u32 %d1, %r8, 4, %out;
    st.global.u32 [%d1+-128], %r7;
    add.u32 %r0, %r0, 1;
    setp.lt.u32 %more, %r0, 8;
    @%more bra CONSUME;
END:";

const LOAD: &str = "ld.shared.u32 %r7, [%r4];";

/// Gives each lane what [`LOAD`] gives it.
const LOAD_MATRIX: &str =
    "mad.lo.u32 %r4, %r6, 12, %r4;\n    ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%r7}, [%r4];";

const SCHEDULES: [(Order, u64); 6] = [
    (Order::InOrder, 0),
    (Order::Reversed, 1),
    (Order::Shuffled, 2),
    (Order::Shuffled, 3),
    (Order::InOrder, 4),
    (Order::Reversed, 5),
];

fn input() -> Vec<u8> {
    (0..256u32).flat_map(|i| (i * 3).to_le_bytes()).collect()
}

fn ring(body: &str, setup: Setup) -> Result<(Vec<u8>, Option<Accesses>), Box<Fault>> {
    let setup = Setup { block: 96, ..setup };
    launch(&kernel(body), &input(), 2048, setup).map(|(out, stats)| (out, stats.accesses))
}

/// The ring with parts replaced; each part must be there.
fn with(changes: &[(&str, &str)]) -> String {
    changes.iter().fold(RING.to_string(), |text, (from, to)| {
        assert!(text.contains(from), "{from}");
        text.replace(from, to)
    })
}

fn wanted() -> Vec<u8> {
    let word = |fill: u32, lane: u32| (fill * 32 + lane) * 3 + 1000;
    let words = (0..8).flat_map(|fill| (0..64).map(move |t| word(fill, t % 32)));
    words.flat_map(u32::to_le_bytes).collect()
}

#[test]
fn a_ring_turns_under_every_schedule() {
    let rows: &[&[(&str, &str)]] = &[
        &[],
        // Asking without sleeping.
        &[("try_wait.parity", "test_wait.parity")],
        &[("mbarrier.try_wait", "mbarrier.try_wait"), ("%done, [%r2], %r5;", "%done, [%r2], %r5, 100;")],
        // Expecting apart from arriving, and after the copy.
        &[
            ("    mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r2], 128;\n", ""),
            (
                "[%r2], %policy;",
                "[%r2], %policy;\nmbarrier.expect_tx.relaxed.cta.shared::cta.b64 [%r2], 128;\nmbarrier.arrive.release.cta.shared::cta.b64 %d2, [%r2];",
            ),
        ],
        // Every lane arrives.
        &[("[empty], 2", "[empty], 64"), ("[empty+8], 2", "[empty+8], 64"), ("@%leader mbar", "mbar")],
        &[("[empty], 2", "[empty], 6"), ("[empty+8], 2", "[empty+8], 6"), ("_, [%r3];", "_, [%r3], 3;")],
        // Two copies a phase.
        &[(
            "[%r4], [%d0], 128, [%r2], %policy;",
            "[%r4], [%d0], 64, [%r2], %policy;
             cp.async.bulk.shared::cta.global.mbarrier::complete_tx::bytes [%r4+64], [%d0+64], 64, [%r2];",
        )],
        &[("fence.mbarrier_init.release.cluster;", ""), ("async.shared::cta;", "async;")],
        // Generic addresses.
        &[
            ("mov.u32 %empty, empty;", "mov.u32 %empty, empty; .reg .b64 %g;"),
            ("_, [%r3];", "_, [%g];"),
            ("arrive.shared::cta", "arrive"),
            ("    bar.warp.sync", "    cvt.u64.u32 %g, %r3; cvta.shared.u64 %g, %g;\n    bar.warp.sync"),
        ],
        // The fence of the loads: by the lane that arrives, by the thread that copies.
        &[
            ("    fence.proxy.async;\n", ""),
            ("bar.warp.sync -1;", "bar.warp.sync -1;\n    fence.proxy.async;"),
        ],
        &[("    fence.proxy.async;\n", ""), ("bra ROOM;\n", "bra ROOM;\n    fence.proxy.async;\n")],
        // The last fills are not overwritten.
        &[("    fence.proxy.async;", "    setp.lt.u32 %more, %r0, 6;\n    @%more fence.proxy.async;")],
        &[(LOAD, LOAD_MATRIX)],
    ];
    for changes in rows {
        for (order, seed) in SCHEDULES {
            for trace in [Trace::Off, Trace::On] {
                let setup = Setup {
                    order,
                    seed,
                    trace,
                    grid: 1,
                    ..SETUP
                };
                let (out, accesses) = ring(&with(changes), setup)
                    .unwrap_or_else(|fault| panic!("{changes:?} {seed}: {fault}"));
                assert_eq!(out, wanted(), "{changes:?} {seed}");
                assert_eq!(accesses.is_some(), trace == Trace::On);
            }
        }
    }
}

/// Blocks follow each other on one worker: nothing of one is left for the next.
#[test]
fn blocks_start_afresh() {
    let body = with(&[
        (
            "setp.eq.u32 %first, %t, 0;",
            "setp.eq.u32 %first, %t, 0;\n@%first st.shared.u32 [ring+4], 7;",
        ),
        (
            "st.global.u32",
            "mov.u32 %r9, %ctaid.x; setp.eq.u32 %leader, %r9, 0;\n@%leader st.global.u32",
        ),
    ]);
    let (out, _) =
        ring(&body, Setup { grid: 5, ..SETUP }).unwrap_or_else(|fault| panic!("{fault}"));
    assert_eq!(out, wanted());
}

/// Each mistake: what is changed, its class, and a part of what is said.
type Mistake<'a> = (&'a [(&'a str, &'a str)], &'a [Class], &'a str);

#[test]
fn every_mistake_has_a_name_under_every_schedule() {
    use Class::{
        AsyncCopy, AsyncUnfinished, Deadlock, Mbarrier, Misaligned, OutOfBounds, PhaseAliased,
        ProxyFence, SharedRace,
    };
    let fence = "    fence.proxy.async;\n";
    let rows: &[Mistake<'_>] = &[
        // The next copy may overtake loads: nothing fences them, or too early, too late, or those of one warp alone.
        (&[(fence, "")], &[ProxyFence], "that an ordinary load reads"),
        (
            &[(fence, ""), (LOAD, LOAD_MATRIX)],
            &[ProxyFence],
            "that an ordinary load reads",
        ),
        (
            &[(fence, ""), ("ld.shared", "ld.volatile.shared")],
            &[ProxyFence],
            "that an ordinary load reads",
        ),
        (
            &[
                (fence, ""),
                (LOAD, &["fence.proxy.async;\n", LOAD].concat()),
            ],
            &[ProxyFence],
            "an ordinary load",
        ),
        (
            &[
                (fence, ""),
                ("_, [%r3];\n", &["_, [%r3];\n", fence].concat()),
            ],
            &[ProxyFence],
            "an ordinary load",
        ),
        (
            &[(fence, ""), ("PRODUCE:\n", &["PRODUCE:\n", fence].concat())],
            &[ProxyFence],
            "an ordinary load",
        ),
        (
            &[(
                "    fence.proxy.async;",
                "    setp.ge.u32 %leader, %t, 64;\n    @%leader fence.proxy.async;",
            )],
            &[ProxyFence],
            "that an ordinary load reads",
        ),
        (
            &[("fence.proxy.async;", "fence.proxy.async.global;")],
            &[ProxyFence],
            "an ordinary load reads",
        ),
        // Or a store, though by the same thread.
        (
            &[(
                "mov.u32 %ring, ring;",
                "mov.u32 %ring, ring;\n    @%first st.shared.u32 [ring+4], 7;",
            )],
            &[ProxyFence],
            "that an ordinary store wrote",
        ),
        // The consumer does not wait, or does not look at the answer.
        (
            &[("    @!%done bra FILLED;\n", "")],
            &[
                AsyncCopy,
                Mbarrier,
                Class::UninitialisedShared,
                PhaseAliased,
            ],
            "",
        ),
        // The producer does not wait for room: stages still being read are overwritten.
        (
            &[("    @!%done bra ROOM;\n", "")],
            &[SharedRace, AsyncCopy, Mbarrier],
            "",
        ),
        // One warp never says that it has read.
        (
            &[(
                "setp.eq.u32 %leader, %r6, 0;",
                "setp.eq.u32 %leader, %t, 32;",
            )],
            &[Deadlock],
            "(1 arrivals and 0 bytes are missing)",
        ),
        // Nor does it, and the count allows it.
        (
            &[
                (
                    "setp.eq.u32 %leader, %r6, 0;",
                    "setp.eq.u32 %leader, %t, 32;",
                ),
                ("[empty], 2", "[empty], 1"),
                ("[empty+8], 2", "[empty+8], 1"),
            ],
            &[SharedRace, PhaseAliased, AsyncCopy],
            "",
        ),
        // The count is too small for those who arrive.
        (
            &[
                ("[empty], 2", "[empty], 1"),
                ("[empty+8], 2", "[empty+8], 1"),
            ],
            &[Mbarrier, SharedRace, PhaseAliased, AsyncCopy],
            "",
        ),
        (
            &[("[empty], 2", "[empty], 3")],
            &[Deadlock],
            "(1 arrivals and 0 bytes are missing)",
        ),
        // More bytes expected than come, and fewer.
        (
            &[("_, [%r2], 128;", "_, [%r2], 144;")],
            &[Deadlock],
            "(0 arrivals and 16 bytes are missing)",
        ),
        (
            &[("_, [%r2], 128;", "_, [%r2], 112;")],
            &[Deadlock],
            "(0 arrivals and -16 bytes are missing)",
        ),
        (
            &[(
                "arrive.expect_tx.shared::cta.b64 _, [%r2], 128",
                "arrive.shared::cta.b64 _, [%r2]",
            )],
            &[AsyncCopy, Deadlock, Class::UninitialisedShared],
            "",
        ),
        // Initialised late, not at all, twice.
        (&[("    bar.sync 0;\n", "")], &[Mbarrier], ""),
        (
            &[("mbarrier.init.shared::cta.b64 [full+8], 1;", "")],
            &[Mbarrier],
            "there is no mbarrier at 0x",
        ),
        (
            &[("[full+8], 1", "[full], 1")],
            &[Mbarrier],
            "an mbarrier already",
        ),
        (
            &[
                ("[full+8], 1;", "[full+8], %r0;"),
                ("setp.eq.u32 %first", "mov.u32 %r0, 0;\nsetp.eq.u32 %first"),
            ],
            &[Mbarrier],
            "a count of 0",
        ),
        // Addresses and sizes.
        (
            &[("[%r4], [%d0], 128,", "[%r4], [%d0+4], 128,")],
            &[Misaligned],
            "multiple of 16",
        ),
        (
            &[("[%r4], [%d0], 128,", "[%r4+8], [%d0], 128,")],
            &[Misaligned],
            "multiple of 16",
        ),
        (
            &[
                ("[%r4], [%d0], 128,", "[%r4], [%d0], %r8,"),
                ("mov.u32 %r0, 0;", "mov.u32 %r0, 0; mov.u32 %r8, 120;"),
            ],
            &[Misaligned],
            "a bulk copy of 120 bytes",
        ),
        (
            &[("[%r4], [%d0], 128,", "[%r4], [%d0], 1040,")],
            &[OutOfBounds],
            "outside every variable",
        ),
        (
            &[("[%r4], [%d0], 128,", "[%r4], [%d0+1024], 128,")],
            &[OutOfBounds],
            "which no allocation holds",
        ),
        (
            &[("[%in], 1024;", "[%in], 1040;")],
            &[OutOfBounds],
            "which no allocation holds",
        ),
        (
            &[(
                "mad.lo.u32 %r3, %r1, 8, %empty;",
                "mad.lo.u32 %r3, %r1, 4, %empty;",
            )],
            &[Misaligned],
            "",
        ),
        (
            &[(
                "%r5, %r0, 1;\n    and.b32 %r5, %r5, 1;\nFILLED",
                "%r5, %r0, 1;\nFILLED",
            )],
            &[Mbarrier],
            "a wait for parity 2: it is 0 or 1",
        ),
        // An mbarrier is no ordinary memory.
        (
            &[(
                "    bar.sync 0;\n",
                "    bar.sync 0;\n    ld.shared.u32 %r0, [full+4];\n",
            )],
            &[Mbarrier],
            "shared memory is read that is an mbarrier",
        ),
        // The last fills are never read.
        (
            &[(
                "setp.lt.u32 %more, %r0, 8;\n    @%more bra CONSUME",
                "setp.lt.u32 %more, %r0, 7;\n    @%more bra CONSUME",
            )],
            &[AsyncUnfinished],
            "nothing has waited for a copy",
        ),
        (
            &[(
                "bra END;\nCONSUME",
                "mbarrier.expect_tx.shared::cta.b64 [%r2], 64;\n bra END;\nCONSUME",
            )],
            &[AsyncUnfinished, Deadlock, Mbarrier],
            "",
        ),
    ];
    for (changes, classes, part) in rows {
        for (order, seed) in SCHEDULES {
            let fault = match ring(
                &with(changes),
                Setup {
                    order,
                    seed,
                    ..SETUP
                },
            ) {
                Ok(_) => panic!("no fault: {changes:?} {order:?} {seed}"),
                Err(fault) => fault,
            };
            assert!(
                classes.contains(&fault.class),
                "{changes:?} {order:?} {seed}: {fault}"
            );
            assert!(
                fault.what.contains(part),
                "{changes:?} {order:?} {seed}: {fault}"
            );
        }
    }
}

/// The whole message.
#[test]
fn a_copy_that_may_overtake_a_load_is_told_with_the_load() {
    let fault = ring(&with(&[("    fence.proxy.async;\n", "")]), SETUP).expect_err("no fence");
    let wanted = "ProxyFence: a copy overwrites shared memory that an ordinary load reads, and no fence orders the two proxies: the copy may overtake it
  in k, block (0,0,0), thread (0,0,0)
  at line 50: `cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint [%r4], [%d0], 128, [%r2], %policy`
  warp 1 lane 0 read it at line 67: `ld.shared.u32 %r7, [%r4]`
  address 0x400 is offset 0 of `ring` (0x400, 256 bytes)
  execute fence.proxy.async after it, and before the arrival or barrier that lets the copy begin";
    assert_eq!(fault.to_string(), wanted);
}

/// Warp 1 reads, warp 0 fences and copies, and warp 2 copies once that copy has come: it need not know of the fence.
#[test]
fn a_copy_that_has_come_is_behind_what_it_overwrote() {
    let body = "
        .shared .align 128 .b8 stage[128];
        .shared .align 8 .b64 bars[2];
        .reg .b32 %at, %v; .reg .b64 %to; .reg .pred %first, %second, %reads, %p;
        setp.eq.u32 %first, %t, 0; setp.eq.u32 %second, %t, 64;
        and.b32 %at, %t, 31; mad.wide.u32 %to, %t, 4, %out;
        @%first mbarrier.init.shared::cta.b64 [bars], 1;
        @%first mbarrier.init.shared::cta.b64 [bars+8], 1;
        @%first fence.mbarrier_init.release.cluster;
        bar.sync 0;
        @%first mbarrier.arrive.expect_tx.shared::cta.b64 _, [bars], 128;
        @%first cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [stage], [%in], 128, [bars];
    ONE: mbarrier.try_wait.parity.shared::cta.b64 %p, [bars], 0; @!%p bra ONE;
        mov.u32 %v, stage; mad.lo.u32 %at, %at, 4, %v;
        xor.b32 %v, %t, 32; setp.lt.u32 %reads, %v, 32;
        @%reads ld.shared.u32 %v, [%at];
        bar.sync 0;
        @%first mbarrier.arrive.expect_tx.shared::cta.b64 _, [bars], 128;
        @%first fence.proxy.async;
        @%first cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [stage], [%in+128], 128, [bars];
    TWO: mbarrier.try_wait.parity.shared::cta.b64 %p, [bars], 1; @!%p bra TWO;
        @%second mbarrier.arrive.expect_tx.shared::cta.b64 _, [bars+8], 128;
        @%second cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [stage], [%in+256], 128, [bars+8];
    THREE: mbarrier.try_wait.parity.shared::cta.b64 %p, [bars+8], 0; @!%p bra THREE;
        ld.shared.u32 %v, [%at];
        st.global.u32 [%to], %v;";
    let setups = SCHEDULES.map(|(order, seed)| Setup {
        order,
        seed,
        block: 96,
        ..SETUP
    });
    for setup in setups {
        let (out, _) =
            launch(&kernel(body), &input(), 384, setup).unwrap_or_else(|fault| panic!("{fault}"));
        assert_eq!(out, input()[256..384].repeat(3));
        let unfenced = body.replace("@%first fence.proxy.async;", "");
        let fault = launch(&kernel(&unfenced), &input(), 384, setup).expect_err("no fence");
        assert_eq!(fault.class, Class::ProxyFence, "{fault}");
    }
}

/// Lane 1 stores into the middle of what lane 0 copies to, and `bar.warp.sync` orders these two lanes alone.
#[test]
fn lanes_order_themselves_before_a_copy() {
    let body = "
        .shared .align 128 .b8 stage[128];
        .shared .align 8 .b64 bar;
        .reg .pred %first, %second, %p;
        setp.eq.u32 %first, %t, 0; setp.eq.u32 %second, %t, 1; setp.gt.u32 %p, %t, 1;
        @%p bra END;
        @%first mbarrier.init.shared::cta.b64 [bar], 1;
        @%first fence.mbarrier_init.release.cluster;
        @%second st.shared.u32 [stage+64], 7;
        @%second fence.proxy.async;
        bar.warp.sync 3;
        @%first mbarrier.arrive.expect_tx.shared::cta.b64 _, [bar], 128;
        @%first cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [stage], [%in], 128, [bar];
    WAIT: mbarrier.try_wait.parity.shared::cta.b64 %p, [bar], 0; @!%p bra WAIT;
    END:";
    let rows = [
        ("@%p bra END;", "@%p bra END;", None),
        ("@%second fence.proxy.async;", "", Some(Class::ProxyFence)),
        ("bar.warp.sync 3;", "", Some(Class::SharedRace)),
    ];
    for (from, to, wanted) in rows {
        let text = kernel(&body.replace(from, to));
        for (order, seed) in SCHEDULES {
            let found = launch(
                &text,
                &input(),
                4,
                Setup {
                    order,
                    seed,
                    ..SETUP
                },
            )
            .map(|_| ())
            .err();
            assert_eq!(
                found.as_ref().map(|fault| fault.class),
                wanted,
                "{from}: {found:?}"
            );
        }
    }
}

/// Two warps take the fills of a ring in turn. With four stages each stage is one warp's; with three, a warp cannot
/// tell a phase from the one two before it.
#[test]
fn parities_alias_where_groups_share_a_stage() {
    let body = |stages: u32| {
        format!(
            ".shared .align 128 .b8 ring[512];
            .shared .align 8 .b64 full[4];
            .shared .align 8 .b64 empty[4];
            .reg .b32 %r<10>, %step, %fill;
            .reg .b64 %d<4>;
            .reg .pred %first, %consumer, %done, %more, %leader;
            setp.eq.u32 %first, %t, 0;
            @!%first bra READY;
            mov.u32 %r0, 0; mov.u32 %r1, full; mov.u32 %r2, empty;
        INIT:
            mbarrier.init.shared::cta.b64 [%r1], 1;
            mbarrier.init.shared::cta.b64 [%r2], 1;
            add.u32 %r1, %r1, 8; add.u32 %r2, %r2, 8; add.u32 %r0, %r0, 1;
            setp.lt.u32 %more, %r0, 4;
            @%more bra INIT;
            fence.proxy.async;
        READY:
            bar.sync 0;
            setp.ge.u32 %consumer, %t, 32;
            mov.u32 %fill, 0; mov.u32 %step, 1;
            @%consumer shr.u32 %fill, %t, 5;
            @%consumer sub.u32 %fill, %fill, 1;
            @%consumer mov.u32 %step, 2;
        LOOP:
            rem.u32 %r0, %fill, {stages};
            div.u32 %r1, %fill, {stages};
            mov.u32 %r2, full; mad.lo.u32 %r2, %r0, 8, %r2;
            mov.u32 %r3, empty; mad.lo.u32 %r3, %r0, 8, %r3;
            mov.u32 %r4, ring; mad.lo.u32 %r4, %r0, 128, %r4;
            and.b32 %r1, %r1, 1;
            @%consumer bra CONSUME;
            @!%first bra END;
            xor.b32 %r1, %r1, 1;
        ROOM:
            mbarrier.try_wait.parity.shared::cta.b64 %done, [%r3], %r1;
            @!%done bra ROOM;
            mad.wide.u32 %d0, %fill, 64, %in;
            mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r2], 128;
            cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r4], [%d0], 128, [%r2];
            bra NEXT;
        CONSUME:
            mbarrier.try_wait.parity.shared::cta.b64 %done, [%r2], %r1;
            @!%done bra CONSUME;
            and.b32 %r6, %t, 31;
            mad.lo.u32 %r4, %r6, 4, %r4;
            ld.shared.u32 %r7, [%r4];
            fence.proxy.async;
            bar.warp.sync -1;
            setp.eq.u32 %leader, %r6, 0;
            @%leader mbarrier.arrive.shared::cta.b64 _, [%r3];
        NEXT:
            add.u32 %fill, %fill, %step;
            setp.lt.u32 %more, %fill, 12;
            @%more bra LOOP;
        END:"
        )
    };
    let mut aliased = 0;
    for (order, seed) in SCHEDULES {
        let setup = Setup {
            order,
            seed,
            ..SETUP
        };
        if let Err(fault) = ring(&body(4), setup) {
            panic!("{fault}");
        }

        let fault = ring(&body(3), setup).expect_err("three stages, two groups");
        assert!(
            matches!(fault.class, Class::PhaseAliased | Class::AsyncCopy),
            "{fault}"
        );
        aliased += u32::from(fault.class == Class::PhaseAliased);
    }

    assert!(aliased > 0);
}

/// A warp that waits for the second phase alone is told so, whoever runs first.
#[test]
fn a_wait_that_an_older_phase_satisfies() {
    let body = ".shared .align 8 .b64 b; .reg .pred %first, %second, %done; .reg .b32 %r<2>;
            setp.eq.u32 %first, %t, 0; setp.ge.u32 %second, %t, 32;
            @%first mbarrier.init.shared::cta.b64 [b], 1;
            bar.sync 0;
            @%second bra SECOND;
            @!%first bra END;
            mbarrier.arrive.shared::cta.b64 _, [b];
        ONE: mbarrier.try_wait.parity.shared::cta.b64 %done, [b], 0; @!%done bra ONE;
            mbarrier.arrive.shared::cta.b64 _, [b];
        TWO: mbarrier.try_wait.parity.shared::cta.b64 %done, [b], 1; @!%done bra TWO;
            bra END;
        SECOND:
        THREE: mbarrier.try_wait.parity.shared::cta.b64 %done, [b], 1; @!%done bra THREE;
        END:";
    for (order, seed) in SCHEDULES {
        let setup = Setup {
            order,
            seed,
            ..SETUP
        };
        let fault = ring(body, setup).expect_err("nothing orders the wait");
        assert_eq!(fault.class, Class::PhaseAliased, "{fault}");
    }
}
