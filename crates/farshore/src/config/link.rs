//! How sockets between nodes are tuned and what is done with frames on the way: a closed list of keys of `[link]`, one parser each for file and `link set`.

use std::fmt;
use std::time::Duration;

use host::link::{Compression, Congestion, Flow, Method, SocketOptions, ZSTD_LEVELS};

use super::{BufferSize, suggest};
use crate::limits;
use units::exact::{bounded_duration, bounded_size, duration_text, parse_rate, rate_text, size_text};

/// What a connection asks of its socket, checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LinkSettings {
    /// Both directions alike.
    pub buffers: BufferSize,
    pub congestion: Congestion,
    /// What the kernel may hold unsent; `None`: by the line's rate.
    pub unsent_bytes: Option<u64>,
    /// `None`: from the link's timeout.
    pub user_timeout: Option<Duration>,
    pub keepalive: Duration,
    pub max_rto: Duration,
    pub min_rto: Option<Duration>,
    /// Bits per second.
    pub pacing_bits: Option<u64>,
    pub compression: Compression,
    /// Bits per second.
    pub rate_bits: Option<u64>,
}

impl Default for LinkSettings {
    fn default() -> Self {
        Self {
            buffers: BufferSize::Auto,
            congestion: Congestion::Auto,
            unsent_bytes: None,
            user_timeout: None,
            keepalive: limits::KEEPALIVE.default,
            max_rto: limits::MAX_RTO.default,
            min_rto: None,
            pacing_bits: None,
            compression: Compression::Off,
            rate_bits: None,
        }
    }
}

/// The keys of [`LinkSettings`], as the file and `link set` spell them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum LinkKey {
    Buffers,
    Congestion,
    Unsent,
    UserTimeout,
    Keepalive,
    MaxRto,
    MinRto,
    Pacing,
    Compression,
    Rate,
}

impl LinkKey {
    pub const ALL: [LinkKey; 10] = [
        LinkKey::Buffers,
        LinkKey::Congestion,
        LinkKey::Unsent,
        LinkKey::UserTimeout,
        LinkKey::Keepalive,
        LinkKey::MaxRto,
        LinkKey::MinRto,
        LinkKey::Pacing,
        LinkKey::Compression,
        LinkKey::Rate,
    ];

    pub fn as_str(self) -> &'static str {
        match self {
            LinkKey::Buffers => "buffers",
            LinkKey::Congestion => "congestion",
            LinkKey::Unsent => "unsent",
            LinkKey::UserTimeout => "user_timeout",
            LinkKey::Keepalive => "keepalive",
            LinkKey::MaxRto => "max_rto",
            LinkKey::MinRto => "min_rto",
            LinkKey::Pacing => "pacing",
            LinkKey::Compression => "compression",
            LinkKey::Rate => "rate",
        }
    }

    /// # Errors
    /// A sentence with the keys there are; keys that are read only at start say so.
    pub fn parse(text: &str) -> Result<Self, String> {
        if text == "timeout" {
            return Err(format!(
                "{text:?} is read when the daemon starts; change it in the configuration file of both nodes and restart them"
            ));
        }
        Self::ALL.into_iter().find(|key| key.as_str() == text).ok_or_else(|| {
            let names = || Self::ALL.iter().map(|key| key.as_str());
            format!("{text:?} cannot be set{}; the keys are {}", suggest::hint(text, names()), suggest::list(names()))
        })
    }
}

impl fmt::Display for LinkKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl LinkSettings {
    /// Takes the text of one key; on a problem nothing changes.
    ///
    /// # Errors
    /// A sentence: what is wrong with the value and what it may be.
    pub fn set(&mut self, key: LinkKey, text: &str) -> Result<(), String> {
        match key {
            LinkKey::Buffers => self.buffers = parse_buffers(text)?,
            LinkKey::Congestion => self.congestion = parse_congestion(text)?,
            LinkKey::Unsent => self.unsent_bytes = unless("auto", text, |text| bounded_size(text, limits::UNSENT))?,
            LinkKey::UserTimeout => {
                self.user_timeout = unless("auto", text, |text| bounded_duration(text, limits::USER_TIMEOUT))?;
            }
            LinkKey::Keepalive => self.keepalive = bounded_duration(text, limits::KEEPALIVE)?,
            LinkKey::MaxRto => self.max_rto = bounded_duration(text, limits::MAX_RTO)?,
            LinkKey::MinRto => {
                self.min_rto = unless("off", text, |text| bounded_duration(text, limits::MIN_RTO))?;
            }
            LinkKey::Pacing => self.pacing_bits = unless("off", text, parse_bits)?,
            LinkKey::Compression => self.compression = parse_compression(text)?,
            LinkKey::Rate => self.rate_bits = unless("unlimited", text, parse_bits)?,
        }
        Ok(())
    }

    /// The canonical text of one key; [`LinkSettings::set`] reads it back.
    pub fn text(&self, key: LinkKey) -> String {
        let or = |value: Option<String>, word: &str| value.unwrap_or_else(|| word.to_owned());
        match key {
            LinkKey::Buffers => match self.buffers {
                BufferSize::Auto => "auto".to_owned(),
                BufferSize::Bytes(bytes) => size_text(bytes),
            },
            LinkKey::Congestion => self.congestion.to_string(),
            LinkKey::Unsent => or(self.unsent_bytes.map(size_text), "auto"),
            LinkKey::UserTimeout => or(self.user_timeout.map(duration_text), "auto"),
            LinkKey::Keepalive => duration_text(self.keepalive),
            LinkKey::MaxRto => duration_text(self.max_rto),
            LinkKey::MinRto => or(self.min_rto.map(duration_text), "off"),
            LinkKey::Pacing => or(self.pacing_bits.map(rate_text), "off"),
            LinkKey::Compression => self.compression.to_string(),
            LinkKey::Rate => or(self.rate_bits.map(rate_text), "unlimited"),
        }
    }

    /// What two correct values may not say together.
    ///
    /// # Errors
    /// A sentence, with the key it is about.
    pub fn check(&self, timeout: Duration) -> Result<(), (LinkKey, String)> {
        match self.user_timeout {
            Some(user) if user < timeout => Err((
                LinkKey::UserTimeout,
                format!(
                    "{} is shorter than the link's timeout of {}, so the kernel would cut a link that is only slow; use \"{}\" or more, or \"auto\"",
                    duration_text(user),
                    duration_text(timeout),
                    duration_text(timeout)
                ),
            )),
            _ => Ok(()),
        }
    }

    /// As sockets take them.
    pub fn socket_options(&self, timeout: Duration) -> SocketOptions {
        let buffers = match self.buffers {
            BufferSize::Auto => None,
            BufferSize::Bytes(bytes) => usize::try_from(bytes).ok(),
        };
        let options = SocketOptions {
            congestion: self.congestion.clone(),
            unsent_bytes: self.unsent_bytes.map(|bytes| u32::try_from(bytes).unwrap_or(u32::MAX)),
            // Far above the timeout: it also counts while the peer's window is closed.
            user_timeout: self.user_timeout.unwrap_or(limits::USER_TIMEOUT.default.max(timeout * 2)),
            keepalive: self.keepalive,
            rto_max: Some(self.max_rto),
            rto_min: self.min_rto,
            pacing: self.pacing_bits.map(|bits| bits / 8),
            ..SocketOptions::default()
        };
        options.with_buffers(buffers)
    }

    /// What is done with frames.
    pub fn flow(&self) -> Flow {
        Flow { compression: self.compression, rate: self.rate_bits.map(|bits| bits / 8) }
    }
}

fn unless<T>(word: &str, text: &str, parse: impl Fn(&str) -> Result<T, String>) -> Result<Option<T>, String> {
    if text == word {
        return Ok(None);
    }
    parse(text).map(Some).map_err(|reason| format!("{reason}; or \"{word}\""))
}

fn parse_buffers(text: &str) -> Result<BufferSize, String> {
    if text == "auto" {
        return Ok(BufferSize::Auto);
    }
    bounded_size(text, limits::SOCKET_BUFFER)
        .map(BufferSize::Bytes)
        .map_err(|reason| format!("{reason}; or \"auto\" to let the kernel tune them"))
}

pub(crate) fn parse_congestion(text: &str) -> Result<Congestion, String> {
    let allowed = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_' || c == '-';
    match text {
        "auto" => Ok(Congestion::Auto),
        "system" => Ok(Congestion::System),
        // 15 letters and a closing zero is what the kernel keeps.
        name if (1..=15).contains(&name.len()) && name.chars().all(allowed) => Ok(Congestion::Named(name.to_owned())),
        _ => Err(format!(
            "{text:?} is not the name of a congestion control, such as \"cubic\" or \"bbr\", nor \"auto\" or \"system\""
        )),
    }
}

fn parse_bits(text: &str) -> Result<u64, String> {
    let (bits, bound) = (parse_rate(text)?, limits::PACING);
    if (bound.min..=bound.max).contains(&bits) {
        return Ok(bits);
    }
    Err(format!("{text:?} is out of bounds; use \"{}\" to \"{}\"", rate_text(bound.min), rate_text(bound.max)))
}

pub(crate) fn parse_compression(text: &str) -> Result<Compression, String> {
    let level = |text: &str| text.parse().ok().filter(|level| ZSTD_LEVELS.contains(level));
    match (text, text.strip_prefix("zstd:")) {
        ("off", _) => Ok(Compression::Off),
        ("auto", _) => Ok(Compression::Auto),
        ("lz4", _) => Ok(Compression::Always(Method::Lz4)),
        ("zstd", _) => Ok(Compression::Always(Method::Zstd(1))),
        (_, Some(text)) => level(text).map(|level| Compression::Always(Method::Zstd(level))).ok_or_else(|| {
            let (least, most) = (ZSTD_LEVELS.start(), ZSTD_LEVELS.end());
            format!("{text:?} is not a level that a link can keep up with; use \"zstd:{least}\" (fastest) to \"zstd:{most}\"")
        }),
        _ => Err(format!("{text:?} is not a compression; use \"off\", \"lz4\", \"zstd\", \"zstd:LEVEL\" or \"auto\"")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_key_reads_back_what_it_writes() {
        let defaults = LinkSettings::default();
        let mut others = defaults.clone();
        for (key, text) in [
            (LinkKey::Buffers, "4MiB"),
            (LinkKey::Congestion, "bbr"),
            (LinkKey::Unsent, "256KiB"),
            (LinkKey::UserTimeout, "1m"),
            (LinkKey::Keepalive, "30s"),
            (LinkKey::MaxRto, "2s"),
            (LinkKey::MinRto, "40ms"),
            (LinkKey::Pacing, "93Mbit/s"),
            (LinkKey::Compression, "zstd:-5"),
            (LinkKey::Rate, "128kbit/s"),
        ] {
            others.set(key, text).expect("a good value");
            assert_eq!(others.text(key), text);
            assert_ne!(others.text(key), defaults.text(key));
        }
        for key in LinkKey::ALL {
            let mut copy = others.clone();
            copy.set(key, &defaults.text(key)).expect("its own text");
            assert_eq!(copy.text(key), defaults.text(key));
            assert_eq!(LinkKey::parse(key.as_str()), Ok(key));
        }
    }

    #[test]
    fn zstd_without_a_level_is_the_fastest_that_is_worth_its_name() {
        let mut settings = LinkSettings::default();
        for (text, flow) in [
            ("zstd", Compression::Always(Method::Zstd(1))),
            ("lz4", Compression::Always(Method::Lz4)),
            ("auto", Compression::Auto),
            ("off", Compression::Off),
        ] {
            settings.set(LinkKey::Compression, text).expect("a good value");
            assert_eq!(settings.flow(), Flow { compression: flow, rate: None });
        }
    }

    #[test]
    fn the_defaults_are_the_data_paths() {
        let timeout = limits::LINK_TIMEOUT.default;
        assert_eq!(LinkSettings::default().socket_options(timeout), SocketOptions::default());
        assert_eq!(LinkSettings::default().flow(), Flow::default());
        let patient = LinkSettings::default().socket_options(Duration::from_secs(60));
        assert_eq!(patient.user_timeout, Duration::from_secs(120), "a patient link is not cut by the kernel");
    }

    #[test]
    fn a_bad_value_changes_nothing_and_says_why() {
        let mut settings = LinkSettings::default();
        for (key, text, hint) in [
            (LinkKey::Buffers, "4M", "write \"4MiB\""),
            (LinkKey::Buffers, "1KiB", "the least is 4KiB"),
            (LinkKey::Congestion, "CUBIC!", "not the name of a congestion control"),
            (LinkKey::Unsent, "1GiB", "the most is 64MiB; or \"auto\""),
            (LinkKey::UserTimeout, "1s", "the least is \"5s\"; or \"auto\""),
            (LinkKey::MaxRto, "500ms", "the least is \"1s\""),
            (LinkKey::MinRto, "5ms", "the least is \"20ms\"; or \"off\""),
            (LinkKey::MinRto, "1s", "the most is \"200ms\""),
            (LinkKey::Pacing, "100", "no unit"),
            (LinkKey::Pacing, "1kbit/s", "out of bounds"),
            (LinkKey::Rate, "off", "or \"unlimited\""),
            (LinkKey::Compression, "gzip", "use \"off\""),
            (LinkKey::Compression, "zstd:19", "\"zstd:-7\" (fastest) to \"zstd:9\""),
            (LinkKey::Compression, "zstd:", "is not a level"),
        ] {
            let error = settings.set(key, text).expect_err(text);
            assert!(error.contains(hint), "{key}={text}: {error}");
        }
        assert_eq!(settings, LinkSettings::default());
        settings.set(LinkKey::UserTimeout, "6s").expect("good by itself");
        assert!(settings.check(Duration::from_secs(5)).is_ok());
        let (key, why) = settings.check(Duration::from_secs(10)).expect_err("too short");
        assert!(key == LinkKey::UserTimeout && why.contains("shorter than the link's timeout of 10s"), "{why}");
    }
}
