//! Tests of the server through its public interface.

mod adapters;
mod agents;
mod deterministic;
mod device_engines;
mod harness;
mod http;
mod models;
mod native;
mod openai_chat;
mod openai_completions;
mod openai_http;
mod reply;
mod restart;
mod scheduler;
mod speculation;
