//! Recognizes paths and files that are not GGUF files, for error messages that name the remedy.

use std::fs::Metadata;
use std::os::unix::fs::FileTypeExt;

/// Other files that are mistaken for models: the offset and bytes of a signature, then the kind of
/// file and the remedy.
#[rustfmt::skip] // one kind a line
const KINDS: [(usize, &[u8], &str); 10] = [
    (8, b"{", "it is a safetensors file; name the folder that it is in"),
    (0, b"PK\x03\x04", "it is a zip archive, as PyTorch writes; convert the model with llama.cpp's convert_hf_to_gguf.py"),
    (0, b"\x80\x02", "it is a Python pickle; convert the model with llama.cpp's convert_hf_to_gguf.py"),
    (0, b"tjgg", "it is a GGML file, older than GGUF; convert it with llama.cpp's convert_llama_ggml_to_gguf.py"),
    (0, b"fmgg", "it is a GGML file, older than GGUF; convert it with llama.cpp's convert_llama_ggml_to_gguf.py"),
    (0, b"lmgg", "it is a GGML file, older than GGUF; convert it with llama.cpp's convert_llama_ggml_to_gguf.py"),
    (0, b"version https://git-lfs", "it is a Git LFS pointer; fetch the file itself with `git lfs pull`"),
    (0, b"<", "it looks like a web page; download the file itself"),
    (0, b"\x1f\x8b", "it is compressed with gzip; decompress it first"),
    (0, b"\x28\xb5\x2f\xfd", "it is compressed with zstd; decompress it first"),
];

/// Returns a description of a file that does not begin as GGUF does.
pub(crate) fn named(file: &[u8]) -> String {
    known(file).map_or_else(
        || {
            format!(
                "it starts with {:02x?}, not with \"GGUF\"",
                &file[..file.len().min(4)]
            )
        },
        str::to_owned,
    )
}

/// Returns the kind of a file that is often mistaken for a model, or `None` if it is not known.
pub(crate) fn known(file: &[u8]) -> Option<&'static str> {
    let begins = |at: usize, with: &[u8]| file.get(at..).is_some_and(|rest| rest.starts_with(with));
    KINDS
        .iter()
        .find(|(at, with, _)| begins(*at, with))
        .map(|(_, _, what)| *what)
}

/// Returns the kind of a path that does not lead to a file.
pub(crate) fn of(metadata: &Metadata) -> Option<&'static str> {
    let kind = metadata.file_type();
    [
        (kind.is_dir(), "a folder where a file is expected"),
        (
            kind.is_fifo(),
            "a pipe; a model is mapped into memory, so write it to a file first",
        ),
        (
            kind.is_socket(),
            "a socket; a model is mapped into memory, so write it to a file first",
        ),
        (
            kind.is_char_device() || kind.is_block_device(),
            "a device; name a .gguf file",
        ),
    ]
    .into_iter()
    .find_map(|(is, what)| is.then_some(what))
}
