//! Requests that a client may send and must not get: each is answered with its error, the next one is served, and no
//! byte of the volume changes.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;

use crate::common::{DEADLINE, GROUP, Pair, PairPlan, Side};
use host::nbd::proto::{
    self, Errno, NbdCommand, NbdRequest, OPTION_REPLY_BYTES, SIMPLE_REPLY_BYTES, flag, option, reply,
};

const SIZE: u64 = 2 << 20;
const SMALL: PairPlan = PairPlan { volumes: &["data"], volume_bytes: SIZE, ..PairPlan::DEFAULT };

/// A client without manners of its own: simple replies, one request at a time.
struct RawClient(UnixStream);

impl RawClient {
    fn connect(pair: &Pair) -> RawClient {
        let stream = UnixStream::connect(pair.path("near").join("state/nbd.sock")).expect("the daemon listens");
        stream.set_read_timeout(Some(DEADLINE)).expect("a timeout");
        let mut client = RawClient(stream);
        client.take(18);
        let name = format!("{GROUP}/data");
        let data = [&(name.len() as u32).to_be_bytes()[..], name.as_bytes(), &[0, 0]].concat();
        let mut talk = 3u32.to_be_bytes().to_vec();
        proto::put_option(&mut talk, option::GO, &data);
        client.0.write_all(&talk).expect("the daemon reads");
        loop {
            let header: [u8; OPTION_REPLY_BYTES] = client.take(OPTION_REPLY_BYTES).try_into().expect("as asked");
            let answer = proto::parse_option_reply(&header).expect("a reply");
            client.take(answer.length as usize);
            match answer.reply {
                reply::ACK => return client,
                reply::INFO => {}
                other => panic!("not let in: {other:#x}"),
            }
        }
    }

    fn take(&mut self, bytes: usize) -> Vec<u8> {
        let mut taken = vec![0; bytes];
        self.0.read_exact(&mut taken).expect("the daemon answers");
        taken
    }

    fn ask(&mut self, command: NbdCommand, flags: u16, offset: u64, length: u64, payload: usize) -> Option<Errno> {
        let request = NbdRequest { flags, command, handle: 77, offset, length: u32::try_from(length).expect("fits") };
        self.0.write_all(&proto::encode_request(&request)).expect("the daemon reads");
        self.0.write_all(&vec![0xaa; payload]).expect("the daemon reads");
        let header: [u8; SIMPLE_REPLY_BYTES] = self.take(SIMPLE_REPLY_BYTES).try_into().expect("as asked");
        let (handle, error) = proto::parse_simple_reply(&header).expect("a reply");
        assert_eq!(handle, 77);
        if error.is_none() && command == NbdCommand::Read {
            self.take(length as usize);
        }
        error
    }
}

// proves: rule 21
#[test]
fn each_is_answered_with_its_error() {
    use NbdCommand::*;
    const INVALID: Option<Errno> = Some(Errno::Invalid);
    const NO_SPACE: Option<Errno> = Some(Errno::NoSpace);
    const MIB_32: u64 = 32 << 20;
    let mut pair = Pair::new(&SMALL);
    std::fs::write(pair.device(Side::Near, "data"), vec![4; SIZE as usize]).expect("written");
    pair.done(Side::Near, &["accept-device", "g", "data", "--content-is-good"]);
    pair.serve(Side::Near);
    let mut client = RawClient::connect(&pair);
    for (command, flags, offset, length, payload, expected) in [
        // Past the end: wholly, by one block, by the largest numbers there are.
        (Read, 0, SIZE, 512, 0, INVALID),
        (Read, 0, SIZE - 512, 1024, 0, INVALID),
        (Read, 0, u64::MAX - 511, 512, 0, INVALID),
        (Write, 0, SIZE, 512, 512, NO_SPACE),
        (Write, 0, SIZE - 512, 1024, 1024, NO_SPACE),
        (Write, 0, u64::MAX - 511, 512, 512, NO_SPACE),
        (WriteZeroes, 0, SIZE - 512, 1024, 0, NO_SPACE),
        (WriteZeroes, flag::FUA, 512, u64::from(u32::MAX) & !511, 0, NO_SPACE),
        (Trim, 0, SIZE - 512, 1024, 0, NO_SPACE),
        (Cache, 0, SIZE, 512, 0, INVALID),
        (BlockStatus, 0, 0, 512, 0, INVALID),
        // Misaligned to the block that was announced.
        (Read, 0, 1, 512, 0, INVALID),
        (Read, 0, 0, 511, 0, INVALID),
        (Write, 0, 256, 512, 512, INVALID),
        (Write, 0, 0, 100, 100, INVALID),
        (WriteZeroes, 0, 0, 513, 0, INVALID),
        // Longer than announced; the payload is taken off the line all the same.
        (Read, 0, 0, MIB_32 + 512, 0, INVALID),
        (Write, 0, 0, MIB_32 + 512, (MIB_32 + 512) as usize, INVALID),
        // Of zero length, which the protocol leaves to the server: done by doing nothing.
        (Read, 0, 0, 0, 0, None),
        (Write, 0, 512, 0, 0, None),
        (Trim, 0, 512, 0, 0, None),
        (Write, 0, SIZE + 512, 0, 0, NO_SPACE),
        // Unknown commands and flags; fast zeroes that would not be fast.
        (Unknown, 0, 0, 512, 0, INVALID),
        (Write, 1 << 9, 0, 512, 512, INVALID),
        (WriteZeroes, flag::FAST_ZERO, 0, 512, 0, Some(Errno::NotSupported)),
        // The last block of the volume, and nothing wrong with it.
        (Read, 0, SIZE - 512, 512, 0, None),
    ] {
        let reported = client.ask(command, flags, offset, length, payload);
        assert_eq!(reported, expected, "{} {flags} {offset} {length}", command.name());
    }
    drop(client);
    pair.qemu_io(Side::Near, "data", &["read -P 4 0 2M"]);
    assert!(pair.stop(Side::Near).success());
    assert!(pair.content(Side::Near, "data").iter().all(|byte| *byte == 4));
}
