//! The option `--adapter`, and the warnings and descriptions of an adapter.

use std::path::{Path, PathBuf};

use warpwright_engine::info::adapter_bytes;
use warpwright_model::adapter::{Adapter, Formats};
use warpwright_model::info::layer_formats;
use warpwright_model::{Model, Outline};

use crate::failure::Failure;
use warpwright_emu::terminal::say;

/// The option `--adapter`.
#[derive(clap::Args, Debug)]
pub(crate) struct AdapterArgs {
    /// LoRA adapter to apply: a folder written by PEFT or `warpwright finetune`
    #[arg(long, visible_alias = "lora", value_name = "FOLDER")]
    adapter: Option<PathBuf>,
}

impl AdapterArgs {
    /// Opens the model with the adapter, if there is one, and prints its [warnings](warn).
    ///
    /// # Errors
    /// Returns an error if the model or the adapter cannot be read, or if they do not match.
    pub(crate) fn open(&self, model: &Path) -> Result<Model, Failure> {
        let model = Model::open(model)?;
        let Some(folder) = &self.adapter else {
            return Ok(model);
        };
        let model = model.with_adapter(folder)?;
        warn(&model);
        Ok(model)
    }

    /// Returns the adapter as an input file, which the output must not overwrite.
    pub(crate) fn input(&self) -> Option<(&'static str, &Path)> {
        self.adapter.as_deref().map(|folder| ("adapter", folder))
    }
}

/// Prints a warning if the adapter was trained on other weight formats, or if it lacks matrices.
pub(crate) fn warn(model: &Model) {
    for warning in formats_differ(&model.outline)
        .into_iter()
        .chain(missing(&model.outline))
    {
        say(format!("warning: {warning}"));
    }
}

/// Returns a warning if the adapter was trained on projections in other formats than the model has.
///
/// Such an adapter has learned to compensate for the rounding of the other formats.
fn formats_differ(outline: &Outline) -> Option<String> {
    let trained_on = outline.adapter.as_ref()?.trained_on.as_ref()?;
    let here = layer_formats(outline);
    if *trained_on == here {
        return None;
    }

    let there = listed(trained_on);
    let here = listed(&here);
    Some(format!(
        "the adapter was trained on projections in {there}, and this model has {here}: the adapter may compensate for \
         rounding that does not occur here"
    ))
}

/// The largest number of projections that a message names.
const NAMED: usize = 3;

/// Returns a warning if the adapter lacks matrices that its settings list. The file may have been
/// truncated.
fn missing(outline: &Outline) -> Option<String> {
    let missing = &outline.adapter.as_ref()?.missing;
    if missing.is_empty() {
        return None;
    }

    let (first, more) = missing.split_at(missing.len().min(NAMED));
    let more = if more.is_empty() {
        String::new()
    } else {
        format!(" and {} more", more.len())
    };
    Some(format!(
        "the adapter has no matrices for {}{more}, although its settings list them; these projections are unchanged, as \
         in PEFT",
        first.join(", ")
    ))
}

/// Returns formats with their counts, for example `24 x Q4_K, 4 x Q6_K`.
fn listed(formats: &Formats) -> String {
    formats
        .iter()
        .map(|(format, count)| format!("{count} x {format}"))
        .collect::<Vec<_>>()
        .join(", ")
}

/// Returns the rank and the scale of an adapter, for example `rank 8, alpha 16`.
pub(crate) fn scale(adapter: &Adapter) -> String {
    let ranks = adapter.ranks();
    let rank = if ranks.start() == ranks.end() {
        format!("rank {}", ranks.end())
    } else {
        format!("ranks {} to {}", ranks.start(), ranks.end())
    };
    let root = if adapter.rslora {
        ", rank-stabilized"
    } else {
        ""
    };
    format!("{rank}, alpha {}{root}", adapter.alpha)
}

/// The way in which prompts are prefilled with an adapter.
const PROMPTS: &str =
    "up to eight tokens at a time, because the kernels for longer chunks do not apply adapters";

/// Returns the line of statistics about the adapter, if there is one.
pub(crate) fn line(outline: &Outline) -> Option<String> {
    let adapter = outline.adapter.as_ref()?;
    let scale = scale(adapter);
    let megabytes = adapter_bytes(outline) as f64 / 1e6;
    Some(format!(
        "adapter of {scale}, {megabytes:.1} MB on the device; prompts are prefilled {PROMPTS}"
    ))
}

/// Returns the rows of `info` about the adapter.
pub(crate) fn rows(outline: &Outline) -> Vec<[String; 2]> {
    let Some(adapter) = &outline.adapter else {
        return vec![];
    };

    let targets = adapter.targets();
    let layers = outline.config.layer_count();

    // Most adapters target the same projections in every layer. The others are pointed out.
    let target = |(name, count): &(&str, usize)| {
        if *count == layers as usize {
            (*name).to_owned()
        } else {
            format!("{name} in {count} of {layers} layers")
        }
    };
    let base = adapter.base.as_deref().unwrap_or("an unnamed model");
    let trained_on = match &adapter.trained_on {
        Some(formats) => format!("projections in {}", listed(formats)),
        None => "projections in unknown formats".to_owned(),
    };
    [
        ("adapter", adapter.path.display().to_string()),
        ("", scale(adapter)),
        (
            "",
            targets.iter().map(target).collect::<Vec<_>>().join(", "),
        ),
        (
            "",
            format!(
                "{} parameters; {} bytes on the device",
                adapter.numbers(),
                adapter_bytes(outline)
            ),
        ),
        ("", format!("trained for {base}")),
        ("", format!("on {trained_on}")),
        ("prompts", PROMPTS.to_owned()),
    ]
    .map(|(name, text)| [name.to_owned(), text])
    .into()
}
