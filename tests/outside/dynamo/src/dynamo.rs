//! The other side: dynamo-parsers.

use std::error::Error;
use std::panic::AssertUnwindSafe;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use dynamo_parsers::tool_calling::ToolDefinition;
use dynamo_parsers::tool_calling::tools::try_tool_call_parse_aggregate_finalize;
use serde_json::Value;

use crate::calls::{Call, TOOLS};

/// The number of tokens in the vocabulary of gpt-oss without its control tokens.
const VOCABULARY: u32 = 199_998;

/// The readers of the crate.
pub(crate) struct Dynamo {
    tools: Vec<ToolDefinition>,
    runtime: tokio::runtime::Runtime,
}

impl Dynamo {
    pub(crate) fn new() -> Result<Dynamo, Box<dyn Error>> {
        let tools: Vec<Value> = serde_json::from_str(TOOLS)?;
        let tools = tools.iter().map(|tool| ToolDefinition {
            name: tool["function"]["name"]
                .as_str()
                .unwrap_or_default()
                .to_owned(),
            parameters: tool["function"].get("parameters").cloned(),
            strict: None,
        });
        Ok(Dynamo {
            tools: tools.collect(),
            runtime: tokio::runtime::Builder::new_current_thread().build()?,
        })
    }

    /// Reads a complete reply. The crate panics for some damaged ones.
    pub(crate) fn read(&self, parser: &str, reply: &str) -> Result<Vec<Call>, String> {
        let hook = std::panic::take_hook();
        std::panic::set_hook(Box::new(|_| {}));
        let read = AssertUnwindSafe(|| {
            let read =
                try_tool_call_parse_aggregate_finalize(reply, Some(parser), Some(&self.tools));
            self.runtime.block_on(read)
        });
        let read = std::panic::catch_unwind(read);
        std::panic::set_hook(hook);
        let read = read.map_err(|_| PANIC.to_owned())?;
        let (calls, _) = read.map_err(|error| error.to_string())?;
        let calls = calls.into_iter().map(|call| {
            let arguments = serde_json::from_str(&call.function.arguments)
                .map_err(|_| format!("the arguments are not JSON: {}", call.function.arguments))?;
            Ok(Call {
                name: call.function.name,
                arguments,
            })
        });
        calls.collect()
    }
}

/// The problem of a reply for which the crate panics.
pub(crate) const PANIC: &str = "the crate panics";

/// Returns the vocabulary of gpt-oss in the format of OpenAI's file `o200k_base.tiktoken`. The
/// crate reads it from a folder, or else downloads it, and it compares the checksum.
pub(crate) fn vocabulary() -> Result<String, Box<dyn Error>> {
    let tokens = tiktoken_rs::o200k_base()?;
    let mut text = String::new();
    for token in 0..VOCABULARY {
        let bytes = tokens
            .decode_bytes(&[token])
            .map_err(|error| format!("{error:?}"))?;
        text.push_str(&format!("{} {token}\n", STANDARD.encode(bytes)));
    }
    Ok(text)
}
