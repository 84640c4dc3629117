//! The shipped measurements.

use super::multiply::Multiply;
use super::read::Read;
use crate::harness::variants::Variants;

/// Returns all measurements.
pub(crate) fn all() -> Variants {
    let mut list = Variants::default();
    list.add(Read::ALL);
    list.add(Multiply::ALL);
    list
}
