//! The sequences of a batch: their tokens, and the pages that hold their keys and values.
//!
//! A page is written by one sequence. Sequences that share a beginning share its pages; one that is about to write into
//! a page that others have, too, gets a copy of it first. That happens at most to the page where its next token belongs:
//! the pages before it are full, and those after it are its own.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};

use warpwright_kernels::cache::PAGE;

use super::pages::Pages;
use crate::Error;

/// A sequence of a batch. It stays the name of this sequence: after it has left, the batch refuses it, and so does every
/// other batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SequenceId {
    /// The number of its batch.
    batch: u64,
    /// Its row of the page table.
    pub(super) row: u32,
    /// Sequences that had the row before.
    pub(super) before: u32,
}

/// A page to be copied on the device, before the next tokens are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct PageCopy {
    pub(super) from: u32,
    pub(super) to: u32,
}

/// Batches that were made.
static BATCHES: AtomicU64 = AtomicU64::new(0);

/// All sequences.
pub(super) struct Sequences {
    /// A number that no other batch of the process has.
    batch: u64,
    rows: Vec<Row>,
    pages: Pages,
    /// Positions of a sequence, at most.
    ctx: u32,
}

/// A row of the page table.
#[derive(Default)]
struct Row {
    /// Sequences that have left it.
    left: u32,
    sequence: Option<Sequence>,
    /// Whether the device does not know of its pages yet.
    changed: bool,
}

/// A sequence.
#[derive(Default)]
pub(super) struct Sequence {
    /// Those whose keys and values are in the cache.
    pub(super) tokens: Vec<u32>,
    /// In the order of positions.
    pub(super) pages: Vec<u32>,
}

impl Sequences {
    pub(super) fn new(sequences: u32, pages: u32, ctx: u32) -> Sequences {
        let rows = (0..sequences).map(|_| Row::default()).collect();
        let batch = BATCHES.fetch_add(1, Ordering::Relaxed);
        Sequences {
            batch,
            rows,
            pages: Pages::new(pages),
            ctx,
        }
    }

    pub(super) fn pages(&self) -> &Pages {
        &self.pages
    }

    /// Adds a sequence without tokens.
    pub(super) fn join(&mut self) -> Result<SequenceId, Error> {
        let most = self.rows.len() as u32;
        let row = self.rows.iter().position(|row| row.sequence.is_none());
        let row = row.ok_or(Error::BatchFull { most })?;
        self.rows[row].sequence = Some(Sequence::default());
        Ok(SequenceId {
            batch: self.batch,
            row: row as u32,
            before: self.rows[row].left,
        })
    }

    /// Adds a sequence that begins with the first `len` tokens of another one, and has their pages.
    pub(super) fn fork(&mut self, id: SequenceId, len: u32) -> Result<SequenceId, Error> {
        let (tokens, pages) = {
            let sequence = self.get(id)?;
            check_len(sequence, len)?;
            let pages = &sequence.pages[..len.div_ceil(PAGE) as usize];
            (sequence.tokens[..len as usize].to_vec(), pages.to_vec())
        };
        let fork = self.join()?;
        pages.iter().for_each(|&page| self.pages.share(page));
        let row = &mut self.rows[fork.row as usize];
        row.sequence = Some(Sequence { tokens, pages });
        row.changed = true;
        Ok(fork)
    }

    /// Removes a sequence; its pages are free if no other sequence has them.
    pub(super) fn leave(&mut self, id: SequenceId) -> Result<(), Error> {
        self.get(id)?;
        let row = &mut self.rows[id.row as usize];
        let sequence = row.sequence.take().expect("it was just there");
        row.left += 1;
        row.changed = false;
        sequence
            .pages
            .into_iter()
            .for_each(|page| self.pages.release(page));
        Ok(())
    }

    /// Keeps the first `len` tokens, and their pages.
    pub(super) fn roll_back(&mut self, id: SequenceId, len: u32) -> Result<(), Error> {
        check_len(self.get(id)?, len)?;
        self.get_mut(id).tokens.truncate(len as usize);
        self.release_rest(id);
        Ok(())
    }

    /// Releases the pages past a sequence's last token.
    pub(super) fn release_rest(&mut self, id: SequenceId) {
        let sequence = self.get_mut(id);
        let released = sequence
            .pages
            .split_off(pages_of(sequence.tokens.len() as u32) as usize);
        released
            .into_iter()
            .for_each(|page| self.pages.release(page));
    }

    /// A sequence that is in the batch.
    pub(super) fn get(&self, id: SequenceId) -> Result<&Sequence, Error> {
        let row = self.rows.get(id.row as usize);
        let row = row.filter(|row| id.batch == self.batch && row.left == id.before);
        row.and_then(|row| row.sequence.as_ref())
            .ok_or(Error::NoSequence)
    }

    fn get_mut(&mut self, id: SequenceId) -> &mut Sequence {
        self.rows[id.row as usize]
            .sequence
            .as_mut()
            .expect("the sequence was asked for before")
    }

    /// The sequence with the longest common beginning with `tokens`, and its length.
    pub(super) fn longest_prefix(&self, tokens: &[u32]) -> Option<(SequenceId, u32)> {
        let common = |sequence: &Sequence| {
            sequence
                .tokens
                .iter()
                .zip(tokens)
                .take_while(|(ours, theirs)| ours == theirs)
                .count() as u32
        };
        let rows = (0..).zip(&self.rows);
        let found = rows.filter_map(|(row, Row { left, sequence, .. })| {
            let id = SequenceId {
                batch: self.batch,
                row,
                before: *left,
            };
            Some((id, common(sequence.as_ref()?)))
        });
        found
            .filter(|&(_, len)| len > 0)
            .max_by_key(|&(id, len)| (len, std::cmp::Reverse(id)))
    }

    /// Makes room for so many more tokens of each of these sequences: all of them, or none. Gives the pages to copy.
    ///
    /// No sequence is given twice.
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

    /// Pages that [`reserve`](Sequences::reserve) takes.
    fn needed(&self, work: &[(SequenceId, u32)]) -> Result<u32, Error> {
        // A page that all its users but one have copied needs no copy for the last.
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

    /// The length of a sequence; and where its next token belongs, if it shares that page: the index and the page.
    fn shared_page(&self, id: SequenceId) -> (u32, Option<(usize, u32)>) {
        let sequence = self.get(id).expect("the sequence was asked for before");
        let len = sequence.tokens.len() as u32;
        let index = (len / PAGE) as usize;
        let page = sequence
            .pages
            .get(index)
            .copied()
            .filter(|&page| self.pages.users(page) > 1);
        (len, page.map(|page| (index, page)))
    }

    /// More tokens, whose keys and values are in the cache now.
    pub(super) fn append(&mut self, id: SequenceId, tokens: &[u32]) {
        self.get_mut(id).tokens.extend(tokens);
    }

    /// The rows of the page table that have changed since the last call, with their pages.
    pub(super) fn take_changed(&mut self) -> Vec<(u32, Vec<u32>)> {
        let changed = (0..).zip(&mut self.rows).filter_map(|(index, row)| {
            let sequence = row.sequence.as_ref().filter(|_| row.changed)?;
            row.changed = false;
            Some((index, sequence.pages.clone()))
        });
        changed.collect()
    }
}

/// Pages of so many positions.
pub(super) fn pages_of(positions: u32) -> u32 {
    positions.div_ceil(PAGE)
}

fn check_len(sequence: &Sequence, len: u32) -> Result<(), Error> {
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
            let Sequence {
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
                let Sequence { tokens, pages } = self.sequences.get(id).unwrap();
                assert!(pages.len() as u32 >= pages_of(tokens.len() as u32));
                pages.iter().for_each(|&page| users[page as usize] += 1);
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
