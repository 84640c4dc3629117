//! What `run` and `chat` have in common: how a model is loaded to write texts, and what ends them.

use warpwright_driver::Context;
use warpwright_engine::{Decoder, Model, Options, StopStrings};

use crate::adapter::AdapterArgs;
use crate::failure::Failure;
use crate::options::{Launch, Place, decoder};

#[derive(clap::Args)]
pub(crate) struct GenerateArgs {
    #[command(flatten)]
    pub(crate) place: Place,
    #[command(flatten)]
    adapter: AdapterArgs,
    /// How a step reaches the device
    #[arg(long, value_enum, default_value_t = Launch::Graph)]
    launch: Launch,
    /// Temperature: 0, the most likely token each time
    #[arg(long, value_name = "T", default_value = "0", value_parser = greedy)]
    temp: f32,
    /// Text that ends the answer and is not part of it; may be given several times
    #[arg(long, value_name = "TEXT", allow_hyphen_values = true)]
    stop: Vec<String>,
}

/// Tokens of a prompt from which on it is prefilled several at a time: the kernels for that are compiled too, which
/// takes a driver that has not seen them about a second.
const LONG_PROMPT: usize = 64;

/// What a decoder is made for.
pub(crate) struct Room {
    /// Positions.
    pub(crate) ctx: u32,
    /// Tokens of the longest prompt.
    pub(crate) prompt: usize,
    /// Tokens that are thought to go through the model, of prompts and answers.
    pub(crate) tokens: u64,
}

fn greedy(text: &str) -> Result<f32, String> {
    match text.parse() {
        Ok(0.0) => Ok(0.0),
        Ok(_) => Err("only 0 (greedy): sampling comes later".into()),
        Err(_) => Err("not a number".into()),
    }
}

impl GenerateArgs {
    /// The model, with its adapter.
    pub(crate) fn open(&self) -> Result<Model, Failure> {
        self.adapter.open(&self.place.model)
    }

    /// The strings that end a text.
    pub(crate) fn stops(&self) -> Result<StopStrings, Failure> {
        Ok(StopStrings::new(self.stop.clone())?)
    }

    /// Loads the model. Everything that decides which token comes next is in here.
    pub(crate) fn decoder(&self, context: &Context, model: &Model, room: &Room) -> Result<Decoder, Failure> {
        let options = Options::new(room.ctx, self.launch.into());
        let (prefill_batch, chunk) =
            if room.prompt < LONG_PROMPT { (1, 0) } else { (options.prefill_batch, options.chunk) };
        let options = Options { prefill_batch, chunk, ..options };
        decoder(&self.place, context, model, options, room.tokens)
    }
}

#[cfg(test)]
mod tests {
    use super::greedy;

    #[test]
    fn only_greedy() {
        assert_eq!(greedy("0"), Ok(0.0));
        assert_eq!(greedy("0.7"), Err("only 0 (greedy): sampling comes later".into()));
        assert_eq!(greedy("hot"), Err("not a number".into()));
    }
}
