//! The tokens of a decoder, as far as the host tracks them.

/// The length and the last token of a decoder's sequence. It consists of the prefilled tokens and
/// of the tokens read from generations.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct DecoderSequence {
    /// The number of tokens.
    pub(crate) len: u32,
    pub(crate) last: LastToken,
    /// Whether the state on the device is at the last token.
    pub(crate) placed: bool,
}

/// The last token, and how far the device has processed it.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) enum LastToken {
    /// The sequence is empty.
    #[default]
    None,
    /// The token's id. Its keys and values are not computed yet, so the next step processes it.
    Pending(u32),
    /// The token's id. A step has processed it and can process it again, which writes the same keys
    /// and values.
    Processed(u32),
    /// The last token of a chunk of this many tokens. Its row of the residual stream is kept for
    /// the LM head.
    Chunk(u32),
}

impl DecoderSequence {
    /// Returns the last token if the next step must process it.
    pub(crate) fn pending(&self) -> Option<u32> {
        match self.last {
            LastToken::Pending(token) => Some(token),
            LastToken::None | LastToken::Processed(_) | LastToken::Chunk(_) => None,
        }
    }

    /// Returns the position of the next token to process.
    pub(crate) fn position(&self) -> u32 {
        self.len - u32::from(self.pending().is_some())
    }
}
