//! Memory and functions of the caller that work uses after the call that named them has returned.

use std::cell::Cell;
use std::ffi::{c_char, c_int, c_void};
use std::sync::atomic::AtomicU32;

use warpwright_driver_sys::*;

use crate::error::{Result, refuse};
use crate::ffi::pointer::{CArgument, Out};

/// Memory of the caller that a copy reads or writes, perhaps after the call that named it has returned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct HostSpan {
    address: usize,
}

impl HostSpan {
    /// The memory at an address that a caller passed.
    ///
    /// By the contract of the API the caller keeps it valid until the copy has finished.
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

    /// The bytes to copy from.
    pub(crate) fn bytes(&self, len: usize) -> &[u8] {
        if len == 0 {
            return &[];
        }
        // SAFETY: the contract of `new`.
        unsafe { std::slice::from_raw_parts(self.address as *const u8, len) }
    }

    /// The bytes to copy to. Only the copy uses them, by the contract of `new`.
    pub(crate) fn bytes_mut(&mut self, len: usize) -> &mut [u8] {
        if len == 0 {
            return &mut [];
        }
        // SAFETY: the contract of `new`.
        unsafe { std::slice::from_raw_parts_mut(self.address as *mut u8, len) }
    }
}

/// The words that hold memory which the program registers. They stay valid until it unregisters them, by the contract
/// of the API, and what it writes there it writes as any other memory that a device shares.
pub(crate) fn program_words(pointer: Out<'_, c_void>, bytes: usize) -> &'static [AtomicU32] {
    let start = pointer.address() & !3;
    let words = (pointer.address() + bytes).div_ceil(4) - start / 4;
    // SAFETY: the program registers this memory, so it is valid, and a word does not cross a page.
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
    /// A callback that a caller passed; NULL is refused.
    pub(crate) fn new(function: CUhostFn, argument: Out<'_, c_void>) -> Result<Self> {
        match function {
            Some(function) => Ok(Self {
                function,
                argument: argument.address(),
            }),
            None => refuse(CUresult::INVALID_VALUE, "the host function is NULL"),
        }
    }

    /// The callback of a host node.
    pub(crate) fn of_node(params: &CUDA_HOST_NODE_PARAMS_v1) -> Result<Self> {
        Self::new(params.r#fn, Out::inner(params.userData))
    }

    /// What a program that asks is shown.
    pub(crate) fn shown(self) -> CUDA_HOST_NODE_PARAMS_v1 {
        CUDA_HOST_NODE_PARAMS_v1 {
            r#fn: Some(self.function),
            userData: self.argument as *mut c_void,
        }
    }

    /// Calls it. The caller promised, by passing it to the API, that this is sound on another thread.
    pub(crate) fn call(self) {
        IN_HOST_FUNCTION.set(true);
        // SAFETY: the contract of the API for host functions.
        unsafe { (self.function)(self.argument as *mut c_void) }
        IN_HOST_FUNCTION.set(false);
    }
}

/// A function of the caller that is called when a stream comes to it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StreamCallback {
    function: unsafe extern "C" fn(CUstream, CUresult, *mut c_void),
    stream: CUstream,
    argument: usize,
}

impl StreamCallback {
    /// A callback that a caller passed; NULL is refused.
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

    /// Calls it. The caller promised, by passing it to the API, that this is sound on another thread.
    pub(crate) fn call(self, status: CUresult) {
        IN_HOST_FUNCTION.set(true);
        // SAFETY: the contract of the API for callbacks of streams.
        unsafe { (self.function)(self.stream, status, self.argument as *mut c_void) }
        IN_HOST_FUNCTION.set(false);
    }
}

/// A function of the caller that is told what is added to the log.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LogCallback {
    function: unsafe extern "C" fn(*mut c_void, CUlogLevel, *mut c_char, usize),
    argument: usize,
}

impl LogCallback {
    /// A callback that a caller passed; NULL is refused.
    pub(crate) fn new(function: CUlogsCallback, argument: Out<'_, c_void>) -> Result<Self> {
        match function {
            Some(function) => Ok(Self {
                function,
                argument: argument.address(),
            }),
            None => refuse(CUresult::INVALID_VALUE, "the callback is NULL"),
        }
    }

    /// Calls it with an entry, of which it gets a copy.
    pub(crate) fn call(self, text: &str) {
        let mut copy: Vec<u8> = text.bytes().filter(|byte| *byte != 0).chain([0]).collect();
        let length = copy.len() - 1;
        // SAFETY: the contract of the API for this function; the text ends with NUL and outlives the call.
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

/// A function of the caller that gives the dynamic shared memory of a block.
#[derive(Clone, Copy)]
pub(crate) struct SharedOfBlock(unsafe extern "C" fn(c_int) -> usize);

impl CArgument for CUoccupancyB2DSize {
    type Inside = Option<SharedOfBlock>;

    unsafe fn convert(self) -> Self::Inside {
        self.map(SharedOfBlock)
    }
}

impl SharedOfBlock {
    /// The bytes for a block of this size.
    pub(crate) fn of(self, threads: u32) -> usize {
        // SAFETY: the contract of the API for this function, which takes one number.
        unsafe { (self.0)(threads as c_int) }
    }
}

thread_local! {
    static IN_HOST_FUNCTION: Cell<bool> = const { Cell::new(false) };
}

/// Whether this thread runs a host function of the program.
pub(crate) fn in_host_function() -> bool {
    IN_HOST_FUNCTION.get()
}
