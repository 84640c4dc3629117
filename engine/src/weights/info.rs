//! The bytes of a model on a device. [`warpwright_model::info`] has the facts that do not depend on
//! the buffers.

use warpwright_model::info::{share_of_token, share_of_tokens};
use warpwright_model::{Layer, Outline, Weight};

use crate::weights::lora_tiles;
use crate::weights::packed::packed;

/// Returns the bytes of all weights on a device, which [`Decoder::new`](crate::Decoder::new)
/// copies.
///
/// They are the same for the pipeline and for the simple kernels, because packing only moves bits.
/// The padding of rows to whole tiles is not counted.
pub fn weight_bytes(model: &Outline) -> u64 {
    packed(model)
        .iter()
        .map(|stored| stored.file_bytes() as u64)
        .sum()
}

/// Returns the bytes on a device that the pipeline adds to the weights, because it pads rows to whole
/// tiles.
pub(crate) fn padding_bytes(model: &Outline) -> u64 {
    packed(model)
        .iter()
        .map(|stored| (stored.bytes() - stored.file_bytes()) as u64)
        .sum()
}

/// Returns the bytes of an adapter on a device, or 0 without one: its matrices, padded with zeros,
/// and the intermediate results of a few tokens.
pub fn adapter_bytes(model: &Outline) -> u64 {
    lora_tiles::bytes(model)
}

/// Returns the bytes of weights that one token reads. It reads everything but the embedding, of
/// which it reads one row, unless the embedding is also the LM head. Of a mixture of experts, it
/// reads the chosen ones.
pub fn token_bytes(model: &Outline) -> u64 {
    read_bytes(model, 1, share_of_token)
}

/// Returns the bytes of weights that `tokens` tokens read together, each row of the embedding by one
/// of them. Of a mixture of experts, they are the mean if each token chooses its experts at random.
pub fn step_bytes(model: &Outline, tokens: u32) -> u64 {
    read_bytes(model, tokens, |layer, weight, bytes| {
        share_of_tokens(layer, weight, bytes, tokens)
    })
}

/// Returns the bytes of weights that tokens read, of which `share` is the read part of a matrix.
fn read_bytes(model: &Outline, tokens: u32, share: impl Fn(&Layer, &Weight, u64) -> u64) -> u64 {
    let embed = packed(model)
        .embed
        .map_or(0, |stored| stored.file_bytes() as u64);
    let layers = model.config.layers.iter().zip(&model.weights.blocks);
    let unread = layers.flat_map(|(layer, block)| {
        let share = &share;
        block.expert_matrices().map(move |weight| {
            let bytes = weight.range.len() as u64;
            bytes - share(layer, weight, bytes)
        })
    });
    let row = model.weights.embed.range.len() as u64 / u64::from(model.config.vocab);
    weight_bytes(model) - embed - unread.sum::<u64>() + u64::from(tokens) * row
}

#[cfg(test)]
mod tests {
    use warpwright_model::info::kv_bytes;
    use warpwright_model::shape::{QUANTIZATIONS, SHAPES};

    use super::*;

    fn outline(shape: &str, quantization: &str) -> Outline {
        let shape = SHAPES.iter().find(|s| s.name == shape).unwrap();
        Outline::of(
            shape,
            *QUANTIZATIONS
                .iter()
                .find(|q| q.name == quantization)
                .unwrap(),
        )
        .unwrap()
    }

    /// The rows of 2,880 weights have 192 more on the device. Those of the output projection, which
    /// has 4,096 inputs, have none.
    #[test]
    fn rows_of_gpt_oss_are_padded() {
        let outline = outline("gpt-oss-20b", "mxfp4");
        let q8_0 = (24 * 5120 + 201_088) * (192 / 32 * 34);
        let mxfp4 = 24 * 32 * 3 * 2880 * (192 / 32 * 17);
        assert_eq!(padding_bytes(&outline), q8_0 + mxfp4);

        // 2.6 GB with the biases of all experts, of which the embedding is one row.
        assert_eq!(token_bytes(&outline) / 1_000_000, 2_597);
    }

    #[test]
    fn bytes_are_those_of_the_real_files() {
        // Weights, without an embedding that is not the head; keys and values of a position. By
        // hand, from the shapes; llama.cpp counts 4617.4 MB and 980.1 MB in its files of the first
        // and the last.
        let cases = [
            ("llama3.1-8b", "q4_k_m", 4_617_396_224, 128 << 10),
            ("llama3.1-8b", "q4_0", 4_357_873_664, 128 << 10),
            ("llama3.1-8b", "q5_k_m", 5_363_982_336, 128 << 10),
            ("llama3.1-8b", "bf16", 15_010_381_824, 128 << 10),
            ("qwen3-8b", "q4_k_m", 4_671_766_528, 144 << 10),
            ("qwen2.5-1.5b", "q4_k_m", 980_097_536, 28 << 10),
            // Of 128 experts, a token reads eight.
            ("qwen3-30b-a3b", "q4_k_m", 1_919_596_544, 96 << 10),
        ];
        for (shape, quantization, weights, kv) in cases {
            let outline = outline(shape, quantization);
            let row = outline.weights.embed.range.len() as u64 / u64::from(outline.config.vocab);
            assert_eq!(
                token_bytes(&outline) - row,
                weights,
                "{shape} {quantization}"
            );
            assert_eq!(kv_bytes(&outline), kv, "{shape}");
            assert!(weight_bytes(&outline) >= weights, "{shape} {quantization}");
        }
    }
}
