//! Prompt lookup: the latest tokens have occurred before, and what came after them then may come again.
//!
//! The method is that of <https://github.com/apoorvumang/prompt-lookup-decoding>: texts repeat what they are about, and
//! code repeats itself. A text that has begun to repeat its end is thought to go on like that.

use crate::Error;
use crate::speculative::drafter::Drafter;

/// Guesses what followed the latest tokens when they last occurred, in the prompt or in what was written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PromptLookup {
    /// Tokens that are looked for at most. An occurrence of more of them goes before a later one of fewer.
    pub longest: u32,
    /// Tokens that must be found at least: 1 or more.
    pub shortest: u32,
}

impl Default for PromptLookup {
    /// One to three tokens.
    fn default() -> PromptLookup {
        PromptLookup {
            longest: 3,
            shortest: 1,
        }
    }
}

impl PromptLookup {
    /// Where the tokens after the best occurrence begin.
    fn find(&self, tokens: &[u32]) -> Option<usize> {
        let longest = self.longest as usize;
        let (mut best, mut found) = (self.shortest.max(1) as usize - 1, None);
        let last = tokens.last()?;
        for end in (1..tokens.len())
            .rev()
            .filter(|end| tokens[end - 1] == *last)
        {
            let pairs = tokens[..end].iter().rev().zip(tokens.iter().rev());
            let same = pairs.take(longest).take_while(|(a, b)| a == b).count();
            if same > best {
                (best, found) = (same, Some(end));
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
        // What was found may end with the text; then the guesses are repeated.
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
