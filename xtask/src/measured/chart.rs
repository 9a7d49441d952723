//! A picture where a curve tells more than a table: what a congestion control keeps of a line that loses segments.

use super::Row;
use super::table::{newest, rate_text};
use anyhow::Result;
use std::fmt::Write;

const WIDTH: f64 = 860.0;
const HEIGHT: f64 = 340.0;
const LEFT: f64 = 84.0;
const RIGHT: f64 = 150.0;
const TOP: f64 = 44.0;
const BOTTOM: f64 = 54.0;
/// Told apart by most eyes, in print too.
const COLOURS: [&str; 6] = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9"];
const INK: &str = "#263238";
const PALE: &str = "#dde3e6";
const TITLE: &str = "What Farshore carries with 0.1 % loss";

/// An axis on which each decade is as wide as the next.
struct LogAxis {
    from: f64,
    to: f64,
    start: f64,
    end: f64,
}

impl LogAxis {
    fn at(&self, value: f64) -> f64 {
        let share = (value / self.from).log10() / (self.to / self.from).log10();
        self.start + share * (self.end - self.start)
    }
}

/// Rows of one line and one congestion control.
struct Curve {
    rate_mbit: f64,
    control: String,
    points: Vec<(f64, f64)>,
}

/// Mbit/s over the round trip, a colour for each line; congestion controls by their dashes.
///
/// # Errors
/// A row lacks a figure.
pub fn loss(rows: &[Row]) -> Result<String> {
    let curves = curves(rows)?;
    let across = LogAxis { from: 1.0, to: 200.0, start: LEFT, end: WIDTH - RIGHT };
    let upwards = LogAxis { from: 1.0, to: 1000.0, start: HEIGHT - BOTTOM, end: TOP };
    let mut text = String::new();
    writeln!(
        text,
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" width=\"{WIDTH}\" \
         height=\"{HEIGHT}\" role=\"img\" aria-label=\"{TITLE}\" \
         font-family=\"DejaVu Sans, Liberation Sans, Helvetica, Arial, sans-serif\" font-size=\"12\" fill=\"{INK}\">"
    )?;
    writeln!(text, "<rect width=\"{WIDTH}\" height=\"{HEIGHT}\" fill=\"#ffffff\"/>")?;
    writeln!(text, "<text x=\"{LEFT}\" y=\"24\" font-size=\"15\" font-weight=\"bold\">{TITLE}</text>")?;
    grid(&mut text, &across, &upwards)?;
    let mut rates: Vec<f64> = Vec::new();
    for curve in &curves {
        let known = rates.iter().position(|rate| *rate == curve.rate_mbit);
        let colour = COLOURS[known.unwrap_or(rates.len()) % COLOURS.len()];
        if known.is_none() {
            rates.push(curve.rate_mbit);
        }
        let dashes = if curve.control == "bbr" { "" } else { " stroke-dasharray=\"6 4\"" };
        let place = |&(ms, mbit): &(f64, f64)| format!("{:.1},{:.1}", across.at(ms), upwards.at(mbit));
        let points = curve.points.iter().map(place).collect::<Vec<String>>().join(" ");
        let stroke = format!("stroke=\"{colour}\" stroke-width=\"2\"{dashes}");
        writeln!(text, "<polyline points=\"{points}\" fill=\"none\" {stroke}/>")?;
        if let Some(&(ms, mbit)) = curve.points.last() {
            let (x, y) = (across.at(ms) + 8.0, label_height(curve, &curves, upwards.at(mbit)));
            let (control, rate) = (&curve.control, rate_text(curve.rate_mbit));
            writeln!(text, "<text x=\"{x:.1}\" y=\"{y:.1}\" fill=\"{colour}\">{control}, {rate}</text>")?;
        }
    }
    text.push_str("</svg>\n");
    Ok(text)
}

/// Curves that end near each other have their words below each other.
fn label_height(curve: &Curve, curves: &[Curve], height: f64) -> f64 {
    let has_dashes = curve.control != "bbr";
    let dashed: Vec<f64> = curves.iter().filter(|of| of.control != "bbr").map(|of| of.rate_mbit).collect();
    let place = dashed.iter().position(|rate| *rate == curve.rate_mbit).unwrap_or(0);
    // The dashed ones meet at a few Mbit/s, whatever the line's rate is: the fastest line ends highest.
    height + 4.0 + if has_dashes { 14.0 * (dashed.len() as f64 - 1.0 - place as f64) } else { 0.0 }
}

fn grid(text: &mut String, across: &LogAxis, upwards: &LogAxis) -> Result<()> {
    for mbit in [1.0, 10.0, 100.0, 1000.0] {
        let (y, end) = (upwards.at(mbit), across.end);
        writeln!(text, "<line x1=\"{LEFT}\" y1=\"{y:.1}\" x2=\"{end}\" y2=\"{y:.1}\" stroke=\"{PALE}\"/>")?;
        let (x, y, rate) = (LEFT - 8.0, y + 4.0, rate_text(mbit));
        writeln!(text, "<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"end\">{rate}</text>")?;
    }
    for ms in [1.0, 10.0, 50.0, 100.0, 200.0] {
        let (x, end, below) = (across.at(ms), upwards.start, upwards.start + 18.0);
        writeln!(text, "<line x1=\"{x:.1}\" y1=\"{TOP}\" x2=\"{x:.1}\" y2=\"{end}\" stroke=\"{PALE}\"/>")?;
        writeln!(text, "<text x=\"{x:.1}\" y=\"{below:.1}\" text-anchor=\"middle\">{ms} ms</text>")?;
    }
    let (x, y) = ((across.start + across.end) / 2.0, HEIGHT - 14.0);
    writeln!(text, "<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"middle\">round trip</text>")?;
    Ok(())
}

fn curves(rows: &[Row]) -> Result<Vec<Curve>> {
    let mut curves: Vec<Curve> = Vec::new();
    for row in newest(rows, &["line_mbit", "rtt_ms", "congestion"])? {
        let (rate_mbit, control) = (row.number("line_mbit")?, row.text("congestion")?);
        let point = (row.number("rtt_ms")?, row.number("farshore_mbit")?);
        match curves.iter_mut().find(|curve| curve.rate_mbit == rate_mbit && curve.control == control) {
            Some(curve) => curve.points.push(point),
            None => curves.push(Curve { rate_mbit, control: control.to_owned(), points: vec![point] }),
        }
    }
    Ok(curves)
}
