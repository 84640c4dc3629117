//! `warpwright emu exec`: a program on the emulator's CUDA driver.

use crate::failure::Failure;

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Program and its arguments
    #[arg(last = true, required = true, value_name = "PROGRAM")]
    program: Vec<std::ffi::OsString>,
}

pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    Err(Failure::Input(format!("not yet: {:?}", args.program)))
}
