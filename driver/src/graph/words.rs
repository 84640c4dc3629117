//! Nodes that wait for words of memory or write words, with many operations per node.

use std::sync::Arc;

use driver_sys::{
    CUDA_BATCH_MEM_OP_NODE_PARAMS_v1, CUstreamBatchMemOpParams, CUstreamBatchMemOpType,
    CUstreamWaitValue_flags,
};
use ptx_gen::Access;

use crate::device::Context;
use crate::error::{DriverError, Error};
use crate::memory::element::as_bytes;
use crate::memory::{Element, View};
use crate::ordering::Use;
use crate::stream::{Stream, WaitFor};

/// An operation on a word of 32 or 64 bits.
///
/// ```
/// # use warpwright_driver::graph::{NodeWork, WordOperation};
/// # use warpwright_driver::prelude::*;
/// # fn main() -> Result<(), Error> {
/// # let context = Context::new(&Driver::from_library(warpwright_cuda_emu::library())?.device(0)?)?;
/// # let stream = Stream::new(&context)?;
/// let flag = Buffer::<u32>::zeroed(&context, 1)?;
/// let mut graph = Graph::new(&context)?;
/// let node = graph.words(&[], &[WordOperation::write(&flag, 8)?, WordOperation::wait(&flag, WaitFor::Equal, 8)?])?;
/// let mut exec = graph.instantiate()?;
/// let others = vec![WordOperation::write(&flag, 9)?, WordOperation::wait(&flag, WaitFor::AtLeast, 9)?];
/// exec.set(node, NodeWork::Words(others))?;
/// exec.launch(&stream)?;
/// assert_eq!(stream.read(&flag)?, [9]);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct WordOperation {
    operation: CUstreamBatchMemOpType,
    value: u64,
    flags: u32,
    used: Use,
}

/// Operations on words of memory, executed one after another. Clones refer to the same operations.
///
/// ```
/// # use warpwright_driver::graph::{NodeKind, WordOperation};
/// # use warpwright_driver::prelude::*;
/// # fn main() -> Result<(), Error> {
/// # let context = Context::new(&Driver::from_library(warpwright_cuda_emu::library())?.device(0)?)?;
/// let flags = Buffer::<u32>::zeroed(&context, 2)?;
/// let mut graph = Graph::new(&context)?;
/// graph.words(&[], &[
///     WordOperation::write(&flags.view_range(0..1), 7)?,
///     WordOperation::write(&flags.view_range(1..2), 8)?,
/// ])?;
/// let NodeKind::Words(words) = graph.nodes()[0].kind() else { panic!("expected this kind of work") };
/// assert_eq!(words.count(), 2);
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Words(Arc<WordsInner>);

struct WordsInner {
    operations: Vec<WordOperation>,
    uses: Vec<Use>,
}

impl WordOperation {
    /// Creates a wait until the word satisfies a condition. A kernel, a stream or the host can
    /// write it.
    ///
    /// # Errors
    /// Returns [`Error::Transfer`] if the view is not one word of 4 or 8 bytes.
    pub fn wait<T: Element>(word: &View<T>, wait: WaitFor, value: T) -> Result<Self, Error> {
        use CUstreamBatchMemOpType as Type;
        let flags = match wait {
            WaitFor::AtLeast => CUstreamWaitValue_flags::GEQ,
            WaitFor::Equal => CUstreamWaitValue_flags::EQ,
            WaitFor::AnyBit => CUstreamWaitValue_flags::AND,
            WaitFor::MissingBit => CUstreamWaitValue_flags::NOR,
        };
        let types = [Type::WAIT_VALUE_32, Type::WAIT_VALUE_64];
        Self::new(word, value, types, Access::Read, flags.0)
    }

    /// Creates a write of the word.
    ///
    /// # Errors
    /// Returns [`Error::Transfer`] if the view is not one word of 4 or 8 bytes.
    pub fn write<T: Element>(word: &View<T>, value: T) -> Result<Self, Error> {
        use CUstreamBatchMemOpType as Type;
        Self::new(
            word,
            value,
            [Type::WRITE_VALUE_32, Type::WRITE_VALUE_64],
            Access::Write,
            0,
        )
    }

    fn new<T: Element>(
        word: &View<T>,
        value: T,
        types: [CUstreamBatchMemOpType; 2],
        access: Access,
        flags: u32,
    ) -> Result<Self, Error> {
        word.expect_len("an operation on a word", 1)?;

        // The driver has separate operations for words of 4 and 8 bytes.
        let (operation, value) = match *as_bytes(&[value]) {
            [a, b, c, d] => (types[0], u32::from_le_bytes([a, b, c, d]).into()),
            [a, b, c, d, e, f, g, h] => (types[1], u64::from_le_bytes([a, b, c, d, e, f, g, h])),
            ref bytes => {
                let problem = format!(
                    "a word of {} bytes; use a word of 4 or 8 bytes",
                    bytes.len()
                );
                return Err(Error::Transfer {
                    what: "an operation on a word",
                    problem,
                });
            }
        };
        let used = Use {
            name: "word",
            region: word.region().clone(),
            access,
            noncoherent: false,
        };
        Ok(Self {
            operation,
            value,
            flags,
            used,
        })
    }

    fn params(&self) -> CUstreamBatchMemOpParams {
        CUstreamBatchMemOpParams {
            operation: self.operation,
            address: self.used.region.address(),
            value: self.value,
            flags: self.flags,
            ..CUstreamBatchMemOpParams::zeroed()
        }
    }
}

impl Words {
    pub(super) fn new(context: &Context, operations: &[WordOperation]) -> Result<Self, Error> {
        if operations.is_empty() {
            return Err(Error::Graph {
                what: "operations on words",
                problem: "the list is empty",
            });
        }

        operations
            .iter()
            .try_for_each(|o| o.used.region.expect_in(context, "the graph"))?;
        let uses = operations.iter().map(|o| o.used.clone()).collect();
        Ok(Self(Arc::new(WordsInner {
            operations: operations.to_vec(),
            uses,
        })))
    }

    /// Returns the number of operations.
    pub fn count(&self) -> usize {
        self.0.operations.len()
    }

    /// Returns true if one of the operations is a wait.
    pub(super) fn waits(&self) -> bool {
        self.0
            .operations
            .iter()
            .any(|operation| !operation.used.access.writes())
    }

    /// Queues the operations in a stream.
    pub(super) fn queue(&self, stream: &Stream) -> Result<(), Error> {
        let submission = stream.begin("operations on words")?;
        submission.admit(self.0.uses.iter().map(|used| (&used.region, used.access)))?;
        let mut operations: Vec<_> = self
            .0
            .operations
            .iter()
            .map(WordOperation::params)
            .collect();
        let count = operations.len() as u32;
        let first = operations.as_mut_ptr();
        submission.enqueue(|driver| {
            // SAFETY: the operations keep the words alive, which are freed only after the stream
            // has completed this work. The driver copies the operations.
            unsafe { cu_optional!(driver, cuStreamBatchMemOp_v2(stream.raw(), count, first, 0)) }
        })
    }

    pub(super) fn uses(&self) -> &[Use] {
        &self.0.uses
    }

    /// Passes the operations to `call` as the parameters of a node. The driver copies them.
    pub(super) fn with_params(
        &self,
        context: &Context,
        call: impl FnOnce(*const CUDA_BATCH_MEM_OP_NODE_PARAMS_v1) -> Result<(), DriverError>,
    ) -> Result<(), DriverError> {
        let mut operations: Vec<_> = self
            .0
            .operations
            .iter()
            .map(WordOperation::params)
            .collect();
        call(&CUDA_BATCH_MEM_OP_NODE_PARAMS_v1 {
            ctx: context.raw(),
            count: operations.len() as u32,
            paramArray: operations.as_mut_ptr(),
            ..CUDA_BATCH_MEM_OP_NODE_PARAMS_v1::zeroed()
        })
    }
}

impl std::fmt::Debug for Words {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Words").field(&self.0.operations).finish()
    }
}
