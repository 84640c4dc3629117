//! `warpwright emu`: the kernels of a PTX file on the emulator, which refuses what a GPU lets pass.

mod argument;
mod bind;
mod checked;
mod command_line;
mod exec;
mod fill;
mod image;
mod json;
mod listing;
mod npy;
mod profile;
mod proposal;
mod words;

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use ptx_emu::Module;

use crate::failure::Failure;
use argument::{Argument, Constant, Expectation, extent};
use proposal::Prints;

/// The end of `warpwright emu --help`.
const HELP: &str = "\
Arguments (--arg NAME=VALUE, where NAME is a parameter's name or number, from 0):
  in:TYPE:COUNT[=FILL]     a buffer that the kernel may only read [FILL: rand]
  inout:TYPE:COUNT[=FILL]  a buffer that it reads and writes [FILL: rand]
  out:TYPE:COUNT           a buffer that holds nothing before the launch
  file:FILE.npy            an in buffer of what NumPy saved; also inout:file:FILE.npy
  tex2d:FORMAT:WxH[:OPTION..][=FILL]  a texture, also 1d, 3d, 1dlayered, 2dlayered, cube, cubelayered and, for
                           linear memory, 1dfetch; OPTION is linear, wrap, mirror, border, normalized or float
  surf2d:FORMAT:WxH[=FILL] a surface, of the same kinds; without FILL it holds nothing before the launch
  TYPE:VALUE               a number
  @BUFFER[+BYTES]          the address of another buffer
  struct:MEMBER,MEMBER..   a structure of numbers and addresses, as C lays it out
TYPE is u8 s8 u16 s16 u32 s32 u64 s64 f16 bf16 f32 f64; COUNT is a number or a product such as 10x100.
FORMAT is a type of up to 32 bits for each channel of a texel, with x2 or x4 for several: u8x4.
FILL is zeros, iota, const:VALUE, rand, rand:LOW:HIGH, file:FILE.npy or VALUE,VALUE..; rand alone gives floats
from -1 to 1 and integers from 0 to 99, by --data-seed.

Exit codes: 0 nothing was found; 1 something was; 2 the file or the arguments cannot be used.

Examples:
  warpwright emu saxpy.ptx
  warpwright emu saxpy.ptx -k saxpy --grid 4 --block 256 --arg n=u32:1000 --arg a=f32:2 \\
      --arg x=in:f32:1000 --arg y=inout:f32:1000 --race --schedules 32
  warpwright emu exec -- python saxpy.py";

#[derive(clap::Args)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true, after_help = HELP)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Option<Command>,
    /// File of PTX text, or - for standard input
    #[arg(value_name = "FILE.ptx", required = true)]
    file: Option<PathBuf>,
    /// Count each form of instruction that the emulator lacks
    #[arg(long, conflicts_with_all = ["kernel", "json"])]
    missing: bool,
    #[command(flatten)]
    launch: LaunchArgs,
    #[command(flatten)]
    checks: CheckArgs,
}

#[derive(clap::Subcommand)]
enum Command {
    /// Run a program on the emulator's CUDA driver, and report what its kernels do wrong
    Exec(exec::Args),
}

/// What is launched.
#[derive(clap::Args)]
#[command(next_help_heading = "Launch")]
pub(crate) struct LaunchArgs {
    /// Kernel to run; without it, the kernels are listed
    #[arg(short, long, value_name = "NAME")]
    pub(crate) kernel: Option<String>,
    /// Blocks, such as 4 or 4,2,1
    #[arg(long, value_name = "X,Y,Z", value_parser = extent, default_value = "1", requires = "kernel")]
    pub(crate) grid: [u32; 3],
    /// Threads of a block [default: what .reqntid says, else 1]
    #[arg(long, value_name = "X,Y,Z", value_parser = extent, requires = "kernel")]
    pub(crate) block: Option<[u32; 3]>,
    /// Blocks of a cluster [default: what the kernel says]
    #[arg(long, value_name = "X,Y,Z", value_parser = extent, requires = "kernel")]
    pub(crate) cluster: Option<[u32; 3]>,
    /// Bytes of dynamic shared memory
    #[arg(long, value_name = "BYTES", default_value_t = 0, requires = "kernel")]
    pub(crate) smem: u32,
    /// Blocks may wait for each other, as in a cooperative launch
    #[arg(long, requires = "kernel")]
    pub(crate) cooperative: bool,
    /// Value of a parameter, as the text below describes it
    #[arg(long = "arg", value_name = "NAME=VALUE", requires = "kernel")]
    pub(crate) args: Vec<Argument>,
    /// What a .const or .global variable holds, such as taps=f32:1,2,3, taps=file:FILE.npy or, of a texture reference,
    /// @TEXTURE
    #[arg(long = "const", value_name = "NAME=VALUES", requires = "kernel")]
    pub(crate) constants: Vec<Constant>,
    /// Seed of the random numbers in buffers
    #[arg(long, value_name = "N", default_value_t = 0, requires = "kernel")]
    pub(crate) data_seed: u64,
}

/// How it is checked.
#[derive(clap::Args)]
#[command(next_help_heading = "Checks")]
pub(crate) struct CheckArgs {
    /// What a buffer must hold afterwards: FILL, and after ~ how far off it may be, times the larger of 1 and the value
    #[arg(
        long = "expect",
        value_name = "NAME=FILL[~TOLERANCE]",
        requires = "kernel"
    )]
    pub(crate) expect: Vec<Expectation>,
    /// Orders of blocks and warps to try
    #[arg(long, value_name = "N", default_value_t = 4, requires = "kernel",
          value_parser = clap::value_parser!(u64).range(1..=100_000))]
    pub(crate) schedules: u64,
    /// Try the order of this seed alone
    #[arg(long, value_name = "N", requires = "kernel", conflicts_with = "schedules",
          value_parser = clap::value_parser!(u64).range(..u64::MAX))]
    pub(crate) seed: Option<u64>,
    /// Find races on global memory, which takes longer
    #[arg(long, requires = "kernel")]
    pub(crate) race: bool,
    /// Memory that the record of accesses may take in each launch of --race, in bytes or as 500M, 16G; a launch that
    /// needs more ends with a finding [default: 4G]
    #[arg(long, value_name = "SIZE", requires = "race", value_parser = size)]
    pub(crate) race_memory: Option<u64>,
    /// Make findings of races that give the same result in any order, which are notes otherwise
    #[arg(long, requires = "kernel")]
    pub(crate) strict: bool,
    /// Find integers divided by zero, NaN and infinity where they first appear, and floats that no integer of the type
    /// converted to holds; takes up to three times as long
    #[arg(long, requires = "kernel")]
    pub(crate) arithmetic: bool,
    /// Find addresses that were derived from one variable or buffer and lead into another; takes up to three
    /// times as long
    #[arg(long, requires = "kernel")]
    pub(crate) provenance: bool,
    /// Go on after a finding: with other blocks, and with other orders
    #[arg(long, requires = "kernel")]
    pub(crate) all: bool,
    /// Print the instructions of one thread with the values of their registers, under one order
    #[arg(long, value_name = "BLOCK,THREAD", requires = "kernel", conflicts_with_all = ["schedules", "stats"])]
    pub(crate) trace: Option<profile::Thread>,
    /// Print instructions by name, bytes by space, sectors, bank conflicts and divergence, under one order
    #[arg(long, requires = "kernel", conflicts_with = "schedules")]
    pub(crate) stats: bool,
    /// Seconds that a launch may take under one order
    #[arg(long, value_name = "SECONDS", default_value = "60", requires = "kernel", value_parser = seconds)]
    pub(crate) timeout: Duration,
    /// Write what is found as JSON
    #[arg(long, value_name = "FILE", requires = "kernel")]
    pub(crate) json: Option<PathBuf>,
}

fn seconds(text: &str) -> Result<Duration, String> {
    let seconds = text.parse().ok().filter(|seconds| *seconds > 0.0);
    let duration = seconds.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
    duration.ok_or_else(|| "a number of seconds, such as 60 or 0.5".into())
}

/// Bytes, where K, M and G are powers of 1024.
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
    bytes.ok_or_else(|| "a number of bytes, such as 1000000, 500M or 16G".into())
}

pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    if let Some(Command::Exec(args)) = &args.command {
        return exec::run(args);
    }
    let path = args
        .file
        .as_deref()
        .expect("clap asks for a file where there is no subcommand");
    let text = read(path)?;
    let module = Module::parse(&text);
    if args.missing {
        return listing::missing(path, &module);
    }
    let module = module.map_err(|errors| listing::unusable(path, &errors))?;
    match &args.launch.kernel {
        None => {
            let prints = if text.contains("vprintf") {
                Prints::Text
            } else {
                Prints::Nothing
            };
            listing::list(path, &module, prints)
        }
        Some(kernel) => checked::run(path, &module, kernel, &args.launch, &args.checks),
    }
}

/// The text of a file. Compilers end it with a zero byte where they hand it to a driver.
fn read(path: &Path) -> Result<String, Failure> {
    let read = match path == Path::new("-") {
        true => std::io::read_to_string(std::io::stdin()).map(String::into_bytes),
        false => fs::read(path),
    };
    let mut bytes =
        read.map_err(|error| Failure::Input(format!("cannot read {}: {error}", path.display())))?;
    while bytes.pop_if(|last| *last == 0).is_some() {}
    String::from_utf8(bytes).map_err(|_| Failure::Input(no_text(path)))
}

fn no_text(path: &Path) -> String {
    format!(
        "{} is no text; of a cubin or a program, `cuobjdump -ptx` prints the PTX if it has any, and nvcc -ptx writes it",
        path.display()
    )
}
