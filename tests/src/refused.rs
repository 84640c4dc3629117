//! What the types of ptx-gen refuse: each example does not compile, and differs from this one, which does, in the
//! line that is named.
//!
//! ```
//! use ptx_gen::*;
//! args! {
//!     /// One of each.
//!     pub struct OneArgs {
//!         /// `[n]`
//!         x: In<f32>,
//!         /// `[n]`
//!         y: Out<f32>,
//!         /// Elements.
//!         n: u32,
//!     }
//! }
//! fn program<'k>(k: Builder<'k>, a: OneArgs<Dev<'k>>) {
//!     a.y.st(a.x.ld() + a.n.cvt::<f32>());
//! }
//! ```
//!
//! PTX never converts implicitly, so an integer is no float:
//!
//! ```compile_fail
//! use ptx_gen::*;
//! args! {
//!     /// One of each.
//!     pub struct OneArgs {
//!         /// `[n]`
//!         x: In<f32>,
//!         /// `[n]`
//!         y: Out<f32>,
//!         /// Elements.
//!         n: u32,
//!     }
//! }
//! fn program<'k>(k: Builder<'k>, a: OneArgs<Dev<'k>>) {
//!     a.y.st(a.x.ld() + a.n);
//! }
//! ```
//!
//! What is only read cannot be written:
//!
//! ```compile_fail
//! use ptx_gen::*;
//! args! {
//!     /// One of each.
//!     pub struct OneArgs {
//!         /// `[n]`
//!         x: In<f32>,
//!         /// `[n]`
//!         y: Out<f32>,
//!         /// Elements.
//!         n: u32,
//!     }
//! }
//! fn program<'k>(k: Builder<'k>, a: OneArgs<Dev<'k>>) {
//!     a.x.st(a.x.ld() + a.n.cvt::<f32>());
//! }
//! ```
//!
//! What is only written cannot be read:
//!
//! ```compile_fail
//! use ptx_gen::*;
//! args! {
//!     /// One of each.
//!     pub struct OneArgs {
//!         /// `[n]`
//!         x: In<f32>,
//!         /// `[n]`
//!         y: Out<f32>,
//!         /// Elements.
//!         n: u32,
//!     }
//! }
//! fn program<'k>(k: Builder<'k>, a: OneArgs<Dev<'k>>) {
//!     a.y.st(a.y.ld() + a.n.cvt::<f32>());
//! }
//! ```
//!
//! A conversion that PTX does not have has no method: an `f16` becomes an integer by way of `f32`.
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
//! Values of two kernels cannot meet:
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
//! A value is written once; what a loop carries is a variable, and Rust's own `mut` marks it:
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
//! Floats have no bit operations, integers no square root:
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
//! Elements and registers are a closed list, so nobody's own type becomes one:
//!
//! ```compile_fail
//! #[derive(Clone, Copy)]
//! struct Mine;
//! impl ptx_gen::Ty for Mine {
//!     const KIND: ptx_gen::Kind = ptx_gen::Kind::U32;
//! }
//! ```
