//! Saving the pages of a batch in a folder.

use std::collections::{HashMap, VecDeque};
use std::time::SystemTime;

use crate::Error;
use crate::batch::engine::Batch;
use crate::batch::kept::folder::PageFolder;
use crate::batch::kept::parallel::in_parallel;
use crate::batch::kept::transfer::PageTransfer;
use crate::batch::pages::prefixes::{PrefixIndex, PrefixParent};
use crate::batch::stored::page_file::{self, PageHeader};
use crate::batch::stored::page_folder::{FoundPage, LockedFolder, times};
use crate::batch::stored::page_format::{PageFormat, PageKey};

/// The result of [`Batch::save_kept`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct SavedPages {
    /// The number of pages written.
    pub written: u32,
    /// The bytes of the files written.
    pub bytes: u64,
    /// The number of pages of the batch that had been saved before.
    pub unchanged: u32,
    /// The number of older files that were removed to make space.
    pub removed: u32,
    /// The number of pages of the batch that exceed the size of the folder.
    pub left_out: u32,
}

/// A page of the batch that is to be saved.
struct SavedPage {
    page: u32,
    key: PageKey,
    header: PageHeader,
    bytes: u64,
    used: SystemTime,
}

impl Batch {
    /// Saves all full pages with known prefixes in a folder: kept pages, and those of sequences that
    /// joined with [`join_prompt`](Batch::join_prompt).
    ///
    /// A file is written under another name first, so that an interrupted or failed call leaves no
    /// half file. Files that exist already are not written again.
    ///
    /// # Errors
    /// - [`Error::PageFile`] if a file cannot be written, for example because the disk is full, or
    ///   if another process is saving. Files written before stay there and are complete.
    /// - [`Error::Driver`] if a copy fails. You cannot use the batch afterwards.
    pub fn save_kept(&mut self, folder: &PageFolder) -> Result<SavedPages, Error> {
        let format = self.page_format(folder)?;
        let locked = folder.path.lock()?;
        let existing = folder.path.list()?.pages;
        let pages = pages_to_save(self.sequences.pages().index(), &format);
        let all = pages.len();
        let pages = up_to(pages, folder.max_bytes);
        let mut saved = SavedPages {
            left_out: (all - pages.len()) as u32,
            ..SavedPages::default()
        };
        let mut space = FolderSpace::new(&locked, folder.max_bytes, &existing, &pages);
        let existing: HashMap<PageKey, u64> =
            existing.iter().map(|file| (file.key, file.bytes)).collect();
        let damaged = |key| {
            self.stored
                .as_ref()
                .is_some_and(|known| known.is_damaged(key))
        };
        let (old, new): (Vec<_>, Vec<_>) = pages
            .into_iter()
            .partition(|page| existing.get(&page.key) == Some(&page.bytes) && !damaged(page.key));
        for page in &old {
            locked.touch(page.key, page.used)?;
        }
        saved.unchanged = old.len() as u32;

        // The folder respects its limit even if there is nothing to write.
        space.make(0)?;
        if !new.is_empty() {
            let transfer = PageTransfer::new(&self.device, new.len())?;
            for pages in new.chunks(transfer.capacity()) {
                space.make(pages.iter().map(|page| page.bytes).sum())?;
                let numbers: Vec<u32> = pages.iter().map(|page| page.page).collect();
                self.device.download_pages(&numbers, &transfer)?;
                let written = in_parallel(pages.len(), |slot| {
                    let page = &pages[slot];
                    let words = transfer.read(slot);
                    let bytes = page_file::encode(&format, &page.header, &words);
                    locked.write(page.key, &bytes, page.used)
                });
                written.into_iter().collect::<Result<(), Error>>()?;
                saved.written += pages.len() as u32;
                saved.bytes += pages.iter().map(|page| page.bytes).sum::<u64>();
            }
        }
        saved.removed = space.removed;
        Ok(saved)
    }
}

/// Returns all full pages of the index, the most valuable first. A page comes after its parent.
fn pages_to_save(index: &PrefixIndex, format: &PageFormat) -> Vec<SavedPage> {
    let mut headers: HashMap<u32, (PageKey, PageHeader)> = HashMap::new();
    let mut pages = vec![];
    for (page, used) in index.by_value().into_iter().zip(times(SystemTime::now())) {
        let record = index.record(page);
        let (scope, parent, position) = match record.parent {
            PrefixParent::Scope(scope) => (scope, None, 0),
            PrefixParent::Page(parent) => {
                let (key, header) = &headers[&parent];
                (header.scope, Some(*key), header.index + 1)
            }
        };
        let header = PageHeader {
            scope,
            parent,
            index: position,
            tokens: record.tokens.clone(),
        };
        let key = header.key(format);
        headers.insert(page, (key, header.clone()));
        pages.push(SavedPage {
            page,
            key,
            bytes: page_file::len(format, &header),
            header,
            used,
        });
    }
    pages
}

/// Returns the first pages that fit into a folder. Their parents are among them.
fn up_to(pages: Vec<SavedPage>, max_bytes: u64) -> Vec<SavedPage> {
    let mut total = 0;
    let fitting = pages.into_iter().take_while(|page| {
        total += page.bytes;
        total <= max_bytes
    });
    fitting.collect()
}

/// The space in a folder, which is made by removing old files.
struct FolderSpace<'f> {
    folder: &'f LockedFolder<'f>,
    max_bytes: u64,
    /// The bytes of all files, and of those that are about to be written.
    total: u64,
    /// The files that may be removed, the least recently used first.
    removable: VecDeque<&'f FoundPage>,
    removed: u32,
}

impl<'f> FolderSpace<'f> {
    fn new(
        folder: &'f LockedFolder<'f>,
        max_bytes: u64,
        existing: &'f [FoundPage],
        saved: &[SavedPage],
    ) -> FolderSpace<'f> {
        let saved: HashMap<PageKey, u64> =
            saved.iter().map(|page| (page.key, page.bytes)).collect();
        let mut removable: Vec<&FoundPage> = existing
            .iter()
            .filter(|file| !saved.contains_key(&file.key))
            .collect();
        removable.sort_by_key(|file| (file.used, file.key));

        // A file that is to be written again counts only then.
        let total = existing.iter().filter(|file| {
            saved
                .get(&file.key)
                .is_none_or(|bytes| *bytes == file.bytes)
        });
        FolderSpace {
            folder,
            max_bytes,
            total: total.map(|file| file.bytes).sum(),
            removable: removable.into(),
            removed: 0,
        }
    }

    /// Removes files until `bytes` more fit, and counts them as used.
    fn make(&mut self, bytes: u64) -> Result<(), Error> {
        while self.total + bytes > self.max_bytes {
            let Some(file) = self.removable.pop_front() else {
                break;
            };
            self.folder.remove(file)?;
            self.total -= file.bytes;
            self.removed += 1;
        }
        self.total += bytes;
        Ok(())
    }
}
