//! The kernels that decode language models, written in ptx-gen.
