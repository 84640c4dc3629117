//! The options of `bench serve`.

use std::path::PathBuf;
use std::time::Duration;

use clap::{ValueEnum, value_parser};

use crate::commands::bench::files::JsonArg;

/// The default of `--timeout`, in seconds.
const TIMEOUT: u64 = 600;

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Address of the server, such as http://127.0.0.1:8080
    #[arg(long, value_name = "URL")]
    pub(super) url: String,
    /// Endpoint that the requests are sent to
    #[arg(long, value_enum, default_value_t = Endpoint::Completions)]
    pub(super) endpoint: Endpoint,
    /// Name of the model in the requests [default: the first one that the server lists]
    #[arg(long, value_name = "NAME")]
    pub(super) model: Option<String>,
    /// File with the API key
    #[arg(long, value_name = "FILE")]
    pub(super) api_key_file: Option<PathBuf>,
    #[command(flatten)]
    pub(super) load: LoadArgs,
    /// Ask for whole replies instead of streams
    #[arg(long)]
    pub(super) no_stream: bool,
    /// Longest time that a request may take, in seconds
    #[arg(long, value_name = "SECONDS", default_value_t = TIMEOUT, value_parser = value_parser!(u64).range(1..))]
    pub(super) timeout: u64,
    #[command(flatten)]
    pub(super) json: JsonArg,
}

/// Options that describe the requests.
#[derive(clap::Args)]
#[command(next_help_heading = "Load")]
pub(super) struct LoadArgs {
    /// Number of requests in a round [default: the number of users]
    #[arg(long, value_name = "N", value_parser = value_parser!(u32).range(1..=100_000))]
    pub(super) requests: Option<u32>,
    /// Number of users, each of whom waits for a reply before the next request
    #[arg(
        long,
        value_name = "N,N,..",
        default_value = "1",
        value_delimiter = ',',
        value_parser = value_parser!(u32).range(1..=10_000)
    )]
    pub(super) users: Vec<u32>,
    /// Number of tokens in a prompt
    #[arg(long, value_name = "N", default_value_t = 512, value_parser = value_parser!(u32).range(1..))]
    pub(super) prompt: u32,
    /// Number of tokens to generate; tokens that end texts are ignored
    #[arg(long, value_name = "N", default_value_t = 128, value_parser = value_parser!(u32).range(1..))]
    pub(super) new: u32,
    /// Number of prompts of each user in a conversation, each with the whole history
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = value_parser!(u32).range(1..))]
    pub(super) turns: u32,
    /// Number of tokens that a turn adds to the history
    #[arg(long, value_name = "N", default_value_t = 300, requires = "turns", value_parser = value_parser!(u32).range(1..))]
    pub(super) turn_tokens: u32,
    /// Smallest and largest token id of the random prompts
    #[arg(
        long,
        value_name = "FIRST,LAST",
        default_value = "100,30000",
        value_delimiter = ',',
        num_args = 1
    )]
    pub(super) ids: Vec<u32>,
    /// Number of rounds for each number of users; the prompts of a round are different from those before
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = value_parser!(u32).range(1..))]
    pub(super) rounds: u32,
    /// Seed of the random prompts
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub(super) seed: u64,
}

/// The endpoint that requests are sent to.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Endpoint {
    /// /v1/completions of OpenAI's protocol, with token ids as the prompt
    Completions,
    /// /completion of llama-server, with token ids as the prompt
    Llama,
}

impl Endpoint {
    /// Returns the path of the endpoint.
    pub(super) fn path(self) -> &'static str {
        match self {
            Endpoint::Completions => "/v1/completions",
            Endpoint::Llama => "/completion",
        }
    }
}

impl Args {
    pub(super) fn timeout(&self) -> Duration {
        Duration::from_secs(self.timeout)
    }
}
