//! A model's hyperparameters, read from a GGUF's metadata and held against each other.

pub use crate::model::architecture::{Architecture, Windows};
use crate::model::gguf::{Directory, Value};
use crate::model::keys::{Keys, MAX_SIZE};
use crate::model::known;
use crate::model::rope::{Rope, Scaling};

/// The numbers that define the forward pass.
#[derive(Debug, Clone, PartialEq)]
pub struct Config {
    /// Which family.
    pub architecture: &'static Architecture,
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
    /// Rotary position embedding.
    pub rope: Rope,
    /// The latest positions that a layer with a window attends to, the token's own included.
    pub window: Option<u32>,
    /// Where some layers have a window and others do not.
    pub local: Option<Local>,
    /// The epsilon of each RMSNorm.
    pub epsilon: f32,
    /// Positions the model was made for.
    pub context: u32,
    /// Tokens.
    pub vocab: u32,
}

/// Layers with a window between layers without.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Local {
    /// Each layer whose number, counted from 1, is a multiple of this has no window.
    pub period: u32,
    /// Rotary position embedding of the others.
    pub rope: Rope,
}

/// What does not fit in a model's metadata or tensors.
#[derive(Clone, PartialEq, thiserror::Error)]
#[allow(missing_docs)] // Each variant's message is its documentation.
pub enum Problem {
    #[error("key {0:?} is missing")]
    MissingKey(String),
    #[error("key {key:?} is {found}; expected {expected}")]
    Key { key: String, found: String, expected: String },
    #[error("key {key:?} is {found}: {why}")]
    RefusedKey { key: String, found: String, why: &'static str },
    #[error(
        "key {key:?} ({found}) is not known for architecture {architecture}, so the model could run wrongly"
    )]
    UnknownKey { key: String, found: String, architecture: &'static str },
    #[error("architecture {found:?} is not supported; supported: {supported}")]
    Architecture { found: String, supported: String },
    #[error(
        "rope scaling {0:?} is not supported; supported: none, linear, yarn, and per-pair factors in rope_freqs.weight"
    )]
    RopeScaling(String),
    #[error("{what} is {found}; supported: {supported}")]
    Size { what: &'static str, found: u32, supported: &'static str },
    #[error("tensor {name:?} of shape {expected:?} is missing")]
    MissingTensor { name: String, expected: Vec<u64> },
    #[error("tensor {name:?} has shape {found:?}; expected {expected:?}")]
    Shape { name: String, found: Vec<u64>, expected: Vec<u64> },
    #[error("tensor {name:?} is {found}; supported: {supported}")]
    Format { name: String, found: &'static str, supported: String },
    #[error("tensor {name:?} is not part of architecture {architecture}, so the model would run wrongly")]
    StrayTensor { name: String, architecture: &'static str },
    #[error("tensor {name:?} has rows of {len} weights, {format} needs a multiple of {block}")]
    RowLength { name: String, len: u64, format: &'static str, block: u64 },
    #[error("tensor {name:?} holds {value} at index {index}; expected finite numbers above zero")]
    RopeFactor { name: String, index: usize, value: f32 },
}

/// The most heads of queries.
const MAX_HEADS: u32 = 1 << 16;

impl Config {
    /// Whether there are kernels for these sizes: the simple ones, which serve every device and every number format.
    /// Nothing else refuses a model for its sizes.
    pub(crate) fn check(&self) -> Result<(), Problem> {
        let Config { head_dim, hidden, feed_forward, heads, .. } = *self;
        let sizes = [
            (
                "the length of a head",
                head_dim,
                head_dim % 8 == 0 && head_dim <= 256,
                "a multiple of 8 up to 256",
            ),
            ("the hidden length", hidden, hidden % 4 == 0, "a multiple of 4"),
            ("the feed-forward length", feed_forward, feed_forward % 4 == 0, "a multiple of 4"),
            ("the number of heads", heads, heads <= MAX_HEADS, "at most 65536"),
        ];
        match sizes.into_iter().find(|(_, _, holds, _)| !holds) {
            Some((what, found, _, supported)) => Err(Problem::Size { what, found, supported }),
            None => Ok(()),
        }
    }

    /// Reads and checks a file's metadata.
    pub fn read(directory: &Directory) -> Result<Config, Problem> {
        known::check_file(directory)?;
        let name = Keys { directory, prefix: "general" }.text("architecture")?;
        let name = name.ok_or(Problem::MissingKey("general.architecture".into()))?;
        let Some(architecture) = Architecture::ALL.into_iter().find(|known| known.name == name) else {
            let supported = Architecture::ALL.map(|known| known.name).join(", ");
            return Err(Problem::Architecture { found: name.to_owned(), supported });
        };
        let keys = Keys { directory, prefix: architecture.name };
        let hidden = keys.size("embedding_length")?;
        let heads = keys.size("attention.head_count")?;
        let kv_heads = keys.size_or("attention.head_count_kv", Ok(heads))?;
        keys.expect("attention.head_count", heads, heads % kv_heads == 0, || {
            format!("a multiple of attention.head_count_kv ({kv_heads})")
        })?;
        let head_dim = head_dim(&keys, hidden, heads)?;
        let context = keys.size("context_length")?;
        let rope = Rope::read(&keys, head_dim, context)?;
        let (window, local) = windows(&keys, architecture, &rope)?;
        let config = Config {
            architecture,
            layers: keys.size("block_count")?,
            hidden,
            feed_forward: keys.size("feed_forward_length")?,
            heads,
            kv_heads,
            head_dim,
            rope,
            window,
            local,
            epsilon: epsilon(&keys)?,
            context,
            vocab: vocab(&keys)?,
        };
        known::check_architecture(directory, &config)?;
        config.check()?;
        Ok(config)
    }

    /// Rows of the query matrix and columns of the output matrix.
    pub fn q_len(&self) -> u32 {
        self.heads * self.head_dim
    }

    /// Rows of the key and of the value matrix.
    pub fn kv_len(&self) -> u32 {
        self.kv_heads * self.head_dim
    }

    /// What attention multiplies its scores by, in front of the softmax.
    ///
    /// Where whole heads are rotated, a magnitude of cosine and sine scales each query and each key as a whole, and so
    /// the scores by its square.
    pub fn score_scale(&self) -> f32 {
        let magnitude = if self.rotates_whole_heads() { self.rope.magnitude } else { 1.0 };
        (magnitude * magnitude) as f32 / self.score_root()
    }

    /// What cosine and sine are multiplied by themselves, as the scores do not have it.
    pub(crate) fn angle_magnitude(&self) -> f32 {
        if self.rotates_whole_heads() { 1.0 } else { self.rope.magnitude as f32 }
    }

    fn rotates_whole_heads(&self) -> bool {
        self.rope.dim == self.head_dim
    }

    /// The root of the length that scores are divided by.
    pub(crate) fn score_root(&self) -> f32 {
        let by_hidden = self.architecture.scores_by_hidden == Some(self.layers);
        (if by_hidden { self.hidden / self.heads } else { self.head_dim } as f32).sqrt()
    }

    /// Whether a layer is one of those with a window, between layers without.
    fn is_local(&self, layer: u32) -> bool {
        self.local.is_some_and(|local| !(layer + 1).is_multiple_of(local.period))
    }

    /// The latest positions that a layer attends to; all of them without a window. A window as long as the context is
    /// none.
    pub fn window_of(&self, layer: u32) -> Option<u32> {
        let has = self.local.is_none() || self.is_local(layer);
        self.window.filter(|window| has && *window < self.context)
    }

    /// The rotary embeddings of the layers: each layer has one of them.
    pub fn ropes(&self) -> Vec<Rope> {
        [self.rope].into_iter().chain(self.local.map(|local| local.rope)).collect()
    }

    /// Which of [`ropes`](Config::ropes) a layer has.
    pub fn rope_of(&self, layer: u32) -> u32 {
        self.is_local(layer).into()
    }
}

/// The window, and which layers have it.
///
/// A window counts the token's own position: transformers and llama.cpp mask positions whose distance is the window or
/// more.
fn windows(
    keys: &Keys<'_>,
    architecture: &Architecture,
    rope: &Rope,
) -> Result<(Option<u32>, Option<Local>), Problem> {
    let name = "attention.sliding_window";
    match architecture.windows {
        Windows::None => Ok((None, None)),
        Windows::Every => {
            let absent = keys.get(name).and_then(Value::integer) == Some(0) || keys.get(name).is_none();
            Ok((if absent { None } else { Some(keys.size(name)?) }, None))
        }
        Windows::Local { period, rope_base } => {
            // Its default is that of other families, and would be the base of the other layers.
            let base = "rope.freq_base";
            keys.get(base).ok_or_else(|| Problem::MissingKey(keys.key(base)))?;
            let period = keys.size_or("attention.sliding_window_pattern", Ok(period))?;
            let base = keys.positive("rope.freq_base_swa")?.unwrap_or(rope_base);
            let (scaling, why) = (Scaling::Linear(1.0), "in a family whose layers have two rotary bases");
            if let Scaling::Yarn(_) = rope.scaling {
                return keys.wrong("rope.scaling.type", "yarn", format!("none or linear {why}"));
            }
            if rope.magnitude != 1.0 {
                return keys.wrong("rope.scaling.attn_factor", rope.magnitude, format!("1 {why}"));
            }
            let local = Local { period, rope: Rope { base, scaling, ..*rope } };
            Ok((Some(keys.size(name)?), Some(local)))
        }
    }
}

fn head_dim(keys: &Keys<'_>, hidden: u32, heads: u32) -> Result<u32, Problem> {
    if keys.get("attention.key_length").is_none() && !hidden.is_multiple_of(heads) {
        let expected = format!("a divisor of embedding_length ({hidden})");
        return keys.wrong("attention.head_count", heads, expected);
    }
    let head_dim = keys.size_or("attention.key_length", Ok(hidden / heads))?;
    let values = keys.size_or("attention.value_length", Ok(head_dim))?;
    keys.expect("attention.value_length", values, values == head_dim, || {
        format!("the length of a key ({head_dim})")
    })?;
    keys.expect("attention.head_count", heads, heads <= MAX_SIZE / head_dim, || {
        format!("at most {MAX_SIZE} elements in all heads of {head_dim}")
    })?;
    Ok(head_dim)
}

fn epsilon(keys: &Keys<'_>) -> Result<f32, Problem> {
    let name = "attention.layer_norm_rms_epsilon";
    let epsilon = keys.positive(name)?.ok_or(Problem::MissingKey(keys.key(name)))?;
    if epsilon < 1.0 { Ok(epsilon as f32) } else { keys.wrong(name, epsilon, "a number below 1") }
}

/// The vocabulary's size, which two keys may tell.
fn vocab(keys: &Keys<'_>) -> Result<u32, Problem> {
    let tokens = match keys.directory.metadata.get("tokenizer.ggml.tokens") {
        Some(Value::Array(tokens)) => Some(tokens.len() as u32),
        _ => None,
    };
    let vocab = keys.size_or("vocab_size", tokens.ok_or(Problem::MissingKey(keys.key("vocab_size"))))?;
    let tokens = tokens.unwrap_or(vocab);
    keys.expect("vocab_size", vocab, vocab == tokens, || {
        format!("the length of tokenizer.ggml.tokens ({tokens})")
    })?;
    Ok(vocab)
}
