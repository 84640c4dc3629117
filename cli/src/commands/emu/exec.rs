//! `warpwright emu exec`: a program on the emulator's CUDA driver.
//!
//! The driver is a shared library of this workspace, which a program finds in place of `libcuda.so.1`: a temporary folder
//! with a link of that name stands first in `LD_LIBRARY_PATH`. `WARPWRIGHT_EMU_REPORT` names the file to which the library
//! writes a line of JSON for each launch, finding and leak (`cuda-emu/src/report.rs`).

use std::collections::BTreeMap;
use std::env::{self, consts};
use std::ffi::{OsStr, OsString};
use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};

use ptx_emu::{RustPlace, SourcePlace};
use serde_json::Value;

use super::words;
use crate::failure::Failure;
use crate::interrupt::{self, Pending};
use crate::output::{Content, Output};
use crate::terminal::printable;

#[derive(clap::Args)]
pub(crate) struct Args {
    /// The emulator's driver [default: libwarpwright_cuda_emu.so beside this program, in deps/ there or in ../lib]
    #[arg(long, value_name = "FILE")]
    library: Option<PathBuf>,
    /// Keep the report: a line of JSON for each launch, finding and leak
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// What the program does not release is a finding too
    #[arg(long)]
    leaks: bool,
    /// Find integers divided by zero, NaN and infinity where they first appear, and floats that no integer of the type
    /// converted to holds
    #[arg(long)]
    arithmetic: bool,
    /// Find addresses that were derived from one variable or buffer and lead into another
    #[arg(long)]
    provenance: bool,
    /// Program and its arguments, behind --
    #[arg(last = true, required = true, value_name = "PROGRAM")]
    program: Vec<OsString>,
}

/// The variables that the shared library reads.
const REPORT: &str = "WARPWRIGHT_EMU_REPORT";
const CHECKS: &str = "WARPWRIGHT_EMU_CHECKS";

pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    let output = args.json.as_deref().map(|path| Output {
        option: "--json",
        path,
        inputs: Vec::new(),
        content: Content::Aside,
    });
    output.as_ref().map_or(Ok(()), Output::check)?;
    let library = library(args.library.as_deref())?;
    let folder = tempfile::tempdir().map_err(|error| unprepared(&error))?;
    let file = folder.path().join("report.jsonl");
    link(&library, folder.path()).map_err(|error| unprepared(&error))?;
    let status = {
        let _pending = Pending::short();
        start(args, folder.path(), &file)?
    };
    let text = fs::read_to_string(&file).unwrap_or_default();
    if let Some(output) = output {
        output.write(|sink| sink.write(text.as_bytes()))?;
    }
    let report = Report::read(&text)?;
    report.print(&mut io::stdout().lock())?;
    interrupt::check()?;
    verdict(args, &report, status)
}

fn unprepared(error: &io::Error) -> Failure {
    Failure::Runtime(format!("cannot prepare a folder for the driver: {error}"))
}

/// Where the driver is.
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
    let places = [
        beside.join(&name),
        beside.join("deps").join(&name),
        beside.join("../lib").join(&name),
    ];
    places.iter().find_map(|place| fs::canonicalize(place).ok()).ok_or_else(|| {
        Failure::Input(format!(
            "{name} is neither in {} nor in its deps nor in ../lib; `cargo build --release -p warpwright-cuda-emu` builds \
             it, and --library FILE names it",
            beside.display()
        ))
    })
}

/// Checks that a file is a shared library, and the emulator's driver.
fn check_library(path: &Path) -> Result<(), String> {
    let bytes = fs::read(path).map_err(|error| error.to_string())?;
    // The type of an ELF file is in its bytes 16 and 17; 3 stands for a shared object.
    if !bytes.starts_with(b"\x7fELF") || bytes.get(16) != Some(&3) {
        return Err("not a shared library".into());
    }
    // The driver contains the name of the variable that it reads.
    let mut starts = (0..bytes.len()).filter(|at| bytes[*at] == REPORT.as_bytes()[0]);
    match starts.any(|at| bytes[at..].starts_with(REPORT.as_bytes())) {
        true => Ok(()),
        false => Err("not the emulator's driver, which is libwarpwright_cuda_emu.so".into()),
    }
}

/// Puts the driver into a folder under its names.
#[cfg(unix)]
fn link(library: &Path, folder: &Path) -> io::Result<()> {
    ["libcuda.so.1", "libcuda.so"]
        .iter()
        .try_for_each(|name| std::os::unix::fs::symlink(library, folder.join(name)))
}

#[cfg(not(unix))]
fn link(_: &Path, _: &Path) -> io::Result<()> {
    Err(io::Error::new(
        io::ErrorKind::Unsupported,
        "programs run on the emulated driver on Linux alone",
    ))
}

fn start(args: &Args, folder: &Path, file: &Path) -> Result<ExitStatus, Failure> {
    let (program, rest) = args.program.split_first().expect("clap asks for one");
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
    let asked = [
        (args.arithmetic, "arithmetic"),
        (args.provenance, "provenance"),
    ];
    let asked: Vec<&str> = asked
        .into_iter()
        .filter(|(asked, _)| *asked)
        .map(|(_, name)| name)
        .collect();
    if !asked.is_empty() {
        command.env(CHECKS, asked.join(","));
    }
    let status = command.status();
    status.map_err(|error| Failure::Input(format!("cannot start {}: {error}", shown(program))))
}

fn shown(text: &OsStr) -> String {
    text.to_string_lossy().into_owned()
}

/// What the run means. What was not checked is not clean.
fn verdict(args: &Args, report: &Report, status: ExitStatus) -> Result<(), Failure> {
    let program = shown(&args.program[0]);
    if report.processes == 0 {
        return Err(Failure::Input(format!(
            "{program} did not start the CUDA driver ({status}): nothing was checked. It must load libcuda.so.1 by that name; \
             a path of its own, or an RPATH, leads elsewhere"
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

/// Equal findings.
#[derive(Debug)]
struct ProgramFinding {
    /// The class and the instructions, which are the same in equal findings.
    key: String,
    /// The first of them in words.
    text: String,
    /// The position of the class among causes and consequences.
    rank: u64,
    count: u64,
}

fn array(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

/// Returns a finding in the layout of `warpwright emu`. A call that the driver refused has no place.
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
    let (block, thread) = (index(&finding["block"]), index(&finding["thread"]));
    words::line(
        &mut words,
        "kernel",
        &format!(
            "{}, block ({block}), thread ({thread})",
            text(&finding["kernel"])
        ),
    );
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

/// Returns an instruction of the report, as [`words::place`] writes it.
fn place(place: &Value) -> String {
    let number = |value: &Value| value.as_u64().unwrap_or(0) as u32;
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let source = |value: &Value| RustPlace {
        file: text(&value["file"]),
        line: number(&value["file_line"]),
        column: number(&value["file_column"]),
    };
    words::place(&SourcePlace {
        line: number(&place["line"]),
        column: number(&place["column"]),
        text: text(&place["text"]),
        rust: place["file"].is_string().then(|| source(place)),
        callers: array(&place["inlined_at"]).iter().map(source).collect(),
    })
}

/// What the library has written.
#[derive(Debug, Default)]
struct Report {
    /// Processes that started the driver.
    processes: usize,
    /// Those that ended in order.
    ended: usize,
    /// Whether there was too much work side by side to compare all of it.
    forgot: bool,
    /// Launches of each kernel.
    launches: BTreeMap<String, u64>,
    findings: Vec<ProgramFinding>,
    /// What was not released: the number of each kind, and bytes.
    leaks: BTreeMap<String, (u64, u64)>,
}

impl Report {
    fn read(text: &str) -> Result<Report, Failure> {
        let mut report = Report::default();
        for line in text.lines() {
            let line: Value = serde_json::from_str(line).map_err(|error| {
                Failure::Runtime(format!(
                    "the driver's report cannot be read ({error}): is the library of the same version as this program?"
                ))
            })?;
            report.add(&line);
        }
        Ok(report)
    }

    fn add(&mut self, line: &Value) {
        let text = |key: &str| line[key].as_str().unwrap_or_default().to_owned();
        match line["kind"].as_str() {
            Some("start") => self.processes += 1,
            Some("launch") => *self.launches.entry(text("kernel")).or_default() += 1,
            Some("finding") => self.finding(line),
            Some("leak") => {
                let (count, bytes) = self.leaks.entry(text("what")).or_default();
                *count += 1;
                *bytes += line["bytes"].as_u64().unwrap_or(0);
            }
            Some("end") => {
                self.ended += 1;
                self.forgot |= line["forgot"] == true;
            }
            _ => {}
        }
    }

    /// Findings of one class at the same instructions are one.
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
        let leaks = self.leaks.iter().map(|(what, (count, bytes))| match bytes {
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
                "note: {killed} processes did not end in order, so what they did not release is unknown"
            )?;
        }
        if self.forgot {
            writeln!(
                out,
                "note: so much work ran side by side that not all of it was compared"
            )?;
        }
        let (launches, kernels) = (self.launches.values().sum::<u64>(), self.launches.len());
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
        let report = Report::read(&lines.join("\n")).unwrap();
        let mut out = Vec::new();
        report.print(&mut out).unwrap();
        assert_eq!(
            String::from_utf8(out).unwrap(),
            "finding 1: OutOfBounds: x\n  seen    2 times\n\nfinding 2: OutOfBounds: x\n\nfinding 3: GlobalRace: x\n\nfinding 4: \
             cuFoo: no\n\nnote: not released at the end: device memory (2, 42 bytes)\nnote: 1 processes did not end in \
             order, so what they did not release is unknown\n1 launches of 1 kernels, 4 findings\n"
        );
        assert!(Report::read("{").is_err());
    }
}
