//! The report of a program's run on the shared library: this file's test runs itself once more as that program.

#![allow(unsafe_code)]

use std::ffi::{CStr, c_void};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::ptr::{from_mut, null, null_mut};

use libloading::Library;
use warpwright_driver_sys::*;

/// Where the library reports to.
const REPORT: &str = "WARPWRIGHT_EMU_REPORT";

/// `set` sets one word for each thread; in `clash` both blocks set the same one.
const PTX: &CStr = c"
.version 7.0
.target sm_75
.address_size 64
.visible .entry set(.param .u64 p, .param .u32 n)
{
    .reg .b32 %r<3>;
    .reg .b64 %rd<3>;
    ld.param.u64 %rd1, [p];
    ld.param.u32 %r1, [n];
    mov.u32 %r2, %tid.x;
    mul.wide.u32 %rd2, %r2, 4;
    add.u64 %rd1, %rd1, %rd2;
    st.global.u32 [%rd1], %r1;
    ret;
}
.visible .entry clash(.param .u64 p, .param .u32 n)
{
    .reg .b32 %r<2>;
    .reg .b64 %rd<2>;
    ld.param.u64 %rd1, [p];
    mov.u32 %r1, %ctaid.x;
    st.global.u32 [%rd1], %r1;
    ret;
}
";

fn library() -> PathBuf {
    let test = std::env::current_exe().unwrap();
    let name = libloading::library_filename("warpwright_cuda_emu");
    let places = test
        .ancestors()
        .skip(1)
        .take(2)
        .map(|folder| folder.join(&name));
    places
        .into_iter()
        .find(|path| path.exists())
        .expect("cargo builds the library with its tests")
}

struct Program {
    api: Api,
    module: CUmodule,
}

impl Program {
    fn start() -> Self {
        // SAFETY: the library is this package's own and does nothing when it is opened.
        let library = Box::leak(Box::new(unsafe { Library::new(library()) }.unwrap()));
        let symbol = |name: &CStr| {
            // SAFETY: only the address is taken.
            let found = unsafe { library.get::<unsafe extern "C" fn()>(name.to_bytes_with_nul()) };
            found.map_or(null(), |f| *f as *const c_void)
        };

        // SAFETY: the library exports these names with the types of `cuda.h`.
        let api = unsafe { Api::load(symbol) }.unwrap();
        let (mut context, mut module) = (CUcontext::NULL, CUmodule::NULL);

        // SAFETY: every pointer is to a variable of this function.
        let codes = unsafe {
            [
                (api.cuInit)(0),
                (api.cuDevicePrimaryCtxRetain)(&mut context, 0),
                (api.cuCtxSetCurrent)(context),
                (api.cuModuleLoadDataEx)(
                    &mut module,
                    PTX.as_ptr().cast(),
                    0,
                    null_mut(),
                    null_mut(),
                ),
            ]
        };
        assert_eq!(codes.map(|code| code.0), [0; 4]);
        Self { api, module }
    }

    fn buffer(&self) -> u64 {
        let mut address = 0;
        // SAFETY: the pointer is to a variable of this function.
        assert_eq!(unsafe { (self.api.cuMemAlloc_v2)(&mut address, 256) }.0, 0);
        address
    }

    fn stream(&self) -> CUstream {
        let mut stream = CUstream::NULL;
        assert_eq!(
            // SAFETY: the pointer is to a variable of this function.
            unsafe { (self.api.cuStreamCreate)(&mut stream, CUstream_flags::NON_BLOCKING) }.0,
            0
        );
        stream
    }

    fn launch(&self, name: &CStr, grid: u32, stream: CUstream, mut address: u64) {
        let (mut function, mut n) = (CUfunction::NULL, 7u32);
        let mut params: [*mut c_void; 2] = [from_mut(&mut address).cast(), from_mut(&mut n).cast()];

        // SAFETY: every pointer is to a variable of this function, and launches copy their parameters.
        let codes = unsafe {
            let found = (self.api.cuModuleGetFunction)(&mut function, self.module, name.as_ptr());
            let launch = self.api.cuLaunchKernel;
            [
                found,
                launch(
                    function,
                    grid,
                    1,
                    1,
                    32,
                    1,
                    1,
                    0,
                    stream,
                    params.as_mut_ptr(),
                    null_mut(),
                ),
            ]
        };
        assert_eq!(codes.map(|code| code.0), [0; 2]);
    }

    fn synchronize(&self, stream: CUstream) -> u32 {
        // SAFETY: the call takes no pointer.
        unsafe { (self.api.cuStreamSynchronize)(stream) }.0
    }

    fn read(&self, address: u64) {
        let mut word = 0u32;
        // SAFETY: the pointer is to a variable of this function.
        let code =
            unsafe { (self.api.cuMemcpyDtoH_v2.unwrap())(from_mut(&mut word).cast(), address, 4) };
        assert_eq!(code.0, 0);
    }

    /// Lets a stream wait for what another did.
    fn order(&self, first: CUstream, second: CUstream) {
        let mut event = CUevent::NULL;
        // SAFETY: the pointer is to a variable of this function.
        let codes = unsafe {
            [
                (self.api.cuEventCreate)(&mut event, CUevent_flags::DISABLE_TIMING),
                (self.api.cuEventRecord)(event, first),
                (self.api.cuStreamWaitEvent)(second, event, 0),
                (self.api.cuEventDestroy_v2)(event),
            ]
        };
        assert_eq!(codes.map(|code| code.0), [0; 4]);
    }
}

/// Ordered by an event, by a wait of the program, and not at all; a copy that waits for nothing; a race in a launch.
fn program() {
    let p = Program::start();
    let (a, b) = (p.stream(), p.stream());
    let ordered = p.buffer();
    p.launch(c"set", 1, a, ordered);
    p.order(a, b);
    p.launch(c"set", 1, b, ordered);
    p.synchronize(b);
    p.launch(c"set", 1, a, ordered);
    p.synchronize(a);
    p.read(ordered);

    let raced = p.buffer();
    p.launch(c"set", 1, a, raced);
    p.launch(c"set", 1, b, raced);
    p.synchronize(a);
    p.synchronize(b);

    let copied = p.buffer();
    p.launch(c"set", 1, a, copied);
    p.synchronize(a);
    p.launch(c"set", 1, a, copied);

    // The default stream waits for no stream that is not blocking, so the copy may come first.
    p.read(copied);
    p.synchronize(a);
    p.launch(c"clash", 2, a, ordered);
    assert_eq!(p.synchronize(a), 719);

    // SAFETY: the call takes no pointer.
    assert_eq!(unsafe { (p.api.cuStreamDestroy_v2)(a) }.0, 0);
}

/// Runs this test again as the program, and gives its report.
fn report_of(test: &str, file: &Path) -> Vec<String> {
    let _ = std::fs::remove_file(file);
    let child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", test, "--test-threads", "1"])
        .env(REPORT, file)
        .output()
        .unwrap();
    assert!(
        child.status.success(),
        "{}",
        String::from_utf8_lossy(&child.stdout)
    );
    std::fs::read_to_string(file)
        .unwrap()
        .lines()
        .map(str::to_string)
        .collect()
}

#[test]
fn launches_findings_and_leaks_are_reported() {
    if std::env::var_os(REPORT).is_some() {
        return program();
    }

    let file = std::env::temp_dir().join(format!("warpwright-report-{}.jsonl", std::process::id()));
    let lines = report_of("launches_findings_and_leaks_are_reported", &file);
    std::fs::remove_file(&file).unwrap();
    let of_kind = |kind: &str| {
        let start = format!("{{\"kind\":\"{kind}\",");
        lines
            .iter()
            .filter(|line| line.starts_with(&start))
            .collect::<Vec<_>>()
    };
    assert_eq!(of_kind("launch").len(), 8, "{lines:#?}");
    let launch = "\"kernel\":\"set\",\"where\":\"stream 1\",\"grid\":[1,1,1],\"block\":[32,1,1],\"shared\":0,\
                  \"lane_instructions\":224,\"warp_instructions\":7,\"traced\":true}";
    assert!(of_kind("launch")[0].ends_with(launch), "{lines:#?}");
    let findings = of_kind("finding");
    let texts =
        ["StreamRace", "StreamRace", "GlobalRace"].map(|class| format!("\"class\":\"{class}\""));
    assert_eq!(findings.len(), texts.len(), "{lines:#?}");
    for (finding, class) in findings.iter().zip(&texts) {
        assert!(finding.contains(class), "{class} in {finding}");
    }

    assert!(
        findings[0].contains("nothing orders set (stream "),
        "{}",
        findings[0]
    );
    assert!(
        findings[0].contains("\"places\":[{\"kernel\":\"set\",\"did\":\"writes\",\"line\":14,"),
        "{}",
        findings[0]
    );
    let other = "{\"kernel\":\"memcpy\",\"did\":\"reads\"}";
    assert!(findings[1].contains(other), "{}", findings[1]);
    assert!(
        findings[2].contains("\"thread\":[0,0,0]"),
        "{}",
        findings[2]
    );
    let leaks: Vec<_> = of_kind("leak")
        .iter()
        .map(|line| line.split("\"what\":\"").nth(1).unwrap())
        .collect();
    let kinds: Vec<_> = leaks
        .iter()
        .map(|leak| leak.split('"').next().unwrap())
        .collect();
    assert_eq!(
        kinds,
        [
            "device memory",
            "device memory",
            "device memory",
            "module",
            "stream",
            "primary context"
        ]
    );
    assert!(
        lines
            .last()
            .unwrap()
            .ends_with("\"launches\":8,\"findings\":3,\"leaks\":6,\"forgot\":false}")
    );
}
