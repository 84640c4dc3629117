//! A model on disk: the mapped file, its numbers, and a tensor of the right shape for each weight.

use std::path::Path;

use warpwright_kernels::Format;

use crate::Error;
use crate::config::{Config, Problem};
use crate::gguf::{Gguf, Tensor, Value};

/// A checked model file. Nothing is loaded yet.
#[derive(Debug)]
pub struct Model {
    /// The file.
    pub gguf: Gguf,
    /// The numbers.
    pub config: Config,
    /// The tensors.
    pub weights: Weights<Tensor>,
    /// The tokens that end a text: those of `tokenizer.ggml.{eos,eot,eom}_token_id`.
    pub stop: Vec<u32>,
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
    pub fn try_map<U, E>(&self, mut f: impl FnMut(&T) -> Result<U, E>) -> Result<Weights<U>, E> {
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
        [&self.attn_norm, &self.q, &self.k, &self.v].into_iter().chain(self.bias.iter().flatten()).chain([
            &self.o,
            &self.ffn_norm,
            &self.gate,
            &self.up,
            &self.down,
        ])
    }

    fn try_map<U, E>(&self, f: &mut impl FnMut(&T) -> Result<U, E>) -> Result<Block<U>, E> {
        Ok(Block {
            attn_norm: f(&self.attn_norm)?,
            q: f(&self.q)?,
            k: f(&self.k)?,
            v: f(&self.v)?,
            bias: match &self.bias {
                Some([q, k, v]) => Some([f(q)?, f(k)?, f(v)?]),
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
    /// Maps a GGUF file and checks all of it but the numbers inside the tensors.
    pub fn open(path: &Path) -> Result<Model, Error> {
        let gguf = Gguf::open(path)?;
        let problem = |problem| Error::Model { path: path.to_owned(), problem: Box::new(problem) };
        let config = Config::read(&gguf.directory).map_err(problem)?;
        let weights = layout(&gguf, &config).map_err(problem)?;
        let stop = stop(&gguf, config.vocab).map_err(problem)?;
        Ok(Model { gguf, config, weights, stop })
    }

    /// What each rotary frequency is divided by, where the file says.
    pub fn rope_factors(&self) -> Option<Vec<f32>> {
        self.weights.rope_factors.as_ref().map(|tensor| floats(self.gguf.data(tensor)))
    }
}

/// Little-endian numbers.
pub(crate) fn floats(bytes: &[u8]) -> Vec<f32> {
    bytes.chunks_exact(4).map(|b| f32::from_le_bytes(b.try_into().expect("chunks of 4"))).collect()
}

fn layout(gguf: &Gguf, c: &Config) -> Result<Weights<Tensor>, Problem> {
    let find = Find { gguf };
    let weights = Weights {
        embed: find.matrix("token_embd.weight", c.vocab, c.hidden)?,
        blocks: (0..c.layers).map(|i| block(&find, c, i)).collect::<Result<_, _>>()?,
        norm: find.vector("output_norm.weight", c.hidden)?,
        head: find.optional("output.weight", |name| find.matrix(name, c.vocab, c.hidden))?,
        rope_factors: find.optional("rope_freqs.weight", |name| find.vector(name, c.rope_dim / 2))?,
    };
    check_factors(gguf, weights.rope_factors.as_ref())?;
    check_strays(gguf, c, &weights)?;
    Ok(weights)
}

fn block(find: &Find<'_>, c: &Config, index: u32) -> Result<Block<Tensor>, Problem> {
    let matrix = |name: &str, rows, n| find.matrix(&format!("blk.{index}.{name}.weight"), rows, n);
    let vector = |name: &str, n| find.vector(&format!("blk.{index}.{name}"), n);
    let bias = || -> Result<_, Problem> {
        Ok([
            vector("attn_q.bias", c.q_len())?,
            vector("attn_k.bias", c.kv_len())?,
            vector("attn_v.bias", c.kv_len())?,
        ])
    };
    Ok(Block {
        attn_norm: vector("attn_norm.weight", c.hidden)?,
        q: matrix("attn_q", c.q_len(), c.hidden)?,
        k: matrix("attn_k", c.kv_len(), c.hidden)?,
        v: matrix("attn_v", c.kv_len(), c.hidden)?,
        bias: c.architecture.biased().then(bias).transpose()?,
        o: matrix("attn_output", c.hidden, c.q_len())?,
        ffn_norm: vector("ffn_norm.weight", c.hidden)?,
        gate: matrix("ffn_gate", c.feed_forward, c.hidden)?,
        up: matrix("ffn_up", c.feed_forward, c.hidden)?,
        down: matrix("ffn_down", c.hidden, c.feed_forward)?,
    })
}

/// Tensors by name, shape and format.
struct Find<'a> {
    gguf: &'a Gguf,
}

impl Find<'_> {
    fn matrix(&self, name: &str, rows: u32, n: u32) -> Result<Tensor, Problem> {
        self.tensor(name, vec![n.into(), rows.into()], &Format::ALL)
    }

    fn vector(&self, name: &str, n: u32) -> Result<Tensor, Problem> {
        self.tensor(name, vec![n.into()], &[Format::F32])
    }

    fn optional(
        &self,
        name: &str,
        find: impl Fn(&str) -> Result<Tensor, Problem>,
    ) -> Result<Option<Tensor>, Problem> {
        self.gguf.directory.tensors.contains_key(name).then(|| find(name)).transpose()
    }

    fn tensor(&self, name: &str, expected: Vec<u64>, formats: &[Format]) -> Result<Tensor, Problem> {
        let name = name.to_owned();
        let Some(tensor) = self.gguf.directory.tensors.get(&name) else {
            return Err(Problem::MissingTensor { name, expected });
        };
        if trimmed(&tensor.dims) != trimmed(&expected) {
            return Err(Problem::Shape { name, found: tensor.dims.clone(), expected });
        }
        if !formats.iter().any(|format| format.ggml_type() == tensor.kind.id) {
            let supported = formats.iter().map(|format| format.name()).collect::<Vec<_>>().join(", ");
            return Err(Problem::Format { name, found: tensor.kind.name, supported });
        }
        Ok(tensor.clone())
    }
}

/// Writers differ in whether a shape ends in ones.
fn trimmed(dims: &[u64]) -> &[u64] {
    let len = dims.iter().rposition(|n| *n != 1).map_or(1, |last| last + 1);
    &dims[..len]
}

fn check_factors(gguf: &Gguf, factors: Option<&Tensor>) -> Result<(), Problem> {
    let Some(tensor) = factors else { return Ok(()) };
    let values = floats(gguf.data(tensor));
    match values.iter().position(|x| !(x.is_finite() && *x > 0.0)) {
        Some(index) => Err(Problem::RopeFactor { name: tensor.name.clone(), index, value: values[index] }),
        None => Ok(()),
    }
}

/// A tensor that the forward pass does not read is a feature that it does not have.
fn check_strays(gguf: &Gguf, c: &Config, weights: &Weights<Tensor>) -> Result<(), Problem> {
    let known: std::collections::BTreeSet<&str> = weights.iter().map(|t| t.name.as_str()).collect();
    match gguf.directory.tensors.keys().find(|name| !known.contains(name.as_str())) {
        Some(name) => Err(Problem::StrayTensor { name: name.clone(), architecture: c.architecture.name() }),
        None => Ok(()),
    }
}

fn stop(gguf: &Gguf, vocab: u32) -> Result<Vec<u32>, Problem> {
    let mut stop = vec![];
    for name in ["eos", "eot", "eom"] {
        let key = format!("tokenizer.ggml.{name}_token_id");
        match gguf.directory.metadata.get(&key) {
            None => {}
            Some(Value::Unsigned(id)) if *id < vocab.into() => stop.push(*id as u32),
            Some(found) => {
                let expected = format!("a token below the vocabulary's size ({vocab})");
                return Err(Problem::Key { key, found: found.to_string(), expected });
            }
        }
    }
    stop.sort_unstable();
    stop.dedup();
    Ok(stop)
}
