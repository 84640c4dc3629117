//! A model's weights on a device as the file stores them.

use warpwright_driver::{Buffer, Context, View};
use warpwright_kernels::Format;

use crate::Error;
use crate::model::{Outline, Weights};
use crate::upload::Job;

/// A tensor on a device: the file's bytes or tiles, and their format.
#[derive(Clone)]
pub(crate) struct DeviceTensor {
    pub(crate) bytes: View<u8>,
    pub(crate) format: Format,
}

/// Allocates every weight, and requests its contents.
pub(crate) fn load<'a>(
    context: &Context,
    outline: &'a Outline,
    mut request: impl FnMut(Job<'a>) -> Result<(), Error>,
) -> Result<Weights<DeviceTensor>, Error> {
    outline.weights.try_map(|tensor| {
        let bytes = Buffer::uninit(context, tensor.range.len())?.labelled(&tensor.name).view();
        request(Job { tensors: vec![tensor], tiles: None, to: bytes.clone() })?;
        Ok(DeviceTensor { bytes, format: tensor.format })
    })
}
