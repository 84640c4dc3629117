//! Memory and functions of the caller that work uses after the call has returned.

use std::cell::Cell;
use std::ffi::{c_char, c_int, c_void};
use std::sync::atomic::AtomicU32;

use warpwright_driver_sys::*;

use crate::error::{Result, refuse};
use crate::ffi::pointer::{CArgument, Out};

/// Memory of the caller that a copy reads or writes, possibly after the call has returned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct HostSpan {
    address: usize,
}

impl HostSpan {
    /// Returns the memory at an address that a caller passed.
    ///
    /// By the contract of the API, the caller keeps it valid until the copy has finished.
    pub(crate) fn new(address: usize) -> Self {
        Self { address }
    }

    pub(crate) fn address(self) -> u64 {
        self.address as u64
    }

    pub(crate) fn at(self, offset: usize) -> Self {
        Self {
            address: self.address + offset,
        }
    }

    /// Returns the bytes to copy from.
    pub(crate) fn bytes(&self, len: usize) -> &[u8] {
        if len == 0 {
            return &[];
        }
        // SAFETY: by the contract of `new`, the caller keeps these bytes valid until the copy has
        // finished.
        unsafe { std::slice::from_raw_parts(self.address as *const u8, len) }
    }

    /// Returns the bytes to copy to. By the contract of `new`, only the copy uses them.
    pub(crate) fn bytes_mut(&mut self, len: usize) -> &mut [u8] {
        if len == 0 {
            return &mut [];
        }
        // SAFETY: by the contract of `new`, the caller keeps these bytes valid until the copy has
        // finished.
        unsafe { std::slice::from_raw_parts_mut(self.address as *mut u8, len) }
    }
}

/// Returns the 32-bit words that contain memory which the program registers.
///
/// By the contract of the API, they stay valid until the program unregisters them, and the program
/// accesses them like other memory that it shares with a device.
pub(crate) fn program_words(pointer: Out<'_, c_void>, bytes: usize) -> &'static [AtomicU32] {
    let start = pointer.address() & !3;
    let words = (pointer.address() + bytes).div_ceil(4) - start / 4;
    // SAFETY: the program registers this memory, so its pages are valid. An aligned word does not
    // cross a page, so the words at both ends are valid as well.
    unsafe { std::slice::from_raw_parts(start as *const AtomicU32, words) }
}

/// A function of the caller with its argument, to be called on a thread of the driver.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Callback {
    function: unsafe extern "C" fn(*mut c_void),
    argument: usize,
}

impl PartialEq for Callback {
    fn eq(&self, other: &Self) -> bool {
        std::ptr::fn_addr_eq(self.function, other.function) && self.argument == other.argument
    }
}

impl Callback {
    /// Returns the callback that a caller passed, or an error for NULL.
    pub(crate) fn new(function: CUhostFn, argument: Out<'_, c_void>) -> Result<Self> {
        match function {
            Some(function) => Ok(Self {
                function,
                argument: argument.address(),
            }),
            None => refuse(CUresult::INVALID_VALUE, "the host function is NULL"),
        }
    }

    /// Returns the callback of a host node.
    pub(crate) fn of_node(params: &CUDA_HOST_NODE_PARAMS_v1) -> Result<Self> {
        Self::new(params.r#fn, Out::inner(params.userData))
    }

    /// Returns the callback as a structure for the program.
    pub(crate) fn shown(self) -> CUDA_HOST_NODE_PARAMS_v1 {
        CUDA_HOST_NODE_PARAMS_v1 {
            r#fn: Some(self.function),
            userData: self.argument as *mut c_void,
        }
    }

    /// Calls the function. By passing it to the API, the caller has promised that this is sound on
    /// another thread.
    pub(crate) fn call(self) {
        IN_HOST_FUNCTION.set(true);
        // SAFETY: the caller passed this function and argument for a call on a thread of the
        // driver.
        unsafe { (self.function)(self.argument as *mut c_void) }
        IN_HOST_FUNCTION.set(false);
    }
}

/// A function of the caller that a stream calls.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StreamCallback {
    function: unsafe extern "C" fn(CUstream, CUresult, *mut c_void),
    stream: CUstream,
    argument: usize,
}

impl StreamCallback {
    /// Returns the callback that a caller passed, or an error for NULL.
    pub(crate) fn new(
        function: CUstreamCallback,
        stream: CUstream,
        argument: Out<'_, c_void>,
    ) -> Result<Self> {
        match function {
            Some(function) => Ok(Self {
                function,
                stream,
                argument: argument.address(),
            }),
            None => refuse(CUresult::INVALID_VALUE, "the callback is NULL"),
        }
    }

    /// Calls the function. By passing it to the API, the caller has promised that this is sound on
    /// another thread.
    pub(crate) fn call(self, status: CUresult) {
        IN_HOST_FUNCTION.set(true);
        // SAFETY: the caller passed this function and argument for a call on a thread of the
        // driver.
        unsafe { (self.function)(self.stream, status, self.argument as *mut c_void) }
        IN_HOST_FUNCTION.set(false);
    }
}

/// A function of the caller that receives each log entry.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LogCallback {
    function: unsafe extern "C" fn(*mut c_void, CUlogLevel, *mut c_char, usize),
    argument: usize,
}

impl LogCallback {
    /// Returns the callback that a caller passed, or an error for NULL.
    pub(crate) fn new(function: CUlogsCallback, argument: Out<'_, c_void>) -> Result<Self> {
        match function {
            Some(function) => Ok(Self {
                function,
                argument: argument.address(),
            }),
            None => refuse(CUresult::INVALID_VALUE, "the callback is NULL"),
        }
    }

    /// Calls the function with a copy of an entry.
    pub(crate) fn call(self, text: &str) {
        let mut copy: Vec<u8> = text.bytes().filter(|byte| *byte != 0).chain([0]).collect();
        let length = copy.len() - 1;
        // SAFETY: the caller passed this function for such calls. The text ends with NUL and
        // outlives the call.
        unsafe {
            (self.function)(
                self.argument as *mut c_void,
                CUlogLevel::ERROR,
                copy.as_mut_ptr().cast(),
                length,
            )
        }
    }
}

/// A function of the caller that returns the dynamic shared memory for a block size.
#[derive(Clone, Copy)]
pub(crate) struct SharedOfBlock(unsafe extern "C" fn(c_int) -> usize);

impl CArgument for CUoccupancyB2DSize {
    type Inside = Option<SharedOfBlock>;

    unsafe fn convert(self) -> Self::Inside {
        self.map(SharedOfBlock)
    }
}

impl SharedOfBlock {
    /// Returns the bytes for a block with this many threads.
    pub(crate) fn of(self, threads: u32) -> usize {
        // SAFETY: the caller passed this function, which takes one integer.
        unsafe { (self.0)(threads as c_int) }
    }
}

thread_local! {
    static IN_HOST_FUNCTION: Cell<bool> = const { Cell::new(false) };
}

/// Returns true if this thread runs a host function of the program.
pub(crate) fn in_host_function() -> bool {
    IN_HOST_FUNCTION.get()
}
