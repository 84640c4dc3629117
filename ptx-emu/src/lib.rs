//! Reads PTX text and runs it on the CPU, refusing what a GPU lets pass.
