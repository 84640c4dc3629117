//! Lanes that exchange values by volatile accesses.

use ptx_emu::check::Check;
use ptx_emu::{Module, Trace};

use crate::machine::kernel;

/// What is found in a body, which has `%own` and `%other`: the words of a lane and of another one.
fn found(body: &str, trace: Trace) -> Vec<String> {
    let head = ".shared .b32 s[32]; .reg .b32 %r<4>, %own, %other, %bank; .reg .pred %p;
        mov.u32 %bank, s; shl.b32 %own, %t, 2; xor.b32 %other, %own, 4; add.u32 %own, %own, %bank;
        add.u32 %other, %other, %bank; st.shared.u32 [%own], 0; bar.sync 0;\n";
    let module = Module::parse(&kernel(&format!("{head}{body}"))).unwrap_or_else(|e| panic!("{e}"));
    let mut check = Check::new(&module, "k").expect("it is called k");
    let (input, out) = (
        check.inout("in", &[0u32; 64]),
        check.inout("out", &[0u32; 64]),
    );
    check.args = vec![input, out];
    (check.grid, check.block, check.trace) = ([1, 1, 1], [32, 1, 1], trace);
    let report = check.run().expect("the launch is possible");
    report
        .findings
        .iter()
        .map(|finding| finding.problem.class())
        .collect()
}

#[test]
fn an_exchange_needs_a_barrier_of_the_warp() {
    let exchange =
        "st.volatile.shared.u32 [%own], %t; BETWEEN ld.volatile.shared.u32 %r0, [%other];";
    let poll = "st.volatile.shared.u32 [%own], 1;
        AGAIN: ld.volatile.shared.u32 %r0, [%other]; setp.eq.u32 %p, %r0, 0; @%p bra AGAIN;";
    let peeled =
        "st.volatile.shared.u32 [%own], 1; ld.volatile.shared.u32 %r0, [%other]; setp.ne.u32 %p, %r0, 0;
        @%p bra END; AGAIN: nanosleep.u32 20; ld.volatile.shared.u32 %r0, [%other]; setp.eq.u32 %p, %r0, 0;
        @%p bra AGAIN; END:";
    let scan =
        "mov.u32 %r1, 0; AGAIN: ld.volatile.shared.u32 %r0, [%other]; st.volatile.shared.u32 [%own], %r0;
        add.u32 %r1, %r1, 1; setp.lt.u32 %p, %r1, 3; @%p bra AGAIN;";
    let rows = [
        (exchange.replace("BETWEEN", ""), true),
        (
            exchange
                .replace("BETWEEN", "")
                .replace("volatile", "relaxed.cta"),
            true,
        ),
        (exchange.replace("BETWEEN", "bar.warp.sync -1;"), false),
        (exchange.replace("BETWEEN", "bar.sync 0;"), false),
        (
            exchange.replace("BETWEEN", "").replace("%other", "%own"),
            false,
        ),
        (scan.into(), true),
        (poll.into(), false),
        (peeled.into(), false),
        // A flag, which may be old.
        (
            "st.volatile.shared.u32 [s], 1; ld.volatile.shared.u32 %r0, [s];".into(),
            false,
        ),
        (
            "atom.shared.add.u32 %r0, [%own], 1; ld.volatile.shared.u32 %r0, [%other];".into(),
            false,
        ),
    ];
    for (body, wrong) in rows {
        for trace in [Trace::Off, Trace::On] {
            let expected: &[&str] = if wrong { &["WarpSynchronous"] } else { &[] };
            assert_eq!(found(&body, trace), expected, "{body}");
        }
    }
}
