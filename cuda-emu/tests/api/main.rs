//! The driver API as programs call it, chapter by chapter, through the table.

#![allow(unsafe_code)]

mod capture;
mod conditions;
mod failures;
mod graphs;
mod harness;
mod launches;
mod memory;
mod modules;
mod overlap;
mod start;
mod streams;
