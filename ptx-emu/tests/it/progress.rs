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

/// What the outside may end is no deadlock, and waits no longer than its limit.
#[test]
fn the_outside_may_end_a_wait() {
    let text = kernel(
        ".reg .b32 %r; .reg .pred %p; ASK: ld.acquire.sys.global.u32 %r, [%in]; setp.eq.u32 %p, %r, 0; @%p bra ASK;
        st.global.u32 [%out], %r;",
    );
    let module = Module::parse(&text)
        .and_then(Module::complete)
        .expect("it is valid");
    let wait = |flag: &dyn Fn(&Memory) -> u64,
                threads,
                may_change,
                limit,
                meanwhile: &dyn Fn(&Memory, u64, &World)| {
        let memory = Memory::new(1 << 20);
        let flag = flag(&memory);
        let out = memory.alloc(4).expect("there is space");
        let params = [flag.to_le_bytes(), out.to_le_bytes()].concat();
        let kernel = module.kernel("k").expect("it is there");
        let launch = Launch {
            kernel,
            grid: [4, 1, 1],
            block: [1; 3],
            dynamic_shared: 0,
            params: &params,
        };
        let world = World {
            may_change: AtomicBool::new(may_change),
            ..World::default()
        };
        let site = LaunchSite {
            outside: Some(&world),
            ..LaunchSite::default()
        };
        let watch = Watch {
            wait_limit: Some(limit),
            ..Watch::default()
        };
        let schedule = Schedule {
            threads,
            ..Schedule::default()
        };
        std::thread::scope(|scope| {
            let run =
                scope.spawn(|| run_watched(&memory, &launch, &schedule, Trace::Off, &site, &watch));
            meanwhile(&memory, flag, &world);
            run.join()
                .expect("it does not panic")
                .found
                .first()
                .map(|found| found.fault.class)
        })
    };
    let device = |memory: &Memory| {
        let flag = memory.alloc(4).expect("there is space");
        memory.write(flag, &[0; 4]).expect("it was allocated");
        flag
    };
    let host = |memory: &Memory| memory.alloc_host(4).expect("there is space").address();
    let nothing = |_: &Memory, _, _: &World| {};
    let later = |memory: &Memory, flag, world: &World| {
        std::thread::sleep(Duration::from_millis(100));
        memory
            .write(flag, &1u32.to_le_bytes())
            .expect("it was allocated");
        world.changes.fetch_add(1, SeqCst);
        world.may_change.store(false, SeqCst);
    };
    let minute = Duration::from_secs(60);
    let moment = Duration::from_millis(150);
    for threads in [1, 2, 4] {
        assert_eq!(wait(&device, threads, true, minute, &later), None);
        assert_eq!(wait(&host, threads, false, minute, &later), None);
        assert_eq!(
            wait(&device, threads, false, minute, &nothing),
            Some(Class::Deadlock)
        );
        assert_eq!(
            wait(&device, threads, true, moment, &nothing),
            Some(Class::TimeLimit)
        );
        assert_eq!(
            wait(&host, threads, false, moment, &nothing),
            Some(Class::TimeLimit)
        );
    }
}
