//! Values of 128 bits: manual, "mov", "ld", "st", "atom".

use ptx_emu::{Class, Module, Order, Trace};

use crate::machine::{SETUP, Setup, kernel, launch};

const REGISTERS: &str = ".shared .align 16 .b8 s[32]; .local .align 16 .b8 stack[32];
    .reg .b128 %q<4>; .reg .b64 %d<8>; .reg .b32 %r<8>; .reg .pred %p;\n";

/// Sixteen bytes, of which no two are the same.
fn value(first: u8) -> u128 {
    u128::from_le_bytes(std::array::from_fn(|i| first + i as u8))
}

/// Runs a body in one thread on two values, and gives what it leaves in two.
fn two(body: &str) -> [u128; 2] {
    let input = [value(0x70), value(0x90)].map(u128::to_le_bytes).concat();
    let setup = Setup {
        block: 1,
        trace: Trace::On,
        ..SETUP
    };
    let text = kernel(&format!("{REGISTERS}{body}"));
    let (out, _) =
        launch(&text, &input, 32, setup).unwrap_or_else(|fault| panic!("{fault}\n{body}"));
    [0, 16].map(|at| u128::from_le_bytes(std::array::from_fn(|i| out[at + i])))
}

#[test]
fn halves_and_words_are_packed() {
    let (a, b) = (value(0x70), value(0x90));
    let low = |v: u128| v & u128::from(u64::MAX);
    let rows: &[(&str, u128)] = &[
        ("mov.b128 %q1, %q0; mov.b128 %q0, 5;", a),
        (
            "mov.b128 {%d0, %d1}, %q0; mov.b128 %q1, {%d1, %d0};",
            a.rotate_left(64),
        ),
        (
            "mov.b128 {%d0, _}, %q0; mov.b128 %q1, {%d0, 7};",
            low(a) | 7 << 64,
        ),
        (
            "mov.b128 {%r0, %r1, %r2, %r3}, %q0; mov.b128 %q1, {%r3, %r0, %r1, %r2};",
            a.rotate_left(32),
        ),
        ("mov.b128 %q1, 0xfedcba9876543210;", 0xfedc_ba98_7654_3210),
        (
            "ld.global.v2.u64 {%d0, %d1}, [%in+16]; mov.b128 %q1, {%d0, %d1};",
            b,
        ),
        ("ld.b128 %q1, [%in+16];", b),
        ("ld.global.nc.L1::no_allocate.b128 %q1, [%in];", a),
        (
            "st.shared.b128 [s+16], %q0; ld.shared::cta.b128 %q1, [s+16];",
            a,
        ),
        (
            "cvta.shared.u64 %d0, 1024; st.volatile.b128 [%d0], %q0; ld.relaxed.cta.shared.b128 %q1, [s];",
            a,
        ),
        (
            "st.local.b128 [stack+16], %q0; ld.local.b128 %q1, [stack+16];",
            a,
        ),
        (
            "st.release.gpu.global.b128 [%out], %q0; ld.acquire.sys.global.b128 %q1, [%out];",
            a,
        ),
        (
            "st.global.b128 [%out], 9; ld.mmio.relaxed.sys.global.b128 %q1, [%out];",
            9,
        ),
    ];
    for (moves, wanted) in rows {
        let load = moves.replace("1024", "%d1");
        let body = format!(
            "mov.u64 %d1, s; ld.global.b128 %q0, [%in]; {load} st.global.b128 [%out], %q1; st.global.b128 [%out+16], 0;"
        );
        assert_eq!(two(&body)[0], *wanted, "{moves}");
    }
}

/// Both halves decide whether a value is exchanged, and the old one comes back whole.
#[test]
fn atomics_exchange_and_compare() {
    let (a, b) = (value(0x70), value(0x90));
    let rows: &[(&str, u128, u128)] = &[
        ("exch.b128 %q3, [AT], %q1", a, b),
        ("exch.b128 %q3, [AT], 3", a, 3),
        ("cas.b128 %q3, [AT], %q0, %q1", a, b),
        ("cas.b128 %q3, [AT], %q1, %q1", a, a),
        // The lower halves are the same, then the upper ones.
        ("cas.b128 %q3, [AT], %q2, %q1", a, a),
        ("cas.b128 %q3, [AT], %q3, %q1", a, a),
        // The old value may come back in an operand, or not at all.
        ("cas.b128 %q0, [AT], %q0, %q1; mov.b128 %q3, %q0", a, b),
        (
            "cas.b128 _, [AT], %q0, %q1",
            1 << 64 | u128::from((a as u64) ^ 1),
            b,
        ),
    ];
    let head = "ld.global.b128 %q0, [%in]; ld.global.b128 %q1, [%in+16]; mov.b128 {%d0, %d1}, %q0;
        xor.b64 %d2, %d0, 1; mov.b128 %q2, {%d0, 1}; mov.b128 %q3, {%d2, 1};";
    for (inst, old, new) in rows {
        let upper = if inst.contains("%q3, %q1") {
            "mov.b128 %q3, {%d2, %d1};"
        } else {
            ""
        };
        let body = |space: &str, at: &str| {
            format!(
                "{head} {upper} st.SPACE.b128 [{at}], %q0; atom.acq_rel.gpu.SPACE.{}; ld.SPACE.b128 %q2, [{at}];
                st.global.b128 [%out], %q3; st.global.b128 [%out+16], %q2;",
                inst.replace("AT", at)
            )
            .replace(".SPACE", space)
        };
        for (space, at) in [
            (".global", "%out"),
            ("", "%out"),
            (".shared", "s"),
            (".shared::cta", "s+16"),
        ] {
            assert_eq!(two(&body(space, at)), [*old, *new], "{inst} {space}");
        }
    }
}

/// `atomicCAS` of 16 bytes as nvcc writes it: every thread counts in the lower half and adds its number to the upper one.
/// The last of all threads copies the two sums.
fn counts(scope: &str, first: &str, blocks: u32) -> String {
    let last = blocks * 32 - 1;
    kernel(&format!(
        ".reg .b128 %q<2>; .reg .b64 %d<9>; .reg .b32 %r<4>; .reg .pred %p<2>;
        mov.u32 %r0, %ctaid.x; mad.lo.u32 %r0, %r0, 32, %t; cvt.u64.u32 %d8, %r0;
        {first}
    AGAIN:
        add.u64 %d4, %d0, 1; add.u64 %d5, %d1, %d8;
        {{ .reg .b128 _cmp, _val, _old;
        mov.b128 _cmp, {{%d0, %d1}}; mov.b128 _val, {{%d4, %d5}};
        atom{scope}.global.cas.b128 _old, [%in], _cmp, _val;
        mov.b128 {{%d2, %d3}}, _old; }}
        setp.ne.u64 %p0, %d2, %d0; setp.ne.or.u64 %p1, %d3, %d1, %p0;
        mov.u64 %d0, %d2; mov.u64 %d1, %d3;
        @%p1 bra AGAIN;
        atom.acq_rel.gpu.global.inc.u32 %r1, [%in+16], {last};
        setp.ne.u32 %p0, %r1, {last}; @%p0 bra END;
        ld.relaxed.gpu.global.b128 %q0, [%in]; st.global.b128 [%out], %q0;
    END:"
    ))
}

/// The sums come out whatever the order, and with blocks on two threads, where no value may be torn.
#[test]
fn blocks_compare_and_swap() {
    let blocks = 4;
    let all = u128::from(blocks) * 32;
    let firsts = [
        "mov.u64 %d0, 0; mov.u64 %d1, 0;",
        "ld.relaxed.gpu.global.b128 %q0, [%in]; mov.b128 {%d0, %d1}, %q0;",
        "ld.global.b128 %q0, [%in]; mov.b128 {%d0, %d1}, %q0;",
    ];
    for (order, seed, threads, trace) in [
        (Order::InOrder, 0, 1, Trace::On),
        (Order::Reversed, 0, 1, Trace::On),
        (Order::Shuffled, 3, 1, Trace::On),
        (Order::InOrder, 0, 2, Trace::Off),
    ] {
        for first in firsts {
            let setup = Setup {
                grid: blocks,
                order,
                seed,
                threads,
                trace,
                ..SETUP
            };
            let text = counts(".relaxed.gpu", first, blocks);
            let (out, _) =
                launch(&text, &[0; 32], 16, setup).unwrap_or_else(|fault| panic!("{fault}"));
            assert_eq!(
                out,
                (all | (all * (all - 1) / 2) << 64).to_le_bytes(),
                "{first} {order:?}"
            );
        }
    }

    let setup = Setup {
        grid: 2,
        trace: Trace::On,
        ..SETUP
    };
    let narrow = launch(&counts(".relaxed.cta", firsts[0], 2), &[0; 32], 16, setup).unwrap_err();
    assert_eq!(narrow.class, Class::GlobalRace, "{narrow}");
}

/// A block exchanges values whose halves are the same while another one, on another thread, loads and compares them.
#[test]
fn no_value_is_torn() {
    for (ty, old, new, halves) in [
        (
            "b128",
            "%q0",
            "mov.b128 %q1, {%d0, %d0};",
            "mov.b128 {%d2, %d3}, %q0;",
        ),
        (
            "b64",
            "%d4",
            "shl.b64 %d1, %d0, 32; or.b64 %d5, %d1, %d0;",
            "shr.u64 %d3, %d4, 32; and.b64 %d2, %d4, 0xffffffff;",
        ),
    ] {
        let value = if ty == "b128" { "%q1" } else { "%d5" };
        let body = format!(
            "{REGISTERS} mov.u64 %d0, 0; mov.u32 %r0, %ctaid.x; setp.ne.u32 %p, %r0, 0; @%p bra LOAD;
        SWAP: {new} atom.relaxed.gpu.global.exch.{ty} {old}, [%in], {value};
            add.u64 %d0, %d0, 1; setp.lt.u64 %p, %d0, 20000; @%p bra SWAP; bra END;
        LOAD: ld.relaxed.gpu.global.{ty} {old}, [%in]; {halves} setp.ne.u64 %p, %d2, %d3; @%p trap;
            add.u64 %d0, %d0, 1; setp.lt.u64 %p, %d0, 20000; @%p bra LOAD;
        END:"
        );
        let setup = Setup {
            grid: 2,
            block: 1,
            threads: 2,
            ..SETUP
        };
        launch(&kernel(&body), &[0; 16], 16, setup).unwrap_or_else(|fault| panic!("{fault}"));
    }
}

#[test]
fn mistakes_are_named() {
    let rows: &[(&str, u32, Class)] = &[
        ("ld.global.b128 %q0, [%in+8];", 1, Class::Misaligned),
        (
            "mov.b128 %q0, 1; st.global.b128 [%out+8], %q0;",
            1,
            Class::Misaligned,
        ),
        (
            "mov.b128 %q0, 1; st.shared.b128 [%d0+8], %q0;",
            1,
            Class::Misaligned,
        ),
        (
            "atom.global.exch.b128 %q0, [%in+8], 1;",
            1,
            Class::Misaligned,
        ),
        (
            "atom.shared.exch.b128 %q0, [%d0+8], 1;",
            1,
            Class::Misaligned,
        ),
        ("ld.global.b128 %q0, [%in+32];", 1, Class::OutOfBounds),
        (
            "atom.global.exch.b128 %q0, [%in+32], 1;",
            1,
            Class::OutOfBounds,
        ),
        (
            "cvta.local.u64 %d1, stack; atom.exch.b128 %q0, [%d1], 1;",
            1,
            Class::OutOfBounds,
        ),
        // One half has no value.
        (
            "st.global.u64 [%out], 1; ld.global.b128 %q0, [%out];",
            1,
            Class::UninitialisedGlobal,
        ),
        (
            "st.global.u64 [%out], 1; atom.global.cas.b128 %q0, [%out], 1, 2;",
            1,
            Class::UninitialisedGlobal,
        ),
        (
            "st.shared.u64 [s], 1; ld.shared.b128 %q0, [s]; mov.b128 {_, %d1}, %q0; st.global.u64 [%out], %d1;",
            1,
            Class::UninitialisedShared,
        ),
        (
            "st.shared.u64 [s], 1; atom.shared.exch.b128 %q0, [s], 1;",
            1,
            Class::UninitialisedShared,
        ),
        (
            "st.local.u64 [stack], 1; ld.local.b128 %q0, [stack]; st.global.b128 [%out], %q0;",
            1,
            Class::UninitialisedLocal,
        ),
        (
            "mov.b128 {%d1, %d2}, %q0; st.global.u64 [%out], %d1;",
            1,
            Class::UninitialisedRegister,
        ),
        (
            "mov.u64 %d1, 0; mov.b128 %q0, {%d1, %d2}; st.global.b128 [%out], %q0;",
            1,
            Class::UninitialisedRegister,
        ),
        (
            "atom.global.exch.b128 _, [%in], %q0;",
            1,
            Class::UninitialisedRegister,
        ),
        // The other block has the upper half only.
        (
            "setp.eq.u32 %p, %r0, 0; @%p atom.global.exch.b128 %q0, [%in], 1; @!%p st.global.u64 [%in+8], 5;",
            2,
            Class::GlobalRace,
        ),
        (
            "cvt.u64.u32 %d1, %r0; mov.b128 %q0, {%d1, 0}; st.global.b128 [%in], %q0;",
            2,
            Class::GlobalRace,
        ),
        (
            "st.relaxed.gpu.global.b128 [%in], 3; ld.global.b128 %q0, [%in];",
            2,
            Class::GlobalRace,
        ),
    ];
    for (inst, grid, class) in rows {
        let body = format!("{REGISTERS} mov.u64 %d0, s; mov.u32 %r0, %ctaid.x; {inst}");
        let setup = Setup {
            grid: *grid,
            block: 1,
            trace: Trace::On,
            ..SETUP
        };
        let fault = launch(&kernel(&body), &[0; 32], 16, setup)
            .map(|_| ())
            .expect_err(inst);
        assert_eq!(fault.class, *class, "{inst} {fault}");
    }
}

/// Lanes and warps of a block exchange at one place of shared memory; a plain store beside them is a race.
#[test]
fn warps_exchange_in_shared_memory() {
    let body = |then: &str| {
        format!(
            "{REGISTERS} cvt.u64.u32 %d0, %t; add.u64 %d1, %d0, 1; mov.b128 %q1, {{%d1, %d0}};
            setp.eq.u32 %p, %t, 0; @%p st.shared.b128 [s], 0; bar.sync 0;
            {then}
            atom.shared.exch.b128 %q0, [s], %q1; mov.b128 {{%d2, %d3}}, %q0;
            atom.global.add.u64 %d4, [%in], %d2; bar.sync 0; @!%p bra END;
            ld.shared.v2.u64 {{%d2, %d3}}, [s]; atom.global.add.u64 %d4, [%in], %d2; add.u64 %d4, %d4, %d2;
            st.global.u64 [%out], %d4; st.global.u64 [%out+8], %d3; END:"
        )
    };
    for order in [Order::InOrder, Order::Reversed, Order::Shuffled] {
        let setup = Setup {
            block: 64,
            order,
            trace: Trace::On,
            ..SETUP
        };
        let (out, _) = launch(&kernel(&body("")), &[0; 16], 16, setup)
            .unwrap_or_else(|fault| panic!("{fault}"));
        let sum = u64::from_le_bytes(std::array::from_fn(|i| out[i]));
        assert_eq!(sum, 64 * 65 / 2, "{order:?}");
        let plain = kernel(&body(
            "setp.eq.u32 %p, %t, 33; @%p st.shared.b128 [s], %q1;",
        ));
        let fault = launch(&plain, &[0; 16], 16, setup).unwrap_err();
        assert_eq!(fault.class, Class::SharedRace, "{fault}");
    }
}

/// A strong store without a fence reaches other blocks late, both halves at once.
#[test]
fn stores_arrive_late_and_whole() {
    let body = |fence: &str| {
        kernel(&format!(
            "{REGISTERS} mov.u32 %r0, %ctaid.x; setp.eq.u32 %p, %r0, 0; @%p bra STORE;
        ASK: ld.acquire.gpu.global.u32 %r1, [%in+16]; setp.eq.u32 %p, %r1, 0; @%p bra ASK;
            ld.relaxed.gpu.global.b128 %q0, [%in]; st.global.b128 [%out], %q0; bra END;
        STORE: mov.u64 %d0, 5; mov.b128 %q0, {{%d0, 7}}; st.relaxed.gpu.global.b128 [%in], %q0; {fence}
            st.relaxed.gpu.global.u32 [%in+16], 1;
        END:"
        ))
    };
    let setup = Setup {
        grid: 2,
        block: 1,
        trace: Trace::On,
        ..SETUP
    };
    for (fence, wanted) in [
        ("", 0x22 << 64 | 0x11),
        ("fence.acq_rel.gpu;", 7 << 64 | 5u128),
    ] {
        let input = [(0x22u128 << 64 | 0x11).to_le_bytes(), [0; 16]].concat();
        let (out, _) =
            launch(&body(fence), &input, 16, setup).unwrap_or_else(|fault| panic!("{fault}"));
        assert_eq!(out, wanted.to_le_bytes(), "{fence}");
    }
}

#[test]
fn what_is_no_form_is_refused() {
    let rows: &[(&str, &str)] = &[
        (
            "ld.global.v2.b128 {%q0, %q1}, [%in];",
            "a vector has at most 16 bytes",
        ),
        (
            "st.global.b128 [%in], %d0;",
            "`%d0` is a .b64 register where .b128 was expected",
        ),
        (
            "st.global.b128 [%in], -1;",
            "unsupported in ptx-emu: the literal -1 as 128 bits",
        ),
        (
            "st.global.b128 [%in], 0f00000000;",
            "a .b128 register or an integer literal was expected",
        ),
        (
            "st.global.b64 [%in], %q0;",
            "unsupported in ptx-emu: `%q0`, a .b128 register",
        ),
        (
            "cvt.u32.u64 %r0, %q0;",
            "unsupported in ptx-emu: `%q0`, a .b128 register",
        ),
        (
            "mov.b64 %d0, %q0;",
            "`%q0` is a .b128 register where .b64 was expected",
        ),
        (
            "mov.b128 {%d0, %d1}, {%d2, %d3};",
            "needs a .b128 register on one side",
        ),
        (
            "mov.b128 %q0, {%q1, %q2};",
            "`%q1` is a .b128 register where .b64 was expected",
        ),
        (
            "mov.b128 %q0, {%d0, %d1, %d2};",
            "unsupported in ptx-emu: mov.b128 of 3 elements",
        ),
        (
            "ld.global.b64 %d0, [%q0];",
            "is a .b128 register; an address here",
        ),
        ("atom.global.add.b128 %q0, [%in], %q1;", ".b128"),
        ("red.global.exch.b128 [%in], %q1;", ".b128"),
        (
            "atom.global.exch.v2.b128 {%q0, %q1}, [%in], {%q2, %q3};",
            "no vectors of this type",
        ),
        (
            "atom.global.exch.L2::cache_hint.b128 %q0, [%in], %q1, %d0;",
            "take no cache policy",
        ),
        (
            "atom.global.cas.b128 %q0, [%in], %q1;",
            "takes 4 operands, not 3",
        ),
    ];
    for (inst, wanted) in rows {
        let errors =
            Module::parse(&kernel(&format!("{REGISTERS}{inst}"))).and_then(Module::complete);
        let errors = errors.map(|_| ()).expect_err(inst).to_string();
        assert!(errors.contains(wanted), "{inst} {errors}");
    }
    for (from, to) in [("8.6", "8.2"), ("sm_90", "sm_80")] {
        let text = kernel(&format!(
            "{REGISTERS} atom.global.exch.b128 %q0, [%in], %q1;"
        ))
        .replace(from, to);
        let errors = Module::parse(&text)
            .and_then(Module::complete)
            .map(|_| ())
            .expect_err(to)
            .to_string();
        assert!(errors.contains("needs"), "{errors}");
    }
}
