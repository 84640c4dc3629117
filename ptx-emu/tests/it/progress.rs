//! Lanes, warps and blocks that wait for each other without `nanosleep`, and those that wait in vain.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::time::Duration;

use ptx_emu::{
    Class, Fault, Launch, LaunchSite, Memory, Module, Order, Outside, Schedule, Trace, Watch,
    run_watched,
};

use crate::machine::{SETUP, Setup, kernel, launch};

const ORDERS: [(Order, u64); 4] = [
    (Order::InOrder, 0),
    (Order::Reversed, 0),
    (Order::Shuffled, 1),
    (Order::Shuffled, 2),
];

/// Runs a body under every order, with so little fuel that nobody may poll for long.
fn each(body: &str, grid: u32, block: u32, see: impl Fn(Result<Vec<u8>, Box<Fault>>)) {
    each_text(&kernel(body), grid, block, see);
}

fn each_text(text: &str, grid: u32, block: u32, see: impl Fn(Result<Vec<u8>, Box<Fault>>)) {
    for (order, seed) in ORDERS {
        // A traced launch has one thread.
        for (trace, threads) in [
            (Trace::Off, 1),
            (Trace::Off, 2),
            (Trace::Off, 4),
            (Trace::On, 1),
        ] {
            let setup = Setup {
                grid,
                block,
                order,
                seed,
                trace,
                threads,
                fuel: 1 << 18,
                ..SETUP
            };
            see(launch(text, &[0; 256], 256, setup).map(|(out, _)| out));
        }
    }
}

fn ends(body: &str, grid: u32, block: u32, wanted: u32) {
    each(body, grid, block, |found| {
        let out = found.unwrap_or_else(|fault| panic!("{fault}\n{body}"));
        assert_eq!(out[..4], wanted.to_le_bytes(), "{body}");
    });
}

fn hangs(body: &str, grid: u32, block: u32, says: &str) {
    each(body, grid, block, |found| {
        let fault = found.expect_err(body);
        assert_eq!(fault.class, Class::Deadlock, "{fault}");
        assert!(fault.to_string().contains(says), "{fault}");
    });
}

/// Every thread counts behind a lock that it spins for; lanes that have it meet those that spin behind the loop.
const LOCK: &str = ".reg .b32 %r<4>; .reg .pred %p;
    TRY: atom.acquire.gpu.global.cas.b32 %r0, [%in], 0, 1; setp.ne.u32 %p, %r0, 0; @%p bra TRY;
    ld.global.u32 %r1, [%in+4]; add.u32 %r1, %r1, 1; st.global.u32 [%in+4], %r1;
    atom.release.gpu.global.exch.b32 %r0, [%in], 0;
    bar.warp.sync 0xffffffff;
    bar.sync 0;
    atom.acquire.gpu.global.add.u32 %r2, [%in+8], 1;
    setp.ne.u32 %p, %r2, LAST; @%p bra END;
    ld.relaxed.gpu.global.u32 %r1, [%in+4]; st.global.u32 [%out], %r1; END:";

#[test]
fn lanes_that_spin_for_a_lock_get_it() {
    for (grid, block) in [(1, 32), (1, 64), (3, 64)] {
        let body = LOCK.replace("LAST", &(grid * block - 1).to_string());
        ends(&body, grid, block, grid * block);
    }
}

/// Each block arrives and spins until all have, three times: more blocks than would run one after another.
#[test]
fn blocks_that_spin_for_each_other_meet() {
    let body = ".reg .b32 %r<4>; .reg .pred %p, %q;
        mov.u32 %r2, 0; setp.ne.u32 %q, %t, 0;
    ROUND: add.u32 %r2, %r2, 40; @%q bra MET;
        atom.acq_rel.gpu.global.add.u32 %r0, [%in], 1;
    ASK: ld.acquire.gpu.global.u32 %r0, [%in]; setp.lt.u32 %p, %r0, %r2; @%p bra ASK;
    MET: bar.sync 0; setp.lt.u32 %p, %r2, 120; @%p bra ROUND;
        mov.u32 %r1, %ctaid.x; setp.eq.u32 %p, %r1, 7; @%q bra END; @%p st.global.u32 [%out], %r0; END:";
    ends(body, 40, 33, 120);
}

/// One lane waits for another of its warp, on either side of a branch.
#[test]
fn a_lane_may_wait_for_another_one() {
    let body = |first: &str| {
        format!(
            ".shared .b32 flag; .reg .b32 %r<3>; .reg .pred %p, %q;
            setp.eq.u32 %q, %t, 0; @%q st.shared.u32 [flag], 0; bar.warp.sync 0xffffffff;
            setp.{first}.u32 %p, %t, 5; @%p bra WAIT;
            st.release.cta.shared.u32 [flag], 9; bra MEET;
        WAIT: ld.acquire.cta.shared.u32 %r0, [flag]; setp.ne.u32 %p, %r0, 9; @%p bra WAIT;
        MEET: bar.warp.sync 0xffffffff; ld.relaxed.cta.shared.u32 %r1, [flag];
            shfl.sync.idx.b32 %r2, %r1, 31, 31, 0xffffffff; @%q st.global.u32 [%out], %r2;"
        )
    };
    ends(&body("eq"), 1, 32, 9);
    ends(&body("ne"), 1, 32, 9);
}

#[test]
fn who_waits_in_vain_is_named() {
    let spin = |flag: u32, sleep: &str| {
        format!(
            ".reg .b32 %r; .reg .pred %p; ASK: ld.relaxed.gpu.global.u32 %r, [%in+{flag}]; {sleep}
            setp.eq.u32 %p, %r, 0; @%p bra ASK; st.global.u32 [%out], %r;"
        )
    };
    hangs(&spin(0, ""), 1, 1, "warp 0 polls without success in line");
    hangs(&spin(8, ""), 5, 64, "in 5 blocks, (");
    hangs(
        &spin(8, "nanosleep.u32 20;"),
        2,
        32,
        "`ld.relaxed.gpu.global.u32 %r, [%in+8]`",
    );

    // Each of two blocks sets its flag when it has seen the other's.
    let both = ".reg .b32 %r<2>; .reg .b64 %d; .reg .pred %p; mov.u32 %r0, %ctaid.x;
        xor.b32 %r1, %r0, 1; mad.wide.u32 %d, %r1, 4, %in;
    ASK: ld.acquire.gpu.global.u32 %r1, [%d]; setp.eq.u32 %p, %r1, 0; @%p bra ASK;
        mad.wide.u32 %d, %r0, 4, %in; st.release.gpu.global.u32 [%d], 1;";
    hangs(both, 2, 1, "no thread can continue");

    // A lane that waits for another of its warp, which waits at a barrier of the warp.
    let lanes = ".reg .b32 %r; .reg .pred %p; setp.ne.u32 %p, %t, 0; @%p bra MEET;
    ASK: ld.relaxed.gpu.global.u32 %r, [%in]; setp.eq.u32 %p, %r, 0; @%p bra ASK;
    MEET: bar.warp.sync 0xffffffff; st.relaxed.gpu.global.u32 [%in], 1;";
    hangs(lanes, 1, 32, "polls without success");
    hangs(
        ".reg .b32 %r; AGAIN: bra AGAIN;",
        1,
        1,
        "a loop that nothing ends",
    );
}

/// A loop that counts is never twice in the same state; it is found all the same.
#[test]
fn who_counts_while_it_waits_is_found() {
    let body = ".reg .b32 %r<2>; .reg .pred %p; mov.u32 %r1, 0;
        ASK: ld.relaxed.gpu.global.u32 %r0, [%in]; add.u32 %r1, %r1, 1; nanosleep.u32 20;
        setp.eq.u32 %p, %r0, 0; @%p bra ASK;";
    let setup = Setup {
        grid: 2,
        block: 32,
        fuel: 1 << 28,
        ..SETUP
    };
    let fault = launch(&kernel(body), &[0; 4], 4, setup)
        .map(|_| ())
        .expect_err("nobody writes it");
    assert_eq!(fault.class, Class::Deadlock, "{fault}");
}

/// Functions as `nvcc -G` leaves them: what asks, and what synchronises, is called.
const CALLED: &str = ".func (.param .b32 back) ask(.param .b64 at)
    { .reg .b32 %v; .reg .b64 %a; ld.param.b64 %a, [at]; ld.acquire.gpu.global.u32 %v, [%a]; st.param.b32 [back], %v; ret; }
    .func meet() { bar.warp.sync 0xffffffff; ret; }
    .func await(.param .b64 at) { .reg .b32 %v; .reg .b64 %a; .reg .pred %p; ld.param.b64 %a, [at];
    ASK: ld.acquire.gpu.global.u32 %v, [%a]; setp.eq.u32 %p, %v, 0; @%p bra ASK; ret; }
    .func (.param .b32 back) late(.param .b32 lane)
    { .reg .b32 %l, %v; ld.param.b32 %l, [lane]; mul.lo.u32 %v, %l, 3; call meet, ();
      shfl.sync.idx.b32 %v, %v, 31, 31, 0xffffffff; add.u32 %v, %v, %l; st.param.b32 [back], %v; ret; }
    .visible .entry";

/// Lanes of a warp that wait for each other in different calls, and meet in calls of one function.
#[test]
fn lanes_wait_for_each_other_in_calls() {
    let ends = |body: &str, wanted| {
        each_text(
            &kernel(body).replace(".visible .entry", CALLED),
            1,
            64,
            |found| {
                let out = found.unwrap_or_else(|fault| panic!("{fault}\n{body}"));
                assert_eq!(out[..4], u32::to_le_bytes(wanted), "{body}");
            },
        );
    };

    // Lane 0 of each warp asks in a loop; the others have gone on into the function where all meet.
    let other = |ask: &str| {
        format!(
            ".reg .b32 %r<3>; .reg .b64 %d; .reg .pred %p, %q; .param .b64 at; .param .b32 lane, back;
            and.b32 %r2, %t, 31; setp.ne.u32 %p, %r2, 0; setp.lt.u32 %q, %t, 32;
            @%p bra MEET; @%q bra ASK; st.release.gpu.global.u32 [%in], 1;
        ASK: st.param.b64 [at], %in; {ask}
        MEET: st.param.b32 [lane], %r2; call (back), late, (lane); ld.param.b32 %r1, [back];
            setp.eq.u32 %p, %t, 5; @%p st.global.u32 [%out], %r1;"
        )
    };
    let asks =
        "call (back), ask, (at); ld.param.b32 %r0, [back]; setp.eq.u32 %p, %r0, 0; @%p bra ASK;";
    ends(&other(asks), 31 * 3 + 5);
    ends(&other("call await, (at);"), 31 * 3 + 5);

    // A lane in a function waits for one of its caller.
    let caller = ".reg .pred %p, %q; .param .b64 at; setp.eq.u32 %p, %t, 3; setp.eq.u32 %q, %t, 7;
        st.param.b64 [at], %in; @!%p bra ELSE; call await, (at); bra MEET;
    ELSE: @%q st.release.gpu.global.u32 [%in], 1; MEET: call meet, (); st.global.u32 [%out], 17;";
    ends(&caller.replace("st.global", "@%q st.global"), 17);
}

/// A loop that ends by itself is no deadlock, although it has no effect and reads by strong loads.
#[test]
fn loops_that_end_by_themselves_are_left_alone() {
    // It waits up to a limit, or reads a new address each time.
    for step in [
        "add.u32 %r1, %r1, 1;",
        "add.u32 %r1, %r1, 1; add.u64 %a, %a, 4; and.b64 %a, %a, 255;",
    ] {
        let body = format!(
            ".reg .b32 %r<2>; .reg .b64 %a, %b; .reg .pred %p, %q; mov.u32 %r1, 0; mov.u64 %a, 0;
            ASK: add.u64 %b, %in, %a; ld.relaxed.gpu.global.u32 %r0, [%b]; {step}
            setp.ne.u32 %q, %r0, 0; @%q bra END; setp.lt.u32 %p, %r1, 20000; @%p bra ASK;
            END: st.global.u32 [%out], %r1;"
        );
        for threads in [1, 2, 4] {
            let setup = Setup {
                grid: 3,
                block: 1,
                threads,
                fuel: 1 << 20,
                ..SETUP
            };
            let (out, _) = launch(&kernel(&body), &[0; 256], 4, setup)
                .unwrap_or_else(|fault| panic!("{fault}"));
            assert_eq!(out, 20000u32.to_le_bytes());
        }
    }
}

/// Registers that change are ignored only if they decide nothing.
#[test]
fn counters_that_decide_nothing_are_ignored() {
    let count = "add.u32 %r1, %r1, 1; mul.lo.u32 %r2, %r1, 3; mov.u64 %c, %clock64;";
    for (kind, wait) in [
        ("loads", "ld.relaxed.gpu.global.u32 %r0, [%in];"),
        (
            "sleeps",
            "ld.relaxed.gpu.global.u32 %r0, [%in]; nanosleep.u32 %r1;",
        ),
        ("swaps", "atom.relaxed.gpu.global.cas.b32 %r0, [%in], 1, 0;"),
        (
            "adds nothing",
            "atom.relaxed.gpu.global.add.u32 %r0, [%in], 0;",
        ),
    ] {
        let body = format!(
            ".reg .b32 %r<3>; .reg .b64 %c; .reg .pred %p; mov.u32 %r1, 0; mov.u32 %r2, 0;
            ASK: {wait} {count} setp.eq.u32 %p, %r0, 0; @%p bra ASK; st.global.u32 [%out], %r2;"
        );
        for threads in [1, 2, 4] {
            let setup = Setup {
                grid: 3,
                block: 64,
                threads,
                fuel: 1 << 24,
                ..SETUP
            };
            let fault = launch(&kernel(&body), &[0; 4], 4, setup)
                .map(|_| ())
                .expect_err(kind);
            assert_eq!(fault.class, Class::Deadlock, "{kind}: {fault}");
        }
    }
}

/// Many warps and blocks that wait at the same place are reported in one line that can be read.
#[test]
fn the_report_groups_blocks_and_warps() {
    let body = ".reg .b32 %r; .reg .pred %p, %q; setp.ge.u32 %q, %t, 992; @%q bra MEET;
    ASK: ld.relaxed.gpu.global.u32 %r, [%in]; setp.eq.u32 %p, %r, 0; @%p bra ASK; MEET: bar.sync 0;";
    for threads in [1, 2, 4] {
        let setup = Setup {
            grid: 12,
            block: 1024,
            threads,
            ..SETUP
        };
        let fault = launch(&kernel(body), &[0; 4], 4, setup)
            .map(|_| ())
            .expect_err("it waits");
        assert_eq!(
            fault.what,
            "no thread can continue: in 12 blocks, (0,0,0), (1,0,0), (2,0,0), .., warps 0-30 poll without success in \
             line 12; warp 31 waits at barrier 0 in line 12 (32 of 1024 threads have arrived)"
        );
    }
}

/// A grid that meets needs all its blocks at a time, of which 1024 may be there on any number of host threads.
#[test]
fn blocks_that_cannot_begin_are_counted() {
    let body = ".reg .b32 %r, %n; .reg .pred %p; mov.u32 %n, %nctaid.x; atom.acq_rel.gpu.global.add.u32 %r, [%in], 1;
    ASK: ld.acquire.gpu.global.u32 %r, [%in]; setp.lt.u32 %p, %r, %n; @%p bra ASK;";
    let meet = |grid, threads| {
        let setup = Setup {
            grid,
            block: 1,
            threads,
            fuel: 1 << 24,
            ..SETUP
        };
        launch(&kernel(body), &[0; 4], 4, setup).map(|_| ())
    };
    meet(1024, 2).expect("all have begun");
    let fault = meet(1025, 2).expect_err("one has not begun");
    assert!(
        fault
            .what
            .ends_with("1 block cannot begin before others end"),
        "{fault}"
    );
}

/// The world around a launch: whether it may change memory, and how often it has done something.
#[derive(Debug, Default)]
struct World {
    may_change: AtomicBool,
    changes: AtomicU64,
}

impl Outside for World {
    fn changes(&self) -> u64 {
        self.changes.load(SeqCst)
    }

    fn may_change(&self) -> bool {
        self.may_change.load(SeqCst)
    }
}

/// The memory of the flag that a kernel polls.
#[derive(Clone, Copy, Debug, PartialEq)]
enum FlagMemory {
    Device,
    Host,
}

/// How a kernel that polls runs, and what ends it.
#[derive(Clone, Copy, Debug)]
struct WorldSetup {
    /// The memory of the parameter `in`. The parameter `out` is memory of the device.
    flag: FlagMemory,
    threads: usize,
    may_change: bool,
    limit: Duration,
    /// Whether the world sets the flag after a moment.
    sets_flag: bool,
}

/// Runs four blocks of 64 threads, and returns the class of the finding.
fn run_in_world(module: &Module, setup: WorldSetup) -> Option<Class> {
    let memory = Memory::new(1 << 20);
    let flag = match setup.flag {
        FlagMemory::Device => memory.alloc(4).expect("there is space"),
        FlagMemory::Host => memory.alloc_host(4).expect("there is space").address(),
    };
    memory.write(flag, &[0; 4]).expect("it was allocated");
    let out = memory.alloc(4).expect("there is space");
    memory.write(out, &[0; 4]).expect("it was allocated");
    let params = [flag.to_le_bytes(), out.to_le_bytes()].concat();
    let launch = Launch {
        kernel: module.kernel("k").expect("it is there"),
        grid: [4, 1, 1],
        block: [64, 1, 1],
        dynamic_shared: 0,
        params: &params,
    };
    let world = World {
        may_change: AtomicBool::new(setup.may_change),
        ..World::default()
    };
    let site = LaunchSite {
        outside: Some(&world),
        ..LaunchSite::default()
    };
    let watch = Watch {
        wait_limit: Some(setup.limit),
        ..Watch::default()
    };
    let schedule = Schedule {
        threads: setup.threads,
        ..Schedule::default()
    };
    std::thread::scope(|scope| {
        let run =
            scope.spawn(|| run_watched(&memory, &launch, &schedule, Trace::Off, &site, &watch));
        if setup.sets_flag {
            std::thread::sleep(Duration::from_millis(50));
            memory
                .write(flag, &1u32.to_le_bytes())
                .expect("it was allocated");
            world.changes.fetch_add(1, SeqCst);
            world.may_change.store(false, SeqCst);
        }

        let watched = run.join().expect("it does not panic");
        watched.found.first().map(|found| found.fault.class)
    })
}

fn module(body: &str) -> Module {
    Module::parse(&kernel(body))
        .and_then(Module::complete)
        .unwrap_or_else(|error| panic!("{error}\n{body}"))
}

/// What the outside may end is no deadlock, and waits no longer than its limit.
#[test]
fn the_outside_may_end_a_wait() {
    // A plain poll; a wait for an mbarrier with a second condition, by each of three instructions; and waits of two
    // warps, of which only the one for the mbarrier reads the flag.
    let waits = [
        ("try_wait.parity", "ld.acquire.sys.global.u32"),
        ("test_wait.parity", "ld.volatile.global.u32"),
        ("try_wait.parity", "atom.relaxed.sys.global.or.b32"),
    ];
    let waits = waits.map(|(wait, ask)| {
        let operands = if ask.starts_with("atom") { ", 0" } else { "" };
        format!(
            "{MBARRIER} WAIT: mbarrier.{wait}.shared.b64 %p, [bar], 0; @%p bra DONE;
            {ask} %r, [%in]{operands}; setp.eq.u32 %q, %r, 0; @%q bra WAIT; DONE:"
        )
    });
    let [wait, ..] = waits.clone();
    let two = wait.replace("WAIT:", "setp.ge.u32 %f, %t, 32; @%f bra POLL; WAIT:")
        + "st.release.sys.global.u32 [%out], 1; bra END;
        POLL: ld.acquire.sys.global.u32 %r, [%out]; setp.eq.u32 %q, %r, 0; @%q bra POLL; END:";
    let plain = ".reg .b32 %r; .reg .pred %p;
        ASK: ld.acquire.sys.global.u32 %r, [%in]; setp.eq.u32 %p, %r, 0; @%p bra ASK;";
    let minute = Duration::from_secs(60);
    let moment = Duration::from_millis(100);
    for body in [vec![plain.to_string(), two], waits.to_vec()].concat() {
        let module = module(&body);
        for threads in [1, 2, 4] {
            let setup = WorldSetup {
                flag: FlagMemory::Device,
                threads,
                may_change: true,
                limit: minute,
                sets_flag: true,
            };
            let wanted = [
                (setup, None),
                (
                    WorldSetup {
                        flag: FlagMemory::Host,
                        may_change: false,
                        ..setup
                    },
                    None,
                ),
                (
                    WorldSetup {
                        may_change: false,
                        sets_flag: false,
                        ..setup
                    },
                    Some(Class::Deadlock),
                ),
                (
                    WorldSetup {
                        limit: moment,
                        sets_flag: false,
                        ..setup
                    },
                    Some(Class::TimeLimit),
                ),
                (
                    WorldSetup {
                        flag: FlagMemory::Host,
                        may_change: false,
                        limit: moment,
                        sets_flag: false,
                        ..setup
                    },
                    Some(Class::TimeLimit),
                ),
            ];
            for (setup, class) in wanted {
                assert_eq!(run_in_world(&module, setup), class, "{setup:?}\n{body}");
            }
        }
    }
}

/// Waits for an mbarrier alone are deadlocks, whatever the outside may do.
#[test]
fn the_outside_never_arrives_at_an_mbarrier() {
    for wait in ["try_wait.parity", "test_wait.parity"] {
        let module = module(&format!(
            "{MBARRIER} WAIT: mbarrier.{wait}.shared.b64 %p, [bar], 0; @!%p bra WAIT;"
        ));
        let setup = WorldSetup {
            flag: FlagMemory::Host,
            threads: 2,
            may_change: true,
            limit: Duration::from_secs(60),
            sets_flag: false,
        };
        assert_eq!(
            run_in_world(&module, setup),
            Some(Class::Deadlock),
            "{wait}"
        );
    }
}

/// Registers, and an mbarrier that expects one arrival.
const MBARRIER: &str = ".shared .align 8 .b64 bar; .shared .align 8 .b64 bar1; .shared .b32 stop; .reg .pred %p, %q, %f;
    .reg .b32 %r, %n; .reg .b64 %c; setp.eq.u32 %f, %t, 0; mov.u32 %n, 0; mov.u32 %r, 0;
    @%f mbarrier.init.shared.b64 [bar], 1; @%f mbarrier.init.shared.b64 [bar1], 1; @%f st.shared.u32 [stop], 0;
    bar.sync 0;";

/// The first warp of the first block waits for an mbarrier or a flag, in several ways.
fn waits_with_a_second_condition() -> Vec<(String, &'static str)> {
    let mut all = Vec::new();
    for (wait, hint) in [
        ("try_wait.parity", ""),
        ("try_wait.parity", ", 100"),
        ("test_wait.parity", ""),
    ] {
        for (ask, set) in [
            ("ld.acquire.gpu.global.u32 %r, [%in];", "global"),
            ("ld.volatile.global.u32 %r, [%in];", "global"),
            (
                "nanosleep.u32 20; ld.relaxed.gpu.global.u32 %r, [%in];",
                "global",
            ),
            ("atom.relaxed.gpu.global.cas.b32 %r, [%in], 1, 1;", "global"),
            (
                "add.u32 %n, %n, 1; ld.relaxed.gpu.global.u32 %r, [%in];",
                "global",
            ),
            ("ld.acquire.cta.shared.u32 %r, [stop];", "shared"),
        ] {
            all.push((
                format!(
                    "WAIT: mbarrier.{wait}.shared.b64 %p, [bar], 0{hint}; @%p bra DONE;
                    {ask} setp.eq.u32 %q, %r, 0; @%q bra WAIT; DONE:"
                ),
                set,
            ));
        }
    }
    all
}

/// A loop around a wait for an mbarrier looks at its second condition again, whoever sets it.
#[test]
fn a_second_condition_ends_a_wait_for_an_mbarrier() {
    for (wait, set) in waits_with_a_second_condition() {
        let first = "setp.ge.u32 %q, %t, 32;";
        let store = match set {
            "global" => "st.release.gpu.global.u32 [%in], 1;",
            _ => "st.release.cta.shared.u32 [stop], 1;",
        };

        // Another warp.
        let body = format!(
            "{MBARRIER} {first} @%q bra SET; {wait} @%f st.global.u32 [%out], %r; bra END;
            SET: {store} END:"
        );
        ends(&body, 1, 64, 1);

        // Another warp, which waits at a barrier of the block afterwards.
        let body = format!(
            "{MBARRIER} {first} @%q bra SET; {wait} @%f st.global.u32 [%out], %r; bra END;
            SET: {store} END: bar.sync 0;"
        );
        ends(&body, 1, 64, 1);

        // Another lane of the warp.
        let body = format!(
            "{MBARRIER} @!%f bra SET; {wait} @%f st.global.u32 [%out], %r; bra END;
            SET: {store} END: bar.warp.sync 0xffffffff;"
        );
        ends(&body, 1, 32, 1);
        if set == "shared" {
            continue;
        }

        // Another block.
        let body = format!(
            "{MBARRIER} mov.u32 %n, %ctaid.x; setp.ne.u32 %q, %n, 0; mov.u32 %n, 0; @%q bra SET;
            {wait} @%f st.global.u32 [%out], %r; bra END; SET: {store} END:"
        );
        ends(&body, 3, 32, 1);
    }
}

/// A second condition that nothing fulfills is a deadlock.
#[test]
fn a_second_condition_that_nothing_fulfills_is_found() {
    for (wait, set) in waits_with_a_second_condition() {
        let says = match set {
            "global" => {
                "waits at the mbarrier at 0x400 in line 14 (1 arrivals and 0 bytes are missing) and polls in line"
            }
            _ => "waits at the mbarrier at 0x400 in line",
        };
        hangs(&format!("{MBARRIER} {wait}"), 1, 32, says);
        hangs(
            &format!("{MBARRIER} {wait}")
                .replace("bar.sync 0;", "bar.sync 0; @!%f bra END;")
                .replace("DONE:", "DONE: END:"),
            2,
            64,
            "mbarrier at 0x400",
        );
    }
}

/// A loop that gives up after some tries ends, and two waits in one loop end with either.
#[test]
fn waits_that_give_up_end() {
    let tries = format!(
        "{MBARRIER} WAIT: mbarrier.try_wait.parity.shared.b64 %p, [bar], 0; @%p bra DONE;
        add.u32 %n, %n, 1; setp.lt.u32 %q, %n, 500; @%q bra WAIT; DONE: @%f st.global.u32 [%out], %n;"
    );
    ends(&tries, 1, 64, 500);
    ends(&tries.replace("try_wait", "test_wait"), 2, 32, 500);
    let clock = format!(
        "{MBARRIER} .reg .b64 %b; mov.u64 %b, %clock64; add.u64 %b, %b, 5000;
        WAIT: mbarrier.try_wait.parity.shared.b64 %p, [bar], 0; @%p bra DONE; mov.u64 %c, %clock64;
        setp.lt.u64 %q, %c, %b; @%q bra WAIT; @%f st.global.u32 [%out], 3; DONE:"
    );
    ends(&clock, 1, 64, 3);
    let either = format!(
        "{MBARRIER} setp.ge.u32 %q, %t, 32; @%q bra SET;
        WAIT: mbarrier.try_wait.parity.shared.b64 %p, [bar], 0; @%p bra DONE;
        mbarrier.try_wait.parity.shared.b64 %p, [bar1], 0; @!%p bra WAIT; mov.u32 %n, 5;
        DONE: @%f st.global.u32 [%out], %n; bra END;
        SET: setp.eq.u32 %q, %t, 40; @%q mbarrier.arrive.shared.b64 _, [bar1]; END:"
    );
    ends(&either, 1, 64, 5);
    ends(&either.replace("try_wait", "test_wait"), 1, 64, 5);
    hangs(
        &either.replace("%t, 40", "%t, 100"),
        1,
        64,
        "waits at the mbarrier at 0x4",
    );
}

/// Lanes of a warp that wait in vain in several loops are found.
#[test]
fn lanes_that_wait_in_vain_in_two_loops_are_found() {
    for wait in ["try_wait", "test_wait"] {
        for (second, says) in [
            (
                "mbarrier.WAIT.parity.shared.b64 %p, [bar1], 0;",
                "waits at the mbarrier at 0x4",
            ),
            (
                "ld.acquire.gpu.global.u32 %r, [%in]; setp.ne.u32 %p, %r, 0;",
                "warp 0 ",
            ),
        ] {
            let body = format!(
                "{MBARRIER} @!%f bra OTHER;
                FIRST: mbarrier.{wait}.parity.shared.b64 %p, [bar], 0; @!%p bra FIRST; bra END;
                OTHER: {} @!%p bra OTHER; END: bar.warp.sync 0xffffffff;",
                second.replace("WAIT", wait)
            );
            hangs(&body, 1, 32, says);
            hangs(&body, 2, 32, says);
        }
    }
}

/// Lanes of a warp that wait for an mbarrier let the other lanes arrive, or set the flag of another wait.
#[test]
fn lanes_arrive_for_lanes_of_their_warp() {
    for wait in ["try_wait", "test_wait"] {
        let arrives = format!(
            "{MBARRIER} @!%f bra OTHER;
            WAIT: mbarrier.{wait}.parity.shared.b64 %p, [bar], 0; @!%p bra WAIT; st.global.u32 [%out], 4; bra END;
            OTHER: setp.eq.u32 %q, %t, 9; @%q mbarrier.arrive.shared.b64 _, [bar]; END: bar.warp.sync 0xffffffff;"
        );
        ends(&arrives, 1, 32, 4);

        // Lane 0 waits for warp 1 and releases the other lanes, which poll.
        let polls = format!(
            "{MBARRIER} setp.ge.u32 %q, %t, 32; @%q bra ARRIVE; @!%f bra POLL;
            WAIT: mbarrier.{wait}.parity.shared.b64 %p, [bar], 0; @!%p bra WAIT;
            st.release.gpu.global.u32 [%in], 1; st.global.u32 [%out], 6; bra END;
            POLL: ld.acquire.gpu.global.u32 %r, [%in]; setp.eq.u32 %q, %r, 0; @%q bra POLL; bra END;
            ARRIVE: setp.eq.u32 %q, %t, 40; @!%q bra END;
            LATER: add.u32 %n, %n, 1; setp.lt.u32 %q, %n, 20000; @%q bra LATER;
            mbarrier.arrive.shared.b64 _, [bar]; END:"
        );
        ends(&polls, 1, 64, 6);
    }
}
