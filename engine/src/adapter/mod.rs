//! LoRA adapters in the folders that [PEFT](https://huggingface.co/docs/peft/developer_guides/checkpoint) writes, and
//! their matrices as the kernels want them.
//!
//! [`Model::with_adapter`](crate::Model::with_adapter) reads one and makes it a part of the model's outline, by which a
//! decoder knows what to load. A projection then gives `W x + s B A x`, where A is `[rank, in]`, B is `[out, rank]` and
//! `s` is `alpha / rank`. The frozen weights are not changed: added to quantized ones, the product could be rounded away.
//! [`merge`](crate::merge) writes files in which it is added to wider ones.

pub(crate) mod config;
pub(crate) mod data;
pub(crate) mod fault;
pub(crate) mod folder;
pub(crate) mod missing;
pub mod names;
pub(crate) mod patterns;
pub(crate) mod tensors;
pub(crate) mod tiles;

pub use data::{Adapter, Formats};
