//! Reference counts of the pages of a cache.

/// The number of users of each page, and the list of free pages. Pages are numbered from 0.
pub(crate) struct PageAllocator {
    /// The number of users, by page.
    users: Vec<u32>,
    /// The pages without users. The last one is taken next.
    free: Vec<u32>,
}

impl PageAllocator {
    pub(crate) fn new(count: u32) -> PageAllocator {
        PageAllocator {
            users: vec![0; count as usize],
            free: (0..count).rev().collect(),
        }
    }

    /// Returns the number of free pages.
    pub(crate) fn free(&self) -> u32 {
        self.free.len() as u32
    }

    /// Returns the number of all pages.
    pub(crate) fn count(&self) -> u32 {
        self.users.len() as u32
    }

    /// Takes a free page for one user, if there is one.
    pub(crate) fn take(&mut self) -> Option<u32> {
        let page = self.free.pop()?;
        self.users[page as usize] = 1;
        Some(page)
    }

    /// Adds a user to a page, which must have one already.
    pub(crate) fn share(&mut self, page: u32) {
        assert!(self.users(page) > 0, "page {page} is free");
        self.users[page as usize] += 1;
    }

    /// Removes a user from a page, and frees the page if it was the last.
    pub(crate) fn release(&mut self, page: u32) {
        let users = &mut self.users[page as usize];
        *users = users
            .checked_sub(1)
            .expect("a page that is released has a user");
        if *users == 0 {
            self.free.push(page);
        }
    }

    pub(crate) fn users(&self, page: u32) -> u32 {
        self.users[page as usize]
    }
}
