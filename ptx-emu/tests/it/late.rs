//! Stores that other blocks see late, as long as no fence makes them arrive.

use ptx_emu::{Class, Order, Trace};

use crate::machine::{SETUP, Setup, kernel, launch};

/// Each of four blocks leaves a number in `out`, which nobody has written; the last one to count adds them up.
fn last_adds(fence: &str, store: &str, load: &str) -> String {
    kernel(&format!(
        ".reg .b32 %r<4>; .reg .b64 %d; .reg .pred %p;
        mov.u32 %r0, %ctaid.x; mad.wide.u32 %d, %r0, 4, %out; add.u32 %r0, %r0, 5;
        {store}.u32 [%d], %r0;
        {fence}
        atom.global.inc.u32 %r1, [%in], 3;
        setp.ne.u32 %p, %r1, 3; @%p bra END;
        {load}.u32 %r0, [%out]; {load}.u32 %r1, [%out+4]; {load}.u32 %r2, [%out+8]; {load}.u32 %r3, [%out+12];
        add.u32 %r0, %r0, %r1; add.u32 %r2, %r2, %r3; add.u32 %r0, %r0, %r2; st.global.u32 [%out+16], %r0;
    END:"
    ))
}

#[test]
fn a_store_arrives_with_a_fence() {
    let late = [
        ("", "st.volatile.global"),
        ("membar.cta;", "st.volatile.global"),
        ("fence.acq_rel.cta;", "st.relaxed.gpu.global"),
        ("fence.acquire.gpu;", "st.relaxed.gpu.global"),
    ];
    let arrives = [
        ("membar.gl;", "st.volatile.global"),
        ("membar.sys;", "st.volatile.global"),
        ("fence.acq_rel.gpu;", "st.relaxed.gpu.global"),
        ("fence.release.gpu;", "st.relaxed.sys.global"),
        (
            "atom.release.gpu.global.add.u32 %r1, [%in+4], 1;",
            "st.relaxed.gpu.global",
        ),
        ("", "st.release.gpu.global"),
    ];
    for order in [Order::InOrder, Order::Reversed] {
        let setup = Setup {
            grid: 4,
            block: 1,
            order,
            trace: Trace::On,
            ..SETUP
        };
        for (fence, store) in late {
            let text = last_adds(fence, store, "ld.volatile.global");
            let fault = launch(&text, &[0; 8], 20, setup)
                .map(|_| ())
                .expect_err(fence);
            assert_eq!(fault.class, Class::UninitialisedGlobal, "{fault}");
            assert!(
                fault.to_string().contains("another block stores it at"),
                "{fault}"
            );
        }
        for (fence, store) in arrives {
            let text = last_adds(fence, store, "ld.volatile.global");
            let (out, _) =
                launch(&text, &[0; 8], 20, setup).unwrap_or_else(|fault| panic!("{fault}"));
            assert_eq!(out[16..], 26u32.to_le_bytes(), "{fence}");
        }
    }
}

/// Who asks again finds it, so a loop that asks for a store without a fence ends.
#[test]
fn a_late_store_is_seen_at_last() {
    let body = ".reg .b32 %r<2>; .reg .pred %p; mov.u32 %r0, %ctaid.x; setp.eq.u32 %p, %r0, 0; @%p bra STORE;
    ASK: ld.relaxed.gpu.global.u32 %r1, [%in]; setp.eq.u32 %p, %r1, 0; @%p bra ASK; bra END;
    STORE: st.relaxed.gpu.global.u32 [%in], 7;
    END:";
    for order in [Order::InOrder, Order::Reversed] {
        let setup = Setup {
            grid: 6,
            order,
            trace: Trace::On,
            ..SETUP
        };
        launch(&kernel(body), &[0; 4], 4, setup).unwrap_or_else(|fault| panic!("{fault}"));
    }
}
