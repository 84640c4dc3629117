//! Kernels of the generator, built, printed for the device, and loaded.

use ptx_gen::{AnyKernel, ArgList as _, Grid, KernelDef, Target, print_with_lines};

use crate::args::{Args, Shapes};
use crate::error::LaunchProblem;
use crate::launch::enqueue_typed;
use crate::{Context, Error, Function, Host, HostArg, Launch, LaunchConfig, Module, Stream};

/// A loaded kernel with typed arguments.
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
/// # use warpwright_driver::*;
/// # fn main() -> Result<(), Error> {
/// # let context = Context::new(&Driver::of(warpwright_cuda_emu::library())?.device(0)?)?;
/// # let stream = Stream::new(&context)?;
/// // SAFETY: the program stays below `n`, and every launch below gives it that many elements.
/// let add = unsafe { Kernel::load(&context, Add) }?; // y = x + add
/// let (x, y) = (Buffer::from_slice(&context, &[1.0, 2.0])?, Buffer::zeroed(&context, 2)?);
/// stream.launch(&add, AddArgs { x: &x, y: &y, n: 2, add: 10.0 })?;
/// assert_eq!(stream.read(&y)?, [11.0, 12.0]);
/// let back = add.with(AddArgs { x: &y, y: &x, n: 2, add: 1.0 })?; // made once, for many launches or a graph
/// stream.run_launch(&back)?;
/// assert_eq!(stream.read(&x)?, [12.0, 13.0]);
/// # Ok(())
/// # }
/// ```
pub struct Kernel<K> {
    def: K,
    function: Function,
}

/// A loaded kernel of any argument list.
///
/// [`load_any`] makes it, for kernels that are known as `dyn AnyKernel` only.
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
/// # use warpwright_driver::*;
/// # fn main() -> Result<(), Error> {
/// # let context = Context::new(&Driver::of(warpwright_cuda_emu::library())?.device(0)?)?;
/// # let stream = Stream::new(&context)?;
/// let (x, y) = (Buffer::from_slice(&context, &[1.0f32, 2.0])?, Buffer::<f32>::zeroed(&context, 2)?);
/// let kernels: [&dyn AnyKernel; 1] = [&Add];
/// for kernel in kernels {
///     // SAFETY: the programs stay below `n`, which is no more than the elements.
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
    /// [`Error::Build`] with everything the generator found; [`Error::Module`] with the compiler's logs.
    ///
    /// # Safety
    /// For all arguments that the kernel's contract ([`KernelDef::grid`]) accepts, its program stays within the buffers
    /// it is given, and no two of its threads use the same bytes, one of them writing, without an order between them.
    /// Whoever loads a kernel signs for that; whoever launches it need not. Running the program on the emulator over
    /// the edges of its contract is evidence: there every buffer lies by itself, and each such access is an error.
    ///
    /// ```compile_fail,E0133
    /// use warpwright_driver::{Context, Error, Kernel};
    ///
    /// fn load<K: ptx_gen::KernelDef>(context: &Context, def: K) -> Result<Kernel<K>, Error> {
    ///     Kernel::load(context, def) // Nobody signed.
    /// }
    /// ```
    pub unsafe fn load(context: &Context, def: K) -> Result<Self, Error> {
        // SAFETY: the caller vouches for the kernel.
        let function = unsafe { load_function(context, &def) }?;
        Ok(Self { def, function })
    }

    /// The definition.
    pub fn def(&self) -> &K {
        &self.def
    }

    /// What was loaded.
    pub fn function(&self) -> &Function {
        &self.function
    }

    /// A launch with these arguments, its geometry from the kernel's contract.
    ///
    /// # Errors
    /// As [`Launch::new`], and what the contract refuses.
    pub fn with(&self, args: K::Args<Host<'_>>) -> Result<Launch, Error> {
        self.collect(&args, |config, args| {
            Launch::typed(&self.function, config, args)
        })
    }

    /// Hands the arguments and the shape to a call.
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

    /// Launches the kernel in a stream.
    #[inline]
    pub(crate) fn enqueue(&self, stream: &Stream, args: &K::Args<Host<'_>>) -> Result<(), Error> {
        self.collect(args, |config, args| {
            enqueue_typed(stream, &self.function, &config, args)
        })
    }

    /// The shape that the contract gives these arguments.
    #[inline]
    fn config(&self, args: &Args<'_>) -> Result<LaunchConfig, Error> {
        let grid = self.def.grid(&K::Args::make(&mut Shapes::of(args)));
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
    /// What was loaded.
    pub fn function(&self) -> &Function {
        &self.function
    }

    /// A launch with these arguments, its geometry from the kernel's contract.
    ///
    /// # Errors
    /// As [`Launch::new`], and what the contract refuses.
    pub fn with(&self, args: &[HostArg]) -> Result<Launch, Error> {
        let shapes: Vec<_> = args.iter().map(HostArg::shape).collect();
        let geometry = self.def.geometry(&shapes);
        let geometry = geometry.map_err(|e| self.function.refuse(LaunchProblem::Shape(e.what)))?;
        Launch::new(&self.function, geometry, args.to_vec())
    }
}

/// Builds, prints and loads a kernel of any argument list.
///
/// # Errors
/// As [`Kernel::load`].
///
/// # Safety
/// As [`Kernel::load`].
pub unsafe fn load_any<'k>(
    context: &Context,
    def: &'k dyn AnyKernel,
) -> Result<AnyFunction<'k>, Error> {
    // SAFETY: the caller vouches for the kernel.
    let function = unsafe { load_function(context, def) }?;
    Ok(AnyFunction { def, function })
}

/// # Safety
/// As [`Kernel::load`].
unsafe fn load_function(context: &Context, def: &dyn AnyKernel) -> Result<Function, Error> {
    let name = def.name();
    let fail = |text: String| Error::Build {
        kernel: name.clone(),
        text,
    };
    let program = def.build().map_err(|e| fail(e.to_string()))?;
    let text =
        print_with_lines(&program, target(context, &name)?).map_err(|e| fail(e.to_string()))?;
    let module = Module::load(context, &text)?;
    // SAFETY: the text was printed from the program that declares these parameters, and the caller vouches for the rest.
    unsafe { module.printed(&program) }
}

/// The newest target the device runs.
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
