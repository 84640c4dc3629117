//! Reads an adapter's folder for a model.

use std::io::ErrorKind;
use std::path::Path;
use std::sync::Arc;

use serde_json::Value;

use crate::Error;
use crate::adapter::config::LoraConfig;
use crate::adapter::data::{Adapter, Formats};
use crate::adapter::fault::Fault;
use crate::adapter::names::{BASE_FORMATS, CONFIG, NOTES, TENSORS};
use crate::adapter::tensors::{self, Sizes};
use crate::model::open::Model;
use crate::model::outline::Outline;

impl Model {
    /// The same model with a LoRA adapter, in the folder format of PEFT. It is read whole and checked against the
    /// model.
    ///
    /// # Errors
    /// A file that is missing or cannot be read; settings that are not supported, tensors that the model has no place
    /// for, and numbers that are not finite, by name.
    pub fn with_adapter(self, folder: &Path) -> Result<Model, Error> {
        Ok(Model {
            outline: self.outline.with_adapter(folder)?,
            ..self
        })
    }
}

impl Outline {
    /// The same of a model without a file: see [`Model::with_adapter`].
    ///
    /// # Errors
    /// As there.
    pub fn with_adapter(mut self, folder: &Path) -> Result<Outline, Error> {
        self.adapter = Some(Arc::new(open(folder, &self)?));
        Ok(self)
    }
}

fn open(folder: &Path, outline: &Outline) -> Result<Adapter, Error> {
    let fault = |path: &Path, fault| Error::Adapter {
        path: path.to_owned(),
        fault: Box::new(fault),
    };
    if !folder.is_dir() {
        let missing = std::fs::metadata(folder)
            .err()
            .filter(|error| error.kind() != ErrorKind::NotADirectory);
        return Err(match missing {
            Some(source) => Error::Open {
                path: folder.to_owned(),
                source,
            },
            None => fault(folder, Fault::NoFolder),
        });
    }
    let architecture = outline.config.architecture;
    if !architecture.fused.is_empty() {
        return Err(fault(folder, Fault::Fused(architecture.name)));
    }
    let path = folder.join(CONFIG);
    let text = file(folder, CONFIG)?.ok_or_else(|| fault(folder, Fault::NoFile(CONFIG)))?;
    let config = LoraConfig::read(&text).map_err(|f| fault(&path, f))?;
    let bytes = file(folder, TENSORS)?.ok_or_else(|| {
        let pickle = folder.join("adapter_model.bin").exists();
        fault(
            folder,
            if pickle {
                Fault::Pickle
            } else {
                Fault::NoFile(TENSORS)
            },
        )
    })?;
    let layers = tensors::read(&bytes, &config, &sizes(outline));
    let layers = layers.map_err(|f| fault(&folder.join(TENSORS), f))?;
    let missing = config
        .named
        .missing(0..layers.len(), |layer, p| layers[layer][p].is_some());
    if let Some(module) = missing.first().filter(|_| config.named.random) {
        return Err(fault(
            &path,
            Fault::Random {
                module: module.clone(),
            },
        ));
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

/// The bytes of a file, if it is there.
fn file(folder: &Path, name: &str) -> Result<Option<Vec<u8>>, Error> {
    let path = folder.join(name);
    match std::fs::read(&path) {
        Ok(bytes) => Ok(Some(bytes)),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(source) => Err(Error::Read { path, source }),
    }
}

fn sizes(outline: &Outline) -> Sizes {
    let size = |w: &crate::model::outline::Weight| [w.rows() as usize, w.row_len() as usize];
    let blocks = outline.weights.blocks.iter();
    Sizes {
        pairing: outline.config.architecture.pairing,
        head_dim: outline.config.head_dim as usize,
        layers: blocks.map(|b| b.projections().map(size)).collect(),
    }
}

/// What [`BASE_FORMATS`] says.
fn formats(text: &[u8]) -> Result<Formats, Fault> {
    let notes: Value =
        serde_json::from_slice(text).map_err(|error| Fault::Json(error.to_string()))?;
    let formats = notes
        .get(BASE_FORMATS)
        .ok_or(Fault::MissingKey(BASE_FORMATS))?;
    serde_json::from_value(formats.clone()).map_err(|_| Fault::Value {
        key: BASE_FORMATS.into(),
        found: formats.to_string(),
        wanted: "an object of formats and how many projections have them".into(),
    })
}
