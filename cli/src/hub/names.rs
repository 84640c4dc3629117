//! Names of files on the hub: checks of their safety, and the quantization in a name.

/// The prefix that distinguishes a name on the hub from a path.
pub(crate) const PREFIX: &str = "hf:";

/// Returns the problem of a name that could leave the folder it is joined to, on any system.
///
/// Names come from a server, so they are not trusted. A colon is refused because it follows a drive
/// letter on Windows.
pub(super) fn problem(name: &str) -> Option<&'static str> {
    if name.is_empty() {
        return Some("the file's name is empty");
    }
    if name.len() > 1024 || name.split('/').any(|part| part.len() > 255) {
        return Some("the file's name is too long");
    }
    if name.contains('\\') {
        return Some("the file's name contains a backslash");
    }
    if name.contains(':') {
        return Some("the file's name contains a colon");
    }
    if name.chars().any(char::is_control) {
        return Some("the file's name contains a control character");
    }
    if name.starts_with('/') {
        return Some("the file's name is an absolute path");
    }
    if name.split('/').any(|part| matches!(part, "" | "." | "..")) {
        return Some("the file's name has a part that is empty, '.' or '..'");
    }

    None
}

/// Returns true if the file is a model or a part of one, and not an addition such as a projector
/// (mmproj).
pub(super) fn is_gguf_model(name: &str) -> bool {
    let base = base(name).to_ascii_lowercase();
    base.ends_with(".gguf") && !base.starts_with("mmproj") && !base.starts_with("imatrix")
}

/// The name of a part of a model in several files, such as `model-00001-of-00003.gguf`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct PartName<'a> {
    /// The folders and the name before the number of the part.
    model: &'a str,
    /// The number of the part, from 1.
    pub(super) part: u32,
    /// The number of parts, at least 2.
    pub(super) count: u32,
    /// `.gguf`, in upper or lower case.
    extension: &'a str,
}

impl<'a> PartName<'a> {
    /// Returns `None` if the name is not that of a part.
    pub(super) fn of(name: &'a str) -> Option<PartName<'a>> {
        let stem = stem(name);
        let (model, part, count) = split_suffix(stem)?;
        let start = name.len() - base(name).len();
        let extension = &name[start + stem.len()..];
        let known = !extension.is_empty() && count > 1 && (1..=count).contains(&part);
        known.then(|| PartName {
            model: &name[..start + model.len()],
            part,
            count,
            extension,
        })
    }

    /// Returns the name of another part of the model, from 1.
    pub(super) fn other(&self, part: u32) -> String {
        let PartName {
            model,
            count,
            extension,
            ..
        } = self;
        format!("{model}-{part:05}-of-{count:05}{extension}")
    }

    /// Returns the name of the first part, by which the model is opened.
    pub(super) fn first(&self) -> String {
        self.other(1)
    }
}

/// Returns the name of a file, or the name of the first part if it is a part of a model.
pub(super) fn model(name: &str) -> String {
    PartName::of(name).map_or_else(|| name.to_owned(), |part| part.first())
}

/// Returns the quantization that a file's name ends with, in upper case, for example `Q4_K_M` or
/// `UD-Q4_K_XL`.
///
/// If the name has none, the name of its folder is used. If it has several, as in
/// `model-Q4_K_M-F16.gguf`, the result contains all of them, because the name does not say which
/// one counts.
pub(super) fn quantization(name: &str) -> Option<String> {
    let (folders, _) = name.rsplit_once('/').unwrap_or(("", name));
    let stem = stem(name);
    let stem = split_suffix(stem).map_or(stem, |(stem, ..)| stem);
    labels(stem).or_else(|| folders.rsplit('/').find_map(labels))
}

/// Returns true if a label is the wanted quantization. Case is ignored.
///
/// The prefix `UD-` may be left out, because it stands for a recipe and not for another format.
pub(super) fn is_quantization(label: &str, wanted: &str) -> bool {
    let plain = label.strip_prefix("UD-").unwrap_or(label);
    label.eq_ignore_ascii_case(wanted) || plain.eq_ignore_ascii_case(wanted)
}

fn base(name: &str) -> &str {
    name.rsplit_once('/').map_or(name, |(_, base)| base)
}

/// Returns the file name without its folders and `.gguf`.
fn stem(name: &str) -> &str {
    let base = base(name);
    match base.len().checked_sub(".gguf".len()) {
        Some(at) if base.is_char_boundary(at) && base[at..].eq_ignore_ascii_case(".gguf") => {
            &base[..at]
        }
        Some(_) | None => base,
    }
}

/// Splits `model-00001-of-00003` into `model`, 1 and 3.
fn split_suffix(stem: &str) -> Option<(&str, u32, u32)> {
    let (rest, count) = stem.rsplit_once("-of-")?;
    let (model, part) = rest.rsplit_once('-')?;
    let digits = |text: &str| text.len() == 5 && text.bytes().all(|byte| byte.is_ascii_digit());
    if !digits(part) || !digits(count) {
        return None;
    }
    Some((model, part.parse().ok()?, count.parse().ok()?))
}

/// Returns the quantizations in a text, which are separated by dots and dashes. The result joins
/// them with dashes.
fn labels(text: &str) -> Option<String> {
    let mut found: Vec<String> = vec![];
    let mut dynamic = false;
    for token in text.split(['-', '.']) {
        // In `mistral_7b_Q4_K_M` an underscore separates the name as well: the first suffix that is
        // a format counts.
        let starts = [0]
            .into_iter()
            .chain(token.match_indices('_').map(|(at, _)| at + 1));
        let label = starts
            .map(|at| token[at..].to_ascii_uppercase())
            .find(|label| is_format(label));
        if let Some(label) = label {
            found.push(if dynamic {
                format!("UD-{label}")
            } else {
                label
            });
        }

        dynamic = token.eq_ignore_ascii_case("UD");
    }

    if found.is_empty() {
        None
    } else {
        Some(found.join("-"))
    }
}

/// Returns true if a word in upper case is a format of weights, such as `Q4_K_M`, `IQ4_NL`, `TQ1_0`
/// or `BF16`.
fn is_format(word: &str) -> bool {
    const PLAIN: &[&str] = &[
        "F16",
        "F32",
        "F64",
        "FP16",
        "FP32",
        "BF16",
        "MXFP4",
        "MXFP4_MOE",
        "NVFP4",
    ];
    if PLAIN.contains(&word) {
        return true;
    }

    let Some(rest) = ["IQ", "TQ", "Q"]
        .iter()
        .find_map(|prefix| word.strip_prefix(prefix))
    else {
        return false;
    };

    let mut pieces = rest.split('_');
    let bits = pieces
        .next()
        .is_some_and(|bits| matches!(bits.as_bytes(), [b'1'..=b'8']));
    bits && pieces.all(|piece| {
        matches!(
            piece,
            "K" | "S" | "M" | "L" | "XS" | "XXS" | "XL" | "XXL" | "NL" | "0" | "1" | "4" | "8"
        )
    })
}

#[cfg(test)]
mod tests {
    use super::{PartName, is_gguf_model, is_quantization, problem, quantization};

    #[test]
    fn names_that_leave_a_folder_are_refused() {
        let long = "x".repeat(256);
        for name in [
            "",
            "..",
            "../x",
            "a/../x",
            "a/..",
            "/x",
            "//x",
            "a//b",
            "a/",
            ".",
            "./a",
            "a/./b",
            "a\\b",
            "..\\x",
            "C:x",
            "C:\\x",
            "c:/x",
            "a:b",
            "a\0",
            "a\nb",
            "\u{1b}[2J",
            "\\\\host\\x",
            &long,
        ] {
            assert!(problem(name).is_some(), "{name:?}");
        }
        for name in [
            "x.gguf",
            "a/b/x.gguf",
            "größer 1.gguf",
            "..x",
            "x..gguf",
            ".gitattributes",
            "a b",
            "~/x",
            "-x",
        ] {
            assert_eq!(problem(name), None, "{name:?}");
        }
    }

    #[test]
    fn quantizations_are_read_from_names() {
        let cases = [
            ("model-Q4_K_M.gguf", Some("Q4_K_M")),
            ("model.q4_k_m.gguf", Some("Q4_K_M")),
            ("model_7b_Q4_K_M.GGUF", Some("Q4_K_M")),
            ("Q4_K_M.gguf", Some("Q4_K_M")),
            ("a/model-Q8_0.gguf", Some("Q8_0")),
            ("Q4_K_M/model.gguf", Some("Q4_K_M")),
            ("Q4_K_M/model-Q8_0.gguf", Some("Q8_0")),
            ("BF16/x/model-00001-of-00002.gguf", Some("BF16")),
            ("model-Q4_K_M-00001-of-00003.gguf", Some("Q4_K_M")),
            ("Qwen3-8B-UD-Q4_K_XL.gguf", Some("UD-Q4_K_XL")),
            ("gemma-3n-E4B-it-IQ4_NL.gguf", Some("IQ4_NL")),
            ("phi-2.Q5_0.gguf", Some("Q5_0")),
            ("model-Q4_0_4_4.gguf", Some("Q4_0_4_4")),
            ("model-BF16.gguf", Some("BF16")),
            ("model-f16.gguf", Some("F16")),
            ("model-TQ1_0.gguf", Some("TQ1_0")),
            ("model-Q4_K_M-F16.gguf", Some("Q4_K_M-F16")),
            ("model-MXFP4_MOE.gguf", Some("MXFP4_MOE")),
            ("Llama-3.2-1B-Instruct.gguf", None),
            ("Qwen3-8B.gguf", None),
            ("model-Q4_K_MX.gguf", None),
            ("model-Q9_K.gguf", None),
            ("model-Q.gguf", None),
            ("ü.gguf", None),
            ("gguf", None),
            ("", None),
        ];
        for (name, label) in cases {
            assert_eq!(quantization(name).as_deref(), label, "{name}");
        }
    }

    #[test]
    fn quantizations_are_compared_whole() {
        for (label, wanted) in [
            ("Q4_K_M", "q4_k_m"),
            ("UD-Q4_K_XL", "Q4_K_XL"),
            ("UD-Q4_K_XL", "ud-q4_k_xl"),
        ] {
            assert!(is_quantization(label, wanted), "{label} {wanted}");
        }
        for (label, wanted) in [
            ("Q4_K_M", "Q4_K"),
            ("Q4_K", "Q4_K_M"),
            ("IQ4_NL", "Q4_NL"),
            ("BF16", "F16"),
            ("Q4_0_4_4", "Q4_0"),
            ("Q4_K_M-F16", "Q4_K_M"),
            ("Q4_K_M", ""),
            ("Q4_K_XL", "UD-Q4_K_XL"),
        ] {
            assert!(!is_quantization(label, wanted), "{label} {wanted}");
        }
    }

    #[test]
    fn parts_and_additions_are_recognized() {
        let cases = [
            (
                "m-00001-of-00003.gguf",
                Some((1, 3, "m-00001-of-00003.gguf")),
            ),
            (
                "a/m-00003-of-00003.GGUF",
                Some((3, 3, "a/m-00001-of-00003.GGUF")),
            ),
            ("m-00001-of-00001.gguf", None),
            ("m-00000-of-00002.gguf", None),
            ("m-00003-of-00002.gguf", None),
            ("m-1-of-3.gguf", None),
            ("m.gguf", None),
            ("m-00001-of-00003", None),
            ("m-0000x-of-00003.gguf", None),
            ("-00001-of-00002.gguf", Some((1, 2, "-00001-of-00002.gguf"))),
        ];
        for (name, wanted) in cases {
            let found = PartName::of(name);
            let found = found.map(|part| (part.part, part.count, part.first()));
            let wanted = wanted.map(|(part, count, first)| (part, count, first.to_owned()));
            assert_eq!(found, wanted, "{name}");
        }
        for (name, is) in [
            ("m.gguf", true),
            ("m.GGUF", true),
            ("a/m.gguf", true),
            ("mmproj-F16.gguf", false),
            ("a/mmproj-m-f16.gguf", false),
            ("imatrix.gguf", false),
            ("m.safetensors", false),
            ("gguf", false),
        ] {
            assert_eq!(is_gguf_model(name), is, "{name}");
        }
    }
}
