//! `bench --plot`: tokens a second for each context, below what the read ceiling allows, as SVG.

use svg::Document;
use svg::node::element::{Group, Line, Rectangle};

use super::report::{Figures, Report};
use crate::plot::{page, text};

/// Pixels.
const HEIGHT: f64 = 240.0;
const BAR: f64 = 60.0;
const STEP: f64 = 110.0;
const TOP: f64 = 40.0;

pub(super) fn draw(report: &Report) -> Document {
    let limits = report.contexts.iter().map(|figures| figures.tokens_per_s_limit);
    let scale = HEIGHT / limits.fold(f64::MIN_POSITIVE, f64::max);
    let mut picture = Group::new().add(text(report.title(), [10.0, 18.0]));
    for (i, figures) in report.contexts.iter().enumerate() {
        picture = picture.add(bar(figures, 10.0 + STEP * i as f64, scale));
    }
    let width = (20.0 + STEP * report.contexts.len() as f64).max(560.0);
    page([width, TOP + HEIGHT + 40.0], picture)
}

/// A context's bar, and the line that the ceiling draws.
fn bar(figures: &Figures, x: f64, scale: f64) -> Group {
    let y = |rate: f64| TOP + HEIGHT - rate * scale;
    let (rate, limit) = (figures.tokens_per_s, figures.tokens_per_s_limit);
    let bar = Rectangle::new().set("x", x + 10.0).set("y", y(rate)).set("width", BAR);
    let line = Line::new().set("x1", x).set("x2", x + BAR + 20.0).set("y1", y(limit)).set("y2", y(limit));
    let text = |words: String, y: f64| text(words, [x + 10.0, y]);
    Group::new()
        .add(bar.set("height", rate * scale).set("fill", "#58d68d"))
        .add(line.set("stroke", "#c0392b").set("stroke-width", 2))
        .add(text(format!("limit {limit:.0}"), y(limit) - 4.0))
        .add(text(format!("{rate:.0}/s"), y(rate).min(TOP + HEIGHT - 6.0) + 14.0))
        .add(text(format!("ctx {}", figures.ctx), TOP + HEIGHT + 18.0))
}
