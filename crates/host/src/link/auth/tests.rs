use super::message::{CHALLENGE_BYTES, prefix};
use super::*;
use crate::node_name::{NAME_BYTES_MAX, is_name};

const ATTEMPT: Attempt = Attempt { run: 7, number: 1 };

fn node(name: &str, peer: &str) -> Ourselves {
    Ourselves {
        cluster: "harbour".into(),
        node: name.into(),
        peers: vec![peer.into()],
        secret: ClusterSecret::new(b"correct horse battery staple"),
        definitions: "group a\n  volume one\n".into(),
        versions: Versions::OURS,
    }
}

fn east() -> Ourselves {
    node("east", "west")
}

fn west() -> Ourselves {
    node("west", "east")
}

/// Hands over all messages in `bytes`; the last step's outcome and all that was to be sent.
fn deliver(to: &mut Handshake, mut bytes: &[u8]) -> HandshakeStep {
    let mut all = HandshakeStep::default();
    while let Some((prefix, rest)) = bytes.split_first_chunk::<PREFIX_BYTES>() {
        let length = to.body_bytes(prefix).unwrap_or(rest.len()).min(rest.len());
        let step = to.receive(prefix, &rest[..length]);
        bytes = &rest[length..];
        all.send.extend(step.send);
        all.outcome = all.outcome.or(step.outcome);
    }
    all
}

type HandshakeOutcome = Option<Result<Authenticated, AuthError>>;

/// A whole handshake; `tamper(n, message)` may change message `n` of the wire. Outcomes of dialer and acceptor.
fn meet(
    dialer: Ourselves,
    expected: &str,
    acceptor: Ourselves,
    mut tamper: impl FnMut(usize, &mut Vec<u8>),
) -> (HandshakeOutcome, HandshakeOutcome) {
    let (mut dial, mut wire) = Handshake::dial(Rc::new(dialer), expected, [1; 32], ATTEMPT);
    let mut accept = Handshake::accept(Rc::new(acceptor), [2; 32]);
    let (mut ours, mut theirs) = (None, None);
    for n in 0.. {
        if wire.is_empty() {
            break;
        }
        tamper(n, &mut wire);
        let (to, outcome) = if n % 2 == 0 { (&mut accept, &mut theirs) } else { (&mut dial, &mut ours) };
        let step = deliver(to, &wire);
        if step.outcome.is_some() {
            *outcome = step.outcome;
        }
        wire = step.send;
    }
    (ours, theirs)
}

fn authenticated(outcome: &HandshakeOutcome) -> bool {
    matches!(outcome, Some(Ok(_)))
}

/// docs/book/protocol.md, calculated by another library.
#[test]
fn proofs_are_those_of_the_protocol() {
    let hex = |bytes: [u8; MAC_BYTES]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    let opening = OpeningMessages { hello: b"hello".to_vec(), challenge: b"challenge".to_vec() };
    let proof = opening.proof(&ClusterSecret::new(b"a shared secret"));
    assert_eq!(hex(proof), "7764de1cde15093eee63d7bbb67101bfe07731d150fadff6d92caa5206beec46");
    // A key that is longer than a block of the hash.
    let key = opening.authenticated(&ClusterSecret::new(&[b'k'; 100]), "west", 5, ATTEMPT).key;
    assert_eq!(hex(key), "32feb4e2b7efcccfbffb7f517bfe18ccdec752e8570bcf5bcc7d7e91fc8a38cc");
}

#[test]
fn two_nodes_with_one_secret_agree_on_session_and_key() {
    let (Some(Ok(ours)), Some(Ok(theirs))) = meet(east(), "west", west(), |_, _| {}) else { panic!("refused") };
    assert_eq!((ours.peer.as_str(), theirs.peer.as_str()), ("west", "east"));
    assert_eq!((ours.session, ours.key, ours.version), (theirs.session, theirs.key, theirs.version));
    assert_eq!((ours.version, theirs.attempt), (Versions::OURS.max, ATTEMPT));
    assert_ne!(ours.key[..8], ours.session.0.to_le_bytes());
}

#[test]
fn the_shortest_pause_is_announced_both_ways_or_left_out() {
    for (dialers, acceptors, heard_by_dialer) in [(0, 0, 0), (20_000, 40_000, 40_000), (20_000, 0, 0), (0, 40_000, 0)] {
        let (mut dial, hello) = Handshake::dial_announcing(Rc::new(east()), "west", [1; 32], ATTEMPT, dialers);
        let plain = Handshake::dial(Rc::new(east()), "west", [1; 32], ATTEMPT).1;
        assert_eq!(hello == plain, dialers == 0, "a node that wants none sends what it always sent");
        let mut accept = Handshake::accept(Rc::new(west()), [2; 32]).announcing(acceptors);
        let challenge = deliver(&mut accept, &hello).send;
        let proof = deliver(&mut dial, &challenge).send;
        let step = deliver(&mut accept, &proof);
        let Some(Ok(theirs)) = step.outcome else { panic!("refused") };
        let Some(Ok(ours)) = deliver(&mut dial, &step.send).outcome else { panic!("refused") };
        assert_eq!((ours.rto_min_us, theirs.rto_min_us), (heard_by_dialer, dialers));
    }
}

#[test]
fn another_nonce_makes_another_session() {
    let session = |nonce| {
        let (mut dial, hello) = Handshake::dial(Rc::new(east()), "west", [1; 32], ATTEMPT);
        let mut accept = Handshake::accept(Rc::new(west()), [nonce; 32]);
        let challenge = deliver(&mut accept, &hello).send;
        let proof = deliver(&mut dial, &challenge).send;
        let Some(Ok(peer)) = deliver(&mut accept, &proof).outcome else { panic!("refused") };
        (peer.session, peer.key)
    };
    assert_ne!(session(2).0, session(3).0);
    assert_ne!(session(2).1, session(3).1);
}

// proves: P10
#[test]
fn every_flipped_bit_is_refused() {
    let mut lengths = Vec::new();
    meet(east(), "west", west(), |_, wire| lengths.push(wire.len()));
    assert_eq!(lengths.len(), 4);
    assert!(lengths.iter().sum::<usize>() <= BEFORE_PROOF_BYTES_MAX);
    for (message, length) in lengths.into_iter().enumerate() {
        for bit in 0..length * 8 {
            let flip = |n: usize, wire: &mut Vec<u8>| {
                if n == message {
                    wire[bit / 8] ^= 1 << (bit % 8);
                }
            };
            let (ours, theirs) = meet(east(), "west", west(), flip);
            // The answer is the dialer's to check: the acceptor has seen a flawless proof before it.
            assert!(!authenticated(&ours), "message {message} bit {bit}: {ours:?}");
            assert!(message == 3 || !authenticated(&theirs), "message {message} bit {bit}: {theirs:?}");
        }
    }
}

#[test]
fn every_truncated_message_is_refused() {
    for message in 0..4 {
        for keep in 0..400 {
            let mut cut = false;
            let (ours, theirs) = meet(east(), "west", west(), |n, wire| {
                if n == message && keep < wire.len() {
                    wire.truncate(keep);
                    cut = true;
                }
            });
            assert!(!cut || !authenticated(&ours), "message {message} cut at {keep}");
            assert!(!cut || message == 3 || !authenticated(&theirs), "message {message} cut at {keep}");
        }
    }
}

#[test]
fn a_reflected_message_never_verifies() {
    // Everything the dialer says comes back to it, dressed as what it waits for.
    let (mut dial, hello) = Handshake::dial(Rc::new(east()), "east", [1; 32], ATTEMPT);
    assert!(matches!(deliver(&mut dial, &hello).outcome, Some(Err(AuthError::OutOfTurn { .. }))));
    let (mut dial, hello) = Handshake::dial(Rc::new(east()), "west", [1; 32], ATTEMPT);
    let mut accept = Handshake::accept(Rc::new(west()), [2; 32]);
    let challenge = deliver(&mut accept, &hello).send;
    let proof = deliver(&mut dial, &challenge).send;
    let mut said = vec![AuthVerdict::Welcome as u8];
    put_name(&mut said, "west");
    put_name(&mut said, "harbour");
    said.extend(&proof[PREFIX_BYTES..]);
    let forged = message(MessageKind::Answer, &said);
    assert_eq!(deliver(&mut dial, &forged).outcome, Some(Err(AuthError::WrongSecret)));
}

// proves: P10
#[test]
fn a_replayed_handshake_is_refused() {
    let mut heard = Vec::new();
    meet(east(), "west", west(), |_, wire| heard.push(wire.clone()));
    // To an acceptor with a fresh nonce.
    let mut accept = Handshake::accept(Rc::new(west()), [9; 32]);
    deliver(&mut accept, &heard[0]);
    let step = deliver(&mut accept, &heard[2]);
    assert_eq!((step.outcome, step.send), (Some(Err(AuthError::WrongSecret)), REFUSAL.to_vec()));
    // To a dialer with a fresh nonce.
    let (mut dial, _) = Handshake::dial(Rc::new(east()), "west", [9; 32], ATTEMPT);
    deliver(&mut dial, &heard[1]);
    assert_eq!(deliver(&mut dial, &heard[3]).outcome, Some(Err(AuthError::WrongSecret)));
}

// proves: P10
#[test]
fn an_unauthenticated_peer_learns_only_that_it_was_refused() {
    let wrong_secret = Ourselves { secret: ClusterSecret::new(b"guess"), ..east() };
    let wrong_everything = Ourselves { cluster: "elsewhere".into(), ..node("north", "south") };
    let wrong_everything = Ourselves { secret: ClusterSecret::new(b"guess"), ..wrong_everything };
    for peer in [wrong_secret, wrong_everything] {
        let (mut sent, mut last) = (0, Vec::new());
        let (ours, theirs) = meet(peer, "west", west(), |n, wire| {
            if n % 2 == 1 {
                sent += wire.len();
                last.clone_from(wire);
            }
        });
        assert_eq!((ours, theirs), (Some(Err(AuthError::Refused)), Some(Err(AuthError::WrongSecret))));
        assert_eq!(last, REFUSAL);
        assert_eq!(sent, PREFIX_BYTES + CHALLENGE_BYTES + REFUSAL.len());
    }
}

#[test]
fn both_sides_name_the_same_mistake() {
    let itself = AuthError::Itself { node: "west".into() };
    let cases: [(Ourselves, &str, AuthError); 4] = [
        (node("west", "east"), "east", itself),
        (east(), "north", AuthError::NotTheExpected { expected: "north".into(), answered: "west".into() }),
        (node("aft", "west"), "west", AuthError::UnknownNode { node: "west".into(), unknown: "aft".into() }),
        (
            node("zenith", "west"),
            "west",
            AuthError::WrongDirection { dialer: "zenith".into(), acceptor: "west".into() },
        ),
    ];
    for (dialer, expected, error) in cases {
        let mut acceptor = west();
        if dialer.node == "zenith" {
            acceptor.peers.push("zenith".into());
        }
        let (ours, theirs) = meet(dialer, expected, acceptor, |_, _| {});
        assert_eq!(ours, Some(Err(error.clone())));
        assert_eq!(theirs, Some(Err(error)));
    }
    let other = Ourselves { cluster: "bay".into(), ..east() };
    let (ours, theirs) = meet(other, "west", west(), |_, _| {});
    assert_eq!(ours, Some(Err(AuthError::WrongCluster { ours: "bay".into(), theirs: "harbour".into() })));
    assert_eq!(theirs, Some(Err(AuthError::WrongCluster { ours: "harbour".into(), theirs: "bay".into() })));
}

// proves: rule 23
#[test]
fn versions_meet_in_the_newest_common_one() {
    let speaks = |min, max| Versions { min, max };
    let with = |who: Ourselves, versions| Ourselves { versions, ..who };
    let (ours, theirs) = meet(with(east(), speaks(1, 3)), "west", with(west(), speaks(2, 5)), |_, _| {});
    assert!(matches!((ours, theirs), (Some(Ok(a)), Some(Ok(b))) if a.version == 3 && b.version == 3));
    let (ours, theirs) = meet(with(east(), speaks(1, 1)), "west", with(west(), speaks(2, 5)), |_, _| {});
    assert!(matches!(ours, Some(Err(AuthError::Versions { .. }))));
    assert!(matches!(theirs, Some(Err(AuthError::Versions { .. }))));
}

#[test]
fn differing_definitions_are_exchanged_and_signed() {
    let other = || Ourselves { definitions: "group b\n".repeat(9), ..east() };
    let (ours, theirs) = meet(other(), "west", west(), |_, _| {});
    let (Some(Ok(ours)), Some(Ok(theirs))) = (ours, theirs) else { panic!("both are authenticated") };
    assert_eq!((ours.peer.as_str(), ours.differing), ("west", Some(west().definitions)));
    assert_eq!((theirs.peer.as_str(), theirs.differing), ("east", Some(other().definitions)));
    assert_eq!((ours.session, ours.key), (theirs.session, theirs.key));
    // A changed byte in either text is not shown to anybody.
    for message in [3, 4] {
        let (ours, theirs) = meet(other(), "west", west(), |n, wire| {
            if n == message {
                *wire.last_mut().unwrap() ^= 1;
            }
        });
        let outcome = if message == 3 { ours } else { theirs };
        assert_eq!(outcome, Some(Err(AuthError::WrongSecret)));
    }
}

#[test]
fn definitions_are_bounded_and_cut_between_characters() {
    let long = Ourselves { definitions: "\u{20ac}".repeat(DEFINITIONS_BYTES_MAX), ..west() };
    let (ours, _) = meet(east(), "west", long, |_, _| {});
    let Some(Ok(Authenticated { differing: Some(theirs), .. })) = ours else { panic!("{ours:?}") };
    assert_eq!(theirs.len(), DEFINITIONS_BYTES_MAX / 3 * 3);
}

#[test]
fn lengths_are_refused_before_anything_is_read() {
    let accept = Handshake::accept(Rc::new(west()), [2; 32]);
    let too_long = prefix(MessageKind::Hello, 1 << 30);
    assert!(matches!(accept.body_bytes(&too_long), Err(AuthError::WrongLength { .. })));
    assert!(matches!(accept.body_bytes(b"GET / HTTP/1"), Err(AuthError::NotFarshore)));
    assert!(matches!(accept.body_bytes(&prefix(MessageKind::Definitions, 99)), Err(AuthError::OutOfTurn { .. })));
}

#[test]
fn names_that_would_garble_a_log_do_not_travel() {
    for bad in ["", "a\nb", "\u{1b}[31m", &"x".repeat(NAME_BYTES_MAX + 1)] {
        assert!(!is_name(bad), "{bad:?}");
    }
    assert!(is_name("node-1.example"));
}

// proves: rule 18
#[test]
fn attempts_of_one_run_are_ordered_and_of_two_runs_are_not() {
    let at = |run, number| Attempt { run, number };
    assert!(at(1, 4).is_older_than(at(1, 5)));
    assert!(!at(1, 5).is_older_than(at(1, 5)));
    assert!(!at(2, 1).is_older_than(at(1, 5)));
}

/// Either node of a pair may ask the other: which of them dials the link is no matter here.
#[test]
fn a_connection_beside_the_link_is_said_to_be_one_and_dialed_both_ways() {
    use ConnectionKind::{Control, Volume};
    for (dialer, acceptor, expected, kind) in
        [(east(), west(), "west", Control), (west(), east(), "east", Control), (west(), east(), "east", Volume)]
    {
        let (mut dial, hello) = Handshake::dial_beside(Rc::new(dialer), expected, [1; 32], ATTEMPT, kind);
        let mut accept = Handshake::accept(Rc::new(acceptor), [2; 32]);
        let challenge = deliver(&mut accept, &hello).send;
        let proof = deliver(&mut dial, &challenge).send;
        let step = deliver(&mut accept, &proof);
        let Some(Ok(theirs)) = step.outcome else { panic!("refused") };
        let Some(Ok(ours)) = deliver(&mut dial, &step.send).outcome else { panic!("refused") };
        assert_eq!((ours.kind, theirs.kind), (kind, kind));
        assert_eq!(ours.key, theirs.key);
    }
    let (Some(Ok(ours)), Some(Ok(theirs))) = meet(east(), "west", west(), |_, _| {}) else { panic!("refused") };
    assert_eq!((ours.kind, theirs.kind), (ConnectionKind::Frames, ConnectionKind::Frames));
}

// proves: P10
/// What a connection is for is proven with the rest: a link is not made a control connection on the way, nor the other way round.
#[test]
fn nobody_on_the_way_changes_what_a_connection_is_for() {
    let (mut dial, mut hello) =
        Handshake::dial_beside(Rc::new(east()), "west", [1; 32], ATTEMPT, ConnectionKind::Control);
    hello.pop();
    let body = (hello.len() - PREFIX_BYTES) as u32;
    hello[8..12].copy_from_slice(&body.to_le_bytes());
    let mut accept = Handshake::accept(Rc::new(west()), [2; 32]);
    let challenge = deliver(&mut accept, &hello).send;
    let proof = deliver(&mut dial, &challenge).send;
    assert_eq!(deliver(&mut accept, &proof).outcome, Some(Err(AuthError::WrongSecret)));
}
