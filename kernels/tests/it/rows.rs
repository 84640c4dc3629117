//! Tests that sequences in one step are independent: a row gets the bits that it gets alone, for
//! every placement of its pages, and a NaN in one row reaches no other.

use crate::machine::once;
use ptx_gen::{CpuArg, f16};
use warpwright_kernels::Variant;
use warpwright_kernels::batch::{BatchAttention, ChooseTokens};
use warpwright_kernels::format::dequantize::ColumnOrder;
use warpwright_kernels::matmul::activations;
use warpwright_kernels::shared::state::{DONE, LEN, LIMIT, POSITION, SEQUENCE, TOKEN};

const ORDER: ColumnOrder = ColumnOrder { group: 16 };

/// The kernels: one set of queries, two sets, and a window.
fn kernels() -> [BatchAttention; 3] {
    let of = |head_dim, queries| BatchAttention::new(head_dim, queries, ORDER);
    [of(64, 4), of(128, 16), of(64, 7).with_window(70)]
}

/// The arguments by their names.
struct Launch<'a> {
    kernel: &'a dyn Variant,
    args: Vec<CpuArg>,
}

impl<'a> Launch<'a> {
    fn case(kernel: &'a dyn Variant, number: usize) -> Self {
        Launch {
            kernel,
            args: kernel.cases(3)[number].args.clone(),
        }
    }

    fn place(&self, name: &str) -> usize {
        self.kernel
            .params()
            .iter()
            .position(|p| p.name == name)
            .expect("an argument of that name")
    }

    fn arg(&mut self, name: &str) -> &mut CpuArg {
        let place = self.place(name);
        &mut self.args[place]
    }

    fn halves(&mut self, name: &str) -> &mut Vec<f16> {
        let CpuArg::F16(v) = self.arg(name) else {
            panic!("{name} is no f16")
        };
        v
    }

    fn words(&mut self, name: &str) -> &mut Vec<u32> {
        let CpuArg::U32(v) = self.arg(name) else {
            panic!("{name} is no u32")
        };
        v
    }

    fn number(&mut self, name: &str) -> usize {
        let CpuArg::Scalar(v) = self.arg(name) else {
            panic!("{name} is no number")
        };
        *v as usize
    }

    fn run(&mut self) {
        self.args = once(self.kernel, &self.args);
    }

    /// Returns the results of a row, in the order of the columns.
    fn row(&mut self, row: usize) -> Vec<f16> {
        let capacity = self.number("capacity");
        let len = self.halves("q").len();
        let slots = (0..len / capacity).map(|column| ORDER.slot(column as u32) as usize);
        let places: Vec<usize> = slots
            .map(|slot| activations::index(capacity, row, slot))
            .collect();
        let y = self.halves("y");
        places.into_iter().map(|place| y[place]).collect()
    }

    fn all_rows(&mut self) -> Vec<Vec<f16>> {
        (0..self.number("rows")).map(|row| self.row(row)).collect()
    }
}

#[test]
fn a_row_gets_the_bits_that_it_has_alone() {
    for kernel in kernels() {
        for case in [1, 2] {
            let mut all = Launch::case(&kernel, case);
            all.run();
            for (row, wanted) in all.all_rows().into_iter().enumerate() {
                let mut alone = Launch::case(&kernel, case);
                let q = alone.halves("q").len() / alone.number("capacity") * row;
                alone.halves("q").rotate_left(q);
                alone.words("state").rotate_left(row * LEN);
                *alone.arg("rows") = CpuArg::scalar(1);
                alone.run();
                assert_eq!(alone.row(0), wanted, "{kernel:?}, case {case}: row {row}");
            }
        }
    }
}

#[test]
fn results_do_not_depend_on_where_pages_are() {
    for kernel in kernels() {
        let mut there = Launch::case(&kernel, 1);
        there.run();
        let mut moved = Launch::case(&kernel, 1);
        let pages = moved.number("cache_pages");
        moved
            .words("pages")
            .iter_mut()
            .for_each(|page| *page = (*page + 3) % pages as u32);
        for cache in ["k_cache", "v_cache"] {
            let by = moved.halves(cache).len() / pages * 3;
            moved.halves(cache).rotate_right(by);
        }

        moved.run();
        assert_eq!(moved.all_rows(), there.all_rows(), "{kernel:?}");
    }
}

/// A NaN in the value of a key reaches the row that sees the key. A NaN in a query reaches its row
/// only.
#[test]
fn numbers_that_are_none_reach_the_results_of_their_row() {
    let kernel = BatchAttention::new(64, 4, ORDER);
    for (name, bad) in [
        ("q", f32::NAN),
        ("k_cache", f32::NAN),
        ("v_cache", f32::NAN),
        ("v_cache", f32::INFINITY),
    ] {
        let mut launch = Launch::case(&kernel, 2);
        let len = launch.halves(name).len();
        let place = match name {
            "q" => len / launch.number("capacity"),
            // The first position of the second row's sequence.
            _ => {
                let sequence = launch.words("state")[LEN + SEQUENCE as usize] as usize;
                let first = sequence * launch.number("max_pages");
                len / launch.number("cache_pages") * launch.words("pages")[first] as usize
            }
        };
        launch.halves(name)[place] = f16::from_f32(bad);
        launch.run();
        let finite = |row: Vec<f16>| row[0].to_f32().is_finite();
        let found: Vec<bool> = launch.all_rows().into_iter().map(finite).collect();
        let wanted: Vec<bool> = (0..found.len()).map(|row| row != 1).collect();
        assert_eq!(found, wanted, "{name} {bad}");
    }
}

#[test]
fn places_past_the_last_count_as_the_last() {
    let kernel = BatchAttention::new(64, 4, ORDER);
    let mut results = [0, 1].map(|past| {
        let mut launch = Launch::case(&kernel, 1);
        for cache in ["k_cache", "v_cache"] {
            let numbers = launch
                .halves(cache)
                .iter_mut()
                .filter(|x| x.to_f32().is_nan());
            numbers.for_each(|x| *x = f16::from_f32(0.5));
        }

        let [sequences, max_pages, pages] =
            ["sequences", "max_pages", "cache_pages"].map(|name| launch.number(name) as u32);
        launch.words("state")[SEQUENCE as usize] = sequences - 1 + past * 100;
        launch.words("state")[POSITION as usize] = max_pages * 64 - 1 + past;
        let first = ((sequences - 1) * max_pages) as usize;
        launch.words("pages")[first] = if past == 1 { u32::MAX } else { pages - 1 };
        launch.run();
        launch.all_rows()
    });
    let inside = std::mem::take(&mut results[0]);
    assert!(inside.iter().flatten().all(|y| y.to_f32().is_finite()));
    assert_eq!(inside, results[1]);
}

#[test]
fn splits_of_a_row_are_no_more_than_the_grid_has() {
    for kernel in kernels()
        .into_iter()
        .chain([BatchAttention::new(256, 1, ORDER)])
    {
        for (splits, units) in [1, 2, 3, 7, 33]
            .into_iter()
            .flat_map(|s| [1, 24, 1024].map(|u| (s, u)))
        {
            for n in (1..4000).step_by(13).chain([1 << 20, 1 << 24]) {
                let share = kernel.share(n, splits, units);
                assert!(
                    n.div_ceil(share) <= splits && share.is_multiple_of(16),
                    "{kernel:?} {n} {splits}"
                );
            }
        }
    }
}

/// Llama 3.1 8B on a device with 132 multiprocessors: rows, positions, splits.
#[test]
fn splits_fill_the_device_and_keep_blocks_short() {
    let kernel = BatchAttention::new(128, 4, ORDER);
    let cases = [
        (1, 512, 4),
        (1, 32768, 33),
        (8, 512, 1),
        (8, 8192, 4),
        (128, 512, 1),
        (128, 32768, 8),
    ];
    for (rows, positions, wanted) in cases {
        let splits = kernel.splits(kernel.units(rows, 8), positions, 132);
        assert_eq!(splits, wanted, "{rows} rows of {positions}");
    }
}

#[test]
fn a_sequence_is_stepped_to_its_limit_and_no_further() {
    let mut launch = Launch::case(&ChooseTokens, 1);
    let row = launch.words("rows")[0] as usize;
    let word =
        |launch: &mut Launch<'_>, word: u32| launch.words("state")[row * LEN + word as usize];
    assert_eq!([POSITION, LIMIT].map(|i| word(&mut launch, i)), [5, 8]);
    let mut out = vec![];
    for step in 1..6 {
        // Another token wins at each step.
        let CpuArg::F32(logits) = launch.arg("logits") else {
            panic!("logits are f32")
        };

        logits[10 + step] = 2.0 + step as f32;
        launch.run();
        let last = 10 + (step as u32).min(3);
        let wanted = [last, (5 + step as u32).min(8), u32::from(step >= 3)];
        assert_eq!(
            [TOKEN, POSITION, DONE].map(|i| word(&mut launch, i)),
            wanted,
            "step {step}"
        );
        let first = word(&mut launch, SEQUENCE) as usize * launch.number("max_tokens");
        out = launch.words("out")[first + 5..first + 9].to_vec();
    }

    assert_eq!(out, [11, 12, 13, 0]);
    assert!(launch.words("ticket").iter().all(|&ticket| ticket == 0));
}
