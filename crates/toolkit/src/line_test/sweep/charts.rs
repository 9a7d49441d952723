//! A sweep's pictures: what each size carries, and what it does to the round trip.

use plan::picture::{COLOURS, Chart, PlotLine, Scale};

use super::curve::{Curve, SweepPoint};
use super::plan::Setting;
use crate::line_test::report::us;

const SIZES: (Scale, &str) = (Scale::DoublingBytes, "socket buffer requested, on all four sockets");

/// Of one congestion control with the formula and with autotuning; several beside each other.
pub fn charts(curves: &[Curve]) -> Vec<Chart> {
    match curves {
        [one] => alone(one),
        several => beside(several),
    }
}

fn line(curve: &Curve, of: &dyn Fn(&SweepPoint) -> f64) -> Vec<(f64, f64)> {
    curve.points.iter().filter_map(|point| Some((point.setting.asked_bytes()? as f64, of(point)))).collect()
}

fn loaded_s(point: &SweepPoint) -> f64 {
    point.loaded_rtt_us() as f64 / 1e6
}

fn idle_s(curve: &Curve) -> f64 {
    curve.idle_rtt_us as f64 / 1e6
}

fn alone(curve: &Curve) -> Vec<Chart> {
    let auto = curve.point(Setting::Auto);
    let knee = curve.knee().map_or(String::new(), |knee| format!(", knee at {}", knee.setting.name()));
    let limit =
        |of: &dyn Fn(&SweepPoint) -> f64| auto.map(|auto| ("autotuning".to_owned(), of(auto))).into_iter().collect();
    vec![
        Chart {
            id: "sweep-rate",
            title: format!("What each buffer size carries, {} at {}{knee}", curve.congestion, us(curve.idle_rtt_us)),
            x: SIZES,
            y: (Scale::Rate, "received"),
            lines: vec![
                PlotLine::new("measured", COLOURS[0], line(curve, &SweepPoint::bytes_per_s)).dotted(),
                PlotLine::new(
                    "min(plateau, window / round trip)",
                    COLOURS[1],
                    line(curve, &|point| curve.formula(point)),
                )
                .dashed(),
            ],
            limits: limit(&SweepPoint::bytes_per_s),
        },
        Chart {
            id: "sweep-round-trip",
            title: format!("What each buffer size does to the round trip, {}", curve.congestion),
            x: SIZES,
            y: (Scale::Time, "round trip"),
            lines: vec![
                PlotLine::new("under load", COLOURS[0], line(curve, &loaded_s)).dotted(),
                PlotLine::new("idle", COLOURS[2], line(curve, &|_| idle_s(curve))).dashed(),
            ],
            limits: limit(&loaded_s),
        },
    ]
}

fn beside(curves: &[Curve]) -> Vec<Chart> {
    let lines = |of: &dyn Fn(&SweepPoint) -> f64| -> Vec<PlotLine> {
        let colours = COLOURS.into_iter().cycle();
        curves
            .iter()
            .zip(colours)
            .map(|(curve, colour)| PlotLine::new(&curve.congestion, colour, line(curve, of)).dotted())
            .collect()
    };
    let names: Vec<&str> = curves.iter().map(|curve| curve.congestion.as_str()).collect();
    vec![
        Chart {
            id: "sweep-rate",
            title: format!("What each buffer size carries: {}", names.join(", ")),
            x: SIZES,
            y: (Scale::Rate, "received"),
            lines: lines(&SweepPoint::bytes_per_s),
            limits: Vec::new(),
        },
        Chart {
            id: "sweep-round-trip",
            title: format!("What each buffer size does to the round trip: {}", names.join(", ")),
            x: SIZES,
            y: (Scale::Time, "round trip under load"),
            lines: lines(&loaded_s),
            limits: Vec::new(),
        },
    ]
}
