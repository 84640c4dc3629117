//! The saved pages that a batch can load.

use std::collections::{HashMap, HashSet};
use std::path::PathBuf;

use warpwright_kernels::shared::cache::PAGE;

use super::page_file::{self, PageHeader};
use super::page_folder::{FolderPath, IgnoredFile};
use super::page_format::{PageFormat, PageKey};
use crate::Error;
use crate::batch::pages::prefixes::PrefixScope;

/// The headers of all saved pages of one format.
pub(crate) struct KnownPages {
    format: PageFormat,
    pages: HashMap<PageKey, KnownPage>,
    /// The keys of pages whose files are unusable.
    damaged: HashSet<PageKey>,
    /// The files that turned out to be unusable and have not been reported yet.
    ignored: Vec<IgnoredFile>,
}

/// A saved page.
#[derive(Debug, Clone)]
pub(crate) struct KnownPage {
    pub(crate) header: PageHeader,
    path: PathBuf,
    bytes: u64,
    used: std::time::SystemTime,
}

impl KnownPages {
    /// Reads the headers of all files in a folder.
    pub(crate) fn read(folder: &FolderPath, format: PageFormat) -> Result<KnownPages, Error> {
        let files = folder.list()?;
        let mut known = KnownPages {
            ignored: files.others,
            pages: HashMap::new(),
            damaged: HashSet::new(),
            format,
        };
        for file in files.pages {
            match page_file::read_header(&file.path, &known.format) {
                Ok(header) if header.key(&known.format) == file.key => {
                    let page = KnownPage {
                        header,
                        path: file.path,
                        bytes: file.bytes,
                        used: file.used,
                    };
                    known.pages.insert(file.key, page);
                }
                Ok(_) => known.ignore(file.path, "its name does not match its header".to_owned()),
                Err(reason) => known.ignore(file.path, reason.0),
            }
        }
        Ok(known)
    }

    fn ignore(&mut self, path: PathBuf, reason: String) {
        self.ignored.push(IgnoredFile { path, reason });
    }

    /// Returns the files that turned out to be unusable since the last call.
    pub(crate) fn take_ignored(&mut self) -> Vec<IgnoredFile> {
        std::mem::take(&mut self.ignored)
    }

    /// Returns the number of saved pages and of their bytes.
    pub(crate) fn size(&self) -> (u32, u64) {
        let bytes = self.pages.values().map(|page| page.bytes).sum();
        (self.pages.len() as u32, bytes)
    }

    /// Returns the saved pages of a prompt from page `first` on, up to the first one that is
    /// missing.
    pub(crate) fn continuation(
        &self,
        scope: PrefixScope,
        tokens: &[u32],
        first: usize,
    ) -> Vec<PageKey> {
        let mut parent = None;
        let mut found = vec![];
        for (index, tokens) in tokens.chunks_exact(PAGE as usize).enumerate() {
            let key = self.format.key(parent, scope, tokens);
            if index >= first {
                // The header is compared too, so that equal hashes could do no harm.
                let wanted = PageHeader {
                    scope,
                    parent,
                    index: index as u32,
                    tokens: tokens.to_vec(),
                };
                if self
                    .pages
                    .get(&key)
                    .is_none_or(|page| page.header != wanted)
                {
                    break;
                }
                found.push(key);
            }
            parent = Some(key);
        }
        found
    }

    /// Reads the words of a page, after checking that its file is complete.
    pub(crate) fn words(&self, key: PageKey) -> Result<Vec<u64>, String> {
        let page = self.page(key);
        page_file::read_words(&page.path, &self.format, &page.header).map_err(|reason| reason.0)
    }

    pub(crate) fn page(&self, key: PageKey) -> &KnownPage {
        self.pages.get(&key).expect("the key was found")
    }

    /// Forgets a page whose file is unusable.
    pub(crate) fn forget(&mut self, key: PageKey, reason: String) {
        if let Some(page) = self.pages.remove(&key) {
            self.ignore(page.path, reason);
            self.damaged.insert(key);
        }
    }

    /// Returns true if the file of a page turned out to be unusable.
    pub(crate) fn is_damaged(&self, key: PageKey) -> bool {
        self.damaged.contains(&key)
    }

    /// Returns the scopes and tokens of all saved prompts that are not the beginning of others, the
    /// most recently used first. A prompt with a missing page is left out.
    pub(crate) fn texts(&self) -> Vec<(PrefixScope, Vec<u32>)> {
        let parents = self.pages.values().filter_map(|page| page.header.parent);
        let parents: HashSet<PageKey> = parents.collect();
        let mut ends: Vec<_> = self
            .pages
            .iter()
            .filter(|(key, _)| !parents.contains(key))
            .collect();
        ends.sort_by_key(|(key, page)| (std::cmp::Reverse(page.used), **key));
        ends.into_iter()
            .filter_map(|(_, page)| self.text(page))
            .collect()
    }

    /// Returns the scope of a page and all tokens up to its end.
    fn text(&self, page: &KnownPage) -> Option<(PrefixScope, Vec<u32>)> {
        let mut pages = vec![page];
        while let Some(parent) = pages[pages.len() - 1].header.parent {
            let parent = self.pages.get(&parent)?;
            // A chain of hashes has no cycle, but the files could claim one.
            if pages.len() as u32 > page.header.index {
                return None;
            }
            pages.push(parent);
        }
        let tokens = pages.iter().rev().flat_map(|page| &page.header.tokens);
        Some((page.header.scope, tokens.copied().collect()))
    }
}
