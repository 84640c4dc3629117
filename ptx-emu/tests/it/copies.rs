//! `cp.async`, `ldmatrix`, `setmaxnreg` and the forms of what comes with them.

use ptx_emu::{Class, Fault, Module, Order, Trace};

use crate::machine::{SETUP, Setup, kernel, launch};

const HEAD: &str = ".shared .align 16 .b8 s[2048]; .reg .b32 %r<8>, %s, %n; .reg .b64 %d<4>; .reg .pred %p<3>;
    mov.u32 %s, s; mov.u32 %n, 5; mad.lo.u32 %r0, %t, 16, %s; mad.wide.u32 %d0, %t, 16, %in; mad.wide.u32 %d1, %t, 4, %out;
    xor.b32 %r6, %t, 1; mad.lo.u32 %r6, %r6, 16, %s;\n";

fn run(body: &str, setup: Setup) -> Result<Vec<u32>, Box<Fault>> {
    let input: Vec<u8> = (0..512u32).flat_map(|i| (i + 1).to_le_bytes()).collect();
    let (out, _) = launch(&kernel(&format!("{HEAD}{body}")), &input, 256, setup)?;
    Ok(out
        .as_chunks::<4>()
        .0
        .iter()
        .map(|w| u32::from_le_bytes(*w))
        .collect())
}

const TWO_WARPS: Setup = Setup { block: 64, ..SETUP };

/// What thread t loads after its copies; thread t's source starts with 4 t + 1.
#[test]
fn copies_arrive_when_waited_for() {
    type Value = fn(u32) -> u32;
    let rows: &[(&str, Value)] = &[
        ("cp.async.ca.shared.global [%r0], [%d0], 4; cp.async.wait_all; ld.shared.u32 %r1, [%r0];", |t| 4 * t + 1),
        ("cp.async.ca.shared.global [%r0+8], [%d0], 8; cp.async.commit_group; cp.async.wait_group 0; ld.shared.u32 %r1, [%r0+12];", |t| 4 * t + 2),
        ("cp.async.cg.shared.global [%r0], [%d0], 16; cp.async.commit_group; cp.async.wait_group 0; ld.shared.u32 %r1, [%r0+12];", |t| 4 * t + 4),
        // Another thread's copy: wait, then a barrier.
        ("cp.async.cg.shared.global [%r0], [%d0], 16; cp.async.wait_all; bar.sync 0; ld.shared.u32 %r1, [%r6];", |t| 4 * (t ^ 1) + 1),
        // Only the older group is waited for.
        ("cp.async.ca.shared.global [%r0], [%d0], 4; cp.async.commit_group; cp.async.ca.shared.global [%r0+4], [%d0], 4; cp.async.commit_group;
          cp.async.wait_group 1; ld.shared.u32 %r1, [%r0]; cp.async.wait_group 0;", |t| 4 * t + 1),
        // Fewer source bytes than copied: zeros follow.
        ("cp.async.ca.shared.global [%r0], [%d0], 8, %n; cp.async.wait_all; ld.shared.u32 %r1, [%r0+4];", |t| (4 * t + 2) & 0xff),
        ("cp.async.cg.shared.global [%r0], [%in+100000], 16, 0; cp.async.wait_all; ld.shared.u32 %r1, [%r0];", |_| 0),
        ("createpolicy.fractional.L2::evict_last.b64 %d2, 1.0;
          cp.async.cg.shared.global.L2::cache_hint [%r0], [%d0], 16, %d2; cp.async.wait_all; ld.shared.u32 %r1, [%r0];", |t| 4 * t + 1),
        // By an mbarrier.
        (".shared .b64 b; setp.eq.u32 %p0, %t, 0; @%p0 mbarrier.init.shared.b64 [b], 64; bar.sync 0;
          cp.async.cg.shared.global [%r0], [%d0], 16; cp.async.mbarrier.arrive.noinc.shared::cta.b64 [b];
          WAIT: mbarrier.test_wait.parity.shared.b64 %p1, [b], 0; @!%p1 bra WAIT; ld.shared.u32 %r1, [%r6];", |t| 4 * (t ^ 1) + 1),
        // The phase expects the copies' arrivals besides those of the threads.
        (".shared .b64 b; setp.eq.u32 %p0, %t, 0; @%p0 mbarrier.init.shared.b64 [b], 64; bar.sync 0;
          cp.async.cg.shared.global [%r0], [%d0], 16; cp.async.mbarrier.arrive.shared::cta.b64 [b];
          mbarrier.arrive.shared.b64 _, [b];
          WAIT: mbarrier.test_wait.parity.shared.b64 %p1, [b], 0; @!%p1 bra WAIT; ld.shared.u32 %r1, [%r6];", |t| 4 * (t ^ 1) + 1),
        // One thread leaves after the first phase; the other 63 make the second one.
        (".shared .b64 b; setp.eq.u32 %p0, %t, 5; @%p0 mbarrier.init.shared.b64 [b], 64; bar.sync 0; st.shared.u32 [%r0], %t;
          @%p0 mbarrier.arrive_drop.shared.b64 %d2, [b]; @!%p0 mbarrier.arrive.shared.b64 %d2, [b];
          WAIT: mbarrier.try_wait.shared.b64 %p1, [b], %d2; @!%p1 bra WAIT; bar.sync 0; @!%p0 mbarrier.arrive.shared.b64 %d2, [b];
          LAST: mbarrier.try_wait.parity.shared.b64 %p1, [b], 1; @!%p1 bra LAST; ld.shared.u32 %r1, [%r6];", |t| t ^ 1),
        // By two mbarriers, of which the second has all copies to wait for.
        (".shared .b64 b; .shared .b64 c; setp.eq.u32 %p0, %t, 0; @%p0 mbarrier.init.shared.b64 [b], 64; @%p0 mbarrier.init.shared.b64 [c], 64; bar.sync 0;
          cp.async.ca.shared.global [%r0], [%d0], 4; cp.async.mbarrier.arrive.noinc.shared::cta.b64 [b];
          cp.async.ca.shared.global [%r0+4], [%d0], 4; cp.async.mbarrier.arrive.noinc.shared::cta.b64 [c];
          WAIT: mbarrier.test_wait.parity.shared.b64 %p1, [b], 0; @!%p1 bra WAIT; ld.shared.u32 %r1, [%r6];
          LAST: mbarrier.test_wait.parity.shared.b64 %p1, [c], 0; @!%p1 bra LAST;", |t| 4 * (t ^ 1) + 1),
        // By the state that an arrival gave.
        (".shared .b64 b; setp.eq.u32 %p0, %t, 0; @%p0 mbarrier.init.shared.b64 [b], 64; bar.sync 0; st.shared.u32 [%r0], %t;
          mbarrier.arrive.shared.b64 %d2, [b];
          WAIT: mbarrier.test_wait.shared.b64 %p1, [b], %d2; @!%p1 bra WAIT; ld.shared.u32 %r1, [%r6];", |t| t ^ 1),
    ];
    for (body, value) in rows {
        for (order, seed) in [
            (Order::InOrder, 0),
            (Order::Reversed, 1),
            (Order::Shuffled, 2),
        ] {
            for trace in [Trace::Off, Trace::On] {
                let setup = Setup {
                    order,
                    seed,
                    trace,
                    ..TWO_WARPS
                };
                let found = run(&format!("{body}\nst.global.u32 [%d1], %r1;"), setup)
                    .unwrap_or_else(|fault| panic!("{body}: {fault}"));
                assert_eq!(found, (0..64).map(value).collect::<Vec<_>>(), "{body}");
            }
        }
    }
}

#[test]
fn mistakes_with_copies() {
    use Class::{AsyncCopy, AsyncUnfinished, Mbarrier, Misaligned, OutOfBounds, SharedRace};
    const COPY: &str = "cp.async.cg.shared.global [%r0], [%d0], 16;";
    let rows: &[(&[&str], Class, &str)] = &[
        (&[COPY, "ld.shared.u32 %r1, [%r0];"], AsyncCopy, "read that a copy writes"),
        (&[COPY, "st.shared.u8 [%r0+3], 1;"], AsyncCopy, "written that a copy writes"),
        (&[COPY, COPY], AsyncCopy, "written that a copy writes"),
        (&[COPY, "cp.async.wait_group 0; ld.shared.u32 %r1, [%r0];"], AsyncCopy, "read that"),
        (&[COPY, "cp.async.commit_group; cp.async.wait_group 1; ld.shared.u32 %r1, [%r0];"], AsyncCopy, "read"),
        (&[COPY, "cp.async.wait_all; ld.shared.u32 %r1, [%r6];"], SharedRace, "nothing orders"),
        (&[COPY, "cp.async.commit_group;"], AsyncUnfinished, "nothing has waited for a copy"),
        (&["cp.async.ca.shared.global [%r0+2], [%d0], 4;"], Misaligned, "not a multiple of 4"),
        (&["cp.async.ca.shared.global [%r0], [%d0+4], 8;"], Misaligned, "not a multiple of 8"),
        (&["cp.async.ca.shared.global [%r0], [%d0], 4, %n;"], OutOfBounds, "reads 5 bytes where it copies 4"),
        (&["cp.async.cg.shared.global [%r0], [%d0+4096], 16;"], OutOfBounds, "no allocation holds"),
        (&["cp.async.cg.shared.global [%r0+2048], [%d0], 16;"], OutOfBounds, "outside every variable"),
        (&["cp.async.cg.shared.global [%r0], [%out], 16;"], Class::UninitialisedGlobal, "0x1001000000900"),
        (&[COPY, "mov.u64 %d2, -16; st.shared.u64 [%d2+8], %d2;"], OutOfBounds, "outside every variable"),
        (&["cp.async.mbarrier.arrive.noinc.shared.b64 [%s];"], Mbarrier, "no mbarrier at 0x400"),
        (
            &[".shared .b64 b; mov.u32 %r7, b; setp.eq.u32 %p0, %t, 0; @%p0 mbarrier.init.shared.b64 [b], 1; @%p0 mbarrier.expect_tx.shared.b64 [b], 16; bar.sync 0;
               cp.async.mbarrier.arrive.noinc.shared.b64 [b]; cp.async.mbarrier.arrive.noinc.shared.b64 [b];
               LOOP: mbarrier.try_wait.parity.shared.b64 %p1, [b], 0; @!%p1 bra LOOP;"],
            Mbarrier,
            "none of 1 is left in phase 0",
        ),
        (
            &[".shared .b64 b; setp.eq.u32 %p0, %t, 0; @%p0 mbarrier.init.shared.b64 [b], 3; bar.sync 0;
               @%p0 mbarrier.arrive.noComplete.shared.b64 %d2, [b], 2; @%p0 mbarrier.arrive.noComplete.shared.b64 %d2, [b], 1;"],
            Mbarrier,
            "with .noComplete that completes phase 0",
        ),
        (
            &[".shared .b64 b; setp.eq.u32 %p0, %t, 0; @%p0 mbarrier.init.shared.b64 [b], 3; bar.sync 0;
               @%p0 mbarrier.arrive_drop.shared.b64 %d2, [b], 4;"],
            Mbarrier,
            "of 4 arrivals, of 3 that a phase expects",
        ),
        (
            &[".shared .b64 b; setp.eq.u32 %p0, %t, 0; @%p0 mbarrier.init.shared.b64 [b], 1; bar.sync 0; @%p0 mbarrier.inval.shared::cta.b64 [b];
               bar.sync 0; @%p0 mbarrier.arrive.shared.b64 _, [b];"],
            Mbarrier,
            "no mbarrier",
        ),
        // Another warp may still wait when this one ends the mbarrier.
        (
            &[".shared .b64 b; setp.eq.u32 %p0, %t, 0; @%p0 mbarrier.init.shared.b64 [b], 1; bar.sync 0; @%p0 mbarrier.arrive.shared.b64 _, [b];
               LOOP: mbarrier.try_wait.parity.shared.b64 %p1, [b], 0; @!%p1 bra LOOP; @%p0 mbarrier.inval.shared::cta.b64 [b];"],
            Mbarrier,
            "mbarrier",
        ),
    ];
    for (body, class, part) in rows {
        for (order, seed) in [
            (Order::InOrder, 0),
            (Order::Reversed, 1),
            (Order::Shuffled, 2),
        ] {
            let fault = run(
                &body.join("\n"),
                Setup {
                    order,
                    seed,
                    ..TWO_WARPS
                },
            )
            .expect_err(body[0]);
            assert_eq!(fault.class, *class, "{body:?}: {fault}");
            assert!(fault.what.contains(part), "{body:?}: {fault}");
        }
    }
}

/// The message names the reader and the copy.
#[test]
fn the_copy_is_named() {
    let body = "cp.async.cg.shared.global [%r0], [%d0], 16;\nld.shared.u32 %r1, [%r0+4];";
    let fault = run(body, SETUP).expect_err("nobody waits");
    let wanted =
        "AsyncCopy: shared memory is read that a copy writes, and the thread has not waited for the copy
  in k, block (0,0,0), thread (0,0,0)
  at line 15: `ld.shared.u32 %r1, [%r0+4]`
  a copy writes it at line 14: `cp.async.cg.shared.global [%r0], [%d0], 16`
  address 0x404 is offset 4 of `s` (0x400, 2048 bytes)
  wait for the mbarrier or the group of the copy; if the copy is too early, let it wait for those who read";
    assert_eq!(fault.to_string(), wanted);
}

/// Row r of matrix j holds 100 j + 10 r + column.
#[test]
fn matrices_are_loaded() {
    let fill = "
        shr.u32 %r1, %t, 3; and.b32 %r2, %t, 7; mul.lo.u32 %r1, %r1, 100; mad.lo.u32 %r1, %r2, 10, %r1;
        .reg .b16 %h; .reg .b32 %i; mov.u32 %i, 0; mov.u32 %r3, %r0;
        FILL: add.u32 %r4, %r1, %i; cvt.u16.u32 %h, %r4; st.shared.u16 [%r3], %h;
        add.u32 %r3, %r3, 2; add.u32 %i, %i, 1; setp.lt.u32 %p0, %i, 8; @%p0 bra FILL;
        bar.sync 0;";
    let own = |j: u32, row: u32, column: u32| 100 * j + 10 * row + column;
    type Value = fn(u32) -> [(u32, u32); 2];
    let straight: Value = |l| [(l / 4, 2 * (l % 4)), (l / 4, 2 * (l % 4) + 1)];
    let across: Value = |l| [(2 * (l % 4), l / 4), (2 * (l % 4) + 1, l / 4)];
    let rows = [
        (
            "ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%r1}, [%r0]; mov.u32 %r5, %r1;",
            0,
            straight,
        ),
        (
            "ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%r1, %r5}, [%r0];",
            1,
            straight,
        ),
        (
            "ldmatrix.sync.aligned.m8n8.x4.shared::cta.b16 {%r1, %r2, %r3, %r5}, [%r0];",
            3,
            straight,
        ),
        (
            "ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%r1, %r2, %r5, %r3}, [%r0];",
            2,
            across,
        ),
        (
            "ldmatrix.sync.aligned.m8n8.x1.trans.shared.b16 {%r5}, [s];",
            0,
            |_| [(0, 0), (0, 0)],
        ),
    ];
    for (inst, j, at) in rows {
        // The last row gives every lane one address, and all matrices the same row.
        let body = format!("{fill}\n{inst}\nst.global.u32 [%d1], %r5;");
        let found = run(&body, SETUP).unwrap_or_else(|fault| panic!("{inst}: {fault}"));
        let wanted: Vec<u32> = (0..32)
            .map(|l| at(l).map(|(row, column)| own(j, row, column)))
            .map(|[low, high]| low | high << 16)
            .collect();
        if inst.contains("[s]") {
            assert_eq!(found[4], 1 | 1 << 16, "{inst}");
        } else {
            assert_eq!(found[..32], wanted, "{inst}");
        }
    }

    let faults = [
        (
            "ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%r1}, [%r0+8];",
            Class::Misaligned,
        ),
        (
            "ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%r1}, [%r0+2048];",
            Class::OutOfBounds,
        ),
        (
            "ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%r1}, [%r0+1024];",
            Class::UninitialisedShared,
        ),
        (
            "@%p0 ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%r1}, [%r0];",
            Class::InactiveLane,
        ),
    ];
    for (inst, class) in faults {
        let fault =
            run(&format!("{fill}\nsetp.eq.u32 %p0, %t, 3;\n{inst}"), SETUP).expect_err(inst);
        assert_eq!(fault.class, class, "{fault}");
    }
}

/// Every form that the fast kernels use is read, at the version and target it needs, and refused below.
#[test]
fn forms_and_what_they_need() {
    const MMA: &str = "{%f0,%f1,%f2,%f3}, {%r0,%r1,%r2,%r3}, {%r0,%r1}, {%f0,%f1,%f2,%f3};";
    const IMMA: &str = "{%r0,%r1,%r2,%r3}, {%r0,%r1,%r2,%r3}, {%r0,%r1}, {%r0,%r1,%r2,%r3};";
    let halves = format!("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {MMA}");
    let brain = format!("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {MMA}");
    let mixed = format!("mma.sync.aligned.m16n8k32.row.col.s32.u8.s8.s32 {IMMA}");
    let signed = format!("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {IMMA}");

    // Form, lowest version, lowest target, a version or target below.
    type Need<'a> = (&'a str, &'a str, &'a str, Option<(&'a str, &'a str)>);
    let rows: &[Need<'_>] = &[
        (
            "mbarrier.init.shared.b64 [%r0], 1;",
            "7.0",
            "sm_80",
            Some(("7.0", "sm_75")),
        ),
        (
            "mbarrier.init.shared::cta.b64 [%r0], 1;",
            "7.8",
            "sm_80",
            Some(("7.4", "sm_80")),
        ),
        (
            "mbarrier.inval.shared::cta.b64 [%r0];",
            "7.8",
            "sm_80",
            None,
        ),
        (
            "mbarrier.arrive.shared::cta.b64 _, [%r0];",
            "7.8",
            "sm_80",
            None,
        ),
        (
            "mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r0], %r1;",
            "8.0",
            "sm_90",
            Some(("7.8", "sm_90")),
        ),
        (
            "mbarrier.try_wait.parity.shared::cta.b64 %p0, [%r0], %r1;",
            "7.8",
            "sm_90",
            Some(("8.0", "sm_80")),
        ),
        (
            "mbarrier.test_wait.parity.shared::cta.b64 %p0, [%r0], %r1;",
            "7.8",
            "sm_80",
            None,
        ),
        (
            "mbarrier.test_wait.parity.shared.b64 %p0, [%r0], 1;",
            "7.1",
            "sm_80",
            Some(("7.0", "sm_80")),
        ),
        (
            "fence.mbarrier_init.release.cluster;",
            "8.0",
            "sm_90",
            Some(("7.8", "sm_90")),
        ),
        (
            "fence.proxy.async.shared::cta;",
            "8.0",
            "sm_90",
            Some(("8.0", "sm_80")),
        ),
        ("fence.proxy.async;", "8.0", "sm_90", None),
        (
            "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint [%r0], [%d0], %r1, [%r2], %d1;",
            "8.0",
            "sm_90",
            Some(("7.8", "sm_90")),
        ),
        (
            "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r0], [%d0], 4096, [%r2];",
            "8.0",
            "sm_90",
            Some(("8.0", "sm_89")),
        ),
        (
            "cp.async.bulk.shared::cta.global.mbarrier::complete_tx::bytes [%r0], [%d0], 4096, [%r2];",
            "8.6",
            "sm_90",
            Some(("8.5", "sm_90")),
        ),
        (
            "cp.async.bulk.prefetch.L2.global [%d0], %r0;",
            "8.0",
            "sm_90",
            None,
        ),
        (
            "createpolicy.fractional.L2::evict_first.b64 %d0, 1.0;",
            "7.4",
            "sm_80",
            Some(("7.4", "sm_75")),
        ),
        (
            "createpolicy.fractional.L2::evict_last.b64 %d0, 1.0;",
            "7.4",
            "sm_80",
            None,
        ),
        (
            "cp.async.ca.shared.global [%r0], [%d0], 4;",
            "7.0",
            "sm_80",
            Some(("6.5", "sm_75")),
        ),
        (
            "cp.async.cg.shared.global.L2::cache_hint [%r0], [%d0], 16, %d1;",
            "7.4",
            "sm_80",
            Some(("7.3", "sm_80")),
        ),
        (
            "cp.async.cg.shared.global.L2::128B [%r0], [%d0], 16;",
            "7.4",
            "sm_80",
            None,
        ),
        ("cp.async.commit_group;", "7.0", "sm_80", None),
        ("cp.async.wait_group 3;", "7.0", "sm_80", None),
        ("cp.async.wait_all;", "7.0", "sm_80", None),
        (
            "cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%r0];",
            "7.8",
            "sm_80",
            Some(("7.7", "sm_80")),
        ),
        (
            "griddepcontrol.wait;",
            "7.8",
            "sm_90",
            Some(("8.0", "sm_89")),
        ),
        ("griddepcontrol.launch_dependents;", "7.8", "sm_90", None),
        (&halves, "7.0", "sm_80", Some(("7.0", "sm_75"))),
        (&brain, "7.0", "sm_80", Some(("7.0", "sm_75"))),
        (&mixed, "7.0", "sm_80", Some(("7.0", "sm_75"))),
        (&signed, "7.0", "sm_80", None),
        (
            "ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%r0,%r1,%r2,%r3}, [%r4];",
            "6.5",
            "sm_75",
            Some(("6.4", "sm_75")),
        ),
        ("bar.sync 1, 64;", "6.0", "sm_50", None),
        ("bar.arrive 1, 64;", "6.0", "sm_50", None),
        (
            "barrier.cta.sync.aligned 1, 64;",
            "7.8",
            "sm_75",
            Some(("7.7", "sm_75")),
        ),
        ("barrier.cta.arrive 1, 64;", "7.8", "sm_75", None),
        (
            "setmaxnreg.inc.sync.aligned.u32 232;",
            "8.0",
            "sm_90a",
            Some(("8.0", "sm_90")),
        ),
        ("setmaxnreg.dec.sync.aligned.u32 40;", "8.0", "sm_90a", None),
        (
            "elect.sync _|%p0, 0xffffffff;",
            "8.0",
            "sm_90",
            Some(("7.8", "sm_90")),
        ),
        (
            "ld.relaxed.gpu.global.v4.f32 {%f0,%f1,%f2,%f3}, [%d0];",
            "6.0",
            "sm_70",
            Some(("6.0", "sm_62")),
        ),
        (
            "ld.relaxed.gpu.global.v2.u32 {%r0,%r1}, [%d0];",
            "6.0",
            "sm_70",
            None,
        ),
        (
            "st.relaxed.gpu.global.v4.u32 [%d0], {%r0,%r1,%r2,%r3};",
            "6.0",
            "sm_70",
            None,
        ),
        (
            "ld.acquire.gpu.global.u32 %r0, [%d0];",
            "6.0",
            "sm_70",
            None,
        ),
        (
            "ld.acquire.sys.global.u32 %r0, [%d0];",
            "6.0",
            "sm_70",
            None,
        ),
        (
            "ld.relaxed.sys.global.u32 %r0, [%d0];",
            "6.0",
            "sm_70",
            None,
        ),
        (
            "st.release.gpu.global.u32 [%d0], %r0;",
            "6.0",
            "sm_70",
            None,
        ),
        (
            "st.release.sys.global.u32 [%d0], %r0;",
            "6.0",
            "sm_70",
            None,
        ),
        (
            "st.relaxed.sys.global.u32 [%d0], %r0;",
            "6.0",
            "sm_70",
            None,
        ),
        (
            "atom.acq_rel.gpu.global.inc.u32 %r0, [%d0], %r1;",
            "6.0",
            "sm_70",
            Some(("6.0", "sm_61")),
        ),
        (
            "atom.acq_rel.gpu.global.add.u32 %r0, [%d0], %r1;",
            "6.0",
            "sm_70",
            None,
        ),
        (
            "red.release.gpu.global.add.u32 [%d0], %r1;",
            "6.0",
            "sm_70",
            None,
        ),
        ("mov.u64 %d0, %globaltimer;", "6.0", "sm_50", None),
        ("mov.u64 %d0, %clock64;", "6.0", "sm_50", None),
        ("mov.u32 %r0, %smid;", "6.0", "sm_50", None),
        ("mov.u32 %r0, %nctaid.x;", "6.0", "sm_50", None),
        ("cvt.rni.s32.f32 %r0, %f0;", "6.0", "sm_50", None),
        (
            "dp4a.u32.s32 %r0, %r1, %r2, %r3;",
            "6.0",
            "sm_61",
            Some(("6.0", "sm_60")),
        ),
        ("dp4a.s32.u32 %r0, %r1, %r2, %r3;", "6.0", "sm_61", None),
        (
            "@%p0 ld.shared.v4.u32 {%r0,%r1,%r2,%r3}, [%r4];",
            "6.0",
            "sm_50",
            None,
        ),
    ];
    let parse = |inst: &str, version: &str, target: &str| {
        Module::parse(&format!(
            ".version {version}\n.target {target}\n.address_size 64\n.entry k() {{\n.reg .b32 %r<8>; .reg .f32 %f<4>; .reg .b64 %d<2>; .reg .pred %p<2>;\n{inst}\nret;\n}}"
        ))
        .and_then(Module::complete)
    };
    for (inst, version, target, below) in rows {
        // A target has a lowest version of its own.
        let parsed = parse(inst, version, target).or_else(|e| {
            let what = &e.0[0].what;
            if what.starts_with("sm_") && what.contains("the module says") {
                parse(inst, "7.8", target)
            } else {
                Err(e)
            }
        });
        assert!(
            parsed.is_ok(),
            "{inst}: {}",
            parsed.expect_err("it is none")
        );
        if let Some((version, target)) = below {
            assert!(
                parse(inst, version, target).is_err(),
                "{inst} for {target} at {version}"
            );
        }
    }
}

#[test]
fn mistakes_in_the_text() {
    let rows = [
        (
            "cp.async.cg.shared.global [%r0], [%d0], 8;",
            "`cp.async.cg.shared.global` copies 16 bytes, not 8",
        ),
        (
            "cp.async.ca.shared.global [%r0], [%d0], 12;",
            "`cp.async.ca.shared.global` copies 4, 8 or 16 bytes, not 12",
        ),
        (
            "cp.async.bulk.prefetch.L2.global [%d0], 24;",
            "a bulk copy of 24 bytes: the size is a multiple of 16",
        ),
        (
            "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r0], [%d0], 8, [%r0];",
            "a bulk copy of 8 bytes: the size is a multiple of 16",
        ),
        (
            "cp.reduce.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes.add.u32 [%r0], [%r1], 16, [%r2];",
            "unsupported in ptx-emu: cp.reduce.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes.add.u32",
        ),
        (
            "mbarrier.pending_count.b64 %r0, %d0;",
            "unsupported in ptx-emu: mbarrier.pending_count.b64",
        ),
        (
            "mbarrier.init.shared.b64 [%r0], 0;",
            "a number from 1 to 1048575 was expected",
        ),
        (
            "mbarrier.try_wait.parity.shared.b64 %p0, [%r0], 2;",
            "an integer literal from 0 to 1 was expected",
        ),
        (
            "setmaxnreg.inc.sync.aligned.u32 100;",
            "`setmaxnreg` needs a target such as sm_90a, the target is sm_90",
        ),
        (
            "fence.proxy.alias;",
            "unsupported in ptx-emu: fence.proxy.alias",
        ),
        (
            "ldmatrix.sync.aligned.m16n16.x1.trans.shared.b8 {%r0}, [%r0];",
            "unsupported in ptx-emu: ldmatrix.sync.aligned.m16n16.x1.trans.shared.b8",
        ),
    ];
    for (inst, wanted) in rows {
        let text = kernel(&format!(
            ".reg .b32 %r<4>; .reg .b64 %d<2>; .reg .pred %p<2>;\n{inst}"
        ));
        assert_eq!(
            Module::parse(&text)
                .and_then(Module::complete)
                .expect_err(inst)
                .0[0]
                .what,
            wanted
        );
    }

    let text = kernel("setmaxnreg.inc.sync.aligned.u32 100;").replace("sm_90", "sm_90a");
    let wanted = "setmaxnreg to 100 registers: a multiple of 8 from 24 to 256 was expected";
    assert_eq!(
        Module::parse(&text)
            .and_then(Module::complete)
            .expect_err(wanted)
            .0[0]
            .what,
        wanted
    );
}
