//! Host memory on its way to the device: pinned where it lies, or through pinned pieces.

#![allow(unsafe_code)]

mod fake;

use std::sync::Arc;

use fake::count;
use warpwright_driver::sys::{Api, CUmemhostregister_flags, CUresult};
use warpwright_driver::*;

fn text<T>(result: Result<T, Error>) -> String {
    result.err().expect("refused").to_string()
}

fn context(api: Api) -> Context {
    let driver = Driver::from_api(api, "emulator").unwrap();
    Context::new(&driver.device(0).unwrap()).unwrap()
}

/// A driver that pins no memory of the program.
fn refusing() -> Api {
    unsafe extern "C" fn refuse(_: *mut std::ffi::c_void, _: usize, _: CUmemhostregister_flags) -> CUresult {
        CUresult::NOT_SUPPORTED
    }
    Api { cuMemHostRegister_v2: refuse, ..warpwright_cuda_emu::api() }
}

#[test]
fn bytes_of_the_host_arrive_pinned_or_staged() {
    let bytes: Arc<Vec<u8>> = Arc::new((0..100_003u32).map(|i| (i * 7 % 251) as u8).collect());
    for (api, pinned) in [(warpwright_cuda_emu::api(), true), (refusing(), false)] {
        let context = context(api);
        let stream = Stream::new(&context).unwrap();
        let mut host = HostBytes::new(&context, bytes.clone()).unwrap();
        assert_eq!((host.is_pinned(), host.len()), (pinned, bytes.len()));
        let all = Buffer::<u8>::uninit(&context, bytes.len()).unwrap();
        let words = Buffer::<u32>::uninit(&context, 1000).unwrap().labelled("words");
        host.copy(&stream, 0, &all).unwrap();
        host.copy(&stream, 5, &words).unwrap();
        host.copy(&stream, bytes.len(), &all.view_range(0..0)).unwrap();
        let problem = "words takes 4000 bytes from 96004 on, and there are 100003";
        assert_eq!(text(host.copy(&stream, 96_004, &words)), format!("copy from the host: {problem}"));
        host.copy(&stream, 96_003, &words.view_range(0..1000)).unwrap();
        drop(host);
        assert_eq!(stream.read(&all).unwrap(), *bytes);
        let word = |i: usize| u32::from_le_bytes(bytes[i..i + 4].try_into().unwrap());
        assert_eq!(stream.read(&words).unwrap()[999], word(96_003 + 3996));
        context.synchronize().unwrap();
        let again = HostBytes::new(&context, bytes.clone()).unwrap();
        assert_eq!(again.is_pinned(), pinned, "what was dropped is not pinned any more");
        let twice = HostBytes::new(&context, bytes.clone()).unwrap();
        assert!(!twice.is_pinned(), "what is pinned already goes through pieces");
    }
    assert_eq!(Arc::strong_count(&bytes), 1);
}

#[test]
fn pieces_take_turns() {
    let context = context(warpwright_cuda_emu::api());
    let stream = Stream::new(&context).unwrap();
    let mut staging = Staging::new(&context, 2, 400).unwrap();
    let to = Buffer::<u16>::uninit(&context, 1030).unwrap();
    let mut filled = Vec::new();
    let fill = |range: std::ops::Range<usize>, piece: &mut [u16]| {
        piece.iter_mut().zip(range.clone()).for_each(|(value, i)| *value = i as u16 * 3);
        filled.push(range);
    };
    staging.write_with(&stream, &to, fill).unwrap();
    assert_eq!(filled, [0..200, 200..400, 400..600, 600..800, 800..1000, 1000..1030]);
    assert_eq!(stream.read(&to).unwrap(), (0..1030).map(|i| i * 3).collect::<Vec<u16>>());
    staging.write(&stream, &to.view_range(3..5), &[1, 2]).unwrap();
    assert_eq!(stream.read(&to.view_range(2..6)).unwrap(), [6, 1, 2, 15]);
    let to = Buffer::<f32>::uninit(&context, 2).unwrap().labelled("to");
    assert_eq!(text(staging.write(&stream, &to, &[0.5])), "write: 1 elements for to, which has 2");

    let capturing = capture(&stream, CaptureMode::ThreadLocal, |_| staging.write(&stream, &to, &[0.5, 1.5]));
    assert!(text(capturing).starts_with("capture: "), "a capture would not own the pieces");
}

#[test]
fn memory_is_unpinned_once_and_after_the_copies() {
    let context = fake::context();
    let stream = Stream::new(&context).unwrap();
    let to = Buffer::<u8>::zeroed(&context, 8).unwrap();
    let mut host = HostBytes::new(&context, Arc::new([1u8; 8])).unwrap();
    assert!(host.is_pinned());
    host.copy(&stream, 0, &to).unwrap();
    drop(host);
    assert_eq!(count("cuMemHostUnregister"), 0, "the stream may still copy");
    stream.synchronize().unwrap();
    assert_eq!((count("cuMemHostRegister_v2"), count("cuMemHostUnregister")), (1, 1));
}
