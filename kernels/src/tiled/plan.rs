//! How a product divides its blocks, and the times that it leaves where it profiles.

use crate::format::Format;
use ptx_gen::*;

/// When the next kernel may start: it then fills its ring, and waits.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Trigger {
    /// At once: three kernels may overlap as far as shared memory allows.
    First,
    /// When the kernels before are complete: two overlap.
    Waited,
    /// When the last tile is on its way: what the next brings follows it.
    Drained,
}

/// How tiles come to shared memory, and with it whether kernels overlap: both need sm_90.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Copies {
    /// One bulk copy for each stage, in a kernel that overlaps with its neighbours: sm_90.
    Bulk,
    /// `cp.async` by the lanes of the producer warp, in a kernel that starts when the one before has ended: sm_80.
    Async,
}

/// How a block is divided.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Plan {
    /// Warps of a group, and so tiles of a stage.
    pub width: u32,
    /// Groups of consumer warps, which take turns.
    pub groups: u32,
    /// When the next kernel may start, if it may at all before this one has ended.
    pub trigger: Trigger,
    /// How tiles come to shared memory.
    pub copies: Copies,
    /// Stages that are asked for before the product before this one has asked for its last tile; if not given, as
    /// many as the ring has.
    pub early: Option<u32>,
    /// Columns of activations that the weights are multiplied with, each a token of its own: 1 to 8.
    pub columns: u32,
    /// Whether each block leaves the times of [`Stamp`]s.
    pub profile: bool,
}

/// A time that a block leaves where a plan says so, on the device's clock in nanoseconds, at
/// `stamps[8 * block + stamp]`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u32)]
pub enum Stamp {
    /// The block has begun.
    Begun,
    /// The first tiles have landed.
    Landed,
    /// The last tiles are on their way.
    Drained,
    /// Earlier kernels are complete.
    Waited,
    /// The activations are there.
    Ready,
    /// The first warp's products are done.
    Multiplied,
    /// The results are stored.
    Stored,
    /// No time: the number of the multiprocessor.
    Place,
}

/// Stamps of a block.
pub const STAMPS: u32 = 8;

impl Stamp {
    /// Leaves it, where `who` holds.
    pub(crate) fn leave<'k>(self, k: Builder<'k>, who: Pred<'k>, stamps: Ptr<'k, u64, Write>) {
        k.when(who, || {
            let value = if self == Stamp::Place { k.smid().cvt::<u64>() } else { k.globaltimer() };
            let to = stamps.at(k.ctaid() * STAMPS).at(self as u32).cast::<u32>();
            // Relaxed, so that what a ticket publishes does not wait for it.
            to.st_relaxed(value.cvt::<u32>());
            to.at(1).st_relaxed((value >> 32).cvt::<u32>());
        });
    }
}

impl Plan {
    /// For large matrices of quantized weights. [`ALL`](crate::ALL) lists kernels of this plan and of each below.
    pub const SHIPPED: Plan = Plan {
        width: 2,
        groups: 4,
        trigger: Trigger::First,
        copies: Copies::Bulk,
        early: None,
        columns: 1,
        profile: false,
    };
    /// For few, long rows of them.
    pub const SHORT: Plan = Plan { groups: 6, ..Plan::SHIPPED };
    /// For large matrices of quantized weights, behind a product over 4- or 5-bit weights.
    pub const HELD: Plan = Plan { early: Some(6), ..Plan::SHIPPED };
    /// The same for few, long rows.
    pub const SHORT_HELD: Plan = Plan { early: Some(6), ..Plan::SHORT };
    /// For large matrices of 16-bit weights.
    pub const HALVES: Plan = Plan { groups: 2, ..Plan::SHIPPED };
    /// For those with short rows.
    pub const SHORT_HALVES: Plan = Plan { width: 1, groups: 8, ..Plan::SHIPPED };

    /// [`SHIPPED`](Plan::SHIPPED) for devices older than sm_90.
    pub const SHIPPED_ASYNC: Plan = Plan { copies: Copies::Async, ..Plan::SHIPPED };

    /// The same for so many columns, which hold nothing back.
    pub const fn by(self, columns: u32) -> Plan {
        Plan { columns, early: None, ..self }
    }

    /// Consumer warps.
    pub const fn warps(self) -> u32 {
        self.width * self.groups
    }

    /// Threads of a block: consumers and a producer warp.
    pub const fn threads(self) -> u32 {
        32 * (self.warps() + 1)
    }

    /// Blocks that a multiprocessor must be able to hold: two kernels of the chain, if they overlap.
    ///
    /// Several columns have it for themselves. That one block is enough is said where `ptxas` needs to hear it: for
    /// quantized weights, it would then take more registers than there are on sm_120.
    pub(crate) const fn resident(self, format: Format) -> Option<u32> {
        match self.columns {
            1 if self.overlaps() && self.threads() <= 512 => Some(2),
            1 => Some(1),
            _ if matches!(format, Format::F16 | Format::BF16) => Some(1),
            _ => None,
        }
    }

    /// As names of kernels end: `4x2_first`, `4x2_first_early6`, `4x2_async`, or `4x2_first_8_columns`.
    pub(crate) fn suffix(self) -> String {
        let how = match (self.copies, self.trigger) {
            (Copies::Async, _) => "async",
            (Copies::Bulk, Trigger::First) => "first",
            (Copies::Bulk, Trigger::Waited) => "waited",
            (Copies::Bulk, Trigger::Drained) => "drained",
        };
        let early = self.early.map_or(String::new(), |stages| format!("_early{stages}"));
        let columns = if self.columns == 1 { String::new() } else { format!("_{}_columns", self.columns) };
        let profile = if self.profile { "_profile" } else { "" };
        format!("{}x{}_{how}{early}{columns}{profile}", self.width, self.groups)
    }

    pub(super) const fn overlaps(self) -> bool {
        matches!(self.copies, Copies::Bulk)
    }

    /// What the blocks leave of a kernel's turn.
    pub(crate) fn say(self, turn: u32, asked: &mut [u32]) {
        if self.overlaps() {
            asked.fill(turn);
        }
    }

    /// Whether this is where the next kernel may start.
    pub(super) fn triggers(self, trigger: Trigger) -> bool {
        self.overlaps() && self.trigger == trigger
    }

    /// Arrivals at a full stage: of one lane, and where all copy, of their copies.
    pub(super) const fn arrivals(self) -> u32 {
        match self.copies {
            Copies::Bulk => 1,
            Copies::Async => 1 + 32,
        }
    }
}

/// The most columns: as many accumulators as leave room for a tile's weights.
pub(crate) const MOST_COLUMNS: u32 = 8;
