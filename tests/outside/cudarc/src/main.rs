//! Runs cudarc's safe API on the emulator. `LD_LIBRARY_PATH` must contain the folder of its
//! library.
//!
//! Every check verifies the results of the calls. The program prints a line for each check, and
//! exits with 1 if one failed.

use std::error::Error;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::ExitCode;
use std::sync::Arc;

use cudarc::driver::sys::{self, CUdevice_attribute, CUstreamCaptureMode};
use cudarc::driver::{
    CudaContext, CudaFunction, CudaStream, LaunchConfig, Profiler, PushKernelArg, result,
};
use cudarc::nvrtc::Ptx;

/// `axpy(y, x, a, n)` adds a * x to y; `meet(count)` adds one a block and waits until every block
/// has; `bump(p)` adds the variable `offset` to a word.
const PTX: &str = "
.version 7.0
.target sm_75
.address_size 64
.visible .global .align 4 .b32 offset = 5;
.visible .entry axpy(.param .u64 y, .param .u64 x, .param .f32 a, .param .u64 n)
{
    .reg .b32 %r<4>;
    .reg .f32 %f<4>;
    .reg .b64 %rd<8>;
    .reg .pred %p;
    ld.param.u64 %rd1, [y];
    ld.param.u64 %rd2, [x];
    ld.param.f32 %f1, [a];
    ld.param.u64 %rd3, [n];
    mov.u32 %r1, %ctaid.x;
    mov.u32 %r2, %ntid.x;
    mov.u32 %r3, %tid.x;
    mad.lo.u32 %r1, %r1, %r2, %r3;
    cvt.u64.u32 %rd4, %r1;
    setp.ge.u64 %p, %rd4, %rd3;
    @%p bra done;
    mul.lo.u64 %rd4, %rd4, 4;
    add.u64 %rd5, %rd1, %rd4;
    add.u64 %rd6, %rd2, %rd4;
    ld.global.f32 %f2, [%rd5];
    ld.global.f32 %f3, [%rd6];
    fma.rn.f32 %f2, %f1, %f3, %f2;
    st.global.f32 [%rd5], %f2;
done:
    ret;
}
.visible .entry meet(.param .u64 count)
{
    .reg .b32 %r<4>;
    .reg .b64 %rd;
    .reg .pred %p;
    ld.param.u64 %rd, [count];
    mov.u32 %r1, %nctaid.x;
    atom.release.gpu.global.add.u32 %r2, [%rd], 1;
poll:
    ld.acquire.gpu.global.u32 %r3, [%rd];
    setp.lt.u32 %p, %r3, %r1;
    @%p bra poll;
    ret;
}
.visible .entry bump(.param .u64 p)
{
    .reg .b32 %r<3>;
    .reg .b64 %rd;
    ld.param.u64 %rd, [p];
    ld.global.u32 %r1, [%rd];
    ld.global.u32 %r2, [offset];
    add.u32 %r1, %r1, %r2;
    st.global.u32 [%rd], %r1;
    ret;
}
";

type Outcome = Result<(), Box<dyn Error>>;

/// A context, its stream and the kernels.
struct World {
    context: Arc<CudaContext>,
    stream: Arc<CudaStream>,
    axpy: CudaFunction,
    meet: CudaFunction,
    bump: CudaFunction,
}

/// The name of a check, and its function.
type Check = (&'static str, fn(&World) -> Outcome);

const CHECKS: &[Check] = &[
    ("a context tells what its device is", device),
    ("limits, flags and cache preferences are kept", settings),
    ("a context of the program's own works", own_context),
    ("bytes come back", copies),
    ("slices and views copy within the device", views),
    ("a kernel computes", kernel),
    ("a variable of a module is written and read", variable),
    ("functions tell what they are", function),
    ("occupancy is computed", occupancy),
    (
        "blocks of a cooperative launch wait for each other",
        cooperative,
    ),
    ("pinned memory is copied", pinned),
    ("unified memory is shared", unified),
    ("streams fork and join", streams),
    ("events keep time", events),
    ("a capture becomes a graph", graph),
    ("memory is allocated in stream order", stream_ordered),
    ("the profiler starts and stops", profiler),
    ("host functions run", host_function),
    ("a bad kernel name is refused", wrong_name),
    ("bad PTX is refused", wrong_ptx),
    ("an access out of bounds is an error that stays", fault),
];

fn main() -> ExitCode {
    let world = match World::new(0) {
        Ok(world) => world,
        Err(error) => {
            println!("FAILED  to begin: {error}");
            return ExitCode::FAILURE;
        }
    };
    let mut failed = 0;
    for (name, check) in CHECKS {
        // cudarc panics where the driver lacks a function.
        match catch_unwind(AssertUnwindSafe(|| check(&world))) {
            Ok(Ok(())) => println!("passed  {name}"),
            Ok(Err(error)) => {
                failed += 1;
                println!("FAILED  {name}: {error}");
            }
            Err(_) => {
                failed += 1;
                println!("FAILED  {name}: panicked");
            }
        }
    }

    println!(
        "{} of {} checks passed",
        CHECKS.len() - failed,
        CHECKS.len()
    );
    if failed == 0 {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

impl World {
    fn new(ordinal: usize) -> Result<Self, Box<dyn Error>> {
        Self::on(CudaContext::new(ordinal)?)
    }

    fn on(context: Arc<CudaContext>) -> Result<Self, Box<dyn Error>> {
        let stream = context.new_stream()?;
        let module = context.load_module(Ptx::from_src(PTX))?;
        let [axpy, meet, bump] = ["axpy", "meet", "bump"].map(|name| module.load_function(name));
        Ok(Self {
            context,
            stream,
            axpy: axpy?,
            meet: meet?,
            bump: bump?,
        })
    }
}

fn one() -> LaunchConfig {
    LaunchConfig {
        grid_dim: (1, 1, 1),
        block_dim: (1, 1, 1),
        shared_mem_bytes: 0,
    }
}

fn device(w: &World) -> Outcome {
    assert!(CudaContext::device_count()? >= 1);
    assert!(w.context.name()?.starts_with("Warpwright"));
    assert_eq!(w.context.compute_capability()?, (9, 0));
    assert_eq!(
        w.context
            .attribute(CUdevice_attribute::CU_DEVICE_ATTRIBUTE_WARP_SIZE)?,
        32
    );
    let (free, total) = w.context.mem_get_info()?;
    assert!(free <= total && total == w.context.total_mem()?);
    w.context.uuid()?;
    Ok(())
}

fn settings(w: &World) -> Outcome {
    w.context
        .set_limit(sys::CUlimit::CU_LIMIT_STACK_SIZE, 2048)?;
    assert_eq!(
        w.context.get_limit(sys::CUlimit::CU_LIMIT_STACK_SIZE)?,
        2048
    );
    w.context
        .set_cache_config(sys::CUfunc_cache::CU_FUNC_CACHE_PREFER_SHARED)?;
    assert_eq!(
        w.context.get_cache_config()?,
        sys::CUfunc_cache::CU_FUNC_CACHE_PREFER_SHARED
    );
    w.context.set_flags(sys::CUctx_flags::CU_CTX_SCHED_YIELD)?;
    w.context.set_blocking_synchronize()?;
    Ok(())
}

fn own_context(_: &World) -> Outcome {
    let context = CudaContext::new_non_primary(0, 0)?;
    assert!(!context.is_primary());
    let stream = context.new_stream()?;
    let there = stream.clone_htod(&[1u32, 2, 3])?;
    assert_eq!(stream.clone_dtoh(&there)?, [1, 2, 3]);
    Ok(())
}

fn copies(w: &World) -> Outcome {
    let host: Vec<u32> = (0..1000).collect();
    let mut there = w.stream.alloc_zeros::<u32>(1000)?;
    assert_eq!(w.stream.clone_dtoh(&there)?, [0; 1000]);
    w.stream.memcpy_htod(&host, &mut there)?;
    let mut back = vec![0; 1000];
    w.stream.memcpy_dtoh(&there, &mut back)?;
    w.stream.synchronize()?;
    assert_eq!(back, host);
    w.stream.memset_zeros(&mut there)?;
    assert_eq!(w.stream.clone_dtoh(&there)?, [0; 1000]);
    Ok(())
}

fn views(w: &World) -> Outcome {
    let from = w.stream.clone_htod(&[1u32, 2, 3, 4])?;
    let mut to = w.stream.alloc_zeros::<u32>(4)?;
    w.stream
        .memcpy_dtod(&from.slice(2..), &mut to.slice_mut(..2))?;
    assert_eq!(w.stream.clone_dtoh(&to)?, [3, 4, 0, 0]);
    assert_eq!(
        w.stream.clone_dtoh(&w.stream.clone_dtod(&from)?)?,
        [1, 2, 3, 4]
    );
    assert_eq!(w.stream.clone_dtoh(&from.try_clone()?)?, [1, 2, 3, 4]);
    Ok(())
}

fn kernel(w: &World) -> Outcome {
    let n = 1000usize;
    let x = w
        .stream
        .clone_htod(&(0..n).map(|i| i as f32).collect::<Vec<_>>())?;
    let mut y = w.stream.clone_htod(&vec![1f32; n])?;
    let mut launch = w.stream.launch_builder(&w.axpy);
    launch.arg(&mut y).arg(&x).arg(&2f32).arg(&n);

    // SAFETY: these are the arguments of the kernel, which stays within the buffers.
    unsafe { launch.launch(LaunchConfig::for_num_elems(n as u32)) }?;
    let sum = w.stream.clone_dtoh(&y)?;
    assert!(
        sum.iter()
            .enumerate()
            .all(|(i, &v)| v == 2.0 * i as f32 + 1.0)
    );
    Ok(())
}

/// Runs `bump` on a word and returns the result.
fn bumped(w: &World, word: u32) -> Result<u32, Box<dyn Error>> {
    let mut p = w.stream.clone_htod(&[word])?;
    // SAFETY: the kernel takes a pointer to one word.
    unsafe { w.stream.launch_builder(&w.bump).arg(&mut p).launch(one()) }?;
    Ok(w.stream.clone_dtoh(&p)?[0])
}

fn variable(w: &World) -> Outcome {
    let module = w.context.load_module(Ptx::from_src(PTX))?;
    let mut offset = module.get_global("offset", &w.stream)?;
    assert_eq!(w.stream.clone_dtoh(&offset.as_view())?, 5u32.to_le_bytes());
    w.stream.memcpy_htod(&7u32.to_le_bytes(), &mut offset)?;
    let mut p = w.stream.clone_htod(&[1u32])?;
    let bump = module.load_function("bump")?;

    // SAFETY: the kernel takes a pointer to one word.
    unsafe { w.stream.launch_builder(&bump).arg(&mut p).launch(one()) }?;
    assert_eq!(w.stream.clone_dtoh(&p)?, [8]);
    assert_eq!(bumped(w, 1)?, 6, "each module has its own variable");
    Ok(())
}

fn function(w: &World) -> Outcome {
    assert!(w.axpy.num_regs()? > 0);
    assert_eq!(w.axpy.max_threads_per_block()?, 1024);
    assert_eq!(w.axpy.ptx_version()?, 70);
    assert_eq!(w.axpy.binary_version()?, 90);
    let attribute = sys::CUfunction_attribute::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
    w.axpy.set_attribute(attribute, 100 << 10)?;
    assert_eq!(w.axpy.get_attribute(attribute)?, 100 << 10);
    w.axpy
        .set_function_cache_config(sys::CUfunc_cache::CU_FUNC_CACHE_PREFER_L1)?;
    Ok(())
}

extern "C" fn no_shared(_block_size: std::ffi::c_int) -> usize {
    0
}

fn occupancy(w: &World) -> Outcome {
    assert_eq!(
        w.bump
            .occupancy_max_active_blocks_per_multiprocessor(1024, 0, None)?,
        2
    );
    assert!(w.bump.occupancy_available_dynamic_smem_per_block(4, 128)? > 0);
    let (grid, block) = w
        .bump
        .occupancy_max_potential_block_size(no_shared, 0, 0, None)?;
    assert!(grid > 0 && block == 1024, "{grid} {block}");
    let clusters = w.bump.occupancy_max_active_clusters(one(), &w.stream)?;
    let multiprocessors = sys::CUdevice_attribute::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT;
    let blocks = 32 * w.context.attribute(multiprocessors)? as u32;
    assert_eq!(
        clusters, blocks,
        "a launch without clusters has clusters of one block"
    );
    Ok(())
}

fn cooperative(w: &World) -> Outcome {
    let mut count = w.stream.alloc_zeros::<u32>(1)?;
    let config = LaunchConfig {
        grid_dim: (8, 1, 1),
        ..one()
    };

    // SAFETY: the kernel takes a pointer to one word.
    unsafe {
        w.stream
            .launch_builder(&w.meet)
            .arg(&mut count)
            .launch_cooperative(config)
    }?;
    assert_eq!(w.stream.clone_dtoh(&count)?, [8]);
    Ok(())
}

fn pinned(w: &World) -> Outcome {
    // SAFETY: the memory is written before it is read.
    let mut host = unsafe { w.context.alloc_pinned::<u32>(64) }?;
    host.as_mut_slice()?.fill(3);
    let there = w.stream.clone_htod(&host)?;
    w.stream.memcpy_dtoh(&there, &mut host)?;
    assert_eq!(host.as_slice()?, [3; 64]);
    Ok(())
}

fn unified(w: &World) -> Outcome {
    // SAFETY: the memory is written before it is read.
    let mut shared = unsafe { w.context.alloc_unified::<u32>(16, true) }?;
    shared.as_mut_slice()?.fill(1);
    shared.prefetch()?;

    // SAFETY: the kernel takes a pointer to one word.
    unsafe {
        w.stream
            .launch_builder(&w.bump)
            .arg(&mut shared)
            .launch(one())
    }?;
    w.stream.synchronize()?;
    assert_eq!(shared.as_slice()?[..2], [6, 1]);
    shared.attach(&w.stream, sys::CUmemAttach_flags::CU_MEM_ATTACH_SINGLE)?;
    Ok(())
}

fn streams(w: &World) -> Outcome {
    let mut p = w.stream.clone_htod(&[0u32])?;
    let other = w.stream.fork()?;

    // SAFETY: the kernel takes a pointer to one word.
    unsafe { other.launch_builder(&w.bump).arg(&mut p).launch(one()) }?;
    w.stream.join(&other)?;

    // SAFETY: as above.
    unsafe { w.stream.launch_builder(&w.bump).arg(&mut p).launch(one()) }?;
    assert_eq!(w.stream.clone_dtoh(&p)?, [10]);
    w.context.new_stream_with_priority(-1)?.synchronize()?;
    w.context.per_thread_stream().synchronize()?;
    w.context.default_stream().synchronize()?;
    Ok(())
}

fn events(w: &World) -> Outcome {
    let flags = Some(sys::CUevent_flags::CU_EVENT_DEFAULT);
    let start = w.stream.record_event(flags)?;
    bumped(w, 0)?;
    let end = w.stream.record_event(flags)?;
    end.synchronize()?;
    assert!(end.is_complete() && start.elapsed_ms(&end)? >= 0.0);
    Ok(())
}

fn graph(w: &World) -> Outcome {
    let context = CudaContext::new_non_primary(0, 0)?;

    // SAFETY: the check uses one stream. With tracking, a capture would wait for events from before
    // it, which the driver refuses.
    unsafe { context.disable_event_tracking() };
    let world = World::on(context)?;
    let mut p = world.stream.clone_htod(&[0u32])?;
    world.stream.synchronize()?;
    world
        .stream
        .begin_capture(CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_RELAXED)?;
    for _ in 0..3 {
        // SAFETY: the kernel takes a pointer to one word.
        unsafe {
            world
                .stream
                .launch_builder(&world.bump)
                .arg(&mut p)
                .launch(one())
        }?;
    }

    let flags = sys::CUgraphInstantiate_flags::CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH;
    let graph = world.stream.end_capture(flags)?.ok_or("no graph")?;
    graph.upload()?;
    graph.launch()?;
    graph.launch()?;
    assert_eq!(world.stream.clone_dtoh(&p)?, [30]);
    w.context.bind_to_thread()?;
    Ok(())
}

fn stream_ordered(w: &World) -> Outcome {
    assert!(w.context.has_async_alloc());
    let rounds = 50;
    for i in 0..rounds {
        let there = w.stream.clone_htod(&[i; 256])?;
        assert_eq!(w.stream.clone_dtoh(&there)?, [i; 256]);
    }
    Ok(())
}

fn profiler(w: &World) -> Outcome {
    let profiler = Profiler::new()?;
    bumped(w, 0)?;
    drop(profiler);
    Ok(())
}

fn host_function(w: &World) -> Outcome {
    unsafe extern "C" fn add(count: *mut std::ffi::c_void) {
        // SAFETY: the check passes its own counter and waits for the stream.
        unsafe { *count.cast::<u32>() += 1 }
    }
    let mut count = 0u32;

    // SAFETY: the counter outlives the stream's work, which is waited for.
    unsafe {
        result::stream::launch_host_function(w.stream.cu_stream(), add, (&raw mut count).cast())
    }?;
    w.stream.synchronize()?;
    assert_eq!(count, 1);
    Ok(())
}

fn wrong_name(w: &World) -> Outcome {
    let module = w.context.load_module(Ptx::from_src(PTX))?;
    let error = module.load_function("absent").err().ok_or("it was found")?;
    assert_eq!(error.0, sys::CUresult::CUDA_ERROR_NOT_FOUND);
    Ok(())
}

fn wrong_ptx(w: &World) -> Outcome {
    let error = w
        .context
        .load_module(Ptx::from_src("nonsense"))
        .err()
        .ok_or("it was loaded")?;
    assert_eq!(error.0, sys::CUresult::CUDA_ERROR_INVALID_IMAGE);
    Ok(())
}

fn fault(w: &World) -> Outcome {
    let world = World::on(CudaContext::new_non_primary(0, 0)?)?;
    let x = world.stream.clone_htod(&[0f32; 8])?;
    let mut y = world.stream.clone_htod(&[0f32; 8])?;
    let mut launch = world.stream.launch_builder(&world.axpy);
    launch.arg(&mut y).arg(&x).arg(&2f32).arg(&9usize);

    // SAFETY: this is the emulator, which reports the access instead of doing it.
    unsafe { launch.launch(LaunchConfig::for_num_elems(9)) }?;
    let error = world
        .stream
        .synchronize()
        .err()
        .ok_or("nothing was wrong")?;
    assert_eq!(error.0, sys::CUresult::CUDA_ERROR_ILLEGAL_ADDRESS);
    w.context.bind_to_thread()?;
    assert_eq!(bumped(w, 0)?, 5, "the other context goes on");
    Ok(())
}
