//! Each kind of mistake, planted once: the whole message.

use ptx_emu::{Class, Fault, Launch, Memory, Module, Schedule, Trace, run};

use crate::machine::{SETUP, Setup, kernel, launch};

const TWO_WARPS: Setup = Setup { block: 64, ..SETUP };
const SETUP_96: Setup = Setup { block: 96, ..SETUP };
const TRACED: Setup = Setup {
    grid: 2,
    trace: Trace::On,
    ..SETUP
};

/// The fault of a body run on 64 zero bytes of input and 64 uninitialised bytes of output.
fn fault(body: &str, setup: Setup) -> Box<Fault> {
    let body =
        format!(".reg .b32 %r<8>;\n.reg .b64 %d<8>;\n.reg .pred %p<4>;\n.reg .f32 %f<4>;\n{body}");
    match launch(&kernel(&body), &[0; 64], 64, setup) {
        Ok(_) => panic!("no fault in\n{body}"),
        Err(fault) => fault,
    }
}

/// Runs a planted mistake and compares class and text.
fn check(body: &str, setup: Setup, class: Class, wanted: &str) {
    let fault = fault(body, setup);
    assert_eq!(fault.class, class, "{fault}");
    let found = fault.to_string();
    let wanted: Vec<&str> = wanted.trim().lines().map(str::trim).collect();
    let found: Vec<&str> = found.lines().map(str::trim).collect();
    assert_eq!(found, wanted, "\n{}", found.join("\n"));
}

#[test]
fn out_of_bounds() {
    let body = "mad.wide.u32 %d0, %t, 4, %in;\nld.global.u32 %r0, [%d0];";
    check(
        body,
        SETUP,
        Class::OutOfBounds,
        "
        OutOfBounds: 4 bytes at 0x1000000000140 are accessed, which no allocation holds
        in k, block (0,0,0), thread (16,0,0)
        at line 16: `ld.global.u32 %r0, [%d0]`
        address 0x1000000000140 is just past the end of `in` (0x1000000000100, 64 bytes)
        check the index against the length",
    );
}

#[test]
fn misaligned() {
    check(
        "ld.global.v4.u32 {%r0, %r1, %r2, %r3}, [%in+4];",
        SETUP,
        Class::Misaligned,
        "
        Misaligned: an access of 16 bytes at 0x1000000000104, which is not a multiple of 16
        in k, block (0,0,0), thread (0,0,0)
        at line 15: `ld.global.v4.u32 {%r0, %r1, %r2, %r3}, [%in+4]`
        address 0x1000000000104 is offset 4 of `in` (0x1000000000100, 64 bytes)
        the address must be a multiple of the size of the whole vector",
    );
}

#[test]
fn uninitialised_global() {
    check(
        "ld.global.u32 %r0, [%out+8];",
        SETUP,
        Class::UninitialisedGlobal,
        "
        UninitialisedGlobal: the byte at 0x1001000000308 is read before anybody has written it
        in k, block (0,0,0), thread (0,0,0)
        at line 15: `ld.global.u32 %r0, [%out+8]`
        address 0x1001000000308 is offset 8 of `out` (0x1001000000300, 64 bytes)
        fill the buffer first, or do not read past what was written",
    );
}

#[test]
fn uninitialised_shared() {
    check(
        ".shared .b32 s[8];\nst.shared.u16 [s+4], 1;\nld.shared.u32 %r0, [s+4];\nst.global.u32 [%out], %r0;",
        Setup { block: 1, ..SETUP },
        Class::UninitialisedShared,
        "
        UninitialisedShared: shared memory is read before any thread has written it
        in k, block (0,0,0), thread (0,0,0)
        at line 17: `ld.shared.u32 %r0, [s+4]`
        address 0x406 is offset 6 of `s` (0x400, 32 bytes)
        write it before this load",
    );
}

#[test]
fn uninitialised_local() {
    check(
        ".local .b32 l[8];\nld.local.u32 %r0, [l+4];\nst.global.u32 [%out], %r0;",
        SETUP,
        Class::UninitialisedLocal,
        "
        UninitialisedLocal: local memory is read that the thread has not written
        in k, block (0,0,0), thread (0,0,0)
        at line 16: `ld.local.u32 %r0, [l+4]`",
    );
}

/// The first bit field of a word that is set: the others need no value. A value that goes elsewhere does.
#[test]
fn bit_fields_are_set_one_by_one() {
    let load = ".local .b32 l[8];\nld.local.u32 %r0, [l+4];\n";
    let store = "or.b32 %r2, %r1, 6;\nst.local.u32 [l+4], %r2;\n";
    let read = "ld.local.u32 %r3, [l+4];\nst.global.u32 [%out], %r3;";
    let rows = [
        ("and.b32 %r1, %r0, -8;\n", store, true),
        (
            "mov.b32 %r4, 5;\nbfi.b32 %r1, %r4, %r0, 0, 3;\n",
            store,
            true,
        ),
        (
            "and.b32 %r1, %r0, -8;\n",
            "st.local.u32 [l+8], %r1;\n",
            false,
        ),
        (
            "and.b32 %r1, %r0, -8;\n",
            "st.local.u32 [l+4], %r0;\n",
            false,
        ),
        (
            "and.b32 %r1, %r0, -8;\nadd.u32 %r5, %r0, 1;\n",
            store,
            false,
        ),
        (
            "and.b32 %r1, %r0, -8;\nadd.u32 %r5, %r1, 1;\n",
            store,
            false,
        ),
        ("add.u32 %r1, %r0, 8;\n", store, false),
    ];
    for (masks, stores, fine) in rows {
        let body = format!(
            ".reg .b32 %r<8>;\n{load}{masks}{stores}{}",
            if fine { read } else { "" }
        );
        let result = launch(&kernel(&body), &[0; 64], 64, SETUP);
        match result {
            Ok(_) => assert!(fine, "no fault in {body}"),
            Err(fault) => assert!(
                !fine && fault.class == Class::UninitialisedLocal,
                "{body}{fault}"
            ),
        }
    }
}

/// A structure is copied with its gaps, which keep no value; whoever reads a copy of one is named.
#[test]
fn gaps_of_structures_are_copied() {
    let copy = ".local .b32 l[8];\nmov.b32 %r6, 5;\nst.local.u32 [l+4], %r6;\n\
                ld.local.u32 %r0, [l];\nst.local.u32 [l+8], %r0;\n\
                ld.local.u32 %r1, [l+4];\nst.local.u32 [l+12], %r1;\nst.local.u32 [l+16], %r7;\n";
    let read = |at: u32| {
        format!(
            ".reg .b32 %r<8>;\n{copy}ld.local.u32 %r3, [l+{at}];\nadd.u32 %r4, %r3, 1;\nst.global.u32 [%out], %r4;"
        )
    };
    assert!(launch(&kernel(&read(12)), &[0; 64], 64, SETUP).is_ok());
    for at in [0, 8, 16] {
        let fault = launch(&kernel(&read(at)), &[0; 64], 64, SETUP).expect_err("no value");
        assert_eq!(fault.class, Class::UninitialisedLocal, "{at}: {fault}");
    }
}

/// NVRTC copies structures to global memory by pairs of words, gaps among them; an array without values is none.
#[test]
fn gaps_of_structures_are_copied_to_global_memory() {
    let set = ".reg .b32 %r<8>;\n.reg .b64 %d;\n.local .align 8 .b8 l[32];\nmov.b32 %r6, 5;\nst.local.u8 [l], %r6;\n\
               st.local.u32 [l+8], %r6;\nst.local.u32 [l+20], %r6;\nmul.wide.u32 %d, %t, 8;\nadd.u64 %d, %d, %out;\n";
    let rows = [
        (
            "ld.local.v2.u32 {%r0, %r1}, [l];\nst.global.v2.u32 [%d], {%r0, %r1};",
            true,
        ),
        (
            "ld.local.v2.u32 {%r0, %r1}, [l+8];\nst.global.v2.u32 [%d], {%r0, %r1};",
            true,
        ),
        ("ld.local.u32 %r0, [l];\nst.global.u32 [%out], %r0;", true),
        (
            "ld.local.v2.u32 {%r0, %r1}, [l+8];\nst.global.v2.u32 [%d], {%r1, %r1};",
            false,
        ),
        (
            "ld.local.v2.u32 {%r0, %r1}, [l+16];\nst.global.v2.u32 [%d], {%r0, %r1};",
            false,
        ),
        (
            "ld.local.v2.u32 {%r0, %r1}, [l+24];\nst.global.v2.u32 [%d], {%r0, %r1};",
            false,
        ),
        (
            "ld.local.u32 %r0, [l+12];\nst.global.u32 [%out], %r0;",
            false,
        ),
        (
            "ld.local.v2.u32 {%r0, %r1}, [l];\nadd.u32 %r1, %r1, 1;\nst.global.v2.u32 [%d], {%r0, %r1};",
            false,
        ),
    ];
    for (copy, fine) in rows {
        match launch(&kernel(&format!("{set}{copy}")), &[0; 64], 256, SETUP) {
            Ok(_) => assert!(fine, "no fault in {copy}"),
            Err(fault) => assert!(
                !fine && fault.class == Class::UninitialisedLocal,
                "{copy}{fault}"
            ),
        }
    }
}

/// Without optimisation a gap also goes from register to register; who uses it is named.
#[test]
fn what_has_no_value_may_be_moved() {
    let moves = ".local .b32 l[4];\nmov.b32 %r6, 5;\nst.local.u32 [l+4], %r6;\n\
                 ld.local.u32 %r2, [l];\nmov.b32 %r3, %r2;\nst.local.u32 [l+8], %r3;\n";
    let text = |use_of: &str| format!(".reg .b32 %r<9>;\n.reg .pred %q;\n{moves}{use_of}");
    for (fine, use_of) in [
        (
            true,
            "mov.b32 %r4, %r3;\nshfl.sync.idx.b32 %r5, %r4, 0, 31, -1;",
        ),
        (
            true,
            "setp.eq.u32 %q, %t, 99;\nmov.b32 %r7, %r8;\nselp.b32 %r4, %r7, 5, %q;\nst.global.u32 [%out], %r4;",
        ),
        (false, "mov.b32 %r4, %r3;\nadd.u32 %r5, %r4, 1;"),
        (false, "mov.b32 %r7, %r8;\nst.global.u32 [%out], %r7;"),
        (
            false,
            "setp.ne.u32 %q, %t, 99;\nmov.b32 %r7, %r8;\nselp.b32 %r4, %r7, 5, %q;\nst.global.u32 [%out], %r4;",
        ),
    ] {
        let found = launch(&kernel(&text(use_of)), &[0; 64], 64, SETUP);
        assert_eq!(found.is_ok(), fine, "{use_of}");
    }
}

#[test]
fn uninitialised_register() {
    let body = "setp.lt.u32 %p0, %t, 3;\n@%p0 mov.u32 %r0, 1;\nadd.u32 %r1, %r0, 1;\nst.global.u32 [%out], %r1;";
    check(
        body,
        SETUP,
        Class::UninitialisedRegister,
        "
        UninitialisedRegister: register %r0 is read before it is written
        in k, block (0,0,0), thread (3,0,0)
        at line 17: `add.u32 %r1, %r0, 1`
        write it on every path that leads here",
    );
}

#[test]
fn outside_shared_memory() {
    let body = ".shared .b32 s[8];\nmov.u32 %r0, s;\nmad.lo.u32 %r0, %t, 4, %r0;\nst.shared.u32 [%r0], %t;";
    check(
        body,
        SETUP,
        Class::OutOfBounds,
        "
        OutOfBounds: shared memory is written at 0x420, outside every variable
        in k, block (0,0,0), thread (8,0,0)
        at line 18: `st.shared.u32 [%r0], %t`
        address 0x420 is just past the end of `s` (0x400, 32 bytes)
        the address must lie within one shared variable",
    );
}

#[test]
fn writing_a_constant() {
    let text = kernel(".reg .b64 %d;\nmov.u64 %d, c;\nst.global.u32 [%d], 1;")
        .replace(".visible", ".const .u32 c = 1;\n.visible");
    let fault = launch(&text, &[0; 4], 4, SETUP).expect_err("constants can only be read");
    assert_eq!(fault.class, Class::ReadOnlySpace);
}

#[test]
fn divergent_barrier() {
    let body = "setp.lt.u32 %p0, %t, 8;\n@%p0 bra SKIP;\nbar.sync 0;\nSKIP:";
    check(body, SETUP, Class::DivergentBarrier, "
        DivergentBarrier: a barrier is executed by lanes 8-31 of a warp that has lanes 0-31
        in k, block (0,0,0), thread (8,0,0)
        at line 17: `bar.sync 0`
        all threads of the warp must reach it together: move it out of the branch, or let no thread exit before");
}

#[test]
fn barrier_after_exit() {
    check("setp.lt.u32 %p0, %t, 8;\n@%p0 exit;\nbar.sync 0;", SETUP, Class::DivergentBarrier, "
        DivergentBarrier: a barrier is executed by lanes 8-31 of a warp that has lanes 0-31, lanes 0-7 exited
        in k, block (0,0,0), thread (8,0,0)
        at line 17: `bar.sync 0`
        all threads of the warp must reach it together: move it out of the branch, or let no thread exit before");
}

#[test]
fn barrier_that_one_warp_never_reaches() {
    let body = "setp.lt.u32 %p0, %t, 32;\n@%p0 bra SKIP;\nbar.sync 1;\nSKIP:";
    check(body, TWO_WARPS, Class::BarrierMismatch, "
        BarrierMismatch: no warp can continue: warp 0 has exited; warp 1 waits at barrier 1 in line 17 (32 of 64 threads have arrived)
        in k, block (0,0,0), thread (32,0,0)
        at line 17: `bar.sync 1`
        all warps must reach the same barriers with the same thread counts");
}

#[test]
fn barrier_with_two_counts() {
    let body = "setp.lt.u32 %p0, %t, 32;\n@%p0 bar.arrive 2, 64;\n@!%p0 bar.sync 2, 32;";
    check(
        body,
        TWO_WARPS,
        Class::BarrierMismatch,
        "
        BarrierMismatch: barrier 2 is used for 32 threads while 64 are expected, or with and without reduction
        in k, block (0,0,0), thread (32,0,0)
        at line 17: `@!%p0 bar.sync 2, 32`
        warp 0 lane 0 first used it at line 16: `@%p0 bar.arrive 2, 64`",
    );
}

#[test]
fn barrier_left_half_full() {
    check(
        "bar.arrive 2, 64;",
        SETUP_96,
        Class::BarrierMismatch,
        "
        BarrierMismatch: the block has ended, and 32 of 64 threads have arrived at barrier 2
        in k, block (0,0,0), thread (64,0,0)
        at line 15: `bar.arrive 2, 64`
        all warps must reach the same barriers with the same thread counts",
    );
}

#[test]
fn shuffle_without_some_lanes() {
    let body = "setp.lt.u32 %p0, %t, 8;\n@%p0 shfl.sync.bfly.b32 %r0, %t, 1, 31, -1;";
    check(
        body,
        SETUP,
        Class::InactiveLane,
        "
        InactiveLane: the mask 0xffffffff names lanes 8-31, which exit without executing this
        in k, block (0,0,0), thread (8,0,0)
        at line 16: `@%p0 shfl.sync.bfly.b32 %r0, %t, 1, 31, -1`
        all lanes that the mask names must execute the same instruction, with the same qualifiers and mask",
    );
}

#[test]
fn shuffle_by_an_unnamed_lane() {
    check(
        "vote.sync.ballot.b32 %r0, 1, 0xffff;",
        SETUP,
        Class::InactiveLane,
        "
        InactiveLane: lanes 16-31 executes this, but the mask 0x0000ffff does not name it
        in k, block (0,0,0), thread (16,0,0)
        at line 15: `vote.sync.ballot.b32 %r0, 1, 0xffff`
        all lanes that the mask names must execute it together, and no others",
    );
}

#[test]
fn shuffle_from_a_lane_outside() {
    let body = "setp.lt.u32 %p0, %t, 8;\n@%p0 shfl.sync.idx.b32 %r0, %t, 9, 31, 0xff;";
    check(
        body,
        SETUP,
        Class::InactiveLane,
        "
        InactiveLane: lane 0 reads from lane 9, which does not take part
        in k, block (0,0,0), thread (0,0,0)
        at line 16: `@%p0 shfl.sync.idx.b32 %r0, %t, 9, 31, 0xff`
        all lanes that the mask names must execute it together, and no others",
    );
}

/// The barrier that part of a warp misses comes before the race that it does not prevent.
#[test]
fn divergent_barrier_before_its_race() {
    let body = "
        .shared .b32 s[1];
        setp.eq.u32 %p0, %t, 0;
        @%p0 st.shared.u32 [s], 7;
        setp.ge.u32 %p1, %t, 72;
        @%p1 bar.sync 0;
        ld.shared.u32 %r0, [s];
        bar.sync 0;
        st.global.u32 [%out], %r0;";
    check(body, SETUP_96, Class::DivergentBarrier, "
        DivergentBarrier: a barrier is executed by lanes 8-31 of a warp that has lanes 0-31
        in k, block (0,0,0), thread (72,0,0)
        at line 20: `@%p1 bar.sync 0`
        all threads of the warp must reach it together: move it out of the branch, or let no thread exit before");

    // Whole warps miss the barrier.
    let fault = fault(&body.replace("72", "64"), SETUP_96);
    assert_eq!(
        (fault.class, fault.instead),
        (
            Class::SharedRace,
            "not all threads of the block reach the barrier between the two: move it out of the branch",
        )
    );

    // The load comes before the store.
    let late = body.replace("setp.eq.u32 %p0, %t, 0", "setp.eq.u32 %p0, %t, 95");
    assert_eq!(self::fault(&late, SETUP_96).class, Class::DivergentBarrier);
}

#[test]
fn forgotten_barrier() {
    let body = "
        .shared .b32 s[64];
        mov.u32 %r0, s;
        mad.lo.u32 %r1, %t, 4, %r0;
        st.shared.u32 [%r1], %t;
        xor.b32 %r2, %t, 63;
        mad.lo.u32 %r1, %r2, 4, %r0;
        ld.shared.u32 %r3, [%r1];
        st.global.u32 [%out], %r3;";
    let body = body.replace("        ", "");
    let fault = fault(&body, TWO_WARPS);

    // Warp 0 finds what warp 1 has not written yet: nothing is there to race with.
    assert_eq!(fault.class, Class::UninitialisedShared);
    let barrier = "if another thread writes it, put a barrier between the write and this load; ";
    assert!(fault.instead.starts_with(barrier), "{fault}");
    let filled = body.replacen(
        "st.shared",
        "st.shared.u32 [%r1], 0;\nbar.sync 0;\nst.shared",
        1,
    );
    check(
        &filled,
        TWO_WARPS,
        Class::SharedRace,
        "
        SharedRace: shared memory is written while another thread uses it, and nothing orders the two
        in k, block (0,0,0), thread (0,0,0)
        at line 21: `st.shared.u32 [%r1], %t`
        warp 1 lane 31 read at line 24: `ld.shared.u32 %r3, [%r1]`
        address 0x400 is offset 0 of `s` (0x400, 256 bytes)
        put a barrier between the two",
    );
}

#[test]
fn forgotten_warp_barrier() {
    let body = "
        .shared .b32 s[32];
        mov.u32 %r0, s;
        mad.lo.u32 %r1, %t, 4, %r0;
        st.shared.u32 [%r1], %t;
        xor.b32 %r2, %t, 1;
        mad.lo.u32 %r1, %r2, 4, %r0;
        ld.shared.u32 %r3, [%r1];";
    let body = body.replace("        ", "");
    check(
        &body,
        SETUP,
        Class::SharedRace,
        "
        SharedRace: shared memory is read while another thread uses it, and nothing orders the two
        in k, block (0,0,0), thread (0,0,0)
        at line 22: `ld.shared.u32 %r3, [%r1]`
        warp 0 lane 1 wrote at line 19: `st.shared.u32 [%r1], %t`
        address 0x404 is offset 4 of `s` (0x400, 128 bytes)
        put a barrier between the two",
    );
    let mended = body.replace("xor.b32", "bar.warp.sync -1;\nxor.b32");
    assert!(
        launch(
            &kernel(&format!(".reg .b32 %r<8>;\n{mended}")),
            &[0; 64],
            64,
            SETUP
        )
        .is_ok()
    );
}

#[test]
fn lanes_store_different_values() {
    check(
        "st.global.u32 [%out], %t;",
        SETUP,
        Class::LanesStoreDifferent,
        "
        LanesStoreDifferent: lanes 0 and 1 store 0x0 and 0x1 to the same address
        in k, block (0,0,0), thread (0,0,0)
        at line 15: `st.global.u32 [%out], %t`
        address 0x1001000000300 is offset 0 of `out` (0x1001000000300, 64 bytes)
        let one lane store, or use an atomic",
    );
}

#[test]
fn read_only_data_is_written() {
    let body = "setp.ne.u32 %p0, %t, 0;\n@%p0 exit;\nld.global.nc.u32 %r0, [%in];\nst.global.u32 [%in], %r0;";
    check(
        body,
        Setup { grid: 1, ..TRACED },
        Class::ReadOnlyWritten,
        "
        ReadOnlyWritten: data loaded with .nc is written during the same launch
        in k, block (0,0,0), thread (0,0,0)
        at line 17: `ld.global.nc.u32 %r0, [%in]`
        a thread wrote at line 18: `st.global.u32 [%in], %r0`
        address 0x1000000000100 is offset 0 of `in` (0x1000000000100, 64 bytes)
        load it without .nc, or write elsewhere",
    );
}

#[test]
fn blocks_race() {
    let body = "mov.u32 %r0, %ctaid.x;\nst.global.u32 [%out], %r0;";
    check(
        body,
        TRACED,
        Class::GlobalRace,
        "
        GlobalRace: global memory at 0x1001000000300 is written by this block and written by another, in no order
        in k, block (1,0,0), thread (0,0,0)
        at line 16: `st.global.u32 [%out], %r0`
        another block wrote at line 16: `st.global.u32 [%out], %r0`
        address 0x1001000000300 is offset 0 of `out` (0x1001000000300, 64 bytes)
        blocks run in any order: split the work so that no two share bytes, or use atomics",
    );
}

#[test]
fn threads_race_on_global_memory() {
    let body = "
        mad.wide.u32 %d0, %t, 4, %in;
        st.global.u32 [%d0], %t;
        xor.b32 %r0, %t, 8;
        mad.wide.u32 %d0, %r0, 4, %in;
        ld.global.u32 %r1, [%d0];";
    let body = body.replace("        ", "");
    let setup = Setup {
        block: 16,
        trace: Trace::On,
        ..SETUP
    };
    check(
        &body,
        setup,
        Class::GlobalRace,
        "
        GlobalRace: global memory at 0x1000000000120 is read by this thread and written by another, in no order
        in k, block (0,0,0), thread (0,0,0)
        at line 20: `ld.global.u32 %r1, [%d0]`
        warp 0 lane 8 wrote at line 17: `st.global.u32 [%d0], %t`
        address 0x1000000000120 is offset 32 of `in` (0x1000000000100, 64 bytes)
        put a barrier between the two",
    );
    let mended = body.replace("xor.b32", "bar.sync 0;\nxor.b32");
    assert!(
        launch(
            &kernel(&format!(".reg .b32 %r<8>; .reg .b64 %d<8>;\n{mended}")),
            &[0; 64],
            64,
            setup
        )
        .is_ok()
    );
}

#[test]
fn trap() {
    check(
        "trap;",
        SETUP,
        Class::Trap,
        "
        Trap: trap was executed
        in k, block (0,0,0), thread (0,0,0)
        at line 15: `trap`
        the kernel itself says that something is wrong",
    );
}

#[test]
fn out_of_fuel() {
    check(
        "LOOP:\nbra LOOP;",
        Setup { fuel: 100, ..SETUP },
        Class::OutOfFuel,
        "
        OutOfFuel: the block has executed 100 warp instructions and not ended
        in k, block (0,0,0), thread (0,0,0)
        at line 16: `bra LOOP`
        look for a loop that never ends, or raise the schedule's fuel",
    );
}

#[test]
fn indirect_jump_past_its_list() {
    check(
        "list: .branchtargets A;\nmov.u32 %r0, 3;\nbrx.idx %r0, list;\nA:",
        SETUP,
        Class::OutOfBounds,
        "
        OutOfBounds: brx.idx with index 3 into a list of 1 labels
        in k, block (0,0,0), thread (0,0,0)
        at line 17: `brx.idx %r0, list`",
    );
}

#[test]
fn bad_launches() {
    let text = kernel("").replace("out)\n", "out)\n.maxntid 64\n");
    let module = Module::parse(&text).expect("the kernel is right");
    let kernel = module.kernel("k").expect("it is called k");
    let good = Launch {
        kernel,
        grid: [1, 1, 1],
        block: [32, 1, 1],
        dynamic_shared: 0,
        params: &[0; 16],
    };
    let rows = [
        (
            Launch {
                block: [96, 1, 1],
                ..good
            },
            "a block of 96 threads: .maxntid says at most 64",
        ),
        (
            Launch {
                block: [0, 1, 1],
                ..good
            },
            "a block of [0, 1, 1] threads: at most 1024, none of a size 0",
        ),
        (
            Launch {
                grid: [1, 65536, 1],
                ..good
            },
            "a grid of [1, 65536, 1] blocks: 1 to [2147483647, 65535, 65535]",
        ),
        (
            Launch {
                dynamic_shared: 300_000,
                ..good
            },
            "300000 bytes of shared memory: at most 232448",
        ),
        (
            Launch {
                params: &[0; 15],
                ..good
            },
            "15 bytes of parameters: the kernel takes 16",
        ),
    ];
    for (launch, wanted) in rows {
        let fault = run(
            &Memory::new(1 << 20),
            &launch,
            &Schedule::default(),
            Trace::Off,
        )
        .expect_err(wanted);
        assert_eq!(
            (fault.class, fault.what.as_str()),
            (Class::BadLaunch, wanted)
        );
    }
}

#[test]
fn after_free() {
    let module = Module::parse(&kernel("ld.global.u32 %t, [%in];")).expect("the kernel is right");
    let memory = Memory::new(1 << 20);
    let gone = memory.alloc(64).expect("there is room");
    memory.set_label(gone, "weights");
    memory.free(gone).expect("it was just allocated");
    let params = [gone.to_le_bytes(), gone.to_le_bytes()].concat();
    let kernel = module.kernel("k").expect("it is called k");
    let launch = Launch {
        kernel,
        grid: [1, 1, 1],
        block: [32, 1, 1],
        dynamic_shared: 0,
        params: &params,
    };
    let fault = run(&memory, &launch, &Schedule::default(), Trace::Off).expect_err("it was freed");
    assert_eq!(fault.class, Class::AfterFree);
    assert_eq!(
        fault
            .allocation
            .as_ref()
            .map(|a| (a.label.as_str(), a.bytes)),
        Some(("weights", 64))
    );
}

/// `.loc` names the Rust line.
#[test]
fn the_rust_place_is_named() {
    let text =
        kernel(".loc 1 42 7\ntrap;").replace(".visible", ".file 1 \"src/rms_norm.rs\"\n.visible");
    let fault = launch(&text, &[0; 4], 4, SETUP).expect_err("it traps");
    assert!(
        fault
            .to_string()
            .contains("at line 13: `trap` (src/rms_norm.rs:42:7)"),
        "{fault}"
    );
}

/// An algorithm may look one element too far; whoever uses what it found there is named by the load.
#[test]
fn shared_memory_without_a_value_may_be_loaded() {
    let load = ".reg .b32 %r<9>; .reg .pred %q, %p<2>; .shared .b32 s[8]; setp.ne.u32 %q, %t, 99;\n\
                ld.shared.u32 %r0, [s+4];\nmov.b32 %r1, %r0;\n";
    for (fine, uses) in [
        (
            true,
            "selp.b32 %r2, 3, %r1, %q;\nst.global.u32 [%out], %r2;",
        ),
        (true, "mov.b32 %r1, 4;\nst.global.u32 [%out], %r1;"),
        (false, "st.global.u32 [%out], %r1;"),
        (true, "selp.b32 %r2, %r1, 3, %q;\nadd.u32 %r3, %r2, 1;"),
        (
            false,
            "selp.b32 %r2, %r1, 3, %q;\nadd.u32 %r3, %r2, 1;\nst.global.u32 [%out], %r3;",
        ),
        (false, ".local .b32 l[2];\nst.local.u32 [l], %r1;"),
        (
            true,
            "shfl.sync.idx.b32 %r2, %r1, 0, 31, -1;\nadd.u32 %r3, %r2, 1;",
        ),
        (
            false,
            "shfl.sync.idx.b32 %r2, %r1, 0, 31, -1;\nst.global.u32 [%out], %r2;",
        ),
        (
            false,
            "add.u32 %r1, %r1, 1;\nshfl.sync.idx.b32 %r1, %r1, 0, 31, -1;\nst.global.u32 [%out], %r1;",
        ),
        (
            true,
            "setp.gt.s32 %q, %r1, 3;\nsetp.gt.s32 %p0, %t, 99;\nand.pred %p1, %p0, %q;\nselp.b32 %r2, 1, 2, %p1;\nst.global.u32 [%out], %r2;",
        ),
        (
            true,
            "setp.gt.s32 %q, 3, %r1;\nsetp.lt.s32 %p0, %t, 99;\nor.pred %p1, %q, %p0;\n@%p1 mov.b32 %r2, 1;",
        ),
        (
            false,
            "setp.gt.s32 %q, %r1, 3;\nsetp.lt.s32 %p0, %t, 99;\nand.pred %p1, %p0, %q;\nselp.b32 %r2, 1, 2, %p1;\nst.global.u32 [%out], %r2;",
        ),
        (
            false,
            "setp.gt.s32 %q, %r1, 3;\nnot.pred %p1, %q;\n@%p1 mov.b32 %r2, 1;",
        ),
        (false, "setp.eq.u32 %q, %r1, 0;\n@%q bra OUT;\nOUT:"),
    ] {
        match launch(&kernel(&format!("{load}{uses}")), &[0; 64], 64, SETUP) {
            Ok(_) => assert!(fine, "{uses}"),
            Err(fault) => {
                assert_eq!(
                    (fine, fault.class),
                    (false, Class::UninitialisedShared),
                    "{uses}: {fault}"
                );
                assert!(
                    fault.to_string().contains("`ld.shared.u32 %r0, [s+4]`"),
                    "{fault}"
                );
            }
        }
    }
}
