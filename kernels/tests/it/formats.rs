//! Tests of the blocks of every format against the Python package `gguf`. `data/formats.py` writes
//! the expected values.

use serde_json::Value;
use warpwright_kernels::Format;

fn hex(value: &Value) -> Vec<u8> {
    let text = value.as_str().expect("a string");
    (0..text.len() / 2)
        .map(|i| u8::from_str_radix(&text[2 * i..][..2], 16).expect("hexadecimal"))
        .collect()
}

#[test]
fn every_format_is_read_as_gguf_reads_it() {
    let file: Value = serde_json::from_str(include_str!("../data/formats.json")).expect("JSON");
    let formats = file["formats"].as_array().expect("a list");
    let names: Vec<_> = formats
        .iter()
        .map(|format| format["name"].as_str().expect("a name"))
        .collect();
    assert_eq!(names, Format::ALL.map(Format::name));
    for (format, expected) in Format::ALL.into_iter().zip(formats) {
        assert_eq!(
            Format::from_ggml_type(expected["type"].as_u64().expect("a number") as u32),
            Some(format)
        );
        assert_eq!(
            u64::from(format.block_len()),
            expected["length"],
            "{}",
            format.name()
        );
        for block in expected["blocks"].as_array().expect("a list") {
            let bytes = hex(&block["bytes"]);
            assert_eq!(
                format.block_bytes() as usize,
                bytes.len(),
                "{}",
                format.name()
            );
            let bits: Vec<_> = format
                .dequantize(&bytes)
                .iter()
                .flat_map(|w| w.to_le_bytes())
                .collect();
            assert!(
                bits == hex(&block["weights"]),
                "{}: {}",
                format.name(),
                block["bytes"]
            );
        }
    }

    assert_eq!(Format::from_ggml_type(16), None, "IQ2_XXS has no kernel");
}
