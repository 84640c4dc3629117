//! Tests of the kernels of experts for many tokens: a whole layer, and planted faults.

use crate::machine::{FEW, check, early_access, once};
use ptx_emu::Module;
use ptx_gen::{CpuArg, Target, f16, print};
use warpwright_kernels::format::dequantize::ColumnOrder;
use warpwright_kernels::format::tile;
use warpwright_kernels::matmul::experts::{
    ChooseTokenExperts, CombineTokens, GatherTokens, MatmulExperts, MatmulSyncExperts,
    RouterLogits, RouterTile, SortTokens,
};
use warpwright_kernels::matmul::{Epilogue, MatmulSync, NormTokens};
use warpwright_kernels::{ALL, Activation, Format, Overlap, Random, RowOrder, Variant, Weighting};

/// Returns the first failure of a kernel's cases, if its text is changed.
fn failure(kernel: &dyn Variant, change: impl Fn(&str) -> String) -> Option<String> {
    let name = kernel.name();
    let module = changed(kernel, change);
    let code = module.kernel(&name).expect("the module holds the kernel");
    let cases = kernel.cases(1);
    cases.iter().find_map(|case| {
        let e = check(kernel, code, case, FEW).err()?;
        Some(format!("{name}, {}: {e}", case.label))
    })
}

/// Returns the module of a kernel whose text is changed.
fn changed(kernel: &dyn Variant, change: impl Fn(&str) -> String) -> Module {
    let name = kernel.name();
    let program = kernel.build().unwrap_or_else(|e| panic!("{name}: {e}"));
    let target = Target::named("sm_90a").expect("in the table");
    let text = print(&program, target).unwrap_or_else(|e| panic!("{name}: {e}"));
    Module::parse(&change(&text))
        .and_then(Module::complete)
        .unwrap_or_else(|e| panic!("{name}: {e}"))
}

/// Returns the shipped kernel of this name.
fn shipped(name: &str) -> &'static dyn Variant {
    let mut all = ALL.iter().filter(|kernel| kernel.name() == name);
    *all.next().unwrap_or_else(|| panic!("no {name}"))
}

/// Returns the text without line `at` of the lines that start with `start`.
fn without(text: &str, start: &str, at: usize) -> String {
    let found: Vec<usize> = text
        .lines()
        .enumerate()
        .filter(|(_, line)| line.trim().starts_with(start))
        .map(|(i, _)| i)
        .collect();
    assert!(found.len() > at, "{at} of {} lines:\n{text}", found.len());
    let kept = text.lines().enumerate().filter(|&(i, _)| i != found[at]);
    kept.map(|(_, line)| line).collect::<Vec<_>>().join("\n")
}

/// Every kernel that starts early waits before it reads what an earlier kernel writes: all buffers
/// but the weights.
#[test]
fn a_missing_wait_is_found() {
    let constant = ["w", "unit", "gamma"];
    for name in [
        "router_logits_8x16_first",
        "choose_token_experts_4_chosen_first",
        "sort_tokens_first",
        "gather_tokens_first",
        "matmul_experts_store_q6_k_16_half_first",
        "matmul_experts_gated_32_q4_k_8_half_first",
        "combine_tokens_first",
    ] {
        let kernel = shipped(name);
        let case = &kernel.cases(1)[0];
        let early = |change: &dyn Fn(&str) -> String| {
            let module = changed(kernel, change);
            early_access(kernel, module.kernel(name).expect(name), case, &constant)
        };
        assert_eq!(early(&str::to_owned), None, "{name}");

        // The matmul waits once before its roles, and again in them, which is harmless.
        let missing = early(&|text| text.replace("griddepcontrol.wait;", ""));
        assert!(missing.is_some(), "{name}");
    }
}

#[test]
fn a_missing_barrier_of_the_sort_is_found() {
    let kernel = SortTokens {
        overlap: Overlap::No,
    };
    for at in 0..2 {
        let found = failure(&kernel, |text| without(text, "bar.sync", at));
        let found = found.unwrap_or_else(|| panic!("without barrier {at}"));
        let unordered = ["Race", "race", "Uninitialised"];
        assert!(
            unordered.iter().any(|class| found.contains(class)),
            "{found}"
        );
    }
}

#[test]
fn a_missing_barrier_of_the_router_is_found() {
    let kernel = RouterLogits {
        tile: RouterTile::Small,
        overlap: Overlap::No,
    };
    // One barrier for each of four stages, of which the cases have at most three in the last round.
    // Then one before the stages' memory is used again, and one after it.
    for at in [0, 1, 2, 4, 5] {
        let found = failure(&kernel, |text| without(text, "bar.sync", at));
        let found = found.unwrap_or_else(|| panic!("without barrier {at}"));
        let unordered = ["Race", "race", "Uninitialised"];
        assert!(
            unordered.iter().any(|class| found.contains(class)),
            "{found}"
        );
    }
}

/// A table with an expert that does not exist, as another kernel's fault would write it, reads the
/// last expert instead of memory past the weights.
#[test]
fn an_expert_past_the_last_is_bounded() {
    let wgmma = MatmulExperts::planned(Format::F16, Epilogue::Store, RowOrder::PLAIN, 8);
    let sync = MatmulSyncExperts {
        matmul: MatmulSync {
            format: Format::F16,
            epilogue: Epilogue::Store,
            rows: RowOrder::PLAIN,
            tokens: 16,
            row_blocks: 1,
        },
    };
    let kernels: [&dyn Variant; 2] = [&wgmma, &sync];
    for kernel in kernels {
        let run = |expert| {
            let mut args = kernel.cases(1).swap_remove(0).args;
            let table = index(kernel, "group_expert");
            let CpuArg::U32(experts) = &mut args[table] else {
                panic!("the table is u32")
            };
            assert_eq!(experts[1] & 0xffff, 2);
            experts[1] = experts[1] & !0xffff | expert;
            bits(&once(kernel, &args)[index(kernel, "y")])
        };
        let wanted = run(2);
        assert_eq!(run(3), wanted, "{}", kernel.name());
        assert_eq!(run(0xffff), wanted, "{}", kernel.name());
        assert_ne!(run(1), wanted, "{}", kernel.name());
    }
}

/// The comparison finds a matmul that uses the weights of the next expert.
#[test]
fn the_next_expert_is_found() {
    let kernel = MatmulExperts::planned(Format::F16, Epilogue::Store, RowOrder::PLAIN, 8);
    let plus_one = |text: &str| {
        let mut changed = String::new();
        for line in text.lines() {
            changed.push_str(line);
            changed.push('\n');
            if line.trim().starts_with("and.b32") && line.ends_with(" 65535;") {
                let to = line.split([' ', ',']).find(|word| word.starts_with("%r"));
                let to = to.expect("a destination");
                changed.push_str(&format!("add.u32 {to}, {to}, 1;\n"));
            }
        }

        // Two producers and the consumers decode an entry.
        assert_eq!(changed.lines().count(), text.lines().count() + 3, "{text}");
        changed
    };
    assert_eq!(failure(&kernel, str::to_owned), None);
    let found = failure(&kernel, plus_one).expect("the next expert is used");
    assert!(found.contains("exceeds"), "{found}");
}

/// The sums of a token are rounded in the order of its slots, so the bits show the order.
#[test]
fn slots_are_added_in_their_order() {
    let kernel = CombineTokens {
        overlap: Overlap::No,
    };
    let case = kernel.cases(1).swap_remove(0);
    let [
        CpuArg::F32(y),
        CpuArg::U32(place),
        CpuArg::F32(weight),
        CpuArg::F32(x),
    ] = &case.args[..4]
    else {
        panic!("the arguments have these types")
    };
    let [tokens, chosen, n] = [3, 8, 64];
    let sums = |slots: &dyn Fn(usize) -> usize| {
        let mut x = x.clone();
        for (i, x) in x[..tokens * n].iter_mut().enumerate() {
            let mut sum = 0.0f32;
            for slot in 0..chosen {
                let at = i / n * chosen + slots(slot);
                sum = weight[at].mul_add(y[place[at] as usize * n + i % n], sum);
            }
            *x += sum;
        }
        bits(&CpuArg::F32(x))
    };
    let found = bits(&once(&kernel, &case.args)[3]);
    assert_eq!(found, sums(&|slot| slot));
    assert_ne!(found, sums(&|slot| chosen - 1 - slot));
}

/// Returns the index of an argument.
fn index(kernel: &dyn Variant, name: &str) -> usize {
    let params = kernel.params();
    let mut names = params.iter().map(|param| param.name);
    names.position(|found| found == name).expect(name)
}

/// Returns the bits of an argument.
fn bits(arg: &CpuArg) -> Vec<u32> {
    match arg {
        CpuArg::F32(values) => values.iter().map(|x| x.to_bits()).collect(),
        other => panic!("{other:?}"),
    }
}

/// The columns of the residual stream, and of the feed-forward.
const N: usize = 128;
/// The number of experts.
const COUNT: usize = 4;
/// The number of experts of a token.
const CHOSEN: usize = 2;

/// A layer of experts with random weights.
struct ExpertLayer {
    gamma: Vec<f32>,
    router: Vec<f32>,
    /// `[COUNT, 2 * N, N]` and `[COUNT, N, N]`: the weights of gate and up, and of down, as tiles.
    gate_up: Vec<u8>,
    down: Vec<u8>,
}

/// The kernels of a layer that may differ without a change of bits.
struct LayerPlan {
    tile: RouterTile,
    /// The number of rows of a group.
    width: u32,
    sync: bool,
}

impl ExpertLayer {
    fn new() -> ExpertLayer {
        let mut random = Random(7);
        let mut matrix = |rows: usize| -> Vec<u8> {
            let weights = (0..rows * N).map(|_| f16::from_f32(random.unit() * 0.1));
            weights.flat_map(|w| w.0.to_le_bytes()).collect()
        };
        let mut gate_up = vec![];
        let mut down = vec![];
        for _ in 0..COUNT {
            let [gate, up] = [matrix(N), matrix(N)];
            gate_up.extend(tile::pack(Format::F16, RowOrder::GATE_UP, &gate, &up, N));
            let matrix = matrix(N);
            let order = RowOrder::PLAIN;
            down.extend(tile::pack(Format::F16, order, &matrix, &matrix, N));
        }
        ExpertLayer {
            gamma: random.units(N),
            router: random.units(COUNT * N),
            gate_up,
            down,
        }
    }

    /// Runs a layer's kernels.
    fn run(&self, x: &[f32], plan: &LayerPlan) -> Vec<f32> {
        let tokens = x.len() / N;
        let room = tokens.next_multiple_of(8);
        let width = plan.width as usize;
        let capacity =
            SortTokens::capacity(tokens as u32, CHOSEN as u32, COUNT as u32, plan.width) as usize;
        let order = ColumnOrder::of(Format::F16).expect("a format with tiles");
        let overlap = Overlap::No;
        let f32s = |len: usize| CpuArg::F32(vec![0.0; len]);
        let u32s = |len: usize| CpuArg::U32(vec![0; len]);
        let f16s = |len: usize| CpuArg::F16(vec![f16(0); len]);
        let number = |n: usize| CpuArg::scalar(n as u32);
        let epsilon = CpuArg::scalar(1e-5f32);
        let residual = CpuArg::F32(x.to_vec());
        let gamma = CpuArg::F32(self.gamma.clone());

        let norm = NormTokens {
            order,
            second: None,
            overlap,
        };
        let args = [
            residual.clone(),
            gamma.clone(),
            f16s(room * N),
            f16s(0),
            f32s(tokens),
            f32s(tokens),
            number(N),
            number(room),
            epsilon.clone(),
        ];
        let normed = once(&norm, &args);

        let router = RouterLogits {
            tile: plan.tile,
            overlap,
        };
        let args = [
            CpuArg::F32(self.router.clone()),
            residual.clone(),
            gamma,
            f32s(tokens * COUNT),
            number(tokens),
            number(COUNT),
            number(N),
            epsilon,
        ];
        let logits = once(&router, &args).swap_remove(3);

        let choose = ChooseTokenExperts::new(COUNT as u32, Weighting::Chosen);
        let args = [
            logits,
            u32s(tokens * CHOSEN),
            f32s(tokens * CHOSEN),
            number(tokens),
            number(COUNT),
            number(CHOSEN),
            CpuArg::scalar(1.0f32),
        ];
        let choice = once(&choose, &args);

        let args = [
            choice[1].clone(),
            u32s(tokens * CHOSEN),
            u32s(capacity),
            u32s(capacity / width),
            u32s(1),
            number(tokens),
            number(CHOSEN),
            number(COUNT),
            number(width),
            number(capacity),
        ];
        let sorted = once(&SortTokens { overlap }, &args);
        let used = sorted[4].clone();

        let args = [
            sorted[2].clone(),
            used.clone(),
            normed[2].clone(),
            normed[4].clone(),
            normed[5].clone(),
            f16s(capacity * N),
            f32s(capacity),
            f32s(capacity),
            number(tokens),
            number(N),
            number(room),
            number(capacity),
        ];
        let gathered = once(&GatherTokens { overlap }, &args);

        let gated = Epilogue::Gated(Activation::Silu, order);
        let matmul = |epilogue, rows, args: &[CpuArg]| {
            let format = Format::F16;
            let tokens = plan.width;
            if plan.sync {
                let matmul = MatmulSync {
                    format,
                    epilogue,
                    rows,
                    tokens,
                    row_blocks: 1,
                };
                once(&MatmulSyncExperts { matmul }, args)
            } else {
                once(
                    &MatmulExperts::planned(format, epilogue, rows, tokens),
                    args,
                )
            }
        };
        let args = |w: &[u8], x: [&CpuArg; 3], results: [CpuArg; 3], [rows, y_rows]: [usize; 2]| {
            let [x, scale, squares] = x.map(CpuArg::clone);
            let [y, gated, gated_scale] = results;
            let mut args = vec![
                CpuArg::U8(w.to_vec()),
                CpuArg::F32(vec![1.0; COUNT * rows]),
                x,
                scale,
                squares,
                y,
                gated,
                gated_scale,
                // No row is longer than 2.
                CpuArg::scalar(4.0f32),
            ];
            args.extend([rows, N, y_rows, 0, capacity, capacity, 5].map(number));
            args.extend([f32s(0), u32s(0), f32s(0), f32s(0), u32s(0), u32s(0)]);
            args.extend([f16s(0), f16s(0), f16s(0)]);
            args.extend([0; 7].map(number));
            args.extend([CpuArg::scalar(0.0f32), sorted[3].clone(), used.clone()]);
            args.push(number(COUNT));
            args
        };
        let rows = matmul(
            gated,
            RowOrder::GATE_UP,
            &args(
                &self.gate_up,
                [&gathered[5], &gathered[6], &gathered[7]],
                [f32s(0), f16s(capacity * N), f32s(capacity)],
                [2 * N, N],
            ),
        );
        let down = matmul(
            Epilogue::Store,
            RowOrder::PLAIN,
            &args(
                &self.down,
                [&rows[6], &rows[7], &f32s(0)],
                [f32s(capacity * N), f16s(0), f32s(0)],
                [N, N],
            ),
        );

        let args = [
            down[5].clone(),
            sorted[1].clone(),
            choice[2].clone(),
            residual,
            number(tokens),
            number(CHOSEN),
            number(N),
            number(capacity),
        ];
        match once(&CombineTokens { overlap }, &args).swap_remove(3) {
            CpuArg::F32(x) => x,
            other => panic!("{other:?}"),
        }
    }

    /// Computes the layer for a token in double precision.
    fn exact(&self, x: &[f32]) -> Vec<f64> {
        let mean = x.iter().map(|&x| f64::from(x).powi(2)).sum::<f64>() / N as f64;
        let normed: Vec<f64> = x
            .iter()
            .zip(&self.gamma)
            .map(|(&x, &gamma)| f64::from(x) * f64::from(gamma) / (mean + 1e-5).sqrt())
            .collect();
        let times = |rows: &[f32], x: &[f64]| -> Vec<f64> {
            let dot = |row: &[f32]| row.iter().zip(x).map(|(&w, x)| f64::from(w) * x).sum();
            rows.chunks(N).map(dot).collect()
        };
        let logits = times(&self.router, &normed);
        let mut order: Vec<usize> = (0..COUNT).collect();
        order.sort_by(|&a, &b| logits[b].total_cmp(&logits[a]));
        let shares: Vec<f64> = order[..CHOSEN]
            .iter()
            .map(|&e| (logits[e] - logits[order[0]]).exp())
            .collect();
        let mut sums: Vec<f64> = x.iter().map(|&x| f64::from(x)).collect();
        for (&expert, share) in order.iter().zip(&shares) {
            let of = |tiles: &[u8]| {
                let one = tiles.len() / COUNT;
                tile::dequantize(Format::F16, &tiles[expert * one..][..one], N)
            };
            let rows = times(&of(&self.gate_up), &normed);
            let gated: Vec<f64> = (0..N)
                .map(|i| {
                    let at = i / 8 * 16 + i % 8;
                    let gate = rows[at];
                    gate / (1.0 + (-gate).exp()) * rows[at + 8]
                })
                .collect();
            let weight = share / shares.iter().sum::<f64>();
            for (sum, y) in sums.iter_mut().zip(times(&of(&self.down), &gated)) {
                *sum += weight * y;
            }
        }
        sums
    }
}

#[test]
fn a_layer_of_experts_equals_its_definition_and_tokens_are_independent() {
    let layer = ExpertLayer::new();
    let tokens = 11;
    let x = Random(3).units(tokens * N);
    let found = layer.run(
        &x,
        &LayerPlan {
            tile: RouterTile::Small,
            width: 8,
            sync: false,
        },
    );
    for (token, found) in found.chunks(N).enumerate() {
        let wanted = layer.exact(&x[token * N..][..N]);
        for (found, wanted) in found.iter().zip(wanted) {
            let error = (f64::from(*found) - wanted).abs();
            assert!(error < 1e-3, "token {token}: {found} is not {wanted}");
        }
    }

    // A token alone, in kernels for other numbers of tokens, and with the other instruction.
    for (token, sync) in [(0, false), (5, false), (5, true)] {
        let row = token * N..(token + 1) * N;
        let alone = layer.run(
            &x[row.clone()],
            &LayerPlan {
                tile: RouterTile::Large,
                width: 16,
                sync,
            },
        );
        let [alone, found] = [&alone[..], &found[row]].map(|x| bits(&CpuArg::F32(x.to_vec())));
        assert_eq!(alone, found, "token {token}, mma.sync: {sync}");
    }
}
