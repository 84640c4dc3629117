//! Faults: the rule that was broken, where, by which threads, and on which memory.

use std::fmt;

/// The rule that was broken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Class {
    /// An access outside every live allocation, or across the end of one.
    OutOfBounds,
    /// An address that is no multiple of the size of the access (of the whole vector).
    Misaligned,
    /// An access to memory that was freed.
    AfterFree,
    /// A load of global bytes that nobody has written.
    UninitialisedGlobal,
    /// A load of shared bytes that nobody in the block has written.
    UninitialisedShared,
    /// A load of local bytes that the thread has not written.
    UninitialisedLocal,
    /// A register read before it was written.
    UninitialisedRegister,
    /// A store to memory that may only be read (`.const`, `.param`).
    ReadOnlySpace,
    /// `bar.sync` and its kin executed by part of a warp.
    DivergentBarrier,
    /// Warps that disagree on a barrier, a bad thread count, or a barrier that can never complete.
    BarrierMismatch,
    /// A `.sync` instruction whose mask does not name exactly the lanes that execute it, or an `.aligned` one that
    /// not all lanes of the warp execute.
    InactiveLane,
    /// Two unordered accesses to shared memory, at least one a plain write.
    SharedRace,
    /// Two unordered accesses to the same global bytes, at least one a plain write; found in traced launches.
    GlobalRace,
    /// Lanes of one store write different values to the same address.
    LanesStoreDifferent,
    /// A race that gives the same result in whatever order it happens: threads that store the same value; a plain load
    /// that a loop of compare-and-swap begins with; a counter that the block resets whose atomic was the last. A note,
    /// unless a launch is [strict](crate::Watch::strict).
    ToleratedRace,
    /// A volatile load of what another lane of the warp stored by a volatile store, which nothing orders before it.
    WarpSynchronous,
    /// Data loaded with `.nc` was written during the same launch, or before a texture read it; found in traced launches.
    ReadOnlyWritten,
    /// An mbarrier used against its rules: before it is initialised, with more arrivals than its count, with a
    /// transaction nobody could complete, or as ordinary memory.
    Mbarrier,
    /// A wait on an mbarrier that an older phase of the same parity may satisfy.
    PhaseAliased,
    /// Shared memory touched while an asynchronous copy writes it, or by a thread that has not waited for the copy.
    AsyncCopy,
    /// A block that ends though nothing has waited for an asynchronous copy of it.
    AsyncUnfinished,
    /// A product of a warpgroup in whose way another instruction is: one that uses its sums or changes what it reads
    /// before the wait, one that no `wgmma.fence` orders before it; or warps of a group that do not multiply alike.
    Wgmma,
    /// Shared memory that ordinary stores wrote and that a product or a bulk copy reads, or that ordinary loads and
    /// stores used and that a bulk copy overwrites, without `fence.proxy.async` between.
    ProxyFence,
    /// A tensor map, the descriptor of a matrix, or the handle of a texture or surface, that does not describe what it is
    /// used for.
    Descriptor,
    /// Shared memory of another block of the cluster that is used when that block may have ended.
    ClusterExit,
    /// No thread can continue. All warps wait, at least one of them at an mbarrier that nothing can complete, or they poll
    /// for a value that no thread writes.
    Deadlock,
    /// `trap` was executed.
    Trap,
    /// An assertion of the kernel failed: `__assertfail` was called.
    Assertion,
    /// A call through a register that holds no function's address, or that of a function with other parameters.
    BadCall,
    /// Calls are nested deeper than the stack of a thread allows.
    StackOverflow,
    /// `free` of what `malloc` did not give, or gave and that was freed already.
    BadFree,
    /// An integer was divided by zero; found where [arithmetic](crate::Watch::arithmetic) is looked at, as are the next two.
    DivisionByZero,
    /// A NaN that no operand was, or an infinity of finite operands, that a thread stored or handed on. The place is where
    /// it appeared first; the other place, where it was handed on.
    NotFinite,
    /// A float was converted to an integer of a type that does not hold it.
    Saturated,
    /// A block executed more instructions than its fuel allows.
    OutOfFuel,
    /// The launch had not ended at its [deadline](crate::Watch::deadline), or had waited for longer than its
    /// [limit](crate::Watch::wait_limit) allows.
    TimeLimit,
    /// The record of a traced launch reached its [limit](crate::Watch::trace_bytes), so that races would be missed from
    /// there on. It ends the launch.
    TraceFull,
    /// The launch itself is impossible: block size, shared memory or parameter bytes.
    BadLaunch,
}

impl Class {
    /// Returns the position of a class among causes and consequences: what a fault of a lower rank breaks may show as a fault of a
    /// higher rank elsewhere. For example, a barrier that part of a warp misses orders nothing, so that accesses race.
    pub fn rank(self) -> u8 {
        match self {
            Class::BadLaunch => 0,
            Class::DivergentBarrier | Class::BarrierMismatch | Class::InactiveLane => 1,
            Class::UninitialisedRegister | Class::UninitialisedLocal => 2,
            Class::OutOfBounds
            | Class::Misaligned
            | Class::AfterFree
            | Class::ReadOnlySpace
            | Class::Mbarrier
            | Class::PhaseAliased
            | Class::AsyncCopy
            | Class::AsyncUnfinished
            | Class::Wgmma
            | Class::ProxyFence
            | Class::Descriptor
            | Class::ClusterExit
            | Class::BadCall
            | Class::StackOverflow
            | Class::BadFree
            | Class::DivisionByZero
            | Class::NotFinite
            | Class::Saturated => 3,
            Class::SharedRace
            | Class::GlobalRace
            | Class::LanesStoreDifferent
            | Class::ToleratedRace
            | Class::WarpSynchronous
            | Class::ReadOnlyWritten => 4,
            Class::UninitialisedShared | Class::UninitialisedGlobal => 5,
            Class::Trap | Class::Assertion => 6,
            Class::Deadlock => 7,
            Class::OutOfFuel | Class::TimeLimit | Class::TraceFull => 8,
        }
    }

    /// Returns true if a barrier that other warps of the block miss may be the cause.
    pub(crate) fn may_follow_from_barriers(self) -> bool {
        matches!(
            self,
            Class::SharedRace
                | Class::GlobalRace
                | Class::UninitialisedShared
                | Class::UninitialisedGlobal
        )
    }
}

/// A place in the source that produced the PTX, Rust or another language, from `.loc` and `.file`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct RustPlace {
    /// File name as written in `.file`.
    pub file: String,
    /// Line, from 1.
    pub line: u32,
    /// Column, from 1; 0 when unknown.
    pub column: u32,
}

/// A place in the PTX text.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct SourcePlace {
    /// Line, from 1.
    pub line: u32,
    /// Column, from 1.
    pub column: u32,
    /// Text of the instruction, without leading blanks and up to its semicolon.
    pub text: String,
    /// The source's place in force there.
    pub rust: Option<RustPlace>,
    /// Where that code was inlined, innermost call first, from `.loc .. inlined_at`.
    pub callers: Vec<RustPlace>,
}

/// The allocation that holds, held or lies nearest to an address.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct AllocationInfo {
    /// First address.
    pub base: u64,
    /// Size in bytes.
    pub bytes: u64,
    /// Label given by [`Memory::set_label`](crate::Memory::set_label), or the variable's name.
    pub label: String,
}

/// The earlier of two accesses to blame.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct OtherPlace {
    /// Where it stands.
    pub place: SourcePlace,
    /// What it did: "wrote", "read".
    pub did: &'static str,
    /// Who did it, such as "warp 1" or "block (2,0,0)".
    pub who: String,
}

/// One finding.
#[derive(Clone, PartialEq, Eq)]
pub struct Fault {
    /// The rule broken.
    pub class: Class,
    /// What happened, as a sentence without full stop.
    pub what: String,
    /// What to do instead, as a sentence without full stop; may be empty.
    pub instead: &'static str,
    /// Name of the kernel.
    pub kernel: String,
    /// Block index.
    pub block: [u32; 3],
    /// Index of the first thread to blame, within its block.
    pub thread: [u32; 3],
    /// Lanes to blame within the thread's warp, bit i for lane i.
    pub lanes: u32,
    /// The instruction; `None` for faults of the launch itself.
    pub place: Option<SourcePlace>,
    /// The calls that lead to the instruction, innermost first.
    pub calls: Vec<SourcePlace>,
    /// The other instruction to blame, for races and barriers that disagree.
    pub other: Option<OtherPlace>,
    /// The address accessed.
    pub address: Option<u64>,
    /// The allocation concerned.
    pub allocation: Option<AllocationInfo>,
    /// Seed of the schedule that showed it.
    pub seed: u64,
}

/// Calls that `Display` writes.
const MOST_CALLS: usize = 8;
impl Fault {
    /// Where the address lies relative to the allocation, in words.
    pub fn location(&self) -> Option<String> {
        Some(describe(self.address?, self.allocation.as_ref()?))
    }

    /// Whether two are one to whoever reads of them: the same class at the same instructions.
    pub fn is_same(&self, fault: &Fault) -> bool {
        let both = |fault: &Fault| {
            (
                fault.place.clone(),
                fault.other.as_ref().map(|o| o.place.clone()),
            )
        };
        self.class == fault.class && self.kernel == fault.kernel && both(self) == both(fault)
    }
}

impl fmt::Display for SourcePlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}: `{}`", self.line, self.text)?;
        let Some(r) = &self.rust else { return Ok(()) };
        write!(f, " ({}:{}:{}", r.file, r.line, r.column)?;
        for r in &self.callers {
            write!(f, ", inlined at {}:{}:{}", r.file, r.line, r.column)?;
        }
        f.write_str(")")
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ([bx, by, bz], [tx, ty, tz]) = (self.block, self.thread);
        write!(
            f,
            "{:?}: {}\n  in {}, block ({bx},{by},{bz}), thread ({tx},{ty},{tz})",
            self.class, self.what, self.kernel
        )?;
        if let Some(place) = &self.place {
            write!(f, "\n  at {place}")?;
        }
        for call in self.calls.iter().take(MOST_CALLS) {
            write!(f, "\n  called at {call}")?;
        }
        if let Some(more) = self
            .calls
            .len()
            .checked_sub(MOST_CALLS)
            .filter(|more| *more > 0)
        {
            write!(f, "\n  and {more} calls before")?;
        }
        if let Some(other) = &self.other {
            write!(f, "\n  {} {} at {}", other.who, other.did, other.place)?;
        }
        if let (Some(address), Some(location)) = (self.address, self.location()) {
            write!(f, "\n  address 0x{address:x} is {location}")?;
        }
        if !self.instead.is_empty() {
            write!(f, "\n  {}", self.instead)?;
        }
        Ok(())
    }
}

/// Where `address` lies relative to an allocation, in words.
fn describe(address: u64, a: &AllocationInfo) -> String {
    let end = a.base.saturating_add(a.bytes);
    let of = format!("`{}` (0x{:x}, {} bytes)", a.label, a.base, a.bytes);
    match address {
        _ if address < a.base => format!("{} bytes before {of}", a.base - address),
        _ if address < end => format!("offset {} of {of}", address - a.base),
        _ if address == end => format!("just past the end of {of}"),
        _ => format!("{} bytes past the end of {of}", address - end),
    }
}

impl std::error::Error for Fault {}
