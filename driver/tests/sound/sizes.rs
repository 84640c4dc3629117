//! Elements without a size, and sizes that no memory has.

use warpwright_driver::graph::WordOperation;
use warpwright_driver::memory::{ElementType, GrowableBuffer, PhysicalMemory};
use warpwright_driver::prelude::*;

use super::*;

#[test]
fn elements_without_a_size_are_nothing_to_do() {
    emulator(|context| {
        let stream = Stream::new(&context).unwrap();
        let x = Buffer::from_slice(&context, &[1.0f32; N]).unwrap();
        let mut staging = Staging::new(&context, 2, 64).unwrap();
        for view in [
            x.cast::<[u8; 0]>().unwrap(),
            Buffer::<[u8; 0]>::zeroed(&context, 5).unwrap().view(),
        ] {
            let many = vec![[0u8; 0]; view.len()];
            staging.write(&stream, &view, &many).unwrap();
            staging
                .write_with(&stream, &view, |_, _| panic!("there is nothing to fill"))
                .unwrap();
            stream.write(&view, &many).unwrap();
            assert_eq!(stream.read(&view).unwrap().len(), view.len());
            view.write(&many).unwrap();
            assert_eq!(view.to_vec().unwrap().len(), view.len());
            let wide = view.cast::<[u64; 0]>().unwrap();
            assert_eq!(wide.cast::<u8>().unwrap().len(), wide.region().bytes());
            assert!(Work::fill(&view, []).is_err());
            assert!(WordOperation::write(&view, []).is_err());
            stream
                .run(
                    &Work::copy_box(
                        Boxed::rows(&view, 0),
                        Boxed::rows(&wide.cast().unwrap(), 0),
                        [0; 3],
                    )
                    .unwrap(),
                )
                .unwrap();
            assert!(Work::fill_box(Boxed::rows(&view, 1), [1, 1, 1], []).is_err());

            // SAFETY: nothing uses the map.
            assert!(unsafe { TensorMapBuilder::new(&view, &[1, 1]).encode() }.is_err());
        }

        assert_eq!(x.to_vec().unwrap(), [1.0; N]);
        let pinned = Pinned::<[u32; 0]>::zeroed(&context, 7).unwrap();
        assert_eq!(pinned.to_vec().len(), pinned.len());
        let managed = Managed::<[u32; 0]>::zeroed(&context, 7).unwrap();
        assert_eq!(managed.to_vec().unwrap().len(), managed.len());
        assert_eq!(
            Registered::new(&context, vec![[0u8; 0]; 3])
                .unwrap()
                .to_host()
                .len(),
            0
        );
        let mut growing = GrowableBuffer::<[u8; 0]>::reserve(&context, 1000).unwrap();
        growing.grow(10).unwrap();
        growing.view();
        growing.shrink(0).unwrap();
        assert!(growing.is_empty());
        assert!(
            Graph::new(&context)
                .unwrap()
                .alloc::<[u8; 0]>(&[], 5)
                .is_err()
        );
        assert_eq!(stream.alloc::<[u8; 0]>(5).unwrap().len(), 0);
        let mut graph = Graph::new(&context).unwrap();
        let y = Buffer::<[u8; 0]>::zeroed(&context, 5).unwrap();
        graph
            .copy(&[], &y, &Buffer::zeroed(&context, 5).unwrap())
            .unwrap();
        graph.instantiate().unwrap().launch(&stream).unwrap();
        stream.synchronize().unwrap();
    });
}

#[test]
fn staging_that_no_machine_has_is_refused_before_it_is_pinned() {
    emulator(|context| {
        let most = usize::MAX;
        let sizes = [
            (most, 8),
            (most, most),
            (2, most),
            (1, most),
            (2, most / 2),
            (most / 8, 8),
            (1 << 30, 8),
            (1 << 40, 1 << 30),
            (1025, 8),
            (1024, 1 << 40),
            (0, 64),
            (1, 7),
            (1, 0),
            (0, 0),
        ];
        for (pieces, bytes) in sizes {
            let refused = text(Staging::new(&context, pieces, bytes));
            let wanted = format!(
                "staging: {pieces} pieces of {bytes} bytes; use 1 to 1024 pieces of at least 8 bytes"
            );
            assert!(refused.starts_with(&wanted), "{refused}");
        }

        Staging::new(&context, 1, 8).unwrap();
        Staging::new(&context, 1024, 15).unwrap();
    });
}

/// An element that needs more alignment than numbers do.
#[derive(Clone, Copy, PartialEq, Debug)]
#[repr(C, align(256))]
struct Aligned([u64; 32]);

// SAFETY: 256 bytes without padding.
unsafe impl Element for Aligned {
    const TYPE: ElementType = ElementType::new::<Self>("Aligned");
}

#[test]
fn aligned_elements_are_staged_where_pieces_are_aligned() {
    emulator(|context| {
        let stream = Stream::new(&context).unwrap();
        let x = Buffer::<Aligned>::zeroed(&context, 3).unwrap();
        let from = [1, 2, 3].map(|n| Aligned([n; 32]));
        match Staging::new(&context, 2, 300)
            .unwrap()
            .write(&stream, &x, &from)
        {
            Ok(()) => assert_eq!(stream.read(&x).unwrap(), from),
            Err(error) => assert!(error.to_string().contains("aligned"), "{error}"),
        }
    });
}

#[test]
fn lengths_that_no_memory_has_are_refused() {
    emulator(|context| {
        let stream = Stream::new(&context).unwrap();
        let most = usize::MAX;
        for len in [most, most / 2, most / 4, most / 8 + 1, 1 << 60] {
            assert!(Buffer::<u64>::uninit(&context, len).is_err(), "{len}");
            assert!(Buffer::<u64>::zeroed(&context, len).is_err(), "{len}");
            assert!(Pinned::<u64>::zeroed(&context, len).is_err(), "{len}");
            assert!(Managed::<u64>::zeroed(&context, len).is_err(), "{len}");
            assert!(stream.alloc::<u64>(len).is_err(), "{len}");
            assert!(PhysicalMemory::new(&context, len).is_err(), "{len}");
            assert!(
                GrowableBuffer::<u64>::reserve(&context, len).is_err(),
                "{len}"
            );
            assert!(
                Graph::new(&context)
                    .unwrap()
                    .alloc::<u64>(&[], len)
                    .is_err(),
                "{len}"
            );
        }
    });
}
