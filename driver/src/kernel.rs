//! Kernels of the generator, built, printed for the device, and loaded.

use ptx_gen::{AnyKernel, Args, Geometry, Grid, KernelDef, Target, print_with_lines};

use crate::error::LaunchProblem;
use crate::launch::{Collect, Shapes};
use crate::{Context, Error, Function, Host, HostArg, Launch, Module};

/// A loaded kernel with typed arguments.
pub struct Kernel<K> {
    def: K,
    function: Function,
}

/// A loaded kernel of any argument list.
pub struct AnyFunction<'k> {
    def: &'k dyn AnyKernel,
    function: Function,
}

impl<K: KernelDef> Kernel<K> {
    /// Builds, prints and loads a kernel.
    ///
    /// # Errors
    /// [`Error::Build`] with everything the generator found; [`Error::Module`] with the compiler's logs.
    pub fn load(context: &Context, def: K) -> Result<Self, Error> {
        let function = load_function(context, &def)?;
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
    pub fn with(&self, args: K::Args<Host>) -> Result<Launch, Error> {
        let mut collected = Collect::default();
        args.each(&mut collected);
        let args = collected.0;
        let grid = self.def.grid(&Args::make(&mut Shapes(args.iter())));
        let Grid { x, y, z, shared } =
            grid.map_err(|e| self.function.refuse(LaunchProblem::Shape(e.what)))?;
        Launch::new(
            &self.function,
            Geometry { grid: [x, y, z], block: KernelDef::block(&self.def), shared },
            args,
        )
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
pub fn load_any<'k>(context: &Context, def: &'k dyn AnyKernel) -> Result<AnyFunction<'k>, Error> {
    let function = load_function(context, def)?;
    Ok(AnyFunction { def, function })
}

fn load_function(context: &Context, def: &dyn AnyKernel) -> Result<Function, Error> {
    let name = def.name();
    let fail = |text: String| Error::Build { kernel: name.clone(), text };
    let program = def.build().map_err(|e| fail(e.to_string()))?;
    let text = print_with_lines(&program, target(context, &name)?).map_err(|e| fail(e.to_string()))?;
    let module = Module::load(context, &text)?;
    // SAFETY: the text was printed from the program that declares these parameters, and the kernel's contract, which
    // a reference and the emulator test, keeps it within its buffers.
    unsafe { module.printed(&program) }
}

/// The newest target the device runs.
fn target(context: &Context, kernel: &str) -> Result<Target, Error> {
    let (major, minor) = context.device().compute_capability();
    Target::for_device(major, minor).ok_or_else(|| Error::Build {
        kernel: kernel.to_string(),
        text: format!("{} is older than {}, the oldest target", context.device(), Target::ALL[0]),
    })
}
