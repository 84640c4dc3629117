//! Virtual memory. Mapped memory works like other memory, and is freed after its last use.

use warpwright_driver::memory::{AddressRange, GrowableBuffer, PhysicalMemory};
use warpwright_driver::prelude::*;

use super::{PTX, context, launch, set, text};

#[test]
fn a_buffer_grows_where_it_is() {
    let context = context();
    let (stream, page) = (
        Stream::new(&context).unwrap(),
        PhysicalMemory::granularity(&context).unwrap(),
    );
    let mut buffer = GrowableBuffer::<u32>::reserve(&context, 3 * page / 4)
        .unwrap()
        .labelled("cache");
    assert!(buffer.is_empty() && buffer.view().is_empty());
    assert_eq!(
        (buffer.capacity(), buffer.range().mapped()),
        (3 * page / 4, 0)
    );
    buffer.grow(10).unwrap();
    let early = buffer.view();
    stream.fill(&early, 7).unwrap();
    buffer.grow(page / 4 + 1).unwrap();
    assert_eq!(
        (buffer.len(), buffer.range().mapped()),
        (page / 4 + 1, 2 * page)
    );
    let all = buffer.view();
    assert_eq!(all.address(), early.address());

    // The last word is the first of the second piece.
    let last = all.view_range(page / 4..page / 4 + 1);
    let module = Module::load(&context, PTX).unwrap();
    launch(&stream, &set(&module), &last, 9).unwrap();
    stream.fill(&all.view_range(10..page / 4), 8).unwrap();
    let words = stream.read(&all).unwrap();
    assert_eq!(
        (words[9], words[10], words[page / 4 - 1], words[page / 4]),
        (7, 8, 8, 9)
    );
    assert_eq!(
        text(buffer.grow(page)),
        format!(
            "growing: {page} elements exceed the capacity of cache, which is {}",
            3 * page / 4
        )
    );
}

#[test]
fn memory_in_use_is_not_taken_away() {
    let context = context();
    let (stream, page) = (
        Stream::new(&context).unwrap(),
        PhysicalMemory::granularity(&context).unwrap(),
    );
    let mut buffer = GrowableBuffer::<u32>::reserve(&context, page).unwrap();
    buffer.grow(page / 4).unwrap();
    buffer.grow(page / 2).unwrap();
    let view = buffer.view();
    let in_use = "unmapping: a view of the range exists; drop views and graphs of it first";
    assert_eq!(text(buffer.shrink(1)), in_use);
    assert_eq!(buffer.len(), page / 2);
    let mut graph = Graph::new(&context).unwrap();
    graph.fill(&[], &view, 5).unwrap();
    drop(view);
    assert_eq!(text(buffer.shrink(1)), in_use, "a graph has one");
    graph.instantiate().unwrap().launch(&stream).unwrap();
    drop(graph);

    // What the stream was given still names the memory; it is waited for.
    buffer.shrink(page / 4).unwrap();
    assert_eq!((buffer.len(), buffer.range().mapped()), (page / 4, page));
    assert_eq!(stream.read(&buffer.view()).unwrap()[page / 4 - 1], 5);
    buffer.shrink(0).unwrap();
    assert_eq!(buffer.range().mapped(), 0);
    buffer.grow(1).unwrap();
    stream.fill(&buffer.view(), 6).unwrap();
    assert_eq!(stream.read(&buffer.view()).unwrap(), [6]);
}

#[test]
fn streams_that_meet_in_a_range_need_an_order() {
    let context = context();
    let streams = [(); 2].map(|()| Stream::new(&context).unwrap());
    let mut buffer = GrowableBuffer::<u32>::reserve(&context, 1 << 20)
        .unwrap()
        .labelled("cache");
    buffer.grow(100).unwrap();
    let early = buffer.view();
    streams[0].fill(&early, 1).unwrap();
    buffer.grow(1 << 20).unwrap();
    let late = buffer.view();
    streams[1].fill(&late.view_range(100..200), 2).unwrap();
    let refused = streams[1].fill(&late.view_range(99..200), 2);
    assert!(
        matches!(refused, Err(Error::UnorderedStreams { .. })),
        "{refused:?}"
    );
}

#[test]
fn what_cannot_be_mapped_is_refused() {
    let context = context();
    let page = PhysicalMemory::granularity(&context).unwrap();
    let mut range = AddressRange::reserve(&context, 4 * page - 1)
        .unwrap()
        .labelled("range");
    assert_eq!(range.bytes(), 4 * page);
    let two = || PhysicalMemory::new(&context, page + 1).unwrap();
    assert_eq!(two().bytes(), 2 * page);
    range.map(page, two()).unwrap();
    for (result, wanted) in [
        (
            range.map(0, two()),
            format!(
                "mapping: {} bytes at byte 0, where {} are mapped from byte {page} on",
                2 * page,
                2 * page
            ),
        ),
        (
            range.map(2 * page, two()),
            format!(
                "mapping: {} bytes at byte {}, where {} are mapped from byte {page} on",
                2 * page,
                2 * page,
                2 * page
            ),
        ),
        (
            range.map(3 * page, two()),
            format!(
                "mapping: {} bytes at byte {} of a range of {}",
                2 * page,
                3 * page,
                4 * page
            ),
        ),
        (
            range.map(1, two()),
            format!("mapping: byte 1 is not a multiple of the page size {page}"),
        ),
        (
            range.unmap(2 * page).map(drop),
            format!("unmapping: no mapped memory begins at byte {}", 2 * page),
        ),
        (
            range.view::<u8>(0..page).map(drop),
            format!("a view: bytes 0 to {page} of range are not all mapped"),
        ),
        (
            range.view::<u8>(page..3 * page + 1).map(drop),
            format!(
                "a view: bytes {page} to {} of range are not all mapped",
                3 * page + 1
            ),
        ),
    ] {
        assert_eq!(text(result), wanted);
    }

    assert_eq!(range.view::<u64>(page..3 * page).unwrap().len(), page / 4);
    let most = PhysicalMemory::new(&context, 17 << 30);
    assert!(matches!(most, Err(Error::OutOfMemory { .. })), "{most:?}");
    let region = capture(
        &Stream::new(&context).unwrap(),
        CaptureMode::ThreadLocal,
        |_| PhysicalMemory::new(&context, 1).map(drop),
    );
    assert!(text(region).contains("allocating memory: this thread captures"));
}
