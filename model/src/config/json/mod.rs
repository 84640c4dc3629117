//! The hyperparameters in the file `config.json` of a Hugging Face folder.

pub(crate) mod experts;
pub(crate) mod families;
pub(crate) mod known_keys;
pub(crate) mod layer_kinds;
pub(crate) mod quantization;
pub(crate) mod read;
pub(crate) mod rope;
