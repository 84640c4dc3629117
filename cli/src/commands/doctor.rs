//! `warpwright doctor`: whether driver, cards and cache are fine, a line each, and what to do where they are not.

use std::env;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use comfy_table::{Table, presets};
use tempfile::tempfile_in;
use warpwright_driver::{Context, Device, Driver};

use super::check;
use crate::device;
use crate::failure::{Failure, sentence};
use crate::terminal::printable;
use crate::version::VERSION;

/// What was found of something.
enum Found {
    Fine(String),
    /// It is not there, and need not be.
    Absent(String),
    /// What is wrong, and what to do.
    Wrong(String),
}

use Found::{Absent, Fine, Wrong};

pub(crate) fn run() -> Result<(), Failure> {
    let mut lines = vec![("program".to_owned(), Fine(format!("warpwright {VERSION}")))];
    let driver = Driver::load().map_err(|error| sentence(&error));
    lines.push(("driver".to_owned(), self::driver(driver.as_ref())));
    let devices = driver.as_ref().map_or(Ok(vec![]), Driver::devices);
    match devices {
        Ok(devices) => lines.extend(
            devices
                .iter()
                .map(|gpu| (format!("cuda:{}", gpu.ordinal()), card(gpu))),
        ),
        Err(error) => lines.push((
            "cards".to_owned(),
            Wrong(format!("{}; {AGAIN}", sentence(&error))),
        )),
    }
    lines.push(("cache".to_owned(), cache(driver.is_ok())));
    lines.push(("emulator".to_owned(), emulator()));
    writeln!(io::stdout(), "{}", printable(&table(&lines).trim_fmt()))?;
    let wrong = lines.iter().any(|(_, found)| matches!(found, Wrong(_)));
    if wrong { Err(Failure::Shown) } else { Ok(()) }
}

fn table(lines: &[(String, Found)]) -> Table {
    let mut table = Table::new();
    table
        .load_style(presets::NOTHING)
        .add_rows(lines.iter().map(|(what, found)| {
            let (state, text) = match found {
                Fine(text) => ("fine", text),
                Absent(text) => ("-", text),
                Wrong(text) => ("TO DO", text),
            };
            [what.as_str(), state, text]
        }));
    table
}

const AGAIN: &str =
    "does nvidia-smi list the card? If not, install the driver again, or restart the machine";
/// What the kernels' PTX needs.
const OLDEST: (u32, u32) = (7, 5);

fn driver(driver: Result<&Driver, &String>) -> Found {
    match driver {
        Ok(driver) => {
            let (cuda, point) = driver.version();
            Fine(format!("{}, CUDA {cuda}.{point}", driver.origin()))
        }
        Err(reason) => Absent(format!(
            "{}; with an NVIDIA card, install its driver, for CUDA 12.0 or newer",
            telling(reason)
        )),
    }
}

/// What the reason begins with, and the first library that is there and does not serve.
fn telling(reason: &str) -> String {
    let mut lines = reason.lines().map(str::trim);
    let first = lines.next().unwrap_or_default();
    match lines.find(|line| !line.contains("No such file")) {
        Some(library) => format!("{first}: {library}"),
        None => first.to_owned(),
    }
}

fn card(gpu: &Device) -> Found {
    let (major, minor) = gpu.compute_capability();
    let name = gpu.name();
    if (major, minor) < OLDEST {
        let (needs, point) = OLDEST;
        return Wrong(format!(
            "{name} has compute capability {major}.{minor}, the kernels need {needs}.{point}: use another card, or \
             --device emu"
        ));
    }
    let tried = Context::new(gpu)
        .map_err(|error| sentence(&error))
        .and_then(|context| {
            let free = context.memory().map_err(|error| sentence(&error))?.0;
            check::smallest(&context).map(|()| free)
        });
    match tried {
        Ok(free) => Fine(format!(
            "{name}, compute capability {major}.{minor}, {:.1} GiB free, runs a kernel right",
            free as f64 / f64::from(1 << 30)
        )),
        Err(problem) => Wrong(format!("{name}: {problem}; {AGAIN}")),
    }
}

/// The driver's cache of compiled kernels
/// (<https://docs.nvidia.com/cuda/cuda-c-programming-guide/#cuda-environment-variables>).
fn cache(driver: bool) -> Found {
    if !driver {
        return Absent("without a driver, nothing is compiled".to_owned());
    }
    if env::var_os("CUDA_CACHE_DISABLE").is_some_and(|value| value != "0") {
        return Wrong(
            "CUDA_CACHE_DISABLE is set, so each start compiles the kernels anew: unset it"
                .to_owned(),
        );
    }
    let usual = || Some(env::home_dir()?.join(".nv/ComputeCache"));
    let Some(folder) = env::var_os("CUDA_CACHE_PATH")
        .map(PathBuf::from)
        .or_else(usual)
    else {
        return Wrong(
            "there is no home folder for compiled kernels: set CUDA_CACHE_PATH to a folder"
                .to_owned(),
        );
    };
    // The driver makes the folder when it needs it.
    let there = folder
        .ancestors()
        .find(|folder| folder.exists())
        .unwrap_or(Path::new("."));
    match tempfile_in(there) {
        Ok(_) => Fine(format!("compiled kernels are kept in {}", folder.display())),
        Err(error) => Wrong(format!(
            "{} cannot be written ({error}), so each start compiles the kernels anew: set CUDA_CACHE_PATH to a folder \
             that can",
            folder.display()
        )),
    }
}

fn emulator() -> Found {
    let context = device::emulator().and_then(|driver| Ok(Context::new(&driver.device(0)?)?));
    let tried = context.map_err(|failure| failure.sentence().unwrap_or_default().to_owned());
    let tried = tried.and_then(|context| check::smallest(&context));
    match tried {
        Ok(()) => Fine("runs a kernel right".to_owned()),
        Err(problem) => Wrong(format!(
            "{problem}; this is a fault of the program: report it"
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_library_that_does_not_serve_is_named() {
        let missing = "no CUDA driver\n  libcuda.so.1: cannot open: No such file or directory";
        assert_eq!(telling(missing), "no CUDA driver");
        let old = format!("{missing}\n  libcuda.so: a driver for CUDA 10.0");
        assert_eq!(
            telling(&old),
            "no CUDA driver: libcuda.so: a driver for CUDA 10.0"
        );
    }
}
