//! Tests with random shapes and numbers on the emulator against the reference.

use proptest::prelude::*;
use ptx_emu::Module;
use ptx_gen::{CpuArg, Target, f16, print};
use warpwright_kernels::shared::cache;
use warpwright_kernels::shared::state::StepState;
use warpwright_kernels::simple::rope::{Pairing, revolutions};
use warpwright_kernels::{
    Activation, Attention, Case, Format, Gemv, GemvAdd, Pack, Random, RmsNorm, Rope, RowOrder,
    SwiGlu, Team, Variant,
};

fn holds(kernel: &dyn Variant, args: Vec<CpuArg>, bound: f64) -> Result<(), TestCaseError> {
    let fail = |e: &dyn std::fmt::Display| TestCaseError::fail(format!("{}: {e}", kernel.name()));
    let program = kernel.build().map_err(|e| fail(&e))?;
    let text = print(&program, Target::ALL[0]).map_err(|e| fail(&e))?;
    let module = Module::parse(&text)
        .and_then(Module::complete)
        .map_err(|e| fail(&e))?;
    let code = module.kernels().next().ok_or_else(|| fail(&"no kernel"))?;
    crate::machine::check(
        kernel,
        code,
        &Case {
            label: String::new(),
            args,
            bound,
        },
        crate::machine::FEW,
    )
    .map_err(|e| fail(&e))
}

fn floats(random: &mut Random, n: u32) -> CpuArg {
    CpuArg::F32(random.units(n as usize))
}

fn halves(random: &mut Random, n: u32) -> CpuArg {
    CpuArg::F16(
        random
            .units(n as usize)
            .into_iter()
            .map(f16::from_f32)
            .collect(),
    )
}

fn state_at(position: u32) -> CpuArg {
    let state = StepState {
        position,
        ..StepState::default()
    };
    CpuArg::U32(state.words().into())
}

/// Returns a matrix whose first row has the signs of the activations. Its sum is about as large as
/// the sum of the magnitudes, to which rounding errors are relative.
fn matrix(format: Format, rows: u32, n: u32, random: &mut Random) -> [CpuArg; 2] {
    let w = format.random((rows * n / format.block_len()) as usize, 1.0, random);
    let x = format.dequantize(&w)[..n as usize]
        .iter()
        .map(|w| 0.5 * random.unit() + w.signum())
        .collect();
    [CpuArg::U8(w), CpuArg::F32(x)]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn products(format in prop::sample::select(&Format::ALL[..]), rows in 1..40u32, blocks in 1..30u32, block: bool, seed: u64) {
        let team = if block { Team::Block } else { Team::Warp };
        let n = (blocks * format.block_len()).next_multiple_of(4);
        let random = &mut Random(seed);
        let [w, x] = matrix(format, rows, n, random);
        let sizes = [CpuArg::scalar(rows), CpuArg::scalar(n)];
        let args = |y: CpuArg| [w.clone(), x.clone(), y].into_iter().chain(sizes.clone()).collect();
        holds(&Gemv { format, team }, args(CpuArg::F32(vec![0.0; rows as usize])), 1e-6)?;
        holds(&GemvAdd { format, team }, args(floats(random, rows)), 1e-6)?;
    }

    #[test]
    fn norms(rows in 1..4u32, fours in 1..700u32, wide: bool, seed: u64) {
        let n = 4 * fours;
        let random = &mut Random(seed);
        let [x, w, y] = [rows * n, n, rows * n].map(|len| floats(random, len));
        let args = vec![x, w, y, CpuArg::scalar(n), CpuArg::scalar(1e-5f32)];
        holds(&RmsNorm { threads: if wide { 1024 } else { 256 } }, args, 2e-6)?;
    }

    #[test]
    fn activations(fours in 1..500u32, seed: u64) {
        let n = 4 * fours;
        let random = &mut Random(seed);
        let mut args: Vec<CpuArg> = (0..3).map(|_| floats(random, n)).collect();
        args.push(CpuArg::scalar(n));
        holds(&SwiGlu { threads: 256, activation: Activation::Silu }, args, 1e-6)?;
    }

    #[test]
    fn attentions(
        (head_dim, queries) in prop::sample::select(&[(64, 2), (80, 1), (96, 1), (128, 4), (256, 2)][..]),
        kv_heads in 1..3u32,
        groups in 1..3u32,
        ctx in 1..90u32,
        at: prop::sample::Index,
        splits in 1..9u32,
        seed: u64,
    ) {
        let random = &mut Random(seed);
        let heads = kv_heads * groups * queries;
        let cache = kv_heads * cache::pages(ctx) * cache::PAGE * head_dim;
        let part = vec![0.0; (heads * splits * (head_dim + 2)) as usize];
        let mut args = vec![state_at(at.index(ctx as usize) as u32), floats(random, heads * head_dim)];
        args.extend([halves(random, cache), halves(random, cache), CpuArg::F32(part)]);
        args.extend([heads, kv_heads, ctx, splits].map(CpuArg::scalar));
        args.push(CpuArg::scalar(1.0 / (head_dim as f32).sqrt()));
        holds(&Attention { head_dim, queries, window: None, soft_cap: None }, args, 4e-6)?;
    }

    #[test]
    fn rotations(
        half_split: bool,
        heads in 1..5u32,
        kv_heads in 1..3u32,
        pairs in 1..40u32,
        rest in 0..10u32,
        ctx in 1..20u32,
        at: prop::sample::Index,
        seed: u64,
    ) {
        let random = &mut Random(seed);
        let rope_dim = 2 * pairs;
        let head_dim = 2 * pairs + rest;
        let freq = (0..pairs).flat_map(|_| revolutions(f64::from(random.unit()).abs())).collect();
        let kv = kv_heads * head_dim;
        let cache = kv_heads * cache::pages(ctx) * cache::PAGE * head_dim;
        let mut args = vec![state_at(at.index(ctx as usize) as u32), CpuArg::F32(freq)];
        args.extend([heads * head_dim, kv, kv].map(|n| floats(random, n)));
        args.extend([halves(random, cache), halves(random, cache)]);
        args.extend([heads, kv_heads, head_dim, rope_dim, ctx].map(CpuArg::scalar));
        let pairing = if half_split { Pairing::HalfSplit } else { Pairing::Interleaved };
        holds(&Rope { pairing, magnitude: 1.0 }, args, 3e-6)?;
    }

    #[test]
    fn tiles(
        format in prop::sample::select(Format::ALL.into_iter().filter(|f| f.tile().is_some()).collect::<Vec<_>>()),
        kind in 0..4usize,
        heads in 1..4u32,
        groups in 1..4u32,
        tiles in 1..5u32,
        seed: u64,
    ) {
        let rows =
            [RowOrder::PLAIN, RowOrder::half_split(16 * heads), RowOrder::interleaved(16 * heads), RowOrder::GATE_UP][kind];
        let n = tiles * format.tile().map_or(0, |tile| tile.columns);
        let random = &mut Random(seed);
        let mut matrix = || format.random((groups * rows.stride * n / format.block_len()) as usize, 1.0, random);
        let lo = matrix();
        let hi = matrix();
        let row_blocks = groups * rows.per;
        let y = vec![0; row_blocks as usize * 16 * format.row_bytes(n as usize)];
        let mut args = vec![CpuArg::U8(lo), CpuArg::U8(hi), CpuArg::U8(y)];
        args.extend([n, row_blocks, rows.per, rows.stride, rows.step, rows.delta].map(CpuArg::scalar));
        holds(&Pack { format }, args, 0.0)?;
    }

    /// Blocks are independent: a format decodes several blocks as it decodes each of them.
    #[test]
    fn formats(format in prop::sample::select(&Format::ALL[..]), blocks in 1..9usize, seed: u64) {
        let bytes = format.random(blocks, 1.0, &mut Random(seed));
        let all = format.dequantize(&bytes);
        prop_assert_eq!(all.len(), blocks * format.block_len() as usize);
        prop_assert!(all.iter().all(|v| v.is_finite()));
        let each: Vec<f32> =
            bytes.chunks(format.block_bytes() as usize).flat_map(|block| format.dequantize(block)).collect();
        prop_assert_eq!(all, each);
    }
}
