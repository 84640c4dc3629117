//! The options of `warpwright serve`.

use std::path::PathBuf;
use std::time::Duration;

use clap::ValueEnum;
use serde_json::{Map, Value};
use warpwright_server::http::log::LogForm;
use warpwright_server::models::AdapterEntry;

use crate::device::DeviceChoice;
use crate::generation::options::TokenLimit;
use crate::generation::sampling::seed_number;
use crate::model::options::ModelArg;

#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    pub(super) model: ModelArg,
    /// Chat template to use instead of the model's: a Jinja file, or chatml
    #[arg(long, alias = "chat-template-file", value_name = "FILE")]
    pub(super) chat_template: Option<PathBuf>,
    /// Variables of the chat template for requests that do not set them, as a JSON object
    ///
    /// For example, '{"enable_thinking": false}' makes Qwen3 answer without reasoning.
    #[arg(long, alias = "default-chat-template-kwargs", value_name = "JSON", value_parser = variables)]
    pub(super) chat_template_kwargs: Option<Map<String, Value>>,
    #[command(flatten)]
    pub(super) connections: ConnectionArgs,
    #[command(flatten)]
    pub(super) engine: EngineArgs,
    #[command(flatten)]
    pub(super) speculation: SpeculationArgs,
    #[command(flatten)]
    pub(super) defaults: DefaultArgs,
    /// Answer from a file of replies instead of the model's weights, to test clients
    #[arg(long, value_name = "FILE", hide = true)]
    pub(super) scripted: Option<PathBuf>,
    /// Time per token of --scripted, in milliseconds
    #[arg(long, value_name = "MS", default_value_t = 0, hide = true)]
    pub(super) scripted_delay: u64,
}

/// Options about the address, the clients and the limits of requests.
#[derive(clap::Args)]
#[command(next_help_heading = "Connections")]
pub(super) struct ConnectionArgs {
    /// Address or host name to listen on; 0.0.0.0 accepts connections from other machines
    #[arg(long, value_name = "HOST", default_value = "127.0.0.1")]
    pub(super) host: String,
    /// Port to listen on; 0 takes a free one, which the first line on stderr shows
    #[arg(long, value_name = "PORT", default_value_t = 8080)]
    pub(super) port: u16,
    /// Name of the model in responses [default: the name of its file or folder]
    #[arg(short = 'a', long, value_name = "NAME")]
    pub(super) alias: Option<String>,
    /// Key that clients must send; can be repeated. Other users of the machine can see it
    #[arg(long, value_name = "KEY")]
    pub(super) api_key: Vec<String>,
    /// File with one key per line that clients must send
    ///
    /// Empty lines and lines that begin with # are skipped. Requests with different keys share no
    /// cached prefixes.
    #[arg(long, value_name = "FILE")]
    pub(super) api_key_file: Option<PathBuf>,
    /// Origin of web pages that may call the server, with its scheme; can be repeated
    ///
    /// The value * allows all pages. Without this option, pages from this machine may call the
    /// server. If there are keys, all pages may.
    #[arg(
        long,
        alias = "cors-origins",
        value_name = "ORIGIN",
        value_delimiter = ','
    )]
    pub(super) cors_origin: Vec<String>,
    /// Host name by which clients reach the server, in addition to localhost; can be repeated
    ///
    /// A server on a loopback address without keys refuses requests for other names, because a web
    /// page could otherwise reach it through a name that resolves to 127.0.0.1.
    #[arg(long, value_name = "NAME")]
    pub(super) allow_host: Vec<String>,
    /// File with the certificates for TLS, in the format PEM
    #[arg(
        long,
        alias = "ssl-cert-file",
        value_name = "FILE",
        requires = "tls_key"
    )]
    pub(super) tls_cert: Option<PathBuf>,
    /// File with the private key of the certificate, in the format PEM
    #[arg(
        long,
        alias = "ssl-key-file",
        value_name = "FILE",
        requires = "tls_cert"
    )]
    pub(super) tls_key: Option<PathBuf>,
    /// Largest body of a request in bytes
    #[arg(long, value_name = "BYTES", default_value_t = 32 << 20)]
    pub(super) body_limit: usize,
    /// Seconds in which the headers of a request, and then its body, must arrive
    #[arg(long, value_name = "SECONDS", default_value = "60", allow_negative_numbers = true, value_parser = seconds)]
    pub(super) timeout: Duration,
    /// Seconds that running requests have to end after Ctrl-C or SIGTERM
    #[arg(long, value_name = "SECONDS", default_value = "30", allow_negative_numbers = true, value_parser = seconds)]
    pub(super) grace: Duration,
    /// Form of the log on stderr
    #[arg(long, value_enum, value_name = "FORM", default_value_t = LogArg::Text)]
    pub(super) log: LogArg,
}

/// Options about the device and the batch.
#[derive(clap::Args)]
#[command(next_help_heading = "Device")]
pub(super) struct EngineArgs {
    /// Device to run on: auto, cuda:N or emu (the CPU emulator)
    ///
    /// auto takes the first GPU, or the emulator if there is none.
    #[arg(long, value_name = "DEVICE", default_value_t = DeviceChoice::Auto, hide_possible_values = true)]
    pub(super) device: DeviceChoice,
    /// Number of positions per sequence [default: up to 8192, as many as the model has]
    #[arg(
        short = 'c',
        long,
        alias = "ctx-size",
        value_name = "TOKENS",
        allow_negative_numbers = true
    )]
    pub(super) ctx: Option<u32>,
    /// Largest number of sequences at a time [default: 64, or 1 on the emulator]
    #[arg(long, alias = "parallel", value_name = "N", value_parser = clap::value_parser!(u32).range(1..=256))]
    pub(super) sequences: Option<u32>,
    /// Largest number of requests that wait for a sequence
    #[arg(long, value_name = "N", default_value_t = 256)]
    pub(super) queue: usize,
    /// Give a request the same text next to any other requests, at the cost of some speed
    #[arg(long)]
    pub(super) deterministic: bool,
    /// Folder that keeps prompts over a restart, in files that only you can read
    #[arg(long, value_name = "FOLDER")]
    pub(super) cache_dir: Option<PathBuf>,
    /// Largest size of the files in --cache-dir, in GiB
    #[arg(long, value_name = "GIB", default_value_t = 16, requires = "cache_dir", value_parser = clap::value_parser!(u64).range(1..=1 << 20))]
    pub(super) cache_size: u64,
    /// LoRA adapter to serve next to the model; can be repeated
    ///
    /// A request uses the adapter if it has NAME as its model. The folder is one that PEFT or
    /// `warpwright finetune` has written. One step processes requests of all adapters and of the
    /// model itself.
    #[arg(long, alias = "lora-modules", value_name = "NAME=FOLDER", value_parser = named_adapter)]
    pub(super) lora: Vec<AdapterEntry>,
    /// Folder from which clients may load adapters while the server runs
    ///
    /// It allows /v1/load_lora_adapter and /v1/unload_lora_adapter. Paths outside of the folder are
    /// refused.
    #[arg(long, value_name = "FOLDER")]
    pub(super) lora_dir: Option<PathBuf>,
    /// Largest number of models that are loaded at a time, of a folder of models
    #[arg(long, alias = "models-max", value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub(super) max_models: Option<u32>,
}

/// Options of speculative decoding.
#[derive(clap::Args)]
#[command(next_help_heading = "Speculative decoding")]
pub(super) struct SpeculationArgs {
    /// Guess that text repeats: propose what followed the last N tokens earlier [N: 3]
    ///
    /// A step of the model verifies the guesses. Requests with a grammar, a JSON schema or tool
    /// calls that must be valid have no guesses.
    #[arg(long, value_name = "N", num_args = 0..=1, require_equals = true, default_missing_value = "3")]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=16), group = "guesses")]
    pub(super) lookup: Option<u32>,
    /// Smaller model with the same vocabulary that guesses tokens for MODEL to verify
    ///
    /// It is loaded onto the same device, next to MODEL, with its own cache for --draft-sequences
    /// sequences. Requests with a grammar, a JSON schema or tool calls that must be valid have no
    /// guesses.
    #[arg(long, alias = "model-draft", value_name = "MODEL", group = "guesses")]
    pub(super) draft: Option<PathBuf>,
    /// Largest number of guessed tokens per sequence to verify in one step, 1 to 15
    #[arg(long, alias = "draft-n", value_name = "N", default_value_t = 7, requires = "guesses", value_parser = clap::value_parser!(u32).range(1..=15))]
    pub(super) draft_max: u32,
    /// Largest number of sequences that generate while tokens are guessed
    #[arg(long, value_name = "N", default_value_t = 4, requires = "guesses", value_parser = clap::value_parser!(u32).range(1..=16))]
    pub(super) draft_sequences: u32,
    /// Always guess --draft-max tokens per step, even if fewer seem to be faster
    #[arg(long, requires = "guesses")]
    pub(super) draft_always: bool,
}

impl SpeculationArgs {
    /// Returns the option that guesses tokens, if there is one.
    pub(super) fn source_option(&self) -> Option<&'static str> {
        match (self.lookup, &self.draft) {
            (Some(_), _) => Some("--lookup"),
            (None, Some(_)) => Some("--draft"),
            (None, None) => None,
        }
    }
}

/// Values for requests that set none.
#[derive(clap::Args)]
#[command(next_help_heading = "Defaults of requests")]
pub(super) struct DefaultArgs {
    /// Maximum tokens per reply, even if a request asks for more; -1 disables the limit
    #[arg(
        short,
        long = "n-predict",
        alias = "predict",
        value_name = "TOKENS",
        default_value = "-1"
    )]
    #[arg(allow_negative_numbers = true)]
    pub(super) n: TokenLimit,
    /// Temperature of requests without one [default: generation_config.json, or 0.8]
    #[arg(
        long,
        visible_alias = "temp",
        value_name = "T",
        allow_negative_numbers = true
    )]
    pub(super) temperature: Option<f64>,
    /// Number of most likely tokens to keep [default: generation_config.json, or 40]
    #[arg(long, value_name = "K")]
    pub(super) top_k: Option<u32>,
    /// Probability of the most likely tokens to keep [default: generation_config.json, or 0.95]
    #[arg(long, value_name = "P", allow_negative_numbers = true)]
    pub(super) top_p: Option<f64>,
    /// Smallest probability relative to the most likely token [default: generation_config.json, or 0.05]
    #[arg(long, value_name = "P", allow_negative_numbers = true)]
    pub(super) min_p: Option<f64>,
    /// Seed of requests without one [default: a new one for each request]
    #[arg(short = 's', long, value_name = "N", allow_negative_numbers = true, value_parser = seed)]
    pub(super) seed: Option<SeedArg>,
}

/// The value of `--seed`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct SeedArg {
    /// The seed, or `None` for a new one for each request.
    pub(super) number: Option<u64>,
}

/// The value of `--log`.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum LogArg {
    /// Lines for people
    Text,
    /// A JSON object per line
    Json,
}

impl From<LogArg> for LogForm {
    fn from(log: LogArg) -> LogForm {
        match log {
            LogArg::Text => LogForm::Text,
            LogArg::Json => LogForm::Json,
        }
    }
}

fn named_adapter(text: &str) -> Result<AdapterEntry, String> {
    match text.split_once('=') {
        Some((name, path)) if !name.is_empty() && !path.is_empty() => Ok(AdapterEntry {
            name: name.to_owned(),
            path: path.into(),
        }),
        Some(_) | None => Err("expected NAME=FOLDER, such as poet=adapters/poet".to_owned()),
    }
}

fn variables(text: &str) -> Result<Map<String, Value>, String> {
    serde_json::from_str(text).map_err(|error| {
        format!("expected a JSON object, such as '{{\"enable_thinking\": false}}': {error}")
    })
}

fn seed(text: &str) -> Result<SeedArg, String> {
    Ok(SeedArg {
        number: seed_number(text)?,
    })
}

fn seconds(text: &str) -> Result<Duration, String> {
    let wrong = || "expected a number of seconds above 0, such as 30 or 0.5".to_owned();
    let seconds = text.parse::<f64>().map_err(|_| wrong())?;
    let accepted = seconds > 0.0 && seconds <= 86_400.0;
    if accepted {
        Ok(Duration::from_secs_f64(seconds))
    } else {
        Err(wrong())
    }
}
