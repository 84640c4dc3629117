//! Tests of the server through its public interface.

mod device_engines;
mod harness;
mod http;
mod openai_chat;
mod reply;
mod scheduler;
