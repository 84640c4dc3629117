//! The functions of the driver API, with one module per chapter of its documentation.

#![allow(unsafe_code, non_snake_case)]

pub(crate) mod absent;
pub(crate) mod address;
pub(crate) mod array;
pub(crate) mod boxes;
pub(crate) mod capture;
pub(crate) mod context;
pub(crate) mod copy;
pub(crate) mod device;
mod dot;
pub(crate) mod edges;
pub(crate) mod event;
pub(crate) mod exec;
pub(crate) mod exec_update;
pub(crate) mod export;
pub(crate) mod function;
pub(crate) mod graph;
pub(crate) mod graph_memory;
pub(crate) mod launch;
pub(crate) mod library;
pub(crate) mod link;
pub(crate) mod mapping;
pub(crate) mod memory;
pub(crate) mod module;
pub(crate) mod node;
mod node_content;
pub(crate) mod node_params;
pub(crate) mod occupancy;
pub(crate) mod peer;
pub(crate) mod pool;
pub(crate) mod private;
pub(crate) mod stream;
pub(crate) mod symbols;
pub(crate) mod tensor_map;
pub(crate) mod texture;
pub(crate) mod unsupported;
pub(crate) mod words;
