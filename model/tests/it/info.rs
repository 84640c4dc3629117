//! What `info` tells.

use warpwright_model::{Model, info};

use crate::families::MODELS;

#[test]
fn counts_the_small_model() {
    let model = Model::open(&crate::asset()).unwrap();
    let classes = info::classes(&model.outline);
    let names: Vec<&str> = classes.iter().map(|c| c.name.as_str()).collect();
    assert_eq!(
        names,
        [
            "token_embd.weight",
            "attn_norm.weight",
            "attn_q.weight",
            "attn_k.weight",
            "attn_v.weight",
            "attn_output.weight",
            "ffn_norm.weight",
            "ffn_gate.weight",
            "ffn_up.weight",
            "ffn_down.weight",
            "output_norm.weight",
        ]
    );
    let v = &classes[4];
    assert_eq!(
        (v.dims.as_slice(), v.formats.values().sum::<usize>()),
        (&[256, 128][..], 8)
    );
    assert_eq!(info::kv_bytes(&model.outline), 8 * 2 * 128 * 2);
}

fn family(name: &str) -> Model {
    let model = MODELS.iter().find(|model| model.name == name).unwrap();
    Model::open(&model.file().save(&format!("info-{name}.gguf"))).unwrap()
}

#[test]
fn a_fused_tensor_is_one() {
    let outline = family("phi3").outline;
    let classes = info::classes(&outline);
    let class = |name: &str| classes.iter().find(|class| class.name == name).unwrap();

    // Rows of 256 weights, 8 blocks of 34 bytes; two layers.
    for (name, rows) in [
        ("attn_qkv.weight", 512),
        ("ffn_up.weight", 512),
        ("ffn_down.weight", 256),
    ] {
        let class = class(name);
        assert_eq!(
            (class.dims.as_slice(), class.bytes),
            (&[256, rows][..], 2 * rows * 8 * 34),
            "{name}"
        );
        assert_eq!(class.formats.values().sum::<usize>(), 2, "{name}");
    }

    assert!(
        classes
            .iter()
            .all(|class| class.name != "attn_q.weight" && class.name != "ffn_gate.weight")
    );
}

#[test]
fn a_window_bounds_what_a_token_reads() {
    let outline = family("gemma3").outline;
    // Six of seven layers have a window of 8 positions; 512 bytes for each position.
    assert_eq!(info::kv_bytes_read(&outline, 5), 512 * 7 * 5);
    assert_eq!(info::kv_bytes_read(&outline, 20), 512 * (6 * 8 + 20));
    assert_eq!(info::kv_bytes(&outline), 512 * 7);
}
