//! The prefix cache of a batch: prompts that start with pages of earlier or running sequences.

use crate::Error;
use crate::batch::adapters::identity::AdapterId;
use crate::batch::engine::Batch;
use crate::batch::pages::prefixes::PrefixScope;
use crate::batch::sequence_id::SequenceId;
use crate::sampling::options::Sampling;

/// The numbers of pages of a batch, by their use. Their sum is the number of all pages.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct BatchPages {
    /// The pages that sequences use.
    pub used: u32,
    /// The pages without a sequence whose prefix is known. They are evicted when pages are needed,
    /// the least recently used one first.
    pub kept: u32,
    /// The pages that contain nothing.
    pub free: u32,
}

impl Batch {
    /// Adds a sequence that starts with the longest cached prefix of `prompt`, and returns its id
    /// and the length of the prefix.
    ///
    /// The prefix is shorter than the prompt, because the logits after the last token must be
    /// computed. Process the rest with [`step`](Batch::step). The prefix may come from any sequence
    /// of the same scope that joined with this method: [`leave`](Batch::leave) keeps its pages while
    /// no other sequence needs them, and running sequences share each page as soon as it is full.
    /// Saved pages are loaded if [`load_kept`](Batch::load_kept) has found them.
    /// Which prefixes are reused depends on [`BatchOptions::reuse`](crate::BatchOptions::reuse).
    ///
    /// The sequence has the adapter of the scope.
    ///
    /// # Errors
    /// Returns [`Error::NoAdapter`] if the adapter of the scope is not loaded, [`Error::BatchFull`]
    /// if the batch has as many sequences as its options allow, or a driver error. Saved pages that
    /// cannot be read are ignored: see [`take_ignored_files`](Batch::take_ignored_files).
    pub fn join_prompt(
        &mut self,
        prompt: &[u32],
        scope: PrefixScope,
    ) -> Result<(SequenceId, u32), Error> {
        let adapter = AdapterId::of_scope(scope.adapter);
        self.adapters.check(adapter)?;
        let scope = self.options.prefix_scope(scope);
        let reuse = self.options.prefix_reuse();

        // The pages after the last one that the prompt can use would be loaded in vain.
        if self.sequences.is_full() {
            return Err(Error::BatchFull {
                most: self.options.sequences,
            });
        }
        self.load_pages(scope, reuse.reusable(prompt), u32::MAX)?;
        let (joined, cached) = self.sequences.join_prompt(prompt, scope, reuse)?;
        self.adapters.set(joined, adapter);
        self.sample(joined, Sampling::greedy())?;
        Ok((joined, cached))
    }

    /// Returns the numbers of used, kept and free pages.
    pub fn page_counts(&self) -> BatchPages {
        let pages = self.sequences.pages();
        let available = pages.available();
        let kept = pages.kept();
        BatchPages {
            used: pages.count() - available,
            kept,
            free: available - kept,
        }
    }

    /// Forgets all prefixes and frees all kept pages. The pages of sequences in the batch are not
    /// kept when they leave.
    pub fn forget_kept(&mut self) {
        self.sequences.forget_prefixes();
    }
}
