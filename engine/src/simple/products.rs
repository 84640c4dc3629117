//! The weights of the simple kernels: each matrix with the kernel for its format and shape, decided when it is loaded.

use std::sync::Arc;

use ptx_gen::KernelDef;
use warpwright_driver::{Context, Error, Kernel, View};
use warpwright_kernels::{AddNormed, Format, Gemv, GemvAdd, GemvBias, Team};

use crate::distinct::Distinct;
use crate::model::outline::{Outline, Weight, Weights};
use crate::model::roles::Block;

/// All weights of a model.
pub(crate) struct Products {
    /// The file's rows.
    pub(crate) embed: View<u8>,
    /// In order.
    pub(crate) layers: Vec<Layer>,
    pub(crate) norm: View<f32>,
    pub(crate) head: Matrix<Gemv>,
}

/// The weights of a transformer block.
pub(crate) struct Layer {
    pub(crate) attn_norm: View<f32>,
    /// Q, K and V.
    pub(crate) qkv: [Projection; 3],
    pub(crate) o: Output,
    pub(crate) ffn_norm: View<f32>,
    pub(crate) gate: Matrix<Gemv>,
    pub(crate) up: Matrix<Gemv>,
    pub(crate) down: Output,
}

/// What attention or the feed-forward adds to the residual stream.
pub(crate) enum Output {
    /// `W x`
    Plain(Matrix<GemvAdd>),
    /// An RMSNorm of `W x`: its kernel and weights.
    Normed(Matrix<Gemv>, Arc<Kernel<AddNormed>>, View<f32>),
}

/// Queries, keys or values.
pub(crate) enum Projection {
    /// `W x`
    Plain(Matrix<Gemv>),
    /// `W x + b`
    Biased(Matrix<GemvBias>, View<f32>),
    /// `W x`, and then an RMSNorm of each head.
    Normed(Matrix<Gemv>, View<f32>),
}

/// A matrix and its kernel, which matrices of the same format and team share.
pub(crate) struct Matrix<K> {
    pub(crate) kernel: Arc<Kernel<K>>,
    /// The file's rows.
    pub(crate) w: View<u8>,
    pub(crate) rows: u32,
    pub(crate) n: u32,
}

impl Products {
    /// Compiles the kernels for weights that are in these buffers, or will be.
    pub(crate) fn load(
        context: &Context,
        outline: &Outline,
        buffers: &Weights<View<u8>>,
    ) -> Result<Products, Error> {
        let mut kernels = Kernels {
            plain: Distinct::new(context),
            biased: Distinct::new(context),
            added: Distinct::new(context),
            normed: Distinct::new(context),
        };
        let w = &outline.weights;
        let layers = w.blocks.iter().zip(&buffers.blocks).map(|(w, b)| kernels.layer(w, b));
        Ok(Products {
            embed: buffers.embed.clone(),
            layers: layers.collect::<Result<_, _>>()?,
            norm: buffers.norm.cast()?,
            head: kernels.plain(w.head(), buffers.head())?,
        })
    }
}

/// The kernels so far.
struct Kernels<'c> {
    plain: Distinct<'c, Gemv>,
    biased: Distinct<'c, GemvBias>,
    added: Distinct<'c, GemvAdd>,
    normed: Distinct<'c, AddNormed>,
}

impl Kernels<'_> {
    fn layer(&mut self, w: &Block<Weight>, b: &Block<View<u8>>) -> Result<Layer, Error> {
        Ok(Layer {
            attn_norm: b.attn_norm.cast()?,
            qkv: [
                self.projection(&w.q, &b.q, &b.q_bias, &b.q_norm)?,
                self.projection(&w.k, &b.k, &b.k_bias, &b.k_norm)?,
                self.projection(&w.v, &b.v, &b.v_bias, &None)?,
            ],
            o: self.output(&w.o, &b.o, &b.attn_post_norm)?,
            ffn_norm: b.ffn_norm.cast()?,
            gate: self.plain(&w.gate, &b.gate)?,
            up: self.plain(&w.up, &b.up)?,
            down: self.output(&w.down, &b.down, &b.ffn_post_norm)?,
        })
    }

    /// No architecture has both a bias and a norm.
    fn projection(
        &mut self,
        weight: &Weight,
        w: &View<u8>,
        bias: &Option<View<u8>>,
        norm: &Option<View<u8>>,
    ) -> Result<Projection, Error> {
        Ok(match (bias, norm) {
            (Some(bias), _) => Projection::Biased(self.biased(weight, w)?, bias.cast()?),
            (None, Some(norm)) => Projection::Normed(self.plain(weight, w)?, norm.cast()?),
            (None, None) => Projection::Plain(self.plain(weight, w)?),
        })
    }

    fn plain(&mut self, weight: &Weight, w: &View<u8>) -> Result<Matrix<Gemv>, Error> {
        matrix(&mut self.plain, |format, team| Gemv { format, team }, weight, w)
    }

    fn biased(&mut self, weight: &Weight, w: &View<u8>) -> Result<Matrix<GemvBias>, Error> {
        matrix(&mut self.biased, |format, team| GemvBias { format, team }, weight, w)
    }

    fn output(&mut self, weight: &Weight, w: &View<u8>, norm: &Option<View<u8>>) -> Result<Output, Error> {
        Ok(match norm {
            Some(norm) => {
                let kernel = self.normed.load(AddNormed { overlap: false, batch: 1 })?;
                Output::Normed(self.plain(weight, w)?, kernel, norm.cast()?)
            }
            None => {
                let added = |format, team| GemvAdd { format, team };
                Output::Plain(matrix(&mut self.added, added, weight, w)?)
            }
        })
    }
}

fn matrix<K: KernelDef + PartialEq>(
    kernels: &mut Distinct<'_, K>,
    def: impl Fn(Format, Team) -> K,
    weight: &Weight,
    w: &View<u8>,
) -> Result<Matrix<K>, Error> {
    let (rows, n) = (weight.rows(), weight.row_len());
    let kernel = kernels.load(def(weight.format, Team::of(weight.format, rows, n)))?;
    Ok(Matrix { kernel, w: w.clone(), rows, n })
}
