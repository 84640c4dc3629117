//! Sequences of a batch with an adapter each, against the float64 forward pass over `W + s B A`.

use std::sync::Arc;

use safetensors::tensor::Dtype;
use warpwright_engine::{
    AdapterId, Batch, BatchItem, BatchOptions, BatchRounding, BatchWanted, Error, Launch,
    PageFolder, PrefixReuse, PrefixScope, RowClass, SequenceId,
};
use warpwright_model::{Adapter, Model};

use crate::adapter::{ALL, LLAMA, Made, Plan, make, open};
use crate::batch::{batch, small};
use crate::decode::{decoder, distance, generate};
use crate::oracle::{self, Keep};
use crate::scratch;
use crate::synth::{BF16, Synth};

/// The largest relative error of the logits. Rows without an adapter of the first model reach 2.2e-3.
const BOUND: f64 = 4e-3;

/// Ranks that differ among the projections of a matmul, and a layer without an adapter.
const FEW: Plan = Plan {
    ranks: [3, 0, 16, 0, 0, 5, 8],
    first_layer: 1,
    dtype: Dtype::F16,
};

fn read(model: &Model, made: &Made) -> Arc<Adapter> {
    Arc::new(model.outline.read_adapter(&made.folder).unwrap())
}

fn load(batch: &mut Batch, model: &Model, made: &Made) -> AdapterId {
    batch.load_adapter(read(model, made)).unwrap()
}

/// Makes two adapters of a model.
fn two(model: &Model, name: &str) -> [Made; 2] {
    [("all", ALL), ("few", FEW)].map(|(plan, ranks)| make(model, &format!("{name}-{plan}"), &ranks))
}

fn join(batch: &mut Batch, adapter: Option<AdapterId>) -> SequenceId {
    match adapter {
        Some(adapter) => batch.join_with_adapter(adapter).unwrap(),
        None => batch.join().unwrap(),
    }
}

/// Returns the exact logits after each token, with an adapter or without one.
fn exact(model: &Model, made: Option<&Made>, ids: &[u32]) -> Vec<Vec<f64>> {
    match made {
        Some(made) => oracle::logits_of(model, &made.fold(model), ids, Keep::Exact, |_, _| ()),
        None => oracle::logits(model, ids, Keep::Exact),
    }
}

fn difference(found: &[f32], wanted: &[f64]) -> f64 {
    let found: Vec<f64> = found.iter().copied().map(f64::from).collect();
    distance(&found, wanted)
}

/// Steps all sequences together, first through six tokens and then one by one. Returns the logits
/// of each sequence after each step.
fn run(batch: &mut Batch, ids: &[SequenceId], texts: &[Vec<u32>]) -> Vec<Vec<Vec<f32>>> {
    let mut logits = vec![vec![]; ids.len()];
    let mut first = 0;
    for count in [6, 1, 1, 3] {
        let work: Vec<_> = ids
            .iter()
            .zip(texts)
            .map(|(&id, text)| (id, &text[first..first + count]))
            .collect();
        batch.step(&work).unwrap();
        for (id, logits) in ids.iter().zip(&mut logits) {
            logits.push(batch.logits(*id).unwrap());
        }
        first += count;
    }
    logits
}

/// The number of tokens after each step of [`run`].
const ENDS: [usize; 4] = [6, 7, 8, 11];

fn texts(vocab: u32, count: u32) -> Vec<Vec<u32>> {
    let text = |seed| (0..11).map(move |i| (i * 37 + seed * 11 + i * i * seed) % vocab);
    (1..=count).map(|seed| text(seed).collect()).collect()
}

/// Every way in which a layer's matmuls store their sums: queries and keys rotated by the matmul in
/// either pairing, with a bias, after head norms, and projections that are normed.
#[test]
fn each_row_has_the_logits_of_its_adapter() {
    let qwen2 = Synth {
        arch: "qwen2",
        formats: &[BF16],
        heads: 6,
        kv_heads: 3,
        ..LLAMA
    };
    let gemma3 = Synth {
        arch: "gemma3",
        ..LLAMA
    };
    for (name, case) in [("llama", LLAMA), ("qwen2", qwen2), ("gemma3", gemma3)] {
        let model = open(&format!("rows-{name}"), case);
        let mut made = two(&model, &format!("rows-{name}"));
        let mut batch = batch(&model, BatchOptions::new(4, 64));
        let [all, few] = [0, 1].map(|i| load(&mut batch, &model, &made[i]));
        assert_ne!(all, few);
        let of = [Some(0), None, Some(1), Some(0)];
        let ids = of.map(|made| join(&mut batch, made.map(|made: usize| [all, few][made])));
        let texts = texts(model.outline.config.vocab, 4);
        let found = run(&mut batch, &ids, &texts);
        for ((rows, text), of) in found.iter().zip(&texts).zip(of) {
            let wanted = exact(&model, of.map(|i: usize| &made[i]), text);
            for (row, end) in rows.iter().zip(ENDS) {
                let found = difference(row, &wanted[end - 1]);
                assert!(found < BOUND, "{name}, {of:?} after {end}: {found:e}");
            }
        }

        // The comparison finds a row with the adapter of its neighbor, with none, and with an
        // adapter whose scale is missing.
        let after = |made: Option<&Made>| exact(&model, made, &texts[0])[5].clone();
        let wrong = [after(Some(&made[1])), after(None)];
        for factors in made[0].layers.iter_mut().flatten().flatten() {
            factors.scale = 1.0;
        }
        for wrong in wrong.iter().chain([&after(Some(&made[0]))]) {
            let found = difference(&found[0][0], wrong);
            assert!(found > 0.02, "{name}: {found:e}");
        }
    }
}

/// Rows without an adapter have the bits that they have in a batch without adapters, and rows with
/// an adapter those that they have alone.
#[test]
fn neighbors_with_other_adapters_change_no_bit() {
    for (name, case) in [
        ("llama", LLAMA),
        (
            "gemma3",
            Synth {
                arch: "gemma3",
                ..LLAMA
            },
        ),
    ] {
        let model = open(&format!("bits-{name}"), case);
        let made = two(&model, &format!("bits-{name}"));
        let options = BatchOptions {
            bucket: Some(32),
            ..BatchOptions::new(4, 64)
        };
        let texts = texts(model.outline.config.vocab, 4);
        let mut plain = batch(&model, options);
        let id = plain.join().unwrap();
        let wanted = run(&mut plain, &[id], &texts[1..2]);

        let mut batch = batch(&model, options);
        let [all, few] = [0, 1].map(|i| load(&mut batch, &model, &made[i]));
        let of = [Some(all), None, Some(few), Some(all)];
        let ids = of.map(|adapter| join(&mut batch, adapter));
        let found = run(&mut batch, &ids, &texts);
        assert!(
            found[1] == wanted[0],
            "{name}: a neighbor's adapter changes bits"
        );
        for id in ids {
            batch.leave(id).unwrap();
        }
        for (i, adapter) in of.into_iter().enumerate() {
            let id = join(&mut batch, adapter);
            let alone = run(&mut batch, &[id], &texts[i..=i]);
            assert!(alone[0] == found[i], "{name}: company changes row {i}");
            batch.leave(id).unwrap();
        }
    }
}

/// With the same rounding in all steps, logits depend on neither company nor chunks.
#[test]
fn the_same_rounding_covers_adapters() {
    let model = open("same", LLAMA);
    let made = two(&model, "same");
    let options = BatchOptions {
        rounding: BatchRounding::Same,
        ..BatchOptions::new(12, 64)
    };
    let mut batch = batch(&model, options);
    let [all, few] = [0, 1].map(|i| load(&mut batch, &model, &made[i]));
    let texts = texts(model.outline.config.vocab, 12);
    let prompt = |id, tokens| BatchItem {
        class: RowClass::Prompt,
        ..BatchItem::next(id, tokens)
    };
    let id = join(&mut batch, Some(all));
    batch.step_items(&mut [prompt(id, &texts[0][..8])]).unwrap();
    batch.step(&[(id, &texts[0][8..9])]).unwrap();
    let wanted = batch.logits(id).unwrap();
    batch.leave(id).unwrap();

    let ids: Vec<_> = (0..12)
        .map(|i| join(&mut batch, [Some(all), None, Some(few)][i % 3]))
        .collect();
    for range in [0..3, 3..4, 4..8] {
        let items = ids.iter().zip(&texts);
        let mut items: Vec<_> = items
            .map(|(&id, text)| prompt(id, &text[range.clone()]))
            .collect();
        batch.step_items(&mut items).unwrap();
    }
    let work: Vec<_> = ids
        .iter()
        .zip(&texts)
        .map(|(&id, text)| (id, &text[8..9]))
        .collect();
    batch.step(&work).unwrap();
    assert!(batch.logits(ids[0]).unwrap() == wanted);
}

/// Several steps in one launch give the tokens of a decoder with the adapter, also after a fork,
/// after swapping, and for the only sequence of a batch.
#[test]
fn texts_are_those_of_a_decoder_with_the_adapter() {
    let model = open("texts", LLAMA);
    let made = two(&model, "texts");
    let prompt = [3, 300, 0, 17, 17, 255, 40];
    let text = |made: Option<&Made>| {
        let model = Model::open(model.files.path()).unwrap();
        let model = match made {
            Some(made) => model.with_adapter(&made.folder).unwrap(),
            None => model,
        };
        generate(&mut decoder(&model, 48, Launch::Graph), &prompt, 20)
    };
    let wanted = [text(Some(&made[0])), text(Some(&made[1])), text(None)];
    assert!(wanted[0] != wanted[1] && wanted[0] != wanted[2] && wanted[1] != wanted[2]);

    let mut batch = batch(&model, BatchOptions::new(4, 64));
    let [all, few] = [0, 1].map(|i| load(&mut batch, &model, &made[i]));
    let of = [Some(all), Some(few), None];
    let ids = of.map(|adapter| join(&mut batch, adapter));
    let work: Vec<_> = ids.iter().map(|&id| (id, &prompt[..])).collect();
    let next = batch.step(&work).unwrap();
    for (i, (&id, &next)) in ids.iter().zip(&next).enumerate() {
        let fork = batch.fork(id, prompt.len() as u32).unwrap();
        assert_eq!(batch.adapter(fork).unwrap(), of[i]);
        let alone = batch.decode(&[(fork, next)], 19).unwrap();
        assert_eq!([&[next][..], &alone[0]].concat(), wanted[i], "alone, {i}");
        batch.leave(fork).unwrap();
    }

    // Drafts are verified by the adapter of their sequence. The last one is wrong.
    for (i, &id) in ids.iter().enumerate() {
        let fork = batch.fork(id, prompt.len() as u32).unwrap();
        let mut given = wanted[i][..4].to_vec();
        given.push((wanted[i][4] + 1) % model.outline.config.vocab);
        let mut items = [BatchItem {
            wanted: BatchWanted::Verified,
            ..BatchItem::next(fork, &given)
        }];
        let verified = batch.step_items(&mut items).unwrap().remove(0).verified;
        assert_eq!(verified, wanted[i][1..5], "drafts, {i}");
        batch.leave(fork).unwrap();
    }

    let swapped = batch.swap_out(ids[0]).unwrap();
    let ids = [batch.swap_in(&swapped).unwrap(), ids[1], ids[2]];
    assert_eq!(batch.adapter(ids[0]).unwrap(), Some(all));
    let work: Vec<_> = ids.into_iter().zip(next.iter().copied()).collect();
    let texts = batch.decode(&work, 19).unwrap();
    for (i, text) in texts.iter().enumerate() {
        assert_eq!([&next[i..=i], text].concat(), wanted[i], "together, {i}");
    }
}

/// Pages of one adapter are not used for another one, also after a reload and a restart.
#[test]
fn cached_pages_belong_to_their_adapter() {
    let model = small("adapter-pages");
    let made = two(&model, "pages");
    let options = BatchOptions {
        bucket: Some(8),
        reuse: PrefixReuse::Chunks(64),
        ..BatchOptions::new(3, 320)
    };
    let prompt = crate::batch::tokens(3, 150);
    let logits = |batch: &mut Batch, adapter: Option<AdapterId>| {
        let scope = PrefixScope {
            adapter: adapter.map_or(0, AdapterId::scope),
            ..PrefixScope::salted(1)
        };
        let (id, cached) = batch.join_prompt(&prompt, scope).unwrap();
        assert_eq!(batch.adapter(id).unwrap(), adapter);
        let mut first = cached as usize;
        while first < prompt.len() {
            let end = (first + 64).min(prompt.len());
            batch.step(&[(id, &prompt[first..end])]).unwrap();
            first = end;
        }
        let logits = batch.logits(id).unwrap();
        batch.leave(id).unwrap();
        (logits, cached)
    };

    // One name, which stands for one adapter and then for another one.
    let mut first = batch(&model, options);
    let all = load(&mut first, &model, &made[0]);
    let cold = logits(&mut first, Some(all));
    assert_eq!(cold.1, 0);
    assert_eq!(logits(&mut first, Some(all)), (cold.0.clone(), 128));
    assert_eq!(logits(&mut first, None).1, 0);
    first.unload_adapter(all).unwrap();
    let few = load(&mut first, &model, &made[1]);
    let other = logits(&mut first, Some(few));
    assert_eq!(other.1, 0);
    assert!(other.0 != cold.0);
    let again = load(&mut first, &model, &made[0]);
    assert_eq!(again, all);
    assert_eq!(logits(&mut first, Some(again)), (cold.0.clone(), 128));

    let parent = scratch("adapter-pages");
    let _ = std::fs::remove_dir_all(&parent);
    let folder = PageFolder::open(&parent, &model, 1 << 30).unwrap();
    first.save_kept(&folder).unwrap();
    let mut second = batch(&model, options);
    second.load_kept(&folder).unwrap();
    let few = load(&mut second, &model, &made[1]);
    assert_eq!(logits(&mut second, Some(few)), (other.0, 128));
    second.unload_adapter(few).unwrap();
    let all = load(&mut second, &model, &made[0]);
    assert_eq!(logits(&mut second, Some(all)), (cold.0, 128));
    let unknown = PrefixScope {
        adapter: few.scope(),
        ..PrefixScope::default()
    };
    let refused = second.join_prompt(&prompt, unknown);
    assert!(matches!(refused, Err(Error::NoAdapter)), "{refused:?}");
}

/// An adapter stays while sequences use it.
#[test]
fn adapters_are_loaded_and_unloaded() {
    let model = open("unload", LLAMA);
    let made = two(&model, "unload");
    let mut batch = batch(&model, BatchOptions::new(3, 64));
    let all = load(&mut batch, &model, &made[0]);
    assert_eq!(load(&mut batch, &model, &made[0]), all);
    let few = load(&mut batch, &model, &made[1]);
    assert_eq!(batch.adapters().collect::<Vec<_>>(), [all, few]);

    let id = join(&mut batch, Some(all));
    batch.step(&[(id, &[1, 2, 3])]).unwrap();
    batch.unload_adapter(all).unwrap();
    let refused = batch.unload_adapter(all);
    assert!(matches!(refused, Err(Error::AdapterInUse)), "{refused:?}");
    batch.unload_adapter(few).unwrap();
    let refused = batch.join_with_adapter(few);
    assert!(matches!(refused, Err(Error::NoAdapter)), "{refused:?}");

    // The sequence continues with its adapter at another index of the device.
    batch.step(&[(id, &[4])]).unwrap();
    let found = batch.logits(id).unwrap();
    let wanted = exact(&model, Some(&made[0]), &[1, 2, 3, 4]);
    assert!(difference(&found, &wanted[3]) < BOUND);

    let swapped = batch.swap_out(id).unwrap();
    batch.unload_adapter(all).unwrap();
    let refused = batch.swap_in(&swapped);
    assert!(matches!(refused, Err(Error::NoAdapter)), "{refused:?}");
    let id = join(&mut batch, None);
    batch.step(&[(id, &[1, 2, 3])]).unwrap();
    let refused = batch.unload_adapter(all);
    assert!(matches!(refused, Err(Error::NoAdapter)), "{refused:?}");
}

/// Adapters of other models are refused by their shapes.
#[test]
fn an_adapter_of_another_model_is_refused() {
    let model = open("shapes", LLAMA);
    let other = Synth {
        kv_heads: 4,
        ..LLAMA
    };
    let other = open("shapes-other", other);
    let made = make(&other, "shapes-other", &ALL);
    let mut batch = batch(&model, BatchOptions::new(3, 64));
    let refused = batch.load_adapter(read(&other, &made)).unwrap_err();
    let text = "the adapter does not fit the model: the matrices of k_proj in layer 0 must be for 128 x 256 weights";
    assert_eq!(refused.to_string(), text);
    assert_eq!(batch.adapters().count(), 0);

    let mut short = (*read(&other, &made)).clone();
    short.layers.pop();
    let refused = batch.load_adapter(Arc::new(short)).unwrap_err();
    let text = "the adapter has 1 layers, but the model has 2";
    assert_eq!(refused.to_string(), text);
}
