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

use super::matrix::{DeviceLora, LoraMatrix, LoraMatrixShape};
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

/// Returns an error if an adapter does not have the shapes of the model.
///
/// An adapter is checked when it is read, but possibly against another model.
pub(crate) fn check(layers: &[LayerRows], hidden: u32, adapter: &Adapter) -> Result<(), Error> {
    if adapter.layers.len() != layers.len() {
        return Err(Error::AdapterLayers {
            found: adapter.layers.len(),
            wanted: layers.len(),
        });
    }

    for (index, (rows, factors)) in layers.iter().zip(&adapter.layers).enumerate() {
        for matrix in MATRICES {
            let Some(shape) = LoraMatrixShape::new(matrix, hidden, rows) else {
                let mut projections = matrix.projections();
                let changed = projections.find(|&projection| factors[projection].is_some());
                if let Some(projection) = changed {
                    return Err(Error::AdapterExperts {
                        layer: index,
                        projection,
                    });
                }
                continue;
            };
            for (projection, [rows, n]) in shape.sizes() {
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
    }
    Ok(())
}

/// Returns the bytes of a pool of these adapters.
pub(crate) fn bytes(layers: &[LayerRows], hidden: u32, adapters: &[&Adapter]) -> u64 {
    let mut matrices = 0;
    let mut ranks = 0;
    let mut width = 0;
    for (index, rows) in layers.iter().enumerate() {
        for matrix in MATRICES {
            let Some(shape) = LoraMatrixShape::new(matrix, hidden, rows) else {
                continue;
            };
            let Some(rank) = shape.rank(index, adapters) else {
                continue;
            };
            matrices += shape.bytes(rank, adapters.len());
            // At most three projections share a matmul.
            ranks = ranks.max(3 * rank);
            if matrix == LoraMatrix::GateUp {
                width = width.max(2 * rows.feed_forward.width());
            }
        }
    }
    let work = u64::from(CHUNK) * u64::from(ranks) + u64::from(CAPACITY) * u64::from(width);
    matrices + 4 * work
}

impl LoraPool {
    /// Copies adapters to the device, which must fit the model. There must be at least one.
    pub(crate) fn load(
        context: &Context,
        rows: &[LayerRows],
        hidden: u32,
        adapters: &[&Adapter],
    ) -> Result<LoraPool, Error> {
        let layers = rows.iter().enumerate().map(|(index, rows)| {
            let [qkv, o, gate_up, down] =
                MATRICES.map(|matrix| match LoraMatrixShape::new(matrix, hidden, rows) {
                    Some(shape) => load_matrix(context, &shape, adapters, matrix, index),
                    None => Ok(None),
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

/// Copies the adapters of a matrix to the device, if there are any.
fn load_matrix(
    context: &Context,
    shape: &LoraMatrixShape,
    adapters: &[&Adapter],
    matrix: LoraMatrix,
    layer: usize,
) -> Result<Option<DeviceLora>, Error> {
    let Some(rank) = shape.rank(layer, adapters) else {
        return Ok(None);
    };
    let factors = adapters.iter().map(|adapter| shape.factors(layer, adapter));
    let name = format!("blk.{layer}.{matrix:?}");
    shape
        .load(context, &name, rank, &factors.collect::<Vec<_>>())
        .map(Some)
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
