//! Kernels of the chain alone: how long each takes as a node of a chain of its kind, with any plan.
//!
//! A chain goes through the matrices of all layers in turn, so that none is in the second-level cache when its turn
//! comes again. Where a model's own are too few for that, copies of them take turns too.

use std::collections::BTreeMap;
use std::time::Duration;

use warpwright_driver::{Buffer, Context, Event, Graph, GraphExec, Kernel, Queue, Recorder, View};
use warpwright_kernels::Read;
use warpwright_kernels::read::ReadArgs;
use warpwright_kernels::tiled::Plan;

use crate::chain::{Chain, Product, Step};
use crate::path::Fit;
use crate::tuning::Tuning;
use crate::{Decoder, Error, Outline};

/// How long a chain of kernels must be, and how often it is run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Effort {
    /// The least bytes to go through before the first come again.
    pub bytes: u64,
    /// The least kernels of a chain.
    pub nodes: usize,
    /// Timed launches, of which the median counts.
    pub launches: usize,
}

/// Matrices of one product and one format, to go through in turn.
#[derive(Clone)]
pub struct Rotation {
    /// The product that reads them.
    pub product: Product,
    /// Their formats.
    pub formats: String,
    /// How many the model has.
    pub layers: usize,
    /// Bytes of each.
    pub bytes: u64,
    /// The layer of each, and its tiles.
    tiles: Vec<(usize, View<u8>)>,
}

impl Rotation {
    /// Bytes of all.
    pub fn rotated(&self) -> u64 {
        self.bytes * self.tiles.len() as u64
    }
}

impl Decoder {
    /// The matrices of a chain by product and format. A decoder on another path has none.
    ///
    /// # Errors
    /// What the driver refuses.
    pub fn rotations(&self, effort: Effort) -> Result<Vec<Rotation>, Error> {
        let step = self.chained()?;
        let mut rotations: BTreeMap<(Product, String), Rotation> = BTreeMap::new();
        let layers = 0..step.weights.blocks.len();
        let of_layers = layers.flat_map(|index| Product::OF_LAYER.map(|product| (product, index)));
        for (product, index) in of_layers.chain([(Product::Head, 0)]) {
            let (formats, tiles) = (step.formats(product, index), step.tiles(product, index).clone());
            let bytes = tiles.len() as u64;
            let new = Rotation { product, formats: formats.clone(), layers: 0, bytes, tiles: vec![] };
            let rotation = rotations.entry((product, formats)).or_insert(new);
            rotation.layers += 1;
            rotation.tiles.push((index, tiles));
        }
        let mut rotations: Vec<Rotation> = rotations.into_values().collect();
        rotations.iter_mut().try_for_each(|rotation| self.lengthen(rotation, effort.bytes))?;
        self.stream.synchronize()?;
        Ok(rotations)
    }

    /// Adds copies until there are so many bytes.
    fn lengthen(&self, rotation: &mut Rotation, bytes: u64) -> Result<(), Error> {
        let mut stream = &self.stream;
        for i in 0.. {
            if rotation.rotated() >= bytes {
                break;
            }
            let (index, tiles) = rotation.tiles[i].clone();
            let copy = Buffer::uninit(stream.context(), tiles.len())?.labelled("copy").view();
            stream.copy(&tiles, &copy)?;
            rotation.tiles.push((index, copy));
        }
        Ok(())
    }

    /// The time of a product with this plan, for each of the rotations; none if the plan does not fit the model.
    ///
    /// # Errors
    /// What the driver refuses.
    pub fn alone(
        &mut self,
        outline: &Outline,
        plan: Plan,
        rotations: &[Rotation],
        effort: Effort,
    ) -> Result<Option<Vec<Duration>>, Error> {
        self.prepare(1, 1)?;
        let context = self.stream.context().clone();
        let Ok(fit) = Fit::of(outline, context.device(), Tuning::all(plan), Default::default()) else {
            return Ok(None);
        };
        let chain = Chain::load(&context, fit, outline)?;
        let step = Step { chain: &chain, ..self.chained()? };
        let time = |rotation: &Rotation| {
            let nodes = rotation.tiles.iter().cycle().take(effort.nodes.max(rotation.tiles.len()));
            step.turn.set(0);
            let graph = record(&context, |queue| {
                nodes.clone().try_for_each(|(index, tiles)| {
                    step.product(queue, rotation.product, *index, tiles.clone())
                })
            })?;
            self.time(&graph, effort.launches)
        };
        Ok(Some(rotations.iter().map(time).collect::<Result<_, Error>>()?))
    }

    /// The time of attention over so many positions.
    ///
    /// # Errors
    /// More positions than there is room for, and what the driver refuses.
    pub fn attention_alone(&mut self, attended: u32, effort: Effort) -> Result<Duration, Error> {
        self.prepare(attended, 1)?;
        let step = self.chained()?;
        let layers = step.weights.blocks.len();
        let graph = record(self.stream.context(), |queue| {
            (0..effort.nodes.max(layers)).try_for_each(|i| step.attention(queue, i % layers))
        })?;
        self.time(&graph, effort.launches)
    }

    /// The shortest time in which a kernel that only reads goes through a matrix of these, each started when the one
    /// before has ended.
    ///
    /// # Errors
    /// What the driver refuses.
    pub fn read_alone(&self, rotation: &Rotation, effort: Effort) -> Result<Duration, Error> {
        let context = self.stream.context();
        let mut shortest = Duration::MAX;
        for read in Read::ALL {
            let kernel = Kernel::load(context, read)?;
            // What is not a whole tile is left out.
            let len = rotation.bytes as usize / 4 / read.tile() as usize * read.tile() as usize;
            if len == 0 {
                continue;
            }
            for blocks in [2, 4, 8].map(|n| n * context.device().properties().multiprocessors) {
                let y = Buffer::uninit(context, blocks as usize)?.labelled("read.y");
                let nodes = rotation.tiles.iter().cycle().take(effort.nodes.max(rotation.tiles.len()));
                let graph = record(context, |queue| {
                    nodes.clone().try_for_each(|(_, tiles)| {
                        let x = tiles.view_range(0..4 * len).cast()?;
                        queue.launch(&kernel, ReadArgs { x, y: y.view(), n: len as u32 })
                    })
                })?;
                shortest = shortest.min(self.time(&graph, effort.launches)?);
            }
        }
        Ok(shortest)
    }

    /// The median time of a node.
    fn time(&self, graph: &Graph, launches: usize) -> Result<Duration, Error> {
        let exec = graph.instantiate()?;
        self.launch_timed(&exec)?;
        let mut times = (0..launches).map(|_| self.launch_timed(&exec)).collect::<Result<Vec<_>, _>>()?;
        times.sort();
        Ok(times[times.len() / 2] / graph.nodes().len() as u32)
    }

    fn launch_timed(&self, exec: &GraphExec) -> Result<Duration, Error> {
        let (start, end) = (Event::new(self.stream.context())?, Event::new(self.stream.context())?);
        start.record(&self.stream)?;
        exec.launch(&self.stream)?;
        end.record(&self.stream)?;
        end.synchronize()?;
        Ok(end.since(&start)?)
    }
}

fn record(
    context: &Context,
    work: impl FnOnce(&mut Recorder) -> Result<(), warpwright_driver::Error>,
) -> Result<Graph, Error> {
    let mut recorder = Recorder::chain(context)?;
    work(&mut recorder)?;
    Ok(recorder.finish())
}
