//! The end of the process: reports the objects that the program did not release.

#![allow(unsafe_code)]

use std::sync::Arc;

use ptx_emu::Kernel;

use crate::handle::{HandleKind, Id};
use crate::machine;
use crate::report::JsonObject;
use crate::state::DriverState;
use crate::state::images::ImageObject;
use crate::state::objects::{AllocationKind, StreamKind};

/// Called when the process ends in order, after what the program itself does then.
#[cfg(target_os = "linux")]
#[used]
// SAFETY: the loader calls the functions of this section once, without arguments, when it unloads
// the library.
/// The function that the loader calls when the process ends, after the program's own exit
/// functions.
#[unsafe(link_section = ".fini_array")]
static AT_EXIT: extern "C" fn() = finish;

/// Finishes the report. A panic must not unwind into the loader.
extern "C" fn finish() {
    let _ = std::panic::catch_unwind(finish_report);
}

fn finish_report() {
    let Some(machine) = machine::started() else {
        return;
    };
    let Some(report) = machine.device.report.get() else {
        return;
    };

    // A thread that was terminated inside a call may hold the lock forever, so do not wait for it.
    if let Some(state) = machine.state_at_exit() {
        for leak in left(&state) {
            report.leak(leak);
        }
    }

    report.end(machine.device.order.forgot());
}

/// Registers `finish` to be called at the end of the process, because the loader does not call it
/// here.
#[cfg(not(target_os = "linux"))]
pub(crate) fn at_exit() {
    unsafe extern "C" {
        fn atexit(function: extern "C" fn()) -> std::ffi::c_int;
    }
    static ONCE: std::sync::Once = std::sync::Once::new();
    ONCE.call_once(|| {
        // SAFETY: the C library calls the function once, without arguments.
        let _ = unsafe { atexit(finish) };
    });
}

/// Does nothing, because the loader calls `finish`.
#[cfg(target_os = "linux")]
pub(crate) fn at_exit() {}

/// Returns the objects that the program created and did not release.
fn left(s: &DriverState) -> Vec<JsonObject> {
    let mut left = memory(s);

    // Objects that belong to another object are released with it and are not leaks of their own:
    // modules of libraries, per-thread streams, graphs inside graphs, and default pools.
    let libraries = s
        .libraries
        .iter()
        .flat_map(|(_, library)| library.modules.values());
    let of_library: Vec<_> = libraries.copied().collect();
    let modules = s.modules.iter().filter(|(id, _)| !of_library.contains(id));
    left.extend(modules.map(|(id, module)| named("module", id, module.parsed.kernels().next())));
    left.extend(
        s.libraries
            .iter()
            .map(|(id, library)| named("library", id, library.parsed.kernels().next())),
    );
    let streams = s.streams.iter().filter(|(id, stream)| {
        let context = s.contexts.get(stream.context);
        let own =
            context.is_some_and(|context| context.per_thread.values().any(|other| other == id));
        stream.kind != StreamKind::Legacy && !own
    });
    left.extend(streams.map(|(id, stream)| object("stream", id).text("name", stream.queue.name())));
    left.extend(s.events.iter().map(|(id, _)| object("event", id)));
    left.extend(
        s.graphs
            .iter()
            .filter(|(_, graph)| graph.owner.is_none())
            .map(|(id, _)| object("graph", id)),
    );
    left.extend(s.execs.iter().map(|(id, _)| object("executable graph", id)));
    left.extend(s.links.iter().map(|(id, _)| object("link", id)));
    let image = |(handle, object): (&u64, &ImageObject)| {
        let what = if object.how.is_some() {
            "texture"
        } else {
            "surface"
        };
        JsonObject::new().text("what", what).hex("handle", *handle)
    };
    left.extend(s.images.iter().map(image));
    let own = |id| s.place_pools.iter().any(|place| place.default == id);
    left.extend(
        s.pools
            .iter()
            .filter(|(id, _)| !own(*id))
            .map(|(id, _)| object("memory pool", id)),
    );
    left.extend(s.contexts.iter().map(|(id, _)| {
        let primary = s.primary.iter().find(|primary| primary.id == Some(id));
        object(
            if primary.is_some() {
                "primary context"
            } else {
                "context"
            },
            id,
        )
    }));
    left
}

fn memory(s: &DriverState) -> Vec<JsonObject> {
    let range = |what: &str, address: u64, bytes: u64| {
        JsonObject::new()
            .text("what", what)
            .hex("address", address)
            .number("bytes", bytes)
    };
    let kind = |kind| match kind {
        AllocationKind::Device => "device memory",
        AllocationKind::Host(_) => "pinned memory",
        AllocationKind::Managed => "managed memory",
        AllocationKind::Pool(_) => "memory of a pool",
        AllocationKind::Graph => "memory of a graph",
        AllocationKind::Array => "array",
    };
    let allocated = s
        .allocations
        .iter()
        .map(|(&at, made)| range(kind(made.kind), at, made.bytes));
    let registered = s
        .registered
        .iter()
        .map(|(&at, &(bytes, _))| range("registered memory", at, bytes));
    allocated.chain(registered).collect()
}

fn object<K: HandleKind>(what: &str, id: Id<K>) -> JsonObject {
    JsonObject::new()
        .text("what", what)
        .hex("handle", id.number())
}

/// Describes a module or a library by its first kernel.
fn named<K: HandleKind>(what: &str, id: Id<K>, first: Option<&Arc<Kernel>>) -> JsonObject {
    let object = object(what, id);
    first.map_or(object.clone(), |kernel| object.text("name", &kernel.name))
}
