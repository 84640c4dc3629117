//! What `info` tells.

use warpwright_engine::{Model, info};

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
    assert_eq!((v.dims.as_slice(), v.formats.values().sum::<usize>()), (&[256, 128][..], 8));
    let all: u64 = classes.iter().map(|c| c.bytes).sum();
    assert_eq!(
        info::token_bytes(&model.outline),
        all + 210,
        "the tied embedding is read whole, and one row again"
    );
    assert_eq!(info::kv_bytes(&model.outline), 8 * 2 * 128 * 2);
}
