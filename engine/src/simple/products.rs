//! The weights of the simple kernels. Each matrix has the GEMV kernel for its format and shape,
//! selected when it is loaded.

use std::sync::Arc;

use ptx_gen::KernelDef;
use warpwright_driver::launch::Kernel;
use warpwright_driver::memory::{Buffer, View};
use warpwright_driver::{Context, Error};
use warpwright_kernels::{AddBias, AddNormed, Format, Gemv, GemvAdd, GemvBias, Team};
use warpwright_model::adapter::names;
use warpwright_model::layer::{Dense, DenseForm, Experts, FeedForward, SharedExpert};
use warpwright_model::{Block, Layer, Outline, Weight, Weights};

use crate::distinct::SharedKernels;
use crate::kernel_terms::kernel_format;
use crate::simple::added_bias::AddedBias;
use crate::simple::experts::{
    ExpertBuffers, ExpertKernels, ExpertWeight, ExpertWeights, SharedDown, SimpleExperts,
    SimpleSharedExpert,
};
use crate::simple::matrix::GemvMatrix;
use crate::weights::lora_tiles::{self, LoraShape};

/// The weights of a model.
pub(crate) struct SimpleWeights {
    /// The embedding, as the file stores it.
    pub(crate) embed: View<u8>,
    /// The layers, in order.
    pub(crate) layers: Vec<SimpleLayer>,
    pub(crate) norm: View<f32>,
    /// The bias of the last norm, in models whose norms have biases.
    pub(crate) norm_bias: Option<AddedBias>,
    pub(crate) head: GemvMatrix<Gemv>,
    /// The intermediate result `A x` of an adapter, `[max_rank]`, in models with an adapter.
    pub(crate) lora_u: Option<View<f32>>,
    /// The intermediate results of experts, in models with experts.
    pub(crate) experts: Option<ExpertBuffers>,
}

/// The weights of a transformer block.
pub(crate) struct SimpleLayer {
    /// The weights of the norm before attention, in layers that norm its input.
    pub(crate) attn_norm: Option<View<f32>>,
    /// The bias of this norm, in layers with one.
    pub(crate) attn_norm_bias: Option<AddedBias>,
    /// The projections of queries, keys and values.
    pub(crate) qkv: [QkvProjection; 3],
    pub(crate) o: OutputProjection,
    /// The bias of the output projection, in layers with one.
    pub(crate) o_bias: Option<AddedBias>,
    /// The scores of the attention sinks, `[heads]`, in layers with sinks.
    pub(crate) sinks: Option<View<f32>>,
    /// The weights of the norm before the feed-forward, in layers that norm its input separately.
    pub(crate) ffn_norm: Option<View<f32>>,
    /// The bias of this norm, in layers with one.
    pub(crate) ffn_norm_bias: Option<AddedBias>,
    pub(crate) feed_forward: SimpleFeedForward,
    /// The adapters of the projections, in the order of the forward pass.
    pub(crate) lora: [Option<SimpleLora>; 7],
}

/// The feed-forward of a layer.
pub(crate) enum SimpleFeedForward {
    /// One network for all tokens.
    Dense(Box<SimpleDense>),
    /// A mixture of experts. The boxed values keep the enum small.
    Experts(Box<SimpleExperts>, ExpertsNorm),
}

/// The matrices of a dense feed-forward.
pub(crate) struct SimpleDense {
    pub(crate) gate: SimpleGate,
    pub(crate) up: GemvMatrix<Gemv>,
    pub(crate) up_bias: Option<AddedBias>,
    pub(crate) down: OutputProjection,
    pub(crate) down_bias: Option<AddedBias>,
}

/// The gate of a dense feed-forward.
pub(crate) enum SimpleGate {
    /// The activation of the gate is multiplied by the up projection.
    Matrix(GemvMatrix<Gemv>),
    /// Ones, for a feed-forward without a gate. The same kernel multiplies the activation of the up
    /// projection by them.
    Ones(View<f32>),
}

/// The norm of the sum of the experts before it is added to the residual stream.
pub(crate) enum ExpertsNorm {
    /// The sum is not normed.
    None,
    /// The sum passes an RMSNorm, with its kernel and weights.
    Rms(Arc<Kernel<AddNormed>>, View<f32>),
}

/// The adapter of a projection, `y += B (A x)`. It uses the GEMV kernels for F32.
pub(crate) struct SimpleLora {
    /// The matrix A, `[rank, n]`.
    pub(crate) a: GemvMatrix<Gemv>,
    /// The matrix B, `[rows, rank]`.
    pub(crate) b: GemvMatrix<GemvAdd>,
}

/// A projection that is added to the residual stream, after attention or the feed-forward.
pub(crate) enum OutputProjection {
    /// `W x`.
    Plain(GemvMatrix<GemvAdd>),
    /// The RMSNorm of `W x`, with its kernel and weights.
    Normed(GemvMatrix<Gemv>, Arc<Kernel<AddNormed>>, View<f32>),
}

/// The projection of queries, keys or values.
pub(crate) enum QkvProjection {
    /// `W x`.
    Plain(GemvMatrix<Gemv>),
    /// `W x + b`.
    Biased(GemvMatrix<GemvBias>, View<f32>),
    /// `W x`, followed by an RMSNorm of each head or of all.
    Normed(GemvMatrix<Gemv>, View<f32>),
}

impl SimpleWeights {
    /// Compiles the kernels of weights that are in these buffers, or will be uploaded to them.
    pub(crate) fn load(
        context: &Context,
        outline: &Outline,
        buffers: &Weights<View<u8>>,
    ) -> Result<SimpleWeights, Error> {
        let mut kernels = GemvKernels {
            plain: SharedKernels::new(context),
            biased: SharedKernels::new(context),
            added: SharedKernels::new(context),
            normed: SharedKernels::new(context),
            bias: SharedKernels::new(context),
            experts: ExpertKernels::new(context),
            ones: None,
        };
        let w = &outline.weights;
        let layer = |(index, (w, b)): (usize, (&Block<Weight>, &Block<View<u8>>))| {
            let lora = |projection| kernels.lora(outline, index, projection);
            let [q, k, v, o, gate, up, down] = [0, 1, 2, 3, 4, 5, 6].map(lora);
            let lora = [q?, k?, v?, o?, gate?, up?, down?];
            Ok(SimpleLayer {
                lora,
                ..kernels.layer(&outline.config.layers[index], w, b)?
            })
        };
        let layers: Vec<SimpleLayer> = w
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

        // All adapters share one buffer, because each uses it for two launches only.
        let lora_u = match ranks.max() {
            Some(rank) => Some(Buffer::uninit(context, rank as usize)?.labelled("lora.u")),
            None => None,
        };
        Ok(SimpleWeights {
            embed: buffers.embed.clone(),
            layers,
            lora_u: lora_u.map(|buffer| buffer.view()),
            experts: ExpertBuffers::new(context, &outline.config)?,
            norm: buffers.norm.cast()?,
            norm_bias: kernels.added_bias(&buffers.norm_bias)?,
            head: kernels.plain(w.head(), buffers.head())?,
        })
    }
}

/// The GEMV kernels that were loaded so far.
struct GemvKernels<'c> {
    plain: SharedKernels<'c, Gemv>,
    biased: SharedKernels<'c, GemvBias>,
    added: SharedKernels<'c, GemvAdd>,
    normed: SharedKernels<'c, AddNormed>,
    bias: SharedKernels<'c, AddBias>,
    experts: ExpertKernels<'c>,
    /// The ones of feed-forwards without a gate, once there is one.
    ones: Option<View<f32>>,
}

impl GemvKernels<'_> {
    fn layer(
        &mut self,
        described: &Layer,
        w: &Block<Weight>,
        b: &Block<View<u8>>,
    ) -> Result<SimpleLayer, Error> {
        Ok(SimpleLayer {
            attn_norm: floats(&b.attn_norm)?,
            attn_norm_bias: self.added_bias(&b.attn_norm_bias)?,
            qkv: [
                self.projection(&w.q, &b.q, &b.q_bias, &b.q_norm)?,
                self.projection(&w.k, &b.k, &b.k_bias, &b.k_norm)?,
                self.projection(&w.v, &b.v, &b.v_bias, &None)?,
            ],
            o: self.output(&w.o, &b.o, &b.attn_post_norm)?,
            o_bias: self.added_bias(&b.o_bias)?,
            sinks: floats(&b.sinks)?,
            ffn_norm: floats(&b.ffn_norm)?,
            ffn_norm_bias: self.added_bias(&b.ffn_norm_bias)?,
            feed_forward: match &described.feed_forward {
                FeedForward::Dense(dense) => {
                    SimpleFeedForward::Dense(Box::new(self.dense(dense, w, b)?))
                }
                FeedForward::Experts(experts) => SimpleFeedForward::Experts(
                    Box::new(self.mixture(experts, w, b)?),
                    self.experts_norm(&b.ffn_post_norm)?,
                ),
            },
            lora: [const { None }; 7],
        })
    }

    fn dense(
        &mut self,
        dense: &Dense,
        w: &Block<Weight>,
        b: &Block<View<u8>>,
    ) -> Result<SimpleDense, Error> {
        let gate = match dense.form {
            DenseForm::Gated => {
                let (gate, rows) = both(&w.gate, &b.gate);
                SimpleGate::Matrix(self.plain(gate, rows)?)
            }
            DenseForm::PlainBiased => SimpleGate::Ones(self.ones(dense.width)?),
        };
        let [(up, up_rows), (down, down_rows)] = [both(&w.up, &b.up), both(&w.down, &b.down)];
        Ok(SimpleDense {
            gate,
            up: self.plain(up, up_rows)?,
            up_bias: self.added_bias(&b.up_bias)?,
            down: self.output(down, down_rows, &b.ffn_post_norm)?,
            down_bias: self.added_bias(&b.down_bias)?,
        })
    }

    /// Returns a vector of ones. Layers of the same width share it.
    fn ones(&mut self, width: u32) -> Result<View<f32>, Error> {
        match &self.ones {
            Some(ones) if ones.len() == width as usize => Ok(ones.clone()),
            _ => {
                let ones = vec![1.0; width as usize];
                let ones = Buffer::from_slice(self.plain.context(), &ones)?.labelled("ones");
                Ok(self.ones.insert(ones.view()).clone())
            }
        }
    }

    fn mixture<'a>(
        &mut self,
        experts: &Experts,
        w: &'a Block<Weight>,
        b: &'a Block<View<u8>>,
    ) -> Result<SimpleExperts, Error> {
        let router = both(&w.router, &b.router);
        let shared = match experts.shared {
            Some(shared) => Some(self.shared_expert(&shared, w, b)?),
            None => None,
        };
        let expert = |weight, w: &'a Option<View<u8>>, bias| {
            let (weight, w) = both(weight, w);
            Ok::<_, Error>(ExpertWeight {
                weight,
                w,
                bias: floats(bias)?,
            })
        };
        let weights = ExpertWeights {
            router: self.plain(router.0, router.1)?,
            router_bias: self.added_bias(&b.router_bias)?,
            gate: expert(&w.gate_experts, &b.gate_experts, &b.gate_experts_bias)?,
            up: expert(&w.up_experts, &b.up_experts, &b.up_experts_bias)?,
            down: expert(&w.down_experts, &b.down_experts, &b.down_experts_bias)?,
            shared,
        };
        self.experts.experts(experts, weights)
    }

    fn shared_expert(
        &mut self,
        shared: &SharedExpert,
        w: &Block<Weight>,
        b: &Block<View<u8>>,
    ) -> Result<SimpleSharedExpert, Error> {
        let [gate, up, down] = [
            both(&w.gate_shared, &b.gate_shared),
            both(&w.up_shared, &b.up_shared),
            both(&w.down_shared, &b.down_shared),
        ];
        let down = if shared.gated {
            let router = both(&w.shared_router, &b.shared_router);
            let router = self.plain(router.0, router.1)?;
            let down = self.plain(down.0, down.1)?;
            self.experts.gated(down, router)?
        } else {
            SharedDown::Plain(self.added(down.0, down.1)?)
        };
        Ok(SimpleSharedExpert {
            gate: self.plain(gate.0, gate.1)?,
            up: self.plain(up.0, up.1)?,
            down,
        })
    }

    /// Loads the kernel of a bias, if the layer has it.
    fn added_bias(&mut self, bias: &Option<View<u8>>) -> Result<Option<AddedBias>, Error> {
        match floats(bias)? {
            Some(bias) => {
                let kernel = self.bias.load(AddBias)?;
                Ok(Some(AddedBias { kernel, bias }))
            }
            None => Ok(None),
        }
    }

    fn experts_norm(&mut self, norm: &Option<View<u8>>) -> Result<ExpertsNorm, Error> {
        Ok(match norm {
            Some(norm) => ExpertsNorm::Rms(self.normed()?, norm.cast()?),
            None => ExpertsNorm::None,
        })
    }

    /// Loads the kernel that norms a projection and adds it to the residual stream.
    fn normed(&mut self) -> Result<Arc<Kernel<AddNormed>>, Error> {
        self.normed.load(AddNormed {
            overlap: false,
            batch: 1,
        })
    }

    /// Copies the adapter of a projection to the device, if it has one.
    fn lora(
        &mut self,
        outline: &Outline,
        layer: usize,
        projection: usize,
    ) -> Result<Option<SimpleLora>, Error> {
        let Some(matrices) = lora_tiles::projection(outline, layer, projection) else {
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
        let a = copy(&matrices.a, "a")?;
        let b = copy(&matrices.b, "b")?;
        let format = Format::F32;
        let down = self.plain.load(Gemv {
            format,
            team: Team::of(format, rank, n),
        })?;
        let up = self.added.load(GemvAdd {
            format,
            team: Team::of(format, rows, rank),
        })?;
        Ok(Some(SimpleLora {
            a: GemvMatrix {
                kernel: down,
                w: a,
                rows: rank,
                n,
            },
            b: GemvMatrix {
                kernel: up,
                w: b,
                rows,
                n: rank,
            },
        }))
    }

    /// Loads the projection of queries, keys or values. No layer has both biases and head norms.
    fn projection(
        &mut self,
        weight: &Weight,
        w: &View<u8>,
        bias: &Option<View<u8>>,
        norm: &Option<View<u8>>,
    ) -> Result<QkvProjection, Error> {
        Ok(match (bias, norm) {
            // A test of the families checks this. Without it, the norm would be skipped.
            (Some(_), Some(_)) => unreachable!("no family has both biases and norms of heads"),
            (Some(bias), None) => QkvProjection::Biased(self.biased(weight, w)?, bias.cast()?),
            (None, Some(norm)) => QkvProjection::Normed(self.plain(weight, w)?, norm.cast()?),
            (None, None) => QkvProjection::Plain(self.plain(weight, w)?),
        })
    }

    fn plain(&mut self, weight: &Weight, w: &View<u8>) -> Result<GemvMatrix<Gemv>, Error> {
        matrix(
            &mut self.plain,
            |format, team| Gemv { format, team },
            weight,
            w,
        )
    }

    fn biased(&mut self, weight: &Weight, w: &View<u8>) -> Result<GemvMatrix<GemvBias>, Error> {
        matrix(
            &mut self.biased,
            |format, team| GemvBias { format, team },
            weight,
            w,
        )
    }

    fn added(&mut self, weight: &Weight, w: &View<u8>) -> Result<GemvMatrix<GemvAdd>, Error> {
        matrix(
            &mut self.added,
            |format, team| GemvAdd { format, team },
            weight,
            w,
        )
    }

    fn output(
        &mut self,
        weight: &Weight,
        w: &View<u8>,
        norm: &Option<View<u8>>,
    ) -> Result<OutputProjection, Error> {
        Ok(match norm {
            Some(norm) => {
                OutputProjection::Normed(self.plain(weight, w)?, self.normed()?, norm.cast()?)
            }
            None => OutputProjection::Plain(self.added(weight, w)?),
        })
    }
}

/// Returns the description and the bytes of a weight that the layer's description requires.
fn both<'a>(weight: &'a Option<Weight>, w: &'a Option<View<u8>>) -> (&'a Weight, &'a View<u8>) {
    // The table of weights reads a weight if the description of the layer has it.
    let weights = "the layer has the weights that its description requires";
    (weight.as_ref().expect(weights), w.as_ref().expect(weights))
}

/// Returns a vector, if the layer has it.
fn floats(vector: &Option<View<u8>>) -> Result<Option<View<f32>>, Error> {
    vector.as_ref().map(View::cast).transpose()
}

/// Loads the kernel of a matrix.
fn matrix<K: KernelDef + PartialEq>(
    kernels: &mut SharedKernels<'_, K>,
    def: impl Fn(Format, Team) -> K,
    weight: &Weight,
    w: &View<u8>,
) -> Result<GemvMatrix<K>, Error> {
    let rows = weight.rows();
    let n = weight.row_len();
    let format = kernel_format(weight.format);
    let kernel = kernels.load(def(format, Team::of(format, rows, n)))?;
    Ok(GemvMatrix {
        kernel,
        w: w.clone(),
        rows,
        n,
    })
}
