//! Libraries: PTX that is independent of contexts and is loaded into each context that uses it.

use crate::compile::compile;
use crate::error::Result;
use crate::handle::{ContextId, FunctionId, KernelId, LibraryId, ModuleId};
use crate::state::DriverState;
use crate::state::objects::Module;

impl DriverState {
    /// Returns the module of a library in a context, and loads it at the first use.
    pub(crate) fn module_of(&mut self, library: LibraryId, context: ContextId) -> Result<ModuleId> {
        let loaded = &self.libraries[library];
        if let Some(&known) = loaded
            .modules
            .get(&context)
            .filter(|module| self.modules.get(**module).is_some())
        {
            return Ok(known);
        }

        // Each context has separate variables, so the text is parsed again.
        let parsed = compile(&self.device.config, &loaded.image)?;
        let shared = loaded.kernels.iter().map(|&kernel| &self.kernels[kernel]);
        let settings = shared
            .map(|k| (k.kernel.name.clone(), k.settings.clone()))
            .collect();
        let module = self.modules.insert(Module {
            context,
            parsed,
            functions: Vec::new(),
            settings,
        });
        self.libraries[library].modules.insert(context, module);
        Ok(module)
    }

    /// Returns the function of a library's kernel in a context.
    pub(crate) fn function_of(
        &mut self,
        kernel: KernelId,
        context: ContextId,
    ) -> Result<FunctionId> {
        let library = self.kernels[kernel].library;
        let name = self.kernels[kernel].kernel.name.clone();
        let module = self.module_of(library, context)?;
        self.function_named(module, &name)
    }

    /// Removes a library with its kernels, and its modules in every context.
    pub(crate) fn unload_library(&mut self, id: LibraryId) {
        let Some(library) = self.libraries.remove(id) else {
            return;
        };
        for kernel in library.kernels {
            self.kernels.remove(kernel);
        }
        for module in library.modules.into_values() {
            self.unload(module);
        }
    }
}
