//! The report of a program's run: one JSON line for each launch, each finding and each unreleased
//! object.
//!
//! Every line is an object with the fields `kind` and `process`. The kinds are:
//!
//! - `start`: the compute capability of the devices.
//! - `launch`: `kernel`, `where` it was launched, `grid`, `block`, `shared`, and the number of
//!   instructions that it executed.
//! - `finding`: `class` and `text`. Findings of kernels also have `kernel`, `block`, `thread`,
//!   `address`, the event (`what`), the remedy (`instead`), the `memory` at the address, and the
//!   `rank` of the class among causes and consequences. `places` are the responsible instructions,
//!   the main one first, and `calls` lead to the main one. Each has `kernel`, `did`, `line`,
//!   `column` and `text`. If the PTX has `.loc` lines, it also has `file`, `file_line`,
//!   `file_column` and the locations where it was `inlined_at`.
//! - `leak`: the kind of the object (`what`), and its `address` and `bytes`, or its `handle` and
//!   `name`.
//! - `end`: the number of lines of each kind, and whether work was dropped from the comparison
//!   (`forgot`) because too much ran concurrently. A process that is killed does not write this
//!   line.

use std::fmt::Display;
use std::fs::File;
use std::io::{self, Write};
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};

use ptx_emu::{Conflict, ConflictKind, Fault, OtherPlace, RustPlace, SourcePlace};

/// A file to which lines are appended. Each line is one write, so several processes can share the
/// file.
pub(crate) struct RunReport(Mutex<ReportLines>);

struct ReportLines {
    file: File,
    launches: u64,
    findings: u64,
    leaks: u64,
}

impl RunReport {
    /// Opens the file and writes the first line.
    pub(crate) fn open(path: &Path, (major, minor): (u32, u32)) -> io::Result<Self> {
        let file = File::options().create(true).append(true).open(path)?;
        let report = Self(Mutex::new(ReportLines {
            file,
            launches: 0,
            findings: 0,
            leaks: 0,
        }));
        let capability = format!("{major}.{minor}");
        report.lock().write(
            "start",
            JsonObject::new().text("compute_capability", &capability),
        );
        Ok(report)
    }

    fn lock(&self) -> MutexGuard<'_, ReportLines> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Writes a line for a kernel that ran.
    pub(crate) fn launch(&self, launch: JsonObject) {
        let mut lines = self.lock();
        lines.launches += 1;
        lines.write("launch", launch);
    }

    /// Writes a line for a finding.
    ///
    /// `text` begins with the class of the finding or with the call that was refused.
    pub(crate) fn finding(&self, text: &str, details: &Details) {
        let (class, _) = text.split_once(": ").unwrap_or(("Other", text));
        let class = match class {
            call if call.starts_with("cu") => "Refused",
            class if class.bytes().all(|byte| byte.is_ascii_alphabetic()) => class,
            _ => "Other",
        };
        let object = JsonObject::new()
            .text("class", class)
            .text("text", text)
            .and(&details.0);
        let mut lines = self.lock();
        lines.findings += 1;
        lines.write("finding", object);
    }

    /// Writes a line for an object that the program did not release.
    pub(crate) fn leak(&self, leak: JsonObject) {
        let mut lines = self.lock();
        lines.leaks += 1;
        lines.write("leak", leak);
    }

    /// Writes the last line. `forgot` is true if work was dropped before it was compared with all
    /// concurrent work.
    pub(crate) fn end(&self, forgot: bool) {
        let mut lines = self.lock();
        let counts = JsonObject::new()
            .number("launches", lines.launches)
            .number("findings", lines.findings);
        let counts = counts.number("leaks", lines.leaks).number("forgot", forgot);
        lines.write("end", counts);
    }
}

impl ReportLines {
    /// Writes a line and ignores errors, because the report must not change the behavior of the
    /// program.
    fn write(&mut self, kind: &str, object: JsonObject) {
        let line = JsonObject::new()
            .text("kind", kind)
            .number("process", std::process::id());
        let line = format!("{{{},{}}}\n", line.0, object.0);
        let _ = self.file.write_all(line.as_bytes());
    }
}

/// The data of a finding in addition to its text.
#[derive(Clone, Debug, Default)]
pub(crate) struct Details(JsonObject);

impl Details {
    /// Returns the thread and the responsible instructions of a fault.
    pub(crate) fn of_fault(fault: &Fault) -> Self {
        let mut object = JsonObject::new()
            .text("kernel", &fault.kernel)
            .numbers("block", fault.block)
            .numbers("thread", fault.thread)
            .text("what", &fault.what)
            .text("instead", fault.instead)
            .number("rank", fault.class.rank());
        if let Some(location) = fault.location() {
            object = object.text("memory", &location);
        }
        if let Some(address) = fault.address {
            object = object.hex("address", address);
        }

        // The place of this thread comes first, then the place of the thread it conflicts with.
        let own = fault
            .place
            .as_ref()
            .map(|place| of_place(&fault.kernel, "", place));
        let other = |other: &OtherPlace| {
            of_place(
                &fault.kernel,
                &format!("{} {}", other.who, other.did),
                &other.place,
            )
        };
        let other = fault.other.as_ref().map(other);
        let calls = fault
            .calls
            .iter()
            .map(|call| of_place(&fault.kernel, "", call));
        Self(
            object
                .objects("places", own.into_iter().chain(other))
                .objects("calls", calls),
        )
    }

    /// Returns the instructions of two kernels that access the same bytes.
    pub(crate) fn of_conflict(conflict: &Conflict) -> Self {
        let (did, does) = deeds(conflict.kind);
        let Conflict {
            address,
            first,
            second,
            ..
        } = conflict;
        let places = [
            of_place(&first.0, did, &first.1),
            of_place(&second.0, does, &second.1),
        ];
        Self(
            JsonObject::new()
                .text("kernel", &second.0)
                .hex("address", *address)
                .objects("places", places.into_iter()),
        )
    }
}

/// Returns verbs for the two sides of a conflict.
pub(crate) fn deeds(kind: ConflictKind) -> (&'static str, &'static str) {
    match kind {
        ConflictKind::WriteWrite => ("writes", "writes"),
        ConflictKind::WriteRead => ("writes", "reads"),
        ConflictKind::ReadWrite => ("reads", "writes"),
    }
}

/// Describes a line of a kernel and the access there. A copy or a fill has no line.
fn of_place(kernel: &str, did: &str, place: &SourcePlace) -> JsonObject {
    let object = JsonObject::new().text("kernel", kernel).text("did", did);
    if place.line == 0 {
        return object;
    }

    let object = object
        .number("line", place.line)
        .number("column", place.column)
        .text("text", &place.text);
    match &place.rust {
        None => object,
        Some(source) => object
            .text("file", &source.file)
            .number("file_line", source.line)
            .number("file_column", source.column)
            .objects("inlined_at", place.callers.iter().map(of_source)),
    }
}

fn of_source(source: &RustPlace) -> JsonObject {
    let object = JsonObject::new()
        .text("file", &source.file)
        .number("file_line", source.line);
    object.number("file_column", source.column)
}

/// The fields of a JSON object, in the order in which they were added.
#[derive(Clone, Debug, Default)]
pub(crate) struct JsonObject(String);

impl JsonObject {
    pub(crate) fn new() -> Self {
        Self(String::new())
    }

    /// Returns the fields of both objects.
    fn and(mut self, other: &Self) -> Self {
        let comma = if self.0.is_empty() || other.0.is_empty() {
            ""
        } else {
            ","
        };
        self.0 += &format!("{comma}{}", other.0);
        self
    }

    fn field(mut self, name: &str, value: &str) -> Self {
        let comma = if self.0.is_empty() { "" } else { "," };
        self.0 += &format!("{comma}\"{name}\":{value}");
        self
    }

    pub(crate) fn number(self, name: &str, value: impl Display) -> Self {
        self.field(name, &value.to_string())
    }

    /// Adds an address or a handle as text, because it may exceed the integers that JSON readers
    /// support.
    pub(crate) fn hex(self, name: &str, value: u64) -> Self {
        self.field(name, &format!("\"0x{value:x}\""))
    }

    pub(crate) fn numbers(self, name: &str, values: [u32; 3]) -> Self {
        let [x, y, z] = values;
        self.field(name, &format!("[{x},{y},{z}]"))
    }

    pub(crate) fn text(self, name: &str, text: &str) -> Self {
        self.field(name, &quoted(text))
    }

    fn objects(self, name: &str, objects: impl Iterator<Item = Self>) -> Self {
        let all: Vec<String> = objects.map(|object| format!("{{{}}}", object.0)).collect();
        self.field(name, &format!("[{}]", all.join(",")))
    }
}

/// Returns a JSON string.
fn quoted(text: &str) -> String {
    let mut quoted = String::from('"');
    for c in text.chars() {
        match c {
            '"' | '\\' => quoted.extend(['\\', c]),
            '\n' => quoted += "\\n",
            c if c < ' ' => quoted += &format!("\\u{:04x}", c as u32),
            c => quoted.push(c),
        }
    }

    quoted.push('"');
    quoted
}
