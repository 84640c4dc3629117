//! The rows of the workspace that kernels work on: all tokens of a pass, or only its last one.
//!
//! In the residual stream and the queries, a token keeps its row during the whole pass. Activations
//! between two kernels of a layer start at the front of their buffers instead, even if only the
//! last token is processed.

use warpwright_driver::memory::{Buffer, Element, View};

use super::workspace::{CAPACITY, ChunkWorkspace, LAST_CAPACITY};

/// The rows of some tokens of a pass.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Span {
    /// The row of the first token.
    first: u32,
    /// The number of rows that the activations can hold.
    pub(super) capacity: u32,
}

impl Span {
    /// All tokens of a pass.
    pub(super) const WHOLE: Span = Span {
        first: 0,
        capacity: CAPACITY,
    };

    /// Returns the span of the last one of `tokens` tokens.
    pub(super) fn last(tokens: u32) -> Span {
        Span {
            first: tokens - 1,
            capacity: LAST_CAPACITY,
        }
    }

    /// Returns the next `rows` rows of a buffer in which tokens keep their rows.
    pub(super) fn rows<T: Element>(self, all: &Buffer<T>, rows: u32, len: u32) -> View<T> {
        all.view_range((self.first * len) as usize..((self.first + rows) * len) as usize)
    }

    /// Returns the activations between two kernels, which start at the front of the buffer.
    pub(super) fn activations<T: Element>(self, all: &Buffer<T>, len: u32) -> View<T> {
        ChunkWorkspace::rows(all, self.capacity, len)
    }
}
