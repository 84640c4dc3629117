//! Loading PTX: codes, logs, functions and their attributes.

use std::ffi::{CStr, CString, c_char, c_void};
use std::ptr::null_mut;

use warpwright_cuda_emu::EmulatorConfig;
use warpwright_driver_sys::*;

use crate::harness::{PTX, code, emu, emu_with, make, ok};

#[test]
fn what_does_not_load_says_why() {
    let header = |version: &str, target: &str| {
        format!(".version {version}\n.target {target}\n.address_size 64\n")
    };
    let broken = header("7.0", "sm_75") + ".visible .entry k()\n{\n    frobnicate.u32 %r1;\n}\n";
    for (driver_version, text, code) in [
        (13000, "", 200),
        (13000, "\u{7f}ELF", 200),
        (13000, "int main() {}", 200),
        (13000, &broken, 218),
        (13000, &header("9.0", "sm_90"), 0),
        (13000, &header("9.1", "sm_90"), 222),
        (12040, &header("8.4", "sm_90"), 0),
        (12040, &header("8.5", "sm_90"), 222),
        (12080, &header("8.7", "sm_90"), 0),
        (11040, &header("7.4", "sm_80"), 0),
        (11040, &header("7.5", "sm_80"), 222),
        (13000, &header("8.6", "sm_100"), 209),
        (13000, &header("8.0", "sm_90a"), 0),
        (
            13000,
            &format!("// a comment\n{}", header("7.0", "sm_75")),
            0,
        ),
    ] as [(u32, &str, u32); 14]
    {
        let emu = emu_with(EmulatorConfig {
            driver_version,
            ..EmulatorConfig::default()
        });
        let loaded = emu.try_load(text).err().unwrap_or(0);
        assert_eq!(
            loaded,
            code,
            "driver {driver_version}, {text:?}: {}",
            emu.last_log()
        );
    }
}

#[test]
fn the_log_holds_the_line() {
    let emu = emu();
    let text = PTX.replace("mov.u32 %r2, %tid.x;", "mov.u32 %r2, %nonsense;");
    let line = text
        .lines()
        .position(|line| line.contains("%nonsense"))
        .unwrap()
        + 1;
    let (mut info, mut error) = ([1 as c_char; 100], [1 as c_char; 1000]);
    let mut options = [
        CUjit_option::INFO_LOG_BUFFER,
        CUjit_option::INFO_LOG_BUFFER_SIZE_BYTES,
        CUjit_option::ERROR_LOG_BUFFER,
        CUjit_option::ERROR_LOG_BUFFER_SIZE_BYTES,
        CUjit_option::GENERATE_LINE_INFO,
    ];
    let mut values: [*mut c_void; 5] = [
        info.as_mut_ptr().cast(),
        100 as *mut c_void,
        error.as_mut_ptr().cast(),
        1000 as *mut c_void,
        null_mut(),
    ];
    let mut module = CUmodule::NULL;
    let mut load = |text: &str, error: &mut [c_char]| {
        let text = CString::new(text).unwrap();
        let (options, values) = (options.as_mut_ptr(), values.as_mut_ptr());
        let code = code!(
            emu,
            cuModuleLoadDataEx(&mut module, text.as_ptr().cast(), 5, options, values)
        );

        // SAFETY: the call wrote a string with its NUL.
        let log = unsafe { CStr::from_ptr(error.as_ptr()) }
            .to_str()
            .unwrap()
            .to_string();
        (code, log)
    };
    let (code, log) = load(&text, &mut error);
    assert_eq!(code, 218);
    assert!(
        log.starts_with(&format!(
            "ptxas application ptx input, line {line}; error   : "
        )),
        "{log}"
    );
    assert!(log.contains("mov.u32 %r2, %nonsense;"), "{log}");
    assert_eq!(
        values[3] as usize,
        log.len() + 1,
        "the bytes filled are written back"
    );

    // The size written back is the capacity of the next load, as with the driver.
    values[3] = 8 as *mut c_void;
    let text = CString::new(text).unwrap();
    assert_eq!(
        code!(
            emu,
            cuModuleLoadDataEx(
                &mut module,
                text.as_ptr().cast(),
                5,
                options.as_mut_ptr(),
                values.as_mut_ptr()
            )
        ),
        218
    );
    assert_eq!(values[3] as usize, 8, "cut to the buffer");
    assert_eq!(
        (error[7], error[8] as u8),
        (0, log.as_bytes()[8]),
        "nothing is written past it"
    );
}

#[test]
fn functions_have_attributes_and_parameters() {
    let emu = emu();
    let module = emu.try_load(PTX).unwrap();
    let (add, square) = (
        emu.function(module, "add"),
        emu.function(module, "square32"),
    );
    assert_eq!(emu.function(module, "add"), add, "one handle a kernel");
    for (function, attribute, expected) in [
        (add, CUfunction_attribute::MAX_THREADS_PER_BLOCK, 1024),
        (square, CUfunction_attribute::MAX_THREADS_PER_BLOCK, 32),
        (square, CUfunction_attribute::SHARED_SIZE_BYTES, 4),
        (add, CUfunction_attribute::PTX_VERSION, 70),
        (add, CUfunction_attribute::BINARY_VERSION, 90),
        (
            add,
            CUfunction_attribute::MAX_DYNAMIC_SHARED_SIZE_BYTES,
            48 << 10,
        ),
    ] {
        let value: i32 = make!(emu, cuFuncGetAttribute(attribute, function));
        assert_eq!(value, expected, "{attribute:?}");
    }

    let info = |index| {
        let (mut offset, mut size) = (0, 0);
        (
            code!(emu, cuFuncGetParamInfo(add, index, &mut offset, &mut size)),
            offset,
            size,
        )
    };
    assert_eq!(
        [info(0), info(1), info(2)],
        [(0, 0, 8), (0, 8, 4), (1, 0, 0)]
    );
    let name: *const c_char = make!(emu, cuFuncGetName(add));

    // SAFETY: the name lives as long as the function.
    assert_eq!(unsafe { CStr::from_ptr(name) }, c"add");
    let attribute = CUfunction_attribute::MAX_DYNAMIC_SHARED_SIZE_BYTES;
    ok!(emu, cuFuncSetAttribute(add, attribute, 227 << 10));
    assert_eq!(
        code!(emu, cuFuncSetAttribute(add, attribute, (227 << 10) + 1)),
        1
    );
    assert_eq!(
        code!(
            emu,
            cuFuncSetAttribute(add, CUfunction_attribute::NUM_REGS, 1)
        ),
        1
    );
    for (threads, dynamic, expected) in [
        (256, 100 << 10, 2),
        (288, 113 << 10, 2),
        (256, (113 << 10) + 1, 1),
        (1024, 0, 2),
        (32, 0, 32),
    ] {
        let blocks: i32 = make!(
            emu,
            cuOccupancyMaxActiveBlocksPerMultiprocessor(add, threads, dynamic)
        );
        assert_eq!(blocks, expected, "{threads} threads, {dynamic} bytes");
    }

    let blocks: i32 = make!(
        emu,
        cuOccupancyMaxActiveBlocksPerMultiprocessor(square, 32, 49 << 10)
    );
    assert_eq!(blocks, 0, "a launch of it would be refused");
    let carveout = CUfunction_attribute::PREFERRED_SHARED_MEMORY_CARVEOUT;
    ok!(emu, cuFuncSetAttribute(add, carveout, 100));
    assert_eq!(code!(emu, cuFuncSetAttribute(add, carveout, 101)), 1);
}

#[test]
fn variables_have_addresses() {
    let emu = emu();
    let module = emu
        .try_load(
            ".version 7.0\n.target sm_75\n.address_size 64\n.global .align 4 .u32 v[2] = {5, 6};\n.shared .u32 s;\n",
        )
        .unwrap();
    let (mut address, mut bytes) = (0, 0);
    ok!(
        emu,
        cuModuleGetGlobal_v2(&mut address, &mut bytes, module, c"v".as_ptr())
    );
    assert_eq!((bytes, emu.download(address, 2)), (8, vec![5, 6]));
    for name in [c"w", c"s"] {
        assert_eq!(
            code!(
                emu,
                cuModuleGetGlobal_v2(&mut address, &mut bytes, module, name.as_ptr())
            ),
            500
        );
    }
}

#[test]
fn stale_and_foreign_handles_are_refused() {
    let emu = emu();
    let module = emu.try_load(PTX).unwrap();
    let add = emu.function(module, "add");
    let mut function = CUfunction::NULL;
    assert_eq!(
        code!(
            emu,
            cuModuleGetFunction(&mut function, module, c"nothing".as_ptr())
        ),
        500
    );
    assert_eq!(
        emu.last_log().lines().next().unwrap(),
        "cuModuleGetFunction: there is no kernel nothing; the module has add, copy, square32, spin, stop"
    );
    let foreign = CUfunction(module.0);
    assert_eq!(emu.launch(foreign, 1, CUstream::NULL, &[]), 400);
    assert_eq!(
        emu.launch(CUfunction(8 as *mut c_void), 1, CUstream::NULL, &[]),
        400
    );
    ok!(emu, cuModuleUnload(module));
    assert_eq!(code!(emu, cuModuleUnload(module)), 400);
    assert_eq!(emu.launch(add, 1, CUstream::NULL, &[0, 0]), 400);
    assert_eq!(
        code!(
            emu,
            cuModuleGetGlobal_v2(null_mut(), null_mut(), module, c"x".as_ptr())
        ),
        400
    );
}

/// A kernel that only the emulator cannot run is refused when it is asked for; the others of its module run.
#[test]
fn what_the_emulator_lacks_is_refused_at_first_use() {
    let emu = emu();
    let reduced = ".visible .entry reduced(.param .u64 t)\n{\n.reg .b64 %t; .reg .pred %p<2>;\nld.param.u64 %t, [t];\n\
                    istypep.texref %p1, %t;\nret;\n}\n";
    let module = emu.try_load(&format!("{PTX}{reduced}")).expect("it is PTX");
    let mut function = CUfunction::NULL;
    assert_eq!(
        code!(
            emu,
            cuModuleGetFunction(&mut function, module, c"add".as_ptr())
        ),
        0
    );
    assert_eq!(
        code!(
            emu,
            cuModuleGetFunction(&mut function, module, c"reduced".as_ptr())
        ),
        801
    );
    assert!(
        emu.last_log()
            .contains("unsupported in ptx-emu: istypep.texref"),
        "{}",
        emu.last_log()
    );
}
