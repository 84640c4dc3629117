//! Kernels of loaded modules, with the attributes that a program sets.

use std::ffi::{CString, c_int};
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};

use ptx_emu::Kernel;
use warpwright_driver_sys::CUfunction;

use crate::device::{MAX_THREADS, SHARED};
use crate::handle::{ContextId, ModuleId};
use crate::work::reach::MemoryReach;

/// A kernel of a module with the attributes that a program may set.
pub(crate) struct Function {
    pub(crate) kernel: Arc<Kernel>,
    pub(crate) context: ContextId,
    pub(crate) reach: Arc<MemoryReach>,
    /// The offset and the size of each parameter.
    pub(crate) params: Vec<(usize, usize)>,
    pub(crate) module: ModuleId,
    pub(crate) name: CString,
    pub(crate) handle: OnceLock<CUfunction>,
    pub(crate) version: c_int,
    loaded: AtomicBool,
    pub(crate) settings: Arc<FunctionSettings>,
}

/// The attributes of a kernel that a program has set. All functions of a library's kernel share
/// them.
#[derive(Debug)]
pub(crate) struct FunctionSettings {
    pub(crate) dynamic_shared: AtomicI32,
    pub(crate) carveout: AtomicI32,
    /// Whether clusters may have more blocks than every device supports.
    pub(crate) large_clusters: AtomicI32,
}

impl FunctionSettings {
    /// Returns the initial attributes of a kernel.
    pub(crate) fn of(kernel: &Kernel) -> Arc<Self> {
        Arc::new(Self {
            dynamic_shared: AtomicI32::new((SHARED.saturating_sub(kernel.static_shared)) as c_int),
            carveout: AtomicI32::new(-1),
            large_clusters: AtomicI32::new(0),
        })
    }
}

impl Function {
    /// Returns a function of a module with PTX version `(major, minor)`.
    pub(crate) fn new(
        context: ContextId,
        reach: Arc<MemoryReach>,
        module: ModuleId,
        (major, minor): (u32, u32),
        kernel: Arc<Kernel>,
        settings: Arc<FunctionSettings>,
    ) -> Self {
        Self {
            context,
            reach,
            params: kernel
                .params
                .iter()
                .map(|p| (p.offset as usize, p.size as usize))
                .collect(),
            module,
            name: CString::new(kernel.name.as_str()).unwrap_or_default(),
            handle: OnceLock::new(),
            version: (major * 10 + minor) as c_int,
            loaded: AtomicBool::new(true),
            settings,
            kernel,
        }
    }

    /// Returns its handle, which is known after the function was added to the table.
    pub(crate) fn handle(&self) -> CUfunction {
        self.handle.get().copied().unwrap_or(CUfunction::NULL)
    }

    /// Marks it as unloaded. Queued launches then fail.
    pub(crate) fn unload(&self) {
        self.loaded.store(false, Relaxed);
    }

    /// Returns true if its module is still loaded.
    pub(crate) fn is_loaded(&self) -> bool {
        self.loaded.load(Relaxed)
    }

    /// Returns the maximum dynamic shared memory of a launch.
    pub(crate) fn dynamic_shared(&self) -> u32 {
        self.settings.dynamic_shared.load(Relaxed) as u32
    }

    /// Returns the maximum number of blocks in a cluster.
    pub(crate) fn max_cluster(&self) -> u32 {
        if self.settings.large_clusters.load(Relaxed) != 0 {
            16
        } else {
            8
        }
    }

    /// Returns the maximum number of threads in a block.
    pub(crate) fn max_threads(&self) -> u32 {
        max_threads(&self.kernel)
    }
}

/// Returns the maximum number of threads in a block of a kernel.
pub(crate) fn max_threads(kernel: &Kernel) -> u32 {
    let bound = kernel.reqntid.or(kernel.maxntid);
    bound.map_or(MAX_THREADS, |[x, y, z]| {
        x.saturating_mul(y).saturating_mul(z)
    })
}
