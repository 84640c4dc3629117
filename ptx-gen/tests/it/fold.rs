//! What a literal makes needless is not emitted: of integers only.

// The operations are those of the language, not of numbers.
#![allow(clippy::erasing_op, clippy::identity_op, clippy::modulo_one)]

use ptx_gen::*;

args! {
    /// The arguments of every kernel here.
    pub struct TestArgs {
        /// `[n]`
        x: InOut<u32>,
        /// `[n]`
        f: InOut<f32>,
        /// `[n]`
        bytes: In<u8>,
        /// Elements.
        n: u32,
    }
}

struct Try(for<'k> fn(Builder<'k>, TestArgs<Dev<'k>>));

impl KernelDef for Try {
    type Args<S: Side> = TestArgs<S>;
    fn name(&self) -> String {
        "try".into()
    }
    fn block(&self) -> u32 {
        32
    }
    fn grid(&self, _: &TestArgs<Shape>) -> Result<Grid, ShapeError> {
        Ok(Grid::line(1))
    }
    fn program<'k>(&self, k: Builder<'k>, a: TestArgs<Dev<'k>>) {
        (self.0)(k, a)
    }
    fn reference(&self, _: TestArgs<Cpu<'_>>) {}
}

/// The instructions after the parameters' seven.
fn body(program: for<'k> fn(Builder<'k>, TestArgs<Dev<'k>>)) -> Vec<String> {
    let program = Try(program).build().unwrap();
    let mut lines = vec![];
    program.each_inst(&mut |i| lines.push(inst(i)));
    lines.split_off(7)
}

/// `n` is `%r0`; a result is told by the store of it.
#[test]
fn the_other_operand_stays() {
    let cases: [for<'k> fn(Builder<'k>, TestArgs<Dev<'k>>); 14] = [
        |_, a| a.x.st(a.n + 0),
        |_, a| a.x.st(a.n - 0),
        |_, a| a.x.st(a.n * 1),
        |_, a| a.x.st(a.n / 1),
        |_, a| a.x.st(a.n | 0),
        |_, a| a.x.st(a.n ^ 0),
        |_, a| a.x.st(a.n & u32::MAX),
        |_, a| a.x.st(a.n << 0),
        |_, a| a.x.st(a.n >> 0),
        |_, a| a.x.st(a.n.mad(1, 0)),
        |_, a| a.x.st((a.n.bits::<i32>() + 0).bits::<u32>()),
        |_, a| a.x.st((a.n.bits::<i32>() & -1).bits::<u32>()),
        |_, a| a.x.row(0, a.n).st(a.n),
        |_, a| a.x.row(a.n, 0).st(a.n),
    ];
    for (n, program) in cases.into_iter().enumerate() {
        assert_eq!(body(program), ["st.global.u32 [%rd1], %r0;"], "case {n}");
    }
}

#[test]
fn zero_is_a_literal() {
    let cases: [for<'k> fn(Builder<'k>, TestArgs<Dev<'k>>); 4] = [
        |_, a| a.x.st(a.n * 0),
        |_, a| a.x.st(a.n & 0),
        |_, a| a.x.st(a.n % 1),
        |_, a| a.x.st(a.n.mad(0, 0)),
    ];
    for (n, program) in cases.into_iter().enumerate() {
        assert_eq!(
            body(program),
            ["mov.u32 %r1, 0;", "st.global.u32 [%rd1], %r1;"],
            "case {n}"
        );
    }
}

#[test]
fn sixty_four_bits_have_their_own_ones() {
    let wide = body(|k, a| {
        let clock = k.clock();
        let x = (clock & u64::MAX) + 0;
        a.x.st((x & u64::from(u32::MAX)).cvt::<u32>());
    });
    assert_eq!(
        wide,
        [
            "mov.u64 %rd6, %clock64;",
            "and.b64 %rd7, %rd6, 4294967295;",
            "cvt.u32.u64 %r1, %rd7;",
            "st.global.u32 [%rd1], %r1;",
        ]
    );
}

#[test]
fn variables_stay_as_they_are() {
    let kept = body(|k, a| {
        let mut v = k.var(a.n);
        v += 0;
        v *= 1;
        v ^= 0;
        let before = v.get() + 0;
        v *= 0;
        a.x.st(before);
        a.x.st(&v);
    });
    assert_eq!(
        kept,
        [
            "mov.u32 %r1, %r0;",
            "mov.u32 %r2, %r1;",
            "mov.u32 %r1, 0;",
            "st.global.u32 [%rd1], %r2;",
            "st.global.u32 [%rd1], %r1;",
        ]
    );
}

#[test]
fn a_product_by_one_is_a_sum() {
    let sums = body(|k, a| {
        let shared = k.shared::<u8>("s", 64);
        let x = shared.at(a.n).ld();
        a.x.st(a.n.mad(1, x));
        a.x.st(a.n.mad(x, 0));
        a.x.st(a.n.mad(0, x));
    });
    assert_eq!(
        sums,
        [
            "mov.u32 %r1, s;",
            "add.u32 %r2, %r1, %r0;",
            "ld.shared.u8 %r3, [%r2];",
            "add.u32 %r4, %r0, %r3;",
            "st.global.u32 [%rd1], %r4;",
            "mul.lo.u32 %r5, %r0, %r3;",
            "st.global.u32 [%rd1], %r5;",
            "mov.u32 %r6, %r3;",
            "st.global.u32 [%rd1], %r6;",
        ]
    );
}

/// `-0 + 0` is 0, `x * 0` is NaN for infinite `x`, and `x * 1` quiets a NaN.
#[test]
fn floats_are_computed() {
    let floats = body(|_, a| {
        let x = a.f.ld();
        a.f.st((x + 0.0) * 1.0 - 0.0);
        a.f.st(x * 0.0);
    });
    assert_eq!(
        floats,
        [
            "ld.global.f32 %f0, [%rd3];",
            "add.rn.f32 %f1, %f0, 0f00000000;",
            "mul.rn.f32 %f2, %f1, 0f3F800000;",
            "sub.rn.f32 %f3, %f2, 0f00000000;",
            "st.global.f32 [%rd3], %f3;",
            "mul.rn.f32 %f4, %f0, 0f00000000;",
            "st.global.f32 [%rd3], %f4;",
        ]
    );
}
