//! Options that several commands share, and what follows from them.

use std::ops::Deref;
use std::path::{Path, PathBuf};

use clap::ValueEnum;
use warpwright_driver::Context;
use warpwright_engine::info::weight_bytes;
use warpwright_engine::{self as engine, Decoder, Model, Options};

use crate::device::Choice;
use crate::emulation::{self, Work};
use crate::failure::Failure;
use crate::progress::Bar;

/// A model's path, with or without the name of the option.
#[derive(clap::Args, Debug)]
#[group(required = true, multiple = false)]
pub(crate) struct ModelPath {
    /// Model: a GGUF file, or a Hugging Face folder
    #[arg(value_name = "MODEL")]
    model: Option<PathBuf>,
    /// The same
    #[arg(short = 'm', long = "model", value_name = "MODEL")]
    named: Option<PathBuf>,
}

impl Deref for ModelPath {
    type Target = Path;

    fn deref(&self) -> &Path {
        self.model.as_deref().or(self.named.as_deref()).expect("clap asks for one of them")
    }
}

/// A model and where it runs.
#[derive(clap::Args, Debug)]
pub(crate) struct Place {
    #[command(flatten)]
    pub(crate) model: ModelPath,
    /// auto, cuda:N or emu (the emulator)
    #[arg(long, value_name = "DEVICE", default_value_t = Choice::Auto)]
    pub(crate) device: Choice,
    /// Positions to keep room for [default: as many as the work needs]
    #[arg(long, value_name = "TOKENS", allow_negative_numbers = true)]
    pub(crate) ctx: Option<u32>,
    /// Run on the emulator even what would take it hours
    #[arg(long)]
    pub(crate) insist: bool,
}

impl Place {
    /// Positions to keep room for when the work needs so many.
    pub(crate) fn context_length(&self, model: &Model, needed: usize) -> u32 {
        let needed = u32::try_from(needed).unwrap_or(u32::MAX);
        self.ctx.unwrap_or_else(|| needed.clamp(1, model.outline.config.context))
    }
}

/// How a step reaches the device.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Launch {
    /// One launch of the hand-built kernel-node graph
    Graph,
    /// The same without kernels that overlap
    Plain,
    /// One launch of a graph that the driver captured from a stream
    Capture,
    /// One launch for each kernel
    Eager,
}

impl Launch {
    /// Those that it is not.
    pub(crate) fn others(self) -> impl Iterator<Item = Launch> {
        Launch::value_variants().iter().copied().filter(move |other| *other != self)
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

/// Loads the model for so many tokens, unless the emulator would take too long.
pub(crate) fn decoder(
    place: &Place,
    context: &Context,
    model: &Model,
    options: Options,
    tokens: u64,
) -> Result<Decoder, Failure> {
    Decoder::check(context, &model.outline, options)?;
    if !place.insist {
        emulation::check(context, &model.outline, Work { tokens, ctx: options.ctx })?;
    }
    load(context, model, options)
}

/// Loads the model, with a progress bar where stderr is a terminal.
pub(crate) fn load(context: &Context, model: &Model, options: Options) -> Result<Decoder, Failure> {
    let bar = Bar::new("loading {bytes}/{total_bytes} {wide_bar}", weight_bytes(&model.outline));
    Ok(Decoder::new(context, model, options, |bytes| bar.set_position(bytes))?)
}
