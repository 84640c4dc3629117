//! Copies and fills of two and three dimensions, against loops on the host.

use warpwright_driver::prelude::*;

use super::bench::{Bench, text};

/// Columns, rows and slices of the memory.
const SIZE: [usize; 3] = [7, 5, 4];

fn index([x, y, z]: [usize; 3]) -> usize {
    (z * SIZE[1] + y) * SIZE[0] + x
}

fn boxed(view: &View<u16>, origin: [usize; 3]) -> Boxed<'_, u16> {
    Boxed::rows(view, SIZE[0]).slices(SIZE[1]).at(origin)
}

/// Calls `each` for every element of a box.
fn walk([w, h, d]: [usize; 3], mut each: impl FnMut([usize; 3])) {
    (0..d).for_each(|z| (0..h).for_each(|y| (0..w).for_each(|x| each([x, y, z]))));
}

fn plus(a: [usize; 3], b: [usize; 3]) -> [usize; 3] {
    [a[0] + b[0], a[1] + b[1], a[2] + b[2]]
}

#[test]
fn boxes_are_copied_by_streams_and_graphs_alike() {
    let bench = Bench::new();
    let len = SIZE.iter().product();
    let numbers: Vec<u16> = (0..len as u16).collect();
    let source = Buffer::from_slice(&bench.context, &numbers).unwrap();
    for (from, to, extent) in [
        ([0, 0, 0], [0, 0, 0], [7, 5, 4]),
        ([1, 2, 0], [3, 0, 2], [4, 3, 1]),
        ([2, 1, 1], [0, 0, 0], [3, 2, 3]),
        ([6, 4, 3], [0, 0, 0], [1, 1, 1]),
        ([0, 0, 0], [1, 1, 1], [0, 2, 2]),
    ] {
        let mut wanted = vec![0u16; len];
        walk(extent, |at| {
            wanted[index(plus(to, at))] = numbers[index(plus(from, at))]
        });
        let (eager, recorded) = (
            Buffer::zeroed(&bench.context, len).unwrap(),
            Buffer::zeroed(&bench.context, len).unwrap(),
        );
        let copy =
            |target| Work::copy_box(boxed(&source, from), boxed(target, to), extent).unwrap();
        bench.stream.run(&copy(&eager)).unwrap();
        let mut graph = bench.graph();
        graph.add(&[], copy(&recorded)).unwrap();
        bench.run(&graph);
        assert_eq!(
            bench.stream.read(&eager).unwrap(),
            wanted,
            "{from:?} {to:?} {extent:?} in a stream"
        );
        assert_eq!(
            bench.stream.read(&recorded).unwrap(),
            wanted,
            "{from:?} {to:?} {extent:?} in a graph"
        );
    }
}

#[test]
fn boxes_are_filled_by_streams_and_graphs_alike() {
    let bench = Bench::new();
    let len = SIZE.iter().product();
    for (at, extent) in [
        ([0, 0, 0], [7, 5, 4]),
        ([2, 1, 1], [3, 2, 1]),
        ([1, 0, 1], [4, 5, 3]),
        ([3, 2, 0], [2, 1, 4]),
    ] {
        let mut wanted = vec![0u16; len];
        walk(extent, |place| wanted[index(plus(at, place))] = 9);
        let (eager, recorded) = (
            Buffer::zeroed(&bench.context, len).unwrap(),
            Buffer::zeroed(&bench.context, len).unwrap(),
        );
        let fill = |target| Work::fill_box(boxed(target, at), extent, 9).unwrap();
        bench.stream.run(&fill(&eager)).unwrap();
        let mut graph = bench.graph();
        graph.add(&[], fill(&recorded)).unwrap();
        bench.run(&graph);
        assert_eq!(
            bench.stream.read(&eager).unwrap(),
            wanted,
            "{at:?} {extent:?} in a stream"
        );
        assert_eq!(
            bench.stream.read(&recorded).unwrap(),
            wanted,
            "{at:?} {extent:?} in a graph"
        );
    }
}

#[test]
fn boxes_that_do_not_fit_or_overlap_are_refused() {
    let bench = Bench::new();
    let len = SIZE.iter().product();
    let view = Buffer::<u16>::zeroed(&bench.context, len)
        .unwrap()
        .labelled("box");
    let copy = |from, to, extent| Work::copy_box(boxed(&view, from), boxed(&view, to), extent);
    for (from, extent) in [
        ([4, 0, 0], [4, 1, 1]),
        ([0, 4, 0], [1, 2, 2]),
        ([0, 0, 3], [1, 1, 2]),
        ([usize::MAX, 0, 0], [1, 1, 1]),
    ] {
        let refused = text(copy(from, [0; 3], extent));
        let wanted = format!(
            "copy of a box: a box of {extent:?} at {from:?} in box, which has 140 elements in rows of 7 and slices of 5 rows"
        );
        assert_eq!(refused, wanted);
    }

    // Every pair of boxes of two sizes: they overlap where they share an element.
    for extent in [[3, 2, 2], [4, 4, 1]] {
        let places: Vec<[usize; 3]> = {
            let mut places = Vec::new();
            walk(
                [
                    SIZE[0] - extent[0] + 1,
                    SIZE[1] - extent[1] + 1,
                    SIZE[2] - extent[2] + 1,
                ],
                |at| places.push(at),
            );
            places
        };
        for from in &places {
            for to in &places {
                let shares = (0..3).all(|axis| from[axis].abs_diff(to[axis]) < extent[axis]);
                assert_eq!(
                    copy(*from, *to, extent).is_err(),
                    shares,
                    "{from:?} {to:?} {extent:?}"
                );
            }
        }
    }

    let parts = Work::fill_box(boxed(&view, [0, 0, 0]), [1, 2, 2], 1);
    assert_eq!(
        text(parts),
        "fill of a box: the box has 2 of 5 rows of each slice; fill it slice by slice"
    );
    let wide = Buffer::<u64>::zeroed(&bench.context, 4)
        .unwrap()
        .labelled("wide");
    let refused = text(Work::fill_box(Boxed::rows(&wide, 2), [1, 2, 1], 0));
    assert!(
        refused.ends_with("has 8-byte elements, which can be filled only as a contiguous range"),
        "{refused}"
    );
}

#[test]
fn rows_and_slices_longer_than_memory_are_refused() {
    let bench = Bench::new();
    let view = Buffer::<u16>::zeroed(&bench.context, 4)
        .unwrap()
        .labelled("box");
    let (all, most) = (Boxed::rows(&view, 2), usize::MAX);
    for (long, rows, slices) in [
        (Boxed::rows(&view, most), most, 0),
        (Boxed::rows(&view, 2).slices(most), 2, most),
        (Boxed::rows(&view, most / 2).slices(2), most / 2, 2),
    ] {
        let wanted = |extent: [usize; 3]| {
            format!(
                "a box of {extent:?} at [0, 0, 0] in box, which has 4 elements in rows of {rows} and slices of {slices} rows"
            )
        };
        for extent in [[1, 1, 1], [0, most, 0]] {
            let told = if extent[0] == 0 { [0; 3] } else { extent };
            assert_eq!(
                text(Work::fill_box(long, extent, 0)),
                format!("fill of a box: {}", wanted(told))
            );
            assert_eq!(
                text(Work::copy_box(all, long, extent)),
                format!("copy of a box: {}", wanted(told))
            );
        }
    }

    for nothing in [[0, most, most], [most, 0, most], [most, most, 0]] {
        bench
            .stream
            .run(&Work::fill_box(all, nothing, 1).unwrap())
            .unwrap();
        bench
            .stream
            .run(&Work::copy_box(all, all, nothing).unwrap())
            .unwrap();
    }

    assert_eq!(bench.stream.read(&view).unwrap(), [0; 4]);
}

#[test]
fn pinned_memory_is_an_end_of_a_box_too() {
    let bench = Bench::new();
    let matrix = Buffer::from_slice(&bench.context, &[1, 2, 3, 4, 5, 6]).unwrap();
    let pinned = Pinned::<i32>::zeroed(&bench.context, 4).unwrap();
    let from = Boxed::rows(&matrix, 3).at([1, 0, 0]);
    let mut graph = bench.graph();
    graph
        .add(
            &[],
            Work::copy_box(from, Boxed::rows(&pinned, 2), [2, 2, 1]).unwrap(),
        )
        .unwrap();
    bench.run(&graph);
    assert_eq!(pinned.to_vec(), [2, 3, 5, 6]);
}
