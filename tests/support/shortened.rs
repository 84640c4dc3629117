//! A model with fewer layers, for tests that compare runs of one model with each other: on the emulator, the layers take
//! most of the time.

use std::path::Path;

use warpwright_model::gguf::Gguf;

/// The number of layers that are left.
const LAYERS: u32 = 2;

/// Returns the bytes of the GGUF file of a Llama with its first layers only.
pub(crate) fn shortened(path: &Path) -> Vec<u8> {
    let source = Gguf::open(path).expect("a model");
    let bytes = std::fs::read(path).expect("a model");
    let find = |what: &[u8]| {
        let mut places = bytes.windows(what.len());
        places.position(|place| place == what).expect("it is there")
    };
    let name = |name: &str| [&(name.len() as u64).to_le_bytes()[..], name.as_bytes()].concat();
    let kept = |tensor: &str| match tensor.strip_prefix("blk.") {
        Some(rest) => {
            let (layer, _) = rest.split_once('.').expect("a layer's tensor");
            layer.parse::<u32>().expect("a number") < LAYERS
        }
        None => true,
    };
    let mut tensors: Vec<_> = source.directory.tensors.values().collect();
    tensors.sort_by_key(|tensor| tensor.range.start);

    // The directory of tensors follows the metadata, of which only the number of layers changes.
    let directory = tensors.iter().map(|tensor| find(&name(&tensor.name))).min();
    let mut out = bytes[..directory.expect("it has tensors")].to_vec();
    tensors.retain(|tensor| kept(&tensor.name));
    out[8..16].copy_from_slice(&(tensors.len() as u64).to_le_bytes());
    let key = name("llama.block_count");
    let value = find(&key) + key.len() + 4;
    out[value..value + 4].copy_from_slice(&LAYERS.to_le_bytes());

    let mut offset = 0u64;
    for tensor in &tensors {
        out.extend(name(&tensor.name));
        out.extend((tensor.dims.len() as u32).to_le_bytes());
        for n in &tensor.dims {
            out.extend(n.to_le_bytes());
        }
        out.extend(tensor.kind.id.to_le_bytes());
        out.extend(offset.to_le_bytes());
        offset = (offset + tensor.range.len() as u64).next_multiple_of(32);
    }
    for tensor in &tensors {
        out.resize(out.len().next_multiple_of(32), 0);
        out.extend(source.data(&tensor.range).expect("its data"));
    }
    out
}
