//! The outline of a model: its hyperparameters, and the name, shape and format of each weight; as a
//! GGUF file has it.

use std::convert::Infallible;
use std::ops::Range;
use std::sync::Arc;

use crate::Error;
use crate::adapter::data::Adapter;
use crate::architecture::roles::{Block, Shape};
use crate::config::forward::Config;
use crate::config::rope::{RopeFactors, Scaling};
use crate::format::weight_format::WeightFormat;
use crate::gguf::file::Gguf;
use crate::gguf::keys::MetadataKeys;
use crate::layer::description::{Layer, NormKind};
use crate::problem::Problem;
use crate::tokenizer::stop;

/// The description of a model without its weights: everything that a decoder needs before the
/// weights are loaded.
#[derive(Debug, Clone, PartialEq)]
pub struct Outline {
    /// The hyperparameters.
    pub config: Config,
    /// The tensors.
    pub weights: Weights<Weight>,
    /// The tokens that end a text: the tokens that the files name, and tokens with a known
    /// spelling.
    pub stop: Vec<u32>,
    /// The divisors of the rotary frequencies, if the files have some.
    pub rope_factors: Option<RopeFactors>,
    /// The adapter of the projections: see [`Model::with_adapter`](crate::Model::with_adapter).
    pub adapter: Option<Arc<Adapter>>,
}

/// A tensor that the forward pass reads.
#[derive(Debug, Clone, PartialEq)]
pub struct Weight {
    /// The name in the file. A model without a file uses the name of GGUF files.
    pub name: String,
    /// The dimensions, the contiguous one first: a `[rows, n]` matrix is `[n, rows]`, and the
    /// `[rows, n]` matrices of `count` experts are `[n, rows, count]`.
    pub dims: Vec<u64>,
    /// The number format, which kernels can read.
    pub format: WeightFormat,
    /// The byte range in the model's files. Without a file, the ranges start at 0.
    pub range: Range<usize>,
    /// The dimensions of the tensor that contains the rows of this weight and of others.
    pub fused: Option<Vec<u64>>,
    /// The format of `absmax`, if the files store the weight in NF4. Such a weight is unpacked to
    /// `format` when it is read.
    pub nf4: Option<Absmax>,
}

/// The format of the `absmax` of an NF4 weight, which is the largest magnitude of each block of 64
/// values.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum Absmax {
    /// One `f32` per block.
    #[default]
    F32,
    /// Eight bits per block, with the code map of bitsandbytes and one scale per 256 blocks (double
    /// quantization).
    Nested,
}

impl Weight {
    /// Returns the length of a row, or the length of a vector.
    pub fn row_len(&self) -> u32 {
        self.dims[0] as u32
    }

    /// Returns the number of rows of a matrix, or 1 for a vector. For the matrices of experts, it is
    /// the number of rows of one expert.
    pub fn rows(&self) -> u32 {
        self.dims.get(1).map_or(1, |rows| *rows as u32)
    }

    /// Returns the number of matrices that are stored one after the other: the number of experts,
    /// or 1.
    pub fn matrices(&self) -> u32 {
        self.dims.get(2).map_or(1, |count| *count as u32)
    }

    /// Some rows of a matrix, which are consecutive bytes.
    fn slice(self, rows: Range<u32>) -> Weight {
        let bytes = self.format.row_bytes(self.dims[0] as usize);
        let at = |row: u32| self.range.start + row as usize * bytes;
        let range = at(rows.start)..at(rows.end);
        let dims = vec![self.dims[0], rows.len() as u64];
        Weight {
            dims,
            range,
            fused: Some(self.dims),
            ..self
        }
    }
}

/// A value per weight of a model, for example its tensor in the file or its buffer on a device.
#[derive(Debug, Clone, PartialEq)]
pub struct Weights<T> {
    /// The embedding, `[vocab, hidden]`.
    pub embed: T,
    /// The transformer blocks, in order.
    pub blocks: Vec<Block<T>>,
    /// The weights of the last norm, `[hidden]`, in F32.
    pub norm: T,
    /// The bias of the last norm, `[hidden]`, in F32, in models whose norms have biases.
    pub norm_bias: Option<T>,
    /// The LM head, `[vocab, hidden]`. A model without one uses `embed`.
    pub head: Option<T>,
    /// The divisors of the rotary frequencies, `[rope_dim / 2]`, in F32.
    pub rope_factors: Option<T>,
    /// The divisors of the rotary frequencies for long contexts. A model has both these and the
    /// ones for short contexts, or neither.
    pub rope_factors_long: Option<T>,
    /// The divisors of the rotary frequencies for short contexts: see `rope_factors_long`.
    pub rope_factors_short: Option<T>,
}

impl<T> Weights<T> {
    /// Returns the LM head.
    pub fn head(&self) -> &T {
        self.head.as_ref().unwrap_or(&self.embed)
    }

    /// Returns every weight, in the order of the forward pass.
    pub fn iter(&self) -> impl Iterator<Item = &T> {
        let mut all = vec![];
        let Ok(_) = self.try_map(|weight| {
            all.push(weight);
            Ok::<_, Infallible>(())
        });
        all.into_iter()
    }

    /// Applies a function to every weight, and returns the results in the same structure, or the
    /// first error.
    pub fn try_map<'a, U, E>(
        &'a self,
        mut f: impl FnMut(&'a T) -> Result<U, E>,
    ) -> Result<Weights<U>, E> {
        Ok(Weights {
            embed: f(&self.embed)?,
            rope_factors: self.rope_factors.as_ref().map(&mut f).transpose()?,
            rope_factors_long: self.rope_factors_long.as_ref().map(&mut f).transpose()?,
            rope_factors_short: self.rope_factors_short.as_ref().map(&mut f).transpose()?,
            blocks: self
                .blocks
                .iter()
                .map(|b| b.try_map(&mut f))
                .collect::<Result<_, _>>()?,
            norm: f(&self.norm)?,
            norm_bias: self.norm_bias.as_ref().map(&mut f).transpose()?,
            head: self.head.as_ref().map(&mut f).transpose()?,
        })
    }
}

/// Reads and checks the metadata and the tensor list of a GGUF file.
pub(crate) fn of_gguf(gguf: &Gguf) -> Result<Outline, Error> {
    let problem = |problem| Error::Model {
        path: gguf.path.clone(),
        problem: Box::new(problem),
    };
    let mut outline = outline(gguf).map_err(problem)?;
    let w = &outline.weights;
    let read = |weight: &Weight| {
        let numbers = floats(&gguf.data(&weight.range)?);
        gguf.check()?;
        factors(weight, numbers).map_err(problem)
    };
    outline.rope_factors = match (&w.rope_factors, &w.rope_factors_short, &w.rope_factors_long) {
        (Some(all), _, _) => Some(RopeFactors::Fixed(read(all)?)),
        (None, Some(short), Some(long)) => {
            let original = original_context(gguf, &outline.config).map_err(problem)?;
            Some(RopeFactors::ByContext {
                original,
                short: read(short)?,
                long: read(long)?,
            })
        }
        _ => None,
    };
    Ok(outline)
}

/// All but the RoPE factors, which are numbers of a tensor.
fn outline(gguf: &Gguf) -> Result<Outline, Problem> {
    let config = Config::read(&gguf.directory)?;
    let weights = layout(gguf, &config)?;
    check_strays(gguf, &config, &weights)?;
    let stop = stop::tokens(&gguf.directory, config.vocab)?;
    Ok(Outline {
        stop,
        config,
        weights,
        rope_factors: None,
        adapter: None,
    })
}

/// The longest context for which the short factors of the rotary frequencies are. The factor of
/// cosine and sine belongs to these factors, so a file without it is not taken for one with the
/// factor 1.
fn original_context(gguf: &Gguf, c: &Config) -> Result<u32, Problem> {
    let keys = MetadataKeys {
        directory: &gguf.directory,
        prefix: c.architecture.name,
    };
    let factor = "rope.scaling.attn_factor";
    keys.get(factor)
        .ok_or_else(|| Problem::MissingKey(keys.key(factor)))?;
    keys.size("rope.scaling.original_context_length")
}

/// Little-endian numbers.
pub(crate) fn floats(bytes: &[u8]) -> Vec<f32> {
    bytes
        .chunks_exact(4)
        .map(|b| f32::from_le_bytes(b.try_into().expect("chunks of 4")))
        .collect()
}

/// A source of tensors: a file, or a plan to create them.
pub(crate) trait TensorSource {
    /// Whether there is a tensor of this name.
    fn has(&self, name: &str) -> bool;
    /// The matrix of `rows` rows of `n` weights.
    fn matrix(&self, name: &str, rows: u32, n: u32) -> Result<Weight, Problem>;
    /// The `n` numbers in F32.
    fn vector(&self, name: &str, n: u32) -> Result<Weight, Problem>;
    /// The `rows` rows of `n` numbers in F32.
    fn rows(&self, name: &str, rows: u32, n: u32) -> Result<Weight, Problem>;
    /// The matrices of `count` experts, each of `rows` rows of `n` weights.
    fn experts(&self, name: &str, count: u32, rows: u32, n: u32) -> Result<Weight, Problem>;
}

/// The tensors of a model, by their names in GGUF files.
pub(crate) fn layout(source: &impl TensorSource, c: &Config) -> Result<Weights<Weight>, Problem> {
    let head = "output.weight";
    let factors = |name: &str, read: bool| {
        (read && source.has(name))
            .then(|| source.vector(name, c.ropes[0].rotated / 2))
            .transpose()
    };

    // Divisors belong to one rotation. Layers that are not rotated have none.
    let rotated = c.ropes.iter().filter(|rope| rope.scaling != Scaling::Still);
    let rotations = rotated.count();

    // Where one of the two is missing, reading it says so.
    let both = ["rope_factors_long.weight", "rope_factors_short.weight"];
    let by_context = c.architecture.long_factors && both.into_iter().any(|name| source.has(name));
    let long = |name| {
        by_context
            .then(|| source.vector(name, c.ropes[0].rotated / 2))
            .transpose()
    };
    Ok(Weights {
        embed: source.matrix("token_embd.weight", c.vocab, c.hidden)?,
        blocks: c
            .layers
            .iter()
            .enumerate()
            .map(|(index, layer)| block(source, c, index, layer))
            .collect::<Result<_, _>>()?,
        norm: source.vector("output_norm.weight", c.hidden)?,
        norm_bias: (c.norm == NormKind::LayerBiased)
            .then(|| source.vector("output_norm.bias", c.hidden))
            .transpose()?,
        head: source
            .has(head)
            .then(|| source.matrix(head, c.vocab, c.hidden))
            .transpose()?,
        rope_factors: factors("rope_freqs.weight", rotations == 1 && !by_context)?,
        rope_factors_long: long(both[0])?,
        rope_factors_short: long(both[1])?,
    })
}

fn block(
    source: &impl TensorSource,
    c: &Config,
    index: usize,
    layer: &Layer,
) -> Result<Block<Weight>, Problem> {
    Block::of(layer, |role| {
        let name = |tensor| {
            let own = c.architecture.gguf_modules.iter();
            let own = own.clone().find(|(usual, _)| *usual == tensor);
            format!("blk.{index}.{}", own.map_or(tensor, |(_, own)| *own))
        };
        match (role.shape(c, layer), role.fused(c, layer)) {
            (Shape::Matrix(_, n), Some(fused)) => Ok(source
                .matrix(&name(fused.tensor), fused.rows, n)?
                .slice(fused.range)),
            (Shape::Matrix(rows, n), None) => source.matrix(&name(role.tensor), rows, n),
            (Shape::Vector(n), _) => source.vector(&name(role.tensor), n),
            (Shape::Rows(rows, n), _) => source.rows(&name(role.tensor), rows, n),
            (Shape::Experts(count, rows, n), _) => {
                source.experts(&name(role.tensor), count, rows, n)
            }
        }
    })
}

impl TensorSource for Gguf {
    fn has(&self, name: &str) -> bool {
        self.directory.tensors.contains_key(name)
    }

    fn matrix(&self, name: &str, rows: u32, n: u32) -> Result<Weight, Problem> {
        find(self, name, vec![n.into(), rows.into()], &WeightFormat::ALL)
    }

    fn vector(&self, name: &str, n: u32) -> Result<Weight, Problem> {
        find(self, name, vec![n.into()], &[WeightFormat::F32])
    }

    fn rows(&self, name: &str, rows: u32, n: u32) -> Result<Weight, Problem> {
        find(
            self,
            name,
            vec![n.into(), rows.into()],
            &[WeightFormat::F32],
        )
    }

    fn experts(&self, name: &str, count: u32, rows: u32, n: u32) -> Result<Weight, Problem> {
        let dims = vec![n.into(), rows.into(), count.into()];
        find(self, name, dims, &WeightFormat::ALL)
    }
}

/// A file's tensor by name, shape and format.
fn find(
    gguf: &Gguf,
    name: &str,
    expected: Vec<u64>,
    formats: &[WeightFormat],
) -> Result<Weight, Problem> {
    let name = name.to_owned();
    let Some(tensor) = gguf.directory.tensors.get(&name) else {
        return Err(Problem::MissingTensor { name, expected });
    };

    if trimmed(&tensor.dims) != trimmed(&expected) {
        return Err(Problem::Shape {
            name,
            found: tensor.dims.clone(),
            expected,
        });
    }

    let Some(&format) = formats
        .iter()
        .find(|format| format.ggml_type() == tensor.kind.id)
    else {
        let supported = formats
            .iter()
            .map(|format| format.name())
            .collect::<Vec<_>>()
            .join(", ");
        return Err(Problem::Format {
            name,
            found: tensor.kind.name,
            supported,
        });
    };

    Ok(Weight {
        name,
        dims: expected,
        format,
        range: tensor.range.clone(),
        fused: None,
        nf4: None,
    })
}

/// Writers differ in whether a shape ends in ones.
fn trimmed(dims: &[u64]) -> &[u64] {
    let len = dims
        .iter()
        .rposition(|n| *n != 1)
        .map_or(1, |last| last + 1);
    &dims[..len]
}

fn factors(weight: &Weight, values: Vec<f32>) -> Result<Vec<f32>, Problem> {
    match values.iter().position(|x| !(x.is_finite() && *x > 0.0)) {
        Some(index) => Err(Problem::RopeFactor {
            name: weight.name.clone(),
            index,
            value: values[index],
        }),
        None => Ok(values),
    }
}

/// A tensor that the forward pass does not read is a feature that it does not have.
fn check_strays(gguf: &Gguf, c: &Config, weights: &Weights<Weight>) -> Result<(), Problem> {
    let known: std::collections::BTreeSet<&str> = weights.iter().map(|t| t.name.as_str()).collect();
    match gguf
        .directory
        .tensors
        .keys()
        .find(|name| !known.contains(name.as_str()))
    {
        Some(name) => Err(Problem::StrayTensor {
            name: name.clone(),
            architecture: c.architecture.name,
        }),
        None => Ok(()),
    }
}
