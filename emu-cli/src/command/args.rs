//! The options of the command.

use std::path::PathBuf;
use std::time::Duration;

use super::exec;
use super::help::HELP;
use super::report::profile::TracedThread;
use super::values::argument::{EmuArgument, EmuConstant, Expectation, extent};

/// The options of `warpwright emu`.
#[derive(clap::Args)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true, after_help = HELP)]
pub struct Args {
    #[command(subcommand)]
    pub(crate) command: Option<EmuCommand>,
    /// File with PTX text; - is standard input
    #[arg(value_name = "FILE.ptx", required = true)]
    pub(crate) file: Option<PathBuf>,
    /// Count the forms of instructions that the emulator does not support
    #[arg(long, conflicts_with_all = ["kernel", "json"])]
    pub(crate) missing: bool,
    #[command(flatten)]
    pub(crate) launch: LaunchArgs,
    #[command(flatten)]
    pub(crate) checks: CheckArgs,
}

#[derive(clap::Subcommand)]
pub(crate) enum EmuCommand {
    /// Run a program on the emulated CUDA driver, and report errors of its kernels
    Exec(exec::Args),
}

/// Options of the launch.
#[derive(clap::Args)]
#[command(next_help_heading = "Launch")]
pub(crate) struct LaunchArgs {
    /// Kernel to run [default: list the kernels]
    #[arg(short, long, value_name = "NAME")]
    pub(crate) kernel: Option<String>,
    /// Number of blocks in the grid, such as 4 or 4,2,1 [default: 1]
    #[arg(long, value_name = "X,Y,Z", value_parser = extent, requires = "kernel")]
    pub(crate) grid: Option<[u32; 3]>,
    /// Number of threads in a block [default: .reqntid or .maxntid of the kernel]
    ///
    /// A kernel that declares neither needs this option, unless it does not read its thread and
    /// block indices. Such a kernel runs with one thread.
    #[arg(long, value_name = "X,Y,Z", value_parser = extent, requires = "kernel")]
    pub(crate) block: Option<[u32; 3]>,
    /// Number of blocks in a cluster [default: .reqnctapercluster of the kernel]
    #[arg(long, value_name = "X,Y,Z", value_parser = extent, requires = "kernel")]
    pub(crate) cluster: Option<[u32; 3]>,
    /// Size of the dynamic shared memory in bytes
    #[arg(long, value_name = "BYTES", default_value_t = 0, requires = "kernel")]
    pub(crate) smem: u32,
    /// Make the launch cooperative, so that blocks may wait for each other
    #[arg(long, requires = "kernel")]
    pub(crate) cooperative: bool,
    /// Value of a parameter, in one of the forms listed below; can be repeated
    #[arg(long = "arg", value_name = "NAME=VALUE", requires = "kernel")]
    pub(crate) args: Vec<EmuArgument>,
    /// Content of a .const or .global variable, such as taps=f32:1,2,3 or taps=file:FILE.npy; can
    /// be repeated
    ///
    /// A variable that is a texture reference takes @TEXTURE, where TEXTURE is the name of an
    /// --arg.
    #[arg(long = "const", value_name = "NAME=VALUES", requires = "kernel")]
    pub(crate) constants: Vec<EmuConstant>,
    /// Seed for the random content of buffers
    #[arg(long, value_name = "N", default_value_t = 0, requires = "kernel")]
    pub(crate) data_seed: u64,
}

/// Options of the checks.
#[derive(clap::Args)]
#[command(next_help_heading = "Checks")]
pub(crate) struct CheckArgs {
    /// Content that a buffer must have after the launch, with an optional tolerance; can be
    /// repeated
    ///
    /// FILL is written as in --arg. The tolerance is multiplied by the larger of 1 and the absolute
    /// value.
    #[arg(
        long = "expect",
        value_name = "NAME=FILL[~TOLERANCE]",
        requires = "kernel"
    )]
    pub(crate) expect: Vec<Expectation>,
    /// Number of schedules (orders of blocks and warps) to try
    #[arg(long, value_name = "N", default_value_t = 4, requires = "kernel",
          value_parser = clap::value_parser!(u64).range(1..=100_000))]
    pub(crate) schedules: u64,
    /// Try only the schedule with seed N
    #[arg(long, value_name = "N", requires = "kernel", conflicts_with = "schedules",
          value_parser = clap::value_parser!(u64).range(..u64::MAX))]
    pub(crate) seed: Option<u64>,
    /// Also find races on global memory, which takes longer
    #[arg(long, requires = "kernel")]
    pub(crate) race: bool,
    /// Largest memory for the record of accesses in --race, such as 500M or 16G [default: 4G]
    ///
    /// A launch that needs more ends with a finding.
    #[arg(long, value_name = "SIZE", requires = "race", value_parser = size)]
    pub(crate) race_memory: Option<u64>,
    /// Report races whose result does not depend on the order as findings instead of notes
    #[arg(long, requires = "kernel")]
    pub(crate) strict: bool,
    /// Also find divisions by zero, the first NaN or infinity, and conversions out of range
    ///
    /// A conversion is out of range if the integer type cannot represent the float. The check takes
    /// up to three times as long.
    #[arg(long, requires = "kernel")]
    pub(crate) arithmetic: bool,
    /// Also find addresses that were derived from one buffer or variable and point into another
    ///
    /// The check takes up to three times as long.
    #[arg(long, requires = "kernel")]
    pub(crate) provenance: bool,
    /// Continue after a finding, with other blocks and other schedules
    #[arg(long, requires = "kernel")]
    pub(crate) all: bool,
    /// Print the instructions of one thread with their register values, in one schedule
    #[arg(long, value_name = "BLOCK,THREAD", requires = "kernel", conflicts_with_all = ["schedules", "stats"])]
    pub(crate) trace: Option<TracedThread>,
    /// Print counts of instructions, bytes, sectors, bank conflicts and divergence, in one schedule
    #[arg(long, requires = "kernel", conflicts_with = "schedules")]
    pub(crate) stats: bool,
    /// Time limit of a launch in one schedule, in seconds
    #[arg(long, value_name = "SECONDS", default_value = "60", requires = "kernel", value_parser = seconds)]
    pub(crate) timeout: Duration,
    /// File for the findings as JSON
    #[arg(long, value_name = "FILE", requires = "kernel")]
    pub(crate) json: Option<PathBuf>,
}

/// Parses the value of --timeout.
fn seconds(text: &str) -> Result<Duration, String> {
    let seconds = text.parse().ok().filter(|seconds| *seconds > 0.0);
    let duration = seconds.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
    duration.ok_or_else(|| "expected a number of seconds, such as 60 or 0.5".into())
}

/// Parses a number of bytes. The suffixes K, M and G are powers of 1024.
fn size(text: &str) -> Result<u64, String> {
    let (digits, shift) = match text.as_bytes() {
        [digits @ .., b'K' | b'k'] => (digits.len(), 10),
        [digits @ .., b'M' | b'm'] => (digits.len(), 20),
        [digits @ .., b'G' | b'g'] => (digits.len(), 30),
        digits => (digits.len(), 0),
    };
    let number = text[..digits]
        .parse::<u64>()
        .ok()
        .filter(|number| *number > 0);
    let bytes = number.and_then(|number| number.checked_mul(1 << shift));
    bytes.ok_or_else(|| "expected a number of bytes, such as 1000000, 500M or 16G".into())
}
