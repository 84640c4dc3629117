//! The option `--adapter`: a model with an adapter, what there is to say of it, and when to warn.

use std::path::{Path, PathBuf};

use warpwright_engine::adapter::{Adapter, Formats};
use warpwright_engine::info::{adapter_bytes, layer_formats};
use warpwright_engine::{Model, Outline};

use crate::failure::Failure;
use crate::terminal::say;

/// An adapter of the model.
#[derive(clap::Args, Debug)]
pub(crate) struct AdapterArgs {
    /// LoRA adapter to apply: a folder as PEFT and `finetune` write it
    #[arg(long, visible_alias = "lora", value_name = "FOLDER")]
    adapter: Option<PathBuf>,
}

impl AdapterArgs {
    /// Opens the model, with the adapter if there is one, and [warns](warn) of that.
    pub(crate) fn open(&self, model: &Path) -> Result<Model, Failure> {
        let model = Model::open(model)?;
        let Some(folder) = &self.adapter else {
            return Ok(model);
        };
        let model = model.with_adapter(folder)?;
        warn(&model);
        Ok(model)
    }

    /// What is read, for an output.
    pub(crate) fn input(&self) -> Option<(&'static str, &Path)> {
        self.adapter.as_deref().map(|folder| ("adapter", folder))
    }
}

/// Warns if a model's adapter was trained on other weights, or lacks some that its settings name.
pub(crate) fn warn(model: &Model) {
    for warning in formats_differ(&model.outline)
        .into_iter()
        .chain(missing(&model.outline))
    {
        say(format!("warning: {warning}"));
    }
}

/// An adapter that was trained on other number formats may have learned to make up for their rounding.
fn formats_differ(outline: &Outline) -> Option<String> {
    let trained_on = outline.adapter.as_ref()?.trained_on.as_ref()?;
    let here = layer_formats(outline);
    (*trained_on != here).then(|| {
        let [there, here] = [trained_on, &here].map(listed);
        format!(
            "the adapter was trained on projections in {there}; this model has {here}. What it learned of the rounding \
             does not fit"
        )
    })
}

/// Projections named in a message, at most.
const NAMED: usize = 3;

/// An adapter that has no matrices for some projections may have been cut short.
fn missing(outline: &Outline) -> Option<String> {
    let missing = &outline.adapter.as_ref()?.missing;
    let (first, more) = missing.split_at(missing.len().min(NAMED));
    let more = if more.is_empty() {
        String::new()
    } else {
        format!(" and {} more", more.len())
    };
    (!first.is_empty()).then(|| {
        format!(
            "the adapter has no matrices for {}{more}, which its settings name; they add nothing, as in PEFT",
            first.join(", ")
        )
    })
}

/// `24 x Q4_K, 4 x Q6_K`
fn listed(formats: &Formats) -> String {
    formats
        .iter()
        .map(|(format, count)| format!("{count} x {format}"))
        .collect::<Vec<_>>()
        .join(", ")
}

/// `rank 8, alpha 16`, with what is unusual.
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

/// How prompts go in.
const PROMPTS: &str =
    "up to eight tokens at a time, as the kernels of longer chunks add no adapter";

/// A line for `run`.
pub(crate) fn line(outline: &Outline) -> Option<String> {
    let adapter = outline.adapter.as_ref()?;
    let (scale, bytes) = (scale(adapter), adapter_bytes(outline) as f64 / 1e6);
    Some(format!(
        "adapter of {scale}, {bytes:.1} MB on the device; prompts go in {PROMPTS}"
    ))
}

/// Rows for `info`.
pub(crate) fn rows(outline: &Outline) -> Vec<[String; 2]> {
    let Some(adapter) = &outline.adapter else {
        return vec![];
    };
    let targets = adapter.targets();
    let layers = outline.config.layers;
    let target = |(name, count): &(&str, usize)| match *count == layers as usize {
        true => (*name).to_owned(),
        false => format!("{name} in {count} of {layers} layers"),
    };
    let base = adapter
        .base
        .as_deref()
        .unwrap_or("a model that it does not name");
    let trained_on = match &adapter.trained_on {
        Some(formats) => format!("projections in {}", listed(formats)),
        None => "projections in formats that it does not name".to_owned(),
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
                "{} numbers; {} bytes on the device",
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
