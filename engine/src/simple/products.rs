//! The weights of the simple kernels: each matrix with the kernel for its format and shape, decided when it is loaded.

use std::sync::Arc;

use ptx_gen::KernelDef;
use warpwright_driver::{Buffer, Context, Error, Kernel, View};
use warpwright_kernels::{AddNormed, Format, Gemv, GemvAdd, GemvBias, Team};

use crate::adapter::names;
use crate::adapter::tiles::{self, LoraShape};
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
    /// `[max_rank]`: `A x` of a projection's adapter, for models with one.
    pub(crate) lora_u: Option<View<f32>>,
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
    /// The adapters of the projections, in the order of the forward pass.
    pub(crate) lora: [Option<Lora>; 7],
}

/// The adapter of a projection: `y += B (A x)`, by the kernels of any matrix in F32.
pub(crate) struct Lora {
    /// `[rank, n]`
    pub(crate) a: Matrix<Gemv>,
    /// `[rows, rank]`
    pub(crate) b: Matrix<GemvAdd>,
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
        let layer = |(index, (w, b)): (usize, (&Block<Weight>, &Block<View<u8>>))| {
            let lora = |projection| kernels.lora(outline, index, projection);
            let [q, k, v, o, gate, up, down] = [0, 1, 2, 3, 4, 5, 6].map(lora);
            let lora = [q?, k?, v?, o?, gate?, up?, down?];
            Ok(Layer {
                lora,
                ..kernels.layer(w, b)?
            })
        };
        let layers: Vec<Layer> = w
            .blocks
            .iter()
            .zip(&buffers.blocks)
            .enumerate()
            .map(layer)
            .collect::<Result<_, Error>>()?;
        let ranks = layers
            .iter()
            .flat_map(|layer| &layer.lora)
            .flatten()
            .map(|lora| lora.a.rows);
        let lora_u = ranks
            .max()
            .map(|rank| Buffer::uninit(context, rank as usize))
            .transpose()?;
        Ok(Products {
            embed: buffers.embed.clone(),
            layers,
            lora_u: lora_u.map(|buffer| buffer.labelled("lora.u").view()),
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
            lora: [const { None }; 7],
        })
    }

    /// The adapter of a projection, if it has one; it is copied.
    fn lora(
        &mut self,
        outline: &Outline,
        layer: usize,
        projection: usize,
    ) -> Result<Option<Lora>, Error> {
        let Some(matrices) = tiles::projection(outline, layer, projection) else {
            return Ok(None);
        };
        let LoraShape { rank, rows, n, .. } = matrices.shape;
        let copy = |numbers: &[f32], factor: &str| -> Result<View<u8>, Error> {
            let name = format!(
                "blk.{layer}.{}.lora_{factor}",
                names::PROJECTIONS[projection]
            );
            Buffer::from_slice(self.plain.context(), numbers)?
                .labelled(&name)
                .cast()
        };
        let (a, b) = (copy(&matrices.a, "a")?, copy(&matrices.b, "b")?);
        let format = Format::F32;
        let down = self.plain.load(Gemv {
            format,
            team: Team::of(format, rank, n),
        })?;
        let up = self.added.load(GemvAdd {
            format,
            team: Team::of(format, rows, rank),
        })?;
        Ok(Some(Lora {
            a: Matrix {
                kernel: down,
                w: a,
                rows: rank,
                n,
            },
            b: Matrix {
                kernel: up,
                w: b,
                rows,
                n: rank,
            },
        }))
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
        matrix(
            &mut self.plain,
            |format, team| Gemv { format, team },
            weight,
            w,
        )
    }

    fn biased(&mut self, weight: &Weight, w: &View<u8>) -> Result<Matrix<GemvBias>, Error> {
        matrix(
            &mut self.biased,
            |format, team| GemvBias { format, team },
            weight,
            w,
        )
    }

    fn output(
        &mut self,
        weight: &Weight,
        w: &View<u8>,
        norm: &Option<View<u8>>,
    ) -> Result<Output, Error> {
        Ok(match norm {
            Some(norm) => {
                let kernel = self.normed.load(AddNormed {
                    overlap: false,
                    batch: 1,
                })?;
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
    Ok(Matrix {
        kernel,
        w: w.clone(),
        rows,
        n,
    })
}
