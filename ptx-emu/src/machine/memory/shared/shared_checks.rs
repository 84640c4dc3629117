//! The checks of an access to shared memory, and the faults that they find.

use crate::fault::{Class, Fault, OtherPlace};
use crate::machine::memory::shared::cluster_window;
use crate::machine::state::block::{Block, Checked};
use crate::machine::state::warp::Warp;
use crate::sanitize::race::last_access::AccessProperties;
use crate::sanitize::race::shared::shared_shadow::AccessError;

/// The advice for an access beyond the dynamic shared memory of a launch.
const DYNAMIC: &str =
    "launch with more dynamic shared memory (--smem BYTES of warpwright emu), or check the index";

/// The maximum size of dynamic shared memory in bytes.
const MOST_DYNAMIC: u64 = 227 << 10;

/// Checks the access of one lane to shared memory and returns the offset of its bytes.
#[inline]
pub(crate) fn touch(
    block: &mut Block<'_, '_>,
    w: &Warp,
    lane: usize,
    address: u64,
    bytes: u32,
    access: AccessProperties,
) -> Checked<usize> {
    let access = AccessProperties {
        thread: w.index * 32 + lane as u32,
        ..access
    };
    if block.blocks.len() > 1 {
        cluster_window::visit(block, w, lane, address)?;
    }
    match block.shadow.touch(address, bytes, access) {
        Ok(offset) => Ok(offset),
        Err(wrong) => Err(wrong_shared(block, w, lane, address, bytes, access, wrong)),
    }
}

#[cold]
fn wrong_shared(
    block: &Block<'_, '_>,
    w: &Warp,
    lane: usize,
    address: u64,
    bytes: u32,
    access: AccessProperties,
    wrong: AccessError,
) -> Box<Fault> {
    let does = if access.writes { "written" } else { "read" };
    match wrong {
        AccessError::Outside => {
            if let Some(fault) = covered(block, w, lane, address, bytes, does) {
                return fault;
            }
        }
        AccessError::Race { other, .. } if block.shadow.by_agent(&other) => {
            return not_waited(block, w, lane, address, other.pc, does);
        }
        _ => {}
    }

    let (class, address, what, instead) = match wrong {
        AccessError::Outside => {
            let at = block.shadow.local(address & !(1 << 63));
            match beyond_dynamic(block, at, bytes) {
                Some(more) => {
                    let what = format!(
                        "shared memory is {does} at 0x{at:x}, outside every variable: {more}"
                    );
                    (Class::OutOfBounds, address, what, DYNAMIC)
                }
                None => {
                    let what =
                        format!("shared memory is {does} at 0x{at:x}, outside every variable");
                    (
                        Class::OutOfBounds,
                        address,
                        what,
                        "the address must lie within one shared variable",
                    )
                }
            }
        }
        AccessError::Uninitialised { byte } => {
            let what = "shared memory is read before any thread has written it".to_string();
            // A forgotten barrier shows like this if the reader runs before the writer.
            let instead = if block.grid.launch.block != [1; 3] {
                "if another thread writes it, put a barrier between the write and this load; otherwise write it first"
            } else {
                "write it before this load"
            };
            (Class::UninitialisedShared, byte.into(), what, instead)
        }
        AccessError::Race { .. } => {
            let what = format!(
                "shared memory is {does} while another thread uses it, and nothing orders the two"
            );
            (
                Class::SharedRace,
                address,
                what,
                "put a barrier between the two",
            )
        }
    };
    let mut fault = block.fault(w, 1 << lane, class, what);
    fault.instead = instead;
    block.locate_shared(&mut fault, address);
    if let AccessError::Race { other, wrote } = wrong {
        fault.other = Some(block.earlier(
            other.pc,
            other.thread.into(),
            if wrote { "wrote" } else { "read" },
        ));
    }

    fault
}

/// Describes the dynamic shared memory if an access lies beyond it and a launch could request
/// enough.
fn beyond_dynamic(block: &Block<'_, '_>, at: u64, bytes: u32) -> Option<String> {
    let region = block.grid.code.declared_dynamic()?;
    let given = block.grid.launch.dynamic_shared;
    let needed = (at + u64::from(bytes)).checked_sub(region.address.into())?;
    let beyond = needed > given.into() && needed <= MOST_DYNAMIC;
    beyond.then(|| {
        format!(
            "the launch gives `{}` {given} bytes, and this access needs at least {needed}",
            region.name
        )
    })
}

/// Returns the fault of an access to an mbarrier, or to the destination of a pending copy.
pub(crate) fn covered(
    block: &Block<'_, '_>,
    w: &Warp,
    lane: usize,
    address: u64,
    bytes: u32,
    does: &str,
) -> Option<Box<Fault>> {
    if let Some(copy) = block.pending.copies.within(address, bytes.into()) {
        return Some(not_waited(block, w, lane, address, copy, does));
    }

    let (_, init) = block.mbarriers.within(address, bytes.into())?;
    let what = format!("shared memory is {does} that is an mbarrier");
    let mut fault = block.fault(w, 1 << lane, Class::Mbarrier, what);
    fault.instead = "use mbarrier instructions alone, and mbarrier.inval before other use";
    block.locate_shared(&mut fault, address);
    fault.other = Some(block.earlier(init.pc, init.thread.into(), "initialised it"));
    Some(fault)
}

fn not_waited(
    block: &Block<'_, '_>,
    w: &Warp,
    lane: usize,
    address: u64,
    copy: u32,
    does: &str,
) -> Box<Fault> {
    let what = format!(
        "shared memory is {does} that a copy writes, and the thread has not waited for the copy"
    );
    let mut fault = block.fault(w, 1 << lane, Class::AsyncCopy, what);
    fault.instead = "wait for the mbarrier or the group of the copy; if the copy is too early, let it wait for those who read";
    block.locate_shared(&mut fault, address);
    fault.other = Some(OtherPlace {
        place: block.place(copy),
        did: "writes it",
        who: "a copy".into(),
    });
    fault
}
