//! Stream memory operations.

use std::ffi::c_uint;

use warpwright_driver_sys::*;

use crate::api::export::exports;
use crate::error::{Result, require};
use crate::ffi::pointer::Out;
use crate::machine::Machine;
use crate::work::StreamWork;
use crate::work::words::WordWork;

exports! {
    table {
        11070 cuStreamWaitValue32 cuStreamWaitValue32_v2(stream: CUstream, address: CUdeviceptr, value: u32, flags: CUstreamWaitValue_flags) => wait_32;
        11070 cuStreamWaitValue64 cuStreamWaitValue64_v2(stream: CUstream, address: CUdeviceptr, value: u64, flags: CUstreamWaitValue_flags) => wait_64;
        11070 cuStreamWriteValue32 cuStreamWriteValue32_v2(stream: CUstream, address: CUdeviceptr, value: u32, flags: CUstreamWriteValue_flags) => write_32;
        11070 cuStreamWriteValue64 cuStreamWriteValue64_v2(stream: CUstream, address: CUdeviceptr, value: u64, flags: CUstreamWriteValue_flags) => write_64;
        11070 cuStreamBatchMemOp cuStreamBatchMemOp_v2(stream: CUstream, count: c_uint, operations: *mut CUstreamBatchMemOpParams, flags: c_uint) => batch;
    }
    more {
        8000 cuStreamWaitValue32 cuStreamWaitValue32(stream: CUstream, address: CUdeviceptr, value: u32, flags: CUstreamWaitValue_flags) => wait_32;
        9000 cuStreamWaitValue64 cuStreamWaitValue64(stream: CUstream, address: CUdeviceptr, value: u64, flags: CUstreamWaitValue_flags) => wait_64;
        8000 cuStreamWriteValue32 cuStreamWriteValue32(stream: CUstream, address: CUdeviceptr, value: u32, flags: CUstreamWriteValue_flags) => write_32;
        9000 cuStreamWriteValue64 cuStreamWriteValue64(stream: CUstream, address: CUdeviceptr, value: u64, flags: CUstreamWriteValue_flags) => write_64;
        8000 cuStreamBatchMemOp cuStreamBatchMemOp(stream: CUstream, count: c_uint, operations: *mut CUstreamBatchMemOpParams, flags: c_uint) => batch;
    }
}

/// The maximum number of operations in a batch, as in the driver.
const MOST: c_uint = 256;

fn run(m: &'static Machine, stream: CUstream, operations: &[CUstreamBatchMemOpParams]) -> Result {
    let mut s = m.state();
    let stream = s.stream(stream)?;
    let work = WordWork::of(m.device, operations)?;
    s.submit(stream, StreamWork::Words(work)).map(drop)
}

fn one(
    m: &'static Machine,
    stream: CUstream,
    operation: CUstreamBatchMemOpType,
    address: CUdeviceptr,
    value: u64,
    flags: u32,
) -> Result {
    let zero = CUstreamBatchMemOpParams::zeroed();
    run(
        m,
        stream,
        &[CUstreamBatchMemOpParams {
            operation,
            address,
            value,
            flags,
            ..zero
        }],
    )
}

fn wait_32(
    m: &'static Machine,
    stream: CUstream,
    address: CUdeviceptr,
    value: u32,
    flags: CUstreamWaitValue_flags,
) -> Result {
    one(
        m,
        stream,
        CUstreamBatchMemOpType::WAIT_VALUE_32,
        address,
        value.into(),
        flags.0,
    )
}

fn wait_64(
    m: &'static Machine,
    stream: CUstream,
    address: CUdeviceptr,
    value: u64,
    flags: CUstreamWaitValue_flags,
) -> Result {
    one(
        m,
        stream,
        CUstreamBatchMemOpType::WAIT_VALUE_64,
        address,
        value,
        flags.0,
    )
}

fn write_32(
    m: &'static Machine,
    stream: CUstream,
    address: CUdeviceptr,
    value: u32,
    flags: CUstreamWriteValue_flags,
) -> Result {
    one(
        m,
        stream,
        CUstreamBatchMemOpType::WRITE_VALUE_32,
        address,
        value.into(),
        flags.bits(),
    )
}

fn write_64(
    m: &'static Machine,
    stream: CUstream,
    address: CUdeviceptr,
    value: u64,
    flags: CUstreamWriteValue_flags,
) -> Result {
    one(
        m,
        stream,
        CUstreamBatchMemOpType::WRITE_VALUE_64,
        address,
        value,
        flags.bits(),
    )
}

fn batch(
    m: &'static Machine,
    stream: CUstream,
    count: c_uint,
    operations: Out<CUstreamBatchMemOpParams>,
    flags: c_uint,
) -> Result {
    require(flags == 0 && (1..=MOST).contains(&count), || {
        format!(
            "{count} operations and the flags {flags:#x}: expected 1 to {MOST} operations and no flags"
        )
    })?;
    run(m, stream, operations.slice(count as usize)?)
}
