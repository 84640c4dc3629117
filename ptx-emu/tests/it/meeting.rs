//! Lanes of a warp that meet at different instructions (manual, "shfl.sync", "bar.warp.sync", "barrier").

use ptx_emu::{Class, Fault, Order};

use crate::machine::{SETUP, Setup, kernel, launch};

const REGISTERS: &str = ".reg .b32 %a<8>, %m, %d; .reg .b64 %at, %w, %f; .reg .pred %p, %q, %odd, %low;
    and.b32 %a0, %t, 1; setp.ne.u32 %odd, %a0, 0; setp.lt.u32 %low, %t, 16; add.u32 %a1, %t, 100; mov.u32 %d, 0;\n";

/// Stores `%d` of each thread.
const STORE: &str = "mad.wide.u32 %at, %t, 4, %out; st.global.u32 [%at], %d;";

fn text(before: &str, body: &str) -> String {
    kernel(&format!("{REGISTERS}{body}\n{STORE}")).replacen(
        ".visible",
        &format!("{before}\n.visible"),
        1,
    )
}

fn words(text: &str, block: u32, order: Order) -> Result<Vec<u32>, Box<Fault>> {
    let setup = Setup {
        block,
        order,
        fuel: 1 << 16,
        ..SETUP
    };
    let (out, _) = launch(text, &[0; 64], u64::from(block) * 4, setup)?;
    Ok(out
        .as_chunks::<4>()
        .0
        .iter()
        .map(|w| u32::from_le_bytes(*w))
        .collect())
}

/// Runs a kernel of one warp, with and without the rest of the block, and compares the words that the lanes store.
fn meets_in(text: &str, wanted: impl Fn(u32) -> u32) {
    for order in [Order::InOrder, Order::Reversed] {
        let found = words(text, 32, order).unwrap_or_else(|fault| panic!("{fault}\n{text}"));
        assert_eq!(found, (0..32).map(&wanted).collect::<Vec<_>>(), "{text}");
    }
}

fn meets(body: &str, wanted: impl Fn(u32) -> u32) {
    meets_in(&text("", body), wanted);
}

/// Both sides of a branch on odd lanes.
fn sides(odd: &str, even: &str) -> String {
    format!("@%odd bra ODD;\n{even}\nbra.uni JOIN;\nODD:\n{odd}\nJOIN:\n")
}

/// The class, the message and the instruction of the fault of a kernel of one warp.
fn missed(body: &str) -> (Class, String, String) {
    missed_in(&text("", body), 32)
}

fn missed_in(text: &str, block: u32) -> (Class, String, String) {
    match words(text, block, Order::InOrder) {
        Ok(found) => panic!("nothing found, {found:?} in\n{text}"),
        Err(fault) => {
            let place = fault
                .place
                .as_ref()
                .map_or(String::new(), |place| place.text.clone());
            (fault.class, fault.what.clone(), place)
        }
    }
}

#[test]
fn shuffles_meet_in_both_sides_of_a_branch() {
    let shuffle = "shfl.sync.bfly.b32 %d, %a1, 1, 31, -1;";
    meets(&sides(shuffle, shuffle), |t| 100 + (t ^ 1));

    // The registers and the distances differ.
    let other =
        "add.u32 %a2, %a1, 1000; mov.u32 %a3, 3; shfl.sync.bfly.b32 %d|%p, %a2, %a3, 31, -1;";
    meets(&sides(shuffle, other), |t| {
        if t % 2 == 1 {
            1100 + (t ^ 1)
        } else {
            100 + (t ^ 3)
        }
    });

    // Each side has its own mask.
    let own = |mask| format!("shfl.sync.bfly.b32 %d, %a1, 2, 31, {mask};");
    meets(&sides(&own("0xaaaaaaaa"), &own("0x55555555")), |t| {
        100 + (t ^ 2)
    });

    // Lanes that have exited are not waited for, whether they exit before or meanwhile.
    let exit = "setp.ge.u32 %q, %t, 24; @%q exit;";
    let part = format!(
        "mov.u32 %a2, 3; {}",
        sides(shuffle, &format!("{exit}{shuffle}"))
    );
    let found = words(
        &text("", &part.replace(", 1, 31", ", 2, 31")),
        24,
        Order::InOrder,
    );
    assert_eq!(
        found.unwrap_or_else(|f| panic!("{f}")),
        (0..24).map(|t| 100 + (t ^ 2)).collect::<Vec<_>>()
    );
}

#[test]
fn other_instructions_meet() {
    let both = |inst: &str| sides(inst, inst);
    let select = "selp.u32 %d, 1, 0, %p;";
    meets(&both("vote.sync.ballot.b32 %d, %low, -1;"), |_| 0xffff);
    meets(
        &sides(
            "vote.sync.ballot.b32 %d, !%low, -1;",
            "vote.sync.ballot.b32 %d, %low, -1;",
        ),
        |_| 0xaaaa_0000 | 0x5555,
    );
    meets(
        &format!("{}{select}", both("vote.sync.any.pred %p, %low, -1;")),
        |_| 1,
    );
    meets(
        &format!("{}{select}", both("vote.sync.all.pred %p, %low, -1;")),
        |_| 0,
    );
    meets(
        &format!("{}{select}", both("vote.sync.uni.pred %p, %low, -1;")),
        |_| 0,
    );
    let group = "shr.u32 %a2, %t, 2; match.any.sync.b32 %d, %a2, -1;";
    meets(&both(group), |t| 15 << (t / 4 * 4));
    let wide = "cvt.u64.u32 %w, %t; shr.u64 %w, %w, 3; match.any.sync.b64 %d, %w, -1;";
    meets(&both(wide), |t| 255 << (t / 8 * 8));
    meets(
        &both("mov.u32 %a2, 7; match.all.sync.b32 %d|%p, %a2, -1;"),
        |_| u32::MAX,
    );
    meets(&both("redux.sync.add.u32 %d, %t, -1;"), |_| 496);
    meets(
        &sides(
            "redux.sync.max.s32 %d, %a1, -1;",
            "redux.sync.max.s32 %d, %t, -1;",
        ),
        |_| 131,
    );
    meets(&both("bar.warp.sync -1; mov.u32 %d, 5;"), |_| 5);
    let elected = words(
        &text("", &both("elect.sync %d|%p, -1;")),
        32,
        Order::InOrder,
    );
    let elected = elected.unwrap_or_else(|fault| panic!("{fault}"));
    assert!(
        elected
            .iter()
            .all(|leader| *leader == elected[0] && *leader < 32),
        "{elected:?}"
    );
}

/// `bar.warp.sync` orders memory, wherever lanes reach it.
#[test]
fn memory_is_ordered_where_lanes_meet() {
    let exchange = |barrier: &str| {
        format!(
            ".shared .b32 s[32]; mov.u32 %a2, s; mad.lo.u32 %a3, %t, 4, %a2; xor.b32 %a4, %t, 1;
             mad.lo.u32 %a4, %a4, 4, %a2; st.shared.u32 [%a3], %a1;\n{}ld.shared.u32 %d, [%a4];\n",
            sides(barrier, barrier)
        )
    };
    meets(&exchange("bar.warp.sync -1;"), |t| 100 + (t ^ 1));
    assert_eq!(
        missed(&exchange("bar.warp.sync 0xaaaaaaaa;").replacen("0xaaaaaaaa", "0x55555555", 1)).0,
        Class::SharedRace
    );
    assert_eq!(
        missed(&exchange("vote.sync.any.pred %p, %p, -1;").replace("%p, %p", "%p, %low")).0,
        Class::SharedRace
    );
}

#[test]
fn lanes_meet_from_nested_branches() {
    // Three places, two of them within a branch of a branch.
    let shuffle =
        |plus: u32| format!("add.u32 %a2, %a1, {plus}; shfl.sync.idx.b32 %d, %a2, %a3, 31, -1;");
    let inner = format!(
        "@%low bra LOW;\n{}bra.uni INNER;\nLOW:\n{}INNER:\n",
        shuffle(1000),
        shuffle(2000)
    );
    let body = format!("add.u32 %a3, %t, 5;\n{}", sides(&inner, &shuffle(3000)));
    let passed = |t: u32| {
        100 + t
            + if t.is_multiple_of(2) {
                3000
            } else if t < 16 {
                2000
            } else {
                1000
            }
    };
    meets(&body, |t| passed((t + 5) % 32));

    // After the branches all lanes run together again.
    meets(&format!("{body}activemask.b32 %d;"), |_| u32::MAX);

    // An inner meeting of some lanes, and then one of all.
    let inner = "@%low bra LOW;\nredux.sync.add.u32 %a2, %t, 0xaaaaaaaa;\nbra.uni INNER;\nLOW:\n\
                 redux.sync.add.u32 %a2, %t, 0xaaaaaaaa;\nINNER:\nredux.sync.add.u32 %d, %a2, -1;\n";
    meets(&sides(inner, "redux.sync.add.u32 %d, %t, -1;"), |_| {
        256 * 16 + 240
    });
}

#[test]
fn predicated_instructions_meet() {
    meets(
        "@%odd shfl.sync.bfly.b32 %d, %a1, 1, 31, -1;\n@!%odd shfl.sync.bfly.b32 %d, %a1, 1, 31, -1;",
        |t| 100 + (t ^ 1),
    );
    // Behind the join of a branch that the other lanes did not take.
    meets(
        "@!%odd bra JOIN;\nredux.sync.add.u32 %d, %t, -1;\nbra OVER;\nJOIN:\nredux.sync.add.u32 %d, %t, -1;\nOVER:",
        |_| 496,
    );
    meets(
        "@!%odd bra JOIN;\nredux.sync.add.u32 %d, %t, -1;\nJOIN:\n@!%odd redux.sync.add.u32 %d, %t, -1;",
        |_| 496,
    );
}

#[test]
fn lanes_meet_in_different_rounds_of_a_loop() {
    // Even lanes come to the shuffle in the first round, odd lanes in the second.
    let body = "mov.u32 %a2, 0;\nLOOP:\nsetp.ne.u32 %p, %a2, %a0;\n@%p bra NEXT;\n\
                shfl.sync.bfly.b32 %d, %a1, 1, 31, -1;\nNEXT:\nadd.u32 %a2, %a2, 1;\n\
                setp.lt.u32 %p, %a2, 4;\n@%p bra LOOP;";
    meets(body, |t| 100 + (t ^ 1));

    // Lanes meet once in each round of two loops of different lengths of code.
    let round = |name: &str, more: &str| {
        format!(
            "mov.u32 %a2, 0;\n{name}:\n{more}redux.sync.add.u32 %a3, %t, -1;\nadd.u32 %d, %d, %a3;\n\
             add.u32 %a2, %a2, 1;\nsetp.lt.u32 %p, %a2, 10;\n@%p bra {name};\n"
        )
    };
    meets(
        &sides(&round("ONE", ""), &round("TWO", "add.u32 %a4, %a2, 1;\n")),
        |_| 4960,
    );

    // Each lane takes its own number of rounds, and lanes that leave the loop go on naming fewer lanes.
    let shrinking = "mov.u32 %a2, 0;\nLOOP:\nshr.u32 %a3, -1, %a2;\nshl.b32 %a3, %a3, %a2;\n\
                     redux.sync.add.u32 %d, 1, %a3;\nadd.u32 %a2, %a2, 1;\nsetp.le.u32 %p, %a2, %t;\n@%p bra LOOP;";
    let shrinking = shrinking.replace(
        "shr.u32 %a3, -1, %a2;",
        "mov.u32 %a3, -1; shr.u32 %a3, %a3, %a2;",
    );
    let shrinking = shrinking.replace(
        "redux.sync.add.u32 %d, 1,",
        "mov.u32 %a4, 1; redux.sync.add.u32 %d, %a4,",
    );
    meets(&shrinking, |t| 32 - t);
}

const FUNCTIONS: &str = "
    .func (.param .b32 back) bfly(.param .b32 a)
    { .reg .b32 %a, %d; ld.param.u32 %a, [a]; shfl.sync.bfly.b32 %d, %a, 1, 31, -1; st.param.b32 [back], %d; ret; }
    .func (.param .b32 back) other(.param .b32 a)
    { .reg .b32 %a, %d, %e; ld.param.u32 %a, [a]; mov.u32 %e, %a; shfl.sync.bfly.b32 %d, %e, 1, 31, -1;
      st.param.b32 [back], %d; ret; }
    .func (.param .b32 back) deep(.param .b32 a)
    { .reg .b32 %a; ld.param.u32 %a, [a]; .param .b32 x; .param .b32 y; st.param.b32 [x], %a;
      call (y), other, (x); ld.param.b32 %a, [y]; st.param.b32 [back], %a; ret; }
    .func (.param .b32 back) maybe(.param .b32 a)
    { .reg .b32 %a, %b; .reg .pred %p; ld.param.u32 %a, [a]; mov.u32 %b, 0; and.b32 %b, %a, 1; setp.eq.u32 %p, %b, 0;
      @%p bra OVER; shfl.sync.bfly.b32 %a, %a, 1, 31, -1; OVER: st.param.b32 [back], %a; ret; }";

fn call(function: &str) -> String {
    format!(
        "{{ .param .b32 x; .param .b32 y; st.param.b32 [x], %a1; call (y), {function}, (x);\n\
         ld.param.b32 %d, [y]; }}\n"
    )
}

#[test]
fn lanes_meet_in_functions() {
    let inline = "shfl.sync.bfly.b32 %d, %a1, 1, 31, -1;";
    let all = [call("bfly"), call("other"), call("deep"), inline.to_owned()];
    for odd in &all {
        for even in &all {
            let text = text(
                FUNCTIONS,
                &format!(
                    "{}activemask.b32 %a2;\nsetp.ne.b32 %p, %a2, -1;\n@%p trap;",
                    sides(odd, even)
                ),
            );
            meets_in(&text, |t| 100 + (t ^ 1));
        }
    }

    // Even lanes return from the function, and come to the shuffle in the caller.
    let returned = format!(
        "{}@!%odd shfl.sync.bfly.b32 %d, %d, 1, 31, -1;",
        call("maybe")
    );
    meets_in(&text(FUNCTIONS, &returned), |t| 100 + (t ^ 1));

    // Functions that are called by their addresses.
    let indirect = "mov.u64 %w, bfly; mov.u64 %f, deep; selp.b64 %w, %w, %f, %odd;\n\
        { .param .b32 x; .param .b32 y; st.param.b32 [x], %a1; call (y), %w, (x), PROTO;\n\
        ld.param.b32 %d, [y]; }";
    let body = format!("PROTO: .callprototype (.param .b32 _) _ (.param .b32 _);\n{indirect}");
    meets_in(&text(FUNCTIONS, &body), |t| 100 + (t ^ 1));
}

/// Registers that lanes have not written stay so, and decide nothing.
#[test]
fn shuffles_of_unwritten_registers_meet() {
    let body = sides(
        "shfl.sync.bfly.b32 %d, %a1, 1, 31, -1;",
        "shfl.sync.bfly.b32 %d, %a5, 1, 31, -1;",
    );
    let text = text("", &format!("{body}@%odd mov.u32 %d, 7;"));
    meets_in(&text, |t| if t % 2 == 1 { 7 } else { 100 + (t ^ 1) });
    let fault = words(
        &text.replace("@%odd mov.u32 %d, 7;", ""),
        32,
        Order::InOrder,
    )
    .expect_err("it is stored");
    assert_eq!(
        (fault.class, fault.lanes),
        (Class::UninitialisedRegister, 0xaaaa_aaaa),
        "{fault}"
    );
}

#[test]
fn masks_that_are_never_complete() {
    let shuffle = "shfl.sync.bfly.b32 %d, %a1, 1, 31, -1;";
    let odd = "lanes 1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31";
    let even = "lanes 0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30";

    // The others go past the branch and exit.
    let (class, what, place) = missed(&sides(shuffle, ""));
    assert_eq!(class, Class::InactiveLane);
    assert_eq!(
        what,
        format!("the mask 0xffffffff names {even}, which exit without executing this")
    );
    assert!(shuffle.starts_with(&place), "{place}");

    // Other qualifiers.
    let (class, what, place) = missed(&sides("shfl.sync.idx.b32 %d, %a1, 1, 31, -1;", shuffle));
    assert_eq!(
        (class, place.as_str()),
        (Class::InactiveLane, "shfl.sync.idx.b32 %d, %a1, 1, 31, -1")
    );
    assert_eq!(
        what,
        format!("the mask 0xffffffff names {even}, which wait at shfl.sync.bfly.b32 in line 15")
    );
    for (a, b) in [
        (
            "vote.sync.any.pred %p, %low, -1;",
            "vote.sync.all.pred %p, %low, -1;",
        ),
        (
            "redux.sync.add.u32 %d, %t, -1;",
            "redux.sync.max.u32 %d, %t, -1;",
        ),
        (
            "redux.sync.max.s32 %d, %t, -1;",
            "redux.sync.max.u32 %d, %t, -1;",
        ),
        (
            "match.any.sync.b32 %d, %t, -1;",
            "match.all.sync.b32 %d, %t, -1;",
        ),
        ("bar.warp.sync -1;", shuffle),
        (
            "elect.sync %d|%p, -1;",
            "vote.sync.ballot.b32 %d, %low, -1;",
        ),
    ] {
        assert_eq!(missed(&sides(a, b)).0, Class::InactiveLane, "{a} {b}");
    }

    // Other masks.
    let (class, what, _) = missed(&sides(
        "redux.sync.add.u32 %d, %t, -1;",
        "redux.sync.add.u32 %d, %t, 0x5fffffff;",
    ));
    assert_eq!(class, Class::InactiveLane);
    assert!(
        what.ends_with(", which wait in line 15 with the mask 0x5fffffff"),
        "{what}"
    );
    let own = sides(
        "redux.sync.add.u32 %d, %t, -1;",
        "redux.sync.add.u32 %d, %t, 0x55555555;",
    );
    assert!(
        missed(&own)
            .1
            .ends_with("which exit without executing this")
    );

    // Lanes that wait at a barrier of the block, with and without `.aligned`.
    let (class, what, _) = missed(&format!("{}bar.sync 0;", sides(shuffle, "")));
    assert_eq!(
        (class, what.contains("at bar.sync in line")),
        (Class::InactiveLane, true),
        "{what}"
    );
    let (class, what, _) = missed(&format!("{}barrier.sync 0;", sides(shuffle, "")));
    assert_eq!(
        (class, what.contains("at barrier.sync in line")),
        (Class::InactiveLane, true),
        "{what}"
    );

    // Only the lanes of one round of a loop.
    let rounds = "mov.u32 %a2, 0;\nLOOP:\nredux.sync.add.u32 %d, %t, -1;\nadd.u32 %a2, %a2, 1;\n\
                  setp.le.u32 %p, %a2, %t;\n@%p bra LOOP;";
    assert_eq!(missed(rounds).0, Class::InactiveLane);

    // In functions, and by predicates.
    let text = text(FUNCTIONS, &sides(&call("deep"), "mov.u32 %d, 1;"));
    assert_eq!(missed_in(&text, 32).0, Class::InactiveLane);
    assert_eq!(
        missed("@%odd redux.sync.add.u32 %d, %t, -1;").0,
        Class::InactiveLane
    );

    // A lane is not in the mask of the place where it meets.
    let (_, what, _) = missed(&sides(shuffle, &shuffle.replace("-1", "0xaaaaaaaa")));
    assert!(
        what.starts_with(even) && what.ends_with("the mask 0xaaaaaaaa does not name it"),
        "{what} {odd}"
    );
}

/// Before sm_70 lanes must execute the same instruction together.
#[test]
fn old_targets_need_convergence() {
    let shuffle = "shfl.sync.bfly.b32 %d, %a1, 1, 31, -1;";
    let old = |text: String| text.replace("sm_90", "sm_61");
    let (class, what, _) = missed_in(&old(text("", &sides(shuffle, shuffle))), 32);
    assert_eq!(class, Class::InactiveLane);
    assert!(
        what.ends_with("not among those that execute this"),
        "{what}"
    );
    let barrier = old(text(
        "",
        &sides("barrier.sync 1, 32;", "barrier.sync 1, 32;"),
    ));
    assert_eq!(missed_in(&barrier, 32).0, Class::DivergentBarrier);
    let own = old(text(
        "",
        &sides("bar.warp.sync 0xaaaaaaaa;", "bar.warp.sync 0x55555555;"),
    ));
    meets_in(&own, |_| 0);
}

/// Stores `%t`, waits, and loads what thread `t ^ 32` stored.
fn exchange(barriers: &str) -> String {
    format!(
        ".shared .b32 s[64]; mov.u32 %a2, s; mad.lo.u32 %a3, %t, 4, %a2; xor.b32 %a4, %t, 32;
         mad.lo.u32 %a4, %a4, 4, %a2; st.shared.u32 [%a3], %t;\n{barriers}ld.shared.u32 %d, [%a4];\n"
    )
}

fn block_meets(body: &str, wanted: impl Fn(u32) -> u32) {
    let text = text("", body);
    for order in [Order::InOrder, Order::Reversed] {
        let found = words(&text, 64, order).unwrap_or_else(|fault| panic!("{fault}\n{text}"));
        assert_eq!(found, (0..64).map(&wanted).collect::<Vec<_>>(), "{text}");
    }
}

#[test]
fn parts_of_a_warp_meet_at_a_barrier() {
    let part = "barrier.sync 1, 64;";
    block_meets(&exchange(&sides(part, part)), |t| t ^ 32);
    block_meets(
        &exchange(&sides("barrier.sync 0;", "barrier.cta.sync 0, 64;")),
        |t| t ^ 32,
    );
    block_meets(&exchange(&format!("@%odd {part}\n@!%odd {part}\n")), |t| {
        t ^ 32
    });

    // Part of one warp only: 16 lanes in a branch, the other warp in the other one.
    let first = format!("@%low bra LOW;\n{part}\nbra.uni JOIN;\nLOW:\n{part}\nJOIN:\n");
    block_meets(&exchange(&first), |t| t ^ 32);

    // Several times, so that the barrier is used again.
    let twice = sides(
        &format!("{part}\n{part}"),
        &format!("{part}\nadd.u32 %a5, %t, 1;\n{part}"),
    );
    block_meets(&exchange(&twice), |t| t ^ 32);

    // The rest of the warp has exited, and the other warp has not.
    let exited = format!("setp.ge.u32 %p, %t, 40; @%p exit;\n{part}\nmov.u32 %d, 1;");
    let found =
        words(&text("", &exited), 64, Order::InOrder).unwrap_or_else(|fault| panic!("{fault}"));
    assert_eq!(found[..40], [1; 40]);
}

#[test]
fn reductions_of_parts_of_a_warp_meet() {
    let red = |op: &str, to: &str, p: &str| format!("barrier.red.{op} {to}, 2, 64, {p};");
    let count = red("popc.u32", "%d", "%low");
    block_meets(&sides(&count, &count), |_| 16);
    block_meets(
        &sides(
            &count,
            &red("popc.u32", "%a5", "!%low").replace("barrier", "mov.u32 %d, 3; barrier"),
        ),
        |t| {
            if t % 2 == 1 { 8 + 8 + 16 } else { 3 }
        },
    );
    let any = red("or.pred", "%p", "%low");
    block_meets(
        &format!("{}selp.u32 %d, 1, 0, %p;", sides(&any, &any)),
        |_| 1,
    );
    let all = red("and.pred", "%p", "%low");
    block_meets(
        &format!("{}selp.u32 %d, 1, 0, %p;", sides(&all, &all)),
        |_| 0,
    );

    // One warp arrives in two places, and does not wait; the other one waits.
    let arrive = format!(
        "setp.ge.u32 %q, %t, 32; @%q bra WAIT;\n{}bra OVER;\nWAIT:\nbarrier.sync 3, 64;\nld.shared.u32 %d, [s];\nOVER:",
        sides("barrier.arrive 3, 64;", "barrier.arrive 3, 64;")
    );
    block_meets(
        &format!(".shared .b32 s[1]; setp.eq.u32 %p, %t, 0; @%p st.shared.u32 [s], 9;\n{arrive}"),
        |t| {
            if t < 32 { 0 } else { 9 }
        },
    );
}

#[test]
fn barriers_that_parts_of_a_warp_miss() {
    let missed = |body: &str| missed_in(&text("", body), 64);
    let aligned = "barrier.sync.aligned 1, 64;";
    assert_eq!(missed(&sides(aligned, aligned)).0, Class::DivergentBarrier);
    assert_eq!(
        missed(&sides("barrier.sync 1, 64;", aligned)).0,
        Class::DivergentBarrier
    );
    let (class, what, place) = missed("@!%low bra OVER;\nbarrier.sync 0;\nOVER:");
    assert_eq!(
        (class, place.as_str()),
        (Class::DivergentBarrier, "barrier.sync 0")
    );
    assert_eq!(
        what,
        "lanes 0-15 of the warp wait at barrier 0 for lanes 16-31, which exit without executing this"
    );
    let (class, what, _) = missed(&sides("barrier.sync 1, 64;", "barrier.sync 2, 64;"));
    assert_eq!(class, Class::DivergentBarrier);
    assert!(
        what.ends_with("which wait in line 15 at barrier 2 for 64 threads"),
        "{what}"
    );
    assert_eq!(
        missed(&sides("barrier.sync 1, 64;", "barrier.sync 1, 32;")).0,
        Class::DivergentBarrier
    );
    assert_eq!(
        missed(&sides("barrier.sync 1, 64;", "barrier.arrive 1, 64;")).0,
        Class::DivergentBarrier
    );
    assert_eq!(
        missed(&sides("barrier.sync 1, 64;", "bar.warp.sync -1;")).0,
        Class::DivergentBarrier
    );

    // The warps arrive, but not all of them.
    let alone = "setp.ge.u32 %q, %t, 32; @%q bra END;\n@%odd barrier.sync 1, 64;\n@!%odd barrier.sync 1, 64;\nEND:";
    assert_eq!(missed(alone).0, Class::BarrierMismatch);
}

/// A lane polls for what another one stores behind the place where they meet.
#[test]
fn lanes_that_poll_and_lanes_that_wait() {
    let poll = "ASK: ld.volatile.shared.u32 %d, [s]; setp.eq.u32 %p, %d, 0; @%p bra ASK;\nredux.sync.add.u32 %d, %d, -1;";
    let store = "redux.sync.add.u32 %a5, %t, 0x55555555; st.volatile.shared.u32 [s], 2; redux.sync.add.u32 %d, %a0, -1;";
    let start = ".shared .b32 s[1]; setp.eq.u32 %p, %t, 0; @%p st.volatile.shared.u32 [s], 0; bar.warp.sync -1;\n";
    meets(&format!("{start}{}", sides(poll, store)), |_| 32);
    // What it polls for comes only after the meeting, which it never reaches.
    let never = "redux.sync.add.u32 %d, %a0, -1; st.volatile.shared.u32 [s], 2;";
    let (class, what, _) = missed(&format!("{start}{}", sides(poll, never)));
    assert_eq!(class, Class::Deadlock);
    assert!(what.contains("lanes 0, 2, 4"), "{what}");
}

/// Kernels as files, each with the class of its fault or the words that it stores.
#[test]
fn files_of_meetings() {
    let file = |name: &str| match name {
        "barrier-aligned" => include_str!("../data/meeting/barrier-aligned.ptx"),
        "barrier-nonaligned" => include_str!("../data/meeting/barrier-nonaligned.ptx"),
        "shfl-branches" => include_str!("../data/meeting/shfl-branches.ptx"),
        "shfl-branches-61" => include_str!("../data/meeting/shfl-branches-61.ptx"),
        _ => include_str!("../data/meeting/shfl-own-masks.ptx"),
    };
    let run = |name: &str, block: u32| {
        // The kernels have one parameter, the output.
        let text = file(name).replace("k(.param .u64 out)", "k(.param .u64 in, .param .u64 out)");
        words(&text, block, Order::InOrder)
    };
    let stores = |name: &str, block: u32, wanted: fn(u32) -> u32| {
        let found = run(name, block).unwrap_or_else(|fault| panic!("{name}: {fault}"));
        assert_eq!(found, (0..block).map(wanted).collect::<Vec<_>>(), "{name}");
    };
    let fails = |name: &str, block: u32| run(name, block).map_err(|fault| fault.class);
    stores("shfl-branches", 32, |t| 100 + (t ^ 1));
    stores("shfl-own-masks", 32, |t| 100 + (t ^ 2));
    stores("barrier-nonaligned", 64, |t| t ^ 32);
    assert_eq!(fails("shfl-branches-61", 32), Err(Class::InactiveLane));
    assert_eq!(fails("barrier-aligned", 64), Err(Class::DivergentBarrier));
}

/// A step of a random program, in which every lane meets the others equally often.
enum Node {
    Add(u32),
    Meet,
    /// The same meeting at two instructions, by the value of a bit of the lane's number.
    PredicatedMeet(u32),
    If(u32, Vec<Node>, Vec<Node>),
    Loop(u32, Vec<Node>),
}

struct Random(u64);

impl Random {
    fn below(&mut self, n: u32) -> u32 {
        self.0 = self.0.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
        ((self.0 >> 33) % u64::from(n)) as u32
    }

    /// Steps with `meetings` meetings of each lane.
    fn steps(&mut self, meetings: u32, depth: u32) -> Vec<Node> {
        let mut all = vec![Node::Add(self.below(1000))];
        match (meetings, self.below(6)) {
            (0, _) => {}
            (n, 0 | 1) if depth > 0 => {
                let bit = self.below(5);
                all.push(Node::If(
                    bit,
                    self.steps(n, depth - 1),
                    self.steps(n, depth - 1),
                ));
            }
            (n, 2) if depth > 0 && n.is_multiple_of(2) => {
                all.push(Node::Loop(2, self.steps(n / 2, depth - 1)))
            }
            (1, 3) => all.push(Node::PredicatedMeet(self.below(5))),
            (1, _) => all.push(Node::Meet),
            (n, _) => {
                let first = 1 + self.below(n - 1);
                all.extend(self.steps(first, depth));
                all.extend(self.steps(n - first, depth));
            }
        }
        all
    }
}

/// Writes the text of steps. `%d` is the value, and `%a7` counts the meetings.
fn write_steps(text: &mut String, steps: &[Node], labels: &mut u32, depth: u32) {
    let meet = "and.b32 %a6, %a7, 3; mov.u32 %a5, 1; shl.b32 %a5, %a5, %a6; add.u32 %a7, %a7, 1;\n";
    for step in steps {
        *labels += 1;
        let label = *labels;
        match step {
            Node::Add(n) => *text += &format!("add.u32 %d, %d, {n};\n"),
            Node::Meet => *text += &format!("{meet}shfl.sync.bfly.b32 %d, %d, %a5, 31, -1;\n"),
            Node::PredicatedMeet(bit) => {
                *text += &format!(
                    "{meet}and.b32 %a6, %t, {}; setp.ne.u32 %p, %a6, 0;\n\
                     @%p shfl.sync.bfly.b32 %d, %d, %a5, 31, -1;\n@!%p shfl.sync.bfly.b32 %d, %d, %a5, 31, -1;\n",
                    1 << bit
                );
            }
            Node::If(bit, yes, no) => {
                *text += &format!(
                    "and.b32 %a6, %t, {}; setp.ne.u32 %p, %a6, 0;\n@%p bra Y{label};\n",
                    1 << bit
                );
                write_steps(text, no, labels, depth + 1);
                *text += &format!("bra J{label};\nY{label}:\n");
                write_steps(text, yes, labels, depth + 1);
                *text += &format!("J{label}:\n");
            }
            Node::Loop(rounds, steps) => {
                *text += &format!("mov.u32 %l{depth}, 0;\nL{label}:\n");
                write_steps(text, steps, labels, depth + 1);
                *text += &format!(
                    "add.u32 %l{depth}, %l{depth}, 1; setp.lt.u32 %p, %l{depth}, {rounds};\n@%p bra L{label};\n"
                );
            }
        }
    }
}

/// The sums that a lane adds before each meeting, and after the last one.
fn sums(steps: &[Node], lane: u32, all: &mut Vec<u32>) {
    for step in steps {
        match step {
            Node::Add(n) => *all.last_mut().expect("it begins with one") += n,
            Node::Meet | Node::PredicatedMeet(_) => all.push(0),
            Node::If(bit, yes, no) => sums(if lane >> bit & 1 == 1 { yes } else { no }, lane, all),
            Node::Loop(rounds, steps) => (0..*rounds).for_each(|_| sums(steps, lane, all)),
        }
    }
}

#[test]
fn lanes_meet_in_random_programs() {
    for seed in 0..150 {
        let steps = Random(seed).steps(6, 5);
        let mut body = String::from(".reg .b32 %l<9>; mov.u32 %a7, 0; mov.u32 %d, %t;\n");
        write_steps(&mut body, &steps, &mut 0, 0);
        let added: Vec<Vec<u32>> = (0..32)
            .map(|lane| {
                let mut all = vec![0];
                sums(&steps, lane, &mut all);
                all
            })
            .collect();
        let mut values: Vec<u32> = (0..32)
            .map(|lane: u32| lane + added[lane as usize][0])
            .collect();
        let distances = [1, 2, 4, 8].into_iter().cycle();
        for (meeting, from) in (1..added[0].len()).zip(distances) {
            let passed = values;
            values = (0..32)
                .map(|lane: usize| passed[lane ^ from] + added[lane][meeting])
                .collect();
        }

        meets(&body, |t| values[t as usize]);
    }
}

/// Lanes that exit are not waited for. They have missed the others if they went past the place where both would have met.
#[test]
fn lanes_that_exit() {
    let sum = "redux.sync.add.u32 %d, %t, -1;";
    let stores = |body: &str, from: usize, wanted: u32| {
        let found = words(&text("", body), 32, Order::InOrder)
            .unwrap_or_else(|fault| panic!("{fault}\n{body}"));
        assert_eq!(found[from..], vec![wanted; 32 - from], "{body}");
    };
    let few = "setp.lt.u32 %p, %t, 8;\n";
    stores(&format!("{few}@%p exit;\n{sum}"), 8, 468);
    stores(&format!("{few}@!%p bra REST;\nexit;\nREST:\n{sum}"), 8, 468);
    stores(
        &format!("{few}@%p bra OUT;\n{sum}\nbra.uni OVER;\nOUT:\nexit;\nOVER:"),
        8,
        468,
    );

    // The lanes that wait end before the place where the others go on.
    stores(
        &format!("{few}@%p bra LATE;\n{sum}\n{STORE}\nexit;\nLATE:"),
        8,
        468,
    );
    assert_eq!(
        missed(&format!("{few}@%p bra END;\n{sum}\n{STORE}\nEND:\nexit;")).0,
        Class::InactiveLane
    );
}
