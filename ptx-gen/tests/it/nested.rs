//! Argument lists as fields of others: the same flat list on every side, the same PTX.

use ptx_gen::*;

args! {
    /// A matrix.
    pub struct MatrixArgs {
        /// `[rows, n]`
        w: In<f16>,
        /// Rows.
        rows: u32,
        /// Row length.
        n: u32,
    }
}
args! {
    /// A matrix, and where its product goes.
    pub struct ProductArgs {
        /// The matrix.
        matrix: MatrixArgs,
        /// `[rows]`
        y: InOut<f32>,
    }
}
args! {
    /// The arguments of [`Nested`].
    pub struct NestedArgs {
        /// `[n]`
        x: In<f32>,
        /// What all products have.
        product: ProductArgs,
        /// The factor.
        scale: f32,
        /// `[1]`
        done: Out<u32>,
    }
}
args! {
    /// The same, written out: the arguments of [`Flat`].
    pub struct FlatArgs {
        /// `[n]`
        x: In<f32>,
        /// `[rows, n]`
        w: In<f16>,
        /// Rows.
        rows: u32,
        /// Row length.
        n: u32,
        /// `[rows]`
        y: InOut<f32>,
        /// The factor.
        scale: f32,
        /// `[1]`
        done: Out<u32>,
    }
}

struct Nested;
struct Flat;

fn program<'k>(k: Builder<'k>, a: NestedArgs<Dev<'k>>) {
    let NestedArgs {
        x,
        product,
        scale,
        done,
    } = a;
    let row = k.tid();
    k.when(row.lt(product.matrix.rows), || {
        let mut sum = k.var(0.0);
        k.for_each(0, product.matrix.n, 1, |i| {
            let w: F32 = product
                .matrix
                .w
                .row(row, product.matrix.n * 2)
                .at(i)
                .ld()
                .cvt();
            sum.set(w.fma(x.at(i).ld(), &sum));
        });
        let y = product.y.at(row);
        y.st(scale.fma(sum.get(), y.ld()));
    });
    k.when(row.eq(0), || done.st(1));
}

fn reference(x: &[f32], matrix: MatrixArgs<Cpu<'_>>, y: &mut [f32], scale: f32) {
    let rows = matrix
        .w
        .chunks(matrix.n as usize)
        .take(matrix.rows as usize);
    for (y, row) in y.iter_mut().zip(rows) {
        *y += scale * row.iter().zip(x).map(|(w, x)| w.to_f32() * x).sum::<f32>();
    }
}

impl KernelDef for Nested {
    type Args<S: Side> = NestedArgs<S>;
    fn name(&self) -> String {
        "product".into()
    }
    fn block(&self) -> u32 {
        32
    }
    fn grid(&self, a: &NestedArgs<Shape>) -> Result<Grid, ShapeError> {
        // A group is handed on by value, as a number is.
        let MatrixArgs { w, rows, n } = a.product.matrix;
        self.require(w == rows as usize * n as usize, || {
            format!("w has {w} elements")
        })?;
        self.require(a.x == n as usize, || format!("x has {} elements", a.x))?;
        self.require(a.product.y == rows as usize, || {
            format!("y has {} elements", a.product.y)
        })?;
        Ok(Grid::line(a.product.matrix.rows))
    }
    fn program<'k>(&self, k: Builder<'k>, a: NestedArgs<Dev<'k>>) {
        program(k, a)
    }
    fn reference(&self, a: NestedArgs<Cpu<'_>>) {
        reference(a.x, a.product.matrix, a.product.y, a.scale);
        a.done[0] = 1;
    }
}

impl KernelDef for Flat {
    type Args<S: Side> = FlatArgs<S>;
    fn name(&self) -> String {
        "product".into()
    }
    fn block(&self) -> u32 {
        32
    }
    fn grid(&self, a: &FlatArgs<Shape>) -> Result<Grid, ShapeError> {
        Ok(Grid::line(a.rows))
    }
    fn program<'k>(&self, k: Builder<'k>, a: FlatArgs<Dev<'k>>) {
        let FlatArgs {
            x,
            w,
            rows,
            n,
            y,
            scale,
            done,
        } = a;
        let product = ProductArgs {
            matrix: MatrixArgs { w, rows, n },
            y,
        };
        program(
            k,
            NestedArgs {
                x,
                product,
                scale,
                done,
            },
        )
    }
    fn reference(&self, a: FlatArgs<Cpu<'_>>) {
        reference(
            a.x,
            MatrixArgs {
                w: a.w,
                rows: a.rows,
                n: a.n,
            },
            a.y,
            a.scale,
        );
        a.done[0] = 1;
    }
}

fn ptx(kernel: &dyn AnyKernel) -> String {
    print(&kernel.build().unwrap(), Target::named("sm_75").unwrap()).unwrap()
}

#[test]
fn a_group_is_its_fields_in_the_ptx() {
    assert_eq!(ptx(&Nested), ptx(&Flat));
}

#[test]
fn a_group_is_its_fields_in_the_parameters() {
    assert_eq!(AnyKernel::params(&Nested), AnyKernel::params(&Flat));
    let params = AnyKernel::params(&Nested);
    let names: Vec<&str> = params.iter().map(|p| p.name).collect();
    assert_eq!(names, ["x", "w", "rows", "n", "y", "scale", "done"]);
    assert_eq!(params[1].doc, "`[rows, n]`");
    assert_eq!(
        params[4].kind,
        ParamKind::Buffer(Kind::F32, Access::ReadWrite)
    );
}

#[test]
fn the_contract_sees_the_fields_of_a_group() {
    use ShapeArg::{Len, Scalar};
    let scale = Scalar(1.0f32.to_bits().into());
    let args = |w| [Len(3), Len(w), Scalar(2), Scalar(3), Len(2), scale, Len(1)];
    assert_eq!(Nested.geometry(&args(6)).unwrap().grid, [2, 1, 1]);
    let say = |args: &[ShapeArg]| Nested.geometry(args).unwrap_err().to_string();
    assert_eq!(say(&args(7)), "product: w has 7 elements");
    assert_eq!(say(&args(6)[..6]), "product: takes 7 arguments, not 6");
    let mut swapped = args(6);
    swapped.swap(1, 2);
    assert_eq!(say(&swapped), "product: argument w is a buffer of f16");
}

#[test]
fn the_reference_gets_the_fields_of_a_group() {
    let mut args = [
        CpuArg::F32(vec![1.0, 2.0, 3.0]),
        CpuArg::F16([1.0, 0.0, 1.0, 0.0, 2.0, 0.0].map(f16::from_f32).into()),
        CpuArg::scalar(2u32),
        CpuArg::scalar(3u32),
        CpuArg::F32(vec![0.5, 0.25]),
        CpuArg::scalar(2.0f32),
        CpuArg::U32(vec![0]),
    ];
    Nested.reference_on(&mut args).unwrap();
    assert_eq!(args[4], CpuArg::F32(vec![8.5, 8.25]));
    assert_eq!(args[6], CpuArg::U32(vec![1]));
}

/// Collects what a list shows: names, docs and values.
#[derive(Default)]
struct Shown(Vec<(&'static str, &'static str, u64)>);
impl Sink<Shape> for Shown {
    fn input<T: Elem>(&mut self, f: Field, v: &usize) {
        self.0.push((f.name, f.doc, *v as u64));
    }
    fn output<T: Elem>(&mut self, f: Field, v: &usize) {
        self.0.push((f.name, f.doc, *v as u64));
    }
    fn inout<T: Elem>(&mut self, f: Field, v: &usize) {
        self.0.push((f.name, f.doc, *v as u64));
    }
    fn input_map<T: Elem>(&mut self, f: Field, v: &usize) {
        self.0.push((f.name, f.doc, *v as u64));
    }
    fn output_map<T: Elem>(&mut self, f: Field, v: &usize) {
        self.0.push((f.name, f.doc, *v as u64));
    }
    fn scalar<T: Scalar>(&mut self, f: Field, v: &T) {
        self.0.push((f.name, f.doc, v.to_bits64()));
    }
}

#[test]
fn a_group_shows_its_fields() {
    let matrix = MatrixArgs {
        w: 6,
        rows: 2,
        n: 3,
    };
    let args = NestedArgs::<Shape> {
        x: 3,
        product: ProductArgs { matrix, y: 2 },
        scale: 0.0,
        done: 1,
    };
    let mut shown = Shown::default();
    args.each(&mut shown);
    let wanted = [
        ("x", "`[n]`", 3),
        ("w", "`[rows, n]`", 6),
        ("rows", "Rows.", 2),
        ("n", "Row length.", 3),
        ("y", "`[rows]`", 2),
        ("scale", "The factor.", 0),
        ("done", "`[1]`", 1),
    ];
    assert_eq!(shown.0, wanted);
}

args! {
    /// A list that has `n` twice.
    pub struct TwiceArgs {
        /// Columns.
        n: u32,
        /// The matrix.
        matrix: MatrixArgs,
    }
}

struct Twice;

impl KernelDef for Twice {
    type Args<S: Side> = TwiceArgs<S>;
    fn name(&self) -> String {
        "twice".into()
    }
    fn block(&self) -> u32 {
        32
    }
    fn grid(&self, _: &TwiceArgs<Shape>) -> Result<Grid, ShapeError> {
        Ok(Grid::line(1))
    }
    fn program<'k>(&self, k: Builder<'k>, _: TwiceArgs<Dev<'k>>) {
        // Parameters and arrays are symbols of one scope.
        let _ = (k.shared::<f32>("w", 4), k.shared::<f32>("free", 4));
    }
    fn reference(&self, _: TwiceArgs<Cpu<'_>>) {}
}

#[test]
fn a_name_twice_is_refused() {
    let wanted = "two parameters or shared arrays are named `n`; rename one of them\n\
                  two parameters or shared arrays are named `w`; rename one of them";
    assert_eq!(Twice.build().unwrap_err().to_string(), wanted);
}
