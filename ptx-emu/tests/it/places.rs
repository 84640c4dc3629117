//! Where memory lies and who reaches it: gaps, several devices, memory of the program, blocks that wait for each other.

use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use ptx_emu::{Class, Fault, Launch, LaunchSite, Memory, Module, Schedule, Stats, Trace, run_at};

/// `put(y, i, v)` stores `v` to `y[i]`, an element of 16 bytes. `meet(count, rounds)` is a barrier of the whole grid,
/// `rounds` times: each block adds one and polls, without sleeping, until all have.
const PTX: &str = "
.version 7.0
.target sm_75
.address_size 64
.visible .entry put(.param .u64 y, .param .u32 i, .param .u32 v)
{
    .reg .b32 %r<3>;
    .reg .b64 %y;
    ld.param.u64 %y, [y];
    ld.param.u32 %r1, [i];
    ld.param.u32 %r2, [v];
    mad.wide.u32 %y, %r1, 16, %y;
    st.global.u32 [%y], %r2;
    ret;
}
.visible .entry meet(.param .u64 count, .param .u32 rounds)
{
    .reg .b32 %r<6>;
    .reg .b64 %y;
    .reg .pred %p;
    ld.param.u64 %y, [count];
    ld.param.u32 %r1, [rounds];
    mov.u32 %r2, %nctaid.x;
    mov.u32 %r3, 0;
round:
    add.u32 %r3, %r3, %r2;
    atom.release.gpu.global.add.u32 %r4, [%y], 1;
poll:
    ld.acquire.gpu.global.u32 %r5, [%y];
    setp.lt.u32 %p, %r5, %r3;
    @%p bra poll;
    sub.u32 %r1, %r1, 1;
    setp.ne.u32 %p, %r1, 0;
    @%p bra round;
    ret;
}
.extern .func cudaGraphSetConditional
(
    .param .b64 handle,
    .param .b32 value
);
.visible .entry decide(.param .u64 handle)
{
    .reg .b32 %r<2>;
    .reg .b64 %h;
    .reg .pred %p;
    ld.param.u64 %h, [handle];
    mov.u32 %r1, %tid.x;
    setp.ne.u32 %p, %r1, 0;
    @%p bra done;
    add.u32 %r1, %r1, 3;
    {
        .param .b64 param0;
        st.param.b64 [param0+0], %h;
        .param .b32 param1;
        st.param.b32 [param1+0], %r1;
        call.uni cudaGraphSetConditional, (param0, param1);
    }
done:
    ret;
}
";

fn launch(
    memory: &Memory,
    name: &str,
    grid: u32,
    params: &[u8],
    place: &LaunchSite<'_>,
) -> Result<Stats, Box<Fault>> {
    let module = Module::parse(PTX).unwrap();
    let kernel = module.kernel(name).unwrap();
    let launch = Launch {
        kernel,
        grid: [grid, 1, 1],
        block: [1, 1, 1],
        dynamic_shared: 0,
        params,
    };
    run_at(
        memory,
        &launch,
        &Schedule {
            fuel: 1 << 24,
            ..Schedule::default()
        },
        Trace::Off,
        place,
    )
}

fn put(memory: &Memory, y: u64, i: u32, place: &LaunchSite<'_>) -> Result<Stats, Box<Fault>> {
    let params = [&y.to_le_bytes()[..], &i.to_le_bytes(), &7u32.to_le_bytes()].concat();
    launch(memory, "put", 1, &params, place)
}

#[test]
fn a_kernel_sets_a_condition() {
    let handle = 0x1234_5678_9abc_def0u64;
    let memory = Memory::new(1 << 10);
    let stats = launch(
        &memory,
        "decide",
        2,
        &handle.to_le_bytes(),
        &LaunchSite::default(),
    )
    .unwrap();
    assert_eq!(
        stats.conditions,
        [(handle, 3), (handle, 3)],
        "one lane of each block"
    );
}

fn word(memory: &Memory, address: u64) -> u32 {
    let mut bytes = [0; 4];
    memory.read(address, &mut bytes).unwrap();
    u32::from_le_bytes(bytes)
}

#[test]
fn no_32_bit_index_leads_to_a_neighbour() {
    let memory = Memory::new(1 << 20);
    let (y, next) = (
        memory.alloc(1 << 10).unwrap(),
        memory.alloc(1 << 10).unwrap(),
    );
    memory.fill(next, &[0], 1 << 10).unwrap();
    for i in [64, 127, 128, 256, 1 << 20, i32::MAX as u32, u32::MAX] {
        let fault = put(&memory, y, i, &LaunchSite::default()).unwrap_err();
        assert_eq!(fault.class, Class::OutOfBounds, "{i}");
    }

    put(&memory, y, 63, &LaunchSite::default()).unwrap();
    assert_eq!((word(&memory, y + 63 * 16), word(&memory, next)), (7, 0));
}

#[test]
fn an_overrun_of_pinned_memory_leads_nowhere() {
    let memory = Memory::new(1 << 10);
    let blocks: Vec<_> = (0..8)
        .map(|_| memory.alloc_host(1 << 16).unwrap())
        .collect();
    for block in &blocks {
        for i in [1 << 12, (1 << 13) - 1] {
            let fault = put(&memory, block.address(), i, &LaunchSite::default()).unwrap_err();
            assert_eq!(fault.class, Class::OutOfBounds, "{i}");
        }
    }
}

#[test]
fn a_device_reaches_its_own_memory_and_that_of_its_peers() {
    let memory = Memory::new(1 << 10);
    let theirs = memory.alloc_on(1, 1 << 10).unwrap();
    assert_eq!(
        (memory.used_on(0), memory.used_on(1), memory.owner(theirs)),
        (0, 1 << 10, Some(1))
    );
    assert!(
        memory.alloc_on(1, 1).is_err(),
        "each device has its own room"
    );
    let fault = put(&memory, theirs, 0, &LaunchSite::default()).unwrap_err();
    assert_eq!(fault.class, Class::OutOfBounds);
    put(
        &memory,
        theirs,
        0,
        &LaunchSite {
            peers: &[1],
            ..LaunchSite::default()
        },
    )
    .unwrap();
    put(
        &memory,
        theirs,
        1,
        &LaunchSite {
            device: 1,
            ..LaunchSite::default()
        },
    )
    .unwrap();
    assert_eq!((word(&memory, theirs), word(&memory, theirs + 16)), (7, 7));
}

#[test]
fn memory_of_the_program_is_reached_while_it_is_mapped() {
    static WORDS: [AtomicU32; 8] = [const { AtomicU32::new(0) }; 8];
    let memory = Memory::new(1 << 10);
    let base = memory.map(&WORDS).unwrap();
    assert_eq!((base, memory.owner(base)), (WORDS.as_ptr() as u64, None));
    assert!(memory.map(&WORDS[4..]).is_err(), "it is mapped already");
    put(
        &memory,
        base,
        1,
        &LaunchSite {
            device: 3,
            ..LaunchSite::default()
        },
    )
    .unwrap();
    assert_eq!(WORDS[4].load(Relaxed), 7);
    memory.free(base).unwrap();
    assert_eq!(
        put(&memory, base, 1, &LaunchSite::default())
            .unwrap_err()
            .class,
        Class::OutOfBounds
    );
}

#[test]
fn blocks_of_a_cooperative_launch_wait_for_each_other() {
    let memory = Memory::new(1 << 10);
    let count = memory.alloc(4).unwrap();
    let params = [&count.to_le_bytes()[..], &5u32.to_le_bytes()].concat();
    memory.fill(count, &[0], 4).unwrap();
    launch(
        &memory,
        "meet",
        12,
        &params,
        &LaunchSite {
            cooperative: true,
            ..LaunchSite::default()
        },
    )
    .unwrap();
    assert_eq!(word(&memory, count), 60);
}

#[test]
fn pieces_of_a_range_are_copied_as_one() {
    const PIECE: u64 = 4096;
    let memory = Memory::new(4 * PIECE);
    let range = memory.reserve_range(64 * PIECE, PIECE).unwrap();
    assert!(range.is_multiple_of(PIECE));
    assert!(memory.hold(0, 5 * PIECE).is_err());
    memory.hold(0, 2 * PIECE).unwrap();
    memory.put(range, 0, PIECE, None).unwrap();
    assert!(
        memory.put(range, 0, PIECE, None).is_err(),
        "something is there"
    );
    assert!(
        memory.fill(range + PIECE - 4, &[1], 8).is_err(),
        "half of it is not there"
    );
    memory.put(range + PIECE, 0, PIECE, None).unwrap();
    assert_eq!(memory.run(range + PIECE + 1), Some((range, 2 * PIECE)));

    memory
        .write(range + PIECE - 4, &[1, 2, 3, 4, 5, 6, 7, 8])
        .unwrap();
    assert_eq!(
        memory.uninitialised(range + PIECE - 4, 9).unwrap(),
        Some(range + PIECE + 4)
    );
    memory
        .copy(range + PIECE - 2, range + PIECE - 4, 9)
        .unwrap();
    let mut read = [0; 8];
    memory.read(range + PIECE - 2, &mut read).unwrap();
    assert_eq!(read, [1, 2, 3, 4, 5, 6, 7, 8]);
    assert_eq!(
        memory.uninitialised(range + PIECE - 2, 9).unwrap(),
        Some(range + PIECE + 6)
    );

    let taken = memory.take_away(range + PIECE).unwrap();
    assert!(memory.read(range + PIECE - 2, &mut read).is_err());
    assert_eq!(memory.used(), 2 * PIECE, "it is held all the same");
    memory
        .put(range + 8 * PIECE, 0, PIECE, Some(&taken))
        .unwrap();
    memory.read(range + 8 * PIECE, &mut read[..4]).unwrap();
    assert_eq!(read[..4], [3, 4, 5, 6]);
    memory.give(0, 2 * PIECE);
    assert_eq!(memory.used(), 0);
    assert_ne!(
        memory.alloc(16).unwrap() % (2 * 256),
        0,
        "no better aligned than promised"
    );
}
