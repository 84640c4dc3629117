//! Pictures as SVG: the page that all of them are on, and curves against two axes.

use svg::Document;
use svg::node::element::{Circle, Group, Line, Polyline, Rectangle, Text};

/// A white page of so many pixels, with a picture on it.
pub(crate) fn page([width, height]: [f64; 2], picture: Group) -> Document {
    let back = Rectangle::new().set("width", "100%").set("height", "100%").set("fill", "white");
    Document::new()
        .set("viewBox", (0, 0, width, height))
        .set("font-family", "sans-serif")
        .set("font-size", 12)
        .add(back)
        .add(picture)
}

/// A text whose first letter is at a place.
pub(crate) fn text(text: impl Into<String>, [x, y]: [f64; 2]) -> Text {
    Text::new(text).set("x", x).set("y", y)
}

/// Points of a curve, in order, and how it is told from others.
pub(crate) struct Curve {
    pub(crate) name: &'static str,
    pub(crate) color: &'static str,
    /// Finite numbers, `x` and `y` of each point.
    pub(crate) points: Vec<[f64; 2]>,
}

/// Pixels of the field in which curves are, and of what is around it.
const FIELD: [f64; 2] = [640.0, 280.0];
const LEFT: f64 = 60.0;
const TOP: f64 = 40.0;
/// A curve of at most so many points has a dot for each.
const DOTS: usize = 40;

/// Curves over whole numbers, which the name `across` says.
pub(crate) fn curves(title: &str, across: &str, curves: &[Curve]) -> Document {
    let all = |i: usize| curves.iter().flat_map(move |curve| curve.points.iter().map(move |point| point[i]));
    let axes = [Axis::over(all(0), 1.0), Axis::over(all(1), 0.0)];
    let mut picture = Group::new().add(text(title, [LEFT, 18.0]));
    picture = axes[0].ticks().fold(picture, |picture, x| picture.add(upright(&axes[0], x)));
    picture = axes[1].ticks().fold(picture, |picture, y| picture.add(level(&axes[1], y)));
    picture = picture.add(text(across, [LEFT, TOP + FIELD[1] + 34.0]));
    for (i, curve) in curves.iter().filter(|curve| !curve.points.is_empty()).enumerate() {
        let name = text(curve.name, [LEFT + FIELD[0] - 120.0, 18.0 + 14.0 * i as f64]);
        picture = picture.add(name.set("fill", curve.color)).add(drawn(curve, &axes));
    }
    page([LEFT + FIELD[0] + 20.0, TOP + FIELD[1] + 45.0], picture)
}

fn drawn(curve: &Curve, [across, up]: &[Axis; 2]) -> Group {
    let place =
        |&[x, y]: &[f64; 2]| [LEFT + FIELD[0] * across.share(x), TOP + FIELD[1] * (1.0 - up.share(y))];
    let places: Vec<[f64; 2]> = curve.points.iter().map(place).collect();
    let words: Vec<String> = places.iter().map(|[x, y]| format!("{x:.1},{y:.1}")).collect();
    let line = Polyline::new().set("points", words.join(" ")).set("fill", "none");
    let line = line.set("stroke", curve.color).set("stroke-width", 1.5);
    let dots = places.iter().filter(|_| places.len() <= DOTS);
    let dot = |[x, y]: &[f64; 2]| {
        let circle = Circle::new().set("cx", format!("{x:.1}")).set("cy", format!("{y:.1}"));
        circle.set("r", 2.5).set("fill", curve.color)
    };
    dots.fold(Group::new().add(line), |group, place| group.add(dot(place)))
}

/// A line of the grid for a number of the axis across, and the number.
fn upright(axis: &Axis, number: f64) -> Group {
    let x = LEFT + FIELD[0] * axis.share(number);
    let line = grid([x, TOP], [x, TOP + FIELD[1]]);
    let label = text(axis.label(number), [x, TOP + FIELD[1] + 16.0]).set("text-anchor", "middle");
    Group::new().add(line).add(label)
}

/// The same for the axis up.
fn level(axis: &Axis, number: f64) -> Group {
    let y = TOP + FIELD[1] * (1.0 - axis.share(number));
    let line = grid([LEFT, y], [LEFT + FIELD[0], y]);
    let label = text(axis.label(number), [LEFT - 6.0, y + 4.0]).set("text-anchor", "end");
    Group::new().add(line).add(label)
}

fn grid([x1, y1]: [f64; 2], [x2, y2]: [f64; 2]) -> Line {
    let line = Line::new().set("x1", x1).set("y1", y1).set("x2", x2).set("y2", y2);
    line.set("stroke", "#dddddd")
}

/// An axis from a multiple of its step to another one.
#[derive(PartialEq, Debug)]
struct Axis {
    low: f64,
    step: f64,
    steps: u32,
}

impl Axis {
    /// One on which all numbers are, in steps of 1, 2 or 5 times a power of ten, and of no less than `least`.
    fn over(numbers: impl Iterator<Item = f64> + Clone, least: f64) -> Axis {
        let [min, max] = [f64::min, f64::max].map(|of| numbers.clone().reduce(of).unwrap_or(0.0));
        // A span that is not lost in the digits of the numbers.
        let span = (max - min).max(1e-6 * max.abs()).max(1e-6);
        let power = 10f64.powf((span / 5.0).log10().floor());
        let right = |factor: &f64| 6.0 * factor * power >= span;
        let step = [1.0, 2.0, 5.0].into_iter().find(right).unwrap_or(10.0) * power;
        let step = step.max(least);
        let first = (min / step).floor();
        Axis { low: first * step, step, steps: ((max / step).ceil() - first).max(1.0) as u32 }
    }

    /// Where a number is, from 0 to 1.
    fn share(&self, number: f64) -> f64 {
        (number - self.low) / (self.step * f64::from(self.steps))
    }

    fn ticks(&self) -> impl Iterator<Item = f64> {
        (0..=self.steps).map(|i| self.low + self.step * f64::from(i))
    }

    fn label(&self, number: f64) -> String {
        let digits = (-self.step.log10().floor()).max(0.0) as usize;
        if self.step >= 1e5 { format!("{number:.1e}") } else { format!("{number:.digits$}") }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_axis_has_round_numbers() {
        let cases: [(&[f64], f64, &[&str]); 6] = [
            (&[0.0, 18.0], 1.0, &["0", "5", "10", "15", "20"]),
            (&[1.0, 2.0], 1.0, &["1", "2"]),
            (&[0.83, 12.5], 0.0, &["0", "2", "4", "6", "8", "10", "12", "14"]),
            (&[2.113, 2.149], 0.0, &["2.11", "2.12", "2.13", "2.14", "2.15"]),
            (&[3.0], 1.0, &["3", "4"]),
            (&[], 1.0, &["0", "1"]),
        ];
        for (numbers, least, labels) in cases {
            let axis = Axis::over(numbers.iter().copied(), least);
            let found: Vec<String> = axis.ticks().map(|tick| axis.label(tick)).collect();
            assert_eq!(found, labels, "{numbers:?}");
            assert!(numbers.iter().all(|&number| (0.0..=1.0).contains(&axis.share(number))), "{axis:?}");
        }
    }

    #[test]
    fn an_axis_is_short_whatever_is_on_it() {
        for numbers in [[0.0, 0.0], [5.0, 5.0 + 1e-15], [0.0, 3e38], [1e-30, 2e-30], [2e9, 2e9 + 7.0]] {
            let axis = Axis::over(numbers.into_iter(), 0.0);
            assert!((1..=10).contains(&axis.steps), "{axis:?}");
            let shares = numbers.map(|number| axis.share(number));
            assert!(shares.iter().all(|share| (-1e-3..=1.001).contains(share)), "{axis:?}: {shares:?}");
        }
    }
}
