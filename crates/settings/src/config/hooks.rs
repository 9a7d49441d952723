//! Hooks: commands and addresses that are told of events.

use std::path::PathBuf;
use std::time::Duration;

use crate::events::EventKind;
use crate::forms::{ValueForm, count, duration, list, maybe, path};
use crate::keys::{Takes, keyed};
use crate::limits;
use crate::names::{GroupName, HookName};
use crate::role_hooks::command;

/// Which events a hook gets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HookEvents {
    All,
    Kinds(Vec<EventKind>),
}

/// Where a webhook sends events: `http://HOST[:PORT]/PATH` or `https://…`, checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HookUrl {
    text: String,
    is_encrypted: bool,
    host: String,
    port: u16,
    target: String,
}

keyed! {
    /// One hook; exactly one of `command` and `url` is there.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct ConfiguredHook, takes(Takes::Restart) {
        "name" => name: HookName =
            ValueForm::new("name", "a name", HookName::missing(), |text, _| HookName::parse(text), HookName::to_string)
                .required("add a name, which events and the log call the hook by");
            choice "\"pager\"", "by which events and the log call it",
            "by which events and the log call the hook; unique. Its position in the log is kept under this name";
        "events" => events: HookEvents = events();
            "all of them, or a list such as [\"link-lost\", \"rpo-missed\"]",
            "which [kinds](events.md#kinds) the hook gets: a list, or `\"*\"` for all of them. What tells of hooks never starts one";
        /// Of these groups alone; empty: all, and what is of no group.
        "groups" => groups: Vec<GroupName> = list(
                "names".to_owned(),
                ValueForm::new("name", "names", GroupName::parse("g").expect("a name"), |text, _| GroupName::parse(text), GroupName::to_string),
            ).by_default("all groups, the node and its links");
            choice "[\"db\"]", "only of these; default: all groups, the node and its links",
            "events of these groups alone; without the key also those of the node and of its links";
        /// The program and its arguments; empty with a `url`.
        "command" => command: Vec<String> = command();
            choice "[\"/usr/local/bin/page\", \"--short\"]", "a program that gets each event as JSON on its standard input",
            "a program by its whole path, and its arguments; no shell reads them. It gets [the event](events.md#a-command) as JSON on its standard input. Either this or `url`";
        "url" => url: Option<HookUrl> = maybe(url()).by_default("none");
            choice "\"https://alerts.example.com/farshore\"", "or an address that each event is sent to, by POST",
            "an address that [the event is sent to](events.md#a-webhook), by POST; an answer 200 to 299 is taken as yes. Either this or `command`";
        /// Whom an `https` address is believed with; `None`: the system's authorities.
        "ca" => ca: Option<PathBuf> = maybe(path()).by_default("the system's authorities");
            choice "\"/etc/farshore/alerts-ca.pem\"", "authorities for https; default: those of the system",
            "for `https`: a file of authorities in PEM form, in place of the system's";
        /// Of each attempt.
        "timeout" => timeout: Duration = duration(limits::HOOK_TIMEOUT);
            "for each attempt; a command that takes longer is killed with its process group",
            "for each attempt. A command that takes longer is killed with all processes of its group";
        /// After the first attempt.
        "retries" => retries: u32 = count(limits::HOOK_RETRIES, "attempts");
            "further attempts, after 1 s, 2 s, 4 s and so on, at most 1 min",
            "further attempts, after 1 s, 2 s, 4 s and so on, at most 1 min. After the last one the event is given up for this hook, and an event `hook-failed` says so";
    }
}

impl ConfiguredHook {
    pub fn wants(&self, kind: &str, group: Option<&str>) -> bool {
        let Ok(kind) = EventKind::parse(kind) else { return false };
        let is_kind = match &self.events {
            HookEvents::All => true,
            HookEvents::Kinds(kinds) => kinds.contains(&kind),
        };
        let is_group =
            self.groups.is_empty() || group.is_some_and(|group| self.groups.iter().any(|name| name.as_str() == group));
        kind.starts_hooks() && is_kind && is_group
    }
}

fn events() -> ValueForm<HookEvents> {
    let write = |events: &HookEvents| match events {
        HookEvents::All => "*".to_owned(),
        HookEvents::Kinds(kinds) => kinds.iter().map(|kind| kind.as_str()).collect::<Vec<_>>().join(", "),
    };
    let bounds = "kinds of events, or `\"*\"`";
    ValueForm::new("word", bounds, HookEvents::All, |text, _| all_events(text), write).loaded(|sheet, hook, key, _| {
        if !hook.is_list(key) {
            return sheet.value(hook, key, all_events);
        }
        let kinds = sheet.values(hook, key, |text| match text {
            "*" => Err("\"*\" stands alone: write events = \"*\"".to_owned()),
            kind => EventKind::parse(kind).and_then(starts_hooks),
        })?;
        Some(HookEvents::Kinds(kinds))
    })
}

fn all_events(text: &str) -> Result<HookEvents, String> {
    match text {
        "*" => Ok(HookEvents::All),
        kind => match EventKind::parse(kind) {
            Ok(_) => Err(format!("write it as a list: [{kind:?}]")),
            Err(unknown) => Err(unknown),
        },
    }
}

fn starts_hooks(kind: EventKind) -> Result<EventKind, String> {
    let word = kind.as_str();
    let why =
        || format!("{word:?} tells of a hook and never starts one, or a hook would be called for its own failure");
    kind.starts_hooks().then_some(kind).ok_or_else(why)
}

fn url() -> ValueForm<HookUrl> {
    let nowhere =
        HookUrl { text: String::new(), is_encrypted: false, host: String::new(), port: 0, target: String::new() };
    let bounds = "`http://…` or `https://…`";
    ValueForm::new("url", bounds, nowhere, |text, _| HookUrl::parse(text), |url: &HookUrl| url.text.clone())
}

impl HookUrl {
    /// # Errors
    /// A sentence: what is wrong with the address and how one is written.
    pub fn parse(text: &str) -> Result<HookUrl, String> {
        let advice = "write it as \"https://HOST/PATH\" or \"http://HOST:PORT/PATH\"";
        let wrong = |why: &str| Err(format!("{text:?} {why}; {advice}"));
        if text.len() > limits::HOOK_URL_BYTES_MAX {
            return Err(format!("the address has {} bytes; the most is {}", text.len(), limits::HOOK_URL_BYTES_MAX));
        }
        let (is_encrypted, rest) = match (text.strip_prefix("https://"), text.strip_prefix("http://")) {
            (Some(rest), _) => (true, rest),
            (_, Some(rest)) => (false, rest),
            _ => return wrong("is no address of a webhook: it begins with neither http:// nor https://"),
        };
        if !text.chars().all(|letter| letter.is_ascii_graphic()) || text.contains('"') {
            return wrong("holds blanks, quotes or letters that an address has only in their %XX form");
        }
        if text.contains('#') {
            return wrong("has a part behind \"#\", which is never sent");
        }
        let at = rest.find(['/', '?']).unwrap_or(rest.len());
        let (authority, target) = rest.split_at(at);
        if authority.contains('@') {
            return wrong(
                "has a user name before \"@\", which would stand in logs; let the server know the hook by its path",
            );
        }
        let (host, port) = split_port(authority);
        let port = match port {
            None => {
                if is_encrypted {
                    443
                } else {
                    80
                }
            }
            Some(port) => match port.parse::<u16>() {
                Ok(port) if port > 0 => port,
                _ => return wrong("has no port from 1 to 65535 behind the \":\""),
            },
        };
        let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
        let is_host = match bare {
            Some(address) => address.parse::<std::net::Ipv6Addr>().is_ok(),
            None => !host.is_empty() && host.chars().all(|c| c.is_ascii_alphanumeric() || ".-_".contains(c)),
        };
        if !is_host {
            return wrong("names no host");
        }
        let target = if target.starts_with('/') { target.to_owned() } else { format!("/{target}") };
        let host = bare.unwrap_or(host).to_owned();
        Ok(HookUrl { text: text.to_owned(), is_encrypted, host, port, target })
    }

    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// `https`.
    pub fn is_encrypted(&self) -> bool {
        self.is_encrypted
    }

    /// A name or an IP address, without brackets.
    pub fn host(&self) -> &str {
        &self.host
    }

    pub fn port(&self) -> u16 {
        self.port
    }

    /// Path and question, as the first line of a request has them.
    pub fn target(&self) -> &str {
        &self.target
    }
}

/// The port behind a host; colons inside of brackets are the host's own.
fn split_port(authority: &str) -> (&str, Option<&str>) {
    match authority.rsplit_once(':') {
        Some((host, port)) if !port.contains(']') => (host, Some(port)),
        _ => (authority, None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_taken_apart() {
        for (text, is_encrypted, host, port, target) in [
            ("http://127.0.0.1:8080/a?b=c", false, "127.0.0.1", 8080, "/a?b=c"),
            ("https://alerts.example.com", true, "alerts.example.com", 443, "/"),
            ("https://[fd00::1]/x", true, "fd00::1", 443, "/x"),
            ("http://[::1]:81?q", false, "::1", 81, "/?q"),
        ] {
            let url = HookUrl::parse(text).expect(text);
            assert_eq!((url.is_encrypted(), url.host(), url.port(), url.target()), (is_encrypted, host, port, target));
        }
    }

    #[test]
    fn bad_addresses_are_explained() {
        for (text, why) in [
            ("ftp://x", "neither http:// nor https://"),
            ("alerts.example.com", "neither http://"),
            ("http://", "names no host"),
            ("http://a b/", "blanks"),
            ("http://ü/", "%XX"),
            ("http://me:word@x/", "user name"),
            ("http://x:0/", "port from 1"),
            ("http://x:99999/", "port from 1"),
            ("http://[::g]/", "names no host"),
            ("http://x/#y", "never sent"),
        ] {
            let error = HookUrl::parse(text).expect_err(text);
            assert!(error.contains(why), "{text}: {error}");
        }
    }

    #[test]
    fn a_hook_gets_what_it_wants_and_never_what_tells_of_hooks() {
        let mut hook = ConfiguredHook::default();
        assert!(hook.wants("state", Some("db")) && hook.wants("daemon-started", None));
        assert!(!hook.wants("hook-failed", None) && !hook.wants("hook-overflow", None) && !hook.wants("unheard", None));
        hook.groups = vec![GroupName::parse("db").expect("a name")];
        assert!(hook.wants("state", Some("db")) && !hook.wants("state", Some("web")) && !hook.wants("link-lost", None));
        hook.events = HookEvents::Kinds(vec![EventKind::RpoMissed]);
        assert!(hook.wants("rpo-missed", Some("db")) && !hook.wants("state", Some("db")));
    }
}
