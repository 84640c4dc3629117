//! Options that several commands share: the model, the device and the size of the context.

use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use clap::ValueEnum;
use warpwright_driver::Context;
use warpwright_engine as engine;
use warpwright_engine::info::weight_bytes;
use warpwright_engine::{Decoder, Options};
use warpwright_model::Model;

use crate::device::DeviceChoice;
use crate::device::emulation::{self, EmulationWork};
use crate::failure::Failure;
use crate::hub;
use crate::terminal::progress::Bar;

/// The model that a command works on: its first argument, or the value of `-m`.
///
/// With `-m`, [`arguments::parse`](crate::arguments::parse) makes the first argument the next
/// positional of the command, so `tokenize -m MODEL TEXT` and `tokenize MODEL TEXT` mean the same.
#[derive(clap::Args, Debug)]
#[group(skip)]
pub(crate) struct ModelArg {
    /// Model: a GGUF file, a Hugging Face folder, or hf:ORG/REPO[:FILE or :QUANT] on the hub
    #[arg(value_name = "MODEL", required = true)]
    model: Option<PathBuf>,
    /// Model, given as an option instead of the first argument
    #[arg(short = 'm', long = "model", value_name = "MODEL")]
    named: Option<PathBuf>,
    /// The result of [`locate`], which must run only once.
    #[arg(skip)]
    located: OnceLock<PathBuf>,
}

impl ModelArg {
    /// The id of the positional argument.
    pub(crate) const POSITIONAL: &str = "model";
    /// The id of the option.
    pub(crate) const OPTION: &str = "named";

    /// Returns the model as the user wrote it, or `None` in a command that can work without a
    /// model.
    pub(crate) fn given(&self) -> Option<&Path> {
        self.model.as_deref().or(self.named.as_deref())
    }

    /// Returns the path of the model on this machine.
    ///
    /// # Errors
    /// Returns an error if [`locate`] fails.
    pub(crate) fn path(&self) -> Result<&Path, Failure> {
        if let Some(path) = self.located.get() {
            return Ok(path);
        }
        let located = locate(self.given().expect("clap requires a model"))?;
        Ok(self.located.get_or_init(|| located))
    }
}

/// Returns the path on this machine of a model that the user named: in MODEL, `-m` or `--draft`.
///
/// A name with the prefix `hf:` is a model on the hub. It is downloaded unless the cache has it.
///
/// # Errors
/// Returns an error if the model is neither in the hub's cache nor on the hub, or cannot be
/// downloaded.
pub(crate) fn locate(given: &Path) -> Result<PathBuf, Failure> {
    match given.to_str().filter(|name| name.starts_with(hub::PREFIX)) {
        Some(name) => Ok(hub::resolve(&name.parse()?)?),
        None => Ok(given.to_owned()),
    }
}

/// The model of a command, the device to run it on and the size of its context.
#[derive(clap::Args, Debug)]
pub(crate) struct ModelDeviceArgs {
    #[command(flatten)]
    pub(crate) model: ModelArg,
    /// Device to run on: auto, cuda:N or emu (the CPU emulator)
    ///
    /// auto takes the first GPU, or the emulator if there is none.
    #[arg(help_heading = "Device", long, value_name = "DEVICE", default_value_t = DeviceChoice::Auto, hide_possible_values = true)]
    pub(crate) device: DeviceChoice,
    /// Number of positions in the context [default: as many as the work needs]
    #[arg(
        help_heading = "Device",
        short = 'c',
        long,
        alias = "ctx-size",
        value_name = "TOKENS",
        allow_negative_numbers = true
    )]
    pub(crate) ctx: Option<u32>,
    /// Run on the emulator even if the estimated time is longer than half an hour
    #[arg(help_heading = "Device", long)]
    pub(crate) insist: bool,
}

impl ModelDeviceArgs {
    /// Returns the number of positions for work that needs `needed` of them.
    ///
    /// `--ctx` takes precedence. Otherwise the result is at most the context that the model was
    /// trained with.
    pub(crate) fn context_length(&self, model: &Model, needed: usize) -> u32 {
        let needed = u32::try_from(needed).unwrap_or(u32::MAX);
        self.ctx
            .unwrap_or_else(|| needed.clamp(1, model.outline.config.context))
    }
}

/// The method that submits each step to the device.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Launch {
    /// One launch of the hand-built kernel-node graph
    Graph,
    /// One launch of that graph, without overlapping kernels
    Plain,
    /// One launch of a graph that the driver captured from a stream
    Capture,
    /// One launch for each kernel
    Eager,
}

impl Launch {
    /// Returns the other methods.
    pub(crate) fn others(self) -> impl Iterator<Item = Launch> {
        Launch::value_variants()
            .iter()
            .copied()
            .filter(move |other| *other != self)
    }

    /// Returns the name of the method on the command line.
    pub(crate) fn name(self) -> String {
        self.to_possible_value()
            .expect("no method is hidden")
            .get_name()
            .to_owned()
    }
}

impl From<Launch> for engine::Launch {
    fn from(launch: Launch) -> Self {
        match launch {
            Launch::Graph => Self::Graph,
            Launch::Plain => Self::Plain,
            Launch::Capture => Self::Capture,
            Launch::Eager => Self::Eager,
        }
    }
}

/// Loads the model to run about `tokens` tokens.
///
/// # Errors
/// Returns an error if the model does not fit on the device, if the emulator would take too long
/// and `--insist` is not given, or if loading fails.
pub(crate) fn decoder(
    target: &ModelDeviceArgs,
    context: &Context,
    model: &Model,
    options: Options,
    tokens: u64,
) -> Result<Decoder, Failure> {
    Decoder::check(context, &model.outline, options)?;
    if !target.insist {
        emulation::check(
            context,
            &model.outline,
            EmulationWork {
                tokens,
                ctx: options.ctx,
            },
        )?;
    }
    load(context, model, options)
}

/// Loads the model, with a progress bar if stderr is a terminal.
///
/// # Errors
/// Returns an error if a weight cannot be read or the device fails.
pub(crate) fn load(context: &Context, model: &Model, options: Options) -> Result<Decoder, Failure> {
    let bar = Bar::new(
        "loading {bytes}/{total_bytes} {wide_bar}",
        weight_bytes(&model.outline),
    );
    Ok(Decoder::new(context, model, options, |bytes| {
        bar.set_position(bytes)
    })?)
}
