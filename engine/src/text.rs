//! The text of a generation.

use std::ops::ControlFlow;

use warpwright_model::{TextEnding, TextStream};

use crate::decode::generation::{Generation, GenerationEnd};
use crate::{Error, LogProbabilities};

/// A token of a generation, with the text that it releases.
#[derive(Debug, Clone, Copy)]
pub struct TextFragment<'a> {
    /// The token's id.
    pub token: u32,
    /// The text that can be printed now. It may be empty, or contain text of earlier tokens.
    pub text: &'a str,
    /// The number of tokens in completed launches: see [`Generation::made`].
    pub made: u32,
    /// The log-probabilities at this position: see [`Generation::log_probabilities`].
    pub probabilities: Option<&'a LogProbabilities>,
}

impl Generation<'_> {
    /// Generates tokens until the text ends, the generation ends, or `each` returns `Break`, and
    /// returns the reason.
    ///
    /// `each` receives every token with its text. Text that `stream` holds back stays available for
    /// later tokens or for [`TextStream::finish`].
    ///
    /// # Errors
    /// Returns the errors of the generation and of `each`.
    pub fn read_into<E: From<Error>>(
        mut self,
        stream: &mut TextStream<'_>,
        mut each: impl FnMut(TextFragment<'_>) -> Result<ControlFlow<()>, E>,
    ) -> Result<TextEnding, E> {
        while let Some(token) = self.next() {
            let token = token?;
            let text = stream.push(token);
            let made = self.made();
            let probabilities = self.log_probabilities();
            let probabilities = probabilities.as_ref();
            let broken = each(TextFragment {
                token,
                text: &text,
                made,
                probabilities,
            })?
            .is_break();
            if let Some(ending) = stream.ended() {
                return Ok(ending.clone());
            }
            if broken {
                return Ok(TextEnding::Interrupted);
            }
        }
        Ok(match self.end() {
            GenerationEnd::ContextFull => TextEnding::ContextFull,
            GenerationEnd::Grammar => TextEnding::Grammar,
            GenerationEnd::Text | GenerationEnd::Limit => TextEnding::Limit,
        })
    }
}
