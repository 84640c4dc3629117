//! Microbenchmarks of the pipeline's kernels, with any plan.
//!
//! Each kernel is timed as a node of a pipeline that consists only of its own kind. The nodes cycle
//! through the matrices of all layers. This working set does not fit into the L2 cache, so every
//! matrix is read from memory. If the model has too few matrices for that, copies are added.

use std::collections::BTreeMap;
use std::time::Duration;

use warpwright_driver::Context;
use warpwright_driver::graph::{Graph, GraphExec, Recorder};
use warpwright_driver::memory::{Buffer, View};
use warpwright_driver::ordering::Event;
use warpwright_driver::stream::Queue;
use warpwright_kernels::Read;
use warpwright_kernels::measure::read::ReadArgs;
use warpwright_kernels::pipeline::Plan;
use warpwright_model::Outline;

use crate::Decoder;
use crate::Error;
use crate::pipeline::GemvKind;
use crate::pipeline::kernels::Pipeline;
use crate::pipeline::resolved::ResolvedPipeline;
use crate::pipeline::tuning::Tuning;
use crate::signed;

/// The size of a microbenchmark.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Effort {
    /// The minimum working set in bytes.
    pub bytes: u64,
    /// The minimum number of kernels per launch.
    pub nodes: usize,
    /// The number of timed launches, of which the median counts.
    pub launches: usize,
}

/// A cache-cold working set: the matrices that one GEMV kernel reads, in one format.
#[derive(Clone)]
pub struct ColdSet {
    /// The GEMV that reads the matrices.
    pub product: GemvKind,
    /// The number formats of the matrices.
    pub formats: String,
    /// The number of layers that have such a matrix.
    pub layers: usize,
    /// The bytes of each matrix.
    pub bytes: u64,
    /// The layer and the tiles of each matrix.
    tiles: Vec<(usize, View<u8>)>,
}

impl ColdSet {
    /// Returns the bytes of the whole set.
    pub fn total_bytes(&self) -> u64 {
        self.bytes * self.tiles.len() as u64
    }
}

impl Decoder {
    /// Returns the working sets of the pipeline's GEMV kernels, enlarged to at least `effort.bytes`
    /// each.
    ///
    /// # Errors
    /// Returns [`Error::NoPipeline`] if the decoder uses the simple kernels, or a driver error.
    pub fn cold_sets(&self, effort: Effort) -> Result<Vec<ColdSet>, Error> {
        let step = self.pipeline_step()?;
        let mut sets: BTreeMap<(GemvKind, String), ColdSet> = BTreeMap::new();
        let layers = 0..step.pass.weights.blocks.len();
        let of_layers = layers.flat_map(|index| GemvKind::OF_LAYER.map(|product| (product, index)));
        for (product, index) in of_layers.chain([(GemvKind::Head, 0)]) {
            let formats = step.pass.pipeline.resolved.formats(product, index);
            let tiles = step.pass.tiles(product, index).clone();
            let bytes = tiles.len() as u64;
            let new = ColdSet {
                product,
                formats: formats.clone(),
                layers: 0,
                bytes,
                tiles: vec![],
            };
            let set = sets.entry((product, formats)).or_insert(new);
            set.layers += 1;
            set.tiles.push((index, tiles));
        }

        let mut sets: Vec<ColdSet> = sets.into_values().collect();
        for set in &mut sets {
            self.extend(set, effort.bytes)?;
        }

        self.stream.synchronize()?;
        Ok(sets)
    }

    /// Adds copies until the set has this many bytes.
    fn extend(&self, set: &mut ColdSet, bytes: u64) -> Result<(), Error> {
        let stream = &self.stream;
        for i in 0.. {
            if set.total_bytes() >= bytes {
                break;
            }
            let (index, tiles) = set.tiles[i].clone();
            let copy = Buffer::uninit(stream.context(), tiles.len())?
                .labelled("copy")
                .view();
            stream.copy(&tiles, &copy)?;
            set.tiles.push((index, copy));
        }
        Ok(())
    }

    /// Returns the time of a GEMV with this plan for each working set, or `None` if the plan does
    /// not fit the model.
    ///
    /// # Errors
    /// Returns [`Error::NoPipeline`] if the decoder uses the simple kernels, or a driver error.
    pub fn time_product(
        &mut self,
        outline: &Outline,
        plan: Plan,
        sets: &[ColdSet],
        effort: Effort,
    ) -> Result<Option<Vec<Duration>>, Error> {
        self.prepare(1, 1)?;
        let context = self.stream.context().clone();
        let Ok(resolved) =
            ResolvedPipeline::for_model(outline, context.device(), Tuning::all(plan), 1)
        else {
            return Ok(None);
        };

        let pipeline = Pipeline::load(&context, resolved.single)?;
        let step = self.pipeline_step()?.with_pipeline(&pipeline);
        let time = |set: &ColdSet| {
            let nodes = set
                .tiles
                .iter()
                .cycle()
                .take(effort.nodes.max(set.tiles.len()));

            // The kernels of a launch number themselves from 0, as in a step.
            step.pass.sequence.set(0);
            let graph = record(&context, |queue| {
                for (index, tiles) in nodes.clone() {
                    step.product(queue, set.product, *index, tiles)?;
                }
                Ok(())
            })?;
            self.time(&graph, effort.launches)
        };
        Ok(Some(sets.iter().map(time).collect::<Result<_, Error>>()?))
    }

    /// Returns the time of attention over this many positions.
    ///
    /// # Errors
    /// Returns [`Error::Room`] if the context is too short, [`Error::NoPipeline`] if the decoder
    /// uses the simple kernels, or a driver error.
    pub fn time_attention(&mut self, attended: u32, effort: Effort) -> Result<Duration, Error> {
        self.prepare(attended, 1)?;
        let step = self.pipeline_step()?;
        let layers = step.pass.weights.blocks.len();
        let graph = record(self.stream.context(), |queue| {
            for i in 0..effort.nodes.max(layers) {
                step.pass.attention(queue, i % layers)?;
            }
            Ok(())
        })?;
        self.time(&graph, effort.launches)
    }

    /// Returns the shortest time in which a kernel that only reads can stream one matrix of the
    /// set. Each launch starts after the previous one has ended.
    ///
    /// It is the lower bound for a GEMV over this matrix.
    ///
    /// # Errors
    /// Returns a driver error.
    pub fn time_read(&self, set: &ColdSet, effort: Effort) -> Result<Duration, Error> {
        let context = self.stream.context();
        let mut shortest = Duration::MAX;
        for read in Read::ALL {
            let kernel = signed::load(context, read)?;

            // The kernel reads whole tiles, so the remainder is skipped.
            let len = set.bytes as usize / 4 / read.tile() as usize * read.tile() as usize;
            if len == 0 {
                continue;
            }

            for blocks in [2, 4, 8].map(|n| n * context.device().properties().multiprocessors) {
                let y = Buffer::uninit(context, blocks as usize)?.labelled("read.y");
                let nodes = set
                    .tiles
                    .iter()
                    .cycle()
                    .take(effort.nodes.max(set.tiles.len()));
                let graph = record(context, |queue| {
                    nodes.clone().try_for_each(|(_, tiles)| {
                        let x = tiles.view_range(0..4 * len).cast()?;
                        queue.launch(
                            &kernel,
                            ReadArgs {
                                x: &x,
                                y: &y,
                                n: len as u32,
                            },
                        )
                    })
                })?;
                shortest = shortest.min(self.time(&graph, effort.launches)?);
            }
        }

        Ok(shortest)
    }

    /// Returns the median time of a node.
    fn time(&self, graph: &Graph, launches: usize) -> Result<Duration, Error> {
        let mut exec = graph.instantiate()?;
        // The first launch uploads the graph and warms up the device.
        self.launch_timed(&mut exec)?;
        let mut times = (0..launches)
            .map(|_| self.launch_timed(&mut exec))
            .collect::<Result<Vec<_>, _>>()?;
        times.sort();
        Ok(times[times.len() / 2] / graph.nodes().len() as u32)
    }

    /// Returns the device time of one launch.
    fn launch_timed(&self, exec: &mut GraphExec) -> Result<Duration, Error> {
        let start = Event::new(self.stream.context())?;
        let end = Event::new(self.stream.context())?;
        start.record(&self.stream)?;
        exec.launch(&self.stream)?;
        end.record(&self.stream)?;
        end.synchronize()?;
        Ok(end.since(&start)?)
    }
}

/// Records a graph whose kernels overlap, as in a decode step.
fn record(
    context: &Context,
    work: impl FnOnce(&mut Recorder) -> Result<(), warpwright_driver::Error>,
) -> Result<Graph, Error> {
    let mut recorder = Recorder::pipeline(context)?;
    work(&mut recorder)?;
    Ok(recorder.finish())
}
