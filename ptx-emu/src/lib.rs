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
//!     kernel: module.kernel("iota").expect("it is in the text"),
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
//! # How it works
//!
//! `parse` makes a syntax tree of the text, `decode` checks names, types, literals and [features](Module::parse) and
//! makes one operation of each instruction, `flow` finds where diverged lanes meet again, `exec` runs the operations
//! for 32 lanes at once. The arithmetic of the instruction set is a table in `isa`: a row is an instruction's full
//! name and what it computes in one lane.
//!
//! Warps of a block take turns between barriers, blocks are spread over threads, both in the order a [`Schedule`]
//! says; its seed also says how late asynchronous copies arrive. A kernel without races gives the same bytes under
//! every schedule.
//!
//! # What is refused
//!
//! In the text: everything ill-formed, undeclared, of the wrong type or width, out of range, above the declared
//! `.version` or `.target`, and whatever is not implemented, by name; never a skip. In the run, see [`Class`]: every
//! access is checked for bounds, alignment of the whole vector, and life of its allocation; every load for bytes that
//! somebody has written; every register for lanes that have written it; barriers and `.sync` instructions for who
//! takes part; shared memory for races between threads, of one warp too; the destination of an asynchronous copy for
//! being left alone until it was waited for; mbarriers for arrivals and bytes that match, and for phases that no wait
//! can confuse, by what the threads know of each other and not by how they happened to run. A [traced](Trace::On)
//! launch also finds races on global memory and writes to `.nc` data, and records what it touched, so that two
//! launches that nothing orders can be [compared](Accesses::conflict).
//!
//! # What is modelled how
//!
//! - Lanes that part meet at the immediate post-dominator. Lanes that exit early are not waited for.
//! - Single-precision arithmetic is IEEE, correctly rounded in every rounding mode; NaN results are `0x7fffffff`.
//!   `.approx` functions are computed in double precision and rounded once: better than any device, so tests rely on
//!   documented bounds and not on these bits. `.full` and `.approx` divisions are correctly rounded too.
//! - `CC.CF` is the carry out of `a + b + carry`, for subtractions of `a + !b + carry`, in every instruction that writes
//!   it: after `sub.cc` it is 1 when there was no borrow.
//! - Lanes of one `.sync` instruction that name different masks, which may not overlap, execute it as separate groups.
//! - A lane that shuffles a value out of a register that its source lane has not written has not written its own
//!   destination: that is a fault where the destination is read.
//! - Threads and blocks are ordered by barriers and by releases and acquires, through locks and tickets too: by atomics,
//!   stores and loads that say so, and by fences with strong accesses, each at its scope. A cluster is one block.
//! - Integer division by zero, which the manual leaves open, gives all ones.
//! - `%warpid` is not the warp's number in its block, as on hardware. Clocks count executed instructions.
//! - Addresses are never used twice, allocations and shared variables have unmapped gaps between them, and neither
//!   is aligned better than promised. Generic addresses of shared and local memory lie in windows of their own.
//! - `mma` on integers is exact. On halves its products are exact and are added to `c` one after another in order of
//!   k, each sum rounded to a single; devices add in an order and with a rounding of their own.
//! - An asynchronous copy is under way for some turns of other warps, or until all wait; its source is read at the end.
//!   A copy that no thread of the block waits for is a fault, as is a block whose warps all wait.
//! - A `try_wait` says no at once the first time, so that a missing loop shows; asked again it sleeps until the phase
//!   is complete. `test_wait` never sleeps.
//! - `setmaxnreg` changes nothing.
//! - `griddepcontrol` does nothing to the launch itself. A traced launch records it: see *Programmatic edges*.
//! - Caches, their hints and policies, and `prefetch` have no effect.
//! - `nanosleep` ends the warp's turn. While all warps of a block that can run sleep, as they do who ask again and again
//!   for what another block will leave, other blocks begin, on top of it: it goes on when the one begun last has ended.
//!
//! # Programmatic edges
//!
//! A launch B behind a programmatic edge from A may start while A still runs, and may rely on nothing of A before its
//! `griddepcontrol.wait`. Run both traced; then the edge is wrong
//!
//! - if [`B.before_wait_conflict(&A)`](Accesses::before_wait_conflict) finds bytes that B touches too early, for A and
//!   for every launch that may still run when A lets B start: those before A, if one of A's
//!   [triggers](Accesses::triggers) came before its own wait;
//! - if not [`B.waited()`](Accesses::waited): some block of B ended without a wait, so B's end says nothing of A's.
//!
//! # What is not caught
//!
//! - Stores are visible at once and in order: a missing fence, or one whose scope is too small, shows only as a race
//!   between warps (shared memory), or between blocks when traced, never as a stale value.
//! - Fences and releases count for the whole warp of the lane that executes them: where lanes fence for themselves, a
//!   race may be missed.
//! - Lanes of one warp run in lockstep until they branch; code that needs lanes to advance independently (one lane
//!   spinning on another of its warp) runs out of fuel.
//! - An arrival at an mbarrier speaks for its whole warp: a `bar.warp.sync` that is missing before one lane arrives for
//!   all does not show. A thread may suspend in `try_wait` for ever where a device would give up and say no.
//! - Proxies: ordinary stores to shared or global memory that a bulk copy overwrites or reads in the same launch without
//!   `fence.proxy.async`. Only the initialisation of an mbarrier is checked.
//! - Races on global memory in launches that are not traced.
//! - Blocks run to their end one after another on each thread, but for those that sleep: a grid that waits for itself
//!   without, or two blocks that wait for each other twice, run out of fuel. Any number of blocks may wait so, where a
//!   device has places for some.
//! - Wide (64-bit) plain accesses may be seen half done by other blocks that use atomics on the same word.
//! - Not implemented, refused by name: device functions and calls, `wmma` and `wgmma`, `mma` of other types than halves
//!   and bytes, `stmatrix`, bulk copies other than from global to shared memory, tensor maps, clusters, textures,
//!   surfaces, 128-bit values, SIMD video instructions.

#![forbid(unsafe_code)]
#![allow(clippy::precedence, reason = "shifts and masks read better without parentheses they do not need")]

mod accesses;
mod code;
mod decode;
mod exec;
mod fault;
mod features;
mod flow;
mod isa;
mod launch;
mod memory;
mod module;
mod parse;

pub use accesses::{Accesses, Conflict, ConflictKind, Trigger};
pub use fault::{AllocationInfo, Class, Fault, OtherPlace, Place, RustPlace};
pub use launch::{Launch, Order, Schedule, Stats, Trace, run};
pub use memory::{HostBlock, Memory, MemoryError};
pub use module::{Kernel, Module, Param, ParseError, ParseErrors, Variable};

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

debug_is_display!(Fault, MemoryError, ParseError, ParseErrors);
