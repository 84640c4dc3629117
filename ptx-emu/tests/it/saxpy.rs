//! A whole kernel, end to end.

use ptx_emu::{Launch, Memory, Module, Schedule, Trace, run};

const SAXPY: &str = r#"
.version 7.0
.target sm_80
.address_size 64

.visible .entry saxpy(
    .param .u64 x,
    .param .u64 y,
    .param .f32 a,
    .param .u32 n
)
.maxntid 256, 1, 1
{
    .reg .pred %p<2>;
    .reg .f32 %f<5>;
    .reg .b32 %r<6>;
    .reg .b64 %rd<8>;

    ld.param.u64 %rd1, [x];
    ld.param.u64 %rd2, [y];
    ld.param.f32 %f1, [a];
    ld.param.u32 %r2, [n];
    mov.u32 %r3, %ntid.x;
    mov.u32 %r4, %ctaid.x;
    mov.u32 %r5, %tid.x;
    mad.lo.s32 %r1, %r4, %r3, %r5;
    setp.ge.u32 %p1, %r1, %r2;
    @%p1 bra $L_end;
    cvta.to.global.u64 %rd3, %rd1;
    mul.wide.u32 %rd4, %r1, 4;
    add.s64 %rd5, %rd3, %rd4;
    ld.global.nc.f32 %f2, [%rd5];
    cvta.to.global.u64 %rd6, %rd2;
    add.s64 %rd7, %rd6, %rd4;
    ld.global.f32 %f3, [%rd7];
    fma.rn.f32 %f4, %f2, %f1, %f3;
    st.global.f32 [%rd7], %f4;
$L_end:
    ret;
}
"#;

#[test]
fn saxpy_adds_a_multiple() {
    let module = Module::parse(SAXPY).unwrap_or_else(|e| panic!("{e}"));
    let memory = Memory::new(1 << 20);
    let n = 1000u32;
    let (x, y) = (
        memory.alloc(u64::from(n) * 4).unwrap(),
        memory.alloc(u64::from(n) * 4).unwrap(),
    );
    let bytes =
        |f: &dyn Fn(u32) -> f32| (0..n).flat_map(|i| f(i).to_le_bytes()).collect::<Vec<u8>>();
    memory.write(x, &bytes(&|i| i as f32)).unwrap();
    memory.write(y, &bytes(&|i| 1.0 + i as f32)).unwrap();
    let mut params = [x.to_le_bytes(), y.to_le_bytes()].concat();
    params.extend(2f32.to_le_bytes());
    params.extend(n.to_le_bytes());
    let launch = Launch {
        kernel: module.kernel("saxpy").unwrap(),
        grid: [4, 1, 1],
        block: [256, 1, 1],
        dynamic_shared: 0,
        params: &params,
    };
    let stats =
        run(&memory, &launch, &Schedule::default(), Trace::Off).unwrap_or_else(|e| panic!("{e}"));
    let mut out = vec![0; n as usize * 4];
    memory.read(y, &mut out).unwrap();
    assert_eq!(out, bytes(&|i| 3.0 * i as f32 + 1.0));
    assert_eq!(stats.warp_instructions, 32 * 20);
}
