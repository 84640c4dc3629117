//! Runs PTX kernels on the CPU and reports what a GPU would let pass in silence.
//!
//! The emulator reads PTX text, executes it lane by lane, and checks every access. A race, an
//! uninitialized value, a divergent barrier or an access out of bounds ends the launch with a
//! [`Fault`]. The fault names the instruction, the thread and the allocation.
//!
//! # Example
//!
//! ```
//! use ptx_emu::{Launch, Memory, Module, Schedule, Trace, run};
//!
//! let module = Module::parse("
//!     .version 7.0
//!     .target sm_75
//!     .address_size 64
//!     .visible .entry iota(.param .u64 y)
//!     {
//!         .reg .b32 %r;
//!         .reg .b64 %y;
//!         ld.param.u64 %y, [y];
//!         mov.u32 %r, %tid.x;
//!         mad.wide.u32 %y, %r, 4, %y;
//!         st.global.u32 [%y], %r;
//!         ret;
//!     }
//! ")?;
//! let memory = Memory::new(1 << 20);
//! let y = memory.alloc(4 * 64)?;
//! memory.set_label(y, "y");
//! let mut launch = Launch {
//!     kernel: module.kernel("iota")?,
//!     grid: [1, 1, 1],
//!     block: [64, 1, 1],
//!     dynamic_shared: 0,
//!     params: &y.to_le_bytes(),
//! };
//! run(&memory, &launch, &Schedule::default(), Trace::Off)?;
//!
//! let mut last = [0; 4];
//! memory.read(y + 4 * 63, &mut last)?;
//! assert_eq!(u32::from_le_bytes(last), 63);
//!
//! // A 65th thread writes one element too many.
//! launch.block = [65, 1, 1];
//! let fault = run(&memory, &launch, &Schedule::default(), Trace::Off).unwrap_err();
//! assert!(fault.to_string().contains("just past the end of `y`"));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! For unit tests, start with [`check`]. It allocates buffers, runs a kernel under several
//! schedules and compares the results.
//!
//! # Guarantees
//!
//! - **A finding is a broken rule.** The checks follow the PTX manual and not one device. A kernel
//!   with a fault relies on something that the manual does not promise, even if it works on some
//!   GPU.
//! - **The schedule does not matter.** A kernel without races leaves the same bytes under every
//!   [`Schedule`]. Races are found from the happens-before relation of the threads, and not from
//!   the order in which they happened to run.
//! - **Nothing is skipped.** An unknown instruction is an error when the text is loaded. Each
//!   kernel is refused separately, so the others still run. [`Module::refused`] lists them, and
//!   [`ErrorKind`] distinguishes invalid text from a form that is not implemented.
//! - **A loop ends.** A deadlock is reported as soon as no thread can continue. [`Schedule::fuel`]
//!   limits the instructions of a block. [`Watch::deadline`] and [`Watch::wait_limit`] limit time.
//!
//! # What is found
//!
//! In the text: ill-formed statements, undeclared names, wrong types or widths, values out of
//! range, and features above the declared `.version` or `.target`.
//!
//! In every launch (see [`Class`] for the complete list):
//!
//! - **Addresses.** Accesses that are out of bounds, misaligned for the whole vector, or to freed
//!   memory. Generic addresses of the local memory of another thread.
//! - **Uninitialized values.** Like Valgrind's memcheck, the emulator lets a kernel copy and
//!   compute with uninitialized registers. It is a fault to use one in a branch, an address, a
//!   store or a call. A load of uninitialized global memory is a fault at once. Uninitialized
//!   shared and local memory is a fault when the loaded value is used.
//! - **Barriers.** Barriers, `.sync` and `.aligned` instructions that the wrong threads execute,
//!   and barriers that never complete.
//! - **Races on shared memory**, including races between lanes of one warp.
//! - **Asynchronous copies.** Uses of the destination before the thread has waited, and copies that
//!   no thread waits for.
//! - **mbarriers.** Arrivals or bytes that do not match, and waits that another timing would let
//!   pass one phase too early or too late.
//! - **`wgmma`.** Uses of the accumulators, or changes of the operands, before the wait. Missing
//!   `wgmma.fence`, and descriptors whose swizzle differs from the tensor map.
//! - **Proxies.** Missing `fence.proxy.async` between ordinary accesses and those of `wgmma` or a
//!   bulk copy.
//! - **Textures and surfaces.** Handles of the wrong shape or channel type, missing layers or
//!   channels, and accesses outside of a surface under `.trap`.
//! - **Calls.** Indirect calls to the wrong function, endless recursion, failed assertions, and
//!   blocks of `malloc` that are freed twice.
//!
//! A [traced](Trace::On) launch is slower and finds more:
//!
//! - races on global memory, and writes to data that is read with `.nc`;
//! - missing fences, because strong stores may reach other blocks late;
//! - races that depend on the schedule, because it keeps the last read of every warp;
//! - missing order between launches, because it records the accessed bytes. Compare two launches
//!   with [`Accesses::conflict`].
//!
//! [`Watch`] enables two more checks: [arithmetic](Watch::arithmetic) (division by zero, NaN and
//! infinity where they first appear, saturating conversions) and [provenance](Watch::provenance)
//! (pointers that stray from one variable or allocation into another).
//!
//! Some races have the same result in every order, for example threads that store equal values.
//! They are [tolerated](Class::ToleratedRace): notes of the launch in [`Watched::notes`], and
//! faults only if it is [strict](Watch::strict).
//!
//! # Kernels that wait
//!
//! Blocks, warps and lanes that wait for each other take turns, with or without `nanosleep`. A
//! launch ends with [`Class::Deadlock`] if no thread can continue, on any number of host threads.
//! The fault lists which warps wait at which line.
//!
//! By default, only the launch itself changes memory. If the host, another stream or another device
//! may do so while the launch runs, pass an [`Outside`]. A wait that the outside may end is not a
//! deadlock, and only the time limits apply. A loop that counts or looks at a clock may end by
//! itself, so fuel limits it.
//!
//! # Programmatic edges
//!
//! A launch B behind a programmatic edge from A may start while A still runs. Before its
//! `griddepcontrol.wait`, B must not rely on anything that A does. To check an edge, run both
//! launches traced. The edge is wrong in two cases:
//!
//! - [`B.before_wait_conflict(&A)`](Accesses::before_wait_conflict) returns bytes that B accesses
//!   too early. If one of A's [triggers](Accesses::triggers) came before its own wait, check B
//!   against the launches before A as well, because they may still run.
//! - [`B.waited()`](Accesses::waited) is false. Some block of B ended without a wait, so the end of
//!   B does not imply the end of A.
//!
//! # Model of the machine
//!
//! Where the manual leaves a choice, the emulator behaves as follows. "As an H100" means that
//! the results were compared with an H100, bit by bit.
//!
//! ## Lanes and warps
//!
//! - Diverged lanes reconverge at the immediate post-dominator of the branch. Lanes that exit early
//!   are not waited for.
//! - If the running lanes poll, the other lanes of the warp run on alone (independent thread
//!   scheduling), until they meet at a `.sync` or `.aligned` instruction.
//! - From sm_70 on, the lanes of one `.sync` instruction, or of a barrier without `.aligned`, may
//!   be at different instructions of the same kind.
//! - Lanes of one `.sync` instruction may name different masks if the masks do not overlap.
//! - A lane that shuffles from a lane whose source is uninitialized has an uninitialized result.
//! - `%warpid` is not the index of the warp in its block, as on hardware. Clocks count executed
//!   instructions.
//!
//! ## Blocks, clusters and launches
//!
//! - Up to 1,024 blocks, or clusters, of a launch are resident at the same time. A
//!   [cooperative](LaunchSite::cooperative) launch has no such limit.
//! - The blocks of a cluster run together and share one set of vector clocks, so an order of `.cta`
//!   scope holds for all of them. A block must not end before the accesses of other blocks to its
//!   shared memory are ordered before that end.
//! - `setmaxnreg` waits for registers only if the kernel has `.minnctapersm`, because only then is
//!   the number of registers at launch known.
//! - In cooperative launches, `%envreg1` and `%envreg2` hold the address of the workspace in which
//!   the grid barrier counts. All other `%envreg` registers are 0.
//! - `griddepcontrol` does not delay the launch. A traced launch records it, see *Programmatic
//!   edges*.
//! - `brkpt` is a `trap`, because there is no debugger. `pmevent` has no effect.
//!
//! ## Memory
//!
//! - Device addresses are never reused. Unmapped gaps of 64 GiB separate allocations, and smaller
//!   gaps separate shared variables. Nothing is aligned better than promised.
//! - Barriers and acquired releases order threads and blocks. Releases and acquires are atomics,
//!   loads and stores with these semantics, and fences together with strong accesses, each at its
//!   scope.
//! - Caches, cache hints and `prefetch` have no effect. `.mmio` accesses are relaxed accesses.
//!   `discard` leaves a pattern that counts as initialized.
//! - `%reserved_smem_offset_1` is the address of 1 KiB of shared memory that holds zeros when a
//!   block begins.
//!
//! ## Functions
//!
//! - Lanes that call a function together return together. Lanes that call different functions
//!   through a register run one function after another.
//! - A thread may nest 1,024 calls and has 512 KiB of local memory for them.
//! - The text of `printf` goes to the [`Print`] of the launch, or to standard output, block by
//!   block when the launch ends.
//! - `malloc` has 8 MiB per device and returns 0 beyond that. Its blocks outlive the launch.
//! - [`Stats::conditions`] contains what `cudaGraphSetConditional` set.
//!
//! ## Asynchronous work
//!
//! - An asynchronous copy takes some turns of other warps, which the seed of the schedule decides.
//!   It also completes when all warps wait. Its source is read at the end.
//! - `st.async` and `red.async` land like a copy. `red.async.release` happens at once.
//! - `wgmma` is computed at the wait for its group, or at once, as the seed decides. Its operands
//!   count as read at the wait. Bulk copies out of shared memory behave in the same way.
//! - The first `try_wait` for an incomplete phase returns false at once, so that a missing loop
//!   shows. The next one suspends the warp. It returns false again when the block has nothing else
//!   to do, so that a loop can look at a second condition. `test_wait` never suspends.
//! - Tensor maps have a format that only this crate uses, see [`TensorMap`].
//!
//! ## Arithmetic
//!
//! - `f32` and `f64` instructions follow IEEE 754 in every rounding mode. A NaN result of type
//!   `f32` is `0x7fffffff`. The payload of other NaN results is unspecified.
//! - `.approx` functions are computed in double precision and rounded once, which is more exact
//!   than any device. Tests should rely on the documented error bounds. `rcp.approx.ftz.f64` and
//!   `rsqrt.approx.ftz.f64` return the nearest 20 bits.
//! - An integer division by zero returns all ones.
//! - `CC.CF` is the carry of `a + b + carry`, and of `a + !b + carry` for subtractions. After
//!   `sub.cc` it is 1 if there was no borrow.
//! - As an H100: the `.sat`, `.min`, `.max` and `vmad` forms of video instructions use wider
//!   intermediate values than the manual states. `mul.ftz` of 16-bit floats and directed `div.ftz`
//!   and `rcp.ftz` flush before they round. `cvt.ftz` from `f32` to a 16-bit float, and the sums of
//!   bulk copies, flush nothing. `fns` with the offset -2^31 returns 0.
//! - Conversions to 4-bit and 6-bit floats turn NaN into the largest value, and `.ue8m0x2` drops
//!   signs, as NVIDIA's headers do on the host. This was not compared with a device.
//! - Suffixes of an opcode may have any order, as in ptxas. Only the order of types matters.
//!
//! ## Matrix instructions
//!
//! - Integer results are exact. Sums of `f64` add one product after another, with one rounding
//!   each.
//! - As an H100: one step adds all its floating-point products and the accumulator at once. The
//!   terms are truncated to multiples of 2^-25 of the largest term, and the result has 24 bits.
//!   Sums in `f16` are rounded once. `wmma` on `.tf32` adds four products per step.
//! - As an H100: `mma` on 8-bit floats multiplies `f16` values in two steps, and the first step
//!   takes the lower two of each four values in a register. Their sum is then added to `c`. In
//!   `wgmma`, the terms of 8-bit floats have 13 bits instead of 25, and results have 14.
//! - A step of a sparse matrix adds the stored elements. The metadata of a sparse `wgmma` is read
//!   when the instruction is issued.
//! - The fragments of `wmma`, which the manual leaves open, are fragments of `mma` side by side.
//!
//! ## Textures and surfaces
//!
//! - [`Image`] and [`Sampler`] describe them behind 64-bit handles. Texels are ordinary memory, and
//!   those of arrays lie row by row.
//! - Coordinates and filters follow the CUDA C++ Programming Guide, "Texture Fetching". As an H100:
//!   normalized coordinates are rounded down to multiples of 2^-21, weights are multiples of 1/256,
//!   and means are sums in fixed point. Means of `f16` channels have 11 bits, and of integers 16.
//! - About one result in 10,000 of a three-dimensional fetch differs from an H100 in the last bit,
//!   and one in 25,000 of a cube map has another weight. Three-dimensional or bordered means of
//!   16-bit floats and integers, and subnormal or non-finite texels, were not compared.
//! - Texels of weight 0 are not read. The faces of a cube map are filtered separately. A linear
//!   filter of one dimension returns half of the border if the mode of the second direction has a
//!   border, as an H100 does.
//! - Integer coordinates beyond the ends read 0. An H100 always reads 0 from a 1D array with
//!   integer coordinates, so this is a finding.
//! - There is one mipmap level, so levels and gradients have no effect.
//! - In a traced launch, it is a fault to fetch bytes that the launch has written. Accesses of
//!   surfaces are loads and stores of global memory and see each other.
//!
//! # Limits
//!
//! The emulator can miss errors in these cases:
//!
//! - **Not traced:** races on global memory.
//! - **Fences.** Ordinary stores are visible at once and in order, so a missing fence shows as a
//!   race and not as a stale value. Strong stores are late only in traced launches, only in global
//!   memory, and only for other blocks. Loads are never early, so a strong load behind a flag that
//!   was read without an acquire is not found. A fence counts for the whole warp of the lane that
//!   executes it.
//! - **Lockstep.** Lanes of a warp run in lockstep until they branch. Lanes that exchange values
//!   through `volatile` accesses without `bar.warp.sync` are [found](Class::WarpSynchronous),
//!   unless the load polls or all lanes load one address.
//! - **mbarriers.** An arrival counts for its whole warp. A missing `bar.warp.sync` before one lane
//!   arrives for all lanes is not found.
//! - **Proxies.** Only bulk copies and ordinary accesses of the same global memory are compared. Of
//!   unordered threads that load what one thread stored, two are remembered. A tensor map that
//!   another block changed without a proxy fence is not found. `fence.proxy.async` counts in both
//!   places that the manual allows, but only the fence by the reading thread was compared with a
//!   device.
//! - **Clusters.** `barrier.cluster.arrive.relaxed` orders nothing, not even reads before it and
//!   writes after the wait.
//! - **Arithmetic check.** NaN and infinity that are loaded, assembled from bits, selected from
//!   constants or computed by matrix instructions are not reported.
//! - **Provenance check.** Pointers that pass through memory, products, shuffles or function
//!   parameters are not followed, and members of one structure are not separated. Variables in
//!   local memory are recognized by the code that nvcc and LLVM emit (`add.u64 %rd1, %SP, 16`).
//! - **Local memory.** A pointer to a local variable of a function that has returned is not found
//!   once another call uses that memory. A load of uninitialized bytes whose value is only masked
//!   and stored back reads zeros, because compilers treat bit fields and padding in this way.
//! - **Wide atomics.** Other blocks may see an ordinary 64-bit or 128-bit access half done while
//!   they use atomics on it. The same holds for a strong access whose lanes touch several
//!   allocations.
//!
//! Not implemented, and refused by name:
//!
//! - external functions, except `vprintf`, `malloc`, `free`, `__assertfail`,
//!   `cudaGraphSetConditional`, `cudaCGGetIntrinsicHandle` and `cudaCGSynchronize`;
//! - `wgmma` in functions, on single bits, and sparse with rows shorter than 64 bytes;
//! - sparse `mma` with a `.kind`, products of 4-bit and 6-bit floats, and conversions from 16-bit
//!   floats to them;
//! - tensor maps of images, and reductions of shared memory by bulk copies;
//! - mipmaps, depth comparison, multisampled textures and formatted stores of surfaces;
//! - `.b128` registers as arguments or as operands of narrower instructions;
//! - `.relaxed` arrivals and waits of mbarriers, `fma.oob`, negated operands of `vmad`, and
//!   `%reserved_smem_offset` registers other than 1.
//!
//! # Structure of the crate
//!
//! The folders are layers. A file uses only files below it, which a test checks.
//!
//! - `syntax` builds a syntax tree. After an error it continues with the next statement.
//! - `module` decodes: `decode` checks names, types, literals and features, and turns statements
//!   into instructions. `isa` has one row or function per instruction. `code` is the decoded form,
//!   and `registers` the register file that its functions compute on.
//! - `sanitize` has the checks. It knows no machine: it is notified of what happens, and returns
//!   findings.
//! - `machine` runs the instructions for 32 lanes at a time. `interp` dispatches them,
//!   `scheduler` chooses what runs next, `state` is what they change, and the other folders are
//!   parts of the hardware.
//! - [`check`] is the interface for unit tests.

#![forbid(unsafe_code)]
#![allow(
    clippy::precedence,
    reason = "shifts and masks read better without parentheses they do not need"
)]

pub mod check;
pub(crate) mod fault;
pub(crate) mod launch;
pub(crate) mod machine;
pub(crate) mod module;
pub(crate) mod profile;
pub(crate) mod run;
pub(crate) mod sanitize;
pub(crate) mod syntax;
pub(crate) mod watch;
pub(crate) mod watched;

pub use crate::fault::{AllocationInfo, Class, Fault, OtherPlace, RustPlace, SourcePlace};
pub use crate::launch::{Launch, LaunchSite, Order, Outside, Print, Schedule, Stats, Trace};
pub use crate::machine::device::device_memory::{Memory, UnmappedMemory};
pub use crate::machine::device::host_block::HostBlock;
pub use crate::machine::device::images::descriptor::{
    AddressMode, Coordinates, Filter, Image, ImageShape, ReadMode, Sampler,
};
pub use crate::machine::device::images::image_error::ImageError;
pub use crate::machine::device::images::texel_format::{ChannelType, TexelFormat};
pub use crate::machine::device::memory_error::MemoryError;
pub use crate::module::analysis::float_access::FloatAccess;
pub use crate::module::analysis::parameter_use::ParameterUse;
pub use crate::module::parameter::Param;
pub use crate::module::tensor_map::{ElementKind, TensorMap};
pub use crate::module::{Kernel, Module, RefusedFunction, RefusedKernel, Variable};
pub use crate::profile::{
    Followed, FollowedStep, MemoryProfile, MemorySpace, Profile, RegisterStep, SiteProfile,
};
pub use crate::run::{run, run_at, run_watched};
pub use crate::sanitize::race::global::launch_accesses::{
    Accesses, Conflict, ConflictKind, Trigger,
};
pub use crate::syntax::parse_error::{ErrorKind, KernelError, ParseError, ParseErrors};
pub use crate::watch::{Faults, Watch};
pub use crate::watched::{Found, Watched};

/// Implements `Debug` by `Display`, because `main` and `unwrap` print errors with `Debug`.
macro_rules! debug_is_display {
    ($($error:ty),* $(,)?) => {$(
        impl std::fmt::Debug for $error {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                std::fmt::Display::fmt(self, f)
            }
        }
    )*};
}

debug_is_display!(
    Fault,
    ImageError,
    KernelError,
    MemoryError,
    ParseError,
    ParseErrors,
    crate::check::CheckError
);
