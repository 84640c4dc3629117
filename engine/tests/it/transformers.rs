//! Every family against what Hugging Face transformers computed in float64: see `families.rs`.

use serde_json::Value;
use warpwright_engine::config::Architecture;
use warpwright_engine::{Decoder, Launch, Model, Options, Prefer};

use crate::decode::{distance, emulator, logits};
use crate::families::{self, MODELS, crc32};
use crate::oracle::{self, Keep};

const REMEDY: &str = "make tests/data/families.json again, as tests/data/families.py says";

/// The models of the families that the engine knows, with their logits. Their files are named after the test, because
/// tests run at the same time.
fn supported(test: &str) -> impl Iterator<Item = (&'static families::Model, Model, Vec<f64>)> {
    let text = std::fs::read_to_string(crate::repository("engine/tests/data/families.json")).unwrap();
    let json: Value = serde_json::from_str(&text).unwrap();
    let known = |model: &&families::Model| Architecture::ALL.iter().any(|known| known.name == model.family);
    let test = test.to_owned();
    MODELS.iter().filter(known).map(move |model| {
        let (file, wanted) = (model.file(), &json["models"][model.name]);
        assert_eq!(wanted["crc32"], crc32(&file.bytes()), "{} has changed: {REMEDY}", model.name);
        let rows = wanted["logits"].as_array().unwrap().iter().flat_map(|row| row.as_array().unwrap());
        let rows = rows.map(|x| x.as_f64().unwrap()).collect();
        (model, Model::open(&file.save(&format!("families-{test}-{}.gguf", model.name))).unwrap(), rows)
    })
}

fn ids() -> Vec<u32> {
    let text = std::fs::read_to_string(crate::repository("engine/tests/data/families.json")).unwrap();
    crate::ids(&serde_json::from_str::<Value>(&text).unwrap()["ids"])
}

/// transformers rounds norms, angles and probabilities to float32.
#[test]
fn the_oracle_agrees() {
    for (case, model, wanted) in supported("oracle") {
        let found = distance(&oracle::logits(&model, &ids(), Keep::Exact).concat(), &wanted);
        assert!(found < 2e-6, "{}: the relative error is {found:e}", case.name);
    }
}

#[test]
fn both_passes_agree() {
    for (case, model, wanted) in supported("passes") {
        for prefer in [Prefer::Fast, Prefer::Simple] {
            let options = Options { prefer, ..Options::new(families::CONTEXT, Launch::Graph) };
            let mut decoder = Decoder::new(&emulator(), &model, options, |_| ()).unwrap();
            let rows = logits(&mut decoder, &ids()).concat();
            let found = distance(&rows.into_iter().map(f64::from).collect::<Vec<_>>(), &wanted);
            assert!(found < 1e-3, "{}, {}: the relative error is {found:e}", case.name, decoder.path());
        }
    }
}
