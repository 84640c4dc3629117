//! The limit of what a traced launch may record.

use ptx_emu::{
    Class, Faults, Launch, LaunchSite, Memory, Module, Schedule, Trace, Watch, Watched, run_watched,
};

use crate::machine::kernel;

/// 64 blocks of 32 threads, each of which writes a word at a distance of 128 bytes from the next one's.
fn scattered(watch: &Watch, trace: Trace) -> Watched {
    let body = ".reg .b32 %r<2>; .reg .b64 %d; mov.u32 %r0, %ctaid.x; mad.lo.u32 %r0, %r0, 32, %t;
        mad.wide.u32 %d, %r0, 128, %out; st.global.u32 [%d], %r0;";
    let module = Module::parse(&kernel(body)).unwrap();
    let memory = Memory::new(1 << 24);
    let out = memory.alloc(64 * 32 * 128).unwrap();
    let params = [out.to_le_bytes(), out.to_le_bytes()].concat();
    let launch = Launch {
        kernel: module.kernel("k").unwrap(),
        grid: [64, 1, 1],
        block: [32, 1, 1],
        dynamic_shared: 0,
        params: &params,
    };
    run_watched(
        &memory,
        &launch,
        &Schedule::default(),
        trace,
        &LaunchSite::default(),
        watch,
    )
}

#[test]
fn a_record_that_reaches_its_limit_is_a_finding_that_ends_the_launch() {
    for faults in [Faults::First, Faults::EachBlock] {
        let watch = Watch {
            trace_bytes: Some(200_000),
            faults,
            ..Watch::default()
        };
        let found = scattered(&watch, Trace::On).found;
        let [only] = &found[..] else {
            panic!("{} findings", found.len())
        };

        let (fault, text) = (&only.fault, only.fault.to_string());
        assert_eq!((fault.class, only.blocks), (Class::TraceFull, 1), "{text}");
        assert!(fault.block[0] > 0, "the first block has room: {text}");
        assert!(
            text.contains("has reached its limit of 200000 bytes, and races"),
            "{text}"
        );
        assert!(text.contains("st.global.u32 [%d], %r0"), "{text}");
    }
}

#[test]
fn a_record_below_its_limit_is_none() {
    for (bytes, trace) in [
        (None, Trace::On),
        (Some(8 << 20), Trace::On),
        (Some(0), Trace::Off),
    ] {
        let watched = scattered(
            &Watch {
                trace_bytes: bytes,
                ..Watch::default()
            },
            trace,
        );
        assert!(watched.found.is_empty(), "{}", watched.found[0].fault);
        assert_eq!(watched.stats.accesses.is_some(), trace == Trace::On);
    }
}
