//! The addresses of the variables of a module.

use crate::machine::device::device_memory::Memory;
use crate::machine::device::memory_error::MemoryError;
use crate::module::Module;

impl Module {
    /// Returns the address of a variable on device 0, or `None` if there is no variable `name`.
    ///
    /// The first call, or the first launch, allocates and initializes the variables of the module.
    ///
    /// # Errors
    /// Returns [`MemoryError::OutOfMemory`] if the device has too little memory.
    pub fn address(&self, memory: &Memory, name: &str) -> Result<Option<u64>, MemoryError> {
        self.address_on(0, memory, name)
    }

    /// Returns the address of a variable, or `None` if there is no variable `name`.
    ///
    /// The first call, or the first launch, allocates and initializes the variables of the module
    /// on `device`.
    ///
    /// # Errors
    /// Returns [`MemoryError::OutOfMemory`] if the device has too little memory.
    pub fn address_on(
        &self,
        device: u32,
        memory: &Memory,
        name: &str,
    ) -> Result<Option<u64>, MemoryError> {
        let found = self
            .statics
            .variables
            .iter()
            .position(|v| v.name == name && !v.shared);
        let Some(index) = found else { return Ok(None) };
        Ok(Some(
            memory.statics(device, self.statics.id, &self.statics.variables)?[index],
        ))
    }

    /// Frees the variables of the module in `memory`. Their addresses become invalid.
    ///
    /// A later launch or call of [`address`](Module::address) allocates and initializes new ones.
    pub fn unload(&self, memory: &Memory) {
        memory.forget_statics(self.statics.id);
    }
}
