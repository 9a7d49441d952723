//! How sockets between nodes are tuned and what is done with frames on the way: a closed list of keys of `[link]`, one parser each for file and `link set`.

use std::time::Duration;

use host::link::{Compression, CongestionChoice, FrameOptions, Method, SocketOptions, ZSTD_LEVELS};

use crate::forms::{ValueForm, duration, or, rate, size};
use crate::keys::{self, Takes, keyed};
use crate::limits;
use crate::schedule::{RateSchedule, WeekMinute};
use units::exact::duration_text;

/// What `link set` changes while links run.
pub type LinkKey = keys::SettingKey<LinkSettings>;

keyed! {
    /// What a connection asks of its socket, checked.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct LinkSettings, takes(Takes::Effect), beside(keys::takes::<ConfiguredLink>) {
        /// Both directions alike, bytes; `None`: the kernel tunes them.
        "buffers" => buffers_bytes: Option<u64> = or("auto", " to let the kernel tune them", size(limits::SOCKET_BUFFER));
            "\"auto\" lets the kernel tune them; a size pins both directions",
            "both socket buffers, of both nodes. `\"auto\"` lets the kernel tune them, which is best where `net.ipv4.tcp_rmem` and `tcp_wmem` allow twice bandwidth x round trip; a size pins them, and costs that much kernel memory per connection";
        "congestion" => congestion: CongestionChoice =
            ValueForm::new("word", "a name", CongestionChoice::Auto, |text, _| parse_congestion(text), CongestionChoice::to_string);
            "auto: bbr on long lines where there is one; system; or a name such as \"cubic\"",
            "congestion control. `\"auto\"`: the system's, and from the moment the line was full `bbr`, where the kernel has it and the round trip is 10 ms or more ([why](decisions/0031-bbr-on-a-full-line.md)); `\"system\"`: the system's; or a name such as `\"cubic\"`";
        /// What the kernel may hold unsent; `None`: by the line's rate.
        "unsent" => unsent_bytes: Option<u64> = or("auto", "", size(limits::UNSENT));
            "what the kernel may hold unsent, such as \"128KiB\"; auto: what the line carries in 20 ms",
            "what the kernel may hold that is not on the line yet. `\"auto\"`: what the line carries in 20 ms, from 8 KiB to 4 MiB, 16 KiB in its first second. More lets heartbeats and acknowledgements wait longer, less lets a fast line wait for a busy processor";
        /// `None`: from the link's timeout.
        "user_timeout" => user_timeout: Option<Duration> = or("auto", "", duration(limits::USER_TIMEOUT));
            "sent and unacknowledged for so long: broken. auto: 30s, or twice the timeout if more",
            "data sent and not acknowledged for so long breaks the connection. `\"auto\"`: 30 s, or twice `timeout` if that is more; not less than `timeout`";
        "keepalive" => keepalive: Duration = duration(limits::KEEPALIVE);
            "idle for so long: the kernel asks whether the peer's machine is there",
            "idle for so long, the kernel asks whether the peer's machine is there, then four times at half of it";
        "max_rto" => max_rto: Duration = duration(limits::MAX_RTO);
            "longest pause between retransmissions: how soon a link moves again after an outage",
            "longest pause between retransmissions: how soon a link moves again after an outage. Needs Linux 6.15";
        "min_rto" => min_rto: Option<Duration> = or("off", "", duration(limits::MIN_RTO));
            "shortest pause; \"20ms\" to \"200ms\" for short lines that lose packets, on both nodes",
            "shortest pause before a retransmission, for short lines that lose packets. Used when both nodes ask for it, the longer of the two. Needs Linux 6.15";
        /// Bits per second.
        "pacing" => pacing_bits: Option<u64> = or("off", "", rate(limits::PACING));
            "never faster than, such as \"93Mbit/s\"",
            "never faster than, such as `\"93Mbit/s\"` (powers of 1000, as lines are sold). Counts payload, with the queueing discipline `fq` whole packets. A few percent below the line's rate keeps queues on the way empty";
        "compression" => compression: Compression = ValueForm::new(
                "word",
                "`\"off\"`, `\"lz4\"`, `\"zstd\"`, `\"zstd:LEVEL\"`, `\"auto\"`",
                Compression::Off,
                |text, _| parse_compression(text),
                Compression::to_string,
            );
            "of what this node sends: off, lz4, zstd, zstd:LEVEL, or auto: as line and data are",
            "of what this node sends. `\"zstd\"` is level 1, LEVEL is -7 (the fastest) to 9; `\"auto\"`: by the line's rate, and only while the line is what is waited for. Costs processor time at both ends; what does not get smaller goes as it is";
        /// Bits per second.
        "rate" => rate_bits: Option<u64> = or("unlimited", "", rate(limits::PACING));
            "of what this node sends, all groups, replication and syncs together, such as \"50Mbit/s\"",
            "what this node sends at most on each link, all groups, replication and syncs together, such as `\"50Mbit/s\"`, counted after compression. Less leaves more of the line to others and lets the lag grow";
        "schedule" => schedule: RateSchedule = ValueForm::new(
                "word",
                "times and rates",
                RateSchedule::default(),
                |text, _| RateSchedule::parse(text),
                RateSchedule::to_string,
            );
            "other rates by the clock, such as \"Mon-Fri 08:00-18:00 20Mbit/s\"; off",
            "`rate` by the clock of this node, in its time zone, such as `\"Mon-Fri 08:00-18:00 20Mbit/s, Sat 22:00-06:00 unlimited\"`; at other times `rate` holds. `\"off\"`: always. Times that overlap are refused";
    }
}

keyed! {
    /// How connections between nodes behave; the same for all of them.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct ConfiguredLink, takes(Takes::Restart) {
        also {
            /// As the file has them; [`crate::LinkOverrides`] lays what was `set` on top.
            settings: LinkSettings,
        }
        /// Silence after which a peer counts as unreachable.
        "timeout" => timeout: Duration = duration(limits::LINK_TIMEOUT);
            "silence after which the peer counts as unreachable",
            "silence after which the peer counts as unreachable; also how long a sync may stand still, if more than 60 s. Shorter notices an outage sooner and cuts the link over a hiccup";
    }
}

impl LinkSettings {
    /// What two correct values may not say together.
    ///
    /// # Errors
    /// A sentence, with the key it is about.
    pub fn check(&self, timeout: Duration) -> Result<(), (&'static str, String)> {
        match self.user_timeout {
            Some(user) if user < timeout => Err((
                "user_timeout",
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
        let buffers = self.buffers_bytes.and_then(|bytes| usize::try_from(bytes).ok());
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

    /// What is done with frames at this time.
    pub fn flow(&self, now: WeekMinute) -> FrameOptions {
        let rate_bits = self.schedule.at(now).unwrap_or(self.rate_bits);
        FrameOptions { compression: self.compression, rate: rate_bits.map(|bits| bits / 8) }
    }
}

/// # Errors
/// A sentence: it is neither of our words, nor what a kernel could call one.
pub fn parse_congestion(text: &str) -> Result<CongestionChoice, String> {
    let allowed = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_' || c == '-';
    match text {
        "auto" => Ok(CongestionChoice::Auto),
        "system" => Ok(CongestionChoice::System),
        // 15 letters and a closing zero is what the kernel keeps.
        name if (1..=15).contains(&name.len()) && name.chars().all(allowed) => {
            Ok(CongestionChoice::Named(name.to_owned()))
        }
        _ => Err(format!(
            "{text:?} is not the name of a congestion control, such as \"cubic\" or \"bbr\", nor \"auto\" or \"system\""
        )),
    }
}

/// # Errors
/// A sentence with the ones there are.
pub fn parse_compression(text: &str) -> Result<Compression, String> {
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
    use crate::keys::Keyed;

    #[test]
    fn every_key_reads_back_what_it_writes() {
        let defaults = LinkSettings::default();
        let mut others = defaults.clone();
        for (key, text) in [
            ("buffers", "4MiB"),
            ("congestion", "bbr"),
            ("unsent", "256KiB"),
            ("user_timeout", "1m"),
            ("keepalive", "30s"),
            ("max_rto", "2s"),
            ("min_rto", "40ms"),
            ("pacing", "93Mbit/s"),
            ("compression", "zstd:-5"),
            ("rate", "128kbit/s"),
            ("schedule", "Mon-Fri 08:00-18:00 20Mbit/s, Sat 22:00-06:00 unlimited"),
        ] {
            let key = LinkKey::named(key);
            others.set(key, text).expect("a good value");
            assert_eq!(others.text(key), text);
            assert_ne!(others.text(key), defaults.text(key));
        }
        for key in LinkKey::all() {
            let mut copy = others.clone();
            copy.set(key, &defaults.text(key)).expect("its own text");
            assert_eq!(copy.text(key), defaults.text(key));
            assert_eq!(LinkKey::parse(key.as_str()), Ok(key));
        }
    }

    const NOON: WeekMinute = WeekMinute::new(0, 12, 0);

    #[test]
    fn a_schedule_goes_before_the_rate() {
        let mut settings = LinkSettings::default();
        settings.set(LinkKey::named("rate"), "80Mbit/s").expect("a good value");
        settings.set(LinkKey::named("schedule"), "12:00-13:00 8Mbit/s, 13:00-14:00 unlimited").expect("a good value");
        let rates = [11, 12, 13, 14].map(|hour| settings.flow(WeekMinute::new(0, hour, 0)).rate);
        assert_eq!(rates, [Some(10_000_000), Some(1_000_000), None, Some(10_000_000)]);
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
            settings.set(LinkKey::named("compression"), text).expect("a good value");
            assert_eq!(settings.flow(NOON), FrameOptions { compression: flow, rate: None });
        }
    }

    #[test]
    fn the_defaults_are_the_data_paths() {
        let timeout = limits::LINK_TIMEOUT.default;
        assert_eq!(LinkSettings::default().socket_options(timeout), SocketOptions::default());
        assert_eq!(LinkSettings::default().flow(NOON), FrameOptions::default());
        let patient = LinkSettings::default().socket_options(Duration::from_secs(60));
        assert_eq!(patient.user_timeout, Duration::from_secs(120), "a patient link is not cut by the kernel");
    }

    #[test]
    fn a_bad_value_changes_nothing_and_says_why() {
        let mut settings = LinkSettings::default();
        for (key, text, hint) in [
            ("buffers", "4M", "write \"4MiB\""),
            ("buffers", "1KiB", "the least is 4KiB"),
            ("congestion", "CUBIC!", "not the name of a congestion control"),
            ("unsent", "1GiB", "the most is 64MiB; or \"auto\""),
            ("user_timeout", "1s", "the least is \"5s\"; or \"auto\""),
            ("max_rto", "500ms", "the least is \"1s\""),
            ("min_rto", "5ms", "the least is \"20ms\"; or \"off\""),
            ("min_rto", "1s", "the most is \"200ms\""),
            ("pacing", "100", "no unit"),
            ("pacing", "1kbit/s", "out of bounds"),
            ("rate", "off", "or \"unlimited\""),
            ("schedule", "08:00-18:00 1Mbit/s, 17:00-19:00 2Mbit/s", "overlap from Mon 17:00 on"),
            ("compression", "gzip", "use \"off\""),
            ("compression", "zstd:19", "\"zstd:-7\" (fastest) to \"zstd:9\""),
            ("compression", "zstd:", "is not a level"),
        ] {
            let error = settings.set(LinkKey::named(key), text).expect_err(text);
            assert!(error.contains(hint), "{key}={text}: {error}");
        }
        assert_eq!(settings, LinkSettings::default());
        settings.set(LinkKey::named("user_timeout"), "6s").expect("good by itself");
        assert!(settings.check(Duration::from_secs(5)).is_ok());
        let (key, why) = settings.check(Duration::from_secs(10)).expect_err("too short");
        assert!(key == "user_timeout" && why.contains("shorter than the link's timeout of 10s"), "{why}");
    }
}
