//! The reader of an adapter's directory.

use std::io::ErrorKind;
use std::path::Path;
use std::sync::Arc;

use serde_json::Value;

use crate::Error;
use crate::adapter::config::LoraConfig;
use crate::adapter::data::{Adapter, Formats};
use crate::adapter::fault::AdapterFault;
use crate::adapter::names::{BASE_FORMATS, CONFIG, NOTES, TENSORS};
use crate::adapter::tensors;
use crate::adapter::tensors::LoraSizes;
use crate::architecture::outline::{Outline, Weight};
use crate::open::Model;

impl Model {
    /// Returns the model with a LoRA adapter, which is read from a directory in PEFT's format and
    /// checked against the model.
    ///
    /// # Errors
    /// - [`Error::Open`] or [`Error::Read`] if the directory or a file cannot be read.
    /// - [`Error::Adapter`] if a file is missing, a setting is not supported, a tensor does not fit
    ///   the model, or a value is not finite.
    pub fn with_adapter(self, folder: &Path) -> Result<Model, Error> {
        Ok(Model {
            outline: self.outline.with_adapter(folder)?,
            ..self
        })
    }
}

impl Outline {
    /// Returns the outline with a LoRA adapter: see [`Model::with_adapter`].
    ///
    /// # Errors
    /// Returns the errors of [`Model::with_adapter`].
    pub fn with_adapter(mut self, folder: &Path) -> Result<Outline, Error> {
        self.adapter = Some(Arc::new(self.read_adapter(folder)?));
        Ok(self)
    }

    /// Reads a LoRA adapter from a directory in PEFT's format, and checks it against the model. The
    /// outline stays as it is.
    ///
    /// # Errors
    /// Returns the errors of [`Model::with_adapter`].
    pub fn read_adapter(&self, folder: &Path) -> Result<Adapter, Error> {
        open(folder, self)
    }
}

/// Reads and checks an adapter.
fn open(folder: &Path, outline: &Outline) -> Result<Adapter, Error> {
    let fault = |path: &Path, fault| Error::Adapter {
        path: path.to_owned(),
        fault: Box::new(fault),
    };
    if !folder.is_dir() {
        // A path that does not exist is reported by the system's error, and a file as such.
        let missing = std::fs::metadata(folder)
            .err()
            .filter(|error| error.kind() != ErrorKind::NotADirectory);
        return Err(match missing {
            Some(source) => Error::Open {
                path: folder.to_owned(),
                source,
            },
            None => fault(folder, AdapterFault::NoFolder),
        });
    }

    let architecture = outline.config.architecture;
    if !architecture.fused.is_empty() {
        return Err(fault(folder, AdapterFault::Fused(architecture.name)));
    }

    let path = folder.join(CONFIG);
    let text = file(folder, CONFIG)?.ok_or_else(|| fault(folder, AdapterFault::NoFile(CONFIG)))?;
    let config = LoraConfig::read(&text).map_err(|f| fault(&path, f))?;
    let Some(bytes) = file(folder, TENSORS)? else {
        let pickle = folder.join("adapter_model.bin").exists();
        let missing = if pickle {
            AdapterFault::Pickle
        } else {
            AdapterFault::NoFile(TENSORS)
        };
        return Err(fault(folder, missing));
    };

    let sizes = sizes(outline);
    let layers = tensors::read(&bytes, &config, &sizes);
    let layers = layers.map_err(|f| fault(&folder.join(TENSORS), f))?;
    let missing = config.named.missing(0..layers.len(), |layer, p| {
        // PEFT makes no pair for a projection that the layer does not have.
        layers[layer][p].is_some() || sizes.layers[layer][p].is_none()
    });

    // PEFT would fill these matrices with random numbers, which cannot be intended.
    if config.named.random
        && let Some(module) = missing.first()
    {
        let module = module.clone();
        return Err(fault(&path, AdapterFault::Random { module }));
    }

    let trained_on = file(folder, NOTES)?.map(|text| formats(&text)).transpose();
    let trained_on = trained_on.map_err(|f| fault(&folder.join(NOTES), f))?;
    let LoraConfig {
        base,
        alpha,
        rslora,
        ..
    } = config;
    Ok(Adapter {
        path: folder.to_owned(),
        base,
        trained_on,
        alpha,
        rslora,
        missing,
        layers,
    })
}

/// Returns the bytes of a file, or `None` if it does not exist.
fn file(folder: &Path, name: &str) -> Result<Option<Vec<u8>>, Error> {
    let path = folder.join(name);
    match std::fs::read(&path) {
        Ok(bytes) => Ok(Some(bytes)),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(source) => Err(Error::Read { path, source }),
    }
}

/// Returns the sizes that the tensors must fit.
fn sizes(outline: &Outline) -> LoraSizes {
    let size = |w: &Weight| [w.rows() as usize, w.row_len() as usize];
    let blocks = outline.weights.blocks.iter();
    LoraSizes {
        pairing: outline.config.architecture.pairing,
        head_dim: outline.config.head_dim() as usize,
        layers: blocks
            .map(|b| b.projections().map(|w| w.map(size)))
            .collect(),
    }
}

/// Parses the value of [`BASE_FORMATS`].
fn formats(text: &[u8]) -> Result<Formats, AdapterFault> {
    let notes: Value =
        serde_json::from_slice(text).map_err(|error| AdapterFault::Json(error.to_string()))?;
    let formats = notes
        .get(BASE_FORMATS)
        .ok_or(AdapterFault::MissingKey(BASE_FORMATS))?;
    serde_json::from_value(formats.clone()).map_err(|_| AdapterFault::Value {
        key: BASE_FORMATS.into(),
        found: formats.to_string(),
        wanted: "an object of formats and how many projections have them".into(),
    })
}
