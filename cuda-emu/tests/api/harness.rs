//! A fresh emulator for each test, and the calls that tests make most.

use std::ffi::{CString, c_void};
use std::sync::{Mutex, MutexGuard, PoisonError};

use warpwright_cuda_emu::{EmulatorConfig, api, configure, findings};
use warpwright_driver_sys::*;

/// Calls a function of the table and gives its code.
macro_rules! code {
    ($emu:expr, $f:ident($($arg:expr),* $(,)?)) => {{
        let function = $crate::harness::Callable::of($emu.api.$f);
        // SAFETY: every pointer that a test passes is NULL or points to its own variables.
        unsafe { function($($arg),*) }.0
    }};
}

/// Calls a function of the table that must succeed.
macro_rules! ok {
    ($emu:expr, $f:ident($($arg:expr),* $(,)?)) => {{
        let code = $crate::harness::code!($emu, $f($($arg),*));
        assert_eq!(code, 0, "{}: {}", stringify!($f), $emu.last_log());
    }};
}

/// Calls a function whose first argument is where the result goes, which must succeed.
macro_rules! make {
    ($emu:expr, $f:ident($($arg:expr),* $(,)?)) => {{
        // SAFETY: zero is a value of every handle and every integer.
        let mut made = unsafe { std::mem::zeroed() };
        $crate::harness::ok!($emu, $f(&mut made, $($arg),*));
        made
    }};
}

pub(crate) use {code, make, ok};

/// A field of the table, required or optional.
pub(crate) trait Callable {
    type Function;
    fn of(self) -> Self::Function;
}

impl<F> Callable for Option<F> {
    type Function = F;

    fn of(self) -> F {
        self.expect("the emulated version has this function")
    }
}

/// Functions of every count of arguments.
macro_rules! callables {
    ($($($arg:ident)*;)*) => {$(
        impl<$($arg),*> Callable for unsafe extern "C" fn($($arg),*) -> CUresult {
            type Function = Self;

            fn of(self) -> Self {
                self
            }
        }
    )*};
}

callables! {
    ;
    A;
    A B;
    A B C;
    A B C D;
    A B C D E;
    A B C D E F;
    A B C D E F G;
    A B C D E F G H;
    A B C D E F G H I;
    A B C D E F G H I J;
    A B C D E F G H I J K;
}

/// An emulator of its own, with a current context unless it was made bare.
pub(crate) struct Emu {
    pub(crate) api: Api,
    _alone: MutexGuard<'static, ()>,
}

static ALONE: Mutex<()> = Mutex::new(());

/// An emulator before `cuInit`. There is one a process, so tests take turns.
pub(crate) fn bare(config: EmulatorConfig) -> Emu {
    let alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    configure(config);
    Emu {
        api: api(),
        _alone: alone,
    }
}

/// An emulator with its primary context current.
pub(crate) fn emu_with(config: EmulatorConfig) -> Emu {
    let emu = bare(config);
    ok!(emu, cuInit(0));
    let context = make!(emu, cuDevicePrimaryCtxRetain(0));
    ok!(emu, cuCtxSetCurrent(context));
    emu
}

/// An emulator as it is by default.
pub(crate) fn emu() -> Emu {
    emu_with(EmulatorConfig::default())
}

impl Emu {
    /// The newest entry of the log.
    pub(crate) fn last_log(&self) -> String {
        let mut buffer = vec![0u8; 4096];

        // SAFETY: the buffer is of that size.
        unsafe {
            warpwright_cuda_emu::warpwright_emu_last_finding(
                buffer.as_mut_ptr().cast(),
                buffer.len(),
            )
        };
        let end = buffer.iter().position(|&b| b == 0).unwrap();
        String::from_utf8(buffer[..end].to_vec()).unwrap()
    }

    pub(crate) fn alloc(&self, bytes: usize) -> u64 {
        make!(self, cuMemAlloc_v2(bytes))
    }

    /// Device memory that holds these words.
    pub(crate) fn upload(&self, words: &[u32]) -> u64 {
        let address = self.alloc(words.len() * 4);
        ok!(
            self,
            cuMemcpyHtoD_v2(address, words.as_ptr().cast(), words.len() * 4)
        );
        address
    }

    pub(crate) fn download(&self, address: u64, count: usize) -> Vec<u32> {
        let mut words = vec![0; count];
        ok!(
            self,
            cuMemcpyDtoH_v2(words.as_mut_ptr().cast(), address, count * 4)
        );
        words
    }

    /// Pinned memory of `count` words, all zero.
    pub(crate) fn pinned(&self, count: usize) -> *mut u32 {
        let pointer: *mut c_void = make!(
            self,
            cuMemHostAlloc(count * 4, CUmemhostalloc_flags::empty())
        );
        pointer.cast()
    }

    pub(crate) fn stream(&self) -> CUstream {
        make!(self, cuStreamCreate(CUstream_flags::NON_BLOCKING))
    }

    pub(crate) fn event(&self) -> CUevent {
        make!(self, cuEventCreate(CUevent_flags::empty()))
    }

    /// Loads PTX without options and gives the code.
    pub(crate) fn try_load(&self, ptx: &str) -> Result<CUmodule, u32> {
        let text = CString::new(ptx).unwrap();
        let mut module = CUmodule::NULL;
        let (options, values) = (std::ptr::null_mut(), std::ptr::null_mut());
        match code!(
            self,
            cuModuleLoadDataEx(&mut module, text.as_ptr().cast(), 0, options, values)
        ) {
            0 => Ok(module),
            code => Err(code),
        }
    }

    /// A kernel of [`PTX`].
    pub(crate) fn kernel(&self, name: &str) -> CUfunction {
        let module = self
            .try_load(PTX)
            .unwrap_or_else(|code| panic!("{code}: {}", self.last_log()));
        self.function(module, name)
    }

    pub(crate) fn function(&self, module: CUmodule, name: &str) -> CUfunction {
        let name = CString::new(name).unwrap();
        make!(self, cuModuleGetFunction(module, name.as_ptr()))
    }

    /// Launches one block; every argument stands in a 64-bit slot.
    pub(crate) fn launch(
        &self,
        function: CUfunction,
        threads: u32,
        stream: CUstream,
        args: &[u64],
    ) -> u32 {
        let mut pointers = pointers(args);
        let extra = std::ptr::null_mut();
        code!(
            self,
            cuLaunchKernel(
                function,
                1,
                1,
                1,
                threads,
                1,
                1,
                0,
                stream,
                pointers.as_mut_ptr(),
                extra
            )
        )
    }

    pub(crate) fn graph(&self) -> CUgraph {
        make!(self, cuGraphCreate(0))
    }

    /// Adds a kernel node of one block.
    pub(crate) fn add_kernel(
        &self,
        graph: CUgraph,
        after: &[CUgraphNode],
        function: CUfunction,
        threads: u32,
        args: &[u64],
    ) -> CUgraphNode {
        let mut pointers = pointers(args);
        let params = node_params(function, threads, &mut pointers);
        make!(
            self,
            cuGraphAddKernelNode_v2(graph, after.as_ptr(), after.len(), &params)
        )
    }

    pub(crate) fn instantiate(&self, graph: CUgraph) -> CUgraphExec {
        make!(
            self,
            cuGraphInstantiateWithFlags(graph, CUgraphInstantiate_flags::empty())
        )
    }

    /// The findings so far, joined.
    pub(crate) fn findings(&self) -> String {
        findings().join("\n")
    }
}

/// The `kernelParams` array of arguments that stand in 64-bit slots.
pub(crate) fn pointers(args: &[u64]) -> Vec<*mut c_void> {
    args.iter()
        .map(|arg| std::ptr::from_ref(arg).cast_mut().cast())
        .collect()
}

pub(crate) fn node_params(
    function: CUfunction,
    threads: u32,
    pointers: &mut [*mut c_void],
) -> CUDA_KERNEL_NODE_PARAMS_v2 {
    CUDA_KERNEL_NODE_PARAMS_v2 {
        func: function,
        gridDimX: 1,
        gridDimY: 1,
        gridDimZ: 1,
        blockDimX: threads,
        blockDimY: 1,
        blockDimZ: 1,
        kernelParams: pointers.as_mut_ptr(),
        ..CUDA_KERNEL_NODE_PARAMS_v2::zeroed()
    }
}

/// The kernels of the tests: `add(p, n)` adds n to each element, `copy(to, from)` copies one word a thread,
/// `square32(p)` wants blocks of 32 and has 4 bytes of shared memory, `spin()` never ends, `stop()` traps.
pub(crate) const PTX: &str = "
.version 7.0
.target sm_75
.address_size 64

.visible .entry add(
    .param .u64 p,
    .param .u32 n
)
{
    .reg .b32 %r<4>;
    .reg .b64 %rd<4>;
    ld.param.u64 %rd1, [p];
    ld.param.u32 %r1, [n];
    mov.u32 %r2, %tid.x;
    mul.wide.u32 %rd2, %r2, 4;
    add.s64 %rd3, %rd1, %rd2;
    ld.global.u32 %r3, [%rd3];
    add.s32 %r3, %r3, %r1;
    st.global.u32 [%rd3], %r3;
    ret;
}

.visible .entry copy(
    .param .u64 to,
    .param .u64 from
)
{
    .reg .b32 %r<3>;
    .reg .b64 %rd<6>;
    ld.param.u64 %rd1, [to];
    ld.param.u64 %rd2, [from];
    mov.u32 %r1, %tid.x;
    mul.wide.u32 %rd3, %r1, 4;
    add.s64 %rd4, %rd2, %rd3;
    add.s64 %rd5, %rd1, %rd3;
    ld.global.u32 %r2, [%rd4];
    st.global.u32 [%rd5], %r2;
    ret;
}

.visible .entry square32(
    .param .u64 p
)
.reqntid 32, 1, 1
{
    .shared .align 4 .b8 room[4];
    .reg .b32 %r<4>;
    .reg .b64 %rd<4>;
    ld.param.u64 %rd1, [p];
    mov.u32 %r1, %tid.x;
    mul.lo.s32 %r2, %r1, %r1;
    mul.wide.u32 %rd2, %r1, 4;
    add.s64 %rd3, %rd1, %rd2;
    st.global.u32 [%rd3], %r2;
    ret;
}

.visible .entry spin()
{
top:
    bra top;
}

.visible .entry stop()
{
    trap;
}
";
