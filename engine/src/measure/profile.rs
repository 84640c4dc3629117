//! Per-kernel timestamps of a step.

use ptx_gen::KernelDef;

use crate::Decoder;
use crate::Error;
use crate::pipeline::Product;
use crate::step::StepKind;

/// A kernel of a step.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KernelNode {
    /// What it is for: `qkv`, `attention`, `o`, `gate_up`, `down` or `head`.
    pub role: &'static str,
    /// Its name.
    pub kernel: String,
    /// Bytes of weights, or of keys and values, that it reads.
    pub bytes: u64,
}

/// The timestamps of one kernel: per block, by [`Timestamp`](warpwright_kernels::pipeline::plan::Timestamp). A timestamp
/// that a block did not record is 0.
pub type Times = Vec<[u64; 8]>;

/// The timestamps of some steps.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Profile {
    /// The kernels of a step in order, without the embedding, which records no timestamps.
    pub nodes: Vec<KernelNode>,
    /// Per step, the timestamps of each kernel.
    pub steps: Vec<Vec<Times>>,
}

impl Decoder {
    /// Decodes `tokens` tokens, the first of which attends to `attended` positions, and reads the kernels'
    /// timestamps. Requires the pipeline, and a tuning that [profiles](crate::Tuning::profile).
    ///
    /// # Errors
    /// As [`round`](Decoder::round), and kernels that record no timestamps.
    pub fn profile(&mut self, attended: u32, tokens: u32) -> Result<Profile, Error> {
        self.prepare(attended, tokens)?;
        if !self.pipeline_step()?.pipeline.resolved.profile {
            return Err(Error::NoTimes);
        }
        let nodes = self.pipeline_step()?.list(attended);
        let mut steps = vec![];
        for position in attended - 1..attended - 1 + tokens {
            self.launch(StepKind::Decode)?;
            self.stream.synchronize()?;
            self.token(position)?;
            steps.push(self.pipeline_step()?.workspace.times()?);
        }
        Ok(Profile { nodes, steps })
    }
}

impl crate::pipeline::step::PipelineStep<'_> {
    /// The kernels of a step that attends to this many positions.
    fn list(&self, attended: u32) -> Vec<KernelNode> {
        let product = |product: Product, index| {
            let bytes = self.tiles(product, index).len() as u64;
            KernelNode {
                role: product.name(),
                kernel: self.pipeline.resolved.kernel(product, index),
                bytes,
            }
        };
        let layer = |index: usize| {
            let attention = KernelNode {
                role: "attention",
                kernel: KernelDef::name(&self.pipeline.resolved.layers[index].attention),
                bytes: self.kv_bytes(index, attended),
            };
            let [qkv, o, gate_up, down] = Product::OF_LAYER.map(|of| product(of, index));
            [qkv, attention, o, gate_up, down]
        };
        let layers = self.weights.blocks.len();
        (0..layers)
            .flat_map(layer)
            .chain([product(Product::Head, 0)])
            .collect()
    }
}
