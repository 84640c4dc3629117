//! The key `quantization_config` of `config.json`. NF4 of bitsandbytes is supported, and MXFP4 as
//! gpt-oss has it.

use serde_json::Value;

use crate::folder::json::NamedObject;
use crate::problem::Problem;

/// Keys, and the only values of them that are read; a key that is missing has that value.
const ONLY: [(&str, Expected, &str); 4] = [
    (
        "quant_method",
        Expected::OneOf(&["bitsandbytes", "mxfp4"]),
        "\"bitsandbytes\" or \"mxfp4\"",
    ),
    (
        "load_in_8bit",
        Expected::Off,
        "false, as of bitsandbytes its 4-bit format NF4 is read",
    ),
    ("bnb_4bit_quant_type", Expected::OneOf(&["nf4"]), "\"nf4\""),
    (
        "bnb_4bit_quant_storage",
        Expected::OneOf(&["uint8"]),
        "\"uint8\"",
    ),
];

enum Expected {
    OneOf(&'static [&'static str]),
    Off,
}

/// Rejects weights in other formats. Settings about the computation are ignored, because they do
/// not change weights, and the tensors carry their own format.
pub(crate) fn check(config: NamedObject<'_>) -> Result<(), Problem> {
    let key = "quantization_config";
    let values = match config.get(key) {
        None => return Ok(()),
        Some(Value::Object(values)) => values,
        Some(_) => return config.wrong(key, "an object"),
    };
    let keys = NamedObject {
        values,
        prefix: "quantization_config.",
    };
    for (key, wanted, named) in &ONLY {
        let right = keys.get(key).is_none_or(|found| match wanted {
            Expected::OneOf(texts) => texts.iter().any(|text| found == text),
            Expected::Off => *found == Value::Bool(false),
        });
        let instead = "; give the folder of the 16-bit model, or a GGUF file";
        if !right {
            return keys.wrong(key, format!("{named}{instead}"));
        }
    }

    Ok(())
}
