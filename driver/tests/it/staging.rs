//! Copies from host memory to the device through pinned buffers.

use warpwright_driver::prelude::*;

use crate::emulator::alone;

fn text<T>(result: Result<T, Error>) -> String {
    result.err().expect("refused").to_string()
}

fn context() -> Context {
    let driver = Driver::from_library(warpwright_cuda_emu::library()).unwrap();
    Context::new(&driver.device(0).unwrap()).unwrap()
}

#[test]
fn pieces_take_turns() {
    let _alone = alone();
    let context = context();
    let stream = Stream::new(&context).unwrap();
    let mut staging = Staging::new(&context, 2, 400).unwrap();
    let to = Buffer::<u16>::uninit(&context, 1030).unwrap();
    let mut filled = Vec::new();
    let fill = |range: std::ops::Range<usize>, piece: &mut [u16]| {
        piece
            .iter_mut()
            .zip(range.clone())
            .for_each(|(value, i)| *value = i as u16 * 3);
        filled.push(range);
    };
    staging.write_with(&stream, &to, fill).unwrap();
    assert_eq!(
        filled,
        [0..200, 200..400, 400..600, 600..800, 800..1000, 1000..1030]
    );
    assert_eq!(
        stream.read(&to).unwrap(),
        (0..1030).map(|i| i * 3).collect::<Vec<u16>>()
    );
    staging
        .write(&stream, &to.view_range(3..5), &[1, 2])
        .unwrap();
    assert_eq!(stream.read(&to.view_range(2..6)).unwrap(), [6, 1, 2, 15]);
    let to = Buffer::<f32>::uninit(&context, 2).unwrap().labelled("to");
    assert_eq!(
        text(staging.write(&stream, &to, &[0.5])),
        "write: 1 elements for to, which has 2"
    );

    let capturing = capture(&stream, CaptureMode::ThreadLocal, |_| {
        staging.write(&stream, &to, &[0.5, 1.5])
    });
    assert!(
        text(capturing).starts_with("capture: "),
        "a capture would not own the pieces"
    );
}

#[test]
fn pieces_hold_whole_elements_of_any_size() {
    let _alone = alone();
    let context = context();
    let stream = Stream::new(&context).unwrap();
    let mut staging = Staging::new(&context, 2, 64).unwrap();
    let to = Buffer::<[u32; 3]>::zeroed(&context, 11).unwrap();
    let numbers: Vec<[u32; 3]> = (0..11).map(|i| [i, 10 * i, 100 * i]).collect();
    staging.write(&stream, &to, &numbers).unwrap();
    assert_eq!(stream.read(&to).unwrap(), numbers);
    let large = Buffer::<[u32; 17]>::zeroed(&context, 1)
        .unwrap()
        .labelled("large");
    let refused = text(staging.write(&stream, &large, &[[0; 17]]));
    assert_eq!(
        refused,
        "staging: a piece of 64 bytes holds no element of large, which has 68"
    );
}
