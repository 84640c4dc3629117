//! Names in adapters' folders, and the order of B's rows there.

use warpwright_kernels::Pairing;

/// The file of settings: PEFT's `LoraConfig` as JSON.
pub const CONFIG: &str = "adapter_config.json";
/// The file of tensors.
pub const TENSORS: &str = "adapter_model.safetensors";
/// A file of ours that PEFT does not read: [`BASE_FORMATS`].
pub const NOTES: &str = "warpwright.json";
/// The key there: how many of the base's projections were in which number format, as an object.
pub const BASE_FORMATS: &str = "base_formats";

/// The projections of a layer as `target_modules` names them, in the order of a layer's forward.
pub const PROJECTIONS: [&str; 7] = [
    "q_proj",
    "k_proj",
    "v_proj",
    "o_proj",
    "gate_proj",
    "up_proj",
    "down_proj",
];

/// The module of a projection, by its place in [`PROJECTIONS`], as the base model names it.
pub fn module(layer: usize, projection: usize) -> String {
    let block = if projection < 4 { "self_attn" } else { "mlp" };
    format!("model.layers.{layer}.{block}.{}", PROJECTIONS[projection])
}

/// The name of a tensor; `factor` is `A` or `B`.
pub fn tensor(layer: usize, projection: usize, factor: &str) -> String {
    format!(
        "base_model.model.{}.lora_{factor}.weight",
        module(layer, projection)
    )
}

/// Whether a file for this pairing has the rows of a projection in another order than the original model.
pub fn is_permuted(pairing: Pairing, projection: usize) -> bool {
    pairing == Pairing::Interleaved && projection < 2
}

/// The row of the original model that row `row` of such a projection is: GGUF files of the llama family make the two
/// rows of a rotary pair neighbours, where the original has them half a head apart (`permute` of llama.cpp's
/// `convert_hf_to_gguf.py`).
pub fn original_row(row: usize, head_dim: usize) -> usize {
    let (head, i) = (row / head_dim * head_dim, row % head_dim);
    head + i % 2 * (head_dim / 2) + i / 2
}

/// Such a projection's rows of `n` numbers, from the original model's order to that of the file.
pub(crate) fn in_pairs(rows: &[f32], n: usize, head_dim: usize) -> Vec<f32> {
    let row = |row| &rows[original_row(row, head_dim) * n..][..n];
    (0..rows.len() / n).flat_map(row).copied().collect()
}
