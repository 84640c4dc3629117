//! Kernels of `ptx-gen`: built, printed for the device, and loaded.

use ptx_gen::{AnyKernel, ArgList as _, Grid, KernelDef, Target, print_with_lines};

use crate::device::Context;
use crate::error::{Error, LaunchProblem};
use crate::launch::borrowed_args::{Args, Shapes};
use crate::launch::{Host, HostArg, Launch};
use crate::module::launch_config::LaunchConfig;
use crate::module::{Function, Module};

/// A loaded kernel of `ptx-gen` with typed arguments.
///
/// ```
/// # use ptx_gen::{args, Builder, Cpu, Dev, Grid, In, KernelDef, Out, Shape, ShapeError, Side};
/// # args! { pub struct AddArgs { x: In<f32>, y: Out<f32>, n: u32, add: f32 } }
/// # struct Add;
/// # impl KernelDef for Add {
/// #     type Args<S: Side> = AddArgs<S>;
/// #     fn name(&self) -> String { "add".into() }
/// #     fn block(&self) -> u32 { 128 }
/// #     fn grid(&self, a: &AddArgs<Shape>) -> Result<Grid, ShapeError> { Ok(Grid::line(a.n.div_ceil(128))) }
/// #     fn program<'k>(&self, k: Builder<'k>, a: AddArgs<Dev<'k>>) {
/// #         let i = k.ctaid() * 128 + k.tid();
/// #         k.when(i.lt(a.n), || a.y.at(i).st(a.x.at(i).ld() + a.add));
/// #     }
/// #     fn reference(&self, a: AddArgs<Cpu<'_>>) {
/// #         a.y.iter_mut().zip(a.x).for_each(|(y, x)| *y = x + a.add);
/// #     }
/// # }
/// # use warpwright_driver::prelude::*;
/// # fn main() -> Result<(), Error> {
/// # let context = Context::new(&Driver::from_library(warpwright_cuda_emu::library())?.device(0)?)?;
/// # let stream = Stream::new(&context)?;
/// // SAFETY: the program stays below `n`, and every buffer below has that many elements.
/// let add = unsafe { Kernel::load(&context, Add) }?; // y = x + add
/// let x = Buffer::from_slice(&context, &[1.0, 2.0])?;
/// let y = Buffer::zeroed(&context, 2)?;
/// stream.launch(&add, AddArgs { x: &x, y: &y, n: 2, add: 10.0 })?;
/// assert_eq!(stream.read(&y)?, [11.0, 12.0]);
/// let back = add.with(AddArgs { x: &y, y: &x, n: 2, add: 1.0 })?; // prepared once, for many launches or a graph
/// stream.run_launch(&back)?;
/// assert_eq!(stream.read(&x)?, [12.0, 13.0]);
/// # Ok(())
/// # }
/// ```
pub struct Kernel<K> {
    def: K,
    function: Function,
}

/// A loaded kernel of `ptx-gen` with untyped arguments.
///
/// Use it for kernels that are known only as `dyn AnyKernel`. [`load_any`] returns it.
///
/// ```
/// # use ptx_gen::{args, AnyKernel, Builder, Cpu, Dev, Grid, In, KernelDef, Out, Shape, ShapeError, Side};
/// # args! { pub struct AddArgs { x: In<f32>, y: Out<f32>, n: u32, add: f32 } }
/// # struct Add;
/// # impl KernelDef for Add {
/// #     type Args<S: Side> = AddArgs<S>;
/// #     fn name(&self) -> String { "add".into() }
/// #     fn block(&self) -> u32 { 128 }
/// #     fn grid(&self, a: &AddArgs<Shape>) -> Result<Grid, ShapeError> { Ok(Grid::line(a.n.div_ceil(128))) }
/// #     fn program<'k>(&self, k: Builder<'k>, a: AddArgs<Dev<'k>>) {
/// #         let i = k.ctaid() * 128 + k.tid();
/// #         k.when(i.lt(a.n), || a.y.at(i).st(a.x.at(i).ld() + a.add));
/// #     }
/// #     fn reference(&self, a: AddArgs<Cpu<'_>>) {
/// #         a.y.iter_mut().zip(a.x).for_each(|(y, x)| *y = x + a.add);
/// #     }
/// # }
/// # use warpwright_driver::launch::load_any;
/// # use warpwright_driver::prelude::*;
/// # fn main() -> Result<(), Error> {
/// # let context = Context::new(&Driver::from_library(warpwright_cuda_emu::library())?.device(0)?)?;
/// # let stream = Stream::new(&context)?;
/// let x = Buffer::from_slice(&context, &[1.0f32, 2.0])?;
/// let y = Buffer::<f32>::zeroed(&context, 2)?;
/// let kernels: [&dyn AnyKernel; 1] = [&Add];
/// for kernel in kernels {
///     // SAFETY: the programs stay below `n`, which is at most the number of elements.
///     let function = unsafe { load_any(&context, kernel) }?;
///     let args = [HostArg::from(&*x), HostArg::from(&*y), HostArg::scalar(2u32), HostArg::scalar(10.0f32)];
///     stream.run_launch(&function.with(&args)?)?;
/// }
/// assert_eq!(stream.read(&y)?, [11.0, 12.0]);
/// # Ok(())
/// # }
/// ```
pub struct AnyFunction<'k> {
    def: &'k dyn AnyKernel,
    function: Function,
}

impl<K: KernelDef> Kernel<K> {
    /// Builds, prints and loads a kernel.
    ///
    /// # Errors
    /// - [`Error::Build`] with every error that `ptx-gen` found.
    /// - [`Error::Module`] with the logs of the compiler.
    ///
    /// # Safety
    /// For all arguments that the kernel's contract ([`KernelDef::grid`]) accepts:
    ///
    /// - The program must stay within the buffers it is given.
    /// - Two of its threads must not access the same bytes without an order between them if one of
    ///   them writes.
    ///
    /// The caller of `load` makes this promise, so that launches are safe. To test it, run the
    /// program on the emulator over the edges of its contract. There each buffer is isolated, and
    /// each such access is an error.
    ///
    /// ```compile_fail,E0133
    /// use warpwright_driver::{Context, Error};
    /// use warpwright_driver::launch::Kernel;
    ///
    /// fn load<K: ptx_gen::KernelDef>(context: &Context, def: K) -> Result<Kernel<K>, Error> {
    ///     Kernel::load(context, def) // no `unsafe` block takes responsibility
    /// }
    /// ```
    pub unsafe fn load(context: &Context, def: K) -> Result<Self, Error> {
        // SAFETY: the caller fulfills the same obligations.
        let function = unsafe { load_function(context, &def) }?;
        Ok(Self { def, function })
    }

    /// Returns the definition of the kernel.
    pub fn def(&self) -> &K {
        &self.def
    }

    /// Returns the loaded function.
    pub fn function(&self) -> &Function {
        &self.function
    }

    /// Creates a launch with these arguments. The kernel's contract determines the grid.
    ///
    /// # Errors
    /// Returns the errors of [`Launch::new`], and [`Error::Launch`] if the contract rejects the
    /// arguments.
    pub fn with(&self, args: K::Args<Host<'_>>) -> Result<Launch, Error> {
        self.collect(&args, |config, args| {
            Launch::typed(&self.function, config, args)
        })
    }

    /// Collects the arguments and passes them to `call` with the launch configuration.
    #[inline]
    pub(crate) fn collect<R>(
        &self,
        args: &K::Args<Host<'_>>,
        call: impl FnOnce(LaunchConfig, &Args<'_>) -> Result<R, Error>,
    ) -> Result<R, Error> {
        let mut collected = Args::default();
        args.each(&mut collected);
        let config = self.config(&collected)?;
        collected.finish(self.function.params());
        call(config, &collected)
    }

    /// Returns the launch configuration that the contract determines for these arguments.
    #[inline]
    fn config(&self, args: &Args<'_>) -> Result<LaunchConfig, Error> {
        let grid = self.def.grid(&K::Args::make(&mut Shapes::new(args)));
        let Grid { x, y, z, shared } =
            grid.map_err(|e| self.function.refuse(LaunchProblem::Shape(e.what)))?;
        Ok(LaunchConfig::new([x, y, z], KernelDef::block_shape(&self.def)).shared(shared))
    }
}

impl<K> std::fmt::Debug for Kernel<K> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Kernel({})", self.function.name())
    }
}

impl std::fmt::Debug for AnyFunction<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "AnyFunction({})", self.function.name())
    }
}

impl AnyFunction<'_> {
    /// Returns the loaded function.
    pub fn function(&self) -> &Function {
        &self.function
    }

    /// Creates a launch with these arguments. The kernel's contract determines the grid.
    ///
    /// # Errors
    /// Returns the errors of [`Launch::new`], and [`Error::Launch`] if the contract rejects the
    /// arguments.
    pub fn with(&self, args: &[HostArg]) -> Result<Launch, Error> {
        let shapes: Vec<_> = args.iter().map(HostArg::shape).collect();
        let geometry = self.def.geometry(&shapes);
        let geometry = geometry.map_err(|e| self.function.refuse(LaunchProblem::Shape(e.what)))?;
        Launch::new(&self.function, geometry, args.to_vec())
    }
}

/// Builds, prints and loads a kernel with untyped arguments.
///
/// # Errors
/// Returns the errors of [`Kernel::load`].
///
/// # Safety
/// The caller must fulfill the obligations of [`Kernel::load`].
pub unsafe fn load_any<'k>(
    context: &Context,
    def: &'k dyn AnyKernel,
) -> Result<AnyFunction<'k>, Error> {
    // SAFETY: the caller fulfills the same obligations.
    let function = unsafe { load_function(context, def) }?;
    Ok(AnyFunction { def, function })
}

/// Builds, prints and loads a kernel.
///
/// # Safety
/// The caller must fulfill the obligations of [`Kernel::load`].
unsafe fn load_function(context: &Context, def: &dyn AnyKernel) -> Result<Function, Error> {
    let name = def.name();
    let fail = |text: String| Error::Build {
        kernel: name.clone(),
        // Errors about a whole kernel begin with its name, which the error has already.
        text: match text.strip_prefix(&format!("{name}: ")) {
            Some(rest) => rest.to_owned(),
            None => text,
        },
    };
    let program = def.build().map_err(|e| fail(e.to_string()))?;
    let text =
        print_with_lines(&program, target(context, &name)?).map_err(|e| fail(e.to_string()))?;
    let module = Module::load(context, &text)?;

    // SAFETY: the text was printed from this program. The caller guarantees that the program stays
    // within its buffers.
    unsafe { module.printed(&program) }
}

/// Returns the newest target that the device runs.
fn target(context: &Context, kernel: &str) -> Result<Target, Error> {
    let (major, minor) = context.device().compute_capability();
    Target::for_device(major, minor).ok_or_else(|| Error::Build {
        kernel: kernel.to_string(),
        text: format!(
            "{} is older than {}, the oldest target",
            context.device(),
            Target::ALL[0]
        ),
    })
}
