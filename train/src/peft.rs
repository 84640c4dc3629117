//! Adapters in the directory format of PEFT: `adapter_config.json` and `adapter_model.safetensors`.
//!
//! [PEFT](https://huggingface.co/docs/peft/developer_guides/checkpoint) defines the names and keys.
//! A is `[rank, in]` and B is `[out, rank]`, both in `F32`. GGUF files of the llama family permute
//! the rows of Q and K within a head, so that rotary pairs are neighbors. The rows of B are written
//! in the order of the original model. A has no such order.

use std::collections::HashMap;
use std::path::Path;

use safetensors::SafeTensors;
use safetensors::tensor::{Dtype, TensorView};
use serde_json::{Value, json};
use warpwright_model::RopePairing;
use warpwright_model::adapter::names::{BASE_FORMATS, CONFIG, NOTES, TENSORS};
use warpwright_model::adapter::{Formats, names};

use crate::projection::LayerProjection;
use crate::reference::Adapters;
use crate::{Config, Error, Lora, Projection, files};

/// The parameters that determine the names and shapes of an adapter's tensors.
#[derive(Clone, Copy, Debug)]
pub struct AdapterShapes<'a> {
    /// The sizes of the model.
    pub config: &'a Config,
    /// The settings of the adapters.
    pub lora: &'a Lora,
    /// The order of rows within a head.
    pub pairing: RopePairing,
}

/// Writes an adapter's two files into an existing folder. `base` names the model for which the
/// adapter was trained.
///
/// # Errors
/// Returns [`Error::Write`] if a file cannot be written.
pub fn write(
    folder: &Path,
    shapes: &AdapterShapes<'_>,
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

/// Writes the number formats on which an adapter was trained into its folder.
///
/// They go into a separate file, because PEFT rejects configurations with unknown keys.
///
/// # Errors
/// Returns [`Error::Write`] if the file cannot be written.
pub fn write_base_formats(folder: &Path, formats: &Formats) -> Result<(), Error> {
    let notes = json!({ BASE_FORMATS: formats });
    files::write(&folder.join(NOTES), format!("{notes:#}\n").as_bytes())
}

/// Returns a number as an integer if it has no fraction, because PEFT declares alpha as an integer.
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
/// Returns [`Error::Read`] if the file cannot be read, or [`Error::Checkpoint`] if its tensors have
/// other names, types or shapes.
pub fn read(folder: &Path, shapes: &AdapterShapes<'_>) -> Result<Adapters, Error> {
    let [adapters] = read_tensors(&folder.join(TENSORS), shapes, [""])?;
    Ok(adapters)
}

/// Writes several lists of tensors with the same shapes. The names of each list start with its
/// prefix.
pub(crate) fn write_tensors(
    path: &Path,
    shapes: &AdapterShapes<'_>,
    lists: &[(&str, &Adapters)],
) -> Result<(), Error> {
    let mut tensors: Vec<(String, Vec<usize>, Vec<u8>)> = vec![];
    for (prefix, adapters) in lists {
        for of in shapes.layer_projections() {
            let p = of.projection;
            let Some(adapter) = adapters.of(of.layer, p) else {
                continue;
            };

            let [n, k] = p.shape(shapes.config);
            let rank = shapes.lora.rank;

            // The optimizer's moments have the layout of the adapters, so they are reordered too.
            let b = shapes.reorder(p, &adapter.b, ReorderDirection::ToFile);
            for (factor, shape, numbers) in [("A", [rank, k], &adapter.a), ("B", [n, rank], &b)] {
                let bytes = numbers
                    .iter()
                    .flat_map(|&x| (x as f32).to_le_bytes())
                    .collect();
                tensors.push((format!("{prefix}{}", name(of, factor)), shape.into(), bytes));
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

    // Some versions of Transformers refuse a file that does not name its framework.
    let metadata = HashMap::from([("format".to_string(), "pt".to_string())]);
    let bytes =
        safetensors::serialize(views, Some(metadata)).map_err(|error| fault(error.to_string()))?;
    files::write(path, &bytes)
}

/// Reads the lists of tensors that [`write_tensors`] wrote with these prefixes.
pub(crate) fn read_tensors<const N: usize>(
    path: &Path,
    shapes: &AdapterShapes<'_>,
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
        for of in shapes.layer_projections() {
            let p = of.projection;
            let [n, k] = p.shape(shapes.config);
            let rank = shapes.lora.rank;
            let Some(adapter) = adapters.layers[of.layer][p as usize].as_mut() else {
                continue;
            };

            let numbers = |factor, shape: [usize; 2]| {
                let name = format!("{prefix}{}", name(of, factor));
                numbers(&tensors, &name, shape).map_err(fault)
            };
            adapter.a = numbers("A", [rank, k])?;
            adapter.b = shapes.reorder(p, &numbers("B", [n, rank])?, ReorderDirection::FromFile);
            read += 2;
        }
    }

    // All expected tensors were found, so a different number means unexpected ones.
    let found = tensors.len();
    if found != read {
        return Err(fault(format!(
            "the file has {found} tensors, but must have {read}"
        )));
    }

    Ok(lists)
}

fn numbers(tensors: &SafeTensors<'_>, name: &str, shape: [usize; 2]) -> Result<Vec<f64>, String> {
    let tensor = tensors
        .tensor(name)
        .map_err(|_| format!("the tensor {name} is missing"))?;
    if tensor.dtype() != Dtype::F32 || tensor.shape() != shape {
        return Err(format!(
            "{name} is {:?} {:?}, but must be F32 {shape:?}",
            tensor.dtype(),
            tensor.shape()
        ));
    }

    let numbers = tensor.data().chunks_exact(4);
    Ok(numbers
        .map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]]).into())
        .collect())
}

/// Returns the name of a factor's tensor.
fn name(of: LayerProjection, factor: &str) -> String {
    names::tensor(of.layer, of.projection as usize, factor)
}

/// The direction of a reordering.
#[derive(Clone, Copy, PartialEq, Eq)]
enum ReorderDirection {
    ToFile,
    FromFile,
}

impl AdapterShapes<'_> {
    /// Returns all layers and projections, in the order of the forward pass.
    fn layer_projections(&self) -> impl Iterator<Item = LayerProjection> {
        (0..self.config.layers).flat_map(|l| Projection::ALL.map(|p| p.of_layer(l)))
    }

    /// Returns B with its rows in the order of the file or of the model. Only permuted projections
    /// are reordered.
    fn reorder(&self, p: Projection, b: &[f64], direction: ReorderDirection) -> Vec<f64> {
        let mut to = b.to_vec();
        if !names::is_permuted(self.pairing, p as usize) {
            return to;
        }

        let rank = self.lora.rank;
        let dim = self.config.head_dim;
        for row in 0..b.len() / rank {
            let original = names::original_row(row, dim);
            let (from, into) = match direction {
                ReorderDirection::ToFile => (row, original),
                ReorderDirection::FromFile => (original, row),
            };
            to[into * rank..][..rank].copy_from_slice(&b[from * rank..][..rank]);
        }

        to
    }
}
