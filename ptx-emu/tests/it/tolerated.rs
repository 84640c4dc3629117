//! Races that give the same result in any order are notes; what looks like them is a fault.

use ptx_emu::check::{Check, Note};
use ptx_emu::{Class, Module, Trace};

use crate::machine::kernel;

/// What a body on zeros is: nothing, a note, or a fault of a class.
#[derive(Debug, PartialEq)]
enum Found {
    Nothing,
    Noted,
    Fault(String),
}

fn found(body: &str, grid: u32, block: u32, strict: bool) -> Found {
    let module = Module::parse(&kernel(body)).unwrap_or_else(|e| panic!("{e}"));
    let mut check = Check::new(&module, "k").expect("it is called k");
    let (input, out) = (
        check.inout("in", &[0u32; 64]),
        check.output::<u32>("out", 64),
    );
    check.args = vec![input, out];
    (check.grid, check.block) = ([grid, 1, 1], [block, 1, 1]);
    (check.trace, check.strict) = (Trace::On, strict);
    let report = check.run().expect("the launch is possible");
    let noted = report
        .notes
        .iter()
        .any(|note| matches!(note, Note::Race(_)));
    match report.findings.first() {
        Some(finding) => Found::Fault(finding.problem.class()),
        None if noted => Found::Noted,
        None => Found::Nothing,
    }
}

#[test]
fn races_that_change_nothing_are_notes() {
    let swap = "ld.SPACE.u32 %r0, [AT];
        AGAIN: mov.u32 %r1, %r0; add.u32 %r2, %r1, 3;
        atom.SPACE.cas.b32 %r0, [OTHER], %r1, %r2; setp.ne.u32 %p, %r0, %r1; @%p bra AGAIN;";
    let head = ".shared .b32 s[2]; .reg .b32 %r<4>; .reg .b64 %d1; .reg .pred %p; mov.u64 %d1, %in;
        setp.eq.u32 %p, %t, 0; @%p st.shared.u32 [s], 0; bar.sync 0;\n";
    let (global, shared) = (
        swap.replace("SPACE", "global"),
        swap.replace("SPACE", "shared"),
    );
    let reset = "atom.global.add.u32 %r0, [%in], 1; setp.ne.u32 %p, %r0, 3; @%p bra END; st.global.u32 [%in], 0; END:";
    let rows: &[(String, u32, u32, bool)] = &[
        // A guess at the address that is swapped, by the same register or a copy; and a load that is no guess.
        (
            global.replace("AT", "%in").replace("OTHER", "%in"),
            2,
            64,
            true,
        ),
        (
            global.replace("AT", "%in").replace("OTHER", "%d1"),
            2,
            64,
            true,
        ),
        (
            "ld.global.u32 %r0, [%in]; atom.global.add.u32 %r0, [%in], %r0;".into(),
            2,
            64,
            false,
        ),
        (shared.replace("AT", "s").replace("OTHER", "s"), 1, 64, true),
        // The same value, and values that differ.
        ("st.global.u32 [%in], 7;".into(), 3, 64, true),
        (
            "mov.u32 %r0, %ctaid.x; st.global.u32 [%in], %r0;".into(),
            3,
            64,
            false,
        ),
        ("st.shared.u32 [s+4], 7;".into(), 1, 64, true),
        (
            "shr.u32 %r0, %t, 5; st.shared.u32 [s+4], %r0;".into(),
            1,
            64,
            false,
        ),
        // A counter that the last one resets, and one that each resets.
        (reset.into(), 4, 1, true),
        (reset.replace("@%p bra END;", ""), 4, 1, false),
    ];
    for (body, grid, block, tolerated) in rows {
        let body = format!("{head}{body}");
        let race = |class: &Found| matches!(class, Found::Fault(class) if class.ends_with("Race"));
        match (found(&body, *grid, *block, false), tolerated) {
            (Found::Noted, true) => {}
            (class, false) if race(&class) && class != Found::Fault("ToleratedRace".into()) => {}
            (other, _) => panic!("{other:?}\n{body}"),
        }

        if *tolerated {
            let strict = found(&body, *grid, *block, true);
            assert_eq!(
                strict,
                Found::Fault(format!("{:?}", Class::ToleratedRace)),
                "{body}"
            );
        }
    }

    assert_eq!(
        found("st.relaxed.gpu.global.u32 [%in], 7;", 3, 64, true),
        Found::Nothing
    );
}
