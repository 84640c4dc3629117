//! A model's weights on a device as the pipeline reads them: matrices as tiles; matrices that one kernel reads share
//! a buffer.
//!
//! Packing permutes bits and adds none, so all addresses are known before any weight is loaded.

use std::ops::Range;

use warpwright_driver::{Buffer, Context, View};
use warpwright_kernels::{Format, Pairing, RowOrder};

use crate::Error;
use crate::config::Config;
use crate::kernels::pairing;
use crate::model::{self, Outline, Weight};
use crate::upload::Job;
use crate::weights::DeviceTensor;

/// All weights.
pub(crate) struct Packed {
    /// Tiles if tied with the LM head, else the file's rows.
    pub(crate) embed: DeviceTensor,
    pub(crate) blocks: Vec<PackedBlock>,
    pub(crate) norm: View<f32>,
    /// Tiles.
    pub(crate) head: DeviceTensor,
}

/// The weights of a transformer block. All matrices are tiles.
#[derive(Clone)]
pub(crate) struct PackedBlock {
    pub(crate) attn_norm: View<f32>,
    pub(crate) qkv: View<u8>,
    /// Of q, k and v.
    pub(crate) formats: [Format; 3],
    /// The biases of q, k and v, concatenated.
    pub(crate) bias: Option<View<f32>>,
    /// The head norms of q and k, concatenated.
    pub(crate) qk_norm: Option<View<f32>>,
    pub(crate) o: DeviceTensor,
    pub(crate) ffn_norm: View<f32>,
    pub(crate) gate_up: DeviceTensor,
    pub(crate) down: DeviceTensor,
}

/// Allocates the weights of a model that the pipeline supports, and requests their contents.
pub(crate) fn load<'a>(
    context: &Context,
    outline: &'a Outline,
    request: impl FnMut(Job<'a>) -> Result<(), Error>,
) -> Result<Packed, Error> {
    let w = &outline.weights;
    let mut load = Load { context, config: &outline.config, request };
    let (embed, head) = match &w.head {
        Some(head) => (load.raw(&[&w.embed])?, load.tiles(RowOrder::PLAIN, &[head])?),
        None => {
            let both = load.tiles(RowOrder::PLAIN, &[&w.embed])?;
            (both.clone(), both)
        }
    };
    let blocks = w.blocks.iter().map(|b| load.block(b)).collect::<Result<_, _>>()?;
    let norm = load.floats(&[&w.norm])?;
    let loaded = |bytes, tensor: &Weight| DeviceTensor { bytes, format: tensor.format };
    let (embed, head) = (loaded(embed, &w.embed), loaded(head, w.head()));
    Ok(Packed { embed, blocks, norm, head })
}

struct Load<'c, A> {
    context: &'c Context,
    config: &'c Config,
    request: A,
}

impl<'a, A: FnMut(Job<'a>) -> Result<(), Error>> Load<'_, A> {
    fn block(&mut self, b: &'a model::Block<Weight>) -> Result<PackedBlock, Error> {
        Ok(PackedBlock {
            attn_norm: self.floats(&[&b.attn_norm])?,
            qkv: self.qkv(b)?,
            formats: [&b.q, &b.k, &b.v].map(|w| w.format),
            bias: b.bias.as_ref().map(|bias| self.floats(&bias.each_ref())).transpose()?,
            qk_norm: b.qk_norm.as_ref().map(|norms| self.floats(&norms.each_ref())).transpose()?,
            o: self.matrix(&b.o)?,
            ffn_norm: self.floats(&[&b.ffn_norm])?,
            gate_up: DeviceTensor {
                bytes: self.tiles(RowOrder::GATE_UP, &[&b.gate, &b.up])?,
                format: b.gate.format,
            },
            down: self.matrix(&b.down)?,
        })
    }

    fn qkv(&mut self, b: &'a model::Block<Weight>) -> Result<View<u8>, Error> {
        let c = self.config;
        let pairs = match pairing(c.architecture) {
            Pairing::Interleaved => RowOrder::interleaved(c.head_dim),
            Pairing::HalfSplit => RowOrder::half_split(c.head_dim),
        };
        let (buffer, parts) = self.buffer(&[&b.q, &b.k, &b.v])?;
        for ((tensor, rows), part) in
            [(&b.q, pairs), (&b.k, pairs), (&b.v, RowOrder::PLAIN)].into_iter().zip(parts)
        {
            (self.request)(Job { tensors: vec![tensor], tiles: Some(rows), to: buffer.view_range(part) })?;
        }
        Ok(buffer)
    }

    fn matrix(&mut self, tensor: &'a Weight) -> Result<DeviceTensor, Error> {
        Ok(DeviceTensor { bytes: self.tiles(RowOrder::PLAIN, &[tensor])?, format: tensor.format })
    }

    fn tiles(&mut self, rows: RowOrder, matrices: &[&'a Weight]) -> Result<View<u8>, Error> {
        let (buffer, _) = self.buffer(matrices)?;
        (self.request)(Job { tensors: matrices.to_vec(), tiles: Some(rows), to: buffer.clone() })?;
        Ok(buffer)
    }

    fn floats(&mut self, tensors: &[&'a Weight]) -> Result<View<f32>, Error> {
        Ok(self.raw(tensors)?.cast()?)
    }

    fn raw(&mut self, tensors: &[&'a Weight]) -> Result<View<u8>, Error> {
        let (buffer, parts) = self.buffer(tensors)?;
        for (tensor, part) in tensors.iter().zip(parts) {
            (self.request)(Job { tensors: vec![tensor], tiles: None, to: buffer.view_range(part) })?;
        }
        Ok(buffer)
    }

    /// A buffer for all of the tensors, and the range of each in it.
    fn buffer(&self, tensors: &[&Weight]) -> Result<(View<u8>, Vec<Range<usize>>), Error> {
        let mut end = 0;
        let parts = tensors.iter().map(|tensor| {
            let start = end;
            end += tensor.range.len();
            start..end
        });
        let parts: Vec<Range<usize>> = parts.collect();
        let buffer = Buffer::uninit(self.context, end)?.labelled(&tensors[0].name);
        Ok((buffer.view(), parts))
    }
}
