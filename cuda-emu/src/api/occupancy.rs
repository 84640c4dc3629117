//! Occupancy: the number of blocks that fit, and the block size that fits best.

use std::ffi::c_int;

use warpwright_driver_sys::*;

use crate::api::export::exports;
use crate::api::node_params::cluster_of;
use crate::error::{Result, refuse, require};
use crate::ffi::host::SharedOfBlock;
use crate::ffi::kernel_node::LaunchGeometry;
use crate::ffi::pointer::{In, Out};
use crate::machine::Machine;
use crate::work::function::Function;
use crate::work::occupancy;

exports! {
    table {
        6050 cuOccupancyMaxActiveBlocksPerMultiprocessor cuOccupancyMaxActiveBlocksPerMultiprocessor(blocks: *mut c_int, function: CUfunction, block_size: c_int, dynamic_shared: usize) => active_blocks;
        7000 cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(blocks: *mut c_int, function: CUfunction, block_size: c_int, dynamic_shared: usize, flags: CUoccupancy_flags) => blocks_with_flags;
        6050 cuOccupancyMaxPotentialBlockSize cuOccupancyMaxPotentialBlockSize(grid_size: *mut c_int, block_size: *mut c_int, function: CUfunction, shared_of_block: CUoccupancyB2DSize, dynamic_shared: usize, limit: c_int) => potential_block;
        7000 cuOccupancyMaxPotentialBlockSizeWithFlags cuOccupancyMaxPotentialBlockSizeWithFlags(grid_size: *mut c_int, block_size: *mut c_int, function: CUfunction, shared_of_block: CUoccupancyB2DSize, dynamic_shared: usize, limit: c_int, flags: CUoccupancy_flags) => block_size_with_flags;
        10020 cuOccupancyAvailableDynamicSMemPerBlock cuOccupancyAvailableDynamicSMemPerBlock(dynamic_shared: *mut usize, function: CUfunction, blocks: c_int, block_size: c_int) => available_shared;
        11070 cuOccupancyMaxPotentialClusterSize cuOccupancyMaxPotentialClusterSize(size: *mut c_int, function: CUfunction, config: *const CUlaunchConfig) => potential_cluster;
        11070 cuOccupancyMaxActiveClusters cuOccupancyMaxActiveClusters(clusters: *mut c_int, function: CUfunction, config: *const CUlaunchConfig) => active_clusters;
    }
    more {}
}

/// Returns the number of threads of a block, or an error if the function does not allow it.
fn threads_of(f: &Function, block_size: c_int) -> Result<u32> {
    let threads = u32::try_from(block_size).unwrap_or(0);
    require((1..=f.max_threads()).contains(&threads), || {
        format!(
            "blocks of {block_size} threads: expected 1 to {}",
            f.max_threads()
        )
    })?;
    Ok(threads)
}

fn active_blocks(
    m: &'static Machine,
    blocks: Out<c_int>,
    function: CUfunction,
    block_size: c_int,
    dynamic: usize,
) -> Result {
    blocks_with_flags(
        m,
        blocks,
        function,
        block_size,
        dynamic,
        CUoccupancy_flags::empty(),
    )
}

fn check_flags(flags: CUoccupancy_flags) -> Result {
    require(CUoccupancy_flags::all().contains(flags), || {
        format!("the flags {:#x} are unknown", flags.bits())
    })
}

fn blocks_with_flags(
    m: &'static Machine,
    blocks: Out<c_int>,
    function: CUfunction,
    block_size: c_int,
    dynamic: usize,
    flags: CUoccupancy_flags,
) -> Result {
    check_flags(flags)?;
    let f = m.state().function(function)?;
    blocks.set(occupancy::blocks(m.device, &f, threads_of(&f, block_size)?, dynamic) as c_int)
}

fn potential_block(
    m: &'static Machine,
    grid: Out<c_int>,
    block: Out<c_int>,
    function: CUfunction,
    shared: Option<SharedOfBlock>,
    dynamic: usize,
    limit: c_int,
) -> Result {
    block_size_with_flags(
        m,
        grid,
        block,
        function,
        shared,
        dynamic,
        limit,
        CUoccupancy_flags::empty(),
    )
}

/// Writes the block size, in whole warps, with the most resident threads per multiprocessor. The
/// largest wins a tie.
///
/// The program's function is called without the lock, because it may call the driver.
#[allow(clippy::too_many_arguments)]
fn block_size_with_flags(
    m: &'static Machine,
    grid: Out<c_int>,
    block: Out<c_int>,
    function: CUfunction,
    shared: Option<SharedOfBlock>,
    dynamic: usize,
    limit: c_int,
    flags: CUoccupancy_flags,
) -> Result {
    check_flags(flags)?;
    require(!grid.is_null() && !block.is_null() && limit >= 0, || {
        format!("the limit is {limit}, below 0, or a result pointer is NULL")
    })?;
    let f = m.state().function(function)?;
    let most = if limit == 0 {
        f.max_threads()
    } else {
        f.max_threads().min(limit as u32)
    };
    let fit = |threads: u32| {
        let dynamic = shared.map_or(dynamic, |shared| shared.of(threads));
        occupancy::blocks(m.device, &f, threads, dynamic)
    };
    let sizes = (1..=most / 32)
        .map(|warps| 32 * warps)
        .chain((most < 32).then_some(most));

    // `max_by_key` returns the last maximum, which is the largest block.
    let (threads, blocks) = sizes
        .map(|threads| (threads, fit(threads)))
        .max_by_key(|(threads, blocks)| threads * blocks)
        .unwrap_or((1, 0));
    grid.set((blocks * m.device.config.multiprocessors) as c_int)?;
    block.set(if blocks == 0 { 0 } else { threads as c_int })
}

fn available_shared(
    m: &'static Machine,
    bytes: Out<usize>,
    function: CUfunction,
    blocks: c_int,
    block_size: c_int,
) -> Result {
    let f = m.state().function(function)?;
    let threads = threads_of(&f, block_size)?;
    let count = u32::try_from(blocks).unwrap_or(0);
    let found = (count > 0)
        .then(|| occupancy::dynamic_shared(m.device, &f, count, threads))
        .flatten();
    require(found.is_some(), || {
        format!("{blocks} blocks of {block_size} threads do not fit a multiprocessor")
    })?;
    bytes.set(found.unwrap_or(0) as usize)
}

/// Returns the geometry of a launch and its cluster size, if it specifies one.
fn described(config: In<CUlaunchConfig>) -> Result<(LaunchGeometry, Option<[u32; 3]>)> {
    let c = config.get()?;
    let attributes = Out::from_config(&c).slice(c.numAttrs as usize)?;
    let cluster = attributes
        .iter()
        .rfind(|a| a.id == CUlaunchAttributeID::CLUSTER_DIMENSION);
    let geometry = LaunchGeometry {
        grid: [c.gridDimX, c.gridDimY, c.gridDimZ],
        block: [c.blockDimX, c.blockDimY, c.blockDimZ],
        shared: c.sharedMemBytes,
    };
    Ok((
        geometry,
        cluster.map(|a| cluster_of(a.value[0], a.value[1])),
    ))
}

fn expect_clusters(m: &'static Machine) -> Result {
    if m.device.config.compute_capability >= (9, 0) {
        Ok(())
    } else {
        refuse(CUresult::NOT_SUPPORTED, "the device has no clusters")
    }
}

fn potential_cluster(
    m: &'static Machine,
    size: Out<c_int>,
    function: CUfunction,
    config: In<CUlaunchConfig>,
) -> Result {
    expect_clusters(m)?;
    let f = m.state().function(function)?;
    let (geometry, _) = described(config)?;
    let fit = occupancy::blocks_of_device(m.device, &f, geometry);

    // A cluster size must be a power of two.
    size.set(
        fit.min(f.max_cluster())
            .checked_ilog2()
            .map_or(0, |log| 1 << log),
    )
}

fn active_clusters(
    m: &'static Machine,
    clusters: Out<c_int>,
    function: CUfunction,
    config: In<CUlaunchConfig>,
) -> Result {
    expect_clusters(m)?;
    let f = m.state().function(function)?;
    let (geometry, cluster) = described(config)?;
    let size = cluster
        .or(f.kernel.cluster)
        .unwrap_or([1; 3])
        .iter()
        .product::<u32>();
    require((1..=f.max_cluster()).contains(&size), || {
        format!("clusters of {size} blocks")
    })?;
    clusters.set((occupancy::blocks_of_device(m.device, &f, geometry) / size) as c_int)
}
