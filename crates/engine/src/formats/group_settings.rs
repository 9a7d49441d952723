//! A group's settings as a node reports them to its peer, in GroupHello and GroupState.

use core::time::Duration;

use crate::formats::codec::{FieldDecoder, FieldEncoder};
use crate::limits::LINK_WEIGHT_MAX;
use crate::settings::{Fallback, QueuePace, Settings, StartAlone};
use crate::state::{AfterForcedFailover, Degrade, Fold, Mode, Policy, WhenFull};

pub(super) fn encode_settings(settings: &Settings, w: &mut FieldEncoder) {
    let ns = |duration: Duration| duration.as_nanos() as u64;
    let (policy, window) = match settings.policy {
        Policy::Degrade => (0, 0),
        Policy::Hold(window) => (1, ns(window)),
        Policy::Strict => (2, 0),
    };
    let (start, wait) = match settings.start_alone {
        StartAlone::Serve => (0, 0),
        StartAlone::Wait(wait) => (1, ns(wait)),
    };
    w.u8(settings.mode.number());
    w.u8(policy);
    w.u64(window);
    w.u64(ns(settings.wait_limit));
    w.u8(u8::from(settings.autosync));
    w.u8(start);
    w.u64(wait);
    w.u64(settings.queue_bytes);
    w.u64(settings.queue_items);
    w.u8(settings.degrade.number());
    w.u8(settings.after_forced_failover.number());
    w.u8(settings.when_full.number());
    let (from, to) = settings.pace.map_or((0, 0), |pace| (pace.from(), pace.to()));
    w.u8(from);
    w.u8(to);
    w.u8(settings.fallback.map_or(0, |fallback| fallback.mode.number() + 1));
    let times =
        settings.fallback.map_or([0; 4], |f| [ns(f.latency), ns(f.after), ns(f.return_after), f.lag.map_or(0, ns)]);
    times.into_iter().for_each(|time| w.u64(time));
    w.u8(settings.link_weight);
    w.u8(settings.fold.number());
}

pub(super) fn decode_settings(r: &mut FieldDecoder<'_>) -> Option<Settings> {
    let (mode, policy, window) = (Mode::from_number(r.u8()?)?, r.u8()?, Duration::from_nanos(r.number()?));
    let (wait_limit, autosync) = (Duration::from_nanos(r.number()?), r.u8()? != 0);
    let (start, wait) = (r.u8()?, Duration::from_nanos(r.number()?));
    let policy = match policy {
        0 => Policy::Degrade,
        1 => Policy::Hold(window),
        2 => Policy::Strict,
        _ => return None,
    };
    let start_alone = match start {
        0 => StartAlone::Serve,
        1 => StartAlone::Wait(wait),
        _ => return None,
    };
    let (queue_bytes, queue_items) = (r.number()?, r.number()?);
    let degrade = Degrade::from_number(r.u8()?)?;
    let after_forced_failover = AfterForcedFailover::from_number(r.u8()?)?;
    let when_full = WhenFull::from_number(r.u8()?)?;
    let pace = match (r.u8()?, r.u8()?) {
        (0, 0) => None,
        (from, to) => Some(QueuePace::new(from, to)?),
    };
    let fallback = decode_fallback(r)?;
    let link_weight = r.u8().filter(|weight| (1..=LINK_WEIGHT_MAX).contains(weight))?;
    let fold = Fold::from_number(r.u8()?)?;
    Some(Settings {
        mode,
        policy,
        degrade,
        wait_limit,
        fallback,
        autosync,
        queue_bytes,
        queue_items,
        when_full,
        pace,
        fold,
        link_weight,
        start_alone,
        after_forced_failover,
    })
}

/// `Some(None)`: there is none, and it has no times.
fn decode_fallback(r: &mut FieldDecoder<'_>) -> Option<Option<Fallback>> {
    let (mode, mut times) = (r.u8()?, [Duration::ZERO; 4]);
    for time in &mut times {
        *time = Duration::from_nanos(r.number()?);
    }
    let [latency, after, return_after, lag] = times;
    let lag = Some(lag).filter(|lag| !lag.is_zero());
    match mode.checked_sub(1) {
        None => (times == [Duration::ZERO; 4]).then_some(None),
        Some(mode) => Some(Some(Fallback { mode: Mode::from_number(mode)?, latency, after, lag, return_after })),
    }
}
