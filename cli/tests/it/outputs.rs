//! Output files: never the model, never half, and streams that cannot be written.

use std::fs;
use std::path::Path;
use std::process::Stdio;

use crate::program::{End, MODEL, command, run};

fn text(path: &Path) -> &str {
    path.to_str().expect("UTF-8")
}

/// A copy of the model in a folder of its own.
fn copied() -> (tempfile::TempDir, std::path::PathBuf) {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let model = folder.path().join("m.gguf");
    fs::copy(
        Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(MODEL),
        &model,
    )
    .expect("a copy");
    (folder, model)
}

#[test]
#[cfg(unix)]
fn the_model_is_never_replaced() {
    let (folder, model) = copied();
    let [soft, hard] = ["soft", "hard"].map(|name| folder.path().join(name));
    std::os::unix::fs::symlink("m.gguf", &soft).expect("a link");
    fs::hard_link(&model, &hard).expect("a link");
    let before = fs::read(&model).expect("the model");
    for (model, out) in [
        (&model, &model),
        (&model, &soft),
        (&soft, &model),
        (&hard, &model),
        (&model, &hard),
    ] {
        let (model, out) = (text(model), text(out));
        let commands: [(&str, &[&str]); 4] = [
            ("--out", &["logits", model, "--ids", "1", "--out", out]),
            ("--dot", &["graph", model, "--dot", out]),
            ("--json", &["bench", model, "--tokens", "1", "--json", out]),
            ("--plot", &["bench", model, "--tokens", "1", "--plot", out]),
        ];
        for (option, arguments) in commands {
            let err = format!(
                "error: {option} {out} is the model that the command reads; name another file\n"
            );
            let wanted = End {
                code: Some(2),
                out: String::new(),
                err,
            };
            assert_eq!(
                run(&[arguments, &["--device", "emu"]].concat()),
                wanted,
                "{arguments:?}"
            );
        }
    }

    assert!(before == fs::read(&model).expect("the model"));
    assert_eq!(fs::read_dir(folder.path()).expect("the folder").count(), 3);
}

#[test]
#[cfg(unix)]
fn a_link_stays_and_its_target_is_written() {
    use std::os::unix::fs::{PermissionsExt, symlink};
    let folder = tempfile::tempdir().expect("a temporary folder");
    let [real, link, dangling] = ["real", "link", "dangling"].map(|name| folder.path().join(name));
    fs::create_dir(&real).expect("a folder");
    fs::write(real.join("old"), "old").expect("a file");
    fs::set_permissions(real.join("old"), fs::Permissions::from_mode(0o600)).expect("permissions");
    symlink("real/old", &link).expect("a link");
    symlink("real/new", &dangling).expect("a link");
    for (to, target) in [(&link, "old"), (&dangling, "new")] {
        let end = run(&["graph", MODEL, "--device", "emu", "--dot", text(to)]);
        assert_eq!((end.code, end.err.as_str()), (Some(0), ""));
        assert!(to.is_symlink(), "{target}");
        assert!(
            fs::read_to_string(real.join(target))
                .expect("the target")
                .starts_with("digraph")
        );
    }

    assert_eq!(
        fs::metadata(real.join("old"))
            .expect("the file")
            .permissions()
            .mode()
            & 0o777,
        0o600
    );
    assert_eq!(fs::read_dir(&real).expect("the folder").count(), 2);
}

#[test]
fn a_dash_is_standard_output() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let file = folder.path().join("dot");
    let dot = |to: &str| run(&["graph", MODEL, "--device", "emu", "--dot", to]);
    assert_eq!(dot(text(&file)).code, Some(0));
    let end = dot("-");
    assert_eq!((end.code, end.err.as_str()), (Some(0), ""));
    assert_eq!(end.out, fs::read_to_string(&file).expect("the graph"));
    let logits = [
        "logits", MODEL, "--device", "emu", "--ids", "0, 389", "--out", "-",
    ];
    let found = command(&logits).output().expect("it runs");
    assert_eq!(
        (found.status.code(), found.stdout.len()),
        (Some(0), 2 * 4096 * 4)
    );
    for option in ["--json", "--plot"] {
        let end = run(&[
            "bench", MODEL, "--device", "emu", "--tokens", "1", option, "-",
        ]);
        let err =
            format!("error: {option} - would mix with the table on standard output; name a file\n");
        assert_eq!(
            end,
            End {
                code: Some(2),
                out: String::new(),
                err
            }
        );
    }
}

#[test]
fn two_options_do_not_share_a_file() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let file = folder.path().join("both");
    let (file, end) = (text(&file), |file: &str| {
        run(&[
            "bench", MODEL, "--device", "emu", "--tokens", "1", "--json", file, "--plot", file,
        ])
    });
    let err = format!("error: --plot {file} is also the file of another option; name two files\n");
    assert_eq!(
        end(file),
        End {
            code: Some(2),
            out: String::new(),
            err
        }
    );
    assert_eq!(fs::read_dir(folder.path()).expect("the folder").count(), 0);
}

/// The exit code where standard output or standard error is a shell's redirection.
#[cfg(unix)]
fn shell(arguments: &str) -> (Option<i32>, String) {
    let program = env!("CARGO_BIN_EXE_warpwright");
    let mut shell = std::process::Command::new("bash");
    shell
        .args(["-c", &format!("set -o pipefail; {program} {arguments}")])
        .stdin(Stdio::null());
    shell.current_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join(".."));
    let found = shell.output().expect("bash runs");
    (
        found.status.code(),
        String::from_utf8_lossy(&found.stderr).into_owned(),
    )
}

#[test]
#[cfg(unix)]
fn streams_that_cannot_be_written_are_no_panic() {
    let run = format!("run {MODEL} --device emu --prompt-ids 1 -n 2");
    let full = "error: cannot write to standard output: No space left on device (os error 28)\n";
    let samples = MODEL.replace("rustdoc-7m-Q4_K_M.gguf", "samples.jsonl");
    let plan =
        format!("finetune {MODEL} --data {samples} --out nowhere --device emu --seq 16 --dry-run");
    let cases: [(String, i32, &str); 16] = [
        (format!("{plan} >/dev/full"), 1, full),
        (format!("{plan} >&-"), 0, ""),
        (format!("{run} 2>/dev/full"), 0, ""),
        (format!("{run} 2>&-"), 0, ""),
        (format!("{run} --quiet >/dev/full"), 1, full),
        (format!("{run} >/dev/full 2>&1"), 1, ""),
        (format!("{run} --quiet >&-"), 0, ""),
        (format!("{run} --quiet | head -c1"), 0, ""),
        (format!("info {MODEL} --device emu >/dev/full"), 1, full),
        ("info no-such.gguf 2>/dev/full".into(), 2, ""),
        ("devices 2>/dev/full".into(), 0, ""),
        ("devices >/dev/full 2>/dev/full".into(), 1, ""),
        ("--help >/dev/full".into(), 1, full),
        ("--help | head -c1".into(), 0, ""),
        ("no-such-command 2>/dev/full".into(), 2, ""),
        (
            format!("graph {MODEL} --device emu --dot - | head -c1"),
            0,
            "",
        ),
    ];
    for (arguments, code, err) in cases {
        let end = shell(&arguments);
        assert_eq!(end, (Some(code), err.to_owned()), "{arguments}");
    }

    let (code, err) = shell(&format!("graph {MODEL} --device emu --dot /dev/full"));
    assert_eq!(code, Some(1), "{err}");
    assert_eq!(
        err,
        "error: cannot write /dev/full: No space left on device (os error 28)\n"
    );
}
