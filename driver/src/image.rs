//! Modules from more than PTX: machine code, several texts linked into one, options of the compiler, and what a module
//! has beside kernels.

use std::ffi::{CStr, CString, c_char, c_void};

use driver_sys::{CUfunction, CUjit_option, CUjitInputType, CUlinkState, CUresult};

use crate::driver::trimmed;
use crate::element::Element;
use crate::module_error::ModuleReason;
use crate::{Buffer, Context, DriverError, Error, Module, View};

/// Room for the log of the linker, in bytes.
const LOG: usize = 16 << 10;

/// How the driver compiles PTX. What is not said is left to it.
///
/// ```
/// # use warpwright_driver::*;
/// # const SCALE: &str = include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/src/scale.ptx"));
/// # fn main() -> Result<(), Error> {
/// # let context = Context::new(&Driver::of(warpwright_cuda_emu::library())?.device(0)?)?;
/// let module = Module::load_with(&context, SCALE, &JitOptions::default().max_registers(32))?;
/// assert_eq!(module.kernels()?[0].name, "scale");
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub struct JitOptions {
    /// The most registers of a thread.
    pub max_registers: Option<u32>,
    /// 0 (none) to 4 (most, the default).
    pub optimization: Option<u32>,
    /// Whether the machine code tells debuggers of variables and places; it is slower.
    pub debug_info: bool,
    /// Whether it tells profilers of lines.
    pub line_info: bool,
}

/// A kernel of a module or a library, as the driver lists it.
///
/// ```
/// # use warpwright_driver::*;
/// # const SCALE: &str = include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/src/scale.ptx"));
/// # fn main() -> Result<(), Error> {
/// # let context = Context::new(&Driver::of(warpwright_cuda_emu::library())?.device(0)?)?;
/// # let module = Module::load(&context, SCALE)?;
/// let kernels = module.kernels()?;
/// assert_eq!(kernels[0].parameters, Some(vec![(0, 4), (4, 4), (8, 8)])); // offsets and sizes of n, a, y
/// # Ok(())
/// # }
/// ```
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ListedKernel {
    /// Its name.
    pub name: String,
    /// Its parameters, each as offset and size in bytes; none where the driver does not tell.
    pub parameters: Option<Vec<(usize, usize)>>,
}

impl JitOptions {
    /// The same with at most so many registers a thread.
    #[must_use]
    pub const fn max_registers(self, registers: u32) -> Self {
        Self {
            max_registers: Some(registers),
            ..self
        }
    }

    /// The same at that level of optimization, from 0 to 4.
    #[must_use]
    pub const fn optimization(self, level: u32) -> Self {
        Self {
            optimization: Some(level),
            ..self
        }
    }

    /// The same with what debuggers need.
    #[must_use]
    pub const fn debug_info(self) -> Self {
        Self {
            debug_info: true,
            ..self
        }
    }

    /// The same with what profilers need.
    #[must_use]
    pub const fn line_info(self) -> Self {
        Self {
            line_info: true,
            ..self
        }
    }

    /// As the driver takes them.
    pub(crate) fn pairs(&self) -> Vec<(CUjit_option, *mut c_void)> {
        let number = |n: u32| std::ptr::without_provenance_mut(n as usize);
        let mut pairs = Vec::new();
        pairs.extend(
            self.max_registers
                .map(|n| (CUjit_option::MAX_REGISTERS, number(n))),
        );
        pairs.extend(
            self.optimization
                .map(|n| (CUjit_option::OPTIMIZATION_LEVEL, number(n))),
        );
        pairs.extend(
            self.debug_info
                .then(|| (CUjit_option::GENERATE_DEBUG_INFO, number(1))),
        );
        pairs.extend(
            self.line_info
                .then(|| (CUjit_option::GENERATE_LINE_INFO, number(1))),
        );
        pairs
    }
}

impl Module {
    /// Loads machine code: a cubin or a fatbin, as `ptxas` and `nvcc` write them.
    ///
    /// # Errors
    /// [`Error::Module`] with what the driver says.
    ///
    /// # Safety
    /// The bytes are such an image, whole: the driver believes the lengths that it finds in it.
    pub unsafe fn load_image(context: &Context, image: &[u8]) -> Result<Self, Error> {
        Self::compiled(context, image, String::new(), &JitOptions::default())
    }

    /// Takes several PTX texts for one module: a function that one declares `.extern` is found in another. Each has a
    /// name, which errors show.
    ///
    /// # Errors
    /// [`Error::Module`] with the log of the linker.
    pub fn link(context: &Context, texts: &[(&str, &str)]) -> Result<Self, Error> {
        let all: String = texts
            .iter()
            .map(|(_, text)| *text)
            .collect::<Vec<_>>()
            .join("\n");
        let linker = Linker::new(context, &all)?;
        texts
            .iter()
            .try_for_each(|(name, text)| linker.add(name, text))?;
        let image = linker.complete()?;
        Self::compiled(context, &image, all, &JitOptions::default())
    }

    /// The kernels that the driver finds in it. Drivers for less than CUDA 12.4 list none, and there the names come
    /// from the PTX.
    ///
    /// # Errors
    /// What the driver refuses.
    pub fn kernels(&self) -> Result<Vec<ListedKernel>, Error> {
        let driver = self.context().driver();
        let (api, _current) = (driver.api(), self.context().enter()?);
        if api.cuModuleGetFunctionCount.is_none() || api.cuFuncGetName.is_none() {
            let named = |name: &&str| ListedKernel {
                name: (*name).to_string(),
                parameters: None,
            };
            return Ok(crate::ptx::entries(self.text()).iter().map(named).collect());
        }
        let mut count = 0;
        // SAFETY: `count` is ours to write, and the module is loaded.
        unsafe { cu_if_there!(driver, cuModuleGetFunctionCount(&mut count, self.raw())) }?;
        let mut functions = vec![CUfunction::NULL; count as usize];
        let to = functions.as_mut_ptr();
        // SAFETY: the array has room for that many.
        unsafe { cu_if_there!(driver, cuModuleEnumerateFunctions(to, count, self.raw())) }?;
        functions
            .into_iter()
            .map(|function| self.listed(function))
            .collect()
    }

    fn listed(&self, function: CUfunction) -> Result<ListedKernel, Error> {
        let (driver, mut name) = (self.context().driver(), std::ptr::null::<c_char>());
        // SAFETY: `name` is ours to write, and the function is of the loaded module.
        unsafe { cu_if_there!(driver, cuFuncGetName(&mut name, function)) }?;
        // SAFETY: the driver's name is a C string that lives as long as the module.
        let name = unsafe { CStr::from_ptr(name) }
            .to_string_lossy()
            .into_owned();
        let known = crate::ptx::param_count(self.text(), &name).unwrap_or(usize::MAX);
        let parameters = driver.api().cuFuncGetParamInfo.map(|info| {
            places(known, |index, offset, size| {
                // SAFETY: both numbers are ours to write, and past the last parameter the call refuses.
                let code = unsafe { info(function, index, offset, size) };
                (code != CUresult::INVALID_VALUE).then(|| driver.check("cuFuncGetParamInfo", code))
            })
        });
        Ok(ListedKernel {
            name,
            parameters: parameters.transpose()?,
        })
    }

    /// A global variable of the module, as memory: of type `T`, as many as it holds.
    ///
    /// ```
    /// # use warpwright_driver::*;
    /// # fn main() -> Result<(), Error> {
    /// # let driver = Driver::of(warpwright_cuda_emu::library())?;
    /// # let context = Context::new(&driver.device(0)?)?;
    /// let ptx = ".version 7.0\n.target sm_70\n.address_size 64\n.visible .global .align 4 .u32 table[2] = {7, 8};\n";
    /// let module = Module::load(&context, ptx)?;
    /// let table = module.global::<u32>("table")?;
    /// assert_eq!(table.to_vec()?, [7, 8]);
    /// table.write(&[1, 2])?;
    /// assert_eq!(table.to_vec()?, [1, 2]);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// No such variable ([`ModuleReason::NoGlobal`]), or a size that is not a whole number of `T`.
    pub fn global<T: Element>(&self, name: &str) -> Result<View<T>, Error> {
        let driver = self.context().driver();
        let missing = || {
            self.fault(ModuleReason::NoGlobal {
                name: name.to_string(),
            })
        };
        let c_name = CString::new(name).map_err(|_| missing())?;
        let (mut address, mut bytes, _current) = (0, 0, self.context().enter()?);
        // SAFETY: both numbers are ours to write; the module is loaded and the name a C string.
        let found = unsafe {
            cu_if_there!(
                driver,
                cuModuleGetGlobal_v2(&mut address, &mut bytes, self.raw(), c_name.as_ptr())
            )
        };
        match found {
            Err(error) if error.code == CUresult::NOT_FOUND => return Err(missing()),
            other => other?,
        }
        // SAFETY: the variable lies in the module, which the buffer keeps.
        let all = unsafe { Buffer::<u8>::from_raw(self.context(), address, bytes, self.clone()) };
        all.labelled(name).cast()
    }
}

/// Offset and size of each parameter of a kernel, at most so many: `ask` writes them, and gives none past the last.
pub(crate) fn places(
    most: usize,
    ask: impl Fn(usize, &mut usize, &mut usize) -> Option<Result<(), DriverError>>,
) -> Result<Vec<(usize, usize)>, DriverError> {
    let mut places = Vec::new();
    for index in 0..most {
        let (mut offset, mut size) = (0, 0);
        let Some(asked) = ask(index, &mut offset, &mut size) else {
            break;
        };
        asked?;
        places.push((offset, size));
    }
    Ok(places)
}

/// A linker of the driver.
struct Linker<'c> {
    context: &'c Context,
    raw: CUlinkState,
    /// The texts, for errors.
    all: &'c str,
    /// Where it writes its log, for as long as it lives.
    log: Box<[u8; LOG]>,
}

impl<'c> Linker<'c> {
    fn new(context: &'c Context, all: &'c str) -> Result<Self, Error> {
        let mut linker = Self {
            context,
            raw: CUlinkState::NULL,
            all,
            log: Box::new([0; LOG]),
        };
        let mut options = [
            CUjit_option::ERROR_LOG_BUFFER,
            CUjit_option::ERROR_LOG_BUFFER_SIZE_BYTES,
        ];
        let log: *mut c_void = linker.log.as_mut_ptr().cast();
        let mut values = [log, std::ptr::without_provenance_mut(LOG)];
        let (options, values) = (options.as_mut_ptr(), values.as_mut_ptr());
        let (_current, driver) = (context.enter()?, context.driver());
        // SAFETY: `raw` is ours to write; the log lives as long as the linker.
        unsafe { cu_if_there!(driver, cuLinkCreate_v2(2, options, values, &mut linker.raw)) }?;
        Ok(linker)
    }

    fn add(&self, name: &str, text: &str) -> Result<(), Error> {
        let nul = |error: std::ffi::NulError| self.fault(ModuleReason::Nul(error.nul_position()));
        let (name, text) = (
            CString::new(name).map_err(nul)?,
            CString::new(text).map_err(nul)?,
        );
        let bytes = text.as_bytes_with_nul();
        let (data, size) = (bytes.as_ptr().cast_mut().cast(), bytes.len());
        let (null, nulls) = (std::ptr::null_mut(), std::ptr::null_mut());
        let (_current, driver) = (self.context.enter()?, self.context.driver());
        // SAFETY: the text ends with NUL and is lent for the call.
        let added = unsafe {
            let kind = CUjitInputType::PTX;
            cu_if_there!(
                driver,
                cuLinkAddData_v2(self.raw, kind, data, size, name.as_ptr(), 0, null, nulls)
            )
        };
        added.map_err(|error| self.fault(error.into()))
    }

    /// The machine code.
    fn complete(self) -> Result<Vec<u8>, Error> {
        let (mut image, mut size) = (std::ptr::null_mut(), 0);
        let (_current, driver) = (self.context.enter()?, self.context.driver());
        // SAFETY: both are ours to write.
        let linked =
            unsafe { cu_if_there!(driver, cuLinkComplete(self.raw, &mut image, &mut size)) };
        linked.map_err(|error| self.fault(error.into()))?;
        // SAFETY: the driver's image has that many bytes, and lives until the linker is destroyed.
        Ok(unsafe { std::slice::from_raw_parts(image.cast::<u8>(), size) }.to_vec())
    }

    fn fault(&self, reason: ModuleReason) -> Error {
        crate::module::fault(self.context, self.all, reason, trimmed(&*self.log))
    }
}

impl Drop for Linker<'_> {
    fn drop(&mut self) {
        let (Ok(_current), driver) = (self.context.enter(), self.context.driver()) else {
            return;
        };
        if self.raw.is_null() {
            return;
        }
        // SAFETY: the linker is ours, and nobody names it any more.
        if let Err(error) = unsafe { cu_if_there!(driver, cuLinkDestroy(self.raw)) } {
            tell!(warn, %error, "linker not destroyed");
        }
    }
}
