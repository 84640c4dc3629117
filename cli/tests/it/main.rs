//! The program, run as a user runs it.

mod adapter;
mod bench;
mod bench_batch;
mod bench_finetune;
mod chat;
mod emu;
mod emulator;
mod finetune;
mod first_steps;
mod folder;
mod grammar;
#[cfg(unix)]
mod hub;
mod input;
mod merge;
mod model_option;
mod nf4_folder;
mod outputs;
mod program;
mod prompts;
mod proposals;
mod scores;
#[cfg(unix)]
mod serve;
#[path = "../../../tests/support/shortened.rs"]
mod shortened;
#[cfg(unix)]
mod signals;
mod speculative;
mod tokens;
mod usage;
