//! Snapshots of the launches of a step: kernels, geometry, accesses and edges, in their order.
//!
//! The graphs are recorded and never launched. One file lists all launches of a step in each
//! precision. A second file has a digest of every other graph, so a change of any model, setting or
//! launch mode is noticed there.

use std::fmt::Write;

use warpwright_driver::graph::{EdgeKind, Graph, Node, NodeKind};
use warpwright_driver::launch::{HostArg, LaunchConfig};
use warpwright_driver::ordering::Access;
use warpwright_driver::stream::Work;
use warpwright_driver::{Context, Driver};
use warpwright_kernels::Random;
use warpwright_kernels::train::flash::TensorOp;
use warpwright_kernels::train::nested;
use warpwright_kernels::train::nf4::{self, Nf4};
use warpwright_model::RopePairing;
use warpwright_model::layer::HeadNorms;

use super::passes::run::LaunchUnit;
use super::trainer::Trainer;
use super::weights::Matrix;
use crate::reference::Adapters;
use crate::settings::{Launch, Precision, Recomputation, Settings, Tiles, Unpacking};
use crate::{Config, LayerWeights, Lora, Projection, Training, Weights};

/// A model and the settings of its training.
struct Variant {
    name: &'static str,
    head_dim: usize,
    /// Whether queries and keys have a norm before RoPE.
    head_norms: bool,
    /// Whether the projections of queries, keys and values have a bias.
    biases: bool,
    /// Whether the LM head is a separate matrix.
    head: bool,
    /// The format of the projections in each of the two layers.
    formats: [Stored; 2],
    targets: Vec<Projection>,
    dropout: f64,
    tiles: Tiles,
    unpacking: Unpacking,
    attention: TensorOp,
}

/// The format of a layer's projections.
#[derive(Clone, Copy)]
enum Stored {
    F32,
    Nf4,
    Nested,
}

const UNITS: [(&str, LaunchUnit); 3] = [
    ("micro-batch", LaunchUnit::Micro),
    ("last micro-batch", LaunchUnit::Last),
    ("evaluation", LaunchUnit::Evaluation),
];

fn variants() -> Vec<Variant> {
    let plain = || Variant {
        name: "plain",
        head_dim: 16,
        head_norms: false,
        biases: false,
        head: true,
        formats: [Stored::Nf4; 2],
        targets: Projection::ALL.to_vec(),
        dropout: 0.0,
        tiles: Tiles::Fitting,
        unpacking: Unpacking::Fitting,
        attention: TensorOp::Wgmma,
    };
    vec![
        plain(),
        Variant {
            name: "dropout",
            dropout: 0.1,
            ..plain()
        },
        Variant {
            name: "biases, tied head, nested absmax",
            biases: true,
            head: false,
            formats: [Stored::Nested; 2],
            ..plain()
        },
        Variant {
            name: "head norms, dropout, one layer not quantized",
            head_norms: true,
            dropout: 0.1,
            formats: [Stored::F32, Stored::Nf4],
            ..plain()
        },
        Variant {
            name: "adapters of Q and V, unpacked ahead, heads of 64 dimensions",
            head_dim: 64,
            targets: vec![Projection::Q, Projection::V],
            unpacking: Unpacking::Ahead,
            ..plain()
        },
        Variant {
            name: "head norms, adapters of Down, unpacked ahead, attention by mma",
            head_dim: 64,
            head_norms: true,
            targets: vec![Projection::Down],
            unpacking: Unpacking::Ahead,
            attention: TensorOp::Mma,
            ..plain()
        },
        Variant {
            name: "dropout, unpacked ahead",
            dropout: 0.1,
            unpacking: Unpacking::Ahead,
            ..plain()
        },
    ]
}

impl Variant {
    fn config(&self) -> Config {
        Config {
            vocab: 72,
            hidden: 64,
            feed_forward: 96,
            layers: 2,
            heads: 4,
            kv_heads: 2,
            head_dim: self.head_dim,
            head_norms: if self.head_norms {
                HeadNorms::QueriesAndKeys
            } else {
                HeadNorms::None
            },
            eps: 1e-5,
            frequencies: vec![0.1; self.head_dim / 2],
        }
    }

    fn settings(&self, precision: Precision, recomputation: Recomputation) -> Settings {
        Settings {
            config: self.config(),
            lora: Lora {
                dropout: self.dropout,
                targets: self.targets.clone(),
                ..Lora::new(6)
            },
            training: Training::default(),
            pairing: RopePairing::HalfSplit,
            tokens: 40,
            head_chunk: 24,
            recomputation,
            launch: Launch::Eager,
            precision,
            tiles: self.tiles,
            unpacking: self.unpacking,
            attention: self.attention,
        }
    }

    fn weights(&self) -> Weights<Vec<f32>, Matrix> {
        let config = self.config();
        let mut random = Random(1);
        let table = config.vocab * config.hidden;
        let embed = numbers(&mut random, table);
        let head = self.head.then(|| numbers(&mut random, table));
        let norm = numbers(&mut random, config.hidden);
        Weights {
            embed,
            head,
            norm,
            layers: self
                .formats
                .map(|format| self.layer(&config, format, &mut random))
                .into(),
        }
    }

    fn layer(
        &self,
        config: &Config,
        format: Stored,
        random: &mut Random,
    ) -> LayerWeights<Vec<f32>, Matrix> {
        let projections = Projection::ALL.map(|p| {
            let [n, k] = p.shape(config);
            matrix(&numbers(random, n * k), format)
        });
        let biases = Projection::ALL.map(|p| {
            let has = self.biases && [Projection::Q, Projection::K, Projection::V].contains(&p);
            has.then(|| numbers(random, p.shape(config)[0]))
        });
        let mut gains = || self.head_norms.then(|| numbers(random, config.head_dim));
        let q_norm = gains();
        let k_norm = gains();
        LayerWeights {
            attention_norm: numbers(random, config.hidden),
            feed_forward_norm: numbers(random, config.hidden),
            q_norm,
            k_norm,
            projections,
            biases,
        }
    }

    fn trainer(
        &self,
        context: &Context,
        precision: Precision,
        recomputation: Recomputation,
    ) -> Trainer {
        let settings = self.settings(precision, recomputation);
        let adapters = Adapters::zeros(&settings.config, &settings.lora);
        Trainer::new(context, settings, &self.weights(), &adapters).unwrap()
    }
}

/// Returns values around 0.
fn numbers(random: &mut Random, len: usize) -> Vec<f32> {
    (0..len).map(|_| random.unit() - 0.5).collect()
}

/// Returns a matrix in a format.
fn matrix(numbers: &[f32], format: Stored) -> Matrix {
    let Nf4 { packed, absmax } = nf4::quantize(numbers);
    match format {
        Stored::F32 => Matrix::F32(numbers.to_vec()),
        Stored::Nf4 => Matrix::Nf4(Nf4 { packed, absmax }),
        Stored::Nested => Matrix::Nested(Nf4 {
            packed,
            absmax: nested::quantize(&absmax),
        }),
    }
}

fn context() -> Context {
    let driver = Driver::from_library(warpwright_cuda_emu::library()).unwrap();
    Context::new(&driver.device(0).unwrap()).unwrap()
}

/// Returns one line for each node: the nodes that it follows, then its work.
fn text(graph: &Graph) -> String {
    let mut out = String::new();
    for node in graph.nodes() {
        let mut edges: Vec<_> = graph
            .edges()
            .iter()
            .filter(|edge| edge.to == node.id())
            .collect();
        edges.sort();
        let after: Vec<String> = edges
            .iter()
            .map(|edge| match edge.kind {
                EdgeKind::Full => edge.from.index().to_string(),
                kind => format!("{} {kind:?}", edge.from.index()),
            })
            .collect();
        let after = after.join(" ");
        let index = node.id().index();
        let _ = writeln!(out, "{index} after [{after}]: {}", work(node));
    }
    out
}

/// Returns the name of a node, its geometry and scalars if it is a launch, and its memory accesses.
fn work(node: &Node) -> String {
    let mut out = node.name();
    if let NodeKind::Work(Work::Launch(launch)) = node.kind() {
        let LaunchConfig {
            grid,
            block,
            shared,
            ..
        } = launch.config();
        let scalars: Vec<String> = launch
            .args()
            .into_iter()
            .filter_map(|arg| match arg {
                HostArg::Scalar(_, bits) => Some(format!("{bits:x}")),
                // Buffers and tensor maps are among the accesses.
                _ => None,
            })
            .collect();
        let scalars = scalars.join(" ");
        let _ = write!(out, " {grid:?} {block:?} {shared} ({scalars})");
    }

    for used in node.uses() {
        let access = match used.access {
            Access::Read => "=",
            Access::Write => "<-",
            Access::ReadWrite => "<->",
        };
        let _ = write!(out, "; {} {access} {}", used.name, used.region);
    }

    out
}

/// The FNV-1a hash.
fn digest(text: &str) -> u64 {
    text.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

fn assert_snapshot(name: &str, text: &str) {
    let mut settings = insta::Settings::clone_current();
    settings.set_snapshot_path("../../tests/it/snapshots");
    settings.set_prepend_module_to_snapshot(false);
    settings.bind(|| insta::assert_snapshot!(name, text));
}

#[test]
fn launches_of_a_step() {
    let context = context();
    for (name, precision) in [("f32", Precision::F32), ("bf16", Precision::Bf16)] {
        let trainer = variants()[0].trainer(&context, precision, Recomputation::None);
        let graph = trainer.graph(Launch::Graph, LaunchUnit::Last).unwrap();
        assert_snapshot(&format!("launches_{name}"), &text(&graph));
    }
}

#[test]
fn launches_of_every_graph() {
    let context = context();
    let mut out = String::new();
    for variant in variants() {
        for precision in [Precision::F32, Precision::Bf16] {
            for recomputation in [
                Recomputation::None,
                Recomputation::Cheap,
                Recomputation::Layers,
            ] {
                let trainer = variant.trainer(&context, precision, recomputation);
                for launch in [Launch::Graph, Launch::Capture] {
                    for (unit, work) in UNITS {
                        let graph = trainer.graph(launch, work).unwrap();
                        let nodes = graph.nodes().len();
                        let digest = digest(&text(&graph));
                        let _ = writeln!(
                            out,
                            "{}; {precision:?}; recomputes {recomputation:?}; {launch:?}; {unit}: \
                             {nodes} nodes, {digest:016x}",
                            variant.name,
                        );
                    }
                }
            }
        }
    }

    assert_snapshot("launches_digests", &out);
}
