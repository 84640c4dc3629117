//! The index of a token in a batch.

use ptx_gen::*;

/// The index of an item of a batch. It is `None` if the batch is 1, so that no index arithmetic is
/// emitted.
#[derive(Clone, Copy)]
pub(crate) struct BatchItem<'k>(Option<U32<'k>>);

impl<'k> BatchItem<'k> {
    /// The only item of a batch of one.
    pub(crate) const ONLY: BatchItem<'k> = BatchItem(None);

    /// Returns the item with this index.
    pub(crate) fn new(item: U32<'k>) -> Self {
        BatchItem(Some(item))
    }

    /// Returns index `i` of this item's row, where each row has `len` elements.
    pub(crate) fn plus(self, i: U32<'k>, len: U32<'k>) -> U32<'k> {
        self.0.map_or(i, |item| item.mad(len, i))
    }

    /// Returns true if the batch is one item.
    pub(crate) fn is_only(self) -> bool {
        self.0.is_none()
    }

    /// Returns this item's slice of a buffer with `len` elements per item.
    pub(crate) fn of<T: Elem, A: Space>(
        self,
        all: Ptr<'k, T, A>,
        len: impl Src<'k, u32>,
    ) -> Ptr<'k, T, A> {
        self.of_with(all, || len)
    }

    /// Returns this item's slice of a buffer. The length of an item is computed only if it is
    /// needed.
    pub(crate) fn of_with<T: Elem, A: Space, L: Src<'k, u32>>(
        self,
        all: Ptr<'k, T, A>,
        len: impl FnOnce() -> L,
    ) -> Ptr<'k, T, A> {
        match self.0 {
            None => all,
            Some(item) if T::MEM.bytes() == 1 => all.row(item, len()),
            Some(item) => all.row(item * T::MEM.bytes(), len()),
        }
    }
}
