//! Checks that are asked for: numbers that arithmetic spoils, and pointers that lead from one object into another.

use ptx_emu::check::{Check, Problem};
use ptx_emu::{Class, Fault, Faults, Module};

use crate::machine::kernel;

/// The findings of a body on two buffers of 64 floats, `%in` of -1, 0, 1, .. and `%out`.
fn found(body: &str, asked: fn(&mut Check<'_>)) -> Vec<Fault> {
    let head = "
        .reg .b64 %i, %o, %d<4>; .reg .b32 %r<4>; .reg .f32 %f<6>; .reg .f64 %g<4>; .reg .b16 %h<2>; .reg .pred %p;
        mad.wide.u32 %i, %t, 4, %in; mad.wide.u32 %o, %t, 4, %out; ld.global.f32 %f0, [%i];";
    let module =
        Module::parse(&kernel(&format!("{head}{body}"))).unwrap_or_else(|e| panic!("{body}: {e}"));
    let mut check = Check::new(&module, "k").unwrap();
    let input: Vec<f32> = (0..64u8).map(|i| f32::from(i) - 1.0).collect();
    check.args = vec![check.inout("in", &input), check.inout("out", &[0f32; 64])];
    (check.block, check.faults) = ([32, 1, 1], Faults::EachBlock);
    asked(&mut check);
    let report = check.run().unwrap();
    let fault = |problem| match problem {
        Problem::Fault(fault) => *fault,
        _ => panic!("{body}"),
    };
    report
        .findings
        .into_iter()
        .map(|finding| fault(finding.problem))
        .collect()
}

fn arithmetic(check: &mut Check<'_>) {
    check.arithmetic = true;
}

fn provenance(check: &mut Check<'_>) {
    check.provenance = true;
}

/// The class, the instruction and the words of the only finding, if there is one.
type Wanted = Option<(Class, &'static str, &'static str)>;

#[test]
fn numbers_are_named_where_arithmetic_spoils_them() {
    use Class::{DivisionByZero, NotFinite, Saturated};
    let store = "st.global.f32 [%o], %f1;";

    // A body, and the class, the instruction and the words of its only finding.
    let rows: &[(&str, Wanted)] = &[
        (
            "sub.u32 %r0, %t, 3; div.u32 %r1, 7, %r0;",
            Some((DivisionByZero, "div.u32", "7 is divided by 0")),
        ),
        (
            "cvt.u64.u32 %d0, %t; rem.s64 %d1, -5, %d0;",
            Some((DivisionByZero, "rem.s64", "-5 is divided")),
        ),
        ("add.u32 %r0, %t, 1; div.s32 %r1, 7, %r0;", None),
        (
            "sqrt.rn.f32 %f1, %f0; STORE",
            Some((NotFinite, "sqrt.rn", "NaN appears here, of -1.0")),
        ),
        (
            "rcp.rn.f32 %f1, %f0; STORE",
            Some((NotFinite, "rcp.rn", "an infinity appears here, of 0.0")),
        ),
        (
            "div.rn.f32 %f1, %f0, %f0; STORE",
            Some((NotFinite, "div.rn", "of 0.0, 0.0")),
        ),
        // Passed on by copies, arithmetic, a shuffle, a conversion, and as part of a pair.
        (
            "rcp.rn.f32 %f2, %f0; mov.b32 %r0, %f2; mov.b32 %f3, %r0; sub.f32 %f1, %f3, %f3; STORE",
            Some((NotFinite, "rcp.rn", "an infinity")),
        ),
        (
            "rcp.rn.f32 %f2, %f0; mov.b32 %r0, %f2; shfl.sync.bfly.b32 %r1, %r0, 1, 31, -1; st.global.u32 [%o], %r1;",
            Some((NotFinite, "rcp.rn", "an infinity")),
        ),
        (
            "mul.f32 %f2, %f0, 0f47800000; cvt.rn.f16.f32 %h0, %f2; mov.b32 %r0, {%h0, %h0}; st.global.u32 [%o], %r0;",
            Some((
                NotFinite,
                "cvt.rn.f16",
                "an infinity appears here, of -65536.0",
            )),
        ),
        (
            "cvt.f64.f32 %g0, %f0; rcp.rn.f64 %g1, %g0; cvt.rn.f32.f64 %f1, %g1; STORE",
            Some((NotFinite, "rcp.rn.f64", "of 0.0")),
        ),
        // Thrown away, or not of arithmetic.
        (
            "sqrt.rn.f32 %f2, %f0; max.f32 %f1, %f2, 0f00000000; STORE",
            None,
        ),
        (
            "rcp.rn.f32 %f2, %f0; setp.eq.f32 %p, %f0, 0f00000000; selp.f32 %f1, 0f00000000, %f2, %p; STORE",
            None,
        ),
        (
            "rcp.rn.f32 %f2, %f0; mov.f32 %f2, 0f7F800000; st.global.f32 [%o], %f2; mov.f32 %f1, %f0; STORE",
            None,
        ),
        (
            "mov.f32 %f2, 0fFF800000; max.f32 %f1, %f2, %f2; STORE",
            None,
        ),
        (
            "mul.f32 %f2, %f0, 0f4F800000; cvt.rzi.s32.f32 %r0, %f2;",
            Some((Saturated, "cvt.rzi.s32", "-4294967300.0 is converted")),
        ),
        (
            "cvt.rzi.u32.f32 %r0, %f0;",
            Some((Saturated, "cvt.rzi.u32", "-1.0 is converted to a .u32")),
        ),
        (
            "mul.f32 %f2, %f0, 0f3F000000; cvt.rzi.u32.f32 %r0, %f2;",
            None,
        ),
        (
            "mov.b64 %d3, 0x7fc00000; cvt.rzi.u32.f32 %r0, %d3;",
            Some((Saturated, "cvt.rzi.u32", "NaN is converted")),
        ),
        ("cvt.rn.f32.u32 %d3, %t; st.global.u32 [%o], %d3;", None),
        ("mov.f32 %f2, 0fCF000000; cvt.rzi.s32.f32 %r0, %f2;", None),
    ];
    for (body, wanted) in rows {
        let body = body.replace("STORE", store);
        let all = found(&body, arithmetic);
        match (&all[..], wanted) {
            ([], None) => {}
            ([fault], Some((class, text, words))) => {
                let place = fault.place.as_ref().unwrap();
                assert!(
                    fault.class == *class && place.text.contains(text),
                    "{body}: {fault}"
                );
                assert!(fault.what.contains(words), "{body}: {fault}");
            }
            _ => panic!("{body}: {all:?}, not {wanted:?}"),
        }

        assert!(found(&body, |_| ()).is_empty(), "{body}: nobody asks");
    }
}

#[test]
fn pointers_lead_no_further_than_where_they_come_from() {
    // The local variable of nvcc: two arrays of 16 bytes. Two shared ones, 1 KiB apart at least.
    let head = ".local .align 16 .b8 __local_depot0[32]; .reg .b64 %SP, %SPL; .shared .align 4 .b8 a[64]; .shared .align 4 .b8 b[64];
        mov.u64 %SPL, __local_depot0; cvta.local.u64 %SP, %SPL; add.u64 %d0, %SPL, 0; add.u64 %d1, %SPL, 16; add.u64 %d2, %SP, 0;";
    // A body, and what its only finding says.
    let rows: &[(&str, Option<&str>)] = &[
        ("st.local.u32 [%d0+12], %t;", None),
        (
            "st.local.u32 [%d0+16], %t;",
            Some("the local variable of 16 bytes at offset 0 leads to offset 16"),
        ),
        (
            "cvt.u64.u32 %d3, 16; add.u64 %d0, %d0, %d3; st.local.u32 [%d0], %t;",
            Some("leads to offset 16"),
        ),
        (
            "st.local.u32 [%d1+-4], %t;",
            Some("variable at offset 16 leads to offset 12"),
        ),
        ("st.u32 [%d2+16], %t;", Some("leads to offset 16")),
        (
            "st.local.v2.u32 [%d0+8], {%t, %t}; st.local.u32 [%d1], %t;",
            None,
        ),
        // One loses sight of it.
        ("mul.lo.u64 %d3, %d0, 1; st.local.u32 [%d3+16], %t;", None),
        (
            "mov.u32 %r0, a; mov.u32 %r1, b; sub.u32 %r2, %r1, %r0; add.u32 %r2, %r0, %r2; st.shared.u32 [%r2], 0;",
            None,
        ),
        (
            "mov.u32 %r0, a; mov.u32 %r1, b; sub.u32 %r2, %r1, %r0; xor.b32 %r2, %r2, 0; mad.lo.u32 %r2, %r2, 1, %r0; st.shared.u32 [%r2], 0;",
            None,
        ),
        (
            "sub.u64 %d3, %out, %in; shr.u64 %d3, %d3, 2; mad.lo.u64 %d3, %d3, 4, %in; st.global.u32 [%d3], 0;",
            Some("derived from `in` leads into `out`"),
        ),
        (
            "sub.u64 %d3, %out, %in; add.u64 %d3, %in, %d3; st.global.u32 [%d3], 0;",
            None,
        ),
    ];
    for (body, wanted) in rows {
        let all = found(&format!("{head}{body}"), provenance);
        match (&all[..], wanted) {
            ([], None) => {}
            ([fault], Some(words)) => {
                assert!(
                    fault.class == Class::OutOfBounds && fault.what.contains(words),
                    "{body}: {fault}"
                );
            }
            _ => panic!("{body}: {all:?}, not {wanted:?}"),
        }
        assert!(
            found(&format!("{head}{body}"), |_| ()).is_empty(),
            "{body}: nobody asks"
        );
    }
}

#[test]
fn local_memory_of_another_thread_is_not_ones_own() {
    let body = |of: u32, load: &str| {
        format!(
            ".local .align 4 .b8 own[8]; .shared .align 8 .b64 where;
            mov.u64 %d0, own; st.local.u32 [%d0], %t; cvta.local.u64 %d1, %d0;
            setp.eq.u32 %p, %t, {of}; @%p st.shared.u64 [where], %d1; bar.sync 0; ld.shared.u64 %d2, [where];
            setp.eq.u32 %p, %t, 3; @%p {load}"
        )
    };
    for load in [
        "ld.u32 %r0, [%d2];",
        "cvta.to.local.u64 %d3, %d2; @%p ld.local.u32 %r0, [%d3];",
    ] {
        assert!(found(&body(3, load), |_| ()).is_empty(), "{load}");
        let [fault] = &found(&body(5, load), |_| ())[..] else {
            panic!("{load}")
        };

        assert_eq!(
            (fault.class, fault.thread),
            (Class::OutOfBounds, [3, 0, 0]),
            "{fault}"
        );
        assert!(
            load.contains("local") || fault.what.contains("local memory of thread (5,0,0)"),
            "{fault}"
        );
    }
}
