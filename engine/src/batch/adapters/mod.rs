//! The LoRA adapters of a batch: which are loaded, and which sequence has which.
//!
//! An adapter is identified by its values. Keys and values of a sequence depend on its adapter, so
//! the identity is a part of the [`PrefixScope`](crate::PrefixScope) of cached pages. A sequence
//! that joins with a scope gets the adapter of the scope. Pages can therefore not be shared between
//! sequences of different adapters, not even if an adapter is replaced by another one with its
//! name.

pub(crate) mod identity;
pub(crate) mod loaded;
mod loading;
pub(crate) mod prepared;
