//! Manual, "shfl.sync", "vote.sync", "match.sync", "redux.sync", "activemask", "bar.red", special registers.

use crate::machine::{SETUP, Setup, words};

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
        ("down.b32 %d|%p, %t, 1, 31", |l| if l < 31 { Ok(l + 1) } else { Err(l) }),
        ("up.b32 %d|%p, %t, 1, 0", |l| if l > 0 { Ok(l - 1) } else { Err(l) }),
        // Segments of eight lanes: the segment mask 0x18 is in bits 8 to 12.
        ("down.b32 %d|%p, %t, 3, 0x1807", |l| if l % 8 < 5 { Ok(l + 3) } else { Err(l) }),
        ("down.b32 %d|%p, %t, 3, 0x181f", |l| if l % 8 < 5 { Ok(l + 3) } else { Err(l) }),
        ("up.b32 %d|%p, %t, 3, 0x1800", |l| if l % 8 > 2 { Ok(l - 3) } else { Err(l) }),
        ("idx.b32 %d|%p, %t, 2, 0x181f", |l| Ok(l & 24 | 2)),
        ("idx.b32 %d|%p, %t, 10, 0x181f", |l| Ok(l & 24 | 2)),
        // The clamp stops before the segment's end.
        ("down.b32 %d|%p, %t, 1, 0x1803", |l| if l % 8 < 3 { Ok(l + 1) } else { Err(l) }),
        ("bfly.b32 %d|%p, %t, 4, 0x1803", |l| if l % 8 >= 4 { Ok(l ^ 4) } else { Err(l) }),
    ];
    for (inst, source) in rows {
        let wanted: Vec<u32> = (0..32).map(|l| source(l).map_or_else(|own| own, within)).collect();
        assert_eq!(lanes(&format!("shfl.sync.{inst}, -1;"), 32), wanted, "{inst}");
    }
}

#[test]
fn votes() {
    let even = "and.b32 %d, %t, 1; setp.eq.u32 %p, %d, 0; mov.u32 %d, 0;";
    let rows: &[(&str, u32)] = &[
        ("vote.sync.ballot.b32 %d, %p, -1; setp.eq.u32 %p, 1, 0;", 0x5555_5555),
        ("vote.sync.ballot.b32 %d, !%p, -1; setp.eq.u32 %p, 1, 0;", 0xaaaa_aaaa),
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
    assert_eq!(lanes("and.b32 %d, %t, 3; match.any.sync.b32 %d, %d, -1;", 32), any);
    assert_eq!(lanes("match.all.sync.b32 %d|%p, %t, -1;", 32), [0; 32]);
    assert_eq!(lanes("mov.u32 %d, 7; match.all.sync.b32 %d|%p, %d, -1;", 32), [u32::MAX; 32]);
}

/// The leader is one of the mask's lanes, the same in all.
#[test]
fn one_lane_is_elected() {
    let found = lanes("elect.sync %d|%p, -1;", 32);
    let leader = found[0] & 31;
    let wanted: Vec<u32> = (0..32).map(|l| if l == leader { leader | IN } else { leader }).collect();
    assert_eq!(found, wanted);
}

/// `bar.red` gives every thread of the block the count, the conjunction or the disjunction.
#[test]
fn barriers_reduce() {
    let low = "setp.lt.u32 %p, %t, 10; mov.u32 %d, 0;";
    let rows: &[(&str, u32)] = &[
        ("bar.red.popc.u32 %d, 0, %p; setp.eq.u32 %p, %t, 99;", 10),
        ("bar.red.popc.u32 %d, 1, 96, !%p; setp.eq.u32 %p, %t, 999;", 86),
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
        ("%lanemask_gt", |t| u32::MAX.checked_shl(t % 32 + 1).unwrap_or(0)),
        ("%lanemask_ge", |t| u32::MAX << (t % 32)),
        ("%dynamic_smem_size", |_| 0),
    ];
    for (register, value) in rows {
        let body = format!(
            ".reg .b32 %d; .reg .b64 %at; mov.u32 %d, {register}; mad.wide.u32 %at, %t, 4, %out; st.global.u32 [%at], %d;"
        );
        let wanted: Vec<u32> = (0..40).map(value).collect();
        assert_eq!(words(&body, &[], 40, Setup { block: 40, ..SETUP }), wanted, "{register}");
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
