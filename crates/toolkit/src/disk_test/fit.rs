//! `time = overhead + bytes / rate`, laid through measured times.

/// One size and the mean time of its flushes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SizeMean {
    pub bytes: f64,
    pub seconds: f64,
}

/// The line through the points.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct FittedLine {
    /// Zero or more.
    pub overhead_s: f64,
    /// More than zero.
    pub bytes_per_s: f64,
}

impl FittedLine {
    pub fn seconds(&self, bytes: f64) -> f64 {
        self.overhead_s + bytes / self.bytes_per_s
    }

    /// How far a point lies from the line, as a share of its time; positive where the line promises too much.
    pub fn error(&self, point: SizeMean) -> f64 {
        (point.seconds - self.seconds(point.bytes)) / point.seconds
    }

    /// The line with the least sum of squared [`FittedLine::error`]s: a tenth too much counts alike for small flushes, which
    /// decide the overhead, and large ones, which decide the rate.
    ///
    /// Where times do not grow with the size there is no such line; then, as in the HADR toolkit, the overhead is the
    /// time of the smallest and the rate that of the largest. `None` with fewer than two sizes.
    pub fn through(points: &[SizeMean]) -> Option<FittedLine> {
        let smallest = points.iter().min_by(|a, b| a.bytes.total_cmp(&b.bytes))?;
        let largest = points.iter().max_by(|a, b| a.bytes.total_cmp(&b.bytes))?;
        if smallest.bytes >= largest.bytes || points.iter().any(|point| point.seconds <= 0.0) {
            return None;
        }
        // Weighted least squares of seconds over bytes, weight 1 / seconds^2.
        let sum = |term: fn(&SizeMean) -> f64| {
            points.iter().map(|point| term(point) / (point.seconds * point.seconds)).sum::<f64>()
        };
        let (w, wx, wxx) = (sum(|_| 1.0), sum(|p| p.bytes), sum(|p| p.bytes * p.bytes));
        let (wy, wxy) = (sum(|p| p.seconds), sum(|p| p.bytes * p.seconds));
        let slope = (w * wxy - wx * wy) / (w * wxx - wx * wx);
        let overhead_s = (wy - slope * wx) / w;
        let line = match (overhead_s >= 0.0, slope > 0.0) {
            (true, true) => FittedLine { overhead_s, bytes_per_s: 1.0 / slope },
            // Through the origin.
            (false, _) => FittedLine { overhead_s: 0.0, bytes_per_s: wxx / wxy },
            (true, false) => FittedLine { overhead_s: smallest.seconds, bytes_per_s: largest.bytes / largest.seconds },
        };
        Some(line)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn points(line: FittedLine, errors: &[f64]) -> Vec<SizeMean> {
        let sizes = (0..).map(|n| 4096.0 * 4f64.powi(n));
        let at = |(bytes, error): (f64, &f64)| SizeMean { bytes, seconds: line.seconds(bytes) * (1.0 + error) };
        sizes.zip(errors).map(at).collect()
    }

    #[test]
    fn a_disk_on_the_line_is_found_again() {
        // The HADR pages' example: 0.000425 s and 177.5 MB/s.
        for line in [
            FittedLine { overhead_s: 0.000_425, bytes_per_s: 177.5e6 },
            FittedLine { overhead_s: 0.008, bytes_per_s: 1e6 },
            FittedLine { overhead_s: 0.0, bytes_per_s: 3e9 },
        ] {
            let found = FittedLine::through(&points(line, &[0.0; 6])).expect("six sizes");
            assert!((found.overhead_s - line.overhead_s).abs() < 1e-9, "{found:?}");
            assert!((found.bytes_per_s / line.bytes_per_s - 1.0).abs() < 1e-9, "{found:?}");
            let noisy = FittedLine::through(&points(line, &[0.1, -0.1, 0.1, -0.1, 0.1, -0.1])).expect("six sizes");
            for point in points(line, &[0.0; 6]) {
                assert!(noisy.error(point).abs() < 0.15, "{noisy:?} at {point:?}");
            }
        }
    }

    #[test]
    fn odd_times_still_give_a_line_a_plan_can_use() {
        let at = |bytes, seconds| SizeMean { bytes, seconds };
        // The larger the faster: nothing of that sort, but HADR's two numbers.
        let shrinking =
            FittedLine::through(&[at(4096.0, 0.01), at(65536.0, 0.008), at(1e6, 0.005)]).expect("three sizes");
        assert_eq!(shrinking, FittedLine { overhead_s: 0.01, bytes_per_s: 2e8 });
        // More than in proportion: no negative overhead.
        let steep = FittedLine::through(&[at(1e3, 1e-6), at(1e4, 2e-5), at(1e5, 4e-4)]).expect("three sizes");
        assert!(steep.overhead_s == 0.0 && steep.bytes_per_s > 2e8, "{steep:?}");
        assert_eq!(FittedLine::through(&[at(4096.0, 0.01)]), None);
        assert_eq!(FittedLine::through(&[at(4096.0, 0.01), at(4096.0, 0.02)]), None);
        assert_eq!(FittedLine::through(&[]), None);
    }
}
