//! Launch configurations: the shape of a launch and its launch attributes.

use driver_sys::{CUlaunchAttribute, CUlaunchAttributeID};
use ptx_gen::Geometry;

/// The grid, the block size and the shared memory of a launch, and its launch attributes.
///
/// ```
/// # use warpwright_driver::prelude::*;
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
    /// The number of blocks in three dimensions.
    pub grid: [u32; 3],
    /// The number of threads per block in three dimensions.
    pub block: [u32; 3],
    /// The dynamic shared memory per block in bytes.
    ///
    /// A launch with more than the default limit of 48 KiB makes the required opt-in itself.
    pub shared: u32,
    /// The number of blocks per cluster in three dimensions, if the kernel is launched in clusters.
    pub cluster: Option<[u32; 3]>,
    /// Whether all blocks must run at the same time, so that they can synchronize with each other.
    pub cooperative: bool,
    /// Whether the kernel may start while the previous kernel of the stream is still running.
    ///
    /// The kernel must execute `griddepcontrol.wait`. This applies to streams only. Graphs have
    /// [programmatic edges](crate::graph::EdgeKind::Programmatic) instead.
    pub programmatic: bool,
    /// The priority of the launch, if it differs from the priority of its stream (see
    /// [`Context::priorities`](crate::device::Context::priorities)).
    pub priority: Option<i32>,
    /// Whether the launch uses the remote memory synchronization domain
    /// (`cudaLaunchMemSyncDomainRemote`). Its fences then need not wait for writes of the other
    /// domain.
    pub remote_domain: bool,
}

impl LaunchConfig {
    /// Returns a one-dimensional configuration of `blocks` blocks with `threads` threads each.
    pub const fn line(blocks: u32, threads: u32) -> Self {
        Self::new([blocks, 1, 1], [threads, 1, 1])
    }

    /// Returns a configuration with a three-dimensional grid and block.
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

    /// Sets the dynamic shared memory per block in bytes.
    #[must_use]
    pub const fn shared(self, bytes: u32) -> Self {
        Self {
            shared: bytes,
            ..self
        }
    }

    /// Sets the number of blocks per cluster.
    #[must_use]
    pub const fn cluster(self, blocks: [u32; 3]) -> Self {
        Self {
            cluster: Some(blocks),
            ..self
        }
    }

    /// Requires that all blocks run at the same time.
    #[must_use]
    pub const fn cooperative(self) -> Self {
        Self {
            cooperative: true,
            ..self
        }
    }

    /// Allows the kernel to overlap the end of the previous kernel of the stream.
    #[must_use]
    pub const fn programmatic(self) -> Self {
        Self {
            programmatic: true,
            ..self
        }
    }

    /// Sets the priority of the launch.
    #[must_use]
    pub const fn priority(self, priority: i32) -> Self {
        Self {
            priority: Some(priority),
            ..self
        }
    }

    /// Selects the remote memory synchronization domain.
    #[must_use]
    pub const fn remote_domain(self) -> Self {
        Self {
            remote_domain: true,
            ..self
        }
    }

    /// Returns true if both configurations have the same attributes besides grid, block and shared
    /// memory.
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

    /// Returns true if the configuration has attributes besides grid, block and shared memory.
    #[inline]
    pub(crate) fn has_attributes(&self) -> bool {
        self.cluster.is_some()
            || self.cooperative
            || self.programmatic
            || self.priority.is_some()
            || self.remote_domain
    }

    /// Returns the driver's attributes for everything besides grid, block and shared memory.
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
