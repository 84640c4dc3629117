//! The folder in which a batch saves its pages, as its user names it.

use std::path::Path;

use warpwright_model::Model;

use crate::Error;
use crate::batch::device::page_len;
use crate::batch::engine::Batch;
use crate::batch::stored::fingerprint::ModelFingerprint;
use crate::batch::stored::page_folder::FolderPath;
use crate::batch::stored::page_format::{PageFormat, PageProperties};

/// A folder with saved pages of a model, for [`Batch::save_kept`] and [`Batch::load_kept`].
///
/// The files are in a subfolder `warpwright-pages`, one per page. Only their owner can read them.
/// They contain the tokens of prompts and replies, and the salt of their scope. Several models and
/// processes can share a folder.
#[derive(Debug, Clone)]
pub struct PageFolder {
    pub(super) path: FolderPath,
    pub(super) max_bytes: u64,
    model: ModelFingerprint,
}

impl PageFolder {
    /// Opens a folder for the pages of `model`. It is created if it is missing.
    ///
    /// The files in it, of all models together, take at most `max_bytes`. When a batch is saved, the
    /// pages that were used least recently are removed first.
    ///
    /// The model's files are read for a fingerprint. It covers the size, the time of the last
    /// change, the first 16 MiB and 1,024 samples of each file.
    ///
    /// # Errors
    /// Returns [`Error::PageFile`] if the folder cannot be created, if others than its owner can
    /// access the subfolder, or if a file of the model cannot be read.
    pub fn open(path: &Path, model: &Model, max_bytes: u64) -> Result<PageFolder, Error> {
        Ok(PageFolder {
            path: FolderPath::open(path)?,
            max_bytes,
            model: ModelFingerprint::read(model)?,
        })
    }

    /// Returns the folder with the files.
    pub fn path(&self) -> &Path {
        self.path.path()
    }
}

impl Batch {
    /// Returns the properties that saved pages must have.
    pub(super) fn page_format(&self, folder: &PageFolder) -> Result<PageFormat, Error> {
        let device = &self.device;
        let frequencies = device.stream.read(&device.freq)?;
        let hardware = device.stream.context().device();
        let (major, minor) = hardware.compute_capability();
        let head_dim = device.config.head_dim();
        let layers = device.config.layers.iter();
        let layers = layers.map(|layer| (page_len(layer) as u32, head_dim));
        Ok(PageFormat::new(&PageProperties {
            model: folder.model,
            device: format!("{} {major}.{minor}", hardware.name()),
            kernels: format!("{:?}", self.cores),
            layers: layers.collect(),
            frequencies: frequencies.into_iter().map(f32::to_bits).collect(),
            page_words: device.page_words(),
        }))
    }
}
