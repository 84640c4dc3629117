//! `warpwright info`: what a model file holds, without loading the weights.

use std::io::{self, Write};
use std::path::PathBuf;

use comfy_table::{CellAlignment, Table, presets};
use warpwright_driver::Device;
use warpwright_engine::info::{Class, classes, kv_bytes, token_bytes};
use warpwright_engine::{Config, Model, Path, Tuning};

use crate::adapter::{self, AdapterArgs};
use crate::device::{self, Choice};
use crate::failure::Failure;
use crate::terminal::printable;

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Model: a GGUF file, or a Hugging Face folder
    model: PathBuf,
    #[command(flatten)]
    adapter: AdapterArgs,
    /// Which device the kernels would run on: auto, cuda:N or emu (the emulator)
    #[arg(long, value_name = "DEVICE", default_value_t = Choice::Auto)]
    device: Choice,
}

pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    let model = args.adapter.open(&args.model)?;
    let device = device::find(args.device, |_| ())?;
    let mut out = io::stdout().lock();
    let text = format!("{}\n\n{}", facts(&model, &device).trim_fmt(), tensors(&model).trim_fmt());
    writeln!(out, "{}", printable(&text))?;
    Ok(())
}

fn facts(model: &Model, device: &Device) -> Table {
    let path = Path::of(&model.outline, device, Tuning::default());
    let c = &model.outline.config;
    let mut table = Table::new();
    table.load_style(presets::NOTHING).add_rows([
        ["file", &model.files.path().display().to_string()],
        ["architecture", c.architecture.name],
        ["layers", &c.layers.to_string()],
        ["hidden", &c.hidden.to_string()],
        ["feed-forward", &c.feed_forward.to_string()],
        ["heads", &format!("{} query, {} key and value, of {}", c.heads, c.kv_heads, c.head_dim)],
        ["vocabulary", &c.vocab.to_string()],
        ["context", &c.context.to_string()],
        [
            "LM head",
            if model.outline.weights.head.is_some() { "a matrix of its own" } else { "the embedding" },
        ],
        ["read per token", &format!("{} bytes of weights", token_bytes(&model.outline))],
        ["", &format!("{} bytes of KV cache for each position", kv_bytes(&model.outline))],
        ["decoded by", &path.to_string()],
        ["", &format!("on {}", device.name())],
    ]);
    table.add_rows(window(c).map(|window| ["window".to_owned(), window]));
    table.add_rows(adapter::rows(&model.outline));
    table
}

/// How many positions a layer attends to, if not to all.
fn window(c: &Config) -> Option<String> {
    let windows: Vec<u32> = (0..c.layers).filter_map(|layer| c.window_of(layer)).collect();
    let window = windows.first()?;
    Some(format!("{window} positions, in {} of {} layers", windows.len(), c.layers))
}

fn tensors(model: &Model) -> Table {
    let mut table = Table::new();
    table.load_style(presets::ASCII_MARKDOWN).set_header(["tensor", "shape", "format", "bytes"]);
    table.add_rows(classes(&model.outline).iter().map(row));
    table.column_mut(3).expect("there are four columns").set_cell_alignment(CellAlignment::Right);
    table
}

fn row(class: &Class) -> [String; 4] {
    let formats =
        class.formats.iter().map(|(format, count)| format!("{count} x {format}")).collect::<Vec<_>>();
    // Rows first, as mathematics has it; the file has the contiguous dimension first.
    let shape = class.dims.iter().rev().map(u64::to_string).collect::<Vec<_>>();
    [class.name.clone(), shape.join(" x "), formats.join(", "), class.bytes.to_string()]
}
