//! Several threads with the same objects.

use warpwright_driver::prelude::*;

use super::*;

/// A kernel of two buffers that copies an element each, in PTX of its own.
const PTX: &str = "
.version 7.8
.target sm_90
.address_size 64
.visible .entry touch(.param .u64 x, .param .u64 y)
{
    .reg .b32 %r<2>;
    .reg .f32 %f<2>;
    .reg .b64 %rd<6>;
    ld.param.u64 %rd1, [x];
    ld.param.u64 %rd2, [y];
    mov.u32 %r1, %tid.x;
    mul.wide.u32 %rd3, %r1, 4;
    add.s64 %rd4, %rd1, %rd3;
    add.s64 %rd5, %rd2, %rd3;
    ld.global.f32 %f1, [%rd4];
    st.global.f32 [%rd5], %f1;
    ret;
}
";

#[test]
fn two_threads_raise_the_shared_memory_of_one_kernel() {
    emulator(|context| {
        let params = [
            Parameter::buffer::<f32>("x", Access::Read),
            Parameter::buffer::<f32>("y", Access::Write),
        ];
        for _ in 0..rounds(2000) {
            // Loaded anew, so that each round begins at the default.
            let module = Module::load(&context, PTX).unwrap();

            // SAFETY: the kernel takes these parameters, and a block of N threads stays within N
            // elements.
            let functions = [(); 2].map(|()| unsafe { module.function("touch", &params) }.unwrap());
            let start = std::sync::Barrier::new(2);
            std::thread::scope(|scope| {
                for (thread, function) in functions.iter().enumerate() {
                    let (context, start, both) = (&context, &start, &functions);
                    scope.spawn(move || {
                        let stream = Stream::new(context).unwrap();
                        let (x, y) = (
                            Buffer::from_slice(context, &[1.0f32; N]),
                            Buffer::<f32>::zeroed(context, N),
                        );
                        let (x, y) = (x.unwrap(), y.unwrap());
                        start.wait();
                        for (step, function) in
                            [function, &both[0], function].into_iter().enumerate()
                        {
                            let shared = if thread == 0 {
                                100 << 10
                            } else {
                                (60 + 10 * step as u32) << 10
                            };
                            let config = LaunchConfig::line(1, N as u32).shared(shared);
                            let launch = Launch::new(
                                function,
                                config,
                                vec![HostArg::from(&*x), HostArg::from(&*y)],
                            );
                            stream.run_launch(&launch.unwrap()).unwrap();
                        }

                        assert_eq!(stream.read(&y).unwrap(), [1.0; N]);
                    });
                }
            });
        }
    });
}

#[test]
fn threads_share_streams_buffers_and_contexts() {
    emulator(|context| {
        let (before, add) = (context.memory().unwrap().0, add(&context));
        std::thread::scope(|scope| {
            for thread in 0..4 {
                let (context, add) = (&context, &add);
                scope.spawn(move || {
                    for round in 0..rounds(200) {
                        let stream = Stream::new(context).unwrap();
                        let value = (thread * 1000 + round) as f32;
                        let x = Buffer::from_slice(context, &[value; N]).unwrap();
                        let y = Buffer::<f32>::uninit(context, N).unwrap();
                        stream.launch(add, args(&x, &y, 1.0)).unwrap();
                        drop(x);
                        if round % 3 == 0 {
                            drop(stream);
                            assert_eq!(y.to_vec().unwrap(), [value + 1.0; N]);
                        } else {
                            assert_eq!(stream.read(&y).unwrap(), [value + 1.0; N]);
                        }
                    }
                });
            }
        });
        context.synchronize().unwrap();
        assert_eq!(context.memory().unwrap().0, before);
    });
}

#[test]
fn one_library_is_one_driver_and_one_context() {
    emulator(|context| {
        let again = Driver::from_library(warpwright_cuda_emu::library()).unwrap();
        let same = Context::new(&again.device(0).unwrap()).unwrap();
        assert_eq!(same.raw(), context.raw());
        let (stream, add) = (Stream::new(&context).unwrap(), add(&same));
        let (x, y) = (
            Buffer::from_slice(&same, &[1.0; N]).unwrap(),
            Buffer::zeroed(&context, N).unwrap(),
        );
        stream.launch(&add, args(&x, &y, 1.0)).unwrap();
        assert_eq!(stream.read(&y).unwrap(), [2.0; N]);

        // A capture of the one driver does not keep the other from working, nor from releasing what
        // it has.
        let beside = sim::fresh();
        let buffer = Buffer::<u8>::uninit(&beside, N).unwrap();
        let graph = capture(&stream, CaptureMode::ThreadLocal, |queue| {
            let other = Stream::new(&beside)?;
            other.fill(&buffer, 1)?;
            other.synchronize()?;
            drop((buffer, other));
            assert_eq!(sim::live()[1], 0);
            queue.launch(&add, args(&x, &y, 2.0))
        })
        .unwrap();
        drop(beside);
        sim::expect_clean("the other driver");
        graph.instantiate().unwrap().launch(&stream).unwrap();
        assert_eq!(stream.read(&y).unwrap(), [3.0; N]);
        let foreign =
            text(Buffer::<f32>::zeroed(&sim::fresh(), N).and_then(|b| stream.fill(&b, 1.0)));
        assert!(foreign.contains("belongs to"), "{foreign}");
    });
}
