//! The list of kernels in a file, with the errors and unsupported instructions of each.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::path::Path;

use ptx_emu::{ErrorKind, Kernel, Module, Param, ParseError, ParseErrors};

use super::invocation::Invocation;
use super::proposal::{self, Prints};
use crate::failure::Failure;
use crate::terminal::{counted, printable};

/// The largest number of errors, and of unsupported forms, that are listed for a kernel. The others
/// are counted.
const NAMED: usize = 3;

/// Prints the kernels with their parameters and errors, and a command that runs one of them.
///
/// # Errors
/// Returns an error if the file has errors, or if a kernel cannot run.
pub(crate) fn list(
    path: &Path,
    module: &Module,
    prints: Prints,
    invocation: Invocation,
) -> Result<(), Failure> {
    let mut out = io::stdout().lock();
    let runs = module.kernels().count();
    let refused = module.refused().count();
    let (major, minor) = module.version();
    writeln!(
        out,
        "{}: .version {major}.{minor}, .target {}; {}",
        path.display(),
        module.target(),
        kernels(runs, refused)
    )?;
    for kernel in module.kernels() {
        writeln!(
            out,
            "\n{}\n    {}",
            signature(&kernel.name, &kernel.params),
            needs(kernel)
        )?;
    }

    for kernel in module.refused() {
        writeln!(out, "\n{}", signature(&kernel.name, &kernel.params))?;
        write!(out, "{}", printable(&lacks(&kernel.errors.0)))?;
    }

    for function in module.refused_functions() {
        writeln!(
            out,
            "\nfunction {}, which no kernel above calls",
            printable(&function.name)
        )?;
        write!(out, "{}", printable(&lacks(&function.errors.0)))?;
    }

    if !module.declaration_errors().is_empty() {
        writeln!(out, "\ndeclarations")?;
        write!(out, "{}", printable(&lacks(module.declaration_errors())))?;
    }

    let variables: Vec<String> = module
        .variables()
        .map(|v| format!("{} ({} bytes)", v.name, v.bytes))
        .collect();
    if !variables.is_empty() {
        writeln!(out, "\nvariables: {}", variables.join(", "))?;
    }

    if let Some(kernel) = module.kernels().next() {
        writeln!(
            out,
            "\nTo run a kernel:\n  {}",
            proposal::command(path, module, kernel, prints, invocation)
        )?;
    }

    if let Some(sentence) = ill_formed(path, module.errors()) {
        return Err(Failure::Input(sentence));
    }

    match (runs, refused) {
        (_, 0) => Ok(()),
        (0, _) => Err(Failure::Input("none of the kernels can run here".into())),
        // The file can be used, but a script must notice that a part of it was not checked.
        _ => Err(Failure::Shown),
    }
}

/// Returns the number of kernels, and the number of those that cannot run.
fn kernels(runs: usize, refused: usize) -> String {
    let all = counted(runs + refused, "kernel");
    match (runs, refused) {
        (_, 0) => all,
        (0, 1) => format!("{all}, which cannot run"),
        (0, _) => format!("{all}, none of which can run"),
        _ => format!("{all}, {refused} of which cannot run"),
    }
}

/// Returns the signature of a kernel, for example `name(x: .u64, n: .u32)`.
///
/// nvcc and Triton put the name of the kernel in front of parameter names. It is left out.
fn signature(kernel: &str, params: &[Param]) -> String {
    let prefix = format!("{kernel}_param");
    let name = |param: &Param| {
        if param.name.starts_with(&prefix) {
            param.name[kernel.len() + 1..].to_owned()
        } else {
            param.name.clone()
        }
    };
    let params: Vec<String> = params
        .iter()
        .map(|param| format!("{}: {}", name(param), param.ty))
        .collect();
    printable(&format!("{kernel}({})", params.join(", "))).into_owned()
}

/// Returns the requirements of a launch: block size, cluster size and shared memory.
fn needs(kernel: &Kernel) -> String {
    let size = |[x, y, z]: [u32; 3]| format!("{x}x{y}x{z}");
    let mut parts = vec![match (kernel.reqntid, kernel.maxntid) {
        (Some(threads), _) => format!("blocks of {} threads", size(threads)),
        (None, Some(most)) => format!("blocks of at most {} threads", most.iter().product::<u32>()),
        (None, None) => "blocks of any size".into(),
    }];
    parts.extend(
        kernel
            .cluster
            .map(|blocks| format!("clusters of {}", size(blocks))),
    );
    parts.push(format!(
        "{} bytes of static shared memory",
        kernel.static_shared
    ));
    parts.extend(
        kernel
            .dynamic_shared()
            .map(|name| format!("dynamic shared memory `{name}` (--smem BYTES)")),
    );
    parts.join(", ")
}

/// Returns the number of errors in the text and the first of them, or `None` if everything in it
/// could be read.
fn ill_formed(path: &Path, errors: &[ParseError]) -> Option<String> {
    let mut ill = errors
        .iter()
        .filter(|error| error.kind == ErrorKind::IllFormed);
    let first = ill.next()?;
    let path = path.display();
    let line = first.line;
    Some(match ill.count() {
        0 => format!(
            "{path} has an error in line {line}: {}",
            printable(&first.what)
        ),
        more => {
            format!(
                "{path} has {} errors, the first in line {line}: {}",
                more + 1,
                printable(&first.what)
            )
        }
    })
}

/// Returns the first errors of the text and the first forms that the emulator lacks, and the
/// numbers of the others.
fn lacks(errors: &[ParseError]) -> String {
    let ill: Vec<_> = errors
        .iter()
        .filter(|error| error.kind == ErrorKind::IllFormed)
        .collect();
    let mut text: String = ill
        .iter()
        .take(NAMED)
        .map(|error| format!("    {error}\n"))
        .collect();
    if let more @ 1.. = ill.len().saturating_sub(NAMED) {
        text += &format!("    and {}\n", counted(more, "more error"));
    }

    let forms = forms(errors);
    if !forms.is_empty() {
        let named: Vec<String> = forms
            .iter()
            .take(NAMED)
            .map(|(form, (n, line))| shown(form, *n, *line))
            .collect();
        let more = forms.len().saturating_sub(NAMED);
        let more = if more == 0 {
            String::new()
        } else {
            format!(", and {more} more forms (--missing)")
        };
        text += &format!("    the emulator lacks {}{more}\n", named.join(", "));
    }

    text
}

/// Returns an unsupported form with its count and its first line.
fn shown(form: &str, count: usize, line: u32) -> String {
    match count {
        1 => format!("{form} (line {line})"),
        _ => format!("{form} ({count} times, first in line {line})"),
    }
}

/// Returns the unsupported forms with their counts and first lines, most frequent first.
fn forms(errors: &[ParseError]) -> Vec<(&str, (usize, u32))> {
    let mut forms: BTreeMap<&str, (usize, u32)> = BTreeMap::new();
    for error in errors {
        if let ErrorKind::Unsupported(form) = &error.kind {
            let (count, _) = forms.entry(form).or_insert((0, error.line));
            *count += 1;
        }
    }

    let mut forms: Vec<_> = forms.into_iter().collect();
    forms.sort_by_key(|(form, (count, _))| (std::cmp::Reverse(*count), *form));
    forms
}

/// Prints the unsupported forms with their counts.
///
/// # Errors
/// Returns an error if there is an unsupported form or another error in the file.
pub(crate) fn missing(path: &Path, module: &Result<Module, ParseErrors>) -> Result<(), Failure> {
    let errors = match module {
        Ok(module) => module.errors(),
        Err(errors) => &errors.0,
    };
    let mut out = io::stdout().lock();
    let forms = forms(errors);
    let all = errors.len();
    for (form, (count, line)) in &forms {
        writeln!(
            out,
            "{count:6}  {}  (first in line {line})",
            printable(form)
        )?;
    }

    let lacking: usize = forms.iter().map(|(_, (count, _))| count).sum();
    let file = path.display();
    if lacking == 0 {
        writeln!(out, "{file}: the emulator lacks nothing")?;
    } else {
        let lacks = counted(forms.len(), "form");
        let places = counted(lacking, "place");
        writeln!(out, "{file}: the emulator lacks {lacks}, in {places}")?;
    }

    drop(out);
    let ill: Vec<ParseError> = errors
        .iter()
        .filter(|error| error.kind == ErrorKind::IllFormed)
        .cloned()
        .collect();
    if !ill.is_empty() {
        Err(unusable(path, &ParseErrors(ill)))
    } else if all == 0 {
        Ok(())
    } else {
        Err(Failure::Shown)
    }
}

/// Returns the failure about a file with errors.
pub(crate) fn unusable(path: &Path, errors: &ParseErrors) -> Failure {
    Failure::Input(format!("{} cannot be used:\n{errors}", path.display()))
}
