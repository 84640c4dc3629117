//! The pages of the caches: which are free, and how many sequences have each of the others.

/// Counts the users of pages, which are numbered from 0.
pub(crate) struct Pages {
    /// Of each page.
    users: Vec<u32>,
    /// Pages without users. The last is the next to be taken.
    free: Vec<u32>,
}

impl Pages {
    pub(crate) fn new(count: u32) -> Pages {
        Pages {
            users: vec![0; count as usize],
            free: (0..count).rev().collect(),
        }
    }

    /// Pages without users.
    pub(crate) fn free(&self) -> u32 {
        self.free.len() as u32
    }

    /// All pages.
    pub(crate) fn count(&self) -> u32 {
        self.users.len() as u32
    }

    /// A page for one user, if there is one.
    pub(crate) fn take(&mut self) -> Option<u32> {
        let page = self.free.pop()?;
        self.users[page as usize] = 1;
        Some(page)
    }

    /// One more user of a page that has some.
    pub(crate) fn share(&mut self, page: u32) {
        assert!(self.users(page) > 0, "page {page} is free");
        self.users[page as usize] += 1;
    }

    /// One user less.
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
