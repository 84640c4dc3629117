//! The forward pass in float64, the obvious way: what the kernels are held against.
//!
//! It shares no arithmetic with the library: formats are decoded by the letter of ggml's definitions, and
//! every step is a loop.

use ptx_gen::f16;
use warpwright_kernels::Format;
use warpwright_model::config::{FamilyExperts, FamilySharedExpert, Windows};
use warpwright_model::gguf::Value;
use warpwright_model::layer::ExpertWeighting;
use warpwright_model::{Block, EmbeddingScaling, GateActivation, Model, Weight, Weights};

/// What is rounded.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Keep {
    Exact,
    /// Keys and values to f16, as the library's cache does.
    Half,
    /// Both operands of every product of a layer, attention's too, to the eleven bits of f16: what products on tensor
    /// cores are at best. With another grid, between 1 and 2, other numbers are rounded up.
    Products(Grid),
}

/// Numbers of eleven bits, divided by this.
#[derive(Clone, Copy, PartialEq)]
pub(crate) struct Grid(pub(crate) f64);

impl Grid {
    /// The nearest of its numbers to each, as Veltkamp splits numbers.
    pub(crate) fn round(self, x: &mut [f64]) {
        let split = ((1u64 << (f64::MANTISSA_DIGITS - 11)) + 1) as f64;
        for x in x {
            let scaled = *x * self.0;
            let large = scaled * split;
            *x = (large - (large - scaled)) / self.0;
        }
    }
}

impl Keep {
    /// What enters a product of a layer.
    fn operand(self, mut x: Vec<f64>) -> Vec<f64> {
        if let Keep::Products(grid) = self {
            grid.round(&mut x);
        }
        x
    }
}

/// The logits after each of `ids`: one row a token.
pub(crate) fn logits(model: &Model, ids: &[u32], keep: Keep) -> Vec<Vec<f64>> {
    watched(model, ids, keep, |_, _| ())
}

/// What enters a part of a layer.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Place {
    /// A norm.
    Stream,
    /// The down projection.
    Block,
}

/// The same; `watch` sees all that enters there.
pub(crate) fn watched(
    model: &Model,
    ids: &[u32],
    keep: Keep,
    watch: impl FnMut(Place, &[f64]),
) -> Vec<Vec<f64>> {
    logits_of(model, &weights(model), ids, keep, watch)
}

/// The model's numbers.
pub(crate) fn weights(model: &Model) -> Weights<Vec<f64>> {
    let numbers = |w: &Weight| {
        Ok::<_, ()>(dequantize(
            w.format.name(),
            &model.files.data(&w.range).unwrap(),
        ))
    };
    model.outline.weights.try_map(numbers).unwrap()
}

/// The logits of the model with these numbers.
pub(crate) fn logits_of(
    model: &Model,
    weights: &Weights<Vec<f64>>,
    ids: &[u32],
    keep: Keep,
    mut watch: impl FnMut(Place, &[f64]),
) -> Vec<Vec<f64>> {
    let c = &model.outline.config;
    let hidden = c.hidden as usize;
    let epsilon = f64::from(c.epsilon);
    let layer = |index| Cache {
        keep,
        layer: Layer::new(model, index, ids.len()),
        k: vec![],
        v: vec![],
    };
    let mut caches: Vec<Cache> = (0..weights.blocks.len()).map(layer).collect();
    let after = |y: Vec<f64>, w: &Option<Vec<f64>>| match w {
        Some(w) => norm(&y, w, epsilon),
        None => y,
    };
    let step = |(position, id): (usize, &u32)| {
        let mut x = weights.embed[*id as usize * hidden..][..hidden].to_vec();
        // A factor of residuals is in that of embeddings, see `embedding_scale` of the library.
        let scale = match c.embedding_scale {
            EmbeddingScaling::One => 1.0,
            EmbeddingScaling::RootOfLength => f64::from((hidden as f32).sqrt()),
            EmbeddingScaling::Factor(factor) => factor.into(),
        };
        for value in &mut x {
            *value *= scale;
        }

        for (block, cache) in std::iter::zip(&weights.blocks, &mut caches) {
            watch(Place::Stream, &x);
            let normed = keep.operand(norm(&x, block.attn_norm.as_ref().unwrap(), epsilon));
            let heads = attention(model, block, cache, &normed, position);
            add(&mut x, &after(heads, &block.attn_post_norm));
            watch(Place::Stream, &x);
            let normed = keep.operand(norm(&x, block.ffn_norm.as_ref().unwrap(), epsilon));
            let mut network = |[gate, up, down]: [&[f64]; 3]| {
                let gate = times(gate, &normed);
                let up = times(up, &normed);
                let gated = |(g, u)| activation(c.architecture.activation, g) * u;
                let inner: Vec<f64> = std::iter::zip(gate, up).map(gated).collect();
                watch(Place::Block, &inner);
                times(down, &keep.operand(inner))
            };
            let y = match block.dense() {
                Some(matrices) => network(matrices.map(Vec::as_slice)),
                None => experts(model, block, &normed, network),
            };
            add(&mut x, &after(y, &block.ffn_post_norm));
        }

        watch(Place::Stream, &x);
        times(weights.head(), &norm(&x, &weights.norm, epsilon))
    };
    ids.iter().enumerate().map(step).collect()
}

/// A mixture of experts, with the file's number of chosen ones and the rule of its family. Equal logits go to the
/// expert that comes first.
fn experts(
    model: &Model,
    block: &Block<Vec<f64>>,
    x: &[f64],
    mut network: impl FnMut([&[f64]; 3]) -> Vec<f64>,
) -> Vec<f64> {
    let logits = times(block.router.as_ref().unwrap(), x);
    let count = logits.len();
    assert_eq!(number(model, "expert_count"), Some(count as f64));
    let mut order: Vec<usize> = (0..count).collect();
    order.sort_by(|&a, &b| logits[b].total_cmp(&logits[a]));
    let chosen = &order[..number(model, "expert_used_count").unwrap() as usize];

    let (FamilyExperts::Always(family) | FamilyExperts::IfCounted(family)) =
        model.outline.config.architecture.experts
    else {
        panic!("a family with experts")
    };
    let power = |expert: usize| (logits[expert] - logits[order[0]]).exp();
    let sum: f64 = match family.weighting {
        ExpertWeighting::Softmax => (0..count).map(power).sum(),
        ExpertWeighting::SoftmaxOfChosen => chosen.iter().copied().map(power).sum(),
    };
    let scale = number(model, "expert_weights_scale").filter(|scale| *scale != 0.0);

    let mut y = vec![0.0; x.len()];
    let mut add_network = |matrices: [&[f64]; 3], factor: f64| {
        for (y, z) in std::iter::zip(&mut y, network(matrices)) {
            *y += factor * z;
        }
    };
    let all = [&block.gate_experts, &block.up_experts, &block.down_experts];
    for &expert in chosen {
        let own = all.map(|matrices| {
            let matrices = matrices.as_ref().unwrap();
            let len = matrices.len() / count;
            &matrices[expert * len..][..len]
        });
        add_network(own, scale.unwrap_or(1.0) * power(expert) / sum);
    }

    let shared = [&block.gate_shared, &block.up_shared, &block.down_shared];
    if let [Some(gate), Some(up), Some(down)] = shared {
        let gated = family.shared == FamilySharedExpert::Gated;
        assert_eq!(block.shared_router.is_some(), gated);
        let factor = match &block.shared_router {
            Some(w) => 1.0 / (1.0 + (-times(w, x)[0]).exp()),
            None => 1.0,
        };
        add_network([gate, up, down], factor);
    }
    y
}

/// `torch.nn.SiLU`, and `torch.nn.GELU(approximate="tanh")`.
fn activation(kind: GateActivation, g: f64) -> f64 {
    match kind {
        GateActivation::Silu => g / (1.0 + (-g).exp()),
        // The tests of gpt-oss compare it with transformers instead.
        GateActivation::ClampedSwiglu => panic!("this oracle does not compute the clamped SwiGLU"),
        GateActivation::GeluTanh => {
            let cubic = g + 0.044715 * g.powi(3);
            0.5 * g * (1.0 + ((2.0 / std::f64::consts::PI).sqrt() * cubic).tanh())
        }
    }
}

/// How a layer rotates and what it attends to, from the file's keys.
struct Layer {
    /// In radians a position.
    frequencies: Vec<f64>,
    /// What multiplies cosine and sine.
    magnitude: f64,
    /// The latest positions that count.
    window: usize,
}

impl Layer {
    /// Of a text of so many tokens.
    fn new(model: &Model, index: usize, len: usize) -> Layer {
        let c = &model.outline.config;
        let get = |name: &str| number(model, name);
        let window = get("attention.sliding_window")
            .filter(|n| *n > 0.0)
            .map_or(usize::MAX, |n| n as usize);
        let (frequencies, magnitude) = rope(model, len);
        match c.architecture.windows {
            // Families with unrotated layers are held to transformers alone: see `folder_families.rs`.
            Windows::None | Windows::Unrotated { .. } => Layer {
                frequencies,
                magnitude,
                window: usize::MAX,
            },
            Windows::Every => Layer {
                frequencies,
                magnitude,
                window,
            },
            Windows::Local { .. } => {
                let period = get("attention.sliding_window_pattern").unwrap_or(6.0) as usize;
                if index % period == period - 1 {
                    return Layer {
                        frequencies,
                        magnitude,
                        window: usize::MAX,
                    };
                }

                let (base, pairs) = (
                    get("rope.freq_base_swa").unwrap_or(10_000.0),
                    frequencies.len(),
                );
                let frequencies = (0..pairs)
                    .map(|i| base.powf(-(i as f64) / pairs as f64))
                    .collect();
                Layer {
                    frequencies,
                    magnitude: 1.0,
                    window,
                }
            }
        }
    }
}

struct Cache {
    keep: Keep,
    layer: Layer,
    k: Vec<Vec<f64>>,
    v: Vec<Vec<f64>>,
}

impl Cache {
    fn push(&mut self, mut k: Vec<f64>, mut v: Vec<f64>) {
        if self.keep == Keep::Half {
            k.iter_mut()
                .chain(&mut v)
                .for_each(|x| *x = f16::from_f32(*x as f32).to_f32().into());
        }
        (k, v) = (self.keep.operand(k), self.keep.operand(v));
        self.k.push(k);
        self.v.push(v);
    }
}

fn attention(
    model: &Model,
    b: &Block<Vec<f64>>,
    cache: &mut Cache,
    x: &[f64],
    position: usize,
) -> Vec<f64> {
    let c = &model.outline.config;
    let (mut q, mut k, mut v) = (times(&b.q, x), times(&b.k, x), times(&b.v, x));
    if let (Some(q_bias), Some(k_bias), Some(v_bias)) = (&b.q_bias, &b.k_bias, &b.v_bias) {
        add(&mut q, q_bias);
        add(&mut k, k_bias);
        add(&mut v, v_bias);
    }

    if let (Some(q_norm), Some(k_norm)) = (&b.q_norm, &b.k_norm) {
        q = norm_heads(&q, q_norm, c.epsilon.into());
        k = norm_heads(&k, k_norm, c.epsilon.into());
    }

    rotate(model, &cache.layer, &mut q, position);
    rotate(model, &cache.layer, &mut k, position);
    cache.push(k, v);
    let q = cache.keep.operand(q);
    let dim = c.head_dim() as usize;
    let group = (c.heads() / c.kv_heads()) as usize;

    // Gemma 3 of 62 layers: `query_pre_attn_scalar` of its config.json.
    let scored = if c.architecture.name == "gemma3" && c.layer_count() == 62 {
        c.hidden / c.heads()
    } else {
        c.head_dim()
    };
    let of_granite = c.architecture.name.starts_with("granite");
    let scale = number(model, "attention.scale").filter(|_| of_granite);
    let scale = scale.unwrap_or(1.0 / f64::from(scored).sqrt());
    let first = cache.k.len().saturating_sub(cache.layer.window);
    let heads = q.chunks(dim).enumerate().flat_map(|(head, q)| {
        let from = head / group * dim;
        let scores: Vec<f64> = cache.k[first..]
            .iter()
            .map(|k| dot(q, &k[from..from + dim]) * scale)
            .collect();
        let shares = cache.keep.operand(softmax(&scores));
        let mut y = vec![0.0; dim];
        for (share, v) in std::iter::zip(shares, &cache.v[first..]) {
            add(
                &mut y,
                &v[from..from + dim]
                    .iter()
                    .map(|v| share * v)
                    .collect::<Vec<_>>(),
            );
        }

        y
    });
    times(&b.o, &cache.keep.operand(heads.collect()))
}

fn rotate(model: &Model, layer: &Layer, x: &mut [f64], position: usize) {
    let c = &model.outline.config;
    let Layer {
        frequencies,
        magnitude,
        ..
    } = layer;
    let pairs = frequencies.len();
    for head in x.chunks_mut(c.head_dim() as usize) {
        for (i, frequency) in frequencies.iter().enumerate() {
            let (a, b) = match c.architecture.name {
                "llama" | "granitemoe" => (2 * i, 2 * i + 1),
                _ => (i, i + pairs),
            };
            let (sin, cos) = (position as f64 * frequency).sin_cos();
            let (sin, cos) = (magnitude * sin, magnitude * cos);
            (head[a], head[b]) = (head[a] * cos - head[b] * sin, head[a] * sin + head[b] * cos);
        }
    }
}

/// A number under the family's prefix.
fn number(model: &Model, name: &str) -> Option<f64> {
    let key = format!("{}.{name}", model.outline.config.architecture.name);
    match model.files.gguf().unwrap().directory.metadata.get(&key)? {
        Value::Float(x) => Some(*x),
        Value::Unsigned(n) => Some(*n as f64),
        _ => None,
    }
}

/// The rotary frequencies in radians a position, and what multiplies cosine and sine, from the file's keys: not what
/// the library made of them. YaRN is `_compute_yarn_parameters` of transformers.
fn rope(model: &Model, len: usize) -> (Vec<f64>, f64) {
    let c = &model.outline.config;
    let get = |name: &str| {
        let key = format!("{}.rope.{name}", c.architecture.name);
        model.files.gguf().unwrap().directory.metadata.get(&key)
    };
    let number = |name: &str| number(model, &format!("rope.{name}"));
    let kind = match get("scaling.type") {
        Some(Value::String(kind)) => kind.as_str(),
        _ => "linear",
    };
    let factor = number("scaling.factor")
        .or(number("scale_linear"))
        .unwrap_or(1.0);
    let factor = if kind == "none" { 1.0 } else { factor };
    let dim = number("dimension_count").unwrap_or(c.head_dim().into());
    let base = number("freq_base").unwrap_or(10_000.0);
    let mut magnitude = number("scaling.attn_factor").unwrap_or(1.0);
    let divided: Box<dyn Fn(f64) -> f64> = if kind == "yarn" {
        magnitude *= 0.1 * factor.ln() + 1.0;
        let original = number("scaling.original_context_length").unwrap_or(c.context.into());
        let pi = std::f64::consts::PI;
        let correction = move |rotations: f64| {
            dim * (original / (rotations * 2.0 * pi)).ln() / (2.0 * base.ln())
        };
        let fast = number("scaling.yarn_beta_fast").unwrap_or(32.0);
        let slow = number("scaling.yarn_beta_slow").unwrap_or(1.0);
        let low = correction(fast).floor().max(0.0);
        let high = correction(slow).ceil().min(dim - 1.0);
        let high = if low == high { high + 0.001 } else { high };
        Box::new(move |i| ((i - low) / (high - low)).clamp(0.0, 1.0))
    } else {
        Box::new(|_| 1.0)
    };
    let w = &model.outline.weights;
    let long =
        number("scaling.original_context_length").is_some_and(|original| len as f64 > original);
    let by_length = if long {
        &w.rope_factors_long
    } else {
        &w.rope_factors_short
    };
    let factors = w.rope_factors.as_ref().or(by_length.as_ref());
    let factors = factors.map(|t| model.files.data(&t.range).unwrap());
    let frequency = |i: usize| {
        let own = factors.as_ref().map_or(1.0, |b| {
            f32::from_le_bytes(b[4 * i..][..4].try_into().unwrap()).into()
        });
        let (whole, share) = (base.powf(-2.0 * i as f64 / dim) / own, divided(i as f64));
        whole / factor * share + whole * (1.0 - share)
    };
    ((0..dim as usize / 2).map(frequency).collect(), magnitude)
}

fn norm(x: &[f64], w: &[f64], epsilon: f64) -> Vec<f64> {
    let scale = 1.0 / (dot(x, x) / x.len() as f64 + epsilon).sqrt();
    std::iter::zip(x, w).map(|(x, w)| x * scale * w).collect()
}

fn norm_heads(x: &[f64], w: &[f64], epsilon: f64) -> Vec<f64> {
    x.chunks(w.len())
        .flat_map(|head| norm(head, w, epsilon))
        .collect()
}

fn softmax(x: &[f64]) -> Vec<f64> {
    let max = x.iter().copied().fold(f64::MIN, f64::max);
    let powers: Vec<f64> = x.iter().map(|x| (x - max).exp()).collect();
    let sum: f64 = powers.iter().sum();
    powers.iter().map(|p| p / sum).collect()
}

fn times(w: &[f64], x: &[f64]) -> Vec<f64> {
    w.chunks(x.len()).map(|row| dot(row, x)).collect()
}

fn dot(a: &[f64], b: &[f64]) -> f64 {
    std::iter::zip(a, b).map(|(a, b)| a * b).sum()
}

fn add(x: &mut [f64], y: &[f64]) {
    std::iter::zip(x, y).for_each(|(x, y)| *x += y);
}

/// The numbers of a tensor: `dequantize_row_*` of `ggml-quants.c`.
fn dequantize(kind: &str, bytes: &[u8]) -> Vec<f64> {
    let blocks =
        |size: usize, f: fn(&[u8]) -> Vec<f64>| bytes.chunks_exact(size).flat_map(f).collect();
    match kind {
        "F32" => blocks(4, |b| {
            vec![f64::from(f32::from_le_bytes(b.try_into().unwrap()))]
        }),
        "F16" => blocks(2, |b| vec![half(b)]),
        "BF16" => blocks(2, |b| {
            vec![f64::from(f32::from_le_bytes([0, 0, b[0], b[1]]))]
        }),
        "Q4_0" => blocks(18, |b| {
            codes(&b[2..], 0).map(|q| half(b) * (q - 8.0)).collect()
        }),
        "Q4_1" => blocks(20, |b| {
            codes(&b[4..], 0)
                .map(|q| half(b) * q + half(&b[2..]))
                .collect()
        }),
        "Q5_0" => blocks(22, |b| {
            codes(&b[6..], word(&b[2..]))
                .map(|q| half(b) * (q - 16.0))
                .collect()
        }),
        "Q5_1" => blocks(24, |b| {
            codes(&b[8..], word(&b[4..]))
                .map(|q| half(b) * q + half(&b[2..]))
                .collect()
        }),
        "Q8_0" => blocks(34, |b| {
            b[2..]
                .iter()
                .map(|q| half(b) * f64::from(*q as i8))
                .collect()
        }),
        "Q4_K" => blocks(144, q4_k),
        "Q5_K" => blocks(176, q5_k),
        "Q6_K" => blocks(210, q6_k),
        // Held to the Python package `gguf` by `kernels/tests/formats.rs`.
        other => {
            let format = Format::ALL
                .into_iter()
                .find(|format| format.name() == other)
                .expect("a format");
            format
                .dequantize(bytes)
                .into_iter()
                .map(f64::from)
                .collect()
        }
    }
}

/// 16 bytes: the first 16 of 32 quants in their low halves, the others in their high ones. Each quant's fifth bit is in
/// `high`.
fn codes(quants: &[u8], high: u32) -> impl Iterator<Item = f64> {
    let low = |i: usize| {
        if i < 16 {
            quants[i] & 15
        } else {
            quants[i - 16] >> 4
        }
    };
    (0..32).map(move |i| f64::from(u32::from(low(i)) + 16 * (high >> i & 1)))
}

fn word(b: &[u8]) -> u32 {
    u32::from_le_bytes(b[..4].try_into().unwrap())
}

/// d, dmin: f16; 12 bytes of 6-bit scales and mins; 128 bytes of 4-bit quants.
fn q4_k(b: &[u8]) -> Vec<f64> {
    let (d, dmin, packed, quants) = (half(b), half(&b[2..]), &b[4..16], &b[16..]);
    let value = |i: usize| {
        let (scale, min) = scale_min(packed, i / 32);
        d * scale * f64::from(nibble(quants, i)) - dmin * min
    };
    (0..256).map(value).collect()
}

/// As `q4_k`, with 32 bytes of high bits before the quants: bit `i / 32` of byte `i % 32` is that of quant `i`.
fn q5_k(b: &[u8]) -> Vec<f64> {
    let (d, dmin, packed, high, quants) = (half(b), half(&b[2..]), &b[4..16], &b[16..48], &b[48..]);
    let value = |i: usize| {
        let (scale, min) = scale_min(packed, i / 32);
        let quant = nibble(quants, i) + 16 * (high[i % 32] >> (i / 32) & 1);
        d * scale * f64::from(quant) - dmin * min
    };
    (0..256).map(value).collect()
}

fn nibble(quants: &[u8], i: usize) -> u8 {
    let byte = quants[i / 64 * 32 + i % 32];
    if (i / 32).is_multiple_of(2) {
        byte & 15
    } else {
        byte >> 4
    }
}

/// `get_scale_min_k4`.
fn scale_min(packed: &[u8], j: usize) -> (f64, f64) {
    let (scale, min) = match j {
        0..4 => (packed[j] & 63, packed[j + 4] & 63),
        _ => (
            packed[j + 4] & 15 | packed[j - 4] >> 6 << 4,
            packed[j + 4] >> 4 | packed[j] >> 6 << 4,
        ),
    };
    (f64::from(scale), f64::from(min))
}

/// 128 bytes of low 4 bits, 64 of high 2 bits, 16 scales: i8, d: f16.
fn q6_k(b: &[u8]) -> Vec<f64> {
    let (low, high, scales, d) = (&b[..128], &b[128..192], &b[192..208], half(&b[208..]));
    let value = |i: usize| {
        let (part, quarter, l) = (i / 128, i % 128 / 32, i % 32);
        let low = low[part * 64 + quarter % 2 * 32 + l] >> (quarter / 2 * 4) & 15;
        let high = high[part * 32 + l] >> (quarter * 2) & 3;
        let quant = f64::from(low | high << 4) - 32.0;
        d * f64::from(scales[i / 16] as i8) * quant
    };
    (0..256).map(value).collect()
}

/// The f16 that `bytes` starts with.
pub(crate) fn half(bytes: &[u8]) -> f64 {
    let bits = u16::from_le_bytes([bytes[0], bytes[1]]);
    let sign = if bits >> 15 == 0 { 1.0 } else { -1.0 };
    let (exponent, fraction) = (i32::from(bits >> 10 & 31), f64::from(bits & 1023));
    sign * match exponent {
        0 => fraction * 2f64.powi(-24),
        31 if fraction == 0.0 => f64::INFINITY,
        31 => f64::NAN,
        _ => (1024.0 + fraction) * 2f64.powi(exponent - 25),
    }
}

#[test]
fn agrees_with_the_reference() {
    for (quantization, path) in crate::models() {
        let model = Model::open(&path).unwrap();
        for run in crate::reference()[quantization].as_array().unwrap() {
            let (prompt, greedy) = (
                crate::ids(&run["prompt_ids"]),
                crate::ids(&run["greedy_ids"]),
            );
            let steps = 3;
            let rows = logits(
                &model,
                &[&prompt[..], &greedy[..steps]].concat(),
                Keep::Exact,
            );
            for (row, top) in rows[prompt.len() - 1..]
                .iter()
                .zip(run["top8"].as_array().unwrap())
            {
                for pair in top.as_array().unwrap() {
                    let (id, expected) = (pair[0].as_u64().unwrap(), pair[1].as_f64().unwrap());
                    let found = row[id as usize];
                    assert!(
                        (found - expected).abs() < 2e-5,
                        "{quantization}, token {id}: {found}, not {expected}"
                    );
                }
            }
        }
    }
}
