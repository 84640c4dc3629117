//! The options of `chat`.

use std::path::PathBuf;

use clap::ValueEnum;

use crate::generation::options::{GenerateArgs, TokenLimit};
use crate::prompt::template::TemplateArgs;

#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    pub(super) generate: GenerateArgs,
    /// Largest number of tokens in an answer; -1 sets no limit
    #[arg(
        short,
        long = "n-predict",
        alias = "predict",
        value_name = "TOKENS",
        allow_negative_numbers = true
    )]
    #[arg(help_heading = None::<&'static str>, default_value = "-1", hide_default_value = true)]
    pub(super) n: TokenLimit,
    /// Behavior when the context is full: drop the oldest turns, or refuse the message
    #[arg(help_heading = "Conversations", long, value_enum, default_value_t = WhenFull::Drop)]
    pub(super) when_full: WhenFull,
    #[command(flatten)]
    pub(super) template: TemplateArgs,
    /// File that keeps the typed lines of all conversations [default: in the user's state folder]
    #[arg(
        help_heading = "Conversations",
        long,
        value_name = "FILE",
        conflicts_with = "no_history"
    )]
    pub(super) history: Option<PathBuf>,
    /// Do not keep typed lines in a file
    #[arg(help_heading = "Conversations", long)]
    pub(super) no_history: bool,
}

/// The behavior when a conversation no longer fits into the context.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum WhenFull {
    /// Drop the oldest turns from the context
    Drop,
    /// Refuse the message
    Refuse,
}
