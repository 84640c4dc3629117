//! Checks a kernel: buffers, arguments, a launch, several schedules, and what was found.
//!
//! A check launches one kernel once under each schedule, on memory of its own that is filled anew. Schedules run in
//! parallel, one thread each, so that a seed gives the same findings every time.
//!
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
//! let mut check = Check::of(&module, "twice")?;
//! let (x, y) = (check.input("x", &[3f32; 64]), check.output::<f32>("y", 64));
//! check.args = vec![x, y, 2f32.into()];
//! (check.block, check.trace) = ([64, 1, 1], Trace::On);
//! let report = check.run()?;
//! assert!(report.findings.is_empty(), "{report}");
//! assert_eq!(report.output::<f32>("y"), [6.0; 64]);
//!
//! check.block = [65, 1, 1];
//! assert!(check.run()?.to_string().contains("just past the end of `x`"));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod argument;
mod element;
mod finding;
mod report;

use std::collections::HashMap;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use rayon::prelude::*;

pub use argument::{Argument, Buffer, Expected, Field, Role, View};
pub use element::{Element, ElementType};
pub use finding::{Finding, Place, Problem};
pub use report::{Note, Report};

use crate::Class;
use crate::image::{Image, Sampler};
use crate::launch::{Launch, LaunchSite, Order, Schedule, Trace, run_watched};
use crate::memory::Memory;
use crate::memory_error::MemoryError;
use crate::module::{Kernel, Module};
use crate::observe::Followed;
use crate::parse_error::KernelError;
use crate::watch::{Faults, Watch, Watched};

/// A kernel, what it is launched with, and how it is checked. The fields may be changed until it is [run](Check::run).
#[derive(Clone, Debug)]
pub struct Check<'a> {
    /// The module.
    pub module: &'a Module,
    /// The kernel, which is of that module.
    pub kernel: &'a Kernel,
    /// Blocks in x, y, z: one, at first.
    pub grid: [u32; 3],
    /// Threads of a block in x, y, z: one, at first.
    pub block: [u32; 3],
    /// Blocks of a cluster; without it what the kernel says.
    pub cluster: Option<[u32; 3]>,
    /// Bytes of dynamic shared memory.
    pub dynamic_shared: u32,
    /// Whether its blocks may wait for each other.
    pub cooperative: bool,
    /// Memory that arguments may point to.
    pub buffers: Vec<Buffer>,
    /// An argument for each parameter, in their order.
    pub args: Vec<Argument>,
    /// Variables of the module that are overwritten before the launch, and what they begin with. A texture reference holds
    /// the handle of its texture.
    pub variables: Vec<(String, Argument)>,
    /// The schedules, see [`schedule`]: the first four, if nobody says otherwise.
    pub seeds: Range<u64>,
    /// Whether accesses of global memory are traced, which finds races there.
    pub trace: Trace,
    /// Which faults of a launch are wanted. With [`Faults::First`] the check ends with the first schedule that shows one.
    pub faults: Faults,
    /// Whether races that give the same result in any order are findings and not notes.
    pub strict: bool,
    /// Whether the numbers of arithmetic are [looked at](Watch::arithmetic).
    pub arithmetic: bool,
    /// Whether it is [followed](Watch::provenance) what pointers were derived from.
    pub provenance: bool,
    /// Bytes that the record of each traced launch may take ([`Watch::trace_bytes`]).
    pub trace_bytes: Option<u64>,
    /// The time that each launch may take.
    pub limit: Duration,
    /// Warp instructions that one block may execute.
    pub fuel: u64,
    /// Threads that run one launch's blocks. With more than one, blocks of a launch that is not traced may meet in
    /// another way each time.
    pub threads: usize,
    /// Whether what the instructions do under the first schedule is counted.
    pub profile: bool,
    /// The thread whose instructions under the first schedule are recorded.
    pub followed: Option<Followed>,
}

/// The schedule of a seed: 0 runs blocks and warps in order, 1 in the reverse order, others shuffle them. The seed also
/// decides how late asynchronous copies complete.
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

/// What is compared must be all there: fewer bytes, or a tolerance that nothing exceeds, would compare nothing.
fn check_buffer(buffer: &Buffer) -> Result<(), CheckError> {
    let wrong = |what: String| {
        Err(CheckError::Buffer {
            name: buffer.name.clone(),
            what,
        })
    };
    let (wanted, expected) = (buffer.bytes(), buffer.expected.as_ref());
    let contents = buffer
        .contents
        .as_ref()
        .filter(|contents| contents.len() != wanted);
    if let Some(contents) = contents {
        return wrong(format!(
            "it begins with {} bytes and has {wanted}",
            contents.len()
        ));
    }
    if let Some(expected) = expected.filter(|expected| expected.bytes.len() != wanted) {
        return wrong(format!(
            "{} bytes are expected and it has {wanted}",
            expected.bytes.len()
        ));
    }
    match expected
        .map(|expected| expected.tolerance)
        .filter(|t| !(t.is_finite() && *t >= 0.0))
    {
        Some(tolerance) => wrong(format!(
            "{tolerance} is no tolerance; it is 0 or more, and finite"
        )),
        None => Ok(()),
    }
}

/// Why a check cannot be run.
#[derive(Clone, PartialEq, Eq)]
pub enum CheckError {
    /// The module has no kernel of that name, or one that cannot run.
    Kernel(KernelError),
    /// There are more or fewer arguments than parameters.
    Count {
        /// Arguments.
        given: usize,
        /// Parameters.
        wanted: usize,
    },
    /// An argument is not as large as its parameter.
    Size {
        /// Number and name of the parameter.
        parameter: (usize, String),
        /// Bytes of the argument.
        given: usize,
        /// Bytes of the parameter.
        wanted: u32,
    },
    /// The module has no such variable, or one with fewer bytes.
    Variable {
        /// The name.
        name: String,
        /// What is wrong with it.
        what: String,
    },
    /// What a buffer begins with, or must hold afterwards, are not the bytes of its elements; or an argument points to a
    /// buffer that is not there.
    Buffer {
        /// The name; the number of one that is not there.
        name: String,
        /// What is wrong with it.
        what: String,
    },
    /// A texture or surface cannot be made.
    View {
        /// The name of its buffer.
        name: String,
        /// What is wrong with it.
        what: String,
    },
    /// There is no room for the buffers.
    Memory(MemoryError),
    /// The launch itself is impossible.
    Launch(String),
}

impl std::fmt::Display for CheckError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Kernel(error) => error.fmt(f),
            Self::Count { given, wanted } => {
                write!(
                    f,
                    "{given} arguments are given; the kernel has {wanted} parameters"
                )
            }
            Self::Size {
                parameter: (number, name),
                given,
                wanted,
            } => {
                write!(
                    f,
                    "parameter {number} `{name}` has {wanted} bytes, and the argument {given}; pointers have 8"
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

/// What one schedule gave.
struct Run {
    seed: u64,
    watched: Watched,
    /// The bytes of each buffer afterwards, and how many of them nobody has written.
    contents: Vec<(Arc<Vec<u8>>, u64)>,
}

/// What each buffer held after one run: runs that leave the same bytes keep them once, however many there are.
#[derive(Default)]
struct Kept(Mutex<HashMap<usize, Arc<Vec<u8>>>>);

impl Kept {
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
    /// A check of a kernel without arguments yet: one thread, the first four schedules, a minute for each launch.
    ///
    /// # Errors
    /// [`CheckError::Kernel`].
    pub fn of(module: &'a Module, name: &str) -> Result<Check<'a>, CheckError> {
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

    /// A buffer that the kernel reads and must leave as it is; the argument that points to it.
    pub fn input<T: Element>(&mut self, name: &str, values: &[T]) -> Argument {
        self.buffer(Buffer::filled(name, Role::In, values))
    }

    /// A buffer that the kernel reads and writes; the argument that points to it.
    pub fn inout<T: Element>(&mut self, name: &str, values: &[T]) -> Argument {
        self.buffer(Buffer::filled(name, Role::InOut, values))
    }

    /// A buffer of so many elements that nobody has written; the argument that points to it.
    pub fn output<T: Element>(&mut self, name: &str, count: usize) -> Argument {
        self.buffer(Buffer::empty(name, T::TYPE, count))
    }

    /// A texture of these channels, row by row, which the kernel only reads; the argument that is its handle.
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

    /// A surface of these channels, row by row, which the kernel reads and writes; the argument that is its handle.
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

    /// Adds a buffer; the argument that points to it.
    pub fn buffer(&mut self, buffer: Buffer) -> Argument {
        self.buffers.push(buffer);
        Argument::pointer(self.buffers.len() - 1, 0)
    }

    /// Runs the kernel under each schedule.
    ///
    /// # Errors
    /// What makes the launch impossible, [`CheckError`]. What is wrong with the kernel is in the report.
    pub fn run(&self) -> Result<Report, CheckError> {
        self.check_arguments()?;
        if self.seeds.is_empty() {
            let Range { start, end } = &self.seeds;
            let what = format!("the seeds {start}..{end} are no schedule; 0..4 are the first four");
            return Err(CheckError::Launch(what));
        }
        let (lowest, kept) = (AtomicU64::new(u64::MAX), Kept::default());
        let runs =
            self.seeds
                .clone()
                .into_par_iter()
                .map(|seed| match lowest.load(Relaxed) < seed {
                    true => Ok(None),
                    false => {
                        let run = self.run_once(seed, &kept)?;
                        if self.ends_after(&run) {
                            lowest.fetch_min(seed, Relaxed);
                        }
                        Ok(Some(run))
                    }
                });
        let runs = runs.collect::<Result<Vec<_>, CheckError>>()?;
        let last = lowest.into_inner();
        let runs: Vec<Run> = runs
            .into_iter()
            .flatten()
            .filter(|run| run.seed <= last)
            .collect();
        Ok(report::report(self, &runs))
    }

    /// Whether no schedule after this one is asked for: one finding is enough, or the next would take all its time too.
    fn ends_after(&self, run: &Run) -> bool {
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
        let (given, wanted) = (self.args.len(), self.kernel.params.len());
        if given != wanted {
            return Err(CheckError::Count { given, wanted });
        }
        for (number, (param, arg)) in self.kernel.params.iter().zip(&self.args).enumerate() {
            let (given, wanted) = (arg.bytes(), param.size);
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

    fn run_once(&self, seed: u64, kept: &Kept) -> Result<Run, CheckError> {
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
        Ok(Run {
            seed,
            watched,
            contents: contents.collect::<Result<_, MemoryError>>()?,
        })
    }

    /// What arguments that name buffers are: addresses, and handles of textures and surfaces.
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
                    "the module has none of that name; it has [{}]",
                    names.join(", ")
                )));
            };
            if bytes.len() as u64 > known.bytes {
                return Err(wrong(format!(
                    "{} bytes are given; it has {}",
                    bytes.len(),
                    known.bytes
                )));
            }
            if let Some(address) = self.module.address(memory, name)? {
                memory.write(address, &bytes)?;
            }
        }
        Ok(())
    }
}
