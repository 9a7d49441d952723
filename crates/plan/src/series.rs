//! A curve over a time whose length nobody knows yet: a bounded number of steps that double their width when they run out.

use units::quantities::Seconds;

/// Enough for a picture, little enough for a report.
pub const STEPS_MAX: usize = 2048;

/// How two neighbouring steps become one, and how a value enters a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Join {
    Sum,
    Max,
}

#[derive(Clone, Debug)]
pub struct TimeSeries {
    step_ns: u64,
    values: Vec<f64>,
    join: Join,
}

impl TimeSeries {
    pub fn new(join: Join) -> Self {
        Self { step_ns: 100_000_000, values: Vec::new(), join }
    }

    pub fn add(&mut self, time_ns: u64, value: f64) {
        let mut index = (time_ns / self.step_ns) as usize;
        while index >= STEPS_MAX {
            self.halve();
            index = (time_ns / self.step_ns) as usize;
        }
        if index >= self.values.len() {
            self.values.resize(index + 1, 0.0);
        }
        let held = &mut self.values[index];
        *held = match self.join {
            Join::Sum => *held + value,
            Join::Max => held.max(value),
        };
    }

    /// The same value from one moment to a later one, through every step between.
    pub fn hold(&mut self, from_ns: u64, until_ns: u64, value: f64) {
        self.add(until_ns, value);
        // The last is there now: no step gets wider any more.
        for step in from_ns / self.step_ns..until_ns / self.step_ns {
            self.add(step * self.step_ns, value);
        }
    }

    fn halve(&mut self) {
        let join = self.join;
        let pairs = self.values.chunks(2).map(|pair| match join {
            Join::Sum => pair.iter().sum(),
            Join::Max => pair.iter().copied().fold(0.0, f64::max),
        });
        self.values = pairs.collect();
        self.step_ns *= 2;
    }

    pub fn step(&self) -> Seconds {
        Seconds::from_ns(self.step_ns)
    }
    pub fn values(&self) -> &[f64] {
        &self.values
    }
    /// Moment of each step's middle, and its value.
    pub fn points(&self) -> impl Iterator<Item = (f64, f64)> + '_ {
        let step = self.step().0;
        self.values.iter().enumerate().map(move |(index, &value)| ((index as f64 + 0.5) * step, value))
    }
    /// Sums as a rate: value per second.
    pub fn rates(&self) -> impl Iterator<Item = (f64, f64)> + '_ {
        let step = self.step().0;
        self.points().map(move |(time, value)| (time, value / step))
    }
    /// Start of the window of this length with the largest sum.
    pub fn heaviest(&self, window: Seconds) -> Seconds {
        let count = ((window.0 / self.step().0).ceil() as usize).clamp(1, self.values.len().max(1));
        let mut sum: f64 = self.values.iter().take(count).sum();
        let (mut best, mut best_at) = (sum, 0);
        for start in 1..=self.values.len().saturating_sub(count) {
            sum += self.values[start + count - 1] - self.values[start - 1];
            if sum > best {
                (best, best_at) = (sum, start);
            }
        }
        Seconds(best_at as f64 * self.step().0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_survive_the_halving() {
        let (mut sum, mut max) = (TimeSeries::new(Join::Sum), TimeSeries::new(Join::Max));
        for second in 0..10_000u64 {
            sum.add(second * 1_000_000_000, 2.0);
            max.add(second * 1_000_000_000, (second % 100) as f64);
        }
        assert_eq!(sum.values().iter().sum::<f64>(), 20_000.0);
        assert!(sum.values().len() <= STEPS_MAX && max.values().iter().all(|&v| v <= 99.0));
        assert_eq!(max.values().iter().copied().fold(0.0, f64::max), 99.0);
    }

    #[test]
    fn what_is_held_stands_in_every_step() {
        let mut series = TimeSeries::new(Join::Max);
        series.hold(50_000_000, 1_000_000_000, 3.0);
        series.hold(1_000_000_000, 1_050_000_000, 2.0);
        assert_eq!(series.values(), [3.0; 11]);
        series.hold(1_050_000_000, 3_000_000_000_000, 1.0);
        assert!(series.values().len() <= STEPS_MAX && series.values().iter().all(|&value| value >= 1.0));
    }

    #[test]
    fn the_heaviest_window_is_found() {
        let mut series = TimeSeries::new(Join::Sum);
        for tenth in 0..1000u64 {
            series.add(tenth * 100_000_000, if (300..350).contains(&tenth) { 10.0 } else { 1.0 });
        }
        assert!((series.heaviest(Seconds(5.0)).0 - 30.0).abs() < 0.2);
        assert_eq!(series.heaviest(Seconds(5000.0)).0, 0.0);
    }
}
