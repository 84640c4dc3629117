//! The bytes of a model on a device.

use warpwright_engine::info::token_bytes;
use warpwright_model::{Model, info};

#[test]
fn a_token_of_the_small_model_reads_a_tied_embedding_whole() {
    let outline = Model::open(&crate::asset()).unwrap().outline;
    let all: u64 = info::classes(&outline).iter().map(|c| c.bytes).sum();
    assert_eq!(
        token_bytes(&outline),
        all + 210,
        "the tied embedding is read whole, and one row again"
    );
}
