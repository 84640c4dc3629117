//! Tests of the server through its public interface.

mod harness;
mod http;
