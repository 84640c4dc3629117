//! Locks, flags and tickets: what orders threads and blocks, and each part of it left out.

use ptx_emu::{Class, Order, Trace};

use crate::machine::{SETUP, Setup, kernel, launch};

const ORDERS: [(Order, u64); 4] = [
    (Order::InOrder, 0),
    (Order::Reversed, 0),
    (Order::Shuffled, 1),
    (Order::Shuffled, 2),
];

/// Runs a body on zeros under every order; whether it must be right, or else a race.
fn check(body: &str, grid: u32, block: u32, right: bool) {
    check_in(&ORDERS, body, grid, block, right);
}

/// As [`check`] for three blocks of which each waits for the one before.
fn check_chain(body: &str, block: u32, right: bool) {
    check_in(&ORDERS, body, 3, block, right);
}

fn check_in(orders: &[(Order, u64)], body: &str, grid: u32, block: u32, right: bool) {
    for &(order, seed) in orders {
        let setup = Setup {
            grid,
            block,
            order,
            seed,
            trace: Trace::On,
            ..SETUP
        };
        match launch(&kernel(body), &[0; 4096], 4096, setup) {
            Ok(_) => assert!(right, "no race, {grid} blocks, {order:?} {seed}:\n{body}"),
            Err(fault) => {
                let race = matches!(fault.class, Class::GlobalRace | Class::SharedRace);
                assert!(!right && race, "{grid} blocks, {order:?} {seed}: {fault}");
            }
        }
    }
}

/// Every thread takes the lock, counts, and leaves a mark at its number; a thread that fails tries again.
fn counter(lock: &str, acquire: &str, unlock: &str) -> String {
    format!(
        ".shared .b32 shared_lock; .shared .b32 shared_counter;
        .reg .b32 %r<4>, %old, %done; .reg .b64 %at; .reg .pred %p;
        setp.ne.u32 %p, %t, 0;
        @!%p st.shared.u32 [shared_lock], 0; @!%p st.shared.u32 [shared_counter], 0;
        bar.sync 0;
        mov.u32 %done, 0;
    TRY:
        {acquire}
        setp.ne.u32 %p, %old, 0;
        @%p bra AGAIN;
        ld.COUNTER %r1, [COUNTER_AT];
        add.u32 %r2, %r1, 1;
        st.COUNTER [COUNTER_AT], %r2;
        mad.wide.u32 %at, %r1, 4, %out;
        st.global.u32 [%at], 1;
        {unlock}
        mov.u32 %done, 1;
    AGAIN:
        setp.eq.u32 %p, %done, 0;
        @%p bra TRY;"
    )
    .replace("LOCK", lock)
    .replace(
        "ld.COUNTER",
        if lock == "%in" {
            "ld.global.u32"
        } else {
            "ld.shared.u32"
        },
    )
    .replace(
        "st.COUNTER",
        if lock == "%in" {
            "st.global.u32"
        } else {
            "st.shared.u32"
        },
    )
    .replace(
        "COUNTER_AT",
        if lock == "%in" {
            "%in+4"
        } else {
            "shared_counter"
        },
    )
}

/// How a lock is taken and given back, and whether that is right within a block and between blocks.
type Lock<'a> = (&'a str, &'a str, bool, bool);

const LOCKS: &[Lock<'_>] = &[
    (
        "atom.acquire.gpu.SPACE.cas.b32 %old, [LOCK], 0, 1;",
        "atom.release.gpu.SPACE.exch.b32 %r0, [LOCK], 0;",
        true,
        true,
    ),
    (
        "atom.acquire.gpu.SPACE.cas.b32 %old, [LOCK], 0, 1;",
        "st.release.gpu.SPACE.u32 [LOCK], 0;",
        true,
        true,
    ),
    (
        "atom.acq_rel.sys.SPACE.cas.b32 %old, [LOCK], 0, 1;",
        "red.release.sys.SPACE.and.b32 [LOCK], 0;",
        true,
        true,
    ),
    (
        "atom.SPACE.cas.b32 %old, [LOCK], 0, 1; membar.gl;",
        "membar.gl; atom.SPACE.exch.b32 %r0, [LOCK], 0;",
        true,
        true,
    ),
    (
        "atom.SPACE.cas.b32 %old, [LOCK], 0, 1; membar.gl;",
        "membar.gl; st.volatile.SPACE.u32 [LOCK], 0;",
        true,
        true,
    ),
    (
        "atom.relaxed.gpu.SPACE.cas.b32 %old, [LOCK], 0, 1; fence.acq_rel.gpu;",
        "fence.acq_rel.gpu; st.relaxed.gpu.SPACE.u32 [LOCK], 0;",
        true,
        true,
    ),
    (
        "atom.SPACE.cas.b32 %old, [LOCK], 0, 1; fence.sc.sys;",
        "atom.release.gpu.SPACE.exch.b32 %r0, [LOCK], 0;",
        true,
        true,
    ),
    // Scopes that do not reach other blocks.
    (
        "atom.acquire.cta.SPACE.cas.b32 %old, [LOCK], 0, 1;",
        "atom.release.cta.SPACE.exch.b32 %r0, [LOCK], 0;",
        true,
        false,
    ),
    (
        "atom.acquire.gpu.SPACE.cas.b32 %old, [LOCK], 0, 1;",
        "atom.release.cta.SPACE.exch.b32 %r0, [LOCK], 0;",
        true,
        false,
    ),
    (
        "atom.acquire.cta.SPACE.cas.b32 %old, [LOCK], 0, 1;",
        "atom.release.gpu.SPACE.exch.b32 %r0, [LOCK], 0;",
        true,
        false,
    ),
    (
        "atom.SPACE.cas.b32 %old, [LOCK], 0, 1; membar.gl;",
        "membar.cta; atom.SPACE.exch.b32 %r0, [LOCK], 0;",
        true,
        false,
    ),
    (
        "atom.SPACE.cas.b32 %old, [LOCK], 0, 1; membar.cta;",
        "membar.gl; atom.SPACE.exch.b32 %r0, [LOCK], 0;",
        true,
        false,
    ),
    (
        "atom.acquire.gpu.SPACE.cas.b32 %old, [LOCK], 0, 1;",
        "fence.acq_rel.cta; st.relaxed.gpu.SPACE.u32 [LOCK], 0;",
        true,
        false,
    ),
    // Half of it is missing, or in the wrong place.
    (
        "atom.SPACE.cas.b32 %old, [LOCK], 0, 1;",
        "atom.SPACE.exch.b32 %r0, [LOCK], 0;",
        false,
        false,
    ),
    (
        "atom.SPACE.cas.b32 %old, [LOCK], 0, 1;",
        "membar.gl; atom.SPACE.exch.b32 %r0, [LOCK], 0;",
        false,
        false,
    ),
    (
        "atom.SPACE.cas.b32 %old, [LOCK], 0, 1; membar.gl;",
        "atom.SPACE.exch.b32 %r0, [LOCK], 0;",
        false,
        false,
    ),
    (
        "membar.gl; atom.SPACE.cas.b32 %old, [LOCK], 0, 1;",
        "membar.gl; atom.SPACE.exch.b32 %r0, [LOCK], 0;",
        false,
        false,
    ),
    (
        "atom.SPACE.cas.b32 %old, [LOCK], 0, 1; membar.gl;",
        "atom.SPACE.exch.b32 %r0, [LOCK], 0; membar.gl;",
        false,
        false,
    ),
    (
        "atom.acquire.gpu.SPACE.cas.b32 %old, [LOCK], 0, 1;",
        "st.relaxed.gpu.SPACE.u32 [LOCK], 0;",
        false,
        false,
    ),
    (
        "atom.release.gpu.SPACE.cas.b32 %old, [LOCK], 0, 1;",
        "st.release.gpu.SPACE.u32 [LOCK], 0;",
        false,
        false,
    ),
    // An unlock that is no strong store races with those who ask.
    (
        "atom.SPACE.cas.b32 %old, [LOCK], 0, 1; membar.gl;",
        "membar.gl; st.SPACE.u32 [LOCK], 0;",
        false,
        false,
    ),
    // No lock at all.
    ("mov.u32 %old, 0;", "", false, false),
];

#[test]
fn a_counter_behind_a_lock_is_no_race() {
    for (acquire, unlock, in_block, between_blocks) in LOCKS {
        let body = counter(
            "%in",
            &acquire.replace("SPACE", "global"),
            &unlock.replace("SPACE", "global"),
        );
        check(&body, 1, 96, *in_block);
        check(&body, 5, 64, *between_blocks);
        check(&body, 5, 1, *between_blocks);
    }
}

#[test]
fn a_counter_in_shared_memory_behind_a_lock_is_no_race() {
    for (acquire, unlock, in_block, _) in LOCKS {
        let [acquire, unlock] = [acquire, unlock].map(|part| part.replace("SPACE", "shared"));
        check(&counter("shared_lock", &acquire, &unlock), 1, 96, *in_block);
    }
}

/// What is counted behind the lock is right: every number is given once.
#[test]
fn a_lock_excludes() {
    let (acquire, unlock, ..) = LOCKS[0];
    let body = counter(
        "%in",
        &acquire.replace("SPACE", "global"),
        &unlock.replace("SPACE", "global"),
    );
    for (order, seed) in ORDERS {
        let setup = Setup {
            grid: 5,
            block: 64,
            order,
            seed,
            ..SETUP
        };
        let (out, _) =
            launch(&kernel(&body), &[0; 8], 1280, setup).unwrap_or_else(|fault| panic!("{fault}"));
        assert_eq!(out, [1, 0, 0, 0].repeat(320));
    }
}

/// The last of five blocks overwrites what all have read, and adds up what they wrote.
#[test]
fn the_last_block_may_overwrite_what_all_have_read() {
    let body = |release: &str, acquire: &str| {
        format!(
            ".reg .b32 %r<4>; .reg .b64 %d; .reg .pred %p;
            ld.global.u32 %r0, [%in+4];
            mov.u32 %r1, %ctaid.x; mad.lo.u32 %r1, %r1, 64, %t; mad.wide.u32 %d, %r1, 4, %in;
            st.global.u32 [%d+1024], %r0;
            bar.sync 0;
            setp.ne.u32 %p, %t, 0; @%p bra END;
            {release}
            atom.global.add.u32 %r1, [%in], 1;
            setp.ne.u32 %p, %r1, 4; @%p bra END;
            {acquire}
            ld.global.u32 %r1, [%in+1276]; ld.global.u32 %r2, [%in+1536];
            st.global.u32 [%in+4], %r1;
        END:"
        )
    };
    check(&body("membar.gl;", "membar.gl;"), 5, 64, true);
    check(&body("", "membar.gl;"), 5, 64, false);
    check(&body("membar.gl;", ""), 5, 64, false);
    check(&body("membar.cta;", "membar.gl;"), 5, 64, false);
    check(
        &body("membar.gl;", "membar.gl;").replace("bar.sync 0;", ""),
        5,
        64,
        false,
    );
}

/// A release gives away what its own thread knows: another warp's store counts only behind a barrier.
#[test]
fn a_release_does_not_speak_for_other_warps() {
    let body = |barrier: &str| {
        format!(
            ".reg .b32 %r<2>; .reg .pred %p;
            mov.u32 %r0, %ctaid.x; setp.ne.u32 %p, %r0, 0; @%p bra READ;
            setp.eq.u32 %p, %t, 32; @%p st.global.u32 [%in+4], 7;
            {barrier}
            setp.eq.u32 %p, %t, 0; @%p st.release.gpu.global.u32 [%in], 1;
            bra END;
        READ:
            setp.ne.u32 %p, %t, 0; @%p bra END;
        ASK:
            ld.acquire.gpu.global.u32 %r0, [%in];
            setp.ne.u32 %p, %r0, 0; @%p bra SEEN; nanosleep.u32 20; bra ASK;
        SEEN:
            ld.global.u32 %r1, [%in+4];
        END:"
        )
    };
    check(&body("bar.sync 0;"), 3, 64, true);
    check(&body(""), 3, 64, false);
}

/// Block 0 tells block 1, which tells block 2: order is passed on, at every step by a barrier of the block too.
#[test]
fn order_is_passed_on() {
    let body = |first: &str, second: &str| {
        format!(
            ".reg .b32 %r<3>; .reg .pred %p, %lane;
            setp.eq.u32 %lane, %t, 0;
            mov.u32 %r0, %ctaid.x;
            setp.eq.u32 %p, %r0, 1; @%p bra ONE;
            setp.eq.u32 %p, %r0, 2; @%p bra TWO;
            @%lane st.global.u32 [%in+4], 7;
            @%lane st.release.gpu.global.u32 [%in+8], 1;
            bra END;
        ONE:
            ld.acquire.gpu.global.u32 %r1, [{first}];
            setp.ne.u32 %p, %r1, 0; @%p bra ONE_SEEN; nanosleep.u32 20; bra ONE;
        ONE_SEEN:
            bar.sync 0;
            setp.eq.u32 %p, %t, 40;
            @%p st.release.gpu.global.u32 [%in+12], 1;
            bra END;
        TWO:
            ld.acquire.gpu.global.u32 %r1, [{second}];
            setp.ne.u32 %p, %r1, 0; @%p bra TWO_SEEN; nanosleep.u32 20; bra TWO;
        TWO_SEEN:
            bar.sync 0;
            ld.global.u32 %r2, [%in+4];
        END:"
        )
    };
    check_chain(&body("%in+8", "%in+12"), 64, true);

    // Nobody has released what is read at another address.
    let elsewhere = body("%in+8", "%in+12")
        .replace("setp.ne.u32 %p, %r1, 0; @%p bra TWO_SEEN;", "bra TWO_SEEN;");
    check(
        &elsewhere.replace(
            "[%in+12];\n            bra TWO",
            "[%in+16];\n            bra TWO",
        ),
        3,
        64,
        false,
    );
}

/// A store replaces what was released at its address; an atomic keeps it.
#[test]
fn a_store_ends_a_release_and_an_atomic_passes_it_on() {
    let body = |between: &str| {
        format!(
            ".reg .b32 %r<3>; .reg .pred %p;
            mov.u32 %r0, %ctaid.x;
            setp.eq.u32 %p, %r0, 1; @%p bra ONE;
            setp.eq.u32 %p, %r0, 2; @%p bra TWO;
            st.global.u32 [%in+4], 7;
            st.release.gpu.global.u32 [%in], 1;
            bra END;
        ONE:
            ld.relaxed.gpu.global.u32 %r1, [%in];
            setp.eq.u32 %p, %r1, 1; @%p bra ONE_SEEN; nanosleep.u32 20; bra ONE;
        ONE_SEEN:
            {between}
            bra END;
        TWO:
            ld.acquire.gpu.global.u32 %r1, [%in];
            setp.eq.u32 %p, %r1, 2; @%p bra TWO_SEEN; nanosleep.u32 20; bra TWO;
        TWO_SEEN:
            ld.global.u32 %r2, [%in+4];
        END:"
        )
    };
    check_chain(
        &body("atom.relaxed.gpu.global.add.u32 %r1, [%in], 1;"),
        1,
        true,
    );
    // In reverse, the third block sees the released 1 first, and may rely on it.
    check_in(
        &ORDERS[..1],
        &body("st.relaxed.gpu.global.u32 [%in], 2;"),
        3,
        1,
        false,
    );
}
