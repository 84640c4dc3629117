//! `warpwright emu`: runs the kernels of a PTX file on the CPU emulator, which reports memory
//! errors and races.

mod args;
mod bind;
mod checked;
mod element_types;
mod exec;
mod extents;
mod help;
mod invocation;
mod listing;
mod parameters;
mod proposal;
mod report;
mod values;

use std::fs;
use std::path::Path;

use ptx_emu::Module;

use crate::failure::Failure;
pub use args::Args;
use args::EmuCommand;
pub use invocation::Invocation;
use proposal::Prints;

/// Runs the command.
///
/// # Errors
/// Returns an error if the file or the options cannot be used, and [`Failure::Shown`] if there are
/// findings.
pub fn run(args: &Args, invocation: Invocation) -> Result<(), Failure> {
    if let Some(EmuCommand::Exec(args)) = &args.command {
        return exec::run(args);
    }

    let path = args
        .file
        .as_deref()
        .expect("clap requires a file if there is no subcommand");
    let text = read(path)?;
    let module = Module::parse(&text);
    if args.missing {
        return listing::missing(path, &module);
    }

    let module = module.map_err(|errors| listing::unusable(path, &errors))?;
    match &args.launch.kernel {
        None => {
            // A trial launch of a kernel that calls vprintf would write into the listing.
            let prints = if text.contains("vprintf") {
                Prints::Text
            } else {
                Prints::Nothing
            };
            listing::list(path, &module, prints, invocation)
        }
        Some(kernel) => {
            let file = crate::shell::quoted(&path.display().to_string());
            let listing = format!("{} {file}", invocation.words());
            let check = checked::prepare(&module, kernel, &args.launch, &args.checks, &listing);
            let json = args.checks.json.as_deref();
            checked::run(path, &check.map_err(Failure::Input)?, json, invocation)
        }
    }
}

/// Returns the text of a file.
fn read(path: &Path) -> Result<String, Failure> {
    let read = if path == Path::new("-") {
        std::io::read_to_string(std::io::stdin()).map(String::into_bytes)
    } else {
        fs::read(path)
    };
    let mut bytes =
        read.map_err(|error| Failure::Input(format!("cannot read {}: {error}", path.display())))?;

    // Text that a compiler embeds for the driver ends with zero bytes.
    while bytes.pop_if(|last| *last == 0).is_some() {}
    String::from_utf8(bytes).map_err(|_| Failure::Input(not_text(path)))
}

/// Returns the message about a file that is not text.
fn not_text(path: &Path) -> String {
    format!(
        "{} is not text: `cuobjdump -ptx` extracts the PTX of a cubin or a program, and `nvcc -ptx` compiles to PTX",
        path.display()
    )
}
