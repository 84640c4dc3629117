//! Mistakes that the types of ptx-gen reject. This example compiles, and the examples that fail to
//! compile differ from it in one line:
//!
//! ```
//! use ptx_gen::*;
//! args! {
//!     /// An input, an output and a scalar.
//!     pub struct OneArgs {
//!         /// `[n]`: the input
//!         x: In<f32>,
//!         /// `[n]`: the output
//!         y: Out<f32>,
//!         /// The number of elements.
//!         n: u32,
//!     }
//! }
//! fn program<'k>(k: Builder<'k>, a: OneArgs<Dev<'k>>) {
//!     a.y.st(a.x.ld() + a.n.cvt::<f32>());
//! }
//! ```
//!
//! PTX never converts implicitly, so an integer cannot be added to a float:
//!
//! ```compile_fail
//! use ptx_gen::*;
//! args! {
//!     /// An input, an output and a scalar.
//!     pub struct OneArgs {
//!         /// `[n]`: the input
//!         x: In<f32>,
//!         /// `[n]`: the output
//!         y: Out<f32>,
//!         /// The number of elements.
//!         n: u32,
//!     }
//! }
//! fn program<'k>(k: Builder<'k>, a: OneArgs<Dev<'k>>) {
//!     a.y.st(a.x.ld() + a.n);
//! }
//! ```
//!
//! A read-only argument cannot be written:
//!
//! ```compile_fail
//! use ptx_gen::*;
//! args! {
//!     /// An input, an output and a scalar.
//!     pub struct OneArgs {
//!         /// `[n]`: the input
//!         x: In<f32>,
//!         /// `[n]`: the output
//!         y: Out<f32>,
//!         /// The number of elements.
//!         n: u32,
//!     }
//! }
//! fn program<'k>(k: Builder<'k>, a: OneArgs<Dev<'k>>) {
//!     a.x.st(a.x.ld() + a.n.cvt::<f32>());
//! }
//! ```
//!
//! A write-only argument cannot be read:
//!
//! ```compile_fail
//! use ptx_gen::*;
//! args! {
//!     /// An input, an output and a scalar.
//!     pub struct OneArgs {
//!         /// `[n]`: the input
//!         x: In<f32>,
//!         /// `[n]`: the output
//!         y: Out<f32>,
//!         /// The number of elements.
//!         n: u32,
//!     }
//! }
//! fn program<'k>(k: Builder<'k>, a: OneArgs<Dev<'k>>) {
//!     a.y.st(a.y.ld() + a.n.cvt::<f32>());
//! }
//! ```
//!
//! A conversion that PTX lacks has no method. For example, an `f16` becomes an integer through
//! `f32`:
//!
//! ```
//! use ptx_gen::*;
//! fn convert(v: Val<'_, f16>) -> Val<'_, u32> {
//!     v.cvt::<f32>().cvt::<u32>()
//! }
//! ```
//! ```compile_fail
//! use ptx_gen::*;
//! fn convert(v: Val<'_, f16>) -> Val<'_, u32> {
//!     v.cvt::<u32>()
//! }
//! ```
//!
//! Values of two kernels cannot be combined:
//!
//! ```
//! use ptx_gen::*;
//! fn meet<'k>(a: F32<'k>, b: F32<'k>) -> F32<'k> {
//!     a + b
//! }
//! ```
//! ```compile_fail
//! use ptx_gen::*;
//! fn meet<'j, 'k>(a: F32<'j>, b: F32<'k>) -> F32<'j> {
//!     a + b
//! }
//! ```
//!
//! A value is written once. A loop that carries a value needs a variable, which Rust's `mut` marks:
//!
//! ```
//! use ptx_gen::*;
//! fn sum<'k>(k: Builder<'k>, x: F32<'k>) {
//!     let mut total = k.var(0.0);
//!     k.for_each(0, 4, 1, |_| total += x);
//! }
//! ```
//! ```compile_fail
//! use ptx_gen::*;
//! fn sum<'k>(k: Builder<'k>, x: F32<'k>) {
//!     let total = k.var(0.0);
//!     k.for_each(0, 4, 1, |_| total += x);
//! }
//! ```
//!
//! Floats have no bit operations, and integers have no square root:
//!
//! ```
//! use ptx_gen::*;
//! fn low_bit(v: U32<'_>) -> U32<'_> {
//!     v & 1
//! }
//! fn root(v: F32<'_>) -> F32<'_> {
//!     v.sqrt_rn()
//! }
//! ```
//! ```compile_fail
//! use ptx_gen::*;
//! fn low_bit(v: F32<'_>) -> F32<'_> {
//!     v & 1
//! }
//! ```
//! ```compile_fail
//! use ptx_gen::*;
//! fn root(v: U32<'_>) -> U32<'_> {
//!     v.sqrt_rn()
//! }
//! ```
//!
//! Element types and register types are a closed list, so other types cannot implement their
//! traits:
//!
//! ```compile_fail
//! #[derive(Clone, Copy)]
//! struct Mine;
//! impl ptx_gen::Ty for Mine {
//!     const KIND: ptx_gen::Kind = ptx_gen::Kind::U32;
//! }
//! ```
