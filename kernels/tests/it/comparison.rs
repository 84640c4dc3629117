//! Tests of the distance between two results.

use ptx_gen::{Access, CpuArg, Kind, Param, ParamKind, f16};
use warpwright_kernels::compare;
use warpwright_kernels::harness::comparison::NEIGHBOUR;

fn error(access: Access, found: CpuArg, wanted: CpuArg) -> f64 {
    let kind = ParamKind::Buffer(found.elem().expect("a buffer"), access);
    compare(
        &[Param {
            name: "y",
            doc: "",
            kind,
        }],
        &[found],
        &[wanted],
    )
    .error
}

#[test]
fn floats_differ_relative_to_the_largest() {
    let nan = f32::NAN;
    let inf = f32::INFINITY;
    let cases: &[(&[f32], &[f32], f64)] = &[
        (&[1.0, 4.0], &[1.0, 4.0], 0.0),
        (&[1.0, 4.0], &[2.0, 4.0], 0.25),
        (&[1.0, -4.5], &[1.0, -4.0], 0.125),
        (&[1.0, nan], &[2.0, nan], 0.5),
        (&[inf, -inf], &[inf, -inf], 0.0),
        (&[1.0, nan], &[1.0, 2.0], f64::INFINITY),
        (&[1.0, 2.0], &[1.0, nan], f64::INFINITY),
        (&[inf], &[-inf], f64::INFINITY),
        (&[1e30], &[inf], f64::INFINITY),
        (&[0.0], &[-0.0], 0.0),
        (&[1.0], &[1.0, 2.0], f64::INFINITY),
    ];
    for &(found, wanted, apart) in cases {
        let error = error(
            Access::Write,
            CpuArg::F32(found.into()),
            CpuArg::F32(wanted.into()),
        );
        assert_eq!(error, apart, "{found:?} {wanted:?}");
    }
}

#[test]
fn halves_may_be_neighbours() {
    // 0x3c00 is 1, below which numbers are half as far apart. 1 and 2 are subnormal.
    let cases = [
        (0x3c00, 0x3c00, 0.0),
        (0x3c01, 0x3c00, NEIGHBOUR),
        (0x3bff, 0x3c00, NEIGHBOUR),
        (0x3c02, 0x3c00, 2.0 / 1024.0),
        (0x0001, 0x0002, NEIGHBOUR),
        (0x0000, 0x0002, 1.0),
        (0xbc00, 0x3c00, 2.0),
    ];
    for (found, wanted, apart) in cases {
        let error = error(
            Access::ReadWrite,
            CpuArg::F16(vec![f16(found)]),
            CpuArg::F16(vec![f16(wanted)]),
        );
        assert_eq!(error, apart, "{found:04x} {wanted:04x}");
    }
}

#[test]
fn block_floats_may_be_a_step_apart() {
    // Integers with offset 32768, eight with scale 1 and eight with scale 0.25: the decoded values
    // are compared.
    let args = |first: u16, second: u16| {
        [
            CpuArg::U16([[first; 8], [second; 8]].concat()),
            CpuArg::F32(vec![1.0, 0.25]),
        ]
    };
    let param = |name, kind| Param {
        name,
        doc: "",
        kind: ParamKind::Buffer(kind, Access::Write),
    };
    let params = [param("y", Kind::U16), param("y_scale", Kind::F32)];
    let cases = [
        (32868, 32772, 0.0),
        (32869, 32773, NEIGHBOUR),
        (32870, 32772, 0.01 + NEIGHBOUR),
    ];
    for (first, second, apart) in cases {
        let comparison = compare(&params, &args(first, second), &args(32868, 32772));
        assert_eq!(comparison.error, apart, "{first} {second}");
    }
}

#[test]
fn integers_are_equal_or_wrong_and_inputs_do_not_count() {
    let a = CpuArg::U32(vec![1, 2]);
    let b = CpuArg::U32(vec![1, 3]);
    assert_eq!(error(Access::Write, a.clone(), a.clone()), 0.0);
    assert_eq!(error(Access::Write, a.clone(), b.clone()), f64::INFINITY);
    assert_eq!(error(Access::Read, a.clone(), b.clone()), 0.0);
    let kind = ParamKind::Buffer(Kind::U32, Access::Write);
    let worst = compare(
        &[Param {
            name: "y",
            doc: "",
            kind,
        }],
        &[a],
        &[b],
    )
    .worst;
    assert_eq!(worst, Some(("y".to_string(), 1, 2.0, 3.0)));
}
