//! The graphs of a step, their launches, and what comes back.

use warpwright_driver::{CaptureMode, Context, GraphExec, Recorder, Stream, capture};
use warpwright_kernels::train::state::{
    CARRIED, CORRECTIONS, COUNTERS, MICRO, RECORD, SKIPPED, STEP,
};

use super::buffers::Layers;
use super::common::RECORDS;
use super::precision::{Pass, Work};
use super::settings::{Launch, Precision, Settings};
use super::sizes::Sizes;
use super::weights::Matrix;
use crate::reference::{Adapters, MicroBatch, Moments, Record};
use crate::{Error, LayerWeights, Projection, Weights};

/// A model in training on a device.
pub struct Trainer {
    stream: Stream,
    step: Pass,
    graphs: Option<Graphs>,
    settings: Settings,
    /// The adapters' shapes.
    shapes: Adapters,
    /// Micro-batches that were launched.
    micros: u32,
    /// Steps that were launched, the skipped ones among them.
    steps: u32,
}

/// All that training goes on from.
#[derive(Clone, PartialEq, Debug)]
pub struct Snapshot {
    /// The adapters.
    pub adapters: Adapters,
    /// Their moments.
    pub moments: Moments,
    /// Steps that were taken.
    pub step: u32,
    /// Steps that were skipped.
    pub skipped: u32,
    /// Micro-batches.
    pub micro: u32,
    /// The bias corrections of the last step that was taken, `1 - beta^step` as the device carries them.
    pub corrections: [f32; 2],
}

/// What an [evaluation](Trainer::evaluate) found.
#[derive(Clone, Copy, PartialEq, Default, Debug)]
pub struct Evaluation {
    /// The sum of the losses of the labelled tokens, in nats.
    pub loss: f64,
    /// The labelled tokens.
    pub tokens: usize,
}

impl Evaluation {
    /// Nats a labelled token; NaN without any.
    pub fn mean(&self) -> f64 {
        self.loss / self.tokens as f64
    }
}

/// The graphs; none if kernels are launched one by one.
struct Graphs {
    micro: GraphExec,
    /// The last micro-batch of a step, and the update.
    last: GraphExec,
    /// Made when it is first used.
    evaluation: Option<GraphExec>,
}

impl Trainer {
    /// Allocates everything, and makes the graphs.
    ///
    /// # Errors
    ///
    /// Sizes or settings that make no model or that kernels do not support, tensors of other shapes, too little memory.
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
            recomputation,
            ..
        } = &settings;
        let sizes = Sizes::new(config, lora.rank, *tokens)?;
        let layers = Layers {
            config,
            lora,
            head_norms: head_norms(weights)?,
            recomputation: *recomputation,
        };
        let step = Pass::new(context, &settings, sizes, weights, adapters, &layers)?;
        let stream = Stream::new(context)?;
        let graphs = Graphs::new(&step, &stream, settings.launch)?;
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

    /// One optimizer step over these micro-batches. It waits for the device.
    ///
    /// # Errors
    ///
    /// No micro-batch; micro-batches that are too long, or wrong in themselves, or of another number than comes next;
    /// faults of the device.
    pub fn step(&mut self, micros: &[MicroBatch]) -> Result<Record, Error> {
        let (last, others) = micros.split_last().ok_or(Error::Empty)?;
        for (i, micro) in micros.iter().enumerate() {
            self.check(micro, self.micros.wrapping_add(i as u32))?;
        }
        for micro in others {
            self.train(micro, Work::Micro)?;
        }
        self.train(last, Work::Last)?;
        self.stream.synchronize()?;
        let record = self.record(self.steps);
        self.steps = self.steps.wrapping_add(1);
        Ok(record)
    }

    /// A step of one micro-batch, whose work is put into the stream by `run`.
    pub(super) fn last_micro_batch(
        &mut self,
        micro: &MicroBatch,
        run: impl FnOnce(&Pass, &Stream) -> Result<(), Error>,
    ) -> Result<(), Error> {
        self.check(micro, self.micros)?;
        self.fill_slot(micro)?;
        run(&self.step, &self.stream)?;
        self.step
            .common()
            .slots
            .release(self.micros, &self.stream)?;
        self.micros = self.micros.wrapping_add(1);
        self.stream.synchronize()?;
        self.steps = self.steps.wrapping_add(1);
        Ok(())
    }

    /// The same, with other launches from now on.
    ///
    /// # Errors
    ///
    /// Faults of the device.
    pub fn with_launch(self, launch: Launch) -> Result<Trainer, Error> {
        let graphs = Graphs::new(&self.step, &self.stream, launch)?;
        Ok(Trainer {
            graphs,
            settings: Settings {
                launch,
                ..self.settings
            },
            ..self
        })
    }

    /// Adds the gradients of a micro-batch to those of the step, without an update: [`gradients`](Self::gradients) reads
    /// them.
    ///
    /// # Errors
    ///
    /// As [`step`](Self::step).
    pub fn accumulate(&mut self, micro: &MicroBatch) -> Result<(), Error> {
        self.check(micro, self.micros)?;
        self.train(micro, Work::Micro)
    }

    /// The losses of a micro-batch under the adapters as they are, without dropout; its number and `n` choose nothing. It
    /// changes nothing that training goes on from, and waits for the device.
    ///
    /// # Errors
    ///
    /// A micro-batch that is too long, or wrong in itself; faults of the device.
    pub fn evaluate(&mut self, micro: &MicroBatch) -> Result<Evaluation, Error> {
        self.check(micro, micro.number)?;
        self.launch(micro, Work::Evaluation)?;
        let losses = self.step.losses().to_vec()?;
        Ok(Evaluation {
            loss: losses.into_iter().map(f64::from).sum(),
            tokens: micro.labelled(),
        })
    }

    /// The logits of a micro-batch, `[tokens, vocab]`, under the adapters as they are, without dropout. Like
    /// [`evaluate`](Self::evaluate) it changes nothing that training goes on from.
    ///
    /// # Errors
    ///
    /// As [`evaluate`](Self::evaluate); a trainer of more tokens than have logits at once ([`Settings::head_chunk`]).
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

    /// The gradients of the micro-batches since the last step.
    ///
    /// # Errors
    ///
    /// Faults of the device.
    pub fn gradients(&self) -> Result<Adapters, Error> {
        self.step
            .common()
            .flat
            .read(&self.step.common().flat.gradients, &self.shapes)
    }

    /// The adapters as they are.
    ///
    /// # Errors
    ///
    /// Faults of the device.
    pub fn adapters(&self) -> Result<Adapters, Error> {
        self.step
            .common()
            .flat
            .read(&self.step.common().flat.parameters, &self.shapes)
    }

    /// All that training goes on from, after a step.
    ///
    /// # Errors
    ///
    /// Faults of the device.
    pub fn snapshot(&self) -> Result<Snapshot, Error> {
        let (flat, state) = (&self.step.common().flat, &self.step.common().state);
        let read = |buffer| flat.read(buffer, &self.shapes);
        let (counters, carried) = (state.counters.to_vec()?, state.carried.to_vec()?);
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

    /// Goes on from a snapshot, to the same bits as the trainer that it was taken of. Gradients that were added up for a
    /// step that has not ended are dropped.
    ///
    /// # Errors
    ///
    /// Adapters or moments of other shapes; faults of the device.
    pub fn restore(&mut self, snapshot: &Snapshot) -> Result<(), Error> {
        let Snapshot {
            adapters,
            moments,
            step,
            skipped,
            micro,
            corrections,
        } = snapshot;
        let (config, lora) = (&self.settings.config, &self.settings.lora);
        for all in [adapters, &moments.first, &moments.second] {
            all.check(config, lora)?;
        }
        let (flat, state) = (&self.step.common().flat, &self.step.common().state);
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
        state.carried.write(&carried)?;
        (self.micros, self.steps) = (*micro, step.wrapping_add(*skipped));
        Ok(())
    }

    /// Nodes of the graph of a step with one micro-batch; none if kernels are launched one by one.
    pub fn nodes(&self) -> Option<usize> {
        self.graphs.as_ref().map(|graphs| graphs.last.nodes().len())
    }

    fn check(&self, micro: &MicroBatch, number: u32) -> Result<(), Error> {
        micro.check(self.settings.config.vocab)?;
        let (found, most) = (micro.ids.len(), self.settings.tokens);
        if found > most {
            return Err(Error::TooLong { found, most });
        }
        if micro.number != number {
            return Err(Error::Number {
                found: micro.number,
                wanted: number,
            });
        }
        match micro.starts.windows(2).position(|pair| pair[1] < pair[0]) {
            Some(index) if self.settings.precision == Precision::Bf16 => {
                Err(Error::Order { index: index + 1 })
            }
            _ => Ok(()),
        }
    }

    fn train(&mut self, micro: &MicroBatch, work: Work) -> Result<(), Error> {
        self.launch(micro, work)?;
        // As the device's counter does.
        self.micros = self.micros.wrapping_add(1);
        Ok(())
    }

    /// The batch goes through the slot of the micro-batch that is next in training, by the device's counter.
    fn launch(&mut self, micro: &MicroBatch, work: Work) -> Result<(), Error> {
        self.fill_slot(micro)?;
        let (step, stream) = (&self.step, &self.stream);
        match &mut self.graphs {
            Some(graphs) => graphs
                .of(step, stream, self.settings.launch, work)?
                .launch(stream)?,
            None => step.run(&mut &*stream, work)?,
        }
        step.common().slots.release(self.micros, stream)
    }

    fn fill_slot(&self, micro: &MicroBatch) -> Result<(), Error> {
        let common = self.step.common();
        common.slots.write(self.micros, micro, common.sizes.tokens)
    }

    /// What step `i`, of those that were launched, did.
    fn record(&self, i: u32) -> Record {
        let (slot, state) = ((i % RECORDS) as usize, &self.step.common().state);
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

/// Refuses settings and adapters with which there is nothing to train.
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

/// Whether the layers have head norms. All must, or none; and only what is added to nothing may have a bias.
fn head_norms<V, M>(weights: &Weights<V, M>) -> Result<bool, Error> {
    let norms = |layer: &LayerWeights<V, M>| [layer.q_norm.is_some(), layer.k_norm.is_some()];
    let has = weights
        .layers
        .first()
        .is_some_and(|layer| layer.q_norm.is_some());
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
    Ok(has)
}

impl Graphs {
    fn new(step: &Pass, stream: &Stream, launch: Launch) -> Result<Option<Graphs>, Error> {
        if launch == Launch::Eager {
            return Ok(None);
        }
        let of = |work| instantiate(step, stream, launch, work);
        Ok(Some(Graphs {
            micro: of(Work::Micro)?,
            last: of(Work::Last)?,
            evaluation: None,
        }))
    }

    fn of(
        &mut self,
        step: &Pass,
        stream: &Stream,
        launch: Launch,
        work: Work,
    ) -> Result<&mut GraphExec, Error> {
        match work {
            Work::Micro => Ok(&mut self.micro),
            Work::Last => Ok(&mut self.last),
            Work::Evaluation => match &mut self.evaluation {
                Some(graph) => Ok(graph),
                none => Ok(none.insert(instantiate(step, stream, launch, work)?)),
            },
        }
    }
}

fn instantiate(
    step: &Pass,
    stream: &Stream,
    launch: Launch,
    work: Work,
) -> Result<GraphExec, Error> {
    let graph = match launch {
        Launch::Capture => capture(stream, CaptureMode::ThreadLocal, |queue| {
            step.run(queue, work)
        })?,
        _ => {
            let mut recorder = Recorder::new(stream.context())?;
            step.run(&mut recorder, work)?;
            recorder.finish()
        }
    };
    Ok(graph.instantiate()?)
}
