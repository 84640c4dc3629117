//! How a product divides its blocks among warps, how exact its activations are, and the timestamps that it records when it profiles.

use crate::format::Format;
use crate::format::activations::{ActivationBytes, Encoding};
use ptx_gen::*;

/// How tiles come to shared memory, and with it whether kernels overlap: both need sm_90.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Copies {
    /// One bulk copy (TMA) per stage, in a kernel that overlaps with its neighbours: sm_90. It executes
    /// `griddepcontrol.launch_dependents` at its start: three kernels may overlap as far as shared memory allows.
    Bulk,
    /// `cp.async` by the lanes of the producer warp, in a kernel that starts after its predecessor has ended: sm_80.
    Async,
}

/// How a block is divided among its warps, and how exact its activations are.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Plan {
    /// Warps per group, which is also the number of tiles per stage.
    pub width: u32,
    /// Groups of consumer warps, which process stages round-robin.
    pub groups: u32,
    /// How tiles are copied to shared memory.
    pub copies: Copies,
    /// Prefetch limit: the number of stages that are loaded before the previous product has issued its last load.
    /// `None` fills the whole ring.
    pub prefetch_limit: Option<u32>,
    /// Batch: tokens that the weights are multiplied with, 1 to 8.
    pub batch: u32,
    /// Bytes of an activation's integer; of no meaning against 16-bit weights.
    pub bytes: ActivationBytes,
    /// Whether each block records [`Timestamp`]s.
    pub profile: bool,
}

/// A time that a block records if its plan says so, from `%globaltimer` in nanoseconds, at `timestamps[8 * block +
/// timestamp]`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u32)]
pub enum Timestamp {
    /// The block has begun.
    Begun,
    /// The first tiles have landed.
    Landed,
    /// The last loads are issued.
    Drained,
    /// Earlier kernels are complete.
    Waited,
    /// The activations are encoded.
    Ready,
    /// The first warp's products are done.
    Multiplied,
    /// The results are stored.
    Stored,
    /// Not a time: the SM id.
    SmId,
}

/// Timestamps per block.
pub const TIMESTAMPS: u32 = 8;

impl Timestamp {
    /// Records it in threads where `who` holds.
    pub(crate) fn record<'k>(
        self,
        k: Builder<'k>,
        who: Pred<'k>,
        timestamps: Ptr<'k, u64, WriteOnly>,
    ) {
        k.when(who, || {
            let value = if self == Timestamp::SmId {
                k.smid().cvt::<u64>()
            } else {
                k.globaltimer()
            };
            let to = timestamps
                .at(k.ctaid() * TIMESTAMPS)
                .at(self as u32)
                .cast::<u32>();
            // Relaxed stores, so that the release of a ticket does not wait for them.
            to.st_relaxed(value.cvt::<u32>());
            to.at(1).st_relaxed((value >> 32).cvt::<u32>());
        });
    }
}

impl Plan {
    /// For large matrices of quantized weights. [`ALL`](crate::ALL) lists kernels with this plan and with each plan
    /// below.
    pub const DEFAULT: Plan = Plan {
        width: 2,
        groups: 4,
        copies: Copies::Bulk,
        prefetch_limit: None,
        batch: 1,
        bytes: ActivationBytes::Two,
        profile: false,
    };
    /// Twelve consumer warps, for few, long rows of quantized weights.
    pub const TWELVE_WARPS: Plan = Plan {
        groups: 6,
        ..Plan::DEFAULT
    };
    /// Throttled prefetch, for large matrices of quantized weights after a product over 4- or 5-bit weights.
    pub const THROTTLED: Plan = Plan {
        prefetch_limit: Some(6),
        ..Plan::DEFAULT
    };
    /// Twelve warps and throttled prefetch.
    pub const TWELVE_WARPS_THROTTLED: Plan = Plan {
        prefetch_limit: Some(6),
        ..Plan::TWELVE_WARPS
    };
    /// For large matrices of 16-bit weights (`F16`, `BF16`).
    pub const HALF: Plan = Plan {
        groups: 2,
        ..Plan::DEFAULT
    };
    /// For 16-bit weights with short rows.
    pub const HALF_SHORT_ROWS: Plan = Plan {
        width: 1,
        groups: 8,
        ..Plan::DEFAULT
    };

    /// [`DEFAULT`](Plan::DEFAULT) for devices older than sm_90.
    pub const DEFAULT_ASYNC: Plan = Plan {
        copies: Copies::Async,
        ..Plan::DEFAULT
    };

    /// For a large matrix of weights in this format.
    pub fn large(format: Format) -> Plan {
        match Encoding::of(format) {
            Some(Encoding::F16 | Encoding::Bf16) => Plan::HALF,
            _ => Plan::DEFAULT,
        }
    }

    /// The plan after a product over weights in the format `before`. After products over 4- and 5-bit weights,
    /// throttled prefetch is faster on an H200; after 6-bit and larger ones it is slower. QKV and the LM head are
    /// always slower with it.
    pub fn after(self, before: Format) -> Plan {
        match self {
            Plan::TWELVE_WARPS if before.bits() <= 6.0 => Plan::TWELVE_WARPS_THROTTLED,
            Plan::DEFAULT if before.bits() <= 6.0 => Plan::THROTTLED,
            plan => plan,
        }
    }

    /// The same plan for a batch, without a prefetch limit.
    pub const fn with_batch(self, batch: u32) -> Plan {
        Plan {
            batch,
            prefetch_limit: None,
            ..self
        }
    }

    /// The same plan with so many bytes, if activations are integers against weights in this format.
    pub fn with_bytes(self, format: Format, bytes: ActivationBytes) -> Plan {
        match Encoding::of(format) {
            Some(Encoding::SplitInt8(_)) => Plan { bytes, ..self },
            _ => self,
        }
    }

    /// How activations are encoded for products with a format's tiles; `None` for a format without tiles.
    pub(crate) fn encoding(self, format: Format) -> Option<Encoding> {
        Some(Encoding::of(format)?.with_bytes(self.bytes))
    }

    /// Consumer warps.
    pub const fn warps(self) -> u32 {
        self.width * self.groups
    }

    /// Threads of a block: consumers and a producer warp.
    pub const fn threads(self) -> u32 {
        32 * (self.warps() + 1)
    }

    /// Blocks that must fit on an SM: two if kernels overlap.
    ///
    /// With a batch, one block fits. For quantized weights `ptxas` is not told, because it would then take more
    /// registers than sm_120 has.
    pub(crate) fn resident(self, format: Format) -> Option<u32> {
        match self.batch {
            1 if self.overlaps() && self.threads() <= 512 => Some(2),
            1 => Some(1),
            _ if Plan::large(format) == Plan::HALF => Some(1),
            _ => None,
        }
    }

    /// The suffix of kernel names: `4x2_first`, `4x2_first_prefetch6`, `4x2_async`, `4x2_first_batch_8`, or
    /// `4x2_first_three_bytes`.
    pub(crate) fn suffix(self) -> String {
        let how = match self.copies {
            Copies::Async => "async",
            Copies::Bulk => "first",
        };
        let prefetch = self
            .prefetch_limit
            .map_or(String::new(), |stages| format!("_prefetch{stages}"));
        let batch = if self.batch == 1 {
            String::new()
        } else {
            format!("_batch_{}", self.batch)
        };
        let bytes = if self.bytes == ActivationBytes::Three {
            "_three_bytes"
        } else {
            ""
        };
        let profile = if self.profile { "_profile" } else { "" };
        format!(
            "{}x{}_{how}{prefetch}{batch}{bytes}{profile}",
            self.width, self.groups
        )
    }

    pub(super) const fn overlaps(self) -> bool {
        matches!(self.copies, Copies::Bulk)
    }

    /// The progress flags that the blocks publish: the kernel's sequence number.
    pub(crate) fn publish(self, sequence: u32, progress: &mut [u32]) {
        if self.overlaps() {
            progress.fill(sequence);
        }
    }

    /// Arrivals at a full barrier: one lane, plus the copies of all lanes if lanes copy.
    pub(super) const fn arrivals(self) -> u32 {
        match self.copies {
            Copies::Bulk => 1,
            Copies::Async => 1 + 32,
        }
    }
}

/// The largest batch: more accumulators would leave too few registers for a tile's weights.
pub(crate) const MAX_BATCH: u32 = 8;
