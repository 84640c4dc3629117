//! Loading saved pages when a prompt needs them.

use crate::Error;
use crate::batch::engine::Batch;
use crate::batch::kept::folder::PageFolder;
use crate::batch::kept::parallel::in_parallel;
use crate::batch::kept::transfer::PageTransfer;
use crate::batch::pages::prefixes::PrefixScope;
use crate::batch::stored::known_pages::KnownPages;
use crate::batch::stored::page_folder::IgnoredFile;
use crate::batch::stored::page_format::PageKey;

/// The result of [`Batch::load_kept`].
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct LoadablePages {
    /// The number of pages that prompts can use.
    pub pages: u32,
    /// The bytes of their files.
    pub bytes: u64,
    /// The files that cannot be used. Pages of other models are among them.
    pub ignored: Vec<IgnoredFile>,
}

impl Batch {
    /// Makes the pages of a folder available to [`join_prompt`](Batch::join_prompt). Only the
    /// headers of the files are read now. A page is loaded when a prompt needs it, and only if its
    /// checksum is right.
    ///
    /// A file is ignored if its version, program version, model, device, kernels, page length,
    /// layers, rotation of keys, element type or byte order is another one, or if it is damaged.
    ///
    /// # Errors
    /// Returns [`Error::PageFile`] if the folder cannot be listed, or a driver error.
    pub fn load_kept(&mut self, folder: &PageFolder) -> Result<LoadablePages, Error> {
        let format = self.page_format(folder)?;
        let mut known = KnownPages::read(&folder.path, format)?;
        let ignored = known.take_ignored();
        let (pages, bytes) = known.size();
        self.stored = Some(known);
        Ok(LoadablePages {
            pages,
            bytes,
            ignored,
        })
    }

    /// Loads the most recently used saved prompts before a request needs them, until the batch has
    /// at least `most` pages in use or kept, and returns the number of loaded pages.
    ///
    /// # Errors
    /// Returns a driver error, after which you cannot use the batch.
    pub fn preload_kept(&mut self, most: u32) -> Result<u32, Error> {
        let texts = self.stored.as_ref().map_or(vec![], KnownPages::texts);
        let mut loaded = 0;
        for (scope, tokens) in texts {
            let counts = self.page_counts();
            let space = most.saturating_sub(counts.used + counts.kept);
            if space == 0 {
                break;
            }
            loaded += self.load_pages(scope, &tokens, space)?;
        }
        Ok(loaded)
    }

    /// Returns the saved files that turned out to be unusable since the last call, for a log.
    pub fn take_ignored_files(&mut self) -> Vec<IgnoredFile> {
        self.stored
            .as_mut()
            .map_or(vec![], KnownPages::take_ignored)
    }

    /// Loads saved pages that continue the longest prefix of `tokens` in the cache, at most `most`,
    /// and returns their number. They are kept afterwards.
    pub(super) fn load_pages(
        &mut self,
        scope: PrefixScope,
        tokens: &[u32],
        most: u32,
    ) -> Result<u32, Error> {
        let Some(known) = &self.stored else {
            return Ok(0);
        };

        // Pages of a longer context than this one's are of no use.
        let tokens = &tokens[..tokens.len().min(self.options.ctx as usize)];
        let cached = self.sequences.hold_prefix(scope, tokens);
        let mut missing = known.continuation(scope, tokens, cached.len());
        missing.truncate(most.min(self.sequences.pages().available()) as usize);
        let mut held = cached;
        let before = held.len();
        let loaded = self.load_missing(scope, tokens, &missing, &mut held);
        let count = (held.len() - before) as u32;
        self.sequences.release_held(&held);
        loaded.map(|()| count)
    }

    /// Loads pages, publishes them after the held ones, and adds them to these.
    fn load_missing(
        &mut self,
        scope: PrefixScope,
        tokens: &[u32],
        missing: &[PageKey],
        held: &mut Vec<u32>,
    ) -> Result<(), Error> {
        let Some(known) = &mut self.stored else {
            return Ok(());
        };
        if missing.is_empty() {
            return Ok(());
        }

        let transfer = PageTransfer::new(&self.device, missing.len())?;
        for keys in missing.chunks(transfer.capacity()) {
            let read = in_parallel(keys.len(), |slot| {
                let words = known.words(keys[slot])?;
                transfer.write(slot, &words);
                Ok(())
            });
            let failed = read.iter().position(Result::is_err);
            let usable = failed.unwrap_or(keys.len());
            let pages = self.sequences.take_pages(usable as u32)?;
            self.device.upload_pages(&pages, &transfer)?;
            self.sequences.publish_loaded(scope, tokens, &pages, held);

            // The pages after an unusable one cannot be reached.
            for (key, read) in keys.iter().zip(read) {
                if let Err(reason) = read {
                    known.forget(*key, reason);
                }
            }
            if failed.is_some() {
                break;
            }
        }
        Ok(())
    }
}
