//! The emulator against the PTX manual: what each instruction gives, and what each mistake is called.
//!
//! The 1,684 kernels that these tables made in November 2026 also ran on an H200 (driver 580.159). It left the same
//! bytes, save for `tanh.approx`, printed addresses and `%nwarpid`; NaNs through `cvt.f32.bf16` and `%warpid` were
//! fixed afterwards.

mod card_products;
mod check;
mod clusters;
mod compare;
mod control;
mod convert;
mod copies;
mod declarations;
mod dependents;
mod exact;
mod faults;
mod filters;
mod float;
mod float_accesses;
mod forms;
mod fragments;
mod functions;
mod fuzz;
mod halves;
mod in_step;
mod integer;
mod late;
mod locks;
mod logic;
mod machine;
mod matrix;
mod meeting;
mod memory;
mod nvrtc;
mod old;
mod operands;
mod parse;
mod places;
mod products;
mod progress;
mod ring;
mod saxpy;
mod schedule;
mod sparse;
mod sparse_products;
mod surfaces;
mod tensors;
mod textures;
mod tiny;
mod tolerated;
mod trace_limit;
mod values;
mod warp;
mod wide;
