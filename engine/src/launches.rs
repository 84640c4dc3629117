//! A test that pins the launches of every pass, for a small model of each family.
//!
//! The snapshots in `snapshots/` have one line per launch: the kernel, its grid, its block, the
//! bytes of its dynamic shared memory, and a checksum of its arguments. The checksum covers every
//! number, and the label, length and range of every buffer. A change to a forward pass that is only
//! a change of its code leaves them as they are.

use warpwright_driver::graph::{Graph, NodeKind};
use warpwright_driver::launch::{HostArg, Launch as KernelLaunch};
use warpwright_driver::memory::Region;
use warpwright_driver::stream::Queue;
use warpwright_driver::stream::Work;
use warpwright_driver::{Context, Driver, Error};
use warpwright_model::Model;

use crate::chunked::step::WantedRows;
use crate::decode::needs::MemoryNeeds;
use crate::families::{MODELS, crc32};
use crate::{Batch, BatchOptions, Decoder, Launch, Options, Prefer, StepKind};

/// The models whose launches are pinned: one of each family, with windows and two ropes where the
/// family has them, and one that only the simple kernels run.
const PINNED: [&str; 6] = [
    "llama",
    "qwen2",
    "qwen3",
    "gemma3-linear",
    "phi3-window",
    "phi3-partial",
];

/// A queue that lists the launches and runs none.
struct ListedQueue<'a> {
    context: &'a Context,
    lines: Vec<String>,
}

impl Queue for ListedQueue<'_> {
    fn context(&self) -> &Context {
        self.context
    }

    fn push(&mut self, work: Work) -> Result<(), Error> {
        self.lines.push(line(&work));
        Ok(())
    }
}

fn line(work: &Work) -> String {
    let Work::Launch(launch) = work else {
        return "not a launch".to_owned();
    };

    let config = launch.config();
    let cluster = config.cluster.map_or(String::new(), |c| format!(" {c:?}"));
    let programmatic = if config.programmatic { " early" } else { "" };
    format!(
        "{} {:?} {:?} {}{cluster}{programmatic} {:08x}",
        launch.function().name(),
        config.grid,
        config.block,
        config.shared,
        crc32(arguments(launch).as_bytes())
    )
}

fn arguments(launch: &KernelLaunch) -> String {
    let args = launch.args();
    let args = args.iter().map(|arg| match arg {
        HostArg::Buffer(region) => buffer(region),
        HostArg::Scalar(kind, bits) => format!("{kind:?} {bits:x}"),
        other => format!("{other:?}"),
    });
    args.collect::<Vec<_>>().join(", ")
}

/// Returns a buffer without its address, which differs between runs.
fn buffer(region: &Region) -> String {
    let label = region.label().unwrap_or_default();
    format!("{label} {:?} {}", region.range(), region.bytes())
}

/// Returns the launches of a pass under a title.
fn pass(
    title: &str,
    context: &Context,
    queue: impl FnOnce(&mut ListedQueue<'_>) -> Result<(), crate::Error>,
) -> String {
    let mut listed = ListedQueue {
        context,
        lines: vec![],
    };
    queue(&mut listed).unwrap();
    format!("# {title}\n{}\n", listed.lines.join("\n"))
}

/// Returns the launches of the decoder's passes.
fn decoder_passes(context: &Context, model: &Model, ctx: u32) -> Vec<String> {
    let mut passes = vec![];
    for prefer in [Prefer::Simple, Prefer::Fast] {
        let options = Options {
            prefer,
            ..Options::new(ctx, Launch::Eager)
        };
        let mut decoder = Decoder::new(context, model, options, |_| ()).unwrap();
        let path = decoder.path().to_string();
        let mut kinds = vec![StepKind::Decode];
        if decoder.prefill_batch() > 1 {
            kinds.push(StepKind::LogitsBatch);
        }

        for kind in kinds {
            passes.push(pass(&format!("{path}, {kind:?}"), context, |queue| {
                Ok(decoder.machine.run(queue, kind)?)
            }));
        }

        for wanted in [WantedRows::All, WantedRows::Last] {
            passes.push(pass(
                &format!("{path}, chunk, {wanted:?}"),
                context,
                |queue| decoder.machine.chunk(queue, 20, wanted).map(drop),
            ));
        }
    }
    passes
}

/// Returns the launches of a batch's decode steps, or the reason why there are no kernels for it.
fn batch_pass(context: &Context, model: &Model, ctx: u32) -> String {
    let options = BatchOptions {
        lone_rows: 2,
        ..BatchOptions::new(4, ctx)
    };
    let mut batch = match Batch::new(context, model, options, |_| ()) {
        Ok(batch) => batch,
        Err(error) => return format!("# batch: {error}\n"),
    };
    let many = graph_pass("batch", &batch.decode_graph(8).unwrap());
    let few = [1, 2].map(|rows| {
        let graph = batch.lone_graph(rows).unwrap();
        graph_pass(&format!("batch, {rows} lone"), &graph)
    });
    many + &few.concat()
}

/// Returns the launches of a graph under a title.
fn graph_pass(title: &str, graph: &Graph) -> String {
    let lines = graph.nodes().iter().map(|node| match node.kind() {
        NodeKind::Work(work) => line(work),
        _ => "not work".to_owned(),
    });
    format!("# {title}\n{}\n", lines.collect::<Vec<_>>().join("\n"))
}

#[test]
fn launches_of_every_family_stay_the_same() {
    let folder = tempfile::tempdir().unwrap();
    let driver = Driver::from_library(warpwright_cuda_emu::library()).unwrap();
    let context = Context::new(&driver.devices().unwrap()[0]).unwrap();
    for name in PINNED {
        let known = MODELS.iter().find(|model| model.name == name).unwrap();
        let path = folder.path().join(format!("{name}.gguf"));
        std::fs::write(&path, known.file().bytes()).unwrap();
        let model = Model::open(&path).unwrap();
        let needs = MemoryNeeds::for_model(&model.outline, known.room, true);
        let mut text = format!("{needs:?}\n");
        for pass in decoder_passes(&context, &model, known.room) {
            text += &pass;
        }

        text += &batch_pass(&context, &model, known.room);
        insta::assert_snapshot!(name, text);
    }
}
