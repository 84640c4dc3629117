//! What is wrong with a text: the whole message for each mistake.

use ptx_emu::{ErrorKind, Module};

use crate::machine::kernel;

/// What the first error about a kernel's body says, after its place.
fn complaint(body: &str) -> String {
    let body = format!(
        ".reg .b16 %h<4>;\n.reg .b32 %r<4>;\n.reg .b64 %d<4>;\n.reg .f32 %f<4>;\n.reg .pred %p<4>;\n{body}"
    );
    let errors = Module::parse(&kernel(&body))
        .and_then(Module::complete)
        .expect_err(&body);
    errors.0[0].what.clone()
}

#[test]
fn mistakes_in_a_kernel() {
    let rows = [
        ("add.u32 %r0, %r1;", "`add.u32` takes 3 operands, not 2"),
        (
            "add.u32 %r0, %r1, %d0;",
            "`%d0` is a .b64 register where .u32 was expected",
        ),
        (
            "add.f32 %f0, %f1, %p0;",
            "`%p0` is a .pred register where .f32 was expected",
        ),
        (
            "add.u32 %r0, %r1, %f0;",
            "`%f0` is a .f32 register where .u32 was expected",
        ),
        (
            "add.u32 %r0, %r1, %r9;",
            "`%r9` is not declared as a register",
        ),
        (
            "add.u32 %r0, %r1, %tid.x;",
            "`%tid.x` is a special register: read it with mov or cvt",
        ),
        (
            "add.u64 %d0, %d1, in;",
            "`in` is a parameter: read it with ld.param",
        ),
        (
            "add.u32 %x, %r0, %r1;\n.reg .b32 %x;",
            "`%x` is declared only after this instruction",
        ),
        ("mov.u32 %r0, 5 / (3 - 3);", "a constant is divided by zero"),
        ("mov.f32 %f0, ~1.0;", "`~` takes an integer"),
        ("mov.u32 %r0, (1 + 2;", "`;` where `)` was expected"),
        (
            ".reg .v3 .f32 %v;",
            "`.v3` is not a register type that ptx-emu supports",
        ),
        (
            ".reg .v2 .f32 %v;\nmov.f32 %f0, %v.q;",
            "`.q` where an element such as .x was expected",
        ),
        (
            "mov.v2.f32 {%f0, %f1}, %f2;",
            "`mov.v2.f32` needs a vector of 2 elements",
        ),
        (
            "add.f32 %f0, %f1, 1;",
            "this literal cannot be a .f32 operand",
        ),
        (
            "add.u32 %r0, 5, !%p0;",
            "a .u32 register or literal was expected",
        ),
        (
            "add.u32 5, %r0, %r1;",
            "a .u32 register was expected as destination",
        ),
        ("foo.u32 %r0;", "`foo` is not an instruction"),
        (
            "wgmma.fence.sync.aligned;",
            "`wgmma` needs a target such as sm_90a, the target is sm_90",
        ),
        (
            "tcgen05.ld.sync.aligned.32x32b.x1.b32 {%r0}, [%r1];",
            "unsupported in ptx-emu: tcgen05.ld.sync.aligned.32x32b.x1.b32",
        ),
        ("discard.global.L2 [%d0], 64;", "discard is for 128 bytes"),
        (
            "mov.u32 %r0, %reserved_smem_offset_0;",
            "unsupported in ptx-emu: special register `%reserved_smem_offset_0`",
        ),
        (
            "mov.u32 %r0, %pm0;",
            "unsupported in ptx-emu: special register `%pm0`",
        ),
        ("call f, (%r0);", "`f` is not declared as a function"),
        (
            "popc.u32 %r0, %r1;",
            "`popc.u32` is not an instruction; there are popc.b32, popc.b64",
        ),
        ("bra NOWHERE;", "there is no label `NOWHERE` in this scope"),
        (
            "{\nINNER:\n}\nbra INNER;",
            "there is no label `INNER` in this scope",
        ),
        ("A:\nA:", "`A` is declared twice in this scope"),
        (
            ".reg .b32 %tid;",
            "`%tid` is a special register and cannot be declared",
        ),
        (
            ".reg .b32 %r<9>;",
            "`%r<..>` is declared twice in this scope",
        ),
        (
            "ld.param.u32 %r0, [in+8];",
            "4 bytes at offset 8 of parameter `in`, which has 8 bytes",
        ),
        (
            "ld.param.u64 %d0, [in+4];",
            "8 bytes at offset 4 of parameter `in`, which has 8 bytes",
        ),
        (
            "ld.param.u64 %d0, [nothing];",
            "there is no parameter `nothing`",
        ),
        (
            "ld.global.v4.u32 {%r0, %r1}, [%in];",
            "`ld.global.v4.u32` needs a vector of 4 elements",
        ),
        (
            "ld.global.u32 %r0, [%r1];",
            "`%r1` is a .b32 register; an address here is a .u64 or .b64",
        ),
        (
            "ld.global.u32 %h0, [%in];",
            "`%h0` is a .b16 register where .u32 was expected",
        ),
        (
            "ld.global.f16 %h0, [%in];",
            "`.f16` where .b8, .b16, .b32, .b64, .b128, .u8, .u16, .u32, .u64, .s8, .s16, .s32, .s64, .f32, .f64 was expected in `ld.global.f16`",
        ),
        (
            "ld.shared.nc.u32 %r0, [%r1];",
            "`.nc` loads from .global only, without an order",
        ),
        (
            "st.const.u32 [%d0], 1;",
            "`st.const.u32`: this space can only be read",
        ),
        (
            ".shared .b32 s[4];\nld.shared.u32 %r0, [s+16];",
            "4 bytes at offset 16 of `s`, which has 16 bytes",
        ),
        (
            ".shared .b32 s[13000];",
            "52000 bytes of static shared memory, at most 49152",
        ),
        (
            ".shared .b32 s[];",
            "`s` has no size: only .extern .shared may lack one",
        ),
        (
            "cvt.f16.f32 %h0, %f0;",
            "`cvt.f16.f32`: a rounding mode such as .rn is required",
        ),
        (
            "cvt.rn.s32.f32 %r0, %f0;",
            "`cvt.rn.s32.f32`: an integer rounding mode such as .rzi is required",
        ),
        (
            "cvt.rn.f64.f32 %d0, %f0;",
            "`cvt.rn.f64.f32`: widening is exact and takes no rounding mode",
        ),
        (
            "setp.lo.s32 %p0, %r0, %r1;",
            "`setp.lo.s32` does not compare .s32 values",
        ),
        (
            "setp.lt.ftz.s32 %p0, %r0, %r1;",
            "`setp.lt.ftz.s32` does not compare .s32 values",
        ),
        (
            "bar.sync 16;",
            "an integer literal from 0 to 15 was expected",
        ),
        (
            "bar.sync 0, 48;",
            "a barrier for 48 threads: the count is a positive multiple of 32",
        ),
        (
            "shfl.bfly.b32 %r0, %r1, 1, 31;",
            "`.bfly` where .sync was expected in `shfl.bfly.b32`",
        ),
        (
            "atom.global.add.f16 %h0, [%in], %h1;",
            "`.f16` where .u32, .s32, .u64, .f32, .f64 was expected in `atom.global.add.f16`",
        ),
        ("add.u32 %r0, %r1, %r2", "`ret` where `;` was expected"),
        ("add.u32 %r0, %r1, ?;", "`?` where an operand was expected"),
        ("@5 ret;", "a number where a predicate was expected"),
        (
            ".maxnreg 5;",
            "unsupported in ptx-emu: directive `.maxnreg` in a kernel",
        ),
        ("mov.u32 %r0, 0xZZ;", "`0xZZ` is not a number"),
        (
            "// caf\u{e9}",
            "non-ASCII character: some versions of ptxas reject it, even in comments",
        ),
        ("/* for ever", "comment without an end, `*/` expected"),
    ];
    let wrong: Vec<String> = rows
        .iter()
        .map(|(body, wanted)| (complaint(body), wanted))
        .filter(|(found, wanted)| found != *wanted)
        .map(|(found, wanted)| format!("found  {found}\nwanted {wanted}"))
        .collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Errors about the module itself.
#[test]
fn mistakes_in_a_module() {
    let rows = [
        ("", "no `.version` directive: a module starts with it"),
        (".version 8.9\n.target sm_90", ".version 8.9 does not exist"),
        (".version 7.0", "no `.target` directive after `.version`"),
        (
            ".version 7.0\n.target sm_90",
            "sm_90 needs .version 7.8 or later, the module says 7.0",
        ),
        (
            ".version 8.0\n.target sm_14",
            "`sm_14` is not a target that ptx-emu knows",
        ),
        (
            ".version 2.3\n.target compute_30",
            "compute_30 needs .version 3.0 or later, the module says 2.3",
        ),
        (
            ".version 8.0\n.target sm_90\n.address_size 32",
            "address size 32 is not supported, only 64",
        ),
        (
            ".version 8.0\n.target sm_90\n.func f() {}\n.func f() {}",
            "function `f` is defined twice",
        ),
        (
            ".version 8.0\n.target sm_90\n.func f(.param .b64 a",
            "the end of the text where `)` was expected",
        ),
        (
            ".version 8.0\n.target sm_90\n.global .u64 g = nothing;",
            "there is no variable or function `nothing`",
        ),
        (
            ".version 8.0\n.target sm_90\n.extern .func cudaGraphSetConditional(.param .b64 a);\n\
             .entry k() { .param .b64 a; call cudaGraphSetConditional, (a); }",
            "`cudaGraphSetConditional` takes 8, 4 bytes, not 8 bytes",
        ),
        (
            ".version 8.0\n.target sm_90\n.entry k() {}\n.entry k() {}",
            "kernel `k` is defined twice",
        ),
        (
            ".version 8.0\n.target sm_90\n.global .u32 g;\n.shared .u32 g;",
            "variable `g` is defined twice",
        ),
        (
            ".version 8.0\n.target sm_90\n.global .u32 g;\n.entry g() {}",
            "kernel `g` is defined twice",
        ),
        (
            ".version 8.0\n.target sm_90\n.entry k(.param .u32 n, .param .u32 n) {}",
            "parameter `n` is declared twice",
        ),
        (
            ".version 8.0\n.target sm_90\n.entry k(",
            "the end of the text where `.param` was expected",
        ),
        (
            ".version 8.0\n.target sm_90\n.global .u32 g[2] = {1, 2, 3};",
            "more initial values than the 2 elements",
        ),
        (
            ".version 8.0\n.target sm_90\n.global .align 3 .u32 g;",
            "alignment 3 is not a power of two",
        ),
        (
            "add.u32 %r0, %r1, %r2;",
            "`add` where a directive was expected",
        ),
    ];
    for (text, wanted) in rows {
        assert_eq!(
            Module::parse(text)
                .and_then(Module::complete)
                .expect_err(wanted)
                .0[0]
                .what,
            wanted
        );
    }
}

/// The lowest version and target of an instruction form are checked against the module's.
#[test]
fn features_need_version_and_target() {
    let rows = [
        (
            "7.0",
            "sm_75",
            "redux.sync.add.u32 %r0, %r1, -1;",
            "`redux` needs sm_80 or higher, the target is sm_75",
        ),
        (
            "6.3",
            "sm_75",
            "tanh.approx.f32 %f0, %f1;",
            "`tanh.f32` needs .version 7.0 or later, the module says 6.3",
        ),
        (
            "7.8",
            "sm_80",
            "add.bf16x2 %r0, %r1, %r2;",
            "`add.bf16x2` needs sm_90 or higher, the target is sm_80",
        ),
        (
            "7.0",
            "sm_80",
            "ld.global.L2::256B.u32 %r0, [%d0];",
            "`ld.L2::256B` needs .version 7.4 or later, the module says 7.0",
        ),
        (
            "8.0",
            "sm_90",
            "fence.acquire.gpu;",
            "`fence.acquire` needs .version 8.6 or later, the module says 8.0",
        ),
    ];
    for (version, target, inst, wanted) in rows {
        let text = format!(
            ".version {version}\n.target {target}\n.entry k() {{\n.reg .b32 %r<4>; .reg .f32 %f<4>; .reg .b64 %d<4>;\n{inst}\nret;\n}}"
        );
        let errors = Module::parse(&text)
            .and_then(Module::complete)
            .expect_err(wanted);
        assert_eq!(errors.0[0].what, wanted);
    }
}

/// All errors come at once, each with line, column and the line's text.
#[test]
fn errors_are_collected_and_placed() {
    let text = kernel("  add.u32 %t, %t, %q;\nmov.u32 %t, 5;\nfrob;\n@%p bra X;");
    let errors = Module::parse(&text)
        .and_then(Module::complete)
        .expect_err("three lines are wrong");
    let wanted = "line 11, column 19: `%q` is not declared as a register
    add.u32 %t, %t, %q;
line 13, column 1: `frob` is not an instruction
    frob;
line 14, column 2: `%p` is not declared as a register
    @%p bra X;";
    assert_eq!(errors.to_string(), wanted);
}

#[test]
fn kernels_describe_themselves() {
    let text = "
        .version 7.8
        .target sm_80, debug
        .address_size 64
        .extern .shared .align 16 .b8 dynamic[];
        .visible .entry first(.param .u32 n, .param .u64 p, .param .align 8 .b8 s[12]) .reqntid 8, 4 .maxnreg 64
        {
            .reg .b32 %r; .shared .align 8 .b8 a[10]; .shared .b32 b;
            ld.param.u32 %r, [n];
            st.shared.u32 [dynamic], %r;
            ret;
        }
        .weak .entry second() .minnctapersm 2 .pragma \"nounroll\"; { ret; }";
    let module = Module::parse(text).unwrap_or_else(|e| panic!("{e}"));
    assert_eq!((module.version(), module.target()), ((7, 8), "sm_80"));
    assert_eq!(
        module
            .kernels()
            .map(|k| k.name.as_str())
            .collect::<Vec<_>>(),
        ["first", "second"]
    );
    let first = module.kernel("first").expect("it is there");
    let params: Vec<_> = first
        .params
        .iter()
        .map(|p| (p.name.as_str(), p.offset, p.size, p.align))
        .collect();
    assert_eq!(params, [("n", 0, 4, 4), ("p", 8, 8, 8), ("s", 16, 12, 8)]);
    assert_eq!(
        (first.static_shared, first.reqntid, first.maxntid),
        (16, Some([8, 4, 1]), None)
    );
    let missing = module.kernel("third").expect_err("it is not there");
    assert_eq!(
        missing.to_string(),
        "there is no kernel third; the module has first, second"
    );
}

/// A module whose kernels cannot all run: the others do, and each says what it lacks.
const MIXED: &str = "
.version 8.0
.target sm_90
.address_size 64
.visible .entry reduces(.param .u64 t)
{
    .reg .b64 %t;
    ld.param.u64 %t, [t];
    tcgen05.fence::before_thread_sync;
    ret;
}
.visible .entry runs() { ret; }
.visible .entry wrong()
{
    .reg .b32 %r<4>, %x<;
    add.u32 %r0, %r1 %r2;
    mov.u32 %r0, {%r1;
    add.u32 %x0, %r1, %r2;
    frob.u32 %r0;
    ret;
}
";

#[test]
fn kernels_are_refused_one_by_one() {
    let module = Module::parse(MIXED).unwrap_or_else(|e| panic!("{e}"));
    assert_eq!(
        module
            .kernels()
            .map(|k| k.name.as_str())
            .collect::<Vec<_>>(),
        ["runs"]
    );
    let refused: Vec<_> = module
        .refused()
        .map(|k| (k.name.as_str(), k.params.len(), k.errors.is_ill_formed()))
        .collect();
    assert_eq!(refused, [("reduces", 1, false), ("wrong", 0, true)]);
    let lacks = module
        .kernel("reduces")
        .expect_err("there are no reductions")
        .to_string();
    let wanted = "kernel reduces cannot run here:
line 9, column 5: unsupported in ptx-emu: tcgen05.fence::before_thread_sync
    tcgen05.fence::before_thread_sync;";
    assert_eq!(lacks, wanted);
    assert_eq!(
        module.errors()[0].kind,
        ErrorKind::Unsupported("tcgen05.fence::before_thread_sync".into())
    );
}

/// ptxas takes 32 bits of an address of `red.async` without a state space, so they are not ill-formed.
#[test]
fn short_generic_addresses_are_unsupported() {
    let text = ".version 8.7\n.target sm_90\n.address_size 64\n.entry k() {\n.reg .b32 %r<3>;
        red.async.relaxed.cluster.mbarrier::complete_tx::bytes.add.u32 [%r0], %r1, [%r2]; ret; }";
    let module = Module::parse(text).unwrap_or_else(|e| panic!("{e}"));
    let name = "red.async.relaxed.cluster.mbarrier::complete_tx::bytes.add.u32";
    assert_eq!(module.errors()[0].kind, ErrorKind::Unsupported(name.into()));
}

/// An error in the syntax hides no other, and nothing follows from it.
#[test]
fn errors_stand_alone() {
    let module = Module::parse(MIXED).unwrap_or_else(|e| panic!("{e}"));
    let wrong = module.refused().last().expect("two are refused");
    let found: Vec<_> = wrong
        .errors
        .0
        .iter()
        .map(|e| (e.line, e.what.as_str()))
        .collect();
    let wanted = [
        (15, "`;` where a number of registers was expected"),
        (16, "`%r2` where `;` was expected"),
        (17, "`;` where `}` was expected"),
        (19, "`frob` is not an instruction"),
    ];
    assert_eq!(found, wanted);
}
