//! Both roles of the challenge and response. Seeds hold whole conversations with the fixed nonces used here, so that
//! variations begin at every stage.

use std::rc::Rc;

use host::link::auth::{Handshake, HandshakeStep, PREFIX_BYTES};
use host::link::{Attempt, ClusterSecret, Ourselves, Versions};

use crate::Seed;

const ATTEMPT: Attempt = Attempt { run: 5, number: 1 };

fn ours(node: &str, peer: &str, definitions: &str) -> Rc<Ourselves> {
    Rc::new(Ourselves {
        cluster: "harbour".into(),
        node: node.into(),
        peers: vec![peer.into()],
        secret: ClusterSecret::new(b"a secret for fuzzing only"),
        definitions: definitions.into(),
        versions: Versions::OURS,
    })
}

fn dialer() -> (Handshake, Vec<u8>) {
    Handshake::dial(ours("east", "west", "group a"), "west", [1; 32], ATTEMPT)
}

fn acceptor(definitions: &str) -> Handshake {
    Handshake::accept(ours("west", "east", definitions), [2; 32])
}

/// Hands over whole messages for as long as the machine wants more.
fn converse(machine: &mut Handshake, mut bytes: &[u8]) -> HandshakeStep {
    let mut all = HandshakeStep::default();
    while let Some((prefix, rest)) = bytes.split_first_chunk::<PREFIX_BYTES>() {
        let wanted = machine.body_bytes(prefix).unwrap_or(0);
        let Some((body, behind)) = rest.split_at_checked(wanted) else { break };
        let step = machine.receive(prefix, body);
        all.send.extend(step.send);
        if step.outcome.is_some() {
            all.outcome = step.outcome;
            break;
        }
        bytes = behind;
    }
    all
}

/// Rule: the only peer ever let in is the one whose proof is right, and a refusal is a sentence.
fn check(step: &HandshakeStep, peer: &str) {
    match &step.outcome {
        Some(Ok(known)) => assert_eq!(known.peer, peer),
        Some(Err(error)) => assert!(!error.to_string().is_empty()),
        None => {}
    }
}

pub fn auth_dialer(bytes: &[u8]) {
    let step = converse(&mut dialer().0, bytes);
    check(&step, "west");
}

pub fn auth_acceptor(bytes: &[u8]) {
    let step = converse(&mut acceptor("group a"), bytes);
    check(&step, "east");
}

/// What each side says when an acceptor with these definitions is dialed.
fn conversation(definitions: &str) -> (Vec<u8>, Vec<u8>) {
    let ((mut dial, hello), mut accept) = (dialer(), acceptor(definitions));
    let challenge = converse(&mut accept, &hello).send;
    let proof = converse(&mut dial, &challenge).send;
    let answer = converse(&mut accept, &proof).send;
    let last = converse(&mut dial, &answer).send;
    ([hello, proof, last].concat(), [challenge, answer].concat())
}

pub fn auth_dialer_seeds() -> Vec<Seed> {
    vec![
        ("welcome", conversation("group a").1),
        ("definitions_differ", conversation("group b").1),
        ("refused", host::link::auth::REFUSAL.to_vec()),
    ]
}

pub fn auth_acceptor_seeds() -> Vec<Seed> {
    vec![("welcome", conversation("group a").0), ("definitions_differ", conversation("group b").0)]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seeds_reach_the_end() {
        for (name, bytes) in auth_dialer_seeds() {
            assert!(converse(&mut dialer().0, &bytes).outcome.is_some(), "{name}");
        }
        let (said, _) = conversation("group a");
        assert!(matches!(converse(&mut acceptor("group a"), &said).outcome, Some(Ok(_))));
    }
}
