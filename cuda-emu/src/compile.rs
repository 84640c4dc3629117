//! PTX text into a module, with the checks, the logs and the codes of the driver's compiler.

use std::sync::Arc;

use ptx_emu::{Kernel, ParseErrors};
use warpwright_driver_sys::CUresult;

use crate::config::EmulatorConfig;
use crate::error::{Error, Result};

pub(crate) fn info_text(parsed: &ptx_emu::Module) -> String {
    let line = |k: &Arc<Kernel>| {
        let shared = k.static_shared;
        format!("info    : Function '{}': {} registers, {shared} bytes shared\n", k.name, k.registers)
    };
    parsed.kernels().map(line).collect()
}

/// Checks the text in the order in which the driver does: is it PTX, its version, its target, then its contents.
pub(crate) fn compile(config: &EmulatorConfig, image: &[u8]) -> Result<ptx_emu::Module> {
    let garbage = || Error::new(CUresult::INVALID_IMAGE, "the image is no PTX text");
    let text = std::str::from_utf8(image).map_err(|_| garbage())?;
    let version = directive(text, ".version").ok_or_else(garbage)?;
    check_version(config, version)?;
    if let Some(target) = directive(text, ".target") {
        check_target(config, target.split(',').next().unwrap_or_default().trim())?;
    }
    ptx_emu::Module::parse(text).map_err(|errors| Error::new(CUresult::INVALID_PTX, log_text(&errors)))
}

/// The rest of the first line that begins with a directive, without its comment.
fn directive<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    let rest = text.lines().find_map(|line| line.trim_start().strip_prefix(name))?;
    rest.starts_with(char::is_whitespace).then(|| rest.split("//").next().unwrap_or_default().trim())
}

fn check_version(config: &EmulatorConfig, text: &str) -> Result {
    let parsed =
        text.split_once('.').and_then(|(a, b)| Some((a.parse::<u32>().ok()?, b.parse::<u32>().ok()?)));
    let newest = config.ptx_version();
    match parsed {
        None => {
            Err(Error::new(CUresult::INVALID_PTX, format!("error   : `.version {text}` is no version\n")))
        }
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
    let number = target.trim_start_matches("sm_").trim_end_matches(['a', 'f']).parse::<u32>();
    let fits = match number {
        Ok(number) if target.ends_with('a') => number == device,
        Ok(number) if target.ends_with('f') => number / 10 == major && number <= device,
        Ok(number) => number <= device,
        // What is no architecture at all is a matter of the parser.
        Err(_) => true,
    };
    let text = || format!("fatal   : .target {target} does not fit the device, which is sm_{device}\n");
    if fits { Ok(()) } else { Err(Error::new(CUresult::NO_BINARY_FOR_GPU, text())) }
}

/// The errors as the driver's compiler prints them, each followed by its line of text.
fn log_text(errors: &ParseErrors) -> String {
    let line = |e: &ptx_emu::ParseError| {
        format!(
            "ptxas application ptx input, line {}; error   : {} (column {})\n    {}\n",
            e.line, e.what, e.column, e.text
        )
    };
    errors.0.iter().map(line).collect::<String>() + "ptxas fatal   : Ptx assembly aborted due to errors\n"
}
