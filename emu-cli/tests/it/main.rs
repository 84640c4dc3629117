//! Tests of the program `warpwright-emu`: the places where it differs from `warpwright emu`.
//!
//! The tests of `warpwright` cover the command itself.

use std::process::Command;

const KERNEL: &str = "\
.version 7.0
.target sm_75
.address_size 64
.visible .entry beyond(.param .u64 y)
{
    .reg .b64 %rd<2>;
    .reg .b32 %r<2>;
    ld.param.u64 %rd1, [y];
    mov.b32 %r1, 7;
    st.global.u32 [%rd1+4], %r1;
    ret;
}
";

/// The result of a run: exit code, standard output and standard error.
struct EmuRun {
    code: Option<i32>,
    out: String,
    err: String,
}

fn run(arguments: &[&str]) -> EmuRun {
    let output = Command::new(env!("CARGO_BIN_EXE_warpwright-emu"))
        .args(arguments)
        .output()
        .unwrap();
    EmuRun {
        code: output.status.code(),
        out: String::from_utf8(output.stdout).unwrap(),
        err: String::from_utf8(output.stderr).unwrap(),
    }
}

#[test]
fn commands_in_messages_begin_with_the_name_of_the_program() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("beyond.ptx");
    std::fs::write(&file, KERNEL).unwrap();
    let file = file.to_str().unwrap();
    let list = run(&[file]);
    assert_eq!((list.code, list.err.as_str()), (Some(0), ""));
    let proposal = format!("\n  warpwright-emu {file} -k beyond --grid 1 ");
    assert!(list.out.contains(&proposal), "{}", list.out);
    let checked = run(&[file, "-k", "beyond", "--arg", "y=inout:u32:1", "--stats"]);
    assert_eq!((checked.code, checked.err.as_str()), (Some(1), ""));
    let replay = format!("replay  warpwright-emu {file} -k beyond --arg y=inout:u32:1 --seed 0\n");
    assert!(checked.out.contains(&replay), "{}", checked.out);
}

#[test]
fn help_and_completions_name_the_program() {
    let help = run(&["--help"]);
    assert_eq!(help.code, Some(0));
    assert!(help.out.contains("Usage: warpwright-emu "), "{}", help.out);
    assert!(
        help.out
            .contains("\n  warpwright-emu exec -- python saxpy.py")
    );
    assert!(!help.out.contains("warpwright emu"), "{}", help.out);
    let inner = run(&["exec", "--help"]);
    assert!(
        inner.out.contains("Usage: warpwright-emu exec "),
        "{}",
        inner.out
    );
    for shell in ["bash", "zsh", "fish", "powershell"] {
        let script = run(&["--completions", shell]);
        assert_eq!((script.code, script.err.as_str()), (Some(0), ""), "{shell}");
        assert!(script.out.contains("race-memory"), "{shell}");
    }

    let version = run(&["--version"]);
    let start = concat!("warpwright-emu ", env!("CARGO_PKG_VERSION"));
    assert!(version.out.starts_with(start), "{}", version.out);
}

#[test]
fn wrong_arguments_are_refused() {
    let cases: [(&[&str], &str); 6] = [
        (
            &[],
            "error: the following required arguments were not provided:\n  <FILE.ptx>",
        ),
        (&["no-such.ptx"], "error: cannot read no-such.ptx: "),
        (
            &["--completions", "bash", "x.ptx"],
            "error: the argument '--completions <SHELL>' cannot be used with",
        ),
        (
            &["x.ptx", "--grid", "0"],
            "error: invalid value '0' for '--grid <X,Y,Z>'",
        ),
        (
            &["x.ptx", "--schedule", "3"],
            "error: unexpected argument '--schedule' found\n\n  tip: a similar option exists: '--schedules'\n\nUsage: ",
        ),
        (
            &["exec", "--leak", "--", "x"],
            "error: unexpected argument '--leak' found\n\n  tip: a similar option exists: '--leaks'\n\nUsage: ",
        ),
    ];
    for (arguments, message) in cases {
        let end = run(arguments);
        assert_eq!((end.code, end.out.as_str()), (Some(2), ""), "{arguments:?}");
        assert!(end.err.starts_with(message), "{arguments:?}: {}", end.err);
    }
}
