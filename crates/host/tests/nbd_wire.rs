//! The NBD server against bytes: every kind of request, every place to stop, and everything that is not NBD.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::time::Duration;

use crate::nbd_support::*;
use host::frontend::RequestFailure;
use host::nbd::proto::{self, NbdCommand, chunk, flag};
use host::nbd::{Address, Ask, Limits, NbdClient};

const MIB: u32 = 1 << 20;

/// Every step of a session, in one breath: answers are not waited for.
fn recorded_session() -> Vec<u8> {
    let mut bytes = opening(true);
    let go = bytes.split_off(bytes.len() - 22);
    proto::put_option(&mut bytes, proto::option::LIST, &[]);
    proto::put_option(&mut bytes, 77, b"unknown");
    bytes.extend(go);
    let mut step = |command, flags, offset, length, payload: usize| {
        bytes.extend(request(command, flags, 9, offset, length));
        bytes.extend(std::iter::repeat_n(7, payload));
    };
    step(NbdCommand::Write, flag::FUA, 4096, 1024, 1024);
    step(NbdCommand::Read, flag::DF, 0, 8192, 0);
    step(NbdCommand::Write, 0, 1, 512, 512);
    step(NbdCommand::Unknown, 0, 0, 512, 0);
    step(NbdCommand::Trim, 0, 0, 4096, 0);
    step(NbdCommand::WriteZeroes, flag::NO_HOLE, 0, 4096, 0);
    step(NbdCommand::BlockStatus, 0, 0, MIB, 0);
    step(NbdCommand::Cache, 0, 0, 4096, 0);
    step(NbdCommand::Flush, 0, 0, 0, 0);
    step(NbdCommand::Read, 0, 0, 65536, 0);
    step(NbdCommand::Disconnect, 0, 0, 0, 0);
    bytes
}

#[test]
fn a_client_may_vanish_at_any_byte() {
    let session = recorded_session();
    for pace in [AnswerPace::Inline, AnswerPace::Reversed, AnswerPace::Held] {
        let server = TestServer::start(ServerSetup { pace, ..ServerSetup::default() });
        for end in 0..=session.len() {
            for abrupt in [false, true] {
                let mut line = server.connect();
                line.hear::<18>();
                line.say(&session[..end]);
                if abrupt {
                    continue;
                }
                line.0.shutdown(Shutdown::Write).unwrap();
                if pace == AnswerPace::Held && end == session.len() {
                    // This one said goodbye: it is owed its answers, and only the gateway can give them.
                    server.until("the answers are due", |world| world.gateway.held() == 8);
                    server.ask(|world| world.gateway.release());
                }
                line.hear_end();
            }
        }
        server.until("nobody is owed anything", |world| {
            // An abrupt goodbye may have been heard, too.
            world.gateway.release();
            world.server.counters().connections_open == 0
        });
        server.until_quiet();
        let counters = server.counters();
        assert!(counters.sessions_started > 1000, "prefixes past the handshake became sessions");
        for (command, seen) in counters.commands() {
            assert!(seen.received > 0, "{} was never reached", command.name());
        }
        server.ask(|world| world.gateway.pace.set(AnswerPace::Inline));
        assert_still_serves(&server);
        server.stop();
    }
}

fn assert_still_serves(server: &TestServer) {
    let mut line = server.enter(false);
    line.say(&request(NbdCommand::Write, 0, 1, 8192, 512));
    line.say(&[42; 512]);
    assert_eq!(line.simple(), (1, 0));
    line.say(&request(NbdCommand::Read, 0, 2, 8192, 512));
    assert_eq!(line.simple(), (2, 0));
    assert_eq!(line.hear::<512>(), [42; 512]);
    line.say(&request(NbdCommand::Disconnect, 0, 0, 0, 0));
    assert!(line.hear_end().is_empty());
}

#[test]
fn a_client_may_vanish_with_reads_outstanding_and_unheard() {
    let server = TestServer::start(ServerSetup { pace: AnswerPace::Held, ..ServerSetup::default() });
    for round in 0..20 {
        let mut line = server.enter(round % 2 == 0);
        for handle in 0..8 {
            line.say(&request(NbdCommand::Read, 0, handle, 0, MIB));
        }
        server.until("the reads are in flight", |world| world.gateway.held() == 8);
        if round % 4 < 2 {
            // The answers fill the socket, and its reader is gone.
            server.ask(|world| world.gateway.release());
        }
        drop(line);
        server.until_quiet();
        server.until("the client is detached", |world| world.gateway.clients() == 0 && world.gateway.held() == 0);
    }
    server.ask(|world| world.gateway.pace.set(AnswerPace::Inline));
    assert_still_serves(&server);
}

/// A reset throws away what was sent before it; the server may meet it anywhere.
#[test]
fn a_reset_connection_is_no_different() {
    let server = TestServer::start(ServerSetup { pace: AnswerPace::Reversed, ..ServerSetup::default() });
    let session = recorded_session();
    for end in (0..=session.len()).step_by(13) {
        let mut stream = std::net::TcpStream::connect(server.tcp).unwrap();
        stream.write_all(&session[..end]).unwrap();
        if end % 2 == 0 {
            stream.read_exact(&mut [0; 18]).unwrap();
        }
        socket2::SockRef::from(&stream).set_linger(Some(Duration::ZERO)).unwrap();
    }
    server.until_quiet();
    assert_still_serves(&server);
    server.stop();
}

#[test]
fn a_goodbye_is_not_waited_for_without_end() {
    let limits = Limits { farewell: Duration::from_millis(100), ..Limits::default() };
    let server = TestServer::start(ServerSetup { limits, pace: AnswerPace::Held, ..ServerSetup::default() });
    let mut stuck = server.enter(false);
    stuck.say(&[request(NbdCommand::Read, 0, 1, 0, MIB), request(NbdCommand::Disconnect, 0, 0, 0, 0)].concat());
    assert!(stuck.hear_end().is_empty());
    // This one is answered and does not listen.
    let mut deaf = server.enter(false);
    deaf.say(&[request(NbdCommand::Read, 0, 1, 0, 8 * MIB), request(NbdCommand::Disconnect, 0, 0, 0, 0)].concat());
    server.until("the read is in flight", |world| world.gateway.held() == 1);
    server.ask(|world| world.gateway.release());
    server.until_quiet();
    assert_eq!(server.counters().sessions_ended_cleanly, 0);
    server.stop();
}

#[test]
fn random_bytes_end_only_their_own_connection() {
    let server = TestServer::start(ServerSetup::default());
    let mut random = NbdRandom(0x5eed);
    let session = recorded_session();
    for round in 0..600 {
        let mut line = server.connect();
        let bytes = match round % 3 {
            0 => {
                let length = random.below(3000) as usize;
                random.bytes(length)
            }
            1 => {
                let length = random.below(5000) as usize;
                [opening(round % 2 == 0), random.bytes(length)].concat()
            }
            _ => {
                let mut bytes = session.clone();
                for _ in 0..1 + random.below(4) {
                    let at = random.below(bytes.len() as u64) as usize;
                    bytes[at] = random.next() as u8;
                }
                bytes
            }
        };
        let _ = line.0.write_all(&bytes);
        let _ = line.0.shutdown(Shutdown::Write);
        line.hear_end();
    }
    server.until_quiet();
    assert_still_serves(&server);
    server.stop();
}

/// Requests whose headers are well formed and whose numbers are anything: each gets exactly one answer.
#[test]
fn every_request_is_answered_once() {
    let setup = ServerSetup { pace: AnswerPace::Reversed, exports: vec![("g/v", 1 << 20)], ..ServerSetup::default() };
    let server = TestServer::start(setup);
    let mut random = NbdRandom(77);
    for structured in [false, true] {
        let mut line = server.enter(structured);
        for handle in 0..2000 {
            let command = NbdCommand::ALL[random.below(9) as usize];
            if command == NbdCommand::Disconnect {
                continue;
            }
            let aligned = if random.below(4) == 0 { 1 } else { 512 };
            let offset = random.below(2300) * aligned;
            let length = (random.below(64) * aligned) as u32;
            let flags = if random.below(3) == 0 { random.below(64) as u16 } else { 0 };
            line.say(&request(command, flags, handle, offset, length));
            if command == NbdCommand::Write {
                line.say(&random.bytes(length as usize));
            }
            let magic = line.hear::<4>();
            if magic == proto::CHUNK_MAGIC.to_be_bytes() {
                let rest: [u8; 16] = line.hear();
                assert_eq!(rest[4..12], handle.to_be_bytes());
                line.hear_bytes(u32::from_be_bytes(rest[12..].try_into().unwrap()) as usize);
            } else {
                assert_eq!(magic, proto::SIMPLE_REPLY_MAGIC.to_be_bytes());
                let rest: [u8; 12] = line.hear();
                assert_eq!(rest[4..], handle.to_be_bytes());
                if command == NbdCommand::Read && rest[..4] == [0; 4] {
                    line.hear_bytes(length as usize);
                }
            }
        }
        line.say(&request(NbdCommand::Disconnect, 0, 0, 0, 0));
        assert!(line.hear_end().is_empty());
    }
    let counters = server.counters();
    for (command, seen) in counters.commands() {
        if command != NbdCommand::Disconnect {
            assert!(seen.received > 100, "{} was hardly tried", command.name());
            assert_eq!(seen.received, seen.done + seen.failed, "{}", command.name());
        }
    }
    assert_eq!((counters.sessions_ended_cleanly, counters.violations), (2, 0));
}

#[test]
fn slow_and_silent_unauthenticated_peers_are_shown_out() {
    let limits = Limits { handshake: Duration::from_millis(150), ..Limits::default() };
    let server = TestServer::start(ServerSetup { limits, ..ServerSetup::default() });
    let mut entered = server.enter(false);
    for bytes in [&b""[..], &[0], &[0, 0, 0, 3], &[0, 0, 0, 3, 0x49]] {
        let mut line = server.connect();
        line.say(bytes);
        assert_eq!(line.hear_end().len(), 18, "only the greeting");
    }
    // The limit is for the handshake alone.
    entered.say(&request(NbdCommand::Flush, 0, 5, 0, 0));
    assert_eq!(entered.simple(), (5, 0));
    assert_eq!(server.counters().handshakes_without_session, 4);
}

#[test]
fn too_long_options_and_wrong_magic_end_the_handshake() {
    let server = TestServer::start(ServerSetup::default());
    let mut line = server.connect();
    line.hear::<18>();
    let mut bytes = 3_u32.to_be_bytes().to_vec();
    bytes.extend(proto::OPTION_MAGIC.to_be_bytes());
    bytes.extend(proto::option::GO.to_be_bytes());
    bytes.extend(u32::MAX.to_be_bytes());
    line.say(&bytes);
    assert_eq!(line.option_reply().0, proto::reply::ERR_TOO_BIG);
    assert!(line.hear_end().is_empty());
    let mut line = server.connect();
    line.say(&[3_u32.to_be_bytes().as_slice(), b"NOTMAGIC", &[0; 8]].concat());
    assert_eq!(line.hear_end().len(), 18);
    let mut line = server.connect();
    line.say(&u32::MAX.to_be_bytes());
    assert_eq!(line.hear_end().len(), 18);
    let mut line = server.connect();
    line.say(&3_u32.to_be_bytes());
    let mut option = Vec::new();
    proto::put_option(&mut option, 99, &[]);
    // Questions without end: the server stops answering some time.
    let _ = line.0.write_all(&option.repeat(1000));
    let _ = line.0.shutdown(Shutdown::Write);
    assert!(line.hear_end().len() < 100 * 100);
}

#[test]
fn a_wrong_request_magic_ends_the_session() {
    let server = TestServer::start(ServerSetup::default());
    let mut line = server.enter(false);
    line.say(&[0; proto::REQUEST_BYTES]);
    assert!(line.hear_end().is_empty());
    server.until_quiet();
    assert_eq!(server.counters().violations, 1);
}

#[test]
fn structured_answers_carry_data_extents_and_reasons() {
    let server = TestServer::start(ServerSetup::default());
    let mut line = server.enter(true);
    line.say(&request(NbdCommand::Write, 0, 1, 4096, 4096));
    line.say(&[9; 4096]);
    assert_eq!(line.simple(), (1, 0));
    line.say(&request(NbdCommand::Read, flag::DF, 2, 3584, 1024));
    let answer = line.chunk();
    let data = [3584_u64.to_be_bytes().as_slice(), &[0; 512], &[9; 512]].concat();
    assert_eq!((answer.kind, answer.handle, answer.payload), (chunk::OFFSET_DATA, 2, data));
    line.say(&request(NbdCommand::BlockStatus, 0, 3, 0, 16384));
    let words = |payload: &[u8]| -> Vec<u32> {
        payload.chunks(4).map(|word| u32::from_be_bytes(word.try_into().unwrap())).collect()
    };
    let answer = line.chunk();
    assert_eq!(answer.kind, chunk::BLOCK_STATUS);
    assert_eq!(words(&answer.payload), [proto::ALLOCATION_ID, 4096, 3, 4096, 0, 8192, 3]);
    line.say(&request(NbdCommand::BlockStatus, flag::REQ_ONE, 4, 0, 16384));
    assert_eq!(words(&line.chunk().payload), [proto::ALLOCATION_ID, 4096, 3]);
    line.say(&request(NbdCommand::Read, 0, 5, 512, 0));
    assert_eq!(line.chunk(), Chunk { kind: chunk::NONE, handle: 5, payload: vec![] });
    line.say(&request(NbdCommand::Read, 0, 6, 1, 512));
    assert_eq!(line.chunk().errno(), Some(22));
    line.say(&request(NbdCommand::WriteZeroes, flag::FAST_ZERO, 7, 4096, 4096));
    assert_eq!(line.chunk().errno(), Some(95));
    line.say(&request(NbdCommand::Read, 0, 8, 4096, 512));
    assert_eq!(line.chunk().payload[8..], [9; 512], "a refused fast zero has changed nothing");
}

#[test]
fn failures_below_have_their_numbers() {
    let server = TestServer::start(ServerSetup::default());
    let (mut simple, mut structured) = (server.enter(false), server.enter(true));
    for (failure, code) in [
        (RequestFailure::Io, 5),
        (RequestFailure::NoSpace, 28),
        (RequestFailure::Invalid, 22),
        (RequestFailure::NotSupported, 95),
        (RequestFailure::NoMemory, 12),
        (RequestFailure::Gone, 108),
    ] {
        server.ask(move |world| world.gateway.failing.set(Some(failure)));
        for command in [NbdCommand::Read, NbdCommand::Trim] {
            simple.say(&request(command, 0, 3, 0, 512));
            assert_eq!(simple.simple(), (3, code));
            structured.say(&request(command, 0, 3, 0, 512));
            assert_eq!(structured.chunk().errno(), Some(code));
        }
    }
}

#[test]
fn answers_come_in_the_order_they_are_ready() {
    let server = TestServer::start(ServerSetup { pace: AnswerPace::Held, ..ServerSetup::default() });
    let mut line = server.enter(false);
    let mut bytes = Vec::new();
    for handle in 0..32 {
        bytes.extend(request(NbdCommand::Write, 0, handle, handle * 512, 512));
        bytes.extend([handle as u8; 512]);
    }
    line.say(&bytes);
    server.until("the writes are in flight", |world| world.gateway.held() == 32);
    assert!(server.ask(|world| world.gateway.batch_max.get()) > 1, "requests go down in batches");
    server.ask(|world| world.gateway.release());
    for handle in (0..32).rev() {
        assert_eq!(line.simple(), (handle, 0));
    }
}

/// An answer larger than the socket's buffer, to a client that says nothing more.
#[test]
fn a_large_answer_leaves_by_itself() {
    let server = TestServer::start(ServerSetup { pace: AnswerPace::Held, ..ServerSetup::default() });
    let mut line = server.enter(false);
    line.say(&request(NbdCommand::Read, 0, 1, 0, 8 * MIB));
    server.until("the read is in flight", |world| world.gateway.held() == 1);
    server.ask(|world| world.gateway.release());
    assert_eq!(line.simple(), (1, 0));
    assert!(line.hear_bytes(8 << 20).iter().all(|byte| *byte == 0));
}

#[test]
fn goodbye_waits_for_the_answers_due() {
    let server = TestServer::start(ServerSetup { pace: AnswerPace::Held, ..ServerSetup::default() });
    let mut line = server.enter(false);
    line.say(&[request(NbdCommand::Read, 0, 1, 0, 4 * MIB), request(NbdCommand::Disconnect, 0, 0, 0, 0)].concat());
    server.until("the read is in flight", |world| world.gateway.held() == 1);
    server.ask(|world| world.gateway.release());
    assert_eq!(line.hear_end().len(), 16 + 4 * MIB as usize);
    server.until_quiet();
    assert_eq!(server.counters().sessions_ended_cleanly, 1);
}

#[test]
fn an_export_that_goes_takes_its_clients_along() {
    let server = TestServer::start(ServerSetup { pace: AnswerPace::Held, ..ServerSetup::default() });
    let mut line = server.enter(false);
    line.say(&request(NbdCommand::Flush, 0, 1, 0, 0));
    server.until("the flush is in flight", |world| world.gateway.held() == 1);
    server.ask(|world| world.gateway.close());
    assert_eq!(line.simple(), (1, 108));
    assert!(line.hear_end().is_empty());
    server.until_quiet();
    let mut line = server.connect();
    line.hear::<18>();
    line.say(&opening(false));
    assert_eq!(line.option_reply().0, proto::reply::ERR_UNKNOWN);
}

#[test]
fn a_stopping_server_answers_what_it_was_asked() {
    let server = TestServer::start(ServerSetup { pace: AnswerPace::Reversed, ..ServerSetup::default() });
    let mut line = server.enter(false);
    let mut half = server.enter(false);
    half.say(&[request(NbdCommand::Write, 0, 1, 0, 4096), vec![0; 100]].concat());
    line.say(&request(NbdCommand::Read, 0, 1, 0, 512));
    server.until("the read was received", |world| world.server.counters().command(NbdCommand::Read).received == 1);
    server.until("the write was begun", |world| world.server.counters().command(NbdCommand::Write).received == 1);
    let socket = server.socket();
    server.stop();
    assert_eq!(line.hear_end().len(), 16 + 512);
    assert!(half.hear_end().is_empty());
    assert!(!socket.exists());
}

#[test]
fn a_dropped_server_cuts_its_clients() {
    let server = TestServer::start(ServerSetup { cut: true, pace: AnswerPace::Held, ..ServerSetup::default() });
    let (mut asking, mut idle, mut outside) = (server.enter(false), server.enter(true), server.connect());
    asking.say(&request(NbdCommand::Read, 0, 1, 0, 512));
    server.until("the read is in flight", |world| world.gateway.held() == 1);
    server.stop();
    assert!(asking.hear_end().is_empty() && idle.hear_end().is_empty());
    assert_eq!(outside.hear_end().len(), 18);
}

#[test]
fn a_client_that_does_not_listen_is_not_read() {
    let limits = Limits { requests_in_flight: 16, bytes_in_flight: 4 << 20, ..Limits::default() };
    let server = TestServer::start(ServerSetup { limits, ..ServerSetup::default() });
    let mut line = server.enter(false);
    // 64 MiB of answers are asked for; the socket and the allowance hold a few.
    for handle in 0..64 {
        line.say(&request(NbdCommand::Read, 0, handle, 0, MIB));
    }
    server.until("the allowance is used up", |world| world.server.counters().command(NbdCommand::Read).received >= 4);
    let mut other = server.enter(false);
    for handle in 0..100 {
        other.say(&request(NbdCommand::Read, 0, handle, 0, 512));
        assert_eq!(other.simple(), (handle, 0));
        other.hear::<512>();
    }
    let (received, held) = server.ask(|world| {
        (world.server.counters().command(NbdCommand::Read).received, world.gateway.pool.outstanding_bytes())
    });
    assert!(received - 100 <= 6, "{received} requests were taken");
    assert!(held <= 5 << 20, "{held} bytes are held");
    for handle in 0..64 {
        assert_eq!(line.simple(), (handle, 0));
        line.hear_bytes(MIB as usize);
    }
}

#[test]
fn more_requests_than_allowed_wait_for_their_turn() {
    let limits = Limits { requests_in_flight: 4, ..Limits::default() };
    let server = TestServer::start(ServerSetup { limits, pace: AnswerPace::Held, ..ServerSetup::default() });
    let mut line = server.enter(false);
    for handle in 0..32 {
        line.say(&request(NbdCommand::Flush, 0, handle, 0, 0));
    }
    for _ in 0..8 {
        server.until("the allowance is used up", |world| world.gateway.held() == 4);
        server.ask(|world| world.gateway.release());
    }
    let mut answered: Vec<u64> = (0..32).map(|_| line.simple().0).collect();
    answered.sort();
    assert_eq!(answered, (0..32).collect::<Vec<u64>>());
}

// proves: P8
#[test]
fn a_pool_that_is_empty_makes_clients_wait_not_fail() {
    let server =
        TestServer::start(ServerSetup { pool_bytes: 2 << 20, pace: AnswerPace::Held, ..ServerSetup::default() });
    let mut first = server.enter(false);
    first.say(&[request(NbdCommand::Write, 0, 1, 0, 2 * MIB), vec![1; 2 << 20]].concat());
    server.until("the pool is empty", |world| world.gateway.held() == 1);
    let mut second = server.enter(false);
    second.say(&[request(NbdCommand::Write, 0, 2, 0, 4096), vec![2; 4096]].concat());
    second.say(&request(NbdCommand::Read, 0, 3, 0, 4096));
    server.ask(|world| {
        world.gateway.pace.set(AnswerPace::Inline);
        world.gateway.release();
    });
    assert_eq!(first.simple(), (1, 0));
    assert_eq!(second.simple(), (2, 0));
    assert_eq!(second.simple(), (3, 0));
    assert_eq!(second.hear::<4096>(), [2; 4096]);
}

#[test]
fn payloads_up_to_the_limit_are_taken_and_longer_ones_thrown_away() {
    let server = TestServer::start(ServerSetup { exports: vec![("g/v", 128 << 20)], ..ServerSetup::default() });
    let mut line = server.enter(false);
    let payload = NbdRandom(3).bytes(32 << 20);
    line.say(&request(NbdCommand::Write, 0, 1, MIB.into(), 32 * MIB));
    line.say(&payload);
    assert_eq!(line.simple(), (1, 0));
    line.say(&request(NbdCommand::Read, 0, 2, MIB.into(), 32 * MIB));
    assert_eq!(line.simple(), (2, 0));
    assert!(line.hear_bytes(32 << 20) == payload, "32 MiB came back changed");
    line.say(&request(NbdCommand::Write, 0, 3, 0, 33 * MIB));
    line.say(&vec![1; 33 << 20]);
    assert_eq!(line.simple(), (3, 22));
    line.say(&request(NbdCommand::Read, 0, 4, 0, 33 * MIB));
    assert_eq!(line.simple(), (4, 22));
    line.say(&request(NbdCommand::Write, 0, 5, 0, u32::MAX));
    assert_eq!(line.simple(), (5, 22));
    assert!(line.hear_end().is_empty(), "4 GiB are not worth reading to throw them away");
}

#[test]
fn long_ranges_go_down_whole() {
    let length = u32::MAX - 511;
    let setup = ServerSetup { exports: vec![("g/v", 1 << 40)], files: true, ..ServerSetup::default() };
    let server = TestServer::start(setup);
    let mut line = server.enter(true);
    for command in [NbdCommand::Trim, NbdCommand::WriteZeroes, NbdCommand::Cache] {
        line.say(&request(command, 0, 1, 512, length));
        assert_eq!(line.simple(), (1, 0));
        assert_eq!(server.ask(|world| world.gateway.lengths_max.replace(0)), u64::from(length));
    }
    line.say(&request(NbdCommand::BlockStatus, 0, 2, 512, length));
    assert_eq!(line.chunk().payload[4..8], length.to_be_bytes());
    line.say(&request(NbdCommand::Trim, 0, 3, 1 << 39, length));
    assert_eq!(line.simple(), (3, 0));
    line.say(&request(NbdCommand::Trim, 0, 4, (1 << 40) - 512, length));
    assert_eq!(line.chunk().errno(), Some(28));
}

#[test]
fn large_logical_blocks_bind_everyone() {
    let server = TestServer::start(ServerSetup { block_min_bytes: 4096, ..ServerSetup::default() });
    let mut line = server.enter(false);
    line.say(&request(NbdCommand::Read, 0, 1, 512, 512));
    assert_eq!(line.simple(), (1, 22));
    line.say(&[request(NbdCommand::Write, 0, 2, 0, 4608), vec![0; 4608]].concat());
    assert_eq!(line.simple(), (2, 22));
    line.say(&request(NbdCommand::Read, 0, 3, 4096, 4096));
    assert_eq!(line.simple(), (3, 0));
}

#[test]
fn more_clients_than_allowed_are_turned_away() {
    let server = TestServer::start(ServerSetup {
        limits: Limits { connections: 2, ..Limits::default() },
        ..ServerSetup::default()
    });
    let (first, second) = (server.enter(false), server.enter(false));
    let refused = on_runtime(async { NbdClient::connect(&Address::Tcp(server.tcp), "g/v").await.err() });
    let refused = refused.expect("no slot is left").to_string();
    assert!(refused.contains("this node serves 2 connections at once, 0 of them are this client's"), "{refused}");
    assert_eq!(server.counters().connections_refused, 1);
    drop((first, second));
    server.until_quiet();
    assert_still_serves(&server);
}

/// Whoever says nothing takes no client's place, and its own only until others come.
#[test]
fn silent_unauthenticated_clients_keep_no_client_out() {
    let limits = Limits { connections: 2, unauthenticated: 3, ..Limits::default() };
    let server = TestServer::start(ServerSetup { limits, ..ServerSetup::default() });
    let mut silent: Vec<TcpStream> = (0..8).map(|_| TcpStream::connect(server.tcp).expect("it listens")).collect();
    server.until("the first of them had to go", |world| world.server.counters().connections_open == 3);
    let mut greeting = Vec::new();
    silent[0].read_to_end(&mut greeting).expect("closed");
    let by_file = server.enter(false);
    let by_tcp = on_runtime(async { NbdClient::connect(&Address::Tcp(server.tcp), "g/v").await });
    assert!(by_tcp.is_ok(), "an unauthenticated client that makes haste comes in");
    drop((by_file, by_tcp, silent));
    server.until_quiet();
    assert_still_serves(&server);
}

#[test]
fn our_own_client_speaks_over_both_sockets() {
    let server = TestServer::start(ServerSetup { pace: AnswerPace::Reversed, ..ServerSetup::default() });
    for address in [Address::Unix(server.socket()), Address::Tcp(server.tcp)] {
        on_runtime(async {
            let mut client = NbdClient::connect(&address, "g/v").await.unwrap();
            assert_eq!((client.export().size_bytes, client.export().block_min_bytes), (64 << 20, 512));
            let data = NbdRandom(1).bytes(3 << 20);
            for (index, part) in data.chunks(64 << 10).enumerate() {
                client
                    .queue(index as u64, Ask::Write { offset: (index as u64) << 16, data: part, fua: index % 2 == 0 });
            }
            while client.in_flight() > 0 {
                client.next().await.unwrap().result.unwrap();
            }
            for index in 0..3 {
                client.queue(index, Ask::Read { offset: index << 20, length: MIB });
            }
            while client.in_flight() > 0 {
                let answer = client.next().await.unwrap();
                let start = (answer.cookie as usize) << 20;
                assert!(answer.result.unwrap() == data[start..start + (1 << 20)]);
            }
            let zero = Ask::Zero { offset: 0, length: 4096, fua: false, no_hole: true };
            for ask in [zero, Ask::Flush, Ask::Trim { offset: 4096, length: 4096, fua: true }] {
                client.call(ask).await.unwrap().unwrap();
            }
            let read = client.call(Ask::Read { offset: 0, length: 8192 }).await.unwrap();
            assert_eq!(read, Ok(vec![0; 8192]));
            let cache = client.call(Ask::Cache { offset: 1, length: 5 }).await.unwrap();
            assert_eq!(cache, Err(proto::Errno::Invalid));
            client.disconnect().await.unwrap();
            let refused = NbdClient::connect(&address, "g/other").await.err().unwrap().to_string();
            assert!(refused.contains("g/other") && refused.contains("list the exports"), "{refused}");
        });
    }
    server.until_quiet();
    assert_eq!(server.counters().sessions_ended_cleanly, 2);
}

/// `next` may be dropped half way and called again without losing or repeating a byte.
#[test]
fn our_own_client_survives_being_interrupted() {
    let server = TestServer::start(ServerSetup::default());
    on_runtime(async {
        let mut client = NbdClient::connect(&Address::Unix(server.socket()), "").await.unwrap();
        let data = NbdRandom(5).bytes(8 << 20);
        client.queue(1, Ask::Write { offset: 0, data: &data, fua: false });
        client.queue(2, Ask::Read { offset: 0, length: 8 * MIB });
        let mut answers = Vec::new();
        while client.in_flight() > 0 {
            tokio::select! {
                biased;
                answer = client.next() => answers.push(answer.unwrap()),
                () = tokio::task::yield_now() => {}
            }
        }
        answers.sort_by_key(|answer| answer.cookie);
        assert_eq!(answers[0].result, Ok(vec![]));
        assert!(answers[1].result.as_ref().unwrap() == &data);
    });
}
