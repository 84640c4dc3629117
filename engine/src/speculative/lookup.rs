//! Prompt lookup: a drafter that guesses what followed the latest tokens when they occurred before.
//!
//! The method is prompt lookup decoding (Saxena, 2023,
//! <https://github.com/apoorvumang/prompt-lookup-decoding>). It works well if a text repeats
//! itself, as summaries and code do. A text that has just begun to repeat its own end is assumed to
//! continue repeating it.

use crate::Error;
use crate::speculative::drafter::Drafter;

/// A drafter that guesses the tokens that followed the latest tokens earlier in the text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PromptLookup {
    /// The maximum number of latest tokens to look for. A longer match is preferred to a later one.
    pub longest: u32,
    /// The minimum number of latest tokens that must match. The value 0 counts as 1.
    pub shortest: u32,
}

impl Default for PromptLookup {
    /// Returns a lookup of one to three tokens.
    fn default() -> PromptLookup {
        PromptLookup {
            longest: 3,
            shortest: 1,
        }
    }
}

impl PromptLookup {
    /// Returns the index of the token after the best match.
    fn find(&self, tokens: &[u32]) -> Option<usize> {
        let longest = self.longest as usize;
        let mut best = self.shortest.max(1) as usize - 1;
        let mut found = None;
        let last = tokens.last()?;

        // Ends of possible matches, the latest first. An earlier match must be longer to replace
        // it.
        for end in (1..tokens.len())
            .rev()
            .filter(|end| tokens[end - 1] == *last)
        {
            let pairs = tokens[..end].iter().rev().zip(tokens.iter().rev());
            let same = pairs.take(longest).take_while(|(a, b)| a == b).count();
            if same > best {
                best = same;
                found = Some(end);
            }
            if best >= longest {
                break;
            }
        }

        found
    }
}

impl Drafter for PromptLookup {
    fn draft(&mut self, tokens: &[u32], most: u32) -> Result<Vec<u32>, Error> {
        let Some(start) = self.find(tokens) else {
            return Ok(vec![]);
        };
        // The match may reach the end of the text. Its continuation then repeats.
        let found = tokens[start..].iter().cycle();
        Ok(found.take(most as usize).copied().collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn drafts(longest: u32, shortest: u32, tokens: &[u32]) -> Vec<u32> {
        PromptLookup { longest, shortest }.draft(tokens, 3).unwrap()
    }

    #[test]
    fn what_came_after_the_latest_tokens_is_guessed() {
        // Two tokens go before one, and of two occurrences the later.
        assert_eq!(drafts(3, 1, &[1, 2, 3, 4, 5, 9, 2, 6, 1, 2]), [3, 4, 5]);
        assert_eq!(drafts(1, 1, &[1, 2, 3, 4, 5, 9, 2, 6, 1, 2]), [6, 1, 2]);
        assert_eq!(drafts(2, 1, &[1, 2, 3, 1, 2, 4, 1, 2]), [4, 1, 2]);
        // More are not looked for.
        assert_eq!(drafts(2, 1, &[7, 1, 2, 3, 8, 1, 2, 4, 7, 1, 2]), [4, 7, 1]);
        assert_eq!(drafts(3, 1, &[7, 1, 2, 3, 8, 1, 2, 4, 7, 1, 2]), [3, 8, 1]);
    }

    #[test]
    fn repetitions_go_on() {
        assert_eq!(drafts(3, 1, &[5, 5]), [5, 5, 5]);
        assert_eq!(drafts(3, 1, &[1, 2, 1, 2]), [1, 2, 1]);
        assert_eq!(drafts(3, 1, &[1, 2, 3, 1, 2, 3]), [1, 2, 3]);
    }

    #[test]
    fn nothing_is_guessed_of_what_is_new() {
        assert!(drafts(3, 1, &[]).is_empty());
        assert!(drafts(3, 1, &[1]).is_empty());
        assert!(drafts(3, 1, &[1, 2, 3]).is_empty());
        assert!(drafts(3, 2, &[1, 2, 3, 4, 2]).is_empty());
        assert_eq!(drafts(3, 2, &[1, 2, 3, 1, 2]), [3, 1, 2]);
        assert!(drafts(0, 0, &[1, 2, 1]).is_empty());
    }
}
