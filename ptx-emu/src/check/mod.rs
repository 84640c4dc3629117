//! Unit tests for kernels: buffers, arguments, several schedules, and a report.
//!
//! A [`Check`] launches one kernel once under each schedule. Every launch has its own memory with
//! fresh contents. Schedules run in parallel on one thread each, so a seed always has the same
//! findings every time.
//!
//! # Example
//! ```
//! use ptx_emu::check::Check;
//! use ptx_emu::{Module, Trace};
//!
//! let module = Module::parse("
//!     .version 7.0
//!     .target sm_75
//!     .address_size 64
//!     .visible .entry twice(.param .u64 x, .param .u64 y, .param .f32 a)
//!     {
//!         .reg .b32 %t; .reg .f32 %v, %a; .reg .b64 %x, %y;
//!         ld.param.u64 %x, [x]; ld.param.u64 %y, [y]; ld.param.f32 %a, [a];
//!         mov.u32 %t, %tid.x;
//!         mad.wide.u32 %x, %t, 4, %x;
//!         mad.wide.u32 %y, %t, 4, %y;
//!         ld.global.f32 %v, [%x];
//!         mul.f32 %v, %v, %a;
//!         st.global.f32 [%y], %v;
//!         ret;
//!     }
//! ")?;
//! let mut check = Check::new(&module, "twice")?;
//! let x = check.input("x", &[3f32; 64]);
//! let y = check.output::<f32>("y", 64);
//! check.args = vec![x, y, 2f32.into()];
//! check.block = [64, 1, 1];
//! check.trace = Trace::On;
//! let report = check.run()?;
//! assert!(report.findings.is_empty(), "{report}");
//! assert_eq!(report.output::<f32>("y"), [6.0; 64]);
//!
//! check.block = [65, 1, 1];
//! assert!(check.run()?.to_string().contains("just past the end of `x`"));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod argument;
mod description;
pub(crate) mod element;
mod finding;
mod report;

use std::collections::HashMap;
use std::ops::Range;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use rayon::prelude::*;

use crate::Class;
use crate::check::description::ScheduleRun;
use crate::launch::{Launch, LaunchSite, Order, Schedule, Trace};
use crate::machine::device::device_memory::Memory;
use crate::machine::device::images::descriptor::{Image, Sampler};
use crate::machine::device::memory_error::MemoryError;
use crate::module::Module;
pub use crate::module::analysis::element_type::ElementType;
use crate::run::run_watched;
use crate::syntax::parse_error::KernelError;
use crate::watch::{Faults, Watch};
pub use argument::{Argument, Buffer, Expected, Field, Role, View};
pub use description::Check;
pub use element::Element;
pub use finding::{ElementMismatch, Finding, Problem};
pub use report::{CheckReport, Note};

/// Returns the schedule of a seed.
///
/// Seed 0 runs blocks and warps in ascending order, seed 1 in descending order, and all others in a
/// shuffled order. The seed also selects how late asynchronous copies complete.
pub fn schedule(seed: u64) -> Schedule {
    let order = match seed {
        0 => Order::InOrder,
        1 => Order::Reversed,
        _ => Order::Shuffled,
    };
    Schedule {
        seed,
        order,
        threads: 1,
        ..Schedule::default()
    }
}

/// Checks the sizes and the tolerance of a buffer. A shorter expectation, or a tolerance that is
/// infinite or NaN, would compare nothing.
fn check_buffer(buffer: &Buffer) -> Result<(), CheckError> {
    let wrong = |what: String| {
        Err(CheckError::Buffer {
            name: buffer.name.clone(),
            what,
        })
    };
    let wanted = buffer.bytes();
    let expected = buffer.expected.as_ref();
    let contents = buffer
        .contents
        .as_ref()
        .filter(|contents| contents.len() != wanted);
    if let Some(contents) = contents {
        return wrong(format!(
            "its contents have {} bytes, but the buffer has {wanted}",
            contents.len()
        ));
    }

    if let Some(expected) = expected.filter(|expected| expected.bytes.len() != wanted) {
        return wrong(format!(
            "its expected contents have {} bytes, but the buffer has {wanted}",
            expected.bytes.len()
        ));
    }

    // `is_finite` also excludes NaN. No difference exceeds NaN, so such a tolerance would accept
    // everything.
    match expected
        .map(|expected| expected.tolerance)
        .filter(|t| !(t.is_finite() && *t >= 0.0))
    {
        Some(tolerance) => wrong(format!(
            "invalid tolerance {tolerance}: it must be finite and at least 0"
        )),
        None => Ok(()),
    }
}

/// The reason why a check cannot run.
///
/// It is a mistake in the description of the check. Problems of the kernel are findings instead.
#[derive(Clone, PartialEq, Eq)]
pub enum CheckError {
    /// The module has no kernel with this name, or the kernel cannot run.
    Kernel(KernelError),
    /// The number of arguments differs from the number of parameters.
    Count {
        /// The number of arguments.
        given: usize,
        /// The number of parameters.
        wanted: usize,
    },
    /// The size of an argument differs from the size of its parameter.
    Size {
        /// The number and the name of the parameter.
        parameter: (usize, String),
        /// The size of the argument in bytes.
        given: usize,
        /// The size of the parameter in bytes.
        wanted: u32,
    },
    /// The module has no such variable, or the variable is smaller than its new value.
    Variable {
        /// The name.
        name: String,
        /// The description of the error.
        what: String,
    },
    /// The contents or the expectation of a buffer do not have the size of the buffer, or an
    /// argument points to a buffer that does not exist.
    Buffer {
        /// The name, or the number if the buffer does not exist.
        name: String,
        /// The description of the error.
        what: String,
    },
    /// A texture or surface cannot be created.
    View {
        /// The name of its buffer.
        name: String,
        /// The description of the error.
        what: String,
    },
    /// There is too little memory for the buffers.
    Memory(MemoryError),
    /// The launch itself is impossible.
    Launch(String),
}

impl std::fmt::Display for CheckError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Kernel(error) => error.fmt(f),
            Self::Count { given, wanted } => {
                write!(f, "{given} arguments for a kernel with {wanted} parameters")
            }
            Self::Size {
                parameter: (number, name),
                given,
                wanted,
            } => {
                write!(
                    f,
                    "parameter {number} `{name}` has {wanted} bytes, and the argument has {given} (a pointer has 8)"
                )
            }
            Self::Variable { name, what } => write!(f, "variable `{name}`: {what}"),
            Self::Buffer { name, what } => write!(f, "buffer `{name}`: {what}"),
            Self::View { name, what } => write!(f, "the texture or surface `{name}`: {what}"),
            Self::Memory(error) => error.fmt(f),
            Self::Launch(what) => write!(f, "the launch is impossible: {what}"),
        }
    }
}

impl std::error::Error for CheckError {}

impl From<MemoryError> for CheckError {
    fn from(error: MemoryError) -> Self {
        Self::Memory(error)
    }
}

/// The contents of each buffer after the first run. Runs that leave the same bytes share them, so
/// that many schedules need the memory of one.
#[derive(Default)]
struct KeptContents(Mutex<HashMap<usize, Arc<Vec<u8>>>>);

impl KeptContents {
    fn share(&self, buffer: usize, bytes: Vec<u8>) -> Arc<Vec<u8>> {
        let known = self
            .0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .get(&buffer)
            .cloned();
        if let Some(known) = known.as_ref().filter(|known| ***known == bytes) {
            return known.clone();
        }

        let bytes = Arc::new(bytes);
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .entry(buffer)
            .or_insert_with(|| bytes.clone());
        bytes
    }
}

impl<'a> Check<'a> {
    /// Creates a check of a kernel with one thread, no arguments, the first four schedules, and a
    /// limit of one minute per launch.
    ///
    /// # Errors
    /// Returns [`CheckError::Kernel`] if the module has no such kernel or the kernel cannot run.
    pub fn new(module: &'a Module, name: &str) -> Result<Check<'a>, CheckError> {
        let kernel = module.kernel(name).map_err(CheckError::Kernel)?;
        Ok(Check {
            module,
            kernel,
            grid: [1; 3],
            block: [1; 3],
            cluster: None,
            dynamic_shared: 0,
            cooperative: false,
            buffers: Vec::new(),
            args: Vec::new(),
            variables: Vec::new(),
            seeds: 0..4,
            trace: Trace::Off,
            faults: Faults::First,
            strict: false,
            arithmetic: false,
            provenance: false,
            trace_bytes: None,
            limit: Duration::from_secs(60),
            fuel: Schedule::default().fuel,
            threads: 1,
            profile: false,
            followed: None,
        })
    }

    /// Adds a buffer that the kernel reads and must not change. Returns the argument that points to
    /// it.
    pub fn input<T: Element>(&mut self, name: &str, values: &[T]) -> Argument {
        self.buffer(Buffer::filled(name, Role::In, values))
    }

    /// Adds a buffer that the kernel reads and writes. Returns the argument that points to it.
    pub fn inout<T: Element>(&mut self, name: &str, values: &[T]) -> Argument {
        self.buffer(Buffer::filled(name, Role::InOut, values))
    }

    /// Adds a buffer of `count` uninitialized elements and returns the argument that points to it.
    pub fn output<T: Element>(&mut self, name: &str, count: usize) -> Argument {
        self.buffer(Buffer::empty(name, T::TYPE, count))
    }

    /// Adds a read-only texture and returns the argument that is its handle.
    ///
    /// `channels` are the channels of the texels, row by row.
    pub fn texture<T: Element>(
        &mut self,
        name: &str,
        image: Image,
        sampler: Sampler,
        channels: &[T],
    ) -> Argument {
        let view = Some(View {
            image,
            sampler: Some(sampler),
        });
        self.buffer(Buffer {
            view,
            ..Buffer::filled(name, Role::In, channels)
        })
    }

    /// Adds a surface that the kernel reads and writes. Returns the argument that is its handle.
    ///
    /// `channels` are the channels of the texels, row by row.
    pub fn surface<T: Element>(&mut self, name: &str, image: Image, channels: &[T]) -> Argument {
        let view = Some(View {
            image,
            sampler: None,
        });
        self.buffer(Buffer {
            view,
            ..Buffer::filled(name, Role::InOut, channels)
        })
    }

    /// Adds a buffer and returns the argument that points to it.
    pub fn buffer(&mut self, buffer: Buffer) -> Argument {
        self.buffers.push(buffer);
        Argument::pointer(self.buffers.len() - 1, 0)
    }

    /// Runs the kernel under each schedule and returns the findings.
    ///
    /// # Errors
    /// Returns an error if the launch is impossible. Errors of the kernel are findings of the
    /// report.
    pub fn run(&self) -> Result<CheckReport, CheckError> {
        self.check_arguments()?;
        if self.seeds.is_empty() {
            let Range { start, end } = &self.seeds;
            let what = format!(
                "the range of seeds {start}..{end} is empty: 0..4 are the first four schedules"
            );
            return Err(CheckError::Launch(what));
        }

        let lowest = AtomicU64::new(u64::MAX);
        let kept = KeptContents::default();

        // A schedule after one with a finding is skipped. The lowest such seed wins, so that the
        // report does not depend on which schedule finished first.
        let runs = self.seeds.clone().into_par_iter().map(|seed| {
            if lowest.load(Relaxed) < seed {
                Ok(None)
            } else {
                let run = self.run_once(seed, &kept)?;
                if self.ends_after(&run) {
                    lowest.fetch_min(seed, Relaxed);
                }
                Ok(Some(run))
            }
        });
        let runs = runs.collect::<Result<Vec<_>, CheckError>>()?;
        let last = lowest.into_inner();
        let runs: Vec<ScheduleRun> = runs
            .into_iter()
            .flatten()
            .filter(|run| run.seed <= last)
            .collect();
        Ok(report::report(self, &runs))
    }

    /// Returns true if no later schedule has to run.
    ///
    /// One finding is enough with [`Faults::First`]. After a limit was reached, the next schedule
    /// would take the same time again.
    fn ends_after(&self, run: &ScheduleRun) -> bool {
        let at_limit = |class| {
            matches!(
                class,
                Class::OutOfFuel | Class::TimeLimit | Class::TraceFull
            )
        };
        run.watched
            .found
            .iter()
            .any(|found| at_limit(found.fault.class))
            || self.faults == Faults::First && !report::problems(self, run).is_empty()
    }

    fn check_arguments(&self) -> Result<(), CheckError> {
        let given = self.args.len();
        let wanted = self.kernel.params.len();
        if given != wanted {
            return Err(CheckError::Count { given, wanted });
        }

        for (number, (param, arg)) in self.kernel.params.iter().zip(&self.args).enumerate() {
            let given = arg.bytes();
            let wanted = param.size;
            if given != wanted as usize {
                return Err(CheckError::Size {
                    parameter: (number, param.name.clone()),
                    given,
                    wanted,
                });
            }
        }

        let variables = self.variables.iter().map(|(_, value)| value);
        let fields = self
            .args
            .iter()
            .chain(variables)
            .flat_map(|argument| &argument.0);

        // A pointer to a missing buffer would become the address 0 and show as a fault of the
        // kernel.
        let lost = |field: &&Field| matches!(field, Field::Pointer { buffer, .. } if *buffer >= self.buffers.len());
        if let Some(Field::Pointer { buffer, .. }) = fields.into_iter().find(lost) {
            let what = format!(
                "an argument points to it, and the check has {}",
                self.buffers.len()
            );
            return Err(CheckError::Buffer {
                name: buffer.to_string(),
                what,
            });
        }

        self.buffers.iter().try_for_each(check_buffer)
    }

    fn run_once(&self, seed: u64, kept: &KeptContents) -> Result<ScheduleRun, CheckError> {
        // The capacity is larger than any device, because the check is about the kernel and not
        // about memory.
        let memory = Memory::new(1 << 40);
        let addresses: Vec<u64> = self
            .buffers
            .iter()
            .map(|buffer| buffer.place(&memory))
            .collect::<Result<_, _>>()?;
        let handles = self.handles(&memory, &addresses)?;
        self.set_variables(&memory, &handles)?;
        let params = self.params(&handles);
        let launch = Launch {
            kernel: self.kernel,
            grid: self.grid,
            block: self.block,
            dynamic_shared: self.dynamic_shared,
            params: &params,
        };
        let schedule = Schedule {
            fuel: self.fuel,
            threads: self.threads,
            ..schedule(seed)
        };
        let site = LaunchSite {
            cooperative: self.cooperative,
            cluster: self.cluster,
            ..LaunchSite::default()
        };
        let deadline = Instant::now().checked_add(self.limit);

        // A profile of several schedules would count each instruction several times.
        let first = seed == self.seeds.start;
        let followed = self.followed.filter(|_| first);
        let watch = Watch {
            faults: self.faults,
            strict: self.strict,
            arithmetic: self.arithmetic,
            provenance: self.provenance,
            trace_bytes: self.trace_bytes,
            deadline,
            wait_limit: None,
            profile: self.profile && first,
            followed,
        };
        let watched = run_watched(&memory, &launch, &schedule, self.trace, &site, &watch);
        if let Some(found) = watched
            .found
            .iter()
            .find(|found| found.fault.class == Class::BadLaunch)
        {
            return Err(CheckError::Launch(found.fault.what.clone()));
        }

        let left = |(number, (buffer, at)): (usize, (&Buffer, &u64))| {
            let (bytes, unwritten) = buffer.take(&memory, *at)?;
            Ok((kept.share(number, bytes), unwritten))
        };
        let contents = self.buffers.iter().zip(&addresses).enumerate().map(left);
        Ok(ScheduleRun {
            seed,
            watched,
            contents: contents.collect::<Result<_, MemoryError>>()?,
        })
    }

    /// Returns the value of an argument that names each buffer: its address, or the handle of its
    /// texture or surface.
    fn handles(&self, memory: &Memory, addresses: &[u64]) -> Result<Vec<u64>, CheckError> {
        let handle = |(buffer, address): (&Buffer, &u64)| {
            let wrong = |what| CheckError::View {
                name: buffer.name.clone(),
                what,
            };
            buffer.handle(memory, *address).map_err(wrong)
        };
        self.buffers.iter().zip(addresses).map(handle).collect()
    }

    fn params(&self, addresses: &[u64]) -> Vec<u8> {
        let mut params = Vec::new();
        for (param, arg) in self.kernel.params.iter().zip(&self.args) {
            params.resize(param.offset as usize, 0);
            arg.write(addresses, &mut params);
        }
        params
    }

    fn set_variables(&self, memory: &Memory, handles: &[u64]) -> Result<(), CheckError> {
        for (name, value) in &self.variables {
            let mut bytes = Vec::new();
            value.write(handles, &mut bytes);
            let wrong = |what: String| CheckError::Variable {
                name: name.clone(),
                what,
            };
            let Some(known) = self.module.variables().find(|known| known.name == *name) else {
                let names: Vec<String> = self.module.variables().map(|known| known.name).collect();
                return Err(wrong(format!(
                    "the module has no such variable, only [{}]",
                    names.join(", ")
                )));
            };

            // Fewer bytes are allowed, because the rest of the variable keeps its initial value.
            if bytes.len() as u64 > known.bytes {
                return Err(wrong(format!(
                    "it has {} bytes, and the new value has {}",
                    known.bytes,
                    bytes.len()
                )));
            }

            if let Some(address) = self.module.address(memory, name)? {
                memory.write(address, &bytes)?;
            }
        }
        Ok(())
    }
}
