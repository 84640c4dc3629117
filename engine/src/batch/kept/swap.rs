//! Sequences in host memory: the pages of a sequence are copied to the host, and later back to the device, bit for bit.

use crate::Error;
use crate::batch::adapters::identity::AdapterId;
use crate::batch::engine::Batch;
use crate::batch::kept::transfer::PageTransfer;
use crate::batch::sequence_id::SequenceId;
use crate::batch::sequences::SwappedPages;
use crate::sampling::options::Sampling;

/// A sequence that has left its batch with all its keys and values, see
/// [`Batch::swap_out`].
pub struct SwappedSequence {
    pages: SwappedPages,
    sampling: Sampling,
    adapter: Option<AdapterId>,
    /// The words of the pages, one after the other.
    words: Vec<u64>,
}

impl SwappedSequence {
    /// Returns the tokens of the sequence whose keys and values are saved.
    pub fn tokens(&self) -> &[u32] {
        &self.pages.tokens
    }

    /// Returns the bytes of host memory that the keys and values take.
    pub fn bytes(&self) -> usize {
        size_of_val(self.words.as_slice())
    }
}

impl std::fmt::Debug for SwappedSequence {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SwappedSequence")
            .field("tokens", &self.tokens().len())
            .field("bytes", &self.bytes())
            .finish_non_exhaustive()
    }
}

impl Batch {
    /// Removes a sequence and copies its keys and values to host memory, so that other sequences
    /// can use its pages.
    ///
    /// Its [logits](Batch::logits) and the log-probabilities of its tokens are lost. Its sampling
    /// parameters are kept.
    ///
    /// # Errors
    /// - [`Error::NoSequence`] if the sequence is not in the batch.
    /// - [`Error::Driver`] if the copy fails. You cannot use the batch afterwards.
    pub fn swap_out(&mut self, sequence: SequenceId) -> Result<SwappedSequence, Error> {
        let pages = self.sequences.swapped_pages(sequence)?;
        let used: Vec<u32> = pages.pages.iter().map(|page| page.page).collect();
        let mut words = vec![];
        if !used.is_empty() {
            let transfer = PageTransfer::new(&self.device, used.len())?;
            words.reserve_exact(used.len() * transfer.page_words());
            for pages in used.chunks(transfer.capacity()) {
                self.device.download_pages(pages, &transfer)?;
                for slot in 0..pages.len() {
                    words.extend(transfer.read(slot));
                }
            }
        }

        let sampling = self.sampled[sequence.row as usize].clone();
        let adapter = self.adapters.of_sequence(sequence);
        self.leave(sequence)?;
        Ok(SwappedSequence {
            pages,
            sampling,
            adapter,
            words,
        })
    }

    /// Adds a sequence that was swapped out of this batch, and returns its new id.
    ///
    /// Its keys and values have the same bits as before, so its next logits do too. Pages of its
    /// prefix that are still cached are shared and not copied.
    ///
    /// # Errors
    /// - [`Error::BatchFull`] or [`Error::NoPages`] if there is no space for the sequence.
    /// - [`Error::NoSequence`] if the sequence was swapped out of another batch.
    /// - [`Error::NoAdapter`] if its adapter was unloaded.
    /// - [`Error::Driver`] if the copy fails. You cannot use the batch afterwards.
    ///
    /// After the other errors the batch is unchanged.
    pub fn swap_in(&mut self, swapped: &SwappedSequence) -> Result<SequenceId, Error> {
        self.adapters.check(swapped.adapter)?;
        let (id, missing) = self.sequences.swap_in(&swapped.pages)?;
        self.adapters.set(id, swapped.adapter);
        if !missing.is_empty() {
            let transfer = PageTransfer::new(&self.device, missing.len())?;
            let words = transfer.page_words();
            for missing in missing.chunks(transfer.capacity()) {
                for (slot, (index, _)) in missing.iter().enumerate() {
                    transfer.write(slot, &swapped.words[index * words..(index + 1) * words]);
                }
                let pages: Vec<u32> = missing.iter().map(|(_, page)| *page).collect();
                self.device.upload_pages(&pages, &transfer)?;
            }
        }

        self.sequences.publish_swapped(id);
        self.sample(id, swapped.sampling.clone())?;
        Ok(id)
    }
}
