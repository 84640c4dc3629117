//! The names in adapter directories, and the order of B's rows in them.

use crate::layer::rope_pairing::RopePairing;

/// The settings file: PEFT's `LoraConfig` as JSON.
pub const CONFIG: &str = "adapter_config.json";
/// The tensor file.
pub const TENSORS: &str = "adapter_model.safetensors";
/// A file of this project that PEFT does not read. It contains [`BASE_FORMATS`].
pub const NOTES: &str = "warpwright.json";
/// The key in [`NOTES`] for the number of base projections in each number format, as an object.
pub const BASE_FORMATS: &str = "base_formats";

/// The largest rank, which is the largest that the kernels compute.
pub const MAX_RANK: u32 = 256;

/// The projections of a layer, as `target_modules` names them, in the order of the forward pass.
pub const PROJECTIONS: [&str; 7] = [
    "q_proj",
    "k_proj",
    "v_proj",
    "o_proj",
    "gate_proj",
    "up_proj",
    "down_proj",
];

/// Returns the module name of a projection in the base model. `projection` is its index in
/// [`PROJECTIONS`].
pub fn module(layer: usize, projection: usize) -> String {
    let block = if projection < 4 { "self_attn" } else { "mlp" };
    format!("model.layers.{layer}.{block}.{}", PROJECTIONS[projection])
}

/// Returns the name of a tensor. `factor` is `A` or `B`.
pub fn tensor(layer: usize, projection: usize, factor: &str) -> String {
    format!(
        "base_model.model.{}.lora_{factor}.weight",
        module(layer, projection)
    )
}

/// Returns true if model files for this pairing store the rows of a projection in another order
/// than the original model.
pub fn is_permuted(pairing: RopePairing, projection: usize) -> bool {
    pairing == RopePairing::Interleaved && projection < 2
}

/// Returns the row of the original model that is row `row` of a model file with permuted rows.
///
/// GGUF files of the llama family store the two rows of a rotary pair next to each other. In the
/// original they are half a head apart (`permute` in llama.cpp's `convert_hf_to_gguf.py`).
pub fn original_row(row: usize, head_dim: usize) -> usize {
    let head = row / head_dim * head_dim;
    let i = row % head_dim;
    head + i % 2 * (head_dim / 2) + i / 2
}

/// Reorders the rows of a permuted projection from the order of the original model to the order of
/// the file. Each row has `n` elements.
pub(crate) fn in_pairs(rows: &[f32], n: usize, head_dim: usize) -> Vec<f32> {
    let row = |row| &rows[original_row(row, head_dim) * n..][..n];
    (0..rows.len() / n).flat_map(row).copied().collect()
}
