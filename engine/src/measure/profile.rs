//! Timestamps of each kernel of a step.

use ptx_gen::KernelDef;

use crate::Decoder;
use crate::Error;
use crate::pipeline::GemvKind;
use crate::step::StepKind;

/// A kernel of a decode step.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KernelNode {
    /// The role of the kernel: `qkv`, `attention`, `o`, `gate_up`, `down` or `head`.
    pub role: &'static str,
    /// The name of the kernel.
    pub kernel: String,
    /// The bytes of weights, or of keys and values, that it reads.
    pub bytes: u64,
}

/// The timestamps of one kernel, by block. The index in a block is a
/// [`Timestamp`](warpwright_kernels::pipeline::plan::Timestamp). A timestamp that the block did not
/// record is 0.
pub type BlockTimes = Vec<[u64; 8]>;

/// The timestamps of some decode steps.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Profile {
    /// The kernels of a step in order. The embedding records no timestamps and is left out.
    pub nodes: Vec<KernelNode>,
    /// The timestamps of each kernel, by step.
    pub steps: Vec<Vec<BlockTimes>>,
}

impl Decoder {
    /// Decodes `tokens` tokens and returns the timestamps of their kernels. The first token attends
    /// to `attended` positions.
    ///
    /// The decoder must use the pipeline, with a tuning that [profiles](crate::Tuning::profile).
    ///
    /// # Errors
    /// Returns [`Error::NoTimes`] if the kernels record no timestamps, or an error of
    /// [`round`](Decoder::round).
    pub fn profile(&mut self, attended: u32, tokens: u32) -> Result<Profile, Error> {
        self.prepare(attended, tokens)?;
        if !self.pipeline_step()?.pass.pipeline.resolved.profile {
            return Err(Error::NoTimes);
        }

        let nodes = self.pipeline_step()?.pass.list(attended);
        let mut steps = vec![];
        for position in attended - 1..attended - 1 + tokens {
            self.launch(StepKind::Decode)?;
            self.stream.synchronize()?;
            self.token(position)?;
            steps.push(self.pipeline_step()?.pass.workspace.times()?);
        }

        Ok(Profile { nodes, steps })
    }
}

impl crate::pipeline::pass::PipelinePass<'_> {
    /// Returns the kernels of a step that attends to this many positions.
    fn list(&self, attended: u32) -> Vec<KernelNode> {
        let product = |product: GemvKind, index| {
            let tiles = self.tiles(product, index).len() as u64;
            let bytes = self.layer(index).read_bytes(product, tiles);
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
            let [qkv, o, gate_up, down] = GemvKind::OF_LAYER.map(|of| product(of, index));
            [qkv, attention, o, gate_up, down]
        };
        let layers = self.weights.blocks.len();
        (0..layers)
            .flat_map(layer)
            .chain([product(GemvKind::Head, 0)])
            .collect()
    }
}
