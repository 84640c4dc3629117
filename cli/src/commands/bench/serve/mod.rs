//! `warpwright bench serve`: how fast a server answers many users.
//!
//! It drives any server that has OpenAI's `/v1/completions` or llama-server's `/completion`. Prompts
//! are random token ids, so that a server's tokenizer does not matter and no prompt is in its cache.

mod args;
mod client;
mod load;
mod report;

use std::fs;
use std::sync::Arc;

use super::files::BenchFiles;
use crate::failure::Failure;
pub(crate) use args::Args;
use client::LoadClient;
use report::{ServeReport, ServeRound};

pub(super) fn run(args: &Args) -> Result<(), Failure> {
    if args.load.ids.len() != 2 || args.load.ids[0] > args.load.ids[1] {
        return Err(Failure::Input(
            "--ids takes two token ids, the smaller one first, such as 100,30000".into(),
        ));
    }

    let files = BenchFiles {
        model: None,
        json: &args.json,
    };
    files.deliver(|| {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .enable_all()
            .build()?;
        runtime.block_on(measure(args))
    })
}

async fn measure(args: &Args) -> Result<ServeReport, Failure> {
    let key = match &args.api_key_file {
        Some(file) => Some(
            fs::read_to_string(file)
                .map_err(|error| {
                    Failure::Input(format!("cannot read {}: {error}", file.display()))
                })?
                .trim()
                .to_owned(),
        ),
        None => None,
    };
    let client = LoadClient::new(
        &args.url,
        args.endpoint,
        args.model.clone(),
        key,
        !args.no_stream,
        args.timeout(),
    )
    .await
    .map_err(Failure::Runtime)?;
    let client = Arc::new(client);
    let load = &args.load;
    let mut rounds = vec![];
    for &users in &load.users {
        for number in 0..load.rounds {
            let round = load::round(&client, load, users, number).await;
            let round = round.map_err(Failure::Runtime)?;
            rounds.push(ServeRound::new(
                users,
                &round,
                load.prompt,
                load.turn_tokens,
            ));
        }
    }
    Ok(ServeReport {
        url: args.url.clone(),
        model: client.model.clone(),
        streamed: client.stream,
        prompt: load.prompt,
        new: load.new,
        rounds,
    })
}
