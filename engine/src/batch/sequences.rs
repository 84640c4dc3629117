//! The sequences of a batch: their tokens, and the pages with their keys and values.
//!
//! A page is written by one sequence only. Sequences with a common prefix share its pages. A
//! sequence that is about to write to a shared page gets a copy first. At most one page per
//! sequence is ever copied, the page of its next token, because the pages before it are full and
//! the pages after it are not shared.
//!
//! A sequence with a [`PrefixScope`] publishes each page as soon as it is full: it enters the page
//! into the index of prefixes, where later prompts find it. Published pages are not written, with
//! one exception: a sequence that was rolled back into its own page overwrites it, after removing
//! it from the index, if there is no page for a copy.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};

use warpwright_kernels::shared::cache::PAGE;

use super::pages::allocator::PageAllocator;
use super::pages::prefixes::{LEAST_COPIED, PageRecord, PrefixParent, PrefixReuse, PrefixScope};
use super::sequence_id::SequenceId;
use crate::Error;

/// A page to copy on the device before the next tokens are processed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct PageCopy {
    pub(super) from: u32,
    pub(super) to: u32,
}

/// The number of batches created in this process.
static BATCHES: AtomicU64 = AtomicU64::new(0);

/// All sequences of a batch.
pub(super) struct Sequences {
    /// The number of the batch, unique in the process.
    batch: u64,
    rows: Vec<TableRow>,
    pages: PageAllocator,
    /// The maximum number of positions per sequence.
    ctx: u32,
}

/// A row of the page table.
#[derive(Default)]
struct TableRow {
    /// The number of sequences that have left the row.
    left: u32,
    sequence: Option<BatchSequence>,
    /// Whether the page list changed since it was written to the device.
    changed: bool,
}

/// The tokens and pages of a sequence.
#[derive(Default)]
pub(super) struct BatchSequence {
    /// The tokens whose keys and values are in the cache.
    pub(super) tokens: Vec<u32>,
    /// The pages, in the order of positions.
    pub(super) pages: Vec<u32>,
    pub(super) sharing: PageSharing,
}

/// The pages that a sequence publishes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct PageSharing {
    /// The scope in which pages are published, or `None` if they stay private.
    pub(super) scope: Option<PrefixScope>,
    /// The number of first positions whose pages may be published.
    pub(super) limit: u32,
    /// The number of first pages that are in the index, as a path with the sequence's tokens.
    pub(super) published: u32,
}

/// The tokens and pages of a sequence that was swapped out.
#[derive(Debug, Clone)]
pub(super) struct SwappedPages {
    /// The number of the batch.
    batch: u64,
    pub(super) tokens: Vec<u32>,
    sharing: PageSharing,
    pub(super) pages: Vec<SwappedPage>,
}

/// A page of a sequence that was swapped out.
#[derive(Debug, Clone, Copy)]
pub(super) struct SwappedPage {
    /// The page at that time.
    pub(super) page: u32,
    /// The number of its contents in the index, if it was published by this sequence or shared.
    serial: Option<u64>,
}

impl PageSharing {
    /// Returns the sharing of a sequence that has only this many of the pages.
    fn with_whole_pages(self, pages: u32) -> PageSharing {
        PageSharing {
            published: self.published.min(pages),
            ..self
        }
    }
}

impl Sequences {
    pub(super) fn new(sequences: u32, pages: u32, ctx: u32) -> Sequences {
        let rows = (0..sequences).map(|_| TableRow::default()).collect();
        let batch = BATCHES.fetch_add(1, Ordering::Relaxed);
        Sequences {
            batch,
            rows,
            pages: PageAllocator::new(pages),
            ctx,
        }
    }

    pub(super) fn pages(&self) -> &PageAllocator {
        &self.pages
    }

    /// Adds a sequence without tokens.
    pub(super) fn join(&mut self) -> Result<SequenceId, Error> {
        let most = self.rows.len() as u32;
        let row = self.rows.iter().position(|row| row.sequence.is_none());
        let row = row.ok_or(Error::BatchFull { most })?;
        self.rows[row].sequence = Some(BatchSequence::default());
        Ok(SequenceId {
            batch: self.batch,
            row: row as u32,
            before: self.rows[row].left,
        })
    }

    pub(super) fn is_full(&self) -> bool {
        self.rows.iter().all(|row| row.sequence.is_some())
    }

    /// Adds a sequence that shares the first `len` tokens of another one, and their pages.
    pub(super) fn fork(&mut self, id: SequenceId, len: u32) -> Result<SequenceId, Error> {
        let sequence = self.get(id)?;
        check_len(sequence, len)?;
        let forked = BatchSequence {
            tokens: sequence.tokens[..len as usize].to_vec(),
            pages: sequence.pages[..pages_of(len) as usize].to_vec(),
            sharing: sequence.sharing.with_whole_pages(len / PAGE),
        };
        self.join_with(forked)
    }

    /// Adds a sequence that starts with the longest cached prefix of a prompt without its last
    /// token, and returns the length of the prefix.
    pub(super) fn join_prompt(
        &mut self,
        prompt: &[u32],
        scope: PrefixScope,
        reuse: PrefixReuse,
    ) -> Result<(SequenceId, u32), Error> {
        let reusable = reuse.reusable(prompt);
        let reusable = &reusable[..reusable.len().min(self.ctx as usize)];
        let index = self.pages.index();
        let cached = match reuse {
            PrefixReuse::AnyLength => index.longest(scope, reusable),
            PrefixReuse::Chunks(chunk) => {
                let mut found = index.whole_pages(scope, reusable);
                found.truncate(found.len - found.len % chunk);
                found
            }
        };
        let limit = match reuse {
            PrefixReuse::AnyLength => u32::MAX,
            PrefixReuse::Chunks(chunk) => {
                let len = prompt.len() as u32;
                len - len % chunk
            }
        };
        let sharing = PageSharing {
            scope: Some(scope),
            limit,
            published: cached.len / PAGE,
        };
        let id = self.join_with(BatchSequence {
            tokens: prompt[..cached.len as usize].to_vec(),
            pages: cached.pages,
            sharing,
        })?;
        Ok((id, cached.len))
    }

    /// Adds a sequence that shares its pages with others or with the index.
    fn join_with(&mut self, sequence: BatchSequence) -> Result<SequenceId, Error> {
        let id = self.join()?;
        for &page in &sequence.pages {
            self.pages.share(page);
        }

        let row = &mut self.rows[id.row as usize];
        row.sequence = Some(sequence);
        row.changed = true;
        Ok(id)
    }

    /// Removes a sequence. Its published pages are kept, and its last page is published if it is
    /// partly filled. Other pages that no sequence uses are freed.
    pub(super) fn leave(&mut self, id: SequenceId) -> Result<(), Error> {
        self.get(id)?;
        self.publish_tail(id);
        let row = &mut self.rows[id.row as usize];
        let sequence = row.sequence.take().expect("`get` has found it");
        row.left += 1;
        row.changed = false;
        self.pages.release_all(&sequence.pages);
        Ok(())
    }

    /// Removes all pages from the index. Sequences in the batch publish no more pages.
    pub(super) fn forget_prefixes(&mut self) {
        self.pages.forget();
        for sequence in self.rows.iter_mut().filter_map(|row| row.sequence.as_mut()) {
            sequence.sharing = PageSharing::default();
        }
    }

    /// Removes all tokens of a sequence but the first `len`, and releases their pages.
    pub(super) fn roll_back(&mut self, id: SequenceId, len: u32) -> Result<(), Error> {
        check_len(self.get(id)?, len)?;
        let sequence = self.get_mut(id);
        sequence.tokens.truncate(len as usize);
        sequence.sharing = sequence.sharing.with_whole_pages(len / PAGE);
        self.release_rest(id);
        Ok(())
    }

    /// Releases the pages after a sequence's last token.
    pub(super) fn release_rest(&mut self, id: SequenceId) {
        let sequence = self.get_mut(id);
        let released = sequence
            .pages
            .split_off(pages_of(sequence.tokens.len() as u32) as usize);
        self.pages.release_all(&released);
    }

    /// Returns a sequence, or an error if it is not in the batch.
    pub(super) fn get(&self, id: SequenceId) -> Result<&BatchSequence, Error> {
        let row = self.rows.get(id.row as usize);
        // A row is reused. The number of sequences that left it tells an old id from the current
        // one.
        let row = row.filter(|row| id.batch == self.batch && row.left == id.before);
        row.and_then(|row| row.sequence.as_ref())
            .ok_or(Error::NoSequence)
    }

    fn get_mut(&mut self, id: SequenceId) -> &mut BatchSequence {
        self.rows[id.row as usize]
            .sequence
            .as_mut()
            .expect("the caller has checked the id")
    }

    /// Returns the eligible sequence with the longest common prefix with `tokens`, and the length of
    /// the prefix.
    pub(super) fn longest_prefix(
        &self,
        tokens: &[u32],
        is_eligible: impl Fn(SequenceId) -> bool,
    ) -> Option<(SequenceId, u32)> {
        let common = |sequence: &BatchSequence| {
            sequence
                .tokens
                .iter()
                .zip(tokens)
                .take_while(|(ours, theirs)| ours == theirs)
                .count() as u32
        };
        let rows = (0..).zip(&self.rows);
        let found = rows.filter_map(|(row, TableRow { left, sequence, .. })| {
            let id = SequenceId {
                batch: self.batch,
                row,
                before: *left,
            };
            Some((id, common(sequence.as_ref()?)))
        });

        // Of equally long prefixes, the smallest id wins, so that the result does not depend on the
        // order of joining.
        found
            .filter(|&(id, len)| len > 0 && is_eligible(id))
            .max_by_key(|&(id, len)| (len, std::cmp::Reverse(id)))
    }

    /// Reserves pages for this many more tokens of each sequence, and returns the pages to copy.
    ///
    /// Either all sequences get their pages or none does. No sequence may appear twice.
    pub(super) fn reserve(&mut self, work: &[(SequenceId, u32)]) -> Result<Vec<PageCopy>, Error> {
        let needed = self.needed(work)?;
        if needed > self.pages.available() {
            return Err(Error::NoPages {
                needed,
                free: self.pages.available(),
                all: self.pages.count(),
            });
        }

        let mut copies = vec![];
        for &(id, more) in work.iter().filter(|(_, more)| *more > 0) {
            let len = self.get_mut(id).tokens.len() as u32;
            let more_pages = pages_of(len + more) as usize;
            let copy = self.prepare_written_page(id);
            let had = self.get_mut(id).pages.len();
            for _ in had..more_pages {
                let page = self.pages.take().expect("pages were counted");
                self.get_mut(id).pages.push(page);
            }

            self.rows[id.row as usize].changed |= copy.is_some() || had < more_pages;
            copies.extend(copy);
        }

        Ok(copies)
    }

    /// Returns the number of pages that [`reserve`](Sequences::reserve) takes.
    fn needed(&self, work: &[(SequenceId, u32)]) -> Result<u32, Error> {
        // If all users of a page but one have copied it, the last one keeps the original.
        let mut copied: HashMap<u32, u32> = HashMap::new();
        let mut needed = 0;
        for &(id, more) in work {
            let sequence = self.get(id)?;
            let len = sequence.tokens.len() as u32;
            if more > self.ctx - len {
                return Err(Error::SequenceLength {
                    len,
                    more,
                    ctx: self.ctx,
                });
            }

            needed += pages_of(len + more).saturating_sub(sequence.pages.len() as u32);
            if let Some(&page) = sequence
                .pages
                .get((len / PAGE) as usize)
                .filter(|_| more > 0)
            {
                let copies = copied.entry(page).or_default();
                if self.pages.users(page) - *copies > 1 {
                    *copies += 1;
                    needed += 1;
                }
            }
        }

        Ok(needed)
    }

    /// Makes the page of a sequence's next token its own. Returns the copy that this needs.
    fn prepare_written_page(&mut self, id: SequenceId) -> Option<PageCopy> {
        let sequence = self.get(id).expect("the caller has checked the id");
        let index = sequence.tokens.len() / PAGE as usize;
        let from = *sequence.pages.get(index)?;
        let published = self.pages.index().contains(from);
        if self.pages.users(from) == 1 && !published {
            return None;
        }

        // Only the index still needs the page, and no page is left for a copy. No page after it is in
        // the index, because such a page would be kept and therefore available.
        //
        // With a copy, the number of available pages stays the same, because the original becomes a
        // kept page.
        if self.pages.users(from) == 1 && self.pages.available() == 0 {
            self.pages.unpublish(from);
            return None;
        }

        // Copy on write: another sequence still reads the page, or the index keeps it.
        let to = self.pages.take().expect("pages were counted");
        self.pages.release_all(&[from]);
        self.get_mut(id).pages[index] = to;
        Some(PageCopy { from, to })
    }

    /// Takes pages that belong to no sequence.
    pub(super) fn take_pages(&mut self, count: u32) -> Result<Vec<u32>, Error> {
        let free = self.pages.available();
        if count > free {
            return Err(Error::NoPages {
                needed: count,
                free,
                all: self.pages.count(),
            });
        }
        let pages = (0..count).map(|_| self.pages.take().expect("pages were counted"));
        Ok(pages.collect())
    }

    /// Frees pages that belong to no sequence.
    pub(super) fn release_pages(&mut self, pages: &[u32]) {
        for &page in pages {
            self.pages.release(page);
        }
    }

    /// Appends tokens whose keys and values are in the cache now.
    pub(super) fn append(&mut self, id: SequenceId, tokens: &[u32]) {
        self.get_mut(id).tokens.extend(tokens);
        self.publish_full_pages(id);
    }

    /// Enters the full pages of a sequence into the index. If the index already has a page with the
    /// same prefix, the sequence continues with that one and releases its own.
    fn publish_full_pages(&mut self, id: SequenceId) {
        while let Some(record) = self.next_full_page(id) {
            self.publish_next(id, record);
        }
    }

    /// Returns the index entry of the first full page that a sequence has not published.
    fn next_full_page(&self, id: SequenceId) -> Option<PageRecord> {
        let sequence = self.get(id).expect("the caller has checked the id");
        let index = sequence.sharing.published;
        let end = (index + 1) * PAGE;
        let len = sequence.tokens.len() as u32;
        if end > len.min(sequence.sharing.limit) {
            return None;
        }
        record(sequence, index)
    }

    /// Publishes the first page of a sequence that is not published yet.
    fn publish_next(&mut self, id: SequenceId, record: PageRecord) {
        let sequence = self.get(id).expect("the caller has checked the id");
        let index = sequence.sharing.published as usize;
        let own = sequence.pages[index];
        match self.pages.index().find(record.parent, &record.tokens) {
            Some(older) => {
                // The device reads the page table of the next step only, so the page is free.
                self.pages.share(older);
                self.pages.release(own);
                self.get_mut(id).pages[index] = older;
                self.rows[id.row as usize].changed = true;
            }
            None => self.pages.publish(own, record),
        }
        self.get_mut(id).sharing.published += 1;
    }

    /// Returns what is needed to add a sequence again after it has left.
    pub(super) fn swapped_pages(&self, id: SequenceId) -> Result<SwappedPages, Error> {
        let sequence = self.get(id)?;
        let pages = &sequence.pages[..pages_of(sequence.tokens.len() as u32) as usize];
        let published = sequence.sharing.published as usize;
        let pages = pages.iter().enumerate().map(|(index, &page)| SwappedPage {
            page,
            serial: self
                .pages
                .index()
                .serial(page)
                .filter(|_| index < published),
        });
        Ok(SwappedPages {
            batch: self.batch,
            tokens: sequence.tokens.clone(),
            sharing: sequence.sharing,
            pages: pages.collect(),
        })
    }

    /// Adds a sequence that was swapped out, and returns the pages that must be written again: the
    /// index in the sequence and the number of the page.
    pub(super) fn swap_in(
        &mut self,
        swapped: &SwappedPages,
    ) -> Result<(SequenceId, Vec<(usize, u32)>), Error> {
        if swapped.batch != self.batch {
            return Err(Error::NoSequence);
        }

        // A page with the same serial has been in the index since then, with the pages before it.
        let index = self.pages.index();
        let cached = swapped
            .pages
            .iter()
            .take_while(|page| page.serial.is_some() && index.serial(page.page) == page.serial);
        let cached: Vec<u32> = cached.map(|page| page.page).collect();
        let kept = cached.iter().filter(|page| self.pages.users(**page) == 0);
        let needed = (swapped.pages.len() - cached.len()) as u32;
        let available = self.pages.available() - kept.count() as u32;
        if needed > available {
            return Err(Error::NoPages {
                needed,
                free: available,
                all: self.pages.count(),
            });
        }

        let first = cached.len();
        let id = self.join_with(BatchSequence {
            tokens: swapped.tokens.clone(),
            pages: cached,
            sharing: swapped.sharing.with_whole_pages(first as u32),
        })?;
        let mut missing = vec![];
        for index in first..swapped.pages.len() {
            let page = self.pages.take().expect("pages were counted");
            self.get_mut(id).pages.push(page);
            missing.push((index, page));
        }
        Ok((id, missing))
    }

    /// Publishes the pages of a sequence that was swapped in, after they were written. A sequence
    /// whose prefix another one has published meanwhile publishes nothing any more, because it must
    /// keep the bits of its own pages.
    pub(super) fn publish_swapped(&mut self, id: SequenceId) {
        while let Some(record) = self.next_full_page(id) {
            if self
                .pages
                .index()
                .find(record.parent, &record.tokens)
                .is_some()
            {
                self.get_mut(id).sharing.scope = None;
                return;
            }
            self.publish_next(id, record);
        }
    }

    /// Returns the cached whole pages of a prefix, with one more user each.
    pub(super) fn hold_prefix(&mut self, scope: PrefixScope, tokens: &[u32]) -> Vec<u32> {
        let pages = self.pages.index().whole_pages(scope, tokens).pages;
        for &page in &pages {
            self.pages.share(page);
        }
        pages
    }

    /// Removes a user from pages.
    pub(super) fn release_held(&mut self, pages: &[u32]) {
        self.pages.release_all(pages);
    }

    /// Enters taken pages, which have been written, into the index after the held pages of a prefix,
    /// and adds them to these.
    pub(super) fn publish_loaded(
        &mut self,
        scope: PrefixScope,
        tokens: &[u32],
        pages: &[u32],
        held: &mut Vec<u32>,
    ) {
        for &page in pages {
            let parent = held
                .last()
                .map_or(PrefixParent::Scope(scope), |&page| PrefixParent::Page(page));
            let first = held.len() * PAGE as usize;
            let record = PageRecord {
                parent,
                tokens: tokens[first..first + PAGE as usize].to_vec(),
            };
            self.pages.publish(page, record);
            held.push(page);
        }
    }

    /// Enters the partly filled last page of a sequence that is about to leave.
    fn publish_tail(&mut self, id: SequenceId) {
        let sequence = self.get(id).expect("the caller has checked the id");
        let len = sequence.tokens.len() as u32;
        let index = len / PAGE;
        let sharing = sequence.sharing;
        if sharing.published < index || len > sharing.limit || len % PAGE < LEAST_COPIED {
            return;
        }

        let page = sequence.pages[index as usize];
        let Some(record) = record(sequence, index) else {
            return;
        };
        // Another sequence continues in a shared page, and would have to copy it if it were
        // published now. A page that is in the index already is one that the sequence found there.
        if self.pages.users(page) > 1 || self.pages.index().contains(page) {
            return;
        }

        // A page with the same beginning has all that this one has.
        let extended = self.pages.index().extension(record.parent, &record.tokens);
        if extended.is_none() {
            self.pages.publish(page, record);
        }
    }

    /// Returns the rows of the page table that changed since the last call, with their pages.
    pub(super) fn take_changed(&mut self) -> Vec<(u32, Vec<u32>)> {
        let changed = (0..).zip(&mut self.rows).filter_map(|(index, row)| {
            let sequence = row.sequence.as_ref().filter(|_| row.changed)?;
            row.changed = false;
            Some((index, sequence.pages.clone()))
        });
        changed.collect()
    }
}

/// Returns the index entry of a sequence's page, if the sequence publishes pages.
fn record(sequence: &BatchSequence, index: u32) -> Option<PageRecord> {
    let scope = sequence.sharing.scope?;
    let parent = index
        .checked_sub(1)
        .map_or(PrefixParent::Scope(scope), |before| {
            PrefixParent::Page(sequence.pages[before as usize])
        });
    let positions = sequence.tokens.len() as u32;
    let first = (index * PAGE) as usize;
    let end = positions.min((index + 1) * PAGE) as usize;
    Some(PageRecord {
        parent,
        tokens: sequence.tokens[first..end].to_vec(),
    })
}

/// Returns the number of pages of this many positions.
pub(super) fn pages_of(positions: u32) -> u32 {
    positions.div_ceil(PAGE)
}

/// Returns an error if a sequence has fewer than `len` tokens.
fn check_len(sequence: &BatchSequence, len: u32) -> Result<(), Error> {
    let tokens = sequence.tokens.len() as u32;
    if len <= tokens {
        Ok(())
    } else {
        Err(Error::SequenceShort { len, tokens })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn filled(sequences: &mut Sequences, tokens: u32) -> SequenceId {
        let id = sequences.join().unwrap();
        push(sequences, id, tokens).unwrap();
        id
    }

    fn push(
        sequences: &mut Sequences,
        id: SequenceId,
        tokens: u32,
    ) -> Result<Vec<PageCopy>, Error> {
        let copies = sequences.reserve(&[(id, tokens)])?;
        let first = sequences.get(id)?.tokens.len() as u32;
        sequences.append(id, &(first..first + tokens).collect::<Vec<_>>());
        Ok(copies)
    }

    #[test]
    fn a_fork_shares_pages_until_it_writes() {
        let mut s = Sequences::new(4, 8, 512);
        let a = filled(&mut s, 100);
        let b = s.fork(a, 70).unwrap();
        assert_eq!(
            (s.get(b).unwrap().pages.len(), s.pages().available()),
            (2, 6)
        );

        // The second page is partly filled, so whoever writes first copies it.
        let copies = push(&mut s, a, 1).unwrap();
        assert_eq!(
            (copies.len(), copies[0].from),
            (1, s.get(b).unwrap().pages[1])
        );
        assert_eq!(push(&mut s, b, 1).unwrap(), []);
        assert_eq!(s.pages().available(), 5);
        s.leave(a).unwrap();
        s.leave(b).unwrap();
        assert_eq!(s.pages().available(), 8);
    }

    #[test]
    fn full_pages_are_never_copied() {
        let mut s = Sequences::new(4, 8, 512);
        let a = filled(&mut s, 128);
        let b = s.fork(a, 64).unwrap();
        assert_eq!(push(&mut s, b, 65).unwrap(), []);
        s.roll_back(b, 64).unwrap();
        s.roll_back(b, 63).unwrap();
        assert_eq!(push(&mut s, b, 1).unwrap().len(), 1);
    }

    #[test]
    fn two_that_share_a_page_need_one_copy() {
        let mut s = Sequences::new(4, 3, 512);
        let a = filled(&mut s, 70);
        let b = s.fork(a, 70).unwrap();
        assert_eq!(s.reserve(&[(a, 1), (b, 1)]).unwrap().len(), 1);
        assert_eq!(s.pages().available(), 0);
    }

    #[test]
    fn room_is_made_for_all_or_none() {
        let mut s = Sequences::new(4, 3, 512);
        let (a, b) = (filled(&mut s, 64), filled(&mut s, 64));
        let error = s.reserve(&[(a, 1), (b, 1)]).unwrap_err().to_string();
        assert!(
            error.contains("2 more pages") && error.contains("1 of 3"),
            "{error}"
        );
        assert_eq!(
            (s.pages().available(), s.get(a).unwrap().pages.len()),
            (1, 1)
        );
        s.reserve(&[(a, 1)]).unwrap();
    }

    #[test]
    fn what_has_left_is_refused() {
        let mut s = Sequences::new(1, 8, 100);
        let a = filled(&mut s, 10);
        assert!(matches!(s.join(), Err(Error::BatchFull { most: 1 })));
        s.leave(a).unwrap();
        let b = filled(&mut s, 10);
        assert!(matches!(s.leave(a), Err(Error::NoSequence)));
        assert!(matches!(
            s.roll_back(b, 11),
            Err(Error::SequenceShort {
                len: 11,
                tokens: 10
            })
        ));
        assert!(matches!(s.fork(b, 11), Err(Error::SequenceShort { .. })));
        assert!(matches!(
            s.reserve(&[(b, 91)]),
            Err(Error::SequenceLength {
                len: 10,
                more: 91,
                ctx: 100
            })
        ));
    }

    #[test]
    fn a_sequence_of_another_batch_is_refused() {
        let (mut one, mut other) = (Sequences::new(1, 8, 100), Sequences::new(1, 8, 100));
        let id = filled(&mut one, 10);
        filled(&mut other, 10);
        assert!(matches!(other.get(id), Err(Error::NoSequence)));
        assert!(matches!(other.leave(id), Err(Error::NoSequence)));
        one.leave(id).unwrap();
    }

    #[test]
    fn finds_the_longest_prefix() {
        let mut s = Sequences::new(4, 8, 512);
        let a = filled(&mut s, 100);
        let b = s.fork(a, 70).unwrap();
        s.append(b, &[7]);
        let mut wanted: Vec<u32> = (0..70).collect();
        wanted.extend([7, 8]);
        assert_eq!(s.longest_prefix(&wanted, |_| true), Some((b, 71)));
        assert_eq!(s.longest_prefix(&wanted[..60], |_| true), Some((a, 60)));
        assert_eq!(s.longest_prefix(&[9], |_| true), None);
    }

    fn scoped(sequences: &mut Sequences, prompt: &[u32], salt: u64) -> (SequenceId, u32) {
        let scope = PrefixScope::salted(salt);
        let (id, cached) = sequences
            .join_prompt(prompt, scope, PrefixReuse::AnyLength)
            .unwrap();
        let rest = &prompt[cached as usize..];
        sequences.reserve(&[(id, rest.len() as u32)]).unwrap();
        sequences.append(id, rest);
        (id, cached)
    }

    fn prompt(len: u32) -> Vec<u32> {
        (0..len).collect()
    }

    #[test]
    fn a_prompt_finds_what_has_left_and_what_runs() {
        let mut s = Sequences::new(4, 12, 640);
        let (a, cached) = scoped(&mut s, &prompt(200), 7);
        assert_eq!(cached, 0);

        // The full pages of a running sequence are shared at once.
        let (b, cached) = scoped(&mut s, &prompt(200), 7);
        assert_eq!(cached, 192);
        assert_eq!(s.get(a).unwrap().pages[..3], s.get(b).unwrap().pages[..3]);
        s.leave(a).unwrap();
        s.leave(b).unwrap();
        assert_eq!((s.pages().kept(), s.pages().available()), (4, 12));

        // The last page has 8 tokens of the first sequence, of which the last is computed again.
        assert_eq!(scoped(&mut s, &prompt(300), 7).1, 200);
        assert_eq!(scoped(&mut s, &prompt(192), 7).1, 191);
        assert_eq!(scoped(&mut s, &prompt(200), 8).1, 0);
    }

    #[test]
    fn pages_that_were_computed_twice_are_shared_afterwards() {
        let mut s = Sequences::new(4, 12, 640);
        let scope = PrefixScope::default();
        let join = |s: &mut Sequences| s.join_prompt(&prompt(130), scope, PrefixReuse::AnyLength);
        let (a, b) = (join(&mut s).unwrap().0, join(&mut s).unwrap().0);
        s.reserve(&[(a, 130), (b, 130)]).unwrap();
        s.take_changed();
        assert_eq!(s.pages().available(), 6);
        s.append(a, &prompt(130));
        s.append(b, &prompt(130));
        assert_eq!(s.pages().available(), 8);
        assert_eq!(s.get(a).unwrap().pages[..2], s.get(b).unwrap().pages[..2]);
        assert_eq!(s.take_changed(), [(b.row, s.get(b).unwrap().pages.clone())]);
    }

    #[test]
    fn the_least_recently_used_pages_are_evicted_from_their_ends() {
        let mut s = Sequences::new(2, 8, 512);
        let other: Vec<u32> = prompt(192).iter().map(|token| token + 1000).collect();
        for tokens in [&prompt(192)[..], &other] {
            let (id, _) = scoped(&mut s, tokens, 0);
            s.leave(id).unwrap();
        }
        assert_eq!(s.pages().kept(), 6);

        // Two pages are free, and the third one is the last page of the first prompt.
        let id = filled(&mut s, 192);
        assert_eq!(s.pages().kept(), 5);
        s.leave(id).unwrap();
        assert_eq!(scoped(&mut s, &prompt(500)[..193], 0).1, 128);
    }

    #[test]
    fn a_published_page_is_overwritten_only_without_space_for_a_copy() {
        let mut s = Sequences::new(2, 2, 512);
        let (id, _) = scoped(&mut s, &prompt(128), 0);
        s.roll_back(id, 30).unwrap();
        assert_eq!(s.pages().kept(), 1);

        // The second page is taken for the copy, although it is the child of the first one.
        assert_eq!(push(&mut s, id, 1).unwrap().len(), 1);
        assert_eq!((s.pages().kept(), s.pages().available()), (1, 1));
        push(&mut s, id, 60).unwrap();
        assert_eq!((s.pages().kept(), s.pages().available()), (0, 0));
        s.roll_back(id, 70).unwrap();
        s.roll_back(id, 64).unwrap();
        s.roll_back(id, 10).unwrap();
        push(&mut s, id, 100).unwrap();
        assert_eq!(s.pages().available(), 0);
        s.roll_back(id, 70).unwrap();
        assert_eq!(push(&mut s, id, 1).unwrap(), []);
    }

    #[test]
    fn whole_chunks_of_prompts_are_reused_alone() {
        let mut s = Sequences::new(4, 16, 1024);
        let chunks = PrefixReuse::Chunks(128);
        let scope = PrefixScope::default();
        let mut join = |len: u32, more: u32| {
            let (id, cached) = s.join_prompt(&prompt(len), scope, chunks).unwrap();
            let rest = &prompt(len + more)[cached as usize..];
            s.reserve(&[(id, rest.len() as u32)]).unwrap();
            s.append(id, rest);
            s.leave(id).unwrap();
            cached
        };
        assert_eq!(join(250, 200), 0);
        assert_eq!(join(500, 0), 128);
        assert_eq!(join(500, 0), 384);
        assert_eq!(join(384, 0), 256);
    }

    #[test]
    fn what_is_forgotten_is_free() {
        let mut s = Sequences::new(4, 12, 640);
        let (a, _) = scoped(&mut s, &prompt(200), 7);
        let (b, _) = scoped(&mut s, &prompt(100), 8);
        s.leave(a).unwrap();
        s.forget_prefixes();
        assert_eq!((s.pages().kept(), s.pages().available()), (0, 10));
        push(&mut s, b, 100).unwrap();
        s.leave(b).unwrap();
        assert_eq!((s.pages().kept(), s.pages().available()), (0, 12));
    }

    /// What a random program does next; numbers choose among what there is.
    #[derive(Debug, Clone, Copy)]
    enum Act {
        Join,
        /// Joins with a prefix of an earlier text, a script for the rest, and a salt.
        JoinPrompt(usize, u32, u32, u64),
        Fork(usize, u32),
        Leave(usize),
        RollBack(usize, u32),
        Push(usize, u32, u32),
        /// Pushes the same tokens to two sequences in one step.
        PushTwo(usize, usize, u32, u32),
        Forget,
        SwapOut(usize),
        SwapIn(usize),
    }

    fn acts() -> impl Strategy<Value = Vec<Act>> {
        let act = prop_oneof![
            1 => Just(Act::Join),
            4 => (any::<usize>(), any::<u32>(), 0..3u32, 0..2u64)
                .prop_map(|(i, len, script, salt)| Act::JoinPrompt(i, len, script, salt)),
            2 => (any::<usize>(), any::<u32>()).prop_map(|(i, len)| Act::Fork(i, len)),
            3 => any::<usize>().prop_map(Act::Leave),
            2 => (any::<usize>(), any::<u32>()).prop_map(|(i, len)| Act::RollBack(i, len)),
            4 => (any::<usize>(), 1..150u32, 0..3u32)
                .prop_map(|(i, more, script)| Act::Push(i, more, script)),
            2 => (any::<usize>(), any::<usize>(), 1..150u32, 0..3u32)
                .prop_map(|(i, j, more, script)| Act::PushTwo(i, j, more, script)),
            1 => (0..4u32).prop_map(|n| if n == 0 { Act::Forget } else { Act::Join }),
            1 => any::<usize>().prop_map(Act::SwapOut),
            2 => any::<usize>().prop_map(Act::SwapIn),
        ];
        prop::collection::vec(act, 1..100)
    }

    /// Returns the token of a script at a position. Scripts are equal at every third page, so that
    /// texts diverge and have pages with the same tokens after different ones.
    fn script(script: u32, position: usize) -> u32 {
        let position = position as u32;
        if (position / PAGE).is_multiple_of(3) {
            position
        } else {
            position + 1000 * script
        }
    }

    /// The keys and values at a position depend on all tokens up to it. They stand for those of an
    /// adapter too, so that they depend on the scope. Private sequences have a scope of their own.
    fn contents(scope: Option<PrefixScope>, tokens: &[u32]) -> Vec<u64> {
        use std::hash::{DefaultHasher, Hash, Hasher};
        let mut hasher = DefaultHasher::new();
        scope.hash(&mut hasher);
        let prefix = tokens.iter().map(|token| {
            token.hash(&mut hasher);
            hasher.finish()
        });
        prefix.collect()
    }

    /// Each page has as many users as sequences have it, and the caches hold what the tokens say.
    struct Checked {
        sequences: Sequences,
        live: Vec<SequenceId>,
        /// The scopes of sequences, as they joined. Forgetting does not change them.
        scopes: HashMap<SequenceId, Option<PrefixScope>>,
        /// The texts of sequences that have left or were rolled back.
        texts: Vec<Vec<u32>>,
        /// The contents of each position of each page.
        cache: Vec<CachedPage>,
        /// The number of positions found in the cache.
        hits: u32,
        /// The sequences that were swapped out: their scopes, pages and contents.
        swapped: Vec<(Option<PrefixScope>, SwappedPages, Vec<CachedPage>)>,
    }

    type CachedPage = [Option<u64>; PAGE as usize];

    impl Checked {
        fn new() -> Checked {
            Checked {
                sequences: Sequences::new(5, 12, 400),
                live: vec![],
                scopes: HashMap::new(),
                texts: vec![vec![]],
                cache: vec![[None; PAGE as usize]; 12],
                hits: 0,
                swapped: vec![],
            }
        }

        fn add(&mut self, id: SequenceId, scope: Option<PrefixScope>) {
            self.live.push(id);
            self.scopes.insert(id, scope);
        }

        fn act(&mut self, act: Act) {
            let pick = |i: usize| self.live.get(i % self.live.len().max(1)).copied();
            match act {
                Act::Join => {
                    if let Ok(id) = self.sequences.join() {
                        self.add(id, None);
                    }
                }
                Act::JoinPrompt(i, len, rest, salt) => self.join_prompt(i, len, rest, salt),
                Act::Fork(i, len) => {
                    let Some(id) = pick(i) else { return };
                    let len = len % (self.sequences.get(id).unwrap().tokens.len() as u32 + 1);
                    if let Ok(fork) = self.sequences.fork(id, len) {
                        self.add(fork, self.scopes[&id]);
                    }
                }
                Act::Leave(i) => {
                    let Some(id) = pick(i) else { return };
                    self.texts
                        .push(self.sequences.get(id).unwrap().tokens.clone());
                    self.sequences.leave(id).unwrap();
                    self.live.retain(|other| *other != id);
                }
                Act::RollBack(i, len) => {
                    let Some(id) = pick(i) else { return };
                    let tokens = self.sequences.get(id).unwrap().tokens.clone();
                    let len = len % (tokens.len() as u32 + 1);
                    self.texts.push(tokens);
                    self.sequences.roll_back(id, len).unwrap();
                }
                Act::Push(i, more, script) => {
                    let work: Vec<_> = pick(i).into_iter().collect();
                    self.push(&work, more, script);
                }
                Act::PushTwo(i, j, more, script) => {
                    let mut work: Vec<_> = pick(i).into_iter().chain(pick(j)).collect();
                    work.dedup();
                    self.push(&work, more, script);
                }
                Act::SwapOut(i) => {
                    let Some(id) = pick(i) else { return };
                    let pages = self.sequences.swapped_pages(id).unwrap();
                    let contents = pages
                        .pages
                        .iter()
                        .map(|page| self.cache[page.page as usize]);
                    let contents = contents.collect();
                    self.swapped.push((self.scopes[&id], pages, contents));
                    self.sequences.leave(id).unwrap();
                    self.live.retain(|other| *other != id);
                }
                Act::SwapIn(i) => self.swap_in(i),
                Act::Forget => {
                    self.sequences.forget_prefixes();
                    assert_eq!(self.sequences.pages().kept(), 0);
                }
            }
        }

        fn join_prompt(&mut self, i: usize, len: u32, rest: u32, salt: u64) {
            let text = &self.texts[i % self.texts.len()];
            let mut prompt = text[..len as usize % (text.len() + 1)].to_vec();
            let more = len % 150;
            prompt.extend((prompt.len()..prompt.len() + more as usize).map(|p| script(rest, p)));
            let scope = PrefixScope::salted(salt);
            let joined = self
                .sequences
                .join_prompt(&prompt, scope, PrefixReuse::AnyLength);
            let Ok((id, cached)) = joined else { return };
            assert!(cached == 0 || (cached as usize) < prompt.len());
            let found = &self.sequences.get(id).unwrap().tokens;
            assert_eq!(*found, prompt[..cached as usize]);
            self.hits += cached;
            self.add(id, Some(scope));
        }

        fn swap_in(&mut self, i: usize) {
            if self.swapped.is_empty() {
                return;
            }

            let index = i % self.swapped.len();
            let before = self.sequences.pages().available();
            let Ok((id, missing)) = self.sequences.swap_in(&self.swapped[index].1) else {
                assert_eq!(self.sequences.pages().available(), before);
                return;
            };
            let (scope, pages, contents) = self.swapped.remove(index);
            for (index, page) in missing {
                assert_eq!(self.sequences.pages().users(page), 1);
                assert!(!self.sequences.pages().index().contains(page));
                self.cache[page as usize] = contents[index];
            }
            self.sequences.publish_swapped(id);
            assert_eq!(self.sequences.get(id).unwrap().tokens, pages.tokens);
            self.add(id, scope);
        }

        fn push(&mut self, ids: &[SequenceId], more: u32, text: u32) {
            let state = |s: &Sequences| {
                let pages = ids.iter().map(|&id| s.get(id).unwrap().pages.clone());
                (pages.collect::<Vec<_>>(), s.pages().available())
            };
            let before = state(&self.sequences);
            let work: Vec<_> = ids.iter().map(|&id| (id, more)).collect();
            let Ok(copies) = self.sequences.reserve(&work) else {
                assert_eq!(state(&self.sequences), before);
                return;
            };

            for PageCopy { from, to } in copies {
                self.cache[to as usize] = self.cache[from as usize];
            }

            let mut pushed = vec![];
            for &id in ids {
                let sequence = self.sequences.get(id).unwrap();
                let first = sequence.tokens.len();
                let tokens = (first..first + more as usize).map(|p| script(text, p));
                let tokens: Vec<u32> = tokens.collect();
                let all = [&sequence.tokens[..], &tokens].concat();
                let contents = contents(self.scopes[&id], &all);
                for (position, contents) in contents.into_iter().enumerate().skip(first) {
                    let page = sequence.pages[position / PAGE as usize];
                    let pages = self.sequences.pages();
                    assert_eq!(pages.users(page), 1, "a written page belongs to one");
                    assert!(!pages.index().contains(page), "a written page is private");
                    self.cache[page as usize][position % PAGE as usize] = Some(contents);
                }
                pushed.push((id, tokens));
            }

            for (id, tokens) in pushed {
                self.sequences.append(id, &tokens);
            }
        }

        fn check_page(&self, page: u32, contents: &[u64]) {
            let cached = &self.cache[page as usize][..contents.len()];
            let wanted: Vec<_> = contents.iter().copied().map(Some).collect();
            assert_eq!(cached, wanted, "the contents of page {page}");
        }

        fn check(&self) {
            let mut users = vec![0; self.cache.len()];
            for &id in &self.live {
                let BatchSequence { tokens, pages, .. } = self.sequences.get(id).unwrap();
                assert!(pages.len() as u32 >= pages_of(tokens.len() as u32));
                for &page in pages {
                    users[page as usize] += 1;
                }

                let contents = contents(self.scopes[&id], tokens);
                for (&page, contents) in pages.iter().zip(contents.chunks(PAGE as usize)) {
                    self.check_page(page, contents);
                }
            }

            let pages = self.sequences.pages();
            let counted = (0..pages.count()).map(|page| pages.users(page));
            assert!(counted.eq(users.iter().copied()));
            let unused = users.iter().filter(|users| **users == 0).count();
            assert_eq!(pages.available() as usize, unused);

            // Whoever finds a page in the index gets the prefix that it stands for.
            let mut kept = 0;
            for page in (0..pages.count()).filter(|page| pages.index().contains(*page)) {
                let (scope, tokens) = pages.index().text(page);
                let contents = contents(Some(scope), &tokens);
                self.check_page(
                    page,
                    &contents[(tokens.len() - 1) / PAGE as usize * PAGE as usize..],
                );
                kept += u32::from(users[page as usize] == 0);
                if let PrefixParent::Page(parent) = pages.index().parent(page) {
                    assert!(
                        users[parent as usize] >= users[page as usize],
                        "page {page} has no parent"
                    );
                }
            }
            assert_eq!(pages.kept(), kept);
        }
    }

    fn run(acts: Vec<Act>) -> Checked {
        let mut checked = Checked::new();
        for act in acts {
            checked.act(act);
            checked.check();
        }
        checked
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(1000))]

        #[test]
        fn pages_hold_what_the_tokens_say(acts in acts()) {
            let mut checked = run(acts);
            for id in checked.live.clone() {
                checked.sequences.leave(id).unwrap();
            }
            assert_eq!(checked.sequences.pages().available(), 12);

            // All kept pages can be evicted.
            let id = checked.sequences.join().unwrap();
            for _ in 0..12 {
                assert!(checked.sequences.pages.take().is_some());
            }
            assert_eq!(checked.sequences.pages().kept(), 0);
            assert!(checked.sequences.reserve(&[(id, 1)]).is_err());
        }
    }

    /// The random programs above hit the cache: a test that never does would prove nothing.
    #[test]
    fn random_programs_hit_the_cache() {
        use proptest::strategy::ValueTree;
        let mut runner = proptest::test_runner::TestRunner::deterministic();
        let programs = (0..100).map(|_| acts().new_tree(&mut runner).unwrap().current());
        let hits: u32 = programs.map(|acts| run(acts).hits).sum();
        assert!(hits > 10_000, "{hits}");
    }
}
