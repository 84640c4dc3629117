//! Parameters of kernels, and memory of no elements.

use warpwright_driver::memory::TensorMap;
use warpwright_driver::prelude::*;
use warpwright_driver::sys::{Api, CUfunction, CUresult, CUtensorMap};

use super::{context, launch, set, text};
use crate::fake;

#[test]
fn a_tensor_map_is_aligned_as_either_header_has_it() {
    assert_eq!(
        (size_of::<CUtensorMap>(), align_of::<CUtensorMap>()),
        (128, 128)
    );
    let context = context();
    let params = [
        Parameter::value::<u64>("n"),
        Parameter::value::<TensorMap>("map"),
        Parameter::value::<u32>("m"),
    ];
    let load = |align: u32| {
        let ptx = format!(
            ".version 7.0\n.target sm_70\n.address_size 64\n\
            .visible .entry k(.param .u64 n, .param .align {align} .b8 map[128], .param .u32 m) {{ ret; }}\n"
        );
        // SAFETY: the kernel touches nothing.
        unsafe { Module::load(&context, &ptx)?.function("k", &params) }
    };
    load(64).unwrap();
    load(128).unwrap();
    assert!(
        text(load(16)).starts_with("kernel k: parameter 1 (map) is tensor map"),
        "{}",
        text(load(16))
    );
}

/// Lists whose offsets an H200 counts from 0x210 on in constant memory.
#[test]
fn a_tensor_map_may_be_aligned_in_constant_memory() {
    type Info = unsafe extern "C" fn(CUfunction, usize, *mut usize, *mut usize) -> CUresult;
    unsafe extern "C" fn h200(
        _: CUfunction,
        index: usize,
        offset: *mut usize,
        size: *mut usize,
    ) -> CUresult {
        // SAFETY: the crate passes places for both numbers.
        unsafe { (*offset, *size) = [(48, 128), (176, 4), (240, 128)][index] };
        CUresult::SUCCESS
    }
    unsafe extern "C" fn other(
        _: CUfunction,
        _: usize,
        offset: *mut usize,
        size: *mut usize,
    ) -> CUresult {
        // SAFETY: as above.
        unsafe { (*offset, *size) = (16, 128) };
        CUresult::SUCCESS
    }
    let load = |info: Info| {
        let library = fake::library(Api {
            cuFuncGetParamInfo: Some(info),
            ..fake::api()
        });
        let context =
            Context::new(&Driver::from_library(library).unwrap().device(0).unwrap()).unwrap();
        let [x, y] = ["x", "y"].map(Parameter::value::<TensorMap>);
        let ptx = ".version 7.0\n.target sm_70\n.address_size 64\n.visible .entry k(\
            .param .align 64 .b8 x[128], .param .u32 n, .param .align 64 .b8 y[128]) { ret; }\n";

        // SAFETY: nothing runs.
        unsafe { Module::load(&context, ptx)?.function("k", &[x, Parameter::value::<u32>("n"), y]) }
    };
    load(h200).unwrap();
    let refused = text(load(other));
    let wanted = "kernel k: parameter 0 (x) is 128 bytes at offset 0 in the declaration and 128 bytes at offset 16";
    assert!(refused.starts_with(wanted), "{refused}");
}

#[test]
fn registered_memory_may_be_empty() {
    let context = context();
    let stream = Stream::new(&context).unwrap();
    let empty = Registered::new(&context, Vec::<u32>::new()).unwrap();
    let reserved = Registered::new(&context, Vec::<u32>::with_capacity(4)).unwrap();
    assert!(empty.is_empty() && empty.to_host().is_empty() && reserved.to_host().is_empty());
    stream.copy(&empty, &reserved).unwrap();
    stream.fill(&empty, 1).unwrap();
    assert!(stream.read(&empty).unwrap().is_empty() && empty.to_vec().unwrap().is_empty());
    let mut graph = Graph::new(&context).unwrap();
    graph
        .copy(&[], &empty, &Buffer::<u32>::zeroed(&context, 0).unwrap())
        .unwrap();
    graph.instantiate().unwrap().launch(&stream).unwrap();
    let some = Registered::new(&context, vec![1u32]).unwrap();
    launch(
        &stream,
        &set(&Module::load(&context, super::PTX).unwrap()),
        &some,
        2,
    )
    .unwrap();
    stream.synchronize().unwrap();
    assert_eq!(some.to_host(), [2]);
}
