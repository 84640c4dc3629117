//! A token's kernels over time, as SVG: a row for each kernel, a panel for each layer.
//!
//! A bar goes from the first block's begin to the last block's end; its colours change when half of
//! the blocks have come so far. Where two bars of a panel are above each other, the kernels
//! overlap. A black line marks the end of the kernel before, from which the next one's gap counts.

use serde::Serialize;
use svg::Document;
use svg::node::element::{Group, Line, Rectangle, Text, Title};

/// Pixels.
const LABELS: f64 = 90.0;
const WIDTH: f64 = 1200.0;
const ROW: f64 = 12.0;
const TOP: f64 = 40.0;
const SPACE: f64 = 14.0;

/// The phases of a bar, in the order of their colors.
const COLOURS: [(&str, &str); 5] = [
    ("#d5d8dc", "brings its first weights"),
    ("#85c1e9", "waits for the kernel before"),
    ("#f5b041", "brings activations"),
    ("#58d68d", "multiplies"),
    ("#7d6fb3", "adds and stores"),
];

/// A kernel in the timeline of a token. Times are in microseconds.
#[derive(Serialize, Clone)]
pub(super) struct TimelineBar {
    pub(super) part: &'static str,
    pub(super) kernel: String,
    pub(super) bytes: u64,
    /// The start of the first block.
    pub(super) begun: f64,
    /// The end of the last block.
    pub(super) stored: f64,
    /// The time at which half of the blocks had their first weights.
    pub(super) landed: f64,
    /// The time at which half of the blocks had seen the end of the previous kernel.
    pub(super) waited: f64,
    /// The time at which half of the blocks had the activations.
    pub(super) ready: f64,
    /// The time at which half of the blocks had multiplied.
    pub(super) multiplied: f64,
}

/// Draws the whole timeline.
pub(super) fn draw(bars: &[TimelineBar]) -> Document {
    let panels = panels(bars);
    let span = |panel: &&[TimelineBar]| {
        panel.iter().map(|bar| bar.stored).fold(0.0, f64::max) - start(panel)
    };
    let scale = WIDTH / panels.iter().map(span).fold(1.0, f64::max);
    let mut picture = legend(scale);
    let mut y = TOP;
    let mut before = None;
    for (index, panel) in panels.iter().enumerate() {
        let mut group = Group::new();
        for (row, bar) in panel.iter().enumerate() {
            let place = TimelineRow {
                x: LABELS,
                y: y + ROW * row as f64,
                zero: start(panel),
                scale,
            };
            let name = if bar.part == "head" {
                bar.part.to_owned()
            } else {
                format!("{index} {}", bar.part)
            };
            group = draw_bar(group, bar, &name, before, &place);
            before = Some(bar.stored);
        }

        picture = picture.add(group);
        y += ROW * panel.len() as f64 + SPACE;
    }

    let width = LABELS + WIDTH + 10.0;
    let height = y;
    let back = Rectangle::new()
        .set("width", "100%")
        .set("height", "100%")
        .set("fill", "white");
    Document::new()
        .set("viewBox", (0, 0, width, height))
        .set("width", width)
        .set("height", height)
        .set("font-family", "sans-serif")
        .set("font-size", 9)
        .add(back)
        .add(picture)
}

/// Splits the kernels into layers and the head.
fn panels(bars: &[TimelineBar]) -> Vec<&[TimelineBar]> {
    bars.chunk_by(|_, next| !["qkv", "head"].contains(&next.part))
        .collect()
}

fn start(panel: &[TimelineBar]) -> f64 {
    panel
        .iter()
        .map(|bar| bar.begun)
        .fold(f64::INFINITY, f64::min)
}

/// The position of a row, and the scale from microseconds to pixels.
struct TimelineRow {
    x: f64,
    y: f64,
    zero: f64,
    scale: f64,
}

impl TimelineRow {
    fn x(&self, us: f64) -> f64 {
        self.x + (us - self.zero) * self.scale
    }
}

fn draw_bar(
    group: Group,
    bar: &TimelineBar,
    name: &str,
    before: Option<f64>,
    place: &TimelineRow,
) -> Group {
    let label = Text::new(name).set("x", 2).set("y", place.y + ROW - 3.0);
    let mut row = Group::new().add(Title::new(said(bar))).add(label);
    let ends = [
        bar.landed,
        bar.waited,
        bar.ready,
        bar.multiplied,
        bar.stored,
    ];
    let mut from = bar.begun;
    for ((colour, _), end) in COLOURS.iter().zip(ends) {
        // A time that was not taken leaves its colour out.
        let end = end.clamp(from, bar.stored.max(from));
        if end > from {
            row = row.add(
                Rectangle::new()
                    .set("x", round(place.x(from)))
                    .set("y", place.y + 1.0)
                    .set("width", round((end - from) * place.scale))
                    .set("height", ROW - 2.0)
                    .set("fill", *colour),
            );
            from = end;
        }
    }

    if let Some(x) = before.map(|end| place.x(end)).filter(|x| *x >= place.x) {
        row = row.add(line(x, place.y, place.y + ROW, "black"));
    }

    group.add(row)
}

fn line(x: f64, from: f64, to: f64, colour: &str) -> Line {
    let x = round(x);
    Line::new()
        .set("x1", x)
        .set("x2", x)
        .set("y1", from)
        .set("y2", to)
        .set("stroke", colour)
}

fn round(pixels: f64) -> f64 {
    (pixels * 100.0).round() / 100.0
}

fn said(bar: &TimelineBar) -> String {
    let TimelineBar {
        kernel,
        bytes,
        begun,
        stored,
        landed,
        waited,
        ready,
        multiplied,
        ..
    } = bar;
    format!(
        "{kernel}, {bytes} bytes: begun {begun:.2} us, weights {landed:.2}, waited {waited:.2}, activations \
         {ready:.2}, multiplied {multiplied:.2}, stored {stored:.2}"
    )
}

/// Draws the legend: the colors, and the length of ten microseconds.
fn legend(scale: f64) -> Group {
    let mut group = Group::new();
    for (i, (colour, name)) in COLOURS.iter().enumerate() {
        let x = LABELS + 190.0 * i as f64;
        let sample = Rectangle::new()
            .set("x", x)
            .set("y", 6)
            .set("width", 12)
            .set("height", 10);
        group = group
            .add(sample.set("fill", *colour))
            .add(Text::new(*name).set("x", x + 16.0).set("y", 15));
    }

    let end = LABELS + 10.0 * scale;
    let scale = Rectangle::new()
        .set("x", LABELS)
        .set("y", 28)
        .set("width", round(10.0 * scale))
        .set("height", 2);
    let said = Text::new("10 us; black line: end of the kernel before")
        .set("x", round(end + 6.0))
        .set("y", 32);
    group.add(scale).add(said)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bar(part: &'static str, begun: f64) -> TimelineBar {
        let [landed, waited, ready, multiplied, stored] =
            [1.0, 2.0, 3.0, f64::NAN, 5.0].map(|us| begun + us);
        TimelineBar {
            part,
            kernel: part.into(),
            bytes: 1,
            begun,
            stored,
            landed,
            waited,
            ready,
            multiplied,
        }
    }

    #[test]
    fn every_kernel_has_a_row_in_its_layers_panel() {
        let parts = ["qkv", "attention", "o", "qkv", "attention", "o", "head"];
        let bars: Vec<TimelineBar> = parts
            .iter()
            .zip(0..)
            .map(|(part, i)| bar(part, f64::from(4 * i)))
            .collect();
        assert_eq!(
            panels(&bars)
                .iter()
                .map(|panel| panel.len())
                .collect::<Vec<_>>(),
            [3, 3, 1]
        );
        let text = draw(&bars).to_string();
        assert!(!text.contains("NaN\""), "{text}");
        for label in ["0 qkv", "1 o", "head"] {
            assert!(text.contains(&format!(">\n{label}\n<")), "{text}");
        }
    }
}
