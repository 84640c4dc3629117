//! A bar chart as SVG: groups of horizontal bars, with the value at the end of each bar.
//!
//! The text is a function of the data alone, so that `cargo xtask codegen --check` can compare it.

/// A chart of grouped horizontal bars.
pub(crate) struct BarChart {
    /// The line above the chart. It names the unit.
    pub(crate) title: String,
    /// The names of the series, in the order of the bars of a group. At most as many as [`COLORS`].
    pub(crate) series: Vec<String>,
    /// The groups, from top to bottom.
    pub(crate) groups: Vec<BarGroup>,
}

/// The bars that belong to one label.
pub(crate) struct BarGroup {
    /// The label to the left of the bars.
    pub(crate) label: String,
    /// The value of each series, or `None` where a series has no value. Such a bar takes no space.
    pub(crate) values: Vec<Option<f64>>,
}

/// Okabe and Ito's blue, orange and gray: readers with a color vision deficiency can tell them
/// apart.
const COLORS: [&str; 3] = ["#0072b2", "#e69f00", "#999999"];

const WIDTH: u32 = 760;
const MARGIN: u32 = 16;
/// Horizontal space for the labels of groups.
const LABELS: u32 = 170;
/// Horizontal space for the value behind the longest bar.
const VALUES: u32 = 60;
const BAR: u32 = 14;
const GAP: u32 = 12;
/// Height of the title and the legend.
const HEAD: u32 = 64;

impl BarChart {
    /// Returns the SVG document.
    pub(crate) fn svg(&self) -> String {
        let values = self.groups.iter().flat_map(|group| &group.values);
        let largest = values.flatten().fold(1.0, |a: f64, b| a.max(*b));
        let scale = f64::from(WIDTH - 2 * MARGIN - LABELS - VALUES) / largest;

        let mut body = self.head();
        let mut y = HEAD;
        for group in &self.groups {
            let bars = group.values.iter().flatten().count() as u32;
            let middle = y + bars * BAR / 2;
            body += &text(MARGIN + LABELS - 8, middle, "end", &group.label);
            for (value, color) in group.values.iter().zip(COLORS) {
                let Some(value) = value else { continue };
                let length = (value * scale).round() as u32;
                let x = MARGIN + LABELS;
                body += &rectangle(x, y, length, BAR - 2, color);
                body += &text(x + length + 6, y + BAR / 2, "start", &thousands(*value));
                y += BAR;
            }

            y += GAP;
        }

        let height = y + MARGIN - GAP;

        // The background is drawn because GitHub shows the file on light and on dark pages.
        format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" width=\"{WIDTH}\" \
             height=\"{height}\" font-family=\"Helvetica, Arial, sans-serif\" font-size=\"12\">\n\
             <rect width=\"{WIDTH}\" height=\"{height}\" rx=\"6\" fill=\"#ffffff\"/>\n{body}</svg>\n"
        )
    }

    /// Returns the title and the legend.
    fn head(&self) -> String {
        let title = escaped(&self.title);
        let mut head = format!(
            "<text x=\"{MARGIN}\" y=\"24\" font-size=\"14\" font-weight=\"bold\" fill=\"#222222\">{title}</text>\n"
        );
        let mut x = MARGIN + LABELS;
        for (name, color) in self.series.iter().zip(COLORS) {
            head += &rectangle(x, 38, 12, 12, color);
            head += &text(x + 18, 44, "start", name);
            // The font is not known, so 7 units for each character is an upper bound.
            x += 40 + 7 * name.chars().count() as u32;
        }

        head
    }
}

fn rectangle(x: u32, y: u32, width: u32, height: u32, color: &str) -> String {
    format!("<rect x=\"{x}\" y=\"{y}\" width=\"{width}\" height=\"{height}\" fill=\"{color}\"/>\n")
}

/// A line of text whose vertical middle is `y`.
fn text(x: u32, y: u32, anchor: &str, content: &str) -> String {
    let y = y + 4;
    let content = escaped(content);
    format!(
        "<text x=\"{x}\" y=\"{y}\" text-anchor=\"{anchor}\" fill=\"#222222\">{content}</text>\n"
    )
}

/// Formats a value without decimals, with a comma between thousands.
fn thousands(value: f64) -> String {
    let digits = format!("{value:.0}");
    let mut out = String::new();
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_bar_fills_the_width_and_missing_bars_take_no_space() {
        let group = |label: &str, values: [Option<f64>; 2]| BarGroup {
            label: label.into(),
            values: values.into(),
        };
        let chart = BarChart {
            title: "a < b".into(),
            series: vec!["one".into(), "two".into()],
            groups: vec![
                group("first", [Some(1234.0), None]),
                group("second", [Some(617.0), Some(0.0)]),
            ],
        };
        let svg = chart.svg();
        assert!(
            svg.contains("width=\"498\" height=\"12\" fill=\"#0072b2\""),
            "{svg}"
        );
        assert!(svg.contains("width=\"249\" height=\"12\""), "{svg}");
        assert!(svg.contains(">1,234<") && svg.contains("a &lt; b"), "{svg}");
        assert!(svg.contains("viewBox=\"0 0 760 134\""), "{svg}");
    }
}
