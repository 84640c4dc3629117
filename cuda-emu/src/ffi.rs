//! The FFI boundary: what a caller in C passes becomes values that safe code can check and use.
//!
//! [`CArgument::convert`] wraps every raw pointer once, in the exported function. Only that conversion relies on the
//! caller keeping the contract of the driver API: a pointer is NULL or valid for what the call's documentation says.
//! Everything after it is checked and safe.

#![allow(unsafe_code, non_snake_case)]

use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::marker::PhantomData;
use std::panic::{AssertUnwindSafe, catch_unwind};

use warpwright_driver_sys::*;

use crate::launch::Geometry;
use crate::machine::{self, Machine};
use crate::work::KernelWork;

/// Why a call or a piece of work failed.
#[derive(Debug)]
pub(crate) struct Error {
    /// The code for the caller. After work that ran on a stream it becomes the sticky error of the context.
    pub(crate) code: CUresult,
    /// The sentence for the log; empty where the code says it all.
    pub(crate) text: String,
}

impl Error {
    pub(crate) fn new(code: CUresult, text: impl Into<String>) -> Self {
        Self { code, text: text.into() }
    }
}

impl From<CUresult> for Error {
    fn from(code: CUresult) -> Self {
        Self::new(code, "")
    }
}

/// The result of a function of the API.
pub(crate) type Result<T = (), E = Error> = std::result::Result<T, E>;

/// An error with its reason.
pub(crate) fn refuse<T>(code: CUresult, why: impl Into<String>) -> Result<T> {
    Err(Error::new(code, why))
}

/// Refuses with INVALID_VALUE unless the condition holds.
pub(crate) fn require(holds: bool, why: impl FnOnce() -> String) -> Result {
    if holds { Ok(()) } else { Err(Error::new(CUresult::INVALID_VALUE, why())) }
}

/// Runs the body of an exported function: nothing unwinds into C, nothing runs before `cuInit`.
pub(crate) fn enter(name: &'static str, body: impl FnOnce(&'static Machine) -> Result) -> CUresult {
    let machine = machine::current();
    let result = catch_unwind(AssertUnwindSafe(|| {
        machine.admit(name)?;
        body(machine)
    }));
    match result {
        Ok(Ok(())) => CUresult::SUCCESS,
        Ok(Err(Error { code, text })) => {
            if !text.is_empty() {
                machine.log(format!("{name}: {text}"));
            }
            code
        }
        Err(panic) => {
            let text = panic.downcast_ref::<String>().map(String::as_str);
            let text = text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("no text");
            machine.finding(format!("{name}: the emulator panicked: {text}"));
            CUresult::UNKNOWN
        }
    }
}

/// An argument as C passes it, and its conversion to what safe code uses.
pub(crate) trait CArgument {
    type Inside;

    /// # Safety
    /// The value is one that the contract of the driver API allows for this argument.
    unsafe fn convert(self) -> Self::Inside;
}

/// A pointer through which the driver writes, and where the API says so reads: `T` or an array of `T`.
pub(crate) struct Out<'a, T>(*mut T, PhantomData<&'a mut T>);

/// A pointer through which the driver reads: `T` or an array of `T`.
pub(crate) struct In<'a, T>(*const T, PhantomData<&'a T>);

impl<T> Clone for Out<'_, T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Out<'_, T> {}

impl<T> Clone for In<'_, T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for In<'_, T> {}

impl<T: 'static> CArgument for *mut T {
    type Inside = Out<'static, T>;

    unsafe fn convert(self) -> Self::Inside {
        Out(self, PhantomData)
    }
}

impl<T: 'static> CArgument for *const T {
    type Inside = In<'static, T>;

    unsafe fn convert(self) -> Self::Inside {
        In(self, PhantomData)
    }
}

macro_rules! by_value {
    ($($type:ty),* $(,)?) => {$(
        impl CArgument for $type {
            type Inside = Self;

            unsafe fn convert(self) -> Self {
                self
            }
        }
    )*};
}

by_value!(
    c_int,
    c_uint,
    u8,
    u16,
    u64,
    usize,
    CUresult,
    CUcontext,
    CUmodule,
    CUfunction,
    CUstream,
    CUevent,
    CUgraph,
    CUgraphNode,
    CUgraphExec,
    CUdevice_attribute,
    CUfunction_attribute,
    CUstreamCaptureMode,
    CUhostFn,
    CUstream_flags,
    CUevent_flags,
    CUmemhostalloc_flags,
    CUmemhostregister_flags,
    CUgraphInstantiate_flags,
    CUgraphDebugDot_flags,
);

impl<'a, T> Out<'a, T> {
    /// No pointer.
    pub(crate) const fn null() -> Self {
        Self(std::ptr::null_mut(), PhantomData)
    }

    pub(crate) fn is_null(self) -> bool {
        self.0.is_null()
    }

    /// The address, for memory of the caller that outlives the call.
    pub(crate) fn address(self) -> usize {
        self.0 as usize
    }

    /// The same pointer where the API says `void*` and means another type.
    pub(crate) fn cast<U>(self) -> Out<'a, U> {
        Out(self.0.cast(), PhantomData)
    }

    /// Writes the result; a NULL pointer is refused.
    pub(crate) fn set(self, value: T) -> Result {
        require(!self.is_null(), || "a result pointer is NULL".into())?;
        self.set_if(value);
        Ok(())
    }

    /// Writes the result if the caller wants it.
    pub(crate) fn set_if(self, value: T) {
        if !self.is_null() {
            // SAFETY: not NULL, so by the contract of the API valid for one write.
            unsafe { self.0.write(value) }
        }
    }

    /// Writes element `index` of an array of the caller.
    pub(crate) fn set_at(self, index: usize, value: T) {
        // SAFETY: the caller passed a count above `index`, so by contract the element is its own.
        unsafe { self.0.add(index).write(value) }
    }

    /// Writes an array that the caller made large enough.
    pub(crate) fn set_all(self, values: impl IntoIterator<Item = T>) {
        for (i, value) in values.into_iter().enumerate() {
            self.set_at(i, value);
        }
    }
}

impl<T: Copy> Out<'_, T> {
    /// Reads an argument that is read as well as written.
    pub(crate) fn get(self) -> Result<T> {
        In(self.0.cast_const(), PhantomData).get()
    }

    /// The first `count` elements.
    pub(crate) fn slice(self, count: usize) -> Result<&'static [T]> {
        In(self.0.cast_const(), PhantomData).slice(count)
    }
}

impl<'a, T: Copy> In<'a, T> {
    /// The value that the pointer points to.
    pub(crate) fn get(self) -> Result<T> {
        require(!self.is_null(), || "an argument pointer is NULL".into())?;
        // SAFETY: not NULL, so by the contract of the API valid for one read. Unaligned reads cost nothing here.
        Ok(unsafe { self.0.read_unaligned() })
    }

    /// The first `count` elements; NULL is an empty array.
    pub(crate) fn slice(self, count: usize) -> Result<&'a [T]> {
        if count == 0 {
            return Ok(&[]);
        }
        require(!self.is_null(), || format!("an array of {count} is NULL"))?;
        require(self.0.is_aligned(), || "an array is not aligned".into())?;
        // SAFETY: not NULL and aligned; by contract the caller passed the length of its own array.
        Ok(unsafe { std::slice::from_raw_parts(self.0, count) })
    }
}

impl<T> In<'_, T> {
    /// No pointer.
    pub(crate) const fn null() -> Self {
        Self(std::ptr::null(), PhantomData)
    }

    pub(crate) fn is_null(self) -> bool {
        self.0.is_null()
    }

    /// The address, for memory of the caller that outlives the call.
    pub(crate) fn address(self) -> usize {
        self.0 as usize
    }
}

impl<'a> In<'a, c_char> {
    /// The bytes of a C string without their NUL.
    pub(crate) fn bytes(self) -> Result<&'a [u8]> {
        require(!self.is_null(), || "a string is NULL".into())?;
        // SAFETY: not NULL, so by contract a string that ends with NUL.
        Ok(unsafe { CStr::from_ptr(self.0) }.to_bytes())
    }

    /// A C string that must be UTF-8.
    pub(crate) fn text(self) -> Result<&'a str> {
        std::str::from_utf8(self.bytes()?)
            .or_else(|_| refuse(CUresult::INVALID_VALUE, "a string is not UTF-8"))
    }
}

impl Out<'_, c_char> {
    /// Writes `text` cut to `capacity` bytes with its NUL; the bytes written.
    pub(crate) fn set_text(self, text: &str, capacity: usize) -> usize {
        if self.is_null() || capacity == 0 {
            return 0;
        }
        let bytes = &text.as_bytes()[..text.len().min(capacity - 1)];
        self.set_all(bytes.iter().chain(&[0]).map(|&b| b as c_char));
        bytes.len() + 1
    }
}

impl Out<'static, CUlaunchAttribute> {
    /// The attributes of a launch, which the FFI boundary converted with its configuration.
    pub(crate) fn from_config(config: &CUlaunchConfig) -> Self {
        Self(config.attrs, PhantomData)
    }
}

/// The address of a C string, a `char*` passed as an untyped pointer under the same contract.
pub(crate) fn as_text(address: usize) -> Out<'static, c_char> {
    Out(address as *mut c_char, PhantomData)
}

/// An image of a module: its first bytes tell whether it is binary, else it is text up to NUL.
pub(crate) fn image_text(image: In<'_, c_void>) -> Result<&[u8]> {
    In(image.0.cast::<c_char>(), PhantomData).bytes()
}

/// Memory of the caller that a copy reads or writes, perhaps after the call that named it has returned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct HostSpan {
    address: usize,
}

impl HostSpan {
    /// The memory at an address that a caller passed.
    ///
    /// By the contract of the API the caller keeps it valid until the copy has finished.
    pub(crate) fn new(address: usize) -> Self {
        Self { address }
    }

    pub(crate) fn address(self) -> u64 {
        self.address as u64
    }

    pub(crate) fn at(self, offset: usize) -> Self {
        Self { address: self.address + offset }
    }

    /// The bytes to copy from.
    pub(crate) fn bytes(&self, len: usize) -> &[u8] {
        if len == 0 {
            return &[];
        }
        // SAFETY: the contract of `new`.
        unsafe { std::slice::from_raw_parts(self.address as *const u8, len) }
    }

    /// The bytes to copy to. Only the copy uses them, by the contract of `new`.
    pub(crate) fn bytes_mut(&mut self, len: usize) -> &mut [u8] {
        if len == 0 {
            return &mut [];
        }
        // SAFETY: the contract of `new`.
        unsafe { std::slice::from_raw_parts_mut(self.address as *mut u8, len) }
    }
}

/// A function of the caller with its argument, to be called on a thread of the driver.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Callback {
    function: unsafe extern "C" fn(*mut c_void),
    argument: usize,
}

impl PartialEq for Callback {
    fn eq(&self, other: &Self) -> bool {
        std::ptr::fn_addr_eq(self.function, other.function) && self.argument == other.argument
    }
}

impl Callback {
    /// A callback that a caller passed; NULL is refused.
    pub(crate) fn new(function: CUhostFn, argument: Out<'_, c_void>) -> Result<Self> {
        match function {
            Some(function) => Ok(Self { function, argument: argument.address() }),
            None => refuse(CUresult::INVALID_VALUE, "the host function is NULL"),
        }
    }

    /// The callback of a host node.
    pub(crate) fn of_node(params: &CUDA_HOST_NODE_PARAMS_v1) -> Result<Self> {
        Self::new(params.r#fn, Out(params.userData, PhantomData))
    }

    /// Calls it. The caller promised, by passing it to the API, that this is sound on another thread.
    pub(crate) fn call(self) {
        // SAFETY: the contract of the API for host functions.
        unsafe { (self.function)(self.argument as *mut c_void) }
    }
}

/// Packs the values that `list` points to, one pointer a parameter, into a parameter buffer.
pub(crate) fn pack(list: Out<'_, *mut c_void>, params: &[(usize, usize)]) -> Result<Box<[u8]>> {
    let bytes = params.iter().map(|(offset, size)| offset + size).max().unwrap_or(0);
    let mut packed = vec![0; bytes].into_boxed_slice();
    let pointers = list.slice(params.len())?;
    for (i, (&(offset, size), &value)) in params.iter().zip(pointers).enumerate() {
        require(!value.is_null(), || format!("kernelParams[{i}] is NULL"))?;
        packed[offset..offset + size].copy_from_slice(HostSpan::new(value as usize).bytes(size));
    }
    Ok(packed)
}

/// The parameter buffer that an `extra` list names.
pub(crate) fn unpack_extra(extra: Out<'_, *mut c_void>) -> Result<Vec<u8>> {
    let (mut buffer, mut size) = (None, None);
    for i in 0..8 {
        let word = |j: usize| Out(extra.0.wrapping_add(2 * i + j), PhantomData::<&mut *mut c_void>).get();
        match word(0)? as usize {
            CU_LAUNCH_PARAM_END => break,
            CU_LAUNCH_PARAM_BUFFER_POINTER => buffer = Some(word(1)? as usize),
            CU_LAUNCH_PARAM_BUFFER_SIZE => size = Some(In(word(1)?.cast::<usize>(), PhantomData).get()?),
            other => return refuse(CUresult::INVALID_VALUE, format!("extra holds the unknown tag {other}")),
        }
    }
    match (buffer, size) {
        (_, Some(0)) => Ok(Vec::new()),
        (Some(buffer), Some(size)) if buffer != 0 => Ok(HostSpan::new(buffer).bytes(size).to_vec()),
        _ => refuse(CUresult::INVALID_VALUE, "extra names no buffer or no size"),
    }
}

/// The parameters of a kernel node, of either version.
pub(crate) struct KernelParams<'a> {
    pub(crate) function: CUfunction,
    pub(crate) geometry: Geometry,
    pub(crate) params: Out<'a, *mut c_void>,
    pub(crate) extra: Out<'a, *mut c_void>,
}

/// A version of the structure that describes a kernel node.
pub(crate) trait KernelNode: Copy {
    /// The fields that every version has.
    fn common(&self) -> CUDA_KERNEL_NODE_PARAMS_v1;
    /// The structure with those fields, the rest zero.
    fn of_common(common: CUDA_KERNEL_NODE_PARAMS_v1) -> Self;

    /// The structure that shows a node its parameters.
    fn filled(kernel: &KernelWork, shown: &ExposedParams) -> Self {
        let ([gridDimX, gridDimY, gridDimZ], [blockDimX, blockDimY, blockDimZ]) = (kernel.grid, kernel.block);
        Self::of_common(CUDA_KERNEL_NODE_PARAMS_v1 {
            func: kernel.function.handle(),
            gridDimX,
            gridDimY,
            gridDimZ,
            blockDimX,
            blockDimY,
            blockDimZ,
            sharedMemBytes: kernel.shared,
            kernelParams: shown.pointers.as_ptr() as *mut *mut c_void,
            extra: std::ptr::null_mut(),
        })
    }
}

impl KernelNode for CUDA_KERNEL_NODE_PARAMS_v1 {
    fn common(&self) -> Self {
        *self
    }

    fn of_common(common: Self) -> Self {
        common
    }
}

impl KernelNode for CUDA_KERNEL_NODE_PARAMS_v2 {
    fn common(&self) -> CUDA_KERNEL_NODE_PARAMS_v1 {
        let Self {
            func, gridDimX, gridDimY, gridDimZ, blockDimX, blockDimY, blockDimZ, sharedMemBytes, ..
        } = *self;
        let (kernelParams, extra) = (self.kernelParams, self.extra);
        CUDA_KERNEL_NODE_PARAMS_v1 {
            func,
            gridDimX,
            gridDimY,
            gridDimZ,
            blockDimX,
            blockDimY,
            blockDimZ,
            sharedMemBytes,
            kernelParams,
            extra,
        }
    }

    fn of_common(common: CUDA_KERNEL_NODE_PARAMS_v1) -> Self {
        let CUDA_KERNEL_NODE_PARAMS_v1 { func, gridDimX, gridDimY, gridDimZ, blockDimX, .. } = common;
        let CUDA_KERNEL_NODE_PARAMS_v1 { blockDimY, blockDimZ, sharedMemBytes, kernelParams, extra, .. } =
            common;
        Self {
            func,
            gridDimX,
            gridDimY,
            gridDimZ,
            blockDimX,
            blockDimY,
            blockDimZ,
            sharedMemBytes,
            kernelParams,
            extra,
            kern: CUkernel::NULL,
            ctx: CUcontext::NULL,
        }
    }
}

/// Reads the parameters of a kernel node; the arrays they point to are read when the work is made.
pub(crate) fn kernel_params<'a, P: KernelNode>(params: In<'a, P>) -> Result<KernelParams<'a>> {
    let p = params.get()?.common();
    let geometry = Geometry {
        grid: [p.gridDimX, p.gridDimY, p.gridDimZ],
        block: [p.blockDimX, p.blockDimY, p.blockDimZ],
        shared: p.sharedMemBytes,
    };
    let (params, extra) = (Out(p.kernelParams, PhantomData), Out(p.extra, PhantomData));
    Ok(KernelParams { function: p.func, geometry, params, extra })
}

/// The parameters of a kernel node as a program sees them: values, and a pointer to each.
pub(crate) struct ExposedParams {
    pointers: Box<[usize]>,
    _values: Box<[u64]>,
}

impl ExposedParams {
    pub(crate) fn new(packed: &[u8], params: &[(usize, usize)]) -> Self {
        let words = packed.chunks(8).map(|chunk| {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            u64::from_ne_bytes(word)
        });
        let values: Box<[u64]> = words.collect();
        let base = values.as_ptr() as usize;
        Self { pointers: params.iter().map(|(offset, _)| base + offset).collect(), _values: values }
    }
}

/// A member of the union of a node of any type, beginning at a word of it.
pub(crate) fn node_member<T: NodeMember>(params: &CUgraphNodeParams, word: usize) -> In<'_, T> {
    assert!(word * 8 + size_of::<T>() <= size_of_val(&params.params), "the member fits the union");
    In(params.params[word..].as_ptr().cast(), PhantomData)
}

/// Structures of integers, pointers and handles only, for which any bytes are a value.
pub(crate) trait NodeMember: Copy {}

impl NodeMember for CUDA_KERNEL_NODE_PARAMS_v2 {}
impl NodeMember for CUDA_MEMCPY3D_v2 {}
impl NodeMember for CUDA_MEMSET_NODE_PARAMS_v1 {}
impl NodeMember for CUDA_HOST_NODE_PARAMS_v1 {}

/// One exported function: its base name, the version that introduced this ABI, its exported name.
pub(crate) struct Export {
    pub(crate) base: &'static str,
    pub(crate) since: u32,
    pub(crate) symbol: &'static str,
    /// Whether it is a field of [`Api`].
    pub(crate) tabled: bool,
    pub(crate) address: fn() -> *const c_void,
}

/// Whether a driver of `version` has what came with version `since`.
pub(crate) fn since(since: u32, version: u32) -> bool {
    since <= version
}

/// Declares the exported functions of a chapter, one line each: `since base symbol(arguments) => body`.
///
/// The body is a safe function of the machine and the arguments as [`CArgument`] gives them. `required` and `optional`
/// functions are fields of [`Api`] as well, where the compiler compares the types; `more` are exported only.
macro_rules! exports {
    (
        required { $($rs:literal $rb:ident $r:ident($($ra:ident: $rt:ty),*) => $rf:path;)* }
        optional { $($os:literal $ob:ident $o:ident($($oa:ident: $ot:ty),*) => $of:path;)* }
        more { $($ms:literal $mb:ident $m:ident($($ma:ident: $mt:ty),*) => $mf:path;)* }
    ) => {
        $crate::ffi::exported! {
            $(true $rs $rb $r($($ra: $rt),*) => $rf;)*
            $(true $os $ob $o($($oa: $ot),*) => $of;)*
            $(false $ms $mb $m($($ma: $mt),*) => $mf;)*
        }

        /// Fills the fields of this chapter that a driver of `version` has.
        #[allow(unused_variables)]
        pub(crate) fn fill_api(api: &mut warpwright_driver_sys::Api, version: u32) {
            $(api.$r = $r;)*
            $(api.$o = $crate::ffi::since($os, version).then_some($o);)*
        }
    };
}

/// The functions themselves and the list of them.
macro_rules! exported {
    ($($tabled:literal $since:literal $base:ident $symbol:ident($($arg:ident: $type:ty),*) => $body:path;)*) => {
        $(
            #[unsafe(no_mangle)]
            #[allow(clippy::too_many_arguments)]
            unsafe extern "C" fn $symbol($($arg: $type),*) -> warpwright_driver_sys::CUresult {
                $crate::ffi::enter(stringify!($symbol), move |machine| {
                    // SAFETY: the caller keeps the contract of the driver API for every argument.
                    $body(machine, $(unsafe { $crate::ffi::CArgument::convert($arg) }),*)
                })
            }
        )*

        /// The functions of this chapter.
        pub(crate) const EXPORTS: &[$crate::ffi::Export] = &[$($crate::ffi::Export {
            base: stringify!($base),
            since: $since,
            symbol: stringify!($symbol),
            tabled: $tabled,
            address: || $symbol as *const std::ffi::c_void,
        }),*];
    };
}

pub(crate) use {exported, exports};
