//! Tables and generators against `constants.json`.

use serde_json::Value;
use warpwright_kernels::shared::philox::philox4x32;
use warpwright_kernels::train::dropout::{Mask, threshold};
use warpwright_kernels::train::optimizer::schedule::{Decay, Schedule};
use warpwright_kernels::train::{nested, nf4};

use crate::generators::{fnv1a_f32, gauss, splitmix64, unit};
use crate::setup::read;

fn words(list: &Value) -> Vec<u32> {
    list.as_array().unwrap().iter().map(word).collect()
}

fn word(text: &Value) -> u32 {
    u32::from_str_radix(text.as_str().unwrap(), 16).unwrap()
}

fn bits(numbers: &[f32]) -> Vec<u32> {
    numbers.iter().map(|x| x.to_bits()).collect()
}

#[test]
fn generators_give_the_first_numbers() {
    let c = read("constants");
    let hashes: Vec<String> = (0..4).map(|i| format!("{:016x}", splitmix64(i))).collect();
    assert_eq!(c["splitmix64"], serde_json::json!(hashes));
    let units: Vec<f64> = (0..4).map(|i| unit(7, i)).collect();
    assert_eq!(c["unit_seed_7"], serde_json::json!(units));
    assert_eq!(words(&c["gauss_seed_7_std_half"]), bits(&gauss(7, 4, 0.5)));
}

/// The values of bitsandbytes, bit for bit.
#[test]
fn nf4_has_the_values_of_bitsandbytes() {
    let c = read("constants");
    assert_eq!(words(&c["nf4"]), bits(&nf4::VALUES));
    assert_eq!(words(&c["nf4_thresholds"]), bits(&nf4::thresholds()));
    assert_eq!(words(&c["dynamic_map"]), bits(&nested::dynamic_map()));
}

#[test]
fn nested_absmax_is_that_of_bitsandbytes() {
    let wanted = &read("constants")["nested"];
    let absmax: Vec<f32> = gauss(5, 600, 0.1)
        .into_iter()
        .map(|x| x.abs() + 0.01)
        .collect();
    assert_eq!(wanted["fnv1a"], fnv1a_f32(&absmax));
    let nested = nested::quantize(&absmax);
    assert_eq!(wanted["codes"], serde_json::json!(nested.codes));
    assert_eq!(words(&wanted["scales"]), bits(&nested.scales));
    assert_eq!(word(&wanted["offset"]), nested.offset.to_bits());
    assert_eq!(wanted["back"], fnv1a_f32(&nested::dequantize(&nested)));
}

#[test]
fn nf4_takes_blocks_of_zeros_and_odd_ends() {
    let mut weights = vec![0.0; 64];
    weights.extend([0.5, -2.0, 1.0]);
    let nf4 = nf4::quantize(&weights);
    assert_eq!(nf4.absmax, [0.0, 2.0]);
    assert_eq!(nf4.packed[..32], [0x77; 32]);
    assert_eq!(
        nf4.packed[32..],
        [0xa0, 0xc0],
        "0.246, -1 and 0.441, then nothing"
    );
    let back = nf4::dequantize(&nf4.packed, &nf4.absmax);
    assert_eq!(
        back[64..67],
        [10, 0, 12].map(|code| 2.0 * nf4::VALUES[code])
    );
}

/// The known answers of Random123.
#[test]
fn philox_gives_the_known_answers() {
    for known in read("constants")["philox4x32_10"].as_array().unwrap() {
        let [counter, key, out] = ["counter", "key", "out"].map(|name| words(&known[name]));
        let found = philox4x32(counter.try_into().unwrap(), key.try_into().unwrap());
        assert_eq!(found.to_vec(), out);
    }
}

#[test]
fn dropout_keeps_what_the_oracle_keeps() {
    let wanted = &read("constants")["keep"];
    let count = |key: &str| wanted[key].as_u64().unwrap();
    let mask = Mask {
        threshold: threshold(wanted["dropout"].as_f64().unwrap()),
        seed: count("seed"),
        stream: 7 * count("layer") as u32 + 3,
        micro: count("micro") as u32,
    };
    let kept = mask.apply(&vec![1.0; (count("rows") * count("k")) as usize]);
    let rows = kept.chunks(count("k") as usize);
    let rows: Vec<String> = rows
        .map(|row| row.iter().map(|x| x.to_string()).collect())
        .collect();
    assert_eq!(wanted["kept"], serde_json::json!(rows));
}

#[test]
fn schedules_give_the_learning_rates() {
    let c = read("constants");
    let of = &c["learning_rate_of"];
    let number = |key: &str| of[key].as_f64().unwrap();
    let count = |key: &str| of[key].as_u64().unwrap() as u32;
    for (name, decay) in [
        ("cosine", Decay::Cosine),
        ("linear", Decay::Linear),
        ("constant", Decay::Constant),
    ] {
        let schedule = Schedule {
            decay,
            lr: number("lr"),
            lr_min: number("lr_min"),
            warmup: count("warmup"),
            total: count("total"),
        };
        for (step, wanted) in (1..).zip(c["learning_rate"][name].as_array().unwrap()) {
            let (found, wanted) = (schedule.rate(step), wanted.as_f64().unwrap());
            assert!(
                (found - wanted).abs() <= 1e-15 * wanted,
                "{name}, step {step}: {found}, wanted {wanted}"
            );
        }
    }
}
