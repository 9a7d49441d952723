//! What the toolkit measured, as the planner reads it: `link test --json` and `disk test --json`.
//!
//! ```text
//! {"schema":"farshore-link-test/1","start":{"rtt_s":0.0503,"congestion":"bbr"},"end":{"received":{"bytes_per_s":11700000},"loss_share":0.0}}
//! {"schema":"farshore-disk-test/1","end":{"bytes_per_s":180000000,"overhead_s":0.0004}}
//! ```
//!
//! Other keys are passed over: the toolkit reports far more than a plan needs. `end.received.bytes_per_s` is what the far end
//! counted, which is the true rate; `start.rtt_s` is the round trip of the idle link. Without `start.congestion` it is what the
//! daemons ask for.

use serde_json::Value as Json;

use crate::formulas::CongestionModel;
use crate::model::{LinkModel, PlannedDisk};
use units::quantities::{BYTES_PER_S_MIN, Rate, Seconds, Share};

pub const LINK_TEST_SCHEMA: &str = "farshore-link-test/1";
pub const DISK_TEST_SCHEMA: &str = "farshore-disk-test/1";

/// # Errors
/// A sentence: not JSON, of another schema, a number missing or out of range.
pub fn link(text: &str) -> Result<LinkModel, String> {
    let json = parse(text, LINK_TEST_SCHEMA)?;
    let rate = rate(&json, "/end/received/bytes_per_s")?;
    let rtt = number(&json, "/start/rtt_s")?;
    let loss = if json.pointer("/end/loss_share").is_some() { number(&json, "/end/loss_share")? } else { 0.0 };
    if loss > 1.0 {
        return Err("end.loss_share is more than the whole".to_owned());
    }
    let used = json.pointer("/start/congestion").and_then(Json::as_str);
    let congestion = used.map_or(CongestionModel::auto(Seconds(rtt)), CongestionModel::like);
    Ok(LinkModel { loss: Share(loss), congestion, ..LinkModel::measured(rate, Seconds(rtt)) })
}

/// # Errors
/// A sentence: not JSON, of another schema, a number missing or out of range.
pub fn disk(text: &str) -> Result<PlannedDisk, String> {
    let json = parse(text, DISK_TEST_SCHEMA)?;
    let rate = rate(&json, "/end/bytes_per_s")?;
    Ok(PlannedDisk { rate: Some(rate), overhead: Seconds(number(&json, "/end/overhead_s")?) })
}

fn parse(text: &str, schema: &str) -> Result<Json, String> {
    let json: Json = serde_json::from_str(text).map_err(|error| format!("it is not JSON: {error}"))?;
    match json.get("schema").and_then(Json::as_str) {
        Some(found) if found == schema => Ok(json),
        Some(found) => Err(format!("its schema is {found:?}, and {schema:?} is wanted")),
        None => Err(format!("it has no \"schema\"; {schema:?} is wanted")),
    }
}

fn number(json: &Json, pointer: &str) -> Result<f64, String> {
    let name = pointer.trim_start_matches('/').replace('/', ".");
    let value =
        json.pointer(pointer).and_then(Json::as_f64).ok_or_else(|| format!("{name} is missing or no number"))?;
    if (0.0..1e15).contains(&value) { Ok(value) } else { Err(format!("{name} is {value}, which is out of range")) }
}

fn rate(json: &Json, pointer: &str) -> Result<Rate, String> {
    let name = pointer.trim_start_matches('/').replace('/', ".");
    match number(json, pointer)? {
        0.0 => Err(format!("{name} is zero")),
        value if value < BYTES_PER_S_MIN => Err(format!("{name} is {value:e}, which is less than a bit per second")),
        value => Ok(Rate::from_bytes_per_s(value)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 10 MB/s came through with 0.1 % lost over 50 ms: the formula, which leaves 1.12 MB/s of a nominal line, was applied to that as well.
    #[test]
    fn a_measured_rate_is_not_lowered_by_its_loss_again() {
        let text = r#"{"schema":"farshore-link-test/1","start":{"rtt_s":0.05,"congestion":"cubic"},"end":{"received":{"bytes_per_s":1e7},"loss_share":0.001}}"#;
        let found = link(text).expect("sound");
        assert_eq!((found.goodput(), found.loss), (Rate::from_mb(10.0), Share(0.001)));
        let nominal = LinkModel { loss: found.loss, ..LinkModel::of_line(Rate::from_mbit(100.0), found.rtt) };
        assert!((nominal.goodput().as_mb() - 1.12).abs() < 0.01, "{:?}", nominal.goodput());
    }

    #[test]
    fn what_the_toolkit_measured() {
        let text = r#"{"schema":"farshore-link-test/1","start":{"rtt_s":0.05,"congestion":"htcp"},"end":{"received":{"bytes_per_s":1e7},"loss_share":0.001}}"#;
        let found = link(text).unwrap();
        assert_eq!((found.rtt, found.loss, found.payload_share), (Seconds(0.05), Share(0.001), 1.0));
        let text = r#"{"schema":"farshore-link-test/1","start":{"rtt_s":0.05},"end":{"received":{"bytes_per_s":1e7}}}"#;
        assert_eq!(link(text).map(|link| link.congestion), Ok(CongestionModel::Bbr));
        let text = r#"{"schema":"farshore-disk-test/1","end":{"bytes_per_s":2e8,"overhead_s":0.001}}"#;
        assert_eq!(disk(text), Ok(PlannedDisk { rate: Some(Rate::from_mb(200.0)), overhead: Seconds(0.001) }));
        for (text, hint) in [
            ("{", "not JSON"),
            ("{}", "no \"schema\""),
            (r#"{"schema":"farshore-disk-test/1"}"#, "is wanted"),
            (
                r#"{"schema":"farshore-link-test/1","start":{"rtt_s":-1},"end":{"received":{"bytes_per_s":1}}}"#,
                "start.rtt_s is -1",
            ),
            (
                r#"{"schema":"farshore-link-test/1","end":{"received":{"bytes_per_s":0}}}"#,
                "end.received.bytes_per_s is zero",
            ),
            (
                r#"{"schema":"farshore-link-test/1","end":{"received":{"bytes_per_s":1e-300}}}"#,
                "end.received.bytes_per_s is 1e-300, which is less than a bit per second",
            ),
        ] {
            let error = link(text).expect_err(text);
            assert!(error.contains(hint), "{text}: {error}");
        }
    }
}
