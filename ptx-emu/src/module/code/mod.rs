//! The decoded form of a kernel, in which registers, labels and addresses are resolved.

pub(crate) mod asynchronous;
pub(crate) mod atomic;
pub(crate) mod call;
pub(crate) mod image;
pub(crate) mod instruction;
pub(crate) mod matrix;
pub(crate) mod operand;
pub(crate) mod video;

pub(crate) use asynchronous::{
    BulkCopy, MbarrierInstruction, MbarrierOperation, MbarrierWait, Phase, ThreadCopy,
};
pub(crate) use atomic::{Atomic, High};
pub(crate) use call::{ABSENT, Call, CallTarget, Formal, Passed, Routine, SystemCall};
pub(crate) use instruction::{
    Barrier, BarrierKind, Combine, Comparison, Exchange, FenceInstruction, Instruction, KernelCode,
    Op, PairTest, Preparation, SetP, SharedRegion, Shuffle, ShuffleMode, Test, UNDECLARED_DYNAMIC,
    Vote,
};
pub(crate) use matrix::{
    Element, LoadMatrix, MatrixElement, MatrixFragment, Mma, Product, ProductShape, Role, Sparsity,
    WarpMatrix, quad_place,
};
pub(crate) use operand::{
    AccessOrdering, Address, ClockPart, Compare, Constant, EXECUTING, InstructionSpace, LoadParam,
    MemoryScope, PredSource, RegisterOperand, Special, Transfer, Unwritten, Width,
};
pub(crate) use video::{Second, Video, VideoElement, VideoOp};
