//! `griddepcontrol`: what a traced launch tells of an edge that lets its dependents start early.

use ptx_emu::{Accesses, ConflictKind, Launch, Memory, Module, Schedule, Trace, run};

use crate::machine::kernel;

/// Traces a body with 64 threads a block, two blocks.
fn trace(memory: &Memory, pointers: [u64; 2], body: &str) -> Accesses {
    let text = kernel(&format!(
        ".reg .b32 %r<4>; .reg .b64 %d<4>; .reg .pred %p<3>;\n{body}"
    ));
    let module = Module::parse(&text).unwrap_or_else(|e| panic!("{e}"));
    let params = pointers.map(u64::to_le_bytes).concat();
    let kernel = module.kernel("k").expect("it is called k");
    let launch = Launch {
        kernel,
        grid: [2, 1, 1],
        block: [64, 1, 1],
        dynamic_shared: 0,
        params: &params,
    };
    let stats = run(memory, &launch, &Schedule::default(), Trace::On)
        .unwrap_or_else(|fault| panic!("{fault}"));
    stats.accesses.expect("it was traced")
}

const MINE: &str = "mov.u32 %r0, %ctaid.x; mad.lo.u32 %r0, %r0, 64, %t;
    mad.wide.u32 %d0, %r0, 4, %in; mad.wide.u32 %d1, %r0, 4, %out;";
const LOAD: &str = "ld.global.u32 %r1, [%d0];";
const STORE: &str = "st.global.u32 [%d1], %t;";
const WAIT: &str = "griddepcontrol.wait;";
const SPLIT: &str = "setp.lt.u32 %p0, %t, 32;";

/// A name, pointers, the parts of the body, and the conflict with the earlier launch.
type Row<'a> = (&'a str, [u64; 2], &'a [&'a str], Option<ConflictKind>);

const START: &str =
    ".shared .b64 b; .shared .align 16 .b8 s[16]; setp.eq.u32 %p1, %t, 0; mov.u32 %r2, b; mov.u32 %r3, s;
    @%p1 mbarrier.init.shared.b64 [b], 1; @%p1 fence.mbarrier_init.release.cluster; bar.sync 0;";
const COPY: &str = ".shared .b64 b; .shared .align 16 .b8 s[16]; setp.eq.u32 %p1, %t, 0;
    @%p1 mbarrier.init.shared.b64 [b], 1; @%p1 fence.mbarrier_init.release.cluster;
    @%p1 mbarrier.arrive.expect_tx.shared::cta.b64 _, [b], 16;
    @%p1 cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [s], [%in], 16, [b];";
const LAND: &str =
    "bar.sync 0; L: mbarrier.try_wait.parity.shared::cta.b64 %p2, [b], 0; @!%p2 bra L;";
const SIGNAL: &str = "@%p1 mbarrier.arrive.shared.b64 _, [b];
    L: mbarrier.try_wait.parity.shared::cta.b64 %p2, [b], 0; @!%p2 bra L;";

#[test]
fn what_comes_before_the_wait_conflicts() {
    let memory = Memory::new(1 << 20);
    let [a, b, c] = [(); 3].map(|()| {
        let address = memory.alloc(512).expect("there is room");
        memory
            .fill(address, &[7], 512)
            .expect("it was just allocated");
        address
    });

    // The earlier launch reads a and writes b.
    let earlier = trace(&memory, [a, b], &format!("{MINE}{LOAD}{STORE}"));
    let read = Some(ConflictKind::WriteRead);
    let rows: &[Row<'_>] = &[
        ("all after the wait", [b, c], &[WAIT, LOAD, STORE], None),
        ("nothing shared before", [a, c], &[LOAD, STORE, WAIT], None),
        ("a read before", [b, c], &[LOAD, WAIT, STORE], read),
        (
            "a write of what it reads",
            [c, a],
            &[STORE, WAIT],
            Some(ConflictKind::ReadWrite),
        ),
        (
            "a write of what it writes",
            [c, b],
            &[STORE, WAIT],
            Some(ConflictKind::WriteWrite),
        ),
        ("no wait", [b, c], &[LOAD], read),
        (
            "a strong read before",
            [b, c],
            &["ld.relaxed.gpu.global.u32 %r1, [%d0];", WAIT, STORE],
            read,
        ),
        (
            "an atomic before",
            [c, b],
            &["red.global.add.u32 [%d1], 1;", WAIT],
            Some(ConflictKind::WriteWrite),
        ),
        ("a bulk copy before", [b, c], &[COPY, WAIT, LAND], read),
        (
            "a bulk copy after",
            [b, c],
            &[WAIT, "bar.sync 0;", COPY, LAND],
            None,
        ),
        (
            "a bulk copy of the weights before",
            [a, c],
            &[COPY, WAIT, LAND],
            None,
        ),
        (
            "waiting by an mbarrier",
            [b, c],
            &[SPLIT, START, "@%p0", WAIT, SIGNAL, LOAD],
            None,
        ),
        (
            "one warp waits, the other reads",
            [b, c],
            &[SPLIT, "@%p0", WAIT, "@!%p0", LOAD],
            read,
        ),
        (
            "a barrier between",
            [b, c],
            &[SPLIT, "@%p0", WAIT, "bar.sync 0;", LOAD],
            None,
        ),
        (
            "a barrier before",
            [b, c],
            &[SPLIT, "bar.sync 0; @%p0", WAIT, LOAD],
            read,
        ),
        (
            "arrive and sync",
            [b, c],
            &[
                SPLIT,
                "@!%p0 bra OTHER;",
                WAIT,
                "bar.arrive 1, 64; exit; OTHER: bar.sync 1, 64;",
                LOAD,
            ],
            None,
        ),
    ];
    for (name, pointers, parts, wanted) in rows {
        let later = trace(&memory, *pointers, &format!("{MINE}{}", parts.join(" ")));
        let found = later.before_wait_conflict(&earlier);
        assert_eq!(found.as_ref().map(|c| c.kind), *wanted, "{name}");
        if let Some(found) = found {
            assert_eq!(found.first.0, "k", "{name}");
            assert!(found.second.1.text.contains("global"), "{name}: {found:?}");
        }

        // What comes after the wait still conflicts when there is no edge at all.
        assert!(
            pointers[0] == a || earlier.conflict(&later).is_some(),
            "{name}"
        );
    }
}

/// Between launches that nothing orders, only atomics may meet.
#[test]
fn strong_accesses_conflict_between_launches() {
    let memory = Memory::new(1 << 20);
    let a = memory.alloc(512).expect("there is room");
    memory.fill(a, &[7], 512).expect("it was just allocated");
    const RELAXED: &str = "st.relaxed.gpu.global.u32 [%d1], %t;";
    const ADD: &str = "red.release.gpu.global.add.u32 [%d1], 1;";
    const ACQUIRE: &str = "ld.acquire.gpu.global.u32 %r1, [%d0];";
    let rows = [
        (RELAXED, ACQUIRE, true),
        (RELAXED, RELAXED, true),
        (RELAXED, ADD, true),
        (ADD, ACQUIRE, false),
        (ADD, ADD, false),
        (ADD, LOAD, true),
        (ACQUIRE, LOAD, false),
    ];
    for (first, second, wanted) in rows {
        let [first, second] =
            [first, second].map(|body| trace(&memory, [a, a], &format!("{MINE}{body}")));
        assert_eq!(
            first.conflict(&second).is_some(),
            wanted,
            "{first:?} {second:?}"
        );
        assert_eq!(second.conflict(&first).is_some(), wanted);
    }
}

#[test]
fn every_block_must_wait() {
    let memory = Memory::new(1 << 20);
    let a = memory.alloc(512).expect("there is room");
    let rows = [
        ("", false),
        (WAIT, true),
        ("setp.eq.u32 %p0, %t, 5; @%p0 griddepcontrol.wait;", true),
        (
            "mov.u32 %r0, %ctaid.x; setp.eq.u32 %p0, %r0, 0; @%p0 exit; griddepcontrol.wait;",
            false,
        ),
    ];
    for (body, wanted) in rows {
        assert_eq!(trace(&memory, [a, a], body).waited(), wanted, "{body}");
    }

    assert!(Accesses::from_host(&memory, "copy", &[], &[(a, 4)]).waited());
}

#[test]
fn triggers_are_placed() {
    let memory = Memory::new(1 << 20);
    let a = memory.alloc(512).expect("there is room");
    const TRIGGER: &str = "griddepcontrol.launch_dependents;";
    let rows: &[(&[&str], &[bool])] = &[
        (&[WAIT], &[]),
        (&[TRIGGER, WAIT], &[false]),
        (&[WAIT, TRIGGER, TRIGGER], &[true, true]),
        (&[SPLIT, "@%p0", WAIT, TRIGGER], &[false, true]),
    ];
    for (parts, wanted) in rows {
        let traced = trace(&memory, [a, a], &parts.join("\n"));
        assert_eq!(
            traced
                .triggers()
                .iter()
                .map(|t| t.waited)
                .collect::<Vec<_>>(),
            *wanted,
            "{parts:?}"
        );
        assert!(
            traced
                .triggers()
                .iter()
                .all(|t| t.place.text == "griddepcontrol.launch_dependents")
        );
    }
}
