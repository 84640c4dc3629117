//! Functions of the driver other than streams, buffers and graphs.
//!
//! Each test runs on the emulator. If the emulator lacks a function, the test expects the error
//! that names the reason.

mod cache;
mod ipc;
mod library;
mod mapping;
mod maps;
mod occupancy;
mod parameters;

use std::sync::MutexGuard;

use warpwright_driver::prelude::*;

use crate::emulator::alone;

/// The context of the emulator's device, for one test at a time: a wait of one test for all streams
/// would be an order for another's.
struct Alone {
    context: Context,
    _turn: MutexGuard<'static, ()>,
}

impl std::ops::Deref for Alone {
    type Target = Context;

    fn deref(&self) -> &Context {
        &self.context
    }
}

fn context() -> Alone {
    let _turn = alone();
    let context = Context::new(
        &Driver::from_library(warpwright_cuda_emu::library())
            .unwrap()
            .device(0)
            .unwrap(),
    )
    .unwrap();
    Alone { context, _turn }
}

fn text<T>(result: Result<T, Error>) -> String {
    result.err().expect("refused").to_string()
}

/// A kernel that sets one word, and one that declares shared memory.
const PTX: &str = "
.version 7.0
.target sm_70
.address_size 64
.visible .entry set(.param .u64 to, .param .u32 value)
{
    .reg .b64 %a;
    .reg .b32 %v;
    ld.param.u64 %a, [to];
    ld.param.u32 %v, [value];
    st.global.u32 [%a], %v;
    ret;
}
.visible .entry sharing()
{
    .shared .align 4 .b8 room[16384];
    ret;
}
";

/// The kernel that sets the first word of a buffer.
fn set(module: &Module) -> Function {
    let params = [
        Parameter::buffer::<u32>("to", Access::Write),
        Parameter::value::<u32>("value"),
    ];
    // SAFETY: the kernel writes the first word of `to`, and no more.
    unsafe { module.function("set", &params) }.unwrap()
}

/// Sets the first word of a view.
fn launch(stream: &Stream, set: &Function, to: &View<u32>, value: u32) -> Result<(), Error> {
    let config = LaunchConfig::line(1, 1);
    stream.run(&Launch::new(set, config, vec![to.into(), HostArg::scalar(value)])?.into())
}
