//! What old compilers and people write: versions and targets before sm_50, shuffles without masks, registers that are
//! vectors, constant expressions, variables of the module within kernels, references to textures.

use ptx_emu::check::Check;
use ptx_emu::{
    Class, Image, ImageShape, Launch, Memory, Module, Sampler, Schedule, TexelFormat, Trace, run,
};

use crate::machine::{SETUP, launch};

/// The words that kernel `k(out)` of an old module leaves for each of 32 lanes. `%d` is stored at the end.
fn words(header: &str, top: &str, body: &str) -> Vec<u32> {
    let text = format!(
        "{header}\n.address_size 64\n{top}\n.entry k(.param .u64 out) {{\n.reg .b64 %out, %x<4>; .reg .b32 %t, %d, %r<8>;
        .reg .f32 %f<8>; .reg .pred %p<4>; ld.param.u64 %out, [out]; mov.u32 %t, %tid.x;\n{body}
        mad.wide.u32 %out, %t, 4, %out; st.global.u32 [%out], %d; ret; }}"
    );
    let module = Module::parse(&text)
        .and_then(Module::complete)
        .unwrap_or_else(|e| panic!("{e}\n{text}"));
    let mut check = Check::new(&module, "k").unwrap();
    check.args = vec![check.output::<u32>("out", 32)];
    check.block = [32, 1, 1];
    let report = check.run().unwrap();
    assert!(report.findings.is_empty(), "{report}");
    report.output::<u32>("out")
}

const OLD: &str = ".version 3.1\n.target sm_35";

#[test]
fn old_headers_are_known() {
    for header in [
        ".version 2.3\n.target sm_20",
        ".version 3.0\n.target sm_30",
        OLD,
        ".version 4.1\n.target sm_37, debug",
        ".version 5.0\n.target compute_20",
    ] {
        assert_eq!(words(header, "", "mov.u32 %d, 7;"), [7; 32], "{header}");
    }
}

/// Without a mask, the lanes that execute it take part.
#[test]
fn shuffles_and_votes_need_no_mask() {
    type OfLane = fn(u32) -> u32;
    let rows: [(&str, OfLane); 5] = [
        ("shfl.bfly.b32 %d, %t, 1, 31;", |l| l ^ 1),
        (
            "shfl.down.b32 %d|%p0, %t, 4, 31; @!%p0 mov.u32 %d, 99;",
            |l| if l < 28 { l + 4 } else { 99 },
        ),
        ("setp.lt.u32 %p0, %t, 3; vote.ballot.b32 %d, %p0;", |_| 7),
        (
            "setp.lt.u32 %p0, %t, 3; vote.any.pred %p1, %p0; selp.u32 %d, 5, 6, %p1;",
            |_| 5,
        ),
        // In a branch: the half that does not vote counts for nothing.
        (
            "setp.lt.u32 %p0, %t, 16; mov.u32 %d, 0; @!%p0 bra L; vote.all.pred %p1, %p0; selp.u32 %d, 1, 2, %p1; L:",
            |l| u32::from(l < 16),
        ),
    ];
    for (body, wanted) in rows {
        assert_eq!(
            words(OLD, "", body),
            (0..32).map(wanted).collect::<Vec<_>>(),
            "{body}"
        );
    }
}

/// What comes from a lane that does not execute the shuffle is no value, which is a mistake only where it is used.
#[test]
fn a_shuffle_without_mask_from_an_idle_lane() {
    let text = ".version 6.0\n.target sm_50\n.address_size 64\n.entry k(.param .u64 in, .param .u64 out) {
        .reg .b64 %out; .reg .b32 %t, %d; .reg .pred %p; ld.param.u64 %out, [out]; mov.u32 %t, %tid.x;
        setp.lt.u32 %p, %t, 16; @!%p bra L; shfl.down.b32 %d, %t, 1, 31; setp.eq.u32 %p, %t, 15; STORED L: ret; }";
    let of = |store: &str| text.replace("STORED", store);
    assert!(launch(&of("@!%p st.global.u32 [%out], 1;"), &[], 4, SETUP).is_ok());
    let fault = launch(&of("st.global.u32 [%out], %d;"), &[], 4, SETUP).unwrap_err();
    assert_eq!(fault.class, Class::UninitialisedRegister, "{fault}");
}

#[test]
fn registers_that_are_vectors() {
    let rows = [
        (
            ".reg .v4 .u32 %v; mov.v4.u32 %v, {1, 2, 3, 4}; mov.u32 %d, %v.w;",
            4,
        ),
        (
            ".reg .v4 .u32 %v; mov.v4.u32 %v, {1, 2, 3, 4}; add.u32 %v.r, %v.g, %v.b; mov.u32 %d, %v.x;",
            5,
        ),
        (
            ".reg .v2 .b32 %v<3>; mov.b64 %x0, {8, 9}; mov.b64 %v2, %x0; mov.v2.b32 %v1, %v2; mov.b32 %d, %v1.y;",
            9,
        ),
        // All elements are read before one is written.
        (
            ".reg .v2 .u32 %v; mov.v2.u32 %v, {1, 2}; mov.v2.u32 {%v.y, %v.x}, %v; shl.b32 %d, %v.x, 4; or.b32 %d, %d, %v.y;",
            33,
        ),
        (
            ".reg .v4 .u32 %n; mov.v4.u32 %n, %ntid; add.u32 %d, %n.x, %n.y;",
            33,
        ),
        // An inner scope hides it.
        (
            ".reg .v2 .u32 %v; mov.v2.u32 %v, {1, 2}; { .reg .u32 %v; mov.u32 %v, 5; add.u32 %d, %v, 1; } add.u32 %d, %d, %v.y;",
            8,
        ),
        (
            ".reg .v2 .u32 %v; mov.v2.u32 %v, {3, 4}; call (%v), swap, (%v); shl.b32 %d, %v.x, 4; or.b32 %d, %d, %v.y;",
            0x43,
        ),
        (
            "setp.eq.u32 %p0, 1, 1; call (%p1, %d), not, (%p0); @%p1 mov.u32 %d, 9;",
            6,
        ),
    ];
    let top =
        ".func (.reg .v2 .u32 b) swap(.reg .v2 .u32 a) { mov.u32 b.x, a.y; mov.u32 b.y, a.x; ret; }
        .func (.reg .pred b, .reg .u32 c) not(.reg .pred a) { not.pred b, a; mov.u32 c, 6; ret; }";
    for (body, wanted) in rows {
        assert_eq!(words(OLD, top, body), [wanted; 32], "{body}");
    }
}

#[test]
fn constants_are_expressions() {
    let rows = [
        ("(3 + 4) * 2 - 1", 13),
        ("1 << 4 | 3 & 2", 18),
        ("~0 & 0xff", 0xff),
        ("-(5) + 6 % 4", 0xffff_fffd),
        ("3 > 2 ? 5 : 6", 5),
        ("2 != 2 || !(1 <= 1) ? 5 : 1 == 1", 1),
        ("7 / 2 ^ 1 >> 0", 2),
        ("(.s64)0x7fffffff + 1", 0x8000_0000),
        ("0x100000005", 5),
        ("-1", u32::MAX),
    ];
    for (text, wanted) in rows {
        assert_eq!(
            words(OLD, "", &format!("mov.u32 %d, {text};")),
            [wanted; 32],
            "{text}"
        );
    }

    let floats = [
        (".5", 0.5f32),
        ("2.", 2.0),
        ("1.5 + .25 * 2.0", 2.0),
        ("-0.5", -0.5),
    ];
    for (text, wanted) in floats {
        let found = words(OLD, "", &format!("mov.f32 %f0, {text}; mov.b32 %d, %f0;"));
        assert_eq!(found, [wanted.to_bits(); 32], "{text}");
    }

    let top = ".global .u32 g[2 * 2] = {1 + 1, 1 << 3, ~0, (4)};";
    assert_eq!(words(OLD, top, "ld.global.u32 %d, [g + 2 * 2];"), [8; 32]);
    assert_eq!(
        words(
            OLD,
            "",
            "selp.u32 %d, 1, 2, 0; cvt.u32.u16 %r0, %ntid.x; add.u32 %d, %d, %r0;"
        ),
        [34; 32]
    );
}

#[test]
fn variables_of_the_module_within_a_kernel() {
    let body =
        ".global .u32 g[2] = {4, 5}; .const .u32 c = 6; ld.global.u32 %d, [g+4]; ld.const.u32 %r0, [c];
        add.u32 %d, %d, %r0;";
    assert_eq!(words(OLD, "", body), [11; 32]);
    let declared = ".extern .global .u32 d; .visible .global .u32 d = 3; .extern .shared .u32 s[]; .extern .shared .u32 s[];";
    assert_eq!(words(OLD, declared, "ld.global.u32 %d, [d];"), [3; 32]);
    let twice =
        format!("{OLD}\n.entry a() {{ .global .u32 g; }}\n.entry b() {{ .global .u32 g; }}");
    let errors = Module::parse(&twice)
        .and_then(Module::complete)
        .unwrap_err();
    assert_eq!(
        errors.0[0].what,
        "unsupported in ptx-emu: `g` in a kernel, while another variable has this name"
    );
}

/// An access by the name of a variable is one of its space, though the instruction names none.
#[test]
fn names_say_the_space() {
    let rows = [
        (
            ".shared .u32 s[4]; st.u32 [s+4], 5; atom.add.u32 %r1, [s+4], 2; ld.shared.u32 %r0, [s+4]; ld.u32 %d, [s+4];",
            7,
        ),
        (
            ".local .u32 l[4]; st.u32 [l+4], 5; ld.local.u32 %r0, [l+4]; ld.u32 %d, [l+4]; add.u32 %d, %d, %r0;",
            10,
        ),
        (".const .u32 c[2] = {7, 8}; ld.u32 %d, [c+4];", 8),
    ];
    for (body, wanted) in rows {
        let body = format!("setp.eq.u32 %p0, %t, 0; mov.u32 %d, 0; @!%p0 bra L; {body} L:");
        assert_eq!(words(OLD, "", &body)[..2], [wanted, 0], "{body}");
    }
}

/// Suffixes in the order that CUTLASS writes.
#[test]
fn the_number_of_matrices_before_their_shape() {
    let text = ".version 7.0\n.target sm_80\n.entry k() { .reg .b32 %r<4>; .shared .b32 s[128];
        ldmatrix.sync.aligned.x4.trans.m8n8.shared.b16 {%r0, %r1, %r2, %r3}, [s]; ret; }";
    Module::parse(text)
        .and_then(Module::complete)
        .unwrap_or_else(|e| panic!("{e}"));
}

/// Sums that are thrown away, and literals among the factors and sums.
#[test]
fn products_of_literals() {
    let body =
        "mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%f0, _, %f1, _}, {0x3c003c00, %r0}, {0x40004000},
        {1., %f2, -.5, 0f00000000}; sub.f32 %f0, %f0, %f1; mov.b32 %d, %f0;";
    let body = format!("mov.b32 %r0, 0; mov.f32 %f2, 0f00000000; {body}");
    // The rows of %f0 are eight times 1 * 2, and 1; those of %f1 are -0.5.
    assert_eq!(
        words(".version 7.0\n.target sm_80", "", &body),
        [17.5f32.to_bits(); 32]
    );
}

/// A reference holds the handle that the host binds to it.
#[test]
fn textures_by_reference() {
    let text = format!(
        "{OLD}\n.address_size 64\n.global .texref t = {{ filter_mode = nearest }};
        .entry k(.param .u64 out) {{ .reg .b64 %out; .reg .f32 %f<4>; .reg .v4 .f32 %v; .reg .b32 %w;
        ld.param.u64 %out, [out]; mov.f32 %f0, 2.5; tex.1d.v4.f32.f32 %v, [t, {{%f0}}];
        txq.width.b32 %w, [t]; cvt.rn.f32.u32 %f1, %w; add.f32 %f1, %f1, %v.x; st.global.f32 [%out], %f1; ret; }}"
    );
    let module = Module::parse(&text)
        .and_then(Module::complete)
        .unwrap_or_else(|e| panic!("{e}"));
    let memory = Memory::new(1 << 20);
    let format = TexelFormat {
        channel: ptx_emu::ChannelType::F32,
        channels: 1,
    };
    let mut image = Image::new(format, ImageShape::D1, [4, 1, 1]);
    image.address = memory.alloc(image.bytes()).unwrap();
    memory
        .write(
            image.address,
            &[1f32, 2.0, 3.0, 4.0].map(f32::to_le_bytes).concat(),
        )
        .unwrap();
    let (out, at) = (
        memory.alloc(4).unwrap(),
        module.address(&memory, "t").unwrap().unwrap(),
    );
    let params = out.to_le_bytes();
    let kernel = module.kernel("k").unwrap();
    let launch = Launch {
        kernel,
        grid: [1; 3],
        block: [1; 3],
        dynamic_shared: 0,
        params: &params,
    };
    let unbound = run(&memory, &launch, &Schedule::default(), Trace::On).unwrap_err();
    assert_eq!(
        (unbound.class, unbound.what.as_str()),
        (Class::Descriptor, "there is no texture: the handle is 0")
    );
    let handle = memory.add_texture(&image, &Sampler::POINT).unwrap();
    memory.write(at, &handle.to_le_bytes()).unwrap();
    run(&memory, &launch, &Schedule::default(), Trace::On)
        .unwrap_or_else(|fault| panic!("{fault}"));
    let mut bytes = [0; 4];
    memory.read(out, &mut bytes).unwrap();
    assert_eq!(f32::from_le_bytes(bytes), 7.0);
}
