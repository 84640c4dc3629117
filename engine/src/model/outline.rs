//! A model: its outline, which is its hyperparameters and the name, shape and format of each weight, and a file
//! that holds the weights.

use std::ops::Range;
use std::path::Path;

use warpwright_kernels::Format;

use crate::Error;
use crate::model::config::{Config, Problem};
use crate::model::gguf::Gguf;
use crate::model::stop;

/// A checked model file. Nothing is loaded yet.
#[derive(Debug)]
pub struct Model {
    /// The file.
    pub gguf: Gguf,
    /// What it holds.
    pub outline: Outline,
}

/// All that a decoder has to know of a model before there are weights.
#[derive(Debug, Clone, PartialEq)]
pub struct Outline {
    /// The hyperparameters.
    pub config: Config,
    /// The tensors.
    pub weights: Weights<Weight>,
    /// The tokens that end a text: those that the file names, and those of its vocabulary that are spelled so.
    pub stop: Vec<u32>,
    /// What each rotary frequency is divided by, where a file says.
    pub rope_factors: Option<Vec<f32>>,
}

/// A tensor that the forward pass reads.
#[derive(Debug, Clone, PartialEq)]
pub struct Weight {
    /// Its name in GGUF files.
    pub name: String,
    /// Lengths, the contiguous dimension first: a `[rows, n]` matrix is `[n, rows]`.
    pub dims: Vec<u64>,
    /// The number format: one that kernels read.
    pub format: Format,
    /// Its bytes in the file; without a file, they start at 0.
    pub range: Range<usize>,
}

impl Weight {
    /// Length of a row: a matrix's `n`, or a vector's length.
    pub fn row_len(&self) -> u32 {
        self.dims[0] as u32
    }

    /// Rows of a matrix; 1 of a vector.
    pub fn rows(&self) -> u32 {
        self.dims.get(1).map_or(1, |rows| *rows as u32)
    }
}

/// One `T` for each weight of a model: its tensor in the file, or its buffer on a device.
#[derive(Debug, Clone, PartialEq)]
pub struct Weights<T> {
    /// `[vocab, hidden]`
    pub embed: T,
    /// In order.
    pub blocks: Vec<Block<T>>,
    /// `[hidden]`, F32
    pub norm: T,
    /// `[vocab, hidden]`; where a model has none, `embed` serves.
    pub head: Option<T>,
    /// `[rope_dim / 2]`, F32: what each rotary frequency is divided by.
    pub rope_factors: Option<T>,
}

/// The weights of one transformer block. Norms and biases are F32.
#[derive(Debug, Clone, PartialEq)]
pub struct Block<T> {
    /// `[hidden]`
    pub attn_norm: T,
    /// `[heads * head_dim, hidden]`
    pub q: T,
    /// `[kv_heads * head_dim, hidden]`
    pub k: T,
    /// `[kv_heads * head_dim, hidden]`
    pub v: T,
    /// Of q, k and v.
    pub bias: Option<[T; 3]>,
    /// `[head_dim]`, for each head of q and for each of k.
    pub qk_norm: Option<[T; 2]>,
    /// `[hidden, heads * head_dim]`
    pub o: T,
    /// `[hidden]`
    pub ffn_norm: T,
    /// `[feed_forward, hidden]`
    pub gate: T,
    /// `[feed_forward, hidden]`
    pub up: T,
    /// `[hidden, feed_forward]`
    pub down: T,
}

impl<T> Weights<T> {
    /// The LM head.
    pub fn head(&self) -> &T {
        self.head.as_ref().unwrap_or(&self.embed)
    }

    /// Every weight, in the order of the forward pass.
    pub fn iter(&self) -> impl Iterator<Item = &T> {
        [&self.embed]
            .into_iter()
            .chain(&self.rope_factors)
            .chain(self.blocks.iter().flat_map(Block::iter))
            .chain([&self.norm])
            .chain(&self.head)
    }

    /// The same structure of other things.
    pub fn try_map<'a, U, E>(&'a self, mut f: impl FnMut(&'a T) -> Result<U, E>) -> Result<Weights<U>, E> {
        Ok(Weights {
            embed: f(&self.embed)?,
            rope_factors: self.rope_factors.as_ref().map(&mut f).transpose()?,
            blocks: self.blocks.iter().map(|b| b.try_map(&mut f)).collect::<Result<_, _>>()?,
            norm: f(&self.norm)?,
            head: self.head.as_ref().map(&mut f).transpose()?,
        })
    }
}

impl<T> Block<T> {
    fn iter(&self) -> impl Iterator<Item = &T> {
        [&self.attn_norm, &self.q, &self.k, &self.v]
            .into_iter()
            .chain(self.bias.iter().flatten())
            .chain(self.qk_norm.iter().flatten())
            .chain([&self.o, &self.ffn_norm, &self.gate, &self.up, &self.down])
    }

    fn try_map<'a, U, E>(&'a self, f: &mut impl FnMut(&'a T) -> Result<U, E>) -> Result<Block<U>, E> {
        Ok(Block {
            attn_norm: f(&self.attn_norm)?,
            q: f(&self.q)?,
            k: f(&self.k)?,
            v: f(&self.v)?,
            bias: match &self.bias {
                Some([q, k, v]) => Some([f(q)?, f(k)?, f(v)?]),
                None => None,
            },
            qk_norm: match &self.qk_norm {
                Some([q, k]) => Some([f(q)?, f(k)?]),
                None => None,
            },
            o: f(&self.o)?,
            ffn_norm: f(&self.ffn_norm)?,
            gate: f(&self.gate)?,
            up: f(&self.up)?,
            down: f(&self.down)?,
        })
    }
}

impl Model {
    /// Opens a GGUF file and checks all of it but the numbers inside the tensors.
    pub fn open(path: &Path) -> Result<Model, Error> {
        let gguf = Gguf::open(path)?;
        let problem = |problem| Error::Model { path: path.to_owned(), problem: Box::new(problem) };
        let mut outline = outline(&gguf).map_err(problem)?;
        if let Some(weight) = &outline.weights.rope_factors {
            let numbers = floats(&gguf.data(&weight.range)?);
            gguf.check()?;
            outline.rope_factors = Some(factors(weight, numbers).map_err(problem)?);
        }
        Ok(Model { gguf, outline })
    }
}

/// All but the RoPE factors, which are numbers of a tensor.
fn outline(gguf: &Gguf) -> Result<Outline, Problem> {
    let config = Config::read(&gguf.directory)?;
    let weights = layout(gguf, &config)?;
    check_strays(gguf, &config, &weights)?;
    Ok(Outline { stop: stop::tokens(&gguf.directory, config.vocab)?, config, weights, rope_factors: None })
}

/// Little-endian numbers.
pub(crate) fn floats(bytes: &[u8]) -> Vec<f32> {
    bytes.chunks_exact(4).map(|b| f32::from_le_bytes(b.try_into().expect("chunks of 4"))).collect()
}

/// Where the tensors of a model are to be had: a file, or a plan to make them.
pub(crate) trait Source {
    /// Whether there is a tensor of this name.
    fn has(&self, name: &str) -> bool;
    /// The matrix of `rows` rows of `n` weights.
    fn matrix(&self, name: &str, rows: u32, n: u32) -> Result<Weight, Problem>;
    /// The `n` numbers in F32.
    fn vector(&self, name: &str, n: u32) -> Result<Weight, Problem>;
}

/// The tensors of a model, by their names in GGUF files.
pub(crate) fn layout(source: &impl Source, c: &Config) -> Result<Weights<Weight>, Problem> {
    let (head, factors) = ("output.weight", "rope_freqs.weight");
    Ok(Weights {
        embed: source.matrix("token_embd.weight", c.vocab, c.hidden)?,
        blocks: (0..c.layers).map(|i| block(source, c, i)).collect::<Result<_, _>>()?,
        norm: source.vector("output_norm.weight", c.hidden)?,
        head: source.has(head).then(|| source.matrix(head, c.vocab, c.hidden)).transpose()?,
        rope_factors: source.has(factors).then(|| source.vector(factors, c.rope.dim / 2)).transpose()?,
    })
}

fn block(source: &impl Source, c: &Config, index: u32) -> Result<Block<Weight>, Problem> {
    let matrix = |name: &str, rows, n| source.matrix(&format!("blk.{index}.{name}.weight"), rows, n);
    let vector = |name: &str, n| source.vector(&format!("blk.{index}.{name}"), n);
    let bias = || -> Result<_, Problem> {
        Ok([
            vector("attn_q.bias", c.q_len())?,
            vector("attn_k.bias", c.kv_len())?,
            vector("attn_v.bias", c.kv_len())?,
        ])
    };
    let qk_norm = || -> Result<_, Problem> {
        Ok([vector("attn_q_norm.weight", c.head_dim)?, vector("attn_k_norm.weight", c.head_dim)?])
    };
    Ok(Block {
        attn_norm: vector("attn_norm.weight", c.hidden)?,
        q: matrix("attn_q", c.q_len(), c.hidden)?,
        k: matrix("attn_k", c.kv_len(), c.hidden)?,
        v: matrix("attn_v", c.kv_len(), c.hidden)?,
        bias: c.architecture.biased().then(bias).transpose()?,
        qk_norm: c.architecture.normed_heads().then(qk_norm).transpose()?,
        o: matrix("attn_output", c.hidden, c.q_len())?,
        ffn_norm: vector("ffn_norm.weight", c.hidden)?,
        gate: matrix("ffn_gate", c.feed_forward, c.hidden)?,
        up: matrix("ffn_up", c.feed_forward, c.hidden)?,
        down: matrix("ffn_down", c.hidden, c.feed_forward)?,
    })
}

impl Source for Gguf {
    fn has(&self, name: &str) -> bool {
        self.directory.tensors.contains_key(name)
    }

    fn matrix(&self, name: &str, rows: u32, n: u32) -> Result<Weight, Problem> {
        find(self, name, vec![n.into(), rows.into()], &Format::ALL)
    }

    fn vector(&self, name: &str, n: u32) -> Result<Weight, Problem> {
        find(self, name, vec![n.into()], &[Format::F32])
    }
}

/// A file's tensor by name, shape and format.
fn find(gguf: &Gguf, name: &str, expected: Vec<u64>, formats: &[Format]) -> Result<Weight, Problem> {
    let name = name.to_owned();
    let Some(tensor) = gguf.directory.tensors.get(&name) else {
        return Err(Problem::MissingTensor { name, expected });
    };
    if trimmed(&tensor.dims) != trimmed(&expected) {
        return Err(Problem::Shape { name, found: tensor.dims.clone(), expected });
    }
    let Some(&format) = formats.iter().find(|format| format.ggml_type() == tensor.kind.id) else {
        let supported = formats.iter().map(|format| format.name()).collect::<Vec<_>>().join(", ");
        return Err(Problem::Format { name, found: tensor.kind.name, supported });
    };
    Ok(Weight { name, dims: expected, format, range: tensor.range.clone() })
}

/// Writers differ in whether a shape ends in ones.
fn trimmed(dims: &[u64]) -> &[u64] {
    let len = dims.iter().rposition(|n| *n != 1).map_or(1, |last| last + 1);
    &dims[..len]
}

fn factors(weight: &Weight, values: Vec<f32>) -> Result<Vec<f32>, Problem> {
    match values.iter().position(|x| !(x.is_finite() && *x > 0.0)) {
        Some(index) => Err(Problem::RopeFactor { name: weight.name.clone(), index, value: values[index] }),
        None => Ok(values),
    }
}

/// A tensor that the forward pass does not read is a feature that it does not have.
fn check_strays(gguf: &Gguf, c: &Config, weights: &Weights<Weight>) -> Result<(), Problem> {
    let known: std::collections::BTreeSet<&str> = weights.iter().map(|t| t.name.as_str()).collect();
    match gguf.directory.tensors.keys().find(|name| !known.contains(name.as_str())) {
        Some(name) => Err(Problem::StrayTensor { name: name.clone(), architecture: c.architecture.name() }),
        None => Ok(()),
    }
}
