//! The checker: buffers, schedules, what is a finding and what a note.

use std::time::{Duration, Instant};

use ptx_emu::check::{
    Argument, Buffer, Check, CheckError, ElementType, Expected, Finding, Note, Problem,
};
use ptx_emu::{Class, Faults, Module, Trace};

use crate::machine::kernel;

/// A check of a kernel `k(in, out)` over 64 words of input and of output, a block of 32 threads.
fn check(module: &Module) -> Check<'_> {
    let mut check = Check::new(module, "k").unwrap();
    let input: Vec<u32> = (0..64).collect();
    check.args = vec![check.input("in", &input), check.output::<u32>("out", 64)];
    check.block = [32, 1, 1];
    check
}

/// `%o` is the address of the thread's word of the output, `%i` of the input.
const PLACES: &str = "
    .reg .b64 %i, %o; .reg .b32 %v, %g, %n; .reg .pred %p;
    mov.u32 %g, %ctaid.x; mov.u32 %n, %ntid.x; mad.lo.u32 %g, %g, %n, %t;
    mad.wide.u32 %i, %g, 4, %in; mad.wide.u32 %o, %g, 4, %out;";

fn module(body: &str) -> Module {
    Module::parse(&kernel(&format!("{PLACES}{body}"))).unwrap_or_else(|errors| panic!("{errors}"))
}

fn classes(findings: &[Finding]) -> Vec<String> {
    findings
        .iter()
        .map(|finding| finding.problem.class())
        .collect()
}

const COPY: &str = "ld.global.u32 %v, [%i]; st.global.u32 [%o], %v;";

#[test]
fn a_kernel_without_faults_has_no_findings() {
    let module = module(COPY);
    let mut check = check(&module);
    check.grid = [2, 1, 1];
    let report = check.run().unwrap();
    assert!(
        report.findings.is_empty() && report.notes.is_empty(),
        "{report}"
    );
    assert_eq!(
        (report.schedules, report.output::<u32>("out")),
        (4, (0..64).collect())
    );
    assert_eq!(
        (report.output::<f32>("out"), report.output::<u32>("none")),
        (vec![], vec![])
    );
}

#[test]
fn each_fault_is_found_once_in_all_schedules() {
    let module = module("ld.global.u32 %v, [%i+128]; st.global.u32 [%o], %v;");
    let mut check = check(&module);
    check.grid = [2, 1, 1];
    check.faults = Faults::EachBlock;
    let report = check.run().unwrap();
    let [finding] = &report.findings[..] else {
        panic!("{report}")
    };
    let Problem::Fault(fault) = &finding.problem else {
        panic!("{report}")
    };

    // The first block reads the second half of the input.
    assert_eq!(
        (fault.class, fault.block, fault.lanes),
        (Class::OutOfBounds, [1, 0, 0], 1)
    );
    assert_eq!(
        (
            finding.schedules,
            finding.blocks,
            finding.seed,
            report.schedules
        ),
        (4, 4, 0, 4)
    );

    check.faults = Faults::First;
    let report = check.run().unwrap();
    assert_eq!((report.findings.len(), report.schedules), (1, 1));
}

/// Blocks of different kinds end with different faults, and the others write their output.
#[test]
fn a_fault_ends_its_block_alone() {
    let module = module(
        "setp.eq.u32 %p, %g, 0; @%p ld.global.u32 %v, [%i+1024];
         setp.eq.u32 %p, %g, 32; @%p ld.global.u32 %v, [%i+1];
         st.global.u32 [%o], %g;",
    );
    let mut check = check(&module);
    (check.grid, check.block) = ([4, 1, 1], [16, 1, 1]);
    check.faults = Faults::EachBlock;
    let report = check.run().unwrap();
    assert_eq!(classes(&report.findings), ["OutOfBounds", "Misaligned"]);
    let written = report.output::<u32>("out");
    assert_eq!((written[16], written[63]), (16, 63));
    assert_eq!(report.output::<u32>("out")[..16], [0; 16]);
}

#[test]
fn buffers_are_judged() {
    let module = module(&format!(
        "{COPY} setp.eq.u32 %p, %g, 3; @%p st.global.u32 [%i], 9;"
    ));
    let mut checked = check(&module);
    let report = checked.run().unwrap();
    let [
        Finding {
            problem: Problem::Changed(place),
            ..
        },
    ] = &report.findings[..]
    else {
        panic!("{report}")
    };

    assert_eq!(
        place.to_string(),
        "in[3] is 9, not 3; 1 of 64 elements are wrong"
    );

    checked.buffers[0].role = ptx_emu::check::Role::InOut;
    let report = checked.run().unwrap();
    assert!(report.findings.is_empty(), "{report}");
    assert_eq!(
        report.notes,
        [Note::Unwritten {
            buffer: "out".into(),
            bytes: 128,
            of: 256
        }]
    );

    let bytes: Vec<u8> = (0..64u32)
        .flat_map(|i| if i < 32 { i } else { 0 }.to_le_bytes())
        .collect();
    checked.buffers[1].expected = Some(Expected {
        bytes,
        tolerance: 0.0,
    });
    assert!(checked.run().unwrap().findings.is_empty());
    checked.buffers[1].expected.as_mut().unwrap().bytes[4 * 7] = 1;
    let report = checked.run().unwrap();
    assert_eq!(
        report.to_string(),
        "1 findings in 1 schedules\nMismatch: out[7] is 7, not 1; 1 of 64 elements are wrong\n  in 1 of the \
         schedules, first with seed 0"
    );
}

/// The block that draws the first ticket writes its number: no race, and yet another result under each schedule.
#[test]
fn results_that_depend_on_the_schedule_are_a_note() {
    let module = module(
        "atom.global.add.u32 %n, [%in], 1; setp.eq.u32 %p, %n, 0; mov.u32 %g, %ctaid.x;
         @%p st.global.u32 [%out], %g;",
    );
    let mut check = Check::new(&module, "k").unwrap();
    check.args = vec![check.inout("in", &[0u32]), check.output::<u32>("out", 1)];
    check.grid = [5, 1, 1];
    let report = check.run().unwrap();
    assert!(report.findings.is_empty(), "{report}");
    let [note @ Note::Differs { seeds: [0, 1], .. }] = &report.notes[..] else {
        panic!("{report}")
    };

    assert!(note.to_string().starts_with(
        "`out` depends on the schedule: [0] is 0 with seed 0 and 4 with seed 1, as sums"
    ));
}

#[test]
fn a_launch_that_does_not_end_is_stopped() {
    // The first asks for what nobody stores, asleep, and counts; the second just runs.
    let waits = [
        "ld.volatile.global.u32 %o, [%in]; add.u32 %v, %v, 1; nanosleep.u32 100;",
        "add.u32 %v, %v, 1;",
    ];
    for body in waits {
        let module = module(&format!(
            "mov.u32 %v, 0; again: {body} setp.ne.u32 %p, %v, 4000000000; @%p bra again; st.global.u32 [%o], %v;"
        ));
        let mut check = check(&module);
        check.grid = [5000, 1, 1];
        check.limit = Duration::from_millis(50);
        check.fuel = u64::MAX >> 1;
        check.faults = Faults::EachBlock;
        let began = Instant::now();
        let report = check.run().unwrap();
        assert!(
            began.elapsed() < Duration::from_secs(20),
            "{:?}",
            began.elapsed()
        );
        assert_eq!(classes(&report.findings), ["TimeLimit"], "{report}");
        assert!(
            report
                .to_string()
                .contains("has not ended within its time limit"),
            "{report}"
        );
    }
}

#[test]
fn races_of_global_memory_are_found_when_traced() {
    let module = module("st.global.u32 [%out], %g;");
    let mut check = check(&module);
    (check.grid, check.block) = ([2, 1, 1], [1, 1, 1]);
    assert_eq!(check.run().unwrap().findings.len(), 0);
    check.trace = Trace::On;
    assert_eq!(classes(&check.run().unwrap().findings), ["GlobalRace"]);
}

#[test]
fn structures_and_variables_are_set() {
    let text =
        ".version 8.6\n.target sm_90\n.address_size 64\n.shared .u32 s; .const .align 4 .u32 taps[2];\n
        .visible .entry k(.param .align 8 .b8 s[24]) {
            .reg .b64 %a, %b; .reg .b32 %v, %w;
            ld.param.u64 %a, [s]; ld.param.u64 %b, [s+8]; ld.param.u32 %v, [s+16];
            ld.const.u32 %w, [taps+4]; add.u32 %v, %v, %w;
            ld.global.u32 %w, [%a]; add.u32 %v, %v, %w; st.global.u32 [%b], %v; ret; }";
    let module = Module::parse(text).unwrap();
    let mut check = Check::new(&module, "k").unwrap();
    let (a, b) = (check.input("a", &[100u32]), check.output::<u32>("b", 1));
    check.args = vec![Argument::structure([a, b, 5u32.into()])];
    check.variables = vec![(
        "taps".into(),
        Argument::structure([7u32.into(), 20u32.into()]),
    )];
    let report = check.run().unwrap();
    assert_eq!(report.output::<u32>("b"), [125], "{report}");
    check.variables = vec![("s".into(), 1u8.into())];
    assert_eq!(
        check.run().unwrap_err().to_string(),
        "variable `s`: the module has no such variable, only [taps]"
    );
}

#[test]
fn fuel_without_end_is_fuel() {
    let module = module(COPY);
    let check = Check {
        fuel: u64::MAX,
        ..check(&module)
    };
    assert!(check.run().unwrap().findings.is_empty());
}

/// A comparison that compares nothing would find nothing.
#[test]
fn what_compares_nothing_is_refused() {
    let module = module(COPY);
    let error = |expected: Option<Expected>, contents: Option<Vec<u8>>| {
        let mut check = check(&module);
        check.buffers[1] = Buffer {
            expected,
            contents,
            ..check.buffers[1].clone()
        };
        check.run().unwrap_err().to_string()
    };
    let expect = |bytes, tolerance| {
        Some(Expected {
            bytes: vec![0; bytes],
            tolerance,
        })
    };
    assert_eq!(
        error(expect(0, 0.0), None),
        "buffer `out`: its expected contents have 0 bytes, but the buffer has 256"
    );
    assert_eq!(
        error(None, Some(vec![0; 9])),
        "buffer `out`: its contents have 9 bytes, but the buffer has 256"
    );
    let mut lost = check(&module);
    lost.args[0] = Argument::pointer(2, 0);
    let error_of_lost = lost.run().unwrap_err().to_string();
    assert_eq!(
        error_of_lost,
        "buffer `2`: an argument points to it, and the check has 2"
    );
    for tolerance in [f64::INFINITY, f64::NAN, -1.0] {
        let wanted = format!(
            "buffer `out`: invalid tolerance {tolerance}: it must be finite and at least 0"
        );
        assert_eq!(error(expect(256, tolerance), None), wanted);
    }
}

/// Bytes are counted word by word, whatever lies at the ends of the buffer and of what is written.
#[test]
fn unwritten_bytes_are_counted() {
    let module =
        module("st.global.u32 [%out], 1; st.global.u8 [%out+65], 2; st.global.u64 [%out+88], 3;");
    let mut check = check(&module);
    for (count, unwritten) in [(24, 83), (1000, 3987)] {
        check.buffers[1] = Buffer::empty("out", ElementType::U32, count);
        let report = check.run().unwrap();
        let note = Note::Unwritten {
            buffer: "out".into(),
            bytes: unwritten,
            of: 4 * count as u64,
        };
        assert_eq!(report.notes, [note]);
    }
}

#[test]
fn what_cannot_be_run_is_named() {
    let module = module(COPY);
    let named = Check::new(&module, "j").map(|_| ()).unwrap_err();
    assert_eq!(named.to_string(), "there is no kernel j; the module has k");
    let mut checked = check(&module);
    checked.args.pop();
    assert_eq!(
        checked.run().unwrap_err().to_string(),
        "1 arguments for a kernel with 2 parameters"
    );
    checked.args.push(1u32.into());
    assert_eq!(
        checked.run().unwrap_err().to_string(),
        "parameter 1 `out` has 8 bytes, and the argument has 4 (a pointer has 8)"
    );
    let mut checked = check(&module);
    checked.block = [2000, 1, 1];
    assert!(matches!(checked.run().unwrap_err(), CheckError::Launch(_)));
    checked.seeds = 4..4;
    assert_eq!(
        checked.run().unwrap_err().to_string(),
        "the launch is impossible: the range of seeds 4..4 is empty: 0..4 are the first four schedules"
    );
    let mut checked = check(&module);
    checked.variables = vec![("x".into(), 1u8.into())];
    assert_eq!(
        checked.run().unwrap_err().to_string(),
        "variable `x`: the module has no such variable, only []"
    );
}
