//! Which devices owe an answer, and for how long. Files that lie on one device share its fate, so they share its number
//! here and its place in every queue.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::SILENCE_REPORTED;
use super::file::File;

/// A device that has answered nothing for so long is left out when it is asked whether the thread has other work: what it
/// still owes says nothing about when.
const LATE: Duration = Duration::from_millis(50);

#[derive(Default)]
pub(super) struct WatchedDevices {
    /// By [`File::device`].
    numbers: BTreeMap<u64, usize>,
    devices: Vec<WatchedDevice>,
}

struct WatchedDevice {
    /// The first file on it that was asked for anything: what people know it by.
    path: Arc<Path>,
    in_flight: usize,
    /// When it answered last, or was first asked since.
    moved: Instant,
    /// How long it had been silent when that was reported last; zero: it was not.
    reported: Duration,
}

/// What a device owes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OwedAnswers {
    pub path: Arc<Path>,
    pub silence: Duration,
    pub requests: usize,
}

impl std::fmt::Display for OwedAnswers {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (path, answers) = (self.path.display(), if self.requests == 1 { "answer" } else { "answers" });
        let (count, seconds) = (self.requests, self.silence.as_secs());
        write!(formatter, "the disk under {path} owes {count} {answers} and has given none for {seconds} s")
    }
}

/// What people should know of a device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SilenceNews {
    /// It has answered nothing for so long.
    Silent { path: Arc<Path>, silence: Duration, requests: usize },
    /// It has answered; it had been silent for at least so long.
    Answers { path: Arc<Path>, silence: Duration },
}

impl WatchedDevices {
    /// The number of a file's device.
    pub fn number(&mut self, file: &File) -> usize {
        self.numbered(file.device(), file.path())
    }

    fn numbered(&mut self, device: u64, path: &Arc<Path>) -> usize {
        if let Some(number) = self.numbers.get(&device) {
            return *number;
        }
        let number = self.devices.len();
        self.numbers.insert(device, number);
        self.devices.push(WatchedDevice {
            path: path.clone(),
            in_flight: 0,
            moved: Instant::now(),
            reported: Duration::ZERO,
        });
        number
    }

    pub fn begin(&mut self, number: usize, now: Instant) {
        let device = &mut self.devices[number];
        if device.in_flight == 0 {
            device.moved = now;
        }
        device.in_flight += 1;
    }

    pub fn end(&mut self, number: usize, now: Instant) {
        let device = &mut self.devices[number];
        assert!(device.in_flight > 0, "an answer was asked for");
        device.in_flight -= 1;
        device.moved = now;
    }

    /// Nothing is under way at this device, nor at any other that may answer any moment.
    pub fn is_alone(&self, number: usize, now: Instant) -> bool {
        let is_late = |device: &WatchedDevice| now.saturating_duration_since(device.moved) > LATE;
        let may_answer = |device: &WatchedDevice| device.in_flight > 0 && !is_late(device);
        self.devices[number].in_flight == 0 && !self.devices.iter().any(may_answer)
    }

    /// For how long the device owes an answer and has given none.
    pub fn silence(&self, device: u64, now: Instant) -> Option<Duration> {
        self.devices[*self.numbers.get(&device)?].silence(now)
    }

    /// Who owes answers and has given none for at least so long.
    pub fn owing(&self, at_least: Duration, now: Instant) -> Vec<OwedAnswers> {
        let owed = |device: &WatchedDevice| {
            let silence = device.silence(now).filter(|silence| *silence >= at_least)?;
            Some(OwedAnswers { path: device.path.clone(), silence, requests: device.in_flight })
        };
        self.devices.iter().filter_map(owed).collect()
    }

    /// What has changed since this was asked last.
    pub fn news(&mut self, now: Instant) -> Vec<SilenceNews> {
        self.devices.iter_mut().filter_map(|device| device.news(now)).collect()
    }
}

impl WatchedDevice {
    fn silence(&self, now: Instant) -> Option<Duration> {
        (self.in_flight > 0).then(|| now.saturating_duration_since(self.moved))
    }

    fn news(&mut self, now: Instant) -> Option<SilenceNews> {
        let (path, before) = (self.path.clone(), self.reported);
        self.reported = self.silence(now).filter(|silence| *silence >= SILENCE_REPORTED).unwrap_or_default();
        match (before.is_zero(), self.reported.is_zero()) {
            (true, false) => Some(SilenceNews::Silent { path, silence: self.reported, requests: self.in_flight }),
            (false, true) => Some(SilenceNews::Answers { path, silence: before }),
            _ => None,
        }
    }
}

impl std::fmt::Display for SilenceNews {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            SilenceNews::Silent { path, silence, requests } => write!(
                formatter,
                "the disk under {} has answered nothing for {} s and owes {requests} answers: what needs it waits, all else \
                 goes on; see the kernel log for why",
                path.display(),
                silence.as_secs()
            ),
            SilenceNews::Answers { path, silence } => write!(
                formatter,
                "the disk under {} answers again after more than {} s",
                path.display(),
                silence.as_secs()
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn number(devices: &mut WatchedDevices, device: u64) -> usize {
        devices.numbered(device, &Path::new("/disk").into())
    }

    #[test]
    fn a_request_is_alone_beside_what_is_late_and_never_beside_its_own_devices() {
        let mut devices = WatchedDevices::default();
        let (slow, fast) = (number(&mut devices, 8), number(&mut devices, 9));
        assert_eq!((number(&mut devices, 8), number(&mut devices, 9)), (slow, fast));
        let start = Instant::now();
        let later = start + LATE * 2;
        assert!(devices.is_alone(fast, start));
        devices.begin(slow, start);
        assert!(!devices.is_alone(fast, start), "it may answer any moment");
        assert!(devices.is_alone(fast, later) && !devices.is_alone(slow, later));
        devices.begin(slow, later);
        assert!(devices.is_alone(fast, later), "to be asked is not to answer");
        devices.end(slow, later);
        assert!(!devices.is_alone(fast, later));
        devices.end(slow, later);
        assert!(devices.is_alone(slow, later) && devices.is_alone(fast, later));
    }

    #[test]
    fn silence_counts_from_the_last_answer_or_the_first_question() {
        let mut devices = WatchedDevices::default();
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        assert_eq!(devices.silence(8, start), None);
        let number = number(&mut devices, 8);
        devices.begin(number, at(10));
        devices.begin(number, at(11));
        assert_eq!(devices.silence(8, at(12)), Some(Duration::from_secs(2)));
        let owing: Vec<_> = devices.owing(Duration::from_secs(2), at(12)).iter().map(OwedAnswers::to_string).collect();
        assert_eq!(owing, ["the disk under /disk owes 2 answers and has given none for 2 s"]);
        assert_eq!(devices.owing(Duration::from_secs(3), at(12)), []);
        devices.end(number, at(13));
        assert_eq!(devices.silence(8, at(14)), Some(Duration::from_secs(1)));
        devices.end(number, at(15));
        assert_eq!(devices.silence(8, at(16)), None);
    }

    #[test]
    fn a_silence_is_reported_once_and_so_is_its_end() {
        let mut devices = WatchedDevices::default();
        let start = Instant::now();
        let number = number(&mut devices, 8);
        devices.begin(number, start);
        assert_eq!(devices.news(start + SILENCE_REPORTED / 2), []);
        let reported: Vec<_> = devices.news(start + SILENCE_REPORTED).iter().map(SilenceNews::to_string).collect();
        assert_eq!(reported.len(), 1);
        assert!(reported[0].contains("/disk has answered nothing for 10 s and owes 1 answers"), "{reported:?}");
        assert_eq!(devices.news(start + SILENCE_REPORTED * 2), []);
        devices.end(number, start + SILENCE_REPORTED * 3);
        let reported = devices.news(start + SILENCE_REPORTED * 3);
        assert_eq!(reported, [SilenceNews::Answers { path: Path::new("/disk").into(), silence: SILENCE_REPORTED * 2 }]);
        assert_eq!(devices.news(start + SILENCE_REPORTED * 9), []);
    }
}
