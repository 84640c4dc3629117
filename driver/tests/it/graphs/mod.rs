//! Whole graphs on the emulated driver: every kind of node, edges, copies, captures and changes.

mod bench;
mod boxes;
mod captures;
mod changes;
mod codes;
mod conditions;
mod form;
mod memory;
mod profile;
