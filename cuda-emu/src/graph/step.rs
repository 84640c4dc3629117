//! A step of an executable graph: the work of one node.

use std::sync::{Arc, OnceLock};

use ptx_emu::Accesses;

use crate::device::EmulatedDevice;
use crate::error::{Error, Result};
use crate::work::{StreamWork, WorkSite};

#[derive(Clone)]
pub(crate) struct ExecStep {
    pub(crate) work: StreamWork,
    pub(crate) enabled: bool,
    /// The accesses of its last traced run. A change of the step clears them.
    pub(crate) touched: OnceLock<Arc<Accesses>>,
}

impl ExecStep {
    pub(crate) fn new(work: StreamWork) -> Self {
        Self {
            work,
            enabled: true,
            touched: OnceLock::new(),
        }
    }

    /// Returns its accesses, if it is enabled and was traced.
    pub(crate) fn accesses(&self) -> Option<&Accesses> {
        self.touched.get().filter(|_| self.enabled).map(Arc::as_ref)
    }

    /// Runs it as step `number`. Returns its accesses if it was traced.
    ///
    /// A step is traced at its first run, and always if all work is traced.
    pub(crate) fn run(
        &self,
        device: &EmulatedDevice,
        number: usize,
        site: WorkSite<'_>,
    ) -> Result<Option<Arc<Accesses>>> {
        if !self.enabled {
            return Ok(None);
        }

        let first = device.config.check_graphs && self.touched.get().is_none();
        let in_graph = |failure: Error| Error {
            text: format!(
                "{}\n  in node {number} ({}) of a graph",
                failure.text,
                self.work.name()
            ),
            ..failure
        };
        let site = WorkSite {
            traced: site.traced.or(first.then_some("a graph")),
            ..site
        };
        Ok(self.work.run(device, site).map_err(in_graph)?.map(Arc::new))
    }
}
