//! Kernels of loaded modules: lookup by handle, and the checks of the driver at a launch.

use std::ffi::c_void;
use std::sync::Arc;

use ptx_emu::KernelError;
use warpwright_driver_sys::{CUfunction, CUkernel, CUresult};

use crate::device::{MAX_BLOCK, MAX_GRID, MAX_THREADS};
use crate::error::{Result, refuse, require};
use crate::ffi::kernel_node::LaunchGeometry;
use crate::ffi::params::{pack, unpack_extra};
use crate::ffi::pointer::Out;
use crate::handle::{FunctionId, ModuleId};
use crate::state::DriverState;
use crate::work::KernelWork;
use crate::work::function::{Function, FunctionSettings};
use crate::work::occupancy;

impl DriverState {
    /// Removes a module. Queued work that uses its kernels fails when it runs.
    pub(crate) fn unload(&mut self, id: ModuleId) {
        let Some(module) = self.modules.remove(id) else {
            return;
        };
        module.parsed.unload(&self.device.memory);
        for function in module.functions {
            if let Some(function) = self.functions.remove(function) {
                function.unload();
            }
        }
    }

    /// Returns the function with this handle, which must belong to the current context.
    ///
    /// The handle of a library's kernel is accepted for its function in that context, as the API
    /// allows.
    pub(crate) fn function(&mut self, handle: CUfunction) -> Result<Arc<Function>> {
        let context = self.current()?;
        if let Ok(kernel) = self.kernels.find(CUkernel(handle.0)) {
            let id = self.function_of(kernel, context)?;
            return Ok(Arc::clone(&self.functions[id]));
        }

        let function = &self.functions[self.functions.find(handle)?];
        if function.context != context {
            return refuse(
                CUresult::INVALID_HANDLE,
                "the function belongs to another context",
            );
        }

        Ok(Arc::clone(function))
    }

    /// Returns the function with this name in a module, and creates it at the first use.
    pub(crate) fn function_named(&mut self, module: ModuleId, name: &str) -> Result<FunctionId> {
        // A second call with the same name returns the same handle, as in the driver.
        let of_name = |at: &&FunctionId| self.functions[**at].kernel.name == name;
        if let Some(&known) = self.modules[module].functions.iter().find(of_name) {
            return Ok(known);
        }

        let loaded = &self.modules[module];
        let kernel = loaded.parsed.kernel(name).cloned().or_else(refuse_kernel)?;
        let settings = loaded
            .settings
            .get(name)
            .cloned()
            .unwrap_or_else(|| FunctionSettings::of(&kernel));
        let reach = Arc::clone(&self.contexts[loaded.context].reach);
        let function = Function::new(
            loaded.context,
            reach,
            module,
            loaded.parsed.version(),
            kernel,
            settings,
        );
        let id = self.functions.insert(Arc::new(function));
        self.modules[module].functions.push(id);
        self.functions[id].handle.get_or_init(|| id.handle());
        Ok(id)
    }

    /// Returns a kernel that is ready to run, after the checks of the driver.
    pub(crate) fn kernel_work(
        &mut self,
        function: CUfunction,
        geometry: LaunchGeometry,
        params: Out<*mut c_void>,
        extra: Out<*mut c_void>,
    ) -> Result<KernelWork> {
        let function = self.function(function)?;
        check_geometry(&function, geometry)?;
        let params = packed(&function, params, extra)?;
        Ok(KernelWork {
            function,
            geometry,
            params,
            cooperative: false,
            cluster: None,
        })
    }

    /// Returns an error for a launch whose failure is injected, unless the failure occurs on the
    /// device.
    pub(crate) fn refuse_injected(&self, kernel: &str) -> Result {
        match self.device.failures.code_of(kernel) {
            Some(code) if !code.is_device_fault() => {
                refuse(code, format!("{kernel}: this failure was injected"))
            }
            _ => Ok(()),
        }
    }

    /// Returns the kernel as a cooperative launch.
    ///
    /// # Errors
    /// Returns an error if its blocks do not fit the device at the same time.
    pub(crate) fn cooperative(&self, work: KernelWork) -> Result<KernelWork> {
        let LaunchGeometry {
            grid,
            block,
            shared,
        } = work.geometry;
        let threads = block.iter().product();
        let fit = u64::from(occupancy::blocks(
            self.device,
            &work.function,
            threads,
            shared as usize,
        )) * u64::from(self.device.config.multiprocessors);
        let blocks: u64 = grid.iter().map(|&n| u64::from(n)).product();
        if blocks > fit {
            let text = format!(
                "a cooperative launch of {blocks} blocks, but {fit} fit the device at the same time"
            );
            return refuse(CUresult::COOPERATIVE_LAUNCH_TOO_LARGE, text);
        }

        Ok(KernelWork {
            cooperative: true,
            ..work
        })
    }

    /// Returns the kernel with this cluster size. If all dimensions are 0, the kernel itself
    /// decides.
    pub(crate) fn clustered(&self, work: KernelWork, cluster: [u32; 3]) -> Result<KernelWork> {
        if cluster == [0; 3] {
            return Ok(KernelWork {
                cluster: None,
                ..work
            });
        }

        let f = &work.function;
        let grid = work.geometry.grid;
        let name = &f.kernel.name;
        let most = f.max_cluster();
        let problem =
            |text: String| refuse(CUresult::INVALID_CLUSTER_SIZE, format!("{name}: {text}"));

        // The product of three numbers of the program can exceed 64 bits.
        let size = cluster
            .iter()
            .fold(1, |all: u64, n| all.saturating_mul((*n).into()));
        if size > 1 && self.device.config.compute_capability < (9, 0) {
            return refuse(
                CUresult::NOT_SUPPORTED,
                format!("{name}: the device has no clusters"),
            );
        }

        if size == 0 || size > most.into() {
            return problem(format!(
                "clusters of {cluster:?} blocks: expected 1 to {most} in total"
            ));
        }

        if let Some(named) = f.kernel.cluster.filter(|named| *named != cluster) {
            return problem(format!(
                "clusters of {cluster:?} blocks, but .reqnctapercluster is {named:?}"
            ));
        }

        if grid.iter().zip(cluster).any(|(n, c)| n % c != 0) {
            return problem(format!(
                "a grid of {grid:?} blocks is not a multiple of clusters of {cluster:?}"
            ));
        }

        Ok(KernelWork {
            cluster: Some(cluster),
            ..work
        })
    }

    /// Returns the kernel with the cluster size and the cooperative flag of the launch that it
    /// replaces.
    pub(crate) fn launched_as(&self, work: KernelWork, former: &KernelWork) -> Result<KernelWork> {
        let work = self.clustered(work, former.cluster.unwrap_or_default())?;
        if former.cooperative {
            self.cooperative(work)
        } else {
            Ok(work)
        }
    }
}

/// Returns the error for a kernel that does not exist, or that the emulator cannot run.
pub(crate) fn refuse_kernel<T>(error: KernelError) -> Result<T> {
    let code = match error {
        KernelError::NotFound { .. } => CUresult::NOT_FOUND,
        KernelError::Refused { .. } => CUresult::NOT_SUPPORTED,
    };
    refuse(code, error.to_string())
}

fn check_geometry(f: &Function, g: LaunchGeometry) -> Result {
    let name = &f.kernel.name;
    let within = |dims: [u32; 3], most: [u32; 3]| {
        dims.iter()
            .zip(most)
            .all(|(&d, most)| (1..=most).contains(&d))
    };
    require(within(g.grid, MAX_GRID), || {
        format!(
            "{name}: a grid of {:?} blocks: expected 1 to {MAX_GRID:?}",
            g.grid
        )
    })?;
    require(within(g.block, MAX_BLOCK), || {
        format!(
            "{name}: a block of {:?} threads: expected 1 to {MAX_BLOCK:?}",
            g.block
        )
    })?;
    let threads: u32 = g.block.iter().product();
    require(threads <= MAX_THREADS, || {
        format!("{name}: a block of {threads} threads: expected at most {MAX_THREADS}")
    })?;
    if let Some(required) = f.kernel.reqntid {
        require(g.block == required, || {
            format!(
                "{name}: a block of {:?}, but .reqntid is {required:?}",
                g.block
            )
        })?;
    }

    // `.reqntid` was checked above, so this limit can only come from `.maxntid`.
    let most = f.max_threads();
    require(threads <= most, || {
        format!("{name}: a block of {threads} threads, but .maxntid allows {most}")
    })?;
    let room = f.dynamic_shared();
    require(g.shared <= room, || {
        format!(
            "{name}: {} bytes of dynamic shared memory: expected at most {room}, which the attribute \
             MAX_DYNAMIC_SHARED_SIZE_BYTES of the function can raise",
            g.shared
        )
    })
}

/// Returns the parameter buffer of a launch, from `kernelParams` or `extra`.
fn packed(f: &Function, params: Out<*mut c_void>, extra: Out<*mut c_void>) -> Result<Box<[u8]>> {
    require(params.is_null() || extra.is_null(), || {
        "kernelParams and extra are both set".into()
    })?;
    if extra.is_null() {
        return pack(params, &f.params);
    }

    let mut buffer = unpack_extra(extra)?;
    let bytes = f
        .params
        .iter()
        .map(|(offset, size)| offset + size)
        .max()
        .unwrap_or(0);
    require(buffer.len() >= bytes, || {
        format!(
            "{}: extra holds {} bytes of parameters, the kernel takes {bytes}",
            f.kernel.name,
            buffer.len()
        )
    })?;
    buffer.truncate(bytes);
    Ok(buffer.into_boxed_slice())
}
