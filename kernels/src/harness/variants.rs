//! A list of variants.

use super::case::Variant;

/// Variants of kernels, which live as long as the program.
#[derive(Default)]
pub(crate) struct Variants(pub(super) Vec<&'static dyn Variant>);

impl Variants {
    /// Adds kernels.
    pub(crate) fn add<K: Variant + 'static>(&mut self, kernels: impl IntoIterator<Item = K>) {
        self.0.extend(
            kernels
                .into_iter()
                .map(|kernel| Box::leak(Box::new(kernel)) as &dyn Variant),
        );
    }

    /// Adds the variants of another list.
    pub(crate) fn append(&mut self, mut other: Variants) {
        self.0.append(&mut other.0);
    }
}
