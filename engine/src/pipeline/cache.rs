//! The kernels of the pipeline that append to the cache or read it, compiled for a cache of one
//! sequence or for a paged cache.

use std::sync::Arc;

use warpwright_driver::launch::{Host, Kernel};
use warpwright_driver::memory::View;
use warpwright_driver::stream::Queue;
use warpwright_driver::{Context, Error};
use warpwright_kernels::pipeline::{CacheKernel, PageTableArgs, Paged, PagedArgs, Plan, Qkv};

use super::adapter::{GemvLoader, LoadedGemv, LoraViews};
use super::cache_layout::CacheLayout;
use super::resolved::ResolvedGemv;
use crate::distinct::SharedKernels;

/// A page table on the device, with the sizes of the caches that it belongs to.
#[derive(Clone)]
pub(crate) struct PageTable {
    /// The pages of each sequence, `[sequences, max_pages]`.
    pub(crate) pages: View<u32>,
    /// The number of pages of a cache.
    pub(crate) cache_pages: u32,
    pub(crate) sequences: u32,
    pub(crate) max_pages: u32,
}

impl PageTable {
    fn args(&self) -> PageTableArgs<Host<'_>> {
        PageTableArgs {
            pages: &self.pages,
            cache_pages: self.cache_pages,
            sequences: self.sequences,
            max_pages: self.max_pages,
        }
    }
}

/// A compiled kernel that reads or writes the cache.
pub(super) enum CacheLoaded<K> {
    Own(Arc<Kernel<K>>),
    Paged(Arc<Kernel<Paged<K>>>),
}

/// The kernels of one kind that were loaded so far.
pub(super) struct CacheLoader<'c, K> {
    layout: CacheLayout,
    own: SharedKernels<'c, K>,
    paged: SharedKernels<'c, Paged<K>>,
}

impl<'c, K: CacheKernel + PartialEq> CacheLoader<'c, K> {
    pub(super) fn new(context: &'c Context, layout: CacheLayout) -> Self {
        CacheLoader {
            layout,
            own: SharedKernels::new(context),
            paged: SharedKernels::new(context),
        }
    }

    pub(super) fn load(&mut self, kernel: K) -> Result<CacheLoaded<K>, Error> {
        Ok(match self.layout {
            CacheLayout::Own => CacheLoaded::Own(self.own.load(kernel)?),
            CacheLayout::Paged => CacheLoaded::Paged(self.paged.load(Paged(kernel))?),
        })
    }
}

impl<K: CacheKernel> CacheLoaded<K> {
    /// Launches the kernel. `table` must be given exactly if the cache is paged.
    pub(super) fn launch<'v>(
        &self,
        queue: &mut impl Queue,
        args: K::Args<Host<'v>>,
        table: Option<&'v PageTable>,
    ) -> Result<(), Error> {
        match (self, table) {
            (CacheLoaded::Own(kernel), None) => queue.launch(kernel, args),
            (CacheLoaded::Paged(kernel), Some(table)) => {
                let table = table.args();
                queue.launch(
                    kernel,
                    PagedArgs {
                        kernel: args,
                        table,
                    },
                )
            }
            _ => unreachable!("the kernels were compiled for the cache that they are given"),
        }
    }
}

/// The compiled kernel of queries, keys and values.
pub(super) enum LoadedQkv {
    /// Over a cache of one sequence, with an adapter or without.
    Own(LoadedGemv<Qkv>),
    /// Over a paged cache, without an adapter.
    Paged(Arc<Kernel<Paged<Qkv>>>),
}

/// The kernels of queries, keys and values that were loaded so far.
pub(super) struct QkvLoader<'c> {
    layout: CacheLayout,
    own: GemvLoader<'c, Qkv>,
    paged: SharedKernels<'c, Paged<Qkv>>,
}

impl<'c> QkvLoader<'c> {
    pub(super) fn new(context: &'c Context, layout: CacheLayout) -> Self {
        QkvLoader {
            layout,
            own: GemvLoader::new(context),
            paged: SharedKernels::new(context),
        }
    }

    pub(super) fn load(&mut self, product: &ResolvedGemv<Qkv>) -> Result<LoadedQkv, Error> {
        Ok(match self.layout {
            CacheLayout::Own => LoadedQkv::Own(self.own.load(product.kernel, product.lora)?),
            CacheLayout::Paged => LoadedQkv::Paged(self.paged.load(Paged(product.kernel))?),
        })
    }
}

impl LoadedQkv {
    pub(super) fn plan(&self) -> Plan {
        match self {
            LoadedQkv::Own(kernel) => kernel.plan(),
            LoadedQkv::Paged(kernel) => kernel.def().0.plan,
        }
    }

    /// Launches the kernel. `lora` must be given exactly if the GEMV has an adapter, and `table`
    /// exactly if the cache is paged.
    pub(super) fn launch<'v>(
        &self,
        queue: &mut impl Queue,
        args: warpwright_kernels::pipeline::QkvArgs<Host<'v>>,
        lora: Option<&'v LoraViews>,
        table: Option<&'v PageTable>,
    ) -> Result<(), Error> {
        match (self, lora, table) {
            (LoadedQkv::Own(kernel), lora, None) => kernel.launch(queue, args, lora),
            (LoadedQkv::Paged(kernel), None, Some(table)) => queue.launch(
                kernel,
                PagedArgs {
                    kernel: args,
                    table: table.args(),
                },
            ),
            _ => unreachable!("the kernels were compiled for the cache that they are given"),
        }
    }
}
