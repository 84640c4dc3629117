//! The tokens of many strings, to compare with those of other programs (`tests/outside/tokenizers`):
//!
//! ```sh
//! cargo run -p warpwright-model --example tokens -- MODEL STRINGS.json special > ids.json
//! ```
//!
//! `STRINGS.json` is a list of strings, and what is written a list of lists of tokens, without BOS. With `literal` the
//! names of control tokens are text.

use std::path::Path;
use std::process::ExitCode;

use warpwright_model::Tokenizer;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [model, strings, mode] = &arguments[..] else {
        eprintln!("usage: tokens MODEL STRINGS.json special|literal");
        return ExitCode::from(2);
    };
    match tokens(Path::new(model), Path::new(strings), mode == "literal") {
        Ok(json) => {
            println!("{json}");
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

fn tokens(
    model: &Path,
    strings: &Path,
    literal: bool,
) -> Result<String, Box<dyn std::error::Error>> {
    let strings: Vec<String> = serde_json::from_str(&std::fs::read_to_string(strings)?)?;
    let tokenizer = Tokenizer::open(model)?;
    let tokenizer = if literal {
        tokenizer.literal()
    } else {
        tokenizer
    };
    let ids = strings.iter().map(|text| {
        let places = tokenizer.encode_places(text)?;
        Ok(places.into_iter().map(|(id, _)| id).collect())
    });
    let ids: Result<Vec<Vec<u32>>, warpwright_model::Error> = ids.collect();
    Ok(serde_json::to_string(&ids?)?)
}
