//! The tokens of a vocabulary that are plain text, as a tree of their bytes.
//!
//! A character is plain if JSON lets it stand in a string as it is: no control character, no quotation mark, no backslash.
//! A token is plain if it is at most [`LONGEST`] of these, whole ones. Nine in ten tokens of a vocabulary are. Where a free
//! text goes on, all of them are allowed at once, or all that begin with some bytes: a node knows its tokens, and how many
//! characters the longest has after it. That many being allowed, whatever they are, none of its tokens is tried.

use llguidance::toktrie::{SimpleVob, TokTrie};

/// Characters of the longest plain token.
pub(super) const LONGEST: u8 = 16;

/// Tokens below a node, from which on it is worth while to ask whether all of them are allowed.
const MANY: usize = 3;

/// Plain tokens as a tree. A node's subtree is the nodes up to its `end`, and its tokens are consecutive.
pub(super) struct Plain {
    /// The prefixes of tokens, each before those that it begins, and one behind the last
    nodes: Vec<Node>,
    /// In the order of their bytes
    tokens: Vec<u32>,
    /// `[1 + LONGEST]`: those of up to so many characters
    masks: Vec<SimpleVob>,
}

/// A prefix of tokens.
#[derive(Clone, Copy)]
pub(super) struct Node {
    /// The last byte of the prefix, and how many it has.
    pub(super) byte: u8,
    pub(super) depth: u8,
    /// Characters that the longest token below has after it. [`NEVER`] where the prefix ends within a character, or few
    /// tokens are below: then nobody asks.
    pub(super) longest: u8,
    /// Characters of the longest token that begins with it.
    pub(super) reach: u8,
    /// Whether it is a token, the first of its tokens.
    is_token: bool,
    /// The node after its subtree.
    pub(super) end: u32,
    /// Its first token, of `Plain::tokens`.
    first: u32,
}

/// More characters than any token has.
pub(super) const NEVER: u8 = LONGEST + 1;

impl Plain {
    /// Those of a vocabulary. Of tokens with the same bytes, only the first is here.
    pub(super) fn of(trie: &TokTrie) -> Plain {
        let words = (0..trie.vocab_size() as u32).map(|token| (trie.token(token), token));
        let mut words: Vec<_> = words.filter(|(word, _)| is_plain(word)).collect();
        words.sort_unstable();
        words.dedup_by_key(|(word, _)| *word);
        let masks = masks(&words, trie.alloc_token_set());
        let mut nodes = vec![];
        children(&words, 0, 0, &mut nodes);
        let (end, first) = (nodes.len() as u32, words.len() as u32);
        nodes.push(Node {
            byte: 0,
            depth: 1,
            longest: NEVER,
            reach: 0,
            is_token: false,
            end,
            first,
        });
        Plain {
            nodes,
            tokens: words.into_iter().map(|(_, token)| token).collect(),
            masks,
        }
    }

    /// The bits of those of up to so many characters, at most [`LONGEST`].
    pub(super) fn mask(&self, characters: u8) -> &SimpleVob {
        &self.masks[usize::from(characters)]
    }

    /// The prefixes, each before those that it begins.
    pub(super) fn nodes(&self) -> &[Node] {
        &self.nodes[..self.nodes.len() - 1]
    }

    /// Allows the token that is this prefix, if one is.
    pub(super) fn allow(&self, node: &Node, allowed: &mut SimpleVob) {
        if node.is_token {
            allowed.allow_token(self.tokens[node.first as usize]);
        }
    }

    /// Allows the tokens that begin with it.
    pub(super) fn allow_all(&self, node: &Node, allowed: &mut SimpleVob) {
        let after = self.nodes[node.end as usize].first;
        self.tokens[node.first as usize..after as usize]
            .iter()
            .for_each(|token| allowed.allow_token(*token));
    }
}

fn masks(words: &[(&[u8], u32)], none: SimpleVob) -> Vec<SimpleVob> {
    let mut masks = vec![none; 1 + usize::from(LONGEST)];
    for (word, token) in words {
        masks[characters(word)..]
            .iter_mut()
            .for_each(|mask| mask.allow_token(*token));
    }
    masks
}

/// Adds the nodes of words that are longer than `depth` bytes and begin alike up to there, the first one being `first`.
fn children(words: &[(&[u8], u32)], first: u32, depth: usize, nodes: &mut Vec<Node>) {
    let mut first = first;
    for words in words.chunk_by(|a, b| a.0[depth] == b.0[depth]) {
        let node = nodes.len();
        nodes.push(Node::of(words, first, depth + 1));
        let own = usize::from(nodes[node].is_token);
        children(&words[own..], first + own as u32, depth + 1, nodes);
        nodes[node].end = nodes.len() as u32;
        first += words.len() as u32;
    }
}

impl Node {
    /// The node of words that begin with the same `depth` bytes; its end is not known yet.
    fn of(words: &[(&[u8], u32)], first: u32, depth: usize) -> Node {
        let prefix = &words[0].0[..depth];
        let reach = words
            .iter()
            .map(|(word, _)| characters(word))
            .max()
            .unwrap_or(0);
        let asked = words.len() >= MANY && std::str::from_utf8(prefix).is_ok();
        let longest = if asked {
            (reach - characters(prefix)) as u8
        } else {
            NEVER
        };
        let is_token = words[0].0.len() == depth;
        Node {
            byte: prefix[depth - 1],
            depth: depth as u8,
            longest,
            reach: reach as u8,
            is_token,
            end: 0,
            first,
        }
    }
}

/// Characters of a text, counted by their first bytes.
fn characters(word: &[u8]) -> usize {
    word.iter().filter(|byte| **byte & 0xc0 != 0x80).count()
}

/// Whether it is plain text of whole characters.
fn is_plain(word: &[u8]) -> bool {
    let plain = |c: char| !c.is_ascii_control() && !matches!(c, '"' | '\\');
    let text = std::str::from_utf8(word).unwrap_or_default();
    !text.is_empty() && text.chars().all(plain) && text.chars().count() <= usize::from(LONGEST)
}
