//! What the reader reads, and how it refuses what lies.

use warpwright_model::gguf::writer::{Head, Scalar, padding};
use warpwright_model::gguf::{Directory, Gguf, TENSOR_TYPES, Value};

use crate::write::{File, Val};

/// A small file with one of everything.
fn sample() -> File {
    File::default()
        .pair("general.architecture", Val::Str("llama".into()))
        .pair("flag", Val::Bool(true))
        .pair("names", Val::Strs(vec!["a".into(), "b".into()]))
        .tensor("one", &[8], 0, vec![1; 32])
        .tensor("two", &[32, 2], 8, vec![2; 68])
}

fn fault(bytes: &[u8]) -> String {
    Directory::read(bytes).unwrap_err().to_string()
}

/// `bytes` with some replaced.
fn with(mut bytes: Vec<u8>, at: usize, new: &[u8]) -> Vec<u8> {
    bytes[at..at + new.len()].copy_from_slice(new);
    bytes
}

#[test]
fn reads_what_was_written() {
    let bytes = sample().bytes();
    let directory = Directory::read(&bytes).unwrap();
    assert_eq!(directory.version, 3);
    assert_eq!(directory.metadata["flag"], Value::Bool(true));
    let Value::Array(names) = &directory.metadata["names"] else {
        panic!("no array")
    };

    assert_eq!(names.strings().unwrap().collect::<Vec<_>>(), ["a", "b"]);
    assert_eq!(names.values().next(), Some(Value::String("a".into())));
    assert_eq!(
        (names.len(), names.to_string().as_str()),
        (2, "an array of 2")
    );
    let two = &directory.tensors["two"];
    assert_eq!((two.dims.as_slice(), two.kind.name), (&[32, 2][..], "Q8_0"));
    assert_eq!(bytes[two.range.clone()], [2; 68]);
}

#[test]
fn the_types_are_distinct() {
    for (i, a) in TENSOR_TYPES.iter().enumerate() {
        for b in &TENSOR_TYPES[..i] {
            assert!(a.id > b.id && a.name != b.name, "{} and {}", a.name, b.name);
        }
    }
}

#[test]
fn refuses_a_wrong_header() {
    let bytes = sample().bytes();
    let cases: &[(Vec<u8>, &str)] = &[
        (
            b"GG".to_vec(),
            "the file ends inside the magic number: 4 bytes are needed at offset 0, 2 are left",
        ),
        (
            with(bytes.clone(), 0, b"GGML"),
            "not a GGUF file: it starts with [47, 47, 4d, 4c], not with \"GGUF\"",
        ),
        (
            with(bytes.clone(), 4, &[1]),
            "GGUF version 1; versions 2 and 3 are supported",
        ),
        (
            with(bytes.clone(), 4, &[4]),
            "GGUF version 4; versions 2 and 3 are supported",
        ),
        (
            with(bytes.clone(), 4, &[0, 0, 0, 3]),
            "a big-endian GGUF file; only little-endian ones are supported",
        ),
        (
            with(bytes.clone(), 8, &[0xff; 8]),
            "the header counts 18446744073709551615 tensors, but the 300 bytes that follow hold at most 9",
        ),
        (
            with(bytes.clone(), 16, &[200]),
            "the header counts 200 metadata pairs, but the 300 bytes that follow hold at most 23",
        ),
        (
            with(bytes.clone(), 24, &[0xff; 8]),
            "the file ends inside the name of metadata pair 0: \
             18446744073709551615 bytes are needed at offset 32, 292 are left",
        ),
        (
            with(bytes.clone(), 32, &[0xff]),
            "the name of metadata pair 0 is not UTF-8",
        ),
    ];
    for (bytes, message) in cases {
        assert_eq!(fault(bytes), *message);
    }
}

#[test]
fn refuses_wrong_metadata() {
    let deep = [[9, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0].as_slice(); 4].concat();
    let cases: &[(&str, Val, &str)] = &[
        (
            "k",
            Val::Raw(13, vec![]),
            "key \"k\" has value type 13; GGUF defines 0 to 12",
        ),
        (
            "k",
            Val::Raw(7, vec![2]),
            "key \"k\" is a bool of value 2; 0 and 1 are allowed",
        ),
        (
            "k",
            Val::Raw(8, vec![1, 0, 0, 0, 0, 0, 0, 0, 0x80]),
            "key \"k\" is not UTF-8",
        ),
        (
            "k",
            Val::Raw(9, deep),
            "key \"k\" nests arrays deeper than 3",
        ),
        (
            "k",
            Val::Raw(9, [&[0; 4][..], &[0xff; 8]].concat()),
            "key \"k\" is an array of 18446744073709551615, but the 198 bytes that follow hold at most 198",
        ),
        (
            "general.alignment",
            Val::U32(24),
            "general.alignment is 24; it must be an unsigned power of two from 1 to 2^30",
        ),
        (
            "general.alignment",
            Val::Str("x".into()),
            "general.alignment is \"x\"; it must be an unsigned power of two from 1 to 2^30",
        ),
    ];
    for (key, value, message) in cases {
        assert_eq!(fault(&sample().pair(key, value.clone()).bytes()), *message);
    }

    let mut twice = sample();
    twice.pairs.push(("flag".into(), Val::Bool(false)));
    assert_eq!(fault(&twice.bytes()), "key \"flag\" appears twice");
}

#[test]
fn refuses_wrong_tensors() {
    let big = 1 << 40;
    let cases: &[(File, &str)] = &[
        (
            sample().edit("two", |t| t.dims = vec![]),
            "tensor \"two\" has 0 dimensions; 1 to 4 are allowed",
        ),
        (
            sample().edit("two", |t| t.dims = vec![1; 5]),
            "tensor \"two\" has 5 dimensions; 1 to 4 are allowed",
        ),
        (
            sample().edit("two", |t| t.dims = vec![32, 0]),
            "tensor \"two\" has shape [32, 0]: a dimension is zero",
        ),
        (
            sample().edit("two", |t| t.dims = vec![big, big]),
            "tensor \"two\" has shape [1099511627776, 1099511627776]: its size does not fit 64 bits",
        ),
        (
            sample().edit("two", |t| t.kind = 4),
            "tensor \"two\" has type number 4, which ggml does not define",
        ),
        (
            sample().edit("two", |t| t.dims = vec![33]),
            "tensor \"two\" is Q8_0 with rows of 33 elements; Q8_0 needs a multiple of 32",
        ),
        (
            sample().edit("two", |t| t.offset = Some(33)),
            "tensor \"two\" lies at data offset 33, which is not a multiple of 32",
        ),
        (
            sample().edit("two", |t| t.offset = Some(64)),
            "tensor \"two\" needs 68 bytes at data offset 64, but the file has 100 bytes of data",
        ),
        (
            sample().edit("two", |t| t.offset = Some(u64::MAX - 31)),
            "tensor \"two\" needs 68 bytes at data offset 18446744073709551584, \
             but the file has 100 bytes of data",
        ),
        (
            sample().edit("two", |t| t.offset = Some(0)),
            "tensors \"one\" and \"two\" overlap",
        ),
        (
            sample().edit("two", |t| t.name = "one".into()),
            "tensor \"one\" appears twice",
        ),
    ];
    for (file, message) in cases {
        assert_eq!(fault(&file.bytes()), *message);
    }
}

#[test]
fn refuses_every_truncation() {
    let bytes = sample().bytes();
    for len in 0..bytes.len() {
        fault(&bytes[..len]);
    }
}

/// Damages a real file's directory in thousands of ways: each is read or refused, none panics, and what is
/// read lies inside the file.
#[test]
fn survives_mutations() {
    let original = std::fs::read(crate::asset()).unwrap();
    let directory = Directory::read(&original).unwrap();
    let end = directory
        .tensors
        .values()
        .map(|t| t.range.start)
        .min()
        .unwrap();

    // The vocabulary's thousands of strings are all alike; the fields around them are not.
    let places: Vec<usize> = (0..1200).chain(end - 2200..end).collect();
    let mut state = 1u64;
    let mut random = |below: usize| {
        state = state
            .wrapping_mul(6364136223846793005)
            .wrapping_add(1442695040888963407);
        (state >> 33) as usize % below
    };
    let mut bytes = original.clone();
    let mut refused = 0;
    for _ in 0..2000 {
        let at = places[random(places.len())];
        let new = match random(4) {
            0 => vec![0xff; 1 + random(8)],
            1 => vec![0; 1 + random(8)],
            2 => vec![bytes[at] ^ (1 << random(8))],
            _ => (0..4).map(|_| random(256) as u8).collect(),
        };
        bytes[at..at + new.len()].copy_from_slice(&new);
        let len = if random(8) == 0 {
            random(end)
        } else {
            bytes.len()
        };
        match Directory::read(&bytes[..len]) {
            Ok(directory) => assert!(directory.tensors.values().all(|t| t.range.end <= len)),
            Err(fault) => refused += usize::from(!fault.to_string().is_empty()),
        }

        bytes[at..at + new.len()].copy_from_slice(&original[at..at + new.len()]);
    }

    assert!(refused > 100, "only {refused} mutations were refused");
}

/// Control characters of a file never reach a terminal.
#[test]
fn names_are_shown_harmless() {
    let evil = "a\u{1b}]0;title\u{7}";
    let shown = "\"a\\u{1b}]0;title\\u{7}\"";
    let mut twice = sample().pair(evil, Val::Bool(true));
    twice.pairs.push((evil.into(), Val::Bool(false)));
    assert_eq!(fault(&twice.bytes()), format!("key {shown} appears twice"));
    let raw = sample().pair(evil, Val::Raw(13, vec![]));
    assert_eq!(
        fault(&raw.bytes()),
        format!("key {shown} has value type 13; GGUF defines 0 to 12")
    );
    let tensor = sample().edit("two", |t| (t.name, t.dims) = (evil.into(), vec![]));
    assert_eq!(
        fault(&tensor.bytes()),
        format!("tensor {shown} has 0 dimensions; 1 to 4 are allowed")
    );
    let alignment = sample().pair("general.alignment", Val::Str(evil.into()));
    let wanted = "it must be an unsigned power of two from 1 to 2^30";
    assert_eq!(
        fault(&alignment.bytes()),
        format!("general.alignment is {shown}; {wanted}")
    );
    let long = sample().pair("general.alignment", Val::Str("x".repeat(1000)));
    assert_eq!(
        fault(&long.bytes()).len(),
        format!("general.alignment is \"\"...; {wanted}").len() + 200
    );
}

#[test]
fn says_what_another_file_is() {
    let safetensors = [
        &200u64.to_le_bytes()[..],
        b"{\"model.embed_tokens.weight\":{}}",
    ]
    .concat();
    for (bytes, begins) in [
        (
            &safetensors[..],
            "it is a safetensors file; name the folder that it is in",
        ),
        (b"PK\x03\x04\0\0\0\0", "it is a zip archive"),
        (b"\x80\x02}q\0\0\0\0", "it is a Python pickle"),
        (b"tjgg\x03\0\0\0", "it is a GGML file, older than GGUF"),
        (
            b"version https://git-lfs.github.com/spec/v1",
            "it is a Git LFS pointer",
        ),
        (b"<!DOCTYPE html>", "it looks like a web page"),
        (b"\x1f\x8b\x08\0\0\0", "it is compressed with gzip"),
    ] {
        let found = fault(bytes);
        assert!(
            found.starts_with(&format!("not a GGUF file: {begins}")),
            "{found}"
        );
    }
}

#[test]
fn says_what_a_path_is() {
    let folder = std::path::Path::new(env!("CARGO_TARGET_TMPDIR"));
    let refusal = |path: &std::path::Path| Gguf::open(path).unwrap_err().to_string();
    let wanted = format!("{} is a folder where a file is expected", folder.display());
    assert_eq!(refusal(folder), wanted);
    let pipe = folder.join("pipe.gguf");
    if !pipe.exists() {
        assert!(
            std::process::Command::new("mkfifo")
                .arg(&pipe)
                .status()
                .unwrap()
                .success()
        );
    }

    let wanted = "is a pipe; a model is mapped into memory, so write it to a file first";
    assert_eq!(refusal(&pipe), format!("{} {wanted}", pipe.display()));
    assert_eq!(
        refusal("/dev/null".as_ref()),
        "/dev/null is a device; name a .gguf file"
    );
}

#[test]
fn names_the_file() {
    let error = Gguf::open("/no/such.gguf".as_ref()).unwrap_err();
    assert_eq!(
        error.to_string(),
        "cannot open /no/such.gguf: No such file or directory (os error 2)"
    );
    let path = crate::scratch("empty.gguf");
    std::fs::write(&path, b"").unwrap();
    let error = Gguf::open(&path).unwrap_err().to_string();
    assert!(
        error.ends_with(
            "empty.gguf: the file ends inside the magic number: 4 bytes are needed at offset 0, 0 are left"
        ),
        "{error}"
    );
}

/// What the writer of the library begins a file with, the tests' own writer begins it with too.
#[test]
fn the_writer_writes_what_is_read() {
    let kind = |name: &str| TENSOR_TYPES.iter().find(|kind| kind.name == name).unwrap();
    let head = Head::default()
        .pair("general.architecture", Scalar::Text("llama"))
        .pair("llama.block_count", Scalar::U32(7))
        .pair("llama.rope.freq_base", Scalar::F32(1e4))
        .tensor("odd", &[3], kind("F32"))
        .tensor("blocks", &[32, 5], kind("Q8_0"))
        .tensor("last", &[4, 2, 2], kind("F16"));
    let data = [vec![1; 12], vec![2; 170], vec![3; 32]];
    let with_padding = data
        .iter()
        .map(|data| [data, padding(data.len() as u64)].concat());
    let found = [head.bytes(), with_padding.collect::<Vec<_>>().concat()].concat();
    let [odd, blocks, last] = data;
    let wanted = File::default()
        .pair("general.architecture", Val::Str("llama".into()))
        .pair("llama.block_count", Val::U32(7))
        .pair("llama.rope.freq_base", Val::F32(1e4))
        .tensor("odd", &[3], 0, odd)
        .tensor("blocks", &[32, 5], 8, blocks)
        .tensor("last", &[4, 2, 2], 1, last);
    assert_eq!(found, wanted.bytes());
    let read = Directory::read(&found).unwrap();
    assert_eq!(
        (read.version, read.metadata.len(), read.tensors.len()),
        (3, 3, 3)
    );
}
