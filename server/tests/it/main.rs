//! Tests of the server.

mod scheduler;
