//! Kernels that several launches share.

use std::sync::Arc;

use crate::signed;
use ptx_gen::KernelDef;
use warpwright_driver::{Context, Error, Kernel};

/// Loads each distinct kernel once, one after the other, because drivers serialize compilation.
pub(crate) struct Distinct<'c, K> {
    context: &'c Context,
    loaded: Vec<Arc<Kernel<K>>>,
}

impl<'c, K: KernelDef + PartialEq> Distinct<'c, K> {
    pub(crate) fn new(context: &'c Context) -> Distinct<'c, K> {
        Distinct {
            context,
            loaded: vec![],
        }
    }

    /// Where kernels are loaded.
    pub(crate) fn context(&self) -> &'c Context {
        self.context
    }

    /// The kernel of this definition.
    pub(crate) fn load(&mut self, def: K) -> Result<Arc<Kernel<K>>, Error> {
        if let Some(known) = self.loaded.iter().find(|known| *known.def() == def) {
            return Ok(known.clone());
        }
        let kernel = Arc::new(signed::load(self.context, def)?);
        self.loaded.push(kernel.clone());
        Ok(kernel)
    }
}
