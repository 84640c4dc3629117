//! The frozen model, read from a GGUF file or a Hugging Face folder.

mod random;

use std::path::Path;

use warpwright_kernels::train::flash::TensorOp;
use warpwright_kernels::train::nested::{self, Nested};
use warpwright_kernels::train::nf4::{self, Nf4};
use warpwright_model::adapter::Formats;
use warpwright_model::nf4::{Nf4Absmax, Nf4Matrix};
use warpwright_model::{Block, Model, Outline, RopePairing, Weight, WeightFormat};

use crate::kernel_terms::kernel_format;
use crate::settings::{Launch, Precision, Recomputation, Settings, Tiles, Unpacking};
use crate::step::Matrix;
use crate::{Config, Error, LayerWeights, Lora, Training, Weights};
pub use warpwright_model::Absmax;

/// The format of the projections' weights during training.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum BaseFormat {
    /// NF4 for weights of 16 and 32 bits. Quantized weights keep their values, which a step in
    /// `bf16` rounds.
    #[default]
    Auto,
    /// NF4 for all projections.
    Nf4,
    /// The values of the file, which a step in `bf16` rounds.
    Keep,
}

/// The quantization of the projections.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Quantization {
    /// The projections that are quantized.
    pub format: BaseFormat,
    /// The format of `absmax` in the quantized projections. A file in NF4 keeps its own.
    pub absmax: Absmax,
}

impl From<BaseFormat> for Quantization {
    fn from(format: BaseFormat) -> Quantization {
        Quantization {
            format,
            absmax: Absmax::F32,
        }
    }
}

/// A frozen model in host memory.
#[derive(Clone, Debug)]
pub struct Base {
    /// The sizes of the model.
    pub config: Config,
    /// The dimensions of a head that RoPE rotates together.
    pub pairing: RopePairing,
    /// The number of projections in each number format.
    pub formats: Formats,
    /// The weights.
    pub weights: Weights<Vec<f32>, Matrix>,
}

/// The families for which there is a backward pass.
const FAMILIES: [&str; 3] = ["llama", "qwen2", "qwen3"];

impl Base {
    /// Reads all weights of a model, and quantizes its projections.
    ///
    /// # Errors
    /// - [`Error::Family`] if there is no backward pass for the model's family or its RoPE scaling.
    /// - [`Error::Model`] if a file cannot be read or a weight is not finite.
    pub fn from_model(model: &Model, how: impl Into<Quantization>) -> Result<Base, Error> {
        let how = how.into();
        let config = config(model)?;
        let w = &model.outline.weights;
        let pairing = model.outline.config.architecture.pairing;
        let reader = WeightReader { model, how };
        let weights = Weights {
            embed: reader.numbers(&w.embed)?,
            head: w
                .head
                .as_ref()
                .map(|head| reader.numbers(head))
                .transpose()?,
            norm: reader.numbers(&w.norm)?,
            layers: w
                .blocks
                .iter()
                .map(|block| reader.layer(block))
                .collect::<Result<_, _>>()?,
        };

        // The file may have been overwritten while it was read.
        model.files.check()?;
        Ok(Base {
            config,
            pairing,
            formats: how.of(&w.blocks),
            weights,
        })
    }

    /// Returns the weights as the reference reads them: unpacked and exact.
    ///
    /// # Errors
    /// Returns [`Error::Layers`] if the weights do not have as many layers as the configuration.
    pub fn exact(&self) -> Result<Weights, Error> {
        let exact = |numbers: &[f32]| numbers.iter().map(|&w| f64::from(w)).collect();
        self.weights.try_map(
            &self.config,
            &mut |_, vector| Ok(exact(vector)),
            &mut |_, matrix| {
                Ok(match matrix {
                    Matrix::F32(numbers) => exact(numbers),
                    Matrix::Nf4(w) => exact(&nf4::dequantize(&w.packed, &w.absmax)),
                    Matrix::Nested(w) => {
                        exact(&nf4::dequantize(&w.packed, &nested::dequantize(&w.absmax)))
                    }
                })
            },
        )
    }
}

// This constructor is here and not next to the type, because a base knows the settings of a step
// and not the other way round.
impl Settings {
    /// Returns settings for adapters on a frozen model.
    ///
    /// The defaults are:
    /// - the defaults of [`Training`]
    /// - micro-batches of up to 1,024 tokens, with the logits of 512 tokens in memory at the same
    ///   time
    /// - no recomputation, and one graph launch per micro-batch
    /// - `f32`, which every device supports
    ///
    /// Change a field of the result to change a setting.
    pub fn new(base: &Base, lora: Lora) -> Settings {
        Settings {
            config: base.config.clone(),
            lora,
            training: Training::default(),
            pairing: base.pairing,
            tokens: 1024,
            head_chunk: 512,
            recomputation: Recomputation::None,
            launch: Launch::Graph,
            precision: Precision::F32,
            tiles: Tiles::Fitting,
            unpacking: Unpacking::Fitting,
            attention: TensorOp::Wgmma,
        }
    }
}

/// Returns the sizes of a model.
///
/// # Errors
/// Returns [`Error::Family`] if there is no backward pass for the model's family or its RoPE
/// scaling.
pub fn config(model: &Model) -> Result<Config, Error> {
    config_of(&model.outline, model.files.path())
}

/// Returns the sizes of a model that has only an outline. `path` names the model in errors.
///
/// # Errors
/// Returns the errors of [`config`].
pub fn config_of(outline: &Outline, path: &Path) -> Result<Config, Error> {
    let c = &outline.config;
    let family = c.architecture.name;
    let refuse = |what: &str| {
        Err(Error::Family {
            path: path.to_owned(),
            what: what.into(),
        })
    };
    if !FAMILIES.contains(&family) {
        return refuse(&format!(
            "models of the family {family}, only {}",
            FAMILIES.join(", ")
        ));
    }

    if outline.adapter.is_some() {
        return refuse("models with an adapter: merge the two first");
    }

    // The training kernels rotate whole heads with a magnitude of 1, and attend to all earlier
    // tokens. They would train such a model as if it had another structure.
    if c.ropes[0].rotated != c.head_dim() {
        return refuse("models that rotate only a part of each head");
    }
    if c.ropes[0].magnitude != 1.0 {
        return refuse("rotary embeddings with a magnitude (YaRN)");
    }
    if c.experts().next().is_some() {
        return refuse("mixtures of experts");
    }
    if c.attentions().any(|attention| attention.window.is_some()) {
        return refuse("sliding-window attention");
    }

    Ok(Config::of(outline))
}

/// Returns the number of projections in each number format, after quantization.
pub fn formats(outline: &Outline, how: Quantization) -> Formats {
    how.of(&outline.weights.blocks)
}

/// Returns the bytes of device memory that the weights need in a step of this precision.
pub fn bytes(outline: &Outline, how: impl Into<Quantization>, precision: Precision) -> u64 {
    let how = how.into();

    // The bytes of an element in matrices that are not in NF4.
    let number = if precision == Precision::Bf16 { 2 } else { 4 };
    let weights = &outline.weights;
    let elements = |weight: &Weight| u64::from(weight.rows()) * u64::from(weight.row_len());
    let matrix = |weight: &Weight| {
        let blocks = elements(weight).div_ceil(nf4::BLOCK as u64);
        match how.absmax_of(weight) {
            Some(Absmax::F32) => elements(weight).div_ceil(2) + 4 * blocks,
            // A nested absmax has one byte per block, and one f32 per group of blocks.
            Some(Absmax::Nested) => {
                elements(weight).div_ceil(2) + blocks + 4 * blocks.div_ceil(nested::BLOCK as u64)
            }
            None => number * elements(weight),
        }
    };
    let projections = |b: &Block<Weight>| -> u64 {
        let projections = b.projections().into_iter().flatten();
        projections.map(matrix).sum()
    };
    let vectors = |b: &Block<Weight>| -> u64 {
        let optional = [&b.q_bias, &b.k_bias, &b.v_bias, &b.q_norm, &b.k_norm];
        let optional = optional.into_iter().flatten();
        let norms = [&b.attn_norm, &b.ffn_norm].into_iter().flatten();
        norms.chain(optional).map(|v| 4 * elements(v)).sum()
    };
    let tables = [&weights.embed].into_iter().chain(&weights.head);
    tables.map(|weight| number * elements(weight)).sum::<u64>()
        + 4 * elements(&weights.norm)
        + weights
            .blocks
            .iter()
            .map(|block| projections(block) + vectors(block))
            .sum::<u64>()
}

impl Quantization {
    /// Returns the number of projections in each format.
    fn of(self, blocks: &[Block<Weight>]) -> Formats {
        let mut formats = Formats::new();
        let projections = blocks.iter().flat_map(Block::projections);
        for weight in projections.flatten() {
            let name = match (self.format.is_nf4(weight), self.absmax) {
                // A weight that was NF4 in the file stays NF4 in any format, because unpacked
                // weights have the values of the codes.
                _ if weight.nf4.is_some() => "NF4",
                (true, Absmax::Nested) => "nested NF4",
                (true, Absmax::F32) => "NF4",
                (false, _) => weight.format.name(),
            };
            *formats.entry(name.to_owned()).or_default() += 1;
        }
        formats
    }
}

impl Quantization {
    /// Returns the format of `absmax` on the device, or `None` if the weight is not in NF4 there.
    fn absmax_of(self, weight: &Weight) -> Option<Absmax> {
        if !self.format.is_nf4(weight) {
            return None;
        }
        Some(weight.nf4.unwrap_or(self.absmax))
    }
}

impl BaseFormat {
    /// Returns true if a weight is in NF4 during training.
    fn is_nf4(self, weight: &Weight) -> bool {
        let wide =
            [WeightFormat::F32, WeightFormat::F16, WeightFormat::BF16].contains(&weight.format);
        match self {
            BaseFormat::Nf4 => true,
            BaseFormat::Auto => wide,
            BaseFormat::Keep => false,
        }
    }
}

/// The reader of a model's weights.
struct WeightReader<'a> {
    model: &'a Model,
    how: Quantization,
}

impl WeightReader<'_> {
    fn layer(&self, block: &Block<Weight>) -> Result<LayerWeights<Vec<f32>, Matrix>, Error> {
        let optional =
            |weight: &Option<Weight>| weight.as_ref().map(|w| self.numbers(w)).transpose();
        // `config` has refused families that norm no inputs.
        let norm = |weight: &Option<Weight>| {
            let weight = weight
                .as_ref()
                .expect("these families norm the input of each part");
            self.numbers(weight)
        };
        // `config` has refused mixtures of experts, which lack some of the projections.
        let projections = block.projections().map(|weight| {
            let weight = weight.expect("a dense layer has all projections");
            self.matrix(weight)
        });
        let [q, k, v, o, gate, up, down] = projections;
        Ok(LayerWeights {
            attention_norm: norm(&block.attn_norm)?,
            feed_forward_norm: norm(&block.ffn_norm)?,
            q_norm: optional(&block.q_norm)?,
            k_norm: optional(&block.k_norm)?,
            projections: [q?, k?, v?, o?, gate?, up?, down?],
            biases: [
                // Only Q, K and V have biases in the supported families.
                optional(&block.q_bias)?,
                optional(&block.k_bias)?,
                optional(&block.v_bias)?,
                None,
                None,
                None,
                None,
            ],
        })
    }

    fn matrix(&self, weight: &Weight) -> Result<Matrix, Error> {
        // This also checks that the values are finite, so it runs for NF4 files too.
        let numbers = self.numbers(weight)?;
        if !self.how.format.is_nf4(weight) {
            return Ok(Matrix::F32(numbers));
        }

        if let Some(Nf4Matrix { packed, absmax }) = self.model.files.nf4(&weight.range)? {
            return Ok(match absmax {
                Nf4Absmax::F32(absmax) => Matrix::Nf4(Nf4 { packed, absmax }),
                Nf4Absmax::Nested {
                    codes,
                    scales,
                    offset,
                } => Matrix::Nested(Nf4 {
                    packed,
                    absmax: Nested {
                        codes,
                        scales,
                        offset,
                    },
                }),
            });
        }

        let Nf4 { packed, absmax } = nf4::quantize(&numbers);
        Ok(match self.how.absmax {
            Absmax::F32 => Matrix::Nf4(Nf4 { packed, absmax }),
            Absmax::Nested => Matrix::Nested(Nf4 {
                packed,
                absmax: nested::quantize(&absmax),
            }),
        })
    }

    /// Returns the values of a tensor, or an error if one is not finite.
    fn numbers(&self, weight: &Weight) -> Result<Vec<f32>, Error> {
        let files = &self.model.files;
        let numbers = kernel_format(weight.format).dequantize(&files.data(&weight.range)?);
        match numbers.iter().position(|w| !w.is_finite()) {
            None => Ok(numbers),
            Some(index) => Err(warpwright_model::Error::Weight {
                path: files.path().to_owned(),
                tensor: weight.name.clone(),
                index,
                value: numbers[index],
            }
            .into()),
        }
    }
}
