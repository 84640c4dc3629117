//! Graphs whole: every sort of node, edges that come and go, copies, captures and changes, on the
//! emulated driver.

#![allow(unsafe_code)]

mod bench;
mod boxes;
mod captures;
mod changes;
mod codes;
mod conditions;
mod form;
#[path = "../fake/kernels.rs"]
mod kernels;
mod memory;
mod profile;
