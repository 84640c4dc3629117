//! The kernels of a pass with their roles, and the least that each must read and compute.
//! Benchmarks compare the measured times with these bounds.

use std::time::Duration;

use ptx_gen::KernelDef;
use warpwright_driver::graph::Profile;
use warpwright_driver::launch::Kernel;
use warpwright_kernels::matmul::Epilogue;
use warpwright_model::layer::{Attention, Experts};

use super::kernels::{self, AttentionKernel, QkvMatmuls};
use super::products::{ExpertGemm, PassShape};
use super::step::{Chunked, LAST};
use super::weights::{LayerRows, MatrixRows};
use super::workspace::{CAPACITY, LAST_CAPACITY};
use crate::pipeline::kinds::{Appending, PipelineFeedForward, PipelineNorms};

/// A kernel of a pass over many tokens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PassNode {
    /// The role of the kernel: `embed`, `norm`, `qkv`, `rotate`, `attention`, `o`, `router`,
    /// `gate_up`, `down`, `head` and so on.
    pub role: &'static str,
    /// The name of the kernel.
    pub kernel: String,
    /// The bytes of matrix weights, or of keys and values, that it must read, each counted once. Of
    /// experts, they are the mean if every token chooses experts at random.
    pub bytes: u64,
    /// The multiplications and additions of its matmuls or of attention, counted for the real
    /// tokens of the pass and not for padding.
    pub operations: u64,
}

/// The measured time of a kernel of a pass, which ran by itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TimedNode {
    /// The kernel.
    pub node: PassNode,
    /// The time between an event before the kernel and one after it, which includes the launch.
    pub time: Duration,
}

/// The tokens of a pass, and the positions that they attend to.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Attended<'a> {
    /// One token per sequence, which attends to this many positions.
    Each(&'a [u32]),
    /// The first tokens of a sequence, of which only the last one is wanted.
    Beginning(u32),
    /// The last one of this many first tokens of a sequence.
    Last(u32),
}

impl Attended<'_> {
    fn tokens(self) -> u32 {
        match self {
            Attended::Each(attended) => attended.len() as u32,
            Attended::Beginning(tokens) => tokens,
            Attended::Last(_) => 1,
        }
    }

    /// Returns the bytes of keys and values that a layer reads.
    fn bytes(self, attention: &Attention) -> u64 {
        let read: u64 = match self {
            Attended::Each(attended) => attended
                .iter()
                .map(|&n| u64::from(attention.attended(n)))
                .sum(),
            Attended::Beginning(tokens) => tokens.into(),
            Attended::Last(tokens) => attention.attended(tokens).into(),
        };
        attention.kv_bytes_per_position() * read
    }

    /// Returns the multiplications and additions of attention in a layer: queries by keys, and
    /// weights by values.
    fn operations(self, attention: &Attention) -> u64 {
        let positions = |n: u32| u64::from(attention.attended(n));
        let positions: u64 = match self {
            Attended::Each(attended) => attended.iter().map(|&n| positions(n)).sum(),
            Attended::Beginning(tokens) => (1..=tokens).map(positions).sum(),
            Attended::Last(tokens) => positions(tokens),
        };
        // One multiplication and one addition per element, for both matmuls.
        4 * u64::from(attention.q_len()) * positions
    }
}

impl PassNode {
    /// Returns a kernel that reads no matrix weights and multiplies none.
    pub(crate) fn plain<K: KernelDef>(role: &'static str, kernel: &Kernel<K>) -> PassNode {
        PassNode {
            role,
            kernel: kernel.def().name(),
            bytes: 0,
            operations: 0,
        }
    }

    /// Returns the matmul of these matrices with this many tokens.
    pub(crate) fn product<'a>(
        role: &'static str,
        kernel: String,
        matrices: impl IntoIterator<Item = &'a MatrixRows>,
        tokens: u32,
    ) -> PassNode {
        let mut node = PassNode {
            role,
            kernel,
            bytes: 0,
            operations: 0,
        };
        for rows in matrices {
            node.bytes += rows.tiles.len() as u64;
            node.operations += 2 * u64::from(rows.rows) * u64::from(rows.n) * u64::from(tokens);
        }
        node
    }
}

/// Pairs the kernels of a pass, in the order of their launches, with the times of its graph's
/// nodes.
pub(crate) fn timed(nodes: Vec<PassNode>, profile: &Profile) -> Vec<TimedNode> {
    let mut rows: Vec<_> = profile.rows.iter().collect();
    rows.sort_by_key(|row| row.node.index());
    debug_assert!(
        rows.iter()
            .map(|row| &row.name)
            .eq(nodes.iter().map(|node| &node.kernel))
    );
    nodes
        .into_iter()
        .zip(rows)
        .map(|(node, row)| TimedNode {
            node,
            time: row.time,
        })
        .collect()
}

impl Chunked {
    /// Returns the kernels of a [prepared](Chunked::prepare) pass, in the order in which
    /// [`run`](Chunked::run) launches them.
    pub(crate) fn list(&self, shape: PassShape, attended: Attended<'_>) -> Vec<PassNode> {
        let list = ListParameters {
            chunked: self,
            shape,
            attended,
            capacity: CAPACITY,
        };
        let embed = self.kernels.embed[&kernels::fixed_rows(shape.bucket)].name();
        let embed = PassNode {
            role: "embed",
            kernel: embed,
            bytes: 0,
            operations: 0,
        };
        let layers = (0..)
            .zip(&self.layers)
            .flat_map(|(index, rows)| list.layer(index, rows));
        std::iter::once(embed).chain(layers).collect()
    }
}

/// The parameters of a list of kernels.
struct ListParameters<'a> {
    chunked: &'a Chunked,
    shape: PassShape,
    attended: Attended<'a>,
    /// The number of rows that the activations can hold.
    capacity: u32,
}

impl ListParameters<'_> {
    fn layer(&self, index: u32, rows: &LayerRows) -> Vec<PassNode> {
        let kernels = &self.chunked.kernels;
        let mut nodes = vec![self.norm(0, rows)];
        nodes.extend(self.qkv(rows));
        match rows.appending {
            Appending::Product => {}
            Appending::Rotation => {
                let kernel = kernels.rotation(rows, self.shape.overlap);
                nodes.push(PassNode::plain("rotate", kernel));
            }
        }

        // The last layer stops after keys and values, except for the last token: see
        // `ChunkedPass::run`.
        nodes.extend(match self.attended {
            Attended::Beginning(tokens) if index + 1 == self.chunked.config.layer_count() => {
                let attended = Attended::Last(tokens);
                ListParameters {
                    shape: LAST,
                    attended,
                    capacity: LAST_CAPACITY,
                    ..*self
                }
                .rest(index, rows)
            }
            _ => self.rest(index, rows),
        });
        nodes
    }

    fn qkv(&self, layer: &LayerRows) -> Vec<PassNode> {
        let kernels = &self.chunked.kernels;
        let tokens = self.attended.tokens();
        match kernels::qkv(kernels.cores, layer, self.shape, self.capacity) {
            QkvMatmuls::Each(products) => {
                let products = layer.qkv.iter().zip(products);
                let node = |(rows, product)| {
                    PassNode::product("qkv", kernels.products[&product].name(), [rows], tokens)
                };
                products.map(node).collect()
            }
            QkvMatmuls::Pair(pair) => {
                vec![PassNode::product(
                    "qkv",
                    kernels.pairs[&pair].def().name(),
                    &layer.qkv,
                    tokens,
                )]
            }
        }
    }

    /// Returns the kernels of a layer from attention on.
    fn rest(&self, index: u32, rows: &LayerRows) -> Vec<PassNode> {
        let mut nodes = vec![self.attention(index, rows)];
        nodes.extend(self.projection("o", rows, &rows.o));
        nodes.push(self.norm(1, rows));
        match &rows.feed_forward {
            PipelineFeedForward::Dense(_) => {
                nodes.push(self.product("gate_up", &rows.gate_up, kernels::gated(rows)));
                nodes.extend(self.projection("down", rows, &rows.down));
            }
            PipelineFeedForward::Experts(experts) => nodes.extend(self.experts(rows, experts)),
        }
        nodes
    }

    /// Returns the kernels of a mixture of experts.
    fn experts(&self, rows: &LayerRows, experts: &Experts) -> Vec<PassNode> {
        let cores = self.chunked.kernels.cores;
        let kernels = kernels::expert_kernels(cores, rows, experts, self.shape);
        let loaded = &self.chunked.kernels.experts;
        let tokens = self.attended.tokens();
        let router = u64::from(experts.count) * u64::from(rows.gate_up.n);
        let product = |role, product: &ExpertGemm, matrix: &MatrixRows| {
            let name = loaded.products[product].name();
            let all = PassNode::product(role, name, [matrix], tokens * experts.chosen);
            PassNode {
                bytes: (experts.share_read(tokens) * all.bytes as f64) as u64,
                ..all
            }
        };
        vec![
            PassNode {
                bytes: 4 * router,
                operations: 2 * router * u64::from(tokens),
                ..PassNode::plain("router", &loaded.router[&kernels.router])
            },
            PassNode::plain("choose_experts", &loaded.choose[&kernels.choose]),
            PassNode::plain("sort", &loaded.sort[&kernels.sort]),
            PassNode::plain("gather", &loaded.gather[&kernels.gather]),
            product("gate_up", &kernels.gate_up, &rows.gate_up),
            product("down", &kernels.down, &rows.down),
            PassNode::plain("combine", &loaded.combine[&kernels.combine]),
        ]
    }

    fn norm(&self, which: usize, rows: &LayerRows) -> PassNode {
        let norm = kernels::norms(rows, self.shape)[which];
        PassNode::plain("norm", &self.chunked.kernels.norms[&norm])
    }

    fn product(&self, role: &'static str, rows: &MatrixRows, epilogue: Epilogue) -> PassNode {
        let kernels = &self.chunked.kernels;
        let kernel = kernels
            .cores
            .product(rows, epilogue, self.shape, self.capacity);
        PassNode::product(
            role,
            kernels.products[&kernel].name(),
            [rows],
            self.attended.tokens(),
        )
    }

    /// Returns the kernels that add a matmul to the residual stream. In layers that norm the result
    /// first, a second kernel does so.
    fn projection(
        &self,
        role: &'static str,
        layer: &LayerRows,
        rows: &MatrixRows,
    ) -> Vec<PassNode> {
        let kernels = &self.chunked.kernels;
        let mut nodes = vec![self.product(role, rows, kernels::projection(layer))];
        match layer.norms {
            PipelineNorms::Before => {}
            PipelineNorms::BeforeAndAfter => {
                let kernel = &kernels.add_normed[&kernels::fixed_rows(self.shape.bucket)];
                nodes.push(PassNode::plain("norm", kernel));
            }
        }

        nodes
    }

    fn attention(&self, index: u32, rows: &LayerRows) -> PassNode {
        let kernels = &self.chunked.kernels;
        let layer = index as usize;
        let kernel = match (self.attended, &kernels.attention[layer]) {
            (Attended::Each(_), _) => kernels.singles[usize::from(self.shape.overlap)][layer]
                .def()
                .name(),
            (_, AttentionKernel::Wgmma(kernel)) => kernel.def().name(),
            (_, AttentionKernel::Plain(kernel)) => kernel.def().name(),
        };
        let bytes = self.attended.bytes(&rows.attention);
        let operations = self.attended.operations(&rows.attention);
        PassNode {
            role: "attention",
            kernel,
            bytes,
            operations,
        }
    }
}
