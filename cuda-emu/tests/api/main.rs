//! The driver API as programs call it, chapter by chapter, through the table.

#![allow(unsafe_code)]

mod capture;
mod clusters;
mod conditions;
mod devices;
mod failures;
mod graphs;
mod harness;
mod images;
mod kinds;
mod launches;
mod libraries;
mod mappings;
mod memory;
mod modules;
mod node_params;
mod overlap;
mod start;
mod streams;
mod tensor_maps;
mod textures;
mod turns;
