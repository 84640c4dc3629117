//! Models of random numbers, in every architecture and number format, for what the small real model lacks.

use ptx_gen::{bf16, f16};
use warpwright_kernels::{Format, Random};

use crate::write::{File, Val, f32s};

/// Numbers of formats in ggml.
pub(crate) const F16: u32 = 1;
pub(crate) const Q4_0: u32 = 2;
pub(crate) const Q4_1: u32 = 3;
pub(crate) const Q5_0: u32 = 6;
pub(crate) const Q5_1: u32 = 7;
pub(crate) const Q8_0: u32 = 8;
pub(crate) const Q2_K: u32 = 10;
pub(crate) const Q3_K: u32 = 11;
pub(crate) const Q4_K: u32 = 12;
pub(crate) const Q5_K: u32 = 13;
pub(crate) const Q6_K: u32 = 14;
pub(crate) const IQ4_NL: u32 = 20;
pub(crate) const IQ4_XS: u32 = 23;
pub(crate) const BF16: u32 = 30;
pub(crate) const MXFP4: u32 = 39;

/// What to make. Rows are of 256 and 512 elements, so that every format fits.
#[derive(Clone, Copy)]
pub(crate) struct Synth {
    pub(crate) arch: &'static str,
    /// ggml's type numbers, given to the matrices in turn.
    pub(crate) formats: &'static [u32],
    pub(crate) heads: u32,
    pub(crate) kv_heads: u32,
    pub(crate) head_dim: u32,
    pub(crate) tied: bool,
    /// `rope_freqs.weight` and a linear divisor.
    pub(crate) scaled: bool,
    pub(crate) vocab: u32,
}

/// A model of two layers.
pub(crate) fn synth(s: Synth) -> File {
    sized(s, 256, 512)
}

/// A model of two layers, with these numbers of columns.
pub(crate) fn sized(s: Synth, hidden: u32, feed_forward: u32) -> File {
    let key = |name: &str| format!("{}.{name}", s.arch);
    let mut file = File::default()
        .pair("general.architecture", Val::Str(s.arch.into()))
        .pair(&key("attention.layer_norm_rms_epsilon"), Val::F32(1e-5))
        .pair(&key("rope.freq_base"), Val::F32(500.0));
    for (name, n) in [
        ("block_count", 2),
        ("embedding_length", hidden),
        ("feed_forward_length", feed_forward),
        ("attention.head_count", s.heads),
        ("attention.head_count_kv", s.kv_heads),
        ("attention.key_length", s.head_dim),
        ("context_length", 64),
        ("vocab_size", s.vocab),
    ] {
        file = file.pair(&key(name), Val::U32(n));
    }

    if s.arch == "gemma3" {
        file = file
            .pair(&key("attention.sliding_window"), Val::U32(4))
            .pair(&key("attention.sliding_window_pattern"), Val::U32(2));
    }

    let (q, kv) = (s.heads * s.head_dim, s.kv_heads * s.head_dim);
    let mut make = Make::new(file, s.formats);
    make.matrix("token_embd.weight", s.vocab, hidden);
    for i in 0..2 {
        make.norm(&format!("blk.{i}.attn_norm.weight"), hidden);
        if s.arch == "phi3" {
            make.matrix(&format!("blk.{i}.attn_qkv.weight"), q + 2 * kv, hidden);
        } else {
            make.matrix(&format!("blk.{i}.attn_q.weight"), q, hidden);
            make.matrix(&format!("blk.{i}.attn_k.weight"), kv, hidden);
            make.matrix(&format!("blk.{i}.attn_v.weight"), kv, hidden);
        }

        if s.arch == "qwen2" {
            make.bias(&format!("blk.{i}.attn_q.bias"), q);
            make.bias(&format!("blk.{i}.attn_k.bias"), kv);
            make.bias(&format!("blk.{i}.attn_v.bias"), kv);
        }

        if s.arch == "qwen3" || s.arch == "gemma3" {
            make.norm(&format!("blk.{i}.attn_q_norm.weight"), s.head_dim);
            make.norm(&format!("blk.{i}.attn_k_norm.weight"), s.head_dim);
        }

        make.matrix(&format!("blk.{i}.attn_output.weight"), hidden, q);
        make.norm(&format!("blk.{i}.ffn_norm.weight"), hidden);
        if s.arch == "phi3" {
            make.matrix(&format!("blk.{i}.ffn_up.weight"), 2 * feed_forward, hidden);
        } else {
            make.matrix(&format!("blk.{i}.ffn_gate.weight"), feed_forward, hidden);
            make.matrix(&format!("blk.{i}.ffn_up.weight"), feed_forward, hidden);
        }

        if s.arch == "gemma3" {
            make.norm(&format!("blk.{i}.post_attention_norm.weight"), hidden);
            make.norm(&format!("blk.{i}.post_ffw_norm.weight"), hidden);
        }

        make.matrix(&format!("blk.{i}.ffn_down.weight"), hidden, feed_forward);
    }

    make.norm("output_norm.weight", hidden);
    if !s.tied {
        make.matrix("output.weight", s.vocab, hidden);
    }
    if !s.scaled {
        return make.file;
    }

    let factors = (0..s.head_dim / 2).map(|i| 1.0 + i as f32 / 8.0);
    make.file
        .pair(&key("rope.scaling.type"), Val::Str("linear".into()))
        .pair(&key("rope.scaling.factor"), Val::F32(2.0))
        .tensor(
            "rope_freqs.weight",
            &[u64::from(s.head_dim / 2)],
            0,
            f32s(factors),
        )
}

/// A file whose tensors are made one by one.
pub(crate) struct Make {
    pub(crate) file: File,
    random: Random,
    formats: std::iter::Cycle<std::slice::Iter<'static, u32>>,
}

impl Make {
    /// With these formats for the matrices in turn.
    pub(crate) fn new(file: File, formats: &'static [u32]) -> Make {
        Make {
            file,
            random: Random(7),
            formats: formats.iter().cycle(),
        }
    }

    pub(crate) fn add(&mut self, name: &str, dims: &[u32], kind: u32, data: Vec<u8>) {
        let dims: Vec<u64> = dims.iter().map(|n| u64::from(*n)).collect();
        self.file = std::mem::take(&mut self.file).tensor(name, &dims, kind, data);
    }

    pub(crate) fn norm(&mut self, name: &str, n: u32) {
        let data = f32s((0..n).map(|_| 1.0 + self.random.unit() / 4.0));
        self.add(name, &[n], 0, data);
    }

    fn bias(&mut self, name: &str, n: u32) {
        let data = f32s((0..n).map(|_| self.random.unit()));
        self.add(name, &[n], 0, data);
    }

    pub(crate) fn matrix(&mut self, name: &str, rows: u32, n: u32) {
        let (kind, data) = self.numbers(rows, n);
        self.add(name, &[n, rows], kind, data);
    }

    /// A matrix of each expert, in one tensor.
    pub(crate) fn matrices(&mut self, name: &str, count: u32, rows: u32, n: u32) {
        let (kind, data) = self.numbers(count * rows, n);
        self.add(name, &[n, rows, count], kind, data);
    }

    /// The next format, and random rows in it.
    fn numbers(&mut self, rows: u32, n: u32) -> (u32, Vec<u8>) {
        let kind = *self.formats.next().unwrap();
        let count = (rows * n) as usize;
        let scale = 1.7 / (n as f32).sqrt();
        let r = &mut self.random;
        let data = match kind {
            0 => f32s((0..count).map(|_| r.unit() * scale)),
            1 => (0..count)
                .flat_map(|_| f16::from_f32(r.unit() * scale).0.to_le_bytes())
                .collect(),
            30 => (0..count)
                .flat_map(|_| bf16::from_f32(r.unit() * scale).0.to_le_bytes())
                .collect(),
            2 => blocks(r, count / 32, 18, &[(0, scale / 8.0)]),
            3 => blocks(r, count / 32, 20, &[(0, scale / 7.5), (2, -scale)]),
            6 => blocks(r, count / 32, 22, &[(0, scale / 16.0)]),
            7 => blocks(r, count / 32, 24, &[(0, scale / 15.5), (2, -scale)]),
            8 => blocks(r, count / 32, 34, &[(0, scale / 127.0)]),
            12 => blocks(
                r,
                count / 256,
                144,
                &[(0, scale / 250.0), (2, scale * 7.5 / 250.0)],
            ),
            13 => blocks(
                r,
                count / 256,
                176,
                &[(0, scale / 500.0), (2, scale * 15.5 / 500.0)],
            ),
            14 => blocks(r, count / 256, 210, &[(208, scale / 2300.0)]),
            other => {
                let format = Format::from_ggml_type(other).expect("a format");
                format.random(count / format.block_len() as usize, scale, r)
            }
        };
        (kind, data)
    }
}

/// Random blocks, but for their f16 scales.
fn blocks(r: &mut Random, count: usize, bytes: usize, scales: &[(usize, f32)]) -> Vec<u8> {
    let block = |_| {
        let mut block: Vec<u8> = (0..bytes).map(|_| r.bits() as u8).collect();
        for (at, scale) in scales {
            block[*at..at + 2].copy_from_slice(&f16::from_f32(*scale).0.to_le_bytes());
        }
        block
    };
    (0..count).flat_map(block).collect()
}
