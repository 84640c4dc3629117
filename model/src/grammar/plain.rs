//! A tree of the plain tokens of a vocabulary.
//!
//! A character is plain if a JSON string may contain it without an escape: it is not a control
//! character, a quotation mark or a backslash. A token is plain if it consists of at most
//! [`LONGEST`] complete plain characters. About nine in ten tokens of a vocabulary are plain.
//!
//! Within free text, all plain tokens are allowed, or all that start with certain bytes. Each node
//! of the tree therefore stores its tokens and the number of characters that the longest of them
//! has after the node. If the grammar allows any text of this length (see module `stays`), all
//! tokens of the node are allowed without trying them.

use llguidance::toktrie::{SimpleVob, TokTrie};

/// The maximum length of a plain token in characters.
pub(super) const LONGEST: u8 = 16;

/// The minimum number of tokens in a subtree for which asking about all of them is cheaper than
/// trying each.
const MANY: usize = 3;

/// A tree of plain tokens in preorder. A subtree is the range of nodes up to the `end` of its root,
/// and its tokens are consecutive.
pub(super) struct PlainTokens {
    /// The nodes in preorder, and a sentinel at the end.
    nodes: Vec<Node>,
    /// The tokens in the order of their bytes.
    tokens: Vec<u32>,
    /// The tokens of up to `i` characters, for each `i` from 0 to `LONGEST`.
    masks: Vec<SimpleVob>,
}

/// A prefix of one or more tokens.
#[derive(Clone, Copy)]
pub(super) struct Node {
    /// The last byte of the prefix.
    pub(super) byte: u8,
    /// The length of the prefix in bytes.
    pub(super) depth: u8,
    /// The number of characters that the longest token of the subtree has after the prefix. It is
    /// [`NEVER`] if the prefix ends within a character, or if the subtree has too few tokens to ask
    /// about all of them.
    pub(super) longest: u8,
    /// The length of the longest token of the subtree in characters.
    pub(super) reach: u8,
    /// True if the prefix is a token. It is then the first token of the subtree.
    is_token: bool,
    /// The index of the node after the subtree.
    pub(super) end: u32,
    /// The index of the subtree's first token in `PlainTokens::tokens`.
    first: u32,
}

/// A number of characters that no plain token has.
pub(super) const NEVER: u8 = LONGEST + 1;

impl PlainTokens {
    /// Returns the plain tokens of a vocabulary. If several tokens have the same bytes, only the
    /// first one is in the tree.
    pub(super) fn new(trie: &TokTrie) -> PlainTokens {
        let words = (0..trie.vocab_size() as u32).map(|token| (trie.token(token), token));
        let mut words: Vec<_> = words.filter(|(word, _)| is_plain(word)).collect();
        words.sort_unstable();
        words.dedup_by_key(|(word, _)| *word);
        let masks = masks(&words, trie.alloc_token_set());
        let mut nodes = vec![];
        children(&words, 0, 0, &mut nodes);

        // The sentinel marks the end of the tokens for a node whose subtree is last.
        let end = nodes.len() as u32;
        let first = words.len() as u32;
        nodes.push(Node {
            byte: 0,
            depth: 1,
            longest: NEVER,
            reach: 0,
            is_token: false,
            end,
            first,
        });
        PlainTokens {
            nodes,
            tokens: words.into_iter().map(|(_, token)| token).collect(),
            masks,
        }
    }

    /// Returns the plain tokens of up to this number of characters, which is at most [`LONGEST`].
    pub(super) fn mask(&self, characters: u8) -> &SimpleVob {
        &self.masks[usize::from(characters)]
    }

    /// Returns the nodes in preorder.
    pub(super) fn nodes(&self) -> &[Node] {
        &self.nodes[..self.nodes.len() - 1]
    }

    /// Allows the token that ends at a node, if there is one.
    pub(super) fn allow(&self, node: &Node, allowed: &mut SimpleVob) {
        if node.is_token {
            allowed.allow_token(self.tokens[node.first as usize]);
        }
    }

    /// Allows all tokens of a subtree.
    pub(super) fn allow_all(&self, node: &Node, allowed: &mut SimpleVob) {
        let after = self.nodes[node.end as usize].first;
        for token in &self.tokens[node.first as usize..after as usize] {
            allowed.allow_token(*token);
        }
    }
}

/// Returns the set of tokens of up to `i` characters, for each `i`.
fn masks(words: &[(&[u8], u32)], none: SimpleVob) -> Vec<SimpleVob> {
    let mut masks = vec![none; 1 + usize::from(LONGEST)];
    for (word, token) in words {
        for mask in &mut masks[characters(word)..] {
            mask.allow_token(*token);
        }
    }
    masks
}

/// Adds the nodes of sorted words that share their first `depth` bytes and are longer than that.
/// `first` is the index of the first word.
fn children(words: &[(&[u8], u32)], first: u32, depth: usize, nodes: &mut Vec<Node>) {
    let mut first = first;
    for words in words.chunk_by(|a, b| a.0[depth] == b.0[depth]) {
        let node = nodes.len();
        nodes.push(Node::new(words, first, depth + 1));
        let own = usize::from(nodes[node].is_token);
        children(&words[own..], first + own as u32, depth + 1, nodes);
        nodes[node].end = nodes.len() as u32;
        first += words.len() as u32;
    }
}

impl Node {
    /// Returns the node of sorted words that share their first `depth` bytes. The caller sets
    /// `end`, which is not known yet.
    fn new(words: &[(&[u8], u32)], first: u32, depth: usize) -> Node {
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

/// Returns the number of characters, as the number of bytes that start one.
fn characters(word: &[u8]) -> usize {
    word.iter().filter(|byte| **byte & 0xc0 != 0x80).count()
}

/// Returns true if a token is plain.
fn is_plain(word: &[u8]) -> bool {
    let plain = |c: char| !c.is_ascii_control() && !matches!(c, '"' | '\\');
    let text = std::str::from_utf8(word).unwrap_or_default();
    !text.is_empty() && text.chars().all(plain) && text.chars().count() <= usize::from(LONGEST)
}
