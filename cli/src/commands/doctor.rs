//! `warpwright doctor`: checks the driver, the GPUs and the kernel cache, and suggests fixes.

use std::env;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use comfy_table::{Table, presets};
use tempfile::tempfile_in;
use warpwright_driver::device::Device;
use warpwright_driver::{Context, Driver};

use crate::device::{self, kernel_check};
use crate::failure::{Failure, sentence};
use warpwright_emu::VERSION;
use warpwright_emu::terminal::printable;

/// The result of a check, with a text for the user.
enum Diagnosis {
    Fine(String),
    /// The part is missing, and the program works without it.
    Absent(String),
    /// The text has the problem and the fix.
    Wrong(String),
}

use Diagnosis::{Absent, Fine, Wrong};

pub(crate) fn run() -> Result<(), Failure> {
    let mut lines = vec![("program".to_owned(), Fine(format!("warpwright {VERSION}")))];
    let driver = Driver::load().map_err(|error| sentence(&error));
    lines.push(("driver".to_owned(), self::driver(driver.as_ref())));

    // Without a driver there is no GPU to check, and the line about the driver explains that.
    let devices = driver.as_ref().map_or(Ok(vec![]), Driver::devices);
    match devices {
        Ok(devices) => {
            for gpu in &devices {
                lines.push((format!("cuda:{}", gpu.ordinal()), self::gpu(gpu)));
            }
        }
        Err(error) => lines.push((
            "GPUs".to_owned(),
            Wrong(format!("{}; {REINSTALL}", sentence(&error))),
        )),
    }

    lines.push(("cache".to_owned(), cache(driver.is_ok())));
    lines.push(("emulator".to_owned(), emulator()));
    writeln!(io::stdout(), "{}", printable(&table(&lines).trim_fmt()))?;
    let is_wrong = |(_, diagnosis): &(String, Diagnosis)| matches!(diagnosis, Wrong(_));
    if lines.iter().any(is_wrong) {
        Err(Failure::Shown)
    } else {
        Ok(())
    }
}

/// Returns a table with a row for each check.
fn table(lines: &[(String, Diagnosis)]) -> Table {
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    for (name, diagnosis) in lines {
        let (state, text) = match diagnosis {
            Fine(text) => ("fine", text),
            Absent(text) => ("-", text),
            Wrong(text) => ("TO DO", text),
        };
        table.add_row([name.as_str(), state, text]);
    }

    table
}

/// The fix for a GPU that does not work.
const REINSTALL: &str =
    "does nvidia-smi list the GPU? If not, reinstall the driver or restart the machine";
/// The lowest compute capability that the PTX of the kernels supports.
const OLDEST: (u32, u32) = (7, 5);

/// Checks the driver.
fn driver(driver: Result<&Driver, &String>) -> Diagnosis {
    match driver {
        Ok(driver) => {
            let (cuda, point) = driver.version();
            Fine(format!("{}, CUDA {cuda}.{point}", driver.origin()))
        }
        Err(reason) => Absent(format!(
            "{}; if this machine has an NVIDIA GPU, install a driver for CUDA 12.0 or newer",
            summary(reason)
        )),
    }
}

/// Returns the first line of the reason, and the line of the first library that exists and cannot
/// be used.
///
/// The reason lists every library that was tried, each in an indented line. Most of them do not
/// exist on a given machine.
fn summary(reason: &str) -> String {
    let mut lines = reason.lines();
    let first = lines.next().unwrap_or_default();
    match lines.find(|line| line.starts_with(' ') && !line.contains("No such file")) {
        Some(library) => format!("{first}: {}", library.trim()),
        None => first.to_owned(),
    }
}

/// Checks a GPU: its compute capability, and the result of a small kernel.
fn gpu(gpu: &Device) -> Diagnosis {
    let (major, minor) = gpu.compute_capability();
    let name = gpu.name();
    if (major, minor) < OLDEST {
        let (least_major, least_minor) = OLDEST;
        return Wrong(format!(
            "{name} has compute capability {major}.{minor}, and the kernels need {least_major}.{least_minor}: use \
             another GPU, or --device emu"
        ));
    }

    let tried = Context::new(gpu)
        .map_err(|error| sentence(&error))
        .and_then(|context| {
            let free = context.memory().map_err(|error| sentence(&error))?.0;
            kernel_check::smallest(&context).map(|()| free)
        });
    match tried {
        Ok(free) => Fine(format!(
            "{name}, compute capability {major}.{minor}, {:.1} GiB free, computes a test kernel correctly",
            free as f64 / f64::from(1 << 30)
        )),
        Err(problem) => Wrong(format!("{name}: {problem}; {REINSTALL}")),
    }
}

/// Checks the driver's cache of compiled kernels
/// (<https://docs.nvidia.com/cuda/cuda-c-programming-guide/#cuda-environment-variables>).
fn cache(has_driver: bool) -> Diagnosis {
    if !has_driver {
        return Absent("without a driver, no kernel is compiled".to_owned());
    }

    if env::var_os("CUDA_CACHE_DISABLE").is_some_and(|value| value != "0") {
        return Wrong(
            "CUDA_CACHE_DISABLE is set, so every start compiles the kernels again: unset it"
                .to_owned(),
        );
    }

    let usual = || Some(env::home_dir()?.join(".nv/ComputeCache"));
    let Some(folder) = env::var_os("CUDA_CACHE_PATH")
        .map(PathBuf::from)
        .or_else(usual)
    else {
        return Wrong(
            "there is no home directory for compiled kernels: set CUDA_CACHE_PATH to a folder"
                .to_owned(),
        );
    };

    // The driver creates missing folders, so the nearest existing one must be writable.
    let existing = folder
        .ancestors()
        .find(|folder| folder.exists())
        .unwrap_or(Path::new("."));
    match tempfile_in(existing) {
        Ok(_) => Fine(format!("compiled kernels are kept in {}", folder.display())),
        Err(error) => Wrong(format!(
            "{} cannot be written ({error}), so every start compiles the kernels again: set CUDA_CACHE_PATH to a \
             writable folder",
            folder.display()
        )),
    }
}

/// Checks the emulator with a small kernel.
fn emulator() -> Diagnosis {
    let context = device::emulator().and_then(|driver| Ok(Context::new(&driver.device(0)?)?));
    let tried = context.map_err(|failure| failure.sentence().unwrap_or_default().to_owned());
    let tried = tried.and_then(|context| kernel_check::smallest(&context));
    match tried {
        Ok(()) => Fine("computes a test kernel correctly".to_owned()),
        Err(problem) => Wrong(format!(
            "{problem}; this is a bug in warpwright, please report it"
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_library_that_does_not_serve_is_named() {
        let missing =
            "no CUDA driver\n  libcuda.so.1: cannot open: No such file or directory\ninstall it";
        assert_eq!(summary(missing), "no CUDA driver");
        let old = missing.replace(
            "\ninstall",
            "\n  libcuda.so: a driver for CUDA 10.0\ninstall",
        );
        assert_eq!(
            summary(&old),
            "no CUDA driver: libcuda.so: a driver for CUDA 10.0"
        );
    }
}
