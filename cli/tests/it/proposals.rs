//! The commands that the listing of `warpwright emu` proposes.

use std::fs;

use crate::program::{End, run};

/// The command at the end of a listing, without the program's name.
fn proposed(listing: &End) -> Vec<String> {
    let line = listing
        .out
        .lines()
        .skip_while(|line| *line != "To run a kernel:")
        .nth(1)
        .expect("a command");
    let words = line.split_whitespace().skip(1);
    words
        .map(|word| word.trim_matches('\'').to_owned())
        .collect()
}

/// Lists a file, runs the command that is proposed, and returns its arguments and what it printed.
fn runs(path: &str) -> (String, End) {
    let listing = run(&["emu", path]);
    assert_eq!(
        (listing.code, listing.err.as_str()),
        (Some(0), ""),
        "{path}: {}",
        listing.out
    );
    let command = proposed(&listing);
    let end = run(&command.iter().map(String::as_str).collect::<Vec<_>>());
    assert_eq!(
        (end.code, end.err.as_str()),
        (Some(0), ""),
        "{command:?}: {}",
        end.out
    );
    (command[4..].join(" "), end)
}

#[test]
fn outputs_and_sizes_are_inferred() {
    let (arguments, _) = runs("cli/tests/data/emu/scale.ptx");
    let wanted =
        "--grid 1 --block 32 --arg input=in:f32:1024 --arg output=out:f32:1024 --arg size=u64:32";
    assert_eq!(arguments, wanted);
    let (arguments, _) = runs("cli/tests/data/emu/clean.ptx");
    assert!(
        arguments.ends_with("--arg param_1=inout:f32:1024 --arg param_2=u32:32"),
        "{arguments}"
    );
}

#[test]
fn dynamic_shared_memory_is_named() {
    let path = "cli/tests/data/emu/dynamic.ptx";
    let listing = run(&["emu", path]);
    let needs = "blocks of 64x1x1 threads, 0 bytes of static shared memory, dynamic shared memory `dynamic` (--smem BYTES)";
    assert!(listing.out.contains(needs), "{}", listing.out);
    let (arguments, _) = runs(path);
    assert_eq!(arguments, "--grid 1 --smem 256 --arg data=inout:u32:1024");
    let end = run(&[
        "emu",
        path,
        "-k",
        "reverse",
        "--arg",
        "data=inout:u32:64=iota",
    ]);
    assert_eq!(end.code, Some(1));
    let what = "OutOfBounds: shared memory is written at 0x400, outside every variable: the launch gives `dynamic` 0 bytes, \
                and this access needs at least 4\n";
    assert!(
        end.out.contains(what) && end.out.contains("(--smem BYTES of warpwright emu)"),
        "{}",
        end.out
    );
    let end = run(&[
        "emu",
        path,
        "-k",
        "reverse",
        "--arg",
        "data=inout:u32:64=iota",
        "--smem",
        "128",
    ]);
    assert!(
        end.out
            .contains("the launch gives `dynamic` 128 bytes, and this access needs at least 132"),
        "{}",
        end.out
    );
}

#[test]
fn the_divergent_barrier_comes_first() {
    for more in [&[][..], &["--all"], &["--seed", "1"], &["--race"]] {
        let command = [
            "emu",
            "cli/tests/data/emu/divergent.ptx",
            "-k",
            "first",
            "--arg",
            "out=out:u32:256",
        ];
        let end = run(&[&command, more].concat());
        assert_eq!(end.code, Some(1));
        assert!(
            end.out.starts_with("finding 1: DivergentBarrier: "),
            "{more:?}: {}",
            end.out
        );
        assert!(
            end.out.contains("PTX line 16: @%p2 bar.sync 0"),
            "{more:?}: {}",
            end.out
        );
        assert!(
            !end.out.contains("put a barrier between"),
            "{more:?}: {}",
            end.out
        );
    }
}

/// A kernel, and the arguments that are proposed for it.
const KERNELS: &[(&str, &str)] = &[
    (
        ".visible .entry k(.param .u64 a) { .reg .b64 %rd<3>; .reg .b32 %r<3>; ld.param.u64 %rd1, [a];
         mov.u32 %r1, %tid.x; mul.wide.u32 %rd2, %r1, 8; add.u64 %rd2, %rd1, %rd2; red.global.add.u64 [%rd2], 1; ret; }",
        "--arg a=inout:u64:1024",
    ),
    // Bits without a type, which are used as floats; the length is a parameter without a type too.
    (
        ".visible .entry k(.param .b64 a, .param .b64 b, .param .b32 n) { .reg .b64 %rd<6>; .reg .b32 %r<6>; .reg .pred %p;
         ld.param.b64 %rd1, [a]; cvta.to.global.u64 %rd1, %rd1; ld.param.b64 %rd2, [b]; cvta.to.global.u64 %rd2, %rd2;
         ld.param.b32 %r1, [n]; mov.u32 %r2, %tid.x; setp.ge.s32 %p, %r2, %r1; @%p ret;
         mul.wide.s32 %rd3, %r2, 4; add.s64 %rd4, %rd1, %rd3; add.s64 %rd5, %rd2, %rd3;
         ld.global.nc.b32 %r3, [%rd4]; add.f32 %r4, %r3, %r3; st.global.b32 [%rd5], %r4; ret; }",
        "--arg a=in:f32:1024 --arg b=out:f32:1024 --arg n=u32:32",
    ),
    // Halves in pairs, and a factor.
    (
        ".visible .entry k(.param .u64 a, .param .f32 factor) { .reg .b64 %rd<4>; .reg .b32 %r<4>; .reg .f32 %f;
         ld.param.u64 %rd1, [a]; ld.param.f32 %f, [factor]; mov.u32 %r1, %tid.x; mad.wide.u32 %rd2, %r1, 4, %rd1;
         ld.global.b32 %r2, [%rd2]; add.rn.f16x2 %r3, %r2, %r2; st.global.b32 [%rd2], %r3; ret; }",
        "--arg a=inout:f16:1024 --arg factor=f32:1.0",
    ),
    // The second parameter is added to the address as bytes, and is no address.
    (
        ".visible .entry k(.param .u64 a, .param .u64 bytes) { .reg .b64 %rd<5>; .reg .b32 %r<3>;
         ld.param.u64 %rd1, [a]; ld.param.u64 %rd2, [bytes]; ld.global.u8 %r1, [%rd1]; add.u64 %rd3, %rd1, %rd2;
         ld.global.u8 %r2, [%rd3]; ret; }",
        "--arg a=in:u8:1024 --arg bytes=u64:32",
    ),
    // A buffer that must be larger.
    (
        ".visible .entry k(.param .u64 a) { .reg .b64 %rd<3>; .reg .b32 %r<3>; ld.param.u64 %rd1, [a];
         mov.u32 %r1, %tid.x; mul.wide.u32 %rd2, %r1, 1000; add.u64 %rd2, %rd1, %rd2; st.global.u16 [%rd2], 1; ret; }",
        "--arg a=out:u16:16384",
    ),
    // Parameters that are not read, as Triton's kernels have them, and one parameter of 16 bits.
    (
        ".visible .entry k(.param .u64 a, .param .u64 scratch, .param .u16 h, .param .s32 m) { .reg .b64 %rd; .reg .b32 %r;
         ld.param.u64 %rd, [a]; ld.param.s32 %r, [m]; st.global.u32 [%rd], 5; ret; }",
        "--arg a=out:u32:1024 --arg scratch=u64:0 --arg h=u16:0 --arg m=s32:32",
    ),
    // A structure: an address, a float and a length, with gaps.
    (
        ".visible .entry k(.param .align 8 .b8 s[32]) { .reg .b64 %rd<3>; .reg .b32 %r; .reg .f32 %f;
         ld.param.u64 %rd1, [s+8]; ld.param.f32 %f, [s+4]; ld.param.u32 %r, [s+16]; add.f32 %f, %f, %f;
         st.global.f32 [%rd1], %f; ret; }",
        "--arg s_8=out:f32:1024 --arg s=struct:u32:0,f32:1.0,@s_8,u32:32,u32:0,u64:0",
    ),
    // What is written is read before.
    (
        ".visible .entry k(.param .u64 a) { .reg .b64 %rd<3>; .reg .f64 %d; ld.param.u64 %rd1, [a];
         ld.global.f64 %d, [%rd1]; add.f64 %d, %d, %d; st.global.f64 [%rd1+8], %d; ret; }",
        "--arg a=inout:f64:1024",
    ),
    // Copies that are asynchronous, into dynamic shared memory.
    (
        ".extern .shared .align 16 .b8 tile[];
         .visible .entry k(.param .u64 from, .param .u64 to) { .reg .b64 %rd<5>; .reg .b32 %r<6>; .reg .f32 %f;
         ld.param.u64 %rd1, [from]; ld.param.u64 %rd2, [to]; mov.u32 %r1, %tid.x; mul.lo.u32 %r2, %r1, 16;
         cvt.u64.u32 %rd3, %r2; add.u64 %rd3, %rd1, %rd3; mov.u32 %r3, tile; add.u32 %r3, %r3, %r2;
         cp.async.cg.shared.global [%r3], [%rd3], 16; cp.async.wait_all; ld.shared.f32 %f, [%r3];
         mad.wide.u32 %rd4, %r1, 4, %rd2; st.global.f32 [%rd4], %f; ret; }",
        "--smem 512 --arg from=in:f32:1024 --arg to=out:f32:1024",
    ),
    // An address goes to a function.
    (
        ".func put(.param .b64 p) { .reg .b64 %rd; ld.param.u64 %rd, [p]; st.global.u32 [%rd], 1; ret; }
         .visible .entry k(.param .u64 a) { .reg .b64 %rd; ld.param.u64 %rd, [a]; .param .b64 x; st.param.b64 [x], %rd;
         call put, (x); ret; }",
        "--arg a=inout:f32:1024",
    ),
    (".visible .entry k() { ret; }", ""),
];

#[test]
fn proposals_fit_the_kernels() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    for (i, (kernel, wanted)) in KERNELS.iter().enumerate() {
        let path = folder.path().join(format!("{i}.ptx"));
        fs::write(
            &path,
            format!(".version 8.0\n.target sm_80\n.address_size 64\n{kernel}\n"),
        )
        .expect("a file");
        let (arguments, _) = runs(path.to_str().expect("UTF-8"));
        assert_eq!(
            arguments,
            format!("--grid 1 --block 32 {wanted}").trim_end(),
            "{kernel}"
        );
    }
}

#[test]
fn blocks_and_clusters_have_their_size() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let kernels = [
        // Every thread reads what another warp has stored.
        (
            ".visible .entry k(.param .u64 a) { .reg .b64 %rd<3>; .reg .b32 %r<9>; .shared .b32 s[64];
             ld.param.u64 %rd1, [a]; mov.u32 %r1, %tid.x; mov.u32 %r2, s; mad.lo.u32 %r3, %r1, 4, %r2;
             st.shared.u32 [%r3], %r1; bar.sync 0; xor.b32 %r4, %r1, 32; mad.lo.u32 %r4, %r4, 4, %r2;
             ld.shared.u32 %r5, [%r4]; mad.wide.u32 %rd2, %r1, 4, %rd1; st.global.u32 [%rd2], %r5; ret; }",
            "--grid 1 --block 64 --arg a=out:u32:1024",
        ),
        (
            ".visible .entry k(.param .u64 a) .explicitcluster .reqnctapercluster 4, 1, 1
             { .reg .b64 %rd; ld.param.u64 %rd, [a]; barrier.cluster.arrive; barrier.cluster.wait; ret; }",
            "--grid 4 --block 32 --arg a=u64:32",
        ),
        (
            ".visible .entry k(.param .u64 a) .maxntid 16, 1, 1
             { .reg .b64 %rd; ld.param.u64 %rd, [a]; st.global.u8 [%rd], 1; ret; }",
            "--grid 1 --block 16 --arg a=out:u8:1024",
        ),
    ];
    for (i, (kernel, wanted)) in kernels.iter().enumerate() {
        let path = folder.path().join(format!("{i}.ptx"));
        fs::write(
            &path,
            format!(".version 8.0\n.target sm_90\n.address_size 64\n{kernel}\n"),
        )
        .expect("a file");
        assert_eq!(runs(path.to_str().expect("UTF-8")).0, *wanted, "{kernel}");
    }
}
