//! Control flow: divergence, reconvergence, loops, scopes, indirect jumps.

use crate::machine::{SETUP, Setup, words};

fn each(body: &str, block: u32) -> Vec<u32> {
    let body = format!(
        ".reg .b32 %r<10>; .reg .pred %p<5>; .reg .b64 %at; mov.u32 %r0, 0;
        {body}
        END: mad.wide.u32 %at, %t, 4, %out; st.global.u32 [%at], %r0;"
    );
    words(&body, &[], block as usize, Setup { block, ..SETUP })
}

fn wanted(f: impl Fn(u32) -> u32) -> Vec<u32> {
    (0..40).map(f).collect()
}

#[test]
fn lanes_go_apart_and_meet() {
    let body = "
        setp.lt.u32 %p0, %t, 7;
        @%p0 bra LOW;
        mov.u32 %r0, 100;
        bra MEET;
    LOW:
        mov.u32 %r0, 200;
    MEET:
        activemask.b32 %r1;
        add.u32 %r0, %r0, %r1;";
    let mask = |t: u32| if t < 32 { u32::MAX } else { 0xff };
    assert_eq!(
        each(body, 40),
        wanted(|t| (if t < 7 { 200u32 } else { 100 }).wrapping_add(mask(t)))
    );
}

#[test]
fn each_lane_loops_its_own_number_of_times() {
    let body = "
        mov.u32 %r1, 0;
    LOOP:
        setp.ge.u32 %p0, %r1, %t;
        @%p0 bra DONE;
        add.u32 %r0, %r0, %r1;
        add.u32 %r1, %r1, 1;
        bra.uni LOOP;
    DONE:
        bar.warp.sync 0xffffffff;";
    let body = body
        .replace("0xffffffff", "%r9")
        .replace("mov.u32 %r1, 0;", "mov.u32 %r1, 0; activemask.b32 %r9;");
    assert_eq!(each(&body, 40), wanted(|t| (0..t).sum()));
}

#[test]
fn branches_nest() {
    let body = "
        and.b32 %r1, %t, 1; setp.ne.u32 %p0, %r1, 0;
        and.b32 %r1, %t, 2; setp.ne.u32 %p1, %r1, 0;
        @!%p0 bra EVEN;
        @%p1 bra THREE;
        add.u32 %r0, %r0, 1;
        bra JOIN;
    THREE:
        add.u32 %r0, %r0, 3;
    JOIN:
        activemask.b32 %r2;
        popc.b32 %r2, %r2;
        mad.lo.u32 %r0, %r2, 10, %r0;
        bra END;
    EVEN:
        @%p1 add.u32 %r0, %r0, 2;";
    let odd = |t: u32| if t < 32 { 160 } else { 40 };
    assert_eq!(
        each(body, 40),
        wanted(|t| t % 4 + if t % 2 == 1 { odd(t) } else { 0 })
    );
}

/// Lanes that leave early do not keep the others from meeting, not even at a full-mask shuffle of the rest.
#[test]
fn some_lanes_exit_early() {
    let body = "
        mov.u32 %r0, 7; mad.wide.u32 %at, %t, 4, %out; st.global.u32 [%at], %r0;
        setp.lt.u32 %p0, %t, 4;
        setp.lt.u32 %p1, %t, 2;
        @!%p0 bra REST;
        @%p1 exit;
        mov.u32 %r0, 1;
        exit;
    REST:
        and.b32 %r1, %t, 8;
        setp.ne.u32 %p2, %r1, 0;
        @%p2 bra OTHER;
        mov.u32 %r0, 2;
    OTHER:
        activemask.b32 %r0;";
    assert_eq!(
        each(body, 32),
        (0..32)
            .map(|t| if t < 4 { 7 } else { 0xffff_fff0 })
            .collect::<Vec<_>>()
    );
}

#[test]
fn indirect_jumps() {
    let body = "
        and.b32 %r1, %t, 3;
        list: .branchtargets A, B, C, A;
        brx.idx %r1, list;
    A:  mov.u32 %r0, 10; bra END;
    B:  mov.u32 %r0, 11; bra END;
    C:  mov.u32 %r0, 12;";
    assert_eq!(each(body, 40), wanted(|t| [10, 11, 12, 10][t as usize % 4]));
}

#[test]
fn scopes_hide_and_restore_names() {
    let body = "
        .reg .b32 %x; mov.u32 %x, 1;
        {
            .reg .b32 %x; .reg .b64 %q<2>;
            mov.u32 %x, 2; mov.u64 %q1, 5;
            bra SKIP;
            mov.u32 %x, 3;
        SKIP:
            add.u32 %r0, %r0, %x;
        }
        {
            bra SKIP;
        SKIP:
            add.u32 %r0, %r0, 10;
        }
        add.u32 %r0, %r0, %x;";
    assert_eq!(each(body, 40), [13; 40]);
}

/// A guard holds lane by lane; an instruction that no lane executes has no effect.
#[test]
fn guards() {
    let body = "
        setp.lt.u32 %p0, %t, 9; setp.gt.u32 %p1, %t, 99;
        @%p0 mov.u32 %r0, 1;
        @!%p0 mov.u32 %r0, 2;
        @%p1 trap;
        @%p1 bra END;
        add.u32 %r0, %r0, 10;";
    assert_eq!(each(body, 40), wanted(|t| if t < 9 { 11 } else { 12 }));
}

/// A warp that spins on what another warp stores gets there: turns are limited.
#[test]
fn a_warp_may_wait_for_another() {
    let body = "
        .shared .b32 flag;
        setp.eq.u32 %p0, %t, 0;
        @%p0 st.volatile.shared.u32 [flag], 0;
        bar.sync 0;
        setp.lt.u32 %p0, %t, 32;
        @!%p0 bra SET;
    SPIN:
        ld.volatile.shared.u32 %r0, [flag];
        setp.eq.u32 %p1, %r0, 0;
        @%p1 bra SPIN;
        bra END;
    SET:
        setp.eq.u32 %p1, %t, 32;
        @%p1 st.volatile.shared.u32 [flag], 5;
        mov.u32 %r0, 6;";
    assert_eq!(each(body, 64), [[5; 32], [6; 32]].concat());
}
