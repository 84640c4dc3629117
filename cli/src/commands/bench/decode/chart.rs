//! `bench decode --plot`: a bar chart of the tokens per second for each context, as SVG.
//!
//! A line above each bar shows the rate that the measured read ceiling allows.

use plotters::prelude::{
    BLACK, ChartBuilder, Color, DrawingAreaErrorKind, DrawingBackend, IntoDrawingArea, IntoFont,
    PathElement, RGBColor, Rectangle, SVGBackend, SeriesLabelPosition, WHITE,
};

use super::report::{ContextFigures, DecodeReport};

const GREEN: RGBColor = RGBColor(0x58, 0xd6, 0x8d);
const RED: RGBColor = RGBColor(0xc0, 0x39, 0x2b);
/// Pixels of the chart without its bars, and of each bar.
const MARGINS: u32 = 160;
const BAR: u32 = 110;
const HEIGHT: u32 = 380;
/// The least width in pixels, so that the title fits.
const LEAST_WIDTH: u32 = 720;
/// The share of its place that a bar fills.
const FILLED: f64 = 0.6;

pub(super) fn draw(report: &DecodeReport) -> String {
    let mut text = String::new();
    let width = (MARGINS + BAR * report.contexts.len() as u32).max(LEAST_WIDTH);
    let drawn = draw_on(
        SVGBackend::with_string(&mut text, (width, HEIGHT)),
        &report.title(),
        &report.contexts,
    );
    drawn.expect("a string takes every byte");
    text
}

fn draw_on<B: DrawingBackend>(
    page: B,
    title: &str,
    contexts: &[ContextFigures],
) -> Result<(), DrawingAreaErrorKind<B::ErrorType>> {
    let page = page.into_drawing_area();
    page.fill(&WHITE)?;
    let highest = contexts
        .iter()
        .map(|figures| figures.tokens_per_s_limit.max(figures.tokens_per_s));

    // Some room above the highest line for its label.
    let top = 1.2 * highest.fold(f64::MIN_POSITIVE, f64::max);
    let mut chart = ChartBuilder::on(&page)
        .caption(title, ("sans-serif", 15))
        .margin(15)
        .x_label_area_size(45)
        .y_label_area_size(65)
        .build_cartesian_2d(0.0..contexts.len() as f64, 0.0..top)?;

    // The labels of the bars are drawn below, since a bar is in the middle of its place and not at
    // a number.
    chart
        .configure_mesh()
        .disable_x_mesh()
        .x_labels(0)
        .x_desc("positions in the context")
        .y_desc("tokens per second")
        .draw()?;
    let places = || {
        contexts
            .iter()
            .enumerate()
            .map(|(i, figures)| (i as f64 + 0.5, figures))
    };
    let bars = places().map(|(x, figures)| {
        let corners = [
            (x - FILLED / 2.0, 0.0),
            (x + FILLED / 2.0, figures.tokens_per_s),
        ];
        Rectangle::new(corners, GREEN.filled())
    });
    let sample = |(x, y)| Rectangle::new([(x, y - 5), (x + 15, y + 5)], GREEN.filled());
    chart.draw_series(bars)?.label("measured").legend(sample);
    let limits = places().map(|(x, figures)| {
        let y = figures.tokens_per_s_limit;
        PathElement::new([(x - 0.4, y), (x + 0.4, y)], RED.stroke_width(2))
    });
    let sample = |(x, y)| PathElement::new([(x, y), (x + 15, y)], RED.stroke_width(2));
    chart
        .draw_series(limits)?
        .label("allowed by the read ceiling")
        .legend(sample);
    for (x, figures) in places() {
        let label = |text: String, (x, y): (f64, f64), [right, down]: [i32; 2]| {
            let (x, y) = chart.backend_coord(&(x, y));
            page.draw_text(
                &text,
                &("sans-serif", 12).into_font().into(),
                (x + right, y + down),
            )
        };
        label(
            format!("{:.0}", figures.tokens_per_s),
            (x, figures.tokens_per_s),
            [-12, 4],
        )?;
        label(
            format!("{:.0}", figures.tokens_per_s_limit),
            (x, figures.tokens_per_s_limit),
            [-12, -16],
        )?;
        label(figures.ctx.to_string(), (x, 0.0), [-12, 6])?;
    }

    let mut names = chart.configure_series_labels();
    names
        .position(SeriesLabelPosition::UpperRight)
        .border_style(BLACK)
        .background_style(WHITE)
        .draw()?;
    page.present()
}
