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
mod speculation;
