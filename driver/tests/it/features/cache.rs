//! Windows of the second-level cache.

use warpwright_driver::graph::NodeAttribute;
use warpwright_driver::memory::AccessWindow;
use warpwright_driver::prelude::*;

use super::{PTX, context, set, text};

#[test]
fn a_stream_and_a_node_have_a_window() {
    let context = context();
    let (stream, buffer) = (
        Stream::new(&context).unwrap(),
        Buffer::<u32>::zeroed(&context, 1000).unwrap(),
    );
    assert_eq!(stream.access_window().unwrap(), None);
    let half = AccessWindow::persisting(&buffer.view_range(500..1000))
        .share(0.5)
        .streaming_misses();
    assert_eq!(half.bytes(), 2000);
    stream.set_access_window(Some(&half)).unwrap();
    assert_eq!(stream.access_window().unwrap(), Some(half));
    stream.set_access_window(None).unwrap();
    assert_eq!(stream.access_window().unwrap(), None);

    let set = set(&Module::load(&context, PTX).unwrap());
    let mut graph = Graph::new(&context).unwrap();
    let args = vec![(&*buffer).into(), HostArg::scalar(5u32)];
    let node = graph
        .add(
            &[],
            Launch::new(&set, LaunchConfig::line(1, 1), args).unwrap(),
        )
        .unwrap();
    let streaming = NodeAttribute::AccessWindow(AccessWindow::streaming(&buffer));
    graph.set_attribute(node, streaming).unwrap();
    let any = NodeAttribute::AccessWindow(half);
    assert_eq!(graph.attribute(node, any).unwrap(), streaming);
    graph.instantiate().unwrap().launch(&stream).unwrap();
    assert_eq!(stream.read(&buffer.view_range(0..1)).unwrap(), [5]);
    context.set_persisting_cache(1 << 20).unwrap();
    assert_eq!(context.persisting_cache().unwrap(), 1 << 20);
}

#[test]
fn a_window_is_one_that_the_device_has() {
    let context = context();
    let (stream, buffer) = (
        Stream::new(&context).unwrap(),
        Buffer::<u8>::uninit(&context, (128 << 20) + 1).unwrap(),
    );
    let all = AccessWindow::streaming(&buffer);
    for (window, wanted) in [
        (
            all,
            "access window: 134217729 bytes; the device allows 134217728",
        ),
        (
            all.share(1.5),
            "access window: invalid share 1.5: expected a value from 0 to 1",
        ),
        (
            all.share(f32::NAN),
            "access window: invalid share NaN: expected a value from 0 to 1",
        ),
    ] {
        assert_eq!(text(stream.set_access_window(Some(&window))), wanted);
    }

    stream
        .set_access_window(Some(&AccessWindow::streaming(
            &buffer.view_range(0..128 << 20),
        )))
        .unwrap();
}
