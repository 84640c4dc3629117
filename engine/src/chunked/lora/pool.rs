//! The adapters of all layers on the device, with the kernels that apply them.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use warpwright_driver::Context;
use warpwright_driver::launch::Kernel;
use warpwright_driver::memory::Buffer;
use warpwright_kernels::RowOrder;
use warpwright_kernels::batch::lora::{
    BatchLoraAdd, BatchLoraAppend, BatchLoraShrink, GateTokens, LoraParts,
};
use warpwright_model::Adapter;
use warpwright_model::adapter::LoraFactors;

use super::matrix::{DeviceLora, HostLora, LoraMatrix, LoraMatrixShape};
use crate::Error;
use crate::chunked::CHUNK;
use crate::chunked::kernels::order;
use crate::chunked::products::load;
use crate::chunked::weights::{LayerRows, MatrixRows};
use crate::chunked::workspace::CAPACITY;
use crate::kernel_terms::{kernel_activation, kernel_pairing};
use crate::pipeline::kinds::Appending;

/// The adapters that rows of a pass can have.
pub(crate) struct LoraPool {
    /// The number of adapters.
    pub(super) adapters: u32,
    pub(super) layers: Vec<LayerLora>,
    /// `s A x` of a matmul, `[chunk, ranks]`. Matmuls use it one after another.
    pub(super) u: Buffer<f32>,
    /// The sums of gate and up, `[capacity, 2 * width]`, if an adapter changes them.
    pub(super) gate_up: Option<Buffer<f32>>,
    pub(super) kernels: LoraPoolKernels,
}

/// The adapters of a layer.
pub(crate) struct LayerLora {
    pub(super) qkv: Option<DeviceLora>,
    pub(super) o: Option<DeviceLora>,
    pub(super) gate_up: Option<GateUpLora>,
    pub(super) down: Option<DeviceLora>,
}

/// The adapters of gate and up.
pub(crate) struct GateUpLora {
    pub(super) lora: DeviceLora,
    /// The matrix as the tiles have its rows. Its sums are stored in this order.
    pub(super) tiles: MatrixRows,
}

/// The compiled kernels.
pub(super) struct LoraPoolKernels {
    pub(super) shrink: Kernel<BatchLoraShrink>,
    pub(super) add: BTreeMap<LoraParts, Kernel<BatchLoraAdd>>,
    pub(super) append: BTreeMap<BatchLoraAppend, Kernel<BatchLoraAppend>>,
    pub(super) gate: BTreeMap<GateTokens, Kernel<GateTokens>>,
}

const MATRICES: [LoraMatrix; 4] = [
    LoraMatrix::Qkv,
    LoraMatrix::O,
    LoraMatrix::GateUp,
    LoraMatrix::Down,
];

/// The shapes of the matrices of a model. They contain no device memory, so that adapters can be
/// prepared on another thread.
pub(crate) struct LoraShapes {
    /// The shapes of each layer, in the order of [`MATRICES`]. No adapter changes experts.
    layers: Vec<[Option<LoraMatrixShape>; 4]>,
}

/// An adapter in host memory, in the layout of the device.
pub(crate) struct HostAdapter {
    /// The matrices of each layer, in the order of [`MATRICES`].
    layers: Vec<[Option<HostLora>; 4]>,
}

impl LoraShapes {
    pub(crate) fn new(layers: &[LayerRows], hidden: u32) -> LoraShapes {
        let shapes = |rows| MATRICES.map(|matrix| LoraMatrixShape::new(matrix, hidden, rows));
        LoraShapes {
            layers: layers.iter().map(shapes).collect(),
        }
    }

    /// Brings an adapter into the layout of the device.
    ///
    /// # Errors
    /// Returns an error if it does not have the shapes of the model. An adapter is checked when it
    /// is read, but possibly against another model.
    pub(crate) fn prepare(&self, adapter: &Adapter) -> Result<HostAdapter, Error> {
        self.check(adapter)?;
        let layers = self.layers.iter().enumerate().map(|(index, shapes)| {
            shapes.each_ref().map(|shape| {
                let shape = shape.as_ref()?;
                shape.prepare(shape.factors(index, adapter))
            })
        });
        Ok(HostAdapter {
            layers: layers.collect(),
        })
    }

    fn check(&self, adapter: &Adapter) -> Result<(), Error> {
        if adapter.layers.len() != self.layers.len() {
            return Err(Error::AdapterLayers {
                found: adapter.layers.len(),
                wanted: self.layers.len(),
            });
        }

        for (index, (shapes, factors)) in self.layers.iter().zip(&adapter.layers).enumerate() {
            check_experts(index, shapes, factors)?;
            for (projection, [rows, n]) in shapes.iter().flatten().flat_map(LoraMatrixShape::sizes)
            {
                let Some(factors) = &factors[projection] else {
                    continue;
                };
                let len = |rows: u32| (rows * factors.rank) as usize;
                if [factors.a.len(), factors.b.len()] != [len(n), len(rows)] {
                    return Err(Error::AdapterShape {
                        layer: index,
                        projection,
                        rows,
                        n,
                    });
                }
            }
        }
        Ok(())
    }

    /// Returns the bytes of a pool of these adapters.
    pub(crate) fn bytes(&self, adapters: &[&HostAdapter]) -> u64 {
        let mut matrices = 0;
        let mut ranks = 0;
        let mut width = 0;
        for (index, shapes) in self.layers.iter().enumerate() {
            for (which, (matrix, shape)) in MATRICES.iter().zip(shapes).enumerate() {
                let Some(rank) = largest_rank(&of_matrix(adapters, index, which)) else {
                    continue;
                };
                let shape = shape
                    .as_ref()
                    .expect("an adapter was prepared for the matrix");
                matrices += shape.bytes(rank, adapters.len());
                // At most three projections share a matmul.
                ranks = ranks.max(3 * rank);
                if *matrix == LoraMatrix::GateUp {
                    width = width.max(shape.rows());
                }
            }
        }
        let work = u64::from(CHUNK) * u64::from(ranks) + u64::from(CAPACITY) * u64::from(width);
        matrices + 4 * work
    }
}

/// Returns an error if an adapter changes a matrix without a shape: one of experts.
fn check_experts(
    layer: usize,
    shapes: &[Option<LoraMatrixShape>; 4],
    factors: &[Option<LoraFactors>; 7],
) -> Result<(), Error> {
    let matrices = MATRICES.iter().zip(shapes);
    let unchanged = matrices.filter(|(_, shape)| shape.is_none());
    let mut projections = unchanged.flat_map(|(matrix, _)| matrix.projections());
    match projections.find(|&projection| factors[projection].is_some()) {
        Some(projection) => Err(Error::AdapterExperts { layer, projection }),
        None => Ok(()),
    }
}

/// Returns the matrices of each adapter at this index of [`MATRICES`].
fn of_matrix<'a>(
    adapters: &[&'a HostAdapter],
    layer: usize,
    which: usize,
) -> Vec<Option<&'a HostLora>> {
    let adapters = adapters.iter();
    adapters
        .map(|adapter| adapter.layers[layer][which].as_ref())
        .collect()
}

/// Returns the largest rank of these matrices, or `None` if no adapter changes the matrix.
fn largest_rank(adapters: &[Option<&HostLora>]) -> Option<u32> {
    adapters.iter().flatten().map(|host| host.rank).max()
}

impl LoraPool {
    /// Copies adapters to the device, which must fit the model. There must be at least one.
    pub(crate) fn load(
        context: &Context,
        rows: &[LayerRows],
        shapes: &LoraShapes,
        adapters: &[&HostAdapter],
    ) -> Result<LoraPool, Error> {
        let layers = rows.iter().enumerate().map(|(index, rows)| {
            let [qkv, o, gate_up, down] = [0, 1, 2, 3].map(|which| {
                let hosts = of_matrix(adapters, index, which);
                let Some(rank) = largest_rank(&hosts) else {
                    return Ok(None);
                };
                let name = format!("blk.{index}.{:?}", MATRICES[which]);
                let shape = shapes.layers[index][which]
                    .as_ref()
                    .expect("an adapter was prepared for the matrix");
                shape.load(context, &name, rank, &hosts).map(Some)
            });
            let gate_up = gate_up?.map(|lora| GateUpLora {
                lora,
                tiles: in_tile_order(&rows.gate_up),
            });
            Ok(LayerLora {
                qkv: qkv?,
                o: o?,
                gate_up,
                down: down?,
            })
        });
        let layers = layers.collect::<Result<Vec<_>, Error>>()?;
        let ranks = layers
            .iter()
            .flat_map(LayerLora::all)
            .map(DeviceLora::ranks);
        let ranks = ranks.max().unwrap_or(0);
        let widths = layers.iter().filter_map(|layer| layer.gate_up.as_ref());
        let gate_up = match widths.map(|gate_up| gate_up.lora.rows).max() {
            Some(width) => {
                let len = CAPACITY as usize * width as usize;
                Some(Buffer::zeroed(context, len)?.labelled("lora.gate_up"))
            }
            None => None,
        };
        Ok(LoraPool {
            adapters: adapters.len() as u32,
            u: Buffer::zeroed(context, (CHUNK * ranks) as usize)?.labelled("lora.u"),
            gate_up,
            kernels: LoraPoolKernels::load(context, rows, &layers)?,
            layers,
        })
    }
}

impl LoraPool {
    /// Returns the matrices of gate and up that adapters change.
    pub(crate) fn gate_up(&self) -> impl Iterator<Item = &MatrixRows> {
        let layers = self.layers.iter();
        layers.filter_map(|layer| Some(&layer.gate_up.as_ref()?.tiles))
    }
}

impl GateUpLora {
    pub(crate) fn lora(&self) -> &DeviceLora {
        &self.lora
    }

    pub(crate) fn tiles(&self) -> &MatrixRows {
        &self.tiles
    }
}

impl LayerLora {
    pub(crate) fn qkv(&self) -> Option<&DeviceLora> {
        self.qkv.as_ref()
    }

    pub(crate) fn o(&self) -> Option<&DeviceLora> {
        self.o.as_ref()
    }

    pub(crate) fn gate_up(&self) -> Option<&GateUpLora> {
        self.gate_up.as_ref()
    }

    pub(crate) fn down(&self) -> Option<&DeviceLora> {
        self.down.as_ref()
    }

    fn all(&self) -> impl Iterator<Item = &DeviceLora> {
        let gate_up = self.gate_up.as_ref().map(|gate_up| &gate_up.lora);
        let all = [
            self.qkv.as_ref(),
            self.o.as_ref(),
            gate_up,
            self.down.as_ref(),
        ];
        all.into_iter().flatten()
    }
}

/// Returns a matrix whose sums are stored in the order of its tiles.
fn in_tile_order(rows: &MatrixRows) -> MatrixRows {
    MatrixRows {
        format: rows.format,
        order: RowOrder::PLAIN,
        tiles: rows.tiles.clone(),
        unit: rows.unit.clone(),
        rows: rows.rows,
        n: rows.n,
        first: rows.first,
    }
}

/// Returns the kernel that adds to queries, keys and values of a layer, if the matmul appends them.
pub(super) fn append_kernel(rows: &LayerRows) -> Option<BatchLoraAppend> {
    match rows.appending {
        Appending::Product => Some(BatchLoraAppend {
            head_dim: rows.attention.head_dim,
            pairing: kernel_pairing(rows.attention.pairing),
        }),
        Appending::Rotation => None,
    }
}

/// Returns the kernel that gates the sums of gate and up of a layer.
pub(super) fn gate_kernel(rows: &LayerRows) -> GateTokens {
    GateTokens {
        activation: kernel_activation(rows.feed_forward.activation()),
        order: order(&rows.down),
    }
}

impl LoraPoolKernels {
    fn load(
        context: &Context,
        rows: &[LayerRows],
        layers: &[LayerLora],
    ) -> Result<LoraPoolKernels, Error> {
        let mut kernels = LoraPoolKernels {
            shrink: load(context, BatchLoraShrink)?,
            add: BTreeMap::new(),
            append: BTreeMap::new(),
            gate: BTreeMap::new(),
        };
        for (rows, layer) in rows.iter().zip(layers) {
            for parts in layer.all().map(|lora| lora.parts) {
                if let Entry::Vacant(entry) = kernels.add.entry(parts) {
                    entry.insert(load(context, BatchLoraAdd { parts })?);
                }
            }
            if let Some(append) = append_kernel(rows)
                && layer.qkv.is_some()
                && !kernels.append.contains_key(&append)
            {
                kernels.append.insert(append, load(context, append)?);
            }
            let gate = gate_kernel(rows);
            if layer.gate_up.is_some() && !kernels.gate.contains_key(&gate) {
                kernels.gate.insert(gate, load(context, gate)?);
            }
        }
        Ok(kernels)
    }
}
