//! A step in `bf16` on tensor cores: sm_90a.
//!
//! Tensors in memory are `bf16`, sums `f32`; adapters, moments and gradients are `f32`, and each
//! pass begins with a rounded copy of the adapters. A projection is one product with its adapter
//! and whatever is added to it, and so is the gradient of an input of several projections: see
//! [`linear`](warpwright_kernels::train::half::linear). NF4 is unpacked by idle warps of the
//! product before ([`Unpacking`](super::settings::Unpacking)). Only the update waits for gradients
//! of adapters.
//!
//! | file | holds |
//! |---|---|
//! | `pass.rs` | all that it has on the device |
//! | `limits.rs` | what sizes it takes |
//! | `kernels.rs` | the loaded kernels, and which tile a product takes |
//! | `maps.rs` | tensor maps, made once |
//! | `weights.rs` | frozen weights on the device |
//! | `buffers.rs` | what the forward keeps, and workspace |
//! | `unpacked.rs` | frozen matrices as products take them |
//! | `workspaces.rs` | where they are unpacked |
//! | `linear.rs` | projections, forward and backward |
//! | `forward.rs`, `backward.rs` | the layers and the head |

mod backward;
mod buffers;
mod forward;
mod kernels;
mod limits;
mod linear;
mod maps;
mod pass;
mod unpacked;
mod weights;
mod workspaces;

pub(super) use buffers::Bf16Buffers;
pub(super) use limits::{padded, unsupported};
pub(super) use pass::Bf16Step;
