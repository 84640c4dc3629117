//! How many blocks and clusters of a kernel run at the same time, and which block size suits it.

use driver_sys::{
    CUdevice_attribute, CUfunction_attribute, CUlaunchAttribute, CUlaunchConfig, CUstream,
};

use crate::error::LaunchProblem;
use crate::{Error, Function, LaunchConfig};

/// A block size that the driver suggests.
///
/// ```
/// # use warpwright_driver::*;
/// # const SCALE: &str = include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/src/scale.ptx"));
/// # fn main() -> Result<(), Error> {
/// # let context = Context::new(&Driver::of(warpwright_cuda_emu::library())?.device(0)?)?;
/// # let module = Module::load(&context, SCALE)?;
/// # let params = [Parameter::value::<u32>("n"), Parameter::value::<f32>("a"), Parameter::buffer::<f32>("y", Access::ReadWrite)];
/// # // SAFETY: the kernel stays below `n`, and these are its parameters.
/// # let scale = unsafe { module.function("scale", &params) }?;
/// let suggested = scale.suggested_block(0, 256)?; // at most 256 threads
/// assert!(suggested.threads <= 256);
/// let n = 1u32 << 10;
/// let config = LaunchConfig::line(n.div_ceil(suggested.threads), suggested.threads);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SuggestedBlock {
    /// Threads of a block: with so many, the most threads of a multiprocessor are busy.
    pub threads: u32,
    /// Blocks of that size that the whole device holds at the same time.
    pub blocks: u32,
}

impl Function {
    /// Blocks of that many threads and that much dynamic shared memory that fit on one multiprocessor, with the
    /// opt-in that such a launch makes.
    ///
    /// # Errors
    /// More shared memory than the device allows a block, or what the driver refuses.
    pub fn blocks_per_sm(&self, block: u32, dynamic_shared: u32) -> Result<u32, Error> {
        self.admit_shared(dynamic_shared)?;
        let (_current, driver) = (self.context().enter()?, self.context().driver());
        let (mut blocks, block, shared) = (0, signed(block), dynamic_shared as usize);
        // SAFETY: `blocks` is ours to write; the function is loaded.
        unsafe {
            cu_if_there!(
                driver,
                cuOccupancyMaxActiveBlocksPerMultiprocessor(&mut blocks, self.raw(), block, shared)
            )
        }?;
        Ok(blocks as u32)
    }

    /// The block size that keeps most threads of a multiprocessor busy, where each block has so much dynamic shared
    /// memory whatever its size; at most `limit` threads if that is not 0. The kernel must be one that runs with any
    /// block size: one of `ptx-gen` has its own.
    ///
    /// ```
    /// # use warpwright_driver::*;
    /// # fn main() -> Result<(), Error> {
    /// # let context = Context::new(&Driver::of(warpwright_cuda_emu::library())?.device(0)?)?;
    /// let ptx = ".version 7.0\n.target sm_70\n.address_size 64\n.visible .entry nothing() { ret; }\n";
    /// let module = Module::load(&context, ptx)?;
    /// // SAFETY: the kernel has no parameters and touches nothing.
    /// let nothing = unsafe { module.function("nothing", &[]) }?;
    /// let suggested = nothing.suggested_block(0, 0)?;
    /// assert_eq!(suggested.threads, 1024);
    /// // So much of the multiprocessors' shared memory is left to a block if two are to fit on each.
    /// assert!(nothing.available_shared(2, 256)? >= 48 << 10);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// More shared memory than the device allows a block; a kernel of which no block fits
    /// ([`LaunchProblem::Attribute`]); or what the driver refuses.
    pub fn suggested_block(
        &self,
        dynamic_shared: u32,
        limit: u32,
    ) -> Result<SuggestedBlock, Error> {
        self.admit_shared(dynamic_shared)?;
        let (_current, driver) = (self.context().enter()?, self.context().driver());
        let (mut blocks, mut threads, limit) = (0, 0, signed(limit));
        let (raw, shared) = (self.raw(), dynamic_shared as usize);
        // SAFETY: both numbers are ours to write; the function is loaded. Without a callback the size holds for all.
        unsafe {
            cu_if_there!(
                driver,
                cuOccupancyMaxPotentialBlockSize(
                    &mut blocks,
                    &mut threads,
                    raw,
                    None,
                    shared,
                    limit
                )
            )
        }?;
        if threads == 0 {
            return Err(self.refuse(LaunchProblem::Attribute(
                "no block of it fits on a multiprocessor",
            )));
        }
        Ok(SuggestedBlock {
            threads: threads as u32,
            blocks: blocks as u32,
        })
    }

    /// The dynamic shared memory in bytes that each block may have for so many blocks, of so many threads, to fit on
    /// one multiprocessor: no more than a launch or a question like [`blocks_per_sm`](Self::blocks_per_sm) has asked for
    /// before, or the default of 48 KiB with what the kernel declares.
    ///
    /// # Errors
    /// Blocks that do not fit whatever they ask for, or what else the driver refuses.
    pub fn available_shared(&self, blocks_per_sm: u32, block: u32) -> Result<usize, Error> {
        let (_current, driver) = (self.context().enter()?, self.context().driver());
        let (mut bytes, blocks, block) = (0, signed(blocks_per_sm), signed(block));
        // SAFETY: `bytes` is ours to write; the function is loaded.
        unsafe {
            cu_if_there!(
                driver,
                cuOccupancyAvailableDynamicSMemPerBlock(&mut bytes, self.raw(), blocks, block)
            )
        }?;
        Ok(bytes)
    }

    /// Clusters of such a launch that the whole device holds at the same time. The grid's size does not matter, but it
    /// must be whole clusters.
    ///
    /// # Errors
    /// A launch without clusters or one that could not be made, such as on a device that has none
    /// ([`Error::Launch`]); or what the driver refuses.
    pub fn active_clusters(&self, config: &LaunchConfig) -> Result<u32, Error> {
        if config.cluster.is_none() {
            return Err(self.refuse(LaunchProblem::Attribute(
                "the launch has no clusters to count",
            )));
        }
        self.admit(config)?;
        let (_current, driver, mut clusters) =
            (self.context().enter()?, self.context().driver(), 0);
        with_config(config, |config| {
            // SAFETY: `clusters` is ours to write; the function is loaded, and the description lives for the call.
            unsafe {
                cu_if_there!(
                    driver,
                    cuOccupancyMaxActiveClusters(&mut clusters, self.raw(), config)
                )
            }
        })?;
        Ok(clusters as u32)
    }

    /// The most blocks that a cluster of such a launch may have; what the launch says of clusters does not matter.
    /// More than 8 only after [`allow_large_clusters`](Self::allow_large_clusters).
    ///
    /// # Errors
    /// A launch that could not be made, a device without clusters ([`Error::Launch`]), or what the driver refuses.
    pub fn largest_cluster(&self, config: &LaunchConfig) -> Result<u32, Error> {
        self.expect_clusters()?;
        let config = LaunchConfig {
            cluster: None,
            ..*config
        };
        self.admit(&config)?;
        let (_current, driver, mut blocks) = (self.context().enter()?, self.context().driver(), 0);
        with_config(&config, |config| {
            // SAFETY: `blocks` is ours to write; the function is loaded, and the description lives for the call.
            unsafe {
                cu_if_there!(
                    driver,
                    cuOccupancyMaxPotentialClusterSize(&mut blocks, self.raw(), config)
                )
            }
        })?;
        Ok(blocks as u32)
    }

    /// Lets launches of the kernel have clusters of more blocks than every device has (8). How many more this device
    /// has, [`largest_cluster`](Self::largest_cluster) tells.
    ///
    /// # Errors
    /// A device without clusters ([`Error::Launch`]), or what the driver refuses.
    pub fn allow_large_clusters(&self) -> Result<(), Error> {
        self.expect_clusters()?;
        self.set_attribute(CUfunction_attribute::NON_PORTABLE_CLUSTER_SIZE_ALLOWED, 1)
    }

    fn expect_clusters(&self) -> Result<(), Error> {
        match self
            .context()
            .device()
            .attribute(CUdevice_attribute::CLUSTER_LAUNCH)
        {
            Ok(has) if has != 0 => Ok(()),
            _ => Err(self.refuse(LaunchProblem::Attribute("the device has no clusters"))),
        }
    }
}

/// A number as the driver takes it; what is too large stays too large.
fn signed(number: u32) -> i32 {
    i32::try_from(number).unwrap_or(i32::MAX)
}

/// Lends a launch as the driver describes it, in no stream.
fn with_config<R>(config: &LaunchConfig, call: impl FnOnce(*const CUlaunchConfig) -> R) -> R {
    let mut attributes: Vec<CUlaunchAttribute> = config.attributes();
    let ([grid_x, grid_y, grid_z], [block_x, block_y, block_z]) = (config.grid, config.block);
    let config = CUlaunchConfig {
        gridDimX: grid_x,
        gridDimY: grid_y,
        gridDimZ: grid_z,
        blockDimX: block_x,
        blockDimY: block_y,
        blockDimZ: block_z,
        sharedMemBytes: config.shared,
        hStream: CUstream::NULL,
        attrs: attributes.as_mut_ptr(),
        numAttrs: attributes.len() as u32,
    };
    call(&config)
}
