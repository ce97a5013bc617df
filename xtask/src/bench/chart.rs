//! Line charts as SVG.

use std::fmt::{self, Write};

use super::stats::Stats;

const WIDTH: f64 = 760.0;
const HEIGHT: f64 = 420.0;
/// Room for the axes: left, right, top, bottom.
const MARGIN: [f64; 4] = [64.0, 132.0, 44.0, 52.0];

/// A chart: lines over a few places on the horizontal axis, with a logarithmic vertical one.
#[derive(Debug)]
pub(super) struct Chart {
    pub(super) title: String,
    pub(super) x_title: String,
    pub(super) y_title: String,
    /// The places, evenly spaced, with their labels.
    pub(super) places: Vec<String>,
    /// The vertical axis ends at these, which are powers of ten.
    pub(super) y_range: (f64, f64),
    pub(super) lines: Vec<Line>,
}

/// A line of a chart.
#[derive(Debug)]
pub(super) struct Line {
    pub(super) name: String,
    /// A colour of SVG.
    pub(super) colour: &'static str,
    /// Reckoned and not measured: broken, without marks.
    pub(super) reckoned: bool,
    /// A value at each place; none where it was not measured.
    pub(super) values: Vec<Option<Stats>>,
}

impl Chart {
    /// The chart as an SVG document.
    pub(super) fn svg(&self) -> String {
        let mut text = String::new();
        // Writing to a string does not fail.
        self.write(&mut text).ok();
        text
    }

    fn write(&self, out: &mut String) -> fmt::Result {
        writeln!(
            out,
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" \
             width=\"{WIDTH}\" height=\"{HEIGHT}\" font-family=\"sans-serif\" font-size=\"12\">\n\
             <title>{title}</title>\n\
             <rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>\n\
             <text x=\"{x}\" y=\"24\" font-size=\"15\" fill=\"#222\">{title}</text>",
            title = escape(&self.title),
            x = MARGIN[0],
        )?;
        self.write_axes(out)?;
        for (number, line) in self.lines.iter().enumerate() {
            self.write_line(out, line)?;
            self.write_legend(out, line, number)?;
        }
        out.push_str("</svg>\n");
        Ok(())
    }

    fn write_axes(&self, out: &mut String) -> fmt::Result {
        let (left, right) = (MARGIN[0], WIDTH - MARGIN[1]);
        let (top, bottom) = (MARGIN[2], HEIGHT - MARGIN[3]);
        let mut decade = self.y_range.0;
        while decade <= self.y_range.1 * 1.001 {
            let y = self.y(decade);
            writeln!(
                out,
                "<path d=\"M{left} {y:.1}H{right}\" stroke=\"#bbb\"/>\
                 <text x=\"{x}\" y=\"{ty:.1}\" text-anchor=\"end\" fill=\"#444\">{decade}</text>",
                x = left - 8.0,
                ty = y + 4.0,
            )?;
            for step in [2.0, 5.0] {
                if decade * step < self.y_range.1 {
                    let y = self.y(decade * step);
                    writeln!(out, "<path d=\"M{left} {y:.1}H{right}\" stroke=\"#eee\"/>")?;
                }
            }
            decade *= 10.0;
        }
        for (number, label) in self.places.iter().enumerate() {
            let x = self.x(number);
            writeln!(
                out,
                "<path d=\"M{x:.1} {bottom}v5\" stroke=\"#888\"/>\
                 <text x=\"{x:.1}\" y=\"{y}\" text-anchor=\"middle\" fill=\"#444\">{label}</text>",
                y = bottom + 19.0,
                label = escape(label),
            )?;
        }
        writeln!(
            out,
            "<path d=\"M{left} {top}V{bottom}H{right}\" stroke=\"#888\" fill=\"none\"/>\n\
             <text x=\"{x}\" y=\"{y}\" text-anchor=\"middle\" fill=\"#222\">{x_title}</text>\n\
             <text transform=\"translate(16 {middle}) rotate(-90)\" text-anchor=\"middle\" \
             fill=\"#222\">{y_title}</text>",
            x = left.midpoint(right),
            y = HEIGHT - 10.0,
            middle = top.midpoint(bottom),
            x_title = escape(&self.x_title),
            y_title = escape(&self.y_title),
        )
    }

    fn write_line(&self, out: &mut String, line: &Line) -> fmt::Result {
        let points: Vec<(f64, Stats)> = line
            .values
            .iter()
            .enumerate()
            .filter_map(|(number, value)| Some((self.x(number), (*value)?)))
            .collect();
        let path: Vec<String> = points
            .iter()
            .map(|(x, value)| format!("{x:.1} {:.1}", self.y(value.median)))
            .collect();
        if path.is_empty() {
            return Ok(());
        }
        let colour = line.colour;
        let dash = if line.reckoned {
            " stroke-dasharray=\"6 4\""
        } else {
            ""
        };
        writeln!(
            out,
            "<path d=\"M{}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"2\"{dash}/>",
            path.join("L")
        )?;
        for (x, value) in points.iter().filter(|_| !line.reckoned) {
            writeln!(
                out,
                "<path d=\"M{x:.1} {:.1}V{:.1}\" stroke=\"{colour}\"/>\
                 <circle cx=\"{x:.1}\" cy=\"{:.1}\" r=\"3.5\" fill=\"{colour}\"/>",
                self.y(value.least),
                self.y(value.most),
                self.y(value.median),
            )?;
        }
        Ok(())
    }

    fn write_legend(&self, out: &mut String, line: &Line, number: usize) -> fmt::Result {
        let x = WIDTH - MARGIN[1] + 14.0;
        let y = MARGIN[2] + 12.0 + number as f64 * 20.0;
        writeln!(
            out,
            "<path d=\"M{x} {y}h18\" stroke=\"{colour}\" stroke-width=\"3\"/>\
             <text x=\"{tx}\" y=\"{ty}\" fill=\"#222\">{name}</text>",
            colour = line.colour,
            tx = x + 24.0,
            ty = y + 4.0,
            name = escape(&line.name),
        )
    }

    /// Where a place is.
    fn x(&self, number: usize) -> f64 {
        let room = WIDTH - MARGIN[0] - MARGIN[1] - 40.0;
        let steps = self.places.len().saturating_sub(1).max(1);
        MARGIN[0] + 20.0 + room * number as f64 / steps as f64
    }

    /// Where a value is, kept within the axis.
    fn y(&self, value: f64) -> f64 {
        let (low, high) = self.y_range;
        let share = (value.clamp(low, high) / low).ln() / (high / low).ln();
        let (top, bottom) = (MARGIN[2], HEIGHT - MARGIN[3]);
        bottom - share * (bottom - top)
    }
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chart() -> Chart {
        let value = |median| {
            Some(Stats {
                median,
                least: median,
                most: median,
            })
        };
        Chart {
            title: "a < b".to_owned(),
            x_title: "x".to_owned(),
            y_title: "y".to_owned(),
            places: vec!["1".to_owned(), "2".to_owned()],
            y_range: (1.0, 1000.0),
            lines: vec![Line {
                name: "n".to_owned(),
                colour: "#000",
                reckoned: false,
                values: vec![value(0.0), value(1e9)],
            }],
        }
    }

    #[test]
    fn values_outside_the_axis_stay_inside_the_chart() {
        let chart = chart();
        assert_eq!(chart.y(0.0), HEIGHT - MARGIN[3]);
        assert_eq!(chart.y(1e9), MARGIN[2]);
        assert!(chart.y(10.0) > chart.y(100.0));
    }

    #[test]
    fn the_document_is_closed_and_escaped() {
        let svg = chart().svg();
        assert!(svg.starts_with("<svg ") && svg.ends_with("</svg>\n"));
        assert!(svg.contains("a &lt; b") && !svg.contains("NaN") && !svg.contains("inf"));
        assert_eq!(svg.matches("<circle").count(), 2);
    }
}
