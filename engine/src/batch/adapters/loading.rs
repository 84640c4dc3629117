//! The methods of a batch that concern adapters.

use std::sync::Arc;

use warpwright_driver::Context;
use warpwright_model::Adapter;

use super::identity::AdapterId;
use super::loaded::LoadedBatchAdapter;
use super::prepared::{AdapterPreparer, PreparedAdapter};
use crate::Error;
use crate::batch::engine::Batch;
use crate::batch::sequence_id::SequenceId;
use crate::chunked::lora::pool::HostAdapter;

impl Batch {
    /// Returns the part of [`load_adapter`](Batch::load_adapter) that needs no device, for another
    /// thread.
    pub fn adapter_preparer(&self) -> AdapterPreparer {
        self.adapters.preparer.clone()
    }

    /// Loads an adapter for sequences that join from now on, and returns its identity.
    ///
    /// Pass the identity to [`join_with_adapter`](Batch::join_with_adapter), or in the scope of
    /// [`join_prompt`](Batch::join_prompt). Any number of adapters with any ranks can be loaded, and
    /// one step can process sequences of all of them. All are padded to the largest rank. An adapter
    /// that is loaded already is counted and not copied again.
    ///
    /// Most of the time is spent on the host. Use [`adapter_preparer`](Batch::adapter_preparer) and
    /// [`load_prepared`](Batch::load_prepared) if the batch must not wait for that.
    ///
    /// # Errors
    /// Returns the errors of [`AdapterPreparer::prepare`] and [`load_prepared`](Batch::load_prepared).
    pub fn load_adapter(&mut self, adapter: Arc<Adapter>) -> Result<AdapterId, Error> {
        let prepared = self.adapters.preparer.prepare(&adapter)?;
        drop(adapter);
        self.load_prepared(Arc::new(prepared))
    }

    /// Copies an adapter to the device that the [preparer](Batch::adapter_preparer) of this batch has
    /// prepared. Apart from that, this is [`load_adapter`](Batch::load_adapter).
    ///
    /// # Errors
    /// - [`Error::AdapterMemory`] if the device has too little free memory. The old adapters are
    ///   freed only after the new ones are copied.
    /// - [`Error::Driver`] if a driver call fails.
    ///
    /// The adapters that were loaded before can be used after an error, too.
    pub fn load_prepared(&mut self, adapter: Arc<PreparedAdapter>) -> Result<AdapterId, Error> {
        let id = adapter.id();
        let mut known = self.adapters.loaded.iter_mut();
        if let Some(loaded) = known.find(|loaded| loaded.adapter.id() == id) {
            loaded.count += 1;
            return Ok(id);
        }

        self.adapters
            .loaded
            .push(LoadedBatchAdapter { count: 1, adapter });
        if let Err(error) = self.copy_adapters() {
            self.adapters.loaded.pop();
            return Err(error);
        }
        Ok(id)
    }

    /// Unloads an adapter, and frees its memory if it was loaded once. Its cached pages stay, so
    /// that they can be used after it is loaded again.
    ///
    /// # Errors
    /// - [`Error::NoAdapter`] if the adapter is not loaded.
    /// - [`Error::AdapterInUse`] if it was loaded once and sequences use it.
    /// - [`Error::AdapterMemory`] or [`Error::Driver`] if the others cannot be copied. Nothing is
    ///   unloaded then.
    pub fn unload_adapter(&mut self, id: AdapterId) -> Result<(), Error> {
        let index = self.adapters.index(id)? as usize;
        if self.adapters.loaded[index].count > 1 {
            self.adapters.loaded[index].count -= 1;
            return Ok(());
        }
        if self.adapters.rows.contains(&Some(id)) {
            return Err(Error::AdapterInUse);
        }

        let removed = self.adapters.loaded.remove(index);
        let copied = self.copy_adapters();
        if copied.is_err() {
            self.adapters.loaded.insert(index, removed);
        }
        copied
    }

    /// Returns the adapters that are loaded, in the order of loading.
    pub fn adapters(&self) -> impl Iterator<Item = AdapterId> {
        self.adapters
            .loaded
            .iter()
            .map(|loaded| loaded.adapter.id())
    }

    /// Returns the adapter of a sequence, if it has one.
    ///
    /// # Errors
    /// Returns [`Error::NoSequence`] if the sequence is not in the batch.
    pub fn adapter(&self, sequence: SequenceId) -> Result<Option<AdapterId>, Error> {
        self.sequences.get(sequence)?;
        Ok(self.adapters.of_sequence(sequence))
    }

    /// Adds a sequence without tokens that has an adapter, and returns its id. Apart from that, this
    /// is [`join`](Batch::join).
    ///
    /// # Errors
    /// Returns [`Error::NoAdapter`] if the adapter is not loaded, and the errors of
    /// [`join`](Batch::join).
    pub fn join_with_adapter(&mut self, adapter: AdapterId) -> Result<SequenceId, Error> {
        self.adapters.check(Some(adapter))?;
        let joined = self.join()?;
        self.adapters.set(joined, Some(adapter));
        Ok(joined)
    }

    /// Copies the loaded adapters to the device instead of the ones that are there.
    fn copy_adapters(&mut self) -> Result<(), Error> {
        let loaded = self.adapters.loaded.iter();
        let adapters: Vec<&HostAdapter> = loaded.map(|loaded| loaded.adapter.host()).collect();
        let shapes = self.adapters.preparer.shapes();
        let context: Context = self.device.stream.context().clone();

        // Launches in flight may still read the old adapters.
        context.synchronize()?;
        if adapters.is_empty() {
            self.device.set_adapters(None);
            return Ok(context.synchronize()?);
        }

        let needed = shapes.bytes(&adapters);
        let (free, _) = context.memory()?;
        let free = free as u64;
        if needed > free {
            return Err(Error::AdapterMemory { needed, free });
        }
        let chunked = &self.device.chunked;
        let pool = chunked.load_adapters(&context, shapes, &adapters)?;
        self.device.set_adapters(Some(pool));

        // The old adapters are freed after the copies, which may not have completed yet.
        Ok(context.synchronize()?)
    }
}
