//! The index of pages whose prefix is known: a tree whose nodes are pages.
//!
//! The path from a root to a page spells the tokens at all positions up to the end of the page. A
//! prompt finds its longest cached prefix by walking down from the roots of its [`PrefixScope`].
//! The walk compares tokens, not only hashes, so a wrong hit is impossible. The design follows
//! RadixAttention (Zheng et al., "SGLang: Efficient Execution of Structured Language Model
//! Programs", 2024, <https://arxiv.org/abs/2312.07104>), with edges of one page.
//!
//! Invariants:
//! - A page in use has no ancestor without users, because a sequence uses all pages of its prefix.
//! - No two children of a page, and no two roots of a scope, have the same tokens.
//! - Only a page with all its tokens has children.

use std::collections::{BTreeMap, BTreeSet};

use warpwright_kernels::shared::cache::PAGE;

/// The sequences among which pages are shared. All fields must be equal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct PrefixScope {
    /// A number that separates users who must not learn about each other's prompts.
    pub salt: u64,
    /// The identity of the adapter, or 0 for none. It must identify the adapter's values and not
    /// only its name if pages are saved.
    pub adapter: u64,
    /// The class of sequences whose keys and values have the same bits for the same tokens, or 0.
    pub class: u64,
}

impl PrefixScope {
    /// Returns the scope of a salt, without an adapter and a class.
    pub fn salted(salt: u64) -> PrefixScope {
        PrefixScope {
            salt,
            ..PrefixScope::default()
        }
    }
}

/// What precedes a page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PrefixParent {
    /// Nothing: the page has the first positions of a sequence of this scope.
    Scope(PrefixScope),
    /// The positions of this page.
    Page(u32),
}

/// The tokens of a page, and the page before it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PageRecord {
    pub(crate) parent: PrefixParent,
    /// The tokens of the page's first positions, 1 to 64.
    pub(crate) tokens: Vec<u32>,
}

/// A page in the index.
#[derive(Debug)]
struct IndexedPage {
    record: PageRecord,
    children: Vec<u32>,
    /// The number of earlier entries into the index. It tells apart different contents that a page
    /// has had.
    serial: u64,
    /// The time when the page lost its last user, if it is kept.
    kept_since: Option<u64>,
}

/// The cached pages of a prompt.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct CachedPrefix {
    pub(crate) pages: Vec<u32>,
    /// The number of cached positions. The last page may have more than are wanted.
    pub(crate) len: u32,
}

/// The prefixes that a prompt may reuse.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum PrefixReuse {
    /// Prefixes of any length. A page whose first tokens are the prompt's is copied. All pages of a
    /// sequence are published, including those with generated tokens.
    #[default]
    AnyLength,
    /// Whole chunks of this many positions, a multiple of 64. Only the pages of a prompt's whole
    /// chunks are published.
    ///
    /// If every prompt is processed in chunks that start at the multiples of this number, each
    /// reused chunk has the bits that the prompt would have computed itself.
    Chunks(u32),
}

impl PrefixReuse {
    /// Returns the longest prefix of a prompt that may be reused. The last token is processed in any
    /// case, because its logits are needed.
    pub(crate) fn reusable(self, prompt: &[u32]) -> &[u32] {
        let most = prompt.len().saturating_sub(1);
        match self {
            PrefixReuse::AnyLength => &prompt[..most],
            PrefixReuse::Chunks(chunk) => &prompt[..most - most % chunk as usize],
        }
    }
}

impl CachedPrefix {
    /// Keeps only the first `len` positions.
    pub(crate) fn truncate(&mut self, len: u32) {
        self.pages.truncate(len.div_ceil(PAGE) as usize);
        self.len = len;
    }
}

/// The number of common tokens from which on a part of a page is worth a copy. A copy takes two
/// transfers per layer, about as long as a prompt of so many tokens.
pub(crate) const LEAST_COPIED: u32 = 8;

/// All pages whose prefix is known.
pub(crate) struct PrefixIndex {
    /// The entry of each page.
    entries: Vec<Option<IndexedPage>>,
    /// The first pages of each scope.
    roots: BTreeMap<PrefixScope, Vec<u32>>,
    /// The kept pages without children, by the time since when they are kept.
    leaves: BTreeSet<(u64, u32)>,
    /// The number of kept pages.
    kept: u32,
    /// The current time: the number of releases.
    now: u64,
    /// The number of entries made so far.
    made: u64,
}

impl PrefixIndex {
    pub(crate) fn new(pages: u32) -> PrefixIndex {
        PrefixIndex {
            entries: (0..pages).map(|_| None).collect(),
            roots: BTreeMap::new(),
            leaves: BTreeSet::new(),
            kept: 0,
            now: 0,
            made: 0,
        }
    }

    pub(crate) fn kept(&self) -> u32 {
        self.kept
    }

    pub(crate) fn contains(&self, page: u32) -> bool {
        self.entries[page as usize].is_some()
    }

    /// Returns the pages after a page or the first pages of a scope.
    fn children(&self, parent: PrefixParent) -> &[u32] {
        match parent {
            PrefixParent::Scope(scope) => self.roots.get(&scope).map_or(&[], Vec::as_slice),
            PrefixParent::Page(page) => &self.entry(page).children,
        }
    }

    fn children_mut(&mut self, parent: PrefixParent) -> &mut Vec<u32> {
        match parent {
            PrefixParent::Scope(scope) => self.roots.entry(scope).or_default(),
            PrefixParent::Page(page) => &mut self.entry_mut(page).children,
        }
    }

    fn entry(&self, page: u32) -> &IndexedPage {
        self.entries[page as usize]
            .as_ref()
            .expect("the page is in the index")
    }

    fn entry_mut(&mut self, page: u32) -> &mut IndexedPage {
        self.entries[page as usize]
            .as_mut()
            .expect("the page is in the index")
    }

    fn tokens(&self, page: u32) -> &[u32] {
        &self.entry(page).record.tokens
    }

    pub(crate) fn record(&self, page: u32) -> &PageRecord {
        &self.entry(page).record
    }

    /// Returns all pages with 64 tokens in the reverse order of eviction. A page comes after its
    /// parent.
    pub(crate) fn by_value(&self) -> Vec<u32> {
        let pages = (0..).zip(&self.entries);
        let pages = pages.filter_map(|(page, entry)| Some((page, entry.as_ref()?)));
        let full = pages.filter(|(_, entry)| entry.record.tokens.len() == PAGE as usize);
        let mut ranked: Vec<_> = full
            .map(|(page, entry)| {
                let since = entry.kept_since.unwrap_or(u64::MAX);
                (std::cmp::Reverse(since), self.depth(page), page)
            })
            .collect();
        ranked.sort_unstable();
        ranked.into_iter().map(|(_, _, page)| page).collect()
    }

    /// Returns the number of pages before a page.
    fn depth(&self, page: u32) -> u32 {
        let mut depth = 0;
        let mut parent = self.entry(page).record.parent;
        while let PrefixParent::Page(page) = parent {
            depth += 1;
            parent = self.entry(page).record.parent;
        }
        depth
    }

    /// Returns the number that identifies the current contents of a page, if it is in the index.
    pub(crate) fn serial(&self, page: u32) -> Option<u64> {
        Some(self.entries[page as usize].as_ref()?.serial)
    }

    #[cfg(test)]
    pub(crate) fn parent(&self, page: u32) -> PrefixParent {
        self.entry(page).record.parent
    }

    /// Returns the scope of a page and all tokens up to its end.
    #[cfg(test)]
    pub(crate) fn text(&self, page: u32) -> (PrefixScope, Vec<u32>) {
        let record = &self.entry(page).record;
        let (scope, mut tokens) = match record.parent {
            PrefixParent::Scope(scope) => (scope, vec![]),
            PrefixParent::Page(parent) => self.text(parent),
        };
        tokens.extend(&record.tokens);
        (scope, tokens)
    }

    /// Returns the page with exactly these tokens after a parent.
    pub(crate) fn find(&self, parent: PrefixParent, tokens: &[u32]) -> Option<u32> {
        let children = self.children(parent).iter().copied();
        children
            .into_iter()
            .find(|&page| self.tokens(page) == tokens)
    }

    /// Returns a page after a parent whose tokens begin with these.
    pub(crate) fn extension(&self, parent: PrefixParent, tokens: &[u32]) -> Option<u32> {
        let mut children = self.children(parent).iter().copied();
        children.find(|&page| self.tokens(page).starts_with(tokens))
    }

    /// Returns the pages with the longest prefix of `tokens`, as whole pages.
    pub(crate) fn whole_pages(&self, scope: PrefixScope, tokens: &[u32]) -> CachedPrefix {
        let mut found = CachedPrefix::default();
        let mut parent = PrefixParent::Scope(scope);
        for tokens in tokens.chunks_exact(PAGE as usize) {
            let Some(page) = self.find(parent, tokens) else {
                break;
            };
            found.pages.push(page);
            found.len += PAGE;
            parent = PrefixParent::Page(page);
        }
        found
    }

    /// Returns the pages with the longest prefix of `tokens`. The last page may have other tokens
    /// after the common ones.
    pub(crate) fn longest(&self, scope: PrefixScope, tokens: &[u32]) -> CachedPrefix {
        let mut found = self.whole_pages(scope, tokens);
        let parent = found
            .pages
            .last()
            .map_or(PrefixParent::Scope(scope), |&page| PrefixParent::Page(page));
        let rest = &tokens[found.len as usize..];
        let common = |page: u32| {
            let pairs = self.tokens(page).iter().zip(rest);
            pairs
                .take_while(|(cached, wanted)| cached == wanted)
                .count()
        };
        let candidates = self.children(parent).iter().copied();
        let best = candidates
            .map(|page| (common(page), page))
            .filter(|(common, _)| *common >= LEAST_COPIED as usize)
            .max_by_key(|&(common, page)| (common, std::cmp::Reverse(page)));
        if let Some((common, page)) = best {
            found.pages.push(page);
            found.len += common as u32;
        }
        found
    }

    /// Enters a page, which must not be in the index and must have a user.
    pub(crate) fn insert(&mut self, page: u32, record: PageRecord) {
        assert!(!self.contains(page), "page {page} is already known");
        assert_eq!(self.find(record.parent, &record.tokens), None);
        if let PrefixParent::Page(parent) = record.parent {
            assert_eq!(self.tokens(parent).len(), PAGE as usize);
        }

        self.children_mut(record.parent).push(page);
        self.entries[page as usize] = Some(IndexedPage {
            record,
            children: vec![],
            serial: self.made,
            kept_since: None,
        });
        self.made += 1;
    }

    /// Advances the time by which kept pages are ordered.
    pub(crate) fn tick(&mut self) {
        self.now += 1;
    }

    /// Marks a page as kept: it has lost its last user.
    pub(crate) fn keep(&mut self, page: u32) {
        let now = self.now;
        let entry = self.entry_mut(page);
        assert_eq!(entry.kept_since, None, "page {page} is already kept");
        entry.kept_since = Some(now);
        if entry.children.is_empty() {
            self.leaves.insert((now, page));
        }
        self.kept += 1;
    }

    /// Marks a kept page as used.
    pub(crate) fn use_again(&mut self, page: u32) {
        let entry = self.entry_mut(page);
        let since = entry.kept_since.take().expect("the page is kept");
        self.leaves.remove(&(since, page));
        self.kept -= 1;
    }

    /// Removes the kept page that was used least recently among those without children, and returns
    /// it.
    pub(crate) fn evict(&mut self) -> Option<u32> {
        let &(_, page) = self.leaves.first()?;
        self.remove(page);
        Some(page)
    }

    /// Removes a page, which must have no children.
    pub(crate) fn remove(&mut self, page: u32) {
        let entry = self.entries[page as usize]
            .take()
            .expect("the page is in the index");
        assert!(entry.children.is_empty(), "page {page} has children");
        if let Some(since) = entry.kept_since {
            self.leaves.remove(&(since, page));
            self.kept -= 1;
        }

        let parent = entry.record.parent;
        let siblings = self.children_mut(parent);
        siblings.retain(|sibling| *sibling != page);
        if !siblings.is_empty() {
            return;
        }

        match parent {
            PrefixParent::Scope(scope) => {
                self.roots.remove(&scope);
            }
            PrefixParent::Page(parent) => {
                // The parent has become a leaf.
                if let Some(since) = self.entry(parent).kept_since {
                    self.leaves.insert((since, parent));
                }
            }
        }
    }

    /// Removes all pages and returns them.
    pub(crate) fn clear(&mut self) -> Vec<u32> {
        let pages = (0..)
            .zip(&mut self.entries)
            .filter_map(|(page, entry)| entry.take().map(|_| page));
        let pages = pages.collect();
        self.roots.clear();
        self.leaves.clear();
        self.kept = 0;
        pages
    }
}
