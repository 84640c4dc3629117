//! The graphs of a step, their launches, and the results that the host reads back.

use warpwright_driver::Context;
use warpwright_driver::graph::{CaptureMode, Graph, GraphExec, Recorder, capture};
use warpwright_driver::stream::Stream;
use warpwright_kernels::train::optimizer::state::{
    CARRIED, CORRECTIONS, COUNTERS, MICRO, RECORD, SKIPPED, STEP,
};

use super::buffers::BufferShapes;
use super::passes::run::LaunchUnit;
use super::precision::PreciseStep;
use super::sizes::TrainingSizes;
use super::state::RECORDS;
use super::weights::Matrix;
use crate::reference::{Adapters, MicroBatch, Moments, Record};
use crate::settings::{Launch, Precision, Settings};
use crate::{Config, Error, LayerWeights, Projection, Weights};

/// A model in training on a device.
///
/// [`step`](Trainer::step) takes an optimizer step over some micro-batches.
/// [`snapshot`](Trainer::snapshot) and [`restore`](Trainer::restore) save and resume training with
/// the same bits.
pub struct Trainer {
    stream: Stream,
    step: PreciseStep,
    graphs: Option<TrainerGraphs>,
    settings: Settings,
    /// Adapters of zeros, for their shapes.
    shapes: Adapters,
    /// The number of micro-batches launched for training.
    micros: u32,
    /// The number of steps launched, including those that the device skipped.
    steps: u32,
}

/// Everything from which training continues.
#[derive(Clone, PartialEq, Debug)]
pub struct Snapshot {
    /// The adapters.
    pub adapters: Adapters,
    /// The moments of the adapters' gradients.
    pub moments: Moments,
    /// The number of steps taken.
    pub step: u32,
    /// The number of steps skipped, because the loss or the gradient norm was not finite.
    pub skipped: u32,
    /// The number of micro-batches processed.
    pub micro: u32,
    /// The bias corrections of the last step taken, `1 - beta^step`, as the device computes them.
    pub corrections: [f32; 2],
}

/// The result of an [evaluation](Trainer::evaluate).
#[derive(Clone, Copy, PartialEq, Default, Debug)]
pub struct Evaluation {
    /// The sum of the losses of the labelled tokens, in nats.
    pub loss: f64,
    /// The number of labelled tokens.
    pub tokens: usize,
}

impl Evaluation {
    /// Returns the mean loss per labelled token in nats, or NaN if there are none.
    pub fn mean(&self) -> f64 {
        self.loss / self.tokens as f64
    }
}

/// The instantiated graphs of a trainer.
struct TrainerGraphs {
    /// A micro-batch that is not the last of its step.
    micro: GraphExec,
    /// The last micro-batch of a step, and the update.
    last: GraphExec,
    /// The losses of a micro-batch, built on first use.
    evaluation: Option<GraphExec>,
}

impl Trainer {
    /// Allocates all buffers and builds the graphs of a training run.
    ///
    /// # Errors
    /// Returns an error if a size or a setting is out of range or not supported by the kernels, if
    /// a tensor has another shape than the configuration requires, or if the device has too little
    /// memory.
    pub fn new(
        context: &Context,
        settings: Settings,
        weights: &Weights<Vec<f32>, Matrix>,
        adapters: &Adapters,
    ) -> Result<Trainer, Error> {
        check(&settings, adapters)?;
        let Settings {
            config,
            lora,
            tokens,
            precision,
            ..
        } = &settings;
        check_layers(config, weights)?;
        let sizes = TrainingSizes::new(config, lora.rank, *tokens)?;
        let stored_rank = precision.stored_rank(lora.rank);
        let shapes = BufferShapes::new(&settings, &sizes, stored_rank);
        let step = PreciseStep::new(context, &settings, &shapes, weights, adapters)?;
        let stream = Stream::new(context)?;
        let graphs = TrainerGraphs::new(&step, &stream, settings.launch)?;
        let shapes = Adapters::zeros(config, lora);
        Ok(Trainer {
            stream,
            step,
            graphs,
            shapes,
            settings,
            micros: 0,
            steps: 0,
        })
    }

    /// Takes one optimizer step over these micro-batches, and waits for the device.
    ///
    /// # Errors
    /// - [`Error::Empty`] if there is no micro-batch.
    /// - [`Error::TooLong`] or [`Error::Number`] if a micro-batch is too long, or does not have the
    ///   number that comes next.
    /// - An error about the micro-batch if its lists or tokens are invalid.
    /// - [`Error::Driver`] if a driver call fails.
    pub fn step(&mut self, micros: &[MicroBatch]) -> Result<Record, Error> {
        let (last, others) = micros.split_last().ok_or(Error::Empty)?;

        // Everything is checked before the first launch, so that an invalid micro-batch leaves the
        // gradients of the step unchanged.
        for (i, micro) in micros.iter().enumerate() {
            self.check(micro, self.micros.wrapping_add(i as u32))?;
        }
        for micro in others {
            self.train(micro, LaunchUnit::Micro)?;
        }

        self.train(last, LaunchUnit::Last)?;
        self.stream.synchronize()?;
        let record = self.record(self.steps);
        self.steps = self.steps.wrapping_add(1);
        Ok(record)
    }

    /// Takes a step of one micro-batch, whose work `run` launches on the stream.
    pub(super) fn last_micro_batch(
        &mut self,
        micro: &MicroBatch,
        run: impl FnOnce(&PreciseStep, &Stream) -> Result<(), Error>,
    ) -> Result<(), Error> {
        self.check(micro, self.micros)?;
        self.fill_slot(micro)?;
        run(&self.step, &self.stream)?;
        self.step.state().slots.release(self.micros, &self.stream)?;
        self.micros = self.micros.wrapping_add(1);
        self.stream.synchronize()?;
        self.steps = self.steps.wrapping_add(1);
        Ok(())
    }

    /// Returns the trainer with another launch mode for all later steps.
    ///
    /// # Errors
    /// Returns a driver error if the graphs cannot be built.
    pub fn with_launch(self, launch: Launch) -> Result<Trainer, Error> {
        let graphs = TrainerGraphs::new(&self.step, &self.stream, launch)?;
        Ok(Trainer {
            graphs,
            settings: Settings {
                launch,
                ..self.settings
            },
            ..self
        })
    }

    /// Adds the gradients of a micro-batch to the gradients of the current step, without an update.
    /// [`gradients`](Self::gradients) returns the sum.
    ///
    /// # Errors
    /// Returns the errors of [`step`](Self::step).
    pub fn accumulate(&mut self, micro: &MicroBatch) -> Result<(), Error> {
        self.check(micro, self.micros)?;
        self.train(micro, LaunchUnit::Micro)
    }

    /// Returns the loss of a micro-batch under the current adapters, without dropout, and waits for
    /// the device.
    ///
    /// It does not change the state of training. The micro-batch's number and its `n` have no
    /// effect.
    ///
    /// # Errors
    /// Returns an error if the micro-batch is too long or invalid, or a driver error.
    pub fn evaluate(&mut self, micro: &MicroBatch) -> Result<Evaluation, Error> {
        self.check(micro, micro.number)?;
        self.launch(micro, LaunchUnit::Evaluation)?;
        let losses = self.step.losses().to_vec()?;
        Ok(Evaluation {
            loss: losses.into_iter().map(f64::from).sum(),
            tokens: micro.labelled(),
        })
    }

    /// Returns the logits of a micro-batch under the current adapters, `[tokens, vocab]`, without
    /// dropout.
    ///
    /// Like [`evaluate`](Self::evaluate), it does not change the state of training.
    ///
    /// # Errors
    /// Returns the errors of [`evaluate`](Self::evaluate). It also returns an error if the trainer
    /// was created for more tokens than [`Settings::head_chunk`], because the logits are then never
    /// in memory at the same time.
    pub fn logits(&mut self, micro: &MicroBatch) -> Result<Vec<f32>, Error> {
        let Settings {
            tokens, head_chunk, ..
        } = self.settings;
        let wanted = "at most as many as have logits at once (head_chunk)";
        Error::unless(
            tokens <= head_chunk,
            "the number of tokens of the trainer",
            tokens,
            wanted,
        )?;
        self.evaluate(micro)?;
        let mut logits = self.step.logits().to_vec()?;
        logits.truncate(micro.ids.len() * self.settings.config.vocab);
        Ok(logits)
    }

    /// Returns the sum of the gradients since the last step.
    ///
    /// # Errors
    /// Returns a driver error if the copy fails.
    pub fn gradients(&self) -> Result<Adapters, Error> {
        let all = &self.step.state().adapters;
        all.read(&all.gradients, &self.shapes)
    }

    /// Returns the current adapters.
    ///
    /// # Errors
    /// Returns a driver error if the copy fails.
    pub fn adapters(&self) -> Result<Adapters, Error> {
        let all = &self.step.state().adapters;
        all.read(&all.parameters, &self.shapes)
    }

    /// Returns everything from which training continues. Call it between steps.
    ///
    /// # Errors
    /// Returns a driver error if the copy fails.
    pub fn snapshot(&self) -> Result<Snapshot, Error> {
        let flat = &self.step.state().adapters;
        let state = &self.step.state().carried;
        let read = |buffer| flat.read(buffer, &self.shapes);
        let counters = state.counters.to_vec()?;
        let carried = state.values.to_vec()?;
        let first = CORRECTIONS as usize;
        Ok(Snapshot {
            adapters: read(&flat.parameters)?,
            moments: Moments {
                first: read(&flat.moments[0])?,
                second: read(&flat.moments[1])?,
            },
            step: counters[STEP as usize],
            skipped: counters[SKIPPED as usize],
            micro: counters[MICRO as usize],
            corrections: [carried[first], carried[first + 1]],
        })
    }

    /// Resumes from a snapshot, with the same bits as the trainer from which it was taken.
    /// Gradients of an unfinished step are discarded.
    ///
    /// # Errors
    /// Returns an error if the adapters or moments have other shapes, or a driver error.
    pub fn restore(&mut self, snapshot: &Snapshot) -> Result<(), Error> {
        let Snapshot {
            adapters,
            moments,
            step,
            skipped,
            micro,
            corrections,
        } = snapshot;
        let config = &self.settings.config;
        let lora = &self.settings.lora;

        // Checked before the first write, so that an error leaves the trainer unchanged.
        for all in [adapters, &moments.first, &moments.second] {
            all.check(config, lora)?;
        }

        let flat = &self.step.state().adapters;
        let state = &self.step.state().carried;
        flat.write(&flat.parameters, adapters)?;
        flat.write(&flat.moments[0], &moments.first)?;
        flat.write(&flat.moments[1], &moments.second)?;
        flat.write(&flat.gradients, &self.shapes)?;
        let mut counters = [0; COUNTERS];
        for (i, count) in [(STEP, step), (SKIPPED, skipped), (MICRO, micro)] {
            counters[i as usize] = *count;
        }

        let mut carried = [0.0; CARRIED];
        carried[CORRECTIONS as usize..][..2].copy_from_slice(corrections);
        state.counters.write(&counters)?;
        state.values.write(&carried)?;
        self.micros = *micro;

        // The device writes a record for skipped steps too.
        self.steps = step.wrapping_add(*skipped);
        Ok(())
    }

    /// Returns the number of nodes in the graph of a step with one micro-batch, or `None` if
    /// kernels are launched one by one.
    pub fn nodes(&self) -> Option<usize> {
        self.graphs.as_ref().map(|graphs| graphs.last.nodes().len())
    }

    /// Returns the graph of `work` in a launch mode, for tests that look at its nodes.
    #[cfg(test)]
    pub(super) fn graph(&self, launch: Launch, work: LaunchUnit) -> Result<Graph, Error> {
        graph(&self.step, &self.stream, launch, work)
    }

    /// Checks that a micro-batch is valid, fits, has this number, and suits the precision.
    fn check(&self, micro: &MicroBatch, number: u32) -> Result<(), Error> {
        micro.check(self.settings.config.vocab)?;
        let found = micro.ids.len();
        let most = self.settings.tokens;
        if found > most {
            return Err(Error::TooLong { found, most });
        }

        if micro.number != number {
            return Err(Error::Number {
                found: micro.number,
                wanted: number,
            });
        }

        // The `bf16` attention kernels need the documents in order.
        match micro.starts.windows(2).position(|pair| pair[1] < pair[0]) {
            Some(index) if self.settings.precision == Precision::Bf16 => {
                Err(Error::Order { index: index + 1 })
            }
            _ => Ok(()),
        }
    }

    /// Launches a micro-batch for training and counts it.
    fn train(&mut self, micro: &MicroBatch, work: LaunchUnit) -> Result<(), Error> {
        self.launch(micro, work)?;
        // The counter on the device wraps too, and both must select the same slot.
        self.micros = self.micros.wrapping_add(1);
        Ok(())
    }

    /// Writes a micro-batch to its slot and launches `work` on it.
    ///
    /// The device selects the slot by its counter of micro-batches in training. An evaluation does
    /// not advance that counter, so it uses the slot of the next micro-batch in training.
    fn launch(&mut self, micro: &MicroBatch, work: LaunchUnit) -> Result<(), Error> {
        self.fill_slot(micro)?;
        let step = &self.step;
        let stream = &self.stream;
        match &mut self.graphs {
            Some(graphs) => graphs
                .of(step, stream, self.settings.launch, work)?
                .launch(stream)?,
            None => step.run(&mut &*stream, work)?,
        }

        step.state().slots.release(self.micros, stream)
    }

    /// Writes a micro-batch to the slot from which the device copies next.
    fn fill_slot(&self, micro: &MicroBatch) -> Result<(), Error> {
        let state = self.step.state();
        state.slots.write(self.micros, micro, state.sizes.tokens)
    }

    /// Returns the record of step `i`, counted from the first launched step.
    fn record(&self, i: u32) -> Record {
        let slot = (i % RECORDS) as usize;
        let state = &self.step.state().carried;
        let number = |i: usize| f64::from(state.records.read(slot * RECORD as usize + i));
        let [loss, norm, clip, lr] = [0, 1, 2, 3].map(number);
        Record {
            loss,
            norm,
            clip,
            lr,
            skipped: state.outcomes.read(slot) == 0,
        }
    }
}

/// Checks the settings and the shapes of the adapters, of which there must be at least one.
fn check(settings: &Settings, adapters: &Adapters) -> Result<(), Error> {
    let Settings {
        config,
        lora,
        training,
        head_chunk,
        ..
    } = settings;
    config.check()?;
    lora.check()?;
    training.check()?;
    adapters.check(config, lora)?;
    let any = adapters.tensors().next().is_some();
    Error::unless(
        any,
        "the number of adapters",
        0,
        "at least 1: give a target",
    )?;
    Error::unless(*head_chunk > 0, "head_chunk", head_chunk, "at least 1")
}

/// Checks that the layers are supported.
///
/// Their heads have norms exactly if the configuration says so. The projections O and Down must not
/// have a bias, because their outputs are added to the residual stream and no kernel adds both.
fn check_layers<V, M>(config: &Config, weights: &Weights<V, M>) -> Result<(), Error> {
    let norms = |layer: &LayerWeights<V, M>| [layer.q_norm.is_some(), layer.k_norm.is_some()];
    let has = config.norms_heads();
    for (l, layer) in weights.layers.iter().enumerate() {
        if norms(layer) != [has; 2] {
            return Err(Error::HeadNorms { layer: l });
        }
        for p in [Projection::O, Projection::Down] {
            if layer.biases[p as usize].is_some() {
                return Err(Error::Bias {
                    projection: p.name(),
                    layer: l,
                });
            }
        }
    }

    Ok(())
}

impl TrainerGraphs {
    /// Builds the graphs of training, or returns `None` if kernels are launched one by one.
    fn new(
        step: &PreciseStep,
        stream: &Stream,
        launch: Launch,
    ) -> Result<Option<TrainerGraphs>, Error> {
        if launch == Launch::Eager {
            return Ok(None);
        }
        let of = |work| instantiate(step, stream, launch, work);
        Ok(Some(TrainerGraphs {
            micro: of(LaunchUnit::Micro)?,
            last: of(LaunchUnit::Last)?,
            evaluation: None,
        }))
    }

    /// Returns the graph of `work`, and builds the graph of evaluations on first use.
    fn of(
        &mut self,
        step: &PreciseStep,
        stream: &Stream,
        launch: Launch,
        work: LaunchUnit,
    ) -> Result<&mut GraphExec, Error> {
        match work {
            LaunchUnit::Micro => Ok(&mut self.micro),
            LaunchUnit::Last => Ok(&mut self.last),
            LaunchUnit::Evaluation => match &mut self.evaluation {
                Some(graph) => Ok(graph),
                none => Ok(none.insert(instantiate(step, stream, launch, work)?)),
            },
        }
    }
}

/// Records or captures `work` as a graph and instantiates it.
fn instantiate(
    step: &PreciseStep,
    stream: &Stream,
    launch: Launch,
    work: LaunchUnit,
) -> Result<GraphExec, Error> {
    Ok(graph(step, stream, launch, work)?.instantiate()?)
}

/// Captures `work` as a graph with [`Launch::Capture`], and records it otherwise.
fn graph(
    step: &PreciseStep,
    stream: &Stream,
    launch: Launch,
    work: LaunchUnit,
) -> Result<Graph, Error> {
    match launch {
        Launch::Capture => Ok(capture(stream, CaptureMode::ThreadLocal, |queue| {
            step.run(queue, work)
        })?),
        Launch::Graph | Launch::Eager => {
            let mut recorder = Recorder::new(stream.context())?;
            step.run(&mut recorder, work)?;
            Ok(recorder.finish())
        }
    }
}
