//! The commands, with one file or folder for each.

pub(crate) mod bench;
pub(crate) mod chat;
pub(crate) mod check;
pub(crate) mod completions;
pub(crate) mod detokenize;
pub(crate) mod devices;
pub(crate) mod doctor;
pub(crate) mod embed;
pub(crate) mod finetune;
pub(crate) mod graph;
pub(crate) mod info;
pub(crate) mod logits;
pub(crate) mod merge;
pub(crate) mod models;
pub(crate) mod perplexity;
pub(crate) mod pull;
pub(crate) mod run;
pub(crate) mod serve;
pub(crate) mod tokenize;
