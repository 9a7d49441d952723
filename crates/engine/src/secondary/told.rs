//! What a primary tells its secondary of the group, and how long that counts: both nodes show the same truth of the copy, or say
//! since when it is not known (rule 19).
//!
//! How far the copy is behind only the primary knows: it tells that with its clock, at least every second, also while frames
//! travel. A secondary takes it for the present for [`TOLD_HOLDS`], and never once the session is over.

use alloc::format;
use core::time::Duration;

use crate::Event;
use crate::common::Common;
use crate::context::Cx;
use crate::formats::identity::Role;
use crate::formats::wire::{GroupHello, Header, Tick};
use crate::ids::Seq;
use crate::limits::{CLOCK_SAID_AGAIN_AFTER, TOLD_HOLDS};
use crate::secondary::Secondary;
use crate::shared::time::{Mono, Wall, ahead};
use crate::state::{Mode, State};

/// The newest word of the primary.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Told {
    tick: Tick,
    at: Mono,
    /// Its stamp of the last write then.
    stamp: Wall,
    /// All that it had numbered was applied here then: up to this number.
    in_step: Option<Seq>,
    /// In the session that is up.
    in_session: bool,
}

/// How far the copy is behind, as the primary sees it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Behind {
    pub lag_bytes: u64,
    /// `None`: unknown, nothing was applied yet.
    pub lag: Option<Duration>,
    /// The last write known to be applied, and its time.
    pub applied: Option<(Seq, Wall)>,
}

impl Secondary {
    /// How far the primary's stamps stand ahead of its clock, as it tells in this session.
    pub fn primary_clock_ahead(&self) -> Option<Duration> {
        self.told.filter(|told| told.in_session).and_then(|told| told.ahead())
    }

    // ---- the secondary's half --------------------------------------------------------------------------------------

    pub fn hear_primary(&mut self, common: &mut Common, cx: &mut Cx, header: &Header, tick: Tick) {
        let follows = header.incarnation == self.incarnation && self.streaming && self.cut.is_none();
        let applied = header.seq == self.applied && self.applied == self.received;
        let in_step = Some(header.seq).filter(|_| follows && applied);
        let told = Told { tick, at: cx.now.mono, stamp: header.wall, in_step, in_session: true };
        self.told = Some(told);
        common.say_of_clock(cx, told.ahead(), told.stamp, "the primary");
        // A group that failed may not know what its superblock should say.
        let may_record = self.may_count && !matches!(common.state, State::Failed(_));
        if may_record && common.sb.current.primary_mode != Some(tick.mode) {
            // What a promotion has to know, however this node comes to it.
            common.sb.current.primary_mode = Some(tick.mode);
            common.save(cx, None);
        }
    }

    /// The session is over, or its other end is no primary: what it told is of the past.
    pub fn told_is_past(&mut self) {
        if let Some(told) = &mut self.told {
            told.in_session = false;
        }
    }

    /// What a former primary told does not count.
    pub fn forget_told(&mut self) {
        self.told = None;
    }

    pub fn take_peer_hello(&mut self, common: &mut Common, hello: GroupHello) {
        if hello.identity.role != Role::Primary {
            self.told_is_past();
        }
        common.greeting.take_up(hello);
    }

    /// The state that the primary told in this session.
    pub fn told_state(&self) -> Option<State> {
        self.told.filter(|told| told.in_session).map(|told| told.tick.state)
    }

    /// What the primary told, and how long ago; whether that still counts.
    pub fn told(&self, now: Mono) -> Option<(Tick, Duration, bool)> {
        self.told.map(|told| {
            let since = now.since(told.at);
            (told.tick, since, told.in_session && since < TOLD_HOLDS)
        })
    }

    /// The time of the copy, by the primary's clock: where stamps stand still since that was set back, and the copy was in step, it is
    /// the clock as it was told.
    pub fn time_of_copy(&self, seq: Seq, stamp: Wall) -> Wall {
        match self.told {
            Some(told) if told.in_step == Some(seq) && told.ahead().is_some() => told.tick.clock,
            _ => stamp,
        }
    }
}

impl Common {
    pub fn say_of_clock(&mut self, cx: &mut Cx, behind: Option<Duration>, stamp: Wall, whose: &str) {
        // A peer that has its clock jump fills nobody's log.
        let is_news = behind.is_some() != self.clock_is_behind;
        let is_soon = self.clock_said_at.is_some_and(|at| cx.now.mono.since(at) < CLOCK_SAID_AGAIN_AFTER);
        if !is_news || is_soon {
            return;
        }
        (self.clock_is_behind, self.clock_said_at) = (behind.is_some(), Some(cx.now.mono));
        let note = match behind {
            Some(behind) => {
                format!(
                    "the wall clock of {whose} stands {} s behind the time of the last write, {stamp}: it was set back, or that write was \
                     stamped by another node's clock. Times of writes never go back: they stand still until the clock is past that; numbers \
                     go on",
                    behind.as_secs()
                )
            }
            None => {
                format!("the wall clock of {whose} is past the time of the last write again: times of writes go on")
            }
        };
        cx.event(self.id(), Event::Note(note));
    }

    /// The mode that the copy here is made in; `None`: no primary was heard of yet.
    pub fn mode_of_primary(&self) -> Option<Mode> {
        self.sb.current.primary_mode
    }
}

impl Told {
    pub fn ahead(&self) -> Option<Duration> {
        ahead(self.stamp, self.tick.clock)
    }
}
