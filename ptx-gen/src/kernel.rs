//! What a kernel is: a name, an argument list, a launch contract, a program and a reference.

use crate::args::*;
use crate::build::{Builder, State};
use crate::check::{self, Errors};
use crate::elem::CpuArg;
use crate::ir::{Needs, Param, ParamKind, Program};
use std::fmt;

/// The blocks of a launch, and what each is given.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Grid {
    /// Blocks along the first dimension.
    pub x: u32,
    /// Blocks along the second dimension.
    pub y: u32,
    /// Blocks along the third dimension.
    pub z: u32,
    /// Dynamic shared memory of each block, in bytes.
    pub shared: u32,
}

impl Grid {
    /// `x` blocks, without dynamic shared memory.
    pub fn line(x: u32) -> Grid {
        Grid {
            x,
            y: 1,
            z: 1,
            shared: 0,
        }
    }

    /// `x` by `y` blocks, without dynamic shared memory.
    pub fn plane(x: u32, y: u32) -> Grid {
        Grid { y, ..Grid::line(x) }
    }
}

/// A launch's shape: what the driver is given.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Geometry {
    /// Blocks, in three dimensions.
    pub grid: [u32; 3],
    /// Threads of a block, in three dimensions.
    pub block: [u32; 3],
    /// Dynamic shared memory of each block, in bytes.
    pub shared: u32,
}

/// Arguments that a kernel's launch contract does not allow.
#[derive(Clone, PartialEq, Eq)]
pub struct ShapeError {
    /// The kernel.
    pub kernel: String,
    /// What is wrong with which argument, and what it must be.
    pub what: String,
}

impl fmt::Display for ShapeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.kernel, self.what)
    }
}
impl std::error::Error for ShapeError {}

/// A kernel. The implementing struct's fields are its tuning.
pub trait KernelDef: Sync {
    /// The argument list.
    type Args<S: Side>: ArgList<S>;

    /// A name that no other kernel has, and that PTX allows: `rms_norm_256`.
    fn name(&self) -> String;

    /// The number of threads in a block, over all dimensions: a multiple of 32, at most 1024.
    fn block(&self) -> u32;

    /// The threads of a block along its three dimensions. Their product must be [`block`](KernelDef::block).
    ///
    /// By default a block has one dimension. Lanes and warps are numbered along the first dimension, then along the
    /// second, then along the third.
    fn block_shape(&self) -> [u32; 3] {
        [self.block(), 1, 1]
    }

    /// Blocks that a multiprocessor must be able to hold at once: `.minnctapersm`.
    ///
    /// `ptxas` spends as many registers on a thread as that leaves. Without it, it spends few, and moves loads
    /// down to where their values are used: good for kernels that do not wait for memory.
    fn blocks_per_sm(&self) -> Option<u32> {
        None
    }

    /// Blocks of a cluster, along the grid's first dimension, up to 8: they run together and reach each other's shared
    /// memory. The grid must be whole clusters.
    fn cluster(&self) -> u32 {
        1
    }

    /// The launch contract: the blocks for these arguments, or why they are not allowed.
    ///
    /// # Errors
    /// Names the argument, what it is and what it must be. See [`require`](KernelDef::require).
    fn grid(&self, a: &Self::Args<Shape>) -> Result<Grid, ShapeError>;

    /// Appends the program to `k`.
    fn program<'k>(&self, k: Builder<'k>, a: Self::Args<Dev<'k>>);

    /// The same on the CPU, the obvious way: it is the specification.
    fn reference(&self, a: Self::Args<Cpu<'_>>);

    /// One clause of the launch contract: an error with the text of `what` unless `holds`.
    ///
    /// # Errors
    /// If the clause does not hold.
    fn require(&self, holds: bool, what: impl FnOnce() -> String) -> Result<(), ShapeError> {
        if holds {
            Ok(())
        } else {
            Err(ShapeError {
                kernel: self.name(),
                what: what(),
            })
        }
    }
}

/// A kernel of any argument list: what harnesses and tools walk.
pub trait AnyKernel: Sync {
    /// See [`KernelDef::name`].
    fn name(&self) -> String;
    /// See [`KernelDef::block`].
    fn block(&self) -> u32;
    /// See [`KernelDef::block_shape`].
    fn block_shape(&self) -> [u32; 3];
    /// Builds and validates the program.
    ///
    /// # Errors
    /// Everything the validator found, each with its Rust place.
    fn build(&self) -> Result<Program, Errors>;
    /// The parameters, in order.
    fn params(&self) -> Vec<Param>;
    /// The launch for arguments of these shapes, in the order of [`params`](AnyKernel::params).
    ///
    /// # Errors
    /// If an argument is missing, of the wrong sort, or outside the launch contract.
    fn geometry(&self, args: &[ShapeArg]) -> Result<Geometry, ShapeError>;
    /// Runs the reference in place.
    ///
    /// # Errors
    /// If an argument is missing or of another type than its parameter.
    fn reference_on(&self, args: &mut [CpuArg]) -> Result<(), ShapeError>;
}

impl<K: KernelDef> AnyKernel for K {
    fn name(&self) -> String {
        KernelDef::name(self)
    }

    fn block(&self) -> u32 {
        KernelDef::block(self)
    }

    fn block_shape(&self) -> [u32; 3] {
        KernelDef::block_shape(self)
    }

    fn build(&self) -> Result<Program, Errors> {
        let state = State::new();
        state.borrow_mut().shape = KernelDef::block_shape(self);
        state.borrow_mut().launched = launched(KernelDef::block(self), self.blocks_per_sm());
        let mut k = Builder::new(&state);
        let args = ArgList::make(&mut k);
        self.program(k, args);
        let State {
            params,
            shared,
            tiles,
            boxes,
            shape,
            launched,
            roles,
            registers,
            pinned,
            mut errors,
            mut open,
        } = state.take();
        errors.extend(check::roles(&roles, KernelDef::block(self), launched));
        let body = open.pop().unwrap_or_default();
        let (name, block, blocks_per_sm) = (
            KernelDef::name(self),
            KernelDef::block(self),
            self.blocks_per_sm(),
        );
        let needs = Needs::LEAST;
        let cluster = self.cluster();
        let program = Program {
            name,
            block,
            shape,
            blocks_per_sm,
            cluster,
            params,
            tiles,
            boxes,
            shared,
            body,
            registers,
            pinned,
            needs,
        };
        check::checked(program, errors)
    }

    fn params(&self) -> Vec<Param> {
        let state = State::new();
        let mut k = Builder::new(&state);
        let _: K::Args<Dev<'_>> = ArgList::make(&mut k);
        state.take().params
    }

    fn geometry(&self, args: &[ShapeArg]) -> Result<Geometry, ShapeError> {
        check_args(
            self,
            args.iter()
                .map(|a| matches!(a, ShapeArg::Len(_)).then_some(None)),
        )?;
        let Grid { x, y, z, shared } = self.grid(&ArgList::make(&mut Shapes(args.iter())))?;
        self.require(x > 0 && y > 0 && z > 0, || {
            format!("the grid {x} x {y} x {z} is empty")
        })?;
        let cluster = self.cluster();
        self.require(x.is_multiple_of(cluster.max(1)), || {
            format!(
                "the grid has {x} blocks along its first dimension, not whole clusters of {cluster}"
            )
        })?;
        Ok(Geometry {
            grid: [x, y, z],
            block: KernelDef::block_shape(self),
            shared,
        })
    }

    fn reference_on(&self, args: &mut [CpuArg]) -> Result<(), ShapeError> {
        check_args(self, args.iter().map(|a| a.elem().map(Some)))?;
        self.reference(ArgList::make(&mut CpuArgs(args.iter_mut())));
        Ok(())
    }
}

/// Compares arguments with the parameters: `None` for a value, `Some` of the element type, if known, for a buffer.
fn check_args<K: KernelDef>(
    kernel: &K,
    args: impl ExactSizeIterator<Item = Option<Option<crate::Kind>>>,
) -> Result<(), ShapeError> {
    let params = AnyKernel::params(kernel);
    kernel.require(params.len() == args.len(), || {
        format!("takes {} arguments, not {}", params.len(), args.len())
    })?;
    for (param, arg) in params.iter().zip(args) {
        let fits = match (param.kind, arg) {
            (ParamKind::Scalar(_), None) => true,
            (ParamKind::Buffer(..) | ParamKind::TensorMap(..), Some(None)) => true,
            (ParamKind::Buffer(elem, _) | ParamKind::TensorMap(elem, _), Some(Some(given))) => {
                elem == given
            }
            _ => false,
        };
        kernel.require(fits, || match param.kind {
            ParamKind::Scalar(kind) => {
                format!(
                    "argument {} is a {} value, not a buffer",
                    param.name,
                    kind.name()
                )
            }
            ParamKind::Buffer(elem, _) => {
                format!("argument {} is a buffer of {}", param.name, elem.name())
            }
            ParamKind::TensorMap(elem, _) => {
                format!("argument {} is a tensor of {}", param.name, elem.name())
            }
        })?;
    }
    Ok(())
}

/// 32-bit registers of a multiprocessor, in every target from sm_75 on (CUDA programming guide, "Compute Capabilities").
const REGISTERS: u32 = 65536;

/// Registers that a thread is launched with at most: those of a multiprocessor, shared out in eights.
fn launched(block: u32, blocks_per_sm: Option<u32>) -> u32 {
    let threads = block.saturating_mul(blocks_per_sm.unwrap_or(1));
    (REGISTERS.checked_div(threads).unwrap_or(0) / 8 * 8).min(255)
}
