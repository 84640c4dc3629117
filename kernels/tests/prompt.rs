//! Each token of a prompt gets the same bits however the prompt is cut into chunks, and whatever the other tokens are.

#[allow(dead_code, reason = "nothing is compared with a reference here")]
mod machine;

use machine::once;
use ptx_gen::{CpuArg, f16};
use warpwright_kernels::format::dequantize::ColumnOrder;
use warpwright_kernels::matmul::activations;
use warpwright_kernels::prompt::{PromptAttention, PromptAttentionWgmma, RotateTokens};
use warpwright_kernels::{Pairing, Random, Variant};

const DIM: usize = 64;
const HEADS: usize = 4;
const KV_HEADS: usize = 2;
const CTX: usize = 200;
/// The tokens of the prompt; what comes before is in the cache.
const FIRST: usize = 30;
const TOKENS: usize = 150;

/// The prompt from a token on: queries of `capacity` tokens and the whole cache.
struct Chunk {
    from: usize,
    tokens: usize,
    capacity: usize,
}

fn argument(kernel: &dyn Variant, name: &str) -> usize {
    kernel.params().iter().position(|p| p.name == name).expect("an argument of that name")
}

fn halves(arg: &CpuArg) -> &[f16] {
    let CpuArg::F16(v) = arg else { panic!("{arg:?} is no f16") };
    v
}

/// The results of a chunk's tokens. Positions after the chunk have other keys and values than those of the prompt, and
/// queries after its tokens other numbers.
fn attended(kernel: &dyn Variant, order: ColumnOrder, chunk: &Chunk) -> Vec<Vec<f16>> {
    let (q, cache) = (Random(1).halves(TOKENS * HEADS * DIM), Random(2).halves(KV_HEADS * CTX * DIM));
    let mut own = Random(chunk.from as u64 + 10).halves(chunk.capacity * HEADS * DIM);
    let row = HEADS * DIM;
    own[..chunk.tokens * row].copy_from_slice(&q[chunk.from * row..][..chunk.tokens * row]);
    let end = FIRST + chunk.from + chunk.tokens;
    let mut cache = cache;
    cache.chunks_mut(CTX * DIM).for_each(|head| head[end * DIM..].fill(f16::from_f32(-3.0)));
    let sizes = [HEADS, KV_HEADS, CTX, FIRST + chunk.from, chunk.tokens, chunk.capacity];
    let mut args = vec![
        CpuArg::F16(own),
        CpuArg::F16(cache.clone()),
        CpuArg::F16(cache),
        CpuArg::F16(vec![f16(0); chunk.capacity * row]),
        CpuArg::F32(vec![0.0; chunk.capacity]),
    ];
    args.extend(sizes.map(|size| CpuArg::scalar(size as u32)));
    let found = once(kernel, &args);
    let y = halves(&found[argument(kernel, "y")]);
    let slot = |column: usize| order.slot(column as u32) as usize;
    let of = |token| (0..row).map(move |column| activations::index(chunk.capacity, token, slot(column)));
    (0..chunk.tokens).map(|token| of(token).map(|i| y[i]).collect()).collect()
}

/// The same, and of the other kernel.
fn both(group: u32, queries: u32, window: Option<u32>, chunk: &Chunk) -> [Vec<Vec<f16>>; 2] {
    let (head_dim, order) = (DIM as u32, ColumnOrder { group });
    let plain = PromptAttention { head_dim, queries, window, order };
    let wgmma = PromptAttentionWgmma { head_dim, window, order };
    [attended(&plain, order, chunk), attended(&wgmma, order, chunk)]
}

#[test]
fn attention_gives_a_token_the_same_bits_in_any_chunk() {
    for window in [None, Some(40)] {
        let whole = both(8, 128, window, &Chunk { from: 0, tokens: TOKENS, capacity: 152 });
        for (group, queries, cut) in [(32, 64, 70), (16, 128, 1)] {
            let chunks = [(0, cut), (cut, TOKENS - cut)];
            let [first, second] = chunks.map(|(from, tokens)| {
                let capacity = (tokens + 1).next_multiple_of(8);
                both(group, queries, window, &Chunk { from, tokens, capacity })
            });
            for (kernel, whole) in whole.iter().enumerate() {
                let parts = first[kernel].iter().chain(&second[kernel]);
                for (token, (found, wanted)) in parts.zip(whole).enumerate() {
                    assert_eq!(found, wanted, "{kernel}: token {token}, window {window:?}, cut at {cut}");
                }
            }
        }
    }
}

/// Weights are relative to other maxima meanwhile, and so differ by roundings to binary16.
#[test]
fn both_kernels_attend_alike() {
    for window in [None, Some(40)] {
        let [plain, wgmma] = both(8, 128, window, &Chunk { from: 0, tokens: TOKENS, capacity: 152 });
        for (found, wanted) in wgmma.concat().iter().zip(plain.concat()) {
            let (found, wanted) = (found.to_f32(), wanted.to_f32());
            assert!((found - wanted).abs() < 1e-3, "{found} {wanted}");
        }
    }
}

#[test]
fn rotation_gives_a_token_the_same_bits_alone() {
    let kernel = RotateTokens { head_dim: 64, pairing: Pairing::HalfSplit, bias: true, norm: true };
    let case = &kernel.cases(1)[1];
    let all = once(&kernel, &case.args);
    let [tokens, position] = ["tokens", "position"].map(|name| argument(&kernel, name));
    let CpuArg::Scalar(count) = case.args[tokens] else { panic!("a number") };
    let CpuArg::Scalar(first) = case.args[position] else { panic!("a number") };
    let mut args = case.args.clone();
    let x = argument(&kernel, "x");
    let mut queries: Vec<f16> = vec![];
    for token in 0..count {
        let (CpuArg::F32(x), CpuArg::F32(from)) = (&mut args[x], &case.args[x]) else { panic!("numbers") };
        x.copy_from_slice(from);
        x.rotate_left(from.len() / 8 * token as usize);
        args[tokens] = CpuArg::Scalar(1);
        args[position] = CpuArg::Scalar(first + token);
        args = once(&kernel, &args);
        let q = halves(&args[argument(&kernel, "q")]);
        queries.extend(&q[..q.len() / 8]);
    }
    assert_eq!(queries, halves(&all[argument(&kernel, "q")])[..queries.len()]);
    for cache in ["k_cache", "v_cache"].map(|name| argument(&kernel, name)) {
        assert_eq!(args[cache], all[cache]);
    }
}

/// The value of a key counts for the tokens that reach it; a query that is none is lost for its token alone.
#[test]
fn numbers_that_are_none_reach_the_results() {
    let order = ColumnOrder { group: 8 };
    lose(&PromptAttention::new(64, order), order);
    lose(&PromptAttentionWgmma::new(64, order), order);
}

fn lose(kernel: &dyn Variant, order: ColumnOrder) {
    let case = &kernel.cases(1)[1];
    for (name, bad) in
        [("q", f32::NAN), ("k_cache", f32::NAN), ("v_cache", f32::NAN), ("v_cache", f32::INFINITY)]
    {
        let mut args = case.args.clone();
        let CpuArg::F16(v) = &mut args[argument(kernel, name)] else { panic!("{name} is no f16") };
        v[0] = f16::from_f32(bad);
        let found = once(kernel, &args);
        let [capacity, tokens] = ["capacity", "tokens"].map(|name| match args[argument(kernel, name)] {
            CpuArg::Scalar(n) => n as usize,
            _ => panic!("a number"),
        });
        let y = halves(&found[argument(kernel, "y")]);
        let slot = order.slot(0) as usize;
        let lost = |token: &usize| !y[activations::index(capacity, *token, slot)].to_f32().is_finite();
        let wanted: Vec<usize> = if name == "q" { vec![0] } else { (0..tokens).collect() };
        assert_eq!((0..tokens).filter(lost).collect::<Vec<_>>(), wanted, "{name} {bad}");
    }
}
