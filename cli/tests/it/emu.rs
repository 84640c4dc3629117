//! Kernels of PTX files on the emulator: what is found, what is said, how the program ends.

use std::fs;
use std::path::Path;

use crate::program::{End, run};

/// The program on a file of the tests' data.
fn emu(file: &str, arguments: &[&str]) -> End {
    let path = format!("cli/tests/data/emu/{file}.ptx");
    run(&[&["emu", &path], arguments].concat())
}

const SAXPY: &[&str] = &["-k", "saxpy", "--grid", "4", "--block", "32"];
const X: &[&str] = &["--arg", "0=in:f32:100=iota"];
const Y: &[&str] = &["--arg", "param_1=inout:f32:100=const:1"];
const N: &[&str] = &["--arg", "saxpy_param_2=s32:100"];

fn saxpy(more: &[&str]) -> End {
    emu("clean", &[SAXPY, X, Y, N, more].concat())
}

#[test]
fn kernels_are_listed() {
    let end = emu("clean", &[]);
    assert_eq!((end.code, end.err.as_str()), (Some(0), ""));
    assert_eq!(
        end.out,
        "cli/tests/data/emu/clean.ptx: .version 7.0, .target sm_75; 2 kernels\n\n\
         saxpy(param_0: .u64, param_1: .u64, param_2: .u32)\n    blocks of any size, 0 bytes of static shared memory\n\n\
         total(s: .b8[16], y: .u64)\n    blocks of any size, 0 bytes of static shared memory\n\n\
         variables: scale (4 bytes)\n\nTo run a kernel:\n  \
         warpwright emu cli/tests/data/emu/clean.ptx -k saxpy --grid 1 --block 32 --arg param_0=in:f32:1024 \
         --arg param_1=inout:f32:1024 --arg param_2=u32:32\n"
    );
}

#[test]
fn what_is_lacking_is_counted() {
    let end = emu("lacking", &[]);
    assert_eq!(end.code, Some(1));
    assert!(
        end.out.contains("2 kernels, 1 of which cannot run"),
        "{}",
        end.out
    );
    assert!(
        end.out
            .contains("lacks()\n    the emulator lacks istypep.texref (line 11)\n"),
        "{}",
        end.out
    );
    let end = emu("lacking", &["--missing"]);
    assert_eq!(end.code, Some(1));
    assert!(
        end.out
            .starts_with("     1  istypep.texref  (first in line 11)\n"),
        "{}",
        end.out
    );
    assert!(
        end.out
            .ends_with("lacking.ptx: the emulator lacks 1 form, in 1 place\n"),
        "{}",
        end.out
    );
    assert!(
        emu("clean", &["--missing"])
            .out
            .ends_with("clean.ptx: the emulator lacks nothing\n")
    );
    let end = emu("lacking", &["-k", "lacks"]);
    assert_eq!(end.code, Some(2));
    assert!(end.err.contains("istypep.texref"), "{}", end.err);
    assert_eq!(emu("lacking", &["-k", "runs"]).code, Some(0));
}

#[test]
fn a_clean_kernel_leaves_its_results() {
    let end = saxpy(&["--race", "--schedules", "5", "--const", "scale=f32:3"]);
    assert_eq!((end.code, end.err.as_str()), (Some(0), ""));
    let lines: Vec<&str> = end.out.lines().collect();
    assert_eq!(
        lines[0],
        "param_1: inout f32[100] = 1, 4, 7, 10, 13, 16, 19, 22, .."
    );
    assert!(
        lines[1].starts_with("nothing found in 5 schedules; "),
        "{}",
        end.out
    );
    let args = [
        "-k",
        "total",
        "--arg",
        "x=in:u32:10=iota",
        "--arg",
        "s=struct:@x+8,i32:8",
        "--arg",
        "y=out:u32:1",
    ];
    let end = emu("clean", &args);
    assert!(
        end.out.starts_with("y: out u32[1] = 44\n"),
        "{}{}",
        end.out,
        end.err
    );
}

/// A file as NumPy saves one dimension of single precision.
fn npy(path: &Path, values: impl Iterator<Item = f32>) {
    let data: Vec<u8> = values.flat_map(f32::to_le_bytes).collect();
    let header = format!(
        "{{'descr': '<f4', 'fortran_order': False, 'shape': ({},), }}",
        data.len() / 4
    );
    let length = (header.len() as u16).to_le_bytes();
    fs::write(
        path,
        [b"\x93NUMPY\x01\x00", &length[..], header.as_bytes(), &data].concat(),
    )
    .expect("a file");
}

#[test]
fn results_are_compared_with_what_is_expected() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let file = |name: &str| folder.path().join(name).to_str().expect("UTF-8").to_owned();
    npy(
        &folder.path().join("y.npy"),
        (0..100).map(|i| 2.0 * i as f32 + 1.0 + 0.001),
    );
    let expect =
        |tolerance: &str| saxpy(&["--expect", &format!("1=file:{}{tolerance}", file("y.npy"))]);
    assert_eq!(expect("~2e-3").code, Some(0));
    let end = expect("~1e-5");
    assert_eq!(end.code, Some(1));
    let first = "finding 1: Mismatch: param_1[0] is 1, not 1.001\n  memory  param_1, 50 of 100 elements are wrong\n";
    assert!(end.out.starts_with(first), "{}", end.out);

    npy(&folder.path().join("x.npy"), (0..100).map(|i| i as f32));
    let x = ["--arg", &format!("0=file:{}", file("x.npy"))];
    let end = emu("clean", &[SAXPY, &x, Y, N].concat());
    assert!(
        end.out
            .starts_with("param_1: inout f32[100] = 1, 3, 5, 7, "),
        "{}{}",
        end.out,
        end.err
    );
    let x = ["--arg", &format!("0=in:f32:99=file:{}", file("x.npy"))];
    let end = emu("clean", &[SAXPY, &x, Y, N].concat());
    assert!(
        end.err
            .ends_with("x.npy: 100 elements of f32, not 99 of f32\n"),
        "{}",
        end.err
    );
}

#[test]
fn a_finding_says_where_and_how_to_see_it_again() {
    let args = [
        "-k",
        "beyond",
        "--block",
        "32",
        "--arg",
        "x=in:u32:32",
        "--arg",
        "y=out:u32:32",
    ];
    let end = emu(
        "wrong",
        &[&args[..], &["--schedules", "3", "--all"]].concat(),
    );
    assert_eq!((end.code, end.err.as_str()), (Some(1), ""));
    let lines: Vec<&str> = end.out.lines().collect();
    assert!(
        lines[0].starts_with("finding 1: OutOfBounds: 4 bytes at 0x"),
        "{}",
        end.out
    );
    let starts = [
        "  kernel  beyond, block (0,0,0), thread (28,0,0)",
        "  at      wrong.cu:7:12, PTX line 17: ld.global.u32 %r2, [%rd4+16]",
        "  memory  x[32] of 32 elements of u32: just past the end of `x`",
        "  do      check the index against the length",
        "  seen    in 3 of 3 schedules, first with seed 0, 3 blocks in all",
        "  replay  warpwright emu cli/tests/data/emu/wrong.ptx -k beyond --block 32 --arg x=in:u32:32",
    ];
    for (line, start) in lines[1..].iter().zip(starts) {
        assert!(line.starts_with(start), "{line}\n{start}");
    }

    assert!(
        lines[6].ends_with(" --all --seed 0") && lines[8] == "1 finding in 3 schedules",
        "{}",
        end.out
    );
}

#[test]
fn findings_are_json_too() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let file = folder.path().join("out.json");
    let args = [
        "-k",
        "shared_race",
        "--block",
        "128",
        "--arg",
        "y=out:u32:128",
        "--json",
    ];
    let end = emu(
        "wrong",
        &[&args[..], &[file.to_str().expect("UTF-8")]].concat(),
    );
    assert_eq!(end.code, Some(1), "{}", end.err);
    let report: serde_json::Value =
        serde_json::from_slice(&fs::read(file).expect("a file")).expect("JSON");
    let finding = &report["findings"][0];
    assert_eq!(
        (&finding["class"], &finding["memory"]),
        (&"SharedRace".into(), &"s".into())
    );

    // Whichever of the two comes second is the place, and the other one the other.
    let texts =
        ["place", "other"].map(|which| finding[which]["text"].as_str().expect("a text").to_owned());
    let [store, load] = ["st.shared.u32 [%r2], %r1", "ld.shared.u32 %r5, [%r4]"].map(str::to_owned);
    assert!(
        texts == [store.clone(), load.clone()] || texts == [load, store],
        "{texts:?}"
    );
}

#[test]
fn a_check_of_one_thread_is_not_a_silent_default() {
    // Without --block, only the first elements would be checked.
    let end = emu("clean", &[&["-k", "saxpy"], X, Y, N].concat());
    let refused = "error: saxpy does not declare a block size: pass --block, for example --block 128 \
                   (`warpwright emu cli/tests/data/emu/clean.ptx` proposes a command)\n";
    assert_eq!((end.code, end.err.as_str()), (Some(2), refused));

    let end = emu(
        "clean",
        &[&["-k", "saxpy", "--block", "32"], X, Y, N].concat(),
    );
    let note = "\nnote: one block ran; --grid chooses more\n";
    assert!(
        end.code == Some(0) && end.out.contains(note),
        "{}{}",
        end.out,
        end.err
    );
    assert!(!saxpy(&[]).out.contains("one block ran"));

    // The kernel reads no index, so one thread is enough to check it.
    let args = ["--arg", "x=in:u32:4", "--arg", "s=struct:@x,i32:4"];
    let end = emu(
        "clean",
        &[&["-k", "total", "--arg", "y=out:u32:1"], &args[..]].concat(),
    );
    let note = "\nnote: one thread per block ran, because the kernel does not read its thread index; \
                --block chooses more\n";
    assert!(
        end.code == Some(0) && end.out.contains(note),
        "{}{}",
        end.out,
        end.err
    );
    assert!(!end.out.contains("one block ran"), "{}", end.out);
}

#[test]
fn a_buffer_of_another_type_than_the_kernel_loads_is_a_note() {
    let note = |x: &str| {
        let end = emu("clean", &[SAXPY, &["--arg", x], Y, N].concat());
        let notes: Vec<String> = end.out.lines().map(str::to_owned).collect();
        (
            end.code,
            notes
                .into_iter()
                .find(|line| line.contains("but the kernel")),
        )
    };
    let wanted =
        |ty: &str| format!("note: param_0 is {ty}, but the kernel loads it as f32 (PTX line 31)");
    assert_eq!(note("0=in:f64:100"), (Some(0), Some(wanted("f64"))));

    // The elements are too small, so the error is an access beyond the end.
    assert_eq!(note("0=in:f16:100"), (Some(1), Some(wanted("f16"))));
    assert_eq!(note("0=in:f32:100"), (Some(0), None));
}

#[test]
fn races_on_global_memory_are_found_on_demand() {
    let args = [
        "-k",
        "global_race",
        "--grid",
        "4",
        "--block",
        "1",
        "--arg",
        "y=out:u32:1",
    ];
    let end = emu("wrong", &args);
    assert_eq!(end.code, Some(0));
    assert!(
        end.out
            .contains("note: races on global memory were not checked; --race checks them\n"),
        "{}",
        end.out
    );
    assert!(
        end.out
            .contains("note: `y` depends on the schedule: [0] is 3 with seed 0"),
        "{}",
        end.out
    );
    let end = emu("wrong", &[&args[..], &["--race"]].concat());
    assert!(
        end.code == Some(1) && end.out.starts_with("finding 1: GlobalRace: "),
        "{}",
        end.out
    );
}

#[test]
fn the_record_of_accesses_has_the_memory_that_is_asked_for() {
    let limited = |size| saxpy(&["--race", "--race-memory", size]);
    let end = limited("1K");
    let [first, .., last] = &end.out.lines().collect::<Vec<_>>()[..] else {
        panic!("{}", end.err)
    };

    let wanted = "finding 1: TraceFull: the record of the traced launch has reached its limit of 1024 bytes, and";
    assert!(
        end.code == Some(1) && first.starts_with(wanted),
        "{}{}",
        end.out,
        end.err
    );
    assert!(
        end.out
            .contains("\n  do      raise --race-memory, or launch fewer blocks"),
        "{}",
        end.out
    );
    assert!(
        end.out.contains(" --race --race-memory 1K --seed 0\n"),
        "{}",
        end.out
    );
    assert_eq!(*last, "1 finding in 1 schedule");
    assert_eq!(limited("64M").code, Some(0));
}

#[test]
fn a_kernel_that_never_ends_is_stopped() {
    let args = [
        "-k",
        "counts",
        "--arg",
        "y=inout:u32:1=zeros",
        "--timeout",
        "0.2",
    ];
    let end = emu("wrong", &args);
    let start = "finding 1: TimeLimit: the launch has not ended within its time limit";
    assert!(
        end.code == Some(1) && end.out.starts_with(start),
        "{}{}",
        end.out,
        end.err
    );
}

#[test]
fn a_kernel_that_waits_for_what_nobody_does_is_named() {
    let end = emu("wrong", &["-k", "waits", "--arg", "flag=in:u32:1=zeros"]);
    let start = "finding 1: Deadlock: no thread can continue: in block (0,0,0), ";
    assert!(
        end.code == Some(1) && end.out.starts_with(start),
        "{}{}",
        end.out,
        end.err
    );
    assert!(
        end.out.contains("polls without success in line 66"),
        "{}",
        end.out
    );
}

#[test]
fn a_thread_is_followed_and_instructions_are_counted() {
    let end = saxpy(&["--trace", "1,2"]);
    let fma = "33  fma.rn.f32 %f4, %f1, %f2, %f3";
    let line = end
        .out
        .lines()
        .find(|line| line.trim_start().starts_with(fma));
    let line = line.unwrap_or_else(|| panic!("{}{}", end.out, end.err));
    assert!(
        line.ends_with("  %f4=?->69, %f1=2, %f2=34, %f3=1"),
        "{line}"
    );
    let end = saxpy(&["--stats"]);
    let rows: Vec<String> = end
        .out
        .lines()
        .map(|row| row.split_whitespace().collect())
        .collect();
    for row in ["|fma.rn.f32|4|100|", "|global|1200|400|0|"] {
        assert!(rows.iter().any(|known| known == row), "{row}\n{}", end.out);
    }
}

/// Forms of operands that ptxas accepts leave the values that an H100 leaves.
#[test]
fn operands_have_the_values_of_a_gpu() {
    for (file, wanted) in [
        ("selp-not", 11),
        ("movpred-not", 11),
        ("unary-plus", 16),
        ("plus-float", 1_065_353_216),
        ("warpsz-expr", 75),
        ("managed-unused", 1),
        ("managed", 5),
        ("func-bad", 1),
        ("variadic-unaligned", 1),
    ] {
        let end = emu(
            file,
            &[
                "-k",
                "k",
                "--arg",
                "out=out:u32:1",
                "--expect",
                &format!("out={wanted}"),
            ],
        );
        assert_eq!(
            (end.code, end.err.as_str()),
            (Some(0), ""),
            "{file}: {}",
            end.out
        );
    }
}

#[test]
fn errors_outside_of_kernels_are_listed_by_place() {
    let end = emu("func-bad", &[]);
    assert_eq!(end.code, Some(2));
    let function = "\nfunction f, which no kernel above calls\n    line 4, column 59: `foo` is not an instruction\n";
    assert!(end.out.contains(function), "{}", end.out);
    let sentence = "error: cli/tests/data/emu/func-bad.ptx has an error in line 4: `foo` is not an instruction\n";
    assert_eq!(end.err, sentence);
    for file in ["variadic-unaligned", "managed", "managed-unused"] {
        assert_eq!(emu(file, &[]).code, Some(0), "{file}");
    }
}

#[test]
fn errors_that_are_left_out_are_counted() {
    let end = emu("five-errors", &[]);
    assert_eq!(end.code, Some(2));
    assert!(
        end.out.contains("2 kernels, 1 of which cannot run"),
        "{}",
        end.out
    );
    assert!(end.out.contains("\n    and 2 more errors\n"), "{}", end.out);
    assert!(
        end.out
            .contains("\ndeclarations\n    line 4, column 9: `.b33` is not a type"),
        "{}",
        end.out
    );
    let sentence = "has 6 errors, the first in line 4: `.b33` is not a type of a variable\n";
    assert!(end.err.ends_with(sentence), "{}", end.err);
    assert_eq!(emu("five-errors", &["-k", "free"]).code, Some(0));
}

#[test]
fn what_cannot_be_used_is_named() {
    let cases: &[(&str, &[&str], &str)] = &[
        (
            "syntax",
            &[],
            "error: cli/tests/data/emu/syntax.ptx has an error in line 7: `ret` where `;` was expected\n",
        ),
        (
            "syntax",
            &["-k", "k"],
            "error: kernel k cannot run here:\nline 7, column 5: ",
        ),
        (
            "none",
            &[],
            "error: cannot read cli/tests/data/emu/none.ptx: ",
        ),
        (
            "clean",
            &["-k", "axpy"],
            "error: there is no kernel axpy; the module has saxpy, total; did you mean saxpy?\n",
        ),
        (
            "clean",
            SAXPY,
            "error: no --arg for parameter 0 `param_0` (.u64), parameter 1 `param_1` (.u64), parameter 2",
        ),
        (
            "clean",
            &["-k", "saxpy", "--arg", "z=u32:1"],
            "error: --arg z: the kernel has no such parameter, and no argument refers",
        ),
        (
            "clean",
            &["-k", "saxpy", "--arg", "0=u32:1"],
            "error: no --arg for parameter 1",
        ),
        (
            "clean",
            &["-k", "saxpy", "--arg", "0=x"],
            "error: invalid value '0=x' for '--arg <NAME=VALUE>': invalid value \"x\": expected one of",
        ),
        (
            "clean",
            &["-k", "saxpy", "--grid", "0"],
            "error: invalid value '0' for '--grid <X,Y,Z>': one to three numbers",
        ),
        (
            "clean",
            &["--race"],
            "error: the following required arguments were not provided:\n  --kernel <NAME>",
        ),
        (
            "clean",
            &["-k", "saxpy", "--timeout", "0"],
            "error: invalid value '0' for '--timeout <SECONDS>': expected a number of",
        ),
        (
            "clean",
            &["-k", "saxpy", "--race", "--race-memory", "99999999999G"],
            "error: invalid value '99999999999G' for '--race-memory <SIZE>': expected a number of bytes, such as",
        ),
        (
            "clean",
            &["-k", "saxpy", "--seed", "18446744073709551615"],
            "error: invalid value '18446744073709551615' for '--seed <N>': ",
        ),
        (
            "clean",
            &["-k", "saxpy", "--arg", "0=in:f32:99999999999999999=zeros"],
            // A system that does not say how much memory it has gives none of that size.
            if cfg!(target_os = "linux") {
                "error: the emulator would need "
            } else {
                "error: --arg 0: "
            },
        ),
        (
            "clean",
            &["-k", "saxpy", "--race-memory", "4G"],
            "error: the following required arguments were not provided:\n  --race\n",
        ),
    ];
    for (file, arguments, message) in cases {
        let end = emu(file, arguments);
        assert_eq!(end.code, Some(2), "{arguments:?}");
        assert!(end.err.starts_with(message), "{arguments:?}: {}", end.err);
    }

    let cases: &[(&[&str], &str)] = &[
        (
            &["--arg", "0=s32:5"],
            "error: --arg 0: parameter 0 has an argument already\n",
        ),
        (
            &["--const", "taps=f32:1"],
            "error: variable `taps`: the module has no such variable, only [scale]\n",
        ),
        (
            &["--const", "scale=f32:1,2"],
            "error: variable `scale`: it has 4 bytes, and the new value has 8\n",
        ),
        (
            &["--expect", "z=zeros"],
            "error: --expect z: there is no buffer z; there are 0, param_1\n",
        ),
        (
            &["--const", "scale=f32:1", "--const", "scale=f32:2"],
            "error: --const scale: it has a value already\n",
        ),
        (
            &["--expect", "param_1=zeros", "--expect", "1=iota"],
            "error: --expect 1: the buffer has an expectation already\n",
        ),
        (
            &["--trace", "4,0"],
            "error: --trace: there is no such block; there are 4x1x1\n",
        ),
        (
            &["--smem", "300000"],
            "error: the launch is impossible: 300000 bytes of shared memory",
        ),
    ];
    for (arguments, message) in cases {
        let end = saxpy(arguments);
        assert_eq!(end.code, Some(2), "{arguments:?}: {}", end.out);
        assert!(end.err.starts_with(message), "{arguments:?}: {}", end.err);
    }

    let wrong = |n: &str| emu("clean", &[SAXPY, X, Y, &["--arg", n]].concat()).err;
    assert!(
        wrong("2=f32:1")
            .contains("the parameter is .u32, not f32; b32 passes the bits of any type")
    );
    assert!(wrong("2=u64:1").contains("8 bytes for parameter 2 `param_2` (.u32), which has 4"));
}

#[test]
#[cfg(target_os = "linux")]
fn a_program_without_the_driver_is_not_clean() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let library = folder.path().join("library");

    // The start of a shared object, and the name that the driver contains.
    let object = [
        &b"\x7fELF\x02\x01\x01"[..],
        &[0; 9],
        &[3, 0],
        b"WARPWRIGHT_EMU_REPORT",
    ]
    .concat();
    fs::write(&library, object).expect("a file");
    let library = library.to_str().expect("UTF-8");
    let end = run(&["emu", "exec", "--library", library, "--", "true"]);
    assert_eq!(end.code, Some(2));
    assert!(
        end.err
            .starts_with("error: true did not start the CUDA driver (exit status: 0), so nothing"),
        "{}",
        end.err
    );

    // What the library would write, the program writes here.
    let line = r#"{"kind":"start"}
{"kind":"finding","class":"OutOfBounds","text":"OutOfBounds: x","places":[]}"#;
    let script = format!(
        "test -L $(echo $LD_LIBRARY_PATH | cut -d: -f1)/libcuda.so.1 && echo '{line}' > $WARPWRIGHT_EMU_REPORT"
    );
    let end = run(&[
        "emu",
        "exec",
        "--library",
        library,
        "--",
        "sh",
        "-c",
        &script,
    ]);
    assert_eq!(end.code, Some(1), "{}", end.err);
    assert!(
        end.out.starts_with("finding 1: OutOfBounds: x\n"),
        "{}",
        end.out
    );

    // Findings have the layout of `emu`, and causes come first.
    let finding = |class: &str, rank: u32| {
        format!(
            r#"{{"kind":"finding","class":"{class}","text":"","kernel":"k","block":[1,0,0],"thread":[2,0,0],"what":"w","instead":"i","rank":{rank},"memory":"m","places":[{{"kernel":"k","did":"","line":3,"column":1,"text":"st","file":"a.cu","file_line":4,"file_column":5}},{{"kernel":"k","did":"warp 0 wrote","line":2,"column":1,"text":"ld"}}],"calls":[]}}"#
        )
    };
    let lines = format!(
        "{line}\n{}\n{}",
        finding("SharedRace", 4),
        finding("DivergentBarrier", 1)
    );
    let script = format!("echo '{lines}' > $WARPWRIGHT_EMU_REPORT");
    let end = run(&[
        "emu",
        "exec",
        "--library",
        library,
        "--",
        "sh",
        "-c",
        &script,
    ]);
    let wanted = "finding 2: DivergentBarrier: w\n  kernel  k, block (1,0,0), thread (2,0,0)\n  at      a.cu:4:5, PTX line 3: st\n  \
                  and     warp 0 wrote at PTX line 2: ld\n  memory  m\n  do      i\n\nfinding 3: SharedRace: w\n";
    assert!(end.out.contains(wanted), "{}", end.out);
    let end = run(&["emu", "exec", "--library", "none", "--", "true"]);
    assert!(
        end.code == Some(2) && end.err.starts_with("error: --library none: "),
        "{}",
        end.err
    );
    let wrong = [
        (&b"root:x:0:0\n"[..], "not a shared library"),
        (&[], "not a shared library"),
        (
            b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0\x02\0",
            "not a shared library",
        ),
        (
            b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0\x03\0cuInit",
            "not the emulated driver, which is",
        ),
    ];
    for (bytes, message) in wrong {
        fs::write(library, bytes).expect("a file");
        let end = run(&["emu", "exec", "--library", library, "--", "true"]);
        assert_eq!(end.code, Some(2), "{}", end.out);
        assert!(
            end.err
                .starts_with(&format!("error: --library {library}: {message}")),
            "{}",
            end.err
        );
    }
}

const DOUBLED: &[&str] = &["-k", "doubled", "--race"];

#[test]
fn textures_and_surfaces_are_arguments() {
    let texture = ["--arg", "t=tex2d:f32:4x2:linear=iota"];
    let (all, surface) = (["--block", "4,2"], ["--arg", "s=surf2d:f32:4x2"]);
    let end = emu(
        "textures",
        &[
            DOUBLED,
            &all,
            &texture,
            &surface,
            &["--expect", "s=0,2,4,6,8,10,12,14"],
        ]
        .concat(),
    );
    assert_eq!((end.code, end.err.as_str()), (Some(0), ""), "{}", end.out);
    assert!(
        end.out
            .contains("s: out f32[8] = 0, 2, 4, 6, 8, 10, 12, 14\n"),
        "{}",
        end.out
    );
    let end = emu(
        "textures",
        &[DOUBLED, &["--block", "5,2"], &texture, &surface].concat(),
    );
    assert_eq!(end.code, Some(1));
    let found =
        "OutOfBounds: 4 bytes at x = 16 bytes, y = 0, z = 0 of a 2D surface of 16 bytes x 2 x 1";
    assert!(end.out.contains(found), "{}", end.out);
    let layers = ["--arg", "t=tex2dlayered:f32:4x2x3"];
    let end = emu("textures", &[DOUBLED, &all, &layers, &surface].concat());
    let found = "Descriptor: a texture is 2D layered, where this instruction is of a 2D one";
    assert!(
        end.code == Some(1) && end.out.contains(found),
        "{}",
        end.out
    );
    let plain = ["--arg", "t=in:f32:8"];
    let end = emu("textures", &[DOUBLED, &all, &plain, &surface].concat());
    assert!(
        end.code == Some(1) && end.out.contains("is not the handle of a texture"),
        "{}",
        end.out
    );
    let end = emu(
        "textures",
        &[
            DOUBLED,
            &all,
            &["--arg", "t=tex2d:u32:4x2:linear"],
            &surface,
        ]
        .concat(),
    );
    let refused = "the texture or surface `t`: a linear filter needs floats";
    assert!(
        end.code == Some(2) && end.err.contains(refused),
        "{}",
        end.err
    );
}
