//! The sentences of the errors, as tables with one row per variant.

use std::error::Error as StdError;
use std::fmt;

use crate::error::{
    DriverError, Error, LaunchProblem, LoadError, ModuleError, ModuleReason, Races, Stale,
};

/// Implements `Display` for an error from its rows of pattern, format string and values.
macro_rules! sentences {
    ($error:ty: $($variant:pat => $sentence:literal $(, $value:expr)*;)*) => {
        impl fmt::Display for $error {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                match self {
                    $($variant => write!(f, $sentence $(, $value)*),)*
                }
            }
        }
    };
}

sentences! { LoadError:
    Self::Library(error) => "{error}";
    Self::NoDevice { origin } => "{origin}: the driver found no CUDA device; CUDA_VISIBLE_DEVICES may hide it";
    Self::DriverMismatch { origin } =>
        "{origin}: the kernel driver and this library are of different versions; restart the machine after an update";
    Self::CompatNotSupported { origin } =>
        "{origin}: this forward-compatibility library does not support the device; remove it from the loader's path";
    Self::Start { origin, source } => "{origin}: {source}";
}

sentences! { Error:
    Self::Load(error) => "{error}";
    Self::Driver(error) => "{error}";
    Self::NoDevice { ordinal, count } => "no device {ordinal}: the driver has {count}";
    Self::OutOfMemory { bytes, free, total } => "out of memory: {bytes} bytes requested, {free} of {total} free";
    Self::Module(error) => "{error}";
    Self::Build { kernel, text } => "kernel {kernel}: {text}";
    Self::Signature { kernel, index, name, declared, loaded } =>
        "kernel {kernel}: parameter {index} ({name}) is {declared} in the declaration and {loaded} in the module";
    Self::Launch { kernel, problem } => "kernel {kernel}: {problem}";
    Self::Transfer { what, problem } => "{what}: {problem}";
    Self::WrongContext { what, theirs, user, ours } => "{what} belongs to {theirs}, but {user} belongs to {ours}";
    Self::Cast { what, bytes, address, to } =>
        "{what} of {bytes} bytes at address {address:#x} is not a whole number of aligned {to}";
    Self::ForeignNode { node } => "node {node} is not a node of this graph";
    Self::RemovedNode { node } => "node {node} was removed from its graph";
    Self::Graph { what, problem } => "{what}: {problem}";
    Self::GraphMemory { buffer, user, problem } => "{user}: memory {buffer} does not exist: {problem}";
    Self::Forbidden { what, why } =>
        "{what}: this thread captures, and {why}; do it before the capture, or capture in the relaxed mode";
    Self::NodeKind { node, name, is, wanted } => "node {node} ({name}) is {is}; {wanted}";
    Self::Edge { from, to, problem } => "edge from node {from} to node {to}: {problem}";
    Self::Overlap { from, from_name, to, to_name, problem } =>
        "programmatic edge from node {from} ({from_name}) to node {to} ({to_name}): {problem}";
    Self::Stale(error) => "{error}";
    Self::EdgeKind { from, to, wanted } =>
        "edge from node {from} to node {to}: a {wanted} edge was added, but the driver reports none of that kind";
    Self::Unordered { node, name, other, other_name, buffer } =>
        "nodes {node} ({name}) and {other} ({other_name}) would both touch {buffer} and no edge orders them; \
        add the edge, or record the graph again";
    Self::Races(error) => "{error}";
    Self::Instantiate { source, result, node } =>
        "instantiating the graph: {source}{}", and(node, |n| format!("; {result:?} at node {n}"));
    Self::Update { source, result, node, from, changed } =>
        "updating the graph: {source}; {result:?}, node {}, dependency on {}{}",
        node.as_deref().unwrap_or("not named"),
        from.as_deref().unwrap_or("no node named"),
        and(changed, |c| format!("; {c}"));
    Self::Capturing { work } => "{work}: the stream captures; push work into the queue of the capture, or fork it";
    Self::CapturedEvent { what } =>
        "{what}: a capture recorded the event, so that it marks a point in a graph; record it in a stream first";
    Self::UnorderedStreams { buffer, stream, other } =>
        "{buffer}: work of {other} on it is not ordered before the work queued in {stream}; let {stream} wait for an \
        event that {other} records after its work, or synchronize {other} first";
    Self::HostCopy { buffer, stream } =>
        "{buffer}: another thread copies it to or from the host while work on it is queued in {stream}; let one of \
        the threads wait for the other, or copy in the order of a stream";
    Self::Capture { first, end } =>
        "capture: {first}{}", and(end, |e| format!("\n  and the capture ended with {e}"));
}

sentences! { LaunchProblem:
    Self::Grid { axis, got, limit } => "grid.{axis} is {got}; the device allows 1 to {limit}";
    Self::BlockAxis { axis, got, limit } => "block.{axis} is {got}; the device allows 1 to {limit}";
    Self::Block { got, limit } => "a block of {got} threads; the device allows 1 to {limit}";
    Self::Threads { got, limit, registers } =>
        "a block of {got} threads; the kernel allows {limit} with {registers} registers a thread";
    Self::Shared { dynamic, fixed, limit } =>
        "{dynamic} bytes of dynamic and {fixed} bytes of static shared memory; the device allows {limit} in all";
    Self::Count { got, wanted } => "{got} arguments; it takes {wanted}";
    Self::Argument { index, name, got, wanted } => "argument {index} ({name}) is {got}; it takes {wanted}";
    Self::Overlap { first, second, buffer, writer } =>
        "arguments {first} and {second} overlap in {buffer}, and {writer} is written";
    Self::Attribute(problem) => "{problem}";
    Self::Shape(problem) => "{problem}";
}

sentences! { ModuleReason:
    Self::Driver(error) => "{error}";
    Self::Nul(place) => "the PTX has a NUL at byte {place}";
    Self::Version { ptx, needed, driver } =>
        "the PTX has version {ptx}, which needs a driver for CUDA {needed}; this driver supports CUDA {driver}. \
        Use a newer driver or a lower .version";
    Self::Target { target, device } =>
        "the PTX is for {target}, which does not run on compute capability {device}";
    Self::NoGlobal { name } => "no global variable {name}";
    Self::NoFunction { name, entries } => "no kernel {name}; the PTX defines {entries}";
}

sentences! { Races:
    Self { what, first, second, within, buffer, bytes, others } =>
        "{what}: node {first} and node {second}{} touch bytes {} to {} of {buffer}, one of them writing, and no edge \
        orders them{}; add the edge, or use Graph::instantiate_with_races if something else orders them",
        within.iter().rev().map(|node| format!(" within node {node}")).collect::<String>(), bytes.start, bytes.end,
        if *others == 0 { String::new() } else { format!(" ({others} more such pairs: see Graph::races)") };
}

sentences! { Stale:
    Self { from, from_name, written, to, to_name, read, buffer, bytes } =>
        "node {to} ({to_name}) reads bytes {} to {} of {buffer} with ld.global.nc as {read}, but node {from} \
        ({from_name}), which writes them as {written}, may still be running, so the values may be stale; \
        read them with `fresh()`, or add a full edge between the two nodes",
        bytes.start, bytes.end;
}

/// Returns the text of an optional part of a sentence.
fn and<T>(known: &Option<T>, said: impl FnOnce(&T) -> String) -> String {
    known.as_ref().map(said).unwrap_or_default()
}

impl StdError for LoadError {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        match self {
            Self::Library(error) => error.source(),
            Self::Start { source, .. } => Some(source),
            _ => None,
        }
    }
}

/// An error that only wraps another error prints that error, so its source is the source of the
/// other.
impl StdError for Error {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        match self {
            Self::Load(error) => error.source(),
            Self::Module(error) => error.source(),
            Self::Instantiate { source, .. } => Some(source),
            Self::Update { source, .. } => Some(source),
            _ => None,
        }
    }
}

impl StdError for LaunchProblem {}

impl StdError for ModuleReason {}

impl StdError for Races {}

impl StdError for Stale {}

/// Implements `From` for errors that wrap another error, so that `?` converts them.
macro_rules! carries {
    ($($error:ident::$variant:ident($carried:ty),)*) => {$(
        impl From<$carried> for $error {
            fn from(error: $carried) -> Self {
                Self::$variant(error)
            }
        }
    )*};
}

carries! {
    LoadError::Library(driver_sys::LoadError),
    Error::Load(LoadError),
    Error::Driver(DriverError),
    Error::Module(Box<ModuleError>),
    Error::Stale(Box<Stale>),
    ModuleReason::Driver(DriverError),
}

/// Implements `Debug` through `Display`, so that `fn main() -> Result<(), E>` and `unwrap` print
/// the sentence.
macro_rules! debug_is_display {
    ($($error:ty),* $(,)?) => {$(
        impl fmt::Debug for $error {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(self, f)
            }
        }
    )*};
}

debug_is_display!(
    DriverError,
    Error,
    LaunchProblem,
    LoadError,
    ModuleError,
    ModuleReason,
    Races,
    Stale
);
