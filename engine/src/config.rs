//! A model's hyperparameters, read from a GGUF's metadata and held against each other.

use warpwright_kernels::Pairing;

use crate::gguf::{Directory, Value};

/// The model families whose forward pass this engine knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Architecture {
    /// Llama. GGUF permutes the rows of Q and K so that a rotary pair is two neighbours.
    Llama,
    /// Qwen 2 and 2.5: a rotary pair lies half a head apart, and Q, K and V have biases.
    Qwen2,
    /// Qwen 3: a rotary pair lies half a head apart, and each head of Q and K passes an RMSNorm before it is rotated.
    Qwen3,
}

impl Architecture {
    /// All of them, by their name in `general.architecture`.
    pub const ALL: [(&str, Architecture); 3] =
        [("llama", Architecture::Llama), ("qwen2", Architecture::Qwen2), ("qwen3", Architecture::Qwen3)];

    /// The name in `general.architecture`, which is also the prefix of the keys.
    pub fn name(self) -> &'static str {
        Self::ALL.iter().find(|(_, a)| *a == self).expect("ALL lists every variant").0
    }

    /// Which dimensions of a head are a rotary pair.
    pub fn pairing(self) -> Pairing {
        match self {
            Architecture::Llama => Pairing::Interleaved,
            Architecture::Qwen2 | Architecture::Qwen3 => Pairing::HalfSplit,
        }
    }

    /// Whether Q, K and V have biases.
    pub fn biased(self) -> bool {
        self == Architecture::Qwen2
    }

    /// Whether each head of Q and K is normed.
    pub fn normed_heads(self) -> bool {
        self == Architecture::Qwen3
    }
}

/// The numbers that define the forward pass.
#[derive(Debug, Clone, PartialEq)]
pub struct Config {
    /// Which family.
    pub architecture: Architecture,
    /// Transformer blocks.
    pub layers: u32,
    /// Length of the residual stream.
    pub hidden: u32,
    /// Rows of the feed-forward gate and up matrices.
    pub feed_forward: u32,
    /// Query heads, a multiple of `kv_heads`.
    pub heads: u32,
    /// Key and value heads.
    pub kv_heads: u32,
    /// Elements of one head.
    pub head_dim: u32,
    /// Leading elements of a head that are rotated, even.
    pub rope_dim: u32,
    /// Base of the rotary frequencies.
    pub rope_base: f64,
    /// What rotary positions are divided by: 1 but for linear scaling.
    pub rope_divisor: f64,
    /// The epsilon of each RMSNorm.
    pub epsilon: f32,
    /// Positions the model was made for.
    pub context: u32,
    /// Tokens.
    pub vocab: u32,
}

/// What does not fit in a model's metadata or tensors.
#[derive(Clone, PartialEq, thiserror::Error)]
#[allow(missing_docs)] // Each variant's message is its documentation.
pub enum Problem {
    #[error("key \"{0}\" is missing")]
    MissingKey(String),
    #[error("key \"{key}\" is {found}; expected {expected}")]
    Key { key: String, found: String, expected: String },
    #[error("architecture \"{found}\" is not supported; supported: {supported}")]
    Architecture { found: String, supported: String },
    #[error(
        "rope scaling \"{0}\" is not supported; supported: none, linear, and per-pair factors in rope_freqs.weight"
    )]
    RopeScaling(String),
    #[error("tensor \"{name}\" of shape {expected:?} is missing")]
    MissingTensor { name: String, expected: Vec<u64> },
    #[error("tensor \"{name}\" has shape {found:?}; expected {expected:?}")]
    Shape { name: String, found: Vec<u64>, expected: Vec<u64> },
    #[error("tensor \"{name}\" is {found}; supported: {supported}")]
    Format { name: String, found: &'static str, supported: String },
    #[error("tensor \"{name}\" is not part of architecture {architecture}, so the model would run wrongly")]
    StrayTensor { name: String, architecture: &'static str },
    #[error("tensor \"{name}\" has rows of {len} weights, {format} needs a multiple of {block}")]
    RowLength { name: String, len: u64, format: &'static str, block: u64 },
    #[error("tensor \"{name}\" holds {value} at index {index}; expected finite numbers above zero")]
    RopeFactor { name: String, index: usize, value: f32 },
}

impl Config {
    /// Reads and checks a file's metadata.
    pub fn read(directory: &Directory) -> Result<Config, Problem> {
        let name = Keys { directory, prefix: "general" }.text("architecture")?;
        let name = name.ok_or(Problem::MissingKey("general.architecture".into()))?;
        let Some((prefix, architecture)) = Architecture::ALL.into_iter().find(|(known, _)| *known == name)
        else {
            let supported = Architecture::ALL.map(|(known, _)| known).join(", ");
            return Err(Problem::Architecture { found: name.to_owned(), supported });
        };
        let keys = Keys { directory, prefix };
        let hidden = keys.size("embedding_length")?;
        let heads = keys.size("attention.head_count")?;
        let kv_heads = keys.size_or("attention.head_count_kv", Ok(heads))?;
        keys.expect("attention.head_count", heads, heads % kv_heads == 0, || {
            format!("a multiple of attention.head_count_kv ({kv_heads})")
        })?;
        let head_dim = keys.head_dim(hidden, heads)?;
        let rope_dim = keys.size_or("rope.dimension_count", Ok(head_dim))?;
        keys.expect("rope.dimension_count", rope_dim, rope_dim % 2 == 0 && rope_dim <= head_dim, || {
            format!("an even number up to the head's length ({head_dim})")
        })?;
        Ok(Config {
            architecture,
            layers: keys.size("block_count")?,
            hidden,
            feed_forward: keys.size("feed_forward_length")?,
            heads,
            kv_heads,
            head_dim,
            rope_dim,
            rope_base: keys.positive("rope.freq_base")?.unwrap_or(10_000.0),
            rope_divisor: keys.rope_divisor()?,
            epsilon: keys.epsilon()?,
            context: keys.size("context_length")?,
            vocab: keys.vocab()?,
        })
    }

    /// Rows of the query matrix and columns of the output matrix.
    pub fn q_len(&self) -> u32 {
        self.heads * self.head_dim
    }

    /// Rows of the key and of the value matrix.
    pub fn kv_len(&self) -> u32 {
        self.kv_heads * self.head_dim
    }

    /// The rotary frequencies in revolutions a position, one a pair: `base^(-2i/rope_dim) / 2 pi`, over
    /// the linear divisor and the pair's own factor.
    pub fn revolutions(&self, factors: Option<&[f32]>) -> Vec<f64> {
        (0..self.rope_dim as usize / 2)
            .map(|i| {
                let frequency = self.rope_base.powf(-2.0 * i as f64 / f64::from(self.rope_dim));
                let factor = factors.map_or(1.0, |f| f64::from(f[i]));
                frequency / (self.rope_divisor * factor * std::f64::consts::TAU)
            })
            .collect()
    }
}

/// The metadata under one prefix, with types and ranges checked.
struct Keys<'a> {
    directory: &'a Directory,
    prefix: &'a str,
}

/// Sizes stay below 2^24, so that a product of two fits 48 bits and every size is exact in f32.
const MAX_SIZE: u32 = 1 << 24;

impl<'a> Keys<'a> {
    fn key(&self, name: &str) -> String {
        format!("{}.{name}", self.prefix)
    }

    fn get(&self, name: &str) -> Option<&'a Value> {
        self.directory.metadata.get(&self.key(name))
    }

    fn wrong<T>(&self, name: &str, found: impl ToString, expected: impl ToString) -> Result<T, Problem> {
        Err(Problem::Key { key: self.key(name), found: found.to_string(), expected: expected.to_string() })
    }

    fn expect(
        &self,
        name: &str,
        found: u32,
        holds: bool,
        expected: impl Fn() -> String,
    ) -> Result<(), Problem> {
        if holds { Ok(()) } else { self.wrong(name, found, expected()) }
    }

    fn size(&self, name: &str) -> Result<u32, Problem> {
        self.size_or(name, Err(Problem::MissingKey(self.key(name))))
    }

    fn size_or(&self, name: &str, default: Result<u32, Problem>) -> Result<u32, Problem> {
        let Some(found) = self.get(name) else { return default };
        let number = match found {
            Value::Unsigned(n) => u32::try_from(*n).ok(),
            Value::Signed(n) => u32::try_from(*n).ok(),
            _ => None,
        };
        match number {
            Some(n) if (1..=MAX_SIZE).contains(&n) => Ok(n),
            _ => self.wrong(name, found, format!("a whole number from 1 to {MAX_SIZE}")),
        }
    }

    fn positive(&self, name: &str) -> Result<Option<f64>, Problem> {
        match self.get(name) {
            None => Ok(None),
            Some(Value::Float(x)) if x.is_finite() && *x > 0.0 => Ok(Some(*x)),
            Some(found) => self.wrong(name, found, "a finite number above zero"),
        }
    }

    fn text(&self, name: &str) -> Result<Option<&'a str>, Problem> {
        match self.get(name) {
            None => Ok(None),
            Some(Value::String(text)) => Ok(Some(text)),
            Some(found) => self.wrong(name, found, "a text"),
        }
    }

    fn head_dim(&self, hidden: u32, heads: u32) -> Result<u32, Problem> {
        if self.get("attention.key_length").is_none() && !hidden.is_multiple_of(heads) {
            let expected = format!("a divisor of embedding_length ({hidden})");
            return self.wrong("attention.head_count", heads, expected);
        }
        let head_dim = self.size_or("attention.key_length", Ok(hidden / heads))?;
        let values = self.size_or("attention.value_length", Ok(head_dim))?;
        self.expect("attention.value_length", values, values == head_dim, || {
            format!("the length of a key ({head_dim})")
        })?;
        self.expect("attention.head_count", heads, heads <= MAX_SIZE / head_dim, || {
            format!("at most {MAX_SIZE} elements in all heads of {head_dim}")
        })?;
        Ok(head_dim)
    }

    fn epsilon(&self) -> Result<f32, Problem> {
        let name = "attention.layer_norm_rms_epsilon";
        let epsilon = self.positive(name)?.ok_or(Problem::MissingKey(self.key(name)))?;
        if epsilon < 1.0 { Ok(epsilon as f32) } else { self.wrong(name, epsilon, "a number below 1") }
    }

    fn rope_divisor(&self) -> Result<f64, Problem> {
        match self.text("rope.scaling.type")? {
            None => Ok(self.positive("rope.scale_linear")?.unwrap_or(1.0)),
            Some("none") => Ok(1.0),
            Some("linear") => Ok(self.positive("rope.scaling.factor")?.unwrap_or(1.0)),
            Some(other) => Err(Problem::RopeScaling(other.to_owned())),
        }
    }

    /// The vocabulary's size, which two keys may tell.
    fn vocab(&self) -> Result<u32, Problem> {
        let tokens = match self.directory.metadata.get("tokenizer.ggml.tokens") {
            Some(Value::Array(tokens)) => Some(tokens.len() as u32),
            _ => None,
        };
        let vocab = self.size_or("vocab_size", tokens.ok_or(Problem::MissingKey(self.key("vocab_size"))))?;
        let tokens = tokens.unwrap_or(vocab);
        self.expect("vocab_size", vocab, vocab == tokens, || {
            format!("the length of tokenizer.ggml.tokens ({tokens})")
        })?;
        Ok(vocab)
    }
}
