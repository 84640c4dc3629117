//! Parameters of kernels and of graph nodes, in the layout of the driver API.

use std::ffi::c_void;

use warpwright_driver_sys::*;

use crate::error::{Result, refuse, require};
use crate::ffi::host::HostSpan;
use crate::ffi::pointer::{In, Out};

/// Packs the values to which `list` points, one pointer per parameter, into a parameter buffer.
pub(crate) fn pack(list: Out<'_, *mut c_void>, params: &[(usize, usize)]) -> Result<Box<[u8]>> {
    let bytes = params
        .iter()
        .map(|(offset, size)| offset + size)
        .max()
        .unwrap_or(0);
    let mut packed = vec![0; bytes].into_boxed_slice();
    let pointers = list.slice(params.len())?;
    for (i, (&(offset, size), &value)) in params.iter().zip(pointers).enumerate() {
        require(!value.is_null(), || format!("kernelParams[{i}] is NULL"))?;
        packed[offset..offset + size].copy_from_slice(HostSpan::new(value as usize).bytes(size));
    }

    Ok(packed)
}

/// Returns the parameter buffer of an `extra` list.
pub(crate) fn unpack_extra(extra: Out<'_, *mut c_void>) -> Result<Vec<u8>> {
    let mut buffer = None;
    let mut size = None;

    // A list has at most two pairs and an end. The bound protects against a list without an end.
    for i in 0..8 {
        let word = |j: usize| extra.element(2 * i + j).get();
        match word(0)? as usize {
            CU_LAUNCH_PARAM_END => break,
            CU_LAUNCH_PARAM_BUFFER_POINTER => buffer = Some(word(1)? as usize),
            CU_LAUNCH_PARAM_BUFFER_SIZE => size = Some(In::inner(word(1)?.cast::<usize>()).get()?),
            other => {
                return refuse(
                    CUresult::INVALID_VALUE,
                    format!("extra holds the unknown tag {other}"),
                );
            }
        }
    }

    match (buffer, size) {
        (_, Some(0)) => Ok(Vec::new()),
        (Some(buffer), Some(size)) if buffer != 0 => Ok(HostSpan::new(buffer).bytes(size).to_vec()),
        _ => refuse(
            CUresult::INVALID_VALUE,
            "extra does not contain both a buffer and a size",
        ),
    }
}

/// Returns the operations of a list, whose flags must be 0.
pub(crate) fn operations_of(
    p: &CUDA_BATCH_MEM_OP_NODE_PARAMS_v1,
) -> Result<&'static [CUstreamBatchMemOpParams]> {
    require(p.flags == 0, || format!("the flags are {}, not 0", p.flags))?;
    In::inner(p.paramArray.cast_const()).slice(p.count as usize)
}

/// Returns the locations to which a memory node grants access.
pub(crate) fn access_of(p: &CUDA_MEM_ALLOC_NODE_PARAMS_v1) -> Result<&'static [CUmemAccessDesc]> {
    In::inner(p.accessDescs).slice(p.accessDescCount)
}

/// The parameters of a kernel node as a program sees them: values, and a pointer to each.
pub(crate) struct ExposedParams {
    pointers: Box<[usize]>,
    _values: Box<[u64]>,
}

impl ExposedParams {
    /// Returns the array of pointers, which is valid as long as this value.
    pub(super) fn pointers(&self) -> *mut *mut c_void {
        self.pointers.as_ptr() as *mut *mut c_void
    }

    pub(crate) fn new(packed: &[u8], params: &[(usize, usize)]) -> Self {
        let words = packed.chunks(8).map(|chunk| {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            u64::from_ne_bytes(word)
        });
        let values: Box<[u64]> = words.collect();
        let base = values.as_ptr() as usize;
        Self {
            pointers: params.iter().map(|(offset, _)| base + offset).collect(),
            _values: values,
        }
    }
}

/// Returns a member of the union of a generic node, which begins at a word of it.
pub(crate) fn node_member<T: NodeMember>(params: &CUgraphNodeParams, word: usize) -> In<'_, T> {
    assert!(
        word * 8 + size_of::<T>() <= size_of_val(&params.params),
        "the member fits the union"
    );
    In::inner(params.params[word..].as_ptr().cast())
}

/// A structure of integers, pointers and handles only, for which any bytes are valid.
pub(crate) trait NodeMember: Copy {}

impl NodeMember for CUDA_KERNEL_NODE_PARAMS_v2 {}

impl NodeMember for CUDA_MEMCPY3D_v2 {}

impl NodeMember for CUDA_MEMSET_NODE_PARAMS_v1 {}

impl NodeMember for CUDA_HOST_NODE_PARAMS_v1 {}

impl NodeMember for CUDA_BATCH_MEM_OP_NODE_PARAMS_v1 {}

impl NodeMember for CUDA_MEM_ALLOC_NODE_PARAMS_v1 {}

impl NodeMember for CUDA_CONDITIONAL_NODE_PARAMS {}

impl NodeMember for CUDA_CHILD_GRAPH_NODE_PARAMS {}

/// Writes a member of the union of a generic node, which begins at a word of it.
pub(crate) fn set_node_member<T: NodeMember>(
    params: &mut CUgraphNodeParams,
    word: usize,
    member: T,
) {
    assert!(
        word * 8 + size_of::<T>() <= size_of_val(&params.params),
        "the member fits the union"
    );
    let to = params.params[word..].as_mut_ptr().cast::<T>();
    // SAFETY: the assertion above ensures that the member fits the union, whose words may hold any
    // bytes.
    unsafe { to.write_unaligned(member) }
}
