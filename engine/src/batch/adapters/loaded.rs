//! The loaded adapters, and the adapters of sequences.

use std::sync::Arc;

use super::identity::AdapterId;
use super::prepared::{AdapterPreparer, PreparedAdapter};
use crate::Error;
use crate::batch::sequence_id::SequenceId;

/// The adapters of a batch.
pub(crate) struct BatchAdapters {
    /// The loaded adapters, in the order of the device.
    pub(crate) loaded: Vec<LoadedBatchAdapter>,
    /// The adapter of the sequence in each row of the page table.
    pub(crate) rows: Vec<Option<AdapterId>>,
    pub(crate) preparer: AdapterPreparer,
}

/// An adapter that is loaded.
pub(crate) struct LoadedBatchAdapter {
    /// The number of times that it was loaded.
    pub(crate) count: u32,
    /// The values, because the device's copy is laid out anew with every change.
    pub(crate) adapter: Arc<PreparedAdapter>,
}

impl BatchAdapters {
    pub(crate) fn new(sequences: u32, preparer: AdapterPreparer) -> BatchAdapters {
        BatchAdapters {
            preparer,
            loaded: vec![],
            rows: vec![None; sequences as usize],
        }
    }

    /// Returns the index of an adapter on the device.
    pub(crate) fn index(&self, id: AdapterId) -> Result<u32, Error> {
        let index = self
            .loaded
            .iter()
            .position(|loaded| loaded.adapter.id() == id);
        index.map(|index| index as u32).ok_or(Error::NoAdapter)
    }

    /// Returns the adapter of a sequence.
    pub(crate) fn of_sequence(&self, sequence: SequenceId) -> Option<AdapterId> {
        self.rows[sequence.row as usize]
    }

    /// Sets the adapter of a sequence that has joined or left.
    pub(crate) fn set(&mut self, sequence: SequenceId, adapter: Option<AdapterId>) {
        self.rows[sequence.row as usize] = adapter;
    }

    /// Returns an error if an adapter is given and is not loaded.
    pub(crate) fn check(&self, adapter: Option<AdapterId>) -> Result<(), Error> {
        match adapter {
            Some(id) => self.index(id).map(|_| ()),
            None => Ok(()),
        }
    }

    /// Returns the index of the adapter of a sequence on the device, if it has one.
    pub(crate) fn device_index(&self, sequence: SequenceId) -> Option<u32> {
        let id = self.of_sequence(sequence)?;
        let index = self.index(id);
        Some(index.expect("an adapter is not unloaded while a sequence uses it"))
    }
}
