//! The shape of a launch: blocks, threads, shared memory, and how it meets the work around it.

use driver_sys::{CUlaunchAttribute, CUlaunchAttributeID};
use ptx_gen::Geometry;

/// Blocks, threads and shared memory of a launch, and how it meets the work around it.
///
/// ```
/// # use warpwright_driver::*;
/// # fn main() -> Result<(), Error> {
/// let config = LaunchConfig::line(8, 128).shared(4 << 10);
/// assert_eq!((config.grid, config.block), ([8, 1, 1], [128, 1, 1]));
/// let tiles = LaunchConfig::new([16, 16, 1], [32, 8, 1]).cluster([2, 1, 1]);
/// assert_eq!(tiles.cluster, Some([2, 1, 1]));
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct LaunchConfig {
    /// Blocks, in three dimensions.
    pub grid: [u32; 3],
    /// Threads of a block, in three dimensions.
    pub block: [u32; 3],
    /// Dynamic shared memory of a block, in bytes. More than the default of 48 KiB is asked for by itself.
    pub shared: u32,
    /// Blocks of a cluster, in three dimensions, if the kernel is launched in clusters.
    pub cluster: Option<[u32; 3]>,
    /// Whether all blocks are to run at the same time, so that they may wait for each other.
    pub cooperative: bool,
    /// Whether the kernel may start while the one before it in the stream still runs: only one that executes
    /// `griddepcontrol.wait`, and only in streams. Graphs have [edges](crate::EdgeKind::Programmatic) for it.
    pub programmatic: bool,
    /// Before or after other work of the device, if not as its stream: see [`Context::priorities`](crate::Context::priorities).
    pub priority: Option<i32>,
    /// Whether its memory fences need not wait for what kernels of the other domain write
    /// (`cudaLaunchMemSyncDomainRemote`).
    pub remote_domain: bool,
}

impl LaunchConfig {
    /// So many blocks of so many threads, in one dimension.
    pub const fn line(blocks: u32, threads: u32) -> Self {
        Self::new([blocks, 1, 1], [threads, 1, 1])
    }

    /// A grid of blocks in three dimensions.
    pub const fn new(grid: [u32; 3], block: [u32; 3]) -> Self {
        Self {
            grid,
            block,
            shared: 0,
            cluster: None,
            cooperative: false,
            programmatic: false,
            priority: None,
            remote_domain: false,
        }
    }

    /// The same with so much dynamic shared memory, in bytes.
    #[must_use]
    pub const fn shared(self, bytes: u32) -> Self {
        Self {
            shared: bytes,
            ..self
        }
    }

    /// The same in clusters of so many blocks.
    #[must_use]
    pub const fn cluster(self, blocks: [u32; 3]) -> Self {
        Self {
            cluster: Some(blocks),
            ..self
        }
    }

    /// The same with all blocks at the same time.
    #[must_use]
    pub const fn cooperative(self) -> Self {
        Self {
            cooperative: true,
            ..self
        }
    }

    /// The same, overlapping the end of the kernel before it in the stream.
    #[must_use]
    pub const fn programmatic(self) -> Self {
        Self {
            programmatic: true,
            ..self
        }
    }

    /// The same before or after other work of the device.
    #[must_use]
    pub const fn priority(self, priority: i32) -> Self {
        Self {
            priority: Some(priority),
            ..self
        }
    }

    /// The same in the other domain of memory fences.
    #[must_use]
    pub const fn remote_domain(self) -> Self {
        Self {
            remote_domain: true,
            ..self
        }
    }

    /// Whether it asks for the same beside blocks, threads and shared memory.
    #[inline]
    pub(crate) fn same_attributes(&self, other: &Self) -> bool {
        (
            self.cluster,
            self.cooperative,
            self.programmatic,
            self.priority,
            self.remote_domain,
        ) == (
            other.cluster,
            other.cooperative,
            other.programmatic,
            other.priority,
            other.remote_domain,
        )
    }

    /// Whether it is more than blocks, threads and shared memory.
    #[inline]
    pub(crate) fn has_attributes(&self) -> bool {
        self.cluster.is_some()
            || self.cooperative
            || self.programmatic
            || self.priority.is_some()
            || self.remote_domain
    }

    /// What the driver is told beside blocks, threads and shared memory.
    pub(crate) fn attributes(&self) -> Vec<CUlaunchAttribute> {
        let word = |low: u32, high: u32| u64::from(low) | u64::from(high) << 32;
        let mut all = Vec::new();
        let mut add = |id, words: [u64; 2]| {
            let mut attribute = CUlaunchAttribute {
                id,
                ..CUlaunchAttribute::zeroed()
            };
            attribute.value[..2].copy_from_slice(&words);
            all.push(attribute);
        };
        if let Some([x, y, z]) = self.cluster {
            add(
                CUlaunchAttributeID::CLUSTER_DIMENSION,
                [word(x, y), word(z, 0)],
            );
        }
        if self.cooperative {
            add(CUlaunchAttributeID::COOPERATIVE, [1, 0]);
        }
        if self.programmatic {
            add(
                CUlaunchAttributeID::PROGRAMMATIC_STREAM_SERIALIZATION,
                [1, 0],
            );
        }
        if let Some(priority) = self.priority {
            add(CUlaunchAttributeID::PRIORITY, [word(priority as u32, 0), 0]);
        }
        if self.remote_domain {
            add(CUlaunchAttributeID::MEM_SYNC_DOMAIN, [1, 0]);
        }
        all
    }
}

impl From<Geometry> for LaunchConfig {
    fn from(geometry: Geometry) -> Self {
        Self::new(geometry.grid, geometry.block).shared(geometry.shared)
    }
}
