//! What guesses tokens.

use crate::Error;

/// Guesses the tokens that come next. Whatever it guesses, the text is the same; right guesses make it faster.
pub trait Drafter {
    /// Guesses what comes after `tokens`, all tokens of the text so far: at most `most` tokens, fewer or none where it has
    /// no idea.
    ///
    /// # Errors
    /// What makes it impossible to go on. A guess that cannot be made is none.
    fn draft(&mut self, tokens: &[u32], most: u32) -> Result<Vec<u32>, Error>;

    /// What a guess takes, in steps of the model that verifies it: 0 where it takes next to nothing.
    fn cost(&self) -> f64 {
        0.0
    }
}
