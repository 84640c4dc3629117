//! The model to measure: a file, or a known shape with random weights.

use std::path::Path;
use std::sync::Arc;

use clap::builder::{PossibleValuesParser, TypedValueParser};
use warpwright_driver::Context;
use warpwright_engine::{Decoder, Options};
use warpwright_model::adapter::Adapter;
use warpwright_model::shape::{QUANTIZATIONS, SHAPES};
use warpwright_model::{Model, Outline, Quantization, Shape};

use crate::failure::Failure;
use crate::model::adapter;
use crate::model::options::{self, ModelArg};

/// The message about a command line without a model.
pub(super) const NOTHING: &str = "there is nothing to measure: name a MODEL, or a known shape with random weights, such as --shape \
     llama3.2-1b --quant q4_k_m";

/// A model file, or a shape.
#[derive(clap::Args)]
#[command(mut_arg(ModelArg::POSITIONAL, |model| model.required(false)))]
pub(super) struct ModelOrShape {
    #[command(flatten)]
    model: ModelArg,
    /// Shape of a known model, with random weights instead of a file
    #[arg(
        long,
        value_name = "NAME",
        value_parser = shapes(),
        conflicts_with_all = [ModelArg::POSITIONAL, ModelArg::OPTION]
    )]
    shape: Option<&'static Shape>,
}

/// A model file, or a shape and the quantization of its weights.
#[derive(clap::Args)]
pub(super) struct ModelOrWeights {
    #[command(flatten)]
    model: ModelOrShape,
    /// Quantization of the random weights of --shape
    #[arg(
        long,
        value_name = "NAME",
        value_parser = quantizations(),
        conflicts_with_all = [ModelArg::POSITIONAL, ModelArg::OPTION]
    )]
    quant: Option<Quantization>,
}

fn shapes() -> impl TypedValueParser<Value = &'static Shape> {
    static TABLE: &[Shape] = &SHAPES;
    let named = |name: String| {
        TABLE
            .iter()
            .find(|shape| shape.name == name)
            .expect("clap accepts only the names in the table")
    };
    PossibleValuesParser::new(TABLE.iter().map(|shape| shape.name)).map(named)
}

fn quantizations() -> impl TypedValueParser<Value = Quantization> {
    PossibleValuesParser::new(QUANTIZATIONS.map(|quantization| quantization.name))
        .map(|name| quantization(&name))
}

fn quantization(name: &str) -> Quantization {
    QUANTIZATIONS
        .into_iter()
        .find(|quantization| quantization.name == name)
        .expect("the table has the name")
}

/// The model that the options choose.
pub(super) enum ChosenModel<'a> {
    File(&'a Path),
    Random {
        shape: &'static Shape,
        /// The format of the weights in the outline.
        quantization: Quantization,
        /// The format of the weights in the name of the model.
        format: &'static str,
    },
}

impl ModelOrShape {
    /// Returns the choice for a training step: a shape gets `bf16` weights, which become NF4.
    ///
    /// # Errors
    /// Returns an error if there is neither a model nor a shape, or if the model cannot be
    /// downloaded.
    pub(super) fn choose_for_training(&self) -> Result<ChosenModel<'_>, Failure> {
        match self.shape {
            None => self.file(),
            Some(shape) => Ok(ChosenModel::Random {
                shape,
                quantization: quantization("bf16"),
                format: "nf4",
            }),
        }
    }

    fn file(&self) -> Result<ChosenModel<'_>, Failure> {
        if self.model.given().is_none() {
            return Err(Failure::Input(NOTHING.into()));
        }
        Ok(ChosenModel::File(self.model.path()?))
    }
}

impl ModelOrWeights {
    /// Returns the choice.
    ///
    /// # Errors
    /// Returns an error if there is neither a model nor a shape with a quantization, or if the
    /// model cannot be downloaded.
    pub(super) fn choose(&self) -> Result<ChosenModel<'_>, Failure> {
        match (self.model.shape, self.quant) {
            (None, _) => self.model.file(),
            (Some(shape), Some(quantization)) => Ok(ChosenModel::Random {
                shape,
                quantization,
                format: quantization.name,
            }),
            (Some(_), None) => Err(Failure::Input(
                "--shape needs the format of its weights, such as --quant q4_k_m".into(),
            )),
        }
    }
}

impl ChosenModel<'_> {
    /// Returns the path of the model, unless it is a shape.
    pub(super) fn path(&self) -> Option<&Path> {
        match self {
            ChosenModel::File(path) => Some(path),
            ChosenModel::Random { .. } => None,
        }
    }

    /// Opens the file, or describes the model with random weights.
    ///
    /// # Errors
    /// Returns an error if the file is not a model, or if the shape does not suit the quantization.
    pub(super) fn open(&self) -> Result<BenchSubject, Failure> {
        match self {
            ChosenModel::File(path) => {
                let mut model = Model::open(path)?;
                // A round has as many tokens as the user asked for, whatever they are.
                model.outline.stop.clear();
                Ok(BenchSubject::File(model))
            }
            ChosenModel::Random {
                shape,
                quantization,
                format,
            } => Ok(BenchSubject::Random {
                name: format!("{} {format}", shape.name),
                outline: Outline::of(shape, *quantization)?,
            }),
        }
    }
}

/// The model to measure: a file, or a shape with random weights.
pub(super) enum BenchSubject {
    File(Model),
    Random { name: String, outline: Outline },
}

impl BenchSubject {
    /// Reads an adapter for the model, without applying it.
    ///
    /// # Errors
    /// Returns an error if the adapter does not suit the model.
    pub(super) fn read_adapter(
        self,
        folder: &Path,
    ) -> Result<(BenchSubject, Option<Arc<Adapter>>), Failure> {
        match self {
            BenchSubject::File(model) => {
                let mut model = model.with_adapter(folder)?;
                adapter::warn(&model);
                let adapter = model.outline.adapter.take();
                Ok((BenchSubject::File(model), adapter))
            }
            random @ BenchSubject::Random { .. } => Ok((random, None)),
        }
    }

    /// Applies an adapter to the decoders that are loaded from now on.
    pub(super) fn apply(&mut self, adapter: Arc<Adapter>) {
        match self {
            BenchSubject::File(model) => model.outline.adapter = Some(adapter),
            BenchSubject::Random { outline, .. } => outline.adapter = Some(adapter),
        }
    }

    pub(super) fn outline(&self) -> &Outline {
        match self {
            BenchSubject::File(model) => &model.outline,
            BenchSubject::Random { outline, .. } => outline,
        }
    }

    /// Loads the model.
    ///
    /// # Errors
    /// Returns an error if the device or the file fails.
    pub(super) fn decoder(&self, context: &Context, options: Options) -> Result<Decoder, Failure> {
        match self {
            BenchSubject::File(model) => options::load(context, model, options),
            BenchSubject::Random { outline, .. } => Ok(Decoder::random(context, outline, options)?),
        }
    }
}
