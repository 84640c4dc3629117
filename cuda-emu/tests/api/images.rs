//! Fat binaries and machine code in place of PTX text.

use std::ffi::{CString, c_void};

use warpwright_driver_sys::*;

use crate::harness::{Emu, code, emu, make, ok, pointers};

/// One kernel, and the fat binaries that `fatbinary` of CUDA 13.5 makes of it in two of its modes of compression.
const TEXT: &str = include_str!("../data/fat.ptx");
const LZ4: &[u8] = include_bytes!("../data/lz4.fatbin");
const ZSTANDARD: &[u8] = include_bytes!("../data/zstandard.fatbin");

/// An entry that is not compressed.
fn entry(kind: u16, architecture: u32, contents: &[u8]) -> Vec<u8> {
    let mut entry = [kind, 0x101].map(u16::to_le_bytes).concat();
    entry.extend(64u32.to_le_bytes());
    entry.extend((contents.len() as u64).to_le_bytes());
    entry.extend([0; 12]);
    entry.extend(architecture.to_le_bytes());
    entry.resize(64, 0);
    entry.extend(contents);
    entry
}

fn container(entries: &[Vec<u8>]) -> Vec<u8> {
    let entries = entries.concat();
    let mut bytes = 0xba55_ed50_u32.to_le_bytes().to_vec();
    bytes.extend([1u16, 16].map(u16::to_le_bytes).concat());
    bytes.extend((entries.len() as u64).to_le_bytes());
    bytes.extend(entries);
    bytes
}

fn load(emu: &Emu, image: &[u8]) -> Result<CUmodule, u32> {
    let mut module = CUmodule::NULL;
    match code!(emu, cuModuleLoadData(&mut module, image.as_ptr().cast())) {
        0 => Ok(module),
        code => Err(code),
    }
}

/// Runs the kernel of a module over three words.
fn copies(emu: &Emu, module: CUmodule) -> Vec<u32> {
    let (to, from) = (emu.upload(&[0; 3]), emu.upload(&[5, 6, 7]));
    let args = [to, from];
    let mut arguments = pointers(&args);
    let (function, null) = (emu.function(module, "copy_words"), std::ptr::null_mut());
    ok!(
        emu,
        cuLaunchKernel(
            function,
            1,
            1,
            1,
            3,
            1,
            1,
            0,
            CUstream::NULL,
            arguments.as_mut_ptr(),
            null
        )
    );
    emu.download(to, 3)
}

#[test]
fn fat_binaries_hold_ptx() {
    let emu = emu();
    let newer = TEXT.replace("sm_80", "sm_100");
    let plain = container(&[
        entry(1, 52, b".version 7.0\n.target sm_52\n.address_size 64\n"),
        entry(2, 90, b"machine code"),
        entry(1, 80, TEXT.as_bytes()),
        entry(1, 100, newer.as_bytes()),
    ]);
    for (name, image) in [
        ("plain", &plain[..]),
        ("LZ4", LZ4),
        ("Zstandard", ZSTANDARD),
    ] {
        let module =
            load(&emu, image).unwrap_or_else(|code| panic!("{name}: {code}: {}", emu.last_log()));
        assert_eq!(copies(&emu, module), [5, 6, 7], "{name}");
    }

    let descriptor = [0x1_4662_43b1, ZSTANDARD.as_ptr() as usize, 0];
    let mut module = CUmodule::NULL;
    ok!(
        emu,
        cuModuleLoadFatBinary(&mut module, descriptor.as_ptr().cast())
    );
    assert_eq!(copies(&emu, module), [5, 6, 7]);
}

#[test]
fn libraries_and_links_take_fat_binaries() {
    let emu = emu();
    let (mut library, null) = (CUlibrary::NULL, std::ptr::null_mut::<c_void>());
    let code = LZ4.as_ptr().cast();
    ok!(
        emu,
        cuLibraryLoadData(
            &mut library,
            code,
            null.cast(),
            null.cast(),
            0,
            null.cast(),
            null.cast(),
            0
        )
    );
    let module: CUmodule = make!(emu, cuLibraryGetModule(library));
    assert_eq!(copies(&emu, module), [5, 6, 7]);

    let mut state = CUlinkState::NULL;
    ok!(
        emu,
        cuLinkCreate_v2(0, null.cast(), null.cast(), &mut state)
    );
    let (data, bytes) = (ZSTANDARD.as_ptr().cast_mut().cast(), ZSTANDARD.len());
    let (kind, name) = (CUjitInputType::FATBINARY, c"words".as_ptr());
    ok!(
        emu,
        cuLinkAddData_v2(state, kind, data, bytes, name, 0, null.cast(), null.cast())
    );
    let (mut image, mut size) = (null, 0);
    ok!(emu, cuLinkComplete(state, &mut image, &mut size));
    let mut module = CUmodule::NULL;
    ok!(emu, cuModuleLoadData(&mut module, image));
    assert_eq!(copies(&emu, module), [5, 6, 7]);
}

#[test]
fn what_has_no_ptx_is_refused_and_says_what_to_set() {
    let mut machine_code = vec![0; 64];
    machine_code[..9].copy_from_slice(b"\x7fELF\x02\x01\x01A\x08");
    (machine_code[18], machine_code[49]) = (190, 86);
    let cut = |bytes: usize| {
        let mut image = container(&[entry(1, 80, TEXT.as_bytes())]);
        let length = (image.len() - 16 - bytes) as u64;
        image[8..16].copy_from_slice(&length.to_le_bytes());
        image
    };
    let mut torn = ZSTANDARD.to_vec();
    torn[110] ^= 0x55;
    let newer = container(&[entry(1, 100, b""), entry(2, 80, b""), entry(8, 90, b"")]);
    for (image, code, text) in [
        (
            machine_code,
            209,
            "the image is machine code for sm_86; the emulator runs only PTX: build with `-gencode",
        ),
        (
            newer,
            209,
            "has PTX for sm_100, machine code for sm_80, contents of kind 8 for sm_90, but no PTX for the device, \
             which is sm_90; the emulator",
        ),
        (
            container(&[]),
            209,
            "the fat binary has nothing, but no PTX",
        ),
        (
            cut(1),
            200,
            "the fat binary is broken: it ends within an entry",
        ),
        (
            cut(TEXT.len() + 60),
            200,
            "the fat binary is broken: it ends within an entry",
        ),
        (torn, 200, "the fat binary is broken: "),
    ] {
        let emu = emu();
        assert_eq!(load(&emu, &image).err(), Some(code), "{text}");
        assert!(
            emu.last_log().contains(text),
            "{} instead of {text}",
            emu.last_log()
        );
    }
}

#[test]
fn a_file_with_a_fat_binary_loads() {
    let emu = emu();
    let file = std::env::temp_dir().join(format!("warpwright-{}.fatbin", std::process::id()));
    std::fs::write(&file, LZ4).unwrap();
    let path = CString::new(file.to_str().unwrap()).unwrap();
    let module: CUmodule = make!(emu, cuModuleLoad(path.as_ptr()));
    std::fs::remove_file(&file).unwrap();
    assert_eq!(copies(&emu, module), [5, 6, 7]);
}
