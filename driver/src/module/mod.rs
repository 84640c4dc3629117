//! Loaded code: modules, libraries, and the kernels in them.
//!
//! A [`Module`] is PTX or machine code that was loaded into one context. A [`Library`] is loaded
//! once and used in any context. Both contain kernels. A [`Function`] is a kernel with its declared
//! [parameters](Parameter).
//!
//! There are three ways to get a kernel:
//!
//! - Declare it with [`kernel!`](crate::kernel), for your own PTX.
//! - Call [`Module::function`], if the parameters are known only at run time.
//! - Load it with [`Kernel::load`](crate::launch::Kernel::load), if it was written with `ptx-gen`.
//!
//! All three are `unsafe`, because only the author of a kernel knows which memory it accesses.
//! Everything after that is safe.
//!
//! - Declared parameters are compared with the PTX and with the driver's report, so a launch never
//!   passes arguments of the wrong size.
//! - PTX that is too new for the driver, or whose target does not run on the device, is refused
//!   before the driver compiles it. The error names the required version or the target.
//! - A function keeps its module loaded, and queued work keeps its function.

mod function;
mod images;
mod jit_options;
pub(crate) mod kernel_macro;
pub(crate) mod launch_config;
mod library;
pub(crate) mod loaded_module;
mod occupancy;
pub(crate) mod parameter;
pub(crate) mod ptx;

pub use function::Function;
pub use images::ListedKernel;
pub use jit_options::JitOptions;
pub use library::Library;
pub use loaded_module::Module;
pub use occupancy::SuggestedBlock;
pub use parameter::{Parameter, ParameterType};
pub use ptx_gen::{Param, ParamKind};
