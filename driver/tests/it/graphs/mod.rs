//! Graphs whole: every sort of node, edges that come and go, copies, captures and changes, on the
//! emulated driver.

mod bench;
mod boxes;
mod captures;
mod changes;
mod codes;
mod conditions;
mod form;
mod memory;
mod profile;
