//! Tests of the server through its public interface.

mod adapters;
mod agents;
mod deterministic;
mod device_engines;
mod fuzz;
mod harness;
mod http;
mod limits;
mod models;
mod native;
mod openai_chat;
mod openai_completions;
mod openai_http;
mod reply;
mod restart;
mod scheduler;
mod simple_kernels;
mod speculation;
mod wrong_types;

#[allow(dead_code)] // The tests of models use the rest.
#[path = "../../../tests/support/folders.rs"]
mod folders;
#[path = "../../../tests/support/splitmix.rs"]
mod splitmix;
#[allow(dead_code)] // The tests of models use the rest.
#[path = "../../../tests/support/write.rs"]
mod write;
