//! Loaded kernels that several launches share.

use std::sync::Arc;

use crate::signed;
use ptx_gen::KernelDef;
use warpwright_driver::launch::Kernel;
use warpwright_driver::{Context, Error};

/// A cache of loaded kernels, which loads each distinct kernel once. It loads them sequentially,
/// because drivers serialize compilation anyway.
pub(crate) struct SharedKernels<'c, K> {
    context: &'c Context,
    loaded: Vec<Arc<Kernel<K>>>,
}

impl<'c, K: KernelDef + PartialEq> SharedKernels<'c, K> {
    pub(crate) fn new(context: &'c Context) -> SharedKernels<'c, K> {
        SharedKernels {
            context,
            loaded: vec![],
        }
    }

    /// Returns the context in which kernels are loaded.
    pub(crate) fn context(&self) -> &'c Context {
        self.context
    }

    /// Returns the kernel with this definition, and loads it first if necessary.
    pub(crate) fn load(&mut self, def: K) -> Result<Arc<Kernel<K>>, Error> {
        if let Some(known) = self.loaded.iter().find(|known| *known.def() == def) {
            return Ok(known.clone());
        }
        let kernel = Arc::new(signed::load(self.context, def)?);
        self.loaded.push(kernel.clone());
        Ok(kernel)
    }
}
