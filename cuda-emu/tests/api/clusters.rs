//! Clusters that a launch asks for: their blocks run together and reach each other's shared memory.

use std::ffi::c_int;
use std::ptr::null_mut;

use warpwright_cuda_emu::EmulatorConfig;
use warpwright_driver_sys::*;

use crate::harness::{Emu, code, emu, emu_with, make, node_params, ok, pointers};

/// Each block gives its number to the block before it in its cluster, and writes what it was given.
const PTX: &str = "
.version 8.0
.target sm_90
.address_size 64
.visible .entry pass(.param .u64 out) BOUND
{
    .reg .b32 %r<8>; .reg .b64 %p; .shared .b32 given;
    ld.param.u64 %p, [out];
    mov.u32 %r0, %cluster_ctarank; mov.u32 %r1, %cluster_nctarank; mov.u32 %r2, %ctaid.x; mov.u32 %r3, given;
    add.u32 %r4, %r0, %r1; sub.u32 %r4, %r4, 1; rem.u32 %r4, %r4, %r1;
    mapa.shared::cluster.u32 %r5, %r3, %r4;
    barrier.cluster.arrive.release.aligned; barrier.cluster.wait.acquire.aligned;
    st.shared::cluster.u32 [%r5], %r2;
    barrier.cluster.arrive.release.aligned; barrier.cluster.wait.acquire.aligned;
    ld.shared.u32 %r6, [given];
    mad.wide.u32 %p, %r2, 4, %p; st.global.u32 [%p], %r6;
    ret;
}
";

/// The kernel, if need be for clusters of so many blocks alone.
fn pass(emu: &Emu, bound: Option<u32>) -> CUfunction {
    let bound = bound.map_or(String::new(), |n| {
        format!(".explicitcluster .reqnctapercluster {n}, 1, 1")
    });
    emu.function(emu.try_load(&PTX.replace("BOUND", &bound)).unwrap(), "pass")
}

/// What each of six blocks is given.
fn given(cluster: u32) -> Vec<u32> {
    (0..6)
        .map(|block| block / cluster * cluster + (block % cluster + 1) % cluster)
        .collect()
}

fn cluster(blocks: [u32; 3]) -> CUlaunchAttribute {
    let [x, y, z] = blocks.map(u64::from);
    let mut attribute = CUlaunchAttribute {
        id: CUlaunchAttributeID::CLUSTER_DIMENSION,
        ..CUlaunchAttribute::zeroed()
    };
    [attribute.value[0], attribute.value[1]] = [y << 32 | x, z];
    attribute
}

fn config(attribute: &mut CUlaunchAttribute, stream: CUstream) -> CUlaunchConfig {
    CUlaunchConfig {
        gridDimX: 6,
        gridDimY: 1,
        gridDimZ: 1,
        blockDimX: 32,
        blockDimY: 1,
        blockDimZ: 1,
        hStream: stream,
        attrs: attribute,
        numAttrs: 1,
        ..CUlaunchConfig::zeroed()
    }
}

fn launch(emu: &Emu, function: CUfunction, blocks: [u32; 3], stream: CUstream, out: u64) -> u32 {
    let (args, mut attribute) = ([out], cluster(blocks));
    let config = config(&mut attribute, stream);
    code!(
        emu,
        cuLaunchKernelEx(&config, function, pointers(&args).as_mut_ptr(), null_mut())
    )
}

#[test]
fn a_launch_runs_in_the_clusters_that_it_asks_for() {
    let emu = emu();
    let pass = pass(&emu, None);
    let out = emu.upload(&[99; 6]);
    for blocks in [1, 2, 3, 6] {
        assert_eq!(
            launch(&emu, pass, [blocks, 1, 1], CUstream::NULL, out),
            0,
            "{}",
            emu.last_log()
        );
        assert_eq!(emu.download(out, 6), given(blocks), "clusters of {blocks}");
    }

    assert_eq!(
        emu.launch(pass, 32, CUstream::NULL, &[out]),
        0,
        "no clusters"
    );
    assert_eq!(emu.download(out, 1), [0]);
    assert_eq!(emu.findings(), "");
}

#[test]
fn clusters_that_cannot_be_are_refused() {
    let bad = CUresult::INVALID_CLUSTER_SIZE.0;
    let old = emu_with(EmulatorConfig {
        compute_capability: (8, 0),
        ..EmulatorConfig::default()
    });
    let (square, p) = (old.kernel("square32"), old.upload(&[0; 32]));
    assert_eq!(
        launch(&old, square, [2, 1, 1], CUstream::NULL, p),
        CUresult::NOT_SUPPORTED.0
    );
    drop(old);
    let emu = emu();
    let (free, two) = (pass(&emu, None), pass(&emu, Some(2)));
    let out = emu.upload(&[0; 6]);
    for (function, blocks, part) in [
        (
            free,
            [4, 1, 1],
            "a grid of [6, 1, 1] blocks is not a multiple of clusters of [4, 1, 1]",
        ),
        (
            free,
            [0, 1, 1],
            "clusters of [0, 1, 1] blocks: expected 1 to 8 in total",
        ),
        (
            free,
            [6, 2, 1],
            "clusters of [6, 2, 1] blocks: expected 1 to 8 in total",
        ),
        (
            two,
            [3, 1, 1],
            "clusters of [3, 1, 1] blocks, but .reqnctapercluster is [2, 1, 1]",
        ),
    ] {
        assert_eq!(
            launch(&emu, function, blocks, CUstream::NULL, out),
            bad,
            "{part}"
        );
        assert!(emu.last_log().contains(part), "{}", emu.last_log());
    }

    assert_eq!(launch(&emu, two, [2, 1, 1], CUstream::NULL, out), 0);
    assert_eq!(emu.download(out, 6), given(2));
}

#[test]
fn nodes_keep_their_clusters() {
    use CUlaunchAttributeID as A;
    let emu = emu();
    let (pass, stream) = (pass(&emu, None), emu.stream());
    let out = emu.upload(&[99; 6]);

    // Captured.
    ok!(
        emu,
        cuStreamBeginCapture_v2(stream, CUstreamCaptureMode::THREAD_LOCAL)
    );
    assert_eq!(launch(&emu, pass, [3, 1, 1], stream, out), 0);
    let mut graph = CUgraph::NULL;
    ok!(emu, cuStreamEndCapture(stream, &mut graph));
    let (mut node, mut count) = (CUgraphNode::NULL, 1);
    ok!(emu, cuGraphGetNodes(graph, &mut node, &mut count));
    let clusters = |node| {
        let mut value = CUlaunchAttributeValue::zeroed();
        ok!(
            emu,
            cuGraphKernelNodeGetAttribute(node, A::CLUSTER_DIMENSION, &mut value)
        );
        [value.words[0], value.words[1]]
    };
    assert_eq!(clusters(node), [1 << 32 | 3, 1]);
    let run = |graph| {
        let exec = emu.instantiate(graph);
        ok!(emu, cuGraphLaunch(exec, stream));
        ok!(emu, cuStreamSynchronize(stream));
        emu.download(out, 6)
    };
    assert_eq!(run(graph), given(3));

    // Set by hand, kept when the parameters change, and copied.
    let mut value = CUlaunchAttributeValue::zeroed();
    [value.words[0], value.words[1]] = [1 << 32 | 2, 1];
    ok!(
        emu,
        cuGraphKernelNodeSetAttribute(node, A::CLUSTER_DIMENSION, &value)
    );
    let args = [out];
    let mut args = pointers(&args);
    let six = CUDA_KERNEL_NODE_PARAMS_v2 {
        gridDimX: 6,
        ..node_params(pass, 32, &mut args)
    };
    ok!(emu, cuGraphKernelNodeSetParams_v2(node, &six));
    assert_eq!(run(graph), given(2));
    let other = emu.graph();
    let copy = make!(
        emu,
        cuGraphAddKernelNode_v2(other, std::ptr::null(), 0, &six)
    );
    assert_eq!(clusters(copy), [0, 0]);
    ok!(emu, cuGraphKernelNodeCopyAttributes(copy, node));
    assert_eq!(run(other), given(2));

    // A grid that they do not divide.
    let five = CUDA_KERNEL_NODE_PARAMS_v2 { gridDimX: 5, ..six };
    assert_eq!(
        code!(emu, cuGraphKernelNodeSetParams_v2(node, &five)),
        CUresult::INVALID_CLUSTER_SIZE.0
    );
    let exec = emu.instantiate(graph);
    let refused = code!(emu, cuGraphExecKernelNodeSetParams_v2(exec, node, &five));
    assert_eq!(refused, CUresult::INVALID_CLUSTER_SIZE.0);
    ok!(emu, cuGraphExecKernelNodeSetParams_v2(exec, node, &six));
    ok!(emu, cuGraphLaunch(exec, stream));
    ok!(emu, cuStreamSynchronize(stream));
    assert_eq!(emu.download(out, 6), given(2));
}

#[test]
fn clusters_are_counted() {
    use CUfunction_attribute as A;
    let emu = emu();
    assert_eq!(
        make!(
            emu,
            cuDeviceGetAttribute(CUdevice_attribute::CLUSTER_LAUNCH, 0)
        ),
        1
    );
    let (free, two) = (pass(&emu, None), pass(&emu, Some(2)));
    let mut attribute = cluster([3, 1, 1]);
    let config = config(&mut attribute, CUstream::NULL);
    let (mut count, mut size): (c_int, c_int) = (0, 0);
    ok!(emu, cuOccupancyMaxActiveClusters(&mut count, free, &config));
    assert_eq!(
        count,
        8 * 32 / 3,
        "32 blocks on each of eight multiprocessors"
    );
    ok!(
        emu,
        cuOccupancyMaxPotentialClusterSize(&mut size, free, &config)
    );
    assert_eq!(size, 8);
    ok!(
        emu,
        cuFuncSetAttribute(free, A::NON_PORTABLE_CLUSTER_SIZE_ALLOWED, 1)
    );
    ok!(
        emu,
        cuOccupancyMaxPotentialClusterSize(&mut size, free, &config)
    );
    assert_eq!(size, 16);
    let plain = CUlaunchConfig {
        numAttrs: 0,
        ..config
    };
    ok!(emu, cuOccupancyMaxActiveClusters(&mut count, two, &plain));
    assert_eq!(
        (
            count,
            make!(emu, cuFuncGetAttribute(A::REQUIRED_CLUSTER_WIDTH, two))
        ),
        (128, 2)
    );
}
