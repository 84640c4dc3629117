//! Parameters of kernels, and memory of no elements.

use warpwright_driver::sys::CUtensorMap;
use warpwright_driver::*;

use crate::{context, launch, set, text};

#[test]
fn a_tensor_map_is_aligned_as_either_header_has_it() {
    assert_eq!((size_of::<CUtensorMap>(), align_of::<CUtensorMap>()), (128, 128));
    let context = context();
    let params =
        [Parameter::value::<u64>("n"), Parameter::value::<TensorMap>("map"), Parameter::value::<u32>("m")];
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
    assert!(text(load(16)).starts_with("kernel k: parameter 1 (map) is tensor map"), "{}", text(load(16)));
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
    graph.copy(&[], &empty, &Buffer::<u32>::zeroed(&context, 0).unwrap()).unwrap();
    graph.instantiate().unwrap().launch(&stream).unwrap();
    let some = Registered::new(&context, vec![1u32]).unwrap();
    launch(&stream, &set(&Module::load(&context, crate::PTX).unwrap()), &some, 2).unwrap();
    stream.synchronize().unwrap();
    assert_eq!(some.to_host(), [2]);
}
