//! Curves as SVG: text that every browser shows, that scales, and that needs no font of this machine.

use std::fmt::Write as _;

use units::quantities::{Bytes, Rate, Seconds, show_bytes, show_rate, show_share, show_time};

const WIDTH: f64 = 860.0;
const HEIGHT: f64 = 340.0;
const LEFT: f64 = 84.0;
const RIGHT: f64 = 20.0;
const TOP: f64 = 44.0;
const BOTTOM: f64 = 74.0;
/// Told apart by most eyes, in print too.
pub const COLOURS: [&str; 6] = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9"];
const INK: &str = "#263238";
const PALE: &str = "#dde3e6";
/// The shortest time on a logarithmic axis; shorter ones stand at its left end.
const LOG_MIN_S: f64 = 1e-6;
/// The same for a logarithmic height.
const LOG_Y_MIN_S: f64 = 1e-3;
/// Labels that stand beside each other on an axis of doublings.
const DOUBLINGS_MAX: usize = 9;
/// Points of a curve that a picture of this width can show.
const POINTS_MAX: usize = 900;

/// What an axis measures; it decides ticks and their words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scale {
    Time,
    /// Seconds, each decade as wide as the next.
    LogTime,
    Bytes,
    /// Each doubling as wide as the next, from the smallest value on.
    DoublingBytes,
    Rate,
    Share,
}

#[derive(Clone, Debug)]
pub struct PlotLine {
    pub name: String,
    pub colour: &'static str,
    pub points: Vec<(f64, f64)>,
    pub filled: bool,
    pub dashed: bool,
    /// Each point is seen: between them nothing was measured.
    pub dotted: bool,
}

impl PlotLine {
    pub fn new(name: impl Into<String>, colour: &'static str, points: Vec<(f64, f64)>) -> Self {
        Self { name: name.into(), colour, points, filled: false, dashed: false, dotted: false }
    }
    #[must_use]
    pub fn filled(self) -> Self {
        Self { filled: true, ..self }
    }
    #[must_use]
    pub fn dashed(self) -> Self {
        Self { dashed: true, ..self }
    }
    #[must_use]
    pub fn dotted(self) -> Self {
        Self { dotted: true, ..self }
    }
}

/// One picture.
#[derive(Clone, Debug)]
pub struct Chart {
    /// Also the name of its file.
    pub id: &'static str,
    pub title: String,
    pub x: (Scale, &'static str),
    pub y: (Scale, &'static str),
    pub lines: Vec<PlotLine>,
    /// Level lines across the picture.
    pub limits: Vec<(String, f64)>,
}

impl Scale {
    fn word(self, value: f64) -> String {
        match self {
            Self::Time | Self::LogTime => show_time(Seconds(value)),
            Self::Bytes | Self::DoublingBytes => show_bytes(Bytes(value.round() as u64)),
            Self::Rate => show_rate(Rate::from_bytes_per_s(value.max(0.0))),
            Self::Share => show_share(value),
        }
    }

    /// Ticks from zero, about five of them, at values people say.
    fn ticks(self, max: f64) -> Vec<f64> {
        let step = match self {
            Self::Time => time_step(max / 5.0),
            Self::Bytes | Self::DoublingBytes => {
                let unit = 1024f64.powf((max.max(1.0).ln() / 1024f64.ln()).floor());
                round_step(max / unit / 5.0) * unit
            }
            Self::Share => 0.2,
            Self::Rate | Self::LogTime => round_step(max / 5.0),
        };
        (0..=(max / step + 1e-9).floor() as usize).map(|n| n as f64 * step).collect()
    }
}

/// 1, 2 or 5 times a power of ten, at least this.
fn round_step(least: f64) -> f64 {
    let power = 10f64.powf(least.max(1e-12).log10().floor());
    [1.0, 2.0, 5.0, 10.0]
        .into_iter()
        .map(|digit| digit * power)
        .find(|step| *step >= least * 0.999)
        .unwrap_or(10.0 * power)
}

fn time_step(least: f64) -> f64 {
    const STEPS: [f64; 14] = [
        60.0, 120.0, 300.0, 600.0, 900.0, 1800.0, 3600.0, 7200.0, 10_800.0, 21_600.0, 43_200.0, 86_400.0, 172_800.0,
        604_800.0,
    ];
    if least <= 30.0 {
        return round_step(least);
    }
    STEPS.into_iter().find(|step| *step >= least).unwrap_or_else(|| round_step(least / 86_400.0) * 86_400.0)
}

fn decades(min: f64, max: f64) -> Vec<f64> {
    (min.log10().round() as i32..=max.log10().round() as i32).map(|decade| 10f64.powi(decade)).collect()
}

/// From the least on, every second or third of them where there are many.
fn doublings(min: f64, max: f64) -> Vec<f64> {
    let all = (max / min).log2().floor() as usize;
    let stride = (all + 1).div_ceil(DOUBLINGS_MAX);
    (0..=all).step_by(stride).map(|doubling| min * 2f64.powi(doubling as i32)).collect()
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

/// Where values stand on the page.
struct PlotFrame {
    x_max: f64,
    y_max: f64,
    /// Lowest value of a logarithmic width.
    x_log_min: Option<f64>,
    /// Lowest value of a logarithmic height.
    y_log_min: Option<f64>,
}

impl PlotFrame {
    fn of(chart: &Chart) -> Self {
        let points = || chart.lines.iter().flat_map(|line| line.points.iter());
        let x_most = points().map(|point| point.0).fold(0.0, f64::max);
        let (x_log_min, x_max) = match chart.x.0 {
            Scale::LogTime => (Some(LOG_MIN_S), 10f64.powf(x_most.max(1e-3).log10().ceil())),
            Scale::DoublingBytes => {
                let least = points().map(|point| point.0).fold(f64::INFINITY, f64::min).min(x_most).max(1.0);
                (Some(least), x_most.max(2.0 * least))
            }
            _ => (None, x_most.max(1e-9)),
        };
        let y_max = points().map(|point| point.1).fold(0.0, f64::max);
        // A limit far above all curves would flatten them.
        let limit = chart
            .limits
            .iter()
            .map(|limit| limit.1)
            .filter(|limit| *limit <= y_max * 3.0 || y_max == 0.0)
            .fold(0.0, f64::max);
        let y_max = match chart.y.0 {
            Scale::Share => 1.0,
            Scale::LogTime => 10f64.powf(y_max.max(limit).max(LOG_Y_MIN_S * 10.0).log10().ceil()),
            _ => y_max.max(limit).max(1e-9) * 1.06,
        };
        let y_log_min = (chart.y.0 == Scale::LogTime).then_some(LOG_Y_MIN_S);
        Self { x_max, y_max, x_log_min, y_log_min }
    }

    fn x(&self, value: f64) -> f64 {
        let share = match self.x_log_min {
            Some(min) => (value.max(min) / min).log10() / (self.x_max / min).log10(),
            None => value / self.x_max,
        };
        LEFT + share.clamp(0.0, 1.0) * (WIDTH - LEFT - RIGHT)
    }

    fn y(&self, value: f64) -> f64 {
        let share = match self.y_log_min {
            Some(min) => (value.max(min) / min).log10() / (self.y_max / min).log10(),
            None => value / self.y_max,
        };
        HEIGHT - BOTTOM - share.clamp(0.0, 1.0) * (HEIGHT - BOTTOM - TOP)
    }

    fn x_ticks(&self, scale: Scale) -> Vec<f64> {
        match (self.x_log_min, scale) {
            (Some(min), Scale::DoublingBytes) => doublings(min, self.x_max),
            (Some(min), _) => decades(min, self.x_max),
            (None, _) => scale.ticks(self.x_max),
        }
    }

    fn y_ticks(&self, scale: Scale) -> Vec<f64> {
        self.y_log_min.map_or_else(|| scale.ticks(self.y_max), |min| decades(min, self.y_max))
    }
}

/// The picture as a whole SVG document.
pub fn svg(chart: &Chart) -> String {
    let frame = PlotFrame::of(chart);
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" width=\"{WIDTH}\" height=\"{HEIGHT}\" role=\"img\" \
         aria-label=\"{title}\" font-family=\"DejaVu Sans, Liberation Sans, Helvetica, Arial, sans-serif\" font-size=\"12\" fill=\"{INK}\">\n\
         <rect width=\"{WIDTH}\" height=\"{HEIGHT}\" fill=\"#ffffff\"/>\n\
         <text x=\"{LEFT}\" y=\"24\" font-size=\"15\" font-weight=\"bold\">{title}</text>\n",
        title = escaped(&chart.title)
    );
    draw_grid(&mut out, chart, &frame);
    for line in &chart.lines {
        draw_line(&mut out, line, &frame);
    }
    for (name, value) in &chart.limits {
        draw_limit(&mut out, name, *value, &frame);
    }
    draw_legend(&mut out, chart);
    out + "</svg>\n"
}

/// Writing into a `String` cannot fail.
macro_rules! put {
    ($out:expr, $($part:tt)*) => { writeln!($out, $($part)*).expect("a string takes everything") };
}

fn draw_grid(out: &mut String, chart: &Chart, frame: &PlotFrame) {
    let (right, bottom) = (WIDTH - RIGHT, HEIGHT - BOTTOM);
    for tick in frame.y_ticks(chart.y.0) {
        let y = frame.y(tick);
        put!(out, "<line x1=\"{LEFT}\" y1=\"{y:.1}\" x2=\"{right}\" y2=\"{y:.1}\" stroke=\"{PALE}\"/>");
        put!(
            out,
            "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>",
            LEFT - 8.0,
            y + 4.0,
            escaped(&chart.y.0.word(tick))
        );
    }
    for tick in frame.x_ticks(chart.x.0) {
        let x = frame.x(tick);
        put!(out, "<line x1=\"{x:.1}\" y1=\"{TOP}\" x2=\"{x:.1}\" y2=\"{bottom}\" stroke=\"{PALE}\"/>");
        // Half of a word beyond the right end would be off the page.
        let anchor = if x > right - RIGHT { "end" } else { "middle" };
        put!(
            out,
            "<text x=\"{x:.1}\" y=\"{:.1}\" text-anchor=\"{anchor}\">{}</text>",
            bottom + 18.0,
            escaped(&chart.x.0.word(tick))
        );
    }
    put!(out, "<line x1=\"{LEFT}\" y1=\"{bottom}\" x2=\"{right}\" y2=\"{bottom}\" stroke=\"{INK}\"/>");
    put!(
        out,
        "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\" fill=\"#546e7a\">{}</text>",
        (LEFT + right) / 2.0,
        bottom + 36.0,
        escaped(chart.x.1)
    );
    put!(out, "<text x=\"{LEFT}\" y=\"{:.1}\" fill=\"#546e7a\">{}</text>", TOP - 6.0, escaped(chart.y.1));
}

/// The largest of neighbours stays: a peak must not vanish because the page is narrow. So do both ends.
fn thinned(points: &[(f64, f64)]) -> Vec<(f64, f64)> {
    let [first, inner @ .., last] = points else {
        return points.to_vec();
    };
    let group = inner.len().div_ceil(POINTS_MAX).max(1);
    let largest = |group: &[(f64, f64)]| group.iter().copied().reduce(|a, b| if b.1 > a.1 { b } else { a });
    std::iter::once(*first).chain(inner.chunks(group).filter_map(largest)).chain([*last]).collect()
}

fn draw_line(out: &mut String, line: &PlotLine, frame: &PlotFrame) {
    let points = thinned(&line.points);
    let (Some(first), Some(last)) = (points.first(), points.last()) else {
        return;
    };
    let steps: Vec<String> = points.iter().map(|(x, y)| format!("{:.1},{:.1}", frame.x(*x), frame.y(*y))).collect();
    let path = steps.join(" L");
    if line.filled {
        let bottom = HEIGHT - BOTTOM;
        let (from, until) = (frame.x(first.0), frame.x(last.0));
        put!(
            out,
            "<path d=\"M{from:.1},{bottom} L{path} L{until:.1},{bottom} Z\" fill=\"{}\" fill-opacity=\"0.18\"/>",
            line.colour
        );
    }
    let dash = if line.dashed { " stroke-dasharray=\"6 4\"" } else { "" };
    put!(
        out,
        "<path d=\"M{path}\" fill=\"none\" stroke=\"{}\" stroke-width=\"1.6\" stroke-linejoin=\"round\"{dash}/>",
        line.colour
    );
    for (x, y) in points.iter().filter(|_| line.dotted) {
        put!(out, "<circle cx=\"{:.1}\" cy=\"{:.1}\" r=\"3.2\" fill=\"{}\"/>", frame.x(*x), frame.y(*y), line.colour);
    }
}

fn draw_limit(out: &mut String, name: &str, value: f64, frame: &PlotFrame) {
    if value > frame.y_max {
        return;
    }
    let (y, right) = (frame.y(value), WIDTH - RIGHT);
    put!(
        out,
        "<line x1=\"{LEFT}\" y1=\"{y:.1}\" x2=\"{right}\" y2=\"{y:.1}\" stroke=\"#b71c1c\" stroke-width=\"1.4\" stroke-dasharray=\"2 3\"/>"
    );
    put!(
        out,
        "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\" fill=\"#b71c1c\" stroke=\"#ffffff\" stroke-width=\"3\" paint-order=\"stroke\">{}</text>",
        right - 4.0,
        y - 5.0,
        escaped(name)
    );
}

fn draw_legend(out: &mut String, chart: &Chart) {
    let y = HEIGHT - 14.0;
    let mut x = LEFT;
    for line in &chart.lines {
        let dash = if line.dashed { " stroke-dasharray=\"6 4\"" } else { "" };
        put!(
            out,
            "<line x1=\"{x:.1}\" y1=\"{:.1}\" x2=\"{:.1}\" y2=\"{:.1}\" stroke=\"{}\" stroke-width=\"3\"{dash}/>",
            y - 4.0,
            x + 22.0,
            y - 4.0,
            line.colour
        );
        put!(out, "<text x=\"{:.1}\" y=\"{y:.1}\">{}</text>", x + 28.0, escaped(&line.name));
        x += 28.0 + 7.4 * line.name.chars().count() as f64 + 22.0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chart() -> Chart {
        Chart {
            id: "queue",
            title: "Queue & <limit>".to_owned(),
            x: (Scale::Time, "time"),
            y: (Scale::Bytes, "bytes"),
            lines: vec![
                PlotLine::new(
                    "async",
                    COLOURS[0],
                    (0..5000).map(|n| (f64::from(n), if n == 4321 { 9e6 } else { 1e6 })).collect(),
                )
                .filled(),
            ],
            limits: vec![("limit 8 MiB".to_owned(), 8388608.0)],
        }
    }

    #[test]
    fn a_picture_is_sound_and_keeps_its_peak() {
        let text = svg(&chart());
        assert!(roxmltree::Document::parse(&text).is_ok() && text.contains("Queue &amp; &lt;limit&gt;"));
        // The peak stands at the height of 1 / 1.06 of the frame.
        let height = HEIGHT - BOTTOM - (HEIGHT - BOTTOM - TOP) / 1.06;
        assert!(text.contains(&format!(",{height:.1}")), "{height:.1}");
    }

    #[test]
    fn ticks_are_round() {
        assert_eq!(Scale::Time.ticks(7200.0), [0.0, 1800.0, 3600.0, 5400.0, 7200.0]);
        assert_eq!(Scale::Rate.ticks(42.0), [0.0, 10.0, 20.0, 30.0, 40.0]);
        assert_eq!(Scale::Bytes.ticks(9.0 * 1048576.0).len(), 5);
        assert_eq!(Scale::Share.ticks(1.0).len(), 6);
        assert_eq!(Scale::LogTime.word(1e-3), "1 ms");
        assert_eq!(doublings(65536.0, 524_288.0), [65536.0, 131_072.0, 262_144.0, 524_288.0]);
        assert_eq!(doublings(4096.0, 1e9).len(), 9, "every second");
    }

    #[test]
    fn doublings_are_as_far_apart_as_each_other() {
        let sizes = (0..4).map(|n| (65536.0 * f64::from(1 << n), f64::from(n)));
        let line = PlotLine::new("measured", COLOURS[0], sizes.collect()).dotted();
        let chart = Chart { x: (Scale::DoublingBytes, "size"), y: (Scale::Rate, "rate"), lines: vec![line], ..chart() };
        let frame = PlotFrame::of(&chart);
        let at: Vec<f64> = chart.lines[0].points.iter().map(|point| frame.x(point.0)).collect();
        assert!((at[0] - LEFT).abs() < 1e-9 && (at[3] - (WIDTH - RIGHT)).abs() < 1e-9, "{at:?}");
        assert!(at.windows(2).all(|pair| (pair[1] - pair[0] - (at[3] - at[0]) / 3.0).abs() < 1e-9), "{at:?}");
        assert_eq!(svg(&chart).matches("<circle").count(), 4);
        let one = Chart { lines: vec![PlotLine::new("one", COLOURS[0], vec![(65536.0, 1.0)]).dotted()], ..chart };
        assert!(svg(&one).contains("64 KiB"), "a single size");
    }
}
