//! Compiled kernels by their definitions.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use ptx_gen::KernelDef;
use warpwright_driver::launch::Kernel;
use warpwright_driver::{Context, Error};

use super::products::load;

/// Compiles a kernel, unless `kernels` has it.
pub(crate) fn prepare<K: KernelDef + Ord + Copy>(
    context: &Context,
    kernels: &mut BTreeMap<K, Kernel<K>>,
    kernel: K,
) -> Result<(), Error> {
    if let Entry::Vacant(entry) = kernels.entry(kernel) {
        entry.insert(load(context, kernel)?);
    }
    Ok(())
}
