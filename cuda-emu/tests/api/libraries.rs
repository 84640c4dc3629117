//! Libraries, kernels without a context, linking, enumeration, occupancy and cooperative launches.

use std::ffi::{CStr, CString, c_int, c_void};
use std::ptr::null_mut;

use warpwright_driver_sys::*;

use crate::harness::{Emu, PTX, code, emu, make, ok, pointers};

fn library(emu: &Emu, ptx: &str) -> CUlibrary {
    let text = CString::new(ptx).unwrap();
    make!(
        emu,
        cuLibraryLoadData(
            text.as_ptr().cast(),
            null_mut(),
            null_mut(),
            0,
            null_mut(),
            null_mut(),
            0
        )
    )
}

#[test]
fn a_library_is_loaded_into_each_context_that_uses_it() {
    let emu = emu();
    let library = library(&emu, PTX);
    let mut count = 0;
    ok!(emu, cuLibraryGetKernelCount(&mut count, library));
    assert_eq!(count, 5);
    let mut kernels = [CUkernel::NULL; 5];
    ok!(
        emu,
        cuLibraryEnumerateKernels(kernels.as_mut_ptr(), 5, library)
    );
    let add: CUkernel = make!(emu, cuLibraryGetKernel(library, c"add".as_ptr()));
    assert_eq!(kernels[0], add);
    assert_eq!(
        code!(
            emu,
            cuLibraryGetKernel(&mut { CUkernel::NULL }, library, c"none".as_ptr())
        ),
        500
    );
    let mut name = std::ptr::null();
    ok!(emu, cuKernelGetName(&mut name, add));

    // SAFETY: the driver wrote a string that the library owns.
    assert_eq!(unsafe { CStr::from_ptr(name) }, c"add");
    let (mut offset, mut size) = (0, 0);
    ok!(emu, cuKernelGetParamInfo(add, 1, &mut offset, &mut size));
    assert_eq!((offset, size), (8, 4));

    let shared = CUfunction_attribute::MAX_DYNAMIC_SHARED_SIZE_BYTES;
    ok!(emu, cuKernelSetAttribute(shared, 64 << 10, add, 0));
    let function: CUfunction = make!(emu, cuKernelGetFunction(add));
    let mut value = 0;
    ok!(emu, cuFuncGetAttribute(&mut value, shared, function));
    assert_eq!(
        value,
        64 << 10,
        "the function has what was set of the kernel"
    );
    let p = emu.upload(&[1]);
    assert_eq!(emu.launch(function, 1, CUstream::NULL, &[p, 1]), 0);
    assert_eq!(
        emu.launch(CUfunction(add.0), 1, CUstream::NULL, &[p, 1]),
        0,
        "the kernel stands for it"
    );
    assert_eq!(emu.download(p, 1), [3]);

    let _: CUcontext = make!(emu, cuCtxCreate_v2(CUctx_flags::empty(), 0));
    assert_eq!(
        emu.launch(function, 1, CUstream::NULL, &[p, 1]),
        400,
        "the function is of the other context"
    );
    assert_eq!(emu.launch(CUfunction(add.0), 1, CUstream::NULL, &[p, 1]), 0);
    assert_eq!(emu.download(p, 1), [4]);
    ok!(emu, cuLibraryUnload(library));
    assert_eq!(
        code!(emu, cuKernelGetFunction(&mut { CUfunction::NULL }, add)),
        400
    );
}

#[test]
fn a_graph_takes_a_kernel_of_a_library() {
    let emu = emu();
    let add: CUkernel = make!(emu, cuLibraryGetKernel(library(&emu, PTX), c"add".as_ptr()));
    let p = emu.upload(&[1]);
    let args = [p, 5];
    let mut args = pointers(&args);
    let params = CUDA_KERNEL_NODE_PARAMS_v2 {
        kern: add,
        func: CUfunction::NULL,
        ..crate::harness::node_params(CUfunction::NULL, 1, &mut args)
    };
    let graph = emu.graph();
    let _: CUgraphNode = make!(
        emu,
        cuGraphAddKernelNode_v2(graph, std::ptr::null(), 0, &params)
    );
    ok!(emu, cuGraphLaunch(emu.instantiate(graph), CUstream::NULL));
    assert_eq!(emu.download(p, 1), [6]);
}

const USER: &CStr = c".version 7.1
.target sm_75
.address_size 64
.extern .global .align 4 .b32 shared_word;
.visible .entry read(.param .u64 p)
{
    .reg .b32 %r;
    .reg .b64 %p;
    ld.param.u64 %p, [p];
    ld.global.u32 %r, [shared_word];
    st.global.u32 [%p], %r;
    ret;
}
";

const OWNER: &CStr = c".version 7.0
.target sm_75
.address_size 64
.visible .global .align 4 .b32 shared_word = 42;
";

#[test]
fn texts_are_linked_into_one() {
    let emu = emu();
    let state: CUlinkState = {
        let mut state = CUlinkState::NULL;
        ok!(emu, cuLinkCreate_v2(0, null_mut(), null_mut(), &mut state));
        state
    };
    let add = |text: &CStr, kind| {
        let data = text.as_ptr().cast_mut().cast::<c_void>();
        let size = text.count_bytes() + 1;
        code!(
            emu,
            cuLinkAddData_v2(
                state,
                kind,
                data,
                size,
                c"part".as_ptr(),
                0,
                null_mut(),
                null_mut()
            )
        )
    };
    assert_eq!(add(c"\x7fELF", CUjitInputType::CUBIN), 801);
    assert_eq!(
        [
            add(USER, CUjitInputType::PTX),
            add(OWNER, CUjitInputType::PTX)
        ],
        [0, 0]
    );
    let (mut image, mut size) = (null_mut(), 0);
    ok!(emu, cuLinkComplete(state, &mut image, &mut size));
    assert!(size > 0);
    let module: CUmodule = make!(emu, cuModuleLoadData(image));
    ok!(emu, cuLinkDestroy(state));
    let p = emu.upload(&[0]);
    assert_eq!(
        emu.launch(emu.function(module, "read"), 1, CUstream::NULL, &[p]),
        0
    );
    assert_eq!(emu.download(p, 1), [42]);
    let mut functions = [CUfunction::NULL; 1];
    ok!(
        emu,
        cuModuleEnumerateFunctions(functions.as_mut_ptr(), 1, module)
    );
    assert_eq!(functions[0], emu.function(module, "read"));
}

#[test]
fn occupancy_follows_threads_and_shared_memory() {
    unsafe extern "C" fn four_a_thread(block: c_int) -> usize {
        4 * block as usize
    }
    let emu = emu();
    let add = emu.kernel("add");
    let (mut grid, mut block) = (0, 0);
    ok!(
        emu,
        cuOccupancyMaxPotentialBlockSize(&mut grid, &mut block, add, None, 0, 0)
    );
    assert_eq!(
        (grid, block),
        (16, 1024),
        "two blocks on each of eight multiprocessors"
    );
    ok!(
        emu,
        cuOccupancyMaxPotentialBlockSizeWithFlags(
            &mut grid,
            &mut block,
            add,
            Some(four_a_thread),
            0,
            100,
            CUoccupancy_flags::empty()
        )
    );
    assert_eq!(
        block, 64,
        "32 blocks of 64 threads fill it, and blocks of 96 do not"
    );
    let mut shared = 0;
    ok!(
        emu,
        cuOccupancyAvailableDynamicSMemPerBlock(&mut shared, add, 8, 128)
    );
    assert_eq!(shared, (228 << 10) / 8 - 1024);
    let mut blocks = 0;
    ok!(
        emu,
        cuOccupancyMaxActiveBlocksPerMultiprocessor(&mut blocks, add, 128, shared)
    );
    assert_eq!(blocks, 8);
}

const MEET: &str = "
.version 7.0
.target sm_75
.address_size 64
.visible .entry meet(.param .u64 count)
{
    .reg .b32 %r<4>;
    .reg .b64 %p;
    .reg .pred %more;
    ld.param.u64 %p, [count];
    mov.u32 %r1, %nctaid.x;
    atom.release.gpu.global.add.u32 %r2, [%p], 1;
poll:
    ld.acquire.gpu.global.u32 %r3, [%p];
    setp.lt.u32 %more, %r3, %r1;
    @%more bra poll;
    ret;
}
";

#[test]
fn a_cooperative_launch_runs_its_blocks_together_or_not_at_all() {
    let emu = emu();
    let meet = emu.function(emu.try_load(MEET).unwrap(), "meet");
    let p = emu.upload(&[0]);
    let launch = |blocks| {
        let args = [p];
        let mut args = pointers(&args);
        let stream = CUstream::NULL;
        code!(
            emu,
            cuLaunchCooperativeKernel(meet, blocks, 1, 1, 1, 1, 1, 0, stream, args.as_mut_ptr())
        )
    };
    assert_eq!(launch(16), 0);
    assert_eq!(emu.download(p, 1), [16]);
    assert_eq!(
        launch(8 * 32 + 1),
        720,
        "8 multiprocessors hold 32 blocks each"
    );
}
