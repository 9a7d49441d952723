//! What is ordered between the connections of one export: a flush on any of them covers every write that was answered before it on
//! any other, through a power loss as through a kill.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::common::eight::run;
use crate::common::{GROUP, Pair, PairPlan, SERVES_ALONE, Side, TestRandom, must_skip_stores};
use host::nbd::{Address, Ask, NbdClient};

const PAGE: u64 = 4096;
const WRITERS: u64 = 6;
const ROUNDS: u8 = 6;

async fn connect(pair: &Pair) -> NbdClient {
    let address = Address::Unix(pair.path("near/state/nbd.sock"));
    NbdClient::connect(&address, &format!("{GROUP}/data")).await.expect("an export")
}

async fn write(client: &mut NbdClient, page: u64, byte: u8) {
    let ask = Ask::Write { offset: page * PAGE, data: &[byte; PAGE as usize], fua: false };
    client.call(ask).await.expect("served").expect("written");
}

/// Each writer on a connection of its own, some pages answered; then a flush on yet another one, while they write on. What has to be
/// there after the power was lost, by page.
async fn round(pair: &Pair, byte: u8, random: &mut TestRandom) -> BTreeMap<u64, Vec<u8>> {
    let mut promised = BTreeMap::new();
    let mut writers = Vec::new();
    for number in 0..WRITERS {
        let mut writer = connect(pair).await;
        for _ in 0..4 {
            let page = number * 32 + random.below(32);
            write(&mut writer, page, byte).await;
            promised.insert(page, vec![byte]);
        }
        writers.push(writer);
    }
    let mut flusher = connect(pair).await;
    flusher.queue(1, Ask::Flush);
    // These may get to the disk or not.
    let mut answered = Vec::new();
    for (number, writer) in (0..).zip(&mut writers) {
        let page = number * 32 + random.below(32);
        let data = [byte + 100; PAGE as usize];
        writer.queue(1, Ask::Write { offset: page * PAGE, data: &data, fua: false });
        // Sent, and not waited for.
        answered.push(tokio::time::timeout(Duration::ZERO, writer.next()).await.is_ok());
        promised.entry(page).and_modify(|may: &mut Vec<u8>| may.push(byte + 100));
    }
    flusher.next().await.expect("served").result.expect("flushed");
    // Nor need these, though they are answered.
    for (number, writer) in (0..).zip(&mut writers) {
        if !answered[number as usize] {
            writer.next().await.expect("served").result.expect("written");
        }
        let page = number * 32 + random.below(32);
        write(writer, page, byte + 50).await;
        promised.entry(page).and_modify(|may: &mut Vec<u8>| may.push(byte + 50));
    }
    promised
}

fn assert_kept(pair: &Pair, promised: &BTreeMap<u64, Vec<u8>>, case: &str) {
    let content = pair.content(Side::Near, "data");
    for (page, may) in promised {
        let found = &content[(page * PAGE) as usize..][..PAGE as usize];
        let is_kept = found.chunks(512).all(|sector| may.iter().any(|byte| sector == [*byte; 512]));
        assert!(is_kept, "{case}: page {page} holds {}, and {may:?} was promised", found[0]);
    }
}

// proves: P4
#[test]
fn a_flush_covers_what_was_answered_on_other_connections() {
    let test = "a_flush_covers_what_was_answered_on_other_connections";
    if must_skip_stores(test) {
        return;
    }
    for engine in ["uring", "pool"] {
        let node = format!("engine = \"{engine}\"");
        let plan = PairPlan {
            volumes: &["data"],
            volume_bytes: 2 << 20,
            group: SERVES_ALONE,
            node: &node,
            forgets: true,
            ..PairPlan::default()
        };
        let mut pair = Pair::new(&plan);
        let mut random = TestRandom::new(3);
        let mut forgotten_bytes = 0;
        for byte in 1..=ROUNDS {
            pair.serve(Side::Near);
            let mut promised = BTreeMap::new();
            run(async { promised = round(&pair, byte, &mut random).await });
            let case = format!("{engine}, round {byte}");
            if byte % 3 == 0 {
                pair.kill(Side::Near);
            } else {
                forgotten_bytes += pair.lose_power(&[Side::Near], u64::from(byte))[0].forgotten_bytes;
            }
            assert_kept(&pair, &promised, &case);
        }
        println!("{engine}: {forgotten_bytes} bytes were forgotten");
        assert!(forgotten_bytes > 0, "{engine}: nothing was there to be lost");
    }
}
