//! Manual, "shfl.sync", "vote.sync", "match.sync", "redux.sync", "activemask", "bar.red", special registers.

use ptx_emu::Class;

use crate::machine::{SETUP, Setup, kernel, launch, words};

/// Runs an instruction that turns `%t` into `%d` (and `%p`) in each lane; gives `%d | p << 31`.
fn lanes(inst: &str, block: u32) -> Vec<u32> {
    let body = format!(
        ".reg .b32 %d, %x; .reg .pred %p; .reg .b64 %at; setp.eq.u32 %p, %t, 99;
        {inst}
        selp.u32 %x, 0x80000000, 0, %p;
        or.b32 %d, %d, %x;
        mad.wide.u32 %at, %t, 4, %out;
        st.global.u32 [%at], %d;"
    );
    words(&body, &[], block as usize, Setup { block, ..SETUP })
}

const IN: u32 = 1 << 31;

/// Each row: the shuffle of the lane's number, and the source of each lane; where the source is out of
/// range, the lane keeps its own value and the predicate is false.
#[test]
fn shuffles() {
    let within = |from: u32| from | IN;
    type Source = fn(u32) -> Result<u32, u32>;
    let rows: &[(&str, Source)] = &[
        ("idx.b32 %d|%p, %t, 5, 31", |_| Ok(5)),
        ("idx.b32 %d|%p, %t, 37, 31", |_| Ok(5)),
        ("bfly.b32 %d|%p, %t, 16, 31", |l| Ok(l ^ 16)),
        ("down.b32 %d|%p, %t, 1, 31", |l| {
            if l < 31 { Ok(l + 1) } else { Err(l) }
        }),
        ("up.b32 %d|%p, %t, 1, 0", |l| {
            if l > 0 { Ok(l - 1) } else { Err(l) }
        }),
        // Segments of eight lanes: the segment mask 0x18 is in bits 8 to 12.
        ("down.b32 %d|%p, %t, 3, 0x1807", |l| {
            if l % 8 < 5 { Ok(l + 3) } else { Err(l) }
        }),
        ("down.b32 %d|%p, %t, 3, 0x181f", |l| {
            if l % 8 < 5 { Ok(l + 3) } else { Err(l) }
        }),
        ("up.b32 %d|%p, %t, 3, 0x1800", |l| {
            if l % 8 > 2 { Ok(l - 3) } else { Err(l) }
        }),
        ("idx.b32 %d|%p, %t, 2, 0x181f", |l| Ok(l & 24 | 2)),
        ("idx.b32 %d|%p, %t, 10, 0x181f", |l| Ok(l & 24 | 2)),
        // The clamp stops before the segment's end.
        ("down.b32 %d|%p, %t, 1, 0x1803", |l| {
            if l % 8 < 3 { Ok(l + 1) } else { Err(l) }
        }),
        ("bfly.b32 %d|%p, %t, 4, 0x1803", |l| {
            if l % 8 >= 4 { Ok(l ^ 4) } else { Err(l) }
        }),
    ];
    for (inst, source) in rows {
        let wanted: Vec<u32> = (0..32)
            .map(|l| source(l).map_or_else(|own| own, within))
            .collect();
        assert_eq!(
            lanes(&format!("shfl.sync.{inst}, -1;"), 32),
            wanted,
            "{inst}"
        );
    }
}

#[test]
fn votes() {
    let even = "and.b32 %d, %t, 1; setp.eq.u32 %p, %d, 0; mov.u32 %d, 0;";
    let rows: &[(&str, u32)] = &[
        (
            "vote.sync.ballot.b32 %d, %p, -1; setp.eq.u32 %p, 1, 0;",
            0x5555_5555,
        ),
        (
            "vote.sync.ballot.b32 %d, !%p, -1; setp.eq.u32 %p, 1, 0;",
            0xaaaa_aaaa,
        ),
        ("vote.sync.any.pred %p, %p, -1;", IN),
        ("vote.sync.all.pred %p, %p, -1;", 0),
        ("vote.sync.uni.pred %p, %p, -1;", 0),
        ("setp.ge.u32 %p, %t, 0; vote.sync.all.pred %p, %p, -1;", IN),
        ("setp.ge.u32 %p, %t, 0; vote.sync.uni.pred %p, !%p, -1;", IN),
        ("activemask.b32 %d; setp.eq.u32 %p, 1, 0;", u32::MAX),
    ];
    for (inst, wanted) in rows {
        let inst = inst.replace("setp.eq.u32 %p, 1, 0", "setp.eq.u32 %p, %t, 99");
        assert_eq!(lanes(&format!("{even}{inst}"), 32), [*wanted; 32], "{inst}");
    }
}

#[test]
fn reductions_over_a_warp() {
    let rows: &[(&str, u32)] = &[
        ("redux.sync.add.u32 %d, %t, -1;", 496),
        ("redux.sync.max.u32 %d, %t, -1;", 31),
        ("redux.sync.min.s32 %d, %t, -1;", 0),
        ("redux.sync.xor.b32 %d, %t, -1;", 0),
        ("redux.sync.or.b32 %d, %t, -1;", 31),
        ("redux.sync.and.b32 %d, %t, -1;", 0),
    ];
    for (inst, wanted) in rows {
        assert_eq!(lanes(inst, 32), [*wanted; 32], "{inst}");
    }
}

#[test]
fn matches() {
    let any: Vec<u32> = (0..32).map(|l| 0x1111_1111 << (l % 4)).collect();
    assert_eq!(
        lanes("and.b32 %d, %t, 3; match.any.sync.b32 %d, %d, -1;", 32),
        any
    );
    assert_eq!(lanes("match.all.sync.b32 %d|%p, %t, -1;", 32), [0; 32]);
    assert_eq!(
        lanes("mov.u32 %d, 7; match.all.sync.b32 %d|%p, %d, -1;", 32),
        [u32::MAX; 32]
    );
}

/// The leader is one of the mask's lanes, the same in all.
#[test]
fn one_lane_is_elected() {
    let found = lanes("elect.sync %d|%p, -1;", 32);
    let leader = found[0] & 31;
    let wanted: Vec<u32> = (0..32)
        .map(|l| if l == leader { leader | IN } else { leader })
        .collect();
    assert_eq!(found, wanted);
}

/// `bar.red` gives every thread of the block the count, the conjunction or the disjunction.
#[test]
fn barriers_reduce() {
    let low = "setp.lt.u32 %p, %t, 10; mov.u32 %d, 0;";
    let rows: &[(&str, u32)] = &[
        ("bar.red.popc.u32 %d, 0, %p; setp.eq.u32 %p, %t, 99;", 10),
        (
            "bar.red.popc.u32 %d, 1, 96, !%p; setp.eq.u32 %p, %t, 999;",
            86,
        ),
        ("bar.red.and.pred %p, 0, %p;", 0),
        ("bar.red.or.pred %p, 0, %p;", IN),
        ("barrier.cta.red.or.pred %p, 0, !%p;", IN),
    ];
    for (inst, wanted) in rows {
        assert_eq!(lanes(&format!("{low}{inst}"), 96), [*wanted; 96], "{inst}");
    }
}

/// A producer warp arrives without waiting; the consumers wait for it.
#[test]
fn named_barriers_pair_arrive_with_sync() {
    let body = "
        .shared .b32 box; .reg .pred %first; .reg .b32 %v; .reg .b64 %at;
        setp.lt.u32 %first, %t, 32;
        @!%first bra WAIT;
        st.shared.u32 [box], 42;
        bar.arrive 3, 64;
        mov.u32 %v, 0;
        bra DONE;
    WAIT:
        bar.sync 3, 64;
        ld.shared.u32 %v, [box];
    DONE:
        mad.wide.u32 %at, %t, 4, %out;
        st.global.u32 [%at], %v;";
    let found = words(body, &[], 64, Setup { block: 64, ..SETUP });
    assert_eq!(found, [[0; 32], [42; 32]].concat());
}

#[test]
fn special_registers() {
    type Value = fn(u32) -> u32;
    let rows: &[(&str, Value)] = &[
        ("%tid.x", |t| t),
        ("%tid.y", |_| 0),
        ("%ntid.x", |_| 40),
        ("%ntid.z", |_| 1),
        ("%ctaid.x", |_| 0),
        ("%nctaid.x", |_| 1),
        ("%laneid", |t| t % 32),
        ("%warpid", |t| t / 32 + 1),
        ("%nwarpid", |_| 64),
        ("%lanemask_eq", |t| 1 << (t % 32)),
        ("%lanemask_lt", |t| (1 << (t % 32)) - 1),
        ("%lanemask_le", |t| u32::MAX >> (31 - t % 32)),
        ("%lanemask_gt", |t| {
            u32::MAX.checked_shl(t % 32 + 1).unwrap_or(0)
        }),
        ("%lanemask_ge", |t| u32::MAX << (t % 32)),
        ("%dynamic_smem_size", |_| 0),
    ];
    for (register, value) in rows {
        let body = format!(
            ".reg .b32 %d; .reg .b64 %at; mov.u32 %d, {register}; mad.wide.u32 %at, %t, 4, %out; st.global.u32 [%at], %d;"
        );
        let wanted: Vec<u32> = (0..40).map(value).collect();
        assert_eq!(
            words(&body, &[], 40, Setup { block: 40, ..SETUP }),
            wanted,
            "{register}"
        );
    }
}

#[test]
fn clocks_never_run_backwards() {
    let body = "
        .reg .b32 %a, %b; .reg .b64 %x, %y, %at; .reg .pred %p;
        mov.u32 %a, %clock; mov.u64 %x, %clock64; mov.u64 %y, %globaltimer; mov.u32 %b, %clock;
        setp.lt.u32 %p, %a, %b; setp.lt.and.u64 %p, %x, %y, %p;
        selp.u32 %a, 1, 0, %p; mad.wide.u32 %at, %t, 4, %out; st.global.u32 [%at], %a;";
    assert_eq!(words(body, &[], 32, SETUP), [1; 32]);
}

/// Lanes 0 to 15 name one mask in `%m` and lanes 16 to 31 another.
const HALVES: &str = ".reg .b32 %m; .reg .pred %low; setp.lt.u32 %low, %t, 16;
    selp.b32 %m, 0xffff, 0xffff0000, %low;";

/// Each group of lanes that names one mask executes a `.sync` instruction by itself.
#[test]
fn disjoint_masks_are_groups_of_their_own() {
    let none = "setp.eq.u32 %p, %t, 99;";
    type Value = fn(u32) -> u32;
    let rows: &[(&str, Value)] = &[
        ("shfl.sync.bfly.b32 %d|%p, %t, 1, 31, %m;", |l| l ^ 1 | IN),
        ("shfl.sync.idx.b32 %d|%p, %t, 3, 0x101f, %m;", |l| {
            l & 16 | 3 | IN
        }),
        (
            "setp.lt.u32 %p, %t, 20; vote.sync.ballot.b32 %d, %p, %m; NONE",
            |l| {
                if l < 16 { 0xffff } else { 0xf_0000 }
            },
        ),
        (
            "mov.u32 %d, 0; setp.lt.u32 %p, %t, 20; vote.sync.all.pred %p, %p, %m;",
            |l| {
                if l < 16 { IN } else { 0 }
            },
        ),
        (
            "mov.u32 %d, 0; setp.lt.u32 %p, %t, 3; vote.sync.any.pred %p, %p, %m;",
            |l| {
                if l < 16 { IN } else { 0 }
            },
        ),
        (
            "mov.u32 %d, 0; setp.lt.u32 %p, %t, 3; vote.sync.uni.pred %p, %p, %m;",
            |l| {
                if l < 16 { 0 } else { IN }
            },
        ),
        ("mov.u32 %d, 7; match.any.sync.b32 %d, %d, %m;", |l| {
            if l < 16 { 0xffff } else { 0xffff_0000 }
        }),
        (
            "shr.u32 %d, %t, 4; match.all.sync.b32 %d|%p, %d, %m;",
            |l| {
                if l < 16 {
                    0xffff | IN
                } else {
                    0xffff_0000 | IN
                }
            },
        ),
        ("redux.sync.add.u32 %d, %t, %m;", |l| {
            if l < 16 { 120 } else { 376 }
        }),
        ("redux.sync.min.u32 %d, %t, %m;", |l| l & 16),
        ("mov.u32 %d, 5; bar.warp.sync %m;", |_| 5),
    ];
    for (inst, value) in rows {
        let found = lanes(&format!("{HALVES}{}", inst.replace("NONE", none)), 32);
        assert_eq!(found, (0..32).map(value).collect::<Vec<_>>(), "{inst}");
    }

    let found = lanes(&format!("{HALVES}elect.sync %d|%p, %m;"), 32);
    for half in found.chunks(16) {
        assert!(half.iter().all(|d| d & 31 == half[0] & 31), "{found:x?}");
        assert_eq!(
            half.iter().filter(|d| **d & IN != 0).count(),
            1,
            "{found:x?}"
        );
    }

    assert_eq!(
        (found[0] & 31 | 15, found[16] & 31 & 16),
        (15, 16),
        "each half elects one of its own"
    );
}

/// Groups of one lane, and groups whose masks name lanes that have exited.
#[test]
fn groups_of_any_size() {
    let own = "mov.u32 %d, %lanemask_eq; redux.sync.add.u32 %d, %t, %d;";
    assert_eq!(lanes(own, 32), (0..32).collect::<Vec<_>>());
    let four =
        "shr.u32 %d, %t, 2; shl.b32 %d, %d, 2; shl.b32 %d, 15, %d; redux.sync.max.u32 %d, %t, %d;"
            .replace(
                "shl.b32 %d, 15, %d",
                ".reg .b32 %f; mov.u32 %f, 15; shl.b32 %d, %f, %d",
            );
    assert_eq!(
        lanes(&four, 30),
        (0..30).map(|l| (l | 3).min(29)).collect::<Vec<_>>()
    );
}

fn fault(body: &str, setup: Setup) -> ptx_emu::Fault {
    let result = launch(&kernel(body), &[0; 256], 256, setup);
    *result
        .err()
        .unwrap_or_else(|| panic!("no fault in\n{body}"))
}

#[test]
fn masks_that_overlap_are_refused() {
    let body = ".reg .b32 %m, %d; .reg .pred %low; setp.lt.u32 %low, %t, 16;
        selp.b32 %m, 0x1ffff, 0xffff0000, %low;\nredux.sync.add.u32 %d, %t, %m;";
    let found = fault(body, SETUP);
    assert_eq!(found.class, Class::InactiveLane);
    assert_eq!(
        (found.what.as_str(), found.lanes),
        (
            "lanes 0-15 name the mask 0x0001ffff and lanes 16-31 the mask 0xffff0000, which overlap",
            u32::MAX
        )
    );
    let outside = body.replace("0x1ffff", "0x0fff");
    assert!(
        fault(&outside, SETUP)
            .what
            .contains("0x00000fff does not name"),
        "{}",
        fault(&outside, SETUP)
    );
    let absent = body
        .replace("0x1ffff", "0xffff")
        .replace("redux", "@%low redux");
    assert!(launch(&kernel(&absent), &[0; 4], 4, SETUP).is_ok());
    let missing = absent.replace("0xffff,", "0x1ffff,");
    assert!(
        fault(&missing, SETUP)
            .what
            .contains("lane 16, which exits without executing this"),
        "{}",
        fault(&missing, SETUP)
    );
}

/// A group may not read from a lane of another group.
#[test]
fn groups_do_not_see_each_other() {
    let body = format!(".reg .b32 %d; {HALVES} shfl.sync.bfly.b32 %d, %t, 16, 31, %m;");
    let found = fault(&body, SETUP);
    assert_eq!(found.class, Class::InactiveLane);
    assert_eq!(
        found.what,
        "lane 0 reads from lane 16, which does not take part"
    );
}

/// `bar.warp.sync` orders the memory of the lanes it names, and of no others.
#[test]
fn a_group_synchronises_its_own_memory_alone() {
    let body = |partner: u32| {
        format!(
            ".shared .b32 s[32]; .reg .b32 %a, %b, %v; {HALVES}
            mov.u32 %a, s; mad.lo.u32 %b, %t, 4, %a; st.shared.u32 [%b], %t;
            bar.warp.sync %m;
            xor.b32 %b, %t, {partner}; mad.lo.u32 %b, %b, 4, %a; ld.shared.u32 %v, [%b];"
        )
    };
    for partner in [1, 8, 15] {
        assert!(
            launch(&kernel(&body(partner)), &[0; 4], 4, SETUP).is_ok(),
            "{partner}"
        );
    }

    for partner in [16, 17, 31] {
        assert_eq!(
            fault(&body(partner), SETUP).class,
            Class::SharedRace,
            "{partner}"
        );
    }

    // Two groups that share a lane one after the other pass on what they know.
    let chain = body(31).replace(
        "bar.warp.sync %m;",
        "bar.warp.sync %m; and.b32 %b, %t, 15; setp.eq.u32 %low, %b, 0;
         @%low bar.warp.sync 0x10001; bar.warp.sync %m;",
    );
    if let Err(fault) = launch(&kernel(&chain), &[0; 4], 4, SETUP) {
        panic!("{fault}");
    }
}

/// Only lanes that somebody reads from need to have written the register; what comes from others is not written.
#[test]
fn shuffles_of_partly_written_registers() {
    let body = |write: &str, shuffle: &str, read: &str| {
        format!(
            ".reg .b32 %a, %d; .reg .pred %p, %q; .reg .b64 %at; mad.wide.u32 %at, %t, 4, %out;
            {write} mov.u32 %a, %t;
            {shuffle}
            {read} st.global.u32 [%at], %d;"
        )
    };
    let low = "setp.lt.u32 %p, %t, 16; @%p";
    let right = [
        (low, "shfl.sync.idx.b32 %d, %a, 3, 31, -1;", ""),
        (
            low,
            "shfl.sync.idx.b32 %a, %a, 3, 31, -1; mov.u32 %d, %a;",
            "",
        ),
        (low, "shfl.sync.bfly.b32 %d, %a, 16, 31, -1;", "@!%p"),
        (
            low,
            "shfl.sync.down.b32 %d, %a, 1, 31, -1;",
            "setp.lt.u32 %p, %t, 15; @%p",
        ),
        (
            low,
            "shfl.sync.bfly.b32 %d, %a, 16, 31, -1; @%p mov.u32 %d, 1;",
            "",
        ),
        (
            low,
            "shfl.sync.bfly.b32 %d|%q, %a, 16, 31, -1; selp.b32 %d, 1, 0, %q;",
            "",
        ),
        (
            low,
            "shfl.sync.down.b32 %d, %a, 8, 31, -1; shfl.sync.idx.b32 %d, %d, 2, 31, -1;",
            "",
        ),
    ];
    for (write, shuffle, read) in right {
        if let Err(fault) = launch(&kernel(&body(write, shuffle, read)), &[0; 4], 128, SETUP) {
            panic!("{shuffle} {read}: {fault}");
        }
    }

    let wrong = [
        (low, "shfl.sync.bfly.b32 %d, %a, 16, 31, -1;", "", 0xffff),
        (low, "shfl.sync.down.b32 %d, %a, 1, 31, -1;", "@%p", 0x8000),
        (
            low,
            "mov.u32 %d, 1; shfl.sync.bfly.b32 %d, %a, 16, 31, -1;",
            "",
            0xffff,
        ),
        (
            low,
            "shfl.sync.bfly.b32 %d, %a, 16, 31, -1; shfl.sync.bfly.b32 %d, %d, 16, 31, -1;",
            "",
            0xffff_0000,
        ),
    ];
    for (write, shuffle, read, lanes) in wrong {
        let found = fault(&body(write, shuffle, read), SETUP);
        assert_eq!(
            (found.class, found.lanes),
            (Class::UninitialisedRegister, lanes),
            "{shuffle} {read}: {found}"
        );
        assert_eq!(
            found.what,
            "register %d is read, but shfl filled it from lanes that had not written the source"
        );
        let other = found.other.expect("the shuffle is named");
        assert!(
            other.place.text.starts_with("shfl") && other.did == "filled it",
            "{other:?}"
        );
    }

    let unread = body(
        "setp.lt.u32 %q, %t, 99; setp.lt.u32 %p, %t, 16; @%p",
        "mov.u32 %d, 1;",
        "",
    );
    assert!(launch(&kernel(&unread), &[0; 4], 128, SETUP).is_ok());
}
