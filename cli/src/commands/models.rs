//! `warpwright models`: lists and removes downloaded models.

use std::io::{self, Write};

use clap::Subcommand;
use comfy_table::{CellAlignment, Table, presets};
use indicatif::HumanBytes;
use serde_json::json;

use crate::failure::Failure;
use crate::hub::{self, HubReference, PREFIX, StoredModels};
use warpwright_emu::terminal::{counted, print, printable, say};

#[derive(clap::Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Option<ModelsCommand>,
    /// Print a JSON array of objects with repo, file, size, quant, commit and path
    #[arg(long)]
    json: bool,
}

#[derive(Subcommand)]
enum ModelsCommand {
    /// Remove a model from the hub's cache folder
    Remove(RemoveArgs),
}

#[derive(clap::Args)]
struct RemoveArgs {
    /// Model: hf:ORG/REPO for all files of the repository, or hf:ORG/REPO:FILE or :QUANT for one
    #[arg(value_name = "hf:ORG/REPO")]
    model: HubReference,
}

pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    match &args.command {
        Some(ModelsCommand::Remove(remove)) => self::remove(&remove.model),
        None => list(args),
    }
}

/// Prints the downloaded models as a table or as JSON.
fn list(args: &Args) -> Result<(), Failure> {
    let StoredModels {
        cache,
        models,
        unfinished,
    } = hub::stored_models()?;
    if args.json {
        writeln!(io::stdout(), "{}", json!(models))?;
    } else if models.is_empty() {
        say(format!(
            "no models in {}; `warpwright pull hf:ORG/REPO` downloads one",
            cache.display()
        ));
    } else {
        let mut table = Table::new();
        table
            .load_style(presets::ASCII_MARKDOWN)
            .set_header(["repo", "file", "size", "quant", "path"]);
        if let Some(sizes) = table.column_mut(2) {
            sizes.set_cell_alignment(CellAlignment::Right);
        }

        for model in &models {
            table.add_row([
                model.repo.clone(),
                model.file.clone().unwrap_or_else(|| "(folder)".to_owned()),
                HumanBytes(model.size).to_string(),
                model.quant.clone().unwrap_or_else(|| "-".to_owned()),
                model.path.display().to_string(),
            ]);
        }

        writeln!(io::stdout(), "{}", printable(&table.trim_fmt()))?;
    }

    // Standard output contains only the table or the JSON, so this goes to stderr.
    for (repo, bytes) in unfinished {
        say(format!(
            "{PREFIX}{repo} has {} of an unfinished download: pull it again, or remove it",
            HumanBytes(bytes)
        ));
    }

    Ok(())
}

/// Removes a model, and prints how much space is free again.
fn remove(model: &HubReference) -> Result<(), Failure> {
    let removed = hub::remove(model)?;
    let files = counted(removed.files, "file");
    print(&format_args!(
        "removed {files} of {model}, {} are free again",
        HumanBytes(removed.bytes)
    ))?;
    if removed.shared > 0 {
        let contents = counted(removed.shared, "content");
        say(format!(
            "{contents} stay in the store that repositories share; `hf cache prune` removes unused ones"
        ));
    }

    Ok(())
}
