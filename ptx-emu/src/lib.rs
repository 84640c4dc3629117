//! Reads PTX text and runs it on the CPU, refusing what a GPU lets pass.
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
//! launch.block = [65, 1, 1];
//! let fault = run(&memory, &launch, &Schedule::default(), Trace::Off).unwrap_err();
//! assert!(fault.to_string().contains("just past the end of `y`"));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! [`check`] does this for several schedules, with buffers that it makes and compares: the beginning of a unit test.
//!
//! # How it works
//!
//! `parse` builds a syntax tree; after an error it goes on with the next statement. `decode` checks names, types, literals and [features](Module::parse) and turns each
//! instruction into a decoded one. `flow` finds where diverged lanes reconverge. `exec` runs the decoded instructions
//! for 32 lanes at once. The arithmetic of the instruction set is a table in `isa`: a row holds an instruction's full
//! name and what it computes in one lane.
//!
//! The warps of a block take turns, and blocks are spread over threads, both in the order that a [`Schedule`] gives.
//! Its seed also decides how late asynchronous copies complete. A kernel without races gives the same bytes under every
//! schedule.
//!
//! # What is refused
//!
//! In the text: whatever is ill-formed, undeclared, of the wrong type or width, out of range, or above the declared
//! `.version` or `.target`. What is not implemented is refused by name and never skipped. Kernels are refused one by one:
//! those of a module that can run do, and [`Module::refused`] lists the others with what each lacks. [`ErrorKind`] says
//! whether the text is wrong or the emulator incomplete.
//!
//! In the run (see [`Class`]):
//!
//! - accesses out of bounds, misaligned for the whole vector, or to freed memory;
//! - handles that are no texture or surface, or one of another shape or with other numbers than the instruction reads; layers
//!   that are not there, channels that a texture does not have, accesses outside of surfaces under `.trap`;
//! - loads of bytes, and reads of registers, that nobody has written. A register is read when its value decides about
//!   something: a branch, an address, a store, a call. What is computed of it before has no value either. Shared and
//!   local memory without a value is a fault when what was loaded is read in this sense; other memory, when it is loaded;
//! - barriers and `.sync` instructions that the wrong threads execute;
//! - races on shared memory, between lanes of one warp too;
//! - accesses to the destination of an asynchronous copy before the thread has waited for the copy;
//! - uses of the sums of a `wgmma`, or changes of what it reads, before the warp has waited for it; products without
//!   `wgmma.fence`; descriptors with another swizzle than the tensor map that brought the tile;
//! - ordinary stores to shared memory that `wgmma` or a bulk copy reads, and ordinary loads and stores of what a bulk
//!   copy overwrites, without `fence.proxy.async` between;
//! - calls through registers that hold no function's address, or that of one with other parameters; recursion that does
//!   not end; failed assertions; blocks of `malloc` that are freed twice;
//! - generic addresses of the local memory of another thread;
//! - mbarriers whose arrivals or bytes do not match, and waits that another timing would let pass one phase too early
//!   or too late.
//!
//! Races and phases are judged by what orders the threads, not by the order in which they happened to run. A
//! [traced](Trace::On) launch also finds races on global memory and writes to `.nc` data, lets other blocks see strong
//! stores late until a fence or a release makes them arrive, keeps the last read of every warp, and interleaves blocks
//! where the order is shuffled. It records what it accessed, so that two launches that nothing orders can be
//! [compared](Accesses::conflict).
//!
//! Races that give the same result in any order are [tolerated](Class::ToleratedRace): equal values that threads store at
//! one address, the plain load that a loop of compare-and-swap begins with, and the reset of a counter by the block whose
//! atomic was the last. They are notes of the launch ([`Watched::notes`]), and faults if it is [strict](Watch::strict).
//!
//! Where a launch [asks for it](Watch), at the price of time, findings are also
//!
//! - [numbers that arithmetic spoils](Watch::arithmetic): integers divided by zero, NaN and infinity where they first appear
//!   if they are stored or handed on, conversions to an integer type that does not hold the number;
//! - [pointers that stray](Watch::provenance): addresses that were derived from one variable, part of a thread's local
//!   memory or allocation, and lead into another.
//!
//! Blocks, warps and lanes that wait for each other take turns, with or without `nanosleep`. If no thread can continue,
//! because all wait at barriers or poll for values that no thread writes, the launch ends with a
//! [deadlock](Class::Deadlock) that says which warps wait where. This holds for any number of host threads. A caller whose
//! memory may change while a launch runs passes an [`Outside`], so that such a wait is not taken for a deadlock. A loop that
//! may end by itself, for example one that counts up to a limit, ends by itself or by a limit.
//!
//! # How the machine is modelled
//!
//! - Lanes that diverge reconverge at the immediate post-dominator. Lanes that exit early are not waited for. When the
//!   running lanes poll, the lanes of their warp that wait for them run on alone, until they meet at a `.sync` or
//!   `.aligned` instruction. From sm_70 on, the lanes of a `.sync` instruction and of a barrier without `.aligned` may be at
//!   different instructions of the same kind. They wait for each other, and the other lanes go on meanwhile.
//! - Arithmetic on singles and doubles is IEEE arithmetic, correctly rounded in every rounding mode. NaN results of singles
//!   are `0x7fffffff`; of doubles and of `.f32x2` which NaN it is follows no rule. `.approx` functions are computed in double precision and rounded once. This is more precise than any
//!   device, so tests rely on the documented bounds. `.full` and `.approx` divisions are correctly rounded too, and the
//!   20 bits that `rcp.approx.ftz.f64` and `rsqrt.approx.ftz.f64` give are the nearest ones.
//! - `CC.CF` is the carry out of `a + b + carry`, and for subtractions of `a + !b + carry`, in every instruction that
//!   writes it. After `sub.cc` it is 1 when there was no borrow.
//! - Integer division by zero, which the manual leaves open, gives all ones.
//! - Lanes of one `.sync` instruction may name different masks if the masks do not overlap. Each group executes the
//!   instruction separately.
//! - A lane that shuffles from a lane that has not written the source has not written its own destination. Reading that
//!   destination is a fault.
//! - Barriers, and releases that are acquired, order threads and blocks. Releases and acquires are atomics, loads and
//!   stores with these semantics, and fences together with strong accesses, each at its scope. A cluster has one block.
//! - `%reserved_smem_offset_1` is the address of 1 KiB of shared memory that no variable has; it holds zeros when a block
//!   begins. What `discard` leaves is a pattern that counts as written.
//! - As on hardware, `%warpid` is not the index of the warp in its block. Clocks count executed instructions.
//! - Addresses are never reused. Allocations have unmapped gaps of 64 GiB between them, shared variables smaller ones,
//!   and all are aligned no better than promised. Shared and local memory have windows of generic addresses.
//! - Lanes that call a function together return together: those that return early wait behind the call. Lanes that call
//!   different functions through a register run one function after another. A thread may nest 1024 calls and has 512 KiB
//!   of local memory for them. A function that is only called by its address and cannot run is a fault where it is called.
//! - What `printf` writes is given to the [`Print`] of the launch, or to standard output, when the launch ends, block by
//!   block. `malloc` has 8 MiB on each device, and gives 0 beyond; its blocks outlive the launch.
//! - `%envreg1` and `%envreg2` hold the address of a workspace in cooperative launches, where the barrier of a grid counts;
//!   the others are 0, and so are both in other launches.
//! - Suffixes may stand in any order, as in ptxas; only types keep theirs.
//! - `mma` and `wgmma` on integers are exact. On floats one step adds all its products and the sum at once, and cuts them
//!   as an H200 and an H100 were seen to: to a multiple of 2^-25 of the largest, and the result to 24 bits. Sums
//!   of halves are rounded once. 8-bit floats of `mma` are multiplied as halves in two steps, the first of which takes the
//!   lower two of each four in a register; their sum, a half after each step where `d` is, is then added to `c`.
//!   In `wgmma`, 8-bit floats have 13 bits in place of 25, and results 14. A step of a sparse matrix adds what is stored.
//!   All bits of sums were those of an H100. Metadata of a sparse `wgmma` is read when the product is asked for.
//!   `wmma` on `.tf32` adds four products a step. Doubles are added one product after another, each with one rounding.
//! - As an H200 and an H100 were seen to: `.sat` of video instructions sees 34 bits and does not clamp an unsigned result of
//!   32 bits above, but that of a shift; their `.min` and `.max` compare more bits than the result has; `vmad` takes whole
//!   registers and `c` as signed, and a negative sum that is shifted as too large where both types are unsigned;
//!   `mul.ftz` of halves and directed `div.ftz` and `rcp.ftz` flush what is tiny before it is rounded; `cvt.ftz` from a single
//!   to a half and sums of bulk copies flush nothing. `fns` with an offset of -2^31 gives 0.
//! - The fragments of `wmma` are those of `mma`, several side by side where a matrix is larger. The manual leaves it open.
//! - `brkpt` is a `trap`: there is no debugger. Counters of `pmevent` do not exist.
//! - The blocks of a cluster run together, with one set of clocks: an order of `.cta` scope holds for all of them. A block
//!   must not end while nothing orders the accesses of others to its shared memory before.
//! - `wgmma` is computed at the wait for its group, or, as the seed says, at once; what it reads counts as read at the wait.
//!   Bulk copies out of shared memory are alike.
//! - `st.async` and `red.async` land like a copy, some turns later or when all warps wait; `red.async.release` happens at
//!   once. `.mmio` accesses are relaxed ones. That a tensor map which another block has changed needs a fence of its
//!   proxy is not checked.
//! - Conversions to floats of four and six bits give the largest for NaN, and `.ue8m0x2` drops signs, as NVIDIA's headers
//!   compute them on the host; no device was asked.
//! - Textures and surfaces are ordinary memory, which [`Image`] and [`Sampler`] describe, behind 64-bit handles; the texels of
//!   arrays lie row by row. Coordinates and filters follow the CUDA C++ Programming Guide, "Texture Fetching", and give the
//!   bits of an H100 where it was asked: normalized coordinates are rounded down to multiples of 2^-21; weights are whole
//!   256ths, rounded once more for each further direction; means are summed in fixed point, those of halves have 11 bits, those
//!   of integers 16. One result of some 10,000 in three dimensions differs in the last bit, and one of 25,000 of a cube map has
//!   another weight. Without a device's word are means of halves and integers in three dimensions or with a border, and
//!   texels that are subnormal or not finite. Texels of weight 0 are not read; faces of cube maps are filtered one by one. A
//!   linear filter of one dimension gives half of the border where the second direction's mode has one, as there.
//!   What is read by index is 0 beyond its ends, and a 1D array that is read by index, always 0 there, is a finding.
//!   There is one level of texels, which gradients and levels do not change. In a traced launch, a
//!   fetch of bytes that were written before in the launch is a fault. Accesses of surfaces are loads and stores of global
//!   memory, which see each other.
//! - Tensor maps have a format of their own, which [`TensorMap`] writes.
//! - An asynchronous copy takes some turns of other warps, or completes when all warps wait. Its source is read at the
//!   end. A copy that no thread waits for is a fault, and so is a block whose warps all wait.
//! - The first `try_wait` for an incomplete phase returns false at once, so that a missing loop shows. The next one
//!   suspends until the phase is complete. `test_wait` never suspends.
//! - `setmaxnreg` waits for registers where the kernel has `.minnctapersm`: then it was launched with its part of 65536.
//!   Else it changes nothing.
//! - What a kernel sets by `cudaGraphSetConditional` is in its [`Stats`].
//! - `griddepcontrol` does not affect the launch itself. A traced launch records it: see *Programmatic edges*.
//! - Caches, cache hints and policies, and `prefetch` have no effect.
//! - `nanosleep` ends the warp's turn. A warp polls when in 10,000 instructions it does nothing that others can see. When
//!   all runnable warps of a block sleep or poll, the thread runs other blocks in turn, and starts new ones as long as at
//!   most 1024 wait, or any number in a [cooperative](LaunchSite::cooperative) launch.
//! - A launch on one thread ends as a deadlock when every block that has begun waits or polls in a state that it was in
//!   before, or when for 4096 turns of each nobody has done anything but ask.
//!
//! # Programmatic edges
//!
//! A launch B behind a programmatic edge from A may start while A still runs. Before its `griddepcontrol.wait`, B may
//! rely on nothing that A does. Run both traced. The edge is wrong
//!
//! - if [`B.before_wait_conflict(&A)`](Accesses::before_wait_conflict) finds bytes that B accesses too early. Check A,
//!   and if one of A's [triggers](Accesses::triggers) came before its own wait, also the launches before A, which may
//!   still run;
//! - if not [`B.waited()`](Accesses::waited): some block of B ended without a wait, so the end of B does not imply the
//!   end of A.
//!
//! # What is not caught
//!
//! - Plain stores are visible at once and in order: a missing fence, or one whose scope is too small, shows as a race
//!   between warps (shared memory) or between blocks (when traced). Strong stores to global memory may be late for other
//!   blocks when traced; within a block, and to shared memory, they are visible at once. Lanes of a warp that exchange
//!   values by `volatile` accesses without `bar.warp.sync` are [found](Class::WarpSynchronous), unless the load polls (a
//!   loop that stores nothing) or all lanes load one place.
//! - Loads are never early: a strong load behind a flag that was read without an acquire is not found.
//! - A fence or release counts for the whole warp of the lane that executes it. Where lanes fence individually, a race
//!   may be missed.
//! - Lanes of one warp run in lockstep until they branch.
//! - An arrival at an mbarrier counts for its whole warp, so a missing `bar.warp.sync` before one lane arrives for all
//!   does not show. A thread may suspend in `try_wait` for ever where a device would give up and return false.
//! - Proxies: bulk copies and ordinary accesses of the same global memory. Of threads that nothing orders and that load
//!   what a thread stored, two are remembered, so a bulk copy that may overtake the load of a third is missed.
//! - `fence.proxy.async` counts wherever the manual lets it: by who loads, before the arrival, or by who copies, after
//!   the wait. Only the former was tried on a device.
//! - `barrier.cluster.arrive.relaxed` orders nothing, not even reads before it and writes after the wait.
//! - Of [spoilt numbers](Watch::arithmetic): infinities and NaN that are loaded, put together from bits or chosen among
//!   constants, as in some functions of libdevice, and what products of matrices give.
//! - Of [pointers that stray](Watch::provenance): those that were passed to functions as addresses of local memory, kept in
//!   memory, multiplied or shuffled, and members of one structure. Parts of local memory are known by how nvcc and LLVM
//!   take their addresses (`add.u64 %rd1, %SP, 16`). Asynchronous copies and products of matrices are not looked at.
//! - A pointer to a variable of a function that has returned, once another call uses that memory.
//! - Local memory without a value where compilers let bit fields and gaps of structures be: a load whose value is only
//!   masked and stored back reads zeros, and one whose value is only stored elsewhere passes on bytes without a value, but
//!   gives those of a word of which some are written.
//! - Races on global memory in launches that are not traced.
//! - Each thread runs its blocks to the end one after another, except for blocks that wait or poll, and for traced launches
//!   whose order is shuffled: these run four at a time. Up to 1024 blocks, or clusters of blocks, of a
//!   launch may wait at the same time, unless it is cooperative. A device has another limit.
//! - A warp that waits in `mbarrier.try_wait` sleeps until the phase is complete, although a device returns false after a
//!   time. A loop that also looks at another value while it waits does not see it change meanwhile.
//! - Other blocks that use atomics on 64 or 128 bits may see a plain access to them half done, and a strong one of a warp
//!   whose lanes access several allocations at once.
//! - Not implemented, and refused by name: functions that the text declares and does not define (but `vprintf`, `malloc`,
//!   `free`, `__assertfail`, `cudaGraphSetConditional`, `cudaCGGetIntrinsicHandle` and `cudaCGSynchronize`), `wgmma` in
//!   functions, other `%reserved_smem_offset` registers, sparse `mma` with a `.kind`, `wgmma` on single bits, the right matrix
//!   of a sparse `wgmma` with rows shorter than 64 bytes, reductions of shared memory by bulk copies, tensor maps of images,
//!   arrivals and waits with `.relaxed`, mipmaps, depths that are compared, textures of many samples, formatted stores of
//!   surfaces, `.b128` registers as arguments or operands of narrower instructions, products of 4-bit and 6-bit floats,
//!   conversions to these from halves, `fma.oob`, negated operands of `vmad`.

#![forbid(unsafe_code)]
#![allow(
    clippy::precedence,
    reason = "shifts and masks read better without parentheses they do not need"
)]

mod accesses;
mod allocation;
mod async_code;
mod atomic_code;
mod call_code;
pub mod check;
mod code;
mod decode;
mod exec;
mod fault;
mod features;
mod flow;
mod fragment_code;
mod heap;
mod host_block;
mod image;
mod image_code;
mod isa;
mod launch;
mod memory;
mod memory_error;
mod module;
mod observe;
mod parse;
mod parse_error;
mod runtime;
mod statics;
mod tensor_map;
mod video_code;
mod watch;

pub use accesses::{Accesses, Conflict, ConflictKind, Trigger};
pub use exec::ParameterUse;
pub use fault::{AllocationInfo, Class, Fault, OtherPlace, RustPlace, SourcePlace};
pub use host_block::HostBlock;
pub use image::{
    AddressMode, ChannelType, Coordinates, Filter, Image, ImageError, Read, Sampler, Shape,
    TexelFormat,
};
pub use launch::{
    Launch, LaunchSite, Order, Outside, Print, Schedule, Stats, Trace, run, run_at, run_watched,
};
pub use memory::{Memory, Taken};
pub use memory_error::MemoryError;
pub use module::{Kernel, Module, Param, RefusedFunction, RefusedKernel, Variable};
pub use observe::{Followed, MemoryProfile, MemorySpace, Profile, RegisterStep, SiteProfile, Step};
pub use parse_error::{ErrorKind, KernelError, ParseError, ParseErrors};
pub use tensor_map::{ElementKind, TensorMap};
pub use watch::{Faults, Found, Watch, Watched};

/// Implements `Debug` as `Display`, so that `fn main() -> Result<(), E>` and `unwrap` print the sentence.
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
    check::CheckError
);
