//! The handshake as a machine without I/O: fixed newstyle negotiation.
//!
//! A client may ask a bounded number of questions. Two of them choose an export: `GO`, and its elder `EXPORT_NAME`, which
//! cannot be refused in words but only by closing the connection. Where TLS has to come first, nothing else is answered
//! before it, and what was said in the open is forgotten. Until then a question costs its own bytes and a fixed
//! sentence: no export is looked up, and how many there are shows in nothing.

use super::check::SessionTerms;
use super::proto::{
    self, ClientOption, ExportQuery, MalformedMessage, MetaQuery, OptionHeader, option, reply, transmission,
};
use crate::frontend::{ExportInfo, Exports};

/// Questions beyond those that a client with one connection may fairly ask about each export (a listing asks three).
const OPTIONS_SPARE: u32 = 64;
const OPTIONS_PER_EXPORT: u32 = 4;
/// Questions where TLS has to come first: clients begin it with their first or second.
const OPTIONS_BEFORE_TLS: u32 = 16;
/// Lists of all exports in one handshake: a listing asks once.
const LISTS_MAX: u32 = 8;

/// What an option led to.
#[derive(Debug, PartialEq, Eq)]
pub enum NegotiationStep {
    Continue,
    /// The client chose an export that exists; [`Negotiation::welcome`] or [`Negotiation::turn_away`] follows.
    Enter(ExportChoice),
    /// The client is to be answered, then both begin TLS; [`Negotiation::encrypted`] follows.
    Encrypt,
    /// Close after what was said, for this reason.
    Close(&'static str),
}

/// Whether clients of a listener may, or must, encrypt.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Encryption {
    /// There is none.
    #[default]
    Off,
    /// The client decides.
    Offered,
    /// Nothing is told, and no export entered, in the clear.
    Required,
    /// It is on.
    On,
}

/// An export chosen by name, and what the client wants to know about it.
#[derive(Debug, PartialEq, Eq)]
pub struct ExportChoice {
    pub name: String,
    wants_name: bool,
    wants_description: bool,
    /// Chosen by `EXPORT_NAME`.
    plainly: bool,
    read_only: bool,
}

impl ExportChoice {
    fn plain<E: Exports + ?Sized>(export: &ExportInfo, exports: &E) -> ExportChoice {
        let (name, read_only) = (export.name.clone(), exports.is_read_only(&export.name));
        ExportChoice { name, wants_name: false, wants_description: false, plainly: true, read_only }
    }

    fn wanted<E: Exports + ?Sized>(export: &ExportInfo, exports: &E, wanted: &ExportQuery<'_>) -> ExportChoice {
        let (wants_name, wants_description) = (wanted.name, wanted.description);
        ExportChoice { wants_name, wants_description, plainly: false, ..ExportChoice::plain(export, exports) }
    }
}

/// What client and server have agreed on so far.
#[derive(Debug, Default)]
pub struct Negotiation {
    fixed: bool,
    no_zeroes: bool,
    structured: bool,
    /// The export for which `base:allocation` was selected.
    allocation: Option<String>,
    options_seen: u32,
    lists_seen: u32,
    encryption: Encryption,
    was_ordered_to_encrypt: bool,
}

/// The server's first words.
pub fn greeting() -> [u8; 18] {
    let mut bytes = [0; 18];
    bytes[..8].copy_from_slice(&proto::MAGIC.to_be_bytes());
    bytes[8..16].copy_from_slice(&proto::OPTION_MAGIC.to_be_bytes());
    bytes[16..].copy_from_slice(&(proto::FLAG_FIXED_NEWSTYLE | proto::FLAG_NO_ZEROES).to_be_bytes());
    bytes
}

impl Negotiation {
    pub fn new(encryption: Encryption) -> Negotiation {
        Negotiation { encryption, ..Negotiation::default() }
    }

    /// The client was told that it has to encrypt.
    pub(super) fn was_ordered_to_encrypt(&self) -> bool {
        self.was_ordered_to_encrypt
    }

    /// TLS is on: what was agreed in the open, where anybody could have put words in, counts no longer.
    pub fn encrypted(&mut self) {
        (self.encryption, self.structured, self.allocation) = (Encryption::On, false, None);
        self.options_seen = 0;
    }

    /// Takes the client's answer to the greeting.
    ///
    /// # Errors
    /// Flags we did not offer: the client means something we do not know.
    pub fn client_flags(&mut self, flags: u32) -> Result<(), MalformedMessage> {
        let known = u32::from(proto::FLAG_FIXED_NEWSTYLE | proto::FLAG_NO_ZEROES);
        if flags & !known != 0 {
            return Err(MalformedMessage("the client set handshake flags that the server did not offer"));
        }
        self.fixed = flags & u32::from(proto::FLAG_FIXED_NEWSTYLE) != 0;
        self.no_zeroes = flags & u32::from(proto::FLAG_NO_ZEROES) != 0;
        Ok(())
    }

    /// Checks an option before its data is read.
    ///
    /// # Errors
    /// Too long, too many, or not for a client that speaks no fixed newstyle. What was said to it is in `out`.
    pub fn admit<E: Exports + ?Sized>(
        &mut self,
        header: OptionHeader,
        exports: &E,
        out: &mut Vec<u8>,
    ) -> Result<(), MalformedMessage> {
        self.options_seen += 1;
        if self.options_seen > self.options_allowed(exports) {
            return Err(MalformedMessage("the client asked too many questions without choosing an export"));
        }
        self.lists_seen += u32::from(header.kind == option::LIST);
        if self.lists_seen > LISTS_MAX {
            return Err(MalformedMessage("the client asked for the list of exports too often without choosing one"));
        }
        if !self.fixed && header.kind != option::EXPORT_NAME {
            return Err(MalformedMessage("a client without fixed newstyle may only choose an export"));
        }
        if header.length > proto::OPTION_DATA_BYTES_MAX {
            if header.kind != option::EXPORT_NAME {
                let sentence = b"an option's data may have at most 65536 bytes";
                proto::put_option_reply(out, header.kind, reply::ERR_TOO_BIG, &[sentence]);
            }
            return Err(MalformedMessage("an option's data is longer than 65536 bytes"));
        }
        Ok(())
    }

    fn options_allowed<E: Exports + ?Sized>(&self, exports: &E) -> u32 {
        if self.encryption == Encryption::Required {
            return OPTIONS_BEFORE_TLS;
        }
        let exports = u32::try_from(exports.count()).unwrap_or(u32::MAX);
        OPTIONS_SPARE.saturating_add(exports.saturating_mul(OPTIONS_PER_EXPORT))
    }

    /// Answers one option into `out`.
    pub fn answer<E: Exports + ?Sized>(
        &mut self,
        kind: u32,
        data: &[u8],
        exports: &E,
        out: &mut Vec<u8>,
    ) -> NegotiationStep {
        if self.encryption == Encryption::Required && ![option::STARTTLS, option::ABORT].contains(&kind) {
            self.was_ordered_to_encrypt = true;
            if kind == option::EXPORT_NAME {
                return NegotiationStep::Close("the client chose an export without TLS, which is required here");
            }
            return say(out, kind, reply::ERR_TLS_REQD, "this server speaks TLS only: begin it first");
        }
        let parsed = match proto::parse_option(kind, data) {
            Ok(parsed) => parsed,
            Err(malformed) if kind == option::EXPORT_NAME => return NegotiationStep::Close(malformed.0),
            Err(malformed) => return say(out, kind, reply::ERR_INVALID, malformed.0),
        };
        match parsed {
            ClientOption::ExportName(name) => match exports.find(name) {
                Some(export) => NegotiationStep::Enter(ExportChoice::plain(&export, exports)),
                None => NegotiationStep::Close("the client chose an export that does not exist"),
            },
            ClientOption::Abort => {
                proto::put_option_reply(out, kind, reply::ACK, &[]);
                NegotiationStep::Close("the client aborted the handshake")
            }
            ClientOption::List => list(out, &exports.list()),
            ClientOption::StartTls => self.start_tls(out),
            ClientOption::Info(wanted) => match exports.find(wanted.export) {
                Some(export) => {
                    self.put_export(out, kind, &export, &ExportChoice::wanted(&export, exports, &wanted));
                    NegotiationStep::Continue
                }
                None => unknown(out, kind),
            },
            ClientOption::Go(wanted) => match exports.find(wanted.export) {
                Some(export) => NegotiationStep::Enter(ExportChoice::wanted(&export, exports, &wanted)),
                None => unknown(out, kind),
            },
            ClientOption::StructuredReply => {
                self.structured = true;
                proto::put_option_reply(out, kind, reply::ACK, &[]);
                NegotiationStep::Continue
            }
            ClientOption::ListMeta(query) => {
                let named = query.empty || query.names_allocation || query.names_base;
                self.meta(out, kind, &query, exports, named)
            }
            ClientOption::SetMeta(query) => {
                // A new selection replaces the old one, and a failed one leaves nothing selected.
                self.allocation = None;
                self.meta(out, kind, &query, exports, query.names_allocation)
            }
            ClientOption::Unsupported => say(out, kind, reply::ERR_UNSUP, "this server does not know the option"),
        }
    }

    fn start_tls(&self, out: &mut Vec<u8>) -> NegotiationStep {
        let kind = option::STARTTLS;
        match self.encryption {
            Encryption::Off => say(out, kind, reply::ERR_UNSUP, "this server has no TLS here"),
            Encryption::On => say(out, kind, reply::ERR_INVALID, "TLS is on already"),
            Encryption::Offered | Encryption::Required => {
                proto::put_option_reply(out, kind, reply::ACK, &[]);
                NegotiationStep::Encrypt
            }
        }
    }

    fn meta<E: Exports + ?Sized>(
        &mut self,
        out: &mut Vec<u8>,
        kind: u32,
        query: &MetaQuery<'_>,
        exports: &E,
        named: bool,
    ) -> NegotiationStep {
        if !self.structured {
            return say(out, kind, reply::ERR_INVALID, "structured replies must be negotiated before contexts");
        }
        let Some(export) = exports.find(query.export) else {
            return unknown(out, kind);
        };
        if named {
            // The number means something in a selection only; a list has zero there.
            let selects = kind == option::SET_META_CONTEXT;
            let id = if selects { proto::ALLOCATION_ID } else { 0 };
            let parts: [&[u8]; 2] = [&id.to_be_bytes(), proto::ALLOCATION.as_bytes()];
            proto::put_option_reply(out, kind, reply::META_CONTEXT, &parts);
            if selects {
                self.allocation = Some(export.name);
            }
        }
        proto::put_option_reply(out, kind, reply::ACK, &[]);
        NegotiationStep::Continue
    }

    /// The last words to a client whose export was attached, and the terms of its stay.
    pub fn welcome(&self, entry: &ExportChoice, export: &ExportInfo, out: &mut Vec<u8>) -> SessionTerms {
        if entry.plainly {
            out.extend_from_slice(&export.size_bytes.to_be_bytes());
            out.extend_from_slice(&self.transmission_flags(entry).to_be_bytes());
            if !self.no_zeroes {
                out.extend_from_slice(&[0; proto::EXPORT_NAME_PADDING_BYTES]);
            }
        } else {
            self.put_export(out, option::GO, export, entry);
        }
        let terms = SessionTerms::new(export, self.structured, self.allocation.as_deref() == Some(&entry.name));
        SessionTerms { read_only: entry.read_only, ..terms }
    }

    /// The export went away between the question and the answer.
    pub fn turn_away(&self, entry: &ExportChoice, out: &mut Vec<u8>) -> NegotiationStep {
        if entry.plainly {
            return NegotiationStep::Close("the client chose an export that has just gone");
        }
        unknown(out, option::GO)
    }

    /// Others have all the connections that it may have.
    pub(super) fn turn_away_full(&self, entry: &ExportChoice, reason: &str, out: &mut Vec<u8>) -> NegotiationStep {
        if entry.plainly {
            return NegotiationStep::Close("no slot was left for it");
        }
        say(out, option::GO, reply::ERR_POLICY, reason)
    }

    fn transmission_flags(&self, entry: &ExportChoice) -> u16 {
        let always = transmission::HAS_FLAGS
            | transmission::SEND_FLUSH
            | transmission::SEND_FUA
            | transmission::SEND_TRIM
            | transmission::SEND_WRITE_ZEROES
            | transmission::CAN_MULTI_CONN
            | transmission::SEND_CACHE
            | transmission::SEND_FAST_ZERO;
        let structured = if self.structured { transmission::SEND_DF } else { 0 };
        let read_only = if entry.read_only { transmission::READ_ONLY } else { 0 };
        always | structured | read_only
    }

    /// Everything about an export. Block sizes are told even to clients that did not ask: they bind them all the same.
    fn put_export(&self, out: &mut Vec<u8>, kind: u32, export: &ExportInfo, entry: &ExportChoice) {
        let put = |out: &mut Vec<u8>, fact: u16, parts: [&[u8]; 3]| {
            let fact = fact.to_be_bytes();
            proto::put_option_reply(out, kind, reply::INFO, &[&fact, parts[0], parts[1], parts[2]]);
        };
        let (size, flags) = (export.size_bytes.to_be_bytes(), self.transmission_flags(entry).to_be_bytes());
        put(out, proto::info::EXPORT, [&size, &flags, &[]]);
        let payload_max = export.block_max_bytes.min(proto::PAYLOAD_BYTES_MAX);
        let sizes = [export.block_min_bytes, export.block_preferred_bytes, payload_max].map(u32::to_be_bytes);
        put(out, proto::info::BLOCK_SIZE, [&sizes[0], &sizes[1], &sizes[2]]);
        if entry.wants_name {
            put(out, proto::info::NAME, [export.name.as_bytes(), &[], &[]]);
        }
        if entry.wants_description {
            put(out, proto::info::DESCRIPTION, [export.description.as_bytes(), &[], &[]]);
        }
        proto::put_option_reply(out, kind, reply::ACK, &[]);
    }
}

fn list(out: &mut Vec<u8>, exports: &[ExportInfo]) -> NegotiationStep {
    for export in exports {
        let length = u32::try_from(export.name.len()).expect("an export's name is short").to_be_bytes();
        let parts = [&length, export.name.as_bytes(), export.description.as_bytes()];
        proto::put_option_reply(out, option::LIST, reply::SERVER, &parts);
    }
    proto::put_option_reply(out, option::LIST, reply::ACK, &[]);
    NegotiationStep::Continue
}

fn unknown(out: &mut Vec<u8>, kind: u32) -> NegotiationStep {
    let sentence = "this node serves no such export now; list the exports to see the ones it does";
    say(out, kind, reply::ERR_UNKNOWN, sentence)
}

fn say(out: &mut Vec<u8>, kind: u32, reply: u32, sentence: &str) -> NegotiationStep {
    proto::put_option_reply(out, kind, reply, &[sentence.as_bytes()]);
    NegotiationStep::Continue
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frontend::VolumeHandle;

    fn export(name: &str) -> ExportInfo {
        ExportInfo {
            handle: VolumeHandle(1),
            name: name.into(),
            description: "a volume".into(),
            size_bytes: 1 << 30,
            block_min_bytes: 512,
            block_preferred_bytes: 4096,
            block_max_bytes: 64 << 20,
        }
    }

    fn named(name: &str) -> Vec<u8> {
        let mut data = (name.len() as u32).to_be_bytes().to_vec();
        data.extend_from_slice(name.as_bytes());
        data
    }

    fn go(name: &str) -> Vec<u8> {
        [&named(name)[..], &[0, 0]].concat()
    }

    fn allocation(name: &str) -> Vec<u8> {
        [&named(name)[..], &1_u32.to_be_bytes(), &named(proto::ALLOCATION)].concat()
    }

    fn fixed() -> Negotiation {
        let mut negotiation = Negotiation::default();
        negotiation.client_flags(3).unwrap();
        negotiation
    }

    /// The kinds of the replies in `out`.
    fn replies(mut out: &[u8]) -> Vec<u32> {
        let mut kinds = Vec::new();
        while let Some((header, rest)) = out.split_first_chunk() {
            let header = proto::parse_option_reply(header).unwrap();
            kinds.push(header.reply);
            out = &rest[header.length as usize..];
        }
        kinds
    }

    fn ask(
        negotiation: &mut Negotiation,
        kind: u32,
        data: &[u8],
        exports: &[ExportInfo],
    ) -> (NegotiationStep, Vec<u32>) {
        let mut out = Vec::new();
        let step = negotiation.answer(kind, data, exports, &mut out);
        (step, replies(&out))
    }

    #[test]
    fn an_empty_name_means_the_only_export() {
        let (one, two) = ([export("g/v")], [export("g/v"), export("g/w")]);
        assert!(
            matches!(ask(&mut fixed(), option::GO, &go(""), &one).0, NegotiationStep::Enter(entry) if entry.name == "g/v")
        );
        assert!(matches!(ask(&mut fixed(), option::EXPORT_NAME, b"", &one).0, NegotiationStep::Enter(_)));
        for exports in [&two[..], &[]] {
            let refused = (NegotiationStep::Continue, vec![reply::ERR_UNKNOWN]);
            assert_eq!(ask(&mut fixed(), option::GO, &go(""), exports), refused);
            assert_eq!(ask(&mut fixed(), option::INFO, &go(""), exports), refused);
            assert!(matches!(ask(&mut fixed(), option::EXPORT_NAME, b"", exports).0, NegotiationStep::Close(_)));
        }
        assert!(matches!(ask(&mut fixed(), option::GO, &go("g/w"), &two).0, NegotiationStep::Enter(_)));
    }

    #[test]
    fn contexts_need_structured_replies_and_hold_for_their_export() {
        let exports = [export("g/v"), export("g/w")];
        let mut negotiation = fixed();
        let set = option::SET_META_CONTEXT;
        let refused = (NegotiationStep::Continue, vec![reply::ERR_INVALID]);
        assert_eq!(ask(&mut negotiation, set, &allocation("g/v"), &exports), refused);
        ask(&mut negotiation, option::STRUCTURED_REPLY, b"", &exports);
        let selected = (NegotiationStep::Continue, vec![reply::META_CONTEXT, reply::ACK]);
        assert_eq!(ask(&mut negotiation, set, &allocation("g/v"), &exports), selected);
        for (name, expected) in [("g/v", true), ("g/w", false)] {
            let (step, _) = ask(&mut negotiation, option::GO, &go(name), &exports);
            let NegotiationStep::Enter(entry) = step else { panic!("{name} was refused") };
            let terms = negotiation.welcome(&entry, &export(name), &mut Vec::new());
            assert_eq!(terms.allocation, expected);
            assert_eq!(terms.payload_max_bytes, proto::PAYLOAD_BYTES_MAX);
        }
        let nothing = [&named("g/v")[..], &0_u32.to_be_bytes()].concat();
        assert_eq!(ask(&mut negotiation, set, &nothing, &exports), (NegotiationStep::Continue, vec![reply::ACK]));
        assert_eq!(negotiation.allocation, None);
        assert_eq!(ask(&mut negotiation, option::LIST_META_CONTEXT, &nothing, &exports), selected);
    }

    #[test]
    fn options_are_bounded_in_length_and_number() {
        let mut negotiation = fixed();
        let mut out = Vec::new();
        let long = OptionHeader { kind: option::LIST, length: proto::OPTION_DATA_BYTES_MAX + 1 };
        assert!(negotiation.admit(long, &[][..], &mut out).is_err());
        assert_eq!(replies(&out), [reply::ERR_TOO_BIG]);
        let fine = OptionHeader { kind: 99, length: proto::OPTION_DATA_BYTES_MAX };
        let two = [export("g/v"), export("g/w")];
        let mut admits = |negotiation: &mut Negotiation, exports: &[ExportInfo], kind| {
            let header = OptionHeader { kind, ..fine };
            (0..1000).take_while(|_| negotiation.admit(header, exports, &mut out).is_ok()).count() as u32
        };
        assert_eq!(admits(&mut negotiation, &two, 99), OPTIONS_SPARE + 2 * OPTIONS_PER_EXPORT - 1);
        assert_eq!(admits(&mut fixed(), &two, option::LIST), LISTS_MAX);
        // Where TLS has to come first, the number of exports shows in nothing.
        for exports in [&[][..], &two] {
            let mut closed = Negotiation { encryption: Encryption::Required, ..fixed() };
            assert_eq!(admits(&mut closed, exports, 99), OPTIONS_BEFORE_TLS);
            closed.encrypted();
            let exports_asked = OPTIONS_PER_EXPORT * exports.len() as u32;
            assert_eq!(admits(&mut closed, exports, 99), OPTIONS_SPARE + exports_asked);
        }
    }

    #[test]
    fn an_old_client_may_only_choose() {
        let mut negotiation = Negotiation::default();
        negotiation.client_flags(0).unwrap();
        assert!(negotiation.admit(OptionHeader { kind: option::LIST, length: 0 }, &[][..], &mut Vec::new()).is_err());
        let (step, _) = ask(&mut negotiation, option::EXPORT_NAME, b"g/v", &[export("g/v")]);
        let NegotiationStep::Enter(entry) = step else { panic!("the export was refused") };
        let mut out = Vec::new();
        negotiation.welcome(&entry, &export("g/v"), &mut out);
        assert_eq!(out.len(), 10 + proto::EXPORT_NAME_PADDING_BYTES);
        assert!(negotiation.client_flags(4).is_err());
    }

    #[test]
    fn malformed_and_unknown_options_are_answered() {
        let exports = [export("g/v")];
        for (kind, data, expected) in [
            (option::LIST, &b"x"[..], reply::ERR_INVALID),
            (option::GO, &b"x"[..], reply::ERR_INVALID),
            (5, &b""[..], reply::ERR_UNSUP),
            (u32::MAX, &b"junk"[..], reply::ERR_UNSUP),
        ] {
            assert_eq!(ask(&mut fixed(), kind, data, &exports), (NegotiationStep::Continue, vec![expected]));
        }
        let (step, said) = ask(&mut fixed(), option::ABORT, b"", &exports);
        assert!(matches!(step, NegotiationStep::Close(_)) && said == [reply::ACK]);
        assert_eq!(ask(&mut fixed(), option::LIST, b"", &exports).1, [reply::SERVER, reply::ACK]);
    }

    /// Any bytes in any option: always one step, and replies that can be read.
    #[test]
    fn random_options_are_answered_in_full() {
        let exports = [export("g/v"), export("g/w")];
        let mut state = 0x9e37_79b9_7f4a_7c15_u64;
        let mut random = move || {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state
        };
        let mut negotiation = fixed();
        for _ in 0..50_000 {
            let kind = (random() % 12) as u32;
            let mut data = match random() % 4 {
                0 => (0..random() % 40).map(|_| random() as u8).collect(),
                1 => go("g/v"),
                2 => allocation("g/w"),
                _ => vec![0; (random() % 12) as usize],
            };
            if let Some(at) = (random() as usize).checked_rem(data.len()) {
                data[at] = random() as u8;
            }
            let (step, said) = ask(&mut negotiation, kind, &data, &exports);
            assert!(
                step != NegotiationStep::Continue || !said.is_empty(),
                "option {kind} with {data:?} was not answered"
            );
        }
        assert!(negotiation.structured);
    }
}
