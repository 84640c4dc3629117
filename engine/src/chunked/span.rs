//! Which rows of the workspace kernels work on: all tokens of a pass, or the last one alone.
//!
//! In the residual stream and the queries, a token has the same row for the whole pass. Activations between two kernels
//! of a layer begin at the front of their buffers, whichever tokens they are of.

use warpwright_driver::{Buffer, Element, View};

use super::workspace::{CAPACITY, LAST_CAPACITY, Workspace};

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Span {
    /// The row of its first token.
    first: u32,
    /// Rows that activations have room for.
    pub(super) capacity: u32,
}

impl Span {
    /// All tokens of a pass.
    pub(super) const WHOLE: Span = Span {
        first: 0,
        capacity: CAPACITY,
    };

    /// The last of so many tokens.
    pub(super) fn last(tokens: u32) -> Span {
        Span {
            first: tokens - 1,
            capacity: LAST_CAPACITY,
        }
    }

    /// So many rows of a buffer where tokens keep their places.
    pub(super) fn rows<T: Element>(self, all: &Buffer<T>, rows: u32, len: u32) -> View<T> {
        all.view_range((self.first * len) as usize..((self.first + rows) * len) as usize)
    }

    /// Activations between two kernels.
    pub(super) fn activations<T: Element>(self, all: &Buffer<T>, len: u32) -> View<T> {
        Workspace::rows(all, self.capacity, len)
    }
}
