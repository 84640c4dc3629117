//! Faults: the broken rule, the place, the threads and the memory.

use std::fmt;

/// The rule that a kernel broke.
///
/// Reports begin with the name of the class, for example `GlobalRace`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Class {
    /// An access outside of every live allocation, or across the end of an allocation.
    OutOfBounds,
    /// An address that is not a multiple of the access size. For vectors, this is the size of the
    /// vector.
    Misaligned,
    /// An access to freed memory.
    AfterFree,
    /// A load of uninitialized global memory.
    UninitialisedGlobal,
    /// A load of shared memory that no thread of the block has written.
    UninitialisedShared,
    /// A load of local memory that the thread has not written.
    UninitialisedLocal,
    /// A use of a register that was not written on this path.
    UninitialisedRegister,
    /// A store to read-only memory, such as `.const` or `.param`.
    ReadOnlySpace,
    /// A barrier such as `bar.sync` that only a part of a warp executes.
    DivergentBarrier,
    /// Warps that disagree about a barrier, an invalid thread count, or a barrier that never
    /// completes.
    BarrierMismatch,
    /// A `.sync` instruction whose mask differs from the lanes that execute it, or an `.aligned`
    /// instruction that not all lanes of the warp execute.
    InactiveLane,
    /// Two unordered accesses to the same shared bytes, of which at least one is an ordinary write.
    SharedRace,
    /// Two unordered accesses to the same global bytes, of which at least one is an ordinary write.
    /// Only traced launches find it.
    GlobalRace,
    /// A store by which several lanes write different values to one address.
    LanesStoreDifferent,
    /// A race whose result is the same in every order.
    ///
    /// Examples are threads that store equal values, the ordinary load at the start of a
    /// compare-and-swap loop, and the reset of a counter by the block whose atomic was the last. It
    /// is a note unless the launch is [strict](crate::Watch::strict).
    ToleratedRace,
    /// A volatile load of a value that another lane of the warp stored, without `bar.warp.sync`
    /// between.
    WarpSynchronous,
    /// Memory that is read with `.nc` or by a texture and written during the same launch. Only
    /// traced launches find it.
    ReadOnlyWritten,
    /// A use of an mbarrier against its rules.
    ///
    /// Examples are a use before `mbarrier.init`, more arrivals than its count, a transaction that
    /// cannot complete, and ordinary accesses to its bytes.
    Mbarrier,
    /// A wait for an mbarrier that an older phase of the same parity may satisfy.
    PhaseAliased,
    /// An access to shared memory while an asynchronous copy writes it, or before the thread has
    /// waited.
    AsyncCopy,
    /// A block that ends although no thread has waited for one of its asynchronous copies.
    AsyncUnfinished,
    /// A conflict with an asynchronous `wgmma`.
    ///
    /// Examples are uses of its accumulators or changes of its operands before the wait, a missing
    /// `wgmma.fence`, and warps of a warpgroup that execute different instructions.
    Wgmma,
    /// A missing `fence.proxy.async` between ordinary accesses to shared memory and accesses by
    /// `wgmma` or a bulk copy.
    ProxyFence,
    /// A tensor map, a matrix descriptor, or a texture or surface handle that does not fit its use.
    Descriptor,
    /// An access to the shared memory of another block of the cluster that may have ended already.
    ClusterExit,
    /// A launch in which no thread can continue.
    ///
    /// All warps wait, and at least one of them waits for an mbarrier that cannot complete, or
    /// polls a value that no thread writes.
    Deadlock,
    /// An executed `trap`.
    Trap,
    /// A failed assertion, which calls `__assertfail`.
    Assertion,
    /// An indirect call whose register does not contain the address of a function with these
    /// parameters.
    BadCall,
    /// Calls that are nested deeper than the stack of a thread allows.
    StackOverflow,
    /// A `free` of an address that `malloc` did not return, or that was freed before.
    BadFree,
    /// An integer division by zero. Only launches with
    /// [`Watch::arithmetic`](crate::Watch::arithmetic) find it.
    DivisionByZero,
    /// A NaN computed from operands that are not NaN, or an infinity computed from finite operands.
    /// Only launches with [`Watch::arithmetic`](crate::Watch::arithmetic) find it.
    ///
    /// It is reported if a thread stores the value or passes it on. `place` is the instruction that
    /// computed it, and `other` is the instruction that passed it on.
    NotFinite,
    /// A conversion of a float to an integer type that cannot represent it. Only launches with
    /// [`Watch::arithmetic`](crate::Watch::arithmetic) find it.
    Saturated,
    /// A block that executed more instructions than [`Schedule::fuel`](crate::Schedule::fuel)
    /// allows.
    OutOfFuel,
    /// A launch that did not end before its [deadline](crate::Watch::deadline), or that waited for
    /// longer than its [limit](crate::Watch::wait_limit).
    TimeLimit,
    /// A traced launch whose record reached its [size limit](crate::Watch::trace_bytes). The launch
    /// ends, because races would be missed from then on.
    TraceFull,
    /// A launch that is impossible, for example because of its block size or its parameters.
    BadLaunch,
}

impl Class {
    /// Returns the rank of a class among causes and consequences.
    ///
    /// A broken rule of a lower rank may show as a fault of a higher rank elsewhere. For example, a
    /// barrier that a part of a warp misses orders nothing, so accesses after it race.
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

    /// Returns true if the cause may be a barrier that other warps of the block miss.
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

/// A place in the source that was compiled to PTX, in Rust or another language, from `.loc` and
/// `.file`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct RustPlace {
    /// The file name as written in `.file`.
    pub file: String,
    /// The line, starting at 1.
    pub line: u32,
    /// The column, starting at 1, or 0 if it is unknown.
    pub column: u32,
}

/// A place in the PTX text.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct SourcePlace {
    /// The line, starting at 1.
    pub line: u32,
    /// The column, starting at 1.
    pub column: u32,
    /// The text of the instruction up to its semicolon, without leading blanks.
    pub text: String,
    /// The place in the source that the last `.loc` before the instruction names.
    pub rust: Option<RustPlace>,
    /// The places where the source was inlined, innermost call first, from `.loc .. inlined_at`.
    pub callers: Vec<RustPlace>,
}

/// The allocation that contains an address, contained it, or is nearest to it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct AllocationInfo {
    /// The first address.
    pub base: u64,
    /// The size in bytes.
    pub bytes: u64,
    /// The label from [`Memory::set_label`](crate::Memory::set_label), or the name of the variable.
    pub label: String,
}

/// The second place of a fault, for example the earlier of two racing accesses.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct OtherPlace {
    /// The instruction.
    pub place: SourcePlace,
    /// The verb of the sentence, for example "wrote" or "read".
    pub did: &'static str,
    /// The subject of the sentence, for example "warp 1" or "block (2,0,0)".
    pub who: String,
}

/// One finding in a launch. `Display` prints it in several lines.
#[derive(Clone, PartialEq, Eq)]
pub struct Fault {
    /// The broken rule.
    pub class: Class,
    /// The description of the event, as a sentence without a period.
    pub what: String,
    /// The advice, as a sentence without a period. It may be empty.
    pub instead: &'static str,
    /// The name of the kernel.
    pub kernel: String,
    /// The index of the block.
    pub block: [u32; 3],
    /// The index of the first thread to blame, within its block.
    pub thread: [u32; 3],
    /// The lanes to blame within the warp of the thread. Bit `i` stands for lane `i`.
    pub lanes: u32,
    /// The instruction, or `None` for a fault of the launch itself.
    pub place: Option<SourcePlace>,
    /// The calls that lead to the instruction, innermost first.
    pub calls: Vec<SourcePlace>,
    /// The second instruction, for example in a race.
    pub other: Option<OtherPlace>,
    /// The accessed address.
    pub address: Option<u64>,
    /// The allocation that contains the address, or is nearest to it.
    pub allocation: Option<AllocationInfo>,
    /// The seed of the schedule under which the fault occurred.
    pub seed: u64,
}

/// The maximum number of calls that `Display` prints.
const MOST_CALLS: usize = 8;
impl Fault {
    /// Describes the position of the address relative to the allocation, for example "offset 4 of
    /// `x`".
    pub fn location(&self) -> Option<String> {
        Some(describe(self.address?, self.allocation.as_ref()?))
    }

    /// Returns true if two faults have the same class and the same instructions, so that a report
    /// should list them once.
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

        // An address means something to a reader only with the allocation it belongs to, so both
        // are printed or neither is.
        if let (Some(address), Some(location)) = (self.address, self.location()) {
            write!(f, "\n  address 0x{address:x} is {location}")?;
        }
        if !self.instead.is_empty() {
            write!(f, "\n  {}", self.instead)?;
        }

        Ok(())
    }
}

/// Describes the position of `address` relative to an allocation.
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
