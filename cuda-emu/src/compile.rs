//! PTX text into a module, with the checks, the logs and the codes of the driver's compiler.

use std::sync::Arc;

use ptx_emu::{ErrorKind, Kernel, ParseError, RefusedKernel};
use warpwright_driver_sys::CUresult;

use crate::config::EmulatorConfig;
use crate::error::{Error, Result};
use crate::image;

/// Errors of a text that a log names.
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

/// Checks the text in the order in which the driver does: is it PTX, its version, its target, then its contents.
///
/// What ptxas would refuse is refused here. A kernel that only the emulator cannot run is refused when it is asked for.
pub(crate) fn compile(config: &EmulatorConfig, image: &[u8]) -> Result<ptx_emu::Module> {
    let garbage = || Error::new(CUresult::INVALID_IMAGE, "the image is no PTX text");
    let image = image::text(config, image)?;
    let text = std::str::from_utf8(&image).map_err(|_| garbage())?;
    let version = directive(text, ".version").ok_or_else(garbage)?;
    check_version(config, version)?;
    if let Some(target) = directive(text, ".target") {
        check_target(config, target.split(',').next().unwrap_or_default().trim())?;
    }
    let invalid = |errors: &[ParseError]| Error::new(CUresult::INVALID_PTX, log_text(errors));
    let parsed = ptx_emu::Module::parse(text).map_err(|errors| invalid(&errors.0))?;
    match parsed
        .errors()
        .iter()
        .any(|error| error.kind == ErrorKind::IllFormed)
    {
        true => Err(invalid(parsed.errors())),
        false => Ok(parsed),
    }
}

/// The rest of the first line that begins with a directive, without its comment.
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
            format!("error   : `.version {text}` is no version\n"),
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

/// A target above the device is refused; one with the suffix `a` or `f` fits its own device only.
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
        // What is no architecture at all is a matter of the parser.
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

/// The errors as the driver's compiler prints them, each followed by its line of text.
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

/// Several texts as one: the newest `.version` and `.target` of them, then their bodies. What one declares `.extern` and
/// another defines is declared no more.
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

/// The numbers in a version or a target, for comparison.
fn numbers(text: &str) -> Vec<u32> {
    text.split(|c: char| !c.is_ascii_digit())
        .filter_map(|part| part.parse().ok())
        .collect()
}

/// Whether a line declares a variable that one of the texts defines.
fn is_resolved(line: &str, texts: &[(String, String)]) -> bool {
    let Some(declared) = line.trim().strip_prefix(".extern").and_then(variable) else {
        return false;
    };
    let mut lines = texts.iter().flat_map(|(_, text)| text.lines());
    lines.any(|line| line.trim().strip_prefix(".visible").and_then(variable) == Some(declared))
}

/// The name of the variable that a line declares in the global or the constant space.
fn variable(line: &str) -> Option<&str> {
    let words = line.trim();
    if !words.starts_with(".global") && !words.starts_with(".const") {
        return None;
    }
    let end = words.find([';', '=', '[']).unwrap_or(words.len());
    words[..end].split_whitespace().last()
}
