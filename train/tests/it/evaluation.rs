//! Evaluation on a device, the emulated one: the reference's loss without dropout, and no trace in training.

use warpwright_train::Lora;
use warpwright_train::reference::{Model, References, Storage};
use warpwright_train::step::{Evaluation, Launch, Snapshot};

use crate::device::trainer;
use crate::setup::{Setup, read};

/// Relative, of a loss.
const LOSS: f64 = 1e-5;

#[test]
fn the_loss_is_that_of_the_reference_without_dropout() {
    for name in ["llama-r4-dropout", "qwen2-r8", "qwen3-r4"] {
        let setup = Setup::new(&read(name)["config"]);
        let mut micro = setup.micros(1).swap_remove(0);
        micro.n = micro.labelled();
        let loss = |dropout: f64| {
            let lora = Lora {
                dropout,
                ..setup.lora.clone()
            };
            let weights = setup.weights(&|nf4| setup.unpack(nf4));
            let model = Model::new(
                setup.config.clone(),
                lora,
                weights,
                Storage::F64,
                &References,
            )
            .unwrap();
            model.gradients(&setup.moved(), &micro).unwrap().loss
        };
        let mut device = trainer(&setup, &setup.moved(), Launch::Graph);
        let Evaluation { loss: sum, tokens } = device.evaluate(&micro).unwrap();
        assert_eq!(tokens, micro.labelled(), "{name}");
        let (found, wanted) = (sum / tokens as f64, loss(0.0));
        assert!(
            (found / wanted - 1.0).abs() < LOSS,
            "{name}: {found}, not {wanted}"
        );
        let with = loss(setup.lora.dropout);
        let apart = (with / wanted - 1.0).abs() > 10.0 * LOSS;
        assert_eq!(
            apart,
            setup.lora.dropout > 0.0,
            "{name}: {with} with dropout, {wanted} without"
        );
    }
}

/// Losses of the steps, what training goes on from, and the evaluations.
type Left = (Vec<u64>, Snapshot, Vec<Evaluation>);

/// Two steps, with an evaluation before each of their micro-batches and after the last.
fn leaves(setup: &Setup, launch: Launch, evaluate: impl Fn(usize) -> bool) -> Left {
    let mut trainer = trainer(setup, &setup.adapters(), launch);
    let mut held_out = setup.micros(4).swap_remove(0);

    // Shorter than the trainer's, and of a number and an `n` that training would not take.
    held_out.ids.pop();
    held_out.labels.pop();
    held_out.positions.pop();
    held_out.starts.pop();
    (held_out.number, held_out.n) = (u32::MAX, 1);
    let (mut losses, mut found, mut count) = (vec![], vec![], 0);
    for step in 1..=2 {
        let (last, others) = (setup.micros(step).pop().unwrap(), setup.micros(step));
        for micro in &others[..others.len() - 1] {
            found.extend(evaluate(count).then(|| trainer.evaluate(&held_out).unwrap()));
            trainer.accumulate(micro).unwrap();
            count += 1;
        }
        found.extend(evaluate(count).then(|| trainer.evaluate(&held_out).unwrap()));
        losses.push(trainer.step(&[last]).unwrap().loss.to_bits());
        count += 1;
    }

    found.extend(evaluate(count).then(|| trainer.evaluate(&held_out).unwrap()));
    (losses, trainer.snapshot().unwrap(), found)
}

#[test]
fn training_has_the_same_bits_with_and_without_it() {
    for name in ["llama-r4-dropout", "qwen2-r8-accum"] {
        let mut setup = Setup::new(&read(name)["config"]);

        // The first step of a warm-up has a rate of 0 and would not change the loss.
        setup.training.schedule.warmup = 0;
        let (losses, snapshot, _) = leaves(&setup, Launch::Graph, |_| false);
        let with = [Launch::Graph, Launch::Capture, Launch::Eager]
            .map(|launch| leaves(&setup, launch, |_| true));
        for (left, snapshot_left, _) in &with {
            assert_eq!((left, snapshot_left), (&losses, &snapshot), "{name}");
        }

        let [graph, capture, eager] = with.map(|(.., found)| found);
        assert_eq!(graph.len(), 1 + 2 * setup.accum, "{name}");
        assert!(
            graph == capture && graph == eager,
            "{name}: {graph:?}, {capture:?}, {eager:?}"
        );

        // The loss is of the adapters as they are: it changes with a step, and only with one.
        let [before, after, last] = [0, setup.accum, 2 * setup.accum].map(|i| graph[i].loss);
        assert!(before != after && after != last, "{name}: {graph:?}");
        assert!(
            graph[..setup.accum]
                .iter()
                .all(|found| found.loss == before),
            "{name}: {graph:?}"
        );
    }
}

#[test]
fn refuses_what_a_device_does_not_take() {
    let setup = Setup::new(&read("llama-r4-qv")["config"]);
    let mut trainer = trainer(&setup, &setup.adapters(), Launch::Eager);
    let mut micro = setup.micros(1).swap_remove(0);
    micro.ids[5] = 192;
    let error = trainer.evaluate(&micro).unwrap_err().to_string();
    assert_eq!(error, "id 192 of token 5 is not in the vocabulary of 192");
    for list in [&mut micro.ids, &mut micro.positions, &mut micro.starts] {
        list.push(0);
    }

    micro.labels.push(None);
    micro.ids[5] = 0;
    let error = trainer.evaluate(&micro).unwrap_err().to_string();
    assert_eq!(
        error,
        "a micro-batch has 49 tokens, but the trainer was created for at most 48"
    );
}
