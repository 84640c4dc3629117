//! `warpwright tokenize`: prints the tokens that a model sees for a text.

use std::fmt::Write as _;
use std::io::{self, IsTerminal, Write};
use std::path::{Path, PathBuf};

use warpwright_model::Tokenizer;

use crate::failure::Failure;
use crate::model::options::ModelArg;
use crate::prompt::source;
use warpwright_emu::terminal::{printable, say};

#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    model: ModelArg,
    #[command(flatten)]
    source: TokenizeText,
    /// Print only the token ids, separated by commas
    #[arg(long, conflicts_with = "json")]
    ids: bool,
    /// Print a JSON object with ids and pieces (bytes that are not UTF-8 become U+FFFD)
    #[arg(long)]
    json: bool,
    /// Tokenize names of control tokens in the text, such as <|im_end|>, as ordinary text
    #[arg(long)]
    no_special: bool,
    /// Leave out the BOS token in front of the text
    #[arg(long)]
    no_bos: bool,
}

/// The ways to pass the text.
#[derive(clap::Args)]
#[group(required = true, multiple = false)]
struct TokenizeText {
    /// Text to tokenize, after -- if it begins with a dash; - reads standard input
    text: Option<String>,
    /// File with the text to tokenize, in UTF-8 without its last line break; - is standard input
    #[arg(long, value_name = "FILE")]
    file: Option<PathBuf>,
}

impl TokenizeText {
    /// Reads the text.
    fn read(&self) -> Result<String, Failure> {
        match self {
            TokenizeText {
                file: Some(file), ..
            } if file != Path::new("-") => source::file("the text", file),
            TokenizeText {
                text: Some(text), ..
            } if text != "-" => Ok(text.clone()),
            _ => source::standard_input("the text"),
        }
    }
}

pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    let text = args.source.read()?;
    let tokenizer = source::open_tokenizer(args.model.path()?)?;
    let tokenizer = if args.no_special {
        tokenizer.literal()
    } else {
        tokenizer
    };
    let mut ids = tokenizer.encode(&text)?;
    if args.no_bos && tokenizer.bos().is_some() && ids.first().copied() == tokenizer.bos() {
        ids.remove(0);
    }

    let mut out = io::stdout().lock();
    if args.ids {
        writeln!(
            out,
            "{}",
            ids.iter().map(u32::to_string).collect::<Vec<_>>().join(",")
        )?;
    } else if args.json {
        let pieces: Vec<_> = ids
            .iter()
            .map(|id| String::from_utf8_lossy(tokenizer.piece(*id)))
            .collect();
        writeln!(
            out,
            "{}",
            serde_json::json!({ "ids": ids, "pieces": pieces })
        )?;
    } else {
        let mut lines = String::new();
        for id in &ids {
            writeln!(lines, "{id}\t{}", shown(&tokenizer, *id)).expect("a String accepts writes");
        }

        write!(out, "{}", printable(&lines))?;

        // A GGUF file and a folder of the same model may differ in BOS, and users wonder about the
        // extra token.
        if let Some(bos) = tokenizer.bos()
            && ids.first() == Some(&bos)
            && out.is_terminal()
        {
            say(format!(
                "(the model's file says that texts begin with token {bos}; --no-bos leaves it out)"
            ));
        }
    }

    Ok(())
}

/// Returns a token as text: the name of a control token, or the text in quotes with incomplete
/// characters as `\xe2`.
fn shown(tokenizer: &Tokenizer, id: u32) -> String {
    if let Some(name) = tokenizer.control(id) {
        return name.escape_debug().to_string();
    }

    let mut text = String::from("\"");
    for chunk in tokenizer.piece(id).utf8_chunks() {
        text.extend(chunk.valid().escape_debug());
        for byte in chunk.invalid() {
            write!(text, "\\x{byte:02x}").expect("a String accepts writes");
        }
    }

    text.push('"');
    text
}
