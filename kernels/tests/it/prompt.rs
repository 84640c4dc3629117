//! Test that each token of a prompt gets equal bits for all divisions into chunks and for all other
//! tokens.

use crate::machine::once;
use ptx_gen::{CpuArg, f16};
use warpwright_kernels::format::dequantize::ColumnOrder;
use warpwright_kernels::matmul::activations;
use warpwright_kernels::prompt::{Item, PromptAttention, PromptAttentionWgmma, RotateTokens};
use warpwright_kernels::shared::cache::{self, PAGE};
use warpwright_kernels::{Overlap, Pairing, Random, Variant};

const DIM: usize = 64;
const HEADS: usize = 4;
const KV_HEADS: usize = 2;
const CTX: usize = 200;
/// The number of tokens of the prompt. Earlier tokens are in the cache.
const FIRST: usize = 30;
const TOKENS: usize = 150;

/// The arguments of a prompt from a token on: queries of `capacity` tokens and the whole cache.
struct Chunk {
    from: usize,
    tokens: usize,
    capacity: usize,
}

fn argument(kernel: &dyn Variant, name: &str) -> usize {
    kernel
        .params()
        .iter()
        .position(|p| p.name == name)
        .expect("an argument of that name")
}

fn halves(arg: &CpuArg) -> &[f16] {
    let CpuArg::F16(v) = arg else {
        panic!("{arg:?} is no f16")
    };
    v
}

/// The pages of the prompt, and the number of pages of the caches.
const PAGES: [u32; 4] = [2, 5, 0, 3];
const CACHE_PAGES: usize = 6;

/// Returns the results of a chunk's tokens, in items of at most a number of queries. Positions
/// after the chunk have other keys and values than the prompt, and queries after its tokens are
/// other numbers.
fn attended(
    kernel: &dyn Variant,
    order: ColumnOrder,
    queries: u32,
    chunk: &Chunk,
) -> Vec<Vec<f16>> {
    let q = Random(1).halves(TOKENS * HEADS * DIM);
    let mut cache = Random(2).halves(CACHE_PAGES * KV_HEADS * PAGE as usize * DIM);
    let mut own = Random(chunk.from as u64 + 10).halves(chunk.capacity * HEADS * DIM);
    let row = HEADS * DIM;
    own[..chunk.tokens * row].copy_from_slice(&q[chunk.from * row..][..chunk.tokens * row]);
    let position = FIRST + chunk.from;
    for (position, head) in
        (position + chunk.tokens..CTX).flat_map(|p| (0..KV_HEADS).map(move |h| (p, h)))
    {
        let table = [1, PAGES.len() as u32, CACHE_PAGES as u32];
        let row =
            cache::paged_row(&PAGES, table, 0, [KV_HEADS, head], position).expect("it has a page");
        cache[row * DIM..][..DIM].fill(f16::from_f32(-3.0));
    }

    let all = Item {
        row: 0,
        rows: chunk.tokens as u32,
        position: position as u32,
        sequence: 0,
    };
    let items: Vec<_> = all.split(queries).map(Item::words).collect();
    let sizes = [
        HEADS,
        KV_HEADS,
        CACHE_PAGES,
        1,
        PAGES.len(),
        items.len(),
        chunk.capacity,
    ];
    let mut args = vec![
        CpuArg::F16(own),
        CpuArg::F16(cache.clone()),
        CpuArg::F16(cache),
        CpuArg::U32(PAGES.into()),
        CpuArg::U32(items.concat()),
        CpuArg::F16(vec![f16(0); chunk.capacity * row]),
        CpuArg::F32(vec![0.0; chunk.capacity]),
    ];
    args.extend(sizes.map(|size| CpuArg::scalar(size as u32)));
    let found = once(kernel, &args);
    let y = halves(&found[argument(kernel, "y")]);
    let slot = |column: usize| order.slot(column as u32) as usize;
    let of =
        |token| (0..row).map(move |column| activations::index(chunk.capacity, token, slot(column)));
    (0..chunk.tokens)
        .map(|token| of(token).map(|i| y[i]).collect())
        .collect()
}

/// Returns the results of both kernels.
fn both(group: u32, queries: u32, window: Option<u32>, chunk: &Chunk) -> [Vec<Vec<f16>>; 2] {
    let head_dim = DIM as u32;
    let order = ColumnOrder { group };
    let plain = PromptAttention {
        head_dim,
        queries,
        window,
        order,
    };
    let wgmma = PromptAttentionWgmma {
        head_dim,
        window,
        order,
    };
    [
        attended(&plain, order, queries, chunk),
        attended(&wgmma, order, queries, chunk),
    ]
}

#[test]
fn attention_gives_a_token_the_same_bits_in_any_chunk() {
    for window in [None, Some(40)] {
        let whole = both(
            8,
            128,
            window,
            &Chunk {
                from: 0,
                tokens: TOKENS,
                capacity: 152,
            },
        );
        for (group, queries, cut) in [(32, 64, 70), (16, 128, 1)] {
            let chunks = [(0, cut), (cut, TOKENS - cut)];
            let [first, second] = chunks.map(|(from, tokens)| {
                let capacity = (tokens + 1).next_multiple_of(8);
                both(
                    group,
                    queries,
                    window,
                    &Chunk {
                        from,
                        tokens,
                        capacity,
                    },
                )
            });
            for (kernel, whole) in whole.iter().enumerate() {
                let parts = first[kernel].iter().chain(&second[kernel]);
                for (token, (found, wanted)) in parts.zip(whole).enumerate() {
                    assert_eq!(
                        found, wanted,
                        "{kernel}: token {token}, window {window:?}, cut at {cut}"
                    );
                }
            }
        }
    }
}

/// The kernels take other steps, so their weights are relative to other maxima and are rounded to
/// binary16 differently.
#[test]
fn both_kernels_attend_alike() {
    for window in [None, Some(40)] {
        let [plain, wgmma] = both(
            8,
            128,
            window,
            &Chunk {
                from: 0,
                tokens: TOKENS,
                capacity: 152,
            },
        );
        for (found, wanted) in wgmma.concat().iter().zip(plain.concat()) {
            let found = found.to_f32();
            let wanted = wanted.to_f32();
            assert!((found - wanted).abs() < 1e-3, "{found} {wanted}");
        }
    }
}

/// Items of one query have the results of decoding.
#[test]
fn attention_gives_a_token_the_same_bits_in_any_item() {
    let order = ColumnOrder { group: 8 };
    let chunk = Chunk {
        from: 60,
        tokens: 12,
        capacity: 16,
    };
    let plain = PromptAttention::new(64, order);
    let wgmma = PromptAttentionWgmma::new(64, order);
    for kernel in [&plain as &dyn Variant, &wgmma] {
        let whole = attended(kernel, order, 128, &chunk);
        for queries in [1, 5] {
            assert_eq!(
                attended(kernel, order, queries, &chunk),
                whole,
                "{} by {queries}",
                kernel.name()
            );
        }
    }
}

/// The emulator stops at an access outside of an argument.
#[test]
fn items_and_pages_out_of_range_stay_inside_of_the_arguments() {
    let order = ColumnOrder { group: 8 };
    let plain = PromptAttention::new(64, order);
    let wgmma = PromptAttentionWgmma::new(64, order);
    let window = PromptAttentionWgmma::new(64, order).with_window(100);
    for kernel in [&plain as &dyn Variant, &wgmma, &window] {
        let case = &kernel.cases(1)[1];
        for item in [
            [u32::MAX; 4],
            [15, 200, 1, 0],
            [0, 1, 1 << 31, 9],
            [3, 5, 1000, u32::MAX],
        ] {
            let mut args = case.args.clone();
            let [pages, items] = ["pages", "items"].map(|name| argument(kernel, name));
            let CpuArg::U32(all) = &mut args[items] else {
                panic!("items are words")
            };

            all.chunks_mut(4)
                .for_each(|other| other.copy_from_slice(&Item::IDLE.words()));
            all[..4].copy_from_slice(&item);
            let CpuArg::U32(all) = &mut args[pages] else {
                panic!("pages are words")
            };

            all.fill(u32::MAX);
            once(kernel, &args);
        }
    }
}

#[test]
fn rotation_gives_a_token_the_same_bits_alone() {
    let kernel = RotateTokens {
        head_dim: 64,
        pairing: Pairing::HalfSplit,
        bias: true,
        norm: true,
        overlap: Overlap::No,
    };
    let case = &kernel.cases(1)[1];
    let all = once(&kernel, &case.args);
    let [x, state, tokens] = ["x", "state", "tokens"].map(|name| argument(&kernel, name));
    let CpuArg::Scalar(count) = case.args[tokens] else {
        panic!("a number")
    };

    let mut args = case.args.clone();
    let mut queries: Vec<f16> = vec![];
    for token in 0..count as usize {
        let (CpuArg::F32(x), CpuArg::F32(from)) = (&mut args[x], &case.args[x]) else {
            panic!("numbers")
        };

        x.copy_from_slice(from);
        x.rotate_left(from.len() / 8 * token);
        let CpuArg::U32(states) = &case.args[state] else {
            panic!("words")
        };

        args[state] = CpuArg::U32(states[8 * token..][..8].to_vec());
        args[tokens] = CpuArg::Scalar(1);
        args = once(&kernel, &args);
        let q = halves(&args[argument(&kernel, "q")]);
        queries.extend(&q[..q.len() / 8]);
    }

    assert_eq!(
        queries,
        halves(&all[argument(&kernel, "q")])[..queries.len()]
    );
    for cache in ["k_cache", "v_cache"].map(|name| argument(&kernel, name)) {
        assert_eq!(args[cache], all[cache]);
    }
}

/// A token that is done leaves the caches and its query as they were. A token without a page leaves
/// the caches as they were.
#[test]
fn rotation_drops_what_has_no_page() {
    let kernel = RotateTokens {
        head_dim: 64,
        pairing: Pairing::HalfSplit,
        bias: false,
        norm: false,
        overlap: Overlap::No,
    };
    let case = &kernel.cases(1)[2];
    let [state, q] = ["state", "q"].map(|name| argument(&kernel, name));
    let CpuArg::U32(states) = &case.args[state] else {
        panic!("words")
    };

    let dropped: Vec<Vec<u32>> = [
        [0, 0, 1, 0, 0],
        [0, 192, 0, 0, 0],
        [0, 1, 0, 0, 3],
        [0, u32::MAX, 0, 0, 1],
    ]
    .map(|first| [&first[..], &[0; 3]].concat())
    .into();
    let mut args = case.args.clone();
    args[state] = CpuArg::U32(
        states
            .chunks(8)
            .enumerate()
            .flat_map(|(i, _)| dropped[i % 4].clone())
            .collect(),
    );
    let found = once(&kernel, &args);
    for cache in ["k_cache", "v_cache"].map(|name| argument(&kernel, name)) {
        assert_eq!(found[cache], args[cache]);
    }

    let rows: Vec<bool> = halves(&found[q])
        .chunks(4 * 64)
        .zip(halves(&args[q]).chunks(4 * 64))
        .map(|(y, x)| y == x)
        .collect();
    assert_eq!(rows, [true, false, false, false, true, false, false, false]);
}

/// A NaN in the value of a key reaches the tokens that see the key. A NaN in a query reaches its
/// token only.
#[test]
fn numbers_that_are_none_reach_the_results() {
    let order = ColumnOrder { group: 8 };
    lose(&PromptAttention::new(64, order), order);
    lose(&PromptAttentionWgmma::new(64, order), order);
}

fn lose(kernel: &dyn Variant, order: ColumnOrder) {
    let case = &kernel.cases(1)[1];
    let numbers = |name: &str| match &case.args[argument(kernel, name)] {
        CpuArg::Scalar(n) => vec![*n as u32],
        CpuArg::U32(v) => v.clone(),
        other => panic!("{name} is {other:?}"),
    };
    let capacity = numbers("capacity")[0] as usize;
    let tokens: u32 = numbers("items").chunks(4).map(|item| item[1]).sum();
    let first = cache::row(
        numbers("pages")[0] as usize,
        numbers("kv_heads")[0] as usize,
        0,
        0,
    ) * 64;
    for (name, at, bad) in [
        ("q", 0, f32::NAN),
        ("k_cache", first, f32::NAN),
        ("v_cache", first, f32::NAN),
        ("v_cache", first, f32::INFINITY),
    ] {
        let mut args = case.args.clone();
        let CpuArg::F16(v) = &mut args[argument(kernel, name)] else {
            panic!("{name} is no f16")
        };

        v[at] = f16::from_f32(bad);
        let found = once(kernel, &args);
        let y = halves(&found[argument(kernel, "y")]);
        let slot = order.slot(0) as usize;
        let lost = |token: &usize| {
            !y[activations::index(capacity, *token, slot)]
                .to_f32()
                .is_finite()
        };
        let wanted: Vec<usize> = if name == "q" {
            vec![0]
        } else {
            (0..tokens as usize).collect()
        };
        assert_eq!(
            (0..tokens as usize).filter(lost).collect::<Vec<_>>(),
            wanted,
            "{name} {bad}"
        );
    }
}
