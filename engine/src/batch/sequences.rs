//! The sequences of a batch: their tokens, and the pages with their keys and values.
//!
//! A page is written by one sequence only. Sequences with a common prefix share its pages. A
//! sequence that is about to write to a shared page gets a copy first. At most one page per
//! sequence is ever copied, the page of its next token, because the pages before it are full and
//! the pages after it are not shared.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};

use warpwright_kernels::shared::cache::PAGE;

use super::pages::PageAllocator;
use crate::Error;

/// The identity of a sequence in a batch.
///
/// It stays unique. After the sequence has left, its batch rejects the id, and other batches always
/// reject it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SequenceId {
    /// The number of the batch.
    batch: u64,
    /// The row of the page table.
    pub(super) row: u32,
    /// The number of earlier sequences in the row.
    pub(super) before: u32,
}

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

    /// Adds a sequence that shares the first `len` tokens of another one, and their pages.
    pub(super) fn fork(&mut self, id: SequenceId, len: u32) -> Result<SequenceId, Error> {
        let (tokens, pages) = {
            let sequence = self.get(id)?;
            check_len(sequence, len)?;
            let pages = &sequence.pages[..len.div_ceil(PAGE) as usize];
            (sequence.tokens[..len as usize].to_vec(), pages.to_vec())
        };
        let fork = self.join()?;
        for &page in &pages {
            self.pages.share(page);
        }

        let row = &mut self.rows[fork.row as usize];
        row.sequence = Some(BatchSequence { tokens, pages });
        row.changed = true;
        Ok(fork)
    }

    /// Removes a sequence, and frees the pages that no other sequence uses.
    pub(super) fn leave(&mut self, id: SequenceId) -> Result<(), Error> {
        self.get(id)?;
        let row = &mut self.rows[id.row as usize];
        let sequence = row.sequence.take().expect("`get` has found it");
        row.left += 1;
        row.changed = false;
        for page in sequence.pages {
            self.pages.release(page);
        }
        Ok(())
    }

    /// Removes all tokens of a sequence but the first `len`, and releases their pages.
    pub(super) fn roll_back(&mut self, id: SequenceId, len: u32) -> Result<(), Error> {
        check_len(self.get(id)?, len)?;
        self.get_mut(id).tokens.truncate(len as usize);
        self.release_rest(id);
        Ok(())
    }

    /// Releases the pages after a sequence's last token.
    pub(super) fn release_rest(&mut self, id: SequenceId) {
        let sequence = self.get_mut(id);
        let released = sequence
            .pages
            .split_off(pages_of(sequence.tokens.len() as u32) as usize);
        for page in released {
            self.pages.release(page);
        }
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

    /// Returns the sequence with the longest common prefix with `tokens`, and the length of the
    /// prefix.
    pub(super) fn longest_prefix(&self, tokens: &[u32]) -> Option<(SequenceId, u32)> {
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
            .filter(|&(_, len)| len > 0)
            .max_by_key(|&(id, len)| (len, std::cmp::Reverse(id)))
    }

    /// Reserves pages for this many more tokens of each sequence, and returns the pages to copy.
    ///
    /// Either all sequences get their pages or none does. No sequence may appear twice.
    pub(super) fn reserve(&mut self, work: &[(SequenceId, u32)]) -> Result<Vec<PageCopy>, Error> {
        let needed = self.needed(work)?;
        if needed > self.pages.free() {
            return Err(Error::NoPages {
                needed,
                free: self.pages.free(),
                all: self.pages.count(),
            });
        }

        let mut copies = vec![];
        for &(id, more) in work.iter().filter(|(_, more)| *more > 0) {
            let (len, shared) = self.shared_page(id);
            let more_pages = pages_of(len + more) as usize;

            // Copy on write: another sequence still reads the page, so this one continues in a
            // copy.
            if let Some((index, from)) = shared {
                let to = self.pages.take().expect("pages were counted");
                self.pages.release(from);
                self.get_mut(id).pages[index] = to;
                copies.push(PageCopy { from, to });
            }

            let had = self.get_mut(id).pages.len();
            for _ in had..more_pages {
                let page = self.pages.take().expect("pages were counted");
                self.get_mut(id).pages.push(page);
            }

            self.rows[id.row as usize].changed |= shared.is_some() || had < more_pages;
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

    /// Returns the length of a sequence. If the page of its next token is shared, it also returns
    /// the index and number of that page.
    fn shared_page(&self, id: SequenceId) -> (u32, Option<(usize, u32)>) {
        let sequence = self.get(id).expect("the caller has checked the id");
        let len = sequence.tokens.len() as u32;
        let index = (len / PAGE) as usize;
        let page = sequence
            .pages
            .get(index)
            .copied()
            .filter(|&page| self.pages.users(page) > 1);
        (len, page.map(|page| (index, page)))
    }

    /// Appends tokens whose keys and values are in the cache now.
    pub(super) fn append(&mut self, id: SequenceId, tokens: &[u32]) {
        self.get_mut(id).tokens.extend(tokens);
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
        assert_eq!((s.get(b).unwrap().pages.len(), s.pages().free()), (2, 6));

        // The second page is partly filled, so whoever writes first copies it.
        let copies = push(&mut s, a, 1).unwrap();
        assert_eq!(
            (copies.len(), copies[0].from),
            (1, s.get(b).unwrap().pages[1])
        );
        assert_eq!(push(&mut s, b, 1).unwrap(), []);
        assert_eq!(s.pages().free(), 5);
        s.leave(a).unwrap();
        s.leave(b).unwrap();
        assert_eq!(s.pages().free(), 8);
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
        assert_eq!(s.pages().free(), 0);
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
        assert_eq!((s.pages().free(), s.get(a).unwrap().pages.len()), (1, 1));
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
        assert_eq!(s.longest_prefix(&wanted), Some((b, 71)));
        assert_eq!(s.longest_prefix(&wanted[..60]), Some((a, 60)));
        assert_eq!(s.longest_prefix(&[9]), None);
    }

    /// What a random program does next; numbers choose among what there is.
    #[derive(Debug, Clone, Copy)]
    enum Act {
        Join,
        Fork(usize, u32),
        Leave(usize),
        RollBack(usize, u32),
        Push(usize, u32),
    }

    fn acts() -> impl Strategy<Value = Vec<Act>> {
        let act = prop_oneof![
            Just(Act::Join),
            (any::<usize>(), any::<u32>()).prop_map(|(i, len)| Act::Fork(i, len)),
            any::<usize>().prop_map(Act::Leave),
            (any::<usize>(), any::<u32>()).prop_map(|(i, len)| Act::RollBack(i, len)),
            (any::<usize>(), 1..150u32).prop_map(|(i, more)| Act::Push(i, more)),
        ];
        prop::collection::vec(act, 1..80)
    }

    /// Each page has as many users as sequences have it, and the caches hold what the tokens say.
    struct Checked {
        sequences: Sequences,
        live: Vec<SequenceId>,
        /// Which token each position of each page holds.
        cache: Vec<[Option<u32>; PAGE as usize]>,
        next: u32,
    }

    impl Checked {
        fn act(&mut self, act: Act) {
            let pick = |i: usize| self.live.get(i % self.live.len().max(1)).copied();
            match act {
                Act::Join => self.live.extend(self.sequences.join().ok()),
                Act::Fork(i, len) => {
                    let Some(id) = pick(i) else { return };
                    let len = len % (self.sequences.get(id).unwrap().tokens.len() as u32 + 1);
                    self.live.extend(self.sequences.fork(id, len).ok());
                }
                Act::Leave(i) => {
                    let Some(id) = pick(i) else { return };
                    self.sequences.leave(id).unwrap();
                    self.live.retain(|other| *other != id);
                }
                Act::RollBack(i, len) => {
                    let Some(id) = pick(i) else { return };
                    let len = len % (self.sequences.get(id).unwrap().tokens.len() as u32 + 1);
                    self.sequences.roll_back(id, len).unwrap();
                }
                Act::Push(i, more) => {
                    if let Some(id) = pick(i) {
                        self.push(id, more);
                    }
                }
            }
        }

        fn push(&mut self, id: SequenceId, more: u32) {
            let (pages, free) = (
                self.sequences.get(id).unwrap().pages.clone(),
                self.sequences.pages().free(),
            );
            let Ok(copies) = self.sequences.reserve(&[(id, more)]) else {
                assert_eq!(self.sequences.get(id).unwrap().pages, pages);
                assert_eq!(self.sequences.pages().free(), free);
                return;
            };

            for PageCopy { from, to } in copies {
                self.cache[to as usize] = self.cache[from as usize];
            }

            let tokens: Vec<u32> = (self.next..self.next + more).collect();
            self.next += more;
            let BatchSequence {
                tokens: before,
                pages,
            } = self.sequences.get(id).unwrap();
            for (position, &token) in (before.len()..).zip(&tokens) {
                let page = pages[position / PAGE as usize];
                assert_eq!(
                    self.sequences.pages().users(page),
                    1,
                    "a page that is written belongs to one"
                );
                self.cache[page as usize][position % PAGE as usize] = Some(token);
            }

            self.sequences.append(id, &tokens);
        }

        fn check(&self) {
            let mut users = vec![0; self.cache.len()];
            for &id in &self.live {
                let BatchSequence { tokens, pages } = self.sequences.get(id).unwrap();
                assert!(pages.len() as u32 >= pages_of(tokens.len() as u32));
                for &page in pages {
                    users[page as usize] += 1;
                }

                for (position, &token) in tokens.iter().enumerate() {
                    let page = pages[position / PAGE as usize];
                    assert_eq!(
                        self.cache[page as usize][position % PAGE as usize],
                        Some(token)
                    );
                }
            }

            let pages = self.sequences.pages();
            let counted = (0..pages.count()).map(|page| pages.users(page));
            assert!(counted.eq(users.iter().copied()));
            assert_eq!(
                pages.free() as usize,
                users.iter().filter(|users| **users == 0).count()
            );
        }
    }

    proptest! {
        #[test]
        fn pages_hold_what_the_tokens_say(acts in acts()) {
            let cache = vec![[None; PAGE as usize]; 12];
            let sequences = Sequences::new(5, 12, 400);
            let mut checked = Checked { sequences, live: vec![], cache, next: 0 };
            for act in acts {
                checked.act(act);
                checked.check();
            }
            for id in checked.live.clone() {
                checked.sequences.leave(id).unwrap();
            }
            assert_eq!(checked.sequences.pages().free(), 12);
        }
    }
}
