//! Kernels that poll, on the linked emulator and on the shared library, with one and with several host threads.
//!
//! The emulator proves a deadlock only if every thread of the program waits. The threads of a test harness do not, so
//! this file is a program of its own, which runs itself once more for the shared library.

#![allow(unsafe_code)]

use std::ffi::{CStr, CString, c_void};
use std::path::PathBuf;
use std::process::Command;
use std::ptr::{from_mut, null_mut};
use std::time::{Duration, Instant};

use libloading::Library;
use warpwright_cuda_emu::{EmulatorConfig, Limits, api, configure};
use warpwright_driver_sys::*;

/// `poll(flag)` waits until the word is not 0, and `set(flag)` stores 1. `wait(flag)` waits for the
/// same word in a loop that also waits for an mbarrier at which no thread arrives.
const PTX: &CStr = c"
.version 8.0
.target sm_90
.address_size 64
.visible .entry poll(.param .u64 flag)
{
    .reg .pred %p;
    .reg .b32 %r;
    .reg .b64 %rd;
    ld.param.u64 %rd, [flag];
AGAIN:
    ld.volatile.global.u32 %r, [%rd];
    setp.eq.u32 %p, %r, 0;
    @%p bra AGAIN;
    ret;
}
.visible .entry set(.param .u64 flag)
{
    .reg .b64 %rd;
    ld.param.u64 %rd, [flag];
    st.release.sys.global.u32 [%rd], 1;
    ret;
}
.visible .entry wait(.param .u64 flag)
{
    .shared .align 8 .b64 bar;
    .reg .pred %p;
    .reg .b32 %r;
    .reg .b64 %rd;
    ld.param.u64 %rd, [flag];
    mov.u32 %r, %tid.x;
    setp.eq.u32 %p, %r, 0;
    @%p mbarrier.init.shared.b64 [bar], 1;
    bar.sync 0;
AGAIN:
    mbarrier.try_wait.parity.shared.b64 %p, [bar], 0;
    @%p bra DONE;
    ld.acquire.sys.global.u32 %r, [%rd];
    setp.eq.u32 %p, %r, 0;
    @%p bra AGAIN;
DONE:
    ret;
}
";

/// The kernels that wait for the flag, and the end of the sentence that reports it.
const WAITS: [(&str, &str); 2] = [
    ("poll", "warps 0-1 poll without success in line 12"),
    (
        "wait",
        "warps 0-1 wait at the mbarrier at 0x400 in line 36 (1 arrivals and 0 bytes are missing) and poll in line 38",
    ),
];

/// A program with a context and the kernels.
struct Program {
    api: Api,
    module: CUmodule,
    context: CUcontext,
    /// The function that copies the newest entry of the log.
    last: unsafe extern "C" fn(*mut std::ffi::c_char, usize) -> usize,
}

/// Calls a function, which must succeed. `?` marks those that a driver need not have.
macro_rules! ok {
    ($p:expr, $f:ident?($($arg:expr),* $(,)?)) => {{
        let function = $p.api.$f.expect("the emulator has all functions");
        // SAFETY: every pointer leads to a variable of this program.
        let code = unsafe { function($($arg),*) };
        assert_eq!(code.0, 0, "{}", stringify!($f));
    }};
    ($p:expr, $f:ident($($arg:expr),* $(,)?)) => {{
        // SAFETY: every pointer leads to a variable of this program.
        let code = unsafe { ($p.api.$f)($($arg),*) };
        assert_eq!(code.0, 0, "{}", stringify!($f));
    }};
}

impl Program {
    fn start(api: Api, last: unsafe extern "C" fn(*mut std::ffi::c_char, usize) -> usize) -> Self {
        let mut p = Self {
            api,
            module: CUmodule::NULL,
            context: CUcontext::NULL,
            last,
        };
        ok!(p, cuInit(0));
        let mut context = CUcontext::NULL;
        ok!(p, cuDevicePrimaryCtxRetain(&mut context, 0));
        p.context = context;
        ok!(p, cuCtxSetCurrent(context));
        let mut module = CUmodule::NULL;
        ok!(
            p,
            cuModuleLoadDataEx(&mut module, PTX.as_ptr().cast(), 0, null_mut(), null_mut())
        );
        p.module = module;
        p
    }

    fn stream(&self) -> CUstream {
        let mut stream = CUstream::NULL;
        ok!(
            self,
            cuStreamCreate(&mut stream, CUstream_flags::NON_BLOCKING)
        );
        stream
    }

    /// Launches 4 blocks of 64 threads.
    fn launch(&self, kernel: &str, flag: u64, stream: CUstream) {
        let name = CString::new(kernel).expect("it has no NUL");
        let mut function = CUfunction::NULL;
        ok!(
            self,
            cuModuleGetFunction(&mut function, self.module, name.as_ptr())
        );
        let mut flag = flag;
        let mut params = [from_mut(&mut flag).cast::<c_void>()];
        ok!(
            self,
            cuLaunchKernel(
                function,
                4,
                1,
                1,
                64,
                1,
                1,
                0,
                stream,
                params.as_mut_ptr(),
                null_mut()
            )
        );
    }

    fn device_flag(&self) -> u64 {
        let mut flag = 0;
        ok!(self, cuMemAlloc_v2(&mut flag, 4));
        ok!(self, cuMemsetD32_v2?(flag, 0, 1));
        flag
    }

    fn pinned_flag(&self) -> u64 {
        let mut flag: *mut c_void = null_mut();
        ok!(
            self,
            cuMemHostAlloc?(&mut flag, 4, CUmemhostalloc_flags::DEVICEMAP)
        );
        flag as u64
    }

    /// Waits for all streams and returns the code, and the log if it is not success.
    fn synchronize(&self) -> (u32, String) {
        let function = self
            .api
            .cuCtxSynchronize
            .expect("the emulator has all functions");

        // SAFETY: the call takes no pointer.
        let code = unsafe { function() }.0;
        let mut buffer = vec![0u8; 4096];

        // SAFETY: the buffer has this size.
        unsafe { (self.last)(buffer.as_mut_ptr().cast(), buffer.len()) };
        let text = CStr::from_bytes_until_nul(&buffer)
            .expect("it ends")
            .to_string_lossy()
            .into_owned();
        (code, text)
    }
}

/// A wait that nothing can end is a deadlock at once.
fn nothing_ends_it(p: &Program, (poll, reason): (&str, &str)) {
    let began = Instant::now();
    p.launch(poll, p.device_flag(), CUstream::NULL);
    let (code, text) = p.synchronize();
    let start = format!(
        "Deadlock: no thread can continue: in 4 blocks, (0,0,0), (1,0,0), (2,0,0), .., {reason}"
    );
    assert!(code == 719 && text.starts_with(&start), "{code} {text}");
    assert!(
        began.elapsed() < Duration::from_secs(20),
        "{:?}",
        began.elapsed()
    );
}

/// A kernel, a copy and a write of the host end a wait, and none of these waits is a finding.
fn something_ends_it(p: &Program, poll: &str) {
    let pause = || std::thread::sleep(Duration::from_millis(50));
    let one = 1u32;

    // A kernel of another stream.
    let flag = p.device_flag();
    p.launch(poll, flag, p.stream());
    pause();
    p.launch("set", flag, p.stream());
    assert_eq!(p.synchronize().0, 0);

    // A copy of another thread, while this one waits.
    let flag = p.device_flag();
    p.launch(poll, flag, p.stream());
    std::thread::scope(|scope| {
        scope.spawn(|| {
            pause();
            ok!(p, cuCtxSetCurrent(p.context));
            ok!(
                p,
                cuMemcpyHtoD_v2?(flag, std::ptr::from_ref(&one).cast(), 4)
            );
        });
        assert_eq!(p.synchronize().0, 0);
    });

    // A write of the host to pinned memory.
    let flag = p.pinned_flag();
    p.launch(poll, flag, p.stream());
    pause();

    // SAFETY: the word was allocated above.
    unsafe { (flag as *mut u32).write_volatile(1) };
    assert_eq!(p.synchronize().0, 0);

    // A stream that waits for an event first, and then writes a value.
    let flag = p.device_flag();
    let other = p.stream();
    p.launch(poll, flag, p.stream());
    ok!(p, cuMemsetD32Async?(flag, 1, 1, other));
    assert_eq!(p.synchronize().0, 0);
}

/// Both ends of each program, with every number of host threads.
fn linked() {
    unsafe extern "C" fn last(buffer: *mut std::ffi::c_char, bytes: usize) -> usize {
        // SAFETY: the caller passes a buffer of this size.
        unsafe { warpwright_cuda_emu::warpwright_emu_last_finding(buffer, bytes) }
    }
    let start = |config| {
        configure(config);
        Program::start(api(), last)
    };
    for threads in [1, 2, 4] {
        for wait in WAITS {
            let p = start(EmulatorConfig {
                threads,
                ..EmulatorConfig::default()
            });
            something_ends_it(&p, wait.0);
            nothing_ends_it(&p, wait);
        }
    }

    // The host could write pinned memory at any time, so only the limit ends this wait.
    let limits = Limits {
        wait: Some(Duration::from_millis(200)),
        ..Limits::default()
    };
    for (poll, reason) in WAITS {
        let p = start(EmulatorConfig {
            limits,
            threads: 2,
            ..EmulatorConfig::default()
        });
        p.launch(poll, p.pinned_flag(), CUstream::NULL);
        let (code, text) = p.synchronize();
        let start = "TimeLimit: the launch has waited for 0.2 s, in which no thread";
        assert!(code == 702 && text.starts_with(start), "{text}");
        assert!(text.contains(reason), "{text}");
        assert!(
            text.ends_with("WARPWRIGHT_EMU_WAIT_LIMIT for the shared library"),
            "{text}"
        );
    }

    let limits = Limits {
        time: Some(Duration::from_millis(200)),
        wait: None,
    };
    let p = start(EmulatorConfig {
        limits,
        threads: 2,
        ..EmulatorConfig::default()
    });
    p.launch("poll", p.pinned_flag(), CUstream::NULL);
    let (code, text) = p.synchronize();
    assert!(
        code == 702
            && text.starts_with("TimeLimit: the launch has not ended within its time limit"),
        "{text}"
    );
}

/// Runs on the shared library, whose kernels run on one thread for each core.
fn on_the_library(wait: (&str, &str)) {
    let test = std::env::current_exe().expect("it has a path");
    let name = libloading::library_filename("warpwright_cuda_emu");
    let mut places = test
        .ancestors()
        .skip(1)
        .take(2)
        .map(|folder: &std::path::Path| folder.join(&name));
    let path: PathBuf = places
        .find(|path| path.exists())
        .expect("cargo builds the library with its tests");

    // SAFETY: the library is this package's own and does nothing when it is opened.
    let library: &Library = Box::leak(Box::new(
        unsafe { Library::new(path) }.expect("it can be opened"),
    ));
    let symbol = |name: &CStr| {
        // SAFETY: only the address is taken.
        let found = unsafe { library.get::<unsafe extern "C" fn()>(name.to_bytes_with_nul()) };
        found.map_or(std::ptr::null(), |f| *f as *const c_void)
    };

    // SAFETY: the library exports these names with the types of `cuda.h`.
    let api = unsafe { Api::load(symbol) }.expect("all are there");

    // SAFETY: the library declares it so.
    let last = *unsafe { library.get(b"warpwright_emu_last_finding\0") }.expect("it is there");
    let p = Program::start(api, last);
    if std::env::var_os("WARPWRIGHT_EMU_WAIT_LIMIT").is_some() {
        p.launch(wait.0, p.pinned_flag(), CUstream::NULL);
        let (code, text) = p.synchronize();
        assert!(code == 702 && text.starts_with("TimeLimit: "), "{text}");
        return;
    }

    something_ends_it(&p, wait.0);
    nothing_ends_it(&p, wait);
}

fn main() {
    let called =
        |wait: &(&str, &str)| std::env::args().any(|arg| arg == format!("--library={}", wait.0));
    if let Some(wait) = WAITS.into_iter().find(called) {
        return on_the_library(wait);
    }

    linked();
    for (wait, _) in WAITS {
        library(wait);
    }

    println!("kernels that poll: passed");
}

/// Runs this program again for the shared library, with every number of host threads.
fn library(wait: &str) {
    for (threads, limit) in [("1", None), ("2", None), ("4", None), ("2", Some("0.2"))] {
        let mut program = Command::new(std::env::current_exe().expect("it has a path"));
        program
            .arg(format!("--library={wait}"))
            .env("RAYON_NUM_THREADS", threads);
        program.envs(limit.map(|limit| ("WARPWRIGHT_EMU_WAIT_LIMIT", limit)));
        assert!(
            program.status().expect("it starts").success(),
            "{threads} threads, limit {limit:?}"
        );
    }
}
