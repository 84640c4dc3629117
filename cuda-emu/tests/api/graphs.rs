//! Graphs: building, asking, launching, changing, and the edges that are missing.

use std::ptr::{null, null_mut};

use ptx_emu::Order;
use warpwright_cuda_emu::EmulatorConfig;
use warpwright_driver_sys::*;

use crate::harness::{Emu, code, emu, emu_with, make, node_params, ok, pointers};
use crate::streams::Gate;

/// `a -> (b, c) -> d` on four buffers: b and c copy from a, d adds to b after both.
struct Diamond {
    graph: CUgraph,
    nodes: [CUgraphNode; 4],
    buffers: [u64; 3],
}

impl Diamond {
    fn new(emu: &Emu) -> Self {
        let (add, copy) = (emu.kernel("add"), emu.kernel("copy"));
        let buffers = [
            emu.upload(&[1, 2]),
            emu.upload(&[0, 0]),
            emu.upload(&[0, 0]),
        ];
        let [x, y, z] = buffers;
        let graph = emu.graph();
        let a = emu.add_kernel(graph, &[], add, 2, &[x, 10]);
        let b = emu.add_kernel(graph, &[a], copy, 2, &[y, x]);
        let c = emu.add_kernel(graph, &[a], copy, 2, &[z, x]);
        let d = emu.add_kernel(graph, &[b, c], add, 2, &[y, 100]);
        Self {
            graph,
            nodes: [a, b, c, d],
            buffers,
        }
    }

    fn run(&self, emu: &Emu, exec: CUgraphExec) -> [Vec<u32>; 3] {
        let stream = emu.stream();
        ok!(emu, cuGraphLaunch(exec, stream));
        ok!(emu, cuStreamSynchronize(stream));
        self.buffers.map(|buffer| emu.download(buffer, 2))
    }
}

#[test]
fn a_diamond_runs_in_every_order() {
    for (order, seed) in [
        (Order::InOrder, 0),
        (Order::Reversed, 0),
        (Order::Shuffled, 1),
        (Order::Shuffled, 2),
    ] {
        let emu = emu_with(EmulatorConfig {
            order,
            seed,
            ..EmulatorConfig::default()
        });
        let diamond = Diamond::new(&emu);
        let exec = emu.instantiate(diamond.graph);
        ok!(emu, cuGraphUpload(exec, CUstream::NULL));
        assert_eq!(diamond.run(&emu, exec), [[11, 12], [111, 112], [11, 12]]);
        assert_eq!(diamond.run(&emu, exec), [[21, 22], [121, 122], [21, 22]]);
        assert_eq!(emu.findings(), "");
    }
}

#[test]
fn a_missing_edge_is_found_and_named() {
    for order in [Order::InOrder, Order::Reversed] {
        let emu = emu_with(EmulatorConfig {
            order,
            ..EmulatorConfig::default()
        });
        let (add, copy) = (emu.kernel("add"), emu.kernel("copy"));
        let [x, y] = [emu.upload(&[1, 2]), emu.upload(&[0, 0])];
        let graph = emu.graph();
        emu.add_kernel(graph, &[], add, 2, &[x, 10]);
        emu.add_kernel(graph, &[], copy, 2, &[y, x]);
        let exec = emu.instantiate(graph);
        ok!(emu, cuGraphLaunch(exec, CUstream::NULL));
        assert_eq!(code!(emu, cuStreamSynchronize(CUstream::NULL)), 719);
        let found = emu.findings();
        assert!(
            found.starts_with(
                "MissingEdge: no path of edges orders node 0 (add) and node 1 (copy)\n"
            ) && found.contains(&format!("(0x{x:x}, 8 bytes)"))
                && found.contains("ld.global.u32")
                && found.contains("add an edge between them"),
            "{found}"
        );
    }
}

#[test]
fn copies_and_fills_need_edges_too() {
    let emu = emu();
    let (x, y) = (emu.upload(&[1, 2]), emu.upload(&[3, 4]));
    let graph = emu.graph();
    add_fill(&emu, graph, &[], x, 7, 2);
    add_copy(&emu, graph, &[], y, x, 8);
    let exec = emu.instantiate(graph);
    ok!(emu, cuGraphLaunch(exec, CUstream::NULL));
    assert_eq!(code!(emu, cuStreamSynchronize(CUstream::NULL)), 719);
    let found = emu.findings();
    assert!(
        found.starts_with(
            "MissingEdge: no path of edges orders node 0 (memset) and node 1 (memcpy)\n"
        ),
        "{found}"
    );
}

fn add_fill(
    emu: &Emu,
    graph: CUgraph,
    after: &[CUgraphNode],
    to: u64,
    value: u32,
    count: usize,
) -> CUgraphNode {
    let params = CUDA_MEMSET_NODE_PARAMS_v1 {
        dst: to,
        pitch: 0,
        value,
        elementSize: 4,
        width: count,
        height: 1,
    };
    make!(
        emu,
        cuGraphAddMemsetNode(graph, after.as_ptr(), after.len(), &params, CUcontext::NULL)
    )
}

fn add_copy(
    emu: &Emu,
    graph: CUgraph,
    after: &[CUgraphNode],
    to: u64,
    from: u64,
    bytes: usize,
) -> CUgraphNode {
    let params = CUDA_MEMCPY3D_v2 {
        srcMemoryType: CUmemorytype::DEVICE,
        srcDevice: from,
        dstMemoryType: CUmemorytype::DEVICE,
        dstDevice: to,
        WidthInBytes: bytes,
        Height: 1,
        Depth: 1,
        ..CUDA_MEMCPY3D_v2::zeroed()
    };
    make!(
        emu,
        cuGraphAddMemcpyNode(graph, after.as_ptr(), after.len(), &params, CUcontext::NULL)
    )
}

#[test]
fn every_kind_of_node_runs() {
    let emu = emu();
    let (x, y) = (emu.upload(&[1, 2]), emu.upload(&[3, 4]));
    let (gate, event, child) = (Gate::new(), emu.event(), emu.graph());
    gate.open();
    emu.add_kernel(child, &[], emu.kernel("add"), 2, &[y, 1]);
    let graph = emu.graph();
    let fill = add_fill(&emu, graph, &[], x, 7, 2);
    let copy = add_copy(&emu, graph, &[fill], y, x, 8);
    let empty: CUgraphNode = make!(emu, cuGraphAddEmptyNode(graph, &copy, 1));
    let child: CUgraphNode = make!(emu, cuGraphAddChildGraphNode(graph, &empty, 1, child));
    let record: CUgraphNode = make!(emu, cuGraphAddEventRecordNode(graph, &child, 1, event));
    let wait: CUgraphNode = make!(emu, cuGraphAddEventWaitNode(graph, &record, 1, event));
    let types = [fill, copy, empty, child, record, wait].map(|node| {
        let mut kind = CUgraphNodeType(-1);
        ok!(emu, cuGraphNodeGetType(node, &mut kind));
        kind.0
    });
    assert_eq!(types, [2, 1, 5, 4, 7, 6]);
    let exec = emu.instantiate(graph);
    ok!(emu, cuGraphLaunch(exec, CUstream::NULL));
    ok!(emu, cuEventSynchronize(event));
    assert_eq!(emu.download(y, 2), [8, 8]);
}

#[test]
fn a_wait_is_for_the_record_before_the_launch() {
    let emu = emu();
    let (stream, event, gate) = (emu.stream(), emu.event(), Gate::new());
    let gated = gate.exec(&emu);
    let graph = emu.graph();
    let _: CUgraphNode = make!(emu, cuGraphAddEventWaitNode(graph, null(), 0, event));
    let exec = emu.instantiate(graph);
    ok!(emu, cuGraphLaunch(gated, emu.stream()));
    ok!(emu, cuGraphLaunch(exec, stream));
    ok!(emu, cuEventRecord(event, stream));
    ok!(emu, cuStreamSynchronize(stream));
    gate.open();
}

#[test]
fn a_graph_tells_what_it_holds() {
    let emu = emu();
    let Diamond {
        graph,
        nodes: [a, b, c, d],
        buffers,
    } = Diamond::new(&emu);
    let mut count = 0;
    ok!(emu, cuGraphGetNodes(graph, null_mut(), &mut count));
    assert_eq!(count, 4);
    let mut found = [d; 6];
    count = 6;
    ok!(emu, cuGraphGetNodes(graph, found.as_mut_ptr(), &mut count));
    assert_eq!(
        (count, found),
        (4, [a, b, c, d, CUgraphNode::NULL, CUgraphNode::NULL])
    );
    let (mut from, mut to, mut count) = ([a; 4], [a; 4], 4);
    ok!(
        emu,
        cuGraphGetEdges(graph, from.as_mut_ptr(), to.as_mut_ptr(), &mut count)
    );
    assert_eq!((from, to, count), ([a, a, b, c], [b, c, d, d], 4));

    let mut params = CUDA_KERNEL_NODE_PARAMS_v2::zeroed();
    ok!(emu, cuGraphKernelNodeGetParams_v2(d, &mut params));

    // SAFETY: the parameters belong to the node and live as long as it does.
    let (p, n) = unsafe {
        (
            params.kernelParams.read().cast::<u64>(),
            params.kernelParams.add(1).read().cast::<u32>(),
        )
    };

    // SAFETY: as above.
    let (p, n) = unsafe { (p.read(), n.read()) };
    assert_eq!((p, n, params.blockDimX), (buffers[1], 100, 2));

    let path = std::env::temp_dir().join(format!("warpwright-dot-{}.dot", std::process::id()));
    let c_path = std::ffi::CString::new(path.to_str().unwrap()).unwrap();
    ok!(
        emu,
        cuGraphDebugDotPrint(graph, c_path.as_ptr(), CUgraphDebugDot_flags::empty())
    );
    let dot = std::fs::read_to_string(&path).unwrap();
    std::fs::remove_file(&path).unwrap();
    assert_eq!(
        dot,
        "digraph dot {\nn0 [label=\"0\\nadd\"];\nn1 [label=\"1\\ncopy\"];\nn2 [label=\"2\\ncopy\"];\n\
         n3 [label=\"3\\nadd\"];\nn0 -> n1;\nn0 -> n2;\nn1 -> n3;\nn2 -> n3;\n}\n"
    );
}

#[test]
fn wrong_edges_are_refused() {
    let emu = emu();
    let Diamond {
        graph,
        nodes: [a, b, c, d],
        ..
    } = Diamond::new(&emu);
    let other: CUgraphNode = make!(emu, cuGraphAddEmptyNode(emu.graph(), null(), 0));
    let mut node = CUgraphNode::NULL;
    let cases = [
        (
            "repeated",
            code!(
                emu,
                cuGraphAddEmptyNode(&mut node, graph, [a, a].as_ptr(), 2)
            ),
            1,
        ),
        (
            "another graph",
            code!(emu, cuGraphAddEmptyNode(&mut node, graph, &other, 1)),
            1,
        ),
        (
            "existing",
            code!(emu, cuGraphAddDependencies(graph, &a, &b, 1)),
            1,
        ),
        (
            "itself",
            code!(emu, cuGraphAddDependencies(graph, &a, &a, 1)),
            1,
        ),
        (
            "null",
            code!(
                emu,
                cuGraphAddDependencies(graph, &CUgraphNode::NULL, &a, 1)
            ),
            1,
        ),
        (
            "no such handle",
            code!(
                emu,
                cuGraphAddDependencies(graph, &CUgraphNode(graph.0), &a, 1)
            ),
            400,
        ),
        (
            "good",
            code!(emu, cuGraphAddDependencies(graph, &b, &c, 1)),
            0,
        ),
        (
            "a cycle is found later",
            code!(emu, cuGraphAddDependencies(graph, &d, &b, 1)),
            0,
        ),
    ];
    for (what, code, expected) in cases {
        assert_eq!(code, expected, "{what}");
    }

    let mut exec = CUgraphExec::NULL;
    let flags = CUgraphInstantiate_flags::empty();
    assert_eq!(
        code!(emu, cuGraphInstantiateWithFlags(&mut exec, graph, flags)),
        1
    );
    let mut params = CUDA_GRAPH_INSTANTIATE_PARAMS::zeroed();
    assert_eq!(
        code!(
            emu,
            cuGraphInstantiateWithParams(&mut exec, graph, &mut params)
        ),
        1
    );
    assert_eq!(
        params.result_out,
        CUgraphInstantiateResult::INVALID_STRUCTURE
    );
    assert!([b, c, d].contains(&params.hErrNode_out));
}

#[test]
fn edges_may_be_programmatic_between_kernels() {
    let emu = emu();
    let Diamond {
        graph,
        nodes: [a, _, _, d],
        ..
    } = Diamond::new(&emu);
    let edge = |from_port, to_port, r#type| CUgraphEdgeData {
        from_port,
        to_port,
        r#type,
        reserved: [0; 5],
    };
    let add =
        |edge: CUgraphEdgeData| code!(emu, cuGraphAddDependencies_v2(graph, &a, &d, &edge, 1));
    assert_eq!(
        [
            add(edge(0, 0, 1)),
            add(edge(1, 0, 0)),
            add(edge(1, 1, 1)),
            add(edge(1, 0, 1))
        ],
        [1, 1, 1, 0]
    );
    let mut count = 8;
    let (mut from, mut to, mut data) = ([a; 8], [a; 8], [edge(9, 9, 9); 8]);
    assert_eq!(
        code!(
            emu,
            cuGraphGetEdges(graph, from.as_mut_ptr(), to.as_mut_ptr(), &mut count)
        ),
        402
    );
    ok!(
        emu,
        cuGraphGetEdges_v2(
            graph,
            from.as_mut_ptr(),
            to.as_mut_ptr(),
            data.as_mut_ptr(),
            &mut count
        )
    );
    assert_eq!(
        (count, data[4].from_port, data[4].r#type, data[0].r#type),
        (5, 1, 1, 0)
    );
    let (null, first) = (null_mut(), data.as_mut_ptr());
    assert_eq!(
        code!(
            emu,
            cuGraphGetEdges_v2(graph, null, null, first, &mut count)
        ),
        1,
        "data alone"
    );
    ok!(
        emu,
        cuGraphGetEdges_v2(graph, null, null, null_mut(), &mut count)
    );
    assert_eq!(count, 5);
    let empty: CUgraphNode = make!(emu, cuGraphAddEmptyNode(graph, std::ptr::null(), 0));
    assert_eq!(
        code!(
            emu,
            cuGraphAddDependencies_v2(graph, &a, &empty, &edge(1, 0, 1), 1)
        ),
        1
    );
}

#[test]
fn nodes_change_in_place() {
    let emu = emu();
    let diamond = Diamond::new(&emu);
    let ([x, y, _], [a, .., d]) = (diamond.buffers, diamond.nodes);
    let exec = emu.instantiate(diamond.graph);
    assert_eq!(diamond.run(&emu, exec), [[11, 12], [111, 112], [11, 12]]);

    let add = emu.kernel("add");
    let args = [y, 1000];
    let mut arguments = pointers(&args);
    let params = node_params(add, 2, &mut arguments);
    ok!(emu, cuGraphExecKernelNodeSetParams_v2(exec, d, &params));
    assert_eq!(diamond.run(&emu, exec)[1], [1021, 1022]);
    let again = emu.instantiate(diamond.graph);
    assert_eq!(
        diamond.run(&emu, again)[1],
        [131, 132],
        "the node itself did not change"
    );

    ok!(emu, cuGraphNodeSetEnabled(exec, a, 0));
    let mut enabled = 1;
    ok!(emu, cuGraphNodeGetEnabled(exec, a, &mut enabled));
    assert_eq!(enabled, 0);
    assert_eq!(diamond.run(&emu, exec)[0], [31, 32]);
    ok!(emu, cuGraphNodeSetEnabled(exec, a, 1));

    let args = [x, 5];
    let mut arguments = pointers(&args);
    let racing = node_params(add, 2, &mut arguments);
    let copy = diamond.nodes[1];
    ok!(emu, cuGraphExecKernelNodeSetParams_v2(exec, copy, &racing));
    ok!(emu, cuGraphLaunch(exec, CUstream::NULL));
    assert_eq!(
        code!(emu, cuStreamSynchronize(CUstream::NULL)),
        719,
        "a change is traced again"
    );
    let found = emu.findings();
    assert!(
        found.starts_with("MissingEdge: no path of edges orders node 1 (add) and node 2 (copy)\n"),
        "{found}"
    );
}

#[test]
fn graphs_update_when_only_parameters_differ() {
    let emu = emu();
    let diamond = Diamond::new(&emu);
    let exec = emu.instantiate(diamond.graph);
    assert_eq!(diamond.run(&emu, exec)[0], [11, 12]);
    let changed = Diamond::new(&emu);
    let info = |graph| {
        let mut info = CUgraphExecUpdateResultInfo::zeroed();
        (
            code!(emu, cuGraphExecUpdate_v2(exec, graph, &mut info)),
            info.result.0,
            info.errorNode,
            info.errorFromNode,
        )
    };
    let null = CUgraphNode::NULL;
    assert_eq!(info(changed.graph), (0, 0, null, null));
    assert_eq!(changed.run(&emu, exec)[1], [111, 112]);

    let [_, b, c, d] = changed.nodes;
    ok!(emu, cuGraphAddDependencies(changed.graph, &b, &c, 1));
    assert_eq!(info(changed.graph), (910, 2, c, b));
    let _: CUgraphNode = make!(emu, cuGraphAddEmptyNode(changed.graph, &d, 1));
    assert_eq!(info(changed.graph), (910, 2, null, null));
    let other = emu.graph();
    let copy = emu.kernel("copy");
    let [x, y, z] = diamond.buffers;
    let a: CUgraphNode = make!(emu, cuGraphAddEmptyNode(other, std::ptr::null(), 0));
    let b = emu.add_kernel(other, &[a], copy, 2, &[y, x]);
    let c = emu.add_kernel(other, &[a], copy, 2, &[z, x]);
    emu.add_kernel(other, &[b, c], copy, 2, &[x, y]);
    assert_eq!(info(other), (910, 3, a, null));
}

#[test]
fn clones_and_owners_stand_alone() {
    let emu = emu();
    let diamond = Diamond::new(&emu);
    let clone: CUgraph = make!(emu, cuGraphClone(diamond.graph));
    let exec = emu.instantiate(clone);
    ok!(emu, cuGraphDestroy(diamond.graph));
    ok!(emu, cuGraphDestroy(clone));
    assert_eq!(
        diamond.run(&emu, exec)[0],
        [11, 12],
        "an executable graph outlives its graph"
    );
    assert_eq!(code!(emu, cuGraphDestroy(clone)), 400);
    let mut kind = CUgraphNodeType(0);
    assert_eq!(
        code!(emu, cuGraphNodeGetType(diamond.nodes[0], &mut kind)),
        400
    );
    assert_eq!(
        code!(emu, cuGraphNodeSetEnabled(exec, diamond.nodes[0], 0)),
        400
    );
    ok!(emu, cuGraphExecDestroy(exec));
    assert_eq!(code!(emu, cuGraphLaunch(exec, CUstream::NULL)), 400);
    assert_eq!(
        code!(emu, cuGraphLaunch(CUgraphExec::NULL, CUstream::NULL)),
        1
    );
}

#[test]
fn launches_of_one_executable_graph_do_not_overlap() {
    let emu = emu();
    let (first, second, gate) = (emu.stream(), emu.stream(), Gate::new());
    let exec = gate.exec(&emu);
    ok!(emu, cuGraphLaunch(exec, first));
    ok!(emu, cuGraphLaunch(exec, second));
    std::thread::sleep(std::time::Duration::from_millis(20));
    assert_eq!(code!(emu, cuStreamQuery(second)), 600);
    gate.open();
    ok!(emu, cuStreamSynchronize(second));
    assert_eq!(gate.passed(), 2);
}

#[test]
fn freed_memory_in_a_graph_is_a_fault() {
    let emu = emu();
    let p = emu.upload(&[1]);
    let graph = emu.graph();
    emu.add_kernel(graph, &[], emu.kernel("add"), 1, &[p, 1]);
    let exec = emu.instantiate(graph);
    ok!(emu, cuMemFree_v2(p));
    ok!(emu, cuGraphLaunch(exec, CUstream::NULL));
    assert_eq!(code!(emu, cuStreamSynchronize(CUstream::NULL)), 700);
    let found = emu.findings();
    assert!(
        found.starts_with("AfterFree") && found.ends_with("in node 0 (add) of a graph"),
        "{found}"
    );
}

#[test]
fn nodes_of_any_type_come_through_one_door() {
    let emu = emu();
    let p = emu.upload(&[1, 2]);
    let graph = emu.graph();
    let mut params = CUgraphNodeParams {
        r#type: CUgraphNodeType::MEMSET,
        ..CUgraphNodeParams::zeroed()
    };
    params.params[..5].copy_from_slice(&[p, 0, 9 | 4 << 32, 2, 1]);
    let _: CUgraphNode = make!(
        emu,
        cuGraphAddNode_v2(graph, null(), null(), 0, &mut params)
    );
    params.params[7] = 1;
    let mut node = CUgraphNode::NULL;
    assert_eq!(
        code!(
            emu,
            cuGraphAddNode_v2(&mut node, graph, null(), null(), 0, &mut params)
        ),
        1
    );
    let mut params = CUgraphNodeParams {
        r#type: CUgraphNodeType::EXT_SEMAS_SIGNAL,
        ..CUgraphNodeParams::zeroed()
    };
    assert_eq!(
        code!(
            emu,
            cuGraphAddNode_v2(&mut node, graph, null(), null(), 0, &mut params)
        ),
        801
    );
    let exec = emu.instantiate(graph);
    ok!(emu, cuGraphLaunch(exec, CUstream::NULL));
    assert_eq!(emu.download(p, 2), [9, 9]);
}

#[test]
fn faults_call_buffers_by_their_labels() {
    let emu = emu();
    let p = emu.upload(&[1, 2]);
    ok!(emu, emuMemSetLabel(p, c"residual".as_ptr()));
    let (add, graph) = (emu.kernel("add"), emu.graph());
    emu.add_kernel(graph, &[], add, 2, &[p, 1]);
    emu.add_kernel(graph, &[], add, 1, &[p + 4, 1]);
    let exec = emu.instantiate(graph);
    ok!(emu, cuGraphLaunch(exec, CUstream::NULL));
    assert_eq!(code!(emu, cuStreamSynchronize(CUstream::NULL)), 719);
    let found = emu.findings();
    let wanted = format!("offset 4 of `residual` (0x{p:x}, 8 bytes)");
    assert!(found.contains(&wanted), "{found}");
}

#[test]
fn the_old_form_of_a_kernel_node_is_another_function() {
    type Add = unsafe extern "C" fn(
        *mut CUgraphNode,
        CUgraph,
        *const CUgraphNode,
        usize,
        *const CUDA_KERNEL_NODE_PARAMS_v1,
    ) -> CUresult;
    let emu = emu();
    let p = emu.upload(&[1]);
    let (mut function, mut found) = (null_mut(), CUdriverProcAddressQueryResult(-1));
    let name = c"cuGraphAddKernelNode".as_ptr();
    ok!(
        emu,
        cuGetProcAddress_v2(name, &mut function, 11040, 0, &mut found)
    );

    // SAFETY: below 12.0 the name means the form with 56 bytes.
    let add = unsafe { std::mem::transmute::<*mut std::ffi::c_void, Add>(function) };
    let args = [p, 4];
    let mut arguments = pointers(&args);
    let params = CUDA_KERNEL_NODE_PARAMS_v1 {
        func: emu.kernel("add"),
        gridDimX: 1,
        gridDimY: 1,
        gridDimZ: 1,
        blockDimX: 1,
        blockDimY: 1,
        blockDimZ: 1,
        kernelParams: arguments.as_mut_ptr(),
        ..CUDA_KERNEL_NODE_PARAMS_v1::zeroed()
    };
    let (graph, mut node) = (emu.graph(), CUgraphNode::NULL);

    // SAFETY: every pointer is to a variable of this test.
    assert_eq!(unsafe { add(&mut node, graph, null(), 0, &params) }.0, 0);
    let exec = emu.instantiate(graph);
    ok!(emu, cuGraphLaunch(exec, CUstream::NULL));
    assert_eq!(emu.download(p, 1), [5]);
}
