//! Commands that change something, as events: what was asked, by whom, and what came of it.
//!
//! Who asked is what the kernel says of the other end of the socket. What the process says of itself (its name, its environment) is a
//! hint beside that.

use std::collections::BTreeMap;
use std::io::Read;
use std::path::Path;
use std::time::Duration;

use settings::events::EventKind;
use tokio::sync::Semaphore;

use crate::api::refusals::DeskRefusal;
use crate::api::server::Asker;
use crate::api::{ApiRequest, OperationState, RefusalView, Reply, ReverseOrder, SwitchoverOrder};
use crate::events::{NewEvent, cut};

/// Most of a process's environment that is looked through.
const ENVIRONMENT_BYTES_MAX: u64 = 256 << 10;
/// Most of the list of users.
const USERS_BYTES_MAX: u64 = 4 << 20;
const SKIP_HOOKS: &str = "--skip-hooks";
/// Warnings of an answer that its event keeps.
const WARNINGS_MAX: usize = 4;
/// Looks at once. Each has a thread, which it keeps while a disk hangs: the daemon's other files are read and written by the rest of them.
static LOOKS: Semaphore = Semaphore::const_new(4);
/// What the audit system says of who never logged in.
const NEVER_LOGGED_IN: u32 = u32::MAX;

/// Names one volume of a group.
const VOLUME: &str = "--volume ";

fn volume_words(volume: Option<&str>) -> String {
    volume.map(|volume| format!("{VOLUME}{volume}")).unwrap_or_default()
}

/// A request that changes something, in the words of the command line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::daemon) struct CommandText {
    command: &'static str,
    group: Option<String>,
    arguments: String,
    /// The name by which its end can be waited for, where it is done here.
    operation: Option<String>,
}

impl CommandText {
    /// `None`: the request only looks.
    pub fn of(request: &ApiRequest) -> Option<CommandText> {
        let flag = |is_set: bool, word: &str| if is_set { word.to_owned() } else { String::new() };
        let flags = |all: &[(bool, &str)]| {
            all.iter().filter(|(is_set, _)| *is_set).map(|(_, word)| *word).collect::<Vec<_>>().join(" ")
        };
        let (command, group, arguments) = match request {
            ApiRequest::Logging { group, volume } => ("logging", Some(group), volume_words(volume.as_deref())),
            ApiRequest::Sync { group, full: false, volume: Some(volume), .. } => {
                ("sync", Some(group), volume_words(Some(volume)))
            }
            ApiRequest::Sync { group, full, no_compare, .. } => {
                ("sync", Some(group), flags(&[(*full, "--full"), (*no_compare, "--no-compare")]))
            }
            ApiRequest::Set { group, settings } => ("set", Some(group), words(settings)),
            ApiRequest::SetLink { settings } => ("link set", None, words(settings)),
            ApiRequest::ConfigApply { close_clients } => {
                ("config apply", None, flag(*close_clients, "--close-clients"))
            }
            ApiRequest::Demote { group, close_clients: closes, skip_hooks } => {
                ("demote", Some(group), flags(&[(*closes, "--close-clients"), (*skip_hooks, SKIP_HOOKS)]))
            }
            ApiRequest::Promote { group, force, in_window, skip_hooks, .. } => (
                "promote",
                Some(group),
                flags(&[(*force, "--force"), (*in_window, "--in-window"), (*skip_hooks, SKIP_HOOKS)]),
            ),
            ApiRequest::Reset { group } => ("reset", Some(group), String::new()),
            ApiRequest::DetachVolume { group, volume, close_clients, force } => {
                let flags = flags(&[(*close_clients, " --close-clients"), (*force, " --force")]);
                ("group detach", Some(group), format!("{volume}{flags}"))
            }
            ApiRequest::AttachVolume { group, volume } => ("group attach", Some(group), volume.clone()),
            ApiRequest::Switchover(order) if !order.only_asks => {
                ("switchover", Some(&order.group), switchover_words(order))
            }
            ApiRequest::Reverse(order) => ("sync", Some(&order.group), reverse_words(order)),
            ApiRequest::Lend { group, ends, .. } => ("lend", Some(group), flag(*ends, "--stop")),
            ApiRequest::Keep { .. } | ApiRequest::TakeBack { .. } | ApiRequest::Yield { .. } => of_half(request)?,
            ApiRequest::Mark { .. } | ApiRequest::LockMark { .. } | ApiRequest::DropMark { .. } => of_mark(request)?,
            ApiRequest::Verify { group, .. } => ("verify", Some(group), verify_words(request)),
            ApiRequest::ResetPeaks { group } => ("queue", Some(group), "--reset-peaks".to_owned()),
            ApiRequest::VerifyStop { group } => ("verify", Some(group), "--stop".to_owned()),
            ApiRequest::AssumeEqual { group } => ("assume-equal", Some(group), String::new()),
            // Whoever carries it tells of the order in it, or of the two. A switchover is told of by the node that hands over.
            ApiRequest::On { .. }
            | ApiRequest::Switchover(_)
            | ApiRequest::TakeOver { .. }
            | ApiRequest::Rest { .. }
            | ApiRequest::Resolve { .. }
            | ApiRequest::Status { .. }
            | ApiRequest::StatusOfBoth { .. }
            | ApiRequest::Marks { .. }
            | ApiRequest::Clients { .. }
            | ApiRequest::LinkHistory { .. }
            | ApiRequest::Operation { .. }
            | ApiRequest::ConnectPreview { .. }
            | ApiRequest::ConfigPlan
            | ApiRequest::InReverse { .. }
            | ApiRequest::Counters
            | ApiRequest::Record { .. }
            | ApiRequest::Events { .. } => return None,
        };
        Some(CommandText { command, group: group.cloned(), arguments, operation: None })
    }

    pub fn verb(&self) -> &'static str {
        self.command
    }

    /// It is about one volume, and the others of the group go on.
    pub fn is_of_volume(&self) -> bool {
        self.arguments.starts_with(VOLUME)
    }

    pub fn group(&self) -> Option<&str> {
        self.group.as_deref()
    }

    pub fn of_operation(self, id: String) -> CommandText {
        CommandText { operation: Some(id), ..self }
    }

    /// Why nobody knows how it ended.
    pub fn lost(&self, refusal: DeskRefusal) -> RefusalView {
        RefusalView::of_lost(refusal, self.command, &self.arguments)
    }

    /// The event of its end. `to_node`: who was to do it, if not this node.
    pub fn event(self, who: &CommandSource, to_node: Option<&str>, end: CommandEnd, took: Duration) -> NewEvent {
        let CommandEnd { result, answer, warnings, refusal } = end;
        let typed = [self.command, &self.arguments].iter().filter(|word| !word.is_empty()).copied().collect::<Vec<_>>();
        let there = to_node.map(|node| format!(" on node {node}")).unwrap_or_default();
        let text = format!("'{}'{there} by {}: {result}: {answer}", typed.join(" "), who.sentence());
        let event = NewEvent::now(EventKind::Command, text);
        let event = match &self.group {
            Some(group) => event.of_group(group),
            None => event,
        };
        let arguments = (!self.arguments.is_empty()).then_some(self.arguments);
        let event = event.with("command", self.command).with_known("arguments", arguments);
        let event = event.with_known("operation", self.operation);
        let event = event.with("result", result).with("answer", answer).with_ms("took_ms", Some(took));
        // For whoever asks after a restart how it ended.
        let (code, retry) = refusal.map(|refusal| (refusal.code, refusal.retry.as_str().to_owned())).unzip();
        let event = event.with_known("warnings", (!warnings.is_empty()).then_some(warnings));
        let event = event.with_known("refusal", code).with_known("retry", retry);
        who.add_to(event.with_known("to_node", to_node))
    }
}

/// The options of a switchover as they are typed.
pub(in crate::daemon) fn switchover_words(order: &SwitchoverOrder) -> String {
    let to = order.to.as_ref().map(|node| format!("--to {node}"));
    let timeout = order.timeout_ms.map(|ms| format!("--timeout {ms}ms"));
    let clients = order.close_clients.then(|| "--close-clients".to_owned());
    let hooks = order.skip_hooks.then(|| SKIP_HOOKS.to_owned());
    to.into_iter().chain(timeout).chain(clients).chain(hooks).collect::<Vec<_>>().join(" ")
}

/// The options of a reverse sync as they are typed.
fn reverse_words(order: &ReverseOrder) -> String {
    let words = [
        (true, "--reverse"),
        (order.full, "--full"),
        (order.stop, "--stop"),
        (order.yes, "--yes"),
        (order.discard, "--discard"),
        (order.close_clients, "--close-clients"),
        (order.skip_hooks, SKIP_HOOKS),
    ];
    words.iter().filter(|(is_set, _)| *is_set).map(|(_, word)| *word).collect::<Vec<_>>().join(" ")
}

/// Behind an order that nobody typed.
fn keep_words(over: u64, discard: bool, by_policy: bool) -> String {
    let discard = if discard { " --discard" } else { "" };
    format!("{over:016x}{discard}{}", policy_words(by_policy))
}

fn policy_words(by_policy: bool) -> &'static str {
    if by_policy { " by after_forced_failover" } else { "" }
}

/// Options of a verify as they are typed.
pub(in crate::daemon) fn verify_words(request: &ApiRequest) -> String {
    let ApiRequest::Verify { repair, sample_percent, rate_bytes_per_s, .. } = request else { return String::new() };
    let repair = repair.then(|| "--repair".to_owned());
    let sample = sample_percent.map(|percent| format!("--sample {percent}"));
    let rate = rate_bytes_per_s.map(|rate| format!("--rate {}", units::exact::rate_text(rate.saturating_mul(8))));
    repair.into_iter().chain(sample).chain(rate).collect::<Vec<_>>().join(" ")
}

/// What came of a command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::daemon) struct CommandEnd {
    /// A word of the field `result`.
    result: &'static str,
    /// Its warnings are in it too.
    answer: String,
    warnings: Vec<String>,
    refusal: Option<RefusalView>,
}

impl CommandEnd {
    pub fn new(result: &'static str, answer: impl Into<String>) -> CommandEnd {
        CommandEnd { result, answer: answer.into(), warnings: Vec::new(), refusal: None }
    }

    pub fn because(self, refusal: RefusalView) -> CommandEnd {
        CommandEnd { refusal: Some(refusal), ..self }
    }

    pub fn of(reply: &Reply) -> CommandEnd {
        match reply {
            Reply::Ok { message, warnings, unchanged, .. } => {
                let result = match (unchanged, warnings.is_empty()) {
                    (true, _) => "unchanged",
                    (false, true) => "done",
                    (false, false) => "warning",
                };
                let told = warnings.iter().filter(|warning| !message.contains(*warning)).cloned();
                let answer = std::iter::once(message.clone()).chain(told).collect::<Vec<_>>().join("; ");
                let warnings = warnings.iter().take(WARNINGS_MAX).cloned().map(cut).collect();
                CommandEnd { warnings, ..CommandEnd::new(result, answer) }
            }
            Reply::Error { message, code, refusal, .. } => {
                let refusal = refusal.as_deref().cloned().unwrap_or_else(|| RefusalView::of(code));
                let result = match refusal.outcome(code) {
                    OperationState::Failed => "failed",
                    // Of another node it is not told how it ended.
                    OperationState::Unknown | OperationState::Running => "unknown",
                    _ => "refused",
                };
                CommandEnd::new(result, message.clone()).because(refusal)
            }
            _ => CommandEnd::new("done", ""),
        }
    }
}

/// Keys and values as they are typed.
fn words(settings: &BTreeMap<String, String>) -> String {
    settings.iter().map(|(key, value)| format!("{key}={value}")).collect::<Vec<_>>().join(" ")
}

/// Who gave a command.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(in crate::daemon) struct CommandSource {
    /// Where it was typed, if not here.
    from_node: Option<String>,
    uid: Option<u32>,
    pid: Option<i32>,
    user: Option<String>,
    program: Option<String>,
    login: Option<String>,
    sudo_user: Option<String>,
}

impl CommandSource {
    /// The same on a thread of its own, within this time: a disk that hangs keeps nobody from a command, and then nobody knows who gave
    /// it.
    pub async fn look_within(asker: Asker, patience: Duration) -> CommandSource {
        let look = async {
            let place = LOOKS.acquire().await.ok()?;
            let look = tokio::task::spawn_blocking(move || {
                let who = CommandSource::look(asker);
                drop(place);
                who
            });
            look.await.ok()
        };
        tokio::time::timeout(patience, look).await.ok().flatten().unwrap_or_default()
    }

    /// Looks while whoever asked still waits for the answer. Reads files of `/proc` and the list of users.
    pub fn look(asker: Asker) -> CommandSource {
        let users = read(Path::new("/etc/passwd"), USERS_BYTES_MAX);
        let user_of = |uid: u32| user_name(&users, uid);
        let of_process = |name: &str, most| {
            let read = asker.pid.map(|pid| read(Path::new(&format!("/proc/{pid}/{name}")), most));
            read.filter(|text| !text.is_empty())
        };
        let login = of_process("loginuid", 64).and_then(|text| text.trim().parse().ok());
        let login = login.filter(|uid| *uid != NEVER_LOGGED_IN);
        let program = of_process("comm", 64).map(|name| name.trim().to_owned());
        let environment = of_process("environ", ENVIRONMENT_BYTES_MAX).unwrap_or_default();
        let sudo_user = environment.split('\0').find_map(|entry| entry.strip_prefix("SUDO_USER="));
        CommandSource {
            uid: asker.uid,
            pid: asker.pid,
            user: asker.uid.and_then(user_of),
            program,
            login: login.map(|uid| user_of(uid).unwrap_or_else(|| uid.to_string())),
            sudo_user: sudo_user.filter(|name| !name.is_empty()).map(str::to_owned),
            from_node: asker.node,
        }
    }

    fn sentence(&self) -> String {
        if let Some(node) = &self.from_node {
            return format!("an operator on node {node}");
        }
        let who = match (&self.user, self.uid) {
            (Some(user), _) => user.clone(),
            (None, Some(uid)) => format!("user {uid}"),
            (None, None) => "nobody that the kernel names".to_owned(),
        };
        let behind = match (&self.login, &self.sudo_user) {
            (Some(login), _) if Some(login) != self.user.as_ref() => format!(" (logged in as {login})"),
            (None, Some(sudo)) => format!(" (by sudo of {sudo})"),
            _ => String::new(),
        };
        who + &behind
    }

    fn add_to(&self, event: NewEvent) -> NewEvent {
        let event = event
            .with_known("from_node", self.from_node.clone())
            .with_known("user", self.user.clone())
            .with_known("uid", self.uid);
        let event = event.with_known("pid", self.pid).with_known("program", self.program.clone());
        event.with_known("login", self.login.clone()).with_known("sudo_user", self.sudo_user.clone())
    }
}

/// A file's beginning as text; empty if it cannot be read.
fn read(path: &Path, most: u64) -> String {
    let mut bytes = Vec::new();
    let read = std::fs::File::open(path).and_then(|file| file.take(most).read_to_end(&mut bytes));
    if read.is_ok() { String::from_utf8_lossy(&bytes).into_owned() } else { String::new() }
}

/// The name of a user in the form of `/etc/passwd`. Users of a directory service are not looked up: that may take long.
fn user_name(users: &str, uid: u32) -> Option<String> {
    let mut lines = users.lines().map(|line| line.split(':').collect::<Vec<_>>());
    let found = lines.find(|fields| fields.get(2).and_then(|field| field.parse().ok()) == Some(uid))?;
    Some(found[0].to_owned())
}

/// Verb, group and arguments.
type Words<'a> = (&'static str, Option<&'a String>, String);

/// Of the halves of a `resolve`.
fn of_half(request: &ApiRequest) -> Option<Words<'_>> {
    Some(match request {
        ApiRequest::Keep { group, over, discard, by_policy } => {
            ("resolve keep", Some(group), keep_words(*over, *discard, *by_policy))
        }
        ApiRequest::TakeBack { group, over } => ("resolve take-back", Some(group), format!("{over:016x}")),
        ApiRequest::Yield { group, to, by_policy, .. } => {
            ("resolve yield", Some(group), format!("{to:016x}{}", policy_words(*by_policy)))
        }
        _ => return None,
    })
}

fn of_mark(request: &ApiRequest) -> Option<Words<'_>> {
    Some(match request {
        ApiRequest::Mark { groups, name } => {
            let others = groups.iter().skip(1).map(|group| format!(" {group}")).collect::<String>();
            let besides = if others.is_empty() { String::new() } else { format!(" (with{others})") };
            ("mark", groups.first(), format!("{name}{besides}"))
        }
        ApiRequest::LockMark { group, name, locked } => {
            (if *locked { "mark lock" } else { "mark unlock" }, Some(group), name.clone())
        }
        ApiRequest::DropMark { group, name, override_lock, .. } => {
            let overrides = if *override_lock { " --override-lock" } else { "" };
            ("mark drop", Some(group), format!("{name}{overrides}"))
        }
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use engine::RefusalCode;
    use serde_json::json;

    use super::*;
    use crate::api::ErrorCode;

    /// Each look that hung with a disk kept a thread, until none was left to read and write the daemon's files.
    #[tokio::test]
    async fn while_looks_hang_the_next_takes_no_thread_and_knows_nobody() {
        let hanging = LOOKS.acquire_many(4).await.expect("it is never closed");
        let asker = || Asker { uid: Some(0), ..Asker::default() };
        assert_eq!(CommandSource::look_within(asker(), Duration::from_millis(1)).await, CommandSource::default());
        drop(hanging);
        assert_eq!(CommandSource::look_within(asker(), Duration::from_secs(60)).await.uid, Some(0));
    }

    fn alice() -> CommandSource {
        let [user, login] = ["root", "alice"].map(|name| Some(name.to_owned()));
        CommandSource { uid: Some(0), pid: Some(7), user, login, ..CommandSource::default() }
    }

    #[test]
    fn a_command_tells_what_by_whom_and_what_came_of_it() {
        let request = ApiRequest::Promote {
            group: "db".to_owned(),
            force: true,
            in_window: false,
            skip_hooks: false,
            is_announced: false,
        };
        let text = CommandText::of(&request).expect("it changes something");
        let warned = Reply::done("db: primary", vec!["mind".to_owned()]);
        let record =
            text.clone().event(&alice(), None, CommandEnd::of(&warned), Duration::from_millis(5)).numbered(1, "alpha");
        assert_eq!(record.text, "'promote --force' by root (logged in as alice): warning: db: primary; mind");
        assert_eq!((record.group.as_deref(), record.fields["login"].as_str()), (Some("db"), Some("alice")));
        let refused = CommandEnd::of(&Reply::error(ErrorCode::Refused, "no"));
        let named = text.clone().of_operation("alpha-0f-7".to_owned());
        let refused = named.event(&alice(), None, refused, Duration::ZERO).numbered(1, "alpha");
        let told = ["result", "operation"].map(|field| refused.fields[field].as_str());
        assert_eq!(told, [Some("refused"), Some("alpha-0f-7")]);
        let cut_off = CommandEnd::of(&Reply::failed(DeskRefusal::DaemonStopping, "its data thread has ended"));
        assert_eq!(cut_off.result, "unknown", "it may be done all the same");
        let repeated = CommandEnd::of(&Reply::unchanged("db: already primary; nothing to do"));
        let repeated = text.event(&alice(), None, repeated, Duration::ZERO);
        assert_eq!(repeated.numbered(1, "alpha").fields["result"].as_str(), Some("unchanged"));
        let sync = CommandText::of(&ApiRequest::Sync {
            group: "g\u{1}".repeat(70_000),
            full: false,
            no_compare: false,
            answers_nothing: false,
            volume: None,
        })
        .expect("it changes something");
        let not_reached = CommandEnd::new("not-reached", "no way");
        let carried = sync.event(&alice(), Some("beta"), not_reached, Duration::ZERO).numbered(1, "alpha");
        assert_eq!(carried.text, "'sync' on node beta by root (logged in as alice): not-reached: no way");
        assert_eq!(
            (carried.fields["to_node"].as_str(), carried.fields["result"].as_str()),
            (Some("beta"), Some("not-reached"))
        );
        assert!(carried.line().len() < 2000, "whatever it was typed for");
        let settings = BTreeMap::from([("buffers".to_owned(), "4MiB".to_owned())]);
        let tuned = CommandText::of(&ApiRequest::SetLink { settings }).expect("it changes something");
        let tuned = tuned.event(&alice(), None, CommandEnd::of(&Reply::ok("link: done")), Duration::ZERO);
        let tuned = tuned.numbered(1, "alpha");
        assert_eq!((tuned.group, tuned.fields["arguments"].as_str()), (None, Some("buffers=4MiB")));
        assert_eq!(CommandText::of(&ApiRequest::Counters), None);
    }

    /// After a restart of the daemon a repeated demotion had warned of nothing, and each refusal was `refused`.
    #[test]
    fn an_event_keeps_warnings_and_refusals_for_whoever_asks_later() {
        let request = ApiRequest::Demote { group: "db".to_owned(), close_clients: false, skip_hooks: false };
        let record = |reply: &Reply| {
            let command = CommandText::of(&request).expect("it changes something");
            command.event(&alice(), None, CommandEnd::of(reply), Duration::ZERO).numbered(1, "alpha")
        };
        let mut repeated = Reply::unchanged("db: already secondary; nothing to do");
        let Reply::Ok { warnings, .. } = &mut repeated else { panic!("{repeated:?}") };
        warnings.extend(["64 KiB here may differ".to_owned(), "x".repeat(5000)]);
        let repeated = record(&repeated);
        assert_eq!(repeated.fields["result"], "unchanged");
        assert_eq!(repeated.fields["warnings"][0], "64 KiB here may differ");
        assert!(repeated.fields["answer"].as_str().is_some_and(|answer| answer.contains("may differ")), "{repeated:?}");
        assert!(repeated.line().len() < 5000, "{}", repeated.line().len());
        let refused = record(&Reply::refused(RefusalCode::RoleChanging, "db: not now"));
        let told = ["refusal", "retry", "result"].map(|field| refused.fields[field].clone());
        assert_eq!(told, [json!("role-changing"), json!("later"), json!("refused")]);
        let lost = record(&Reply::refused(RefusalCode::RecordUnknown, "db: a disk failed"));
        assert_eq!(lost.fields["result"], "unknown", "it may be on record");
        let done = record(&Reply::ok("db: demoted"));
        assert!(!["refusal", "retry", "warnings"].iter().any(|field| done.fields.contains_key(*field)), "{done:?}");
    }

    #[test]
    fn who_asked_is_found_by_the_kernels_word() {
        let me = rustix::process::geteuid().as_raw();
        let asker = Asker { uid: Some(me), pid: i32::try_from(std::process::id()).ok(), ..Asker::default() };
        let who = CommandSource::look(asker);
        assert_eq!(who.uid, Some(me));
        assert!(who.program.is_some(), "{who:?}");
        assert_eq!(CommandSource::look(Asker::default()).sentence(), "nobody that the kernel names");
        assert_eq!(user_name("root:x:0:0::/root:/bin/sh\nalice:x:1000:\n", 1000).as_deref(), Some("alice"));
        assert_eq!(user_name("root:x:0:0\nbroken", 5), None);
    }
}
