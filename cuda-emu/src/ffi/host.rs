//! Memory and functions of the caller that work uses after the call that named them has returned.

use std::cell::Cell;
use std::ffi::c_void;

use warpwright_driver_sys::*;

use crate::error::{Result, refuse};
use crate::ffi::pointer::Out;

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
        Self { address: self.address + offset }
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
            Some(function) => Ok(Self { function, argument: argument.address() }),
            None => refuse(CUresult::INVALID_VALUE, "the host function is NULL"),
        }
    }

    /// The callback of a host node.
    pub(crate) fn of_node(params: &CUDA_HOST_NODE_PARAMS_v1) -> Result<Self> {
        Self::new(params.r#fn, Out::inner(params.userData))
    }

    /// Calls it. The caller promised, by passing it to the API, that this is sound on another thread.
    pub(crate) fn call(self) {
        IN_HOST_FUNCTION.set(true);
        // SAFETY: the contract of the API for host functions.
        unsafe { (self.function)(self.argument as *mut c_void) }
        IN_HOST_FUNCTION.set(false);
    }
}

thread_local! {
    static IN_HOST_FUNCTION: Cell<bool> = const { Cell::new(false) };
}

/// Whether this thread runs a host function of the program.
pub(crate) fn in_host_function() -> bool {
    IN_HOST_FUNCTION.get()
}
