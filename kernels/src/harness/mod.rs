//! The test cases of kernels, the comparison with the reference, and the list of all variants.

pub(super) mod case;
pub mod comparison;
mod list;
pub(crate) mod sizes;
pub(crate) mod variants;

pub use case::{Case, Variant};
pub use comparison::{Comparison, compare};
pub use list::ALL;
