//! JIT options of a load: the log buffers.

use std::ffi::c_void;

use warpwright_driver_sys::*;

use crate::error::{Result, refuse};
use crate::ffi::pointer::{Out, as_text};

/// A log buffer of a load, and the option slot that receives the size of the text.
#[derive(Default)]
struct LogBuffer {
    buffer: usize,
    capacity: usize,
    size: Option<usize>,
}

/// The buffers for the info log and the error log.
#[derive(Default)]
pub(crate) struct JitLogs {
    info: LogBuffer,
    error: LogBuffer,
}

impl JitLogs {
    /// Writes the outcome of compiling to the buffers.
    pub(crate) fn write<T>(&self, info: &str, outcome: &Result<T>, values: Out<'_, *mut c_void>) {
        let error = outcome.as_ref().err().map_or("", |error| &error.text);
        self.info
            .write(if outcome.is_ok() { info } else { "" }, values);
        self.error.write(error, values);
    }
}

impl LogBuffer {
    /// Writes the text, and stores the number of bytes in the slot of the size option, as the
    /// driver does.
    fn write(&self, text: &str, values: Out<'_, *mut c_void>) {
        let written = as_text(self.buffer).set_text(text, self.capacity);
        if let Some(slot) = self.size {
            values.set_at(slot, written as *mut c_void);
        }
    }
}

/// Finds the log buffers among the options. All other options are accepted and have no effect.
pub(crate) fn logs_of(
    count: usize,
    options: Out<'_, CUjit_option>,
    values: Out<'_, *mut c_void>,
) -> Result<JitLogs> {
    let mut logs = JitLogs::default();
    let slots = options.slice(count)?.iter().zip(values.slice(count)?);
    for (slot, (&option, &value)) in slots.enumerate() {
        match option {
            CUjit_option::INFO_LOG_BUFFER => logs.info.buffer = value as usize,
            CUjit_option::ERROR_LOG_BUFFER => logs.error.buffer = value as usize,
            // The size is an unsigned int in a pointer-sized slot, so the upper half is undefined.
            CUjit_option::INFO_LOG_BUFFER_SIZE_BYTES => {
                (logs.info.capacity, logs.info.size) = (value as usize as u32 as usize, Some(slot));
            }
            CUjit_option::ERROR_LOG_BUFFER_SIZE_BYTES => {
                (logs.error.capacity, logs.error.size) =
                    (value as usize as u32 as usize, Some(slot));
            }
            CUjit_option(0..=40) => {}
            CUjit_option(other) => {
                return refuse(
                    CUresult::INVALID_VALUE,
                    format!("JIT option {other} is unknown"),
                );
            }
        }
    }

    Ok(logs)
}
