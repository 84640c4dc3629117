//! Tunings that `bench --tune` found, kept in the user's cache directory: one file for a device and a model's shape.

use std::fs;
use std::path::PathBuf;

use etcetera::{BaseStrategy, choose_base_strategy};
use serde::{Deserialize, Serialize};
use warpwright_driver::Device;
use warpwright_engine::{Outline, Tuning};

use crate::failure::Failure;
use crate::output::write_file;

/// How the kernels are tuned, and by whom.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tuned {
    pub(crate) tuning: Tuning,
    /// The file that says so.
    pub(crate) file: Option<PathBuf>,
}

impl Tuned {
    /// What the user asks for, else what was kept, else the built-in plans.
    pub(crate) fn of(asked: Option<Tuning>, device: &Device, outline: &Outline) -> Tuned {
        if let Some(tuning) = asked {
            return Tuned { tuning, file: None };
        }
        kept(device, outline).map_or_else(Tuned::default, |(tuning, file)| Tuned { tuning, file: Some(file) })
    }

    /// What differs from the built-in plans, and which file says so.
    pub(crate) fn said(&self) -> Option<String> {
        let tuning = Some(self.tuning.to_string()).filter(|text| !text.is_empty())?;
        Some(match &self.file {
            Some(file) => format!("{tuning} ({})", file.display()),
            None => tuning,
        })
    }
}

/// A file in the cache.
#[derive(Serialize, Deserialize)]
struct File {
    device: String,
    model: String,
    /// As `--plan` takes it.
    tuning: String,
}

/// What a file is found by.
fn key(device: &Device, outline: &Outline) -> [String; 2] {
    let c = &outline.config;
    let shape = [c.layers, c.hidden, c.feed_forward, c.heads, c.kv_heads, c.head_dim, c.vocab];
    let shape = shape.map(|n| n.to_string()).join("x");
    let block = outline.weights.blocks.first();
    let formats = block.map(|b| [&b.q, &b.o, &b.gate, &b.down].map(|tensor| tensor.format.name()).join("-"));
    let model = format!("{} {shape} {}", c.architecture.name(), formats.unwrap_or_default());
    [device.name().to_owned(), model]
}

fn path(key: &[String; 2]) -> Result<PathBuf, Failure> {
    let fault = |error| Failure::Runtime(format!("the user's cache directory is not known: {error}"));
    let folder = choose_base_strategy().map_err(fault)?.cache_dir();
    let plain = |c: char| if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { '-' };
    let name: String = key.join("-").chars().map(plain).collect();
    Ok(folder.join("warpwright/tuning").join(name + ".json"))
}

/// What was kept for this device and model. A file that is damaged counts as none: `bench --tune` replaces it.
fn kept(device: &Device, outline: &Outline) -> Option<(Tuning, PathBuf)> {
    let key = key(device, outline);
    let path = path(&key).ok()?;
    let file: File = serde_json::from_str(&fs::read_to_string(&path).ok()?).ok()?;
    let same = [file.device, file.model] == key;
    Some((file.tuning.parse().ok().filter(|_| same)?, path))
}

/// Keeps a tuning; gives the file.
pub(crate) fn keep(tuning: &Tuning, device: &Device, outline: &Outline) -> Result<PathBuf, Failure> {
    let key = key(device, outline);
    let path = path(&key)?;
    let fault = |error| Failure::Runtime(format!("cannot write {}: {error}", path.display()));
    fs::create_dir_all(path.parent().expect("a file is in a folder")).map_err(fault)?;
    let [device, model] = key;
    let file = File { device, model, tuning: tuning.to_string() };
    let text = serde_json::to_string_pretty(&file).expect("strings") + "\n";
    write_file(&path, |sink| sink.write(text.as_bytes()))?;
    Ok(path)
}
