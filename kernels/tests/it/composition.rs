//! Tests of the references of kernels that split a computation, against the computation without a
//! split.

use ptx_gen::{Cpu, KernelDef, f16};
use warpwright_kernels::shared::cache;
use warpwright_kernels::shared::state::StepState;
use warpwright_kernels::simple::argmax::{ArgmaxBlocksArgs, ArgmaxFinalArgs};
use warpwright_kernels::simple::attention::{AttentionArgs, AttentionCombineArgs};
use warpwright_kernels::{ALL, ArgmaxBlocks, ArgmaxFinal, Attention, AttentionCombine, Random};

const DIM: usize = 64;
const CTX: usize = 200;
const HEADS: usize = 4;
const KV_HEADS: usize = 2;

/// Returns `softmax(scale * q k^T) v` of one head.
fn attention(q: &[f32], k: &[f16], v: &[f16], scale: f32) -> Vec<f64> {
    let dot = |k: &[f16]| {
        q.iter()
            .zip(k)
            .map(|(&q, k)| f64::from(q) * f64::from(k.to_f32()))
            .sum::<f64>()
    };
    let weights: Vec<f64> = k
        .chunks(DIM)
        .map(|k| (dot(k) * f64::from(scale)).exp())
        .collect();
    let sum: f64 = weights.iter().sum();
    let of = |d: usize| {
        weights
            .iter()
            .zip(v.chunks(DIM))
            .map(|(w, v)| w * f64::from(v[d].to_f32()))
            .sum::<f64>()
    };
    (0..DIM).map(|d| of(d) / sum).collect()
}

#[test]
fn splits_of_attention_combine_to_the_softmax() {
    let mut random = Random(1);
    let q = random.units(HEADS * DIM);
    let cached = KV_HEADS * (cache::pages(CTX as u32) * cache::PAGE) as usize * DIM;
    let k = random.halves(cached);
    let v = random.halves(cached);
    let scale = 0.5;
    for (position, splits) in [(0, 1), (0, 5), (37, 3), (199, 1), (199, 7), (150, 64)] {
        let mut partials = vec![0.0; HEADS * splits * (DIM + 2)];
        let mut y = vec![0.0; HEADS * DIM];
        Attention {
            head_dim: DIM as u32,
            queries: 2,
            window: None,
            soft_cap: None,
        }
        .reference(AttentionArgs::<Cpu> {
            state: &StepState {
                position,
                ..StepState::default()
            }
            .words(),
            q: &q,
            k_cache: &k,
            v_cache: &v,
            partials: &mut partials,
            heads: HEADS as u32,
            kv_heads: KV_HEADS as u32,
            ctx: CTX as u32,
            splits: splits as u32,
            scale,
        });
        AttentionCombine {
            head_dim: DIM as u32,
        }
        .reference(AttentionCombineArgs::<Cpu> {
            partials: &partials,
            y: &mut y,
            heads: HEADS as u32,
            splits: splits as u32,
        });
        for (head, (y, q)) in y.chunks(DIM).zip(q.chunks(DIM)).enumerate() {
            let row =
                |position| cache::own_row(KV_HEADS, head / (HEADS / KV_HEADS), position) * DIM;
            let rows = |cache: &[f16]| -> Vec<f16> {
                (0..=position as usize)
                    .flat_map(|p| &cache[row(p)..][..DIM])
                    .copied()
                    .collect()
            };
            let whole = attention(q, &rows(&k), &rows(&v), scale);
            for (d, (&y, whole)) in y.iter().zip(whole).enumerate() {
                assert!(
                    (f64::from(y) - whole).abs() < 1e-6,
                    "{position} {splits} {head} {d}: {y} {whole}"
                );
            }
        }
    }
}

#[test]
fn the_best_of_blocks_is_the_first_largest() {
    let mut random = Random(2);
    for (n, blocks) in [(1, 1), (700, 2), (5000, 3), (300, 9)] {
        let x: Vec<f32> = (0..n).map(|_| random.below(50) as f32).collect();
        let mut value = vec![0.0; blocks];
        let mut index = vec![0; blocks];
        let mut token = [0];
        ArgmaxBlocks { threads: 256 }.reference(ArgmaxBlocksArgs::<Cpu> {
            x: &x,
            value: &mut value,
            index: &mut index,
            n: n as u32,
        });
        ArgmaxFinal.reference(ArgmaxFinalArgs::<Cpu> {
            value: &value,
            index: &index,
            token: &mut token,
            blocks: blocks as u32,
        });
        let largest = x.iter().copied().fold(f32::MIN, f32::max);
        assert_eq!(
            x.iter().position(|&x| x == largest),
            Some(token[0] as usize)
        );
    }
}

#[test]
fn every_known_group_of_heads_has_its_kernel() {
    // `(head_dim, heads / kv_heads)`, each from a model.
    let models = [
        (64, 1, "SmolLM2 1.7B"),
        (64, 3, "SmolLM2 135M"),
        (64, 4, "Llama 3.2 1B"),
        (64, 7, "Qwen2.5 0.5B"),
        (64, 8, "TinyLlama 1.1B"),
        (80, 1, "Phi 2"),
        (96, 1, "Phi 3 mini"),
        (128, 2, "Qwen3 0.6B"),
        (128, 3, "Llama 3.2 3B"),
        (128, 4, "Llama 3.1 8B"),
        (128, 5, "Qwen3 14B"),
        (128, 6, "Qwen2.5 1.5B"),
        (128, 7, "Qwen2.5 7B"),
        (128, 8, "Llama 3.1 70B"),
        (256, 2, "Gemma 2 9B"),
        (256, 4, "Gemma 3 1B"),
        (256, 8, "Gemma 2B"),
    ];
    for (head_dim, queries, model) in models {
        let name = KernelDef::name(&Attention {
            head_dim,
            queries,
            window: None,
            soft_cap: None,
        });
        assert!(
            ALL.iter().any(|shipped| shipped.name() == name),
            "{model}: {name}"
        );
    }
}
