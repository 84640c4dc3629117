//! `warpwright detokenize`: prints the text of tokens.

use std::io::{self, IsTerminal, Write};

use crate::failure::Failure;
use crate::model::options::ModelArg;
use crate::prompt::source;
use warpwright_emu::terminal::printable;

#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    model: ModelArg,
    /// Token ids to convert, as 1,5,9 or 1 5 9; - reads them from standard input
    #[arg(value_name = "IDS", required = true, allow_negative_numbers = true)]
    ids: Vec<String>,
}

pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    let ids = match &args.ids[..] {
        [only] if only == "-" => source::standard_input("the tokens")?,
        ids => ids.join(","),
    };
    let ids: Vec<u32> = source::numbers(&ids).map_err(Failure::Input)?;
    let tokenizer = source::open_tokenizer(args.model.path()?)?;
    let size = tokenizer.size();
    if let Some((index, id)) = ids.iter().enumerate().find(|(_, id)| **id as usize >= size) {
        return Err(Failure::Input(format!(
            "token {index} is {id}; the vocabulary ends before {size}"
        )));
    }

    let mut out = io::stdout().lock();
    let text = tokenizer.decode(&ids);
    let shown = if out.is_terminal() {
        printable(&text)
    } else {
        text.into()
    };
    Ok(writeln!(out, "{shown}")?)
}
