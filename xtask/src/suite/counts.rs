//! How many tests passed, as the runners say it.

use std::fmt;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TestCounts {
    pub passed: u64,
    pub failed: u64,
    pub skipped: u64,
    /// Of those that passed: not at their first try.
    pub flaky: u64,
}

impl TestCounts {
    /// Reads a runner's summary line: nextest's, cargo's own, or the plain form we print ourselves.
    /// Every other line is `None`; so is an indented one of cargo's, which is part of a failed
    /// test's output as nextest repeats it.
    pub fn of_line(line: &str) -> Option<TestCounts> {
        let line = without_escapes(line);
        let list = if let Some(list) = line.strip_prefix("test result: ") {
            list.split_once(". ")?.1
        } else if line.trim_start().starts_with("Summary [") {
            line.split_once(" run: ")?.1
        } else {
            let is_plain = line.starts_with(|c: char| c.is_ascii_digit()) && line.contains(" passed, ");
            is_plain.then_some(line.as_str())?
        };
        let mut counts = TestCounts { flaky: flaky_of(list), ..TestCounts::default() };
        for item in without_brackets(list).split([',', ';']) {
            let Some((number, word)) = item.trim().split_once(' ') else {
                continue;
            };
            let Ok(number) = number.parse::<u64>() else {
                continue;
            };
            match word.trim() {
                "passed" => counts.passed += number,
                "failed" | "timed out" | "exec failed" => counts.failed += number,
                "skipped" | "ignored" => counts.skipped += number,
                _ => {}
            }
        }
        Some(counts)
    }

    pub fn add(&mut self, more: &TestCounts) {
        self.passed += more.passed;
        self.failed += more.failed;
        self.skipped += more.skipped;
        self.flaky += more.flaky;
    }

    /// Tests that passed only because they found they could not run here.
    pub fn turn_into_skips(&mut self, skips: u64) {
        self.passed = self.passed.saturating_sub(skips);
        self.skipped += skips;
    }
}

impl fmt::Display for TestCounts {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        write!(f, "{} passed, {} failed", self.passed, self.failed)?;
        if self.skipped > 0 {
            write!(f, ", {} skipped", self.skipped)?;
        }
        if self.flaky > 0 {
            write!(f, ", {} FLAKY", self.flaky)?;
        }
        Ok(())
    }
}

fn without_escapes(line: &str) -> String {
    let mut plain = String::with_capacity(line.len());
    let mut rest = line;
    while let Some((before, escape)) = rest.split_once("\u{1b}[") {
        plain.push_str(before);
        rest = escape.split_once(|c: char| c.is_ascii_alphabetic()).map_or("", |(_, after)| after);
    }
    plain + rest
}

/// What nextest says in brackets behind those that passed: `(1 slow, 2 flaky)`.
fn flaky_of(list: &str) -> u64 {
    let words: Vec<&str> = list.split([' ', ',', '(', ')']).filter(|word| !word.is_empty()).collect();
    let before = words.windows(2).find(|pair| pair[1] == "flaky").map(|pair| pair[0]);
    before.and_then(|number| number.parse().ok()).unwrap_or(0)
}

fn without_brackets(list: &str) -> String {
    let mut depth = 0;
    let keep = |c: &char| {
        depth += i32::from(*c == '(');
        let is_kept = depth == 0;
        depth -= i32::from(*c == ')');
        is_kept
    };
    list.chars().filter(keep).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts(passed: u64, failed: u64, skipped: u64) -> Option<TestCounts> {
        Some(TestCounts { passed, failed, skipped, flaky: 0 })
    }

    #[test]
    fn reads_every_runner() {
        let nextest = "     Summary [   2.828s] 34 tests run: 34 passed, 0 skipped";
        assert_eq!(TestCounts::of_line(nextest), counts(34, 0, 0));
        let nextest = " Summary [ 1.0s] 9 tests run: 5 passed (1 slow, 1 flaky), 2 failed, 1 timed out, 1 skipped";
        assert_eq!(TestCounts::of_line(nextest), counts(5, 3, 1).map(|counts| TestCounts { flaky: 1, ..counts }));
        let colored = "\u{1b}[32;1m Summary\u{1b}[0m [ 1s] \u{1b}[1m1\u{1b}[0m test run: \u{1b}[1m1\u{1b}[0m \u{1b}[32mpassed\u{1b}[0m, 0 skipped";
        assert_eq!(TestCounts::of_line(colored), counts(1, 0, 0));
        let cargo = "test result: FAILED. 3 passed; 1 failed; 2 ignored; 0 measured; 0 filtered out; finished in 0.1s";
        assert_eq!(TestCounts::of_line(cargo), counts(3, 1, 2));
        assert_eq!(TestCounts::of_line("200 passed, 0 failed"), counts(200, 0, 0));
    }

    #[test]
    fn other_lines_count_nothing() {
        for line in ["", "test a::b ... ok", "it passed, somehow", "    PASS [ 0.1s] xtask tests"] {
            assert_eq!(TestCounts::of_line(line), None, "{line}");
        }
    }

    #[test]
    fn the_sum_says_skipped_only_when_there_are_some() {
        let mut sum = TestCounts { passed: 5, ..TestCounts::default() };
        assert_eq!(sum.to_string(), "5 passed, 0 failed");
        sum.turn_into_skips(2);
        assert_eq!(sum.to_string(), "3 passed, 0 failed, 2 skipped");
        sum.add(&TestCounts { passed: 1, flaky: 1, ..TestCounts::default() });
        assert_eq!(sum.to_string(), "4 passed, 0 failed, 2 skipped, 1 FLAKY");
    }
}
