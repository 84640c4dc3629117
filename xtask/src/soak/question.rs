//! A prompt that the clients send.

/// A prompt and the settings of its answer.
#[derive(Debug, Clone)]
pub(super) struct Question {
    pub(super) prompt: String,
    /// 0 takes the most likely token. The server has a fixed seed, so an answer at a higher
    /// temperature is the same each time too.
    pub(super) temperature: f64,
    pub(super) tokens: u32,
}
