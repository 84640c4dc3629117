//! See `tests/fuzz/targets.rs`.
#![no_main]

#[allow(dead_code, reason = "each fuzzer calls one of its functions")]
#[path = "../../tests/fuzz/targets.rs"]
mod targets;

libfuzzer_sys::fuzz_target!(|data: &[u8]| targets::thoughts(data));
