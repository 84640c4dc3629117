//! Conditional nodes, memory of graphs, operations on words, and what graphs keep alive.

use std::ffi::c_void;
use std::ptr::{null, null_mut};
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use warpwright_driver_sys::*;

use crate::harness::{Emu, code, emu, make, node_params, ok, pointers};

/// `down(p, handle)` takes one from a word and sets the condition to what is left; `bump(p)` adds 10.
const PTX: &str = concat!(
    include_str!("../../../driver/tests/it/graphs/down.ptx"),
    "
.visible .entry bump(.param .u64 p)
{
    .reg .b32 %r;
    .reg .b64 %p;
    ld.param.u64 %p, [p];
    ld.global.u32 %r, [%p];
    add.u32 %r, %r, 10;
    st.global.u32 [%p], %r;
    ret;
}
"
);

struct World {
    emu: Emu,
    down: CUfunction,
    bump: CUfunction,
}

fn world() -> World {
    let emu = emu();
    let module = emu
        .try_load(PTX)
        .unwrap_or_else(|code| panic!("{code}: {}", emu.last_log()));
    let (down, bump) = (emu.function(module, "down"), emu.function(module, "bump"));
    World { emu, down, bump }
}

impl World {
    fn condition(&self, graph: CUgraph, default: u32) -> u64 {
        let flags = CUgraphConditional_flags::ASSIGN_DEFAULT;
        make!(
            self.emu,
            cuGraphConditionalHandleCreate(graph, CUcontext::NULL, default, flags)
        )
    }

    /// Adds a conditional node after others and gives its bodies.
    fn conditional(
        &self,
        graph: CUgraph,
        after: &[CUgraphNode],
        handle: u64,
        kind: CUgraphConditionalNodeType,
        size: u32,
    ) -> Vec<CUgraph> {
        let mut p = CUgraphNodeParams {
            r#type: CUgraphNodeType::CONDITIONAL,
            ..CUgraphNodeParams::zeroed()
        };
        p.params[..2].copy_from_slice(&[handle, kind.0 as u64 | u64::from(size) << 32]);
        let node: CUgraphNode = make!(
            self.emu,
            cuGraphAddNode_v2(graph, after.as_ptr(), null(), after.len(), &mut p)
        );
        let kind: CUgraphNodeType = {
            let mut kind = CUgraphNodeType::EMPTY;
            ok!(self.emu, cuGraphNodeGetType(node, &mut kind));
            kind
        };
        assert_eq!(kind, CUgraphNodeType::CONDITIONAL);

        // SAFETY: the driver wrote an array of `size` graphs, which the node owns.
        unsafe { std::slice::from_raw_parts(p.params[2] as *const CUgraph, size as usize) }.to_vec()
    }

    fn run(&self, graph: CUgraph) {
        let exec = self.emu.instantiate(graph);
        ok!(self.emu, cuGraphLaunch(exec, CUstream::NULL));
        ok!(self.emu, cuCtxSynchronize());
        ok!(self.emu, cuGraphExecDestroy(exec));
    }
}

#[test]
fn a_while_node_runs_until_a_kernel_ends_it() {
    let w = world();
    let (left, sum) = (w.emu.upload(&[4]), w.emu.upload(&[0]));
    let graph = w.emu.graph();
    let handle = w.condition(graph, 1);
    let body = w.conditional(graph, &[], handle, CUgraphConditionalNodeType::WHILE, 1)[0];
    let first = w.emu.add_kernel(body, &[], w.bump, 1, &[sum]);
    w.emu.add_kernel(body, &[first], w.down, 1, &[left, handle]);
    w.run(graph);
    assert_eq!(
        (w.emu.download(left, 1), w.emu.download(sum, 1)),
        (vec![0], vec![40])
    );
    assert_eq!(w.emu.findings(), "");
}

#[test]
fn if_and_switch_nodes_choose_a_body() {
    use CUgraphConditionalNodeType as T;
    for (kind, size, value, expected) in [
        (T::IF, 1, 1, [10, 0, 0]),
        (T::IF, 1, 0, [0, 0, 0]),
        (T::IF, 2, 0, [0, 10, 0]),
        (T::SWITCH, 3, 2, [0, 0, 10]),
        (T::SWITCH, 3, 3, [0, 0, 0]),
    ] {
        let w = world();
        let (counter, sums) = (w.emu.upload(&[value + 1]), w.emu.upload(&[0, 0, 0]));
        let graph = w.emu.graph();
        let handle = w.condition(graph, 7);
        let first = w.emu.add_kernel(graph, &[], w.down, 1, &[counter, handle]);
        for (i, body) in w
            .conditional(graph, &[first], handle, kind, size)
            .into_iter()
            .enumerate()
        {
            w.emu
                .add_kernel(body, &[], w.bump, 1, &[sums + 4 * i as u64]);
        }

        w.run(graph);
        assert_eq!(
            w.emu.download(sums, 3),
            expected,
            "{kind:?} of {size} at {value}"
        );
    }
}

#[test]
fn nodes_of_a_body_are_updated_in_place() {
    let w = world();
    let (a, b) = (w.emu.upload(&[0]), w.emu.upload(&[0]));
    let graph = w.emu.graph();
    let handle = w.condition(graph, 1);
    let body = w.conditional(graph, &[], handle, CUgraphConditionalNodeType::IF, 1)[0];
    let node = w.emu.add_kernel(body, &[], w.bump, 1, &[a]);
    let exec = w.emu.instantiate(graph);
    let args = [b];
    let mut args = pointers(&args);
    ok!(
        w.emu,
        cuGraphExecKernelNodeSetParams_v2(exec, node, &node_params(w.bump, 1, &mut args))
    );
    ok!(w.emu, cuGraphLaunch(exec, CUstream::NULL));
    assert_eq!(
        (w.emu.download(a, 1), w.emu.download(b, 1)),
        (vec![0], vec![10])
    );
}

#[test]
fn what_conditional_nodes_cannot_be_is_refused() {
    let w = world();
    let (graph, other) = (w.emu.graph(), w.emu.graph());
    let handle = w.condition(graph, 0);
    let add = |graph, handle, size: u64| {
        let mut p = CUgraphNodeParams {
            r#type: CUgraphNodeType::CONDITIONAL,
            ..CUgraphNodeParams::zeroed()
        };
        p.params[..2].copy_from_slice(&[handle, 1 | size << 32]);
        code!(
            w.emu,
            cuGraphAddNode_v2(&mut { CUgraphNode::NULL }, graph, null(), null(), 0, &mut p)
        )
    };
    assert_eq!(add(graph, handle, 2), 1, "a WHILE node has one body");
    assert_eq!(
        add(other, handle, 1),
        1,
        "the condition is of another graph"
    );
    assert_eq!(add(graph, 5, 1), 1, "there is no such condition");
    let mut exec = CUgraphExec::NULL;
    let mut params = CUDA_GRAPH_INSTANTIATE_PARAMS::zeroed();
    assert_eq!(
        code!(
            w.emu,
            cuGraphInstantiateWithParams(&mut exec, graph, &mut params)
        ),
        1
    );
    assert_eq!(
        params.result_out,
        CUgraphInstantiateResult::CONDITIONAL_HANDLE_UNUSED
    );
    assert_eq!(add(graph, handle, 1), 0);
    assert_eq!(add(graph, handle, 1), 1, "the condition is read already");
    assert_eq!(code!(w.emu, cuGraphClone(&mut { CUgraph::NULL }, graph)), 1);
    let mut node = CUgraphNode::NULL;
    assert_eq!(
        code!(
            w.emu,
            cuGraphAddChildGraphNode(&mut node, other, null(), 0, graph)
        ),
        1
    );
    w.emu.instantiate(graph);
    assert_eq!(
        code!(
            w.emu,
            cuGraphInstantiateWithParams(&mut exec, graph, &mut params)
        ),
        1,
        "a second one"
    );
    let handle = w.condition(other, 0);
    let body = w.conditional(other, &[], handle, CUgraphConditionalNodeType::IF, 1)[0];
    assert_eq!(
        code!(
            w.emu,
            cuGraphAddEventRecordNode(&mut node, body, null(), 0, w.emu.event())
        ),
        1
    );
}

fn alloc_params(bytes: usize) -> CUDA_MEM_ALLOC_NODE_PARAMS_v1 {
    let location = CUmemLocation {
        r#type: CUmemLocationType::DEVICE,
        id: 0,
    };
    CUDA_MEM_ALLOC_NODE_PARAMS_v1 {
        poolProps: CUmemPoolProps {
            allocType: CUmemAllocationType::PINNED,
            location,
            ..CUmemPoolProps::zeroed()
        },
        bytesize: bytes,
        ..CUDA_MEM_ALLOC_NODE_PARAMS_v1::zeroed()
    }
}

#[test]
fn a_graph_allocates_and_frees_its_memory() {
    let w = world();
    let out = w.emu.upload(&[0]);
    let graph = w.emu.graph();
    let (mut none, mut vast) = (CUgraphNode::NULL, alloc_params(usize::MAX));
    let out_of_memory = code!(
        w.emu,
        cuGraphAddMemAllocNode(&mut none, graph, null(), 0, &mut vast)
    );
    assert_eq!(out_of_memory, 2);
    let mut p = alloc_params(64);
    let alloc: CUgraphNode = make!(w.emu, cuGraphAddMemAllocNode(graph, null(), 0, &mut p));
    let fill = CUDA_MEMSET_NODE_PARAMS_v1 {
        dst: p.dptr,
        pitch: 0,
        value: 5,
        elementSize: 4,
        width: 16,
        height: 1,
    };
    let set: CUgraphNode = make!(
        w.emu,
        cuGraphAddMemsetNode(graph, &alloc, 1, &fill, CUcontext::NULL)
    );
    let add = w.emu.add_kernel(graph, &[set], w.bump, 1, &[p.dptr + 60]);
    let copy = CUDA_MEMCPY3D_v2 {
        srcMemoryType: CUmemorytype::DEVICE,
        srcDevice: p.dptr + 60,
        dstMemoryType: CUmemorytype::DEVICE,
        dstDevice: out,
        WidthInBytes: 4,
        Height: 1,
        Depth: 1,
        ..CUDA_MEMCPY3D_v2::zeroed()
    };
    let copy: CUgraphNode = make!(
        w.emu,
        cuGraphAddMemcpyNode(graph, &add, 1, &copy, CUcontext::NULL)
    );
    let free: CUgraphNode = make!(w.emu, cuGraphAddMemFreeNode(graph, &copy, 1, p.dptr));
    let shown: CUDA_MEM_ALLOC_NODE_PARAMS_v1 = {
        let mut shown = CUDA_MEM_ALLOC_NODE_PARAMS_v1::zeroed();
        ok!(w.emu, cuGraphMemAllocNodeGetParams(alloc, &mut shown));
        shown
    };
    assert_eq!((shown.dptr, shown.bytesize), (p.dptr, 64));
    let mut freed = 0;
    ok!(w.emu, cuGraphMemFreeNodeGetParams(free, &mut freed));
    assert_eq!(freed, p.dptr);
    let exec = w.emu.instantiate(graph);
    for _ in 0..2 {
        ok!(w.emu, cuGraphLaunch(exec, CUstream::NULL));
    }

    assert_eq!(w.emu.download(out, 1), [15]);
    assert_eq!(
        code!(w.emu, cuMemcpyDtoH_v2(null_mut(), p.dptr, 4)),
        1,
        "it is freed"
    );
    let (mut used, mut high) = (7u64, 7u64);
    let read = |attribute, value: &mut u64| {
        let value: *mut c_void = std::ptr::from_mut(value).cast();
        code!(w.emu, cuDeviceGetGraphMemAttribute(0, attribute, value))
    };
    assert_eq!(read(CUgraphMem_attribute::USED_MEM_CURRENT, &mut used), 0);
    assert_eq!(
        read(CUgraphMem_attribute::RESERVED_MEM_CURRENT, &mut high),
        0
    );
    assert_eq!((used, high), (0, 64));
    ok!(w.emu, cuDeviceGraphMemTrim(0));
    assert_eq!(
        read(CUgraphMem_attribute::RESERVED_MEM_CURRENT, &mut high),
        0
    );
    assert_eq!(high, 0);
    assert_eq!(code!(w.emu, cuGraphDestroyNode(free)), 1);
    assert_eq!(code!(w.emu, cuGraphClone(&mut { CUgraph::NULL }, graph)), 1);
}

#[test]
fn memory_that_a_launch_leaves_must_be_freed_before_the_next() {
    let w = world();
    for auto in [false, true] {
        let graph = w.emu.graph();
        let mut p = alloc_params(4);
        let alloc: CUgraphNode = make!(w.emu, cuGraphAddMemAllocNode(graph, null(), 0, &mut p));
        let fill = CUDA_MEMSET_NODE_PARAMS_v1 {
            dst: p.dptr,
            pitch: 0,
            value: 1,
            elementSize: 4,
            width: 1,
            height: 1,
        };
        let _: CUgraphNode = make!(
            w.emu,
            cuGraphAddMemsetNode(graph, &alloc, 1, &fill, CUcontext::NULL)
        );
        let flag = CUgraphInstantiate_flags::AUTO_FREE_ON_LAUNCH;
        let flags = if auto {
            flag
        } else {
            CUgraphInstantiate_flags::empty()
        };
        let exec: CUgraphExec = make!(w.emu, cuGraphInstantiateWithFlags(graph, flags));
        ok!(w.emu, cuGraphLaunch(exec, CUstream::NULL));
        assert_eq!(w.emu.download(p.dptr, 1), [1]);
        assert_eq!(
            code!(w.emu, cuGraphLaunch(exec, CUstream::NULL)),
            if auto { 0 } else { 1 }
        );
        ok!(w.emu, cuMemFreeAsync(p.dptr, CUstream::NULL));
        ok!(w.emu, cuGraphLaunch(exec, CUstream::NULL));
        ok!(w.emu, cuMemFree_v2(p.dptr));
    }
    assert_eq!(w.emu.findings(), "");
}

#[test]
fn a_capture_allocates_and_frees() {
    let w = world();
    let (stream, out) = (w.emu.stream(), w.emu.upload(&[0]));
    ok!(
        w.emu,
        cuStreamBeginCapture_v2(stream, CUstreamCaptureMode::THREAD_LOCAL)
    );
    let p: u64 = make!(w.emu, cuMemAllocAsync(4, stream));
    ok!(w.emu, cuMemsetD32Async(p, 3, 1, stream));
    ok!(w.emu, cuMemcpyDtoDAsync_v2(out, p, 4, stream));
    ok!(w.emu, cuMemFreeAsync(p, stream));
    let mut graph = CUgraph::NULL;
    ok!(w.emu, cuStreamEndCapture(stream, &mut graph));
    w.run(graph);
    assert_eq!(w.emu.download(out, 1), [3]);
}

#[test]
fn a_stream_waits_for_a_word_and_writes_one() {
    let w = world();
    let p = w.emu.upload(&[0, 0, 0, 0]);
    let (waits, writes) = (w.emu.stream(), w.emu.stream());
    ok!(
        w.emu,
        cuStreamWaitValue32_v2(waits, p, 3, CUstreamWaitValue_flags::GEQ)
    );
    ok!(
        w.emu,
        cuStreamWaitValue64_v2(waits, p + 8, 1 << 40, CUstreamWaitValue_flags::AND)
    );
    ok!(
        w.emu,
        cuStreamWriteValue32_v2(waits, p + 4, 9, CUstreamWriteValue_flags::empty())
    );
    assert_eq!(code!(w.emu, cuStreamQuery(waits)), 600);
    ok!(
        w.emu,
        cuStreamWriteValue32_v2(writes, p, 4, CUstreamWriteValue_flags::empty())
    );
    ok!(
        w.emu,
        cuStreamWriteValue64_v2(writes, p + 8, 3 << 40, CUstreamWriteValue_flags::empty())
    );
    ok!(w.emu, cuStreamSynchronize(waits));
    assert_eq!(w.emu.download(p, 4), [4, 9, 0, 3 << 8]);
    assert_eq!(
        code!(
            w.emu,
            cuStreamWaitValue32_v2(waits, p + 2, 0, CUstreamWaitValue_flags::EQ)
        ),
        1
    );
    assert_eq!(
        code!(
            w.emu,
            cuStreamWaitValue32_v2(waits, p + 16, 0, CUstreamWaitValue_flags::EQ)
        ),
        1
    );
}

#[test]
fn batches_of_operations_are_nodes_too() {
    let w = world();
    let p = w.emu.upload(&[0, 0]);
    let write = |address, value| CUstreamBatchMemOpParams {
        operation: CUstreamBatchMemOpType::WRITE_VALUE_32,
        address,
        value,
        ..CUstreamBatchMemOpParams::zeroed()
    };
    let mut batch = [write(p, 1), write(p + 4, 2)];
    ok!(
        w.emu,
        cuStreamBatchMemOp_v2(CUstream::NULL, 2, batch.as_mut_ptr(), 0)
    );
    assert_eq!(w.emu.download(p, 2), [1, 2]);
    batch[0].value = 7;
    let list = |batch: &mut [CUstreamBatchMemOpParams]| CUDA_BATCH_MEM_OP_NODE_PARAMS_v1 {
        count: 2,
        paramArray: batch.as_mut_ptr(),
        ..CUDA_BATCH_MEM_OP_NODE_PARAMS_v1::zeroed()
    };
    let graph = w.emu.graph();
    let node: CUgraphNode = make!(
        w.emu,
        cuGraphAddBatchMemOpNode(graph, null(), 0, &list(&mut batch))
    );
    let exec = w.emu.instantiate(graph);
    ok!(w.emu, cuGraphLaunch(exec, CUstream::NULL));
    assert_eq!(w.emu.download(p, 2), [7, 2]);
    batch[1].value = 8;
    ok!(
        w.emu,
        cuGraphExecBatchMemOpNodeSetParams(exec, node, &list(&mut batch))
    );
    ok!(w.emu, cuGraphLaunch(exec, CUstream::NULL));
    assert_eq!(w.emu.download(p, 2), [7, 8]);
    let mut shown = CUDA_BATCH_MEM_OP_NODE_PARAMS_v1::zeroed();
    ok!(w.emu, cuGraphBatchMemOpNodeGetParams(node, &mut shown));

    // SAFETY: the node owns an array of that length.
    let shown = unsafe { std::slice::from_raw_parts(shown.paramArray, shown.count as usize) };
    assert_eq!(
        shown.iter().map(|op| op.value).collect::<Vec<_>>(),
        [7, 2],
        "the node itself did not change"
    );
}

#[test]
fn a_graph_keeps_objects_of_the_program_alive() {
    static DESTROYED: AtomicU32 = AtomicU32::new(0);
    unsafe extern "C" fn destroy(_: *mut c_void) {
        DESTROYED.fetch_add(1, Relaxed);
    }
    let w = world();
    let flags = CUuserObject_flags::NO_DESTRUCTOR_SYNC;
    let object: CUuserObject = make!(
        w.emu,
        cuUserObjectCreate(null_mut(), Some(destroy), 1, flags)
    );
    let graph = w.emu.graph();
    ok!(
        w.emu,
        cuGraphRetainUserObject(graph, object, 1, CUuserObjectRetain_flags::MOVE)
    );
    let exec = w.emu.instantiate(graph);
    ok!(w.emu, cuGraphDestroy(graph));
    std::thread::sleep(std::time::Duration::from_millis(20));
    assert_eq!(
        DESTROYED.load(Relaxed),
        0,
        "the executable graph still has it"
    );
    ok!(w.emu, cuGraphExecDestroy(exec));
    for _ in 0..200 {
        if DESTROYED.load(Relaxed) == 1 {
            return;
        }
        std::thread::sleep(std::time::Duration::from_millis(5));
    }

    panic!("the object was not destroyed");
}
