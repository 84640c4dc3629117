//! Signals: the program ends at once with the right code, and leaves no file.

use std::fs;
use std::io::Read;
use std::path::Path;
use std::process::{Child, Command};
use std::time::{Duration, Instant};

use crate::program::{End, SHORTER, command};

pub(crate) fn signal(child: &Child, name: &str) {
    let pid = child.id().to_string();
    assert!(
        Command::new("kill")
            .args([&format!("-{name}"), &pid])
            .status()
            .expect("kill runs")
            .success()
    );
}

/// Whether this process, and so what it starts, ignores SIGHUP, as under `nohup`: bit 0 of the mask.
fn ignores_hangups() -> bool {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.is_some_and(|mask| u64::from_str_radix(mask.trim(), 16).is_ok_and(|mask| mask & 1 == 1))
}

/// Returns true if the process has a file of the folder open, for example one without a name. Only Linux tells.
fn has_open_file_in(child: &Child, folder: &Path) -> bool {
    let descriptors = fs::read_dir(format!("/proc/{}/fd", child.id()))
        .into_iter()
        .flatten()
        .flatten();
    descriptors
        .into_iter()
        .any(|fd| fs::read_link(fd.path()).is_ok_and(|target| target.starts_with(folder)))
}

#[test]
fn a_signal_ends_work_at_once_and_leaves_no_file() {
    let ids = vec!["1"; 2000].join(",");

    // Long enough that nobody would wait for the end.
    let logits = ["logits", SHORTER, "--ids", &ids, "--out"];
    let bench = ["bench", SHORTER, "--insist", "--rounds", "100000", "--json"];
    for (arguments, name, code) in [
        (&logits[..], "INT", 130),
        (&logits, "TERM", 143),
        (&logits, "HUP", 129),
        (&bench, "INT", 130),
        (&bench, "TERM", 143),
    ] {
        if name == "HUP" && ignores_hangups() {
            continue;
        }

        let folder = tempfile::tempdir().expect("a temporary folder");
        let files = || fs::read_dir(folder.path()).expect("it is there").count();
        let folder_path = folder.path().canonicalize().expect("it is there");
        let out = folder.path().join("out");
        let rest = [out.to_str().expect("UTF-8"), "--device", "emu"];
        let mut child = command(&[arguments, &rest].concat())
            .spawn()
            .expect("the program starts");
        while files() == 0 && !has_open_file_in(&child, &folder_path) {
            std::thread::sleep(Duration::from_millis(20));
            assert_eq!(child.try_wait().expect("it runs"), None);
        }

        signal(&child, name);
        let end = End::from(child.wait_with_output().expect("it ends"));
        assert_eq!(
            (end.code, end.err.as_str(), files()),
            (Some(code), "", 0),
            "{arguments:?} {name}"
        );
    }
}

/// A prompt that the emulator would take minutes for.
#[test]
fn a_prompt_does_not_hold_a_signal_up() {
    let ids = vec!["1"; 2000].join(",");
    let mut child = command(&[
        "run",
        SHORTER,
        "--insist",
        "--device",
        "emu",
        "--prompt-ids",
        &ids,
        "-n",
        "8",
    ])
    .spawn()
    .expect("the program starts");
    std::thread::sleep(Duration::from_secs(3));
    assert_eq!(child.try_wait().expect("it runs"), None);
    let start = Instant::now();
    signal(&child, "INT");
    let end = End::from(child.wait_with_output().expect("it ends"));
    assert_eq!(
        (end.code, end.out.as_str(), end.err.as_str()),
        (Some(130), "", "")
    );
    assert!(
        start.elapsed() < Duration::from_secs(2),
        "{:?}",
        start.elapsed()
    );
}

#[test]
fn a_text_ends_with_its_token_and_says_how_to_end_at_once() {
    let arguments = [
        "run",
        SHORTER,
        "--device",
        "emu",
        "--prompt-ids",
        "0,389",
        "-n",
        "1500",
        "--print",
        "ids",
    ];
    let mut child = command(&arguments).spawn().expect("the program starts");
    let mut first = [0];
    child
        .stdout
        .as_mut()
        .expect("piped")
        .read_exact(&mut first)
        .expect("a token");
    signal(&child, "INT");
    let end = End::from(child.wait_with_output().expect("it ends"));
    assert_eq!(end.code, Some(130), "{end:?}");
    assert!(end.out.ends_with('\n'), "{end:?}");
    let said: Vec<&str> = end.err.lines().collect();
    assert_eq!(
        said[0], "stopping after this token; a second signal (Ctrl-C) ends at once",
        "{end:?}"
    );
    assert!(
        said[1].ends_with(", interrupted, Warpwright CPU emulator"),
        "{end:?}"
    );
}

/// Runs a program with a terminal as its standard error, interrupts it when the terminal shows a text, and prints as JSON
/// how it ended, and what came of the terminal before and after the interrupt.
const AT_A_TERMINAL: &str = r#"
import fcntl, json, os, pty, signal, struct, subprocess, sys, termios, time

leader, follower = pty.openpty()
fcntl.ioctl(follower, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
child = subprocess.Popen(sys.argv[2:], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=follower)
os.close(follower)

def read():
    try:
        return os.read(leader, 4096)
    except OSError:
        return b""

before = b""
while sys.argv[1].encode() not in before and (data := read()):
    before += data
start = time.monotonic()
child.send_signal(signal.SIGINT)
out = child.communicate()[0]
seconds, after = time.monotonic() - start, b""
while data := read():
    after += data
print(json.dumps([child.returncode, seconds, out.decode(), before.decode(), after.decode()]))
"#;

/// A prompt of several pieces, interrupted between two of them.
#[test]
fn a_signal_in_a_prompt_wipes_its_bar() {
    let ids: Vec<String> = (1..=60).map(|id| id.to_string()).collect();
    let program = env!("CARGO_BIN_EXE_warpwright");
    let arguments = [
        "run",
        SHORTER,
        "--device",
        "emu",
        "--prompt-ids",
        &ids.join(","),
        "-n",
        "1",
    ];
    let mut python = Command::new("python3");
    python
        .args(["-c", AT_A_TERMINAL, "/60 tokens", program])
        .args(arguments);
    python.env("TERM", "xterm").env_remove("NO_COLOR");
    python.current_dir(std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join(".."));
    let found = python.output().expect("Python runs");
    let (code, seconds, out, before, after): (i32, f64, String, String, String) =
        serde_json::from_slice(&found.stdout).unwrap_or_else(|error| panic!("{error}: {found:?}"));
    assert_eq!((code, out.as_str()), (130, ""), "{before:?} {after:?}");
    assert!(seconds < 2.0, "{seconds} s");
    let taken = before
        .rsplit_once("prompt ")
        .and_then(|(_, bar)| bar.split_once('/'))
        .expect("a bar")
        .0;
    assert!(
        ["0", "8", "16", "24", "32", "40", "48", "56"].contains(&taken),
        "{before:?}"
    );

    // Back to the start of the line, and nothing on it.
    assert!(after.ends_with("\r\u{1b}[2K"), "{after:?}");
}

/// As `nohup` and a shell's background jobs have it.
#[test]
#[cfg(target_os = "linux")]
fn a_signal_that_is_ignored_stays_so() {
    let program = env!("CARGO_BIN_EXE_warpwright");
    let line = format!(
        "trap '' HUP; exec {program} run {SHORTER} --device emu --prompt-ids 1 -n 9 --quiet --print ids"
    );
    let mut bash = Command::new("bash");
    bash.args(["-c", &line])
        .current_dir(std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join(".."));
    let mut child = bash
        .stdout(std::process::Stdio::piped())
        .spawn()
        .expect("bash runs");
    let mut first = [0];
    child
        .stdout
        .as_mut()
        .expect("piped")
        .read_exact(&mut first)
        .expect("a token");
    signal(&child, "HUP");
    let end = End::from(child.wait_with_output().expect("it ends"));
    assert_eq!(
        (end.code, end.out.trim_end().split(' ').count()),
        (Some(0), 9),
        "{end:?}"
    );
}
