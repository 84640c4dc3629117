//! `warpwright tokenize`: the tokens of a text, as a model would read it.

use std::fmt::Write as _;
use std::io::{self, IsTerminal, Write};
use std::iter;
use std::path::{Path, PathBuf};

use warpwright_engine::Tokenizer;

use crate::failure::Failure;
use crate::options::ModelArg;
use crate::prompt;
use crate::terminal::{printable, say};

#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    model: ModelArg,
    #[command(flatten)]
    source: Source,
    /// Print only the token ids: 1,5,9
    #[arg(long, conflicts_with = "json")]
    ids: bool,
    /// Print JSON with ids and pieces (bytes that are not UTF-8 become U+FFFD)
    #[arg(long)]
    json: bool,
    /// Read names of control tokens in the text, such as <|im_end|>, as text
    #[arg(long)]
    no_special: bool,
    /// Do not put BOS in front of the text
    #[arg(long)]
    no_bos: bool,
}

#[derive(clap::Args)]
#[group(required = true, multiple = false)]
struct Source {
    /// Text to tokenize, after -- if it begins with a dash; - reads standard input
    text: Option<String>,
    /// File with the text in UTF-8 (its last line break is dropped)
    #[arg(long, value_name = "FILE")]
    file: Option<PathBuf>,
}

impl Source {
    fn read(&self) -> Result<String, Failure> {
        match self {
            Source {
                file: Some(file), ..
            } if file != Path::new("-") => prompt::file("the text", file),
            Source {
                text: Some(text), ..
            } if text != "-" => Ok(text.clone()),
            _ => prompt::standard_input("the text"),
        }
    }
}

pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    let text = args.source.read()?;
    let tokenizer = open(args.model.path()?)?;
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
        let lines = ids
            .iter()
            .map(|id| format!("{id}\t{}\n", shown(&tokenizer, *id)));
        write!(out, "{}", printable(&lines.collect::<String>()))?;
        // A GGUF file and a folder of the same model may differ in this.
        if let Some(bos) = tokenizer
            .bos()
            .filter(|bos| out.is_terminal() && ids.first() == Some(bos))
        {
            say(format!(
                "(the model's file says that texts begin with token {bos}; --no-bos leaves it out)"
            ));
        }
    }
    Ok(())
}

/// The tokenizer of a model, with its warnings said.
pub(crate) fn open(model: &Path) -> Result<Tokenizer, Failure> {
    let tokenizer = Tokenizer::open(model)?;
    tokenizer
        .warnings()
        .iter()
        .for_each(|warning| say(format!("warning: {warning}")));
    Ok(tokenizer)
}

/// A token for people: its text in quotes, with bytes that are no whole character as `\xe2`, or its name.
fn shown(tokenizer: &Tokenizer, id: u32) -> String {
    if let Some(name) = tokenizer.control(id) {
        return name.escape_debug().to_string();
    }
    let mut text = String::from("\"");
    for chunk in tokenizer.piece(id).utf8_chunks() {
        text.extend(chunk.valid().escape_debug());
        chunk
            .invalid()
            .iter()
            .for_each(|byte| write!(text, "\\x{byte:02x}").expect("a string takes all"));
    }
    text.extend(iter::once('"'));
    text
}
