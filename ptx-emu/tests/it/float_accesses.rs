//! The accesses of floats through parameters that are certain.

use ptx_emu::Module;
use ptx_emu::check::ElementType;

/// Returns the type and the line of the access through parameter 0 of a kernel with this body.
fn access(body: &str) -> Option<(ElementType, u32)> {
    let text = format!(
        ".version 8.0\n.target sm_80\n.address_size 64\n.visible .entry k(.param .u64 a, .param .u64 b) {{\n\
         .reg .pred %p; .reg .b32 %r<4>; .reg .f32 %f<4>; .reg .f64 %d; .reg .b64 %rd<6>;\n\
         ld.param.u64 %rd1, [a]; ld.param.u64 %rd2, [b]; mov.u32 %r1, %tid.x;\n{body}\nret; }}\n"
    );
    let module = Module::parse(&text).unwrap_or_else(|error| panic!("{body}: {error:?}"));
    let found = module.kernel("k").expect("a kernel").float_access(0)?;
    Some((found.element, found.line))
}

#[test]
fn floats_are_certain_by_the_instruction() {
    let f32_in = |line| Some((ElementType::F32, line));
    let cases = [
        ("ld.global.f32 %f1, [%rd1];", f32_in(7)),
        (
            "cvta.to.global.u64 %rd1, %rd1;\nmad.wide.u32 %rd3, %r1, 4, %rd1;\nld.global.nc.f32 %f1, [%rd3+4];",
            f32_in(9),
        ),
        (
            "mul.wide.u32 %rd3, %r1, 4; add.s64 %rd4, %rd1, %rd3; st.global.v2.f32 [%rd4], {%f1, %f2};",
            f32_in(7),
        ),
        ("red.global.add.f32 [%rd1], 0f3F800000;", f32_in(7)),
        // Bits may be anything.
        ("ld.global.b32 %f1, [%rd1];", None),
        ("ld.global.u32 %r2, [%rd1];", None),
        // A second access has another type.
        ("ld.global.f32 %f1, [%rd1]; ld.global.f64 %d, [%rd1];", None),
        (
            "ld.global.f32 %f1, [%rd1]; ld.global.u32 %r2, [%rd1];",
            None,
        ),
        // The address may be another one.
        (
            "ld.global.u64 %rd3, [%rd2]; @%p mov.u64 %rd3, %rd1; ld.global.f32 %f1, [%rd3];",
            None,
        ),
        (
            "ld.global.u64 %rd3, [%rd2]; selp.b64 %rd4, %rd1, %rd3, %p; ld.global.f32 %f1, [%rd4];",
            None,
        ),
        (
            "selp.b64 %rd4, %rd1, %rd2, %p; ld.global.f32 %f1, [%rd4];",
            None,
        ),
        (
            "ld.global.u64 %rd1, [%rd2]; add.u64 %rd3, %rd1, 4; ld.global.f32 %f1, [%rd3];",
            None,
        ),
    ];
    for (body, wanted) in cases {
        assert_eq!(access(body), wanted, "{body}");
    }
}
