//! Plots of curves with two axes, as SVG.

use std::ops::Range;

use plotters::prelude::{
    BLACK, ChartBuilder, Color, DrawingAreaErrorKind, DrawingBackend, IntoDrawingArea, LineSeries,
    PathElement, RGBColor, SVGBackend, SeriesLabelPosition, TRANSPARENT, WHITE,
};

/// A curve of a plot.
pub(crate) struct Curve {
    /// The name in the legend.
    pub(crate) name: &'static str,
    pub(crate) color: RGBColor,
    /// The points in order, as finite `(x, y)` pairs.
    pub(crate) points: Vec<(f64, f64)>,
}

/// The color of the first curve of a plot.
pub(crate) const BLUE: RGBColor = RGBColor(0x2e, 0x86, 0xc1);
/// The color of the second curve of a plot.
pub(crate) const RED: RGBColor = RGBColor(0xc0, 0x39, 0x2b);
/// Width and height of a plot in pixels.
const SIZE: (u32, u32) = (720, 380);
/// The space for the labels of each axis, in pixels.
const LABELS: u32 = 50;
/// The largest number of points for which a curve gets dots.
const DOTS: usize = 40;

/// Draws curves over whole numbers as SVG. `across` and `up` are the names of the axes.
///
/// # Errors
/// Returns the problem as a text if the curves cannot be drawn.
pub(crate) fn curves(across: &str, up: &str, curves: &[Curve]) -> Result<String, String> {
    let mut text = String::new();
    draw(
        SVGBackend::with_string(&mut text, SIZE),
        [across, up],
        curves,
    )
    .map_err(|e| e.to_string())?;
    Ok(text)
}

fn draw<B: DrawingBackend>(
    page: B,
    [across, up]: [&str; 2],
    curves: &[Curve],
) -> Result<(), DrawingAreaErrorKind<B::ErrorType>> {
    let page = page.into_drawing_area();
    page.fill(&WHITE)?;
    let points = || curves.iter().flat_map(|curve| &curve.points);
    let x = span(points().map(|point| point.0));
    let y = span(points().map(|point| point.1));
    let mut chart = ChartBuilder::on(&page)
        .margin(15)
        .x_label_area_size(LABELS)
        .y_label_area_size(LABELS)
        .build_cartesian_2d(x, y)?;

    // Steps are whole numbers, so ticks between them have no label.
    let whole = |x: &f64| {
        if x.fract() == 0.0 {
            x.to_string()
        } else {
            String::new()
        }
    };
    let mut mesh = chart.configure_mesh();
    mesh.light_line_style(TRANSPARENT)
        .x_label_formatter(&whole)
        .x_desc(across)
        .y_desc(up)
        .draw()?;
    for curve in curves.iter().filter(|curve| !curve.points.is_empty()) {
        let dots = if curve.points.len() <= DOTS { 3 } else { 0 };
        let line =
            LineSeries::new(curve.points.iter().copied(), curve.color.filled()).point_size(dots);
        let sample = |(x, y)| PathElement::new([(x, y), (x + 15, y)], curve.color);
        chart.draw_series(line)?.label(curve.name).legend(sample);
    }

    let mut names = chart.configure_series_labels();
    names
        .position(SeriesLabelPosition::UpperRight)
        .border_style(BLACK)
        .background_style(WHITE)
        .draw()?;
    page.present()
}

/// Returns the range of the numbers.
fn span(numbers: impl Iterator<Item = f64> + Clone) -> Range<f64> {
    let low = numbers.clone().reduce(f64::min).unwrap_or(0.0);
    let high = numbers.reduce(f64::max).unwrap_or(0.0);
    // plotters cannot draw an empty range, so one that holds a single number is widened.
    let least = (low.abs() * 1e-6).max(1e-6);
    low..high.max(low + least)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn curves_are_drawn_whatever_is_on_them() {
        for points in [
            &[][..],
            &[(0.0, 0.0)],
            &[(5.0, 3.0), (6.0, 3.0 + 1e-15)],
            &[(0.0, 0.0), (1.0, 3e38)],
            &[(2e9, 1e-30), (2e9 + 7.0, 2e-30)],
        ] {
            let curve = Curve {
                name: "a curve",
                color: RED,
                points: points.to_vec(),
            };
            let picture = curves("steps", "nats", &[curve]).unwrap();
            assert_eq!(
                picture.contains("a curve"),
                !points.is_empty(),
                "{points:?}: {picture}"
            );
            assert!(
                !picture.contains("NaN") && picture.ends_with("</svg>\n"),
                "{points:?}: {picture}"
            );
        }
    }
}
