//! The Rust code of the README and of the book, which `cargo test --doc` compiles and runs.
//!
//! `cargo xtask book --check` fails if a page with Rust code is missing here.

macro_rules! pages {
    ($($name:ident = $file:literal;)*) => {$(
        #[doc = include_str!(concat!("../../", $file))]
        mod $name {}
    )*};
}

pages! {
    readme = "README.md";
    guide_library = "docs/guide/library.md";
    kernels_first_kernel = "docs/kernels/first-kernel.md";
    kernels_control_flow = "docs/kernels/control-flow.md";
    kernels_shared_memory = "docs/kernels/shared-memory.md";
    kernels_reductions = "docs/kernels/reductions.md";
    kernels_tensor_cores = "docs/kernels/tensor-cores.md";
    checker_unit_tests = "docs/checker/unit-tests.md";
    driver_first_program = "docs/driver/first-program.md";
    driver_streams = "docs/driver/streams.md";
    driver_graphs = "docs/driver/graphs.md";
    driver_memory = "docs/driver/memory.md";
    driver_errors = "docs/driver/errors.md";
}
