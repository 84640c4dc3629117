//! What is refused, and the whole sentence that says so.

use warpwright_train::reference::{MicroBatch, Model, References, Storage, Trainer};
use warpwright_train::{Config, Error, Lora, Training};

use crate::setup::{Setup, read};

fn setup() -> Setup {
    Setup::new(&read("llama-r4")["config"])
}

fn refused<T>(result: Result<T, Error>, sentence: &str) {
    assert_eq!(
        result.err().map(|error| error.to_string()).as_deref(),
        Some(sentence)
    );
}

#[test]
fn sizes_that_make_no_model() {
    let sizes = |change: fn(&mut Config), sentence| {
        let mut config = setup().config;
        change(&mut config);
        refused(config.check(), sentence);
    };
    sizes(|c| c.vocab = 0, "vocab is 0, but must be at least 1");
    sizes(
        |c| c.kv_heads = 3,
        "heads is 4, but must be a multiple of kv_heads",
    );
    sizes(
        |c| c.head_dim = 15,
        "head_dim is 15, but must be an even number: RoPE rotates pairs",
    );
    sizes(|c| c.eps = f64::NAN, "eps is NaN, but must be 0 or more");
    sizes(
        |c| c.frequencies[0] = 0.0,
        "a rotary frequency is 0, but must be above 0",
    );
    sizes(
        |c| c.frequencies.truncate(1),
        "the number of rotary frequencies is 1, but must be head_dim / 2",
    );
}

#[test]
fn settings_that_make_no_adapter_or_step() {
    let lora = |change: fn(&mut Lora), sentence| {
        let mut lora = setup().lora;
        change(&mut lora);
        refused(lora.check(), sentence);
    };
    lora(|l| l.rank = 0, "rank is 0, but must be at least 1");
    lora(
        |l| l.alpha = f64::INFINITY,
        "alpha is inf, but must be above 0, and finite in f32 by the rank",
    );
    lora(
        |l| l.dropout = 1.0,
        "dropout is 1, but must be from 0 to below 1",
    );
    let training = |change: fn(&mut Training), sentence| {
        let mut training = setup().training;
        change(&mut training);
        refused(training.check(), sentence);
    };
    training(
        |t| t.adamw.beta1 = 1.0,
        "beta1 is 1, but must be from 0 to below 1",
    );
    training(
        |t| t.adamw.beta2 = -0.5,
        "beta2 is -0.5, but must be from 0 to below 1",
    );
    training(
        |t| t.adamw.eps = f64::NAN,
        "the optimizer's eps is NaN, but must be 0 or more",
    );
    training(
        |t| t.adamw.decay = -1.0,
        "weight decay is -1, but must be 0 or more, and finite in f32",
    );
    training(
        |t| t.max_norm = 0.0,
        "max_norm is 0, but must be above 0 in f32",
    );
}

#[test]
fn tensors_of_other_shapes() {
    let setup = setup();
    let weights = || setup.weights(&|nf4| setup.unpack(nf4));
    let model = |weights| {
        Model::new(
            setup.config.clone(),
            setup.lora.clone(),
            weights,
            Storage::F64,
            &References,
        )
        .map(|_| ())
    };
    let mut short = weights();
    short.layers[1].projections[3].pop();
    refused(
        model(short),
        "o_proj of layer 1 has 4095 elements, but must have 64 x 64 = 4096",
    );
    let mut biased = weights();
    biased.layers[0].biases[1] = Some(vec![0.0; 31]);
    refused(
        model(biased),
        "bias of k_proj of layer 0 has 31 elements, but must have 1 x 32 = 32",
    );
    let mut few = weights();
    few.layers.pop();
    refused(
        model(few),
        "there are weights of 1 layers, but must be of 2",
    );
    let model = setup.model(weights(), Storage::F64, &References);
    let mut adapters = setup.adapters();
    adapters.layers[0][0].as_mut().unwrap().b.clear();
    refused(
        Trainer::new(&model, setup.training.clone(), adapters),
        "B of q_proj of layer 0 has 0 elements, but must have 64 x 4 = 256",
    );
}

#[test]
fn data_that_makes_no_pass() {
    let setup = setup();
    let model = setup.model(
        setup.weights(&|nf4| setup.unpack(nf4)),
        Storage::F64,
        &References,
    );
    let micro = |change: fn(&mut MicroBatch), sentence| {
        let mut micro = setup.micros(1).swap_remove(0);
        change(&mut micro);
        refused(model.gradients(&setup.adapters(), &micro), sentence);
    };
    micro(
        |m| m.ids[5] = 192,
        "id 192 of token 5 is not in the vocabulary of 192",
    );
    micro(
        |m| m.labels[6] = Some(200),
        "label 200 of token 6 is not in the vocabulary of 192",
    );
    micro(
        |m| m.starts[2] = 3,
        "the document of token 2 begins at token 3, but must begin at the token or before it",
    );
    micro(
        |m| m.n = 0,
        "the loss is divided by 0 labelled tokens: set the number of labelled tokens of the step",
    );
    let short = "the list of positions of the micro-batch has 47 elements, but must have one for each of its 48 tokens";
    micro(|m| m.positions.truncate(47), short);
    let mut trainer = Trainer::new(&model, setup.training.clone(), setup.adapters()).unwrap();
    refused(
        trainer.step(&[]),
        "the step has no micro-batch: pass at least one",
    );
}
