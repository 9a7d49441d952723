//! A daemon asks the daemon of its peer, beside the link: who may, how many, how long, and what is known when it goes wrong.

use std::cell::Cell;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;

use host::link::auth::{PREFIX_BYTES, REFUSAL};
use host::link::control::{
    CONTROL_REPLY_BYTES_MAX, CONTROL_REQUEST_BYTES_MAX, CONTROL_VISITS_MAX, ControlDialer, ControlFailure,
    ControlServing, ControlVisits, door,
};
use host::link::{ClusterSecret, Ourselves};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::task::spawn_local;

use crate::link_support::{DEADLINE, LinkNode, nowhere, ours, run};

/// Long enough, and room enough, for anything that goes well.
const PATIENCE: (Duration, usize) = (DEADLINE, CONTROL_REPLY_BYTES_MAX);

/// A node of the name `west` whose door is open, and who comes in.
fn west_with_a_door() -> (LinkNode, ControlVisits) {
    let (door, visits) = door(["east".to_owned()]);
    (LinkNode::west(|config| config.control = Some(door)), visits)
}

fn east() -> ControlDialer {
    ControlDialer::new(ours("east", "west"), None)
}

async fn next(visits: &mut ControlVisits) -> ControlServing {
    visits.next().await.expect("the links run").open().expect("the runtime watches it")
}

/// Answers each visitor with what it asked, backwards.
async fn answer_all(mut visits: ControlVisits) {
    loop {
        let serving = next(&mut visits).await;
        let mut request = serving.request().await.expect("a request");
        request.reverse();
        serving.reply(&request).await.expect("it listens");
    }
}

async fn ask(dialer: &ControlDialer, address: SocketAddr) -> Result<Vec<u8>, ControlFailure> {
    dialer.ask("west", address, b"state", PATIENCE).await
}

fn not_reached(result: Result<Vec<u8>, ControlFailure>, words: &str) {
    match result {
        Err(ControlFailure::NotReached(why)) => assert!(why.contains(words), "{why}"),
        other => panic!("{other:?}"),
    }
}

fn unknown(result: Result<Vec<u8>, ControlFailure>, words: &str) {
    match result {
        Err(ControlFailure::Unknown(why)) => assert!(why.contains(words), "{why}"),
        other => panic!("{other:?}"),
    }
}

#[test]
fn either_node_asks_the_other_and_the_link_stays_as_it_is() {
    run(async {
        let (west_door, west_visits) = door(["east".to_owned()]);
        let (east_door, east_visits) = door(["west".to_owned()]);
        let west = LinkNode::west(|config| config.control = Some(west_door));
        let east = LinkNode::east(west.address(), |config| config.control = Some(east_door));
        tokio::join!(east.is_up(1), west.is_up(1));
        spawn_local(answer_all(west_visits));
        spawn_local(answer_all(east_visits));
        for _ in 0..3 * CONTROL_VISITS_MAX {
            let dialer = self::east();
            assert_eq!(ask(&dialer, west.address()).await.expect("answered"), b"etats");
        }
        let dialer = ControlDialer::new(ours("west", "east"), None);
        let large = vec![b'x'; CONTROL_REQUEST_BYTES_MAX];
        assert_eq!(dialer.ask("east", east.address(), &large, PATIENCE).await.expect("answered"), large);
        not_reached(dialer.ask("east", east.address(), &[large, vec![0]].concat(), PATIENCE).await, "may have 65536");
        assert!(west.seen.down.borrow().is_empty() && east.seen.down.borrow().is_empty());
    });
}

// proves: P10
#[test]
fn a_reply_has_the_room_that_the_question_gives_it() {
    run(async {
        let (west, mut visits) = west_with_a_door();
        spawn_local(async move {
            loop {
                let serving = next(&mut visits).await;
                serving.request().await.expect("a request");
                // Who allows less may have hung up by now.
                let _ = serving.reply(b"12345").await;
            }
        });
        let exact = east().ask("west", west.address(), b"state", (DEADLINE, 5)).await;
        assert_eq!(exact.expect("as long as it may be"), b"12345");
        let longer = east().ask("west", west.address(), b"state", (DEADLINE, 4)).await;
        unknown(longer, "it announced a message of 5 bytes where 4 are allowed");
    });
}

// proves: P10
#[test]
fn whoever_does_not_prove_to_be_a_peer_asks_nothing() {
    run(async {
        let (west, mut visits) = west_with_a_door();
        let by = |change: fn(&mut Ourselves)| {
            let mut ours = ours("east", "west");
            change(&mut ours);
            ControlDialer::new(ours, None)
        };
        let address = west.address();
        not_reached(
            ask(&by(|ours| ours.secret = ClusterSecret::new(b"guess")), address).await,
            "the secret files differ",
        );
        not_reached(ask(&by(|ours| ours.cluster = "bay".into()), address).await, "belongs to cluster \"harbour\"");
        not_reached(ask(&by(|ours| ours.node = "south".into()), address).await, "does not know a node \"south\"");
        not_reached(ask(&by(|ours| ours.node = "west".into()), address).await, "talks to itself");
        not_reached(east().ask("north", address, b"", PATIENCE).await, "but node \"west\" answered");
        // None of them came through the door.
        let first = spawn_local(async move { next(&mut visits).await.request().await.expect("a request") });
        let dialer = east();
        let asking = spawn_local(async move { ask(&dialer, address).await });
        assert_eq!(first.await.expect("served"), b"state");
        unknown(asking.await.expect("asked"), "the connection broke");
    });
}

#[test]
fn a_peer_has_so_many_at_once_and_a_closed_door_says_so() {
    run(async {
        let (west, mut visits) = west_with_a_door();
        let address = west.address();
        let open: Vec<_> = (0..CONTROL_VISITS_MAX)
            .map(|_| {
                let dialer = east();
                spawn_local(async move { ask(&dialer, address).await })
            })
            .collect();
        let mut serving = Vec::new();
        for _ in 0..CONTROL_VISITS_MAX {
            serving.push(next(&mut visits).await);
        }
        not_reached(ask(&east(), address).await, "control connections of a node at once");
        for serving in serving {
            serving.request().await.expect("a request");
            serving.reply(b"done").await.expect("it listens");
        }
        for asked in open {
            assert_eq!(asked.await.expect("asked").expect("answered"), b"done");
        }
        spawn_local(answer_all(visits));
        assert_eq!(ask(&east(), address).await.expect("there is room again"), b"etats");
        let west = LinkNode::west(|_| {});
        not_reached(ask(&east(), west.address()).await, "try again");
    });
}

/// Silence before the proof, and after it; a connection that breaks in between.
#[test]
fn it_is_said_whether_the_request_can_have_been_heard() {
    run(async {
        let short = Duration::from_millis(300);
        not_reached(ask(&east(), nowhere()).await, "cannot connect to 127.0.0.1:9");
        let silent = TcpListener::bind("127.0.0.1:0").await.expect("loopback");
        let address = silent.local_addr().expect("bound");
        not_reached(east().ask("west", address, b"state", (short, 5)).await, "does not answer within 300ms");

        let (west, mut visits) = west_with_a_door();
        let served = spawn_local(async move {
            let slow = next(&mut visits).await;
            slow.request().await.expect("a request");
            let broken = next(&mut visits).await;
            broken.request().await.expect("a request");
            drop(broken);
            slow
        });
        let little = (Duration::from_secs(2), CONTROL_REPLY_BYTES_MAX);
        unknown(east().ask("west", west.address(), b"state", little).await, "did not come within 2s");
        unknown(ask(&east(), west.address()).await, "the connection broke before its reply");
        drop(served.await);
    });
}

/// A node that knows of no such connections takes the greeting for malformed, and refuses.
#[test]
fn an_older_peer_is_told_from_a_dead_one() {
    run(async {
        let old = TcpListener::bind("127.0.0.1:0").await.expect("loopback");
        let address = old.local_addr().expect("bound");
        spawn_local(async move {
            let (mut stream, _) = old.accept().await.expect("it comes");
            let mut hello = [0; PREFIX_BYTES];
            stream.read_exact(&mut hello).await.expect("a greeting");
            stream.write_all(&REFUSAL).await.expect("it listens");
            let _ = stream.read_to_end(&mut Vec::new()).await;
        });
        not_reached(ask(&east(), address).await, "its farshore is older and does not know what it is for (upgrade it)");
    });
}

/// A visitor that says nothing holds its own place and nothing else: frames go on.
#[test]
fn a_silent_visitor_holds_nobody_up() {
    run(async {
        let (door, visits) = door(["east".to_owned()]);
        let west = LinkNode::west(|config| config.control = Some(door));
        let east = LinkNode::east(west.address(), |_| {});
        tokio::join!(east.is_up(1), west.is_up(1));
        let (dialer, address, asked) = (self::east(), west.address(), Rc::new(Cell::new(false)));
        let done = asked.clone();
        let asking = spawn_local(async move {
            let _ = ask(&dialer, address).await;
            done.set(true);
        });
        let before = west.seen.frames.borrow().len();
        east.seen.say();
        west.seen.until(|seen| seen.frames.borrow().len() > before).await;
        assert!(!asked.get(), "nobody has served it");
        drop(visits);
        asking.await.expect("it ends");
    });
}
