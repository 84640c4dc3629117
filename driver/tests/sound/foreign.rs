//! Safe code makes neither tensor maps from bytes nor things of two loaded drivers meet.

use warpwright_driver::memory::{ElementType, Kind, MemoryPool, TensorMap};
use warpwright_driver::prelude::*;

use super::*;

/// A type of the program whose bytes are a tensor map's.
#[derive(Clone, Copy)]
#[repr(C, align(64))]
struct Forged([u64; 16]);

// SAFETY: 128 bytes without padding.
unsafe impl Element for Forged {
    const TYPE: ElementType = ElementType::new::<Self>("tensor map");
}

const TAKES_A_MAP: &str = "
.version 7.0
.target sm_70
.address_size 64
.visible .entry takes_a_map(.param .align 64 .b8 map[128]) { ret; }
";

#[test]
fn bytes_are_no_tensor_map() {
    emulator(|context| {
        let module = Module::load(&context, TAKES_A_MAP).unwrap();

        // SAFETY: the kernel has this parameter and does nothing.
        let takes =
            unsafe { module.function("takes_a_map", &[Parameter::value::<TensorMap>("map")]) }
                .unwrap();
        let config = LaunchConfig::line(1, 1);
        let refused = |arg: HostArg| text(Launch::new(&takes, config, vec![arg]));
        let read = Buffer::<Forged>::zeroed(&context, 1)
            .unwrap()
            .to_vec()
            .unwrap()[0];
        let texts = [
            refused(HostArg::value(read)),
            refused(HostArg::value(Forged([7; 16]))),
            refused(HostArg::value([0u64; 16])),
            refused(HostArg::value([0u8; 128])),
            refused(HostArg::value([[0u32; 4]; 8])),
            refused(HostArg::scalar(7u64)),
            refused(HostArg::Scalar(Kind::U64, 7)),
            refused(HostArg::from(
                &*Buffer::<Forged>::zeroed(&context, 1).unwrap(),
            )),
            refused(HostArg::from(
                &*Buffer::<u8>::zeroed(&context, 128).unwrap(),
            )),
        ];
        for (text, what) in texts
            .iter()
            .zip(["Forged", "Forged", "u64", "u8", "u32", "u64", "u64"])
        {
            assert!(
                text.contains("it takes a tensor map value"),
                "{what}: {text}"
            );
        }

        // Nor does a kernel that is declared with such a type become one that takes maps.
        // SAFETY: as above.
        let other = unsafe { module.function("takes_a_map", &[Parameter::value::<Forged>("map")]) }
            .unwrap();
        assert_ne!(other.params()[0], takes.params()[0]);
        Launch::new(&other, config, vec![HostArg::value(read)]).unwrap();
    });
}

#[test]
fn an_array_of_numbers_has_no_tensor_map_of_numbers() {
    emulator(|context| {
        let x = Buffer::<f32>::zeroed(&context, 64).unwrap();
        let none = x.cast::<[f32; 0]>().unwrap();
        let four = x.cast::<[f32; 4]>().unwrap();

        // SAFETY: no kernel takes the maps.
        let encode = |result: Result<TensorMap, Error>| text(result);

        // SAFETY: as above.
        unsafe {
            // Of elements without a size any number seems to fit into the view.
            let tensor = TensorMapBuilder::new(&none, &[1 << 20, 8])
                .strides(&[16])
                .boxed(&[32, 8]);
            assert!(encode(tensor.encode()).contains("elements of 0 bytes (f32)"));
            let tensor = TensorMapBuilder::new(&four, &[4, 4]).boxed(&[4, 4]);
            assert!(encode(tensor.encode()).contains("elements of 16 bytes (f32)"));
        }
    });
}

#[test]
fn things_of_two_drivers_do_not_meet() {
    emulator(|ours| {
        let theirs = sim::fresh();
        let (stream, their_stream) = (Stream::new(&ours).unwrap(), Stream::new(&theirs).unwrap());
        let x = Buffer::<u8>::uninit(&theirs, N).unwrap().labelled("x");
        let y = Buffer::<u8>::zeroed(&ours, N).unwrap().labelled("y");
        let (rows, columns) = (Boxed::rows(&x, 8), Boxed::rows(&y, 8));
        let their_event = Event::new(&theirs).unwrap();
        their_event.record(&their_stream).unwrap();
        let their_graph = Graph::new(&theirs).unwrap();
        let mut graph = Graph::new(&ours).unwrap();
        let mut exec = graph.instantiate().unwrap();
        let mut staging = Staging::new(&theirs, 1, 64).unwrap();
        let pool = MemoryPool::default_for(&ours).unwrap();
        let (device, their_device) = (ours.device(), theirs.device());
        let refused = [
            stream.copy_from_peer(&x, &y),
            their_stream.copy_from_peer(&y, &x),
            stream.copy_from_peer(&y, &x),
            stream.copy_box_from_peer(rows, columns, [2, 2, 1]),
            their_stream.copy_box_from_peer(columns, rows, [2, 2, 1]),
            ours.reach(&theirs),
            theirs.reach(&ours),
            device.can_reach(their_device).map(drop),
            their_device.can_reach(device).map(drop),
            stream.wait(&their_event),
            Event::new(&ours).unwrap().record(&their_stream),
            stream.copy(&x, &y),
            stream.fill(&x, 1),
            stream.write(&x, &[0; N]),
            stream.read(&x).map(drop),
            graph.child(&[], &their_graph).map(drop),
            graph.fill(&[], &x, 1).map(drop),
            graph.record(&[], &their_event).map(drop),
            exec.launch(&their_stream),
            exec.update(&their_graph),
            staging.write(&stream, &y, &[0; N]),
            their_stream.alloc_from::<u8>(&pool, 4).map(drop),
        ];
        for (n, result) in refused.into_iter().enumerate() {
            assert!(
                matches!(result, Err(Error::WrongContext { .. })),
                "{n}: {result:?}"
            );
        }

        let wanted = "buffer x belongs to the driver ";
        assert!(text(stream.copy_from_peer(&x, &y)).starts_with(wanted));
        assert_eq!(y.to_vec().unwrap(), [0; N]);
    });
}
