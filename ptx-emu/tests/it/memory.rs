//! Manual, "Data Movement and Conversion Instructions" and "atom", "red".

use ptx_emu::{Class, Module};

use crate::machine::{SETUP, Setup, kernel, launch, words};

/// Executes `inst` in lane 0 with the input bytes 0x80, 0x81, ... and gives the first words of the output.
fn one(inst: &str, room: usize) -> Vec<u32> {
    let input: Vec<u32> = (0..16)
        .map(|i| u32::from_le_bytes([0x80, 0x81, 0x82, 0x83].map(|b| b + 4 * i)))
        .collect();
    let body = format!(
        ".reg .b16 %h<4>; .reg .b32 %r<8>; .reg .f32 %f<8>; .reg .b64 %d<8>; .reg .pred %p;
        setp.ne.u32 %p, %t, 0; @%p ret; {inst}"
    );
    words(&body, &input, room, SETUP)
}

/// Manual, "discard": a store of what nobody knows, of the 128 bytes at a multiple of 128.
#[test]
fn discarded_bytes_hold_something_else() {
    let discard = |at: &str| format!("{{ {DISCARD} discard.global.L2 [%out+{at}], 128; }}");
    const DISCARD: &str =
        ".reg .pred %q; .reg .b64 %a; setp.ne.u32 %q, %t, 0; mad.wide.u32 %a, %t, 4, %out;
        st.global.u32 [%a], 7; st.global.u32 [%a+128], 7; bar.warp.sync -1; @%q ret;";
    let all = words(&discard("128"), &[0], 64, SETUP);
    assert!(
        all[..32].iter().all(|word| *word == 7) && all[32..].iter().all(|word| *word != 7),
        "{all:?}"
    );
    for (at, class) in [("64", Class::Misaligned), ("256", Class::OutOfBounds)] {
        let fault = launch(&kernel(&discard(at)), &[0; 4], 256, SETUP).unwrap_err();
        assert_eq!(fault.class, class, "{fault}");
    }
}

/// CUDA's headers take 1 KiB of shared memory at `%reserved_smem_offset_1`, and believe that it holds zeros.
#[test]
fn reserved_shared_memory_is_apart_and_zero() {
    let body = |at: u32| {
        format!(
            ".shared .b32 own[256]; .reg .b32 %s, %v; .reg .b64 %a, %g;
            mov.u32 %s, %reserved_smem_offset_1; cvt.u64.u32 %g, %s; cvta.shared.u64 %g, %g; mad.wide.u32 %a, %t, 4, %out;
            st.shared.u32 [own], 9; bar.sync 0; atom.shared.add.u32 %v, [%s], 1; bar.sync 0; ld.u32 %v, [%g+{at}];
            st.global.u32 [%a], %v;"
        )
    };
    for (at, wanted) in [(0, 32), (1020, 0)] {
        assert_eq!(
            words(&body(at), &[0], 32, Setup { grid: 2, ..SETUP }),
            [wanted; 32]
        );
    }

    let fault = launch(&kernel(&body(1024)), &[0; 4], 128, SETUP).unwrap_err();
    assert_eq!(fault.class, Class::OutOfBounds, "{fault}");
}

#[test]
fn loads_extend_to_the_register() {
    let rows: &[(&str, &[u32])] = &[
        (
            "ld.global.u8 %r0, [%in+1]; st.global.u32 [%out], %r0;",
            &[0x81],
        ),
        (
            "ld.global.s8 %r0, [%in+1]; st.global.u32 [%out], %r0;",
            &[0xffff_ff81],
        ),
        (
            "ld.global.b8 %h0, [%in+3]; cvt.u32.u16 %r0, %h0; st.global.u32 [%out], %r0;",
            &[0x83],
        ),
        (
            "ld.global.s8 %h0, [%in+3]; cvt.u32.u16 %r0, %h0; st.global.u32 [%out], %r0;",
            &[0xff83],
        ),
        (
            "ld.global.u16 %r0, [%in+2]; st.global.u32 [%out], %r0;",
            &[0x8382],
        ),
        (
            "ld.global.s16 %r0, [%in+2]; st.global.u32 [%out], %r0;",
            &[0xffff_8382],
        ),
        (
            "ld.global.s32 %d0, [%in]; st.global.u64 [%out], %d0;",
            &[0x8382_8180, 0xffff_ffff],
        ),
        (
            "ld.global.u32 %d0, [%in]; st.global.u64 [%out], %d0;",
            &[0x8382_8180, 0],
        ),
        (
            "ld.global.b64 %d0, [%in+8]; st.global.u64 [%out], %d0;",
            &[0x8b8a_8988, 0x8f8e_8d8c],
        ),
        (
            "ld.global.f32 %f0, [%in+-0]; st.global.f32 [%out], %f0;",
            &[0x8382_8180],
        ),
        (
            "ld.global.v2.u16 {%r0, %r1}, [%in+4]; st.global.v2.u32 [%out], {%r0, %r1};",
            &[0x8584, 0x8786],
        ),
        (
            "ld.global.v4.u8 {%r0, _, %r1, _}, [%in]; st.global.v2.u32 [%out], {%r0, %r1};",
            &[0x80, 0x82],
        ),
        (
            "ld.global.v2.u64 {%d0, %d1}, [%in]; st.global.u64 [%out], %d1;",
            &[0x8b8a_8988, 0x8f8e_8d8c],
        ),
        (
            "ld.global.v4.f32 {%f0, %f1, %f2, %f3}, [%in+16]; st.global.v4.f32 [%out], {%f3, %f2, %f1, %f0};",
            &[0x9f9e_9d9c, 0x9b9a_9998, 0x9796_9594, 0x9392_9190],
        ),
        (
            "ld.volatile.global.u32 %r0, [%in]; st.volatile.global.u32 [%out], %r0;",
            &[0x8382_8180],
        ),
        (
            "ld.relaxed.gpu.global.u32 %r0, [%in]; st.release.sys.global.u32 [%out], %r0;",
            &[0x8382_8180],
        ),
        (
            "ld.acquire.cta.u32 %r0, [%in]; st.relaxed.gpu.u32 [%out], %r0;",
            &[0x8382_8180],
        ),
        (
            "ld.global.nc.L1::no_allocate.L2::128B.u32 %r0, [%in]; st.global.wt.u32 [%out], %r0;",
            &[0x8382_8180],
        ),
        (
            "createpolicy.fractional.L2::evict_first.b64 %d0, 1.0; griddepcontrol.wait; ld.global.nc.L1::no_allocate.L2::cache_hint.u32 %r0, [%in], %d0; st.global.cs.u32 [%out], %r0;",
            &[0x8382_8180],
        ),
        (
            "ld.global.ca.u32 %r0, [%in]; st.global.L1::no_allocate.u32 [%out], %r0;",
            &[0x8382_8180],
        ),
        (
            "cvta.global.u64 %d0, %in; ld.u32 %r0, [%d0]; cvta.to.global.u64 %d1, %out; st.u32 [%d1], %r0;",
            &[0x8382_8180],
        ),
        (
            "prefetch.global.L2 [%in]; prefetch.L1 [%in+4]; nanosleep.u32 20; membar.gl; fence.acq_rel.gpu; st.global.u32 [%out], 5;",
            &[5],
        ),
    ];
    for (inst, wanted) in rows {
        assert_eq!(one(inst, wanted.len()), *wanted, "{inst}");
    }
}

/// Stores of 8 and 16 bits leave their neighbours alone.
#[test]
fn stores_truncate() {
    let rows: &[(&str, &[u32])] = &[
        (
            "mov.u32 %r0, 0x11223344; st.global.u32 [%out], 0; st.global.u8 [%out+1], %r0;",
            &[0x4400],
        ),
        (
            "mov.u32 %r0, 0x11223344; st.global.u32 [%out], 0; st.global.u16 [%out+2], %r0;",
            &[0x3344_0000],
        ),
        (
            "mov.u64 %d0, 0x1122334455667788; st.global.u32 [%out], %d0;",
            &[0x5566_7788],
        ),
        (
            "mov.b16 %h0, 0x7fff; st.global.u32 [%out], -1; st.global.b16 [%out], %h0;",
            &[0xffff_7fff],
        ),
        ("st.global.v2.u32 [%out], {1, 2};", &[1, 2]),
        ("st.global.f32 [%out], 0f3F800000;", &[0x3f80_0000]),
    ];
    for (inst, wanted) in rows {
        assert_eq!(one(inst, wanted.len()), *wanted, "{inst}");
    }
}

#[test]
fn spaces() {
    let rows: &[(&str, &[u32])] = &[
        (
            ".shared .align 8 .b8 s[64]; mov.u32 %r0, s; st.shared.u32 [%r0+4], 7; ld.shared.u32 %r1, [s+4]; st.global.u32 [%out], %r1;",
            &[7],
        ),
        (
            ".shared .b32 s[4]; mov.u64 %d0, s; st.shared.v2.u32 [%d0], {1, 2}; ld.shared.b64 %d1, [s]; st.global.u64 [%out], %d1;",
            &[1, 2],
        ),
        (
            ".shared .b32 s[4]; cvta.shared.u64 %d0, s; st.u32 [%d0], 9; cvta.to.shared.u64 %d1, %d0; ld.shared.u32 %r0, [%d1]; st.global.u32 [%out], %r0;",
            &[9],
        ),
        (
            ".shared .b32 s[4]; mov.u32 %r0, s; st.shared.u8 [s], 1; st.shared.u8 [s+1], 2; ld.shared.u16 %r1, [s]; st.global.u32 [%out], %r1;",
            &[0x201],
        ),
        (
            ".local .align 4 .b8 l[8]; mov.u64 %d0, l; st.local.u32 [%d0+4], 3; ld.local.u32 %r0, [l+4]; st.global.u32 [%out], %r0;",
            &[3],
        ),
        (
            ".local .b32 l[2]; cvta.local.u64 %d0, l; st.u32 [%d0], 4; ld.local.u16 %r0, [l]; st.global.u32 [%out], %r0;",
            &[4],
        ),
        (
            ".shared .b32 s; cvta.shared.u64 %d0, s; isspacep.shared %p, %d0; selp.u32 %r0, 1, 0, %p; isspacep.global %p, %d0; selp.u32 %r1, 1, 0, %p; st.global.v2.u32 [%out], {%r0, %r1};",
            &[1, 0],
        ),
    ];
    for (inst, wanted) in rows {
        assert_eq!(one(inst, wanted.len()), *wanted, "{inst}");
    }
}

#[test]
fn module_variables_are_initialised() {
    let text = kernel(
        ".reg .b32 %r<5>; .reg .b64 %d<3>; .reg .f32 %f;
        ld.const.u32 %r0, [table+4];
        mov.u64 %d0, table;
        ld.const.u32 %r1, [%d0+8];
        ld.global.u32 %r2, [counter];
        cvta.global.u64 %d1, counter;
        atom.global.add.u32 %r3, [counter], 1;
        ld.u32 %r3, [%d1];
        ld.const.f32 %f, [half];
        st.global.v4.u32 [%out], {%r0, %r1, %r2, %r3};
        st.global.f32 [%out+16], %f;",
    );
    let variables = ".const .align 4 .u32 table[4] = {10, 20, 0x1E};\n.global .u32 counter = 41;\n.const .f32 half = 0.5;\n";
    let text = text.replace(".visible", &format!("{variables}.visible"));
    let (out, _) = launch(&text, &[0; 4], 20, Setup { block: 1, ..SETUP })
        .unwrap_or_else(|fault| panic!("{fault}"));
    let words: Vec<u32> = out
        .as_chunks::<4>()
        .0
        .iter()
        .map(|w| u32::from_le_bytes(*w))
        .collect();
    assert_eq!(words, [20, 30, 41, 42, 0x3f00_0000]);
}

/// `old` and new values of each operation on 32 bits, for the given old value.
#[test]
fn atomics() {
    const ONES: u32 = u32::MAX;
    let rows: &[(&str, u32, u32)] = &[
        ("add.u32 %r0, [%at], 5", 7, 12),
        ("add.s32 %r0, [%at], -5", 2, ONES - 2),
        ("add.f32 %r0, [%at], 0f3F800000", 0x3f80_0000, 0x4000_0000),
        ("min.s32 %r0, [%at], -1", 3, ONES),
        ("min.u32 %r0, [%at], 4", 3, 3),
        ("max.u32 %r0, [%at], 4", 3, 4),
        ("max.s32 %r0, [%at], -4", 3, 3),
        ("and.b32 %r0, [%at], 6", 3, 2),
        ("or.b32 %r0, [%at], 6", 3, 7),
        ("xor.b32 %r0, [%at], 6", 3, 5),
        ("exch.b32 %r0, [%at], 6", 3, 6),
        ("cas.b32 %r0, [%at], 3, 9", 3, 9),
        ("cas.b32 %r0, [%at], 4, 9", 3, 3),
        ("inc.u32 %r0, [%at], 3", 3, 0),
        ("inc.u32 %r0, [%at], 3", 2, 3),
        ("dec.u32 %r0, [%at], 3", 0, 3),
        ("dec.u32 %r0, [%at], 3", 9, 3),
        ("dec.u32 %r0, [%at], 3", 2, 1),
    ];
    for (op, old, new) in rows {
        for (space, at) in [("global", "%out"), ("shared", "s")] {
            let inst = format!(
                ".shared .b32 s; .reg .b32 %old; mov.b32 %old, {old}; st.{space}.u32 [{at}], %old;
                atom.{space}.{};
                ld.{space}.u32 %r1, [{at}]; st.global.v2.b32 [%out], {{%r0, %r1}};",
                op.replace("%at", at)
                    .replace("%r0", if op.contains("f32") { "%f0" } else { "%r0" })
            );
            let inst = if op.contains("f32") {
                inst.replace("{%r0, %r1}", "{%f0, %r1}")
            } else {
                inst
            };
            assert_eq!(one(&inst, 2), [*old, *new], "{space} {op}");
        }
    }

    let wide = "mov.u64 %d0, 0xffffffff; st.global.u64 [%out], %d0; atom.global.add.u64 %d1, [%out], 1; red.relaxed.gpu.global.max.u64 [%out], 3;";
    assert_eq!(one(wide, 2), [0, 1]);
    let cas16 = "st.global.u32 [%out], 0x22221111; mov.b16 %h0, 0x2222; mov.b16 %h1, 5; atom.global.cas.b16 %h2, [%out+2], %h0, %h1;";
    assert_eq!(one(cas16, 1), [0x0005_1111]);
}

/// Every thread of every block counts once, whoever runs when.
#[test]
fn atomics_of_many_blocks_add_up() {
    let body = "
        .reg .b32 %old; .reg .b64 %at;
        red.global.add.u32 [%in], 1;
        atom.acq_rel.gpu.global.add.u32 %old, [%in+4], 1;
        mad.wide.u32 %at, %old, 4, %out;
        st.global.u32 [%at], 1;";
    let setup = Setup {
        grid: 50,
        block: 64,
        threads: 4,
        ..SETUP
    };
    assert_eq!(words(body, &[0, 0], 3200, setup), vec![1; 3200]);
}

#[test]
fn parameters_of_every_kind() {
    let text = ".version 7.0\n.target sm_80\n.visible .entry k(
        .param .u64 .ptr .global .align 16 in,
        .param .u64 out)
    {
        .reg .b64 %d<2>;
        ld.param.b64 %d0, [in];
        ld.param.u64 %d1, [out];
        sub.u64 %d0, %d1, %d0;
        st.global.u64 [%d1], %d0;
        exit;
    }";
    let (out, _) = launch(text, &[0; 16], 8, Setup { block: 1, ..SETUP })
        .unwrap_or_else(|fault| panic!("{fault}"));
    assert!(u64::from_le_bytes(out.try_into().expect("8 bytes")) > 0);
}

/// On one device, a multicast address is that of its memory.
#[test]
fn multicast_memory_of_one_device() {
    let body =
        ".reg .b32 %r<8>; .reg .f32 %f<4>; .reg .b64 %d0; .reg .pred %p; setp.ne.u32 %p, %t, 0; @%p bra END;
        multimem.ld_reduce.relaxed.gpu.global.add.u32 %r0, [%in];
        multimem.ld_reduce.weak.global.add.v2.f32 {%f0, %f1}, [%in+8];
        multimem.ld_reduce.global.add.acc::f32.f16x2 %r1, [%in+16];
        multimem.st.weak.global.v2.f32 [%out], {%f1, %f0};
        st.global.u32 [%out+8], 5; multimem.red.release.gpu.global.add.u32 [%out+8], %r0;
        st.global.u32 [%out+12], 0x3c003c00; multimem.red.relaxed.sys.global.add.f16x2 [%out+12], %r1;
        multimem.red.min.s32 [%out+8], 9;
        END:";
    let input = [7, 0, 1f32.to_bits(), 2f32.to_bits(), 0x3c00_4000, 0];
    let out = words(body, &input, 4, SETUP);

    // 1 + 1 and 1 + 2 as halves.
    assert_eq!(out, [2f32.to_bits(), 1f32.to_bits(), 9, 0x4000_4200]);
    for wrong in [
        "multimem.red.and.u32 [%in], %t;",
        "multimem.ld_reduce.min.f32 %f, [%in];",
        "multimem.st.v2.u32 [%in], {%t, %t};",
    ] {
        let text = kernel(&format!(".reg .f32 %f;\n{wrong}"));
        assert!(
            Module::parse(&text).and_then(Module::complete).is_err(),
            "{wrong}"
        );
    }
}
