//! A model's weights on a device, copied once.

use warpwright_driver::{Buffer, Context, Stream, View};
use warpwright_kernels::Format;

use crate::Error;
use crate::gguf::Tensor;
use crate::model::{Model, Weights};

/// A tensor on a device: the file's bytes, or tiles of them, and how to read them.
#[derive(Clone)]
pub(crate) struct Loaded {
    pub(crate) bytes: View<u8>,
    pub(crate) format: Format,
}

/// Bytes copied at once: enough to keep a bus busy, few enough that progress is smooth.
const CHUNK: usize = 64 << 20;

/// Copies every weight, telling after each part how many bytes are there.
pub(crate) fn upload(
    context: &Context,
    model: &Model,
    mut progress: impl FnMut(u64),
) -> Result<Weights<Loaded>, Error> {
    let stream = Stream::new(context)?;
    let mut done = 0;
    model.outline.weights.try_map(|tensor| {
        let data = model.gguf.data(tensor);
        let buffer = Buffer::uninit(context, data.len())?.labelled(&tensor.name);
        for (i, chunk) in data.chunks(CHUNK).enumerate() {
            let start = i * CHUNK;
            stream.write(&buffer.view_range(start..start + chunk.len()), chunk)?;
            done += chunk.len() as u64;
            progress(done);
        }
        Ok(Loaded { bytes: buffer.view(), format: format(tensor) })
    })
}

/// The format of one of a model's tensors.
pub(crate) fn format(tensor: &Tensor) -> Format {
    Format::from_ggml_type(tensor.kind.id).expect("Model::open refuses formats that no kernel reads")
}
