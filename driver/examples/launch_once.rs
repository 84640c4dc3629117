//! One launch of one kernel of a file, for tools that watch a program, such as compute-sanitizer.
//!
//! ```sh
//! launch_once FILE KERNEL --grid 2 --block 64 in:x.bin uninit:400 i32:100
//! ```
//!
//! The file contains PTX, which the driver compiles with line information, or machine code from ptxas.
//! The arguments are passed in order:
//!
//! - `in:FILE`: a buffer with the bytes of a file.
//! - `zero:BYTES`: a buffer of zeros.
//! - `uninit:BYTES`: an uninitialized buffer.
//! - `i32:NUMBER`: a number.
//!
//! Results are not copied back, because that would be a use of uninitialized memory.
//!
//! The exit code is 0 if the launch completed, 1 if it or a step before it failed, and 2 for invalid
//! arguments.

#![allow(unsafe_code, reason = "loading a kernel is unsafe")]

use std::io::Write;
use std::process::ExitCode;
use std::str::FromStr;

use warpwright_driver::launch::{HostArg, Launch, LaunchConfig};
use warpwright_driver::memory::Buffer;
use warpwright_driver::module::{JitOptions, Module, Parameter};
use warpwright_driver::ordering::Access;
use warpwright_driver::stream::Stream;
use warpwright_driver::{Context, Driver};

type Failure = Box<dyn std::error::Error>;

const USAGE: &str = "usage: launch_once FILE KERNEL [--grid N] [--block N] [--shared BYTES] [--cluster N] \
                     [--cooperative] [in:FILE | zero:BYTES | uninit:BYTES | i32:NUMBER]..";

/// The launch that the command line describes.
struct Call {
    file: String,
    kernel: String,
    config: LaunchConfig,
    args: Vec<Argument>,
}

/// A kernel argument that the command line describes.
enum Argument {
    In(String),
    Zero(usize),
    Uninit(usize),
    Number(i32),
}

fn main() -> ExitCode {
    let call = match Call::of(std::env::args().skip(1)) {
        Ok(call) => call,
        Err(error) => {
            eprintln!("{error}\n{USAGE}");
            return ExitCode::from(2);
        }
    };
    let (message, code) = match call.run() {
        Ok(device) => (
            format!("{} ended on {device}", call.kernel),
            ExitCode::SUCCESS,
        ),
        Err(error) => (
            format!("{} failed: {error}", call.kernel),
            ExitCode::FAILURE,
        ),
    };

    // A closed output is not an error, because the exit code is the result.
    let _ = writeln!(std::io::stdout(), "{message}");
    code
}

impl Call {
    fn of(words: impl Iterator<Item = String>) -> Result<Call, Failure> {
        let mut words = words;
        let mut places = Vec::new();
        let mut args = Vec::new();
        let mut config = LaunchConfig::line(1, 1);
        while let Some(word) = words.next() {
            let mut number = || number::<u32>(&word, &words.next().unwrap_or_default());
            match word.as_str() {
                "--grid" => config.grid[0] = number()?,
                "--block" => config.block[0] = number()?,
                "--shared" => config.shared = number()?,
                "--cluster" => config.cluster = Some([number()?, 1, 1]),
                "--cooperative" => config.cooperative = true,
                _ if word.starts_with('-') => {
                    return Err(format!("unknown option {word}").into());
                }
                _ if places.len() < 2 => places.push(word),
                _ => args.push(word.parse()?),
            }
        }

        let [file, kernel] =
            <[String; 2]>::try_from(places).map_err(|_| "a file and a kernel are missing")?;
        Ok(Call {
            file,
            kernel,
            config,
            args,
        })
    }

    /// Launches the kernel, waits for it and returns the name of the device.
    fn run(&self) -> Result<String, Failure> {
        let device = Driver::load()?.device(0)?;
        let context = Context::new(&device)?;
        let module = self.module(&context)?;
        let made = self
            .args
            .iter()
            .map(|arg| arg.made(&context))
            .collect::<Result<Vec<_>, _>>()?;
        let (params, args): (Vec<Parameter>, Vec<HostArg>) = made.into_iter().unzip();

        // SAFETY: the user passes the kernel's parameters. Accesses beyond them are what the
        // watching tool is meant to find, and they end with this process.
        let function = unsafe { module.function(&self.kernel, &params) }?;
        let stream = Stream::new(&context)?;
        stream.run_launch(&Launch::new(&function, self.config, args)?)?;
        stream.synchronize()?;
        Ok(device.to_string())
    }

    /// Loads the file. Machine code starts with the magic number of ELF.
    fn module(&self, context: &Context) -> Result<Module, Failure> {
        let bytes = std::fs::read(&self.file).map_err(|error| format!("{}: {error}", self.file))?;
        if bytes.starts_with(b"\x7fELF") {
            // SAFETY: the user passes a complete file from ptxas.
            return Ok(unsafe { Module::load_image(context, &bytes) }?);
        }
        Ok(Module::load_with(
            context,
            &String::from_utf8(bytes)?,
            &JitOptions::default().line_info(),
        )?)
    }
}

impl Argument {
    /// Creates the argument. It keeps its device memory alive.
    fn made(&self, context: &Context) -> Result<(Parameter, HostArg), Failure> {
        let buffer = match self {
            Self::Number(n) => return Ok((Parameter::value::<i32>("number"), HostArg::scalar(*n))),
            Self::In(file) => {
                let bytes = std::fs::read(file).map_err(|error| format!("{file}: {error}"))?;
                Buffer::from_slice(context, &bytes)?
            }
            Self::Zero(bytes) => Buffer::<u8>::zeroed(context, *bytes)?,
            Self::Uninit(bytes) => Buffer::<u8>::uninit(context, *bytes)?,
        };
        Ok((
            Parameter::buffer::<u8>("buffer", Access::ReadWrite),
            HostArg::from(&*buffer),
        ))
    }
}

impl FromStr for Argument {
    type Err = Failure;

    fn from_str(word: &str) -> Result<Self, Failure> {
        match word.split_once(':') {
            Some(("in", file)) => Ok(Self::In(file.to_owned())),
            Some(("zero", bytes)) => Ok(Self::Zero(number(word, bytes)?)),
            Some(("uninit", bytes)) => Ok(Self::Uninit(number(word, bytes)?)),
            Some(("i32", value)) => Ok(Self::Number(number(word, value)?)),
            _ => Err(format!("{word:?} is not an argument").into()),
        }
    }
}

fn number<N: FromStr>(what: &str, text: &str) -> Result<N, Failure> {
    text.parse()
        .map_err(|_| format!("{what}: {text:?} is not a number in range").into())
}
