//! Adapters in files, as PEFT has them: a folder with `adapter_config.json` and `adapter_model.safetensors`.
//!
//! Names and keys are those of [PEFT](https://huggingface.co/docs/peft/developer_guides/checkpoint): A is `[rank, in]`, B
//! is `[out, rank]`, all in `F32`. GGUF files of the llama family permute the rows of Q and K within a head, so that
//! rotary pairs are neighbours; the rows of B go back to the order of the original model. A does not change.

use std::collections::HashMap;
use std::path::Path;

use safetensors::SafeTensors;
use safetensors::tensor::{Dtype, TensorView};
use serde_json::{Value, json};
use warpwright_engine::adapter::Formats;
use warpwright_engine::adapter::names::{self, BASE_FORMATS, CONFIG, NOTES, TENSORS};
use warpwright_kernels::Pairing;

use crate::reference::Adapters;
use crate::{Config, Error, Lora, Projection, files};

/// What names and shapes of files follow from.
#[derive(Clone, Copy, Debug)]
pub struct Shapes<'a> {
    /// Sizes of the model.
    pub config: &'a Config,
    /// Settings of the adapters.
    pub lora: &'a Lora,
    /// The order of rows within a head.
    pub pairing: Pairing,
}

/// Writes the two files into a folder that is there. `base` says which model the adapters are for.
///
/// # Errors
///
/// A file that cannot be written.
pub fn write(
    folder: &Path,
    shapes: &Shapes<'_>,
    adapters: &Adapters,
    base: &str,
) -> Result<(), Error> {
    let lora = shapes.lora;
    let targets: Vec<&str> = lora.targets.iter().map(|p| p.name()).collect();
    let config = json!({
        "peft_type": "LORA",
        "task_type": "CAUSAL_LM",
        "base_model_name_or_path": base,
        "r": lora.rank,
        "lora_alpha": whole(lora.alpha),
        "lora_dropout": lora.dropout,
        "target_modules": targets,
        "bias": "none",
        "fan_in_fan_out": false,
        "use_rslora": false,
        "use_dora": false,
        "inference_mode": true,
    });
    files::write(&folder.join(CONFIG), format!("{config:#}\n").as_bytes())?;
    write_tensors(&folder.join(TENSORS), shapes, &[("", adapters)])
}

/// Writes what an adapter was trained on into its folder: a file of its own, as PEFT refuses keys that it does not know.
///
/// # Errors
///
/// A file that cannot be written.
pub fn write_base_formats(folder: &Path, formats: &Formats) -> Result<(), Error> {
    let notes = json!({ BASE_FORMATS: formats });
    files::write(&folder.join(NOTES), format!("{notes:#}\n").as_bytes())
}

/// A number, without a fraction where it has none: PEFT declares alpha as an integer.
fn whole(number: f64) -> Value {
    if number.fract() == 0.0 && number.abs() < 1e15 {
        json!(number as i64)
    } else {
        json!(number)
    }
}

/// Reads the adapters of a folder that [`write()`] wrote.
///
/// # Errors
///
/// A file that cannot be read, and tensors of other names, types or shapes.
pub fn read(folder: &Path, shapes: &Shapes<'_>) -> Result<Adapters, Error> {
    let [adapters] = read_tensors(&folder.join(TENSORS), shapes, [""])?;
    Ok(adapters)
}

/// Writes several lists of tensors of one shape; their names follow a prefix.
pub(crate) fn write_tensors(
    path: &Path,
    shapes: &Shapes<'_>,
    lists: &[(&str, &Adapters)],
) -> Result<(), Error> {
    let mut tensors: Vec<(String, Vec<usize>, Vec<u8>)> = vec![];
    for (prefix, adapters) in lists {
        for (l, p) in shapes.places() {
            let Some(adapter) = adapters.of(l, p) else {
                continue;
            };
            let ([n, k], rank) = (p.shape(shapes.config), shapes.lora.rank);
            let b = shapes.reorder(p, &adapter.b, Direction::ToFile);
            for (factor, shape, numbers) in [("A", [rank, k], &adapter.a), ("B", [n, rank], &b)] {
                let bytes = numbers
                    .iter()
                    .flat_map(|&x| (x as f32).to_le_bytes())
                    .collect();
                tensors.push((
                    format!("{prefix}{}", name(l, p, factor)),
                    shape.into(),
                    bytes,
                ));
            }
        }
    }
    let fault = |problem: String| Error::Checkpoint {
        path: path.to_owned(),
        problem,
    };
    let views = tensors.iter().map(|(name, shape, bytes)| {
        TensorView::new(Dtype::F32, shape.clone(), bytes).map(|view| (name, view))
    });
    let views: Vec<_> = views
        .collect::<Result<_, _>>()
        .map_err(|error| fault(error.to_string()))?;
    let metadata = HashMap::from([("format".to_string(), "pt".to_string())]);
    let bytes =
        safetensors::serialize(views, Some(metadata)).map_err(|error| fault(error.to_string()))?;
    files::write(path, &bytes)
}

/// Reads lists that [`write_tensors`] wrote with these prefixes.
pub(crate) fn read_tensors<const N: usize>(
    path: &Path,
    shapes: &Shapes<'_>,
    prefixes: [&str; N],
) -> Result<[Adapters; N], Error> {
    let bytes = std::fs::read(path).map_err(|source| Error::Read {
        path: path.to_owned(),
        source,
    })?;
    let fault = |problem: String| Error::Checkpoint {
        path: path.to_owned(),
        problem,
    };
    let tensors =
        SafeTensors::deserialize(&bytes).map_err(|error| fault(files::damaged(&error)))?;
    let mut lists = prefixes.map(|_| Adapters::zeros(shapes.config, shapes.lora));
    let mut read = 0;
    for (prefix, adapters) in prefixes.iter().zip(&mut lists) {
        for (l, p) in shapes.places() {
            let ([n, k], rank) = (p.shape(shapes.config), shapes.lora.rank);
            let Some(adapter) = adapters.layers[l][p as usize].as_mut() else {
                continue;
            };
            let numbers = |factor, shape: [usize; 2]| {
                let name = format!("{prefix}{}", name(l, p, factor));
                numbers(&tensors, &name, shape).map_err(fault)
            };
            adapter.a = numbers("A", [rank, k])?;
            adapter.b = shapes.reorder(p, &numbers("B", [n, rank])?, Direction::FromFile);
            read += 2;
        }
    }
    match tensors.len() {
        found if found == read => Ok(lists),
        found => Err(fault(format!("has {found} tensors, must have {read}"))),
    }
}

fn numbers(tensors: &SafeTensors<'_>, name: &str, shape: [usize; 2]) -> Result<Vec<f64>, String> {
    let tensor = tensors
        .tensor(name)
        .map_err(|_| format!("has no tensor {name}"))?;
    if tensor.dtype() != Dtype::F32 || tensor.shape() != shape {
        return Err(format!(
            "{name} is {:?} {:?}, must be F32 {shape:?}",
            tensor.dtype(),
            tensor.shape()
        ));
    }
    let numbers = tensor.data().chunks_exact(4);
    Ok(numbers
        .map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]]).into())
        .collect())
}

/// The name of a factor's tensor.
fn name(l: usize, p: Projection, factor: &str) -> String {
    names::tensor(l, p as usize, factor)
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Direction {
    ToFile,
    FromFile,
}

impl Shapes<'_> {
    fn places(&self) -> impl Iterator<Item = (usize, Projection)> {
        (0..self.config.layers).flat_map(|l| Projection::ALL.map(|p| (l, p)))
    }

    /// B, whose rows within a head go from pairs of neighbours to halves, or back.
    fn reorder(&self, p: Projection, b: &[f64], direction: Direction) -> Vec<f64> {
        let permuted = names::is_permuted(self.pairing, p as usize);
        let (rank, dim) = (self.lora.rank, self.config.head_dim);
        let mut to = b.to_vec();
        for row in (0..b.len() / rank).filter(|_| permuted) {
            let original = names::original_row(row, dim);
            let (from, into) = match direction {
                Direction::ToFile => (row, original),
                Direction::FromFile => (original, row),
            };
            to[into * rank..][..rank].copy_from_slice(&b[from * rank..][..rank]);
        }
        to
    }
}
