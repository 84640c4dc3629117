//! Kernels that overlap: programmatic edges, added by a recorder and by hand, and invalid ones.

use warpwright_driver::graph::Edge;
use warpwright_driver::launch::Geometry;
use warpwright_driver::prelude::*;
use warpwright_driver::sys::{Api, CUgraph, CUgraphEdgeData, CUgraphNode, CUresult, Library};

use crate::emulator::alone;

const N: usize = 32;

/// The head of a module of three kernels that add one to each element.
const PTX: &str = "
.version 7.8
.target sm_90
.address_size 64
";

/// A kernel that begins with `head`.
fn entry(name: &str, head: &str) -> String {
    format!(
        ".visible .entry {name}(.param .u64 x, .param .u64 y)
{{
    .reg .b32 %r<2>;
    .reg .f32 %f<2>;
    .reg .b64 %rd<6>;
    {head}
    ld.param.u64 %rd1, [x];
    ld.param.u64 %rd2, [y];
    mov.u32 %r1, %tid.x;
    mul.wide.u32 %rd3, %r1, 4;
    add.s64 %rd4, %rd1, %rd3;
    add.s64 %rd5, %rd2, %rd3;
    ld.global.f32 %f1, [%rd4];
    add.f32 %f1, %f1, 0f3F800000;
    st.global.f32 [%rd5], %f1;
    ret;
}}
"
    )
}

struct Bench {
    context: Context,
    stream: Stream,
    plain: Function,
    waits: Function,
    triggers: Function,
    a: Buffer<f32>,
    b: Buffer<f32>,
}

impl Bench {
    fn new() -> Self {
        Self::on(warpwright_cuda_emu::api())
    }

    fn on(api: Api) -> Self {
        // SAFETY: the functions are the emulator's, of which some are left out.
        let driver = Driver::from_library(unsafe { Library::from_api(api, "emulator") }).unwrap();
        let context = Context::new(&driver.device(0).unwrap()).unwrap();
        let text = PTX.to_string()
            + &entry("plain", "// no griddepcontrol.wait")
            + &entry("waits", "griddepcontrol.wait;")
            + &entry(
                "triggers",
                "griddepcontrol.wait; griddepcontrol.launch_dependents;",
            );
        let module = Module::load(&context, &text).unwrap();
        let params = [
            Parameter::buffer::<f32>("x", Access::Read),
            Parameter::buffer::<f32>("y", Access::Write),
        ];

        // SAFETY: the kernels take these parameters, and a block of N threads stays within N
        // elements.
        let function = |name| unsafe { module.function(name, &params) }.unwrap();
        Self {
            stream: Stream::new(&context).unwrap(),
            plain: function("plain"),
            waits: function("waits"),
            triggers: function("triggers"),
            a: Buffer::zeroed(&context, N).unwrap().labelled("a"),
            b: Buffer::zeroed(&context, N).unwrap().labelled("b"),
            context,
        }
    }

    fn up(&self, function: &Function) -> Launch {
        launch(function, &self.a, &self.b, 0)
    }

    fn down(&self, function: &Function) -> Launch {
        launch(function, &self.b, &self.a, 0)
    }

    /// A pass of every sort of neighbours.
    fn pass(&self, queue: &mut impl Queue) -> Result<(), Error> {
        queue.fill(&self.a, 0.0)?;
        queue.push(self.up(&self.waits).into())?;
        queue.push(self.down(&self.plain).into())?;
        queue.push(self.up(&self.triggers).into())?;
        queue.push(self.down(&self.waits).into())?;
        queue.copy(&self.a, &self.b)?;
        queue.push(self.down(&self.waits).into())
    }
}

fn launch(function: &Function, x: &Buffer<f32>, y: &Buffer<f32>, shared: u32) -> Launch {
    let args = vec![HostArg::from(&**x), HostArg::from(&**y)];
    Launch::new(
        function,
        Geometry {
            grid: [1, 1, 1],
            block: [N as u32, 1, 1],
            shared,
        },
        args,
    )
    .unwrap()
}

fn text<T>(result: Result<T, Error>) -> String {
    result.err().expect("refused").to_string()
}

fn kinds(graph: &Graph) -> Vec<(usize, usize, EdgeKind)> {
    let row = |e: &Edge| (e.indices().0, e.indices().1, e.kind);
    graph.edges().iter().map(row).collect()
}

/// The table of a driver for CUDA 12.2.
fn older() -> Api {
    Api {
        cuGraphAddNode_v2: None,
        cuGraphAddDependencies_v2: None,
        ..warpwright_cuda_emu::api()
    }
}

#[test]
fn functions_tell_whether_they_wait_and_trigger() {
    let _alone = alone();
    let bench = Bench::new();
    let found = [&bench.plain, &bench.waits, &bench.triggers].map(|f| (f.waits(), f.triggers()));
    assert_eq!(found, [(false, false), (true, false), (true, true)]);
}

#[test]
fn a_chain_overlaps_kernels_that_wait() {
    let _alone = alone();
    use EdgeKind::{Full, Programmatic};
    for (api, programmatic) in [(warpwright_cuda_emu::api(), true), (older(), false)] {
        let bench = Bench::on(api);
        assert_eq!(
            bench.context.device().has_programmatic_edges(),
            programmatic
        );
        let mut recorder = Recorder::pipeline(&bench.context).unwrap();
        bench.pass(&mut recorder).unwrap();
        let graph = recorder.finish();
        let kind = |could| {
            if could && programmatic {
                Programmatic
            } else {
                Full
            }
        };
        let wanted: Vec<_> = [false, false, true, true, false, false]
            .into_iter()
            .enumerate()
            .map(|(i, could)| (i, i + 1, kind(could)))
            .collect();
        assert_eq!(kinds(&graph), wanted);
        assert_eq!(graph.programmatic_edges(), if programmatic { 2 } else { 0 });
        assert_eq!(
            graph.dot().matches(" style=dashed]").count(),
            graph.programmatic_edges()
        );
        assert!(graph.races().is_empty());
        let mut exec = graph.instantiate().unwrap();
        for _ in 0..2 {
            exec.launch(&bench.stream).unwrap();
            assert_eq!(bench.stream.read(&bench.a).unwrap(), [5.0; N]);
        }
    }
}

#[test]
fn a_chain_can_be_parted() {
    let _alone = alone();
    use EdgeKind::{Full, Programmatic};
    let bench = Bench::new();
    let mut recorder = Recorder::pipeline(&bench.context).unwrap();
    for _ in 0..2 {
        recorder.full_edge();
        recorder.record(bench.up(&bench.waits)).unwrap();
        recorder.record(bench.down(&bench.waits)).unwrap();
    }

    assert_eq!(
        kinds(&recorder.finish()),
        [(0, 1, Programmatic), (1, 2, Full), (2, 3, Programmatic)]
    );
}

#[test]
fn the_same_pass_runs_eager_and_captured() {
    let _alone = alone();
    let bench = Bench::new();
    bench.pass(&mut &bench.stream).unwrap();
    assert_eq!(bench.stream.read(&bench.a).unwrap(), [5.0; N]);
    let graph = capture(&bench.stream, CaptureMode::ThreadLocal, |queue| {
        bench.pass(queue)
    })
    .unwrap();
    assert_eq!((graph.edges().len(), graph.programmatic_edges()), (6, 0));
}

#[test]
fn edges_by_hand_are_of_either_kind() {
    let _alone = alone();
    let bench = Bench::new();
    let mut graph = Graph::new(&bench.context).unwrap();
    let first = graph
        .add_by(EdgeKind::Programmatic, &[], bench.up(&bench.plain))
        .unwrap();
    let second = graph
        .add_by(
            EdgeKind::Programmatic,
            &[first],
            bench.down(&bench.triggers),
        )
        .unwrap();
    let third = graph.add(&[], bench.up(&bench.waits)).unwrap();
    graph
        .add_edge_of(EdgeKind::Programmatic, second, third)
        .unwrap();
    let last = graph
        .add_by(EdgeKind::Full, &[third], bench.down(&bench.plain))
        .unwrap();
    let fill = graph.fill(&[last], &bench.b, 0.0).unwrap();
    assert_eq!(
        kinds(&graph),
        [
            (0, 1, EdgeKind::Programmatic),
            (1, 2, EdgeKind::Programmatic),
            (2, 3, EdgeKind::Full),
            (3, 4, EdgeKind::Full)
        ]
    );
    assert!(graph.races().is_empty());

    let none = "the later kernel has no griddepcontrol.wait, so that no node after it could rely on the earlier one; \
        wait in it, or use a full edge";
    let kernels = "only kernels overlap; use a full edge";
    let programmatic = EdgeKind::Programmatic;
    for (got, wanted) in [
        (
            text(graph.add_by(programmatic, &[third], bench.down(&bench.plain))),
            format!("programmatic edge from node 2 (waits) to node 5 (plain): {none}"),
        ),
        (
            text(graph.add_edge_of(programmatic, second, last)),
            format!("programmatic edge from node 1 (triggers) to node 3 (plain): {none}"),
        ),
        (
            text(graph.add_by(programmatic, &[fill], bench.down(&bench.waits))),
            format!("programmatic edge from node 4 (fill) to node 5 (waits): {kernels}"),
        ),
        (
            text(graph.add_edge_of(programmatic, first, fill)),
            format!("programmatic edge from node 0 (plain) to node 4 (fill): {kernels}"),
        ),
        (
            text(graph.add_edge_of(programmatic, first, second)),
            "edge from node 0 to node 1: it exists already".to_string(),
        ),
    ] {
        assert_eq!(got, wanted);
    }

    let mut exec = graph.instantiate().unwrap();
    exec.launch(&bench.stream).unwrap();
    assert_eq!(bench.stream.read(&bench.a).unwrap(), [4.0; N]);
    assert_eq!(
        text(exec.set_launch(third, bench.up(&bench.plain))),
        format!("programmatic edge from node 1 (triggers) to node 2 (plain): {none}")
    );
    assert_eq!(
        text(exec.set_enabled(second, false)),
        "node 1 (triggers) is a kernel of programmatic edges; \
         only a node of full edges can be switched off, because a disabled kernel does not wait"
    );
    exec.set_launch(third, bench.up(&bench.triggers)).unwrap();
    exec.set_enabled(last, false).unwrap();
    exec.launch(&bench.stream).unwrap();
    assert_eq!(bench.stream.read(&bench.b).unwrap(), [0.0; N]);
}

#[test]
fn a_driver_that_forgets_the_kind_of_an_edge_is_caught() {
    let _alone = alone();
    /// Tells all edges as full.
    unsafe extern "C" fn forget(
        graph: CUgraph,
        from: *mut CUgraphNode,
        to: *mut CUgraphNode,
        data: *mut CUgraphEdgeData,
        count: *mut usize,
    ) -> CUresult {
        let get = warpwright_cuda_emu::api().cuGraphGetEdges_v2.unwrap();
        // SAFETY: the crate passes arrays of `count` elements.
        unsafe {
            let code = get(graph, from, to, data, count);
            data.write_bytes(0, *count);
            code
        }
    }
    let bench = Bench::on(Api {
        cuGraphGetEdges_v2: Some(forget),
        ..warpwright_cuda_emu::api()
    });
    let mut recorder = Recorder::pipeline(&bench.context).unwrap();
    bench.pass(&mut recorder).unwrap();
    assert_eq!(
        text(recorder.finish().instantiate()),
        "edge from node 2 to node 3: a programmatic edge was added, but the driver reports none of that kind"
    );
}

#[test]
fn shared_memory_decides_how_many_blocks_fit() {
    let _alone = alone();
    let bench = Bench::new();
    let properties = bench.context.device().properties();
    assert_eq!(
        (
            properties.shared_per_block,
            properties.shared_per_multiprocessor
        ),
        (227 << 10, 228 << 10)
    );
    assert!(properties.multiprocessors > 0 && properties.l2_bytes > 0);
    let half = properties.shared_per_multiprocessor / 2 - properties.shared_reserved_per_block;
    assert_eq!(half, 115_712, "two kernels share a multiprocessor");
    for (shared, blocks) in [
        (0, 32),
        (half, 2),
        (half + 1, 1),
        (properties.shared_per_block, 1),
    ] {
        assert_eq!(
            bench.waits.blocks_per_sm(N as u32, shared).unwrap(),
            blocks,
            "{shared} bytes"
        );
    }

    assert_eq!(
        text(
            bench
                .waits
                .blocks_per_sm(N as u32, properties.shared_per_block + 1)
        ),
        "kernel waits: 232449 bytes of dynamic and 0 bytes of static shared memory; the device allows 232448 in all"
    );
    (&bench.stream)
        .push(launch(&bench.plain, &bench.a, &bench.b, half).into())
        .unwrap();
    assert_eq!(bench.stream.read(&bench.b).unwrap(), [1.0; N]);
}
