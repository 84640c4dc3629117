//! Copies of pages between the device and host memory.
//!
//! A page on the host is a list of 64-bit words: for each layer its keys and then its values, each
//! `[kv_heads, 64, head_dim]` of `f16`. The copies go through pinned memory, several pages at a
//! time: the device copies all of them before the host waits once.

use warpwright_driver::memory::{Buffer, Pinned, View, f16};

use crate::Error;
use crate::batch::device::{BatchDevice, page_len};

/// The bytes of pinned memory. More would not make copies faster.
const PINNED_BYTES: usize = 64 << 20;

/// Pinned memory for several pages.
pub(crate) struct PageTransfer {
    memory: Pinned<u64>,
    /// The words of a page.
    page_words: usize,
}

/// The direction of a copy.
#[derive(Clone, Copy)]
enum Direction {
    ToHost,
    ToDevice,
}

impl PageTransfer {
    /// Allocates memory for at most `pages` pages.
    pub(crate) fn new(device: &BatchDevice, pages: usize) -> Result<PageTransfer, Error> {
        let page_words = device.page_words();
        let most = (PINNED_BYTES / (8 * page_words)).max(1);
        let words = page_words * pages.clamp(1, most);
        Ok(PageTransfer {
            memory: Pinned::zeroed(device.stream.context(), words)?.labelled("pages.pinned"),
            page_words,
        })
    }

    /// Returns the number of pages that fit.
    pub(crate) fn capacity(&self) -> usize {
        self.memory.len() / self.page_words
    }

    /// Returns the words of a page.
    pub(crate) fn page_words(&self) -> usize {
        self.page_words
    }

    /// Returns the words of the page in a slot. Several threads may read different slots.
    pub(crate) fn read(&self, slot: usize) -> Vec<u64> {
        let mut words = vec![0; self.page_words];
        self.memory.read_slice(slot * self.page_words, &mut words);
        words
    }

    /// Writes the words of a page to a slot. Several threads may write different slots.
    pub(crate) fn write(&self, slot: usize, words: &[u64]) {
        assert_eq!(words.len(), self.page_words);
        self.memory.write_slice(slot * self.page_words, words);
    }
}

impl BatchDevice {
    /// Returns the 64-bit words of a page.
    pub(crate) fn page_words(&self) -> usize {
        let values: usize = self.config.layers.iter().map(page_len).sum();
        // The lengths are multiples of 64 positions, so that no word is cut.
        2 * values * size_of::<f16>() / size_of::<u64>()
    }

    /// Copies pages to the first slots and waits.
    pub(crate) fn download_pages(
        &self,
        pages: &[u32],
        transfer: &PageTransfer,
    ) -> Result<(), Error> {
        self.transfer_pages(pages, transfer, Direction::ToHost)
    }

    /// Copies the first slots to pages and waits.
    pub(crate) fn upload_pages(&self, pages: &[u32], transfer: &PageTransfer) -> Result<(), Error> {
        self.transfer_pages(pages, transfer, Direction::ToDevice)
    }

    fn transfer_pages(
        &self,
        pages: &[u32],
        transfer: &PageTransfer,
        direction: Direction,
    ) -> Result<(), Error> {
        let host: View<f16> = transfer.memory.cast()?;
        let mut first = 0;
        for &page in pages {
            for (layer, caches) in self.config.layers.iter().zip(self.layer_caches()) {
                let len = page_len(layer);
                for cache in caches {
                    let slot = host.view_range(first..first + len);
                    let cached = page_of(cache, page, len);
                    match direction {
                        Direction::ToHost => self.stream.copy(&cached, &slot)?,
                        Direction::ToDevice => self.stream.copy(&slot, &cached)?,
                    }
                    first += len;
                }
            }
        }

        // The host reads or overwrites the slots next.
        Ok(self.stream.synchronize()?)
    }

    /// Returns the keys and the values of each layer.
    fn layer_caches(&self) -> impl Iterator<Item = [&Buffer<f16>; 2]> {
        let caches = self.k_cache.iter().zip(&self.v_cache);
        caches.map(|(keys, values)| [keys, values])
    }
}

fn page_of(cache: &Buffer<f16>, page: u32, len: usize) -> View<f16> {
    let first = page as usize * len;
    cache.view_range(first..first + len)
}
