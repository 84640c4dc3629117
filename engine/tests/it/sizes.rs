//! What `Model::open` accepts decodes, on both paths; what it refuses, it refuses with a reason. `info` and `run` both
//! begin with it.

use warpwright_engine::{Decoder, Launch, Options, Prefer};
use warpwright_model::Model;

use crate::decode::{check_logits, emulator, logits};
use crate::write::{File, Val, f32s};

/// Sizes of a model of one layer.
#[derive(Debug, Clone, Copy)]
struct Sizes {
    arch: &'static str,
    head_dim: u32,
    /// Query heads of one head of keys and values, of which there are two.
    group: u32,
    hidden: u32,
    feed_forward: u32,
    vocab: u32,
}

const SMALL: Sizes = Sizes {
    arch: "llama",
    head_dim: 16,
    group: 2,
    hidden: 16,
    feed_forward: 16,
    vocab: 16,
};

fn file(s: Sizes) -> File {
    let key = |name: &str| format!("{}.{name}", s.arch);
    let mut file = File::default()
        .pair("general.architecture", Val::Str(s.arch.into()))
        .pair(&key("attention.layer_norm_rms_epsilon"), Val::F32(1e-5));
    for (name, n) in [
        ("block_count", 1),
        ("embedding_length", s.hidden),
        ("feed_forward_length", s.feed_forward),
        ("attention.head_count", 2 * s.group),
        ("attention.head_count_kv", 2),
        ("attention.key_length", s.head_dim),
        ("context_length", 64),
        ("vocab_size", s.vocab),
    ] {
        file = file.pair(&key(name), Val::U32(n));
    }

    let mut random = warpwright_kernels::Random(3);
    let mut add = |name: &str, n: u32, rows: u32| {
        let (dims, scale) = match rows {
            0 => (vec![n.into()], 1.0),
            rows => (vec![n.into(), rows.into()], 1.7 / (n as f32).sqrt()),
        };
        let count = n * rows.max(1);
        let data = f32s((0..count).map(|_| {
            if rows == 0 {
                1.0 + random.unit() / 4.0
            } else {
                random.unit() * scale
            }
        }));
        file = std::mem::take(&mut file).tensor(name, &dims, 0, data);
    };
    let (q, kv) = (2 * s.group * s.head_dim, 2 * s.head_dim);
    add("token_embd.weight", s.hidden, s.vocab);
    add("blk.0.attn_norm.weight", s.hidden, 0);
    add("blk.0.attn_q.weight", s.hidden, q);
    add("blk.0.attn_k.weight", s.hidden, kv);
    add("blk.0.attn_v.weight", s.hidden, kv);
    if s.arch == "qwen3" {
        add("blk.0.attn_q_norm.weight", s.head_dim, 0);
        add("blk.0.attn_k_norm.weight", s.head_dim, 0);
    }

    add("blk.0.attn_output.weight", q, s.hidden);
    add("blk.0.ffn_norm.weight", s.hidden, 0);
    add("blk.0.ffn_gate.weight", s.hidden, s.feed_forward);
    add("blk.0.ffn_up.weight", s.hidden, s.feed_forward);
    add("blk.0.ffn_down.weight", s.feed_forward, s.hidden);
    add("output_norm.weight", s.hidden, 0);
    file
}

/// The model's logits are the oracle's, with both kinds of kernels.
fn decodes(s: Sizes) {
    // Tests run beside each other, and a file must not change while it is mapped.
    let name = format!(
        "sizes-{}-{}-{}-{}.gguf",
        s.head_dim, s.group, s.hidden, s.feed_forward
    );
    let model = Model::open(&file(s).save(&name)).unwrap_or_else(|e| panic!("{s:?}: {e}"));
    let ids = [1, 0, 2, 1];
    for prefer in [Prefer::Simple, Prefer::Fast] {
        let options = Options {
            prefer,
            ..Options::new(8, Launch::Eager)
        };
        let mut decoder = Decoder::new(&emulator(), &model, options, |_| ())
            .unwrap_or_else(|e| panic!("{s:?}, {prefer:?}: {e}"));
        let rows = logits(&mut decoder, &ids);
        check_logits(&model, decoder.path(), &rows, &ids);
    }
}

#[test]
fn every_length_of_heads_and_group_that_is_accepted_decodes() {
    for head_dim in (8..=256).step_by(8) {
        // Each length with some groups, each group with some lengths.
        let groups: &[u32] = if head_dim % 48 == 0 {
            &[1, 3, 8, 17]
        } else {
            &[1 + head_dim / 8 % 12]
        };
        for &group in groups {
            decodes(Sizes {
                head_dim,
                group,
                ..SMALL
            });
        }
    }
}

#[test]
fn every_size_that_is_accepted_decodes() {
    for s in [
        Sizes {
            hidden: 4,
            feed_forward: 4,
            vocab: 3,
            ..SMALL
        },
        Sizes {
            hidden: 12,
            feed_forward: 20,
            vocab: 5,
            ..SMALL
        },
        Sizes {
            arch: "qwen3",
            head_dim: 24,
            group: 5,
            hidden: 20,
            ..SMALL
        },
        Sizes {
            hidden: 1028,
            feed_forward: 36,
            ..SMALL
        },
        Sizes {
            hidden: 2052,
            feed_forward: 8,
            ..SMALL
        },
        Sizes {
            hidden: 16,
            feed_forward: 1032,
            vocab: 300,
            ..SMALL
        },
    ] {
        decodes(s);
    }
}

#[test]
fn refuses_other_sizes_with_a_reason() {
    let head = |found: u32| {
        format!("the length of a head is {found}; supported: a multiple of 8 up to 256")
    };
    for (s, message) in [
        (
            Sizes {
                head_dim: 4,
                ..SMALL
            },
            head(4),
        ),
        (
            Sizes {
                head_dim: 44,
                ..SMALL
            },
            head(44),
        ),
        (
            Sizes {
                head_dim: 100,
                ..SMALL
            },
            head(100),
        ),
        (
            Sizes {
                head_dim: 264,
                ..SMALL
            },
            head(264),
        ),
        (
            Sizes {
                head_dim: 512,
                ..SMALL
            },
            head(512),
        ),
        (
            Sizes {
                hidden: 31,
                ..SMALL
            },
            "the hidden length is 31; supported: a multiple of 4".into(),
        ),
        (
            Sizes {
                hidden: 30,
                ..SMALL
            },
            "the hidden length is 30; supported: a multiple of 4".into(),
        ),
        (
            Sizes {
                feed_forward: 7,
                ..SMALL
            },
            "the feed-forward length is 7; supported: a multiple of 4".into(),
        ),
        (
            Sizes {
                group: 1 << 16,
                head_dim: 8,
                hidden: 4,
                ..SMALL
            },
            "the number of heads is 131072; supported: at most 65536".into(),
        ),
    ] {
        let error = Model::open(&file(s).save("sizes-refused.gguf"))
            .unwrap_err()
            .to_string();
        assert_eq!(error.split_once(": ").unwrap().1, message, "{s:?}");
    }
}
