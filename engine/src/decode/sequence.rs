//! The tokens that a decoder has, as the host knows them.

/// The tokens that were given and those that were read, in this order.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Sequence {
    /// Their number.
    pub(crate) len: u32,
    pub(crate) last: Last,
    /// Whether the state on the device is at the last token.
    pub(crate) placed: bool,
}

/// What there is of the last token.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) enum Last {
    /// There is no token.
    #[default]
    None,
    /// Its number. The next step takes it in.
    Waiting(u32),
    /// Its number. A step has taken it in, and can again.
    Taken(u32),
    /// It was the last one of a chunk of so many tokens, and its row of the residual stream is kept.
    Chunk(u32),
}

impl Sequence {
    /// The last token, if the next step takes it in.
    pub(crate) fn waiting(&self) -> Option<u32> {
        match self.last {
            Last::Waiting(token) => Some(token),
            Last::None | Last::Taken(_) | Last::Chunk(_) => None,
        }
    }

    /// The position of the next token to take in.
    pub(crate) fn position(&self) -> u32 {
        self.len - u32::from(self.waiting().is_some())
    }
}
