//! Occupancy.

use warpwright_driver::module::SuggestedBlock;
use warpwright_driver::prelude::*;
use warpwright_driver::sys::{
    Api, CUdevice_attribute, CUfunction, CUlaunchAttributeID, CUlaunchConfig, CUresult,
};

use super::{PTX, context, text};
use crate::fake;

fn sharing(context: &Context) -> Function {
    // SAFETY: the kernel has no parameters and touches nothing.
    unsafe { Module::load(context, PTX).unwrap().function("sharing", &[]) }.unwrap()
}

#[test]
fn a_block_size_is_suggested_within_the_limit() {
    let context = context();
    let sharing = sharing(&context);
    let all = context.device().properties().multiprocessors;

    // 17 KiB for each block of 228 KiB: 13 blocks, of which 2 of 1024 threads fit by threads.
    assert_eq!(
        sharing.suggested_block(0, 0).unwrap(),
        SuggestedBlock {
            threads: 1024,
            blocks: 2 * all
        }
    );
    assert_eq!(
        sharing.suggested_block(0, 100).unwrap(),
        SuggestedBlock {
            threads: 96,
            blocks: 13 * all
        }
    );
    assert_eq!(
        sharing.available_shared(2, 1024).unwrap(),
        32 << 10,
        "no more than it may have so far"
    );
    sharing.blocks_per_sm(32, 200 << 10).unwrap();
    let half = sharing.available_shared(2, 1024).unwrap();
    assert!(half > 32 << 10);
    assert_eq!(sharing.blocks_per_sm(1024, half as u32).unwrap(), 2);
    assert_eq!(sharing.blocks_per_sm(1024, half as u32 + 1).unwrap(), 1);
    let most = 227 << 10;
    assert_eq!(
        text(sharing.suggested_block(most, 0)),
        "kernel sharing: 232448 bytes of dynamic and 16384 bytes of static shared memory; the device allows 232448 in all"
    );
    assert!(
        text(sharing.available_shared(33, 32))
            .starts_with("cuOccupancyAvailableDynamicSMemPerBlock: ")
    );
}

#[test]
fn a_device_without_clusters_says_so() {
    unsafe extern "C" fn attribute(value: *mut i32, which: CUdevice_attribute, _: i32) -> CUresult {
        let most = if which == CUdevice_attribute::CLUSTER_LAUNCH {
            0
        } else {
            1024
        };
        // SAFETY: the crate passes a place for the number.
        unsafe { *value = most };
        CUresult::SUCCESS
    }
    let library = fake::library(Api {
        cuDeviceGetAttribute: attribute,
        ..fake::api()
    });
    let sharing =
        sharing(&Context::new(&Driver::from_library(library).unwrap().device(0).unwrap()).unwrap());
    let config = LaunchConfig::line(16, 128);
    let none = "kernel sharing: the device does not support clusters";
    assert_eq!(
        text(sharing.active_clusters(&config.cluster([2, 1, 1]))),
        none
    );
    assert_eq!(text(sharing.largest_cluster(&config)), none);
    assert_eq!(text(sharing.allow_large_clusters()), none);
    assert_eq!(
        text(sharing.active_clusters(&config)),
        "kernel sharing: the launch has no clusters"
    );
}

#[test]
fn clusters_of_the_emulator_are_counted() {
    let context = context();
    let (sharing, all) = (
        sharing(&context),
        context.device().properties().multiprocessors,
    );

    // 17 KiB for each block of 228 KiB.
    let config = LaunchConfig::line(16, 128).cluster([4, 1, 1]);
    assert_eq!(sharing.active_clusters(&config).unwrap(), 13 * all / 4);
    assert_eq!(sharing.largest_cluster(&config).unwrap(), 8);
    sharing.allow_large_clusters().unwrap();
    assert_eq!(sharing.largest_cluster(&config).unwrap(), 16);
}

#[test]
fn clusters_are_counted_by_the_driver() {
    unsafe extern "C" fn active(
        clusters: *mut i32,
        _: CUfunction,
        config: *const CUlaunchConfig,
    ) -> CUresult {
        // SAFETY: the crate passes a place for the number, and a launch with its attributes.
        unsafe {
            let attribute = *(*config).attrs;
            assert_eq!(
                (attribute.id, (*config).numAttrs),
                (CUlaunchAttributeID::CLUSTER_DIMENSION, 1)
            );
            *clusters = ((*config).gridDimX / attribute.value[0] as u32) as i32;
        }
        CUresult::SUCCESS
    }
    unsafe extern "C" fn largest(
        blocks: *mut i32,
        _: CUfunction,
        config: *const CUlaunchConfig,
    ) -> CUresult {
        // SAFETY: as above.
        unsafe { *blocks = 8 + (*config).numAttrs as i32 };
        CUresult::SUCCESS
    }
    let api = Api {
        cuOccupancyMaxActiveClusters: Some(active),
        cuOccupancyMaxPotentialClusterSize: Some(largest),
        ..fake::api()
    };
    let context = |api| {
        Context::new(
            &Driver::from_library(fake::library(api))
                .unwrap()
                .device(0)
                .unwrap(),
        )
        .unwrap()
    };
    let with = sharing(&context(api));
    let config = LaunchConfig::line(16, 128).cluster([4, 1, 1]);
    assert_eq!(with.active_clusters(&config).unwrap(), 4);
    assert_eq!(
        with.largest_cluster(&config).unwrap(),
        8,
        "its own clusters are not passed"
    );
    with.allow_large_clusters().unwrap();
    let without = sharing(&context(fake::api()));
    assert_eq!(
        text(without.active_clusters(&config)),
        "cuOccupancyMaxActiveClusters needs CUDA 11.7, but this driver supports CUDA 12.4"
    );
}
