//! The definition of a kernel: name, argument list, launch contract, program and CPU reference.

use crate::args::*;
use crate::build::{Builder, BuilderState};
use crate::check::{self, Errors};
use crate::elem::CpuArg;
use crate::ir::{Needs, Param, ParamKind, Program};
use crate::ty::Kind;
use std::fmt;

/// The number of blocks of a launch and the dynamic shared memory of each.
///
/// [`KernelDef::grid`] returns it.
///
/// # Example: eight blocks with 4 KiB of dynamic shared memory each
/// ```
/// use ptx_gen::Grid;
///
/// let grid = Grid { shared: 4096, ..Grid::line(8) };
/// assert_eq!([grid.x, grid.y, grid.z], [8, 1, 1]);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Grid {
    /// The number of blocks along the first dimension.
    pub x: u32,
    /// The number of blocks along the second dimension.
    pub y: u32,
    /// The number of blocks along the third dimension.
    pub z: u32,
    /// The dynamic shared memory of each block, in bytes.
    pub shared: u32,
}

impl Grid {
    /// Returns a grid of `x` blocks without dynamic shared memory.
    pub fn line(x: u32) -> Grid {
        Grid {
            x,
            y: 1,
            z: 1,
            shared: 0,
        }
    }

    /// Returns a grid of `x` by `y` blocks without dynamic shared memory.
    pub fn plane(x: u32, y: u32) -> Grid {
        Grid { y, ..Grid::line(x) }
    }
}

/// The geometry of a launch, as the driver API takes it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Geometry {
    /// The number of blocks along three dimensions.
    pub grid: [u32; 3],
    /// The number of threads of a block along three dimensions.
    pub block: [u32; 3],
    /// The dynamic shared memory of each block, in bytes.
    pub shared: u32,
}

/// An error about arguments that the launch contract of a kernel does not allow.
#[derive(Clone, PartialEq, Eq)]
pub struct ShapeError {
    /// The name of the kernel.
    pub kernel: String,
    /// A sentence that names the argument, its value and the required value.
    pub what: String,
}

impl fmt::Display for ShapeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.kernel, self.what)
    }
}
impl std::error::Error for ShapeError {}

/// A kernel definition. The fields of the implementing struct are its tuning parameters.
///
/// One struct can describe a family of kernels, for example one per block size. [`AnyKernel`],
/// which every definition implements, builds the program and evaluates the launch contract. The
/// [crate page](crate) has a complete example.
pub trait KernelDef: Sync {
    /// The argument list, declared with [`args!`](crate::args).
    type Args<S: Side>: ArgList<S>;

    /// Returns the entry name, for example `rms_norm_256`. It must be unique and a valid PTX
    /// identifier.
    fn name(&self) -> String;

    /// Returns the number of threads in a block over all dimensions: a multiple of 32, at most
    /// 1024.
    fn block(&self) -> u32;

    /// Returns the number of threads of a block along its three dimensions.
    ///
    /// Their product must be [`block`](KernelDef::block). By default a block has one dimension.
    /// Lanes and warps are numbered along the first dimension, then the second, then the third.
    fn block_shape(&self) -> [u32; 3] {
        [self.block(), 1, 1]
    }

    /// Returns the number of blocks that a multiprocessor must be able to hold at once
    /// (`.minnctapersm`).
    ///
    /// `ptxas` uses as many registers per thread as this allows. By default it uses few and moves
    /// loads next to their uses, which suits kernels that are not limited by memory latency.
    fn blocks_per_sm(&self) -> Option<u32> {
        None
    }

    /// Returns the number of blocks in a cluster along the first dimension of the grid, at most 8.
    ///
    /// The blocks of a cluster run at the same time and can access each other's shared memory. The
    /// grid must have whole clusters. A value above 1 needs sm_90.
    fn cluster(&self) -> u32 {
        1
    }

    /// Returns the grid for these arguments: the launch contract.
    ///
    /// The driver calls it before every launch. It must reject every argument that would let the
    /// program access memory out of bounds.
    ///
    /// # Errors
    /// Returns an error that names the argument, its value and the required value. Use
    /// [`require`](KernelDef::require) for each condition.
    fn grid(&self, a: &Self::Args<Shape>) -> Result<Grid, ShapeError>;

    /// Appends the instructions of the kernel to `k`.
    fn program<'k>(&self, k: Builder<'k>, a: Self::Args<Dev<'k>>);

    /// Computes the same result on the CPU in the most direct way. It serves as the specification.
    fn reference(&self, a: Self::Args<Cpu<'_>>);

    /// Checks one condition of the launch contract.
    ///
    /// # Errors
    /// Returns an error with the text that `what` returns, unless `holds` is true.
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

/// A kernel with any argument list. Tools and test harnesses use it as a trait object.
///
/// Every [`KernelDef`] implements it.
pub trait AnyKernel: Sync {
    /// Returns the entry name. See [`KernelDef::name`].
    fn name(&self) -> String;
    /// Returns the number of threads in a block. See [`KernelDef::block`].
    fn block(&self) -> u32;
    /// Returns the number of threads along each dimension of a block. See
    /// [`KernelDef::block_shape`].
    fn block_shape(&self) -> [u32; 3];
    /// Builds and validates the program.
    ///
    /// # Errors
    /// Returns all errors that validation finds, each with its line in the Rust source.
    fn build(&self) -> Result<Program, Errors>;
    /// Returns the parameters in order.
    fn params(&self) -> Vec<Param>;
    /// Evaluates the launch contract for arguments of these shapes, in the order of
    /// [`params`](AnyKernel::params).
    ///
    /// # Errors
    /// Returns an error if an argument is missing, has the wrong kind, or violates the launch
    /// contract.
    fn geometry(&self, args: &[ShapeArg]) -> Result<Geometry, ShapeError>;
    /// Runs the CPU reference in place.
    ///
    /// # Errors
    /// Returns an error if an argument is missing or its type differs from the parameter's.
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
        let state = BuilderState::new();

        // The program may ask for the shape and split the registers among roles, so both are known
        // before it runs.
        state.borrow_mut().shape = KernelDef::block_shape(self);
        state.borrow_mut().launched = launched(KernelDef::block(self), self.blocks_per_sm());
        let mut k = Builder::new(&state);
        let args = ArgList::make(&mut k);
        self.program(k, args);
        let BuilderState {
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
        let program = Program {
            name: KernelDef::name(self),
            block: KernelDef::block(self),
            shape,
            blocks_per_sm: self.blocks_per_sm(),
            cluster: self.cluster(),
            params,
            tiles,
            boxes,
            shared,
            body,
            registers,
            pinned,
            // Validation computes the needs from the instructions.
            needs: Needs::LEAST,
        };
        check::checked(program, errors)
    }

    fn params(&self) -> Vec<Param> {
        let state = BuilderState::new();
        let mut k = Builder::new(&state);
        let _: K::Args<Dev<'_>> = ArgList::make(&mut k);
        state.take().params
    }

    fn geometry(&self, args: &[ShapeArg]) -> Result<Geometry, ShapeError> {
        check_args(
            self,
            args.iter().map(|arg| match arg {
                ShapeArg::Len(_) => GivenArg::Buffer,
                ShapeArg::Scalar(_) => GivenArg::Scalar,
            }),
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
        check_args(
            self,
            args.iter().map(|arg| match arg.elem() {
                Some(elem) => GivenArg::BufferOf(elem),
                None => GivenArg::Scalar,
            }),
        )?;
        self.reference(ArgList::make(&mut CpuArgs(args.iter_mut())));
        Ok(())
    }
}

/// An argument to check against a parameter.
#[derive(Clone, Copy, PartialEq, Eq)]
enum GivenArg {
    Scalar,
    /// A buffer whose element type is not known here.
    Buffer,
    BufferOf(Kind),
}

/// Checks the number and the types of arguments against the parameters.
fn check_args<K: KernelDef>(
    kernel: &K,
    args: impl ExactSizeIterator<Item = GivenArg>,
) -> Result<(), ShapeError> {
    let params = AnyKernel::params(kernel);
    kernel.require(params.len() == args.len(), || {
        format!("takes {} arguments, not {}", params.len(), args.len())
    })?;
    for (param, arg) in params.iter().zip(args) {
        let fits = match param.kind {
            ParamKind::Scalar(_) => arg == GivenArg::Scalar,
            // A launch contract sees only lengths, so the element type is compared where it is
            // known.
            ParamKind::Buffer(elem, _) | ParamKind::TensorMap(elem, _) => {
                arg == GivenArg::Buffer || arg == GivenArg::BufferOf(elem)
            }
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

/// The number of 32-bit registers of a multiprocessor on every target from sm_75 on (CUDA C++
/// Programming Guide, "Compute Capabilities").
const REGISTERS: u32 = 65536;

/// Returns the maximum number of registers that a thread has at launch.
///
/// The registers of a multiprocessor are divided among its threads in units of eight.
fn launched(block: u32, blocks_per_sm: Option<u32>) -> u32 {
    let threads = block.saturating_mul(blocks_per_sm.unwrap_or(1));
    (REGISTERS.checked_div(threads).unwrap_or(0) / 8 * 8).min(255)
}
