//! What a client may ask.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// What a client may ask. Waiting is the client's business (it asks for status again), so that it outlives a restart of
/// the daemon and costs the daemon nothing.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "request", rename_all = "kebab-case", deny_unknown_fields)]
pub enum ApiRequest {
    /// All groups, or one.
    Status {
        #[serde(default, skip_serializing_if = "Option::is_none")]
        group: Option<String>,
    },
    /// The same, and beside it what the daemons of the peers say of themselves.
    StatusOfBoth {
        #[serde(default, skip_serializing_if = "Option::is_none")]
        group: Option<String>,
    },
    /// A request that the daemon of another node answers, or of this one.
    On {
        node: String,
        order: Box<ApiRequest>,
    },
    /// Who is attached to the exports, or to those of one group.
    Clients {
        #[serde(default, skip_serializing_if = "Option::is_none")]
        group: Option<String>,
    },
    /// What would be sent to the copy of a group, and from where.
    ConnectPreview {
        group: String,
    },
    /// Stop sending; only dirty bits are set. With `volume`: of that one alone, and the others go on in their order.
    Logging {
        group: String,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        volume: Option<String>,
    },
    /// Bring the secondary up to date: dirty regions, or with `full` whatever differs.
    Sync {
        group: String,
        #[serde(default)]
        full: bool,
        /// With `full`: everything is sent, and nothing of it compared.
        #[serde(default, skip_serializing_if = "is_false")]
        no_compare: bool,
        /// A program orders it: where an operator is asked whose content counts, this is no answer, and is refused. Never with `full`.
        #[serde(default, skip_serializing_if = "is_false")]
        answers_nothing: bool,
        /// A volume that was set aside is part of the order again. Never with `full`.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        volume: Option<String>,
    },
    /// All or none of the keys; the value `default` gives a key back to the configuration file.
    Set {
        group: String,
        settings: BTreeMap<String, String>,
    },
    /// Settings of all links of this node, all or none; they connect again. The value `default` gives a key back.
    SetLink {
        settings: BTreeMap<String, String>,
    },
    /// How the link to a peer did, from a moment on (milliseconds since 1970). The peer may be left out where there is one.
    LinkHistory {
        #[serde(default, skip_serializing_if = "Option::is_none")]
        peer: Option<String>,
        #[serde(default)]
        since_unix_ms: u64,
    },
    /// Refused while clients are attached, unless they may be cut off.
    Demote {
        group: String,
        #[serde(default, skip_serializing_if = "is_false")]
        close_clients: bool,
        /// No command of the configuration is run before or after it.
        #[serde(default, skip_serializing_if = "is_false")]
        skip_hooks: bool,
    },
    Promote {
        group: String,
        #[serde(default)]
        force: bool,
        /// By force, and only while the peer window proves that nothing is lost.
        #[serde(default, skip_serializing_if = "is_false")]
        in_window: bool,
        /// The same.
        #[serde(default, skip_serializing_if = "is_false")]
        skip_hooks: bool,
        /// Within a daemon: the peer hands over, and the command before the promotion has run.
        #[serde(skip)]
        is_announced: bool,
    },
    /// Start a group that failed anew, from what is on record.
    Reset {
        group: String,
    },
    /// The group goes on without a volume of this node whose disk is dead. Refused while clients are attached to that volume, unless they
    /// may be cut off.
    DetachVolume {
        group: String,
        volume: String,
        #[serde(default, skip_serializing_if = "is_false")]
        close_clients: bool,
        /// Also where the other node is not known to have what counts of it.
        #[serde(default, skip_serializing_if = "is_false")]
        force: bool,
    },
    /// The volume has a disk again, which holds nothing of it.
    AttachVolume {
        group: String,
        volume: String,
    },
    /// The primary hands over: to the node that is named, or to the one that the configuration has as the primary. Refused while clients
    /// are attached, unless they may be cut off; they are held for so many milliseconds at most.
    Switchover(SwitchoverOrder),
    /// Between daemons: the primary is about to hand over to the node that is asked, which runs its command before the promotion.
    TakeOver {
        group: String,
        #[serde(default, skip_serializing_if = "is_false")]
        skip_hooks: bool,
        /// It is to serve the clients of the node that asks, and nobody else: a reverse sync.
        #[serde(default, skip_serializing_if = "is_false")]
        serves_asker: bool,
        /// It may lack something: that is given up.
        #[serde(default, skip_serializing_if = "is_false")]
        gives_up: bool,
        /// Which reverse sync that is.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        reverse: Option<u64>,
    },
    /// Between daemons, at the end of a reverse sync: commands have run, and the node that served hands over now. The one that is asked has requests of
    /// its clients wait, and answers once none is at the other node.
    Rest {
        group: String,
    },
    /// The peer serves the clients of this node, and sends its content, until this node takes over again.
    Reverse(ReverseOrder),
    /// Between daemons: the node that is asked is promoted, with what it has, for the clients of the secondary that asks, or `ends` to serve
    /// them.
    Lend {
        group: String,
        #[serde(default, skip_serializing_if = "is_false")]
        skip_hooks: bool,
        #[serde(default, skip_serializing_if = "is_false")]
        ends: bool,
        /// The asking node is the primary, and serves its clients itself.
        #[serde(default, skip_serializing_if = "is_false")]
        home_serves: bool,
        /// Which reverse sync it is about: of another one nothing ends, and nothing is promoted. Left out: of any.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        reverse: Option<u64>,
    },
    /// Between daemons: whether the node that is asked serves the clients of the one that asks, or, `is_home`, has its own served by that, as
    /// far as it has on record. It is refused as over if not.
    InReverse {
        group: String,
        #[serde(default, skip_serializing_if = "is_false")]
        is_home: bool,
        /// Which one; left out: any.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        reverse: Option<u64>,
        /// It is about to be stopped, or to begin: refused while the role of the node that is asked changes for it.
        #[serde(default, skip_serializing_if = "is_false")]
        ends: bool,
    },
    /// Resolve a fork: the content of this node is kept, and the other one yields. What that held where the two differ is saved first.
    Resolve {
        group: String,
        keep: String,
        #[serde(default, skip_serializing_if = "is_false")]
        discard: bool,
        #[serde(default, skip_serializing_if = "is_false")]
        close_clients: bool,
    },
    /// Its one half: this node's content is kept over the peer's of the generation with this tag.
    Keep {
        group: String,
        over: u64,
        #[serde(default, skip_serializing_if = "is_false")]
        discard: bool,
        /// This daemon's own order.
        #[serde(skip)]
        by_policy: bool,
    },
    /// The same half is taken back, as the other one came to nothing.
    TakeBack {
        group: String,
        over: u64,
    },
    /// Its other half: this node is demoted for the peer of the generation with this tag.
    Yield {
        group: String,
        to: u64,
        #[serde(default, skip_serializing_if = "is_false")]
        discard: bool,
        #[serde(default, skip_serializing_if = "is_false")]
        close_clients: bool,
        /// As of `Keep`.
        #[serde(skip)]
        by_policy: bool,
    },
    /// The named marks of a group.
    Marks {
        group: String,
    },
    /// Name a point of the write order: of these groups, at one moment.
    Mark {
        groups: Vec<String>,
        name: String,
    },
    /// Lock a named mark, or unlock it.
    LockMark {
        group: String,
        name: String,
        locked: bool,
    },
    /// Give a mark up. `discard`: also a rollback point of whose content a delta is to be made first; `override_lock`: also a locked one.
    DropMark {
        group: String,
        name: String,
        #[serde(default, skip_serializing_if = "is_false")]
        discard: bool,
        #[serde(default, skip_serializing_if = "is_false")]
        override_lock: bool,
    },
    /// Compare the copy with the primary's volumes, while writers go on. `sample_percent`: of what there is; all without it.
    Verify {
        group: String,
        #[serde(default, skip_serializing_if = "is_false")]
        repair: bool,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        sample_percent: Option<u8>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        rate_bytes_per_s: Option<u64>,
    },
    VerifyStop {
        group: String,
    },
    /// The peaks of the queue that people look at are counted anew.
    ResetPeaks {
        group: String,
    },
    /// Declare two copies equal that have no common history.
    AssumeEqual {
        group: String,
    },
    /// What the configuration file, as it is now, would have this daemon do.
    ConfigPlan,
    /// Take up the configuration file as it is now. Refused while clients are attached to a group that has to stop for it, unless they may
    /// be cut off.
    ConfigApply {
        #[serde(default, skip_serializing_if = "is_false")]
        close_clients: bool,
    },
    /// What became of an operation: of a request that changes something, by the name that its answer gave it.
    Operation {
        id: String,
    },
    /// What was counted since the daemon started.
    Counters,
    /// What clients asked of a group since the last such request; the first one begins it, and ten seconds without one end it.
    Record {
        group: String,
    },
    /// What changed on this node, oldest first: events with a higher number than `after`, from a moment on (milliseconds since 1970), so
    /// many at most. A reply has no more than 1 000 of them.
    Events {
        #[serde(default, skip_serializing_if = "Option::is_none")]
        group: Option<String>,
        #[serde(default)]
        since_unix_ms: u64,
        #[serde(default)]
        after: u64,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        limit: Option<usize>,
        /// Only the newest ones, so many.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        last: Option<usize>,
    },
}

/// A switchover as it is ordered.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SwitchoverOrder {
    pub group: String,
    /// The node that is to be primary; `None`: the one that the configuration has as that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub to: Option<String>,
    #[serde(default, skip_serializing_if = "is_false")]
    pub close_clients: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout_ms: Option<u64>,
    /// No command of the configuration is run before or after it, on either node.
    #[serde(default, skip_serializing_if = "is_false")]
    pub skip_hooks: bool,
    /// Nothing is changed: the answer is the refusal that it would get now, if any.
    #[serde(default, skip_serializing_if = "is_false")]
    pub only_asks: bool,
    /// It ends a reverse sync of the node that is to be primary, and counts as long as the other one serves its clients.
    #[serde(default, skip_serializing_if = "is_false")]
    pub ends_reverse: bool,
}

/// A reverse sync as it is ordered.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ReverseOrder {
    pub group: String,
    /// All is sent, not only what differs.
    #[serde(default, skip_serializing_if = "is_false")]
    pub full: bool,
    /// The one that is under way ends where it stands.
    #[serde(default, skip_serializing_if = "is_false")]
    pub stop: bool,
    /// What the peer lacks is given up.
    #[serde(default, skip_serializing_if = "is_false")]
    pub yes: bool,
    /// Of volumes whose disks have failed these alone, as they were named; left out: whichever have.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agreed_dead: Option<Vec<String>>,
    /// Nothing of it is saved.
    #[serde(default, skip_serializing_if = "is_false")]
    pub discard: bool,
    #[serde(default, skip_serializing_if = "is_false")]
    pub close_clients: bool,
    #[serde(default, skip_serializing_if = "is_false")]
    pub skip_hooks: bool,
}

impl ApiRequest {
    /// It only looks: nothing changes, and it is answered soon.
    pub fn is_look(&self) -> bool {
        match self {
            ApiRequest::Status { .. }
            | ApiRequest::StatusOfBoth { .. }
            | ApiRequest::Clients { .. }
            | ApiRequest::Marks { .. }
            | ApiRequest::ConnectPreview { .. }
            | ApiRequest::ConfigPlan
            | ApiRequest::InReverse { .. }
            | ApiRequest::Operation { .. }
            | ApiRequest::Counters
            | ApiRequest::Record { .. }
            | ApiRequest::Events { .. }
            | ApiRequest::LinkHistory { .. } => true,
            ApiRequest::Switchover(order) => order.only_asks,
            ApiRequest::On { order, .. } => order.is_look(),
            ApiRequest::Logging { .. }
            | ApiRequest::Sync { .. }
            | ApiRequest::Set { .. }
            | ApiRequest::SetLink { .. }
            | ApiRequest::Demote { .. }
            | ApiRequest::Resolve { .. }
            | ApiRequest::Keep { .. }
            | ApiRequest::TakeBack { .. }
            | ApiRequest::Yield { .. }
            | ApiRequest::Promote { .. }
            | ApiRequest::Reset { .. }
            | ApiRequest::DetachVolume { .. }
            | ApiRequest::AttachVolume { .. }
            | ApiRequest::TakeOver { .. }
            | ApiRequest::Rest { .. }
            | ApiRequest::Reverse(_)
            | ApiRequest::Lend { .. }
            | ApiRequest::Verify { .. }
            | ApiRequest::VerifyStop { .. }
            | ApiRequest::ResetPeaks { .. }
            | ApiRequest::AssumeEqual { .. }
            | ApiRequest::ConfigApply { .. }
            | ApiRequest::Mark { .. }
            | ApiRequest::LockMark { .. }
            | ApiRequest::DropMark { .. } => false,
        }
    }
}

pub(super) fn is_false(flag: &bool) -> bool {
    !flag
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(request: &ApiRequest) -> String {
        serde_json::to_string(request).expect("serialises")
    }

    #[test]
    fn a_switchover_has_its_documented_form() {
        let group = || "db".to_owned();
        for (request, text) in [
            (
                ApiRequest::Switchover(SwitchoverOrder { group: group(), ..SwitchoverOrder::default() }),
                r#"{"request":"switchover","group":"db"}"#,
            ),
            (
                ApiRequest::Switchover(SwitchoverOrder {
                    group: group(),
                    to: Some("beta".into()),
                    close_clients: true,
                    timeout_ms: Some(5000),
                    ..SwitchoverOrder::default()
                }),
                r#"{"request":"switchover","group":"db","to":"beta","close_clients":true,"timeout_ms":5000}"#,
            ),
            (
                ApiRequest::TakeOver {
                    group: group(),
                    skip_hooks: false,
                    serves_asker: false,
                    gives_up: false,
                    reverse: None,
                },
                r#"{"request":"take-over","group":"db"}"#,
            ),
            (ApiRequest::Rest { group: group() }, r#"{"request":"rest","group":"db"}"#),
            (
                ApiRequest::Lend {
                    group: group(),
                    skip_hooks: false,
                    ends: true,
                    home_serves: true,
                    reverse: Some(u64::MAX),
                },
                r#"{"request":"lend","group":"db","ends":true,"home_serves":true,"reverse":18446744073709551615}"#,
            ),
        ] {
            assert_eq!(line(&request), text);
            assert_eq!(serde_json::from_str::<ApiRequest>(text).expect("it is one"), request);
        }
    }

    #[test]
    fn a_verify_has_its_documented_form() {
        let group = || "db".to_owned();
        for (request, text) in [
            (
                ApiRequest::Verify { group: group(), repair: false, sample_percent: None, rate_bytes_per_s: None },
                r#"{"request":"verify","group":"db"}"#,
            ),
            (
                ApiRequest::Verify {
                    group: group(),
                    repair: true,
                    sample_percent: Some(5),
                    rate_bytes_per_s: Some(1_000_000),
                },
                r#"{"request":"verify","group":"db","repair":true,"sample_percent":5,"rate_bytes_per_s":1000000}"#,
            ),
            (ApiRequest::VerifyStop { group: group() }, r#"{"request":"verify-stop","group":"db"}"#),
            (ApiRequest::ResetPeaks { group: group() }, r#"{"request":"reset-peaks","group":"db"}"#),
            (ApiRequest::AssumeEqual { group: group() }, r#"{"request":"assume-equal","group":"db"}"#),
        ] {
            assert_eq!(line(&request), text);
            assert_eq!(serde_json::from_str::<ApiRequest>(text).expect(text), request);
        }
    }

    #[test]
    fn a_dead_disk_has_its_documented_form() {
        let (group, volume) = (|| "db".to_owned(), || "data".to_owned());
        for (request, text) in [
            (
                ApiRequest::DetachVolume { group: group(), volume: volume(), close_clients: false, force: false },
                r#"{"request":"detach-volume","group":"db","volume":"data"}"#,
            ),
            (
                ApiRequest::AttachVolume { group: group(), volume: volume() },
                r#"{"request":"attach-volume","group":"db","volume":"data"}"#,
            ),
        ] {
            assert_eq!(line(&request), text);
            assert_eq!(serde_json::from_str::<ApiRequest>(text).expect(text), request);
        }
    }

    fn promotion(group: String) -> ApiRequest {
        ApiRequest::Promote { group, force: false, in_window: false, skip_hooks: false, is_announced: false }
    }

    fn sync(full: bool, no_compare: bool, answers_nothing: bool, volume: Option<&str>) -> ApiRequest {
        ApiRequest::Sync { group: "db".into(), full, no_compare, answers_nothing, volume: volume.map(str::to_owned) }
    }

    #[test]
    fn requests_have_their_documented_form() {
        let group = || "db".to_owned();
        for (request, text) in [
            (ApiRequest::Status { group: None }, r#"{"request":"status"}"#),
            (ApiRequest::Status { group: Some(group()) }, r#"{"request":"status","group":"db"}"#),
            (ApiRequest::StatusOfBoth { group: Some(group()) }, r#"{"request":"status-of-both","group":"db"}"#),
            (
                ApiRequest::On { node: "beta".into(), order: Box::new(ApiRequest::Clients { group: None }) },
                r#"{"request":"on","node":"beta","order":{"request":"clients"}}"#,
            ),
            (sync(true, false, false, None), r#"{"request":"sync","group":"db","full":true}"#),
            (sync(true, true, false, None), r#"{"request":"sync","group":"db","full":true,"no_compare":true}"#),
            (sync(false, false, true, None), r#"{"request":"sync","group":"db","full":false,"answers_nothing":true}"#),
            (
                sync(false, false, false, Some("data")),
                r#"{"request":"sync","group":"db","full":false,"volume":"data"}"#,
            ),
            (ApiRequest::Logging { group: group(), volume: None }, r#"{"request":"logging","group":"db"}"#),
            (
                ApiRequest::Logging { group: group(), volume: Some("data".into()) },
                r#"{"request":"logging","group":"db","volume":"data"}"#,
            ),
            (
                ApiRequest::Set { group: group(), settings: BTreeMap::from([("mode".into(), "sync".into())]) },
                r#"{"request":"set","group":"db","settings":{"mode":"sync"}}"#,
            ),
            (promotion(group()), r#"{"request":"promote","group":"db","force":false}"#),
            (ApiRequest::Reset { group: group() }, r#"{"request":"reset","group":"db"}"#),
            (
                ApiRequest::Demote { group: group(), close_clients: false, skip_hooks: false },
                r#"{"request":"demote","group":"db"}"#,
            ),
            (
                ApiRequest::Demote { group: group(), close_clients: true, skip_hooks: true },
                r#"{"request":"demote","group":"db","close_clients":true,"skip_hooks":true}"#,
            ),
            (ApiRequest::Counters, r#"{"request":"counters"}"#),
            (ApiRequest::ConfigPlan, r#"{"request":"config-plan"}"#),
            (
                ApiRequest::InReverse { group: group(), is_home: false, reverse: None, ends: false },
                r#"{"request":"in-reverse","group":"db"}"#,
            ),
            (
                ApiRequest::InReverse { group: group(), is_home: true, reverse: Some(5), ends: true },
                r#"{"request":"in-reverse","group":"db","is_home":true,"reverse":5,"ends":true}"#,
            ),
            (ApiRequest::ConfigApply { close_clients: false }, r#"{"request":"config-apply"}"#),
            (ApiRequest::ConfigApply { close_clients: true }, r#"{"request":"config-apply","close_clients":true}"#),
            (ApiRequest::ConnectPreview { group: group() }, r#"{"request":"connect-preview","group":"db"}"#),
            (ApiRequest::Operation { id: "alpha-0f-7".into() }, r#"{"request":"operation","id":"alpha-0f-7"}"#),
            (
                ApiRequest::SetLink { settings: BTreeMap::from([("buffers".into(), "4MiB".into())]) },
                r#"{"request":"set-link","settings":{"buffers":"4MiB"}}"#,
            ),
            (
                ApiRequest::Events { group: None, since_unix_ms: 0, after: 5, limit: None, last: None },
                r#"{"request":"events","since_unix_ms":0,"after":5}"#,
            ),
            (
                ApiRequest::LinkHistory { peer: Some("beta".into()), since_unix_ms: 5 },
                r#"{"request":"link-history","peer":"beta","since_unix_ms":5}"#,
            ),
        ] {
            assert_eq!(line(&request), text);
            assert_eq!(serde_json::from_str::<ApiRequest>(text).expect(text), request);
        }
        assert!(serde_json::from_str::<ApiRequest>(r#"{"request":"status","grp":"db"}"#).is_err());
        assert!(serde_json::from_str::<ApiRequest>(r#"{"request":"format","group":"db"}"#).is_err());
    }
}
