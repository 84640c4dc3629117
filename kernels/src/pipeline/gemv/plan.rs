//! The plan of a GEMV: the division of a block among its warps, the precision of the activations,
//! and the timestamps that a profiling kernel records.

use crate::format::Format;
use crate::format::activations::{ActivationBytes, Encoding};
use ptx_gen::*;

/// The way in which tiles are copied to shared memory. It also decides whether kernels overlap,
/// because both need sm_90.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Copies {
    /// One bulk copy (TMA) per stage, in a kernel that overlaps with its neighbors, on sm_90 and
    /// newer. The kernel executes `griddepcontrol.launch_dependents` at its start, so up to three
    /// kernels overlap as far as shared memory allows.
    Bulk,
    /// `cp.async` by the lanes of the producer warp, in a kernel that starts after its predecessor
    /// has completed, on sm_80 and newer.
    Async,
}

/// The division of a block among its warps, and the precision of its activations.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Plan {
    /// The number of warps per group, which is also the number of tiles per stage.
    pub width: u32,
    /// The number of groups of consumer warps. They process stages round-robin.
    pub groups: u32,
    /// The way in which tiles are copied to shared memory.
    pub copies: Copies,
    /// The number of stages that are loaded before the previous GEMV has issued its last load
    /// (throttled prefetch). `None` fills the whole ring.
    pub prefetch_limit: Option<u32>,
    /// The number of tokens that the weights are multiplied by, 1 to 8.
    pub batch: u32,
    /// The number of bytes of an activation's integer. It has no effect with 16-bit weights.
    pub bytes: ActivationBytes,
    /// The number of weights of a row that are not padding, a multiple of 8, if rows are padded to a
    /// whole number of tiles. The residual stream and the norm have this length. It has no effect on
    /// kernels whose input is block floating point.
    pub row_len: Option<u32>,
    /// Whether each block records [`Timestamp`]s.
    pub profile: bool,
}

/// A point in time that a block records if its plan profiles. The value is `%globaltimer` in
/// nanoseconds, at `timestamps[8 * block + timestamp]`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u32)]
pub enum Timestamp {
    /// The block has started.
    Begun,
    /// The first tiles have arrived in shared memory.
    Landed,
    /// The last loads have been issued.
    Drained,
    /// Earlier kernels have completed.
    Waited,
    /// The activations have been encoded.
    Ready,
    /// The first warp has multiplied its last tile.
    Multiplied,
    /// The results have been stored.
    Stored,
    /// Not a time, but the SM id.
    SmId,
}

/// The number of timestamps per block.
pub const TIMESTAMPS: u32 = 8;

impl Timestamp {
    /// Records the timestamp in the threads where `who` is true.
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

            // Relaxed stores, because the release of a ticket would otherwise wait for them.
            to.st_relaxed(value.cvt::<u32>());
            to.at(1).st_relaxed((value >> 32).cvt::<u32>());
        });
    }
}

impl Plan {
    /// The plan for large matrices of quantized weights. [`ALL`](crate::ALL) lists kernels with
    /// this plan and with each plan below.
    pub const DEFAULT: Plan = Plan {
        width: 2,
        groups: 4,
        copies: Copies::Bulk,
        prefetch_limit: None,
        batch: 1,
        bytes: ActivationBytes::Two,
        row_len: None,
        profile: false,
    };
    /// Twelve consumer warps, for few, long rows of quantized weights.
    pub const TWELVE_WARPS: Plan = Plan {
        groups: 6,
        ..Plan::DEFAULT
    };
    /// Throttled prefetch, for large matrices of quantized weights after a GEMV with 4- or 5-bit
    /// weights.
    pub const THROTTLED: Plan = Plan {
        prefetch_limit: Some(6),
        ..Plan::DEFAULT
    };
    /// Twelve warps with throttled prefetch.
    pub const TWELVE_WARPS_THROTTLED: Plan = Plan {
        prefetch_limit: Some(6),
        ..Plan::TWELVE_WARPS
    };
    /// The plan for large matrices of 16-bit weights (`F16`, `BF16`).
    pub const HALF: Plan = Plan {
        groups: 2,
        ..Plan::DEFAULT
    };
    /// The plan for 16-bit weights with short rows.
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

    /// Returns the plan for a large matrix of weights in this format.
    pub fn large(format: Format) -> Plan {
        match format.encoding() {
            Some(Encoding::F16 | Encoding::Bf16) => Plan::HALF,
            _ => Plan::DEFAULT,
        }
    }

    /// Returns the plan to use after a GEMV with weights in the format `before`.
    ///
    /// On an H200, throttled prefetch is faster after GEMVs with 4- and 5-bit weights, and slower
    /// after 6-bit and larger ones. QKV and the LM head are always slower with it.
    pub fn after(self, before: Format) -> Plan {
        match self {
            Plan::TWELVE_WARPS if before.bits() <= 6.0 => Plan::TWELVE_WARPS_THROTTLED,
            Plan::DEFAULT if before.bits() <= 6.0 => Plan::THROTTLED,
            plan => plan,
        }
    }

    /// Returns this plan for a batch, without a prefetch limit.
    pub const fn with_batch(self, batch: u32) -> Plan {
        Plan {
            batch,
            prefetch_limit: None,
            ..self
        }
    }

    /// Returns this plan with `bytes` per activation, if the format's activations are integers.
    pub fn with_bytes(self, format: Format, bytes: ActivationBytes) -> Plan {
        match format.encoding() {
            Some(Encoding::SplitInt8(_)) => Plan { bytes, ..self },
            _ => self,
        }
    }

    /// Returns this plan for rows of `len` weights that are padded, or for rows without padding.
    pub const fn with_row_len(self, len: Option<u32>) -> Plan {
        Plan {
            row_len: len,
            ..self
        }
    }

    /// Returns the number of weights of a row without its padding, for rows of `n` weights with it.
    pub(crate) fn unpadded(self, n: u32) -> u32 {
        self.row_len.unwrap_or(n)
    }

    /// Returns the encoding of activations for GEMVs with this format, or `None` for a format
    /// without tiles.
    pub(crate) fn encoding(self, format: Format) -> Option<Encoding> {
        Some(format.encoding()?.with_bytes(self.bytes))
    }

    /// Returns the number of consumer warps.
    pub const fn warps(self) -> u32 {
        self.width * self.groups
    }

    /// Returns the number of threads of a block: the consumers and a producer warp.
    pub const fn threads(self) -> u32 {
        32 * (self.warps() + 1)
    }

    /// Returns the number of blocks that must fit on an SM (`.minnctapersm`): two if kernels
    /// overlap.
    ///
    /// With a batch, only one block fits. Quantized weights then get no such directive, because
    /// `ptxas` would use more registers than sm_120 has.
    pub(crate) fn resident(self, format: Format) -> Option<u32> {
        match self.batch {
            1 if self.overlaps() && self.threads() <= 512 => Some(2),
            1 => Some(1),
            _ if Plan::large(format) == Plan::HALF => Some(1),
            _ => None,
        }
    }

    /// Returns the suffix of kernel names: `4x2_first`, `4x2_first_prefetch6`, `4x2_async`,
    /// `4x2_first_batch_8`, `4x2_first_three_bytes` or `4x2_first_row_2880`.
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
        let row = self
            .row_len
            .map_or(String::new(), |len| format!("_row_{len}"));
        let profile = if self.profile { "_profile" } else { "" };
        format!(
            "{}x{}_{how}{prefetch}{batch}{bytes}{row}{profile}",
            self.width, self.groups
        )
    }

    /// Returns true if the kernel overlaps with its neighbors.
    pub(super) const fn overlaps(self) -> bool {
        matches!(self.copies, Copies::Bulk)
    }

    /// Writes the progress flags that the blocks publish, in the reference: the kernel's sequence
    /// number.
    pub(crate) fn publish(self, sequence: u32, progress: &mut [u32]) {
        if self.overlaps() {
            progress.fill(sequence);
        }
    }

    /// Returns the number of arrivals at a full barrier: one lane, plus the copies of all lanes if
    /// lanes copy.
    pub(super) const fn arrivals(self) -> u32 {
        match self.copies {
            Copies::Bulk => 1,
            Copies::Async => 1 + 32,
        }
    }
}

/// The largest batch. More accumulators would leave too few registers for a tile's weights.
pub(crate) const MAX_BATCH: u32 = 8;
