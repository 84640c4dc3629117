//! Compiles PTX text into a module, with the checks, the log and the error codes of the driver's
//! compiler.

use std::sync::Arc;

use ptx_emu::{ErrorKind, Kernel, ParseError, RefusedKernel};
use warpwright_driver_sys::CUresult;

use crate::config::EmulatorConfig;
use crate::error::{Error, Result};
use crate::image;

/// The maximum number of errors in a log.
const MOST_LINES: usize = 20;

pub(crate) fn info_text(parsed: &ptx_emu::Module) -> String {
    let line = |k: &Arc<Kernel>| {
        let shared = k.static_shared;
        format!(
            "info    : Function '{}': {} registers, {shared} bytes shared\n",
            k.name, k.registers
        )
    };
    let refused = |k: &RefusedKernel| {
        format!(
            "warning : Function '{}' cannot run here:\n{}",
            k.name,
            lines(&k.errors.0, "warning ")
        )
    };
    parsed
        .kernels()
        .map(line)
        .chain(parsed.refused().map(refused))
        .collect()
}

/// Compiles PTX text. The checks run in the order of the driver: format, version, target, contents.
///
/// An error that ptxas reports is an error here. A kernel that only the emulator cannot run is an
/// error when the program asks for it.
pub(crate) fn compile(config: &EmulatorConfig, image: &[u8]) -> Result<ptx_emu::Module> {
    // Each check has its own error code, so the order decides the result for text with several
    // errors.
    let garbage = || Error::new(CUresult::INVALID_IMAGE, "the image is not PTX text");
    let image = image::text(config, image)?;
    let text = std::str::from_utf8(&image).map_err(|_| garbage())?;
    let version = directive(text, ".version").ok_or_else(garbage)?;
    check_version(config, version)?;
    if let Some(target) = directive(text, ".target") {
        check_target(config, target.split(',').next().unwrap_or_default().trim())?;
    }

    let invalid = |errors: &[ParseError]| Error::new(CUresult::INVALID_PTX, log_text(errors));
    let parsed = ptx_emu::Module::parse(text).map_err(|errors| invalid(&errors.0))?;
    let ill_formed = |error: &ParseError| error.kind == ErrorKind::IllFormed;
    if parsed.errors().iter().any(ill_formed) {
        return Err(invalid(parsed.errors()));
    }

    Ok(parsed)
}

/// Returns the rest of the first line that begins with a directive, without its comment.
fn directive<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    let rest = text
        .lines()
        .find_map(|line| line.trim_start().strip_prefix(name))?;
    rest.starts_with(char::is_whitespace)
        .then(|| rest.split("//").next().unwrap_or_default().trim())
}

fn check_version(config: &EmulatorConfig, text: &str) -> Result {
    let parsed = text
        .split_once('.')
        .and_then(|(a, b)| Some((a.parse::<u32>().ok()?, b.parse::<u32>().ok()?)));
    let newest = config.ptx_version();
    match parsed {
        None => Err(Error::new(
            CUresult::INVALID_PTX,
            format!("error   : `.version {text}` is not a version\n"),
        )),
        Some(version) if version > newest => Err(Error::new(
            CUresult::UNSUPPORTED_PTX_VERSION,
            format!(
                "fatal   : Unsupported .version {text}; current version is '{}.{}'\n",
                newest.0, newest.1
            ),
        )),
        Some(_) => Ok(()),
    }
}

/// Checks the target. It must not be newer than the device, and with the suffix `a` or `f` it must
/// match.
fn check_target(config: &EmulatorConfig, target: &str) -> Result {
    let (major, minor) = config.compute_capability;
    let device = major * 10 + minor;
    let number = target
        .trim_start_matches("sm_")
        .trim_end_matches(['a', 'f'])
        .parse::<u32>();
    let fits = match number {
        Ok(number) if target.ends_with('a') => number == device,
        Ok(number) if target.ends_with('f') => number / 10 == major && number <= device,
        Ok(number) => number <= device,
        // The parser reports a target that is not an architecture.
        Err(_) => true,
    };
    let text =
        || format!("fatal   : .target {target} does not fit the device, which is sm_{device}\n");
    if fits {
        Ok(())
    } else {
        Err(Error::new(CUresult::NO_BINARY_FOR_GPU, text()))
    }
}

/// Returns the errors as the driver's compiler prints them, each followed by its line of text.
fn log_text(errors: &[ParseError]) -> String {
    lines(errors, "error   ") + "ptxas fatal   : Ptx assembly aborted due to errors\n"
}

fn lines(errors: &[ParseError], level: &str) -> String {
    let line = |e: &ParseError| {
        format!(
            "ptxas application ptx input, line {}; {level}: {} (column {})\n    {}\n",
            e.line, e.what, e.column, e.text
        )
    };
    errors.iter().take(MOST_LINES).map(line).collect()
}

/// Links several texts into one: the newest `.version` and `.target`, then the bodies of all texts.
///
/// An `.extern` declaration is removed if another text defines the variable.
pub(crate) fn merge(texts: &[(String, String)]) -> String {
    let newest = |name: &str| {
        let values = texts.iter().filter_map(|(_, text)| directive(text, name));
        values
            .max_by_key(|value| numbers(value))
            .unwrap_or_default()
            .to_string()
    };
    let mut merged = format!(
        ".version {}\n.target {}\n.address_size 64\n",
        newest(".version"),
        newest(".target")
    );
    let header = |line: &&str| {
        [".version", ".target", ".address_size"]
            .iter()
            .any(|name| line.trim_start().starts_with(name))
    };

    // A header in the middle of the merged text would be an error.
    for (name, text) in texts {
        merged += &format!("\n// {}\n", name.replace(char::is_control, " "));
        for line in text.lines().filter(|line| !header(line)) {
            if !is_resolved(line, texts) {
                merged += line;
                merged.push('\n');
            }
        }
    }

    merged
}

/// Returns the numbers in a version or a target, for comparison.
fn numbers(text: &str) -> Vec<u32> {
    text.split(|c: char| !c.is_ascii_digit())
        .filter_map(|part| part.parse().ok())
        .collect()
}

/// Returns true if a line declares a variable that one of the texts defines.
fn is_resolved(line: &str, texts: &[(String, String)]) -> bool {
    let Some(declared) = line.trim().strip_prefix(".extern").and_then(variable) else {
        return false;
    };
    let mut lines = texts.iter().flat_map(|(_, text)| text.lines());
    lines.any(|line| line.trim().strip_prefix(".visible").and_then(variable) == Some(declared))
}

/// Returns the name of the variable that a line declares in the global or the constant space.
fn variable(line: &str) -> Option<&str> {
    let words = line.trim();
    if !words.starts_with(".global") && !words.starts_with(".const") {
        return None;
    }
    let end = words.find([';', '=', '[']).unwrap_or(words.len());
    words[..end].split_whitespace().last()
}
