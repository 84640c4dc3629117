//! LoRA adapters (Hu et al., "LoRA: Low-Rank Adaptation of Large Language Models", ICLR 2022,
//! <https://arxiv.org/abs/2106.09685>), in the directory format of
//! [PEFT](https://huggingface.co/docs/peft/developer_guides/checkpoint).
//!
//! [`Model::with_adapter`](crate::Model::with_adapter) reads an adapter and adds it to the outline
//! of the model, from which a decoder loads it. A projection with an adapter computes `W x + s B A
//! x`, where A is `[rank, in]`, B is `[out, rank]` and `s` is `alpha / rank`.
//!
//! The weights stay as they are, because adding the adapter to quantized weights could round it
//! away. [`merge`](crate::merge) writes files in which the adapter is added to wider weights.

pub(crate) mod config;
pub(crate) mod data;
pub(crate) mod fault;
pub(crate) mod folder;
pub(crate) mod missing;
pub mod names;
pub(crate) mod patterns;
pub(crate) mod tensors;

pub use data::{Adapter, Formats, LoraFactors};
pub use fault::AdapterFault;
