//! `warpwright emu exec`: runs a program on the emulated CUDA driver.
//!
//! The emulated driver is a shared library of this workspace. A temporary folder contains a link to
//! it with the name `libcuda.so.1`, and this folder comes first in `LD_LIBRARY_PATH`, so the
//! program loads the emulator instead of a driver. `WARPWRIGHT_EMU_REPORT` is the path of a file to
//! which the library appends a line of JSON for each launch, finding and leak
//! (`cuda-emu/src/report.rs`).

use std::collections::BTreeMap;
use std::env::{self, consts};
use std::ffi::{OsStr, OsString};
use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};

use ptx_emu::{RustPlace, SourcePlace};
use serde_json::Value;

use super::report::words;
use crate::failure::Failure;
use crate::interrupt::{self, PendingInterrupt};
use crate::output::{Output, OutputContent};
use crate::terminal::printable;

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Emulated driver to use [default: libwarpwright_cuda_emu.so next to this program, or in deps
    /// or ../lib]
    #[arg(long, value_name = "FILE")]
    library: Option<PathBuf>,
    /// File for the report, with a line of JSON for each launch, finding and leak
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Also report memory and objects that the program does not release
    #[arg(long)]
    leaks: bool,
    /// Also find divisions by zero, the first NaN or infinity, and conversions out of range
    #[arg(long)]
    arithmetic: bool,
    /// Also find addresses that were derived from one buffer or variable and point into another
    #[arg(long)]
    provenance: bool,
    /// Program to run and its arguments, after --
    #[arg(last = true, required = true, value_name = "PROGRAM")]
    program: Vec<OsString>,
}

/// The environment variable with the path of the report, which the shared library reads.
const REPORT: &str = "WARPWRIGHT_EMU_REPORT";
/// The environment variable with the list of additional checks, which the shared library reads.
const CHECKS: &str = "WARPWRIGHT_EMU_CHECKS";

pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    let output = args.json.as_deref().map(|path| Output {
        option: "--json",
        path,
        inputs: Vec::new(),
        content: OutputContent::Aside,
    });
    output.as_ref().map_or(Ok(()), Output::check)?;
    let library = library(args.library.as_deref())?;
    let folder = tempfile::tempdir().map_err(|error| unprepared(&error))?;
    let file = folder.path().join("report.jsonl");
    link(&library, folder.path()).map_err(|error| unprepared(&error))?;
    let status = {
        // Ctrl-C reaches the program too. Its report is still printed after it ends.
        let _pending = PendingInterrupt::short();
        start(args, folder.path(), &file)?
    };
    let text = fs::read_to_string(&file).unwrap_or_default();
    if let Some(output) = output {
        output.write(|sink| sink.write(text.as_bytes()))?;
    }

    let report = ProgramReport::read(&text)?;
    report.print(&mut io::stdout().lock())?;
    interrupt::check()?;
    verdict(args, &report, status)
}

/// Returns the failure about the temporary folder.
fn unprepared(error: &io::Error) -> Failure {
    Failure::Runtime(format!("cannot prepare a folder for the driver: {error}"))
}

/// Returns the path of the emulated driver.
fn library(named: Option<&Path>) -> Result<PathBuf, Failure> {
    if let Some(path) = named {
        let wrong = |what: String| Failure::Input(format!("--library {}: {what}", path.display()));
        let library = fs::canonicalize(path).map_err(|error| wrong(error.to_string()))?;
        check_library(&library).map_err(wrong)?;
        return Ok(library);
    }

    let name = format!(
        "{}warpwright_cuda_emu{}",
        consts::DLL_PREFIX,
        consts::DLL_SUFFIX
    );
    let own = env::current_exe()
        .and_then(fs::canonicalize)
        .unwrap_or_default();
    let beside = own.parent().unwrap_or(Path::new("."));

    // cargo puts the library next to the program or into deps, and an installation puts it into
    // lib.
    let places = [
        beside.join(&name),
        beside.join("deps").join(&name),
        beside.join("../lib").join(&name),
    ];
    places.iter().find_map(|place| fs::canonicalize(place).ok()).ok_or_else(|| {
        Failure::Input(format!(
            "there is no {name} in {}, in its folder deps or in ../lib: build it with `cargo build --release -p \
             warpwright-cuda-emu`, or name it with --library FILE",
            beside.display()
        ))
    })
}

/// Checks that a file is a shared library, and that it is the emulated driver.
fn check_library(path: &Path) -> Result<(), String> {
    let bytes = fs::read(path).map_err(|error| error.to_string())?;

    // The type of an ELF file is in its bytes 16 and 17; 3 stands for a shared object.
    if !bytes.starts_with(b"\x7fELF") || bytes.get(16) != Some(&3) {
        return Err("not a shared library".into());
    }

    // The library contains the name of the environment variable that it reads. Comparing the first
    // byte before the whole name keeps the search fast.
    let mut starts = (0..bytes.len()).filter(|at| bytes[*at] == REPORT.as_bytes()[0]);
    if starts.any(|at| bytes[at..].starts_with(REPORT.as_bytes())) {
        Ok(())
    } else {
        Err("not the emulated driver, which is libwarpwright_cuda_emu.so".into())
    }
}

/// Links to the emulated driver in a folder, with the names of the CUDA driver.
#[cfg(unix)]
fn link(library: &Path, folder: &Path) -> io::Result<()> {
    for name in ["libcuda.so.1", "libcuda.so"] {
        std::os::unix::fs::symlink(library, folder.join(name))?;
    }
    Ok(())
}

#[cfg(not(unix))]
fn link(_: &Path, _: &Path) -> io::Result<()> {
    Err(io::Error::new(
        io::ErrorKind::Unsupported,
        "the emulated driver runs programs only on Linux",
    ))
}

/// Runs the program until it ends.
fn start(args: &Args, folder: &Path, file: &Path) -> Result<ExitStatus, Failure> {
    let (program, rest) = args.program.split_first().expect("clap requires a program");

    // The folder comes first, so the program finds the emulated driver even if a real one is
    // installed.
    let mut paths = folder.as_os_str().to_owned();
    if let Some(more) = env::var_os("LD_LIBRARY_PATH").filter(|more| !more.is_empty()) {
        paths.push(":");
        paths.push(more);
    }

    let mut command = Command::new(program);
    command
        .args(rest)
        .env("LD_LIBRARY_PATH", paths)
        .env(REPORT, file);
    let mut checks = vec![];
    if args.arithmetic {
        checks.push("arithmetic");
    }
    if args.provenance {
        checks.push("provenance");
    }
    if !checks.is_empty() {
        command.env(CHECKS, checks.join(","));
    }

    let status = command.status();
    status.map_err(|error| Failure::Input(format!("cannot start {}: {error}", shown(program))))
}

/// Returns an argument as text for messages.
fn shown(text: &OsStr) -> String {
    text.to_string_lossy().into_owned()
}

/// Returns an error if there are findings, if the program failed, or if it never used the emulated
/// driver.
fn verdict(args: &Args, report: &ProgramReport, status: ExitStatus) -> Result<(), Failure> {
    let program = shown(&args.program[0]);
    if report.processes == 0 {
        return Err(Failure::Input(format!(
            "{program} did not start the CUDA driver ({status}), so nothing was checked: it must load libcuda.so.1 by that \
             name, without a path or an RPATH"
        )));
    }

    if !status.success() {
        return Err(Failure::Runtime(format!("{program} failed: {status}")));
    }

    let leaked = args.leaks && !report.leaks.is_empty();
    if leaked || !report.findings.is_empty() {
        Err(Failure::Shown)
    } else {
        Ok(())
    }
}

/// A finding of a program, which can occur several times.
#[derive(Debug)]
struct ProgramFinding {
    /// The class and the instructions. Findings with equal keys are counted together.
    key: String,
    /// The text of the first occurrence.
    text: String,
    /// The rank of the class. Causes have lower ranks than their consequences.
    rank: u64,
    count: u64,
}

/// Returns the elements of an array, or none for another value.
fn array(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

/// Formats a finding in the layout of `warpwright emu`. A call that the driver refused has only a
/// text.
fn in_words(finding: &Value) -> String {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    if !finding["what"].is_string() {
        return text(&finding["text"]);
    }

    let mut words = format!("{}: {}", text(&finding["class"]), text(&finding["what"]));
    let index = |value: &Value| {
        let numbers: Vec<String> = array(value).iter().map(Value::to_string).collect();
        numbers.join(",")
    };
    let block = index(&finding["block"]);
    let thread = index(&finding["thread"]);
    words::line(
        &mut words,
        "kernel",
        &format!(
            "{}, block ({block}), thread ({thread})",
            text(&finding["kernel"])
        ),
    );

    // The first place is the instruction that failed, and the others are the accesses that it races
    // with.
    let mut places = array(&finding["places"]).iter();
    if let Some(first) = places.next() {
        words::line(&mut words, "at", &place(first));
    }
    for call in array(&finding["calls"]).iter().take(words::MOST_CALLS) {
        words::line(&mut words, "called", &place(call));
    }

    for other in places {
        words::line(
            &mut words,
            "and",
            &format!("{} at {}", text(&other["did"]), place(other)),
        );
    }

    for (head, key) in [("memory", "memory"), ("do", "instead")] {
        let line = text(&finding[key]);
        if !line.is_empty() {
            words::line(&mut words, head, &line);
        }
    }

    words
}

/// Formats an instruction of the report like [`words::place`].
fn place(place: &Value) -> String {
    let number = |value: &Value| value.as_u64().unwrap_or(0) as u32;
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let source = |value: &Value| RustPlace {
        file: text(&value["file"]),
        line: number(&value["file_line"]),
        column: number(&value["file_column"]),
    };
    let rust = if place["file"].is_string() {
        Some(source(place))
    } else {
        None
    };
    words::place(&SourcePlace {
        line: number(&place["line"]),
        column: number(&place["column"]),
        text: text(&place["text"]),
        rust,
        callers: array(&place["inlined_at"]).iter().map(source).collect(),
    })
}

/// The report that the library has written.
#[derive(Debug, Default)]
struct ProgramReport {
    /// The number of processes that started the driver.
    processes: usize,
    /// The number of processes that exited normally.
    ended: usize,
    /// True if there was too much concurrent work to compare all of it.
    forgot: bool,
    /// The number of launches of each kernel.
    launches: BTreeMap<String, u64>,
    findings: Vec<ProgramFinding>,
    /// Objects that were not released, by their kind.
    leaks: BTreeMap<String, Leak>,
}

/// Objects of one kind that were not released.
#[derive(Debug, Default)]
struct Leak {
    count: u64,
    bytes: u64,
}

impl ProgramReport {
    /// Parses the report.
    fn read(text: &str) -> Result<ProgramReport, Failure> {
        let mut report = ProgramReport::default();
        for line in text.lines() {
            let line: Value = serde_json::from_str(line).map_err(|error| {
                Failure::Runtime(format!(
                    "the report of the driver cannot be read ({error}): do the library and this program have the same \
                     version?"
                ))
            })?;
            report.add(&line);
        }
        Ok(report)
    }

    /// Adds a line of the report. Unknown lines are ignored.
    fn add(&mut self, line: &Value) {
        let text = |key: &str| line[key].as_str().unwrap_or_default().to_owned();
        match line["kind"].as_str() {
            Some("start") => self.processes += 1,
            Some("launch") => *self.launches.entry(text("kernel")).or_default() += 1,
            Some("finding") => self.finding(line),
            Some("leak") => {
                let leak = self.leaks.entry(text("what")).or_default();
                leak.count += 1;
                leak.bytes += line["bytes"].as_u64().unwrap_or(0);
            }
            Some("end") => {
                self.ended += 1;
                self.forgot |= line["forgot"] == true;
            }
            _ => {}
        }
    }

    /// Adds a finding, or counts it if the same class was found at the same instructions before.
    fn finding(&mut self, line: &Value) {
        let places = array(&line["places"]);
        let place =
            |place: &Value| format!("{}:{}:{};", place["kernel"], place["line"], place["column"]);
        let text = line["text"].as_str().unwrap_or_default();
        let at: String = places.iter().map(place).collect();
        let key = if at.is_empty() {
            text.to_owned()
        } else {
            format!("{} {at}", line["class"])
        };

        // A wrong instruction usually fails in every launch, which would flood the output.
        match self.findings.iter_mut().find(|known| known.key == key) {
            Some(known) => known.count += 1,
            None => self.findings.push(ProgramFinding {
                key,
                text: in_words(line),
                rank: line["rank"].as_u64().unwrap_or(0),
                count: 1,
            }),
        }
    }

    /// Prints the findings, the leaks and a summary.
    fn print(&self, out: &mut impl Write) -> io::Result<()> {
        // Causes come before consequences, as in the report of a check.
        let mut findings: Vec<&ProgramFinding> = self.findings.iter().collect();
        findings.sort_by_key(|finding| finding.rank);
        for (i, finding) in findings.into_iter().enumerate() {
            let mut text = format!("finding {}: {}", i + 1, finding.text);
            if finding.count > 1 {
                words::line(&mut text, "seen", &format!("{} times", finding.count));
            }
            writeln!(out, "{}\n", printable(&text))?;
        }

        let leaks = self
            .leaks
            .iter()
            .map(|(what, Leak { count, bytes })| match bytes {
                0 => format!("{what} ({count})"),
                _ => format!("{what} ({count}, {bytes} bytes)"),
            });
        let leaks: Vec<String> = leaks.collect();
        if !leaks.is_empty() {
            writeln!(
                out,
                "note: not released at the end: {}",
                printable(&leaks.join(", "))
            )?;
        }

        if self.ended < self.processes {
            let killed = self.processes - self.ended;
            writeln!(
                out,
                "note: {killed} processes did not exit normally, so their leaks are unknown"
            )?;
        }

        if self.forgot {
            writeln!(
                out,
                "note: there was too much concurrent work to compare all of it for races"
            )?;
        }

        let launches: u64 = self.launches.values().sum();
        let kernels = self.launches.len();
        writeln!(
            out,
            "{launches} launches of {kernels} kernels, {} findings",
            self.findings.len()
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_findings_are_one() {
        let place = |line: u32| {
            format!(r#"{{"kernel":"k","did":"","line":{line},"column":5,"text":"st"}}"#)
        };
        let finding = |class: &str, line: u32| {
            format!(
                r#"{{"kind":"finding","class":"{class}","text":"{class}: x","places":[{}]}}"#,
                place(line)
            )
        };
        let lines = [
            r#"{"kind":"start","process":1,"compute_capability":"9.0"}"#.to_owned(),
            r#"{"kind":"launch","kernel":"k"}"#.to_owned(),
            finding("OutOfBounds", 3),
            finding("OutOfBounds", 3),
            finding("OutOfBounds", 4),
            finding("GlobalRace", 3),
            r#"{"kind":"finding","class":"Other","text":"cuFoo: no"}"#.to_owned(),
            r#"{"kind":"leak","what":"device memory","address":"0x1","bytes":40}"#.to_owned(),
            r#"{"kind":"leak","what":"device memory","address":"0x2","bytes":2}"#.to_owned(),
        ];
        let report = ProgramReport::read(&lines.join("\n")).unwrap();
        let mut out = Vec::new();
        report.print(&mut out).unwrap();
        assert_eq!(
            String::from_utf8(out).unwrap(),
            "finding 1: OutOfBounds: x\n  seen    2 times\n\nfinding 2: OutOfBounds: x\n\nfinding 3: GlobalRace: x\n\nfinding 4: \
             cuFoo: no\n\nnote: not released at the end: device memory (2, 42 bytes)\nnote: 1 processes did not exit \
             normally, so their leaks are unknown\n1 launches of 1 kernels, 4 findings\n"
        );
        assert!(ProgramReport::read("{").is_err());
    }
}
