//! The trait of drafters, which guess tokens.

use crate::Error;

/// A source of guesses for the next tokens of a text.
///
/// Guesses never change the text, because each is compared with the token that the model chooses
/// itself. Right guesses make decoding faster.
pub trait Drafter {
    /// Returns up to `most` guesses of the tokens after `tokens`, or fewer if the drafter cannot
    /// tell.
    ///
    /// `tokens` is the whole text so far, including the prompt.
    ///
    /// # Errors
    /// Returns an error only if decoding must stop. A drafter that cannot guess returns an empty
    /// list.
    fn draft(&mut self, tokens: &[u32], most: u32) -> Result<Vec<u32>, Error>;

    /// Returns the time of one guess, as a fraction of a step of the model that verifies. The
    /// default is 0.
    fn cost(&self) -> f64 {
        0.0
    }
}
