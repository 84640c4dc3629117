//! Columns of activations in a kernel, each a token of its own.

use ptx_gen::*;

/// Which of the columns: none if there is only one.
#[derive(Clone, Copy)]
pub(crate) struct Column<'k>(Option<U32<'k>>);

impl<'k> Column<'k> {
    pub(crate) const ONLY: Column<'k> = Column(None);

    pub(crate) fn new(column: U32<'k>) -> Self {
        Column(Some(column))
    }

    /// Number `i` of this column, where each has `len`.
    pub(crate) fn plus(self, i: U32<'k>, len: U32<'k>) -> U32<'k> {
        self.0.map_or(i, |column| column.mad(len, i))
    }

    pub(crate) fn is_only(self) -> bool {
        self.0.is_none()
    }

    /// This column's part of numbers of which each column has `len`.
    pub(crate) fn of<T: Elem, A: Space>(self, all: Ptr<'k, T, A>, len: impl Src<'k, u32>) -> Ptr<'k, T, A> {
        self.of_with(all, || len)
    }

    /// The same where the length is computed only if it is needed.
    pub(crate) fn of_with<T: Elem, A: Space, L: Src<'k, u32>>(
        self,
        all: Ptr<'k, T, A>,
        len: impl FnOnce() -> L,
    ) -> Ptr<'k, T, A> {
        match self.0 {
            None => all,
            Some(column) if T::MEM.bytes() == 1 => all.row(column, len()),
            Some(column) => all.row(column * T::MEM.bytes(), len()),
        }
    }
}
