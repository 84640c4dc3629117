//! Occupancy: the number of blocks and clusters that run at the same time, and suggested block
//! sizes.

use driver_sys::{
    CUdevice_attribute, CUfunction_attribute, CUlaunchAttribute, CUlaunchConfig, CUstream,
};

use crate::error::{Error, LaunchProblem};
use crate::module::Function;
use crate::module::launch_config::LaunchConfig;

/// A block size that the driver suggests.
///
/// ```
/// # use warpwright_driver::prelude::*;
/// # const SCALE: &str = include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/src/scale.ptx"));
/// # fn main() -> Result<(), Error> {
/// # let context = Context::new(&Driver::from_library(warpwright_cuda_emu::library())?.device(0)?)?;
/// # let module = Module::load(&context, SCALE)?;
/// # let params = [Parameter::value::<u32>("n"), Parameter::value::<f32>("a"), Parameter::buffer::<f32>("y", Access::ReadWrite)];
/// # // SAFETY: the kernel stays below `n` and has these parameters.
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
    /// The number of threads per block that keeps the most threads of a multiprocessor busy.
    pub threads: u32,
    /// The number of such blocks that the whole device runs at the same time.
    pub blocks: u32,
}

impl Function {
    /// Returns the number of blocks with this size and dynamic shared memory that fit on one
    /// multiprocessor.
    ///
    /// The opt-in to shared memory is the same as for a launch.
    ///
    /// # Errors
    /// Returns [`Error::Launch`] if the device does not allow as much shared memory per block, or
    /// an error if the driver cannot compute the number.
    pub fn blocks_per_sm(&self, block: u32, dynamic_shared: u32) -> Result<u32, Error> {
        self.admit_shared(dynamic_shared)?;
        let _current = self.context().enter()?;
        let driver = self.context().driver();
        let mut blocks = 0;
        let block = signed(block);
        let shared = dynamic_shared as usize;

        // SAFETY: `blocks` is a local variable that the driver may write. `self` keeps the
        // function's module loaded.
        unsafe {
            cu_optional!(
                driver,
                cuOccupancyMaxActiveBlocksPerMultiprocessor(&mut blocks, self.raw(), block, shared)
            )
        }?;
        Ok(blocks as u32)
    }

    /// Returns the block size that keeps the most threads of a multiprocessor busy.
    ///
    /// Each block has `dynamic_shared` bytes of dynamic shared memory, regardless of its size. If
    /// `limit` is not 0, the block has at most that many threads. The kernel must run with any
    /// block size, which kernels of `ptx-gen` do not.
    ///
    /// ```
    /// # use warpwright_driver::prelude::*;
    /// # fn main() -> Result<(), Error> {
    /// # let context = Context::new(&Driver::from_library(warpwright_cuda_emu::library())?.device(0)?)?;
    /// let ptx = ".version 7.0\n.target sm_70\n.address_size 64\n.visible .entry nothing() { ret; }\n";
    /// let module = Module::load(&context, ptx)?;
    /// // SAFETY: the kernel has no parameters and accesses no memory.
    /// let nothing = unsafe { module.function("nothing", &[]) }?;
    /// let suggested = nothing.suggested_block(0, 0)?;
    /// assert_eq!(suggested.threads, 1024);
    /// // The shared memory that a block may use if two of them must fit on a multiprocessor.
    /// assert!(nothing.available_shared(2, 256)? >= 48 << 10);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// - [`Error::Launch`] if the device does not allow as much shared memory per block.
    /// - [`Error::Launch`] with [`LaunchProblem::Attribute`] if no block of the kernel fits.
    /// - [`Error::Driver`] if the driver cannot compute the size.
    pub fn suggested_block(
        &self,
        dynamic_shared: u32,
        limit: u32,
    ) -> Result<SuggestedBlock, Error> {
        self.admit_shared(dynamic_shared)?;
        let _current = self.context().enter()?;
        let driver = self.context().driver();
        let mut blocks = 0;
        let mut threads = 0;
        let limit = signed(limit);
        let raw = self.raw();
        let shared = dynamic_shared as usize;

        // SAFETY: both numbers are local variables that the driver may write. `self` keeps the
        // function's module loaded. Without a callback the shared memory is the same for all sizes.
        unsafe {
            cu_optional!(
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
                "no block of the kernel fits on a multiprocessor",
            )));
        }

        Ok(SuggestedBlock {
            threads: threads as u32,
            blocks: blocks as u32,
        })
    }

    /// Returns the dynamic shared memory in bytes that each block may use if `blocks_per_sm` blocks
    /// of `block` threads must fit on one multiprocessor.
    ///
    /// The result is at most the limit that an earlier launch or a call such as
    /// [`blocks_per_sm`](Self::blocks_per_sm) has opted in to. Without an opt-in, the limit is 48
    /// KiB including the kernel's static shared memory.
    ///
    /// # Errors
    /// Returns an error if the blocks do not fit at all, or if the driver cannot compute the size.
    pub fn available_shared(&self, blocks_per_sm: u32, block: u32) -> Result<usize, Error> {
        let _current = self.context().enter()?;
        let driver = self.context().driver();
        let mut bytes = 0;
        let blocks = signed(blocks_per_sm);
        let block = signed(block);

        // SAFETY: `bytes` is a local variable that the driver may write. `self` keeps the
        // function's module loaded.
        unsafe {
            cu_optional!(
                driver,
                cuOccupancyAvailableDynamicSMemPerBlock(&mut bytes, self.raw(), blocks, block)
            )
        }?;
        Ok(bytes)
    }

    /// Returns the number of clusters of a launch that the whole device runs at the same time.
    ///
    /// The size of the grid does not matter, but it must be a multiple of the cluster.
    ///
    /// # Errors
    /// Returns [`Error::Launch`] if the launch has no clusters or is not possible on the device, or
    /// an error if the driver cannot compute the number.
    pub fn active_clusters(&self, config: &LaunchConfig) -> Result<u32, Error> {
        if config.cluster.is_none() {
            return Err(self.refuse(LaunchProblem::Attribute("the launch has no clusters")));
        }

        self.admit(config)?;
        let _current = self.context().enter()?;
        let driver = self.context().driver();
        let mut clusters = 0;
        with_config(config, |config| {
            // SAFETY: `clusters` is a local variable that the driver may write. `self` keeps the
            // function's module loaded. The description lives until the call returns.
            unsafe {
                cu_optional!(
                    driver,
                    cuOccupancyMaxActiveClusters(&mut clusters, self.raw(), config)
                )
            }
        })?;
        Ok(clusters as u32)
    }

    /// Returns the largest number of blocks that a cluster of a launch may have. The cluster in
    /// `config` is ignored.
    ///
    /// The result exceeds 8 only after [`allow_large_clusters`](Self::allow_large_clusters).
    ///
    /// # Errors
    /// Returns [`Error::Launch`] if the launch is not possible or the device does not support
    /// clusters, or an error if the driver cannot compute the number.
    pub fn largest_cluster(&self, config: &LaunchConfig) -> Result<u32, Error> {
        self.expect_clusters()?;
        let config = LaunchConfig {
            cluster: None,
            ..*config
        };
        self.admit(&config)?;
        let _current = self.context().enter()?;
        let driver = self.context().driver();
        let mut blocks = 0;
        with_config(&config, |config| {
            // SAFETY: `blocks` is a local variable that the driver may write. `self` keeps the
            // function's module loaded. The description lives until the call returns.
            unsafe {
                cu_optional!(
                    driver,
                    cuOccupancyMaxPotentialClusterSize(&mut blocks, self.raw(), config)
                )
            }
        })?;
        Ok(blocks as u32)
    }

    /// Allows clusters of more than 8 blocks, the size that every device with clusters supports.
    ///
    /// [`largest_cluster`](Self::largest_cluster) then returns the maximum of this device.
    ///
    /// # Errors
    /// Returns [`Error::Launch`] if the device does not support clusters, or an error if the driver
    /// cannot change the setting.
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
            _ => Err(self.refuse(LaunchProblem::Attribute(
                "the device does not support clusters",
            ))),
        }
    }
}

/// Converts a number for the driver. A number that is too large becomes the largest one.
fn signed(number: u32) -> i32 {
    i32::try_from(number).unwrap_or(i32::MAX)
}

/// Passes a launch to `call` as the driver describes it, without a stream.
fn with_config<R>(config: &LaunchConfig, call: impl FnOnce(*const CUlaunchConfig) -> R) -> R {
    let mut attributes: Vec<CUlaunchAttribute> = config.attributes();
    let [grid_x, grid_y, grid_z] = config.grid;
    let [block_x, block_y, block_z] = config.block;
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
