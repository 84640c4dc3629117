//! The functions of the device runtime: `malloc`, `free`, `vprintf`, `__assertfail`, and the
//! setting of conditional graph nodes.

use std::sync::PoisonError;

use crate::machine::device::allocation_words::read;
use crate::machine::interp::call_arguments;
use crate::machine::interp::call_arguments::{local_byte, write_local};
use crate::machine::interp::printf::{FormatPiece, PrintArgument, format_piece, pieces};
use crate::machine::memory::global::global_checks;
use crate::machine::memory::lane_access;
use crate::machine::memory::lane_access::put;
use crate::machine::memory::shared::shared_checks;
use crate::machine::state::block::{Block, Checked};
use crate::machine::state::local_slice::own;
use crate::machine::state::warp::Warp;
use crate::module::address_space::{ResolvedAddress, resolve};
use crate::module::code::{Call, Passed, SystemCall};
use crate::module::lane_mask::lanes;
use crate::sanitize::race::last_access::AccessProperties;
use crate::{Class, Fault};

/// The maximum size of a text that a kernel prints, in bytes.
const MOST_TEXT: usize = 1 << 20;

pub(crate) fn system_call(
    block: &mut Block<'_, '_>,
    w: &mut Warp,
    mask: u32,
    function: SystemCall,
    call: &Call,
) -> Checked<()> {
    let mut arguments = Vec::new();
    for passed in &call.arguments {
        arguments.push(call_arguments::passed(block, w, mask, *passed)?);
    }

    w.effects += 1;
    let result = match (function, &arguments[..]) {
        (SystemCall::Print, [format, list]) => print(block, w, mask, format, list)?,
        (SystemCall::Malloc, [bytes]) => malloc(block, w, mask, bytes),
        (SystemCall::Free, [address]) => free(block, w, mask, address)?,
        (SystemCall::SetCondition, [handles, values]) => {
            set_conditions(block, mask, handles, values)
        }
        (SystemCall::AssertFail, [message, file, line, function, _]) => {
            return Err(assertion(block, w, mask, [message, file, function], line)?);
        }
        // Decoding has checked the number of arguments.
        (
            SystemCall::Print
            | SystemCall::Malloc
            | SystemCall::Free
            | SystemCall::SetCondition
            | SystemCall::AssertFail,
            _,
        ) => [0; 32],
    };
    match call.returns.first() {
        Some(Passed::Local { offset, bytes }) => {
            write_local(w, w.frame + offset, *bytes, mask, &result)
        }
        Some(Passed::Register(r)) => put(w, *r, mask, &result),
        Some(Passed::Literal(_)) | None => {}
    }

    Ok(())
}

/// Records the conditions that the lanes set, in order.
fn set_conditions(
    block: &mut Block<'_, '_>,
    mask: u32,
    handles: &[u64; 32],
    values: &[u64; 32],
) -> [u64; 32] {
    let set = lanes(mask).map(|lane| (handles[lane], values[lane] as u32));
    block
        .grid
        .conditions
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .extend(set);
    [0; 32]
}

fn malloc(block: &mut Block<'_, '_>, _: &Warp, mask: u32, bytes: &[u64; 32]) -> [u64; 32] {
    let mut out = [0; 32];
    if let Some(heap) = block.grid.table.heap(block.grid.device) {
        lanes(mask).for_each(|lane| out[lane] = heap.malloc(bytes[lane]));
    }
    out
}

fn free(
    block: &mut Block<'_, '_>,
    w: &Warp,
    mask: u32,
    addresses: &[u64; 32],
) -> Checked<[u64; 32]> {
    for lane in lanes(mask).filter(|lane| addresses[*lane] != 0) {
        let address = addresses[lane];
        let heap = block.grid.table.heap_at(address);
        if !heap.is_some_and(|heap| heap.free(address)) {
            return Err(bad_free(block, w, lane, address));
        }
    }
    Ok([0; 32])
}

#[cold]
fn bad_free(block: &Block<'_, '_>, w: &Warp, lane: usize, address: u64) -> Box<Fault> {
    let freed = block
        .grid
        .table
        .heap_at(address)
        .is_some_and(|heap| heap.freed(address).is_some());
    let what = if freed {
        format!("0x{address:x} is freed again")
    } else {
        format!("0x{address:x} is freed, which malloc of a kernel did not give")
    };
    let mut fault = block.fault(w, 1 << lane, Class::BadFree, what);
    fault.instead = "free each block once, by the address that malloc gave";
    lane_access::locate(block, &mut fault, address);
    fault
}

fn assertion(
    block: &mut Block<'_, '_>,
    w: &Warp,
    mask: u32,
    [message, file, function]: [&[u64; 32]; 3],
    line: &[u64; 32],
) -> Checked<Box<Fault>> {
    let lane = mask.trailing_zeros() as usize;
    let [message, file, function] = [
        text_at(block, w, lane, message[lane])?,
        text_at(block, w, lane, file[lane])?,
        text_at(block, w, lane, function[lane])?,
    ];
    let what = format!(
        "{file}:{}: {function}: assertion `{message}` failed",
        line[lane] as u32
    );
    let mut fault = block.fault(w, mask, Class::Assertion, what);
    fault.instead = "the kernel itself says that something is wrong";
    Ok(fault)
}

/// Prints for each lane. Returns the number of arguments, or -1 without a format.
fn print(
    block: &mut Block<'_, '_>,
    w: &Warp,
    mask: u32,
    formats: &[u64; 32],
    lists: &[u64; 32],
) -> Checked<[u64; 32]> {
    let mut out = [0; 32];
    let mut text = String::new();
    for lane in lanes(mask) {
        if formats[lane] == 0 {
            out[lane] = u64::MAX;
            continue;
        }
        let format = text_at(block, w, lane, formats[lane])?;
        out[lane] = print_lane(block, w, lane, &format, lists[lane], &mut text)?;
    }

    block.grid.keep_printed(block.blocks[w.rank as usize], text);
    Ok(out)
}

fn print_lane(
    block: &mut Block<'_, '_>,
    w: &Warp,
    lane: usize,
    format: &str,
    list: u64,
    text: &mut String,
) -> Checked<u64> {
    let mut at = list;
    let mut count = 0;
    for piece in pieces(format) {
        let FormatPiece::Conversion(c) = &piece else {
            text.push_str(&format_piece(&piece, &[]));
            continue;
        };

        let mut arguments = Vec::new();
        for bytes in c.takes() {
            at = at.next_multiple_of(bytes.into());
            let value = value(block, w, lane, at, bytes)?;
            at += u64::from(bytes);
            count += 1;
            arguments.push(PrintArgument::Number(value));
        }

        if let (true, Some(PrintArgument::Number(address))) = (c.is_text(), arguments.last()) {
            let address = *address;
            let string = if address == 0 {
                "(null)".into()
            } else {
                text_at(block, w, lane, address)?
            };
            arguments.pop();
            arguments.push(PrintArgument::Text(string));
        }

        text.push_str(&format_piece(&piece, &arguments));
    }

    Ok(count)
}

/// Returns the string at a generic address, up to its zero byte.
fn text_at(block: &mut Block<'_, '_>, w: &Warp, lane: usize, address: u64) -> Checked<String> {
    let mut bytes = Vec::new();
    while bytes.len() < MOST_TEXT {
        match byte(block, w, lane, address.wrapping_add(bytes.len() as u64))? {
            0 => break,
            byte => bytes.push(byte),
        }
    }
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

fn value(
    block: &mut Block<'_, '_>,
    w: &Warp,
    lane: usize,
    address: u64,
    bytes: u32,
) -> Checked<u64> {
    let mut value = 0;
    for k in 0..bytes {
        value |= u64::from(byte(block, w, lane, address.wrapping_add(k.into()))?) << (8 * k);
    }
    Ok(value)
}

/// Returns the byte at a generic address.
fn byte(block: &mut Block<'_, '_>, w: &Warp, lane: usize, address: u64) -> Checked<u8> {
    match resolve(address) {
        (ResolvedAddress::Global, at) => {
            let a = global_checks::lane_allocation(block, w, lane, at, 1)?;
            global_checks::check_lane(block, w, lane, a, at, 1)?;
            Ok(read(a, at - a.base, 1) as u8)
        }
        (ResolvedAddress::Shared, at) => {
            let access = AccessProperties {
                pc: w.now.pc,
                reads: true,
                ..AccessProperties::default()
            };
            let place = if block.blocks.len() > 1 {
                block.shadow.place(at, w.rank)
            } else {
                at
            };
            let offset = shared_checks::touch(block, w, lane, place, 1, access)?;
            Ok(block.shared.read(offset, 1) as u8)
        }
        (ResolvedAddress::Local, at) => {
            let found = own(w, lane, at).and_then(|at| local_byte(w, at as u32, lane));
            found.ok_or_else(|| unwritten(block, w, lane, at))
        }
        (ResolvedAddress::Param, at) => {
            let found = block.grid.launch.params.get(at as usize);
            found.copied().ok_or_else(|| unwritten(block, w, lane, at))
        }
    }
}

#[cold]
fn unwritten(block: &Block<'_, '_>, w: &Warp, lane: usize, at: u64) -> Box<Fault> {
    let what = "the device's function reads memory that the thread has not written";
    let mut fault = block.fault(w, 1 << lane, Class::UninitialisedLocal, what);
    fault.address = Some(at);
    fault
}
