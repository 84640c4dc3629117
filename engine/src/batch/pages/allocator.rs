//! The pages of a cache: their reference counts, and which page a sequence gets next.
//!
//! A page is free, used or kept. A used page has sequences. A kept page has none, but the prefix
//! index knows its tokens, so that a later prompt can use it again. Pages are taken from the free
//! ones first. Only when there are none left, the kept page that was used least recently is evicted.

use super::prefixes::{PageRecord, PrefixIndex, PrefixParent};

/// The number of users of each page, the free pages, and the index of pages with known prefixes.
/// Pages are numbered from 0.
pub(crate) struct PageAllocator {
    /// The number of users, by page.
    users: Vec<u32>,
    /// The pages without users that are not in the index. The last one is taken next.
    free: Vec<u32>,
    index: PrefixIndex,
}

impl PageAllocator {
    pub(crate) fn new(count: u32) -> PageAllocator {
        PageAllocator {
            users: vec![0; count as usize],
            free: (0..count).rev().collect(),
            index: PrefixIndex::new(count),
        }
    }

    /// Returns the number of pages that can be taken: free ones, and kept ones, which are evicted.
    pub(crate) fn available(&self) -> u32 {
        self.free.len() as u32 + self.index.kept()
    }

    /// Returns the number of pages without users whose prefix is known.
    pub(crate) fn kept(&self) -> u32 {
        self.index.kept()
    }

    /// Returns the number of all pages.
    pub(crate) fn count(&self) -> u32 {
        self.users.len() as u32
    }

    pub(crate) fn users(&self, page: u32) -> u32 {
        self.users[page as usize]
    }

    pub(crate) fn index(&self) -> &PrefixIndex {
        &self.index
    }

    /// Takes a page for one user, if there is one.
    pub(crate) fn take(&mut self) -> Option<u32> {
        let page = match self.free.pop() {
            Some(page) => page,
            None => self.index.evict()?,
        };
        self.users[page as usize] = 1;
        Some(page)
    }

    /// Adds a user to a page, which must have one already or be kept.
    pub(crate) fn share(&mut self, page: u32) {
        let users = &mut self.users[page as usize];
        if *users == 0 {
            assert!(self.index.contains(page), "page {page} is free");
            self.index.use_again(page);
        }
        *users += 1;
    }

    /// Removes a user from a page. If it was the last one, the page is kept if its prefix is known,
    /// and freed otherwise.
    pub(crate) fn release(&mut self, page: u32) {
        let users = &mut self.users[page as usize];
        *users = users
            .checked_sub(1)
            .expect("a page that is released has a user");
        if *users > 0 {
            return;
        }

        if self.index.contains(page) {
            self.index.keep(page);
        } else {
            self.free.push(page);
        }
    }

    /// Releases pages of a sequence that are used for the last time at the same moment.
    pub(crate) fn release_all(&mut self, pages: &[u32]) {
        self.index.tick();

        // From the end, so that a page becomes a leaf before its parent is released.
        for &page in pages.iter().rev() {
            self.release(page);
        }
    }

    /// Enters a page with a user into the index.
    pub(crate) fn publish(&mut self, page: u32, record: PageRecord) {
        assert!(self.users(page) > 0, "page {page} has no user");
        if let PrefixParent::Page(parent) = record.parent {
            // A child that is in use keeps its parent in use, so that no parent is evicted first.
            assert!(self.users(parent) > 0, "page {parent} has no user");
        }
        self.index.insert(page, record);
    }

    /// Removes a page with a user from the index. No page after it may be in the index.
    pub(crate) fn unpublish(&mut self, page: u32) {
        assert!(self.users(page) > 0, "page {page} has no user");
        self.index.remove(page);
    }

    /// Removes all pages from the index. Kept pages become free.
    pub(crate) fn forget(&mut self) {
        for page in self.index.clear() {
            if self.users(page) == 0 {
                self.free.push(page);
            }
        }
    }
}
